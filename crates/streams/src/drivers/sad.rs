//! The administrative driver: rules of autopush, and which modules there are (`sad`).

use crate::driver::{Cx, Driver, Open};
use crate::identifiers::{DriverId, StreamId};
use crate::message::{Credentials, IocData, Ioctl, IoctlArgument, Kind, Message};
use crate::names::Autopush;
use crate::{Chain, Errno};

/// Sets and tells the modules that are pushed when a device is opened, and says whether modules exist (`sad`). Data that
/// is written goes nowhere.
///
/// All three ioctls are transparent, with the address of a structure of the caller: a [`Rule`](Sad::SAP) of 112 bytes, or
/// a list of modules. Numbers are in native byte order; a name has [`Sad::NAME_BYTES`] bytes at most and a zero behind it.
///
/// | offset | `struct strapush` | | `struct str_list` |
/// |---|---|---|---|
/// | 0 | command, 32 bits | 0 | number of modules, 32 bits |
/// | 8, 16, 24 | number of the driver, first and last minor device, 64 bits each | 8 | address of the names, 64 bits |
/// | 32 | number of modules, 32 bits | | |
/// | 36 | eight names | | |
#[derive(Debug, Default)]
pub struct Sad;

/// The size of a `strapush`.
const RULE_BYTES: usize = 112;
/// The size of a `str_list`.
const LIST_BYTES: usize = 16;
/// Length of a name, with its terminating zero.
const ENTRY_BYTES: usize = Sad::NAME_BYTES + 1;
/// Offset of the names of a `strapush`.
const NAMES_AT: usize = 36;

/// State of a conversation with the caller (`private` of its steps).
const ARGUMENT_READ: u64 = 0;
const NAMES_READ: u64 = 1;
const RULE_WRITTEN: u64 = 2;

/// The commands of a `strapush`.
const SAP_CLEAR: i32 = 0;
const SAP_ONE: i32 = 1;
const SAP_RANGE: i32 = 2;
const SAP_ALL: i32 = 3;

/// A `strapush`: for which minor devices of a driver which modules are pushed.
#[derive(Debug)]
struct Rule {
    command: i32,
    driver: i64,
    first: i64,
    last: i64,
    modules: i64,
    names: Vec<u8>,
}

impl Sad {
    /// `SAD_SAP`: sets or clears a rule; for the superuser.
    pub const SAP: u32 = 0x4401;
    /// `SAD_GAP`: tells the rule of a minor device.
    pub const GAP: u32 = 0x4402;
    /// `SAD_VML`: says whether all modules of a list exist, 0, or not, 1.
    pub const VML: u32 = 0x4403;
    /// The longest name of a module in the structures (`FMNAMESZ`).
    pub const NAME_BYTES: usize = 8;

    fn ioctl(cx: &mut Cx<'_>, s: StreamId, ioctl: &Ioctl) {
        let bytes = match ioctl.command {
            Self::SAP | Self::GAP => RULE_BYTES,
            Self::VML => LIST_BYTES,
            _ => return cx.nak(s, ioctl, Errno::EINVAL),
        };
        match ioctl.argument {
            IoctlArgument::Transparent(address) => cx.copyin(s, ioctl, address, bytes, ARGUMENT_READ),
            IoctlArgument::Str => cx.nak(s, ioctl, Errno::EINVAL),
        }
    }

    fn copied(cx: &mut Cx<'_>, s: StreamId, step: &IocData, data: &Chain) {
        if let Err(errno) = step.result {
            return cx.nak(s, &step.ioctl, errno);
        }
        let data = data.to_vec();
        let done = match (step.ioctl.command, step.private) {
            (Self::SAP, ARGUMENT_READ) => set_rule(cx, &data, step.ioctl.credentials).map(|()| Some(0)),
            (Self::GAP, ARGUMENT_READ) => tell_rule(cx, s, &step.ioctl, &data).map(|()| None),
            (Self::VML, ARGUMENT_READ) => ask_names(cx, s, &step.ioctl, &data).map(|()| None),
            (Self::VML, NAMES_READ) => names(&data).map(|names| Some(i32::from(!all_exist(cx, &names)))),
            (Self::GAP, RULE_WRITTEN) => Ok(Some(0)),
            _ => Err(Errno::EINVAL),
        };
        match done {
            Ok(Some(value)) => cx.ack(s, &step.ioctl, value, Chain::new()),
            Ok(None) => {}
            Err(errno) => cx.nak(s, &step.ioctl, errno),
        }
    }
}

impl Rule {
    fn read(bytes: &[u8]) -> Result<Self, Errno> {
        let bytes = bytes.get(..RULE_BYTES).ok_or(Errno::EINVAL)?;
        Ok(Self {
            command: i32::from_ne_bytes(at(bytes, 0)),
            driver: i64::from_ne_bytes(at(bytes, 8)),
            first: i64::from_ne_bytes(at(bytes, 16)),
            last: i64::from_ne_bytes(at(bytes, 24)),
            modules: i64::from(u32::from_ne_bytes(at(bytes, 32))),
            names: bytes[NAMES_AT..NAMES_AT + Autopush::MODULES_MAX * ENTRY_BYTES].to_vec(),
        })
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RULE_BYTES);
        bytes.extend(self.command.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend([self.driver, self.first, self.last].map(i64::to_ne_bytes).concat());
        bytes.extend((self.modules as u32).to_ne_bytes());
        bytes.extend(&self.names);
        bytes.resize(RULE_BYTES, 0);
        bytes
    }

    /// Returns the driver and the first minor device, if there can be such ones.
    fn device(&self, cx: &mut Cx<'_>) -> Result<(String, u32), Errno> {
        let driver = usize::try_from(self.driver).map_err(|_| Errno::EINVAL)?;
        let name = cx.names().driver_name(DriverId(driver)).ok_or(Errno::EINVAL)?.to_owned();
        let first = if self.command == SAP_ALL { 0 } else { self.first };
        Ok((name, u32::try_from(first).map_err(|_| Errno::EINVAL)?))
    }

    fn minors(&self, first: u32) -> Result<Option<(u32, u32)>, Errno> {
        match self.command {
            SAP_ONE => Ok(Some((first, first))),
            SAP_RANGE => match u32::try_from(self.last) {
                Ok(last) if last > first => Ok(Some((first, last))),
                _ => Err(Errno::ERANGE),
            },
            SAP_ALL => Ok(None),
            _ => Err(Errno::EINVAL),
        }
    }
}

fn at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// Reads names, each with a zero behind it.
fn names(bytes: &[u8]) -> Result<Vec<String>, Errno> {
    let entries = bytes.chunks_exact(ENTRY_BYTES);
    let name = |entry: &[u8]| {
        let end = entry.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
        String::from_utf8(entry[..end].to_vec()).map_err(|_| Errno::EINVAL)
    };
    entries.map(name).collect()
}

fn all_exist(cx: &mut Cx<'_>, names: &[String]) -> bool {
    names.iter().all(|name| cx.names().has_module(name))
}

/// Carries out `SAD_SAP`.
fn set_rule(cx: &mut Cx<'_>, bytes: &[u8], credentials: Credentials) -> Result<(), Errno> {
    if credentials.uid != 0 {
        return Err(Errno::EPERM);
    }
    let rule = Rule::read(bytes)?;
    let (driver, first) = rule.device(cx)?;
    if rule.command == SAP_CLEAR {
        return cx.names().clear_autopush(&driver, first);
    }
    let minors = rule.minors(first)?;
    let count = usize::try_from(rule.modules).unwrap_or(usize::MAX);
    if count == 0 || count > Autopush::MODULES_MAX {
        return Err(Errno::EINVAL);
    }
    let names = names(&rule.names[..count * ENTRY_BYTES])?;
    if !all_exist(cx, &names) {
        return Err(Errno::EINVAL);
    }
    let modules = names.into_iter().map(|name| vec![name]).collect();
    cx.names().add_autopush(Autopush { driver, minors, modules })
}

/// Carries out `SAD_GAP`: writes the rule over the structure that was read.
fn tell_rule(cx: &mut Cx<'_>, s: StreamId, ioctl: &Ioctl, bytes: &[u8]) -> Result<(), Errno> {
    let IoctlArgument::Transparent(address) = ioctl.argument else { return Err(Errno::EINVAL) };
    let asked = Rule::read(bytes)?;
    let (driver, minor) = asked.device(cx)?;
    let found = cx.names().autopush_at(&driver, minor).ok_or(Errno::ENODEV)?;
    let (command, first, last) = match found.minors {
        None => (SAP_ALL, 0, 0),
        Some((first, last)) if first == last => (SAP_ONE, first, 0),
        Some((first, last)) => (SAP_RANGE, first, last),
    };
    let mut names = Vec::new();
    for (number, module) in found.modules.iter().enumerate() {
        // A rule of a file may name modules whose names the structure has no room for.
        let name = module.first().filter(|name| name.len() <= Sad::NAME_BYTES).ok_or(Errno::ERANGE)?;
        names.extend(name.bytes());
        names.resize((number + 1) * ENTRY_BYTES, 0);
    }
    names.resize(Autopush::MODULES_MAX * ENTRY_BYTES, 0);
    let rule = Rule {
        command,
        driver: asked.driver,
        first: first.into(),
        last: last.into(),
        modules: found.modules.len() as i64,
        names,
    };
    cx.copyout(s, ioctl, address, rule.write().into(), RULE_WRITTEN);
    Ok(())
}

/// Reads the list of `SAD_VML`, and asks for its names.
fn ask_names(cx: &mut Cx<'_>, s: StreamId, ioctl: &Ioctl, bytes: &[u8]) -> Result<(), Errno> {
    let count = usize::try_from(i32::from_ne_bytes(at(bytes, 0))).unwrap_or(0);
    if count == 0 || count > crate::Executive::MODULES_MAX || bytes.len() < LIST_BYTES {
        return Err(Errno::EINVAL);
    }
    cx.copyin(s, ioctl, u64::from_ne_bytes(at(bytes, 8)), count * ENTRY_BYTES, NAMES_READ);
    Ok(())
}

impl Driver for Sad {
    fn open(&mut self, _cx: &mut Cx<'_>, _s: StreamId, _open: &Open) -> Result<(), Errno> {
        Ok(())
    }

    fn close(&mut self, _cx: &mut Cx<'_>, _s: StreamId) {}

    fn put(&mut self, cx: &mut Cx<'_>, s: StreamId, m: Message) {
        match &m.kind {
            Kind::Flush(_) => cx.flush(s, m),
            Kind::Ioctl(ioctl) => Self::ioctl(cx, s, ioctl),
            Kind::IocData(step) => Self::copied(cx, s, step, &m.data),
            _ => {}
        }
    }
}
