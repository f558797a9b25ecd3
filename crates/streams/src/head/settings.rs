//! The options in effect at a stream head.

use super::{ErrorOptions, HeadOptions, ReadControl, ReadMode, WriteAs, WriteOptions};

/// The options of a head except for the marks, which its queue has.
#[derive(Debug)]
pub(crate) struct Settings {
    read_mode: ReadMode,
    read_control: ReadControl,
    /// Reads end with their messages and fail at control parts; follows from the two above.
    reads_directly: bool,
    write_as: WriteAs,
    write_options: WriteOptions,
    /// Writes are `T_OPTDATA_REQ` and not held; follows from the two above.
    writes_directly: bool,
    error_options: ErrorOptions,
    announces_reads: bool,
    coalesce_max_bytes: usize,
}

impl Settings {
    /// Size at which coalesced writes go down.
    const COALESCE_BYTES: usize = 32 * 1024;

    pub(super) fn new(write_as: WriteAs) -> Self {
        Self {
            read_mode: ReadMode::MessageNondiscard,
            read_control: ReadControl::Fail,
            reads_directly: true,
            write_as,
            write_options: WriteOptions::default(),
            writes_directly: write_as == WriteAs::OptdataReq,
            error_options: ErrorOptions::default(),
            announces_reads: false,
            coalesce_max_bytes: Self::COALESCE_BYTES,
        }
    }

    /// Changes the options that are given.
    pub(super) fn change(&mut self, options: &HeadOptions) {
        self.read_mode = options.read_mode.unwrap_or(self.read_mode);
        self.read_control = options.read_control.unwrap_or(self.read_control);
        self.reads_directly =
            self.read_mode == ReadMode::MessageNondiscard && self.read_control == ReadControl::Fail;
        self.write_as = options.write_as.unwrap_or(self.write_as);
        self.write_options = options.write.unwrap_or(self.write_options);
        self.writes_directly = self.write_as == WriteAs::OptdataReq && !self.write_options.hold;
        self.error_options = options.errors.unwrap_or(self.error_options);
        self.announces_reads = options.announce_reads.unwrap_or(self.announces_reads);
        self.coalesce_max_bytes = options.coalesce_bytes.unwrap_or(self.coalesce_max_bytes);
    }

    /// Returns all options, with the default for the marks.
    pub(super) fn options(&self) -> HeadOptions {
        HeadOptions {
            read_mode: Some(self.read_mode),
            read_control: Some(self.read_control),
            write_as: Some(self.write_as),
            write: Some(self.write_options),
            errors: Some(self.error_options),
            announce_reads: Some(self.announces_reads),
            coalesce_bytes: Some(self.coalesce_max_bytes),
            ..HeadOptions::default()
        }
    }

    pub(crate) fn read_mode(&self) -> ReadMode {
        self.read_mode
    }

    pub(super) fn read_control(&self) -> ReadControl {
        self.read_control
    }

    /// Returns whether reads end with their messages and fail at control parts.
    #[inline]
    pub(super) fn reads_directly(&self) -> bool {
        self.reads_directly
    }

    pub(crate) fn write_as(&self) -> WriteAs {
        self.write_as
    }

    pub(crate) fn write_options(&self) -> WriteOptions {
        self.write_options
    }

    /// Returns whether writes are `T_OPTDATA_REQ` and not held.
    #[inline]
    pub(crate) fn writes_directly(&self) -> bool {
        self.writes_directly
    }

    pub(super) fn error_options(&self) -> ErrorOptions {
        self.error_options
    }

    /// Returns whether a read that finds nothing sends `M_READ` down.
    pub(crate) fn announces_reads(&self) -> bool {
        self.announces_reads
    }

    /// Returns the size at which coalesced writes go down.
    pub(crate) fn coalesce_max_bytes(&self) -> usize {
        self.coalesce_max_bytes
    }
}
