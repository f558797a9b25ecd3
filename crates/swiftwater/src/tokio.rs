//! The types of this crate for tasks, driven by tokio (feature `tokio`).
//!
//! A call that would block suspends its task. Every future may be dropped at any point, as `tokio::time::timeout` and
//! `select!` do: a message is either taken as a whole or not at all.
//!
//! ```
//! use swiftwater::SendInfo;
//! use swiftwater::tokio::{Association, Listener};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let listener = Listener::bind("127.0.0.1:5000/udp:0").await?;
//! let address = listener.address();
//! tokio::spawn(async move {
//!     let (association, _) = listener.accept().await?;
//!     while let Some(message) = association.recv().await? {
//!         // A long message comes, and goes back, in parts.
//!         let info = SendInfo { more: message.info.more, ..SendInfo::default() };
//!         association.send_bytes(message.into_bytes(), &info).await?;
//!     }
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//! });
//! let client = Association::connect(&address).await?;
//! client.send(b"hello").await?;
//! assert_eq!(client.recv().await?.expect("an echo").to_vec(), b"hello");
//! client.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A runtime needs its I/O and time drivers (`enable_all`). The first task that waits spawns another one, which polls
//! the sockets for all tasks that share them. When that runtime ends, the background thread polls them, as it does
//! between the calls of blocking programs; both kinds of calls may be mixed.
//!
//! Each type converts into that of the same name for threads, and back, with `From`.
//!
//! A sent message leaves when its task waits for an operation of this module; if the task waits for another operation,
//! the message leaves within about a millisecond. `flush` sends it at once.
//!
//! [`Sender`] and [`Reader`] have methods of their own, and not the traits `Sink` and `Stream` of the futures crates: a reader
//! lends its messages, and an item of a `Stream` cannot borrow from it.

mod association;
mod driver;
pub(crate) mod ending;
mod endpoint;
mod listener;
mod reader;
mod sender;
mod stack;
mod until;

pub use association::Association;
pub use endpoint::Endpoint;
pub use listener::Listener;
pub use reader::Reader;
pub use sender::Sender;
pub use stack::Stack;

use crate::address::{Address, AddressError, ToAddresses};

/// Resolves host names on a thread that may block.
async fn resolve(server: impl ToAddresses) -> Result<Vec<Address>, AddressError> {
    let Some(texts) = server.texts() else { return server.to_addresses() };
    let parsed: Result<Vec<Address>, AddressError> = texts.iter().map(|text| text.parse()).collect();
    if parsed.is_ok() {
        return parsed;
    }
    let cancelled =
        AddressError::Unresolved { host: texts.join(", "), reason: "the runtime has shut down".into() };
    ::tokio::task::spawn_blocking(move || texts.to_addresses()).await.unwrap_or(Err(cancelled))
}
