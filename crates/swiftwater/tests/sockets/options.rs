//! Options that change the packets.

use std::thread;

use swiftwater::{
    Association, AssociationOptions, Checksum, Event, MtuState, OptionsError, Received, SendError,
    StackOptions,
};

use crate::pair::{assert_pattern, listen_with, must_end, pair_with, pattern, recv_whole};

#[test]
fn without_delay() {
    must_end(|| {
        let (client, server) = pair_with(&AssociationOptions::default().with_nodelay(true).into());
        for i in 0..1000 {
            client.send(&pattern(i, 100)).unwrap();
        }
        for i in 0..1000 {
            assert_pattern(i, 100, &recv_whole(&server).unwrap());
        }
    });
}

#[test]
fn loopback_takes_the_longest_packets_at_once() {
    must_end(|| {
        let (client, server) = pair_with(&StackOptions::default());
        client.send(&pattern(0, 1_000_000)).unwrap();
        assert_pattern(0, 1_000_000, &recv_whole(&server).unwrap());
        let path = client.statistics().unwrap().paths[0].clone();
        let lo = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let longest = (lo.trim().parse::<usize>().unwrap() - 28).min(65_507) & !3;
        assert_eq!((path.mtu_bytes, path.mtu_state), (longest, MtuState::SearchComplete));
        assert_eq!((path.mtu_probes_sent, path.packets_lost), (0, 0));
    });
}

#[test]
fn without_a_checksum() {
    must_end(|| {
        let (client, server) = pair_with(&StackOptions::default().with_checksum(Checksum::None));
        client.send(&pattern(0, 100_000)).unwrap();
        assert_pattern(0, 100_000, &recv_whole(&server).unwrap());
    });
}

#[test]
fn a_long_message_comes_in_parts_that_fit_the_buffer() {
    must_end(|| {
        let small = AssociationOptions::default()
            .with_receive_buffer_bytes(64 << 10)
            .with_partial_delivery_bytes(16 << 10)
            .into();
        let listener = listen_with(&small);
        let client = Association::connect(listener.address()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let sender = std::thread::spawn(move || {
            client.send(&pattern(0, 1 << 20)).unwrap();
            client.close().unwrap();
        });
        let first = server.recv().unwrap().unwrap();
        assert!(first.info.more && first.len() < 128 << 10, "{}", first.len());
        let mut got = first.to_vec();
        got.extend(recv_whole(&server).unwrap());
        assert_pattern(0, 1 << 20, &got);
        sender.join().unwrap();
    });
}

#[test]
fn several_local_addresses() {
    must_end(|| {
        let both = StackOptions::default()
            .with_local_addresses(vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()])
            .with_udp_port(0);
        let stack = swiftwater::Stack::bind(&both).unwrap();
        let listener = stack.listen(7).unwrap();
        assert_eq!(listener.address().hosts.len(), 2);
        let client = Association::connect(listener.address()).unwrap();
        client.send(b"to either").unwrap();
        assert_eq!(recv_whole(&listener.accept().unwrap().0).unwrap(), b"to either");
    });
}

#[test]
fn an_option_that_the_handshake_has_settled_is_refused_with_all_others() {
    must_end(|| {
        let (client, _server) = pair_with(&StackOptions::default());
        let before = client.options().unwrap();
        let changed = before.clone().with_nodelay(true).with_ecn(!before.ecn);
        assert_eq!(client.set_options(&changed), Err(OptionsError::Fixed { option: "ecn" }));
        assert_eq!(client.options().unwrap(), before);
        client.set_options(&changed.with_fixed_of(&before)).unwrap();
        assert_eq!(client.options().unwrap(), before.with_nodelay(true));
    });
}

#[test]
fn options_that_this_side_looks_at_change_too() {
    must_end(|| {
        let (client, server) = pair_with(&StackOptions::default());
        let options = client.options().unwrap();
        client.set_options(&options.with_message_bytes_max(10).with_events(true)).unwrap();
        let too_long = SendError::TooLong { bytes: 11, limit_bytes: 10 };
        assert_eq!(client.send(&pattern(0, 11)), Err(too_long));
        server.shutdown().unwrap();
        assert!(matches!(client.recv_any().unwrap(), Some(Received::Event(Event::PeerShutdown))));
    });
}

#[test]
fn an_association_that_is_gone_has_no_options() {
    must_end(|| {
        let (client, server) = pair_with(&StackOptions::default());
        server.abort("that was all");
        assert!(client.recv().is_err());
        assert_eq!(client.options(), None);
        assert_eq!(client.set_options(&AssociationOptions::default()), Err(OptionsError::Closed));
    });
}

#[test]
fn a_listener_gives_associations_the_options_that_it_has_when_they_come() {
    must_end(|| {
        let listener = listen_with(&StackOptions::default());
        let options = AssociationOptions::default().with_streams_out(3).with_message_bytes_max(10);
        listener.set_options(&options).unwrap();
        let _client = Association::connect(listener.address()).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(server.options().unwrap(), options);
        assert_eq!(server.streams_out(), 3);
        let too_long = SendError::TooLong { bytes: 11, limit_bytes: 10 };
        assert_eq!(server.send(&pattern(0, 11)), Err(too_long));
    });
}

/// Number of times that two threads change an option at the same time.
const CHANGES: usize = 100;

#[test]
fn a_change_of_one_option_keeps_those_that_others_have_changed_meanwhile() {
    must_end(|| {
        let (client, _server) = pair_with(&StackOptions::default());
        let listener = listen_with(&StackOptions::default());
        let (mut calls, mut listener_calls) = (0, 0);
        let changed = client.update_options(|options| {
            calls += 1;
            if calls == 1 {
                // As another thread would, between the read of the options and their change.
                client.update_options(|options| options.sack_frequency = 7).unwrap();
            }
            options.message_bytes_max = 1000;
        });
        assert_eq!((changed, calls), (Ok(()), 2));
        let options = client.options().unwrap();
        assert_eq!((options.sack_frequency, options.message_bytes_max), (7, 1000));

        let changed = listener.update_options(|options| {
            listener_calls += 1;
            if listener_calls == 1 {
                listener.update_options(|options| options.sack_frequency = 7).unwrap();
            }
            options.message_bytes_max = 1000;
        });
        assert_eq!((changed, listener_calls), (Ok(()), 2));
        let options = listener.options();
        assert_eq!((options.sack_frequency, options.message_bytes_max), (7, 1000));

        let fixed = client.update_options(|options| options.ecn = !options.ecn);
        assert_eq!(fixed, Err(OptionsError::Fixed { option: "ecn" }));
    });
}

#[test]
fn a_sender_that_collects_messages_has_the_limit_of_the_last_change() {
    must_end(|| {
        let (client, _server) = pair_with(&StackOptions::default());
        for _ in 0..CHANGES {
            thread::scope(|scope| {
                for limit_bytes in [10, 20] {
                    let options = client.options().unwrap().with_message_bytes_max(limit_bytes);
                    let client = &client;
                    scope.spawn(move || client.set_options(&options).unwrap());
                }
            });
            let limit_bytes = client.options().unwrap().message_bytes_max;
            let too_long = SendError::TooLong { bytes: 21, limit_bytes };
            assert_eq!(client.sender().feed(&pattern(0, 21)), Err(too_long));
        }
    });
}
