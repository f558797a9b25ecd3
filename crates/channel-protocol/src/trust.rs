//! Decides which daemon a program trusts, and which programs a daemon serves.
//!
//! Any program may listen at the daemon's address. The kernel reports its user (`SO_PEERCRED`), by the number that the user has
//! in the user namespace of the asking process.

use std::ffi::CStr;

/// The number that stands for each user whom a user namespace does not map (`/proc/sys/kernel/overflowuid`, unless changed).
const OVERFLOW_USER: u32 = 65_534;

/// File with the users that a process' user namespace maps.
pub const USER_MAP: &CStr = c"/proc/self/uid_map";

/// Returns whether a program of `me` trusts a daemon of `owner`: a daemon of root, or of its own user. If `sees_all_users` is
/// false, the number of the overflow user identifies no user.
pub fn may_serve(owner: u32, me: u32, sees_all_users: impl FnOnce() -> bool) -> bool {
    owner == 0 || owner == me && (me != OVERFLOW_USER || sees_all_users())
}

/// Returns whether a daemon serves programs of `user`: those of all users if root has made its socket, and otherwise those of
/// root and of `owner`, who has made it. If `sees_all_users` is false, the number of the overflow user stands for several users,
/// who would have each other's sockets, and the rights of `owner` if it is that number, too.
pub fn may_request(user: u32, owner: u32, sees_all_users: impl FnOnce() -> bool) -> bool {
    (owner == 0 || user == 0 || user == owner) && (user != OVERFLOW_USER || sees_all_users())
}

/// Returns whether a user namespace with this [map](USER_MAP) maps every user, as the initial one does
/// (user_namespaces(7)). A line of it is the first user inside, the first user outside and the count.
pub fn maps_all_users(map: &[u8]) -> bool {
    let mut fields = map.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    (fields.next(), fields.nth(1)) == (Some(b"0"), Some(b"4294967295"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_daemon_of_root_or_of_the_same_user_is_believed() {
        let may_serve = |owner, me| super::may_serve(owner, me, || unreachable!("no user is unmapped"));
        assert!(may_serve(0, 1000) && may_serve(1000, 1000) && may_serve(0, 0));
        assert!(
            !may_serve(1001, 1000)
                && !may_serve(999, 1000)
                && !may_serve(1000, 0)
                && !may_serve(u32::MAX, 1000)
        );
    }

    #[test]
    fn an_unmapped_user_is_nobody_s_own() {
        assert!(may_serve(OVERFLOW_USER, OVERFLOW_USER, || true));
        assert!(!may_serve(OVERFLOW_USER, OVERFLOW_USER, || false));
        assert!(may_serve(0, OVERFLOW_USER, || false));
        assert!(maps_all_users(b"         0          0 4294967295\n"));
        for map in [&b""[..], b"0 0", b"         0     200000      65536\n", b"1 0 4294967295\n"] {
            assert!(!maps_all_users(map));
        }
    }

    #[test]
    fn a_daemon_serves_users_that_it_can_tell_apart() {
        let serves = |user, owner, sees_all| may_request(user, owner, || sees_all);
        for owner in [0, 1000] {
            assert!(serves(0, owner, false) && serves(1000, owner, false));
            assert_eq!(serves(1001, owner, true), owner == 0, "only root's daemon serves all");
        }
        assert!(serves(OVERFLOW_USER, OVERFLOW_USER, true) && serves(OVERFLOW_USER, 0, true));
        assert!(!serves(OVERFLOW_USER, OVERFLOW_USER, false) && !serves(OVERFLOW_USER, 0, false));
    }
}
