//! `sctp_peeloff`: an association of a one-to-many socket becomes a socket of its own.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use channel_protocol::assoc_id::AssocId;
use channel_protocol::record::Kind;
use channel_protocol::status_page::State;
use rustix::io::Errno;

use crate::channel::Channel;
use crate::channel::raw_record::RawRecord;
use crate::channel::recall::Recalled;
use crate::channel::style::Style;
use crate::state::association::SocketAssociation;
use crate::state::commands::OneToOneCommand;
use crate::state::registry::{Opened, Registry};
use crate::state::send_queue::Messages;
use crate::state::socket::Socket;
use crate::state::socket_addresses::Bound;
use crate::system::journal::{Cause, log};

/// An association that was moved to a socket of its own.
pub(crate) struct PeeledOff {
    pub(crate) opened: Opened,
    /// Descriptors of the socket's pages for the program.
    pub(crate) pages: [OwnedFd; 2],
    /// The first command for the socket's task.
    pub(crate) relay: OneToOneCommand,
}

/// Moves an association of a one-to-many socket to a socket of its own, with the messages that were delivered:
/// `recalled` contains the records of the channel, which no sharer reads meanwhile. The first message stays if it was read
/// in part. The caller must run this to its end.
pub(crate) async fn peel_off(
    registry: &Registry,
    socket: &Socket,
    id: AssocId,
    read: ReadPosition,
    recalled: Recalled,
) -> Result<PeeledOff, Errno> {
    // The association may have ended since the caller looked it up.
    let (assoc, opened, pages) = match prepare(registry, socket, id) {
        Ok(prepared) => prepared,
        Err(error) => {
            // The program looks for its position in the first record once it has the answer.
            recalled.put_back().await;
            return Err(error);
        }
    };
    let new = &opened.socket;
    registry.on_adopted(new, socket, &assoc, socket.addresses().bound().as_ref().map(Bound::first));
    new.on_peeled_off(socket, &assoc);
    if let Some(due) = socket.due_dry().remove(id) {
        new.due_dry().add(due);
    }
    let unsent = take_off(socket, &assoc).await;
    new.show_defaults(&assoc);
    if assoc.inbound_queue().await.is_shut_down() {
        new.on_sending_shut(&assoc);
    }
    if let Err(error) = move_records(recalled, socket.channel(), new.channel(), id, read).await {
        let cause = Cause::User(socket.owner().user);
        log(cause, format_args!("peeling off an association lost messages: {error}"));
        socket.channel().release_all_credits();
    }
    new.channel().watch_reads();
    new.channel().watch_ring();
    Ok(PeeledOff { opened, pages, relay: OneToOneCommand::Relay { assoc, unsent } })
}

/// Opens the new socket; returns it with the association and the descriptors of its pages.
fn prepare(
    registry: &Registry,
    socket: &Socket,
    id: AssocId,
) -> Result<(Rc<SocketAssociation>, Opened, [OwnedFd; 2]), Errno> {
    let assoc = peelable(socket, id)?;
    let options = socket.options().clone();
    let opened =
        registry.open(socket.owner(), socket.family(), Style::PeeledOff, State::Connected, options)?;
    opened.socket.on_opened_by(socket.program().cloned());
    let Ok(pages) = opened.socket.channel().page_descriptors() else {
        // The new socket has no task that would forget it.
        registry.forget(&opened.socket);
        return Err(Errno::MFILE);
    };
    Ok((assoc, opened, pages))
}

/// Returns the association of this number if it can be peeled off.
pub(crate) fn peelable(socket: &Socket, id: AssocId) -> Result<Rc<SocketAssociation>, Errno> {
    if socket.style() != Style::OneToMany {
        return Err(Errno::INVAL);
    }
    let assoc = socket.associations().get(id).ok_or(Errno::INVAL)?;
    if assoc.stack_association().is_some() { Ok(assoc) } else { Err(Errno::NOTCONN) }
}

/// Removes an association from its socket; returns the messages that wait to be sent.
async fn take_off(socket: &Socket, assoc: &SocketAssociation) -> Messages {
    match socket.remove(assoc) {
        Some(queue) => {
            socket.on_silent();
            // A task may have been passing a message on, which is in the queue until then.
            assoc.tasks().stop().await;
            queue.take()
        }
        None => Messages::new(),
    }
}

/// The position up to which a program has read.
#[derive(Clone, Copy)]
pub(crate) struct ReadPosition {
    /// Offset of the next message in the first record.
    pub(crate) at: usize,
    /// Whether that message was read in part.
    pub(crate) is_begun: bool,
}

/// Distributes the records of the pair between the two sockets.
async fn move_records(
    mut recalled: Recalled,
    channel: &Channel,
    new: &Channel,
    id: AssocId,
    read: ReadPosition,
) -> Result<(), Errno> {
    let mut records = recalled.take();
    // Size hints are dropped, because the page is read anew after this.
    records.retain(|record| !record.is_size_hint());
    let is_of = |record: &RawRecord| record.messages().any(|(_, header)| header.assoc_id == id);
    let mut staying = None;
    if let Some(first) = records.front_mut() {
        first.cut_front(read.at);
        if read.is_begun && is_of(first) {
            let rest = first.split_off_rest();
            staying = records.pop_front();
            rest.into_iter().for_each(|rest| records.push_front(rest));
        }
    }
    let stays = staying.into_iter().map(|record| (record, false));
    let others = records.into_iter().map(|record| {
        let moves = is_of(&record);
        (record, moves)
    });
    let sorted: Vec<(RawRecord, bool)> = stays.chain(others).collect();
    for (record, _) in sorted.iter().filter(|(_, moves)| *moves) {
        new.expect(record);
    }
    let (put, result) = recalled.sort(sorted, new.daemon_end()).await;
    let of_data =
        |record: &RawRecord| record.messages().filter(|(_, header)| header.kind == Kind::Data).count();
    let data: Vec<bool> = put.iter().flat_map(|(record, moves)| vec![*moves; of_data(record)]).collect();
    let long: Vec<bool> =
        put.iter().filter(|(record, _)| record.is_long()).map(|(_, moves)| *moves).collect();
    channel.move_credits_to(new, &data, &long);
    result
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use swiftwater::tokio::{Association, Listener};

    use super::*;
    use crate::calls::links;
    use crate::testing::{opened, read, registry, server_address};
    use crate::users::requester::tests::requester;

    /// Returns the two ends of an association between programs: that of a listener's socket is the second.
    async fn ends(registry: &Registry, listener: &Listener) -> [Association; 2] {
        let connecting = registry.stack().connect(server_address(registry));
        let (connected, accepted) = tokio::join!(connecting, listener.accept());
        [connected.expect("it listens"), accepted.expect("an association comes").0]
    }

    #[tokio::test(flavor = "local")]
    async fn links_go_round_through_an_association_that_is_being_peeled_off() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let (mut ids, mut sockets) = (Vec::new(), Vec::new());
        let (many, program_end) = opened(&registry, Style::OneToMany);
        for is_first in [true, false] {
            let [first, second] = ends(&registry, &listener).await;
            let with = |association: Association| {
                let (id, peer) = (registry.next_association(), association.peer_addr());
                SocketAssociation::with(id, peer, association, many.future_options())
            };
            let alone = |assoc: SocketAssociation| {
                let ((socket, program_end), assoc) = (opened(&registry, Style::OneToOne), Rc::new(assoc));
                socket.on_adopted(&assoc, None, None);
                (socket, program_end, assoc)
            };
            if is_first {
                let assoc = many.enter(with(first), 1, registry.admit_association(&many, 1).expect("room"));
                many.let_be_found(&assoc);
                ids.push(assoc.id());
            } else {
                sockets.push(alone(with(first)));
            }
            sockets.push(alone(with(second)));
        }
        ids.extend(sockets.iter().map(|(_, _, assoc)| assoc.id()));
        let [first, its_other_end, second, end_of_way] = ids[..] else { panic!("four ends") };
        let link = |ends| links::link(&registry, ends, requester(1)).map(|_| ());
        let socket_of = |id| registry.association(id).map(|(socket, _)| socket.number());
        assert_eq!(link([its_other_end, second]), Ok(()));
        assert_eq!(link([end_of_way, first]), Err(Errno::INVAL));
        assert_eq!(socket_of(first), Some(many.number()));
        many.due_dry().add(many.associations().get(first).expect("it is there"));
        let recalled = many.channel().daemon_end().recall(program_end.as_fd()).await.expect("nobody reads");
        let position = ReadPosition { at: 0, is_begun: false };
        let peeled = peel_off(&registry, &many, first, position, recalled).await.expect("it is up");
        // Nothing relays its messages yet.
        let links = [link([end_of_way, first]), link([first, end_of_way])];
        assert_eq!(socket_of(first), Some(peeled.opened.socket.number()), "the new socket is found");
        let moves = peeled.opened.socket.due_dry().contains(first);
        assert_eq!((links, moves), ([Err(Errno::INVAL); 2], true), "what is due moves, too");
    }

    /// A program compares its position with the first record as soon as it has the answer.
    #[tokio::test(flavor = "local")]
    async fn the_records_are_back_before_a_request_fails() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        let daemon_end = socket.channel().daemon_end();
        daemon_end.put_record(b"first", &[]).await.expect("room");
        let recalled = daemon_end.recall(program_end.as_fd()).await.expect("nobody has the lock");
        let position = ReadPosition { at: 0, is_begun: false };
        let peeled = peel_off(&registry, &socket, AssocId::new(7), position, recalled).await;
        assert_eq!(peeled.err(), Some(Errno::INVAL), "there is no such association");
        assert_eq!(read(&program_end).as_deref(), Some(&b"first"[..]));
    }
}
