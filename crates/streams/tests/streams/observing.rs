//! Modules that look at messages without moving them (Swiftwater's own; the order is that of `putnext(D3)` of SVR4.2 DDI/DKI).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use streams::modules::{Counter, NullMod};
use streams::{
    Admission, Cx, Driver, DriverInfo, Errno, Executive, Flush, Kind, Message, Module, ModuleInfo, Open, Q,
    QueueInfo, ReadError, Seen, SendInfo, Shown, Side, StreamId, Which, WriteData, WriteError,
};

use crate::support::{Rig, data, epoch, text};

/// Observes all messages but those whose data begins with `p`, which its put procedures get, and panics at `!`. Sends each
/// message that begins with `2` twice on its way.
#[derive(Default)]
struct Observer {
    served: bool,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Observer {
    fn note(&self, what: &str, text: &str) {
        self.seen.lock().unwrap().push(format!("{what} {text}"));
    }

    fn put(&self, q: &mut Q<'_>, m: Message) {
        self.note("put", &text(&m));
        if text(&m).starts_with("p2") {
            q.putnext(m.clone());
        }
        q.pass(m);
    }
}

impl Module for Observer {
    fn name(&self) -> &str {
        "observer"
    }
    fn info(&self) -> ModuleInfo {
        match self.served {
            true => ModuleInfo { read: QueueInfo::served(1000, 100), ..ModuleInfo::default() },
            false => ModuleInfo::default(),
        }
    }
    fn observes(&self) -> bool {
        true
    }
    fn observe(&mut self, side: Side, _now: Instant, m: &Seen<'_>) -> bool {
        let text = m.pieces().map(String::from_utf8_lossy).collect::<String>();
        assert_ne!(text, "!", "a fault for the test");
        if text.starts_with('p') {
            return false;
        }
        self.note(if side == Side::Read { "up" } else { "down" }, &text);
        true
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        self.put(q, m);
    }
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        self.put(q, m);
    }
}

/// Sends each message on its way down as three: `p2`, itself and `last`.
struct Multiplier;

impl Module for Multiplier {
    fn name(&self) -> &str {
        "multiplier"
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        for what in ["p2", "one", "last"] {
            q.putnext(Message { data: what.as_bytes().to_vec().into(), ..m.clone() });
        }
    }
}

fn observed(rig: &mut Rig, served: bool) -> Arc<Mutex<Vec<String>>> {
    let seen = Arc::default();
    rig.executive.push(rig.s, Box::new(Observer { served, seen: Arc::clone(&seen) })).unwrap();
    seen
}

#[test]
fn an_observer_sees_what_passes_both_ways_and_chooses_what_it_handles() {
    let mut rig = Rig::new();
    let seen = observed(&mut rig, false);
    let above = observed(&mut rig, false);
    rig.write("a").unwrap();
    rig.write("put").unwrap();
    rig.data_up("b");
    assert_eq!(rig.received(), ["a", "put"]);
    assert_eq!(rig.read_all(), ["b"]);
    for seen in [seen, above] {
        assert_eq!(*seen.lock().unwrap(), ["down a", "put put", "up b"]);
    }
}

#[test]
fn messages_that_are_only_looked_at_keep_their_order() {
    let mut rig = Rig::new();
    observed(&mut rig, false);
    rig.executive.push(rig.s, Box::new(Multiplier)).unwrap();
    rig.write("x").unwrap();
    assert_eq!(rig.received(), ["p2", "p2", "one", "last"]);
}

#[test]
fn flushes_and_served_queues_take_the_way_of_the_put_procedures() {
    let mut rig = Rig::new();
    let seen = observed(&mut rig, true);
    rig.data_up("up");
    rig.write("down").unwrap();
    rig.executive.flush_queues(rig.s, Flush::WRITE);
    assert_eq!(*seen.lock().unwrap(), ["put up", "down down", "put "]);
}

#[test]
fn an_observer_that_panics_makes_its_stream_fail() {
    let mut rig = Rig::new();
    observed(&mut rig, false);
    rig.up(data("!"));
    rig.executive.at(epoch()).run();
    assert_eq!(rig.executive.getmsg(rig.s), Err(ReadError::Failed(Errno::EIO)));
    let mut rig = Rig::new();
    let seen = observed(&mut rig, false);
    rig.write("!").unwrap();
    rig.up(Message::new(Kind::Hangup));
    assert!(rig.received().is_empty(), "the message is gone");
    assert_eq!(*seen.lock().unwrap(), ["up "], "the module is called for later messages");
}

/// A write past observers alone is not copied for them; a module that wants to handle it gets it in its place.
#[test]
fn observers_of_a_write_hand_it_over_where_they_stand() {
    let mut rig = Rig::new();
    let below = observed(&mut rig, false);
    rig.executive.push(rig.s, Box::new(NullMod)).unwrap();
    let above = observed(&mut rig, false);
    rig.executive.push(rig.s, Box::new(Counter::new())).unwrap();
    for text in ["a", "p", "p2", "b"] {
        rig.write(text).unwrap();
    }
    assert_eq!(rig.received(), ["a", "p", "p2", "p2", "p2", "p2", "b"]);
    assert_eq!(*above.lock().unwrap(), ["down a", "put p", "put p2", "down b"]);
    assert_eq!(*below.lock().unwrap(), ["down a", "put p", "put p2", "put p2", "down b"]);
    let counted = rig.executive.describe(rig.s).unwrap().modules[0].counts.clone();
    assert_eq!(counted[..2], [("messages down", 4), ("bytes down", 5)]);
    let head = rig.executive.head_stats(rig.s).unwrap();
    assert_eq!((head.messages_written, head.bytes_written), (4, 5));
}

#[test]
fn what_is_not_admitted_is_not_observed() {
    let mut rig = Rig::new();
    let seen = observed(&mut rig, false);
    rig.state().admission = Admission::Full;
    assert_eq!(rig.write("a"), Err(WriteError::WouldBlock));
    assert!(seen.lock().unwrap().is_empty(), "it would be seen again");
    rig.state().admission = Admission::Room;
    rig.write("a").unwrap();
    assert_eq!(*seen.lock().unwrap(), ["down a"]);
}

/// Queues what is put, and notes what it takes from the writer's memory.
#[derive(Default)]
struct Direct(Arc<Mutex<Vec<String>>>);

impl Driver for Direct {
    fn info(&self) -> DriverInfo {
        Rig::INFO
    }
    fn open(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _open: &Open) -> Result<(), Errno> {
        Ok(())
    }
    fn close(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}
    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        cx.putq(s, m);
    }
    fn write(
        &mut self,
        _cx: &mut Cx<'_>,
        _s: StreamId,
        _association: Which,
        _info: &SendInfo,
        data: WriteData<'_>,
    ) -> Admission {
        let WriteData::Copied(bytes) = data else { panic!("a block") };
        self.0.lock().unwrap().push(String::from_utf8_lossy(bytes).into_owned());
        Admission::Room
    }
}

/// `putq(D3)`: a write comes behind what waits on the driver's queue, and is not lent a way past it.
#[test]
fn a_write_that_is_observed_does_not_pass_what_waits_for_the_driver() {
    let mut rig = Rig::new();
    let taken = Arc::<Mutex<Vec<String>>>::default();
    let driver = rig.executive.add_driver("direct", Box::new(Direct(Arc::clone(&taken))));
    let s = rig.executive.open(driver).unwrap();
    rig.executive.push(s, Box::new(NullMod)).unwrap();
    let write = |executive: &mut Executive, text: &str| {
        executive.write(s, Which::Only, SendInfo::default(), text.as_bytes(), epoch).unwrap();
    };
    write(&mut rig.executive, "first");
    assert!(rig.executive.lend(s, |_: &mut Direct| Some(())).is_some());
    assert_eq!(*taken.lock().unwrap(), ["first"], "without a copy");
    rig.executive.at(epoch()).putmsg(s, Message::data(&b"waits"[..])).unwrap();
    write(&mut rig.executive, "behind");
    assert!(rig.executive.lend(s, |_: &mut Direct| Some(())).is_none());
    assert_eq!(*taken.lock().unwrap(), ["first"]);
    assert_eq!(rig.executive.describe(s).unwrap().driver.write.messages, 2);
}

/// Notes the time that it sees with each message, and handles messages that begin with `p` itself.
struct Clock(Arc<Mutex<Vec<Instant>>>);

impl Module for Clock {
    fn name(&self) -> &str {
        "clock"
    }
    fn observes(&self) -> bool {
        true
    }
    fn observe(&mut self, _side: Side, now: Instant, m: &Seen<'_>) -> bool {
        let observes = m.whole() != Some(b"p");
        self.0.lock().unwrap().extend(observes.then_some(now));
        observes
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        self.0.lock().unwrap().push(q.now());
        q.pass(m);
    }
}

#[test]
fn a_module_sees_the_time_of_each_write() {
    let mut rig = Rig::new();
    let seen = Arc::default();
    rig.executive.push(rig.s, Box::new(Clock(Arc::clone(&seen)))).unwrap();
    let at = |s| move || epoch() + Duration::from_secs(s);
    let (s, info) = (rig.s, SendInfo::default());
    rig.executive.write(s, Which::Only, info, b"observed", at(1)).unwrap();
    rig.executive.write(s, Which::Only, info, b"p", at(2)).unwrap();
    rig.executive.write_bytes(s, Which::Only, info, "a block".into(), at(3)).unwrap();
    assert_eq!(rig.executive.show_write(s, Which::Only, &info, b"lent", at(4)), Shown::Passed);
    let Shown::HandedOver(position) = rig.executive.show_write(s, Which::Only, &info, b"p", at(5)) else {
        panic!("the module handles it");
    };
    rig.executive.write_from(s, position, Which::Only, info, b"p");
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3, 4, 5].map(|s| at(s)()));
}
