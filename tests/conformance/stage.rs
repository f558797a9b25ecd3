//! The stage of a script: it records the ladder and, in a mutation run, makes the endpoint do one thing wrong.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Once;

use bytes::Bytes;
use lab::script::{Peer, Wire, plain};
use sctp::{AssociationConfig, Time};
use sctp_wire::Packet;

use crate::fault::{Fault, Mutation};

/// A packet script.
pub(crate) type Script = fn(&Stage);

/// The setup that a script is played on.
#[derive(Debug)]
pub(crate) struct Stage {
    record: Rc<RefCell<Record>>,
}

/// The outcome of a script.
#[derive(Debug)]
pub(crate) struct Run {
    /// Why it failed, if it did.
    pub(crate) failure: Option<String>,
    record: Record,
}

/// A packet, or the passing of time.
#[derive(Debug)]
enum Line {
    FromPeer(Time, Bytes),
    FromEndpoint(Time, Bytes),
    Waited(Time),
}

/// All packets on the wire.
#[derive(Debug)]
struct Record {
    lines: Vec<Line>,
    mutation: Option<Mutation>,
    /// Packets of the endpoint, as it sent them.
    sent: Vec<Bytes>,
    /// Number of packets that the endpoint received.
    received: usize,
    /// Number of times that the endpoint had nothing more to send.
    rests: usize,
    /// Packets that arrive only after a while.
    late: Vec<(SocketAddr, Bytes)>,
    /// Address of the peer.
    peer: SocketAddr,
}

/// The wire of a stage.
#[derive(Debug)]
struct Recorded(Rc<RefCell<Record>>);

impl Stage {
    /// Returns an endpoint that listens, and a peer that has sent nothing.
    pub(crate) fn listening(&self) -> Peer {
        self.listening_with(AssociationConfig::default())
    }

    /// Listens with these settings.
    pub(crate) fn listening_with(&self, config: AssociationConfig) -> Peer {
        self.play(Peer::new(1, config))
    }

    /// The peer has connected to the endpoint.
    pub(crate) fn established(&self) -> Peer {
        self.play(Peer::established(1))
    }

    /// Establishes an association with these settings.
    pub(crate) fn established_with(&self, config: AssociationConfig) -> Peer {
        self.play(Peer::established_with(1, config))
    }

    /// Makes the endpoint connect to the peer, which then receives its INIT.
    pub(crate) fn connecting(&self) -> Peer {
        self.connecting_with(plain())
    }

    /// Makes the endpoint connect with these settings.
    pub(crate) fn connecting_with(&self, config: AssociationConfig) -> Peer {
        self.play(Peer::connecting(1, config))
    }

    /// The endpoint has connected to the peer.
    pub(crate) fn connected(&self) -> Peer {
        self.play(Peer::connected(1))
    }

    /// Puts a peer on the stage: its packets and those of the endpoint count from now on.
    pub(crate) fn play(&self, peer: Peer) -> Peer {
        self.record.borrow_mut().peer = peer.address;
        peer.behind(Box::new(Recorded(Rc::clone(&self.record))))
    }
}

impl Record {
    fn new(mutation: Option<Mutation>) -> Self {
        Record {
            lines: Vec::new(),
            mutation,
            sent: Vec::new(),
            received: 0,
            rests: 0,
            late: Vec::new(),
            peer: SocketAddr::from(([0, 0, 0, 0], 0)),
        }
    }
}

impl Wire for Recorded {
    fn leaves(&mut self, now: Time, to: SocketAddr, packet: Bytes) -> Vec<(SocketAddr, Bytes)> {
        let mut record = self.0.borrow_mut();
        let number = record.sent.len();
        record.sent.push(packet.clone());
        let mut arrives = vec![(to, packet)];
        if let Some(mutation) = record.mutation.filter(|m| m.fault.is_of_a_packet() && m.at == number) {
            let (to, packet) = arrives.remove(0);
            match mutation.fault {
                Fault::Late => record.late.push((to, packet)),
                Fault::Elsewhere => arrives.push((SocketAddr::from(([10, 9, 9, 9], 9899)), packet)),
                fault => arrives.extend(fault.apply(mutation.variant, &packet).into_iter().map(|p| (to, p))),
            }
        }
        record.lines.extend(arrives.iter().map(|(_, packet)| Line::FromEndpoint(now, packet.clone())));
        arrives
    }

    fn enters(&mut self, now: Time, from: SocketAddr, packet: &Bytes) -> bool {
        let mut record = self.0.borrow_mut();
        let number = record.received;
        record.received += 1;
        record.peer = from;
        record.lines.push(Line::FromPeer(now, packet.clone()));
        !record.mutation.is_some_and(|m| m.fault == Fault::Deaf && m.at == number)
    }

    fn rests(&mut self, now: Time, waited: bool) -> Vec<(SocketAddr, Bytes)> {
        let mut record = self.0.borrow_mut();
        let number = record.rests;
        record.rests += 1;
        let mut arrives = Vec::new();
        if waited {
            record.lines.push(Line::Waited(now));
            arrives.append(&mut record.late);
        }
        if let Some(mutation) = record.mutation.filter(|m| m.fault == Fault::Talkative && m.at == number) {
            let header = record.sent.last().map(|packet| packet.slice(..12));
            arrives.push((record.peer, crate::fault::uncalled_for(mutation.variant, header)));
        }
        record.lines.extend(arrives.iter().map(|(_, packet)| Line::FromEndpoint(now, packet.clone())));
        arrives
    }
}

impl Run {
    /// Returns every instance of a fault that is possible in this run.
    pub(crate) fn mutations(&self, fault: Fault) -> Vec<Mutation> {
        let each =
            |at: usize, variants: usize| (0..variants).map(move |variant| Mutation { fault, at, variant });
        match fault {
            Fault::Deaf => (0..self.record.received).flat_map(|at| each(at, 1)).collect(),
            Fault::Talkative => {
                (0..self.record.rests).flat_map(|at| each(at, crate::fault::UNCALLED_FOR)).collect()
            }
            _ => {
                let sent = self.record.sent.iter().enumerate();
                sent.flat_map(|(at, packet)| each(at, fault.variants(packet))).collect()
            }
        }
    }

    /// Returns the script as a ladder.
    pub(crate) fn ladder(&self) -> String {
        let mut out = String::from("      peer                endpoint\n");
        for line in &self.record.lines {
            let _ = match line {
                Line::FromPeer(at, packet) => writeln!(out, "{}  ----->  {}", ms(*at), chunks(packet)),
                Line::FromEndpoint(at, packet) => writeln!(out, "{}  <-----  {}", ms(*at), chunks(packet)),
                Line::Waited(at) => writeln!(out, "{}    :", ms(*at)),
            };
        }
        out
    }
}

fn ms(at: Time) -> String {
    format!("{:11.3} ms", at.as_nanos() as f64 / 1e6)
}

fn chunks(packet: &Bytes) -> String {
    Packet::parse(packet).map_or_else(|e| e.to_string(), |p| p.to_string())
}

thread_local! {
    /// Expects a failure, which is not printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a script, with one fault if there is a mutation.
pub(crate) fn run(script: Script, mutation: Option<Mutation>) -> Run {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    let stage = Stage { record: Rc::new(RefCell::new(Record::new(mutation))) };
    let record = Rc::clone(&stage.record);
    QUIET.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| script(&stage)));
    QUIET.set(false);
    let failure = outcome.err().map(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it failed").to_string()
    });
    let record = record.replace(Record::new(None));
    Run { failure, record }
}
