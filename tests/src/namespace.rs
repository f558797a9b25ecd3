//! Hosts of a test's own: network namespaces, with whatever lines between them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, setns};

use crate::tools;

/// A host that has nothing but a loopback interface, which is down. It goes with this value.
#[derive(Debug)]
pub struct Host {
    ip: PathBuf,
    name: String,
}

impl Host {
    /// Makes a host, or reports the test as skipped where this user may not. `name` is one of the test's own.
    ///
    /// # Panics
    /// As [`tools::skip`] does.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let host = Host { ip: tools::program("ip")?, name: format!("sw-{name}-{}", std::process::id()) };
        if host.runs(&format!("netns add {}", host.name)) {
            return Some(host);
        }
        tools::skip("no right to make network namespaces");
        None
    }

    /// Its name, for the commands of others.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a command of `ip` there.
    ///
    /// # Panics
    /// If it fails.
    pub fn ip(&self, command: &str) {
        assert!(self.runs(&format!("-n {} {command}", self.name)), "ip {command}");
    }

    /// Runs a program there.
    ///
    /// # Panics
    /// If it fails.
    pub fn exec(&self, command: &str) {
        assert!(self.runs(&format!("netns exec {} {command}", self.name)), "{command}");
    }

    /// Works on it. The sockets that are opened meanwhile, and the threads that are started, stay there.
    ///
    /// # Panics
    /// The thread does, if the host is gone.
    #[must_use]
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = Path::new("/var/run/netns").join(&self.name);
        thread::spawn(move || {
            let namespace = File::open(&namespace).unwrap_or_else(|error| panic!("{namespace:?}: {error}"));
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("a host can be entered");
            work()
        })
    }

    fn runs(&self, command: &str) -> bool {
        Command::new(&self.ip).args(command.split(' ')).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.runs(&format!("netns delete {}", self.name));
    }
}
