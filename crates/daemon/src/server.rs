//! Accepts requests of programs. Each request has a connection of its own, which ends with the answer.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use channel_protocol::request::{self, AnswerKind, FRAME_BYTES_MAX, Request, RequestError};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use rustix::process::Uid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::calls::reply::{Answer, Reply};
use crate::channel::lent_memfd::{self, LentMemfd};
use crate::dispatch;
use crate::state::registry::Registry;
use crate::system::descriptor_io::{register, send_with_descriptors};
use crate::system::journal::{Cause, log};
use crate::system::listener::Listener;
use crate::users::closer::{self, Closer, End, ReceivedDescriptor, ReceivedMessage, Source};
use crate::users::division::Use;
use crate::users::fair_queue::FairQueue;
use crate::users::requester::Requester;
use crate::users::user_permits::Permit;

/// Clients must send their request within this time of being accepted.
pub const REQUEST_WAIT: Duration = Duration::from_secs(5);
/// Pause of accepting when no descriptor is left for a connection.
const EXHAUSTED_WAIT: Duration = Duration::from_millis(50);
/// Maximum numbers of connections that are accepted, and of those that are attended to, before other tasks and the I/O
/// driver run: an exchange of messages waits for some four such turns, and each takes up to 0.2 ms.
const ACCEPTS_PER_TURN: usize = 16;
const STARTS_PER_TURN: usize = 4;
/// Maximum number of accepted connections that wait to be attended to; if descriptors are scarce, a third of those for requests.
const ARRIVALS_MAX: usize = 1024;
const PART_OF_ARRIVALS: usize = 3;

/// An accepted connection that is not attended to yet.
struct Arrival {
    connection: End,
    closer: Arc<Closer>,
    requester: Requester,
}

/// Accepts the connections of programs; returns only when accepting fails for good.
///
/// In the kernel's queue the connections of all users wait in one line. The daemon accepts them at once, which costs
/// little, and then serves users in turn.
///
/// Runs as a task of its own. The runtime polls the future that it blocks on before ready tasks, so a user that
/// connects without end would have connections accepted faster than earlier ones are answered and closed.
pub(crate) async fn serve(listener: Listener, registry: Rc<Registry>) -> io::Result<()> {
    // Programs decide by the same user whether they trust the daemon.
    let owner = rustix::net::sockopt::socket_peercred(&listener)?.uid;
    let listener = register(listener, Interest::READABLE)?;
    let (of_requests, _) = registry.resources().descriptors().division().part(Use::Requests);
    let mut arrivals = FairQueue::new(ARRIVALS_MAX.min(of_requests / PART_OF_ARRIVALS));
    loop {
        if arrivals.is_empty() {
            while !registry.resources().descriptors().has_any() {
                registry.resources().give_up_silent();
                tokio::time::sleep(EXHAUSTED_WAIT).await;
            }
            // The listener stays ready until `accept` returns EWOULDBLOCK.
            drop(listener.readable().await?);
        }
        if let Err(error) = accept_some(&listener, owner, &registry, &mut arrivals) {
            log(Cause::Daemon, format_args!("cannot accept connections for the moment: {error}"));
            tokio::time::sleep(EXHAUSTED_WAIT).await;
        }
        for arrival in std::iter::from_fn(|| arrivals.next()).take(STARTS_PER_TURN) {
            admit(&registry, arrival);
        }
        tokio::task::yield_now().await;
    }
}

/// Accepts the connections that wait, as many as a turn has time for, and closes those that were given up already and those of
/// users whom the daemon of a user does not serve.
fn accept_some(
    listener: &AsyncFd<Listener>,
    owner: Uid,
    registry: &Registry,
    arrivals: &mut FairQueue<Arrival>,
) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for _ in 0..ACCEPTS_PER_TURN {
        if !registry.resources().descriptors().has_any() {
            break;
        }
        let accept = |listener: &Listener| Ok(rustix::net::accept_with(listener, flags)?);
        let connection = match listener.try_io(Interest::READABLE, accept) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            accepted => accepted?,
        };
        let requester = Requester::new(rustix::net::sockopt::socket_peercred(&connection)?);
        if !requester.is_served_by(owner) {
            log(
                Cause::User(requester.user()),
                format_args!("refused a program of a user whom this daemon does not serve"),
            );
            continue;
        }
        registry.resources().slices().on_caller(requester.user());
        let closer = registry.resources().closer(requester.user(), Source::Requests);
        let has_share = registry.resources().descriptors().has(Use::Requests, requester.user(), 1);
        let connection = closer.guard_connection(connection);
        if !has_share {
            put_off(&connection);
        } else if !connection.is_left() {
            let evicted = arrivals.push(requester.user(), Arrival { connection, closer, requester });
            evicted.iter().for_each(|arrival| put_off(&arrival.connection));
        }
    }
    Ok(())
}

/// The caller of a request.
struct Caller {
    registry: Rc<Registry>,
    /// The closer of what the caller's user sends.
    closer: Arc<Closer>,
    requester: Requester,
}

fn admit(registry: &Rc<Registry>, Arrival { connection, closer, requester }: Arrival) {
    let Some(permit) = registry.resources().take_silent(requester.user()) else {
        return put_off(&connection);
    };
    let caller = Caller { registry: Rc::clone(registry), closer, requester };
    tokio::task::spawn_local(async move {
        // An error means that the caller has gone, or does not receive the answer.
        let _ = attend(connection, permit, &caller).await;
    });
}

/// Receives one request and answers it. `permit` is the connection's until the request has come.
async fn attend(connection: End, permit: Permit, caller: &Caller) -> io::Result<()> {
    let connection = register(connection, Interest::READABLE | Interest::WRITABLE)?;
    let asked = receive_request(&connection, permit, &caller.closer).await;
    let (frame, descriptors) = match asked.inspect_err(|_| put_off(connection.get_ref()))? {
        Asked::Request(frame, descriptors) => (frame, descriptors),
        Asked::NotYet => {
            put_off(connection.get_ref());
            return Ok(());
        }
        Asked::Nothing => return Ok(()),
        Asked::Stuck => return answer(&connection, Errno::BUSY.into(), None, &caller.closer).await,
    };
    // A request may wait in many ways, and occupies descriptors meanwhile.
    let Some(_place) = caller.registry.resources().take_carried_out(caller.requester.user()) else {
        put_off(connection.get_ref());
        return Ok(());
    };
    let carried_out = match Request::parse(&frame) {
        Ok(request) => carry_out(&connection, request, &descriptors, caller).await,
        Err(error) => Some((refuse(error, caller.requester), None)),
    };
    // Otherwise the caller has gone.
    let Some((reply, place)) = carried_out else { return Ok(()) };
    close(descriptors).await;
    answer(&connection, reply, place.as_ref(), &caller.closer).await
}

/// Waits for a request until the connection loses its permit, or its time is over.
async fn receive_request(
    connection: &AsyncFd<End>,
    permit: Permit,
    closer: &Arc<Closer>,
) -> io::Result<Asked> {
    let asked = tokio::select! {
        asked = await_request_unthrottled(connection, closer) => Some(asked),
        () = permit.lost() => None,
        () = tokio::time::sleep(REQUEST_WAIT) => None,
    };
    // The request may have come although the time is over: the daemon may have been stopped meanwhile.
    asked.or_else(|| try_receive_request(connection, closer)).unwrap_or(Ok(Asked::NotYet))
}

/// Carries out a request that has come with these descriptors. Returns the reply, and its place if descriptors come with it;
/// `None` if the caller has gone meanwhile.
async fn carry_out(
    connection: &AsyncFd<End>,
    request: Request<'_>,
    descriptors: &[ReceivedDescriptor],
    caller: &Caller,
) -> Option<(Reply, Option<Permit>)> {
    if descriptors.len() > 1 {
        return Some((Errno::INVAL.into(), None));
    }
    let mut place = None;
    if request.answer_kind() == AnswerKind::Descriptors {
        // Until the caller has received them, they count as in flight for the user of the daemon.
        place = caller.registry.resources().take_unreceived(caller.requester.user());
        if place.is_none() {
            return Some((Answer::AskAgain.into(), None));
        }
    }
    tokio::select! {
        performed = perform(&caller.registry, request, descriptors.first(), caller.requester) => {
            Some((performed.unwrap_or_else(Reply::from), place))
        }
        () = closer::gone(connection) => None,
    }
}

/// Closes the descriptors that have come with a request, and waits for that.
async fn close(mut descriptors: Vec<ReceivedDescriptor>) {
    // The closer closes in order, so the last descriptor is closed last.
    if let Some(last) = descriptors.pop() {
        drop(descriptors);
        last.closed().await;
    }
}

/// Carries out a request. One about a socket must have come with its pair.
async fn perform(
    registry: &Rc<Registry>,
    request: Request<'_>,
    descriptor: Option<&ReceivedDescriptor>,
    requester: Requester,
) -> Result<Reply, Errno> {
    match (request, descriptor) {
        (Request::Daemon(request), _) => dispatch::perform(registry, request, requester).await,
        (Request::Socket(request), Some(program_end)) => {
            dispatch::perform_on(registry, program_end, request, requester).await
        }
        (Request::Socket(_), None) => Err(Errno::BADF),
    }
}

/// Answers. An answer with descriptors has a `place`, which the caller gives up when this returns.
async fn answer(
    connection: &AsyncFd<End>,
    reply: Reply,
    place: Option<&Permit>,
    closer: &Arc<Closer>,
) -> io::Result<()> {
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = reply.encode(&mut frame).ok_or(Errno::OVERFLOW)?;
    let own = reply.descriptors.iter().map(OwnedFd::as_fd);
    let own_and_lent = own.chain(reply.lent.iter().map(LentMemfd::as_fd));
    let descriptors: Vec<BorrowedFd<'_>> = own_and_lent.collect();
    assert!(descriptors.is_empty() || place.is_some(), "the kind of the answer says that descriptors come");
    // Many answers may be due at once.
    closer.time().unthrottled().await;
    let deadline = Instant::now() + REQUEST_WAIT;
    let sent = send_by(deadline, connection, &frame[..bytes], &descriptors, closer).await;
    if let Err(error) = &sent
        && !descriptors.is_empty()
        && let Some(bytes) = failure(error).encode(&mut frame)
    {
        // The kernel limits the number of descriptors that a user has in flight.
        drop(send_by(deadline, connection, &frame[..bytes], &[], closer).await);
    }
    if let Some(feed) = reply.feed {
        sent?;
        return feed.follow(connection).await;
    }
    if let Some(lent) = reply.lent {
        if sent.is_ok() {
            // The memory returns to the daemon even if the caller does not read it.
            let _ = tokio::time::timeout_at(deadline, closer::gone(connection)).await;
        }
        lent_memfd::empty_on(closer.worker(), [lent].into());
        sent?;
    } else {
        // The program may already have closed its copies, so the daemon's close may be the last.
        reply.descriptors.into_iter().for_each(|descriptor| drop(closer.take_over(descriptor)));
        sent?;
    }
    if place.is_some() {
        closer::all_received(connection, closer).await;
    }
    Ok(())
}

/// Returns the answer to a request whose answer could not be sent with its descriptors.
fn failure(error: &io::Error) -> Reply {
    let error = Errno::from_io_error(error).filter(|error| *error != Errno::TOOMANYREFS);
    error.unwrap_or(Errno::NFILE).into()
}

/// The result of waiting for a request.
enum Asked {
    Request(Vec<u8>, Vec<ReceivedDescriptor>),
    /// The caller has closed the connection.
    Nothing,
    /// The time is over, or another connection has taken the permit.
    NotYet,
    /// Earlier descriptors of this user cannot be closed, so no further ones are received.
    Stuck,
}

/// Waits until the user is not throttled, and then for a request.
async fn await_request_unthrottled(connection: &AsyncFd<End>, closer: &Arc<Closer>) -> io::Result<Asked> {
    closer.time().unthrottled().await;
    await_request(connection, closer).await
}

/// Waits for a request.
async fn await_request(connection: &AsyncFd<End>, closer: &Arc<Closer>) -> io::Result<Asked> {
    // Most requests are there when their connection is attended to.
    if let Some(asked) = try_receive_request(connection, closer) {
        return asked;
    }
    let mut frame = vec![0; FRAME_BYTES_MAX];
    loop {
        let mut ready = connection.readable().await?;
        if !closer.goes_on().await {
            return Ok(Asked::Stuck);
        }
        if !closer.has_room() {
            closer.room().await;
            continue;
        }
        let received =
            ready.try_io(|connection| Ok(closer::receive(connection, &mut frame, closer, closer.time())?));
        if let Ok(received) = received {
            return Ok(Asked::of(frame, received?));
        }
    }
}

/// Receives a request that is there, if the descriptors that may come with it can be received.
fn try_receive_request(connection: &AsyncFd<End>, closer: &Arc<Closer>) -> Option<io::Result<Asked>> {
    if closer.is_stuck() || !closer.has_room() || closer.time().is_throttled() {
        return None;
    }
    let mut frame = vec![0; FRAME_BYTES_MAX];
    match closer::receive(connection, &mut frame, closer, closer.time()) {
        Err(Errno::AGAIN) => None,
        received => Some(received.map(|received| Asked::of(frame, received)).map_err(io::Error::from)),
    }
}

/// Tells a caller whose request was not carried out to make it again. The answer is short, and nothing else is on its way. To a
/// throttled user the end of the connection says the same.
fn put_off(connection: &End) {
    if connection.time().is_throttled() {
        return;
    }
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = request::Answer::AskAgain.encode(&mut frame).unwrap_or(0);
    // The caller may have gone.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = connection.time().measure(|| rustix::net::send(connection, &frame[..bytes], flags));
}

impl Asked {
    fn of(mut frame: Vec<u8>, message: ReceivedMessage) -> Asked {
        frame.truncate(message.bytes);
        if message.bytes == 0 { Asked::Nothing } else { Asked::Request(frame, message.descriptors) }
    }
}

fn refuse(error: RequestError, requester: Requester) -> Reply {
    let cause = Cause::User(requester.user());
    match error {
        RequestError::Version(version) => log(
            cause,
            format_args!(
                "the shim of process {} has version {version}, this daemon has {}: use both from one installation",
                requester.process(),
                channel_protocol::VERSION
            ),
        ),
        RequestError::Malformed => log(
            cause,
            format_args!(
                "process {} of user {} sent a malformed request",
                requester.process(),
                requester.user()
            ),
        ),
    }
    Errno::PROTONOSUPPORT.into()
}

/// Sends a frame with descriptors. Fails with `TimedOut` if the connection has no room until the deadline: the caller does not
/// receive the answer.
async fn send_by(
    deadline: Instant,
    connection: &AsyncFd<End>,
    frame: &[u8],
    descriptors: &[BorrowedFd<'_>],
    closer: &Closer,
) -> io::Result<()> {
    let send = |end: &End| {
        let send = || send_with_descriptors(end, &[IoSlice::new(frame)], descriptors, SendFlags::NOSIGNAL);
        Ok(closer.time().measure(send)?)
    };
    let sent = connection.async_io(Interest::WRITABLE, send);
    tokio::time::timeout_at(deadline, sent).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests;
