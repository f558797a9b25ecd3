//! The record at the front of the pair, for the holder of the read lock.
//!
//! A short read would drop the rest of a record. So the shim peeks at a record that may be longer than the program's buffer, and
//! removes it once its last byte has been read; until then the sharers' page says how far it was read, and the kernel's
//! peek offset stands there. The status page says how long records may be, and whether they may hold several messages
//! (see [`bundle`]).

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use channel_protocol::read_position::{Front, InBundle};
use channel_protocol::record::{Flags, HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MAX};
use channel_protocol::status_page::{PeerShut, State};
use libc::c_int;

use crate::bundle;
use crate::form::{self, ReadError};
use crate::lock::{self, Held, Patience};
use crate::message::{self, END, Message};
use crate::pages::Pages;
use crate::parts::received_behind;
use crate::system::{self, Buffers, Destination, Errno, Result};

/// Longest wait for a message that a size hint has announced. A call that may block then waits as for any message.
const ANNOUNCED_LIMIT: Duration = Duration::from_secs(1);

/// The read lock of a socket, held until this is dropped, and what its holder may do. No thread holds it while it waits for a
/// message.
pub(crate) struct Reader<'a> {
    fd: RawFd,
    pages: Pages<'a>,
    /// A size hint was removed, and no message was found behind it.
    has_hint: Cell<bool>,
    _held: Held<'a>,
}

/// Where the front of the pair is read.
enum Place {
    /// A record, which is still in the pair.
    Record(Peeked),
    /// A message that has been removed, or was peeked at in a bundle.
    Taken(Message),
    /// Nothing, and nothing will come.
    End,
}

/// Result of peeking at the record at the front.
struct Peeked {
    header: Header,
    /// Number of bytes of the message that earlier calls have read.
    consumed: usize,
    /// Number of bytes that are in the program's buffer now.
    copied: usize,
}

impl<'a> Reader<'a> {
    /// Takes the read lock and makes the pair bring records.
    pub(crate) fn lock(fd: RawFd, pages: Pages<'a>, patience: &Patience) -> Result<Reader<'a>, ReadError> {
        let reader = Reader::lock_in_any_form(fd, pages, patience)?;
        if pages.status.plain.load(Acquire) != 0 {
            form::to_records(fd)?;
        }
        Ok(reader)
    }

    /// Takes the read lock, whatever the form of the content.
    pub(crate) fn lock_in_any_form(fd: RawFd, pages: Pages<'a>, patience: &Patience) -> Result<Reader<'a>> {
        let held = lock::hold(pages.sharers.read_lock(), patience)?;
        let was_inherited = held.was_inherited();
        let reader = Reader { fd, pages, has_hint: Cell::new(false), _held: held };
        if was_inherited {
            reader.recover();
            form::resume_daemon(fd, pages);
        }
        Ok(reader)
    }

    /// Returns the header of the message at the front. If there is none and [`Reader::has_hint`], it comes directly.
    pub(crate) fn front(&self) -> Result<Option<Header>> {
        match self.pages.sharers.position().load() {
            Front::Bundle(position) => bundle::next_header(self.pages, position).map(Some),
            Front::Message { header, .. } => Ok(Some(header)),
            Front::Fresh => self.peek_header(),
        }
    }

    /// Returns the header of the first message in the record at the front, after removing records that only announce others.
    fn peek_header(&self) -> Result<Option<Header>> {
        loop {
            match message::measure(self.fd) {
                Ok((Some(Header { kind: Kind::SizeHint, .. }), _)) => {
                    system::discard(self.fd)?;
                    self.has_hint.set(true);
                }
                Ok((Some(record), _)) => {
                    self.has_hint.set(false);
                    return Ok(record
                        .bundle()
                        .map_or(Some(record), |extent| bundle::first(self.pages, extent)));
                }
                Ok((None, _)) | Err(Errno(libc::EAGAIN)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether this reader has removed a size hint, and has found no message behind it. Then the caller gives up the
    /// lock, and waits for the message by [`await_announced`].
    pub(crate) fn has_hint(&self) -> bool {
        self.has_hint.get()
    }

    /// Returns the header of the next message, if it has come and no reader has begun it.
    pub(crate) fn next(&self) -> Option<Header> {
        let is_begun = self.pages.sharers.position().load().consumed() > 0;
        if is_begun { None } else { self.front().ok()? }
    }

    /// Takes the next message, or a part of it. [`END`] stands for the end, or the reason for which there is none ([`end`]).
    ///
    /// # Errors
    ///
    /// `EAGAIN`: there is none. If [`Reader::has_hint`], it comes directly.
    pub(crate) fn take(&self, buffers: Buffers<'_>, flags: c_int) -> Result<Message> {
        let position = self.pages.sharers.position();
        let place = match position.load() {
            Front::Message { header, consumed } => {
                Place::Record(self.peek_rest(header, consumed as usize, buffers)?)
            }
            Front::Bundle(at) => Place::Taken(self.take_from_bundle(at, buffers, flags)?),
            Front::Fresh => self.find(buffers, flags)?,
        };
        let Peeked { header, consumed, copied } = match place {
            Place::Record(peeked) => peeked,
            Place::Taken(message) => return Ok(message),
            Place::End => return Ok(END),
        };
        let until = consumed + copied;
        let whole = until == header.bytes as usize;
        let in_record = !header.flags.contains(Flags::IN_MEMFD);
        if flags & libc::MSG_PEEK != 0 {
            // The kernel has moved its offset past the bytes that were peeked at.
            if in_record && consumed > 0 {
                system::set_peek_offset(self.fd, peek_offset(consumed as u32))?;
            }
        } else if whole {
            system::discard(self.fd)?;
            self.pages.sharers.on_message_taken(&header);
            if consumed > 0 {
                position.on_record_removed();
                if in_record {
                    system::set_peek_offset(self.fd, -1)?;
                }
            }
        } else if consumed > 0 {
            position.on_part_read(until as u32);
        } else {
            position.on_message_begun(&header, until as u32);
            if in_record {
                system::set_peek_offset(self.fd, peek_offset(until as u32))?;
            }
        }
        Ok(Message { bytes: copied, header: Some(header), whole: whole && header.flags.contains(Flags::END) })
    }

    /// Finds a record that no reader has begun. A record that surely fits is removed at once.
    fn find(&self, buffers: Buffers<'_>, flags: c_int) -> Result<Place> {
        let (fd, status) = (self.fd, self.pages.status);
        loop {
            if status.bundles.load(Acquire) != 0
                && let Some(position) = bundle::begin(fd, self.pages, 0)?
            {
                self.has_hint.set(false);
                return self.take_from_bundle(position, buffers, flags).map(Place::Taken);
            }
            let longest = status.longest.load(Acquire) as usize;
            let fits = longest <= buffers.bytes().min(PAYLOAD_BYTES_MAX) && flags & libc::MSG_PEEK == 0;
            let (bytes, header) = if fits { take_whole(fd, buffers)? } else { peek(fd, buffers)? };
            let is_hint = matches!(header, Some(Header { kind: Kind::SizeHint, .. }));
            self.has_hint.set(is_hint);
            match header {
                None => return Ok(Place::End),
                // The status page describes the records that follow this one by now.
                Some(_) if is_hint => {
                    if !fits {
                        system::discard(fd)?;
                    }
                }
                // The page says less than what the pair contains: the rest of the message is gone.
                Some(header) if fits && bytes != header.bytes as usize => return Err(Errno(libc::EPROTO)),
                Some(header) if fits => {
                    self.pages.sharers.on_message_taken(&header);
                    let whole = header.flags.contains(Flags::END);
                    return Ok(Place::Taken(Message { bytes, header: Some(header), whole }));
                }
                Some(header) => return Ok(Place::Record(Peeked { header, consumed: 0, copied: bytes })),
            }
        }
    }

    fn take_from_bundle(&self, position: InBundle, buffers: Buffers<'_>, flags: c_int) -> Result<Message> {
        bundle::take(self.fd, self.pages, position, buffers, flags & libc::MSG_PEEK != 0)
    }

    /// Peeks at the rest of a message.
    fn peek_rest(&self, header: Header, consumed: usize, buffers: Buffers<'_>) -> Result<Peeked> {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        if !header.flags.contains(Flags::IN_MEMFD) {
            let received = system::receive::<0>(self.fd, buffers, flags)?;
            return Ok(Peeked { header, consumed, copied: received.bytes });
        }
        let mut again = [0; HEADER_BYTES];
        let place = [Destination::of(&mut again)];
        let [memfd] = system::receive::<1>(self.fd, Buffers::new(&place), flags)?.descriptors;
        let memfd = memfd.ok_or(Errno(libc::EMFILE))?;
        Ok(Peeked { header, consumed, copied: system::read_at(memfd.raw(), buffers, consumed)? })
    }

    /// Makes the sharers' page agree with the pair after the previous holder of the lock died, or did not learn the
    /// outcome of a request, and may have stopped half-way.
    pub(crate) fn recover(&self) {
        let position = self.pages.sharers.position();
        // A pair always accepts the option.
        let _ = system::set_peek_offset(self.fd, -1);
        let noted = position.load();
        if noted == Front::Fresh {
            return;
        }
        let (record, bytes) = message::measure(self.fd).unwrap_or((None, 0));
        let extent = record.and_then(|record| record.bundle());
        let first = extent.map_or(record, |extent| bundle::first(self.pages, extent));
        let first = first.filter(|_| first == position.first());
        let has_read_none_whole = match noted {
            Front::Bundle(before) => {
                if let Some(extent) =
                    extent.filter(|extent| first.is_some() && extent.bytes == before.extent.bytes)
                {
                    // The daemon has put it back.
                    return position.on_bundle_moved(extent);
                }
                before.next == 0
            }
            Front::Message { .. } | Front::Fresh => true,
        };
        position.on_bundle_dissolved();
        match first.filter(|_| has_read_none_whole && extent.is_none() && noted.consumed() > 0) {
            Some(header) if header.flags.contains(Flags::IN_MEMFD) => {}
            // The rest of the bundle, if there was one, was peeled off.
            Some(header) if header.record_bytes() == bytes => {
                let _ = system::set_peek_offset(self.fd, peek_offset(noted.consumed()));
            }
            // The record was removed.
            _ => position.on_record_removed(),
        }
    }

    /// Notes that the daemon has taken out all records and put back those that remain, after the front was `before`; `header` is
    /// that of a message that a reader had read in part.
    pub(crate) fn on_sorted(&self, before: Front, header: Option<Header>) -> Result<()> {
        let (fd, position) = (self.fd, self.pages.sharers.position());
        // The messages that were read are no longer part of the bundle.
        position.on_bundle_dissolved();
        let (Some(header), consumed @ 1..) = (header, before.consumed()) else { return Ok(()) };
        // The kernel's offset has moved with the records.
        system::set_peek_offset(fd, -1)?;
        if bundle::begin(fd, self.pages, consumed)?.is_none() {
            position.on_message_begun(&header, consumed);
            if !header.flags.contains(Flags::IN_MEMFD) {
                system::set_peek_offset(fd, peek_offset(consumed))?;
            }
        }
        Ok(())
    }

    /// Makes the kernel peek from where the next message continues, after [`message::measure`] was used at other offsets.
    pub(crate) fn restore_peek_offset(&self) -> Result<()> {
        let offset = match self.pages.sharers.position().load() {
            Front::Message { header, consumed } if !header.flags.contains(Flags::IN_MEMFD) => {
                peek_offset(consumed)
            }
            _ => -1,
        };
        system::set_peek_offset(self.fd, offset)
    }
}

/// Returns the kernel's peek offset for a message that was read this far. A sharer may have written any number: beyond the
/// record, the kernel finds nothing; a negative one makes it peek from the beginning.
fn peek_offset(consumed: u32) -> c_int {
    consumed.wrapping_add(HEADER_BYTES as u32) as c_int
}

/// Removes a record that is no longer than `buffers` and returns its number of bytes. No header means the end.
fn take_whole(fd: RawFd, buffers: Buffers<'_>) -> Result<(usize, Option<Header>)> {
    let mut bytes = [0; HEADER_BYTES];
    let received =
        received_behind(&mut bytes, buffers, |record| system::receive::<0>(fd, record, libc::MSG_DONTWAIT))?;
    match received.bytes {
        0 => Ok((0, None)),
        all => parse(&bytes).map(|header| (all - HEADER_BYTES, Some(header))),
    }
}

/// Peeks at a record that no reader has begun and returns the number of bytes in `buffers`. No header means the end.
fn peek(fd: RawFd, buffers: Buffers<'_>) -> Result<(usize, Option<Header>)> {
    let mut bytes = [0; HEADER_BYTES];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let received = received_behind(&mut bytes, buffers, |record| system::receive::<1>(fd, record, flags))?;
    if received.bytes == 0 {
        return Ok((0, None));
    }
    let [memfd] = received.descriptors;
    let header = parse(&bytes)?;
    let copied = match header.flags.contains(Flags::IN_MEMFD) {
        true => system::read_at(memfd.ok_or(Errno(libc::EMFILE))?.raw(), buffers, 0)?,
        false => buffers.bytes().min(header.bytes as usize),
    };
    Ok((copied, Some(header)))
}

fn parse(record: &[u8; HEADER_BYTES]) -> Result<Header> {
    let for_us = |kind| matches!(kind, Kind::Data | Kind::Notification | Kind::SizeHint);
    Header::parse(record).filter(|header| for_us(header.kind)).ok_or(Errno(libc::EPROTO))
}

/// Waits for the message that the daemon sends directly behind a size hint: a descriptor that polls readable must be readable.
/// The caller does not hold the lock. A daemon that is stopped in between keeps a call that must not block for 100 ms.
pub(crate) fn await_announced(fd: RawFd, patience: &Patience) -> Result<()> {
    let at_most = patience.left().unwrap_or(ANNOUNCED_LIMIT).min(ANNOUNCED_LIMIT);
    match system::poll(fd, libc::POLLIN, system::timespec(at_most)) {
        // The kernel polls no descriptor where the limit on descriptors is 0.
        Ok(_) | Err(Errno(libc::EINTR | libc::EINVAL)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the end, or the reason for which there is none.
pub(crate) fn end(fd: RawFd, pages: Pages<'_>) -> Result<Message> {
    match pages.take_error() {
        0 => {}
        error => return Err(Errno(error)),
    }
    match pages.status.state() {
        State::Ended => Ok(END),
        _ if pages.sharers.is_reading_shut() => Ok(END),
        _ if pages.status.peer_shut.load(Acquire) == PeerShut::Both as u32 => Ok(END),
        State::Lost => Err(Errno(libc::ENOTCONN)),
        _ if !system::is_hung_up(fd) => Ok(END),
        // The daemon has died.
        _ => Err(Errno(libc::ECONNRESET)),
    }
}

#[cfg(test)]
mod tests {
    use channel_protocol::read_position::ReadPosition;
    use channel_protocol::record::Extent;

    use super::*;
    use crate::descriptor::{self, Descriptor};

    /// Returns the header of the message at the front.
    fn hello() -> Header {
        Header { flags: Flags::END, bytes: 5, ..Header::new(Kind::Data) }
    }

    /// Returns the program's end of a pair with one message at its front, and the daemon's end.
    fn pair_ends() -> [RawFd; 2] {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two numbers.
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }, 0);
        let record = [&hello().encode()[..], b"hello"].concat();
        // SAFETY: the record is readable.
        let sent = unsafe { libc::send(ends[1], record.as_ptr().cast(), record.len(), 0) };
        assert_eq!(usize::try_from(sent), Ok(record.len()));
        ends
    }

    /// Takes the next message, or peeks at it.
    fn take(reader: &Reader<'_>, flags: c_int) -> Result<Vec<u8>> {
        let mut place = [0; 16];
        let message = reader.take(Buffers::new(&[Destination::of(&mut place)]), flags)?;
        Ok(place[..message.bytes].to_vec())
    }

    /// Calls `check` with a reader that has recovered after `died` has noted how far another one had read.
    fn recovered(died: impl FnOnce(&ReadPosition), check: impl FnOnce(&Reader<'_>)) {
        let descriptor = Descriptor::map(descriptor::tests::files()).expect("pages of this version");
        let ends = pair_ends();
        died(descriptor.pages().sharers.position());
        let reader = Reader::lock(ends[0], descriptor.pages(), &Patience::of_a_look()).expect("it is free");
        reader.recover();
        check(&reader);
        ends.into_iter().for_each(system::close);
    }

    /// The daemon took a bundle apart that a reader had begun and not read from.
    #[test]
    fn a_message_of_a_bundle_that_was_only_peeked_at_is_found_from_its_beginning() {
        let begun = Extent { offset: 0, bytes: 200 };
        recovered(
            |position| position.on_bundle_begun(begun, &hello(), 0),
            |reader| {
                assert_eq!(take(reader, libc::MSG_PEEK), Ok(b"hello".to_vec()));
                assert_eq!(take(reader, 0), Ok(b"hello".to_vec()));
            },
        );
    }

    #[test]
    fn a_message_that_was_read_in_part_continues_there() {
        recovered(
            |position| position.on_message_begun(&hello(), 2),
            |reader| {
                assert_eq!(take(reader, libc::MSG_PEEK), Ok(b"llo".to_vec()));
                assert_eq!(take(reader, 0), Ok(b"llo".to_vec()));
                assert_eq!(take(reader, libc::MSG_DONTWAIT), Err(Errno(libc::EAGAIN)));
            },
        );
    }

    #[test]
    fn a_message_that_was_removed_is_not_continued() {
        let other = Header { stream: 7, ..hello() };
        recovered(
            |position| position.on_message_begun(&other, 2),
            |reader| assert_eq!(take(reader, 0), Ok(b"hello".to_vec())),
        );
    }
}
