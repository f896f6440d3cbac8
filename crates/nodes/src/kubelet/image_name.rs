//! Whether a container runtime can parse the name of an image (github.com/distribution/reference).

use std::sync::LazyLock;

use regex_lite::Regex;

static REFERENCE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let domain = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?";
    let component = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    let tag = r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?";
    let digest = r"(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?";
    Regex::new(&format!("^(?:{domain}/)?{component}(?:/{component})*{tag}{digest}$")).ok()
});

/// Why a name cannot be parsed, in the words of a kubelet. Without a name there is nothing to parse.
pub fn unparsable(image: &str) -> Option<String> {
    let why = if image.is_empty() {
        return None;
    } else if image.len() == 64 && image.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        format!("invalid repository name ({image}), cannot specify 64-byte hexadecimal strings")
    } else if let Some(repository) = upper_case_repository(image) {
        format!("invalid reference format: repository name ({repository}) must be lowercase")
    } else if REFERENCE.as_ref().is_some_and(|reference| !reference.is_match(image)) {
        "invalid reference format".to_owned()
    } else {
        return None;
    };
    Some(format!("Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {why}"))
}

/// The repository without the host, if it has upper case letters.
fn upper_case_repository(image: &str) -> Option<String> {
    let is_host =
        |text: &str| text.contains(['.', ':']) || text == "localhost" || text.chars().any(char::is_uppercase);
    let path = match image.split_once('/') {
        Some((host, path)) if is_host(host) => path.to_owned(),
        Some(_) => image.to_owned(),
        None => format!("library/{image}"),
    };
    let path = path.split_once(':').map_or(path.as_str(), |(path, _)| path);
    path.chars().any(char::is_uppercase).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_registries_use_can_be_parsed() {
        let digest = format!("nginx@sha256:{}", "0123456789abcdef".repeat(4));
        for image in [
            "nginx",
            "nginx:1.27",
            "shop/web:v2",
            "registry.k8s.io/pause:3.10",
            "localhost:5000/web",
            "LocalRegistry/web",
            "ghcr.io/some-org/some_image__x:Tag_1.2-3",
            "[::1]:5000/web",
            &digest,
            "",
        ] {
            assert_eq!(unparsable(image), None, "{image}");
        }
    }

    #[test]
    fn a_placeholder_is_no_name() {
        let texts = |image: &str, why: &str| {
            let expected = format!(
                "Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {why}"
            );
            assert_eq!(unparsable(image), Some(expected));
        };
        for image in
            ["<your image>", "my image", "nginx:", "nginx:a b", "-web", "web/", "nginx@sha256:1", "ünicode"]
        {
            texts(image, "invalid reference format");
        }
        texts("Nginx", "invalid reference format: repository name (library/Nginx) must be lowercase");
        texts(
            "docker.io/shop/Web:1",
            "invalid reference format: repository name (shop/Web) must be lowercase",
        );
        let id = "0123456789abcdef".repeat(4);
        texts(&id, &format!("invalid repository name ({id}), cannot specify 64-byte hexadecimal strings"));
    }
}
