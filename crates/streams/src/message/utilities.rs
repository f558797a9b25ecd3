//! The message utilities of the DDI/DKI, under their names (SVR4.2 DDI/DKI, section D3).
//!
//! Blocks are reference-counted and never change, so a duplicate costs a reference, and a copy is needed only to have memory
//! of one's own. Memory is there or the process ends, so nothing waits for it: `bufcall` and `unbufcall` have no counterpart.

use super::Message;
use crate::Chain;
use bytes::Bytes;

/// Makes a block of bytes (`allocb`).
pub fn allocb(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// Makes a block of memory that its owner keeps (`esballoc`): the owner is dropped with the last reference to the block, in
/// place of the free routine.
pub fn esballoc(owner: impl AsRef<[u8]> + Send + 'static) -> Bytes {
    Bytes::from_owner(owner)
}

/// Makes a second reference to a block (`dupb`).
pub fn dupb(block: &Bytes) -> Bytes {
    block.clone()
}

/// Makes a block with the same bytes in memory of its own (`copyb`).
pub fn copyb(block: &Bytes) -> Bytes {
    Bytes::copy_from_slice(block)
}

impl Message {
    /// Makes a message that refers to the same blocks (`dupmsg`).
    pub fn dupmsg(&self) -> Self {
        self.clone()
    }

    /// Makes a message with a copy of the data in memory of its own (`copymsg`).
    pub fn copymsg(&self) -> Self {
        Self { kind: self.kind.clone(), band: self.band, marks: self.marks, data: self.data.to_vec().into() }
    }

    /// Links the blocks of a chain behind those of the message (`linkb`).
    pub fn linkb(&mut self, chain: Chain) {
        self.data.append(chain);
    }

    /// Takes the first block off (`unlinkb`), and returns it.
    pub fn unlinkb(&mut self) -> Option<Bytes> {
        self.data.pop_front()
    }

    /// Returns the bytes of data (`msgdsize`).
    pub fn msgdsize(&self) -> usize {
        self.data.len()
    }

    /// Puts the first `len` bytes into one block (`pullupmsg`); `None` puts all there. False, and nothing changes, where the
    /// message is shorter.
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

    /// Trims bytes from the front, or with a negative `len` from the end (`adjmsg`). False, and nothing changes, where the
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
