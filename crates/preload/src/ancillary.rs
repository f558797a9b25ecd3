//! Ancillary data of messages, to and from C structures (RFC 6458 §5.3).

use std::marker::PhantomData;
use std::net::IpAddr;
use std::ptr;

use channel_protocol::abi::{
    IPPROTO_SCTP, SCTP_ABORT, SCTP_ADDR_OVER, SCTP_EOF, SCTP_SACK_IMMEDIATELY, SCTP_SENDALL, SCTP_UNORDERED,
};
use channel_protocol::assoc_id::AssocId;
use channel_protocol::record::{Flags, Header, Kind};
use channel_protocol::request::InitMessage;
use channel_protocol::status_page::Subscriptions;
use libc::{c_int, cmsghdr, msghdr};

use crate::structures::{
    NxtInfo, PrInfo, RcvInfo, SCTP_AUTHINFO, SCTP_DSTADDRV4, SCTP_DSTADDRV6, SCTP_INIT, SCTP_NXTINFO,
    SCTP_PRINFO, SCTP_RCVINFO, SCTP_SNDINFO, SCTP_SNDRCV, SndInfo, SndRcvInfo,
};
use crate::system::{Errno, Result, can_be_bytes};

/// Bits of the flags that select the policy of partial reliability: `SCTP_PR_SCTP_NONE` is no bit, `SCTP_PR_SCTP_TTL` the first.
const SCTP_PR_SCTP_MASK: u16 = 0x0030;
const KNOWN_FLAGS: u16 = SCTP_UNORDERED
    | SCTP_ADDR_OVER
    | SCTP_ABORT
    | SCTP_SACK_IMMEDIATELY
    | SCTP_SENDALL
    | SCTP_PR_SCTP_MASK
    | SCTP_EOF;

/// Flag in `SCTP_NXTINFO` that marks a notification.
const SCTP_NOTIFICATION: u16 = 0x8000;

const SCTP_PR_SCTP_TTL: u16 = 0x0010;

/// Attributes that a program gives a message to send: those of the C library's structures, with `SINFO_` flags that the
/// description of the other crates (`sctp-message`, which says why this one differs) does not have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendInfo {
    pub(crate) stream: u16,
    pub(crate) ppid: u32,
    pub(crate) flags: Flags,
    pub(crate) context: u32,
    pub(crate) lifetime_ms: u32,
    pub(crate) assoc_id: AssocId,
    /// Send to every association of a one-to-many socket.
    pub(crate) to_all: bool,
    /// Parameters of the association that the message sets up.
    pub(crate) init: InitMessage,
    /// `SCTP_ADDR_OVER`, which needs an address.
    pub(crate) overrides_address: bool,
}

impl SendInfo {
    /// Returns the attributes of a message for which the program gives none.
    pub(crate) fn by_default() -> Self {
        SendInfo { flags: Flags::BY_DEFAULT, ..SendInfo::default() }
    }

    /// Sets the common fields. The payload protocol identifier keeps the byte order of the program.
    fn describe(&mut self, stream: u16, flags: u16, ppid: u32, context: u32, association: i32) -> Result<()> {
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let table = [
            (SCTP_UNORDERED, Flags::UNORDERED),
            (SCTP_ABORT, Flags::ABORT),
            (SCTP_SACK_IMMEDIATELY, Flags::IMMEDIATE),
            (SCTP_EOF, Flags::SHUTDOWN),
        ];
        let set = table.into_iter().filter(|(flag, _)| flags & flag != 0);
        self.flags = set.fold(Flags::default(), |all, (_, flag)| all.with(flag));
        (self.stream, self.ppid, self.context) = (stream, u32::from_be(ppid), context);
        self.assoc_id = AssocId::from_assoc_t(association);
        self.to_all = flags & SCTP_SENDALL != 0;
        self.overrides_address = flags & SCTP_ADDR_OVER != 0;
        Ok(())
    }

    /// # Safety
    ///
    /// The entry's data is readable for the length in its header.
    unsafe fn add(&mut self, entry: &Entry) -> Result<()> {
        // SAFETY: the caller guarantees the length.
        unsafe {
            match entry.header.cmsg_type {
                SCTP_SNDRCV => {
                    let given: SndRcvInfo = value(entry)?;
                    self.lifetime_ms = given.time_to_live_ms;
                    self.describe(given.stream, given.flags, given.ppid, given.context, given.association)
                }
                SCTP_SNDINFO => {
                    let given: SndInfo = value(entry)?;
                    self.describe(given.stream, given.flags, given.ppid, given.context, given.association)
                }
                SCTP_PRINFO => {
                    let given: PrInfo = value(entry)?;
                    match given.policy & !SCTP_PR_SCTP_MASK {
                        0 if given.policy == SCTP_PR_SCTP_TTL => self.lifetime_ms = given.value,
                        0 => {}
                        _ => return Err(Errno(libc::EINVAL)),
                    }
                    Ok(())
                }
                SCTP_INIT => {
                    let [streams_out, streams_in_max, attempts_max, timeout_max_ms] = value(entry)?;
                    self.init = InitMessage { streams_out, streams_in_max, attempts_max, timeout_max_ms };
                    Ok(())
                }
                // [`Control::further_hosts`] reads these where the message sets up an association.
                SCTP_DSTADDRV4 | SCTP_DSTADDRV6 => Ok(()),
                // Keys need authentication, which this host does not have.
                SCTP_AUTHINFO => value::<u16>(entry).map(drop),
                _ => Err(Errno(libc::EINVAL)),
            }
        }
    }
}

/// Ancillary data of a message to send.
#[derive(Clone, Copy)]
pub(crate) struct Control<'a> {
    at: *const u8,
    bytes: usize,
    lent: PhantomData<&'a [u8]>,
}

impl<'a> Control<'a> {
    pub(crate) const NONE: Control<'static> = Control { at: ptr::null(), bytes: 0, lent: PhantomData };

    /// # Safety
    ///
    /// `message` describes readable memory.
    pub(crate) unsafe fn of(message: &'a msghdr) -> Self {
        let at = message.msg_control.cast::<u8>().cast_const();
        Control { at, bytes: message.msg_controllen, lent: PhantomData }
    }

    /// Returns the attributes that the ancillary data gives the message.
    pub(crate) fn info(mut self) -> Result<SendInfo> {
        let mut info = SendInfo::by_default();
        while let Some(entry) = self.next()? {
            // SAFETY: the data has the length that its header says.
            unsafe { info.add(&entry) }?;
        }
        Ok(info)
    }

    /// Returns the peer's further addresses, beside the destination of the message.
    pub(crate) fn further_hosts(mut self) -> Result<Vec<IpAddr>> {
        let mut hosts = Vec::new();
        while let Some(entry) = self.next()? {
            // SAFETY: the data has the length that its header says.
            hosts.extend(unsafe { entry.host() }?);
        }
        Ok(hosts)
    }

    /// Returns the next entry of SCTP's level; ignores a header that is cut short.
    fn next(&mut self) -> Result<Option<Entry>> {
        while self.bytes >= size_of::<cmsghdr>() {
            let (at, rest) = (self.at, self.bytes);
            if !can_be_bytes(at) {
                return Err(Errno(libc::EFAULT));
            }
            // SAFETY: the caller of `Control::of` guarantees that the memory is readable; the header may be unaligned.
            let header = unsafe { at.cast::<cmsghdr>().read_unaligned() };
            if !(size_of::<cmsghdr>()..=rest).contains(&header.cmsg_len) {
                return Err(Errno(libc::EINVAL));
            }
            let whole = header.cmsg_len.next_multiple_of(size_of::<usize>());
            (self.at, self.bytes) = (at.wrapping_add(whole), rest.saturating_sub(whole));
            if header.cmsg_level == IPPROTO_SCTP {
                return Ok(Some(Entry { header, data: at.wrapping_add(size_of::<cmsghdr>()) }));
            }
        }
        Ok(None)
    }
}

/// One control message.
struct Entry {
    header: cmsghdr,
    data: *const u8,
}

impl Entry {
    /// Returns the address in the entry if its type has one; ignores bytes after the address.
    ///
    /// # Safety
    ///
    /// The entry's data is readable for the length in its header.
    unsafe fn host(&self) -> Result<Option<IpAddr>> {
        let bytes = self.header.cmsg_len - size_of::<cmsghdr>();
        // SAFETY: the caller guarantees it.
        unsafe {
            match self.header.cmsg_type {
                SCTP_DSTADDRV4 if bytes >= 4 => Ok(Some(self.data.cast::<[u8; 4]>().read_unaligned().into())),
                SCTP_DSTADDRV6 if bytes >= 16 => {
                    Ok(Some(self.data.cast::<[u8; 16]>().read_unaligned().into()))
                }
                SCTP_DSTADDRV4 | SCTP_DSTADDRV6 => Err(Errno(libc::EINVAL)),
                _ => Ok(None),
            }
        }
    }
}

/// Returns the value of an entry; fails if the entry has another length.
///
/// # Safety
///
/// The entry's data is readable for the length in its header, and any bytes are a valid `T`.
unsafe fn value<T>(entry: &Entry) -> Result<T> {
    if entry.header.cmsg_len != size_of::<cmsghdr>() + size_of::<T>() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the data follows the header, and the length was checked.
    Ok(unsafe { entry.data.cast::<T>().read_unaligned() })
}

/// Writes the ancillary data that the program has subscribed to for a received message; `next` is the header of the next message.
///
/// # Safety
///
/// `message` describes writable memory.
pub(crate) unsafe fn write(
    message: &mut msghdr,
    header: &Header,
    next: Option<&Header>,
    subscriptions: Subscriptions,
) {
    let room = if message.msg_control.is_null() { 0 } else { message.msg_controllen };
    let mut out = Out { message, room, used: 0 };
    let (stream, ssn, ppid, tsn) = (header.stream, header.ssn, header.ppid.to_be(), header.tsn());
    let (cumulative_tsn, context) = (header.cumulative_tsn(), header.context);
    let association = header.assoc_id.to_assoc_t();
    let flags = unordered(header);
    // The order is the kernel's.
    // SAFETY: the caller guarantees it.
    unsafe {
        if let Some(next) = next {
            let is_notification = next.kind == Kind::Notification;
            let info = NxtInfo {
                stream: next.stream,
                flags: unordered(next) | if is_notification { SCTP_NOTIFICATION } else { 0 },
                ppid: next.ppid.to_be(),
                bytes: next.bytes,
                association: next.assoc_id.to_assoc_t(),
            };
            out.put(SCTP_NXTINFO, info);
        }
        if subscriptions.contains(Subscriptions::RCVINFO) {
            let info = RcvInfo { stream, ssn, flags, ppid, tsn, cumulative_tsn, context, association };
            out.put(SCTP_RCVINFO, info);
        }
        if subscriptions.contains(Subscriptions::SNDRCV) {
            let time_to_live_ms = 0;
            let info = SndRcvInfo {
                stream,
                ssn,
                flags,
                ppid,
                context,
                time_to_live_ms,
                tsn,
                cumulative_tsn,
                association,
            };
            out.put(SCTP_SNDRCV, info);
        }
    }
    out.message.msg_controllen = out.used;
}

fn unordered(header: &Header) -> u16 {
    if header.flags.contains(Flags::UNORDERED) { SCTP_UNORDERED } else { 0 }
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
        let start = self.message.msg_control.cast::<u8>().wrapping_add(self.used);
        let room = self.room - self.used;
        let bytes = (header + size_of::<T>()).min(room);
        if bytes < header + size_of::<T>() {
            self.message.msg_flags |= libc::MSG_CTRUNC;
        }
        // As in the kernel, an entry that has room for its header only is truncated.
        if room < header {
            return;
        }
        let entry = cmsghdr { cmsg_len: bytes, cmsg_level: IPPROTO_SCTP, cmsg_type: kind };
        // SAFETY: the length was checked against the room.
        unsafe {
            start.cast::<cmsghdr>().write_unaligned(entry);
            let value = (&raw const value).cast::<u8>();
            std::ptr::copy_nonoverlapping(value, start.add(header), bytes - header);
        }
        self.used = (self.used + bytes.next_multiple_of(size_of::<usize>())).min(self.room);
    }
}

const _: () =
    assert!(size_of::<SndRcvInfo>() == 32 && size_of::<SndInfo>() == 16 && size_of::<RcvInfo>() == 28);
const _: () = assert!(size_of::<NxtInfo>() == 16 && size_of::<PrInfo>() == 8);
