//! Sending. The shim checks each message against the page before it passes the message on; then the kernel waits, or does not, as
//! the descriptor requires.

use std::iter;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use channel_protocol::assoc_id::AssocId;
use channel_protocol::record::{
    Flags, Header, Kind, LONG_BYTES_MAX, MESSAGE_BYTES_MAX, PADDING_BLOCK_BYTES, PADDING_BYTES_MAX,
    PAYLOAD_BYTES_MAX, Sequence,
};
use channel_protocol::sharers_page::SentBytes;
use channel_protocol::status_page::{Entry, PeerShut, State};
use libc::c_int;

use crate::ancillary::{Control, SendInfo};
use crate::cancel;
use crate::child;
use crate::descriptor::Descriptor;
use crate::lock::Patience;
use crate::owned::Owned;
use crate::pages::Pages;
use crate::parts::sent_behind;
use crate::ring::{self, Batch, PutError};
use crate::self_connect;
use crate::setup;
use crate::system::{self, Content, Errno, Result, Source};
use crate::tcp;
use crate::waiting;

/// Number of times in a row that a send asks the daemon for room which others then take. From then on it pauses before each
/// request.
const ROOM_TRIES: u32 = 4;
const ROOM_PAUSE: Duration = Duration::from_millis(5);

/// Number of times that a send looks for the association with its peer, which other threads begin and give up.
const NEW_TRIES: u32 = 16;

/// Number of associations per request where a message is for all of them. The list lies on the stack.
const ASSOCIATIONS_AT_ONCE: usize = 128;

/// The association that takes a message.
#[derive(Clone, Copy)]
enum Recipient<'a> {
    /// That of a one-to-one socket.
    Only,
    /// One of a one-to-many socket, with its entry in the status page, if there is one.
    OneOfMany(AssocId, Option<&'a Entry>),
}

/// One message and its destination.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) fd: RawFd,
    pub(crate) descriptor: &'a Descriptor,
    pub(crate) content: Content<'a>,
    pub(crate) info: &'a SendInfo,
    /// Ancillary data that `info` was read from.
    pub(crate) control: Control<'a>,
    /// Destination address, if the program names one.
    pub(crate) to: Option<SocketAddr>,
    /// Flags of `send`.
    pub(crate) flags: c_int,
}

impl Outgoing<'_> {
    /// Sends the message and returns its number of bytes. A cancellation point.
    pub(crate) fn send(mut self) -> Result<usize> {
        cancel::point();
        let sent = match self.pages().status.state() {
            State::OneToMany | State::OneToManyListening => self.send_to_one_of_many(),
            _ => self.send_to_peer(),
        };
        self_connect::sends(self.pages());
        signalled(sent, self.flags)
    }

    fn pages(&self) -> Pages<'_> {
        self.descriptor.pages()
    }

    fn waits(&self) -> bool {
        system::waits(self.fd, self.flags)
    }

    /// Sends on a one-to-one socket, or sets up its association with this message.
    fn send_to_peer(&mut self) -> Result<usize> {
        let bytes_max = self.message_bytes_max();
        if self.content.bytes() > bytes_max && tcp::is_stream(self.descriptor) {
            let this = *self;
            let send = |content: Content<'_>| Outgoing { content, ..this }.send_to_peer();
            return tcp::send_in_parts(this.content, bytes_max, send);
        }
        self.reach_peer()?;
        if self.content.bytes() == 0 && tcp::is_stream(self.descriptor) {
            return Ok(0);
        }
        match self.info.flags.contains(Flags::BY_DEFAULT) {
            true => Outgoing { info: &self.completed(), ..*self }.hand_over_to_peer(),
            false => self.hand_over_to_peer(),
        }
    }

    /// Sends on a socket with one association. A message that ends the association has no bytes for its sender: what it contains
    /// is the reason of the ABORT.
    fn hand_over_to_peer(&self) -> Result<usize> {
        let bytes = self.hand_over(Recipient::Only)?;
        Ok(if ends(self.info) { 0 } else { bytes })
    }

    /// Sets up the association of a one-to-one socket if there is none, and fails if it cannot take the message. The
    /// frame of the function is gone when the message is sent: signal stacks are small.
    fn reach_peer(&mut self) -> Result<()> {
        let pages = self.descriptor.pages();
        if pages.status.style.load(Relaxed) == libc::SOCK_SEQPACKET as u32 {
            // A socket that was peeled off keeps its peer, whatever address the program names.
            self.to = None;
        }
        self.check()?;
        let is_stream = tcp::is_stream(self.descriptor);
        match (pages.status.state(), self.to) {
            (State::Connected, Some(_)) if is_stream => self.to = None,
            (State::Connected, Some(to)) if pages.status.peer() != Some(to) => {
                let unknown = |_| Errno(libc::EADDRNOTAVAIL);
                setup::find_association(self.fd, to).map_err(unknown)?;
            }
            (State::Idle, Some(to)) => {
                self.connect(to)?;
            }
            _ => {}
        }
        if pages.status.state() == State::Connecting && self.waits() {
            waiting::await_connection(self.fd, self.descriptor)?;
        }
        self.check_association()?;
        check_stream(self.info, &pages.status.default_stream, &pages.status.streams_out)
    }

    /// Fails if the association of a one-to-one socket takes no message.
    fn check_association(&self) -> Result<()> {
        let pages = self.pages();
        let peer_shut = pages.status.peer_shut.load(Relaxed);
        match pages.status.state() {
            State::Connected if pages.sharers.is_writing_shut() => Err(Errno(libc::ESHUTDOWN)),
            State::Connected if peer_shut == PeerShut::Ended as u32 => Err(Errno(libc::EPIPE)),
            State::Connected if peer_shut != PeerShut::No as u32 => Err(Errno(libc::ESHUTDOWN)),
            State::Connected | State::Connecting => Ok(()),
            _ => Err(Errno(match pages.take_error() {
                0 => libc::EPIPE,
                error => error,
            })),
        }
    }

    /// Fails if the association has ended or was shut down meanwhile.
    fn check_recipient(&self, recipient: Recipient<'_>) -> Result<()> {
        match recipient {
            Recipient::Only => self.check_association(),
            Recipient::OneOfMany(_, None) => Ok(()),
            Recipient::OneOfMany(assoc_id, Some(entry)) if !entry.is_of(assoc_id, Relaxed) => {
                Err(Errno(libc::EPIPE))
            }
            Recipient::OneOfMany(_, Some(entry)) => self.check_not_shut(entry),
        }
    }

    /// Fails if an association of a one-to-many socket was shut down.
    fn check_not_shut(&self, entry: &Entry) -> Result<()> {
        let is_shut = entry.streams_out.load(Relaxed) == Entry::PEER_SHUT;
        if is_shut && !self.goes_after_shutdown() { Err(Errno(libc::ESHUTDOWN)) } else { Ok(()) }
    }

    /// Returns the attributes of a message to which the program has given none, as they are now: later changes of the
    /// defaults do not concern it.
    fn completed(&self) -> SendInfo {
        let page = self.pages().status;
        let flags = self.info.flags.without(Flags::BY_DEFAULT);
        SendInfo {
            flags: flags.with(Flags::from_number(page.default_flags.load(Relaxed))),
            stream: page.default_stream.load(Relaxed) as u16,
            ppid: page.default_ppid.load(Relaxed),
            context: page.default_context.load(Relaxed),
            lifetime_ms: page.default_lifetime_ms.load(Relaxed),
            ..*self.info
        }
    }

    /// Sends on a one-to-many socket: to the association that the program names, or to one that begins with this message.
    fn send_to_one_of_many(self) -> Result<usize> {
        self.check()?;
        if self.info.to_all {
            return self.send_to_all();
        }
        let Some(to) = self.to else {
            return match self.info.assoc_id {
                AssocId::NONE => Err(Errno(libc::EPIPE)),
                named => self.send_to_association(named),
            };
        };
        for _ in 0..NEW_TRIES {
            match self.association_with(to)? {
                Some(known) => match self.send_to_association(known) {
                    // Another thread has begun this association, and has given it up.
                    Err(Errno(libc::EPIPE)) if !self.is_known(to) => {}
                    sent => return sent,
                },
                None => match self.connect(to) {
                    // Another thread has begun it meanwhile.
                    Err(Errno(libc::EALREADY | libc::EISCONN)) => {}
                    begun => return self.send_to_new(begun?),
                },
            }
        }
        Err(Errno(libc::EPIPE))
    }

    /// Returns whether there is an association with this peer.
    fn is_known(&self, to: SocketAddr) -> bool {
        setup::find_association(self.fd, to).is_ok()
    }

    /// Sends the message with which an association begins. Without it there is no association, unless another
    /// thread has sent one.
    fn send_to_new(&self, assoc_id: AssocId) -> Result<usize> {
        self.send_to_association(assoc_id).inspect_err(|_| {
            if !self.close_unused(assoc_id) {
                return;
            }
            let info = SendInfo { flags: Flags::ABORT, ..SendInfo::default() };
            let abort = Outgoing {
                content: Content::NONE,
                info: &info,
                to: None,
                flags: libc::MSG_DONTWAIT,
                ..*self
            };
            // Where the ring is full, the association waits for the message to be sent again.
            let _ = abort.hand_over(Recipient::OneOfMany(assoc_id, None));
        })
    }

    /// Keeps others from sending to an association to which nothing was sent. Returns false if something was.
    fn close_unused(&self, assoc_id: AssocId) -> bool {
        // Without an entry, the page does not say whether anything was sent.
        self.entry_of(assoc_id).is_none_or(|(entry, sent)| sent.close_unused(entry, assoc_id))
    }

    /// Sends to each association that exists when its turn comes and whose peer has not shut it down. The daemon lists them,
    /// because the page may not have entries for all. Returns the number of bytes for the last one, as the kernel does: 0 if the
    /// message was not for it.
    fn send_to_all(self) -> Result<usize> {
        let (mut after, mut sent) = (AssocId::NONE, 0);
        loop {
            // An array, because a send may be cancelled, and a list would have a destructor.
            let mut some = [AssocId::NONE; ASSOCIATIONS_AT_ONCE];
            let count = setup::associations(self.fd, after, &mut some)?;
            let mut rest = &some[..count];
            while let [next, others @ ..] = rest {
                if !others.is_empty() {
                    let put = match self.put_for_several(rest) {
                        Err(Errno(libc::EPIPE)) => 0,
                        put => put?,
                    };
                    if put > 0 {
                        (rest, sent) = (&rest[put..], self.content.bytes());
                        continue;
                    }
                }
                sent = match self.send_to_association(*next) {
                    // The association has ended meanwhile, or its peer has shut it down.
                    Err(Errno(libc::EPIPE | libc::ESHUTDOWN)) => 0,
                    sent => sent?,
                };
                rest = others;
            }
            match some[..count].last() {
                Some(last) => after = *last,
                None => return Ok(sent),
            }
        }
    }

    /// Puts the message into the ring for each of these associations, under one hold of the lock, until one has to wait or the
    /// message cannot go to it. Returns for how many it is there.
    fn put_for_several(&self, all: &[AssocId]) -> Result<usize> {
        let mut put = 0;
        ring::send_batch(self.fd, self.descriptor, self.flags, |batch| {
            let is_put = all.get(put).is_some_and(|next| self.put_for_association(batch, *next));
            put += usize::from(is_put);
            is_put
        })?;
        Ok(put)
    }

    /// Sends to an association of a one-to-many socket, as soon as it has room.
    fn send_to_association(&self, assoc_id: AssocId) -> Result<usize> {
        let bytes = self.content.bytes() as u32;
        let patience = Patience::of_send(self.fd, self.flags);
        let mut waits = 0;
        loop {
            let Some((entry, sent)) = self.entry_of(assoc_id) else {
                // There are more associations than entries, or this one has ended.
                self.await_room(assoc_id)?;
                return self.hand_over(Recipient::OneOfMany(assoc_id, None));
            };
            self.check_not_shut(entry)?;
            check_stream(self.info, &entry.default_stream, &entry.streams_out)?;
            if sent.reserve(entry, assoc_id, bytes) {
                return self.send_reserved(assoc_id, entry, || sent.unreserve(entry, assoc_id, bytes));
            }
            if !entry.is_of(assoc_id, Relaxed) {
                // The association has ended, and its entry belongs to another.
                continue;
            }
            if !self.waits() || patience.is_over() {
                return Err(Errno(libc::EAGAIN));
            }
            self.await_room(assoc_id)?;
            waits += 1;
            if waits > ROOM_TRIES {
                // Other senders took the room each time, or a sharer has written a false count of sent bytes.
                patience.pause(ROOM_PAUSE)?;
            }
        }
    }

    /// Returns the entry of an association in the status page, and the number of bytes sent to it.
    fn entry_of(&self, assoc_id: AssocId) -> Option<(&Entry, &SentBytes)> {
        let pages = self.pages();
        let mut entries = pages.status.entries().iter().zip(pages.sharers.sent());
        entries.find(|(entry, _)| entry.is_of(assoc_id, Relaxed))
    }

    /// Sends a message for which there is room; `unreserve` gives the room back if that fails.
    fn send_reserved(&self, assoc_id: AssocId, entry: &Entry, unreserve: impl Fn()) -> Result<usize> {
        let recipient = Recipient::OneOfMany(assoc_id, Some(entry));
        let bytes = cancel::undoing(&unreserve, || self.hand_over(recipient)).inspect_err(|_| unreserve())?;
        if !ends(self.info) {
            return Ok(bytes);
        }
        // The daemon knows of the end when it answers, so that the next send fails.
        let _gone = setup::await_room(self.fd, assoc_id);
        Ok(0)
    }

    /// Returns whether the message goes to an association that was shut down: one that ends it does, but a message for
    /// all leaves such associations out.
    fn goes_after_shutdown(&self) -> bool {
        ends(self.info) && !self.info.to_all
    }

    /// Waits until an association has room.
    ///
    /// # Errors
    ///
    /// `ESHUTDOWN`: it was shut down.
    fn await_room(&self, assoc_id: AssocId) -> Result<()> {
        match setup::await_room(self.fd, assoc_id) {
            Err(Errno(libc::ESHUTDOWN)) if self.goes_after_shutdown() => Ok(()),
            waited => waited,
        }
    }

    /// Returns the association with a peer if the status page has its entry.
    fn association_in_page(&self, to: SocketAddr) -> Option<AssocId> {
        let known = self.pages().status.entries().iter().find(|entry| entry.peer() == Some(to))?;
        match known.assoc_id.load(Relaxed) {
            0 => None,
            id => Some(AssocId::new(id)),
        }
    }

    /// Returns the association with a peer, or `None` if it begins with this message.
    fn association_with(&self, to: SocketAddr) -> Result<Option<AssocId>> {
        if let Some(known) = self.association_in_page(to) {
            return Ok(Some(known));
        }
        match setup::find_association(self.fd, to) {
            Err(Errno(libc::ENOENT)) if ends(self.info) => Err(Errno(libc::EINVAL)),
            Err(Errno(libc::ENOENT)) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Begins an association with this message.
    fn connect(&self, to: SocketAddr) -> Result<AssocId> {
        let further = self.control.further_hosts()?.into_iter().map(|host| SocketAddr::new(host, to.port()));
        let peer: Vec<SocketAddr> = iter::once(to).chain(further).collect();
        setup::connect_with_message(self.fd, &peer, self.info.init)
    }

    /// Puts the message into the ring of a batch, if neither a wait nor a request must come before. Returns whether it is there;
    /// otherwise [`Outgoing::send`] sends it, or fails.
    pub(crate) fn put(mut self, batch: &Batch<'_>) -> bool {
        let pages = self.descriptor.pages();
        match pages.status.state() {
            State::OneToMany | State::OneToManyListening => {
                let association = match self.to {
                    Some(to) => self.association_in_page(to),
                    None => Some(self.info.assoc_id).filter(|named| *named != AssocId::NONE),
                };
                let one = association.filter(|_| !self.info.to_all && self.check().is_ok());
                one.is_some_and(|assoc_id| self.put_for_association(batch, assoc_id))
            }
            State::Connected => {
                if pages.status.style.load(Relaxed) == libc::SOCK_SEQPACKET as u32 {
                    self.to = None;
                }
                let is_to_peer = self.to.is_none_or(|to| pages.status.peer() == Some(to));
                let streams = (&pages.status.default_stream, &pages.status.streams_out);
                let may_go = is_to_peer && self.check().is_ok();
                if !may_go || check_stream(self.info, streams.0, streams.1).is_err() {
                    return false;
                }
                match self.info.flags.contains(Flags::BY_DEFAULT) {
                    true => Outgoing { info: &self.completed(), ..self }.put_for(batch, Recipient::Only),
                    false => self.put_for(batch, Recipient::Only),
                }
            }
            _ => false,
        }
    }

    /// Does the work of [`Outgoing::put`] for an association of a one-to-many socket.
    fn put_for_association(&self, batch: &Batch<'_>, assoc_id: AssocId) -> bool {
        let bytes = self.content.bytes() as u32;
        let Some((entry, sent)) = self.entry_of(assoc_id) else { return false };
        if check_stream(self.info, &entry.default_stream, &entry.streams_out).is_err()
            || !sent.reserve(entry, assoc_id, bytes)
        {
            return false;
        }
        let unreserve = || sent.unreserve(entry, assoc_id, bytes);
        let put = || self.put_for(batch, Recipient::OneOfMany(assoc_id, Some(entry)));
        let is_put = cancel::undoing(unreserve, put);
        if !is_put {
            unreserve();
        }
        is_put
    }

    fn put_for(&self, batch: &Batch<'_>, recipient: Recipient<'_>) -> bool {
        let may_go = self.content.bytes() <= PAYLOAD_BYTES_MAX && !ends(self.info);
        may_go && batch.put(&self.header(recipient), self.content, || self.check_recipient(recipient))
    }

    /// Fails for a message that no association could take.
    fn check(&self) -> Result<()> {
        let (pages, info) = (self.pages(), self.info);
        let is_one_to_one = pages.status.style.load(Relaxed) == libc::SOCK_STREAM as u32;
        match self.content.bytes() {
            0 if !ends(info) && !tcp::is_stream(self.descriptor) => Err(Errno(libc::EINVAL)),
            1.. if info.flags.contains(Flags::SHUTDOWN) => Err(Errno(libc::EINVAL)),
            _ if is_one_to_one && ends(info) => Err(Errno(libc::EINVAL)),
            _ if info.overrides_address && self.to.is_none() => Err(Errno(libc::EINVAL)),
            bytes if bytes > self.message_bytes_max() => Err(Errno(libc::EMSGSIZE)),
            _ => Ok(()),
        }
    }

    /// Returns the length of the longest message that the socket takes.
    fn message_bytes_max(&self) -> usize {
        match self.pages().status.fragmentation_limit.load(Relaxed) as usize {
            0 => MESSAGE_BYTES_MAX,
            limit => limit.min(MESSAGE_BYTES_MAX),
        }
    }

    /// Returns the address that the message must go to instead of the primary path: one that overrides it, or, on a one-to-one
    /// socket, any address other than the connected one.
    fn overridden(&self) -> Option<SocketAddr> {
        let pages = self.pages();
        let is_one_to_one = pages.status.style.load(Relaxed) == libc::SOCK_STREAM as u32;
        self.to
            .filter(|to| self.info.overrides_address || (is_one_to_one && pages.status.peer() != Some(*to)))
    }

    /// Returns the header of the message, as the daemon gets it in a ring or a record.
    fn header(&self, recipient: Recipient<'_>) -> Header {
        let info = self.info;
        let assoc_id = match recipient {
            Recipient::Only => AssocId::NONE,
            Recipient::OneOfMany(assoc_id, _) => assoc_id,
        };
        let over = self.overridden();
        let to_address = if over.is_some() { Flags::TO_ADDRESS } else { Flags::default() };
        Header {
            flags: info.flags.with(Flags::END).with(to_address),
            stream: info.stream,
            ppid: info.ppid,
            context: info.context,
            lifetime_ms: info.lifetime_ms,
            assoc_id,
            bytes: self.content.bytes() as u32,
            address: over,
            ..Header::new(Kind::Data)
        }
    }

    fn hand_over(&self, recipient: Recipient<'_>) -> Result<usize> {
        let bytes = self.content.bytes();
        // A call may have waited for long since it has looked at the page first.
        let check = || self.check_recipient(recipient);
        let mut header = self.header(recipient);
        if bytes <= PAYLOAD_BYTES_MAX {
            return self.in_order(|| self.send_short(&header, check)).map(|()| bytes);
        }
        if bytes <= LONG_BYTES_MAX {
            let put = || ring::send(self.fd, self.descriptor, &header, self.content, self.flags, check);
            match self.in_order(put) {
                Ok(()) => return Ok(bytes),
                Err(PutError::Refused(error) | PutError::Errno(error)) => return Err(error),
                Err(PutError::RingUnusable) => {}
            }
        }
        header.flags = header.flags.with(Flags::IN_MEMFD);
        // No frame that waits holds a value with a destructor.
        match setup::sealed_memfd(self.content).map(Owned::release) {
            // A child has room for a descriptor, or higher limits.
            Err(Errno(libc::EMFILE | libc::EFBIG)) => self.send_long(header, check, |record| {
                child::with_room(self.fd, || {
                    let memfd = setup::sealed_memfd(self.content)?;
                    send_now(self.fd, record, memfd.raw())
                })
            }),
            memfd => {
                let memfd = memfd?;
                let close = || system::close(memfd);
                let sent = cancel::undoing(close, || {
                    self.send_long(header, check, |record| send_now(self.fd, record, memfd))
                });
                close();
                sent
            }
        }
        .map(|()| bytes)
    }

    /// Sends a message by `send`, and no other thread begins to use the ring meanwhile.
    fn in_order<E>(&self, send: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let ring = &self.descriptor.ring;
        if ring.is_used() {
            return send();
        }
        ring.begin_record();
        let end = || ring.end_record();
        let sent = cancel::undoing(end, send);
        end();
        sent
    }

    /// Sends a message through the ring, or as a record.
    fn send_short(&self, header: &Header, check: impl Fn() -> Result<()>) -> Result<()> {
        match ring::send(self.fd, self.descriptor, header, self.content, self.flags, &check) {
            Ok(()) => Ok(()),
            Err(PutError::Refused(error) | PutError::Errno(error)) => Err(error),
            Err(PutError::RingUnusable) => ring::send_alone(self.fd, self.descriptor, self.flags, || {
                check()?;
                self.send_record(header)
            })
            .map(|()| self.pages().sharers.count_record()),
        }
    }

    /// Sends a short message as a record, without waiting.
    fn send_record(&self, header: &Header) -> Result<()> {
        sent_behind(&self.record_of(header).encode(), self.content, |record| {
            let send = || system::send(self.fd, record, None, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            match send() {
                // A sharer has made the send buffer small, because its ring is full.
                Err(Errno(libc::EMSGSIZE)) => {
                    ring::restore_send_buffer(self.fd, self.descriptor, self.flags)?;
                    send()
                }
                sent => sent,
            }
        })
        .map(drop)
    }

    /// Returns the header of a message that goes as a record.
    fn record_of(&self, header: &Header) -> Header {
        let sequence = Sequence::sent_after(self.pages().sharers.records_sent());
        Header { sequence, ..*header }
    }

    /// Sends a long message; `send` sends the record with its memfd and does not wait.
    fn send_long(
        &self,
        header: Header,
        check: impl Fn() -> Result<()>,
        send: impl Fn(&Header) -> Result<()>,
    ) -> Result<()> {
        let put = || ring::send_long(self.fd, self.descriptor, header, self.flags, &check, &send);
        self.in_order(|| match put() {
            Ok(()) => Ok(()),
            Err(PutError::Refused(error) | PutError::Errno(error)) => Err(error),
            Err(PutError::RingUnusable) => ring::send_alone(self.fd, self.descriptor, self.flags, || {
                check()?;
                send(&self.record_of(&header))
            })
            .map(|()| self.pages().sharers.count_record()),
        })
    }
}

/// Sends messages that need neither a wait nor a request, under few holds of the lock: calls `put_next` for one after the other,
/// which puts it by [`Outgoing::put`], until it returns false. A cancellation point.
///
/// # Errors
///
/// Those of [`Outgoing::send`]; some of the messages may be in the ring.
pub(crate) fn send_batch(
    fd: RawFd,
    descriptor: &Descriptor,
    flags: c_int,
    put_next: impl FnMut(&Batch<'_>) -> bool,
) -> Result<()> {
    if tcp::is_stream(descriptor) {
        return Ok(());
    }
    cancel::point();
    let sent = ring::send_batch(fd, descriptor, flags, put_next);
    self_connect::sends(descriptor.pages());
    signalled(sent, flags)
}

/// Returns the result of a send, after the signal that comes with it.
fn signalled<T>(sent: Result<T>, flags: c_int) -> Result<T> {
    if matches!(sent, Err(Errno(libc::EPIPE))) && flags & libc::MSG_NOSIGNAL == 0 {
        // AF_UNIX sockets of this type never raise it themselves.
        // SAFETY: the call takes no pointer.
        unsafe { libc::raise(libc::SIGPIPE) };
        Errno(libc::EPIPE).set();
    }
    sent
}

/// Sends the header of a long message with the memfd of its content, without waiting.
fn send_now(fd: RawFd, header: &Header, memfd: RawFd) -> Result<()> {
    static BLOCK: [u8; PADDING_BLOCK_BYTES] = [0; PADDING_BLOCK_BYTES];
    let encoded = header.encode();
    let mut parts = [Source::of(&BLOCK); 1 + PADDING_BYTES_MAX / PADDING_BLOCK_BYTES];
    parts[0] = Source::of(&encoded);
    let send = |parts| {
        system::send(fd, Content::new(parts), Some(memfd), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).map(drop)
    };
    match send(&parts[..=header.padding_bytes() / PADDING_BLOCK_BYTES]) {
        // The send buffer is smaller than the padding: a sharer has made it so, because its ring is full.
        Err(Errno(libc::EMSGSIZE)) => send(&parts[..1]),
        sent => sent,
    }
}

/// Returns whether the message ends its association.
fn ends(info: &SendInfo) -> bool {
    info.flags.contains(Flags::SHUTDOWN) || info.flags.contains(Flags::ABORT)
}

/// Fails for a message to a stream that the association does not have. One that only shuts the association down has no stream.
fn check_stream(info: &SendInfo, default: &AtomicU32, streams_out: &AtomicU32) -> Result<()> {
    let by_default = info.flags.contains(Flags::BY_DEFAULT);
    let stream = if by_default { default.load(Relaxed) } else { info.stream.into() };
    let streams_out = streams_out.load(Relaxed);
    let is_unknown = streams_out > 0 && stream >= streams_out;
    if is_unknown && !info.flags.contains(Flags::SHUTDOWN) { Err(Errno(libc::EINVAL)) } else { Ok(()) }
}
