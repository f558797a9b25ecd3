//! The socket at the daemon's end of a pair: receives and puts records, and does not interpret them.
//!
//! The thread that takes records back from the program also puts them ([`recall`](crate::channel::recall)), so this state may be
//! used by several threads.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use channel_protocol::name::PairName;
use channel_protocol::record::{HEADER_BYTES, Header, Kind};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::OwnedRwLockWriteGuard;

use crate::channel::arrivals::Arrivals;
use crate::channel::blocked::{Blocked, NotPut};
use crate::channel::incoming::FILLER_BYTES;
use crate::channel::raw_record::RawRecord;
use crate::channel::receive_ring::{self, BundleWriter, Place, ReceiveRing};
use crate::channel::reset::Reset;
use crate::system::descriptor_io::{errno_of, polls, register, send_with_descriptors};
use crate::users::closer::{self, Closer, End, ReceivedDescriptor, ReceivedMessage};
use crate::users::thread_time::ThreadTime;

/// Maximum number of names to try for one pair. Names are random, so the second is free unless a program can predict our
/// random numbers.
const NAMES_TRIED_MAX: usize = 8;
/// Maximum number of filler records for one pair, in case its buffer is huge.
const FILLERS_MAX: usize = 4096;
/// Maximum number of records that are taken out of a pair to empty it. A send buffer of the usual 208 KB holds a third of
/// that; in a larger one, which a program has requested, some records may stay.
pub(crate) const PAIR_RECORDS_MAX: usize = 1024;
/// Interval for rechecking for room if no descriptor is free to be notified by.
const ROOM_RECHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The socket at the daemon's end of a pair.
pub(crate) struct DaemonEnd {
    descriptor: AsyncFd<Arc<End>>,
    /// Closes descriptors that programs send with records.
    closer: Arc<Closer>,
    /// Whether the program has left records unread.
    reset: Reset,
    /// Locked shared to put a record, and exclusively while records are taken back.
    gate: Arc<tokio::sync::RwLock<()>>,
    /// The memory of bundles for the program.
    ring: Arc<ReceiveRing>,
    arrivals: Arrivals,
}

/// Creates a pair; returns the daemon's end, with a name, and the program's.
pub(super) fn open(closer: Arc<Closer>, ring: ReceiveRing) -> Result<(DaemonEnd, OwnedFd), Errno> {
    let (daemon_end, program_end) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    bind_to_free_name(daemon_end.as_fd(), random_name)?;
    rustix::io::ioctl_fionbio(&daemon_end, true)?;
    let descriptor = register(Arc::new(closer.guard_pair(daemon_end)), Interest::READABLE)?;
    let socket = DaemonEnd {
        descriptor,
        closer,
        reset: Reset::default(),
        gate: Arc::default(),
        ring: Arc::new(ring),
        arrivals: Arrivals::default(),
    };
    Ok((socket, program_end))
}

fn random_name() -> Result<PairName, Errno> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| Errno::AGAIN)?;
    Ok(PairName::from_random(u128::from_ne_bytes(random)))
}

/// Binds the daemon's end to the first free one of some names.
fn bind_to_free_name(
    daemon_end: BorrowedFd<'_>,
    mut names: impl FnMut() -> Result<PairName, Errno>,
) -> Result<(), Errno> {
    for _ in 0..NAMES_TRIED_MAX {
        let name = SocketAddrUnix::new_abstract_name(names()?.as_bytes())?;
        match rustix::net::bind(daemon_end, &name) {
            Err(Errno::ADDRINUSE) => {}
            bound => return bound,
        }
    }
    Err(Errno::ADDRINUSE)
}

/// Fills a pair from the program's end until it does not poll writable.
pub(crate) fn fill(program_end: BorrowedFd<'_>) -> Result<(), Errno> {
    let header = Header { bytes: FILLER_BYTES as u32, ..Header::new(Kind::Filler) }.encode();
    let filler = vec![0; FILLER_BYTES];
    for _ in 0..FILLERS_MAX {
        if !polls(program_end, PollFlags::OUT) {
            return Ok(());
        }
        let record = [IoSlice::new(&header), IoSlice::new(&filler)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(program_end, &record, &mut SendAncillaryBuffer::default(), flags) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Input: the records of the program.
impl DaemonEnd {
    /// Receives the next record with its descriptors. The caller has checked that the closer has room.
    pub(super) fn receive(&self, place: &mut [u8]) -> Result<ReceivedMessage, Errno> {
        let received = closer::receive(&self.descriptor, place, &self.closer, self.time());
        received.inspect(|_| self.arrivals.on_received())
    }

    /// Calls `receive`, which receives a record.
    ///
    /// This asks the kernel even if the runtime reports nothing to read, because the runtime may not have polled yet. If the
    /// runtime does report readiness and there is no record, the readiness is cleared, so that a waiting task does not ask again.
    pub(super) fn try_receive<T>(&self, receive: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        let mut asked = false;
        let received = self.descriptor.try_io(Interest::READABLE, |_| {
            asked = true;
            Ok(receive()?)
        });
        let received = match received {
            Err(_) if !asked => receive(),
            received => received.map_err(errno_of),
        };
        received.inspect_err(|error| {
            if *error == Errno::AGAIN {
                self.arrivals.on_empty();
            }
        })
    }

    /// Discards the next record, and returns its length; `None` if there was no record. `place` holds the longest one.
    pub(super) fn discard(&self, place: &mut [u8]) -> Option<usize> {
        let may_receive = self.closer.has_room();
        may_receive.then(|| self.receive(place)).and_then(Result::ok).map(|message| message.bytes)
    }

    /// Returns the header of the next record, which stays; `None` if it is not of the shim, or the program has shut down sending.
    pub(super) fn next_header(&self) -> Result<Option<Header>, Errno> {
        let mut header = [0; HEADER_BYTES];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (_, bytes) = rustix::net::recv(&self.descriptor, &mut header, flags)?;
        Ok(Header::parse(&header[..bytes.min(HEADER_BYTES)]))
    }

    /// Returns the number of bytes of the records that were not received.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.descriptor).unwrap_or(0)
    }

    /// Returns whether the program has shut down sending, and all its records were received.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_shut() && self.waiting_bytes() == 0
    }

    /// Returns whether the program has shut down sending.
    pub(super) fn is_shut(&self) -> bool {
        polls(self.descriptor.as_fd(), PollFlags::RDHUP)
    }

    /// Returns whether the program's end is closed, or shut down in both directions.
    pub(crate) fn is_hung_up(&self) -> bool {
        polls(self.descriptor.as_fd(), PollFlags::HUP)
    }

    /// Waits until the socket polls readable and the closer has room.
    pub(super) async fn readable(&self) {
        loop {
            self.closer.room().await;
            if !self.arrivals.are_hidden() {
                // This fails only when the runtime has ended. Only an attempt that finds no record clears the readiness, and an
                // inspection, which remembers that.
                let _ = self.descriptor.readable().await;
            }
            if self.closer.has_room() {
                return;
            }
        }
    }

    /// Waits until the program's end is closed or shut down for sending, even if records are left to read.
    pub(crate) async fn hung_up(&self) {
        // AF_UNIX sockets have no urgent data. The runtime reports a hang-up with that readiness, and a hang-up stays. This fails
        // only when the runtime has ended.
        let _ = self.descriptor.ready(Interest::PRIORITY).await;
    }

    /// Waits until the program's end is closed or shut down in both directions.
    pub(super) async fn hung_up_both_ways(&self) {
        // The descriptor is not registered for writability, but a hang-up, which the runtime reports with it, is always polled.
        // This fails only when the runtime has ended.
        let _ = self.descriptor.ready(Interest::WRITABLE).await;
    }

    /// Stops input. The socket polls readable from then on.
    pub(super) fn stop_input(&self) {
        self.shut_down(Shutdown::Read);
    }

    /// Shuts the socket down, on a thread that may wait for programs if it is throttled.
    fn shut_down(&self, how: Shutdown) {
        let end = Arc::clone(self.descriptor.get_ref());
        let shut_down = move || {
            // This fails only if the program's end is closed, and makes no difference then.
            let _ = end.time().measure(|| rustix::net::shutdown(&end, how));
        };
        if self.time().is_throttled() { self.closer.worker().run(shut_down) } else { shut_down() }
    }

    /// Returns the time that calls on this socket take.
    pub(crate) fn time(&self) -> &ThreadTime {
        self.descriptor.get_ref().time()
    }

    /// Returns what the kernel has reported of records that the program left unread.
    pub(super) fn reset(&self) -> &Reset {
        &self.reset
    }

    /// Returns what is known about the records in the queue.
    pub(super) fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Returns the socket.
    pub(super) fn descriptor(&self) -> &AsyncFd<Arc<End>> {
        &self.descriptor
    }

    /// Returns the closer of descriptors that come with records.
    pub(crate) fn closer(&self) -> &Arc<Closer> {
        &self.closer
    }
}

/// Output: records for the program.
impl DaemonEnd {
    /// Puts a record of these parts into the pair, with descriptors.
    pub(crate) fn try_put_parts(
        &self,
        parts: &[IoSlice<'_>],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), NotPut> {
        if self.time().is_throttled() {
            return Err(NotPut::Blocked(Blocked::Throttled));
        }
        let Ok(_gate) = self.gate.try_read() else { return Err(NotPut::Blocked(Blocked::Recall)) };
        match self.try_send(parts, descriptors) {
            Err(Errno::AGAIN) => Err(NotPut::Blocked(Blocked::Full)),
            sent => sent.map_err(NotPut::Failed),
        }
    }

    /// Puts a header and its content into the pair as one record.
    pub(crate) fn try_put_message(&self, header: &Header, blocks: &[Bytes]) -> Result<(), NotPut> {
        let header = header.encode();
        let mut parts = Vec::with_capacity(1 + blocks.len());
        parts.push(IoSlice::new(&header));
        parts.extend(blocks.iter().map(|block| IoSlice::new(block)));
        self.try_put_parts(&parts, &[])
    }

    /// Puts the bundle that `fill` writes, whose first message takes about so many bytes, and the record that says where it lies.
    /// Returns false if the ring has no memory: the first message needs a record of its own.
    pub(super) fn try_put_bundle(
        &self,
        first_bytes: usize,
        fill: impl FnOnce(&mut BundleWriter<'_>),
    ) -> Result<bool, NotPut> {
        if self.time().is_throttled() {
            return Err(NotPut::Blocked(Blocked::Throttled));
        }
        let Ok(_gate) = self.gate.try_read() else { return Err(NotPut::Blocked(Blocked::Recall)) };
        let unread_bytes = self.unread_bytes();
        // Before the copy, which is long and would be repeated.
        if receive_ring::is_long(first_bytes) && self.is_full(unread_bytes) {
            return Err(NotPut::Blocked(Blocked::Full));
        }
        let free = match self.ring.place(first_bytes, unread_bytes, self.closer.worker()) {
            Place::Free(free) => free,
            Place::Full | Place::Growing => return Err(NotPut::Blocked(Blocked::Ring)),
            Place::NoMemory => return Ok(false),
        };
        let mut bundle = BundleWriter::new(&self.ring, free);
        fill(&mut bundle);
        if bundle.messages() == 0 {
            return Ok(false);
        }
        match self.try_send_bundle(bundle) {
            Err(Errno::AGAIN) => Err(NotPut::Blocked(Blocked::Full)),
            sent => sent.map(|()| true).map_err(NotPut::Failed),
        }
    }

    fn try_send_bundle(&self, bundle: BundleWriter<'_>) -> Result<(), Errno> {
        let place = bundle.finish();
        let record = channel_protocol::bundle::header(place.start, place.len()).encode();
        self.try_send(&[IoSlice::new(&record)], &[])?;
        self.ring.on_put(place);
        Ok(())
    }

    /// Returns the number of bytes of memory that the kernel counts for the records that the program has not read.
    pub(super) fn unread_bytes(&self) -> usize {
        links::unreceived_bytes(self.descriptor.as_fd()).unwrap_or(usize::MAX)
    }

    /// Returns whether the kernel takes no record at present, because it counts so much memory for unread ones.
    fn is_full(&self, unread_bytes: usize) -> bool {
        sockopt::socket_send_buffer_size(&self.descriptor).is_ok_and(|bytes| unread_bytes >= bytes)
    }

    /// Returns the memory of bundles for the program.
    pub(super) fn ring(&self) -> &Arc<ReceiveRing> {
        &self.ring
    }

    /// Returns whether the memory of bundles can be returned because none has come since there were `bundles`, and updates the
    /// number.
    pub(super) fn begin_return_of_ring(&self, bundles: &mut u64) -> bool {
        // Bundles that are taken back need it.
        let gate = self.gate.try_read();
        gate.is_ok() && self.ring.begin_return(bundles, self.unread_bytes())
    }

    /// Waits until the ring has memory for a bundle of so many bytes, or is full.
    #[cfg(test)]
    pub(crate) async fn ring_has_memory(&self, bytes: usize) {
        let place = || self.ring.place(bytes, self.unread_bytes(), self.closer.worker());
        while matches!(place(), Place::NoMemory | Place::Growing) {
            tokio::time::sleep(ROOM_RECHECK_INTERVAL).await;
        }
    }

    /// Returns the content of the bundle with this record, as a program finds it.
    #[cfg(test)]
    pub(crate) fn bundle_of(&self, record: &[u8]) -> Option<Vec<u8>> {
        self.ring.content(record).map(|(_, content)| content)
    }

    /// Waits until the ring has room again and as much memory as it needs, or the program's end was closed.
    pub(super) async fn ring_has_room(&self) {
        let reads = self.reads();
        loop {
            tokio::select! {
                () = reads.next() => {}
                () = self.ring.grown() => {}
            }
            // While records are taken back, their number says nothing about what the program has read.
            let _gate = self.gate.read().await;
            if self.is_hung_up() || self.ring.has_room(self.unread_bytes()) {
                return;
            }
        }
    }

    /// Puts an encoded record into the pair, with descriptors; waits for room.
    pub(crate) async fn put_record(
        &self,
        record: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        loop {
            match self.try_put_parts(&[IoSlice::new(record)], descriptors) {
                Err(NotPut::Blocked(Blocked::Recall)) => self.recall_ended().await,
                Err(NotPut::Blocked(Blocked::Throttled)) => self.time().unthrottled().await,
                Err(NotPut::Blocked(_)) => self.writable().await,
                Err(NotPut::Failed(error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Puts a record from a pair back, or into another one. The caller excludes other senders meanwhile.
    pub(crate) fn put_raw(&self, record: &RawRecord) -> Result<(), Errno> {
        let descriptors: Vec<BorrowedFd<'_>> =
            record.descriptors.iter().map(ReceivedDescriptor::as_fd).collect();
        if record.is_bundle {
            return self.put_raw_bundle(record);
        }
        let parts = [IoSlice::new(&record.bytes)];
        match self.try_send(&parts, &descriptors) {
            // Records of a ring that has no memory take more room than they did.
            Err(Errno::AGAIN) => self.double_send_buffer().and_then(|()| self.try_send(&parts, &descriptors)),
            put => put,
        }
    }

    fn put_raw_bundle(&self, record: &RawRecord) -> Result<(), Errno> {
        if let Place::Free(free) = self.ring.place_again(record.bytes.len(), self.unread_bytes()) {
            let mut bundle = BundleWriter::new(&self.ring, free);
            bundle.push_raw(&record.bytes);
            return self.try_send_bundle(bundle);
        }
        // The system has no memory for the ring.
        let ends = record.messages().skip(1).map(|(begin, _)| begin).chain([record.bytes.len()]);
        let mut begin = 0;
        for end in ends {
            let bytes = record.bytes[std::mem::replace(&mut begin, end)..end].to_vec();
            self.put_raw(&RawRecord { bytes, descriptors: Vec::new(), is_bundle: false })?;
        }
        Ok(())
    }

    fn try_send(&self, record: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let sent = self.send(record, descriptors);
        if sent == Err(Errno::CONNRESET) {
            self.reset.on_send_reset();
        }
        sent
    }

    /// Waits until the pair polls writable. Only a waiting task registers for that, with a descriptor of its own: otherwise
    /// each read of a program would wake the daemon.
    pub(crate) async fn writable(&self) {
        self.reads().next().await;
    }

    /// Waits until no recall is in progress.
    pub(super) async fn recall_ended(&self) {
        drop(self.gate.read().await);
    }

    /// Stops other records from being put, from taking records back until they are in their pairs.
    pub(super) async fn close_gate(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.gate).write_owned().await
    }

    /// Sends one record of these parts, with descriptors.
    fn send(&self, parts: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.time().measure(|| send_with_descriptors(&self.descriptor, parts, descriptors, flags))
    }

    /// Doubles the send buffer.
    fn double_send_buffer(&self) -> Result<(), Errno> {
        let bytes = sockopt::socket_send_buffer_size(&self.descriptor)?;
        // The kernel doubles the given value, to account for the overhead of records.
        sockopt::set_socket_send_buffer_size(&self.descriptor, bytes)
    }

    /// Limits the pair to few records: associations in a listener's pair are beyond its backlog, and no user is charged for
    /// their descriptors in flight.
    pub(crate) fn minimize_backlog(&self) {
        // The kernel uses its minimum instead. If it refuses, the queue is longer.
        let _ = sockopt::set_socket_send_buffer_size(&self.descriptor, 0);
    }

    /// Ends the output: the program reads the available records, and then the end.
    pub(super) fn end_output(&self) {
        self.shut_down(Shutdown::Write);
    }

    /// Returns a [`Reads`] for a task that waits repeatedly until the socket polls writable.
    pub(super) fn reads(&self) -> Reads {
        let copy = rustix::io::fcntl_dupfd_cloexec(&self.descriptor, 0);
        let copy = copy.and_then(|copy| register(copy, Interest::WRITABLE)).ok();
        let end = Arc::clone(self.descriptor.get_ref());
        Reads(copy.map(|descriptor| Copy { descriptor, _end: end }))
    }
}

/// Notifies about reads of a program.
pub(crate) struct Reads(Option<Copy>);

/// A copy of the daemon's end. It is closed before that end.
struct Copy {
    descriptor: AsyncFd<OwnedFd>,
    _end: Arc<End>,
}

impl Reads {
    /// Waits until the pair polls writable, that is, until less than a quarter of its contents is unread; each later call
    /// waits until the program has read more. Returns at once after the program's end was closed.
    pub(crate) async fn next(&self) {
        match &self.0 {
            Some(copy) => {
                // This fails only when the runtime has ended.
                if let Ok(mut ready) = copy.descriptor.writable().await {
                    // Later reads notify again.
                    ready.clear_ready();
                }
            }
            // No descriptor was free for the copy.
            None => tokio::time::sleep(ROOM_RECHECK_INTERVAL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::closer::{Closers, Source};
    use crate::users::descriptor_budget::DescriptorBudget;

    fn end() -> OwnedFd {
        let kind = SocketType::SEQPACKET;
        rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair").0
    }

    #[tokio::test(flavor = "local")]
    async fn a_throttled_socket_is_shut_down_by_a_thread() {
        let closer = Closers::new(DescriptorBudget::with_max(1 << 16)).of(1, Source::Pairs);
        let (daemon_end, program_end) = open(Arc::clone(&closer), ReceiveRing::alone()).expect("a pair");
        let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
        closer.worker().run(move || goes_on.recv().unwrap_or_default());
        daemon_end.time().throttle_for(Duration::from_secs(60));
        daemon_end.end_output();
        let has_ended = || polls(program_end.as_fd(), PollFlags::RDHUP);
        assert!(!has_ended(), "the thread has other work");
        drop(go_on);
        while !has_ended() {
            tokio::time::sleep(ROOM_RECHECK_INTERVAL).await;
        }
        let (other, program_end) = open(closer, ReceiveRing::alone()).expect("a pair");
        other.end_output();
        assert!(polls(program_end.as_fd(), PollFlags::RDHUP), "it is not throttled");
    }

    #[test]
    fn a_name_that_is_taken_is_passed_over() {
        let (taken, free) = (random_name().expect("random"), random_name().expect("random"));
        let (first, second, third) = (end(), end(), end());
        bind_to_free_name(first.as_fd(), || Ok(taken)).expect("the name is free");
        let mut names = [taken, taken, free].into_iter();
        bind_to_free_name(second.as_fd(), || names.next().ok_or(Errno::RANGE)).expect("the third is free");
        let name = rustix::net::getsockname(&second).expect("it is bound");
        let name = SocketAddrUnix::try_from(name).expect("of AF_UNIX");
        assert_eq!(name.abstract_name(), Some(free.as_bytes()));
        assert_eq!(bind_to_free_name(third.as_fd(), || Ok(taken)), Err(Errno::ADDRINUSE), "it gives up");
    }
}
