//! Associations: one-to-one endpoints.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sctp::{PathId, PathOptions, PrimaryError, Statistics};
use streams::{Chain, Interest, Message as Block, Module};
use tpi::{Addresses, Errno, Primitive};

use crate::address::{Address, ToAddress};
use crate::control::Control;
use crate::error::{ConnectError, Loss, OptionsError, RecvError, SendError};
use crate::event::{Event, Received};
use crate::message::{Message, RecvInfo, SendInfo, from_block};
use crate::options::{AssociationOptions, StackOptions};
use crate::socket::{End, Found, Patience, Socket, Style, unless_restarted};
use crate::stack::Stack;

/// An association with one peer. Clones share it; every method may be called from any thread.
///
/// When the last clone is dropped, everything sent so far is still delivered and the association is shut down
/// in the background for as long as the process lives; [`Association::close`] waits for that.
///
/// ```
/// use swiftwater::{Association, Listener, SendInfo};
///
/// let listener = Listener::bind("127.0.0.1:0/udp:0")?;
/// let client = Association::connect(listener.local_address())?;
/// let server = listener.accept()?;
///
/// // Streams do not wait for each other; what is sent with a message arrives with it.
/// client.send_with(b"picture", &SendInfo { stream: 1, ppid: 7, ..SendInfo::default() })?;
/// let message = server.recv()?.expect("a message");
/// assert_eq!((message.info.stream, message.info.ppid), (1, 7));
///
/// // A thread of its own for each direction.
/// let reader = server.clone();
/// let reading = std::thread::spawn(move || reader.recv().map(|end| end.is_none()));
/// client.shutdown()?;
/// assert!(reading.join().unwrap()?, "the client sends no more");
/// server.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Association {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: Socket,
    /// Outbound streams; known once the association is up.
    streams_out: AtomicU16,
    message_bytes_max: AtomicUsize,
    events: AtomicBool,
    /// Whether [`Association::next`] has told that the association is up.
    up_told: AtomicBool,
    came_from: Option<SocketAddr>,
}

impl Association {
    /// Sets up an association with a server, with default [`StackOptions`] and sockets of its own.
    ///
    /// # Errors
    ///
    /// Nobody listens there, nobody answers, or there is no way to it: the error says what to check.
    pub fn connect(server: impl ToAddress) -> Result<Association, ConnectError> {
        Association::connect_with(server, &StackOptions::default())
    }

    /// The same with `options`.
    ///
    /// # Errors
    ///
    /// As [`Association::connect`].
    pub fn connect_with(server: impl ToAddress, options: &StackOptions) -> Result<Association, ConnectError> {
        let server = server.to_address()?;
        Association::connect_on(&Stack::bind_client(options)?, &server)
    }

    pub(crate) fn connect_on(stack: &Stack, server: &Address) -> Result<Association, ConnectError> {
        Association::await_answer(Association::start(stack, server)?)
    }

    pub(crate) fn connect_from(
        stack: &Stack,
        port: u16,
        server: &Address,
    ) -> Result<Association, ConnectError> {
        Association::await_answer(Association::start_from(stack, port, server)?)
    }

    fn await_answer(association: Association) -> Result<Association, ConnectError> {
        loop {
            let found = association.shared.socket.getmsg(Patience::Forever);
            if association.take_connect_answer(found)? {
                return Ok(association);
            }
        }
    }

    /// Sends the connect request; the answer comes later.
    pub(crate) fn start(stack: &Stack, server: &Address) -> Result<Association, ConnectError> {
        Association::start_from(stack, 0, server)
    }

    /// The same from a local port; 0 for any.
    pub(crate) fn start_from(
        stack: &Stack,
        port: u16,
        server: &Address,
    ) -> Result<Association, ConnectError> {
        let socket = stack.open(Style::OneToOne).map_err(|e| ConnectError::Failed(e.to_string()))?;
        if port != 0 {
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            // Ports without a listener are no one's: a fresh stream is bound to any.
            socket
                .ask(Primitive::BindReq { addresses: any.into(), backlog: 0 })
                .map_err(|e| ConnectError::Failed(e.to_string()))?;
        }
        ask_to_connect(stack, &socket, server)?;
        Ok(Association::over(stack, socket, None))
    }

    /// Looks at one answer to a connect request. True: the association is up.
    pub(crate) fn take_connect_answer(
        &self,
        found: Result<Found<Block>, RecvError>,
    ) -> Result<bool, ConnectError> {
        match found {
            Ok(Found::Primitive(Primitive::ConnCon { outbound_streams, .. }, _)) => {
                self.shared.streams_out.store(outbound_streams, Ordering::Relaxed);
                Ok(true)
            }
            Ok(Found::Primitive(Primitive::DisconInd { reason, cause, .. }, data)) => {
                Err(match Errno(reason as i32) {
                    Errno::ECONNREFUSED => ConnectError::Refused,
                    Errno::ETIMEDOUT => ConnectError::TimedOut,
                    Errno::EHOSTUNREACH => ConnectError::Unreachable,
                    _ => {
                        let loss = Loss::of(reason, cause, &data);
                        ConnectError::Failed(loss.map_or_else(String::new, |loss| loss.text))
                    }
                })
            }
            Ok(Found::Primitive(..) | Found::Data(_)) => Ok(false),
            Ok(Found::End) => Err(ConnectError::Failed("the stream was closed".into())),
            Err(error) => Err(ConnectError::Failed(error.to_string())),
        }
    }

    pub(crate) fn accepted(stack: &Stack, socket: Socket, peer: Option<SocketAddr>) -> Association {
        let association = Association::over(stack, socket, peer);
        if let Some(statistics) = association.control().statistics() {
            association.shared.streams_out.store(statistics.streams_out, Ordering::Relaxed);
        }
        // The listener's options may have changed since it was opened.
        if let Some(options) = association.options() {
            association.shared.message_bytes_max.store(options.message_bytes_max, Ordering::Relaxed);
            association.shared.events.store(options.events, Ordering::Relaxed);
        }
        association
    }

    fn over(stack: &Stack, socket: Socket, came_from: Option<SocketAddr>) -> Association {
        Association {
            shared: Arc::new(Shared {
                socket,
                streams_out: AtomicU16::new(0),
                message_bytes_max: AtomicUsize::new(stack.options.association.message_bytes_max),
                events: AtomicBool::new(stack.options.association.events),
                up_told: AtomicBool::new(false),
                came_from,
            }),
        }
    }

    /// Sends one message on stream 0; waits while the send buffer is full.
    ///
    /// # Errors
    ///
    /// The association is closed, or the message is empty or too long.
    #[inline]
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_with(message, &SendInfo::default())
    }

    /// Sends one message as `info` says; waits while the send buffer is full.
    ///
    /// With [`SendInfo::more`] the record goes on with the next call: writes are put together as in a byte stream.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener, SendInfo};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.local_address())?;
    /// # let server = listener.accept()?;
    /// let more = SendInfo { more: true, ..SendInfo::default() };
    /// client.send_with(b"one ", &more)?;
    /// client.send_with(b"long ", &more)?;
    /// client.send(b"record")?;
    /// let mut record = Vec::new();
    /// while let Some(part) = server.recv()? {
    ///     record.extend_from_slice(&part.to_vec());
    ///     if part.info.end_of_record {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(record, b"one long record");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Association::send`]; and there is no such stream.
    #[inline]
    pub fn send_with(&self, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.check(message.len(), info)?;
        self.shared.socket.write(&info.transfer(0), message, Patience::Forever)
    }

    /// Sends one message that is handed over: it is not copied.
    ///
    /// # Errors
    ///
    /// As [`Association::send_with`].
    pub fn send_bytes(&self, message: Bytes, info: &SendInfo) -> Result<(), SendError> {
        self.check(message.len(), info)?;
        self.shared.socket.write_bytes(&info.transfer(0), &message, Patience::Forever)
    }

    /// Sends one message if there is room for it; [`SendError::WouldBlock`] otherwise.
    ///
    /// # Errors
    ///
    /// As [`Association::send_with`].
    pub fn try_send(&self, message: &[u8], info: &SendInfo) -> Result<(), SendError> {
        self.check(message.len(), info)?;
        self.shared.socket.write(&info.transfer(0), message, Patience::None)
    }

    #[inline]
    pub(crate) fn check(&self, bytes: usize, info: &SendInfo) -> Result<(), SendError> {
        let streams = self.shared.streams_out.load(Ordering::Relaxed);
        if info.stream >= streams {
            return Err(match streams {
                // It was gone before it could be accepted.
                0 => SendError::Closed,
                _ => SendError::NoSuchStream { stream: info.stream, streams },
            });
        }
        let limit_bytes = self.shared.message_bytes_max.load(Ordering::Relaxed);
        if bytes > limit_bytes {
            return Err(SendError::TooLong { bytes, limit_bytes });
        }
        if bytes == 0 {
            return Err(SendError::Empty);
        }
        Ok(())
    }

    /// The next message; waits for it. `None`: the peer has shut down and everything was read.
    ///
    /// # Errors
    ///
    /// The association was aborted or lost.
    pub fn recv(&self) -> Result<Option<Message>, RecvError> {
        self.recv_message(Patience::Forever)
    }

    /// The next message if one comes in time; otherwise [`RecvError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Association::recv`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message>, RecvError> {
        self.recv_message(Patience::within(timeout))
    }

    /// The next message if one is there; otherwise [`RecvError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Association::recv`].
    pub fn try_recv(&self) -> Result<Option<Message>, RecvError> {
        self.recv_message(Patience::None)
    }

    /// The next message or event, in the order in which they came; waits for it. Without
    /// [`AssociationOptions::events`] there are only messages.
    ///
    /// `None` follows [`Event::Down`] where both sides have shut down. A restart of the peer is an event here.
    ///
    /// ```
    /// use swiftwater::{Association, AssociationOptions, Event, Listener, Received};
    ///
    /// let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// let options = AssociationOptions { events: true, ..Default::default() }.into();
    /// let client = Association::connect_with(listener.local_address(), &options)?;
    /// let server = listener.accept()?;
    /// server.send(b"last")?;
    /// server.shutdown()?;
    /// assert!(matches!(client.next()?, Some(Received::Event(Event::Up))));
    /// assert!(matches!(client.next()?, Some(Received::Message(message)) if message.to_vec() == b"last"));
    /// assert!(matches!(client.next()?, Some(Received::Event(Event::PeerShutdown))));
    /// assert!(matches!(client.next()?, Some(Received::Event(Event::Down(None)))));
    /// assert!(client.next()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The association was aborted or lost, after the events that say so.
    pub fn next(&self) -> Result<Option<Received>, RecvError> {
        self.next_with(Patience::Forever)
    }

    /// The next message or event if one is there; otherwise [`RecvError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Association::next`].
    pub fn try_next(&self) -> Result<Option<Received>, RecvError> {
        self.next_with(Patience::None)
    }

    /// The same for who has just got one, and takes along what came with it: the sockets are not looked at, which costs a system
    /// call, and what was sent is not flushed.
    ///
    /// # Errors
    ///
    /// As [`Association::next`].
    pub fn next_at_hand(&self) -> Result<Option<Received>, RecvError> {
        self.next_with(Patience::NoLook)
    }

    /// Keeps the room of messages of so many bytes and more in the receive window when they are taken, until
    /// [`Association::release_window`] gives it back. For a program that takes messages for somebody else, who has yet to read
    /// them: until then they count as unread, and the peer's window stays as closed.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// let client = Association::connect(listener.local_address())?;
    /// let server = listener.accept()?;
    /// server.hold_window_from(10);
    /// client.send(b"short")?;
    /// client.send(b"for another")?;
    /// server.recv()?.expect("a message");
    /// let message = server.recv()?.expect("a message");
    /// assert_eq!(server.statistics().receive_buffered_bytes, message.window_bytes() as u64);
    /// server.release_window(message.window_bytes());
    /// assert_eq!(server.statistics().receive_buffered_bytes, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold_window_from(&self, bytes: usize) {
        self.shared.socket.hold_window_from(bytes);
    }

    /// Gives room in the receive window back that [`Association::hold_window_from`] has kept: [`Message::window_bytes`] for each
    /// message.
    pub fn release_window(&self, bytes: usize) {
        let socket = &self.shared.socket;
        // One that is gone has no window.
        let _ = socket.command(|driver, _| driver.release_window(socket.stream, 0, bytes));
    }

    fn next_with(&self, patience: Patience) -> Result<Option<Received>, RecvError> {
        if !self.has_events() {
            return Ok(self.recv_message(patience)?.map(Received::Message));
        }
        if self.is_up_untold() {
            return Ok(Some(Received::Event(Event::Up)));
        }
        let socket = &self.shared.socket;
        loop {
            let found = socket.until(Interest::READABLE, patience, |inner| socket.try_next(inner))??;
            if let Some(received) = self.received(found)? {
                return Ok(received);
            }
        }
    }

    /// Copies the next message into `buffer`; waits for it. What does not fit comes with the next call
    /// (`end_of_record` is false). `None`: the peer has shut down and everything was read.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.local_address())?;
    /// # let server = listener.accept()?;
    /// client.send(b"hello, world")?;
    /// let mut buffer = [0; 8];
    /// let first = server.recv_into(&mut buffer)?.expect("the beginning");
    /// assert_eq!((&buffer[..first.bytes], first.end_of_record), (&b"hello, w"[..], false));
    /// let rest = server.recv_into(&mut buffer)?.expect("the rest");
    /// assert_eq!((&buffer[..rest.bytes], rest.end_of_record), (&b"orld"[..], true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Association::recv`].
    #[inline]
    pub fn recv_into(&self, buffer: &mut [u8]) -> Result<Option<RecvInfo>, RecvError> {
        loop {
            match self.shared.socket.read(buffer, Patience::Forever)? {
                Found::Data(info) => return Ok(Some(info)),
                Found::Primitive(primitive, text) => unless_restarted(&primitive, &text)?,
                Found::End => return self.ended().map(|()| None),
            }
        }
    }

    fn recv_message(&self, patience: Patience) -> Result<Option<Message>, RecvError> {
        loop {
            match self.shared.socket.getmsg(patience)? {
                Found::Data(message) => return Ok(Some(from_block(message))),
                Found::Primitive(primitive, text) => unless_restarted(&primitive, &text)?,
                Found::End => return self.ended().map(|()| None),
            }
        }
    }

    /// Transmits what is queued, now.
    pub fn flush(&self) {
        self.shared.socket.shard.enter().flush(true);
    }

    /// Sends no more; what was sent is delivered, and reading goes on.
    ///
    /// # Errors
    ///
    /// The association is closed already.
    pub fn shutdown(&self) -> Result<(), SendError> {
        self.shared
            .socket
            .request(Primitive::OrdrelReq { association: 0 }, Chain::new())
            .map_err(|_| SendError::Closed)
    }

    /// Shuts down and waits until the peer has everything and has shut down, too. What it still sends is
    /// thrown away.
    ///
    /// # Errors
    ///
    /// The association was aborted or lost before that.
    pub fn close(self) -> Result<(), RecvError> {
        // One that is gone already still has its reason to tell.
        let _ = self.shutdown();
        let socket = &self.shared.socket;
        socket.until(Interest::READABLE, Patience::Forever, |inner| socket.try_drain(inner))?
    }

    /// Ends the association at once; what is not delivered yet is lost. The peer is told `reason`, of which 256
    /// bytes travel.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.local_address())?;
    /// # let server = listener.accept()?;
    /// server.abort("the disk is full");
    /// assert!(client.recv().unwrap_err().to_string().contains("the disk is full"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(self, reason: &str) {
        let text = Chain::from(Bytes::copy_from_slice(reason.as_bytes()));
        let primitive = Primitive::DisconReq { sequence: 0, reason: 0, association: 0 };
        // An association that is gone already needs no abort.
        let _ = self.shared.socket.request(primitive, text);
    }

    /// Counters; all zero once the association is gone.
    pub fn statistics(&self) -> Statistics {
        self.control().statistics().unwrap_or_default()
    }

    fn control(&self) -> Control<'_> {
        Control { socket: &self.shared.socket, id: 0 }
    }

    /// New data goes to this address of the peer from now on, while it answers; otherwise to another of its addresses, as
    /// long as it does not. Where the peers send on all paths at once, it is where the traffic of a single path would go.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.local_address())?;
    /// let statistics = client.statistics();
    /// let path = statistics.paths.iter().find(|path| path.active).expect("one is active");
    /// client.set_primary(path.remote.ip())?;
    /// let nowhere = client.set_primary("192.0.2.1".parse()?).unwrap_err();
    /// assert!(nowhere.to_string().starts_with("the peer has no address 192.0.2.1"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The peer has no such address, or has not answered there yet, or the association is gone.
    pub fn set_primary(&self, address: IpAddr) -> Result<(), PrimaryError> {
        self.control().set_primary(address)
    }

    /// The options that the association has now; `None` once it is gone.
    pub fn options(&self) -> Option<AssociationOptions> {
        self.control().options()
    }

    /// Changes the options of this association, at once and all or none of them. An option of paths that differs from before
    /// goes to all of them; what [`Association::set_path`] has set stays otherwise.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use swiftwater::{Association, AssociationOptions, Listener, OptionsError};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.local_address())?;
    /// let options = client.options().expect("it is up");
    /// client.set_options(&AssociationOptions { sack_delay: Duration::from_millis(10), ..options.clone() })?;
    /// assert_eq!(client.statistics().paths[0].sack_delay, Duration::from_millis(10));
    ///
    /// let streams = client.set_options(&AssociationOptions { streams_out: 99, ..options });
    /// assert_eq!(streams, Err(OptionsError::Fixed { option: "streams_out" }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// One of the *fixed* options differs from what the association has, or the association is gone. Nothing has changed.
    pub fn set_options(&self, options: &AssociationOptions) -> Result<(), OptionsError> {
        self.control().set_options(options)?;
        self.shared.message_bytes_max.store(options.message_bytes_max, Ordering::Relaxed);
        if options.events != self.shared.events.swap(options.events, Ordering::Relaxed) {
            // Events begin here, long after the association came up.
            self.shared.up_told.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Changes the settings of the path to one address of the peer, or without an address of all paths.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener, PathOptions};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.local_address())?;
    /// client.set_path(None, &PathOptions { heartbeats: Some(false), ..PathOptions::default() })?;
    /// assert!(client.statistics().paths.iter().all(|path| !path.heartbeats));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The peer has no such address, or the association is gone.
    pub fn set_path(&self, address: Option<IpAddr>, options: &PathOptions) -> Result<(), PrimaryError> {
        self.control().set_path(address, options)
    }

    /// The peer, as long as the association is up.
    pub fn peer_address(&self) -> Option<Address> {
        self.control().peer_address()
    }

    /// The peer's addresses, all that are known of it; none once the association is gone.
    pub fn peer_addresses(&self) -> Vec<IpAddr> {
        self.peer_address().map(|address| address.hosts).unwrap_or_default()
    }

    /// The path to one of the peer's addresses, for [`SendInfo::path`]. `None`: there is none, or the association is gone.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener, SendInfo};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// let client = Association::connect(listener.local_address())?;
    /// let path = client.path_to("127.0.0.1".parse()?);
    /// assert!(path.is_some());
    /// client.send_with(b"this way", &SendInfo { path, ..SendInfo::default() })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path_to(&self, address: IpAddr) -> Option<PathId> {
        self.control().path_to(address)
    }

    /// Our addresses that this association uses: those that it was restricted to ([`Stack::with_local_addresses`]) or that the
    /// stack was bound to, or else those that its paths begin at. None once it is gone.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// let client = Association::connect(listener.local_address())?;
    /// assert_eq!(client.local_addresses(), client.peer_addresses(), "a line from 127.0.0.1 to itself");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn local_addresses(&self) -> Vec<IpAddr> {
        self.control().local_addresses()
    }

    /// Of one that a [`Listener`](crate::Listener) has accepted: the address and SCTP port that it came from, also when it is
    /// gone already.
    pub fn came_from(&self) -> Option<SocketAddr> {
        self.shared.came_from
    }

    /// Number of outbound streams.
    pub fn streams_out(&self) -> u16 {
        self.shared.streams_out.load(Ordering::Relaxed)
    }

    /// Pushes a module onto the stream of this association: it sees every message in both directions.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// use swiftwater::modules::Counter;
    ///
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.local_address())?;
    /// # let server = listener.accept()?;
    /// let counter = Counter::new();
    /// let counts = counter.counts();
    /// client.push(Box::new(counter))?;
    /// client.send(b"counted")?;
    /// assert_eq!((counts.messages_down(), counts.bytes_down()), (1, 7));
    /// client.pop()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The module refuses, or the association is gone.
    pub fn push(&self, module: Box<dyn Module>) -> Result<(), streams::PushError> {
        let socket = &self.shared.socket;
        let pushed = socket
            .shard
            .enter()
            .guarded(Some(socket.stream), |inner| inner.executive.push(socket.stream, module));
        pushed.unwrap_or(Err(streams::PushError::Closed))
    }

    /// Takes the module off that was pushed last.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn pop(&self) -> Result<(), streams::PopError> {
        let socket = &self.shared.socket;
        let popped =
            socket.shard.enter().guarded(Some(socket.stream), |inner| inner.executive.pop(socket.stream));
        popped.unwrap_or(Err(streams::PopError::Closed)).map(drop)
    }

    pub(crate) fn has_events(&self) -> bool {
        self.shared.events.load(Ordering::Relaxed)
    }

    /// Whether the user has yet to be told that the association is up, which is so once.
    pub(crate) fn is_up_untold(&self) -> bool {
        !self.shared.up_told.swap(true, Ordering::Relaxed)
    }

    /// What [`Association::next`] makes of what was found; `None` if that is nothing for the user.
    pub(crate) fn received(&self, found: Found<Block>) -> Result<Option<Option<Received>>, RecvError> {
        Ok(match found {
            Found::Data(message) => Some(Some(Received::Message(from_block(message)))),
            Found::Primitive(primitive, text) => {
                Event::of(&primitive, &text).map(|(_, event)| Some(Received::Event(event)))
            }
            Found::End => {
                self.ended()?;
                Some(None)
            }
        })
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn socket(&self) -> &Socket {
        &self.shared.socket
    }

    /// What reading gives from now on.
    pub(crate) fn ended(&self) -> Result<(), RecvError> {
        match self.shared.socket.end() {
            End::Open | End::PeerShutdown | End::Closed => Ok(()),
            End::Lost(why) => Err(RecvError::Lost(why)),
        }
    }
}

/// Hands a connect request to the provider, which says at once whether it will try.
pub(crate) fn ask_to_connect(stack: &Stack, socket: &Socket, server: &Address) -> Result<(), ConnectError> {
    server.check()?;
    if let Some(host) = server.hosts.first().filter(|_| !stack.reaches_any(&server.hosts)) {
        return Err(ConnectError::Family { host: *host });
    }
    let addresses = Addresses {
        list: server.socket_addresses().collect(),
        encapsulation_port: Some(server.carrier_port()),
    };
    match socket.ask(Primitive::ConnReq { addresses: Box::new(addresses) }) {
        Ok(Primitive::ErrorAck { errno: Errno::EADDRINUSE, .. }) => Err(ConnectError::Exists),
        Ok(Primitive::ErrorAck { errno: Errno::EADDRNOTAVAIL, .. }) => {
            Err(ConnectError::Family { host: server.hosts[0] })
        }
        Ok(Primitive::ErrorAck { t_error, .. }) => Err(ConnectError::Failed(t_error.to_string())),
        Ok(_) => Ok(()),
        Err(error) => Err(ConnectError::Failed(error.to_string())),
    }
}
