//! A module that makes flushes fit where two streams meet head to head.

use crate::message::{Flush, Kind, Message};
use crate::module::{Module, Q};

/// Exchanges the ways of every flush (`pipemod`). Where a driver joins two streams without doing so itself, what one end
/// writes is what the other reads, so one end has this module.
#[derive(Clone, Copy, Debug, Default)]
pub struct PipeMod;

fn turn(q: &mut Q<'_>, m: Message) {
    match m.kind {
        Kind::Flush(flush) => {
            let turned = Flush { read: flush.write, write: flush.read, ..flush };
            q.putnext(Message { kind: Kind::Flush(turned), ..m });
        }
        _ => q.pass(m),
    }
}

impl Module for PipeMod {
    fn name(&self) -> &str {
        "pipemod"
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        turn(q, m);
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        turn(q, m);
    }
}
