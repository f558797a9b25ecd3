//! M_FLUSH along a stream (SVR4.2 DDI/DKI `messages(D5)` M_FLUSH, `flushq(D3)`, `flushband(D3)`; `streamio(7)` I_FLUSH,
//! I_FLUSHBAND).

use std::time::Instant;

use streams::{Flush, Kind, Marks, Message, ModuleInfo, QueueInfo, SendInfo, Which};

use crate::support::{Noting, Rig, data, epoch, urgent};

/// Returns a stream with a module, with messages on both queues of the module, and on those of driver and head.
fn filled() -> Rig {
    let mut rig = Rig::new();
    let served = QueueInfo::served(1, 0);
    let diary = rig.diary();
    let module = Noting { name: "m", info: ModuleInfo { read: served, write: served }, diary };
    rig.executive.push(rig.s, Box::new(module)).unwrap();
    rig.executive.set_hiwat(rig.s, 1);
    rig.executive.set_lowat(rig.s, 0);
    rig.state().busy = true;
    // Reaches the high mark of the driver's queue, so that the module keeps its messages.
    rig.device(|cx, s| (0..64 * 1024 / 13 + 1).for_each(|_| cx.putq(s, data("at the driver"))));
    rig.write("at the module").unwrap();
    rig.data_up("at the head");
    rig.data_up("at the module");
    rig.executive.at(epoch()).run();
    rig
}

#[test]
fn flushing_the_read_side_empties_it_and_gives_the_window_back() {
    let mut rig = filled();
    rig.executive.flush_queues(rig.s, Flush::READ);
    rig.executive.at(epoch()).run();
    assert_eq!(rig.read(100), None);
    assert_eq!(rig.state().consumed.iter().map(|(_, bytes)| bytes).sum::<usize>(), 11 + 13);
    rig.release();
    assert_eq!(rig.received().last().unwrap(), "at the module", "the write side is untouched");
}

#[test]
fn flushing_the_write_side_empties_it() {
    let mut rig = filled();
    rig.executive.flush_queues(rig.s, Flush::WRITE);
    rig.release();
    assert!(rig.received().is_empty());
    let mut read = rig.read_all();
    rig.executive.at(epoch()).run();
    read.extend(rig.read_all());
    assert_eq!(read, ["at the head", "at the module"], "the read side is untouched");
}

#[test]
fn flushing_both_sides_leaves_nothing_and_forgets_held_bytes() {
    let mut rig = filled();
    let more = SendInfo { more: true, ..SendInfo::default() };
    rig.executive.write(rig.s, Which::Only, more, b"held", Instant::now).unwrap();
    rig.executive.flush_queues(rig.s, Flush::BOTH);
    rig.release();
    let _ = rig.executive.at(epoch()).flush_head(rig.s);
    assert!(rig.received().is_empty());
    assert_eq!(rig.read(100), None);
}

#[test]
fn a_flush_from_below_is_turned_down_at_the_head() {
    let mut rig = filled();
    rig.up(Message::new(Kind::Flush(Flush::WRITE)));
    rig.release();
    assert!(rig.received().is_empty());
}

#[test]
fn a_flush_that_does_not_loop_ends_at_the_head() {
    let mut rig = Rig::new();
    rig.state().busy = true;
    rig.write("kept").unwrap();
    rig.up(Message::new(Kind::Flush(Flush::BOTH)).marked(Marks::NO_LOOP));
    rig.release();
    assert_eq!(rig.received(), ["kept"]);
}

#[test]
fn a_band_is_flushed_alone() {
    let mut rig = Rig::new();
    for m in [data("normal"), data("band").in_band(1), urgent("urgent")] {
        rig.up(m);
    }
    rig.executive.flush_queues(rig.s, Flush { band: Some(1), ..Flush::READ });
    let mut left = Vec::new();
    while let Some(m) = rig.executive.getmsg(rig.s).unwrap() {
        left.push(crate::support::text(&m));
    }
    assert_eq!(left, ["urgent", "normal"]);
}
