use serde_json::{Value, json};

use super::*;
use crate::plan::revisions::next_collision;

const OURS: &str =
    r#"[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"agent","uid":"u","controller":true}]"#;

fn daemon_set(template: &Value) -> DaemonSet {
    let json = json!({
        "metadata": {"name": "agent", "namespace": "ops", "uid": "u", "resourceVersion": "1",
                     "annotations": {"deprecated.daemonset.template.generation": "2"}},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "revisionHistoryLimit": 1, "template": template}
    });
    DaemonSet::decode(&json.to_string(), &mut Interner::default()).unwrap()
}

fn image(tag: &str) -> Value {
    json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "a", "image": tag}]}})
}

fn current() -> DaemonSet {
    daemon_set(&image("v2"))
}

/// A revision of ours whose name ends in its hash.
fn revision(hash: &str, number: i64, data: &str) -> Arc<ControllerRevision> {
    let labels =
        if hash.is_empty() { String::new() } else { format!(r#","controller-revision-hash":"{hash}""#) };
    named(&format!("agent-{hash}"), &labels, number, data)
}

fn named(name: &str, labels: &str, number: i64, data: &str) -> Arc<ControllerRevision> {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ops","uid":"u-{name}","resourceVersion":"1",
            "creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"agent"{labels}}},"ownerReferences":{OURS}}},
            "revision":{number},"data":{data}}}"#
    );
    Arc::new(ControllerRevision::decode(&json, &mut Interner::default()).unwrap())
}

fn of(tag: &str) -> String {
    data(&daemon_set(&image(tag)).template).unwrap()
}

fn pod(labels: &str) -> Arc<Pod> {
    let json = format!(
        r#"{{"metadata":{{"name":"p","namespace":"ops","uid":"u-p","resourceVersion":"1","labels":{{"app":"agent"{labels}}},
            "ownerReferences":{OURS}}},"spec":{{"nodeName":"n1"}}}}"#
    );
    Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
}

fn members(daemon_set: &DaemonSet, pods: &[Arc<Pod>]) -> Members {
    Members::of(daemon_set, pods.to_vec(), Vec::new())
}

/// The writes for these revisions, in short.
fn written(daemon_set: &DaemonSet, revisions: &[Arc<ControllerRevision>], pods: &[Arc<Pod>]) -> Vec<String> {
    let history = History::of(daemon_set, revisions);
    let members = members(daemon_set, pods);
    let writes = history.writes(&members).into_iter().chain(history.surplus(&members));
    let short = |write: Write| match write {
        Write::DeleteRevision(revision) => format!("delete {}", revision.meta.key.name),
        Write::ChangeRevision(revision, RevisionChange { hash, number, .. }) => {
            format!("{} hash={hash:?} number={number:?}", revision.meta.key.name)
        }
        Write::CreateRevision(new) => format!("create {} as {}", new.name, new.number),
        Write::Relabel { pod, hash } => format!("relabel {} {hash}", pod.meta.key.name),
        other => format!("{other:?}"),
    };
    writes.map(short).collect()
}

#[test]
fn data_is_the_patch_that_kubectl_compares_byte_by_byte() {
    let template = json!({
        "spec": {"terminationGracePeriodSeconds": 30, "containers": [{"name": "a", "image": "i", "args": ["<&>"]}]},
        "metadata": {"labels": {"b": "2", "app": "agent"}, "creationTimestamp": null}
    });
    assert_eq!(
        data(&daemon_set(&template).template).unwrap(),
        concat!(
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"agent","b":"2"}},"#,
            r#""spec":{"containers":[{"args":["\u003c\u0026\u003e"],"image":"i","name":"a"}],"terminationGracePeriodSeconds":30}}}}"#
        )
    );
}

#[test]
fn the_body_of_a_revision_has_the_annotations_of_the_daemon_set_and_its_data_to_the_byte() {
    let new = NewRevision { name: "agent-abc".into(), hash: "abc".into(), number: 3 };
    let cause = BTreeMap::from([("kubernetes.io/change-cause".to_owned(), "a fix".to_owned())]);
    let body = String::from_utf8(revision_body(&current(), &new, &cause).unwrap()).unwrap();
    assert!(body.contains(&format!(r#""data":{},"revision":3"#, of("v2"))), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body["metadata"],
        json!({
            "name": "agent-abc", "namespace": "ops", "labels": {"app": "agent", "controller-revision-hash": "abc"},
            "annotations": {"kubernetes.io/change-cause": "a fix"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u",
                "controller": true, "blockOwnerDeletion": true}],
        })
    );
}

#[test]
fn a_template_without_a_revision_gets_the_number_behind_the_highest() {
    let hash = current().template.hash(None);
    assert_eq!(written(&current(), &[], &[]), [format!("create agent-{hash} as 1")]);
    let old = [revision("a", 4, &of("v0")), revision("b", -1, "null")];
    assert_eq!(written(&current(), &old[..1], &[]), [format!("create agent-{hash} as 5")]);
    assert_eq!(written(&current(), &old[1..], &[]), [format!("create agent-{hash} as 1")]);
}

#[test]
fn a_rollback_makes_the_old_revision_the_newest() {
    let both = [revision("old", 1, &of("v2")), revision("new", 2, &of("v3"))];
    assert_eq!(written(&current(), &both, &[]), ["agent-old hash=None number=Some(3)"]);
    let daemon_set = current();
    assert_eq!(History::of(&daemon_set, &both).hash, "old");
    let settled = [revision("old", 3, &of("v2")), revision("new", 2, &of("v3"))];
    assert_eq!(written(&current(), &settled, &[]), [""; 0]);
}

#[test]
fn revisions_are_compared_by_meaning_and_not_by_bytes() {
    let spaced = r#"{"spec": {"template": {"spec": {"containers": [{"image": "v2", "name": "a", "env": null}]},
        "metadata": {"labels": {"app": "agent"}, "creationTimestamp": null}, "$patch": "replace"}}}"#;
    assert_eq!(written(&current(), &[revision("abc", 1, spaced)], &[]), [""; 0]);
}

#[test]
fn a_number_that_the_data_rounds_does_not_create_a_revision_at_each_sync() {
    let mut template = image("v2");
    template["spec"]["tolerations"] =
        json!([{"key": "k", "operator": "Exists", "tolerationSeconds": u64::MAX}]);
    let daemon_set = daemon_set(&template);
    let stored = revision("abc", 1, &data(&daemon_set.template).unwrap());
    assert_eq!(written(&daemon_set, &[stored], &[]), [""; 0]);
}

#[test]
fn the_largest_number_has_no_successor_and_stalls_nothing() {
    let old = revision("old", i64::MAX, &of("v1"));
    let hash = current().template.hash(None);
    assert_eq!(
        written(&current(), std::slice::from_ref(&old), &[]),
        [format!("create agent-{hash} as {}", i64::MAX)]
    );
    assert_eq!(written(&current(), &[old, revision("new", i64::MAX, &of("v2"))], &[]), [""; 0]);
}

#[test]
fn of_duplicates_the_highest_stays_and_only_the_pods_of_the_others_are_relabelled() {
    let all = [revision("a", 1, &of("v1")), revision("b", 2, &of("v2")), revision("c", 3, &of("v2"))];
    let labelled = |name: &str, hash: &str| {
        let mut pod = Arc::unwrap_or_clone(pod(&format!(r#","controller-revision-hash":"{hash}""#)));
        pod.meta.key.name = name.into();
        Arc::new(pod)
    };
    let pods = [labelled("old", "a"), labelled("twin", "b"), labelled("new", "c")];
    assert_eq!(written(&current(), &all, &pods), ["relabel twin c", "delete agent-b"]);
    let daemon_set = current();
    let history = History::of(&daemon_set, &all);
    let new: Vec<bool> = pods.iter().map(|pod| history.is_new(pod)).collect();
    assert_eq!(new, [false, true, true], "kubernetes#111280: an old pod stays old");
}

#[test]
fn of_duplicates_with_one_number_the_oldest_stays() {
    let mut young = Arc::unwrap_or_clone(revision("a", 3, &of("v2")));
    young.meta.created = "2026-01-02T00:00:00Z".parse().unwrap();
    assert_eq!(written(&current(), &[Arc::new(young), revision("b", 3, &of("v2"))], &[]), ["delete agent-a"]);
}

#[test]
fn thousands_of_pods_of_a_duplicate_are_relabelled_before_it_is_deleted() {
    let all = [revision("b", 2, &of("v2")), revision("c", 3, &of("v2"))];
    let pods: Vec<_> = (0..BURST + 1).map(|_| pod(r#","controller-revision-hash":"b""#)).collect();
    let first = written(&current(), &all, &pods);
    assert!(first.len() == BURST && first.iter().all(|write| write == "relabel p c"), "{first:?}");
    assert_eq!(written(&current(), &all, &pods[..BURST]).last().unwrap(), "delete agent-b");
}

#[test]
fn a_revision_without_a_hash_gets_its_name_and_one_with_a_long_name_something_shorter() {
    assert_eq!(
        written(&current(), &[named("agent-x", "", 1, &of("v2"))], &[]),
        [r#"agent-x hash=Some("agent-x") number=None"#]
    );
    let long = [named(&"a".repeat(80), "", 1, &of("v2"))];
    let daemon_set = current();
    let hash = History::of(&daemon_set, &long).hash;
    // The digits of its FNV-1a to the base of 27, the last one first.
    assert_eq!(hash, "n7pw8nrm4l");
    let empty = [named("agent-y", r#","controller-revision-hash":"""#, 1, &of("v2"))];
    assert_eq!(History::of(&daemon_set, &empty).hash, "agent-y");
}

#[test]
fn the_name_of_a_revision_is_valid_however_long_the_daemon_sets_is() {
    let mut long = current();
    long.meta.key.name = "a".repeat(253).into();
    let history = History::of(&long, &[]);
    let writes = history.writes(&members(&long, &[]));
    let [Write::CreateRevision(new)] = &writes[..] else { panic!("{writes:?}") };
    assert!(new.name.len() <= 253 && new.name.ends_with(&format!("-{}", new.hash)), "{}", new.name);
}

#[test]
fn a_pod_is_new_by_its_hash_and_by_its_generation_only_where_the_hash_is_unknown() {
    let all = [revision("a", 1, &of("v1")), revision("b", 2, &of("v2"))];
    let daemon_set = current();
    let history = History::of(&daemon_set, &all);
    let is_new = |labels: &str| history.is_new(&pod(labels));
    assert!(is_new(r#","controller-revision-hash":"b""#));
    assert!(!is_new(r#","controller-revision-hash":"a""#));
    assert!(
        !is_new(r#","controller-revision-hash":"a","pod-template-generation":"2""#),
        "adopted from another"
    );
    assert!(is_new(r#","controller-revision-hash":"z","pod-template-generation":"2""#), "of another release");
    assert!(is_new(r#","pod-template-generation":"2""#));
    assert!(!is_new(r#","controller-revision-hash":"z","pod-template-generation":"1""#));
    assert!(!is_new("") && !is_new(r#","controller-revision-hash":"""#));
}

#[test]
fn the_history_keeps_its_limit_and_every_revision_that_a_pod_has() {
    let all = [
        revision("a", 1, &of("v1")),
        revision("b", 2, &of("v3")),
        revision("c", 3, &of("v4")),
        revision("d", 4, &of("v2")),
    ];
    assert_eq!(written(&current(), &all, &[]), ["delete agent-a", "delete agent-b"]);
    let live = pod(r#","controller-revision-hash":"a""#);
    assert_eq!(written(&current(), &all, &[live]), ["delete agent-b", "delete agent-c"]);
}

#[track_caller]
fn check_claim(change: impl FnOnce(&mut ControllerRevision), expected: Claim) {
    let mut orphan = Arc::unwrap_or_clone(revision("a", 1, &of("v1")));
    orphan.meta.controller = None;
    change(&mut orphan);
    assert_eq!(claim_revision(&current(), &orphan), expected);
}

#[test]
fn only_an_orphan_with_the_data_of_a_daemon_set_is_adopted() {
    check_claim(|_| {}, Claim::Adopt);
    check_claim(|orphan| orphan.contents = None, Claim::Ignore);
    let of_stateful_set = [("app", "agent"), (OF_STATEFUL_SET, "x")];
    check_claim(|orphan| orphan.meta.labels = Arc::new(of_stateful_set.into_iter().collect()), Claim::Ignore);
    check_claim(|orphan| orphan.meta.labels = Arc::default(), Claim::Ignore);
}

#[test]
fn a_taken_name_is_used_with_the_same_contents_and_counted_with_others() {
    let daemon_set = current();
    let new = NewRevision { name: "agent-abc".into(), hash: "abc".into(), number: 1 };
    let taken = |revision: &ControllerRevision| on_taken(&daemon_set, &new, Some(revision));
    assert_eq!(taken(&revision("abc", 1, &of("v2"))), Taken::Use);
    let mut of_the_last = Arc::unwrap_or_clone(revision("abc", 1, &of("v2")));
    of_the_last.meta.controller = None;
    assert_eq!(taken(&of_the_last), Taken::Use, "of a DaemonSet of this name that is being deleted");
    assert_eq!(taken(&revision("abc", 1, &of("v1"))), Taken::Collision);
    assert_eq!(taken(&revision("abc", 1, "null")), Taken::Collision);
    assert_eq!(taken(&revision("other", 1, &of("v2"))), Taken::PlanAgain);
    assert_eq!(on_taken(&daemon_set, &new, None), Taken::PlanAgain);
}

#[test]
fn a_collision_is_counted_once_and_gives_another_name() {
    let with = |count: Option<i32>| {
        let mut daemon_set = current();
        daemon_set.status.collision_count = count;
        daemon_set
    };
    let meta = current().meta;
    let next = |ours, fresh| next_collision((&meta, ours), (&meta, fresh));
    assert_eq!(next(None, None), Some(1));
    assert_eq!(next(Some(4), Some(4)), Some(5));
    assert_eq!(next(None, Some(1)), None, "the cache is behind");
    assert_eq!(next(Some(i32::MAX), Some(i32::MAX)), Some(i32::MAX));
    assert_ne!(with(Some(1)).template.hash(Some(1)), with(None).template.hash(None));
}
