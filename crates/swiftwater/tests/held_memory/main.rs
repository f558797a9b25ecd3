//! Memory of messages that wait for peers which take nothing, measured at the allocator: the pool that their associations share
//! bounds it.
#![allow(missing_docs, reason = "a test")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod allocator;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocator::live_bytes;
use swiftwater::{Association, AssociationOptions, Bytes, Listener, SendInfo, SendPool, StackOptions};

const POOL_BYTES: usize = 4 << 20;
/// Maximum memory of an association and its peer beyond the pool: up to 64 KiB of the reserve, what the peer has received, and
/// the queues.
const REST_BYTES: usize = 160 * 1024;
/// Memory that links keep: some receive blocks at either end.
const LINKS_BYTES: usize = 5 << 20;
/// Long enough to wait as a reference to its owner's memory on the loopback interface.
const MESSAGE_BYTES: usize = 3000;

/// A server whose associations share a pool, and clients that receive little.
struct Rig {
    listener: Listener,
    clients: StackOptions,
    peers: Vec<Association>,
    /// For tasks, so that a send does not wait.
    ends: Vec<swiftwater::tokio::Association>,
    baseline_bytes: usize,
}

impl Rig {
    fn new(peers: usize) -> Self {
        let server = AssociationOptions::default()
            .with_send_pool(SendPool::with_limit(POOL_BYTES))
            .with_send_buffer_bytes(2 << 20);
        let client = AssociationOptions::default()
            .with_receive_buffer_bytes(16 << 10)
            .with_receive_buffer_bytes_max(0);
        let listener = Listener::bind_with("127.0.0.1:0/udp:0", &server.into()).unwrap();
        let mut rig =
            Rig { listener, clients: client.into(), peers: vec![], ends: vec![], baseline_bytes: 0 };
        for _ in 0..peers {
            let end = rig.connect();
            rig.ends.push(end.into());
        }
        rig.baseline_bytes = live_bytes();
        rig
    }

    /// Connects a peer. Returns the server's end.
    fn connect(&mut self) -> Association {
        let peer = Association::connect_with(self.listener.address(), &self.clients).unwrap();
        self.peers.push(peer);
        self.listener.accept().unwrap().0
    }

    /// Checks the memory that was allocated since the peers have connected.
    fn check(&self) {
        let held = live_bytes().saturating_sub(self.baseline_bytes);
        let allowed = POOL_BYTES + self.ends.len() * REST_BYTES + LINKS_BYTES;
        println!("{held} bytes are held, {allowed} allowed");
        assert!(held <= allowed, "{held} bytes are held, {allowed} allowed");
    }
}

/// Sends a message if the association takes it at once. Returns whether it has.
fn is_taken(end: &swiftwater::tokio::Association, message: Bytes) -> bool {
    let info = SendInfo::default();
    // The runtime's budget of a task would end after 128 messages.
    let sent = tokio::task::unconstrained(end.send_bytes(message, &info));
    match pin!(sent).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(sent) => {
            sent.unwrap();
            true
        }
        Poll::Pending => false,
    }
}

/// One test, because the allocator counts for all threads.
#[tokio::test]
async fn the_pool_bounds_the_memory_of_messages_that_wait() {
    short_messages_that_wait_take_little_more_than_their_chunks();
    echoed_messages_do_not_hold_the_blocks_that_they_came_in().await;
    short_messages_with_a_lifetime_do_not_hold_the_blocks_of_others();
    owned_messages_to_peers_that_take_nothing_are_charged();
}

fn short_messages_that_wait_take_little_more_than_their_chunks() {
    const MESSAGE: [u8; 16] = [7; 16];
    const CHUNK_BYTES: usize = 16 + MESSAGE.len();
    let server = AssociationOptions::default().with_send_buffer_bytes(32 << 20).with_send_buffer_bytes_max(0);
    let client =
        AssociationOptions::default().with_receive_buffer_bytes(16 << 10).with_receive_buffer_bytes_max(0);
    let listener = Listener::bind_with("127.0.0.1:0/udp:0", &server.into()).unwrap();
    let peer = Association::connect_with(listener.address(), &client.into()).unwrap();
    let end = listener.accept().unwrap().0;
    let baseline_bytes = live_bytes();
    let mut messages = 0;
    while end.try_send(&MESSAGE, &SendInfo::default()).is_ok() {
        messages += 1;
    }
    let held = live_bytes().saturating_sub(baseline_bytes);
    let allowed = messages * CHUNK_BYTES * 9 / 8 + LINKS_BYTES;
    println!("{messages} messages hold {held} bytes, {allowed} allowed");
    assert!(messages > 400_000, "{messages} messages were taken");
    assert!(held <= allowed, "{messages} messages hold {held} bytes, {allowed} allowed");
    end.abort("the test is over");
    drop(peer);
}

async fn echoed_messages_do_not_hold_the_blocks_that_they_came_in() {
    const ECHOED: usize = 20;
    let mut rig = Rig::new(8);
    let noisy = rig.connect();
    let noise = [7; 60_000];
    for _ in 0..ECHOED {
        for (peer, end) in rig.peers.iter().zip(&rig.ends) {
            peer.send(&noise[..MESSAGE_BYTES]).unwrap();
            let message = end.recv().await.unwrap().unwrap();
            assert!(is_taken(end, message.into_bytes()));
            // The rest of the block.
            for _ in 0..4 {
                rig.peers[rig.ends.len()].send(&noise).unwrap();
                assert_eq!(noisy.recv().unwrap().unwrap().len(), noise.len());
            }
        }
    }
    rig.check();
}

fn short_messages_with_a_lifetime_do_not_hold_the_blocks_of_others() {
    const MESSAGES: usize = 45;
    let mut rig = Rig::new(8);
    let noisy = rig.connect();
    let noise = [7; 15_000];
    let info = SendInfo { lifetime: Some(Duration::from_secs(3600).into()), ..SendInfo::default() };
    for end in &rig.ends {
        // More than the peer has room for.
        (0..10).for_each(|_| assert!(is_taken(end, vec![7; MESSAGE_BYTES].into())));
    }
    for _ in 0..MESSAGES {
        for end in &rig.ends {
            end.try_send(&[7; 100], &info).unwrap();
            // The rest of the block that messages are copied into.
            for _ in 0..4 {
                noisy.send(&noise).unwrap();
                assert_eq!(rig.peers[rig.ends.len()].recv().unwrap().unwrap().len(), noise.len());
            }
        }
    }
    rig.check();
}

fn owned_messages_to_peers_that_take_nothing_are_charged() {
    let rig = Rig::new(24);
    let mut taken_bytes = 0;
    for end in rig.ends.iter().cycle().take(3 * rig.ends.len()) {
        while is_taken(end, vec![7; MESSAGE_BYTES].into()) {
            taken_bytes += MESSAGE_BYTES;
        }
    }
    assert!(taken_bytes > POOL_BYTES / 2, "{taken_bytes} bytes were taken");
    rig.check();
}
