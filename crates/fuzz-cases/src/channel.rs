//! The messages between programs and the daemon, without the two.

use std::sync::atomic::Ordering::Relaxed;

use ::channel_protocol::assoc_id::AssocId;
use ::channel_protocol::bundle::{Unread, begins_at, messages};
use ::channel_protocol::read_position::{Front, InBundle};
use ::channel_protocol::record::Extent;
use ::channel_protocol::record::{
    BUNDLE_BYTES_MAX, Flags, HEADER_BYTES, Header, Kind, LONG_BYTES_MAX, MESSAGE_BYTES_MAX,
    PAYLOAD_BYTES_MAX, parse_accepted,
};
use ::channel_protocol::request::{Answer, FRAME_BYTES_MAX, Request};
use ::channel_protocol::sharers_page::{ROOM_BYTES, ReadSoFar, SharersPage};
use ::channel_protocol::status_page::{ENTRIES, State, StatusPage};
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
    let [low, high] = ::channel_protocol::VERSION.to_le_bytes();
    [b's', b'w', b'c', b'r', low, high]
};

/// Returns how many bytes of the prefix of each frame the input gets: half of the inputs get all of it, because finding it out
/// takes no fuzzer.
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
        let is_elsewhere = header.kind == Kind::Bundle || header.flags.contains(Flags::IN_MEMFD);
        let expected = if is_elsewhere { 0 } else { header.bytes as usize };
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
        let most = match header.kind {
            Kind::Bundle => BUNDLE_BYTES_MAX,
            _ if header.flags.contains(Flags::IN_MEMFD) => MESSAGE_BYTES_MAX,
            Kind::Data => LONG_BYTES_MAX,
            _ => PAYLOAD_BYTES_MAX,
        };
        assert!(header.bytes as usize <= most);
        end = at + header.record_bytes();
    }
    for at in 0..bytes.len().min(STEPS_MAX) {
        if let Some(unread) = Unread::of(bytes, at, 0) {
            assert!(unread.next <= bytes.len() && unread.rest.len() == unread.header.bytes as usize);
        }
    }
}

/// Steps of a daemon, a hostile sharer, and a reader.
#[derive(Arbitrary, Debug)]
enum Step {
    State(u32),
    Consumed(u32),
    Bundle { bytes: u32, at: u32 },
    EntriesUsed(u32),
    Entry { place: u8, association: u32, passed_on: u32 },
    Error { error: i32, errors: u32 },
    Taken([u32; 3]),
    Front(u16),
    Read { room: u16 },
    Reserve { place: u8, association: u32, bytes: u32 },
}

/// Runs a reader of a bundle while a hostile sharer writes to the page of the sharers. The reader must get a part of the
/// record, and a sharer that keeps to the pages must count no more than its room.
pub fn page(bytes: &[u8]) {
    let mut script = Unstructured::new(bytes);
    let (status, page) = (StatusPage::default(), SharersPage::default());
    let bundle = bundle(&mut script);
    for _ in 0..STEPS_MAX {
        match Step::arbitrary(&mut script) {
            Ok(step) if !script.is_empty() => perform(&status, &page, &bundle, &step),
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

fn perform(status: &StatusPage, page: &SharersPage, bundle: &[u8], step: &Step) {
    match *step {
        Step::State(number) => {
            status.state.store(number, Relaxed);
            assert!(State::from_u32(number).unwrap_or(State::Idle) == status.state());
        }
        Step::Consumed(consumed) => page.position().on_part_read(consumed),
        Step::Bundle { bytes, at } => {
            let consumed = page.position().load().consumed();
            page.position().overwrite(InBundle { extent: Extent { offset: 0, bytes }, next: at, consumed });
        }
        Step::EntriesUsed(used) => {
            status.entries_used.store(used, Relaxed);
            assert!(status.entries().len() <= ENTRIES);
        }
        Step::Entry { place, association, passed_on } => {
            let Some(entry) = status.entries().get(usize::from(place)) else { return };
            entry.assoc_id.store(association, Relaxed);
            entry.passed_on.store(passed_on, Relaxed);
        }
        Step::Error { error, errors } => {
            status.error.store(error, Relaxed);
            status.errors.store(errors, Relaxed);
            let pending = page.pending_error(status);
            assert_eq!((page.take_error(status), page.take_error(status)), (pending, 0));
        }
        Step::Taken(words) => {
            let bytes = words.map(u32::to_ne_bytes);
            let read = ReadSoFar::parse(bytes.as_flattened().try_into().expect("three words"));
            assert_eq!([read.data_taken, read.long_taken], words[1..3]);
        }
        Step::Front(stream) => {
            let header = Header { stream, ..Header::new(Kind::Data) };
            page.position().on_message_begun(&header, stream.into());
            assert_eq!(page.position().first(), Some(header));
        }
        Step::Read { room } => read(page, bundle, room.into()),
        Step::Reserve { place, association, bytes } => {
            let assoc_id = AssocId::new(association);
            let place = usize::from(place);
            let (Some(entry), Some(sent)) = (status.entries().get(place), page.sent().get(place)) else {
                return;
            };
            let is_its_own = entry.is_of(assoc_id, Relaxed);
            let is_reserved = sent.reserve(entry, assoc_id, bytes);
            assert!(is_its_own || !is_reserved, "the entry is not its own");
            if is_reserved && (ROOM_BYTES..1 << 30).contains(&bytes) {
                assert!(!sent.reserve(entry, assoc_id, bytes), "more than the room");
            }
            sent.unreserve(entry, assoc_id, bytes);
        }
    }
}

/// Reads as the shim does from its copy of the record.
fn read(page: &SharersPage, bundle: &[u8], room: usize) {
    let Front::Bundle(position) = page.position().load() else { return };
    let Some(Unread { header, rest, next }) = position.unread(bundle) else { return };
    assert!(begins_within(bundle, position.next as usize, header) && next <= bundle.len());
    assert_eq!(rest.len() + position.consumed as usize, header.bytes as usize);
    let bytes = rest.len().min(room);
    let short = |number: usize| u32::try_from(number).expect("a short record");
    if bytes == rest.len() {
        page.position().on_bundled_message_read(short(next));
    } else {
        page.position().on_part_read(position.consumed + short(bytes));
    }
}

fn begins_within(bundle: &[u8], at: usize, header: Header) -> bool {
    at + header.record_bytes() <= bundle.len()
}
