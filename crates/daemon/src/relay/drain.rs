//! Moves records from the channel of a one-to-many socket into the send queues of its associations.
//!
//! The relay always reads this channel, so that an association whose peer is slow delays no other. The page shows the program the
//! number of bytes that wait for each association, and the shim sends no more than there is room for.

use bytes::Bytes;
use channel_protocol::record::{Flags, Header};
use rustix::io::Errno;

use super::{Departure, abort};
use crate::channel::endpoint::Progress;
use crate::channel::incoming::Incoming;
use crate::state::association::SocketAssociation;
use crate::state::socket::Socket;
use crate::system::journal::{Cause, log};
use crate::users::quantum::RECORDS_PER_TURN;

/// Takes the records that the program has sent before a request. Later records do not count: otherwise a program that sends
/// without pause would never be answered.
pub(crate) struct Drain {
    until: Progress,
}

impl Drain {
    pub(crate) fn new(socket: &Socket) -> Drain {
        Drain { until: socket.channel().sent() }
    }

    /// Takes records, up to the limit of one turn. Returns true if all were taken, false if records stay because the user's
    /// memory is used up or nothing may be taken for now, and `None` if more are left.
    pub(crate) fn step(&mut self, socket: &Socket) -> Option<bool> {
        if self.has_taken_all(socket) {
            return Some(true);
        }
        self.take(socket)
    }

    /// Returns whether all of them were taken.
    pub(crate) fn has_taken_all(&self, socket: &Socket) -> bool {
        socket.channel().taken().reaches(self.until)
    }

    /// Takes records, whether they were sent before or not, up to the limit of one turn; returns as [`Drain::step`].
    pub(crate) fn take(&mut self, socket: &Socket) -> Option<bool> {
        let taken = take_batch(socket);
        match taken.end {
            // The end, like a malformed record, is reported to each reader again: the socket's task handles it.
            BatchEnd::Left(departure) => {
                if matches!(departure, Departure::Unread) {
                    socket.channel().repeat_reset();
                }
                Some(true)
            }
            BatchEnd::Stalled => (taken.records == 0).then_some(false),
            BatchEnd::Open => (taken.records == 0).then(|| self.has_taken_all(socket)),
        }
    }
}

/// The records taken from a pair in one turn.
pub(crate) struct Batch {
    pub(crate) records: usize,
    /// The weight of these records in a turn.
    pub(crate) weight: usize,
    pub(crate) end: BatchEnd,
}

/// The reason why a batch takes no further record.
pub(crate) enum BatchEnd {
    /// The turn is over, or no record is available.
    Open,
    /// More records wait because the user's memory is used up.
    Stalled,
    /// The program has left its side of the socket.
    Left(Departure),
}

impl BatchEnd {
    /// Returns how the program has left its side of the socket, if it has.
    pub(crate) fn departure(self) -> Option<Departure> {
        match self {
            BatchEnd::Left(departure) => Some(departure),
            BatchEnd::Open | BatchEnd::Stalled => None,
        }
    }
}

/// Takes records of the program, up to the limit of one turn.
pub(crate) fn take_batch(socket: &Socket) -> Batch {
    let mut batch = Batch { records: 0, weight: 0, end: BatchEnd::Open };
    while batch.weight < RECORDS_PER_TURN {
        match socket.channel().try_take() {
            Ok(taken) => {
                socket.adapt_send_queues();
                batch.records += 1;
                batch.weight += taken.weight();
                if let Some(departure) = dispatch_record(socket, taken) {
                    batch.end = BatchEnd::Left(departure);
                    break;
                }
            }
            Err(Errno::AGAIN) => break,
            Err(Errno::NOBUFS) => {
                batch.end = BatchEnd::Stalled;
                break;
            }
            Err(_) => {
                batch.end = BatchEnd::Left(Departure::Closed);
                break;
            }
        }
    }
    batch
}

/// Puts a record into the send queue of its association. Returns how the program has left, if it has.
fn dispatch_record(socket: &Socket, taken: Incoming) -> Option<Departure> {
    match taken {
        Incoming::Filler | Incoming::Empty => None,
        Incoming::Message(header, content) => {
            let assoc = socket.associations().addressee(header.assoc_id);
            // A message for an association that the socket has removed is lost, as in the kernel.
            if let Some(assoc) = assoc {
                enqueue(socket, &assoc, header, content);
            }
            None
        }
        Incoming::Malformed => {
            log(
                Cause::User(socket.owner().user),
                format_args!(
                    "a program has written malformed records to its socket; its associations are aborted"
                ),
            );
            Some(Departure::Broken)
        }
        Incoming::Unread => socket.channel().has_unread_data().then_some(Departure::Unread),
        Incoming::End => Some(Departure::Closed),
    }
}

fn enqueue(socket: &Socket, assoc: &SocketAssociation, header: Header, content: Bytes) {
    if header.flags.contains(Flags::ABORT) {
        let queue = socket.remove(assoc);
        match assoc.stack_association() {
            Some(association) => abort(association, &content),
            None if queue.is_some() => assoc.tasks().on_setup_aborted(),
            None => {}
        }
        return;
    }
    let Some(send_queue) = assoc.send_queue() else { return };
    let header = assoc.complete(header);
    let has_room = send_queue.push(header, content);
    if header.flags.contains(Flags::SHUTDOWN) {
        socket.on_sending_shut(assoc);
    }
    if !has_room && let Some(association) = assoc.stack_association() {
        log(
            Cause::User(socket.owner().user),
            format_args!(
                "a program has sent more than its association has room for; the association is aborted"
            ),
        );
        abort(association, "the program has sent more than there is room for");
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use channel_protocol::assoc_id::AssocId;
    use channel_protocol::record::Kind;
    use channel_protocol::status_page::{Entry, StatusPage};
    use rustix::net::SendFlags;

    use super::*;
    use crate::channel::style::Style;
    use crate::testing::{ID, opened, put, registry, send, send_long, send_only, soon, with_writer};
    use crate::users::limits::Limits;
    use crate::users::quantum::BYTES_PER_TURN;

    /// An identifier of no association.
    const NONE: AssocId = AssocId::new(77);

    fn send_one(program_end: &OwnedFd) {
        send(program_end, NONE, b"");
    }

    #[tokio::test(flavor = "local")]
    async fn messages_that_a_program_sends_meanwhile_do_not_prolong_a_drain() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        (0..4 * RECORDS_PER_TURN).for_each(|_| send_one(&program_end));
        let mut drain = Drain::new(&socket);
        for _ in 0..4 {
            assert_eq!(drain.step(&socket), None, "others have their turn");
            // The test sends as many as were taken, so the pair is never empty.
            (0..RECORDS_PER_TURN).for_each(|_| send_one(&program_end));
        }
        assert_eq!(drain.step(&socket), Some(true));
        assert!(socket.channel().waiting_bytes() > 0);
    }

    #[tokio::test(flavor = "local")]
    async fn a_drain_that_takes_the_wake_record_wakes_the_task_of_the_socket() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        with_writer(&socket, |_| ());
        let channel = socket.channel();
        let mut readable = pin!(channel.readable());
        assert!(readable.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(put(&socket, NONE, b"earlier"), "the daemon sleeps");
        send_only(&program_end, Kind::Wake);
        let mut drain = Drain::new(&socket);
        assert_eq!((drain.step(&socket), drain.step(&socket)), (None, Some(true)));
        assert!(!put(&socket, NONE, b"later"), "the daemon is awake");
        soon(readable).await;
        assert_eq!(take_batch(&socket).records, 1);
    }

    #[tokio::test(flavor = "local")]
    async fn requests_that_take_from_a_pair_together_find_its_end() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        (0..2 * RECORDS_PER_TURN).for_each(|_| send_one(&program_end));
        rustix::net::shutdown(&program_end, rustix::net::Shutdown::Write).expect("it is open");
        let (mut first, mut second) = (Drain::new(&socket), Drain::new(&socket));
        assert_eq!((first.step(&socket), second.step(&socket)), (None, None));
        // Each has taken records that the other expected. It must not wait for them for ever.
        assert_eq!((first.step(&socket), second.step(&socket)), (Some(true), Some(true)));
    }

    #[tokio::test(flavor = "local")]
    async fn a_request_before_which_a_program_breaks_its_pair_hides_nothing_from_its_task() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        // The record ends within its header.
        let broken = &Header::new(Kind::Data).encode()[..8];
        rustix::net::send(&program_end, broken, SendFlags::DONTWAIT).expect("room in the pair");
        while Drain::new(&socket).step(&socket).is_none() {}
        let channel = socket.channel();
        soon(channel.readable()).await;
        let found = channel.try_take();
        assert!(matches!(found, Ok(Incoming::Malformed)), "{found:?}");
    }

    #[tokio::test(flavor = "local")]
    async fn a_turn_ends_after_so_many_bytes_too() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        (0..3).for_each(|_| send_long(&program_end, NONE, BYTES_PER_TURN));
        let mut messages = 0;
        while messages < 3 {
            let batch = take_batch(&socket);
            // Each message was a record before, which may have come in the same turn.
            assert!(batch.records <= 3 && batch.weight < 2 * RECORDS_PER_TURN, "one message a turn");
            messages += batch.weight / RECORDS_PER_TURN;
            if batch.records == 0 {
                soon(socket.channel().readable()).await;
            }
        }
        assert_eq!(take_batch(&socket).records, 0);
    }

    #[tokio::test(flavor = "local")]
    async fn an_association_that_the_program_shuts_down_takes_no_further_message() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        let options = socket.future_options();
        let assoc = SocketAssociation::new(ID, ([127, 0, 0, 1], 7).into(), options);
        let assoc = socket.enter(assoc, 10, registry.admit_association(&socket, 1).expect("the first"));
        let send_queue = assoc.send_queue().expect("it was entered");
        send(&program_end, ID, b"a word");
        take_batch(&socket);
        assert!(!send_queue.is_shut());
        let flags = Flags::END.with(Flags::SHUTDOWN);
        let record = Header { assoc_id: ID, flags, ..Header::new(Kind::Data) }.encode();
        rustix::net::send(&program_end, &record, SendFlags::DONTWAIT).expect("room in the pair");
        take_batch(&socket);
        assert!(send_queue.is_shut());
        let streams_out = socket.channel().shared_pages().field(StatusPage::entry_streams_out_at(0));
        assert_eq!(streams_out, Entry::PEER_SHUT);
        assert_eq!(send_queue.take().len(), 2, "both go to the association");
    }

    #[tokio::test(flavor = "local")]
    async fn while_only_the_reserve_of_memory_is_left_each_association_takes_one_message() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        let enter = |id| {
            let assoc = SocketAssociation::new(id, ([127, 0, 0, 1], 7).into(), socket.future_options());
            socket.enter(assoc, 10, registry.admit_association(&socket, 1).expect("room"))
        };
        let take_one = |count: usize| {
            let page = socket.channel().shared_pages();
            let shown = (0..count).map(|index| page.field(StatusPage::entry_passed_on_at(index)));
            shown.map(|passed_on| passed_on != 0).collect::<Vec<_>>()
        };
        let all = Limits::default().user_memory_bytes;
        let first = enter(ID);
        let sent = socket.channel().accounts().sent();
        let few = sent.charge_anyway(all / 2);
        send(&program_end, ID, b"a word");
        take_batch(&socket);
        assert_eq!(take_one(1), [false]);
        let mut most = sent.charge_anyway(all / 4);
        let _second = enter(AssocId::new(9));
        assert_eq!(take_one(2), [true, true]);
        most.shrink_to(all / 4 - all / 32);
        send(&program_end, ID, b"a word");
        take_batch(&socket);
        assert_eq!(take_one(2), [true, true], "hardly more is free");
        drop((few, most));
        send(&program_end, ID, b"a word");
        take_batch(&socket);
        assert_eq!(take_one(2), [false, false]);
        let _most = sent.charge_anyway(all / 4 * 3);
        send(&program_end, ID, b"a word");
        take_batch(&socket);
        assert_eq!(take_one(2), [true, true], "also by a message to another association");
        assert_eq!(first.send_queue().expect("it was entered").take().len(), 4);
    }

    #[tokio::test(flavor = "local")]
    async fn one_turn_takes_so_many_records() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        (0..2 * RECORDS_PER_TURN).for_each(|_| send_one(&program_end));
        let records = [(); 3].map(|()| take_batch(&socket).records);
        assert_eq!(records, [RECORDS_PER_TURN, RECORDS_PER_TURN, 0]);
    }

    #[tokio::test(flavor = "local")]
    async fn a_record_of_no_bytes_is_not_the_end() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        let send_nothing =
            || rustix::net::send(&program_end, &[], SendFlags::DONTWAIT).expect("room in the pair");
        send_nothing();
        send_one(&program_end);
        let taken = take_batch(&socket);
        assert_eq!((taken.records, matches!(taken.end, BatchEnd::Open)), (2, true));
        send_nothing();
        assert!(socket.channel().discard() && !socket.channel().discard());
        // Nor is it the end if the end follows.
        send_nothing();
        send_one(&program_end);
        drop(program_end);
        let taken = take_batch(&socket);
        assert_eq!((taken.records, matches!(taken.end, BatchEnd::Left(Departure::Closed))), (3, true));
    }
}
