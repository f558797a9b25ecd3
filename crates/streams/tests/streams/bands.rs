//! Priority along a whole stream (SVR4.2 DDI/DKI `putq(D3)`, `bcanputnext(D3)`; `streamio(7)` I_CKBAND, I_GETBAND;
//! `putpmsg(2)`).

use streams::{Kind, Message, ModuleInfo, Primitive, QueueInfo, ReadError, Select, WriteError};

use crate::support::{Noting, ONE, Rig, data, epoch, text, urgent};

#[test]
fn a_reader_gets_high_priority_first_then_higher_bands() {
    let mut rig = Rig::new();
    for m in [data("normal"), data("band").in_band(3), urgent("urgent")] {
        rig.up(m);
    }
    let mut order = Vec::new();
    while let Some(m) = rig.executive.getmsg(rig.s).unwrap() {
        order.push(text(&m));
    }
    assert_eq!(order, ["urgent", "band", "normal"]);
}

#[test]
fn getpmsg_takes_only_what_was_selected() {
    let mut rig = Rig::new();
    let take = |rig: &mut Rig, select| rig.executive.getpmsg(rig.s, select).unwrap().map(|m| text(&m));
    rig.data_up("normal");
    assert_eq!(take(&mut rig, Select::HighPriority), None);
    assert_eq!(take(&mut rig, Select::Band(1)), None);
    rig.up(data("band").in_band(2));
    assert_eq!(take(&mut rig, Select::Band(3)), None);
    assert_eq!(take(&mut rig, Select::Band(1)).unwrap(), "band");
    rig.up(urgent("urgent"));
    assert_eq!(take(&mut rig, Select::HighPriority).unwrap(), "urgent");
    assert_eq!(take(&mut rig, Select::Any).unwrap(), "normal");
    assert_eq!(take(&mut rig, Select::Any), None);
}

#[test]
fn several_answers_of_high_priority_are_all_kept() {
    let mut rig = Rig::new();
    for text in ["1", "2", "3"] {
        rig.up(urgent(text));
    }
    let mut order = Vec::new();
    while let Some(m) = rig.executive.getpmsg(rig.s, Select::HighPriority).unwrap() {
        order.push(text(&m));
    }
    assert_eq!(order, ["1", "2", "3"]);
}

#[test]
fn a_primitive_without_data_is_not_for_read() {
    let mut rig = Rig::new();
    rig.up(Message::proto(Primitive::OrdrelInd { association: ONE }));
    assert_eq!(rig.executive.read(rig.s, &mut [0; 8]), Err(ReadError::NotData));
    assert_eq!(rig.executive.peek(rig.s, &mut [0; 8]), Err(ReadError::NotData));
    let m = rig.executive.getmsg(rig.s).unwrap().unwrap();
    assert_eq!(m.kind, Kind::Proto(Primitive::OrdrelInd { association: ONE }.into()));
}

#[test]
fn high_priority_passes_a_full_stream_and_other_bands_their_own_way() {
    let mut rig = Rig::new();
    let served = QueueInfo::served(8, 2);
    let info = ModuleInfo { write: served, ..ModuleInfo::default() };
    let diary = rig.diary();
    rig.state().busy = true;
    rig.state().info.write = served;
    rig.executive.push(rig.s, Box::new(Noting { name: "m", info, diary })).unwrap();
    let down = |rig: &mut Rig, m: Message| {
        rig.executive.at(epoch()).putmsg(rig.s, m).map_err(|refused| refused.error)
    };
    let bound = |text: &'static str| Message { kind: Kind::Proto(Primitive::AddrReq.into()), ..data(text) };
    while down(&mut rig, bound("normal")).is_ok() {}
    assert_eq!(down(&mut rig, bound("normal")), Err(WriteError::WouldBlock));
    assert_eq!(down(&mut rig, bound("band").in_band(1)), Ok(()));
    assert_eq!(down(&mut rig, urgent("urgent")), Ok(()));
    rig.release();
    let received = rig.received();
    assert_eq!(received[0], "urgent");
    let band = received.iter().position(|m| m == "band").unwrap();
    assert!(band < received.len() - 1, "the band has passed some of the normal messages: {received:?}");
}
