//! The associations of an endpoint, and what the endpoint notes about each: its addresses in the tables, its place in the queues
//! of those that have something to send, and its entries in the timer heap.

use std::collections::VecDeque;
use std::net::SocketAddr;

use slab::Slab;

use super::timers::Timers;
use crate::association::{Association, FlushWhen};
use crate::identifiers::AssociationId;
use crate::outbound::Stage;
use crate::time::Time;
use crate::transmit::{BatchLimits, Scope};

/// The queue in which an association waits to transmit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queued {
    No,
    /// In no queue, because what waits needs an event, such as a SACK that opens the window. The event queues the association.
    Blocked,
    /// In `Slots::deferred`, at this place.
    Deferred {
        place: usize,
    },
    Due,
}

/// One association, and the notes of the endpoint.
struct Slot {
    association: Association,
    /// The peer's addresses under which the tables have the association.
    registered: Vec<SocketAddr>,
    queued: Queued,
    /// Whether `Slots::attached` lists the association.
    is_attached: bool,
    /// The earliest time for which the timer heap has an entry.
    armed: Option<Time>,
    /// The earliest entry apart from that one.
    armed_later: Option<Time>,
}

impl Slot {
    /// Returns whether an entry of the timer heap that is due means an expired timer, and not a deadline that has moved.
    fn on_timer_entry(&mut self, now: Time) -> bool {
        let has_expired = self.armed.is_some_and(|at| at <= now);
        if has_expired {
            self.armed = self.armed_later.take();
        }
        has_expired
    }
}

/// The associations, their queues and their timers.
#[derive(Default)]
pub(super) struct Slots {
    slab: Slab<Box<Slot>>,
    /// The serial number of the next association.
    next_serial: u32,
    /// Associations with a reason to transmit at once.
    due: VecDeque<AssociationId>,
    /// Associations whose data waits for more to bundle, and those that were blocked and that a message may have unblocked. No
    /// flush finds those here that wait for a window: there may be very many of them, for as long as their peers wish.
    deferred: Vec<AssociationId>,
    /// Associations that have, or had, fragments in receive blocks.
    attached: Vec<AssociationId>,
    timers: Timers,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    #[inline]
    pub(super) fn get(&self, id: AssociationId) -> Option<&Association> {
        let slot = self.slab.get(id.index())?;
        (slot.association.id() == id).then_some(&slot.association)
    }

    /// Returns an association to change. If the change may make it due, move its deadline or end it, the caller updates its queue
    /// and its timers afterwards (`Endpoint::update_queues`).
    #[inline]
    pub(super) fn get_mut(&mut self, id: AssociationId) -> Option<&mut Association> {
        self.slot_mut(id).map(|slot| &mut slot.association)
    }

    #[inline]
    fn slot_mut(&mut self, id: AssociationId) -> Option<&mut Slot> {
        self.slab.get_mut(id.index()).filter(|slot| slot.association.id() == id).map(|slot| &mut **slot)
    }

    /// Returns all associations, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Association> {
        self.slab.iter().map(|(_, slot)| &slot.association)
    }

    /// Returns the associations from the place of `first` on, in the order of their identifiers.
    pub(super) fn iter_from(&self, first: AssociationId) -> impl Iterator<Item = &Association> {
        let places = first.index()..self.slab.capacity();
        places.filter_map(|place| self.slab.get(place)).map(|slot| &slot.association)
    }

    /// Returns the identifier that the next association must have.
    pub(super) fn next_id(&self) -> AssociationId {
        AssociationId::new(self.slab.vacant_key() as u32, self.next_serial)
    }

    /// Adds an association, whose identifier is that of [`Slots::next_id`].
    pub(super) fn insert(&mut self, association: Association) {
        let id = association.id();
        let key = self.slab.insert(Box::new(Slot {
            association,
            registered: Vec::new(),
            queued: Queued::No,
            is_attached: false,
            armed: None,
            armed_later: None,
        }));
        assert_eq!(key, id.index(), "the identifier was taken from the vacant entry");
        self.next_serial = self.next_serial.wrapping_add(1);
    }

    /// Removes an association, also from its queue.
    pub(super) fn remove(&mut self, id: AssociationId) -> Association {
        self.dequeue(id);
        let slot = self.slab.remove(id.index());
        if self.slab.is_empty() {
            // No association is left that the remaining entries could concern.
            self.timers.clear();
        }
        slot.association
    }

    /// Returns an association, and the peer's addresses under which the tables have it.
    pub(super) fn get_with_registered(&self, id: AssociationId) -> Option<(&Association, &[SocketAddr])> {
        let slot = self.slab.get(id.index()).filter(|slot| slot.association.id() == id)?;
        Some((&slot.association, &slot.registered))
    }

    /// Records addresses of the peer under which the tables have an association.
    pub(super) fn note_registered(&mut self, id: AssociationId, remotes: &[SocketAddr]) {
        if let Some(slot) = self.slot_mut(id) {
            slot.registered.extend_from_slice(remotes);
        }
    }

    /// Returns the addresses under which the tables had an association and that are not among `kept`, and forgets them.
    pub(super) fn take_registered_except(
        &mut self,
        id: AssociationId,
        kept: &[SocketAddr],
    ) -> Vec<SocketAddr> {
        self.slot_mut(id).map_or_else(Vec::new, |slot| {
            slot.registered.extract_if(.., |remote| !kept.contains(remote)).collect()
        })
    }

    /// Returns whether an association has reason to transmit at once.
    #[inline]
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Takes the next association that is due to transmit.
    #[inline]
    pub(super) fn pop_due(&mut self) -> Option<AssociationId> {
        while let Some(id) = self.due.pop_front() {
            if let Some(slot) = self.slot_mut(id) {
                slot.queued = Queued::No;
                return Some(id);
            }
        }
        None
    }

    /// Puts an association that has something to send into its queue. [`Scope::All`] makes it due if anything may leave now,
    /// however little. Returns whether it is held back: the caller arms its timers then, because the pacer runs no timer
    /// while no data waits.
    pub(super) fn enqueue(&mut self, id: AssociationId, scope: Scope, limits: BatchLimits) -> bool {
        let Some(slot) = self.slot_mut(id) else { return false };
        let association = &mut slot.association;
        if association.is_closed() {
            return false;
        }
        association.update_due(limits);
        let is_due = association.is_due() || (scope == Scope::All && association.sendable());
        match (slot.queued, is_due) {
            (Queued::Due, _) | (Queued::Deferred { .. }, false) => {}
            (queued, true) => {
                slot.queued = Queued::Due;
                self.due.push_back(id);
                if let Queued::Deferred { place } = queued {
                    self.take_deferred(place);
                }
            }
            (Queued::No | Queued::Blocked, false) => {
                self.hold_updated(id);
                return true;
            }
        }
        false
    }

    /// Puts an association into its queue after a message was queued.
    #[inline]
    pub(super) fn enqueue_for_message(&mut self, id: AssociationId, limits: BatchLimits) {
        let Some(slot) = self.slot_mut(id) else { return };
        let is_affected = match slot.queued {
            Queued::Due => false,
            Queued::Blocked => return self.reconsider(id),
            // Every other event that can make it due updates the queues.
            Queued::Deferred { .. } => slot.association.is_due(),
            Queued::No => true,
        };
        if is_affected && self.enqueue(id, Scope::Due, limits) {
            self.arm(id);
        }
    }

    /// Lets the next flush of everything ask a blocked association whether anything may leave. A message, or one for which there
    /// is no room, unblocks an association with several paths if a slower one is now worth while.
    #[inline]
    pub(super) fn reconsider(&mut self, id: AssociationId) {
        let place = self.deferred.len();
        if let Some(slot) = self.slot_mut(id)
            && slot.queued == Queued::Blocked
        {
            slot.queued = Queued::Deferred { place };
            self.deferred.push(id);
        }
    }

    /// Notes for an association that is in no queue whether anything waits in it, and puts it into the queue of deferred ones if
    /// it waits for no event.
    pub(super) fn hold(&mut self, id: AssociationId, limits: BatchLimits) {
        if let Some(slot) = self.slot_mut(id) {
            slot.association.update_due(limits);
            self.hold_updated(id);
        }
    }

    /// Does what [`Slots::hold`] does, after `Association::update_due`.
    fn hold_updated(&mut self, id: AssociationId) {
        let place = self.deferred.len();
        let Some(slot) = self.slot_mut(id) else { return };
        if !matches!(slot.queued, Queued::No | Queued::Blocked) {
            return;
        }
        slot.queued = match slot.association.has_waiting() {
            false => Queued::No,
            true if slot.association.waits_for_event() => Queued::Blocked,
            true => Queued::Deferred { place },
        };
        if slot.queued == (Queued::Deferred { place }) {
            self.deferred.push(id);
        }
    }

    /// Makes all deferred associations due that can send anything now, however little. The others are blocked: no later call
    /// looks at them before something has happened to them.
    pub(super) fn promote_deferred(&mut self) {
        for place in 0..self.deferred.len() {
            let id = self.deferred[place];
            let Some(slot) = self.slot_mut(id) else { continue };
            if slot.association.sendable() {
                slot.queued = Queued::Due;
                self.due.push_back(id);
            } else {
                slot.queued = if slot.association.has_waiting() { Queued::Blocked } else { Queued::No };
            }
        }
        self.deferred.clear();
    }

    /// Takes the association at this place out of the queue of deferred ones.
    fn take_deferred(&mut self, place: usize) {
        self.deferred.swap_remove(place);
        if let Some(&moved) = self.deferred.get(place)
            && let Some(slot) = self.slot_mut(moved)
        {
            slot.queued = Queued::Deferred { place };
        }
    }

    /// Takes an association out of its queue.
    pub(super) fn dequeue(&mut self, id: AssociationId) {
        let Some(slot) = self.slot_mut(id) else { return };
        match std::mem::replace(&mut slot.queued, Queued::No) {
            Queued::No | Queued::Blocked => {}
            // Every flush empties this queue, so it is short.
            Queued::Due => self.due.retain(|other| *other != id),
            Queued::Deferred { place } => self.take_deferred(place),
        }
    }

    /// Lends the end of the send queue of an association, if messages of `bytes` may be appended without a decision to transmit.
    #[inline]
    pub(super) fn lend_stage(&mut self, id: AssociationId, bytes: usize, when: FlushWhen) -> Option<Stage> {
        let slot = self.slot_mut(id)?;
        let is_open = match slot.queued {
            Queued::No => false,
            Queued::Blocked | Queued::Deferred { .. } => true,
            Queued::Due => when.waits_beyond_rule(bytes),
        };
        if is_open { slot.association.lend_stage(bytes, when) } else { None }
    }

    /// Lists an association if it has fragments in receive blocks.
    #[inline]
    pub(super) fn note_attached(&mut self, id: AssociationId) {
        let Some(slot) = self.slot_mut(id) else { return };
        if !slot.is_attached && slot.association.is_attached() {
            slot.is_attached = true;
            self.attached.push(id);
        }
    }

    /// Returns whether fragments may be in receive blocks.
    #[inline]
    pub(super) fn is_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// Copies waiting fragments out of their receive blocks.
    pub(super) fn detach(&mut self) {
        for id in self.attached.drain(..) {
            if let Some(slot) = self.slab.get_mut(id.index()).filter(|slot| slot.association.id() == id) {
                slot.is_attached = false;
                slot.association.detach();
            }
        }
    }

    /// Adds an entry to the timer heap if none is as early as the association's deadline.
    #[inline]
    pub(super) fn arm(&mut self, id: AssociationId) {
        let Some(slot) = self.slot_mut(id) else { return };
        let Some(deadline) = slot.association.deadline() else { return };
        if slot.armed.is_none_or(|at| deadline < at) {
            slot.armed_later = slot.armed.replace(deadline);
            self.timers.push(deadline, id);
        }
    }

    /// Returns the time of the next entry of the timer heap.
    pub(super) fn next_timer(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Takes an association whose timer has expired. Looks at up to `left` entries of the timer heap, and counts them down.
    pub(super) fn pop_expired(&mut self, now: Time, left: &mut usize) -> Option<AssociationId> {
        while *left > 0 {
            *left -= 1;
            let id = self.timers.pop(now)?;
            if self.slot_mut(id).is_some_and(|slot| slot.on_timer_entry(now)) {
                return Some(id);
            }
        }
        None
    }

    /// Checks that each association which can send something is in a queue; for tests.
    #[cfg(feature = "testing")]
    pub(super) fn assert_queued(&self) {
        let (mut due, mut deferred) = (0, 0);
        for Slot { association, queued, .. } in self.slab.iter().map(|(_, slot)| &**slot) {
            match *queued {
                Queued::No => assert!(association.is_closed() || !association.has_waiting(), "it is noted"),
                Queued::Blocked => assert!(!association.sendable(), "an event has passed unseen"),
                Queued::Deferred { place } => {
                    assert_eq!(self.deferred[place], association.id());
                    deferred += 1;
                }
                Queued::Due => due += 1,
            }
        }
        assert_eq!((self.due.len(), self.deferred.len()), (due, deferred));
    }

    /// Returns the number of entries in the timer heap; for tests.
    #[cfg(feature = "testing")]
    pub(super) fn timer_entries(&self) -> usize {
        self.timers.len()
    }
}
