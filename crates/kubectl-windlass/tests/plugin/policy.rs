//! Rollout policies as people meet them: a hold, an approval, an abort, a retry and a bypass.

use serde_json::{Value, json};

use crate::harness::{DEPLOYMENTS, Ended, Sandbox};

const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

/// `web` with revision 1 (app:1) and these annotations.
fn with_policy(flags: &[&str], annotations: &Value) -> Sandbox {
    let sandbox = Sandbox::start(flags);
    sandbox.create_web("app:1", &Value::Null);
    sandbox.web_reports("NewReplicaSetAvailable");
    annotate(&sandbox, annotations);
    sandbox
}

fn annotate(sandbox: &Sandbox, annotations: &Value) {
    sandbox.call("PATCH", WEB, &json!({"metadata": {"annotations": annotations}}));
}

/// The same, held at the first step of revision 2.
fn held(steps: &str) -> Sandbox {
    let sandbox = with_policy(&[], &json!({"windlass.dev/steps": steps}));
    sandbox.set_image("app:2");
    sandbox.web_reports("RolloutStep");
    sandbox
}

#[track_caller]
fn has(ended: &Ended, code: i32, out: &[&str], err: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    for text in out {
        assert!(ended.out.contains(text), "{text:?} in {}", ended.out);
    }
    for text in err {
        assert!(ended.err.contains(text), "{text:?} in {}", ended.err);
    }
}

fn command_of(sandbox: &Sandbox) -> Value {
    sandbox.get(WEB)["metadata"]["annotations"]["windlass.dev/rollout"].clone()
}

#[test]
fn a_step_is_shown_approved_by_its_revision_and_passed() {
    let sandbox = held("1, 2");
    let status = sandbox.plugin(&["status", "web", "--timeout=1s"]);
    has(&status, 4, &["held at step 1 of 2 (1 of 3 new, available for", "until approved"], &[]);
    let explained = sandbox.plugin(&["explain", "web"]);
    let lines = [
        "revision 2: held for",
        "POLICY  steps 1, 2\n",
        "NEXT    nothing until step 1 is approved\n",
        "TRY     kubectl windlass approve -n default deploy/web --revision 2 --step 1    (step 1 of 2)\n",
    ];
    has(&explained, 0, &lines, &[]);

    has(&sandbox.plugin(&["approve", "web"]), 2, &[], &["add --yes"]);
    let wrong = sandbox.plugin(&["approve", "web", "--revision=1", "--yes"]);
    has(&wrong, 1, &[], &["deployment default/web: revision 2 has replaced 1"]);
    let late = sandbox.plugin(&["approve", "web", "--step=3", "--yes"]);
    has(&late, 1, &[], &["there is no step 3: at its size 2 steps hold"]);
    let tried = sandbox.plugin(&["approve", "web", "--dry-run=server"]);
    has(&tried, 0, &["step 1 of 2 of revision 2 approved (server dry run)\n"], &[]);
    assert_eq!(command_of(&sandbox), Value::Null, "nothing was written");

    let approved = sandbox.plugin(&["promote", "deploy/web", "--revision=2", "--yes"]);
    let shown = [
        "windlass.dev/rollout: approve 2/1",
        "step 2 of 2: HELD until approved",
        "without the wait for 1 approval",
        "deployment default/web: step 1 of 2 of revision 2 approved\n",
    ];
    has(&approved, 0, &shown, &[]);
    assert_eq!(command_of(&sandbox), "approve 2/1");
    sandbox.eventually(WEB, |web| web["status"]["updatedReplicas"] == 2);
    let again = sandbox.plugin(&["approve", "web", "--step=1", "--yes"]);
    has(&again, 0, &[], &["skipped: step 1 of revision 2 of deployment default/web is passed already"]);
    sandbox.web_reports("RolloutStep");
    has(&sandbox.plugin(&["approve", "web", "--all", "--yes"]), 0, &["all steps of revision 2"], &[]);
    sandbox.web_reports("NewReplicaSetAvailable");
    has(&sandbox.plugin(&["approve", "web", "--yes"]), 0, &[], &["is complete"]);
}

#[test]
fn a_plan_shows_each_step_and_what_it_waits_for() {
    let sandbox = with_policy(&[], &json!({"windlass.dev/steps": "1, 2 for 10m"}));
    let planned = sandbox.plugin(&["plan", "web", "--image=app:2"]);
    let shown = ["step 1 of 2: HELD until approved", "step 2 of 2: HELD 10m", "complete after about 10m"];
    has(&planned, 0, &shown, &[]);
    let json = sandbox.plugin(&["plan", "web", "--image=app:2", "-o", "json"]);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    let holds: Vec<&Value> = json["steps"].as_array().unwrap().iter().map(|step| &step["held"]).collect();
    let holds: Vec<&Value> = holds.into_iter().filter(|held| !held.is_null()).collect();
    assert_eq!(holds[0], &json!({"step": 1, "of": 2, "seconds": null}), "{json:#}");
    assert_eq!(holds[1], &json!({"step": 2, "of": 2, "seconds": 600}), "{json:#}");

    annotate(&sandbox, &json!({"windlass.dev/steps": "1,25%%"}));
    let invalid = sandbox.plugin(&["plan", "web", "--image=app:2"]);
    has(&invalid, 5, &["held until its policy can be read", "25%%"], &[]);
    sandbox.set_image("app:2");
    sandbox.web_reports("InvalidPolicy");
    has(&sandbox.plugin(&["explain", "web"]), 0, &["held", "until the annotation is corrected"], &[]);
    has(&sandbox.plugin(&["approve", "web", "--yes"]), 1, &[], &["25%%"]);
}

#[test]
fn a_rollout_is_aborted_and_tried_again() {
    let sandbox = held("1");
    let aborted = sandbox.plugin(&["abort", "web", "--yes"]);
    let shown = ["windlass.dev/rollout: abort 2", "Revision 2 failed: Aborted; halted", "is aborted\n"];
    has(&aborted, 0, &shown, &[]);
    sandbox.web_reports("ProgressDeadlineExceeded");
    sandbox.eventually(WEB, |web| web["status"]["replicas"] == 3 && web["status"]["availableReplicas"] == 3);
    let status = sandbox.plugin(&["status", "web", "--timeout=10s"]);
    has(&status, 3, &["failed: Revision 2 failed: Aborted; halted, web-"], &[]);
    let explained = sandbox.plugin(&["explain", "web"]);
    let lines =
        ["revision 2: halted", "serves until the template changes", "windlass retry -n default deploy/web"];
    has(&explained, 0, &lines, &[]);
    has(&sandbox.plugin(&["approve", "web", "--yes"]), 1, &[], &["has failed (attempt 1): retry it"]);
    has(&sandbox.plugin(&["abort", "web", "--yes"]), 0, &[], &["has failed already"]);
    let retried = sandbox.plugin(&["retry", "web", "--revision=2", "--yes"]);
    has(&retried, 0, &["retry 2/1", "deployment default/web: revision 2 is tried again\n"], &[]);
    sandbox.web_reports("RolloutStep");
    has(&sandbox.plugin(&["retry", "web", "--yes"]), 0, &[], &["has not failed"]);
}

#[test]
fn a_broken_image_is_given_up_and_the_wait_ends_with_its_cause() {
    let policy = json!({"windlass.dev/fail-after": "1s", "windlass.dev/on-failure": "halt"});
    let sandbox = with_policy(&[], &policy);
    sandbox.set_image("app:broken");
    let status = sandbox.plugin(&["status", "web", "--timeout=60s"]);
    has(&status, 3, &["failed: Revision 2 failed: web-", "ImagePullBackOff for 1s", "halted, web-"], &[]);
    let explained = sandbox.plugin(&["explain", "web"]);
    has(&explained, 0, &["halted", "POLICY  fail-after 1s; on-failure halt\n", "retry"], &[]);
}

#[test]
fn a_failure_that_is_due_is_announced_and_no_undo_is_advised_where_the_policy_goes_back() {
    let policy = json!({"windlass.dev/fail-after": "1h", "windlass.dev/on-failure": "rollback"});
    let sandbox = with_policy(&[], &policy);
    sandbox.set_image("app:broken");
    sandbox
        .eventually("/api/v1/namespaces/default/pods", |pods| pods.to_string().contains("ImagePullBackOff"));
    let explained = sandbox.plugin(&["explain", "web"]);
    let lines = [
        "Unless its pods recover, the rollout counts as failed at 20",
        ": the Deployment then goes back to web-",
    ];
    has(&explained, 0, &lines, &[]);
    assert!(!explained.out.contains("TRY"), "{}", explained.out);
    annotate(&sandbox, &json!({"windlass.dev/on-failure": "halt"}));
    has(&sandbox.plugin(&["explain", "web"]), 0, &["then it halts", "TRY     kubectl windlass undo"], &[]);
    // A failure that is only reported causes an event, too.
    annotate(&sandbox, &json!({"windlass.dev/on-failure": null, "windlass.dev/fail-after": "1s"}));
    let of_failure = |event: &Value| event["reason"] == "RolloutFailed";
    sandbox.eventually("/api/v1/namespaces/default/events", |events| {
        events["items"].as_array().is_some_and(|all| all.iter().any(of_failure))
    });
}

#[test]
fn a_bypass_lets_the_steps_pass_and_is_ended() {
    let sandbox = held("1, 2");
    has(&sandbox.plugin(&["bypass", "web", "--yes"]), 2, &[], &["--for <DURATION>|--end"]);
    has(&sandbox.plugin(&["bypass", "web", "--for=8d", "--yes"]), 2, &[], &["not a duration"]);
    has(&sandbox.plugin(&["bypass", "web", "--for=169h", "--yes"]), 1, &[], &["7 days"]);
    let bypassed = sandbox.plugin(&["bypass", "web", "--for=30m", "--yes"]);
    has(&bypassed, 0, &["windlass.dev/bypass-until: 20", "steps and delays hold nothing until"], &[]);
    sandbox.web_reports("NewReplicaSetAvailable");
    has(&sandbox.plugin(&["explain", "web"]), 0, &["POLICY  steps 1, 2; bypass-until 20"], &[]);
    has(&sandbox.plugin(&["bypass", "web", "--end", "--yes"]), 0, &["the bypass has ended"], &[]);
    let web = sandbox.get(WEB);
    assert_eq!(web["metadata"]["annotations"]["windlass.dev/bypass-until"], Value::Null);
    has(&sandbox.plugin(&["bypass", "web", "--end", "--yes"]), 0, &[], &["has no bypass"]);
}

#[test]
fn an_object_without_a_policy_has_nothing_to_decide() {
    let sandbox = with_policy(&[], &json!({}));
    has(&sandbox.plugin(&["approve", "web", "--yes"]), 1, &[], &["no annotation windlass.dev/steps"]);
    has(&sandbox.plugin(&["bypass", "web", "--for=1m", "--yes"]), 1, &[], &["nothing to bypass"]);
    has(&sandbox.plugin(&["abort", "web", "--yes"]), 1, &[], &["complete: undo it instead"]);
    has(&sandbox.plugin(&["approve", "sts/db", "--yes"]), 1, &[], &["only Deployments and DaemonSets"]);
    has(&sandbox.plugin(&["approve", "web", "api", "--yes"]), 2, &[], &["takes one Deployment or DaemonSet"]);
    has(&sandbox.plugin(&["approve", "shop", "--yes"]), 1, &[], &["deployment default/shop does not exist"]);
}

#[test]
fn without_a_controller_a_command_says_that_nobody_has_accepted_it() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    sandbox.create_web("app:1", &Value::Null);
    annotate(&sandbox, &json!({"windlass.dev/steps": "1"}));
    let web = sandbox.get(WEB);
    let replica_set = |name: &str, image: &str, revision: &str, replicas: i64| {
        let mut template = web["spec"]["template"].clone();
        template["metadata"]["labels"]["pod-template-hash"] = json!(name);
        template["spec"]["containers"][0]["image"] = json!(image);
        let labels = json!({"app": "web", "pod-template-hash": name});
        let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
                           "uid": web["metadata"]["uid"], "controller": true});
        let annotations = json!({"deployment.kubernetes.io/revision": revision,
            "deployment.kubernetes.io/desired-replicas": "3", "deployment.kubernetes.io/max-replicas": "4"});
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
               "metadata": {"name": name, "labels": labels, "annotations": annotations, "ownerReferences": [owner]},
               "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}})
    };
    sandbox.call("POST", REPLICA_SETS, &replica_set("web-old", "app:0", "1", 3));
    sandbox.call("POST", REPLICA_SETS, &replica_set("web-new", "app:1", "2", 1));
    let early = sandbox.plugin(&["approve", "web", "--yes"]);
    has(&early, 0, &[], &["step 1 of 1 has not got its pods yet (--step 1 approves it beforehand)"]);
    let approved = sandbox.plugin(&["approve", "web", "--step=1", "--yes"]);
    has(
        &approved,
        1,
        &["approve 2/1"],
        &["no controller has accepted it: is one running with rollout policies?"],
    );
    assert_eq!(command_of(&sandbox), "approve 2/1", "whoever leads next takes it");
    assert_eq!(sandbox.get(DEPLOYMENTS)["items"].as_array().unwrap().len(), 1);
}

const AGENTS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

#[test]
fn a_step_of_a_daemon_set_is_approved_and_bypassed_and_nothing_is_aborted() {
    let sandbox = Sandbox::start(&["--nodes=3"]);
    let template = |image: &str| json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "app", "image": image}]}});
    let agent = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "annotations": {"windlass.dev/steps": "1, 2"}},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("app:1")}});
    sandbox.call("POST", AGENTS, &agent);
    let path = format!("{AGENTS}/agent");
    sandbox.eventually(&path, |it| it["status"]["numberAvailable"] == 3);
    sandbox.call("PATCH", &path, &json!({"spec": {"template": template("app:2")}}));
    let updated = |wanted: i64| {
        move |it: &Value| {
            it["status"]["updatedNumberScheduled"] == wanted && it["status"]["numberAvailable"] == 3
        }
    };
    sandbox.eventually(&path, updated(1));
    let explained = sandbox.plugin(&["explain", "ds/agent"]);
    has(
        &explained,
        0,
        &["TRY     kubectl windlass approve -n default ds/agent --revision 2 --step 1    (step 1 of 2)"],
        &[],
    );
    let approved = sandbox.plugin(&["approve", "ds/agent", "--yes"]);
    let steps = [
        "rollout: approve 2/1",
        "create the pod on sandbox-node-",
        "complete after",
        "step 1 of 2 of revision 2 approved",
    ];
    has(&approved, 0, &steps, &[]);
    sandbox.eventually(&path, updated(2));
    has(&sandbox.plugin(&["abort", "ds/agent", "--yes"]), 1, &[], &["undo a DaemonSet instead"]);
    let bypassed = sandbox.plugin(&["bypass", "ds/agent", "--for=10m", "--yes"]);
    has(&bypassed, 0, &["steps and delays hold nothing until"], &[]);
    sandbox.eventually(&path, updated(3));
    has(&sandbox.plugin(&["approve", "ds/agent", "--yes"]), 0, &[], &["complete"]);
}
