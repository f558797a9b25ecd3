//! Pages from templates, which have a mark `{{name}}` for each part.

/// Returns a template with the text of each part in place of its marks. A mark in a text is text.
///
/// # Panics
/// If the template has a mark without a part.
pub(crate) fn fill(template: &str, parts: &[(&str, String)]) -> String {
    let mut pieces = template.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").expect("a mark has an end");
        let part = parts.iter().find(|(other, _)| *other == name);
        let (_, text) = part.unwrap_or_else(|| panic!("the mark {name} has no part"));
        page.push_str(text);
        page.push_str(rest);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_within_a_text_remains_as_it_is() {
        let parts = [("title", "{{script}} {{}}".to_owned()), ("script", "run()".to_owned())];
        let page = fill("<h1>{{title}}</h1>{{script}}<!-- {{title}} -->", &parts);
        assert_eq!(page, "<h1>{{script}} {{}}</h1>run()<!-- {{script}} {{}} -->");
    }
}
