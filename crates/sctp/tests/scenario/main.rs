//! Scenarios: what two endpoints do on simulated networks with a virtual clock. A file for each behaviour.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod abort;
mod answers;
mod association_limits;
mod bad_addresses;
mod bundling;
mod collision;
mod congestion_marks;
mod connect_fails;
mod cookie;
mod data_both_ways;
mod data_with_cookie;
mod delivery_order;
mod errors;
mod events;
mod failover;
mod fragmentation;
mod gap_reports;
mod heartbeat;
mod held_window;
mod hostile_packets;
mod hostile_peer;
mod local_addresses;
mod loss_recovery;
mod multipath;
mod named_path;
mod nat;
mod out_of_the_blue;
mod packet_size;
mod partial_delivery;
mod path_mtu;
mod random_loss;
mod receive_window;
mod restart;
mod sack_timing;
mod settings;
mod setup_parameters;
mod several_paths;
mod shutdown;
mod statistics;
mod throughput;
mod trace;
mod traffic_class;
#[cfg(feature = "testing")]
mod tsn_wrap;
mod undelivered;
