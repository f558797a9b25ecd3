//! The module that compresses messages (Swiftwater's own; SVR4.2 DDI/DKI `put(D2)`, `srv(D2)`).

use std::time::Instant;

use streams::modules::Compress;
use streams::{Chain, Errno, Flush, Interest, Kind, Message, PopError, ReadError, RecvInfo, SendInfo, Which};

use crate::support::{ONE, Rig, epoch, pushed, text};

/// Passes the messages that one end has sent to the other.
fn carry(from: &mut Rig, to: &mut Rig) -> usize {
    let sent = std::mem::take(&mut from.state().received);
    let mut wire_bytes = 0;
    for m in sent {
        let Some(SendInfo { stream, ppid, unordered, more, .. }) = m.send_info() else { continue };
        let info = RecvInfo { stream, ppid, unordered, more, ..RecvInfo::default() };
        wire_bytes += m.data.len();
        to.up(Message::optdata_ind(ONE, info, m.data));
    }
    to.executive.at(epoch()).run();
    wire_bytes
}

#[test]
fn compress_begins_when_the_other_end_has_answered() {
    let (mut a, _) = pushed("compress", &[]);
    let (mut b, _) = pushed("compress", &[]);
    let long = "all work and no play ".repeat(100);
    a.write(&long).unwrap();
    assert_eq!(a.received().len(), 2, "an announcement, and the message unchanged");
    assert_eq!(carry(&mut a, &mut b), long.len() + 1);
    carry(&mut b, &mut a);
    let info = SendInfo { ppid: 46, stream: 7, ..SendInfo::default() };
    a.executive.write(a.s, Which::Only, info, long.as_bytes(), epoch).unwrap();
    a.write("!").unwrap();
    let wire_bytes = carry(&mut a, &mut b);
    assert!(wire_bytes < long.len() / 10, "{wire_bytes} bytes for {}", long.len());
    let mut read = Vec::new();
    while let Some(m) = b.executive.getmsg(b.s).unwrap() {
        read.push((m.user_data().unwrap().ppid, text(&m)));
    }
    assert_eq!(read, [(0, long.clone()), (46, long.clone()), (0, "!".into())]);
    let credit: usize = b.state().consumed.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(credit, long.len() + 1 + wire_bytes, "the window of what came, not of what it became");
}

/// Returns two ends that compress their messages.
fn compressing() -> (Rig, Rig) {
    let (mut a, _) = pushed("compress", &[]);
    let (mut b, _) = pushed("compress", &[]);
    a.write("hello").unwrap();
    carry(&mut a, &mut b);
    carry(&mut b, &mut a);
    assert_eq!(b.read_all(), ["hello"]);
    (a, b)
}

#[test]
fn compressed_messages_wait_for_the_reader_and_keep_their_window() {
    let (mut a, mut b) = compressing();
    let credited = |rig: &Rig| rig.state().consumed.iter().map(|(_, bytes)| bytes).sum::<usize>();
    let before = credited(&b);
    for _ in 0..20 {
        a.executive.write(a.s, Which::Only, SendInfo::default(), &[7; 60_000], epoch).unwrap();
    }
    let wire_bytes = carry(&mut a, &mut b);
    b.executive.at(epoch()).run();
    let described = b.executive.describe(b.s).unwrap();
    assert_eq!((described.head_queue.messages, described.modules[0].read.messages), (3, 17));
    assert!(credited(&b) - before < wire_bytes / 2, "what waits has its window");
    let mut read = 0;
    while let Some(m) = b.executive.getmsg(b.s).unwrap() {
        assert_eq!(m.data, [7; 60_000][..]);
        read += 1;
        b.executive.at(epoch()).run();
    }
    assert_eq!((read, credited(&b) - before), (20, wire_bytes));
}

#[test]
fn a_module_that_leaves_takes_what_was_compressed_before_the_other_end_knew() {
    let (mut a, mut b) = compressing();
    let send =
        |a: &mut Rig| a.executive.write(a.s, Which::Only, SendInfo::default(), &[7; 60_000], epoch).unwrap();
    for _ in 0..10 {
        send(&mut a);
    }
    assert_eq!(b.executive.pop(b.s).err(), Some(PopError::Busy), "the other end is told");
    let mut on_the_way = std::mem::take(&mut a.state().received);
    for _ in 0..10 {
        send(&mut a);
    }
    carry(&mut b, &mut a);
    send(&mut a);
    let later = std::mem::take(&mut a.state().received);
    assert_eq!(later.last().unwrap().data.len(), 60_000, "it comes as it is");
    assert_eq!(later[10].data.len(), 9, "the answer has a count");
    on_the_way.extend(later);
    // Streams of an association overtake each other: the answer comes first.
    let answer = on_the_way.remove(20);
    a.state().received = vec![answer];
    carry(&mut a, &mut b);
    assert_eq!(b.executive.pop(b.s).err(), Some(PopError::Busy), "twenty messages are still on their way");
    let rest = on_the_way.split_off(10);
    a.state().received = on_the_way;
    carry(&mut a, &mut b);
    while let Some(m) = b.executive.getmsg(b.s).unwrap() {
        assert_eq!(m.data, [7; 60_000][..]);
        b.executive.at(epoch()).run();
    }
    assert_eq!(b.executive.pop(b.s).err(), Some(PopError::Busy), "ten messages are still on their way");
    a.state().received = rest;
    carry(&mut a, &mut b);
    while b.executive.pop(b.s).is_err() {
        assert!(!is_poppable(&mut b));
        // Messages are decompressed as the reader has room.
        assert_eq!(b.executive.getmsg(b.s).unwrap().unwrap().data, [7; 60_000][..]);
        b.executive.at(epoch()).run();
    }
    while let Some(m) = b.executive.getmsg(b.s).unwrap() {
        assert_eq!(m.data, [7; 60_000][..]);
    }
    assert_eq!(a.read_all(), Vec::<String>::new());
}

/// Returns whether those who wait to pop a module were told to look again.
fn is_poppable(rig: &mut Rig) -> bool {
    rig.executive.want(rig.s, Interest::POPPABLE);
    rig.executive.poll(rig.s).poppable
}

#[test]
fn those_who_wait_to_pop_a_module_are_woken_once_it_may_leave() {
    let (mut a, mut b) = compressing();
    let mut woken = Vec::new();
    assert!(!is_poppable(&mut b), "nobody has asked it to leave");
    assert_eq!(b.executive.pop(b.s).err(), Some(PopError::Busy));
    assert!(!is_poppable(&mut b), "the other end has not answered");
    b.executive.take_wakeups(&mut woken);
    assert_eq!(woken, []);
    carry(&mut b, &mut a);
    carry(&mut a, &mut b);
    b.executive.take_wakeups(&mut woken);
    assert_eq!(woken, [b.s]);
    assert!(is_poppable(&mut b));
    b.executive.pop(b.s).unwrap();
    assert!(!is_poppable(&mut b));
}

/// Pops the module of `b`, and pushes another one.
fn leave_and_come_again(b: &mut Rig, a: &mut Rig) {
    assert_eq!(b.executive.pop(b.s).err(), Some(PopError::Busy));
    carry(b, a);
    carry(a, b);
    b.executive.pop(b.s).unwrap();
    b.executive.push_named(b.s, "compress", &[]).unwrap();
    b.write("again").unwrap();
    carry(b, a);
    carry(a, b);
    assert_eq!(a.read_all(), ["again"]);
}

#[test]
fn a_module_comes_again_after_it_has_left() {
    let (mut a, mut b) = compressing();
    for _ in 0..3 {
        leave_and_come_again(&mut b, &mut a);
        a.executive.write(a.s, Which::Only, SendInfo::default(), &[7; 60_000], epoch).unwrap();
        assert!(carry(&mut a, &mut b) < 1000);
        assert_eq!(b.executive.getmsg(b.s).unwrap().unwrap().data, [7; 60_000][..]);
    }
}

#[test]
fn a_module_leaves_an_end_that_does_not_answer_after_a_while() {
    let (mut never_used, _) = pushed("compress", &[]);
    never_used.executive.pop(never_used.s).unwrap();
    for has_answered in [false, true] {
        let (mut rig, start) = pushed("compress", &[]);
        rig.write("x").unwrap();
        if has_answered {
            let info = RecvInfo { ppid: Compress::PPID, ..RecvInfo::default() };
            rig.up(Message::optdata_ind(ONE, info, vec![1].into()));
        }
        assert_eq!(rig.executive.pop(rig.s).err(), Some(PopError::Busy));
        let told = if has_answered { &["x", "\0", "\u{4}\0\0\0\0\0\0\0\0"][..] } else { &["x", "\0"] };
        assert_eq!(rig.received(), told, "a program without the module gets nothing more");
        rig.executive.timeout(start);
        rig.executive.timeout(start + Compress::LEAVE_WAIT / 2);
        assert!(!is_poppable(&mut rig));
        assert_eq!(rig.executive.pop(rig.s).err(), Some(PopError::Busy));
        rig.executive.timeout(start + Compress::LEAVE_WAIT);
        assert!(is_poppable(&mut rig));
        rig.executive.pop(rig.s).unwrap();
        assert_eq!(rig.received(), told);
    }
}

#[test]
fn a_hangup_comes_behind_what_modules_hold() {
    for pops in [false, true] {
        let (_, mut b) = compressing();
        b.executive.push_named(b.s, "bufmod", &[]).unwrap();
        for i in 0..20u8 {
            b.up(Message::optdata_ind(Which::Only, RecvInfo::default(), Chain::from(vec![i; 60_000])));
        }
        b.up(Message::new(Kind::Hangup));
        b.executive.at(epoch()).run();
        assert!(!b.executive.poll(b.s).hangup, "the head holds three messages, and modules the others");
        if pops {
            b.executive.pop(b.s).unwrap();
            b.executive.pop(b.s).unwrap();
        }
        for i in 0..20u8 {
            assert_eq!(b.executive.getmsg(b.s).unwrap().map(|m| m.data), Some(Chain::from(vec![i; 60_000])));
            b.executive.at(epoch()).run();
        }
        assert_eq!(b.executive.getmsg(b.s), Err(ReadError::HungUp));
    }
}

#[test]
fn compress_leaves_an_end_alone_that_does_not_answer() {
    let (mut a, _) = pushed("compress", &[]);
    let long = "x".repeat(1000);
    for _ in 0..3 {
        a.write(&long).unwrap();
    }
    assert_eq!(a.received(), [&long, "\0", &long, &long]);
}

#[test]
fn compress_refuses_what_the_other_end_cannot_have_sent() {
    let huge = [&[2u8, 0, 0, 0, 1][..], &u32::MAX.to_be_bytes(), &[0; 20]].concat();
    let garbled = [&[2u8, 0, 0, 0, 1][..], &100u32.to_be_bytes(), &[0xff; 20]].concat();
    for (bytes, more) in [(huge, false), (garbled, false), (vec![77], false), (vec![1], true)] {
        let (mut rig, _) = pushed("compress", &[]);
        let info = RecvInfo { ppid: Compress::PPID, more, ..RecvInfo::default() };
        let len = bytes.len();
        rig.up(Message::optdata_ind(ONE, info, Chain::from(bytes)));
        rig.executive.at(epoch()).run();
        assert_eq!(rig.executive.getmsg(rig.s), Err(ReadError::Failed(Errno::EBADMSG)));
        assert_eq!(rig.state().consumed, [(ONE, len)]);
    }
}

/// RFC 6458 §8.1.27: what is sent before the end of a record is part of it.
#[test]
fn compress_sends_nothing_of_its_own_in_a_record() {
    let (mut a, _) = pushed("compress", &[]);
    let (mut b, _) = pushed("compress", &[]);
    let part = |rig: &mut Rig, text: &str, more| {
        let info = SendInfo { more, ..SendInfo::default() };
        rig.executive.write(rig.s, Which::Only, info, text.as_bytes(), epoch).unwrap();
        let _ = rig.executive.at(epoch()).flush_head(rig.s);
    };
    part(&mut a, "begun, ", true);
    part(&mut b, "of b, ", true);
    assert_eq!(a.received(), ["begun, "]);
    part(&mut a, "ended", false);
    assert_eq!(a.received(), ["begun, ", "ended", "\0"]);
    carry(&mut a, &mut b);
    assert_eq!(b.received(), ["of b, "], "the answer waits");
    part(&mut b, "to its end", false);
    assert_eq!(b.received(), ["of b, ", "to its end", "\0", "\u{1}"]);
    carry(&mut b, &mut a);
    part(&mut a, "begun again, ", true);
    assert_eq!(a.executive.pop(a.s).err(), Some(PopError::Busy));
    assert_eq!(a.received(), ["\u{1}", "begun again, "]);
    part(&mut b, "of b again, ", true);
    part(&mut a, "ended again", false);
    assert_eq!(
        a.received()[2..],
        ["ended again", "\u{4}\0\0\0\0\0\0\0\0"],
        "the other end is told behind the record"
    );
    carry(&mut a, &mut b);
    assert_eq!(b.received(), ["of b again, "]);
    part(&mut b, "to its end", false);
    assert_eq!(b.received()[1..], ["to its end", "\u{5}\0\0\0\0\0\0\0\0"]);
    carry(&mut b, &mut a);
    a.executive.pop(a.s).unwrap();
}

#[test]
fn a_message_that_looks_like_the_modules_own_arrives_as_it_is() {
    let (mut a, _) = pushed("compress", &[]);
    let (mut b, _) = pushed("compress", &[]);
    a.write("hello").unwrap();
    carry(&mut a, &mut b);
    carry(&mut b, &mut a);
    let own = SendInfo { ppid: Compress::PPID, ..SendInfo::default() };
    a.executive.write(a.s, Which::Only, own, &[0], epoch).unwrap();
    carry(&mut a, &mut b);
    let mut last = None;
    while let Some(m) = b.executive.getmsg(b.s).unwrap() {
        last = Some(m);
    }
    let last = last.unwrap();
    assert_eq!((last.user_data().unwrap().ppid, last.data.to_vec()), (Compress::PPID, vec![0]));
    assert!(matches!(last.kind, Kind::Proto(_)));
}

fn left(rig: &mut Rig, wrapped: u64) {
    let info = RecvInfo { ppid: Compress::PPID, ..RecvInfo::default() };
    rig.up(Message::optdata_ind(ONE, info, [&[5_u8][..], &wrapped.to_be_bytes()].concat().into()));
}

#[test]
fn an_end_that_takes_nothing_gets_a_few_answers_and_one_of_each_kind_behind_a_message_of_the_program() {
    let (mut rig, _) = pushed("compress", &[]);
    let info = RecvInfo { ppid: Compress::PPID, ..RecvInfo::default() };
    let ask = |rig: &mut Rig, times| {
        for _ in 0..times {
            for kind in [[0_u8].as_slice(), [4, 0, 0, 0, 0, 0, 0, 0, 0].as_slice()] {
                rig.up(Message::optdata_ind(ONE, info, kind.to_vec().into()));
            }
        }
        rig.executive.at(epoch()).run();
    };
    let sent = |rig: &mut Rig| std::mem::take(&mut rig.state().received).iter().map(text).collect::<Vec<_>>();
    let (answer, left) = ("\u{1}", "\u{5}\0\0\0\0\0\0\0\0");
    ask(&mut rig, 1000);
    assert_eq!(sent(&mut rig), [answer, left].repeat(8));
    ask(&mut rig, 1000);
    rig.write("x").unwrap();
    assert_eq!(sent(&mut rig), ["x", answer, left]);
    ask(&mut rig, 1);
    assert_eq!(sent(&mut rig), [answer, left], "at once again");
}

/// A wrapped message may never come: its lifetime has passed.
#[test]
fn a_pop_waits_for_messages_for_a_limited_time() {
    let (mut rig, start) = pushed("compress", &[]);
    rig.write("x").unwrap();
    let info = RecvInfo { ppid: Compress::PPID, ..RecvInfo::default() };
    rig.up(Message::optdata_ind(ONE, info, vec![1].into()));
    assert_eq!(rig.executive.pop(rig.s).err(), Some(PopError::Busy));
    left(&mut rig, 1);
    for n in 1..100 {
        rig.executive.timeout(start + n * Compress::LEAVE_WAIT);
    }
    assert_eq!(rig.executive.pop(rig.s).err(), None);
}

#[test]
fn a_flush_removes_what_a_pop_waits_for() {
    for from_above in [true, false] {
        let (mut a, mut b) = compressing();
        // The head holds a few.
        for _ in 0..20 {
            a.executive.write(a.s, Which::Only, SendInfo::default(), &[7; 60_000], epoch).unwrap();
        }
        carry(&mut a, &mut b);
        assert_eq!(b.executive.pop(b.s).err(), Some(PopError::Busy));
        let start = Instant::now();
        [0, 2].into_iter().for_each(|n| b.executive.timeout(start + n * Compress::LEAVE_WAIT));
        assert_eq!(b.executive.pop(b.s).err(), Some(PopError::Busy), "others wait in the module");
        match from_above {
            true => b.executive.flush_queues(b.s, Flush::READ),
            false => {
                b.up(Message::new(Kind::Flush(Flush::READ)));
                b.executive.at(epoch()).run();
            }
        }
        b.executive.pop(b.s).unwrap();
        assert!(b.executive.getmsg(b.s).unwrap().is_none());
    }
}

#[test]
fn an_answer_that_comes_too_late_is_dropped() {
    let (mut rig, start) = pushed("compress", &[]);
    rig.write("x").unwrap();
    let info = RecvInfo { ppid: Compress::PPID, ..RecvInfo::default() };
    rig.up(Message::optdata_ind(ONE, info, vec![1].into()));
    assert_eq!(rig.executive.pop(rig.s).err(), Some(PopError::Busy));
    rig.executive.timeout(start);
    rig.executive.timeout(start + 2 * Compress::LEAVE_WAIT);
    left(&mut rig, 0);
    assert_eq!(rig.executive.getmsg(rig.s).map(|m| m.is_some()), Ok(false));
}

#[test]
fn a_module_waits_for_what_the_second_module_of_the_other_end_has_wrapped() {
    let (mut a, mut b) = compressing();
    let send = |rig: &mut Rig| {
        rig.executive.write(rig.s, Which::Only, SendInfo::default(), &[7; 60_000], epoch).unwrap()
    };
    // Ten wrapped messages from b to a.
    for _ in 0..10 {
        send(&mut b);
    }
    carry(&mut b, &mut a);
    a.executive.at(epoch()).run();
    while a.executive.getmsg(a.s).unwrap().is_some() {
        a.executive.at(epoch()).run();
    }
    leave_and_come_again(&mut b, &mut a);
    // Five wrapped ones are on their way when a leaves; the answer overtakes them.
    for _ in 0..5 {
        send(&mut b);
    }
    let on_the_way = std::mem::take(&mut b.state().received);
    assert!(on_the_way.iter().all(|m| m.data.len() < 1000), "they are compressed");
    assert_eq!(a.executive.pop(a.s).err(), Some(PopError::Busy));
    carry(&mut a, &mut b);
    carry(&mut b, &mut a);
    assert_eq!(a.executive.pop(a.s).err(), Some(PopError::Busy), "five are on their way");
    b.state().received = on_the_way;
    carry(&mut b, &mut a);
}
