//! Pods whose containers end.

use super::*;

const SUCCESS: (Option<i64>, &str) = (Some(0), "Completed");

/// A pod with an annotation that says how it ends.
async fn create(rig: &Rig, name: &str, outcome: &str, spec: Value) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {"windlass.dev/pod-outcome": outcome}},
        "spec": {"containers": [{"name": "main", "image": "job"}]},
    });
    json_patch::merge(&mut pod["spec"], &spec);
    rig.create(PODS, pod).await;
}

async fn container(rig: &Rig, name: &str, index: usize) -> Value {
    rig.get(PODS, name).await.unwrap()["status"]["containerStatuses"][index].clone()
}

fn terminated(state: &Value) -> (Option<i64>, &str) {
    (state["terminated"]["exitCode"].as_i64(), state["terminated"]["reason"].as_str().unwrap_or_default())
}

fn condition(pod: &Value, type_: &str) -> (String, String) {
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == type_).unwrap();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_before_its_start_is_seen_keeps_its_address_and_ends() {
    let rig = Rig::new().with_slow_watches(Duration::from_millis(700)).with_pods();
    create(&rig, "short", "after:100ms", json!({"restartPolicy": "Never"})).await;
    pass(30_000).await;
    let pod = rig.get(PODS, "short").await.unwrap();
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(pod["status"]["podIPs"], json!([{"ip": pod["status"]["podIP"]}]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_restarted_succeeds_or_fails() {
    let rig = Rig::new().with_pods();
    rig.create_pod("untold", json!({"restartPolicy": "Never"})).await;
    create(&rig, "works", "after:5s", json!({"restartPolicy": "OnFailure"})).await;
    create(&rig, "fails", "exit:3,after:5s", json!({"restartPolicy": "Never"})).await;
    pass(1_000).await;
    for name in ["untold", "works", "fails"] {
        assert!(ready(&rig.get(PODS, name).await.unwrap()), "{name} runs first");
    }
    pass(1_000).await;
    assert_eq!(rig.phase("untold").await, "Succeeded");
    assert_eq!(rig.phase("works").await, "Running");
    pass(5_000).await;
    let pod = rig.get(PODS, "works").await.unwrap();
    assert_eq!(pod["status"]["phase"], "Succeeded");
    assert_eq!(terminated(&container(&rig, "works", 0).await["state"]), SUCCESS);
    let status = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    assert_eq!(condition(&pod, "Ready"), status("False", "PodCompleted"));
    assert_eq!(condition(&pod, "Initialized"), status("True", "PodCompleted"));
    let pod = rig.get(PODS, "fails").await.unwrap();
    assert_eq!(pod["status"]["phase"], "Failed");
    let state = &pod["status"]["containerStatuses"][0]["state"];
    assert_eq!(terminated(state), (Some(3), "Error"));
    assert_eq!(state["terminated"]["startedAt"], "2026-01-01T00:00:00Z");
    assert_eq!(state["terminated"]["finishedAt"], "2026-01-01T00:00:05Z");
    assert_eq!(condition(&pod, "ContainersReady"), status("False", "PodFailed"));

    let before = rig.sandbox.revision();
    pass(3_600_000).await;
    assert_eq!(rig.sandbox.revision(), before, "it has ended for good");
}

#[tokio::test(start_paused = true)]
async fn a_failing_container_is_restarted_and_backs_off() {
    let rig = Rig::new().with_pods();
    create(&rig, "web", "exit:1,after:2s", json!({"restartPolicy": "Always"})).await;
    pass(2_000).await;
    assert!(ready(&rig.get(PODS, "web").await.unwrap()));
    pass(1_000).await;
    let main = container(&rig, "web", 0).await;
    assert_eq!((&main["restartCount"], terminated(&main["lastState"])), (&json!(1), (Some(1), "Error")));
    assert!(main["state"]["running"].is_object(), "the first restart is made at once");
    pass(3_000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert_eq!((&pod["status"]["phase"], ready(&pod)), (&json!("Running"), false));
    let main = &pod["status"]["containerStatuses"][0];
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let message = format!("back-off 10s restarting failed container=main pod=web_default({uid})");
    assert_eq!(main["state"]["waiting"], json!({"reason": "CrashLoopBackOff", "message": message}));
    assert_eq!((&main["restartCount"], &main["ready"]), (&json!(1), &json!(false)));
    let event = format!("BackOff Back-off restarting failed container main in pod web_default({uid})");
    assert!(rig.events("web").await.contains(&event));
    pass(9_000).await;
    assert_eq!(container(&rig, "web", 0).await["restartCount"], 2);
    assert!(ready(&rig.get(PODS, "web").await.unwrap()));
    pass(3_600_000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert_eq!(
        pod["status"]["containerStatuses"][0]["restartCount"], 16,
        "0, 10, 20, 40, 80, 160 and then 300 s"
    );
    rig.delete(PODS, "web", &DeleteParams::default()).await;
    pass(1_000).await;
    assert!(rig.get(PODS, "web").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_ends_with_the_last_of_its_containers_and_its_sidecars_with_it() {
    let rig = Rig::new();
    let image = regex_lite::Regex::new("^slow").unwrap();
    let outcome = "exit:0,after:1m".parse().unwrap();
    let pod_outcomes = vec![kubelet::outcomes::ImageOutcome { image, outcome }];
    let options = kubelet::Options { pod_outcomes, ..kubelet::Options::new(rig.now.clone()) };
    let rig = rig.with_pods_that(options);
    let containers =
        json!([{"name": "quick", "image": "job:exit-1-after-2s"}, {"name": "slow", "image": "slow:1"}]);
    let sidecar = json!([{"name": "log", "image": "log", "restartPolicy": "Always"}]);
    rig.create_pod(
        "job",
        json!({"restartPolicy": "Never", "containers": containers, "initContainers": sidecar}),
    )
    .await;
    pass(5_000).await;
    let pod = rig.get(PODS, "job").await.unwrap();
    assert_eq!((&pod["status"]["phase"], ready(&pod)), (&json!("Running"), false));
    assert_eq!(terminated(&pod["status"]["containerStatuses"][0]["state"]), (Some(1), "Error"));
    assert!(pod["status"]["containerStatuses"][1]["state"]["running"].is_object());
    assert!(pod["status"]["initContainerStatuses"][0]["state"]["running"].is_object());
    pass(60_000).await;
    let pod = rig.get(PODS, "job").await.unwrap();
    assert_eq!(pod["status"]["phase"], "Failed", "one of them did");
    assert_eq!(terminated(&pod["status"]["containerStatuses"][1]["state"]), SUCCESS);
    assert_eq!(terminated(&pod["status"]["initContainerStatuses"][0]["state"]), SUCCESS);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_makes_room_on_its_node() {
    let rig = Rig::new();
    let rig = rig.with_pods_that_run_on(1);
    let big = json!({"restartPolicy": "Never", "containers": [
        {"name": "main", "image": "job:exit-0-after-10s", "resources": {"requests": {"cpu": "40"}}}]});
    rig.create_pod("first", big.clone()).await;
    pass(1_000).await;
    rig.create_pod("second", big).await;
    pass(2_000).await;
    assert_eq!(rig.phase("second").await, "Pending");
    pass(10_000).await;
    assert_eq!(
        (rig.phase("first").await.as_str(), rig.phase("second").await.as_str()),
        ("Succeeded", "Running")
    );
}

#[tokio::test(start_paused = true)]
async fn no_container_ends_on_a_node_that_does_not_answer_and_none_twice() {
    let rig = Rig::new().with_pods_that_run_on(1);
    create(&rig, "job", "after:10s", json!({"restartPolicy": "Never"})).await;
    pass(2_000).await;
    let unknown = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    let patch = Patch::Strategic(unknown);
    let request =
        Request::new(NODES).patch_subresource("status", "sandbox-node-1", &PatchParams::default(), &patch);
    send(&rig.client, request).await.unwrap();
    pass(60_000).await;
    assert_eq!(rig.phase("job").await, "Running");
    let answers = Patch::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    let request =
        Request::new(NODES).patch_subresource("status", "sandbox-node-1", &PatchParams::default(), &answers);
    send(&rig.client, request).await.unwrap();
    pass(1_000).await;
    assert_eq!(rig.phase("job").await, "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn restarts_are_remembered_by_the_pod() {
    let rig = Rig::new();
    let first = CancellationToken::new();
    tokio::spawn(kubelet::run(rig.client.clone(), kubelet::Options::new(rig.now.clone()), first.clone()));
    create(&rig, "web", "exit:1,after:1m", json!({})).await;
    pass(65_000).await;
    assert_eq!(container(&rig, "web", 0).await["restartCount"], 1);
    first.cancel();
    let rig = rig.with_pods();
    pass(65_000).await;
    assert_eq!(container(&rig, "web", 0).await["restartCount"], 2);
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_says_nothing_is_complained_of() {
    let rig = Rig::new().with_pods();
    create(&rig, "job", "soon", json!({"restartPolicy": "Never"})).await;
    pass(3_000).await;
    assert_eq!(rig.phase("job").await, "Succeeded");
    let events = rig.events("job").await;
    let why = "InvalidPodOutcome The annotation windlass.dev/pod-outcome is ignored: \"soon\" is no KEY:VALUE; write it \
               like exit:3,after:2s, exit:1/0, after:never, fail-indexes:1/3-5, fail-first:2 or sigterm:ignore";
    assert!(events.contains(&why.to_owned()), "{events:#?}");
}

/// A pod of a Job with an annotation that says how it ends.
async fn create_of_job(rig: &Rig, name: &str, index: u32, outcome: &str, spec: Value) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "finalizers": ["batch.kubernetes.io/job-tracking"],
            "annotations": {"windlass.dev/pod-outcome": outcome, "batch.kubernetes.io/job-completion-index": index.to_string()},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-uid", "controller": true}],
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "job"}]},
    });
    json_patch::merge(&mut pod["spec"], &spec);
    rig.create(PODS, pod).await;
}

async fn exit_code(rig: &Rig, name: &str) -> Option<i64> {
    terminated(&container(rig, name, 0).await["state"]).0
}

#[tokio::test(start_paused = true)]
async fn the_attempts_of_a_completion_index_are_counted_over_its_pods() {
    let rig = Rig::new().with_pods();
    for (name, index) in [("a-0", 0), ("a-1", 1)] {
        create_of_job(&rig, name, index, "exit:5/6/0", json!({})).await;
    }
    pass(3_000).await;
    for (name, index) in [("b-0", 0), ("c-0", 0)] {
        create_of_job(&rig, name, index, "exit:5/6/0", json!({})).await;
        pass(3_000).await;
    }
    let mut codes = Vec::new();
    for name in ["a-0", "a-1", "b-0", "c-0"] {
        codes.push(exit_code(&rig, name).await);
    }
    assert_eq!(codes, [Some(5), Some(5), Some(6), Some(0)]);
    assert_eq!((rig.phase("b-0").await.as_str(), rig.phase("c-0").await.as_str()), ("Failed", "Succeeded"));
}

#[tokio::test(start_paused = true)]
async fn restarts_of_a_container_are_attempts_too() {
    let rig = Rig::new().with_pods();
    create_of_job(&rig, "j", 0, "fail-first:2,exit:9", json!({"restartPolicy": "OnFailure"})).await;
    pass(30_000).await;
    let main = container(&rig, "j", 0).await;
    assert_eq!((rig.phase("j").await.as_str(), &main["restartCount"]), ("Succeeded", &json!(2)));
    assert_eq!(terminated(&main["lastState"]), (Some(9), "Error"));
}

#[tokio::test(start_paused = true)]
async fn a_command_says_how_its_container_ends() {
    let rig = Rig::new().with_pods();
    for (name, command) in [("fails", json!(["/bin/sh", "-c", "exit 4"])), ("sleeps", json!(["sleep", "60"]))]
    {
        let containers = json!([{"name": "main", "image": "busybox:1", "command": command}]);
        rig.create_pod(name, json!({"restartPolicy": "Never", "containers": containers})).await;
    }
    pass(30_000).await;
    assert_eq!((rig.phase("fails").await.as_str(), exit_code(&rig, "fails").await), ("Failed", Some(4)));
    assert_eq!(rig.phase("sleeps").await, "Running");
    pass(60_000).await;
    assert_eq!(rig.phase("sleeps").await, "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_of_a_job_fails_by_the_signal_and_stays_until_it_is_counted() {
    let rig = Rig::new().with_pods();
    create_of_job(&rig, "plain", 0, "after:never", json!({})).await;
    create_of_job(&rig, "clean", 0, "after:never,sigterm:0", json!({})).await;
    create_of_job(&rig, "deaf", 0, "after:never,sigterm:ignore", json!({})).await;
    create_of_job(&rig, "done", 0, "exit:0", json!({})).await;
    pass(5_000).await;
    for name in ["plain", "clean", "deaf", "done"] {
        rig.delete(PODS, name, &DeleteParams::default()).await;
    }
    pass(2_000).await;
    let ended = async |name: &str| (rig.phase(name).await, exit_code(&rig, name).await);
    assert_eq!(ended("plain").await, ("Failed".to_owned(), Some(143)));
    assert_eq!(ended("clean").await, ("Succeeded".to_owned(), Some(0)));
    assert_eq!(ended("done").await, ("Succeeded".to_owned(), Some(0)));
    assert_eq!(rig.phase("deaf").await, "Running", "its grace period is 30 s");
    pass(30_000).await;
    assert_eq!(ended("deaf").await, ("Failed".to_owned(), Some(137)));
    let pod = rig.get(PODS, "deaf").await.unwrap();
    assert_eq!(condition(&pod, "Ready"), ("False".to_owned(), "PodFailed".to_owned()));
    let state = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&state["startedAt"], &state["reason"]), (&json!("2026-01-01T00:00:00Z"), &json!("Error")));
    let before = rig.sandbox.revision();
    pass(60_000).await;
    assert_eq!(rig.sandbox.revision(), before, "the finalizer holds them, and nothing more is written");
    rig.patch(PODS, "deaf", json!({"metadata": {"finalizers": null}})).await;
    assert!(rig.get(PODS, "deaf").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_end_is_reported_as_ended_before_it_is_deleted() {
    let rig = Rig::new().with_pods();
    create(&rig, "once", "after:never", json!({"restartPolicy": "Never"})).await;
    pass(2_000).await;
    let start = rig.sandbox.revision();
    rig.delete(PODS, "once", &DeleteParams::default()).await;
    pass(2_000).await;
    assert!(rig.get(PODS, "once").await.is_none());
    let watch = format!("{PODS}?watch=true&resourceVersion={start}&timeoutSeconds=1");
    let request = http::Request::get(watch).body(Vec::new()).unwrap();
    let lines = rig.client.request_text(request).await.unwrap();
    let seen: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut seen: Vec<(&str, &str)> = seen
        .iter()
        .map(|event| (event["type"].as_str().unwrap(), event["object"]["status"]["phase"].as_str().unwrap()))
        .collect();
    // An API server writes the grace period of 0 before it deletes.
    seen.dedup();
    assert_eq!(seen, [("MODIFIED", "Running"), ("MODIFIED", "Failed"), ("DELETED", "Failed")]);
}
