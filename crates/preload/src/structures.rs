//! C structures of ancillary data (RFC 6458 §5.3) and the types of the control messages that hold them, with Linux's numbers and
//! layouts.

use libc::c_int;

/// `struct sctp_initmsg`.
pub const SCTP_INIT: c_int = 0;
/// [`SndRcvInfo`].
pub const SCTP_SNDRCV: c_int = 1;
/// [`SndInfo`].
pub const SCTP_SNDINFO: c_int = 2;
/// [`RcvInfo`].
pub const SCTP_RCVINFO: c_int = 3;
/// [`NxtInfo`].
pub const SCTP_NXTINFO: c_int = 4;
/// [`PrInfo`].
pub const SCTP_PRINFO: c_int = 5;
/// [`AuthInfo`].
pub const SCTP_AUTHINFO: c_int = 6;
/// `struct in_addr`.
pub const SCTP_DSTADDRV4: c_int = 7;
/// `struct in6_addr`.
pub const SCTP_DSTADDRV6: c_int = 8;

/// `struct sctp_sndrcvinfo`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SndRcvInfo {
    /// `sinfo_stream`
    pub stream: u16,
    /// `sinfo_ssn`
    pub ssn: u16,
    /// `sinfo_flags`
    pub flags: u16,
    /// `sinfo_ppid`: four bytes in network order.
    pub ppid: u32,
    /// `sinfo_context`
    pub context: u32,
    /// `sinfo_timetolive`
    pub time_to_live_ms: u32,
    /// `sinfo_tsn`
    pub tsn: u32,
    /// `sinfo_cumtsn`
    pub cumulative_tsn: u32,
    /// `sinfo_assoc_id`
    pub association: i32,
}

/// `struct sctp_sndinfo`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SndInfo {
    /// `snd_sid`
    pub stream: u16,
    /// `snd_flags`
    pub flags: u16,
    /// `snd_ppid`
    pub ppid: u32,
    /// `snd_context`
    pub context: u32,
    /// `snd_assoc_id`
    pub association: i32,
}

/// `struct sctp_rcvinfo`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RcvInfo {
    /// `rcv_sid`
    pub stream: u16,
    /// `rcv_ssn`
    pub ssn: u16,
    /// `rcv_flags`
    pub flags: u16,
    /// `rcv_ppid`
    pub ppid: u32,
    /// `rcv_tsn`
    pub tsn: u32,
    /// `rcv_cumtsn`
    pub cumulative_tsn: u32,
    /// `rcv_context`
    pub context: u32,
    /// `rcv_assoc_id`
    pub association: i32,
}

/// `struct sctp_nxtinfo`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NxtInfo {
    /// `nxt_sid`
    pub stream: u16,
    /// `nxt_flags`
    pub flags: u16,
    /// `nxt_ppid`
    pub ppid: u32,
    /// `nxt_length`
    pub bytes: u32,
    /// `nxt_assoc_id`
    pub association: i32,
}

/// `struct sctp_prinfo`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PrInfo {
    /// `pr_policy`
    pub policy: u16,
    /// `pr_value`
    pub value: u32,
}

/// `struct sctp_authinfo`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AuthInfo {
    /// `auth_keynumber`
    pub key: u16,
}
