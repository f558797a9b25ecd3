//! Rules that push modules on the streams of certain programs, ports and users, from a file of the administrator.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use swiftwater::streams::{Autopush, AutopushError, PushError};
use swiftwater::tokio::Stack;

use crate::users::tap_files::TapFiles;

/// Rules of autopush: the modules that are pushed on the stream of a new association.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRules(Vec<Rule>);

/// The rules of a daemon, and the files of the taps that they push.
pub(crate) struct Autopusher {
    rules: StreamRules,
    tap_files: Arc<TapFiles>,
}

impl Autopusher {
    pub(super) fn new(rules: StreamRules, tap_files: &Arc<TapFiles>) -> Rc<Autopusher> {
        Rc::new(Autopusher { rules, tap_files: Arc::clone(tap_files) })
    }

    pub(crate) fn rules(&self) -> &StreamRules {
        &self.rules
    }

    pub(crate) fn tap_files(&self) -> &TapFiles {
        &self.tap_files
    }
}

/// One rule. It applies to associations that satisfy all its conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    /// The line number in the file.
    line: usize,
    /// The name of the process that opened the socket or the listener.
    program: Option<String>,
    /// The user of that process.
    user: Option<u32>,
    /// The SCTP port at either end.
    port: Option<u16>,
    /// The modules with their arguments; the first is next above the driver.
    modules: Vec<Vec<String>>,
}

impl StreamRules {
    /// Parses a file of rules. A line has at least one condition, `program=NAME`, `user=UID` or `port=NUMBER`, followed
    /// by modules: `NAME` or `NAME(ARGUMENT,ARGUMENT)`, the first next above the driver. The first line that fits an
    /// association applies. `#` begins a comment.
    ///
    /// # Errors
    ///
    /// The number of the first invalid line, and the reason.
    pub fn parse(text: &str) -> Result<StreamRules, AutopushError> {
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let rules = lines.filter_map(|(number, line)| {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let rule = (!words.is_empty()).then(|| Rule::parse(number, &words))?;
            Some(rule.map_err(|what| AutopushError { line: number, what }))
        });
        Ok(StreamRules(rules.collect::<Result<_, _>>()?))
    }

    /// Checks that the stack has the modules, and that they accept their arguments; only a rule pushes `tap` by name. The daemon
    /// does so when it begins to run.
    ///
    /// # Errors
    ///
    /// The number of the first invalid line, and the reason.
    pub fn check(&self, stack: &Stack) -> Result<(), AutopushError> {
        for rule in &self.0 {
            for module in &rule.modules {
                let wrong = |error: PushError| {
                    let reason = match error {
                        PushError::NoModule => no_module(stack),
                        error => error.to_string(),
                    };
                    AutopushError { line: rule.line, what: format!("{}: {reason}", module.join(" ")) }
                };
                let Some((name, arguments)) = module.split_first() else { continue };
                match name.as_str() {
                    TAP => {
                        let folder = tap_folder(arguments).and_then(|folder| {
                            if folder.is_dir() { Ok(()) } else { Err(not_a_folder(folder)) }
                        });
                        folder.map_err(PushError::Argument).map_err(wrong)?;
                    }
                    _ => drop(stack.make_module(name, arguments).map_err(wrong)?),
                }
            }
        }
        Ok(())
    }

    /// Returns whether there is no rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a rule names a program.
    pub(crate) fn name_programs(&self) -> bool {
        self.0.iter().any(|rule| rule.program.is_some())
    }

    /// Returns the modules for an association. A process chooses its name `program` itself (`prctl(2)`), so such a rule is a
    /// convenience and no protection.
    pub(crate) fn modules(&self, user: u32, ports: (u16, u16), program: Option<&str>) -> &[Vec<String>] {
        let fits = |rule: &&Rule| {
            rule.user.is_none_or(|wanted| wanted == user)
                && rule.port.is_none_or(|port| port == ports.0 || port == ports.1)
                && (rule.program.is_none() || rule.program.as_deref() == program)
        };
        self.0.iter().find(fits).map_or(&[], |rule| &rule.modules)
    }
}

/// Says that the stack has no such module, and which it has.
pub(crate) fn no_module(stack: &Stack) -> String {
    format!("no module has this name; there are {}", stack.module_names().join(", "))
}

/// The name of the module that writes a file for each association to the folder that its rule names.
pub(crate) const TAP: &str = "tap";

/// Returns the folder of a tap. Does not look whether it is there.
///
/// # Errors
///
/// The arguments are not an absolute path.
pub(crate) fn tap_folder(arguments: &[String]) -> Result<&Path, String> {
    let folder = match arguments {
        [argument] => argument.strip_prefix("directory=").map(Path::new),
        _ => None,
    };
    match folder {
        Some(folder) if folder.is_absolute() => Ok(folder),
        Some(folder) => Err(not_a_folder(folder)),
        None => Err("say directory=/PATH, where a file for each association is written".into()),
    }
}

fn not_a_folder(folder: &Path) -> String {
    format!("{} is no folder, or not an absolute path", folder.display())
}

impl Rule {
    fn parse(line: usize, words: &[&str]) -> Result<Rule, String> {
        let mut rule = Rule { line, ..Rule::default() };
        let conditions = words.iter().take_while(|word| is_condition(word)).count();
        for word in &words[..conditions] {
            let number = |_| format!("{word} has an invalid number");
            match word.split_once('=') {
                Some(("program", name)) => rule.program = Some(name.to_owned()),
                Some(("user", user)) => rule.user = Some(user.parse().map_err(number)?),
                Some(("port", port)) => rule.port = Some(port.parse().map_err(number)?),
                _ => return Err(format!("{word} is not one of program=, user=, port=")),
            }
        }
        let modules = &words[conditions..];
        if conditions == 0 || modules.is_empty() || modules.len() > Autopush::MODULES_MAX {
            return Err(format!(
                "a rule has at least one of program=, user=, port=, and then 1 to {} modules",
                Autopush::MODULES_MAX
            ));
        }
        rule.modules = modules.iter().map(|word| Autopush::parse_module(word)).collect::<Result<_, _>>()?;
        Ok(rule)
    }
}

/// Returns whether a word is a condition; the arguments of a module are in parentheses.
fn is_condition(word: &str) -> bool {
    word.split('(').next().is_some_and(|begin| begin.contains('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rules = StreamRules::parse(
            "# a comment\n\
             program=iperf3 user=7 limit(bits=10M,per-stream=yes) counter\n\
             port=5060 filter(drop=0.01) # and another\n\
             user=7 nullmod\n",
        )
        .expect("three rules");
        let names = |user, ports, program: &str| {
            let modules = rules.modules(user, ports, Some(program));
            modules.iter().map(|module| module.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(names(7, (1, 2), "iperf3"), ["limit bits=10M per-stream=yes", "counter"]);
        assert_eq!(names(8, (5060, 2), "iperf3"), ["filter drop=0.01"]);
        assert_eq!(names(8, (1, 5060), "sipp"), ["filter drop=0.01"]);
        assert_eq!(names(7, (1, 2), "sipp"), ["nullmod"]);
        assert!(names(8, (1, 2), "sipp").is_empty());
    }

    #[test]
    fn a_tap_has_a_folder() {
        let folder = |argument: &str| tap_folder(&[argument.to_owned()]).map(Path::to_owned);
        let here = std::env::temp_dir();
        assert_eq!(folder(&format!("directory={}", here.display())), Ok(here));
        for wrong in ["directory=tmp", "directory=", "/tmp"] {
            assert!(folder(wrong).is_err(), "{wrong}");
        }
        assert!(tap_folder(&[]).is_err());
    }

    #[test]
    fn a_rule_that_is_wrong_is_named() {
        for (text, line) in [
            ("\nlimit(bits=1M)", 2),
            ("port=5060", 1),
            ("port=x nullmod", 1),
            ("uid=7 nullmod", 1),
            ("port=1 limit(bits=1M", 1),
        ] {
            let error = StreamRules::parse(text).expect_err(text);
            assert_eq!(error.line, line, "{error}");
        }
    }
}
