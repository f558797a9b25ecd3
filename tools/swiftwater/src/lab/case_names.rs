//! Names of cases in texts.

/// Unit at the end of a case's name.
const BYTES: &str = " bytes";
/// Number of names from which on a grid of cases is one.
const GRID_MIN: usize = 12;

/// Returns the names of cases; those that differ in the size alone are one, and so is a large grid of all combinations.
pub(super) fn by_size(cases: &[String]) -> Vec<String> {
    let parts = |case: &String| {
        let (kind, bytes) = case.strip_suffix(BYTES)?.rsplit_once(", ")?;
        Some((kind.to_owned(), bytes.parse::<usize>().ok()?))
    };
    let is_of_a_kind = |one: &String, other: &String| match (parts(one), parts(other)) {
        (Some((one, _)), Some((other, _))) => one == other,
        _ => false,
    };
    let name = |group: &[String]| match (group.first().and_then(parts), group.last().and_then(parts)) {
        (Some((kind, first)), Some((_, last))) if group.len() > 1 => {
            format!("{kind}, {first} to {last}{BYTES} ({} sizes)", group.len())
        }
        _ => group.join("; "),
    };
    let names: Vec<String> = cases.chunk_by(is_of_a_kind).map(name).collect();
    match as_grid(cases).filter(|_| names.len() >= GRID_MIN) {
        Some(grid) => vec![grid],
        None => names,
    }
}

/// Returns one name for cases whose names are all combinations of some parts: `cubic / bbr, 10 ms / 50 ms (4 cases)`.
fn as_grid(cases: &[String]) -> Option<String> {
    let mut columns: Vec<Vec<&str>> = Vec::new();
    for case in cases {
        let parts: Vec<&str> = case.split(", ").collect();
        columns.resize(parts.len().max(columns.len()), Vec::new());
        for (part, column) in parts.into_iter().zip(&mut columns) {
            if !column.contains(&part) {
                column.push(part);
            }
        }
    }
    let combinations = columns.iter().map(Vec::len).product::<usize>();
    let has_all = cases.iter().all(|case| case.split(", ").count() == columns.len());
    let joined = columns.iter().map(|column| column.join(" / ")).collect::<Vec<_>>().join(", ");
    (has_all && combinations == cases.len()).then(|| format!("{joined} ({combinations} cases)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_are_one_name() {
        let cases: Vec<String> = ["cubic", "bbr"]
            .iter()
            .flat_map(|one| {
                ["1 ms", "2 ms"].map(|two| ["a", "b", "c"].map(|three| format!("{one}, {two}, {three}")))
            })
            .flatten()
            .collect();
        assert_eq!(by_size(&cases), ["cubic / bbr, 1 ms / 2 ms, a / b / c (12 cases)"]);
        assert_eq!(by_size(&cases[..11]), cases[..11], "one is missing");
        assert_eq!(by_size(&[&cases[..11], &["d".to_owned()]].concat()).len(), 12, "no grid");
    }

    #[test]
    fn cases_that_differ_in_the_size_alone_are_one() {
        let cases = ["a, 8 bytes", "a, 64 bytes", "b, 8 bytes", "c", "d, 8 bytes, 9 bytes of buffer"];
        let cases = cases.map(str::to_owned);
        let expected = ["a, 8 to 64 bytes (2 sizes)", "b, 8 bytes", "c", "d, 8 bytes, 9 bytes of buffer"];
        assert_eq!(by_size(&cases), expected);
    }
}
