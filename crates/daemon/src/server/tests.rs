//! Tests of connections, requests and answers.

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
        let server = tokio::task::spawn_local(serve(listener, Rc::new(registry.expect("random numbers"))));
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
        let pair =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None);
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
    let connection = register(closer.guard_connection(daemon_end), Interest::READABLE | Interest::WRITABLE)
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
