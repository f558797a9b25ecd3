//! Pushing and popping while data flows (`streamio(7)` I_PUSH, I_POP, I_LIST; SVR4.2 DDI/DKI `open(D2)`, `close(D2)`).

use std::time::Instant;

use streams::{
    DriverInfo, Errno, Executive, Flush, Interest, Message, Module, ModuleInfo, PopError, PushError, Q,
    QueueInfo, SendInfo, Which,
};

use crate::support::{Noting, ONE, Rig, data, epoch};

fn noting(rig: &Rig, name: &'static str, info: ModuleInfo) -> Box<Noting> {
    Box::new(Noting { name, info, diary: rig.diary() })
}

#[test]
fn messages_pass_modules_in_order_both_ways() {
    let mut rig = Rig::new();
    for name in ["lower", "upper"] {
        let module = noting(&rig, name, ModuleInfo::default());
        rig.executive.push(rig.s, module).unwrap();
    }
    assert_eq!(rig.executive.modules(rig.s), ["upper", "lower"]);
    rig.write("d").unwrap();
    rig.data_up("u");
    assert_eq!(
        rig.take_diary(),
        ["lower open", "upper open", "upper wput d", "lower wput d", "lower rput u", "upper rput u"]
    );
    assert_eq!(rig.executive.pop(rig.s).unwrap().name(), "upper");
    rig.write("e").unwrap();
    assert_eq!(rig.take_diary(), ["upper close", "lower wput e"]);
    assert_eq!(rig.received(), ["d", "e"]);
}

/// Keeps all messages; discards them when it is popped, if told to.
struct Hoarding {
    flush_on_close: bool,
}

impl Module for Hoarding {
    fn name(&self) -> &str {
        "hoarding"
    }
    fn info(&self) -> ModuleInfo {
        let served = QueueInfo::served(2, 1);
        ModuleInfo { read: served, write: served }
    }
    fn close(&mut self, q: &mut Q<'_>) {
        if self.flush_on_close {
            q.flushq(&Flush::BOTH);
            q.other().flushq(&Flush::BOTH);
        }
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

#[test]
fn messages_of_a_popped_module_go_on_in_order() {
    let mut rig = Rig::new();
    let lower = noting(&rig, "lower", ModuleInfo::default());
    rig.executive.push(rig.s, lower).unwrap();
    rig.executive.push(rig.s, Box::new(Hoarding { flush_on_close: false })).unwrap();
    for text in ["d1", "d2"] {
        let _ = rig.write(text);
    }
    for text in ["u1", "u2"] {
        rig.data_up(text);
    }
    rig.executive.at(epoch()).run();
    assert_eq!(rig.read(100), None);
    rig.take_diary();
    rig.executive.pop(rig.s).unwrap();
    rig.data_up("u3");
    rig.write("d3").unwrap();
    assert_eq!(rig.received(), ["d1", "d3"], "the second write was held back");
    assert_eq!(rig.read_all(), ["u1", "u2", "u3"]);
    assert_eq!(rig.take_diary(), ["lower wput d1", "lower rput u3", "lower wput d3"]);
}

#[test]
fn a_popped_module_may_throw_away_what_it_has() {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(Hoarding { flush_on_close: true })).unwrap();
    rig.write("down").unwrap();
    rig.data_up("up");
    rig.executive.pop(rig.s).unwrap();
    assert!(rig.received().is_empty());
    assert_eq!(rig.read(100), None);
    assert_eq!(rig.state().consumed, [(ONE, 2)], "the window of what was thrown away is given back");
}

#[test]
fn popping_a_full_module_lets_both_sides_go_on() {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(Hoarding { flush_on_close: false })).unwrap();
    rig.write("full").unwrap();
    assert!(rig.write("x").is_err());
    rig.data_up("full");
    rig.device(|cx, s| assert!(!cx.canputnext(s, 0)));
    rig.executive.want(rig.s, Interest::WRITABLE);
    rig.executive.at(epoch()).run();
    rig.take_diary();
    assert!(!rig.executive.has_wakeups());
    rig.executive.pop(rig.s).unwrap();
    rig.executive.at(epoch()).run();
    assert!(rig.executive.has_wakeups());
    assert_eq!(rig.take_diary(), ["read service 0"]);
}

/// Refuses to be pushed.
struct Refusing;

impl Module for Refusing {
    fn name(&self) -> &str {
        "refusing"
    }
    fn open(&mut self, _q: &mut Q<'_>) -> Result<(), Errno> {
        Err(Errno::EBUSY)
    }
}

#[test]
fn a_module_may_refuse() {
    let mut rig = Rig::new();
    assert_eq!(rig.executive.push(rig.s, Box::new(Refusing)), Err(PushError::Module(Errno::EBUSY)));
    assert!(rig.executive.modules(rig.s).is_empty());
    assert_eq!(rig.executive.pop(rig.s).err(), Some(PopError::NoModule));
}

#[test]
fn a_stream_has_a_limit_of_modules() {
    let mut rig = Rig::new();
    for _ in 0..Executive::MODULES_MAX {
        let module = noting(&rig, "m", ModuleInfo::default());
        rig.executive.push(rig.s, module).unwrap();
    }
    let module = noting(&rig, "m", ModuleInfo::default());
    assert_eq!(rig.executive.push(rig.s, module), Err(PushError::TooMany));
    rig.write("through all of them").unwrap();
    rig.up(data("and back"));
    assert_eq!(rig.received(), ["through all of them"]);
    assert_eq!(rig.read_all(), ["and back"]);
}

#[test]
fn messages_written_before_a_push_do_not_pass_the_module() {
    let mut rig = Rig::new();
    let more = SendInfo { more: true, ..SendInfo::default() };
    rig.executive.write(rig.s, Which::Only, more, b"before", Instant::now).unwrap();
    let module = noting(&rig, "m", ModuleInfo::default());
    rig.executive.push(rig.s, module).unwrap();
    rig.write("after").unwrap();
    assert_eq!(rig.received(), ["before", "after"]);
    assert_eq!(rig.take_diary(), ["m open", "m wput after"]);
}

#[test]
fn messages_that_wait_for_the_reader_find_room_in_a_new_module() {
    let served = QueueInfo::served(10, 5);
    let info = ModuleInfo { read: served, write: served };
    let mut rig = Rig::with_info(DriverInfo { head: QueueInfo::served(1, 0), ..Rig::INFO });
    let lower = noting(&rig, "lower", info);
    rig.executive.push(rig.s, lower).unwrap();
    for text in ["1", "2"] {
        rig.data_up(text);
    }
    rig.executive.at(epoch()).run();
    rig.take_diary();
    let upper = noting(&rig, "upper", info);
    rig.executive.push(rig.s, upper).unwrap();
    rig.executive.at(epoch()).run();
    assert!(rig.take_diary().contains(&"upper rput 2".to_owned()));
    assert_eq!(rig.read(1).unwrap().0, "1");
    rig.executive.at(epoch()).run();
    assert_eq!(rig.read(1).unwrap().0, "2");
}
