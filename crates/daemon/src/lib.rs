//! SCTP sockets for unmodified programs: the executive as a service.
//!
//! A program under `swiftwater run` has one end of a *pair* of AF_UNIX sockets (see [`channel_protocol`]), instead
//! of an SCTP socket. The daemon has the other end and the association, and moves messages between the two.
//!
//! Its layers, from the top: `server`, `client`, `dispatch`, `tasks`, `calls`, `relay`, `state`, `channel`, `users`, `system`.
//! Each uses only those below it; a test checks this in the sources. `docs/daemon.md` says what each contains, and shows each
//! call.
//!
//! All tasks run on one thread: the executive is one perimeter, and the code between two of its calls is short. While that thread
//! is kept from its processor, the stack's background thread runs the executive, and calls the accounts of users.
#![forbid(unsafe_code)]

mod calls;
mod channel;
mod client;
mod dispatch;
mod relay;
mod server;
mod shutdown;
mod state;
mod system;
mod tasks;
#[cfg(test)]
mod testing;
mod users;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use swiftwater::streams::AutopushError;
use swiftwater::tokio::Stack;
use swiftwater::{BindError, StackOptions};
use tokio::runtime::LocalOptions;
use tokio::sync::Notify;

use calls::status::describe_link;
use channel::shared_pages::SharedPages;
use state::registry::Registry;
use system::journal;
use system::listener::Listener;
use users::descriptor_budget::DescriptorBudget;
use users::memory_return;
use users::resources::Resources;

pub use calls::link_status::LinkStatus;
pub use calls::status::{
    AssociationPhase, AssociationStatus, DaemonCounters, DaemonStatus, Description, PathStatus, SocketReport,
    SocketState, SocketStatus, SocketStyle, Status, UserStatus,
};
pub use calls::streams::{PartStatus, QueueStatus, StreamStatus};
pub use channel_protocol::assoc_id::AssocId;
pub use client::inquiry::{NoDaemon, trusts_daemon_of};
pub use client::streams::{Recording, StreamCommandError, Streams};
pub use server::REQUEST_WAIT;
pub use shutdown::Ending;
pub use state::stream_rules::StreamRules;
pub use system::daemon_address::{DaemonAddress, DaemonAddressError};
pub use system::socket_cookie::OldKernel;
pub use users::descriptor_budget::FewDescriptors;
pub use users::descriptor_budget::sockets_max;
pub use users::limits::Limits;

/// Configuration of a daemon.
#[derive(Clone, Debug, Default)]
pub struct DaemonOptions {
    /// The address at which programs reach the daemon.
    pub address: DaemonAddress,
    /// Options of the sockets that carry SCTP, and initial options of every association. Default UDP port: 9899.
    pub stack: StackOptions,
    /// Exit when no socket and no association has existed for this time. Default: never.
    pub idle_exit: Option<Duration>,
    /// Limits for the programs of one user, and of all users.
    pub limits: Limits,
    /// Modules that are pushed on the streams of certain programs. Default: none.
    pub rules: StreamRules,
}

/// Reason why a daemon cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum DaemonError {
    /// The kernel is too old.
    Kernel(OldKernel),
    /// The descriptor limit of the process is too low.
    Descriptors(FewDescriptors),
    /// Memory cannot be shared with programs.
    SharedMemory(io::Error),
    /// The sockets that carry SCTP could not be bound.
    Stack(BindError),
    /// The daemon cannot listen at its address.
    Address(DaemonAddressError),
    /// A rule for streams names an unknown module, or the module rejects its arguments.
    Rules(AutopushError),
    /// A system call failed.
    System(io::Error),
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonError::Kernel(error) => error.fmt(f),
            DaemonError::Descriptors(error) => error.fmt(f),
            DaemonError::SharedMemory(error) => {
                write!(
                    f,
                    "cannot share memory with programs: {error}; a daemon needs `memfd_create` and /proc"
                )
            }
            DaemonError::Stack(error) => error.fmt(f),
            DaemonError::Address(error) => error.fmt(f),
            DaemonError::Rules(error) => write!(f, "invalid rules for streams: {error}"),
            DaemonError::System(error) => write!(f, "a system call failed: {error}"),
        }
    }
}

impl std::error::Error for DaemonError {}

/// A daemon that has bound its sockets and accepts requests once it runs.
pub struct Daemon {
    listener: Listener,
    stack: Stack,
    idle_exit: Option<Duration>,
    ending: Arc<Notify>,
    limits: Limits,
    rules: StreamRules,
    descriptors: Arc<DescriptorBudget>,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon").field("stack", &self.stack).finish_non_exhaustive()
    }
}

impl Daemon {
    /// Binds all sockets.
    ///
    /// # Errors
    ///
    /// Another daemon listens at the address, a port is in use, the process may have fewer than 512 descriptors, there is
    /// no `/proc`, or the kernel is older than Linux 5.4.
    pub fn bind(options: &DaemonOptions) -> Result<Daemon, DaemonError> {
        let listener = options.address.listen().map_err(DaemonError::Address)?;
        Daemon::with_listener(listener, options)
    }

    /// Binds all sockets but the one for requests, which a service manager has created: a listening AF_UNIX SEQPACKET
    /// socket. Ignores the address in `options`.
    ///
    /// # Errors
    ///
    /// A port is in use, the process may have fewer than 512 descriptors, there is no `/proc`, or the kernel is
    /// older than Linux 5.4.
    pub fn behind(listener: OwnedFd, options: &DaemonOptions) -> Result<Daemon, DaemonError> {
        Daemon::with_listener(listener.into(), options)
    }

    fn with_listener(listener: Listener, options: &DaemonOptions) -> Result<Daemon, DaemonError> {
        shared_memory::keep_freed(memory_return::KEPT_BYTES);
        OldKernel::check_this().map_err(DaemonError::Kernel)?;
        rustix::io::ioctl_fionbio(&listener, true).map_err(|error| DaemonError::System(error.into()))?;
        let descriptors = DescriptorBudget::of_this_process().map_err(DaemonError::Descriptors)?;
        SharedPages::check().map_err(|error| DaemonError::SharedMemory(error.into()))?;
        let stack = Stack::bind(&options.stack).map_err(DaemonError::Stack)?;
        Ok(Daemon {
            listener,
            stack,
            idle_exit: options.idle_exit,
            ending: Arc::default(),
            limits: options.limits,
            rules: options.rules.clone(),
            descriptors,
        })
    }

    /// Returns the stack that carries the associations of programs, to add modules to it before the daemon runs
    /// ([`Stack::add_module`]).
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Returns a description of the link that carries SCTP.
    pub fn description(&self) -> String {
        describe_link(&self.stack)
    }

    /// Returns a handle that ends the daemon while it runs.
    pub fn ending(&self) -> Ending {
        Ending::new(Arc::clone(&self.ending), self.stack.clone().into(), self.listener.file())
    }

    /// Serves programs; returns when the daemon has been idle for the configured time, or was told to end. No
    /// association is left then.
    ///
    /// # Errors
    ///
    /// A rule for streams names an unknown module, or a system call that the daemon depends on failed.
    pub fn run(self) -> Result<(), DaemonError> {
        self.rules.check(&self.stack).map_err(DaemonError::Rules)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = runtime.map_err(DaemonError::System)?;
        let stack = self.stack.clone().into();
        let resources = Resources::new(&self.limits, Arc::clone(&self.descriptors));
        let tap_files = Arc::clone(resources.tap_files());
        let outcome = runtime.block_on(self.serve(resources));
        shutdown::shut_down(runtime, &stack);
        tap_files.finish();
        journal::finish();
        outcome
    }

    async fn serve(self, resources: Resources) -> Result<(), DaemonError> {
        let registry = Rc::new(
            Registry::new(self.stack, self.idle_exit.is_some(), resources)
                .map_err(DaemonError::System)?
                .with_rules(self.rules),
        );
        let close_watches = Arc::clone(registry.resources().close_watches());
        tokio::task::spawn_local(async move { close_watches.run().await });
        let slices = Rc::clone(registry.resources().slices());
        let users = Arc::clone(registry.resources().users());
        tokio::task::spawn_local(async move { slices.follow(&users).await });
        tokio::task::spawn_local(journal::report_omitted());
        let moment = registry.stack().options().busy_poll;
        // With one processor, busy polling would only delay the programs.
        if moment > Duration::ZERO && std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
            let busy_polling = Rc::clone(registry.busy_polling());
            tokio::task::spawn_local(async move { busy_polling.keep(moment).await });
        }
        for budget in [registry.resources().users().sent(), registry.resources().users().received()] {
            tokio::task::spawn_local(memory_return::return_memory_of(Arc::clone(budget)));
        }
        let stack = registry.stack().clone();
        tokio::task::spawn_local(memory_return::return_memory_of_associations(move || {
            stack.association_count()
        }));
        let mut server = tokio::task::spawn_local(server::serve(self.listener, Rc::clone(&registry)));
        let outcome = tokio::select! {
            failed = &mut server => {
                failed.unwrap_or_else(|lost| Err(io::Error::other(lost))).map_err(DaemonError::System)
            }
            () = until_idle(&registry, self.idle_exit) => return Ok(()),
            () = self.ending.notified() => Ok(()),
        };
        // Stop accepting connections.
        server.abort();
        shutdown::drain(&registry).await;
        registry.keep_pages();
        outcome
    }
}

/// Waits until no socket and no association has existed for `limit`.
async fn until_idle(registry: &Registry, limit: Option<Duration>) {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        registry.idle().await;
        // Only a new socket brings an association.
        if tokio::time::timeout(limit, registry.opened()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use swiftwater::Address;

    use super::*;
    use crate::channel::style::Style;
    use crate::testing::{opened, registry, soon};

    #[tokio::test(flavor = "local")]
    async fn a_daemon_is_idle_once_the_last_socket_and_the_last_association_are_gone() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToOne);
        let listener = registry.stack().listen(7).expect("a free port");
        let hosts = vec![IpAddr::from([127, 0, 0, 1])];
        let server = Address { hosts, port: 7, udp_port: Some(registry.stack().udp_port()) };
        let (client, accepted) = tokio::join!(registry.stack().connect(server), listener.accept());
        let (client, (accepted, _)) = (client.expect("it listens"), accepted.expect("it comes"));
        let mut idle = pin!(until_idle(&registry, Some(Duration::ZERO)));
        let mut is_idle = || idle.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_idle(), "there are a socket and an association");
        registry.forget(&socket);
        assert!(!is_idle(), "there is an association");
        let (ended, other) = soon(async { tokio::join!(client.close(), accepted.close()) }).await;
        ended.and(other).expect("an orderly end");
        soon(idle).await;
    }

    #[tokio::test(flavor = "local")]
    async fn a_new_socket_ends_the_idle_time() {
        let registry = registry();
        let limit = Duration::from_millis(1);
        let mut idle = pin!(until_idle(&registry, Some(limit)));
        assert!(idle.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let (socket, _program_end) = opened(&registry, Style::OneToOne);
        // The time limit is over, and the socket counts.
        tokio::time::sleep(2 * limit).await;
        assert!(idle.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        registry.forget(&socket);
        soon(idle).await;
    }
}
