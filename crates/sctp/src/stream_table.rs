//! One value for each of 65,535 streams; only used streams occupy memory.

/// Number of streams whose values are contiguous from the first use on, which suffices for most associations.
const NEAR_STREAMS: usize = 64;
/// Number of streams in one page beyond these.
const PAGE_STREAMS: usize = 256;

/// Values by stream number, each `T::default()` until its first use.
///
/// The first streams are in one contiguous piece. The others are in pages that are allocated when one of their streams
/// is used: a single use of stream 65,534 allocates a page and a list of 256 pointers.
#[derive(Debug, Default)]
pub(crate) struct StreamTable<T> {
    near: Vec<T>,
    far: Vec<Option<Box<[T; PAGE_STREAMS]>>>,
}

impl<T: Default> StreamTable<T> {
    pub(crate) fn new() -> Self {
        StreamTable { near: Vec::new(), far: Vec::new() }
    }

    /// Returns the value of a stream for a change.
    #[inline]
    pub(crate) fn get_mut(&mut self, stream: u16) -> &mut T {
        let at = usize::from(stream);
        if at < self.near.len() {
            return &mut self.near[at];
        }
        self.grow(at)
    }

    #[cold]
    fn grow(&mut self, at: usize) -> &mut T {
        if at < NEAR_STREAMS {
            self.near.resize_with(at + 1, T::default);
            return &mut self.near[at];
        }
        let (page, at) = (at / PAGE_STREAMS, at % PAGE_STREAMS);
        if page >= self.far.len() {
            self.far.resize_with(page + 1, || None);
        }
        let page = self.far[page].get_or_insert_with(|| Box::new(std::array::from_fn(|_| T::default())));
        &mut page[at]
    }

    /// Returns the number of bytes that the table takes beyond itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let pages = self.far.iter().flatten().count();
        self.near.capacity() * size_of::<T>()
            + self.far.capacity() * size_of::<Option<Box<[T; PAGE_STREAMS]>>>()
            + pages * PAGE_STREAMS * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn one_use_of_the_last_stream_costs_little() {
        let mut table = StreamTable::<u16>::new();
        assert_eq!(table.heap_bytes(), 0);
        *table.get_mut(65_534) += 1;
        assert!(table.heap_bytes() <= 4096, "{}", table.heap_bytes());
        *table.get_mut(0) += 1;
        assert_eq!((*table.get_mut(65_534), *table.get_mut(0), *table.get_mut(65_533)), (1, 1, 0));
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(uses in proptest::collection::vec(
            prop_oneof![0u16..70, 250u16..260, any::<u16>()], 1..200))
        {
            let mut table = StreamTable::<u32>::new();
            let mut model = BTreeMap::<u16, u32>::new();
            for stream in uses {
                *table.get_mut(stream) += 1;
                *model.entry(stream).or_default() += 1;
                prop_assert_eq!(*table.get_mut(stream), model[&stream]);
            }
            for (stream, count) in model {
                prop_assert_eq!(*table.get_mut(stream), count);
            }
        }
    }
}
