//! Changes of all associations of a socket, in turns: a one-to-many socket may have tens of thousands.

use channel_protocol::assoc_id::AssocId;

use super::Access;
use crate::state::association_options::AssocOptions;
use crate::state::socket::Socket;
use crate::users::quantum::TurnState;

/// A change of one association's options.
type Change = dyn Fn(&mut AssocOptions);

/// The changes that an option makes to all associations of a socket.
#[derive(Default)]
pub(crate) struct ChangeForAll {
    change: Option<Box<Change>>,
    applies: bool,
    limits_messages: bool,
    notes_dry: bool,
    counts_subscribers: bool,
}

impl ChangeForAll {
    /// Changes the options of each association, and passes them to the executive.
    pub(super) fn change(&mut self, change: impl Fn(&mut AssocOptions) + 'static) {
        self.change = Some(Box::new(change));
        self.applies = true;
    }

    /// Passes the options to the executive.
    pub(super) fn apply(&mut self) {
        self.applies = true;
    }

    /// Shows the sharers the smallest limit of messages that stay whole.
    pub(super) fn limit_messages(&mut self) {
        self.limits_messages = true;
    }

    /// Makes a notification due for each association that is dry.
    pub(super) fn note_dry(&mut self) {
        self.notes_dry = true;
    }

    /// Shows the sharers whether an association has subscribed to the information about received messages.
    pub(super) fn count_subscribers(&mut self) {
        self.counts_subscribers = true;
    }
}

/// Changes all associations, in the turns of the user.
pub(crate) async fn change_all(socket: &Socket, for_all: ChangeForAll) {
    let (mut turn, mut last) = (socket.turn(), AssocId::NONE);
    let (mut least, mut is_subscribed) = (None, false);
    loop {
        if turn.spend(1) == TurnState::Over {
            turn.next().await;
        }
        let Some(assoc) = socket.associations().next_after(last) else { break };
        last = assoc.id();
        if let Some(change) = &for_all.change {
            change(&mut assoc.options_mut());
        }
        is_subscribed |= for_all.counts_subscribers && assoc.options().subscribes(0);
        let access = Access::new(socket);
        if for_all.applies {
            access.apply(&assoc);
        }
        if for_all.limits_messages {
            least = least.into_iter().chain(assoc.fragmentation_point_bytes()).min();
        }
        if for_all.notes_dry {
            access.note_if_dry(assoc);
        }
    }
    turn.end();
    if for_all.limits_messages {
        socket.set_message_limit(least);
    }
    if for_all.counts_subscribers {
        Access::new(socket).show_subscribers(is_subscribed);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use channel_protocol::abi::{IPPROTO_SCTP, SCTP_MAX_BURST};

    use super::super::set_now;
    use super::*;
    use crate::channel::style::Style;
    use crate::state::association::SocketAssociation;
    use crate::testing::{opened, registry, soon};
    use crate::users::round_share::RECORDS_PER_ROUND;

    const COUNT: u32 = 4 * RECORDS_PER_ROUND as u32;

    #[tokio::test(flavor = "local")]
    async fn an_option_of_all_associations_is_set_in_turns() {
        let registry = registry();
        let (socket, _program_end) = opened(&registry, Style::OneToMany);
        let peer = ([192, 0, 2, 1], 7).into();
        for id in 3..3 + COUNT {
            let assoc = SocketAssociation::new(AssocId::new(id), peer, AssocOptions::default());
            socket.enter(assoc, 1, registry.admit_association(&socket, 1).expect("room"));
        }
        // SCTP_ALL_ASSOC, and 7 packets.
        let value = [2, 0, 0, 0, 7, 0, 0, 0];
        let for_all = set_now(&socket, (IPPROTO_SCTP, SCTP_MAX_BURST), &value).expect("it is valid");
        let changed = || {
            let all = socket.associations().all();
            all.iter().filter(|assoc| assoc.options().burst_max() == Some(7)).count()
        };
        assert_eq!((changed(), socket.future_options().burst_max()), (0, Some(7)));
        let mut changing = pin!(change_all(&socket, for_all.expect("associations")));
        assert!(changing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!((1..=RECORDS_PER_ROUND).contains(&changed()), "{} in a turn", changed());
        soon(changing).await;
        assert_eq!(changed(), COUNT as usize);
    }
}
