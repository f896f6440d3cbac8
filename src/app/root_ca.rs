//! The certificates of the API server's CA, for those who want to check it from within a pod.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use pem::Pem;

use crate::config::Enabled;
use crate::controllers::root_ca_cert::ENTRY;
use crate::runtime::client::Connection;

const TAG: &str = "CERTIFICATE";

/// The content of `--root-ca-file`, else the certificates that the client checks the API server by; in PEM. Without
/// either the text is empty, as with kube-controller-manager.
///
/// # Errors
/// When the file cannot be read, or holds no certificate.
pub(super) fn find(
    file: Option<&Path>,
    connection: &Connection,
    enabled: &Enabled,
) -> anyhow::Result<Arc<str>> {
    let text = match file {
        Some(file) => read(file).with_context(|| format!("--root-ca-file {}", file.display()))?,
        None => {
            let all: Vec<Pem> =
                connection.root_ca.iter().map(|certificate| Pem::new(TAG, &**certificate)).collect();
            pem::encode_many(&all)
        }
    };
    if text.is_empty() && enabled.runs(&ENTRY) {
        tracing::warn!(
            "{} publishes an empty certificate: {} names no CA; set --root-ca-file",
            ENTRY.name,
            connection.source
        );
    }
    Ok(text.into())
}

fn read(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file)?;
    let found = pem::parse_many(&text).context("is not PEM")?;
    if !found.iter().any(|block| block.tag() == TAG) {
        bail!("holds no certificate (PEM, -----BEGIN CERTIFICATE-----)");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn written(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_file_is_published_as_it_is() {
        let text = pem::encode(&Pem::new(TAG, b"der"));
        assert_eq!(read(written(&text).path()).unwrap(), text);
    }

    #[test]
    fn a_file_without_a_certificate_is_refused() {
        for text in [String::new(), "text".into(), pem::encode(&Pem::new("PRIVATE KEY", b"der"))] {
            let error = format!("{:#}", read(written(&text).path()).unwrap_err());
            assert!(error.contains("certificate"), "{error}");
        }
        assert!(read(Path::new("/does/not/exist")).is_err());
    }
}
