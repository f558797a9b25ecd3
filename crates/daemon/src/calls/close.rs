//! Handles the sockets that the programs of a user have closed, before the next call of such a program.

use rustix::io::Errno;

use super::pending::{ROUNDS_MAX, run_pending};
use super::waiting::wait_for;
use crate::state::registry::Registry;
use crate::system::socket_cookie::Cookie;
use crate::users::closer::Source;
use crate::users::requester::Requester;

/// Acts on what programs of this user have closed so far.
pub(crate) async fn act_on_closes(registry: &Registry, requester: Requester) {
    // The daemon's own copy would keep a file open that a program has closed.
    for source in Source::ALL {
        registry.resources().closer(requester.user(), source).drained().await;
    }
    run_pending(registry, requester.user(), ROUNDS_MAX).await;
}

/// Waits until a socket that its program has just closed is gone. Does not wait if the socket has another descriptor.
pub(crate) async fn linger(registry: &Registry, cookie: Cookie, requester: Requester) -> Result<(), Errno> {
    let socket = registry.find(cookie).filter(|socket| requester.may_manage(socket.owner().user));
    act_on_closes(registry, requester).await;
    match socket.filter(|socket| socket.channel().is_closed()) {
        Some(socket) => wait_for(registry, requester, socket.gone()).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use tokio::task::{spawn_local, yield_now};

    use super::*;
    use crate::channel::style::Style;
    use crate::tasks::start;
    use crate::testing::{opened, opened_whole, registry, soon};
    use crate::users::requester::tests::requester as of;
    use crate::users::round_share::ROUNDS_WITHOUT_TURN_MAX;

    #[tokio::test(flavor = "local")]
    async fn a_close_is_acted_on_although_its_socket_waits_for_a_turn() {
        for (rounds, is_enough) in [(ROUNDS_WITHOUT_TURN_MAX, true), (usize::MAX, false)] {
            let registry = Rc::new(registry());
            let (socket, program_end) = start(&registry, opened_whole(&registry, Style::OneToOne));
            let cookie = Cookie::of(&program_end).expect("a pair");
            let user = socket.owner().user;
            // Other sockets of the user have its turns, and one moves a record now and then.
            let mut turns = [socket.turn(), socket.turn()];
            for turn in &mut turns {
                turn.begin().await;
            }
            let others = spawn_local({
                let registry = Rc::clone(&registry);
                async move {
                    for _ in 0..2 {
                        for _ in 0..rounds {
                            yield_now().await;
                        }
                        registry.busy_polling().record_came();
                    }
                    drop(turns);
                }
            });
            drop((socket, program_end));
            soon(act_on_closes(&registry, of(user))).await;
            assert_eq!(registry.find(cookie).is_none(), is_enough, "turns come after {rounds} rounds");
            others.abort();
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_caller_lingers_while_a_socket_of_its_user_is_closed_and_not_gone() {
        let registry = Rc::new(registry());
        let (socket, program_end) = opened(&registry, Style::OneToOne);
        let cookie = Cookie::of(&program_end).expect("a pair");
        let user = socket.owner().user;
        soon(linger(&registry, cookie, of(user))).await.expect("it is open");
        drop(program_end);
        soon(linger(&registry, cookie, of(user + 1))).await.expect("it is another user's");
        let lingering = spawn_local({
            let registry = Rc::clone(&registry);
            async move { linger(&registry, cookie, of(user)).await }
        });
        for _ in 0..2 * ROUNDS_MAX {
            yield_now().await;
        }
        assert!(!lingering.is_finished());
        registry.forget(&socket);
        soon(lingering).await.expect("it goes on").expect("the socket is gone");
        soon(linger(&registry, cookie, of(user))).await.expect("there is none");
    }
}
