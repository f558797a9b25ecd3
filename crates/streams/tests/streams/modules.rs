//! The modules that come with the executive.

use crate::support::{Rig, data, text};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use streams::modules::{self, Compress, Tap};
use streams::{Chain, Errno, Kind, Message, PushError, ReadError, TransferFlags, TransferInfo};

fn pushed(name: &str, arguments: &[&str]) -> (Rig, Instant) {
    let mut rig = Rig::new();
    let start = Instant::now();
    modules::add_all(&mut rig.executive);
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    rig.executive.push_named(rig.s, name, &arguments).unwrap();
    rig.executive.timeout(start);
    rig.executive.run();
    (rig, start)
}

/// Lets time pass in steps of a millisecond.
fn pass(rig: &mut Rig, start: Instant, from_ms: u64, to_ms: u64) {
    for ms in from_ms..=to_ms {
        rig.executive.timeout(start + Duration::from_millis(ms));
        rig.executive.run();
    }
}

#[test]
fn modules_refuse_arguments_that_they_do_not_know() {
    let mut rig = Rig::new();
    modules::add_all(&mut rig.executive);
    for (name, argument) in [
        ("nullmod", "x"),
        ("limit", "bits"),
        ("limit", "bits=0"),
        ("limit", "bits=-3M"),
        ("limit", "per-stream=yes"),
        ("filter", "drop=2"),
        ("filter", "way=sideways"),
    ] {
        let refused = rig.executive.push_named(rig.s, name, &[argument.to_owned()]);
        assert!(matches!(refused, Err(PushError::Argument(_))), "{name} {argument}");
    }
    assert!(rig.executive.modules(rig.s).is_empty());
}

#[test]
fn nullmod_and_bufmod_pass_everything_on_in_order() {
    for name in ["nullmod", "bufmod"] {
        let (mut rig, _) = pushed(name, &[]);
        for text in ["1", "2", "3"] {
            rig.write(text).unwrap();
            rig.up(data(["a", "b", "c"][usize::from(text.as_bytes()[0] - b'1')]));
        }
        rig.executive.run();
        assert_eq!(rig.received(), ["1", "2", "3"], "{name}");
        assert_eq!(rig.read_all(), ["a", "b", "c"], "{name}");
    }
}

#[test]
fn bufmod_holds_what_the_driver_has_no_room_for() {
    let (mut rig, _) = pushed("bufmod", &[]);
    rig.state().busy = true;
    let mut written = 0;
    while rig.write(&"x".repeat(1000)).is_ok() {
        rig.executive.run();
        written += 1;
        assert!(written < 1000, "a buffer has an end");
    }
    assert!(written > 120, "64 KB with the driver and 64 KB with the module: {written}");
    rig.release();
    assert_eq!(rig.received().len(), written);
}

#[test]
fn limit_holds_its_rate_of_messages() {
    let (mut rig, start) = pushed("limit", &["messages=1k"]);
    for _ in 0..20 {
        rig.write("x").unwrap();
    }
    let begun = rig.received().len();
    assert!(begun <= 11, "no more than the burst of 10 ms at once: {begun}");
    pass(&mut rig, start, 1, 5);
    assert_eq!(rig.received().len(), begun + 5, "one a millisecond");
    pass(&mut rig, start, 6, 30);
    assert_eq!(rig.received().len(), 20);
}

#[test]
fn limit_holds_its_rate_of_bits_within_a_percent_both_ways() {
    let (mut rig, start) = pushed("limit", &["bits=8M"]);
    let block = "x".repeat(1000);
    // A million bytes a second: a block each millisecond.
    for ms in 1..=10_000 {
        while rig.write(&block).is_ok() && rig.state().received.len() < 20_000 {}
        rig.executive.timeout(start + Duration::from_millis(ms));
        rig.executive.run();
    }
    let sent = rig.received().len();
    assert!((9_900..=10_100).contains(&sent), "{sent} blocks in 10 s");
}

#[test]
fn limit_may_count_each_stream_for_itself() {
    let (mut rig, start) = pushed("limit", &["messages=1", "per-stream=yes"]);
    let write = |rig: &mut Rig, stream, text: &str| {
        let info = TransferInfo { stream, ..TransferInfo::default() };
        rig.executive.write(rig.s, info, text.as_bytes()).unwrap();
    };
    write(&mut rig, 1, "1a");
    write(&mut rig, 1, "1b");
    write(&mut rig, 2, "2a");
    rig.executive.run();
    assert_eq!(rig.received(), ["1a", "2a"], "one stream does not hold up another");
    pass(&mut rig, start, 1, 1001);
    assert_eq!(rig.received(), ["1a", "2a", "1b"]);
}

#[test]
fn filter_drops_the_part_that_it_should_and_gives_the_window_back() {
    let (mut rig, _) = pushed("filter", &["drop=0.25", "seed=7", "way=both"]);
    for _ in 0..4000 {
        rig.write("d").unwrap();
        rig.data_up("u");
    }
    rig.executive.run();
    let (sent, read) = (rig.received().len(), rig.read_all().len());
    for count in [sent, read] {
        assert!((2850..=3150).contains(&count), "{count} of 4000 are left");
    }
    let credit: usize = rig.state().consumed.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(credit, 4000, "for those that were dropped, too");
}

#[test]
fn filter_chooses_by_identifier_and_stream() {
    let (mut rig, _) = pushed("filter", &["drop=1", "ppid=5", "stream=2"]);
    for (ppid, stream) in [(5, 2), (5, 1), (4, 2)] {
        let info = TransferInfo { ppid, stream, ..TransferInfo::default() };
        rig.executive.write(rig.s, info, format!("{ppid} {stream}").as_bytes()).unwrap();
    }
    assert_eq!(rig.received(), ["5 1", "4 2"]);
}

#[test]
fn filter_drops_or_keeps_a_record_as_a_whole() {
    let (mut rig, _) = pushed("filter", &["drop=0.5", "seed=3", "way=up"]);
    for _ in 0..200 {
        rig.up(crate::support::partial_data("["));
        rig.up(crate::support::partial_data("."));
        rig.up(data("]"));
    }
    let read = rig.read_all().concat();
    assert!(read.replace("[.]", "").is_empty(), "no part is missing: {read:.60}");
    assert!((60..140).contains(&(read.len() / 3)), "{} records", read.len() / 3);
}

#[test]
fn filter_duplicates_and_delays() {
    let (mut rig, start) = pushed("filter", &["duplicate=1", "delay=20ms"]);
    rig.write("x").unwrap();
    pass(&mut rig, start, 0, 19);
    assert!(rig.received().is_empty());
    pass(&mut rig, start, 20, 21);
    assert_eq!(rig.received(), ["x", "x"]);
}

#[test]
fn tap_writes_a_file_that_pcap_readers_open() {
    let (mut rig, start) = pushed("nullmod", &[]);
    let file = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&file);
    let take = move |bytes: &[u8]| {
        sink.lock().unwrap().extend_from_slice(bytes);
        true
    };
    let tap = Tap::new(Box::new(take), (start, Duration::from_secs(1_000_000_000)), (1234, 5678));
    rig.executive.push(rig.s, Box::new(tap)).unwrap();
    let info = TransferInfo { stream: 3, ppid: 60, ..TransferInfo::default() };
    rig.executive.write(rig.s, info, b"hello").unwrap();
    rig.up(Message::optdata_ind(TransferInfo { tsn: 9, ssn: 4, ..info }, Chain::from(b"world!".to_vec())));
    rig.executive.putmsg(rig.s, Message::proto(streams::Primitive::OrdrelReq { association: 0 })).unwrap();
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
    assert_eq!((primitive.len(), *options), (12, 2), "a header alone, with a comment");
}

#[test]
fn a_slow_reader_of_a_tap_loses_records_and_the_stream_nothing() {
    let (mut rig, start) = pushed("nullmod", &[]);
    let mut room = 2;
    let take = move |_: &[u8]| {
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

/// Hands what one end has sent to the other.
fn carry(from: &mut Rig, to: &mut Rig) -> usize {
    let sent = std::mem::take(&mut from.state().received);
    let mut wire_bytes = 0;
    for m in sent {
        let Some(info) = m.transfer() else { continue };
        wire_bytes += m.data.len();
        to.up(Message::optdata_ind(TransferInfo { association: 1, ..info }, m.data));
    }
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
    let info = TransferInfo { ppid: 46, stream: 7, ..TransferInfo::default() };
    a.executive.write(a.s, info, long.as_bytes()).unwrap();
    a.write("!").unwrap();
    let wire_bytes = carry(&mut a, &mut b);
    assert!(wire_bytes < long.len() / 10, "{wire_bytes} bytes for {}", long.len());
    let mut read = Vec::new();
    while let Some(m) = b.executive.getmsg(b.s).unwrap() {
        read.push((m.transfer().unwrap().ppid, text(&m)));
    }
    assert_eq!(read, [(0, long.clone()), (46, long.clone()), (0, "!".into())]);
    let credit: usize = b.state().consumed.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(credit, long.len() + 1 + wire_bytes, "the window of what came, not of what it became");
}

#[test]
fn compress_leaves_an_end_alone_that_does_not_answer() {
    let (mut a, _) = pushed("compress", &[]);
    let long = "x".repeat(1000);
    for _ in 0..3 {
        a.write(&long).unwrap();
    }
    assert_eq!(a.received()[1..], [long.clone(), long.clone(), long]);
}

#[test]
fn compress_refuses_what_the_other_end_cannot_have_sent() {
    let huge = [&[2u8, 0, 0, 0, 1][..], &u32::MAX.to_be_bytes(), &[0; 20]].concat();
    let garbled = [&[2u8, 0, 0, 0, 1][..], &100u32.to_be_bytes(), &[0xff; 20]].concat();
    for (bytes, flags) in [
        (huge, TransferFlags::NONE),
        (garbled, TransferFlags::NONE),
        (vec![77], TransferFlags::NONE),
        (vec![1], TransferFlags::MORE),
    ] {
        let (mut rig, _) = pushed("compress", &[]);
        let info = TransferInfo { ppid: Compress::PPID, flags, association: 1, ..TransferInfo::default() };
        let len = bytes.len();
        rig.up(Message::optdata_ind(info, Chain::from(bytes)));
        assert_eq!(rig.executive.getmsg(rig.s), Err(ReadError::Failed(Errno::EBADMSG)));
        assert_eq!(rig.state().consumed, [(1, len)]);
    }
}

#[test]
fn a_message_that_looks_like_the_modules_own_arrives_as_it_is() {
    let (mut a, _) = pushed("compress", &[]);
    let (mut b, _) = pushed("compress", &[]);
    a.write("hello").unwrap();
    carry(&mut a, &mut b);
    carry(&mut b, &mut a);
    let own = TransferInfo { ppid: Compress::PPID, ..TransferInfo::default() };
    a.executive.write(a.s, own, &[0]).unwrap();
    carry(&mut a, &mut b);
    let mut last = None;
    while let Some(m) = b.executive.getmsg(b.s).unwrap() {
        last = Some(m);
    }
    let last = last.unwrap();
    assert_eq!((last.transfer().unwrap().ppid, last.data.to_vec()), (Compress::PPID, vec![0]));
    assert!(matches!(last.kind, Kind::Proto(_)));
}
