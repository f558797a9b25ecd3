//! Associations that share memory for received data: together they hold no more than the pool, and each makes progress.

use std::time::Duration;

use bytes::Bytes;
use sctp::{
    AssociationConfig, AssociationId, Event, POOL_FREE_BYTES, POOL_STEP_BYTES, ReceivePool, SendInfo,
};
use sctp_wire::chunk::DataFlags;

use lab::packets::sack_of;
use lab::script::Peer;
use lab::{A, B, PORT_B, Reading, TwoHosts};

const POOL_BYTES: usize = 4 * POOL_STEP_BYTES;
const ASSOCIATIONS: u16 = 8;
const MESSAGES: usize = 200;
const MESSAGE_BYTES: usize = 1000;

fn sharing(pool: &ReceivePool) -> AssociationConfig {
    AssociationConfig { receive_pool: Some(pool.clone()), ..AssociationConfig::default() }
}

fn messages(bytes: usize) -> impl Iterator<Item = (SendInfo, Bytes)> {
    (0..MESSAGES).map(move |n| (SendInfo::default(), vec![n as u8; bytes].into()))
}

/// Sets up associations from A to B, whose ends at B share a pool.
fn connected(seed: u64, pool: &ReceivePool, count: u16) -> (TwoHosts, Vec<AssociationId>) {
    let mut hosts = TwoHosts::new(seed);
    hosts.listen(sharing(pool));
    let streams_out = u16::MAX;
    let connect =
        |port| hosts.connect(A, (port, PORT_B), AssociationConfig { streams_out, ..Default::default() });
    let ids = (1..=count).map(connect).collect();
    let are_up = |hosts: &TwoHosts| accepted(hosts).len() == usize::from(count);
    hosts.run_until("all are up", Duration::from_secs(10), are_up);
    (hosts, ids)
}

/// Returns the associations that B has accepted.
fn accepted(hosts: &TwoHosts) -> Vec<AssociationId> {
    let events = hosts.node(B).app.events.iter();
    events.filter(|e| matches!(e.event, Event::Accepted { .. })).map(|e| e.id).collect()
}

fn held_bytes(hosts: &TwoHosts) -> usize {
    let of_one = |id: &AssociationId| hosts.statistics(B, *id).receive_buffered_bytes as usize;
    accepted(hosts).iter().map(of_one).sum()
}

#[test]
fn associations_hold_no_more_than_their_pool_and_all_arrives_in_the_end() {
    for (seed, bytes) in [(1, MESSAGE_BYTES), (2, 5000)] {
        let pool = ReceivePool::with_limit(POOL_BYTES);
        let (mut hosts, ids) = connected(seed, &pool, ASSOCIATIONS);
        hosts.app(B).set_reading(Reading::Never);
        for id in &ids {
            hosts.send_all(A, *id, messages(bytes));
        }
        let mut most = 0;
        for _ in 0..2000 {
            hosts.run_for(Duration::from_millis(1));
            most = most.max(held_bytes(&hosts));
        }
        let limit = POOL_BYTES + usize::from(ASSOCIATIONS) * POOL_FREE_BYTES;
        assert!((POOL_BYTES / 2..=limit).contains(&most), "{most} bytes held of {limit}");
        hosts.app(B).set_reading(Reading::AtOnce);
        let count = MESSAGES * usize::from(ASSOCIATIONS) * bytes;
        let all = |hosts: &TwoHosts| {
            hosts.node(B).app.messages.iter().map(|m| m.bytes.len()).sum::<usize>() == count
        };
        hosts.run_until("all arrived", Duration::from_secs(180), all);
        assert_eq!(held_bytes(&hosts), 0);
        assert_eq!(hosts.closed(A), None, "no association was given up");
    }
}

#[test]
fn an_association_goes_on_while_others_that_nobody_reads_fill_the_pool() {
    let pool = ReceivePool::with_limit(POOL_BYTES);
    let (mut hosts, ids) = connected(3, &pool, ASSOCIATIONS);
    hosts.app(B).set_reading(Reading::Never);
    for id in &ids[1..] {
        hosts.send_all(A, *id, messages(MESSAGE_BYTES));
    }
    hosts.run_for(Duration::from_secs(2));
    let full = hosts.node(B).app.messages.len();
    hosts.send_all(A, ids[0], messages(MESSAGE_BYTES));
    let read = accepted(&hosts)[0];
    let start = hosts.now();
    let mut taken = 0;
    while taken < MESSAGES {
        hosts.run_for(Duration::from_millis(1));
        let came = hosts.node(B).app.messages.iter().filter(|m| m.id == read).count();
        let node = hosts.node_mut(B);
        (taken..came).for_each(|_| node.endpoint.consumed(read, MESSAGE_BYTES, 1));
        taken = came;
        assert!(hosts.now() - start < Duration::from_secs(60), "{taken} messages came after {full}");
    }
}

#[test]
fn the_numbers_of_many_streams_take_memory_of_the_pool() {
    /// Memory for numbers of streams that an association has outside the pool, and for gaps.
    const FREE_BYTES: usize = 16 * 1024;
    let pool = ReceivePool::with_limit(POOL_BYTES);
    let (mut hosts, ids) = connected(4, &pool, ASSOCIATIONS);
    let on_far_streams = || (0..=u8::MAX).map(|n| (SendInfo::stream(256 * u16::from(n) + 1), vec![n].into()));
    for id in &ids {
        hosts.send_all(A, *id, on_far_streams());
    }
    hosts.run_for(Duration::from_secs(20));
    let state_bytes = |id: &AssociationId| hosts.statistics(B, *id).receive_state_bytes as usize;
    let all: usize = accepted(&hosts).iter().map(state_bytes).sum();
    let limit = POOL_BYTES + usize::from(ASSOCIATIONS) * FREE_BYTES;
    assert!((POOL_BYTES / 2..=limit).contains(&all), "{all} bytes for streams of {limit}");
    // The end of one association makes room for another.
    ids[1..].iter().for_each(|id| hosts.abort(A, *id, b"enough"));
    let (first, expected) = (accepted(&hosts)[0], on_far_streams().count());
    let has_all = |hosts: &TwoHosts| {
        hosts.node(B).app.messages.iter().filter(|message| message.id == first).count() == expected
    };
    hosts.run_until("the rest arrived", Duration::from_secs(180), has_all);
}

#[test]
fn an_association_has_as_many_streams_to_send_on_as_the_pool_has_memory_for() {
    /// The number of streams that need no memory of the pool.
    const FREE_STREAMS: u16 = 4096;
    let pool = ReceivePool::with_limit(POOL_BYTES);
    let wide = || AssociationConfig { streams_out: u16::MAX, ..sharing(&pool) };
    let mut hosts = TwoHosts::new(9);
    hosts.listen(AssociationConfig::default());
    let ids: Vec<_> = (1..=3).map(|port| hosts.connect(A, (port, PORT_B), wide())).collect();
    let narrow = hosts.connect(A, (4, PORT_B), AssociationConfig { streams_out: FREE_STREAMS, ..wide() });
    let are_up = |hosts: &TwoHosts| accepted(hosts).len() == 4;
    hosts.run_until("all are up", Duration::from_secs(10), are_up);
    let streams = |hosts: &TwoHosts, id| hosts.statistics(A, id).streams_out;
    assert_eq!(streams(&hosts, narrow), FREE_STREAMS);
    let granted: Vec<_> = ids.iter().map(|id| streams(&hosts, *id)).collect();
    assert_eq!(granted, [u16::MAX, FREE_STREAMS, FREE_STREAMS], "128 KB each");
    // The end of one association makes room for another.
    hosts.abort(A, ids[0], b"enough");
    let next = hosts.connect(A, (5, PORT_B), wide());
    hosts.run_until("one more is up", Duration::from_secs(10), |hosts| accepted(hosts).len() == 5);
    assert_eq!(streams(&hosts, next), u16::MAX);
}

/// Returns a peer whose receiver has a pool with `left_bytes` free.
fn peer_with(seed: u8, pool: &ReceivePool) -> Peer {
    let mut peer = Peer::established_with(seed, AssociationConfig { nr_sack: false, ..sharing(pool) });
    peer.app.set_reading(Reading::Never);
    peer
}

fn sends(peer: &mut Peer, number: u32) {
    peer.sends().data_with(DataFlags::WHOLE, number, 0, number as u16, &[1; MESSAGE_BYTES]).go();
    while peer.hears_maybe().is_some() {}
}

#[test]
fn data_that_fills_a_gap_takes_the_memory_of_the_highest_tsns() {
    // Only one step fits, and nothing is left in reserve.
    let pool = ReceivePool::with_limit(POOL_STEP_BYTES / 3 * 4 + 4);
    let mut peer = peer_with(4, &pool);
    let fit = (POOL_STEP_BYTES / (MESSAGE_BYTES + 96)) as u32;
    (3..=fit + 3).for_each(|number| sends(&mut peer, number));
    let dropped = |peer: &Peer| peer.endpoint.statistics(peer.id).unwrap().data_chunks_dropped;
    assert_eq!(dropped(&peer), 1, "the last has no memory");
    (0..3).for_each(|number| sends(&mut peer, number));
    assert_eq!(dropped(&peer), 1);
    // The message arrived with those behind it, but without the highest ones.
    let came = peer.app.messages.len() as u32;
    assert!((fit / 2..fit).contains(&came), "{came} of {fit}");
}

#[test]
fn a_full_pool_closes_the_window_and_a_reader_opens_it() {
    let pool = ReceivePool::with_limit(POOL_STEP_BYTES);
    let mut peer = peer_with(5, &pool);
    let window = |peer: &mut Peer, number: u32| {
        let at_once = DataFlags { immediate: true, ..DataFlags::WHOLE };
        peer.sends().data_with(at_once, number, 0, number as u16, &[1; MESSAGE_BYTES]).go();
        sack_of(&peer.hears()).unwrap().a_rwnd as usize
    };
    let first = window(&mut peer, 0);
    assert!(first <= POOL_STEP_BYTES, "{first}: the buffer has more");
    let mut number = 1;
    while window(&mut peer, number) >= MESSAGE_BYTES {
        number += 1;
        assert!(number < 200, "the window stays open");
    }
    for _ in 0..=number {
        peer.endpoint.consumed(peer.id, MESSAGE_BYTES, 1);
    }
    peer.collect_output();
    let update = peer.hears_maybe().expect("an update of the window");
    assert!(sack_of(&update).unwrap().a_rwnd as usize >= MESSAGE_BYTES);
}

#[test]
fn a_long_message_that_outgrows_the_pool_is_delivered_in_parts() {
    let pool = ReceivePool::with_limit(POOL_STEP_BYTES);
    let (mut hosts, ids) = connected(6, &pool, 1);
    hosts.send_all(A, ids[0], [(SendInfo::default(), vec![7; 4 * POOL_STEP_BYTES].into())]);
    let came = |hosts: &TwoHosts| hosts.node(B).app.records().len() == 1;
    hosts.run_until("the message arrived", Duration::from_secs(180), came);
    assert_eq!(hosts.node(B).app.records()[0].len(), 4 * POOL_STEP_BYTES);
}
