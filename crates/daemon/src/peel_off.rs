//! `sctp_peeloff`: an association of a one-to-many socket becomes a socket of its own.

use std::os::fd::AsFd;
use std::sync::Arc;

use carrier::page::State;
use carrier::record::Kind;
use rustix::io::Errno;

use crate::door::{Answer, Reply};
use crate::life::Turn;
use crate::log;
use crate::many;
use crate::member::Member;
use crate::recall::{RawRecord, Recalled};
use crate::socket::{Bound, Socket, Sockets, Style};

impl Sockets {
    /// Makes an association of a one-to-many socket a socket of its own. What was delivered moves, too: `recalled` is what lay in the
    /// carrier, which nobody reads meanwhile. The message at its front stays if it was read in part.
    pub(crate) async fn peel_off(
        self: &Arc<Self>,
        socket: &Arc<Socket>,
        id: u32,
        front: Front,
        recalled: Recalled,
    ) -> Result<Reply, Errno> {
        let (sockets, socket) = (Arc::clone(self), Arc::clone(socket));
        // A caller that goes away does not leave it half done.
        let done = tokio::spawn(async move { sockets.move_association(&socket, id, front, recalled).await });
        // It is never given up, unless all is.
        done.await.unwrap_or(Err(Errno::NETDOWN))
    }

    async fn move_association(
        self: &Arc<Self>,
        socket: &Arc<Socket>,
        id: u32,
        front: Front,
        recalled: Recalled,
    ) -> Result<Reply, Errno> {
        // It may be gone since it was looked for.
        let member = socket.peelable(id)?;
        let (settings, bound) = {
            let inner = socket.lock();
            (inner.settings.clone(), inner.bound.clone())
        };
        let streams_out = member.streams_out();
        let wants = settings.wants;
        let (new, carrier) =
            self.open(socket.share.owner, socket.v6, Style::PeeledOff, State::Connected, settings)?;
        let page = new.page.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        {
            let mut inner = new.lock();
            inner.members.insert(member.id, Arc::clone(&member));
            inner.peer = Some(member.peer);
            inner.local = bound.as_ref().map(Bound::first);
            inner.inherited = bound;
        }
        let port = new.local_address().port();
        self.note_peeled_off(&new, port, &member);
        new.page.set_wants(wants);
        new.page.set_peer(&member.peer, streams_out);
        let waiting = many::take_off(socket, &member).await;
        if let Err(error) = move_records(recalled, (socket, &new), id, front) {
            log(format_args!("messages of an association were lost while it was peeled off: {error}"));
            socket.unread.give_back_all();
        }
        new.watch_reads();
        new.take_turn(Turn::Carry { member, waiting })?;
        Ok(Reply { answer: Answer::Done, descriptors: vec![carrier, page], lent: None, feed: None })
    }
}

impl Socket {
    /// Returns the association of this number if it can be peeled off.
    pub(crate) fn peelable(&self, id: u32) -> Result<Arc<Member>, Errno> {
        if self.style != Style::OneToMany {
            return Err(Errno::INVAL);
        }
        let member = self.lock().members.get(&id).cloned().ok_or(Errno::INVAL)?;
        if member.association().is_some() { Ok(member) } else { Err(Errno::NOTCONN) }
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
    (socket, new): (&Socket, &Socket),
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
    socket.unread.move_to(&new.unread, &moved.data, &moved.long);
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

/// Puts records where they belong: whether that is the new carrier.
fn put_back<'a>(
    records: impl Iterator<Item = (&'a RawRecord, bool)>,
    (recalled, new): (&Recalled, &Socket),
    moved: &mut Moved,
) -> Result<(), Errno> {
    for (record, moves) in records {
        if moves {
            new.expect(record);
            new.line.put_raw(record)?;
        } else {
            recalled.put_back(record)?;
        }
        let data = record.messages().filter(|(_, header)| header.kind == Kind::Data);
        moved.data.extend(data.map(|_| moves));
        moved.long.extend(record.is_long().then_some(moves));
    }
    Ok(())
}
