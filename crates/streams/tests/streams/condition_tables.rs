//! Every operation in every condition of a stream (SVR4.2 `streamio(7)`, the errors of each command; `read(2)`, `write(2)`,
//! `getmsg(2)`, `putmsg(2)`), and every type of message through modules (DDI/DKI `messages(D5)`, `put(D2)`).

use std::time::{Duration, Instant};

use streams::drivers::Mux;
use streams::modules::{BufMod, NullMod, PipeMod};
use streams::{
    Control, CopyRequest, Credentials, Errno, Flush, HeadOptions, IocAck, IocData, IocNak, Ioctl,
    IoctlRequest, Kind, LinkError, Message, Module, Passed, PopError, PushError, ReadError, Select, SendInfo,
    Signal, Which, WriteError,
};

use crate::support::{Rig, data, epoch, text};

const CONDITIONS: [&str; 8] =
    ["open", "hung up", "read error", "write error", "both errors", "linked", "closed", "hung up with data"];

fn bring(rig: &mut Rig, condition: &str) {
    let error = |read: Option<u16>, write: Option<u16>| {
        let errno = |number: Option<u16>| number.map(|number| Errno(number.into()));
        Message::new(Kind::Error { read: errno(read), write: errno(write) })
    };
    match condition {
        "open" => {}
        "hung up" => rig.device(|cx, s| cx.hangup(s)),
        "read error" => rig.up(error(Some(5), None)),
        "write error" => rig.up(error(None, Some(5))),
        "both errors" => rig.up(error(Some(5), Some(5))),
        "linked" => {
            let mux = rig.executive.add_driver("mux", Box::new(Mux::default()));
            let upper = rig.executive.open(mux).unwrap();
            rig.executive.link(upper, rig.s, false).unwrap();
        }
        "closed" => rig.executive.at(epoch()).close(rig.s),
        _ => {
            rig.data_up("data");
            rig.device(|cx, s| cx.hangup(s));
        }
    }
}

/// Returns the name of the errno that the page has for an outcome.
fn read_errno<T>(read: Result<Option<T>, ReadError>) -> &'static str {
    match read {
        Ok(Some(_)) => "some",
        Ok(None) => "none",
        Err(ReadError::Failed(errno)) if errno == Errno::EIO => "EIO",
        Err(ReadError::Failed(errno)) if errno == Errno::EINVAL => "EINVAL",
        Err(ReadError::HungUp) => "end",
        Err(ReadError::Closed) => "EBADF",
        Err(other) => panic!("{other}"),
    }
}

fn write_errno(written: Result<(), WriteError>) -> &'static str {
    match written {
        Ok(()) => "ok",
        Err(WriteError::Failed(errno)) if errno == Errno::EIO => "EIO",
        Err(WriteError::Failed(errno)) if errno == Errno::EINVAL => "EINVAL",
        Err(WriteError::HungUp) => "ENXIO",
        Err(WriteError::Closed) => "EBADF",
        Err(other) => panic!("{other}"),
    }
}

fn push_errno(pushed: Result<(), PushError>) -> &'static str {
    match pushed {
        Ok(()) => "ok",
        Err(PushError::HungUp) => "ENXIO",
        Err(PushError::Failed(errno)) if errno == Errno::EIO => "EIO",
        Err(PushError::Failed(errno)) if errno == Errno::EINVAL => "EINVAL",
        Err(PushError::Closed) => "EBADF",
        Err(other) => panic!("{other}"),
    }
}

fn link_errno(linked: Result<streams::LinkId, LinkError>) -> &'static str {
    match linked.map_err(LinkError::errno) {
        Ok(_) => "ok",
        Err(Errno::EINVAL) => "EINVAL",
        Err(Errno::ENXIO) => "ENXIO",
        Err(Errno::EIO) => "EIO",
        Err(Errno::EBADF) => "EBADF",
        Err(other) => panic!("{other}"),
    }
}

type Operation = fn(&mut Rig) -> &'static str;

/// Each operation, and its outcome in each of [`CONDITIONS`].
#[rustfmt::skip]
const TABLE: [(&str, Operation, [&str; 8]); 14] = [
("read", |rig| read_errno(rig.executive.read(rig.s, &mut [0; 9])),
["none", "end", "EIO", "none", "EIO", "EINVAL", "EBADF", "some"]),
("getmsg", |rig| read_errno(rig.executive.getmsg(rig.s)),
["none", "end", "EIO", "none", "EIO", "EINVAL", "EBADF", "some"]),
("getpmsg", |rig| read_errno(rig.executive.getpmsg(rig.s, Select::Band(0))),
["none", "end", "EIO", "none", "EIO", "EINVAL", "EBADF", "some"]),
("peek", |rig| read_errno(rig.executive.peek(rig.s, &mut [0; 9])),
["none", "end", "EIO", "none", "EIO", "EINVAL", "EBADF", "some"]),
("write", |rig| write_errno(rig.write("x")),
["ok", "ENXIO", "ok", "EIO", "EIO", "EINVAL", "EBADF", "ENXIO"]),
("write_bytes", |rig| write_errno(rig.executive.write_bytes(rig.s, Which::Only, SendInfo::default(), vec![1].into(), Instant::now)),
["ok", "ENXIO", "ok", "EIO", "EIO", "EINVAL", "EBADF", "ENXIO"]),
("putmsg", |rig| write_errno(rig.executive.at(epoch()).putmsg(rig.s, Message::data(vec![1])).map_err(|r| r.error)),
["ok", "ENXIO", "ok", "EIO", "EIO", "EINVAL", "EBADF", "ENXIO"]),
("putmsg of high priority", |rig| {
let m = Message::new(Kind::PcProto(Control::from(&b"c"[..])));
write_errno(rig.executive.at(epoch()).putmsg(rig.s, m).map_err(|r| r.error))
}, ["ok", "ENXIO", "ok", "EIO", "EIO", "EINVAL", "EBADF", "ENXIO"]),
("I_SENDFD", |rig| write_errno(rig.executive.send_passed(rig.s, 1, Credentials::ROOT)),
["ok", "ENXIO", "ok", "EIO", "EIO", "EINVAL", "EBADF", "ENXIO"]),
("I_PUSH", |rig| push_errno(rig.executive.push(rig.s, Box::new(NullMod))),
["ok", "ENXIO", "ok", "EIO", "EIO", "EINVAL", "EBADF", "ENXIO"]),
("I_POP", |rig| match rig.executive.pop(rig.s).map(drop) {
Err(PopError::NoModule) => "EINVAL",
Err(PopError::Busy) => "EBUSY",
Err(PopError::Closed) => "EBADF",
other => panic!("{other:?}"),
}, ["EINVAL", "EINVAL", "EINVAL", "EINVAL", "EINVAL", "EINVAL", "EBADF", "EINVAL"]),
("I_STR", |rig| match rig.executive.ioctl_begin(rig.s, IoctlRequest::str(1, Vec::<u8>::new())) {
Ok(_) => "ok",
Err(streams::IoctlError::HungUp) => "ENXIO",
Err(streams::IoctlError::Failed(errno)) if errno == Errno::EIO => "EIO",
Err(streams::IoctlError::Failed(errno)) if errno == Errno::EINVAL => "EINVAL",
Err(streams::IoctlError::Closed) => "EBADF",
Err(other) => panic!("{other}"),
}, ["ok", "ENXIO", "ok", "EIO", "EIO", "EINVAL", "EBADF", "ENXIO"]),
("I_LINK below another", |rig| {
let mux = rig.executive.add_driver("another mux", Box::new(Mux::default()));
let upper = rig.executive.open(mux).unwrap();
link_errno(rig.executive.link(upper, rig.s, false))
}, ["ok", "ENXIO", "ok", "EIO", "EIO", "EINVAL", "EBADF", "ENXIO"]),
("I_LINK, no multiplexor", |rig| {
let lower = rig.executive.add_driver("lower", Box::new(streams::drivers::Nuls));
let lower = rig.executive.open(lower).unwrap();
link_errno(rig.executive.link(rig.s, lower, false))
}, ["EINVAL", "ENXIO", "EINVAL", "EIO", "EIO", "EINVAL", "EBADF", "ENXIO"]),
];

#[test]
fn each_operation_fails_in_each_condition_as_its_page_says() {
    let mut wrong = Vec::new();
    for (name, operation, outcomes) in TABLE {
        for (condition, expected) in CONDITIONS.into_iter().zip(outcomes) {
            let mut rig = Rig::new();
            bring(&mut rig, condition);
            let outcome = operation(&mut rig);
            if outcome != expected {
                wrong.push(format!("{name}, {condition}: {outcome}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns one message of each type that a driver or the head sends, except `M_FLUSH` and those that the head itself handles.
fn of_each_type() -> Vec<Message> {
    let ioctl = Ioctl::default();
    let copy = || Box::new(CopyRequest { id: 7, address: 1, bytes: 2, private: 3 });
    let kinds = vec![
        Kind::Data,
        Kind::Proto(Control::from(&b"c"[..])),
        Kind::Break,
        Kind::PassFp(Passed { number: 1, stream: None, credentials: Credentials::ROOT }),
        Kind::Event,
        Kind::Sig(Signal(2)),
        Kind::Delay(Duration::from_millis(1)),
        Kind::Ctl,
        Kind::Ioctl(Box::new(Ioctl { command: 99, ..ioctl })),
        Kind::Setopts(Box::<HeadOptions>::default()),
        Kind::Rse,
        Kind::PcProto(Control::from(&b"c"[..])),
        Kind::PcSig(Signal(2)),
        Kind::Read { bytes: 9 },
        Kind::Stop,
        Kind::Start,
        Kind::StopI,
        Kind::StartI,
        Kind::IocAck(IocAck { id: 7, value: 1 }),
        Kind::IocNak(IocNak { id: 7, errno: Errno::EIO }),
        Kind::CopyIn(copy()),
        Kind::CopyOut(copy()),
        Kind::IocData(Box::new(IocData { ioctl, private: 3, result: Ok(()) })),
        Kind::Error { read: Some(Errno::EIO), write: None },
        Kind::Hangup,
        Kind::PcRse,
    ];
    kinds.into_iter().map(|kind| Message::with_data(kind, b"data".to_vec().into())).collect()
}

/// Records what comes up to it.
struct Catcher(std::sync::Arc<std::sync::Mutex<Vec<Message>>>);

impl Module for Catcher {
    fn name(&self) -> &str {
        "catcher"
    }
    fn rput(&mut self, q: &mut streams::Q<'_>, m: Message) {
        self.0.lock().unwrap().push(m.clone());
        q.freemsg(m);
    }
}

#[test]
fn each_type_of_message_passes_each_module_unchanged_both_ways() {
    let modules: [fn() -> Box<dyn Module>; 3] =
        [|| Box::new(NullMod), || Box::new(BufMod::default()), || Box::new(PipeMod)];
    for make in modules {
        for m in of_each_type() {
            let mut rig = Rig::new();
            rig.executive.push(rig.s, make()).unwrap();
            let caught = std::sync::Arc::default();
            rig.executive.push(rig.s, Box::new(Catcher(std::sync::Arc::clone(&caught)))).unwrap();
            rig.up(m.clone());
            rig.executive.at(epoch()).run();
            assert_eq!(*caught.lock().unwrap(), std::slice::from_ref(&m), "up");
            let mut rig = Rig::new();
            rig.executive.push(rig.s, make()).unwrap();
            rig.executive.at(epoch()).putmsg(rig.s, m.clone()).unwrap();
            rig.executive.at(epoch()).run();
            assert_eq!(rig.state().received, [m], "down");
        }
    }
}

/// The messages of a queue that each kind of flush discards (`M_FLUSH`, `flushq(D3)`, `flushband(D3)`): FLUSHDATA those with
/// user data, FLUSHALL all, and a band only its own.
#[test]
fn each_flush_discards_what_its_page_says() {
    let queued = || {
        [
            data("0"),
            data("1").in_band(1),
            data("2").in_band(2),
            Message::with_data(
                Kind::PassFp(Passed { number: 1, stream: None, credentials: Credentials::ROOT }),
                b"p".to_vec().into(),
            ),
            Message::with_data(Kind::PcProto(Control::from(&b"c"[..])), b"h".to_vec().into()),
        ]
    };
    let cases: [(Option<u8>, bool, bool, &str); 12] = [
        (None, true, true, ""),
        (None, false, true, "p"),
        (Some(0), true, true, "h21"),
        (Some(0), false, true, "h21p"),
        (Some(1), true, true, "h20p"),
        (Some(1), false, true, "h20p"),
        (Some(2), true, true, "h10p"),
        (Some(3), true, true, "h210p"),
        (Some(3), false, true, "h210p"),
        (None, true, false, "h210p"),
        (None, false, false, "h210p"),
        (Some(1), true, false, "h210p"),
    ];
    for (band, all, read, left) in cases {
        let mut rig = Rig::new();
        queued().into_iter().for_each(|m| rig.up(m));
        rig.up(Message::new(Kind::Flush(Flush { read, write: !read, band, all })));
        rig.executive.at(epoch()).run();
        let mut found = String::new();
        while let Some(m) = rig.executive.getmsg(rig.s).unwrap() {
            found += &text(&m);
        }
        assert_eq!(found, left, "band {band:?}, all {all}, read {read}");
    }
}
