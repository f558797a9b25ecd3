//! The calls on endpoints that do not wait, for threads and tasks alike.

use std::net::{IpAddr, SocketAddr};

use sctp::{AssociationId, PathError, PathId, PathOptions, SendInfo, Statistics};

use crate::address::Address;
use crate::error::{OptionsError, RecvError, SendError};
use crate::event::Received;
use crate::options::AssociationOptions;

forward! {
    crate::endpoint::Endpoint, crate::tokio::Endpoint:

    /// Sends one message if the send buffer of the association has room for it, without waiting.
    errors {
        /// Fails as [`send_to`](Self::send_to) does, or with [`SendError::WouldBlock`].
    }
    fn try_send_to(&self, to: AssociationId, message: &[u8], info: &SendInfo) -> Result<(), SendError>;

    /// Receives the next message, or the next part of a long one, or event without waiting, if one is available.
    example {
        /// ```
        /// # use swiftwater::RecvError;
        /// # use swiftwater::Endpoint;
        /// let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
        /// assert_eq!(endpoint.try_recv().unwrap_err(), RecvError::WouldBlock);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    errors {
        /// Fails as [`recv`](Self::recv) does, or with [`RecvError::WouldBlock`].
    }
    fn try_recv(&self) -> Result<(AssociationId, Received), RecvError>;

    /// Transmits messages at once that wait for others to share their packet.
    fn flush(&self);

    /// Aborts an association (RFC 9260 §9.1): undelivered messages are lost. The ABORT contains the first 256 bytes of
    /// `reason`: a text, or any bytes ([`Loss::reason`](crate::Loss::reason) at the peer).
    example {
        /// ```
        /// # use swiftwater::{Association, Endpoint, Event, Received, SendInfo};
        /// # let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
        /// # let client = Association::connect(endpoint.address())?;
        /// # let (peer, _up) = endpoint.recv()?;
        /// endpoint.abort(peer, "the quota is used up");
        /// assert!(client.recv().unwrap_err().to_string().contains("the quota is used up"));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn abort(&self, id: AssociationId, reason: impl AsRef<[u8]>);

    /// Returns the first local address of the endpoint, with its SCTP port: as in [`std::net`], `0.0.0.0` or `[::]` if it is
    /// bound to all addresses of the host.
    fn local_addr(&self) -> SocketAddr;

    /// Returns all local addresses of the endpoint with their SCTP and UDP port, as a peer on this host would name them: for
    /// `0.0.0.0` and `[::]` the loopback address. If it is restricted to some addresses of its stack
    /// ([`Stack::with_local_addresses`](crate::Stack::with_local_addresses)), these alone.
    fn address(&self) -> Address;

    /// Returns the peer's address of the primary path of an association, with the peer's SCTP port; `None` once the
    /// association has ended.
    example {
        /// ```
        /// # use swiftwater::{Association, Endpoint};
        /// let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
        /// let client = Association::connect(endpoint.address())?;
        /// let (id, _up) = endpoint.recv()?;
        /// assert_eq!(endpoint.peer_addr(id), client.local_addr());
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn peer_addr(&self, id: AssociationId) -> Option<SocketAddr>;

    /// Returns all addresses of the peer of an association with its SCTP port and its UDP port; `None` once the
    /// association has ended.
    fn peer(&self, id: AssociationId) -> Option<Address>;

    /// Returns the peer's addresses of an association (`sctp_getpaddrs`); none once it has ended.
    fn peer_ips(&self, id: AssociationId) -> Vec<IpAddr>;

    /// Returns the local addresses of an association (`sctp_getladdrs`), as
    /// [`Association::local_ips`](crate::Association::local_ips) does; none once it has ended.
    example {
        /// ```
        /// # use swiftwater::{Association, Endpoint};
        /// let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
        /// let _client = Association::connect(endpoint.address())?;
        /// let (id, _up) = endpoint.recv()?;
        /// assert_eq!(endpoint.local_ips(id), endpoint.peer_ips(id), "both are on this host");
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn local_ips(&self, id: AssociationId) -> Vec<IpAddr>;

    /// Returns the number of outbound streams that the handshake of an association negotiated; `None` before the association is
    /// up and once it has ended.
    example {
        /// ```
        /// # use swiftwater::{Association, Endpoint};
        /// # let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
        /// let client = Association::connect(endpoint.address())?;
        /// let (id, _up) = endpoint.recv()?;
        /// assert_eq!(endpoint.streams_out(id), Some(client.streams_in()));
        /// assert_eq!(endpoint.streams_in(id), Some(client.streams_out()));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn streams_out(&self, id: AssociationId) -> Option<u16>;

    /// Returns the number of inbound streams that the handshake of an association negotiated; `None` before the association is
    /// up and once it has ended.
    fn streams_in(&self, id: AssociationId) -> Option<u16>;

    /// Returns the path of an association to one of the peer's addresses, for [`SendInfo::path`]; `None` if the peer
    /// has no such address or the association has ended.
    fn path_to(&self, id: AssociationId, address: IpAddr) -> Option<PathId>;

    /// Returns the current options of an association; `None` once it has ended.
    fn options(&self, id: AssociationId) -> Option<AssociationOptions>;

    /// Replaces the options of one association at once, either all or none of them.
    example {
        /// ```
        /// # use swiftwater::{Association, AssociationOptions, Endpoint};
        /// # let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
        /// # let _client = Association::connect(endpoint.address())?;
        /// let (id, _up) = endpoint.recv()?;
        /// let options = endpoint.options(id).expect("it is up");
        /// endpoint.set_options(id, &options.with_nodelay(true))?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    errors {
        /// One of the *fixed* options differs from that of the association, or the association has ended. No option has
        /// changed.
    }
    fn set_options(&self, id: AssociationId, options: &AssociationOptions) -> Result<(), OptionsError>;

    /// Changes single options of one association at once, as
    /// [`Association::update_options`](crate::Association::update_options) does.
    example {
        /// ```
        /// # use swiftwater::{Association, Endpoint};
        /// # let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
        /// # let _client = Association::connect(endpoint.address())?;
        /// let (id, _up) = endpoint.recv()?;
        /// endpoint.update_options(id, |options| options.nodelay = true)?;
        /// assert!(endpoint.options(id).expect("it is up").nodelay);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    errors {
        /// Fails as [`set_options`](Self::set_options) does.
    }
    fn update_options(
        &self,
        id: AssociationId,
        change: impl FnMut(&mut AssociationOptions),
    ) -> Result<(), OptionsError>;

    /// Changes the options of the path of an association to one address of the peer (`SCTP_PEER_ADDR_PARAMS`), or of
    /// all its paths if `address` is `None`.
    errors {
        /// The peer has no such address, or the association has ended.
    }
    fn set_path(
        &self,
        id: AssociationId,
        address: Option<IpAddr>,
        options: &PathOptions,
    ) -> Result<(), PathError>;

    /// Makes the path to this address of the peer the primary path of an association (`SCTP_PRIMARY_ADDR`), as
    /// [`Association::set_primary`](crate::Association::set_primary) does.
    errors {
        /// The peer has no such address, the address is not confirmed yet, or the association has ended.
    }
    fn set_primary(&self, id: AssociationId, address: IpAddr) -> Result<(), PathError>;

    /// Returns the counters of an association and of its paths (RFC 6458 §8.2, RFC 3873); `None` once the association
    /// has ended.
    example {
        /// ```
        /// # use swiftwater::{Association, Endpoint, Event, Received, SendInfo};
        /// # let endpoint = Endpoint::bind("127.0.0.1:0/udp:0")?;
        /// # let client = Association::connect(endpoint.address())?;
        /// # let (peer, _up) = endpoint.recv()?;
        /// client.send(b"hello")?;
        /// endpoint.recv()?;
        /// assert_eq!(endpoint.statistics(peer).expect("it is up").messages_received, 1);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn statistics(&self, id: AssociationId) -> Option<Statistics>;
}
