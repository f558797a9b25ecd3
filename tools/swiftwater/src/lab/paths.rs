//! The lines that the numbers of paths stand for.

use std::collections::BTreeMap;

/// Returns what the numbers in the column `paths` stand for: one sentence if all cases have the same lines, otherwise one for
/// each case on a line of its own. A row has its case, the numbers of its paths (`2+3`), and their lines, separated by "; ".
pub(super) fn legend<'a>(rows: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> Option<String> {
    let mut cases: Vec<(&str, BTreeMap<&str, &str>)> = Vec::new();
    for (case, used, lines) in rows {
        let place = cases.iter().position(|(other, _)| *other == case).unwrap_or(cases.len());
        if place == cases.len() {
            cases.push((case, BTreeMap::new()));
        }
        cases[place].1.extend(used.split('+').zip(lines.split("; ")));
    }
    let mut all = BTreeMap::new();
    for (number, line) in cases.iter().flat_map(|(_, lines)| lines) {
        if all.insert(*number, *line).is_some_and(|other| other != *line) {
            let sentences = cases.iter().map(|(case, lines)| format!("paths of {case}: {}", named(lines)));
            return Some(sentences.collect::<Vec<_>>().join("\n"));
        }
    }
    (!all.is_empty()).then(|| format!("paths: {}", named(&all)))
}

fn named(lines: &BTreeMap<&str, &str>) -> String {
    lines.iter().map(|(number, line)| format!("{number} is {line}")).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_explained_once_if_it_is_the_same_line_in_all_cases() {
        let rows = [
            ("wired", "1", "10mbit"),
            ("both", "2", "10mbit,down=10s/20s"),
            ("both", "2+3", "10mbit,down=10s/20s; 5mbit"),
        ];
        let expected = "paths: 1 is 10mbit; 2 is 10mbit,down=10s/20s; 3 is 5mbit";
        assert_eq!(legend(rows.into_iter()).as_deref(), Some(expected));
        let rows = [
            ("the first dies", "1+2", "1ms,down=4s/8s; 1ms"),
            ("the second dies", "1+2", "1ms; 1ms,down=4s/8s"),
        ];
        let expected = "paths of the first dies: 1 is 1ms,down=4s/8s; 2 is 1ms\n\
                        paths of the second dies: 1 is 1ms; 2 is 1ms,down=4s/8s";
        assert_eq!(legend(rows.into_iter()).as_deref(), Some(expected));
        assert_eq!(legend(std::iter::empty()), None, "there are no lines");
    }
}
