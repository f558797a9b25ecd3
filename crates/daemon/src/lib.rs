//! SCTP sockets for programs that never heard of Swiftwater: the executive as a service.
//!
//! A program under `swiftwater run` holds one end of a pair of AF_UNIX sockets in place of an SCTP socket, its *carrier*
//! (see [`carrier`]). The daemon holds the other end and the association, and moves messages between the two.
//!
//! | file | part |
//! |---|---|
//! | `door` | where programs ask: one connection for each request |
//! | `closer` | closing what came from programs, where that keeps nobody else waiting |
//! | `numbers`, `places` | limits: descriptors, and what users share |
//! | `identity` | which socket a descriptor is |
//! | `inquiry` | what anybody may ask: which daemon it is |
//! | `requests` | what each request does |
//! | `binding`, `connecting`, `listening`, `peel_off` | `bind` and `connect` in all their forms, `listen`, `sctp_peeloff` |
//! | `socket` | one socket: what all requests about it share |
//! | `member` | an association of a socket |
//! | `life` | the task of a one-to-one socket: idle, connecting, listening, connected |
//! | `many`, `outbox` | the task of a one-to-many socket, and what waits for each of its associations |
//! | `pump` | messages between carrier and association |
//! | `notify` | notifications, as C structures |
//! | `line` | a carrier as the daemon sees it: records in and out |
//! | `long_messages` | messages in memfds, until they are read |
//! | `descriptor_io` | descriptors and the runtime |
//! | `budget` | how much memory the messages of each user take |
//! | `freed` | memory that goes back to the system |
//! | `limits` | what one user may take |
//! | `quantum` | how much a task does before others run |
//! | `vigil` | staying awake for the next message |
//! | `page` | the page that the daemon writes and the sharers map |
//! | `ports` | who has which SCTP port |
//! | `options` | socket options |
//! | `ending` | what peers and programs are told when the daemon ends |
//! | `owner` | whose a socket is, and how many one user may have |
//! | `journal` | lines for whoever looks after the daemon |
//! | `streams` | the streams of associations: what stands on them, pushing, popping, recording |
//! | `status`, `report` | what the daemon has, for people to see, and how it is told |
//! | `addresses` | addresses as programs see them |
//!
//! Everything runs on one thread: the executive is one perimeter, and what stands between two of its calls is short.
#![forbid(unsafe_code)]

mod addresses;
mod binding;
mod budget;
mod closer;
mod connecting;
mod descriptor_io;
mod door;
mod ending;
mod errno;
mod form;
mod freed;
mod identity;
mod inquiry;
mod journal;
mod life;
mod limits;
mod line;
mod listening;
mod long_messages;
mod many;
mod member;
mod notify;
mod numbers;
mod options;
mod outbox;
mod owner;
mod page;
mod peel_off;
mod places;
mod ports;
mod pump;
mod quantum;
mod recall;
mod report;
mod requests;
mod socket;
mod status;
mod streams;
mod unread;
mod vigil;
mod visible_name;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use swiftwater::streams::AutopushError;
use swiftwater::{BindError, Stack, StackOptions};
use tokio::sync::Notify;

use journal::log;
use numbers::Numbers;

pub use door::{Place, PlaceError};
pub use ending::Ending;
pub use identity::OldKernel;
pub use inquiry::{Description, NoDaemon, trusts_daemon_of};
pub use limits::Limits;
pub use numbers::FewDescriptors;
pub use status::{AssociationStatus, PathStatus, SocketStatus, Status, UserStatus};
pub use streams::{
    PartStatus, QueueStatus, Recording, StreamCommandError, StreamRules, StreamStatus, Streams,
};

/// How often it is looked whether nobody needs the daemon any more.
const IDLE_LOOKS: Duration = Duration::from_secs(1);

/// How a daemon is set up.
#[derive(Clone, Debug, Default)]
pub struct DaemonOptions {
    /// Where programs find it.
    pub place: Place,
    /// The sockets that carry SCTP, and what every association begins with. Without a UDP port it is 9899.
    pub stack: StackOptions,
    /// End when no socket and no association has been there for so long. Default: never.
    pub idle_exit: Option<Duration>,
    /// What the programs of one user may take, and those of all.
    pub limits: Limits,
    /// Modules that are pushed on the streams of certain programs. Default: none.
    pub rules: StreamRules,
}

/// Why a daemon cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum DaemonError {
    /// The kernel is too old.
    Kernel(OldKernel),
    /// The process may have too few descriptors.
    Descriptors(FewDescriptors),
    /// The sockets that carry SCTP could not be bound.
    Stack(BindError),
    /// The place where programs find it could not be taken.
    Place(PlaceError),
    /// A rule for streams names a module that is not there, or that does not take its arguments.
    Rules(AutopushError),
    /// The system refused.
    System(io::Error),
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonError::Kernel(error) => error.fmt(f),
            DaemonError::Descriptors(error) => error.fmt(f),
            DaemonError::Stack(error) => error.fmt(f),
            DaemonError::Place(error) => error.fmt(f),
            DaemonError::Rules(error) => write!(f, "the rules for streams: {error}"),
            DaemonError::System(error) => write!(f, "the system refused: {error}"),
        }
    }
}

impl std::error::Error for DaemonError {}

/// A daemon that has all that it needs and takes requests once it runs.
pub struct Daemon {
    listener: OwnedFd,
    stack: Stack,
    idle_exit: Option<Duration>,
    ending: Arc<Notify>,
    limits: Limits,
    rules: StreamRules,
    numbers: Arc<Numbers>,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon").field("stack", &self.stack).finish_non_exhaustive()
    }
}

impl Daemon {
    /// Binds everything.
    ///
    /// # Errors
    ///
    /// Another daemon is there already, a port is taken, the process may have fewer than 512 descriptors, or the kernel is older
    /// than Linux 5.4.
    pub fn bind(options: &DaemonOptions) -> Result<Daemon, DaemonError> {
        let listener = door::listen(&options.place).map_err(DaemonError::Place)?;
        Daemon::behind(listener, options)
    }

    /// The same behind a socket that is there already, which a service manager has made: an AF_UNIX SEQPACKET socket that
    /// listens. Of `options`, the place is not used.
    ///
    /// # Errors
    ///
    /// A port is taken, the process may have fewer than 512 descriptors, or the kernel is older than Linux 5.4.
    pub fn behind(listener: OwnedFd, options: &DaemonOptions) -> Result<Daemon, DaemonError> {
        OldKernel::check_this().map_err(DaemonError::Kernel)?;
        rustix::io::ioctl_fionbio(&listener, true).map_err(|error| DaemonError::System(error.into()))?;
        let numbers = Numbers::of_this_process().map_err(DaemonError::Descriptors)?;
        let stack = Stack::bind(&options.stack).map_err(DaemonError::Stack)?;
        Ok(Daemon {
            listener,
            stack,
            idle_exit: options.idle_exit,
            ending: Arc::default(),
            limits: options.limits,
            rules: options.rules.clone(),
            numbers,
        })
    }

    /// Returns the stack that carries the associations of programs, to add modules to it before the daemon runs
    /// ([`Stack::add_module`]).
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// What carries SCTP, in words.
    pub fn description(&self) -> String {
        inquiry::what_carries(&self.stack)
    }

    /// What ends it while it runs.
    pub fn ending(&self) -> Ending {
        Ending { wanted: Arc::clone(&self.ending), stack: self.stack.clone() }
    }

    /// Serves programs; returns when it has been idle for as long as its options say, or when it was told to end. No
    /// association is left then.
    ///
    /// # Errors
    ///
    /// A rule for streams names a module that is not there, or the system refused what the daemon needs to run at all.
    pub fn run(self) -> Result<(), DaemonError> {
        self.rules.check(&self.stack).map_err(DaemonError::Rules)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(DaemonError::System)?;
        let stack = self.stack.clone();
        let outcome = runtime.block_on(self.serve());
        ending::end(runtime, &stack);
        outcome
    }

    async fn serve(self) -> Result<(), DaemonError> {
        let sockets = Arc::new(
            socket::Sockets::new(self.stack, self.idle_exit.is_some(), &self.limits, self.numbers)
                .map_err(DaemonError::System)?
                .with_rules(self.rules),
        );
        let moment = sockets.stack.options().busy_poll;
        // On one processor it would only keep the programs waiting.
        if moment > Duration::ZERO && std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
            let vigil = Arc::clone(&sockets.vigil);
            tokio::spawn(async move { vigil.keep(moment).await });
        }
        for budget in [&sockets.sent, &sockets.received] {
            tokio::spawn(freed::return_memory_of(Arc::clone(budget)));
        }
        let mut door = tokio::spawn(door::serve(self.listener, Arc::clone(&sockets)));
        let outcome = tokio::select! {
            failed = &mut door => {
                failed.unwrap_or_else(|lost| Err(io::Error::other(lost))).map_err(DaemonError::System)
            }
            () = until_idle(&sockets, self.idle_exit) => return Ok(()),
            () = self.ending.notified() => Ok(()),
        };
        // No connection is accepted any more.
        door.abort();
        ending::settle(&sockets).await;
        sockets.keep_pages();
        outcome
    }
}

/// Returns when nothing has been there for `limit`.
async fn until_idle(sockets: &socket::Sockets, limit: Option<Duration>) {
    let Some(limit) = limit else { return std::future::pending().await };
    let mut idle = Duration::ZERO;
    while idle < limit {
        tokio::time::sleep(IDLE_LOOKS.min(limit)).await;
        idle = if sockets.is_idle() { idle + IDLE_LOOKS.min(limit) } else { Duration::ZERO };
    }
}
