//! Throughput of a line by rate, delay, queue and loss, as a table beside this file: a change of congestion control
//! or loss recovery shows as a difference. `UPDATE_SNAPSHOTS=1` writes the table.

use std::fmt::Write as _;
use std::time::Duration;

use netsim::{Loss, PipeConfig};
use sctp::{AssociationConfig, SendInfo};

use lab::{A, B, TwoHosts};

const MESSAGE_BYTES: usize = 1400;
const MESSAGES: usize = 5000;
const TABLE: &str = include_str!("throughput.txt");

/// Rate, one-way delay, queue in packets of 1500 bytes (0: unlimited), loss in 1/1000.
const LINES: [(u64, u64, usize, u32); 9] = [
    (10, 50, 0, 0),
    (10, 50, 80, 0),
    (100, 10, 0, 0),
    (100, 10, 160, 0),
    (100, 10, 40, 0),
    (100, 10, 0, 1),
    (100, 10, 0, 10),
    (100, 10, 0, 50),
    (1000, 1, 300, 0),
];

fn row(rate_mbit_per_s: u64, delay_ms: u64, queue_packets: usize, loss_per_mille: u32) -> String {
    let config = PipeConfig {
        rate_bits_per_s: Some(rate_mbit_per_s * 1_000_000),
        delay: Duration::from_millis(delay_ms),
        queue_bytes: if queue_packets == 0 { usize::MAX } else { queue_packets * 1500 },
        loss: match loss_per_mille {
            0 => Loss::Never,
            n => Loss::Random { probability: f64::from(n) / 1000.0 },
        },
        ..PipeConfig::default()
    };
    let mut hosts = TwoHosts::with_line(1, &config);
    let buffers = AssociationConfig {
        send_buffer_bytes: 4 << 20,
        receive_buffer_bytes: 4 << 20,
        ..AssociationConfig::default()
    };
    let (a, _) = hosts.establish_with(buffers.clone(), buffers);
    hosts.app(B).keeps_bytes = false;
    let start = hosts.now();
    hosts.send_all(A, a, (0..MESSAGES).map(|_| (SendInfo::default(), vec![0; MESSAGE_BYTES].into())));
    hosts.run_until("all arrived", Duration::from_secs(1000), |hosts| {
        hosts.node(B).app.messages.len() == MESSAGES
    });
    let took = (hosts.now() - start).as_secs_f64();
    let mbit_per_s = (MESSAGES * MESSAGE_BYTES * 8) as f64 / took / 1e6;
    let s = hosts.statistics(A, a);
    format!(
        "{rate_mbit_per_s:6} {delay_ms:9} {queue_packets:14} {:7.1} {mbit_per_s:11.1} {:14} {:9} {:15}\n",
        f64::from(loss_per_mille) / 10.0,
        s.data_chunks_retransmitted,
        s.timeouts,
        s.fast_recoveries,
    )
}

/// Returns the lines that differ, those of `before` and `after` one below the other.
fn differences(before: &str, after: &str) -> String {
    let header = before.lines().next().unwrap_or_default();
    let mut text = format!("  {header}\n");
    let (mut old, mut new) = (before.lines(), after.lines());
    loop {
        let (old, new) = (old.next(), new.next());
        if old.is_none() && new.is_none() {
            return text;
        }
        for (sign, line) in [('-', old), ('+', new)] {
            if let Some(line) = line.filter(|_| old != new) {
                let _ = writeln!(text, "{sign} {line}");
            }
        }
    }
}

#[test]
fn the_table_is_what_it_was() {
    let mut table = String::from(
        "Mbit/s  delay ms  queue packets  loss %  delivered    sent again  timeouts  fast recoveries\n",
    );
    for (rate, delay, queue, loss) in LINES {
        let _ = write!(table, "{}", row(rate, delay, queue, loss));
    }
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenario/throughput.txt");
        std::fs::write(path, &table).expect("the table can be written");
    } else {
        assert!(table == TABLE, "{}", differences(TABLE, &table));
    }
}
