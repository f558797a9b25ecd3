//! The shim that `swiftwater run` preloads.
//!
//! It stands between a program and the C library, and answers calls on descriptors that are carriers of the daemon; all other
//! calls pass unchanged. The shim keeps no essential state: the state of a descriptor lies in its page and in the daemon, so all
//! who share the descriptor see the same, also after `fork`, `exec` and `dup`.
//!
//! | file | part |
//! |---|---|
//! | `interpose` | the functions of the C library, under their names, and `syscall` |
//! | `next` | the same functions as they are without us |
//! | `table` | which descriptors are ours |
//! | `descriptor` | one of them: its page |
//! | `receive`, `send` | messages |
//! | `bundle` | several messages in a record |
//! | `ask` | requests to the daemon |
//! | `setup` | `socket`, `connect`, `accept` and others that ask |
//! | `associations` | `sctp_connectx` and `sctp_peeloff`, as libsctp asks for them |
//! | `ancillary`, `structures` | what goes with messages, as C structures |
//! | `start` | a daemon where there is none |
//! | `itself` | programs that have both ends of an association |
//! | `form` | records, or plain content for programs without the shim |
//! | `target` | programs that are executed: whether they get the shim |
//! | `cancel` | calls that end when their thread is cancelled |
//! | `child` | calls that need a descriptor where the table is full |
//! | `lock` | the lock for reading, which survives the death of its holder |
//! | `tcp` | TCP sockets that are to be SCTP sockets |
//! | `system`, `files` | system calls |
#![cfg(target_os = "linux")]

mod address;
mod ancillary;
mod ask;
mod associations;
mod bundle;
mod cancel;
mod child;
mod descriptor;
mod files;
mod form;
pub mod interpose;
mod itself;
mod lock;
mod next;
mod receive;
mod send;
mod setup;
pub mod start;
pub mod structures;

mod system;
mod table;
mod target;
mod tcp;
