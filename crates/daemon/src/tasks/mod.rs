//! The lifecycle of each socket: a task that waits for commands of requests, for messages of its program, and for the end.

mod listener;
mod one_to_many;
mod one_to_one;
pub(crate) mod relaying;

use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::state::commands::CommandReceiver;
use crate::state::registry::{Opened, Registry};
use crate::state::socket::Socket;

/// Starts the task of a socket that was just opened. Returns the socket, and the program's end of its channel.
pub(crate) fn start(registry: &Rc<Registry>, opened: Opened) -> (Rc<Socket>, OwnedFd) {
    let Opened { socket, program_end, commands } = opened;
    tokio::task::spawn_local(run(Rc::clone(registry), Rc::clone(&socket), commands));
    (socket, program_end)
}

async fn run(registry: Rc<Registry>, socket: Rc<Socket>, commands: CommandReceiver) {
    // The guard removes the socket even if the task panics: the program then finds its channel closed, and no other program is
    // affected.
    let _registered = Registered { registry: &registry, socket: &socket };
    match commands {
        CommandReceiver::OneToOne(commands) => one_to_one::run(&registry, &socket, commands).await,
        CommandReceiver::OneToMany(commands) => one_to_many::run(&registry, &socket, commands).await,
    }
}

/// Removes the socket from the registry when its task ends.
struct Registered<'a> {
    registry: &'a Registry,
    socket: &'a Socket,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.registry.forget(self.socket);
    }
}
