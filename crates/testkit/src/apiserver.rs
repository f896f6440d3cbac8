//! A real API server, for as long as a test runs: etcd and kube-apiserver as processes on free ports of
//! the loopback interface, with all their files in a temporary directory.
//!
//! The user provides the binaries in the folder that `KUBEBUILDER_ASSETS` names, as with envtest.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass::app::{Controllers, Parts};
use windlass::clock::Clock;
use windlass::config::{ControllerConfig, Enabled};
use windlass::metrics::Metrics;
use windlass::runtime::client::{ClientOptions, connect};
use windlass_nodes::kubelet;

use super::cluster::unlimited;

/// The environment variable, named as envtest names it.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// From the start of both processes to a server that is ready; a few seconds on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running API server. Both processes end with it, also when the test panics.
pub struct ApiServer {
    // In this order, so that the server ends before its store, and both before their files are deleted.
    kube_apiserver: Process,
    etcd: Process,
    dir: TempDir,
}

/// A child, how it was started, and what it has logged.
struct Process {
    child: super::process::Process,
    program: PathBuf,
    dir: PathBuf,
    args: Vec<String>,
    log: PathBuf,
}

impl Process {
    fn start(program: &Path, dir: &Path, args: &[String]) -> Self {
        let name = program.file_name().unwrap().to_string_lossy().into_owned();
        let log = dir.join(format!("{name}.log"));
        let output = fs::File::create(&log).unwrap();
        let child = Command::new(program)
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let (program, dir, args) = (program.to_owned(), dir.to_owned(), args.to_owned());
        Process { child: super::process::Process(child), program, dir, args, log }
    }

    fn kill(&mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }

    fn start_again(&mut self) {
        *self = Process::start(&self.program, &self.dir, &self.args);
    }

    fn has_ended(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_some()
    }

    /// The last lines of the log, for the error message.
    fn last_lines(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("{}:\n{}", self.log.display(), lines[lines.len().saturating_sub(15)..].join("\n"))
    }
}

/// A user with a static token.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// The bearer token.
    pub token: &'static str,
    /// The name that RBAC knows.
    pub name: &'static str,
    /// With commas between them.
    pub groups: &'static str,
}

/// For [`ApiServer::start_flagged`]: clients may set owner references without further rights, as by default.
pub const WITHOUT_OWNER_PERMISSIONS: &str =
    "--disable-admission-plugins=OwnerReferencesPermissionEnforcement";

/// Whether a pod is refused in a namespace that lacks its ServiceAccount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accounts {
    Needed,
    /// No controller creates them.
    NotNeeded,
}

/// The folder with the two programs; `None` if the user named none.
pub fn assets() -> Option<PathBuf> {
    std::env::var_os(ASSETS).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

impl ApiServer {
    /// Starts both and waits until the server is ready. A port that another process takes between our look
    /// and our use of it costs a second try.
    pub async fn start(assets: &Path) -> Self {
        Self::start_with(assets, &[]).await
    }

    /// The same with these users, whose requests are audited; see [`ApiServer::audit`].
    pub async fn start_with(assets: &Path, users: &[User]) -> Self {
        for program in ["etcd", "kube-apiserver"] {
            assert!(assets.join(program).is_file(), "{ASSETS}={}: there is no {program}", assets.display());
        }
        Self::start_by(assets, users, Accounts::NotNeeded, &[]).await
    }

    /// The same with further flags of kube-apiserver.
    pub async fn start_flagged(assets: &Path, users: &[User], flags: &[&str]) -> Self {
        Self::start_by(assets, users, Accounts::NotNeeded, flags).await
    }

    /// The same where each pod needs the ServiceAccount of its namespace, as by default.
    pub async fn start_with_accounts(assets: &Path, users: &[User]) -> Self {
        Self::start_by(assets, users, Accounts::Needed, &[]).await
    }

    async fn start_by(assets: &Path, users: &[User], accounts: Accounts, more: &[&str]) -> Self {
        if let Ok(server) = Self::try_start(assets, users, accounts, more).await {
            return server;
        }
        Self::try_start(assets, users, accounts, more).await.unwrap_or_else(|why| panic!("{why}"))
    }

    async fn try_start(
        assets: &Path,
        users: &[User],
        accounts: Accounts,
        more: &[&str],
    ) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let [client_port, peer_port, secure_port] = free_ports();
        let (store, peers) = (url("http", client_port), url("http", peer_port));
        // Nothing here needs to survive a power cut.
        let flags = [
            "--data-dir=etcd".to_string(),
            format!("--listen-client-urls={store}"),
            format!("--advertise-client-urls={store}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            "--unsafe-no-fsync".into(),
        ];
        let etcd = Process::start(&assets.join("etcd"), dir.path(), &flags);

        let (private, public) = signing_key();
        fs::write(dir.path().join("sa.key"), private).unwrap();
        fs::write(dir.path().join("sa.pub"), public).unwrap();
        let mut tokens = format!("{TOKEN},admin,admin,\"system:masters\"\n");
        for User { token, name, groups } in users {
            tokens += &format!("{token},{name},{name},\"{groups}\"\n");
        }
        fs::write(dir.path().join("tokens.csv"), tokens).unwrap();
        fs::write(dir.path().join("audit.yaml"), audit_policy(users).to_string()).unwrap();
        let server = url("https", secure_port);
        for token in std::iter::once(TOKEN).chain(users.iter().map(|user| user.token)) {
            fs::write(dir.path().join(kubeconfig_name(token)), kubeconfig(&server, token).to_string())
                .unwrap();
        }
        let mut flags = vec![
            format!("--etcd-servers={store}"),
            format!("--secure-port={secure_port}"),
            "--bind-address=127.0.0.1".into(),
            "--cert-dir=certificates".into(),
            "--service-account-issuer=https://localhost".into(),
            "--service-account-key-file=sa.pub".into(),
            "--service-account-signing-key-file=sa.key".into(),
            "--authorization-mode=RBAC".into(),
            "--token-auth-file=tokens.csv".into(),
            "--audit-policy-file=audit.yaml".into(),
            "--audit-log-path=audit.log".into(),
            // That of the embedded server.
            "--service-cluster-ip-range=10.96.0.0/12".into(),
        ];
        // It checks whether the author of an owner reference may block the owner's deletion. Off by default, but there
        // are distributions that have it on.
        if !more.contains(&WITHOUT_OWNER_PERMISSIONS) {
            flags.push("--enable-admission-plugins=OwnerReferencesPermissionEnforcement".into());
        }
        if accounts == Accounts::NotNeeded {
            flags.push("--disable-admission-plugins=ServiceAccount".into());
        }
        flags.extend(more.iter().map(ToString::to_string));
        let kube_apiserver = Process::start(&assets.join("kube-apiserver"), dir.path(), &flags);
        let mut server = ApiServer { kube_apiserver, etcd, dir };
        server.wait_until_ready().await?;
        Ok(server)
    }

    /// Stops both programs, passes the folder with the data of etcd, and starts them again on their ports.
    pub async fn restart(&mut self, change: impl FnOnce(&Path)) {
        self.kube_apiserver.kill();
        self.etcd.kill();
        change(&self.dir.path().join("etcd"));
        self.etcd.start_again();
        self.kube_apiserver.start_again();
        self.wait_until_ready().await.unwrap_or_else(|why| panic!("{why}"));
    }

    async fn wait_until_ready(&mut self) -> Result<(), String> {
        let client = self.client().await;
        let end = Instant::now() + START_TIMEOUT;
        loop {
            let ready = client.request_text(http::Request::get("/readyz").body(Vec::new()).unwrap());
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(5), ready).await {
                return Ok(());
            }
            if self.kube_apiserver.has_ended() || self.etcd.has_ended() || Instant::now() > end {
                let (server, store) = (self.kube_apiserver.last_lines(), self.etcd.last_lines());
                return Err(format!("the API server did not become ready\n{server}\n{store}"));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// An ordinary client.
    pub async fn client(&self) -> Client {
        self.client_of(TOKEN).await
    }

    /// An ordinary client of the user with this token.
    pub async fn client_of(&self, token: &str) -> Client {
        Client::try_from(self.config_of(token).await).unwrap()
    }

    /// A client that returns a refusal with 429, as of an eviction, and does not try again for minutes.
    pub async fn client_without_retries(&self) -> Client {
        let mut config = self.config_of(TOKEN).await;
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    async fn config_of(&self, token: &str) -> Config {
        let config = Kubeconfig::read_from(self.kubeconfig(token)).unwrap();
        Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap()
    }

    /// A client as the daemon builds it from `--kubeconfig`.
    pub async fn client_of_the_daemon(&self) -> Client {
        let options = ClientOptions { kubeconfig: Some(self.kubeconfig(TOKEN)), master: None };
        Client::new(connect(&options, &|_| None).await.unwrap().client, "default")
    }

    /// The kubeconfig of the user with this token.
    pub fn kubeconfig(&self, token: &str) -> PathBuf {
        self.dir.path().join(kubeconfig_name(token))
    }

    /// A file of the test's beside those of the server.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The requests of these users so far, as audit events of level `Metadata`.
    pub fn audit(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.file("audit.log")).unwrap();
        // The last line may be half written.
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// The server is reachable only locally and ends with the test.
pub const TOKEN: &str = "admin-of-this-test";

/// The certificate is one that the server makes for itself, so there is nothing to check it against.
fn kubeconfig(server: &str, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
    })
}

fn kubeconfig_name(token: &str) -> String {
    format!("{token}.kubeconfig")
}

/// Audits the responses to these users, and the start of their watches.
fn audit_policy(users: &[User]) -> Value {
    let names: Vec<&str> = users.iter().map(|user| user.name).collect();
    let mut rules = vec![json!({"level": "None"})];
    if !names.is_empty() {
        rules.insert(0, json!({"level": "Metadata", "users": names}));
    }
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules,
    })
}

fn url(scheme: &str, port: u16) -> String {
    format!("{scheme}://127.0.0.1:{port}")
}

/// All are held until all are found, so that they differ.
fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// The bytes before the point in the public key of a P-256 pair (RFC 5480): the two object identifiers
/// `ecPublicKey` and `prime256v1`, and the head of a bit string of 65 bytes.
const P256_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A new key pair as the server reads it: private (PKCS #8) and public (PKIX), both PEM.
fn signing_key() -> (String, String) {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let private = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref(), &random).unwrap();
    let public = [&P256_HEAD, pair.public_key().as_ref()].concat();
    let pem = |tag: &str, bytes: &[u8]| pem::encode(&pem::Pem::new(tag, bytes));
    (pem("PRIVATE KEY", private.as_ref()), pem("PUBLIC KEY", &public))
}

/// One API server at a time: two of them and their tests slow each other down too much.
static SERVER: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Runs a test that needs a real API server.
pub fn on_a_real_server(test: impl AsyncFnOnce(&Path)) {
    let folder = assets().unwrap_or_else(|| panic!("{ASSETS} names no folder with etcd and kube-apiserver"));
    let _alone = SERVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(test(&folder));
}

/// Nodes and pods.
pub async fn run_nodes(server: &ApiServer, end: &CancellationToken) {
    let options = kubelet::Options {
        // As on the sandbox: an image of this tag never starts.
        never_ready: Some(regex_lite::Regex::new(":broken$").unwrap()),
        ready_delay: Duration::from_millis(300),
        shutdown_delay: Duration::from_millis(300),
        ..kubelet::Options::new(Arc::new(|| Clock::System.now()))
    };
    tokio::spawn(kubelet::run(server.client().await, options, end.clone()));
}

/// The same, and the garbage collector and the namespace controller of the daemon: every cluster has these two.
pub async fn run_the_rest_of_the_cluster(server: &ApiServer, end: &CancellationToken) {
    run_nodes(server, end).await;
    let parts = Parts {
        client: server.client_of_the_daemon().await.into(),
        host: "rest-of-the-cluster".into(),
        clock: Clock::System,
        seed: 0,
        metrics: Metrics::new(),
        election: None,
    };
    let enabled = Enabled::none().with("garbage-collector-controller").with("namespace-controller");
    let config = ControllerConfig { enabled, namespace_deletion_delay: Duration::ZERO, ..unlimited() };
    tokio::spawn(Controllers::new(config, parts).run(end.clone(), Duration::from_secs(10)));
}

/// The ServiceAccount of `deploy/rbac.yaml`, as the API server sees it.
pub const DAEMON: User = User {
    token: "token-of-the-daemon",
    name: "system:serviceaccount:kube-system:windlass",
    groups: "system:serviceaccounts,system:serviceaccounts:kube-system",
};

/// The message with which a scenario panicked.
pub fn said(error: tokio::task::JoinError) -> String {
    let panic = match error.try_into_panic() {
        Ok(panic) => panic,
        Err(error) => return error.to_string(),
    };
    let text = panic.downcast_ref::<String>().cloned();
    text.or(panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}
