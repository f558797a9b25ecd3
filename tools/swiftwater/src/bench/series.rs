//! The series that `bench` compares, and the test of each.

use crate::perf::spec::{Exchange, Link, Method, Spec};
use crate::plot::{Color, CurveStyle, Marker};

/// One line of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Series {
    /// A plain blocking write per message, the baseline of all others.
    Tcp,
    /// Plain TCP with the priorities that favoured it on the published machines.
    TcpArtificial,
    /// A TCP program that buffers its messages.
    TcpBatched,
    /// One SCTP message per call.
    SctpMessage,
    /// SCTP messages through a sender and a reader, which take many at once.
    SctpBatch,
    /// One endless SCTP message.
    SctpStream,
    /// One SCTP message per call, in packets without a checksum.
    SctpNocsum,
    /// One SCTP message per call of `send`, by programs under `swiftwater run`.
    SctpSockets,
    /// The limit for a daemon between two programs that passes on one message after the other.
    Relay,
    /// The limit of UDP.
    UdpLimit,
    /// One-byte request and answer over TCP.
    TcpRr,
    /// One-byte request and answer over SCTP.
    SctpRr,
    /// One-byte request and answer over SCTP, by programs under `swiftwater run`.
    SctpSocketsRr,
    /// One-byte request and answer over a relay.
    RelayRr,
    /// One-byte request and answer over UDP.
    UdpRr,
}

impl Series {
    /// All series, in the order of tables.
    pub(crate) const ALL: [Self; 15] = [
        Self::Tcp,
        Self::TcpArtificial,
        Self::TcpBatched,
        Self::SctpMessage,
        Self::SctpBatch,
        Self::SctpStream,
        Self::SctpNocsum,
        Self::SctpSockets,
        Self::Relay,
        Self::UdpLimit,
        Self::TcpRr,
        Self::SctpRr,
        Self::SctpSocketsRr,
        Self::RelayRr,
        Self::UdpRr,
    ];

    /// Returns the name in tables, figures, JSON and on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::TcpArtificial => "tcp-artificial",
            Self::TcpBatched => "tcp-batched",
            Self::SctpMessage => "sctp-message",
            Self::SctpBatch => "sctp-batch",
            Self::SctpStream => "sctp-stream",
            Self::SctpNocsum => "sctp-nocsum",
            Self::SctpSockets => "sctp-sockets",
            Self::Relay => "relay",
            Self::UdpLimit => "udp-limit",
            Self::SctpRr => "sctp-rr",
            Self::TcpRr => "tcp-rr",
            Self::SctpSocketsRr => "sctp-sockets-rr",
            Self::RelayRr => "relay-rr",
            Self::UdpRr => "udp-rr",
        }
    }

    /// Returns the series of this name.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|series| series.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no series `{name}`; choose from {names}")
        })
    }

    /// Returns the note beside the name in a figure's legend.
    pub(crate) fn note(self) -> Option<&'static str> {
        match self {
            Self::TcpArtificial => Some("sender at nice -20, receiver at 19"),
            Self::SctpBatch => Some("many messages a call"),
            Self::SctpNocsum => Some("no checksum: not for networks"),
            Self::SctpSockets | Self::SctpSocketsRr => Some("programs under swiftwater run"),
            Self::Relay | Self::RelayRr => Some("AF_UNIX records through a thread, no protocol"),
            Self::UdpLimit => Some("counted only, no protocol"),
            _ => None,
        }
    }

    /// Returns the style of its curve.
    pub(crate) fn style(self) -> CurveStyle {
        match self {
            Self::Tcp | Self::TcpRr => CurveStyle::new(Color::Ink, Marker::Circle),
            Self::TcpArtificial => CurveStyle::new(Color::Grey, Marker::Ring),
            Self::TcpBatched => CurveStyle::new(Color::Ochre, Marker::Square),
            Self::SctpMessage | Self::SctpRr => CurveStyle::new(Color::Blue, Marker::Diamond),
            Self::SctpBatch => CurveStyle::new(Color::Red, Marker::Right),
            Self::SctpStream => CurveStyle::new(Color::Green, Marker::Up),
            Self::SctpNocsum => CurveStyle::new(Color::Violet, Marker::Kite),
            Self::SctpSockets | Self::SctpSocketsRr => CurveStyle::new(Color::Magenta, Marker::Down),
            Self::Relay | Self::RelayRr => CurveStyle::new(Color::Cyan, Marker::Frame),
            Self::UdpLimit | Self::UdpRr => CurveStyle::new(Color::Vermilion, Marker::Dot),
        }
    }

    /// Returns whether the series measures latency.
    pub(crate) fn is_rr(self) -> bool {
        matches!(self, Self::TcpRr | Self::SctpRr | Self::SctpSocketsRr | Self::RelayRr | Self::UdpRr)
    }

    /// Returns whether both ends use sockets of a shim and a daemon.
    pub(crate) fn needs_daemon(self) -> bool {
        matches!(self, Self::SctpSockets | Self::SctpSocketsRr)
    }

    /// Returns whether a limit on packet sizes affects the series; it does not affect the kernel's TCP on loopback.
    pub(crate) fn obeys_packet_size(self) -> bool {
        matches!(
            self,
            Self::SctpMessage | Self::SctpBatch | Self::SctpStream | Self::SctpNocsum | Self::UdpLimit
        )
    }

    /// Returns whether the series runs over UDP, so that its share of `udp-limit` is meaningful.
    pub(crate) fn is_over_udp(self) -> bool {
        self.obeys_packet_size()
    }

    /// Returns whether the series sends messages, so that its rate in messages is meaningful. Others have bytes only.
    pub(crate) fn has_messages(self) -> bool {
        self != Self::UdpLimit
    }

    /// Returns whether `--quick` runs the series.
    pub(crate) fn is_quick(self) -> bool {
        !matches!(self, Self::TcpArtificial | Self::SctpNocsum)
    }

    /// Returns the series that this one is compared with.
    pub(crate) fn baseline(self) -> Self {
        if self.is_rr() { Self::TcpRr } else { Self::Tcp }
    }

    /// Returns the nice values of sender and receiver.
    pub(crate) fn nice(self) -> Option<(i32, i32)> {
        // The published runs called these priorities artificial: the receiver never interrupts the sender.
        (self == Self::TcpArtificial).then_some((-20, 19))
    }

    /// Returns the test that measures the series.
    pub(crate) fn spec(self, message_bytes: usize, parallel: usize, packet_bytes: Option<usize>) -> Spec {
        let method = match self {
            Self::Tcp | Self::TcpArtificial | Self::TcpRr => Method::TcpPlain,
            Self::TcpBatched => Method::TcpBatched,
            Self::SctpMessage | Self::SctpNocsum | Self::SctpRr => Method::SctpMessage,
            Self::SctpBatch => Method::SctpBatch,
            Self::SctpStream => Method::SctpStream,
            Self::SctpSockets | Self::SctpSocketsRr => Method::SctpSockets,
            Self::Relay | Self::RelayRr => Method::Relay,
            Self::UdpLimit => Method::UdpLimit,
            Self::UdpRr => Method::UdpPlain,
        };
        Spec {
            method,
            exchange: if self.is_rr() { Exchange::RequestResponse } else { Exchange::OneWay },
            message_bytes,
            parallel,
            interval_ms: 0,
            buffer_bytes: None,
            packet_bytes,
            congestion: None,
            initial_window_packets: None,
            multipath: None,
            coupling: None,
            checksum: self != Self::SctpNocsum,
            link: Link::Udp,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_round_trip_and_every_test_is_allowed() {
        for series in Series::ALL {
            assert_eq!(Series::parse(series.name()), Ok(series));
            assert_eq!(series.spec(1, 1, Some(1500)).check(), Ok(()));
            assert_eq!(series.baseline().baseline(), series.baseline());
        }
        let styles: HashSet<(Color, Marker)> = Series::ALL
            .into_iter()
            .filter(|series| !series.is_rr())
            .map(|s| (s.style().color, s.style().marker))
            .collect();
        let colors: HashSet<Color> = styles.iter().map(|(color, _)| *color).collect();
        let markers: HashSet<Marker> = styles.iter().map(|(_, marker)| *marker).collect();
        let throughput = Series::ALL.iter().filter(|series| !series.is_rr()).count();
        assert_eq!(
            (colors.len(), markers.len()),
            (throughput, throughput),
            "each series has its own of both"
        );
        assert!(Series::parse("quic").expect_err("no such series").contains("tcp-batched"));
    }
}
