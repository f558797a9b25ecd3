//! A module that gives each client of a service a pipe of its own (`connld`).

use crate::module::Module;

/// Makes a service of one end of a pipe (`connld`): whoever opens the minor device of that end once more gets one end of a new
/// pipe, and the reader at the other end of the first pipe gets the other (`I_RECVFD`), with the name of the user that has
/// opened.
///
/// It passes every message on. The opening is the executive's work: [`Executive::open_minor`](crate::Executive::open_minor).
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnLd;

impl Module for ConnLd {
    fn name(&self) -> &str {
        "connld"
    }

    fn opens_connections(&self) -> bool {
        true
    }
}
