//! `sctp_peeloff`: an association of a one-to-many socket becomes a socket of its own.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use carrier::page::State;
use carrier::record::{Header, Kind};
use rustix::io::Errno;

use crate::door::{Answer, Reply};
use crate::life::Turn;
use crate::line::{self, RawRecord};
use crate::log;
use crate::many;
use crate::socket::{Bound, Socket, Sockets, Style};

impl Sockets {
    /// What was delivered moves, too: `theirs` is the program's end of the carrier, which nobody reads meanwhile. The record at
    /// its front stays if it was read in part.
    pub(crate) async fn peel_off(
        self: &Arc<Self>,
        socket: &Arc<Socket>,
        id: u32,
        front_begun: bool,
        theirs: &OwnedFd,
    ) -> Result<Reply, Errno> {
        if socket.style != Style::OneToMany {
            return Err(Errno::INVAL);
        }
        let (member, settings, bound) = {
            let inner = socket.lock();
            let member = inner.members.get(&id).cloned().ok_or(Errno::INVAL)?;
            (member, inner.settings.clone(), inner.bound.clone())
        };
        let association = member.association().ok_or(Errno::NOTCONN)?;
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
        new.page.set_wants(wants);
        new.page.set_peer(&member.peer, association.streams_out());
        let waiting = many::take_off(socket, &member).await;
        if let Err(error) = move_records(theirs.as_fd(), socket, &new, id, front_begun) {
            log(format_args!("messages of an association were lost while it was peeled off: {error}"));
            socket.unread.give_back_all();
        }
        new.watch_reads();
        new.take_turn(Turn::Carry { member, waiting })?;
        Ok(Reply { answer: Answer::Done, descriptors: vec![carrier, page] })
    }
}

/// Sorts what lies in the carrier. All of it has lain there before, so there is room for it.
fn move_records(
    theirs: BorrowedFd<'_>,
    socket: &Socket,
    new: &Socket,
    id: u32,
    front_begun: bool,
) -> Result<(), Errno> {
    let mut records = Vec::new();
    loop {
        match line::take_raw(theirs) {
            Ok(record) => records.push(record),
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error),
        }
    }
    // Of those with data, in their order, whether they have moved.
    let mut moved_data = Vec::new();
    let sorted = sort_records(&records, (socket, new), (id, front_begun), &mut moved_data);
    socket.unread.move_to(&new.unread, &moved_data);
    sorted
}

fn sort_records(
    records: &[RawRecord],
    (socket, new): (&Socket, &Socket),
    (id, front_begun): (u32, bool),
    moved_data: &mut Vec<bool>,
) -> Result<(), Errno> {
    for (n, record) in records.iter().enumerate() {
        let header = Header::parse(&record.bytes);
        let moved = header.filter(|header| header.association == id && !(n == 0 && front_begun));
        match moved {
            Some(header) => {
                new.expect(header.bytes);
                new.line.try_put_raw(record)?;
            }
            None => socket.line.try_put_raw(record)?,
        }
        if header.is_some_and(|header| header.kind == Kind::Data) {
            moved_data.push(moved.is_some());
        }
    }
    Ok(())
}
