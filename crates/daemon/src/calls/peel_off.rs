//! `sctp_peeloff`: an association of a one-to-many socket becomes a socket of its own.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use carrier::page::{PeerShut, State};
use carrier::record::Kind;
use rustix::io::Errno;

use crate::channel::Channel;
use crate::channel::raw_record::RawRecord;
use crate::channel::recall::Recalled;
use crate::channel::style::Style;
use crate::state::association::SocketAssociation;
use crate::state::commands::OneToOneCommand;
use crate::state::registry::{Opened, Registry};
use crate::state::send_queue::Messages;
use crate::state::socket::{Bound, Socket};
use crate::system::journal::log;

/// An association that was made a socket of its own.
pub(crate) struct PeeledOff {
    pub(crate) opened: Opened,
    /// A descriptor of its page for the program.
    pub(crate) page: OwnedFd,
    /// What its task is told once it runs.
    pub(crate) carry: OneToOneCommand,
}

/// Makes an association of a one-to-many socket a socket of its own. What was delivered moves, too: `recalled` is what lay in the
/// channel, which nobody reads meanwhile. The message at its front stays if it was read in part. The caller sees to it that
/// this runs to its end.
pub(crate) async fn peel_off(
    registry: &Registry,
    socket: &Socket,
    (id, front): (u32, Front),
    recalled: Recalled,
) -> Result<PeeledOff, Errno> {
    // It may be gone since it was looked for.
    let member = peelable(socket, id)?;
    let (options, bound) = {
        let inner = socket.lock();
        (inner.options.clone(), inner.bound.clone())
    };
    let streams_out = member.streams_out();
    let subscriptions = options.subscriptions;
    let opened = registry.open(socket.share.owner, socket.v6, Style::PeeledOff, State::Connected, options)?;
    let new = &opened.socket;
    let Ok(page) = new.channel.page.as_fd().try_clone_to_owned() else {
        // No task forgets it.
        registry.forget(new);
        return Err(Errno::MFILE);
    };
    {
        let mut inner = new.lock();
        inner.associations.insert(member.id, Arc::clone(&member));
        inner.peer = Some(member.peer);
        inner.local = bound.as_ref().map(Bound::first);
        inner.inherited = bound;
    }
    let port = new.local_address().port();
    registry.note_peeled_off(new, port, &member);
    new.channel.page.set_subscriptions(subscriptions);
    new.channel.page.set_peer(&member.peer, streams_out);
    let unsent = take_off(socket, &member).await;
    if member.held.lock().await.is_shut_down {
        new.channel.page.set_peer_shut(PeerShut::Writing);
    }
    if let Err(error) = move_records(recalled, (&socket.channel, &new.channel), id, front) {
        log(format_args!("messages of an association were lost while it was peeled off: {error}"));
        socket.channel.credit.release_all();
    }
    new.channel.watch_reads();
    Ok(PeeledOff { opened, page, carry: OneToOneCommand::Carry { association: member, unsent } })
}

/// Returns the association of this number if it can be peeled off.
pub(crate) fn peelable(socket: &Socket, id: u32) -> Result<Arc<SocketAssociation>, Errno> {
    if socket.style != Style::OneToMany {
        return Err(Errno::INVAL);
    }
    let member = socket.lock().associations.get(&id).cloned().ok_or(Errno::INVAL)?;
    if member.association().is_some() { Ok(member) } else { Err(Errno::NOTCONN) }
}

/// Takes an association away from its socket, with what waits to be sent.
async fn take_off(socket: &Socket, member: &SocketAssociation) -> Messages {
    match socket.remove(member) {
        Some(queue) => {
            socket.note_silent();
            queue.stop().await
        }
        None => Messages::new(),
    }
}

/// How far a program has read.
#[derive(Clone, Copy)]
pub(crate) struct Front {
    /// Where in the record at the front the next message begins.
    pub(crate) at: usize,
    /// That message was read in part.
    pub(crate) is_begun: bool,
}

/// Sorts what lay in the carrier.
fn move_records(
    mut recalled: Recalled,
    (channel, new): (&Channel, &Channel),
    id: u32,
    front: Front,
) -> Result<(), Errno> {
    let mut records = recalled.take();
    // What the page says is read anew after this.
    records.retain(|record| !record.is_notice());
    let is_of = |record: &RawRecord| record.messages().any(|(_, header)| header.association == id);
    let mut staying = None;
    if let Some(first) = records.front_mut() {
        first.cut_front(front.at);
        if front.is_begun && is_of(first) {
            let rest = first.split_off_rest();
            staying = records.pop_front();
            rest.into_iter().for_each(|rest| records.push_front(rest));
        }
    }
    let mut moved = Moved::default();
    let stays = staying.iter().map(|record| (record, false));
    let sorted = records.iter().map(|record| (record, is_of(record)));
    let sorted = put_back(stays.chain(sorted), (&recalled, new), &mut moved);
    channel.credit.move_to(&new.credit, &moved.data, &moved.long);
    sorted
}

/// Of records and messages that lay in a carrier, in their order, whether they have moved.
#[derive(Default)]
struct Moved {
    /// Messages.
    data: Vec<bool>,
    /// Records whose content is in a memfd.
    long: Vec<bool>,
}

/// Puts records where they belong: whether that is the new channel.
fn put_back<'a>(
    records: impl Iterator<Item = (&'a RawRecord, bool)>,
    (recalled, new): (&Recalled, &Channel),
    moved: &mut Moved,
) -> Result<(), Errno> {
    for (record, moves) in records {
        if moves {
            new.expect(record);
            new.endpoint.put_raw(record)?;
        } else {
            recalled.put_back(record)?;
        }
        let data = record.messages().filter(|(_, header)| header.kind == Kind::Data);
        moved.data.extend(data.map(|_| moves));
        moved.long.extend(record.is_long().then_some(moves));
    }
    Ok(())
}
