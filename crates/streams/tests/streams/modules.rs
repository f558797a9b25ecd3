//! The modules that come with the executive (`tirdwr(7)`, `bufmod(7)`, `strlog(D3)`; `limit`, `filter`, `compress`, `tap` are
//! Swiftwater's own).

use crate::support::{Rig, data, text};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use streams::modules::{self, Compress, RecordSink, Tap, Trace};
use streams::{Chain, Errno, Kind, Message, Primitive, PushError, ReadError, RecvInfo, SendInfo};

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

/// Advances the time in steps of a millisecond.
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
        let info = SendInfo { stream, ..SendInfo::default() };
        rig.executive.write(rig.s, 0, info, text.as_bytes()).unwrap();
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
        let info = SendInfo { ppid, stream, ..SendInfo::default() };
        rig.executive.write(rig.s, 0, info, format!("{ppid} {stream}").as_bytes()).unwrap();
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
    let take = move |pieces: &[&[u8]]| {
        sink.lock().unwrap().extend(pieces.concat());
        true
    };
    let tap = Tap::new(Box::new(take), (start, Duration::from_secs(1_000_000_000)), (1234, 5678));
    rig.executive.push(rig.s, Box::new(tap)).unwrap();
    let info = SendInfo { stream: 3, ppid: 60, ..SendInfo::default() };
    rig.executive.write(rig.s, 0, info, b"hello").unwrap();
    rig.up(Message::optdata_ind(
        0,
        RecvInfo { stream: 3, ppid: 60, tsn: 9, ssn: 4, ..RecvInfo::default() },
        // In three blocks.
        [&b"wor"[..], b"l", b"d!"].map(bytes::Bytes::from_static).into_iter().collect(),
    ));
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
    rig.up(Message::optdata_ind(0, RecvInfo::default(), Chain::from(vec![7; 70_001])));
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

#[test]
fn a_trace_is_a_line_for_each_message() {
    let (mut rig, start) = pushed("nullmod", &[]);
    let lines = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&lines);
    let take = move |pieces: &[&[u8]]| {
        sink.lock().unwrap().push_str(std::str::from_utf8(&pieces.concat()).unwrap());
        true
    };
    rig.executive.push(rig.s, Box::new(Trace::new(Box::new(take)))).unwrap();
    let info = SendInfo { stream: 3, ppid: 60, unordered: true, ..SendInfo::default() };
    rig.executive.write(rig.s, 0, info, b"a \"line\"\n").unwrap();
    rig.executive.at(start + Duration::from_millis(1500));
    rig.up(Message::optdata_ind(
        0,
        RecvInfo { tsn: 9, ssn: 4, ..RecvInfo::default() },
        Chain::from(b"x".repeat(40)),
    ));
    rig.executive.putmsg(rig.s, Message::proto(streams::Primitive::OrdrelReq { association: 0 })).unwrap();
    let expected = format!(
        "0.000000 > T_OPTDATA_REQ stream 3 ppid 60 unordered 9 bytes \"a \\\"line\\\"\\n\"\n\
         1.500000 < T_OPTDATA_IND stream 0 ppid 0 ssn 4 tsn 9 40 bytes \"{}\"...\n\
         1.500000 > T_ORDREL_REQ\n",
        "x".repeat(32)
    );
    assert_eq!(*lines.lock().unwrap(), expected);
}

/// Passes the messages that one end has sent to the other.
fn carry(from: &mut Rig, to: &mut Rig) -> usize {
    let sent = std::mem::take(&mut from.state().received);
    let mut wire_bytes = 0;
    for m in sent {
        let Some(SendInfo { stream, ppid, unordered, more, .. }) = m.send_info() else { continue };
        let info = RecvInfo { stream, ppid, unordered, more, ..RecvInfo::default() };
        wire_bytes += m.data.len();
        to.up(Message::optdata_ind(1, info, m.data));
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
    let info = SendInfo { ppid: 46, stream: 7, ..SendInfo::default() };
    a.executive.write(a.s, 0, info, long.as_bytes()).unwrap();
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
        a.executive.write(a.s, 0, SendInfo::default(), &[7; 60_000]).unwrap();
    }
    let wire_bytes = carry(&mut a, &mut b);
    b.executive.run();
    let described = b.executive.describe(b.s).unwrap();
    assert_eq!((described.head_queue.messages, described.modules[0].read.messages), (3, 17));
    assert!(credited(&b) - before < wire_bytes / 2, "what waits has its window");
    let mut read = 0;
    while let Some(m) = b.executive.getmsg(b.s).unwrap() {
        assert_eq!(m.data, [7; 60_000][..]);
        read += 1;
        b.executive.run();
    }
    assert_eq!((read, credited(&b) - before), (20, wire_bytes));
}

#[test]
fn what_waits_compressed_is_handed_up_when_the_module_is_popped_and_the_other_end_is_told() {
    let (mut a, mut b) = compressing();
    for _ in 0..20 {
        a.executive.write(a.s, 0, SendInfo::default(), &[7; 60_000]).unwrap();
    }
    carry(&mut a, &mut b);
    b.executive.pop(b.s).unwrap();
    for _ in 0..20 {
        assert_eq!(b.executive.getmsg(b.s).unwrap().unwrap().data, [7; 60_000][..]);
    }
    carry(&mut b, &mut a);
    a.executive.write(a.s, 0, SendInfo::default(), &[7; 60_000]).unwrap();
    assert_eq!(carry(&mut a, &mut b), 60_000, "it comes as it is");
    assert_eq!(a.read_all(), Vec::<String>::new());
}

#[test]
fn a_hangup_comes_behind_what_modules_hold() {
    for pops in [false, true] {
        let (_, mut b) = compressing();
        b.executive.push_named(b.s, "bufmod", &[]).unwrap();
        for i in 0..20u8 {
            b.up(Message::optdata_ind(0, RecvInfo::default(), Chain::from(vec![i; 60_000])));
        }
        b.up(Message::new(Kind::Hangup));
        b.executive.run();
        assert!(!b.executive.poll(b.s).hangup, "the head holds three messages, and modules the others");
        if pops {
            b.executive.pop(b.s).unwrap();
            b.executive.pop(b.s).unwrap();
        }
        for i in 0..20u8 {
            assert_eq!(b.executive.getmsg(b.s).unwrap().map(|m| m.data), Some(Chain::from(vec![i; 60_000])));
            b.executive.run();
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
    assert_eq!(a.received()[1..], [long.clone(), long.clone(), long]);
}

#[test]
fn compress_refuses_what_the_other_end_cannot_have_sent() {
    let huge = [&[2u8, 0, 0, 0, 1][..], &u32::MAX.to_be_bytes(), &[0; 20]].concat();
    let garbled = [&[2u8, 0, 0, 0, 1][..], &100u32.to_be_bytes(), &[0xff; 20]].concat();
    for (bytes, more) in [(huge, false), (garbled, false), (vec![77], false), (vec![1], true)] {
        let (mut rig, _) = pushed("compress", &[]);
        let info = RecvInfo { ppid: Compress::PPID, more, ..RecvInfo::default() };
        let len = bytes.len();
        rig.up(Message::optdata_ind(1, info, Chain::from(bytes)));
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
    let own = SendInfo { ppid: Compress::PPID, ..SendInfo::default() };
    a.executive.write(a.s, 0, own, &[0]).unwrap();
    carry(&mut a, &mut b);
    let mut last = None;
    while let Some(m) = b.executive.getmsg(b.s).unwrap() {
        last = Some(m);
    }
    let last = last.unwrap();
    assert_eq!((last.user_data().unwrap().ppid, last.data.to_vec()), (Compress::PPID, vec![0]));
    assert!(matches!(last.kind, Kind::Proto(_)));
}

#[test]
fn tirdwr_shows_data_and_the_end_of_the_file_alone() {
    let (mut rig, _) = pushed("tirdwr", &[]);
    rig.up(Message::optdata_ind(1, RecvInfo::default(), Chain::from(b"data".to_vec())));
    rig.up(Message::proto(Primitive::OrdrelInd { association: 1 }));
    let mut buffer = [0; 10];
    let read = rig.executive.read(rig.s, &mut buffer).unwrap().map(|(bytes, ..)| bytes);
    assert_eq!((read, &buffer[..4]), (Some(4), &b"data"[..]));
    assert_eq!(rig.executive.read(rig.s, &mut buffer).unwrap().map(|(bytes, ..)| bytes), Some(0));
    let credit: usize = rig.state().consumed.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(credit, 4);
    rig.write("answer").unwrap();
    rig.executive.pop(rig.s).unwrap();
    let kinds: Vec<Kind> = rig.state().received.iter().map(|m| m.kind.clone()).collect();
    assert!(
        matches!(&kinds[..], [_, Kind::Proto(control)] if *control == Primitive::OrdrelReq { association: 0 }),
        "the data, and the release of this side: {kinds:?}"
    );
}

#[test]
fn tirdwr_ends_a_stream_with_primitives_that_a_file_has_not() {
    let broken = |put: &dyn Fn(&mut Rig)| {
        let (mut rig, _) = pushed("tirdwr", &[]);
        put(&mut rig);
        rig.executive.getmsg(rig.s)
    };
    let eproto = Err(ReadError::Failed(Errno::EPROTO));
    assert_eq!(
        broken(&|rig| rig.up(Message::proto(Primitive::ConnInd { addresses: Box::default(), sequence: 1 }))),
        eproto
    );
    assert_eq!(
        broken(&|rig| rig.executive.putmsg(rig.s, Message::proto(Primitive::UnbindReq)).unwrap()),
        eproto
    );
    assert_eq!(
        broken(&|rig| rig.up(Message::proto(Primitive::DisconInd {
            reason: 0,
            sequence: 0,
            association: 1,
            cause: 0
        }))),
        Err(ReadError::HungUp)
    );
}

fn disconnected() -> Message {
    Message::proto(Primitive::DisconInd { reason: 0, sequence: 0, association: 1, cause: 0 })
}

/// `tirdwr(7)`: a disconnection is a hang-up, after which nothing passes and nothing is released.
#[test]
fn tirdwr_lets_nothing_pass_after_a_disconnection() {
    let (mut rig, _) = pushed("tirdwr", &[]);
    rig.executive.push_named(rig.s, "counter", &[]).unwrap();
    rig.up(Message::proto(Primitive::OrdrelInd { association: 1 }));
    rig.up(disconnected());
    rig.data_up("late");
    rig.up(Message::data(Chain::from(b"later".to_vec())));
    let mut buffer = [0; 10];
    assert_eq!(rig.executive.read(rig.s, &mut buffer).unwrap().map(|(bytes, ..)| bytes), Some(0));
    assert_eq!(rig.executive.read(rig.s, &mut buffer), Err(ReadError::HungUp), "what came late is gone");
    assert_eq!(rig.state().consumed[..2], [(1, 4), (0, 5)], "and its window is given back");
    rig.executive.close_now(rig.s);
    assert!(rig.state().received.is_empty(), "a connection that is gone is not released");
}

/// Sends what the test tells it when it is popped.
struct Parting(Vec<Message>);

impl streams::Module for Parting {
    fn name(&self) -> &str {
        "parting"
    }
    fn close(&mut self, q: &mut streams::Q<'_>) {
        for m in self.0.drain(..) {
            q.putnext(m);
        }
    }
}

/// `tirdwr(7)`: after an error, too; what a module above still sends goes nowhere.
#[test]
fn tirdwr_lets_nothing_pass_after_a_violation() {
    let (mut rig, _) = pushed("tirdwr", &[]);
    let sends = vec![
        Message::data(Chain::from(b"data".to_vec())),
        Message::optdata_req(0, SendInfo::default(), bytes::Bytes::from_static(b"data")),
    ];
    rig.executive.push(rig.s, Box::new(Parting(sends))).unwrap();
    rig.up(Message::proto(Primitive::ConnInd { addresses: Box::default(), sequence: 1 }));
    assert_eq!(rig.executive.getmsg(rig.s), Err(ReadError::Failed(Errno::EPROTO)));
    rig.executive.pop(rig.s).unwrap();
    assert!(rig.state().received.is_empty(), "{:?}", rig.received());
}
