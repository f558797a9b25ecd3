//! Two associations that are spliced, past the program between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use streams::Credentials;
use swiftwater::internals::SendBudget;
use swiftwater::{
    Association, AssociationOptions, SendError, SendInfo, SendPool, SpliceError, Stack, StackOptions, streams,
};

use crate::pair::must_end;

/// The ends of two associations: those of a client each, and those of the program between them.
struct Between {
    clients: [Association; 2],
    ends: [Association; 2],
}

fn between(options: [&AssociationOptions; 2]) -> Between {
    between_with(&AssociationOptions::default(), options)
}

/// Returns the ends, those of the program between them with these options.
fn between_with(program: &AssociationOptions, options: [&AssociationOptions; 2]) -> Between {
    let options_of = |association: &AssociationOptions| {
        StackOptions::default()
            .with_udp_port(0)
            .with_local_addresses(vec!["127.0.0.1".parse().unwrap()])
            .with_association(association.clone())
    };
    let stack = Stack::bind(&options_of(program)).unwrap();
    let listener = stack.listen(7).unwrap();
    let joined = options.map(|options| {
        let client = Stack::bind(&options_of(options)).unwrap();
        let client = client.connect(listener.address()).unwrap();
        (client, listener.accept().unwrap().0)
    });
    let [(a, to_a), (b, to_b)] = joined;
    Between { clients: [a, b], ends: [to_a, to_b] }
}

#[test]
fn messages_wait_for_a_reader_beyond_the_splice() {
    must_end(|| {
        const MESSAGES_MAX: u32 = 200_000;
        let default = AssociationOptions::default();
        let Between { clients: [a, b], ends: [to_a, to_b] } = between([&default, &default]);
        to_a.stream().splice(&to_b.stream(), Credentials::ROOT).unwrap();
        let queued = || to_b.stream().describe().unwrap().driver.write.messages;
        let mut sent = 0u32;
        while queued() == 0 {
            match a.try_send(&[&sent.to_be_bytes()[..], &[7; 1000]].concat(), &SendInfo::default()) {
                Ok(()) => sent += 1,
                Err(SendError::WouldBlock) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
            assert!(sent < MESSAGES_MAX, "messages wait for room");
        }
        for number in 0..sent {
            assert_eq!(b.recv().unwrap().unwrap().to_vec()[..4], number.to_be_bytes());
        }
        let status = to_a.stream().splice_status().unwrap();
        assert_eq!((status.messages, status.owner), (u64::from(sent), Credentials::ROOT));
        to_b.stream().unsplice().unwrap();
        assert_eq!(to_a.stream().splice_status(), None);
        to_b.send(b"from the program").unwrap();
        assert_eq!(b.recv().unwrap().unwrap().to_vec(), b"from the program");
    });
}

#[test]
fn a_program_sends_behind_what_was_passed_on() {
    must_end(|| {
        let default = AssociationOptions::default();
        let Between { clients: [a, b], ends: [to_a, to_b] } = between([&default, &default]);
        to_a.stream().splice(&to_b.stream(), Credentials::ROOT).unwrap();
        let queued = || to_b.stream().describe().unwrap().driver.write.messages;
        let mut sent = 0u32;
        while queued() < 10 {
            match a.try_send(&[&sent.to_be_bytes()[..], &[7; 1000]].concat(), &SendInfo::default()) {
                Ok(()) => sent += 1,
                Err(SendError::WouldBlock) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        let passed_on = to_a.stream().splice_status().unwrap().messages;
        to_b.stream().unsplice().unwrap();
        let mut numbers = 0..passed_on as u32;
        loop {
            match to_b.try_send(b"mine", &SendInfo::default()) {
                Ok(()) => break,
                Err(SendError::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
            if let Some(number) = numbers.next() {
                assert_eq!(b.recv().unwrap().unwrap().to_vec()[..4], number.to_be_bytes());
            }
        }
        for number in numbers {
            assert_eq!(b.recv().unwrap().unwrap().to_vec()[..4], number.to_be_bytes());
        }
        assert_eq!(b.recv().unwrap().unwrap().to_vec(), b"mine");
    });
}

#[test]
fn the_end_of_an_association_comes_behind_what_was_passed_on() {
    must_end(|| {
        let default = AssociationOptions::default();
        let Between { clients: [a, b], ends: [to_a, to_b] } = between([&default, &default]);
        to_a.stream().splice(&to_b.stream(), Credentials::ROOT).unwrap();
        for number in 0..1000u32 {
            a.send_with(&number.to_be_bytes(), &SendInfo { ppid: number, ..SendInfo::stream(3) }).unwrap();
        }
        a.close().unwrap();
        assert!(to_a.recv().unwrap().is_none(), "the program finds the end, and no data");
        for number in 0..1000u32 {
            let message = b.recv().unwrap().unwrap();
            assert_eq!((message.info.stream, message.info.ppid), (3, number));
            assert_eq!(message.to_vec(), number.to_be_bytes());
        }
        b.send(b"to the program").unwrap();
        assert_eq!(to_b.recv().unwrap().unwrap().to_vec(), b"to the program");
    });
}

#[test]
fn each_association_must_have_the_streams_of_the_other() {
    let many = AssociationOptions::default().with_streams_out(64);
    let Between { ends: [to_a, to_b], .. } = between([&many, &AssociationOptions::default()]);
    let refused = SpliceError::TooFewStreams { inbound: 64, outbound: to_b.streams_out() };
    assert_eq!(to_a.stream().splice(&to_b.stream(), Credentials::ROOT), Err(refused));
    assert_eq!(to_b.stream().splice(&to_a.stream(), Credentials::ROOT), Err(refused));
    let Between { ends: [elsewhere, _], .. } = between([&many, &many]);
    let refused = to_a.stream().splice(&elsewhere.stream(), Credentials::ROOT);
    assert_eq!(refused, Err(SpliceError::OtherStack));
}

#[test]
fn a_record_that_was_begun_ends_before_a_splice() {
    must_end(|| {
        let default = AssociationOptions::default();
        let Between { clients: [_a, b], ends: [to_a, to_b] } = between([&default, &default]);
        let splice = || to_a.stream().splice(&to_b.stream(), Credentials::ROOT);
        let part = |more| SendInfo { more, ..SendInfo::default() };
        to_b.send_with(b"begun, ", &part(true)).unwrap();
        to_b.flush();
        assert_eq!(splice(), Err(SpliceError::InRecord), "what the peer sends would end it");
        to_b.send_with(b"ended", &part(false)).unwrap();
        splice().unwrap();
        let parts = [(); 2].map(|()| b.recv().unwrap().unwrap());
        assert_eq!(
            parts.map(|part| (part.to_vec(), part.info.more)),
            [(b"begun, ".to_vec(), true), (b"ended".to_vec(), false)]
        );
    });
}

/// A budget that counts.
#[derive(Debug)]
struct Counted {
    limit_bytes: usize,
    charged_bytes: AtomicUsize,
}

impl SendBudget for Counted {
    fn charge(&self, bytes: usize) {
        self.charged_bytes.fetch_add(bytes, Relaxed);
    }

    fn release(&self, bytes: usize) {
        self.charged_bytes.fetch_sub(bytes, Relaxed);
    }

    fn free_bytes(&self) -> usize {
        self.limit_bytes.saturating_sub(self.charged_bytes.load(Relaxed))
    }
}

/// A message that was passed on and waits is in the memory of the user whose association sends it: in its send buffer, on
/// the queue before that, and on the queues of modules.
#[test]
fn what_was_passed_on_is_charged_to_the_owner_of_the_stream() {
    must_end(|| {
        const LIMIT_BYTES: usize = 256 * 1024;
        const BYTES: usize = 4000;
        const BATCH_BYTES: usize = 80 * 1024;
        let budget = Arc::new(Counted { limit_bytes: LIMIT_BYTES, charged_bytes: AtomicUsize::new(0) });
        let program =
            AssociationOptions::default().with_send_pool(SendPool::new(Arc::<Counted>::clone(&budget)));
        let default = AssociationOptions::default();
        let Between { clients: [a, b], ends: [to_a, to_b] } = between_with(&program, [&default, &default]);
        to_b.stream().push_named("limit", &["bits=100G".to_owned()]).unwrap();
        to_a.stream().splice(&to_b.stream(), Credentials::ROOT).unwrap();
        let waits = || {
            let stream = to_b.stream().describe().unwrap();
            stream.modules[0].write.bytes + stream.driver.write.bytes
        };
        let mut sent = 0u32;
        // Until messages wait on each queue, the last one on that of the module.
        while to_b.stream().describe().unwrap().modules[0].write.messages == 0 {
            match a.try_send(&[&sent.to_be_bytes()[..], &[7; BYTES - 4]].concat(), &SendInfo::default()) {
                Ok(()) => sent += 1,
                Err(SendError::WouldBlock) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        let (waiting, charged) = (waits(), budget.charged_bytes.load(Relaxed));
        assert!(waiting >= BYTES && charged > waiting, "{charged} bytes are charged, and {waiting} wait");
        let rest = LIMIT_BYTES + 3 * 64 * 1024;
        assert!(charged < rest, "{charged} bytes: a full pool and three queues of 64 KB");
        for number in 0..sent {
            assert_eq!(b.recv().unwrap().unwrap().to_vec()[..4], number.to_be_bytes());
        }
        // The memory of the last batch stays until the next one leaves.
        while budget.charged_bytes.load(Relaxed) > BATCH_BYTES {
            std::thread::yield_now();
        }
    });
}
