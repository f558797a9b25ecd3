//! Reassembly of fragments into messages (RFC 9260 §6.9).
//!
//! Chunks that arrive in TSN order extend the one message that is being assembled. The others wait in *runs*:
//! neighbours by TSN that belong to one message. A run that has both ends is a message at once, even if earlier TSNs
//! are missing.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use sctp_message::RecvInfo;
use smallvec::{SmallVec, smallvec};

/// A fragment in a DATA chunk.
#[derive(Debug, Clone)]
pub(crate) struct Fragment {
    pub(crate) info: RecvInfo,
    pub(crate) beginning: bool,
    pub(crate) ending: bool,
    pub(crate) payload: Bytes,
}

/// Blocks of a message. Two fit in place: a message that was fragmented at the end of a packet.
pub(crate) type Parts = SmallVec<[Bytes; 2]>;

/// Neighbouring fragments of one message, in TSN order, without a gap.
#[derive(Debug)]
struct Run {
    /// Description of the first fragment.
    info: RecvInfo,
    beginning: bool,
    ending: bool,
    /// TSN after the last fragment.
    end: u64,
    /// Whether a part was taken.
    taken: bool,
    /// Parts before `parts`, the last first.
    front: Vec<Bytes>,
    parts: Parts,
    bytes: usize,
    /// Number of chunks of the run.
    chunks: u32,
    /// Number of parts, from the first on, that have memory of their own. The following ones may be slices of receive
    /// blocks.
    detached: u32,
}

/// Number of parts for which memory is allocated when the message in order gets its third part: a message of 16 KB in
/// Ethernet packets allocates once.
const PARTS_MORE: usize = 24;
/// Maximum number of parts for which memory is kept for the next message.
const SPARE_PARTS_MAX: usize = 256;

/// A complete message, or the next part of one.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) info: RecvInfo,
    pub(crate) parts: Parts,
    pub(crate) bytes: usize,
    /// Number of chunks of the message or part.
    pub(crate) chunks: usize,
    /// Whether an earlier part was taken.
    pub(crate) rest: bool,
}

/// The peer's fragments do not fit together; the text states how.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) struct FragmentError(pub(crate) &'static str);

#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// The message that in-order chunks extend.
    current: Option<Run>,
    /// Runs beyond the first gap, by the TSN of their first fragment.
    runs: BTreeMap<u64, Box<Run>>,
    /// Memory for the parts of the next message, returned by a delivered one.
    spare: Vec<Bytes>,
}

impl Reassembly {
    /// Takes the fragment at the in-order position `tsn`.
    pub(crate) fn in_order(
        &mut self,
        tsn: u64,
        fragment: Fragment,
    ) -> Result<Option<Assembled>, FragmentError> {
        // The usual fragment extends the message in place; a run of its own would be moved several times.
        if let Some(current) = &mut self.current
            && !fragment.beginning
            && same_message(&current.info, &fragment.info)
        {
            if current.parts.len() == current.parts.capacity() {
                make_room(&mut current.parts, &mut self.spare);
            }
            current.push(tsn, fragment);
            return Ok(self.current.take_if(|run| run.ending).map(Run::into_assembled));
        }
        self.extend_current(Run::of(tsn, fragment))
    }

    /// Handles an advance of the cumulative TSN: runs at or below it become the current message.
    pub(crate) fn advance(&mut self, cumulative: u64) -> Result<Option<Assembled>, FragmentError> {
        let mut done = None;
        while let Some(entry) = self.runs.first_entry() {
            if *entry.key() > cumulative {
                break;
            }
            let run = entry.remove();
            // Complete runs never wait, so only the end of the current message and the beginning of the next can be
            // here: at most one message results.
            if let Some(message) = self.extend_current(*run)? {
                done = Some(message);
            }
        }
        Ok(done)
    }

    /// Takes a fragment beyond a gap, which may wait for long: its payload is copied out of its receive block. Returns
    /// the message if the fragment completes one.
    pub(crate) fn out_of_order(
        &mut self,
        tsn: u64,
        fragment: Fragment,
    ) -> Result<Option<Assembled>, FragmentError> {
        let payload = Bytes::copy_from_slice(&fragment.payload);
        let mut run = Run { detached: 1, ..Run::of(tsn, Fragment { payload, ..fragment }) };
        let mut start = tsn;
        if let Some((&left_start, left)) = self.runs.range(..tsn).next_back()
            && left.end == tsn
            && !left.ending
            && !run.beginning
        {
            if !same_message(&left.info, &run.info) {
                return Err(FragmentError("neighbouring fragments name different messages"));
            }
            if let Some(left) = self.runs.remove(&left_start) {
                run = left.join(run);
                start = left_start;
            }
        }
        if !run.ending
            && let Some(right) = self.runs.remove(&run.end)
        {
            if right.beginning {
                self.runs.insert(run.end, right);
            } else if same_message(&right.info, &run.info) {
                run = run.join(*right);
            } else {
                return Err(FragmentError("neighbouring fragments name different messages"));
            }
        }
        if run.beginning && run.ending {
            return Ok(Some(run.into_assembled()));
        }
        self.runs.insert(start, Box::new(run));
        Ok(None)
    }

    /// Returns whether a part of the message in order may lie in a receive block.
    pub(crate) fn is_attached(&self) -> bool {
        self.current.as_ref().is_some_and(|run| (run.detached as usize) < run.len())
    }

    /// Copies the parts of the message in order that are slices of receive blocks. No part beyond a gap is one.
    pub(crate) fn detach(&mut self) {
        if let Some(run) = &mut self.current {
            run.detach();
        }
    }

    /// Returns whether a part of the unfinished message was delivered already.
    pub(crate) fn is_partly_delivered(&self) -> bool {
        self.current.as_ref().is_some_and(|run| run.taken)
    }

    /// Returns whether a message is unfinished to which the next chunk in order must belong.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.current.is_some()
    }

    /// Returns the number of bytes of the current message that wait for its end.
    pub(crate) fn current_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |run| run.bytes)
    }

    /// Returns the TSN at which the last fragments beyond a gap begin.
    pub(crate) fn last_run_start(&self) -> Option<u64> {
        self.runs.last_key_value().map(|(&start, _)| start)
    }

    /// Drops the last contiguous fragments beyond a gap. Returns their TSNs and their bytes.
    pub(crate) fn drop_last_run(&mut self) -> Option<(Range<u64>, usize)> {
        let (start, run) = self.runs.pop_last()?;
        Some((start..run.end, run.bytes))
    }

    /// Returns the number of waiting bytes and chunks.
    pub(crate) fn held(&self) -> (usize, usize) {
        let runs = self.runs.values().map(Box::as_ref).chain(&self.current);
        runs.fold((0, 0), |(bytes, chunks), run| (bytes + run.bytes, chunks + run.chunks as usize))
    }

    /// Takes back memory of parts that is no longer needed.
    pub(crate) fn recycle(&mut self, parts: Parts) {
        if parts.spilled() {
            self.recycle_memory(parts.into_vec());
        }
    }

    pub(crate) fn recycle_memory(&mut self, mut memory: Vec<Bytes>) {
        if (self.spare.capacity() + 1..=SPARE_PARTS_MAX).contains(&memory.capacity()) {
            memory.clear();
            self.spare = memory;
        }
    }

    /// Returns the parts in memory that can be delivered to the host.
    pub(crate) fn hand_out(&mut self, parts: Parts) -> Vec<Bytes> {
        if parts.spilled() {
            return parts.into_vec();
        }
        let mut blocks = std::mem::take(&mut self.spare);
        blocks.extend(parts);
        blocks
    }

    /// Takes the available bytes of the current message, as a part of it (RFC 9260 §6.9, partial delivery).
    pub(crate) fn take_part(&mut self) -> Option<Assembled> {
        let run = self.current.as_mut().filter(|run| run.bytes > 0)?;
        let part = Assembled {
            info: RecvInfo { more: true, ..run.info },
            bytes: run.bytes,
            chunks: run.chunks as usize,
            parts: run.take_parts(),
            rest: run.taken,
        };
        (run.bytes, run.chunks, run.detached) = (0, 0, 0);
        run.taken = true;
        Some(part)
    }

    fn extend_current(&mut self, next: Run) -> Result<Option<Assembled>, FragmentError> {
        let run = match self.current.take() {
            None if next.beginning => next,
            None => return Err(FragmentError("a message without its first fragment")),
            Some(_) if next.beginning => return Err(FragmentError("a new message inside an unfinished one")),
            Some(mut current) if same_message(&current.info, &next.info) => {
                if current.parts.len() == current.parts.capacity() {
                    make_room(&mut current.parts, &mut self.spare);
                }
                current.join(next)
            }
            Some(_) => return Err(FragmentError("neighbouring fragments name different messages")),
        };
        if run.ending {
            return Ok(Some(run.into_assembled()));
        }
        self.current = Some(run);
        Ok(None)
    }
}

impl Run {
    fn of(tsn: u64, fragment: Fragment) -> Self {
        Run {
            info: fragment.info,
            beginning: fragment.beginning,
            ending: fragment.ending,
            end: tsn + 1,
            taken: false,
            front: Vec::new(),
            bytes: fragment.payload.len(),
            parts: smallvec![fragment.payload],
            chunks: 1,
            detached: 0,
        }
    }

    fn len(&self) -> usize {
        self.front.len() + self.parts.len()
    }

    /// Appends the next fragment of the message.
    #[inline]
    fn push(&mut self, tsn: u64, fragment: Fragment) {
        self.bytes += fragment.payload.len();
        self.parts.push(fragment.payload);
        self.chunks += 1;
        (self.end, self.ending) = (tsn + 1, fragment.ending);
    }

    /// Returns `self` followed by `right`. The shorter side is moved, so that the cost does not depend on the order of
    /// arrival.
    fn join(mut self, mut right: Run) -> Run {
        let detached = match self.len() {
            all if self.detached as usize == all => self.detached + right.detached,
            _ => self.detached,
        };
        let chunks = self.chunks + right.chunks;
        if right.len() > self.len() {
            right.front.extend(self.parts.into_iter().rev());
            right.front.append(&mut self.front);
            return Run {
                info: self.info,
                beginning: self.beginning,
                taken: self.taken,
                bytes: self.bytes + right.bytes,
                chunks,
                detached,
                ..right
            };
        }
        self.parts.extend(right.front.into_iter().rev());
        self.parts.append(&mut right.parts);
        self.ending = right.ending;
        self.end = right.end;
        self.bytes += right.bytes;
        (self.chunks, self.detached) = (chunks, detached);
        self
    }

    /// Copies the parts that may lie in receive blocks into one.
    fn detach(&mut self) {
        let from = self.detached as usize;
        if from == self.len() {
            return;
        }
        if !self.front.is_empty() {
            self.parts = self.take_parts();
        }
        let copy = Bytes::from(self.parts[from..].concat());
        self.parts.truncate(from);
        self.parts.push(copy);
        self.detached += 1;
    }

    /// Takes the parts out, in order.
    fn take_parts(&mut self) -> Parts {
        let parts = std::mem::take(&mut self.parts);
        if self.front.is_empty() {
            return parts;
        }
        let mut all = std::mem::take(&mut self.front);
        all.reverse();
        all.extend(parts);
        Parts::from_vec(all)
    }

    fn into_assembled(mut self) -> Assembled {
        let (bytes, chunks) = (self.bytes, self.chunks as usize);
        Assembled { info: self.info, bytes, chunks, parts: self.take_parts(), rest: self.taken }
    }
}

impl Assembled {
    /// Copies a message that has to wait into one block of its own.
    pub(crate) fn detach(&mut self) {
        self.parts = smallvec![Bytes::from(self.parts.concat())];
    }
}

/// Makes room for more parts, in the memory of an earlier message if there is any.
fn make_room(parts: &mut Parts, spare: &mut Vec<Bytes>) {
    if spare.capacity() > parts.len() {
        let mut more = Parts::from_vec(std::mem::take(spare));
        more.append(parts);
        *parts = more;
    } else if !parts.spilled() {
        // A message of more than two parts usually has many.
        parts.reserve_exact(PARTS_MORE);
    }
}

/// Returns whether two fragments belong to the same message.
fn same_message(a: &RecvInfo, b: &RecvInfo) -> bool {
    a.stream == b.stream && a.unordered == b.unordered && (a.unordered || a.ssn == b.ssn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fragment(message: u16, beginning: bool, ending: bool, byte: u8) -> Fragment {
        Fragment {
            info: RecvInfo { ssn: message, ..RecvInfo::default() },
            beginning,
            ending,
            payload: Bytes::copy_from_slice(&[byte]),
        }
    }

    fn bytes(message: &Assembled) -> Vec<u8> {
        message.parts.concat()
    }

    #[test]
    fn a_message_completed_beyond_a_gap_comes_out_at_once() {
        let mut r = Reassembly::default();
        assert!(r.out_of_order(12, fragment(1, false, true, 3)).unwrap().is_none());
        assert!(r.out_of_order(10, fragment(1, true, false, 1)).unwrap().is_none());
        let message = r.out_of_order(11, fragment(1, false, false, 2)).unwrap().unwrap();
        assert_eq!(bytes(&message), [1, 2, 3]);
    }

    #[test]
    fn a_message_without_its_beginning_is_an_error() {
        let mut r = Reassembly::default();
        assert!(r.in_order(10, fragment(1, false, true, 3)).is_err());
    }

    #[test]
    fn parts_are_taken_before_the_end_comes() {
        let mut r = Reassembly::default();
        assert!(r.in_order(10, fragment(1, true, false, 1)).unwrap().is_none());
        let part = r.take_part().unwrap();
        assert!(part.info.more);
        assert!(r.take_part().is_none());
        let rest = r.in_order(11, fragment(1, false, true, 2)).unwrap().unwrap();
        assert!(!rest.info.more);
        assert_eq!(bytes(&rest), [2]);
    }

    #[test]
    fn a_long_message_comes_together_from_its_end() {
        let mut r = Reassembly::default();
        let count = 5000;
        for n in (1..count).rev() {
            assert!(r.out_of_order(n, fragment(1, false, n == count - 1, n as u8)).unwrap().is_none());
        }
        let message = r.out_of_order(0, fragment(1, true, false, 0)).unwrap().unwrap();
        assert_eq!(bytes(&message), (0..count).map(|n| n as u8).collect::<Vec<_>>());
        assert_eq!(message.chunks as u64, count);
    }

    #[test]
    fn waiting_data_leaves_its_receive_block() {
        let block = Bytes::from(vec![7; 1000]);
        let slice =
            |at: usize| Fragment { payload: block.slice(at..at + 10), ..fragment(1, at == 0, false, 0) };
        let mut r = Reassembly::default();
        for tsn in 20..30 {
            assert!(r.out_of_order(tsn, slice(tsn as usize)).unwrap().is_none());
        }
        assert!(block.is_unique(), "nothing beyond a gap keeps it");
        for tsn in 0..10 {
            assert!(r.in_order(tsn, slice(tsn as usize)).unwrap().is_none());
        }
        assert!(r.is_attached() && !block.is_unique());
        r.detach();
        assert!(!r.is_attached() && block.is_unique());
        for tsn in 10..20 {
            assert!(r.in_order(tsn, slice(tsn as usize)).unwrap().is_none());
        }
        assert!(r.advance(29).unwrap().is_none());
        r.detach();
        assert!(!r.is_attached() && block.is_unique());
        let message = r.in_order(30, fragment(1, false, true, 7)).unwrap().unwrap();
        assert_eq!((bytes(&message), message.bytes), (vec![7; 301], 301));
    }

    proptest! {
        /// Messages of one to five fragments, arriving in any order: each comes out once and whole.
        #[test]
        fn any_order_gives_every_message_once(sizes in proptest::collection::vec(1usize..6, 1..8), seed in any::<u64>()) {
            let mut fragments = Vec::new();
            let mut tsn = 100u64;
            for (i, &n) in sizes.iter().enumerate() {
                for k in 0..n {
                    fragments.push((tsn, fragment(i as u16, k == 0, k == n - 1, tsn as u8)));
                    tsn += 1;
                }
            }
            let mut order = fragments.clone();
            let mut state = seed | 1;
            for i in (1..order.len()).rev() {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                order.swap(i, (state >> 33) as usize % (i + 1));
            }
            let mut r = Reassembly::default();
            let mut arrived = std::collections::BTreeSet::new();
            let mut cumulative = 99u64;
            let mut out = Vec::new();
            for (tsn, f) in order {
                arrived.insert(tsn);
                let single = f.beginning && f.ending;
                if tsn == cumulative + 1 {
                    if single { out.push((f.info.ssn, f.payload.to_vec())); }
                    else if let Some(m) = r.in_order(tsn, f).unwrap() { out.push((m.info.ssn, bytes(&m))); }
                    while arrived.contains(&(cumulative + 1)) { cumulative += 1; }
                    if let Some(m) = r.advance(cumulative).unwrap() { out.push((m.info.ssn, bytes(&m))); }
                } else if single { out.push((f.info.ssn, f.payload.to_vec())); }
                else if let Some(m) = r.out_of_order(tsn, f).unwrap() { out.push((m.info.ssn, bytes(&m))); }
            }
            out.sort();
            let mut expected = Vec::new();
            let mut tsn = 100u64;
            for (i, &n) in sizes.iter().enumerate() {
                expected.push((i as u16, (0..n).map(|k| (tsn + k as u64) as u8).collect::<Vec<_>>()));
                tsn += n as u64;
            }
            prop_assert_eq!(out, expected);
            prop_assert!(r.runs.is_empty() && r.current.is_none());
        }
    }
}
