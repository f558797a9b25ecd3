//! Drivers that come with the executive: pseudo-devices.

mod echo;
mod log;
mod mux;
mod null;
mod pause;
mod pipe;
mod sad;
mod splice;

pub use echo::Echo;
pub use log::{Log, LogRecord};
pub use mux::Mux;
pub use null::{Null, Nuls};
pub use pipe::{Join, Pipe};
pub use sad::Sad;
pub use splice::{Splice, SpliceMemory, Spliced};
