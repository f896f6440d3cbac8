//! The headers in which a front proxy, such as the API server's aggregator, names the user of a request.
//!
//! Any client can send these headers. They count only together with a client certificate that the front
//! proxies' own authority signed, and whose name is allowed; else they are ignored.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::certificate::{Authority, subject};
use super::user::User;

/// Which headers count, and from which proxies.
#[derive(Clone, Debug)]
pub(super) struct FrontProxy {
    pub(super) authority: Authority,
    /// Common names of the proxies; empty means each that the authority signed.
    pub(super) allowed_names: Vec<String>,
    pub(super) username_headers: Vec<String>,
    pub(super) uid_headers: Vec<String>,
    pub(super) group_headers: Vec<String>,
    pub(super) extra_headers_prefixes: Vec<String>,
}

impl FrontProxy {
    /// Whether this is a proxy's certificate at this time.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn accepts(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), String> {
        self.authority.vouches(own, chain, now)?;
        let name = subject(own)?.common_name;
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&name) {
            return Err(format!("x509: subject with cn={name} is not in the allowed list"));
        }
        Ok(())
    }

    /// The user that the proxy names; `None` without one.
    pub(super) fn user(&self, headers: &HeaderMap) -> Option<User> {
        let name = first(headers, &self.username_headers)?;
        let groups = self.group_headers.iter().flat_map(|header| values(headers, header)).collect();
        let uid = first(headers, &self.uid_headers).unwrap_or_default();
        Some(User { name, uid, groups, extra: self.extra(headers) })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in headers.keys() {
            if let Some(key) = self.extra_key(name) {
                extra.entry(key).or_default().extend(values(headers, name.as_str()));
            }
        }
        extra
    }

    /// The key of an extra header: its name after the prefix, in lower case, unescaped.
    fn extra_key(&self, name: &HeaderName) -> Option<String> {
        let name = name.as_str();
        let prefixes = self.extra_headers_prefixes.iter().map(|prefix| prefix.to_ascii_lowercase());
        let key =
            prefixes.into_iter().find_map(|prefix| name.strip_prefix(prefix.as_str()).map(str::to_owned))?;
        let unescaped = percent_decode_str(&key).decode_utf8().map(|text| text.into_owned());
        Some(unescaped.unwrap_or(key).to_lowercase())
    }

    /// Removes all headers that identify a user.
    pub(super) fn strip(&self, headers: &mut HeaderMap) {
        let named = [&self.username_headers, &self.uid_headers, &self.group_headers];
        for header in named.into_iter().flatten() {
            headers.remove(header.as_str());
        }
        let extra: Vec<HeaderName> =
            headers.keys().filter(|name| self.extra_key(name).is_some()).cloned().collect();
        for name in extra {
            headers.remove(name);
        }
    }
}

fn values(headers: &HeaderMap, name: &str) -> impl Iterator<Item = String> {
    headers.get_all(name).into_iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// The first value that is not empty, of the first header that has one.
fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    names.iter().find_map(|name| values(headers, name).next().filter(|value| !value.is_empty()))
}
