//! Options of the transport interface: a list of `t_opthdr` (length, level, name, status), each followed by its value.
//!
//! The numbers are those of XTI (XNS 5.2) for `XTI_GENERIC`, and of OpenSS7's headers `xti_ip.h` and `xti_sctp.h` for
//! the other levels, which XTI leaves without numbers or does not define.

use crate::DecodeError;

/// `XTI_GENERIC`: the level of options that every provider may have.
pub const XTI_GENERIC: u32 = 0xffff;
/// `T_INET_IP`: the level of options of IP.
pub const T_INET_IP: u32 = 0;
/// `T_INET_SCTP`: the level of options of SCTP.
pub const T_INET_SCTP: u32 = 132;

/// `T_ALLOPT`: all options of a level.
pub const T_ALLOPT: u32 = 0;

/// `T_NO`.
pub const T_NO: u32 = 0;
/// `T_YES`.
pub const T_YES: u32 = 1;
/// `T_UNSPEC`: no value (`~0 - 2`).
pub const T_UNSPEC: u32 = !0 - 2;

/// Actions of an option management request (`MGMT_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Action {
    /// `T_NEGOTIATE`: set options.
    Negotiate = 0x004,
    /// `T_CHECK`: return the status that setting the options would have.
    Check = 0x008,
    /// `T_DEFAULT`: return the default values of options.
    Default = 0x010,
    /// `T_CURRENT`: return the current values of options.
    Current = 0x080,
}

impl Action {
    /// Returns the action with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Negotiate, Self::Check, Self::Default, Self::Current]
            .into_iter()
            .find(|action| *action as u32 == number)
    }
}

/// The outcome for one option, or for all options of a request, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// `T_SUCCESS`
    Success,
    /// `T_PARTSUCCESS`: the option has a lower value than requested.
    PartSuccess,
    /// `T_FAILURE`: the option cannot have this value now.
    Failure,
    /// `T_READONLY`: the option cannot be set, or not in this state.
    ReadOnly,
    /// `T_NOTSUPPORT`: the provider does not support the option.
    NotSupported,
}

impl Status {
    /// Returns the number in the status word of an option and in the flags of an acknowledgement.
    pub fn number(self) -> u32 {
        match self {
            Self::Success => 0x020,
            Self::PartSuccess => 0x100,
            Self::Failure => 0x040,
            Self::ReadOnly => 0x200,
            Self::NotSupported => 0x400,
        }
    }
}

macro_rules! names {
    ($(#[$about:meta])* $module:ident { $($name:ident = $number:literal;)* }) => {
        $(#[$about])*
        pub mod $module {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: u32 = $number;)*
        }
    };
}

names! {
    /// The names of the options at the level `XTI_GENERIC`.
    generic {
        XTI_DEBUG = 0x0001;
        XTI_LINGER = 0x0080;
        XTI_SNDBUF = 0x1001;
        XTI_RCVBUF = 0x1002;
        XTI_SNDLOWAT = 0x1003;
        XTI_RCVLOWAT = 0x1004;
    }
}

names! {
    /// The names of the options at the level `T_INET_IP`.
    ip {
        T_IP_OPTIONS = 1;
        T_IP_TOS = 2;
        T_IP_TTL = 3;
        T_IP_REUSEADDR = 4;
        T_IP_DONTROUTE = 5;
        T_IP_BROADCAST = 6;
        T_IP_ADDR = 7;
    }
}

names! {
    /// The names of the options at the level `T_INET_SCTP`.
    sctp {
        T_SCTP_NODELAY = 1;
        T_SCTP_CORK = 2;
        T_SCTP_PPI = 3;
        T_SCTP_SID = 4;
        T_SCTP_SSN = 5;
        T_SCTP_TSN = 6;
        T_SCTP_RECVOPT = 7;
        T_SCTP_COOKIE_LIFE = 8;
        T_SCTP_SACK_DELAY = 9;
        T_SCTP_PATH_MAX_RETRANS = 10;
        T_SCTP_ASSOC_MAX_RETRANS = 11;
        T_SCTP_MAX_INIT_RETRIES = 12;
        T_SCTP_HEARTBEAT_ITVL = 13;
        T_SCTP_RTO_INITIAL = 14;
        T_SCTP_RTO_MIN = 15;
        T_SCTP_RTO_MAX = 16;
        T_SCTP_OSTREAMS = 17;
        T_SCTP_ISTREAMS = 18;
        T_SCTP_COOKIE_INC = 19;
        T_SCTP_THROTTLE_ITVL = 20;
        T_SCTP_MAC_TYPE = 21;
        T_SCTP_CKSUM_TYPE = 22;
        T_SCTP_ECN = 23;
        T_SCTP_ALI = 24;
        T_SCTP_ADD = 25;
        T_SCTP_SET = 26;
        T_SCTP_ADD_IP = 27;
        T_SCTP_DEL_IP = 28;
        T_SCTP_SET_IP = 29;
        T_SCTP_PR = 30;
        T_SCTP_LIFETIME = 31;
        T_SCTP_DISPOSITION = 32;
        T_SCTP_MAX_BURST = 33;
        T_SCTP_HB = 34;
        T_SCTP_RTO = 35;
        T_SCTP_MAXSEG = 36;
        T_SCTP_STATUS = 37;
        T_SCTP_DEBUG = 38;
        T_SCTP_SACK_FREQUENCY = 39;
    }
}

/// The size of a `t_opthdr`.
const HEADER_BYTES: usize = 16;
/// The alignment of options (`T_ALIGN`).
const ALIGNMENT_BYTES: usize = 4;

/// One option of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportOption<'a> {
    /// The protocol of the option.
    pub level: u32,
    /// The number of the option in that protocol.
    pub name: u32,
    /// The value; empty if the option consists of its header.
    pub value: &'a [u8],
}

impl<'a> TransportOption<'a> {
    /// Reads a list of options.
    ///
    /// # Errors
    ///
    /// [`DecodeError::BadOption`]: a header or a value is truncated.
    pub fn read_list(mut bytes: &'a [u8]) -> Result<Vec<Self>, DecodeError> {
        let mut options = Vec::new();
        while !bytes.is_empty() {
            let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(DecodeError::BadOption)?;
            let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| header[at * 4 + i]));
            let len = word(0) as usize;
            let value = bytes.get(HEADER_BYTES..len).ok_or(DecodeError::BadOption)?;
            options.push(Self { level: word(1), name: word(2), value });
            bytes = bytes.get(len.next_multiple_of(ALIGNMENT_BYTES)..).unwrap_or_default();
        }
        Ok(options)
    }

    /// Appends the option to a list, with its status.
    pub fn write(&self, status: Status, list: &mut Vec<u8>) {
        // A value fits the control part of a message, whose length is far below `u32::MAX`.
        let len = (HEADER_BYTES + self.value.len()) as u32;
        for word in [len, self.level, self.name, status.number()] {
            list.extend(word.to_ne_bytes());
        }
        list.extend(self.value);
        list.resize(list.len().next_multiple_of(ALIGNMENT_BYTES), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let options = [
            TransportOption { level: T_INET_IP, name: ip::T_IP_TOS, value: &[8] },
            TransportOption { level: T_INET_SCTP, name: T_ALLOPT, value: &[] },
            TransportOption { level: T_INET_SCTP, name: sctp::T_SCTP_SID, value: &[1, 0, 0, 0] },
        ];
        let mut list = Vec::new();
        options.iter().for_each(|option| option.write(Status::Success, &mut list));
        assert_eq!(list.len(), 20 + 16 + 20, "each begins at a multiple of four bytes");
        assert_eq!(TransportOption::read_list(&list).as_deref(), Ok(&options[..]));
    }

    #[test]
    fn a_list_that_is_cut_off_is_refused() {
        let mut list = Vec::new();
        TransportOption { level: 1, name: 2, value: &[1, 2, 3, 4] }.write(Status::Success, &mut list);
        for len in 1..list.len() {
            assert_eq!(TransportOption::read_list(&list[..len]), Err(DecodeError::BadOption), "{len}");
        }
        list[0] = 15;
        assert_eq!(TransportOption::read_list(&list), Err(DecodeError::BadOption), "shorter than its header");
    }

    #[test]
    fn an_overall_result_is_the_worst() {
        let all =
            [Status::Success, Status::NotSupported, Status::Failure, Status::ReadOnly, Status::PartSuccess];
        assert_eq!(all.iter().max(), Some(&Status::NotSupported));
        assert_eq!(all[2..].iter().max(), Some(&Status::ReadOnly));
        assert!(Status::Failure > Status::PartSuccess);
    }
}
