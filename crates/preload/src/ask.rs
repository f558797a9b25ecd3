//! Requests to the daemon: one connection for each.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::slice;
use std::time::Duration;

use channel_protocol::name::DAEMON;
use channel_protocol::request::{
    Answer, AnswerKind, DaemonRequest, HEAD_BYTES_MAX, OPTION_BYTES_MAX, Request, SocketRequest,
};
use channel_protocol::trust;
use libc::socklen_t;

use crate::cancel;
use crate::child;
use crate::environment;
use crate::mapping;
use crate::owned::Owned;
use crate::system::{self, Buffers, Content, Destination, Errno, Result, Source};
use crate::system_call::system_call;

/// Longest answer, as far as it is no value.
const ANSWER_BYTES_MAX: usize = 64;
/// Number of bytes of a value that are in a [`Reply`].
const VALUE_BYTES_HERE: usize = ANSWER_BYTES_MAX - Answer::VALUE_AT;

/// Number of times that a request is made which the daemon does not read: it ends connections where too many wait, or where this
/// thread was stopped for seconds.
const TRIES: u32 = 8;
/// Time for the daemon to have room for a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Pause before the second try; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Error of one try to make a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskError {
    /// The daemon has not carried out the request: the next try may succeed.
    AskAgain,
    /// Another try would find the same.
    Errno(Errno),
}

impl From<Errno> for AskError {
    fn from(error: Errno) -> AskError {
        AskError::Errno(error)
    }
}

/// Answer of the daemon, with its descriptors.
pub(crate) struct Reply {
    frame: Frame,
    pub(crate) descriptors: [Option<Owned>; 3],
}

/// An answer as bytes. It is small, because some threads have a small stack.
#[derive(Clone, Copy)]
struct Frame {
    beginning: [u8; ANSWER_BYTES_MAX],
    /// Length of the answer.
    bytes: usize,
}

impl Reply {
    pub(crate) fn answer(&self) -> Result<Answer<'_>> {
        let here = &self.frame.beginning[..self.frame.bytes.min(ANSWER_BYTES_MAX)];
        Answer::parse(here).ok_or(Errno(libc::EPROTO))
    }

    /// Returns the reply unless its answer is a failure.
    fn unless_failed(self) -> Result<Reply, AskError> {
        match self.answer()? {
            Answer::AskAgain => Err(AskError::AskAgain),
            Answer::Failed(errno) => Err(AskError::Errno(Errno(errno))),
            _ => Ok(self),
        }
    }
}

/// Sends a request about the socket of a descriptor on a connection of its own, and returns the answer. A cancellation
/// point where the answer comes late.
pub(crate) fn ask(request: &SocketRequest<'_>, fd: RawFd) -> Result<Reply> {
    match repeated(|| ask_once(request, fd)) {
        // The process may have no free descriptor for the connection.
        Err(Errno(libc::EMFILE)) if request.answer_kind() == AnswerKind::Frame => ask_in_child(request, fd),
        asked => asked,
    }
}

#[cold]
#[inline(never)]
fn ask_in_child(request: &SocketRequest<'_>, fd: RawFd) -> Result<Reply> {
    let frame = child::with_room(fd, || repeated(|| ask_once(request, fd).map(|reply| reply.frame)))?;
    Ok(Reply { frame, descriptors: [const { None }; 3] })
}

/// Sends a request that concerns no socket on a connection of its own, and returns the answer.
pub(crate) fn ask_daemon(request: &DaemonRequest<'_>) -> Result<Reply> {
    repeated(|| {
        let connection = send_request_once(&Request::Daemon(*request), None)?;
        let reply = receive_answer(connection, false, Destination::NOWHERE);
        system::close(connection);
        reply?.unless_failed()
    })
}

/// Sends a request whose answer is only success or failure.
pub(crate) fn request(fd: RawFd, request: &SocketRequest<'_>) -> Result<()> {
    ask(request, fd).map(drop)
}

/// Makes the daemon act on the calls made so far.
pub(crate) fn barrier() {
    // Without a daemon there is nothing to act on.
    let _ = ask_daemon(&DaemonRequest::Barrier);
}

/// Makes the daemon act on the calls made so far, and waits until the socket with this cookie, which one of them has
/// closed, has no association any more, but no longer than `time`. A signal ends the wait, too. A cancellation point.
pub(crate) fn linger(cookie: u64, time: Duration) {
    let ask_once = || {
        let connection = send_request_once(&DaemonRequest::Linger { cookie }.into(), None)?;
        let wait = || system::await_events([connection], libc::POLLIN, Some(system::timespec(time)));
        let reply = match cancel::undoing(|| system::close(connection), wait) {
            Ok([0]) => Err(Errno(libc::EAGAIN).into()),
            Ok(_) => receive_answer(connection, false, Destination::NOWHERE),
            Err(error) => Err(error.into()),
        };
        system::close(connection);
        reply?.unless_failed()
    };
    // Without a daemon there is nothing to wait for.
    let _ = repeated(ask_once);
}

/// Repeats a request that the daemon has not carried out ([`AskError::AskAgain`]).
///
/// # Errors
///
/// `ENOBUFS`: the daemon has carried out the request in none of many tries.
fn repeated<T>(ask: impl Fn() -> Result<T, AskError>) -> Result<T> {
    for tries in 0..TRIES {
        if tries > 0 {
            system::sleep(FIRST_PAUSE * (1 << (tries - 1)));
        }
        match ask() {
            Err(AskError::AskAgain) => {}
            Err(AskError::Errno(error)) => return Err(error),
            Ok(asked) => return Ok(asked),
        }
    }
    Err(Errno(libc::ENOBUFS))
}

fn ask_once(request: &SocketRequest<'_>, fd: RawFd) -> Result<Reply, AskError> {
    let connection = send_request_once(&Request::Socket(*request), Some(fd))?;
    let late = request.answer_kind() == AnswerKind::LateFrame;
    if late {
        system::apply_send_timeout(connection, fd);
    }
    let reply = cancel::undoing(
        || system::close(connection),
        || receive_answer(connection, late, Destination::NOWHERE),
    );
    system::close(connection);
    reply?.unless_failed()
}

/// Asks about a descriptor for a value and copies as much of it to `place` as fits; returns the number of bytes copied.
/// `request` makes the request while it is sent: its content may lie in `place`.
pub(crate) fn ask_for_value<'a>(
    request: &dyn Fn() -> SocketRequest<'a>,
    about: RawFd,
    place: Destination<'_>,
) -> Result<usize> {
    match repeated(|| ask_once_for_value(request, about, place)) {
        Err(Errno(libc::EMFILE)) => ask_in_child_for_value(request, about, place),
        asked => asked,
    }
}

#[cold]
#[inline(never)]
fn ask_in_child_for_value<'a>(
    request: &dyn Fn() -> SocketRequest<'a>,
    about: RawFd,
    place: Destination<'_>,
) -> Result<usize> {
    let shared = mapping::map_shared(OPTION_BYTES_MAX).map_err(|_| Errno(libc::EMFILE))?;
    let start = shared.address().as_ptr();
    // SAFETY: the memory is mapped with this size.
    let there = unsafe { Destination::of_program(start, OPTION_BYTES_MAX) };
    let bytes = child::with_room(about, || repeated(|| ask_once_for_value(request, about, there)))?;
    // SAFETY: the child, which has ended, has written this many bytes of the mapping.
    place.write(unsafe { slice::from_raw_parts(start.cast(), bytes) })
}

fn ask_once_for_value<'a>(
    request: &dyn Fn() -> SocketRequest<'a>,
    about: RawFd,
    place: Destination<'_>,
) -> Result<usize, AskError> {
    let connection = send_request_once(&Request::Socket(request()), Some(about))?;
    let reply = receive_answer(connection, false, place.after(VALUE_BYTES_HERE));
    system::close(connection);
    let reply = reply?.unless_failed()?;
    let Answer::Value(beginning) = reply.answer()? else { return Err(Errno(libc::EPROTO).into()) };
    place.write(beginning)?;
    Ok((reply.frame.bytes - Answer::VALUE_AT).min(place.bytes()))
}

/// Sends a request and returns the connection on which the answer will come.
pub(crate) fn send_request(request: &SocketRequest<'_>, fd: RawFd) -> Result<RawFd> {
    repeated(|| send_request_once(&Request::Socket(*request), Some(fd)))
}

fn send_request_once(request: &Request<'_>, about: Option<RawFd>) -> Result<RawFd, AskError> {
    send_request_to(daemon_address().ok_or(Errno(libc::ENETDOWN))?, request, about)
}

#[inline(never)]
fn send_request_to(daemon: Address, request: &Request<'_>, about: Option<RawFd>) -> Result<RawFd, AskError> {
    let mut head = [0; HEAD_BYTES_MAX];
    let (bytes, value) = request.encode_head(&mut head).ok_or(Errno(libc::EINVAL))?;
    let connection = connect_to(daemon)?;
    let asked = send(connection, &[Source::of(&head[..bytes]), Source::of(value)], about);
    asked.map(|_| connection).inspect_err(|_| system::close(connection))
}

/// Sends a request, with the descriptor that it concerns.
fn send(connection: RawFd, frame: &[Source<'_>], about: Option<RawFd>) -> Result<usize, AskError> {
    system::send(connection, Content::new(frame), about, libc::MSG_NOSIGNAL).map_err(connection_error)
}

/// Returns the error of a try whose connection has failed with this error of the kernel. The kernel reports a connection that
/// ends with a request unread like the end of a peer, whether the daemon has ended the connection or has ended itself: the next
/// try finds out.
fn connection_error(error: Errno) -> AskError {
    match error.0 {
        libc::EPIPE | libc::ECONNRESET => AskError::AskAgain,
        _ => AskError::Errno(error),
    }
}

/// Receives an answer. The part that exceeds a [`Frame`] goes to `rest`, as far as it fits.
fn receive_answer(connection: RawFd, late: bool, rest: Destination<'_>) -> Result<Reply, AskError> {
    let mut beginning = [0; ANSWER_BYTES_MAX];
    let received = loop {
        let places = [Destination::of(&mut beginning), rest];
        let received = match late {
            true => system::await_message::<3>(connection, Buffers::new(&places), 0),
            false => system::receive::<3>(connection, Buffers::new(&places), 0),
        };
        match received {
            Err(Errno(libc::EINTR)) if !late => {}
            other => break other.map_err(connection_error),
        }
    }?;
    if received.descriptors_lost {
        return Err(Errno(libc::EMFILE).into());
    }
    match received.bytes {
        0 => Err(Errno(libc::ENETDOWN).into()),
        bytes => Ok(Reply { frame: Frame { beginning, bytes }, descriptors: received.descriptors }),
    }
}

/// Receives an answer that is there, and checks that what was requested was done.
pub(crate) fn receive_done(connection: RawFd) -> Result<()> {
    let reply = receive_answer(connection, false, Destination::of(&mut [])).and_then(Reply::unless_failed);
    match reply {
        Ok(_) => Ok(()),
        Err(AskError::Errno(error)) => Err(error),
        // Another request has taken the place of this one.
        Err(_) => Err(Errno(libc::ENOBUFS)),
    }
}

/// Returns whether a daemon accepts connections.
pub(crate) fn daemon_accepts() -> bool {
    daemon_address().is_some_and(|daemon| connect_to(daemon).map(system::close).is_ok())
}

/// Address of a daemon, and its length.
type Address = (libc::sockaddr_un, socklen_t);

/// Connects to a trusted daemon at this address.
fn connect_to((address, bytes): Address) -> Result<RawFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointer.
    let fd = unsafe { system_call!(libc::SYS_socket, libc::AF_UNIX, kind, 0) } as RawFd;
    if fd < 0 {
        return Err(Errno::last());
    }
    // Any user can listen at the name of the daemon, and accept nothing.
    system::set_send_timeout(fd, CONNECT_WAIT);
    // SAFETY: the address is read.
    let connect = || unsafe { system_call!(libc::SYS_connect, fd, &raw const address, bytes) };
    let mut connected = connect();
    while connected != 0 && Errno::last() == Errno(libc::EINTR) {
        // With a time limit, the kernel does not restart the call after a signal.
        connected = connect();
    }
    if connected != 0 || !is_trusted(fd) {
        system::close(fd);
        return Err(Errno(libc::ENETDOWN));
    }
    Ok(fd)
}

/// Returns whether the daemon belongs to root or to this user: any user can take the name.
fn is_trusted(connection: RawFd) -> bool {
    // SAFETY: the call takes no argument.
    let me = unsafe { libc::geteuid() };
    peer_user(connection).is_some_and(|user| trust::may_serve(user, me, || maps_all_users(trust::USER_MAP)))
}

/// Returns the user of the process that listened at the other end of a connection.
fn peer_user(connection: RawFd) -> Option<libc::uid_t> {
    let mut who = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as socklen_t;
    // SAFETY: the value is as long as the length says.
    let known = unsafe {
        let address = &raw mut who;
        system_call!(
            libc::SYS_getsockopt,
            connection,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            address,
            &raw mut bytes,
        )
    };
    (known == 0).then_some(who.uid)
}

/// Returns whether a file has the map of a user namespace that maps every user, as the initial one does (user_namespaces(7)).
fn maps_all_users(file: &CStr) -> bool {
    let mut text = [0_u8; 64];
    // SAFETY: the path is NUL-terminated; the buffer is as long as the read; the descriptor is our own.
    let bytes = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = system_call!(libc::SYS_openat, libc::AT_FDCWD, file.as_ptr(), flags) as RawFd;
        if file < 0 {
            return false;
        }
        let bytes = system_call!(libc::SYS_read, file, text.as_mut_ptr(), text.len());
        system::close(file);
        bytes
    };
    usize::try_from(bytes).is_ok_and(|bytes| trust::maps_all_users(&text[..bytes]))
}

fn daemon_address() -> Option<Address> {
    address_of(environment::daemon().map(CStr::to_bytes))
}

/// Returns the address of the daemon that the environment names, or the default one; `None` for a name that is too long.
fn address_of(named: Option<&[u8]>) -> Option<Address> {
    let (is_abstract, name) = match named {
        None => (true, DAEMON.as_bytes()),
        Some([b'@', name @ ..]) => (true, name),
        Some(path) => (false, path),
    };
    // SAFETY: an all-zero address structure is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // SAFETY: c_char and u8 have the same layout.
    let path: &mut [u8; 108] = unsafe { &mut *(&raw mut address.sun_path).cast() };
    let start = usize::from(is_abstract);
    path.get_mut(start..start + name.len())?.copy_from_slice(name);
    let bytes = size_of::<libc::sa_family_t>() + start + name.len();
    Some((address, bytes as socklen_t))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::ptr;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    /// Sends a request to a daemon that was killed, after it has read or has not read an earlier one.
    fn send_after_end(has_unread: bool) -> Result<usize, AskError> {
        let mut pair = [-1; 2];
        // SAFETY: the array has room for two descriptors.
        let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, pair.as_mut_ptr()) };
        assert_eq!(made, 0);
        if has_unread {
            send(pair[0], &[Source::of(b"first")], None).expect("there is room");
        }
        system::close(pair[1]);
        let sent = send(pair[0], &[Source::of(b"second")], None);
        system::close(pair[0]);
        sent
    }

    #[test]
    fn a_request_to_a_daemon_that_was_killed_was_not_read() {
        for has_unread in [false, true] {
            assert_eq!(send_after_end(has_unread), Err(AskError::AskAgain));
        }
        assert_eq!(connection_error(Errno(libc::EMFILE)), AskError::Errno(Errno(libc::EMFILE)));
    }

    /// Treatment of a connection by a daemon.
    #[derive(Clone, Copy)]
    enum Treatment {
        CloseAtOnce,
        CloseUnread,
        CloseRead,
        PutOff,
        Refuse,
        Answer,
    }

    /// Makes a request of a daemon that treats its connections like this, one after the other, and then ends.
    fn ask_daemon_that(treatments: &'static [Treatment]) -> Result<()> {
        static CALLED: AtomicU32 = AtomicU32::new(0);
        let name = format!("@swiftwater-gives-up-{}-{}", std::process::id(), CALLED.fetch_add(1, Relaxed));
        let daemon = address_of(Some(name.as_bytes())).expect("it is short");
        // SAFETY: the calls read an address that outlives them.
        let listener = unsafe {
            let listener = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
            assert_eq!(libc::bind(listener, (&raw const daemon.0).cast(), daemon.1), 0);
            assert_eq!(libc::listen(listener, 1), 0);
            listener
        };
        let serving = std::thread::spawn(move || {
            for treatment in treatments {
                let mut frame = [0; channel_protocol::request::FRAME_BYTES_MAX];
                // SAFETY: the pointers are null, or to memory of that length.
                unsafe {
                    let connection = libc::accept(listener, ptr::null_mut(), ptr::null_mut());
                    let mut entry = libc::pollfd { fd: connection, events: libc::POLLIN, revents: 0 };
                    if !matches!(treatment, Treatment::CloseAtOnce) {
                        libc::poll(&raw mut entry, 1, -1);
                    }
                    if matches!(treatment, Treatment::CloseRead | Treatment::Refuse | Treatment::Answer) {
                        assert!(libc::recv(connection, frame.as_mut_ptr().cast(), frame.len(), 0) > 0);
                    }
                    let answer = match treatment {
                        Treatment::Answer => Some(Answer::Done),
                        Treatment::PutOff => Some(Answer::AskAgain),
                        Treatment::Refuse => Some(Answer::Failed(libc::ECONNRESET)),
                        _ => None,
                    };
                    if let Some(answer) = answer {
                        let bytes = answer.encode(&mut frame).expect("it is short");
                        libc::send(connection, frame.as_ptr().cast(), bytes, 0);
                    }
                    libc::close(connection);
                }
            }
            system::close(listener);
        });
        let answered = repeated(|| {
            let connection = send_request_to(daemon, &DaemonRequest::Barrier.into(), None)?;
            let reply = receive_answer(connection, false, Destination::NOWHERE);
            system::close(connection);
            assert_eq!(reply?.unless_failed()?.answer()?, Answer::Done);
            Ok(())
        });
        serving.join().expect("it ends");
        answered
    }

    #[test]
    fn the_descriptors_of_an_answer_that_is_a_failure_are_closed() {
        let (connection, daemon) = UnixStream::pair().expect("a pair");
        let (sent, peer) = UnixStream::pair().expect("a pair");
        let mut frame = [0; channel_protocol::request::FRAME_BYTES_MAX];
        let bytes = Answer::Failed(libc::EPERM).encode(&mut frame).expect("it is short");
        let content = [Source::of(&frame[..bytes])];
        let descriptor = Some(sent.as_raw_fd());
        system::send(daemon.as_raw_fd(), Content::new(&content), descriptor, 0).expect("there is room");
        drop(sent);

        let reply = receive_answer(connection.as_raw_fd(), false, Destination::NOWHERE).expect("an answer");
        assert!(!system::is_hung_up(peer.as_raw_fd()), "the reply has the descriptor");
        assert_eq!(reply.unless_failed().err(), Some(AskError::Errno(Errno(libc::EPERM))));
        assert!(system::is_hung_up(peer.as_raw_fd()), "it was the last one");
    }

    #[test]
    fn a_request_that_was_not_read_is_repeated() {
        use Treatment::{Answer, CloseAtOnce, CloseRead, CloseUnread, PutOff, Refuse};
        assert_eq!(ask_daemon_that(&[CloseAtOnce, CloseUnread, PutOff, CloseAtOnce, Answer]), Ok(()));
        let full = Err(Errno(libc::ENOBUFS));
        assert_eq!(ask_daemon_that(&[PutOff; TRIES as usize]), full);
        // A request that was read may have been carried out.
        assert_eq!(ask_daemon_that(&[CloseUnread, CloseRead]), Err(Errno(libc::ENETDOWN)));
        assert_eq!(
            ask_daemon_that(&[CloseUnread]),
            Err(Errno(libc::ENETDOWN)),
            "there is no daemon any more"
        );
        // The kernel reports an unread request with the same number.
        assert_eq!(ask_daemon_that(&[Refuse]), Err(Errno(libc::ECONNRESET)));
    }

    #[test]
    fn the_kernel_says_whose_daemon_it_is() {
        let (socket, _peer) = UnixStream::pair().expect("a pair");
        assert!(is_trusted(socket.as_raw_fd()), "both ends are of this user");
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert!(!is_trusted(file.as_raw_fd()), "nothing is known of it");
    }

    /// Makes a socket that listens as a daemon of `user` would, and tries to call it. Only root can become another user, and this
    /// thread alone does.
    fn call_daemon_of(user: libc::uid_t) -> Result<RawFd> {
        let name = format!("@swiftwater-ask-{user}-{}", std::process::id());
        let (address, bytes) = address_of(Some(name.as_bytes())).expect("it is short");
        let listener = std::thread::spawn(move || {
            // SAFETY: the calls read an address that outlives them. Without the C library, the user of this thread alone changes.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setresuid, -1, user, -1), 0);
                let listener = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0);
                assert_eq!(libc::bind(listener, (&raw const address).cast(), bytes), 0);
                assert_eq!(libc::listen(listener, 1), 0);
                listener
            }
        });
        let listener = listener.join().expect("it listens");
        let called = connect_to((address, bytes));
        system::close(listener);
        called.inspect(|connection| system::close(*connection))
    }

    #[test]
    fn a_file_that_cannot_be_read_maps_nobody() {
        assert!(!maps_all_users(c"/proc/self/no-such-file") && !maps_all_users(c"/dev/null"));
        let map = std::fs::read("/proc/self/uid_map").expect("it is readable");
        assert_eq!(maps_all_users(trust::USER_MAP), trust::maps_all_users(&map));
    }

    #[test]
    fn a_daemon_of_another_user_is_not_called() {
        // SAFETY: the call takes no argument.
        let me = unsafe { libc::geteuid() };
        assert!(call_daemon_of(me).is_ok());
        if me != 0 {
            return swiftwater_tests::tools::skip("only root becomes another user");
        }
        assert_eq!(call_daemon_of(41_004), Err(Errno(libc::ENETDOWN)));
    }

    #[test]
    fn a_daemon_is_at_a_path_or_at_an_abstract_name() {
        let longest = [b'@'; 108];
        for (named, expected) in [
            (None, &b"\0swiftwater"[..]),
            (Some(&b"@lab"[..]), b"\0lab"),
            (Some(b"/run/lab"), b"/run/lab"),
            (Some(&longest), &[&[0], &longest[1..]].concat()),
        ] {
            let (address, bytes) = address_of(named).expect("it is short enough");
            assert_eq!(libc::c_int::from(address.sun_family), libc::AF_UNIX);
            assert_eq!(bytes as usize, size_of::<libc::sa_family_t>() + expected.len());
            let name = address.sun_path.map(libc::c_char::cast_unsigned);
            assert_eq!(&name[..expected.len()], expected);
        }
        assert!(address_of(Some(&[b'@'; 109])).is_none() && address_of(Some(&[b'/'; 109])).is_none());
    }
}
