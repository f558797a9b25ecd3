//! Commands that pass the modules: the owner of the executive gives them to the driver itself.
//!
//! They act on an association, a listener or the receive window, and on no message of a stream. So an abort need not wait behind
//! the messages that a module holds, and a module can neither see nor refuse any of them.

use std::any::Any;
use std::net::IpAddr;
use std::time::Duration;

use ::sctp::{AssociationConfig, AssociationId, AssociationState, PathError, PathOptions};
use streams::{Cx, StreamId, Which};

use super::SctpDriver;
use super::minor::Minor;

/// What RTO.Max counts as at most in an association without a user: the default of RFC 9260 §16, whatever the user has set. T5,
/// five times that, bounds how long a peer that acknowledges nothing keeps the association.
pub(super) const ORPHAN_RTO_MAX: Duration = Duration::from_secs(60);

impl SctpDriver {
    /// Sends new data of an association to this address of the peer from now on, while the address answers.
    ///
    /// # Errors
    ///
    /// Fails if the peer has no such address, the address is not confirmed, or the association has ended.
    pub fn set_primary(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        association: Which,
        address: IpAddr,
    ) -> Result<(), PathError> {
        let id = self.association(s, association).ok_or(PathError::Closed)?;
        let now = self.now(cx);
        self.with_endpoint(cx, |endpoint, host| endpoint.set_primary(now, id, address, host))
    }

    /// Changes the options of an association, except those that its handshake has negotiated, or the options of the
    /// associations that a listener accepts from now on. On a one-to-many stream, the latter are those of
    /// [`Which::Only`].
    ///
    /// Returns false, and changes nothing, if another listener on the port has one of the addresses in these options.
    pub fn change_config(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        association: Which,
        config: AssociationConfig,
    ) -> bool {
        if let Some(id) = self.association(s, association) {
            let now = self.now(cx);
            self.with_endpoint(cx, |endpoint, host| endpoint.set_config(now, id, &config, host));
            return true;
        }
        match self.minors.get(s) {
            Some(Minor::Listening { listener, .. }) => self.endpoint.set_listener_config(listener, config),
            Some(Minor::OneToMany { listener, .. }) if association == Which::Only => {
                self.endpoint.set_listener_config(listener, config)
            }
            _ => true,
        }
    }

    /// Sets the number of associations that may wait for this listener. Associations that wait already stay.
    pub fn set_backlog(&mut self, s: StreamId, backlog: u32) {
        if let Some(Minor::Listening { port, listener, waiting, .. }) = self.minors.get(s) {
            self.minors.set(s, Minor::Listening { port, listener, backlog: backlog.max(1), waiting });
        }
    }

    /// Changes the options of one path of an association, or of all paths without an address.
    ///
    /// # Errors
    ///
    /// Fails if the peer has no such address or the association has ended.
    pub fn set_path(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        association: Which,
        address: Option<IpAddr>,
        options: &PathOptions,
    ) -> Result<(), PathError> {
        let id = self.association(s, association).ok_or(PathError::Closed)?;
        let now = self.now(cx);
        self.with_endpoint(cx, |endpoint, host| endpoint.set_path(now, id, address, options, host))
    }

    /// Aborts an association, without waiting for anything queued above it; `reason` is sent with the ABORT.
    pub fn abort(&mut self, cx: &mut Cx<'_>, s: StreamId, association: Which, reason: &[u8]) {
        let Some(id) = self.association(s, association) else { return };
        let now = self.now(cx);
        self.with_endpoint(cx, |endpoint, host| endpoint.abort(now, id, reason, host));
    }

    /// Aborts up to `limit` associations whose state satisfies `ends`, from `first` on. Returns the association to
    /// continue from, or `None` after the last one.
    pub fn abort_where(
        &mut self,
        cx: &mut Cx<'_>,
        first: AssociationId,
        limit: usize,
        reason: &[u8],
        ends: impl Fn(AssociationState) -> bool,
    ) -> Option<AssociationId> {
        let picked = self.endpoint.associations_from(first).filter(|(_, state)| ends(*state));
        let mut ids: Vec<AssociationId> = picked.map(|(id, _)| id).take(limit + 1).collect();
        let next = ids.get(limit).copied();
        ids.truncate(limit);
        let now = self.now(cx);
        self.with_endpoint(cx, |endpoint, host| {
            ids.into_iter().for_each(|id| endpoint.abort(now, id, reason, host));
        });
        next
    }

    /// Shuts every association down: each ends when the peer has acknowledged everything that was sent.
    pub fn shutdown_all(&mut self, cx: &mut Cx<'_>) {
        let ids: Vec<AssociationId> = self.endpoint.associations().map(|(id, _)| id).collect();
        let now = self.now(cx);
        self.with_endpoint(cx, |endpoint, host| {
            ids.into_iter().for_each(|id| endpoint.shutdown(now, id, host));
        });
    }

    /// Aborts an association.
    pub fn abort_association(&mut self, cx: &mut Cx<'_>, id: AssociationId, reason: &[u8]) {
        let now = self.now(cx);
        self.with_endpoint(cx, |endpoint, host| endpoint.abort(now, id, reason, host));
    }

    /// Limits an association whose user has gone, or is about to go ([`Endpoint::orphan`](::sctp::Endpoint::orphan)).
    pub fn orphan(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        association: Which,
        until_end: Box<dyn Any + Send>,
    ) {
        if let Some(id) = self.association(s, association) {
            let now = self.now(cx);
            self.with_endpoint(cx, |endpoint, host| {
                endpoint.orphan(now, id, ORPHAN_RTO_MAX, until_end, host)
            });
        }
    }

    /// Sets whether the writer has messages left that it has accepted from others
    /// ([`Endpoint::set_has_upper_data`](::sctp::Endpoint::set_has_upper_data)).
    pub fn set_has_upper_data(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        association: Which,
        has_upper_data: bool,
    ) {
        if let Some(id) = self.association(s, association) {
            let now = self.now(cx);
            self.with_endpoint(cx, |endpoint, host| {
                endpoint.set_has_upper_data(now, id, has_upper_data, host)
            });
        }
    }

    /// Keeps `bytes` that the reader has just taken charged to the receive window.
    pub fn hold_window(&mut self, s: StreamId, association: Which, bytes: usize) {
        if let Some(id) = self.association(s, association) {
            self.endpoint.hold_window(id, bytes);
        }
    }

    /// Releases `bytes` that [`SctpDriver::hold_window`] kept charged to the receive window.
    pub fn release_window(&mut self, s: StreamId, association: Which, bytes: usize) {
        if let Some(id) = self.association(s, association) {
            self.endpoint.release_window(id, bytes);
        }
    }
}
