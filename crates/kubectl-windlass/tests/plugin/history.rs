use serde_json::Value;

use crate::harness::{DEPLOYMENTS, Sandbox};

/// `web` with the revisions 1 (app:1) and 2 (app:2).
fn with_two_revisions() -> Sandbox {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    sandbox.web_reports("NewReplicaSetAvailable");
    sandbox.set_image("app:2");
    sandbox.web_reports("NewReplicaSetAvailable");
    sandbox.eventually(&format!("{DEPLOYMENTS}/web"), |web| {
        web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    });
    sandbox
}

fn image(sandbox: &Sandbox) -> String {
    let web = sandbox.get(&format!("{DEPLOYMENTS}/web"));
    web["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

#[test]
fn the_history_has_a_line_for_each_revision_and_says_what_differs() {
    let sandbox = with_two_revisions();
    let ended = sandbox.plugin(&["history", "deploy/web"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let lines: Vec<&str> = ended.out.lines().collect();
    assert!(lines[0].starts_with("REVISION"), "{ended:?}");
    assert!(lines[1].starts_with("1 ") && lines[1].contains("app:1") && lines[1].ends_with("<none>"));
    assert!(lines[2].starts_with("2 (current)") && lines[2].contains("app:2"), "{ended:?}");

    let ended = sandbox.plugin(&["history", "web", ".."]);
    assert!(ended.out.starts_with("--- revision 1\n+++ revision 2\n"), "{ended:?}");
    assert!(ended.out.contains("app:1\n+") && !ended.out.contains("pod-template-hash"), "{ended:?}");

    let template = sandbox.plugin(&["history", "web", "--revision", "1", "-o", "json"]);
    let template: Value = serde_json::from_str(&template.out).unwrap();
    assert_eq!(template["spec"]["containers"][0]["image"], "app:1");
    assert!(sandbox.plugin(&["history", "web", "--revision=1"]).out.contains("image: app:1\n"));

    let missing = sandbox.plugin(&["history", "web", "7.."]);
    assert_eq!(missing.code, Some(1));
    assert_eq!(missing.err, "error: deployment default/web: revision 7 is not in the history; it has 1, 2\n");
}

#[test]
fn undo_shows_what_changes_and_goes_back_only_when_told_to() {
    let sandbox = with_two_revisions();
    let refused = sandbox.plugin(&["undo", "deploy/web"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("add --yes"), "{refused:?}");
    for (flag, end) in [("--dry-run=client", "(dry run)"), ("--dry-run=server", "(server dry run)")] {
        let tried = sandbox.plugin(&["undo", "web", flag]);
        assert_eq!(tried.code, Some(0), "{tried:?}");
        assert!(
            tried.out.ends_with(&format!("deployment default/web rolled back to revision 1 {end}\n")),
            "{tried:?}"
        );
        assert_eq!(image(&sandbox), "app:2");
    }
    let ended = sandbox.plugin(&["undo", "web", "--yes"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.starts_with("--- now\n+++ revision 1\n"), "{ended:?}");
    assert!(ended.out.ends_with("deployment default/web rolled back to revision 1\n"), "{ended:?}");
    assert_eq!(image(&sandbox), "app:1");
    sandbox.eventually(&format!("{DEPLOYMENTS}/web"), |web| {
        web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    });
    let again = sandbox.plugin(&["undo", "web", "--yes", "--to-revision=3"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), ""), "{again:?}");
    assert!(again.err.starts_with("skipped: "), "{again:?}");
}

#[test]
fn a_paused_deployment_is_not_taken_back() {
    let sandbox = with_two_revisions();
    let paused = serde_json::json!({"spec": {"paused": true}});
    sandbox.call("PATCH", &format!("{DEPLOYMENTS}/web"), &paused);
    let ended = sandbox.plugin(&["undo", "web", "--yes"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("is paused: resume it first"), "{ended:?}");
}

#[test]
fn the_version_needs_no_server() {
    let sandbox = Sandbox::start(&[]);
    let ended = sandbox.plugin(&["version", "-o", "json"]);
    let value: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(value["serverVersion"], "v1.36.0-windlass-sandbox");
    let alone = sandbox.plugin(&["version", "--client"]);
    assert_eq!(alone.out, concat!("kubectl windlass ", env!("CARGO_PKG_VERSION"), "\n"));
    let unreached = sandbox.plugin(&["version", "--server", "http://127.0.0.1:1"]);
    assert_eq!((unreached.code, unreached.out), (Some(0), alone.out));
    assert!(unreached.err.starts_with("note: cannot read the server's version"), "{}", unreached.err);
}

#[test]
fn each_shell_gets_a_completion_script() {
    let sandbox = Sandbox::start(&[]);
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let ended = sandbox.plugin(&["completion", shell]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.out.contains("rolling-update"), "{shell}");
    }
}
