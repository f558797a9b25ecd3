//! The error numbers of the sockets API for errors of the executive.

use rustix::io::Errno;
use swiftwater::{BindError, ConnectError, LossKind};

/// Returns the errno that the kernel's `connect` would return.
pub(crate) fn of_connect(error: &ConnectError) -> Errno {
    match error {
        ConnectError::Refused => Errno::CONNREFUSED,
        // The kernel does not look at the cause of an ABORT during the setup.
        ConnectError::Lost(loss) if loss.kind == LossKind::PeerAborted => Errno::CONNREFUSED,
        ConnectError::TimedOut => Errno::TIMEDOUT,
        ConnectError::Unreachable => Errno::HOSTUNREACH,
        ConnectError::Exists => Errno::ADDRINUSE,
        ConnectError::Family { .. } => Errno::ADDRNOTAVAIL,
        ConnectError::Address(_) | ConnectError::InvalidRemote(_) | ConnectError::InvalidUdpPort(_) => {
            Errno::INVAL
        }
        _ => Errno::CONNABORTED,
    }
}

/// Returns the errno that the kernel's `listen` would return.
pub(crate) fn of_listen(error: &BindError) -> Errno {
    match error {
        BindError::PortInUse { .. } => Errno::ADDRINUSE,
        _ => Errno::NOBUFS,
    }
}

/// Returns the errno that the kernel would return for a lost association.
pub(crate) fn of_loss(kind: LossKind) -> Errno {
    match kind {
        LossKind::TimedOut => Errno::TIMEDOUT,
        LossKind::PeerAborted => Errno::CONNRESET,
        LossKind::Refused => Errno::CONNREFUSED,
        LossKind::Unreachable => Errno::HOSTUNREACH,
        _ => Errno::CONNABORTED,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use swiftwater::{Address, ListenerOptions};

    use super::*;
    use crate::testing::registry;

    #[tokio::test(flavor = "local")]
    async fn a_listener_with_as_many_associations_as_it_may_have_refuses_the_next() {
        let registry = registry();
        let options = ListenerOptions::default().with_associations_max(1);
        let listener = registry.stack().listen_with(7, &options).expect("a free port");
        let server = || Address {
            hosts: vec![IpAddr::from([127, 0, 0, 1])],
            port: 7,
            udp_port: Some(registry.stack().udp_port()),
        };
        let (first, _accepted) = tokio::join!(registry.stack().connect(server()), listener.accept());
        let _first = first.expect("there is room");
        let error = registry.stack().connect(server()).await.expect_err("there is no room");
        assert!(matches!(&error, ConnectError::Lost(loss) if loss.cause == 4), "out of resource: {error:?}");
        assert_eq!(of_connect(&error), Errno::CONNREFUSED);
    }
}
