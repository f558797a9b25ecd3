//! A module that does nothing.

use crate::module::Module;

/// Passes every message on (`nullmod`): shows the cost of a module, and is a model for others.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullMod;

impl Module for NullMod {
    fn name(&self) -> &str {
        "nullmod"
    }
}
