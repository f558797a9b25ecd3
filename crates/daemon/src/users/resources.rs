//! The resources that all users of a daemon share: memory, descriptors, threads, and places of requests.

use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use shared_memory::Pins;

use super::close_watches::CloseWatches;
use super::closer::{Closer, Closers, Source};
use super::descriptor_budget::DescriptorBudget;
use super::division::{Use, part_of_user};
use super::limits::Limits;
use super::owner::{Owner, Rings, Share, Shares};
use super::slices::Slices;
use super::tap_files::TapFiles;
use super::user::Users;
use super::user_permits::{Permit, UserPermits};

/// Maximum number of requests that wait for a peer, in all and of one user.
const WAITING_MAX: usize = 4096;
const WAITING_OF_USER_MAX: usize = 1024;
/// Maximum number of requests of one user that are carried out and answered at the same time, beside those that wait for a peer.
const CARRIED_OUT_OF_USER_MAX: usize = 1024;
/// Maximum number of open connections that have not sent a request yet.
const SILENT_MAX: usize = 1024;
/// If descriptors are scarce, waiting requests, those that are carried out, and silent connections are each limited to the number
/// of descriptors for requests divided by this; so are answers with descriptors that were not received, however many descriptors
/// there are.
const PART_OF_CONNECTIONS: usize = 3;

/// The resources of a daemon.
pub(crate) struct Resources {
    limits: Limits,
    users: Arc<Users>,
    /// Permits of requests that wait for an answer.
    waiting: Arc<UserPermits>,
    /// Permits of requests that are carried out and answered, whether they wait for an answer or not.
    carried_out: Arc<UserPermits>,
    /// Permits of connections that have not sent a request yet.
    silent: Arc<UserPermits>,
    /// Permits of answers with descriptors that their callers have not received.
    unreceived: Arc<UserPermits>,
    descriptors: Arc<DescriptorBudget>,
    shares: Shares,
    /// Pins of the sockets' pages.
    pins_of_pages: Arc<Pins>,
    rings: Arc<Rings>,
    closers: Closers,
    close_watches: Arc<CloseWatches>,
    tap_files: Arc<TapFiles>,
    slices: Rc<Slices>,
}

impl Resources {
    pub(crate) fn new(limits: &Limits, descriptors: Arc<DescriptorBudget>) -> Resources {
        let few = (descriptors.division().part(Use::Requests).0 / PART_OF_CONNECTIONS).max(1);
        let waiting = WAITING_MAX.min(few);
        let waiting_of_user = WAITING_OF_USER_MAX.min(part_of_user(few));
        let shares = Shares::new(Arc::clone(&descriptors));
        let (pins_of_pages, rings) = shares.pins();
        Resources {
            limits: *limits,
            users: Arc::new(Users::new(limits)),
            waiting: UserPermits::new(waiting, waiting_of_user),
            carried_out: UserPermits::of_each(waiting_of_user + CARRIED_OUT_OF_USER_MAX.min(few)),
            silent: UserPermits::new(SILENT_MAX.min(few), SILENT_MAX),
            unreceived: UserPermits::new(few, few),
            closers: Closers::new(Arc::clone(&descriptors)),
            descriptors,
            shares,
            pins_of_pages,
            rings,
            close_watches: CloseWatches::new(),
            tap_files: Arc::new(TapFiles::new()),
            slices: Rc::default(),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the users, and the budgets that they share.
    pub(crate) fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// Takes a place for one more request of this user that waits for its answer.
    pub(crate) fn take_waiting(&self, user: u32) -> Result<Permit, Errno> {
        self.waiting.take(user).ok_or(Errno::NOBUFS)
    }

    /// Takes a place for a request of this user from its beginning until it is answered.
    pub(crate) fn take_carried_out(&self, user: u32) -> Option<Permit> {
        self.carried_out.take(user)
    }

    /// Takes a place for a connection of this user that has not sent its request yet.
    pub(crate) fn take_silent(&self, user: u32) -> Option<Permit> {
        self.silent.take(user)
    }

    /// Takes the place of a silent connection away, because descriptors are scarce.
    pub(crate) fn give_up_silent(&self) {
        self.silent.give_up_one();
    }

    /// Takes a place for an answer with descriptors to this user.
    pub(crate) fn take_unreceived(&self, user: u32) -> Option<Permit> {
        self.unreceived.take_free(user)
    }

    pub(crate) fn descriptors(&self) -> &Arc<DescriptorBudget> {
        &self.descriptors
    }

    /// Counts one more socket of a user.
    pub(crate) fn take_socket(&self, owner: Owner) -> Result<Share, Errno> {
        self.shares.take(owner)
    }

    pub(crate) fn pins_of_pages(&self) -> &Arc<Pins> {
        &self.pins_of_pages
    }

    pub(crate) fn rings(&self) -> &Arc<Rings> {
        &self.rings
    }

    /// Returns the closer for a user and source.
    pub(crate) fn closer(&self, user: u32, source: Source) -> Arc<Closer> {
        self.closers.of(user, source)
    }

    /// Returns the files that taps of rules write.
    pub(crate) fn tap_files(&self) -> &Arc<TapFiles> {
        &self.tap_files
    }

    /// Returns the slices of the processor that the daemon's thread has.
    pub(crate) fn slices(&self) -> &Rc<Slices> {
        &self.slices
    }

    /// Returns the watches of sockets that programs have shut down.
    pub(crate) fn close_watches(&self) -> &Arc<CloseWatches> {
        &self.close_watches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "local")]
    async fn connections_and_answers_have_a_part_of_few_descriptors() {
        const PLACES: usize = 8;
        let descriptors = DescriptorBudget::with_max(PLACES * PART_OF_CONNECTIONS * 32 / 6);
        let resources = Resources::new(&Limits::default(), descriptors);
        let silent: Vec<Permit> =
            (0..PLACES).map(|_| resources.take_silent(1).expect("nobody else has any")).collect();
        let _of_other = resources.take_silent(2).expect("the first user makes room");
        silent[0].lost().await;
        resources.give_up_silent();
        silent[1].lost().await;
        let unreceived: Vec<Permit> = std::iter::from_fn(|| resources.take_unreceived(1)).collect();
        assert_eq!(unreceived.len(), PLACES / 2);
        assert!(resources.take_unreceived(2).is_some(), "a part is left to others");
        let waiting: Vec<Permit> = std::iter::from_fn(|| resources.take_waiting(1).ok()).collect();
        assert_eq!((waiting.len(), resources.take_waiting(1).err()), (PLACES * 3 / 4, Some(Errno::NOBUFS)));
    }
}
