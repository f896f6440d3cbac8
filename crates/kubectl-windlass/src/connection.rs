//! Finds the API server as kubectl does: flags, kubeconfigs, or the pod that the plugin runs in.

use std::path::{Path, PathBuf};

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::client::AuthError;
use kube::config::{
    AuthInfo, Cluster, Context, ExecInteractiveMode, KubeConfigOptions, Kubeconfig, KubeconfigError,
    NamedAuthInfo, NamedCluster, NamedContext,
};
use windlass::runtime::client::{self, BuildError};

use crate::cli::GlobalArgs;
use crate::interruption::on_a_thread;

/// A client, and the namespace of the command.
pub struct Connection {
    /// The client. It repeats no request.
    pub client: kube::Client,
    /// The namespace: the flag's, the context's, the pod's, or `default`.
    pub namespace: String,
    /// Whether the namespace comes from the flag: then an object of another one is an error.
    pub namespace_is_enforced: bool,
    /// Its address, and what names it, for messages.
    pub server: String,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// A kubeconfig could not be used.
    #[error("{source_name}: {reason}")]
    Kubeconfig {
        /// The flag or variable, with the file.
        source_name: String,
        /// The defect.
        reason: String,
    },
    /// Nothing says where the API server is.
    #[error(
        "no API server is configured: set --kubeconfig, --server or KUBECONFIG ({looked} does not exist, and this is \
         not a pod)"
    )]
    Nowhere {
        /// The file that was looked for.
        looked: String,
    },
    /// The service account of the pod could not be used.
    #[error("in-cluster configuration (KUBERNETES_SERVICE_HOST is set): {0}")]
    InCluster(String),
}

/// Where the configuration comes from.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// Files, of which an earlier one wins; the name is for messages.
    Files {
        name: String,
        files: Vec<PathBuf>,
    },
    /// Only flags.
    Flags,
    InCluster,
}

/// Chooses the source: `--kubeconfig` alone, else the files of `$KUBECONFIG` that exist, else `~/.kube/config`, else
/// `--server` alone, else the pod.
fn choose(
    args: &GlobalArgs,
    env: &dyn Fn(&str) -> Option<String>,
    exists: &dyn Fn(&Path) -> bool,
) -> Result<Source, ConnectionError> {
    if let Some(file) = &args.kubeconfig {
        let name = format!("--kubeconfig {}", file.display());
        return Ok(Source::Files { name, files: vec![file.clone()] });
    }
    let list = env("KUBECONFIG").filter(|list| !list.is_empty());
    let home_names = if cfg!(windows) { ["HOME", "USERPROFILE"].as_slice() } else { &["HOME"] };
    let home = home_names.iter().find_map(|name| env(name).filter(|home| !home.is_empty()));
    let (name, candidates) = match (&list, home) {
        (Some(list), _) => (format!("KUBECONFIG={list}"), std::env::split_paths(list).collect()),
        (None, Some(home)) => {
            let file = Path::new(&home).join(".kube/config");
            (file.display().to_string(), vec![file])
        }
        (None, None) => ("~/.kube/config".to_owned(), Vec::new()),
    };
    let files: Vec<PathBuf> = candidates.into_iter().filter(|file| exists(file)).collect();
    if !files.is_empty() {
        return Ok(Source::Files { name, files });
    }
    if args.server.is_some() {
        return Ok(Source::Flags);
    }
    if env("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()) {
        return Ok(Source::InCluster);
    }
    Err(ConnectionError::Nowhere { looked: name })
}

/// Builds the client.
///
/// # Errors
/// When nothing says where the API server is, or its description cannot be used. The message names the file or flag.
pub async fn connect(
    args: &GlobalArgs,
    env: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Result<Connection, ConnectionError> {
    connect_with(args, env, false).await
}

/// The same for a command that may read stdin itself: then a credential plugin must not.
///
/// # Errors
/// As [`connect`].
pub async fn connect_with(
    args: &GlobalArgs,
    env: &(dyn Fn(&str) -> Option<String> + Sync),
    reads_stdin: bool,
) -> Result<Connection, ConnectionError> {
    let source = choose(args, env, &|file| file.is_file())?;
    let (name, (mut config, proxy_url)) = match source {
        Source::InCluster => {
            let mut config =
                Config::incluster().map_err(|error| ConnectionError::InCluster(error.to_string()))?;
            override_user(&mut config.auth_info, args);
            ("the service account of this pod".to_owned(), (config, None))
        }
        Source::Flags => ("--server".to_owned(), load("--server", &[], args).await?),
        Source::Files { name, files } => {
            let loaded = load(&name, &files, args).await?;
            (name, loaded)
        }
    };
    if let Some(exec) = config.auth_info.exec.as_mut().filter(|_| reads_stdin) {
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
    config.default_retry = false;
    let agent = concat!("kubectl-windlass/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    // As kubectl takes `-n "$UNSET"`.
    let given = args.namespace.clone().filter(|namespace| !namespace.is_empty());
    let namespace = given.clone().unwrap_or_else(|| config.default_namespace.clone());
    let context = args.context.as_ref().map_or(String::new(), |context| format!(", context {context}"));
    config.cluster_url = client::server_url(&config)
        .map_err(|reason| ConnectionError::Kubeconfig { source_name: name.clone(), reason })?;
    let server = format!("{} ({name}{context})", client::without_password(&config.cluster_url));
    let client = build(config, proxy_url, env).await;
    let client = client.map_err(|reason| ConnectionError::Kubeconfig { source_name: name, reason })?;
    let client = kube::Client::new(client, namespace.clone());
    Ok(Connection { client, namespace, namespace_is_enforced: given.is_some(), server })
}

/// The variables that name proxies.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"];

/// Builds the daemon's client, which goes by way of proxies as kubectl does. A credential plugin may ask the user
/// something, and Ctrl-C must end the program meanwhile.
async fn build(
    config: Config,
    proxy_url: Option<String>,
    env: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Result<client::Client, String> {
    let variables = PROXY_VARIABLES.map(|name| (name, env(name)));
    let runtime = tokio::runtime::Handle::current();
    let built = on_a_thread(move || {
        let _entered = runtime.enter();
        let env = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).and_then(|(_, value)| value.clone())
        };
        client::build(config, proxy_url.as_deref(), &env)
    });
    match built.await {
        Some(Ok(client)) => Ok(client),
        Some(Err(BuildError::Kube(error))) => Err(explain(&error)),
        Some(Err(BuildError::Unusable(reason))) => Err(reason),
        None => Err("the client could not be built".to_owned()),
    }
}

/// A client for what is no API server: without credentials, by way of the proxies of the environment.
///
/// # Errors
/// With the reason, which names the variable of a proxy that cannot be used.
pub async fn anonymous(config: Config) -> Result<kube::Client, String> {
    let client = build(config, None, &|name| std::env::var(name).ok()).await?;
    Ok(kube::Client::new(client, "default"))
}

/// The name of a context, cluster or user that the flags alone describe.
const OF_FLAGS: &str = "kubectl-windlass flags";

/// The configuration that files and flags describe, and the proxy that they name.
async fn load(
    name: &str,
    files: &[PathBuf],
    args: &GlobalArgs,
) -> Result<(Config, Option<String>), ConnectionError> {
    let wrong = |reason: String| ConnectionError::Kubeconfig {
        source_name: name.to_owned(),
        reason: first_line(&reason),
    };
    let mut merged = Kubeconfig::default();
    for file in files {
        let read = Kubeconfig::read_from(file).map_err(|error| {
            // kube quotes the path of a file that it cannot read, which the name of the source has unless there are several.
            let text = match error {
                KubeconfigError::ReadConfig(error, _) => error.to_string(),
                error => error.to_string(),
            };
            wrong(if files.len() == 1 { text } else { format!("{}: {text}", file.display()) })
        })?;
        merged = merged.merge(read).map_err(|error| wrong(error.to_string()))?;
    }
    let chosen =
        args.context.clone().or_else(|| merged.current_context.clone()).filter(|name| !name.is_empty());
    let known = |name: &String| merged.contexts.iter().find(|context| &context.name == name);
    let context = match &chosen {
        Some(name) => {
            let found = known(name).and_then(|context| context.context.clone());
            found.ok_or_else(|| {
                let names: Vec<&str> = merged.contexts.iter().map(|context| &*context.name).collect();
                wrong(format!("context {name:?} does not exist; there are: {}", names.join(", ")))
            })?
        }
        None if args.server.is_some() || args.cluster.is_some() => Context::default(),
        None => {
            return Err(wrong(
                "no current context: set --context, or `kubectl config use-context`".to_owned(),
            ));
        }
    };
    let mut context = context;
    context.cluster = args.cluster.clone().unwrap_or(context.cluster);
    context.user = args.user.clone().or(context.user);

    let named = merged.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let mut cluster = match named.and_then(|cluster| cluster.cluster.clone()) {
        Some(cluster) => cluster,
        None if args.server.is_some() && args.cluster.is_none() => Cluster::default(),
        None => return Err(wrong(format!("cluster {:?} does not exist", context.cluster))),
    };
    override_cluster(&mut cluster, args);
    // kube reads the environment only where the kubeconfig names no proxy.
    let proxy_url = cluster.proxy_url.replace("http://unused.invalid".to_owned());
    let user = context.user.as_ref();
    let named = user.and_then(|user| merged.auth_infos.iter().find(|named| &named.name == user));
    let mut auth_info = match named {
        Some(named) => named.auth_info.clone().unwrap_or_default(),
        None if args.user.is_some() => {
            return Err(wrong(format!("user {:?} does not exist", args.user.as_deref().unwrap_or_default())));
        }
        None => AuthInfo::default(),
    };
    override_user(&mut auth_info, args);

    // One context that holds exactly what was chosen.
    context.cluster = OF_FLAGS.to_owned();
    context.user = Some(OF_FLAGS.to_owned());
    let mut resolved = Kubeconfig::default();
    let of_flags = || OF_FLAGS.to_owned();
    resolved.contexts.push(named_as(NamedContext::default(), |named| {
        (named.name, named.context) = (of_flags(), Some(context));
    }));
    resolved.clusters.push(named_as(NamedCluster::default(), |named| {
        (named.name, named.cluster) = (of_flags(), Some(cluster));
    }));
    resolved.auth_infos.push(named_as(NamedAuthInfo::default(), |named| {
        (named.name, named.auth_info) = (of_flags(), Some(auth_info));
    }));
    resolved.current_context = Some(of_flags());
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(resolved, &options).await;
    let mut config = config.map_err(|error| wrong(error.to_string()))?;
    if let Some(told) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
        told.proxy_url.clone_from(&proxy_url);
    }
    Ok((config, proxy_url))
}

fn named_as<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

fn override_cluster(cluster: &mut Cluster, args: &GlobalArgs) {
    let path = |path: &PathBuf| path.display().to_string();
    if args.server.is_some() {
        cluster.server.clone_from(&args.server);
    }
    if let Some(file) = &args.certificate_authority {
        cluster.certificate_authority = Some(path(file));
        cluster.certificate_authority_data = None;
    }
    if args.insecure_skip_tls_verify {
        cluster.insecure_skip_tls_verify = Some(true);
        (cluster.certificate_authority, cluster.certificate_authority_data) = (None, None);
    }
    if args.tls_server_name.is_some() {
        cluster.tls_server_name.clone_from(&args.tls_server_name);
    }
}

fn override_user(user: &mut AuthInfo, args: &GlobalArgs) {
    let path = |path: &PathBuf| path.display().to_string();
    if let Some(file) = &args.client_certificate {
        (user.client_certificate, user.client_certificate_data) = (Some(path(file)), None);
    }
    if let Some(file) = &args.client_key {
        (user.client_key, user.client_key_data) = (Some(path(file)), None);
    }
    if let Some(token) = &args.token {
        (user.token, user.token_file) = (Some(token.clone().into()), None);
        (user.exec, user.auth_provider, user.username, user.password) = (None, None, None, None);
    }
    if args.impersonate.is_some() {
        user.impersonate.clone_from(&args.impersonate);
    }
    if !args.impersonate_groups.is_empty() {
        user.impersonate_groups = Some(args.impersonate_groups.clone());
    }
    if args.impersonate_uid.is_some() {
        user.impersonate_uid.clone_from(&args.impersonate_uid);
    }
}

/// The further lines of a syntax error show the file around it, and with it perhaps a token.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// kube's error as a message. For a credential plugin that fails, kube shows its environment and output, which may
/// contain secrets: only its stderr is repeated.
pub fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(auth) => match auth {
            AuthError::AuthExecRun { out, .. } => {
                let said = String::from_utf8_lossy(&out.stderr);
                format!("the credential plugin ended with {}: {}", out.status, crate::text::harmless(&said))
            }
            AuthError::AuthExecParse(_) => "the credential plugin wrote no ExecCredential".to_owned(),
            other => first_line(&other.to_string()),
        },
        other => with_cause(other),
    }
}

/// The same of a server that cannot be reached: its address, and the cause.
pub fn unreached(error: &kube::Error, server: &str) -> String {
    let text = explain(error);
    let Some((_, cause)) = text.split_once("client error (Connect)") else { return text };
    let cause = cause.trim_start_matches([':', ' ']);
    let cause = cause.split(" (os error ").next().unwrap_or(cause);
    let advice = match cause.contains("InvalidContentType") {
        true => "; it does not answer in TLS: is its address one of http://?",
        false => "",
    };
    format!("cannot reach {server}: {cause}{advice}")
}

/// An error with what is at the bottom of it, such as "Connection refused", which the outermost text may lack.
fn with_cause(error: &dyn std::error::Error) -> String {
    let text = first_line(&error.to_string());
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let cause = first_line(&deepest.to_string());
    if text.contains(&cause) { text } else { format!("{text}: {cause}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "
apiVersion: v1
kind: Config
current-context: a
contexts:
- {name: a, context: {cluster: c, user: u, namespace: shop}}
- {name: b, context: {cluster: c, user: u}}
clusters:
- {name: c, cluster: {server: 'http://127.0.0.1:1'}}
users:
- {name: u, user: {token: secret}}
";

    fn chosen(args: &GlobalArgs, variables: &[(&str, &str)], files: &[&str]) -> Result<Source, String> {
        let env =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let exists = |file: &Path| files.iter().any(|known| Path::new(known) == file);
        choose(args, &env, &exists).map_err(|error| error.to_string())
    }

    #[test]
    fn missing_files_of_the_list_are_skipped_and_an_explicit_file_stands_alone() {
        let list = [("KUBECONFIG", "/a:/b"), ("HOME", "/h")];
        let files = |source: Result<Source, String>| match source.unwrap() {
            Source::Files { files, .. } => files.iter().map(|file| file.display().to_string()).collect(),
            other => vec![format!("{other:?}")],
        };
        let args = GlobalArgs::default();
        assert_eq!(files(chosen(&args, &list, &["/b"])), ["/b"]);
        assert_eq!(files(chosen(&args, &[("HOME", "/h")], &["/h/.kube/config"])), ["/h/.kube/config"]);
        let explicit = GlobalArgs { kubeconfig: Some("/x".into()), ..GlobalArgs::default() };
        assert_eq!(files(chosen(&explicit, &list, &["/a", "/b"])), ["/x"]);
        let pod = [("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
        assert_eq!(files(chosen(&args, &pod, &[])), ["InCluster"]);
        let error = chosen(&args, &list, &[]).unwrap_err();
        assert!(error.contains("KUBECONFIG=/a:/b does not exist"), "{error}");
    }

    async fn connected(change: impl FnOnce(&mut GlobalArgs)) -> Result<(String, bool), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), ONE).unwrap();
        let mut args = GlobalArgs { kubeconfig: Some(file.path().to_owned()), ..GlobalArgs::default() };
        change(&mut args);
        let connection = connect(&args, &|_| None).await.map_err(|error| error.to_string())?;
        Ok((connection.namespace, connection.namespace_is_enforced))
    }

    #[tokio::test]
    async fn the_namespace_comes_from_the_flag_or_the_context() {
        assert_eq!(connected(|_| {}).await.unwrap(), ("shop".to_owned(), false));
        assert_eq!(connected(|args| args.context = Some("b".into())).await.unwrap().0, "default");
        let flagged = connected(|args| args.namespace = Some("x".into())).await;
        assert_eq!(flagged.unwrap(), ("x".to_owned(), true));
        let unset = connected(|args| args.namespace = Some(String::new())).await;
        assert_eq!(unset.unwrap(), ("shop".to_owned(), false));
    }

    #[tokio::test]
    async fn an_unknown_context_is_named_with_the_file_and_the_known_ones() {
        let error = connected(|args| args.context = Some("z".into())).await.unwrap_err();
        assert!(error.starts_with("--kubeconfig /"), "{error}");
        assert!(error.ends_with("context \"z\" does not exist; there are: a, b"), "{error}");
        let error = connected(|args| args.user = Some("z".into())).await.unwrap_err();
        assert!(error.ends_with("user \"z\" does not exist"), "{error}");
    }

    #[tokio::test]
    async fn a_refused_connection_is_named() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let args = GlobalArgs { server: Some(format!("http://{nobody}")), ..GlobalArgs::default() };
        let connection = connect(&args, &|_| None).await.unwrap();
        let request = http::Request::get("/version").body(kube::client::Body::empty()).unwrap();
        let error = connection.client.send(request).await.unwrap_err();
        assert!(explain(&error).to_lowercase().contains("refused"), "{}", explain(&error));
    }
}
