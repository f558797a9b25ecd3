//! Encodes the association of a primitive as the two words of its identifier. [`Which::Only`] is all zero.

use super::DecodeError;
use crate::{AssociationId, Which};

pub(super) fn words(association: Which) -> [u32; 2] {
    association.id().map_or([0, 0], AssociationId::to_words)
}

pub(super) fn from_words(words: [u32; 2]) -> Result<Which, DecodeError> {
    match (AssociationId::from_words(words), words) {
        (Some(id), _) => Ok(Which::Id(id)),
        (None, [_, 0]) => Ok(Which::Only),
        (None, [_, unexpected]) => Err(DecodeError::BadValue(unexpected)),
    }
}
