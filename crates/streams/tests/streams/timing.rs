//! Timers of modules and drivers, and closes that drain (SVR4.2 DDI/DKI `timeout(D3)`, `untimeout(D3)`; `close(2)`).

use std::io;
use std::time::{Duration, Instant};

use streams::{
    Cx, Driver, Errno, Executive, Flush, FlushScope, Kind, Message, Module, ModuleInfo, Open, Q, QueueInfo,
    SERVED_MAX, SendInfo, Side, StreamId, TimerId, Which, testb,
};

use crate::support::{ONE, Rig, data, epoch, text};

const SECOND: Duration = Duration::from_secs(1);

/// Holds each message on its way down for a second.
struct Slow;

impl Module for Slow {
    fn name(&self) -> &str {
        "slow"
    }
    fn info(&self) -> ModuleInfo {
        ModuleInfo { write: QueueInfo::served(1000, 100), ..ModuleInfo::default() }
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        q.noenable();
        q.putq(m);
        q.timeout(SECOND);
    }
    fn timeout(&mut self, q: &mut Q<'_>, _timer: TimerId) {
        assert_eq!(q.side(), Side::Write);
        if let Some(m) = q.getq() {
            q.putnext(m);
        }
    }
}

fn slow() -> (Rig, Instant) {
    let mut rig = Rig::new();
    let start = Instant::now();
    rig.executive.timeout(start);
    rig.executive.push(rig.s, Box::new(Slow)).unwrap();
    (rig, start)
}

#[test]
fn a_module_is_called_when_its_timer_ends() {
    let (mut rig, start) = slow();
    rig.write("x").unwrap();
    rig.executive.timeout(start);
    rig.executive.timeout(start + SECOND / 2);
    assert!(rig.received().is_empty());
    rig.executive.timeout(start + SECOND);
    assert_eq!(rig.received(), ["x"]);
}

/// Returns the data of the messages that have reached the driver, as numbers.
fn numbers(rig: &Rig) -> Vec<u32> {
    rig.received().iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn timers_that_are_due_together_leave_time_for_other_work() {
    const TIMERS: u32 = 300;
    const EXPIRED_MAX: usize = 64;
    let (mut rig, start) = slow();
    for i in 0..TIMERS {
        rig.write(&i.to_string()).unwrap();
    }
    rig.executive.timeout(start);
    let mut steps = 0;
    let due = start + SECOND;
    while rig.executive.deadline().is_some_and(|at| at <= due) {
        let before = rig.received().len();
        rig.executive.timeout(due);
        let expired = rig.received().len() - before;
        assert!((1..=EXPIRED_MAX).contains(&expired), "{expired} in one step");
        steps += 1;
    }
    assert_eq!(numbers(&rig), (0..TIMERS).collect::<Vec<_>>(), "none is lost, and the order is kept");
    assert_eq!(steps, TIMERS as usize / EXPIRED_MAX + 1);
}

/// Sends all that it holds when its timer expires.
struct Bursting;

impl Module for Bursting {
    fn name(&self) -> &str {
        "bursting"
    }
    fn info(&self) -> ModuleInfo {
        ModuleInfo { write: QueueInfo::served(10_000, 100), ..ModuleInfo::default() }
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        q.noenable();
        if q.queue().is_empty() {
            q.timeout(SECOND);
        }
        q.putq(m);
    }
    fn timeout(&mut self, q: &mut Q<'_>, _timer: TimerId) {
        q.pass_queued();
    }
}

#[test]
fn timers_that_send_many_messages_leave_time_for_other_work() {
    const STREAMS: usize = 20;
    const OF_EACH: usize = 100;
    let mut rig = Rig::new();
    let start = Instant::now();
    rig.executive.timeout(start);
    let streams: Vec<StreamId> = (0..STREAMS).map(|_| rig.executive.open(rig.driver).unwrap()).collect();
    for s in streams {
        rig.executive.push(s, Box::new(Bursting)).unwrap();
        for _ in 0..OF_EACH {
            rig.executive.write(s, Which::Only, SendInfo::default(), b"x", epoch).unwrap();
        }
    }
    rig.executive.timeout(start);
    let due = start + SECOND;
    while rig.executive.deadline().is_some_and(|at| at <= due) {
        let before = rig.received().len();
        rig.executive.timeout(due);
        let sent = rig.received().len() - before;
        assert!(sent <= 256 + SERVED_MAX, "{sent} by timers in one step");
        let before = rig.received().len();
        rig.executive.at(due).run();
        let sent = rig.received().len() - before;
        assert!(sent <= 256 + SERVED_MAX, "{sent} by service procedures in one step");
    }
    assert_eq!(rig.received().len(), STREAMS * OF_EACH);
}

#[test]
fn a_popped_module_is_not_called() {
    let (mut rig, start) = slow();
    rig.write("x").unwrap();
    rig.executive.timeout(start);
    rig.executive.pop(rig.s).unwrap();
    assert_eq!(rig.received(), ["x"], "what it held goes on");
    rig.executive.push(rig.s, Box::new(Slow)).unwrap();
    rig.write("y").unwrap();
    rig.executive.timeout(start + SECOND);
    assert_eq!(rig.received(), ["x"], "the timer was the first module's; the second has its own from now on");
    rig.executive.timeout(start + 2 * SECOND);
    assert_eq!(rig.received(), ["x", "y"]);
}

#[test]
fn a_close_waits_until_what_was_written_has_gone_down() {
    let (mut rig, start) = slow();
    rig.write("x").unwrap();
    rig.executive.at(epoch()).close(rig.s);
    assert!(!rig.executive.is_open(rig.s), "for its users it is closed at once");
    assert!(rig.write("y").is_err());
    assert!(rig.executive.is_busy(), "and something is left to do");
    rig.executive.timeout(start);
    rig.executive.timeout(start + SECOND);
    rig.executive.at(epoch()).run();
    assert_eq!(rig.received(), ["x"]);
    assert_eq!(rig.take_diary().last().unwrap(), "close");
    assert!(!rig.executive.is_busy());
}

#[test]
fn a_close_waits_no_longer_than_its_time() {
    let mut rig = Rig::new();
    let start = Instant::now();
    rig.state().busy = true;
    rig.write("stuck").unwrap();
    rig.executive.set_close_time(rig.s, 3 * SECOND);
    assert_eq!(rig.executive.close_time(rig.s), Some(3 * SECOND));
    rig.executive.at(epoch()).close(rig.s);
    rig.executive.timeout(start);
    rig.take_diary();
    rig.executive.timeout(start + 2 * SECOND);
    assert!(rig.executive.is_busy());
    rig.executive.timeout(start + 3 * SECOND);
    assert!(!rig.executive.is_busy());
    assert_eq!(rig.take_diary().last().unwrap(), "close");
}

/// A stream whose users have closed it, and whose module holds a message for a second.
fn closing() -> (Rig, Instant) {
    let (mut rig, start) = slow();
    rig.write("x").unwrap();
    rig.executive.at(epoch()).close(rig.s);
    rig.executive.timeout(start);
    rig.run_all();
    assert!(rig.executive.is_busy());
    rig.take_diary();
    (rig, start)
}

#[test]
fn a_close_ends_when_the_driver_has_taken_its_last_message() {
    let mut rig = Rig::new();
    rig.state().busy = true;
    rig.write("x").unwrap();
    rig.executive.at(epoch()).close(rig.s);
    rig.run_all();
    assert!(rig.executive.is_busy());
    rig.release();
    assert_eq!(rig.received(), ["x"]);
    assert!(!rig.executive.is_busy());
}

#[test]
fn a_close_ends_with_a_failure_of_its_stream() {
    let failures = [Kind::Hangup, Kind::Error { read: None, write: Some(Errno::EIO) }];
    for failure in failures {
        let (mut rig, _) = closing();
        rig.up(Message::new(failure));
        rig.executive.at(epoch()).run();
        assert_eq!(rig.take_diary(), ["close"]);
        assert!(!rig.executive.is_busy());
    }
}

#[test]
fn a_close_ends_when_what_it_waits_for_is_discarded() {
    let (mut rig, _) = closing();
    rig.up(Message::new(Kind::Flush(Flush { write: true, ..Flush::READ })));
    rig.executive.at(epoch()).run();
    assert_eq!(rig.take_diary(), ["close"]);
    assert_eq!(rig.received(), [""; 0]);
    assert!(!rig.executive.is_busy());
}

#[test]
fn a_close_ends_when_the_module_that_holds_its_messages_is_popped() {
    let (mut rig, _) = closing();
    rig.executive.pop_any(rig.s).unwrap();
    rig.executive.at(epoch()).run();
    assert_eq!(rig.received(), ["x"]);
    assert_eq!(rig.take_diary().last().unwrap(), "close");
    assert!(!rig.executive.is_busy());
}

#[test]
fn messages_up_to_a_closing_stream_return_their_credit() {
    let mut rig = Rig::new();
    rig.state().busy = true;
    rig.write("stuck").unwrap();
    rig.data_up("unread");
    rig.executive.at(epoch()).close(rig.s);
    rig.data_up("later");
    rig.executive.at(epoch()).run();
    assert_eq!(rig.state().consumed, [(ONE, 6), (ONE, 5)]);
}

#[test]
fn a_stopped_timer_does_not_end() {
    struct Stopping;
    impl Module for Stopping {
        fn name(&self) -> &str {
            "stopping"
        }
        fn wput(&mut self, q: &mut Q<'_>, m: Message) {
            let timer = q.timeout(SECOND);
            assert!(q.untimeout(timer));
            assert!(!q.untimeout(timer), "it is stopped");
            q.putnext(m);
        }
        fn timeout(&mut self, _q: &mut Q<'_>, timer: TimerId) {
            panic!("{timer:?} was stopped");
        }
    }
    let mut rig = Rig::new();
    let start = Instant::now();
    rig.executive.push(rig.s, Box::new(Stopping)).unwrap();
    rig.write("x").unwrap();
    rig.executive.timeout(start);
    rig.executive.timeout(start + 10 * SECOND);
    assert_eq!(rig.state().received.iter().map(text).collect::<Vec<_>>(), ["x"]);
    rig.write("y").unwrap();
}

/// Notes the times of its calls.
struct Clock(Vec<Instant>);

impl Clock {
    fn note(&mut self, cx: &Cx<'_>, now: Instant) {
        assert_eq!(cx.now(), now);
        self.0.push(now);
    }
}

impl Driver for Clock {
    fn open(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _open: &Open) -> Result<(), Errno> {
        Ok(())
    }
    fn close(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}
    fn put(&mut self, cx: &mut Cx<'_>, _s: StreamId, _m: Message) {
        self.0.push(cx.now());
    }
    fn receive(&mut self, cx: &mut Cx<'_>, now: Instant) -> io::Result<bool> {
        self.note(cx, now);
        Ok(false)
    }
    fn deadline(&self) -> Option<Instant> {
        self.0.first().copied()
    }
    fn timeout(&mut self, cx: &mut Cx<'_>, now: Instant) {
        self.note(cx, now);
    }
    fn flush(&mut self, cx: &mut Cx<'_>, now: Instant, _scope: FlushScope) {
        self.note(cx, now);
    }
}

/// Two threads may take the time in one order and enter the perimeter in the other.
#[test]
fn the_time_of_a_driver_never_goes_back() {
    let start = Instant::now();
    let mut executive = Executive::new(start);
    let driver = executive.add_driver("clock", Box::new(Clock(Vec::new())));
    executive.receive(start + SECOND).unwrap();
    executive.receive(start).unwrap();
    executive.flush(start, FlushScope::All);
    executive.timeout(start);
    let times = executive.driver_state(driver, |clock: &mut Clock| clock.0.clone()).unwrap();
    assert_eq!(times, [start + SECOND; 4]);
}

#[test]
fn a_put_has_the_time_of_its_call_and_a_write_asks_for_the_time_of_a_lifetime_alone() {
    let start = Instant::now();
    let mut executive = Executive::new(start);
    let driver = executive.add_driver("clock", Box::new(Clock(Vec::new())));
    let s = executive.open(driver).unwrap();
    executive.at(start + SECOND).putmsg(s, data("put")).unwrap();
    let mortal = SendInfo { lifetime: Some(SECOND.into()), ..SendInfo::default() };
    executive.write(s, Which::Only, mortal, b"copied", || start + 2 * SECOND).unwrap();
    executive.write_bytes(s, Which::Only, mortal, "block".into(), || start + 3 * SECOND).unwrap();
    let never = || -> Instant { panic!("the message has no lifetime") };
    executive.write(s, Which::Only, SendInfo::default(), b"copied", never).unwrap();
    executive.write_bytes(s, Which::Only, SendInfo::default(), "block".into(), never).unwrap();
    let times = executive.driver_state(driver, |clock: &mut Clock| clock.0.clone()).unwrap();
    assert_eq!(times, [1, 2, 3, 3, 3].map(|seconds| start + seconds * SECOND));
}

/// Asks for memory with each message, and sends it on when it is there (`bufcall(D3)`, `unbufcall(D3)`).
struct Wanting;

impl Module for Wanting {
    fn name(&self) -> &str {
        "wanting"
    }
    fn info(&self) -> ModuleInfo {
        ModuleInfo { write: QueueInfo::served(1000, 100), ..ModuleInfo::default() }
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        assert!(testb(m.msgdsize()) && !testb(usize::MAX));
        q.noenable();
        q.putq(m);
        let given_up = q.bufcall(100);
        assert!(q.unbufcall(given_up));
        q.bufcall(100);
    }
    fn timeout(&mut self, q: &mut Q<'_>, call: TimerId) {
        assert!(!q.unbufcall(call), "it has come");
        if let Some(m) = q.getq() {
            q.putnext(m);
        }
    }
}

#[test]
fn who_asks_for_memory_is_called_in_the_next_turn() {
    let mut rig = Rig::new();
    let start = Instant::now();
    rig.executive.timeout(start);
    rig.executive.push(rig.s, Box::new(Wanting)).unwrap();
    rig.write("x").unwrap();
    rig.write("y").unwrap();
    assert!(rig.received().is_empty(), "the call is not made at once");
    rig.executive.timeout(start);
    assert_eq!(rig.received(), ["x", "y"]);
}
