//! The run queue (SVR4.2 DDI/DKI `qenable(D3)`, `noenable(D3)`, `enableok(D3)`, `srv(D2)`).

use streams::{ModuleInfo, QueueInfo};

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
