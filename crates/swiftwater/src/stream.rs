//! The STREAMS interface of an association: modules, messages, ioctls, links.

mod splice;

use std::fmt;
use std::time::{Duration, Instant};

use streams::{
    Interest, IoctlError, IoctlReply, IoctlRequest, IoctlStep, Message, Module, PopError, PushError,
    ReadError, StreamDescription, WriteError,
};

pub use self::splice::{SpliceError, SpliceStatus};
use crate::shard::Inner;
use crate::socket::{Socket, Wait, WaitError};

/// Reason why no message was taken from a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GetmsgError {
    /// No message is available, and the call must not wait.
    WouldBlock,
    /// No message arrived in time.
    TimedOut,
    /// The stream has failed.
    Failed(ReadError),
}

impl fmt::Display for GetmsgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GetmsgError::WouldBlock => f.write_str("no message is available; wait for one and take it"),
            GetmsgError::TimedOut => f.write_str("no message came in time; try again"),
            GetmsgError::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GetmsgError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            GetmsgError::Failed(error) => Some(error),
            GetmsgError::WouldBlock | GetmsgError::TimedOut => None,
        }
    }
}

/// The stream between an association and its provider, with the operations that `streamio(7)`, `getmsg(2)` and
/// `putmsg(2)` offer on the descriptor of a stream. [`SharedAssociation::stream`](crate::Association::stream)
/// returns it.
///
/// Modules may be pushed and popped while messages pass: none is lost, duplicated or reordered. [`Stream::getmsg`],
/// [`Stream::putmsg`] and [`Stream::ioctl`] block the thread; tasks use [`Stream::try_getmsg`] and [`Stream::try_putmsg`].
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    socket: &'a Socket,
}

impl<'a> Stream<'a> {
    pub(crate) fn of(socket: &'a Socket) -> Self {
        Stream { socket }
    }

    /// Pushes a module next below the stream head (`I_PUSH`): every message passes it, in both directions.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// use swiftwater::modules::Counter;
    ///
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// let counter = Counter::new();
    /// let counts = counter.counts();
    /// client.stream().push(Box::new(counter))?;
    /// client.send(b"counted")?;
    /// assert_eq!((counts.messages_down(), counts.bytes_down()), (1, 7));
    /// client.stream().pop()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The module's open procedure fails, the stream has its maximum number of modules, or the association has ended.
    pub fn push(&self, module: Box<dyn Module>) -> Result<(), PushError> {
        self.change(|executive, s| executive.push(s, module)).unwrap_or(Err(PushError::Closed))
    }

    /// Pushes a module by its name (`I_PUSH`): one of [`modules`](crate::modules), or one that
    /// [`Stack::add_module`](crate::Stack::add_module) has added.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// client.stream().push_named("limit", &["bits=10M".to_owned()])?;
    /// assert_eq!(client.stream().list(), ["limit", "sctp"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Stream::push`] does, or because no module has the name or the module rejects the arguments.
    pub fn push_named(&self, name: &str, arguments: &[String]) -> Result<(), PushError> {
        self.change(|executive, s| executive.push_named(s, name, arguments)).unwrap_or(Err(PushError::Closed))
    }

    /// Pops the module next below the stream head (`I_POP`) and returns it. Its queued messages continue.
    ///
    /// # Errors
    ///
    /// No module is pushed, the module is anchored, or the association has ended.
    pub fn pop(&self) -> Result<Box<dyn Module>, PopError> {
        self.change(|executive, s| executive.pop(s)).unwrap_or(Err(PopError::Closed))
    }

    /// Anchors the module next below the stream head (`I_ANCHOR`): only [`Stream::pop_anchored`] can pop it.
    ///
    /// # Errors
    ///
    /// No module is pushed, or the association has ended.
    pub fn anchor(&self) -> Result<(), PopError> {
        self.change(|executive, s| executive.anchor(s)).unwrap_or(Err(PopError::Closed))
    }

    /// Pops a module as [`Stream::pop`] does, even if it is anchored.
    ///
    /// # Errors
    ///
    /// No module is pushed, or the association has ended.
    pub fn pop_anchored(&self) -> Result<Box<dyn Module>, PopError> {
        self.change(|executive, s| executive.pop_any(s)).unwrap_or(Err(PopError::Closed))
    }

    /// Pops modules next below the stream head that have finished, such as a tap whose reader is gone.
    pub fn pop_finished(&self) {
        // A stream that has ended has no modules.
        let _ = self.change(|executive, s| executive.pop_finished(s));
    }

    /// Returns the names of the modules, from the head downward, then that of the driver (`I_LIST`).
    pub fn list(&self) -> Vec<String> {
        let names = self.inspect(|executive, s| executive.list(s));
        names.unwrap_or_default()
    }

    /// Returns the number of modules on the stream, with those that were popped and whose messages have not all gone on.
    pub fn places(&self) -> usize {
        self.inspect(|executive, s| executive.places(s)).unwrap_or_default()
    }

    /// Returns a description of the modules on the stream, with watermarks and counts; `None` once the association has
    /// ended.
    pub fn describe(&self) -> Option<StreamDescription> {
        self.inspect(|executive, s| executive.describe(s)).flatten()
    }

    /// Sends a request to the modules and the provider, and waits for the answer (`I_STR`), up to the time limit in the
    /// request.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// use swiftwater::modules::Counter;
    /// use swiftwater::streams::IoctlRequest;
    ///
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// client.stream().push(Box::new(Counter::new()))?;
    /// client.send(b"counted")?;
    /// let reply = client.stream().ioctl(IoctlRequest::str(Counter::GET_COUNTS, b"".to_vec()))?;
    /// assert_eq!(reply.data.to_vec()[..8], 1u64.to_ne_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A module or the provider refuses the request, its time limit passes, another request is in progress, or the
    /// stream has failed. A module that asks to copy from or to the caller's memory gets an error (`EFAULT`).
    pub fn ioctl(&self, request: IoctlRequest) -> Result<IoctlReply, IoctlError> {
        let mut begin = Some(request);
        let s = self.socket.stream;
        let attempt = |inner: &mut Inner| {
            let mut executive = inner.executive.at(Instant::now());
            let mut step = match begin.take() {
                Some(request) => executive.ioctl_begin(s, request),
                None => executive.ioctl_step(s),
            };
            while let Ok(IoctlStep::CopyIn { .. } | IoctlStep::CopyOut { .. }) = step {
                step = executive.ioctl_copied(s, Err(tpi::Errno::EFAULT));
            }
            executive.run();
            match step {
                Ok(IoctlStep::Done(reply)) => Some(Ok(reply)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            }
        };
        self.socket.until(Interest::PRIORITY, Wait::Forever, attempt).unwrap_or(Err(IoctlError::Closed))
    }

    /// Takes the next message of any kind; waits for it (`getmsg`). Returns `None` if the stream has ended and everything was
    /// read.
    ///
    /// # Errors
    ///
    /// The stream has failed.
    pub fn getmsg(&self) -> Result<Option<Message>, GetmsgError> {
        self.getmsg_within(Wait::Forever)
    }

    /// Takes the next message of any kind; waits up to `timeout` for it.
    ///
    /// # Errors
    ///
    /// Fails as [`Stream::getmsg`] does, or with [`GetmsgError::TimedOut`].
    pub fn getmsg_timeout(&self, timeout: Duration) -> Result<Option<Message>, GetmsgError> {
        self.getmsg_within(Wait::within(timeout))
    }

    /// Takes the next message if one is available (`getmsg` with `O_NONBLOCK`).
    ///
    /// ```
    /// # use swiftwater::{Association, GetmsgError, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// assert_eq!(server.stream().try_getmsg().unwrap_err(), GetmsgError::WouldBlock);
    /// client.send(b"a message")?;
    /// let message = server.stream().getmsg()?.expect("one is sent");
    /// assert_eq!(message.data, b"a message"[..]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`Stream::getmsg`] does, or with [`GetmsgError::WouldBlock`].
    pub fn try_getmsg(&self) -> Result<Option<Message>, GetmsgError> {
        self.getmsg_within(Wait::None)
    }

    fn getmsg_within(&self, wait: Wait) -> Result<Option<Message>, GetmsgError> {
        let socket = self.socket;
        match socket.until(Interest::READABLE, wait, |inner| socket.try_getmsg_of_any_kind(inner)) {
            Ok(found) => found.map_err(GetmsgError::Failed),
            Err(WaitError::WouldBlock) => Err(GetmsgError::WouldBlock),
            Err(WaitError::TimedOut) => Err(GetmsgError::TimedOut),
            Err(WaitError::Fault(_)) => Err(GetmsgError::Failed(ReadError::Failed(tpi::Errno::EIO))),
        }
    }

    /// Puts a message of any kind on the stream; waits while the stream has no room (`putmsg`).
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// use swiftwater::streams::{Message, SendInfo, Which};
    ///
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.address())?;
    /// # let (server, _) = listener.accept()?;
    /// let info = SendInfo::stream(1);
    /// client.stream().putmsg(Message::optdata_req(Which::Only, info, b"as a primitive".to_vec().into()))?;
    /// assert_eq!(server.recv()?.expect("it comes").to_vec(), b"as a primitive");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The stream does not accept the message.
    pub fn putmsg(&self, message: Message) -> Result<(), WriteError> {
        let mut message = Some(message);
        let socket = self.socket;
        socket
            .until(Interest::WRITABLE, Wait::Forever, |inner| socket.try_request(inner, &mut message))
            .unwrap_or(Err(WriteError::Closed))
    }

    /// Puts a message on the stream if there is room (`putmsg` with `O_NONBLOCK`).
    ///
    /// # Errors
    ///
    /// Fails as [`Stream::putmsg`] does, or with [`WriteError::WouldBlock`].
    pub fn try_putmsg(&self, message: &Message) -> Result<(), WriteError> {
        // The copy shares the data.
        let mut message = Some(message.clone());
        let socket = self.socket;
        let attempt = |inner: &mut Inner| socket.try_request(inner, &mut message);
        match socket.until(Interest::WRITABLE, Wait::None, attempt) {
            Ok(put) => put,
            Err(WaitError::WouldBlock | WaitError::TimedOut) => Err(WriteError::WouldBlock),
            Err(WaitError::Fault(_)) => Err(WriteError::Closed),
        }
    }

    /// Changes the modules of the stream; then sends and delivers the messages that this releases.
    fn change<R>(&self, f: impl FnOnce(&mut streams::At<'_>, streams::StreamId) -> R) -> Option<R> {
        let mut inner = self.socket.shard.enter();
        let s = self.socket.stream;
        let changed = inner.guarded(Some(s), |inner| f(&mut inner.executive.at(Instant::now()), s));
        self.socket.shard.after_command(&mut inner, Some(s));
        changed
    }

    /// Calls a getter of the executive.
    fn inspect<R>(&self, f: impl FnOnce(&streams::Executive, streams::StreamId) -> R) -> Option<R> {
        let s = self.socket.stream;
        self.socket.shard.enter().guarded(None, |inner| f(inner.executive.with_messages_queued(), s))
    }
}
