//! Messages that modules look at.

use crate::{Chain, Kind, Message, RecvInfo, SendInfo};

/// A message that a module looks at on its way ([`Module::observe`](crate::Module::observe)). Its data may still lie in
/// the memory of the writer.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The type of the message.
    pub kind: &'a Kind,
    /// Its priority band.
    pub band: u8,
    data: Data<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Data<'a> {
    Chain(&'a Chain),
    Written(&'a [u8]),
}

impl<'a> Seen<'a> {
    /// Returns the view of data that a program writes, in the normal band.
    pub(crate) fn written(kind: &'a Kind, data: &'a [u8]) -> Self {
        Self { kind, band: 0, data: Data::Written(data) }
    }

    /// Returns the number of bytes of data.
    pub fn len(&self) -> usize {
        match self.data {
            Data::Chain(chain) => chain.len(),
            Data::Written(bytes) => bytes.len(),
        }
    }

    /// Returns whether the message has no data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the data if it lies in one piece.
    pub fn whole(&self) -> Option<&'a [u8]> {
        match self.data {
            Data::Written(bytes) => Some(bytes),
            Data::Chain(chain) => match chain.blocks() {
                [] => Some(&[]),
                [only] => Some(only),
                _ => None,
            },
        }
    }

    /// Returns the pieces of the data in order.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        let (written, blocks) = match self.data {
            Data::Written(bytes) => (Some(bytes), &[][..]),
            Data::Chain(chain) => (None, chain.blocks()),
        };
        written.into_iter().chain(blocks.iter().map(|block| &block[..]))
    }

    /// Copies bytes from the front into `out`, as many as fit, and returns their number.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        match self.data {
            Data::Chain(chain) => chain.copy_to(out),
            Data::Written(bytes) => {
                let copied = bytes.len().min(out.len());
                out[..copied].copy_from_slice(&bytes[..copied]);
                copied
            }
        }
    }

    /// Returns the description of user data on its way down, as [`Message::send_info`] does.
    pub fn send_info(&self) -> Option<SendInfo> {
        self.kind.send_info()
    }

    /// Returns the description of user data on its way up, as [`Message::recv_info`] does.
    pub fn recv_info(&self) -> Option<RecvInfo> {
        self.kind.recv_info()
    }
}

impl<'a> From<&'a Message> for Seen<'a> {
    fn from(m: &'a Message) -> Self {
        Self { kind: &m.kind, band: m.band, data: Data::Chain(&m.data) }
    }
}
