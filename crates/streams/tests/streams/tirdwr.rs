//! A connection as a file: `tirdwr(7)` of SVR4.2.

use streams::{Chain, Errno, Kind, Message, Primitive, ReadError, RecvInfo, SendInfo, Which};

use crate::support::{ONE, Rig, epoch, pushed};

#[test]
fn tirdwr_shows_data_and_the_end_of_the_file_alone() {
    let (mut rig, _) = pushed("tirdwr", &[]);
    rig.up(Message::optdata_ind(ONE, RecvInfo::default(), Chain::from(b"data".to_vec())));
    rig.up(Message::proto(Primitive::OrdrelInd { association: ONE }));
    let mut buffer = [0; 10];
    let read = rig.executive.read(rig.s, &mut buffer).unwrap().map(|(bytes, ..)| bytes);
    assert_eq!((read, &buffer[..4]), (Some(4), &b"data"[..]));
    assert_eq!(rig.executive.read(rig.s, &mut buffer).unwrap().map(|(bytes, ..)| bytes), Some(0));
    let credit: usize = rig.state().consumed.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(credit, 4 + 1, "the data, and the report of the end");
    rig.write("answer").unwrap();
    rig.executive.pop(rig.s).unwrap();
    let kinds: Vec<Kind> = rig.state().received.iter().map(|m| m.kind.clone()).collect();
    assert!(
        matches!(&kinds[..], [_, Kind::Proto(control)] if *control == Primitive::OrdrelReq { association: Which::Only }),
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
        broken(&|rig| rig.executive.at(epoch()).putmsg(rig.s, Message::proto(Primitive::UnbindReq)).unwrap()),
        eproto
    );
    assert_eq!(
        broken(&|rig| rig.up(Message::proto(Primitive::DisconInd {
            reason: 0,
            sequence: 0,
            association: ONE,
            cause: 0
        }))),
        Err(ReadError::HungUp)
    );
}

fn disconnected() -> Message {
    Message::proto(Primitive::DisconInd { reason: 0, sequence: 0, association: ONE, cause: 0 })
}

/// `tirdwr(7)`: a disconnection is a hang-up, after which nothing passes and nothing is released.
#[test]
fn tirdwr_lets_nothing_pass_after_a_disconnection() {
    let (mut rig, _) = pushed("tirdwr", &[]);
    rig.executive.push_named(rig.s, "counter", &[]).unwrap();
    rig.up(Message::proto(Primitive::OrdrelInd { association: ONE }));
    rig.up(disconnected());
    rig.data_up("late");
    rig.up(Message::data(Chain::from(b"later".to_vec())));
    let mut buffer = [0; 10];
    assert_eq!(rig.executive.read(rig.s, &mut buffer).unwrap().map(|(bytes, ..)| bytes), Some(0));
    assert_eq!(rig.executive.read(rig.s, &mut buffer), Err(ReadError::HungUp), "what came late is gone");
    assert_eq!(
        rig.state().consumed[..],
        [(ONE, 1), (ONE, 4), (Which::Only, 5)],
        "and its window is given back"
    );
    rig.executive.at(epoch()).close_now(rig.s);
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

/// `tirdwr(7)`: also after an error; messages that a module above still sends are discarded.
#[test]
fn tirdwr_lets_nothing_pass_after_a_violation() {
    let (mut rig, _) = pushed("tirdwr", &[]);
    let sends = vec![
        Message::data(Chain::from(b"data".to_vec())),
        Message::optdata_req(Which::Only, SendInfo::default(), bytes::Bytes::from_static(b"data")),
    ];
    rig.executive.push(rig.s, Box::new(Parting(sends))).unwrap();
    rig.up(Message::proto(Primitive::ConnInd { addresses: Box::default(), sequence: 1 }));
    assert_eq!(rig.executive.getmsg(rig.s), Err(ReadError::Failed(Errno::EPROTO)));
    rig.executive.pop(rig.s).unwrap();
    assert!(rig.state().received.is_empty(), "{:?}", rig.received());
}
