//! Drivers and modules by name, and the modules that an open pushes.

use crate::Executive;
use crate::error::{OpenError, PushError};
use crate::identifiers::{DriverId, StreamId};
use crate::message::Credentials;
use crate::module::Module;
use crate::names::{Autopush, ModuleFactory};

impl Executive {
    /// Returns the driver with this name.
    pub fn driver_named(&self, name: &str) -> Option<DriverId> {
        self.streams.names.driver_named(name)
    }

    /// Returns the name of a driver.
    pub fn driver_name(&self, driver: DriverId) -> Option<&str> {
        self.streams.names.driver_name(driver)
    }

    /// Opens a stream to a device by the name of its driver, as [`Executive::open_minor`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::open_minor`].
    pub fn open_named(
        &mut self,
        name: &str,
        minor: Option<u32>,
        credentials: Credentials,
    ) -> Result<StreamId, OpenError> {
        let driver = self.driver_named(name).ok_or(OpenError::NoDriver)?;
        self.open_minor(driver, minor, credentials)
    }

    /// Adds a type of module under a name, and replaces an earlier one of this name.
    pub fn add_module(&mut self, name: impl Into<String>, factory: ModuleFactory) {
        self.streams.names.add_module(name.into(), factory);
    }

    /// Returns the names of the modules that can be pushed by name, sorted.
    pub fn module_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.streams.names.module_names().collect();
        names.sort_unstable();
        names
    }

    /// Pushes a module by its name (`I_PUSH`).
    ///
    /// # Errors
    ///
    /// The errors of [`Executive::push`]; no module has the name, or the module rejects its arguments.
    pub fn push_named(&mut self, s: StreamId, name: &str, arguments: &[String]) -> Result<(), PushError> {
        let module = self.make_module(name, arguments)?;
        self.push(s, module)
    }

    /// Makes a module by name, to push it or to check its arguments.
    ///
    /// # Errors
    ///
    /// No module has the name, or the module rejects its arguments.
    pub fn make_module(&self, name: &str, arguments: &[String]) -> Result<Box<dyn Module>, PushError> {
        let factory = self.streams.names.module_factory(name).ok_or(PushError::NoModule)?;
        factory(arguments).map_err(PushError::Argument)
    }

    /// Replaces the rules of autopush. Open devices keep their modules.
    pub fn set_autopush(&mut self, rules: Vec<Autopush>) {
        self.streams.names.set_autopush(rules);
    }

    /// Returns the modules that opening this minor device pushes (`SAD_GAP`).
    pub fn autopush_of(&self, driver: DriverId, minor: u32) -> Option<&Autopush> {
        let name = self.driver_name(driver)?;
        self.streams.names.autopush_at(name, minor)
    }

    pub(super) fn autopush(&mut self, s: StreamId, driver: DriverId, minor: u32) -> Result<(), PushError> {
        let Some(rule) = self.autopush_of(driver, minor) else { return Ok(()) };
        for module in rule.modules.clone() {
            let Some((name, arguments)) = module.split_first() else { continue };
            self.push_named(s, name, arguments)?;
        }
        Ok(())
    }
}
