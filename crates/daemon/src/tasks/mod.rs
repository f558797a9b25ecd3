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
use crate::users::round_share::Turn;

/// Starts the task of a socket that was just opened. Returns the socket, and the program's end of its channel.
pub(crate) fn start(registry: &Rc<Registry>, opened: Opened) -> (Rc<Socket>, OwnedFd) {
    let Opened { socket, program_end, commands } = opened;
    tokio::task::spawn_local(run(Rc::clone(registry), Rc::clone(&socket), commands));
    (socket, program_end)
}

async fn run(registry: Rc<Registry>, socket: Rc<Socket>, commands: CommandReceiver) {
    // The guard removes the socket even if the task panics: the program then finds its channel closed, and no other program is
    // affected.
    let registered = Registered { registry: &registry, socket: &socket };
    let mut turn = match commands {
        CommandReceiver::OneToOne(commands) => one_to_one::run(&registry, &socket, commands).await,
        CommandReceiver::OneToMany(commands) => one_to_many::run(&registry, &socket, commands).await,
    };
    // The last reference frees the memory of the socket.
    drop(registered);
    drop(socket);
    turn.end_close();
}

/// Waits until the user of a closed socket may close one more in this round: a program may have closed many at once. Returns the
/// turn, in which the socket is forgotten.
async fn turn_to_close(socket: &Socket) -> Turn {
    let mut turn = socket.turn();
    turn.begin().await;
    turn
}

/// Waits until the user of a closed socket may end its listening in this round, or a bind waits for its port. Returns the turn.
async fn turn_to_stop_listening(socket: &Socket) -> Turn {
    let mut turn = socket.turn();
    tokio::select! {
        () = turn.begin() => {}
        () = socket.port_wanted() => {}
    }
    turn
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
    use std::os::fd::AsFd;

    use swiftwater::Address;
    use tokio::task::yield_now;

    use super::*;
    use crate::calls::bind::{bind, once_released};
    use crate::calls::listen::listen;
    use crate::channel::style::Style;
    use crate::state::association::SocketAssociation;
    use crate::state::commands::{ConnectRequest, OneToOneCommand};
    use crate::state::socket_options::SocketOptions;
    use crate::system::addresses::Family;
    use crate::testing::{opened_whole, registry, soon, until};
    use crate::users::owner::Owner;
    use crate::users::quantum::RECORDS_PER_TURN;
    use crate::users::requester::tests::requester;
    use crate::users::round_share::{CLOSE_RECORDS, RECORDS_PER_ROUND};

    /// Enough for several rounds.
    const SOCKETS: usize = 256;
    const FIRST_PORT: u16 = 20_000;

    fn started(registry: &Rc<Registry>, style: Style) -> (Rc<Socket>, OwnedFd) {
        start(registry, opened_whole(registry, style))
    }

    /// Makes a socket set up an association with a peer that never answers.
    fn connect(registry: &Registry, socket: &Socket, port: u16, silent: &UdpSocket) {
        let (host, udp_port) = (Ipv4Addr::LOCALHOST.into(), silent.local_addr().expect("it is bound").port());
        let peer = SocketAddr::new(host, 7);
        let assoc = SocketAssociation::new(registry.next_association(), peer, socket.future_options());
        let assoc = Rc::new(assoc);
        socket.on_connecting(&assoc, None);
        let server = Address { hosts: vec![host], port: peer.port(), udp_port: Some(udp_port) };
        let request = ConnectRequest { stack: registry.stack().clone(), port, server, ends_content: false };
        socket.commands().one_to_one(OneToOneCommand::Connect { request, assoc }).expect("it has a task");
    }

    /// Closes all sockets at once. Returns the most of them, and of the associations of the stack, that are gone after a round.
    async fn most_in_a_round(registry: &Registry, sockets: Vec<(Rc<Socket>, OwnedFd)>) -> (usize, usize) {
        drop(sockets);
        let left = || (registry.all().len(), registry.stack().association_count());
        let (mut most, mut before) = ((0, 0), left());
        soon(async {
            while before.0 > 0 {
                yield_now().await;
                let now = left();
                most = (most.0.max(before.0 - now.0), most.1.max(before.1 - now.1));
                before = now;
            }
        })
        .await;
        assert_eq!(before.1, 0, "none is set up any more");
        most
    }

    #[tokio::test(flavor = "local")]
    async fn sockets_that_are_closed_at_once_are_forgotten_in_turns() {
        let silent = UdpSocket::bind((IpAddr::from(Ipv4Addr::LOCALHOST), 0)).expect("a free port");
        let ways = [
            ("idle", Style::OneToOne),
            ("idle", Style::OneToMany),
            ("listening", Style::OneToOne),
            ("listening", Style::OneToMany),
            ("connecting", Style::OneToOne),
        ];
        for (way, style) in ways {
            let registry = Rc::new(registry());
            let sockets: Vec<_> = (0..SOCKETS).map(|_| started(&registry, style)).collect();
            for (port, (socket, program_end)) in (FIRST_PORT..).zip(&sockets) {
                match way {
                    "listening" => listen(&registry, socket, 1, program_end.as_fd()).expect("a free port"),
                    "connecting" => connect(&registry, socket, port, &silent),
                    _ => {}
                }
            }
            let expected = if way == "connecting" { SOCKETS } else { 0 };
            until("the setups have begun", || registry.stack().association_count() == expected).await;
            let (most, most_set_up) = most_in_a_round(&registry, sockets).await;
            let most_expected = RECORDS_PER_ROUND / CLOSE_RECORDS;
            assert!(
                most <= most_expected && most_set_up <= most_expected,
                "{way}, {style:?}: {most}, {most_set_up}"
            );
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_bind_does_not_wait_for_the_turn_of_a_closed_listener() {
        for style in [Style::OneToOne, Style::OneToMany] {
            let registry = Rc::new(registry());
            let (listening, program_end) = started(&registry, style);
            listen(&registry, &listening, 1, program_end.as_fd()).expect("a free port");
            let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, listening.local_address().port()));
            // Other sockets of the user have all turns.
            let mut turns = [(); RECORDS_PER_ROUND / RECORDS_PER_TURN].map(|()| listening.turn());
            for turn in &mut turns {
                turn.begin().await;
            }
            drop(program_end);
            let (socket, _program_end) = started(&registry, style);
            let bind = || bind(&registry, &socket, address, requester(1));
            assert_eq!(once_released(&registry, &socket, &[address], bind).await, Ok(()), "{style:?}");
            registry.stack().listen(address.port()).expect("nobody listens");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_user_who_closes_one_socket_waits_for_no_turns_of_another_user() {
        let registry = Rc::new(registry());
        let sockets: Vec<_> = (0..SOCKETS).map(|_| started(&registry, Style::OneToOne)).collect();
        let (owner, style) = (Owner { user: 2, process: 1 }, Style::OneToOne);
        let options = SocketOptions::new(registry.stack());
        let opened =
            registry.open(owner, Family::V4, style, style.initial_state(), options).expect("a channel");
        let (socket, program_end) = start(&registry, opened);
        drop((sockets, program_end));
        soon(socket.gone()).await;
        let left = registry.all().len();
        assert!(left > SOCKETS / 2, "{left} of the other user are left");
    }
}
