//! The program with an invalid manifest.

use std::fs;
use std::process::Command;

const GOOD: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: good}
spec:
  selector: {matchLabels: {app: good}}
  template:
    metadata: {labels: {app: good}}
    spec: {containers: [{name: c, image: 'i:1'}]}
";

/// A file of a good Deployment and a changed one: the message must name file, document and field, and
/// nothing may have been applied.
#[track_caller]
fn check_manifest(change: impl FnOnce(&str) -> String, expected: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.yaml");
    fs::write(&file, format!("{GOOD}---\n{}", change(&GOOD.replace("good", "bad")))).unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let output = Command::new(env!("CARGO_BIN_EXE_windlass-sandbox"))
        .args([
            "-f",
            file.to_str().unwrap(),
            "--exit-when-complete",
            "--write-kubeconfig",
            kubeconfig.to_str().unwrap(),
        ])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for text in [&["app.yaml", "document 2"], expected].concat() {
        assert!(errors.contains(text), "{text:?} is missing in: {errors}");
    }
    assert_eq!(errors.lines().count(), 1, "one message: {errors}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("created"), "nothing is applied");
}

#[test]
fn a_pod_with_a_claim_runs_by_the_default_class() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.yaml");
    let claim = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
    let volume = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]";
    let deployment = GOOD.replace("spec: {containers", &format!("spec: {{{volume}, containers"));
    fs::write(&file, format!("{deployment}---{claim}")).unwrap();
    let run = |more: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_windlass-sandbox"));
        program.args(["--exit-when-complete", "--timeout=5s", "-f"]).arg(&file).args(more);
        program.arg("--write-kubeconfig").arg(dir.path().join("kubeconfig")).output().unwrap()
    };
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let without = fs::read_to_string(&file)
        .unwrap()
        .replace("spec: {accessModes", "spec: {storageClassName: '', accessModes");
    fs::write(&file, without).unwrap();
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(1), "no class: {output:?}");
    assert_eq!(run(&["--no-volumes"]).status.code(), Some(0));
}

#[test]
fn a_key_that_occurs_twice_is_a_warning_on_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.yaml");
    fs::write(&file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: a, x: b}\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_windlass-sandbox"))
        .args(["--exit-when-complete", "-f"])
        .arg(&file)
        .arg("--write-kubeconfig")
        .arg(dir.path().join("kubeconfig"))
        .output()
        .unwrap();
    let problem = "data: the key \"x\" occurs twice in one mapping; the last one counts";
    let warning = format!("warning: {}: document 1: {problem}\n", file.display());
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr)), (Some(0), warning.into()));
    assert!(String::from_utf8_lossy(&output.stdout).contains("ConfigMap default/a created"), "{output:?}");
}

#[test]
fn an_invalid_manifest_gives_one_error_with_file_document_and_field() {
    check_manifest(|_| "a: [b\nc: d".into(), &["line"]);
    check_manifest(|bad| bad.replace("apps/v1", "apps/v1beta1"), &["apps/v1beta1", "use apps/v1"]);
    check_manifest(
        |bad| bad.replace("selector: {matchLabels: {app: bad}}", "replicas: 1"),
        &["spec.selector"],
    );
    check_manifest(
        |bad| bad.replace("matchLabels: {app: bad}", "matchLabels: {app: other}"),
        &["spec.template.metadata.labels", "does not match template"],
    );
    check_manifest(|bad| bad.replace("  selector", "  replicas: -1\n  selector"), &["spec.replicas", "-1"]);
    check_manifest(
        |bad| bad.replace("  selector", "  replcas: 1\n  selector"),
        &["unknown field", "spec.replcas"],
    );
    check_manifest(|bad| bad.replace("kind: Deployment", "kind: Deploymint"), &["Deploymint"]);
}

#[test]
fn every_workload_that_runs_is_waited_for_and_a_failed_pod_fails() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.yaml");
    let run = |text: String| {
        fs::write(&file, text).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_windlass-sandbox"));
        program.args(["--exit-when-complete", "--timeout=20s", "-f"]).arg(&file);
        let output = program.arg("--write-kubeconfig").arg(dir.path().join("kubeconfig")).output().unwrap();
        let [out, err] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.code(), out, err)
    };
    let pod = |name: &str, policy: &str, image: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{restartPolicy: {policy}, \
             containers: [{{name: c, image: '{image}'}}]}}\n"
        )
    };
    let controller = GOOD.replace("apps/v1", "v1").replace("kind: Deployment", "kind: ReplicationController");
    let controller = controller.replace("{matchLabels: {app: good}}", "{app: good}");
    let replica_set = GOOD.replace("Deployment", "ReplicaSet").replace("good", "other");
    let pods = pod("web", "Always", "i:1") + &pod("once", "Never", "i:1");
    let (code, out, err) = run(format!("{controller}---{replica_set}{pods}"));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.ends_with("all ReplicaSets, ReplicationControllers and Pods are complete: 4\n"), "{out}");
    let (code, out, err) = run(pod("broken", "Never", "i:exit-3"));
    assert_eq!(code, Some(1), "{out}");
    assert!(err.contains("Pod default/broken: pod \"broken\" has failed"), "{err}");
    let (code, out, err) = run(pod("stuck", "Always", "<image>"));
    assert_eq!(code, Some(1), "{out}");
    assert!(
        err.contains("Pod default/stuck: Waiting for pod \"stuck\" to become ready: InvalidImageName"),
        "{err}"
    );
}
