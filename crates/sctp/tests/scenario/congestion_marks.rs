//! Routers mark packets instead of dropping them, and the sender reduces its window (draft-stewart-tsvwg-sctpecn).

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use netsim::PipeConfig;
use sctp::{Arrival, AssociationConfig, SendInfo};
use sctp_wire::Tsn;
use sctp_wire::chunk::{Chunk, Cwr, DataFlags, EcnEcho, Init};
use sctp_wire::parameter::{EcnCapable, Parameter, Parameters};

use lab::packets::{build, each_chunk, write_data};
use lab::script::{ENDPOINT_PORT, PEER_PORT, Peer};
use lab::traffic::{Source, Traffic};
use lab::{Simulation, line};

/// Returns a line of 100 Mbit/s and 10 ms whose queue holds more than a round trip, and marks above a quarter of one.
fn marking_line() -> PipeConfig {
    PipeConfig { queue_bytes: 300_000, mark_above_bytes: Some(62_500), ..line() }
}

/// Sends for five seconds. Returns what arrived, what the queue dropped, and the sender's statistics.
fn run(ecn: [bool; 2]) -> (u64, u64, sctp::Statistics) {
    let mut simulation: Simulation<Traffic> = Simulation::new(1);
    let address = |n| IpAddr::from([10, 0, 0, n]);
    let a = simulation.add_host(&[address(1)], Traffic::default());
    let b = simulation.add_host(&[address(2)], Traffic::default());
    let (there, _) = simulation.join(a, b, &marking_line());
    let config = |ecn| AssociationConfig { ecn, ..AssociationConfig::default() };
    simulation.listen(b, 5001, config(ecn[1]));
    let id = simulation.connect(a, b, (5000, 5001), config(ecn[0]));
    simulation.node_mut(a).app.start(id, Source::file(u64::MAX / 2, 1444));
    simulation.run_for(Duration::from_secs(5));
    let lost = simulation.network.pipe(there).stats().packets_overflowed;
    let statistics = simulation.node(a).endpoint.statistics(id).expect("it is up");
    (simulation.node(b).app.received().bytes, lost, statistics)
}

#[test]
fn marks_keep_the_queue_short_and_lose_nothing() {
    let (bytes, lost, statistics) = run([true, true]);
    assert_eq!((lost, statistics.data_chunks_retransmitted), (0, 0));
    assert!(statistics.ecn_reductions >= 2, "{statistics:?}");
    assert!(bytes > 50_000_000, "{bytes} bytes of 62.5 MB");
    let (_, lost, statistics) = run([false, false]);
    assert!(lost > 0 && statistics.ecn_reductions == 0);
}

#[test]
fn one_side_that_cannot_is_enough_to_do_without() {
    for ecn in [[true, false], [false, true]] {
        let (_, lost, statistics) = run(ecn);
        assert!(lost > 0 && statistics.ecn_reductions == 0);
    }
}

/// Returns a peer whose INIT says that it supports ECN.
fn capable(seed: u8) -> Peer {
    let mut peer =
        Peer::new(seed, AssociationConfig { tail_loss_probes: false, ..AssociationConfig::default() });
    let mut parameters = Vec::new();
    EcnCapable.write(&mut parameters);
    peer.sends()
        .tag(0)
        .chunk(|p, out| Init { parameters: Parameters::new(&parameters), ..p.init() }.write(out))
        .go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| sctp_wire::chunk::CookieEcho { cookie: &cookie }.write(out)).go();
    peer.expects("COOKIE ACK");
    peer.id = peer.app.events[0].id;
    peer
}

/// DATA of the peer arrives with a mark.
fn marked_data(peer: &mut Peer, number: u32) {
    let tsn = peer.init().initial_tsn.0.wrapping_add(number);
    let packet = build(PEER_PORT, ENDPOINT_PORT, peer.endpoint_tag, |out| {
        write_data(DataFlags::WHOLE, tsn, 0, number as u16, b"marked", out);
    });
    let arrival = Arrival {
        remote: peer.address,
        local: None,
        marked: true,
        in_memory: false,
        segment_bytes: packet.len(),
        bytes: &packet,
        shared: &[],
    };
    peer.endpoint.handle_batch(peer.now, &arrival, &mut peer.app);
    peer.collect_output();
}

fn echo_of(packet: &Bytes) -> Option<EcnEcho> {
    let mut found = None;
    each_chunk(packet, |chunk| {
        if let Chunk::EcnEcho(echo) = chunk {
            found = Some(echo);
        }
    });
    found
}

#[test]
fn a_mark_is_echoed_with_every_sack_until_the_sender_has_heeded_it() {
    let mut peer = capable(3);
    let first = peer.init().initial_tsn.0;
    marked_data(&mut peer, 0);
    let echo = EcnEcho { lowest_tsn: Tsn(first), marked_packets: 1 };
    assert_eq!(echo_of(&peer.hears()), Some(echo));
    peer.sends().data(1).go();
    assert_eq!(echo_of(&peer.hears()), Some(echo));
    marked_data(&mut peer, 2);
    assert_eq!(echo_of(&peer.hears()), Some(EcnEcho { marked_packets: 2, ..echo }));
    // A CWR for an earlier TSN does not end it.
    peer.sends().chunk(|_, out| Cwr { lowest_tsn: Tsn(first.wrapping_sub(1)) }.write(out)).data(3).go();
    assert!(echo_of(&peer.hears()).is_some());
    peer.sends().chunk(|_, out| Cwr { lowest_tsn: Tsn(first) }.write(out)).data(4).go();
    assert_eq!(echo_of(&peer.hears()), None);
}

#[test]
fn an_echo_shrinks_the_window_once_and_is_answered_each_time() {
    let mut peer = capable(4);
    for n in 0..3 {
        peer.app_sends(SendInfo::default(), vec![n; 1000]);
        peer.expects(&format!("DATA {n}"));
    }
    let before = peer.endpoint.statistics(peer.id).unwrap().paths[0].cwnd_bytes;
    let tsn = peer.endpoint_tsn(0);
    for times in 0..2 {
        peer.sends().chunk(|_, out| EcnEcho { lowest_tsn: tsn, marked_packets: 1 }.write(out)).go();
        peer.expects("CWR");
        let statistics = peer.endpoint.statistics(peer.id).unwrap();
        assert_eq!(statistics.ecn_reductions, 1, "after {times} more");
        assert!(statistics.paths[0].cwnd_bytes < before);
    }
    // The window does not shrink again when the reduction is over and the echo is repeated.
    peer.app_sends(SendInfo::default(), vec![3; 1000]);
    peer.sends().sack(3, &[]).go();
    peer.sends().chunk(|_, out| EcnEcho { lowest_tsn: tsn, marked_packets: 1 }.write(out)).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().ecn_reductions, 1);
    while peer.hears_maybe().is_some() {}
    // A TSN that was never sent has no effect.
    for number in [4, 1000] {
        let never = peer.endpoint_tsn(number);
        peer.sends().chunk(|_, out| EcnEcho { lowest_tsn: never, marked_packets: 1 }.write(out)).go();
        peer.expects_nothing();
    }
}

#[test]
fn without_agreement_marks_and_echoes_are_nothing() {
    let mut peer = Peer::established(5);
    marked_data(&mut peer, 0);
    assert_eq!(echo_of(&peer.hears()), None);
    peer.app_sends(SendInfo::default(), vec![0; 1000]);
    peer.expects("DATA 0");
    let tsn = peer.endpoint_tsn(0);
    peer.sends().chunk(|_, out| EcnEcho { lowest_tsn: tsn, marked_packets: 1 }.write(out)).go();
    assert_eq!(peer.endpoint.statistics(peer.id).unwrap().ecn_reductions, 0);
    // An unknown chunk of this type ends the packet.
    peer.sends().chunk(|_, out| Cwr { lowest_tsn: tsn }.write(out)).data(1).go();
    assert_eq!(peer.app.messages.len(), 1);
    let capable = |packet: &Bytes| {
        let mut found = false;
        each_chunk(packet, |chunk| {
            if let Chunk::Init(init) = chunk {
                found = init.parameters().flatten().any(|p| matches!(p, Parameter::EcnCapable(_)));
            }
        });
        found
    };
    for ecn in [true, false] {
        let config = AssociationConfig { ecn, ..AssociationConfig::default() };
        assert_eq!(capable(&Peer::connecting(6, config).hears()), ecn);
    }
}
