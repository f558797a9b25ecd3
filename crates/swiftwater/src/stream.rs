//! The stream of an association, as STREAMS knows it: modules, messages, ioctls.

use std::time::Duration;

use streams::{
    Interest, IoctlError, IoctlReply, IoctlRequest, IoctlStep, Message, Module, PopError, PushError,
    ReadError, StreamDescription, WriteError,
};

use crate::shard::Inner;
use crate::socket::{GivenUp, Patience, Socket};

/// The stream between an association and its provider: what `streamio(7)`, `getmsg(2)` and `putmsg(2)` do with the descriptor of a
/// stream. [`SharedAssociation::stream`](crate::SharedAssociation::stream) returns it.
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
    /// # let client = Association::connect(listener.local_address())?;
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
    /// The module refuses to be opened, the stream has as many modules as it may have, or the association is gone.
    pub fn push(&self, module: Box<dyn Module>) -> Result<(), PushError> {
        self.change(|executive, s| executive.push(s, module)).unwrap_or(Err(PushError::Closed))
    }

    /// Pushes a module by its name (`I_PUSH`): one of [`modules`](crate::modules), or one that
    /// [`Stack::add_module`](crate::Stack::add_module) has added.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.local_address())?;
    /// client.stream().push_named("limit", &["bits=10M".to_owned()])?;
    /// assert_eq!(client.stream().list(), ["limit", "sctp"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Stream::push`]; no module has the name, or it does not take the arguments.
    pub fn push_named(&self, name: &str, arguments: &[String]) -> Result<(), PushError> {
        self.change(|executive, s| executive.push_named(s, name, arguments)).unwrap_or(Err(PushError::Closed))
    }

    /// Pops the module next below the stream head (`I_POP`) and gives it back. What it has queued goes on.
    ///
    /// # Errors
    ///
    /// No module is pushed, an anchor stands on it, or the association is gone.
    pub fn pop(&self) -> Result<Box<dyn Module>, PopError> {
        self.change(streams::Executive::pop).unwrap_or(Err(PopError::Closed))
    }

    /// Anchors the module next below the stream head (`I_ANCHOR`): only [`Stream::pop_anchored`] takes it off.
    ///
    /// # Errors
    ///
    /// No module is pushed, or the association is gone.
    pub fn anchor(&self) -> Result<(), PopError> {
        self.change(streams::Executive::anchor).unwrap_or(Err(PopError::Closed))
    }

    /// Pops a module as [`Stream::pop`] does, with an anchor or without.
    ///
    /// # Errors
    ///
    /// No module is pushed, or the association is gone.
    pub fn pop_anchored(&self) -> Result<Box<dyn Module>, PopError> {
        self.change(streams::Executive::pop_any).unwrap_or(Err(PopError::Closed))
    }

    /// Pops modules next below the stream head that have nothing left to do, such as a tap whose reader has gone.
    pub fn pop_finished(&self) {
        // A stream that is gone has no modules.
        let _ = self.change(streams::Executive::pop_finished);
    }

    /// Returns the names of the modules, from the head downward, and of the driver (`I_LIST`).
    pub fn list(&self) -> Vec<String> {
        let names = self.look(|executive, s| executive.list(s));
        names.unwrap_or_default()
    }

    /// Returns what stands on the stream, with marks and counts; `None` once the association is gone.
    pub fn describe(&self) -> Option<StreamDescription> {
        self.look(|executive, s| executive.describe(s)).flatten()
    }

    /// Sends a request to the modules and the provider, and waits for the answer (`I_STR`): for as long as the request says.
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// use swiftwater::modules::Counter;
    /// use swiftwater::streams::IoctlRequest;
    ///
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.local_address())?;
    /// client.stream().push(Box::new(Counter::new()))?;
    /// client.send(b"counted")?;
    /// let reply = client.stream().ioctl(IoctlRequest::str(Counter::GET_COUNTS, b"".to_vec()))?;
    /// assert_eq!(reply.data.to_vec()[..8], 1u64.to_ne_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A module or the provider refuses the request, its time is over, another one is under way, or the stream has failed. A module that
    /// asks for memory of the caller finds none (`EFAULT`).
    pub fn ioctl(&self, request: IoctlRequest) -> Result<IoctlReply, IoctlError> {
        let mut begin = Some(request);
        let s = self.socket.stream;
        let attempt = |inner: &mut Inner| {
            let executive = &mut inner.executive;
            let mut step = match begin.take() {
                Some(request) => executive.ioctl_begin(s, request),
                None => executive.ioctl_step(s),
            };
            while let Ok(IoctlStep::CopyIn { .. } | IoctlStep::CopyOut { .. }) = step {
                step = executive.ioctl_copied(s, Err(tpi::Errno::EFAULT));
            }
            inner.executive.run();
            match step {
                Ok(IoctlStep::Done(reply)) => Some(Ok(reply)),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            }
        };
        self.socket.until(Interest::PRIORITY, Patience::Forever, attempt).unwrap_or(Err(IoctlError::Closed))
    }

    /// Takes the next message, whatever it is; waits for it for `timeout` at most, or without one as long as it takes (`getmsg`).
    /// `None`: the stream has ended and everything was read, or the time is over.
    ///
    /// # Errors
    ///
    /// The stream has failed.
    pub fn getmsg(&self, timeout: Option<Duration>) -> Result<Option<Message>, ReadError> {
        self.getmsg_within(timeout.map_or(Patience::Forever, Patience::within))
    }

    /// Takes the next message if one is there (`getmsg` with `O_NONBLOCK`).
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.local_address())?;
    /// # let (server, _) = listener.accept()?;
    /// assert!(server.stream().try_getmsg()?.is_none());
    /// client.send(b"a message")?;
    /// let message = server.stream().getmsg(None)?.expect("one is on its way");
    /// assert_eq!(message.data, b"a message"[..]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Stream::getmsg`].
    pub fn try_getmsg(&self) -> Result<Option<Message>, ReadError> {
        self.getmsg_within(Patience::None)
    }

    fn getmsg_within(&self, patience: Patience) -> Result<Option<Message>, ReadError> {
        let socket = self.socket;
        match socket.until(Interest::READABLE, patience, |inner| socket.try_getmsg_as_it_is(inner)) {
            Ok(found) => found,
            Err(GivenUp::WouldBlock | GivenUp::TimedOut) => Ok(None),
            Err(GivenUp::Fault(_)) => Err(ReadError::Failed(tpi::Errno::EIO)),
        }
    }

    /// Puts a message on the stream, whatever it is; waits while the stream has no room (`putmsg`).
    ///
    /// ```
    /// # use swiftwater::{Association, Listener};
    /// use swiftwater::streams::{Message, SendInfo};
    ///
    /// # let listener = Listener::bind("127.0.0.1:0/udp:0")?;
    /// # let client = Association::connect(listener.local_address())?;
    /// # let (server, _) = listener.accept()?;
    /// let info = SendInfo::stream(1);
    /// client.stream().putmsg(Message::optdata_req(0, info, b"as a primitive".to_vec().into()))?;
    /// assert_eq!(server.recv()?.expect("it comes").to_vec(), b"as a primitive");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The stream does not take the message.
    pub fn putmsg(&self, message: Message) -> Result<(), WriteError> {
        let mut message = Some(message);
        let socket = self.socket;
        socket
            .until(Interest::WRITABLE, Patience::Forever, |inner| socket.try_request(inner, &mut message))
            .unwrap_or(Err(WriteError::Closed))
    }

    /// Puts a message on the stream if there is room (`putmsg` with `O_NONBLOCK`).
    ///
    /// # Errors
    ///
    /// As [`Stream::putmsg`]; and [`WriteError::WouldBlock`].
    pub fn try_putmsg(&self, message: &Message) -> Result<(), WriteError> {
        // The copy refers to the same data.
        let mut message = Some(message.clone());
        let socket = self.socket;
        let attempt = |inner: &mut Inner| socket.try_request(inner, &mut message);
        match socket.until(Interest::WRITABLE, Patience::None, attempt) {
            Ok(put) => put,
            Err(GivenUp::WouldBlock | GivenUp::TimedOut) => Err(WriteError::WouldBlock),
            Err(GivenUp::Fault(_)) => Err(WriteError::Closed),
        }
    }

    /// Changes what stands on the stream, and sends and delivers what that sets free.
    fn change<R>(&self, f: impl FnOnce(&mut streams::Executive, streams::StreamId) -> R) -> Option<R> {
        let mut inner = self.socket.shard.enter();
        inner.tell_time();
        let s = self.socket.stream;
        let changed = inner.guarded(Some(s), |inner| f(&mut inner.executive, s));
        self.socket.shard.after_command(&mut inner, Some(s));
        changed
    }

    fn look<R>(&self, f: impl FnOnce(&streams::Executive, streams::StreamId) -> R) -> Option<R> {
        let s = self.socket.stream;
        self.socket.shard.enter().guarded(None, |inner| f(&inner.executive, s))
    }
}
