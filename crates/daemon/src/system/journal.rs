//! Log lines for the administrator.
//!
//! Any program can make the daemon write lines, so their rate is limited, and a line is dropped if it would block.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::system::descriptor_io::polls;
use crate::system::lock::lock;

/// Maximum number of lines within one [`PERIOD`]; further lines are only counted.
const LINES_MAX: u32 = 20;
const PERIOD: Duration = Duration::from_secs(1);

struct Period {
    began: Option<Instant>,
    written: u32,
    omitted: u64,
}

static PERIOD_NOW: Mutex<Period> = Mutex::new(Period { began: None, written: 0, omitted: 0 });

/// The decision about a line.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Write the line, after this many were omitted.
    Write(u64),
    Omit,
}

impl Period {
    fn judge(&mut self, now: Instant) -> Verdict {
        if self.began.is_none_or(|began| now.duration_since(began) >= PERIOD) {
            (self.began, self.written) = (Some(now), 0);
        }
        if self.written >= LINES_MAX {
            self.omitted += 1;
            return Verdict::Omit;
        }
        self.written += 1;
        Verdict::Write(std::mem::take(&mut self.omitted))
    }
}

/// Writes a line to standard error, unless that would block or the rate limit is reached.
pub(crate) fn log(line: Arguments<'_>) {
    let verdict = lock(&PERIOD_NOW).judge(Instant::now());
    let Verdict::Write(omitted) = verdict else { return };
    let mut stderr = std::io::stderr().lock();
    // A pipe that polls writable accepts a short line at once.
    if !polls(&stderr, PollFlags::OUT) {
        return;
    }
    // An error means that there is no standard error, and thus no reader.
    let _ = match omitted {
        0 => writeln!(stderr, "swiftwater daemon: {line}"),
        _ => writeln!(stderr, "swiftwater daemon: ({omitted} lines omitted) {line}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_lines_some_are_written_and_the_rest_is_counted() {
        let mut period = Period { began: None, written: 0, omitted: 0 };
        let now = Instant::now();
        for _ in 0..LINES_MAX {
            assert_eq!(period.judge(now), Verdict::Write(0));
        }
        assert_eq!(period.judge(now), Verdict::Omit);
        assert_eq!(period.judge(now), Verdict::Omit);
        assert_eq!(period.judge(now + PERIOD), Verdict::Write(2));
        assert_eq!(period.judge(now + PERIOD), Verdict::Write(0));
    }
}
