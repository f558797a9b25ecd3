//! The limit for a daemon between two programs that passes on one message after the other: records over AF_UNIX sockets, through
//! one thread that only passes them on.

use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use links::AlignedBuffer;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, SockAddr, Socket, Type};

use super::LoadError;

/// Socket where senders meet the relay. The TCP streams that it returns are descriptors that programs write records to and read
/// records from.
pub(crate) struct RelayAcceptor(Socket);

impl RelayAcceptor {
    /// Waits for senders that know the token.
    pub(crate) fn open(token: u64) -> io::Result<Self> {
        let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        listener.bind(&name(token)?)?;
        listener.listen(1024)?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// Returns the receiver's end of a relay from the next sender, if one comes soon, for records of up to this length. If the
    /// receiver `answers`, a record goes each way in turn.
    pub(crate) fn accept(
        &self,
        within: Duration,
        record_bytes: usize,
        answers: bool,
    ) -> Result<Option<TcpStream>, LoadError> {
        let during = "accepting a sender over the relay";
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        poll(&mut polled, timeout).map_err(|errno| LoadError::during(during)(errno.into()))?;
        let sender = match self.0.accept() {
            Ok((sender, _)) => sender,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(LoadError::during(during)(error)),
        };
        let (ours, receiver) =
            Socket::pair(Domain::UNIX, Type::SEQPACKET, None).map_err(LoadError::during(during))?;
        thread::spawn(move || {
            // An end that is cut off notices.
            let _ = relay(&sender, &ours, record_bytes, answers);
        });
        Ok(Some(receiver.into()))
    }
}

/// Returns a sender's end.
pub(crate) fn connect(token: u64) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.connect(&name(token)?)?;
    Ok(socket.into())
}

fn name(token: u64) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0swiftwater-relay-{token:016x}"))
}

fn relay(sender: &Socket, receiver: &Socket, record_bytes: usize, answers: bool) -> io::Result<()> {
    let mut record = AlignedBuffer::new(record_bytes);
    while pass_on(sender, receiver, &mut record)? {
        if answers && !pass_on(receiver, sender, &mut record)? {
            return Ok(());
        }
    }
    receiver.shutdown(Shutdown::Write)?;
    // The sender learns that all has arrived when the receiver closes.
    pass_on(receiver, sender, &mut record).map(drop)
}

/// Passes on one record; returns false if the other end sends no more.
fn pass_on(mut from: &Socket, to: &Socket, record: &mut [u8]) -> io::Result<bool> {
    let bytes = from.read(record)?;
    Ok(bytes > 0 && to.send(&record[..bytes])? == bytes)
}
