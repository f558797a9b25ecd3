//! The wait of a thread: it becomes the leader and sleeps on the sockets, or follows the poller there is.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use streams::{Interest, StreamId};

use super::super::poller::Poller;
use super::super::{Entered, Inner, Shard};
use super::WakeTarget;
use crate::watch::Sleeper;

impl Shard {
    /// Waits until stream `s` may have changed. The caller then tries again, and either waits again or calls
    /// [`Shard::after_wait`]. Returns false if the deadline has passed.
    pub(crate) fn wait<'a>(
        &'a self,
        mut inner: Entered<'a>,
        s: StreamId,
        interest: Interest,
        deadline: Option<Instant>,
    ) -> (Entered<'a>, bool) {
        if inner.before_wait(s, interest) {
            return (inner, true);
        }
        // A busy poll ends when the stream is ready, which that of an observer never is.
        let may_poll = inner.poller.current() != Poller::Leader && !inner.is_observer(s);
        if may_poll && inner.busy_poll.should_poll() {
            let ready;
            (inner, ready) = self.poll_busily(inner, s, interest);
            if ready {
                return (inner, true);
            }
        }
        if inner.poller.current() == Poller::Leader {
            return self.wait_as_follower(
                inner,
                (s, interest),
                deadline,
                WakeTarget::Thread(thread::current()),
            );
        }
        if inner.poller.on_lead() == Poller::Background {
            inner.waiting.interrupt(Sleeper::Background);
        }
        let (mut inner, in_time) = self.wait_as_leader(inner, (s, interest), deadline);
        inner.poller.on_lead_ended();
        let ready = inner.is_ready(s, interest);
        if in_time && !inner.is_observer(s) && inner.waiting.leading_for_others.on_led(s, ready) {
            return self.step_down(inner, (s, interest), deadline);
        }
        (inner, in_time || ready)
    }

    /// Waits until another poller has a message or an event for `s`. The background thread polls if no other thread does soon.
    fn step_down<'a>(
        &'a self,
        mut inner: Entered<'a>,
        purpose: (StreamId, Interest),
        deadline: Option<Instant>,
    ) -> (Entered<'a>, bool) {
        inner.hand_over_lead();
        self.background.arm();
        self.wait_as_follower(inner, purpose, deadline, WakeTarget::SteppedDown(thread::current()))
    }

    /// Completes the last [`Shard::wait`] of a call, whatever ended it. This thread leaves, so another waiting thread
    /// or the background thread must take the lead.
    pub(crate) fn after_wait(&self, inner: &mut Inner) {
        if matches!(inner.poller.current(), Poller::None | Poller::Task) {
            inner.hand_over_lead();
        }
        self.background.arm();
    }

    /// Polls the sockets for a moment. The perimeter is open between two polls.
    fn poll_busily<'a>(
        &'a self,
        mut inner: Entered<'a>,
        s: StreamId,
        interest: Interest,
    ) -> (Entered<'a>, bool) {
        inner.take_arrivals();
        if inner.is_ready(s, interest) {
            // The packet was there before the first poll, which says nothing about the benefit of more.
            return (inner, true);
        }
        let began = Instant::now();
        let limit = inner.busy_poll.limit(self.busy_poll_max);
        while began.elapsed() < limit {
            drop(inner);
            std::hint::spin_loop();
            inner = self.enter();
            inner.executive.begin_round();
            inner.take_arrivals();
            if inner.is_ready(s, interest) {
                // If another thread ran on this processor meanwhile, the packet would have come without busy polling,
                // too.
                if began.elapsed() < limit {
                    inner.busy_poll.on_success();
                } else {
                    inner.busy_poll.on_failure();
                }
                return (inner, true);
            }
        }
        inner.busy_poll.on_failure();
        (inner, false)
    }

    /// Sleeps on the sockets once, and handles the events that end the sleep.
    fn wait_as_leader<'a>(
        &'a self,
        mut inner: Entered<'a>,
        purpose: (StreamId, Interest),
        deadline: Option<Instant>,
    ) -> (Entered<'a>, bool) {
        let until = inner.begin_sleep(Sleeper::Leader, Some(purpose), deadline);
        let room = inner.is_refused();
        let sockets = Arc::clone(&inner.sockets);
        drop(inner);
        self.watch.wait_as_leader(&sockets, until, room);
        let mut inner = self.enter();
        inner.end_sleep(Sleeper::Leader);
        inner.executive.begin_round();
        inner.take_arrivals();
        let in_time = deadline.is_none_or(|d| Instant::now() < d);
        (inner, in_time)
    }

    /// Prepares a poller that holds no socket to sleep on the [`Watch`], outside the perimeter; returns how long it may
    /// sleep.
    pub(crate) fn prepare_poll(&self, inner: &mut Inner, sleeper: Sleeper) -> Option<Instant> {
        self.watch_room(inner);
        inner.begin_sleep(sleeper, None, None)
    }

    /// Makes the watch wait for room to send if a driver was refused it, and otherwise not.
    fn watch_room(&self, inner: &mut Inner) {
        let room = inner.is_refused();
        if room != inner.waiting.watches_room {
            inner.waiting.watches_room = room;
            self.watch.for_room(&inner.sockets, room);
        }
    }

    /// Handles the events that ended the sleep of a poller that holds no socket.
    pub(crate) fn resume(&self, inner: &mut Inner, sleeper: Sleeper) {
        inner.end_sleep(sleeper);
        inner.executive.begin_round();
        inner.take_arrivals();
        // A socket with room is always ready: while the watch waits for room that no driver needs any more, a task that polls
        // until nothing is ready would poll for ever.
        self.watch_room(inner);
    }

    /// Sleeps until the polling thread has a message or an event for `s`. `thread` is the calling one.
    fn wait_as_follower<'a>(
        &'a self,
        mut inner: Entered<'a>,
        (s, interest): (StreamId, Interest),
        deadline: Option<Instant>,
        thread: WakeTarget,
    ) -> (Entered<'a>, bool) {
        let ticket = inner.register(s, interest, thread);
        drop(inner);
        match deadline {
            None => thread::park(),
            Some(d) => thread::park_timeout(d.saturating_duration_since(Instant::now())),
        }
        let mut inner = self.enter();
        inner.unregister(s, ticket);
        let ready = inner.is_ready(s, interest);
        if ready {
            inner.waiting.leading_for_others.on_follower_woken();
        }
        let in_time = ready || deadline.is_none_or(|d| Instant::now() < d);
        (inner, in_time)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use sctp::{MadeData, ReceiveBudget, ReceivePool};

    use super::*;
    use crate::socket::{Socket, Style, Wait};
    use crate::{AssociationOptions, Stack, StackOptions};

    /// Time limit of a wait.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Waits until the shard satisfies `is`; the message of a failure names what was `awaited`.
    #[track_caller]
    fn until(awaited: &str, socket: &Socket, is: impl Fn(&Inner) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is(&socket.shard.enter()) {
            assert!(Instant::now() < deadline, "waited in vain: {awaited}");
            thread::yield_now();
        }
    }

    fn stack(busy_poll: Duration) -> Stack {
        let options = StackOptions {
            udp_port: Some(0),
            local_addresses: vec!["127.0.0.1".parse().expect("an address")],
            busy_poll,
            ..StackOptions::default()
        };
        Stack::bind(&options).expect("a free port")
    }

    fn leads(inner: &Inner, socket: &Socket) -> bool {
        let sleep = inner.waiting.sleeps[Sleeper::Leader as usize];
        sleep.and_then(|sleep| sleep.purpose).is_some_and(|(s, _)| s == socket.stream)
    }

    #[test]
    fn a_leader_that_leaves_before_its_stream_is_ready_hands_the_lead_on() {
        let stack = stack(StackOptions::default().busy_poll);
        let sockets = [(); 2].map(|()| Socket::open(&stack.shard, Style::OneToMany).expect("room"));
        let done = [(); 2].map(|()| AtomicBool::new(false));
        let wait = |number: usize| {
            let attempt = |_: &mut Inner| done[number].load(Ordering::Relaxed).then_some(());
            sockets[number].until(Interest::READABLE, Wait::Forever, attempt)
        };
        thread::scope(|scope| {
            scope.spawn(|| wait(0));
            until("the first thread leads", &sockets[0], |inner| leads(inner, &sockets[0]));
            scope.spawn(|| wait(1));
            let waits = |inner: &Inner| inner.waiting.by_stream.contains_key(&sockets[1].stream);
            until("the second thread waits", &sockets[1], waits);
            // The attempt has a result although nothing can be read.
            done[0].store(true, Ordering::Relaxed);
            sockets[0].shard.enter().waiting.interrupt(Sleeper::Leader);
            until("the second thread leads", &sockets[1], |inner| leads(inner, &sockets[1]));
            done[1].store(true, Ordering::Relaxed);
            sockets[1].shard.enter().waiting.interrupt(Sleeper::Leader);
        });
    }

    #[test]
    fn a_packet_that_came_before_the_first_busy_poll_is_no_success_of_it() {
        let bind = || stack(Duration::from_secs(1));
        let (client_stack, server_stack) = (bind(), bind());
        let listener = server_stack.listen(7).expect("a free port");
        let client = client_stack.connect(listener.address()).expect("it listens");
        let (server, _) = listener.accept().expect("it has connected");
        let credit = || server_stack.shard.enter().busy_poll.credit();
        let before = credit();
        for n in 0..8_u8 {
            // The message is in the socket of the other stack when this returns.
            client.send(&[n]).expect("it is up");
            client.flush();
            assert_eq!(server.recv().expect("it is up").expect("a message").to_vec(), [n]);
        }
        assert_eq!(credit(), before);
    }

    #[test]
    fn a_follower_that_waits_for_the_end_is_told_of_it_by_the_leader() {
        let [own, peers] = [(); 2].map(|()| stack(Duration::ZERO));
        let listener = peers.listen(7).expect("a free port");
        let client = own.connect(listener.address()).expect("it listens");
        let (peer, _) = listener.accept().expect("it has connected");
        let own_listener = own.listen(8).expect("a free port");
        thread::scope(|scope| {
            let leader = scope.spawn(|| own_listener.accept_timeout(PATIENCE));
            let socket = own_listener.shared.socket();
            until("the listener polls the sockets", socket, |inner| leads(inner, socket));
            let follower = scope.spawn(|| own.await_end(PATIENCE));
            until("the wait for the end follows", socket, |inner| {
                inner.waiting.observers.iter().any(|s| inner.waiting.by_stream.contains_key(s))
            });
            peer.abort("enough");
            assert!(follower.join().expect("no panic"));
            peers.connect(own_listener.address()).expect("it listens");
            leader.join().expect("no panic").expect("it has connected");
        });
        drop(client);
    }

    #[test]
    fn a_leader_that_only_wakes_another_thread_lets_it_lead() {
        let [own, peers] = [(); 2].map(|()| stack(Duration::ZERO));
        let listener = peers.listen(7).expect("a free port");
        let client = own.connect(listener.address()).expect("it listens");
        let (peer, _) = listener.accept().expect("it has connected");
        let own_listener = own.listen(8).expect("a free port");
        let (idle, reading) = (own_listener.shared.socket(), client.shared.socket());
        let send = |content: &[u8]| {
            peer.send(content).expect("it is up");
            peer.flush();
        };
        thread::scope(|scope| {
            let acceptor = scope.spawn(|| own_listener.accept_timeout(PATIENCE));
            until("the listener polls the sockets", idle, |inner| leads(inner, idle));
            let reader = scope.spawn(|| [(); 2].map(|()| client.recv_timeout(PATIENCE)));
            until("the reader follows", reading, |inner| {
                inner.waiting.by_stream.contains_key(&reading.stream)
            });
            own.shard.enter().waiting.leading_for_others.set_due(idle.stream);
            send(b"a word");
            until("the reader polls the sockets", reading, |inner| leads(inner, reading));
            send(b"another");
            let received = reader.join().expect("no panic");
            assert!(received.into_iter().all(|received| received.expect("it is up").is_some()));
            // No thread of the program polls the sockets now.
            peers.connect(own_listener.address()).expect("it listens");
            acceptor.join().expect("no panic").expect("it has connected");
        });
    }

    /// Memory that counts the work of modules.
    #[derive(Debug, Default)]
    struct Counting {
        work: AtomicUsize,
        made: MadeData,
    }

    impl ReceiveBudget for Counting {
        fn take(&self, _bytes: usize, _is_reserve: bool) -> bool {
            true
        }
        fn release(&self, _bytes: usize) {}
        fn free_bytes(&self, _is_reserve: bool) -> usize {
            1 << 30
        }
        fn charge(&self, _bytes: usize) {}
        fn made(&self) -> &MadeData {
            &self.made
        }
        fn count_work(&self, work: usize) {
            self.work.fetch_add(work, Ordering::Relaxed);
        }
    }

    #[test]
    fn modules_do_a_part_of_their_work_until_a_poller_resumes() {
        const MESSAGES: usize = 1000;
        /// The share, and what the last timer has in excess.
        const WORK_MAX: usize = 256 + 64;
        let counting = Arc::new(Counting::default());
        let pool = ReceivePool::new(Arc::clone(&counting) as Arc<dyn ReceiveBudget>);
        let association = AssociationOptions::default().with_receive_pool(pool);
        let stack = stack(StackOptions::default().busy_poll);
        let stack = stack.with_options(&association);
        let listener = stack.listen(0).expect("a free port");
        let client = stack.connect(listener.address()).expect("it listens");
        client.stream().push_named("filter", &["delay=60000".to_owned()]).expect("it is known");
        (0..MESSAGES).for_each(|_| client.send(b"x").expect("room"));
        let mut inner = stack.shard.enter();
        let due = Instant::now() + Duration::from_secs(120);
        let mut work_of_round = || {
            let before = counting.work.load(Ordering::Relaxed);
            stack.shard.resume(&mut inner, Sleeper::Background);
            for _ in 0..MESSAGES {
                inner.executive.with_messages_queued().timeout(due);
                inner.executive.at(due).run();
            }
            counting.work.load(Ordering::Relaxed) - before
        };
        let rounds = [(); 2].map(|()| work_of_round());
        assert!(rounds.iter().all(|work| (1..=WORK_MAX).contains(work)), "{rounds:?}");
    }

    #[cfg(feature = "tokio")]
    #[test]
    fn a_poller_waits_for_room_no_longer_than_a_driver_does() {
        let stack = stack(StackOptions::default().busy_poll);
        let mut inner = stack.shard.enter();
        // As if a driver had been refused room when the poller went to sleep.
        inner.waiting.watches_room = true;
        stack.shard.watch.for_room(&inner.sockets, true);
        assert!(stack.shard.watch.is_ready(), "the sockets have room");
        stack.shard.resume(&mut inner, Sleeper::Task);
        assert!(!stack.shard.watch.is_ready(), "nothing has arrived");
    }
}
