//! Names of cases in texts.

/// Unit at the end of a case's name.
const BYTES: &str = " bytes";

/// Returns the names of cases; those that differ in the size alone are one.
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
    cases.chunk_by(is_of_a_kind).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_that_differ_in_the_size_alone_are_one() {
        let cases = ["a, 8 bytes", "a, 64 bytes", "b, 8 bytes", "c", "d, 8 bytes, 9 bytes of buffer"];
        let cases = cases.map(str::to_owned);
        let expected = ["a, 8 to 64 bytes (2 sizes)", "b, 8 bytes", "c", "d, 8 bytes, 9 bytes of buffer"];
        assert_eq!(by_size(&cases), expected);
    }
}
