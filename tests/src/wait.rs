//! Waits for what sends no notification: each has a deadline, and tells what did not come.

use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::PATIENCE;

/// Pause between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until a condition holds.
///
/// # Panics
/// If it does not hold within [`PATIENCE`]; the message names what was `awaited`.
#[track_caller]
pub fn until(awaited: &str, mut holds: impl FnMut() -> bool) {
    found(awaited, || holds().then_some(()));
}

/// Waits until `find` returns something, and returns that.
///
/// # Panics
/// If it returns nothing within [`PATIENCE`]; the message names what was `awaited`.
#[track_caller]
pub fn found<T>(awaited: &str, find: impl FnMut() -> Option<T>) -> T {
    found_within(PATIENCE, awaited, find)
}

/// Waits until a program has ended, and returns how.
///
/// # Panics
/// If it has not ended within [`PATIENCE`]; the message names the `program`.
#[track_caller]
pub fn end_of(program: &str, child: &mut Child) -> ExitStatus {
    found(&format!("the end of {program}"), || child.try_wait().expect("a child of this process"))
}

#[track_caller]
fn found_within<T>(limit: Duration, awaited: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        // A process that did not run until the deadline checks once more.
        let is_over = Instant::now() >= deadline;
        if let Some(found) = find() {
            return found;
        }
        assert!(!is_over, "waited {} s in vain: {awaited}", limit.as_secs_f64());
        thread::sleep(CHECK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    #[should_panic(expected = "in vain: the moon is blue")]
    fn a_wait_in_vain_names_what_did_not_come() {
        found_within(Duration::ZERO, "the moon is blue", || None::<()>);
    }

    #[test]
    fn what_comes_at_the_deadline_is_found() {
        let mut checks = 0..2;
        until("the second check", || checks.next() == Some(1));
        assert_eq!(found_within(Duration::ZERO, "a value", || Some(7)), 7);
    }

    #[test]
    fn the_end_of_a_program_is_found() {
        let mut child = Command::new("false").spawn().expect("it starts");
        assert_eq!(end_of("false", &mut child).code(), Some(1));
    }
}
