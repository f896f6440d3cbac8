//! The syntax of names, label keys and values, ports and the like, with upstream's explanations
//! (apimachinery `api/validate/content` and `util/validation`).
//!
//! Every function returns what is wrong; an empty list means the text is fine.

/// Lower-case letters, digits, `-` and `.`, at most 253 bytes: the name of most objects.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    subdomain(text, "characters")
}

pub(crate) fn subdomain(text: &str, unit: &str) -> Vec<String> {
    let mut errors = too_long(text, 253, unit);
    if !text.split('.').all(is_label) {
        errors.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
             validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    errors
}

/// Lower-case letters, digits and `-`, at most 63 bytes: namespaces, containers, volumes.
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 63, "characters");
    if !is_label(text) {
        if text.contains('.') && text.split('.').all(is_label) {
            errors.push("must not contain dots".to_owned());
        } else {
            errors.push(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                 must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used \
                 for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                    .to_owned(),
            );
        }
    }
    errors
}

/// As a DNS-1123 label, but starting with a letter: Services.
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 63, "characters");
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
             alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
             regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    errors
}

/// Anything that can stand between two slashes of a URL: roles and their bindings.
pub fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let contained = ["/", "%"].into_iter().filter(|part| text.contains(part));
    contained.map(|part| format!("may not contain '{part}'")).collect()
}

/// The part behind the host in a name such as `acme.io/foo`.
pub fn http_path(text: &str) -> Vec<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    if !text.is_empty() && text.chars().all(allowed) {
        return Vec::new();
    }
    vec!["Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')".to_owned()]
}

/// A label key: an optional DNS subdomain and a slash, then at most 63 letters, digits, `-`, `_`, `.`.
pub fn label_key(text: &str) -> Vec<String> {
    const SYNTAX: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                          with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
                          used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let mut errors = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            errors.push(format!(
                "a valid label key {SYNTAX} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            ));
            return errors;
        }
        Some(("", name)) => {
            errors.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            errors.extend(subdomain(prefix, "bytes").into_iter().map(|error| format!("prefix part {error}")));
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_label_name(name) {
        errors.push(format!("name part {SYNTAX}"));
    }
    errors
}

/// A label value: empty, or at most 63 letters, digits, `-`, `_`, `.`.
pub fn label_value(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 63, "bytes");
    if !text.is_empty() && !is_label_name(text) {
        errors.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
             '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub fn config_key(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 253, "characters");
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if text.is_empty() || !text.bytes().all(allowed) {
        errors.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
             or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match text {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// The name of an environment variable, in the relaxed form of Kubernetes 1.32 and later.
pub fn env_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .to_owned(),
    ]
}

/// The name of a header of HTTP.
pub fn http_header(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
         validation is '[-A-Za-z0-9]+')"
            .to_owned(),
    ]
}

/// A domain in which a resolver searches: as a subdomain, but each label may begin with `_` and contain it.
pub fn search_domain(text: &str) -> Vec<String> {
    let mut errors = too_long(text, 253, "characters");
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        bounded(label, alphanumeric, |b| alphanumeric(b) || matches!(b, b'-' | b'_'))
    };
    if !text.split('.').all(is_label) {
        errors.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
             and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
             is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    errors
}

/// The name of a port: at most 15 bytes, with a letter in it.
pub fn port_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 15 {
        errors.push("must be no more than 15 characters".to_owned());
    }
    if !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// The number of a port.
pub fn port_number(number: i64) -> Vec<String> {
    if (1..=65535).contains(&number) {
        Vec::new()
    } else {
        vec!["must be between 1 and 65535, inclusive".to_owned()]
    }
}

/// A percentage such as `25%`.
pub fn percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    vec![
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
         regex used for validation is '[0-9]+%')"
            .to_owned(),
    ]
}

/// Upstream has two such messages: that of labels counts in bytes, all others in characters.
fn too_long(text: &str, limit: usize, unit: &str) -> Vec<String> {
    if text.len() > limit { vec![format!("must be no more than {limit} {unit}")] } else { Vec::new() }
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bounded(text, alphanumeric, |b| alphanumeric(b) || b == b'-')
}

fn is_label_name(text: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_alphanumeric();
    bounded(text, alphanumeric, |b| alphanumeric(b) || matches!(b, b'-' | b'_' | b'.'))
}

/// Whether the first and last byte satisfy `end` and all of them `inner`.
fn bounded(text: &str, end: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let (first, last) = (text.bytes().next(), text.bytes().next_back());
    first.is_some_and(&end) && last.is_some_and(&end) && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: fn(&str) -> Vec<String>, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(rule(text), Vec::<String>::new(), "{text:?}");
        }
        for text in bad {
            assert_ne!(rule(text), Vec::<String>::new(), "{text:?}");
        }
    }

    #[test]
    fn names_follow_the_rules_of_dns() {
        let long = "a".repeat(64);
        check(dns1123_label, &["a", "0", "a-b"], &["", "-a", "a-", "A", "a.b", "a_b", "ä", &long]);
        check(dns1123_subdomain, &["a.b", "a", &long], &["", "a..b", ".a", "a.", "A", &"a".repeat(254)]);
        check(dns1035_label, &["a0"], &["0a", "", "a."]);
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
    }

    #[test]
    fn label_keys_may_have_one_prefix() {
        check(label_key, &["a", "A_b.c-9", "x.io/A"], &["", "/a", "a/", "a/b/c", "X.io/a", "-a", "a b"]);
        check(label_value, &["", "a", "A.b_c"], &["-", "a ", "a/b", &"a".repeat(64)]);
    }

    #[test]
    fn ports_keys_variables_and_percentages_have_their_own_rules() {
        check(port_name, &["http", "a-1"], &["", "80", "HTTP", "a--b", "-a", "abcdefghijklmnop"]);
        check(config_key, &["a.b", ".a", "A_B"], &["", ".", "..", "..a", "a/b"]);
        check(env_name, &["A", "a b", "1"], &["", "a=b", "ä", "a\n"]);
        check(percent, &["0%", "150%"], &["", "%", "5", "-5%", "5.5%"]);
    }
}
