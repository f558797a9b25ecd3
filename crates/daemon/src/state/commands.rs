//! Commands of requests to the task of a socket. Each kind of task has commands of its own.

use std::rc::Rc;
use std::sync::Arc;

use channel_protocol::request::Start;
use rustix::io::Errno;
use swiftwater::Address;
use swiftwater::tokio::{Listener, Stack};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::association::SocketAssociation;
use super::send_queue::Messages;
use crate::channel::style::Style;

/// The stack and port for setting up an association.
pub(crate) struct ConnectRequest {
    pub(crate) stack: Stack,
    /// The local SCTP port.
    pub(crate) port: u16,
    pub(crate) server: Address,
    /// Whether a setup that fails ends the content, so that the descriptor shows that it has failed.
    pub(crate) ends_content: bool,
}

/// Commands to the task of a one-to-one socket.
pub(crate) enum OneToOneCommand {
    /// Set up an association.
    Connect { request: ConnectRequest, assoc: Rc<SocketAssociation> },
    /// Accept associations.
    Listen(Arc<Listener>),
    /// Stop accepting.
    Unlisten,
    /// Relay the messages of an association that is up; `unsent` was accepted from the program before.
    Relay { assoc: Rc<SocketAssociation>, unsent: Messages },
}

/// Commands to the task of a one-to-many socket.
pub(crate) enum OneToManyCommand {
    /// Set up an association that is already registered with the socket.
    Connect { request: ConnectRequest, start: Start, assoc: Rc<SocketAssociation> },
    /// Accept associations.
    Listen(Arc<Listener>),
    /// Stop accepting.
    Unlisten,
}

/// The sender of commands to the task of a socket.
pub(crate) enum Commands {
    OneToOne(UnboundedSender<OneToOneCommand>),
    OneToMany(UnboundedSender<OneToManyCommand>),
}

/// The receiver of commands in the task of a socket.
pub(crate) enum CommandReceiver {
    OneToOne(UnboundedReceiver<OneToOneCommand>),
    OneToMany(UnboundedReceiver<OneToManyCommand>),
}

/// Returns the sender and receiver for a socket of this style.
pub(crate) fn channel_for(style: Style) -> (Commands, CommandReceiver) {
    match style {
        Style::OneToMany => {
            let (sender, receiver) = unbounded_channel();
            (Commands::OneToMany(sender), CommandReceiver::OneToMany(receiver))
        }
        Style::OneToOne | Style::TcpStream | Style::PeeledOff => {
            let (sender, receiver) = unbounded_channel();
            (Commands::OneToOne(sender), CommandReceiver::OneToOne(receiver))
        }
    }
}

impl Commands {
    /// Sends a command to the task of a one-to-one socket. `EBADF`: the socket is closed; `EINVAL`: it is a one-to-many
    /// socket.
    pub(crate) fn one_to_one(&self, command: OneToOneCommand) -> Result<(), Errno> {
        match self {
            Commands::OneToOne(sender) => sender.send(command).map_err(|_| Errno::BADF),
            Commands::OneToMany(_) => Err(Errno::INVAL),
        }
    }

    /// Sends a command to the task of a one-to-many socket. `EBADF`: the socket is closed; `EINVAL`: it is a one-to-one
    /// socket.
    pub(crate) fn one_to_many(&self, command: OneToManyCommand) -> Result<(), Errno> {
        match self {
            Commands::OneToMany(sender) => sender.send(command).map_err(|_| Errno::BADF),
            Commands::OneToOne(_) => Err(Errno::INVAL),
        }
    }

    /// Tells the task to accept associations.
    pub(crate) fn listen(&self, listener: Arc<Listener>) -> Result<(), Errno> {
        match self {
            Commands::OneToOne(_) => self.one_to_one(OneToOneCommand::Listen(listener)),
            Commands::OneToMany(_) => self.one_to_many(OneToManyCommand::Listen(listener)),
        }
    }

    /// Tells the task to stop accepting associations.
    pub(crate) fn unlisten(&self) -> Result<(), Errno> {
        match self {
            Commands::OneToOne(_) => self.one_to_one(OneToOneCommand::Unlisten),
            Commands::OneToMany(_) => self.one_to_many(OneToManyCommand::Unlisten),
        }
    }
}
