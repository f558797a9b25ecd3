//! Maps each request to one call, and spawns the task of a socket that the call opens.

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use channel_protocol::assoc_id::AssocId;
use channel_protocol::request::{DaemonRequest, SocketKind, SocketRequest};
use rustix::io::Errno;

use crate::calls::connect::ConnectArgs;
use crate::calls::peel_off::{PeeledOff, ReadPosition};
use crate::calls::pending::{ROUNDS_OF_MESSAGES_MAX, run_pending};
use crate::calls::reply::{Answer, Reply};
use crate::calls::waiting::{recall, wait_for, wait_if_pending};
use crate::calls::{
    associations, bind, close, connect, form, links, listen, options, peel_off, report, status, streams,
};
use crate::channel::recall::Recalled;
use crate::channel::received_memfd;
use crate::channel::style::Style;
use crate::relay::drain::Drain;
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::state::socket_options::SocketOptions;
use crate::system::addresses::Family;
use crate::system::socket_cookie::Cookie;
use crate::tasks;
use crate::tasks::relaying::{drain_later, drain_now, notify_sender_dry};
use crate::users::closer::ReceivedDescriptor;
use crate::users::owner::Owner;
use crate::users::requester::Requester;

/// Carries out a request that concerns no socket.
pub(crate) async fn perform(
    registry: &Rc<Registry>,
    request: DaemonRequest<'_>,
    requester: Requester,
) -> Result<Reply, Errno> {
    match request {
        DaemonRequest::Describe => {
            let description = status::describe(registry.stack(), registry.is_on_demand());
            Ok(Answer::Value(serde_json::to_vec(&description).map_err(|_| Errno::NOMEM)?).into())
        }
        DaemonRequest::Barrier => {
            close::act_on_closes(registry, requester).await;
            Ok(Answer::Done.into())
        }
        DaemonRequest::Linger { cookie } => {
            close::linger(registry, Cookie::named(cookie), requester).await?;
            Ok(Answer::Done.into())
        }
        DaemonRequest::Open { v6, kind } => {
            let family = if v6 { Family::V6 } else { Family::V4 };
            open_for(registry, requester.owner(), family, kind)
        }
        DaemonRequest::Status => report::report(registry, requester).await,
        DaemonRequest::Streams => streams::report_streams(registry, requester).await,
        DaemonRequest::Push { assoc_id, module } => streams::push(registry, assoc_id, module, requester),
        DaemonRequest::Pop { assoc_id } => streams::pop(registry, assoc_id, requester).await,
        DaemonRequest::Record { assoc_id, recorder } => {
            streams::record(registry, assoc_id, recorder, requester)
        }
        DaemonRequest::Link { assoc_id, other } => links::link(registry, [assoc_id, other], requester),
        DaemonRequest::Unlink { assoc_id } => links::unlink(registry, assoc_id, requester),
        DaemonRequest::Memfd => Ok(Reply::with(vec![received_memfd::memfd_to_fill()?])),
    }
}

/// Carries out a request about the socket whose pair `descriptor` is. Waits for the peer where the answer depends on it.
pub(crate) async fn perform_on(
    registry: &Rc<Registry>,
    descriptor: &ReceivedDescriptor,
    request: SocketRequest<'_>,
    requester: Requester,
) -> Result<Reply, Errno> {
    let socket = registry.find(Cookie::of(descriptor)?).ok_or(Errno::NOTSOCK)?;
    if socket.style() == Style::OneToMany {
        // The request finds the effects of earlier messages, as in the kernel: an association that a message has ended is
        // gone. The task of the socket may have taken the last of them.
        let mut drain = Drain::new(&socket);
        let all_taken = match drain_now(&socket, &mut drain).await {
            Some(all_taken) => all_taken,
            None => wait_for(registry, requester, drain_later(&socket, drain)).await?,
        };
        run_pending(registry, requester.user(), ROUNDS_OF_MESSAGES_MAX).await;
        if !all_taken && matches!(request, SocketRequest::PeelOff { .. }) {
            // Some of the messages may be for the association to be removed.
            return Err(Errno::NOBUFS);
        }
    }
    call(registry, &socket, descriptor.as_fd(), request, requester).await
}

/// Makes the call of a request on a socket.
async fn call(
    registry: &Rc<Registry>,
    socket: &Rc<Socket>,
    program_end: BorrowedFd<'_>,
    request: SocketRequest<'_>,
    requester: Requester,
) -> Result<Reply, Errno> {
    match request {
        SocketRequest::Attach => {
            return Ok(Reply::with(socket.channel().page_descriptors()?.into()));
        }
        SocketRequest::Bind(address) => {
            let (list, bind) = ([address], || bind::bind(registry, socket, address, requester));
            let bound = bind::once_released(registry, socket, &list, bind);
            wait_if_pending(registry, requester, bound).await??;
        }
        SocketRequest::Listen { backlog } => {
            listen::set_backlog(registry, socket, backlog, program_end, requester).await?;
        }
        SocketRequest::Connect { peer, start, init } => {
            let args = ConnectArgs { peer, start, init };
            let assoc = connect::connect_and_wait(registry, socket, args, program_end, requester).await?;
            return Ok(Answer::Association(assoc.id()).into());
        }
        SocketRequest::Find(address) => {
            return Ok(Answer::Association(associations::find(socket, address)?).into());
        }
        SocketRequest::AwaitRoom { assoc_id } => {
            associations::await_room(registry, socket, assoc_id, requester).await?;
        }
        SocketRequest::Associations { after } => {
            return Ok(Answer::Value(associations::after(socket, after)).into());
        }
        SocketRequest::AwaitEnd => {
            wait_for(registry, requester, associations::await_end(socket)).await?;
        }
        SocketRequest::Shutdown => registry.watch_close(socket, program_end)?,
        SocketRequest::PeelOff { assoc_id, front_begun, front_at } => {
            peel_off::peelable(socket, assoc_id)?;
            let recalled = recall(registry, socket, program_end, requester).await?;
            let read = ReadPosition { at: front_at as usize, is_begun: front_begun };
            return peel_off(registry, socket, assoc_id, read, recalled).await;
        }
        SocketRequest::Hold => form::hold(socket)?,
        SocketRequest::PutBack(record) => {
            wait_for(registry, requester, form::put_back(socket, record)).await??;
        }
        SocketRequest::SetForm { plain } => socket.channel().set_form(plain)?,
        SocketRequest::LocalAddress => return Ok(Answer::Address(socket.local_address()).into()),
        SocketRequest::PeerAddress => return Ok(Answer::Address(bind::peer_address(socket)?).into()),
        SocketRequest::SetOption { level, name, value } => {
            options::set(registry, socket, (level, name), value, requester).await?;
            notify_sender_dry(socket).await;
        }
        SocketRequest::GetOption { level, name, value } => {
            return Ok(Answer::Value(options::get(socket, (level, name), value)?).into());
        }
    }
    Ok(Answer::Done.into())
}

fn open_for(registry: &Rc<Registry>, owner: Owner, family: Family, kind: SocketKind) -> Result<Reply, Errno> {
    let style = match kind {
        SocketKind::OneToOne => Style::OneToOne,
        SocketKind::TcpStream => Style::TcpStream,
        SocketKind::OneToMany => Style::OneToMany,
    };
    let options = SocketOptions::new(registry.stack());
    let opened = registry.open(owner, family, style, style.initial_state(), options)?;
    streams::note_program(&opened.socket);
    let (socket, program_end) = tasks::start(registry, opened);
    let [status, sharers] = socket.channel().page_descriptors()?;
    Ok(Reply::with(vec![program_end, status, sharers]))
}

/// Peels an association off. The operation completes even if the caller goes away.
async fn peel_off(
    registry: &Rc<Registry>,
    socket: &Rc<Socket>,
    id: AssocId,
    read: ReadPosition,
    recalled: Recalled,
) -> Result<Reply, Errno> {
    let (registry, socket) = (Rc::clone(registry), Rc::clone(socket));
    let done = tokio::task::spawn_local(async move {
        let PeeledOff { opened, pages: [status, sharers], relay } =
            peel_off::peel_off(&registry, &socket, id, read, recalled).await?;
        let (new, program_end) = tasks::start(&registry, opened);
        new.commands().one_to_one(relay)?;
        notify_sender_dry(&new).await;
        Ok(Reply::with(vec![program_end, status, sharers]))
    });
    // The task is cancelled only when the daemon ends.
    done.await.unwrap_or(Err(Errno::NETDOWN))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::net::SocketAddr;
    use std::os::fd::OwnedFd;
    use std::pin::pin;
    use std::task::Poll;

    use channel_protocol::request::{Addresses, InitMessage, Start};
    use channel_protocol::status_page::State;
    use tokio::task::{spawn_local, yield_now};

    use super::*;
    use crate::calls::pending::ROUNDS_MAX;
    use crate::state::registry::Opened;
    use crate::testing::{ID, WAIT_MAX, opened, registry, send, soon};
    use crate::users::closer::Source;
    use crate::users::quantum::RECORDS_PER_TURN;
    use crate::users::requester::tests::requester as of;

    /// Opens a socket of user 1 that is connected to a listener of this stack. Returns its association, too.
    async fn connected(registry: &Rc<Registry>) -> (AssocId, OwnedFd) {
        let (style, options) = (Style::OneToOne, SocketOptions::new(registry.stack()));
        let owner = Owner { user: 1, process: 1 };
        let opened =
            registry.open(owner, Family::V4, style, style.initial_state(), options).expect("a channel");
        let (socket, program_end) = tasks::start(registry, opened);
        let peer = [SocketAddr::from(([127, 0, 0, 1], 7))];
        let peer = Addresses::new(&peer).expect("one");
        let to = ConnectArgs { peer, start: Start::Now, init: InitMessage::default() };
        let connected = connect::connect_and_wait(registry, &socket, to, program_end.as_fd(), of(1)).await;
        let assoc = connected.expect("it begins");
        soon(async {
            while assoc.stack_association().is_none() {
                yield_now().await;
            }
        })
        .await;
        (assoc.id(), program_end)
    }

    /// Returns a long answer to a user.
    async fn told(registry: &Rc<Registry>, request: DaemonRequest<'_>, user: u32) -> String {
        let reply = soon(perform(registry, request, of(user))).await.expect("an answer");
        let mut text = vec![0; 1 << 16];
        let bytes = rustix::io::pread(reply.lent.expect("a memfd"), &mut text[..], 0).expect("it is filled");
        String::from_utf8_lossy(&text[..bytes]).into_owned()
    }

    const STRANGER: u32 = 61_003;

    #[tokio::test(flavor = "local")]
    async fn a_request_that_waits_for_records_or_a_port_has_a_place() {
        let registry = Rc::new(registry());
        let all_places =
            || -> Vec<_> { std::iter::from_fn(|| registry.resources().take_waiting(1).ok()).collect() };
        let closer = registry.resources().closer(1, Source::Requests);
        let asked = async |program_end: &OwnedFd, request: SocketRequest<'_>| {
            let descriptor = closer.take_over(program_end.try_clone().expect("a copy"));
            let mut performed = pin!(perform_on(&registry, &descriptor, request, of(1)));
            let performed = poll_fn(|cx| Poll::Ready(performed.as_mut().poll(cx))).await;
            (performed.map(|performed| performed.map(|_| ())), all_places().len())
        };
        let places = all_places().len();
        // The socket is throttled, so its record stays in the channel.
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        send(&program_end, ID, b"a message");
        socket.channel().daemon_end().time().throttle_for(WAIT_MAX);
        // The port of a listener that its program has closed, and that its task has not ended.
        let (style, options) = (Style::OneToOne, SocketOptions::new(registry.stack()));
        let owner = Owner { user: 1, process: 1 };
        let closed = registry.open(owner, Family::V4, style, style.initial_state(), options);
        let Opened { socket: closed, program_end: closed_end, commands: _commands } =
            closed.expect("a channel");
        crate::calls::listen::listen(&registry, &closed, 1, closed_end.as_fd()).expect("a free port");
        drop(closed_end);
        let address = closed.local_address();
        let (_other, other_end) = opened(&registry, Style::OneToOne);
        let requests =
            [(&program_end, SocketRequest::LocalAddress), (&other_end, SocketRequest::Bind(address))];
        let mut results = Vec::new();
        for (program_end, request) in requests {
            let (performed, left) = asked(program_end, request).await;
            let taken = all_places();
            results.push((performed, places - left, asked(program_end, request).await.0));
            drop(taken);
        }
        let waits_in_place = (Poll::Pending, 1, Poll::Ready(Err(Errno::NOBUFS)));
        assert_eq!(results, [waits_in_place, waits_in_place]);
    }

    #[tokio::test(flavor = "local")]
    async fn a_request_behind_records_that_can_be_taken_needs_no_place() {
        let registry = Rc::new(registry());
        let all_places: Vec<_> = std::iter::from_fn(|| registry.resources().take_waiting(1).ok()).collect();
        let closer = registry.resources().closer(1, Source::Requests);
        let (socket, program_end) = opened(&registry, Style::OneToMany);
        for messages in [1, 3 * RECORDS_PER_TURN] {
            (0..messages).for_each(|_| send(&program_end, ID, b"a message"));
            let descriptor = closer.take_over(program_end.try_clone().expect("a copy"));
            let performed =
                soon(perform_on(&registry, &descriptor, SocketRequest::LocalAddress, of(1))).await;
            assert_eq!(performed.map(|_| ()), Ok(()), "{messages} messages");
            assert_eq!(socket.channel().waiting_bytes(), 0);
        }
        drop(all_places);
    }

    #[tokio::test(flavor = "local")]
    async fn only_its_owner_and_the_administrator_manage_a_stream() {
        let registry = Rc::new(registry());
        let _listener = registry.stack().listen(7).expect("a free port");
        let ((id, _end), (other, _other_end)) = (connected(&registry).await, connected(&registry).await);
        let ask = async |request: DaemonRequest<'static>, user: u32| {
            soon(perform(&registry, request, of(user)))
                .await
                .map(|reply| matches!(reply.answer, Answer::Refused(_)))
        };
        let push = DaemonRequest::Push { assoc_id: id, module: "counter" };
        let (pop, unlink) = (DaemonRequest::Pop { assoc_id: id }, DaemonRequest::Unlink { assoc_id: id });
        let link = DaemonRequest::Link { assoc_id: id, other };
        for request in [push, pop, link, unlink] {
            assert_eq!(ask(request, STRANGER).await, Err(Errno::PERM), "{request:?}");
        }
        assert_eq!((ask(push, 1).await, ask(pop, 1).await), (Ok(false), Ok(false)));
        assert_eq!((ask(push, 0).await, ask(pop, 1).await), (Ok(false), Err(Errno::PERM)), "it is root's");
        assert_eq!(ask(pop, 0).await, Ok(false));
        assert_eq!(ask(DaemonRequest::Link { assoc_id: id, other: id }, 1).await, Err(Errno::INVAL));
        assert_eq!((ask(link, 0).await, ask(unlink, 1).await), (Ok(false), Err(Errno::PERM)), "it is root's");
        assert_eq!(
            (ask(unlink, 0).await, ask(link, 1).await, ask(unlink, 1).await),
            (Ok(false), Ok(false), Ok(false))
        );
        for pushed in 0..8 {
            assert_eq!(ask(push, 1).await, Ok(false), "after {pushed}");
        }
        assert_eq!(ask(push, 1).await, Ok(true), "there are too many");
    }

    #[tokio::test(flavor = "local")]
    async fn users_are_told_about_their_own_sockets() {
        let registry = Rc::new(registry());
        let _listener = registry.stack().listen(7).expect("a free port");
        let (_id, _end) = connected(&registry).await;
        for request in [DaemonRequest::Status, DaemonRequest::Streams] {
            for (user, is_told) in [(STRANGER, false), (1, true), (0, true)] {
                let told = told(&registry, request, user).await;
                assert_eq!(told.contains("\"user\":1,"), is_told, "{request:?} {user}: {told}");
            }
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_connect_waits_for_its_handshake_and_not_for_what_others_send() {
        let registry = Rc::new(registry());
        let _listener = registry.stack().listen(7).expect("a free port");
        let (style, options) = (Style::OneToOne, SocketOptions::new(registry.stack()));
        let owner = Owner { user: 1, process: 1 };
        let opened =
            registry.open(owner, Family::V4, style, style.initial_state(), options).expect("a channel");
        let (socket, program_end) = tasks::start(&registry, opened);
        let rounds = Rc::new(Cell::new(0));
        let others = spawn_local({
            let (registry, rounds) = (Rc::clone(&registry), Rc::clone(&rounds));
            async move {
                loop {
                    registry.busy_polling().record_came();
                    rounds.set(rounds.get() + 1);
                    yield_now().await;
                }
            }
        });
        let peer = [SocketAddr::from(([127, 0, 0, 1], 7))];
        let peer = Addresses::new(&peer).expect("one");
        let to = ConnectArgs { peer, start: Start::Now, init: InitMessage::default() };
        let begun = connect::connect_and_wait(&registry, &socket, to, program_end.as_fd(), of(1)).await;
        begun.expect("it begins");
        others.abort();
        assert_eq!(socket.state(), State::Connected);
        assert!(rounds.get() < ROUNDS_MAX, "it took {} rounds", rounds.get());
    }
}
