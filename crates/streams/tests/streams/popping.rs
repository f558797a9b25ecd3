//! Pops of modules with many messages, which go on in steps (`streamio(7)` I_POP).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use streams::drivers::Nuls;
use streams::{
    Executive, Interest, Message, Module, ModuleInfo, PopError, Q, QUEUED_MESSAGES_MAX, QueueInfo, RecvInfo,
};

use crate::support::{Noting, ONE, Rig, epoch};

/// More than a few steps move.
const MANY: usize = 1000;
/// The most that a step moves.
const STEP_MAX: usize = 256;

/// Keeps all messages.
struct Hoarding;

impl Module for Hoarding {
    fn name(&self) -> &str {
        "hoarding"
    }
    fn info(&self) -> ModuleInfo {
        let served = QueueInfo::served(1 << 20, 1 << 10);
        ModuleInfo { read: served, write: served }
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        q.putq(m);
    }
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        q.putq(m);
    }
    fn wsrv(&mut self, _q: &mut Q<'_>) {}
    fn rsrv(&mut self, _q: &mut Q<'_>) {}
}

fn up(rig: &mut Rig, number: usize) {
    let data = Bytes::from(number.to_string());
    rig.up(Message::optdata_ind(ONE, RecvInfo::default(), data.into()));
}

/// Returns a stream on which a module has these messages in each direction.
fn with_messages(count: usize) -> Rig {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(Hoarding)).unwrap();
    for number in 0..count {
        rig.write(&number.to_string()).unwrap();
        up(&mut rig, number);
    }
    rig.run_all();
    assert!(rig.received().is_empty() && rig.read(100).is_none());
    rig
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[test]
fn many_messages_of_a_popped_module_go_on_in_steps_before_later_ones() {
    let mut rig = with_messages(MANY);
    assert_eq!(rig.executive.pop(rig.s).unwrap().name(), "hoarding");
    assert_eq!(rig.received().len() + rig.read_all().len(), 0, "the pop itself moves none");
    rig.write(&MANY.to_string()).unwrap();
    up(&mut rig, MANY);
    let (mut read, mut steps) = (Vec::new(), 0);
    while rig.received().len() + read.len() < 2 * (MANY + 1) {
        let before = rig.received().len();
        rig.executive.at(epoch()).run();
        let passed_up = rig.read_all();
        assert!(rig.received().len() - before + passed_up.len() <= STEP_MAX);
        read.extend(passed_up);
        steps += 1;
        assert!(steps < 20, "it goes on");
    }
    assert!(steps >= 2 * MANY / STEP_MAX);
    assert_eq!((rig.received(), read), (numbers(MANY + 1), numbers(MANY + 1)));
    // Nothing is left in the way of later messages.
    rig.run_all();
    rig.write("past").unwrap();
    assert_eq!(rig.received().last().unwrap(), "past");
    up(&mut rig, 7);
    assert_eq!(rig.read_all(), ["7"]);
}

#[test]
fn few_messages_go_on_at_once() {
    let mut rig = with_messages(32);
    rig.executive.pop(rig.s).unwrap();
    assert_eq!((rig.received(), rig.read_all()), (numbers(32), numbers(32)));
}

#[test]
fn a_popped_module_is_gone_for_all_commands_while_its_messages_go_on() {
    let mut rig = with_messages(MANY);
    rig.executive.pop(rig.s).unwrap();
    assert!(rig.executive.modules(rig.s).is_empty());
    assert_eq!((rig.executive.look(rig.s), rig.executive.places(rig.s)), (None, 1));
    assert!(!rig.executive.find(rig.s, "hoarding"));
    assert!(rig.executive.describe(rig.s).unwrap().modules.is_empty());
    assert!(matches!(rig.executive.pop(rig.s), Err(PopError::NoModule)));
    assert_eq!(rig.executive.anchor(rig.s), Err(PopError::NoModule));
}

#[test]
fn modules_that_come_and_go_meanwhile_keep_the_order() {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(Hoarding)).unwrap();
    (0..100).for_each(|number| rig.write(&number.to_string()).unwrap());
    // The messages of the upper one are later.
    rig.state().busy = true;
    rig.executive.pop(rig.s).unwrap();
    let upper = Noting { name: "upper", info: ModuleInfo::default(), diary: rig.diary() };
    rig.executive.push(rig.s, Box::new(upper)).unwrap();
    rig.executive.push(rig.s, Box::new(Hoarding)).unwrap();
    (100..200).for_each(|number| rig.write(&number.to_string()).unwrap());
    rig.executive.pop(rig.s).unwrap();
    rig.write("200").unwrap();
    assert_eq!(rig.executive.modules(rig.s), ["upper"]);
    // It is popped from below the messages of the other one.
    rig.run_all();
    rig.executive.anchor(rig.s).unwrap();
    assert!(matches!(rig.executive.pop(rig.s), Err(PopError::Anchored)));
    assert_eq!(rig.executive.pop_any(rig.s).unwrap().name(), "upper");
    rig.release();
    rig.write("201").unwrap();
    assert_eq!(rig.received(), numbers(202));
}

#[test]
fn the_places_of_popped_modules_are_free_once_their_messages_have_gone_on() {
    let mut rig = Rig::new();
    for _ in 0..=Executive::MODULES_MAX {
        rig.executive.push(rig.s, Box::new(Hoarding)).unwrap();
        (0..65).for_each(|number| rig.write(&number.to_string()).unwrap());
        rig.executive.pop(rig.s).unwrap();
        rig.run_all();
    }
    assert_eq!(rig.received().len(), 65 * (Executive::MODULES_MAX + 1));
}

#[test]
fn a_close_waits_for_the_messages_of_a_popped_module() {
    let mut rig = with_messages(MANY);
    rig.executive.pop(rig.s).unwrap();
    rig.executive.at(epoch()).close(rig.s);
    assert!(rig.received().is_empty());
    for _ in 0..20 {
        rig.executive.at(epoch()).run();
    }
    assert_eq!(rig.received(), numbers(MANY));
    assert!(!rig.executive.is_busy(), "the stream has ended");
}

#[test]
fn the_window_of_what_a_popped_module_has_left_returns_when_the_stream_ends() {
    let mut rig = with_messages(MANY);
    rig.executive.pop(rig.s).unwrap();
    rig.executive.at(epoch()).close_now(rig.s);
    let returned: usize = rig.state().consumed.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(returned, numbers(MANY).iter().map(String::len).sum::<usize>());
}

/// Returns a stream on which two modules have as many messages each on their way down.
fn with_messages_in_two(count: usize) -> Rig {
    let mut rig = with_messages(count);
    rig.executive.push(rig.s, Box::new(Hoarding)).unwrap();
    (count..2 * count).for_each(|number| rig.write(&number.to_string()).unwrap());
    rig.run_all();
    rig
}

#[test]
fn what_modules_hold_at_the_end_of_the_close_time_goes_down_in_steps() {
    for close_time in [Duration::ZERO, Duration::from_secs(1)] {
        let mut rig = with_messages_in_two(MANY);
        rig.executive.set_close_time(rig.s, close_time);
        rig.executive.at(epoch()).close(rig.s);
        let start = Instant::now();
        rig.executive.timeout(start);
        assert!(rig.executive.is_busy(), "the timer begins to run");
        let (mut steps, end) = (0, start + close_time);
        while rig.executive.is_busy() {
            let before = rig.received().len();
            rig.executive.timeout(end);
            assert!(rig.received().len() - before <= STEP_MAX);
            steps += 1;
            assert!(steps < 2 * MANY, "it goes on");
        }
        // Those of the upper module pass two places.
        assert!(steps >= 3 * MANY / STEP_MAX);
        assert_eq!(rig.received(), numbers(2 * MANY));
    }
}

/// Counts the messages that come down, and keeps them.
struct Counting(Arc<AtomicUsize>);

impl Module for Counting {
    fn name(&self) -> &str {
        "counting"
    }
    fn info(&self) -> ModuleInfo {
        Hoarding.info()
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        self.0.fetch_add(1, Relaxed);
        q.putq(m);
    }
    fn wsrv(&mut self, _q: &mut Q<'_>) {}
}

#[test]
fn a_stream_that_ends_at_once_discards_what_modules_hold() {
    let (puts, mut rig) = (Arc::new(AtomicUsize::new(0)), Rig::new());
    rig.executive.push(rig.s, Box::new(Counting(Arc::clone(&puts)))).unwrap();
    rig.write("below").unwrap();
    rig.executive.push(rig.s, Box::new(Hoarding)).unwrap();
    (0..MANY).for_each(|number| rig.write(&number.to_string()).unwrap());
    rig.run_all();
    rig.executive.at(epoch()).close_now(rig.s);
    assert_eq!((puts.load(Relaxed), rig.received().len()), (1, 0), "no module works on it");
}

#[test]
fn closed_streams_that_have_failed_end_in_steps_if_their_modules_hold_much() {
    const STREAMS: usize = 16;
    let mut executive = Executive::new(epoch());
    let driver = executive.add_driver("nuls", Box::new(Nuls));
    let streams: Vec<_> = (0..STREAMS).map(|_| executive.open(driver).unwrap()).collect();
    for &s in &streams {
        executive.push(s, Box::new(Counting(Arc::default()))).unwrap();
        for _ in 0..QUEUED_MESSAGES_MAX {
            executive.at(epoch()).putmsg(s, Message::data(b"x".to_vec())).unwrap();
        }
        executive.at(epoch()).close(s);
    }
    executive.at(epoch()).with_driver(driver, |_: &mut Nuls, cx| streams.iter().for_each(|&s| cx.hangup(s)));
    let mut left = STREAMS;
    while left > 0 {
        executive.at(epoch()).run();
        let ended = left - executive.streams().count();
        assert!((1..=STREAMS / 4).contains(&ended), "{ended} in one step");
        left -= ended;
    }
}

/// Keeps all messages on their way up, and has no queue downward.
struct HoardingUp;

impl Module for HoardingUp {
    fn name(&self) -> &str {
        "hoarding up"
    }
    fn info(&self) -> ModuleInfo {
        ModuleInfo { read: QueueInfo::served(1 << 20, 1 << 10), write: QueueInfo::PASS }
    }
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        q.putq(m);
    }
    fn rsrv(&mut self, _q: &mut Q<'_>) {}
}

#[test]
fn a_writer_that_waits_behind_a_popped_module_is_woken() {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(HoardingUp)).unwrap();
    (0..100).for_each(|number| up(&mut rig, number));
    rig.state().busy = true;
    while rig.write(&"x".repeat(4096)).is_ok() {}
    rig.executive.want(rig.s, Interest::WRITABLE);
    rig.executive.pop(rig.s).unwrap();
    // The reader has paused: what the module has left cannot go up.
    rig.executive.set_hiwat(rig.s, 1);
    rig.executive.set_lowat(rig.s, 0);
    rig.run_all();
    let mut woken = Vec::new();
    rig.executive.take_wakeups(&mut woken);
    woken.clear();
    rig.executive.want(rig.s, Interest::WRITABLE);
    rig.release();
    rig.executive.take_wakeups(&mut woken);
    assert_eq!((woken, rig.executive.places(rig.s)), (vec![rig.s], 1));
}
