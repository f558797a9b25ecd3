//! A peer with two addresses: both are verified before use, and data moves to the path that answers (RFC 9260 §5.4, §6.4, §8.1,
//! §8.2).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sctp::{AssociationConfig, Event, PathChange, PathError, PathReason, PathState, SendInfo, trace};
use sctp_wire::chunk::{Chunk, CookieAck, CookieEcho, Heartbeat, HeartbeatAck};
use sctp_wire::parameter::{Ipv4, Ipv6, Parameters};

use lab::packets::{each_chunk, kinds};
use lab::script::Peer;

/// Second address of the peer.
pub(crate) const SECOND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 9));

/// The peer has connected and lists a second address.
pub(crate) fn established(seed: u8, config: AssociationConfig, list: &[IpAddr]) -> Peer {
    established_at(Peer::new(seed, config), list)
}

/// Connects the peer to the endpoint; the peer lists these addresses.
pub(crate) fn established_at(mut peer: Peer, list: &[IpAddr]) -> Peer {
    let cookie = takes_cookie(&mut peer, list);
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.id = peer.app.events[0].id;
    peer
}

/// Returns a peer with two addresses that have both answered.
pub(crate) fn with_two_paths(seed: u8) -> Peer {
    let mut peer = established(seed, AssociationConfig::default(), &[SECOND]);
    peer.expects("COOKIE ACK");
    peer.waits(Duration::ZERO);
    assert_eq!(answers(&mut peer).ip(), SECOND);
    peer
}

/// The peer sends an INIT that lists these addresses. Returns the cookie of the INIT ACK.
fn takes_cookie(peer: &mut Peer, list: &[IpAddr]) -> Vec<u8> {
    let mut parameters = Vec::new();
    for address in list {
        match *address {
            IpAddr::V4(address) => Ipv4 { address }.write(&mut parameters),
            IpAddr::V6(address) => Ipv6 { address }.write(&mut parameters),
        }
    }
    peer.sends()
        .tag(0)
        .chunk(|p, out| {
            let mut init = p.init();
            init.parameters = Parameters::new(&parameters);
            init.write(out);
        })
        .go();
    peer.takes_init_ack()
}

/// Returns settings with the failover of RFC 9260 alone: data leaves a path that has timed out.
fn patient() -> AssociationConfig {
    AssociationConfig {
        potentially_failed_retries_max: u32::MAX,
        early_failover: false,
        ..AssociationConfig::default()
    }
}

/// Answers the next heartbeat and returns its path.
pub(crate) fn answers(peer: &mut Peer) -> SocketAddr {
    let (to, packet) = peer.hears_on();
    let mut info = None;
    each_chunk(&packet, |chunk| {
        if let Chunk::Heartbeat(heartbeat) = chunk {
            info = Some(heartbeat.info.to_vec());
        }
    });
    let info = info.unwrap_or_else(|| panic!("a heartbeat, not {packet:?}"));
    let home = std::mem::replace(&mut peer.address, to);
    peer.sends().chunk(|_, out| HeartbeatAck { info: &info }.write(out)).go();
    peer.address = home;
    to
}

fn active(peer: &Peer) -> Vec<bool> {
    peer.endpoint.statistics(peer.id).unwrap().paths.iter().map(|p| p.active).collect()
}

#[test]
fn a_listed_address_is_probed_before_it_is_used() {
    let mut peer = established(1, AssociationConfig::default(), &[SECOND]);
    peer.expects("COOKIE ACK");
    peer.waits(Duration::ZERO);
    assert_eq!(active(&peer), [true, false]);
    assert_eq!(answers(&mut peer).ip(), SECOND);
    assert_eq!(active(&peer), [true, true]);
    assert!(peer.app.saw(|e| matches!(
        e,
        Event::PathChanged { change: PathChange::Confirmed, reason: PathReason::Heartbeat, .. }
    )));
}

#[test]
fn the_nonce_verifies_the_address_that_it_went_to() {
    let mut peer = established(2, AssociationConfig::default(), &[SECOND]);
    peer.expects("COOKIE ACK");
    peer.waits(Duration::ZERO);
    let (to, packet) = peer.hears_on();
    assert_eq!(to.ip(), SECOND);
    let mut nonce = Vec::new();
    each_chunk(&packet, |chunk| {
        if let Chunk::Heartbeat(heartbeat) = chunk {
            nonce = heartbeat.info.to_vec();
        }
    });
    let mut wrong = nonce.clone();
    wrong[0] ^= 1;
    let home = peer.address;
    peer.address.set_ip(SECOND);
    peer.sends().chunk(|_, out| HeartbeatAck { info: &wrong }.write(out)).go();
    assert_eq!(active(&peer), [true, false]);
    // RFC 9260 §8.3: from whatever address the answer comes.
    peer.address = home;
    peer.sends().chunk(|_, out| HeartbeatAck { info: &nonce }.write(out)).go();
    assert_eq!(active(&peer), [true, true]);
}

#[test]
fn an_address_that_never_answers_does_not_end_the_association() {
    // RFC 9260 §8.1: heartbeats on a path that is not used do not count.
    for heartbeat_interval in [None, Some(Duration::from_secs(5))] {
        let config = AssociationConfig { heartbeat_interval, ..AssociationConfig::default() };
        let mut peer = established(3, config, &[SECOND]);
        for _ in 0..2000 {
            peer.waits(Duration::from_secs(1));
            while let Some((to, packet)) = peer.hears_on_maybe() {
                each_chunk(&packet, |chunk| {
                    if let Chunk::Heartbeat(heartbeat) = chunk
                        && to.ip() != SECOND
                    {
                        peer.sends().chunk(|_, out| HeartbeatAck { info: heartbeat.info }.write(out)).go();
                    }
                });
            }
        }
        assert_eq!(peer.endpoint.association_count(), 1);
    }
}

#[test]
fn data_that_timed_out_moves_to_the_path_that_answers() {
    let mut peer = established(4, patient(), &[SECOND]);
    peer.expects("COOKIE ACK");
    peer.waits(Duration::ZERO);
    answers(&mut peer);
    // The first path does not answer any more, so each message is sent again on the second, which does.
    for number in 0..6 {
        assert_eq!(active(&peer), [true, true]);
        peer.app_sends(SendInfo::default(), &b"is anybody there?"[..]);
        assert_eq!(peer.hears_on().0, peer.address);
        while peer.endpoint.statistics(peer.id).unwrap().outstanding_bytes > 0 {
            peer.waits(Duration::from_secs(1));
            while let Some((to, packet)) = peer.hears_on_maybe() {
                let home = std::mem::replace(&mut peer.address, to);
                each_chunk(&packet, |chunk| match chunk {
                    Chunk::Data(_) if to.ip() == SECOND => peer.sends().sack(number, &[]).go(),
                    Chunk::Heartbeat(heartbeat) if to.ip() == SECOND => {
                        peer.sends().chunk(|_, out| HeartbeatAck { info: heartbeat.info }.write(out)).go();
                    }
                    _ => {}
                });
                peer.address = home;
            }
        }
    }
    // Path.Max.Retrans is 5: no new data is sent there.
    assert_eq!(active(&peer), [false, true]);
    peer.app_sends(SendInfo::default(), &b"here I am"[..]);
    assert_eq!(peer.hears_on().0.ip(), SECOND);
}

#[test]
fn addresses_that_cannot_be_a_host_are_not_probed() {
    let list: Vec<IpAddr> = ["224.0.0.1", "255.255.255.255", "0.0.0.0", "127.0.0.1", "ff02::1", "::", "::1"]
        .iter()
        .map(|a| a.parse().unwrap())
        .collect();
    let mut peer = established(5, AssociationConfig::default(), &list);
    peer.expects("COOKIE ACK");
    assert_eq!(active(&peer), [true]);
    peer.waits(Duration::from_secs(10));
    peer.expects_nothing();
}

#[test]
fn no_more_addresses_are_kept_than_the_limit() {
    let list: Vec<IpAddr> = (1..=100).map(|n| IpAddr::from([10, 0, 2, n])).collect();
    let peer = established(6, AssociationConfig::default(), &list);
    assert_eq!(active(&peer).len(), sctp::config::PEER_ADDRESSES_MAX);
}

fn set_primary(peer: &mut Peer, address: IpAddr) -> Result<(), PathError> {
    peer.endpoint.set_primary(peer.now, peer.id, address, &mut peer.app)
}

#[test]
fn the_user_chooses_the_primary_path() {
    // RFC 9260 §6.4; §5.4: only a confirmed one.
    let mut peer = established(9, AssociationConfig::default(), &[SECOND]);
    peer.expects("COOKIE ACK");
    let second = SocketAddr::new(SECOND, peer.address.port());
    let id = peer.id;
    assert_eq!(set_primary(&mut peer, SECOND), Err(PathError::Unconfirmed { address: SECOND }));
    let elsewhere = IpAddr::from([192, 0, 2, 1]);
    let none = set_primary(&mut peer, elsewhere);
    assert_eq!(none, Err(PathError::NoSuchPath { address: elsewhere }));
    assert!(none.unwrap_err().to_string().contains("192.0.2.1"));
    peer.waits(Duration::ZERO);
    assert_eq!(answers(&mut peer), second);
    peer.app_sends(SendInfo::default(), vec![1]);
    assert_eq!(peer.hears_on().0, peer.address);
    assert_eq!(set_primary(&mut peer, SECOND), Ok(()));
    peer.app_sends(SendInfo::default(), vec![2]);
    assert_eq!(peer.hears_on().0, second);
    peer.endpoint.abort(peer.now, id, b"", &mut peer.app);
    assert_eq!(set_primary(&mut peer, SECOND), Err(PathError::Closed));
}

#[test]
fn a_trace_tells_the_paths_apart() {
    let config = AssociationConfig { trace: true, path_retries_max: 0, ..patient() };
    let mut peer = established(12, config, &[SECOND]);
    peer.expects("COOKIE ACK");
    peer.waits(Duration::ZERO);
    answers(&mut peer);
    peer.app_sends(SendInfo::default(), "nobody answers this on the first path");
    peer.hears();
    // Longer than one RTO, and shorter than the next.
    peer.waits(Duration::from_millis(1500));
    let heard = std::iter::from_fn(|| peer.hears_on_maybe());
    assert!(heard.into_iter().any(|(to, _)| to.ip() == SECOND), "it goes again on the other path");
    let trace: Vec<_> = std::iter::from_fn(|| peer.endpoint.poll_trace()).collect();
    let of = |path: u8, is: fn(&trace::Event) -> bool| {
        trace.iter().filter(|record| record.path == Some(path) && is(&record.event)).count()
    };
    let added = |event: &trace::Event| matches!(event, trace::Event::PathAdded { .. });
    assert_eq!((of(0, added), of(1, added)), (1, 1));
    let asked =
        |event: &trace::Event| matches!(event, trace::Event::ProbeSent { probe: trace::Probe::Heartbeat });
    assert!(of(1, asked) >= 1, "{trace:?}");
    let confirmed = |event: &trace::Event| {
        matches!(
            event,
            trace::Event::PathStateChanged { old: PathState::Unconfirmed, new: PathState::Active }
        )
    };
    assert_eq!(of(1, confirmed), 1);
    let failed = |event: &trace::Event| {
        matches!(event, trace::Event::PathStateChanged { old: PathState::Active, new: PathState::Inactive })
    };
    assert_eq!((of(0, failed), of(1, failed)), (1, 0));
    let expired = |event: &trace::Event| {
        matches!(event, trace::Event::TimerExpired { timer: trace::Timer::T3Rtx, count: 1 })
    };
    assert_eq!((of(0, expired), of(1, expired)), (1, 0));
    let lost = |event: &trace::Event| {
        matches!(event, trace::Event::PacketLost { reason: trace::LossReason::Timeout, .. })
    };
    assert_eq!((of(0, lost), of(1, lost)), (1, 0));
    let again = |event: &trace::Event| {
        matches!(event, trace::Event::PacketSent { number: Some(0), contents }
            if contents.data.is_some_and(|data| data.retransmitted == 1))
    };
    assert_eq!((of(0, again), of(1, again)), (0, 1));
}

#[test]
fn a_cookie_ack_and_the_heartbeat_beside_it_are_two_control_chunks() {
    let mut peer = Peer::new(20, AssociationConfig::default());
    let cookie = takes_cookie(&mut peer, &[SECOND]);
    peer.address = SocketAddr::new(SECOND, peer.address.port());
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.id = peer.app.events[0].id;
    let (to, packet) = peer.hears_on();
    assert_eq!((to, kinds(&packet)), (peer.address, vec![CookieAck::KIND, Heartbeat::KIND]));
    let statistics = peer.endpoint.statistics(peer.id).unwrap();
    assert_eq!((statistics.packets_sent, statistics.control_chunks_sent), (1, 2));
}
