//! The streams of associations: what stands on them, pushing and popping modules, and recording what passes.
//!
//! Requests about streams come with no descriptor: whoever manages a program's stream is another process. They are for the owner of
//! the socket and for root, whom the kernel names (`SO_PEERCRED`). A module that root pushes on the stream of another user is
//! anchored, so that only root pops it.

mod client;
mod feed;
mod rules;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use carrier::request::Recorder;
use rustix::io::Errno;
use rustix::net::UCred;
use swiftwater::modules::{Tap, Trace};
use swiftwater::streams::{PartDescription, PopError, PushError, QueueDescription};
use swiftwater::tokio::Association;
use swiftwater::{Module, Statistics};

pub use client::{PartStatus, QueueStatus, Recording, StreamCommandError, StreamStatus, Streams};
pub(crate) use feed::Feed;
pub use rules::StreamRules;

use crate::door::{Answer, Reply};
use crate::member::Member;
use crate::quantum::{Quantum, RECORDS_PER_TURN};
use crate::report::{ASSOCIATIONS_MAX, PASSED_OVER_PER_RECORD, Report};
use crate::socket::{Socket, Sockets};
use client::Part;

/// Most modules on one stream. Each costs the daemon time with every message.
const MODULES_MAX: usize = 8;

impl Sockets {
    /// Answers with the streams that this user may see, as [`Sockets::report`] does with sockets.
    pub(crate) async fn report_streams(&self, who: UCred) -> Result<Reply, Errno> {
        let mut report = Report::begin(self, who)?;
        let (mut shown, mut omitted) = (0, 0);
        let mut quantum = Quantum::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let batch = self.numbered_from(from, PASSED_OVER_PER_RECORD * RECORDS_PER_TURN);
            next = batch.last().map(|last| last.number + 1);
            quantum.spend(batch.len().div_ceil(PASSED_OVER_PER_RECORD)).await;
            for socket in batch.iter().filter(|socket| socket.is_of(who)) {
                let members: Vec<Arc<Member>> = socket.lock().members.values().cloned().collect();
                for member in members {
                    quantum.spend(1).await;
                    let Some(stream) = stream_status(socket, &member) else { continue };
                    if shown == ASSOCIATIONS_MAX {
                        omitted += 1;
                    } else {
                        shown += 1;
                        report.add(&Part::Stream(stream))?;
                    }
                }
            }
        }
        report.add(&Part::End { omitted })?;
        Ok(report.finish())
    }

    /// Pushes a module by its name.
    pub(crate) async fn push(&self, id: u32, module: &str, who: UCred) -> Result<Reply, Errno> {
        let mut words = module.split_ascii_whitespace().map(str::to_owned);
        let name = words.next().ok_or(Errno::INVAL)?;
        let arguments: Vec<String> = words.collect();
        self.push_with(id, who, |association| association.stream().push_named(&name, &arguments))
            .await
            .map(|(reply, _)| reply)
    }

    /// Pushes a module that records what passes, and answers with what follows from it.
    pub(crate) async fn record(&self, id: u32, recorder: Recorder, who: UCred) -> Result<Reply, Errno> {
        let seat = self.patience(who)?;
        let account = self.unread.account(who.uid.as_raw());
        let charge = account.take(feed::CHARGED_BYTES).ok_or(Errno::NOBUFS)?;
        let (sink, feed) = feed::pair(charge, seat);
        let mut sink = Some(sink);
        let push = |association: &Association| {
            let sink = Box::new(sink.take().ok_or(PushError::Closed)?);
            let module: Box<dyn Module> = match recorder {
                Recorder::Tap => Box::new(Tap::new(sink, epoch(), ports(association))),
                Recorder::Trace => Box::new(Trace::new(sink)),
            };
            association.stream().push(module)
        };
        let (reply, member) = self.push_with(id, who, push).await?;
        Ok(match reply.answer {
            Answer::Done => Reply { feed: Some(feed.of(&member)), ..reply },
            _ => reply,
        })
    }

    /// Pushes a module; returns what is answered, and the association.
    async fn push_with(
        &self,
        id: u32,
        who: UCred,
        push: impl FnOnce(&Association) -> Result<(), PushError>,
    ) -> Result<(Reply, Arc<Member>), Errno> {
        let (socket, member) = self.stream(id, who).await?;
        let association = member.association().ok_or(Errno::NOTCONN)?;
        // The driver is on the list, too.
        let has_room = association.stream().list().len() <= MODULES_MAX;
        let pushed = if has_room { push(association) } else { Err(PushError::TooMany) };
        let reply = match pushed {
            Ok(()) => {
                if is_privileged(who) && socket.share.owner.user != who.uid.as_raw() {
                    // It stands there: nothing else runs in between.
                    let _ = association.stream().anchor();
                }
                Answer::Done.into()
            }
            Err(PushError::NoModule) => {
                let names = self.stack.module_names().join(", ");
                refused(format!("no module has this name; there are {names}"))
            }
            Err(error) => refused(error.to_string()),
        };
        Ok((reply, member))
    }

    /// Pops the uppermost module; answers with its name.
    pub(crate) async fn pop(&self, id: u32, who: UCred) -> Result<Reply, Errno> {
        let (_, member) = self.stream(id, who).await?;
        let stream = member.association().ok_or(Errno::NOTCONN)?.stream();
        let popped = if is_privileged(who) { stream.pop_anchored() } else { stream.pop() };
        stream.pop_finished();
        match popped {
            Ok(module) => Ok(Answer::Value(module.name().into()).into()),
            Err(PopError::Anchored) => Err(Errno::PERM),
            Err(error) => Ok(refused(error.to_string())),
        }
    }

    /// Finds the association with this number, for a user who may manage its stream. Others' sockets are passed over in turns.
    async fn stream(&self, id: u32, who: UCred) -> Result<(Arc<Socket>, Arc<Member>), Errno> {
        let mut quantum = Quantum::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let batch = self.numbered_from(from, PASSED_OVER_PER_RECORD * RECORDS_PER_TURN);
            next = batch.last().map(|last| last.number + 1);
            quantum.spend(batch.len().div_ceil(PASSED_OVER_PER_RECORD)).await;
            for socket in batch {
                let member = socket.lock().members.get(&id).cloned();
                match member {
                    Some(member) if socket.is_of(who) => return Ok((socket, member)),
                    Some(_) => return Err(Errno::PERM),
                    None => {}
                }
            }
        }
        Err(Errno::NOENT)
    }
}

/// Whether this is root, or the user of the daemon: who administers it.
fn is_privileged(who: UCred) -> bool {
    who.uid.is_root() || who.uid == rustix::process::geteuid()
}

fn refused(why: String) -> Reply {
    Answer::Refused(why).into()
}

/// An instant, and the time from 1970 on that it is.
fn epoch() -> (Instant, std::time::Duration) {
    (Instant::now(), SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
}

/// The SCTP ports of this end and the peer's.
fn ports(association: &Association) -> (u16, u16) {
    association.statistics().map_or((0, 0), |known| (known.local_port, known.peer_port))
}

/// Returns what stands on the stream of an association; `None` while it is being set up, and once it is gone.
fn stream_status(socket: &Socket, member: &Member) -> Option<StreamStatus> {
    let association = member.association()?;
    let stream = association.stream().describe()?;
    let known = association.statistics().unwrap_or_default();
    let head = PartStatus {
        name: "head".into(),
        read: queue_status(&stream.head_queue),
        write: QueueStatus::default(),
        counts: named([
            ("messages written", stream.head.messages_written),
            ("bytes written", stream.head.bytes_written),
            ("writes blocked", stream.head.writes_blocked),
            ("messages read", stream.head.messages_read),
            ("bytes read", stream.head.bytes_read),
        ]),
    };
    let driver = PartStatus { counts: driver_counts(&known), ..part_status(stream.driver) };
    let modules = stream.modules.into_iter().map(part_status);
    Some(StreamStatus {
        socket: socket.number,
        association: member.id,
        user: socket.share.owner.user,
        process: socket.share.owner.process,
        local: association.local_addr(),
        peer: member.peer,
        parts: std::iter::once(head).chain(modules).chain([driver]).collect(),
    })
}

fn part_status(part: PartDescription) -> PartStatus {
    PartStatus {
        name: part.name,
        read: queue_status(&part.read),
        write: queue_status(&part.write),
        counts: named(part.counts),
    }
}

fn driver_counts(known: &Statistics) -> Vec<(String, u64)> {
    named([
        ("messages sent", known.messages_sent),
        ("bytes sent", known.bytes_sent),
        ("messages received", known.messages_received),
        ("bytes received", known.bytes_received),
    ])
}

fn named(counts: impl IntoIterator<Item = (&'static str, u64)>) -> Vec<(String, u64)> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

fn queue_status(queue: &QueueDescription) -> QueueStatus {
    QueueStatus {
        messages: queue.messages,
        bytes: queue.bytes,
        hiwat_bytes: queue.hiwat_bytes,
        lowat_bytes: queue.lowat_bytes,
        is_full: queue.is_full,
    }
}
