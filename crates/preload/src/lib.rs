//! The shim that `swiftwater run` preloads.
//!
//! It stands between a program and the C library, and answers calls on descriptors that are pairs of the daemon; all other
//! calls pass unchanged. The shim keeps no essential state: the state of a descriptor lies in its page and in the daemon, so all
//! sharers of the descriptor see the same, also after `fork`, `exec` and `dup`.
//!
//! | file | part |
//! |---|---|
//! | `interpose` | the functions of the C library, under their names, and `syscall` |
//! | `next` | the functions of the C library that the shim replaces |
//! | `recognition` | which descriptors are SCTP sockets |
//! | `table` | what is known of the numbers of descriptors |
//! | `descriptor`, `pages` | an SCTP descriptor, with its shared pages |
//! | `receive`, `send` | messages |
//! | `reader`, `message` | the record at the front of the pair, under the read lock |
//! | `bundle` | several messages in a record |
//! | `waiting` | waits for events that only the daemon sees |
//! | `sleep`, `sleepers` | calls that sleep on a number which another thread closes |
//! | `ring`, `own_ring` | messages to the daemon through shared memory |
//! | `ask` | requests to the daemon |
//! | `setup` | `socket`, `connect`, `accept` and other calls that ask the daemon |
//! | `associations` | `sctp_connectx` and `sctp_peeloff`, by libsctp's private options |
//! | `ancillary`, `structures` | ancillary data of messages, and its C structures |
//! | `address`, `parts` | addresses and lists of buffers in the form of the C library |
//! | `start` | starts a daemon where there is none |
//! | `self_connect` | programs that have both ends of an association |
//! | `form`, `plain` | the form of a pair's content: records, or plain content for programs without the shim |
//! | `environment` | the environment variables of the shim |
//! | `target` | whether a program that is executed gets the shim |
//! | `cancel` | cancellation of threads |
//! | `child` | calls that need a descriptor when the table is full |
//! | `process` | child processes that stay hidden from the program |
//! | `lock` | the locks for reading and for writing, which survive the death of their holder |
//! | `tcp` | TCP sockets that become SCTP sockets |
//! | `system_call` | system calls by the processor's instruction |
//! | `system`, `files` | system calls that the shim makes |
//! | `mapping` | memory that the shim maps |
//! | `errno`, `buffers` | errors of system calls, and memory that a program passes to a call |
#![cfg(target_os = "linux")]

mod address;
mod ancillary;
mod ask;
mod associations;
mod buffers;
mod bundle;
mod cancel;
mod child;
mod descriptor;
mod environment;
mod errno;
mod files;
mod form;
pub mod interpose;
mod lock;
mod mapping;
mod message;
mod next;
mod own_ring;
mod owned;
mod pages;
mod parts;
mod plain;
mod process;
mod reader;
mod receive;
mod recognition;
mod ring;
mod self_connect;
mod send;
mod setup;
mod sleep;
mod sleepers;
pub mod start;
pub mod structures;
mod system;
mod system_call;
mod table;
mod target;
mod tcp;
mod waiting;
