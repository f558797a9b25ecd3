//! Limits of a driver's queues, and attributes of an open.

use crate::head::options::WriteAs;
use crate::message::Credentials;
use crate::queue::QueueInfo;

/// Limits of the queues of a driver's streams and of the read queue of their heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// The queue for messages that the driver could not send up.
    pub read: QueueInfo,
    /// The queue for messages that the driver could not take.
    pub write: QueueInfo,
    /// The read queue of the stream head.
    pub head: QueueInfo,
    /// The type of message that a write sends down.
    pub write_as: WriteAs,
}

/// Attributes of an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// The minor device.
    pub minor: u32,
    /// `CLONEOPEN`: the executive chose a minor device that was not open.
    pub is_clone: bool,
    /// Whether the minor device was not open before.
    pub is_first: bool,
    /// The user that opens the device.
    pub credentials: Credentials,
}

impl Default for DriverInfo {
    /// Returns 64 KB and 8 KB for the driver, 128 KB and 16 KB for the head; writes are `M_DATA`.
    fn default() -> Self {
        Self {
            read: QueueInfo::served(64 * 1024, 8 * 1024),
            write: QueueInfo::served(64 * 1024, 8 * 1024),
            head: QueueInfo::served(128 * 1024, 16 * 1024),
            write_as: WriteAs::Data,
        }
    }
}
