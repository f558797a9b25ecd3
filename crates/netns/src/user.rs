//! Root of a user namespace of one's own, who may make network namespaces.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid, getegid, geteuid};
use thiserror::Error;

/// Reason why this process did not become root of a user namespace.
#[derive(Debug, Error)]
pub enum NotAllowed {
    /// The system has no user namespaces for this user.
    #[error("neither root nor allowed to make a user namespace ({0})")]
    Unshare(Errno),
    /// The user cannot be mapped.
    #[error("neither root nor allowed to be root of a user namespace ({file}: {source})")]
    Map {
        /// The file that could not be written.
        file: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

/// Becomes root of a new user namespace unless this process is root already. Call it before a thread is started: the
/// system refuses it afterwards.
///
/// # Errors
///
/// The system does not allow user namespaces to this user, or other threads run.
pub fn become_root() -> Result<(), NotAllowed> {
    if geteuid().is_root() { Ok(()) } else { enter_user_namespace() }
}

/// Becomes root of a new user namespace, also if this process is root already. Call it before a thread is started.
///
/// # Errors
///
/// The system does not allow user namespaces to this process, or other threads run.
pub fn enter_user_namespace() -> Result<(), NotAllowed> {
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(NotAllowed::Unshare)?;
    map(user, group)
}

/// Makes this user, and no other, root.
fn map(user: Uid, group: Gid) -> Result<(), NotAllowed> {
    let write = |file, text: String| fs::write(file, text).map_err(|source| NotAllowed::Map { file, source });
    // A group may be mapped only by a process that can no longer drop one (user_namespaces(7)).
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("0 {user} 1"))?;
    write("/proc/self/gid_map", format!("0 {group} 1"))
}
