//! Concurrent multipath: all paths carry data at once, and none delays another.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use lab::packets::{data_of, each_chunk};
use lab::script::{PEER_WINDOW_BYTES, Peer};
use lab::{A, B, Node, PORT_A, PORT_B, TwoHosts, line};
use netsim::{Loss, PipeConfig};
use sctp::{AssociationConfig, Multipath, PathStatistics, SendInfo};
use sctp_wire::chunk::{Chunk, CookieEcho, HeartbeatAck, Init, SackBuilder};
use sctp_wire::parameter::{Ipv4, Parameters, PrivateExtension, SupportedExtensions};

const MESSAGE_BYTES: usize = 1400;

fn line_of(mbit_per_s: u64, round_trip_ms: u64) -> PipeConfig {
    let rate = mbit_per_s * 1_000_000;
    PipeConfig {
        rate_bits_per_s: Some(rate),
        delay: Duration::from_millis(round_trip_ms) / 2,
        queue_bytes: (rate / 8 * round_trip_ms / 1000) as usize,
        ..line()
    }
}

/// Returns two hosts with these lines after A has sent this many messages, and how long that took. Every message arrives
/// once and in order.
fn sends(lines: &[PipeConfig], config: AssociationConfig, messages: u32) -> (TwoHosts, Duration) {
    let mut hosts = TwoHosts::with_paths(1, lines);
    let (a, _) = hosts.establish_with(config.clone(), config);
    // Every path has been verified and measured.
    hosts.run_for(Duration::from_secs(2));
    let start = hosts.now();
    let message = |n: u32| {
        let mut bytes = n.to_be_bytes().to_vec();
        bytes.resize(MESSAGE_BYTES, 0);
        Bytes::from(bytes)
    };
    hosts.send_all(A, a, (0..messages).map(|n| (SendInfo::default(), message(n))));
    let all = messages as usize;
    hosts.run_until("all arrived", Duration::from_secs(600), |hosts| hosts.node(B).app.messages.len() == all);
    let numbers =
        hosts.node(B).app.messages.iter().map(|m| m.bytes.first_chunk().map(|n| u32::from_be_bytes(*n)));
    assert!(numbers.eq((0..messages).map(Some)), "all of them, in order");
    let took = hosts.now() - start;
    (hosts, took)
}

fn delivered(hosts: &TwoHosts) -> Vec<u64> {
    let id = hosts.node(A).app.events[0].id;
    hosts.statistics(A, id).paths.iter().map(|path| path.delivered_bytes).collect()
}

#[test]
fn two_lines_carry_twice_as_much() {
    let lines = [line_of(100, 10), line_of(100, 10)];
    let off = AssociationConfig { multipath: Multipath::Off, ..AssociationConfig::default() };
    let (one, alone) = sends(&lines, off, 20_000);
    let (both, together) = sends(&lines, AssociationConfig::default(), 20_000);
    assert!(together < alone * 6 / 10, "{together:?} with both, {alone:?} with one");
    assert_eq!(delivered(&one)[1], 0);
    let [first, second] = delivered(&both)[..] else { panic!("two paths") };
    assert!(first.abs_diff(second) < first / 5, "{first} and {second} bytes");
}

#[test]
fn a_slow_line_holds_back_nothing() {
    let small = AssociationConfig {
        receive_buffer_bytes: 64 << 10,
        receive_buffer_tuned_bytes: 64 << 10,
        ..AssociationConfig::default()
    };
    for (config, slow) in [
        (AssociationConfig::default(), line_of(10, 10)),
        (AssociationConfig::default(), line_of(100, 200)),
        (small.clone(), line_of(10, 10)),
        (small, line_of(100, 200)),
    ] {
        let off = AssociationConfig { multipath: Multipath::Off, ..config.clone() };
        let (_, alone) = sends(&[line_of(100, 10), slow.clone()], off, 10_000);
        let (_, together) = sends(&[line_of(100, 10), slow.clone()], config, 10_000);
        assert!(together <= alone * 101 / 100, "{together:?} with {slow:?}, {alone:?} without");
    }
}

#[test]
fn a_slow_line_is_used_when_it_has_become_fast() {
    let small = AssociationConfig {
        receive_buffer_bytes: 64 << 10,
        receive_buffer_tuned_bytes: 64 << 10,
        ..AssociationConfig::default()
    };
    let mut hosts = TwoHosts::with_paths(1, &[line_of(100, 200), line_of(100, 10)]);
    let (a, _) = hosts.establish_with(small.clone(), small);
    hosts.run_for(Duration::from_secs(2));
    hosts.send_all(A, a, (0..80_000).map(|_| (SendInfo::default(), Bytes::from(vec![0; MESSAGE_BYTES]))));
    hosts.run_for(Duration::from_secs(1));
    let [slow, fast] = delivered(&hosts)[..] else { panic!("two paths") };
    assert!(slow < fast / 100, "the window holds nothing for the slow line: {slow} and {fast} bytes");
    let link = hosts.links[0];
    for pipe in [link.there, link.back] {
        hosts.network.pipe_mut(pipe).set_delay(Duration::from_millis(1));
    }
    hosts.run_for(Duration::from_secs(6));
    let [before, other] = delivered(&hosts)[..] else { panic!("two paths") };
    hosts.run_for(Duration::from_secs(1));
    let [after, other_after] = delivered(&hosts)[..] else { panic!("two paths") };
    assert!(after - before > other_after - other, "{} and {} bytes", after - before, other_after - other);
}

#[test]
fn losses_on_one_line_are_retransmitted_and_the_other_does_not_wait() {
    let lossy = PipeConfig { loss: Loss::Random { probability: 0.02 }, ..line_of(100, 10) };
    let (hosts, together) = sends(&[line_of(100, 10), lossy], AssociationConfig::default(), 20_000);
    let (_, alone) = sends(&[line_of(100, 10)], AssociationConfig::default(), 20_000);
    assert!(together < alone, "{together:?} with both, {alone:?} with the good one");
    let id = hosts.node(A).app.events[0].id;
    let statistics = hosts.statistics(A, id);
    assert_eq!((statistics.timeouts, statistics.paths[0].timeouts), (0, 0));
}

#[test]
fn a_path_that_was_named_is_used_as_soon_as_it_has_answered() {
    let config = AssociationConfig::default();
    let mut hosts = TwoHosts::with_paths(1, &[line_of(100, 10), line_of(100, 10)]);
    hosts.listen(config.clone());
    let (now, named) = (hosts.now(), hosts.node(B).sockets());
    let Node { endpoint, app, .. } = hosts.node_mut(A);
    let a = endpoint.connect(now, PORT_A, PORT_B, &named, config.into(), app).unwrap();
    hosts.run_until("it is up", Duration::from_secs(1), |hosts| hosts.is_up(A) && hosts.is_up(B));
    hosts.send_all(A, a, (0..10_000).map(|_| (SendInfo::default(), Bytes::from(vec![0; MESSAGE_BYTES]))));
    hosts.run_for(Duration::from_millis(500));
    let paths = hosts.statistics(A, a).paths;
    let [first, second] = [paths[0].delivered_bytes, paths[1].delivered_bytes];
    assert!(second > first / 2, "{first} and {second} bytes");
}

/// The peer has two addresses, both verified, and offers multipath if `agrees`.
fn peer_with_two_paths(seed: u8, agrees: bool, config: AssociationConfig) -> Peer {
    let mut parameters = Vec::new();
    Ipv4 { address: [10, 0, 1, 9].into() }.write(&mut parameters);
    SupportedExtensions { chunk_kinds: &[16] }.write(&mut parameters);
    if agrees {
        PrivateExtension::MULTIPATH.write(&mut parameters);
    }
    let mut peer = Peer::new(seed, config);
    let init = Init { parameters: Parameters::new(&parameters), ..peer.init() };
    let mut bytes = Vec::new();
    init.write(&mut bytes);
    peer.sends().tag(0).chunk(|_, out| out.extend_from_slice(&bytes)).go();
    let cookie = peer.takes_init_ack();
    peer.sends().chunk(|_, out| CookieEcho { cookie: &cookie }.write(out)).go();
    peer.id = peer.app.events[0].id;
    for _ in 0..3 {
        while let Some((to, packet)) = peer.hears_on_maybe() {
            answer_heartbeat(&mut peer, to, &packet);
        }
        peer.waits(Duration::from_secs(1));
    }
    peer
}

/// Answers the heartbeat in a packet, if there is one, from the address that it went to.
fn answer_heartbeat(peer: &mut Peer, to: SocketAddr, packet: &[u8]) {
    each_chunk(packet, |chunk| {
        if let Chunk::Heartbeat(heartbeat) = chunk {
            let info = heartbeat.info.to_vec();
            let home = std::mem::replace(&mut peer.address, to);
            peer.sends().chunk(|_, out| HeartbeatAck { info: &info }.write(out)).go();
            peer.address = home;
        }
    });
}

/// Returns the addresses of the peer that data goes to.
fn used(mut peer: Peer) -> usize {
    for n in 0..40 {
        peer.app_sends(SendInfo::default(), vec![n; 1400]);
    }
    let mut addresses = std::collections::BTreeSet::new();
    while let Some((to, packet)) = peer.hears_on_maybe() {
        if !data_of(&packet).is_empty() {
            addresses.insert(to);
        }
    }
    addresses.len()
}

#[test]
fn only_who_wants_it_gets_data_on_all_paths() {
    let with = |multipath| AssociationConfig { multipath, ..AssociationConfig::default() };
    for (multipath, agrees, paths) in [
        (Multipath::Agreed, true, 2),
        (Multipath::Agreed, false, 1),
        (Multipath::Always, false, 2),
        (Multipath::Off, true, 1),
    ] {
        let peer = peer_with_two_paths(3, agrees, with(multipath));
        let statistics = peer.endpoint.statistics(peer.id).expect("it is up");
        assert_eq!(statistics.multipath, paths == 2, "{multipath:?}, {agrees}");
        assert_eq!(used(peer), paths, "{multipath:?}, {agrees}");
    }
}

/// Returns the runs of true values as gap blocks, counted from one.
fn gap_blocks(there: impl Iterator<Item = bool>) -> Vec<(u16, u16)> {
    let mut blocks: Vec<(u16, u16)> = Vec::new();
    for (_, n) in there.zip(1..).filter(|(there, _)| *there) {
        match blocks.last_mut() {
            Some((_, end)) if *end + 1 == n => *end = n,
            _ => blocks.push((n, n)),
        }
    }
    blocks
}

#[test]
fn a_path_that_answers_heartbeats_and_swallows_data_holds_up_little() {
    let config = AssociationConfig { tail_loss_probes: false, ..AssociationConfig::default() };
    let mut peer = peer_with_two_paths(20, true, config);
    let (home, mut arrived, mut swallowed) = (peer.address, BTreeSet::new(), 0);
    for _ in 0..6000 {
        for _ in 0..4 {
            peer.app_sends(SendInfo::default(), vec![0; 1000]);
        }
        peer.waits(Duration::from_millis(10));
        while let Some((to, packet)) = peer.hears_on_maybe() {
            answer_heartbeat(&mut peer, to, &packet);
            let tsns = data_of(&packet).into_iter().map(|data| data.tsn);
            if to == home {
                arrived.extend(tsns);
            } else {
                swallowed += tsns.count();
            }
        }
        let has = |n: i32| arrived.contains(&peer.endpoint_tsn(n).0);
        let next = (0..).find(|n| !has(*n)).unwrap_or_default();
        let gaps = gap_blocks((next..next + 500).map(has));
        peer.sends().sack(next - 1, &gaps).go();
    }
    assert!(arrived.len() >= 24_000, "{} chunks arrived", arrived.len());
    assert!((1..100).contains(&swallowed), "{swallowed} chunks were tried there");
    let remembered = peer.endpoint.remembered_packets(peer.id);
    assert!(remembered < 200, "{remembered} packets are remembered");
}

#[test]
fn losses_on_a_slow_line_are_overtaken_while_the_receive_buffer_is_full() {
    // The buffer holds what the fast line carries while the slow one delivers, and not while it repairs a loss.
    let config = AssociationConfig {
        receive_buffer_bytes: 256 << 10,
        receive_buffer_tuned_bytes: 256 << 10,
        ..AssociationConfig::default()
    };
    for slow in [line_of(10, 10), line_of(100, 200)] {
        let off = AssociationConfig { multipath: Multipath::Off, ..config.clone() };
        let (_, alone) = sends(&[line_of(100, 10)], off, 15_000);
        let (hosts, together) = sends(&[line_of(100, 10), slow.clone()], config.clone(), 15_000);
        assert!(together <= alone * 101 / 100, "{together:?} with {slow:?}, {alone:?} without");
        let dropped = hosts.statistics(B, hosts.node(B).app.events[0].id).data_chunks_dropped;
        assert_eq!(dropped, 0, "what was in the window has room");
    }
}

/// Sends this many full messages. Returns the numbers of the chunks that leave at once, by the address of the peer that each
/// goes to.
fn sent_on_both(peer: &mut Peer, messages: u8) -> [Vec<i32>; 2] {
    for n in 0..messages {
        peer.app_sends(SendInfo::default(), vec![n; 1400]);
    }
    let sent = heard_on_both(peer);
    assert!(sent.iter().all(|numbers| !numbers.is_empty()), "both paths carry data: {sent:?}");
    sent
}

/// Returns the numbers of the chunks that the peer hears, by the address that each goes to. It answers heartbeats.
fn heard_on_both(peer: &mut Peer) -> [Vec<i32>; 2] {
    let (home, first) = (peer.address, peer.endpoint_tsn(0).0);
    let mut heard = [Vec::new(), Vec::new()];
    while let Some((to, packet)) = peer.hears_on_maybe() {
        answer_heartbeat(peer, to, &packet);
        let numbers = data_of(&packet).into_iter().map(|data| data.tsn.wrapping_sub(first) as i32);
        heard[usize::from(to != home)].extend(numbers);
    }
    heard
}

/// Acknowledges after a moment all chunks before `end` but those `missing`, and reports `duplicates`.
fn acknowledges(peer: &mut Peer, end: i32, missing: &[i32], duplicates: &[i32]) {
    peer.waits(Duration::from_millis(5));
    let next = missing.iter().copied().min().unwrap_or(end);
    let gap_blocks = gap_blocks((next..end).map(|n| !missing.contains(&n)));
    let duplicates: Vec<_> = duplicates.iter().map(|n| peer.endpoint_tsn(*n)).collect();
    let cum_tsn = peer.endpoint_tsn(next - 1);
    let sack =
        SackBuilder { cum_tsn, a_rwnd: PEER_WINDOW_BYTES, gap_blocks: &gap_blocks, duplicates: &duplicates };
    peer.sends().chunk(|_, out| sack.write(out)).go();
}

fn path_statistics(peer: &Peer) -> Vec<PathStatistics> {
    peer.endpoint.statistics(peer.id).expect("it is up").paths
}

#[test]
fn a_duplicate_undoes_the_reduction_of_the_path_that_had_declared_it_lost() {
    for late in [0, 1] {
        let mut peer = peer_with_two_paths(21, true, AssociationConfig::default());
        let sent = sent_on_both(&mut peer, 40);
        let end = sent.iter().map(Vec::len).sum::<usize>() as i32;
        let first = [sent[0][0], sent[1][0]];
        acknowledges(&mut peer, end, &first, &[]);
        let again = heard_on_both(&mut peer).concat();
        assert!(first.iter().all(|n| again.contains(n)), "{first:?} leave again: {again:?}");
        assert!(path_statistics(&peer).iter().all(|path| path.ssthresh_bytes.is_some()), "both have reduced");
        // One of the two was lost; the other was late and has arrived twice.
        acknowledges(&mut peer, end, &[], &first[late..=late]);
        let undone: Vec<_> = path_statistics(&peer).iter().map(|path| path.reductions_undone).collect();
        assert_eq!(undone, [u64::from(late == 0), u64::from(late == 1)]);
    }
}

#[test]
fn a_duplicate_shows_that_the_tail_loss_probe_of_its_path_was_not_needed_and_no_other() {
    for late in [0, 1] {
        let mut peer = peer_with_two_paths(22, true, AssociationConfig::default());
        let sent = sent_on_both(&mut peer, 8);
        let end = sent.iter().map(Vec::len).sum::<usize>() as i32;
        let last = sent.map(|numbers| numbers[numbers.len() - 1]);
        acknowledges(&mut peer, end, &last, &[]);
        let mut probes = Vec::new();
        while probes.len() < 2 {
            assert_eq!(path_statistics(&peer).iter().map(|path| path.timeouts).sum::<u64>(), 0);
            peer.waits(Duration::from_millis(5));
            probes.extend(heard_on_both(&mut peer).concat());
        }
        assert!(last.iter().all(|n| probes.contains(n)), "{last:?} are probed: {probes:?}");
        acknowledges(&mut peer, end, &[], &last[late..=late]);
        assert!(path_statistics(&peer).iter().all(|path| path.ssthresh_bytes.is_none()));
        // Packets that left after the probes arrive without a report of another duplicate.
        let sent = sent_on_both(&mut peer, 8);
        let end = end + sent.iter().map(Vec::len).sum::<usize>() as i32;
        acknowledges(&mut peer, end, &[], &[]);
        let reduced: Vec<_> =
            path_statistics(&peer).iter().map(|path| path.ssthresh_bytes.is_some()).collect();
        assert_eq!(reduced, [late != 0, late != 1]);
    }
}

#[test]
fn a_sack_on_another_path_undoes_no_timeout_of_a_path_that_has_failed() {
    let config =
        AssociationConfig { early_failover: false, tail_loss_probes: false, ..AssociationConfig::default() };
    let mut peer = peer_with_two_paths(23, true, config);
    let sent = sent_on_both(&mut peer, 8);
    let end = sent.iter().map(Vec::len).sum::<usize>() as i32;
    let lost = sent[1][sent[1].len() - 1];
    // Neither data nor heartbeats are answered.
    peer.waits(Duration::from_millis(1500));
    while peer.hears_on_maybe().is_some() {}
    assert!(path_statistics(&peer).iter().all(|path| path.timeouts == 1), "T3 has expired on both");
    // All but the last packet had arrived, and their SACKs were lost. The first path works again.
    acknowledges(&mut peer, end, &[lost], &[]);
    assert!(
        heard_on_both(&mut peer)[0].contains(&lost),
        "the lost chunk leaves again at once, on the path that works"
    );
    assert_eq!(path_statistics(&peer)[1].reductions_undone, 0);
}
