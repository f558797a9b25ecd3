//! The kernel's information about a TCP connection.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;

/// Words of `struct tcp_info` (linux/tcp.h) up to the congestion window, of four bytes each. The first two are bytes.
const WORDS: usize = 21;
const SND_MSS: usize = 4;
const RTT_US: usize = 17;
const SND_CWND: usize = 20;

/// State of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpWindow {
    /// The congestion window.
    pub cwnd_bytes: u64,
    /// The smoothed round-trip time.
    pub srtt: Duration,
}

/// Returns the congestion window and the round-trip time of a TCP socket; of MPTCP, those of its first subflow.
///
/// # Errors
///
/// The socket is not a TCP socket.
pub fn tcp_window(socket: BorrowedFd<'_>) -> Result<TcpWindow, Errno> {
    let mut words = [0_u32; WORDS];
    let mut length = size_of_val(&words) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `words`, which lives through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            words.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    Ok(TcpWindow {
        cwnd_bytes: u64::from(words[SND_CWND]) * u64::from(words[SND_MSS]),
        srtt: Duration::from_micros(words[RTT_US].into()),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_connection_has_the_window_of_ten_segments_and_a_short_round_trip() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
        let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut far, _) = listener.accept().expect("a connection");
        near.write_all(&[7]).expect("room");
        far.read_exact(&mut [0]).expect("it arrives");
        let window = tcp_window(near.as_fd()).expect("TCP");
        // RFC 6928: ten segments, each of them at most what loopback carries.
        assert!((10 * 536..=16 * 65_536).contains(&window.cwnd_bytes), "{window:?}");
        assert!(!window.srtt.is_zero() && window.srtt < Duration::from_secs(60), "{window:?}");
        let udp = UdpSocket::bind(("127.0.0.1", 0)).expect("loopback");
        assert!(tcp_window(udp.as_fd()).is_err());
    }
}
