//! A program that manages the options of its stream with any list of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use streams::{Control, Kind, Message, StreamId};
use tpi::options::{Action, T_ALLOPT, T_INET_IP, T_INET_SCTP, TransportOption, XTI_GENERIC};
use tpi::{Optmgmt, Primitive, PrimitiveCode, TError};

use crate::putmsg::Program;

const ACTIONS: [Action; 4] = [Action::Negotiate, Action::Check, Action::Default, Action::Current];
const LEVELS: [u32; 3] = [XTI_GENERIC, T_INET_IP, T_INET_SCTP];
const PORT: u16 = 5000;

/// Puts a list of options, whose first byte says with which action and on which kind of stream. The request is acknowledged
/// or refused; the overall result is the worst single one; a check, a question and a refused request change nothing.
pub fn options(bytes: &[u8]) {
    let Some((first, options)) = bytes.split_first() else { return };
    let action = ACTIONS[usize::from(first % 4)];
    let mut program = Program::new();
    let s = match first / 4 % 3 {
        0 => program.streams[0],
        1 => listen(&mut program),
        _ => connect(&mut program),
    };
    let before = current(&mut program, s);
    let request = Optmgmt { flags: action as u32, options: options.to_vec() };
    match ask(&mut program, s, Primitive::OptmgmtReq(Box::new(request))) {
        Primitive::OptmgmtAck(answer) => {
            check(&answer);
            assert!(
                action == Action::Negotiate || current(&mut program, s) == before,
                "{action:?} changes options"
            );
        }
        Primitive::ErrorAck { primitive: PrimitiveCode::OptmgmtReq, t_error: TError::BadOption, .. } => {
            assert_eq!(current(&mut program, s), before, "a refused request has changed something");
        }
        other => panic!("{other:?}"),
    }
    program.run_until_idle();
}

/// Checks that an answer can be read, and that its result is that of its worst option.
fn check(answer: &Optmgmt) {
    const FROM_BEST_TO_WORST: [u32; 5] = [0x020, 0x100, 0x040, 0x200, 0x400];
    let options = TransportOption::read_list(&answer.options).expect("a list of options");
    let mut at = 0;
    let mut worst = 0;
    for option in options {
        let status = answer.options[at + 12..].first_chunk().copied().map(u32::from_ne_bytes);
        let rank = FROM_BEST_TO_WORST.iter().position(|known| Some(*known) == status);
        worst = worst.max(rank.expect("a status of XTI"));
        at = (at + 16 + option.value.len()).next_multiple_of(4);
    }
    assert_eq!(answer.flags, FROM_BEST_TO_WORST[worst]);
}

/// Returns the values of all options.
fn current(program: &mut Program, s: StreamId) -> Vec<Primitive> {
    let all = LEVELS.map(|level| {
        let mut options = Vec::new();
        let all = TransportOption { level, name: T_ALLOPT, value: &[] };
        all.write(tpi::options::Status::Success, &mut options);
        Primitive::OptmgmtReq(Box::new(Optmgmt { flags: Action::Current as u32, options }))
    });
    all.map(|request| ask(program, s, request)).to_vec()
}

fn address() -> Box<tpi::Addresses> {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT).into()
}

fn listen(program: &mut Program) -> StreamId {
    let s = program.streams[0];
    ask(program, s, Primitive::BindReq { addresses: address(), backlog: 5 });
    s
}

fn connect(program: &mut Program) -> StreamId {
    listen(program);
    let s = program.streams[1];
    ask(program, s, Primitive::ConnReq { addresses: address() });
    program.run_until_idle();
    let up = take(program, s);
    assert!(matches!(up, Some(Primitive::ConnCon { .. })), "{up:?}");
    s
}

fn ask(program: &mut Program, s: StreamId, primitive: Primitive) -> Primitive {
    program.executive.at(program.now).putmsg(s, Message::proto(primitive)).expect("the provider takes it");
    take(program, s).expect("it answers at once")
}

fn take(program: &mut Program, s: StreamId) -> Option<Primitive> {
    let m = program.executive.getmsg(s).expect("the stream is well")?;
    match m.kind {
        Kind::Proto(Control::Tpi(primitive)) | Kind::PcProto(Control::Tpi(primitive)) => Some(primitive),
        other => panic!("{other:?}"),
    }
}
