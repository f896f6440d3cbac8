use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::front::{Fate, Front};
use crate::harness::{DEPLOYMENTS, Ended, PLUGIN, Sandbox};

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
fn a_status_that_is_written_meanwhile_stops_no_undo() {
    let sandbox = with_two_revisions();
    let is_first = AtomicBool::new(true);
    let front = Front::start(sandbox.address(), move |method, _| {
        match method == "PATCH" && is_first.swap(false, Ordering::SeqCst) {
            true => Fate::Answer(409),
            false => Fate::Forward,
        }
    });
    let ended = sandbox.plugin_through(&front, &["undo", "web", "--yes"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(image(&sandbox), "app:1");
    assert_eq!(front.requests().iter().filter(|request| request.starts_with("PATCH")).count(), 2);
}

#[test]
fn objects_that_exist_are_shown_beside_one_that_does_not() {
    let sandbox = with_two_revisions();
    for command in ["history", "explain"] {
        let ended = sandbox.plugin(&[command, "nosuch", "web", "gone"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.out.contains("app:2") || ended.out.contains("Deployment default/web"), "{ended:?}");
        let missing =
            ["nosuch", "gone"].map(|name| format!("error: deployment default/{name} does not exist\n"));
        assert_eq!(ended.err, missing.concat(), "{command}");
    }
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
    assert_eq!(alone.out, format!("kubectl windlass {}\n", windlass::version::version()));
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

#[test]
fn a_difference_and_a_list_have_each_format() {
    let sandbox = with_two_revisions();
    let shown = |args: &[&str]| {
        let ended = sandbox.plugin(&[&["history", "web"], args].concat());
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
        ended.out
    };
    let wide = shown(&["-o", "wide"]);
    let heads: Vec<&str> = wide.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heads[4..], ["IMAGES", "CONTAINERS", "CREATED", "CHANGE-CAUSE"]);
    assert!(wide.lines().nth(1).unwrap().contains("app:1   app         20"), "{wide}");
    let json: Value = serde_json::from_str(&shown(&["..", "-o", "json"])).unwrap();
    assert_eq!((&json["from"]["revision"], &json["to"]["revision"]), (&1.into(), &2.into()));
    assert!(json["difference"].as_str().unwrap().contains("+  - image: app:2\n"), "{json:#}");
    let yaml = windlass_testkit::manifests::object(&shown(&["..", "-o", "yaml"]));
    assert_eq!(yaml, json);
    let names = shown(&["..", "-o", "name"]);
    let all = shown(&["-o", "name"]);
    assert_eq!((names.lines().count(), &names), (2, &all));
}

#[cfg(unix)]
#[test]
fn a_program_of_the_user_shows_the_difference() {
    let sandbox = with_two_revisions();
    let history = |program: &str, args: &[&str]| {
        let mut command = sandbox.command(PLUGIN, &[&["history", "web"], args].concat());
        Ended::of(&command.env("KUBECTL_EXTERNAL_DIFF", program).output().unwrap())
    };
    let ended = history("diff -u", &[".."]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    assert!(
        ended.out.contains("web-revision-1.yaml") && ended.out.contains("\n+  - image: app:2\n"),
        "{ended:?}"
    );
    // It is a program for texts, and for differences only.
    let none = history("diff -u", &["2..2"]);
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""), "{none:?}");
    assert!(history("false", &["..", "-o", "json"]).out.contains("RevisionDifference"));
    let failed = history("diff --no-such-flag", &[".."]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.err.contains("KUBECTL_EXTERNAL_DIFF: diff ended with"), "{failed:?}");
    let refused = history("diff -u;id", &[".."]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("\"-u;id\""), "{refused:?}");
    assert!(history("/missing/diff", &[".."]).err.contains("/missing/diff"));
}

#[test]
fn requests_are_logged_from_level_6_on() {
    let sandbox = with_two_revisions();
    let logged = |args: &[&str]| sandbox.plugin(args).err;
    assert_eq!(logged(&["-v", "5", "history", "web"]), "");
    let lines = logged(&["history", "web", "-v=6"]);
    let get = format!("GET {DEPLOYMENTS}/web 200 OK in ");
    assert!(lines.starts_with(&get) && lines.contains("/replicasets?labelSelector="), "{lines}");
    assert!(logged(&["status", "web", "--v=9"]).contains("watch=true"), "a watch is a request, too");
    assert_eq!(sandbox.plugin(&["history", "web", "-v", "much"]).code, Some(2));
}

#[test]
fn an_undo_previews_the_rollout_and_warns_of_what_brings_the_change_back() {
    let sandbox = with_two_revisions();
    let quiet = sandbox.plugin(&["undo", "web", "--dry-run=client"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (Some(0), ""), "{quiet:?}");
    // The steps of the planner, behind the difference.
    let (difference, steps) = quiet.out.split_once("\nDeployment default/web").unwrap();
    assert!(difference.starts_with("--- now\n") && steps.contains("STEP"), "{quiet:?}");
    assert!(steps.contains("complete") && steps.contains("template of revision 1"), "{quiet:?}");

    let applied = serde_json::json!({"metadata": {"annotations":
        {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}});
    sandbox.call("PATCH", &format!("{DEPLOYMENTS}/web"), &applied);
    let autoscaler = serde_json::json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "elastic"}, "spec": {"minReplicas": 2, "maxReplicas": 9,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    let autoscalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    sandbox.call("POST", autoscalers, &autoscaler);
    let warned = sandbox.plugin(&["undo", "web", "--yes"]);
    assert_eq!(warned.code, Some(0), "{warned:?}");
    assert!(warned.err.contains("warning: it was applied from a file"), "{warned:?}");
    assert!(warned.err.contains("HorizontalPodAutoscaler elastic scales it, from 2 to 9"), "{warned:?}");
    assert_eq!(image(&sandbox), "app:1");
}
