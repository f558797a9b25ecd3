//! Timers of very many associations that expire at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lab::App;
use lab::script::{Peer, plain};
use sctp::{
    AssociationConfig, BatchLimits, Endpoint, EndpointConfig, Scope, SendInfo, Time, TimeoutPacer,
    TransmitBuffer,
};

const ASSOCIATIONS: usize = 1000;
/// Maximum number of timers after which other work must get its turn.
const AT_ONCE_MAX: usize = 100;

/// Returns an endpoint with associations whose INITs have left, from ports that begin with these.
fn connecting(first_ports: &[usize], configs: &[AssociationConfig]) -> (Endpoint, App) {
    let limits = BatchLimits { segments_max: 1, bytes_max: 1500 };
    let mut endpoint = Endpoint::new(EndpointConfig::default(), [1; 32], limits);
    let app = App::default();
    let peer = SocketAddr::from(([10, 0, 0, 9], 9899));
    for (first, config) in first_ports.iter().zip(configs) {
        let config = Arc::new(config.clone());
        for port in *first..first + ASSOCIATIONS {
            let connected = endpoint.connect(Time::ZERO, port as u16, 7, &[peer], Arc::clone(&config), &app);
            connected.unwrap();
        }
    }
    assert_eq!(sent(&mut endpoint, Time::ZERO).len(), first_ports.len() * ASSOCIATIONS);
    (endpoint, app)
}

/// Returns the source ports of the packets that leave.
fn sent(endpoint: &mut Endpoint, now: Time) -> Vec<usize> {
    let mut buffer = TransmitBuffer::new();
    let mut ports = Vec::new();
    while endpoint.poll_transmit(now, Scope::All, &mut buffer).is_some() {
        let packet = buffer.to_vec();
        ports.push(usize::from(u16::from_be_bytes([packet[0], packet[1]])));
    }
    ports
}

#[test]
fn other_work_goes_on_while_thousands_of_timers_expire() {
    let (mut endpoint, mut app) = connecting(&[1], &[AssociationConfig::default()]);
    let now = endpoint.poll_timeout().unwrap();
    let mut repeated = 0;
    while endpoint.poll_timeout().is_some_and(|at| at <= now) {
        endpoint.handle_timeout(now, &mut app);
        let at_once = sent(&mut endpoint, now).len();
        assert!(at_once <= AT_ONCE_MAX, "{at_once} timers were handled at once");
        repeated += at_once;
    }
    assert_eq!(repeated, ASSOCIATIONS, "each repeats its INIT");
}

#[test]
fn timers_that_share_a_pacer_expire_one_after_the_other_and_delay_no_others() {
    const BURST: usize = 8;
    const INTERVAL: Duration = Duration::from_micros(100);
    let pacer = TimeoutPacer::new(INTERVAL, BURST as u32);
    let paced = AssociationConfig { timeout_pacer: Some(pacer), ..AssociationConfig::default() };
    let first_other = 1 + ASSOCIATIONS;
    let (mut endpoint, mut app) = connecting(&[1, first_other], &[paced, AssociationConfig::default()]);
    let first = endpoint.poll_timeout().unwrap();
    let mut expire = |now: Time| {
        let mut ports = Vec::new();
        while endpoint.poll_timeout().is_some_and(|at| at <= now) {
            endpoint.handle_timeout(now, &mut app);
            ports.extend(sent(&mut endpoint, now));
        }
        ports
    };
    let (at_once, others): (Vec<usize>, Vec<usize>) =
        expire(first).into_iter().partition(|port| *port < first_other);
    assert_eq!((at_once.len(), others.len()), (BURST, ASSOCIATIONS));
    let mut repeated = at_once.len();
    for interval in 1..=(ASSOCIATIONS - BURST) as u32 {
        let ports = expire(first + interval * INTERVAL);
        assert_eq!(ports.len(), 1, "in interval {interval}");
        repeated += 1;
    }
    assert_eq!(repeated, ASSOCIATIONS);
}

/// Returns the peer of an endpoint whose pacer is used up by the first retransmission, and whose second one, due now, waits for a
/// second.
fn with_a_waiting_retransmission(seed: u8) -> Peer {
    let pacer = TimeoutPacer::new(Duration::from_secs(100), 1);
    let config = AssociationConfig { timeout_pacer: Some(pacer), ..plain() };
    let mut peer = Peer::established_with(seed, config);
    // Later packets than the first ones are acknowledged with a delay.
    for n in 0..8 {
        peer.sends().data(n).go();
        peer.expects(&format!("SACK {n}"));
    }
    peer.app_sends(SendInfo::default(), vec![0; 100]);
    peer.expects("DATA 0");
    peer.waits(Duration::from_secs(1));
    peer.expects("DATA 0");
    peer.waits(Duration::from_secs(2));
    peer.expects_nothing();
    peer
}

#[test]
fn a_delayed_sack_leaves_on_time_while_a_retransmission_waits_for_its_place() {
    let mut peer = with_a_waiting_retransmission(1);
    peer.sends().data(8).go();
    // RFC 9260 §6.2: within 500 ms, and 200 ms by default.
    peer.waits(Duration::from_nanos(199_999_999));
    peer.expects_nothing();
    peer.waits(Duration::from_nanos(1));
    peer.expects("SACK 8");
    peer.waits(Duration::from_nanos(799_999_999));
    peer.expects_nothing();
    peer.waits(Duration::from_nanos(1));
    peer.expects("DATA 0");
}

#[test]
fn a_place_that_was_not_used_serves_no_later_timer() {
    let mut peer = with_a_waiting_retransmission(2);
    peer.sends().sack(0, &[]).go();
    peer.waits(Duration::from_secs(2));
    peer.app_sends(SendInfo::default(), vec![1; 100]);
    peer.expects("DATA 1");
    // The RTO of 2 s, and 1 s until a place.
    peer.waits(Duration::from_nanos(2_999_999_999));
    peer.expects_nothing();
    peer.waits(Duration::from_nanos(1));
    peer.expects("DATA 1");
}
