//! The well-behaved peers: one that sends without pause, and new ones that connect.

use std::io;
use std::net::IpAddr;
use std::process;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use swiftwater::{Address, Stack, StackOptions};

use super::arena::{CALLER_PORT, MEETING_PORT, SINK_PORT, UDP_PORT, VICTIM, newcomer};
use super::victim::MESSAGE_BYTES;
use super::{say, wait_for_line};
use crate::load;

/// Time that the command waits for the last connect.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_millis(3500);
/// Interval between new peers.
pub(crate) const CONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// Results of the new peers' connects.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Connects {
    /// Time of each successful connect, in milliseconds.
    pub took_ms: Vec<f64>,
    /// Number of peers that were refused, or not connected in time.
    pub failed: usize,
}

fn victim(port: u16) -> Address {
    Address { hosts: vec![IpAddr::V4(VICTIM)], port, udp_port: Some(UDP_PORT) }
}

/// Sends messages until standard input ends. Prints an empty object once it is connected.
pub(crate) fn send_on() -> Result<(), String> {
    end_with_input();
    let options = StackOptions::default().with_udp_port(UDP_PORT);
    let stack = Stack::bind(&options).map_err(|error| error.to_string())?;
    let association =
        stack.connect_from(CALLER_PORT, victim(SINK_PORT)).map_err(|error| error.to_string())?;
    say(&())?;
    let message = load::payload(MESSAGE_BYTES);
    loop {
        association.send(&message).map_err(|error| error.to_string())?;
    }
}

/// Ends this process when standard input ends, even in a call that waits for the victim: a victim that was killed answers no
/// more, and INIT or DATA would be retransmitted for minutes.
fn end_with_input() {
    thread::spawn(|| {
        // The end and a failure mean the same here.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        process::exit(0);
    });
}

/// Connects new peers at an even rate after a line on standard input, and finally prints the time of each.
pub(crate) fn connect_all(count: u32) -> Result<(), String> {
    let options = StackOptions::default().with_udp_port(0);
    let stack = Stack::bind(&options).map_err(|error| error.to_string())?;
    say(&())?;
    wait_for_line()?;
    let (send, receive) = channel();
    let began = Instant::now();
    for number in 0..count {
        thread::sleep((CONNECT_INTERVAL * number).saturating_sub(began.elapsed()));
        let (stack, send) = (stack.with_local_addresses(&[IpAddr::V4(newcomer(number))]), send.clone());
        thread::spawn(move || {
            let before = Instant::now();
            let connected = stack.connect(victim(MEETING_PORT));
            // The receiver is gone if the connect took too long.
            let _ = send.send(connected.map(|association| (before.elapsed(), association)));
        });
    }
    drop(send);
    let until = Instant::now() + CONNECT_PATIENCE;
    let mut connects = Connects::default();
    let mut open = Vec::new();
    while let Ok(outcome) = receive.recv_timeout(until.saturating_duration_since(Instant::now())) {
        if let Ok((took, association)) = outcome {
            connects.took_ms.push(took.as_secs_f64() * 1e3);
            open.push(association);
        }
    }
    connects.failed = count as usize - connects.took_ms.len();
    say(&connects)
}
