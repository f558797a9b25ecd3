//! Ending all associations of a stack at once.

use std::thread;
use std::time::Duration;

use swiftwater::{
    Association, AssociationOptions, LossKind, RecvError, SendInfo, Stack, StackOptions, internals,
};

use crate::pair::{must_end, recv_whole};

/// More ABORTs than the core queues of packets without an association.
const MANY: usize = 600;
const MESSAGE_BYTES: usize = 60_000;
const PATIENCE: Duration = Duration::from_secs(10);

fn stack() -> Stack {
    let association = AssociationOptions::default()
        .with_receive_buffer_bytes(256 << 10)
        .with_receive_buffer_bytes_max(0)
        .with_send_buffer_bytes_max(0);
    let options = StackOptions::default()
        .with_udp_port(0)
        .with_local_addresses(vec!["127.0.0.1".parse().unwrap()])
        .with_association(association);
    Stack::bind(&options).unwrap()
}

/// Sends until neither this side nor the peer, which reads nothing, has room; returns the number of messages.
fn fill(association: &Association) -> usize {
    let mut sent = 0;
    loop {
        while association.try_send(&[1; MESSAGE_BYTES], &SendInfo::default()).is_ok() {
            sent += 1;
        }
        let known = association.statistics().unwrap();
        // At most a probe of the window is on its way.
        if known.peer_window_bytes < MESSAGE_BYTES as u64 && known.outstanding_chunks <= 1 {
            return sent;
        }
        thread::yield_now();
    }
}

fn reason_of(peer: &Association) -> String {
    match peer.recv().unwrap_err() {
        RecvError::Lost(loss) if loss.kind == LossKind::PeerAborted => loss.to_string(),
        other => panic!("{other}"),
    }
}

#[test]
fn each_of_many_peers_is_told_of_an_abort() {
    must_end(|| {
        let (own, peer_stack) = (stack(), stack());
        let listener = peer_stack.listen(7).unwrap();
        let pair = |_| (own.connect(listener.address()).unwrap(), listener.accept().unwrap().0);
        let (clients, peers): (Vec<_>, Vec<_>) = (0..MANY).map(pair).unzip();
        own.abort_all("the service was stopped");
        assert_eq!(own.statistics().associations, 0);
        for peer in &peers {
            let reason = reason_of(peer);
            assert!(reason.contains("the service was stopped"), "{reason}");
        }
        drop(clients);
    });
}

#[test]
fn a_wait_for_the_end_sees_a_last_packet_that_came_before_it() {
    must_end(|| {
        for _ in 0..20 {
            let (own, peer_stack) = (stack(), stack());
            let listener = own.listen(7).unwrap();
            let client = peer_stack.connect(listener.address()).unwrap();
            client.send(b"one").unwrap();
            client.close().unwrap();
            assert!(internals::await_end(&own, Duration::MAX));
        }
    });
}

#[test]
fn a_wait_for_the_end_returns_with_the_last_association() {
    must_end(|| {
        let (own, peer_stack) = (stack(), stack());
        assert!(internals::await_end(&own, Duration::ZERO), "there is none");
        let listener = peer_stack.listen(7).unwrap();
        let pair = |_| (own.connect(listener.address()).unwrap(), listener.accept().unwrap().0);
        let (clients, peers): (Vec<_>, Vec<_>) = (0..3).map(pair).unzip();
        assert!(!internals::await_end(&own, Duration::from_millis(1)));
        let waiting = thread::spawn({
            let own = own.clone();
            move || internals::await_end(&own, Duration::MAX)
        });
        for (client, peer) in clients.into_iter().zip(peers) {
            assert!(!waiting.is_finished());
            let closing = thread::spawn(move || peer.close());
            client.close().unwrap();
            closing.join().unwrap().unwrap();
        }
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn a_shutdown_in_progress_is_not_aborted_with_open_associations() {
    must_end(|| {
        let (own, peer_stack) = (stack(), stack());
        let listener = peer_stack.listen(7).unwrap();
        let ending = own.connect(listener.address()).unwrap();
        let (ending_peer, _) = listener.accept().unwrap();
        let open = own.connect(listener.address()).unwrap();
        let (open_peer, _) = listener.accept().unwrap();
        // The peer reads nothing yet: its window closes, and the shutdown cannot complete.
        let sent = fill(&ending);
        ending.shutdown().unwrap();
        internals::abort_open(&own, "the service was stopped");
        assert!(reason_of(&open_peer).contains("the service was stopped"));
        for _ in 0..sent {
            assert_eq!(recv_whole(&ending_peer).unwrap().len(), MESSAGE_BYTES);
        }
        assert!(recv_whole(&ending_peer).is_none());
        assert!(internals::await_end(&own, PATIENCE));
        drop((open, ending));
    });
}

#[test]
fn a_peer_that_does_not_take_what_was_sent_is_aborted_when_the_wait_is_over() {
    must_end(|| {
        let (own, peer_stack) = (stack(), stack());
        let listener = peer_stack.listen(7).unwrap();
        let client = own.connect(listener.address()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        // The peer reads nothing: its window closes before all of this has arrived.
        fill(&client);
        assert!(!own.close(Duration::from_millis(100), "the service was stopped"));
        assert_eq!(own.statistics().associations, 0);
        let lost = loop {
            if let Err(lost) = peer.recv() {
                break lost;
            }
        };
        assert!(lost.to_string().contains("the service was stopped"), "{lost}");
    });
}
