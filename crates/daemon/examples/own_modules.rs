//! A daemon with a module of its own, which `swiftwater streams push ID shout` pushes on the streams of programs.
//!
//! Its address is that of `SWIFTWATER_DAEMON`; see `Write a module` in docs/streams.md.

use swiftwater::streams::{Message, Module, Q};
use swiftwater_daemon::{Daemon, DaemonAddress, DaemonOptions};

/// Converts sent messages to capitals.
struct Shout;

impl Module for Shout {
    fn name(&self) -> &str {
        "shout"
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        q.pass(Message { data: m.data.to_vec().to_ascii_uppercase().into(), ..m });
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let daemon =
        Daemon::bind(&DaemonOptions { address: DaemonAddress::from_environment(), ..Default::default() })?;
    daemon.stack().add_module("shout", Box::new(|_arguments| Ok(Box::new(Shout))));
    eprintln!("{}", daemon.description());
    Ok(daemon.run()?)
}
