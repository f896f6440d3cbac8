//! The files with our credentials and trusted authorities, which may be replaced at run time.

use std::path::{Path, PathBuf};

use http::HeaderValue;
use kube::Config;
use ring::digest::{SHA256, digest};

/// Digests of the files, without their secrets.
pub(super) type Digests = Vec<Vec<u8>>;

/// The files that a client's credentials come from.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    /// Authorities, client certificate and key, as far as they are files.
    pub(super) certificates: Vec<PathBuf>,
    /// The token, which is sent with each request.
    pub(super) token: Option<PathBuf>,
}

impl Files {
    /// The files of a configuration. The token file is removed from it: this module reads it, since kube would send a
    /// newline at its end along. As in kubectl it overrides a token in the kubeconfig.
    pub(super) fn of(config: &mut Config) -> Self {
        let user = &mut config.auth_info;
        let certificates = [
            config.root_cert_file.clone(),
            user.client_certificate_data
                .is_none()
                .then(|| user.client_certificate.clone())
                .flatten()
                .map(Into::into),
            user.client_key_data.is_none().then(|| user.client_key.clone()).flatten().map(Into::into),
        ];
        let has_other = user.auth_provider.is_some() || user.username.is_some() && user.password.is_some();
        let token = user.token_file.take().filter(|_| !has_other).map(PathBuf::from);
        if token.is_some() {
            user.token = None;
            user.exec = None;
        }
        Files { certificates: certificates.into_iter().flatten().collect(), token }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.certificates.is_empty() && self.token.is_none()
    }

    /// Digests of the certificates' files as they are now. The error names the file.
    pub(super) fn digests(&self) -> Result<Digests, String> {
        let read = |file: &PathBuf| match std::fs::read(file) {
            Ok(bytes) => Ok(digest(&SHA256, &bytes).as_ref().to_vec()),
            Err(error) => Err(format!("{}: {error}", file.display())),
        };
        self.certificates.iter().map(read).collect()
    }
}

/// The header with the token of a file; the error names the file and not its content.
pub(super) fn token(file: &Path) -> Result<HeaderValue, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("the token file {}: {what}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(wrong(&"it is empty"));
    }
    let header = HeaderValue::from_str(&format!("Bearer {text}"));
    let mut header = header.map_err(|_| wrong(&"it holds more than a token"))?;
    header.set_sensitive(true);
    Ok(header)
}
