//! The byte layout of primitives (TPI 2.0, the structures of `tihdr.h`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use tpi::{
    Addresses, AssociationId, DecodeError, Errno, Info, Lifetime, Notification, NotificationKind, Optmgmt,
    PathChange, PathId, PathReason, Primitive, PrimitiveCode, RecvInfo, SendInfo, TError, Unitdata, Which,
};

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn a_connect_request_has_the_layout_of_the_headers() {
    let address: SocketAddr = "192.0.2.1:5000".parse().unwrap();
    let encoded = Primitive::ConnReq { addresses: address.into() }.encode();
    // PRIM_type, DEST_length, DEST_offset, OPT_length, OPT_offset
    assert_eq!(words(&encoded[..20]), [0, 16, 20, 0, 0]);
    assert_eq!(encoded[20..22], 2_u16.to_ne_bytes(), "sin_family");
    assert_eq!(
        encoded[22..],
        [0x13, 0x88, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        "sin_port, sin_addr, sin_zero"
    );
}

#[test]
fn plain_primitives_have_the_sizes_of_the_headers() {
    let sizes = [
        (Primitive::DataReq { more: true }, vec![3, 1]),
        (Primitive::ExdataInd { more: false }, vec![15, 0]),
        (Primitive::InfoReq, vec![5]),
        (Primitive::OrdrelReq { association: Which::Only }, vec![10]),
        (Primitive::DisconReq { sequence: 9, reason: 0, association: Which::Only }, vec![2, 9]),
        (Primitive::DisconInd { reason: 8, sequence: 9, association: Which::Only, cause: 0 }, vec![13, 8, 9]),
        (Primitive::OkAck { primitive: PrimitiveCode::UnbindReq }, vec![19, 7]),
        (
            Primitive::ErrorAck {
                primitive: PrimitiveCode::BindReq,
                t_error: TError::System,
                errno: Errno::EADDRINUSE,
            },
            vec![18, 6, 8, 98],
        ),
        (Primitive::CapabilityReq { bits: 3 }, vec![28, 3]),
    ];
    for (primitive, expected) in sizes {
        assert_eq!(words(&primitive.encode()), expected, "{primitive:?}");
    }
    assert_eq!(Primitive::InfoAck(Box::default()).encode().len(), 44);
    let capability = Primitive::CapabilityAck { bits: 3, info: Box::default(), acceptor: 5 };
    assert_eq!(capability.encode().len(), 8 + 44 + 4);
}

/// Number 0 is a number like others: whoever names it does not mean the only association.
#[test]
fn the_first_association_is_not_the_only_one() {
    let release = |association| words(&Primitive::OrdrelReq { association }.encode());
    assert_eq!(release(Which::Only), [10]);
    assert_eq!(release(Which::Id(AssociationId::FIRST)), [10, 1, 0]);
    assert_eq!(release(Which::Id(AssociationId::new(1, 5))), [10, 2, 5]);
}

#[test]
fn data_without_options_is_what_a_simple_program_sends() {
    // T_OPTDATA_REQ with T_ODF_MORE and no options.
    let primitive = Primitive::decode(&bytes(&[24, 1, 0, 0])).unwrap();
    let info = SendInfo { more: true, ..SendInfo::default() };
    assert_eq!(primitive, Primitive::OptdataReq { association: Which::Only, info });
}

/// Messages have the published options of SCTP (`xti_sctp.h`): T_SCTP_PPI, T_SCTP_SID, T_SCTP_SSN, T_SCTP_TSN at the
/// level T_INET_SCTP.
#[test]
fn the_properties_of_a_message_have_the_published_options() {
    let published =
        [[20, 132, 4, 0, 7], [20, 132, 3, 0, 46], [20, 132, 6, 0, 900], [20, 132, 5, 0, 2]].concat();
    let indication = bytes(&[vec![26, 0, 80, 16], published.clone()].concat());
    let info = RecvInfo { stream: 7, ppid: 46, tsn: 900, ssn: 2, ..RecvInfo::default() };
    let received = Primitive::OptdataInd { association: Which::Only, info };
    assert_eq!(Primitive::decode(&indication), Ok(received.clone()));
    let encoded = received.encode();
    let words: Vec<u32> = encoded.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    let names: Vec<u32> = words[4..].as_chunks::<5>().0.iter().map(|[_, _, name, _, _]| *name).collect();
    assert_eq!(names, [4, 3, 5, 6], "and no private option if these suffice");
    // On the way down, the sequence numbers are ignored.
    let request = bytes(&[vec![24, 0, 80, 16], published].concat());
    let info = SendInfo { ppid: 46, ..SendInfo::stream(7) };
    assert_eq!(Primitive::decode(&request), Ok(Primitive::OptdataReq { association: Which::Only, info }));
    // T_SCTP_NODELAY is not mistaken for a private option.
    let nodelay = bytes(&[24, 0, 20, 16, 20, 132, 1, 0, 1]);
    assert_eq!(
        Primitive::decode(&nodelay),
        Ok(Primitive::OptdataReq { association: Which::Only, info: SendInfo::default() })
    );
}

#[test]
fn unknown_options_are_skipped() {
    let mut encoded = Primitive::OptdataReq { association: Which::Only, info: SendInfo::stream(5) }.encode();
    let option = encoded.split_off(16);
    // An option of another level with a value of five bytes, padded to eight.
    let mut options = bytes(&[21, 6, 1, 0, 0, 0]);
    options.extend(option);
    encoded[8..12].copy_from_slice(&(options.len() as u32).to_ne_bytes());
    encoded.extend(options);
    let Primitive::OptdataReq { info, .. } = Primitive::decode(&encoded).unwrap() else {
        panic!("another primitive")
    };
    assert_eq!(info.stream, 5);
}

#[test]
fn other_bytes_are_refused_as_primitives_for_their_reason() {
    let cases = [
        (bytes(&[]), DecodeError::Truncated),
        (vec![3, 0, 0], DecodeError::Truncated),
        (bytes(&[3]), DecodeError::Truncated),
        (bytes(&[99, 0]), DecodeError::UnknownPrimitive(99)),
        (bytes(&[19, 99]), DecodeError::UnknownPrimitive(99)),
        (bytes(&[18, 6, 77, 0]), DecodeError::BadValue(77)),
        (bytes(&[0, 16, 20, 0, 0]), DecodeError::OutOfBounds),
        (bytes(&[0, u32::MAX, u32::MAX, 0, 0]), DecodeError::OutOfBounds),
        (bytes(&[0, 8, 20, 0, 0, 0xffff_ffff, 0]), DecodeError::BadAddress),
        (bytes(&[0, 2, 20, 0, 0, 2]), DecodeError::BadAddress),
        (bytes(&[24, 0, 16, 16, 15, 132, 1, 0]), DecodeError::BadOption),
        (bytes(&[24, 0, 16, 16, 20, 132, 1, 0]), DecodeError::BadOption),
        (bytes(&[24, 0, 8, 16, 16, 132]), DecodeError::BadOption),
        (bytes(&[24, 0, 24, 16, 24, 132, 4, 0, 0, 0]), DecodeError::BadOption),
        (bytes(&[24, 0, 20, 16, 20, 132, 4, 0, 70_000]), DecodeError::BadValue(70_000)),
        (bytes(&[24, 0, 40, 16, 40, 132, 0x8001, 0, 0, 0, 0, 0, 0, 8]), DecodeError::BadValue(8)),
        (bytes(&[24, 0, 40, 16, 40, 132, 0x8001, 0, 0, 0, 0, 0, 257, 0]), DecodeError::BadValue(257)),
        (bytes(&[26, 0, 32, 16, 32, 132, 0x8004, 0, 0, 0, 0, 4]), DecodeError::BadValue(4)),
        // Where the first word names no association, the second must be 0.
        (bytes(&[10, 0, 5]), DecodeError::BadValue(5)),
        (bytes(&[10, 1]), DecodeError::Truncated),
    ];
    for (input, expected) in cases {
        assert_eq!(Primitive::decode(&input), Err(expected), "{input:?}");
        assert!(expected.to_string().len() > 20);
    }
}

fn addresses() -> impl Strategy<Value = Box<Addresses>> {
    let v4 = any::<([u8; 4], u16)>().prop_map(|(ip, port)| SocketAddr::new(IpAddr::from(ip), port));
    let v6 = any::<([u8; 16], u16, u32, u32)>()
        .prop_map(|(ip, port, flow, scope)| SocketAddrV6::new(ip.into(), port, flow, scope).into());
    (prop::collection::vec(prop_oneof![v4, v6], 0..5), any::<Option<u16>>())
        .prop_map(|(list, encapsulation_port)| Box::new(Addresses { list, encapsulation_port }))
}

fn which() -> impl Strategy<Value = Which> {
    any::<Option<(u16, u32)>>().prop_map(|id| {
        id.map_or(Which::Only, |(index, serial)| AssociationId::new(index.into(), serial).into())
    })
}

fn send_info() -> impl Strategy<Value = SendInfo> {
    (any::<(u16, u32, bool, bool, bool, u32)>(), any::<u32>(), any::<Option<u8>>()).prop_map(
        |((stream, ppid, unordered, more, immediate, context), lifetime_ms, path)| SendInfo {
            stream,
            ppid,
            unordered,
            more,
            immediate,
            context,
            lifetime: Lifetime::from_ms(lifetime_ms),
            path: path.map(PathId),
        },
    )
}

fn recv_info() -> impl Strategy<Value = RecvInfo> {
    any::<(u16, u16, u32, u32, u32, bool, bool)>().prop_map(
        |(stream, ssn, ppid, tsn, cumulative_tsn, unordered, more)| RecvInfo {
            stream,
            ssn,
            ppid,
            tsn,
            cumulative_tsn,
            unordered,
            more,
        },
    )
}

fn info() -> impl Strategy<Value = Box<Info>> {
    any::<([i32; 7], [u32; 3])>().prop_map(|([a, b, c, d, e, f, g], [service, state, provider_flags])| {
        Box::new(Info {
            tsdu_bytes: a,
            etsdu_bytes: b,
            connect_data_bytes: c,
            disconnect_data_bytes: d,
            address_bytes: e,
            options_bytes: f,
            tidu_bytes: g,
            service,
            state,
            provider_flags,
        })
    })
}

fn unitdata<I: std::fmt::Debug>(info: impl Strategy<Value = I>) -> impl Strategy<Value = Box<Unitdata<I>>> {
    (addresses(), info).prop_map(|(addresses, info)| Box::new(Unitdata { addresses: *addresses, info }))
}

fn optmgmt() -> impl Strategy<Value = Box<Optmgmt>> {
    any::<(u32, Vec<u8>)>().prop_map(|(flags, options)| Box::new(Optmgmt { flags, options }))
}

fn code() -> impl Strategy<Value = PrimitiveCode> {
    prop::sample::select(PrimitiveCode::ALL)
}

fn requests() -> impl Strategy<Value = Primitive> {
    prop_oneof![
        any::<bool>().prop_map(|more| Primitive::DataReq { more }),
        any::<bool>().prop_map(|more| Primitive::ExdataReq { more }),
        (which(), send_info()).prop_map(|(association, info)| Primitive::OptdataReq { association, info }),
        unitdata(send_info()).prop_map(Primitive::UnitdataReq),
        Just(Primitive::InfoReq),
        (addresses(), any::<u32>())
            .prop_map(|(addresses, backlog)| Primitive::BindReq { addresses, backlog }),
        Just(Primitive::UnbindReq),
        addresses().prop_map(|addresses| Primitive::ConnReq { addresses }),
        any::<(u32, u32)>().prop_map(|(sequence, acceptor)| Primitive::ConnRes { sequence, acceptor }),
        (any::<(u32, u32)>(), which()).prop_map(|((sequence, reason), association)| Primitive::DisconReq {
            sequence,
            reason,
            association
        }),
        which().prop_map(|association| Primitive::OrdrelReq { association }),
        optmgmt().prop_map(Primitive::OptmgmtReq),
        Just(Primitive::AddrReq),
        any::<u32>().prop_map(|bits| Primitive::CapabilityReq { bits }),
    ]
}

fn answers() -> impl Strategy<Value = Primitive> {
    let t_error = prop::sample::select(TError::ALL);
    prop_oneof![
        info().prop_map(Primitive::InfoAck),
        (addresses(), any::<u32>())
            .prop_map(|(addresses, backlog)| Primitive::BindAck { addresses, backlog }),
        code().prop_map(|primitive| Primitive::OkAck { primitive }),
        (code(), t_error, any::<i32>()).prop_map(|(primitive, t_error, errno)| Primitive::ErrorAck {
            primitive,
            t_error,
            errno: Errno(errno)
        }),
        optmgmt().prop_map(Primitive::OptmgmtAck),
        (addresses(), addresses()).prop_map(|(local, remote)| Primitive::AddrAck { local, remote }),
        (any::<u32>(), info(), any::<u32>()).prop_map(|(bits, info, acceptor)| Primitive::CapabilityAck {
            bits,
            info,
            acceptor
        }),
    ]
}

fn kind_of_notification() -> impl Strategy<Value = NotificationKind> {
    let change = prop::sample::select(PathChange::ALL);
    let reason = prop::sample::select(PathReason::ALL);
    prop_oneof![
        (any::<IpAddr>(), change, reason)
            .prop_map(|(address, change, reason)| NotificationKind::PathChanged { address, change, reason }),
        any::<u16>().prop_map(|cause| NotificationKind::RemoteError { cause }),
        (send_info(), any::<(bool, bool, bool, u16)>()).prop_map(
            |(info, (was_sent, beginning, ending, cause))| NotificationKind::SendFailed {
                info,
                was_sent,
                beginning,
                ending,
                cause
            }
        ),
        Just(NotificationKind::SenderDry),
        any::<u32>().prop_map(|indication| NotificationKind::Adaptation { indication }),
        any::<(u16, u16)>()
            .prop_map(|(stream, ssn)| NotificationKind::PartialDeliveryAborted { stream, ssn }),
    ]
}

fn indications() -> impl Strategy<Value = Primitive> {
    prop_oneof![
        any::<bool>().prop_map(|more| Primitive::DataInd { more }),
        any::<bool>().prop_map(|more| Primitive::ExdataInd { more }),
        (which(), recv_info()).prop_map(|(association, info)| Primitive::OptdataInd { association, info }),
        unitdata(recv_info()).prop_map(Primitive::UnitdataInd),
        (unitdata(send_info()), any::<u32>())
            .prop_map(|(unitdata, error)| Primitive::UderrorInd { unitdata, error }),
        (addresses(), which(), any::<u16>(), any::<u16>()).prop_map(
            |(addresses, association, outbound_streams, inbound_streams)| {
                Primitive::ConnCon { addresses, association, outbound_streams, inbound_streams }
            }
        ),
        (addresses(), any::<u32>())
            .prop_map(|(addresses, sequence)| Primitive::ConnInd { addresses, sequence }),
        (any::<(u32, u32)>(), which(), any::<u16>()).prop_map(|((reason, sequence), association, cause)| {
            Primitive::DisconInd { reason, sequence, association, cause }
        }),
        (which(), kind_of_notification()).prop_map(|(association, kind)| {
            Primitive::NotificationInd(Box::new(Notification { association, kind }))
        }),
        which().prop_map(|association| Primitive::OrdrelInd { association }),
    ]
}

proptest! {
    #[test]
    fn every_primitive_comes_back_from_its_bytes(primitive in prop_oneof![requests(), answers(), indications()]) {
        let encoded = primitive.encode();
        prop_assert_eq!(encoded.len() % 4, 0);
        prop_assert_eq!(words(&encoded[..4]), [primitive.code() as u32]);
        prop_assert_eq!(Primitive::decode(&encoded), Ok(primitive));
    }

    #[test]
    fn no_cut_makes_the_decoder_panic(
        primitive in prop_oneof![requests(), answers(), indications()],
        cut in any::<prop::sample::Index>(),
    ) {
        let encoded = primitive.encode();
        let _ = Primitive::decode(&encoded[..cut.index(encoded.len())]);
    }

    /// Small words get past the first checks of the decoder, where random bytes would end.
    #[test]
    fn no_bytes_make_the_decoder_panic(
        code in 0u32..32,
        words in prop::collection::vec(prop_oneof![0u32..64, Just(132), any::<u32>()], 0..24),
        tail in prop::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut input = bytes(&[code]);
        input.extend(bytes(&words));
        input.extend(tail);
        if let Ok(primitive) = Primitive::decode(&input) {
            prop_assert_eq!(Primitive::decode(&primitive.encode()), Ok(primitive));
        }
    }
}
