//! The messages that the interoperability tests send. `tests/peers/kernel_peer.py` knows the same ones.

/// Payload sizes: around word boundaries, around one packet of an Ethernet, and many packets.
pub const SIZES: [usize; 9] = [1, 2, 3, 4, 100, 1400, 1500, 9000, 65536];
/// Number of streams of the test messages.
pub const STREAMS: u16 = 4;

/// A message as a test sends or receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestMessage {
    /// Its stream.
    pub stream: u16,
    /// Whether it may overtake others of its stream.
    pub unordered: bool,
    /// Its payload protocol identifier: its size.
    pub ppid: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Returns the test messages up to `bytes_max`: each size on every stream, every second message unordered.
pub fn messages(bytes_max: usize) -> impl Iterator<Item = TestMessage> {
    let places = SIZES.into_iter().flat_map(|size| (0..STREAMS).map(move |stream| (size, stream)));
    places.enumerate().filter(move |(_, (size, _))| *size <= bytes_max).map(|(index, (size, stream))| {
        TestMessage { stream, unordered: index % 2 == 1, ppid: size as u32, payload: payload(size, stream) }
    })
}

/// Returns bytes that reveal a message that was truncated, shifted or reassembled wrongly.
#[must_use]
pub fn payload(size: usize, stream: u16) -> Vec<u8> {
    (0..size).map(|i| ((i + size + usize::from(stream)) % 251) as u8).collect()
}
