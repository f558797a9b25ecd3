//! Option management (`T_OPTMGMT_REQ`): checks, returns and sets options by the rules of XTI.
//!
//! `table` describes each option: its access, and how its value is read from and written to the options of an
//! association.

mod table;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ::sctp::{AssociationConfig, Checksum, PathOptions, Statistics};
use streams::{Cx, Errno, StreamId};
use tpi::options::{Action, Status, T_ALLOPT, TransportOption};
use tpi::{Optmgmt, Primitive, TError, Which};

use super::SctpDriver;
use super::minor::Minor;
use super::refusal::Refusal;
use table::{Access, Known};

/// Defaults of data that is sent without options (`T_SCTP_PPI`, `T_SCTP_SID`, `T_SCTP_LIFETIME`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SendDefaults {
    pub(super) ppid: u32,
    pub(super) stream: u16,
    /// The lifetime of a message; 0 for no limit.
    pub(super) lifetime_ms: u32,
}

/// The defaults of the streams that have set any.
pub(super) type AllSendDefaults = HashMap<StreamId, SendDefaults>;

/// The values of the options of one stream.
struct Values<'a> {
    config: &'a AssociationConfig,
    send: SendDefaults,
    checksum: Checksum,
    /// The statistics of the stream's association, if it has one.
    statistics: Option<&'a Statistics>,
}

/// The values that a request sets. They take effect when the whole request has been parsed.
#[derive(Clone, Debug)]
struct Draft {
    config: AssociationConfig,
    send: SendDefaults,
    paths: Vec<(Option<IpAddr>, PathOptions)>,
    /// The peer's addresses; none without an association.
    peer: Vec<IpAddr>,
    streams_out: Option<u16>,
}

/// The result of setting an option.
enum Outcome {
    Done,
    /// The draft has a lower value than requested.
    Lessened,
    /// The value is legal and cannot be set now.
    Failed,
    /// The value is illegal, which makes the whole request fail.
    Illegal,
}

const BAD_OPTION: Refusal = Refusal(TError::BadOption, Errno(0));

/// The answer to a request as it grows.
#[derive(Default)]
struct Answer {
    options: Vec<u8>,
    worst: Option<Status>,
}

impl Answer {
    fn push(&mut self, option: &TransportOption<'_>, status: Status) {
        option.write(status, &mut self.options);
        self.worst = self.worst.max(Some(status));
    }
}

impl SctpDriver {
    /// Carries out `T_OPTMGMT_REQ`.
    pub(super) fn manage_options(
        &mut self,
        cx: &mut Cx<'_>,
        s: StreamId,
        request: &Optmgmt,
    ) -> Result<Primitive, Refusal> {
        let action = Action::from_number(request.flags).ok_or(Refusal(TError::BadFlag, Errno(0)))?;
        let options = TransportOption::read_list(&request.options).map_err(|_| BAD_OPTION)?;
        let level = options.first().map(|option| option.level);
        // XTI: all options of a request must have one level.
        if options.iter().any(|option| Some(option.level) != level) {
            return Err(BAD_OPTION);
        }
        let answer = match (level, action) {
            (None, _) => Answer::default(),
            (Some(level), Action::Default | Action::Current) => {
                self.tell_options(s, level, &options, action)?
            }
            (Some(level), Action::Negotiate | Action::Check) => {
                let mut draft = self.draft(s);
                let answer = self.negotiate(s, level, &options, action, &mut draft)?;
                if action == Action::Negotiate {
                    self.commit(cx, s, draft)?;
                }
                answer
            }
        };
        let flags = answer.worst.unwrap_or(Status::Success).number();
        Ok(Primitive::OptmgmtAck(Box::new(Optmgmt { flags, options: answer.options })))
    }

    /// Appends the requested values (`T_DEFAULT`, `T_CURRENT`). The values in the request are ignored.
    fn tell_options(
        &self,
        s: StreamId,
        level: u32,
        options: &[TransportOption<'_>],
        action: Action,
    ) -> Result<Answer, Refusal> {
        let known = table::of_level(level).ok_or(BAD_OPTION)?;
        let statistics = self.statistics(s, Which::Only);
        let config = self.config_of(s);
        let values = match action {
            Action::Default => self.default_values(),
            _ => Values {
                config: &config,
                send: self.send_defaults(s),
                checksum: self.checksum,
                statistics: statistics.as_ref(),
            },
        };
        let is_connected = statistics.is_some();
        let mut answer = Answer::default();
        for option in options {
            if option.name == T_ALLOPT {
                let supported = known.iter().filter(|known| known.access != Access::Unsupported);
                supported.for_each(|known| tell(&mut answer, level, known, &values, is_connected));
                break;
            }
            match known.iter().find(|known| known.name == option.name) {
                Some(known) if known.access != Access::Unsupported => {
                    tell(&mut answer, level, known, &values, is_connected);
                }
                _ => answer.push(&TransportOption { value: &[], ..*option }, Status::NotSupported),
            }
        }
        Ok(answer)
    }

    /// Sets values in a draft (`T_NEGOTIATE`), or returns the status that setting them would have (`T_CHECK`).
    fn negotiate(
        &self,
        s: StreamId,
        level: u32,
        options: &[TransportOption<'_>],
        action: Action,
        draft: &mut Draft,
    ) -> Result<Answer, Refusal> {
        let known = table::of_level(level).ok_or(BAD_OPTION)?;
        let is_connected = self.statistics(s, Which::Only).is_some();
        let mut answer = Answer::default();
        for option in options {
            if option.name == T_ALLOPT {
                if action == Action::Check {
                    return Err(BAD_OPTION);
                }
                let values = self.default_values();
                for known in known.iter().filter(|known| known.access != Access::Unsupported) {
                    let value = known.read(&values);
                    let option = TransportOption { level, name: known.name, value: &value };
                    set(&mut answer, draft, known, &option, is_connected)?;
                }
                break;
            }
            match known.iter().find(|known| known.name == option.name) {
                None => answer.push(option, Status::NotSupported),
                Some(known) if action == Action::Check && option.value.is_empty() => {
                    answer.push(option, known.access.status(is_connected));
                }
                Some(known) => set(&mut answer, draft, known, option, is_connected)?,
            }
        }
        Ok(answer)
    }

    fn default_values(&self) -> Values<'_> {
        let send = SendDefaults::default();
        Values { config: &self.config, send, checksum: self.checksum, statistics: None }
    }

    fn config_of(&self, s: StreamId) -> Arc<AssociationConfig> {
        self.config(s, Which::Only).unwrap_or_else(|| self.association_config(s))
    }

    /// Returns the defaults of a stream for data that is sent without options.
    pub(super) fn send_defaults(&self, s: StreamId) -> SendDefaults {
        // Most programs send options with all data.
        if self.all_send_defaults.is_empty() {
            return SendDefaults::default();
        }
        self.all_send_defaults.get(&s).copied().unwrap_or_default()
    }

    fn draft(&self, s: StreamId) -> Draft {
        let statistics = self.statistics(s, Which::Only);
        let paths = statistics.iter().flat_map(|known| &known.paths);
        Draft {
            config: AssociationConfig::clone(&self.config_of(s)),
            send: self.send_defaults(s),
            paths: Vec::new(),
            peer: paths.map(|path| path.remote.ip().to_canonical()).collect(),
            streams_out: statistics.map(|known| known.streams_out),
        }
    }

    /// Applies a draft to the association, or to later associations of the stream.
    fn commit(&mut self, cx: &mut Cx<'_>, s: StreamId, draft: Draft) -> Result<(), Refusal> {
        let Draft { config, send, paths, .. } = draft;
        if send != self.send_defaults(s) {
            self.all_send_defaults.insert(s, send);
        }
        if config != *self.config_of(s) {
            if matches!(self.minors.get(s), Some(Minor::Listening { .. } | Minor::OneToMany { .. })) {
                self.set_association_config(s, Arc::new(config.clone()));
            }
            if !self.change_config(cx, s, Which::Only, config.clone()) {
                return Err(Refusal(TError::AddressBusy, Errno(0)));
            }
            if self.config(s, Which::Only).is_none() {
                self.set_association_config(s, Arc::new(config));
            }
        }
        for (address, options) in paths {
            // The draft contains only addresses that the peer has.
            let _ = self.set_path(cx, s, Which::Only, address, &options);
        }
        Ok(())
    }
}

/// Appends an option with its value.
fn tell(answer: &mut Answer, level: u32, known: &Known, values: &Values<'_>, is_connected: bool) {
    let value = known.read(values);
    let option = TransportOption { level, name: known.name, value: &value };
    answer.push(&option, known.access.status(is_connected));
}

/// Sets an option in a draft and appends its status. The appended value is the requested one, or the lower value that
/// took its place.
fn set(
    answer: &mut Answer,
    draft: &mut Draft,
    known: &Known,
    option: &TransportOption<'_>,
    is_connected: bool,
) -> Result<(), Refusal> {
    let status = known.access.status(is_connected);
    if status != Status::Success {
        answer.push(option, status);
        return Ok(());
    }
    let words = known.words(option.value).ok_or(BAD_OPTION)?;
    match (known.set)(draft, &words) {
        Outcome::Done => answer.push(option, Status::Success),
        Outcome::Failed => answer.push(option, Status::Failure),
        Outcome::Illegal => return Err(BAD_OPTION),
        Outcome::Lessened => {
            let Draft { config, send, .. } = draft;
            let values = Values { config, send: *send, checksum: Checksum::default(), statistics: None };
            let value = known.read(&values);
            answer.push(&TransportOption { value: &value, ..*option }, Status::PartSuccess);
        }
    }
    Ok(())
}
