//! The run queue (SVR4.2 DDI/DKI `qenable(D3)`, `noenable(D3)`, `enableok(D3)`, `srv(D2)`).

use streams::{ModuleInfo, QueueInfo, SERVED_MAX, SendInfo, StreamId, Which};

use crate::support::{Noting, Rig, data, epoch};

#[test]
fn service_procedures_run_in_the_order_in_which_they_were_enabled() {
    let mut rig = Rig::new();
    let streams: Vec<_> = (0..3).map(|_| rig.executive.open(rig.driver).unwrap()).collect();
    let order = [2, 0, 1];
    rig.device(|cx, _| {
        for i in order {
            cx.putq(streams[i], data("x"));
        }
    });
    rig.executive.at(epoch()).run();
    let expected: Vec<_> = order.iter().map(|&i| format!("service {}", streams[i].index())).collect();
    assert_eq!(rig.take_diary(), expected);
}

#[test]
fn a_queue_stands_in_the_run_queue_once() {
    let mut rig = Rig::new();
    rig.device(|cx, s| {
        for _ in 0..3 {
            cx.putq(s, data("x"));
            cx.qenable(s);
        }
    });
    assert!(rig.executive.is_runnable());
    rig.executive.at(epoch()).run();
    assert!(!rig.executive.is_runnable());
    assert_eq!(rig.take_diary(), ["service 0"]);
    assert_eq!(rig.received().len(), 3, "it takes all that is there");
}

/// Returns a rig with a `bufmod` on each of these streams, which hold so many messages each, with the numbers of their streams.
fn waiting(streams: usize, of_each: usize) -> Rig {
    let mut rig = Rig::new();
    streams::modules::add_all(&mut rig.executive);
    for i in 0..streams {
        let s: StreamId = rig.executive.open(rig.driver).unwrap();
        rig.executive.push_named(s, "bufmod", &[]).unwrap();
        for _ in 0..of_each {
            let text = i.to_string();
            rig.executive.write(s, Which::Only, SendInfo::default(), text.as_bytes(), epoch).unwrap();
        }
    }
    rig
}

#[test]
fn a_queue_with_many_messages_leaves_the_others_their_turn() {
    let mut rig = waiting(2, 3 * SERVED_MAX);
    rig.executive.at(epoch()).run();
    let received = rig.received();
    assert_eq!(received.iter().position(|text| text == "1"), Some(SERVED_MAX));
    let turns = received.chunks(SERVED_MAX);
    assert!(turns.map(|turn| turn[0].clone()).eq(["0", "1", "0", "1"]), "{received:?}");
}

#[test]
fn service_procedures_with_much_work_leave_time_for_other_work() {
    const STREAMS: usize = 9;
    const OF_EACH: usize = 200;
    let mut rig = waiting(STREAMS, OF_EACH);
    let mut steps = 0;
    while rig.executive.is_runnable() {
        let before = rig.received().len();
        rig.executive.at(epoch()).run();
        let sent = rig.received().len() - before;
        assert!(sent <= 256 + SERVED_MAX, "{sent} in one step");
        let is_behind = rig.executive.deadline().is_some_and(|at| at <= epoch());
        assert_eq!(is_behind, rig.executive.is_runnable(), "the owner comes again");
        steps += 1;
    }
    assert_eq!(rig.received().len(), STREAMS * OF_EACH);
    assert!(steps >= STREAMS * OF_EACH / (256 + SERVED_MAX), "{steps} steps");
}

#[test]
fn a_queue_with_noenable_waits_until_somebody_enables_it() {
    let mut rig = Rig::new();
    rig.device(|cx, s| {
        cx.noenable(s);
        cx.putq(s, data("x"));
    });
    rig.executive.at(epoch()).run();
    assert!(rig.take_diary().is_empty());
    rig.device(|cx, s| cx.qenable(s));
    rig.executive.at(epoch()).run();
    assert_eq!(rig.take_diary(), ["service 0"]);
}

#[test]
fn work_for_closed_streams_and_popped_modules_is_forgotten() {
    let mut rig = Rig::new();
    let served = QueueInfo::served(100, 10);
    let info = ModuleInfo { read: QueueInfo::PASS, write: served };
    let module = Noting { name: "m", info, diary: rig.diary() };
    rig.executive.push(rig.s, Box::new(module)).unwrap();
    rig.state().busy = true;
    // The driver's queue is full, so that the module queues too.
    rig.device(|cx, s| (0..70).for_each(|_| cx.putq(s, streams::Message::data(vec![0; 1000]))));
    assert!(rig.write("x").is_ok());
    assert!(rig.executive.is_runnable());
    rig.executive.pop(rig.s).unwrap();
    rig.executive.at(epoch()).close_now(rig.s);
    rig.take_diary();
    rig.executive.at(epoch()).run();
    assert!(rig.take_diary().is_empty());
}

#[test]
fn messages_across_streams_arrive_without_any_recursion() {
    let mut rig = Rig::new();
    let other = rig.executive.open(rig.driver).unwrap();
    for s in [rig.s, other] {
        let module = Noting { name: "m", info: ModuleInfo::default(), diary: rig.diary() };
        rig.executive.push(s, Box::new(module)).unwrap();
    }
    rig.take_diary();
    rig.device(|cx, s| {
        cx.putnext(other, data("to the other"));
        cx.putnext(s, data("to this"));
    });
    assert_eq!(rig.take_diary(), ["m rput to the other", "m rput to this"]);
}
