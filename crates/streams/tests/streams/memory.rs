//! The memory that the data of modules is charged to, and the modules that wait for it (SVR4.2 DDI/DKI `bufcall(D3)`).

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use streams::drivers::Splice;
use streams::modules::Compress;
use streams::{
    Chain, Errno, Executive, Kind, Message, Notify, PopError, RecvInfo, SendInfo, StateCharge, StreamId,
    StreamMemory, Which,
};

use crate::support::{Device, ONE, Rig, epoch, pushed};

/// Length of each message. With a limit of `FEW_BYTES`, two of them fit and the others wait.
const PLAIN_BYTES: usize = 60_000;
/// Room for two messages with what they cost besides.
const FEW_BYTES: usize = 2 * PLAIN_BYTES + 1000;

/// Memory of a user.
#[derive(Debug)]
struct Memory(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    limit_bytes: usize,
    read_bytes: usize,
    write_bytes: usize,
    state_bytes: Arc<AtomicUsize>,
    refusals: usize,
    work: usize,
    waiting: Vec<Weak<Notify>>,
}

/// The charge of a module's state.
#[derive(Debug)]
struct State {
    counted: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for State {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.bytes, Relaxed);
    }
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes", self.read_bytes, self.limit_bytes)
    }
}

impl Memory {
    fn of(limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Counted { limit_bytes, ..Counted::default() })))
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap()
    }

    fn read_bytes(&self) -> usize {
        self.counted().read_bytes
    }

    /// Charges data of somebody else, so that only `bytes` are free.
    fn leave(&self, bytes: usize) -> usize {
        let mut counted = self.counted();
        let others_bytes = counted.limit_bytes - counted.read_bytes - bytes;
        counted.read_bytes += others_bytes;
        others_bytes
    }
}

impl StreamMemory for Memory {
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
    fn take_read(&self, bytes: usize) -> bool {
        let mut counted = self.counted();
        let fits = counted.read_bytes + bytes <= counted.limit_bytes;
        counted.read_bytes += if fits { bytes } else { 0 };
        counted.refusals += usize::from(!fits);
        fits
    }
    fn release_read(&self, bytes: usize) {
        self.counted().read_bytes -= bytes;
        let waiting = std::mem::take(&mut self.counted().waiting);
        waiting.iter().filter_map(Weak::upgrade).for_each(|notify| notify());
    }
    fn charge_write(&self, bytes: usize) {
        self.counted().write_bytes += bytes;
    }
    fn release_write(&self, bytes: usize) {
        self.counted().write_bytes -= bytes;
    }
    fn take_state(&self, bytes: usize) -> Option<StateCharge> {
        let counts = self.counted();
        let (counted, limit_bytes) = (Arc::clone(&counts.state_bytes), counts.limit_bytes);
        let more = |charged: usize| Some(charged + bytes).filter(|charged| *charged <= limit_bytes);
        counted.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Box::new(State { counted, bytes }))
    }
    fn count_work(&self, work: usize) {
        self.counted().work += work;
    }
    fn when_released(&self, notify: Weak<Notify>) {
        self.counted().waiting.push(notify);
    }
}

fn share(rig: &mut Rig, s: StreamId, memory: &Arc<Memory>) {
    let memory = Arc::clone(memory);
    let set = |_: &mut Device, cx: &mut streams::Cx<'_>| cx.set_memory(s, Some(memory));
    rig.executive.at(epoch()).with_driver(rig.driver, set).unwrap();
}

/// Returns a stream with `compress`, and its memory.
fn rig(limit_bytes: usize) -> (Rig, Arc<Memory>) {
    let (mut rig, _) = pushed("compress", &[]);
    let (memory, s) = (Memory::of(limit_bytes), rig.s);
    share(&mut rig, s, &memory);
    (rig, memory)
}

/// Returns messages as the module of the other end compresses them: each is as long as `PLAIN_BYTES` says, and of one byte.
fn compressed(bytes: &[u8]) -> Vec<Message> {
    let (mut other, _) = pushed("compress", &[]);
    other.up(own(vec![1]));
    for &byte in bytes {
        let plain = [byte; PLAIN_BYTES];
        other.executive.write(other.s, Which::Only, SendInfo::default(), &plain, epoch).unwrap();
    }
    let mut sent = std::mem::take(&mut other.state().received);
    sent.retain(|m| m.data.len() > 1);
    sent.into_iter().map(|m| own(m.data)).collect()
}

/// Returns a message of the module of the other end.
fn own(data: impl Into<Chain>) -> Message {
    Message::optdata_ind(ONE, RecvInfo { ppid: Compress::PPID, ..RecvInfo::default() }, data.into())
}

fn up(rig: &mut Rig, messages: Vec<Message>) {
    rig.device(|cx, s| messages.into_iter().for_each(|m| cx.putnext(s, m)));
    rig.executive.at(epoch()).run();
}

/// Takes the first message of a stream; returns its data.
fn take(executive: &mut Executive, s: StreamId) -> Option<Chain> {
    executive.getmsg(s).unwrap().map(|m| m.data)
}

#[test]
fn what_a_module_makes_is_charged_as_long_as_it_exists() {
    let (mut rig, memory) = rig(usize::MAX);
    rig.executive.push_named(rig.s, "bufmod", &[]).unwrap();
    up(&mut rig, compressed(&[1, 2, 3, 4, 5]));
    let charged = memory.read_bytes();
    assert!(charged > 5 * PLAIN_BYTES, "{charged}: the head and a module hold them");
    let first = take(&mut rig.executive, rig.s).unwrap();
    let s = rig.s;
    rig.executive.at(epoch()).close_now(s);
    assert!((PLAIN_BYTES..charged / 4).contains(&memory.read_bytes()), "the reader holds one");
    assert_eq!(first, [1; PLAIN_BYTES][..]);
    drop(first);
    assert_eq!(memory.read_bytes(), 0);
}

/// A reader that waits has the data of receive blocks copied; data with a charge of its own stays where it is.
#[test]
fn data_with_a_charge_keeps_it_when_queues_are_copied() {
    let (mut rig, memory) = rig(usize::MAX);
    for m in compressed(&[1, 2]) {
        let info = m.recv_info().unwrap();
        rig.device(|cx, s| cx.put_data(s, ONE, &info, m.data));
    }
    rig.executive.at(epoch()).run();
    let charged = memory.read_bytes();
    assert!(charged > 2 * PLAIN_BYTES);
    rig.device(|cx, _| {
        assert!(cx.is_attached());
        cx.detach(false);
    });
    assert_eq!(memory.read_bytes(), charged);
    assert_eq!(take(&mut rig.executive, rig.s).unwrap(), [1; PLAIN_BYTES][..]);
}

#[test]
fn a_compressed_message_is_charged_in_this_form() {
    let (mut rig, memory) = rig(0);
    rig.up(own(vec![1]));
    rig.executive.write(rig.s, Which::Only, SendInfo::default(), &[7; PLAIN_BYTES], epoch).unwrap();
    let bytes = rig.state().received[0].data.len();
    let charged = memory.counted().write_bytes;
    assert!((bytes..PLAIN_BYTES / 2).contains(&charged), "{charged} for {bytes}");
    rig.state().received.clear();
    assert_eq!(memory.counted().write_bytes, 0);
}

#[test]
fn a_module_without_memory_waits_with_its_window_until_some_is_released() {
    let (mut rig, memory) = rig(FEW_BYTES);
    let told = Arc::new(Mutex::new(0));
    let tell = Arc::clone(&told);
    rig.executive.set_memory_notify(Box::new(move || *tell.lock().unwrap() += 1));
    let others_bytes = memory.leave(0);
    let messages = compressed(&[1, 2, 3]);
    let wire_bytes: usize = messages.iter().map(|m| m.data.len()).sum();
    up(&mut rig, messages);
    let refusals = memory.counted().refusals;
    for _ in 0..100 {
        rig.executive.at(epoch()).run();
    }
    assert_eq!(memory.counted().refusals, refusals, "it does not ask again and again");
    assert_eq!((rig.executive.getmsg(rig.s), *told.lock().unwrap()), (Ok(None), 0));
    assert!(rig.state().consumed.is_empty(), "their window is not returned");
    memory.release_read(others_bytes);
    assert!(rig.executive.is_runnable());
    assert_eq!(*told.lock().unwrap(), 1);
    rig.executive.at(epoch()).run();
    assert_eq!(rig.executive.describe(rig.s).unwrap().head_queue.messages, 2);
    for byte in [1, 2, 3] {
        assert_eq!(take(&mut rig.executive, rig.s).unwrap(), [byte; PLAIN_BYTES][..]);
        rig.executive.at(epoch()).run();
    }
    let credit: usize = rig.state().consumed.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!((memory.read_bytes(), credit), (0, wire_bytes));
}

#[test]
fn streams_that_share_memory_wait_in_line() {
    let (mut rig, memory) = rig(FEW_BYTES);
    let driver = rig.driver;
    let open = |rig: &mut Rig| {
        let s = rig.executive.open(driver).unwrap();
        rig.executive.push_named(s, "compress", &[]).unwrap();
        share(rig, s, &memory);
        s
    };
    let streams = [rig.s, open(&mut rig), open(&mut rig), open(&mut rig)];
    let free = memory.leave(0) / 2;
    for s in streams {
        let message = compressed(&[s.index() as u8]).pop().unwrap();
        rig.executive.at(epoch()).with_driver(driver, |_: &mut Device, cx| cx.putnext(s, message)).unwrap();
        rig.executive.at(epoch()).run();
    }
    // A stream that is gone holds up nobody.
    rig.executive.at(epoch()).close_now(streams[1]);
    rig.executive.at(epoch()).run();
    for next in [streams[0], streams[2], streams[3]] {
        memory.release_read(free);
        rig.executive.at(epoch()).run();
        let ready = streams.map(|s| rig.executive.describe(s).is_some_and(|s| s.head_queue.messages > 0));
        assert_eq!(ready, streams.map(|s| s == next), "one message fits, that of {next}");
        assert_eq!(take(&mut rig.executive, next).unwrap(), [next.index() as u8; PLAIN_BYTES][..]);
        memory.leave(0);
    }
}

/// Messages that a module below sends on together are all on their way before the first content arrives above.
#[test]
fn a_burst_from_below_is_unpacked_as_the_reader_has_room() {
    let mut rig = Rig::new();
    streams::modules::add_all(&mut rig.executive);
    rig.executive.push_named(rig.s, "bufmod", &[]).unwrap();
    rig.executive.push_named(rig.s, "compress", &[]).unwrap();
    let (memory, s) = (Memory::of(usize::MAX), rig.s);
    share(&mut rig, s, &memory);
    up(&mut rig, compressed(&[7; 100]));
    let described = rig.executive.describe(rig.s).unwrap();
    assert_eq!(described.head_queue.messages, Rig::INFO.head.hiwat_bytes.div_ceil(PLAIN_BYTES));
    assert!(memory.read_bytes() < 4 * PLAIN_BYTES);
}

#[test]
fn a_module_that_has_no_memory_for_what_waits_is_not_popped() {
    let (mut rig, memory) = rig(FEW_BYTES);
    rig.write("x").unwrap();
    up(&mut rig, vec![own(vec![1])]);
    up(&mut rig, compressed(&[1, 2, 3]));
    // Later than the rig has begun.
    let start = Instant::now();
    assert_eq!(rig.executive.pop(rig.s).err(), Some(PopError::Busy));
    (0..3).for_each(|n| rig.executive.timeout(start + n * Compress::LEAVE_WAIT));
    assert_eq!(rig.executive.pop(rig.s).err(), Some(PopError::Busy), "the third message waits");
    for _ in 0..3 {
        take(&mut rig.executive, rig.s).unwrap();
        rig.executive.at(epoch()).run();
    }
    rig.executive.pop(rig.s).unwrap();
    assert_eq!(memory.read_bytes(), 0);
}

/// The pop waits for no answer of the other end, which hears nothing any more.
#[test]
fn a_module_of_a_stream_that_was_cut_off_is_popped_once_what_waits_has_gone_up() {
    let (mut rig, memory) = rig(FEW_BYTES);
    up(&mut rig, compressed(&[1, 2, 3]));
    let others_bytes = memory.leave(0);
    rig.up(Message::new(Kind::Error { read: None, write: Some(Errno::EPIPE) }));
    rig.executive.at(epoch()).run();
    assert_eq!(rig.executive.pop(rig.s).err(), Some(PopError::Busy), "messages wait for memory");
    memory.release_read(others_bytes);
    take(&mut rig.executive, rig.s).unwrap();
    rig.executive.at(epoch()).run();
    assert!(rig.executive.poll(rig.s).poppable);
    rig.executive.pop(rig.s).unwrap();
    let content = |byte| Some(Chain::from(vec![byte; PLAIN_BYTES]));
    for byte in [2, 3] {
        assert_eq!(rig.executive.getmsg(rig.s).unwrap().map(|m| m.data), content(byte));
    }
}

#[test]
fn a_close_unpacks_nothing_and_returns_the_window_of_what_waits() {
    let (mut rig, memory) = rig(FEW_BYTES);
    let sent = compressed(&[1, 2, 3]);
    let sent_bytes: usize = sent.iter().map(|m| m.data.len()).sum();
    up(&mut rig, sent);
    let refusals = memory.counted().refusals;
    rig.executive.at(epoch()).close_now(rig.s);
    assert_eq!(memory.counted().refusals, refusals, "the third was not unpacked");
    assert_eq!(memory.read_bytes(), 0);
    let returned_bytes: usize = rig.state().consumed.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(returned_bytes, sent_bytes);
}

#[test]
fn the_end_of_a_closed_stream_that_has_failed_is_work_of_its_user() {
    const MESSAGES: usize = 640;
    let (mut rig, _) = pushed("limit", &["messages=1"]);
    let (memory, s) = (Memory::of(1 << 20), rig.s);
    share(&mut rig, s, &memory);
    write_on(&mut rig, &[0; MESSAGES]);
    rig.executive.at(epoch()).close(rig.s);
    let before = memory.counted().work;
    rig.up(Message::new(Kind::Hangup));
    rig.executive.at(epoch()).run();
    assert!(!rig.executive.is_busy(), "it has ended");
    let work = memory.counted().work - before;
    assert!((MESSAGES / 64 - 1..MESSAGES / 8).contains(&work), "{work} pieces of work");
}

/// Writes a message on each of these streams, and returns what has gone at once.
fn write_on(rig: &mut Rig, streams: &[u16]) -> Vec<String> {
    rig.state().received.clear();
    for &stream in streams {
        let (text, info) = (stream.to_string(), SendInfo { stream, ..SendInfo::default() });
        rig.executive.write(rig.s, Which::Only, info, text.as_bytes(), epoch).unwrap();
    }
    rig.run_all();
    rig.received()
}

#[test]
fn limit_charges_its_buckets_while_it_is_pushed_and_has_one_without_memory() {
    const STATE_BYTES: usize = 2 * 256 * 16;
    let per_stream = ["messages=1".to_owned(), "per-stream=yes".to_owned()];
    for (limit_bytes, charged_bytes, gone) in
        [(2 * STATE_BYTES, STATE_BYTES, vec!["1", "2", "3"]), (STATE_BYTES - 1, 0, vec!["1"])]
    {
        let (mut rig, _) = pushed("nullmod", &[]);
        let (memory, s) = (Memory::of(limit_bytes), rig.s);
        share(&mut rig, s, &memory);
        let state_bytes = || memory.counted().state_bytes.load(Relaxed);
        rig.executive.push_named(s, "limit", &per_stream[..1]).unwrap();
        assert_eq!(state_bytes(), 0, "one bucket is not counted");
        rig.executive.pop(s).unwrap();
        rig.executive.push_named(s, "limit", &per_stream).unwrap();
        assert_eq!(state_bytes(), charged_bytes);
        assert_eq!(write_on(&mut rig, &[1, 2, 3]), gone);
        drop(rig.executive.pop(s).unwrap());
        assert_eq!(state_bytes(), 0);
    }
}

/// Number of steps in a round: many calls of an owner run the executive before its other work.
const STEPS_OF_ROUND: usize = 8;

/// Holds messages of two users by a module until they are due; one user has very many of them, the other one a few, written last.
/// Returns how many of each leave in each round of steps, until all have left.
fn rounds_of_two_users(module: &str, arguments: &[&str], begins_rounds: bool) -> Vec<[usize; 2]> {
    const STREAMS: usize = 300;
    const OF_EACH: usize = 4;
    let (mut rig, start) = pushed("pipemod", &[]);
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let users = [Memory::of(1 << 30), Memory::of(1 << 30)];
    let streams: Vec<StreamId> = (0..=STREAMS).map(|_| rig.executive.open(rig.driver).unwrap()).collect();
    let (last, first) = streams.split_last().unwrap();
    let all = first.iter().map(|s| (*s, 0, OF_EACH)).chain([(*last, 1, OF_EACH)]);
    for (s, user, messages) in all {
        share(&mut rig, s, &users[user]);
        rig.executive.push_named(s, module, &arguments).unwrap();
        for _ in 0..messages {
            let text = user.to_string();
            rig.executive.write(s, Which::Only, SendInfo::default(), text.as_bytes(), epoch).unwrap();
        }
    }
    rig.run_all();
    rig.executive.timeout(start);
    let counts =
        |rig: &Rig| ["0", "1"].map(|user| rig.received().iter().filter(|text| *text == user).count());
    let mut now = start + Duration::from_secs(10);
    let mut rounds = Vec::new();
    while counts(&rig) != [STREAMS * OF_EACH, OF_EACH] {
        if begins_rounds {
            rig.executive.begin_round();
        }
        let before = counts(&rig);
        for _ in 0..STEPS_OF_ROUND {
            if rig.executive.deadline().is_some_and(|at| at <= now) {
                rig.executive.timeout(now);
                rig.executive.at(now).run();
            }
        }
        let after = counts(&rig);
        rounds.push([0, 1].map(|user| after[user] - before[user]));
        now += Duration::from_secs(1);
        assert!(rounds.len() < 100, "{rounds:?}");
    }
    let worked = users.each_ref().map(|user| user.counted().work);
    assert!(worked[0] > STREAMS * OF_EACH && worked[1] > OF_EACH, "all of it is counted: {worked:?}");
    rounds
}

#[test]
fn modules_of_one_user_do_a_part_of_their_work_in_a_round_of_the_owner() {
    const WORK_MAX: usize = 256;
    for (module, arguments) in [("filter", &["delay=1000"][..]), ("limit", &["messages=1"])] {
        let rounds = rounds_of_two_users(module, arguments, true);
        assert!(rounds.iter().all(|[many, _]| *many <= WORK_MAX), "{module}: {rounds:?}");
        assert!(rounds[0][1] > 0, "{module}: the other user has its part of the first round: {rounds:?}");
        let without = rounds_of_two_users(module, arguments, false);
        assert!(without.len() < rounds.len(), "{module}: without rounds {without:?}");
    }
}

/// Number of bytes that count as a piece of work when they are copied or unpacked.
const BYTES_PER_WORK: usize = 8 * 1024;
/// Work of a user's modules in a round.
const ROUND_WORK_MAX: usize = 256;

/// Returns how much work is done in a round of steps.
fn work_of_round(rig: &mut Rig, memory: &Memory) -> usize {
    let before = memory.counted().work;
    rig.executive.begin_round();
    for _ in 0..STEPS_OF_ROUND {
        rig.executive.at(epoch()).run();
        rig.executive.timeout(epoch());
    }
    memory.counted().work - before
}

#[test]
fn a_user_unpacks_a_bounded_number_of_bytes_in_a_round() {
    const MESSAGES: usize = 120;
    let (mut rig, memory) = rig(usize::MAX);
    let discard = ["drop=1", "way=up"].map(str::to_owned);
    rig.executive.push_named(rig.s, "filter", &discard).unwrap();
    let messages = compressed(&[7; MESSAGES]);
    rig.executive.begin_round();
    rig.device(|cx, s| messages.into_iter().for_each(|m| cx.putnext(s, m)));
    let mut worked = Vec::new();
    loop {
        match work_of_round(&mut rig, &memory) {
            0 => break,
            work => worked.push(work),
        }
    }
    let of_message = PLAIN_BYTES / BYTES_PER_WORK;
    assert!(worked.iter().sum::<usize>() >= MESSAGES * of_message, "the bytes count: {worked:?}");
    assert!(worked.iter().all(|work| *work <= ROUND_WORK_MAX + of_message), "{worked:?}");
}

#[test]
fn a_link_passes_a_bounded_number_of_bytes_in_a_round() {
    const MESSAGES: usize = 60;
    let (mut rig, memory) = (Rig::new(), Memory::of(usize::MAX));
    let (s, other) = (rig.s, rig.executive.open(rig.driver).unwrap());
    share(&mut rig, s, &memory);
    let splice = rig.executive.add_driver("splice", Box::new(Splice::default()));
    let upper = rig.executive.open(splice).unwrap();
    rig.executive.link_in_use(upper, s).unwrap();
    rig.executive.link_in_use(upper, other).unwrap();
    rig.executive.begin_round();
    rig.device(|cx, s| (0..MESSAGES).for_each(|_| cx.putnext(s, Message::data(vec![7; PLAIN_BYTES]))));
    // Each is joined, and copied.
    let of_message = 2 * PLAIN_BYTES / BYTES_PER_WORK;
    let (mut passed, mut rounds) = (0, 0);
    while passed < MESSAGES {
        let work = work_of_round(&mut rig, &memory);
        let now = rig.state().received.len();
        assert!(now > passed && work <= ROUND_WORK_MAX + 2 * of_message, "{now}: {work}");
        (passed, rounds) = (now, rounds + 1);
    }
    assert!(rounds > MESSAGES * of_message / (2 * ROUND_WORK_MAX), "{rounds} rounds");
}

/// A try that is put off to a later round must not lose its place to the next one in line, or nobody ever gets the memory.
#[test]
fn modules_that_wait_for_memory_go_on_in_rounds() {
    const STREAMS: usize = 200;
    let (mut rig, memory) = rig(FEW_BYTES);
    let streams: Vec<StreamId> = (0..STREAMS).map(|_| rig.executive.open(rig.driver).unwrap()).collect();
    let first = compressed(&[7, 7, 7, 7]);
    for s in &streams {
        share(&mut rig, *s, &memory);
        rig.executive.push_named(*s, "compress", &[]).unwrap();
        let driver = rig.driver;
        let up = |_: &mut Device, cx: &mut streams::Cx<'_>| {
            first.iter().for_each(|m| cx.putnext(*s, own(m.data.clone())));
        };
        rig.executive.at(epoch()).with_driver(driver, up).unwrap();
    }
    let mut read = 0;
    for round in 0.. {
        work_of_round(&mut rig, &memory);
        for s in &streams {
            while take(&mut rig.executive, *s).is_some() {
                read += 1;
            }
        }
        if read == 4 * STREAMS {
            break;
        }
        assert!(round < 20 * STREAMS, "{read} were read");
    }
    // Eight for each message, and as many tries again.
    let work = memory.counted().work;
    assert!(work < 4 * STREAMS * 20, "{work}");
}

#[test]
fn a_try_that_is_put_off_holds_up_no_other_user() {
    const STREAMS: usize = 100;
    let (mut rig, other) = rig(FEW_BYTES);
    let others_bytes = other.leave(0);
    up(&mut rig, compressed(&[7]));
    let greedy = Memory::of(FEW_BYTES);
    let messages = compressed(&[1, 1, 1, 1]);
    let streams: Vec<StreamId> = (0..STREAMS).map(|_| rig.executive.open(rig.driver).unwrap()).collect();
    for s in &streams {
        share(&mut rig, *s, &greedy);
        rig.executive.push_named(*s, "compress", &[]).unwrap();
        let up = |_: &mut Device, cx: &mut streams::Cx<'_>| {
            messages.iter().for_each(|m| cx.putnext(*s, own(m.data.clone())));
        };
        rig.executive.at(epoch()).with_driver(rig.driver, up).unwrap();
    }
    // Its tries use up this round.
    rig.executive.begin_round();
    let run = |rig: &mut Rig| (0..STEPS_OF_ROUND).for_each(|_| rig.executive.at(epoch()).run());
    while greedy.counted().work < ROUND_WORK_MAX {
        run(&mut rig);
        let read = streams.iter().filter(|s| take(&mut rig.executive, **s).is_some()).count();
        assert!(read > 0, "it goes on");
    }
    run(&mut rig);
    assert!(take(&mut rig.executive, rig.s).is_none());
    other.release_read(others_bytes);
    run(&mut rig);
    assert_eq!(take(&mut rig.executive, rig.s).unwrap(), [7; PLAIN_BYTES][..]);
}
