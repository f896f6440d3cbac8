//! The version of this build.

use std::sync::LazyLock;

/// The commit that the build was told (`WINDLASS_COMMIT`); empty without one. A build script that asked git would compile
/// everything again after each commit.
pub const COMMIT: &str = match option_env!("WINDLASS_COMMIT") {
    Some(commit) => commit,
    None => "",
};

/// The version, with the commit where it is known: `0.1.0 (4f9b21c07d3e)`.
pub fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        if COMMIT.is_empty() { version.to_owned() } else { format!("{version} ({COMMIT})") }
    });
    &TEXT
}
