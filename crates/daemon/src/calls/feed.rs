//! Sends the records of a recording module to the command that writes them.
//!
//! The module puts its records into a buffer of fixed size and never waits. A task sends them as fast as the command
//! reads; records without room are dropped and counted.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::rc::Weak;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendFlags};
use swiftwater::modules::RecordSink;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::state::association::SocketAssociation;
use crate::users::budget::Charge;
use crate::users::closer::{self, End};
use crate::users::record_buffer::RecordBuffer;
use crate::users::user_permits::Permit;

/// Maximum number of bytes of waiting records.
const BUFFER_BYTES: usize = 512 * 1024;
/// Charge of a recording: for waiting records, and for those being sent.
pub(super) const CHARGED_BYTES: usize = 2 * BUFFER_BYTES;
/// Maximum number of bytes of records in one packet to the command.
const PACKET_BYTES: usize = 32 * 1024;
/// Time limit for reading the remaining records after the command has ended the recording.
const REST_WAIT: Duration = Duration::from_secs(5);

/// State that the module and the task share.
struct Shared {
    /// Closed when the command has ended.
    buffer: RecordBuffer,
    /// Notifies the task of records, and of the end of the module.
    news: Notify,
    /// Whether the module has ended.
    has_ended: AtomicBool,
}

/// The module's end of the buffer.
pub(super) struct Sink(Arc<Shared>);

impl RecordSink for Sink {
    fn take(&mut self, pieces: &[&[u8]]) -> bool {
        self.0.buffer.take(pieces, || self.0.news.notify_one())
    }

    fn is_closed(&self) -> bool {
        self.0.buffer.is_closed()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Release);
        self.0.news.notify_one();
    }
}

/// The records of one module, to be sent on a connection after its answer.
pub(crate) struct Feed {
    shared: Arc<Shared>,
    /// A weak reference, because a recording must not keep the association alive.
    assoc: Weak<SocketAssociation>,
    /// The permit of the recording among the requests that wait.
    permit: Permit,
    _charge: Charge,
}

/// Records on their way to the command.
struct Waiting {
    records: Vec<u8>,
    /// Bytes of them that were sent.
    sent_bytes: usize,
}

impl Waiting {
    /// Returns the records of the next packet.
    fn next_packet(&self) -> Option<&[u8]> {
        let rest = &self.records[self.sent_bytes..];
        (!rest.is_empty()).then(|| &rest[..rest.len().min(PACKET_BYTES)])
    }
}

/// Returns the two ends of a recording.
pub(super) fn pair(charge: Charge, permit: Permit) -> (Sink, Feed) {
    let (buffer, news) = (RecordBuffer::new(BUFFER_BYTES), Notify::new());
    let shared = Arc::new(Shared { buffer, news, has_ended: AtomicBool::new(false) });
    (Sink(Arc::clone(&shared)), Feed { shared, assoc: Weak::new(), permit, _charge: charge })
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.buffer.close();
        let assoc = self.assoc.upgrade();
        if let Some(association) = assoc.as_ref().and_then(|assoc| assoc.stack_association()) {
            association.stream().pop_finished();
        }
    }
}

impl Feed {
    /// Returns the feed with the association whose stream has the module, which the feed pops at its end.
    pub(super) fn of(mut self, assoc: &Rc<SocketAssociation>) -> Self {
        self.assoc = Rc::downgrade(assoc);
        self
    }

    /// Sends records until the module or the command has ended, or another user takes the permit.
    pub(crate) async fn follow(self, connection: &AsyncFd<End>) -> io::Result<()> {
        let mut records = Waiting { records: Vec::with_capacity(BUFFER_BYTES), sent_bytes: 0 };
        let mut ended = false;
        while !ended {
            tokio::select! {
                () = self.shared.news.notified() => {}
                () = closer::gone(connection) => break,
                () = self.permit.lost() => break,
            }
            ended = self.shared.has_ended.load(Acquire);
            tokio::select! {
                sent = self.send_all(connection, &mut records) => sent?,
                () = closer::gone(connection) => break,
                () = self.permit.lost() => break,
            }
        }
        tokio::time::timeout(REST_WAIT, self.send_rest(connection, &mut records)).await.unwrap_or(Ok(()))
    }

    /// Sends all waiting records. If the future is dropped, the unsent ones remain in `waiting`.
    async fn send_all(&self, connection: &AsyncFd<End>, waiting: &mut Waiting) -> io::Result<()> {
        loop {
            while let Some(packet) = waiting.next_packet() {
                let lost = self.shared.buffer.lost();
                let bytes = packet.len();
                send(connection, lost, packet).await?;
                waiting.sent_bytes += bytes;
            }
            waiting.sent_bytes = 0;
            if !self.shared.buffer.drain(&mut waiting.records) {
                return Ok(());
            }
        }
    }

    /// Sends the remaining records at the end, and the total number of lost records.
    async fn send_rest(&self, connection: &AsyncFd<End>, waiting: &mut Waiting) -> io::Result<()> {
        self.shared.buffer.close();
        self.send_all(connection, waiting).await?;
        let lost = self.shared.buffer.lost();
        send(connection, lost, &[]).await
    }
}

async fn send(connection: &AsyncFd<End>, lost: u64, records: &[u8]) -> io::Result<()> {
    let lost = lost.to_le_bytes();
    let packet = [IoSlice::new(&lost), IoSlice::new(records)];
    let send = |end: &End| {
        let mut control = SendAncillaryBuffer::default();
        end.time().measure(|| rustix::net::sendmsg(end, &packet, &mut control, SendFlags::NOSIGNAL))?;
        Ok(())
    };
    connection.get_ref().time().unthrottled().await;
    connection.async_io(Interest::WRITABLE, send).await
}
