//! Memory of associations, measured at the allocator: whatever their peers send, at most twice the accounted amount,
//! and 64 KB.
#![allow(missing_docs, reason = "a test")]

mod allocator;
mod rig;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ::sctp::AssociationConfig;
use ::sctp::config::{OVERHEAD_FREE_BYTES, RECEIVED_OVERHEAD_BYTES, RESTARTS_BYTES};
use providers::{SctpDriver, SctpDriverConfig};
use rig::{CONSTANT_BYTES, Peer, Rig, write_data};
use sctp_wire::cause::Causes;
use sctp_wire::chunk::{DataFlags, Error, Heartbeat};

const WHOLE: DataFlags = DataFlags::WHOLE;
const UNORDERED: DataFlags = DataFlags { unordered: true, ..WHOLE };
const BEGINNING: DataFlags = DataFlags { ending: false, ..WHOLE };
const MIDDLE: DataFlags = DataFlags { beginning: false, ..BEGINNING };
const ENDING: DataFlags = DataFlags { ending: true, ..MIDDLE };

/// Memory that shared tables and lists may keep after the end of an association.
const LEFT_BYTES_MAX: usize = 32 * 1024;

/// The action of a peer in one step; steps count from 0.
type Pattern = (&'static str, u32, fn(&mut Rig, &Peer, u32));

/// Patterns of one association that make a receiver hold much memory for little data.
const PATTERNS: [Pattern; 18] = [
    ("payloads of 520 bytes behind a gap", 1500, |rig, peer, n| {
        rig.sends_among_noise(peer, vec![peer.data(WHOLE, n + 1, 0, (n + 1) as u16, &[1; 520])]);
    }),
    ("payloads of one byte behind a gap", 1000, |rig, peer, n| {
        rig.sends_among_noise(peer, vec![peer.data(WHOLE, n + 1, 0, (n + 1) as u16, &[1])]);
    }),
    ("messages of one byte that nobody reads", 1000, |rig, peer, n| {
        rig.sends_among_noise(peer, vec![peer.data(WHOLE, n, 0, n as u16, &[1])]);
    }),
    ("a flood of messages of one byte that nobody reads", 40, |rig, peer, n| {
        rig.sends(peer, vec![messages(peer, n * 500, 500)]);
    }),
    ("one message of each batch is read late", 1000, |rig, peer, n| {
        rig.read_all();
        rig.sends_among_noise(peer, vec![peer.data(WHOLE, n, 0, n as u16, &[1; 100])]);
    }),
    ("a bulk of messages; the first of each batch waits for an earlier one", 300, |rig, peer, n| {
        let stays = peer.data(WHOLE, 10 * n, n as u16, 1, &[1; 1400]);
        let rest = (1..10).map(|k| peer.data(UNORDERED, 10 * n + k, 0, 0, &[2; 1400]));
        rig.sends(peer, std::iter::once(stays).chain(rest).collect());
        rig.read_all();
    }),
    ("fragments of one byte in order", 1000, |rig, peer, n| {
        let flags = if n == 0 { BEGINNING } else { MIDDLE };
        rig.sends_among_noise(peer, vec![peer.data(flags, n, 0, 0, &[1])]);
    }),
    ("a flood of fragments of one byte in order", 15, |rig, peer, n| {
        rig.sends(
            peer,
            vec![peer.packet(|out| {
                for tsn in 500 * n..500 * (n + 1) {
                    write_data(if tsn == 0 { BEGINNING } else { MIDDLE }, tsn, 0, 0, &[1], out);
                }
            })],
        );
    }),
    ("fragments of one byte behind gaps", 3000, |rig, peer, n| {
        rig.sends(peer, vec![peer.data(MIDDLE, 2 * n + 2, 0, 0, &[1])]);
    }),
    ("fragments of one byte behind gaps, each in a block of its own", 1000, |rig, peer, n| {
        rig.sends_among_noise(peer, vec![peer.data(MIDDLE, 2 * n + 2, 0, 0, &[1])]);
    }),
    ("neighbouring fragments of one byte behind a gap", 3000, |rig, peer, n| {
        rig.sends(peer, vec![peer.data(MIDDLE, n + 2, 0, 0, &[1])]);
    }),
    ("messages in pieces of one byte that nobody reads", 40, |rig, peer, n| {
        rig.sends(
            peer,
            vec![peer.packet(|out| {
                for k in 0..500 {
                    let flags = if k == 0 {
                        BEGINNING
                    } else if k == 499 {
                        ENDING
                    } else {
                        MIDDLE
                    };
                    write_data(flags, 500 * n + k, 0, n as u16, &[1], out);
                }
            })],
        );
    }),
    ("streams whose first message is missing", 4000, |rig, peer, n| {
        rig.sends(peer, vec![peer.data(WHOLE, n, (16 * n) as u16, 1, &[1])]);
    }),
    ("messages on all streams, read at once", 4000, |rig, peer, n| {
        rig.sends(peer, vec![peer.data(WHOLE, n, (16 * n) as u16, 0, &[1])]);
        rig.read_all();
    }),
    ("gaps between messages that were read", 5000, |rig, peer, n| {
        rig.sends(peer, vec![peer.data(UNORDERED, 2 * n + 1, 0, 0, &[1])]);
        rig.read_all();
    }),
    ("messages behind an open record", 1000, |rig, peer, n| {
        let open = DataFlags { immediate: true, ..BEGINNING };
        let packet = match n {
            0 => peer.data(open, 0, 0, 0, &[1]),
            _ => peer.data(UNORDERED, n + 1, 1, 0, &[1; 100]),
        };
        rig.sends_among_noise(peer, vec![packet]);
        rig.read_all();
    }),
    ("control chunks", 1000, |rig, peer, _| {
        let heartbeats = peer.packet(|out| Heartbeat { info: &[1; 1000] }.write(out));
        let errors = peer.packet(|out| Error { causes: Causes::new(&[0, 13, 0, 8, 1, 2, 3, 4]) }.write(out));
        rig.sends_among_noise(peer, vec![heartbeats]);
        rig.sends(peer, vec![errors]);
    }),
    ("restarts that nobody reads", 2000, Rig::restarts),
];

/// Returns DATA chunks with messages of one byte, for one packet.
fn messages(peer: &Peer, first: u32, count: u32) -> Vec<u8> {
    peer.packet(|out| (first..first + count).for_each(|tsn| write_data(WHOLE, tsn, 0, tsn as u16, &[1], out)))
}

/// Returns a rig after an association has been set up and has ended, so that shared structures exist.
fn rig() -> Rig {
    let mut rig = Rig::new(SctpDriver::ONE_TO_MANY);
    let peer = rig.associate(1);
    rig.restarts(&peer, 0);
    rig.sends(&peer, vec![peer.data(BEGINNING, 0, 0, 0, &[1]), peer.data(ENDING, 1, 0, 0, &[1])]);
    rig.read_all();
    rig.end(&peer);
    rig.set_baseline();
    rig
}

fn one_association_holds_little(pattern: &Pattern) {
    let (name, steps, step) = pattern;
    let mut rig = rig();
    let peer = rig.associate(16);
    rig.check_quiet("an association at rest");
    for n in 0..*steps {
        step(&mut rig, &peer, n);
        rig.check_busy(name);
        if n % 97 == 0 {
            rig.pause();
            rig.check_quiet(name);
        }
    }
    rig.pause();
    rig.print(name);
    rig.check_quiet(name);
    rig.read_all();
    rig.pause();
    rig.check_quiet(name);
    let left = rig.end(&peer);
    assert!(left <= LEFT_BYTES_MAX, "{name}: {left} bytes are left after the end");
}

fn associations_that_share_every_block_hold_little() {
    let mut rig = rig();
    let peers: Vec<_> = (0..20).map(|_| rig.associate(1)).collect();
    for n in 0..200 {
        for peer in &peers {
            rig.sends(peer, vec![peer.data(WHOLE, n, 0, n as u16, &[1; 1200])]);
        }
        // The program reads the messages of all associations but one.
        if n % 20 != 0 {
            rig.read_all();
        }
        rig.check_busy("associations that share every block");
    }
    rig.pause();
    rig.check_quiet("associations that share every block");
}

fn an_association_that_nobody_accepts_holds_little() {
    let mut rig = Rig::new(5);
    let peer = rig.associate(1);
    for n in 0..500 {
        rig.sends_among_noise(&peer, vec![peer.data(WHOLE, n, 0, n as u16, &[1])]);
    }
    rig.pause();
    // No stream counts for it yet: a message is charged 96 bytes beside its payload.
    let (held, allowed) = (rig.held_bytes(), 2 * 500 * (1 + 96) + CONSTANT_BYTES);
    assert!(held <= allowed, "{held} bytes held, {allowed} allowed");
}

fn a_peer_that_restarts_before_its_association_is_accepted_holds_little() {
    const BUFFER_BYTES: usize = 4096;
    let association = AssociationConfig {
        receive_buffer_bytes: BUFFER_BYTES,
        receive_buffer_tuned_bytes: 0,
        ..AssociationConfig::default()
    };
    let mut rig = Rig::with(5, SctpDriverConfig { association, ..SctpDriverConfig::default() });
    let peer = rig.associate(1);
    (0..2500).for_each(|n| rig.restarts(&peer, n));
    rig.pause();
    // No stream counts for it yet.
    let accounted_max = 2 * OVERHEAD_FREE_BYTES + RESTARTS_BYTES + 4 * RECEIVED_OVERHEAD_BYTES;
    let (held, allowed) = (rig.held_bytes(), 2 * accounted_max + CONSTANT_BYTES);
    println!("restarts before the accept: {held} bytes held");
    assert!(held <= allowed, "{held} bytes held, {allowed} allowed");
}

/// Each test holds this lock while it runs, because the allocator counts for all threads.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn an_association_holds_at_most_twice_what_it_accounts_and_a_constant() {
    let _alone = alone();
    PATTERNS.iter().for_each(one_association_holds_little);
    associations_that_share_every_block_hold_little();
    an_association_that_nobody_accepts_holds_little();
    a_peer_that_restarts_before_its_association_is_accepted_holds_little();
}

#[test]
fn a_receive_returns_to_its_caller_after_16_kb() {
    const BATCH_BYTES: usize = 8_000;
    let _alone = alone();
    let mut rig = Rig::new(SctpDriver::ONE_TO_MANY);
    let peer = rig.associate(1);
    rig.read_all();
    let batch = |n| vec![peer.data(WHOLE, n, 0, n as u16, &vec![1; BATCH_BYTES])];
    assert_eq!(rig.sends_at_once(&peer, (0..9).map(batch)), 3, "three batches in each");
    assert_eq!(rig.messages(), 9, "the order is kept");
}
