//! Private hosts of a test: network namespaces, connected by lines.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::tools;

/// A host that has nothing but a loopback interface, which is down. The host ends with this value and the programs that run
/// there.
#[derive(Clone, Debug)]
pub struct Host(Arc<netns::Host>);

impl Host {
    /// Makes a host, or reports the test as skipped where this user may not, or where there is no `ip`. `name` is its name in
    /// the report.
    ///
    /// # Panics
    /// As [`tools::skip`] does.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        tools::program("ip")?;
        match netns::Host::new() {
            Ok(host) => Some(Host(Arc::new(host))),
            Err(error) => {
                tools::skip(&format!("{name}: {error}"));
                None
            }
        }
    }

    /// Returns its name, for commands of other hosts.
    #[must_use]
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// Runs a command of `ip` there.
    ///
    /// # Panics
    /// If it fails.
    pub fn ip(&self, command: &str) {
        self.0.ip(command).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Runs a program there.
    ///
    /// # Panics
    /// If it fails.
    pub fn exec(&self, command: &str) {
        self.0.exec(command).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Moves the calling thread there, with the sockets that it opens and the programs that it starts.
    ///
    /// # Panics
    /// If the host cannot be entered.
    pub fn enter(&self) {
        self.0.enter().expect("a host can be entered");
    }

    /// Runs `work` on the host. The sockets that are opened meanwhile, and the threads that are started, stay there.
    ///
    /// # Panics
    /// The thread does, if the host cannot be entered.
    #[must_use]
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let host = self.clone();
        thread::spawn(move || {
            host.enter();
            work()
        })
    }
}
