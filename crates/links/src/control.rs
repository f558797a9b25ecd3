//! Control messages of `sendmsg` and `recvmsg` as bytes.
//!
//! The kernel's layout is a `struct cmsghdr` (a `size_t` length that counts itself, an `int` level, an `int` type),
//! the data, and padding up to the alignment of `size_t`. Building and reading it here costs no allocation and
//! needs no pointer.

const LEN_BYTES: usize = size_of::<usize>();
const HEADER_BYTES: usize = LEN_BYTES + 8;

/// Room for all control messages of one send.
pub(crate) const SEND_CONTROL_BYTES: usize = 96;
/// Room for all control messages requested from the kernel, including the error report with its offender.
pub(crate) const RECEIVE_CONTROL_BYTES: usize = 256;

const fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(LEN_BYTES)
}

/// Builds the control messages of one send.
pub(crate) struct ControlBuilder {
    bytes: [u8; SEND_CONTROL_BYTES],
    len: usize,
}

impl ControlBuilder {
    pub(crate) fn new() -> Self {
        ControlBuilder { bytes: [0; SEND_CONTROL_BYTES], len: 0 }
    }

    /// Appends one message. The messages that one send carries fit by construction.
    pub(crate) fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let start = self.len;
        let data_start = start + HEADER_BYTES;
        self.bytes[start..start + LEN_BYTES].copy_from_slice(&(HEADER_BYTES + data.len()).to_ne_bytes());
        self.bytes[start + LEN_BYTES..start + LEN_BYTES + 4].copy_from_slice(&level.to_ne_bytes());
        self.bytes[start + LEN_BYTES + 4..data_start].copy_from_slice(&kind.to_ne_bytes());
        self.bytes[data_start..data_start + data.len()].copy_from_slice(data);
        self.len = data_start + aligned(data.len());
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A control message of a received datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ControlMessage<'a> {
    pub(crate) level: i32,
    pub(crate) kind: i32,
    pub(crate) data: &'a [u8],
}

impl ControlMessage<'_> {
    /// Returns the data as an `int`; also accepts the single byte of `IP_TOS`.
    pub(crate) fn int(&self) -> Option<i32> {
        match self.data {
            [byte] => Some(i32::from(*byte)),
            [a, b, c, d, ..] => Some(i32::from_ne_bytes([*a, *b, *c, *d])),
            _ => None,
        }
    }
}

/// Returns the control messages in `bytes`, up to a malformed one.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = ControlMessage<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let len = usize::from_ne_bytes(rest.get(..LEN_BYTES)?.try_into().ok()?);
        let level = i32::from_ne_bytes(rest.get(LEN_BYTES..LEN_BYTES + 4)?.try_into().ok()?);
        let kind = i32::from_ne_bytes(rest.get(LEN_BYTES + 4..HEADER_BYTES)?.try_into().ok()?);
        let data = rest.get(HEADER_BYTES..len)?;
        rest = rest.get(aligned(len)..).unwrap_or_default();
        Some(ControlMessage { level, kind, data })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_messages_are_parsed() {
        let mut builder = ControlBuilder::new();
        builder.push(17, 103, &1452u16.to_ne_bytes());
        builder.push(41, 50, &[7; 20]);
        builder.push(0, 1, &2i32.to_ne_bytes());
        let all: Vec<_> = messages(builder.as_bytes()).collect();
        assert_eq!(all.len(), 3);
        assert_eq!(all[0], ControlMessage { level: 17, kind: 103, data: &1452u16.to_ne_bytes() });
        assert_eq!(all[1], ControlMessage { level: 41, kind: 50, data: &[7; 20] });
        assert_eq!(all[2].int(), Some(2));
    }

    #[test]
    fn the_layout_is_the_c_library_s() {
        assert_eq!(HEADER_BYTES, size_of::<libc::cmsghdr>());
        assert_eq!(std::mem::offset_of!(libc::cmsghdr, cmsg_level), LEN_BYTES);
        assert_eq!(std::mem::offset_of!(libc::cmsghdr, cmsg_type), LEN_BYTES + 4);
    }

    #[test]
    fn malformed_bytes_end_the_messages() {
        let mut builder = ControlBuilder::new();
        builder.push(0, 8, &[1, 2, 3, 4]);
        for cut in 0..HEADER_BYTES + 4 {
            assert_eq!(messages(&builder.as_bytes()[..cut]).count(), 0, "{cut}");
        }
        for len in [0usize, 1, HEADER_BYTES - 1, 1000, usize::MAX - 3, usize::MAX] {
            let mut bytes = builder.as_bytes().to_vec();
            bytes[..LEN_BYTES].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(messages(&bytes).count(), 0, "{len}");
        }
    }
}
