//! Option management (XNS 5.2, `t_optmgmt` and "The use of options in XTI"; the options of OpenSS7's `xti_sctp.h`).

use crate::rig::{PORT, Rig};
use std::time::Duration;
use streams::{Errno, StreamId};
use tpi::options::generic::*;
use tpi::options::ip::*;
use tpi::options::sctp::*;
use tpi::options::{
    Action, Status, T_ALLOPT, T_INET_IP, T_INET_SCTP, T_UNSPEC, TransportOption, XTI_GENERIC,
};
use tpi::{Optmgmt, Primitive, PrimitiveCode, TError, Which};

/// An option in an answer: its name, its status, its value.
pub(crate) type Told = (u32, Status, Vec<u32>);

const ALL_STATUS: [Status; 5] =
    [Status::Success, Status::PartSuccess, Status::Failure, Status::ReadOnly, Status::NotSupported];

fn list(level: u32, options: &[(u32, &[u32])]) -> Vec<u8> {
    let mut list = Vec::new();
    for (name, words) in options {
        let value: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        TransportOption { level, name: *name, value: &value }.write(Status::Success, &mut list);
    }
    list
}

fn ask_with(rig: &mut Rig, s: StreamId, flags: u32, options: Vec<u8>) -> Primitive {
    rig.ask(s, &Primitive::OptmgmtReq(Box::new(Optmgmt { flags, options })))
}

fn status(number: u32) -> Status {
    ALL_STATUS.into_iter().find(|status| status.number() == number).unwrap()
}

fn told(answer: &[u8]) -> Vec<Told> {
    let options = TransportOption::read_list(answer).unwrap();
    let mut at = 0;
    let told = options.iter().map(|option| {
        let number = u32::from_ne_bytes(answer[at + 12..at + 16].try_into().unwrap());
        at = (at + 16 + option.value.len()).next_multiple_of(4);
        let words = match option.value {
            [byte] => vec![u32::from(*byte)],
            value => value.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect(),
        };
        (option.name, status(number), words)
    });
    told.collect()
}

fn ask_at(
    rig: &mut Rig,
    s: StreamId,
    action: Action,
    level: u32,
    options: &[(u32, &[u32])],
) -> (Status, Vec<Told>) {
    match ask_with(rig, s, action as u32, list(level, options)) {
        Primitive::OptmgmtAck(answer) => (status(answer.flags), told(&answer.options)),
        other => panic!("{other:?}"),
    }
}

/// Sends a request with options of the level of SCTP, and returns the answer.
pub(crate) fn ask(
    rig: &mut Rig,
    s: StreamId,
    action: Action,
    options: &[(u32, &[u32])],
) -> (Status, Vec<Told>) {
    ask_at(rig, s, action, T_INET_SCTP, options)
}

fn refused(rig: &mut Rig, s: StreamId, flags: u32, options: Vec<u8>) -> TError {
    match ask_with(rig, s, flags, options) {
        Primitive::ErrorAck { primitive: PrimitiveCode::OptmgmtReq, t_error, errno: Errno(0) } => t_error,
        other => panic!("{other:?}"),
    }
}

/// The options that the core supports.
const SUPPORTED: [u32; 28] = [
    T_SCTP_NODELAY,
    T_SCTP_PPI,
    T_SCTP_SID,
    T_SCTP_SSN,
    T_SCTP_TSN,
    T_SCTP_RECVOPT,
    T_SCTP_COOKIE_LIFE,
    T_SCTP_SACK_DELAY,
    T_SCTP_PATH_MAX_RETRANS,
    T_SCTP_ASSOC_MAX_RETRANS,
    T_SCTP_MAX_INIT_RETRIES,
    T_SCTP_HEARTBEAT_ITVL,
    T_SCTP_RTO_INITIAL,
    T_SCTP_RTO_MIN,
    T_SCTP_RTO_MAX,
    T_SCTP_OSTREAMS,
    T_SCTP_ISTREAMS,
    T_SCTP_CKSUM_TYPE,
    T_SCTP_ECN,
    T_SCTP_ALI,
    T_SCTP_LIFETIME,
    T_SCTP_MAX_BURST,
    T_SCTP_HB,
    T_SCTP_RTO,
    T_SCTP_MAXSEG,
    T_SCTP_STATUS,
    T_SCTP_SACK_FREQUENCY,
    0,
];

/// T_DEFAULT with T_ALLOPT: the protocol's constants of RFC 9260 §16, where they exist.
#[test]
fn defaults_are_those_of_the_protocol() {
    let mut rig = Rig::new();
    let s = rig.open();
    let (overall, options) = ask(&mut rig, s, Action::Default, &[(T_ALLOPT, &[])]);
    assert_eq!(overall, Status::ReadOnly, "some are");
    let names: Vec<u32> = options.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, SUPPORTED[..27]);
    let value = |name| options.iter().find(|option| option.0 == name).unwrap().2.clone();
    for (name, expected) in [
        (T_SCTP_NODELAY, vec![0]),
        (T_SCTP_COOKIE_LIFE, vec![60_000]),
        (T_SCTP_SACK_DELAY, vec![200]),
        (T_SCTP_PATH_MAX_RETRANS, vec![5]),
        (T_SCTP_ASSOC_MAX_RETRANS, vec![10]),
        (T_SCTP_MAX_INIT_RETRIES, vec![8]),
        (T_SCTP_HEARTBEAT_ITVL, vec![30_000]),
        (T_SCTP_RTO, vec![0, 1000, 1000, 60_000, 5]),
        (T_SCTP_HB, vec![0, 1, 30_000]),
        (T_SCTP_OSTREAMS, vec![10]),
        (T_SCTP_CKSUM_TYPE, vec![1]),
        (T_SCTP_LIFETIME, vec![T_UNSPEC]),
        (T_SCTP_SACK_FREQUENCY, vec![2]),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
}

/// T_CURRENT, T_DEFAULT: T_NOTSUPPORT without a value for options that the core does not support, at each level.
#[test]
fn options_that_the_core_lacks_are_not_supported() {
    let mut rig = Rig::new();
    let s = rig.open();
    let generic = [XTI_DEBUG, XTI_LINGER, XTI_SNDLOWAT, XTI_RCVLOWAT];
    let ip = [T_IP_OPTIONS, T_IP_TTL, T_IP_REUSEADDR, T_IP_DONTROUTE, T_IP_BROADCAST, T_IP_ADDR];
    let sctp: Vec<u32> = (1..=40).filter(|name| !SUPPORTED.contains(name)).collect();
    assert_eq!(sctp.len(), 13, "among them 40, which is no option's number");
    for (level, names) in [(XTI_GENERIC, &generic[..]), (T_INET_IP, &ip), (T_INET_SCTP, &sctp)] {
        for name in names {
            for action in [Action::Current, Action::Default] {
                let expected = (Status::NotSupported, vec![(*name, Status::NotSupported, Vec::new())]);
                assert_eq!(ask_at(&mut rig, s, action, level, &[(*name, &[7])]), expected, "{level} {name}");
            }
            let expected = (Status::NotSupported, vec![(*name, Status::NotSupported, vec![7])]);
            for action in [Action::Negotiate, Action::Check] {
                let answer = ask_at(&mut rig, s, action, level, &[(*name, &[7])]);
                assert_eq!(answer, expected, "{level} {name}: the value is that of the request");
            }
        }
    }
}

/// T_NEGOTIATE, then T_CURRENT: each option has the value that was set; T_DEFAULT still returns the default.
#[test]
fn each_option_keeps_what_was_negotiated() {
    let cases: &[(u32, u32, &[u32])] = &[
        (XTI_GENERIC, XTI_SNDBUF, &[100_000]),
        (XTI_GENERIC, XTI_RCVBUF, &[200_000]),
        (T_INET_SCTP, T_SCTP_NODELAY, &[1]),
        (T_INET_SCTP, T_SCTP_PPI, &[46]),
        (T_INET_SCTP, T_SCTP_SID, &[3]),
        (T_INET_SCTP, T_SCTP_COOKIE_LIFE, &[5000]),
        (T_INET_SCTP, T_SCTP_SACK_DELAY, &[20]),
        (T_INET_SCTP, T_SCTP_PATH_MAX_RETRANS, &[7]),
        (T_INET_SCTP, T_SCTP_ASSOC_MAX_RETRANS, &[12]),
        (T_INET_SCTP, T_SCTP_MAX_INIT_RETRIES, &[3]),
        (T_INET_SCTP, T_SCTP_HEARTBEAT_ITVL, &[1000]),
        (T_INET_SCTP, T_SCTP_RTO_INITIAL, &[3000]),
        (T_INET_SCTP, T_SCTP_RTO_MIN, &[100]),
        (T_INET_SCTP, T_SCTP_RTO_MAX, &[30_000]),
        (T_INET_SCTP, T_SCTP_OSTREAMS, &[40]),
        (T_INET_SCTP, T_SCTP_ISTREAMS, &[50]),
        (T_INET_SCTP, T_SCTP_ECN, &[0]),
        (T_INET_SCTP, T_SCTP_ALI, &[99]),
        (T_INET_SCTP, T_SCTP_LIFETIME, &[700]),
        (T_INET_SCTP, T_SCTP_MAX_BURST, &[4]),
        (T_INET_SCTP, T_SCTP_HB, &[0, 1, 9000]),
        (T_INET_SCTP, T_SCTP_HB, &[0, 0, 0]),
        (T_INET_SCTP, T_SCTP_RTO, &[0, 500, 200, 5000, 4]),
        (T_INET_SCTP, T_SCTP_SACK_FREQUENCY, &[6]),
    ];
    for &(level, name, value) in cases {
        let mut rig = Rig::new();
        let s = rig.open();
        let default = ask_at(&mut rig, s, Action::Default, level, &[(name, &[])]);
        assert_ne!(default.1[0].2, value);
        let expected = (Status::Success, vec![(name, Status::Success, value.to_vec())]);
        assert_eq!(ask_at(&mut rig, s, Action::Check, level, &[(name, value)]), expected, "{name}");
        assert_eq!(
            ask_at(&mut rig, s, Action::Current, level, &[(name, &[])]),
            default,
            "a check sets nothing"
        );
        assert_eq!(ask_at(&mut rig, s, Action::Negotiate, level, &[(name, value)]), expected, "{name}");
        assert_eq!(ask_at(&mut rig, s, Action::Current, level, &[(name, &[])]), expected, "{name}");
        assert_eq!(ask_at(&mut rig, s, Action::Default, level, &[(name, &[])]), default, "{name}");
        ask_at(&mut rig, s, Action::Negotiate, level, &[(T_ALLOPT, &[])]);
        assert_eq!(
            ask_at(&mut rig, s, Action::Current, level, &[(name, &[])]),
            default,
            "T_ALLOPT sets the default"
        );
    }
}

/// T_IP_TOS is a byte; the user cannot set the ECN bits.
#[test]
fn the_type_of_service_is_a_byte() {
    let mut rig = Rig::new();
    let s = rig.open();
    let tos = |byte: u8| {
        let mut list = Vec::new();
        TransportOption { level: T_INET_IP, name: T_IP_TOS, value: &[byte] }
            .write(Status::Success, &mut list);
        list
    };
    for (asked, status, value) in [(0x10, Status::Success, 0x10), (0x13, Status::PartSuccess, 0x10)] {
        let Primitive::OptmgmtAck(answer) = ask_with(&mut rig, s, Action::Negotiate as u32, tos(asked))
        else {
            panic!("it is refused");
        };
        assert_eq!(told(&answer.options), [(T_IP_TOS, status, vec![value])]);
    }
    let current = ask_at(&mut rig, s, Action::Current, T_INET_IP, &[(T_ALLOPT, &[])]);
    assert_eq!(current, (Status::Success, vec![(T_IP_TOS, Status::Success, vec![0x10])]));
    assert_eq!(
        refused(&mut rig, s, Action::Negotiate as u32, list(T_INET_IP, &[(T_IP_TOS, &[16])])),
        TError::BadOption
    );
}

/// T_PARTSUCCESS returns the value in effect; T_FAILURE and T_READONLY return the requested value.
#[test]
fn an_option_may_get_a_lesser_value_or_none() {
    let mut rig = Rig::new();
    let s = rig.open();
    let cases: &[(u32, &[u32], Status, &[u32])] = &[
        (T_SCTP_SACK_DELAY, &[700], Status::PartSuccess, &[500]),
        (T_SCTP_PATH_MAX_RETRANS, &[1000], Status::PartSuccess, &[255]),
        (T_SCTP_OSTREAMS, &[70_000], Status::PartSuccess, &[65_535]),
        (T_SCTP_RTO, &[0, 1000, 1000, 4_000_000, 5], Status::PartSuccess, &[0, 1000, 1000, 3_600_000, 5]),
        (T_SCTP_RTO_MIN, &[2000], Status::Failure, &[2000]),
        (T_SCTP_RTO_MAX, &[10], Status::Failure, &[10]),
        (T_SCTP_RTO, &[1, 1000, 1000, 1000, 5], Status::Failure, &[1, 1000, 1000, 1000, 5]),
        (T_SCTP_HB, &[1, 1, 1000], Status::Failure, &[1, 1, 1000]),
        (T_SCTP_SSN, &[5], Status::ReadOnly, &[5]),
        (T_SCTP_MAXSEG, &[500], Status::ReadOnly, &[500]),
    ];
    for &(name, asked, status, value) in cases {
        let expected = (status, vec![(name, status, value.to_vec())]);
        assert_eq!(ask(&mut rig, s, Action::Negotiate, &[(name, asked)]), expected, "{name}");
    }
    let buffer = ask_at(&mut rig, s, Action::Negotiate, XTI_GENERIC, &[(XTI_RCVBUF, &[1])]);
    assert_eq!(
        buffer.1,
        [(XTI_RCVBUF, Status::PartSuccess, vec![1500])],
        "RFC 9260 §3.3.2: the least window"
    );
    let current = ask(&mut rig, s, Action::Current, &[(T_SCTP_RTO_MIN, &[])]);
    assert_eq!(current.1[0].2, [1000], "the failed option is unchanged");
}

/// "The overall result is the worst single result"; options are processed in order, and legal ones take effect.
#[test]
fn the_overall_result_is_the_worst() {
    let mut rig = Rig::new();
    let s = rig.open();
    let mut asked: Vec<(u32, &[u32])> = vec![(T_SCTP_NODELAY, &[1])];
    for (option, overall) in [
        ((T_SCTP_SACK_DELAY, &[900][..]), Status::PartSuccess),
        ((T_SCTP_RTO_MAX, &[1][..]), Status::Failure),
        ((T_SCTP_TSN, &[1][..]), Status::ReadOnly),
        ((T_SCTP_CORK, &[1][..]), Status::NotSupported),
    ] {
        asked.push(option);
        let (worst, options) = ask(&mut rig, s, Action::Negotiate, &asked);
        assert_eq!((worst, options.len()), (overall, asked.len()));
        assert_eq!(options[0], (T_SCTP_NODELAY, Status::Success, vec![1]));
    }
    assert_eq!(ask(&mut rig, s, Action::Current, &[(T_SCTP_NODELAY, &[])]).1[0].2, [1]);
}

/// T_CHECK of a header alone: reports whether the option exists and can be set.
#[test]
fn a_check_without_a_value_asks_whether_an_option_is_there() {
    let mut rig = Rig::new();
    let s = rig.open();
    let (_, options) =
        ask(&mut rig, s, Action::Check, &[(T_SCTP_NODELAY, &[]), (T_SCTP_SSN, &[]), (T_SCTP_CORK, &[])]);
    let statuses: Vec<Status> = options.iter().map(|option| option.1).collect();
    assert_eq!(statuses, [Status::Success, Status::ReadOnly, Status::NotSupported]);
    assert!(options.iter().all(|option| option.2.is_empty()));
}

/// TBADOPT: an unknown level, two levels, an illegal value or length, a truncated list, T_ALLOPT in a check. TBADFLAG:
/// no action. No option of such a request takes effect.
#[test]
fn an_illegal_request_is_refused_as_a_whole() {
    let mut rig = Rig::new();
    let s = rig.open();
    let two_levels =
        [list(T_INET_SCTP, &[(T_SCTP_NODELAY, &[1])]), list(XTI_GENERIC, &[(XTI_SNDBUF, &[9000])])].concat();
    let mut cut = list(T_INET_SCTP, &[(T_SCTP_NODELAY, &[1]), (T_SCTP_ECN, &[0])]);
    cut.truncate(cut.len() - 1);
    let after = |name, value: &[u32]| list(T_INET_SCTP, &[(T_SCTP_NODELAY, &[1]), (name, value)]);
    for (options, why) in [
        (list(7, &[(1, &[1])]), "no such level"),
        (two_levels, "two levels"),
        (cut, "cut off"),
        (after(T_SCTP_ECN, &[2]), "neither T_YES nor T_NO"),
        (after(T_SCTP_SID, &[65_536]), "no stream"),
        (after(T_SCTP_OSTREAMS, &[0]), "no stream at all"),
        (after(T_SCTP_SACK_FREQUENCY, &[0]), "never"),
        (after(T_SCTP_RTO_MIN, &[0]), "at once"),
        (after(T_SCTP_HB, &[0, 1, 0]), "heartbeats without end"),
        (after(T_SCTP_MAX_BURST, &[0]), "nothing may be sent"),
        (after(T_SCTP_PPI, &[1, 2]), "two words"),
        (after(T_SCTP_PPI, &[]), "no value"),
    ] {
        assert_eq!(refused(&mut rig, s, Action::Negotiate as u32, options), TError::BadOption, "{why}");
    }
    assert_eq!(
        refused(&mut rig, s, Action::Check as u32, list(T_INET_SCTP, &[(T_ALLOPT, &[])])),
        TError::BadOption
    );
    for flags in [0, 1, 0x20, 0x0c] {
        assert_eq!(refused(&mut rig, s, flags, after(T_SCTP_ECN, &[0])), TError::BadFlag);
    }
    assert_eq!(ask(&mut rig, s, Action::Current, &[(T_SCTP_NODELAY, &[])]).1[0].2, [0]);
    let empty = ask_with(&mut rig, s, Action::Current as u32, Vec::new());
    assert_eq!(
        empty,
        Primitive::OptmgmtAck(Box::new(Optmgmt { flags: Status::Success.number(), options: Vec::new() }))
    );
}

/// An association applies changeable options at once; the others were fixed by the handshake.
#[test]
fn options_of_an_association_change_at_once_or_never() {
    let mut rig = Rig::new();
    let (client, _) = rig.connected();
    let known = |rig: &mut Rig| {
        rig.executive
            .driver_state(rig.driver, |driver: &mut providers::SctpDriver| {
                driver.statistics(client, Which::Only)
            })
            .unwrap()
            .unwrap()
    };
    let overall = ask(&mut rig, client, Action::Negotiate, &[(T_SCTP_SACK_DELAY, &[30])]).0;
    assert_eq!((overall, known(&mut rig).paths[0].sack_delay), (Status::Success, Duration::from_millis(30)));
    let peer = u32::from_ne_bytes([127, 0, 0, 1]);
    let overall = ask(&mut rig, client, Action::Negotiate, &[(T_SCTP_HB, &[peer, 1, 2500])]).0;
    assert_eq!(
        (overall, known(&mut rig).paths[0].heartbeat_interval),
        (Status::Success, Duration::from_millis(2500))
    );
    for name in [
        T_SCTP_OSTREAMS,
        T_SCTP_ISTREAMS,
        T_SCTP_COOKIE_LIFE,
        T_SCTP_MAX_INIT_RETRIES,
        T_SCTP_ECN,
        T_SCTP_ALI,
    ] {
        let answer = ask(&mut rig, client, Action::Negotiate, &[(name, &[1])]);
        assert_eq!(answer, (Status::ReadOnly, vec![(name, Status::ReadOnly, vec![1])]));
    }
    let streams = ask(&mut rig, client, Action::Current, &[(T_SCTP_OSTREAMS, &[])]);
    assert_eq!(streams.1, [(T_SCTP_OSTREAMS, Status::ReadOnly, vec![10])], "as agreed");
    let beyond = ask(&mut rig, client, Action::Negotiate, &[(T_SCTP_SID, &[10])]);
    assert_eq!(beyond.0, Status::Failure, "the association has streams 0 to 9");
}

/// T_SCTP_STATUS, T_SCTP_MAXSEG: the state of the association.
#[test]
fn the_status_tells_of_each_destination() {
    let mut rig = Rig::new();
    let (client, _) = rig.connected();
    let (_, options) = ask(&mut rig, client, Action::Current, &[(T_SCTP_STATUS, &[]), (T_SCTP_MAXSEG, &[])]);
    let status = &options[0].2;
    assert_eq!((status.len(), status[1], status[2]), (3 + 7, 0, 1), "one destination, and nothing unread");
    assert_eq!(status[3], u32::from_ne_bytes([127, 0, 0, 1]));
    assert!(status[4] >= 4380, "a congestion window: {}", status[4]);
    let segment = options[1].2[0];
    assert!((1000..1452).contains(&segment), "what a packet of 1,452 bytes holds: {segment}");
}

/// T_SCTP_PPI, T_SCTP_SID: the properties of data without options.
#[test]
fn data_without_options_has_those_that_were_set() {
    let mut rig = Rig::new();
    let (client, server) = rig.connected();
    ask(&mut rig, client, Action::Negotiate, &[(T_SCTP_PPI, &[60]), (T_SCTP_SID, &[4])]);
    rig.put_with(client, &Primitive::DataReq { more: false }, b"plain");
    rig.put_with(
        client,
        &Primitive::OptdataReq { association: Which::Only, info: tpi::SendInfo::default() },
        b"with options",
    );
    rig.exchange_until_idle();
    let mut next = || match rig.take(server) {
        Some((Primitive::OptdataInd { info, .. }, _)) => (info.ppid, info.stream),
        other => panic!("{other:?}"),
    };
    assert_eq!((next(), next()), ((60, 4), (0, 0)));
}

/// A listener's options apply to the associations that it accepts from then on.
#[test]
fn an_accepted_association_has_the_options_of_its_listener() {
    let mut rig = Rig::new();
    let listener = rig.bound(PORT, 5);
    ask(&mut rig, listener, Action::Negotiate, &[(T_SCTP_ISTREAMS, &[3]), (T_SCTP_SACK_FREQUENCY, &[9])]);
    let client = rig.connecting();
    rig.exchange_until_idle();
    let sequence = rig.indication(listener);
    let server = rig.open();
    let acceptor = rig.acceptor(server);
    rig.ask(listener, &Primitive::ConnRes { sequence, acceptor });
    assert_eq!(ask(&mut rig, server, Action::Current, &[(T_SCTP_SACK_FREQUENCY, &[])]).1[0].2, [9]);
    assert!(matches!(rig.take(client), Some((Primitive::ConnCon { outbound_streams: 3, .. }, _))));
}
