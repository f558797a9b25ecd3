//! Restart of a peer that has lost the association and connects again (RFC 9260 §5.2.4 A).

use std::net::SocketAddr;

use sctp_wire::cause::{Cause, CookieReceivedWhileShuttingDown};
use sctp_wire::chunk::Error;

use super::causes::error_chunk;
use super::control::Control;
use super::setup::new_paths;
use super::{Association, Context, State};
use crate::cookie::StateCookie;
use crate::event::{Event, Host, Restart};
use crate::identity::Identity;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::path_hints::PathHints;
use crate::route::Route;

impl Association {
    /// Begins again with the contents of a restart cookie: tags, TSNs, streams, windows and paths. Messages that the old peer has
    /// not acknowledged are lost, and reported to the user.
    pub(crate) fn restart<H: Host + ?Sized>(
        &mut self,
        cx: &mut Context<'_, H>,
        cookie: &StateCookie,
        remotes: &[(SocketAddr, PathHints)],
        route: &Route,
    ) {
        let t5_at = if let State::ShutdownSent { t5_at, .. } = self.state { Some(t5_at) } else { None };
        self.tell_end_of_partial_delivery(cx);
        let unacknowledged_bytes = self.outbound.buffered_bytes() as u64;
        self.give_up_all(cx, 0);
        let withheld_bytes = self.inbound.as_ref().map_or(0, Inbound::withheld_bytes);
        self.inbound.end(Inbound::unread_at_restart);
        self.identity = Identity::from_cookie(cookie);
        self.paths.restart(new_paths(remotes, &self.local, route.local, &self.config));
        self.outbound = Outbound::new(cookie.local_initial_tsn, &self.config);
        self.establish_from_cookie(cx, cookie, route.remote);
        self.hold_window(withheld_bytes);
        self.statistics.restarts += 1;
        let (streams_out, streams_in) = (self.outbound.streams(), cookie.streams_in);
        let restart = Restart { streams_out, streams_in, unacknowledged_bytes };
        self.tell_anyway(cx, Event::Restarted(restart));
        self.tell_adaptation(cx);
        cx.host.event(self.id, Event::Writable);
        if self.is_shut_down {
            // The user's shutdown applies to the new peer, too.
            self.shutdown(cx);
            // A peer to which a SHUTDOWN was sent gets no more time by restarting.
            if let (State::ShutdownSent { t5_at, .. }, Some(before)) = (&mut self.state, t5_at) {
                *t5_at = before;
            }
        }
    }

    /// Returns whether a restart may be reported to the user, with its unacknowledged messages. While the user does not read the
    /// reports of many restarts, or messages of an earlier restart have yet to return, the peer's cookie is refused, and comes
    /// again, so memory stays bounded.
    pub(crate) fn has_room_for_restart(&mut self) -> bool {
        self.returns.is_empty() && self.inbound.as_mut().is_none_or(Inbound::has_room_for_restart)
    }

    /// Asks a peer that restarts while we wait for its SHUTDOWN COMPLETE to send that first (RFC 9260 §5.2.4 A). Returns false if
    /// we do not wait.
    pub(crate) fn refuse_restart(&mut self) -> bool {
        let waits = self.repeat_shutdown_ack();
        if waits {
            let cause = Cause::CookieReceivedWhileShuttingDown(CookieReceivedWhileShuttingDown);
            self.push_control(Control::of(Error::KIND, None, error_chunk(&cause)));
        }
        waits
    }
}
