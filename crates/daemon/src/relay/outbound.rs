//! From the channel of a socket into an association.

use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use carrier::record::{Flags, Header};
use rustix::io::Errno;
use swiftwater::tokio::Association;
use swiftwater::{Event, Lifetime, PathId, SendError, SendInfo};

use super::inbound::tell;
use super::{BROKEN, Departure, notifications};
use crate::channel::endpoint::Intake;
use crate::state::association::SocketAssociation;
use crate::state::send_queue::Messages;
use crate::state::socket::Socket;
use crate::system::journal::log;
use crate::system::quantum::{self, Quantum};

/// From the carrier into the association.
pub(crate) async fn down(
    socket: &Arc<Socket>,
    member: &SocketAssociation,
    association: &Association,
    mut unsent: Messages,
) -> Departure {
    // What is sent into an association that is gone is lost, as in the kernel.
    let mut gone = false;
    let mut quantum = Quantum::new();
    let mut weight = 0;
    loop {
        quantum.spend(weight).await;
        let (header, content) = match unsent.pop_front() {
            Some(first) => first,
            None => match take(socket, association, &mut quantum).await {
                Ok(taken) => taken,
                Err(left) => return left,
            },
        };
        weight = quantum::weight(content.len());
        let header = completed(member, header);
        if header.flags.contains(Flags::ABORT) {
            return Departure::Abort(content);
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
        if gone && socket.channel.endpoint.is_hung_up() {
            return Departure::Closed;
        }
    }
}

/// Waits for something that what the program has sent needs, unless the program has closed its socket in a way that gives that
/// up.
async fn unless_given_up<T>(
    socket: &Socket,
    mut needed: Pin<&mut impl Future<Output = T>>,
) -> Result<T, Departure> {
    tokio::select! {
        biased;
        done = &mut needed => return Ok(done),
        () = socket.channel.endpoint.closed() => {}
    }
    if !socket.lock().options.lingers() {
        return Err(Departure::Closed);
    }
    if socket.channel.has_unread_data() {
        return Err(Departure::Unread);
    }
    Ok(needed.await)
}

/// The next message of the program; waits for it.
async fn take(
    socket: &Socket,
    association: &Association,
    quantum: &mut Quantum,
) -> Result<(Header, Bytes), Departure> {
    loop {
        let mut taken = socket.channel.endpoint.try_take();
        if matches!(taken, Err(Errno::AGAIN)) {
            // The program has nothing more to say for now: what it has said leaves.
            association.flush();
            taken = socket.channel.endpoint.take().await;
        }
        if matches!(taken, Err(Errno::NOBUFS)) {
            association.flush();
            unless_given_up(socket, pin!(socket.channel.endpoint.room())).await?;
            continue;
        }
        return match taken {
            Ok(Intake::Message(header, content)) => Ok((header, content)),
            Ok(Intake::End) => Err(if socket.channel.endpoint.is_hung_up() {
                Departure::Closed
            } else {
                Departure::HalfClosed
            }),
            Ok(Intake::Unread) if socket.channel.has_unread_data() => Err(Departure::Unread),
            Ok(Intake::Unread | Intake::Filler | Intake::Empty) => {
                quantum.spend(1).await;
                continue;
            }
            Ok(Intake::Malformed) => {
                log(format_args!("a program writes something else than records to its socket"));
                Err(Departure::Abort(Bytes::from_static(BROKEN)))
            }
            Err(_) => Err(Departure::Closed),
        };
    }
}

/// A message of which the program has said nothing goes as it has said for all.
pub(crate) fn completed(member: &SocketAssociation, header: Header) -> Header {
    if !header.flags.contains(Flags::BY_DEFAULT) {
        return header;
    }
    let sending = member.options().sending;
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
        lifetime: Lifetime::from_ms(header.lifetime_ms),
        path: None,
    }
}

/// Reports a message that an association did not take, because it is gone or its peer has shut it down.
pub(crate) async fn tell_unsent(
    socket: &Arc<Socket>,
    member: &SocketAssociation,
    header: &Header,
    data: Bytes,
) {
    let unsent = Event::SendFailed {
        info: send_info(header),
        data,
        was_sent: false,
        beginning: true,
        ending: true,
        cause: 0,
    };
    tell(socket, notifications::of(socket, member, &unsent)).await;
}
