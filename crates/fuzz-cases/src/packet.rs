//! The parser alone.

use sctp_wire::Packet;
use sctp_wire::chunk::{Chunk, Chunks};
use sctp_wire::packet::HEADER_BYTES;

/// Checks that no bytes panic, and that parsed ones are encoded so that they parse as the same again.
pub fn packet(bytes: &[u8]) {
    let mut packet = bytes.to_vec();
    // Ports of zero are refused before anything else is looked at; that takes no fuzzer to find out.
    if let Some(ports) = packet.first_chunk_mut::<4>() {
        *ports = [0, 1, 0, 2];
    }
    let Ok(packet) = Packet::parse(&packet) else {
        assert!(bytes.len() < HEADER_BYTES, "a header with ports is enough");
        return;
    };
    // A wrong checksum does not end it, or hardly an input would get further. The text has every chunk,
    // parameter and cause in it.
    let _ = packet.checksum_ok();
    let _ = packet.to_string();
    for raw in packet.chunks() {
        let Ok(raw) = raw else { return };
        if let Ok(chunk) = Chunk::parse(&raw) {
            reads_the_same_again(&chunk);
        }
    }
}

fn reads_the_same_again(chunk: &Chunk<'_>) {
    let mut written = Vec::new();
    chunk.write(&mut written);
    assert_eq!(written.len(), chunk.wire_bytes());
    let mut chunks = Chunks::new(&written).map(|raw| raw.and_then(|raw| Chunk::parse(&raw)));
    assert_eq!(chunks.next().as_ref(), Some(&Ok(chunk.clone())));
    assert_eq!(chunks.next(), None);
}
