//! The request for a daemon's status.

use std::io::Read;
use std::mem::MaybeUninit;

use carrier::request::{Answer, DaemonRequest, FRAME_BYTES_MAX};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};

use super::address::DaemonAddress;
use super::inquiry::NoDaemon;
use crate::calls::status::{Part, Status};

impl DaemonAddress {
    /// Asks the daemon at this address for its status, as far as this user may see it.
    ///
    /// # Errors
    ///
    /// No daemon is at this address, or it has another version.
    pub fn status(&self) -> Result<Status, NoDaemon> {
        let connection = self.connect_to_trusted()?;
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
            (Some(Answer::Done), Some(memfd)) => {
                Status::read(std::io::BufReader::new(std::fs::File::from(memfd)))
                    .ok_or(NoDaemon::OtherVersion)
            }
            (Some(Answer::Failed(error)), _) => Err(Errno::from_raw_os_error(error).into()),
            _ => Err(if received.bytes == 0 { NoDaemon::Silent } else { NoDaemon::OtherVersion }),
        }
    }
}

impl Status {
    /// Joins and parses the parts of an answer; `None` if they are malformed.
    fn read(parts: impl Read) -> Option<Status> {
        let mut parts = serde_json::Deserializer::from_reader(parts).into_iter();
        let Part::Daemon(mut status) = parts.next()?.ok()? else { return None };
        for part in parts {
            match part.ok()? {
                Part::Daemon(_) => return None,
                Part::Socket(socket) => status.sockets.push(socket),
                Part::Association(association) => status.sockets.last_mut()?.associations.push(association),
                Part::End { sockets_omitted, associations_omitted } => {
                    (status.sockets_omitted, status.associations_omitted) =
                        (sockets_omitted, associations_omitted);
                    return Some(status);
                }
            }
        }
        None
    }
}
