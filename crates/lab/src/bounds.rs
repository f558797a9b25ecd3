//! Upper bounds of the memory of an association, for any behaviour of its peer and the network.

use sctp::config::{
    MESSAGE_OVERHEAD_BYTES, OVERHEAD_FREE_BYTES, PEER_ADDRESSES_MAX, RECEIVED_OVERHEAD_BYTES, RESTARTS_BYTES,
};
use sctp::{AssociationConfig, Statistics};

/// Minimum payload of a packet on any path.
const PIECE_BYTES_MIN: usize = 400;

/// Compares the buffers of an association with their bounds.
///
/// # Panics
///
/// A buffer is over its bound.
pub fn assert_bounded(statistics: &Statistics, config: &AssociationConfig) {
    let buffered = statistics.send_buffered_bytes as usize;
    // A message that finds the buffer empty may be longer than the buffer.
    let buffer_bytes = config.send_buffer_bytes.max(config.send_buffer_tuned_bytes);
    let buffered_max = buffer_bytes + config.message_bytes_max + MESSAGE_OVERHEAD_BYTES;
    assert!(buffered <= buffered_max, "{buffered} bytes wait to be sent, {buffered_max} may");
    let held = statistics.receive_buffered_bytes as usize;
    // The receiver takes twice its buffer and a chunk, because overhead is not part of the window, or reports of restarts.
    let buffer_bytes = config.receive_buffer_bytes.max(config.receive_buffer_tuned_bytes);
    // After a restart of the peer, everything that it has not acknowledged is returned, in pieces that fit packets.
    let piece_bytes = config.fragment_bytes_max.unwrap_or(PIECE_BYTES_MIN).min(PIECE_BYTES_MIN);
    let pieces_max = if config.events { buffered_max.div_ceil(piece_bytes) } else { 0 };
    let given_back_max = pieces_max * (piece_bytes + RECEIVED_OVERHEAD_BYTES);
    let last_reports_max = 4 * RECEIVED_OVERHEAD_BYTES;
    let held_max = (2 * buffer_bytes).max(OVERHEAD_FREE_BYTES)
        + OVERHEAD_FREE_BYTES
        + RESTARTS_BYTES
        + given_back_max
        + last_reports_max;
    assert!(held <= held_max, "{held} bytes were received and are held, {held_max} may be");
    assert!(statistics.outstanding_bytes <= statistics.send_buffered_bytes, "more is outstanding than held");
    assert!(statistics.paths.len() <= 2 * PEER_ADDRESSES_MAX, "there are {} paths", statistics.paths.len());
}
