//! The message utilities of the DDI/DKI, under their names (SVR4.2 DDI/DKI, section D3).
//!
//! Blocks are reference-counted and immutable, so a duplicate costs a reference, and a copy is needed only to own memory. A
//! failed allocation ends the process, so nothing waits for memory for long ([`Q::bufcall`](crate::Q::bufcall)).

use bytes::Bytes;

use super::Message;
use crate::Chain;

/// Makes a block of bytes (`allocb`).
pub fn allocb(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// Returns whether a block of this many bytes may exist (`testb`): always, since memory is available or the process ends.
pub fn testb(bytes: usize) -> bool {
    isize::try_from(bytes).is_ok()
}

/// Makes a block of memory that its owner keeps (`esballoc`): dropping the last reference drops the owner, which replaces the
/// free routine.
pub fn esballoc(owner: impl AsRef<[u8]> + Send + 'static) -> Bytes {
    Bytes::from_owner(owner)
}

/// Makes a second reference to a block (`dupb`).
pub fn dupb(block: &Bytes) -> Bytes {
    block.clone()
}

/// Makes a block with the same bytes in its own memory (`copyb`).
pub fn copyb(block: &Bytes) -> Bytes {
    Bytes::copy_from_slice(block)
}

impl Message {
    /// Makes a message that refers to the same blocks (`dupmsg`).
    pub fn dupmsg(&self) -> Self {
        self.clone()
    }

    /// Makes a message with a copy of the data in its own memory (`copymsg`).
    pub fn copymsg(&self) -> Self {
        Self { kind: self.kind.clone(), band: self.band, marks: self.marks, data: self.data.to_vec().into() }
    }

    /// Appends the blocks of a chain to those of the message (`linkb`).
    pub fn linkb(&mut self, chain: Chain) {
        self.data.append(chain);
    }

    /// Removes and returns the first block (`unlinkb`).
    pub fn unlinkb(&mut self) -> Option<Bytes> {
        self.data.pop_front()
    }

    /// Returns the number of bytes of data (`msgdsize`).
    pub fn msgdsize(&self) -> usize {
        self.data.len()
    }

    /// Joins the first `len` bytes in one block (`pullupmsg`); `None` joins all. Returns false and changes nothing if the message
    /// is shorter.
    pub fn pullupmsg(&mut self, len: Option<usize>) -> bool {
        let len = len.unwrap_or(self.data.len());
        if len > self.data.len() {
            return false;
        }
        if self.data.blocks().first().is_some_and(|first| first.len() >= len) {
            return true;
        }
        let first = self.data.split_to(len).into_bytes();
        self.data.push_front(first);
        true
    }

    /// Trims bytes from the front, or with a negative `len` from the end (`adjmsg`). Returns false and changes nothing if the
    /// message is shorter.
    pub fn adjmsg(&mut self, len: isize) -> bool {
        let bytes = len.unsigned_abs();
        if bytes > self.data.len() {
            return false;
        }
        if len >= 0 {
            self.data.advance(bytes);
        } else {
            self.data = self.data.split_to(self.data.len() - bytes);
        }
        true
    }
}
