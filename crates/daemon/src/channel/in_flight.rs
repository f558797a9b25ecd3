//! Descriptors in flight: those that a program has sent over a pair and that the daemon has not received.
//!
//! A program can send the descriptor of its socket into the pair of this socket or of another one, alone or in the queue of a
//! further AF_UNIX socket. The kernel then keeps the socket open although no process has it, and the daemon hears of no close.
//! While the daemon takes records, it closes what comes with them. While a socket takes none, the daemon inspects those that have
//! come. Records of the shim come only with memfds, at most one each; any other descriptor breaks the socket.
//!
//! The memory of these memfds is that of the program, and its control group bounds it, until the program has ended and a peer
//! keeps the daemon from taking the records. Then only the peer could free the memory. So it is charged to the user from
//! then on, and an association that exceeds the user's limit is aborted.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::Instant;

use super::daemon_end::{DaemonEnd, PAIR_RECORDS_MAX};
use super::received_memfd;
use crate::users::budget::Charge;
use crate::users::closer::{self, Peeked};
use crate::users::quantum::RECORDS_PER_TURN;
use crate::users::round_share::Turn;

/// Time from the arrival of a record to the inspection, which concerns all that have come by then.
const INSPECTION_DELAY: Duration = Duration::from_secs(1);

/// A walk through the queue of a pair.
struct Inspection {
    /// Number of descriptors in the queue when the walk began; `None` if the kernel does not tell.
    in_flight: Option<usize>,
    /// Number of descriptors that were found.
    found: usize,
    /// Number and length of the records that were looked at.
    records: usize,
    bytes: u64,
    /// Number of records that had been received when the walk began.
    received: u64,
    /// Memory of the memfds that were found.
    memory_bytes: usize,
    /// Whether the program had shut down sending when the walk began.
    is_last: bool,
    /// Whether the program had closed its end when the walk began.
    is_left: bool,
}

/// Violation of the rules for a socket that takes no records, by its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// A record has come with a descriptor that comes with no record of the shim. The kernel may keep a socket for it that no
    /// process has.
    Descriptor,
    /// The program has ended, and what it has left exceeds the memory of its user.
    Memory,
}

/// The outcome of a step of an [`Inspection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inspected {
    /// More records are left to look at.
    Partly,
    /// The records come with nothing but memfds.
    Sound,
    /// A record has come with another descriptor.
    Broken,
}

impl DaemonEnd {
    /// Waits for a breach. Tasks wait for that while they take no records. `charge` charges the user for what the program has
    /// left.
    pub(super) async fn breach_in_flight(
        &self,
        mut turn: Turn,
        charge: impl Fn(usize) -> Option<Charge>,
    ) -> Breach {
        loop {
            self.inspection_due().await;
            let mut inspection = self.inspection();
            loop {
                // The copies of descriptors are closed by a thread.
                self.closer().room().await;
                self.time().unthrottled().await;
                turn.begin().await;
                let before = inspection.records;
                let outcome = self.inspect(&mut inspection);
                turn.spend(1 + inspection.records.saturating_sub(before));
                turn.end();
                match outcome {
                    Inspected::Partly => tokio::task::yield_now().await,
                    Inspected::Sound => break,
                    Inspected::Broken => return Breach::Descriptor,
                }
            }
            self.arrivals().on_inspected();
            if inspection.is_left && !self.arrivals().on_left(|| charge(inspection.memory_bytes)) {
                return Breach::Memory;
            }
            // The runtime reports the end again and again, but nothing more comes.
            match (inspection.is_last, inspection.is_left) {
                (_, true) => std::future::pending().await,
                (true, false) => self.hung_up_both_ways().await,
                (false, false) => {}
            }
        }
    }

    /// Waits until records have come that were not inspected, and some more time for others.
    async fn inspection_due(&self) {
        let due = match self.arrivals().inspection_due() {
            Some(due) => due,
            None => {
                // This fails only when the runtime has ended.
                let Ok(mut ready) = self.descriptor().readable().await else { return };
                let due = Instant::now() + INSPECTION_DELAY;
                self.arrivals().on_hidden(due);
                // The next record notifies again.
                ready.clear_ready();
                due
            }
        };
        tokio::time::sleep_until(due).await;
    }

    /// Begins to inspect the queue.
    fn inspection(&self) -> Inspection {
        let (received, is_last, is_left) = (self.arrivals().received(), self.is_shut(), self.is_hung_up());
        let in_flight = self.in_flight();
        Inspection { in_flight, found: 0, records: 0, bytes: 0, received, memory_bytes: 0, is_last, is_left }
    }

    /// Looks at the next records of the queue, as many as a turn may move.
    fn inspect(&self, inspection: &mut Inspection) -> Inspected {
        if inspection.received != self.arrivals().received() {
            // Another task has taken records: the positions of the others have changed.
            *inspection = self.inspection();
        }
        if inspection.in_flight == Some(0) {
            return Inspected::Sound;
        }
        let outcome = self.look_at_some(inspection);
        // If the kernel refuses this, it has refused the offset before.
        let _ = links::set_peek_offset(self.descriptor().as_fd(), None);
        outcome
    }

    fn look_at_some(&self, inspection: &mut Inspection) -> Inspected {
        for _ in 0..RECORDS_PER_TURN {
            if inspection.bytes >= self.waiting_bytes() || inspection.records == PAIR_RECORDS_MAX {
                return inspection.outcome();
            }
            if !self.closer().has_room() || self.time().is_throttled() {
                return Inspected::Partly;
            }
            match self.peek_at(inspection.bytes) {
                Ok(record) => match memory_of(&record) {
                    Some(memory_bytes) => inspection.pass(&record, memory_bytes),
                    None => return Inspected::Broken,
                },
                Err(Errno::CONNRESET) => self.reset().on_read_reset(),
                Err(_) => return Inspected::Sound,
            }
        }
        Inspected::Partly
    }

    /// Peeks at the record behind so many bytes of others.
    fn peek_at(&self, bytes: u64) -> Result<Peeked, Errno> {
        let offset = u32::try_from(bytes).map_err(|_| Errno::OVERFLOW)?;
        let set = links::set_peek_offset(self.descriptor().as_fd(), Some(offset));
        set.map_err(|error| Errno::from_raw_os_error(error as i32))?;
        closer::peek(self.descriptor(), self.closer(), self.time())
    }

    /// Returns the number of descriptors in the queue; `None` if the kernel does not tell.
    fn in_flight(&self) -> Option<usize> {
        let path = format!("/proc/self/fdinfo/{}", self.descriptor().as_raw_fd());
        let lines = std::fs::read_to_string(path).ok()?;
        lines.lines().find_map(|line| line.strip_prefix("scm_fds:"))?.trim().parse().ok()
    }
}

impl Inspection {
    fn pass(&mut self, record: &Peeked, memory_bytes: usize) {
        self.memory_bytes = self.memory_bytes.saturating_add(memory_bytes);
        self.found += record.descriptors.len();
        self.records += 1;
        self.bytes += record.bytes as u64;
    }

    /// Returns the outcome after the last record.
    fn outcome(&self) -> Inspected {
        // A peek at an offset passes over records without content.
        let are_all_found = self.in_flight.is_none_or(|in_flight| in_flight <= self.found);
        if are_all_found { Inspected::Sound } else { Inspected::Broken }
    }
}

/// Returns the memory of the memfd that comes with a record; `None` if the record comes with more descriptors than one of the
/// shim, or with one of another kind.
fn memory_of(record: &Peeked) -> Option<usize> {
    match &record.descriptors[..] {
        [] => (!record.has_more).then_some(0),
        [memfd] if record.bytes > 0 && !record.has_more => received_memfd::memory_max(memfd.as_fd()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use channel_protocol::record::{Flags, Header, Kind, MESSAGE_BYTES_MAX, Sequence, Turn};
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::channel::incoming::Incoming;
    use crate::channel::style::Style;
    use crate::state::registry::Registry;
    use crate::state::socket::Socket;
    use crate::testing::{ID, header, opened, registry, send, send_memfd, send_only, send_with, soon, until};

    /// Returns whether an inspection of what has come so far finds the socket broken.
    async fn is_broken(socket: &Socket) -> bool {
        let daemon_end = socket.channel().daemon_end();
        let is_inspected =
            || daemon_end.arrivals().are_hidden() && daemon_end.arrivals().inspection_due().is_none();
        tokio::select! {
            biased;
            breach = socket.channel().endpoint.breach(socket.turn()) => breach == Breach::Descriptor,
            () = until("an inspection", is_inspected) => false,
        }
    }

    /// Returns a socket that no process has but by a queue.
    fn other() -> OwnedFd {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a pair").0
    }

    #[tokio::test(flavor = "local")]
    async fn records_of_the_shim_break_nothing_and_are_taken_afterwards() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        send(&program_end, ID, b"a message");
        let long = header(ID, 10);
        send_memfd(&program_end, &Header { flags: long.flags.with(Flags::IN_MEMFD), ..long });
        assert!(!is_broken(&socket).await);
        let channel = socket.channel();
        soon(channel.readable()).await;
        assert!(matches!(channel.try_take(), Ok(Incoming::Message(..))));
        soon(channel.readable()).await;
        assert!(matches!(channel.try_take(), Ok(Incoming::Filler)), "a thread reads the long one");
        soon(channel.readable()).await;
        assert!(matches!(channel.try_take(), Ok(Incoming::Message(..))));
        assert!(channel.try_take().is_err(), "there are no more");
        assert!(!socket.channel().daemon_end().arrivals().are_hidden());
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_in_the_queue_breaks_it_wherever_it_lies() {
        let registry = registry();
        for records in [0, RECORDS_PER_TURN + 1] {
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            (0..records).for_each(|_| send_only(&program_end, Kind::Filler));
            send_with(&program_end, &header(ID, 0).encode(), &[other()]);
            assert!(is_broken(&socket).await, "behind {records} records");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_socket_that_comes_after_an_inspection_is_found_by_the_next() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        send_only(&program_end, Kind::Filler);
        assert!(!is_broken(&socket).await);
        send_with(&program_end, &header(ID, 0).encode(), &[other()]);
        assert_eq!(soon(socket.channel().endpoint.breach(socket.turn())).await, Breach::Descriptor);
    }

    #[tokio::test(flavor = "local")]
    async fn descriptors_that_no_record_of_the_shim_has_break_the_socket() {
        let registry = registry();
        let memfd = || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let memfd = memfd_create("two", flags).expect("a memfd");
            fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW).expect("its seals");
            memfd
        };
        let unsealed = memfd_create("unsealed", MemfdFlags::CLOEXEC).expect("a memfd");
        let file = std::fs::File::open("/dev/null").expect("every Linux has it");
        let record = header(ID, 0).encode();
        let cases: [(&[u8], Vec<OwnedFd>); 5] = [
            (&record, vec![memfd(), memfd()]),
            (&record, vec![memfd(), memfd(), memfd()]),
            (&record, vec![file.into()]),
            // Another process may make it longer at any time.
            (&record, vec![unsealed]),
            // An offset passes over it.
            (b"", vec![memfd()]),
        ];
        for (content, descriptors) in cases {
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            send_only(&program_end, Kind::Filler);
            send_with(&program_end, content, &descriptors);
            assert!(is_broken(&socket).await, "{} bytes, {} descriptors", content.len(), descriptors.len());
        }
    }

    #[tokio::test(flavor = "local")]
    async fn an_empty_record_with_a_descriptor_breaks_the_socket_from_the_front_of_its_queue() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = memfd_create("alone", flags).expect("a memfd");
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW).expect("its seals");
        send_with(&program_end, b"", &[memfd]);
        assert!(is_broken(&socket).await);
    }

    #[tokio::test(flavor = "local")]
    async fn an_inspection_goes_on_once_copies_can_be_closed_and_the_socket_is_not_throttled() {
        for is_throttled in [true, false] {
            let registry = registry();
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            send_only(&program_end, Kind::Filler);
            let daemon_end = socket.channel().daemon_end();
            let (end_it, ends) = std::sync::mpsc::channel::<()>();
            if is_throttled {
                daemon_end.time().throttle_for(Duration::from_secs(60));
            } else {
                daemon_end.closer().run(move || ends.recv().unwrap_or_default());
                while daemon_end.closer().has_room() {
                    daemon_end.closer().run(|| ());
                }
            }
            let mut inspection = daemon_end.inspection();
            inspection.in_flight = Some(1);
            assert_eq!((daemon_end.inspect(&mut inspection), inspection.records), (Inspected::Partly, 0));
            if !is_throttled {
                drop(end_it);
                soon(daemon_end.closer().room()).await;
                assert_eq!(daemon_end.inspect(&mut inspection), Inspected::Broken, "one was not found");
                assert_eq!(inspection.records, 1);
            }
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_program_that_has_shut_down_sending_is_inspected_once_more() {
        let registry = registry();
        for is_sound in [true, false] {
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            send_only(&program_end, Kind::Filler);
            if !is_sound {
                send_with(&program_end, b"a word", &[other()]);
            }
            rustix::net::shutdown(&program_end, rustix::net::Shutdown::Write).expect("it is open");
            assert_eq!(is_broken(&socket).await, !is_sound);
        }
    }

    /// Returns the header of a message in a memfd.
    fn in_memfd(bytes: usize) -> Header {
        let long = header(ID, bytes);
        Header { flags: long.flags.with(Flags::IN_MEMFD), ..long }
    }

    /// Returns the memory that is charged for what programs have left.
    fn left_bytes(registry: &Registry) -> usize {
        registry.resources().users().user(1).left().charged_bytes()
    }

    /// Inspects the socket until so much memory is charged for what programs have left.
    async fn until_left(registry: &Registry, socket: &Socket, bytes: usize) {
        tokio::select! {
            biased;
            breach = socket.channel().endpoint.breach(socket.turn()) => panic!("{breach:?}"),
            () = until("a charge", || left_bytes(registry) == bytes) => {}
        }
    }

    #[tokio::test(flavor = "local")]
    async fn what_programs_leave_is_charged_until_it_is_taken_and_bounded() {
        const LONG: usize = 3;
        let registry = registry();
        let mut sockets = Vec::new();
        for count in 1..=2 {
            let (socket, program_end) = opened(&registry, Style::OneToOne);
            (0..LONG).for_each(|_| send_memfd(&program_end, &in_memfd(MESSAGE_BYTES_MAX)));
            drop(program_end);
            until_left(&registry, &socket, count * LONG * MESSAGE_BYTES_MAX).await;
            sockets.push(socket);
        }
        // The limit is that of eight such messages.
        let (third, program_end) = opened(&registry, Style::OneToMany);
        (0..LONG).for_each(|_| send_memfd(&program_end, &in_memfd(MESSAGE_BYTES_MAX)));
        drop(program_end);
        assert_eq!(soon(third.channel().endpoint.breach(third.turn())).await, Breach::Memory);
        assert!(sockets[0].channel().endpoint.discard());
        assert_eq!(left_bytes(&registry), LONG * MESSAGE_BYTES_MAX, "what is left is looked at again");
        until_left(&registry, &sockets[0], (2 * LONG - 1) * MESSAGE_BYTES_MAX).await;
        for socket in sockets {
            assert!(socket.channel().endpoint.discard());
        }
        assert_eq!(left_bytes(&registry), 0);
    }

    #[tokio::test(flavor = "local")]
    async fn a_program_that_has_not_ended_is_not_charged() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        send_memfd(&program_end, &in_memfd(100_000));
        assert!(!is_broken(&socket).await);
        rustix::net::shutdown(&program_end, rustix::net::Shutdown::Write).expect("it is open");
        assert!(!is_broken(&socket).await);
        assert_eq!(left_bytes(&registry), 0);
        tokio::select! {
            biased;
            () = until_left(&registry, &socket, 100_000) => {}
            // After the inspection that finds the end of its content.
            () = async {
                until("an inspection", || socket.channel().daemon_end().arrivals().inspection_due().is_none()).await;
                drop(program_end);
                std::future::pending().await
            } => {}
        }
    }

    #[tokio::test(flavor = "local")]
    async fn messages_whose_turn_has_not_come_are_charged_with_those_that_are_left() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let long = in_memfd(100_000);
        for counter in 0..3 {
            let sequence = Sequence::in_turn(Turn { counter, thread: 0 });
            send_memfd(&program_end, &Header { flags: long.flags.with(Flags::IN_TURN), sequence, ..long });
        }
        let endpoint = &socket.channel().endpoint;
        (0..2).for_each(|_| assert!(matches!(endpoint.try_take(), Ok(Incoming::Filler))));
        drop(program_end);
        until_left(&registry, &socket, 300_000).await;
    }

    #[tokio::test(flavor = "local")]
    async fn records_that_another_task_takes_do_not_mislead_an_inspection() {
        let registry = registry();
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        let long = header(ID, 10);
        let long = Header { flags: long.flags.with(Flags::IN_MEMFD), ..long };
        (0..RECORDS_PER_TURN + 2).for_each(|_| send_memfd(&program_end, &long));
        let daemon_end = socket.channel().daemon_end();
        let mut inspection = daemon_end.inspection();
        assert_eq!(daemon_end.inspect(&mut inspection), Inspected::Partly);
        assert!(socket.channel().discard());
        // It begins again.
        assert_eq!(daemon_end.inspect(&mut inspection), Inspected::Partly);
        assert_eq!(daemon_end.inspect(&mut inspection), Inspected::Sound);
        rustix::net::send(&program_end, b"a word", SendFlags::DONTWAIT).expect("it has ended no peek");
        assert!(socket.channel().try_take().is_ok());
    }
}
