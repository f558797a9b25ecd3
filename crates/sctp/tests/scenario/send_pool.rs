//! Associations that share memory for what they send: peers that take nothing more leave room for the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sctp::{
    AssociationConfig, AssociationId, Lifetime, SEND_LITTLE_BYTES, SEND_RESERVED_PART, SendBudget, SendInfo,
    SendPool,
};

use lab::{A, B, PORT_B, Reading, TwoHosts};

const POOL_BYTES: usize = 1024 * 1024;
const ASSOCIATIONS: u16 = 6;
/// Number of streams that A asks for; B allows fewer.
const STREAMS: u16 = 20;
/// Bytes of all messages to a peer.
const BYTES: usize = 2_700_000;

/// A budget of [`POOL_BYTES`] that the test looks into.
#[derive(Debug, Default)]
struct Budget {
    charged_bytes: AtomicUsize,
    owners_charge: bool,
}

impl Budget {
    fn charged_bytes(&self) -> usize {
        self.charged_bytes.load(Relaxed)
    }
}

impl SendBudget for Budget {
    fn charge(&self, bytes: usize) {
        self.charged_bytes.fetch_add(bytes, Relaxed);
    }

    fn release(&self, bytes: usize) {
        self.charged_bytes.fetch_sub(bytes, Relaxed);
    }

    fn free_bytes(&self) -> usize {
        (POOL_BYTES - POOL_BYTES / SEND_RESERVED_PART).saturating_sub(self.charged_bytes())
    }

    fn owners_charge(&self) -> bool {
        self.owners_charge
    }
}

/// Sets up associations from A to B, whose ends at A share a budget, and whose peers do not read.
fn connected(seed: u64, budget: &Arc<Budget>) -> (TwoHosts, Vec<AssociationId>) {
    connected_with(seed, budget, false)
}

/// Sets up the same with or without events.
fn connected_with(seed: u64, budget: &Arc<Budget>, events: bool) -> (TwoHosts, Vec<AssociationId>) {
    let mut hosts = TwoHosts::new(seed);
    let receive_buffer_bytes = 32 * 1024;
    hosts.listen(AssociationConfig {
        receive_buffer_bytes,
        receive_buffer_tuned_bytes: 0,
        streams_in_max: 10,
        ..Default::default()
    });
    hosts.app(B).set_reading(Reading::Never);
    let connect = |port| hosts.connect(A, (port, PORT_B), config(budget, events));
    let ids: Vec<_> = (1..=ASSOCIATIONS).map(connect).collect();
    hosts.run_for(Duration::from_secs(2));
    (hosts, ids)
}

fn config(budget: &Arc<Budget>, events: bool) -> AssociationConfig {
    let send_pool = Some(SendPool::new(Arc::<Budget>::clone(budget)));
    let send_buffer_bytes = 16 * POOL_BYTES;
    AssociationConfig { send_pool, send_buffer_bytes, events, streams_out: STREAMS, ..Default::default() }
}

fn buffered_bytes(hosts: &TwoHosts, id: AssociationId) -> usize {
    hosts.statistics(A, id).send_buffered_bytes as usize
}

#[test]
fn messages_to_peers_that_take_nothing_are_charged_and_leave_room_for_others() {
    // Copied ones, and references to their owners' memory: whole messages, and some of many fragments.
    for bytes in [450, 1000, 10_000, 50_000] {
        peers_that_take_nothing_leave_room(bytes);
    }
}

fn peers_that_take_nothing_leave_room(bytes: usize) {
    let budget = Arc::new(Budget::default());
    let (mut hosts, ids) = connected(1, &budget);
    let count = BYTES / bytes;
    let messages = || (0..count).map(|n| (SendInfo::default(), vec![n as u8; bytes].into()));
    for id in &ids {
        hosts.send_all(A, *id, messages());
        hosts.run_for(Duration::from_secs(5));
        let buffered: usize = ids.iter().map(|id| buffered_bytes(&hosts, *id)).sum();
        let charged = budget.charged_bytes();
        assert!(charged + 100_000 > buffered, "{charged} bytes are charged for {buffered}");
        assert!(charged < POOL_BYTES, "{charged} bytes");
        let of_this = buffered_bytes(&hosts, *id);
        assert!(of_this > SEND_LITTLE_BYTES / 2, "{of_this} bytes after the others");
    }
    hosts.app(B).set_reading(Reading::AtOnce);
    let all =
        |hosts: &TwoHosts| hosts.all_admitted(A) && ids.iter().all(|id| buffered_bytes(hosts, *id) == 0);
    hosts.run_until("all arrived", Duration::from_secs(600), all);
    assert_eq!(budget.charged_bytes(), 0);
}

#[test]
fn short_messages_with_a_lifetime_are_charged_with_what_they_take_besides_their_bytes() {
    let budget = Arc::new(Budget::default());
    let (mut hosts, ids) = connected(5, &budget);
    let info = SendInfo { lifetime: Lifetime::from_ms(600_000), ..SendInfo::default() };
    for id in &ids {
        hosts.send_all(A, *id, (0..20_000).map(|n| (info, vec![n as u8].into())));
        hosts.run_for(Duration::from_secs(5));
    }
    let buffered: usize = ids.iter().map(|id| buffered_bytes(&hosts, *id)).sum();
    let charged = budget.charged_bytes();
    assert!(charged + 100_000 > buffered, "{charged} bytes are charged for {buffered}");
    assert!(charged < POOL_BYTES, "{charged} bytes");
}

#[test]
fn an_association_fills_its_buffer_no_further_than_the_pool_has_room() {
    let budget = Arc::new(Budget { owners_charge: true, ..Budget::default() });
    let (mut hosts, ids) = connected(2, &budget);
    let messages = || (0..100).map(|n| (SendInfo::default(), vec![n; 10_000].into()));
    // Owners of long messages have charged all but the reserve.
    budget.charge(POOL_BYTES / 4 * 3);
    hosts.send_all(A, ids[0], messages());
    hosts.run_for(Duration::from_secs(5));
    let little = SEND_LITTLE_BYTES - 20_000..=SEND_LITTLE_BYTES;
    assert!(little.contains(&buffered_bytes(&hosts, ids[0])), "{}", buffered_bytes(&hosts, ids[0]));
    budget.release(POOL_BYTES / 4 * 3);
    hosts.send_all(A, ids[1], messages());
    hosts.run_for(Duration::from_secs(5));
    assert!(buffered_bytes(&hosts, ids[1]) > POOL_BYTES / 2, "{}", buffered_bytes(&hosts, ids[1]));
}

#[test]
fn owners_that_charge_their_messages_are_not_charged_twice() {
    let budget = Arc::new(Budget { owners_charge: true, ..Budget::default() });
    let (mut hosts, ids) = connected(3, &budget);
    hosts.send_all(A, ids[0], (0..10).map(|n| (SendInfo::default(), vec![n; 10_000].into())));
    hosts.run_for(Duration::from_secs(5));
    assert!(buffered_bytes(&hosts, ids[0]) > 50_000);
    assert_eq!(budget.charged_bytes(), 0);
    // Copies have no owner.
    hosts.send_all(A, ids[1], (0..1000).map(|n| (SendInfo::default(), vec![n as u8; 100].into())));
    hosts.run_for(Duration::from_secs(5));
    assert!(budget.charged_bytes() > 50_000, "{} bytes", budget.charged_bytes());
}

#[test]
fn messages_that_are_given_up_are_not_charged_any_more() {
    for events in [false, true] {
        let budget = Arc::new(Budget::default());
        let (mut hosts, ids) = connected_with(4, &budget, events);
        let messages = |info: SendInfo, bytes: usize| {
            (0..300_000 / bytes).map(move |n| (info, vec![n as u8; bytes].into()))
        };
        let plain = SendInfo::default();
        // Short ones, in blocks of the association.
        let lifetime = SendInfo { lifetime: Some(Duration::from_secs(1).into()), ..plain };
        hosts.send_all(A, ids[0], messages(lifetime, 1000));
        assert!(budget.charged_bytes() >= 300_000);
        hosts.run_for(Duration::from_secs(5));
        assert!(budget.charged_bytes() < 50_000, "the lifetimes have ended");
        hosts.send_all(A, ids[0], messages(plain, 10_000));
        hosts.run_for(Duration::from_secs(5));
        assert!(budget.charged_bytes() >= 250_000, "these have none");
        hosts.abort(A, ids[0], b"enough");
        hosts.run_for(Duration::from_secs(5));
        assert_eq!(budget.charged_bytes(), 0, "the association has ended");
        // The peer allows fewer streams.
        let last = SendInfo { stream: STREAMS - 1, ..plain };
        let id = hosts.connect(A, (100, PORT_B), config(&budget, events));
        hosts.send_all(A, id, messages(last, 10_000));
        assert_eq!(budget.charged_bytes(), 300_000);
        hosts.run_for(Duration::from_secs(5));
        assert_eq!((budget.charged_bytes(), buffered_bytes(&hosts, id)), (0, 0));
    }
}
