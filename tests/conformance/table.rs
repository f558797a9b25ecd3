//! The table in `docs/conformance.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::etsi::PURPOSES;
use crate::fault::Fault;
use crate::rules::{Proof, Rule, Score, score};
use crate::stage::run;

/// Totals of the rules of a section.
#[derive(Debug, Default)]
struct Counts {
    rules: usize,
    shown: usize,
    deviating: usize,
    not_applicable: usize,
}

impl Counts {
    fn add(&mut self, proof: &Proof) {
        self.rules += 1;
        *match proof {
            Proof::Shown(_) => &mut self.shown,
            Proof::Deviates(..) => &mut self.deviating,
            Proof::NotApplicable(_) => &mut self.not_applicable,
        } += 1;
    }
}

fn sections() -> impl Iterator<Item = &'static (&'static str, &'static [Rule])> {
    crate::SECTIONS.iter().copied().flatten()
}

fn chapter(section: &str) -> &str {
    section.split('.').next().unwrap_or(section)
}

fn document() -> String {
    let mut out = String::from(
        "# Conformance to RFC 9260\n\n\
         The test `conformance` generates this page: `UPDATE_SNAPSHOTS=1 cargo test -p swiftwater-tests --test\n\
         conformance`. It lists each rule of sections 3 to 9 with a MUST or a SHOULD, and the packet script in\n\
         `tests/conformance/` that proves it. The last column lists faults that the script detects: the test runs the\n\
         script again with an endpoint that has the fault, and the script must fail. RULE marks a statement without a key\n\
         word.\n\n\
         | section | rules | proved | deviating | not applicable |\n|---|---|---|---|---|\n",
    );
    let mut totals: BTreeMap<&str, Counts> = BTreeMap::new();
    for (section, rules) in sections() {
        for rule in *rules {
            totals.entry(chapter(section)).or_default().add(&rule.proof);
            totals.entry("all").or_default().add(&rule.proof);
        }
    }
    for (section, c) in &totals {
        let Counts { rules, shown, deviating, not_applicable } = c;
        let _ = writeln!(out, "| {section} | {rules} | {shown} | {deviating} | {not_applicable} |");
    }
    out.push_str("\nAn endpoint with a fault:\n\n");
    for fault in Fault::ALL {
        let _ = writeln!(out, "- {}: {}", name_of(*fault), fault.meaning());
    }
    out.push_str("\n| section | keyword | rule | script | result | detects |\n|---|---|---|---|---|---|\n");
    for (section, rules) in sections() {
        rules.iter().for_each(|rule| row(&mut out, section, rule));
    }
    out.push_str(
        "\n## The test purposes of ETSI TS 102 369\n\n\
         The 121 purposes were written for RFC 2960. This checklist has them in our words, with the scripts that cover them.\n\n\
         | group | purposes | subject | scripts |\n|---|---|---|---|\n",
    );
    for (group, purposes, subject, scripts) in PURPOSES {
        let scripts: Vec<_> = scripts.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(out, "| {group} | {purposes} | {subject} | {} |", scripts.join(", "));
    }
    out
}

fn name_of(fault: Fault) -> String {
    format!("{fault:?}").to_lowercase()
}

fn row(out: &mut String, section: &str, rule: &Rule) {
    let keyword = rule.keyword.replace('_', " ");
    let evidence = rule.proof.evidence();
    let name =
        evidence.map_or(String::new(), |e| format!("`{}`", e.name.replace("crate::", "").replace(' ', "")));
    let kept = evidence.is_some_and(|e| run(e.script, None).failure.is_none());
    let result = match &rule.proof {
        Proof::Shown(_) if kept => "holds".to_string(),
        Proof::Deviates(_, instead) if kept => format!("deviates: {instead}"),
        Proof::Shown(_) | Proof::Deviates(..) => "FAILS".to_string(),
        Proof::NotApplicable(why) => format!("not applicable: {why}"),
    };
    let faults = evidence.map_or(&[][..], |e| e.faults);
    let faults: Vec<_> = faults.iter().copied().map(name_of).collect();
    let _ = writeln!(
        out,
        "| {section} | {keyword} | {} | {name} | {result} | {} |",
        rule.text,
        faults.join(", ")
    );
}

#[test]
fn the_table_is_up_to_date() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance.md");
    let now = document();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&file, now).expect("docs/ can be written");
        return;
    }
    let then = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(then == now, "docs/conformance.md is not what the scripts say; run this with UPDATE_SNAPSHOTS=1");
}

#[test]
fn every_deviation_is_listed() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/deviations.md");
    let listed = std::fs::read_to_string(file).expect("docs/deviations.md");
    let cited: Vec<_> = listed.split('§').skip(1).map(section_at_start).collect();
    let deviates = |rule: &&Rule| matches!(rule.proof, Proof::Deviates(..));
    let unlisted: Vec<_> = sections()
        .filter(|(section, _)| !cited.contains(section))
        .flat_map(|(section, rules)| rules.iter().filter(deviates).map(move |rule| (section, rule.text)))
        .collect();
    assert!(unlisted.is_empty(), "docs/deviations.md does not name the section of these: {unlisted:?}");
}

/// Returns the section number that a text begins with.
fn section_at_start(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

#[test]
#[ignore = "plays every script with every fault, which takes a minute; prints how many were noticed"]
fn scores() {
    let mut played = BTreeSet::new();
    let mut totals: BTreeMap<&str, (usize, Score)> = BTreeMap::new();
    for (section, rules) in sections() {
        for evidence in rules.iter().filter_map(|rule| rule.proof.evidence()) {
            // A script that shows several rules counts once.
            if !played.insert(evidence.script as usize) {
                continue;
            }
            let score = score(evidence.script);
            println!("{section:8} {}: {}", evidence.name, describe(&score));
            assert!(score.noticed > 0, "nothing makes {} fail", evidence.name);
            for of in [chapter(section), "all"] {
                let (scripts, total) = totals.entry(of).or_default();
                *scripts += 1;
                total.tried += score.tried;
                total.noticed += score.noticed;
                total.faults += score.faults;
                total.faults_noticed += score.faults_noticed;
            }
        }
    }
    for (of, (scripts, total)) in totals {
        println!("section {of}, {scripts} scripts: {}", describe(&total));
    }
}

fn describe(score: &Score) -> String {
    let Score { tried, noticed, faults, faults_noticed } = score;
    format!("{faults_noticed} of {faults} faults noticed, in {noticed} of {tried} instances")
}
