//! Datagrams arrive as they were sent, over IPv4, IPv6 and both through one socket.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use crate::common::{Kept, address, bind, config, pattern, receive, receive_until, send};
use links::{Link, Transmit, UdpEncap, UdpEncapConfig};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, getsockopt, recvmsg, setsockopt, sockopt,
};

fn exchange(from_ip: &str, to_ip: &str) {
    let (mut from, mut to) = (bind(from_ip), bind(to_ip));
    let remote = address(&to, to_ip);
    send(&mut from, remote, 1452, b"one way");
    let mut kept = Kept::default();
    receive(&mut to, &mut kept);
    let there = &kept.datagrams[0];
    assert_eq!(there.remote, from.local_addresses()[0]);
    assert_eq!(there.local, remote.ip());
    assert_eq!(there.segment_bytes, 7);
    assert_eq!(&there.payload[..], b"one way");

    send(&mut to, there.remote, 1452, b"and back");
    let mut kept = Kept::default();
    receive(&mut from, &mut kept);
    assert_eq!(kept.datagrams[0].remote, remote);
    assert_eq!(&kept.datagrams[0].payload[..], b"and back");
}

#[test]
fn ipv4() {
    exchange("127.0.0.1", "127.0.0.1");
}

#[test]
fn ipv6() {
    exchange("::1", "::1");
}

#[test]
fn an_ipv4_peer_of_a_dual_stack_socket_is_an_ipv4_address() {
    let any = UdpEncapConfig { port: 0, ..UdpEncapConfig::default() };
    let mut server = UdpEncap::bind(&any).unwrap();
    for ip in ["127.0.0.1", "::1"] {
        let mut client = bind(ip);
        send(&mut client, address(&server, ip), 1452, b"to all");
        let mut kept = Kept::default();
        receive(&mut server, &mut kept);
        assert_eq!(kept.datagrams[0].remote, client.local_addresses()[0]);
        assert_eq!(kept.datagrams[0].local, ip.parse::<IpAddr>().unwrap());
        send(&mut server, client.local_addresses()[0], 1452, b"back");
        receive(&mut client, &mut kept);
        assert_eq!(&kept.datagrams[1].payload[..], b"back");
    }
}

#[test]
fn a_mapped_address_sends_like_the_ipv4_address_in_it() {
    let mut client = bind("127.0.0.1");
    let mut server = bind("127.0.0.1");
    let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
    let remote = SocketAddr::new(mapped, server.local_addresses()[0].port());
    send(&mut client, remote, 1452, b"mapped");
    let mut kept = Kept::default();
    receive(&mut server, &mut kept);
    assert_eq!(kept.datagrams[0].remote, client.local_addresses()[0]);
    assert_eq!(client.path_info(remote), client.path_info(server.local_addresses()[0]));
}

#[test]
fn the_source_address_asked_for_is_the_one_that_the_peer_sees() {
    for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        let config = UdpEncapConfig { addresses: vec![any], port: 0, ..UdpEncapConfig::default() };
        let mut client = UdpEncap::bind(&config).unwrap();
        let mut server = bind("127.0.0.1");
        let remote = server.local_addresses()[0];
        let slices = [IoSlice::new(b"from another address")];
        let local = Some("127.0.0.9".parse().unwrap());
        client
            .transmit(&Transmit {
                remote,
                local,
                traffic_class: 0,
                may_fragment: false,
                segment_bytes: 1452,
                slices: &slices,
            })
            .unwrap();
        let mut kept = Kept::default();
        receive(&mut server, &mut kept);
        assert_eq!(Some(kept.datagrams[0].remote.ip()), local, "from {any}");
    }
}

#[test]
fn the_source_address_chooses_among_the_sockets() {
    let addresses = vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap(), "::1".parse().unwrap()];
    let config = UdpEncapConfig { addresses: addresses.clone(), port: 0, ..UdpEncapConfig::default() };
    let mut client = UdpEncap::bind(&config).unwrap();
    let bound = client.local_addresses();
    assert_eq!(bound.iter().map(SocketAddr::ip).collect::<Vec<_>>(), addresses);
    assert!(bound.iter().all(|address| address.port() == bound[0].port()));
    for (local, server_ip) in [("127.0.0.2", "127.0.0.1"), ("::1", "::1"), ("127.0.0.1", "127.0.0.1")] {
        let mut server = bind(server_ip);
        let slices = [IoSlice::new(b"chosen")];
        let transmit = Transmit {
            remote: server.local_addresses()[0],
            local: Some(local.parse().unwrap()),
            traffic_class: 0,
            may_fragment: false,
            segment_bytes: 1452,
            slices: &slices,
        };
        client.transmit(&transmit).unwrap();
        let mut kept = Kept::default();
        receive(&mut server, &mut kept);
        assert_eq!(kept.datagrams[0].remote.ip(), transmit.local.unwrap());
        send(&mut server, kept.datagrams[0].remote, 1452, b"back");
        receive_until(&mut client, &mut kept, |kept| kept.datagrams.len() == 2);
        assert_eq!(kept.datagrams[1].local, transmit.local.unwrap());
    }
}

/// Returns the traffic class of the next datagram that a socket gets.
fn class_of_next(socket: &UdpSocket) -> i32 {
    let (mut data, mut control) = ([0; 64], nix::cmsg_space!(i32));
    let mut parts = [IoSliceMut::new(&mut data)];
    let flags = MsgFlags::empty();
    let received =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags).unwrap();
    let class = received.cmsgs().unwrap().find_map(|message| match message {
        ControlMessageOwned::Ipv4Tos(class) => Some(class.into()),
        ControlMessageOwned::Ipv6TClass(class) => Some(class),
        _ => None,
    });
    class.unwrap()
}

#[test]
fn the_traffic_class_arrives() {
    for ip in ["127.0.0.1", "::1"] {
        let (mut client, server) = (bind(ip), UdpSocket::bind((ip, 0)).unwrap());
        match ip.parse().unwrap() {
            IpAddr::V4(_) => setsockopt(&server, sockopt::IpRecvTos, &true).unwrap(),
            IpAddr::V6(_) => setsockopt(&server, sockopt::Ipv6RecvTClass, &true).unwrap(),
        }
        let remote = server.local_addr().unwrap();
        for traffic_class in [0, 2, 46 << 2, 46 << 2 | 2, 0xff] {
            let slices = [IoSlice::new(b"classed")];
            client
                .transmit(&Transmit {
                    remote,
                    local: None,
                    traffic_class,
                    may_fragment: false,
                    segment_bytes: 1452,
                    slices: &slices,
                })
                .unwrap();
            assert_eq!(class_of_next(&server), traffic_class.into(), "over {ip}");
        }
    }
}

#[test]
fn the_ecn_field_arrives() {
    for ip in ["127.0.0.1", "::1"] {
        let (mut client, mut server) = (bind(ip), bind(ip));
        for ecn in 0..4 {
            let slices = [IoSlice::new(b"marked")];
            let remote = server.local_addresses()[0];
            client
                .transmit(&Transmit {
                    remote,
                    local: None,
                    traffic_class: ecn,
                    may_fragment: false,
                    segment_bytes: 1452,
                    slices: &slices,
                })
                .unwrap();
            let mut kept = Kept::default();
            receive(&mut server, &mut kept);
            assert_eq!(kept.datagrams[0].ecn, ecn, "over {ip}");
        }
    }
}

#[test]
fn slices_arrive_as_one() {
    let (mut client, mut server) = (bind("127.0.0.1"), bind("127.0.0.1"));
    let remote = server.local_addresses()[0];
    let payload = pattern(20_000);
    // A system call takes fewer than 4,000 slices.
    for slice_bytes in [5, 16, 1000, 20_000] {
        for segment_bytes in [1452, 20_000] {
            let slices: Vec<_> = payload.chunks(slice_bytes).map(IoSlice::new).collect();
            let transmit = Transmit {
                remote,
                local: None,
                traffic_class: 0,
                may_fragment: false,
                segment_bytes,
                slices: &slices,
            };
            client.transmit(&transmit).unwrap();
            let mut kept = Kept::default();
            let expected: Vec<_> = payload.chunks(segment_bytes).map(<[u8]>::to_vec).collect();
            receive_until(&mut server, &mut kept, |kept| kept.singles().len() == expected.len());
            assert_eq!(kept.singles(), expected);
        }
    }
}

#[test]
fn a_receive_with_nothing_there_says_so() {
    let mut link = bind("127.0.0.1");
    let mut kept = Kept::default();
    for _ in 0..100 {
        assert!(!link.receive(&mut kept).unwrap());
    }
    assert!(kept.datagrams.is_empty() && kept.unreachable.is_empty());
    assert_eq!(link.stats().batches_received, 0);
}

#[test]
fn an_empty_datagram_is_dropped_and_counted() {
    let mut link = bind("127.0.0.1");
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(b"", link.local_addresses()[0]).unwrap();
    stranger.send_to(b"full", link.local_addresses()[0]).unwrap();
    let mut kept = Kept::default();
    receive_until(&mut link, &mut kept, |kept| !kept.datagrams.is_empty());
    assert_eq!(kept.singles(), [b"full"]);
    assert_eq!(link.stats().receive_discarded, 1);
}

#[test]
fn nothing_to_send_is_no_datagram() {
    let (mut client, server) = (bind("127.0.0.1"), bind("127.0.0.1"));
    send(&mut client, server.local_addresses()[0], 1452, b"");
    assert_eq!(client.stats().datagrams_sent, 0);
}

#[test]
fn packets_that_cannot_be_sent_are_an_error_with_its_cause() {
    let mut client = bind("127.0.0.1");
    let payload = pattern(65_536);
    for (remote, segment_bytes, word) in [
        ("127.0.0.1:9", 0, "65,507"),
        ("127.0.0.1:9", 65_508, "65,507"),
        ("[::1]:9", 1452, "family"),
        ("[2001:db8::1]:9", 1452, "family"),
    ] {
        let slices = [IoSlice::new(&payload)];
        let transmit = Transmit {
            remote: remote.parse().unwrap(),
            local: None,
            traffic_class: 0,
            may_fragment: false,
            segment_bytes,
            slices: &slices,
        };
        let error = client.transmit(&transmit).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(client.stats().datagrams_sent, 0);
}

#[test]
fn the_counters_count() {
    let (mut client, mut server) = (bind("127.0.0.1"), bind("127.0.0.1"));
    let remote = server.local_addresses()[0];
    send(&mut client, remote, 1000, &pattern(1000));
    send(&mut client, remote, 1000, &pattern(999));
    let mut kept = Kept::default();
    receive_until(&mut server, &mut kept, |kept| kept.datagrams.len() == 2);
    let (sent, received) = (client.stats(), server.stats());
    assert_eq!((sent.batches_sent, sent.datagrams_sent, sent.bytes_sent), (2, 2, 1999));
    assert_eq!(
        (received.batches_received, received.datagrams_received, received.bytes_received),
        (2, 2, 1999)
    );
    assert_eq!((received.blocks_allocated, received.blocks_reused), (1, 0));
    assert_eq!(sent.send_lost + sent.send_failed + sent.send_blocked + received.receive_discarded, 0);
}

#[test]
fn loopback_s_path_is_this_host_s_with_its_own_mtu() {
    let link = bind("127.0.0.1");
    let info = link.path_info("127.0.0.1:9899".parse().unwrap());
    assert!(info.same_host);
    assert!(info.mtu_bytes <= 65_504 && info.mtu_bytes % 4 == 0);
    let in_flight = info.in_flight_limit_bytes.unwrap();
    assert!(in_flight <= 512 * 1024 && in_flight > 0);
    let capped = UdpEncap::bind(&UdpEncapConfig { mtu_bytes: Some(1500), ..config("127.0.0.1") }).unwrap();
    let info = capped.path_info("127.0.0.1:9899".parse().unwrap());
    assert_eq!((info.mtu_bytes, info.header_bytes), (1472, 28));
    let capped = UdpEncap::bind(&UdpEncapConfig { mtu_bytes: Some(1500), ..config("::1") }).unwrap();
    let info = capped.path_info("[::1]:9899".parse().unwrap());
    assert_eq!((info.mtu_bytes, info.header_bytes), (1452, 48));
}

#[test]
fn a_privileged_program_gets_the_receive_buffer_it_wants_and_no_more_data_in_flight() {
    // More than an unprivileged program may have, and twice what the kernel then says of both.
    let rmem_max = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
    let wanted = rmem_max.trim().parse::<usize>().unwrap() + (1 << 20);
    let link =
        UdpEncap::bind(&UdpEncapConfig { receive_buffer_bytes: wanted, ..config("127.0.0.1") }).unwrap();
    let mut most = 0;
    link.descriptors(&mut |fd| most = most.max(getsockopt(&fd, sockopt::RcvBuf).unwrap()));
    let is_privileged = {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        setsockopt(&socket, sockopt::RcvBufForce, &wanted).is_ok()
    };
    assert_eq!(most, 2 * if is_privileged { wanted } else { wanted - (1 << 20) });
    let in_flight = link.path_info("127.0.0.1:9899".parse().unwrap()).in_flight_limit_bytes.unwrap();
    assert!(in_flight <= 512 * 1024, "{in_flight}");
}

#[test]
fn a_small_receive_buffer_allows_little_in_flight() {
    let small = UdpEncapConfig { receive_buffer_bytes: 100_000, ..config("127.0.0.1") };
    let link = UdpEncap::bind(&small).unwrap();
    let in_flight = link.path_info("127.0.0.1:9899".parse().unwrap()).in_flight_limit_bytes.unwrap();
    // The kernel doubles the requested size for its own bookkeeping.
    assert!((100_000..150_000).contains(&in_flight), "{in_flight}");
}

#[test]
fn datagrams_that_overflow_the_receive_buffer_are_counted() {
    let mut server =
        UdpEncap::bind(&UdpEncapConfig { receive_buffer_bytes: 20_000, ..config("127.0.0.1") }).unwrap();
    let mut client = bind("127.0.0.1");
    let remote = server.local_addresses()[0];
    for _ in 0..200 {
        send(&mut client, remote, 1000, &pattern(1000));
    }
    let mut kept = Kept::default();
    receive(&mut server, &mut kept);
    send(&mut client, remote, 1000, b"after");
    receive_until(&mut server, &mut kept, |kept| kept.datagrams.last().unwrap().payload.len() == 5);
    assert_eq!(server.stats().receive_overflows + kept.singles().len() as u64, 201);
}
