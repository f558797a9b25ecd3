//! Errors, hang-ups and streams that are closed (SVR4.2 DDI/DKI `messages(D5)` M_ERROR, M_HANGUP; `close(2)`).

use std::time::Instant;

use streams::{
    Admission, Errno, Kind, Message, OpenError, PopError, PushError, ReadError, Which, WriteError,
};
use streams::{
    Chain, DriverId, Executive, Interest, IoctlError, SendError, SendInfo, Signal, modules::Counter,
};

use crate::support::{Rig, data, epoch};

#[test]
fn an_error_makes_reads_and_writes_fail_until_it_is_cleared() {
    let mut rig = Rig::new();
    rig.data_up("data");
    rig.device(|cx, s| cx.error(s, Errno::ECONNRESET));
    assert_eq!(rig.write("x"), Err(WriteError::Failed(Errno::ECONNRESET)));
    assert_eq!(rig.executive.read(rig.s, &mut [0; 8]), Err(ReadError::Failed(Errno::ECONNRESET)));
    assert_eq!(rig.executive.getmsg(rig.s), Err(ReadError::Failed(Errno::ECONNRESET)));
    assert_eq!(
        rig.executive.push(rig.s, Box::new(Counter::new())),
        Err(PushError::Failed(Errno::ECONNRESET))
    );
    assert!(rig.executive.poll(rig.s).error);
    rig.up(Message::new(Kind::Error { read: Some(Errno(0)), write: Some(Errno(0)) }));
    assert!(!rig.executive.poll(rig.s).error);
    rig.write("x").unwrap();
    assert_eq!(rig.read_all(), ["data"]);
}

#[test]
fn an_error_may_be_for_one_way() {
    let mut rig = Rig::new();
    rig.up(Message::new(Kind::Error { read: None, write: Some(Errno::EPIPE) }));
    rig.data_up("data");
    assert_eq!(rig.write("x"), Err(WriteError::Failed(Errno::EPIPE)));
    assert_eq!(rig.read_all(), ["data"]);
}

#[test]
fn data_before_a_hangup_can_be_read() {
    let mut rig = Rig::new();
    rig.data_up("data");
    rig.device(|cx, s| cx.hangup(s));
    assert_eq!(rig.write("x"), Err(WriteError::HungUp));
    let refused = rig.executive.at(epoch()).putmsg(rig.s, data("x")).unwrap_err();
    assert_eq!(refused.error, WriteError::HungUp);
    assert_eq!(refused.message, data("x"));
    assert_eq!(rig.read(100).unwrap().0, "data");
    assert_eq!(rig.executive.read(rig.s, &mut [0; 8]), Err(ReadError::HungUp));
    assert_eq!(rig.executive.getmsg(rig.s), Err(ReadError::HungUp));
    let ready = rig.executive.poll(rig.s);
    assert!(ready.hangup && ready.readable && !ready.writable);
}

#[test]
fn a_refused_write_names_the_reason() {
    let mut rig = Rig::new();
    rig.state().admission = Admission::Fail(Errno::EMSGSIZE);
    assert_eq!(rig.write("x"), Err(WriteError::Failed(Errno::EMSGSIZE)));
    assert!(WriteError::Failed(Errno::EMSGSIZE).to_string().contains("the message is too long"));
    let reason = SendError::TooLong { bytes: 2, limit_bytes: 1 };
    rig.state().admission = Admission::Refused(reason);
    assert_eq!(rig.write("x"), Err(WriteError::Refused(reason)));
    rig.state().admission = Admission::Room;
    rig.write("y").unwrap();
    assert_eq!(rig.received(), ["y"]);
}

#[test]
fn a_closed_stream_says_so_even_when_another_has_its_place() {
    let mut rig = Rig::new();
    let closed = rig.s;
    rig.executive.at(epoch()).close(closed);
    rig.executive.at(epoch()).close(closed);
    let other = rig.executive.open(rig.driver).unwrap();
    assert_eq!(other.index(), closed.index());
    assert_ne!(other, closed);
    rig.device(|cx, s| cx.putnext(s, data("for nobody")));
    assert_eq!(rig.write("x"), Err(WriteError::Closed));
    let ex = &mut rig.executive;
    assert_eq!(ex.read(closed, &mut [0; 8]), Err(ReadError::Closed));
    assert_eq!(ex.getmsg(closed), Err(ReadError::Closed));
    assert_eq!(ex.at(epoch()).flush_head(closed), Err(WriteError::Closed));
    assert_eq!(ex.push(closed, Box::new(Counter::new())), Err(PushError::Closed));
    assert_eq!(ex.pop(closed).err(), Some(PopError::Closed));
    assert_eq!(ex.ioctl(closed, 1, Chain::new()), Err(IoctlError::Closed));
    assert!(ex.poll(closed).hangup);
    ex.want(closed, Interest::READABLE);
    assert!(!ex.has_wakeups());
    assert_eq!(ex.getmsg(other), Ok(None));
    assert_eq!(ex.streams().collect::<Vec<_>>(), [other]);
}

#[test]
fn a_driver_must_exist() {
    let rig = Rig::new();
    let id: DriverId = rig.driver;
    assert_eq!(Executive::new(std::time::Instant::now()).open(id), Err(OpenError::NoDriver));
    assert_eq!(rig.executive.driver_named("device"), Some(id));
    assert_eq!(rig.executive.driver_named("devise"), None);
}

#[test]
fn closing_pops_the_modules_and_tells_the_driver_last() {
    let mut rig = Rig::new();
    for name in ["lower", "upper"] {
        let diary = rig.diary();
        let info = streams::ModuleInfo::default();
        rig.executive.push(rig.s, Box::new(crate::support::Noting { name, info, diary })).unwrap();
    }
    rig.executive.at(epoch()).close(rig.s);
    assert_eq!(rig.take_diary(), ["lower open", "upper open", "upper close", "lower close", "close"]);
}

/// `streamio(7)` I_SWROPT, SNDPIPE: a writer on a stream that has failed or was hung up is due SIGPIPE, each time.
#[test]
fn a_writer_on_a_hung_up_stream_is_due_sigpipe_if_it_wants_that() {
    for send_pipe in [true, false] {
        let mut rig = Rig::new();
        let write = streams::WriteOptions { send_pipe, ..Default::default() };
        let options = streams::HeadOptions { write: Some(write), ..Default::default() };
        rig.executive.set_head_options(rig.s, &options);
        assert_eq!(rig.executive.head_options(rig.s).unwrap().write, Some(write));
        rig.write("x").unwrap();
        let more = SendInfo { more: true, ..SendInfo::default() };
        let due = send_pipe.then_some(Signal::PIPE);
        assert_eq!(rig.executive.take_signal(rig.s), None);
        rig.device(|cx, s| cx.hangup(s));
        assert_eq!(rig.executive.take_signal(rig.s), None, "nobody has written");
        assert_eq!(rig.write("x"), Err(WriteError::HungUp));
        assert_eq!([(); 2].map(|()| rig.executive.take_signal(rig.s)), [due, None]);
        assert_eq!(
            rig.executive.write(rig.s, Which::Only, more, b"x", Instant::now),
            Err(WriteError::HungUp)
        );
        assert_eq!(rig.executive.take_signal(rig.s), due);
        assert!(rig.executive.at(epoch()).putmsg(rig.s, data("x")).is_err());
        assert_eq!(rig.executive.take_signal(rig.s), due);
        let mut rig = Rig::new();
        rig.executive.set_head_options(rig.s, &options);
        rig.up(Message::new(Kind::Error { read: None, write: Some(Errno::EPIPE) }));
        assert_eq!(rig.write("x"), Err(WriteError::Failed(Errno::EPIPE)));
        assert_eq!(rig.executive.take_signal(rig.s), due);
    }
}
