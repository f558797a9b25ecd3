//! Every read mode with every kind of message and buffer, and every selection of `getpmsg` (SVR4.2 `streamio(7)`
//! I_SRDOPT, `read(2)`, `getpmsg(2)`).

use streams::{Control, HeadOptions, Kind, Message, Primitive, ReadControl, ReadError, ReadMode, Select};

use crate::support::Rig;

const MODES: [ReadMode; 3] = [ReadMode::Bytes, ReadMode::MessageDiscard, ReadMode::MessageNondiscard];
const CONTROLS: [ReadControl; 3] = [ReadControl::Fail, ReadControl::AsData, ReadControl::Discard];

/// A message, the control part that `RPROTDAT` shows as data, and its data.
type Case = (&'static str, fn() -> Message, Option<&'static str>, &'static str);

fn with(kind: Kind, data: &str) -> Message {
    Message::with_data(kind, data.as_bytes().to_vec().into())
}

fn raw(control: &str) -> Control {
    Control::from(control.as_bytes())
}

const CASES: [Case; 8] = [
    ("M_DATA", || with(Kind::Data, "abcdef"), None, "abcdef"),
    ("M_DATA of a band", || Message { band: 3, ..with(Kind::Data, "abcdef") }, None, "abcdef"),
    ("M_PROTO alone", || with(Kind::Proto(raw("ctl")), ""), Some("ctl"), ""),
    ("M_PROTO with data", || with(Kind::Proto(raw("ctl")), "abcdef"), Some("ctl"), "abcdef"),
    ("M_PCPROTO alone", || with(Kind::PcProto(raw("ctl")), ""), Some("ctl"), ""),
    ("M_PCPROTO with data", || with(Kind::PcProto(raw("ctl")), "abcdef"), Some("ctl"), "abcdef"),
    ("T_DATA_IND", || with(Kind::Proto(Primitive::DataInd { more: false }.into()), "abcdef"), None, "abcdef"),
    (
        "T_EXDATA_IND",
        || with(Kind::Proto(Primitive::ExdataInd { more: false }.into()), "abcdef"),
        None,
        "abcdef",
    ),
];

/// Returns what reads of this size find, in the words of the manual page: the case, then the data message `next`.
fn expected(mode: ReadMode, control: ReadControl, case: &Case, buffer_bytes: usize) -> Vec<String> {
    let (_, _, part, data) = *case;
    let first = match (part, control) {
        (Some(_), ReadControl::Fail) => return vec!["EBADMSG".into()],
        (Some(part), ReadControl::AsData) => format!("{part}{data}"),
        _ => data.to_owned(),
    };
    let messages: Vec<String> = [first, "next".into()].into_iter().filter(|text| !text.is_empty()).collect();
    let cut = |text: &str| -> Vec<String> {
        text.as_bytes().chunks(buffer_bytes).map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect()
    };
    match mode {
        // RNORM: a stream of bytes, without regard to messages.
        ReadMode::Bytes => cut(&messages.concat()),
        // RMSGD: a read ends with its message, and the rest is discarded.
        ReadMode::MessageDiscard => messages.iter().map(|text| cut(text)[0].clone()).collect(),
        // RMSGN: a read ends with its message, and the rest stays.
        ReadMode::MessageNondiscard => messages.iter().flat_map(|text| cut(text)).collect(),
    }
}

#[test]
fn each_read_mode_treats_each_kind_of_message_as_its_page_says() {
    let (mut wrong, mut cells) = (Vec::new(), 0);
    for (mode, control) in MODES.into_iter().flat_map(|mode| CONTROLS.map(|control| (mode, control))) {
        for (case, buffer_bytes) in CASES.iter().flat_map(|case| [1, 4, 100].map(|bytes| (case, bytes))) {
            let mut rig = Rig::new();
            let options =
                HeadOptions { read_mode: Some(mode), read_control: Some(control), ..HeadOptions::default() };
            rig.executive.set_head_options(rig.s, &options);
            rig.up(case.1());
            rig.up(with(Kind::Data, "next"));
            let mut found = Vec::new();
            let mut buffer = vec![0; buffer_bytes];
            loop {
                match rig.executive.read(rig.s, &mut buffer) {
                    Ok(Some((len, _))) => found.push(String::from_utf8(buffer[..len].to_vec()).unwrap()),
                    Ok(None) => break,
                    Err(ReadError::NotData) => {
                        found.push("EBADMSG".into());
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            cells += 1;
            let expected = expected(mode, control, case, buffer_bytes);
            if found != expected {
                wrong.push(format!(
                    "{} with {mode:?}, {control:?}, {buffer_bytes}: {found:?}, not {expected:?}",
                    case.0
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(cells, 216);
}

/// The first message: its name, its rank, and the message.
type Front = (&'static str, Option<u16>, fn() -> Message);

const FRONTS: [Front; 6] = [
    ("nothing", None, || with(Kind::Data, "")),
    ("band 0", Some(0), || with(Kind::Data, "x")),
    ("band 1", Some(1), || Message { band: 1, ..with(Kind::Data, "x") }),
    ("band 200", Some(200), || Message { band: 200, ..with(Kind::Proto(raw("c")), "x") }),
    ("band 255", Some(255), || Message { band: 255, ..with(Kind::Data, "x") }),
    ("high priority", Some(256), || with(Kind::PcProto(raw("c")), "x")),
];

#[test]
fn each_selection_of_getpmsg_takes_what_its_page_says() {
    let bands = [0, 1, 2, 200, 201, 255].map(|band| (Select::Band(band), u16::from(band)));
    // The lowest rank that the call takes.
    let selections = [(Select::Any, 0), (Select::HighPriority, 256)].into_iter().chain(bands);
    for (select, lowest) in selections {
        for (name, rank, message) in FRONTS {
            let mut rig = Rig::new();
            if rank.is_some() {
                rig.up(message());
            }
            let taken = rig.executive.getpmsg(rig.s, select).unwrap().is_some();
            assert_eq!(taken, rank.is_some_and(|rank| rank >= lowest), "{select:?}, {name}");
            let left = rig.executive.getmsg(rig.s).unwrap().is_some();
            assert_eq!(left, rank.is_some() && !taken, "{select:?}, {name}: it is still there");
        }
    }
}

/// `getpmsg` with buffers of each size for both parts: MORECTL and MOREDATA, and the rest with the next calls.
#[test]
fn each_size_of_buffers_takes_a_message_in_parts() {
    for (control_bytes, data_bytes) in (1..=5).flat_map(|control| (1..=7).map(move |data| (control, data))) {
        let mut rig = Rig::new();
        rig.up(with(Kind::Proto(raw("ctl")), "abcdef"));
        let (mut control, mut data) = (Vec::new(), Vec::new());
        for call in 1.. {
            let (mut control_room, mut data_room) = (vec![0; control_bytes], vec![0; data_bytes]);
            let parts = rig.executive.getpmsg_into(rig.s, Select::Any, &mut control_room, &mut data_room);
            let parts = parts.unwrap().unwrap();
            control.extend_from_slice(&control_room[..parts.control_bytes.unwrap_or(0)]);
            data.extend_from_slice(&data_room[..parts.data_bytes.unwrap_or(0)]);
            assert_eq!(parts.more_control, control.len() < 3, "{control_bytes}, {data_bytes}");
            assert_eq!(parts.more_data, data.len() < 6, "{control_bytes}, {data_bytes}");
            if !parts.more_control && !parts.more_data {
                let calls = 3usize.div_ceil(control_bytes).max(6usize.div_ceil(data_bytes));
                assert_eq!(call, calls, "{control_bytes}, {data_bytes}");
                break;
            }
        }
        assert_eq!((&control[..], &data[..]), (&b"ctl"[..], &b"abcdef"[..]));
        assert_eq!(rig.executive.getmsg(rig.s), Ok(None));
    }
}
