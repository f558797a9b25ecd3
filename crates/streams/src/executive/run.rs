//! Delivery of posted messages, and service procedures.

use crate::Executive;
use crate::driver::Cx;
use crate::identifiers::{Place, QueueRef, Side, StreamId};
use crate::memory::Notify;
use crate::message::{Credit, Message};
use crate::scheduler::DriverCall;
use crate::shares::PutOff;
use crate::stream::Streams;

/// Number of enabled service procedures that a step looks at, also if it puts them off.
const LOOKED_AT_MAX: usize = 1024;

impl Executive {
    /// See [`At::run`](super::At::run).
    pub(super) fn run(&mut self) {
        self.deliver_posts();
        self.streams.scheduler.begin_step();
        let turn = self.streams.begin_turn();
        for looked_at in 1.. {
            let Some((work, was_put_off)) = self.streams.scheduler.next_work() else {
                if self.streams.enable_next_due() {
                    continue;
                }
                self.streams.scheduler.set_behind(false);
                break;
            };
            match work {
                PutOff::Service(at) => self.serve(at, turn, was_put_off),
                PutOff::Timer(timer) => self.expire(timer),
            }
            if self.streams.scheduler.is_step_over() || looked_at >= LOOKED_AT_MAX {
                let is_behind = self.streams.scheduler.is_runnable();
                self.streams.scheduler.set_behind(is_behind);
                break;
            }
        }
        self.end_drained();
    }

    /// Begins a round: the owner has done other work since the last one. From the first round on, modules on streams that share a
    /// memory ([`Cx::set_memory`]) do a bounded part of their work in a round, and the rest in later ones: until then,
    /// [`Executive::deadline`] has passed.
    pub fn begin_round(&mut self) {
        self.streams.scheduler.begin_round();
    }

    /// Runs an enabled service procedure, or puts it off to a later round.
    fn serve(&mut self, at: QueueRef, turn: u32, was_put_off: bool) {
        let memory = match at.place {
            Place::Head | Place::BelowHead => self.streams.memory_of_link(at.stream),
            _ => self.streams.memory_of_modules(at.stream),
        };
        if !was_put_off
            && let Some(memory) = &memory
            && self.streams.scheduler.put_off(memory, PutOff::Service(at))
        {
            return;
        }
        let before = self.streams.scheduler.work();
        self.streams.scheduler.count_work();
        self.run_service(at, turn);
        self.streams.scheduler.memory.end_try(at);
        self.deliver_posts();
        self.remove_popped(at.stream);
        if let Some(memory) = &memory {
            self.streams.scheduler.count_share(memory, before);
        }
    }

    /// Returns whether a service procedure is enabled.
    #[inline]
    pub fn is_runnable(&self) -> bool {
        self.streams.scheduler.is_runnable()
    }

    /// Sets the function that is called, from any thread, when memory that a module waits for was released: then the owner calls
    /// [`At::run`](super::At::run) soon. The first function that is set stays.
    pub fn set_memory_notify(&mut self, notify: Box<Notify>) {
        self.streams.scheduler.memory.set_owner(notify);
    }

    fn run_service(&mut self, at: QueueRef, turn: u32) {
        let Some((stream, scheduler)) = self.streams.parts(at.stream) else { return };
        match (at.place, at.side) {
            (Place::Driver, side) => {
                if !stream.device_mut().side(side).clear_enabled() {
                    return;
                }
                let driver = &mut self.drivers[stream.driver().0];
                let cx = &mut Cx::new(&mut self.streams);
                match side {
                    Side::Write => driver.service(cx, at.stream),
                    Side::Read => driver.read_service(cx, at.stream),
                }
            }
            (Place::Module(index), side) => {
                stream.run_service(at.stream, usize::from(index), side, turn, scheduler);
            }
            (Place::Head | Place::BelowHead, side) => self.run_head_service(at.stream, side),
        }
    }

    fn run_head_service(&mut self, s: StreamId, side: Side) {
        let multiplexor = self.multiplexor_of(s);
        let Some((stream, _)) = self.streams.parts(s) else { return };
        match (multiplexor, side) {
            (Some(driver), Side::Write) => {
                self.drivers[driver.0].lower_write_service(&mut Cx::new(&mut self.streams), s);
            }
            (Some(driver), Side::Read) => {
                if stream.head.queue.clear_enabled() {
                    self.drivers[driver.0].lower_read_service(&mut Cx::new(&mut self.streams), s);
                }
            }
            // Bytes that do not fit stay in the head, and the next write reports a failure.
            (None, Side::Write) => drop(self.flush_head(s)),
            (None, Side::Read) => {}
        }
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if side == Side::Read && stream.head.queue.relieved() {
            stream.back_enable_below(s, scheduler);
        }
    }

    /// Delivers posted messages until none is on its way.
    #[inline]
    pub(super) fn deliver_posts(&mut self) {
        if !self.streams.scheduler.is_drained() {
            self.deliver_all_posts();
        }
    }

    #[cold]
    fn deliver_all_posts(&mut self) {
        let mut puts_left = Streams::PUTS_MAX;
        loop {
            while let Some((stream, message)) = self.streams.deliver_to_driver(&mut puts_left) {
                // Messages that wait for a driver come before those that reach it now.
                if self.streams.scheduler.has_driver_calls() {
                    self.streams.scheduler.defer(DriverCall::Put { stream, message });
                } else {
                    self.put_to_driver(stream, message, &mut puts_left);
                }
            }
            let Some(call) = self.streams.scheduler.next_driver_call() else { return };
            match call {
                DriverCall::Put { stream, message } => self.put_to_driver(stream, message, &mut puts_left),
                DriverCall::LowerPut { stream, message } => {
                    match self.multiplexor_of(stream) {
                        Some(driver) => {
                            self.drivers[driver.0].lower_put(
                                &mut Cx::new(&mut self.streams),
                                stream,
                                message,
                            );
                        }
                        // The link has ended meanwhile.
                        None => self.put_to_user(stream, message),
                    }
                }
                DriverCall::EndLink { stream, message } => {
                    self.unlink_lower(stream);
                    if let Some(message) = message {
                        self.put_to_user(stream, message);
                    }
                }
                DriverCall::Consumed { stream, credit } => {
                    let Some(open) = self.streams.get_mut(stream) else { continue };
                    open.on_credit_returned(credit.bytes);
                    let driver = open.driver();
                    let cx = &mut Cx::new(&mut self.streams);
                    let Credit { association, bytes, charges } = credit;
                    self.drivers[driver.0].consumed(cx, stream, association, bytes, charges);
                }
            }
        }
    }

    /// Puts a message to the head of a stream, past its modules.
    fn put_to_user(&mut self, s: StreamId, m: Message) {
        if let Some((stream, scheduler)) = self.streams.parts(s) {
            stream.head.put(s, m, scheduler);
        }
    }

    /// Passes a message to the driver of its stream; ends one that modules and driver send to each other for ever.
    fn put_to_driver(&mut self, s: StreamId, m: Message, puts_left: &mut u32) {
        let Some((stream, scheduler)) = self.streams.parts(s) else { return };
        if *puts_left == 0 && stream.has_modules() {
            return stream.break_off(s, scheduler);
        }
        *puts_left = puts_left.saturating_sub(1);
        let driver = &mut self.drivers[stream.driver().0];
        driver.put(&mut Cx::new(&mut self.streams), s, m);
    }
}
