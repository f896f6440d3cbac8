//! Fetches a manifest from a URL: three tries, a second apart, with limits, and without the credentials of the cluster.

use std::time::Duration;

use http::header::{ACCEPT, HeaderValue, LOCATION, USER_AGENT};
use http::uri::Scheme;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use kube::Config;
use kube::client::Body;
use windlass_manifest::LARGEST_SOURCE;

use crate::connection::{anonymous, explain};

const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time for one try, redirects included.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(30);
const MOST_REDIRECTS: usize = 10;

/// Why a try failed.
enum Failure {
    /// A failed connection or an answer from 500 on: retried.
    Passing(String),
    Final(String),
}

/// Fetches a URL. Retries failed connections and answers from 500 on.
///
/// # Errors
/// With the reason; the caller names the URL.
pub async fn fetch(url: &Uri) -> Result<Vec<u8>, String> {
    let mut reason = String::new();
    for number in 1..=TRIES {
        if number > 1 {
            tokio::time::sleep(PAUSE).await;
        }
        match tokio::time::timeout(DOWNLOAD_TIMEOUT, follow(url)).await {
            Ok(Ok(bytes)) => return Ok(bytes),
            Ok(Err(Failure::Final(reason))) => return Err(reason),
            Ok(Err(Failure::Passing(new))) => reason = new,
            Err(_) => reason = format!("no complete answer within {} s", DOWNLOAD_TIMEOUT.as_secs()),
        }
    }
    Err(format!("{reason} ({TRIES} tries)"))
}

/// One try, with redirects.
async fn follow(url: &Uri) -> Result<Vec<u8>, Failure> {
    let mut url = url.clone();
    for _ in 0..=MOST_REDIRECTS {
        let response = get(&url).await?;
        let status = response.status();
        if status.is_redirection() {
            let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
            url = redirected(&url, location.unwrap_or_default()).map_err(Failure::Final)?;
            continue;
        }
        if !status.is_success() {
            let reason = answered(status);
            return Err(if status.is_server_error() {
                Failure::Passing(reason)
            } else {
                Failure::Final(reason)
            });
        }
        let largest = usize::try_from(LARGEST_SOURCE).unwrap_or(usize::MAX);
        let body = Limited::new(response.into_body(), largest).collect().await;
        return match body {
            Ok(body) => Ok(body.to_bytes().into()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                Err(Failure::Final(format!("larger than {} MiB", LARGEST_SOURCE / 1024 / 1024)))
            }
            Err(error) => Err(Failure::Passing(error.to_string())),
        };
    }
    Err(Failure::Final(format!("more than {MOST_REDIRECTS} redirects")))
}

fn answered(status: StatusCode) -> String {
    format!("the server answered {} {}", status.as_u16(), status.canonical_reason().unwrap_or("(no text)"))
}

/// Sends a GET by the client for API servers, which brings TLS and proxies, with a configuration that holds nothing of a
/// kubeconfig.
async fn get(url: &Uri) -> Result<http::Response<Body>, Failure> {
    let wrong = |reason: String| Failure::Final(reason);
    let mut base = url.clone().into_parts();
    base.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
    let mut config = Config::new(Uri::from_parts(base).map_err(|error| wrong(error.to_string()))?);
    config.default_retry = false;
    let agent = concat!("kubectl-windlass/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    let client = anonymous(config).await.map_err(wrong)?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path).header(ACCEPT, "*/*").body(Body::empty());
    let request = request.map_err(|error| wrong(error.to_string()))?;
    client.send(request).await.map_err(|error| Failure::Passing(explain(&error)))
}

/// Resolves the location of a redirect. Refuses schemes other than http and https, and http after https.
fn redirected(from: &Uri, location: &str) -> Result<Uri, String> {
    let refused =
        |why: &str| format!("a redirect to {:?} is refused: {why}", crate::text::harmless(location));
    let (scheme, authority) =
        (from.scheme_str().unwrap_or("http"), from.authority().map_or("", |it| it.as_str()));
    let to = if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.contains("://")
        || location.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme))
    {
        location.to_owned()
    } else {
        let directory = from.path().rsplit_once('/').map_or("", |(directory, _)| directory);
        format!("{scheme}://{authority}{directory}/{location}")
    };
    if location.is_empty() {
        return Err("a redirect without a location".to_owned());
    }
    let is =
        |url: &str, scheme: &str| url.get(..scheme.len()).is_some_and(|it| it.eq_ignore_ascii_case(scheme));
    if !is(&to, "https://") && !is(&to, "http://") {
        return Err(refused("only http and https are followed"));
    }
    if !is(&to, "https://") && from.scheme() == Some(&Scheme::HTTPS) {
        return Err(refused("https does not lead to http"));
    }
    to.parse().map_err(|_| refused("it is not a URL"))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &str, location: &str) -> Result<String, String> {
        redirected(&from.parse().unwrap(), location).map(|uri| uri.to_string())
    }

    #[test]
    fn a_redirect_may_be_absolute_or_relative() {
        for (location, wanted) in [
            ("https://b/x", "https://b/x"),
            ("//b/x", "https://b/x"),
            ("/x?y=z", "https://a:1/x?y=z"),
            ("x.yaml", "https://a:1/d/x.yaml"),
        ] {
            assert_eq!(to("https://a:1/d/e?f", location).unwrap(), wanted);
        }
        assert_eq!(to("http://a/", "https://a/x").unwrap(), "https://a/x");
    }

    #[test]
    fn a_redirect_leads_neither_to_a_file_nor_from_https_to_http() {
        assert!(to("https://a/", "http://a/").unwrap_err().contains("https does not lead to http"));
        for location in ["file:///etc/passwd", "file:/etc/passwd", "ftp://a/x", "data:text/plain,x"] {
            assert!(to("http://a/", location).unwrap_err().contains("refused"), "{location}");
        }
        assert!(to("http://a/", "").unwrap_err().contains("without a location"));
    }
}
