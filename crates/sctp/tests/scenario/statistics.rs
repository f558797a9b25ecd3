//! Statistics of associations and endpoints (RFC 6458, RFC 3873).

use std::time::Duration;

use bytes::Bytes;
use lab::{A, B, Fate, TwoHosts};
use sctp::{AssociationConfig, AssociationState, PathState, STATISTICS_VERSION, SendInfo};

const LONG: Duration = Duration::from_secs(300);

#[test]
fn messages_and_chunks_of_every_kind() {
    let mut hosts = TwoHosts::new(1);
    let (a, b) = hosts.establish();
    let unordered = SendInfo { unordered: true, ..SendInfo::default() };
    hosts.send(A, a, SendInfo::default(), vec![1; 100]);
    hosts.send(A, a, unordered, vec![2; 100]);
    hosts.send(A, a, unordered, vec![3; 100]);
    // Three chunks.
    hosts.send(A, a, SendInfo::default(), vec![4; 4000]);
    hosts.run_until("all arrived", LONG, |hosts| hosts.node(B).app.messages.len() == 4);
    hosts.run_for(Duration::from_secs(1));
    let (sent, received) = (hosts.statistics(A, a), hosts.statistics(B, b));
    assert_eq!(sent.version, STATISTICS_VERSION);
    assert_eq!((sent.state, received.state), (AssociationState::Established, AssociationState::Established));
    assert_eq!((sent.local_port, sent.peer_port), (lab::PORT_A, lab::PORT_B));
    assert_eq!((sent.messages_sent, received.messages_received), (4, 4));
    assert_eq!((sent.messages_fragmented, received.messages_reassembled), (1, 1));
    assert_eq!(received.messages_fragmented + sent.messages_reassembled, 0);
    assert_eq!((sent.unordered_chunks_sent, received.unordered_chunks_received), (2, 2));
    assert_eq!((sent.ordered_chunks_sent(), received.ordered_chunks_received()), (4, 4));
    // INIT and INIT ACK come before the association of the accepting endpoint.
    assert_eq!(sent.packets_sent, received.packets_received + 1);
    assert_eq!(sent.packets_received, received.packets_sent + 1);
    assert_eq!(sent.fragmentation_point_bytes, 1472 - 12 - 16);
    assert_eq!((sent.outstanding_chunks, sent.errors), (0, 0));
    let path = &sent.paths[sent.primary];
    assert_eq!((path.state, path.active, path.heartbeats), (PathState::Active, true, true));
    assert_eq!(path.delivered_bytes, 3 * 116 + 4000 + 3 * 16);
    let rtts = [path.latest_rtt, path.srtt, path.min_rtt];
    assert!(rtts.iter().all(|rtt| rtt.is_some_and(|rtt| rtt >= Duration::from_millis(20))), "{path:?}");
    assert!(path.rttvar.is_some() && path.pacing_bytes_per_s.is_some(), "{path:?}");
}

#[test]
fn gaps_duplicates_and_chunks_out_of_sequence() {
    let mut hosts = TwoHosts::new(2);
    let (a, b) = hosts.establish();
    let mut count = 0;
    hosts.tap(A, move |_| {
        count += 1;
        if count == 3 { Fate::Drop } else { Fate::Pass }
    });
    hosts.send_all(A, a, (0..10).map(|_| (SendInfo::default(), Bytes::from(vec![0; 1400]))));
    hosts.run_until("all arrived", LONG, |hosts| hosts.node(B).app.messages.len() == 10);
    hosts.run_for(Duration::from_secs(1));
    let (sent, received) = (hosts.statistics(A, a), hosts.statistics(B, b));
    assert!(received.out_of_sequence_received >= 3, "{received:?}");
    assert!(sent.gaps_received >= 1, "{sent:?}");
    assert_eq!((sent.paths[0].packets_lost, sent.data_chunks_retransmitted), (1, 1));
    assert_eq!(received.duplicates_received, sent.duplicates_reported);
}

#[test]
fn timeouts_by_their_timer() {
    let mut hosts = TwoHosts::new(3);
    // Neither side answers twice.
    let mut lost = 0;
    hosts.tap(A, move |_| {
        lost += 1;
        if lost <= 2 { Fate::Drop } else { Fate::Pass }
    });
    let (a, _) = hosts.establish();
    assert_eq!(hosts.statistics(A, a).t1_timeouts, 2);
    assert!(hosts.statistics(A, a).established_at.is_some_and(|at| at.as_nanos() > 3_000_000_000));
    hosts.tap(A, |_| Fate::Drop);
    hosts.send(A, a, SendInfo::default(), "lost");
    hosts.run_for(Duration::from_secs(4));
    let statistics = hosts.statistics(A, a);
    assert!(statistics.timeouts >= 2 && statistics.errors >= 2, "{statistics:?}");
    assert_eq!(statistics.timeouts, statistics.paths[0].timeouts);
    assert!(statistics.rto_max >= Duration::from_secs(4), "{statistics:?}");
    assert_eq!(statistics.rto_max_path, Some(statistics.paths[0].remote));
    hosts.untap(A);
    hosts.run_until("it arrived", LONG, |hosts| !hosts.node(B).app.messages.is_empty());
    hosts.run_for(Duration::from_secs(1));
    hosts.tap(A, |_| Fate::Drop);
    hosts.shutdown(A, a);
    hosts.run_for(Duration::from_secs(20));
    let statistics = hosts.statistics(A, a);
    assert_eq!(statistics.state, AssociationState::ShutdownSent);
    assert!(statistics.t2_timeouts >= 1, "{statistics:?}");
}

#[test]
fn an_endpoint_counts_those_that_are_gone() {
    let mut hosts = TwoHosts::new(4);
    hosts.listen(AssociationConfig::default());
    let connect = |hosts: &mut TwoHosts, port| {
        let id = hosts.connect(A, (port, lab::PORT_B), AssociationConfig::default());
        hosts.run_for(Duration::from_secs(1));
        hosts.send(A, id, SendInfo::default(), vec![0; 3000]);
        hosts.run_for(Duration::from_secs(1));
        id
    };
    let first = connect(&mut hosts, 6000);
    let second = connect(&mut hosts, 6001);
    connect(&mut hosts, 6002);
    hosts.shutdown(A, first);
    hosts.run_for(Duration::from_secs(1));
    hosts.abort(A, second, b"enough");
    hosts.run_for(Duration::from_secs(1));
    let (a, b) = (hosts.node(A).endpoint.endpoint_statistics(), hosts.node(B).endpoint.endpoint_statistics());
    assert_eq!((a.connected, a.accepted, a.established), (3, 0, 1));
    assert_eq!((b.connected, b.accepted, b.established), (0, 3, 1));
    assert_eq!((a.shut_down, a.aborted, b.shut_down, b.aborted), (1, 1, 1, 1));
    assert_eq!((a.messages_fragmented, b.messages_reassembled), (3, 3));
    assert_eq!((a.ordered_chunks_sent, b.ordered_chunks_received), (9, 9));
    assert_eq!((a.packets_sent, b.packets_sent), (b.packets_received, a.packets_received));
    assert_eq!(a.control_chunks_sent, b.control_chunks_received);
    assert_eq!(b.control_chunks_sent, a.control_chunks_received);
}
