//! A label selector in kubectl's notation: `team=shop,tier notin (db,cache),!legacy`.

use serde::Serialize;

use super::value::is_dns_name;
use crate::model::Selector;
use crate::model::selector::SelectorWire;

/// The largest selector that is read, in bytes.
const LONGEST: usize = 4096;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Requirements<'a> {
    match_expressions: Vec<Requirement<'a>>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Requirement<'a> {
    key: &'a str,
    operator: &'static str,
    values: Vec<&'a str>,
}

/// Reads a selector in kubectl's notation: `key`, `!key`, `key=value`, `key==value`, `key!=value`,
/// `key in (a,b)`, `key notin (a,b)`, with commas between them. All must hold; as the API has it, an
/// object without the key satisfies `!=` and `notin`.
///
/// # Errors
/// The error says what could not be parsed, as text for a user.
pub fn parse_selector(text: &str) -> Result<Selector, String> {
    if text.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    let match_expressions = split(text)?.into_iter().map(requirement).collect::<Result<Vec<_>, String>>()?;
    // Through the form of the API, so that there is one compiler of selectors.
    let json =
        serde_json::to_string(&Requirements { match_expressions }).map_err(|error| error.to_string())?;
    let wire: SelectorWire<'_> = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    let selector = Selector::compile(Some(wire));
    match selector.defect() {
        Some(defect) => Err(defect.to_owned()),
        None => Ok(selector),
    }
}

/// At the commas that stand outside of parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' if inside => return Err("a ( stands inside of another".into()),
            '(' => inside = true,
            ')' if !inside => return Err("a ) has no (".into()),
            ')' => inside = false,
            ',' if !inside => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("a ( has no )".into());
    }
    parts.push(&text[begin..]);
    Ok(parts)
}

fn requirement(text: &str) -> Result<Requirement<'_>, String> {
    let text = text.trim();
    let made = |key: &'static str, operator| (key, operator);
    let (key, operator, values) = if let Some((head, list)) = text.split_once('(') {
        let list = list.strip_suffix(')').ok_or_else(|| format!("{text:?} has text after its )"))?;
        let (key, word) = head
            .trim()
            .rsplit_once(char::is_whitespace)
            .ok_or_else(|| format!("{text:?} lacks in or notin"))?;
        let operator = match word {
            "in" => "In",
            "notin" => "NotIn",
            _ => return Err(format!("{word:?} is neither in nor notin")),
        };
        (key, operator, list.split(',').map(str::trim).collect())
    } else if let Some(key) = text.strip_prefix('!') {
        (key, "DoesNotExist", Vec::new())
    } else {
        let forms = [made("!=", "NotIn"), made("==", "In"), made("=", "In")];
        match forms.iter().find_map(|(sign, operator)| Some((text.split_once(sign)?, *operator))) {
            Some(((key, value), operator)) => (key, operator, vec![value.trim()]),
            None => (text, "Exists", Vec::new()),
        }
    };
    let key = key.trim();
    if !is_key(key) {
        return Err(format!("{key:?} is not the key of a label"));
    }
    if let Some(value) = values.iter().find(|value| !value.is_empty() && !is_name(value)) {
        return Err(format!("{value:?} is not the value of a label"));
    }
    Ok(Requirement { key, operator, values })
}

/// `name`, or `prefix/name` where the prefix is a DNS name.
fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_name(prefix, 253, true) && is_name(name),
        None => is_name(key),
    }
}

fn is_name(name: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.len() <= 63 && name.chars().all(inner) && ends(name.chars().next()) && ends(name.chars().last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::StringMap;

    #[track_caller]
    fn check(selector: &str, labels: &[(&str, &str)], matches: bool) {
        let labels: StringMap = labels.iter().copied().collect();
        assert_eq!(parse_selector(selector).unwrap().matches(&labels), matches, "{selector} on {labels:?}");
    }

    #[test]
    fn a_selector_means_what_it_means_to_kubectl() {
        let labels = [("app.kubernetes.io/team", "shop"), ("tier", "web"), ("empty", "")];
        for (selector, matches) in [
            ("tier", true),
            ("!tier", false),
            ("!other", true),
            ("tier=web", true),
            ("tier == web", true),
            ("tier!=web", false),
            ("other!=web", true),
            ("empty=", true),
            ("tier in (db, web)", true),
            ("tier notin (db,web)", false),
            ("other notin (db)", true),
            ("app.kubernetes.io/team=shop, tier in (web),!other", true),
            ("app.kubernetes.io/team=shop,tier=db", false),
        ] {
            check(selector, &labels, matches);
        }
    }

    #[test]
    fn an_invalid_selector_is_reported() {
        for wrong in [
            "a,",
            ",",
            "a in",
            "a in b",
            "a within (b)",
            "in (b)",
            "a in (b",
            "a in (b))",
            "a in ((b))",
            "a in (b) c",
            "a=b=c",
            "a>1",
            "!",
            "=b",
            "-a",
            "a/b/c",
            "/a",
            "ä=b",
            "a=b c",
            "a in ()x",
        ] {
            assert!(parse_selector(wrong).is_err(), "{wrong}");
        }
        assert!(parse_selector(&"a,".repeat(4096)).is_err());
    }
}
