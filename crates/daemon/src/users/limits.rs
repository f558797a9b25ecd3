//! Limits of the daemon's resources for the programs of one user, and of all users.

use crate::users::budget;

/// Limits that keep one user from taking the resources of others. The limits of a listener and of a source prefix are
/// the stack's ([`ListenerOptions::associations_max`](swiftwater::ListenerOptions),
/// [`StackOptions::prefix_associations_max`](swiftwater::StackOptions)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory for messages that the programs of one user have sent and no peer has acknowledged (longer by up to 50 ms if a
    /// program of this daemon receives them), and as much again for messages in memfds that programs have left to the daemon when
    /// they ended. Default: 128 MiB.
    pub user_memory_bytes: usize,
    /// Memory for such messages of all users together. Default: 512 MiB.
    pub memory_bytes: usize,
    /// Memory for messages of more than 64 KiB that wait in memfds until the programs of one user read them. Default:
    /// 64 MiB.
    pub user_unread_bytes: usize,
    /// Memory for such messages of all users together. Default: 256 MiB.
    pub unread_bytes: usize,
    /// Memory for data that the associations of one user have received and its programs have not read, half of it at most in
    /// receive rings. Default: 128 MiB.
    pub user_receive_bytes: usize,
    /// Memory for such data of all users together. Default: 512 MiB.
    pub receive_bytes: usize,
    /// Memory for the pages that one user's sockets share with their programs: 8 KiB each, and 68 KiB for a one-to-many
    /// socket; and 10 KiB for each association of a one-to-many or closed socket, with 1.5 KiB for each further address of its
    /// peer. Default: 256 MiB.
    pub user_page_bytes: usize,
    /// Memory for the pages and associations of all users together. Default: 512 MiB.
    pub page_bytes: usize,
    /// Maximum number of associations of one user's one-to-many and closed sockets, whichever side set them up. Default: 32,768.
    pub user_associations: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            user_memory_bytes: 128 << 20,
            memory_bytes: 512 << 20,
            user_unread_bytes: 64 << 20,
            unread_bytes: 256 << 20,
            user_receive_bytes: 128 << 20,
            receive_bytes: 512 << 20,
            user_page_bytes: 256 << 20,
            page_bytes: 512 << 20,
            user_associations: 32_768,
        }
    }
}

impl Limits {
    /// Returns the limits for messages that programs have sent.
    pub(crate) fn sent(&self) -> budget::ByteLimits {
        budget::ByteLimits { user_bytes: self.user_memory_bytes, all_bytes: self.memory_bytes }
    }

    /// Returns the limits for long messages that programs have not read.
    pub(crate) fn unread(&self) -> budget::ByteLimits {
        budget::ByteLimits { user_bytes: self.user_unread_bytes, all_bytes: self.unread_bytes }
    }

    /// Returns the limits for long messages in pairs whose programs have ended. There is no limit of all users: associations
    /// of others would be aborted because one user has used it up.
    pub(crate) fn left(&self) -> budget::ByteLimits {
        budget::ByteLimits { user_bytes: self.user_memory_bytes, all_bytes: usize::MAX }
    }

    /// Returns the limits for pages of sockets.
    pub(crate) fn pages(&self) -> budget::ByteLimits {
        budget::ByteLimits { user_bytes: self.user_page_bytes, all_bytes: self.page_bytes }
    }

    /// Returns the limits for received data.
    pub(crate) fn received(&self) -> budget::ByteLimits {
        budget::ByteLimits { user_bytes: self.user_receive_bytes, all_bytes: self.receive_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_leaves_room_for_the_memory_of_all_users() {
        let unit = include_str!("../../../../packaging/systemd/swiftwater.service");
        let most = unit.lines().find_map(|line| line.strip_prefix("MemoryMax=")).expect("it has a limit");
        let gibibytes: usize =
            most.strip_suffix('G').and_then(|number| number.parse().ok()).expect("gibibytes");
        let limits = Limits::default();
        let of_users = [limits.memory_bytes, limits.unread_bytes, limits.receive_bytes, limits.page_bytes];
        // What programs leave at their end is as much again as one user may send.
        let sum = of_users.iter().sum::<usize>() + limits.user_memory_bytes;
        assert!(gibibytes << 30 > sum + sum / 4, "{sum} bytes");
    }
}
