//! The state of the daemon: its sockets, their associations and send queues, and the holders of ports.

pub(crate) mod association;
pub(crate) mod association_index;
pub(crate) mod association_options;
pub(crate) mod association_tasks;
pub(crate) mod associations;
pub(crate) mod closed_socket;
pub(crate) mod closed_sockets;
pub(crate) mod commands;
pub(crate) mod due_dry;
pub(crate) mod inbound_queue;
mod latest;
mod lifecycle;
pub(crate) mod notification_type;
pub(crate) mod path_parameters;
mod peeled_off;
pub(crate) mod port_holders;
pub(crate) mod ports;
pub(crate) mod registry;
pub(crate) mod relayed;
pub(crate) mod send_queue;
pub(crate) mod socket;
pub(crate) mod socket_addresses;
pub(crate) mod socket_options;
pub(crate) mod stream_rules;
pub(crate) mod unread_ends;
