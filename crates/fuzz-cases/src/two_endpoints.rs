//! Two hosts, the interceptor between them, and what must hold after every event.

use std::net::SocketAddr;
use std::time::Duration;

use lab::Simulation;
use lab::simulation::{Application, Node};
use lab::wire::Outgoing;
use netsim::Ecn;
use sctp::{Arrival, AssociationId, Endpoint, Time, Unreachable};

use crate::app::{App, Setup};
use crate::interceptor::Interceptor;
use crate::sniff::Known;

/// Number of times that timers may expire at one instant.
const INSTANT_STEPS_MAX: usize = 128;

/// Two hosts and the interceptor.
#[derive(Debug)]
pub(crate) struct TwoEndpoints {
    pub(crate) simulation: Simulation<App>,
    pub(crate) interceptor: Interceptor,
    /// Whether the interceptor has made a packet that passes for one of a host: later content proves nothing.
    pub(crate) forged: bool,
}

impl TwoEndpoints {
    pub(crate) fn new(setups: [Setup; 2]) -> Self {
        let mut simulation = Simulation::new(0);
        for (number, setup) in (0..).zip(setups) {
            let addresses = setup.addresses.clone();
            simulation.add_host(&addresses, App::new(number, setup));
        }
        let interceptor = Interceptor::new(&mut simulation);
        let mut ends = TwoEndpoints { simulation, interceptor, forged: false };
        for side in 0..2 {
            ends.call(side, |app, endpoint, _| app.prepare(endpoint));
        }
        ends
    }

    pub(crate) fn now(&self) -> Time {
        self.simulation.now()
    }

    pub(crate) fn app(&self, side: usize) -> &App {
        &self.simulation.node(side).app
    }

    pub(crate) fn endpoint(&self, side: usize) -> &Endpoint {
        &self.simulation.node(side).endpoint
    }

    /// Returns the addresses of a host as the other one sees them.
    pub(crate) fn addresses(&self, side: usize) -> Vec<SocketAddr> {
        let port = self.interceptor.port(side);
        let addresses = self.simulation.node(side).addresses();
        addresses.iter().map(|&address| SocketAddr::new(address, port)).collect()
    }

    /// Returns an association of a host, if it has one.
    pub(crate) fn association(&self, side: usize, number: usize) -> Option<AssociationId> {
        let open = self.app(side).open();
        open.get(number.checked_rem(open.len())?).copied()
    }

    /// Returns the number of bytes in the send buffers of a host.
    pub(crate) fn send_buffered_bytes(&self, side: usize) -> usize {
        self.app(side).send_buffered_bytes(self.endpoint(side))
    }

    /// Makes a call on a host, and handles its consequences.
    pub(crate) fn call(&mut self, side: usize, call: impl FnOnce(&mut App, &mut Endpoint, Time)) {
        let now = self.now();
        let Node { endpoint, app, .. } = self.simulation.node_mut(side);
        app.set_now(now);
        call(app, endpoint, now);
        self.finish_call();
    }

    /// Restarts the endpoint of a host, as after a crash.
    pub(crate) fn restart(&mut self, side: usize) {
        self.simulation.restart(side);
        self.interceptor.known[side] = Known::default();
        self.call(side, |app, endpoint, _| app.on_restart(endpoint));
    }

    /// Delivers a datagram from the interceptor to a host, or several of `segment_bytes` that came together.
    pub(crate) fn hand(&mut self, side: usize, packet: &Outgoing, segment_bytes: usize) {
        let packets = packet.packet.len().div_ceil(segment_bytes.max(1));
        self.interceptor.on_arrival(self.now(), side, packet, packets);
        let begun = self.begun(side);
        self.simulation.node_mut(side).app.expect_packets(packets);
        let arrival = Arrival {
            remote: packet.from,
            local: Some(packet.to.ip()),
            marked: packet.ecn == Ecn::CongestionExperienced,
            in_memory: false,
            segment_bytes,
            shared: &[],
            bytes: &packet.packet,
        };
        self.simulation.arrive(side, &arrival);
        self.simulation.node_mut(side).app.expect_packets(1);
        self.judge_tags(side, packet, begun);
        self.finish_call();
    }

    /// Lets the first packet of a host pass.
    pub(crate) fn deliver(&mut self, from: usize) {
        if self.interceptor.pass_first(from) {
            self.step(self.now());
        }
    }

    /// Delivers an ICMP message that quotes this much of a packet to its sender.
    pub(crate) fn report(&mut self, side: usize, packet: &Outgoing, why: Unreachable, quoted_bytes: usize) {
        self.interceptor.print(self.now(), "returned to", side, packet);
        let quoted = packet.packet.slice(..packet.packet.len().min(quoted_bytes));
        self.simulation.report(side, packet.to, why, &quoted);
        self.finish_call();
    }

    /// Returns the time at which a timer expires next.
    pub(crate) fn deadline(&self) -> Option<Time> {
        [0, 1].into_iter().filter_map(|side| self.endpoint(side).poll_timeout()).min()
    }

    /// Lets time pass. Timers expire, and the interceptor holds all packets.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now() + time;
        self.run_until(end);
        self.simulation.run_for_with(end - self.now(), &mut self.interceptor);
    }

    /// Lets both programs read everything and every packet pass in order, until `done`. Returns false if the limit is reached
    /// first.
    pub(crate) fn honest(&mut self, limit: Duration, done: impl Fn(&TwoEndpoints) -> bool) -> bool {
        let end = self.now() + limit;
        self.interceptor.turn_honest(self.now());
        let is_done = loop {
            for side in 0..2 {
                self.call(side, |app, endpoint, _| app.read(endpoint, usize::MAX));
            }
            if done(self) {
                break true;
            }
            let next = self.simulation.next_event(&self.interceptor);
            let Some(next) = next.filter(|at| *at <= end) else { break false };
            self.run_until(next);
        };
        self.interceptor.turn_hostile();
        is_done
    }

    /// Handles all events up to a time.
    fn run_until(&mut self, end: Time) {
        let (mut at, mut steps) = (self.now(), 0);
        while let Some(has_passed) = self.step(end) {
            steps = if has_passed || self.now() > at { 0 } else { steps + 1 };
            assert!(steps <= INSTANT_STEPS_MAX, "timers expire and time does not go on");
            at = self.now();
        }
    }

    /// Handles the next event up to a time, if there is one. Returns whether the interceptor has let a packet pass.
    fn step(&mut self, end: Time) -> Option<bool> {
        let begun = [0, 1].map(|side| self.begun(side));
        if !self.simulation.step(end, &mut self.interceptor) {
            return None;
        }
        let passed = self.interceptor.take_passed();
        if let Some(packet) = &passed {
            let side = 1 - packet.by;
            self.judge_tags(side, packet, begun[side]);
        }
        self.check();
        Some(passed.is_some())
    }

    /// Returns the number of associations that a host has begun.
    fn begun(&self, side: usize) -> usize {
        self.app(side).deliveries.entries.len()
    }

    /// Notices two associations of a host with the same tag, after a packet before which the host had begun `before`.
    ///
    /// A cookie that arrives after another association with its tag has ended, made from the same cookie or from an INIT that
    /// crossed the peer's, begins an association with the same tags. Neither end can then tell packets of one from those of the
    /// other (RFC 9260 §5.2.4 limits this only by the life of a cookie).
    fn judge_tags(&mut self, side: usize, packet: &Outgoing, before: usize) {
        if self.begun(side) > before {
            self.forged |= self.interceptor.note_tag(side, &packet.packet);
        }
    }

    /// Transmits the consequences of a call, and checks the invariants.
    fn finish_call(&mut self) {
        self.simulation.transmit_touched(&mut self.interceptor);
        self.check();
    }

    /// Checks the invariants.
    fn check(&mut self) {
        for side in 0..2 {
            self.compare_deliveries(side);
            let Node { endpoint, app, .. } = self.simulation.node(side);
            app.check(endpoint);
            self.interceptor.check(side, app.send_buffered_bytes(endpoint));
            if !self.forged {
                app.assert_peer_not_accused();
            }
        }
    }

    /// Checks that a host has received what the other one has sent.
    fn compare_deliveries(&mut self, side: usize) {
        let mut own = std::mem::take(&mut self.simulation.node_mut(side).app.deliveries);
        if self.forged {
            own.forget_fresh();
        } else {
            own.compare(&[&self.app(1 - side).deliveries]);
        }
        self.simulation.node_mut(side).app.deliveries = own;
    }
}
