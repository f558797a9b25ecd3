//! Pops of modules with many messages, which go on in steps (`streamio(7)` I_POP).

use bytes::Bytes;
use streams::{Executive, Interest, Message, Module, ModuleInfo, PopError, Q, QueueInfo, RecvInfo};

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
