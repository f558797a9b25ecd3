//! The user namespace of this process.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use channel_protocol::trust;

/// Returns whether the user namespace maps all users, so that each number that the kernel reports stands for one user.
pub(crate) fn sees_all_users() -> bool {
    let map = Path::new(OsStr::from_bytes(trust::USER_MAP.to_bytes()));
    std::fs::read(map).is_ok_and(|map| trust::maps_all_users(&map))
}
