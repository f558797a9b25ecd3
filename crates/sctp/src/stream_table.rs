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
    /// Number of pages.
    pages: usize,
}

impl<T: Default> StreamTable<T> {
    pub(crate) fn new() -> Self {
        StreamTable { near: Vec::new(), far: Vec::new(), pages: 0 }
    }

    /// Returns the value of a stream, which takes no memory.
    pub(crate) fn get(&self, stream: u16) -> T
    where
        T: Copy,
    {
        let at = usize::from(stream);
        let value = if at < NEAR_STREAMS {
            self.near.get(at)
        } else {
            self.page(at / PAGE_STREAMS).map(|page| &page[at % PAGE_STREAMS])
        };
        value.copied().unwrap_or_default()
    }

    fn page(&self, page: usize) -> Option<&[T; PAGE_STREAMS]> {
        self.far.get(page)?.as_deref()
    }

    /// Returns the most memory that the values of this many streams take.
    pub(crate) fn bytes_max(streams: u16) -> usize {
        let page_bytes = size_of::<Option<Box<[T; PAGE_STREAMS]>>>() + PAGE_STREAMS * size_of::<T>();
        NEAR_STREAMS * size_of::<T>() + usize::from(streams).div_ceil(PAGE_STREAMS) * page_bytes
    }

    /// Returns whether a change of the value takes no more memory beyond the first streams.
    #[inline]
    pub(crate) fn has_place(&self, stream: u16) -> bool {
        usize::from(stream) < NEAR_STREAMS || self.page(usize::from(stream) / PAGE_STREAMS).is_some()
    }

    /// Returns the memory beyond the first streams, with a page for a stream that has none.
    pub(crate) fn far_bytes_with(&self, stream: u16) -> usize {
        let list = self.far.len().max(usize::from(stream) / PAGE_STREAMS + 1);
        list * size_of::<Option<Box<[T; PAGE_STREAMS]>>>() + (self.pages + 1) * PAGE_STREAMS * size_of::<T>()
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
            self.far.reserve_exact(page + 1 - self.far.len());
            self.far.resize_with(page + 1, || None);
        }
        self.pages += usize::from(self.far[page].is_none());
        let page = self.far[page].get_or_insert_with(|| Box::new(std::array::from_fn(|_| T::default())));
        &mut page[at]
    }

    /// Returns the number of bytes that the table takes beyond itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.near.capacity() * size_of::<T>()
            + self.far.capacity() * size_of::<Option<Box<[T; PAGE_STREAMS]>>>()
            + self.pages * PAGE_STREAMS * size_of::<T>()
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
                prop_assert_eq!(table.get(stream), model.get(&stream).copied().unwrap_or_default());
                let (has_place, with) = (table.has_place(stream), table.far_bytes_with(stream));
                let near = table.near.capacity() * size_of::<u32>();
                prop_assert!(!has_place || stream < 64 || table.heap_bytes() - near < with);
                *table.get_mut(stream) += 1;
                prop_assert!(table.heap_bytes() <= StreamTable::<u32>::bytes_max(u16::MAX));
                *model.entry(stream).or_default() += 1;
                prop_assert!(table.has_place(stream));
                let near = table.near.capacity() * size_of::<u32>();
                prop_assert!(stream < 64 || has_place || table.heap_bytes() - near == with);
                prop_assert_eq!(*table.get_mut(stream), model[&stream]);
            }
            for (stream, count) in model {
                prop_assert_eq!(*table.get_mut(stream), count);
            }
        }
    }
}
