//! The module that records messages in a file (Swiftwater's own; the format is pcapng).

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use streams::modules::{RecordSink, Tap};
use streams::{Chain, Message, RecvInfo, SendInfo, Which};

use crate::support::{epoch, pushed};

#[test]
fn tap_writes_a_file_that_pcap_readers_open() {
    let (mut rig, start) = pushed("nullmod", &[]);
    let file = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&file);
    let take = move |pieces: &[&[u8]]| {
        sink.lock().unwrap().extend(pieces.concat());
        true
    };
    let tap = Tap::new(Box::new(take), (start, Duration::from_secs(1_000_000_000)), (1234, 5678));
    rig.executive.push(rig.s, Box::new(tap)).unwrap();
    let info = SendInfo { stream: 3, ppid: 60, ..SendInfo::default() };
    rig.executive.write(rig.s, Which::Only, info, b"hello", epoch).unwrap();
    rig.up(Message::optdata_ind(
        Which::Only,
        RecvInfo { stream: 3, ppid: 60, tsn: 9, ssn: 4, ..RecvInfo::default() },
        // In three blocks.
        [&b"wor"[..], b"l", b"d!"].map(bytes::Bytes::from_static).into_iter().collect(),
    ));
    rig.executive
        .at(epoch())
        .putmsg(rig.s, Message::proto(streams::Primitive::OrdrelReq { association: Which::Only }))
        .unwrap();
    assert_eq!(rig.read_all(), ["world!"]);
    let bytes = file.lock().unwrap().clone();
    let mut reader = pcap_file::pcapng::PcapNgReader::new(&bytes[..]).unwrap();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        if let pcap_file::pcapng::Block::EnhancedPacket(packet) = block.unwrap() {
            packets.push((packet.data.to_vec(), packet.options.len()));
        }
    }
    let [(down, _), (up, _), (primitive, options)] = &packets[..] else { panic!("three: {packets:?}") };
    assert_eq!(down[..4], [0x04, 0xd2, 0x16, 0x2e], "from our port to the peer's");
    assert_eq!(down[12..16], [0, 3, 0, 21], "DATA, beginning and end, 16 bytes and 5");
    assert_eq!(down[20..22], [0, 3]);
    assert_eq!(&down[28..33], b"hello");
    assert_eq!(up[..4], [0x16, 0x2e, 0x04, 0xd2], "from the peer's port to ours");
    assert_eq!(up[16..24], [0, 0, 0, 9, 0, 3, 0, 4]);
    assert_eq!(&up[28..], b"world!\0\0");
    assert_eq!((primitive.len(), *options), (12, 2), "a header alone, with a comment");
}

#[test]
fn a_slow_reader_of_a_tap_loses_records_and_the_stream_nothing() {
    let (mut rig, start) = pushed("nullmod", &[]);
    let mut room = 2;
    let take = move |_: &[&[u8]]| {
        room -= i32::from(room > 0);
        room > 0
    };
    let tap = Tap::new(Box::new(take), (start, Duration::ZERO), (1, 2));
    rig.executive.push(rig.s, Box::new(tap)).unwrap();
    for _ in 0..5 {
        rig.write("x").unwrap();
    }
    assert_eq!(rig.received().len(), 5);
    let reply = rig.executive.ioctl(rig.s, Tap::GET_LOST, Chain::new()).unwrap().unwrap();
    assert_eq!(reply.data, 4u64.to_ne_bytes()[..]);
}

#[test]
fn a_tap_says_in_the_file_how_many_packets_it_has_lost() {
    let (mut rig, start) = pushed("nullmod", &[]);
    let file = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&file);
    let mut offered = 0;
    let take = move |pieces: &[&[u8]]| {
        offered += 1;
        let taken = !(2..=4).contains(&offered);
        if taken {
            sink.lock().unwrap().extend(pieces.concat());
        }
        taken
    };
    rig.executive.push(rig.s, Box::new(Tap::new(Box::new(take), (start, Duration::ZERO), (1, 2)))).unwrap();
    for _ in 0..6 {
        rig.write("x").unwrap();
    }
    let bytes = file.lock().unwrap().clone();
    let mut reader = pcap_file::pcapng::PcapNgReader::new(&bytes[..]).unwrap();
    let mut dropped = Vec::new();
    while let Some(block) = reader.next_block() {
        if let pcap_file::pcapng::Block::EnhancedPacket(packet) = block.unwrap() {
            dropped.push(packet.options.iter().find_map(|option| match option {
                EnhancedPacketOption::DropCount(count) => Some(*count),
                _ => None,
            }));
        }
    }
    assert_eq!(dropped, [None, Some(3), None]);
    let described = rig.executive.describe(rig.s).unwrap();
    assert_eq!(described.modules[0].counts, [("recorded", 3), ("lost", 3)]);
}

#[test]
fn a_long_message_is_tapped_as_far_as_a_packet_reaches() {
    let (mut rig, start) = pushed("nullmod", &[]);
    let file = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&file);
    let take = move |pieces: &[&[u8]]| {
        sink.lock().unwrap().extend(pieces.concat());
        true
    };
    rig.executive.push(rig.s, Box::new(Tap::new(Box::new(take), (start, Duration::ZERO), (1, 2)))).unwrap();
    rig.up(Message::optdata_ind(Which::Only, RecvInfo::default(), Chain::from(vec![7; 70_001])));
    let bytes = file.lock().unwrap().clone();
    let mut reader = pcap_file::pcapng::PcapNgReader::new(&bytes[..]).unwrap();
    let packet = loop {
        if let pcap_file::pcapng::Block::EnhancedPacket(packet) = reader.next_block().unwrap().unwrap() {
            break packet.into_owned();
        }
    };
    assert_eq!((packet.data.len(), packet.original_len), (65_532, 65_532));
    assert_eq!(packet.data[14..16], 65_520u16.to_be_bytes(), "the chunk ends where the packet does");
    let comment = "a message of 70001 bytes, of which 65504 are recorded";
    let says_so = |option: &EnhancedPacketOption<'_>| matches!(option, EnhancedPacketOption::Comment(text) if text == comment);
    assert!(packet.options.iter().any(says_so), "{:?}", packet.options);
}

/// A sink whose reader goes away.
struct Closing(Arc<AtomicBool>);

impl RecordSink for Closing {
    fn take(&mut self, _: &[&[u8]]) -> bool {
        assert!(!self.is_closed(), "nobody reads it");
        true
    }

    fn is_closed(&self) -> bool {
        self.0.load(Relaxed)
    }
}

#[test]
fn a_tap_without_a_reader_is_popped_once_nothing_stands_above_it() {
    let (mut rig, start) = pushed("bufmod", &[]);
    let closed = Arc::new(AtomicBool::new(false));
    let tap = Tap::new(Box::new(Closing(Arc::clone(&closed))), (start, Duration::ZERO), (1, 2));
    rig.executive.push(rig.s, Box::new(tap)).unwrap();
    rig.executive.push_named(rig.s, "nullmod", &[]).unwrap();
    closed.store(true, Relaxed);
    rig.write("x").unwrap();
    rig.executive.pop_finished(rig.s);
    assert_eq!(rig.executive.modules(rig.s), ["nullmod", "tap", "bufmod"]);
    rig.executive.pop(rig.s).unwrap();
    rig.executive.pop_finished(rig.s);
    assert_eq!(rig.executive.modules(rig.s), ["bufmod"]);
}
