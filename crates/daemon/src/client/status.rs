//! The request for a daemon's status.

use std::mem::MaybeUninit;

use channel_protocol::request::{Answer, DaemonRequest, FRAME_BYTES_MAX};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};

use super::inquiry::{NoDaemon, parts, read_all};
use crate::calls::status::{Part, SocketReport, Status};
use crate::system::daemon_address::DaemonAddress;

impl DaemonAddress {
    /// Asks the daemon at this address for its status, as far as this user may see it.
    ///
    /// # Errors
    ///
    /// No daemon is at this address, it has another version, or its answer was not read in time.
    pub fn status(&self) -> Result<Status, NoDaemon> {
        let connection = self.connect_for_long_answer()?;
        let mut frame = [0; FRAME_BYTES_MAX];
        let bytes = DaemonRequest::Status.encode(&mut frame).ok_or(Errno::OVERFLOW)?;
        rustix::net::send(&connection, &frame[..bytes], SendFlags::NOSIGNAL)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut place = [std::io::IoSliceMut::new(&mut frame)];
        let received = rustix::net::recvmsg(&connection, &mut place, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let memfd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        match (Answer::parse(&frame[..received.bytes]), memfd) {
            (Some(Answer::Done), Some(memfd)) => Status::parse(&read_all(memfd)?),
            (Some(Answer::AskAgain), _) => Err(NoDaemon::Silent),
            (Some(Answer::Failed(error)), _) => Err(Errno::from_raw_os_error(error).into()),
            _ => Err(if received.bytes == 0 { NoDaemon::Silent } else { NoDaemon::OtherVersion }),
        }
    }
}

impl Status {
    /// Joins and parses the parts of an answer.
    fn parse(answer: &[u8]) -> Result<Status, NoDaemon> {
        let mut parts = parts(answer);
        let Part::Daemon(daemon) = parts.next().ok_or(NoDaemon::Withdrawn)?? else {
            return Err(NoDaemon::OtherVersion);
        };
        let mut sockets: Vec<SocketReport> = Vec::new();
        for part in parts {
            match part? {
                Part::Daemon(_) => return Err(NoDaemon::OtherVersion),
                Part::Socket(socket) => sockets.push(SocketReport { socket, associations: Vec::new() }),
                Part::Association(association) => {
                    sockets.last_mut().ok_or(NoDaemon::OtherVersion)?.associations.push(association);
                }
                Part::End { sockets_omitted, associations_omitted } => {
                    return Ok(Status { daemon, sockets, sockets_omitted, associations_omitted });
                }
            }
        }
        Err(NoDaemon::Withdrawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::status::DaemonStatus;

    fn daemon() -> Part {
        Part::Daemon(DaemonStatus {
            version: "1.2.3".into(),
            process: 7,
            carries: "SCTP in UDP".into(),
            counters: None,
            users: Vec::new(),
        })
    }

    #[test]
    fn an_answer_that_ends_early_is_told_from_one_of_another_version() {
        let end = Part::End { sockets_omitted: 3, associations_omitted: 5 };
        let whole: Vec<u8> =
            [daemon(), end].iter().flat_map(|part| serde_json::to_vec(part).expect("JSON")).collect();
        let status = Status::parse(&whole).expect("a whole answer");
        assert_eq!((status.daemon.process, status.sockets_omitted, status.associations_omitted), (7, 3, 5));
        for bytes in 0..whole.len() {
            assert_eq!(Status::parse(&whole[..bytes]).err(), Some(NoDaemon::Withdrawn), "of {bytes} bytes");
        }
        let twice: Vec<u8> = [whole.as_slice(); 2].concat()[..2 * whole.len() - 1].to_vec();
        assert!(Status::parse(&twice).is_ok(), "the rest does not matter");
        for other in ["{\"Daemon\":{}}", "[]", "no JSON", "{\"Socket\":7}"] {
            assert_eq!(Status::parse(other.as_bytes()).err(), Some(NoDaemon::OtherVersion), "{other}");
        }
    }
}
