//! The answer to a request for the status.
//!
//! The answer may be long, so it is built in turns, of parts that are written into a memfd one by one. Its memory is
//! charged to the requesting user until this user has read it: see [`LentMemfd`]. The daemon builds one answer for each
//! user at a time: several answers would take several turns in each round of the daemon's tasks.

use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use serde::Serialize;

use super::reply::{Answer, Reply};
use super::status::{self, DaemonStatus, Part, UserStatus};
use super::walk::Walk;
use crate::channel::lent_memfd::LentMemfd;
use crate::state::association::SocketAssociation;
use crate::state::registry::Registry;
use crate::state::socket::Socket;
use crate::users::division::Use;
use crate::users::quantum::RECORDS_PER_TURN;
use crate::users::requester::Requester;
use crate::users::user::{ReportPermit, User};

/// Maximum number of sockets in one answer.
const SOCKETS_MAX: usize = 16_384;
/// Maximum number of associations in one answer.
pub(crate) const ASSOCIATIONS_MAX: usize = 16_384;
/// The memory of an answer is charged in steps of this size.
const STEP_BYTES: usize = 64 * 1024;

/// Answers with a memfd that contains the report from its beginning.
pub(crate) async fn report(registry: &Registry, requester: Requester) -> Result<Reply, Errno> {
    let mut report = Report::begin(registry, requester).await?;
    report.add(&Part::Daemon(DaemonStatus {
        version: env!("CARGO_PKG_VERSION").into(),
        process: std::process::id(),
        carries: status::describe_link(registry.stack()),
        counters: requester.sees_daemon().then(|| registry.stack().statistics().into()),
        users: users(registry, requester),
    }))?;
    let mut sockets = Room { left: SOCKETS_MAX, omitted: 0 };
    let mut associations = Room { left: ASSOCIATIONS_MAX, omitted: 0 };
    let mut walk = Walk::over(registry);
    while let Some(next) = walk.next().await {
        for socket in next.iter().filter(|socket| requester.may_manage(socket.owner().user)) {
            // One whose associations are being left is reported with them below.
            if !socket.is_left() && sockets.take() {
                report.add_socket(socket, &mut associations, &mut walk).await?;
            }
        }
    }
    let users = registry.closed().users().into_iter().filter(|user| requester.may_manage(*user));
    for user in users {
        report.add_closed(registry, user, &mut sockets, &mut associations, &mut walk).await?;
    }
    report
        .add(&Part::End { sockets_omitted: sockets.omitted, associations_omitted: associations.omitted })?;
    Ok(report.finish())
}

/// Returns the users that the caller may see and that have sockets or charges.
fn users(registry: &Registry, requester: Requester) -> Vec<UserStatus> {
    let limits = registry.resources().limits();
    let mut users = registry.resources().users().all();
    users.retain(|user| requester.may_manage(user.id()));
    // The caller is a user, too, and may have nothing but this answer, which is unread.
    let is_charged = |user: &Arc<User>| {
        [user.pages(), user.sent(), user.received()].iter().any(|account| account.charged_bytes() > 0)
    };
    users.retain(is_charged);
    let status = |user: &Arc<User>| UserStatus {
        user: user.id(),
        received_bytes: user.received().charged_bytes(),
        received_limit_bytes: limits.user_receive_bytes,
        page_bytes: user.pages().charged_bytes(),
        page_limit_bytes: limits.user_page_bytes,
        unread_bytes: user.unread().charged_bytes(),
        unread_limit_bytes: limits.user_unread_bytes,
        unread_waits: user.unread().waits(),
        sent_bytes: user.sent().charged_bytes(),
        sent_limit_bytes: limits.user_memory_bytes,
        sent_waits: user.sent().waits(),
        associations: user.associations(),
        associations_limit: limits.user_associations,
        associations_refused: user.associations_refused(),
    };
    users.iter().map(status).collect()
}

/// Counts the sockets or associations that still fit an answer, and those left out.
struct Room {
    left: usize,
    omitted: usize,
}

impl Room {
    /// Takes room for one more, or counts it as left out.
    fn take(&mut self) -> bool {
        let is_room = self.left > 0;
        match is_room {
            true => self.left -= 1,
            false => self.omitted += 1,
        }
        is_room
    }

    /// Returns as many associations of a socket as there is room for, and counts the rest.
    fn of(&mut self, socket: &Socket) -> Vec<Rc<SocketAssociation>> {
        let associations = socket.associations();
        self.omitted += associations.count().saturating_sub(self.left);
        associations.up_to(self.left)
    }
}

/// An answer under construction.
pub(crate) struct Report {
    memory: LentMemfd,
    _only_one: ReportPermit,
}

impl Report {
    /// Begins an answer to this user, to whom its memory is charged, when those that this user has requested before are built.
    pub(crate) async fn begin(registry: &Registry, requester: Requester) -> Result<Report, Errno> {
        let resources = registry.resources();
        let user = resources.users().user(requester.user());
        let permit = resources.take_waiting(user.id())?;
        let only_one = user.begin_report().await.ok_or(Errno::CANCELED)?;
        drop(permit);
        let charge = user.unread().take(STEP_BYTES).ok_or(Errno::NOBUFS)?;
        let number = resources.descriptors().count(Use::Requests, user.id(), LentMemfd::DESCRIPTORS);
        let memory = LentMemfd::new(&[], number, charge).map_err(|(error, _)| error)?;
        Ok(Report { memory, _only_one: only_one })
    }

    pub(crate) fn finish(self) -> Reply {
        Reply { lent: Some(self.memory), ..Answer::Done.into() }
    }

    pub(crate) fn add(&mut self, part: &impl Serialize) -> Result<(), Errno> {
        let text = serde_json::to_vec(part).map_err(|_| Errno::NOMEM)?;
        self.memory.append(&text, STEP_BYTES)
    }

    /// Adds a socket and as many of its associations as there is room for.
    async fn add_socket(
        &mut self,
        socket: &Socket,
        associations: &mut Room,
        walk: &mut Walk<'_>,
    ) -> Result<(), Errno> {
        self.add(&Part::Socket(status::of_socket(socket)))?;
        walk.report_one().await;
        let shown = associations.of(socket);
        for assoc in shown {
            if let Some(association) = status::of_association(&assoc) {
                self.add(&Part::Association(association))?;
                associations.left -= 1;
            }
            walk.report_one().await;
        }
        Ok(())
    }

    /// Adds the closed sockets of a user with their associations.
    async fn add_closed(
        &mut self,
        registry: &Registry,
        user: u32,
        sockets: &mut Room,
        associations: &mut Room,
        walk: &mut Walk<'_>,
    ) -> Result<(), Errno> {
        let (mut after, mut last_shown) = (None, None);
        loop {
            let following = registry.closed().following(user, after, RECORDS_PER_TURN);
            let Some((last, ..)) = following.last() else { return Ok(()) };
            after = Some(*last);
            for (_, socket, left) in &following {
                walk.report_one().await;
                let Some(association) = status::of_left_association(registry.stack(), left) else { continue };
                if last_shown != Some(socket.number) {
                    last_shown = Some(socket.number);
                    if sockets.take() {
                        self.add(&Part::Socket(status::of_closed_socket(socket)))?;
                    }
                }
                // What does not follow its socket would be taken for another one's.
                if sockets.omitted > 0 {
                    associations.omitted += 1;
                } else if associations.take() {
                    self.add(&Part::Association(association))?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use channel_protocol::assoc_id::AssocId;
    use rustix::io::pread;
    use swiftwater::{AssociationState, internals};

    use super::*;
    use crate::calls::status::{AssociationPhase, SocketState};
    use crate::channel::style::Style;
    use crate::state::association_options::AssocOptions;
    use crate::testing::{closed_socket, opened, registry, registry_with, server_address, soon};
    use crate::users::limits::Limits;
    use crate::users::requester::tests::requester;

    #[tokio::test(flavor = "local")]
    async fn one_answer_of_a_user_is_built_at_a_time() {
        let registry = registry();
        let sockets: Vec<_> = (0..2 * RECORDS_PER_TURN).map(|_| opened(&registry, Style::OneToOne)).collect();
        let of_user = |uid| report(&registry, requester(uid));
        let (mut first, mut second, mut of_other) =
            (Box::pin(of_user(1)), pin!(of_user(1)), pin!(of_user(2)));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut cx).is_pending(), "more sockets than fit a turn");
        let charged_bytes = || registry.resources().users().unread().account(1).charged_bytes();
        let of_one = charged_bytes();
        for _ in 0..100 {
            assert!(second.as_mut().poll(&mut cx).is_pending());
            assert_eq!(charged_bytes(), of_one);
        }
        assert!(matches!(of_other.as_mut().poll(&mut cx), Poll::Ready(Ok(_))), "another user does not wait");
        // The first one's requester has hung up.
        drop(first);
        assert!(soon(second).await.is_ok());
        drop(sockets);
    }

    /// Returns the parts of an answer.
    fn parts(reply: Reply) -> Vec<Part> {
        let mut answer = vec![0; 1 << 20];
        let bytes = pread(reply.lent.expect("a memfd").as_fd(), &mut answer[..], 0).expect("an answer");
        let parts = serde_json::Deserializer::from_slice(&answer[..bytes]).into_iter();
        parts.map(|part| part.expect("a part")).collect()
    }

    /// Returns the sockets in the answer to a user, each with its associations.
    async fn reported_to(registry: &Registry, uid: u32) -> Vec<(SocketState, Vec<AssociationPhase>)> {
        sockets_of(soon(report(registry, requester(uid))).await.expect("memory"))
    }

    fn sockets_of(reply: Reply) -> Vec<(SocketState, Vec<AssociationPhase>)> {
        let mut sockets = Vec::new();
        for part in parts(reply) {
            match part {
                Part::Socket(socket) => sockets.push((socket.state, Vec::new())),
                Part::Association(association) => {
                    sockets.last_mut().expect("its socket").1.push(association.state);
                }
                Part::Daemon(_) | Part::End { .. } => {}
            }
        }
        sockets
    }

    #[tokio::test(flavor = "local")]
    async fn a_user_sees_its_own_charges_and_root_those_of_all() {
        let registry = registry();
        let (_socket, _program_end) = opened(&registry, Style::OneToOne);
        let all = registry.resources().users();
        let others = [2, 3, 4].map(|id| all.user(id));
        let _sent = others[0].sent().take(100).expect("room");
        let _received = others[1].received().take(100).expect("room");
        let seen_by =
            |uid| -> Vec<u32> { users(&registry, requester(uid)).iter().map(|status| status.user).collect() };
        assert_eq!(seen_by(0), [1, 2, 3], "the fourth has nothing");
        assert_eq!((1..=4).map(seen_by).collect::<Vec<_>>(), [vec![1], vec![2], vec![3], vec![]]);
    }

    #[tokio::test(flavor = "local")]
    async fn the_counters_of_the_daemon_are_for_those_who_see_it() {
        let registry = registry();
        for (uid, sees_daemon) in [(0, true), (1, false)] {
            let parts = parts(soon(report(&registry, requester(uid))).await.expect("memory"));
            let Part::Daemon(daemon) = &parts[0] else { panic!("it comes first") };
            assert_eq!(daemon.counters.is_some(), sees_daemon, "user {uid}");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn what_a_user_occupies_is_reported_under_its_names() {
        let limits = Limits {
            user_receive_bytes: 1 << 20,
            user_page_bytes: 2 << 20,
            user_unread_bytes: 3 << 20,
            user_memory_bytes: 4 << 20,
            user_associations: 5,
            ..Limits::default()
        };
        let registry = registry_with(&limits);
        let user = registry.resources().users().user(1);
        let _charges = [
            user.received().take(10).expect("room"),
            user.pages().take(20).expect("room"),
            user.unread().take(30).expect("room"),
            user.sent().take(40).expect("room"),
        ];
        let _permit = user.admit_association_anyway(0);
        user.count_refused_association();
        user.count_refused_association();
        let reported = users(&registry, requester(1));
        let [status] = &reported[..] else { panic!("one user") };
        let bytes = [status.received_bytes, status.page_bytes, status.unread_bytes, status.sent_bytes];
        assert_eq!(bytes, [10, 20, 30, 40]);
        let limit_bytes = [
            status.received_limit_bytes,
            status.page_limit_bytes,
            status.unread_limit_bytes,
            status.sent_limit_bytes,
        ];
        assert_eq!(limit_bytes, [1 << 20, 2 << 20, 3 << 20, 4 << 20]);
        let associations = (status.associations, status.associations_limit, status.associations_refused);
        assert_eq!(associations, (1, 5, 2));
    }

    /// Leaves associations of a socket as if its program had closed it. Returns them with their other ends.
    async fn leave(
        registry: &Registry,
        socket: &Socket,
        count: usize,
    ) -> Vec<(SocketAssociation, swiftwater::tokio::Association)> {
        let listener = registry.stack().listen(7).expect("a free port");
        let (mut ends, mut id) = (Vec::new(), AssocId::FIRST);
        for _ in 0..count {
            let (connected, accepted) =
                tokio::join!(registry.stack().connect(server_address(registry)), listener.accept());
            let (peer, _) = accepted.expect("an association comes");
            let address = ([127, 0, 0, 1], 7).into();
            let association = connected.expect("it listens");
            let assoc = SocketAssociation::with(id, address, association, socket.future_options());
            registry.leave(socket, &assoc);
            ends.push((assoc, peer));
            id = id.next();
        }
        ends
    }

    #[tokio::test(flavor = "local")]
    async fn all_associations_of_a_closed_socket_follow_it() {
        const COUNT: usize = RECORDS_PER_TURN + 1;
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToMany);
        let peer = ([192, 0, 2, 1], 7).into();
        let begun = SocketAssociation::new(AssocId::new(1000), peer, AssocOptions::default());
        socket.enter(begun, 1, registry.admit_association(&socket, 1).expect("room"));
        drop(registry.take_associations(&socket));
        let _ends = leave(&registry, &socket, COUNT).await;
        let reported = reported_to(&registry, 1).await;
        let counts: Vec<_> =
            reported.iter().map(|(state, associations)| (*state, associations.len())).collect();
        assert_eq!(counts, [(SocketState::Closed, COUNT)]);
    }

    #[tokio::test(flavor = "local")]
    async fn what_is_closed_has_no_more_room_than_the_rest_of_an_answer() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToMany);
        let _ends = leave(&registry, &socket, 3).await;
        for (sockets_left, associations_left, shown, omitted) in
            [(1, 2, vec![2], (0, 1)), (0, 9, vec![], (1, 3)), (1, 9, vec![3], (0, 0))]
        {
            let mut sockets = Room { left: sockets_left, omitted: 0 };
            let mut associations = Room { left: associations_left, omitted: 0 };
            let mut report = Report::begin(&registry, requester(1)).await.expect("memory");
            let mut walk = Walk::over(&registry);
            let added = report.add_closed(&registry, 1, &mut sockets, &mut associations, &mut walk).await;
            assert_eq!(added, Ok(()));
            let reported = sockets_of(report.finish());
            assert_eq!(reported.iter().map(|(_, shown)| shown.len()).collect::<Vec<_>>(), shown);
            assert_eq!((sockets.omitted, associations.omitted), omitted);
        }
    }

    /// Enters the associations 3 to 7.
    fn enter_five(registry: &Registry, socket: &Socket) {
        let peer = ([192, 0, 2, 1], 7).into();
        for id in 3..8 {
            let assoc = SocketAssociation::new(AssocId::new(id), peer, AssocOptions::default());
            socket.enter(assoc, 1, registry.admit_association(socket, 1).expect("room"));
        }
    }

    #[tokio::test(flavor = "local")]
    async fn the_associations_of_a_socket_take_room_of_later_ones() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToMany);
        enter_five(&registry, &socket);
        let mut associations = Room { left: 7, omitted: 0 };
        for (left, omitted) in [(2, 0), (0, 3)] {
            let mut report = Report::begin(&registry, requester(1)).await.expect("memory");
            let added = report.add_socket(&socket, &mut associations, &mut Walk::over(&registry)).await;
            assert_eq!(added, Ok(()));
            assert_eq!((associations.left, associations.omitted), (left, omitted));
        }
    }

    #[test]
    fn sockets_for_which_there_is_no_room_are_counted() {
        let mut sockets = Room { left: 2, omitted: 0 };
        let taken: Vec<bool> = std::iter::repeat_with(|| sockets.take()).take(4).collect();
        assert_eq!((taken, sockets.left, sockets.omitted), (vec![true, true, false, false], 0, 2));
    }

    #[tokio::test(flavor = "local")]
    async fn a_closed_socket_is_reported_until_its_association_has_ended() {
        let registry = registry();
        let listener = registry.stack().listen(7).expect("a free port");
        let peer = closed_socket(&registry, &listener, true).await;
        let pending = AssociationPhase::Up(AssociationState::ShutdownPending);
        for uid in [0, 1] {
            assert_eq!(reported_to(&registry, uid).await, [(SocketState::Closed, vec![pending])]);
        }
        assert_eq!(reported_to(&registry, 2).await, [], "another user");
        assert_eq!(registry.closed().users(), [1]);
        while soon(peer.recv()).await.expect("an end in order").is_some() {}
        drop(peer);
        soon(internals::no_association(registry.stack())).await;
        assert_eq!(reported_to(&registry, 1).await, []);
        assert_eq!(registry.closed().users(), [0; 0]);
    }

    #[tokio::test(flavor = "local")]
    async fn associations_for_which_there_is_no_room_are_counted() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToMany);
        enter_five(&registry, &socket);
        let mut associations = Room { left: 3, omitted: 0 };
        let numbers: Vec<u32> = associations.of(&socket).iter().map(|assoc| assoc.id().get()).collect();
        assert_eq!((numbers, associations.omitted), (vec![3, 4, 5], 2));
        associations.left = 5;
        assert_eq!((associations.of(&socket).len(), associations.omitted), (5, 2));
    }
}
