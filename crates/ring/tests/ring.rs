//! A ring against a queue, with a reader and writers on threads of their own, and with processes that break the rules.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Barrier, Mutex};
use std::thread;

use proptest::prelude::*;
use ring::{
    Broken, CONTROL_WORDS, LONG_RECORD_BYTES_MAX, LONG_WORDS, PutOutcome, RECORD_BYTES_MAX, ROOM_BYTES,
    Reader, ReaderWords, Ring, WORDS, Writer,
};

/// The memory of the writers, and that of the reader.
struct Memory {
    words: Vec<AtomicU64>,
    reader: ReaderWords,
}

impl Memory {
    fn new() -> Memory {
        Memory::of(WORDS)
    }

    /// Returns the memory of a long ring.
    fn long() -> Memory {
        Memory::of(LONG_WORDS)
    }

    fn of(words: usize) -> Memory {
        let words = std::iter::repeat_with(AtomicU64::default).take(words).collect();
        Memory { words, reader: ReaderWords::default() }
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.words, &self.reader)
    }
}

/// A record went into the ring, and the reader was awake.
const DONE: PutOutcome = PutOutcome::Done { sleep: None };

/// Returns the content of a record with this number.
fn content(number: u64, bytes: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().chain((0..).map(|at: u64| (number + at) as u8)).take(bytes).collect()
}

/// Puts a record in parts of this length.
fn put(ring: Ring<'_>, bytes: &[u8], part: usize) -> PutOutcome {
    Writer::new(ring).put(bytes.len(), |record| bytes.chunks(part.max(1)).for_each(|part| record.push(part)))
}

fn take(reader: &mut Reader, ring: Ring<'_>) -> Result<Option<Vec<u8>>, Broken> {
    let Some(bytes) = reader.next(ring)? else { return Ok(None) };
    let mut content = vec![0; bytes];
    reader.read(ring, &mut content);
    let words = reader.words(ring, 0, bytes).expect("memory");
    assert!(words.iter().flat_map(|word| word.to_ne_bytes()).take(bytes).eq(content.iter().copied()));
    reader.taken(ring, bytes);
    Ok(Some(content))
}

#[derive(Clone, Debug)]
enum Step {
    Put { bytes: usize, part: usize },
    Take,
    Sleep,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        4 => 0..200_usize,
        2 => 0..20_000_usize,
        1 => 0..=RECORD_BYTES_MAX,
        1 => 0..=LONG_RECORD_BYTES_MAX,
    ];
    prop_oneof![
        5 => (bytes, 1..70_000_usize).prop_map(|(bytes, part)| Step::Put { bytes, part }),
        4 => Just(Step::Take),
        1 => Just(Step::Sleep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn it_is_a_queue(is_long in any::<bool>(), steps in prop::collection::vec(step(), 1..400)) {
        let memory = if is_long { Memory::long() } else { Memory::new() };
        let (ring, mut reader, mut queue) = (memory.ring(), Reader::default(), VecDeque::new());
        let (mut number, mut is_asleep) = (0, false);
        for step in steps {
            match step {
                Step::Put { bytes, part } => {
                    number += 1;
                    let record = content(number, bytes);
                    let takes = Writer::new(ring).fits(bytes);
                    match put(ring, &record, part) {
                        PutOutcome::Done { sleep } => {
                            prop_assert!(takes);
                            prop_assert_eq!(sleep.is_some(), is_asleep);
                            queue.push_back(record);
                        }
                        PutOutcome::Full => {
                            let held: usize = queue.iter().map(|record| record.len() + 16).sum();
                            let needed = if is_long { bytes.min(ROOM_BYTES / 8) } else { bytes };
                            // The reader tells of room in steps of an eighth.
                            prop_assert!(!takes && held + needed + 16 > ROOM_BYTES * 7 / 8, "{} held, {} more", held, bytes);
                        }
                    }
                }
                Step::Take => {
                    prop_assert_eq!(take(&mut reader, ring), Ok(queue.pop_front()));
                    reader.wake(ring);
                    is_asleep = false;
                }
                Step::Sleep => {
                    is_asleep = reader.sleep(ring);
                    prop_assert_eq!(is_asleep, queue.is_empty());
                }
            }
        }
        while let Some(record) = queue.pop_front() {
            prop_assert_eq!(take(&mut reader, ring), Ok(Some(record)));
        }
        prop_assert_eq!((take(&mut reader, ring), reader.waiting(ring)), (Ok(None), Ok(0)));
    }

    /// With any content of the memory, the reader ends, and finds no more than the memory can hold.
    #[test]
    fn a_reader_survives_what_nobody_would_write(
        is_long in any::<bool>(),
        tail in prop_oneof![any::<u64>(), 0..3 * ROOM_BYTES as u64],
        skipped in any::<u64>(),
        lengths in prop::collection::vec(prop_oneof![any::<u64>(), 0..2_000_000_u64, 0..64_u64], 1..64),
    ) {
        let memory = if is_long { Memory::long() } else { Memory::new() };
        for (place, length) in memory.words[CONTROL_WORDS..].iter().zip(lengths.iter().cycle()) {
            place.store(*length, Relaxed);
        }
        memory.words[0].store(tail, Relaxed);
        memory.words[2].store(skipped, Relaxed);
        let (ring, mut reader, mut found) = (memory.ring(), Reader::default(), 0);
        while let Ok(Some(_)) = take(&mut reader, ring) {
            found += 1;
        }
        prop_assert!(found <= 2 * memory.words.len(), "{} records", found);
    }
}

#[test]
fn a_record_that_is_not_complete_is_not_seen() {
    let memory = Memory::new();
    let (ring, mut reader) = (memory.ring(), Reader::default());
    let done = Writer::new(ring).put(5, |record| {
        record.push(b"hel");
        assert_eq!(reader.next(ring), Ok(None));
        // Bytes beyond the length are left out.
        record.push(b"lo, world");
    });
    assert_eq!(done, DONE);
    assert_eq!(take(&mut reader, ring), Ok(Some(b"hello".to_vec())));
}

#[test]
fn a_record_that_its_writer_withdraws_is_not_seen() {
    let memory = Memory::new();
    let (ring, mut reader) = (memory.ring(), Reader::default());
    let withdrawn = Writer::new(ring).try_put(5, |record| {
        record.push(b"hello");
        Err("it is late")
    });
    assert_eq!(withdrawn, Err("it is late"));
    assert_eq!(take(&mut reader, ring), Ok(None));
    assert_eq!(put(ring, b"later", 5), DONE);
    assert_eq!(take(&mut reader, ring), Ok(Some(b"later".to_vec())));
}

#[test]
fn the_longest_record_fits_an_empty_ring_and_no_longer_one_does() {
    for (memory, longest) in [(Memory::new(), RECORD_BYTES_MAX), (Memory::long(), LONG_RECORD_BYTES_MAX)] {
        let (ring, mut reader) = (memory.ring(), Reader::default());
        assert_eq!(ring.is_long(), longest > RECORD_BYTES_MAX);
        for bytes in [longest + 1, usize::MAX] {
            assert!(!Writer::new(ring).fits(bytes), "{bytes}");
        }
        let longest = content(1, longest);
        assert_eq!(put(ring, &longest, 1000), DONE);
        assert_eq!(take(&mut reader, ring), Ok(Some(longest)));
    }
}

/// A long record needs no more room than one of an eighth of the ring, wherever it begins, and others find none behind it.
#[test]
fn a_long_record_is_taken_whole_as_soon_as_there_is_any_room() {
    let memory = Memory::long();
    let (ring, mut reader) = (memory.ring(), Reader::default());
    let enough = ROOM_BYTES / 8;
    for round in 0..if cfg!(miri) { 1 } else { 20 } {
        let mut held = 0;
        while Writer::new(ring).fits(enough) {
            assert_eq!(put(ring, &content(held, 7000), 7000), DONE);
            held += 1;
        }
        assert!(!Writer::new(ring).fits(LONG_RECORD_BYTES_MAX), "{round}");
        for number in 0..held {
            assert_eq!(take(&mut reader, ring), Ok(Some(content(number, 7000))), "{round}");
            let fits = Writer::new(ring).fits(LONG_RECORD_BYTES_MAX);
            assert_eq!(fits, Writer::new(ring).fits(enough), "{round}");
            if fits && number >= round % held {
                let long = content(round, LONG_RECORD_BYTES_MAX - round as usize);
                assert_eq!(put(ring, &long, 100_000), DONE, "{round}");
                assert!(!Writer::new(ring).fits(0), "the ring is full");
                for number in number + 1..held {
                    assert_eq!(take(&mut reader, ring), Ok(Some(content(number, 7000))), "{round}");
                }
                assert_eq!(take(&mut reader, ring), Ok(Some(long)), "{round}");
                break;
            }
        }
        assert_eq!(take(&mut reader, ring), Ok(None));
    }
}

#[test]
fn a_long_record_that_is_always_taken_at_once_lies_at_the_beginning_of_the_memory() {
    let memory = Memory::long();
    let (ring, mut reader) = (memory.ring(), Reader::default());
    let record = content(7, 600_000);
    for _ in 0..50 {
        put(ring, &record, record.len());
        assert!(take(&mut reader, ring).is_ok_and(|taken| taken.as_deref() == Some(&record[..])));
    }
    let used = memory.words[CONTROL_WORDS..].iter().rposition(|word| word.load(Relaxed) != 0);
    assert!(used.is_some_and(|last| last * 8 <= 600_000), "{used:?}");
}

#[test]
fn bytes_beyond_the_length_of_a_record_change_no_other() {
    let memory = Memory::new();
    Writer::new(memory.ring()).put(8, |record| (0..3).for_each(|_| record.push(&[7; 8])));
    let content: Vec<u64> =
        memory.words[CONTROL_WORDS..][..4].iter().map(|word| word.load(Relaxed)).collect();
    assert_eq!(content, [8, u64::from_ne_bytes([7; 8]), 0, 0]);
}

#[test]
fn a_full_ring_is_reported_once_half_of_it_is_free() {
    let memory = Memory::new();
    let (ring, mut reader) = (memory.ring(), Reader::default());
    let record = vec![7; 1000];
    let mut held = 0;
    while put(ring, &record, 1000) != PutOutcome::Full {
        held += 1;
    }
    Writer::new(ring).request_notification();
    assert_eq!(put(ring, &record, 1000), PutOutcome::Full, "nothing was removed");
    let mut taken = 0;
    while !{
        let bytes = reader.next(ring).expect("records").expect("one more");
        taken += 1;
        reader.taken(ring, bytes)
    } {}
    assert!((held / 2..held * 3 / 4).contains(&taken), "{taken} of {held}");
    assert_ne!(put(ring, &record, 1000), PutOutcome::Full);
    while let Some(bytes) = reader.next(ring).expect("records") {
        assert!(!reader.taken(ring, bytes), "nobody waits");
    }
}

#[test]
fn a_ring_that_never_holds_much_stays_at_the_beginning_of_its_memory() {
    let memory = Memory::new();
    let (ring, mut reader) = (memory.ring(), Reader::default());
    for number in 0..20_000 {
        put(ring, &content(number, 300), 300);
        assert_eq!(take(&mut reader, ring), Ok(Some(content(number, 300))));
    }
    let used = memory.words[CONTROL_WORDS..].iter().rposition(|word| word.load(Relaxed) != 0);
    assert!(used.is_some_and(|last| last * 8 < 5 * 1024), "{used:?}");
}

#[test]
fn a_record_across_the_end_of_the_memory_comes_whole() {
    let memory = Memory::new();
    let (ring, mut reader) = (memory.ring(), Reader::default());
    // One record is always left, so no writer goes back to the beginning.
    put(ring, &content(0, 1000), 1000);
    for number in 1..2 * (ROOM_BYTES / 1000) as u64 {
        assert_eq!(put(ring, &content(number, 1000), 1000), DONE);
        assert_eq!(take(&mut reader, ring), Ok(Some(content(number - 1, 1000))));
    }
}

#[test]
fn the_memory_that_a_writer_skips_is_free() {
    let memory = Memory::new();
    let (ring, mut reader) = (memory.ring(), Reader::default());
    // The word with the position that was skipped.
    while memory.words[2].load(Relaxed) == 0 {
        assert_eq!(take(&mut reader, ring).map(|_| ()), Ok(()));
        assert_eq!(put(ring, &[7; 1000], 1000), DONE);
    }
    // A record takes its length and a word.
    assert!(Writer::new(ring).fits(ROOM_BYTES - 1008 - 8), "the reader has not passed it yet");
    assert!(!Writer::new(ring).fits(ROOM_BYTES - 1008));
}

/// The reader sleeps whenever it finds nothing, and waits for the writer that wakes it: the first that finds a sleep.
#[test]
fn no_record_and_no_wake_up_is_lost() {
    const WRITERS: u64 = 3;
    let each = if cfg!(miri) { 40 } else { 30_000 };
    let memory = Memory::new();
    // The number of the last sleep that a writer has ended.
    let (ring, lock) = (memory.ring(), Mutex::new(None));
    let (wake, is_woken) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (wake, lock) = (wake.clone(), &lock);
            scope.spawn(move || {
                for number in 0..each {
                    let record = content(number * WRITERS + writer, 8 + (number as usize * 37) % 900);
                    loop {
                        let mut ended = lock.lock().expect("nobody panics");
                        match put(ring, &record, 400) {
                            PutOutcome::Full => thread::yield_now(),
                            PutOutcome::Done { sleep } => {
                                if sleep.is_some() && *ended != sleep {
                                    *ended = sleep;
                                    wake.send(()).expect("the reader lives");
                                }
                                break;
                            }
                        }
                    }
                }
            });
        }
        drop(wake);
        let (mut reader, mut next) = (Reader::default(), [0; WRITERS as usize]);
        while next.iter().sum::<u64>() < WRITERS * each {
            let Some(record) = take(&mut reader, ring).expect("nobody breaks the rules") else {
                if reader.sleep(ring) {
                    is_woken.recv().expect("a record comes");
                    reader.wake(ring);
                }
                continue;
            };
            let number = u64::from_le_bytes(record[..8].try_into().expect("eight bytes"));
            let (number, writer) = (number / WRITERS, (number % WRITERS) as usize);
            assert_eq!(
                (number, record),
                (next[writer], content(number * WRITERS + writer as u64, 8 + (number as usize * 37) % 900))
            );
            next[writer] += 1;
        }
    });
}

#[test]
fn each_sleep_has_a_number_of_its_own() {
    let memory = Memory::new();
    let (ring, mut reader) = (memory.ring(), Reader::default());
    let mut last = None;
    for _ in 0..3 {
        assert!(reader.sleep(ring) && reader.sleep(ring), "it may be woken for nothing");
        let [first, second] = [(); 2].map(|()| put(ring, b"hello", 5));
        let PutOutcome::Done { sleep: Some(sleep) } = first else { panic!("it sleeps: {first:?}") };
        assert_eq!(first, second, "one sleep");
        assert_ne!(last.replace(sleep), Some(sleep));
        assert!(!reader.sleep(ring), "there is a record");
        assert_eq!(put(ring, b"hello", 5), DONE);
        while take(&mut reader, ring).expect("records").is_some() {}
    }
    reader.sleep(ring);
    reader.wake(ring);
    assert_eq!(put(ring, b"hello", 5), DONE);
}

#[test]
fn a_reader_goes_on_in_the_memory_of_other_writers() {
    let (one, other) = (Memory::new(), Memory::new());
    let mut reader = Reader::default();
    put(one.ring(), b"hello", 5);
    assert_eq!(take(&mut reader, one.ring()), Ok(Some(b"hello".to_vec())));
    let second = Ring::new(&other.words, &one.reader);
    put(second, b"before", 6);
    reader.move_to(second).expect("a ring");
    assert_eq!(take(&mut reader, second), Ok(None));
    assert!(matches!(put(second, b"after", 5), PutOutcome::Done { sleep: Some(_) }), "it sleeps");
    assert_eq!(take(&mut reader, second), Ok(Some(b"after".to_vec())));
    for tail in [1, 1 << 63, u64::MAX] {
        other.words[0].store(tail, Relaxed);
        assert_eq!(reader.move_to(second), Err(Broken), "{tail}");
    }
}

/// A writer that waits for room after it has asked to be notified is notified, or finds the room when it looks again.
#[test]
fn no_note_of_a_full_ring_is_lost() {
    let rounds = if cfg!(miri) { 2 } else { 2_000 };
    let record = vec![7; ROOM_BYTES / 4];
    let (memory, waits, start) = (Memory::new(), AtomicBool::new(false), Barrier::new(2));
    let ring = memory.ring();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                start.wait();
                // The reader removes records meanwhile. A writer that waits is freed by the reader alone.
                for _ in 0..8 {
                    if put(ring, &record, record.len()) == PutOutcome::Full {
                        waits.store(true, SeqCst);
                        Writer::new(ring).request_notification();
                        while put(ring, &record, record.len()) == PutOutcome::Full {
                            while waits.load(SeqCst) {
                                thread::yield_now();
                            }
                        }
                        waits.store(false, SeqCst);
                    }
                }
                start.wait();
            }
        });
        let mut reader = Reader::default();
        for _ in 0..rounds {
            start.wait();
            let mut taken = 0;
            while taken < 8 {
                let Some(bytes) = reader.next(ring).expect("nobody breaks the rules") else {
                    thread::yield_now();
                    continue;
                };
                taken += 1;
                // The note is reported, or room that was there before the writer has looked again.
                if reader.taken(ring, bytes) || Writer::new(ring).fits(record.len()) {
                    waits.store(false, SeqCst);
                }
            }
            start.wait();
        }
    });
}

#[test]
fn contents_that_no_writer_writes_are_found() {
    let broken = |at: usize, value: u64| {
        let memory = Memory::new();
        let (ring, mut reader) = (memory.ring(), Reader::default());
        put(ring, b"hello", 5);
        memory.words[at].store(value, Relaxed);
        reader.next(ring) == Err(Broken)
    };
    // The tail, the position that was skipped, and the length.
    assert!(!broken(0, 16) && broken(0, 8) && broken(0, 17) && broken(0, 1 << 40) && broken(0, u64::MAX));
    assert!(!broken(2, 8) && broken(2, 1));
    assert!(!broken(CONTROL_WORDS, 8) && broken(CONTROL_WORDS, 9) && broken(CONTROL_WORDS, u64::MAX));
}

/// A writer dies while it writes a record, wherever that begins, and the next one goes on.
#[test]
fn a_writer_that_dies_leaves_nothing_behind() {
    let memory = Memory::new();
    let (ring, mut reader) = (memory.ring(), Reader::default());
    for round in 0..3000_u64 {
        let died = std::panic::catch_unwind(|| {
            Writer::new(ring).put(4000, |record| {
                record.push(b"the beginning");
                // A panic without a message.
                std::panic::resume_unwind(Box::new(()));
            })
        });
        assert!(died.is_err());
        let record = content(round, 1 + round as usize * 7 % 300);
        assert_eq!(put(ring, &record, 100), DONE, "{round}");
        assert_eq!(take(&mut reader, ring), Ok(Some(record)), "{round}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// With any content of the memory, a writer returns: another process that shares the ring must not end it.
    #[test]
    fn a_writer_survives_what_nobody_would_write(
        is_long in any::<bool>(),
        tail in prop_oneof![any::<u64>(), u64::MAX - 100_000..=u64::MAX],
        distance in prop_oneof![0..4096_u64, any::<u64>()],
        bytes in prop_oneof![0..200_usize, 0..=RECORD_BYTES_MAX, 0..=LONG_RECORD_BYTES_MAX],
    ) {
        let memory = if is_long { Memory::long() } else { Memory::new() };
        for (word, value) in [(0, tail & !7), (1, tail.wrapping_sub(distance) & !7)] {
            memory.words[word].store(value, Relaxed);
        }
        let mut reader = Reader::default();
        let ring = memory.ring();
        // The reader's own word is near.
        let _ = reader.move_to(ring);
        for _ in 0..3 {
            let done = put(ring, &content(1, bytes), 1000);
            prop_assert!(done == PutOutcome::Full || matches!(done, PutOutcome::Done { .. }), "{:?}", done);
        }
    }
}
