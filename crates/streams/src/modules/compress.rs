//! A module that compresses user data between two ends that both have it.

use crate::message::{Control, Kind, Marks, Message};
use crate::module::{Module, ModuleInfo, Q};
use crate::queue::QueueInfo;
use crate::{Chain, Errno};
use bytes::Bytes;
use lz4_flex::block::{compress, decompress};
use tpi::{Primitive, TransferFlags, TransferInfo};

/// Compresses messages with LZ4 once the other end has answered that it has this module, too (`compress`).
///
/// Each message says for itself what it is, since messages of different streams overtake each other: what the two ends say to
/// each other, and what is compressed, has the payload protocol identifier [`Compress::PPID`] and begins with one byte that
/// says which. Until the other end has answered, and where compressing saves nothing, messages pass unchanged. A message that
/// is longer than [`Compress::BYTES_MAX`], or a part of a record, passes unchanged, too.
///
/// A message that has come is decompressed when the reader has room for it. Until then it keeps its place in the receive window, so
/// that a peer cannot make one window into many. What waits to be acknowledged keeps the plain message alive, so that its sender is
/// charged for no less than what it holds.
///
/// An end without the module sees the announcement: one message of one byte with that payload protocol identifier. An end that pops
/// the module says so, and the other one compresses no more; messages that are on their way then arrive compressed.
#[derive(Debug, Default)]
pub struct Compress {
    announced: bool,
    /// The other end decompresses.
    answered: bool,
    /// A record goes on in the next message down.
    in_record: bool,
    /// Bytes of user data that went down, and what they have become.
    plain_bytes: u64,
    sent_bytes: u64,
}

/// What a message of the module is: its first byte.
const ANNOUNCEMENT: u8 = 0;
const ANSWER: u8 = 1;
/// The sender's payload protocol identifier and the plain length follow, 32 bits each, then the block.
const COMPRESSED: u8 = 2;
/// The sender's payload protocol identifier and the plain bytes follow.
const STORED: u8 = 3;
/// The module was popped: from now on messages must come as they are.
const LEAVING: u8 = 4;

/// A compressed message, with the plain one that its sender is charged for.
struct Packed {
    bytes: Vec<u8>,
    _plain: Chain,
}

impl AsRef<[u8]> for Packed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Compress {
    /// Marks messages of the module: `SWL4`.
    pub const PPID: u32 = 0x5357_4c34;
    /// A longer message passes unchanged, and one that claims to have been longer is refused.
    pub const BYTES_MAX: usize = 64 * 1024;
    /// The ioctl that answers with two 64-bit counts in native byte order: bytes of user data that went down, and what they
    /// have become.
    pub const GET_COUNTS: u32 = 0x434d_5001;
    /// How many bytes that have come wait for the reader before messages from below must; the receive window bounds them, too.
    const HIWAT_BYTES: usize = 64 * 1024;

    /// Hands up a message of either kind.
    fn take(&mut self, q: &mut Q<'_>, m: Message) {
        let Kind::Proto(Control::Tpi(Primitive::OptdataInd(info))) = m.kind else { return q.putnext(m) };
        match info.ppid {
            Self::PPID if info.flags.contains(TransferFlags::MORE) => self.refuse(q, m),
            Self::PPID => self.handle(q, &info, m),
            _ => q.putnext(m),
        }
    }

    /// Handles a message of the other end's module.
    fn handle(&mut self, q: &mut Q<'_>, info: &TransferInfo, m: Message) {
        let bytes = m.data.to_vec();
        let wire = m.data.len();
        let Some((what, rest)) = bytes.split_first() else { return q.putnext(m) };
        match (*what, rest.split_first_chunk::<4>()) {
            (ANNOUNCEMENT, None) => {
                self.answered = true;
                q.freemsg(m);
                q.other().putnext(own(info.association, ANSWER));
            }
            (ANSWER | LEAVING, None) => {
                self.answered = *what == ANSWER;
                q.freemsg(m);
            }
            (STORED, Some((ppid, data))) => {
                q.credit(info.association, wire);
                q.putnext(plain(info, *ppid, data.to_vec()));
            }
            (COMPRESSED, Some((ppid, rest))) => match unpack(rest) {
                Some(data) => {
                    q.credit(info.association, wire);
                    q.putnext(plain(info, *ppid, data));
                }
                None => self.refuse(q, m),
            },
            _ => self.refuse(q, m),
        }
    }

    /// The other end breaks the rules: nothing that follows can be relied upon.
    fn refuse(&self, q: &mut Q<'_>, m: Message) {
        q.freemsg(m);
        let error = Some(Errno::EBADMSG);
        q.putnext(Message::new(Kind::Error { read: error, write: error }));
    }

    /// What a message becomes on its way down; `None` leaves it as it is.
    fn pack(&self, info: &TransferInfo, data: &Chain) -> Option<Bytes> {
        let is_own = info.ppid == Self::PPID;
        let fits = data.len() <= Self::BYTES_MAX && !info.more() && !self.in_record;
        if !self.answered || !fits {
            return None;
        }
        let plain = data.to_vec();
        let block = compress(&plain);
        let mut packed = Vec::with_capacity(9 + block.len());
        // The plain length is at most `BYTES_MAX`.
        let header = [&[COMPRESSED][..], &info.ppid.to_be_bytes(), &(plain.len() as u32).to_be_bytes()];
        header.iter().for_each(|part| packed.extend_from_slice(part));
        packed.extend_from_slice(&block);
        let bytes = match packed.len() < plain.len() {
            true => packed,
            // One that looks like the module's own must not be taken for it.
            false if is_own => [&[STORED][..], &info.ppid.to_be_bytes(), &plain].concat(),
            false => return None,
        };
        Some(Bytes::from_owner(Packed { bytes, _plain: data.clone() }))
    }

    fn counts(&self) -> Chain {
        [self.plain_bytes, self.sent_bytes].iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>().into()
    }
}

/// A message of the module itself.
fn own(association: u32, what: u8) -> Message {
    let info = TransferInfo { association, ppid: Compress::PPID, ..TransferInfo::default() };
    Message::optdata_req(info, vec![what].into())
}

/// A message as the sender had it. The window of what came for it has been given back.
fn plain(info: &TransferInfo, ppid: [u8; 4], data: Vec<u8>) -> Message {
    let info = TransferInfo { ppid: u32::from_be_bytes(ppid), ..*info };
    Message::optdata_ind(info, data.into()).marked(Marks::CREDITED)
}

/// Decompresses a length and a block; `None` if they are wrong.
fn unpack(rest: &[u8]) -> Option<Vec<u8>> {
    let (len, block) = rest.split_first_chunk()?;
    let len = u32::from_be_bytes(*len) as usize;
    if len > Compress::BYTES_MAX {
        return None;
    }
    decompress(block, len).ok().filter(|data| data.len() == len)
}

impl Module for Compress {
    fn name(&self) -> &str {
        "compress"
    }

    fn info(&self) -> ModuleInfo {
        let read = QueueInfo::served(Self::HIWAT_BYTES, Self::HIWAT_BYTES / 2);
        ModuleInfo { read, write: QueueInfo::PASS }
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![("plain bytes", self.plain_bytes), ("sent bytes", self.sent_bytes)]
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        if let Kind::Ioctl(ioctl) = &m.kind
            && ioctl.command == Self::GET_COUNTS
        {
            return q.ack(ioctl, 0, self.counts());
        }
        let Kind::Proto(Control::Tpi(Primitive::OptdataReq(info))) = m.kind else { return q.pass(m) };
        if !std::mem::replace(&mut self.announced, true) {
            q.putnext(own(info.association, ANNOUNCEMENT));
        }
        self.plain_bytes += m.data.len() as u64;
        let packed = self.pack(&info, &m.data);
        self.in_record = info.more();
        let m = match packed {
            Some(packed) => {
                let info = TransferInfo { ppid: Self::PPID, ..info };
                Message { band: m.band, marks: m.marks, ..Message::optdata_req(info, packed) }
            }
            None => m,
        };
        self.sent_bytes += m.data.len() as u64;
        q.pass(m);
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        if matches!(m.kind, Kind::Flush(_)) {
            return q.pass(m);
        }
        let waits = !m.kind.is_high_priority() && (!q.queue().is_empty() || !q.canputnext(m.band));
        if waits { q.putq(m) } else { self.take(q, m) }
    }

    fn rsrv(&mut self, q: &mut Q<'_>) {
        while let Some(m) = q.getq() {
            if !m.kind.is_high_priority() && !q.canputnext(m.band) {
                return q.putbq(m);
            }
            self.take(q, m);
        }
    }

    /// What waits is handed up now: behind the module nobody could decompress it.
    fn close(&mut self, q: &mut Q<'_>) {
        let mut q = q.other();
        while let Some(m) = q.getq() {
            self.take(&mut q, m);
        }
        if self.answered {
            q.other().putnext(own(0, LEAVING));
        }
    }
}
