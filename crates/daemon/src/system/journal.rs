//! Log lines for the administrator.
//!
//! Any program can make the daemon write lines. So the lines that each user causes have a rate, and those of all users together
//! have another; lines about the daemon and its host have a rate of their own. Ids that one user may have by the thousand share a
//! rate that is theirs alone. A line is also left out if it would block.
//! Before the next line of a user, the log says how many lines of this user were left out. If none follows, it says so alone.

use std::collections::HashMap;
use std::fmt::{self, Arguments};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use tokio::sync::Notify;

use crate::system::descriptor_io::polls;
use crate::system::lock::lock;

/// Rate of the lines that one user causes, and of those about the daemon. A user who causes lines without end fills 1 MB a day.
const OF_ONE: Rate = Rate { at_once: 8, interval: Duration::from_secs(10) };
/// Rate of the lines of all users together, and of all subordinate ids together.
const OF_USERS: Rate = Rate { at_once: 64, interval: Duration::from_secs(1) };
/// Maximum number of users whose lines are counted at a time, and of subordinate ids. The lines of further ones are left out and
/// counted together.
const USERS_MAX: usize = 256;
/// The first id that counts as subordinate: `/etc/subuid` lends ids to users from 100,000 or 524,288 on, usually 65,536 to each.
/// A user of a directory service may have such a number, too, and then has a part of this rate.
const SUBORDINATE_MIN: u32 = 1 << 16;

/// The user who can repeat what a line reports, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Daemon,
    User(u32),
}

/// A number of lines at once, and the interval of further ones.
#[derive(Debug)]
struct Rate {
    at_once: u32,
    interval: Duration,
}

/// Lines that may be written, and lines that were left out.
#[derive(Debug)]
struct Account {
    rate: &'static Rate,
    left: u32,
    /// Time up to which lines were granted.
    granted_until: Instant,
    omitted: u64,
}

#[derive(Debug)]
struct Journal {
    daemon: Account,
    users: Users,
    subordinate: Users,
}

/// Users who share a rate.
#[derive(Debug)]
struct Users {
    /// All of them together. Its omitted lines are those of users without an account.
    all: Account,
    of_each: HashMap<u32, Account>,
}

/// Lines that were left out.
#[derive(Debug, PartialEq, Eq)]
struct Omitted {
    lines: u64,
    of: Whose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Cause(Cause),
    /// Users or subordinate ids beyond [`USERS_MAX`].
    FurtherUsers,
}

static JOURNAL: LazyLock<Mutex<Journal>> = LazyLock::new(|| Mutex::new(Journal::new(Instant::now())));
/// Notified when a line was left out.
static OMITTED: Notify = Notify::const_new();

impl Account {
    fn new(rate: &'static Rate, now: Instant) -> Account {
        Account { rate, left: rate.at_once, granted_until: now, omitted: 0 }
    }

    /// Grants the lines that are due.
    fn grant(&mut self, now: Instant) {
        let interval = self.rate.interval;
        let due = now.saturating_duration_since(self.granted_until).as_nanos() / interval.as_nanos();
        match u32::try_from(due).ok().and_then(|due| Some((due, self.left.checked_add(due)?))) {
            Some((due, left)) if left < self.rate.at_once => {
                self.left = left;
                self.granted_until += interval * due;
            }
            _ => (self.left, self.granted_until) = (self.rate.at_once, now),
        }
    }

    /// Returns whether all lines were granted and none was left out.
    fn is_unused(&self) -> bool {
        self.left == self.rate.at_once && self.omitted == 0
    }

    /// Admits a line, and returns the number of lines that were left out before. Counts the line if it is left out, too, because
    /// its rate is used up or because `are_all_out`.
    fn admit(&mut self, are_all_out: bool, now: Instant) -> Option<u64> {
        self.grant(now);
        if self.left == 0 || are_all_out {
            self.omitted += 1;
            return None;
        }
        Some(self.take_omitted())
    }

    /// Takes the number of omitted lines, if there are any and a line may be written.
    fn take_report(&mut self, of: Whose, now: Instant) -> Option<Omitted> {
        self.grant(now);
        let is_due = self.omitted > 0 && self.left > 0;
        is_due.then(|| Omitted { lines: self.take_omitted(), of })
    }

    /// Takes the number of omitted lines, to write it as part of a line or as a line of its own.
    fn take_omitted(&mut self) -> u64 {
        self.left -= 1;
        std::mem::take(&mut self.omitted)
    }
}

impl Users {
    fn new(now: Instant) -> Users {
        Users { all: Account::new(&OF_USERS, now), of_each: HashMap::new() }
    }

    /// Returns the account of a user. Forgets those that are not in use, if there are too many.
    fn of(&mut self, user: u32, now: Instant) -> Option<&mut Account> {
        if self.of_each.len() >= USERS_MAX && !self.of_each.contains_key(&user) {
            self.of_each.retain(|_, account| {
                account.grant(now);
                !account.is_unused()
            });
            if self.of_each.len() >= USERS_MAX {
                return None;
            }
        }
        Some(self.of_each.entry(user).or_insert_with(|| Account::new(&OF_ONE, now)))
    }

    /// Admits a line of a user, as [`Journal::admit`] does.
    fn admit(&mut self, user: u32, now: Instant) -> Option<u64> {
        self.all.grant(now);
        let are_out = self.all.left == 0;
        let Some(account) = self.of(user, now) else {
            self.all.omitted += 1;
            return None;
        };
        let omitted = account.admit(are_out, now)?;
        self.all.left -= 1;
        Some(omitted)
    }

    /// Counts lines of a user that were left out.
    fn return_omitted(&mut self, user: u32, lines: u64, now: Instant) {
        match self.of(user, now) {
            Some(account) => account.omitted += lines,
            None => self.all.omitted += lines,
        }
    }

    /// Adds the numbers of omitted lines that may be reported now.
    fn add_reports(&mut self, reports: &mut Vec<Omitted>, now: Instant) {
        reports.extend(self.all.take_report(Whose::FurtherUsers, now));
        for (user, account) in &mut self.of_each {
            if self.all.left > 0
                && let Some(report) = account.take_report(Whose::Cause(Cause::User(*user)), now)
            {
                self.all.left -= 1;
                reports.push(report);
            }
        }
    }

    /// Returns the number of omitted lines that were not reported.
    fn omitted(&self) -> u64 {
        self.of_each.values().chain([&self.all]).map(|account| account.omitted).sum()
    }
}

impl Journal {
    fn new(now: Instant) -> Journal {
        Journal { daemon: Account::new(&OF_ONE, now), users: Users::new(now), subordinate: Users::new(now) }
    }

    /// Returns the users among whom this one is.
    fn among(&mut self, user: u32) -> &mut Users {
        if user < SUBORDINATE_MIN { &mut self.users } else { &mut self.subordinate }
    }

    /// Admits a line, and returns the number of lines of this cause that were left out before. Returns `None` and counts the
    /// line if it is left out, too.
    fn admit(&mut self, cause: Cause, now: Instant) -> Option<u64> {
        match cause {
            Cause::Daemon => self.daemon.admit(false, now),
            Cause::User(user) => self.among(user).admit(user, now),
        }
    }

    /// Counts lines that were admitted and could not be written.
    fn return_omitted(&mut self, omitted: &Omitted, now: Instant) {
        match omitted.of {
            Whose::Cause(Cause::Daemon) => self.daemon.omitted += omitted.lines,
            Whose::Cause(Cause::User(user)) => self.among(user).return_omitted(user, omitted.lines, now),
            Whose::FurtherUsers => self.users.all.omitted += omitted.lines,
        }
    }

    /// Takes the numbers of omitted lines that may be reported now.
    fn take_reports(&mut self, now: Instant) -> Vec<Omitted> {
        let mut reports = Vec::new();
        reports.extend(self.daemon.take_report(Whose::Cause(Cause::Daemon), now));
        self.users.add_reports(&mut reports, now);
        self.subordinate.add_reports(&mut reports, now);
        reports
    }

    /// Returns the number of omitted lines that were not reported.
    fn omitted(&self) -> u64 {
        self.daemon.omitted + self.users.omitted() + self.subordinate.omitted()
    }
}

impl fmt::Display for Omitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = if self.lines == 1 { "line" } else { "lines" };
        match self.of {
            Whose::Cause(Cause::Daemon) => write!(f, "{} {lines} omitted", self.lines),
            Whose::Cause(Cause::User(user)) => write!(f, "{} {lines} of user {user} omitted", self.lines),
            Whose::FurtherUsers => write!(f, "{} {lines} of further users omitted", self.lines),
        }
    }
}

/// Writes a line to standard error, unless that would block or the cause has written too many.
pub(crate) fn log(cause: Cause, line: Arguments<'_>) {
    let Some(lines) = lock(&JOURNAL).admit(cause, Instant::now()) else { return OMITTED.notify_one() };
    let omitted = Omitted { lines, of: Whose::Cause(cause) };
    let written = if lines == 0 { write(line) } else { write(format_args!("({omitted}) {line}")) };
    if !written {
        return_omitted(&Omitted { lines: lines + 1, ..omitted });
    }
}

/// Reports omitted lines that no other line of the same user reports, while the daemon runs.
pub(crate) async fn report_omitted() {
    loop {
        OMITTED.notified().await;
        while lock(&JOURNAL).omitted() > 0 {
            tokio::time::sleep(OF_ONE.interval).await;
            let reports = lock(&JOURNAL).take_reports(Instant::now());
            reports.iter().filter(|report| !write(format_args!("{report}"))).for_each(return_omitted);
        }
    }
}

/// Reports all omitted lines in one line, at the end of the daemon.
pub(crate) fn finish() {
    let lines = lock(&JOURNAL).omitted();
    if lines > 0 {
        write(format_args!("{lines} more lines omitted"));
    }
}

fn return_omitted(omitted: &Omitted) {
    lock(&JOURNAL).return_omitted(omitted, Instant::now());
    OMITTED.notify_one();
}

fn write(line: Arguments<'_>) -> bool {
    write_to(io::stderr().lock(), line)
}

/// Writes a line at once. Returns false if that would block.
fn write_to(mut out: impl Write + AsFd, line: Arguments<'_>) -> bool {
    // A pipe that polls writable accepts a short line at once.
    let has_room = polls(&out, PollFlags::OUT);
    if has_room {
        // An error means that there is no standard error, and thus no reader.
        let _ = out.write_all(format!("swiftwater daemon: {line}\n").as_bytes());
    }
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Cause = Cause::User(1);
    const OTHER: Cause = Cause::User(2);

    fn omitted(lines: u64, cause: Cause) -> Omitted {
        Omitted { lines, of: Whose::Cause(cause) }
    }

    /// Causes so many lines. Returns the number of those that are written.
    fn written(journal: &mut Journal, cause: Cause, lines: u32, now: Instant) -> u32 {
        (0..lines).filter(|_| journal.admit(cause, now).is_some()).count() as u32
    }

    #[test]
    fn a_user_who_causes_many_lines_hides_none_of_another() {
        let now = Instant::now();
        let mut journal = Journal::new(now);
        assert_eq!(written(&mut journal, ONE, 1000, now), OF_ONE.at_once);
        assert_eq!(written(&mut journal, OTHER, OF_ONE.at_once, now), OF_ONE.at_once);
        assert_eq!(written(&mut journal, Cause::Daemon, OF_ONE.at_once, now), OF_ONE.at_once);
        let later = now + OF_ONE.interval;
        assert_eq!(journal.admit(ONE, later), Some(u64::from(1000 - OF_ONE.at_once)), "they were counted");
        assert_eq!([ONE, OTHER].map(|cause| journal.admit(cause, later)), [None, Some(0)]);
        let much_later = later + 1000 * OF_ONE.interval;
        assert_eq!(written(&mut journal, ONE, 1000, much_later), OF_ONE.at_once, "no more are saved up");
    }

    #[test]
    fn a_log_that_nobody_reads_keeps_nobody_waiting() {
        let (_reader, writer) = io::pipe().expect("a pipe");
        let mut written = 0;
        while write_to(&writer, format_args!("a line")) {
            written += 1;
            assert!(written < 1 << 20, "the pipe has room for ever");
        }
        assert!(written > 0);
    }

    #[test]
    fn lines_are_granted_at_their_rate_however_often_the_time_is_looked_at() {
        let mut now = Instant::now();
        let mut journal = Journal::new(now);
        written(&mut journal, ONE, OF_ONE.at_once, now);
        let looks = 1000;
        let admitted = (0..looks).filter(|_| {
            now += OF_ONE.interval / 100;
            journal.admit(ONE, now).is_some()
        });
        assert_eq!(admitted.count(), looks / 100);
    }

    #[test]
    fn all_users_together_have_a_rate_and_leave_the_daemons_own_lines() {
        let now = Instant::now();
        let mut journal = Journal::new(now);
        let of_all: u32 = (0..100).map(|user| written(&mut journal, Cause::User(user), 8, now)).sum();
        assert_eq!(of_all, OF_USERS.at_once);
        assert_eq!(journal.admit(Cause::Daemon, now), Some(0));
    }

    #[test]
    fn a_user_with_many_subordinate_ids_hides_no_line_of_another_user() {
        let now = Instant::now();
        let mut journal = Journal::new(now);
        let of_lent = |id| Cause::User(SUBORDINATE_MIN + id);
        let lent: u32 = (0..4 * USERS_MAX as u32).map(|id| written(&mut journal, of_lent(id), 8, now)).sum();
        assert_eq!(lent, OF_USERS.at_once);
        assert_eq!(written(&mut journal, Cause::User(SUBORDINATE_MIN - 1), 100, now), OF_ONE.at_once);
        assert!(journal.omitted() > 0);
        let later = now + OF_ONE.interval;
        assert!(journal.take_reports(later).iter().any(|report| report.of == Whose::FurtherUsers));
    }

    #[test]
    fn what_no_later_line_reports_is_reported_alone() {
        let now = Instant::now();
        let mut journal = Journal::new(now);
        written(&mut journal, ONE, OF_ONE.at_once + 3, now);
        assert!((journal.omitted() > 0) && journal.take_reports(now).is_empty(), "that would be a line, too");
        let later = now + OF_ONE.interval;
        let reports = journal.take_reports(later);
        assert_eq!(reports, [omitted(3, ONE)]);
        assert_eq!(reports[0].to_string(), "3 lines of user 1 omitted");
        assert!(journal.omitted() == 0 && journal.admit(ONE, later).is_none(), "the report counts as a line");
        journal.return_omitted(&reports[0], later);
        assert_eq!(journal.take_reports(later + OF_ONE.interval), [omitted(4, ONE)], "it was not written");
    }

    #[test]
    fn reports_of_many_users_keep_the_rate_of_all() {
        let now = Instant::now();
        let mut journal = Journal::new(now);
        (0..USERS_MAX as u32).for_each(|user| journal.return_omitted(&omitted(1, Cause::User(user)), now));
        assert_eq!(journal.take_reports(now).len(), OF_USERS.at_once as usize);
        assert!(journal.take_reports(now).is_empty() && (journal.omitted() > 0));
    }

    #[test]
    fn users_beyond_the_maximum_are_counted_together_and_take_no_memory() {
        let now = Instant::now();
        let mut journal = Journal::new(now);
        let many = 4 * USERS_MAX as u32;
        (0..many).for_each(|user| _ = journal.admit(Cause::User(user), now));
        assert_eq!(
            (journal.users.of_each.len(), journal.users.all.omitted),
            (USERS_MAX, u64::from(many) - 256)
        );
        let later = now + 10 * OF_ONE.interval;
        let reports = journal.take_reports(later);
        assert!(reports.iter().any(|report| report.to_string() == "768 lines of further users omitted"));
        let end = later + 10 * OF_ONE.interval;
        (0..many).for_each(|_| drop(journal.take_reports(end)));
        assert_eq!(
            journal.admit(Cause::User(many), end + OF_ONE.interval * 10),
            Some(0),
            "idle ones are forgotten"
        );
        assert!(journal.users.of_each.len() <= USERS_MAX);
    }
}
