//! One-to-many sockets: one carrier for any number of associations.
//!
//! The carrier is always read, so that one association whose peer is slow keeps none of the others waiting. What is sent waits
//! in an [`Outbox`] for each; the page tells the program how much that is, and it sends no more than there is room for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use carrier::record::{Flags, Header};
use carrier::request::Start;
use rustix::io::Errno;
use swiftwater::tokio::{Association, Listener};
use swiftwater::{Address, Stack};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{self, JoinHandle};

use crate::addresses::as_seen;
use crate::budget::Seat;
use crate::errno;
use crate::life::Turn;
use crate::line::Intake;
use crate::log;
use crate::member::Member;
use crate::notify;
use crate::outbox::Outbox;
use crate::pump::{self, Waiting};
use crate::quantum::{Quantum, RECORDS_PER_TURN};
use crate::socket::{Socket, Sockets};

/// How long an association may still take to be set up when its program has closed the socket: two lost INITs.
const SETUP_AFTER_CLOSE: Duration = Duration::from_secs(5);

/// How an association comes to be.
pub(crate) enum Origin {
    Accepted(Association),
    Connecting { stack: Stack, port: u16, server: Address, start: Start },
}

/// What a one-to-many socket does until the program has closed it.
pub(crate) async fn live(sockets: &Arc<Sockets>, socket: &Arc<Socket>, turns: &mut UnboundedReceiver<Turn>) {
    let mut listener = None;
    let mut quantum = Quantum::new();
    let (mut stalled, mut closed) = (false, false);
    loop {
        let mut several = Taken { weight: 1, ..Taken::default() };
        tokio::select! {
            taken = socket.line.take(), if !stalled => several = take_on(socket, taken),
            () = socket.line.room(), if stalled => stalled = false,
            // What was sent before that may wait for memory.
            () = socket.line.closed(), if stalled && !closed => {
                closed = true;
                several.left = close_early(socket);
            }
            turn = turns.recv() => match turn {
                Some(Turn::Listen(new)) => listener = Some(new),
                Some(Turn::Unlisten) => listener = None,
                Some(Turn::Connect { .. } | Turn::Carry { .. }) => {}
                None => several.left = Some(false),
            },
            accepted = next(&mut listener) => accept(sockets, socket, accepted),
        }
        stalled |= several.stalled;
        if let Some(unread) = several.left {
            return close(socket, unread).await;
        }
        quantum.spend(several.weight).await;
    }
}

/// The program has closed its socket, and not all that it has sent could be taken yet. Says whether that is given up: whether a
/// message was unread.
fn close_early(socket: &Arc<Socket>) -> Option<bool> {
    let unread = socket.has_unread_data();
    if unread || !socket.lock().settings.lingers() {
        return Some(unread);
    }
    let members: Vec<Arc<Member>> = socket.lock().members.values().cloned().collect();
    for member in members {
        let outbox = member.outbox().clone();
        if let Some(outbox) = outbox.filter(|_| member.association().is_none()) {
            set_up_soon(socket, member, outbox);
        }
    }
    None
}

/// Gives an association up that is not set up soon. Its program has closed the socket; the kernel gives it up at once.
fn set_up_soon(socket: &Arc<Socket>, member: Arc<Member>, outbox: Arc<Outbox>) {
    let socket = Arc::downgrade(socket);
    tokio::spawn(async move {
        if tokio::time::timeout(SETUP_AFTER_CLOSE, member.set_up_ended()).await.is_err() {
            if let Some(socket) = socket.upgrade() {
                forget(&socket, &member);
            }
            // What waits is given up with it.
            drop(outbox.stop().await);
        }
    });
}

/// The next association that a peer has set up.
async fn next(listener: &mut Option<Arc<Listener>>) -> Association {
    if let Some(listening) = listener {
        match listening.accept().await {
            Ok((association, _)) => return association,
            Err(error) => {
                log(format_args!("a listener has failed: {error}"));
                *listener = None;
            }
        }
    }
    std::future::pending().await
}

fn accept(sockets: &Arc<Sockets>, socket: &Arc<Socket>, association: Association) {
    let peer = as_seen(socket.v6, association.peer_addr());
    let account = socket.line.sent_account();
    let Some(seat) = account.seat(sockets.limits.user_associations) else {
        account.refuse();
        return pump::abort(&association, "the server has as many associations as it may");
    };
    begin(sockets, socket, peer, (Origin::Accepted(association), seat));
}

/// Adds an association to a one-to-many socket, with the place that it takes among those of its user.
pub(crate) fn begin(
    sockets: &Arc<Sockets>,
    socket: &Arc<Socket>,
    peer: SocketAddr,
    (origin, seat): (Origin, Seat),
) -> Arc<Member> {
    let tuning = socket.lock().settings.tuning.clone();
    let member = Arc::new(Member::new(sockets.next_association(), peer, tuning));
    let streams_out = match &origin {
        Origin::Accepted(association) => association.streams_out(),
        // The peer may take fewer.
        Origin::Connecting { stack, .. } => stack.options().association.streams_out,
    };
    member.take_seat(seat);
    let outbox = Arc::new(Outbox::new(socket.page.enter(member.id, streams_out, &peer)));
    *member.outbox() = Some(Arc::clone(&outbox));
    {
        let mut inner = socket.lock();
        inner.members.insert(member.id, Arc::clone(&member));
        inner.heard += 1;
        socket.page.set_members(inner.heard);
    }
    socket.show_default_stream(&member);
    let task = tokio::spawn(live_on(Arc::clone(socket), Arc::clone(&member), Arc::clone(&outbox), origin));
    outbox.tasks().push(task);
    member
}

/// Sets an association up and sends what is for it.
async fn live_on(socket: Arc<Socket>, member: Arc<Member>, outbox: Arc<Outbox>, origin: Origin) {
    if let Origin::Connecting { start: Start::WithMessage, .. } = origin
        && outbox.front(|| {}).await.is_none()
    {
        // The program is gone before it has sent it.
        return;
    }
    let association = match set_up(origin).await {
        Ok(association) => association,
        Err(error) => return cannot_start(&socket, &member, &outbox, error).await,
    };
    if let Some(place) = outbox.place {
        socket.page.set_entry_streams_out(place, association.streams_out());
    }
    member.set_up(association.clone());
    socket.tune(&member);
    if !outbox.is_closed() {
        let upward = tokio::spawn(end_after(Arc::clone(&socket), Arc::clone(&member)));
        outbox.tasks().push(upward);
    }
    let mut quantum = Quantum::new();
    // What waits while nothing more comes leaves at once.
    while let Some((header, content)) = outbox.front(|| association.flush()).await {
        let header = pump::completed(&member, header);
        // An association that takes no more is asked on: its program hears of each message, and never waits for room.
        if pump::pass_on(&association, &header, content.clone()).await.is_err() {
            pump::tell_unsent(&socket, &member, &header, content).await;
        }
        outbox.pop(&socket.page);
        quantum.spend(1).await;
    }
}

async fn set_up(origin: Origin) -> Result<Association, Errno> {
    match origin {
        Origin::Accepted(association) => Ok(association),
        Origin::Connecting { stack, port, server, .. } => {
            let outcome = Association::connect_from(&stack, port, &server).await;
            outcome.map_err(|error| errno::of_connect(&error))
        }
    }
}

async fn cannot_start(socket: &Arc<Socket>, member: &Member, outbox: &Outbox, error: Errno) {
    forget(socket, member);
    member.set_failed(error);
    pump::tell(socket, notify::cannot_start(member)).await;
    give_back(socket, member, outbox).await;
    silent(socket);
}

/// What waits for an association that is gone was not sent, and the program may want to know.
async fn give_back(socket: &Arc<Socket>, member: &Member, outbox: &Outbox) {
    let waiting = outbox.take();
    let mut quantum = Quantum::new();
    for (header, data) in waiting {
        quantum.spend(1).await;
        pump::tell_unsent(socket, member, &pump::completed(member, header), data).await;
    }
}

async fn end_after(socket: Arc<Socket>, member: Arc<Member>) {
    pump::up(&socket, &member, |_| drop(forget(&socket, &member))).await;
    silent(&socket);
}

/// Nothing more comes of one of the associations.
fn silent(socket: &Socket) {
    let mut inner = socket.lock();
    inner.heard = inner.heard.saturating_sub(1);
    socket.page.set_members(inner.heard);
}

/// The socket has the association no more.
fn forget(socket: &Socket, member: &Member) -> Option<Arc<Outbox>> {
    socket.lock().members.remove(&member.id);
    let outbox = member.outbox().take()?;
    if let Some(place) = outbox.place {
        socket.page.leave(place);
    }
    outbox.close();
    Some(outbox)
}

/// Takes an association away from its socket, with what waits to be sent.
pub(crate) async fn take_off(socket: &Socket, member: &Member) -> Waiting {
    match forget(socket, member) {
        Some(outbox) => {
            silent(socket);
            outbox.stop().await
        }
        None => Waiting::new(),
    }
}

/// Takes what the program has sent before it asks for something, so that this comes first. Records sent meanwhile do not count:
/// a program that sends without pause would never be answered. Returns false if records stay because the user's memory is used up.
pub(crate) async fn drain(socket: &Socket) -> bool {
    let mut left_bytes = socket.line.waiting_bytes();
    while left_bytes > 0 {
        let taken = take_several(socket);
        // The end is there for every reader, again and again, as is a broken carrier: the task of the socket takes it.
        if taken.left == Some(true) {
            socket.line.tell_reset_again();
        }
        if taken.records == 0 || taken.left.is_some() {
            return !taken.stalled;
        }
        left_bytes = left_bytes.saturating_sub(taken.bytes);
        task::yield_now().await;
    }
    true
}

/// What was taken from a carrier in one turn.
#[derive(Default)]
struct Taken {
    records: usize,
    /// What these records count for in a turn.
    weight: usize,
    /// The length of these records.
    bytes: u64,
    /// There is more, and no memory for it.
    stalled: bool,
    /// How the program has left, if it has: whether a message was unread.
    left: Option<bool>,
}

/// Goes on with what was taken from a carrier.
fn take_on(socket: &Socket, first: Result<Intake, Errno>) -> Taken {
    let first_weight = first.as_ref().map_or(1, Intake::weight);
    let left = match first {
        Ok(taken) => dispatch(socket, taken),
        Err(Errno::NOBUFS) => return Taken { stalled: true, ..Taken::default() },
        Err(_) => Some(false),
    };
    if left.is_some() {
        return Taken { left, ..Taken::default() };
    }
    let several = take_several(socket);
    Taken { records: several.records + 1, weight: several.weight + first_weight, ..several }
}

/// Takes what the program has sent, at most as much as one turn allows.
fn take_several(socket: &Socket) -> Taken {
    let mut several = Taken::default();
    while several.weight < RECORDS_PER_TURN && several.left.is_none() {
        let taken = match socket.line.try_take() {
            Ok(taken) => taken,
            Err(error) => {
                several.stalled = error == Errno::NOBUFS;
                break;
            }
        };
        several.records += 1;
        several.weight += taken.weight();
        several.bytes += taken.record_bytes();
        several.left = dispatch(socket, taken);
    }
    several
}

/// Says how the program has left, if it has: whether a message was unread.
fn dispatch(socket: &Socket, taken: Intake) -> Option<bool> {
    match taken {
        Intake::Filler | Intake::Empty => None,
        Intake::Message(header, content) => {
            let member = socket.lock().members.get(&header.association).cloned();
            // What is sent into an association that is gone is lost, as in the kernel.
            if let Some(member) = member {
                hand_over(socket, &member, header, content);
            }
            None
        }
        Intake::Malformed => {
            log(format_args!("a program writes something else than records to its socket"));
            Some(true)
        }
        Intake::Unread => socket.has_unread_data().then_some(true),
        Intake::End => Some(false),
    }
}

fn hand_over(socket: &Socket, member: &Member, header: Header, content: Bytes) {
    if header.flags.contains(Flags::ABORT) {
        if let Some(association) = member.association() {
            pump::abort(association, &String::from_utf8_lossy(&content));
            forget(socket, member);
        }
        return;
    }
    let outbox = member.outbox().clone();
    if outbox.is_some_and(|outbox| !outbox.push(header, content))
        && let Some(association) = member.association()
    {
        log(format_args!("a program sends more than there is room for"));
        pump::abort(association, "the program has sent more than there is room for");
    }
}

/// The program has closed the socket. What was sent is delivered, and each association shut down, when its last handle is
/// dropped.
async fn close(socket: &Arc<Socket>, unread: bool) {
    let (members, lingers) = {
        let mut inner = socket.lock();
        (std::mem::take(&mut inner.members), inner.settings.lingers())
    };
    let aborts = unread || !lingers;
    let mut quantum = Quantum::new();
    for member in members.into_values() {
        quantum.spend(1).await;
        let Some(outbox) = member.outbox().take() else { continue };
        outbox.close();
        let tasks = std::mem::take(&mut *outbox.tasks());
        // The first sends what waits; the other has nobody to hand anything to.
        tasks.iter().skip(1).for_each(JoinHandle::abort);
        match member.association() {
            None if !aborts => {
                outbox.tasks().extend(tasks);
                set_up_soon(socket, member, outbox);
            }
            _ if !aborts => {}
            Some(association) => pump::abort(association, pump::NO_REASON),
            // Given up, it is not set up.
            None => tasks.iter().for_each(JoinHandle::abort),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use carrier::record::Kind;
    use rustix::net::SendFlags;
    use swiftwater::StackOptions;

    use super::*;
    use crate::limits::Limits;
    use crate::numbers::Numbers;
    use crate::options::Settings;
    use crate::owner::Owner;
    use crate::quantum::BYTES_PER_TURN;
    use crate::socket::Style;

    /// A wait that has no end is a failure after this time.
    const END_FOUND_WITHIN: Duration = Duration::from_secs(20);

    /// A one-to-many socket, with the program's end of its carrier.
    fn opened() -> (Arc<Sockets>, Arc<Socket>, OwnedFd) {
        let stack =
            Stack::bind(&StackOptions { udp_port: Some(0), ..StackOptions::default() }).expect("a free port");
        let sockets = Arc::new(
            Sockets::new(stack, false, &Limits::default(), Numbers::with_max(1 << 16))
                .expect("random numbers"),
        );
        let (style, settings) = (Style::OneToMany, Settings::new(&sockets.stack));
        let owner = Owner { user: 1, process: 1 };
        let opened = sockets.open(owner, false, style, style.first_stage(), settings);
        let (socket, theirs) = opened.expect("a carrier");
        (sockets, socket, theirs)
    }

    /// Sends a record for an association that there is not.
    fn send_one(theirs: &OwnedFd) {
        let record = Header { association: 77, ..Header::new(Kind::Data) }.encode();
        rustix::net::send(theirs, &record, SendFlags::DONTWAIT).expect("room in the carrier");
    }

    #[tokio::test]
    async fn others_run_while_all_is_taken_that_a_program_has_sent() {
        let (_sockets, socket, theirs) = opened();
        (0..4 * RECORDS_PER_TURN).for_each(|_| send_one(&theirs));
        let turns = Arc::new(AtomicUsize::new(0));
        let sends_without_pause = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move {
                loop {
                    // As many as the daemon takes in a turn: its carrier is never empty.
                    (0..RECORDS_PER_TURN).for_each(|_| send_one(&theirs));
                    turns.fetch_add(1, Relaxed);
                    task::yield_now().await;
                }
            }
        });
        // It ends although there is always more.
        let drained = tokio::time::timeout(END_FOUND_WITHIN, drain(&socket)).await;
        assert_eq!(drained, Ok(true));
        let turns = turns.load(Relaxed);
        assert!((1..=4).contains(&turns), "the neighbour had {turns} turns");
        sends_without_pause.abort();
    }

    #[tokio::test]
    async fn requests_that_take_from_a_carrier_together_find_its_end() {
        let (_sockets, socket, theirs) = opened();
        (0..2 * RECORDS_PER_TURN).for_each(|_| send_one(&theirs));
        rustix::net::shutdown(&theirs, rustix::net::Shutdown::Write).expect("it is open");
        // The first waits for records that the second takes. It must not wait for them for ever.
        let both = async { tokio::join!(drain(&socket), drain(&socket)) };
        assert_eq!(tokio::time::timeout(END_FOUND_WITHIN, both).await, Ok((true, true)));
    }

    #[tokio::test]
    async fn a_request_before_which_a_program_breaks_its_carrier_hides_nothing_from_its_task() {
        let (_sockets, socket, theirs) = opened();
        // It begins as a record does, and ends before its header does.
        let broken = &Header::new(Kind::Data).encode()[..8];
        rustix::net::send(&theirs, broken, SendFlags::DONTWAIT).expect("room in the carrier");
        drain(&socket).await;
        let found = tokio::time::timeout(END_FOUND_WITHIN, socket.line.take()).await.expect("it is told");
        assert!(matches!(found, Ok(Intake::Malformed)), "{found:?}");
    }

    #[tokio::test]
    async fn others_run_while_a_socket_with_many_associations_is_closed() {
        let (_sockets, socket, _theirs) = opened();
        for id in 0..4 * RECORDS_PER_TURN as u32 {
            let member =
                Member::new(id, SocketAddr::from(([127, 0, 0, 1], 1)), socket.lock().settings.tuning.clone());
            *member.outbox() = Some(Arc::new(Outbox::new(None)));
            socket.lock().members.insert(id, Arc::new(member));
        }
        let turns = Arc::new(AtomicUsize::new(0));
        let neighbour = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move {
                loop {
                    turns.fetch_add(1, Relaxed);
                    task::yield_now().await;
                }
            }
        });
        close(&socket, true).await;
        let turns = turns.load(Relaxed);
        assert!((3..=5).contains(&turns), "the neighbour had {turns} turns");
        neighbour.abort();
    }

    /// Sends a message of so many bytes in a memfd, for an association that there is not.
    fn send_long(theirs: &OwnedFd, bytes: usize) {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};

        let memfd = memfd_create("long", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
        ftruncate(&memfd, bytes as u64).expect("its length");
        fcntl_add_seals(&memfd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW).expect("its seals");
        let flags = Flags::default().with(Flags::IN_MEMFD);
        let header = Header { association: 77, bytes: bytes as u32, flags, ..Header::new(Kind::Data) };
        let descriptors = [memfd.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(theirs, &[IoSlice::new(&header.encode())], &mut control, SendFlags::DONTWAIT).expect("room");
    }

    #[tokio::test]
    async fn a_turn_ends_after_so_many_bytes_too() {
        let (_sockets, socket, theirs) = opened();
        (0..3).for_each(|_| send_long(&theirs, BYTES_PER_TURN));
        let records = [(); 4].map(|()| take_several(&socket).records);
        assert_eq!(records, [1, 1, 1, 0]);
    }

    #[tokio::test]
    async fn one_turn_takes_so_many_records() {
        let (_sockets, socket, theirs) = opened();
        (0..2 * RECORDS_PER_TURN).for_each(|_| send_one(&theirs));
        let records = [(); 3].map(|()| take_several(&socket).records);
        assert_eq!(records, [RECORDS_PER_TURN, RECORDS_PER_TURN, 0]);
    }

    #[tokio::test]
    async fn a_record_of_no_bytes_is_not_the_end() {
        let (_sockets, socket, theirs) = opened();
        let send_nothing =
            || rustix::net::send(&theirs, &[], SendFlags::DONTWAIT).expect("room in the carrier");
        send_nothing();
        send_one(&theirs);
        let taken = take_several(&socket);
        assert_eq!((taken.records, taken.left), (2, None));
        send_nothing();
        assert!(socket.line.discard() && !socket.line.discard());
        // Nor is it if the end is behind it.
        send_nothing();
        send_one(&theirs);
        drop(theirs);
        let taken = take_several(&socket);
        assert_eq!((taken.records, taken.left), (3, Some(false)));
    }

    #[tokio::test]
    async fn an_association_that_takes_no_more_keeps_no_program_waiting_for_room() {
        use carrier::page::ROOM_BYTES;

        let (sockets, socket, _theirs) = opened();
        let listener = Listener::from(sockets.stack.listen(7).expect("a free port"));
        let host = std::net::IpAddr::from([127, 0, 0, 1]);
        let server = Address { hosts: vec![host], port: 7, udp_port: Some(sockets.stack.udp_port()) };
        let (stack, start) = (sockets.stack.clone(), Start::Now);
        let origin = Origin::Connecting { stack, port: 40_000, server, start };
        let seat = socket.line.sent_account().seat(1).expect("the first");
        let member = begin(&sockets, &socket, SocketAddr::new(host, 7), (origin, seat));
        let (peer, _) = listener.accept().await.expect("somebody comes");
        member.set_up_ended().await;
        // What the peer has sent cannot be handed up. So the socket has the association after its end, too.
        let delivery = socket.delivery.lock().await;
        peer.send(b"a word").await.expect("it is up");
        peer.abort("");
        member.association().expect("it is up").closed().await;
        let outbox = member.outbox().clone().expect("it has not been forgotten");
        let content = Bytes::from(vec![0; ROOM_BYTES as usize]);
        for _ in 0..2 {
            assert!(outbox.push(Header::new(Kind::Data), content.clone()));
            tokio::time::timeout(END_FOUND_WITHIN, outbox.room()).await.expect("there is room again");
        }
        assert!(!outbox.is_closed());
        drop(delivery);
    }
}
