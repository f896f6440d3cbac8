//! The daemon's own knowledge of a Deployment or StatefulSet: its earlier plans, the write that failed, and when it looks again. It is
//! asked only where the user names its URL, and it never gets the credentials of the kubeconfig.

use std::net::IpAddr;
use std::path::Path;

use http::Uri;
use jiff::{SignedDuration, Timestamp};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use windlass::runtime::request;

use crate::api::{Api, ApiError};
use crate::cli::ExplainArgs;
use crate::connection::Connection;
use crate::exit::CommandError;
use crate::target::WorkloadKey;
use crate::text::{age, harmless, span};

/// The name of the one entry of a configuration of our own.
const ENDPOINT: &str = "endpoint";

/// The daemon at `--endpoint`.
pub struct Daemon {
    api: Api,
    url: String,
}

impl Daemon {
    /// The daemon that the flags name; `None` without `--endpoint`.
    ///
    /// # Errors
    /// With the flag and what is wrong with it.
    pub async fn of(args: &ExplainArgs, timeout: std::time::Duration) -> Result<Option<Self>, CommandError> {
        let ExplainArgs { endpoint, endpoint_token_file: token, endpoint_ca: authority, .. } = args;
        let usage = |text: String| CommandError::Usage(text);
        let Some(url) = endpoint.as_ref().filter(|url| !url.is_empty()) else {
            if token.is_some() || authority.is_some() {
                let text =
                    "--endpoint-token-file and --endpoint-ca say something about --endpoint: name its URL";
                return Err(usage(text.to_owned()));
            }
            return Ok(None);
        };
        let is_encrypted = check(url, token.is_some()).map_err(usage)?;
        let read = |flag: &str, file: &Path| {
            std::fs::read_to_string(file)
                .map_err(|error| CommandError::Argument(format!("{flag} {}: {error}", file.display())))
        };
        if let Some(file) = authority {
            read("--endpoint-ca", file)?;
        }
        // It mostly ends with a line break, which no header may have.
        let token = match token {
            Some(file) => Some(read("--endpoint-token-file", file)?.trim().to_owned()),
            None => None,
        };
        if authority.is_some() && !is_encrypted {
            return Err(usage(format!("--endpoint-ca has no use with {url}: it is not https")));
        }
        let client = client(url, token, authority.as_deref())
            .await
            .map_err(|error| CommandError::Argument(format!("--endpoint {url}: {}", harmless(&error))))?;
        let server = format!("{url} (--endpoint)");
        let connection =
            Connection { client, namespace: String::new(), namespace_is_enforced: false, server };
        Ok(Some(Daemon { api: Api::new(connection, timeout), url: url.trim_end_matches('/').to_owned() }))
    }

    /// The daemon's explanation of an object, as it serves it; or why there is none.
    ///
    /// # Errors
    /// With what to do.
    pub async fn explanation(&self, key: &WorkloadKey) -> Result<Value, String> {
        let path = format!("/debug/{}/{}/{}", key.kind.resource().plural, key.namespace, key.name);
        let what = format!("{}{path}", self.url);
        self.api.send(&what, request::get(&path, &[])).await.map_err(|error| advised(&error))
    }
}

/// Checks the URL. Returns whether it is encrypted.
fn check(url: &str, has_token: bool) -> Result<bool, String> {
    let wrong = || format!("--endpoint {url:?} is not a URL such as https://windlass.kube-system:10257");
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
    if uri.query().is_some() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(format!(
            "--endpoint {url:?}: leave user and query out; a token is read from --endpoint-token-file"
        ));
    }
    match uri.scheme_str() {
        Some("https") => Ok(true),
        Some("http") => {
            let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
            let is_here = host == "localhost" || address.is_some_and(|address| address.is_loopback());
            if has_token && !is_here {
                return Err(format!("--endpoint {url}: a token is not sent without encryption; use https"));
            }
            Ok(false)
        }
        _ => Err(wrong()),
    }
}

/// A client with these credentials and no others.
async fn client(url: &str, token: Option<String>, authority: Option<&Path>) -> Result<kube::Client, String> {
    let authority = authority.map(|file| file.display().to_string());
    let user = token.map_or(json!({}), |token| json!({"token": token}));
    let whole: Kubeconfig = serde_json::from_value(json!({
        "current-context": ENDPOINT,
        "contexts": [{"name": ENDPOINT, "context": {"cluster": ENDPOINT, "user": ENDPOINT}}],
        "clusters": [{"name": ENDPOINT, "cluster": {"server": url, "certificate-authority": authority}}],
        "users": [{"name": ENDPOINT, "user": user}],
    }))
    .map_err(|error| error.to_string())?;
    let config = Config::from_custom_kubeconfig(whole, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| error.to_string())?;
    config.default_retry = false;
    kube::Client::try_from(config).map_err(|error| crate::connection::explain(&error))
}

fn advised(error: &ApiError) -> String {
    let advice = match error.code() {
        Some(404) => {
            "a standby explains nothing, and neither does one whose --namespace or --selector leaves the object out: \
             `kubectl get lease windlass -n kube-system` names the leader"
        }
        Some(401) => "name a token by --endpoint-token-file",
        Some(403) => "the user of the token needs the verb get on the nonResourceURL /debug/*",
        None if error.to_string().contains("ertificate") => "name its CA by --endpoint-ca",
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}

/// The daemon's explanation, for people.
pub fn text(known: &Result<Value, String>, now: Timestamp) -> String {
    let known = match known {
        Ok(known) => known,
        Err(why) => return format!("DAEMON  {}\n", harmless(why)),
    };
    let current = &known["current"];
    let mut lines = Vec::new();
    lines.push(match (current["lookAgainAfterSeconds"].as_i64(), time(current, "last")) {
        (Some(seconds), Some(last)) => {
            let at = last.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
            match at.duration_since(now) {
                left if left.is_positive() => format!("looks again in {}, or at the next change", span(left)),
                _ => "looks again now".to_owned(),
            }
        }
        _ => "looks again at the next change".to_owned(),
    });
    lines.push(format!("planned this {}", times(current, now)));
    if let Some(error) = current["error"].as_str() {
        lines.push(format!("a write failed: {}", harmless(error)));
    }
    for earlier in known["earlier"].as_array().into_iter().flatten() {
        let texts = |field: &Value| -> Vec<String> {
            let all = field.as_array().into_iter().flatten();
            all.filter_map(|it| it["text"].as_str().or(it.as_str()).map(harmless)).collect()
        };
        let mut line = format!("before, {}: {}", times(earlier, now), texts(&earlier["why"]).join("; "));
        let writes = texts(&earlier["writes"]);
        if !writes.is_empty() {
            line.push_str(&format!("; then {}", writes.join(", ")));
        }
        if let Some(error) = earlier["error"].as_str() {
            line.push_str(&format!("; a write failed: {}", harmless(error)));
        }
        lines.push(line);
    }
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        text.push_str(&format!("{:<8}{line}\n", if at == 0 { "DAEMON" } else { "" }));
    }
    text
}

/// The same as data: what the daemon serves, or why there is nothing.
pub fn data(known: Result<Value, String>) -> Value {
    known.unwrap_or_else(|why| json!({"error": why}))
}

fn time(explanation: &Value, field: &str) -> Option<Timestamp> {
    explanation[field].as_str()?.parse().ok()
}

/// How often and when a plan had this explanation.
fn times(explanation: &Value, now: Timestamp) -> String {
    let ago = |field: &str| time(explanation, field).map_or("?".to_owned(), |at| age(at, now));
    match explanation["times"].as_u64() {
        Some(times) if times > 1 => format!("{times} times, from {} to {} ago", ago("since"), ago("last")),
        _ => format!("{} ago", ago("last")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_nowhere_without_encryption() {
        assert_eq!(check("https://windlass:10257", true), Ok(true));
        for here in ["http://localhost:10252", "http://127.0.0.1:10252/a", "http://[::1]:1"] {
            assert_eq!(check(here, true), Ok(false), "{here}");
        }
        assert_eq!(check("http://windlass:10252", false), Ok(false));
        assert!(check("http://windlass:10252", true).unwrap_err().contains("use https"));
        for wrong in ["windlass:10252", "ftp://a", "", "http://", "/debug"] {
            assert!(check(wrong, false).unwrap_err().contains("is not a URL"), "{wrong}");
        }
        assert!(check("https://a:b@c", false).unwrap_err().contains("--endpoint-token-file"));
    }

    #[test]
    fn what_a_daemon_may_answer_is_told_without_a_panic() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(
            text(&Ok(json!({})), now),
            "DAEMON  looks again at the next change\n        planned this ? ago\n"
        );
        let far = json!({"current": {"lookAgainAfterSeconds": i64::MAX, "last": "2026-01-01T00:00:00Z"}, "earlier": 1});
        assert!(text(&Ok(far), now).starts_with("DAEMON  looks again in "));
    }
}
