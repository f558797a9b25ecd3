//! Encodes the association of a primitive as two words: whether it has a number, then the number. [`Which::Only`] is all
//! zero.

use super::DecodeError;
use crate::{AssociationId, Which};

/// The first word of an association with a number.
const HAS_NUMBER: u32 = 1;

pub(super) fn words(association: Which) -> [u32; 2] {
    match association {
        Which::Only => [0, 0],
        Which::Id(AssociationId(number)) => [HAS_NUMBER, number],
    }
}

pub(super) fn from_words([has_number, number]: [u32; 2]) -> Result<Which, DecodeError> {
    match (has_number, number) {
        (0, 0) => Ok(Which::Only),
        (HAS_NUMBER, number) => Ok(Which::Id(AssociationId(number))),
        (0, unexpected) | (unexpected, _) => Err(DecodeError::BadValue(unexpected)),
    }
}
