//! `listen`.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use carrier::page::State;
use links::interface_addresses;
use rustix::io::Errno;
use swiftwater::ListenerOptions;
use swiftwater::tokio::Listener;

use crate::addresses::unspecified;
use crate::errno;
use crate::life::{self, Turn};
use crate::line;
use crate::recall::Recalled;
use crate::socket::{Bound, Inner, Socket, Sockets};
use crate::visible_name;

const BACKLOG_MAX: i32 = 4096;
/// A one-to-many socket takes all associations at once.
const BACKLOG_OF_MANY: i32 = i32::MAX;

impl Sockets {
    /// `theirs` is the program's end of the carrier.
    pub(crate) fn listen(&self, socket: &Socket, backlog: i32, theirs: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut inner = socket.lock();
        let (listening, backlog) = match inner.stage {
            State::Idle => (State::Listening, backlog),
            State::Many => (State::ManyListening, BACKLOG_OF_MANY),
            State::Listening => {
                if let Some(listener) = inner.listener.upgrade() {
                    listener.set_backlog(backlog_of(backlog));
                }
                return Ok(());
            }
            State::ManyListening => return Ok(()),
            _ => return Err(Errno::INVAL),
        };
        let port = self.bound(socket, &mut inner)?.port;
        let options = ListenerOptions {
            backlog: backlog_of(backlog),
            refuse_beyond_backlog: true,
            shares_port: self.ports().is_shared(socket.number, port),
            ..self.stack.options().listener
        };
        let stack = self.stack.with_options(&inner.settings.options());
        let listener = stack.with_local_addresses(&inner.local_scope()).listen_with(port, &options);
        let listener = listener.map_err(|error| errno::of_listen(&error))?;
        self.ports().set_listens(socket.number, port, true);
        if listening == State::Listening {
            socket.line.keep_short();
            // A one-to-one socket that listens never polls writable; some take it for a sign that somebody has come.
            line::fill(theirs)?;
        }
        visible_name::of_listener(theirs, inner.bound.as_ref().map_or(unspecified(socket.v6), Bound::first));
        socket.set_stage(&mut inner, listening);
        let listener = Arc::new(Listener::from(listener));
        inner.listener = Arc::downgrade(&listener);
        socket.take_turn(Turn::Listen(listener))
    }

    /// `listen` with no backlog: associations that wait are aborted. `recalled` is what lay in the carrier.
    pub(crate) fn unlisten(&self, socket: &Socket, recalled: Recalled) -> Result<(), Errno> {
        let mut inner = socket.lock();
        let idle = match inner.stage {
            State::Listening => State::Idle,
            State::ManyListening => State::Many,
            _ => return Err(Errno::INVAL),
        };
        if let Some(bound) = &inner.bound {
            self.ports().set_listens(socket.number, bound.port, false);
        }
        socket.set_stage(&mut inner, idle);
        socket.take_turn(Turn::Unlisten)?;
        if idle == State::Idle {
            recalled.discard();
            life::empty(&socket.line);
        }
        Ok(())
    }
}

impl Socket {
    pub(crate) fn check_listens(&self) -> Result<(), Errno> {
        let listens = matches!(self.lock().stage, State::Listening | State::ManyListening);
        if listens { Ok(()) } else { Err(Errno::INVAL) }
    }
}

/// The backlog that a program names, within limits.
fn backlog_of(named: i32) -> u32 {
    named.clamp(1, BACKLOG_MAX) as u32
}

impl Inner {
    /// Peers that connect from now on meet what is set now, at the addresses that are bound now.
    pub(crate) fn tune_listener(&self) {
        if let Some(listener) = self.listener.upgrade() {
            listener.set_options(&self.settings.options());
            // No other socket has these addresses: this one holds them.
            let _ = listener.set_local_addresses(&self.local_scope());
        }
    }

    /// The addresses that associations of the socket are restricted to; none stand for all. Where it is bound to all of a
    /// family, their peers are told those that the host has now, as with the kernel.
    pub(crate) fn local_scope(&self) -> Vec<IpAddr> {
        let Some(bound) = &self.bound else { return Vec::new() };
        let mut ips = bound.ips.clone();
        let all_ipv6 = ips.iter().any(|ip| ip.is_ipv6() && ip.is_unspecified());
        if all_ipv6 && !self.settings.v6_only {
            ips.push(Ipv4Addr::UNSPECIFIED.into());
        }
        let of_all = |ip: &IpAddr| {
            ips.iter().any(|all| all.is_unspecified() && all.is_ipv4() == ip.to_canonical().is_ipv4())
        };
        // Without the list they know the one that the handshake uses.
        let known = interface_addresses().unwrap_or_default();
        let named: Vec<IpAddr> = known.into_iter().filter(of_all).collect();
        ips.extend(named);
        ips
    }
}
