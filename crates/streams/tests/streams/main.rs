//! Tests of the executive from outside: the guarantees for programs, modules and drivers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bands;
mod coalescing;
mod compress;
mod condition_tables;
mod connld;
mod control;
mod control_parts;
mod counter;
mod drivers;
mod errors;
mod faults;
mod flow_control;
mod flushing;
mod ioctls;
mod memory;
mod modules;
mod multiplexors;
mod names;
mod nothing_lost;
mod observing;
mod plumbing;
mod popping;
mod queue;
mod read_tables;
mod readiness;
mod reading;
mod runs;
mod sad;
mod scheduling;
mod splicing;
mod support;
mod tap;
mod timing;
mod timod;
mod tirdwr;
mod utilities;
mod wakeups;
mod writing;
