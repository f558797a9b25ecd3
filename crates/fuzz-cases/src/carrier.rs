//! The messages between programs and the daemon, without the two.

use std::sync::atomic::Ordering::Relaxed;

use ::carrier::bundle::{Unread, begins_at, messages};
use ::carrier::record::{
    Flags, HEADER_BYTES, Header, Kind, MESSAGE_BYTES_MAX, PAYLOAD_BYTES_MAX, parse_accepted,
};
use ::carrier::request::{Answer, FRAME_BYTES_MAX, Request};
use ::carrier::shared_page::{ENTRIES, ROOM_BYTES, SharedPage, State};
use arbitrary::{Arbitrary, Unstructured};

/// Maximum number of steps of a script.
const STEPS_MAX: usize = 64;

/// Checks that no bytes panic as a request or an answer, and that parsed ones are encoded so that they parse as the
/// same again.
pub fn request(bytes: &[u8]) {
    let mut frame = [0; FRAME_BYTES_MAX];
    for start in [0, request_start(bytes)] {
        let bytes = [&PREFIX[..start], &bytes[..bytes.len().min(FRAME_BYTES_MAX - start)]].concat();
        if let Ok(request) = Request::parse(&bytes) {
            let written = request.encode(&mut frame).expect("it has come in a frame");
            assert_eq!(Request::parse(&frame[..written]), Ok(request));
        }
        if let Some(answer) = Answer::parse(&bytes) {
            let written = answer.encode(&mut frame).expect("it has come in a frame");
            assert_eq!(Answer::parse(&frame[..written]), Some(answer));
        }
    }
}

/// In front of a request of this version. An answer has the first four bytes alone.
const PREFIX: [u8; 6] = {
    let [low, high] = ::carrier::VERSION.to_le_bytes();
    [b's', b'w', b'c', b'r', low, high]
};

/// Half of the inputs get what each frame begins with: it takes no fuzzer to find that out.
fn request_start(bytes: &[u8]) -> usize {
    match bytes.first() {
        Some(first) if first % 2 == 0 => PREFIX.len(),
        Some(_) => 4,
        None => 0,
    }
}

/// Checks that no bytes panic as a record, and that all positions of its messages are within it.
pub fn record(bytes: &[u8]) {
    if let Some((header, payload)) = Header::split(bytes) {
        let expected = if header.flags.contains(Flags::IN_MEMFD) { 0 } else { header.bytes as usize };
        assert_eq!(payload.len(), expected);
        // Bytes of a header that an address leaves free have no meaning.
        assert_eq!(Header::parse(&header.encode()), Some(header));
    }
    if parse_accepted(bytes).is_some() {
        assert_eq!(Header::parse(bytes).map(|header| header.kind), Some(Kind::Accepted));
    }
    let mut end = 0;
    for (at, header) in messages(bytes) {
        assert_eq!(at, end, "one follows the other");
        assert!(at + HEADER_BYTES <= bytes.len() && begins_at(bytes, at));
        let in_memfd = header.flags.contains(Flags::IN_MEMFD);
        assert!(header.bytes as usize <= if in_memfd { MESSAGE_BYTES_MAX } else { PAYLOAD_BYTES_MAX });
        end = at + HEADER_BYTES + header.bytes as usize;
    }
    for at in 0..bytes.len().min(STEPS_MAX) {
        if let Some(unread) = Unread::of(bytes, at, 0) {
            assert!(unread.next <= bytes.len() && unread.rest.len() == unread.header.bytes as usize);
        }
    }
}

/// Steps of a hostile sharer of the page, and of a reader.
#[derive(Arbitrary, Debug)]
enum Step {
    State(u32),
    Consumed(u32),
    Bundle { bytes: u32, at: u32 },
    EntriesUsed(u32),
    Entry { place: u8, sent: u32, passed_on: u32 },
    Front(u16),
    Read { room: u16 },
    Reserve { place: u8, bytes: u32 },
}

/// Runs a reader of a bundle while a hostile sharer writes to the page. The reader must get a part of the record, and a sharer that
/// keeps to the page must count no more than its room.
pub fn page(bytes: &[u8]) {
    let mut script = Unstructured::new(bytes);
    let page = SharedPage::default();
    let bundle = bundle(&mut script);
    for _ in 0..STEPS_MAX {
        match Step::arbitrary(&mut script) {
            Ok(step) if !script.is_empty() => perform(&page, &bundle, &step),
            _ => return,
        }
    }
}

/// Builds a record of a few messages, whose headers may be changed.
fn bundle(script: &mut Unstructured<'_>) -> Vec<u8> {
    let mut bundle = Vec::new();
    for _ in 0..script.int_in_range(0..=4).unwrap_or(0) {
        let bytes = script.int_in_range(0..=40_u32).unwrap_or(0);
        let header = Header { bytes, ..Header::new(Kind::Data) };
        bundle.extend_from_slice(&header.encode());
        bundle.resize(bundle.len() + bytes as usize, 7);
    }
    let (place, byte) = (script.arbitrary::<u16>().unwrap_or(0), script.arbitrary().unwrap_or(0));
    if let Some(place) = bundle.get_mut(usize::from(place)) {
        *place = byte;
    }
    bundle
}

fn perform(page: &SharedPage, bundle: &[u8], step: &Step) {
    match *step {
        Step::State(number) => {
            page.state.store(number, Relaxed);
            assert!(State::from_u32(number).unwrap_or(State::Idle) == page.state());
        }
        Step::Consumed(consumed) => page.consumed.store(consumed, Relaxed),
        Step::Bundle { bytes, at } => {
            page.bundle_bytes.store(bytes, Relaxed);
            page.bundle_at.store(at, Relaxed);
        }
        Step::EntriesUsed(used) => {
            page.entries_used.store(used, Relaxed);
            assert!(page.entries().len() <= ENTRIES);
        }
        Step::Entry { place, sent, passed_on } => {
            let Some(entry) = page.entries().get(usize::from(place)) else { return };
            entry.sent.store(u64::from(sent), Relaxed);
            entry.passed_on.store(passed_on, Relaxed);
        }
        Step::Front(stream) => {
            let header = Header { stream, ..Header::new(Kind::Data) };
            page.set_front(&header);
            assert_eq!(page.front(), Some(header));
        }
        Step::Read { room } => read(page, bundle, room.into()),
        Step::Reserve { place, bytes } => {
            let Some(entry) = page.entries().get(usize::from(place)) else { return };
            let waited = (entry.sent.load(Relaxed) as u32).wrapping_sub(entry.passed_on.load(Relaxed));
            // No association has this number.
            assert_eq!(entry.reserve(0, bytes), waited < ROOM_BYTES);
            assert!(!entry.reserve(1, bytes), "the entry is not its own");
        }
    }
}

/// Reads as the shim does from its copy of the record.
fn read(page: &SharedPage, bundle: &[u8], room: usize) {
    let (at, consumed) = (page.bundle_at.load(Relaxed) as usize, page.consumed.load(Relaxed) as usize);
    let Some(Unread { header, rest, next }) = Unread::of(bundle, at, consumed) else { return };
    assert!(begins_within(bundle, at, header) && next <= bundle.len());
    assert_eq!(rest.len() + consumed, header.bytes as usize);
    let bytes = rest.len().min(room);
    if bytes == rest.len() {
        page.consumed.store(0, Relaxed);
        page.bundle_at.store(u32::try_from(next).expect("a short record"), Relaxed);
    } else {
        page.consumed.store(u32::try_from(consumed + bytes).expect("a short record"), Relaxed);
    }
}

fn begins_within(bundle: &[u8], at: usize, header: Header) -> bool {
    at + HEADER_BYTES + header.bytes as usize <= bundle.len()
}
