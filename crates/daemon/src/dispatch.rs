//! Maps each request to one call, and spawns the task of a socket that the call opens.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use carrier::assoc_id::AssocId;
use carrier::request::{DaemonRequest, OPTION_BYTES_MAX, SocketKind, SocketRequest, Start};
use carrier::status_page::State;
use rustix::io::Errno;
use swiftwater::internals::batches_moved;

use crate::calls::connect::ConnectArgs;
use crate::calls::peel_off::{PeeledOff, ReadPosition};
use crate::calls::reply::{Answer, Reply};
use crate::calls::{bind, connect, form, links, listen, options, peel_off, report, status, streams};
use crate::channel::recall::Recalled;
use crate::channel::received_memfd;
use crate::channel::style::Style;
use crate::state::association::Outcome;
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::state::socket_options::SocketOptions;
use crate::system::addresses::{Family, check_peer};
use crate::system::socket_cookie::Cookie;
use crate::tasks;
use crate::tasks::relaying::{drain, notify_sender_dry};
use crate::users::closer::{ReceivedDescriptor, Source};
use crate::users::owner::Owner;
use crate::users::requester::Requester;
use crate::users::user_permits::Permit;

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
            act_on_closes(registry, requester).await;
            Ok(Answer::Done.into())
        }
        DaemonRequest::Linger { cookie } => linger(registry, Cookie::named(cookie), requester).await,
        DaemonRequest::Open { v6, kind } => {
            let family = if v6 { Family::V6 } else { Family::V4 };
            open_for(registry, requester.owner(), family, kind)
        }
        DaemonRequest::Status => report::report(registry, requester).await,
        DaemonRequest::Streams => streams::report_streams(registry, requester).await,
        DaemonRequest::Push { assoc_id, module } => {
            streams::push(registry, assoc_id, module, requester).await
        }
        DaemonRequest::Pop { assoc_id } => streams::pop(registry, assoc_id, requester).await,
        DaemonRequest::Record { assoc_id, recorder } => {
            streams::record(registry, assoc_id, recorder, requester).await
        }
        DaemonRequest::Link { assoc_id, other } => links::link(registry, [assoc_id, other], requester).await,
        DaemonRequest::Unlink { assoc_id } => links::unlink(registry, assoc_id, requester).await,
        DaemonRequest::Memfd => Ok(Reply::with(vec![received_memfd::memfd_to_fill()?])),
    }
}

/// Takes a place for a request of this user that waits for its answer.
fn take_waiting(registry: &Registry, requester: Requester) -> Result<Permit, Errno> {
    registry.resources().take_waiting(requester.user())
}

/// Acts on what programs of this user have closed so far.
async fn act_on_closes(registry: &Registry, requester: Requester) {
    // The daemon's own copy would keep a file open that a program has closed.
    for source in Source::ALL {
        registry.resources().closer(requester.user(), source).drained().await;
    }
    run_pending(registry, ROUNDS_MAX).await;
}

/// Waits until a socket that its program has just closed is gone. Does not wait if the socket has another descriptor.
async fn linger(registry: &Registry, cookie: Cookie, requester: Requester) -> Result<Reply, Errno> {
    let socket = registry.find(cookie).filter(|socket| requester.may_manage(socket.owner().user));
    act_on_closes(registry, requester).await;
    if let Some(socket) = socket.filter(|socket| socket.channel().is_closed()) {
        take_waiting(registry, requester)?.unless_lost(socket.gone()).await?;
    }
    Ok(Answer::Done.into())
}

/// Carries out a request about the socket whose carrier `descriptor` is. Waits for the peer where the answer depends on it.
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
        let all_taken = drain(&socket).await;
        run_pending(registry, ROUNDS_OF_MESSAGES_MAX).await;
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
            bind::once_released(registry, address.port(), || {
                bind::bind(registry, socket, address, requester)
            })
            .await?;
        }
        SocketRequest::Listen { backlog } => {
            listen_for(registry, socket, backlog, program_end, requester).await?
        }
        SocketRequest::Connect { peer, start, init } => {
            let args = ConnectArgs { peer, start, init };
            return connect_for(registry, socket, args, program_end, requester).await;
        }
        SocketRequest::Find(address) => {
            check_peer(socket.family(), address)?;
            let assoc = socket.associations().with_peer(address).ok_or(Errno::NOENT)?;
            return Ok(Answer::Association(assoc.id()).into());
        }
        SocketRequest::AwaitRoom { assoc_id } => {
            await_room(registry, socket, assoc_id, requester).await?;
        }
        SocketRequest::Associations { after } => {
            return Ok(Answer::Value(associations_after(socket, after)).into());
        }
        SocketRequest::AwaitEnd => {
            take_waiting(registry, requester)?.unless_lost(socket.association_ended()).await?;
        }
        SocketRequest::Shutdown => registry.watch_close(socket, program_end)?,
        SocketRequest::PeelOff { assoc_id, front_begun, front_at } => {
            peel_off::peelable(socket, assoc_id)?;
            let recalled = recall(registry, socket, program_end, requester).await?;
            let read = ReadPosition { at: front_at as usize, is_begun: front_begun };
            return peel_off(registry, socket, (assoc_id, read), recalled).await;
        }
        SocketRequest::Hold => form::hold(socket)?,
        SocketRequest::PutBack(record) => {
            take_waiting(registry, requester)?.unless_lost(form::put_back(socket, record)).await??;
        }
        SocketRequest::SetForm { plain } => socket.channel().set_form(plain)?,
        SocketRequest::LocalAddress => return Ok(Answer::Address(socket.local_address()).into()),
        SocketRequest::PeerAddress => return Ok(Answer::Address(peer_address(socket)?).into()),
        SocketRequest::SetOption { level, name, value } => {
            let dry = options::set(registry, socket, (level, name), value, requester).await?;
            if !dry.is_empty() {
                notify_sender_dry(Rc::clone(socket), dry).await;
            }
        }
        SocketRequest::GetOption { level, name, value } => {
            return Ok(Answer::Value(options::get(socket, (level, name), value)?).into());
        }
    }
    Ok(Answer::Done.into())
}

/// Listens, or stops listening if the backlog is 0.
async fn listen_for(
    registry: &Rc<Registry>,
    socket: &Rc<Socket>,
    backlog: i32,
    program_end: BorrowedFd<'_>,
    requester: Requester,
) -> Result<(), Errno> {
    if backlog != 0 {
        return listen::listen(registry, socket, backlog, program_end);
    }
    listen::check_listens(socket)?;
    let recalled = recall(registry, socket, program_end, requester).await?;
    let unlisten = listen::unlisten(registry, socket, recalled);
    take_waiting(registry, requester)?.unless_lost(unlisten).await?
}

/// Returns the peer's address of a connected socket.
fn peer_address(socket: &Socket) -> Result<SocketAddr, Errno> {
    let peer = socket.addresses().peer();
    peer.filter(|_| socket.state() == State::Connected).ok_or(Errno::NOTCONN)
}

/// Waits until an association of a one-to-many socket has room for another message.
async fn await_room(
    registry: &Rc<Registry>,
    socket: &Socket,
    assoc_id: AssocId,
    requester: Requester,
) -> Result<(), Errno> {
    let assoc = socket.associations().get(assoc_id).ok_or(Errno::PIPE)?;
    let queue = assoc.send_queue().ok_or(Errno::PIPE)?;
    take_waiting(registry, requester)?.unless_lost(queue.room()).await?;
    if queue.is_shut() { Err(Errno::SHUTDOWN) } else { Ok(()) }
}

/// Returns the identifiers of the associations after `after`, as many as an answer may contain.
fn associations_after(socket: &Socket, after: AssocId) -> Vec<u8> {
    let ids = socket.associations().ids_after(after, OPTION_BYTES_MAX / 4);
    ids.into_iter().flat_map(|id| id.get().to_ne_bytes()).collect()
}

/// Begins to set up an association, and waits for it if the caller wants a late answer.
async fn connect_for(
    registry: &Rc<Registry>,
    socket: &Rc<Socket>,
    args: ConnectArgs<'_>,
    program_end: BorrowedFd<'_>,
    requester: Requester,
) -> Result<Reply, Errno> {
    let permit = (args.start == Start::AnswerLate).then(|| take_waiting(registry, requester)).transpose()?;
    let assoc = connect::connect(registry, socket, args, program_end)?;
    if args.start == Start::Now {
        tokio::select! {
            biased;
            // If the peer is a program of this daemon, its tasks run meanwhile, so that it knows of the association.
            _ = assoc.set_up_ended() => run_pending(registry, ROUNDS_OF_MESSAGES_MAX).await,
            () = run_pending(registry, ROUNDS_MAX) => {}
        }
    }
    if let Some(permit) = permit
        && let Outcome::Failed(error) = permit.unless_lost(assoc.set_up_ended()).await?
    {
        return Err(error);
    }
    Ok(Answer::Association(assoc.id()).into())
}

/// Takes back records that the program has not read.
async fn recall(
    registry: &Registry,
    socket: &Socket,
    program_end: BorrowedFd<'_>,
    requester: Requester,
) -> Result<Recalled, Errno> {
    take_waiting(registry, requester)?.unless_lost(socket.channel().carrier().recall(program_end)).await?
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
    which: (AssocId, ReadPosition),
    recalled: Recalled,
) -> Result<Reply, Errno> {
    let (registry, socket) = (Rc::clone(registry), Rc::clone(socket));
    let done = tokio::task::spawn_local(async move {
        let PeeledOff { opened, pages: [status, sharers], relay } =
            peel_off::peel_off(&registry, &socket, which, recalled).await?;
        let (new, program_end) = tasks::start(&registry, opened);
        new.commands().one_to_one(relay)?;
        Ok(Reply::with(vec![program_end, status, sharers]))
    });
    // The task is cancelled only when the daemon ends.
    done.await.unwrap_or(Err(Errno::NETDOWN))
}

/// Maximum number of rounds of the runtime in [`run_pending`], in case a program sends without pause. A handshake between
/// two programs takes fewer.
const ROUNDS_MAX: usize = 16;
/// Maximum number of rounds before a request of a one-to-many socket. One is enough for a SHUTDOWN between two programs, and
/// programs that send without pause delay the requests of others no further.
const ROUNDS_OF_MESSAGES_MAX: usize = 4;
/// Number of rounds without progress after which nothing is pending: a round runs the tasks that the previous one has
/// woken.
const QUIET_ROUNDS: usize = 2;

/// Runs pending work that needs no other host, such as a handshake or a shutdown between two programs, until no record
/// and no packet moves any more. The kernel completes such work within the call, and programs rely on that.
async fn run_pending(registry: &Registry, rounds_max: usize) {
    let moved = || (registry.busy_polling().records(), batches_moved(registry.stack()));
    let (mut before, mut quiet) = (moved(), 0);
    for _ in 0..rounds_max {
        tokio::task::yield_now().await;
        let now = moved();
        quiet = if now == before { quiet + 1 } else { 0 };
        if quiet == QUIET_ROUNDS {
            return;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::fd::OwnedFd;

    use carrier::request::{Addresses, InitMessage};
    use tokio::task::{spawn_local, yield_now};

    use super::*;
    use crate::testing::{opened, registry, soon};
    use crate::users::requester::tests::requester as of;

    #[tokio::test(flavor = "local")]
    async fn a_caller_lingers_while_a_socket_of_its_user_is_closed_and_not_gone() {
        let registry = Rc::new(registry());
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let cookie = Cookie::of(&program_end).expect("a carrier");
        let user = socket.owner().user;
        soon(linger(&registry, cookie, of(user))).await.expect("it is open");
        drop(program_end);
        soon(linger(&registry, cookie, of(user + 1))).await.expect("it is another user's");
        let lingering = spawn_local({
            let registry = Rc::clone(&registry);
            async move { linger(&registry, cookie, of(user)).await.map(drop) }
        });
        for _ in 0..2 * ROUNDS_MAX {
            yield_now().await;
        }
        assert!(!lingering.is_finished());
        registry.forget(&socket);
        soon(lingering).await.expect("it goes on").expect("the socket is gone");
        soon(linger(&registry, cookie, of(user))).await.expect("there is none");
    }

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
        let connected =
            connect_for(registry, &socket, to, program_end.as_fd(), of(1)).await.expect("it begins");
        let Answer::Association(id) = connected.answer else { panic!("it has an association") };
        let assoc = socket.associations().get(id).expect("it was begun");
        soon(async {
            while assoc.stack_association().is_none() {
                yield_now().await;
            }
        })
        .await;
        (id, program_end)
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
        connect_for(&registry, &socket, to, program_end.as_fd(), of(1)).await.expect("it begins");
        others.abort();
        assert_eq!(socket.state(), State::Connected);
        assert!(rounds.get() < ROUNDS_MAX, "it took {} rounds", rounds.get());
    }
}
