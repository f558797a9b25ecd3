//! A message that a program receives, and the record at the front of the pair.

use std::os::fd::RawFd;

use channel_protocol::record::{HEADER_BYTES, Header};

use crate::system::{self, Buffers, Destination, Result};

/// A received message, or the part of one that fits the program's buffer.
pub(crate) struct Message {
    pub(crate) bytes: usize,
    /// `None` is the end.
    pub(crate) header: Option<Header>,
    /// The message ends here.
    pub(crate) whole: bool,
}

/// The end of the content.
pub(crate) const END: Message = Message { bytes: 0, header: None, whole: false };

/// Returns the header of the record at the kernel's peek offset, and the record's length.
pub(crate) fn measure(fd: RawFd) -> Result<(Option<Header>, usize)> {
    let mut bytes = [0; HEADER_BYTES];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let received = system::receive::<0>(fd, Buffers::new(&[Destination::of(&mut bytes)]), flags)?;
    Ok((Header::parse(&bytes), received.bytes))
}
