//! Links: batches of datagrams in and out of the host.
#![deny(unsafe_op_in_unsafe_fn)]
