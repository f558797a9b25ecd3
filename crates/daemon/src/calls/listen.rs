//! `listen`.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use channel_protocol::status_page::State;
use rustix::io::Errno;
use swiftwater::internals;

use super::bind::bound;
use super::waiting::{recall, wait_for};
use crate::channel::Channel;
use crate::channel::daemon_end::{self, PAIR_RECORDS_MAX};
use crate::channel::recall::Recalled;
use crate::channel::style::Style;
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::system::errno;
use crate::system::visible_name;
use crate::users::requester::Requester;

const BACKLOG_MAX: i32 = 4096;
/// Number of records in a usual send buffer that keep a channel from polling writable, and more.
const OWN_RECORDS_MAX: usize = 8;
/// A one-to-many socket accepts all associations at once.
const BACKLOG_OF_MANY: i32 = i32::MAX;

/// Makes a socket listen, or stops the listening if the backlog is 0.
pub(crate) async fn set_backlog(
    registry: &Registry,
    socket: &Socket,
    backlog: i32,
    program_end: BorrowedFd<'_>,
    requester: Requester,
) -> Result<(), Errno> {
    if backlog != 0 {
        return listen(registry, socket, backlog, program_end);
    }
    check_listens(socket)?;
    let recalled = recall(registry, socket, program_end, requester).await?;
    wait_for(registry, requester, unlisten(registry, socket, recalled)).await?
}

/// Makes a socket listen.
pub(crate) fn listen(
    registry: &Registry,
    socket: &Socket,
    backlog: i32,
    program_end: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let is_one_to_many = socket.style() == Style::OneToMany;
    match socket.state() {
        State::Idle | State::OneToMany => {}
        State::Listening => {
            if let Some(listener) = socket.listener() {
                listener.set_backlog(backlog_of(backlog));
            }
            return Ok(());
        }
        State::OneToManyListening => return Ok(()),
        _ => return Err(Errno::INVAL),
    }
    let bound = bound(registry, socket)?;
    let options = registry
        .stack()
        .options()
        .listener
        .with_backlog(backlog_of(if is_one_to_many { BACKLOG_OF_MANY } else { backlog }))
        .with_refuse_beyond_backlog(true)
        .with_shares_port(registry.shares_port(socket))
        // Programs send to the address that they have received from.
        .with_distinct_peers(is_one_to_many);
    let stack = registry.stack().with_options(&socket.options().for_stack());
    let stack = stack.with_local_addresses(&socket.local_scope());
    // As in the kernel, the addresses may be gone that the socket was bound to.
    let listener = internals::listen_as_bound(&stack, bound.port(), &options);
    let listener = Arc::new(listener.map_err(|error| errno::of_listen(&error))?);
    if !is_one_to_many {
        socket.channel().daemon_end().minimize_backlog();
        // A listening one-to-one socket must never poll writable, because some programs take that for an incoming
        // association.
        daemon_end::fill(program_end)?;
    }
    visible_name::of_listener(program_end, bound.first());
    registry.on_listening(socket, &listener);
    socket.commands().listen(listener)
}

/// Stops listening. The stack ends the associations that wait. `recalled` contains the records of the pair.
async fn unlisten(registry: &Registry, socket: &Socket, recalled: Recalled) -> Result<(), Errno> {
    check_listens(socket)?;
    registry.on_unlistened(socket);
    socket.commands().unlisten()?;
    if socket.style() != Style::OneToMany {
        recalled.discard();
        discard_all(socket.channel()).await;
    } else {
        recalled.put_back().await;
    }
    Ok(())
}

/// Fails with `EINVAL` unless the socket listens.
fn check_listens(socket: &Socket) -> Result<(), Errno> {
    if socket.listens() { Ok(()) } else { Err(Errno::INVAL) }
}

/// Discards the records that keep a channel from polling writable, and those sent meanwhile. Records that arrive while this runs
/// may stay: otherwise a program that sends without pause would keep the daemon here. Waits only while the socket is throttled.
pub(crate) async fn discard_all(channel: &Channel) {
    let time = channel.daemon_end().time();
    for discarded in 0..PAIR_RECORDS_MAX {
        if time.is_throttled() {
            if discarded >= OWN_RECORDS_MAX {
                return;
            }
            // The daemon's own records, which are the first, must go.
            time.unthrottled().await;
        }
        if !channel.discard() {
            return;
        }
    }
}

/// Returns the backlog for the one that a program requests, within limits.
fn backlog_of(named: i32) -> u32 {
    named.clamp(1, BACKLOG_MAX) as u32
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::os::fd::AsFd;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use rustix::event::PollFlags;

    use super::*;
    use crate::state::registry::Opened;
    use crate::state::socket_options::{SO_REUSEPORT, SOL_SOCKET};
    use crate::system::descriptor_io::polls;
    use crate::testing::{opened, opened_whole, registry, soon};

    #[tokio::test(flavor = "local")]
    async fn a_socket_listens_at_an_address_that_the_host_has_lost() {
        let registry = registry();
        let Opened { socket, program_end, commands: _commands } = opened_whole(&registry, Style::OneToMany);
        // RFC 5737: an address of documentation.
        registry.bind(&socket, SocketAddr::from(([192, 0, 2, 77], 0))).expect("a free port");
        assert_eq!(listen(&registry, &socket, 1, program_end.as_fd()), Ok(()));
    }

    #[tokio::test(flavor = "local")]
    async fn the_daemons_own_records_are_discarded_once_the_socket_is_not_throttled() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let channel = socket.channel();
        daemon_end::fill(program_end.as_fd()).expect("it is open");
        channel.daemon_end().time().throttle_for(Duration::from_secs(1));
        let is_writable = || polls(program_end.as_fd(), PollFlags::OUT);
        {
            let mut discarding = pin!(discard_all(channel));
            assert!(discarding.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(!is_writable());
            soon(discarding).await;
        }
        assert!(is_writable());
    }

    #[tokio::test(flavor = "local")]
    async fn sockets_listen_at_one_port_if_they_share_it() {
        for shares in [true, false] {
            let registry = registry();
            let [first, second] = [(); 2].map(|()| opened_whole(&registry, Style::OneToMany));
            for opened in [&first, &second] {
                assert!(!registry.shares_port(&opened.socket), "it has none");
                opened.socket.options_mut().keep((SOL_SOCKET, SO_REUSEPORT), i32::from(shares));
            }
            let listen = |opened: &Opened| listen(&registry, &opened.socket, 1, opened.program_end.as_fd());
            registry.bind(&first.socket, SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
            assert_eq!(registry.shares_port(&first.socket), shares);
            assert_eq!(listen(&first), Ok(()));
            if shares {
                registry.bind(&second.socket, first.socket.local_address()).expect("it is shared");
                assert_eq!(listen(&second), Ok(()));
            }
        }
    }
}
