//! Refused messages, with an error text that states the remedy.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use std::error::Error as _;

use swiftwater::{
    AddressError, Association, AssociationOptions, BindError, CloseReason, LinkBindError, Listener, Loss,
    LossKind, PathError, RecvError, SendError, SendInfo, StackOptions,
};

use crate::pair::{must_end, pair, pair_with};

#[test]
fn a_message_that_is_too_long() {
    must_end(|| {
        let (client, _server) = pair_with(&AssociationOptions::default().with_message_bytes_max(1000).into());
        let refused = client.send(&[0; 1001]).unwrap_err();
        assert_eq!(refused, SendError::TooLong { bytes: 1001, limit_bytes: 1000 });
        assert!(refused.to_string().contains("message_bytes_max"), "{refused}");
        client.send(&[0; 1000]).unwrap();
    });
}

#[test]
fn a_message_without_a_byte() {
    must_end(|| {
        let (client, server) = pair();
        assert_eq!(client.send(b""), Err(SendError::Empty));
        assert_eq!(client.send_bytes(bytes::Bytes::new(), &SendInfo::default()), Err(SendError::Empty));
        client.send(b"x").unwrap();
        assert_eq!(server.recv().unwrap().unwrap().len(), 1);
    });
}

#[test]
fn a_stream_that_does_not_exist() {
    must_end(|| {
        let (client, _server) = pair();
        let refused = client.send_with(b"x", &SendInfo::stream(10)).unwrap_err();
        assert_eq!(refused, SendError::NoSuchStream { stream: 10, streams: 10 });
        assert!(refused.to_string().contains("streams_out"), "{refused}");
    });
}

#[test]
fn a_send_after_the_end() {
    must_end(|| {
        let (client, server) = pair();
        let clone = client.clone();
        server.abort("");
        assert!(client.recv().is_err());
        let refused = clone.send(b"x").unwrap_err();
        assert_eq!(refused, SendError::Closed);
        assert!(refused.to_string().contains("connect again"), "{refused}");
        assert_eq!(io::Error::from(refused).kind(), io::ErrorKind::BrokenPipe);
        assert!(client.peer().is_none());
    });
}

#[test]
fn the_reason_of_an_abort_is_any_bytes() {
    must_end(|| {
        // The last one is cut.
        for reason in [&b"\x01\xff\x80\0"[..], b"", "un caf\u{e9}".as_bytes(), &[0xff; 300]] {
            let (client, server) = pair();
            server.abort(reason);
            let Err(RecvError::Lost(loss)) = client.recv() else { panic!("it is lost") };
            assert_eq!(loss.reason(), Some(&reason[..reason.len().min(256)]));
            assert_eq!(client.close_reason(), Some(CloseReason::Lost(loss)));
            let Some(CloseReason::Lost(own)) = server.close_reason() else { panic!("it is lost") };
            assert_eq!(own.reason(), None);
        }
    });
}

#[test]
fn errors_have_their_cause_as_a_source() {
    must_end(|| {
        let wrong = Listener::bind("nonsense").unwrap_err();
        assert!(wrong.source().unwrap().is::<AddressError>());
        let taken = Listener::bind("127.0.0.1:0/udp:0").unwrap();
        let udp_port = Some(taken.stack().udp_port());
        let local_addresses = vec!["127.0.0.1".parse().unwrap()];
        let options = StackOptions::default().with_udp_port(udp_port).with_local_addresses(local_addresses);
        let unbound = Association::connect_with("127.0.0.1:7", &options).unwrap_err();
        assert!(unbound.source().unwrap().is::<BindError>());
        let cause = unbound.source().unwrap().source().unwrap();
        assert!(matches!(cause.downcast_ref(), Some(LinkBindError::AddressInUse { .. })), "{cause}");
        let (client, server) = pair_with(&StackOptions::default());
        server.abort("enough");
        let lost = client.recv().unwrap_err();
        assert!(lost.source().unwrap().is::<Loss>());
        let lost = std::io::Error::from(lost);
        assert!(lost.get_ref().unwrap().is::<RecvError>());
    });
}

#[test]
fn sockets_that_cannot_be_bound_have_the_kind_of_their_cause() {
    let address = SocketAddr::from(([192, 0, 2, 1], 9899));
    let interrupted = io::Error::from(io::ErrorKind::Interrupted);
    let causes = [
        (LinkBindError::AddressInUse { address }, io::ErrorKind::AddrInUse),
        (LinkBindError::AddressNotAvailable { address }, io::ErrorKind::AddrNotAvailable),
        (LinkBindError::PermissionDenied { address }, io::ErrorKind::PermissionDenied),
        (LinkBindError::Duplicate { address: address.ip() }, io::ErrorKind::InvalidInput),
        (LinkBindError::RawNotPermitted { address: address.ip() }, io::ErrorKind::PermissionDenied),
        (LinkBindError::FamilyNotSupported { address }, io::ErrorKind::Unsupported),
        (LinkBindError::System { address, source: interrupted }, io::ErrorKind::Interrupted),
    ];
    for (cause, kind) in causes {
        let error = BindError::Link(cause);
        assert_eq!(io::Error::from(error).kind(), kind);
    }
}

#[test]
fn only_a_time_limit_has_the_kind_of_one() {
    must_end(|| {
        let (client, _server) = pair();
        let nothing = client.recv_timeout(Duration::from_millis(1)).unwrap_err();
        assert_eq!(io::Error::from(nothing).kind(), io::ErrorKind::TimedOut);
        for kind in [
            LossKind::TimedOut,
            LossKind::PeerAborted,
            LossKind::Aborted,
            LossKind::Violation,
            LossKind::Refused,
            LossKind::Unreachable,
            LossKind::Fault,
        ] {
            assert!(
                !matches!(kind.io_kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
                "{kind:?}"
            );
        }
    });
}

#[test]
fn an_operation_on_a_path_that_fails_is_an_io_error() {
    fn set_primary(client: &Association) -> io::Result<()> {
        client.set_primary("192.0.2.1".parse().unwrap())?;
        Ok(())
    }

    must_end(|| {
        let (client, _server) = pair();
        let nowhere = set_primary(&client).unwrap_err();
        assert_eq!(nowhere.kind(), io::ErrorKind::AddrNotAvailable);
        assert!(nowhere.get_ref().unwrap().is::<PathError>());
        client.abort("enough");
        assert_eq!(set_primary(&client).unwrap_err().kind(), io::ErrorKind::NotConnected);
    });
}

#[test]
fn a_lost_association_says_so_once_and_what_to_do() {
    must_end(|| {
        let (client, server) = pair();
        client.abort("enough");
        let (here, there) = (client.recv().unwrap_err().to_string(), server.recv().unwrap_err().to_string());
        assert_eq!(here, "the association was aborted on this side; set up another association to go on");
        assert!(there.contains("enough; set up another association"), "{there}");
    });
}
