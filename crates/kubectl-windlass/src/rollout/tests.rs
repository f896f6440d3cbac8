use serde_json::json;
use windlass::model::Deployment;
use windlass::plan::deployment::{self as planner, Observed, PlanReason, explain};

use super::failing_pods::FailingPods;
use super::*;

pub(crate) fn at(time: &str) -> Timestamp {
    format!("2026-01-01T{time}Z").parse().unwrap()
}

const IMAGES: [&str; 2] = ["app:1", "app:2"];

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": image}]}})
}

fn owned(name: &str, kind: &str, owner: &str) -> Value {
    json!({"namespace": "shop", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "5", "generation": 1,
           "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web"},
           "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": format!("uid-{owner}"),
                                "controller": true}]})
}

fn replica_set(revision: usize, size: i64, available: i64) -> Value {
    let mut metadata = owned(&format!("web-{revision}"), "ReplicaSet", "web");
    metadata["ownerReferences"][0]["kind"] = json!("Deployment");
    metadata["annotations"] = json!({"deployment.kubernetes.io/revision": revision.to_string(),
                                     "deployment.kubernetes.io/desired-replicas": "3",
                                     "deployment.kubernetes.io/max-replicas": "4"});
    json!({"metadata": metadata, "spec": {"replicas": size, "selector": {"matchLabels": {"app": "web"}},
           "template": template(IMAGES[revision - 1])},
           "status": {"replicas": size, "readyReplicas": available, "availableReplicas": available,
                      "observedGeneration": 1}})
}

fn pod(name: &str, owner: &str, status: Value) -> Value {
    json!({"metadata": owned(name, "ReplicaSet", owner), "spec": {"nodeName": "n1"}, "status": status})
}

fn ready(name: &str, owner: &str) -> Value {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"});
    pod(name, owner, json!({"phase": "Running", "conditions": [ready]}))
}

fn broken(name: &str) -> Value {
    let waiting = json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image \"app:2\""});
    pod(
        name,
        "web-2",
        json!({"phase": "Pending",
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:30Z"}],
        "containerStatuses": [{"name": "app", "restartCount": 0, "state": {"waiting": waiting}}]}),
    )
}

/// Three replicas in the middle of a rollout to the broken second revision, observed by kube-controller-manager.
pub(crate) fn stuck() -> Workload {
    let condition = |reason: &str, at: &str| json!([{"type": "Progressing", "status": "True", "reason": reason, "lastUpdateTime": at}]);
    let spec = json!({"f:spec": {"f:template": {}}});
    let deployment = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "uid-web", "resourceVersion": "9", "generation": 4,
                     "creationTimestamp": "2026-01-01T00:00:00Z",
                     "managedFields": [
                        {"manager": "kubectl", "time": "2026-01-01T00:00:20Z", "fieldsV1": spec},
                        {"manager": "kube-controller-manager", "time": "2026-01-01T00:00:21Z",
                         "subresource": "status", "fieldsV1": {}}]},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("app:2"),
                 "progressDeadlineSeconds": 600,
                 "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
        "status": {"observedGeneration": 4, "replicas": 4, "updatedReplicas": 1, "readyReplicas": 3,
                   "availableReplicas": 3,
                   "conditions": condition("ReplicaSetUpdated", "2026-01-01T00:00:20Z")}});
    let event = json!({"type": "Warning", "reason": "Failed", "message": "Failed to pull image: not found",
                       "count": 9, "lastTimestamp": "2026-01-01T00:01:46Z"});
    Workload {
        object: deployment,
        replica_sets: vec![replica_set(1, 3, 3), replica_set(2, 1, 0)],
        pods: ["web-1-a", "web-1-b", "web-1-c"]
            .map(|name| ready(name, "web-1"))
            .into_iter()
            .chain([broken("web-2-a")])
            .collect(),
        events: [("uid-web-2-a".to_owned(), vec![event])].into(),
        ..Workload::default()
    }
}

#[test]
fn a_job_that_is_deleted_after_its_end_has_ended() {
    let verdict = |kind: &str| {
        let finished = json!([{"type": kind, "status": "True", "reason": "R", "message": "why"}]);
        let object = json!({
            "metadata": {"namespace": "shop", "name": "setup", "uid": "j", "resourceVersion": "9",
                         "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:01:00Z"},
            "spec": {"completions": 1, "ttlSecondsAfterFinished": 0},
            "status": {"startTime": "2026-01-01T00:00:00Z", "conditions": finished},
        });
        assess(&Workload { kind: Kind::Job, object, ..Workload::default() }, at("00:02:00")).unwrap().verdict
    };
    assert_eq!(verdict("Complete"), Verdict::Complete);
    assert_eq!(verdict("Failed"), Verdict::Failed);
    assert_eq!(verdict("Suspended"), Verdict::Deleting);
}

#[test]
fn a_status_that_counts_pods_that_are_gone_is_said_to_be_old() {
    let mut workload = stuck();
    workload.object["status"] = json!({"observedGeneration": 4, "replicas": 3, "updatedReplicas": 3,
                                       "readyReplicas": 3, "availableReplicas": 3});
    workload.replica_sets = vec![replica_set(2, 3, 3)];
    workload.pods = ["web-2-a", "web-2-b", "web-2-c"].map(|name| ready(name, "web-2")).into();
    let summary = |workload: &Workload| {
        let assessment = assess(workload, at("00:02:00")).unwrap();
        assert_eq!(assessment.verdict, Verdict::Complete);
        assessment.summary
    };
    assert_eq!(summary(&workload), None);
    workload.pods.truncate(1);
    let expected = "the status reports 3 available pods, and 1 exist: no controller has noticed";
    assert_eq!(summary(&workload).as_deref(), Some(expected));
}

#[test]
fn what_a_quota_refuses_has_no_estimate() {
    let mut workload = stuck();
    workload.replica_sets[1] = replica_set(2, 1, 1);
    workload.pods[3] = ready("web-2-a", "web-2");
    workload.pods[3]["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:01:00Z".into();
    let of = |workload: &Workload| {
        let web = assess(workload, at("00:01:20")).unwrap();
        (web.verdict, web.estimate)
    };
    let (verdict, estimate) = of(&workload);
    assert!(verdict.proceeds() && estimate.is_some(), "{verdict:?} {estimate:?}");
    workload.replica_sets[1]["status"]["conditions"] = json!([
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: pods"},
    ]);
    assert_eq!(of(&workload), (Verdict::Blocked, None));
}

#[test]
fn the_way_back_leads_to_the_revision_that_serves_and_past_a_broken_one() {
    let mut workload = stuck();
    // Another broken revision came between them.
    let mut between = replica_set(1, 0, 0);
    between["metadata"]["name"] = "web-between".into();
    between["metadata"]["uid"] = "uid-between".into();
    between["spec"]["template"] = template("app:broken");
    workload.replica_sets.insert(1, between);
    for (set, revision) in workload.replica_sets.iter_mut().zip(["1", "2", "3"]) {
        set["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = revision.into();
    }
    let web = assess(&workload, at("00:02:00")).unwrap();
    assert_eq!((web.revision, web.previous.clone()), (Some(3), Some((1, "app:1".to_owned()))));
    let commands =
        crate::invocation::Commands { kubectl: "kubectl".into(), plugin: Some("kubectl windlass".into()) };
    let advice = crate::explain::advice(&web, &commands).unwrap();
    assert!(advice.contains("undo -n shop deploy/web --to-revision=1 "), "{advice}");
}

#[test]
fn a_rollout_that_waits_for_a_broken_pod_is_explained_with_its_events() {
    let web = assess(&stuck(), at("00:02:00")).unwrap();
    assert_eq!((web.verdict, web.revision, web.writes.len()), (Verdict::Waiting, Some(2), 0));
    assert_eq!(web.since, Some(at("00:00:20")));
    assert_eq!(web.deadline, Some(at("00:10:20")));
    assert_eq!(web.previous, Some((1, "app:1".to_owned())));
    assert_eq!(web.acts.unwrap().manager, "kube-controller-manager");
    let [pod] = &web.pods[..] else { panic!("{:?}", web.pods) };
    assert_eq!((pod.state.as_str(), pod.since), ("ImagePullBackOff", at("00:00:30")));
    assert_eq!(
        pod.reason,
        "Back-off pulling image \"app:2\"; Failed: Failed to pull image: not found (9 times, last 14s ago)"
    );
    // As data it does not change as time passes.
    assert_eq!(pod.whole_reason, "Back-off pulling image \"app:2\"; Failed: Failed to pull image: not found");
    let event = pod.event.as_ref().unwrap();
    assert_eq!((event.reason.as_str(), event.count, event.last), ("Failed", 9, Some(at("00:01:46"))));
    let stay = |reason: &&Reason| matches!(reason, Reason::Sizes(PlanReason::OldPodsStay { staying: 3, .. }));
    assert_eq!(web.reasons.iter().filter(stay).count(), 1, "{:?}", web.reasons);
}

#[test]
fn the_reason_of_a_pod_is_short_and_harmless_on_a_line_and_whole_as_data() {
    let mut workload = stuck();
    let message = format!("\u{1b}[2J::add-mask::x\n\u{202e}{}", "long ".repeat(1000));
    for pod in &mut workload.pods {
        if let Some(waiting) = pod.pointer_mut("/status/containerStatuses/0/state/waiting") {
            waiting["message"] = json!(message);
        }
    }
    workload.events.clear();
    let assessment = assess(&workload, at("00:01:00")).unwrap();
    let pod = assessment.pods.iter().find(|pod| pod.is_failing).unwrap();
    assert!(pod.reason.starts_with("[2J::add-mask::x long") && pod.reason.chars().count() <= 301, "{pod:?}");
    let data = super::json::assessment(&assessment, &[]);
    let data = data["pods"].as_array().unwrap().iter().find(|one| one["uid"] == pod.uid).unwrap();
    assert_eq!(data["reason"], message);
}

#[test]
fn the_reasons_are_the_planners_own() {
    let workload = stuck();
    let now = at("00:02:00");
    let interner = &mut Interner::default();
    let deployment: Deployment = decode(&workload.object, interner).unwrap();
    let owned = workload
        .replica_sets
        .iter()
        .map(|object| Arc::new(decode::<ReplicaSet>(object, interner).unwrap()))
        .collect();
    let pods: Vec<Arc<Pod>> =
        workload.pods.iter().map(|object| Arc::new(decode::<Pod>(object, interner).unwrap())).collect();
    let pods_of = |replica_set: &ReplicaSet| {
        pods.iter().filter(|pod| replica_set.controls(&pod.meta)).cloned().collect::<Vec<_>>()
    };
    let observed = Observed::gather(&deployment, owned, Vec::new(), true, pods_of, now);
    let plan = planner::plan(&observed);
    let settled = planner::progress::settle(&observed, &plan, &planner::progress::Outcome::after(0));
    let mut expected = plan.reasons.clone();
    expected.extend(explain::progress(&deployment, &plan, &settled.status));
    let expected: Vec<Reason> = expected.into_iter().map(Reason::from).collect();
    assert_eq!(assess(&workload, now).unwrap().reasons, expected);
}

fn set_condition(workload: &mut Workload, reason: &str, updated: &str) {
    let condition = &mut workload.object["status"]["conditions"][0];
    condition["reason"] = json!(reason);
    condition["lastUpdateTime"] = json!(format!("2026-01-01T{updated}Z"));
}

#[test]
fn a_deadline_of_an_earlier_template_is_no_failure_until_the_own_one_passes() {
    let mut web = stuck();
    set_condition(&mut web, "ProgressDeadlineExceeded", "00:00:20");
    let soon = assess(&web, at("00:02:00")).unwrap();
    assert_eq!((soon.verdict, soon.deadline), (Verdict::Waiting, Some(at("00:10:20"))));
    assert_eq!(assess(&web, at("00:10:20")).unwrap().verdict, Verdict::Stuck);
    // Reported after the template was written.
    set_condition(&mut web, "ProgressDeadlineExceeded", "00:00:21");
    assert_eq!(assess(&web, at("00:02:00")).unwrap().verdict, Verdict::Stuck);
}

#[test]
fn a_generation_that_nobody_observes_is_reported_after_five_seconds() {
    let mut web = stuck();
    web.object["status"]["observedGeneration"] = json!(3);
    assert_eq!(assess(&web, at("00:00:24")).unwrap().verdict, Verdict::Waiting);
    let later = assess(&web, at("00:00:25")).unwrap();
    assert_eq!((later.verdict, later.since), (Verdict::Unobserved, Some(at("00:00:20"))));
}

#[test]
fn each_state_has_its_word() {
    let verdict = |change: fn(&mut Workload)| {
        let mut web = stuck();
        change(&mut web);
        assess(&web, at("00:02:00")).unwrap().verdict.word()
    };
    assert_eq!(verdict(|web| web.object["spec"]["paused"] = json!(true)), "paused");
    assert_eq!(verdict(|web| web.object["spec"]["selector"] = json!({})), "refused");
    assert_eq!(
        verdict(|web| web.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z")),
        "deleting"
    );
    let failure = |web: &mut Workload| {
        web.replica_sets[1]["status"]["conditions"] = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}]);
    };
    assert_eq!(verdict(failure), "blocked");
    let scaled = |web: &mut Workload| web.object["spec"]["replicas"] = json!(6);
    assert_eq!(verdict(scaled), "scaling");
    let ready = |web: &mut Workload| {
        web.replica_sets[1] = replica_set(2, 1, 1);
        web.pods[3] = ready("web-2-a", "web-2");
    };
    assert_eq!(verdict(ready), "rolling");
    let done = |web: &mut Workload| {
        web.replica_sets = vec![replica_set(1, 0, 0), replica_set(2, 3, 3)];
        let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
        counts.iter().for_each(|field| web.object["status"][*field] = json!(3));
    };
    assert_eq!(verdict(done), "complete");
}

#[test]
fn without_the_right_to_read_replica_sets_or_pods_only_the_status_counts() {
    let mut web = stuck();
    web.object["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "2"});
    let whole = assess(&web, at("00:02:00")).unwrap();
    web.is_partial = true;
    web.unreadable = vec!["cannot list pods: forbidden".to_owned()];
    let part = assess(&web, at("00:02:00")).unwrap();
    assert_eq!((part.verdict, part.counts, part.revision), (Verdict::Unfinished, whole.counts, Some(2)));
    assert_eq!((part.reasons.len(), part.writes.len(), part.pods.len()), (0, 0, 0));
    assert_eq!((part.deadline, part.estimate, part.previous.clone()), (None, None, None));
    assert_eq!((part.new_available(), whole.new_available()), (None, Some(0)));
    assert!(!part.supersedes(&whole));
    let data = super::json::assessment(&part, &[]);
    for unknown in ["why", "writes", "pods", "replicaSets", "deadline"] {
        assert!(data[unknown].is_null(), "{unknown}: {data:#}");
    }
    // Everything in the status is reported.
    let by_status = |kind: &str, status: &str, reason: &str| {
        let mut web = web.clone();
        let condition = json!({"type": kind, "status": status, "reason": reason, "message": "m",
                               "lastUpdateTime": "2026-01-01T00:10:30Z"});
        web.object["status"]["conditions"] = json!([condition]);
        let part = assess(&web, at("00:11:00")).unwrap();
        (part.verdict.word(), part.conditions.join(", "))
    };
    let said = |word, text: &str| (word, text.to_owned());
    assert_eq!(
        by_status("Progressing", "False", "ProgressDeadlineExceeded"),
        said("stuck", "Progressing=False ProgressDeadlineExceeded: m")
    );
    assert_eq!(
        by_status("ReplicaFailure", "True", "FailedCreate"),
        said("blocked", "ReplicaFailure=True FailedCreate: m")
    );
}

#[test]
fn objects_of_others_and_unreadable_ones_do_not_count() {
    let mut web = stuck();
    let mut other = replica_set(1, 50, 50);
    other["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    web.replica_sets.push(other);
    web.replica_sets.push(json!({"metadata": 7}));
    web.pods.push(json!("no pod"));
    let assessed = assess(&web, at("00:02:00")).unwrap();
    assert_eq!((assessed.parts.len(), assessed.pods.len()), (2, 1));
    assert!(assess(&Workload { object: json!({"spec": 3}), ..web }, at("00:02:00")).is_err());
}

#[test]
fn strange_numbers_and_texts_cause_no_panic() {
    let mut web = stuck();
    web.object["status"] = json!({"replicas": -5, "updatedReplicas": i32::MAX, "availableReplicas": i32::MIN, "observedGeneration": -1});
    web.object["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "abc"});
    web.object["spec"]["replicas"] = json!(0);
    let assessed = assess(&web, at("00:02:00")).unwrap();
    assert_eq!(assessed.counts.desired, 0);
}

#[test]
fn fail_fast_waits_for_its_time_and_for_every_new_pod() {
    let patience = Duration::from_secs(30);
    use std::time::Duration;
    let mut failing = FailingPods::default();
    let mut web = stuck();
    let first = assess(&web, at("00:02:00")).unwrap();
    failing.observe(&first);
    assert_eq!(failing.hopeless_because(&first, patience), None);
    let later = assess(&web, at("00:02:30")).unwrap();
    failing.observe(&later);
    assert!(failing.hopeless_because(&later, patience).unwrap().starts_with("web-2-a: ImagePullBackOff"));
    // Another one that may still start.
    web.pods.push(pod("web-2-b", "web-2", json!({"phase": "Pending"})));
    let both = assess(&web, at("00:02:31")).unwrap();
    failing.observe(&both);
    assert_eq!(failing.hopeless_because(&both, patience), None);
    // A registry that is down may come back.
    web.pods.pop();
    web.events.clear();
    let silent = assess(&web, at("00:02:32")).unwrap();
    let mut fresh = FailingPods::default();
    fresh.observe(&silent);
    assert_eq!(fresh.hopeless_because(&assess(&web, at("00:09:00")).unwrap(), patience), None);
    web.object["spec"]["paused"] = json!(true);
    assert!(
        fresh.hopeless_because(&assess(&web, at("00:02:33")).unwrap(), patience).unwrap().contains("paused")
    );
}
