//! Streams in use that are linked under a multiplexor, and `splice`, which joins two of them (`streamio(7)` I_PLINK, I_PUNLINK;
//! SVR4.2 STREAMS programmer's guide, "Multiplexing": the lower half, and persistent links).

use std::time::Instant;

use streams::drivers::Splice;
use streams::{
    Control, Credentials, DriverId, Interest, Kind, LinkError, LinkId, Marks, Message, Primitive, ReadError,
    SendInfo, StreamId, Which, WriteError,
};

use crate::support::{Device, ONE, Rig, data, epoch, partial_data, text, urgent};

/// Two streams in use, `rig.s` and `other`, that are spliced.
struct Spliced {
    rig: Rig,
    other: StreamId,
    driver: DriverId,
    link: LinkId,
}

impl Spliced {
    fn new() -> Spliced {
        let mut rig = Rig::new();
        let other = rig.executive.open(rig.driver).unwrap();
        let driver = rig.executive.add_driver("splice", Box::new(Splice::default()));
        let upper = rig.executive.open(driver).unwrap();
        let link = rig.executive.link_in_use(upper, rig.s).unwrap();
        rig.executive.link_in_use(upper, other).unwrap();
        rig.executive.at(epoch()).close(upper);
        rig.executive.at(epoch()).run();
        Spliced { rig, other, driver, link }
    }

    /// Makes the driver send a message up on a stream, and delivers it.
    fn up(&mut self, s: StreamId, m: Message) {
        let driver = self.rig.driver;
        self.rig.executive.at(epoch()).with_driver(driver, |_: &mut Device, cx| cx.putnext(s, m)).unwrap();
        self.rig.executive.at(epoch()).run();
    }

    fn is_linked(&self, s: StreamId) -> bool {
        self.rig.executive.link_of(s).is_some()
    }

    fn passed(&mut self) -> (u64, u64, bool) {
        let s = self.rig.s;
        let passed = self.rig.executive.driver_state(self.driver, |splice: &mut Splice| splice.spliced(s));
        let passed = passed.unwrap().unwrap();
        (passed.messages, passed.bytes, passed.is_in_record)
    }
}

#[test]
fn messages_up_on_one_stream_go_down_on_the_other() {
    let mut spliced = Spliced::new();
    let (s, other) = (spliced.rig.s, spliced.other);
    spliced.up(s, data("one"));
    spliced.up(s, partial_data("two "));
    assert_eq!(spliced.passed(), (1, 7, true));
    spliced.up(s, data("three"));
    spliced.up(other, Message::proto(Primitive::DataInd { more: false }));
    spliced.up(
        other,
        Message { data: b"back".to_vec().into(), ..Message::proto(Primitive::ExdataInd { more: false }) },
    );
    assert_eq!(spliced.passed(), (2, 12, false));
    let state = spliced.rig.state();
    let received: Vec<String> = state.received.iter().map(text).collect();
    assert_eq!(
        received,
        ["one", "two ", "three", "back"],
        "a message without data is no message of a connection"
    );
    let whole = |more| {
        Kind::Proto(
            Primitive::OptdataReq {
                association: Which::Only,
                info: SendInfo { more, ..SendInfo::default() },
            }
            .into(),
        )
    };
    let kinds: Vec<&Kind> = state.received.iter().map(|m| &m.kind).collect();
    assert_eq!(kinds[..3], [&whole(false), &whole(true), &whole(false)]);
    assert_eq!(*kinds[3], Kind::Proto(Primitive::ExdataReq { more: false }.into()));
    assert!(state.received.iter().all(|m| m.marks.contains(Marks::UNADMITTED)));
    assert_eq!(
        state.consumed,
        [(ONE, 3), (ONE, 4), (ONE, 5), (Which::Only, 4)],
        "the receive window reopens"
    );
}

#[test]
fn the_user_of_a_linked_stream_waits_and_goes_on() {
    let mut spliced = Spliced::new();
    let (s, link) = (spliced.rig.s, spliced.link);
    let executive = &mut spliced.rig.executive;
    let mut woken = Vec::new();
    executive.want(s, Interest::READABLE | Interest::WRITABLE);
    executive.take_wakeups(&mut woken);
    assert!(woken.is_empty());
    assert_eq!(executive.read(s, &mut [0; 9]), Ok(None));
    assert_eq!(executive.peek(s, &mut [0; 9]), Ok(None));
    assert_eq!(executive.getmsg(s), Ok(None));
    assert_eq!(executive.getrun(s), Ok(None));
    assert_eq!(executive.recv_passed(s), Ok(None));
    assert_eq!(
        executive.write(s, Which::Only, SendInfo::default(), b"x", Instant::now),
        Err(WriteError::WouldBlock)
    );
    assert_eq!(executive.at(epoch()).putmsg(s, urgent("x")).unwrap_err().error, WriteError::WouldBlock);
    assert_eq!(executive.poll(s), streams::Readiness::default());
    executive.unlink(link).unwrap();
    executive.take_wakeups(&mut woken);
    assert_eq!(woken, [s]);
    executive.write(s, Which::Only, SendInfo::default(), b"mine", Instant::now).unwrap();
    assert!(!spliced.is_linked(s) && !spliced.is_linked(spliced.other), "both links end");
    spliced.up(s, data("too"));
    assert_eq!(spliced.rig.read_all(), ["too"]);
    assert_eq!(spliced.rig.received(), ["mine"]);
}

#[test]
fn a_full_stream_stops_what_is_spliced_into_it() {
    let mut spliced = Spliced::new();
    let (s, other) = (spliced.rig.s, spliced.other);
    spliced.rig.state().busy = true;
    for _ in 0..70 {
        spliced.up(s, Message { data: vec![7; 1000].into(), ..data("") });
    }
    let queued = |spliced: &Spliced, s| {
        let stream = spliced.rig.executive.describe(s).unwrap();
        (stream.head_queue.messages, stream.driver.write.messages)
    };
    assert_eq!(queued(&spliced, other).1, 66, "64 KB are full");
    assert_eq!(queued(&spliced, s).0, 4, "the others wait where they came up");
    assert_eq!(spliced.rig.state().consumed.len(), 66, "their receive window stays closed");
    spliced.rig.state().busy = false;
    let driver = spliced.rig.driver;
    spliced.rig.executive.at(epoch()).with_driver(driver, |_: &mut Device, cx| cx.qenable(other)).unwrap();
    spliced.rig.executive.at(epoch()).run();
    assert_eq!(spliced.rig.state().received.len(), 70);
}

/// `canput(D3)`: messages that one run of the service procedure sends on count before they have arrived.
#[test]
fn what_waited_goes_on_as_far_as_there_is_room() {
    let mut spliced = Spliced::new();
    let (s, other) = (spliced.rig.s, spliced.other);
    spliced.rig.state().busy = true;
    spliced.up(other, data("back"));
    let driver = spliced.rig.driver;
    let burst = |_: &mut Device, cx: &mut streams::Cx<'_>| {
        for _ in 0..300 {
            cx.putnext(s, Message { data: vec![7; 1000].into(), ..data("") });
        }
    };
    spliced.rig.executive.at(epoch()).with_driver(driver, burst).unwrap();
    spliced.rig.executive.at(epoch()).run();
    let waits = |spliced: &Spliced| spliced.rig.executive.describe(other).unwrap().driver.write.messages;
    assert_eq!(waits(&spliced), 66, "64 KB are full");
    spliced.rig.state().busy = false;
    spliced.rig.executive.at(epoch()).with_driver(driver, |_: &mut Device, cx| cx.qenable(other)).unwrap();
    spliced.rig.run_all();
    assert_eq!((waits(&spliced), spliced.rig.state().received.len()), (0, 300), "all have gone on");
}

#[test]
fn the_end_of_a_connection_ends_both_links_behind_its_data() {
    let mut spliced = Spliced::new();
    let (s, other) = (spliced.rig.s, spliced.other);
    spliced.rig.state().busy = true;
    spliced.up(s, Message { data: vec![7; 70_000].into(), ..data("") });
    spliced.up(s, data("last"));
    spliced.up(s, Message::proto(Primitive::OrdrelInd { association: ONE }));
    assert!(spliced.is_linked(s), "data is before it");
    spliced.rig.state().busy = false;
    let driver = spliced.rig.driver;
    spliced.rig.executive.at(epoch()).with_driver(driver, |_: &mut Device, cx| cx.qenable(other)).unwrap();
    spliced.rig.executive.at(epoch()).run();
    assert!(!spliced.is_linked(s) && !spliced.is_linked(other));
    assert_eq!(spliced.rig.state().received.len(), 2);
    let end = spliced.rig.executive.getmsg(s).unwrap().unwrap();
    assert!(matches!(end.kind, Kind::Proto(Control::Tpi(Primitive::OrdrelInd { .. }))));
}

#[test]
fn a_hang_up_and_an_error_end_the_links_and_reach_the_user() {
    let mut spliced = Spliced::new();
    let s = spliced.rig.s;
    spliced.up(s, Message::new(Kind::Hangup));
    assert!(!spliced.is_linked(s) && !spliced.is_linked(spliced.other));
    assert_eq!(spliced.rig.executive.getmsg(s), Err(ReadError::HungUp));
    let mut spliced = Spliced::new();
    let other = spliced.other;
    spliced.rig.executive.fault(Some(other));
    spliced.rig.executive.at(epoch()).run();
    assert!(!spliced.is_linked(other));
    assert_eq!(spliced.rig.executive.getmsg(other), Err(ReadError::Failed(streams::Errno::EIO)));
}

#[test]
fn closing_a_linked_stream_returns_the_other_one_to_its_user() {
    let mut spliced = Spliced::new();
    let (s, other) = (spliced.rig.s, spliced.other);
    spliced.rig.executive.at(epoch()).close(s);
    spliced.rig.executive.at(epoch()).run();
    assert!(!spliced.is_linked(other));
    spliced.rig.executive.write(other, Which::Only, SendInfo::default(), b"mine", Instant::now).unwrap();
}

#[test]
fn notifications_are_discarded_and_no_third_stream_is_spliced() {
    let mut spliced = Spliced::new();
    let s = spliced.rig.s;
    let kind = tpi::NotificationKind::SenderDry;
    let notice = Primitive::NotificationInd(Box::new(tpi::Notification { association: ONE, kind }));
    spliced.up(s, Message::proto(notice));
    spliced.up(s, data("on"));
    assert_eq!(spliced.rig.received(), ["on"]);
    let executive = &mut spliced.rig.executive;
    let third = executive.open(spliced.rig.driver).unwrap();
    let upper = executive.open(spliced.driver).unwrap();
    assert_eq!(executive.link_in_use(upper, s), Err(LinkError::Linked));
    let lowers = [(); 2].map(|()| executive.open(spliced.rig.driver).unwrap());
    let links = lowers.map(|lower| executive.link(upper, lower, false));
    assert!(links.iter().all(Result::is_ok));
    assert_eq!(executive.link(upper, third, false), Err(LinkError::Driver(streams::Errno::EBUSY)));
    assert_eq!(executive.link_of(s).unwrap().1, Credentials::ROOT);
}

#[test]
fn a_refused_link_leaves_what_the_user_has_not_read() {
    let mut rig = Rig::new();
    let upper = rig.executive.open(rig.driver).unwrap();
    let below = rig.executive.add_driver("below", Box::new(streams::drivers::Nuls));
    let lower = rig.executive.open(below).unwrap();
    rig.executive
        .at(epoch())
        .with_driver(below, |_: &mut streams::drivers::Nuls, cx| cx.putnext(lower, data("unread")))
        .unwrap();
    let refused = LinkError::Driver(streams::Errno::EINVAL);
    assert_eq!(rig.executive.link(upper, lower, false), Err(refused), "the driver above is no multiplexor");
    assert_eq!(rig.executive.getmsg(lower).unwrap().map(|m| text(&m)), Some("unread".into()));
}
