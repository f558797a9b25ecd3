//! Waiting for a stream (`poll(2)`; STREAMS programmer's guide, "Polling").

use streams::{Errno, Interest, StreamId};

use crate::support::{Rig, epoch, urgent};

fn woken(rig: &mut Rig) -> Vec<StreamId> {
    let mut woken = Vec::new();
    rig.executive.take_wakeups(&mut woken);
    woken
}

#[test]
fn a_reader_is_woken_once_however_many_messages_come() {
    let mut rig = Rig::new();
    rig.executive.want(rig.s, Interest::READABLE);
    assert!(woken(&mut rig).is_empty());
    for _ in 0..3 {
        rig.data_up("x");
    }
    assert_eq!(woken(&mut rig), [rig.s]);
    rig.data_up("x");
    assert!(woken(&mut rig).is_empty(), "nothing more is wanted");
    assert_eq!(rig.executive.head_stats(rig.s).unwrap().wakeups, 1);
}

#[test]
fn a_condition_that_holds_already_wakes_at_once() {
    let mut rig = Rig::new();
    rig.data_up("x");
    rig.executive.want(rig.s, Interest::READABLE);
    assert_eq!(woken(&mut rig), [rig.s]);
    rig.executive.want(rig.s, Interest::WRITABLE);
    assert_eq!(woken(&mut rig), [rig.s]);
}

#[test]
fn nobody_is_woken_for_what_he_does_not_want() {
    let mut rig = Rig::new();
    rig.executive.want(rig.s, Interest::PRIORITY);
    rig.data_up("x");
    assert!(woken(&mut rig).is_empty());
    rig.up(urgent("x"));
    assert_eq!(woken(&mut rig), [rig.s]);
}

#[test]
fn errors_and_hangups_wake_everybody() {
    for hangup in [false, true] {
        let mut rig = Rig::new();
        rig.executive.want(rig.s, Interest::READABLE);
        rig.device(|cx, s| if hangup { cx.hangup(s) } else { cx.error(s, Errno::ECONNRESET) });
        assert_eq!(woken(&mut rig), [rig.s]);
        rig.executive.want(rig.s, Interest::PRIORITY);
        assert_eq!(woken(&mut rig), [rig.s], "and whoever asks later");
    }
}

#[test]
fn a_closed_stream_is_taken_off_the_list() {
    let mut rig = Rig::new();
    rig.executive.want(rig.s, Interest::READABLE);
    rig.data_up("x");
    rig.executive.at(epoch()).close(rig.s);
    assert!(woken(&mut rig).is_empty());
}
