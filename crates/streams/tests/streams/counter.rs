//! The module that counts (Swiftwater's own; SVR4.2 DDI/DKI `put(D2)`, `putnext(D3)`).

use streams::Chain;
use streams::modules::Counter;

use crate::support::Rig;

#[test]
fn a_counter_sees_every_message_both_ways() {
    let mut rig = Rig::new();
    rig.write("unseen").unwrap();
    let counter = Counter::new();
    let counts = counter.counts();
    rig.executive.push(rig.s, Box::new(counter)).unwrap();
    for text in ["a", "bc"] {
        rig.write(text).unwrap();
    }
    rig.data_up("def");
    assert_eq!((counts.messages_down(), counts.bytes_down()), (2, 3));
    assert_eq!((counts.messages_up(), counts.bytes_up()), (1, 3));

    let reply = rig.executive.ioctl(rig.s, Counter::GET_COUNTS, Chain::new()).unwrap().unwrap();
    let counts: Vec<u64> =
        reply.data.to_vec().chunks(8).map(|c| u64::from_ne_bytes(c.try_into().unwrap())).collect();
    assert_eq!(counts, [2, 3, 1, 3]);
    assert_eq!(rig.received(), ["unseen", "a", "bc"]);
    assert_eq!(rig.read_all(), ["def"]);
}

#[test]
fn counters_answer_for_themselves() {
    let mut rig = Rig::new();
    rig.executive.push(rig.s, Box::new(Counter::new())).unwrap();
    rig.write("one").unwrap();
    rig.executive.push(rig.s, Box::new(Counter::new())).unwrap();
    let reply = rig.executive.ioctl(rig.s, Counter::GET_COUNTS, Chain::new()).unwrap().unwrap();
    assert_eq!(reply.data.to_vec(), [0; 32], "the upper one answers");
    rig.executive.pop(rig.s).unwrap();
    let reply = rig.executive.ioctl(rig.s, Counter::GET_COUNTS, Chain::new()).unwrap().unwrap();
    assert_ne!(reply.data.to_vec(), [0; 32]);
}
