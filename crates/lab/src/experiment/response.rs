//! The rate that theory predicts for an algorithm on a line that loses packets at random.

use sctp::congestion::Algorithm;

use super::limit::payload_bytes;

/// CUBIC's constants (RFC 9438 §4.6 and §5).
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;

/// Returns the payload per second at a loss rate and a round-trip time, at most `limit_bits_per_s`, for the window of
/// [`predicted_window_packets`].
pub fn predicted_bits_per_s(
    algorithm: Algorithm,
    loss: f64,
    round_trip_s: f64,
    limit_bits_per_s: f64,
) -> Option<f64> {
    let packets = predicted_window_packets(algorithm, loss, round_trip_s)?;
    Some((packets * payload_bytes() as f64 * 8.0 / round_trip_s).min(limit_bits_per_s))
}

/// Returns the mean window in packets at a loss rate and a round-trip time. `None`: no function is known, or nothing is lost and
/// the queue determines the rate.
///
/// NewReno is RFC 9260 §7.2.2 and halves its window: W = √(3 / 2p) packets (Mathis et al., 1997). It counts acknowledged bytes,
/// so that acknowledging every second packet makes no difference. CUBIC is RFC 9438 §5.1, equation 6, or its Reno-friendly region
/// if that is larger, which is as fast as NewReno (§4.3).
pub fn predicted_window_packets(algorithm: Algorithm, loss: f64, round_trip_s: f64) -> Option<f64> {
    if loss <= 0.0 {
        return None;
    }
    let reno_packets = (1.5 / loss).sqrt();
    match algorithm {
        Algorithm::NewReno => Some(reno_packets),
        Algorithm::Cubic => {
            let gain = CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA));
            Some((gain.powf(0.25) * (round_trip_s / loss).powf(0.75)).max(reno_packets))
        }
        Algorithm::Bbr => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(algorithm: Algorithm, loss: f64, round_trip_s: f64) -> f64 {
        predicted_window_packets(algorithm, loss, round_trip_s).expect("a function")
    }

    #[test]
    fn the_tables_of_rfc_9438_come_out() {
        // Table 1: Reno and CUBIC windows at a round trip of 0.1 s.
        for (loss, reno, cubic) in [(1e-2, 12.0, 12.0), (1e-4, 120.0, 187.0), (1e-6, 1200.0, 5_930.0)] {
            let ours = (packets(Algorithm::NewReno, loss, 0.1), packets(Algorithm::Cubic, loss, 0.1));
            assert!((ours.0 / reno - 1.0).abs() < 0.03, "{loss}: {ours:?}");
            assert!((ours.1 / cubic - 1.0).abs() < 0.03, "{loss}: {ours:?}");
        }
    }

    #[test]
    fn the_line_is_a_limit_and_no_loss_needs_no_function() {
        assert_eq!(predicted_bits_per_s(Algorithm::Cubic, 1e-9, 0.1, 1e6), Some(1e6));
        assert_eq!(predicted_bits_per_s(Algorithm::Cubic, 0.0, 0.1, 1e6), None);
        assert_eq!(predicted_bits_per_s(Algorithm::Bbr, 0.01, 0.1, 1e6), None);
    }
}
