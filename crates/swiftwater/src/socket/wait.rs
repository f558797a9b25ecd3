//! Waits of threads: how long a call may sleep, and why it returns without a result.

use std::time::{Duration, Instant};

use streams::Interest;

use super::Socket;
use crate::error::{AcceptError, Loss, RecvError, SendError};
use crate::shard::{Entered, Inner};

/// The time that a call may sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// Do not sleep, and do not poll the sockets either.
    #[cfg(feature = "internals")]
    NoPoll,
    /// Do not sleep.
    None,
    /// Sleep until this time.
    Until(Instant),
    /// Sleep without limit.
    Forever,
}

impl Wait {
    pub(crate) fn within(timeout: Duration) -> Self {
        Instant::now().checked_add(timeout).map_or(Wait::Forever, Wait::Until)
    }
}

/// A failure of the sockets, or an internal fault: every call fails.
#[derive(Debug)]
pub(crate) struct Fault(String);

/// Reason why a call returned without a result.
pub(crate) enum WaitError {
    /// The call would have to wait, and must not.
    WouldBlock,
    /// The call has reached its time limit.
    TimedOut,
    Fault(Fault),
}

impl Fault {
    pub(crate) fn new(why: String) -> Self {
        Fault(why)
    }

    #[cold]
    pub(crate) fn internal() -> Self {
        Fault("there was an internal fault; please report it".into())
    }

    /// Returns the loss to report for an association.
    pub(crate) fn into_loss(self) -> Loss {
        Loss::fault(self.0)
    }
}

impl From<Fault> for SendError {
    fn from(fault: Fault) -> Self {
        SendError::Failed(fault.0.into())
    }
}

impl From<Fault> for RecvError {
    fn from(fault: Fault) -> Self {
        RecvError::Lost(fault.into_loss())
    }
}

impl From<WaitError> for SendError {
    fn from(why: WaitError) -> Self {
        match why {
            WaitError::WouldBlock => SendError::WouldBlock,
            WaitError::TimedOut => SendError::TimedOut,
            WaitError::Fault(fault) => fault.into(),
        }
    }
}

impl From<WaitError> for RecvError {
    fn from(why: WaitError) -> Self {
        match why {
            WaitError::WouldBlock => RecvError::WouldBlock,
            WaitError::TimedOut => RecvError::TimedOut,
            WaitError::Fault(fault) => fault.into(),
        }
    }
}

impl From<RecvError> for AcceptError {
    /// Converts an error of a listener's stream, which either fails as a whole or not at all.
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::WouldBlock => AcceptError::WouldBlock,
            RecvError::TimedOut => AcceptError::TimedOut,
            RecvError::Lost(loss) => AcceptError::Failed(loss),
            RecvError::Restarted(text) => AcceptError::Failed(Loss::fault(text)),
        }
    }
}

impl Socket {
    /// Repeats an attempt until it has a result, and waits between two attempts.
    #[inline]
    pub(crate) fn until<T>(
        &self,
        interest: Interest,
        wait: Wait,
        attempt: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Result<T, WaitError> {
        self.until_inside(self.shard.enter(), interest, wait, attempt)
    }

    /// Repeats an attempt as [`Socket::until`] does, from inside the perimeter.
    #[inline]
    pub(super) fn until_inside<T>(
        &self,
        mut inner: Entered<'_>,
        interest: Interest,
        wait: Wait,
        mut attempt: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Result<T, WaitError> {
        match inner.guarded(Some(self.stream), &mut attempt) {
            Some(Some(result)) => Ok(result),
            Some(None) => self.until_slow(inner, interest, wait, attempt),
            None => Err(WaitError::Fault(Fault::internal())),
        }
    }

    /// Waits, and repeats an attempt that had no result, until it has one.
    #[inline(never)]
    fn until_slow<'a, T>(
        &'a self,
        mut inner: Entered<'a>,
        interest: Interest,
        wait: Wait,
        mut attempt: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Result<T, WaitError> {
        let outcome = loop {
            let waited;
            (inner, waited) = self.wait(inner, interest, wait);
            if let Err(why) = waited {
                break Err(why);
            }
            match inner.guarded(Some(self.stream), &mut attempt) {
                Some(Some(result)) => break Ok(result),
                Some(None) => {}
                None => break Err(WaitError::Fault(Fault::internal())),
            }
        };
        if matches!(wait, Wait::Until(_) | Wait::Forever) {
            self.shard.after_wait(&mut inner);
        }
        outcome
    }

    /// Waits once, or gives up as `wait` demands.
    #[cold]
    fn wait<'a>(
        &'a self,
        mut inner: Entered<'a>,
        interest: Interest,
        wait: Wait,
    ) -> (Entered<'a>, Result<(), WaitError>) {
        let (mut inner, may_retry) = match wait {
            #[cfg(feature = "internals")]
            Wait::NoPoll => return (inner, Err(WaitError::WouldBlock)),
            Wait::Forever => self.shard.wait(inner, self.stream, interest, None),
            Wait::Until(at) => self.shard.wait(inner, self.stream, interest, Some(at)),
            Wait::None => {
                // Before giving up, try once more with the datagrams that have arrived.
                inner.flush(true);
                inner.begin_round_without_task();
                inner.take_arrivals();
                let ready = inner.is_ready(self.stream, interest);
                self.shard.arm_background();
                (inner, ready)
            }
        };
        let waited = match inner.take_failure() {
            Some(why) => Err(WaitError::Fault(Fault::new(why))),
            None if may_retry => Ok(()),
            None if matches!(wait, Wait::Until(_)) => Err(WaitError::TimedOut),
            None => Err(WaitError::WouldBlock),
        };
        (inner, waited)
    }
}
