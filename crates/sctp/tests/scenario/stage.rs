//! The end of a send queue, lent to the caller that fills it.

use bytes::Bytes;
use lab::packets::data_of;
use lab::script::Peer;
use lab::{A, B, TwoHosts};
use sctp::{
    Admission, AssociationConfig, AssociationId, Batch, FlushWhen, Lifetime, PathHints, PathId, SendInfo,
    Stage, Staged,
};

fn sends_alone(peer: &mut Peer, message: &'static [u8]) {
    let info = SendInfo::default();
    peer.endpoint.send(peer.now, peer.id, &info, message.len(), [Bytes::from_static(message)]).unwrap();
}

/// Returns stream, stream sequence number and first byte of each message in the packets that arrive now.
fn heard(peer: &mut Peer) -> Vec<(u16, u16, u8)> {
    peer.collect_output();
    let mut heard = Vec::new();
    while let Some((_, packet)) = peer.hears_on_maybe() {
        heard.extend(data_of(&packet).iter().map(|data| (data.stream, data.ssn, data.payload[0])));
    }
    heard
}

/// Returns a peer whose endpoint has a small message in flight and another that waits, and its stage.
fn staging(config: AssociationConfig) -> (Peer, Stage) {
    let mut peer = Peer::established_with(1, config);
    sends_alone(&mut peer, b"a");
    assert_eq!(heard(&mut peer), [(0, 0, b'a')]);
    sends_alone(&mut peer, b"b");
    let stage = peer.endpoint.lend_stage(peer.id, 1, FlushWhen::Rule).expect("it waits for company");
    (peer, stage)
}

#[test]
fn staged_messages_keep_their_place_and_count() {
    let (mut peer, mut stage) = staging(AssociationConfig::default());
    assert_eq!(stage.push(&SendInfo::stream(1), b"c"), Staged::Yes);
    assert_eq!(stage.push(&SendInfo::default(), b"ddd"), Staged::Yes);
    assert_eq!((stage.messages(), stage.data_bytes()), (2, 4));
    peer.endpoint.return_stage(stage);
    let statistics = peer.endpoint.statistics(peer.id).unwrap();
    assert_eq!((statistics.messages_sent, statistics.bytes_sent), (4, 6));
    sends_alone(&mut peer, b"e");
    let mut batch = Batch::new();
    assert!(batch.push(&SendInfo::default(), b"f"));
    assert_eq!(peer.endpoint.send_batch(peer.id, &mut batch), Ok(true));
    let expected = [(0, 1, b'b'), (1, 0, b'c'), (0, 2, b'd'), (0, 3, b'e'), (0, 4, b'f')];
    assert_eq!(heard(&mut peer), expected);
}

#[test]
fn a_stage_takes_what_its_association_would_and_nothing_else() {
    let plain = SendInfo::default();
    let config = AssociationConfig { streams_out: 2, message_bytes_max: 100, ..AssociationConfig::default() };
    let (mut peer, mut stage) = staging(config);
    for (info, bytes) in [
        (plain, 0),
        (plain, 101),
        (SendInfo::stream(2), 5),
        (SendInfo { more: true, ..plain }, 5),
        (SendInfo { context: 1, ..plain }, 5),
        (SendInfo { path: Some(PathId(0)), ..plain }, 5),
        (SendInfo { lifetime: Lifetime::from_ms(9), ..plain }, 5),
    ] {
        assert_eq!(stage.push(&info, &vec![7; bytes]), Staged::No, "{info:?} {bytes}");
    }
    assert_eq!(stage.push(&SendInfo { stream: 1, unordered: true, ppid: 3, ..plain }, b"c"), Staged::Yes);
    assert_eq!(stage.messages(), 1);
    peer.endpoint.return_stage(stage);
    assert_eq!(heard(&mut peer).len(), 2);
}

#[test]
fn a_stage_is_full_where_the_send_buffer_is() {
    let config = AssociationConfig {
        send_buffer_bytes: 1000,
        send_buffer_tuned_bytes: 1000,
        ..AssociationConfig::default()
    };
    let (mut peer, mut stage) = staging(config);
    while stage.push(&SendInfo::default(), &[7; 16]) == Staged::Yes {}
    let messages = stage.messages();
    peer.endpoint.return_stage(stage);
    let buffered_bytes = peer.endpoint.statistics(peer.id).unwrap().send_buffered_bytes;
    // Each message takes 64 bytes in addition.
    assert!((1000 - 80..=1000).contains(&buffered_bytes), "{buffered_bytes}");
    assert_eq!(heard(&mut peer).len(), 1 + messages);
}

#[test]
fn a_stage_says_when_a_packet_is_full() {
    let (mut peer, mut stage) = staging(AssociationConfig::default());
    let mut due = Staged::Yes;
    while due == Staged::Yes {
        assert!(!peer.endpoint.transmit_due());
        due = stage.push(&SendInfo::default(), &[7; 48]);
    }
    assert_eq!(due, Staged::Due);
    peer.endpoint.return_stage(stage);
    assert!(peer.endpoint.transmit_due());
    assert!(peer.endpoint.lend_stage(peer.id, 1, FlushWhen::Rule).is_none(), "it must transmit first");
}

#[test]
fn there_is_no_stage_where_a_message_would_leave_at_once_or_never() {
    let mut idle = Peer::established(1);
    assert!(idle.endpoint.lend_stage(idle.id, 1, FlushWhen::Rule).is_none());
    sends_alone(&mut idle, b"a");
    assert!(idle.endpoint.lend_stage(idle.id, 1, FlushWhen::Rule).is_none(), "nothing is in flight");

    let (mut closing, stage) = staging(AssociationConfig::default());
    closing.endpoint.return_stage(stage);
    closing.endpoint.shutdown(closing.now, closing.id, &mut closing.app);
    assert!(closing.endpoint.lend_stage(closing.id, 1, FlushWhen::Rule).is_none(), "it closes");

    let (mut open, stage) = staging(AssociationConfig::default());
    open.endpoint.return_stage(stage);
    let begun = SendInfo { more: true, ..SendInfo::default() };
    open.endpoint.send(open.now, open.id, &begun, 5, [Bytes::from_static(b"begun")]).unwrap();
    assert!(open.endpoint.lend_stage(open.id, 1, FlushWhen::Rule).is_none(), "a record is open");
}

const LONGER_BYTES: usize = 4000;
const LONGER_WIRE_BYTES: usize = 16 + LONGER_BYTES;

/// Two hosts with packets of 65,000 bytes.
struct WideHosts {
    hosts: TwoHosts,
    a: AssociationId,
}

impl WideHosts {
    fn new() -> Self {
        let mut hosts = TwoHosts::new(1);
        for node in [A, B] {
            hosts.app(node).hints = PathHints { mtu_bytes: 65_000, ..PathHints::default() };
        }
        let (a, _) = hosts.establish();
        WideHosts { hosts, a }
    }

    /// Sends a message past any stage.
    fn sends(&mut self, bytes: usize) {
        let (now, info) = (self.hosts.now(), SendInfo::default());
        let endpoint = &mut self.hosts.node_mut(A).endpoint;
        let Admission::Granted(permit) = endpoint.admit(self.a, &info, bytes) else {
            panic!("there is room")
        };
        permit.send(now, [&vec![7; bytes][..]]);
    }

    fn stage(&mut self, bytes: usize, when: FlushWhen) -> Option<Stage> {
        self.hosts.node_mut(A).endpoint.lend_stage(self.a, bytes, when)
    }

    /// Sends messages of [`LONGER_BYTES`], most of them into stages, until they are to leave. Returns their number.
    fn sends_until_due(&mut self) -> usize {
        let mut messages = 0;
        loop {
            self.sends(LONGER_BYTES);
            messages += 1;
            let Some(mut stage) = self.stage(LONGER_BYTES, FlushWhen::PacketFull) else { return messages };
            let mut last = Staged::Yes;
            while last == Staged::Yes {
                last = stage.push(&SendInfo::default(), &[7; LONGER_BYTES]);
            }
            messages += stage.messages();
            self.hosts.node_mut(A).endpoint.return_stage(stage);
            if last == Staged::Due {
                return messages;
            }
        }
    }

    /// Returns the number of messages in each packet with data that A sends now.
    fn transmits(&mut self) -> Vec<usize> {
        let before = self.hosts.sent.len();
        self.hosts.exchange();
        let of_a = self.hosts.sent[before..].iter().filter(|sent| sent.by == A);
        of_a.map(|sent| data_of(&sent.packet).len()).filter(|messages| *messages > 0).collect()
    }

    /// Returns the number of messages of [`LONGER_BYTES`] that a packet has room for.
    fn messages_per_packet(&self) -> usize {
        let association = self.hosts.node(A).endpoint.association(self.a).expect("it is up");
        (association.fragmentation_point_bytes() + 16) / LONGER_WIRE_BYTES
    }
}

#[test]
fn longer_messages_wait_until_their_packet_is_full() {
    let mut hosts = WideHosts::new();
    assert!(hosts.stage(LONGER_BYTES, FlushWhen::PacketFull).is_none(), "nothing waits");
    let full = hosts.messages_per_packet();
    assert_eq!(hosts.sends_until_due(), full, "although nothing is in flight");
    assert!(hosts.stage(LONGER_BYTES, FlushWhen::PacketFull).is_none(), "it must transmit first");
    assert_eq!(hosts.transmits(), [full]);
}

#[test]
fn longer_messages_wait_for_full_packets_while_others_are_in_flight() {
    let mut hosts = WideHosts::new();
    let full = hosts.messages_per_packet();
    hosts.sends(1);
    assert_eq!(hosts.transmits(), [1]);
    assert_eq!(hosts.sends_until_due(), 2 * full, "a packet full of them is shorter than a full packet");
    assert_eq!(hosts.transmits(), [full, full]);
}

#[test]
fn messages_leave_by_the_flush_rule_if_they_are_short_or_the_caller_says_so() {
    for (bytes, when) in [(2047, FlushWhen::PacketFull), (LONGER_BYTES, FlushWhen::Rule)] {
        let mut hosts = WideHosts::new();
        hosts.sends(bytes);
        assert!(hosts.stage(bytes, when).is_none(), "nothing is in flight");
        assert_eq!(hosts.transmits(), [1]);
    }
}

#[test]
fn messages_that_are_not_copied_have_no_stage() {
    let mut hosts = WideHosts::new();
    hosts.sends(1);
    assert_eq!(hosts.transmits(), [1]);
    hosts.sends(1);
    assert!(hosts.stage(8 * 1024 + 1, FlushWhen::PacketFull).is_none());
    let stage = hosts.stage(8 * 1024, FlushWhen::PacketFull).expect("it waits for company");
    hosts.hosts.node_mut(A).endpoint.return_stage(stage);
}
