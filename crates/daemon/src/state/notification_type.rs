//! Kinds of notifications (RFC 6458 §6.1), which programs subscribe to.

/// `sn_type`: a kind of notification. Its distance from the first is its index in `struct sctp_event_subscribe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum NotificationType {
    AssociationChange = FIRST_TYPE + 1,
    PeerAddressChange = FIRST_TYPE + 2,
    SendFailed = FIRST_TYPE + 3,
    RemoteError = FIRST_TYPE + 4,
    Shutdown = FIRST_TYPE + 5,
    PartialDelivery = FIRST_TYPE + 6,
    AdaptationIndication = FIRST_TYPE + 7,
    Authentication = FIRST_TYPE + 8,
    SenderDry = FIRST_TYPE + 9,
    SendFailedEvent = FIRST_TYPE + 13,
}

/// `SCTP_SN_TYPE_BASE`, which is `SCTP_DATA_IO_EVENT`.
pub(crate) const FIRST_TYPE: u16 = 1 << 15;

impl NotificationType {
    /// Returns the index in `struct sctp_event_subscribe`.
    pub(crate) fn subscription(self) -> usize {
        usize::from(self as u16 - FIRST_TYPE)
    }
}
