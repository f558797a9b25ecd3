//! Ioctls and signals (`streamio(7)` I_STR; SVR4.2 DDI/DKI `messages(D5)` M_SIG, M_PCSIG, M_SETOPTS).

use streams::{
    Chain, Errno, HeadOptions, Interest, IoctlError, IoctlReply, Kind, Message, Module, Q, ReadMode, Signal,
};

use crate::support::{Rig, data};

#[test]
fn a_driver_answers_an_ioctl() {
    let mut rig = Rig::new();
    let reply = rig.executive.ioctl(rig.s, 1, vec![1, 2, 3]).unwrap();
    assert_eq!(reply, Some(IoctlReply { value: 7, data: Chain::from(vec![1, 2, 3]) }));
    assert_eq!(rig.executive.ioctl(rig.s, 2, Chain::new()), Err(IoctlError::Refused(Errno::EINVAL)));
}

#[test]
fn an_answer_may_come_later() {
    let mut rig = Rig::new();
    assert_eq!(rig.executive.ioctl(rig.s, 3, Chain::new()), Ok(None));
    assert_eq!(rig.executive.ioctl(rig.s, 1, Chain::new()), Err(IoctlError::Busy), "one at a time");
    assert_eq!(rig.executive.ioctl_reply(rig.s), Ok(None));
    rig.executive.want(rig.s, Interest::PRIORITY);
    let Kind::Ioctl(ioctl) = rig.state().received[0].kind.clone() else { panic!("the driver got an ioctl") };
    rig.device(|cx, s| cx.ack(s, &ioctl, 5, Chain::new()));
    let mut woken = Vec::new();
    rig.executive.take_wakeups(&mut woken);
    assert_eq!(woken, [rig.s]);
    assert_eq!(rig.executive.ioctl_reply(rig.s), Ok(Some(IoctlReply { value: 5, data: Chain::new() })));
    assert!(rig.executive.ioctl(rig.s, 1, Chain::new()).unwrap().is_some());
}

#[test]
fn an_answer_that_nobody_waits_for_is_thrown_away() {
    let mut rig = Rig::new();
    assert_eq!(rig.executive.ioctl(rig.s, 3, Chain::new()), Ok(None));
    let Kind::Ioctl(late) = rig.state().received[0].kind.clone() else { panic!("the driver got an ioctl") };
    rig.executive.cancel_ioctl(rig.s);
    assert_eq!(rig.executive.ioctl(rig.s, 3, Chain::new()), Ok(None));
    rig.device(|cx, s| cx.ack(s, &late, 5, Chain::new()));
    assert_eq!(rig.executive.ioctl_reply(rig.s), Ok(None), "that was the answer to the first");
}

#[test]
fn a_stream_that_ends_answers_nothing() {
    let mut rig = Rig::new();
    assert_eq!(rig.executive.ioctl(rig.s, 3, Chain::new()), Ok(None));
    rig.device(|cx, s| cx.hangup(s));
    assert_eq!(rig.executive.ioctl_reply(rig.s), Err(IoctlError::HungUp));
    assert_eq!(rig.executive.ioctl(rig.s, 1, Chain::new()), Err(IoctlError::HungUp));
}

/// Sends ioctls back up as they are, which no module should.
struct Turning;

impl Module for Turning {
    fn name(&self) -> &str {
        "turning"
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        q.qreply(m);
    }
}

#[test]
fn an_ioctl_that_comes_back_is_refused() {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(Turning)).unwrap();
    assert_eq!(rig.executive.ioctl(rig.s, 1, Chain::new()), Err(IoctlError::Refused(Errno::EINVAL)));
}

#[test]
fn a_signal_is_delivered_when_the_data_before_it_is_read() {
    let mut rig = Rig::new();
    rig.data_up("before");
    rig.up(Message::new(Kind::Sig(Signal(2))));
    rig.up(data("after"));
    assert_eq!(rig.executive.take_signal(rig.s), None);
    assert_eq!(rig.read(100).unwrap().0, "before");
    assert_eq!(rig.executive.take_signal(rig.s), Some(Signal(2)));
    assert_eq!(rig.executive.take_signal(rig.s), None);
    assert_eq!(rig.read(100).unwrap().0, "after");
    rig.up(Message::new(Kind::Sig(Signal(3))));
    assert_eq!(rig.executive.take_signal(rig.s), Some(Signal(3)), "nothing stands before it");
    assert_eq!(rig.read(100), None);
}

/// `messages(D5)`: M_SETOPTS changes the options that it names, and no others.
#[test]
fn a_driver_sets_options_of_the_head() {
    let mut rig = Rig::new();
    let before = rig.executive.head_options(rig.s).unwrap();
    let options = HeadOptions {
        read_mode: Some(ReadMode::MessageDiscard),
        hiwat_bytes: Some(9),
        lowat_bytes: Some(3),
        ..HeadOptions::default()
    };
    rig.up(Message::new(Kind::Setopts(Box::new(options))));
    let read_mode = Some(ReadMode::MessageDiscard);
    let expected = HeadOptions { read_mode, hiwat_bytes: Some(9), lowat_bytes: Some(3), ..before };
    assert_eq!(rig.executive.head_options(rig.s), Some(expected));
}
