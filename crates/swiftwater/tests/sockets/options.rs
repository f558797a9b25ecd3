//! Options that change what travels.

use swiftwater::{Association, Checksum, MtuState, Options};

use crate::pair::{assert_pattern, listen_with, must_end, pair_with, pattern, recv_whole};

#[test]
fn without_delay() {
    must_end(|| {
        let (client, server) = pair_with(&Options { nodelay: true, ..Options::default() });
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
        let (client, server) = pair_with(&Options::default());
        client.send(&pattern(0, 1_000_000)).unwrap();
        assert_pattern(0, 1_000_000, &recv_whole(&server).unwrap());
        let path = client.statistics().paths[0].clone();
        let lo = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let longest = (lo.trim().parse::<usize>().unwrap() - 28).min(65_507) & !3;
        assert_eq!((path.mtu_bytes, path.mtu_state), (longest, MtuState::SearchComplete));
        assert_eq!((path.mtu_probes_sent, path.packets_lost), (0, 0));
    });
}

#[test]
fn without_a_checksum() {
    must_end(|| {
        let (client, server) = pair_with(&Options { checksum: Checksum::None, ..Options::default() });
        client.send(&pattern(0, 100_000)).unwrap();
        assert_pattern(0, 100_000, &recv_whole(&server).unwrap());
    });
}

#[test]
fn a_long_message_comes_in_parts_that_fit_the_buffer() {
    must_end(|| {
        let small = Options {
            receive_buffer_bytes: 64 << 10,
            partial_delivery_bytes: 16 << 10,
            ..Options::default()
        };
        let listener = listen_with(&small);
        let client = Association::connect(listener.local_address()).unwrap();
        let server = listener.accept().unwrap();
        let sender = std::thread::spawn(move || {
            client.send(&pattern(0, 1 << 20)).unwrap();
            client.close().unwrap();
        });
        let first = server.recv().unwrap().unwrap();
        assert!(!first.info.end_of_record && first.len() < 128 << 10, "{}", first.len());
        let mut got = first.to_vec();
        got.extend(recv_whole(&server).unwrap());
        assert_pattern(0, 1 << 20, &got);
        sender.join().unwrap();
    });
}

#[test]
fn several_local_addresses() {
    must_end(|| {
        let both = Options {
            local_addresses: vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()],
            udp_port: Some(0),
            ..Options::default()
        };
        let stack = swiftwater::Stack::bind(&both).unwrap();
        let listener = stack.listen(7).unwrap();
        assert_eq!(listener.local_address().hosts.len(), 2);
        let client = Association::connect(listener.local_address()).unwrap();
        client.send(b"to either").unwrap();
        assert_eq!(recv_whole(&listener.accept().unwrap()).unwrap(), b"to either");
    });
}
