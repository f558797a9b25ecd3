//! The paths of an association, and those with a role.
//!
//! A path is identified by its place. So the place of a path changes only here, together with everything that refers to it.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Index, IndexMut};

use sctp_message::PathId;

use super::Path;

/// Maximum number of paths, as many as [`PathId`] distinguishes.
const PATHS_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Paths {
    list: Vec<Path>,
    primary: PathId,
    /// The path of the last DATA, on which SACKs return.
    reply: PathId,
    /// The path that retransmissions take after T3 expired, while any of them waits.
    retransmit: Option<PathId>,
    /// Whether addresses of paths have changed since the endpoint last updated its tables.
    are_changed: bool,
}

impl Paths {
    /// Returns the paths of a new association. The first is the primary one.
    pub(crate) fn new(list: Vec<Path>) -> Self {
        let first = PathId(0);
        let mut paths = Paths { list, primary: first, reply: first, retransmit: None, are_changed: false };
        paths.list.truncate(PATHS_MAX);
        paths.renumber();
        paths
    }

    /// Replaces all paths after a restart of the peer.
    pub(crate) fn restart(&mut self, list: Vec<Path>) {
        *self = Paths { are_changed: true, ..Paths::new(list) };
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Path> {
        self.list.iter()
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Path> {
        self.list.iter_mut()
    }

    /// Returns all identifiers. They stay valid until a path is removed.
    #[inline]
    pub(crate) fn ids(&self) -> impl Iterator<Item = PathId> + use<> {
        (0..self.list.len()).map(|place| PathId(place as u8))
    }

    /// Returns the other paths, from the next one on.
    pub(crate) fn others(&self, id: PathId) -> impl Iterator<Item = PathId> + use<> {
        let count = self.list.len();
        (1..count).map(move |n| PathId(((id.index() + n) % count) as u8))
    }

    /// Returns the path that follows this one; after the last, the first.
    pub(crate) fn after(&self, id: PathId) -> PathId {
        self.others(id).next().unwrap_or(id)
    }

    #[inline]
    pub(crate) fn get(&self, id: PathId) -> Option<&Path> {
        self.list.get(id.index())
    }

    /// Returns the path to an address of the peer, whatever its port is.
    #[inline]
    pub(crate) fn to(&self, address: IpAddr) -> Option<PathId> {
        self.iter().find(|path| path.remote().ip() == address).map(Path::id)
    }

    #[inline]
    pub(crate) fn primary(&self) -> PathId {
        self.primary
    }

    pub(crate) fn set_primary(&mut self, id: PathId) {
        self.primary = id;
    }

    /// Returns the path on which SACKs return.
    #[inline]
    pub(crate) fn reply(&self) -> PathId {
        self.reply
    }

    #[inline]
    pub(crate) fn set_reply(&mut self, id: PathId) {
        self.reply = id;
    }

    /// Returns the path that retransmissions take after T3 has expired.
    #[inline]
    pub(crate) fn retransmit(&self) -> Option<PathId> {
        self.retransmit
    }

    #[inline]
    pub(crate) fn set_retransmit(&mut self, id: Option<PathId>) {
        self.retransmit = id;
    }

    /// Adds a path, unless there are as many as can be distinguished.
    pub(crate) fn push(&mut self, path: Path) {
        if self.list.len() < PATHS_MAX {
            self.list.push(path);
            self.renumber();
            self.are_changed = true;
        }
    }

    /// Keeps the primary path and those to these addresses. SACKs return on the primary path.
    pub(crate) fn keep_primary_and(&mut self, addresses: &[IpAddr]) {
        let primary = self[self.primary].remote();
        self.list.retain(|path| path.remote() == primary || addresses.contains(&path.remote().ip()));
        self.renumber();
        self.primary = self.to(primary.ip()).unwrap_or(PathId(0));
        self.forget_roles();
    }

    /// Removes a path, unless it is the only one. If it was the primary path, the next one is. SACKs return on the primary path.
    pub(crate) fn remove(&mut self, id: PathId) {
        if self.list.len() < 2 {
            return;
        }
        self.list.remove(id.index());
        let primary = self.primary.index() - usize::from(id.index() < self.primary.index());
        self.primary = PathId((primary % self.list.len()) as u8);
        self.renumber();
        self.forget_roles();
    }

    fn forget_roles(&mut self) {
        (self.reply, self.retransmit, self.are_changed) = (self.primary, None, true);
    }

    fn renumber(&mut self) {
        for (place, path) in self.list.iter_mut().enumerate() {
            path.set_id(PathId(place as u8));
        }
    }

    /// Sets the UDP encapsulation port of the peer on a path (RFC 6951 §5.4).
    pub(crate) fn set_remote_port(&mut self, id: PathId, port: u16) {
        self.are_changed |= self[id].set_remote_port(port);
    }

    /// Records that the address of a path was confirmed.
    pub(crate) fn on_confirmed(&mut self) {
        self.are_changed = true;
    }

    /// Returns whether addresses of paths were added, changed or confirmed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.are_changed)
    }

    /// Returns the addresses of the peer.
    pub(crate) fn remotes(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.iter().map(Path::remote)
    }
}

impl Index<PathId> for Paths {
    type Output = Path;

    #[inline]
    fn index(&self, id: PathId) -> &Path {
        &self.list[id.index()]
    }
}

impl IndexMut<PathId> for Paths {
    #[inline]
    fn index_mut(&mut self, id: PathId) -> &mut Path {
        &mut self.list[id.index()]
    }
}

impl<'a> IntoIterator for &'a Paths {
    type Item = &'a Path;
    type IntoIter = std::slice::Iter<'a, Path>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Paths {
    type Item = &'a mut Path;
    type IntoIter = std::slice::IterMut<'a, Path>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AssociationConfig;
    use crate::path_hints::PathHints;

    fn address(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn paths(count: u16) -> Paths {
        let path = |n: u16| {
            let remote = SocketAddr::new(IpAddr::from([192, 0, (n >> 8) as u8, n as u8]), 9899);
            Path::new(remote, None, PathHints::default(), &AssociationConfig::default())
        };
        Paths::new((512..512 + count).map(path).collect())
    }

    fn places(paths: &Paths) -> Vec<(u8, u8)> {
        let last = |path: &Path| match path.remote().ip() {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(_) => 0,
        };
        paths.iter().map(|path| (path.id().0, last(path))).collect()
    }

    #[test]
    fn the_roles_follow_their_paths_when_one_is_removed() {
        for (removed, primary) in [(0, 1), (1, 2), (2, 3), (3, 2)] {
            let mut paths = paths(4);
            paths.set_primary(PathId(2));
            paths.remove(PathId(removed));
            let kept: Vec<(u8, u8)> =
                (0..4).filter(|n| *n != removed).zip(0..).map(|(n, id)| (id, n)).collect();
            assert_eq!(places(&paths), kept);
            let expected = if removed == 2 { address(3) } else { address(2) };
            assert_eq!(paths[paths.primary()].remote().ip(), expected, "{removed} and {primary}");
            assert_eq!(paths.reply(), paths.primary());
        }
    }

    #[test]
    fn the_only_path_stays() {
        let mut paths = paths(1);
        paths.remove(PathId(0));
        assert_eq!(paths.len(), 1);
    }

    #[test]
    fn the_primary_path_stays_among_those_that_the_peer_lists() {
        let mut paths = paths(4);
        paths.set_primary(PathId(2));
        paths.keep_primary_and(&[address(3), address(9)]);
        assert_eq!(places(&paths), [(0, 2), (1, 3)]);
        assert_eq!((paths.primary(), paths.take_changed()), (PathId(0), true));
    }

    #[test]
    fn paths_beyond_those_that_can_be_told_apart_are_not_added() {
        let mut many = paths(PATHS_MAX as u16 + 3);
        assert_eq!((many.len(), many.ids().last()), (PATHS_MAX, Some(PathId(255))));
        let more = paths(1).list.remove(0);
        many.push(more);
        assert_eq!(many.len(), PATHS_MAX);
    }
}
