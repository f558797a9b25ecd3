//! Tests that records and requests survive encoding and parsing, and that other bytes are refused.
#![allow(missing_docs)]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;
use swiftwater_channel_protocol::assoc_id::AssocId;
use swiftwater_channel_protocol::bundle::{Unread, begins_at, messages as messages_of};
use swiftwater_channel_protocol::name::PairName;
use swiftwater_channel_protocol::record::{self, Flags, HEADER_BYTES, Header, Kind, Sequence};
use swiftwater_channel_protocol::request::{
    ADDRESSES_MAX, Addresses, Answer, DaemonRequest, FRAME_BYTES_MAX, InitMessage, OPTION_BYTES_MAX,
    PUT_BACK_BYTES_MAX, Recorder, Request, RequestError, SocketKind, SocketRequest, Start,
};

fn address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        (any::<[u8; 4]>(), any::<u16>()).prop_map(|(ip, port)| (ip, port).into()),
        (any::<[u8; 16]>(), any::<u16>()).prop_map(|(ip, port)| (ip, port).into()),
    ]
}

fn assoc_id() -> impl Strategy<Value = AssocId> {
    any::<u32>().prop_map(AssocId::new)
}

const KINDS: [SocketKind; 3] = [SocketKind::OneToOne, SocketKind::OneToMany, SocketKind::TcpStream];

fn daemon_request() -> impl Strategy<Value = DaemonRequest<'static>> {
    prop_oneof![
        (any::<bool>(), prop::sample::select(KINDS.to_vec()))
            .prop_map(|(v6, kind)| DaemonRequest::Open { v6, kind }),
        Just(DaemonRequest::Memfd),
        Just(DaemonRequest::Barrier),
        any::<u64>().prop_map(|cookie| DaemonRequest::Linger { cookie }),
        Just(DaemonRequest::Describe),
        Just(DaemonRequest::Status),
        Just(DaemonRequest::Streams),
        assoc_id().prop_map(|assoc_id| DaemonRequest::Push { assoc_id, module: "limit bits=1M" }),
        assoc_id().prop_map(|assoc_id| DaemonRequest::Pop { assoc_id }),
        (assoc_id(), prop::sample::select(vec![Recorder::Tap, Recorder::Trace]))
            .prop_map(|(assoc_id, recorder)| DaemonRequest::Record { assoc_id, recorder }),
        (assoc_id(), assoc_id()).prop_map(|(assoc_id, other)| DaemonRequest::Link { assoc_id, other }),
        assoc_id().prop_map(|assoc_id| DaemonRequest::Unlink { assoc_id }),
    ]
}

fn socket_request() -> impl Strategy<Value = SocketRequest<'static>> {
    let value = &VALUE;
    let peer = Addresses::new(&PEERS).expect("some, and not too many");
    prop_oneof![
        Just(SocketRequest::Attach),
        Just(SocketRequest::LocalAddress),
        Just(SocketRequest::PeerAddress),
        Just(SocketRequest::AwaitEnd),
        Just(SocketRequest::Hold),
        Just(SocketRequest::PutBack(&value[..PUT_BACK_BYTES_MAX])),
        any::<bool>().prop_map(|plain| SocketRequest::SetForm { plain }),
        address().prop_map(SocketRequest::Bind),
        (prop::sample::select(vec![Start::Now, Start::AnswerLate, Start::WithMessage]), any::<[u16; 4]>())
            .prop_map(move |(start, init)| SocketRequest::Connect { peer, start, init: init_message(init) }),
        address().prop_map(SocketRequest::Find),
        assoc_id().prop_map(|assoc_id| SocketRequest::AwaitRoom { assoc_id }),
        assoc_id().prop_map(|after| SocketRequest::Associations { after }),
        (assoc_id(), any::<bool>(), any::<u32>()).prop_map(|(assoc_id, front_begun, front_at)| {
            SocketRequest::PeelOff { assoc_id, front_begun, front_at }
        }),
        any::<i32>().prop_map(|backlog| SocketRequest::Listen { backlog }),
        any::<(i32, i32)>().prop_map(move |(level, name)| SocketRequest::SetOption { level, name, value }),
        any::<(i32, i32)>().prop_map(move |(level, name)| SocketRequest::GetOption { level, name, value }),
    ]
}

fn request() -> impl Strategy<Value = Request<'static>> {
    prop_oneof![daemon_request().prop_map(Request::Daemon), socket_request().prop_map(Request::Socket)]
}

fn init_message([streams_out, streams_in_max, attempts_max, timeout_max_ms]: [u16; 4]) -> InitMessage {
    InitMessage { streams_out, streams_in_max, attempts_max, timeout_max_ms }
}

static VALUE: [u8; OPTION_BYTES_MAX] = [7; OPTION_BYTES_MAX];
static PEERS: [SocketAddr; ADDRESSES_MAX] =
    [SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 7); ADDRESSES_MAX];

proptest! {
    #[test]
    fn requests_survive_the_way(request in request()) {
        let mut frame = [0; FRAME_BYTES_MAX];
        let bytes = request.encode(&mut frame).expect("it fits");
        prop_assert_eq!(Request::parse(&frame[..bytes]), Ok(request));
        // A truncated frame is never taken for a whole one, except if its last field has no length of its own.
        let open_ended = matches!(
            request,
            Request::Daemon(DaemonRequest::Push { .. })
                | Request::Socket(
                    SocketRequest::SetOption { .. } | SocketRequest::GetOption { .. } | SocketRequest::PutBack(_)
                )
        );
        let cut = Request::parse(&frame[..bytes - 1]);
        prop_assert!(open_ended || cut == Err(RequestError::Malformed), "{:?}", cut);
    }

    #[test]
    fn answers_survive_the_way(address in address(), errno in any::<i32>()) {
        let association = Answer::Association(AssocId::from_assoc_t(errno));
        let value = Answer::Value(&VALUE);
        for answer in [Answer::Done, Answer::Failed(errno), Answer::Address(address), value, association] {
            let mut frame = [0; FRAME_BYTES_MAX];
            let bytes = answer.encode(&mut frame).expect("it fits");
            prop_assert_eq!(Answer::parse(&frame[..bytes]), Some(answer));
        }
        let mut frame = [0; FRAME_BYTES_MAX];
        let bytes = value.encode(&mut frame).expect("it fits");
        prop_assert_eq!(&frame[Answer::VALUE_AT..bytes], &VALUE[..]);
    }

    #[test]
    fn headers_survive_the_way(
        (stream, ssn) in any::<(u16, u16)>(),
        [ppid, tsn, cumulative_tsn, context, lifetime_ms] in any::<[u32; 5]>(),
        assoc_id in assoc_id(),
        address in prop::option::of(address()),
        bytes in 0..=record::PAYLOAD_BYTES_MAX as u32,
    ) {
        for kind in [Kind::Data, Kind::Notification, Kind::Accepted, Kind::SizeHint, Kind::Filler] {
            let flags = Flags::END.with(Flags::UNORDERED);
            let header = Header {
                kind, flags, stream, ssn, ppid, sequence: Sequence::received(tsn, cumulative_tsn), context, lifetime_ms, assoc_id,
                bytes, address,
            };
            let parsed = Header::parse(&header.encode());
            prop_assert_eq!(parsed, Some(header));
            prop_assert_eq!(parsed.map(|header| (header.tsn(), header.cumulative_tsn())), Some((tsn, cumulative_tsn)));
        }
    }

    #[test]
    fn bundles_fall_apart_into_their_messages(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 2..5),
        elsewhere in any::<usize>(),
    ) {
        let record = |(message, n): (&Vec<u8>, u32)| {
            let header = Header { bytes: message.len() as u32, context: n, ..Header::new(Kind::Data) };
            [&header.encode()[..], &message[..]].concat()
        };
        let bundle: Vec<u8> = messages.iter().zip(0..).flat_map(record).collect();
        let mut at = 0;
        for (message, n) in messages.iter().zip(0..) {
            prop_assert!(begins_at(&bundle, at) && !begins_at(&bundle, at + 1));
            let unread = Unread::of(&bundle, at, 0).expect("a message begins there");
            prop_assert_eq!((unread.header.context, unread.rest), (n, &message[..]));
            let half = message.len() / 2;
            prop_assert_eq!(Unread::of(&bundle, at, half).map(|unread| unread.rest), Some(&message[half..]));
            prop_assert_eq!(Unread::of(&bundle, at, message.len() + 1), None);
            at = unread.next;
        }
        prop_assert_eq!(at, bundle.len());
        prop_assert_eq!(Unread::of(&bundle, at, 0), None);
        prop_assert_eq!(messages_of(&bundle).count(), messages.len());
        // A hostile sharer may have named this place.
        let _ = Unread::of(&bundle, elsewhere, elsewhere);
        let _ = Unread::of(&bundle, elsewhere % bundle.len(), elsewhere);
    }

    #[test]
    fn accepted_associations_survive_the_way(peer in address()) {
        let record = record::encode_accepted(&peer);
        prop_assert_eq!(record::parse_accepted(&record), Some(peer));
        prop_assert_eq!(record::parse_accepted(&record[1..]), None);
        prop_assert_eq!(record::parse_accepted(&record[..record.len() - 1]), None);
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..FRAME_BYTES_MAX)) {
        let _ = Request::parse(&bytes);
        let _ = Answer::parse(&bytes);
        let _ = record::parse_accepted(&bytes);
        let _ = PairName::is_one(&bytes);
        if let Some((header, payload)) = Header::split(&bytes) {
            prop_assert_eq!(payload.len(), bytes.len() - HEADER_BYTES);
            prop_assert!(payload.is_empty() || payload.len() == header.bytes as usize);
        }
    }
}

#[test]
fn another_version_is_named() {
    let mut frame = [0; FRAME_BYTES_MAX];
    let bytes = Request::from(SocketRequest::Attach).encode(&mut frame).expect("it fits");
    frame[4..6].copy_from_slice(&99_u16.to_le_bytes());
    assert_eq!(Request::parse(&frame[..bytes]), Err(RequestError::Version(99)));
}

#[test]
fn a_value_that_is_too_long_is_not_written() {
    let value = [0; FRAME_BYTES_MAX];
    let request = Request::from(SocketRequest::SetOption { level: 0, name: 0, value: &value });
    assert_eq!(request.encode(&mut [0; FRAME_BYTES_MAX]), None);
}

#[test]
fn a_record_is_as_long_as_it_says() {
    let header = Header { bytes: 5, flags: Flags::END, ..Header::new(Kind::Data) };
    let record = [&header.encode()[..], b"hello"].concat();
    assert_eq!(Header::split(&record), Some((header, &b"hello"[..])));
    assert_eq!(Header::split(&record[..record.len() - 1]), None);
    let far = Header { bytes: u32::MAX, ..header };
    assert_eq!(Header::parse(&far.encode()), None);
}
