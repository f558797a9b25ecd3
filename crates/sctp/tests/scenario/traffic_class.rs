//! The differentiated services codepoint of packets (RFC 2474): of an association from its first packet on, and of a path.

use std::time::Duration;

use sctp::{AssociationConfig, PathOptions, SendInfo};

use lab::{A, B, TwoHosts, line};

const EXPEDITED: u8 = 46;
const LOW: u8 = 8;

fn config(dscp: u8) -> AssociationConfig {
    AssociationConfig { dscp, ..AssociationConfig::default() }
}

/// Returns the codepoints that a host has sent packets with since then.
fn codepoints(hosts: &TwoHosts, by: usize, since: usize) -> Vec<u8> {
    let mut seen: Vec<u8> =
        hosts.sent[since..].iter().filter(|sent| sent.by == by).map(|sent| sent.dscp).collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

#[test]
fn every_packet_has_it_from_the_handshake_to_the_end() {
    let mut hosts = TwoHosts::new(1);
    let (a, _) = hosts.establish_with(config(EXPEDITED), config(LOW));
    hosts.send(A, a, SendInfo::default(), vec![1; 100_000]);
    hosts.run_until("it has arrived", Duration::from_secs(10), |hosts| hosts.node(B).app.messages.len() == 1);
    hosts.shutdown(A, a);
    hosts.run_until("it has ended", Duration::from_secs(10), |hosts| {
        hosts.closed(A).is_some() && hosts.closed(B).is_some()
    });
    assert_eq!((codepoints(&hosts, A, 0), codepoints(&hosts, B, 0)), (vec![EXPEDITED], vec![LOW]));
}

#[test]
fn it_changes_while_the_association_lives() {
    let mut hosts = TwoHosts::new(2);
    let (a, _) = hosts.establish();
    assert_eq!(codepoints(&hosts, A, 0), [0]);
    hosts.send(A, a, SendInfo::default(), vec![1; 100_000]);
    hosts.run_until("it has arrived", Duration::from_secs(10), |hosts| hosts.node(B).app.messages.len() == 1);
    let cwnd_bytes = |hosts: &TwoHosts| hosts.statistics(A, a).paths[0].cwnd_bytes;
    let wide = cwnd_bytes(&hosts);
    let since = hosts.sent.len();
    let now = hosts.now();
    let node = hosts.node_mut(A);
    node.endpoint.set_config(now, a, &config(LOW), &mut node.app);
    assert!(cwnd_bytes(&hosts) < wide, "nothing is known of the other queues");
    hosts.send(A, a, SendInfo::default(), vec![1; 10_000]);
    hosts.run_until("it has arrived", Duration::from_secs(10), |hosts| hosts.node(B).app.messages.len() == 2);
    assert_eq!(codepoints(&hosts, A, since), [LOW]);
}

#[test]
fn a_path_keeps_its_own() {
    let mut hosts = TwoHosts::with_paths(3, &[line(), line()]);
    let (a, _) = hosts.establish();
    let own = PathOptions { dscp: Some(EXPEDITED), ..PathOptions::default() };
    let primary = hosts.statistics(A, a).paths[0].remote.ip();
    let since = hosts.sent.len();
    let now = hosts.now();
    let node = hosts.node_mut(A);
    node.endpoint.set_path(now, a, Some(primary), &own, &mut node.app).unwrap();
    node.endpoint.set_config(now, a, &config(LOW), &mut node.app);
    let known: Vec<_> = hosts.statistics(A, a).paths.iter().map(|path| path.dscp).collect();
    assert_eq!(known, [Some(EXPEDITED), None]);
    hosts.send(A, a, SendInfo::default(), vec![1; 10_000]);
    hosts.run_for(Duration::from_secs(120));
    assert_eq!(hosts.node(B).app.messages.len(), 1);
    assert_eq!(
        codepoints(&hosts, A, since),
        [LOW, EXPEDITED],
        "the other path is probed with what the association has"
    );
}
