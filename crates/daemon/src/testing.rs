//! Helpers of the unit tests of several layers: a registry, sockets without tasks, and messages of programs.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use carrier::record::{Flags, HEADER_BYTES, Header, Kind};
use ring::Put;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use swiftwater::{AssociationOptions, Stack, StackOptions};

use crate::channel::style::Style;
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::state::socket_options::SocketOptions;
use crate::users::descriptor_numbers::Numbers;
use crate::users::limits::Limits;
use crate::users::owner::Owner;

/// Time after which a wait without end is a failure.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Returns a registry over a stack of its own, with default limits.
pub(crate) fn registry() -> Registry {
    let association = AssociationOptions { events: true, ..AssociationOptions::default() };
    let options = StackOptions { udp_port: Some(0), association, ..StackOptions::default() };
    let stack = Stack::bind(&options).expect("a free port");
    Registry::new(stack, false, &Limits::default(), Numbers::with_max(1 << 16)).expect("random numbers")
}

/// Opens a socket without a task; returns the program's end of its channel, too.
pub(crate) fn opened(registry: &Registry, style: Style) -> (Rc<Socket>, OwnedFd) {
    let owner = Owner { user: 1, process: 1 };
    let options = SocketOptions::new(&registry.stack);
    let opened = registry.open(owner, false, style, style.initial_state(), options).expect("a channel");
    (opened.socket, opened.theirs)
}

/// Waits for something that comes.
pub(crate) async fn soon<T>(needed: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, needed).await.expect("it comes")
}

/// Returns the header of a message for the association.
pub(crate) fn header(association: u32, bytes: usize) -> Header {
    Header { association, flags: Flags::END, bytes: bytes as u32, ..Header::new(Kind::Data) }
}

/// Sends a message as the program does.
pub(crate) fn send(theirs: &OwnedFd, association: u32, content: &[u8]) {
    let record = [&header(association, content.len()).encode(), content].concat();
    rustix::net::send(theirs, &record, SendFlags::DONTWAIT).expect("room in the carrier");
}

/// Puts a record into the ring as a program does; returns whether the daemon has to be woken.
pub(crate) fn put_record(socket: &Socket, header: &Header, content: &[u8]) -> bool {
    let memory = socket.channel.page.memory();
    let done = memory.ring().put(HEADER_BYTES + content.len(), |record| {
        record.push(&header.encode());
        record.push(content);
    });
    match done {
        Put::Done { is_reader_asleep } => is_reader_asleep,
        Put::Full | Put::Resting => panic!("the ring takes nothing: {done:?}"),
    }
}

/// Puts a message into the ring.
pub(crate) fn put(socket: &Socket, association: u32, content: &[u8]) -> bool {
    put_record(socket, &header(association, content.len()), content)
}

/// Sends a record without content.
pub(crate) fn send_only(theirs: &OwnedFd, kind: Kind) {
    rustix::net::send(theirs, &Header::new(kind).encode(), SendFlags::DONTWAIT).expect("room in the carrier");
}

/// Sends a message of zeros in a memfd as the program does, without a place among those in the ring.
pub(crate) fn send_long(theirs: &OwnedFd, association: u32, bytes: usize) {
    let header = header(association, bytes);
    send_memfd(theirs, &Header { flags: header.flags.with(Flags::IN_MEMFD), ..header });
}

/// Sends the record of a message of zeros in a memfd.
pub(crate) fn send_memfd(theirs: &OwnedFd, header: &Header) {
    let bytes = header.bytes;
    let memfd = memfd_create("long", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&memfd, bytes.into()).expect("its length");
    fcntl_add_seals(&memfd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW).expect("its seals");
    let descriptors = [memfd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(theirs, &[IoSlice::new(&header.encode())], &mut control, SendFlags::DONTWAIT).expect("room");
}

/// Takes the next record or packet as a program that reads does; `None` if there is none.
pub(crate) fn read(theirs: &OwnedFd) -> Option<Vec<u8>> {
    let mut place = vec![0; 128 * 1024];
    let (_, bytes) = rustix::net::recv(theirs, &mut place[..], RecvFlags::DONTWAIT).ok()?;
    place.truncate(bytes);
    (bytes > 0).then_some(place)
}
