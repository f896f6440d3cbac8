//! Tables of one decision each: the pods that exist, and the pods that a plan creates and deletes. The situations are those
//! of upstream's unit tests (`stateful_set_control_test.go`, `stateful_set_utils_test.go`). Whole rollouts are the golden
//! transcripts in `tests/planner/statefulset`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::body::{claim_body, pod_body};
use super::*;
use crate::model::int_or_percent::IntOrPercent;
use crate::model::{Interner, Record};
use crate::plan::revisions::data;

const OWNER: &str =
    r#"[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"u","controller":true}]"#;

fn the_time() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn decoded<T: Record>(object: &Value) -> T {
    T::decode(&object.to_string(), &mut Interner::default()).unwrap()
}

/// A StatefulSet of three pods with these changes to its specification, coming from the revision `db-old`.
fn set(changes: &str) -> StatefulSet {
    let mut spec = json!({
        "replicas": 3, "serviceName": "peers", "selector": {"matchLabels": {"app": "db"}},
        "updateStrategy": {"rollingUpdate": {}},
        "template": {"metadata": {"labels": {"app": "db"}},
                     "spec": {"hostname": "mine", "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
                              "containers": [], "novel": 1}},
    });
    let changes: Value = serde_json::from_str(&format!("{{{changes}}}")).unwrap();
    spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    decoded(&json!({
        "metadata": {"name": "db", "namespace": "shop", "uid": "u", "resourceVersion": "1", "generation": 2},
        "spec": spec,
        "status": {"observedGeneration": 2, "currentRevision": "db-old", "updateRevision": "db-new", "currentReplicas": 2},
    }))
}

fn revision(name: &str, number: i64, data: &str) -> Arc<ControllerRevision> {
    Arc::new(decoded(&json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1",
                     "labels": {"app": "db", "controller.kubernetes.io/hash": "1"},
                     "ownerReferences": serde_json::from_str::<Value>(OWNER).unwrap()},
        "revision": number, "data": serde_json::from_str::<Value>(data).unwrap(),
    })))
}

fn revisions(set: &StatefulSet) -> [Arc<ControllerRevision>; 2] {
    let old = r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"old"}}}}}"#;
    [revision("db-old", 1, old), revision("db-new", 2, &data(&set.template).unwrap())]
}

/// A pod by its revision and, behind a colon, its state; ready for an hour without one, `fresh` for a second.
fn pod(ordinal: usize, words: &str) -> Option<Arc<Pod>> {
    let (revision, state) = words.split_once(':').unwrap_or((words, "ready"));
    let name = format!("db-{ordinal}");
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{ordinal}"), "resourceVersion": "1",
            "labels": {"app": "db", "controller-revision-hash": format!("db-{revision}"),
                       "statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": ordinal.to_string()},
            "ownerReferences": serde_json::from_str::<Value>(OWNER).unwrap()},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    });
    let ready = |since: &str| json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
    match state {
        "ready" => pod["status"]["conditions"] = ready("2026-01-01T00:00:00Z"),
        "fresh" => pod["status"]["conditions"] = ready("2026-01-01T00:59:59Z"),
        "unready" => {}
        "pending" => pod["status"]["phase"] = "Pending".into(),
        "failed" => pod["status"]["phase"] = "Failed".into(),
        "terminating" => {
            pod["status"]["conditions"] = ready("2026-01-01T00:00:00Z");
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:59:00Z".into();
        }
        _ => panic!("{state}"),
    }
    (revision != "-").then(|| Arc::new(decoded(&pod)))
}

/// The plan for pods from ordinal 0 on; `-` is a missing one.
fn planned(set: &StatefulSet, pods: &str) -> Plan {
    let pods: Vec<_> = pods.split(' ').enumerate().filter_map(|(at, words)| pod(at, words)).collect();
    plan(&Observed::of_lists(set, &pods, &[], &revisions(set), the_time()))
}

/// The pods that a plan creates (`+`, with their revision) and deletes (`-`, with the reason), in order.
#[track_caller]
fn check(changes: &str, pods: &str, expected: &str) {
    let mut writes = Vec::new();
    for write in planned(&set(changes), pods).writes {
        match write {
            Write::CreatePods(pods) => {
                writes.extend(pods.iter().map(|new| format!("+{} {}", new.ordinal, &new.revision[3..])));
            }
            Write::DeletePods(deletions) => {
                writes.extend(deletions.iter().map(|one| format!("-{} {:?}", one.ordinal, one.reason)));
            }
            other => writes.push(other.to_string()),
        }
    }
    assert_eq!(writes.join(", "), expected, "{changes} {pods}");
}

const PARALLEL: &str = r#""podManagementPolicy":"Parallel""#;

fn parallel(changes: &str) -> String {
    if changes.is_empty() { PARALLEL.to_owned() } else { format!("{PARALLEL},{changes}") }
}

#[test]
fn one_by_one_a_pod_is_created_once_all_below_it_are_available() {
    check("", "- - -", "+0 new");
    check("", "new - -", "+1 new");
    check("", "- new new", "+0 new");
    for blocking in ["new:unready", "new:pending", "new:terminating"] {
        check("", &format!("{blocking} - -"), "");
    }
    check(r#""minReadySeconds":10"#, "new:fresh - -", "");
    check(r#""minReadySeconds":1"#, "new:fresh - -", "+1 new");
    check("", "new:failed - -", "-0 Ended");
}

#[test]
fn all_at_once_nothing_waits_for_a_pod() {
    check(&parallel(""), "- - -", "+0 new, +1 new, +2 new");
    check(&parallel(""), "new:unready - new:terminating", "+1 new");
    check(
        &parallel(r#""replicas":2"#),
        "new:failed - new:unready new",
        "+1 new, -0 Ended, -3 Condemned, -2 Condemned",
    );
}

#[test]
fn pods_out_of_range_go_from_the_highest_down() {
    let one = r#""replicas":1"#;
    check(one, "new new new", "-2 Condemned");
    check(one, "new new new:terminating", "");
    check(one, "new:unready new new", "");
    check(one, "- new new", "+0 new");
    check(one, "new new:unready new:unready", "");
    check(one, "new new new:unready", "-2 Condemned");
    check(one, "new new:unready new", "-2 Condemned");
    check(r#""replicas":0"#, "new:unready", "-0 Condemned");
    check(&parallel(one), "new:unready new new:terminating new:pending", "-3 Condemned, -1 Condemned");
    let from_two = r#""replicas":2,"ordinals":{"start":2}"#;
    check(from_two, "new new new", "+3 new");
    check(from_two, "new new new new", "-1 Condemned");
    check(&parallel(from_two), "new new - - new", "+2 new, +3 new, -4 Condemned, -1 Condemned, -0 Condemned");
}

#[test]
fn outdated_pods_go_from_the_highest_down_to_the_partition() {
    let partition =
        |partition: i32| format!(r#""updateStrategy":{{"rollingUpdate":{{"partition":{partition}}}}}"#);
    check("", "old old old", "-2 Outdated");
    check("", "old old new", "-1 Outdated");
    check("", "old old new:unready", "");
    check(&partition(1), "old old new", "-1 Outdated");
    check(&partition(1), "old new new", "");
    check(&partition(9), "old old old", "");
    let from_one = format!(r#"{},"ordinals":{{"start":1}}"#, partition(2));
    check(&from_one, "- old old old", "-3 Outdated");
    check(&from_one, "- old old new", "");
    check(r#""updateStrategy":{"type":"OnDelete"}"#, "old old old", "");
}

#[test]
fn as_many_pods_are_replaced_as_may_be_unavailable() {
    let most = |most: &str| format!(r#""updateStrategy":{{"rollingUpdate":{{"maxUnavailable":{most}}}}}"#);
    check(&most("2"), "old old old", "-2 Outdated, -1 Outdated");
    check(&parallel(&most("2")), "old old new:unready", "-1 Outdated");
    check(&parallel(&most("2")), "old old:unready old", "-1 Outdated, -2 Outdated");
    check(&parallel(&most("2")), "old:unready old:unready old", "-1 Outdated, -0 Outdated");
    check(&parallel(&most("1")), "old old:unready old", "-1 Outdated");
    check(&parallel(&most("1")), "old old:terminating old", "");
    let below = r#""updateStrategy":{"rollingUpdate":{"maxUnavailable":1,"partition":1}}"#;
    check(&parallel(below), "old:unready old old", "");
}

#[test]
fn a_percentage_of_unavailable_pods_is_rounded_down_and_at_least_one() {
    let most = |replicas: i32, most| most_unavailable(&set(&format!(r#""replicas":{replicas}"#)), most);
    assert_eq!(most(10, None), 1);
    let percent = |percent| Some(IntOrPercent::Percent(percent));
    let table = [(10, 10, 1), (10, 33, 3), (10, 39, 3), (3, 30, 1), (0, 90, 1), (10, 0, 1), (10, 100, 10)];
    for (replicas, of, expected) in table {
        assert_eq!(most(replicas, percent(of)), expected, "{of} % of {replicas}");
    }
    for (number, expected) in [(0, 1), (1, 1), (7, 7)] {
        assert_eq!(most(3, Some(IntOrPercent::Int(number))), expected);
    }
}

#[test]
fn a_broken_old_pod_goes_one_by_one_only_if_it_never_started() {
    check("", "old old:pending old", "-1 NeverStarted");
    check("", "old old:unready old", "");
    check("", "old new:pending old", "");
    check(r#""updateStrategy":{"rollingUpdate":{"partition":2}}"#, "old old:pending old", "");
    check(r#""updateStrategy":{"type":"OnDelete"}"#, "old old:pending old", "");
}

#[test]
fn a_missing_pod_gets_the_revision_of_its_side_of_the_partition() {
    let partition = r#""updateStrategy":{"rollingUpdate":{"partition":2}}"#;
    check(&parallel(partition), "- - -", "+0 old, +1 old, +2 new");
    // Without `rollingUpdate` as many as `status.currentReplicas`, which is 2 here.
    check(&parallel(r#""updateStrategy":{"type":"RollingUpdate"}"#), "- - -", "+0 old, +1 old, +2 new");
    check(&parallel(r#""updateStrategy":{"type":"OnDelete"}"#), "- - -", "+0 new, +1 new, +2 new");
    let from_one = format!(r#"{partition},"ordinals":{{"start":1}}"#);
    check(&parallel(&from_one), "- - - -", "+1 old, +2 old, +3 new");
}

#[test]
fn a_pod_is_created_only_on_claims_that_stay() {
    let set = set(r#""replicas":1,"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{}}]"#);
    let created = |claim: Option<Value>| {
        let metadata = json!({"name": "data-db-0", "namespace": "shop", "uid": "c", "resourceVersion": "1"});
        let claims = claim.map(|mut changes| {
            changes.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
            Arc::new(decoded::<PersistentVolumeClaim>(&json!({"metadata": changes})))
        });
        let claims: Vec<_> = claims.into_iter().collect();
        let plan = plan(&Observed::of_lists(&set, &[], &claims, &revisions(&set), the_time()));
        plan.writes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let owner = |api_version: &str, kind: &str, name: &str, uid: &str| json!({"ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}]});
    assert_eq!(created(None), "create pods db-0, with 1 claims");
    assert_eq!(created(Some(json!({}))), "create pods db-0");
    assert_eq!(created(Some(owner("x/v1", "Backup", "b", "u-b"))), "create pods db-0");
    assert_eq!(created(Some(json!({"deletionTimestamp": "2026-01-01T00:59:00Z"}))), "");
    assert_eq!(created(Some(owner("apps/v1", "StatefulSet", "db", "u-former"))), "");
    assert_eq!(created(Some(owner("v1", "Pod", "db-0", "u-former"))), "");
}

#[test]
fn an_ended_pod_is_replaced_at_once_and_its_successor_after_a_wait() {
    let set = set(r#""replicas":1"#);
    let failed = [pod(0, "new:failed").unwrap()];
    let revisions = revisions(&set);
    let mut observed = Observed::of_lists(&set, &failed, &[], &revisions, the_time());
    let replaced = |observed: &Observed<'_>| {
        let plan = plan(observed);
        (plan.writes.iter().filter(|write| matches!(write, Write::DeletePods(_))).count(), plan.requeue_after)
    };
    assert_eq!(replaced(&observed), (1, None));
    Arc::make_mut(&mut observed.backoff).deleted(2, &"db-0".into(), the_time());
    assert_eq!(replaced(&observed), (0, Some(Duration::from_secs(1))));
}

/// The data that 1.33 and earlier wrote has a null that later ones leave out (testdata of `stateful_set_control_test.go`).
#[test]
fn a_revision_that_means_the_template_in_other_bytes_stays() {
    let set = set("");
    let other = data(&set.template).unwrap().replacen(
        r#""metadata":{"#,
        r#""metadata":{"creationTimestamp":null,"#,
        1,
    );
    assert_ne!(other, data(&set.template).unwrap());
    let revisions = [revision("db-old", 1, &other)];
    let pods: Vec<_> = (0..3).filter_map(|ordinal| pod(ordinal, "old")).collect();
    assert_eq!(plan(&Observed::of_lists(&set, &pods, &[], &revisions, the_time())).writes, []);
}

#[test]
fn a_revision_is_trimmed_beyond_the_limit_unless_a_pod_has_it() {
    let set = set(r#""revisionHistoryLimit":0"#);
    let [old, new] = revisions(&set);
    let other = |name: &str, number| {
        let data = format!(
            r#"{{"spec":{{"template":{{"$patch":"replace","metadata":{{"labels":{{"app":"{name}"}}}}}}}}}}"#
        );
        revision(name, number, &data)
    };
    let all = [other("db-first", -2), other("db-third", -1), old, new];
    let trimmed = |pods: &str| {
        let pods: Vec<_> = pods.split(' ').enumerate().filter_map(|(at, words)| pod(at, words)).collect();
        let plan = plan(&Observed::of_lists(&set, &pods, &[], &all, the_time()));
        let trimmed = plan.writes.into_iter().filter(|write| matches!(write, Write::DeleteRevision(_)));
        trimmed.map(|write| write.to_string()).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(trimmed("new new new:unready"), "delete revision db-first, delete revision db-third");
    assert_eq!(trimmed("third new new:unready"), "delete revision db-first");
    assert_eq!(trimmed("third first new:unready"), "");
}

#[test]
fn pods_are_members_by_owner_selector_and_name() {
    let set = set("");
    let named = |name: &str, label: &str, owner: &str| -> Arc<Pod> {
        Arc::new(decoded(
            &json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1",
            "labels": {"app": label}, "ownerReferences": serde_json::from_str::<Value>(owner).unwrap()}}),
        ))
    };
    let of = |name, label, owner: &str| {
        let pod = named(name, label, owner);
        let (owned, orphans) = if owner == "[]" { (vec![], vec![pod]) } else { (vec![pod], vec![]) };
        let Members { pods, odd, to_release, orphans } = Members::of(&set, owned, orphans);
        [pods.len(), odd.len(), to_release.len(), orphans.len()]
    };
    let [member, odd, released, adopted, ignored] =
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0; 4]];
    let table = [
        ("db-0", "db", OWNER, member),
        ("db-2147483647", "db", OWNER, member),
        ("db-01", "db", OWNER, odd),
        ("db-2147483648", "db", OWNER, odd),
        ("web-0", "db", OWNER, released),
        ("db", "db", OWNER, released),
        ("db-0", "web", OWNER, released),
        ("db-0", "db", "[]", adopted),
        ("db-0", "web", "[]", ignored),
        ("db-01", "db", "[]", ignored),
        ("my-db-0", "db", "[]", ignored),
    ];
    for (name, label, owner, expected) in table {
        assert_eq!(of(name, label, owner), expected, "{name} {label} {owner}");
    }
}

#[test]
fn a_new_pod_has_its_identity_and_its_claims_in_place_of_the_volumes_of_the_template() {
    let templates = r#""volumeClaimTemplates":[{"metadata":{"name":"logs"},"spec":{}},
        {"metadata":{"name":"data","labels":{"app":"x","tier":"t"},"annotations":{"a":"b"}},"spec":{"novel":1}}],
        "persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete"}"#;
    let set = set(templates);
    let new = NewPod {
        ordinal: 7,
        name: "db-7".into(),
        revision: "db-new".into(),
        is_updated: true,
        missing_claims: vec![0, 1],
        claims_to_read: Vec::new(),
    };
    let pod: Value = serde_json::from_slice(&pod_body(&set, &set.template, &new).unwrap()).unwrap();
    assert_eq!((&pod["metadata"]["name"], &pod["metadata"]["generateName"]), (&json!("db-7"), &json!("db-")));
    let labels = json!({"app": "db", "controller-revision-hash": "db-new",
                        "statefulset.kubernetes.io/pod-name": "db-7", "apps.kubernetes.io/pod-index": "7"});
    assert_eq!(pod["metadata"]["labels"], labels);
    assert_eq!(
        (&pod["spec"]["hostname"], &pod["spec"]["subdomain"], &pod["spec"]["novel"]),
        (&json!("db-7"), &json!("peers"), &json!(1))
    );
    let claim =
        |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-db-7")}});
    assert_eq!(
        pod["spec"]["volumes"],
        json!([claim("logs"), claim("data"), {"name": "tmp", "emptyDir": {}}])
    );

    let (name, body) = claim_body(&set, &set.claim_templates.all().unwrap()[1], &new).unwrap();
    let claim: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((name.as_str(), &claim["metadata"]["name"]), ("data-db-7", &json!("data-db-7")));
    assert_eq!(claim["metadata"]["labels"], json!({"app": "db", "tier": "t"}), "the selector wins");
    assert_eq!(
        (&claim["metadata"]["annotations"], &claim["spec"]),
        (&json!({"a": "b"}), &json!({"novel": 1}))
    );
    assert_eq!(
        claim["metadata"]["ownerReferences"][0]["uid"], "u",
        "as whenDeleted says, from the beginning"
    );
}

#[test]
fn an_explanation_names_the_pods_and_what_they_wait_for() {
    let said = |changes: &str, pods: &str| {
        let reasons = planned(&set(changes), pods).reasons;
        reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(". ")
    };
    let table = [
        ("", "new new new", "Complete: 3 of 3 pods are available and of the current template"),
        ("", "new - -", "Windlass creates db-1"),
        ("", "new new:unready -", "Pod db-1: it is not ready"),
        (
            r#""minReadySeconds":10"#,
            "new new:fresh -",
            "Pod db-1: it becomes available at 2026-01-01T01:00:09Z",
        ),
        (
            "",
            "old old old",
            "Windlass deletes db-2: of an older template. maxUnavailable is 1: 2 old pods must stay until others are available",
        ),
        (
            r#""updateStrategy":{"rollingUpdate":{"partition":2}}"#,
            "old old new",
            "The partition is 2: 2 pods below it keep their older template",
        ),
        (
            r#""updateStrategy":{"type":"OnDelete"}"#,
            "old new old",
            "The strategy is OnDelete: 2 pods with an older template stay until a user deletes them: db-2, db-0",
        ),
        (
            r#""replicas":1"#,
            "new new:unready new:unready",
            "Pod db-2: it is out of range and not available, which halts the scale-down (repair or delete the pod)",
        ),
    ];
    for (changes, pods, expected) in table {
        assert_eq!(said(changes, pods), expected, "{changes} {pods}");
    }
    assert!(
        said("", "new new:terminating -")
            .starts_with("Pod db-1: it is being deleted on node n (a pod on a lost node")
    );
}

#[test]
fn a_status_counts_the_pods_as_upstream_does() {
    let counts = |changes: &str, pods: &str| {
        let StatefulSetStatus { replicas, ready, available, current, updated, current_revision, .. } =
            planned(&set(changes), pods).status.unwrap();
        format!("{replicas} {ready} {available} {current} {updated} {}", &current_revision[3..])
    };
    let table = [
        // Created in this sync: counted with the next.
        ("", "- - -", "0 0 0 0 0 old"),
        // Terminating and condemned pods are replicas, and ready; of a revision only while they stay.
        ("", "new new new:terminating new", "4 4 4 0 3 old"),
        (r#""minReadySeconds":10"#, "new new new:fresh", "3 3 2 0 3 old"),
        // The one that is deleted for its template no longer counts as current.
        ("", "old old old", "3 3 3 2 0 old"),
        // Neither that of a third revision, which never did.
        ("", "old old third", "3 3 3 2 0 old"),
        ("", "new new new", "3 3 3 3 3 new"),
        (r#""updateStrategy":{"type":"OnDelete"}"#, "new new new", "3 3 3 3 3 new"),
        ("", "new new new:unready", "3 2 2 0 3 old"),
        (r#""replicas":0"#, "-", "0 0 0 0 0 new"),
    ];
    for (changes, pods, expected) in table {
        assert_eq!(counts(changes, pods), expected, "{changes} {pods}");
    }
}
