//! Tests that a module which panics harms only its own stream (Swiftwater's own; SVR4.2 DDI/DKI `messages(D5)` M_ERROR).

use crate::support::{Device, Rig};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use streams::{Errno, Message, Module, ModuleInfo, PushError, Q, QueueInfo, ReadError, WriteError};

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
    rig.executive.run();
    assert_eq!(rig.received(), ["other stream"]);
    assert_eq!(rig.read_all(), ["answer"]);
    rig.executive.close(faulty);
    assert!(!rig.executive.is_open(faulty));
}

#[test]
fn a_fault_in_a_put_or_service_procedure_makes_the_stream_fail() {
    for name in ["wput", "wsrv", "rput"] {
        let mut rig = Rig::new();
        rig.executive.push(rig.s, Box::new(Faulty(name))).unwrap();
        let _ = rig.write("down");
        rig.data_up("up");
        rig.executive.run();
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
        rig.executive.with_driver(driver, |_: &mut Device, cx| {
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
        rig.executive.run();
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
    rig.executive.run();
    rig.data_up("behind");
    assert_eq!(calls.load(Relaxed), 1);
    assert_eq!(rig.state().consumed, [(1, 6)], "the window of what is discarded is given back");
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

#[test]
fn a_module_that_floods_a_queue_takes_only_its_own_stream() {
    const MEBIBYTE: usize = 1024 * 1024;
    for keeps in [false, true] {
        let mut rig = Rig::new();
        rig.executive.push(rig.s, Box::new(Flooding { keeps })).unwrap();
        rig.up(Message::data(vec![0; MEBIBYTE]));
        assert_eq!(rig.write("x"), Err(WriteError::Failed(Errno::EIO)));
        let held = rig.executive.nread(rig.s).unwrap().0;
        assert!(held <= 257, "{held} mebibytes with the head");
        check_that_others_live(&mut rig);
    }
}
