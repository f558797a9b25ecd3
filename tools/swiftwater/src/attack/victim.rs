//! The victim: a server that uses the Rust API, in a process of its own.

use std::fs;
use std::io::{self, BufRead};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use swiftwater::{AcceptError, Listener, Stack, StackOptions};

use super::arena::{ATTACK_LINE, MEETING_PORT, SINK_PORT, UDP_PORT};
use super::say;
use crate::load::sctp_transport::SctpIn;
use crate::load::{Meter, receive_all};

/// Bytes of each message that the peer sends.
pub(crate) const MESSAGE_BYTES: usize = 1024;
const ETHERNET_HEADER_BYTES: u64 = 14;

/// State of the victim, reported on request.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct VictimState {
    /// Seconds since it began.
    pub seconds: f64,
    /// Messages that the peer's association has delivered.
    pub messages: u64,
    /// Associations that exist.
    pub associations: usize,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Largest resident memory so far.
    pub resident_bytes_max: u64,
    /// IP packets received over the attack line.
    pub attack_packets: u64,
    /// Their bytes, IP header included.
    pub attack_bytes: u64,
    /// IP packets sent over the attack line.
    pub answers: u64,
    /// Their bytes.
    pub answer_bytes: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub dropped: u64,
}

/// Serves until standard input ends. Each line of it asks for a [`VictimState`].
pub(crate) fn run() -> Result<(), String> {
    let options = StackOptions::default().with_udp_port(UDP_PORT);
    let stack = Stack::bind(&options).map_err(|error| error.to_string())?;
    let sink = stack.listen(SINK_PORT).map_err(|error| error.to_string())?;
    let meeting = stack.endpoint(MEETING_PORT).map_err(|error| error.to_string())?;
    let meter = Arc::new(Meter::default());
    let counted = Arc::clone(&meter);
    thread::spawn(move || receive_from_all(&sink, &counted));
    // New peers only connect and send nothing.
    thread::spawn(move || while meeting.recv().is_ok() {});
    let began = Instant::now();
    say(&state(&stack, &meter, began))?;
    for line in io::stdin().lock().lines() {
        line.map_err(|error| error.to_string())?;
        say(&state(&stack, &meter, began))?;
    }
    Ok(())
}

fn receive_from_all(listener: &Listener, meter: &Meter) -> Result<(), AcceptError> {
    loop {
        let mut association = SctpIn::messages(listener.accept()?.0, MESSAGE_BYTES);
        // If the association breaks, the rate shows it.
        let _ = receive_all(&mut association, Some(MESSAGE_BYTES), meter);
    }
}

fn state(stack: &Stack, meter: &Meter, began: Instant) -> VictimState {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let udp = fs::read_to_string("/proc/self/net/snmp").unwrap_or_default();
    let [bytes_in, packets_in, bytes_out, packets_out] = line_counters(&line).unwrap_or_default();
    VictimState {
        seconds: began.elapsed().as_secs_f64(),
        messages: meter.read().0,
        associations: stack.statistics().associations,
        resident_bytes: resident_bytes(&status, "VmRSS:"),
        resident_bytes_max: resident_bytes(&status, "VmHWM:"),
        attack_packets: packets_in,
        attack_bytes: bytes_in.saturating_sub(packets_in * ETHERNET_HEADER_BYTES),
        answers: packets_out,
        answer_bytes: bytes_out.saturating_sub(packets_out * ETHERNET_HEADER_BYTES),
        dropped: udp_counter(&udp, "RcvbufErrors").unwrap_or(0),
    }
}

/// Returns bytes and packets received, and bytes and packets sent, from proc_pid_net(5).
fn line_counters(text: &str) -> Option<[u64; 4]> {
    let counters =
        text.lines().find_map(|line| line.trim_start().strip_prefix(ATTACK_LINE)?.strip_prefix(':'))?;
    let fields: Vec<u64> = counters.split_whitespace().map_while(|field| field.parse().ok()).collect();
    Some([*fields.first()?, *fields.get(1)?, *fields.get(8)?, *fields.get(9)?])
}

/// Returns a UDP counter of the system, whose file has a line of names and one of numbers.
fn udp_counter(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let at = lines.next()?.split(' ').position(|field| field == name)?;
    lines.next()?.split(' ').nth(at)?.parse().ok()
}

fn resident_bytes(status: &str, name: &str) -> u64 {
    let kilobytes = status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    kilobytes.and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_kernel_are_read() {
        let dev = "Inter-|   Receive\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
            attack: 100 2 0 0 0 0 0 0 300 4 0 0 0 0 0 0\n";
        assert_eq!(line_counters(dev), Some([100, 2, 300, 4]));
        assert_eq!(line_counters("attacks: 1 2"), None);
        let snmp = "Udp: InDatagrams NoPorts RcvbufErrors\nUdp: 7 8 9\nUdpLite: InDatagrams\nUdpLite: 1\n";
        assert_eq!((udp_counter(snmp, "RcvbufErrors"), udp_counter(snmp, "No")), (Some(9), None));
        assert_eq!(resident_bytes("VmHWM:\t   12 kB\nVmRSS:\t   8 kB\n", "VmRSS:"), 8192);
    }
}
