//! The ring's protocol under loom, which runs each test in the orders of memory accesses that the language permits. Threads on a
//! real processor show few of these orders.
//!
//! The model does not delay a load beyond a later store. So it does not show that the reader's position needs its order
//! (`Release` and `Acquire`): a writer could otherwise replace the bytes of a record before the reader has loaded them.
//!
//! The ring has room for 64 bytes here, and each record takes 16 of them, so some paths are not reached: no record lies across
//! the end of the memory; the reader reports after each record (`STEP_BYTES` is 8), and never after several; and writers go
//! back to the beginning from one place alone, half of the memory (`NEAR_BYTES` is 32). `tests/ring.rs` reaches these, with
//! the processor's orders of accesses alone.
//!
//! `./test --only model` runs it.
#![cfg(loom)]

use std::sync::Arc;

use loom::sync::Mutex;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use ring::{PutOutcome, ROOM_BYTES, Reader, ReaderWords, Ring, WORDS, Writer};

struct Memory {
    words: [AtomicU64; WORDS],
    reader: ReaderWords,
}

impl Memory {
    fn new() -> Arc<Memory> {
        Arc::new(Memory {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            reader: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.words, &self.reader)
    }
}

/// Puts a record of one word.
fn put(ring: Ring<'_>, number: u64) -> PutOutcome {
    Writer::new(ring).put(8, |record| record.push(&number.to_ne_bytes()))
}

/// Removes the next record. Returns its content, and whether a writer waits for room that is there now.
fn take(reader: &mut Reader, ring: Ring<'_>) -> Option<(u64, bool)> {
    let bytes = reader.next(ring).expect("each writer keeps the rules")?;
    assert_eq!(bytes, 8);
    let mut content = [0; 8];
    reader.read(ring, &mut content);
    Some((u64::from_ne_bytes(content), reader.taken(ring, bytes)))
}

/// Runs a reader and a writer beside each other in every order, and then `check` with their results.
///
/// The model compares each access with the last one to the same word alone, and so does not see that a load conflicts with
/// a later store if the storing thread has loaded the word in between. Each of the two is the first to run once,
/// which shows the orders that the other one hides.
fn beside<R: 'static, W: 'static>(
    prepare: fn(Ring<'_>) -> Reader,
    read: fn(&mut Reader, Ring<'_>) -> R,
    write: fn(Ring<'_>) -> W,
    check: fn(&mut Reader, Ring<'_>, R, W),
) {
    for reader_is_first in [false, true] {
        loom::model(move || {
            let memory = Memory::new();
            let mut reader = prepare(memory.ring());
            let (found, written);
            if reader_is_first {
                let writer = thread::spawn({
                    let memory = memory.clone();
                    move || write(memory.ring())
                });
                found = read(&mut reader, memory.ring());
                written = writer.join().expect("the writer ends");
            } else {
                let thread = thread::spawn({
                    let memory = memory.clone();
                    move || {
                        let found = read(&mut reader, memory.ring());
                        (reader, found)
                    }
                });
                written = write(memory.ring());
                (reader, found) = thread.join().expect("the reader ends");
            }
            check(&mut reader, memory.ring(), found, written);
        });
    }
}

/// A record that a reader does not find before it sleeps wakes it, and its content is complete when it is visible.
#[test]
fn a_reader_that_sleeps_is_woken() {
    beside(
        |_| Reader::default(),
        |reader, ring| {
            let found = take(reader, ring);
            (found, found.is_none() && reader.sleep(ring))
        },
        |ring| put(ring, 7),
        |reader, ring, (found, sleeps), put| {
            let PutOutcome::Done { sleep } = put else { panic!("the ring was empty") };
            assert!(!sleeps || sleep.is_some(), "the reader would sleep forever");
            assert_eq!(found.or_else(|| take(reader, ring)).map(|(content, _)| content), Some(7));
        },
    );
}

/// A writer of several records looks for the sleep of the reader once, behind the last one.
#[test]
fn a_reader_that_sleeps_is_woken_for_several_records_at_once() {
    beside(
        |_| Reader::default(),
        |reader, ring| {
            let found = [take(reader, ring), take(reader, ring)].into_iter().flatten().count();
            (found, found < 2 && reader.sleep(ring))
        },
        |ring| {
            let writer = Writer::new(ring);
            for number in [7_u64, 8] {
                let put = writer.try_put_of_several(8, |record| {
                    record.push(&number.to_ne_bytes());
                    Ok::<(), ()>(())
                });
                assert_eq!(put, Ok(true));
            }
            writer.sleep_to_end()
        },
        |reader, ring, (found, sleeps), sleep| {
            assert!(!sleeps || sleep.is_some(), "the reader would sleep forever");
            let rest = std::iter::from_fn(|| take(reader, ring)).count();
            assert_eq!(found + rest, 2);
        },
    );
}

/// Two writers that find one sleep get its number both, so that one of them wakes the reader, and no record is lost.
#[test]
fn two_writers_agree_on_who_wakes_the_reader() {
    loom::model(|| {
        let memory = Memory::new();
        // The lock of the writers, with the number of the last sleep that one of them has ended.
        let lock = Arc::new(Mutex::new(None));
        let wakes = Arc::new(AtomicU64::new(0));
        let writers = [1, 2].map(|number| {
            let (memory, lock, wakes) = (memory.clone(), lock.clone(), wakes.clone());
            thread::spawn(move || {
                let mut ended = lock.lock().expect("no writer panics");
                let PutOutcome::Done { sleep } = put(memory.ring(), number) else { panic!("there is room") };
                if sleep.is_some() && *ended != sleep {
                    *ended = sleep;
                    wakes.fetch_add(1, Relaxed);
                }
            })
        });
        let mut reader = Reader::default();
        let sleeps = reader.sleep(memory.ring());
        for writer in writers {
            writer.join().expect("the writer ends");
        }
        let wakes = wakes.load(Relaxed);
        assert!(wakes <= 1 && (!sleeps || wakes == 1), "{wakes} wake-ups");
        let contents = [(); 2].map(|()| take(&mut reader, memory.ring()).expect("a record").0);
        assert_eq!(contents.iter().sum::<u64>(), 3);
    });
}

/// A writer that asks to be notified, and finds no room when it looks again, is notified of room.
#[test]
fn a_writer_that_waits_for_room_is_told() {
    const RECORDS: usize = ROOM_BYTES / 16;
    beside(
        |ring| {
            (0..RECORDS as u64)
                .for_each(|number| assert!(matches!(put(ring, number), PutOutcome::Done { .. })));
            Reader::default()
        },
        |reader, ring| [(); RECORDS].map(|()| take(reader, ring).expect("the ring was full")),
        |ring| {
            let writer = Writer::new(ring);
            writer.fits(8) || {
                writer.request_notification();
                writer.fits(8)
            }
        },
        |_, _, found, has_room| {
            assert!(found.iter().zip(0..).all(|((content, _), number)| *content == number), "{found:?}");
            assert!(has_room || found.iter().any(|(_, tells)| *tells), "the writer would wait forever");
        },
    );
}

/// Records stay whole while the writer reuses room, and goes back to the beginning of the memory.
#[test]
fn room_is_not_reused_before_it_is_read() {
    beside(
        |ring| {
            // Half of the memory has been used and read, so that the next record may go back to the beginning.
            let mut reader = Reader::default();
            for number in 0..2 {
                put(ring, number);
                take(&mut reader, ring);
            }
            reader
        },
        |reader, ring| [(); 2].map(|()| take(reader, ring).map(|(content, _)| content)),
        |ring| (2..5).take_while(|number| matches!(put(ring, *number), PutOutcome::Done { .. })).count(),
        |reader, ring, found, written| {
            let mut contents: Vec<u64> = found.into_iter().flatten().collect();
            contents.extend(std::iter::from_fn(|| take(reader, ring)).map(|(content, _)| content));
            assert_eq!(contents, (2..2 + written as u64).collect::<Vec<_>>());
        },
    );
}
