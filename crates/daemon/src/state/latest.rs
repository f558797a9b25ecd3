//! A table in which several owners may enter a key, and the latest of them counts.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;

/// Values by keys: for each key, that of the latest owner which has entered it.
pub(crate) struct Latest<K, V> {
    by_key: RefCell<HashMap<K, (u64, V)>>,
    /// The number of the next owner.
    next: Cell<u64>,
}

/// The entries of one owner. Those that are still the latest go when this is dropped.
pub(crate) struct Entries<K: Copy + Eq + Hash, V> {
    table: Rc<Latest<K, V>>,
    owner: u64,
    keys: Vec<K>,
}

impl<K, V> Default for Latest<K, V> {
    fn default() -> Self {
        Latest { by_key: RefCell::default(), next: Cell::new(0) }
    }
}

impl<K: Copy + Eq + Hash, V: Clone> Latest<K, V> {
    /// Enters a value under all of these keys.
    pub(super) fn enter(self: &Rc<Self>, keys: Vec<K>, value: &V) -> Entries<K, V> {
        let owner = self.next.get();
        self.next.set(owner + 1);
        self.by_key.borrow_mut().extend(keys.iter().map(|key| (*key, (owner, value.clone()))));
        Entries { table: Rc::clone(self), owner, keys }
    }

    /// Returns the latest value that was entered under a key, and whose owner still has it.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.by_key.borrow().get(key).map(|(_, value)| value.clone())
    }

    /// Returns the number of keys.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.by_key.borrow().len()
    }
}

impl<K: Copy + Eq + Hash, V> Drop for Entries<K, V> {
    fn drop(&mut self) {
        let mut by_key = self.table.by_key.borrow_mut();
        for key in &self.keys {
            if by_key.get(key).is_some_and(|(owner, _)| *owner == self.owner) {
                by_key.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_goes_with_its_owner_unless_a_later_one_has_its_key() {
        let table = Rc::new(Latest::default());
        let first = table.enter(vec![1, 2], &"first");
        let second = table.enter(vec![2, 3], &"second");
        assert_eq!([1, 2, 3].map(|key| table.get(&key)), [Some("first"), Some("second"), Some("second")]);
        drop(first);
        assert_eq!([1, 2, 3].map(|key| table.get(&key)), [None, Some("second"), Some("second")]);
        drop(second);
        assert_eq!(table.count(), 0);
    }
}
