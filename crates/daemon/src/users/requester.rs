//! The program that makes a request, and its permissions.

use channel_protocol::trust;
use rustix::net::UCred;
use rustix::process::{Uid, geteuid};
use swiftwater::streams::Credentials;

use super::owner::Owner;
use crate::system::user_namespace::sees_all_users;

/// The program that makes a request, as the kernel identifies it (`SO_PEERCRED`). All permissions of requests are decided here.
///
/// Root and the daemon's own user administer the daemon: that user could read and change the daemon's memory anyway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    credentials: UCred,
    is_administrator: bool,
}

impl Requester {
    /// Returns the requester with these credentials.
    pub(crate) fn new(credentials: UCred) -> Requester {
        Requester::of_daemon(credentials, geteuid())
    }

    /// Returns the requester with these credentials for a daemon of user `daemon`.
    fn of_daemon(credentials: UCred, daemon: Uid) -> Requester {
        let is_administrator = credentials.uid.is_root() || credentials.uid == daemon;
        Requester { credentials, is_administrator }
    }

    /// Returns whether a daemon whose socket `owner` has made serves the requester.
    pub(crate) fn is_served_by(self, owner: Uid) -> bool {
        trust::may_request(self.user(), owner.as_raw(), sees_all_users)
    }

    pub(crate) fn user(self) -> u32 {
        self.credentials.uid.as_raw()
    }

    pub(crate) fn process(self) -> i32 {
        self.credentials.pid.as_raw_nonzero().get()
    }

    /// Returns the owner of what the requester opens.
    pub(crate) fn owner(self) -> Owner {
        Owner { user: self.user(), process: self.process() }
    }

    /// Returns the credentials in the form of the executive.
    pub(crate) fn for_streams(self) -> Credentials {
        Credentials { uid: self.user(), gid: self.credentials.gid.as_raw() }
    }

    /// Returns whether the requester may see and manage what this user has opened.
    pub(crate) fn may_manage(self, user: u32) -> bool {
        self.is_administrator || self.user() == user
    }

    /// Returns whether the requester manages what this user has opened as the administrator.
    pub(crate) fn administers(self, user: u32) -> bool {
        self.is_administrator && self.user() != user
    }

    /// Returns whether the requester may see what all users together cause.
    pub(crate) fn sees_daemon(self) -> bool {
        self.is_administrator
    }

    /// Returns whether the requester may pop modules that the administrator has anchored.
    pub(crate) fn may_unanchor(self) -> bool {
        self.is_administrator
    }

    /// Returns whether the requester may bind any port, as root may in the kernel.
    pub(crate) fn may_bind_any_port(self) -> bool {
        self.credentials.uid.is_root()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rustix::process::{Gid, Pid};

    use super::*;

    /// Returns a requester that is this user.
    pub(crate) fn requester(user: u32) -> Requester {
        Requester::new(credentials(user))
    }

    fn credentials(user: u32) -> UCred {
        UCred { pid: Pid::INIT, uid: Uid::from_raw(user), gid: Gid::from_raw(user) }
    }

    #[test]
    fn the_daemon_of_a_user_serves_no_other_one() {
        let served = [5, 6].map(|user| requester(user).is_served_by(Uid::from_raw(5)));
        assert_eq!(served, [true, false]);
    }

    #[test]
    fn root_and_the_user_of_the_daemon_administer_it() {
        let rights = |user| {
            let requester = Requester::of_daemon(credentials(user), Uid::from_raw(5));
            let manages = [5, 6].map(|owner| requester.may_manage(owner));
            let administers = [5, 6].map(|owner| requester.administers(owner));
            let others = (requester.sees_daemon(), requester.may_unanchor(), requester.may_bind_any_port());
            (manages, administers, others)
        };
        assert_eq!(rights(0), ([true; 2], [true; 2], (true, true, true)));
        let of_daemon = ([true; 2], [false, true], (true, true, false));
        assert_eq!(rights(5), of_daemon, "the kernel lets root alone bind such a port");
        assert_eq!(rights(6), ([false, true], [false; 2], (false, false, false)));
    }
}
