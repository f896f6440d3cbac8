//! The planners' answers to single situations, as data.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass::model::{Deployment, ReplicaSet};
use windlass::plan::deployment::progress::{Outcome, settle};
use windlass::plan::deployment::status::counts;
use windlass::plan::deployment::{Observed, Plan, ReplicaSets, Write, plan};
use windlass::plan::replicaset;
use windlass_planner_testkit::objects::{self, DeploymentBuilder, NOW, decode, deployment, now};

/// A ReplicaSet of the Deployment `web` with so many available pods and these annotations.
fn replica_set(tag: &str, replicas: i32, available: i32, annotations: Value) -> ReplicaSet {
    let plain = objects::replica_set(tag, replicas).available(available);
    let annotated = annotations
        .as_object()
        .unwrap()
        .iter()
        .fold(plain, |replica_set, (key, value)| replica_set.annotation(key, value.as_str().unwrap()));
    Arc::unwrap_or_clone(annotated.build())
}

fn plan_for(
    deployment: &Deployment,
    owned: Vec<ReplicaSet>,
    orphans: Vec<ReplicaSet>,
    may_adopt: bool,
) -> Plan {
    plan(&Observed {
        owned: owned.into_iter().map(Arc::new).collect(),
        orphans: orphans.into_iter().map(Arc::new).collect(),
        may_adopt,
        ..Observed::new(deployment, now())
    })
}

/// The new sizes in a plan, by ReplicaSet.
fn sizes(plan: &Plan) -> Vec<(String, i32)> {
    plan.writes
        .iter()
        .filter_map(|write| match write {
            Write::Create(new) => Some(("new".to_string(), new.replicas)),
            Write::Change(replica_set, change) => {
                Some((replica_set.meta.key.name.to_string(), change.replicas?))
            }
            _ => None,
        })
        .collect()
}

#[track_caller]
fn check_sizes(start: DeploymentBuilder, owned: Vec<ReplicaSet>, expected: &[(&str, i32)]) {
    let plan = plan_for(&decode(&start.json()), owned, Vec::new(), false);
    let expected: Vec<(String, i32)> = expected.iter().map(|(n, s)| (n.to_string(), *s)).collect();
    assert_eq!(sizes(&plan), expected);
}

fn sized(replicas: i32, max: i32) -> Value {
    json!({"deployment.kubernetes.io/desired-replicas": replicas.to_string(),
           "deployment.kubernetes.io/max-replicas": max.to_string()})
}

#[test]
fn a_selector_that_selects_everything_is_refused_with_an_event() {
    let mut web = deployment("web").json();
    web["spec"]["selector"] = json!({});
    let plan = plan_for(&decode(&web), vec![replica_set("v1", 1, 1, json!({}))], Vec::new(), false);
    assert_eq!(plan.writes, []);
    assert_eq!(plan.notes[0].reason, "SelectingAll");
}

#[test]
fn a_deployment_that_is_being_deleted_does_not_write_to_its_replica_sets() {
    let mut web = deployment("web").replicas(5).json();
    web["metadata"]["deletionTimestamp"] = NOW.into();
    let plan = plan_for(&decode(&web), vec![replica_set("v0", 1, 1, json!({}))], Vec::new(), true);
    assert_eq!(plan.writes, []);
}

#[test]
fn an_orphan_is_adopted_first_and_alone_and_only_after_a_live_read() {
    let mut orphan = replica_set("v1", 1, 1, json!({}));
    orphan.meta.controller = None;
    let web = decode(&deployment("web").json());
    let plan = plan_for(&web, Vec::new(), vec![orphan.clone()], true);
    assert_eq!(plan.writes, [Write::Adopt(Arc::new(orphan.clone()))]);
    let plan = plan_for(&web, Vec::new(), vec![orphan], false);
    assert!(matches!(plan.writes[..], [Write::Create(_)]));
}

#[test]
fn a_crash_looping_new_version_uses_up_the_budget() {
    let start = deployment("web").replicas(10).surge(3).unavailable(2).image("v2");
    check_sizes(
        start,
        vec![replica_set("v1", 8, 8, sized(10, 13)), replica_set("v2", 5, 0, sized(10, 13))],
        &[],
    );
}

#[test]
fn unhealthy_old_pods_are_deleted_first_without_loss_of_availability() {
    let start = deployment("web").replicas(10).surge(0).unavailable(2).image("v3");
    let replica_sets = vec![
        replica_set("v1", 4, 4, sized(10, 10)),
        replica_set("v2", 6, 4, sized(10, 10)),
        replica_set("v3", 0, 0, json!({})),
    ];
    check_sizes(start, replica_sets, &[("web-v2", 4), ("web-v3", 2)]);
}

#[test]
fn a_pod_that_is_ready_before_the_status_shows_it_is_not_deleted_as_unhealthy() {
    // Neither v1 nor v2 reports a ready pod, and two pods of v1 have just become ready.
    let start = deployment("web").replicas(4).surge(2).unavailable(0).image("v3");
    let replica_sets = [("v1", 0), ("v2", 0), ("v3", 2)];
    let owned = replica_sets.map(|(tag, available)| Arc::new(replica_set(tag, 2, available, sized(4, 6))));
    let deployment: Deployment = decode(&start.json());
    let planned = |healthy_pods| {
        plan(&Observed { owned: owned.to_vec(), healthy_pods, ..Observed::new(&deployment, now()) })
    };
    let named = |sizes: [(&str, i32); 2]| sizes.map(|(name, size)| (name.to_string(), size)).to_vec();
    assert_eq!(sizes(&planned(BTreeMap::new())), named([("web-v1", 0), ("web-v3", 4)]));
    let ready = [(owned[0].meta.uid.clone(), 2)].into();
    assert_eq!(sizes(&planned(ready)), named([("web-v2", 0), ("web-v3", 4)]));
}

#[test]
fn a_replica_set_whose_status_counts_deleted_pods_does_not_free_the_budget() {
    // The old ReplicaSet was scaled down to 8 and still reports 10 available pods; with 3 new ones that
    // makes 11 and not 13, so 3 may go and not 5.
    let start = deployment("web").replicas(10).surge(3).unavailable(2).image("v2");
    let replica_sets = vec![replica_set("v1", 8, 10, sized(10, 13)), replica_set("v2", 5, 3, sized(10, 13))];
    check_sizes(start, replica_sets, &[("web-v1", 5), ("web-v2", 8)]);
}

#[test]
fn a_stale_size_annotation_with_the_right_size_is_refreshed_and_never_a_deadlock() {
    // kubernetes#138840: the size is right, the annotation is not.
    let web: Deployment = decode(&deployment("web").replicas(3).image("v2").json());
    let stuck = replica_set("v1", 3, 3, sized(5, 7));
    let plan = plan_for(&web, vec![stuck], Vec::new(), false);
    assert_eq!(sizes(&plan), []);
    let [Write::Change(_, change)] = &plan.writes[..] else { panic!("{plan:?}") };
    assert_eq!(change.annotations["deployment.kubernetes.io/desired-replicas"], "3");
}

#[test]
fn proportional_scaling_adds_up_to_the_total() {
    for (replicas, replica_sets, expected) in [
        (20, [("v1", 8), ("v2", 5)], vec![("web-v1", 14), ("web-v2", 9)]),
        (5, [("v1", 8), ("v2", 5)], vec![("web-v1", 5), ("web-v2", 3)]),
        (0, [("v1", 8), ("v2", 5)], vec![("web-v1", 0), ("web-v2", 0)]),
        (11, [("v1", 7), ("v2", 6)], vec![("web-v1", 8)]),
    ] {
        let start = deployment("web").replicas(replicas).surge(3).unavailable(2).image("v2");
        let replica_sets = replica_sets.map(|(tag, size)| replica_set(tag, size, size, sized(10, 13))).into();
        check_sizes(start, replica_sets, &expected);
    }
}

#[test]
fn counts_near_the_end_of_int32_neither_panic_nor_wrap() {
    let most = i32::MAX;
    for strategy in [json!("100%"), json!("99999999999%"), json!(most)] {
        let start =
            deployment("web").replicas(most).surge(strategy.clone()).unavailable(strategy).image("v2");
        let web: Deployment = decode(&start.json());
        let replica_sets =
            vec![replica_set("v1", most, most, sized(most, most)), replica_set("v2", most, 0, sized(1, 1))];
        let plan = plan_for(&web, replica_sets, Vec::new(), false);
        assert!(sizes(&plan).iter().all(|(_, size)| *size >= 0), "{plan:?}");
    }
}

#[test]
fn an_invalid_revision_is_ignored() {
    for junk in ["abc", "-7", "9223372036854775807", "9223372036854775808", ""] {
        let web: Deployment = decode(&deployment("web").image("v3").json());
        let old = replica_set("v1", 0, 0, json!({"deployment.kubernetes.io/revision": junk}));
        let good = replica_set("v2", 0, 0, json!({"deployment.kubernetes.io/revision": "4"}));
        let plan = plan_for(&web, vec![old, good], Vec::new(), false);
        let [Write::Create(new)] = &plan.writes[..] else { panic!("{plan:?}") };
        assert_eq!(new.annotations["deployment.kubernetes.io/revision"], "5", "{junk:?}");
    }
}

#[test]
fn under_recreate_a_reused_replica_set_is_the_current_revision_while_it_waits() {
    let rev = |n: &str| json!({"deployment.kubernetes.io/revision": n});
    let web: Deployment = decode(&deployment("web").recreate().image("v1").json());
    let plan = plan_for(
        &web,
        vec![replica_set("v1", 0, 0, rev("1")), replica_set("v2", 1, 1, rev("2"))],
        Vec::new(),
        false,
    );
    assert_eq!(sizes(&plan), [("web-v2".to_string(), 0)]);
    let Write::Change(back, change) = &plan.writes[1] else { panic!("{plan:?}") };
    assert_eq!((&*back.meta.key.name, change.replicas), ("web-v1", None));
    assert_eq!(change.annotations["deployment.kubernetes.io/revision"], "3");
}

#[test]
fn the_published_revision_never_decreases_even_if_the_first_write_fails() {
    let rev = |n: &str| json!({"deployment.kubernetes.io/revision": n});
    let web: Deployment = decode(&deployment("web").surge(0).unavailable(1).image("v1").json());
    let observed = Observed {
        owned: vec![Arc::new(replica_set("v1", 0, 0, rev("1"))), Arc::new(replica_set("v2", 1, 1, rev("2")))],
        ..Observed::new(&web, now())
    };
    let plan = plan(&observed);
    let published = |done| settle(&observed, &plan, &Outcome::after(done)).revision;
    assert_eq!(published(0), None);
    assert_eq!(published(plan.writes.len()).as_deref(), Some("3"));
}

#[test]
fn a_complete_deployment_that_waits_for_its_replica_set_reports_it_once() {
    // Zero replicas, and the old pods are terminating: complete, and no new ReplicaSet yet.
    let mut web: Deployment = decode(&deployment("web").recreate().replicas(0).image("v2").json());
    let old = Arc::new(replica_set("v1", 0, 0, json!({})));
    for (time, said_at) in [(NOW, NOW), ("2026-01-01T00:00:09Z", NOW)] {
        let before = web.clone();
        let observed = Observed {
            owned: vec![old.clone()],
            running_pods: [(old.meta.uid.clone(), 1)].into(),
            ..Observed::new(&before, time.parse::<Timestamp>().unwrap())
        };
        web.status = settle(&observed, &plan(&observed), &Outcome::default()).status;
        let progressing = web.status.conditions.iter().find(|c| &*c.kind == "Progressing").unwrap();
        assert_eq!(&*progressing.reason, "NewReplicaSetAvailable");
        assert_eq!(progressing.last_update, Some(said_at.parse().unwrap()));
    }
}

#[test]
fn a_status_of_an_earlier_generation_frees_no_budget() {
    // v1 was scaled to 5, then to 10 again: its status shows 10 pods, and it may have 5.
    let start = || deployment("web").replicas(10).surge(3).unavailable(2).image("v1");
    let old = replica_set("v2", 3, 3, sized(10, 13));
    let mut back = replica_set("v1", 10, 10, sized(10, 13));
    check_sizes(start(), vec![back.clone(), old.clone()], &[("web-v2", 0)]);
    back.meta.generation = 3;
    check_sizes(start(), vec![back, old], &[]);
}

#[test]
fn ready_pods_within_min_ready_seconds_do_not_free_the_budget() {
    // The ReplicaSet may delete an available pod instead of the one that is ready for a moment only.
    let start = || deployment("web").replicas(4).surge(0).unavailable(1).image("v2");
    let new = replica_set("v2", 0, 0, sized(4, 4));
    let mut old = replica_set("v1", 4, 3, sized(4, 4));
    check_sizes(start(), vec![old.clone(), new.clone()], &[("web-v1", 3), ("web-v2", 1)]);
    old.status.ready = 4;
    check_sizes(start(), vec![old.clone(), new.clone()], &[]);
    // With none available there is none to lose.
    old.status.available = 0;
    check_sizes(start(), vec![old, new], &[("web-v1", 3), ("web-v2", 1)]);
}

#[test]
fn a_pause_does_not_skip_the_wait_of_recreate_for_old_pods() {
    let mut web: Deployment = decode(&deployment("web").recreate().replicas(3).image("v1").json());
    web.paused = true;
    let (back, old) =
        (Arc::new(replica_set("v1", 0, 0, json!({}))), Arc::new(replica_set("v2", 0, 0, json!({}))));
    let sizes_with = |running| {
        sizes(&plan(&Observed {
            owned: vec![back.clone(), old.clone()],
            running_pods: [(old.meta.uid.clone(), running)].into(),
            ..Observed::new(&web, now())
        }))
    };
    assert_eq!(sizes_with(1), []);
    assert_eq!(sizes_with(0), [("web-v1".to_string(), 3)]);
}

#[test]
fn an_invalid_selector_is_refused_with_an_event_and_nothing_is_released() {
    let mut web = deployment("web").replicas(3).json();
    web["spec"]["selector"] = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    let web: Deployment = decode(&web);
    let plan = plan_for(&web, vec![replica_set("v1", 1, 1, json!({}))], Vec::new(), true);
    assert_eq!(plan.writes, []);
    assert_eq!(plan.notes[0].reason, "InvalidSelector");
}

#[test]
fn negative_replicas_count_as_zero_and_do_not_panic() {
    let web: Deployment = decode(&deployment("web").replicas(-3).json());
    check_sizes(deployment("web").replicas(-3), Vec::new(), &[("new", 0)]);
    let plan = plan_for(
        &web,
        vec![replica_set("v0", -5, 0, sized(-1, 0)), replica_set("v1", 2, 0, sized(2, 3))],
        Vec::new(),
        false,
    );
    assert_eq!(sizes(&plan), [("web-v1".to_string(), 0)]);
}

#[test]
fn terminating_pods_are_reported_only_when_every_replica_set_has_counted_them() {
    let web: Deployment = decode(&deployment("web").image("v2").json());
    let (mut one, mut two) = (replica_set("v1", 1, 1, json!({})), replica_set("v2", 1, 1, json!({})));
    let terminating = |one: &ReplicaSet, two: &ReplicaSet| {
        let replica_sets = ReplicaSets {
            new: Some(Arc::new(two.clone())),
            old: vec![Arc::new(one.clone())],
            ..ReplicaSets::default()
        };
        counts(&web, &replica_sets).terminating
    };
    one.status.terminating = Some(2);
    assert_eq!(terminating(&one, &two), None);
    two.status.observed_generation = 0;
    assert_eq!(terminating(&one, &two), Some(2));
}

#[test]
fn a_deployment_that_is_being_deleted_past_its_deadline_is_not_requeued_forever() {
    let mut object = deployment("web").replicas(2).deadline(60).json();
    object["metadata"]["deletionTimestamp"] = json!("2025-12-31T23:00:00Z");
    object["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    object["status"] = json!({"observedGeneration": 1, "conditions": [
        {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": "",
         "lastUpdateTime": "2025-12-31T22:00:00Z", "lastTransitionTime": "2025-12-31T22:00:00Z"}]});
    let web: Deployment = decode(&object);
    let observed =
        Observed { owned: vec![Arc::new(replica_set("v1", 2, 1, json!({})))], ..Observed::new(&web, now()) };
    let settled = settle(&observed, &plan(&observed), &Outcome::default());
    assert_eq!(settled.requeue_after, None, "no sync will ever evaluate this deadline");
}

#[test]
fn a_deployment_that_does_not_select_its_template_creates_nothing() {
    let odd = json!({"matchExpressions": [{"key": "app", "operator": "Near", "values": ["web"]}]});
    for selector in [json!({"matchLabels": {"app": "other"}}), odd] {
        let mut object = deployment("web").json();
        object["spec"]["selector"] = selector.clone();
        let owned = vec![replica_set("v1", 1, 1, json!({}))];
        assert_eq!(plan_for(&decode(&object), owned, Vec::new(), true).writes, [], "{selector}");

        object["spec"]["replicas"] = json!(3);
        let replica_set: ReplicaSet = decode(&object);
        let observed = replicaset::Observed {
            replica_set: &replica_set,
            pod_sets: replicaset::PodSets::default(),
            may_adopt: true,
            siblings: Vec::new(),
            free_names: Vec::new(),
            reserved: 0,
            failed_pod_backoff: true,
            policy: Default::default(),
            now: now(),
        };
        assert_eq!(replicaset::plan(&observed).writes, [], "{selector}");
    }
}

#[test]
fn a_replica_set_that_cannot_be_created_past_the_deadline_is_retried_with_backoff() {
    let mut web = deployment("web").deadline(10).json();
    web["status"] = json!({"conditions": [
        {"type": "Progressing", "status": "False", "reason": "ReplicaSetCreateError", "message": "no",
         "lastUpdateTime": "2025-12-31T00:00:00Z", "lastTransitionTime": "2025-12-31T00:00:00Z"},
    ]});
    let web = decode::<Deployment>(&web);
    let observed = Observed::new(&web, now());
    let plan = plan(&observed);
    assert!(matches!(plan.writes[..], [Write::Create(_)]));
    let mut outcome = Outcome::default();
    outcome.could_not_create("no".into());
    assert_eq!(settle(&observed, &plan, &outcome).requeue_after, None, "the backoff of the key counts");
}
