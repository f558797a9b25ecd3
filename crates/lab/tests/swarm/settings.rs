//! Random settings of an association, of a host and of the lines.

use std::time::Duration;

use netsim::topology::RandomLimits;
use sctp::config::RtoConfig;
use sctp::congestion::{Algorithm, Coupling};
use sctp::{AssociationConfig, Multipath, PathHints};

use crate::dice::Dice;

/// Returns random options. If `patient`, retries are practically unlimited. A cookie of a host that has crashed since is
/// worthless, and no packet reports that; so `crashes` limits the retries with it.
pub fn association(dice: &mut Dice, patient: bool, crashes: bool) -> AssociationConfig {
    let mut retries = |patient: bool, few: &[u32]| if patient { 1000 } else { dice.pick(few) };
    let init_retries_max = retries(patient && !crashes, &[8, 2, 0]);
    let association_retries_max = retries(patient, &[10, 3, 0]);
    AssociationConfig {
        streams_out: dice.even(1, 12) as u16,
        streams_in_max: if dice.one_in(4) { dice.even(1, 12) as u16 } else { u16::MAX },
        send_buffer_bytes: dice.skewed(1, 2_000_000) as usize,
        send_buffer_tuned_bytes: dice.pick(&[0, 200_000, 64 << 20]),
        receive_buffer_bytes: dice.skewed(1500, 2_000_000) as usize,
        receive_buffer_tuned_bytes: dice.pick(&[0, 200_000, 64 << 20]),
        message_bytes_max: 1 << 20,
        partial_delivery_bytes: dice.skewed(500, 500_000) as usize,
        congestion: dice.pick(&Algorithm::ALL),
        coupling: dice.pick(&Coupling::ALL),
        multipath: dice.pick(&Multipath::ALL),
        nr_sack: !dice.one_in(4),
        path_mtu_discovery: !dice.one_in(4),
        early_failover: !dice.one_in(4),
        potentially_failed_retries_max: dice.pick(&[0, 0, 1, u32::MAX]),
        tail_loss_probes: !dice.one_in(4),
        rto: RtoConfig {
            initial: Duration::from_millis(dice.even(500, 3000)),
            min: Duration::from_millis(dice.pick(&[1000, 1000, 400])),
            max: Duration::from_secs(dice.pick(&[60, 10])),
        },
        heartbeat_interval: (!dice.one_in(4)).then_some(Duration::from_secs(dice.even(1, 30))),
        sack_delay: Duration::from_millis(dice.pick(&[200, 200, 0, 20, 500])),
        init_retries_max,
        association_retries_max,
        path_retries_max: dice.pick(&[5, 5, 0, 1]),
        cookie_life: Duration::from_secs(if patient { 500 } else { dice.even(5, 60) }),
        ..AssociationConfig::default()
    }
}

pub fn hints(dice: &mut Dice) -> PathHints {
    PathHints {
        mtu_bytes: dice.pick(&[512, 1280, 1472, 1472, 1472, 8972, 65_504]),
        header_bytes: 28,
        leaves_host: dice.one_in(2),
        in_flight_limit_bytes: dice.one_in(4).then(|| dice.even(140_000, 400_000) as usize),
        local: None,
        route_local: None,
        on_link: dice.one_in(4),
    }
}

/// Chooses the limits of the lines.
pub fn lines(dice: &mut Dice) -> RandomLimits {
    RandomLimits {
        rate_bits_per_s: 500_000..=1_000_000_000,
        loss_max: dice.pick(&[0.0, 0.02, 0.1, 0.25]),
        fault_probability: dice.pick(&[0.0, 0.1, 0.25, 0.5]),
        ..RandomLimits::default()
    }
}
