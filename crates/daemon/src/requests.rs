//! What each request does.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use carrier::page::State;
use carrier::request::{Addresses, InitMessage, OPTION_BYTES_MAX, Request, Start};
use rustix::io::Errno;
use rustix::net::UCred;

use crate::addresses::{check_peer, parse_list};
use crate::closer::{ReceivedDescriptor, Source};
use crate::door::{Answer, Reply};
use crate::identity::Cookie;
use crate::long_messages;
use crate::many;
use crate::member::Outcome;
use crate::options::Settings;
use crate::owner::Owner;
use crate::peel_off::Front;
use crate::places::Seat;
use crate::pump;
use crate::recall::Recalled;
use crate::socket::{Socket, Sockets, Style};

const IPPROTO_SCTP: i32 = 132;
const SCTP_SOCKOPT_BINDX_ADD: i32 = 100;
const SCTP_SOCKOPT_BINDX_REM: i32 = 101;
const SCTP_GET_PEER_ADDRS: i32 = 108;
const SCTP_GET_LOCAL_ADDRS: i32 = 109;

impl Sockets {
    /// Does what is asked for. What only the peer can answer is waited for.
    pub(crate) async fn perform(
        self: &Arc<Self>,
        request: &Request<'_>,
        descriptor: Option<&ReceivedDescriptor>,
        who: UCred,
    ) -> Result<Reply, Errno> {
        match *request {
            Request::Describe => {
                let description = crate::inquiry::answer(&self.stack, self.on_demand);
                return Ok(Answer::Value(description.into_bytes()).into());
            }
            Request::Barrier => {
                // A copy of ours keeps what a program has closed open.
                for source in [Source::Requests, Source::Carriers] {
                    self.closers.of(who.uid.as_raw(), source).drained().await;
                }
                settle().await;
                return Ok(Answer::Done.into());
            }
            Request::Open { v6, one_to_many } => return self.open_for(who.into(), v6, one_to_many),
            Request::Status => return self.report(who).await,
            Request::Streams => return self.report_streams(who).await,
            Request::Push { association, module } => return self.push(association, module, who).await,
            Request::Pop { association } => return self.pop(association, who).await,
            Request::Record { association, recorder } => {
                return self.record(association, recorder, who).await;
            }
            Request::Memfd => {
                let memfd = long_messages::memfd_to_fill()?;
                return Ok(Reply { answer: Answer::Done, descriptors: vec![memfd], lent: None, feed: None });
            }
            _ => {}
        }
        let descriptor = descriptor.ok_or(Errno::BADF)?;
        let socket = self.find(Cookie::of(descriptor)?).ok_or(Errno::NOTSOCK)?;
        if socket.style == Style::OneToMany {
            // What was sent before comes before what is asked for.
            let all_taken = many::drain(&socket).await;
            if !all_taken && matches!(request, Request::PeelOff { .. }) {
                // Some of it may be for the association that would be gone.
                return Err(Errno::NOBUFS);
            }
        }
        self.perform_on(&socket, descriptor.as_fd(), request, who).await
    }

    /// Does what is asked of a socket; `theirs` is the program's end of its carrier.
    async fn perform_on(
        self: &Arc<Self>,
        socket: &Arc<Socket>,
        theirs: BorrowedFd<'_>,
        request: &Request<'_>,
        who: UCred,
    ) -> Result<Reply, Errno> {
        match *request {
            // They are about no socket.
            Request::Describe
            | Request::Status
            | Request::Barrier
            | Request::Memfd
            | Request::Open { .. } => {}
            Request::Streams | Request::Push { .. } | Request::Pop { .. } | Request::Record { .. } => {}
            Request::Attach => {
                let page = socket.page.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
                return Ok(Reply { answer: Answer::Done, descriptors: vec![page], lent: None, feed: None });
            }
            Request::Bind(address) => {
                self.once_left(address.port(), || self.bind(socket, address, who)).await?;
            }
            Request::Listen { backlog: 0 } => {
                socket.check_listens()?;
                let recalled = self.recall(socket, theirs, who).await?;
                self.unlisten(socket, recalled)?;
            }
            Request::Listen { backlog } => self.listen(socket, backlog, theirs)?,
            Request::Connect { peer, start, init } => {
                return self.connect_for(socket, (peer, start, init), theirs, who).await;
            }
            Request::Find(address) => {
                check_peer(socket.v6, address)?;
                let member = socket.lock().with_peer(address).ok_or(Errno::NOENT)?;
                return Ok(Answer::Association(member.id).into());
            }
            Request::AwaitRoom { association } => {
                let member = socket.lock().members.get(&association).cloned().ok_or(Errno::PIPE)?;
                let outbox = member.outbox().clone().ok_or(Errno::PIPE)?;
                unless_lost(&self.patience(who)?, outbox.room()).await?;
            }
            Request::Associations { after } => {
                let inner = socket.lock();
                let some = inner.members.range(after.saturating_add(1)..).take(OPTION_BYTES_MAX / 4);
                let listed = some.flat_map(|(id, _)| id.to_ne_bytes()).collect();
                return Ok(Answer::Value(listed).into());
            }
            Request::AwaitEnd => {
                unless_lost(&self.patience(who)?, socket.end()).await?;
            }
            Request::PeelOff { association, front_begun, front_at } => {
                socket.peelable(association)?;
                let recalled = self.recall(socket, theirs, who).await?;
                let front = Front { at: front_at as usize, is_begun: front_begun };
                return self.peel_off(socket, association, front, recalled).await;
            }
            Request::Hold => socket.hold_carrier()?,
            Request::PutBack(record) => {
                unless_lost(&self.patience(who)?, socket.put_back(record)).await??;
            }
            Request::SetForm { plain } => socket.set_form(plain)?,
            Request::LocalAddress => return Ok(Answer::Address(socket.local_address()).into()),
            Request::PeerAddress => {
                let inner = socket.lock();
                let peer = inner.peer.filter(|_| inner.stage == State::Connected);
                return Ok(Answer::Address(peer.ok_or(Errno::NOTCONN)?).into());
            }
            Request::SetOption { level, name, value } => {
                self.set_option(socket, (level, name), value, who).await?;
            }
            Request::GetOption { level, name, value } => {
                let value = match (level, name) {
                    (IPPROTO_SCTP, SCTP_GET_PEER_ADDRS) => socket.peer_addresses(value)?,
                    (IPPROTO_SCTP, SCTP_GET_LOCAL_ADDRS) => socket.local_addresses(value)?,
                    _ => socket.option(level, name, value)?,
                };
                return Ok(Answer::Value(value).into());
            }
        }
        Ok(Answer::Done.into())
    }

    /// Begins to set an association up, and waits for it where the answer is to come late.
    async fn connect_for(
        self: &Arc<Self>,
        socket: &Arc<Socket>,
        (peer, start, init): (Addresses<'_>, Start, InitMessage),
        theirs: BorrowedFd<'_>,
        who: UCred,
    ) -> Result<Reply, Errno> {
        let patience = (start == Start::AnswerLate).then(|| self.patience(who)).transpose()?;
        let member = self.connect(socket, peer, (start, init), theirs)?;
        if start == Start::Now {
            settle().await;
        }
        if let Some(patience) = patience
            && let Outcome::Failed(error) = unless_lost(&patience, member.set_up_ended()).await?
        {
            return Err(error);
        }
        Ok(Answer::Association(member.id).into())
    }

    async fn set_option(
        self: &Arc<Self>,
        socket: &Arc<Socket>,
        (level, name): (i32, i32),
        value: &[u8],
        who: UCred,
    ) -> Result<(), Errno> {
        match (level, name) {
            (IPPROTO_SCTP, SCTP_SOCKOPT_BINDX_ADD) => {
                let list = parse_list(value)?;
                let port = list.first().ok_or(Errno::INVAL)?.port();
                self.once_left(port, || self.bind_more(socket, &list, who)).await
            }
            (IPPROTO_SCTP, SCTP_SOCKOPT_BINDX_REM) => self.bind_less(socket, value),
            _ => {
                let dry = socket.set_option(level, name, value)?;
                if !dry.is_empty() {
                    tokio::spawn(pump::tell_dry(Arc::clone(socket), dry));
                    // It is there before the answer, if there is room.
                    tokio::task::yield_now().await;
                }
                Ok(())
            }
        }
    }

    /// Takes back what the program has not read; `theirs` is its end of the carrier.
    async fn recall(&self, socket: &Socket, theirs: BorrowedFd<'_>, who: UCred) -> Result<Recalled, Errno> {
        unless_lost(&self.patience(who)?, socket.line.recall(theirs)).await?
    }

    /// A place for one more request that waits for its answer.
    pub(crate) fn patience(&self, who: UCred) -> Result<Seat, Errno> {
        self.waiting.take(who.uid.as_raw()).ok_or(Errno::NOBUFS)
    }

    fn open_for(self: &Arc<Self>, owner: Owner, v6: bool, one_to_many: bool) -> Result<Reply, Errno> {
        let style = if one_to_many { Style::OneToMany } else { Style::OneToOne };
        let settings = Settings::new(&self.stack);
        let (socket, theirs) = self.open(owner, v6, style, style.first_stage(), settings)?;
        let page = socket.page.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        Ok(Reply { answer: Answer::Done, descriptors: vec![theirs, page], lent: None, feed: None })
    }
}

/// Waits for something, unless another user gets this place.
async fn unless_lost<T>(patience: &Seat, something: impl Future<Output = T>) -> Result<T, Errno> {
    tokio::select! {
        happened = something => Ok(happened),
        () = patience.lost() => Err(Errno::NOBUFS),
    }
}

/// Rounds of the runtime that what happens on this host alone takes at most, such as a handshake or a shutdown between two
/// programs.
const ROUNDS: usize = 8;

/// Lets happen what needs no other host, so that a program finds it as it would in the kernel, where it happens within the call.
async fn settle() {
    for _ in 0..ROUNDS {
        tokio::task::yield_now().await;
    }
}
