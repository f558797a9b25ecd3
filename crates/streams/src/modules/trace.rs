//! A module that logs messages, line by line.

use std::fmt::Write;
use std::time::Instant;

use tpi::{RecvInfo, SendInfo};

use super::sink::RecordSink;
use crate::identifiers::Side;
use crate::message::{Message, Seen};
use crate::module::{Module, Q};

/// Writes a line for each message (`trace`), as the trace of `strlog` did: the seconds since the first one, the direction (`>`
/// down, `<` up), the type of the message, its stream, payload protocol identifier, flags and length, and its first bytes.
pub struct Trace {
    sink: Box<dyn RecordSink>,
    begin: Option<Instant>,
    traced: u64,
    lost: u64,
    line: String,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").field("traced", &self.traced).finish_non_exhaustive()
    }
}

impl Trace {
    /// Bytes of a message that are shown at most.
    const SHOWN_BYTES: usize = 32;

    /// Returns a module that passes its lines to `sink`.
    pub fn new(sink: Box<dyn RecordSink>) -> Self {
        Self { sink, begin: None, traced: 0, lost: 0, line: String::new() }
    }

    fn tell(&mut self, now: Instant, side: Side, m: &Seen<'_>) {
        if self.sink.is_closed() {
            return;
        }
        let seconds = now.saturating_duration_since(*self.begin.get_or_insert(now)).as_secs_f64();
        let way = if side == Side::Write { '>' } else { '<' };
        self.line.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.line, "{seconds:.6} {way} {}", m.kind.what());
        match side {
            Side::Write => m.send_info().iter().for_each(|info| self.tell_send(info)),
            Side::Read => m.recv_info().iter().for_each(|info| self.tell_receive(info)),
        }
        if m.band != 0 {
            let _ = write!(self.line, " band {}", m.band);
        }
        if !m.is_empty() {
            let _ = write!(self.line, " {} bytes ", m.len());
            self.tell_data(m);
        }
        self.line.push('\n');
        let taken = self.sink.take(&[self.line.as_bytes()]);
        self.traced += u64::from(taken);
        self.lost += u64::from(!taken);
    }

    fn tell_send(&mut self, info: &SendInfo) {
        let _ = write!(self.line, " stream {} ppid {}", info.stream, info.ppid);
        self.tell_set(&[
            (info.unordered, " unordered"),
            (info.more, " more"),
            (info.immediate, " immediate"),
        ]);
    }

    fn tell_receive(&mut self, info: &RecvInfo) {
        let RecvInfo { stream, ppid, ssn, tsn, .. } = info;
        let _ = write!(self.line, " stream {stream} ppid {ppid} ssn {ssn} tsn {tsn}");
        self.tell_set(&[(info.unordered, " unordered"), (info.more, " more")]);
    }

    fn tell_set(&mut self, names: &[(bool, &str)]) {
        names.iter().filter(|(is_set, _)| *is_set).for_each(|(_, name)| self.line.push_str(name));
    }

    /// Appends the first bytes as text; escapes unprintable ones as in C.
    fn tell_data(&mut self, m: &Seen<'_>) {
        let mut first = [0; Self::SHOWN_BYTES];
        let bytes = m.copy_to(&mut first);
        let _ = write!(self.line, "\"{}\"", first[..bytes].escape_ascii());
        if bytes < m.len() {
            self.line.push_str("...");
        }
    }
}

impl Module for Trace {
    fn name(&self) -> &str {
        "trace"
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![("traced", self.traced), ("lost", self.lost)]
    }

    fn is_finished(&self) -> bool {
        self.sink.is_closed()
    }

    fn observes(&self) -> bool {
        true
    }

    fn observe(&mut self, side: Side, now: Instant, m: &Seen<'_>) -> bool {
        self.tell(now, side, m);
        true
    }

    fn wput(&mut self, q: &mut Q<'_>, m: Message) {
        self.tell(q.now(), Side::Write, &Seen::from(&m));
        q.pass(m);
    }

    fn rput(&mut self, q: &mut Q<'_>, m: Message) {
        self.tell(q.now(), Side::Read, &Seen::from(&m));
        q.pass(m);
    }
}
