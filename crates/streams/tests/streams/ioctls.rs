//! The conversation of an ioctl (SVR4.2 STREAMS programmer's guide, "I_STR processing", "Transparent ioctl messages").

use std::time::{Duration, Instant};

use streams::{
    Chain, Credentials, Errno, IocData, IoctlArgument, IoctlError, IoctlReply, IoctlRequest, IoctlStep, Kind,
    Message, Module, Q,
};

use crate::support::Rig;

/// Copies 8 bytes in from the argument, and copies them out, doubled, to the address that they hold.
struct Doubling;

const COPIED_IN: u64 = 1;
const COPIED_OUT: u64 = 2;

impl Module for Doubling {
    fn name(&self) -> &str {
        "doubling"
    }
    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        match &m.kind {
            Kind::Ioctl(ioctl) => match ioctl.argument {
                IoctlArgument::Transparent(address) => q.copyin(ioctl, address, 8, COPIED_IN),
                IoctlArgument::Str => q.nak(ioctl, Errno::EINVAL),
            },
            Kind::IocData(answer) => self.answered(q, answer, &m.data),
            _ => q.pass(m),
        }
    }
}

impl Doubling {
    fn answered(&self, q: &mut Q<'_>, answer: &IocData, data: &Chain) {
        match (answer.result, answer.private) {
            (Err(errno), _) => q.nak(&answer.ioctl, errno),
            (Ok(()), COPIED_IN) => {
                let address = data.to_vec().try_into().map_or(0, u64::from_ne_bytes);
                q.copyout(
                    &answer.ioctl,
                    address,
                    Chain::from([data.to_vec(), data.to_vec()].concat()),
                    COPIED_OUT,
                );
            }
            (Ok(()), _) => q.ack(&answer.ioctl, 42, Chain::new()),
        }
    }
}

fn doubling() -> Rig {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(Doubling)).unwrap();
    rig
}

#[test]
fn a_transparent_ioctl_copies_in_and_out() {
    let mut rig = doubling();
    let step = rig.executive.ioctl_begin(rig.s, IoctlRequest::transparent(7, 0x1000)).unwrap();
    assert_eq!(step, IoctlStep::CopyIn { address: 0x1000, bytes: 8 });
    assert_eq!(rig.executive.ioctl_step(rig.s), Ok(step), "until the caller has copied");
    let value = 0x2000u64.to_ne_bytes();
    let step = rig.executive.ioctl_copied(rig.s, Ok(Chain::from(value.to_vec()))).unwrap();
    let doubled = Chain::from([value, value].concat());
    assert_eq!(step, IoctlStep::CopyOut { address: 0x2000, data: doubled });
    let step = rig.executive.ioctl_copied(rig.s, Ok(Chain::new())).unwrap();
    assert_eq!(step, IoctlStep::Done(IoctlReply { value: 42, data: Chain::new() }));
}

#[test]
fn a_caller_that_cannot_copy_says_why() {
    let mut rig = doubling();
    rig.executive.ioctl_begin(rig.s, IoctlRequest::transparent(7, 1)).unwrap();
    let refused = rig.executive.ioctl_copied(rig.s, Err(Errno::EFAULT));
    assert_eq!(refused, Err(IoctlError::Refused(Errno::EFAULT)));
}

#[test]
fn a_module_that_asks_for_a_copy_too_late_is_told() {
    let mut rig = Rig::new();
    rig.executive.ioctl_begin(rig.s, IoctlRequest::str(3, Chain::new())).unwrap();
    let Kind::Ioctl(ioctl) = rig.state().received[0].kind.clone() else { panic!("the driver has an ioctl") };
    rig.executive.cancel_ioctl(rig.s);
    rig.device(|cx, s| cx.copyin(s, &ioctl, 5, 4, 77));
    let Kind::IocData(answer) = rig.state().received[1].kind.clone() else { panic!("the driver is told") };
    assert_eq!((answer.ioctl.id, answer.private, answer.result), (ioctl.id, 77, Err(Errno::EINTR)));
}

#[test]
fn an_ioctl_without_an_answer_ends_with_etime() {
    let mut rig = Rig::new();
    let start = Instant::now();
    let request = IoctlRequest::str(3, Chain::new()).within(Duration::from_secs(5));
    assert_eq!(rig.executive.ioctl_begin(rig.s, request), Ok(IoctlStep::Pending));
    rig.executive.timeout(start);
    assert_eq!(rig.executive.deadline(), Some(start + Duration::from_secs(5)), "the one deadline");
    rig.executive.timeout(start + Duration::from_secs(4));
    assert_eq!(rig.executive.ioctl_step(rig.s), Ok(IoctlStep::Pending));
    rig.executive.timeout(start + Duration::from_secs(5));
    assert_eq!(rig.executive.ioctl_step(rig.s), Err(IoctlError::Refused(Errno::ETIME)));
    assert_eq!(rig.executive.deadline(), None);
    assert!(rig.executive.ioctl(rig.s, 1, Chain::new()).unwrap().is_some(), "the next one is free to go");
}

#[test]
fn an_answer_in_time_stops_the_timer() {
    let mut rig = Rig::new();
    let start = Instant::now();
    for _ in 0..3 {
        assert!(rig.executive.ioctl(rig.s, 1, Chain::new()).unwrap().is_some());
    }
    rig.executive.timeout(start);
    rig.executive.timeout(start + 2 * IoctlRequest::TIMEOUT);
    assert_eq!(rig.executive.ioctl_reply(rig.s), Ok(None));
}

#[test]
fn the_driver_knows_the_caller() {
    let mut rig = Rig::new();
    let caller = Credentials { uid: 1000, gid: 100 };
    rig.executive.ioctl_begin(rig.s, IoctlRequest::str(3, Chain::new()).by(caller)).unwrap();
    let Kind::Ioctl(ioctl) = rig.state().received[0].kind.clone() else { panic!("the driver has an ioctl") };
    assert_eq!(ioctl.credentials, caller);
}
