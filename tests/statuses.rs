//! What a status says, and when: each field is there exactly where upstream's is, `observedGeneration` tells
//! what was acted on, and a pod that is lost is reported at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::model::{Deployment, DeploymentStatus, condition as conditions};
use windlass::plan::deployment::progress::{Failed, Outcome, Settled, settle};
use windlass::plan::deployment::rollback::RollBack;
use windlass::plan::deployment::{Course, Write, plan, status};
use windlass::plan::replicaset::status::{Failure, hold_generation};
use windlass_apiserver::{Hook, RequestInfo, Verdict};
use windlass_testkit::build::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, Faults, USER_AGENT, condition};
use windlass_testkit::set::{pod, set as replica_set};
use windlass_testkit::situation::{NOW, SetBuilder, Situation, decode, set};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
const CONTROLLERS: &str = "/api/v1/namespaces/shop/replicationcontrollers";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const S: Duration = Duration::from_secs(1);

// What is decided.

/// The settled status where only the first `done` writes of the plan succeed and the next one is refused.
fn refused_after(situation: &Situation, done: usize) -> (Settled, Course, usize) {
    let observed = situation.observed();
    let plan = plan(&observed);
    let failed = plan.writes.get(done).and_then(|write| Failed::of(write, "no".into()));
    let mut outcome = Outcome::after(done);
    outcome.stopped(failed, false);
    let settled = settle(&observed, &plan, &outcome);
    (settled, plan.course, plan.writes.len())
}

/// `web` at generation 2, of which generation 1 was observed.
fn changed(replicas: i32, image: &str) -> Value {
    let mut object = deployment("web").replicas(replicas).surge(1).unavailable(0).image(image).json();
    object["metadata"]["generation"] = json!(2);
    object["status"] = json!({"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3,
                              "readyReplicas": 3, "availableReplicas": 3});
    object
}

#[test]
fn a_generation_is_observed_once_every_step_went_through() {
    let sized = |tag: &str, size| set(tag, size).sized(3, 4).revision("1");
    let situations = [
        ("scaled down", changed(2, "v1"), vec![sized("v1", 3)]),
        ("scaled up", changed(5, "v1"), vec![sized("v1", 3)]),
        ("another image", changed(3, "v2"), vec![sized("v1", 3)]),
        ("two steps", changed(2, "v3"), vec![sized("v1", 2), sized("v2", 2)]),
    ];
    for (what, object, sets) in situations {
        let situation = Situation::of(&object, &sets);
        let (_, _, steps) = refused_after(&situation, 0);
        assert!(steps > 0, "{what}");
        for done in 0..steps {
            let (settled, ..) = refused_after(&situation, done);
            assert_eq!(settled.status.observed_generation, 1, "{what}: step {done} of {steps} was refused");
        }
        let (settled, ..) = refused_after(&situation, steps);
        assert_eq!(settled.status.observed_generation, 2, "{what}");
    }
}

#[test]
fn a_generation_that_was_observed_stays_observed_when_a_later_step_is_refused() {
    let mut object = changed(3, "v2");
    object["status"]["observedGeneration"] = json!(2);
    let situation = Situation::of(&object, &[set("v1", 3).sized(3, 4), set("v2", 1).sized(3, 4)]);
    let (settled, _, steps) = refused_after(&situation, 0);
    assert!(steps > 0);
    assert_eq!(settled.status.observed_generation, 2);
}

#[test]
fn a_history_that_cannot_be_trimmed_holds_a_pause_back_and_no_rollout() {
    let old = || set("v1", 0).revision("1");
    for (paused, expected) in [(false, 2), (true, 1)] {
        let mut object = changed(3, "v2");
        object["spec"]["revisionHistoryLimit"] = json!(0);
        object["spec"]["paused"] = json!(paused);
        let new = set("v2", 3).sized(3, 4).revision("2");
        let situation = Situation::of(&object, &[old(), old().image("v9"), new]);
        let observed = situation.observed();
        let plan = plan(&observed);
        assert!(plan.writes.iter().all(|write| matches!(write, Write::Delete(_))), "{plan:?}");
        assert!(!plan.writes.is_empty(), "paused: {paused}");
        let settled = settle(&observed, &plan, &Outcome::default());
        assert_eq!(settled.status.observed_generation, expected, "paused: {paused}");
    }
}

#[test]
fn a_deployment_whose_step_was_refused_is_not_complete() {
    // Scaled from 3 to 2, which was refused, while one of the three is gone for another reason.
    let situation = Situation::of(&changed(2, "v1"), &[set("v1", 3).available(2).has(2).sized(3, 4)]);
    let (settled, ..) = refused_after(&situation, 0);
    assert!(!status::is_complete(&situation.deployment, &settled.status), "{:?}", settled.status);
    let shown = conditions::find(&settled.status.conditions, "ReplicaFailure").unwrap();
    assert_eq!(&*shown.reason, "FailedScale");
}

#[test]
fn an_observed_generation_that_is_too_high_is_put_right() {
    let mut object = changed(3, "v1");
    object["status"]["observedGeneration"] = json!(999);
    let at_rest = || vec![set("v1", 3).sized(3, 4).revision("1")];
    let settled = Situation::of(&object, &at_rest()).settled_at(NOW.parse().unwrap());
    assert_eq!(settled.status.observed_generation, 2, "a Deployment at rest");
    let mut refused = object.clone();
    refused["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    let settled = Situation::of(&refused, &at_rest()).settled_at(NOW.parse().unwrap());
    assert_eq!(settled.status.observed_generation, 2, "a selector that cannot work");
    let mut scaled = object.clone();
    scaled["spec"]["replicas"] = json!(1);
    let (settled, ..) = refused_after(&Situation::of(&scaled, &at_rest()), 0);
    assert_eq!(settled.status.observed_generation, 2, "never above the generation, refused or not");

    let of_set = replica_set(1).observing_generation(999);
    assert_eq!(of_set.settled(&[pod("a").ready(60)], None).status.observed_generation, 1, "a ReplicaSet");
}

#[test]
fn a_status_of_a_generation_that_there_is_not_is_not_counted_on() {
    let start = || deployment("web").replicas(3).surge(1).unavailable(0).image("v2");
    let sizes = |observed| {
        let sets = [set("v1", 3).sized(3, 4), set("v2", 1).sized(3, 4).observing_generation(observed)];
        Situation::new(start(), &sets).sizes_after()
    };
    assert_eq!(sizes(1), [2, 2], "the new pod is available");
    assert_eq!(sizes(0), [3, 1], "of an earlier generation");
    assert_eq!(sizes(999), [3, 1], "somebody has written that, and the counts may be of any time");
}

#[test]
fn a_replica_set_observes_a_generation_with_its_refusal_and_not_after_silence() {
    let told = replica_set(2).observing_generation(0);
    let failure = Failure { reason: "FailedCreate", message: "quota".into() };
    let mut settled = told.settled(&[pod("a").ready(60)], Some(&failure));
    assert_eq!(settled.status.observed_generation, 1, "upstream's, which says ReplicaFailure beside it");
    assert_eq!(settled.status.conditions.len(), 1);
    settled.status.conditions.clear();
    hold_generation(&told.build(), &mut settled.status);
    assert_eq!(settled.status.observed_generation, 0, "a lost reply");
    hold_generation(&replica_set(2).observing_generation(7).build(), &mut settled.status);
    assert_eq!(settled.status.observed_generation, 1, "one that is too high is put right all the same");
}

#[test]
fn a_fall_is_urgent_for_a_deployment_and_a_rise_is_not() {
    let web: Deployment = decode(&changed(3, "v1"));
    let was = |[replicas, ready, available]: [i32; 3]| Deployment {
        status: DeploymentStatus {
            replicas,
            updated: replicas.min(3),
            ready,
            available,
            observed_generation: 2,
            ..DeploymentStatus::default()
        },
        ..web.clone()
    };
    for (before, after, urgent) in [
        ([3, 3, 3], [3, 2, 2], true),
        ([3, 3, 3], [3, 3, 2], true),
        ([3, 2, 2], [3, 1, 1], true),
        ([4, 4, 4], [4, 3, 4], true),
        // Complete no longer, though all that is wanted is available.
        ([3, 3, 3], [4, 3, 3], true),
        ([3, 2, 2], [3, 3, 3], true),
        ([4, 2, 2], [4, 3, 3], false),
        ([4, 2, 1], [4, 3, 1], false),
        ([3, 1, 1], [3, 2, 1], false),
    ] {
        assert_eq!(status::is_urgent(&was(before), &was(after).status), urgent, "{before:?} {after:?}");
    }
}

// Rollbacks.

/// What a rollback to `revision` does: the image that it leads to, or why it does nothing.
fn rolled_back(object: &Value, sets: &[SetBuilder], revision: &str) -> String {
    let mut object = object.clone();
    object["metadata"]["annotations"] = json!({"deprecated.deployment.rollback.to": revision});
    let plan = Situation::of(&object, sets).plan();
    let [Write::RollBack(RollBack { back, note })] = &plan.writes[..] else { panic!("{plan:?}") };
    match back {
        None => note.reason.to_string(),
        Some((template, _)) => {
            let template: Value = serde_json::from_str(template.get()).unwrap();
            template["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
        }
    }
}

#[test]
fn a_rollback_to_the_last_revision_counts_the_current_template_as_the_latest() {
    const UNCHANGED: &str = "DeploymentRollbackTemplateUnchanged";
    const NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";
    let at = |tag: &str, revision: &str| set(tag, 1).revision(revision);
    let three = || vec![at("v1", "1"), at("v2", "2"), at("v3", "3")];
    let web = |image: &str| deployment("web").image(image).json();
    assert_eq!(rolled_back(&web("v3"), &three(), "0"), "app:v2", "the current one has the highest revision");
    assert_eq!(rolled_back(&web("v4"), &three(), "0"), "app:v3", "paused, a new image, and back");
    assert_eq!(rolled_back(&web("v1"), &three(), "0"), "app:v3", "its revision is still the old one");
    assert_eq!(rolled_back(&web("v2"), &[at("v1", "1")], "0"), "app:v1");
    assert_eq!(rolled_back(&web("v1"), &[at("v1", "1")], "0"), NOT_FOUND);
    assert_eq!(rolled_back(&web("v1"), &[], "0"), NOT_FOUND);
    // To a revision by its number, as they are once each template has its own.
    assert_eq!(rolled_back(&web("v4"), &three(), "2"), "app:v2");
    assert_eq!(rolled_back(&web("v4"), &three(), "4"), UNCHANGED, "the current one, before it is created");
    assert_eq!(rolled_back(&web("v1"), &three(), "4"), UNCHANGED, "the current one, before it is renumbered");
    assert_eq!(rolled_back(&web("v1"), &three(), "1"), NOT_FOUND, "the number that it had");
    assert_eq!(rolled_back(&web("v3"), &three(), "3"), UNCHANGED);
    assert_eq!(rolled_back(&web("v4"), &three(), "9"), NOT_FOUND);
    // Revisions that are no numbers, or none that could be, are not counted.
    assert_eq!(rolled_back(&web("v4"), &[at("v1", "1"), at("v2", "abc"), at("v3", "-5")], "0"), "app:v1");
}

// What is shown.

async fn with(verdict: impl Fn(&RequestInfo) -> Verdict + Send + Sync + 'static) -> Cluster {
    let hook: Hook = Arc::new(verdict);
    Cluster::with(Faults(Some(hook)), |options| options).await
}

fn forbidden() -> Verdict {
    Verdict::Refuse { code: 403, message: "policy says no".into(), reason: "Forbidden".into() }
}

/// A cluster that refuses what `is_meant` of the controllers' requests while the switch is on.
async fn refusing(is_meant: fn(&RequestInfo) -> bool) -> (Cluster, Arc<AtomicBool>) {
    let switch = Arc::new(AtomicBool::new(false));
    let on = switch.clone();
    let cluster = with(move |request| {
        let meant = request.user_agent == USER_AGENT && is_meant(request);
        if meant && on.load(Ordering::SeqCst) { forbidden() } else { Verdict::Proceed }
    })
    .await;
    (cluster, switch)
}

fn only_replica_set(cluster: &Cluster) -> Value {
    let all = cluster.objects("ReplicaSet");
    assert_eq!(all.len(), 1);
    all[0].clone()
}

fn is_observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

async fn running(replicas: i32) -> (Cluster, Daemon) {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(replicas).surge(1).unavailable(0)).await;
    cluster.rolled_out("web").await;
    tokio::time::sleep(3 * S).await;
    (cluster, daemon)
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_that_is_refused_is_not_reported_as_observed() {
    let resizes = |r: &RequestInfo| (r.verb, r.kind, r.subresource) == ("patch", "ReplicaSet", "");
    let (cluster, refuses) = refusing(resizes).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    refuses.store(true, Ordering::SeqCst);
    cluster.patch("web", json!({"spec": {"replicas": 1}})).await;
    let says_so = |c: &Cluster| condition(&c.deployment("web"), "ReplicaFailure") == "FailedScale";
    cluster.eventually(5, "the refusal shows", says_so).await;
    for _ in 0..30 {
        tokio::time::sleep(S).await;
        let web = cluster.deployment("web");
        assert!(!is_observed(&web), "{}", web["status"]);
        assert_eq!(web["status"]["replicas"], 3, "the counts go on");
    }
    refuses.store(false, Ordering::SeqCst);
    cluster.eventually(70, "it is observed once it is acted on", |c| c.is_complete("web")).await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_that_cannot_be_created_leaves_the_generation_unobserved() {
    let creates = |r: &RequestInfo| (r.verb, r.kind) == ("create", "ReplicaSet");
    let (cluster, refuses) = refusing(creates).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    refuses.store(true, Ordering::SeqCst);
    cluster.set_image("web", "v2").await;
    let says_so = |c: &Cluster| condition(&c.deployment("web"), "Progressing") == "ReplicaSetCreateError";
    cluster.eventually(5, "the refusal shows", says_so).await;
    tokio::time::sleep(20 * S).await;
    assert!(!is_observed(&cluster.deployment("web")));
    refuses.store(false, Ordering::SeqCst);
    cluster.eventually(70, "it is rolled out", |c| c.is_complete("web")).await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_whose_pods_cannot_be_deleted_says_so_beside_the_generation() {
    let deletes = |r: &RequestInfo| (r.verb, r.kind) == ("delete", "Pod");
    let (cluster, refuses) = refusing(deletes).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    refuses.store(true, Ordering::SeqCst);
    cluster.patch("web", json!({"spec": {"replicas": 1}})).await;
    let mut unobserved = 0;
    for _ in 0..100 {
        tokio::time::sleep(S / 10).await;
        let set = only_replica_set(&cluster);
        let fails = condition(&set, "ReplicaFailure") == "FailedDelete";
        assert!(!is_observed(&set) || fails || set["spec"]["replicas"] == 3, "{}", set["status"]);
        unobserved += usize::from(!fails);
    }
    assert!(unobserved < 20, "it is said within seconds");
    refuses.store(false, Ordering::SeqCst);
    cluster.eventually(70, "it has shrunk", |c| c.is_complete("web")).await;
}

/// A quota leaves no room for a surge, and one pod less: the rollout needs the old pods' places.
#[tokio::test(start_paused = true)]
async fn a_rollout_under_a_quota_that_refuses_each_surge_comes_to_its_end() {
    for unavailable in [1, 2] {
        let sandbox: Arc<std::sync::OnceLock<windlass_apiserver::Sandbox>> = Arc::default();
        let inner = sandbox.clone();
        let cluster = with(move |request| {
            let alive =
                |pod: &Value| !matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
            let pods = || inner.get().map_or(0, |s| s.objects("Pod").iter().filter(|p| alive(p)).count());
            let asks = request.user_agent == USER_AGENT && (request.verb, request.kind) == ("create", "Pod");
            if asks && pods() >= 4 { forbidden() } else { Verdict::Proceed }
        })
        .await;
        let _only_once = sandbox.set(cluster.sandbox.clone());
        let _daemon = cluster.start_controllers(1);
        cluster.create(deployment("web").replicas(4).surge(2).unavailable(unavailable)).await;
        cluster.rolled_out("web").await;
        cluster.set_image("web", "v2").await;
        let refused = |c: &Cluster| {
            c.objects("ReplicaSet").iter().any(|set| !condition(set, "ReplicaFailure").is_empty())
        };
        cluster.eventually(5, "pods are refused", refused).await;
        cluster.eventually(300, "it is rolled out all the same", |c| c.is_complete("web")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_observed_generation_that_somebody_has_raised_is_put_right() {
    let (cluster, _daemon) = running(2).await;
    let template = json!({"metadata": {"labels": {"app": "elder"}},
                          "spec": {"containers": [{"name": "app", "image": "app:v1"}]}});
    let elder = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "elder"},
                       "spec": {"replicas": 1, "selector": {"app": "elder"}, "template": template}});
    cluster.call(Method::POST, CONTROLLERS, &elder).await;
    let has_one = |c: &Cluster| c.objects("ReplicationController")[0]["status"]["availableReplicas"] == 1;
    cluster.eventually(60, "the ReplicationController has its pod", has_one).await;
    tokio::time::sleep(3 * S).await;
    let set = only_replica_set(&cluster)["metadata"]["name"].as_str().unwrap().to_owned();
    let raised = json!({"status": {"observedGeneration": 999}});
    for path in [
        format!("{DEPLOYMENTS}/web/status"),
        format!("{REPLICA_SETS}/{set}/status"),
        format!("{CONTROLLERS}/elder/status"),
    ] {
        cluster.call(Method::PATCH, &path, &raised).await;
    }
    let right = |c: &Cluster| {
        let kinds = ["Deployment", "ReplicaSet", "ReplicationController"];
        kinds.iter().flat_map(|kind| c.objects(kind)).all(|object| is_observed(&object))
    };
    cluster.eventually(2, "all three are right again", right).await;
}

#[tokio::test(start_paused = true)]
async fn every_field_of_a_status_is_there_where_upstream_has_it() {
    let fields = |object: &Value| {
        let status = object["status"].as_object().unwrap();
        status.keys().filter(|key| *key != "conditions").cloned().collect::<Vec<_>>().join(" ")
    };
    let (cluster, _daemon) = running(2).await;
    let full_set = "availableReplicas fullyLabeledReplicas observedGeneration readyReplicas replicas terminatingReplicas";
    assert_eq!(fields(&only_replica_set(&cluster)), full_set);
    assert_eq!(only_replica_set(&cluster)["status"]["terminatingReplicas"], 0);
    let full =
        "availableReplicas observedGeneration readyReplicas replicas terminatingReplicas updatedReplicas";
    assert_eq!(fields(&cluster.deployment("web")), full);
    assert_eq!(cluster.deployment("web")["status"]["terminatingReplicas"], 0);

    cluster.patch("web", json!({"spec": {"replicas": 0}})).await;
    cluster.rolled_out("web").await;
    let ended = |c: &Cluster| c.deployment("web")["status"]["terminatingReplicas"] == 0;
    tokio::time::sleep(60 * S).await;
    assert!(ended(&cluster));
    assert_eq!(fields(&only_replica_set(&cluster)), "observedGeneration replicas terminatingReplicas");
    assert_eq!(only_replica_set(&cluster)["status"]["replicas"], 0);
    assert_eq!(fields(&cluster.deployment("web")), "observedGeneration terminatingReplicas");

    let template = json!({"metadata": {"labels": {"app": "elder"}},
                          "spec": {"containers": [{"name": "app", "image": "app:v1"}]}});
    let elder = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "elder"},
                       "spec": {"replicas": 0, "selector": {"app": "elder"}, "template": template}});
    cluster.call(Method::POST, CONTROLLERS, &elder).await;
    tokio::time::sleep(5 * S).await;
    assert_eq!(fields(&cluster.objects("ReplicationController")[0]), "observedGeneration replicas");
}

/// Pods that take their time to end: the sum of the Deployment is that of its ReplicaSets at each moment, and
/// never an absent one in the middle of a rollout.
#[tokio::test(start_paused = true)]
async fn terminating_pods_are_counted_all_the_way_through_a_rollout() {
    let (cluster, _daemon) = running(3).await;
    cluster.set_image("web", "v2").await;
    let mut most = 0;
    for _ in 0..600 {
        tokio::time::sleep(S / 10).await;
        let terminating = &cluster.deployment("web")["status"]["terminatingReplicas"];
        most = most.max(terminating.as_i64().expect("it is never absent"));
        for set in cluster.objects("ReplicaSet") {
            let (observed, counted) =
                (&set["status"]["observedGeneration"], &set["status"]["terminatingReplicas"]);
            assert_eq!(observed.is_null(), counted.is_null(), "{}", set["status"]);
        }
    }
    assert!(most > 0 && cluster.is_complete("web"));
    assert_eq!(cluster.deployment("web")["status"]["terminatingReplicas"], 0);
}

/// A ReplicaSet that another controller manager has left without the count, as those before 1.35 do.
#[tokio::test(start_paused = true)]
async fn a_count_of_terminating_pods_that_is_missing_is_added() {
    let (cluster, daemon) = running(2).await;
    daemon.stop().await;
    let set = only_replica_set(&cluster)["metadata"]["name"].as_str().unwrap().to_owned();
    let without = json!({"status": {"terminatingReplicas": null}});
    for path in [format!("{DEPLOYMENTS}/web/status"), format!("{REPLICA_SETS}/{set}/status")] {
        cluster.call(Method::PATCH, &path, &without).await;
    }
    assert!(only_replica_set(&cluster)["status"]["terminatingReplicas"].is_null());
    let _next = cluster.start_controllers(2);
    let counted = |c: &Cluster| {
        [only_replica_set(c), c.deployment("web")].iter().all(|o| o["status"]["terminatingReplicas"] == 0)
    };
    cluster.eventually(30, "both say 0", counted).await;
}

async fn is_not_ready(cluster: &Cluster, pod: &Value) {
    let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
    let body = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.call(Method::PATCH, &path, &body).await;
}

#[tokio::test(start_paused = true)]
async fn a_complete_deployment_that_loses_pods_says_so_at_once_each_time() {
    let (cluster, _daemon) = running(5).await;
    let pods = cluster.objects("Pod");
    for (lost, pod) in pods.iter().take(3).enumerate() {
        is_not_ready(&cluster, pod).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let left = 4 - lost as u64;
        for object in [only_replica_set(&cluster), cluster.deployment("web")] {
            let (ready, available) =
                (&object["status"]["readyReplicas"], &object["status"]["availableReplicas"]);
            assert_eq!((ready, available), (&json!(left), &json!(left)), "{}", object["kind"]);
        }
        assert!(!cluster.is_complete("web"));
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_become_ready_within_a_second_are_still_reported_together() {
    let (cluster, _daemon) = running(5).await;
    for pod in cluster.objects("Pod") {
        is_not_ready(&cluster, &pod).await;
    }
    tokio::time::sleep(3 * S).await;
    let statuses = |c: &Cluster| c.writes().iter().filter(|w| w.ends_with("/status")).count();
    let before = statuses(&cluster);
    let now = cluster.clock.now().to_string();
    for pod in cluster.objects("Pod") {
        let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
        cluster.call(Method::PATCH, &path, &json!({"status": {"conditions": [ready]}})).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    cluster.eventually(5, "it is complete again", |c| c.is_complete("web")).await;
    let written = statuses(&cluster) - before;
    assert!(written <= 5, "{written} statuses for five pods");
}
