//! The operations that a network needs of the content of packets.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

/// Content of packets: bytes, or a number that stands for a packet in a test.
///
/// A network copies it to duplicate a packet, flips its bits to damage one, and writes its bytes into a capture.
///
/// # Examples
///
/// ```
/// use std::borrow::Cow;
/// use netsim::Payload;
///
/// /// A packet and who made it, which no wire carries.
/// #[derive(Clone)]
/// struct Tagged { maker: &'static str, bytes: Vec<u8> }
///
/// impl Payload for Tagged {
///     fn wire(&self) -> Cow<'_, [u8]> {
///         self.bytes.wire()
///     }
///     fn flip_bit(&mut self, bit: u64) {
///         self.bytes.flip_bit(bit);
///     }
/// }
///
/// let mut packet = Tagged { maker: "a test", bytes: vec![0, 0] };
/// packet.flip_bit(8);
/// assert_eq!((packet.maker, packet.wire().as_ref()), ("a test", &[0, 1][..]));
/// ```
pub trait Payload: Clone {
    /// Returns the bytes as the wire carries them, without the headers below.
    fn wire(&self) -> Cow<'_, [u8]>;

    /// Flips the bit with this number, counted from the lowest of the first byte on and again from there after the last.
    /// Content without bits stays as it is.
    fn flip_bit(&mut self, bit: u64);
}

/// Flips a bit of some bytes; the number goes around.
fn flip(bytes: &mut [u8], bit: u64) {
    if let Some(bits) = (bytes.len() as u64).checked_mul(8).filter(|bits| *bits > 0) {
        let bit = bit % bits;
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

impl Payload for Vec<u8> {
    fn wire(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }

    fn flip_bit(&mut self, bit: u64) {
        flip(self, bit);
    }
}

impl Payload for Bytes {
    fn wire(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }

    /// Others that hold the same bytes keep them as they are.
    fn flip_bit(&mut self, bit: u64) {
        let mut own = self.to_vec();
        flip(&mut own, bit);
        *self = own.into();
    }
}

impl Payload for Arc<[u8]> {
    fn wire(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }

    /// Others that hold the same bytes keep them as they are.
    fn flip_bit(&mut self, bit: u64) {
        flip(Arc::make_mut(self), bit);
    }
}

/// A text in a test. It cannot be damaged: [`Delivery::corrupted`](crate::Delivery::corrupted) tells.
impl Payload for &'static str {
    fn wire(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }

    fn flip_bit(&mut self, _bit: u64) {}
}

/// Nothing.
impl Payload for () {
    fn wire(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&[])
    }

    fn flip_bit(&mut self, _bit: u64) {}
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        /// In network byte order.
        impl Payload for $number {
            fn wire(&self) -> Cow<'_, [u8]> {
                Cow::Owned(self.to_be_bytes().to_vec())
            }

            fn flip_bit(&mut self, bit: u64) {
                let mut bytes = self.to_be_bytes();
                flip(&mut bytes, bit);
                *self = <$number>::from_be_bytes(bytes);
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, usize, i32, i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_is_the_one_that_was_named_and_goes_around() {
        let mut bytes = vec![0u8; 3];
        bytes.flip_bit(9);
        assert_eq!(bytes, [0, 2, 0]);
        bytes.flip_bit(24 + 9);
        assert_eq!(bytes, [0, 0, 0]);
        let mut number = 0u16;
        number.flip_bit(0);
        assert_eq!(number, 0x0100);
        Vec::new().flip_bit(3);
    }

    #[test]
    fn shared_bytes_are_damaged_alone() {
        let original = Bytes::from_static(&[0]);
        let mut damaged = original.clone();
        damaged.flip_bit(0);
        assert_eq!((&original[..], &damaged[..]), (&[0][..], &[1][..]));
        let original: Arc<[u8]> = Arc::from([0]);
        let mut damaged = Arc::clone(&original);
        damaged.flip_bit(7);
        assert_eq!((&original[..], &damaged[..]), (&[0][..], &[128][..]));
    }
}
