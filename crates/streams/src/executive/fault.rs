//! Recovery after calls that have unwound.

use crate::driver::Cx;
use crate::error::WriteError;
use crate::identifiers::StreamId;
use crate::{Errno, Executive, Kind, Message};

impl Executive {
    /// Recovers after a call has unwound; must be called before any other operation. Each driver ends its operation in progress;
    /// `s` is the stream that the call was for, which fails.
    ///
    /// A panic in a module never gets here: its stream fails at once.
    pub fn fault(&mut self, s: Option<StreamId>) {
        for driver in &mut self.drivers {
            driver.fault(&mut Cx::new(&mut self.streams), s);
        }
        if let Some((s, (stream, scheduler))) = s.and_then(|s| Some((s, self.streams.parts(s)?)))
            && matches!(stream.head.check_write(), Ok(()) | Err(WriteError::WouldBlock))
        {
            let failed = Kind::Error { read: Some(Errno::EIO), write: Some(Errno::EIO) };
            stream.head.put(s, Message::new(failed), scheduler);
        }
        self.deliver_posts();
    }
}
