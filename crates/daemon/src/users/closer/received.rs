//! Descriptors that programs sent, and the sockets whose queues may contain such descriptors.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown, recvmsg, shutdown, sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{CLOSE_WAIT, Closer, Item, Load};
use crate::users::descriptor_numbers::{MESSAGE_DESCRIPTORS_MAX, Taken};

/// A descriptor that was received from a program. If the program has closed its own copy, the daemon's close is the
/// last and may block.
pub(crate) struct ReceivedDescriptor {
    /// Present until closed.
    held: Option<(OwnedFd, Taken)>,
    closer: Arc<Closer>,
}

impl ReceivedDescriptor {
    pub(super) fn new(descriptor: OwnedFd, number: Taken, closer: Arc<Closer>) -> Self {
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
            self.closer.push(Load { item: Item::Descriptor(descriptor, number), closed });
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
pub(crate) struct End(ReceivedDescriptor);

impl End {
    pub(super) fn new(socket: ReceivedDescriptor) -> Self {
        End(socket)
    }

    /// Returns whether the program has closed its end and left nothing here.
    pub(crate) fn is_left(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (mut byte, mut no_room) = ([0], RecvAncillaryBuffer::default());
        let found = recvmsg(self, &mut [IoSliceMut::new(&mut byte)], &mut no_room, flags);
        found.is_ok_and(|found| found.bytes == 0 && !found.flags.contains(ReturnFlags::CTRUNC))
    }

    /// Stops further input, and returns whether the queue is empty.
    pub(super) fn is_finished(&self) -> bool {
        // With credentials, every message has control data that finds no room here, even an empty message.
        let told = sockopt::set_socket_passcred(self, true).and_then(|()| shutdown(self, Shutdown::Both));
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (mut byte, mut no_room) = ([0], RecvAncillaryBuffer::default());
        let found = told.and_then(|()| recvmsg(self, &mut [IoSliceMut::new(&mut byte)], &mut no_room, flags));
        match found {
            Ok(found) => found.bytes == 0 && !found.flags.contains(ReturnFlags::CTRUNC),
            Err(error) => error == Errno::AGAIN,
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.is_finished() {
            // The queue is empty, so this closes only the daemon's socket.
            self.0.held = None;
        }
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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

/// Receives a message with all its descriptors. The caller has checked that there is room for them.
pub(crate) fn receive(
    socket: impl AsFd,
    place: &mut [u8],
    closer: &Arc<Closer>,
) -> Result<(usize, Vec<ReceivedDescriptor>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(place)], &mut control, flags)?;
    let mut received_descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            received_descriptors.extend(descriptors.map(|descriptor| closer.take_over(descriptor)));
        }
    }
    Ok((received.bytes, received_descriptors))
}
