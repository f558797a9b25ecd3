//! Multiplexors: streams linked under a driver (SVR4.2 STREAMS programmer's guide, "Multiplexing"; `streamio(7)` I_LINK).

use std::time::Instant;

use std::sync::{Arc, Mutex};

use streams::{
    Cx, Driver, DriverId, DriverInfo, Errno, Executive, Interest, Kind, LinkError, Message, Open, QueueInfo,
    SendInfo, StreamId, Which,
};

use crate::support::{ONE, Rig, epoch, text};

/// Sends messages that come down to the last linked stream while that has room, and messages that come up to the last opened one.
#[derive(Default)]
struct Mux {
    uppers: Vec<StreamId>,
    lowers: Vec<StreamId>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Mux {
    fn send_down(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        let Some(&lower) = self.lowers.last() else { return };
        while cx.lower_canput(lower, 0) {
            let Some(m) = cx.getq(s) else { return };
            cx.lower_put(lower, m);
        }
    }
}

impl Driver for Mux {
    fn open(&mut self, _cx: &mut Cx<'_>, s: StreamId, _open: &Open) -> Result<(), Errno> {
        self.uppers.push(s);
        Ok(())
    }
    fn close(&mut self, _cx: &mut Cx<'_>, s: StreamId) {
        self.uppers.retain(|upper| *upper != s);
    }
    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        cx.putq(s, m);
    }
    fn service(&mut self, cx: &mut Cx<'_>, s: StreamId) {
        self.send_down(cx, s);
    }
    fn link(&mut self, _cx: &mut Cx<'_>, _upper: StreamId, lower: StreamId) -> Result<(), Errno> {
        self.lowers.push(lower);
        Ok(())
    }
    fn unlink(&mut self, _cx: &mut Cx<'_>, lower: StreamId) {
        self.lowers.retain(|other| *other != lower);
    }
    fn lower_put(&mut self, cx: &mut Cx<'_>, lower: StreamId, m: Message) {
        self.seen.lock().unwrap().push(text(&m));
        cx.lower_putq(lower, m);
    }
    fn lower_read_service(&mut self, cx: &mut Cx<'_>, lower: StreamId) {
        let Some(&upper) = self.uppers.last() else { return };
        while cx.canputnext(upper, 0) {
            let Some(m) = cx.lower_getq(lower) else { return };
            cx.putnext(upper, m);
        }
    }
    fn lower_write_service(&mut self, cx: &mut Cx<'_>, _lower: StreamId) {
        for s in self.uppers.clone() {
            cx.qenable(s);
        }
    }
    fn read_service(&mut self, cx: &mut Cx<'_>, _s: StreamId) {
        for lower in self.lowers.clone() {
            cx.lower_qenable(lower);
        }
    }
}

fn mux(rig: &mut Rig, name: &str) -> (DriverId, StreamId) {
    let driver = rig.executive.add_driver(name, Box::new(Mux::default()));
    (driver, rig.executive.open(driver).unwrap())
}

fn write(executive: &mut Executive, s: StreamId, text: &str) -> bool {
    let written = executive.write(s, Which::Only, SendInfo::default(), text.as_bytes(), Instant::now).is_ok();
    executive.at(epoch()).run();
    written
}

#[test]
fn data_goes_through_a_multiplexor_both_ways() {
    let mut rig = Rig::new();
    let (_, upper) = mux(&mut rig, "mux");
    let link = rig.executive.link(upper, rig.s, false).unwrap();
    assert_eq!(rig.executive.links(upper), [(link, rig.s)]);
    assert!(write(&mut rig.executive, upper, "down"));
    assert_eq!(rig.received(), ["down"]);
    rig.data_up("up");
    rig.executive.at(epoch()).run();
    assert_eq!(rig.executive.getmsg(upper).unwrap().map(|m| text(&m)), Some("up".into()));
    assert_eq!(rig.state().consumed, [(ONE, 2)], "the lower driver's window is given back");
}

#[test]
fn only_the_multiplexor_uses_a_linked_stream() {
    let mut rig = Rig::new();
    let (_, upper) = mux(&mut rig, "mux");
    rig.data_up("before");
    let link = rig.executive.link(upper, rig.s, false).unwrap();
    assert!(rig.write("x").is_err());
    assert!(rig.executive.getmsg(rig.s).is_err());
    rig.executive.at(epoch()).run();
    assert_eq!(rig.executive.getmsg(upper).unwrap().map(|m| text(&m)), Some("before".into()));
    rig.executive.unlink(link).unwrap();
    rig.write("again").unwrap();
    rig.data_up("mine");
    assert_eq!(rig.read_all(), ["mine"]);
    assert_eq!(rig.executive.unlink(link), Err(LinkError::NoLink));
}

#[test]
fn flow_control_goes_across_a_multiplexor() {
    let small = DriverInfo { write: QueueInfo::served(4, 1), ..Rig::INFO };
    let mut rig = Rig::with_info(small);
    let (_, upper) = mux(&mut rig, "mux");
    rig.executive.link(upper, rig.s, false).unwrap();
    rig.state().busy = true;
    let mut written = 0;
    while write(&mut rig.executive, upper, "1234567890123456") {
        written += 1;
        assert!(written < 100_000, "a full lower stream must stop the upper writer");
    }
    rig.executive.want(upper, Interest::WRITABLE);
    assert!(!rig.executive.has_wakeups());
    rig.release();
    rig.executive.at(epoch()).run();
    assert!(rig.executive.has_wakeups(), "the writer is back-enabled through the multiplexor");
    assert_eq!(rig.received().len(), written, "nothing is lost");
}

#[test]
fn a_reader_that_does_not_read_stops_the_lower_driver() {
    let mut rig = Rig::with_info(DriverInfo { head: QueueInfo::served(4, 1), ..Rig::INFO });
    let (_, upper) = mux(&mut rig, "mux");
    rig.executive.set_hiwat(upper, 4);
    rig.executive.set_lowat(upper, 1);
    rig.executive.link(upper, rig.s, false).unwrap();
    let mut sent = 0;
    loop {
        let mut room = false;
        rig.device(|cx, s| room = cx.canputnext(s, 0));
        if !room {
            break;
        }
        rig.data_up("12");
        rig.executive.at(epoch()).run();
        sent += 1;
        assert!(sent < 1000, "a full upper stream must stop the lower driver");
    }
    rig.take_diary();
    let mut read = 0;
    while rig.executive.getmsg(upper).unwrap().is_some() {
        read += 1;
        rig.executive.at(epoch()).run();
    }
    assert_eq!(read, sent);
    assert!(rig.take_diary().iter().any(|line| line.starts_with("read service")), "and lets it go on");
}

#[test]
fn loops_are_refused() {
    let mut rig = Rig::new();
    let (a, upper_a) = mux(&mut rig, "a");
    let (_, upper_b) = mux(&mut rig, "b");
    let (_, upper_c) = mux(&mut rig, "c");
    let second_a = rig.executive.open(a).unwrap();
    assert_eq!(rig.executive.link(upper_a, upper_a, false), Err(LinkError::Loop));
    assert_eq!(rig.executive.link(upper_a, second_a, false), Err(LinkError::Loop), "a driver under itself");
    rig.executive.link(upper_a, upper_b, false).unwrap();
    rig.executive.link(upper_b, upper_c, true).unwrap_err();
    let second_b = rig.executive.driver_named("b").unwrap();
    let second_b = rig.executive.open(second_b).unwrap();
    rig.executive.link(second_b, upper_c, false).unwrap();
    let c = rig.executive.driver_named("c").unwrap();
    let second_c = rig.executive.open(c).unwrap();
    assert_eq!(rig.executive.link(second_c, second_a, false), Err(LinkError::Loop), "a over b over c over a");
    assert_eq!(LinkError::Loop.errno(), Errno::EINVAL);
}

#[test]
fn a_link_ends_with_its_controlling_stream_unless_it_is_persistent() {
    for persistent in [false, true] {
        let mut rig = Rig::new();
        let (_, upper) = mux(&mut rig, "mux");
        let link = rig.executive.link(upper, rig.s, persistent).unwrap();
        rig.executive.at(epoch()).close(upper);
        assert_eq!(rig.write("x").is_ok(), !persistent);
        assert_eq!(rig.executive.unlink(link).is_ok(), persistent);
        rig.write("y").unwrap();
    }
}

#[test]
fn closing_a_linked_stream_ends_its_link() {
    let mut rig = Rig::new();
    let (_, upper) = mux(&mut rig, "mux");
    rig.executive.link(upper, rig.s, false).unwrap();
    rig.executive.at(epoch()).close(rig.s);
    assert!(rig.executive.links(upper).is_empty());
    assert!(write(&mut rig.executive, upper, "x"), "nobody is left to send it to, and it waits");
}

#[test]
fn impossible_links_are_refused() {
    let mut rig = Rig::new();
    let other = rig.executive.open(rig.driver).unwrap();
    let (_, upper) = mux(&mut rig, "mux");
    let plain = rig.executive.link(other, upper, false);
    assert_eq!(plain, Err(LinkError::Driver(Errno::EINVAL)), "its driver is no multiplexor");
    rig.executive.link(upper, rig.s, false).unwrap();
    assert_eq!(rig.executive.link(upper, rig.s, false), Err(LinkError::Linked));
    rig.executive.at(epoch()).close(other);
    assert_eq!(rig.executive.link(upper, other, false), Err(LinkError::Closed));
    let hung_up = rig.executive.open(rig.driver).unwrap();
    rig.device(|cx, _| cx.putnext(hung_up, Message::new(Kind::Hangup)));
    assert_eq!(rig.executive.link(upper, hung_up, false), Err(LinkError::HungUp));
}
