//! Tests that an accepted message arrives once and in order, whatever happens to its stream (Swiftwater's own; STREAMS
//! programmer's guide, "Message queues and service procedures").

use proptest::prelude::*;
use streams::{
    Admission, DriverInfo, HeadOptions, Message, ModuleInfo, QueueInfo, RecvInfo, SendInfo, Which,
};

use crate::support::{Noting, Rig, epoch};

#[derive(Clone, Debug)]
enum Step {
    Write { more: bool },
    Up,
    Read { buffer_bytes: usize },
    Busy(bool),
    Admission(u8),
    Push { served: bool },
    Pop,
    Run,
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
    8 => any::<bool>().prop_map(|more| Step::Write { more }),
    6 => Just(Step::Up),
    6 => (1usize..6).prop_map(|buffer_bytes| Step::Read { buffer_bytes }),
    2 => any::<bool>().prop_map(Step::Busy),
    2 => (0u8..3).prop_map(Step::Admission),
    1 => any::<bool>().prop_map(|served| Step::Push { served }),
    1 => Just(Step::Pop),
    4 => Just(Step::Run),
    1 => Just(Step::Flush),
    ]
}

/// Returns the number as four bytes, so that lost, duplicated or swapped bytes show.
fn word(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

fn apply(rig: &mut Rig, step: &Step, written: &mut Vec<u8>, sent: &mut Vec<u8>, read: &mut Vec<u8>) {
    match *step {
        Step::Write { more } => {
            let bytes = word(written.len() as u32);
            let info = SendInfo { more, ..SendInfo::default() };
            if rig.executive.write(rig.s, Which::Only, info, &bytes, epoch).is_ok() {
                written.extend(bytes);
            }
        }
        Step::Up => {
            let bytes = word(sent.len() as u32);
            let mut room = false;
            rig.device(|cx, s| {
                room = cx.canputnext(s, 0);
                if room {
                    cx.putnext(
                        s,
                        Message::optdata_ind(Which::Only, RecvInfo::default(), bytes.to_vec().into()),
                    );
                }
            });
            if room {
                sent.extend(bytes);
            }
        }
        Step::Read { buffer_bytes } => {
            let mut buffer = vec![0; buffer_bytes];
            if let Some((len, ..)) = rig.executive.read(rig.s, &mut buffer).unwrap() {
                read.extend(&buffer[..len]);
            }
        }
        Step::Busy(busy) => {
            rig.state().busy = busy;
            if !busy {
                rig.device(|cx, s| cx.qenable(s));
            }
        }
        Step::Admission(which) => {
            let admission = [Admission::Idle, Admission::Room, Admission::Full][usize::from(which)];
            rig.state().admission = admission;
            if admission != Admission::Full {
                rig.device(|cx, s| cx.back_enable(s));
            }
        }
        Step::Push { served } => {
            let queue = if served { QueueInfo::served(10, 5) } else { QueueInfo::PASS };
            let module =
                Noting { name: "m", info: ModuleInfo { read: queue, write: queue }, diary: rig.diary() };
            let _ = rig.executive.push(rig.s, Box::new(module));
        }
        Step::Pop => drop(rig.executive.pop(rig.s)),
        Step::Run => rig.executive.at(epoch()).run(),
        Step::Flush => drop(rig.executive.at(epoch()).flush_head(rig.s)),
    }
}

proptest! {
#[test]
fn accepted_messages_arrive_once_and_in_order(steps in prop::collection::vec(step(), 0..300)) {
let small = QueueInfo::served(12, 4);
let mut rig = Rig::with_info(DriverInfo { read: small, write: small, head: small, ..Rig::INFO });
let (mut written, mut sent, mut read) = (Vec::new(), Vec::new(), Vec::new());
for step in &steps {
apply(&mut rig, step, &mut written, &mut sent, &mut read);
}
// Nothing blocks any more: everything must come through without a further event.
rig.state().admission = Admission::Room;
rig.device(|cx, s| cx.back_enable(s));
rig.release();
let _ = rig.executive.at(epoch()).flush_head(rig.s);
rig.executive.at(epoch()).run();
loop {
let before = read.len();
apply(&mut rig, &Step::Read { buffer_bytes: 100 }, &mut written, &mut sent, &mut read);
rig.executive.at(epoch()).run();
if read.len() == before {
break;
}
}
let received: Vec<u8> = rig.state().received.iter().flat_map(|m| m.data.to_vec()).collect();
prop_assert_eq!(received, written);
prop_assert_eq!(read, sent.clone());
let consumed: usize = rig.state().consumed.iter().map(|(_, bytes)| bytes).sum();
prop_assert_eq!(consumed, sent.len());
}
}

/// Returns a stream whose head holds up to four writes.
fn holding() -> Rig {
    let mut rig = Rig::new();
    rig.executive
        .set_head_options(rig.s, &HeadOptions { coalesce_bytes: Some(16), ..HeadOptions::default() });
    rig
}

proptest! {
#[test]
fn a_write_that_joins_others_in_the_head_has_the_effect_of_any_write(steps in prop::collection::vec(step(), 0..300)) {
let (mut plain, mut joining) = (holding(), holding());
let mut logs: [[Vec<u8>; 3]; 2] = Default::default();
// Nothing but reads has followed a write that is held.
let mut is_held = false;
for step in &steps {
let [written, sent, read] = &mut logs[0];
apply(&mut plain, step, written, sent, read);
let [written, sent, read] = &mut logs[1];
let info = match step {
Step::Write { more } => SendInfo { more: *more, ..SendInfo::default() },
_ => SendInfo::default(),
};
let bytes = word(written.len() as u32);
if is_held && info.more && joining.executive.write_held(joining.s, Which::Only, &info, &bytes) {
written.extend(bytes);
} else {
apply(&mut joining, step, written, sent, read);
}
match step {
Step::Write { .. } => is_held = joining.executive.is_holding(joining.s),
Step::Read { .. } => {}
_ => is_held = false,
}
prop_assert_eq!(&plain.state().received, &joining.state().received);
}
prop_assert_eq!(&logs[0], &logs[1]);
prop_assert_eq!(plain.executive.head_stats(plain.s), joining.executive.head_stats(joining.s));
}
}
