//! A module that adapts flushes where two streams meet head to head.

use crate::message::{Flush, Kind, Message};
use crate::module::{Module, Q};

/// Exchanges the directions of every flush (`pipemod`). If a driver joins two streams without doing so itself, the write side of
/// one end is the read side of the other, so one end needs this module.
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
