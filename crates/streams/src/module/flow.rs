//! Flow control: finds the next queue with a service procedure, up or down the stream.

use crate::head::Head;
use crate::identifiers::{Place, QueueRef, Side, StreamId};
use crate::module::slot::Slot;
use crate::queue::{Queue, QueuePair};
use crate::scheduler::Scheduler;

/// Returns the queue in which a writer above `below` must find room.
#[inline]
pub(crate) fn next_down<'a>(below: &'a mut [Slot], device: &'a mut QueuePair) -> &'a mut Queue {
    match below.iter_mut().rev().find(|slot| slot.queues.write.has_service()) {
        Some(slot) => &mut slot.queues.write,
        None => &mut device.write,
    }
}

/// Returns the queue in which a sender below `above` must find room.
#[inline]
pub(crate) fn next_up<'a>(above: &'a mut [Slot], head: &'a mut Head) -> &'a mut Queue {
    match above.iter_mut().find(|slot| slot.queues.read.has_service()) {
        Some(slot) => &mut slot.queues.read,
        None => &mut head.queue,
    }
}

/// Enables the nearest service procedure above a write queue that has room again, or wakes the writers at the head. `first` is
/// the number of the lowest module in `above`.
pub(crate) fn back_enable_above(
    s: StreamId,
    above: &mut [Slot],
    first: usize,
    head: &mut Head,
    scheduler: &mut Scheduler,
) {
    match above.iter_mut().enumerate().find(|(_, slot)| slot.queues.write.has_service()) {
        Some((i, slot)) => scheduler.qenable(&mut slot.queues.write, module_at(s, first + i, Side::Write)),
        None => head.back_enable(s, scheduler),
    }
}

/// Enables the nearest service procedure below a read queue that has room again, finally the driver's.
pub(crate) fn back_enable_below(
    s: StreamId,
    below: &mut [Slot],
    device: &mut QueuePair,
    scheduler: &mut Scheduler,
) {
    match below.iter_mut().enumerate().rev().find(|(_, slot)| slot.queues.read.has_service()) {
        Some((i, slot)) => scheduler.qenable(&mut slot.queues.read, module_at(s, i, Side::Read)),
        None => {
            let at = QueueRef { stream: s, place: Place::Driver, side: Side::Read };
            scheduler.qenable(&mut device.read, at);
        }
    }
}

/// Returns the name of a module's queue.
pub(crate) fn module_at(stream: StreamId, index: usize, side: Side) -> QueueRef {
    // A stream has at most `Executive::MODULES_MAX` modules.
    QueueRef { stream, place: Place::Module(index as u16), side }
}
