//! Options of a socket, and of its future associations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use channel_protocol::abi::{IPPROTO_SCTP, SCTP_DISABLE_FRAGMENTS, SCTP_ECN_SUPPORTED};
use channel_protocol::status_page::Subscriptions;
use swiftwater::internals::{self, ReceiveBudget, SendBudget};
use swiftwater::tokio::Stack;
use swiftwater::{AssociationOptions, ReceivePool, SendPool};

use super::association_options::AssocOptions;
use crate::system::addresses::{Family, View};
use crate::users::user::User;

// Levels and names as Linux numbers them.
pub(crate) const SOL_SOCKET: i32 = 1;
pub(crate) const IPPROTO_IP: i32 = 0;
pub(crate) const IPPROTO_IPV6: i32 = 41;
pub(crate) const SO_REUSEPORT: i32 = 15;
pub(crate) const IP_TOS: i32 = 1;
pub(crate) const IPV6_TCLASS: i32 = 67;

/// A level and a name.
pub(crate) type OptionName = (i32, i32);

/// Receive buffers up to this size bound all unread data. The program requested half of it.
const BOUNDING_BYTES_MAX: i32 = 2 * 64 * 1024;

/// The options of a socket.
#[derive(Clone, Debug)]
pub(crate) struct SocketOptions {
    /// Initial options of associations, unless the program has set others.
    defaults: AssociationOptions,
    reuse_address: bool,
    v6_only: bool,
    linger: Linger,
    /// `SO_SNDBUF` and `SO_RCVBUF` as `getsockopt` returns them: twice the requested size.
    send_buffer_bytes: Option<i32>,
    receive_buffer_bytes: Option<i32>,
    /// Options that the program reads back; most have no further effect.
    kept: BTreeMap<OptionName, i32>,
    init: InitMessage,
    nodelay: bool,
    autoclose_s: u32,
    adaptation: u32,
    partial_delivery_point: u32,
    /// `SCTP_FRAGMENT_INTERLEAVE`: messages of other associations may be read between the parts of a message.
    interleaves: bool,
    /// `SCTP_PR_SUPPORTED` and others: whether future associations offer an extension, by the name of the option.
    offers: BTreeMap<i32, bool>,
    subscriptions: Subscriptions,
    /// Options of future associations.
    future: AssocOptions,
}

/// `struct linger`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Linger {
    pub(crate) on: bool,
    pub(crate) seconds: i32,
}

impl Linger {
    /// Returns the time that the last close waits for the end of the association, in seconds; 0 if it does not wait.
    pub(crate) fn close_waits_s(self) -> u32 {
        // The kernel takes a negative time for a very long one.
        if self.on { self.seconds.cast_unsigned() } else { 0 }
    }
}

/// `struct sctp_initmsg`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitMessage {
    pub(crate) streams_out: u16,
    pub(crate) streams_in_max: u16,
    pub(crate) attempts_max: u16,
    pub(crate) timeout_max_ms: u16,
}

impl InitMessage {
    /// Applies the fields that are not zero (RFC 6458 §8.1.3).
    pub(crate) fn merge(&mut self, [streams_out, streams_in_max, attempts_max, timeout_max_ms]: [u16; 4]) {
        let set = |field: &mut u16, to: u16| *field = if to == 0 { *field } else { to };
        set(&mut self.streams_out, streams_out);
        set(&mut self.streams_in_max, streams_in_max);
        set(&mut self.attempts_max, attempts_max);
        set(&mut self.timeout_max_ms, timeout_max_ms);
    }
}

impl SocketOptions {
    pub(crate) fn new(stack: &Stack) -> Self {
        let defaults = stack.options().association.clone();
        let mut future = AssocOptions::default();
        future.set_encapsulation_port(stack.udp_port());
        SocketOptions {
            reuse_address: false,
            v6_only: false,
            linger: Linger::default(),
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            kept: BTreeMap::new(),
            init: InitMessage {
                streams_out: defaults.streams_out,
                streams_in_max: defaults.streams_in_max,
                attempts_max: u16::try_from(defaults.init_retries_max).unwrap_or(u16::MAX),
                timeout_max_ms: u16::try_from(defaults.rto_max.as_millis()).unwrap_or(u16::MAX),
            },
            nodelay: defaults.nodelay,
            autoclose_s: 0,
            adaptation: 0,
            partial_delivery_point: 0,
            interleaves: false,
            offers: BTreeMap::new(),
            subscriptions: Subscriptions::default(),
            future,
            defaults,
        }
    }

    /// Makes future associations share the memory and the pacer of timers of a user.
    pub(crate) fn share_with_user(&mut self, user: &Arc<User>) {
        let (receives, sends): (Arc<dyn ReceiveBudget>, Arc<dyn SendBudget>) =
            (Arc::<User>::clone(user), Arc::<User>::clone(user));
        self.defaults.receive_pool = Some(ReceivePool::new(receives));
        self.defaults.send_pool = Some(SendPool::new(sends));
        internals::set_timeout_pacer(&mut self.defaults, user.timeout_pacer().clone());
    }
}

/// The values that programs set.
impl SocketOptions {
    /// Returns the stored value of an option.
    pub(crate) fn kept(&self, option: OptionName) -> Option<i32> {
        self.kept.get(&option).copied()
    }

    /// Returns whether a stored option is switched on.
    pub(crate) fn is_kept_on(&self, option: OptionName) -> bool {
        self.kept(option).is_some_and(|value| value != 0)
    }

    /// Stores the value of an option.
    pub(crate) fn keep(&mut self, option: OptionName, value: i32) {
        self.kept.insert(option, value);
    }

    pub(crate) fn reuses_address(&self) -> bool {
        self.reuse_address
    }

    pub(crate) fn set_reuse_address(&mut self, on: bool) {
        self.reuse_address = on;
    }

    pub(crate) fn v6_only(&self) -> bool {
        self.v6_only
    }

    pub(crate) fn set_v6_only(&mut self, on: bool) {
        self.v6_only = on;
    }

    pub(crate) fn linger(&self) -> Linger {
        self.linger
    }

    /// Sets `SO_LINGER`. If it is switched off, the time stays.
    pub(crate) fn set_linger(&mut self, on: bool, seconds: i32) {
        self.linger = Linger { on, seconds: if on { seconds } else { self.linger.seconds } };
    }

    /// Sets `SO_SNDBUF`, as `getsockopt` returns it.
    pub(crate) fn set_send_buffer_bytes(&mut self, bytes: i32) {
        self.send_buffer_bytes = Some(bytes);
    }

    /// Sets `SO_RCVBUF`, as `getsockopt` returns it.
    pub(crate) fn set_receive_buffer_bytes(&mut self, bytes: i32) {
        self.receive_buffer_bytes = Some(bytes);
    }

    pub(crate) fn init(&self) -> InitMessage {
        self.init
    }

    /// Sets `SCTP_INITMSG`.
    pub(crate) fn merge_init(&mut self, fields: [u16; 4]) {
        self.init.merge(fields);
    }

    pub(crate) fn nodelay(&self) -> bool {
        self.nodelay
    }

    pub(crate) fn set_nodelay(&mut self, on: bool) {
        self.nodelay = on;
    }

    pub(crate) fn autoclose_s(&self) -> u32 {
        self.autoclose_s
    }

    pub(crate) fn set_autoclose_s(&mut self, seconds: u32) {
        self.autoclose_s = seconds;
    }

    pub(crate) fn adaptation(&self) -> u32 {
        self.adaptation
    }

    pub(crate) fn set_adaptation(&mut self, indication: u32) {
        self.adaptation = indication;
    }

    pub(crate) fn partial_delivery_point(&self) -> u32 {
        self.partial_delivery_point
    }

    pub(crate) fn set_partial_delivery_point(&mut self, bytes: u32) {
        self.partial_delivery_point = bytes;
    }

    pub(crate) fn interleaves(&self) -> bool {
        self.interleaves
    }

    pub(crate) fn set_interleaves(&mut self, on: bool) {
        self.interleaves = on;
    }

    /// Returns whether future associations offer the extension of this option; `None` if the program has not set it.
    pub(crate) fn offer(&self, name: i32) -> Option<bool> {
        self.offers.get(&name).copied()
    }

    pub(crate) fn set_offer(&mut self, name: i32, on: bool) {
        self.offers.insert(name, on);
    }

    pub(crate) fn subscriptions(&self) -> Subscriptions {
        self.subscriptions
    }

    pub(super) fn subscribe(&mut self, what: Subscriptions, on: bool) {
        self.subscriptions = self.subscriptions.set(what, on);
    }

    /// Returns the options of future associations.
    pub(crate) fn future(&self) -> &AssocOptions {
        &self.future
    }

    pub(crate) fn future_mut(&mut self) -> &mut AssocOptions {
        &mut self.future
    }
}

/// The effects of the values.
impl SocketOptions {
    /// Returns whether fragmentation is disabled.
    pub(crate) fn keeps_messages_whole(&self) -> bool {
        self.is_kept_on((IPPROTO_SCTP, SCTP_DISABLE_FRAGMENTS))
    }

    /// Returns the maximum length of a message to a future association, if fragmentation is disabled and `SCTP_MAXSEG` is set.
    pub(super) fn future_message_limit(&self) -> Option<usize> {
        let set = self.future.segment_bytes_max() as usize;
        Some(set).filter(|bytes| *bytes > 0 && self.keeps_messages_whole())
    }

    /// Returns whether messages are delivered after the socket was closed.
    pub(crate) fn lingers(&self) -> bool {
        !(self.linger.on && self.linger.seconds == 0)
    }

    /// Returns the form in which the program sees addresses.
    pub(crate) fn view(&self, family: Family) -> View {
        View { family, own_v4: self.subscriptions.contains(Subscriptions::OWN_V4) }
    }

    pub(crate) fn send_buffer_bytes(&self) -> usize {
        self.send_buffer_bytes.map_or(self.defaults.send_buffer_bytes, |bytes| bytes as usize)
    }

    pub(crate) fn receive_buffer_bytes(&self) -> usize {
        self.receive_buffer_bytes.map_or(self.defaults.receive_buffer_bytes, |bytes| bytes as usize)
    }

    /// Returns whether the receive buffer is so small that records in the pair count, too.
    pub(crate) fn bounds_unread(&self) -> bool {
        self.receive_buffer_bytes.is_some_and(|bytes| bytes <= BOUNDING_BYTES_MAX)
    }

    /// Returns the stack's options for future associations of the socket.
    pub(crate) fn for_stack(&self) -> AssociationOptions {
        let attempts = Duration::from_millis(self.init.timeout_max_ms.into());
        let mut options = self.for_stack_with(&self.future);
        options.rto_max = options.rto_max.min(attempts).max(options.rto_min);
        options
    }

    /// Returns the stack's options of an association with `assoc_options`.
    pub(crate) fn for_stack_with(&self, assoc_options: &AssocOptions) -> AssociationOptions {
        let mut options = self.defaults.clone();
        options.streams_out = self.init.streams_out;
        options.streams_in_max = self.init.streams_in_max;
        options.init_retries_max = self.init.attempts_max.into();
        options.send_buffer_bytes = self.send_buffer_bytes();
        options.send_buffer_bytes_max = tuned_bytes(self.send_buffer_bytes, options.send_buffer_bytes_max);
        options.receive_buffer_bytes = self.receive_buffer_bytes();
        options.receive_buffer_bytes_max =
            tuned_bytes(self.receive_buffer_bytes, options.receive_buffer_bytes_max);
        options.partial_delivery_bytes = self.partial_delivery_bytes(options.partial_delivery_bytes);
        options.nodelay = self.nodelay;
        options.dscp = self.dscp();
        options.ecn &= self.offers.get(&SCTP_ECN_SUPPORTED) != Some(&false);
        options.adaptation_indication = self.adaptation;
        options.autoclose = Some(self.autoclose_s).filter(|s| *s > 0).map(|s| Duration::from_secs(s.into()));
        options.events = true;
        assoc_options.over(options)
    }

    /// Returns the number of bytes from which an unfinished message is delivered in parts. A program that has chosen a receive
    /// buffer, and no point, gets those whole that half of the buffer holds.
    fn partial_delivery_bytes(&self, default: usize) -> usize {
        match (self.partial_delivery_point, self.receive_buffer_bytes) {
            (0, None) => default,
            (0, Some(buffer)) => default.max(buffer as usize / 2),
            (point, _) => point as usize,
        }
    }

    /// Returns the options with the `SCTP_INIT` data of the message that begins an association.
    pub(crate) fn with_init(&self, init: channel_protocol::request::InitMessage) -> SocketOptions {
        let mut options = self.clone();
        options.init.merge([init.streams_out, init.streams_in_max, init.attempts_max, init.timeout_max_ms]);
        options
    }

    /// Returns the value of `SO_REUSEPORT`.
    pub(crate) fn reuses_port(&self) -> bool {
        self.is_kept_on((SOL_SOCKET, SO_REUSEPORT))
    }

    /// Returns the codepoint of packets: that of IPv6 if it was set, otherwise that of IPv4.
    pub(crate) fn dscp(&self) -> u8 {
        let class = self.kept((IPPROTO_IPV6, IPV6_TCLASS)).or(self.kept((IPPROTO_IP, IP_TOS)));
        (class.unwrap_or(0) >> 2) as u8
    }
}

/// Returns the maximum size of a buffer. As in the kernel, a buffer with a size set by the program does not grow.
fn tuned_bytes(set: Option<i32>, default: usize) -> usize {
    if set.is_some() { 0 } else { default }
}
