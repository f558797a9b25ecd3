//! Multiplexors: streams linked under the streams of a driver.

use std::collections::HashMap;

use crate::Executive;
use crate::driver::Cx;
use crate::error::LinkError;
use crate::identifiers::{DriverId, LinkId, StreamId};
use crate::message::Credentials;

/// All links of an executive.
#[derive(Debug, Default)]
pub(super) struct Links {
    by_number: HashMap<LinkId, Link>,
    last: u32,
    /// Number of links that end with their controlling stream.
    controlled: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    lower: StreamId,
    /// The driver of the lower stream.
    below: DriverId,
    /// The driver that the stream is linked under.
    above: DriverId,
    /// The controlling stream, whose close ends the link. A persistent link has none.
    controller: Option<StreamId>,
    /// The owner of the stream that the link was made with.
    owner: Credentials,
}

impl Links {
    /// Returns whether a message that goes down from `above` through links can reach `below`.
    fn reach(&self, above: DriverId, below: DriverId) -> bool {
        let mut seen = vec![above];
        let mut next = 0;
        while let Some(&driver) = seen.get(next) {
            if driver == below {
                return true;
            }
            let lower = self.by_number.values().filter(|link| link.above == driver).map(|link| link.below);
            for driver in lower {
                if !seen.contains(&driver) {
                    seen.push(driver);
                }
            }
            next += 1;
        }
        false
    }
}

impl Executive {
    /// Links `lower` under the driver of `upper` (`I_LINK`, or `I_PLINK` if the link is `persistent`). From then on messages that
    /// come up on `lower` go to that driver, and only that driver writes to it. A link that is not persistent ends when `upper`
    /// is closed.
    ///
    /// # Errors
    ///
    /// A stream is closed, failed or linked already; the driver is no multiplexor; or messages could go round in a circle.
    pub fn link(&mut self, upper: StreamId, lower: StreamId, persistent: bool) -> Result<LinkId, LinkError> {
        self.link_for(upper, lower, persistent, false)
    }

    /// Links `lower`, whose user does not know of the link, persistently (`I_PLINK`). Until the link ends the user
    /// finds nothing to read and no room to write, instead of errors.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::link`].
    pub fn link_in_use(&mut self, upper: StreamId, lower: StreamId) -> Result<LinkId, LinkError> {
        self.link_for(upper, lower, true, true)
    }

    fn link_for(
        &mut self,
        upper: StreamId,
        lower: StreamId,
        persistent: bool,
        user_waits: bool,
    ) -> Result<LinkId, LinkError> {
        let (Some(above), Some(below)) = (self.driver_of(upper), self.driver_of(lower)) else {
            return Err(LinkError::Closed);
        };
        if upper == lower || self.links.reach(below, above) {
            return Err(LinkError::Loop);
        }
        let Some(controller) = self.streams.get(upper) else { return Err(LinkError::Closed) };
        controller.head.check_write().map_err(LinkError::of)?;
        let owner = controller.owner();
        let _ = self.flush_head(lower);
        let Some((stream, scheduler)) = self.streams.parts(lower) else { return Err(LinkError::Closed) };
        if stream.head.link().is_some() {
            return Err(LinkError::Linked);
        }
        stream.head.check_write().map_err(LinkError::of)?;
        self.links.last += 1;
        let id = LinkId(self.links.last);
        let unread = stream.head.take_all(lower, scheduler);
        stream.head.set_link(id, user_waits);
        let controller = (!persistent).then_some(upper);
        self.links.by_number.insert(id, Link { lower, below, above, controller, owner });
        self.links.controlled += usize::from(!persistent);
        let linked = self.drivers[above.0].link(&mut Cx::new(&mut self.streams), upper, lower);
        if linked.is_err() {
            self.forget_link(id);
        }
        // The multiplexor takes over the messages that the stream's user has not read.
        for m in unread {
            if let Some((stream, scheduler)) = self.streams.parts(lower) {
                stream.head.put(lower, m, scheduler);
            }
        }
        self.deliver_posts();
        linked.map(|()| id).map_err(LinkError::Driver)
    }

    /// Ends a link (`I_UNLINK`, `I_PUNLINK`): returns the lower stream to its user.
    ///
    /// # Errors
    ///
    /// There is no such link.
    pub fn unlink(&mut self, id: LinkId) -> Result<(), LinkError> {
        let link = *self.links.by_number.get(&id).ok_or(LinkError::NoLink)?;
        self.drivers[link.above.0].unlink(&mut Cx::new(&mut self.streams), link.lower);
        self.deliver_posts();
        self.forget_link(id);
        Ok(())
    }

    /// Returns the links whose upper driver is that of `upper`, with their lower streams (`MUXID_ALL`).
    pub fn links(&self, upper: StreamId) -> Vec<(LinkId, StreamId)> {
        let above = self.driver_of(upper);
        let links = self.links.by_number.iter().filter(|(_, link)| Some(link.above) == above);
        links.map(|(id, link)| (*id, link.lower)).collect()
    }

    /// Ends the links that end with a stream: those that it controls, and the one whose lower end it is.
    pub(super) fn unlink_all(&mut self, s: StreamId) {
        if self.links.controlled > 0 {
            let controls = |link: &Link| link.controller == Some(s);
            let links = self.links.by_number.iter().filter(|(_, link)| controls(link));
            for id in links.map(|(id, _)| *id).collect::<Vec<LinkId>>() {
                // The link was found a moment ago.
                let _ = self.unlink(id);
            }
        }
        self.unlink_lower(s);
    }

    /// Ends the link of a lower stream, if it is linked.
    pub(super) fn unlink_lower(&mut self, lower: StreamId) {
        if let Some((id, _)) = self.link_of(lower) {
            // The link was found a moment ago.
            let _ = self.unlink(id);
        }
    }

    /// Returns the link of a lower stream, and the owner of the stream that the link was made with.
    pub fn link_of(&self, lower: StreamId) -> Option<(LinkId, Credentials)> {
        let id = self.streams.get(lower)?.head.link()?;
        Some((id, self.links.by_number.get(&id)?.owner))
    }

    /// Returns the driver that a stream is linked under.
    pub(super) fn multiplexor_of(&self, lower: StreamId) -> Option<DriverId> {
        let id = self.streams.get(lower)?.head.link()?;
        Some(self.links.by_number.get(&id)?.above)
    }

    fn forget_link(&mut self, id: LinkId) {
        let Some(link) = self.links.by_number.remove(&id) else { return };
        self.links.controlled -= usize::from(link.controller.is_some());
        if let Some((stream, scheduler)) = self.streams.parts(link.lower) {
            stream.head.end_link(link.lower, scheduler);
        }
    }
}
