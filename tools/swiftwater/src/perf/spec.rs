//! One test: the parameters that client and server exchange about it.

use serde::{Deserialize, Serialize};
use swiftwater::{CongestionControl, Coupling, INITIAL_WINDOW_PACKETS_MAX, LinkKind, Multipath};
use thiserror::Error;

/// Largest message of a test. A server allocates buffers of this size, so it has a bound.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Largest number of associations or connections at a time.
pub(crate) const PARALLEL_MAX: usize = 128;
/// Largest buffer that a test may request of the kernel or the stack.
pub(crate) const BUFFER_BYTES_MAX: usize = 1 << 30;
/// Largest message that fits one UDP datagram over IPv4.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 65_507;

/// The transport protocol under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// SCTP by Swiftwater.
    Sctp,
    /// The kernel's TCP.
    Tcp,
    /// The kernel's TCP over several paths, as `ip mptcp endpoint` has set them up at both ends.
    Mptcp,
    /// The kernel's UDP: one datagram per message; losses are not repaired.
    Udp,
    /// SCTP through the sockets of the system, or of `swiftwater run`.
    #[value(skip)]
    SctpSockets,
    /// AF_UNIX sockets with a thread between them.
    #[value(skip)]
    Relay,
}

/// Mapping of messages to calls of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    /// A blocking write per message; reads of 128 KB without boundaries.
    TcpPlain,
    /// A length prefix for each message and a buffer of 64 KB in the program at both ends.
    TcpBatched,
    /// Plain TCP calls over several paths.
    MptcpPlain,
    /// One SCTP message per message.
    SctpMessage,
    /// One SCTP message per message; the program collects them and hands over many in a call, at both ends.
    SctpBatch,
    /// Every message continues one endless SCTP message.
    SctpStream,
    /// One datagram per message.
    UdpPlain,
    /// One SCTP message per message, through `send` and `recv`.
    SctpSockets,
    /// One record of an AF_UNIX socket per message, to a thread that passes it on.
    Relay,
    /// Full packets in batches of about 64 KB, only counted: the limit of UDP.
    UdpLimit,
}

impl Method {
    /// Returns the protocol of this method.
    pub(crate) fn protocol(self) -> Protocol {
        match self {
            Self::TcpPlain | Self::TcpBatched => Protocol::Tcp,
            Self::MptcpPlain => Protocol::Mptcp,
            Self::SctpMessage | Self::SctpBatch | Self::SctpStream => Protocol::Sctp,
            Self::UdpPlain | Self::UdpLimit => Protocol::Udp,
            Self::SctpSockets => Protocol::SctpSockets,
            Self::Relay => Protocol::Relay,
        }
    }

    /// Returns whether each receive call yields exactly one message; otherwise the number of messages is bytes divided by size.
    pub(crate) fn keeps_boundaries(self) -> bool {
        matches!(
            self,
            Self::TcpBatched
                | Self::SctpMessage
                | Self::SctpBatch
                | Self::SctpSockets
                | Self::Relay
                | Self::UdpPlain
        )
    }
}

/// Directions of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Exchange {
    /// The client sends, and the server counts.
    OneWay,
    /// The client sends one message and waits for the answer.
    RequestResponse,
    /// The client does so with a new connection every time.
    ConnectRequestResponse,
}

/// One test as the client asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Mapping of messages to calls.
    pub method: Method,
    /// Direction of the test.
    pub exchange: Exchange,
    /// The size of every message.
    pub message_bytes: usize,
    /// Connections or associations at a time.
    pub parallel: usize,
    /// Interval of reports in milliseconds; 0 for none.
    pub interval_ms: u64,
    /// Size of send and receive buffers, if not the default.
    pub buffer_bytes: Option<usize>,
    /// Largest IP packet, if not the path's.
    pub packet_bytes: Option<usize>,
    /// Congestion control of SCTP and of the client's TCP, if not the default.
    #[serde(default, with = "by_name")]
    pub congestion: Option<CongestionControl>,
    /// Packets of SCTP's initial congestion window, if not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_window_packets: Option<u32>,
    /// Whether SCTP sends on all paths at once, if not the default.
    #[serde(default, with = "by_name")]
    pub multipath: Option<Multipath>,
    /// Whether the paths of SCTP share one congestion control, if not the default.
    #[serde(default, with = "by_name")]
    pub coupling: Option<Coupling>,
    /// Whether SCTP packets carry a checksum.
    pub checksum: bool,
    /// Link that carries SCTP.
    #[serde(default)]
    pub link: Link,
}

/// The link that carries SCTP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Link {
    /// UDP (RFC 6951).
    #[default]
    Udp,
    /// IP itself, protocol 132; needs the capability CAP_NET_RAW.
    Raw,
    /// Raw IP if it is permitted, otherwise UDP.
    Auto,
}

impl Link {
    /// Returns the link that a server which allows `self` uses for a client that asks for `wish`; `None` if they do not agree.
    pub(crate) fn agree(self, wish: Link) -> Option<Link> {
        match (self, wish) {
            (Link::Auto, wish) => Some(wish),
            (allowed, wish) => (wish == Link::Auto || wish == allowed).then_some(allowed),
        }
    }
}

impl From<Link> for LinkKind {
    fn from(link: Link) -> Self {
        match link {
            Link::Udp => LinkKind::Udp,
            Link::Raw => LinkKind::Raw,
            Link::Auto => LinkKind::Auto,
        }
    }
}

/// Serialises a setting by its name.
mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(super) fn serialize<T: Display, S: Serializer>(
        setting: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        setting.as_ref().map(T::to_string).serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let name = Option::<String>::deserialize(deserializer)?;
        name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
    }
}

impl Spec {
    /// Returns the number of messages for so many receive calls and bytes.
    pub(crate) fn messages(&self, calls: u64, bytes: u64) -> u64 {
        if self.method.keeps_boundaries() || self.exchange != Exchange::OneWay {
            calls
        } else {
            bytes / self.message_bytes as u64
        }
    }

    /// Returns the kernel's name of the congestion control for TCP, if the test uses TCP and names one.
    pub(crate) fn tcp_congestion(&self) -> Option<&'static str> {
        let of_tcp = matches!(self.method.protocol(), Protocol::Tcp | Protocol::Mptcp);
        self.congestion.filter(|_| of_tcp).map(|congestion| match congestion {
            CongestionControl::NewReno => "reno",
            CongestionControl::Bbr => "bbr",
            _ => "cubic",
        })
    }

    /// Checks whether a server may serve the test: these bounds limit the cost of any client's request.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let one_connection = matches!(self.method.protocol(), Protocol::Udp | Protocol::Relay);
        let one_datagram = self.method == Method::UdpPlain;
        let message_bytes_max = if one_datagram { DATAGRAM_BYTES_MAX } else { MESSAGE_BYTES_MAX };
        if !(1..=message_bytes_max).contains(&self.message_bytes) {
            return Err(SpecError::MessageBytes { bytes: self.message_bytes, max: message_bytes_max });
        }
        if !(1..=PARALLEL_MAX).contains(&self.parallel) {
            return Err(SpecError::Parallel { parallel: self.parallel });
        }
        if self.buffer_bytes.is_some_and(|bytes| !(1..=BUFFER_BYTES_MAX).contains(&bytes)) {
            return Err(SpecError::Buffer);
        }
        if self.packet_bytes.is_some_and(|bytes| !(576..=65_536).contains(&bytes)) {
            return Err(SpecError::Packet);
        }
        if self
            .initial_window_packets
            .is_some_and(|packets| !(1..=INITIAL_WINDOW_PACKETS_MAX).contains(&packets))
        {
            return Err(SpecError::InitialWindow);
        }
        if one_connection && self.exchange == Exchange::ConnectRequestResponse {
            return Err(SpecError::Connect);
        }
        let plain = matches!(
            self.method,
            Method::TcpPlain
                | Method::MptcpPlain
                | Method::SctpMessage
                | Method::SctpSockets
                | Method::Relay
                | Method::UdpPlain
        );
        if !plain && self.exchange != Exchange::OneWay {
            return Err(SpecError::StreamMode);
        }
        Ok(())
    }
}

/// Error of a test's parameters.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum SpecError {
    /// The size of a message is out of bounds.
    #[error("a message of {bytes} bytes cannot be tested here; choose a size from 1 to {max}")]
    MessageBytes { bytes: usize, max: usize },
    /// The number of associations is out of bounds.
    #[error("{parallel} at a time cannot be tested; choose from 1 to {max}", max = PARALLEL_MAX)]
    Parallel { parallel: usize },
    /// A buffer out of bounds.
    #[error("choose a buffer size from 1 byte to 1 GB")]
    Buffer,
    /// A packet size out of bounds.
    #[error("choose a packet size from 576 to 65536 bytes")]
    Packet,
    /// An initial window out of bounds.
    #[error("choose an initial window from 1 to {max} packets", max = INITIAL_WINDOW_PACKETS_MAX)]
    InitialWindow,
    /// Datagrams have no connection to measure.
    #[error("UDP makes no connections; use --rr in place of --crr")]
    Connect,
    /// Request and response need message boundaries.
    #[error("a request is one message; use --mode message with --rr and --crr")]
    StreamMode,
}

#[cfg(test)]
pub(crate) fn example() -> Spec {
    Spec {
        method: Method::TcpPlain,
        exchange: Exchange::OneWay,
        message_bytes: 64,
        parallel: 1,
        interval_ms: 0,
        buffer_bytes: None,
        packet_bytes: None,
        congestion: None,
        initial_window_packets: None,
        multipath: None,
        coupling: None,
        checksum: true,
        link: Link::Udp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_sctp_travel_by_name() {
        let spec = Spec {
            congestion: Some(CongestionControl::Bbr),
            multipath: Some(Multipath::Always),
            coupling: Some(Coupling::ResourcePooling),
            ..example()
        };
        let text = serde_json::to_string(&spec).expect("a specification is JSON");
        let names = r#""congestion":"bbr","multipath":"always","coupling":"rpv2","#;
        assert!(text.contains(names), "{text}");
        assert_eq!(serde_json::from_str::<Spec>(&text).expect("it is one"), spec);
        for (name, advice) in [("bbr", "choose cubic"), ("always", "choose off"), ("rpv2", "choose none")] {
            let error =
                serde_json::from_str::<Spec>(&text.replace(name, "vegas")).expect_err("there is none");
            assert!(error.to_string().contains(advice), "{error}");
        }
        let silent = text.replace(names, "");
        assert_eq!(serde_json::from_str::<Spec>(&silent).expect("it is one"), example());
    }

    #[test]
    fn a_stream_of_bytes_is_counted_in_messages() {
        let spec = example();
        assert_eq!(spec.messages(3, 640), 10);
        assert_eq!(Spec { method: Method::TcpBatched, ..spec }.messages(3, 640), 3);
    }

    #[test]
    fn requests_of_a_client_are_bounded() {
        assert_eq!(example().check(), Ok(()));
        let bad = [
            Spec { message_bytes: 0, ..example() },
            Spec { message_bytes: MESSAGE_BYTES_MAX + 1, ..example() },
            Spec { method: Method::UdpPlain, message_bytes: DATAGRAM_BYTES_MAX + 1, ..example() },
            Spec { parallel: 0, ..example() },
            Spec { parallel: PARALLEL_MAX + 1, ..example() },
            Spec { buffer_bytes: Some(usize::MAX), ..example() },
            Spec { packet_bytes: Some(1), ..example() },
            Spec { initial_window_packets: Some(INITIAL_WINDOW_PACKETS_MAX + 1), ..example() },
            Spec { method: Method::UdpPlain, exchange: Exchange::ConnectRequestResponse, ..example() },
            Spec { method: Method::SctpStream, exchange: Exchange::RequestResponse, ..example() },
        ];
        for spec in bad {
            assert!(spec.check().is_err(), "{spec:?}");
        }
    }

    #[test]
    fn a_server_that_allows_both_does_what_the_client_asks_for() {
        use Link::{Auto, Raw, Udp};
        for wish in [Udp, Raw, Auto] {
            assert_eq!(Auto.agree(wish), Some(wish));
        }
        assert_eq!((Udp.agree(Auto), Raw.agree(Auto)), (Some(Udp), Some(Raw)));
        assert_eq!((Udp.agree(Raw), Raw.agree(Udp), Raw.agree(Raw)), (None, None, Some(Raw)));
    }
}
