//! Writing at the head (`write(2)`, `putmsg(2)`; `streamio(7)` I_SWROPT, I_CANPUT).

use std::cell::Cell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use streams::modules::NullMod;
use streams::{Kind, Message, Pool, Primitive, SendInfo, Which};

use crate::support::{Device, Rig, epoch};

#[test]
fn a_write_goes_down_as_one_message_with_what_is_known_of_it() {
    let mut rig = Rig::new();
    let info = SendInfo { stream: 3, ppid: 4, unordered: true, ..SendInfo::default() };
    rig.executive.write(rig.s, Which::Only, info, b"data", Instant::now).unwrap();
    assert_eq!(rig.state().received, [Message::optdata_req(Which::Only, info, Bytes::from_static(b"data"))]);
}

#[test]
fn bytes_go_down_without_being_copied() {
    let mut rig = Rig::new();
    let bytes = Bytes::from(vec![1, 2, 3]);
    rig.executive.write_bytes(rig.s, Which::Only, SendInfo::default(), bytes.clone(), Instant::now).unwrap();
    assert_eq!(rig.state().received[0].data.blocks()[0].as_ptr(), bytes.as_ptr());
}

#[test]
fn a_driver_lends_only_what_no_module_and_no_earlier_write_misses() {
    let mut rig = Rig::new();
    let lends = |rig: &mut Rig| rig.executive.lend(rig.s, |_: &mut Device| Some(())).is_some();
    assert!(lends(&mut rig));
    rig.executive.take_back(rig.s, 3, 12, |_: &mut Device| ());
    let stats = rig.executive.head_stats(rig.s).unwrap();
    assert_eq!((stats.messages_written, stats.bytes_written), (3, 12));
    rig.executive.push(rig.s, Box::new(NullMod)).unwrap();
    assert!(lends(&mut rig), "it is shown the messages");
    streams::modules::add_all(&mut rig.executive);
    rig.executive.push_named(rig.s, "bufmod", &[]).unwrap();
    assert!(!lends(&mut rig), "the module would miss the messages");
    drop(rig.executive.pop(rig.s).unwrap());
    drop(rig.executive.pop(rig.s).unwrap());
    rig.executive
        .write(rig.s, Which::Only, SendInfo { more: true, ..SendInfo::default() }, b"begun", Instant::now)
        .unwrap();
    assert!(!lends(&mut rig), "the head holds bytes that come before");
}

#[test]
fn a_primitive_goes_down_as_it_is() {
    let mut rig = Rig::new();
    rig.executive.at(epoch()).putmsg(rig.s, Message::pc_proto(Primitive::InfoReq)).unwrap();
    assert_eq!(rig.state().received[0].kind, Kind::PcProto(Primitive::InfoReq.into()));
}

#[test]
fn blocks_are_used_again_when_their_messages_are_gone() {
    let mut pool = Pool::default();
    let message = [7; 1000];
    let mut addresses = std::collections::HashSet::new();
    let mut held = std::collections::VecDeque::new();
    for i in 0..10_000_u32 {
        let mut bytes = message;
        bytes[..4].copy_from_slice(&i.to_ne_bytes());
        let block = pool.copy_in(&bytes);
        addresses.insert(block.as_ptr() as usize / Pool::BLOCK_BYTES);
        held.push_back((i, block));
        if held.len() > 100 {
            let (i, block) = held.pop_front().unwrap();
            assert_eq!(block[..4], i.to_ne_bytes(), "nobody writes over a message that is held");
        }
    }
    // 100 messages of 1000 bytes are held: two blocks and the one being filled, each of which may touch two pages.
    assert!(addresses.len() <= 10, "{} blocks for 100 KB", addresses.len());
}

#[test]
fn a_message_larger_than_a_block_has_memory_of_its_own() {
    let mut pool = Pool::default();
    let large = vec![1; Pool::BLOCK_BYTES + 1];
    assert_eq!(pool.copy_in(&large), large);
    assert_eq!(pool.copy_in(&large[1..]), large[1..]);
}

#[test]
fn a_write_reads_the_clock_only_for_modules_or_a_lifetime() {
    let mut rig = Rig::new();
    let (s, info) = (rig.s, SendInfo::default());
    let never = || -> Instant { panic!("nothing sees the time") };
    rig.executive.write(s, Which::Only, info, b"copied", never).unwrap();
    rig.executive.write_bytes(s, Which::Only, info, "a block".into(), never).unwrap();
    let reads = Cell::new(0);
    let clock = || {
        reads.set(reads.get() + 1);
        epoch()
    };
    let brief = SendInfo { lifetime: Some(Duration::from_millis(1).into()), ..info };
    rig.executive.write(s, Which::Only, brief, b"copied", clock).unwrap();
    assert_eq!(reads.get(), 1);
    rig.executive.push(s, Box::new(NullMod)).unwrap();
    rig.executive.write(s, Which::Only, info, b"copied", clock).unwrap();
    rig.executive.write_bytes(s, Which::Only, info, "a block".into(), clock).unwrap();
    assert_eq!(reads.get(), 3);
}
