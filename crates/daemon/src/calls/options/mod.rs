//! Socket options (RFC 6458 §8; `SOL_SOCKET`), with the structures, defaults and errors of Linux 6.1. Options of
//! unsupported extensions (authentication, changes of addresses, stream reconfiguration, partial reliability,
//! interleaving) behave as on Linux with the extension switched off.
//!
//! The shim answers some options itself, from the page or the kernel: `SO_ERROR`, `SO_TYPE`, `SO_DOMAIN`,
//! `SO_PROTOCOL`, `SO_RCVTIMEO`, `SO_SNDTIMEO`.
//!
//! An option that applies to all associations of a one-to-many socket is set in turns (`all_associations`): there may
//! be tens of thousands.
//!
//! | file | options |
//! |---|---|
//! | `generic` | `SOL_SOCKET`, `IPPROTO_IP`, `IPPROTO_IPV6` |
//! | `timers` | timeouts, retransmission limits, the handshake, SACKs, autoclose |
//! | `paths` | one path or all paths, the primary path |
//! | `messages` | fragmentation, sending, receiving, notifications |
//! | `status` | the state of associations |
//! | `extensions` | ECN, and unsupported extensions |

mod all_associations;
mod extensions;
mod generic;
mod messages;
mod paths;
mod status;
mod timers;
mod value;

use std::cell::{Ref, RefMut};
use std::net::SocketAddr;
use std::rc::Rc;

use channel_protocol::abi::{
    IPPROTO_SCTP, SCTP_GET_LOCAL_ADDRS, SCTP_GET_PEER_ADDRS, SCTP_SOCKOPT_BINDX_ADD, SCTP_SOCKOPT_BINDX_REM,
};
use channel_protocol::assoc_id::AssocId;
use rustix::io::Errno;

use crate::channel::style::Style;
use crate::state::association::SocketAssociation;
use crate::state::association_options::AssocOptions;
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::state::socket_options::{OptionName, SocketOptions};
use crate::system::addresses::parse_list;
use crate::users::quantum::RECORDS_PER_TURN;
use crate::users::requester::Requester;

use super::bind;
use super::waiting::wait_if_pending;
use all_associations::{ChangeForAll, change_all};
use value::{NamedAddress, Value};

/// `SCTP_FUTURE_ASSOC`: future associations.
const FUTURE: i32 = 0;
/// `SCTP_CURRENT_ASSOC`: existing associations.
const CURRENT: i32 = 1;
/// `SCTP_ALL_ASSOC`: both.
const ALL: i32 = 2;

/// A socket whose options a request reads or sets.
struct Access<'a> {
    socket: &'a Socket,
    /// The change that remains to be made to all associations.
    for_all: Option<ChangeForAll>,
}

/// The associations to which a set option applies.
struct Targets {
    future: bool,
    current: Current,
}

/// The existing associations to which a set option applies.
enum Current {
    None,
    One(Rc<SocketAssociation>),
    All,
}

/// Sets an option. Afterwards notifications may be due ([`Socket::due_dry`]). Waits for turns of the user if the option concerns
/// many associations.
pub(crate) async fn set(
    registry: &Registry,
    socket: &Socket,
    option: OptionName,
    value: &[u8],
    requester: Requester,
) -> Result<(), Errno> {
    match option {
        (IPPROTO_SCTP, SCTP_SOCKOPT_BINDX_ADD) => {
            let list = parse_list(value)?;
            let bound = bind::bind_more(registry, socket, &list, requester);
            wait_if_pending(registry, requester, bound).await?
        }
        (IPPROTO_SCTP, SCTP_SOCKOPT_BINDX_REM) => bind::bind_less(registry, socket, value),
        _ => {
            if let Some(for_all) = set_now(socket, option, value)? {
                let waits = socket.associations().count() > RECORDS_PER_TURN;
                let user = requester.user();
                let _seat = waits.then(|| registry.resources().take_waiting(user)).transpose()?;
                change_all(socket, for_all).await;
            }
            Ok(())
        }
    }
}

/// Sets an option as far as one turn permits. Returns the change that remains to be made to all associations.
fn set_now(socket: &Socket, (level, name): OptionName, value: &[u8]) -> Result<Option<ChangeForAll>, Errno> {
    let mut access = Access::new(socket);
    if level != IPPROTO_SCTP {
        generic::set(&mut access, level, name, value)?;
        socket.update_listener();
        return Ok(access.for_all);
    }
    let done = timers::set(&mut access, name, value)
        .or_else(|| paths::set(&mut access, name, value))
        .or_else(|| messages::set(&mut access, name, value))
        .or_else(|| extensions::set(&mut access, name, value));
    done.unwrap_or(Err(Errno::NOPROTOOPT))?;
    socket.update_listener();
    Ok(access.for_all)
}

/// Applies the options to an association that has just come up, including those that were set meanwhile.
pub(crate) fn apply_when_up(socket: &Socket, assoc: &SocketAssociation) {
    super::streams::autopush(socket, assoc);
    Access::new(socket).apply(assoc);
    socket.lower_message_limit(assoc);
    socket.show_linger();
    assoc.set_bounds_unread(socket.options().bounds_unread());
}

/// Returns the value of an option. `given` is the program's buffer, whose length is the room for the value.
pub(crate) fn get(socket: &Socket, (level, name): OptionName, given: &[u8]) -> Result<Vec<u8>, Errno> {
    match (level, name) {
        (IPPROTO_SCTP, SCTP_GET_PEER_ADDRS) => return bind::peer_addresses(socket, given),
        (IPPROTO_SCTP, SCTP_GET_LOCAL_ADDRS) => return bind::local_addresses(socket, given),
        _ => {}
    }
    let access = Access::new(socket);
    if level != IPPROTO_SCTP {
        return generic::get(&access, level, name, given);
    }
    let found = timers::get(&access, name, given)
        .or_else(|| paths::get(&access, name, given))
        .or_else(|| messages::get(&access, name, given))
        .or_else(|| status::get(&access, name, given))
        .or_else(|| extensions::get(&access, name, given));
    found.unwrap_or(Err(Errno::NOPROTOOPT))
}

impl<'a> Access<'a> {
    fn new(socket: &'a Socket) -> Self {
        Access { socket, for_all: None }
    }
}

impl Access<'_> {
    /// Returns whether this is a `SOCK_SEQPACKET` socket that was not peeled off.
    fn is_one_to_many(&self) -> bool {
        self.socket.style() == Style::OneToMany
    }

    fn is_one_to_one(&self) -> bool {
        self.socket.style().is_one_to_one()
    }

    fn options(&self) -> Ref<'_, SocketOptions> {
        self.socket.options()
    }

    fn options_mut(&self) -> RefMut<'_, SocketOptions> {
        self.socket.options_mut()
    }

    /// Returns the association with this number. If the socket can have only one, the number is ignored.
    fn association(&self, id: i32) -> Option<Rc<SocketAssociation>> {
        self.socket.named_association(AssocId::from_assoc_t(id))
    }

    /// Returns the association that an option addresses; `None` for future associations.
    fn one(&self, id: i32) -> Result<Option<Rc<SocketAssociation>>, Errno> {
        let found = self.association(id);
        match found.is_none() && id != FUTURE && self.is_one_to_many() {
            true => Err(Errno::INVAL),
            false => Ok(found),
        }
    }

    /// Returns the associations that an option addresses if it may address several.
    fn several(&self, id: i32) -> Result<Targets, Errno> {
        if let Some(assoc) = self.association(id) {
            return Ok(Targets { future: false, current: Current::One(assoc) });
        }
        if id > ALL && self.is_one_to_many() {
            return Err(Errno::INVAL);
        }
        let id = if self.is_one_to_many() { id } else { FUTURE };
        let current = if matches!(id, CURRENT | ALL) { Current::All } else { Current::None };
        Ok(Targets { future: matches!(id, FUTURE | ALL), current })
    }

    /// Returns the association with a path to this address. An address alone must be confirmed, because it chooses the peer; if
    /// the number or the socket already chooses it, all addresses that this peer has listed are known, as in the kernel.
    fn path(&self, id: i32, address: SocketAddr) -> Option<Rc<SocketAssociation>> {
        match self.association(id) {
            Some(named) => named.has_listed(address).then_some(named),
            None => self.socket.associations().with_peer(address),
        }
    }

    /// Returns the options of an association, or of future associations.
    fn assoc_options(&self, of: Option<&Rc<SocketAssociation>>) -> AssocOptions {
        of.map_or_else(|| self.socket.future_options(), |assoc| assoc.options().clone())
    }

    /// Returns the options of the association with this number, or of future associations.
    fn assoc_options_of(&self, id: i32) -> Result<AssocOptions, Errno> {
        Ok(self.assoc_options(self.one(id)?.as_ref()))
    }

    /// Changes the options of one association, or of future associations.
    fn set_one(&mut self, id: i32, change: impl Fn(&mut AssocOptions)) -> Result<(), Errno> {
        match self.one(id)? {
            Some(assoc) => self.change(&assoc, change),
            None => change(self.options_mut().future_mut()),
        }
        Ok(())
    }

    /// Changes the options of one association, of all, or of future associations.
    fn set_several(&mut self, id: i32, change: impl Fn(&mut AssocOptions) + 'static) -> Result<(), Errno> {
        let targets = self.several(id)?;
        self.change_targets(&targets, change);
        Ok(())
    }

    fn change_targets(&mut self, targets: &Targets, change: impl Fn(&mut AssocOptions) + 'static) {
        if targets.future {
            change(self.options_mut().future_mut());
        }
        match &targets.current {
            Current::None => {}
            Current::One(assoc) => self.change(assoc, change),
            Current::All => self.for_all().change(change),
        }
    }

    fn change(&self, assoc: &SocketAssociation, change: impl Fn(&mut AssocOptions)) {
        change(&mut assoc.options_mut());
        self.apply(assoc);
    }

    fn for_all(&mut self) -> &mut ChangeForAll {
        self.for_all.get_or_insert_default()
    }

    /// Passes the options to the executive. An association that is being set up gets them once it is up.
    fn apply(&self, assoc: &SocketAssociation) {
        self.socket.show_defaults(assoc);
        if let Some(association) = assoc.stack_association()
            && let Some(current) = association.options()
        {
            let options = self.options().for_stack_with(&assoc.options()).with_fixed_of(&current);
            // The association may have ended meanwhile, and then needs no options.
            let _ = association.set_options(&options);
        }
    }

    /// Shows the sharers the maximum length of a message if fragmentation is disabled: the smallest limit of all associations.
    fn limit_messages(&mut self) {
        if self.options().keeps_messages_whole() {
            self.for_all().limit_messages();
        } else {
            self.socket.set_message_limit(None);
        }
    }

    /// Applies the options of the socket to all its associations.
    fn apply_to_all(&mut self) {
        self.for_all().apply();
    }
}

/// Parses a boolean in an `int`.
fn switch(value: &[u8]) -> Result<bool, Errno> {
    Ok(Value::at_least(value, 4)?.i32(0) != 0)
}

/// Checks that the program has room for an `int`.
fn room_for_number(given: &[u8]) -> Result<Value<'_>, Errno> {
    Value::at_least(given, 4)
}

impl NamedAddress {
    /// Returns the address, if there is one; fails with `unknown` if it is invalid.
    fn named(self, unknown: Errno) -> Result<Option<SocketAddr>, Errno> {
        match self {
            NamedAddress::Any => Ok(None),
            NamedAddress::At(address) => Ok(Some(address)),
            NamedAddress::Unknown => Err(unknown),
        }
    }
}
