//! Messages between a carrier and its association.
//!
//! Down: the carrier is read only while the association has room, so that the kernel tells the program when it may send.
//! Up: the association is read only while the carrier has room, so that the peer's window closes when the program is slow.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use carrier::page::{PeerShut, State};
use carrier::record::{BUNDLE_BYTES_MAX, Flags, Header, Kind};
use rustix::io::Errno;
use swiftwater::tokio::Association;
use swiftwater::{Event, LossKind, Message, PathId, Received, RecvError, SendError, SendInfo, internals};
use tokio::sync::MutexGuard;
use tokio::task::JoinHandle;

use crate::errno;
use crate::form::Put;
use crate::line::Intake;
use crate::log;
use crate::member::{Held, Member, Upward};
use crate::notify::{self, Type};
use crate::quantum::{self, Quantum};
use crate::socket::{Socket, Style};
use crate::unread::Room;

/// What a program has sent, and its association has not taken yet.
pub(crate) type Waiting = VecDeque<(Header, Bytes)>;

/// How a program has left its side.
enum Left {
    /// It sends no more.
    HalfClosed,
    /// Nobody has the descriptor any more.
    Closed,
    /// The same, and something was unread.
    Unread,
    /// It asks for an end of the association that loses what is on its way, for this reason.
    Abort(Bytes),
}

/// Carries an association until it has ended and the program has left. What `waiting` holds goes first.
pub(crate) async fn carry(socket: &Arc<Socket>, member: &Arc<Member>, waiting: Waiting) {
    let Some(association) = member.association() else { return };
    let mut upward = Upwards(tokio::spawn(end_after(Arc::clone(socket), Arc::clone(member))));
    let mut left = down(socket, member, association, waiting).await;
    // What other programs have sent before this one ended is taken first, so that it is on its way when the SHUTDOWN comes to
    // them: in one kernel each call has an end before the next begins.
    tokio::task::yield_now().await;
    if let Left::HalfClosed = left {
        // One that is gone already needs no end.
        let _ = association.shutdown().await;
        left = tokio::select! {
            // It ends with the association, which has a time limit for that.
            _ = &mut upward.0 => Left::HalfClosed,
            () = socket.line.closed() => match socket.line.try_take() {
                Ok(Intake::Unread) if socket.has_unread_data() => Left::Unread,
                _ => Left::Closed,
            },
        };
    }
    let lingers = socket.lock().settings.lingers();
    match left {
        // What was sent is delivered, and the association shut down, when its last handle is dropped.
        Left::HalfClosed => {}
        Left::Closed if lingers => {}
        Left::Closed | Left::Unread => abort(association, NO_REASON),
        Left::Abort(reason) => abort(association, &String::from_utf8_lossy(&reason)),
    }
}

/// What the peer is told when a program closes its socket with something unread, or with `SO_LINGER` 0: as the kernel, nothing.
pub(crate) const NO_REASON: &str = "";

pub(crate) fn abort(association: &Association, reason: &str) {
    association.clone().abort(reason);
}

/// The task for the other direction. It ends with this one at the latest.
struct Upwards(JoinHandle<()>);

impl Drop for Upwards {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// From the carrier into the association.
async fn down(
    socket: &Arc<Socket>,
    member: &Member,
    association: &Association,
    mut waiting: Waiting,
) -> Left {
    // What is sent into an association that is gone is lost, as in the kernel.
    let mut gone = false;
    let mut quantum = Quantum::new();
    let mut weight = 0;
    loop {
        quantum.spend(weight).await;
        let (header, content) = match waiting.pop_front() {
            Some(first) => first,
            None => match take(socket, association, &mut quantum).await {
                Ok(taken) => taken,
                Err(left) => return left,
            },
        };
        weight = quantum::weight(content.len());
        let header = completed(member, header);
        if header.flags.contains(Flags::ABORT) {
            return Left::Abort(content);
        }
        let passed_on = pin!(pass_on(association, &header, content.clone()));
        match unless_given_up(socket, passed_on).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                gone = true;
                tell_unsent(socket, member, &header, content).await;
            }
            Err(left) => return left,
        }
        if gone && socket.line.is_hung_up() {
            return Left::Closed;
        }
    }
}

/// Waits for something that what the program has sent needs, unless the program has closed its socket in a way that gives that
/// up.
async fn unless_given_up<T>(
    socket: &Socket,
    mut needed: Pin<&mut impl Future<Output = T>>,
) -> Result<T, Left> {
    tokio::select! {
        biased;
        done = &mut needed => return Ok(done),
        () = socket.line.closed() => {}
    }
    if !socket.lock().settings.lingers() {
        return Err(Left::Closed);
    }
    if socket.has_unread_data() {
        return Err(Left::Unread);
    }
    Ok(needed.await)
}

/// The next message of the program; waits for it.
async fn take(
    socket: &Socket,
    association: &Association,
    quantum: &mut Quantum,
) -> Result<(Header, Bytes), Left> {
    loop {
        let mut taken = socket.line.try_take();
        if matches!(taken, Err(Errno::AGAIN)) {
            // The program has nothing more to say for now: what it has said leaves.
            association.flush();
            taken = socket.line.take().await;
        }
        if matches!(taken, Err(Errno::NOBUFS)) {
            association.flush();
            unless_given_up(socket, pin!(socket.line.room())).await?;
            continue;
        }
        return match taken {
            Ok(Intake::Message(header, content)) => Ok((header, content)),
            Ok(Intake::End) => Err(if socket.line.is_hung_up() { Left::Closed } else { Left::HalfClosed }),
            Ok(Intake::Unread) if socket.has_unread_data() => Err(Left::Unread),
            Ok(Intake::Unread | Intake::Filler | Intake::Empty) => {
                quantum.spend(1).await;
                continue;
            }
            Ok(Intake::Malformed) => {
                log(format_args!("a program writes something else than records to its socket"));
                Err(Left::Abort(Bytes::from_static(b"the program has broken its socket")))
            }
            Err(_) => Err(Left::Closed),
        };
    }
}

/// A message of which the program has said nothing goes as it has said for all.
pub(crate) fn completed(member: &Member, header: Header) -> Header {
    if !header.flags.contains(Flags::BY_DEFAULT) {
        return header;
    }
    let sending = member.tuning().sending;
    Header {
        flags: sending.flags().into_iter().fold(header.flags, Flags::with),
        stream: sending.stream,
        // Programs hand over the bytes as they are to travel.
        ppid: u32::from_be(sending.ppid),
        context: sending.context,
        lifetime_ms: sending.lifetime_ms,
        ..header
    }
}

/// Hands a message to an association; waits for room. An error: the association is gone.
pub(crate) async fn pass_on(
    association: &Association,
    header: &Header,
    content: Bytes,
) -> Result<(), SendError> {
    if !content.is_empty() {
        let info = SendInfo { path: wanted_path(association, header), ..send_info(header) };
        let sent = association.send_bytes(content, &info).await;
        // What else can be wrong was looked for before it was handed over.
        if matches!(sent, Err(SendError::Closed | SendError::PeerShutdown)) {
            return sent;
        }
    }
    match header.flags.contains(Flags::SHUTDOWN) {
        true => association.shutdown().await,
        false => Ok(()),
    }
}

/// The path that a message is to take, where the program has named one of the peer's addresses for it.
fn wanted_path(association: &Association, header: &Header) -> Option<PathId> {
    let named = header.address.filter(|_| header.flags.contains(Flags::TO_ADDRESS))?;
    association.path_to(named.ip())
}

pub(crate) fn send_info(header: &Header) -> SendInfo {
    SendInfo {
        stream: header.stream,
        ppid: header.ppid,
        unordered: header.flags.contains(Flags::UNORDERED),
        immediate: header.flags.contains(Flags::IMMEDIATE),
        more: false,
        context: header.context,
        lifetime: Some(header.lifetime_ms).filter(|ms| *ms > 0).map(|ms| Duration::from_millis(ms.into())),
        path: None,
    }
}

/// From the association into the carrier of a one-to-one socket, and then its end.
async fn end_after(socket: Arc<Socket>, member: Arc<Member>) {
    let mut by_us = false;
    let ended = |how: Ended| {
        by_us = how == Ended::ByUs;
        let end = match how {
            Ended::ByPeer if socket.style == Style::OneToOne => State::Ended,
            // Others have no end to read; nothing more comes.
            Ended::ByPeer => State::Lost,
            Ended::ByUs => State::Lost,
            Ended::Lost(loss) => {
                socket.page.set_error(errno::of_loss(loss));
                State::Lost
            }
        };
        socket.page.set_local(&socket.local_address());
        socket.set_stage(&mut socket.lock(), end);
    };
    up(&socket, &member, ended).await;
    // What this side has shut down itself is no news that it would poll for.
    match by_us {
        true => {
            socket.line.end_untold();
            socket.line.closed().await;
        }
        false => socket.line.end(),
    }
}

/// How an association has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The peer has shut it down: what it sent ends there.
    ByPeer,
    /// We have.
    ByUs,
    /// Not regularly.
    Lost(LossKind),
}

/// From the association into the carrier, until the association has ended. What is held goes first; given up, this leaves
/// what was on its way there. `ended` is told how it has ended before the program is.
pub(crate) async fn up(socket: &Arc<Socket>, member: &Arc<Member>, ended: impl FnOnce(Ended)) {
    let Some(association) = member.association() else { return };
    let mut held = member.held.lock().await;
    let Held { queue, next: after, is_shut_down } = &mut *held;
    let mut hand = Hand { socket, member, begun: None, unread: false };
    let mut quantum = Quantum::new();
    let mut ended = Some(ended);
    let mut end = |how| ended.take().into_iter().for_each(|ended| ended(how));
    let regularly = |is_shut_down| if is_shut_down { Ended::ByPeer } else { Ended::ByUs };
    loop {
        let messages = queue.len().max(1);
        hand.up_all(queue).await;
        quantum.spend(messages).await;
        let received = match after.take() {
            Some(received) => received,
            None => association.next().await,
        };
        match received {
            Ok(Some(Received::Message(message))) => {
                queue.push_back(data(member, message));
                if hand.bundles() {
                    *after = take_along(member, association, queue);
                }
            }
            Ok(Some(Received::Event(event))) => {
                *is_shut_down |= event == Event::PeerShutdown;
                queue.extend(notify::of(socket, member, &event));
                if event == Event::PeerShutdown && socket.style == Style::OneToOne {
                    socket.page.set_peer_shut(PeerShut::Writing);
                    hand.up_all(queue).await;
                    end_early(socket, member);
                }
                if let Event::Down(loss) = event {
                    // What it owes is there already. The program reads all of that before it finds the end.
                    while let Ok(Some(Received::Event(event))) = association.try_next() {
                        queue.extend(notify::of(socket, member, &event));
                        quantum.spend(1).await;
                        while queue.len() > 1
                            && let Some(upward) = queue.front()
                        {
                            hand.up(upward).await;
                            queue.pop_front();
                        }
                    }
                    end(loss.map_or(regularly(*is_shut_down), |loss| Ended::Lost(loss.kind)));
                }
            }
            Ok(None) => return end(regularly(*is_shut_down)),
            Err(RecvError::Lost(loss)) => return end(Ended::Lost(loss.kind)),
            Err(_) => {}
        }
    }
}

/// The peer sends no more, and what it has sent is in the carrier: the program reads the end, though the association may live on until
/// the peer has all. A program that wants to hear of what becomes of it finds the end when it reads, but does not poll readable for
/// it: nothing can follow what polls as the end.
fn end_early(socket: &Socket, member: &Member) {
    socket.page.set_peer_shut(PeerShut::Both);
    let may_hear_more = [Type::AssociationChange, Type::SendFailed, Type::SendFailedEvent, Type::SenderDry];
    match may_hear_more.into_iter().any(|kind| member.wants(kind)) {
        true => socket.line.end_untold(),
        false => socket.line.end(),
    }
}

/// Takes along what is there already, as much as fits into a bundle. Returns what came after that and is no message.
fn take_along(
    member: &Member,
    association: &Association,
    queue: &mut VecDeque<Upward>,
) -> Option<Result<Option<Received>, RecvError>> {
    let mut bytes = 0;
    while let Some(last) = queue.back().filter(|last| last.is_short()) {
        bytes += last.record_bytes();
        // The next one is likely to be as long.
        if bytes + last.record_bytes() > BUNDLE_BYTES_MAX {
            return None;
        }
        match internals::next_at_hand(association) {
            Ok(Some(Received::Message(message))) => queue.push_back(data(member, message)),
            Err(RecvError::WouldBlock) => return None,
            other => return Some(other),
        }
    }
    None
}

/// All has been sent on these associations, and the program wants to know.
pub(crate) async fn tell_dry(socket: Arc<Socket>, members: Vec<Arc<Member>>) {
    for member in members {
        tell(&socket, notify::of(&socket, &member, &Event::SenderDry)).await;
    }
}

/// Reports a message that an association did not take, because it is gone or its peer has shut it down.
pub(crate) async fn tell_unsent(socket: &Arc<Socket>, member: &Member, header: &Header, data: Bytes) {
    let unsent = Event::SendFailed {
        info: send_info(header),
        data,
        was_sent: false,
        beginning: true,
        ending: true,
        cause: 0,
    };
    tell(socket, notify::of(socket, member, &unsent)).await;
}

/// Hands notifications to a program, between what its associations hand up.
pub(crate) async fn tell(socket: &Arc<Socket>, notifications: impl IntoIterator<Item = Upward>) {
    for notification in notifications {
        let _one_at_a_time = socket.delivery.lock().await;
        // A program that is gone needs no news.
        let _ = socket.put(notification.header(), notification.blocks()).await;
    }
}

/// Hands messages and notifications to a program.
struct Hand<'a> {
    socket: &'a Arc<Socket>,
    /// Whose they are.
    member: &'a Arc<Member>,
    /// A message was begun: no other comes between its parts, unless the program allows it.
    begun: Option<MutexGuard<'a, ()>>,
    /// The program reads no more. What comes is thrown away: the peer must not be stopped by a full window.
    unread: bool,
}

impl Hand<'_> {
    /// Whether messages may share a record: those that keep room in the window while they lie there do not.
    fn bundles(&self) -> bool {
        !self.member.bounds_unread()
    }

    /// Hands up all that is held, short messages together.
    async fn up_all(&mut self, queue: &mut VecDeque<Upward>) {
        while let Some(first) = queue.front() {
            match self.fitting(queue) {
                0 | 1 => {
                    self.up(first).await;
                    queue.pop_front();
                }
                several => {
                    self.up_together(queue.iter().take(several)).await;
                    queue.drain(..several);
                }
            }
        }
    }

    /// How many of the next messages fit into one bundle.
    fn fitting(&self, queue: &VecDeque<Upward>) -> usize {
        if self.unread || self.begun.is_some() || !self.bundles() {
            return 0;
        }
        let mut bytes = 0;
        let fits = |upward: &&Upward| {
            bytes += upward.record_bytes();
            upward.is_short() && bytes <= BUNDLE_BYTES_MAX
        };
        queue.iter().take_while(fits).count()
    }

    async fn up_together(&mut self, messages: impl Iterator<Item = &Upward>) {
        let (mut bundle, mut count) = (Vec::with_capacity(BUNDLE_BYTES_MAX), 0);
        for message in messages {
            bundle.extend_from_slice(&message.header().encode());
            message.blocks().iter().for_each(|block| bundle.extend_from_slice(block));
            count += 1;
        }
        let _one_at_a_time = self.socket.delivery.lock().await;
        self.unread = self.socket.put_bundle(&bundle, count).await.is_err();
    }

    async fn up(&mut self, upward: &Upward) {
        let mut is_told_when_read = false;
        if !self.unread {
            if self.begun.is_none() {
                self.begun = Some(self.socket.delivery.lock().await);
            }
            let put = self.socket.put(upward.header(), upward.blocks()).await;
            self.unread = put.is_err();
            is_told_when_read = put == Ok(Put::Record);
            if upward.header().flags.contains(Flags::END) || self.socket.lock().settings.interleaves {
                self.begun = None;
            }
        }
        if let Upward::Message(_, message) = upward {
            self.keep_room(message, is_told_when_read);
        }
    }

    /// Keeps the room that a message has in the window until it was read, where the daemon is told of that.
    fn keep_room(&self, message: &Message, is_told_when_read: bool) {
        let room =
            self.member.keeps_room(message).then(|| Room::new(self.member, internals::window_bytes(message)));
        match is_told_when_read {
            true => self.socket.keep_room(room),
            false => room.into_iter().for_each(Room::give_back),
        }
    }
}

fn data(member: &Member, message: Message) -> Upward {
    let info = &message.info;
    let mut header = Header {
        stream: info.stream,
        ssn: info.ssn,
        ppid: info.ppid,
        tsn: info.tsn,
        cumulative_tsn: info.cumulative_tsn,
        association: member.id,
        context: member.tuning().context,
        // The receive buffer bounds it.
        bytes: message.len() as u32,
        address: Some(member.peer),
        ..Header::new(Kind::Data)
    };
    if info.unordered {
        header.flags = header.flags.with(Flags::UNORDERED);
    }
    if info.end_of_record {
        header.flags = header.flags.with(Flags::END);
    }
    Upward::Message(header, message)
}

/// Outbound and inbound.
pub(crate) fn streams(association: &Association) -> (u16, u16) {
    (association.streams_out(), association.statistics().map_or(0, |known| known.streams_in))
}
