//! One real node: containerd and a kubelet as processes, all of their state below a folder. Pods use the host's network,
//! and their images are made here of busybox, so that nothing is fetched.
//!
//! Runs with cgroup v1 or v2, and without a cgroup for each pod: the limits of containers are not what is tested.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::apiserver::{ApiServer, TOKEN, assets};
use windlass_testkit::process::Process;

pub(super) const NODE: &str = "real-node";

/// The images, and what a container of each runs.
const IMAGES: [(&str, &str); 5] = [
    ("localhost/pause:1", "exec sleep 1000000"),
    ("localhost/app:1", "trap 'exit 0' TERM; while true; do sleep 0.2; done"),
    ("localhost/app:2", "trap 'exit 0' TERM; while true; do sleep 0.2; done"),
    ("localhost/crash:1", "echo 'the configuration is broken'; exit 3"),
    ("localhost/job:1", "sleep 1; echo done"),
];

const COMMANDS_OF_BUSYBOX: [&str; 6] = ["sh", "sleep", "cat", "test", "echo", "true"];

/// Of containerd and the kubelet; they take a second or two.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The programs that are missing on this machine, and the rights; empty if a node can run.
pub(crate) fn missing() -> Vec<&'static str> {
    let in_path = |program: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|folder| folder.join(program).is_file())
    };
    let given = |program: &str| assets().is_some_and(|folder| folder.join(program).is_file());
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let mut missing: Vec<_> = ["containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox"]
        .into_iter()
        .filter(|program| !in_path(program))
        .collect();
    missing.extend(["kubelet", "kube-scheduler"].into_iter().filter(|program| !given(program)));
    missing.extend((!is_root).then_some("root"));
    missing
}

pub(super) struct Machine {
    folder: PathBuf,
    kubelet: Option<Process>,
    containerd: Process,
}

impl Machine {
    /// Starts both, and imports the images. The node registers itself as [`NODE`].
    pub(super) fn start(server: &ApiServer) -> Self {
        let folder = server.file("node");
        fs::create_dir_all(folder.join("cni")).unwrap();
        let loopback = json!({"cniVersion": "1.0.0", "name": "lo", "plugins": [{"type": "loopback"}]});
        fs::write(folder.join("cni/10-lo.conflist"), loopback.to_string()).unwrap();
        fs::write(folder.join("containerd.toml"), containerd_config(&folder)).unwrap();
        fs::write(folder.join("kubelet.json"), kubelet_config(&folder).to_string()).unwrap();
        let config = folder.join("containerd.toml");
        let log = folder.join("containerd.log");
        let containerd =
            Process::start(Path::new("containerd"), &["--config", config.to_str().unwrap()], &log);
        let mut machine = Machine { folder, kubelet: None, containerd };
        let end = Instant::now() + START_TIMEOUT;
        while !machine.ctr(&["version"]).status.success() {
            assert!(Instant::now() < end, "{}", fs::read_to_string(&log).unwrap());
            std::thread::sleep(Duration::from_millis(100));
        }
        let archive = write_images(&machine.folder);
        let imported = machine.ctr(&["images", "import", archive.to_str().unwrap()]);
        assert!(imported.status.success(), "{imported:?}");
        machine.kubelet = Some(machine.start_kubelet(&server.kubeconfig(TOKEN)));
        machine
    }

    fn start_kubelet(&self, kubeconfig: &Path) -> Process {
        let within = |name: &str| self.folder.join(name).display().to_string();
        let flags = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--config={}", within("kubelet.json")),
            format!("--root-dir={}", within("kubelet")),
            format!("--cert-dir={}", within("certificates")),
            format!("--hostname-override={NODE}"),
        ];
        let flags = flags.each_ref().map(String::as_str);
        Process::start(&assets().unwrap().join("kubelet"), &flags, &self.kubelet_log())
    }

    pub(super) fn kubelet_log(&self) -> PathBuf {
        self.folder.join("kubelet.log")
    }

    /// The containers that run, those of pods' sandboxes among them.
    pub(super) fn running(&self) -> Vec<String> {
        let tasks = self.ctr(&["tasks", "list", "--quiet"]);
        String::from_utf8(tasks.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    fn ctr(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(self.folder.join("containerd.sock")).args(["--namespace", "k8s.io"]);
        command.args(arguments).output().unwrap()
    }
}

impl Drop for Machine {
    /// Ends the containers, which would outlive both programs, and what they had mounted.
    fn drop(&mut self) {
        drop(self.kubelet.take());
        for task in self.running() {
            self.ctr(&["tasks", "delete", "--force", &task]);
        }
        let _ = self.containerd.0.kill();
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let ours = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let mut ours: Vec<&str> = ours.filter(|path| Path::new(path).starts_with(&self.folder)).collect();
        ours.sort_by_key(|path| std::cmp::Reverse(path.len()));
        for path in ours {
            let _ = Command::new("umount").args(["--lazy", path]).status();
        }
    }
}

fn containerd_config(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"version = 3
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{folder}/cni"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
"#
    )
}

fn kubelet_config(folder: &Path) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}/containerd.sock", folder.display()),
        "podLogsDir": folder.join("logs"),
        "failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": false, "failSwapOn": false, "oomScoreAdj": 0,
        "evictionHard": {"memory.available": "10Mi"},
        // Nobody asks it for logs here.
        "address": "127.0.0.1", "port": free_port(), "readOnlyPort": 0, "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "nodeStatusUpdateFrequency": "2s",
    })
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Writes the images as a layout of the Open Container Initiative, which `ctr images import` reads.
fn write_images(folder: &Path) -> PathBuf {
    let layout = folder.join("images");
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let layer = add_blob(&layout, fs::read(write_layer(folder)).unwrap());
    let mut manifests = Vec::new();
    for (name, script) in IMAGES {
        let config = json!({"architecture": architecture(), "os": "linux",
            "config": {"Cmd": ["/bin/sh", "-c", script], "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}});
        let config = add_blob(&layout, config.to_string().into_bytes());
        let kind = |of: &Value, kind: &str| {
            let mut of = of.clone();
            of["mediaType"] = format!("application/vnd.oci.image.{kind}").into();
            of
        };
        let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": kind(&config, "config.v1+json"), "layers": [kind(&layer, "layer.v1.tar")]});
        let manifest = add_blob(&layout, manifest.to_string().into_bytes());
        let mut entry = kind(&manifest, "manifest.v1+json");
        entry["annotations"] = json!({"io.containerd.image.name": name});
        manifests.push(entry);
    }
    fs::write(layout.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string()).unwrap();
    let index = json!({"schemaVersion": 2, "manifests": manifests});
    fs::write(layout.join("index.json"), index.to_string()).unwrap();
    pack(&layout, &folder.join("images.tar"))
}

/// Busybox under the names of its commands.
fn write_layer(folder: &Path) -> PathBuf {
    let root = folder.join("layer");
    fs::create_dir_all(root.join("bin")).unwrap();
    let found = Command::new("sh").args(["-c", "command -v busybox"]).output().unwrap();
    let busybox = root.join("bin/busybox");
    fs::copy(String::from_utf8(found.stdout).unwrap().trim(), &busybox).unwrap();
    fs::set_permissions(&busybox, fs::Permissions::from_mode(0o755)).unwrap();
    for command in COMMANDS_OF_BUSYBOX {
        symlink("busybox", root.join("bin").join(command)).unwrap();
    }
    pack(&root, &folder.join("layer.tar"))
}

fn pack(content: &Path, archive: &Path) -> PathBuf {
    let packed = Command::new("tar").arg("-cf").arg(archive).arg("-C").arg(content).arg(".").status();
    assert!(packed.unwrap().success());
    archive.to_owned()
}

/// Stores a blob under its digest; a descriptor without its media type.
fn add_blob(layout: &Path, content: Vec<u8>) -> Value {
    let digest = digest(&SHA256, &content);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let descriptor = json!({"digest": format!("sha256:{hex}"), "size": content.len()});
    fs::write(layout.join("blobs/sha256").join(hex), content).unwrap();
    descriptor
}

/// As Go calls it.
fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}
