//! Connections to a service: pipes that are made when the minor device under `connld` is opened.

use crate::drivers::Pipe;
use crate::error::OpenError;
use crate::identifiers::{DriverId, StreamId};
use crate::message::{Credentials, Kind, Message, Passed};
use crate::{Errno, Executive};

/// The ends of new pipes that have been passed to a service and not received yet.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// The stream of the service, and the end that goes to it.
    passed: Vec<(StreamId, StreamId)>,
}

impl Connections {
    /// Maximum number of connections that wait for one service.
    const WAITING_MAX: usize = 128;

    fn has_room(&self, service: StreamId) -> bool {
        self.passed.iter().filter(|(to, _)| *to == service).count() < Self::WAITING_MAX
    }

    /// Notes that an end has reached its service, whose it is from now on.
    pub(super) fn received(&mut self, end: StreamId) {
        self.passed.retain(|(_, passed)| *passed != end);
    }

    /// Takes the ends that a service has left behind.
    fn take_all(&mut self, service: StreamId) -> Vec<StreamId> {
        self.passed.extract_if(.., |(to, _)| *to == service).map(|(_, end)| end).collect()
    }
}

impl Executive {
    /// Returns whether an open of a stream makes a connection to the service behind it.
    pub(super) fn opens_connections(&self, s: StreamId) -> bool {
        let modules = self.streams.get(s).map_or(&[][..], |stream| stream.modules());
        modules.iter().any(|slot| slot.module.opens_connections())
    }

    /// Makes a pipe, passes one end to the service at the other end of the stream `s`, and returns the other end.
    pub(super) fn open_connection(
        &mut self,
        s: StreamId,
        credentials: Credentials,
    ) -> Result<StreamId, OpenError> {
        let refused = |errno| OpenError::Driver(errno);
        let driver = self.driver_of(s).ok_or(OpenError::NoDriver)?;
        let service = self.driver_state(driver, |pipe: &mut Pipe| pipe.peer(s));
        let service = service.flatten().ok_or(refused(Errno::ENXIO))?;
        let owner = self.streams.get(service).ok_or(refused(Errno::ENXIO))?.owner();
        if !self.connections.has_room(service) {
            return Err(refused(Errno::EAGAIN));
        }
        let (end, other) = self.open_pipe(driver, credentials, owner)?;
        let passed = Passed { number: 0, stream: Some(other), credentials };
        self.connections.passed.push((service, other));
        self.put_down(s, Message::new(Kind::PassFp(passed)));
        Ok(end)
    }

    /// Opens two streams of a driver of pipes, each for its user, and joins them.
    fn open_pipe(
        &mut self,
        driver: DriverId,
        user: Credentials,
        other_user: Credentials,
    ) -> Result<(StreamId, StreamId), OpenError> {
        let end = self.open_minor(driver, None, user)?;
        let other = match self.open_minor(driver, None, other_user) {
            Ok(other) => other,
            Err(error) => {
                self.close_now(end);
                return Err(error);
            }
        };
        let joined = self.driver_state(driver, |pipe: &mut Pipe| pipe.join(end, other));
        if joined != Some(Ok(())) {
            self.close_now(end);
            self.close_now(other);
            return Err(OpenError::Driver(Errno::ENXIO));
        }
        Ok((end, other))
    }

    /// Closes the connections that a service has not received: it is gone.
    pub(super) fn close_connections(&mut self, service: StreamId) {
        for end in self.connections.take_all(service) {
            self.close(end);
        }
    }
}
