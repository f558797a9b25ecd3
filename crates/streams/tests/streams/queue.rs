//! The rules of one queue (SVR4.2 DDI/DKI `putq(D3)`, `putbq(D3)`, `getq(D3)`, `insq(D3)`, `rmvq(D3)`, `strqset(D3)`).

use bytes::Bytes;
use proptest::prelude::*;
use streams::{Control, Flush, Kind, Message, Primitive, Queue, QueueInfo, Signal};

use crate::support::{data, text, urgent};

fn queue(hiwat_bytes: usize, lowat_bytes: usize) -> Queue {
    Queue::new(QueueInfo::served(hiwat_bytes, lowat_bytes))
}

fn drain(q: &mut Queue) -> Vec<String> {
    std::iter::from_fn(|| q.getq()).map(|m| text(&m)).collect()
}

fn put(q: &mut Queue, m: Message) {
    let _ = q.putq(m);
}

#[test]
fn high_priority_comes_first_then_bands_from_the_highest_then_normal_messages() {
    let mut q = queue(1000, 100);
    for m in [
        data("n1"),
        data("b1a").in_band(1),
        data("n2"),
        urgent("u1"),
        data("b9").in_band(9),
        data("b1b").in_band(1),
        urgent("u2"),
    ] {
        put(&mut q, m);
    }
    assert_eq!(drain(&mut q), ["u1", "u2", "b9", "b1a", "b1b", "n1", "n2"]);
}

#[test]
fn messages_put_back_come_first_in_their_band() {
    let mut q = queue(1000, 100);
    for m in [data("n1"), data("b1").in_band(1)] {
        put(&mut q, m);
    }
    let _ = q.putbq(data("n0"));
    let _ = q.putbq(data("b0").in_band(1));
    assert_eq!(drain(&mut q), ["b0", "b1", "n0", "n1"]);
}

#[test]
fn a_queue_is_full_from_its_high_mark_until_its_low_mark() {
    let mut q = queue(4, 2);
    let mut states = Vec::new();
    for _ in 0..5 {
        put(&mut q, data("x"));
        states.push(q.is_full(0));
    }
    assert_eq!(states, [false, false, false, true, true], "after 1, 2, 3, 4, 5 bytes");
    states.clear();
    while q.getq().is_some() {
        states.push(q.is_full(0));
    }
    assert_eq!(states, [true, true, false, false, false], "with 4, 3, 2, 1, 0 bytes left");
}

#[test]
fn a_refused_wish_is_answered_once_and_only_at_the_low_mark() {
    let mut q = queue(4, 2);
    for _ in 0..4 {
        put(&mut q, data("x"));
    }
    assert!(!q.canput(0));
    let mut relieved = Vec::new();
    while q.getq().is_some() {
        relieved.push(q.relieved());
    }
    assert_eq!(relieved, [false, true, false, false], "with 3, 2, 1, 0 bytes left");
}

#[test]
fn nobody_is_enabled_who_has_not_asked() {
    let mut q = queue(2, 0);
    for _ in 0..4 {
        put(&mut q, data("x"));
    }
    assert!(q.is_full(0), "looking is not asking");
    assert_eq!(drain(&mut q).len(), 4);
    assert!(!q.relieved());
}

#[test]
fn bands_are_full_each_for_itself() {
    let mut q = queue(3, 1);
    assert!(q.canput(5), "a band that was never used has room");
    put(&mut q, data("five!").in_band(5));
    assert!(!q.canput(5));
    assert!(q.canput(0) && q.canput(4));
    put(&mut q, data("normal"));
    assert!(!q.canput(0));
    assert_eq!((q.count_bytes(5), q.count_bytes(0), q.count_bytes(4)), (5, 6, 0));
    assert_eq!(q.getq().unwrap().band, 5);
    assert!(q.relieved(), "the writer to band 5");
    assert!(q.is_full(0));
}

#[test]
fn messages_without_data_fill_a_queue_too() {
    let mut q = queue(3, 1);
    for _ in 0..3 {
        put(&mut q, data(""));
    }
    assert!(q.is_full(0));
}

#[test]
fn only_a_reader_that_found_nothing_is_enabled() {
    let mut q = queue(100, 10);
    assert!(q.putq(data("1")), "nobody has looked yet");
    assert!(q.putq(data("2")), "and has not since");
    assert!(q.getq().is_some());
    assert!(!q.putq(data("3")), "the reader knows that there is more");
    assert!(!q.putbq(data("0")));
    drain(&mut q);
    assert!(q.putq(data("4")), "it has found nothing");
}

#[test]
fn messages_that_may_pass_others_enable_the_reader() {
    let mut q = queue(100, 10);
    for text in ["1", "2"] {
        put(&mut q, data(text));
    }
    assert!(q.getq().is_some());
    assert!(q.putq(data("b").in_band(1)));
    assert!(q.putq(urgent("u")));
}

#[test]
fn a_queue_with_noenable_is_enabled_by_high_priority_alone() {
    let mut q = queue(100, 10);
    q.noenable();
    assert!(!q.putq(data("n")));
    assert!(!q.putq(data("b").in_band(1)));
    assert!(q.putq(urgent("u")));
    q.enableok();
    assert!(q.putq(data("n")));
}

#[test]
fn a_flush_takes_its_band_and_kinds() {
    let filled = || {
        let mut q = queue(1000, 0);
        for m in [data("n"), data("b").in_band(2), urgent("u"), Message::new(Kind::Sig(Signal(2)))] {
            put(&mut q, m);
        }
        q
    };
    let left = |flush: Flush| {
        let mut q = filled();
        let mut freed = 0;
        q.flushq(&flush, |_| freed += 1);
        assert_eq!(freed + q.len(), 4);
        let count_bytes = (q.count_bytes(0), q.count_bytes(2));
        (drain(&mut q), count_bytes)
    };
    assert_eq!(left(Flush::READ), (vec![], (0, 0)));
    assert_eq!(
        left(Flush { band: Some(2), ..Flush::READ }),
        (vec!["u".into(), "n".into(), "".into()], (3, 0))
    );
    assert_eq!(left(Flush { all: false, ..Flush::READ }), (vec!["".into()], (1, 0)));
}

#[test]
fn a_flush_makes_room() {
    let mut q = queue(2, 0);
    put(&mut q, data("xxxx"));
    assert!(!q.canput(0));
    q.flushq(&Flush::READ, drop);
    assert!(q.relieved());
    assert!(q.canput(0));
}

#[test]
fn new_marks_count_at_once() {
    let mut q = queue(10, 0);
    put(&mut q, data("xxxx"));
    q.set_marks(0, 4, 2);
    assert!(!q.canput(0));
    q.set_marks(0, 8, 4);
    assert!(q.relieved());
    assert_eq!(q.marks(0), (8, 4));
}

/// An operation on the queue.
#[derive(Clone, Debug)]
enum Step {
    Put { rank: u16, bytes: usize },
    PutBack { rank: u16, bytes: usize },
    Get,
    Ask { band: u8 },
    Flush { band: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let rank = prop_oneof![5 => Just(0u16), 3 => 1u16..4, 1 => Just(256)];
    prop_oneof![
        4 => (rank.clone(), 0usize..9).prop_map(|(rank, bytes)| Step::Put { rank, bytes }),
        1 => (rank, 0usize..9).prop_map(|(rank, bytes)| Step::PutBack { rank, bytes }),
        4 => Just(Step::Get),
        1 => (0u8..4).prop_map(|band| Step::Ask { band }),
        1 => (0u8..4).prop_map(|band| Step::Flush { band }),
    ]
}

fn numbered(rank: u16, bytes: usize, number: u32) -> Message {
    let kind = if rank == 256 { urgent("").kind } else { data("").kind };
    let mut m = Message::with_data(kind, Bytes::from(vec![0; bytes]).into());
    m.band = u8::try_from(rank).unwrap_or(0);
    if let Kind::Proto(Control::Tpi(Primitive::OptdataInd { info, .. })) = &mut m.kind {
        info.tsn = number;
    }
    m
}

proptest! {
    /// Checks the queue's order against a list that is sorted anew each time, and its counts against a recount.
    #[test]
    fn a_queue_keeps_order_and_counts(steps in prop::collection::vec(step(), 0..200)) {
        let mut q = queue(20, 8);
        let mut model: Vec<Message> = Vec::new();
        let mut waiting = [false; 4];
        let mut full = [false; 4];
        for (number, step) in (0u32..).zip(steps) {
            match step {
                Step::Put { rank, bytes } => {
                    let m = numbered(rank, bytes, number);
                    put(&mut q, m.clone());
                    model.push(m);
                    model.sort_by_key(|m| std::cmp::Reverse(m.rank()));
                }
                Step::PutBack { rank, bytes } => {
                    let m = numbered(rank, bytes, number);
                    let _ = q.putbq(m.clone());
                    model.insert(0, m);
                    model.sort_by_key(|m| std::cmp::Reverse(m.rank()));
                }
                Step::Get => {
                    let expected = if model.is_empty() { None } else { Some(model.remove(0)) };
                    prop_assert_eq!(q.getq(), expected);
                }
                Step::Ask { band } => {
                    let room = q.canput(band);
                    prop_assert_eq!(room, !full[usize::from(band)]);
                    waiting[usize::from(band)] |= !room;
                }
                Step::Flush { band } => {
                    q.flushq(&Flush { band: Some(band), ..Flush::READ }, drop);
                    model.retain(|m| m.rank() != u16::from(band));
                }
            }
            for band in 0..4u8 {
                let level = |m: &&Message| if m.rank() == 256 { band == 0 } else { m.band == band };
                let count_bytes: usize = model.iter().filter(level).map(Message::weight_bytes).sum();
                prop_assert_eq!(q.count_bytes(band), count_bytes);
                let full = &mut full[usize::from(band)];
                *full = count_bytes >= 20 || (*full && count_bytes > 8);
                prop_assert_eq!(q.is_full(band), *full);
            }
            let due = (0..4).any(|band| waiting[band] && !full[band]);
            prop_assert_eq!(q.relieved(), due);
            for band in 0..4 {
                waiting[band] &= full[band];
            }
            prop_assert!(q.iter().eq(&model));
        }
    }
}
