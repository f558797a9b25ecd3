//! Readiness: the bits of poll, several waiters, signals (SVR4.2 `poll(2)`; `streamio(7)` I_SETSIG, I_GETSIG).

use streams::{Errno, Interest, Kind, Message, Readiness, Signal, SignalEvents, WaiterId, Woken};

use crate::support::{Rig, data, urgent};

#[test]
fn every_bit_of_poll_says_what_it_should() {
    type Case = (&'static str, fn(&mut Rig), fn(&Readiness) -> bool, bool);
    fn fill_band(rig: &mut Rig) {
        rig.device(|cx, s| cx.putq(s, Message::data(vec![0; 64 * 1024]).in_band(2)));
    }
    fn release(rig: &mut Rig) {
        rig.data_up("x");
        rig.device(|cx, s| cx.set_read_hangup(s, true));
    }
    fn connect_again(rig: &mut Rig) {
        release(rig);
        rig.device(|cx, s| cx.set_read_hangup(s, false));
    }
    let cases: [Case; 18] = [
        ("POLLIN, empty", |_| {}, |r| r.readable, false),
        ("POLLIN", |rig| rig.data_up("x"), |r| r.readable, true),
        ("POLLRDNORM", |rig| rig.data_up("x"), |r| r.read_normal, true),
        ("POLLRDNORM, band", |rig| rig.up(data("x").in_band(1)), |r| r.read_normal, false),
        ("POLLRDBAND", |rig| rig.up(data("x").in_band(1)), |r| r.read_band, true),
        ("POLLRDBAND, normal", |rig| rig.data_up("x"), |r| r.read_band, false),
        ("POLLPRI", |rig| rig.up(urgent("x")), |r| r.priority, true),
        ("POLLRDNORM, priority", |rig| rig.up(urgent("x")), |r| r.read_normal, false),
        ("POLLPRI, normal", |rig| rig.data_up("x"), |r| r.priority, false),
        ("POLLOUT", |_| {}, |r| r.writable, true),
        ("POLLWRBAND, no band was used", |_| {}, |r| r.write_band, false),
        ("POLLWRBAND", |rig| rig.device(|cx, s| cx.putq(s, data("x").in_band(2))), |r| r.write_band, true),
        ("POLLWRBAND, full", fill_band, |r| r.write_band, false),
        ("POLLRDHUP, not yet", |rig| rig.data_up("x"), |r| r.read_hangup, false),
        ("POLLRDHUP", release, |r| r.read_hangup && r.writable && !r.hangup, true),
        ("POLLRDHUP, another connection", connect_again, |r| r.read_hangup, false),
        ("POLLHUP", |rig| rig.device(|cx, s| cx.hangup(s)), |r| r.hangup && !r.writable, true),
        ("POLLERR", |rig| rig.device(|cx, s| cx.error(s, Errno::EIO)), |r| r.error, true),
    ];
    for (bit, prepare, is_set, expected) in cases {
        let mut rig = Rig::new();
        prepare(&mut rig);
        let ready = rig.executive.poll(rig.s);
        assert_eq!(is_set(&ready), expected, "{bit}: {ready:?}");
    }
}

fn woken(rig: &mut Rig) -> Vec<(u64, Interest)> {
    let mut woken = Vec::new();
    rig.executive.take_woken(&mut woken);
    woken.into_iter().map(|Woken { waiter, ready, .. }| (waiter.0, ready)).collect()
}

#[test]
fn a_waiter_is_told_at_once_that_the_other_end_sends_no_more() {
    let mut rig = Rig::new();
    rig.data_up("x");
    assert!(rig.executive.wait(rig.s, WaiterId(1), Interest::READ_HANGUP));
    assert!(woken(&mut rig).is_empty());
    rig.device(|cx, s| cx.set_read_hangup(s, true));
    assert_eq!(woken(&mut rig), [(1, Interest::READ_HANGUP)], "before the reader takes what is there");
}

#[test]
fn several_waiters_are_woken_each_for_its_own_wish() {
    let mut rig = Rig::new();
    assert!(rig.executive.wait(rig.s, WaiterId(1), Interest::READ_NORMAL));
    assert!(rig.executive.wait(rig.s, WaiterId(2), Interest::READ_BAND | Interest::PRIORITY));
    assert!(rig.executive.wait(rig.s, WaiterId(3), Interest::READ_NORMAL));
    rig.executive.cancel_wait(rig.s, WaiterId(3));
    rig.data_up("x");
    assert_eq!(woken(&mut rig), [(1, Interest::READ_NORMAL)]);
    rig.data_up("x");
    assert!(woken(&mut rig).is_empty(), "one wake-up for each wish");
    rig.up(data("b").in_band(1));
    assert_eq!(woken(&mut rig), [(2, Interest::READ_BAND)]);
    assert!(rig.executive.wait(rig.s, WaiterId(4), Interest::READ_BAND));
    assert_eq!(woken(&mut rig), [(4, Interest::READ_BAND)], "what is true already");
}

#[test]
fn an_error_wakes_every_waiter() {
    let mut rig = Rig::new();
    rig.executive.wait(rig.s, WaiterId(1), Interest::READABLE);
    rig.executive.wait(rig.s, WaiterId(2), Interest::WRITE_BAND);
    rig.device(|cx, s| cx.error(s, Errno::EIO));
    assert_eq!(woken(&mut rig).len(), 2);
}

fn notices(rig: &mut Rig) -> Vec<(u64, SignalEvents)> {
    std::iter::from_fn(|| rig.executive.take_signal_notice()).map(|n| (n.program, n.events)).collect()
}

#[test]
fn a_program_has_a_signal_for_each_event_that_it_asked_for() {
    type Case = (SignalEvents, fn(&mut Rig));
    let cases: [Case; 8] = [
        (SignalEvents::INPUT, |rig| rig.data_up("x")),
        (SignalEvents::READ_NORMAL, |rig| rig.data_up("x")),
        (SignalEvents::READ_BAND, |rig| rig.up(data("x").in_band(3))),
        (SignalEvents::HIGH_PRIORITY, |rig| rig.up(urgent("x"))),
        (SignalEvents::MESSAGE, |rig| rig.up(Message::new(Kind::Sig(Signal(2))))),
        (SignalEvents::OUTPUT, |rig| rig.device(|cx, s| cx.back_enable(s))),
        (SignalEvents::ERROR, |rig| rig.device(|cx, s| cx.error(s, Errno::EIO))),
        (SignalEvents::HANGUP, |rig| rig.device(|cx, s| cx.hangup(s))),
    ];
    for (number, (event, _)) in cases.iter().enumerate() {
        for (other, (_, happen)) in cases.iter().enumerate() {
            let mut rig = Rig::new();
            assert!(rig.executive.set_signals(rig.s, 99, *event));
            assert_eq!(rig.executive.signals(rig.s, 99), Some(*event));
            happen(&mut rig);
            // The first two are of the same message.
            let expected = number == other || (number < 2 && other < 2) || (number == 0 && other == 2);
            assert_eq!(notices(&mut rig) == [(99, *event)], expected, "{event:?} and case {other}");
        }
    }
}

#[test]
fn events_before_a_signal_is_taken_are_one_signal() {
    let mut rig = Rig::new();
    rig.executive.set_signals(rig.s, 1, SignalEvents::READ_BAND | SignalEvents::BAND_URGENT);
    for _ in 0..1000 {
        rig.up(data("x").in_band(1));
    }
    let notice = rig.executive.take_signal_notice().unwrap();
    assert!(notice.is_urgent(), "SIGURG where S_BANDURG is set");
    assert_eq!(rig.executive.take_signal_notice(), None);
    rig.executive.set_signals(rig.s, 1, SignalEvents::NONE);
    rig.up(data("x").in_band(1));
    assert_eq!(rig.executive.take_signal_notice(), None);
    assert_eq!(SignalEvents::from_bits(0x8000), None);
}
