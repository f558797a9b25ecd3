//! Descriptors that programs sent, and the sockets whose queues may contain such descriptors.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown, recv, recvmsg, shutdown,
    sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{CLOSE_WAIT, Closer};
use crate::system::descriptor_io::polls;
use crate::users::descriptor_budget::DescriptorPermit;
use crate::users::division::MESSAGE_DESCRIPTORS_MAX;
use crate::users::thread_time::ThreadTime;

/// Maximum number of records that the daemon's thread takes out of a connection that it closes itself. The largest send
/// buffer that Linux permits unless it is told otherwise (`wmem_max`) holds half as many.
const LEFT_RECORDS_MAX: usize = 1024;

/// Maximum number of descriptors that a peek copies.
const PEEKED_MAX: usize = 2;

/// Interval for rechecking whether a caller that has shut its connection down has received its answer.
const SHUT_RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// A descriptor that was received from a program. If the program has closed its own copy, the daemon's close is the
/// last and may block.
pub(crate) struct ReceivedDescriptor {
    /// Present until closed.
    held: Option<(OwnedFd, DescriptorPermit)>,
    closer: Arc<Closer>,
}

impl ReceivedDescriptor {
    pub(super) fn new(descriptor: OwnedFd, number: DescriptorPermit, closer: Arc<Closer>) -> Self {
        ReceivedDescriptor { held: Some((descriptor, number)), closer }
    }

    /// Closes the descriptor, and waits for a limited time until the close is done: then a program that closes its own
    /// copy after the answer closes the last one.
    pub(crate) async fn closed(mut self) {
        let (closed, is_closed) = oneshot::channel();
        self.close(Some(closed));
        // A stuck close harms only this user.
        let _ = timeout(CLOSE_WAIT, is_closed).await;
    }

    fn close(&mut self, closed: Option<oneshot::Sender<()>>) {
        if let Some((descriptor, number)) = self.held.take() {
            self.closer.close(descriptor, number, closed);
        }
    }
}

impl AsFd for ReceivedDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.as_ref().expect("it is held until it is closed").0.as_fd()
    }
}

impl Drop for ReceivedDescriptor {
    fn drop(&mut self) {
        self.close(None);
    }
}

/// A socket of the daemon to which a program sends: its queue may contain descriptors.
pub(crate) struct End {
    socket: ReceivedDescriptor,
    time: Arc<ThreadTime>,
}

/// The first record of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstRecord {
    None,
    /// No descriptor comes with it.
    Plain,
    WithDescriptors,
}

impl End {
    pub(super) fn new(socket: ReceivedDescriptor, time: Arc<ThreadTime>) -> Self {
        End { socket, time }
    }

    /// Returns whether the program has closed its end and left nothing here.
    pub(crate) fn is_left(&self) -> bool {
        self.peek().is_ok_and(|found| found == (0, false))
    }

    /// Stops further input, and returns whether the queue is empty, or was emptied because the closer is behind.
    pub(super) fn is_finished(&self) -> bool {
        let is_shut_down = self.time.measure(|| shutdown(self, Shutdown::Both)).is_ok();
        is_shut_down
            && (self.front() == FirstRecord::None || self.socket.closer.is_behind() && self.is_emptied())
    }

    /// Takes all records out, up to the first with descriptors, after further input was stopped. Returns
    /// whether the queue is empty.
    fn is_emptied(&self) -> bool {
        for _ in 0..LEFT_RECORDS_MAX {
            match self.front() {
                FirstRecord::None => return true,
                FirstRecord::WithDescriptors => return false,
                FirstRecord::Plain if self.time.is_throttled() => return false,
                // No other task receives from this socket, so this is the record that was peeked at.
                FirstRecord::Plain => {
                    let _ = self.time.measure(|| recv(self, &mut [0_u8; 1][..], RecvFlags::DONTWAIT));
                }
            }
        }
        false
    }

    /// Returns the time that calls on this socket take.
    pub(crate) fn time(&self) -> &ThreadTime {
        &self.time
    }

    /// Finds out about the next record without taking it.
    fn front(&self) -> FirstRecord {
        match self.peek() {
            Err(Errno::AGAIN) => FirstRecord::None,
            Err(_) | Ok((_, true)) => FirstRecord::WithDescriptors,
            Ok((1.., false)) => FirstRecord::Plain,
            // With credentials, every record has control data that finds no room, even an empty one. The end has none.
            Ok((0, false)) => {
                let passes = |on| sockopt::set_socket_passcred(self, on);
                let found = passes(true).and_then(|()| self.peek());
                match found.and_then(|found| passes(false).map(|()| found)) {
                    Ok((0, false)) | Err(Errno::AGAIN) => FirstRecord::None,
                    Ok(_) => FirstRecord::Plain,
                    Err(_) => FirstRecord::WithDescriptors,
                }
            }
        }
    }

    /// Returns the number of bytes that there are of the first byte of the next record, and whether it has control data.
    fn peek(&self) -> Result<(usize, bool), Errno> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (mut byte, mut no_room) = ([0], RecvAncillaryBuffer::default());
        let found = recvmsg(self, &mut [IoSliceMut::new(&mut byte)], &mut no_room, flags)?;
        Ok((found.bytes, found.flags.contains(ReturnFlags::CTRUNC)))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // A closer that is behind would keep the number of each connection for as long as its owner likes: what has no
        // descriptors in its queue is not left to it. The end of a socket wakes all that wait for the program's end,
        // too, so a throttled one is.
        if !self.time.is_throttled() && self.is_finished() {
            // The queue is empty, so this closes only the daemon's socket.
            self.socket.held = None;
        }
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for End {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Waits until a caller closes its connection or sends more, which no shim does. The extra data stays in the kernel's
/// queue, because it may come with descriptors.
pub(crate) async fn gone(connection: &AsyncFd<End>) {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let peek = |end: &End| Ok(rustix::net::recv(end, &mut [0_u8; 1][..], flags)?);
    // An error also means that the caller is gone.
    let _ = connection.async_io(Interest::READABLE, peek).await;
}

/// Waits until a caller has received all that was sent to it, or has closed its connection. A shutdown is no close: the
/// kernel keeps what the caller can still receive. Discards what the caller sends meanwhile, which no shim does: its own end
/// of the connection may be among that, and then no process can receive or close anything.
pub(crate) async fn all_received(connection: &AsyncFd<End>, closer: &Arc<Closer>) {
    tokio::select! {
        () = all_taken(connection) => {}
        () = discard_input(connection, closer) => {}
    }
}

/// Discards what a caller has sent once there is something, and lets it send no more. Never completes.
async fn discard_input(connection: &AsyncFd<End>, closer: &Arc<Closer>) {
    let look = |end: &End| match end.front() {
        FirstRecord::None if !polls(end, PollFlags::RDHUP) => Err(Errno::AGAIN.into()),
        _ => Ok(()),
    };
    // This fails only when the runtime has ended.
    let _ = connection.async_io(Interest::READABLE, look).await;
    let end = connection.get_ref();
    // This fails only if the caller has closed its end.
    let _ = end.time.measure(|| shutdown(end, Shutdown::Read));
    while end.front() != FirstRecord::None {
        closer.room().await;
        end.time.unthrottled().await;
        // An error was the report that the caller has closed its end, and comes once.
        let _ = receive(end, &mut [0], closer, end.time());
        tokio::task::yield_now().await;
    }
    std::future::pending().await
}

async fn all_taken(connection: &AsyncFd<End>) {
    loop {
        // A receive by the caller makes the connection polled writable anew. This fails only when the runtime has ended.
        let Ok(mut ready) = connection.writable().await else { return };
        let is_shut = ready.ready().is_write_closed();
        ready.clear_ready();
        if links::unreceived_bytes(connection.as_fd()).map_or(true, |bytes| bytes <= 1) {
            return;
        }
        if is_shut {
            // It polls writable for ever.
            tokio::time::sleep(SHUT_RECHECK_INTERVAL).await;
        }
    }
}

/// A message that stays in the queue of its socket.
pub(crate) struct Peeked {
    /// Length of the message.
    pub(crate) bytes: usize,
    /// Copies of its first descriptors, up to [`PEEKED_MAX`].
    pub(crate) descriptors: Vec<ReceivedDescriptor>,
    /// Whether the message has more descriptors.
    pub(crate) has_more: bool,
}

/// A message that was taken from its socket.
pub(crate) struct ReceivedMessage {
    /// Length of the message.
    pub(crate) bytes: usize,
    pub(crate) descriptors: Vec<ReceivedDescriptor>,
}

/// Peeks at a message and its first descriptors, whose copies `closer` closes. The caller has checked that there is room for
/// them.
pub(crate) fn peek(socket: impl AsFd, closer: &Arc<Closer>, time: &ThreadTime) -> Result<Peeked, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PEEKED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // With `TRUNC` the kernel returns the length of the message, although there is no room for its content.
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT | RecvFlags::PEEK | RecvFlags::TRUNC;
    let peek = || recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut control, flags);
    let found = time.measure(peek)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(copies) = message {
            descriptors.extend(copies.map(|descriptor| closer.take_over(descriptor)));
        }
    }
    Ok(Peeked { bytes: found.bytes, descriptors, has_more: found.flags.contains(ReturnFlags::CTRUNC) })
}

/// Receives a message with all its descriptors, which `closer` closes. The caller has checked that there is room for them.
pub(crate) fn receive(
    socket: impl AsFd,
    place: &mut [u8],
    closer: &Arc<Closer>,
    time: &ThreadTime,
) -> Result<ReceivedMessage, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let receive = || recvmsg(socket, &mut [IoSliceMut::new(place)], &mut control, flags);
    let received = time.measure(receive)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received.map(|descriptor| closer.take_over(descriptor)));
        }
    }
    Ok(ReceivedMessage { bytes: received.bytes, descriptors })
}
