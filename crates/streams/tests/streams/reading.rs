//! Reading at the head: boundaries, modes, marks, window (`read(2)`, `getmsg(2)`; `streamio(7)` I_SRDOPT, I_NREAD, I_PEEK,
//! I_ATMARK).

use bytes::Bytes;
use streams::{Chain, HeadOptions, Kind, Marks, Message, Primitive, ReadError, ReadMode, RecvInfo, Which};

use crate::support::{ONE, Rig, data, epoch, partial_data, urgent};

fn set_mode(rig: &mut Rig, mode: ReadMode) {
    rig.executive.set_head_options(rig.s, &HeadOptions { read_mode: Some(mode), ..HeadOptions::default() });
}

fn read(rig: &mut Rig, buffer_bytes: usize) -> (String, bool) {
    rig.read(buffer_bytes).unwrap()
}

#[test]
fn a_read_ends_with_its_message_and_leaves_what_does_not_fit() {
    let mut rig = Rig::new();
    rig.data_up("abcdef");
    rig.data_up("gh");
    assert_eq!(read(&mut rig, 4), ("abcd".into(), false));
    assert_eq!(read(&mut rig, 4), ("ef".into(), true));
    assert_eq!(read(&mut rig, 4), ("gh".into(), true));
    assert_eq!(rig.read(4), None);
    assert_eq!(rig.state().consumed, [(ONE, 4), (ONE, 2), (ONE, 2)]);
    let stats = rig.executive.head_stats(rig.s).unwrap();
    assert_eq!((stats.messages_read, stats.bytes_read), (2, 8));
}

#[test]
fn primitives_and_notifications_do_not_count_as_messages() {
    let mut rig = Rig::new();
    let raw = |text| Message { kind: Kind::Proto(b"odd"[..].into()), ..data(text) };
    rig.up(Message::proto(Primitive::OrdrelInd { association: Which::Only }));
    rig.data_up("abc");
    rig.up(raw(""));
    rig.up(raw("de"));
    let mut messages = 0;
    while rig.executive.getmsg(rig.s).unwrap().is_some() {
        messages += 1;
    }
    let stats = rig.executive.head_stats(rig.s).unwrap();
    assert_eq!((messages, stats.messages_read, stats.bytes_read), (4, 2, 5));
}

#[test]
fn a_partial_message_does_not_end_its_record() {
    let mut rig = Rig::new();
    rig.up(partial_data("ab"));
    rig.data_up("c");
    assert_eq!(read(&mut rig, 4), ("ab".into(), false));
    assert_eq!(read(&mut rig, 4), ("c".into(), true));
}

#[test]
fn the_discarding_mode_throws_away_what_does_not_fit() {
    let mut rig = Rig::new();
    set_mode(&mut rig, ReadMode::MessageDiscard);
    rig.data_up("abcdef");
    rig.data_up("gh");
    assert_eq!(read(&mut rig, 4).0, "abcd");
    assert_eq!(read(&mut rig, 4).0, "gh");
    assert_eq!(rig.state().consumed, [(ONE, 6), (ONE, 2)]);
}

#[test]
fn the_byte_mode_fills_the_buffer_from_one_stream() {
    let mut rig = Rig::new();
    set_mode(&mut rig, ReadMode::Bytes);
    for text in ["ab", "cd", "ef"] {
        rig.data_up(text);
    }
    let other = RecvInfo { stream: 1, ..RecvInfo::default() };
    rig.up(Message::optdata_ind(ONE, other, Chain::from(vec![b'x'])));
    assert_eq!(read(&mut rig, 3), ("abc".into(), false));
    assert_eq!(read(&mut rig, 10), ("def".into(), true));
    assert_eq!(read(&mut rig, 10), ("x".into(), true));
    assert_eq!(rig.read(10), None);
}

#[test]
fn the_byte_mode_stops_before_what_is_not_data_and_before_a_mark() {
    let mut rig = Rig::new();
    set_mode(&mut rig, ReadMode::Bytes);
    rig.data_up("ab");
    rig.up(data("cd").marked(Marks::MARK));
    rig.up(Message::proto(Primitive::OrdrelInd { association: ONE }));
    assert_eq!(read(&mut rig, 10).0, "ab");
    assert!(rig.executive.is_at_mark(rig.s));
    assert_eq!(read(&mut rig, 1).0, "c");
    assert!(!rig.executive.is_at_mark(rig.s), "the mark was on the first byte");
    assert_eq!(read(&mut rig, 10).0, "d");
    assert_eq!(rig.executive.read(rig.s, &mut [0; 8]), Err(ReadError::NotData));
}

#[test]
fn a_module_or_driver_may_set_the_options_of_the_head() {
    let mut rig = Rig::new();
    let options = HeadOptions {
        read_mode: Some(ReadMode::MessageDiscard),
        hiwat_bytes: Some(500),
        lowat_bytes: Some(50),
        ..HeadOptions::default()
    };
    rig.up(Message::new(Kind::Setopts(Box::new(options))));
    rig.data_up("abc");
    assert_eq!(read(&mut rig, 1).0, "a");
    assert_eq!(rig.read(1), None);
    assert_eq!(rig.executive.marks(rig.s), Some((500, 50)));
}

#[test]
fn looking_takes_nothing() {
    let mut rig = Rig::new();
    assert_eq!(rig.executive.peek(rig.s, &mut [0; 4]), Ok(None));
    rig.data_up("abcdef");
    let mut buffer = [0; 4];
    for _ in 0..2 {
        let (len, info) = rig.executive.peek(rig.s, &mut buffer).unwrap().unwrap();
        assert_eq!((len, info.more, &buffer), (4, true, b"abcd"));
    }
    assert!(rig.state().consumed.is_empty());
    assert_eq!(read(&mut rig, 10).0, "abcdef");
}

#[test]
fn a_message_of_many_blocks_reads_as_one() {
    let mut rig = Rig::new();
    let blocks: Chain = ["ab", "c", "def"].into_iter().map(Bytes::from).collect();
    rig.up(Message::optdata_ind(Which::Only, RecvInfo::default(), blocks));
    assert_eq!(read(&mut rig, 4), ("abcd".into(), false));
    assert_eq!(read(&mut rig, 4), ("ef".into(), true));
}

#[test]
fn the_properties_of_data_come_with_it() {
    let mut rig = Rig::new();
    let info =
        RecvInfo { stream: 4, ssn: 5, ppid: 6, tsn: 7, cumulative_tsn: 9, unordered: true, more: false };
    rig.device(|cx, s| cx.put_data(s, ONE, &info, Chain::from(vec![1])));
    assert_eq!(rig.executive.read(rig.s, &mut [0; 8]), Ok(Some((1, info))));
    assert_eq!(rig.state().consumed, [(ONE, 1)]);
    rig.up(Message::data(vec![1, 2]));
    rig.up(Message::with_data(Kind::Proto(Primitive::DataInd { more: true }.into()), vec![3].into()));
    assert_eq!(rig.executive.read(rig.s, &mut [0; 8]), Ok(Some((2, RecvInfo::default()))));
    let (_, info) = rig.executive.read(rig.s, &mut [0; 8]).unwrap().unwrap();
    assert!(info.more);
}

#[test]
fn taking_a_message_whole_gives_its_window_back() {
    let mut rig = Rig::new();
    rig.data_up("abc");
    rig.up(urgent("no user data"));
    while rig.executive.getmsg(rig.s).unwrap().is_some() {}
    assert_eq!(rig.state().consumed, [(ONE, 3)]);
}

#[test]
fn closing_gives_the_window_of_what_nobody_read_back() {
    let mut rig = Rig::new();
    rig.data_up("unread");
    rig.data_up("and more");
    rig.executive.at(epoch()).close(rig.s);
    assert_eq!(rig.state().consumed, [(ONE, 14)], "the driver is called once for all messages");
}

#[test]
fn giving_memory_back_loses_nothing() {
    let mut rig = Rig::new();
    for text in ["a", "b"] {
        rig.data_up(text);
    }
    rig.executive.trim();
    assert_eq!(rig.read_all(), ["a", "b"]);
    rig.executive.trim();
    rig.data_up("c");
    assert_eq!(rig.read_all(), ["c"]);
}
