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
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use channel_protocol::request::{DaemonRequest, SocketRequest};
    use rustix::event::PollFlags;
    use rustix::fs::OFlags;
    use rustix::io::FdFlags;
    use rustix::net::{AddressFamily, SocketType};
    use swiftwater::StackOptions;
    use swiftwater::tokio::Stack;
    use tokio::runtime::LocalOptions;

    use super::*;
    use crate::system::daemon_address::DaemonAddress;
    use crate::system::descriptor_io::polls;
    use crate::testing::{WAIT_MAX, registry, soon, until};
    use crate::users::closer::Closers;
    use crate::users::descriptor_budget::DescriptorBudget;
    use crate::users::limits::Limits;
    use crate::users::requester::tests::requester;
    use crate::users::resources::Resources;

    const NUMBERS: usize = 512;
    /// A third of the numbers for requests.
    const SILENT: usize = NUMBERS * 6 / 32 / PART_OF_ARRIVALS;
    /// More than the daemon attends to and keeps waiting.
    const CONNECTIONS: usize = 256;

    /// Serves a listener, and looks at the numbers each time that other tasks have had their turn.
    fn serve_and_look(listener: Listener, mut look: impl FnMut(&DescriptorBudget)) {
        let mut rounds = 0..2 * CONNECTIONS;
        serve_until(listener, "the last round", |descriptors| {
            look(descriptors);
            rounds.next().is_none()
        });
    }

    /// Serves a listener until something is done, which is looked at each time that other tasks have had their turn. A failure
    /// names what was `awaited`.
    fn serve_until(listener: Listener, awaited: &str, mut is_done: impl FnMut(&DescriptorBudget) -> bool) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .expect("a runtime");
        runtime.block_on(async {
            let descriptors = DescriptorBudget::with_max(NUMBERS);
            let options = StackOptions::default().with_udp_port(0);
            let stack = Stack::bind(&options).expect("a free port");
            let registry =
                Registry::new(stack, false, Resources::new(&Limits::default(), Arc::clone(&descriptors)));
            let server =
                tokio::task::spawn_local(serve(listener, Rc::new(registry.expect("random numbers"))));
            let deadline = std::time::Instant::now() + WAIT_MAX;
            while !is_done(&descriptors) {
                assert!(std::time::Instant::now() < deadline, "waited in vain: {awaited}");
                tokio::task::yield_now().await;
            }
            server.abort();
        });
    }

    fn place(test: &str) -> DaemonAddress {
        DaemonAddress::Abstract(format!("swiftwater-server-{test}-{}", std::process::id()))
    }

    /// Listens with room for all connections of a test.
    fn listen_to_many(place: &DaemonAddress) -> Listener {
        let listener = place.listen().expect("a free name");
        rustix::net::listen(&listener, CONNECTIONS as i32).expect("it listens");
        listener
    }

    #[test]
    fn a_turn_accepts_so_many_connections() {
        let place = place("turn");
        let listener = listen_to_many(&place);
        let _waiting: Vec<OwnedFd> = (0..CONNECTIONS).map(|_| place.connect().expect("room")).collect();
        let (mut before, mut most) = (0, 0);
        serve_and_look(listener, |descriptors| {
            let now = descriptors.taken();
            most = most.max(now.saturating_sub(before));
            before = now;
        });
        assert_eq!(most, ACCEPTS_PER_TURN);
    }

    #[tokio::test(flavor = "local")]
    async fn a_turn_fails_if_accepting_fails_and_not_if_no_connection_waits() {
        let (registry, owner) = (registry(), rustix::process::geteuid());
        let mut arrivals = FairQueue::new(1);
        let place = place("none");
        let listener = place.listen().expect("a free name");
        let listener = register(listener, Interest::READABLE).expect("a descriptor");
        accept_some(&listener, owner, &registry, &mut arrivals).expect("no connection waits");
        assert!(arrivals.is_empty());
        let _caller = place.connect().expect("room");
        drop(soon(listener.readable()).await.expect("a socket"));
        accept_some(&listener, owner, &registry, &mut arrivals).expect("one waits");
        assert_eq!(registry.resources().slices().last_caller(), Some(owner.as_raw()));
        let accepted = arrivals.next().expect("it was accepted").connection;
        assert!(rustix::io::fcntl_getfd(&accepted).expect("it is open").contains(FdFlags::CLOEXEC));
        assert!(rustix::fs::fcntl_getfl(&accepted).expect("it is open").contains(OFlags::NONBLOCK));
        let kind = SocketType::SEQPACKET;
        let deaf = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK, None);
        let deaf = Listener::from(deaf.expect("a number"));
        let deaf = register(deaf, Interest::READABLE).expect("a descriptor");
        drop(soon(deaf.readable()).await.expect("a socket"));
        let failed = accept_some(&deaf, owner, &registry, &mut arrivals).expect_err("it does not listen");
        assert_eq!(failed.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
    }

    #[tokio::test(flavor = "local")]
    async fn a_user_with_its_share_of_descriptors_is_told_to_ask_again() {
        let (registry, owner) = (registry(), rustix::process::geteuid());
        let mut arrivals = FairQueue::new(9);
        let place = place("share");
        let listener = place.listen().expect("a free name");
        let listener = register(listener, Interest::READABLE).expect("a descriptor");
        let descriptors = registry.resources().descriptors();
        let (_, share) = descriptors.division().part(Use::Requests);
        let mut all = Some(descriptors.count(Use::Requests, owner.as_raw(), share));
        for has_share in [false, true] {
            all = all.filter(|_| !has_share);
            let caller = place.connect().expect("room");
            drop(soon(listener.readable()).await.expect("a socket"));
            accept_some(&listener, owner, &registry, &mut arrivals).expect("one waits");
            assert_eq!(arrivals.next().is_some(), has_share);
            assert!(has_share || !is_carried_out(&caller));
        }
    }

    #[test]
    fn connections_that_lost_their_permit_give_their_descriptors_back_before_more_are_accepted() {
        let place = place("silent");
        let listener = listen_to_many(&place);
        let silent: Vec<OwnedFd> = (0..CONNECTIONS).map(|_| place.connect().expect("room")).collect();
        let bound = 2 * SILENT + STARTS_PER_TURN;
        let mut are_taken = false;
        let evicted = &silent[CONNECTIONS - SILENT - 1];
        // A thread closes it.
        let mut rounds = 0..2 * CONNECTIONS;
        serve_until(listener, "an evicted connection is closed", |descriptors| {
            assert!(descriptors.taken() <= bound, "more than {bound} are taken");
            are_taken = descriptors.taken() >= SILENT;
            rounds.next().is_none() && polls(evicted.as_fd(), PollFlags::IN)
        });
        assert!(are_taken, "connections were accepted");
        let told = |caller: &OwnedFd| -> Result<Option<String>, Errno> {
            let mut frame = [0; FRAME_BYTES_MAX];
            let bytes = rustix::net::recv(caller, &mut frame[..], rustix::net::RecvFlags::DONTWAIT)?.1;
            Ok(request::Answer::parse(&frame[..bytes]).map(|answer| format!("{answer:?}")))
        };
        let put_off = Ok(Some(format!("{:?}", request::Answer::AskAgain)));
        assert_eq!(told(evicted), put_off, "an evicted connection is told to ask again");
        assert_eq!(told(evicted), Ok(None), "and closed");
        // Those that had a permit at the end of the daemon find its end.
        let count = silent.iter().filter(|caller| told(caller) == put_off).count();
        assert_eq!(count + 1, CONNECTIONS - SILENT);
    }

    #[test]
    fn connections_that_were_given_up_wait_for_no_turn() {
        let place = place("left");
        let listener = listen_to_many(&place);
        (0..CONNECTIONS).for_each(|_| drop(place.connect().expect("room")));
        let last = place.connect().expect("room");
        let mut most = 0;
        serve_and_look(listener, |descriptors| most = most.max(descriptors.taken()));
        assert_eq!(most, 1, "only the last one takes a number");
        drop(last);
    }

    #[tokio::test(flavor = "local")]
    async fn a_closer_that_looks_stuck_for_a_moment_delays_a_request_and_one_that_is_stuck_fails_it() {
        let closers = Closers::new(DescriptorBudget::with_max(NUMBERS));
        let mut frame = [0; FRAME_BYTES_MAX];
        let bytes = DaemonRequest::Describe.encode(&mut frame).expect("a short request");
        for goes_on in [true, false] {
            let closer = closers.of(goes_on.into(), Source::Requests);
            let (end_it, ends) = std::sync::mpsc::channel::<()>();
            closer.run(move || ends.recv().unwrap_or_default());
            until("the close is stuck", || closer.is_stuck()).await;
            let kind = SocketType::SEQPACKET;
            let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK, None);
            let (daemon_end, caller) = pair.expect("a pair");
            let connection =
                register(closer.guard_connection(daemon_end), Interest::READABLE).expect("a descriptor");
            rustix::net::send(&caller, &frame[..bytes], SendFlags::NOSIGNAL).expect("room");
            // The connection is known to be readable, so the request waits for the closer alone.
            drop(soon(connection.readable()).await.expect("a socket"));
            let mut asked = pin!(await_request(&connection, &closer));
            assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let end_it = (!goes_on).then_some(end_it);
            let is_request = matches!(soon(asked).await.expect("a socket"), Asked::Request(..));
            assert_eq!(is_request, goes_on);
            drop(end_it);
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_request_is_received_at_once_unless_its_descriptors_would_have_no_place() {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Obstacle {
            None,
            StuckClose,
            NoNumbers,
            ThrottledUser,
        }
        let mut frame = [0; FRAME_BYTES_MAX];
        let bytes = DaemonRequest::Describe.encode(&mut frame).expect("a short request");
        for (obstacle, user) in
            [Obstacle::None, Obstacle::StuckClose, Obstacle::NoNumbers, Obstacle::ThrottledUser]
                .into_iter()
                .zip(1..)
        {
            let numbers = DescriptorBudget::with_max(NUMBERS);
            let closer = Closers::new(Arc::clone(&numbers)).of(user, Source::Requests);
            let pair = rustix::net::socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::NONBLOCK,
                None,
            );
            let (daemon_end, caller) = pair.expect("a pair");
            let connection =
                register(closer.guard_connection(daemon_end), Interest::READABLE).expect("a descriptor");
            assert!(try_receive_request(&connection, &closer).is_none(), "no request has come");
            rustix::net::send(&caller, &frame[..bytes], SendFlags::NOSIGNAL).expect("room");
            let (end_it, ends) = std::sync::mpsc::channel::<()>();
            let mut taken = None;
            match obstacle {
                Obstacle::None => {}
                Obstacle::StuckClose => {
                    closer.run(move || ends.recv().unwrap_or_default());
                    until("the close is stuck", || closer.is_stuck()).await;
                }
                Obstacle::NoNumbers => taken = Some(numbers.count(Use::Requests, user, NUMBERS)),
                Obstacle::ThrottledUser => closer.time().throttle_for(REQUEST_WAIT),
            }
            let asked = try_receive_request(&connection, &closer);
            match obstacle {
                Obstacle::None => assert!(matches!(asked, Some(Ok(Asked::Request(..))))),
                _ => assert!(asked.is_none(), "{obstacle:?}"),
            }
            drop((end_it, taken));
        }
    }

    /// Receives the answer to a request, which is there. Returns whether the daemon has carried the request out; if not, it wants
    /// to be asked again.
    fn is_carried_out(caller: &OwnedFd) -> bool {
        let mut frame = [0; FRAME_BYTES_MAX];
        let received = rustix::net::recv(caller, &mut frame[..], rustix::net::RecvFlags::DONTWAIT);
        let bytes = received.expect("an answer").1;
        match request::Answer::parse(&frame[..bytes]).expect("an answer") {
            request::Answer::Done => true,
            request::Answer::AskAgain => false,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_with_descriptors_that_nobody_receives_take_half_of_the_places() {
        let place = place("unreceived");
        let listener = listen_to_many(&place);
        let ask = || {
            let caller = place.connect().expect("room");
            let mut frame = [0; FRAME_BYTES_MAX];
            let bytes = DaemonRequest::Memfd.encode(&mut frame).expect("a short request");
            rustix::net::send(&caller, &frame[..bytes], SendFlags::NOSIGNAL).expect("room");
            caller
        };
        let half = NUMBERS / 16 / 2;
        let asked: Vec<OwnedFd> = (0..half + 3).map(|_| ask()).collect();
        let (mut later, mut step) = (Vec::new(), 0);
        serve_until(listener, "each request is answered", |_| {
            let is_answered = |caller: &OwnedFd| polls(caller.as_fd(), PollFlags::IN);
            if asked.iter().skip(2).chain(&later).all(is_answered) {
                if step == 8 {
                    return true;
                }
                match step {
                    0 => {
                        // This is no receipt.
                        rustix::net::shutdown(&asked[0], rustix::net::Shutdown::Both).expect("it is open");
                        later.push(ask());
                    }
                    1 => assert!(is_carried_out(&asked[1])),
                    _ => later.push(ask()),
                }
                step += 1;
            }
            false
        });
        let results: Vec<bool> = asked.iter().skip(2).map(is_carried_out).collect();
        let expected: Vec<bool> = (2..half + 3).map(|at| at < half).collect();
        assert_eq!(results, expected);
        let later: Vec<bool> = later.iter().map(is_carried_out).collect();
        assert_eq!((later[0], later.contains(&true)), (false, true), "{later:?}");
    }

    /// The clock advances at once to the deadline.
    #[tokio::test(flavor = "local", start_paused = true)]
    async fn an_answer_that_is_not_received_has_failed() {
        let closers = Closers::new(DescriptorBudget::with_max(NUMBERS));
        let closer = closers.of(1, Source::Requests);
        let pair =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None);
        let (daemon_end, caller) = pair.expect("a pair");
        while rustix::net::send(&daemon_end, &[0; 512], SendFlags::NOSIGNAL).is_ok() {}
        let connection =
            register(closer.guard_connection(daemon_end), Interest::READABLE | Interest::WRITABLE)
                .expect("a descriptor");
        let sent = answer(&connection, Answer::Done.into(), None, &closer).await;
        assert_eq!(sent.expect_err("there is no room").kind(), io::ErrorKind::TimedOut);
        drop(caller);
    }

    /// Returns the daemon's end of a connection, and the caller's.
    fn connection(closer: &Arc<Closer>) -> (AsyncFd<End>, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK, None);
        let (daemon_end, caller) = pair.expect("a pair");
        let interest = Interest::READABLE | Interest::WRITABLE;
        (register(closer.guard_connection(daemon_end), interest).expect("a descriptor"), caller)
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn an_answer_waits_for_room_until_its_time_is_over() {
        let closers = Closers::new(DescriptorBudget::with_max(NUMBERS));
        let closer = closers.of(1, Source::Requests);
        let (connection, caller) = connection(&closer);
        while rustix::net::send(connection.get_ref(), &[0; 512], SendFlags::NOSIGNAL).is_ok() {}
        let mut answered = pin!(answer(&connection, Answer::Done.into(), None, &closer));
        let almost = tokio::time::timeout(REQUEST_WAIT / 2, answered.as_mut()).await;
        assert!(almost.is_err(), "it still waits");
        while rustix::net::recv(&caller, &mut [0; 512], rustix::net::RecvFlags::DONTWAIT).is_ok() {}
        answered.await.expect("there is room now");
        assert!(is_carried_out(&caller));
    }

    #[tokio::test(flavor = "local")]
    async fn a_request_beyond_the_places_of_its_user_is_not_carried_out() {
        let registry = Rc::new(registry());
        let closer = registry.resources().closer(1, Source::Requests);
        let mut frame = [0; FRAME_BYTES_MAX];
        let bytes = DaemonRequest::Barrier.encode(&mut frame).expect("a short request");
        let mut all: Vec<Permit> = std::iter::from_fn(|| registry.resources().take_carried_out(1)).collect();
        assert!(all.len() > 1024, "{}: some may wait for peers", all.len());
        for has_place in [false, true, true] {
            let (daemon_end, caller) = connection(&closer);
            rustix::net::send(&caller, &frame[..bytes], SendFlags::NOSIGNAL).expect("room");
            let permit = registry.resources().take_silent(1).expect("a place");
            let (registry, closer) = (Rc::clone(&registry), Arc::clone(&closer));
            let caller_of = Caller { registry, closer, requester: requester(1) };
            soon(attend(daemon_end.into_inner(), permit, &caller_of)).await.expect("it is answered");
            assert_eq!(is_carried_out(&caller), has_place);
            // Each answer gives its place back.
            all.truncate(all.len() - usize::from(!has_place));
        }
    }

    #[test]
    fn a_program_is_told_why_descriptors_cannot_be_sent_in_words_that_it_knows() {
        for (error, told) in [(Errno::NOBUFS, Errno::NOBUFS), (Errno::TOOMANYREFS, Errno::NFILE)] {
            assert!(matches!(failure(&error.into()).answer, Answer::Failed(errno) if errno == told));
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn an_answer_waits_until_the_descriptors_of_the_request_are_closed() {
        let closers = Closers::new(DescriptorBudget::with_max(NUMBERS));
        let closer = closers.of(1, Source::Requests);
        let (end_it, ends) = std::sync::mpsc::channel::<()>();
        closer.run(move || ends.recv().unwrap_or_default());
        let (other_end, sent) = connection(&closer);
        let mut closing = pin!(close(vec![closer.take_over(sent)]));
        let is_done = closing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_done, "the closer has not come to it");
        drop(end_it);
        // The clock of the test stands still meanwhile.
        while !polls(other_end.get_ref(), PollFlags::HUP) {
            std::thread::yield_now();
        }
        closing.await;
    }

    #[test]
    fn requests_with_a_wrong_number_of_descriptors_are_refused() {
        let place = place("two");
        let listener = place.listen().expect("a free name");
        let answer_to = |request: Request<'_>, descriptors: &[BorrowedFd<'_>]| {
            let caller = place.connect().expect("room");
            let mut frame = [0; FRAME_BYTES_MAX];
            let bytes = request.encode(&mut frame).expect("a short request");
            let frame = [IoSlice::new(&frame[..bytes])];
            send_with_descriptors(&caller, &frame, descriptors, SendFlags::NOSIGNAL).expect("room");
            caller
        };
        let callers = [
            answer_to(DaemonRequest::Describe.into(), &[listener.as_fd()]),
            answer_to(DaemonRequest::Describe.into(), &[listener.as_fd(); 2]),
            answer_to(SocketRequest::Attach.into(), &[]),
        ];
        // A thread closes what was sent: the answers come when it has done so.
        let is_answered = |caller: &OwnedFd| polls(caller.as_fd(), PollFlags::IN);
        serve_until(listener, "each request is answered", |_| callers.iter().all(is_answered));
        let failures = callers.map(|caller| {
            let mut frame = [0; FRAME_BYTES_MAX];
            let received = rustix::net::recv(&caller, &mut frame[..], rustix::net::RecvFlags::DONTWAIT);
            let bytes = received.expect("an answer").1;
            match request::Answer::parse(&frame[..bytes]).expect("an answer") {
                request::Answer::Failed(errno) => Some(errno),
                _ => None,
            }
        });
        let [invalid, bad] = [Errno::INVAL, Errno::BADF].map(Errno::raw_os_error);
        assert_eq!(failures, [None, Some(invalid), Some(bad)]);
    }
}
