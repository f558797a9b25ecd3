//! Tests that writes with more to come become few messages (`write(2)` on a stream, SNDHOLD of `streamio(7)` I_SWROPT; `T_MORE`
//! of TPI 2.0).

use std::time::{Duration, Instant};

use streams::{
    Admission, Errno, FlushScope, HeadOptions, Kind, Message, ModuleInfo, Primitive, SendInfo, Which,
    WriteError,
};

use crate::support::{Noting, ONE, Rig, epoch, text};

const MORE: SendInfo = SendInfo {
    stream: 0,
    ppid: 0,
    unordered: false,
    more: true,
    immediate: false,
    context: 0,
    lifetime: None,
    path: None,
};

fn write_more(rig: &mut Rig, text: &str) {
    rig.executive.write(rig.s, ONE, MORE, text.as_bytes(), Instant::now).unwrap();
}

#[test]
fn an_idle_driver_gets_the_first_write_at_once_and_the_rest_together() {
    let mut rig = Rig::new();
    rig.state().admission = Admission::Idle;
    write_more(&mut rig, "a");
    rig.state().admission = Admission::Room;
    write_more(&mut rig, "b");
    write_more(&mut rig, "c");
    assert_eq!(rig.received(), ["a"]);
    rig.state().admission = Admission::Idle;
    write_more(&mut rig, "d");
    assert_eq!(rig.received(), ["a", "bcd"]);
    assert!(
        rig.state()
            .received
            .iter()
            .all(|m| m.kind == Kind::Proto(Primitive::OptdataReq { association: ONE, info: MORE }.into()))
    );
}

#[test]
fn a_write_joins_what_is_held_without_a_question_to_the_driver() {
    let mut rig = Rig::new();
    assert!(!rig.executive.is_holding(rig.s));
    assert!(!rig.executive.write_held(rig.s, ONE, &MORE, b"a"), "nothing is held");
    write_more(&mut rig, "ab");
    assert!(rig.executive.is_holding(rig.s));
    rig.state().admission = Admission::Fail(Errno::ENOTCONN);
    for text in ["c", "de"] {
        assert!(rig.executive.write_held(rig.s, ONE, &MORE, text.as_bytes()));
    }
    rig.state().admission = Admission::Room;
    rig.executive.at(epoch()).flush_head(rig.s).unwrap();
    assert_eq!(rig.received(), ["abcde"]);
    assert!(!rig.executive.is_holding(rig.s));
    assert!(!rig.executive.write_held(rig.s, ONE, &MORE, b"f"), "nothing is held any more");
    let stats = rig.executive.head_stats(rig.s).unwrap();
    assert_eq!((stats.messages_written, stats.bytes_written, stats.messages_coalesced), (3, 5, 1));
}

#[test]
fn a_write_that_the_driver_might_refuse_or_that_sends_what_is_held_does_not_join() {
    let mut rig = Rig::new();
    rig.executive.set_head_options(rig.s, &HeadOptions { coalesce_bytes: Some(8), ..HeadOptions::default() });
    write_more(&mut rig, "abc");
    let lifetime = Some(Duration::from_millis(1).into());
    for (association, info, text) in [
        (Which::Only, MORE, "d"),
        (ONE, SendInfo { more: false, ..MORE }, "d"),
        (ONE, SendInfo { stream: 1, ..MORE }, "d"),
        (ONE, SendInfo { ppid: 1, ..MORE }, "d"),
        (ONE, SendInfo { unordered: true, ..MORE }, "d"),
        (ONE, SendInfo { lifetime, ..MORE }, "d"),
        (ONE, MORE, ""),
    ] {
        let joins = rig.executive.write_held(rig.s, association, &info, text.as_bytes());
        assert!(!joins, "{association:?} {info:?} {text:?}");
    }
    assert!(rig.executive.write_held(rig.s, ONE, &MORE, b"def"));
    assert!(!rig.executive.write_held(rig.s, ONE, &MORE, b"gh"), "the block would be full");
    write_more(&mut rig, "gh");
    assert_eq!(rig.received(), ["abcdefgh"]);
    let brief = SendInfo { lifetime, ..MORE };
    rig.executive.write(rig.s, ONE, brief, b"l", Instant::now).unwrap();
    assert!(!rig.executive.write_held(rig.s, ONE, &brief, b"m"), "the time would not advance");
}

#[test]
fn writes_join_only_up_to_the_longest_message_that_the_driver_takes() {
    for held in [false, true] {
        let mut rig = Rig::new();
        rig.state().message_bytes_max = Some(5);
        for text in ["ab", "cd", "ef", "ghijk", "l"] {
            if !(held && rig.executive.write_held(rig.s, ONE, &MORE, text.as_bytes())) {
                write_more(&mut rig, text);
            }
        }
        rig.executive.at(epoch()).flush_head(rig.s).unwrap();
        assert_eq!(rig.received(), ["abcd", "ef", "ghijk", "l"], "held {held}");
    }
}

#[test]
fn a_full_block_goes_down() {
    let mut rig = Rig::new();
    rig.executive.set_head_options(rig.s, &HeadOptions { coalesce_bytes: Some(4), ..HeadOptions::default() });
    for text in ["ab", "c", "d", "efg", "hi", "jklmn"] {
        write_more(&mut rig, text);
    }
    assert_eq!(rig.received(), ["abcd", "efg", "hi", "jklmn"]);
}

#[test]
fn a_flush_sends_what_is_held() {
    let mut rig = Rig::new();
    write_more(&mut rig, "a");
    assert!(rig.executive.is_coalescing());
    rig.executive.flush(Instant::now(), FlushScope::Due);
    assert!(rig.received().is_empty());
    rig.executive.flush(Instant::now(), FlushScope::All);
    assert!(!rig.executive.is_coalescing());
    write_more(&mut rig, "b");
    rig.executive.at(epoch()).flush_head(rig.s).unwrap();
    assert_eq!(rig.received(), ["a", "b"]);
}

#[test]
fn every_other_message_goes_behind_what_is_held() {
    let mut rig = Rig::new();
    write_more(&mut rig, "1");
    rig.write("2").unwrap();
    write_more(&mut rig, "3");
    rig.executive.write_bytes(rig.s, Which::Only, SendInfo::default(), "4".into(), Instant::now).unwrap();
    write_more(&mut rig, "5");
    rig.executive
        .at(epoch())
        .putmsg(rig.s, Message::proto(Primitive::OrdrelReq { association: ONE }))
        .unwrap();
    write_more(&mut rig, "6");
    let other_stream = SendInfo { stream: 1, ..MORE };
    rig.executive.write(rig.s, ONE, other_stream, b"7", Instant::now).unwrap();
    rig.executive.at(epoch()).flush_head(rig.s).unwrap();
    assert_eq!(rig.received(), ["1", "2", "3", "4", "5", "", "6", "7"]);
}

#[test]
fn a_full_driver_leaves_the_head_a_block_and_gets_it_when_it_has_room() {
    let mut rig = Rig::new();
    rig.executive.set_head_options(rig.s, &HeadOptions { coalesce_bytes: Some(4), ..HeadOptions::default() });
    rig.state().admission = Admission::Full;
    for text in ["a", "b", "c", "d"] {
        write_more(&mut rig, text);
    }
    assert_eq!(rig.executive.write(rig.s, ONE, MORE, b"e", Instant::now), Err(WriteError::WouldBlock));
    assert_eq!(rig.write("f"), Err(WriteError::WouldBlock));
    rig.executive.flush(Instant::now(), FlushScope::All);
    assert!(rig.received().is_empty());
    rig.state().admission = Admission::Room;
    rig.device(|cx, s| cx.back_enable(s));
    rig.executive.at(epoch()).run();
    assert_eq!(rig.received(), ["abcd"]);
}

#[test]
fn writes_that_the_driver_can_never_take_are_reported_and_not_kept() {
    let mut rig = Rig::new();
    write_more(&mut rig, "a");
    rig.state().admission = Admission::Fail(Errno::ENOTCONN);
    assert_eq!(rig.write("b"), Err(WriteError::Failed(Errno::ENOTCONN)));
    rig.state().admission = Admission::Room;
    rig.write("c").unwrap();
    assert_eq!(rig.received(), ["c"]);
}

#[test]
fn closing_sends_what_is_held() {
    let mut rig = Rig::new();
    write_more(&mut rig, "last words");
    rig.executive.at(epoch()).close(rig.s);
    assert_eq!(rig.received(), ["last words"]);
}

#[test]
fn closing_sends_what_is_held_even_to_a_full_driver() {
    let mut rig = Rig::new();
    write_more(&mut rig, "last words");
    rig.state().admission = Admission::Full;
    rig.executive.at(epoch()).close(rig.s);
    assert_eq!(rig.received(), ["last words"]);
}

#[test]
fn modules_see_one_message() {
    let mut rig = Rig::new();
    let diary = rig.diary();
    rig.executive.push(rig.s, Box::new(Noting { name: "m", info: ModuleInfo::default(), diary })).unwrap();
    rig.take_diary();
    write_more(&mut rig, "a");
    write_more(&mut rig, "b");
    rig.executive.at(epoch()).flush_head(rig.s).unwrap();
    assert_eq!(rig.take_diary(), ["m wput ab"]);
    assert_eq!(text(&rig.state().received[0]), "ab");
}

#[test]
fn holding_nothing_back_can_be_chosen() {
    let mut rig = Rig::new();
    rig.executive.set_head_options(rig.s, &HeadOptions { coalesce_bytes: Some(0), ..HeadOptions::default() });
    write_more(&mut rig, "a");
    write_more(&mut rig, "b");
    assert_eq!(rig.received(), ["a", "b"]);
    let stats = rig.executive.head_stats(rig.s).unwrap();
    assert_eq!((stats.messages_written, stats.bytes_written, stats.messages_coalesced), (2, 2, 0));
}
