//! The utilities of the DDI/DKI (SVR4.2 DDI/DKI, section D3): one case for each rule of its manual page.

use bytes::Bytes;
use streams::{
    Chain, Kind, Message, Module, ModuleInfo, Q, Queue, QueueInfo, ReadMode, Select, allocb, copyb, dupb,
    esballoc,
};

use crate::support::{Rig, data, epoch, text};

fn message(blocks: &[&'static str]) -> Message {
    Message::data(blocks.iter().map(|block| Bytes::from_static(block.as_bytes())).collect::<Chain>())
}

#[test]
fn adjmsg_trims_either_end_or_nothing() {
    let cases = [
        (0, true, "abcdef"),
        (2, true, "cdef"),
        (3, true, "def"),
        (6, true, ""),
        (7, false, "abcdef"),
        (-1, true, "abcde"),
        (-4, true, "ab"),
        (-6, true, ""),
        (-7, false, "abcdef"),
        (isize::MIN, false, "abcdef"),
    ];
    for (len, done, left) in cases {
        let mut m = message(&["abc", "def"]);
        assert_eq!((m.adjmsg(len), text(&m).as_str()), (done, left), "adjmsg({len})");
    }
}

#[test]
fn pullupmsg_puts_the_first_bytes_into_one_block() {
    let cases = [
        (Some(0), true, 3),
        (Some(3), true, 3),
        (Some(4), true, 4),
        (Some(7), true, 7),
        (None, true, 8),
        (Some(9), false, 3),
    ];
    for (len, done, first_bytes) in cases {
        let mut m = message(&["abc", "def", "gh"]);
        assert_eq!(m.pullupmsg(len), done, "pullupmsg({len:?})");
        assert_eq!(m.data.blocks()[0].len(), first_bytes, "pullupmsg({len:?})");
        assert_eq!(text(&m), "abcdefgh");
    }
}

#[test]
fn linkb_and_unlinkb_are_opposites() {
    let mut m = message(&["abc"]);
    m.linkb(message(&["def", "gh"]).data);
    assert_eq!((m.msgdsize(), m.data.blocks().len()), (8, 3));
    assert_eq!(m.unlinkb().unwrap(), "abc");
    assert_eq!(text(&m), "defgh");
    assert_eq!((m.unlinkb().unwrap().len(), m.unlinkb().unwrap().len(), m.unlinkb()), (3, 2, None));
}

#[test]
fn a_duplicate_shares_its_blocks_and_a_copy_does_not() {
    let m = message(&["abc", "def"]).in_band(3);
    let (dup, copy) = (m.dupmsg(), m.copymsg());
    assert_eq!((&dup, &copy), (&m, &m));
    assert_eq!(dup.data.blocks()[0].as_ptr(), m.data.blocks()[0].as_ptr());
    assert_ne!(copy.data.blocks()[0].as_ptr(), m.data.blocks()[0].as_ptr());
    let block = allocb(b"xyz");
    assert_eq!(dupb(&block).as_ptr(), block.as_ptr());
    assert_ne!(copyb(&block).as_ptr(), block.as_ptr());
}

#[test]
fn esballoc_frees_with_the_last_reference() {
    struct Owner(#[expect(dead_code, reason = "it counts the owners")] std::sync::Arc<()>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            b"owned"
        }
    }
    let token = std::sync::Arc::new(());
    let block = esballoc(Owner(std::sync::Arc::clone(&token)));
    let second = dupb(&block);
    drop(block);
    assert_eq!((second.as_ref(), std::sync::Arc::strong_count(&token)), (&b"owned"[..], 2));
    drop(second);
    assert_eq!(std::sync::Arc::strong_count(&token), 1);
}

fn filled() -> Queue {
    let mut q = Queue::new(QueueInfo::served(100, 10));
    for m in [data("n1"), data("n2"), data("b1").in_band(1), crate::support::urgent("u")] {
        let _ = q.putq(m);
    }
    q
}

fn order(q: &Queue) -> String {
    q.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[test]
fn insq_keeps_the_order_of_priority() {
    let cases = [
        (data("x"), 0, false),
        (data("x"), 1, false),
        (data("x"), 2, true),
        (data("x"), 4, true),
        (data("x"), 5, false),
        (data("x").in_band(1), 1, true),
        (data("x").in_band(1), 3, false),
        (crate::support::urgent("x"), 0, true),
        (crate::support::urgent("x"), 2, false),
    ];
    for (m, place, fits) in cases {
        let mut q = filled();
        let rank = m.rank();
        assert_eq!(q.insq(place, m).is_ok(), fits, "rank {rank} at {place}");
        assert_eq!(q.len(), 4 + usize::from(fits));
        assert_eq!(q.iter().nth(place).is_some_and(|m| text(m) == "x"), fits);
    }
}

#[test]
fn rmvq_takes_any_message_and_its_count() {
    let mut q = filled();
    assert_eq!(order(&q), "u b1 n1 n2");
    assert_eq!(text(&q.rmvq(2).unwrap()), "n1");
    assert_eq!((q.count_bytes(0), q.count_bytes(1)), (3, 2));
    assert_eq!(text(&q.rmvq(1).unwrap()), "b1");
    assert_eq!((q.count_bytes(1), q.rmvq(2)), (0, None));
    assert_eq!(order(&q), "u n2");
}

#[test]
fn strqset_may_give_room_to_those_who_wait() {
    /// Keeps messages that come down, and sets the marks that an ioctl gives.
    struct Marks;
    impl Module for Marks {
        fn name(&self) -> &str {
            "marks"
        }
        fn info(&self) -> ModuleInfo {
            ModuleInfo { write: QueueInfo::served(2, 1), ..ModuleInfo::default() }
        }
        fn wput(&mut self, q: &mut Q<'_>, m: Message) {
            match &m.kind {
                Kind::Ioctl(ioctl) => {
                    q.strqset(0, 100, 50);
                    q.ack(ioctl, 0, Chain::new());
                }
                _ => q.putq(m),
            }
        }
        fn wsrv(&mut self, _q: &mut Q<'_>) {}
    }
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(Marks)).unwrap();
    rig.write("full").unwrap();
    assert!(rig.write("x").is_err());
    rig.executive.want(rig.s, streams::Interest::WRITABLE);
    assert!(!rig.executive.has_wakeups());
    rig.executive.ioctl(rig.s, 9, Chain::new()).unwrap();
    assert!(rig.executive.has_wakeups());
    rig.write("x").unwrap();
}

#[test]
fn streamio_looks_at_a_stream_without_changing_it() {
    let mut rig = Rig::new();
    streams::modules::add_all(&mut rig.executive);
    assert_eq!(rig.executive.look(rig.s), None);
    assert_eq!(rig.executive.nread(rig.s), Some((0, 0)));
    for name in ["nullmod", "counter"] {
        rig.executive.push_named(rig.s, name, &[]).unwrap();
    }
    assert_eq!(rig.executive.look(rig.s), Some("counter"));
    assert!(rig.executive.find(rig.s, "nullmod") && !rig.executive.find(rig.s, "bufmod"));
    assert_eq!(rig.executive.list(rig.s), ["counter", "nullmod", "device"]);
    rig.data_up("four");
    rig.up(data("band").in_band(2));
    assert_eq!(rig.executive.nread(rig.s), Some((2, 4)));
    assert_eq!(rig.executive.getband(rig.s), Some(2));
    assert!(
        rig.executive.ckband(rig.s, 0) && rig.executive.ckband(rig.s, 2) && !rig.executive.ckband(rig.s, 1)
    );
    assert_eq!(rig.executive.peek_message(rig.s, false).map(text).unwrap(), "band");
    assert_eq!(rig.executive.peek_message(rig.s, true), None);
    assert_eq!(rig.executive.head_options(rig.s).unwrap().read_mode, Some(ReadMode::MessageNondiscard));
    let m = rig.executive.getpmsg(rig.s, Select::Any).unwrap().unwrap();
    assert_eq!(text(&m), "band", "all is still there");
}

#[test]
fn fdinsert_writes_the_number_of_a_stream_into_a_control_part() {
    let mut rig = Rig::new();
    let other = rig.executive.open(rig.driver).unwrap();
    let control = |bytes: &[u8]| Message { kind: Kind::Proto(bytes.into()), ..data("d") };
    rig.executive.at(epoch()).fdinsert(rig.s, other, control(&[0xff; 12]), 4).unwrap();
    let number = (other.index() as u32).to_ne_bytes();
    let expected = [[0xff; 4], number, [0xff; 4]].concat();
    assert_eq!(rig.state().received[0].kind, Kind::Proto((&expected[..]).into()));
    for (offset, bytes) in [(3, 12), (12, 12), (usize::MAX, 12), (0, 2)] {
        assert!(
            rig.executive.at(epoch()).fdinsert(rig.s, other, control(&vec![0; bytes]), offset).is_err(),
            "at {offset}"
        );
    }
    rig.executive.at(epoch()).close(other);
    assert!(
        rig.executive.at(epoch()).fdinsert(rig.s, other, control(&[0; 8]), 0).is_err(),
        "a closed stream has no number"
    );
}

#[test]
fn errors_are_reported_once_where_the_head_says_so() {
    let mut rig = Rig::new();
    let errors = streams::ErrorOptions { read_once: true, write_once: true };
    let options = streams::HeadOptions { errors: Some(errors), ..Default::default() };
    rig.executive.set_head_options(rig.s, &options);
    rig.device(|cx, s| cx.error(s, streams::Errno::EPROTO));
    assert!(rig.executive.getmsg(rig.s).is_err());
    assert!(rig.write("x").is_err());
    assert!(rig.executive.getmsg(rig.s).is_ok(), "RERRNONPERSIST");
    assert!(rig.write("x").is_ok(), "WERRNONPERSIST");
}
