//! Finds the API server and builds the client: from flags, a kubeconfig, or the pod we run in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// What the user said about the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: a URL that replaces the kubeconfig's.
    pub master: Option<String>,
}

/// A client and whom it talks to.
#[derive(Clone)]
pub struct Connection {
    /// The client. It repeats nothing and sets no limit on the time between two reads, since a watch is
    /// silent for as long as nothing changes.
    pub client: kube::Client,
    /// Host and port of the API server, for metrics and logs.
    pub host: String,
    /// Where the address came from, for the log.
    pub source: String,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A kubeconfig could not be used.
    #[error("{source_name}: {error}")]
    Kubeconfig {
        /// The flag or variable, and the file.
        source_name: String,
        /// What is wrong with it.
        #[source]
        error: Box<KubeconfigError>,
    },
    /// The service account of the pod we run in could not be used.
    #[error("in-cluster configuration (KUBERNETES_SERVICE_HOST is set): {0}")]
    InCluster(#[source] Box<InClusterError>),
    /// `--master` is not a URL.
    #[error("--master {url:?} is not a URL: {reason}")]
    Master {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing says where the API server is.
    #[error(
        "no API server to talk to: give --kubeconfig or --master, or set KUBECONFIG; there is no file \
         {home}, and this is not a pod (KUBERNETES_SERVICE_HOST is not set)"
    )]
    Nowhere {
        /// The default kubeconfig.
        home: String,
    },
    /// The client could not be built from a valid configuration.
    #[error("{source_name}: could not build the client: {error}")]
    Build {
        /// Where the configuration came from.
        source_name: String,
        /// What failed.
        #[source]
        error: Box<kube::Error>,
    },
}

/// Where the configuration is to be read from.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// These files, of which an earlier one wins; the name is for messages.
    Files {
        name: String,
        files: Vec<PathBuf>,
    },
    InCluster,
    /// Only a URL.
    Master,
}

/// Chooses the source: the flag, then `$KUBECONFIG`, then `~/.kube/config`, then the pod we run in.
fn choose(
    options: &ClientOptions,
    env: &dyn Fn(&str) -> Option<String>,
    exists: &dyn Fn(&Path) -> bool,
) -> Result<Source, ClientError> {
    if let Some(file) = &options.kubeconfig {
        let name = format!("--kubeconfig {}", file.display());
        return Ok(Source::Files { name, files: vec![file.clone()] });
    }
    if let Some(list) = env("KUBECONFIG").filter(|list| !list.is_empty()) {
        // As kubectl has it, files of the list that do not exist are passed over.
        let files: Vec<PathBuf> = std::env::split_paths(&list).filter(|file| exists(file)).collect();
        let files = if files.is_empty() { std::env::split_paths(&list).take(1).collect() } else { files };
        return Ok(Source::Files { name: format!("KUBECONFIG={list}"), files });
    }
    let home = env("HOME").filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".kube/config"));
    if let Some(file) = home.as_ref().filter(|file| exists(file)) {
        return Ok(Source::Files { name: file.display().to_string(), files: vec![file.clone()] });
    }
    if options.master.is_some() {
        return Ok(Source::Master);
    }
    if env("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()) {
        return Ok(Source::InCluster);
    }
    let home = home.map_or_else(|| "~/.kube/config".to_owned(), |file| file.display().to_string());
    Err(ClientError::Nowhere { home })
}

/// Builds the client. `env` reads an environment variable.
///
/// # Errors
/// When no source says where the API server is, or the one that does cannot be used. The message names
/// the flag, variable or file.
pub async fn connect(
    options: &ClientOptions,
    env: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Result<Connection, ClientError> {
    let (mut config, source) = match choose(options, env, &|file| file.is_file())? {
        Source::Files { name, files } => match load(&files).await {
            Ok(config) => (config, name),
            Err(error) => {
                return Err(ClientError::Kubeconfig { source_name: name, error: Box::new(error) });
            }
        },
        Source::InCluster => {
            let config = Config::incluster().map_err(|error| ClientError::InCluster(Box::new(error)))?;
            (config, "the service account of this pod".to_owned())
        }
        Source::Master => (Config::new(http::Uri::default()), "--master".to_owned()),
    };
    if let Some(url) = &options.master {
        config.cluster_url = parse_master(url)?;
    }
    // A repeated create makes a second pod, and a repetition that nobody sees outlives a deadline. The
    // callers know what they can repeat.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = None;
    config.headers.push((USER_AGENT, user_agent()));
    let host = match (config.cluster_url.host(), config.cluster_url.port_u16()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => String::new(),
    };
    let client = kube::Client::try_from(config)
        .map_err(|error| ClientError::Build { source_name: source.clone(), error: Box::new(error) })?;
    Ok(Connection { client, host, source })
}

async fn load(files: &[PathBuf]) -> Result<Config, KubeconfigError> {
    let mut merged = Kubeconfig::default();
    for file in files {
        merged = merged.merge(Kubeconfig::read_from(file)?)?;
    }
    Config::from_custom_kubeconfig(merged, &KubeConfigOptions::default()).await
}

fn parse_master(url: &str) -> Result<http::Uri, ClientError> {
    let wrong = |reason: String| ClientError::Master { url: url.to_owned(), reason };
    let uri: http::Uri = url.parse().map_err(|error: http::uri::InvalidUri| wrong(error.to_string()))?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        _ => Err(wrong("it must begin with https:// or http:// and name a host".to_owned())),
    }
}

/// `windlass/0.1.0 (linux/x86_64) kubernetes`, in the form that audit logs know from other clients.
fn user_agent() -> HeaderValue {
    let text = format!(
        "windlass/{} ({}/{}) kubernetes",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("windlass"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        options: &ClientOptions,
        env: &[(&'static str, &'static str)],
        files: &[&'static str],
    ) -> Result<Source, ClientError> {
        let env = env.to_vec();
        let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        choose(
            options,
            &move |name| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
            &move |file| files.iter().any(|known| known == file),
        )
    }

    fn files(source: Result<Source, ClientError>) -> Vec<PathBuf> {
        match source {
            Ok(Source::Files { files, .. }) => files,
            other => panic!("not files: {other:?}"),
        }
    }

    #[test]
    fn the_flag_wins_over_the_environment_and_the_environment_over_the_pod() {
        let flag = ClientOptions { kubeconfig: Some("/flag".into()), master: None };
        let none = ClientOptions::default();
        let env = [("KUBECONFIG", "/one:/two"), ("HOME", "/home"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
        let there = ["/one", "/two", "/home/.kube/config"];
        assert_eq!(files(chosen(&flag, &env, &there)), [PathBuf::from("/flag")]);
        assert_eq!(files(chosen(&none, &env, &there)), [PathBuf::from("/one"), PathBuf::from("/two")]);
        assert_eq!(files(chosen(&none, &env, &there[1..])), [PathBuf::from("/two")]);
        assert_eq!(files(chosen(&none, &env[1..], &there)), [PathBuf::from("/home/.kube/config")]);
        assert_eq!(chosen(&none, &env[1..], &[]).unwrap(), Source::InCluster);
    }

    #[test]
    fn a_url_alone_is_enough_and_nothing_at_all_is_explained() {
        let master = ClientOptions { kubeconfig: None, master: Some("http://127.0.0.1:8001".into()) };
        assert_eq!(chosen(&master, &[("HOME", "/h")], &[]).unwrap(), Source::Master);
        let error = chosen(&ClientOptions::default(), &[("HOME", "/h")], &[]).unwrap_err().to_string();
        for word in ["--kubeconfig", "--master", "KUBECONFIG", "/h/.kube/config", "KUBERNETES_SERVICE_HOST"] {
            assert!(error.contains(word), "{error}");
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_named_with_its_flag() {
        let options = ClientOptions { kubeconfig: Some("/does/not/exist".into()), master: None };
        let error = connect(&options, &|_| None).await.err().unwrap().to_string();
        assert!(error.starts_with("--kubeconfig /does/not/exist: "), "{error}");
    }

    #[tokio::test]
    async fn master_replaces_the_address_in_the_kubeconfig() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let text = "{apiVersion: v1, kind: Config, current-context: c,
            clusters: [{name: k, cluster: {server: 'http://one:1'}}],
            contexts: [{name: c, context: {cluster: k, user: u}}], users: [{name: u, user: {}}]}";
        std::fs::write(&file, text).unwrap();
        let mut options = ClientOptions { kubeconfig: Some(file), master: None };
        assert_eq!(connect(&options, &|_| None).await.ok().unwrap().host, "one:1");
        options.master = Some("http://two:2".into());
        assert_eq!(connect(&options, &|_| None).await.ok().unwrap().host, "two:2");
        for wrong in ["two:2", "/path", "ftp://x", "http://", "http://a b"] {
            options.master = Some(wrong.into());
            let error = connect(&options, &|_| None).await.err().unwrap().to_string();
            assert!(error.starts_with("--master "), "{error}");
        }
    }
}
