//! Requests about the streams of associations: listing, pushing and popping modules, and recording.
//!
//! These requests come without a descriptor, because the program that manages a stream is not the one that uses it.
//! They are permitted to the owner of the socket and to the administrator (see [`Requester`]). A module that the administrator
//! pushes on the stream of another user is anchored, so that only the administrator can pop it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use channel_protocol::assoc_id::AssocId;
use channel_protocol::request::Recorder;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use swiftwater::modules::{Tap, Trace};
use swiftwater::streams::{PartDescription, PopError, PushError, QueueDescription};
use swiftwater::tokio::Association;
use swiftwater::{Module, internals};

use super::feed;
use super::link_status::LinkStatus;
use super::reply::{Answer, Reply};
use super::report::{ASSOCIATIONS_MAX, Report};
use super::status;
use super::walk::Walk;
use crate::state::association::SocketAssociation;
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::state::stream_rules::no_module;
use crate::state::stream_rules::{TAP, tap_folder};
use crate::system::journal::{Cause, log};
use crate::users::requester::Requester;

/// Time that a pop waits for a module that cannot leave yet.
const LEAVE_WAIT: Duration = Duration::from_secs(3);
/// Maximum number of modules on one stream. Each module delays every message.
const MODULES_MAX: usize = 8;

/// Answers with the streams that this user may see, as [`report`](super::report::report) does with sockets.
pub(crate) async fn report_streams(registry: &Registry, requester: Requester) -> Result<Reply, Errno> {
    let mut report = Report::begin(registry, requester).await?;
    let (mut shown, mut omitted) = (0, 0);
    let mut walk = Walk::over(registry);
    while let Some(sockets) = walk.next().await {
        for socket in sockets.iter().filter(|socket| requester.may_manage(socket.owner().user)) {
            let associations = socket.associations().all();
            for assoc in associations {
                walk.report_one().await;
                let Some(stream) = stream_status(socket, &assoc) else { continue };
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
pub(crate) fn push(
    registry: &Registry,
    id: AssocId,
    module: &str,
    requester: Requester,
) -> Result<Reply, Errno> {
    let mut words = module.split_ascii_whitespace().map(str::to_owned);
    let name = words.next().ok_or(Errno::INVAL)?;
    let arguments: Vec<String> = words.collect();
    push_with(registry, id, requester, |association| association.stream().push_named(&name, &arguments))
        .map(|(reply, _)| reply)
}

/// Pushes a recording module, and answers with the feed of its records.
pub(crate) fn record(
    registry: &Registry,
    id: AssocId,
    recorder: Recorder,
    requester: Requester,
) -> Result<Reply, Errno> {
    let (resources, user) = (registry.resources(), requester.user());
    let permit = resources.take_waiting(user)?;
    let account = resources.users().unread().account(user);
    let charge = account.take(feed::CHARGED_BYTES).ok_or(Errno::NOBUFS)?;
    let (sink, feed) = feed::pair(charge, permit);
    let push = move |association: &Association| {
        let sink = Box::new(sink);
        let module: Box<dyn Module> = match recorder {
            Recorder::Tap => Box::new(Tap::new(sink, epoch(), association_ports(association))),
            Recorder::Trace => Box::new(Trace::new(sink)),
        };
        association.stream().push(module)
    };
    let (reply, assoc) = push_with(registry, id, requester, push)?;
    Ok(match reply.answer {
        Answer::Done => Reply { feed: Some(feed.of(&assoc)), ..reply },
        _ => reply,
    })
}

/// Pushes a module; returns the answer and the association.
fn push_with(
    registry: &Registry,
    id: AssocId,
    requester: Requester,
    push: impl FnOnce(&Association) -> Result<(), PushError>,
) -> Result<(Reply, Rc<SocketAssociation>), Errno> {
    let (socket, assoc) = stream(registry, id, requester)?;
    let association = assoc.stack_association().ok_or(Errno::NOTCONN)?;
    // A popped module has a place until its messages have gone on.
    let has_room = association.stream().places() < MODULES_MAX;
    let pushed = if has_room { push(association) } else { Err(PushError::TooMany) };
    let reply = match pushed {
        Ok(()) => {
            if requester.administers(socket.owner().user) {
                // The anchor succeeds, because nothing else has run since the push.
                let _ = association.stream().anchor();
            }
            Answer::Done.into()
        }
        Err(PushError::NoModule) => refused(no_module(registry.stack())),
        Err(error) => refused(error.to_string()),
    };
    Ok((reply, assoc))
}

/// Pops the uppermost module; answers with the module's name.
pub(crate) async fn pop(registry: &Registry, id: AssocId, requester: Requester) -> Result<Reply, Errno> {
    let (_, assoc) = stream(registry, id, requester)?;
    let association = assoc.stack_association().ok_or(Errno::NOTCONN)?;
    let pop = || {
        let stream = association.stream();
        let popped = if requester.may_unanchor() { stream.pop_anchored() } else { stream.pop() };
        stream.pop_finished();
        popped
    };
    let mut popped = pop();
    if matches!(popped, Err(PopError::Busy)) {
        let permit = registry.resources().take_waiting(requester.user())?;
        let leaves = async {
            while matches!(popped, Err(PopError::Busy)) {
                association.poppable().await;
                popped = pop();
            }
        };
        // A module that does not leave in time stays.
        let _ = permit.unless_lost(tokio::time::timeout(LEAVE_WAIT, leaves)).await?;
    }
    match popped {
        Ok(module) => Ok(Answer::Value(module.name().into()).into()),
        Err(PopError::Anchored) => Err(Errno::PERM),
        Err(error) => Ok(refused(error.to_string())),
    }
}

/// Finds the association with this number, for a user who may manage its stream.
pub(super) fn stream(
    registry: &Registry,
    id: AssocId,
    requester: Requester,
) -> Result<(Rc<Socket>, Rc<SocketAssociation>), Errno> {
    let (socket, assoc) = registry.association(id).ok_or(Errno::NOENT)?;
    if requester.may_manage(socket.owner().user) { Ok((socket, assoc)) } else { Err(Errno::PERM) }
}

pub(super) fn refused(why: String) -> Reply {
    Answer::Refused(why).into()
}

/// Returns the current instant, and the time since 1970.
fn epoch() -> (Instant, Duration) {
    (Instant::now(), SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
}

/// Returns the SCTP ports of this end and of the peer.
fn association_ports(association: &Association) -> (u16, u16) {
    internals::view(association, |view| view.ports()).unwrap_or_default()
}

/// Returns the status of the stream of an association; `None` while it is being set up, and once it has ended.
fn stream_status(socket: &Socket, assoc: &SocketAssociation) -> Option<StreamStatus> {
    let association = assoc.stack_association()?;
    let stream = association.stream().describe()?;
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
    let driver =
        PartStatus { counts: named(status::driver_counts(association)), ..part_status(stream.driver) };
    let modules = stream.modules.into_iter().map(part_status);
    Some(StreamStatus {
        socket: socket.number(),
        association: assoc.id().get(),
        user: socket.owner().user,
        process: socket.owner().process,
        local: association.local_addr(),
        peer: assoc.peer(),
        parts: std::iter::once(head).chain(modules).chain([driver]).collect(),
        link: LinkStatus::of(assoc),
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

/// Pushes modules by the rules on the stream of a new association. The modules are anchored: only the administrator can pop
/// them.
pub(crate) fn autopush(socket: &Socket, assoc: &SocketAssociation) {
    let Some(association) = assoc.stack_association() else { return };
    let rules = socket.autopush().rules();
    if rules.is_empty() {
        return;
    }
    let owner = socket.owner();
    let program = socket.program().map(|program| &**program);
    let modules = rules.modules(owner.user, assoc.ports(), program);
    let stream = association.stream();
    for module in modules {
        let Some((name, arguments)) = module.split_first() else { continue };
        let pushed = match name.as_str() {
            TAP => tap_to_file(socket, assoc, association, arguments)
                .and_then(|tap| stream.push(Box::new(tap)).map_err(|error| error.to_string())),
            _ => stream.push_named(name, arguments).map_err(|error| error.to_string()),
        };
        if let Err(error) = pushed {
            log(
                Cause::User(owner.user),
                format_args!("cannot push {name} on the stream of association {}: {error}", assoc.id()),
            );
        } else {
            // The association may have ended meanwhile.
            let _ = stream.anchor();
        }
    }
}

/// Returns a tap that writes a new file in the folder that a rule names. Programs have no influence on its name.
fn tap_to_file(
    socket: &Socket,
    assoc: &SocketAssociation,
    association: &Association,
    arguments: &[String],
) -> Result<Tap, String> {
    let folder = tap_folder(arguments)?;
    let (now, since_1970) = epoch();
    let owner = socket.owner();
    let name = format!(
        "{}.{:09}-user{}-pid{}-{}.pcapng",
        since_1970.as_secs(),
        since_1970.subsec_nanos(),
        owner.user,
        owner.process,
        assoc.id()
    );
    let file = socket
        .autopush()
        .tap_files()
        .create(folder.join(name), owner.user)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(Tap::new(Box::new(file), (now, since_1970), association_ports(association)))
}

/// Finds the name of the program that opens a socket, while it waits for that, if the rules name programs.
pub(crate) fn note_program(socket: &Socket) {
    if socket.autopush().rules().name_programs() {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", socket.owner().process)).ok();
        socket.on_opened_by(name.map(|name| name.trim_end().into()));
    }
}

/// A part of an answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    Stream(StreamStatus),
    /// The end of a complete answer, with the number of streams left out of a long one.
    End {
        omitted: usize,
    },
}

/// The stream of one association.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamStatus {
    /// The number of the socket.
    pub socket: u64,
    /// The number of the association, which names the stream.
    pub association: u32,
    /// The user that opened the socket, or the listener that accepted it.
    pub user: u32,
    /// The process that opened it.
    pub process: i32,
    /// The local address.
    pub local: Option<SocketAddr>,
    /// The address by which the program knows the peer.
    pub peer: SocketAddr,
    /// The head, then the modules downward, then the driver.
    pub parts: Vec<PartStatus>,
    /// The link with another stream: their peers talk with each other, and the programs wait.
    pub link: Option<LinkStatus>,
}

/// The head of a stream, a module, or the driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartStatus {
    /// `head`, or the name of the module or driver.
    pub name: String,
    /// The queue on the way up.
    pub read: QueueStatus,
    /// The queue on the way down. The head has none.
    pub write: QueueStatus,
    /// The counters of the module or driver.
    pub counts: Vec<(String, u64)>,
}

/// A queue.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Number of waiting messages.
    pub messages: usize,
    /// Bytes for which these messages count in flow control.
    pub bytes: usize,
    /// The queue is full at or above this number of bytes.
    pub hiwat_bytes: usize,
    /// A full queue has room again at or below this number of bytes.
    pub lowat_bytes: usize,
    /// Whether senders must wait.
    pub is_full: bool,
}
