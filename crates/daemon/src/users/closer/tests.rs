use std::io::{ErrorKind, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::{self, Waker};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, send,
    sendmsg, socketpair, sockopt,
};

use tokio::io::Interest;

use super::*;
use crate::system::descriptor_io::register;
use crate::testing::{send_with, soon, until};

fn pair() -> (OwnedFd, OwnedFd) {
    let kind = SocketType::SEQPACKET;
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair")
}

/// Returns a socket whose close waits for its peer, and the peer.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (program_end, _) = listener.accept().expect("a connection");
    sockopt::set_socket_linger(&client, Some(Duration::from_secs(1000))).expect("a socket");
    client.set_nonblocking(true).expect("a socket");
    let full = loop {
        if let Err(error) = client.write(&[0; 1 << 16]) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    (client.into(), program_end)
}

#[tokio::test(flavor = "local")]
async fn one_that_is_stuck_keeps_no_other_user_waiting() {
    let closers = Closers::new(DescriptorBudget::with_max(1 << 16));
    let (one, other) = (closers.of(1, Source::Requests), closers.of(2, Source::Requests));
    let (descriptor, peer) = lingering();
    drop(one.take_over(descriptor));
    until("the close is stuck", || one.is_stuck()).await;
    drop(other.take_over(pair().0));
    until("the other user's descriptor is closed", || other.thread.pending() == 0).await;
    assert!(!other.is_stuck() && one.is_stuck());
    let same_user = closers.of(1, Source::Pairs);
    assert!(!same_user.is_stuck(), "another source");
    // The reset of the connection ends the close.
    drop(peer);
    until("the first user's descriptor is closed", || one.thread.pending() == 0).await;
    assert!(!one.is_stuck());
}

#[test]
fn a_user_of_whom_nothing_is_left_takes_no_memory() {
    let closers = Closers::new(DescriptorBudget::with_max(1 << 16));
    let of = |user| closers.of(user, Source::Requests);
    let known = || {
        let mut known: Vec<u32> = lock(&closers.users).keys().copied().collect();
        known.sort_unstable();
        known
    };
    let _has_threads = of(1);
    let has_a_socket = Arc::clone(&of(2).time);
    of(3).time().throttle_for(Duration::from_secs(60));
    drop(of(4));
    drop(of(5));
    assert_eq!(known(), [1, 2, 3, 5], "the fourth had nothing when the fifth came");
    drop(has_a_socket);
    drop(of(6));
    assert_eq!(known(), [1, 3, 6]);
}

#[tokio::test(flavor = "local")]
async fn a_user_has_room_for_so_much() {
    let closers = Closers::new(DescriptorBudget::with_max(1 << 16));
    let one = closers.of(1, Source::Requests);
    let (descriptor, peer) = lingering();
    drop(one.take_over(descriptor));
    let (copied, _) = pair();
    for _ in 0..PENDING_MAX {
        assert!(one.has_room());
        drop(one.take_over(copied.try_clone().expect("a copy")));
    }
    assert!(!one.has_room() && one.is_stuck());
    // The reset of the connection ends the close.
    drop(peer);
    soon(one.room()).await;
    assert!(one.has_room());
}

/// Puts a record into a socket that is connected, with a descriptor or without.
fn put(socket: &OwnedFd, content: &[u8], has_descriptor: bool) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [socket.as_fd()];
    if has_descriptor {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let record = [std::io::IoSlice::new(content)];
    sendmsg(socket, &record, &mut control, SendFlags::NOSIGNAL).expect("there is room");
}

#[tokio::test(flavor = "local")]
async fn unread_records_without_descriptors_cost_a_user_who_is_stuck_no_number() {
    let closers = Closers::new(DescriptorBudget::with_max(1 << 16));
    let one = closers.of(1, Source::Requests);
    let (descriptor, peer) = lingering();
    drop(one.take_over(descriptor));
    until("the close is stuck", || one.is_stuck()).await;
    let drop_one_with = |records: &[(&[u8], bool)]| {
        let (client, program_end) = pair();
        records.iter().for_each(|(content, has_descriptor)| put(&program_end, content, *has_descriptor));
        drop(program_end);
        drop(one.guard_connection(client));
    };
    drop_one_with(&[(b"a request", false), (b"", false), (b"and more", false), (b"", false)]);
    assert_eq!(one.thread.pending(), 1, "only what is stuck");
    drop_one_with(&[(b"", false), (b"a request", false), (b"", true), (b"more", false)]);
    assert_eq!(one.thread.pending(), 2, "the thread closes a descriptor, and whatever is with it");
    drop(peer);
}

#[test]
fn the_connections_of_a_throttled_user_are_closed_by_the_thread() {
    let one = Closers::new(DescriptorBudget::with_max(1 << 16)).of(1, Source::Requests);
    let (go_on, goes_on) = mpsc::channel::<()>();
    one.run(move || goes_on.recv().unwrap_or_default());
    drop(one.guard_connection(pair().0));
    assert_eq!(one.thread.pending(), 1, "an empty one is closed at once");
    one.time().throttle_for(STUCK_WAIT);
    drop(one.guard_connection(pair().0));
    assert_eq!(one.thread.pending(), 2);
    drop(go_on);
}

#[test]
fn an_end_with_descriptors_in_its_queue_is_not_finished() {
    let closer = Closers::new(DescriptorBudget::with_max(1 << 16)).of(1, Source::Requests);
    let (client, program_end) = pair();
    assert!(closer.guard_connection(client).is_finished(), "the queue is empty");
    assert!(send(&program_end, b"late", SendFlags::NOSIGNAL).is_err(), "no further input");

    for content in [&b""[..], b"some"] {
        let (client, program_end) = pair();
        // A message without bytes looks like the end of the stream.
        send(&program_end, b"", SendFlags::NOSIGNAL).expect("there is room");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [program_end.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let record = [std::io::IoSlice::new(content)];
        sendmsg(&program_end, &record, &mut control, SendFlags::NOSIGNAL).expect("there is room");
        assert!(!closer.guard_connection(client).is_finished());
    }
}

#[test]
fn all_descriptors_of_a_message_are_received() {
    let closer = Closers::new(DescriptorBudget::with_max(1 << 16)).of(1, Source::Requests);
    let (client, program_end) = pair();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [program_end.as_fd(); MESSAGE_DESCRIPTORS_MAX];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(&program_end, &[std::io::IoSlice::new(b"all")], &mut control, SendFlags::NOSIGNAL).expect("room");
    let message = receive(&client, &mut [0; 8], &closer, closer.time()).expect("a message");
    assert_eq!((message.bytes, message.descriptors.len()), (3, MESSAGE_DESCRIPTORS_MAX));
}

#[tokio::test(flavor = "local")]
async fn a_caller_whose_own_end_is_all_that_it_has_sent_is_not_waited_for() {
    let closer = Closers::new(DescriptorBudget::with_max(1 << 16)).of(1, Source::Requests);
    let (flags, kind) = (SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, SocketType::SEQPACKET);
    let (daemon_end, caller) = socketpair(AddressFamily::UNIX, kind, flags, None).expect("a pair");
    let interest = Interest::READABLE | Interest::WRITABLE;
    let connection = register(closer.guard_connection(daemon_end), interest).expect("room");
    rustix::net::send(connection.get_ref(), b"an answer", SendFlags::NOSIGNAL).expect("room");
    send_with(&caller, b"more", &[&caller]);
    // Only the queue has it now.
    drop(caller);
    soon(all_received(&connection, &closer)).await;
}

#[tokio::test(flavor = "local")]
async fn there_is_room_as_soon_as_another_closer_has_freed_numbers() {
    let closers = Closers::new(DescriptorBudget::with_max(512));
    let (one, other) = (closers.of(1, Source::Requests), closers.of(2, Source::Pairs));
    let all = std::iter::from_fn(|| one.has_room().then(|| other.count_descriptor()));
    let taken: Vec<DescriptorPermit> = all.collect();
    let mut room = std::pin::pin!(one.room());
    tokio::select! {
        biased;
        () = &mut room => panic!("all numbers are taken"),
        () = tokio::task::yield_now() => {}
    }
    drop(taken);
    soon(room).await;
}

#[test]
fn a_closer_is_behind_and_stuck_beyond_so_many_descriptors() {
    let closers = Closers::new(DescriptorBudget::with_max(1 << 16));
    closers.threads.pretend_none_is_left();
    let one = closers.of(1, Source::Requests);
    for pending in 1..=PENDING_MAX + 1 {
        one.run(|| ());
        let expected = (pending > BEHIND_AFTER, pending > PENDING_MAX);
        assert_eq!((one.is_behind(), one.is_stuck()), expected, "{pending} wait");
    }
}

#[tokio::test(flavor = "local")]
async fn a_closer_that_is_late_is_waited_for() {
    let one = Closers::new(DescriptorBudget::with_max(1 << 16)).of(1, Source::Requests);
    let is_pending = |wait: Pin<&mut dyn Future<Output = ()>>| {
        wait.poll(&mut task::Context::from_waker(Waker::noop())).is_pending()
    };
    assert!(!is_pending(pin!(one.drained())), "it has no work");
    let (end_it, ends) = mpsc::channel::<()>();
    one.run(move || ends.recv().unwrap_or_default());
    one.thread.pretend_late();
    assert!(one.is_stuck() && one.is_behind());
    let mut goes_on = pin!(one.goes_on());
    assert!(is_pending(pin!(async { _ = goes_on.as_mut().await })));
    assert!(is_pending(pin!(one.drained())));
    drop(end_it);
    assert!(soon(goes_on).await);
    until("the work is done", || one.thread.pending() == 0).await;
    assert!(!is_pending(pin!(one.drained())) && soon(one.goes_on()).await);
}
