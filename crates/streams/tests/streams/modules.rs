//! The modules that come with the executive (`bufmod(7)`, `strlog(D3)`; `limit` and `filter` are Swiftwater's own).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use streams::modules::{self, Limit, Trace};
use streams::{
    AssociationId, Chain, Control, Flush, Kind, Message, Primitive, PushError, RecvInfo, SendInfo, Which,
};
use tpi::{Notification, NotificationKind};

use crate::support::{ONE, Rig, data, epoch, pass, pushed, text};

#[test]
fn modules_refuse_arguments_that_they_do_not_know() {
    let mut rig = Rig::new();
    modules::add_all(&mut rig.executive);
    for (name, argument) in [
        ("nullmod", "x"),
        ("limit", "bits"),
        ("limit", "bits=0"),
        ("limit", "bits=-3M"),
        ("limit", "per-stream=yes"),
        ("filter", "drop=2"),
        ("filter", "way=sideways"),
    ] {
        let refused = rig.executive.push_named(rig.s, name, &[argument.to_owned()]);
        assert!(matches!(refused, Err(PushError::Argument(_))), "{name} {argument}");
    }
    assert!(rig.executive.modules(rig.s).is_empty());
}

#[test]
fn nullmod_and_bufmod_pass_everything_on_in_order() {
    for name in ["nullmod", "bufmod"] {
        let (mut rig, _) = pushed(name, &[]);
        for text in ["1", "2", "3"] {
            rig.write(text).unwrap();
            rig.up(data(["a", "b", "c"][usize::from(text.as_bytes()[0] - b'1')]));
        }
        rig.executive.at(epoch()).run();
        assert_eq!(rig.received(), ["1", "2", "3"], "{name}");
        assert_eq!(rig.read_all(), ["a", "b", "c"], "{name}");
    }
}

#[test]
fn bufmod_holds_what_the_driver_has_no_room_for() {
    let (mut rig, _) = pushed("bufmod", &[]);
    rig.state().busy = true;
    let mut written = 0;
    while rig.write(&"x".repeat(1000)).is_ok() {
        rig.executive.at(epoch()).run();
        written += 1;
        assert!(written < 1000, "a buffer has an end");
    }
    assert!(written > 120, "64 KB with the driver and 64 KB with the module: {written}");
    rig.release();
    assert_eq!(rig.received().len(), written);
}

#[test]
fn limit_holds_its_rate_of_messages() {
    let (mut rig, start) = pushed("limit", &["messages=1k"]);
    for _ in 0..20 {
        rig.write("x").unwrap();
    }
    let begun = rig.received().len();
    assert!(begun <= 11, "no more than the burst of 10 ms at once: {begun}");
    pass(&mut rig, start, 1, 5);
    assert_eq!(rig.received().len(), begun + 5, "one a millisecond");
    pass(&mut rig, start, 6, 30);
    assert_eq!(rig.received().len(), 20);
}

#[test]
fn limit_lets_a_message_go_at_once_that_is_written_after_a_pause() {
    let (mut rig, start) = pushed("limit", &["messages=1"]);
    let (s, info) = (rig.s, SendInfo::default());
    rig.executive.write(s, Which::Only, info, b"1", || start).unwrap();
    // The last packet or timer was shortly after that.
    rig.executive.timeout(start + Duration::from_millis(200));
    rig.executive.at(epoch()).run();
    rig.executive.write(s, Which::Only, info, b"2", || start + Duration::from_secs(10)).unwrap();
    rig.executive.write_bytes(s, Which::Only, info, "3".into(), || start + Duration::from_secs(20)).unwrap();
    assert_eq!(rig.received(), ["1", "2", "3"]);
}

#[test]
fn limit_holds_its_rate_of_bits_within_a_percent_both_ways() {
    let (mut rig, start) = pushed("limit", &["bits=8M"]);
    let block = "x".repeat(1000);
    // A million bytes a second: a block each millisecond.
    for ms in 1..=10_000 {
        while rig.write(&block).is_ok() && rig.state().received.len() < 20_000 {}
        rig.executive.timeout(start + Duration::from_millis(ms));
        rig.executive.at(epoch()).run();
    }
    let sent = rig.received().len();
    assert!((9_900..=10_100).contains(&sent), "{sent} blocks in 10 s");
}

#[test]
fn limit_may_count_each_stream_for_itself() {
    let (mut rig, start) = pushed("limit", &["messages=1", "per-stream=yes"]);
    let write = |rig: &mut Rig, stream, text: &str| {
        let info = SendInfo { stream, ..SendInfo::default() };
        rig.executive.write(rig.s, Which::Only, info, text.as_bytes(), epoch).unwrap();
    };
    write(&mut rig, 1, "1a");
    write(&mut rig, 1, "1b");
    write(&mut rig, 2, "2a");
    rig.executive.at(epoch()).run();
    assert_eq!(rig.received(), ["1a", "2a"], "one stream does not hold up another");
    pass(&mut rig, start, 1, 1001);
    assert_eq!(rig.received(), ["1a", "2a", "1b"]);
}

/// TPI 2.0, T_DATA_REQ and T_EXDATA_REQ: user data without options.
#[test]
fn modules_for_user_data_know_all_its_primitives() {
    let requests = [Primitive::DataReq { more: false }, Primitive::ExdataReq { more: false }];
    let (mut rig, start) = pushed("limit", &["messages=1"]);
    for primitive in requests.clone() {
        let m = Message { data: b"down"[..].into(), ..Message::proto(primitive) };
        rig.executive.at(epoch()).putmsg(rig.s, m).unwrap();
    }
    assert_eq!(rig.received().len(), 1, "the other one waits");
    pass(&mut rig, start, 1, 1001);
    assert_eq!(rig.received().len(), 2);
    let (mut rig, _) = pushed("filter", &["drop=1", "way=both"]);
    for primitive in
        requests.into_iter().chain([Primitive::DataInd { more: false }, Primitive::ExdataInd { more: false }])
    {
        let goes_up = matches!(primitive, Primitive::DataInd { .. } | Primitive::ExdataInd { .. });
        let m = Message { data: b"data"[..].into(), ..Message::proto(primitive) };
        if goes_up { rig.up(m) } else { rig.executive.at(epoch()).putmsg(rig.s, m).unwrap() }
    }
    rig.executive.at(epoch()).run();
    assert_eq!((rig.received().len(), rig.executive.getmsg(rig.s)), (0, Ok(None)));
    assert_eq!(
        rig.state().consumed,
        [(Which::Only, 4), (Which::Only, 4)],
        "the window of what came up is given back"
    );
}

/// TPI 2.0, T_ORDREL_REQ and T_ORDREL_IND: no data follows a release.
#[test]
fn limit_lets_no_release_pass_the_data_before_it() {
    let (mut rig, start) = pushed("limit", &["messages=1", "per-stream=yes"]);
    for stream in [1, 1, 2] {
        let info = SendInfo { stream, ..SendInfo::default() };
        rig.executive.write(rig.s, Which::Only, info, b"down", epoch).unwrap();
        rig.up(Message::optdata_ind(
            Which::Only,
            RecvInfo { stream, ..RecvInfo::default() },
            b"up"[..].into(),
        ));
    }
    rig.executive
        .at(epoch())
        .putmsg(rig.s, Message::proto(Primitive::OrdrelReq { association: Which::Only }))
        .unwrap();
    rig.up(Message::proto(Primitive::OrdrelInd { association: Which::Only }));
    rig.executive.at(epoch()).run();
    assert_eq!(rig.received(), ["down", "down"]);
    pass(&mut rig, start, 1, 1001);
    assert_eq!(rig.received(), ["down", "down", "down", ""]);
    let read: Vec<String> =
        std::iter::from_fn(|| rig.executive.getmsg(rig.s).unwrap()).map(|m| text(&m)).collect();
    assert_eq!(read, ["up", "up", "up", ""]);
}

/// RFC 6458 §8.1.27: a record that is sent in parts is on one stream.
#[test]
fn limit_lets_no_message_pass_between_the_parts_of_a_record() {
    let (mut rig, start) = pushed("limit", &["messages=1", "per-stream=yes"]);
    for (stream, more, text) in [(1, true, "begin, "), (1, false, "end"), (2, false, "other")] {
        let info = SendInfo { stream, more, ..SendInfo::default() };
        rig.executive.write(rig.s, Which::Only, info, text.as_bytes(), epoch).unwrap();
    }
    rig.executive.at(epoch()).run();
    assert_eq!(rig.received(), ["begin, "]);
    pass(&mut rig, start, 1, 1001);
    assert_eq!(rig.received(), ["begin, ", "end", "other"]);
}

#[test]
fn filter_drops_the_part_that_it_should_and_gives_the_window_back() {
    let (mut rig, _) = pushed("filter", &["drop=0.25", "seed=7", "way=both"]);
    for _ in 0..4000 {
        rig.write("d").unwrap();
        rig.data_up("u");
    }
    rig.executive.at(epoch()).run();
    let (sent, read) = (rig.received().len(), rig.read_all().len());
    for count in [sent, read] {
        assert!((2850..=3150).contains(&count), "{count} of 4000 are left");
    }
    let credit: usize = rig.state().consumed.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(credit, 4000, "for those that were dropped, too");
}

#[test]
fn filter_chooses_by_identifier_and_stream() {
    let (mut rig, _) = pushed("filter", &["drop=1", "ppid=5", "stream=2"]);
    for (ppid, stream) in [(5, 2), (5, 1), (4, 2)] {
        let info = SendInfo { ppid, stream, ..SendInfo::default() };
        rig.executive.write(rig.s, Which::Only, info, format!("{ppid} {stream}").as_bytes(), epoch).unwrap();
    }
    assert_eq!(rig.received(), ["5 1", "4 2"]);
}

#[test]
fn filter_drops_or_keeps_a_record_as_a_whole() {
    let (mut rig, _) = pushed("filter", &["drop=0.5", "seed=3", "way=up"]);
    for _ in 0..200 {
        rig.up(crate::support::partial_data("["));
        rig.up(crate::support::partial_data("."));
        rig.up(data("]"));
    }
    let read = rig.read_all().concat();
    assert!(read.replace("[.]", "").is_empty(), "no part is missing: {read:.60}");
    assert!((60..140).contains(&(read.len() / 3)), "{} records", read.len() / 3);
}

/// Returns user data on its way up, on a stream of an association.
fn on_stream(association: Which, stream: u16, more: bool, text: String) -> Message {
    let info = RecvInfo { stream, more, ..RecvInfo::default() };
    Message::optdata_ind(association, info, Chain::from(text.into_bytes()))
}

#[test]
fn limit_keeps_the_order_of_each_stream_whatever_waits() {
    let (mut rig, start) = pushed("limit", &["messages=100", "per-stream=yes"]);
    // 700 streams share 256 buckets. More messages wait than others may pass, and a primitive among them.
    let written: Vec<(u16, u32)> = (0..3000).map(|i| ((i * i % 701) as u16, i)).collect();
    for &(stream, i) in &written {
        if i == 2000 {
            rig.up(Message::proto(Primitive::OrdrelInd { association: ONE }));
        }
        rig.up(on_stream(ONE, stream, false, format!("{stream} {i}")));
    }
    let mut read: Vec<Vec<String>> = Vec::new();
    for ms in 0..3000 {
        pass(&mut rig, start, ms, ms);
        let come = std::iter::from_fn(|| rig.executive.getmsg(rig.s).unwrap());
        read.push(come.map(|m| text(&m)).collect());
    }
    let read = read.concat();
    let place = read.iter().position(String::is_empty).unwrap();
    let before = read[..place].iter().filter_map(|text| text.split(' ').nth(1)?.parse::<u32>().ok());
    assert_eq!((place, before.max()), (2000, Some(1999)), "nothing passes the primitive");
    for stream in 0..701 {
        let of_stream = written.iter().filter(|(other, _)| *other == stream);
        let expected: Vec<String> = of_stream.map(|(stream, i)| format!("{stream} {i}")).collect();
        let prefix = format!("{stream} ");
        let came: Vec<&String> = read.iter().filter(|text| text.starts_with(&prefix)).collect();
        assert_eq!(came, expected.iter().collect::<Vec<_>>());
    }
}

#[test]
fn limit_finds_the_end_of_a_record_behind_those_that_wait_for_it() {
    let (mut rig, start) = pushed("limit", &["messages=1", "per-stream=yes"]);
    let other = Which::Id(AssociationId::new(2, 1));
    // Two records of two associations are open, each with a message of the other association before its end.
    for (association, stream, more, text) in [
        (ONE, 1, true, "(1"),
        (other, 2, true, "(2"),
        (ONE, 2, false, "later 1"),
        (other, 1, false, "later 2"),
        (ONE, 1, false, "1)"),
        (other, 2, false, "2)"),
    ] {
        rig.up(on_stream(association, stream, more, text.into()));
    }
    pass(&mut rig, start, 1, 2001);
    assert_eq!(rig.read_all(), ["(1", "(2", "2)", "later 2", "1)", "later 1"].map(String::from));
}

/// Returns a report about association 1.
fn report(kind: NotificationKind) -> Message {
    Message::proto(Primitive::NotificationInd(Box::new(Notification { association: ONE, kind })))
}

/// Returns the report of a restart of association 1.
fn restart() -> Message {
    let confirmation = Primitive::ConnCon {
        addresses: Box::default(),
        association: ONE,
        outbound_streams: 1,
        inbound_streams: 1,
    };
    Message { data: b"restart"[..].into(), ..Message::proto(confirmation) }
}

/// Returns the text of a message, or the name of its primitive if it has none.
fn what(m: &Message) -> String {
    match &m.kind {
        Kind::Proto(Control::Tpi(primitive)) if m.data.is_empty() => primitive.code().name().into(),
        _ => text(m),
    }
}

/// Returns what has come up.
fn come(rig: &mut Rig) -> Vec<String> {
    std::iter::from_fn(|| rig.executive.getmsg(rig.s).unwrap()).map(|m| what(&m)).collect()
}

/// RFC 9260 §5.2.4 A, RFC 6458 §6.1.7: the peer begins again, and the rest of a record that has come in part does not come.
#[test]
fn limit_waits_for_no_record_that_a_restart_has_cut() {
    let aborted = || report(NotificationKind::PartialDeliveryAborted { stream: 0, ssn: 0 });
    for ends in [vec![restart()], vec![aborted(), restart()], vec![aborted()]] {
        let (mut rig, start) = pushed("limit", &["messages=1", "per-stream=yes"]);
        // Two messages of another stream wait when the record begins: one for its bucket.
        rig.up(on_stream(ONE, 1, false, "first".into()));
        rig.up(on_stream(ONE, 1, false, "before".into()));
        rig.up(on_stream(ONE, 0, true, "(".into()));
        rig.up(on_stream(ONE, 0, true, "part".into()));
        let expected_ends: Vec<String> = ends.iter().map(what).collect();
        ends.into_iter().for_each(|end| rig.up(end));
        rig.up(on_stream(ONE, 1, false, "new 1".into()));
        rig.up(on_stream(ONE, 2, false, "new 2".into()));
        pass(&mut rig, start, 1, 4000);
        let come = come(&mut rig);
        let place = |text: &str| come.iter().position(|other| other == text).expect(text);
        assert_eq!(come[..3], ["first", "(", "part"], "{come:?}");
        assert_eq!(come.len(), 6 + expected_ends.len(), "{come:?}");
        let is_reported = expected_ends[0] != "restart";
        assert_eq!(place("before") < place(&expected_ends[0]), !is_reported, "{come:?}");
        assert!(place("new 1").min(place("new 2")) > place(expected_ends.last().unwrap()), "{come:?}");
    }
}

/// The parts of a record may have reports between them, and primitives of other associations.
#[test]
fn limit_finds_the_end_of_a_record_behind_a_primitive() {
    let other = Which::Id(AssociationId::new(2, 1));
    let between =
        [report(NotificationKind::SenderDry), Message::proto(Primitive::OrdrelInd { association: other })];
    for between in between {
        let (mut rig, start) = pushed("limit", &["messages=1", "per-stream=yes"]);
        rig.up(on_stream(ONE, 1, false, "first".into()));
        rig.up(on_stream(ONE, 1, false, "held".into()));
        rig.up(on_stream(ONE, 0, true, "(".into()));
        let expected = what(&between);
        rig.up(between);
        rig.up(on_stream(ONE, 0, false, ")".into()));
        pass(&mut rig, start, 1, 4000);
        assert_eq!(come(&mut rig), ["first", "(", &expected, ")", "held"]);
    }
}

/// A release ends the records of its side: nothing follows it.
#[test]
fn limit_holds_no_release_behind_an_open_record() {
    let (mut rig, start) = pushed("limit", &["messages=1", "per-stream=yes"]);
    for (stream, more) in [(1, false), (1, false), (0, true)] {
        rig.up(on_stream(ONE, stream, more, format!("{stream}")));
    }
    rig.up(Message::proto(Primitive::OrdrelInd { association: ONE }));
    pass(&mut rig, start, 1, 2000);
    assert_eq!(come(&mut rig), ["1", "0", "1", "T_ORDREL_IND"]);
}

#[test]
fn limit_waits_for_no_record_whose_end_was_flushed() {
    let (mut rig, start) = pushed("limit", &["messages=1", "per-stream=yes"]);
    rig.up(on_stream(ONE, 0, true, "(".into()));
    rig.up(on_stream(ONE, 0, false, ")".into()));
    rig.executive.at(epoch()).run();
    assert_eq!(come(&mut rig), ["("]);
    rig.executive.flush_queues(rig.s, Flush::READ);
    rig.up(on_stream(ONE, 1, false, "other".into()));
    pass(&mut rig, start, 1, 2000);
    assert_eq!(come(&mut rig), ["other"]);
}

#[test]
fn filter_decides_anew_after_a_record_that_a_restart_has_cut() {
    let aborted = |stream| report(NotificationKind::PartialDeliveryAborted { stream, ssn: 0 });
    for (end, is_dropped) in [(restart(), false), (aborted(0), false), (aborted(1), true)] {
        // With this seed the first record is dropped, and the next message is not.
        let (mut rig, _) = pushed("filter", &["drop=0.5", "seed=3", "way=up"]);
        rig.up(on_stream(ONE, 0, true, "(".into()));
        let expected = what(&end);
        rig.up(end);
        rig.up(on_stream(ONE, 0, false, "new".into()));
        let come = come(&mut rig);
        assert_eq!(come, if is_dropped { vec![expected] } else { vec![expected, "new".into()] });
    }
}

#[test]
fn limit_counts_what_is_left_after_a_flush() {
    let (mut rig, start) = pushed("limit", &["messages=10", "per-stream=yes"]);
    for stream in [1, 2, 1, 2] {
        rig.up(on_stream(ONE, stream, false, format!("{stream}")));
    }
    rig.executive.flush_queues(rig.s, Flush::READ);
    for stream in [2, 1, 1] {
        rig.up(on_stream(ONE, stream, false, format!("{stream}, later")));
    }
    pass(&mut rig, start, 0, 500);
    assert_eq!(rig.read_all().len(), 3);
}

/// A peer may use thousands of streams.
#[test]
fn limit_keeps_few_buckets_which_streams_share() {
    let (mut rig, start) = pushed("limit", &["messages=10", "per-stream=yes"]);
    for stream in 0..600 {
        let info = RecvInfo { stream, ..RecvInfo::default() };
        rig.up(Message::optdata_ind(ONE, info, Chain::from(&b"x"[..])));
    }
    rig.executive.at(epoch()).run();
    let come = |rig: &mut Rig| rig.read_all().len();
    assert_eq!(come(&mut rig), Limit::STREAMS_MAX, "the first message of each of these");
    pass(&mut rig, start, 0, 80);
    assert_eq!(come(&mut rig), 0);
    pass(&mut rig, start, 81, 120);
    assert_eq!(come(&mut rig), Limit::STREAMS_MAX);
    pass(&mut rig, start, 121, 240);
    assert_eq!(come(&mut rig), 600 - 2 * Limit::STREAMS_MAX);
}

#[test]
fn filter_passes_on_what_has_waited_for_room() {
    for arguments in [&["drop=1"][..], &["delay=20ms"], &["way=up"], &["way=both", "ppid=5"]] {
        let (mut rig, _) = pushed("filter", arguments);
        for i in 0..20u8 {
            rig.up(Message::optdata_ind(ONE, RecvInfo::default(), vec![i; 60_000].into()));
        }
        rig.executive.at(epoch()).run();
        assert_eq!(rig.executive.describe(rig.s).unwrap().head_queue.messages, 3);
        for i in 0..20u8 {
            let m = rig.executive.getmsg(rig.s).unwrap().expect("nothing stays behind");
            assert_eq!(m.data, [i; 60_000][..]);
            rig.executive.at(epoch()).run();
        }
    }
}

#[test]
fn filter_duplicates_and_delays() {
    let (mut rig, start) = pushed("filter", &["duplicate=1", "delay=20ms"]);
    rig.write("x").unwrap();
    pass(&mut rig, start, 0, 19);
    assert!(rig.received().is_empty());
    pass(&mut rig, start, 20, 21);
    assert_eq!(rig.received(), ["x", "x"]);
}

#[test]
fn a_flush_does_not_shorten_the_delay_of_later_messages() {
    let (mut rig, start) = pushed("filter", &["delay=20ms"]);
    rig.write("flushed").unwrap();
    rig.write("flushed, too").unwrap();
    pass(&mut rig, start, 0, 15);
    rig.executive.flush_queues(rig.s, Flush::WRITE);
    rig.write("kept").unwrap();
    pass(&mut rig, start, 16, 34);
    assert!(rig.received().is_empty(), "its delay is not over");
    pass(&mut rig, start, 35, 37);
    assert_eq!(rig.received(), ["kept"]);
}

#[test]
fn a_duplicate_is_not_duplicated_again() {
    let (mut rig, _) = pushed("filter", &["duplicate=1"]);
    for _ in 0..7 {
        rig.executive.push_named(rig.s, "filter", &["duplicate=1".to_owned()]).unwrap();
    }
    rig.write("x").unwrap();
    rig.executive.at(epoch()).run();
    assert_eq!(rig.received().len(), 9, "one of each of eight filters, and the message");
}

#[test]
fn a_trace_is_a_line_for_each_message() {
    let (mut rig, start) = pushed("nullmod", &[]);
    let lines = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&lines);
    let take = move |pieces: &[&[u8]]| {
        sink.lock().unwrap().push_str(std::str::from_utf8(&pieces.concat()).unwrap());
        true
    };
    rig.executive.push(rig.s, Box::new(Trace::new(Box::new(take)))).unwrap();
    let info = SendInfo { stream: 3, ppid: 60, unordered: true, ..SendInfo::default() };
    rig.executive.write(rig.s, Which::Only, info, b"a \"line\"\n", epoch).unwrap();
    rig.executive.at(start + Duration::from_millis(1500));
    rig.up(Message::optdata_ind(
        Which::Only,
        RecvInfo { tsn: 9, ssn: 4, ..RecvInfo::default() },
        Chain::from(b"x".repeat(40)),
    ));
    rig.executive
        .at(epoch())
        .putmsg(rig.s, Message::proto(streams::Primitive::OrdrelReq { association: Which::Only }))
        .unwrap();
    let expected = format!(
        "0.000000 > T_OPTDATA_REQ stream 3 ppid 60 unordered 9 bytes \"a \\\"line\\\"\\n\"\n\
         1.500000 < T_OPTDATA_IND stream 0 ppid 0 ssn 4 tsn 9 40 bytes \"{}\"...\n\
         1.500000 > T_ORDREL_REQ\n",
        "x".repeat(32)
    );
    assert_eq!(*lines.lock().unwrap(), expected);
}

#[test]
fn a_pass_of_limit_ends_when_its_messages_have_passed_many_others() {
    const WAITING: usize = 600;
    const OTHERS: u16 = 40;
    let (mut rig, _) = pushed("limit", &["messages=1", "per-stream=yes"]);
    let mut write = |stream| {
        let info = SendInfo { stream, ..SendInfo::default() };
        rig.executive.write(rig.s, Which::Only, info, b"x", epoch).unwrap();
    };
    // The first goes at once, and the others of its stream wait in front of those that may go, and behind them.
    (0..=WAITING).for_each(|_| write(0));
    (1..=OTHERS).for_each(&mut write);
    (0..WAITING).for_each(|_| write(0));
    assert_eq!(rig.received().len(), 1);
    rig.executive.at(epoch()).run();
    let in_first_step = rig.received().len() - 1;
    assert!((1..usize::from(OTHERS)).contains(&in_first_step), "{in_first_step} in a step");
    rig.run_all();
    assert_eq!(rig.received().len() - 1, usize::from(OTHERS));
}
