//! Modules for the streams of associations, for [`Stream::push`](crate::Stream::push). All but [`Tap`] and [`Trace`] can also be
//! pushed by name ([`Stream::push_named`](crate::Stream::push_named)).
//!
//! | module | does |
//! |---|---|
//! | [`Counter`] | counts messages and bytes |
//! | [`Limit`] | limits the rate |
//! | [`Filter`] | discards, delays or duplicates some messages |
//! | [`Compress`] | compresses messages, if the peer has the module, too |
//! | [`Tap`], [`Trace`] | record messages in a pcapng file, or as lines of text |
//! | [`TiRdWr`], [`TiMod`] | change the interface of the stream: data without primitives, or requests of TPI as ioctls |
//! | [`BufMod`], [`NullMod`] | queue each message, or pass it on: for tests |

pub use ::streams::modules::{
    BufMod, Compress, Counter, Counts, Filter, Limit, NullMod, RecordSink, Tap, TiMod, TiRdWr, Trace,
};
