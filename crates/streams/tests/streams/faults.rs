//! Tests that a module which panics harms only its own stream (Swiftwater's own; SVR4.2 DDI/DKI `messages(D5)` M_ERROR).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use streams::modules::BufMod;
use streams::{
    Errno, Flush, Kind, Message, Module, ModuleInfo, Primitive, PushError, Q, QueueInfo, ReadError, Signal,
    WriteError,
};

use crate::support::{Device, ONE, Rig, epoch};

/// Panics in the procedure that its name gives.
struct Faulty(&'static str);

impl Module for Faulty {
    fn name(&self) -> &str {
        self.0
    }
    fn info(&self) -> ModuleInfo {
        let served = QueueInfo::served(1000, 100);
        ModuleInfo { read: served, write: served }
    }
    fn open(&mut self, _q: &mut Q<'_>) -> Result<(), Errno> {
        assert!(self.0 != "open", "a fault for the test");
        Ok(())
    }
    fn close(&mut self, _q: &mut Q<'_>) {
        assert!(self.0 != "close", "a fault for the test");
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        assert!(self.0 != "wput", "a fault for the test");
        q.putq(m);
    }
    fn wsrv(&mut self, q: &mut Q<'_>) {
        assert!(self.0 != "wsrv", "a fault for the test");
        q.pass_queued();
    }
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        q.putnext(m.clone());
        assert!(self.0 != "rput", "a fault for the test");
        q.freemsg(m);
    }
}

fn check_that_others_live(rig: &mut Rig) {
    let faulty = rig.s;
    rig.s = rig.executive.open(rig.driver).unwrap();
    rig.state().received.clear();
    rig.write("other stream").unwrap();
    rig.data_up("answer");
    rig.executive.at(epoch()).run();
    assert_eq!(rig.received(), ["other stream"]);
    assert_eq!(rig.read_all(), ["answer"]);
    rig.executive.at(epoch()).close(faulty);
    assert!(!rig.executive.is_open(faulty));
}

#[test]
fn a_fault_in_a_put_or_service_procedure_makes_the_stream_fail() {
    for name in ["wput", "wsrv", "rput"] {
        let mut rig = Rig::new();
        rig.executive.push(rig.s, Box::new(Faulty(name))).unwrap();
        let _ = rig.write("down");
        rig.data_up("up");
        rig.executive.at(epoch()).run();
        assert_eq!(rig.write("again"), Err(WriteError::Failed(Errno::EIO)), "after {name}");
        assert_eq!(rig.executive.getmsg(rig.s), Err(ReadError::Failed(Errno::EIO)), "after {name}");
        check_that_others_live(&mut rig);
    }
}

#[test]
fn a_module_that_faults_when_it_is_pushed_is_off_again() {
    let mut rig = Rig::new();
    assert_eq!(rig.executive.push(rig.s, Box::new(Faulty("open"))), Err(PushError::Module(Errno::EIO)));
    assert!(rig.executive.modules(rig.s).is_empty());
    check_that_others_live(&mut rig);
}

#[test]
fn a_module_that_faults_when_it_is_popped_is_off_all_the_same() {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(Faulty("close"))).unwrap();
    assert!(rig.executive.pop(rig.s).is_ok());
    assert!(rig.executive.modules(rig.s).is_empty());
    check_that_others_live(&mut rig);
}

#[test]
fn a_fault_of_the_driver_leaves_the_executive_to_its_owner() {
    let mut rig = Rig::new();
    let (driver, s) = (rig.driver, rig.s);
    let fault = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rig.executive.at(epoch()).with_driver(driver, |_: &mut Device, cx| {
            cx.putnext(s, crate::support::data("before the fault"));
            panic!("a fault for the test");
        })
    }));
    assert!(fault.is_err());
    assert_eq!(rig.read_all(), ["before the fault"]);
    check_that_others_live(&mut rig);
}

/// A module that never finishes, in one of several ways.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Endless {
    /// Enables its own service procedure for ever.
    Service,
    /// Sends messages that come down up again.
    Bounce,
    /// Sends a copy up again, and the message on.
    Breed,
    /// Sends messages that come up down again.
    Return,
}

impl Module for Endless {
    fn name(&self) -> &str {
        "endless"
    }
    fn info(&self) -> ModuleInfo {
        let served = QueueInfo::served(1000, 100);
        ModuleInfo {
            write: if *self == Self::Service { served } else { QueueInfo::PASS },
            read: QueueInfo::PASS,
        }
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        match self {
            Self::Service => q.putq(m),
            Self::Bounce => q.qreply(m),
            Self::Breed => {
                q.qreply(m.clone());
                q.putnext(m);
            }
            Self::Return => q.putnext(m),
        }
    }
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        if *self == Self::Return { q.qreply(m) } else { q.putnext(m) }
    }
    fn wsrv(&mut self, q: &mut Q<'_>) {
        q.qenable();
    }
}

#[test]
fn a_module_that_goes_on_for_ever_takes_only_its_own_stream() {
    for module in [Endless::Service, Endless::Bounce, Endless::Breed] {
        let mut rig = Rig::new();
        rig.executive.push(rig.s, Box::new(module)).unwrap();
        rig.executive.push(rig.s, Box::new(Endless::Return)).unwrap();
        let _ = rig.write("round and round");
        rig.run_all();
        assert_eq!(rig.write("again"), Err(WriteError::Failed(Errno::EIO)), "{module:?}");
        check_that_others_live(&mut rig);
    }
}

/// Serves its write queue for ever, and counts what comes up.
struct Restless(Arc<AtomicU32>);

impl Module for Restless {
    fn name(&self) -> &str {
        "restless"
    }
    fn info(&self) -> ModuleInfo {
        ModuleInfo { write: QueueInfo::served(1000, 100), ..ModuleInfo::default() }
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        q.putq(m);
    }
    fn wsrv(&mut self, q: &mut Q<'_>) {
        q.qenable();
    }
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        self.0.fetch_add(1, Relaxed);
        q.pass(m);
    }
}

#[test]
fn a_module_that_was_given_up_is_not_called_again() {
    let mut rig = Rig::new();
    let calls = Arc::default();
    rig.executive.push(rig.s, Box::new(Restless(Arc::clone(&calls)))).unwrap();
    rig.data_up("before");
    rig.write("for ever").unwrap();
    rig.run_all();
    rig.data_up("behind");
    assert_eq!(calls.load(Relaxed), 1);
    assert_eq!(rig.state().consumed, [(ONE, 6)], "the window of what is discarded is given back");
}

/// Makes a thousand messages of one, and keeps them or sends them to the reader.
struct Flooding {
    keeps: bool,
}

impl Module for Flooding {
    fn name(&self) -> &str {
        "flooding"
    }
    fn info(&self) -> ModuleInfo {
        ModuleInfo { read: QueueInfo::served(1000, 100), ..ModuleInfo::default() }
    }
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        for _ in 0..1000 {
            if self.keeps { q.putq(m.dupmsg()) } else { q.putnext(m.dupmsg()) }
        }
    }
    fn rsrv(&mut self, _q: &mut Q<'_>) {}
}

const MEBIBYTE: usize = 1024 * 1024;

/// Sends up messages that a module makes a thousand of, until the stream fails.
fn flood(rig: &mut Rig, m: &Message) {
    let mut put = 0;
    while rig.executive.poll(rig.s).writable && !rig.executive.poll(rig.s).error {
        rig.up(m.dupmsg());
        rig.executive.at(epoch()).run();
        put += 1000;
        assert!(put <= 3 * MEBIBYTE, "a flood of {:?} has no end", m.kind);
    }
    assert_eq!(rig.write("x"), Err(WriteError::Failed(Errno::EIO)));
}

#[test]
fn a_module_that_floods_a_queue_takes_only_its_own_stream() {
    let large = || vec![0; MEBIBYTE].into();
    let answer = || Primitive::InfoReq;
    let large_floods = [
        Message::data(vec![0; MEBIBYTE]),
        Message { band: 7, ..Message::data(vec![0; MEBIBYTE]) },
        Message { data: large(), ..Message::pc_proto(answer()) },
    ];
    let large_floods = large_floods.iter().flat_map(|m| [(m.dupmsg(), false), (m.dupmsg(), true)]);
    let short_floods = [(Message::new(Kind::Sig(Signal(1))), false), (Message::proto(answer()), true)];
    for (m, keeps) in large_floods.chain(short_floods) {
        let mut rig = Rig::new();
        rig.data_up("unread");
        rig.executive.push(rig.s, Box::new(Flooding { keeps })).unwrap();
        flood(&mut rig, &m);
        let held = rig.executive.describe(rig.s).unwrap();
        let bytes = held.head_queue.bytes + held.modules[0].read.bytes;
        assert!(bytes <= 258 * MEBIBYTE, "{bytes} bytes of {:?}", m.kind);
        check_that_others_live(&mut rig);
    }
}

/// Discards messages on their way up, without returning their receive window, in the procedure that its name gives: those whose
/// data begins with `x`.
struct Wasteful(&'static str);

impl Wasteful {
    fn keeps(&self, procedure: &str, m: &Message) -> bool {
        self.0 != procedure || m.data.to_vec().first() != Some(&b'x')
    }
}

impl Module for Wasteful {
    fn name(&self) -> &str {
        self.0
    }
    fn info(&self) -> ModuleInfo {
        let read = if self.0 == "rput" { QueueInfo::PASS } else { QueueInfo::served(1000, 100) };
        ModuleInfo { read, write: QueueInfo::PASS }
    }
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        if self.0 != "rput" {
            q.putq(m);
        } else if self.keeps("rput", &m) {
            q.putnext(m);
        }
    }
    fn rsrv(&mut self, q: &mut Q<'_>) {
        if self.0 == "timeout" && q.queue().front().is_some_and(|m| m.data.to_vec().first() == Some(&b'x')) {
            q.timeout(Duration::from_secs(1));
            return;
        }
        while let Some(m) = q.getq() {
            if self.keeps("rsrv", &m) {
                q.putnext(m);
            }
        }
    }
    fn timeout(&mut self, q: &mut Q<'_>, _timer: streams::TimerId) {
        drop(q.getq());
    }
}

/// DDI/DKI `freemsg(D3)`, and `M_ERROR`: a receive window that is never returned would close for good.
#[test]
fn a_module_that_keeps_the_receive_window_of_what_it_discards_makes_the_stream_fail() {
    let failed = Err(ReadError::Failed(Errno::EIO));
    for name in ["rput", "rsrv", "timeout"] {
        let mut rig = Rig::new();
        rig.data_up("before the module");
        rig.executive.push(rig.s, Box::new(Wasteful(name))).unwrap();
        assert_eq!(rig.read(4), Some(("befo".into(), false)));
        assert_eq!(rig.read_all(), ["re the module"]);
        for _ in 0..3 {
            rig.data_up("kept");
            rig.executive.at(epoch()).run();
            assert_eq!(rig.read_all(), ["kept"], "{name}");
        }
        rig.data_up("xxx");
        rig.executive.at(epoch()).run();
        // A timer starts with the next call that states the time.
        let now = Instant::now();
        rig.executive.at(now);
        rig.executive.timeout(now + Duration::from_secs(2));
        rig.executive.at(epoch()).run();
        assert_eq!(rig.executive.getmsg(rig.s), failed, "after {name}");
        check_that_others_live(&mut rig);
    }
}

/// The reader still finds the data before the discarded message, and the failure comes after that.
#[test]
fn the_window_of_a_discarded_message_is_missed_behind_what_can_be_read() {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(Wasteful("rput"))).unwrap();
    for text in ["one", "xxx", "two"] {
        rig.data_up(text);
    }
    assert_eq!(rig.executive.getmsg(rig.s).unwrap().map(|m| m.data.len()), Some(3));
    assert_eq!(rig.executive.getmsg(rig.s).unwrap().map(|m| m.data.len()), Some(3));
    assert_eq!(rig.executive.getmsg(rig.s), Err(ReadError::Failed(Errno::EIO)));
    assert_eq!(rig.state().consumed, [(ONE, 3), (ONE, 3)]);
}

#[test]
fn modules_that_return_what_they_discard_keep_their_stream() {
    let mut rig = Rig::new();
    rig.data_up("unread");
    streams::modules::add_all(&mut rig.executive);
    let arguments = ["drop=0.5", "way=up", "duplicate=0.5"].map(str::to_owned);
    rig.executive.push_named(rig.s, "filter", &arguments).unwrap();
    rig.executive.push(rig.s, Box::new(BufMod::default())).unwrap();
    for _ in 0..100 {
        rig.data_up("some");
        rig.executive.at(epoch()).run();
        rig.read_all();
    }
    rig.executive.flush_queues(rig.s, Flush::READ);
    for _ in 0..2 {
        rig.executive.pop(rig.s).unwrap();
        rig.data_up("some");
        rig.executive.at(epoch()).run();
        assert_eq!(rig.read_all(), ["some"]);
    }
}
