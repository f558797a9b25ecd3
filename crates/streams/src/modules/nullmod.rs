//! A module that does nothing.

use std::time::Instant;

use crate::identifiers::Side;
use crate::message::Seen;
use crate::module::Module;

/// Passes every message on (`nullmod`): shows the cost of a module, and is a model for others.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullMod;

impl Module for NullMod {
    fn name(&self) -> &str {
        "nullmod"
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, _side: Side, _now: Instant, _m: &Seen<'_>) -> bool {
        true
    }
}
