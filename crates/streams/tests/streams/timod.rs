//! Requests of a transport user as ioctls: `timod(7)` of SVR4.2, `timod(4)` of Fast-STREAMS.

use std::net::SocketAddr;

use streams::modules::{self, TiMod};
use streams::{
    Chain, Control, Errno, IoctlError, IoctlReply, IoctlRequest, IoctlStep, Kind, Message, Primitive,
};
use tpi::{Addresses, Info, Optmgmt, PrimitiveCode, TError};

use crate::support::Rig;

fn rig() -> Rig {
    let mut rig = Rig::new();
    modules::add_all(&mut rig.executive);
    rig.executive.push_named(rig.s, "timod", &[]).unwrap();
    rig
}

fn address() -> Addresses {
    "192.0.2.1:5000".parse::<SocketAddr>().unwrap().into()
}

/// Returns the primitive that the driver has got last.
fn asked(rig: &Rig) -> Primitive {
    match &rig.state().received.last().unwrap().kind {
        Kind::Proto(Control::Tpi(primitive)) => primitive.clone(),
        other => panic!("{other:?}"),
    }
}

/// Asks by ioctl, and has the driver answer with a primitive.
fn ask(rig: &mut Rig, command: u32, request: &Primitive, answer: Primitive) -> IoctlReply {
    assert_eq!(
        rig.executive.ioctl(rig.s, command, request.encode()),
        Ok(None),
        "the provider has not answered"
    );
    assert_eq!(asked(rig), *request);
    rig.up(Message::pc_proto(answer));
    rig.executive.ioctl_reply(rig.s).unwrap().unwrap()
}

/// TI_GETINFO, TI_OPTMGMT, TI_BIND, TI_UNBIND, TI_GETADDRS, TI_CAPABILITY: the acknowledgement is the data of the reply.
#[test]
fn a_request_goes_to_the_provider_and_its_acknowledgement_is_the_reply() {
    let bind = Primitive::BindReq { addresses: Box::new(address()), backlog: 3 };
    let options = Box::new(Optmgmt { flags: 4, options: Vec::new() });
    let cases = [
        (
            TiMod::GETINFO,
            Primitive::InfoReq,
            Primitive::InfoAck(Box::new(Info { service: tpi::T_COTS_ORD, ..Info::default() })),
        ),
        (TiMod::OPTMGMT, Primitive::OptmgmtReq(options.clone()), Primitive::OptmgmtAck(options)),
        (TiMod::BIND, bind, Primitive::BindAck { addresses: Box::new(address()), backlog: 2 }),
        (TiMod::UNBIND, Primitive::UnbindReq, Primitive::OkAck { primitive: PrimitiveCode::UnbindReq }),
        (
            TiMod::GETADDRS,
            Primitive::AddrReq,
            Primitive::AddrAck { local: Box::new(address()), remote: Box::default() },
        ),
        (
            TiMod::CAPABILITY,
            Primitive::CapabilityReq { bits: 1 },
            Primitive::CapabilityAck { bits: 1, info: Box::default(), acceptor: 0 },
        ),
    ];
    let mut rig = rig();
    for (command, request, answer) in cases {
        let reply = ask(&mut rig, command, &request, answer.clone());
        assert_eq!(reply, IoctlReply { value: 0, data: Chain::from(answer.encode()) }, "{request:?}");
        assert_eq!(rig.executive.getmsg(rig.s), Ok(None), "nothing else comes up");
    }
}

/// "The low-order 8 bits of the return value are the transport error; where it is TSYSERR, the next 8 bits are the system error."
#[test]
fn a_refusal_is_the_value_of_the_reply() {
    let mut rig = rig();
    let refusal =
        |t_error, errno| Primitive::ErrorAck { primitive: PrimitiveCode::UnbindReq, t_error, errno };
    let reply = ask(&mut rig, TiMod::UNBIND, &Primitive::UnbindReq, refusal(TError::OutOfState, Errno(0)));
    assert_eq!(reply, IoctlReply { value: 6, data: Chain::new() });
    let system = refusal(TError::System, Errno::ENOMEM);
    assert_eq!(ask(&mut rig, TiMod::UNBIND, &Primitive::UnbindReq, system).value, 8 | 12 << 8);
}

/// TI_SYNC: the information of the provider, and how many connect indications may wait.
#[test]
fn a_synchronization_tells_the_backlog_that_the_endpoint_was_bound_with() {
    let mut rig = rig();
    rig.up(Message::pc_proto(Primitive::BindAck { addresses: Box::default(), backlog: 7 }));
    assert!(rig.executive.getmsg(rig.s).unwrap().is_some(), "an answer to a primitive passes");
    let info = Primitive::InfoAck(Box::default());
    assert_eq!(rig.executive.ioctl(rig.s, TiMod::SYNC, 1u32.to_ne_bytes().to_vec()), Ok(None));
    assert_eq!(asked(&rig), Primitive::InfoReq);
    rig.up(Message::pc_proto(info.clone()));
    let reply = rig.executive.ioctl_reply(rig.s).unwrap().unwrap().data.to_vec();
    let (ack, rest) = reply.split_at(reply.len() - 8);
    assert_eq!((ack, rest), (&info.encode()[..], &[7u32, 0].map(u32::to_ne_bytes).concat()[..]));
}

/// "EINVAL: the argument is not the request of the command."
#[test]
fn an_argument_that_is_not_the_request_is_refused() {
    let mut rig = rig();
    let refused = Err(IoctlError::Refused(Errno::EINVAL));
    assert_eq!(rig.executive.ioctl(rig.s, TiMod::BIND, Primitive::UnbindReq.encode()), refused);
    assert_eq!(rig.executive.ioctl(rig.s, TiMod::BIND, b"short".to_vec()), refused);
    assert_eq!(rig.executive.ioctl(rig.s, TiMod::GETMYNAME, vec![0; 16]), refused, "it is transparent");
    assert!(rig.state().received.is_empty());
}

/// "All other messages pass."
#[test]
fn other_messages_pass_the_module() {
    let mut rig = rig();
    assert_eq!(rig.executive.ioctl(rig.s, 1, b"to the driver".to_vec()).unwrap().unwrap().value, 7);
    rig.write("data").unwrap();
    rig.data_up("answer");
    assert_eq!((rig.received(), rig.read_all()), (vec!["data".to_owned()], vec!["answer".to_owned()]));
    assert_eq!(rig.executive.ioctl(rig.s, TiMod::UNBIND, Primitive::UnbindReq.encode()), Ok(None));
    let other = Primitive::OkAck { primitive: PrimitiveCode::ConnReq };
    rig.up(Message::pc_proto(other.clone()));
    let m = rig.executive.getmsg(rig.s).unwrap().unwrap();
    assert!(matches!(m.kind, Kind::PcProto(control) if control == other), "it answers another request");
    assert_eq!(rig.executive.ioctl_reply(rig.s), Ok(None), "and not the ioctl");
}

/// An ioctl that was given up leaves its request with the provider.
#[test]
fn a_request_waits_for_the_answer_to_the_one_before() {
    let mut rig = rig();
    let start = std::time::Instant::now();
    rig.executive.timeout(start);
    assert_eq!(rig.executive.ioctl(rig.s, TiMod::UNBIND, Primitive::UnbindReq.encode()), Ok(None));
    rig.executive.timeout(start);
    rig.executive.timeout(start + IoctlRequest::TIMEOUT);
    assert_eq!(rig.executive.ioctl_reply(rig.s), Err(IoctlError::Refused(Errno::ETIME)));
    let second = rig.executive.ioctl(rig.s, TiMod::GETINFO, Primitive::InfoReq.encode());
    assert_eq!(second, Err(IoctlError::Refused(Errno::EBUSY)));
    rig.up(Message::pc_proto(Primitive::OkAck { primitive: PrimitiveCode::UnbindReq }));
    assert_eq!(rig.executive.getmsg(rig.s), Ok(None), "the late answer is not for the reader");
    assert_eq!(rig.executive.ioctl(rig.s, TiMod::GETINFO, Primitive::InfoReq.encode()), Ok(None));
}

/// TI_GETMYNAME, TI_GETPEERNAME: M_COPYIN of the netbuf, M_COPYOUT of the name and of its length.
#[test]
fn a_name_is_written_to_the_callers_netbuf() {
    for (command, room_bytes, fits) in
        [(TiMod::GETMYNAME, 16u32, true), (TiMod::GETPEERNAME, 64, true), (TiMod::GETMYNAME, 15, false)]
    {
        let mut rig = rig();
        let step = rig.executive.ioctl_begin(rig.s, IoctlRequest::transparent(command, 0x1000));
        assert_eq!(step, Ok(IoctlStep::CopyIn { address: 0x1000, bytes: 16 }));
        let netbuf = [&room_bytes.to_ne_bytes()[..], &[0; 4], &0x2000u64.to_ne_bytes()].concat();
        assert_eq!(rig.executive.ioctl_copied(rig.s, Ok(netbuf.into())), Ok(IoctlStep::Pending));
        assert_eq!(asked(&rig), Primitive::AddrReq);
        let remote: Addresses = "192.0.2.9:6000".parse::<SocketAddr>().unwrap().into();
        rig.up(Message::pc_proto(Primitive::AddrAck {
            local: Box::new(address()),
            remote: Box::new(remote),
        }));
        let step = rig.executive.ioctl_step(rig.s);
        if !fits {
            assert_eq!(step, Err(IoctlError::Refused(Errno::ERANGE)), "the name has 16 bytes");
            continue;
        }
        let Ok(IoctlStep::CopyOut { address: 0x2000, data }) = step else { panic!("{step:?}") };
        let last = if command == TiMod::GETMYNAME { 1 } else { 9 };
        assert_eq!(data.to_vec()[4..8], [192, 0, 2, last], "sin_addr");
        let step = rig.executive.ioctl_copied(rig.s, Ok(Chain::new()));
        let length = Chain::from(16u32.to_ne_bytes().to_vec());
        assert_eq!(step, Ok(IoctlStep::CopyOut { address: 0x1004, data: length }));
        let step = rig.executive.ioctl_copied(rig.s, Ok(Chain::new()));
        assert_eq!(step, Ok(IoctlStep::Done(IoctlReply { value: 0, data: Chain::new() })));
    }
}

/// An address that the caller cannot read ends the conversation.
#[test]
fn a_netbuf_that_cannot_be_read_is_a_fault() {
    let mut rig = rig();
    rig.executive.ioctl_begin(rig.s, IoctlRequest::transparent(TiMod::GETMYNAME, 0)).unwrap();
    let step = rig.executive.ioctl_copied(rig.s, Err(Errno::EFAULT));
    assert_eq!(step, Err(IoctlError::Refused(Errno::EFAULT)));
    assert!(rig.state().received.is_empty());
}
