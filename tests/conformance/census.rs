//! The number of sentences with a key word of RFC 2119 in each section of RFC 9260: none may be missing from the tables.

/// Section and number of sentences.
const SENTENCES: &[(&str, usize)] = &[
    ("3", 2),
    ("3.1", 5),
    ("3.2", 4),
    ("3.2.1", 5),
    ("3.2.2", 3),
    ("3.3.1", 13),
    ("3.3.2", 15),
    ("3.3.2.1", 1),
    ("3.3.2.1.2", 2),
    ("3.3.2.1.4", 3),
    ("3.3.2.1.5", 1),
    ("3.3.3", 20),
    ("3.3.3.1", 2),
    ("3.3.3.1.1", 1),
    ("3.3.3.1.2", 1),
    ("3.3.4", 3),
    ("3.3.5", 3),
    ("3.3.6", 2),
    ("3.3.7", 5),
    ("3.3.8", 2),
    ("3.3.9", 1),
    ("3.3.10.3", 1),
    ("3.3.11", 3),
    ("3.3.12", 1),
    ("3.3.13", 2),
    ("4", 12),
    ("5", 1),
    ("5.1", 20),
    ("5.1.1", 4),
    ("5.1.2", 11),
    ("5.1.3", 7),
    ("5.1.4", 3),
    ("5.1.5", 8),
    ("5.1.6", 1),
    ("5.2.1", 12),
    ("5.2.2", 10),
    ("5.2.3", 1),
    ("5.2.4", 11),
    ("5.2.5", 1),
    ("5.2.6", 3),
    ("5.3.1", 3),
    ("5.4", 6),
    ("6", 11),
    ("6.1", 23),
    ("6.2", 32),
    ("6.2.1", 1),
    ("6.3.1", 5),
    ("6.3.3", 2),
    ("6.4", 5),
    ("6.4.1", 2),
    ("6.5", 6),
    ("6.6", 3),
    ("6.7", 7),
    ("6.8", 5),
    ("6.9", 15),
    ("6.10", 8),
    ("7.1", 1),
    ("7.2", 4),
    ("7.2.1", 11),
    ("7.2.2", 4),
    ("7.2.3", 2),
    ("7.2.4", 6),
    ("7.2.5", 1),
    ("7.2.5.1", 1),
    ("7.2.5.2", 1),
    ("7.3", 4),
    ("8.1", 6),
    ("8.2", 4),
    ("8.3", 15),
    ("8.4", 12),
    ("8.5", 3),
    ("8.5.1", 13),
    ("9", 1),
    ("9.1", 7),
    ("9.2", 26),
];

#[test]
fn no_rule_is_left_out() {
    let entries = |section| {
        let rules = crate::SECTIONS.iter().copied().flatten().filter(|(of, _)| *of == section);
        rules.map(|(_, rules)| rules.len()).sum::<usize>()
    };
    let missing: Vec<_> = SENTENCES
        .iter()
        .filter(|(section, sentences)| entries(*section) < *sentences)
        .map(|(section, sentences)| format!("§{section}: {} of {sentences}", entries(*section)))
        .collect();
    assert!(missing.is_empty(), "sections with fewer rules than sentences: {missing:?}");
}
