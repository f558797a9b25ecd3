//! What goes with messages, as C structures (RFC 6458 §5.3).

use carrier::page::Wants;
use carrier::record::{Flags, Header};
use libc::{c_int, cmsghdr, msghdr};

use crate::system::{Errno, Result};

const IPPROTO_SCTP: c_int = 132;
const SCTP_INIT: c_int = 0;
const SCTP_SNDRCV: c_int = 1;
const SCTP_SNDINFO: c_int = 2;
const SCTP_RCVINFO: c_int = 3;

const SCTP_UNORDERED: u16 = 1;
const SCTP_ABORT: u16 = 1 << 2;
const SCTP_SACK_IMMEDIATELY: u16 = 1 << 3;
const SCTP_EOF: u16 = libc::MSG_FIN as u16;
const KNOWN_FLAGS: u16 = SCTP_UNORDERED | SCTP_ABORT | SCTP_SACK_IMMEDIATELY | SCTP_EOF;

/// `struct sctp_sndrcvinfo`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct SndRcvInfo {
    stream: u16,
    ssn: u16,
    flags: u16,
    ppid: u32,
    context: u32,
    time_to_live_ms: u32,
    tsn: u32,
    cumulative_tsn: u32,
    association: i32,
}

/// `struct sctp_sndinfo`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct SndInfo {
    stream: u16,
    flags: u16,
    ppid: u32,
    context: u32,
    association: i32,
}

/// `struct sctp_rcvinfo`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct RcvInfo {
    stream: u16,
    ssn: u16,
    flags: u16,
    ppid: u32,
    tsn: u32,
    cumulative_tsn: u32,
    context: u32,
    association: i32,
}

/// What a program says of a message that it sends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendInfo {
    pub(crate) stream: u16,
    pub(crate) ppid: u32,
    pub(crate) flags: Flags,
}

impl SendInfo {
    /// The identifier is bytes of the packet to the program, whatever number they are to it.
    fn new(stream: u16, flags: u16, ppid: u32) -> Result<SendInfo> {
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let table = [
            (SCTP_UNORDERED, Flags::UNORDERED),
            (SCTP_ABORT, Flags::ABORT),
            (SCTP_SACK_IMMEDIATELY, Flags::IMMEDIATE),
            (SCTP_EOF, Flags::SHUTDOWN),
        ];
        let set = table.into_iter().filter(|(theirs, _)| flags & theirs != 0);
        let flags = set.fold(Flags::default(), |all, (_, ours)| all.with(ours));
        Ok(SendInfo { stream, ppid: u32::from_be(ppid), flags })
    }

    /// Reads the ancillary data of a message to send.
    ///
    /// # Safety
    ///
    /// `message` describes memory that may be read.
    pub(crate) unsafe fn read(message: &msghdr) -> Result<SendInfo> {
        let mut info = SendInfo::default();
        // SAFETY: as the caller says; the macros stay within the length that the message has.
        unsafe {
            let mut entry = libc::CMSG_FIRSTHDR(message);
            while !entry.is_null() {
                if (*entry).cmsg_level == IPPROTO_SCTP {
                    info = SendInfo::entry(&*entry, info)?;
                }
                entry = libc::CMSG_NXTHDR(message, entry);
            }
        }
        Ok(info)
    }

    /// # Safety
    ///
    /// The entry's data may be read as far as its length says.
    unsafe fn entry(entry: &cmsghdr, info: SendInfo) -> Result<SendInfo> {
        let holds = |bytes: usize| entry.cmsg_len >= size_of::<cmsghdr>() + bytes;
        // SAFETY: the data follows the header, and as much as is read is there.
        unsafe {
            let data = libc::CMSG_DATA(entry);
            match entry.cmsg_type {
                SCTP_SNDRCV if holds(size_of::<SndRcvInfo>()) => {
                    let given = data.cast::<SndRcvInfo>().read_unaligned();
                    SendInfo::new(given.stream, given.flags, given.ppid)
                }
                SCTP_SNDINFO if holds(size_of::<SndInfo>()) => {
                    let given = data.cast::<SndInfo>().read_unaligned();
                    SendInfo::new(given.stream, given.flags, given.ppid)
                }
                // What it sets is for messages that set an association up.
                SCTP_INIT => Ok(info),
                _ => Err(Errno(libc::EINVAL)),
            }
        }
    }
}

/// Writes the ancillary data that a program wants with a received message.
///
/// # Safety
///
/// `message` describes memory that may be written.
pub(crate) unsafe fn write(message: &mut msghdr, header: &Header, wants: Wants) {
    let room = if message.msg_control.is_null() { 0 } else { message.msg_controllen };
    let mut out = Out { message, room, used: 0 };
    let unordered = header.flags.contains(Flags::UNORDERED);
    let flags = if unordered { SCTP_UNORDERED } else { 0 };
    let (stream, ssn, ppid, tsn) = (header.stream, header.ssn, header.ppid.to_be(), header.tsn);
    // SAFETY: as the caller says.
    unsafe {
        if wants.contains(Wants::RCVINFO) {
            out.put(SCTP_RCVINFO, RcvInfo { stream, ssn, flags, ppid, tsn, ..RcvInfo::default() });
        }
        if wants.contains(Wants::SNDRCV) {
            out.put(SCTP_SNDRCV, SndRcvInfo { stream, ssn, flags, ppid, tsn, ..SndRcvInfo::default() });
        }
    }
    out.message.msg_controllen = out.used;
}

struct Out<'a> {
    message: &'a mut msghdr,
    room: usize,
    used: usize,
}

impl Out<'_> {
    /// # Safety
    ///
    /// The message has `room` bytes for ancillary data.
    unsafe fn put<T>(&mut self, kind: c_int, value: T) {
        let header = size_of::<cmsghdr>();
        let bytes = header + size_of::<T>();
        let place = self.message.msg_control.cast::<u8>().wrapping_add(self.used);
        if self.room - self.used < bytes {
            self.message.msg_flags |= libc::MSG_CTRUNC;
            return;
        }
        let entry = cmsghdr { cmsg_len: bytes, cmsg_level: IPPROTO_SCTP, cmsg_type: kind };
        // SAFETY: there is room for both.
        unsafe {
            place.cast::<cmsghdr>().write_unaligned(entry);
            place.add(header).cast::<T>().write_unaligned(value);
        }
        self.used = (self.used + bytes.next_multiple_of(size_of::<usize>())).min(self.room);
    }
}

const _: () =
    assert!(size_of::<SndRcvInfo>() == 32 && size_of::<SndInfo>() == 16 && size_of::<RcvInfo>() == 28);
