//! Finds the API server and builds the client: from flags, a kubeconfig, or the pod we run in.
//!
//! A kubeconfig may name a credential plugin: a program that is run for a token, and that may hang. While
//! the client is built it runs on a thread of its own, for at most [`CREDENTIALS_TIMEOUT`]. Later kube runs
//! it again before a token expires, likewise on a thread of its own; the requests that need the token wait,
//! each within its own timeout, so that a leader whose plugin hangs loses its lease and ends. A plugin that timed
//! out is not killed: kube does not tell which process it is.

mod connector;
mod credentials;
mod proxy;
mod sender;
mod transport;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::client::AuthError;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

pub use sender::{Answer, Client};
pub(crate) use transport::SharedConnection;
use transport::{Transport, TransportError};

/// How often the files of the credentials are checked. client-go checks a token file each minute and
/// certificates every five.
const REFRESH_PERIOD: Duration = Duration::from_secs(30);

/// How long the credentials may take when the client is built. A user may have to log in first, so that
/// this is long; the log says what is awaited.
pub const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(120);

/// The flags about the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: a URL that replaces that of the kubeconfig given with the flag. Without that flag
    /// it stands alone, since the credentials of some other cluster must not go to it.
    pub master: Option<String>,
}

/// A client and its API server.
#[derive(Clone)]
pub struct Connection {
    /// The client. It retries nothing and sets no limit on the time between two reads, since a watch is
    /// silent for as long as nothing changes.
    pub client: Client,
    /// Host and port of the API server, for metrics and logs.
    pub host: String,
    /// Where the address came from, for the log.
    pub source: String,
    /// The certificates of the CA that its configuration names, in DER.
    pub root_ca: Vec<Vec<u8>>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A kubeconfig could not be used.
    #[error("{source_name}: {reason}")]
    Kubeconfig {
        /// The flag or variable, and the file.
        source_name: String,
        /// The defect.
        reason: String,
    },
    /// The service account of the pod we run in could not be used.
    #[error("in-cluster configuration (KUBERNETES_SERVICE_HOST is set): {0}")]
    InCluster(Box<InClusterError>),
    /// `--master` is not a URL.
    #[error("--master {url:?} is not a URL: {reason}")]
    Master {
        /// The URL that was given.
        url: String,
        /// The defect.
        reason: String,
    },
    /// No source names the API server.
    #[error(
        "no API server is configured: set --kubeconfig, --master or KUBECONFIG; the file {home} does not exist, and \
         this is not a pod (KUBERNETES_SERVICE_HOST is not set)"
    )]
    Nowhere {
        /// The default kubeconfig.
        home: String,
    },
    /// The credentials or files for the client did not arrive in time.
    #[error("{source_name}: {what} did not finish within {} s", limit.as_secs_f64())]
    Slow {
        /// Where the configuration came from.
        source_name: String,
        /// The answer that was awaited.
        what: String,
        /// For how long.
        limit: Duration,
    },
    /// The client could not be built from a valid configuration.
    #[error("{source_name}: {reason}")]
    Build {
        /// Where the configuration came from.
        source_name: String,
        /// The failure.
        reason: String,
    },
}

impl ClientError {
    /// Whether a flag, a variable or a file has to be mended, so that a restart alone does not help.
    pub fn is_of_configuration(&self) -> bool {
        !matches!(self, ClientError::Slow { .. } | ClientError::Build { .. })
    }
}

/// Where the configuration is read from.
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

/// Chooses the source: the flags, then `$KUBECONFIG`, then `~/.kube/config`, then the pod we run in.
fn choose(
    options: &ClientOptions,
    env: &dyn Fn(&str) -> Option<String>,
    exists: &dyn Fn(&Path) -> bool,
) -> Result<Source, ClientError> {
    if let Some(file) = &options.kubeconfig {
        let name = format!("--kubeconfig {}", file.display());
        return Ok(Source::Files { name, files: vec![file.clone()] });
    }
    if options.master.is_some() {
        return Ok(Source::Master);
    }
    if let Some(list) = env("KUBECONFIG").filter(|list| !list.is_empty()) {
        // As kubectl has it, files of the list that do not exist are passed over.
        let files: Vec<PathBuf> = std::env::split_paths(&list).filter(|file| exists(file)).collect();
        let files = if files.is_empty() { std::env::split_paths(&list).take(1).collect() } else { files };
        return Ok(Source::Files { name: format!("KUBECONFIG={list}"), files });
    }
    // As kubectl has it, whatever the system calls the home directory; HOME wins on Windows too.
    let names = if cfg!(windows) { ["HOME", "USERPROFILE"].as_slice() } else { &["HOME"] };
    let home = names.iter().find_map(|name| env(name).filter(|home| !home.is_empty()));
    let home = home.map(|home| Path::new(&home).join(".kube/config"));
    if let Some(file) = home.as_ref().filter(|file| exists(file)) {
        return Ok(Source::Files { name: file.display().to_string(), files: vec![file.clone()] });
    }
    if env("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()) {
        return Ok(Source::InCluster);
    }
    let home = home.map_or_else(|| "~/.kube/config".to_owned(), |file| file.display().to_string());
    Err(ClientError::Nowhere { home })
}

/// Builds the client. `env` reads an environment variable. Nothing here holds up the caller's thread.
///
/// # Errors
/// When no source says where the API server is, or the one that does cannot be used. The message names
/// the flag, variable or file.
pub async fn connect(
    options: &ClientOptions,
    env: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Result<Connection, ClientError> {
    connect_within(CREDENTIALS_TIMEOUT, REFRESH_PERIOD, options, env).await
}

async fn connect_within(
    limit: Duration,
    refresh_period: Duration,
    options: &ClientOptions,
    env: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Result<Connection, ClientError> {
    let source = choose(options, env, &|file| file.is_file())?;
    let name = match &source {
        Source::Files { name, .. } => name.clone(),
        Source::InCluster => "the service account of this pod".to_owned(),
        Source::Master => "--master".to_owned(),
    };
    let slow = |what: &str| ClientError::Slow { source_name: name.clone(), what: what.to_owned(), limit };
    let reading = aside(limit, move || source.read());
    let Loaded { mut config, plugin, proxy_url } =
        reading.await.ok_or_else(|| slow("reading its files"))??;
    config.cluster_url = match &options.master {
        Some(url) => parse_master(url)?,
        None => {
            server_url(&config).map_err(|reason| ClientError::Build { source_name: name.clone(), reason })?
        }
    };
    let route = proxy::route(&config.cluster_url, proxy_url.as_deref(), env)
        .map_err(|error| ClientError::Build { source_name: name.clone(), reason: error.to_string() })?;
    if let proxy::Route::Proxied(proxy) = &route {
        tracing::info!(%proxy, "connecting to the API server through a proxy");
    }
    config.headers.push((USER_AGENT, user_agent()));
    let host = match (config.cluster_url.host(), config.cluster_url.port_u16()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => String::new(),
    };
    if let Some(plugin) = &plugin {
        tracing::info!(source = name, "getting credentials from {plugin}");
    }
    let root_ca = config.root_cert.clone().unwrap_or_default();
    let building = aside(limit, move || Transport::new(config, route)).await;
    let transport = building
        .ok_or_else(|| slow(plugin.as_deref().unwrap_or("reading the credentials")))?
        .map_err(|error| ClientError::Build {
            source_name: name.clone(),
            reason: match (&error, &plugin) {
                (TransportError::Kube(kube::Error::Auth(error)), Some(plugin)) => {
                    without_secrets(plugin, error)
                }
                _ => format!("could not build the client: {}", first_line(&error)),
            },
        })?;
    transport.keep_fresh(refresh_period);
    // It retries nothing: a retried create makes a second pod, and a hidden retry outlives a
    // deadline. The callers know which requests they can retry.
    Ok(Connection { client: transport.into(), host, source: name, root_ca })
}

/// Why a configuration of the caller makes no client.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A proxy, a name or a token file cannot be used. The text holds no secret.
    #[error("{0}")]
    Unusable(String),
    /// The credentials or certificates cannot be used.
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

/// Builds a client for a configuration that the caller has read: by way of `proxy_url`, the proxy of its kubeconfig, else
/// of the environment's. The proxy in the configuration itself is not used: kube matches `NO_PROXY` against the address
/// of the proxy. May block, as a credential plugin may run; must be called in a runtime.
///
/// # Errors
/// When the proxy or the credentials cannot be used.
pub fn build(
    mut config: Config,
    proxy_url: Option<&str>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Client, BuildError> {
    config.cluster_url = server_url(&config).map_err(BuildError::Unusable)?;
    let route = proxy::route(&config.cluster_url, proxy_url, env)
        .map_err(|error| BuildError::Unusable(error.to_string()))?;
    let transport = Transport::new(config, route).map_err(|error| match error {
        TransportError::Kube(error) => BuildError::Kube(error),
        other => BuildError::Unusable(other.to_string()),
    })?;
    transport.keep_fresh(REFRESH_PERIOD);
    Ok(transport.into())
}

/// Runs work that may block on a thread of its own; `None` if it takes longer than `limit`. The thread then
/// stays behind until its work ends.
async fn aside<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match tokio::time::timeout(limit, tokio::task::spawn_blocking(work)).await.ok()? {
        Ok(done) => Some(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The program ends.
            Err(_) => std::future::pending().await,
        },
    }
}

/// The content of a source.
struct Loaded {
    config: Config,
    /// The credential plugin that it names.
    plugin: Option<String>,
    /// The proxy that it names.
    proxy_url: Option<String>,
}

impl Source {
    /// The configuration. Blocks.
    fn read(self) -> Result<Loaded, ClientError> {
        match self {
            Source::Files { name, files } => load(&files).map_err(|error| {
                let reason = match &error {
                    // kube quotes the path, which the name has unless there are several.
                    KubeconfigError::ReadConfig(error, _) if files.len() == 1 => error.to_string(),
                    error => first_line(error),
                };
                ClientError::Kubeconfig { source_name: name, reason }
            }),
            Source::InCluster => {
                let config = Config::incluster().map_err(|error| ClientError::InCluster(Box::new(error)))?;
                Ok(Loaded { config, plugin: None, proxy_url: None })
            }
            Source::Master => {
                let config = Config::new(http::Uri::default());
                Ok(Loaded { config, plugin: None, proxy_url: None })
            }
        }
    }
}

fn load(files: &[PathBuf]) -> Result<Loaded, KubeconfigError> {
    let mut merged = Kubeconfig::default();
    for file in files {
        merged = merged.merge(Kubeconfig::read_from(file)?)?;
    }
    let context =
        merged.contexts.iter().find(|context| Some(&context.name) == merged.current_context.as_ref());
    let context = context.and_then(|context| context.context.clone()).unwrap_or_default();
    let user = context.user.clone().unwrap_or_default();
    for named in &mut merged.auth_infos {
        let Some(user) = &mut named.auth_info else { continue };
        // As in kubectl, an empty value counts as absent.
        for text in [
            &mut user.token_file,
            &mut user.client_certificate,
            &mut user.client_certificate_data,
            &mut user.client_key,
        ] {
            text.take_if(|text| text.is_empty());
        }
    }
    let cluster = merged.clusters.iter_mut().find(|cluster| cluster.name == context.cluster);
    let (mut root_cert_file, mut proxy_url) = (None, None);
    if let Some(cluster) = cluster.and_then(|cluster| cluster.cluster.as_mut()) {
        for text in [&mut cluster.certificate_authority, &mut cluster.certificate_authority_data] {
            text.take_if(|text| text.is_empty());
        }
        if cluster.certificate_authority_data.is_none() {
            root_cert_file = cluster.certificate_authority.clone().map(PathBuf::from);
        }
        // Its own reading of the environment differs from Go's. With the kubeconfig's proxy it does not read it.
        proxy_url = cluster.proxy_url.replace("http://unused.invalid".to_owned());
    }
    // It only reads files, and never waits for anything else.
    let options = KubeConfigOptions::default();
    let loading = Config::from_custom_kubeconfig(merged, &options);
    let mut config = tokio::runtime::Handle::current().block_on(loading)?;
    config.root_cert_file = root_cert_file;
    if let Some(told) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
        told.proxy_url = proxy_url.clone();
    }
    let exec = config.auth_info.exec.as_ref().and_then(|exec| exec.command.as_ref());
    let provider = config.auth_info.auth_provider.as_ref().and_then(|it| it.config.get("cmd-path"));
    let plugin = exec.or(provider).map(|it| format!("the credential plugin {it:?} of the user {user:?}"));
    Ok(Loaded { config, plugin, proxy_url })
}

/// kube's own text in one line. The further lines of a syntax error show the file around it, and with it
/// perhaps a token.
fn first_line(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Why there are no credentials. For a plugin that fails kube shows the environment and the output, which
/// may both contain secrets; only its stderr is repeated here.
pub(super) fn without_secrets(plugin: &str, error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let said = String::from_utf8_lossy(&out.stderr);
            let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            format!("{plugin} ended with {}: {}", out.status, said.join("; "))
        }
        AuthError::AuthExecParse(_) => format!("what {plugin} wrote is no ExecCredential"),
        other => format!("{plugin}: {}", first_line(other)),
    }
}

/// The URL of a configuration's server. One without a scheme is taken as client-go takes it (`DefaultServerURL`): as https
/// where the configuration has certificates, else as http.
///
/// # Errors
/// With a sentence, if it has another scheme or names no host.
pub fn server_url(config: &Config) -> Result<http::Uri, String> {
    let url = &config.cluster_url;
    let shown = without_password(url);
    let unusable = || format!("server {shown}: it must begin with https:// or http:// and name a host");
    if url.host().is_none_or(str::is_empty) || !matches!(url.scheme_str(), None | Some("http" | "https")) {
        return Err(unusable());
    }
    if url.scheme().is_some() {
        return Ok(url.clone());
    }
    let auth = &config.auth_info;
    let speaks_tls = config.root_cert.is_some()
        || config.accept_invalid_certs
        || auth.client_certificate.is_some()
        || auth.client_certificate_data.is_some();
    let mut parts = url.clone().into_parts();
    parts.scheme = Some(if speaks_tls { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP });
    parts.path_and_query.get_or_insert(http::uri::PathAndQuery::from_static("/"));
    http::Uri::from_parts(parts).map_err(|_| unusable())
}

/// A URL without the user and the password that it may hold, and without a slash at its end.
pub fn without_password(url: &http::Uri) -> String {
    let text = url.to_string();
    let text = text.trim_end_matches('/');
    let Some(at) = url.authority().and_then(|authority| authority.as_str().rfind('@')) else {
        return text.to_owned();
    };
    let begin = text.find("://").map_or(0, |end| end + 3);
    format!("{}{}", &text[..begin], &text[begin + at + 1..])
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
    fn a_url_alone_suffices_and_a_missing_configuration_is_explained() {
        let master = ClientOptions { kubeconfig: None, master: Some("http://127.0.0.1:8001".into()) };
        assert_eq!(chosen(&master, &[("HOME", "/h")], &["/h/.kube/config"]).unwrap(), Source::Master);
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
    async fn a_failed_credential_plugin_is_reported_without_secrets() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let options = ClientOptions { kubeconfig: Some(file.clone()), master: None };
        for (script, words) in [
            ("echo hidden; echo log in first >&2; exit 3", "exit status: 3: log in first"),
            ("echo '{hidden'", "is no ExecCredential"),
        ] {
            let text = "{apiVersion: v1, kind: Config, current-context: c,
                clusters: [{name: k, cluster: {server: 'http://one:1'}}],
                contexts: [{name: c, context: {cluster: k, user: robot}}],
                users: [{name: robot, user: {exec: {apiVersion: client.authentication.k8s.io/v1,
                    command: /bin/sh, args: [-c, SCRIPT], env: [{name: PASSWORD, value: hidden}],
                    interactiveMode: Never}}}]}";
            std::fs::write(&file, text.replace("SCRIPT", &format!("{script:?}"))).unwrap();
            let error = anyhow::Error::from(connect(&options, &|_| None).await.err().unwrap());
            let said = format!("{error:#}");
            assert!(said.contains(words) && said.contains("robot") && !said.contains("hidden"), "{said}");
            assert_eq!(said.matches(words).count(), 1, "{said}");
        }
        std::fs::write(&file, "users: [{name: u, user: {token: hidden}").unwrap();
        let error = anyhow::Error::from(connect(&options, &|_| None).await.err().unwrap());
        let said = format!("{error:#}");
        assert!(said.lines().count() == 1 && !said.contains("hidden"), "{said}");
    }

    #[tokio::test]
    async fn a_credential_plugin_that_hangs_is_named_with_its_user_and_file() {
        let directory = tempfile::tempdir().unwrap();
        let (file, lives) = (directory.path().join("config"), directory.path().join("lives"));
        std::fs::write(&lives, "").unwrap();
        let text = "{apiVersion: v1, kind: Config, current-context: c,
            clusters: [{name: k, cluster: {server: 'http://one:1'}}],
            contexts: [{name: c, context: {cluster: k, user: robot}}],
            users: [{name: robot, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh,
                args: [-c, 'while [ -e LIVES ]; do sleep 0.05; done'], interactiveMode: Never}}}]}";
        std::fs::write(&file, text.replace("LIVES", lives.to_str().unwrap())).unwrap();
        let options = ClientOptions { kubeconfig: Some(file.clone()), master: None };
        let error = connect_within(Duration::from_millis(300), REFRESH_PERIOD, &options, &|_| None)
            .await
            .err()
            .unwrap();
        assert_eq!(
            error.to_string(),
            format!(
                "--kubeconfig {}: the credential plugin \"/bin/sh\" of the user \"robot\" did not finish within \
                 0.3 s",
                file.display()
            )
        );
    }

    #[test]
    fn a_server_without_a_scheme_is_taken_as_client_go_takes_it() {
        let read = |server: &'static str, has_tls: bool| {
            let mut config = Config::new(http::Uri::from_static(server));
            config.accept_invalid_certs = has_tls;
            server_url(&config).map(|url| url.to_string())
        };
        assert_eq!(read("127.0.0.1:1", false).unwrap(), "http://127.0.0.1:1/");
        assert_eq!(read("localhost", true).unwrap(), "https://localhost/");
        assert_eq!(read("https://a:6443/k8s", false).unwrap(), "https://a:6443/k8s");
        for server in ["/path", "foo://a"] {
            let error = read(server, false).unwrap_err();
            assert!(error.starts_with(&format!("server {server}: it must begin with https://")), "{error}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        let shown = |url| without_password(&http::Uri::from_static(url));
        assert_eq!(shown("http://u:p@host:1/"), "http://host:1");
        assert_eq!(shown("https://host/x"), "https://host/x");
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
