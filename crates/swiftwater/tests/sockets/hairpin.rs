//! A stack that exchanges packets with itself in memory.

use std::thread;

use swiftwater::{
    Association, AssociationOptions, BindError, Bytes, LinkBindError, LinkKind, Listener, SendInfo, Stack,
    StackOptions,
};

use crate::bulk::exchange;
use crate::pair::{assert_pattern, must_end, pattern, recv_whole};

fn options() -> StackOptions {
    StackOptions::default().with_hairpin(true).with_udp_port(0)
}

/// Returns both ends in one stack, or `None` if this user may not use its link; fails instead if the test run requires
/// all links.
fn bind(options: &StackOptions) -> Option<(Stack, Listener)> {
    match Stack::bind(options) {
        Err(BindError::Link(error @ LinkBindError::RawNotPermitted { .. })) => {
            assert!(std::env::var("SWIFTWATER_REQUIRE_TOOLS").is_err(), "{error}");
            println!("skipped: {error}");
            None
        }
        stack => {
            let stack = stack.unwrap();
            let listener = stack.listen(0).unwrap();
            Some((stack, listener))
        }
    }
}

fn pair(listener: &Listener) -> (Association, Association) {
    let client = listener.stack().connect(listener.address()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Sends bulk data in both directions, and checks how much of it the kernel has carried.
fn exchange_in_memory(options: &StackOptions) {
    let Some((stack, listener)) = bind(options) else { return };
    exchange(pair(&listener));
    let link = stack.statistics().link;
    assert!(link.datagrams_turned_back > 0);
    assert_eq!(link.datagrams_turned_back, link.datagrams_sent, "the kernel carried some");
}

#[test]
fn nothing_of_it_reaches_the_kernel() {
    must_end(|| exchange_in_memory(&options()));
}

#[test]
fn nor_with_small_buffers() {
    must_end(|| {
        let association = AssociationOptions::default()
            .with_send_buffer_bytes(8 << 10)
            .with_receive_buffer_bytes(8 << 10)
            .with_partial_delivery_bytes(2 << 10);
        exchange_in_memory(&options().with_association(association));
    });
}

#[test]
fn nor_with_raw_ip() {
    must_end(|| {
        exchange_in_memory(
            &options().with_link(LinkKind::Raw).with_local_addresses(vec!["127.0.0.1".parse().unwrap()]),
        );
    });
}

#[test]
fn a_long_message_reaches_its_reader_in_the_memory_of_its_sender() {
    must_end(|| {
        let (_, listener) = bind(&options()).unwrap();
        let (client, server) = pair(&listener);
        // A message that waits for its reader too long is copied.
        let is_shared = |bytes| {
            let message = Bytes::from(pattern(1, bytes));
            client.send_bytes(message.clone(), &SendInfo::default()).unwrap();
            let received = server.recv().unwrap().unwrap();
            assert_eq!(received.to_vec(), message);
            received.blocks().iter().any(|block| block.as_ptr() == message.as_ptr())
        };
        assert!((0..1000).any(|_| is_shared(20_000)));
        assert!((0..10).all(|_| !is_shared(8 * 1024)), "others may lie in the same block");
    });
}

#[test]
fn without_it_the_kernel_has_all() {
    must_end(|| {
        let (stack, listener) = bind(&options().with_hairpin(false)).unwrap();
        exchange(pair(&listener));
        assert_eq!(stack.statistics().link.datagrams_turned_back, 0);
    });
}

#[test]
fn one_thread_is_both_ends() {
    must_end(|| {
        let (_, listener) = bind(&options()).unwrap();
        let (client, server) = pair(&listener);
        for i in 0..1000 {
            client.send(&pattern(i, 100)).unwrap();
            assert_pattern(i, 100, &recv_whole(&server).unwrap());
            server.send(&pattern(i, 3000)).unwrap();
            assert_pattern(i, 3000, &recv_whole(&client).unwrap());
        }
        // Far more than fits one turn.
        for i in 0..10 {
            client.send(&pattern(i, 70_000)).unwrap();
        }
        for i in 0..10 {
            assert_pattern(i, 70_000, &recv_whole(&server).unwrap());
        }
    });
}

#[test]
fn messages_of_many_at_once_arrive_although_they_do_not_fit() {
    must_end(|| {
        let (stack, listener) = bind(&options()).unwrap();
        let pairs: Vec<_> = (0..64).map(|_| pair(&listener)).collect();
        thread::scope(|scope| {
            for (client, server) in &pairs {
                scope.spawn(|| {
                    for i in 0..20 {
                        client.send(&pattern(i, 50_000)).unwrap();
                    }
                });
                scope.spawn(|| {
                    for i in 0..20 {
                        assert_pattern(i, 50_000, &recv_whole(server).unwrap());
                    }
                });
            }
        });
        let link = stack.statistics().link;
        assert_eq!(link.datagrams_turned_back, link.datagrams_sent);
    });
}

#[test]
fn a_peer_elsewhere_is_reached_as_ever() {
    must_end(|| {
        let (stack, _) = bind(&options()).unwrap();
        let elsewhere = Listener::bind("127.0.0.1:0/udp:0").unwrap();
        let client = stack.connect(elsewhere.address()).unwrap();
        exchange((client, elsewhere.accept().unwrap().0));
        assert_eq!(stack.statistics().link.datagrams_turned_back, 0);
    });
}
