//! Flow control along a stream: which sender stops, and which queue is enabled again (SVR4.2 DDI/DKI `canputnext(D3)`,
//! `getq(D3)`, `srv(D2)`; STREAMS programmer's guide, "Flow control").

use streams::{
    Admission, DriverInfo, Interest, Message, Module, ModuleInfo, Q, QUEUED_MESSAGES_MAX, QueueInfo,
    WriteError,
};

use crate::support::{Noting, Rig, data, epoch};

fn push(rig: &mut Rig, name: &'static str, info: ModuleInfo) {
    let diary = rig.diary();
    rig.executive.push(rig.s, Box::new(Noting { name, info, diary })).unwrap();
    rig.executive.at(epoch()).run();
    rig.take_diary();
}

fn served_write(hiwat_bytes: usize, lowat_bytes: usize) -> ModuleInfo {
    ModuleInfo { write: QueueInfo::served(hiwat_bytes, lowat_bytes), ..ModuleInfo::default() }
}

fn small_device(hiwat_bytes: usize, lowat_bytes: usize) -> DriverInfo {
    DriverInfo { write: QueueInfo::served(hiwat_bytes, lowat_bytes), ..Rig::INFO }
}

fn write_until_blocked(rig: &mut Rig) -> usize {
    let mut writes = 0;
    while rig.write(&(writes % 10).to_string()).is_ok() {
        writes += 1;
        rig.executive.at(epoch()).run();
        assert!(writes < 1000, "a full stream must hold its writers");
    }
    writes
}

#[test]
fn a_full_driver_queue_stops_the_writer_and_wakes_it_at_the_low_mark() {
    let mut rig = Rig::with_info(small_device(4, 1));
    rig.state().busy = true;
    assert_eq!(write_until_blocked(&mut rig), 4);
    rig.executive.want(rig.s, Interest::WRITABLE);
    assert!(!rig.executive.poll(rig.s).writable);
    let mut levels = Vec::new();
    for _ in 0..4 {
        rig.device(|cx, s| drop(cx.getq(s)));
        levels.push(rig.executive.has_wakeups());
    }
    assert_eq!(levels, [false, false, true, true], "with 3, 2, 1, 0 bytes left");
    assert!(rig.executive.poll(rig.s).writable);
    rig.write("x").unwrap();
}

#[test]
fn a_queue_with_many_short_messages_is_full_in_all_bands_until_half_of_them_are_gone() {
    let mut rig = Rig::with_info(small_device(1 << 20, 1 << 19));
    rig.state().busy = true;
    let mut writes = 0;
    while rig.write("x").is_ok() {
        writes += 1;
        assert!(writes <= QUEUED_MESSAGES_MAX, "the bytes of a message are not all that it takes");
    }
    assert_eq!(writes, QUEUED_MESSAGES_MAX);
    let can_write = |rig: &mut Rig| [0, 1].map(|band| rig.executive.canput(rig.s, band));
    assert_eq!(can_write(&mut rig), [false, false]);
    for gone in 1..=QUEUED_MESSAGES_MAX / 2 {
        assert_eq!(can_write(&mut rig), [false, false], "{gone}");
        rig.executive.want(rig.s, Interest::WRITABLE);
        assert!(!rig.executive.has_wakeups());
        rig.device(|cx, s| drop(cx.getq(s)));
    }
    assert!(rig.executive.has_wakeups());
    assert_eq!(can_write(&mut rig), [true, true]);
}

#[test]
fn a_driver_that_says_full_stops_the_writer_until_it_says_otherwise() {
    let mut rig = Rig::new();
    rig.state().admission = Admission::Full;
    assert_eq!(rig.write("x"), Err(WriteError::WouldBlock));
    assert!(!rig.executive.poll(rig.s).writable);
    rig.executive.want(rig.s, Interest::WRITABLE);
    assert!(!rig.executive.has_wakeups());
    rig.state().admission = Admission::Room;
    rig.device(|cx, s| cx.back_enable(s));
    assert!(rig.executive.has_wakeups());
    assert!(rig.executive.poll(rig.s).writable);
}

#[test]
fn a_full_stream_fills_from_below_and_empties_in_order() {
    let mut rig = Rig::with_info(small_device(4, 1));
    push(&mut rig, "lower", served_write(4, 1));
    push(&mut rig, "passing", ModuleInfo::default());
    push(&mut rig, "upper", served_write(4, 1));
    rig.state().busy = true;
    let writes = write_until_blocked(&mut rig);
    assert_eq!(writes, 12, "four bytes in each of three queues");
    rig.executive.want(rig.s, Interest::WRITABLE);
    rig.release();
    assert_eq!(rig.received().concat(), "012345678901");
    assert!(rig.executive.has_wakeups());
}

#[test]
fn a_service_procedure_counts_what_it_has_just_sent_on() {
    let mut rig = Rig::with_info(small_device(1000, 100));
    push(&mut rig, "lower", served_write(4, 1));
    push(&mut rig, "upper", served_write(1000, 100));
    rig.state().busy = true;
    // The driver's queue is full: the lower module keeps four bytes, and the upper one the rest.
    rig.device(|cx, s| (0..1000).for_each(|_| cx.putq(s, data("x"))));
    for _ in 0..10 {
        rig.write("x").unwrap();
    }
    rig.executive.at(epoch()).run();
    rig.take_diary();
    rig.device(|cx, s| while cx.getq(s).is_some() {});
    rig.executive.at(epoch()).run();
    let runs = rig.take_diary().iter().filter(|line| *line == "upper wsrv").count();
    assert_eq!(runs, 2, "six messages, of which the lower module's queue has room for four at a time");
    rig.release();
    assert_eq!(rig.received().len(), 10);
}

#[test]
fn passing_modules_are_looked_past() {
    let mut rig = Rig::with_info(small_device(4, 1));
    push(&mut rig, "passing", ModuleInfo::default());
    rig.state().busy = true;
    assert_eq!(write_until_blocked(&mut rig), 4);
    rig.executive.want(rig.s, Interest::WRITABLE);
    rig.release();
    assert!(rig.executive.has_wakeups(), "the writer waits for the driver's queue directly");
}

#[test]
fn a_full_read_queue_stops_the_driver_until_the_reader_has_read_enough() {
    let head = QueueInfo::served(4, 1);
    let mut rig = Rig::with_info(DriverInfo { head, ..Rig::INFO });
    let mut sent = 0;
    loop {
        let mut room = false;
        rig.device(|cx, s| room = cx.canputnext(s, 0));
        if !room {
            break;
        }
        rig.data_up("x");
        sent += 1;
    }
    assert_eq!(sent, 4);
    let mut enabled = Vec::new();
    for _ in 0..4 {
        rig.read(100).unwrap();
        rig.executive.at(epoch()).run();
        enabled.push(rig.take_diary().len());
    }
    assert_eq!(enabled, [0, 0, 1, 0], "with 3, 2, 1, 0 bytes left");
}

#[test]
fn a_module_that_waits_for_the_reader_is_enabled_before_the_driver() {
    let info = ModuleInfo { read: QueueInfo::served(4, 1), ..ModuleInfo::default() };
    let head = QueueInfo::served(4, 1);
    let mut rig = Rig::with_info(DriverInfo { head, ..Rig::INFO });
    push(&mut rig, "m", info);
    let mut sent = String::new();
    for text in ["0", "1", "2", "3", "4", "5", "6", "7"] {
        rig.device(|cx, s| assert!(cx.canputnext(s, 0)));
        rig.data_up(text);
        sent += text;
    }
    rig.device(|cx, s| assert!(!cx.canputnext(s, 0), "four with the head and four with the module"));
    rig.take_diary();
    let mut read = String::new();
    while let Some((text, _)) = rig.read(100) {
        read += &text;
        rig.executive.at(epoch()).run();
    }
    assert_eq!(read, sent);
    let diary = rig.take_diary();
    assert_eq!(diary.first().unwrap(), "m rsrv");
    assert!(diary.iter().any(|line| line.starts_with("read service")));
}

#[test]
fn raising_the_marks_lets_the_driver_go_on() {
    let head = QueueInfo::served(2, 1);
    let mut rig = Rig::with_info(DriverInfo { head, ..Rig::INFO });
    for text in ["a", "b"] {
        rig.data_up(text);
    }
    rig.device(|cx, s| assert!(!cx.canputnext(s, 0)));
    rig.executive.set_hiwat(rig.s, 10);
    rig.executive.set_lowat(rig.s, 5);
    rig.executive.at(epoch()).run();
    assert_eq!(rig.take_diary(), ["read service 0"]);
    assert_eq!(rig.executive.marks(rig.s), Some((10, 5)));
}

/// Answers a message that comes up with two of its own, the second of which waits for the service procedure.
struct Answering {
    panics: bool,
}

impl Module for Answering {
    fn name(&self) -> &str {
        "answering"
    }
    fn info(&self) -> ModuleInfo {
        served_write(100, 10)
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        self.answer(q, m);
        assert!(!self.panics, "a fault for the test");
    }
    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        self.answer(&mut q.other(), m);
    }
}

impl Answering {
    fn answer(&self, q: &mut Q<'_>, m: Message) {
        // Only the room below enables the service procedure.
        q.noenable();
        q.putnext(m.clone());
        q.putq(m);
        assert!(!q.canputnext(0), "the first message fills the driver's queue");
    }
}

/// `canputnext(D3)`, `OTHERQ(D3)`: a procedure that finds no room on the other side, because of what it has just sent there.
#[test]
fn a_module_that_fills_the_other_side_itself_is_enabled_there() {
    let mut rig = Rig::with_info(small_device(4, 1));
    rig.executive.push(rig.s, Box::new(Answering { panics: false })).unwrap();
    rig.data_up("full");
    rig.executive.at(epoch()).run();
    assert_eq!(rig.received(), ["full", "full"]);
    assert!(!rig.executive.poll(rig.s).error, "the module has found no room, as it should");
}

/// `canputnext(D3)`: also a procedure that fails afterwards.
#[test]
fn messages_queued_by_a_failed_procedure_are_served() {
    let mut rig = Rig::with_info(small_device(4, 1));
    rig.executive.push(rig.s, Box::new(Answering { panics: true })).unwrap();
    rig.write("full").unwrap();
    rig.executive.at(epoch()).run();
    assert_eq!(rig.received(), ["full", "full"]);
    assert!(matches!(rig.write("x"), Err(WriteError::Failed(_))));
}
