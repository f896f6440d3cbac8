//! The names of images, as the reference package of container registries reads them.

/// A longer name cannot be read, registry, tag and digest not counted.
const LONGEST_PATH: usize = 255;

/// The tag of an image: `latest` if the name has neither tag nor digest, `None` if it has a digest alone or cannot be read.
pub(super) fn tag(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // A first part with a dot, a colon or a capital letter is a registry, and so is `localhost`.
    let path = match name.split_once('/') {
        Some((first, rest)) if is_registry(first) => {
            let is_host = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
            (first.chars().all(is_host) && !first.contains("..")).then_some(rest)?
        }
        _ => name,
    };
    let (path, tag) = match path.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (path, None),
    };
    let is_tag = |tag: &str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        tag.len() <= 128
            && tag.starts_with(is_word)
            && tag.chars().all(|c| is_word(c) || c == '.' || c == '-')
    };
    let is_digest = |digest: &str| {
        let is_hex = |hex: &str| hex.len() >= 32 && hex.chars().all(|c| c.is_ascii_hexdigit());
        digest.split_once(':').is_some_and(|(algorithm, hex)| !algorithm.is_empty() && is_hex(hex))
    };
    // 64 hexadecimal digits would be the identifier of an image.
    let is_identifier = image.len() == 64 && image.chars().all(|c| c.is_ascii_hexdigit());
    let length = path.len() + if path.contains('/') { 0 } else { "library/".len() };
    let reads = !is_identifier
        && length <= LONGEST_PATH
        && path.split('/').all(is_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    match (tag, digest) {
        _ if !reads => None,
        (None, None) => Some("latest"),
        (tag, _) => tag,
    }
}

fn is_registry(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.contains(|c: char| c.is_ascii_uppercase())
}

/// Lower-case letters and digits, with separators between them: a dot, one or two underscores, or any number of hyphens.
fn is_component(component: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator = |part: &str| matches!(part, "" | "." | "_" | "__") || part.chars().all(|c| c == '-');
    component.starts_with(is_plain)
        && component.ends_with(is_plain)
        && component.split(is_plain).all(is_separator)
}

#[cfg(test)]
mod tests {
    use super::tag;

    #[test]
    fn a_name_has_the_tag_latest_unless_it_says_otherwise_or_cannot_be_read() {
        let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let (pinned, both) = (format!("nginx@{digest}"), format!("nginx:latest@{digest}"));
        let (longest, longer) = (format!("a/{}", "b".repeat(253)), "b".repeat(248));
        for (image, expected) in [
            (longest.as_str(), Some("latest")),
            // It is `library/` as well.
            (longer.as_str(), None),
            ("nginx", Some("latest")),
            ("registry:5000/a/nginx", Some("latest")),
            ("Registry/nginx", Some("latest")),
            ("localhost/a__b/c-.d", None),
            ("a_b/c.c--d/e:1.2-x", Some("1.2-x")),
            ("a_b.c/e:1.2", None),
            (&pinned, None),
            (&both, Some("latest")),
            ("reg.example.com/x/Y", None),
            ("<your image>", None),
            ("nginx:", None),
            ("nginx@sha256:0123", None),
            ("", None),
            (&digest["sha256:".len()..], None),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }
}
