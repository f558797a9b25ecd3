//! Tests of the laboratory in real time: programs of this machine on two hosts, whatever the line does, and nothing left behind.
#![allow(missing_docs)]

mod beside;
mod browser;
mod check;
mod daemons;
mod experiments;
mod interrupts;
mod kills;
mod outages;
mod packets;
mod processes;
mod remains;
mod report;
mod run;
mod support;
mod terminal;
mod troubles;
