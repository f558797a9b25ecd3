//! Names of drivers, modules and minor devices, and the modules that an open pushes.

use std::collections::HashMap;
use std::fmt;

use crate::Errno;
use crate::error::AutopushError;
use crate::identifiers::{DriverId, StreamId};
use crate::module::Module;

/// Makes a module from its arguments; the error names the wrong argument.
pub type ModuleFactory = Box<dyn Fn(&[String]) -> Result<Box<dyn Module>, String> + Send>;

/// Drivers and modules by name (`cdevsw` and `fmodsw`), and the open minor devices.
#[derive(Default)]
pub(crate) struct Names {
    /// Names by driver number.
    drivers: Vec<String>,
    modules: HashMap<String, ModuleFactory>,
    minors: HashMap<(DriverId, u32), StreamId>,
    next_clone: u32,
    autopush: Vec<Autopush>,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modules: Vec<&String> = self.modules.keys().collect();
        f.debug_struct("Names").field("drivers", &self.drivers).field("modules", &modules).finish()
    }
}

/// Modules that opening a device pushes (`autopush`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Autopush {
    /// The device.
    pub driver: String,
    /// The minor devices, first and last; `None` is all of them.
    pub minors: Option<(u32, u32)>,
    /// The modules with their arguments; the first is next to the driver.
    pub modules: Vec<Vec<String>>,
}

impl Autopush {
    /// Largest number of modules in a rule (`MAXAPUSH`).
    pub const MODULES_MAX: usize = 8;

    /// Parses a file of `autopush -f`: a line names a device, a first and a last minor device, and modules. A first minor device
    /// of -1 stands for all, a last one of 0 for only the first. `#` begins a comment. A module with arguments is written
    /// `name(argument,argument)`.
    ///
    /// # Errors
    ///
    /// The first wrong line, with a description of the error.
    pub fn parse(text: &str) -> Result<Vec<Self>, AutopushError> {
        let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
        let rules = lines.filter_map(|(number, line)| {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let rule = (!words.is_empty()).then(|| Self::parse_line(&words))?;
            Some(rule.map_err(|what| AutopushError { line: number, what }))
        });
        rules.collect()
    }

    fn parse_line(words: &[&str]) -> Result<Self, String> {
        let [driver, first, last, modules @ ..] = words else {
            return Err("a rule is a device, a first and a last minor device, and modules".into());
        };
        let number = |word: &str| {
            word.parse::<i64>().ok().filter(|n| (-1..=i64::from(u32::MAX)).contains(n)).ok_or_else(|| {
                format!("{word} is not the number of a minor device; -1 stands for all of them")
            })
        };
        let minors = match (number(first)?, number(last)?) {
            (-1, _) => None,
            (first, last) if last <= 0 || last == first => Some((first as u32, first as u32)),
            (first, last) if first < last => Some((first as u32, last as u32)),
            (first, last) => return Err(format!("minor devices {first} to {last} are none")),
        };
        if modules.is_empty() || modules.len() > Self::MODULES_MAX {
            return Err(format!("a rule names 1 to {} modules", Self::MODULES_MAX));
        }
        let modules = modules.iter().map(|word| Self::parse_module(word)).collect::<Result<_, _>>()?;
        Ok(Self { driver: (*driver).to_owned(), minors, modules })
    }

    /// Parses a module with its arguments: `name` or `name(argument,argument)`.
    ///
    /// # Errors
    ///
    /// A description of the error.
    pub fn parse_module(word: &str) -> Result<Vec<String>, String> {
        let Some((name, rest)) = word.split_once('(') else { return Ok(vec![word.to_owned()]) };
        let arguments =
            rest.strip_suffix(')').ok_or_else(|| format!("{word} lacks its closing parenthesis"))?;
        let arguments = arguments.split(',').filter(|argument| !argument.is_empty());
        Ok(std::iter::once(name).chain(arguments).map(str::to_owned).collect())
    }

    fn overlaps(&self, other: &Self) -> bool {
        let is_apart = |(first, last): (u32, u32), (from, to): (u32, u32)| last < from || to < first;
        self.driver == other.driver
            && !self.minors.zip(other.minors).is_some_and(|(these, those)| is_apart(these, those))
    }

    fn applies(&self, driver: &str, minor: u32) -> bool {
        self.driver == driver && self.minors.is_none_or(|(first, last)| (first..=last).contains(&minor))
    }
}

impl Names {
    pub(crate) fn add_driver(&mut self, name: String) {
        self.drivers.push(name);
    }

    /// Returns the driver with this name.
    pub(crate) fn driver_named(&self, name: &str) -> Option<DriverId> {
        self.drivers.iter().position(|driver| driver == name).map(DriverId)
    }

    /// Returns the name of a driver.
    pub(crate) fn driver_name(&self, driver: DriverId) -> Option<&str> {
        self.drivers.get(driver.0).map(String::as_str)
    }

    /// Adds a type of module under a name, and replaces an earlier one of this name.
    pub(crate) fn add_module(&mut self, name: String, factory: ModuleFactory) {
        self.modules.insert(name, factory);
    }

    /// Returns the names of the modules, in any order.
    pub(crate) fn module_names(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().map(String::as_str)
    }

    /// Returns the factory of the module with this name.
    pub(crate) fn module_factory(&self, name: &str) -> Option<&ModuleFactory> {
        self.modules.get(name)
    }

    /// Returns whether a module has this name.
    pub(crate) fn has_module(&self, name: &str) -> bool {
        self.modules.contains_key(name)
    }

    /// Returns the rule for a minor device.
    pub(crate) fn autopush_at(&self, driver: &str, minor: u32) -> Option<&Autopush> {
        self.autopush.iter().find(|rule| rule.applies(driver, minor))
    }

    /// Replaces all rules.
    pub(crate) fn set_autopush(&mut self, rules: Vec<Autopush>) {
        self.autopush = rules;
    }

    /// Adds a rule, unless another one is for some of its minor devices.
    pub(crate) fn add_autopush(&mut self, rule: Autopush) -> Result<(), Errno> {
        if self.autopush.iter().any(|other| other.overlaps(&rule)) {
            return Err(Errno::EEXIST);
        }
        self.autopush.push(rule);
        Ok(())
    }

    /// Removes the rule whose first minor device this is; 0 for one of all minor devices.
    pub(crate) fn clear_autopush(&mut self, driver: &str, minor: u32) -> Result<(), Errno> {
        let at = self.autopush.iter().position(|rule| rule.applies(driver, minor)).ok_or(Errno::ENODEV)?;
        match self.autopush[at].minors {
            Some((first, _)) if first != minor => Err(Errno::ERANGE),
            None if minor != 0 => Err(Errno::EINVAL),
            _ => {
                self.autopush.remove(at);
                Ok(())
            }
        }
    }

    pub(crate) fn stream_of(&self, driver: DriverId, minor: u32) -> Option<StreamId> {
        self.minors.get(&(driver, minor)).copied()
    }

    /// Chooses a minor device that is not open.
    pub(crate) fn clone_minor(&mut self, driver: DriverId) -> u32 {
        loop {
            let minor = self.next_clone;
            self.next_clone = minor.wrapping_add(1);
            if !self.minors.contains_key(&(driver, minor)) {
                return minor;
            }
        }
    }

    pub(crate) fn opened(&mut self, driver: DriverId, minor: u32, s: StreamId) {
        self.minors.insert((driver, minor), s);
    }

    pub(crate) fn closed(&mut self, driver: DriverId, minor: u32) {
        self.minors.remove(&(driver, minor));
    }
}
