//! The log driver passes lines of modules and drivers to their readers (`log(7)`, `strlog(D3)`).

use std::collections::HashMap;

use crate::driver::{Cx, Driver, Open};
use crate::identifiers::StreamId;
use crate::message::{Control, Kind, Message};
use crate::{Chain, Errno};

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The module or driver (`mid`).
    pub module: u16,
    /// Instance of the module or driver (`sid`).
    pub minor: u32,
    /// Level; 0 is the most important (`level`).
    pub level: u8,
    /// The text of the line.
    pub text: String,
}

/// Passes each record to the streams that read the log. A reader whose queue is full loses records, which are counted; no writer
/// waits for a reader.
#[derive(Debug, Default)]
pub struct Log {
    readers: HashMap<StreamId, Reader>,
    next_sequence: u32,
}

#[derive(Debug, Default)]
struct Reader {
    /// `I_TRCLOG`: the filters of the reader, by module, minor device and least important level; no filter passes nothing.
    traces: Vec<(Option<u16>, Option<u32>, u8)>,
    lost: u64,
}

/// Largest number of filters of one reader.
const TRACES_MAX: usize = 64;

impl Log {
    /// Ioctl that sets the filters of its stream (`I_TRCLOG`): entries of three 32-bit numbers in native order, the module, the
    /// minor device and the least important level; -1 matches every module or minor device.
    pub const TRACE: u32 = 0x4c4f_4702;

    /// Writes a record to all readers whose filters match (`strlog`).
    pub fn strlog(&mut self, cx: &mut Cx<'_>, record: &LogRecord) {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        for (&s, reader) in &mut self.readers {
            let wants = reader.traces.iter().any(|(module, minor, level)| {
                module.is_none_or(|module| module == record.module)
                    && minor.is_none_or(|minor| minor == record.minor)
                    && record.level <= *level
            });
            if !wants {
                continue;
            }
            if cx.canputnext(s, 0) {
                cx.putnext(s, encode(record, sequence));
            } else {
                reader.lost += 1;
            }
        }
    }

    /// Returns the number of records that a reader has lost.
    pub fn lost(&self, s: StreamId) -> u64 {
        self.readers.get(&s).map_or(0, |reader| reader.lost)
    }

    fn trace(&mut self, s: StreamId, argument: &[u8]) -> Result<(), Errno> {
        let words: Vec<i32> = argument.as_chunks().0.iter().map(|word| i32::from_ne_bytes(*word)).collect();
        let (entries, rest) = words.as_chunks::<3>();
        if entries.is_empty()
            || !rest.is_empty()
            || entries.len() > TRACES_MAX
            || !argument.len().is_multiple_of(4)
        {
            return Err(Errno::EINVAL);
        }
        let traces = entries.iter().map(|[module, minor, level]| {
            (u16::try_from(*module).ok(), u32::try_from(*minor).ok(), u8::try_from(*level).unwrap_or(u8::MAX))
        });
        self.readers.entry(s).or_default().traces = traces.collect();
        Ok(())
    }
}

/// Encodes a record for its reader: a control part of module, minor device, level and sequence number, and the text.
fn encode(record: &LogRecord, sequence: u32) -> Message {
    let words = [u32::from(record.module), record.minor, u32::from(record.level), sequence];
    let control: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let text = Chain::from(record.text.clone().into_bytes());
    Message::with_data(Kind::Proto(Control::Raw(control.into())), text)
}

impl Driver for Log {
    fn open(&mut self, _cx: &mut Cx<'_>, s: StreamId, _open: &Open) -> Result<(), Errno> {
        self.readers.entry(s).or_default();
        Ok(())
    }

    fn close(&mut self, _cx: &mut Cx<'_>, s: StreamId) {
        self.readers.remove(&s);
    }

    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match &m.kind {
            Kind::Flush(_) => cx.flush(s, m),
            Kind::Ioctl(ioctl) if ioctl.command == Self::TRACE => match self.trace(s, &m.data.to_vec()) {
                Ok(()) => cx.ack(s, ioctl, 0, Chain::new()),
                Err(errno) => cx.nak(s, ioctl, errno),
            },
            Kind::Ioctl(ioctl) => cx.nak(s, ioctl, Errno::EINVAL),
            // A line that a program writes becomes a record of module 0.
            Kind::Data => {
                let text = String::from_utf8_lossy(&m.data.to_vec()).into_owned();
                self.strlog(cx, &LogRecord { module: 0, minor: 0, level: 0, text });
            }
            _ => {}
        }
    }
}
