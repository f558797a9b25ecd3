//! The calls on associations that do not wait, for threads and tasks alike.

use std::net::{IpAddr, SocketAddr};

use sctp::{PathError, PathId, PathOptions, SendInfo, Statistics};

use crate::address::Address;
use crate::error::{CloseReason, OptionsError, RecvError, SendError};
use crate::event::Received;
use crate::message::Message;
use crate::options::AssociationOptions;
use crate::stream::Stream;

forward! {
    crate::association::Association, crate::tokio::Association:

    /// Sends one message if the send buffer has room for it, without waiting.
    example {
        /// ```
        /// # use swiftwater::{Association, Listener, SendError, SendInfo};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// # let client = Association::connect(listener.address())?;
        /// # let (server, _) = listener.accept()?;
        /// let block = vec![7; 1 << 20];
        /// while client.try_send(&block, &SendInfo::default()).is_ok() {}
        /// assert_eq!(client.try_send(&block, &SendInfo::default()), Err(SendError::WouldBlock));
        /// # drop(server);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    errors {
        /// Fails as [`send_with`](Self::send_with) does, or with [`SendError::WouldBlock`].
    }
    fn try_send(&self, message: &[u8], info: &SendInfo) -> Result<(), SendError>;

    /// Receives the next message, or the next part of a long one, without waiting, if one is available.
    example {
        /// ```
        /// # use swiftwater::RecvError;
        /// # use swiftwater::{Association, Listener};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// # let client = Association::connect(listener.address())?;
        /// # let (server, _) = listener.accept()?;
        /// assert_eq!(server.try_recv().unwrap_err(), RecvError::WouldBlock);
        /// # drop(client);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    errors {
        /// Fails as [`recv`](Self::recv) does, or with [`RecvError::WouldBlock`].
    }
    fn try_recv(&self) -> Result<Option<Message>, RecvError>;

    /// Receives the next message, or the next part of a long one, or event without waiting, if one is available.
    errors {
        /// Fails as [`recv_any`](Self::recv_any) does, or with [`RecvError::WouldBlock`].
    }
    fn try_recv_any(&self) -> Result<Option<Received>, RecvError>;

    /// Transmits messages at once that wait for others to share their packet.
    fn flush(&self);

    /// Aborts the association (RFC 9260 §9.1): undelivered messages are lost. The ABORT contains the first 256 bytes of
    /// `reason`: a text, or any bytes ([`Loss::reason`](crate::Loss::reason) at the peer).
    example {
        /// ```
        /// # use swiftwater::{Association, Listener};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// # let client = Association::connect(listener.address())?;
        /// # let (server, _) = listener.accept()?;
        /// server.abort("the disk is full");
        /// assert!(client.recv().unwrap_err().to_string().contains("the disk is full"));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn abort(&self, reason: impl AsRef<[u8]>);

    /// Returns why the association has ended; `None` if it has not. The reason is available as soon as the association
    /// ends, while messages may still wait to be received.
    example {
        /// ```
        /// # use swiftwater::{Association, CloseReason, Listener, LossKind};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// let client = Association::connect(listener.address())?;
        /// assert_eq!(client.close_reason(), None);
        /// client.abort("enough");
        /// let Some(CloseReason::Lost(loss)) = client.close_reason() else { panic!("it was aborted") };
        /// assert_eq!(loss.kind, LossKind::Aborted);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn close_reason(&self) -> Option<CloseReason>;

    /// Returns the peer's address of the primary path when the association came up, with the peer's SCTP port. The
    /// address remains available after the association has ended.
    example {
        /// ```
        /// # use swiftwater::{Association, Listener};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// let client = Association::connect(listener.address())?;
        /// assert_eq!(client.peer_addr(), listener.local_addr());
        /// let (server, from) = listener.accept()?;
        /// assert_eq!(server.peer_addr(), from);
        /// assert_eq!(client.local_addr(), Some(from));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn peer_addr(&self) -> SocketAddr;

    /// Returns the local address of the primary path, with our SCTP port; `None` once the association has ended.
    fn local_addr(&self) -> Option<SocketAddr>;

    /// Returns all addresses of the peer with its SCTP port and its UDP port, as a connect to it would name them;
    /// `None` once the association has ended.
    fn peer(&self) -> Option<Address>;

    /// Returns the peer's addresses (`sctp_getpaddrs`); none once the association has ended.
    fn peer_ips(&self) -> Vec<IpAddr>;

    /// Returns the local addresses of the association (`sctp_getladdrs`): those that it is restricted to
    /// ([`Stack::with_local_addresses`](crate::Stack::with_local_addresses)) or that the stack is bound to, otherwise the
    /// source addresses of its paths. Returns none once the association has ended.
    example {
        /// ```
        /// # use swiftwater::{Association, Listener};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// let client = Association::connect(listener.address())?;
        /// assert_eq!(client.local_ips(), client.peer_ips(), "both are on this host");
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn local_ips(&self) -> Vec<IpAddr>;

    /// Returns the path to one of the peer's addresses, for [`SendInfo::path`]; `None` if the peer has no such address
    /// or the association has ended.
    example {
        /// ```
        /// # use swiftwater::{Association, Listener, SendInfo};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// let client = Association::connect(listener.address())?;
        /// let path = client.path_to("127.0.0.1".parse()?);
        /// assert!(path.is_some());
        /// client.send_with(b"this way", &SendInfo { path, ..SendInfo::default() })?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn path_to(&self, address: IpAddr) -> Option<PathId>;

    /// Returns the number of outbound streams that the handshake negotiated.
    example {
        /// ```
        /// # use swiftwater::{Association, AssociationOptions, Listener};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// let options = AssociationOptions::default().with_streams_out(64);
        /// let client = Association::connect_with(listener.address(), &options.into())?;
        /// assert_eq!(client.streams_out(), 64);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn streams_out(&self) -> u16;

    /// Returns the number of inbound streams that the handshake negotiated.
    example {
        /// ```
        /// # use swiftwater::{Association, Listener};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// # let client = Association::connect(listener.address())?;
        /// # let (server, _) = listener.accept()?;
        /// assert_eq!(client.streams_in(), server.streams_out());
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn streams_in(&self) -> u16;

    /// Returns the current options of the association; `None` once it has ended.
    fn options(&self) -> Option<AssociationOptions>;

    /// Replaces the options of this association at once, either all or none of them: to change single options, see
    /// [`update_options`](Self::update_options). A changed option of paths applies to all paths; other settings of
    /// [`set_path`](Self::set_path) remain.
    example {
        /// ```
        /// # use std::time::Duration;
        /// # use swiftwater::{Association, AssociationOptions, Listener, OptionsError};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// # let client = Association::connect(listener.address())?;
        /// let options = client.options().expect("it is up");
        /// client.set_options(&options.clone().with_sack_delay(Duration::from_millis(10)))?;
        /// assert_eq!(client.statistics().expect("it is up").paths[0].sack_delay, Duration::from_millis(10));
        ///
        /// let streams = client.set_options(&options.with_streams_out(99));
        /// assert_eq!(streams, Err(OptionsError::Fixed { option: "streams_out" }));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    errors {
        /// One of the *fixed* options differs from that of the association, or the association has ended. No option has
        /// changed.
    }
    fn set_options(&self, options: &AssociationOptions) -> Result<(), OptionsError>;

    /// Changes single options of this association at once; the others stay, even if another thread changes them at the same time.
    /// `change` gets the current options. It is called again if they have changed meanwhile.
    example {
        /// ```
        /// # use swiftwater::{Association, Listener};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// # let client = Association::connect(listener.address())?;
        /// client.update_options(|options| options.nodelay = true)?;
        /// assert!(client.options().expect("it is up").nodelay);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    errors {
        /// Fails as [`set_options`](Self::set_options) does.
    }
    fn update_options(&self, change: impl FnMut(&mut AssociationOptions)) -> Result<(), OptionsError>;

    /// Changes the options of the path to one address of the peer (`SCTP_PEER_ADDR_PARAMS`), or of all paths if
    /// `address` is `None`.
    example {
        /// ```
        /// # use swiftwater::{Association, Listener, PathOptions};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// # let client = Association::connect(listener.address())?;
        /// client.set_path(None, &PathOptions { heartbeats: Some(false), ..PathOptions::default() })?;
        /// assert!(client.statistics().expect("it is up").paths.iter().all(|path| !path.heartbeats));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    errors {
        /// The peer has no such address, or the association has ended.
    }
    fn set_path(&self, address: Option<IpAddr>, options: &PathOptions) -> Result<(), PathError>;

    /// Makes the path to this address of the peer the primary path (`SCTP_PRIMARY_ADDR`): new data goes there while the
    /// address answers, otherwise to another of the peer's addresses. With data on all paths at once
    /// ([`Multipath`](crate::Multipath)), single messages take the primary path.
    example {
        /// ```
        /// # use swiftwater::{Association, Listener};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// # let client = Association::connect(listener.address())?;
        /// let statistics = client.statistics().expect("it is up");
        /// let path = statistics.paths.iter().find(|path| path.active).expect("one is active");
        /// client.set_primary(path.remote.ip())?;
        /// let nowhere = client.set_primary("192.0.2.1".parse()?).unwrap_err();
        /// assert!(nowhere.to_string().starts_with("the peer has no address 192.0.2.1"));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    errors {
        /// The peer has no such address, the address is not confirmed yet, or the association has ended.
    }
    fn set_primary(&self, address: IpAddr) -> Result<(), PathError>;

    /// Returns the counters of the association and of its paths (RFC 6458 §8.2, RFC 3873); `None` once the association
    /// has ended.
    example {
        /// ```
        /// # use swiftwater::{Association, Listener};
        /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
        /// # let client = Association::connect(listener.address())?;
        /// # let (server, _) = listener.accept()?;
        /// client.send(b"hello")?;
        /// server.recv()?;
        /// assert_eq!(server.statistics().expect("it is up").messages_received, 1);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
    }
    fn statistics(&self) -> Option<Statistics>;

    /// Returns the stream of the association, which gives access to its modules and its STREAMS messages.
    fn stream(&self) -> Stream<'_>;
}
