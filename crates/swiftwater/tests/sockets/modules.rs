//! Modules on the stream of a live association.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use streams::{Chain, IoctlRequest, Kind, Message, Module, Q, Seen, SendInfo, Side, Which};
use swiftwater::modules::{BufMod, Counter};
use swiftwater::{
    Association, AssociationOptions, AssociationState, ReceivePool, RecvError, SendError, StackOptions,
};

use crate::pair::{listen_with, must_end, pair, recv_whole};

#[test]
fn a_counter_sees_every_message_in_both_directions() {
    must_end(|| {
        let (client, server) = pair();
        client.send(b"before").unwrap();
        assert_eq!(recv_whole(&server).unwrap(), b"before");
        let counter = Counter::new();
        let counts = counter.counts();
        client.stream().push(Box::new(counter)).unwrap();
        for _ in 0..100 {
            client.send(&[0; 50]).unwrap();
        }
        for _ in 0..100 {
            server.send(&recv_whole(&server).unwrap()).unwrap();
        }
        for _ in 0..100 {
            assert_eq!(recv_whole(&client).unwrap().len(), 50);
        }
        assert_eq!((counts.messages_down(), counts.bytes_down()), (100, 5000));
        assert_eq!((counts.messages_up(), counts.bytes_up()), (100, 5000));
        client.stream().pop().unwrap();
        client.send(b"after").unwrap();
        assert_eq!(recv_whole(&server).unwrap(), b"after");
        assert_eq!(counts.messages_down(), 100);
        assert!(client.stream().pop().is_err());
    });
}

#[test]
fn much_passes_a_module() {
    must_end(|| {
        let (client, server) = pair();
        let counter = Counter::new();
        let counts = counter.counts();
        client.stream().push(Box::new(counter)).unwrap();
        server.stream().push(Box::new(Counter::new())).unwrap();
        let sender = std::thread::spawn(move || {
            for _ in 0..2000 {
                client.send(&[3; 5000]).unwrap();
            }
            client.close().unwrap();
        });
        let mut bytes = 0;
        while let Some(message) = recv_whole(&server) {
            bytes += message.len();
        }
        assert_eq!(bytes, 2000 * 5000);
        assert_eq!(counts.bytes_down(), 2000 * 5000);
        sender.join().unwrap();
    });
}

/// The memory comes back on a thread that makes no call of the stack.
#[test]
fn a_module_that_waits_for_memory_goes_on_when_a_program_drops_a_message() {
    const MESSAGE_BYTES: usize = 60_000;
    must_end(|| {
        let pool = ReceivePool::with_limit(100_000);
        // No timer of the stack runs the module later.
        let quiet =
            AssociationOptions::default().with_heartbeat_interval(None).with_path_mtu_discovery(false);
        let options = quiet.clone().with_receive_pool(pool.clone());
        let of_client = StackOptions::default().with_association(quiet);
        let listener = listen_with(&StackOptions::default().with_association(options));
        let compressing = || {
            let client = Association::connect_with(listener.address(), &of_client).unwrap();
            let ends = [client, listener.accept().unwrap().0];
            ends.iter().for_each(|end| end.stream().push_named("compress", &[]).unwrap());
            for (from, to) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
                ends[from].send(b"hello").unwrap();
                assert_eq!(recv_whole(&ends[to]).unwrap(), b"hello");
            }
            ends
        };
        let [[to_one, one], [to_other, other]] = [compressing(), compressing()];
        to_one.send(&[1; MESSAGE_BYTES]).unwrap();
        let held = one.recv().unwrap().unwrap();
        assert!(!pool.has(100_000 - MESSAGE_BYTES), "the program holds what it has read");
        to_other.send(&[2; MESSAGE_BYTES]).unwrap();
        let waits = || {
            let stream = other.stream().describe().unwrap();
            stream.modules.iter().any(|module| module.read.messages == 1)
        };
        while !waits() {
            std::thread::yield_now();
        }
        assert!(other.try_recv().is_err_and(|error| error == RecvError::WouldBlock));
        let reader = std::thread::spawn(move || recv_whole(&other).unwrap());
        // Most of the time the reader sleeps by now, and the timers of its acknowledgements have expired.
        std::thread::sleep(std::time::Duration::from_millis(500));
        drop(held);
        assert_eq!(reader.join().unwrap(), [2; MESSAGE_BYTES]);
        assert!(pool.has(100_000));
    });
}

/// Panics at a message that begins with a given byte.
struct Faulty(u8);

impl Module for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        assert_ne!(
            m.data.blocks().first().and_then(|block| block.first()),
            Some(&self.0),
            "a fault on purpose"
        );
        q.pass(m);
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        assert_ne!(
            m.data.blocks().first().and_then(|block| block.first()),
            Some(&self.0),
            "a fault on purpose"
        );
        q.pass(m);
    }
}

#[test]
fn a_module_that_panics_fails_its_stream_and_nothing_else() {
    must_end(|| {
        let listener = crate::pair::listen();
        let stack = listener.stack();
        let faulty = stack.connect(listener.address()).unwrap();
        let (faulty_peer, _) = listener.accept().unwrap();
        let sound = stack.connect(listener.address()).unwrap();
        let (sound_peer, _) = listener.accept().unwrap();
        faulty.stream().push(Box::new(Faulty(b'!'))).unwrap();
        faulty.send(b"well").unwrap();
        assert_eq!(recv_whole(&faulty_peer).unwrap(), b"well");
        // The fault occurs on the way up, in the thread that takes the message in.
        faulty_peer.send(b"!").unwrap();
        assert!(faulty.recv().is_err());
        let failed = SendError::Failed("the stream has failed: input or output failed (EIO)".into());
        assert_eq!(faulty.send(b"more"), Err(failed));
        for i in 0..100u8 {
            sound.send(&[i]).unwrap();
            assert_eq!(recv_whole(&sound_peer).unwrap(), [i]);
        }
        drop(faulty);
        assert!(faulty_peer.recv().unwrap().is_none());
        sound.close().unwrap();
    });
}

#[test]
fn a_module_that_answers_after_the_peer_has_shut_down_costs_nothing_unread() {
    must_end(|| {
        let (client, server) = pair();
        server.stream().push(Box::new(Late)).unwrap();
        client.send(b"one message").unwrap();
        // More than the client's window takes, so that the server must wait with its end until the client reads.
        while server.statistics().unwrap().peer_window_bytes > 1000 {
            let _room = server.try_send(&[0; 1000], &SendInfo::default());
        }
        while server.try_send(&[0; 1000], &SendInfo::default()).is_ok() {}
        client.shutdown().unwrap();
        while server.statistics().is_some_and(|known| known.state == AssociationState::Established) {
            std::thread::yield_now();
        }
        server.stream().ioctl(IoctlRequest::str(Late::SEND, b"".to_vec())).unwrap();
        let read: Vec<Vec<u8>> = std::iter::from_fn(|| recv_whole(&server)).collect();
        assert_eq!(read, [b"one message"]);
    });
}

/// Sends a message of its own on request.
struct Late;

impl Late {
    const SEND: u32 = 1;
}

impl Module for Late {
    fn name(&self) -> &str {
        "late"
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        let Kind::Ioctl(ioctl) = &m.kind else { return q.pass(m) };
        q.putnext(Message::optdata_req(Which::Only, SendInfo::default(), b"too late".to_vec().into()));
        q.ack(ioctl, 0, Chain::new());
    }
}

#[test]
fn messages_held_by_a_module_are_read_after_the_peer_has_closed() {
    must_end(|| {
        const MESSAGES: usize = 250;
        let (client, server) = pair();
        server.stream().push(Box::new(BufMod::default())).unwrap();
        for _ in 0..MESSAGES {
            client.send(&[7; 1000]).unwrap();
        }
        // More than the head takes: the rest is with the module when the association ends.
        client.close().unwrap();
        while server.close_reason().is_none() {
            std::thread::yield_now();
        }
        let mut messages = 0;
        while let Some(message) = recv_whole(&server) {
            assert_eq!(message.len(), 1000);
            messages += 1;
        }
        assert_eq!(messages, MESSAGES);
    });
}

/// Looks at every message but each seventh, which its put procedure gets, and panics at `!`.
struct Picky(Arc<Mutex<Vec<u32>>>);

impl Picky {
    fn note(&self, bytes: &[u8]) -> u32 {
        assert_ne!(bytes, b"!", "a fault on purpose");
        let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        self.0.lock().unwrap().push(number);
        number
    }
}

impl Module for Picky {
    fn name(&self) -> &str {
        "picky"
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, side: Side, _now: Instant, m: &Seen<'_>) -> bool {
        match (side, m.whole()) {
            (Side::Write, Some(bytes)) if bytes.len() == 50 && bytes[3] % 7 == 0 => false,
            (Side::Write, Some(bytes)) => self.note(bytes) < u32::MAX,
            _ => true,
        }
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        self.note(&m.data.to_vec());
        q.pass(m);
    }
}

/// Short messages are written where the provider lends room, past the executive: modules that observe see each of them once, and
/// what they handle themselves keeps its place.
#[test]
fn what_is_written_past_the_executive_is_observed_once_and_in_order() {
    must_end(|| {
        const MESSAGES: u32 = 3000;
        let (client, server) = pair();
        let seen = Arc::<Mutex<Vec<u32>>>::default();
        let counter = Counter::new();
        let counts = counter.counts();
        client.stream().push(Box::new(Picky(Arc::clone(&seen)))).unwrap();
        client.stream().push(Box::new(counter)).unwrap();
        let reader = std::thread::spawn(move || {
            for number in 0..MESSAGES {
                assert_eq!(recv_whole(&server).unwrap()[..4], number.to_be_bytes());
            }
            server
        });
        for number in 0..MESSAGES {
            client.send(&[&number.to_be_bytes()[..], &[7; 46]].concat()).unwrap();
        }
        let server = reader.join().unwrap();
        assert!(seen.lock().unwrap().iter().copied().eq(0..MESSAGES));
        assert_eq!(counts.messages_down(), u64::from(MESSAGES));
        let head = client.stream().describe().unwrap().head;
        assert_eq!((head.messages_written, head.bytes_written), (MESSAGES.into(), u64::from(MESSAGES) * 50));
        client.send(&[&[0; 4][..], b"before"].concat()).unwrap();
        client.send(b"!").unwrap();
        assert!(client.send(b"behind").is_err(), "the stream has failed");
        assert_eq!(recv_whole(&server).unwrap()[4..], *b"before");
    });
}
