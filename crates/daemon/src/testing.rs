//! Helpers of the unit tests of several layers: a registry, sockets without tasks, and messages of programs.

use std::cell::RefCell;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use channel_protocol::assoc_id::AssocId;
use channel_protocol::record::{Flags, HEADER_BYTES, Header, Kind, Sequence};
use ring::{PutOutcome, Ring, Writer};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use shared_memory::OfferedMapping;
use swiftwater::tokio::{Association, Listener, Stack};
use swiftwater::{Address, AssociationOptions, StackOptions};

use crate::channel::shared_pages::Memory;
use crate::channel::style::Style;
use crate::state::association::SocketAssociation;
use crate::state::registry::{Opened, Registry};
use crate::state::socket::Socket;
use crate::state::socket_options::SocketOptions;
use crate::system::addresses::Family;
use crate::users::descriptor_budget::DescriptorBudget;
use crate::users::limits::Limits;
use crate::users::owner::Owner;
use crate::users::resources::Resources;
use crate::users::worker::{WORKERS_MAX, Worker};

/// Time after which a wait without end is a failure.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20);
/// Pause between two checks of [`until`].
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// The number of the association of a test that has only one.
pub(crate) const ID: AssocId = AssocId::FIRST;

const MESSAGE_BYTES: usize = 50_000;
/// More than the receive buffer holds, and no more than both buffers hold.
const MESSAGES_BEYOND_WINDOW: usize = 30;

/// Returns a registry over a stack of its own, with default limits.
pub(crate) fn registry() -> Registry {
    registry_with(&Limits::default())
}

/// Returns a registry over a stack of its own.
pub(crate) fn registry_with(limits: &Limits) -> Registry {
    let association = AssociationOptions::default().with_events(true);
    let options = StackOptions::default().with_udp_port(0).with_association(association);
    let stack = Stack::bind(&options).expect("a free port");
    Registry::new(stack, false, Resources::new(limits, DescriptorBudget::with_max(1 << 16)))
        .expect("random numbers")
}

/// Returns the address of a listener on port 7 of the registry's stack.
pub(crate) fn server_address(registry: &Registry) -> Address {
    Address { hosts: vec![Ipv4Addr::LOCALHOST.into()], port: 7, udp_port: Some(registry.stack().udp_port()) }
}

/// Opens a socket without a task; returns the program's end of its channel, too.
pub(crate) fn opened(registry: &Registry, style: Style) -> (Rc<Socket>, OwnedFd) {
    let opened = opened_whole(registry, style);
    (opened.socket, opened.program_end)
}

/// Opens an IPv6 socket without a task, as [`opened`] does.
pub(crate) fn opened_v6(registry: &Registry, style: Style) -> (Rc<Socket>, OwnedFd) {
    let opened = opened_of(registry, Family::V6, style);
    (opened.socket, opened.program_end)
}

/// Opens a socket; returns what its task needs, too.
pub(crate) fn opened_whole(registry: &Registry, style: Style) -> Opened {
    opened_of(registry, Family::V4, style)
}

fn opened_of(registry: &Registry, family: Family, style: Style) -> Opened {
    let owner = Owner { user: 1, process: 1 };
    let options = SocketOptions::new(registry.stack());
    registry.open(owner, family, style, style.initial_state(), options).expect("a channel")
}

/// Opens a one-to-one socket with an association. Returns the other end of that, too.
pub(crate) async fn connected_socket(registry: &Registry, listener: &Listener) -> (Rc<Socket>, Association) {
    let (connected, accepted) =
        tokio::join!(registry.stack().connect(server_address(registry)), listener.accept());
    let (peer, _) = accepted.expect("an association comes");
    let (socket, _program_end) = opened(registry, Style::OneToOne);
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);
    let assoc = Rc::new(SocketAssociation::new(ID, address, socket.future_options()));
    socket.on_connecting(&assoc, None);
    socket.on_connected(1);
    assoc.set_up(connected.expect("it listens"));
    (socket, peer)
}

/// Closes a socket as its program does, after it has sent more than the peer, which reads nothing, has room for if `sends`.
/// Returns the other end of its association.
pub(crate) async fn closed_socket(registry: &Registry, listener: &Listener, sends: bool) -> Association {
    let (socket, peer) = connected_socket(registry, listener).await;
    if sends {
        send_beyond_window(&socket).await;
    }
    registry.forget(&socket);
    peer
}

/// Sends more on the only association of a socket than the peer, which reads nothing, has room for.
pub(crate) async fn send_beyond_window(socket: &Socket) {
    let assoc = socket.associations().first().expect("its only one");
    let association = assoc.stack_association().expect("it is up");
    for _ in 0..MESSAGES_BEYOND_WINDOW {
        soon(association.send(&[7; MESSAGE_BYTES])).await.expect("there is room");
    }
}

/// Waits for something that comes.
pub(crate) async fn soon<T>(needed: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_MAX, needed).await.expect("it comes")
}

/// Polls a condition that notifies no task until it holds. A failure names what was `awaited`.
pub(crate) async fn until(awaited: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + WAIT_MAX;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {awaited}");
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Keeps all threads of a user busy until the result is dropped: work that is queued meanwhile begins later.
pub(crate) fn keep_busy(worker: &Worker) -> Vec<mpsc::Sender<()>> {
    let keep_one_busy = |_| {
        let (end_it, ends) = mpsc::channel::<()>();
        worker.run(move || ends.recv().unwrap_or_default());
        end_it
    };
    (0..WORKERS_MAX).map(keep_one_busy).collect()
}

/// Returns the header of a message for the association.
pub(crate) fn header(assoc_id: AssocId, bytes: usize) -> Header {
    Header { assoc_id, flags: Flags::END, bytes: bytes as u32, ..Header::new(Kind::Data) }
}

/// Sends a message as the program does.
pub(crate) fn send(program_end: &OwnedFd, assoc_id: AssocId, content: &[u8]) {
    let record = [&header(assoc_id, content.len()).encode(), content].concat();
    rustix::net::send(program_end, &record, SendFlags::DONTWAIT).expect("room in the pair");
}

/// The ring of a socket's program, and the last sleep of the daemon that it has ended.
type ProgramRing = (OfferedMapping, Option<NonZeroU32>);

thread_local! {
    /// The rings of sockets, with the pages to which they belong.
    static RINGS: RefCell<Vec<(Arc<Memory>, ProgramRing)>> = RefCell::default();
}

/// Runs `f` with the ring of a socket's program. The first call makes it, and the daemon is awake for it.
fn with_ring<R>(socket: &Socket, f: impl FnOnce(Writer<'_>, &mut Option<NonZeroU32>) -> R) -> R {
    let memory = socket.channel().shared_pages().memory();
    RINGS.with_borrow_mut(|rings| {
        if !rings.iter().any(|(of, _)| Arc::ptr_eq(of, &memory)) {
            let offered = OfferedMapping::new("ring", ring::WORDS).expect("memory");
            socket.channel().join_ring(&offered);
            rings.push((Arc::clone(&memory), (offered, None)));
        }
        let mut rings = rings.iter_mut();
        let (_, (offered, ended)) = rings.find(|(of, _)| Arc::ptr_eq(of, &memory)).expect("it was made");
        f(Writer::new(Ring::new(offered.words_u64(), memory.reader_words())), ended)
    })
}

/// Runs `f` with the ring of a socket's program.
pub(crate) fn with_writer<R>(socket: &Socket, f: impl FnOnce(Writer<'_>) -> R) -> R {
    with_ring(socket, |writer, _| f(writer))
}

/// Puts a record into the ring as a program does; returns whether the daemon has to be woken.
pub(crate) fn put_record(socket: &Socket, header: &Header, content: &[u8]) -> bool {
    with_ring(socket, |writer, ended| {
        let done = writer.put(HEADER_BYTES + content.len(), |record| {
            record.push(&header.encode());
            record.push(content);
        });
        let PutOutcome::Done { sleep } = done else { panic!("the ring is full") };
        sleep.is_some() && ended.replace(sleep.unwrap_or(NonZeroU32::MAX)) != sleep
    })
}

/// Announces a ring as a program does.
pub(crate) fn announce(program_end: &OwnedFd, number: u32, memfd: impl AsFd) {
    let header = Header { sequence: Sequence::ring(number), ..Header::new(Kind::Ring) };
    send_with(program_end, &header.encode(), &[memfd]);
}

/// Puts a message into the ring.
pub(crate) fn put(socket: &Socket, assoc_id: AssocId, content: &[u8]) -> bool {
    put_record(socket, &header(assoc_id, content.len()), content)
}

/// Sends a record without content.
pub(crate) fn send_only(program_end: &OwnedFd, kind: Kind) {
    rustix::net::send(program_end, &Header::new(kind).encode(), SendFlags::DONTWAIT)
        .expect("room in the pair");
}

/// Sends a message of zeros in a memfd as the program does, without a place among those in the ring.
pub(crate) fn send_long(program_end: &OwnedFd, assoc_id: AssocId, bytes: usize) {
    let header = header(assoc_id, bytes);
    send_memfd(program_end, &Header { flags: header.flags.with(Flags::IN_MEMFD), ..header });
}

/// Sends the record of a message of zeros in a memfd.
pub(crate) fn send_memfd(program_end: &OwnedFd, header: &Header) {
    let bytes = header.bytes;
    let memfd = memfd_create("long", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&memfd, bytes.into()).expect("its length");
    fcntl_add_seals(&memfd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW).expect("its seals");
    send_with(program_end, &header.encode(), &[memfd]);
}

/// Sends a record of these bytes, with descriptors.
pub(crate) fn send_with(program_end: &OwnedFd, record: &[u8], descriptors: &[impl AsFd]) {
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(program_end, &[IoSlice::new(record)], &mut control, SendFlags::DONTWAIT).expect("room");
}

/// Takes the next record, with the messages of a bundle in its place, as a program that reads does; `None` if there is none.
pub(crate) fn read_bundled(socket: &Socket, program_end: &OwnedFd) -> Option<Vec<u8>> {
    let record = read(program_end)?;
    Some(socket.channel().daemon_end().bundle_of(&record).unwrap_or(record))
}

/// Takes the next record or packet as a program that reads does; `None` if there is none.
pub(crate) fn read(program_end: &OwnedFd) -> Option<Vec<u8>> {
    let mut place = vec![0; 128 * 1024];
    let (_, bytes) = rustix::net::recv(program_end, &mut place[..], RecvFlags::DONTWAIT).ok()?;
    place.truncate(bytes);
    (bytes > 0).then_some(place)
}
