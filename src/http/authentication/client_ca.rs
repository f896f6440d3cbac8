//! The trusted client CAs: from files, or from the ConfigMap in which the API server publishes its own.
//!
//! kube-apiserver writes `kube-system/extension-apiserver-authentication`. Where it does not exist
//! no client CA is trusted, and that is no error: tokens still work. A file given by flag replaces its
//! half of the ConfigMap.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use serde::Deserialize;

use super::certificate::Authority;
use super::front_proxy::FrontProxy;
use crate::runtime::api::{Api, ApiError};
use crate::runtime::request;

/// The ConfigMap with the client CAs of the API server.
const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// How the headers of a front proxy are read when its authority is given by flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeaderOptions {
    /// `--requestheader-client-ca-file`: the authority of the front proxies. With it the other fields
    /// count; without it the ConfigMap's do.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-allowed-names`: common names of the proxies; empty means all.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`.
    pub username_headers: Vec<String>,
    /// `--requestheader-uid-headers`.
    pub uid_headers: Vec<String>,
    /// `--requestheader-group-headers`.
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_headers_prefixes: Vec<String>,
}

impl Default for RequestHeaderOptions {
    /// Upstream's.
    fn default() -> Self {
        RequestHeaderOptions {
            client_ca_file: None,
            allowed_names: Vec::new(),
            username_headers: vec!["x-remote-user".to_owned()],
            uid_headers: Vec::new(),
            group_headers: vec!["x-remote-group".to_owned()],
            extra_headers_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }
}

/// Why the client CAs are not known.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file that a flag names.
    #[error("{flag} {}: {reason}", .file.display())]
    File {
        /// The flag.
        flag: &'static str,
        /// The file.
        file: PathBuf,
        /// The defect.
        reason: String,
    },
    /// The ConfigMap could not be read.
    #[error(
        "could not read the ConfigMap kube-system/extension-apiserver-authentication: {0}{usual}; \
         --authentication-tolerate-lookup-failure or --authentication-skip-lookup do without",
        usual = usual_cause(.0)
    )]
    Lookup(ApiError),
    /// A value in the ConfigMap is not valid.
    #[error("{key} in the ConfigMap kube-system/extension-apiserver-authentication: {reason}")]
    Value {
        /// The key.
        key: &'static str,
        /// The defect in its value.
        reason: String,
    },
}

/// The usual cause of a refusal.
fn usual_cause(error: &ApiError) -> &'static str {
    match error {
        ApiError::Status(status) if status.code == 403 => {
            ". Usually a RoleBinding in kube-system to the Role extension-apiserver-authentication-reader is missing"
        }
        _ => "",
    }
}

impl TrustError {
    /// Whether the error may be temporary: no answer, or an error of the API server itself.
    pub fn is_transient(&self) -> bool {
        match self {
            TrustError::Lookup(ApiError::Status(status)) => status.code >= 500 || status.code == 429,
            TrustError::Lookup(_) => true,
            TrustError::File { .. } | TrustError::Value { .. } => false,
        }
    }
}

/// The client CAs that are trusted now.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct Trust {
    pub(super) clients: Option<Authority>,
    pub(super) front_proxy: Option<FrontProxy>,
}

/// The inputs, as read.
#[derive(Clone, Debug, Default, PartialEq)]
struct Read {
    client_ca: Option<Vec<u8>>,
    proxy_ca: Option<Vec<u8>>,
    published: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    data: BTreeMap<String, String>,
}

/// Reads the client CAs, and keeps the last good result.
pub(in crate::http) struct TrustSource {
    client_ca_file: Option<PathBuf>,
    request_header: RequestHeaderOptions,
    lookup: Option<Api>,
    trust: RwLock<Arc<Trust>>,
    read: Mutex<Option<Read>>,
}

impl TrustSource {
    /// Trusts no CA until it is read. `lookup` is for the ConfigMap; `None` does not read it.
    pub(in crate::http) fn new(
        client_ca_file: Option<PathBuf>,
        request_header: RequestHeaderOptions,
        lookup: Option<Api>,
    ) -> Self {
        TrustSource {
            client_ca_file,
            request_header,
            lookup,
            trust: RwLock::default(),
            read: Mutex::default(),
        }
    }

    /// The client CAs that are trusted now.
    pub(in crate::http) fn current(&self) -> Arc<Trust> {
        self.trust.read().clone()
    }

    /// Whether any client CA is trusted.
    pub(in crate::http) fn any(&self) -> bool {
        let trust = self.trust.read();
        trust.clients.is_some() || trust.front_proxy.is_some()
    }

    /// Reads the files alone, where the ConfigMap cannot be read.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub(in crate::http) async fn reload_files(&self) -> Result<bool, TrustError> {
        let (client_ca, proxy_ca) = self.files().await?;
        let published = self.read.lock().as_ref().map(|read| read.published.clone()).unwrap_or_default();
        self.take(Read { client_ca, proxy_ca, published })
    }

    /// Reads everything again, and returns whether it changed.
    ///
    /// # Errors
    /// When something cannot be read or used; the earlier CAs stay trusted.
    pub(in crate::http) async fn reload(&self) -> Result<bool, TrustError> {
        let (client_ca, proxy_ca) = self.files().await?;
        let published = self.published().await?;
        self.take(Read { client_ca, proxy_ca, published })
    }

    fn take(&self, read: Read) -> Result<bool, TrustError> {
        if self.read.lock().as_ref() == Some(&read) {
            return Ok(false);
        }
        let trust = self.understand(&read);
        // Kept even if it is not valid, so that the same mistake is reported once.
        *self.read.lock() = Some(read);
        *self.trust.write() = Arc::new(trust?);
        Ok(true)
    }

    async fn files(&self) -> Result<(Option<Vec<u8>>, Option<Vec<u8>>), TrustError> {
        let client_ca = file("--client-ca-file", self.client_ca_file.as_ref()).await?;
        let proxy_ca = self.request_header.client_ca_file.as_ref();
        Ok((client_ca, file("--requestheader-client-ca-file", proxy_ca).await?))
    }

    async fn published(&self) -> Result<BTreeMap<String, String>, TrustError> {
        // With both halves given there is nothing to read.
        let given = self.client_ca_file.is_some() && self.request_header.client_ca_file.is_some();
        let Some(api) = self.lookup.as_ref().filter(|_| !given) else { return Ok(BTreeMap::new()) };
        match api.call::<ConfigMap>(request::get(PATH, &[])).await {
            Ok(found) => Ok(found.data),
            Err(error) if error.is_not_found() => Ok(BTreeMap::new()),
            Err(error) => Err(TrustError::Lookup(error)),
        }
    }

    fn understand(&self, read: &Read) -> Result<Trust, TrustError> {
        let Read { client_ca, proxy_ca, published } = read;
        let bad_file = |flag, file: &Option<PathBuf>| {
            let file = file.clone().unwrap_or_default();
            move |reason| TrustError::File { flag, file, reason }
        };
        let bad_value = |key| move |reason| TrustError::Value { key, reason };
        let clients = match (client_ca, value(published, "client-ca-file")) {
            (Some(pem), _) => {
                let bad = bad_file("--client-ca-file", &self.client_ca_file);
                Some(Authority::from_pem(pem).map_err(bad)?)
            }
            (None, Some(pem)) => {
                Some(Authority::from_pem(pem.as_bytes()).map_err(bad_value("client-ca-file"))?)
            }
            (None, None) => None,
        };
        const PROXY_CA: &str = "requestheader-client-ca-file";
        let front_proxy = match (proxy_ca, value(published, PROXY_CA)) {
            (Some(pem), _) => {
                let RequestHeaderOptions {
                    client_ca_file,
                    allowed_names,
                    username_headers,
                    uid_headers,
                    group_headers,
                    extra_headers_prefixes,
                } = self.request_header.clone();
                let bad = bad_file("--requestheader-client-ca-file", &client_ca_file);
                let authority = Authority::from_pem(pem).map_err(bad)?;
                Some(FrontProxy {
                    authority,
                    allowed_names,
                    username_headers,
                    uid_headers,
                    group_headers,
                    extra_headers_prefixes,
                })
            }
            (None, Some(pem)) => {
                let list = |key| list(published, key);
                Some(FrontProxy {
                    authority: Authority::from_pem(pem.as_bytes()).map_err(bad_value(PROXY_CA))?,
                    allowed_names: list("requestheader-allowed-names")?,
                    username_headers: list("requestheader-username-headers")?,
                    uid_headers: list("requestheader-uid-headers")?,
                    group_headers: list("requestheader-group-headers")?,
                    extra_headers_prefixes: list("requestheader-extra-headers-prefix")?,
                })
            }
            (None, None) => None,
        };
        Ok(Trust { clients, front_proxy })
    }
}

async fn file(flag: &'static str, file: Option<&PathBuf>) -> Result<Option<Vec<u8>>, TrustError> {
    let Some(file) = file else { return Ok(None) };
    let read = tokio::fs::read(file).await;
    read.map(Some).map_err(|error| TrustError::File { flag, file: file.clone(), reason: error.to_string() })
}

fn value<'a>(published: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    published.get(key).map(String::as_str).filter(|value| !value.trim().is_empty())
}

/// A list of the ConfigMap, which is JSON in a string. Any writer of the ConfigMap chooses it.
fn list(published: &BTreeMap<String, String>, key: &'static str) -> Result<Vec<String>, TrustError> {
    let Some(text) = value(published, key) else { return Ok(Vec::new()) };
    serde_json::from_str(text).map_err(|error| TrustError::Value {
        key,
        reason: format!("it is not a list of strings in JSON: {error}"),
    })
}
