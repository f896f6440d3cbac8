//! A real API server, for as long as a test runs: etcd and kube-apiserver as processes on free ports of
//! the loopback interface, with all their files in a temporary directory.
//!
//! The binaries are the user's own, in the folder that `KUBEBUILDER_ASSETS` names, as with envtest.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;
use windlass::runtime::client::{ClientOptions, connect};

/// The environment variable, named as envtest names it.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// From the start of both processes to a server that is ready; a few seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running API server. Both processes end with it, also when the test panics.
pub struct ApiServer {
    // In this order, so that the server goes before its store, and both before their files.
    kube_apiserver: Process,
    etcd: Process,
    dir: TempDir,
}

/// A child that does not outlive its owner.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended by itself.
        let _ = self.child.wait();
    }
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
        Process { child, log }
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// The last words, for whoever has to find out why it did not come up.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("{}:\n{}", self.log.display(), lines[lines.len().saturating_sub(15)..].join("\n"))
    }
}

/// The folder with the two programs; `None` if the user named none.
pub fn assets() -> Option<PathBuf> {
    std::env::var_os(ASSETS).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

impl ApiServer {
    /// Starts both and waits until the server is ready. A port that another process takes between our look
    /// and our use of it costs a second try.
    pub async fn start(assets: &Path) -> Self {
        for program in ["etcd", "kube-apiserver"] {
            assert!(assets.join(program).is_file(), "{ASSETS}={}: there is no {program}", assets.display());
        }
        match Self::try_start(assets).await {
            Ok(server) => server,
            Err(_) => Self::try_start(assets).await.unwrap_or_else(|why| panic!("{why}")),
        }
    }

    async fn try_start(assets: &Path) -> Result<Self, String> {
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
        fs::write(dir.path().join("tokens.csv"), format!("{TOKEN},admin,admin,\"system:masters\"\n"))
            .unwrap();
        fs::write(dir.path().join("kubeconfig"), kubeconfig(&url("https", secure_port)).to_string()).unwrap();
        let flags = [
            format!("--etcd-servers={store}"),
            format!("--secure-port={secure_port}"),
            "--bind-address=127.0.0.1".into(),
            "--cert-dir=certificates".into(),
            "--service-account-issuer=https://localhost".into(),
            "--service-account-key-file=sa.pub".into(),
            "--service-account-signing-key-file=sa.key".into(),
            "--authorization-mode=RBAC".into(),
            "--token-auth-file=tokens.csv".into(),
            // There is no controller here that would make the account which every pod needs.
            "--disable-admission-plugins=ServiceAccount".into(),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
        ];
        let kube_apiserver = Process::start(&assets.join("kube-apiserver"), dir.path(), &flags);
        let mut server = ApiServer { kube_apiserver, etcd, dir };
        server.wait_until_ready().await?;
        Ok(server)
    }

    async fn wait_until_ready(&mut self) -> Result<(), String> {
        let client = self.client().await;
        let end = Instant::now() + PATIENCE;
        loop {
            let ready = client.request_text(http::Request::get("/readyz").body(Vec::new()).unwrap());
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(5), ready).await {
                return Ok(());
            }
            if self.kube_apiserver.has_ended() || self.etcd.has_ended() || Instant::now() > end {
                let (server, store) = (self.kube_apiserver.last_words(), self.etcd.last_words());
                return Err(format!("the API server does not become ready\n{server}\n{store}"));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// A client as any other program has it.
    pub async fn client(&self) -> Client {
        let config = Kubeconfig::read_from(self.dir.path().join("kubeconfig")).unwrap();
        let options = KubeConfigOptions::default();
        Client::try_from(Config::from_custom_kubeconfig(config, &options).await.unwrap()).unwrap()
    }

    /// A client as the daemon builds it from `--kubeconfig`.
    pub async fn client_of_the_daemon(&self) -> Client {
        let options = ClientOptions { kubeconfig: Some(self.dir.path().join("kubeconfig")), master: None };
        connect(&options, &|_| None).await.unwrap().client
    }
}

/// Of a server that nobody else can reach, and that is gone after the test.
const TOKEN: &str = "admin-of-this-test";

/// The certificate is one that the server makes for itself, so there is nothing to check it against.
fn kubeconfig(server: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
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

/// What stands before the point in the public key of a P-256 pair (RFC 5480): the two object identifiers
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
