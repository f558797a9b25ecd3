//! Takes records that a program has not read back from its pair.
//!
//! The daemon receives them from the program's own end of the pair, and the kernel has a lock for all receivers there. A
//! thread of the program holds it for as long as the memory that it receives into is missing, possibly for ever (a mapping of a
//! FUSE file). So a thread of the user receives the records, and a request waits for that thread no longer than [`RECALL_WAIT`].
//!
//! A thread that gets the lock after the request has failed takes no record. Otherwise no other record is sent to the program
//! until all records are back in their pairs, so their order stays. If a request stops waiting, for whatever reason, the
//! records go back unchanged.
//!
//! Such a thread also puts the records back: each one wakes all that wait for the program's end, and there may be hundreds.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::sync::{OwnedRwLockWriteGuard, oneshot};
use tokio::time::timeout;

use super::raw_record::RawRecord;
use crate::channel::daemon_end::{DaemonEnd, PAIR_RECORDS_MAX};
use crate::system::journal::{Cause, log};
use crate::users::descriptor_budget::DescriptorPermit;
use crate::users::worker::Job;

/// Maximum time that a request waits for records; then it fails with `EBUSY`.
const RECALL_WAIT: Duration = Duration::from_secs(5);

/// Records taken out of a pair. Those that are still here when this is dropped go back.
pub(crate) struct Recalled {
    records: VecDeque<RawRecord>,
    daemon_end: Arc<DaemonEnd>,
    /// Keeps other records from being sent to the program until this is dropped.
    gate: Arc<OwnedRwLockWriteGuard<()>>,
}

impl Recalled {
    /// Returns the records, the oldest first. The caller puts back those that belong in this pair.
    pub(crate) fn take(&mut self) -> VecDeque<RawRecord> {
        std::mem::take(&mut self.records)
    }

    /// Discards the records.
    pub(crate) fn discard(mut self) {
        self.records.clear();
    }

    /// Puts the records back unchanged, and waits until they are there.
    pub(crate) async fn put_back(mut self) {
        let records = self.take().into_iter().map(|record| (record, false)).collect();
        let (_, put) = self.sort(records, &self.daemon_end).await;
        log_lost(put, &self.daemon_end);
    }

    /// Puts each of these records back, or into another pair if it is marked, on a thread that may wait for programs.
    /// Returns the records that were put: all, unless there was an error. All were in the pair and in its ring before, so
    /// there is room. If the caller stops waiting, the thread continues, and no other record is sent to the program until it
    /// has ended.
    pub(crate) async fn sort(
        &self,
        records: Vec<(RawRecord, bool)>,
        other: &Arc<DaemonEnd>,
    ) -> (Vec<(RawRecord, bool)>, Result<(), Errno>) {
        if records.is_empty() {
            return (records, Ok(()));
        }
        let pairs = [Arc::clone(&self.daemon_end), Arc::clone(other)];
        let gate = Arc::clone(&self.gate);
        let sorting = Job::begin(self.daemon_end.closer().worker(), move || {
            let _gate = gate;
            let mut put = Vec::with_capacity(records.len());
            for (record, is_marked) in records {
                if let Err(error) = pairs[usize::from(is_marked)].put_raw(&record) {
                    return (put, Err(error));
                }
                put.push((record, is_marked));
            }
            (put, Ok(()))
        });
        sorting.done().await;
        // No other task takes the result.
        sorting.take().unwrap_or((Vec::new(), Err(Errno::CANCELED)))
    }

    /// Receives the records in the pair for as long as the request waits (`is_wanted`).
    fn receive_from(
        &mut self,
        program_end: BorrowedFd<'_>,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        // The daemon is the only sender to this end.
        while self.records.len() < PAIR_RECORDS_MAX {
            match RawRecord::take(program_end, self.daemon_end.closer(), self.daemon_end.time()) {
                Ok(mut record) => {
                    if let Some(messages) = self.daemon_end.ring().take_back(&record.bytes) {
                        (record.bytes, record.is_bundle) = (messages, true);
                    }
                    self.records.push_back(record);
                }
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error),
            }
            if !is_wanted() {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Recalled {
    fn drop(&mut self) {
        let records = self.take();
        if records.is_empty() {
            return;
        }
        let (daemon_end, gate) = (Arc::clone(&self.daemon_end), Arc::clone(&self.gate));
        self.daemon_end.closer().worker().run(move || {
            let put = records.iter().try_for_each(|record| daemon_end.put_raw(record));
            drop(gate);
            log_lost(put, &daemon_end);
        });
    }
}

/// Logs that records could not be put back.
fn log_lost(put: Result<(), Errno>, daemon_end: &DaemonEnd) {
    match put {
        // The program is gone.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
        Err(error) => {
            let cause = Cause::User(daemon_end.closer().user());
            log(cause, format_args!("records of a program were lost: {error}"));
        }
    }
}

/// A recall that runs on a thread which may wait for the lock of the program's end.
struct Recall {
    /// A copy of the program's end.
    program_end: OwnedFd,
    _permit: DescriptorPermit,
    recalled: Recalled,
    done: oneshot::Sender<Result<Recalled, Errno>>,
}

impl Recall {
    /// Takes the records, unless the request has stopped waiting.
    fn run(self) {
        await_lock(&self.program_end);
        if self.is_wanted() {
            self.take();
        }
    }

    /// Returns whether the request still waits.
    fn is_wanted(&self) -> bool {
        !self.done.is_closed()
    }

    /// Takes the records. If a sharer takes the lock again after the check of the request and holds it until the request has
    /// failed, one record is taken and goes back, and no second one is taken.
    fn take(self) {
        let Recall { program_end, mut recalled, done, .. } = self;
        let received = recalled.receive_from(program_end.as_fd(), || !done.is_closed());
        // The daemon's copy is closed first, so that a program that closes its end after the answer closes the last copy.
        drop(program_end);
        // If the request has stopped waiting, the records go back.
        let _ = done.send(received.map(|()| recalled));
    }
}

/// Waits for the kernel's lock of the receivers at this end, and takes nothing. A program whose request has failed continues to
/// read: it would miss a record that is taken then, and the kernel's peek offset would point into another record.
fn await_lock(program_end: &OwnedFd) {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    // Only the wait for the lock matters, not the result.
    let _ = rustix::net::recv(program_end, &mut [0_u8; 0], flags);
}

impl DaemonEnd {
    /// Takes back the records that the program has not read. `EBUSY`: the lock of the program's end is not available for now;
    /// all records stay in the pair, or go back to it.
    pub(crate) async fn recall(self: &Arc<Self>, program_end: BorrowedFd<'_>) -> Result<Recalled, Errno> {
        let recalled = async {
            let gate = self.close_gate().await;
            let recalled =
                Recalled { records: VecDeque::new(), daemon_end: Arc::clone(self), gate: Arc::new(gate) };
            // This call takes no lock that a program can hold.
            if rustix::io::ioctl_fionread(program_end)? == 0 {
                return Ok(recalled);
            }
            if !self.closer().has_room() {
                return Err(Errno::BUSY);
            }
            let program_end = rustix::io::fcntl_dupfd_cloexec(program_end, 0)?;
            let (done, is_done) = oneshot::channel();
            let permit = self.closer().count_descriptor();
            let recall = Recall { program_end, _permit: permit, recalled, done };
            self.closer().worker().run(move || recall.run());
            is_done.await.unwrap_or(Err(Errno::BUSY))
        };
        timeout(RECALL_WAIT, recalled).await.unwrap_or(Err(Errno::BUSY))
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use channel_protocol::record::{HEADER_BYTES, Header, Kind, MESSAGE_BYTES_MAX};
    use channel_protocol::status_page::State;
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, recvmsg};
    use shared_memory::Pins;

    use super::*;
    use crate::channel::accounts::Accounts;
    use crate::channel::blocked::{Blocked, NotPut};
    use crate::channel::endpoint;
    use crate::channel::ring::OutboundRing;
    use crate::channel::shared_pages::SharedPages;
    use crate::channel::style::Style;
    use crate::system::addresses::Family;
    use crate::system::lock::lock;
    use crate::testing::soon;
    use crate::users::budget::{Budget, ByteLimits};
    use crate::users::closer::{Closers, Source};
    use crate::users::descriptor_budget::DescriptorBudget;
    use crate::users::owner::Rings;
    use crate::users::worker::WORKERS_MAX;

    /// Returns a pair: the daemon's end, and the program's.
    fn pair() -> (Arc<DaemonEnd>, OwnedFd) {
        let closers = Closers::new(DescriptorBudget::with_max(1 << 16));
        let account = Budget::new(ByteLimits { user_bytes: 1 << 20, all_bytes: 1 << 20 }).account(1);
        let closer = closers.of(1, Source::Pairs);
        let pins = Arc::new(Pins::new(1));
        let pages =
            SharedPages::new(Family::V4, Style::OneToOne, State::Idle, MESSAGE_BYTES_MAX, &account, &pins);
        let ring = OutboundRing::new(pages.expect("room").memory(), Rings::one(), 1);
        let pair = endpoint::pair(&Arc::default(), closer, Accounts::all_of(&account), ring);
        let (endpoint, program_end) = pair.expect("a pair");
        (Arc::clone(endpoint.daemon_end()), program_end)
    }

    /// Reads the next record from the program's end; returns it with the number of its descriptors.
    fn read(program_end: &OwnedFd) -> (String, usize) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut place = [0; 64];
        let mut parts = [std::io::IoSliceMut::new(&mut place)];
        let bytes =
            recvmsg(program_end, &mut parts, &mut control, RecvFlags::DONTWAIT).expect("a record").bytes;
        let descriptors = control.drain().map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.count(),
            _ => 0,
        });
        let count = descriptors.sum();
        (String::from_utf8_lossy(&place[..bytes]).into_owned(), count)
    }

    #[tokio::test(flavor = "local")]
    async fn records_that_nobody_takes_go_back_in_their_order() {
        let (daemon_end, program_end) = pair();
        let two = [program_end.as_fd(), program_end.as_fd()];
        daemon_end.put_record(b"first", &two).await.expect("room");
        daemon_end.put_record(b"second", &[]).await.expect("room");
        let recalled = daemon_end.recall(program_end.as_fd()).await.expect("nobody has the lock");
        let mut third = pin!(daemon_end.put_record(b"third", &[]));
        let mut context = Context::from_waker(Waker::noop());
        assert!(third.as_mut().poll(&mut context).is_pending(), "nothing comes between them");
        assert_eq!(rustix::io::ioctl_fionread(&program_end), Ok(0));
        drop(recalled);
        third.await.expect("room");
        assert_eq!(read(&program_end), ("first".into(), 2));
        assert_eq!((read(&program_end).0, read(&program_end).0), ("second".into(), "third".into()));
    }

    #[tokio::test(flavor = "local")]
    async fn records_that_are_put_back_are_there_when_the_call_returns() {
        let (daemon_end, program_end) = pair();
        let two = [program_end.as_fd(), program_end.as_fd()];
        daemon_end.put_record(b"first", &two).await.expect("room");
        daemon_end.put_record(b"second", &[]).await.expect("room");
        daemon_end.recall(program_end.as_fd()).await.expect("nobody has the lock").put_back().await;
        assert_eq!(read(&program_end), ("first".into(), 2));
        assert_eq!(read(&program_end), ("second".into(), 0));
    }

    /// The messages of six records of 64 bytes are more than fits in a pair.
    #[tokio::test(flavor = "local")]
    async fn bundles_go_back_to_the_ring_even_if_each_is_one_message() {
        const BYTES: usize = 60_000;
        let (daemon_end, program_end) = pair();
        let header = Header { bytes: BYTES as u32, ..Header::new(Kind::Data) };
        let content = |number: u8| [&header.encode()[..], &[number; BYTES]].concat();
        for number in 0..6 {
            daemon_end.ring_has_memory(BYTES + HEADER_BYTES).await;
            let put = daemon_end.try_put_bundle(BYTES + HEADER_BYTES, |bundle| {
                assert!(bundle.push(&header, [&[number; BYTES][..]]));
            });
            assert_eq!(put, Ok(true), "{number}");
        }
        daemon_end.recall(program_end.as_fd()).await.expect("nobody has the lock").put_back().await;
        for number in 0..6 {
            let mut record = [0; 2 * HEADER_BYTES];
            let (bytes, _) =
                rustix::net::recv(&program_end, &mut record, RecvFlags::DONTWAIT).expect("a record");
            assert!(daemon_end.bundle_of(&record[..bytes]) == Some(content(number)), "{number}");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn nothing_comes_between_records_that_are_put_back_although_the_request_has_failed() {
        let (daemon_end, program_end) = pair();
        daemon_end.put_record(b"first", &[]).await.expect("room");
        let mut recalled = daemon_end.recall(program_end.as_fd()).await.expect("nobody has the lock");
        let records = recalled.take().into_iter().map(|record| (record, false)).collect();
        // All threads of the user are stuck, so the records wait.
        let (end_it, ends) = std::sync::mpsc::channel::<()>();
        let ends = Arc::new(std::sync::Mutex::new(ends));
        for _ in 0..WORKERS_MAX {
            let ends = Arc::clone(&ends);
            daemon_end.closer().worker().run(move || lock(&ends).recv().unwrap_or_default());
        }
        {
            let mut sorting = pin!(recalled.sort(records, &daemon_end));
            assert!(sorting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(recalled);
        let second = daemon_end.try_put_parts(&[IoSlice::new(b"second")], &[]);
        assert_eq!(second, Err(NotPut::Blocked(Blocked::Recall)));
        drop(end_it);
        daemon_end.put_record(b"second", &[]).await.expect("room");
        assert_eq!((read(&program_end).0, read(&program_end).0), ("first".into(), "second".into()));
    }

    #[tokio::test(flavor = "local")]
    async fn a_ring_whose_records_are_taken_back_has_no_more_room_for_that() {
        const BYTES: usize = 60_000;
        /// More than half of the ring.
        const BUNDLES: usize = 6;
        let (daemon_end, program_end) = pair();
        let header = Header { bytes: BYTES as u32, ..Header::new(Kind::Data) };
        for _ in 0..BUNDLES {
            daemon_end.ring_has_memory(BYTES + HEADER_BYTES).await;
            let put = daemon_end.try_put_bundle(BYTES + HEADER_BYTES, |bundle| {
                assert!(bundle.push(&header, [&[7; BYTES][..]]));
            });
            assert_eq!(put, Ok(true));
        }
        let recalled = daemon_end.recall(program_end.as_fd()).await.expect("nobody has the lock");
        assert_eq!(daemon_end.unread_bytes(), 0, "the kernel has none of the records");
        let mut room = pin!(daemon_end.ring_has_room());
        let mut context = Context::from_waker(Waker::noop());
        assert!(room.as_mut().poll(&mut context).is_pending());
        // The runtime has reported the pair writable to this task, and so to the one before.
        daemon_end.writable().await;
        assert!(room.as_mut().poll(&mut context).is_pending(), "they may go back");
        drop(recalled);
        daemon_end.recall_ended().await;
        assert!(room.as_mut().poll(&mut context).is_pending(), "they have gone back");
        for _ in 0..BUNDLES {
            let bytes = rustix::net::recv(&program_end, &mut [0; HEADER_BYTES][..], RecvFlags::DONTWAIT);
            assert!(bytes.is_ok(), "{bytes:?}");
        }
        soon(room).await;
    }

    #[tokio::test(flavor = "local")]
    async fn records_that_are_discarded_do_not_come_back() {
        let (daemon_end, program_end) = pair();
        daemon_end.put_record(b"first", &[]).await.expect("room");
        daemon_end.recall(program_end.as_fd()).await.expect("nobody has the lock").discard();
        assert_eq!(rustix::io::ioctl_fionread(&program_end), Ok(0));
        // Another recall finds no record, and does not keep the daemon from sending afterwards.
        drop(daemon_end.recall(program_end.as_fd()).await.expect("nobody has the lock"));
        daemon_end.put_record(b"second", &[]).await.expect("room");
        assert_eq!(read(&program_end), ("second".into(), 0));
    }

    #[tokio::test(flavor = "local")]
    async fn a_thread_that_comes_too_late_takes_nothing() {
        let (daemon_end, program_end) = pair();
        daemon_end.put_record(b"first", &[]).await.expect("room");
        let gate = Arc::new(daemon_end.close_gate().await);
        let recalled = Recalled { records: VecDeque::new(), daemon_end: Arc::clone(&daemon_end), gate };
        let (done, is_done) = oneshot::channel();
        drop(is_done);
        let permit = daemon_end.closer().count_descriptor();
        Recall { program_end: program_end.try_clone().expect("a copy"), _permit: permit, recalled, done }
            .run();
        assert_eq!(read(&program_end), ("first".into(), 0));
    }

    #[tokio::test(flavor = "local")]
    async fn a_record_that_is_taken_after_the_request_has_failed_goes_back() {
        let (daemon_end, program_end) = pair();
        let two = [program_end.as_fd(), program_end.as_fd()];
        daemon_end.put_record(b"first", &two).await.expect("room");
        let gate = Arc::new(daemon_end.close_gate().await);
        let recalled = Recalled { records: VecDeque::new(), daemon_end: Arc::clone(&daemon_end), gate };
        let (done, is_done) = oneshot::channel();
        let theirs_too = program_end.try_clone().expect("a copy");
        let permit = daemon_end.closer().count_descriptor();
        let recall = Recall { program_end: theirs_too, _permit: permit, recalled, done };
        // A sharer has held the lock from the check of the request until the request has failed.
        assert!(recall.is_wanted());
        drop(is_done);
        recall.take();
        daemon_end.put_record(b"second", &[]).await.expect("the gate opens again");
        assert_eq!(read(&program_end), ("first".into(), 2));
        assert_eq!(read(&program_end), ("second".into(), 0));
    }

    #[tokio::test(flavor = "local")]
    async fn a_full_pair_has_room_for_one_record_more_than_it_had() {
        let (daemon_end, program_end) = pair();
        let record = [7; 1000];
        let full = async {
            loop {
                daemon_end.put_record(&record, &[]).await.expect("room");
            }
        };
        assert!(pin!(full).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut recalled = daemon_end.recall(program_end.as_fd()).await.expect("nobody has the lock");
        let mut records: Vec<_> = recalled.take().into_iter().map(|record| (record, false)).collect();
        let one_more = RawRecord { bytes: record.into(), descriptors: Vec::new(), is_bundle: false };
        records.push((one_more, false));
        let count = records.len();
        let (put, result) = recalled.sort(records, &daemon_end).await;
        assert_eq!((put.len(), result), (count, Ok(())));
    }

    #[tokio::test(flavor = "local")]
    async fn records_are_sorted_by_a_thread_up_to_the_first_that_cannot_be_put() {
        let ((daemon_end, program_end), (other, other_end)) = (pair(), pair());
        for word in [&b"first"[..], b"second", b"third", b"fourth"] {
            daemon_end.put_record(word, &[]).await.expect("room");
        }
        let mut recalled = daemon_end.recall(program_end.as_fd()).await.expect("nobody has the lock");
        let mut records: Vec<_> = recalled.take().into_iter().map(|record| (record, false)).collect();
        let last = records.pop().expect("four");
        records[1].1 = true;
        let (put, result) = recalled.sort(records, &other).await;
        assert_eq!((put.len(), result), (3, Ok(())));
        assert_eq!((read(&program_end).0, read(&program_end).0), ("first".into(), "third".into()));
        assert_eq!(read(&other_end).0, "second");
        drop(other_end);
        let (put, result) = recalled
            .sort(
                vec![
                    last,
                    (RawRecord { bytes: b"lost".into(), descriptors: Vec::new(), is_bundle: false }, true),
                ],
                &other,
            )
            .await;
        assert_eq!((put.len(), result), (1, Err(Errno::PIPE)));
        assert_eq!(read(&program_end).0, "fourth");
    }

    #[tokio::test(flavor = "local")]
    async fn a_recall_is_done_beside_stuck_work() {
        let (daemon_end, program_end) = pair();
        daemon_end.put_record(b"first", &[]).await.expect("room");
        let (_end_it, ends) = std::sync::mpsc::channel::<()>();
        daemon_end.closer().worker().run(move || ends.recv().unwrap_or_default());
        let recalled = daemon_end.recall(program_end.as_fd()).await.expect("another thread recalls");
        assert_eq!(recalled.records.len(), 1);
        drop(recalled);
        daemon_end.put_record(b"second", &[]).await.expect("room");
    }
}
