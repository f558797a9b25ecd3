//! Rules and their proofs.

use crate::fault::Fault;
use crate::stage::{Run, Script, run};

/// A rule of the RFC.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Its key word, with `_` for a space.
    pub(crate) keyword: &'static str,
    /// The rule, in short.
    pub(crate) text: &'static str,
    /// Its proof.
    pub(crate) proof: Proof,
}

/// The rules of a file: section by section.
pub(crate) type Table = &'static [(&'static str, &'static [Rule])];

/// Proof of a rule, or the reason why there is none.
#[derive(Debug)]
pub(crate) enum Proof {
    /// The script shows that the rule is kept.
    Shown(Evidence),
    /// The script shows the deviation, which `docs/deviations.md` names.
    Deviates(Evidence, &'static str),
    /// No packet can show it, or it concerns what this implementation does not have.
    NotApplicable(&'static str),
}

/// A script and the faults that it must detect.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) name: &'static str,
    pub(crate) script: Script,
    pub(crate) faults: &'static [Fault],
}

impl Proof {
    /// Returns the script, if there is one.
    pub(crate) fn evidence(&self) -> Option<&Evidence> {
        match self {
            Proof::Shown(evidence) | Proof::Deviates(evidence, _) => Some(evidence),
            Proof::NotApplicable(_) => None,
        }
    }
}

impl Rule {
    /// Runs the script as it is, and then with an endpoint that has the faults that it must detect.
    pub(crate) fn prove(&self) {
        let Some(evidence) = self.proof.evidence() else { return };
        let honest = run(evidence.script, None);
        if std::env::var_os("CONFORMANCE_LADDER").is_some() {
            println!("{} {}\n{}", self.keyword, self.text, honest.ladder());
        }
        if let Some(failure) = &honest.failure {
            panic!("{} {}\n{failure}\n{}", self.keyword, self.text, honest.ladder());
        }
        for &fault in evidence.faults {
            assert!(
                notices(evidence.script, &honest, fault),
                "the script would not notice the fault {fault:?}"
            );
        }
    }
}

/// Returns whether the script fails for some instance of a fault.
fn notices(script: Script, honest: &Run, fault: Fault) -> bool {
    honest.mutations(fault).into_iter().any(|mutation| run(script, Some(mutation)).failure.is_some())
}

/// Maximum number of instances of one fault that a score tries, evenly spread.
const INSTANCES_MAX: usize = 24;

/// The faults that a script detects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Score {
    /// Instances of faults that were tried, and detected.
    pub(crate) tried: usize,
    pub(crate) noticed: usize,
    /// Faults that were possible, and that were detected in some instance.
    pub(crate) faults: usize,
    pub(crate) faults_noticed: usize,
}

/// Plays a script with every fault.
pub(crate) fn score(script: Script) -> Score {
    let honest = run(script, None);
    let mut score = Score::default();
    for &fault in Fault::ALL {
        let mutations = honest.mutations(fault);
        let sample = mutations.iter().step_by(mutations.len().div_ceil(INSTANCES_MAX).max(1));
        let outcomes: Vec<_> =
            sample.map(|&mutation| run(script, Some(mutation)).failure.is_some()).collect();
        score.tried += outcomes.len();
        score.noticed += outcomes.iter().filter(|noticed| **noticed).count();
        score.faults += usize::from(!outcomes.is_empty());
        score.faults_noticed += usize::from(outcomes.contains(&true));
    }
    score
}

/// Writes the table of a file, and a test for each script in it.
///
/// - `shown(script, Fault, ..)`: the script passes, and fails if the endpoint has one of the faults
/// - `shown_by(path::to::script, Fault, ..)`: a script of another rule shows this one, too
/// - `deviates(script, Fault, ..; "what is done instead")`
/// - `not_applicable("why")`
macro_rules! rules {
    ($(in $section:literal { $($keyword:ident $text:literal => $how:ident($($what:tt)*);)* })*) => {
        /// The rules and what shows them.
        pub(crate) const RULES: crate::rules::Table = &[$(($section, &[$(
            crate::rules::Rule {
                keyword: stringify!($keyword),
                text: $text,
                proof: crate::rules::rules!(@proof $how($($what)*)),
            }
        ),*])),*];
        mod rule {
            $($(crate::rules::rules!(@test $section, $text, $how($($what)*));)*)*
        }
    };
    (@evidence $script:path, $($fault:ident),*) => {
        crate::rules::Evidence {
            name: stringify!($script),
            script: $script,
            faults: &[$(crate::fault::Fault::$fault),*],
        }
    };
    (@proof shown($script:ident, $($fault:ident),+)) => {
        crate::rules::Proof::Shown(crate::rules::rules!(@evidence $script, $($fault),+))
    };
    (@proof shown_by($script:path, $($fault:ident),+)) => {
        crate::rules::Proof::Shown(crate::rules::rules!(@evidence $script, $($fault),+))
    };
    (@proof deviates($script:ident, $($fault:ident),+; $instead:literal)) => {
        crate::rules::Proof::Deviates(crate::rules::rules!(@evidence $script, $($fault),+), $instead)
    };
    (@proof deviates_by($script:path, $($fault:ident),+; $instead:literal)) => {
        crate::rules::Proof::Deviates(crate::rules::rules!(@evidence $script, $($fault),+), $instead)
    };
    (@proof not_applicable($why:literal)) => { crate::rules::Proof::NotApplicable($why) };
    (@test $section:literal, $text:literal, shown($script:ident, $($rest:tt)*)) => {
        crate::rules::rules!(@run $section, $text, $script);
    };
    (@test $section:literal, $text:literal, deviates($script:ident, $($rest:tt)*)) => {
        crate::rules::rules!(@run $section, $text, $script);
    };
    (@test $section:literal, $text:literal, $how:ident($($rest:tt)*)) => {};
    (@run $section:literal, $text:literal, $script:ident) => {
        #[test]
        fn $script() {
            let section = super::RULES.iter().find(|(section, _)| *section == $section).expect("its section");
            section.1.iter().find(|rule| rule.text == $text).expect("its rule").prove();
        }
    };
}
pub(crate) use rules;
