//! Control parts as bytes and as primitives (SVR4.2 STREAMS programmer's guide, "Stream head processing"; `putmsg(2)`,
//! `getmsg(2)`).

use std::sync::{Arc, Mutex};

use streams::modules::{Compress, Trace};
use streams::{
    Control, HeadOptions, Kind, Marks, Message, Parts, Primitive, ReadControl, ReadError, RecvInfo, Select,
    SendInfo, Which, WriteAs,
};

use crate::support::{ONE, Rig, data, epoch, pushed};

fn proto(control: &[u8], text: &'static str) -> Message {
    Message { kind: Kind::Proto(control.into()), ..data(text) }
}

#[test]
fn raw_bytes_arrive_as_they_were_put() {
    let mut rig = Rig::new();
    let odd = [9u8, 0, 0xff, 7, 1];
    rig.executive.at(epoch()).putmsg(rig.s, proto(&odd, "data")).unwrap();
    assert_eq!(rig.state().received[0].kind, Kind::Proto(Control::Raw(odd.into())));
}

#[test]
fn a_module_decodes_what_a_program_put() {
    let bytes = Primitive::InfoReq.encode();
    assert_eq!(Control::from(&bytes[..]).decode(), Ok(Primitive::InfoReq));
    assert!(Control::from(&[1u8, 2][..]).decode().is_err());
    assert_eq!(Control::from(Primitive::InfoReq).encode(), bytes);
}

#[test]
fn a_plain_write_is_m_data_unless_the_head_says_otherwise() {
    let mut rig = Rig::new();
    let options = HeadOptions { write_as: Some(WriteAs::Data), ..HeadOptions::default() };
    rig.executive.set_head_options(rig.s, &options);
    rig.write("plain").unwrap();
    assert_eq!(rig.state().received[0].kind, Kind::Data);
    rig.write("").unwrap();
    assert_eq!(rig.received(), ["plain"], "a write of no bytes sends nothing");
    let options = HeadOptions {
        write: Some(streams::WriteOptions { send_zero: true, ..Default::default() }),
        ..HeadOptions::default()
    };
    rig.executive.set_head_options(rig.s, &options);
    rig.write("").unwrap();
    assert_eq!(rig.received(), ["plain", ""], "with SNDZERO it does");
}

#[test]
fn getmsg_takes_a_long_message_in_parts() {
    let mut rig = Rig::new();
    rig.up(proto(b"control", "data"));
    rig.up(Message::data(&b"next"[..]));
    let (mut control, mut body) = ([0; 4], [0; 3]);
    let mut take = |rig: &mut Rig| {
        let parts = rig.executive.getpmsg_into(rig.s, Select::Any, &mut control, &mut body).unwrap().unwrap();
        let text =
            |bytes: &[u8], n: Option<usize>| String::from_utf8_lossy(&bytes[..n.unwrap_or(0)]).into_owned();
        (parts, text(&control, parts.control_bytes), text(&body, parts.data_bytes))
    };
    let both = Parts {
        control_bytes: Some(4),
        data_bytes: Some(3),
        more_control: true,
        more_data: true,
        ..Parts::default()
    };
    assert_eq!(take(&mut rig), (both, "cont".into(), "dat".into()));
    let rest = Parts { control_bytes: Some(3), data_bytes: Some(1), ..Parts::default() };
    assert_eq!(take(&mut rig), (rest, "rol".into(), "a".into()));
    assert_eq!(take(&mut rig).2, "nex");
    assert_eq!(rig.read(100).unwrap().0, "t", "the rest of a message is data for read, too");
}

#[test]
fn the_credit_of_a_message_taken_in_parts_is_given_once() {
    let mut rig = Rig::new();
    rig.data_up("12345678");
    for _ in 0..4 {
        rig.executive.getpmsg_into(rig.s, Select::Any, &mut [0; 100], &mut [0; 2]).unwrap().unwrap();
    }
    assert_eq!(rig.executive.getmsg(rig.s), Ok(None));
    assert_eq!(rig.state().consumed, [(ONE, 8)]);
}

#[test]
fn a_read_of_the_rest_of_a_message_gives_its_credit_no_second_time() {
    let mut rig = Rig::new();
    rig.up(Message::data(&b"12345678"[..]));
    rig.executive.getpmsg_into(rig.s, Select::Any, &mut [0; 100], &mut [0; 2]).unwrap().unwrap();
    assert_eq!(rig.read(3).unwrap().0, "345");
    assert_eq!(rig.read(100).unwrap().0, "678");
    let state = rig.state();
    assert_eq!((&state.consumed[..], state.charges), (&[(Which::Only, 8)][..], 1));
}

#[test]
fn a_message_whose_window_was_returned_returns_none_however_it_is_read() {
    for buffer_bytes in [8, 4, 3] {
        let mut rig = Rig::new();
        rig.up(data("text").marked(Marks::CREDITED));
        while rig.read(buffer_bytes).is_some() {}
        let state = rig.state();
        assert_eq!((state.consumed.len(), state.charges), (0, 0), "{buffer_bytes} bytes at a time");
    }
}

#[test]
fn read_modes_treat_control_parts() {
    let cases = [
        (ReadControl::Fail, Err(ReadError::NotData)),
        (ReadControl::AsData, Ok("ctldata")),
        (ReadControl::Discard, Ok("data")),
    ];
    for (mode, expected) in cases {
        let mut rig = Rig::new();
        let options = HeadOptions { read_control: Some(mode), ..HeadOptions::default() };
        rig.executive.set_head_options(rig.s, &options);
        rig.up(proto(b"ctl", "data"));
        let mut buffer = [0; 100];
        let read = rig.executive.read(rig.s, &mut buffer).map(|read| read.unwrap().0);
        let read = read.map(|len| std::str::from_utf8(&buffer[..len]).unwrap());
        assert_eq!(read, expected, "{mode:?}");
    }
}

#[test]
fn a_control_part_counts_for_flow_control() {
    let mut rig = Rig::new();
    let m = proto(&[0; 1000], "x");
    assert_eq!(m.weight_bytes(), 1001);
    rig.state().busy = true;
    let mut taken = 0;
    while rig.executive.at(epoch()).putmsg(rig.s, m.clone()).is_ok() {
        taken += 1;
        assert!(taken < 1000, "raw control parts must fill a queue");
    }
    assert_eq!(taken, 66, "of 1001 bytes, before 64 KB are reached");
}

/// Returns a primitive with data as a program puts it.
fn as_bytes(primitive: &Primitive, text: &'static str) -> Message {
    proto(&primitive.encode(), text)
}

/// `putmsg(2)` of T_DATA_REQ and T_OPTDATA_REQ: a module that speaks the transport interface decodes the part that it gets.
#[test]
fn modules_know_user_data_that_a_program_puts_as_bytes() {
    let optdata = |ppid| Primitive::OptdataReq {
        association: Which::Only,
        info: SendInfo { ppid, ..SendInfo::stream(3) },
    };
    let (mut rig, _) = pushed("limit", &["messages=1"]);
    for text in ["one", "two"] {
        rig.executive.at(epoch()).putmsg(rig.s, as_bytes(&Primitive::DataReq { more: false }, text)).unwrap();
        rig.executive.at(epoch()).run();
    }
    assert_eq!(rig.received(), ["one"], "the second one waits for its turn");

    let (mut rig, _) = pushed("filter", &["drop=1", "ppid=9"]);
    for ppid in [8, 9] {
        rig.executive.at(epoch()).putmsg(rig.s, as_bytes(&optdata(ppid), "data")).unwrap();
    }
    assert_eq!(rig.state().received.len(), 1);
    assert_eq!(
        rig.state().received[0].kind,
        Kind::Proto(optdata(8).encode()[..].into()),
        "it arrives as it was put"
    );

    let mut rig = Rig::new();
    let lines = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&lines);
    let tell = move |pieces: &[&[u8]]| {
        pieces.iter().for_each(|piece| sink.lock().unwrap().push_str(std::str::from_utf8(piece).unwrap()));
        true
    };
    rig.executive.push(rig.s, Box::new(Trace::new(Box::new(tell)))).unwrap();
    rig.executive.at(epoch()).putmsg(rig.s, as_bytes(&optdata(8), "data")).unwrap();
    rig.executive.at(epoch()).putmsg(rig.s, proto(&[1, 2], "odd")).unwrap();
    let told = lines.lock().unwrap().clone();
    assert!(told.contains("> T_OPTDATA_REQ stream 3 ppid 8 4 bytes \"data\""), "{told}");
    assert!(told.contains("> M_PROTO 3 bytes \"odd\""), "{told}");
}

#[test]
fn a_module_that_changes_user_data_takes_it_as_bytes_too() {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(Compress::default())).unwrap();
    rig.executive.at(epoch()).run();
    let answer = RecvInfo { ppid: Compress::PPID, ..RecvInfo::default() };
    rig.up(Message::optdata_ind(ONE, answer, vec![1].into()));
    let text = "the same again, the same again, the same again, the same again, the same again";
    let request =
        Primitive::OptdataReq { association: Which::Only, info: SendInfo { ppid: 7, ..SendInfo::default() } };
    rig.executive.at(epoch()).putmsg(rig.s, as_bytes(&request, text)).unwrap();
    let first = rig.state().received[0].clone();
    assert_eq!(first.send_info().unwrap().ppid, Compress::PPID);
    assert!(first.data.len() < text.len());
}

/// A driver that sends user data up as bytes has no receive window for it, so no window returns.
#[test]
fn user_data_that_comes_up_as_bytes_has_no_receive_window() {
    let mut rig = Rig::new();
    streams::modules::add_all(&mut rig.executive);
    rig.executive.push_named(rig.s, "tirdwr", &[]).unwrap();
    rig.up(as_bytes(&Primitive::DataInd { more: false }, "data"));
    assert_eq!(rig.read_all(), ["data"]);
    rig.executive.at(epoch()).run();
    assert!(rig.state().consumed.iter().all(|(_, bytes)| *bytes == 0), "{:?}", rig.state().consumed);
}

#[test]
fn decoding_leaves_what_is_no_primitive() {
    let odd = proto(&[1, 2], "data");
    assert_eq!(odd.clone().decoded(), odd);
    assert_eq!(Message::data(&b"data"[..]).decoded(), Message::data(&b"data"[..]));
    let decoded = as_bytes(&Primitive::DataInd { more: true }, "data").decoded();
    assert_eq!(decoded.kind, Kind::Proto(Primitive::DataInd { more: true }.into()));
    assert!(decoded.marks.contains(Marks::CREDITED));
}
