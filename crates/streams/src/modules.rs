//! Modules that come with the executive.
//!
//! [`add_all`] adds them to an executive under their names. [`Tap`] and [`Trace`] need a sink for their records, so their owner
//! pushes them.

mod arguments;
mod bufmod;
mod compress;
mod connld;
mod counter;
mod filter;
mod limit;
mod nullmod;
mod pipemod;
mod sink;
mod tap;
mod timod;
mod tirdwr;
mod trace;

pub use bufmod::BufMod;
pub use compress::Compress;
pub use connld::ConnLd;
pub use counter::{Counter, Counts};
pub use filter::Filter;
pub use limit::Limit;
pub use nullmod::NullMod;
pub use pipemod::PipeMod;
pub use sink::RecordSink;
pub use tap::Tap;
pub use timod::TiMod;
pub use tirdwr::TiRdWr;
pub use trace::Trace;

use crate::module::Module;
use crate::{Executive, ModuleFactory};

/// Adds the modules that can be pushed by name to an executive: `nullmod`, `bufmod`, `pipemod`, `connld`, `timod`,
/// `tirdwr`, `counter`, `limit`, `filter` and `compress`.
pub fn add_all(executive: &mut Executive) {
    executive.add_module("nullmod", without_arguments(|| Box::new(NullMod)));
    executive.add_module("bufmod", without_arguments(|| Box::new(BufMod::default())));
    executive.add_module("pipemod", without_arguments(|| Box::new(PipeMod)));
    executive.add_module("connld", without_arguments(|| Box::new(ConnLd)));
    executive.add_module("timod", without_arguments(|| Box::new(TiMod::default())));
    executive.add_module("tirdwr", without_arguments(|| Box::new(TiRdWr::default())));
    executive.add_module("counter", without_arguments(|| Box::new(Counter::new())));
    executive.add_module("compress", without_arguments(|| Box::new(Compress::default())));
    executive.add_module("limit", Box::new(|arguments| Ok(Box::new(Limit::parse(arguments)?))));
    executive.add_module("filter", Box::new(|arguments| Ok(Box::new(Filter::parse(arguments)?))));
}

fn without_arguments(make: fn() -> Box<dyn Module>) -> ModuleFactory {
    Box::new(move |arguments| match arguments {
        [] => Ok(make()),
        [first, ..] => Err(format!("it takes no arguments, and got {first}")),
    })
}
