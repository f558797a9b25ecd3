//! Paths within one host: the buffers of the sockets bound the data in flight, and with it the send buffer of the association.

use std::time::Duration;

use bytes::Bytes;
use lab::{A, B, TwoHosts};
use netsim::PipeConfig;
use sctp::{AssociationConfig, PathHints, SendInfo};

/// Data that the buffers between the sockets hold.
const IN_FLIGHT_BYTES: usize = 512 * 1024;

/// Returns the most that the send buffer ever held while a user sent messages of this length without pause.
fn buffered_max(bytes: usize, in_flight_limit_bytes: Option<usize>, config: AssociationConfig) -> usize {
    let line = PipeConfig { delay: Duration::from_millis(1), ..PipeConfig::default() };
    let mut hosts = TwoHosts::with_line(1, &line);
    for node in [A, B] {
        hosts.app(node).hints =
            PathHints { mtu_bytes: 65_000, in_flight_limit_bytes, ..PathHints::default() };
        hosts.app(node).keeps_bytes = false;
    }
    let (a, _) = hosts.establish_with(config, AssociationConfig::default());
    hosts.app(B).takes_runs = true;
    let message = Bytes::from(vec![7; bytes]);
    let count = 48 * IN_FLIGHT_BYTES / (bytes + 16);
    hosts.send_all(A, a, std::iter::repeat_n((SendInfo::default(), message), count));
    let mut most = 0;
    while hosts.node(B).app.messages.len() < count {
        hosts.run_for(Duration::from_micros(200));
        most = most.max(hosts.statistics(A, a).send_buffered_bytes as usize);
    }
    most
}

#[test]
fn the_send_buffer_grows_no_further_than_the_socket_buffers_need() {
    for bytes in [16_usize, 64, 1000, 16_384] {
        // The send buffer counts 64 bytes for each message in place of its header.
        let allowed = 4 * IN_FLIGHT_BYTES * (bytes + 64) / (bytes + 16);
        let most = buffered_max(bytes, Some(IN_FLIGHT_BYTES), AssociationConfig::default());
        assert!(most <= allowed, "{most} bytes of messages of {bytes}, {allowed} allowed");
    }
    let beyond = buffered_max(1000, None, AssociationConfig::default());
    assert!(beyond > 4 * IN_FLIGHT_BYTES, "{beyond} bytes where no socket buffer bounds the data in flight");
}

#[test]
fn a_send_buffer_that_the_user_sets_stays() {
    for send_buffer_bytes in [100_000, 8 << 20] {
        let config = AssociationConfig {
            send_buffer_bytes,
            send_buffer_tuned_bytes: 0,
            ..AssociationConfig::default()
        };
        let most = buffered_max(1000, Some(IN_FLIGHT_BYTES), config);
        let filled = send_buffer_bytes - 1064 + 1..=send_buffer_bytes;
        assert!(filled.contains(&most), "{most} bytes of {send_buffer_bytes}");
    }
}
