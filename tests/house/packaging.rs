//! The archives of a release, and the manifest by which krew installs the plugin: made by the scripts of the release, from
//! files that stand for the programs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use windlass_testkit::manifests;

const TARGETS: [&str; 5] = [
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-musl",
    "x86_64-apple-darwin",
    "aarch64-apple-darwin",
    "x86_64-pc-windows-msvc",
];

fn run(program: &str, args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    Command::new(program).args(args).current_dir(root).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The name of the plugin's archive.
fn archive(target: &str) -> String {
    let ending = if target.contains("windows") { "zip" } else { "tar.gz" };
    format!("kubectl-windlass-{}-{target}.{ending}", env!("CARGO_PKG_VERSION"))
}

/// Writes the files that .ci/dist leaves, with a plugin of these bytes.
fn built(directory: &Path, suffix: &str, plugin: &[u8]) {
    for (name, content) in
        [("windlass", b"daemon".as_slice()), ("windlass-sandbox", b"sandbox"), ("kubectl-windlass", plugin)]
    {
        fs::write(directory.join(format!("{name}{suffix}")), content).unwrap();
        fs::write(directory.join(format!("{name}.cdx.json")), name).unwrap();
    }
    for (folder, file) in [("man", "kubectl-windlass.1"), ("completions", "_kubectl-windlass")] {
        let folder = directory.join("plugin").join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), file).unwrap();
    }
}

fn pack(programs: &Path, target: &str, out: &Path) -> Output {
    run(".ci/pack", &[programs.to_str().unwrap(), target, out.to_str().unwrap()])
}

/// The files of an archive without the directory that they are in, each with its mode where there is one.
fn listed(archive: &Path) -> BTreeSet<String> {
    let code = "import sys, tarfile, zipfile\n\
                name = sys.argv[1]\n\
                if name.endswith('.zip'):\n    \
                    files = zipfile.ZipFile(name).namelist()\n\
                else:\n    \
                    files = [f'{it.name} {it.mode:o}' for it in tarfile.open(name).getmembers()]\n\
                print('\\n'.join(file.split('/', 1)[1] for file in files))";
    let output = run("python3", &["-c", code, archive.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn set(files: &[&str]) -> BTreeSet<String> {
    files.iter().map(|file| (*file).to_owned()).collect()
}

#[cfg(unix)]
#[test]
fn the_plugin_has_an_archive_of_its_own_with_the_same_bytes_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let [programs, first, second] = ["programs", "first", "second"].map(|name| directory.path().join(name));
    fs::create_dir(&programs).unwrap();
    built(&programs, "", b"plugin");
    for out in [&first, &second] {
        let packed = pack(&programs, TARGETS[0], out);
        assert!(packed.status.success(), "{}", text(&packed.stderr));
        // Neither the time nor the mode of a file may show.
        fs::write(programs.join("windlass"), b"daemon").unwrap();
    }
    let names: Vec<PathBuf> = fs::read_dir(&first).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for name in &names {
        let again = second.join(name.file_name().unwrap());
        assert_eq!(fs::read(name).unwrap(), fs::read(&again).unwrap(), "{}", name.display());
    }
    assert_eq!(
        listed(&first.join(archive(TARGETS[0]))),
        set(&[
            "LICENSE 644",
            "completions/_kubectl-windlass 644",
            "kubectl-windlass 755",
            "kubectl-windlass.cdx.json 644",
            "man/kubectl-windlass.1 644"
        ])
    );
    let daemon = archive(TARGETS[0]).replace("kubectl-", "");
    assert_eq!(
        listed(&first.join(daemon)),
        set(&[
            "LICENSE 644",
            "README.md 644",
            "windlass 755",
            "windlass-sandbox 755",
            "windlass-sandbox.cdx.json 644",
            "windlass.cdx.json 644"
        ])
    );
}

#[cfg(unix)]
#[test]
fn the_archive_for_windows_has_programs_with_their_ending() {
    let directory = tempfile::tempdir().unwrap();
    built(directory.path(), ".exe", b"plugin");
    let out = directory.path().join("out");
    let packed = pack(directory.path(), TARGETS[4], &out);
    assert!(packed.status.success(), "{}", text(&packed.stderr));
    assert_eq!(
        listed(&out.join(archive(TARGETS[4]))),
        set(&[
            "LICENSE",
            "completions/_kubectl-windlass",
            "kubectl-windlass.cdx.json",
            "kubectl-windlass.exe",
            "man/kubectl-windlass.1"
        ])
    );
}

#[cfg(unix)]
#[test]
fn a_program_without_its_bill_of_materials_is_not_packed() {
    for program in ["windlass", "windlass-sandbox", "kubectl-windlass"] {
        let directory = tempfile::tempdir().unwrap();
        built(directory.path(), "", b"plugin");
        fs::remove_file(directory.path().join(format!("{program}.cdx.json"))).unwrap();
        let out = directory.path().join("out");
        assert!(!pack(directory.path(), TARGETS[0], &out).status.success(), "{program}");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "{program}");
    }
}

#[cfg(unix)]
#[test]
fn an_archive_of_the_plugin_that_is_too_large_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    // Bytes that do not become smaller, from a generator of Lehmer's.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state * 48_271 % 2_147_483_647;
        u8::try_from(state >> 8 & 0xff).unwrap()
    })
    .take(11_000_000)
    .collect();
    built(directory.path(), "", &noise);
    let packed = pack(directory.path(), TARGETS[0], &directory.path().join("out"));
    assert!(!packed.status.success());
    assert!(text(&packed.stderr).contains("at most 10000000"), "{}", text(&packed.stderr));
}

/// The manifest from a file of checksums.
fn manifest(checksums: &str) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), checksums).unwrap();
    run(".ci/krew", &[file.path().to_str().unwrap()])
}

/// The checksum that stands for that of a target.
fn sum(target: &str) -> String {
    let digit = TARGETS.iter().position(|known| *known == target).unwrap();
    format!("{digit:x}").repeat(64)
}

fn checksums() -> String {
    TARGETS.iter().map(|target| format!("{}  {}\n", sum(target), archive(target))).collect()
}

#[cfg(unix)]
#[test]
fn krew_gets_a_manifest_that_keeps_its_rules() {
    let output = manifest(&checksums());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let plugin = manifests::object(&text(&output.stdout));
    let words = |value: &Value| value.as_str().unwrap().to_owned();
    assert_eq!(plugin["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((&plugin["kind"], &plugin["metadata"]["name"]), (&"Plugin".into(), &"windlass".into()));
    let spec = &plugin["spec"];
    let version = words(&spec["version"]);
    let parts: Vec<u32> =
        version.strip_prefix('v').unwrap().split('.').map(|it| it.parse().unwrap()).collect();
    assert_eq!((parts.len(), version), (3, format!("v{}", env!("CARGO_PKG_VERSION"))));
    let short = words(&spec["shortDescription"]);
    assert!((1..=50).contains(&short.len()) && !short.contains('\n'), "{short}");
    assert!(!words(&spec["description"]).contains("--"), "a list of flags is no description");
    assert!(words(&spec["caveats"]).contains("completion install"));

    let mut seen = BTreeSet::new();
    for platform in spec["platforms"].as_array().unwrap() {
        let labels = platform["selector"]["matchLabels"].as_object().unwrap();
        assert_eq!(labels.keys().collect::<Vec<_>>(), ["arch", "os"], "nothing else can be selected");
        assert_eq!(platform["selector"].as_object().unwrap().len(), 1);
        let (os, arch) = (words(&labels["os"]), words(&labels["arch"]));
        let uri = words(&platform["uri"]);
        let name = uri.rsplit('/').next().unwrap();
        let target = *TARGETS.iter().find(|target| archive(target) == name).unwrap();
        let processor = if arch == "amd64" { "x86_64" } else { "aarch64" };
        assert!(target.starts_with(processor) && target.contains(&os), "{os} {arch}: {target}");
        let tag =
            format!("{}/releases/download/v{}/", env!("CARGO_PKG_REPOSITORY"), env!("CARGO_PKG_VERSION"));
        assert_eq!(uri, format!("{tag}{name}"));
        assert_eq!(platform["sha256"], sum(target).as_str());
        let program = if os == "windows" { "kubectl-windlass.exe" } else { "kubectl-windlass" };
        assert_eq!(platform["bin"], program);
        let files = platform["files"].as_array().unwrap();
        assert!(files.iter().any(|file| file["from"] == format!("*/{program}") && file["to"] == "."));
        seen.insert(format!("{os}/{arch}"));
    }
    let all = ["linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"];
    assert_eq!(seen, set(&all));
}

#[cfg(unix)]
#[test]
fn a_checksum_that_is_missing_leaves_no_manifest() {
    let all = checksums();
    let last = all.trim_end().rsplit_once('\n').unwrap().0;
    for wrong in [last.to_owned(), all.replace(&sum(TARGETS[1]), "ab"), format!("{all}{all}")] {
        let output = manifest(&wrong);
        assert!(!output.status.success(), "{wrong}");
        assert_eq!(text(&output.stdout), "", "{wrong}");
        assert!(text(&output.stderr).contains("kubectl-windlass-"), "{}", text(&output.stderr));
    }
}

/// The daemon's archive is compared with the image, and the plugin's pages between the platforms.
#[test]
fn the_release_packs_the_plugin_and_writes_its_manifest() {
    let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    assert!(
        read(".ci/dist").lines().any(|line| line == "programs=(windlass windlass-sandbox kubectl-windlass)")
    );
    let release = read(".github/workflows/release.yaml");
    let order =
        [".ci/krew ", "sha256sum -- * >SHA256SUMS", "gh release create"].map(|step| release.find(step));
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}");
}
