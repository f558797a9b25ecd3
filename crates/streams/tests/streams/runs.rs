//! Messages that come up together and are read one by one (Swiftwater's own; `read(2)`, `getmsg(2)`).

use bytes::Bytes;
use streams::modules::NullMod;
use streams::{Flush, HeadOptions, Kind, Message, ReadMode, Record, RecvInfo, Run};

use crate::support::{ONE, Rig, epoch};

/// Parses a record: one byte for the length, and the data.
fn record(bytes: &[u8], info: &mut RecvInfo) -> Option<Record> {
    let length = usize::from(*bytes.first()?);
    *info = RecvInfo { ppid: length as u32, ..RecvInfo::default() };
    Record::new(1..1 + length, 1 + length)
}

const CHARGES: usize = 3;

/// Makes the driver send these texts of association 1 up together.
fn run_up(rig: &mut Rig, texts: &[&str]) {
    let mut block = Vec::new();
    for text in texts {
        block.push(text.len() as u8);
        block.extend_from_slice(text.as_bytes());
    }
    let data_bytes = block.len() - texts.len();
    let run = Run::new(ONE, texts.len(), data_bytes, CHARGES, record);
    rig.device(|cx, s| {
        assert!(cx.takes_runs(s));
        cx.put_run(s, run, Bytes::from(block));
    });
}

/// Returns the total of bytes and charges that were returned to the driver.
fn given_back(rig: &Rig) -> (usize, usize) {
    let state = rig.state();
    assert!(state.consumed.iter().all(|(association, _)| *association == ONE));
    (state.consumed.iter().map(|(_, bytes)| bytes).sum(), state.charges)
}

#[test]
fn each_read_takes_one_message() {
    let mut rig = Rig::new();
    run_up(&mut rig, &["one", "two", "three"]);
    rig.data_up("four");
    for text in ["one", "two", "three", "four"] {
        assert_eq!(rig.read(10), Some((text.to_owned(), true)));
    }
    assert_eq!(rig.read(10), None);
    assert_eq!(given_back(&rig), ("onetwothreefour".len(), CHARGES + 1));
}

#[test]
fn a_message_that_the_buffer_does_not_hold_is_continued() {
    let mut rig = Rig::new();
    run_up(&mut rig, &["one", "seventeen", "two"]);
    let expected = [("one", true), ("seven", false), ("teen", true), ("two", true)];
    for (text, ends) in expected {
        assert_eq!(rig.read(5), Some((text.to_owned(), ends)));
    }
    assert_eq!(given_back(&rig), ("oneseventeentwo".len(), CHARGES));
}

#[test]
fn the_credit_of_a_long_run_comes_before_its_end() {
    let mut rig = Rig::new();
    let long = "x".repeat(250);
    run_up(&mut rig, &[long.as_str(); 8]);
    for _ in 0..5 {
        assert_eq!(rig.read(250).unwrap().0, long);
    }
    assert_eq!(given_back(&rig), (5 * 250, 0));
}

#[test]
fn messages_are_taken_one_by_one() {
    let mut rig = Rig::new();
    run_up(&mut rig, &["one", "two", "three"]);
    assert_eq!(rig.executive.describe(rig.s).unwrap().head_queue.messages, 3);
    assert_eq!(rig.executive.nread(rig.s), Some((3, 3)));
    let m = rig.executive.getmsg(rig.s).unwrap().unwrap();
    assert_eq!((m.data.to_vec(), m.user_data().unwrap().association), (b"one".to_vec(), ONE));
    assert_eq!(given_back(&rig), (3, 0));
    assert_eq!(rig.executive.peek(rig.s, &mut [0; 9]).unwrap().unwrap().0, 3);
    assert_eq!(rig.read(10), Some(("two".to_owned(), true)));
    let m = rig.executive.getmsg(rig.s).unwrap().unwrap();
    assert_eq!(m.data.to_vec(), b"three");
    assert_eq!(rig.executive.getmsg(rig.s), Ok(None));
    assert_eq!(given_back(&rig), ("onetwothree".len(), CHARGES));
}

#[test]
fn a_read_in_byte_mode_goes_on_over_messages() {
    let mut rig = Rig::new();
    let bytes = HeadOptions { read_mode: Some(ReadMode::Bytes), ..HeadOptions::default() };
    rig.up(Message::new(Kind::Setopts(Box::new(bytes))));
    run_up(&mut rig, &["one", "two", "three"]);
    assert_eq!(rig.read(5).unwrap().0, "onetw");
    assert_eq!(rig.read(50).unwrap().0, "othree");
    assert_eq!(given_back(&rig), ("onetwothree".len(), CHARGES));
}

#[test]
fn the_window_of_discarded_messages_is_returned() {
    let mut rig = Rig::new();
    run_up(&mut rig, &["one", "two", "three"]);
    rig.read(10).unwrap();
    rig.up(Message::new(Kind::Flush(Flush::READ)));
    assert_eq!(rig.read(10), None);
    assert_eq!(given_back(&rig), ("onetwothree".len(), CHARGES));
    run_up(&mut rig, &["four"]);
    rig.executive.at(epoch()).close(rig.s);
    assert_eq!(given_back(&rig), ("onetwothreefour".len(), 2 * CHARGES));
}

#[test]
fn waiting_messages_keep_their_order_when_copied() {
    let mut rig = Rig::new();
    run_up(&mut rig, &["one", "two", "three"]);
    rig.data_up("four");
    let m = rig.executive.getmsg(rig.s).unwrap().unwrap();
    assert_eq!(m.data.to_vec(), b"one");
    rig.device(|cx, _| cx.detach(false));
    for text in ["two", "three", "four"] {
        assert_eq!(rig.read(10), Some((text.to_owned(), true)));
    }
}

#[test]
fn a_module_sees_single_messages() {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(NullMod)).unwrap();
    rig.device(|cx, s| assert!(!cx.takes_runs(s)));
    rig.executive.pop(rig.s).unwrap();
    rig.device(|cx, s| assert!(cx.takes_runs(s)));
}
