//! Socket options (RFC 6458 §8; `SOL_SOCKET`), with the structures, the defaults and the errors of Linux 6.1. Extensions that
//! there are not (authentication, changes of addresses, stream reconfiguration, partial reliability, interleaving) answer as
//! Linux does with that extension off.
//!
//! Those that a program's own side answers, from the page or the kernel, do not come here: `SO_ERROR`, `SO_TYPE`,
//! `SO_DOMAIN`, `SO_PROTOCOL`, `SO_RCVTIMEO`, `SO_SNDTIMEO`.
//!
//! | file | options |
//! |---|---|
//! | `generic` | `SOL_SOCKET`, `IPPROTO_IP`, `IPPROTO_IPV6` |
//! | `timers` | timeouts, limits of retransmission, setting up, SACKs, autoclose |
//! | `paths` | one path or all, the primary one |
//! | `messages` | how messages are cut, sent and received, notifications |
//! | `status` | what is to be known of associations |
//! | `extensions` | what there is not |

mod extensions;
mod generic;
mod messages;
mod paths;
mod status;
mod timers;
mod value;

use std::net::SocketAddr;
use std::sync::Arc;

use rustix::io::Errno;

use crate::channel::style::Style;
use crate::state::association::SocketAssociation;
use crate::state::association_options::AssocOptions;
use crate::state::socket::{Inner, Socket};
use crate::system::addresses::View;

use value::{NamedAddress, Value};

const IPPROTO_SCTP: i32 = 132;

/// `SCTP_FUTURE_ASSOC`: associations to come.
const FUTURE: i32 = 0;
/// `SCTP_CURRENT_ASSOC`: those that there are.
const CURRENT: i32 = 1;
/// `SCTP_ALL_ASSOC`: both.
const ALL: i32 = 2;

/// A socket whose options are asked for or set.
struct Access<'a> {
    socket: &'a Socket,
    inner: &'a mut Inner,
    /// Associations whose program is to hear now that all has been sent: it has just asked for that.
    dry: Vec<Arc<SocketAssociation>>,
}

/// What an option that is set acts on.
struct Targets {
    future: bool,
    associations: Vec<Arc<SocketAssociation>>,
}

/// Gives the associations whose program is to hear that all has been sent.
pub(crate) fn set(
    socket: &Socket,
    level: i32,
    name: i32,
    value: &[u8],
) -> Result<Vec<Arc<SocketAssociation>>, Errno> {
    let mut inner = socket.lock();
    let mut access = Access { socket, inner: &mut inner, dry: Vec::new() };
    if level != IPPROTO_SCTP {
        generic::set(&mut access, level, name, value)?;
        access.inner.tune_listener();
        return Ok(access.dry);
    }
    let done = timers::set(&mut access, name, value)
        .or_else(|| paths::set(&mut access, name, value))
        .or_else(|| messages::set(&mut access, name, value))
        .or_else(|| extensions::set(&mut access, name, value));
    done.unwrap_or(Err(Errno::NOPROTOOPT))?;
    access.inner.tune_listener();
    Ok(access.dry)
}

/// An association of the socket is up: what was set for it meanwhile holds.
pub(crate) fn apply_when_up(socket: &Socket, member: &SocketAssociation) {
    super::streams::autopush(socket, member);
    let mut inner = socket.lock();
    let access = Access { socket, inner: &mut inner, dry: Vec::new() };
    access.apply(member);
    access.limit_messages();
    member.set_bounds_unread(access.inner.options.bounds_unread());
}

/// `given` is what the program hands over, as long as it has room for an answer.
pub(crate) fn get(socket: &Socket, level: i32, name: i32, given: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut inner = socket.lock();
    let access = Access { socket, inner: &mut inner, dry: Vec::new() };
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

impl Access<'_> {
    /// `SOCK_SEQPACKET`, and not peeled off.
    fn is_one_to_many(&self) -> bool {
        self.socket.style == Style::OneToMany
    }

    fn is_one_to_one(&self) -> bool {
        self.socket.style == Style::OneToOne
    }

    fn view(&self) -> View {
        self.inner.options.view(self.socket.v6)
    }

    /// The association of this number; where there can be one only, that one, whatever the number.
    fn association(&self, id: i32) -> Option<Arc<SocketAssociation>> {
        u32::try_from(id).ok().map_or_else(|| self.inner.association(0), |id| self.inner.association(id))
    }

    /// The association that an option is about, or none for those to come.
    fn one(&self, id: i32) -> Result<Option<Arc<SocketAssociation>>, Errno> {
        let found = self.association(id);
        match found.is_none() && id != FUTURE && self.is_one_to_many() {
            true => Err(Errno::INVAL),
            false => Ok(found),
        }
    }

    /// The same, and which of the others, where an option may be set for several.
    fn several(&self, id: i32) -> Result<Targets, Errno> {
        if let Some(member) = self.association(id) {
            return Ok(Targets { future: false, associations: vec![member] });
        }
        if id > ALL && self.is_one_to_many() {
            return Err(Errno::INVAL);
        }
        let id = if self.is_one_to_many() { id } else { FUTURE };
        let associations = if matches!(id, CURRENT | ALL) { self.associations() } else { Vec::new() };
        Ok(Targets { future: matches!(id, FUTURE | ALL), associations })
    }

    fn associations(&self) -> Vec<Arc<SocketAssociation>> {
        self.inner.associations.values().cloned().collect()
    }

    /// The association that has this address of its peer, if the number does not name another.
    fn path(&self, id: i32, address: SocketAddr) -> Option<Arc<SocketAssociation>> {
        let owner = self.inner.with_peer(address)?;
        let named = self.association(id);
        named.is_none_or(|named| named.id == owner.id).then_some(owner)
    }

    /// What was set for an association, or for those to come.
    fn assoc_options(&self, of: Option<&Arc<SocketAssociation>>) -> AssocOptions {
        of.map_or_else(|| self.inner.options.assoc_options.clone(), |member| member.options().clone())
    }

    /// What an option that names an association in its first field is about, and the rest of it.
    fn assoc_options_of(&self, id: i32) -> Result<AssocOptions, Errno> {
        Ok(self.assoc_options(self.one(id)?.as_ref()))
    }

    /// Changes what holds for one association, or for those to come.
    fn set_one(&mut self, id: i32, change: impl Fn(&mut AssocOptions)) -> Result<(), Errno> {
        let found = self.one(id)?;
        self.tune(&Targets { future: found.is_none(), associations: found.into_iter().collect() }, change);
        Ok(())
    }

    /// Changes what holds for an association, for all, or for those to come.
    fn set_several(&mut self, id: i32, change: impl Fn(&mut AssocOptions)) -> Result<(), Errno> {
        let targets = self.several(id)?;
        self.tune(&targets, change);
        Ok(())
    }

    fn tune(&mut self, targets: &Targets, change: impl Fn(&mut AssocOptions)) {
        if targets.future {
            change(&mut self.inner.options.assoc_options);
        }
        for member in &targets.associations {
            change(&mut member.options());
            self.apply(member);
        }
    }

    /// Hands what was set to the executive. An association that is being set up gets it once it is up.
    fn apply(&self, member: &SocketAssociation) {
        self.socket.show_default_stream(member);
        if let Some(association) = member.association()
            && let Some(current) = association.options()
        {
            let options = self.inner.options.for_stack_with(&member.options()).with_fixed_of(&current);
            // An association that has ended meanwhile needs no options.
            let _ = association.set_options(&options);
        }
    }

    /// Tells the sharers how long a message may be that is not to be cut, if there is such a limit: for all associations what
    /// the narrowest takes.
    fn limit_messages(&self) {
        let whole = self.inner.options.kept.get(&(IPPROTO_SCTP, messages::SCTP_DISABLE_FRAGMENTS));
        let limit = whole.filter(|on| **on != 0).map(|_| {
            let points = self.inner.associations.values().filter_map(|member| member.association());
            let least = points
                .filter_map(|association| Some(association.statistics()?.fragmentation_point_bytes))
                .min();
            let set = u64::from(self.inner.options.assoc_options.segment_bytes_max);
            let limit = least.or(Some(set).filter(|bytes| *bytes > 0));
            limit.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(0)
        });
        self.socket.channel.page.set_fragmentation_limit(limit.unwrap_or(0));
    }

    /// What was set for the socket holds for all its associations.
    fn apply_to_all(&self) {
        self.associations().iter().for_each(|member| self.apply(member));
    }
}

/// A yes or no in an `int`.
fn switch(value: &[u8]) -> Result<bool, Errno> {
    Ok(Value::at_least(value, 4)?.i32(0) != 0)
}

/// An `int` to read: the program must have room for it.
fn room_for_number(given: &[u8]) -> Result<Value<'_>, Errno> {
    Value::at_least(given, 4)
}

impl NamedAddress {
    /// The address, where one is named; an error if it is no address.
    fn named(self, unknown: Errno) -> Result<Option<SocketAddr>, Errno> {
        match self {
            NamedAddress::Any => Ok(None),
            NamedAddress::At(address) => Ok(Some(address)),
            NamedAddress::Unknown => Err(unknown),
        }
    }
}
