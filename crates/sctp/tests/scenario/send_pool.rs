//! Associations that share memory for what they send: peers that take nothing more leave room for the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sctp::{
    AssociationConfig, AssociationId, SEND_LITTLE_BYTES, SEND_RESERVED_PART, SendBudget, SendInfo, SendPool,
};

use lab::{A, B, PORT_B, Reading, TwoHosts};

const POOL_BYTES: usize = 1024 * 1024;
const ASSOCIATIONS: u16 = 6;
const MESSAGES: usize = 6000;

/// A budget of [`POOL_BYTES`] that the test looks into.
#[derive(Debug, Default)]
struct Budget {
    charged_bytes: AtomicUsize,
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
}

/// Sets up associations from A to B, whose ends at A share a budget, and whose peers do not read.
fn connected(seed: u64, budget: &Arc<Budget>) -> (TwoHosts, Vec<AssociationId>) {
    let mut hosts = TwoHosts::new(seed);
    let receive_buffer_bytes = 32 * 1024;
    hosts.listen(AssociationConfig {
        receive_buffer_bytes,
        receive_buffer_tuned_bytes: 0,
        ..Default::default()
    });
    hosts.app(B).set_reading(Reading::Never);
    let send_pool = Some(SendPool::new(Arc::<Budget>::clone(budget)));
    let config = AssociationConfig { send_pool, send_buffer_bytes: 16 * POOL_BYTES, ..Default::default() };
    let connect = |port| hosts.connect(A, (port, PORT_B), config.clone());
    let ids: Vec<_> = (1..=ASSOCIATIONS).map(connect).collect();
    hosts.run_for(Duration::from_secs(2));
    (hosts, ids)
}

fn buffered_bytes(hosts: &TwoHosts, id: AssociationId) -> usize {
    hosts.statistics(A, id).send_buffered_bytes as usize
}

#[test]
fn short_messages_to_peers_that_take_nothing_are_charged_and_leave_room_for_others() {
    let budget = Arc::new(Budget::default());
    let (mut hosts, ids) = connected(1, &budget);
    let messages = || (0..MESSAGES).map(|n| (SendInfo::default(), vec![n as u8; 450].into()));
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
    let all = |hosts: &TwoHosts| hosts.node(B).app.messages.len() == MESSAGES * usize::from(ASSOCIATIONS);
    hosts.run_until("all arrived", Duration::from_secs(600), all);
    hosts.run_for(Duration::from_secs(1));
    assert_eq!(budget.charged_bytes(), 0);
}

#[test]
fn an_association_fills_its_buffer_no_further_than_the_pool_has_room() {
    let budget = Arc::new(Budget::default());
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
