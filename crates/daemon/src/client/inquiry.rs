//! The request that every process may send: the daemon's identity and link.

use std::fmt;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use channel_protocol::request::{Answer, DaemonRequest, FRAME_BYTES_MAX};
use channel_protocol::trust;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendFlags};
use serde::Deserialize;

use crate::calls::status::Description;
use crate::system::daemon_address::DaemonAddress;
use crate::system::user_namespace::sees_all_users;

/// Time limit for the answer of a daemon that accepts requests.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Time limit for a long answer, which the daemon makes in turns.
const LONG_ANSWER_WAIT: Duration = Duration::from_secs(60);

/// Reason why no daemon can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoDaemon {
    /// No process listens at the address.
    Absent,
    /// The daemon runs as a user whom programs of this user do not trust: neither root nor this user.
    Stranger {
        /// The daemon's user.
        user: u32,
    },
    /// The daemon has another version of the request protocol.
    OtherVersion,
    /// The daemon does not answer.
    Silent,
    /// A long answer was withdrawn before it was read.
    Withdrawn,
    /// A system call failed with this errno.
    System(i32),
}

impl fmt::Display for NoDaemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoDaemon::Absent => f.write_str("no daemon is running there"),
            NoDaemon::Stranger { user } => {
                write!(
                    f,
                    "it runs as user {user}, and programs trust only daemons of root and of their own user: stop it, and let root start one for all"
                )
            }
            NoDaemon::OtherVersion => f.write_str("it has another version of Swiftwater"),
            NoDaemon::Silent => f.write_str("it does not answer"),
            NoDaemon::Withdrawn => {
                f.write_str("it has withdrawn its answer, which was not read in time: ask again")
            }
            NoDaemon::System(errno) => std::io::Error::from_raw_os_error(*errno).fmt(f),
        }
    }
}

impl std::error::Error for NoDaemon {}

impl From<Errno> for NoDaemon {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::CONNREFUSED => NoDaemon::Absent,
            // The answer of a daemon that does not know this request.
            Errno::PROTONOSUPPORT => NoDaemon::OtherVersion,
            Errno::AGAIN | Errno::CONNRESET => NoDaemon::Silent,
            error => NoDaemon::System(error.raw_os_error()),
        }
    }
}

impl DaemonAddress {
    /// Asks the daemon at this address for its description.
    ///
    /// # Errors
    ///
    /// No daemon that programs of this user could use is at this address.
    pub fn describe(&self) -> Result<Description, NoDaemon> {
        let connection = self.connect_to_trusted()?;
        let mut frame = [0; FRAME_BYTES_MAX];
        let bytes = DaemonRequest::Describe.encode(&mut frame).ok_or(Errno::OVERFLOW)?;
        rustix::net::send(&connection, &frame[..bytes], SendFlags::NOSIGNAL)?;
        let (bytes, _) = rustix::net::recv(&connection, &mut frame, RecvFlags::empty())?;
        match Answer::parse(&frame[..bytes]) {
            Some(Answer::Value(text)) => serde_json::from_slice(text).map_err(|_| NoDaemon::OtherVersion),
            Some(Answer::AskAgain) => Err(NoDaemon::Silent),
            _ => Err(if bytes == 0 { NoDaemon::Silent } else { NoDaemon::OtherVersion }),
        }
    }
}

/// Reads a long answer. The daemon withdraws it some seconds after it has sent it, so all of it is read before it is parsed.
pub(super) fn read_all(memfd: OwnedFd) -> Result<Vec<u8>, NoDaemon> {
    let mut answer = Vec::new();
    let read = std::fs::File::from(memfd).read_to_end(&mut answer);
    read.map_err(|error| NoDaemon::System(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())))?;
    Ok(answer)
}

/// Returns the parts of a long answer: the error says whether it is that of another version or ends early.
pub(super) fn parts<'a, T: Deserialize<'a> + 'a>(
    answer: &'a [u8],
) -> impl Iterator<Item = Result<T, NoDaemon>> {
    let parts = serde_json::Deserializer::from_slice(answer).into_iter();
    parts.map(|part| {
        part.map_err(|error| if error.is_eof() { NoDaemon::Withdrawn } else { NoDaemon::OtherVersion })
    })
}

impl DaemonAddress {
    /// Connects to a daemon that programs of this user trust, for a long answer.
    pub(super) fn connect_for_long_answer(&self) -> Result<OwnedFd, NoDaemon> {
        let connection = self.connect_to_trusted()?;
        sockopt::set_socket_timeout(&connection, Timeout::Recv, Some(LONG_ANSWER_WAIT))?;
        Ok(connection)
    }

    /// Connects to a daemon that programs of this user trust.
    pub(crate) fn connect_to_trusted(&self) -> Result<OwnedFd, NoDaemon> {
        let connection = self.connect()?;
        let user = sockopt::socket_peercred(&connection)?.uid.as_raw();
        if !trusts_daemon_of(user) {
            return Err(NoDaemon::Stranger { user });
        }
        sockopt::set_socket_timeout(&connection, Timeout::Recv, Some(ANSWER_WAIT))?;
        Ok(connection)
    }
}

/// Returns whether programs of this user trust a daemon that runs as `user`.
pub fn trusts_daemon_of(user: u32) -> bool {
    trust::may_serve(user, rustix::process::geteuid().as_raw(), sees_all_users)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use channel_protocol::request::Request;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    /// Asks a daemon of this user for its description, which answers with one frame, or with none and closes.
    fn asked(test: &str, answer: Option<&[u8]>) -> Result<Description, NoDaemon> {
        let name = format!("swiftwater-inquiry-{test}-{}", std::process::id());
        let place = DaemonAddress::Abstract(name);
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let listener = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).expect("a socket");
        rustix::net::bind(&listener, &place.to_unix().expect("a name")).expect("it is free");
        rustix::net::listen(&listener, 1).expect("a socket");
        thread::scope(|scope| {
            scope.spawn(|| {
                let connection = rustix::net::accept(&listener).expect("a connection");
                let mut frame = [0; FRAME_BYTES_MAX];
                let (bytes, _) =
                    rustix::net::recv(&connection, &mut frame, RecvFlags::empty()).expect("a request");
                assert!(matches!(
                    Request::parse(&frame[..bytes]),
                    Ok(Request::Daemon(DaemonRequest::Describe))
                ));
                if let Some(answer) = answer {
                    rustix::net::send(&connection, answer, SendFlags::NOSIGNAL).expect("the caller waits");
                }
            });
            place.describe()
        })
    }

    #[test]
    fn a_daemon_of_this_user_is_asked_and_its_answer_checked() {
        let encoded = |answer: Answer<'_>| {
            let mut frame = [0; FRAME_BYTES_MAX];
            let bytes = answer.encode(&mut frame).expect("it is short");
            frame[..bytes].to_vec()
        };
        let answer = |text: &[u8]| encoded(Answer::Value(text));
        let description = Description {
            process: 77,
            version: "1.2.3".into(),
            on_demand: true,
            carries: "a line\nand another one".into(),
        };
        let text = serde_json::to_vec(&description).expect("JSON");
        assert_eq!(asked("right", Some(&answer(&text))), Ok(description));
        // The end of the answer is missing; an older daemon has answered in lines.
        for other in [&text[..text.len() - 1], b"1.2.3\n77\ntrue\nUDP port 9899"] {
            assert_eq!(asked("other", Some(&answer(other))), Err(NoDaemon::OtherVersion));
        }
        assert_eq!(asked("foreign", Some(b"something else")), Err(NoDaemon::OtherVersion));
        assert_eq!(asked("closed", None), Err(NoDaemon::Silent));
        assert_eq!(asked("busy", Some(&encoded(Answer::AskAgain))), Err(NoDaemon::Silent));
        assert_eq!(DaemonAddress::Abstract("swiftwater-nobody".into()).describe(), Err(NoDaemon::Absent));
    }

    #[test]
    fn a_daemon_of_another_user_is_not_trusted() {
        let own = rustix::process::geteuid().as_raw();
        assert!(trusts_daemon_of(own) && trusts_daemon_of(0));
        assert!(!trusts_daemon_of(own + 1));
    }

    #[test]
    fn each_reason_is_a_sentence_of_its_own() {
        let reasons = [
            (NoDaemon::Absent, "no daemon is running there"),
            (NoDaemon::Stranger { user: 7 }, "it runs as user 7, and programs trust only daemons of root"),
            (NoDaemon::OtherVersion, "it has another version"),
            (NoDaemon::Withdrawn, "it has withdrawn its answer"),
            (NoDaemon::Silent, "it does not answer"),
            (Errno::ACCESS.into(), "Permission denied"),
        ];
        for (reason, start) in reasons {
            assert!(reason.to_string().starts_with(start), "{reason}");
        }
        assert_eq!(NoDaemon::from(Errno::CONNRESET), NoDaemon::Silent);
        assert_eq!(NoDaemon::from(Errno::NOENT), NoDaemon::Absent);
        assert_eq!(NoDaemon::from(Errno::PROTONOSUPPORT), NoDaemon::OtherVersion);
    }
}
