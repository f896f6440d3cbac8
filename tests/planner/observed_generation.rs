//! The status for a generation that was acted on in part, which parts of it are urgent, and where a rollback leads.

use serde_json::{Value, json};
use windlass::model::{Deployment, DeploymentStatus, condition as conditions};
use windlass::plan::Urgency;
use windlass::plan::deployment::progress::{Failed, Outcome, Settled, settle};
use windlass::plan::deployment::rollback::RollBack;
use windlass::plan::deployment::{StatusScope, Write, plan, status};
use windlass::plan::replicaset::status::{Failure, hold_generation};
use windlass_planner_testkit::objects::{
    ReplicaSetBuilder, bare_replica_set, decode, deployment, now, pod, replica_set,
};
use windlass_planner_testkit::situation::Situation;

/// The settled status where only the first `done` writes of the plan succeed and the next one is refused.
fn refused_after(situation: &Situation, done: usize) -> (Settled, StatusScope, usize) {
    let observed = situation.observed();
    let plan = plan(&observed);
    let failed = plan.writes.get(done).and_then(|write| Failed::of(write, "no".into()));
    let mut outcome = Outcome::after(done);
    outcome.stopped(failed, false);
    let settled = settle(&observed, &plan, &outcome);
    (settled, plan.status_scope, plan.writes.len())
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
fn a_generation_is_observed_once_every_step_succeeded() {
    let sized = |tag: &str, size| replica_set(tag, size).sized(3, 4).revision("1");
    let situations = [
        ("scaled down", changed(2, "v1"), vec![sized("v1", 3)]),
        ("scaled up", changed(5, "v1"), vec![sized("v1", 3)]),
        ("another image", changed(3, "v2"), vec![sized("v1", 3)]),
        ("two steps", changed(2, "v3"), vec![sized("v1", 2), sized("v2", 2)]),
    ];
    for (what, object, replica_sets) in situations {
        let situation = Situation::of(&object, &replica_sets);
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
    let situation =
        Situation::of(&object, &[replica_set("v1", 3).sized(3, 4), replica_set("v2", 1).sized(3, 4)]);
    let (settled, _, steps) = refused_after(&situation, 0);
    assert!(steps > 0);
    assert_eq!(settled.status.observed_generation, 2);
}

#[test]
fn a_history_that_cannot_be_trimmed_delays_a_pause_and_no_rollout() {
    let old = || replica_set("v1", 0).revision("1");
    for (paused, expected) in [(false, 2), (true, 1)] {
        let mut object = changed(3, "v2");
        object["spec"]["revisionHistoryLimit"] = json!(0);
        object["spec"]["paused"] = json!(paused);
        let new = replica_set("v2", 3).sized(3, 4).revision("2");
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
    // Scaled from 3 to 2, which was refused, while one of the three was deleted for another reason.
    let situation = Situation::of(&changed(2, "v1"), &[replica_set("v1", 3).available(2).has(2).sized(3, 4)]);
    let (settled, ..) = refused_after(&situation, 0);
    assert!(!status::is_complete(&situation.deployment, &settled.status), "{:?}", settled.status);
    let shown = conditions::find(&settled.status.conditions, "ReplicaFailure").unwrap();
    assert_eq!(&*shown.reason, "FailedScale");
}

#[test]
fn an_observed_generation_that_is_too_high_is_corrected() {
    let mut object = changed(3, "v1");
    object["status"]["observedGeneration"] = json!(999);
    let at_rest = || vec![replica_set("v1", 3).sized(3, 4).revision("1")];
    let settled = Situation::of(&object, &at_rest()).settled_at(now());
    assert_eq!(settled.status.observed_generation, 2, "a Deployment at rest");
    let mut refused = object.clone();
    refused["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    let settled = Situation::of(&refused, &at_rest()).settled_at(now());
    assert_eq!(settled.status.observed_generation, 2, "a selector that cannot work");
    let mut scaled = object.clone();
    scaled["spec"]["replicas"] = json!(1);
    let (settled, ..) = refused_after(&Situation::of(&scaled, &at_rest()), 0);
    assert_eq!(settled.status.observed_generation, 2, "never above the generation, refused or not");

    let of_replica_set = bare_replica_set(1).observing_generation(999);
    assert_eq!(
        of_replica_set.settled(&[pod("a").ready(60)], None).status.observed_generation,
        1,
        "a ReplicaSet"
    );
}

#[test]
fn a_status_with_a_future_generation_is_not_trusted() {
    let start = || deployment("web").replicas(3).surge(1).unavailable(0).image("v2");
    let sizes = |observed| {
        let replica_sets = [
            replica_set("v1", 3).sized(3, 4),
            replica_set("v2", 1).sized(3, 4).observing_generation(observed),
        ];
        Situation::new(start(), &replica_sets).sizes_after()
    };
    assert_eq!(sizes(1), [2, 2], "the new pod is available");
    assert_eq!(sizes(0), [3, 1], "of an earlier generation");
    assert_eq!(sizes(999), [3, 1], "another writer has set it, and the counts may be of any time");
}

#[test]
fn a_replica_set_observes_a_generation_after_a_refused_write_and_not_after_an_unanswered_one() {
    let replica_set = bare_replica_set(2).observing_generation(0);
    let failure = Failure { reason: "FailedCreate", message: "quota".into() };
    let mut settled = replica_set.settled(&[pod("a").ready(60)], Some(&failure));
    assert_eq!(settled.status.observed_generation, 1, "upstream's, which says ReplicaFailure beside it");
    assert_eq!(settled.status.conditions.len(), 1);
    settled.status.conditions.clear();
    hold_generation(&replica_set.build(), &mut settled.status);
    assert_eq!(settled.status.observed_generation, 0, "a lost reply");
    hold_generation(&bare_replica_set(2).observing_generation(7).build(), &mut settled.status);
    assert_eq!(settled.status.observed_generation, 1, "one that is too high is corrected all the same");
}

#[test]
fn a_decrease_of_a_deployments_counts_is_urgent_and_an_increase_is_not() {
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
        // No longer complete, though all desired pods are available.
        ([3, 3, 3], [4, 3, 3], true),
        ([3, 2, 2], [3, 3, 3], true),
        ([4, 2, 2], [4, 3, 3], false),
        ([4, 2, 1], [4, 3, 1], false),
        ([3, 1, 1], [3, 2, 1], false),
    ] {
        assert_eq!(status::is_urgent(&was(before), &was(after).status), urgent, "{before:?} {after:?}");
    }
}

/// How soon a Deployment of ten that is rolled out reports this, where the new ReplicaSet of five is as given.
fn urgency_on_the_way(new: ReplicaSetBuilder, paused: bool, report: fn(&mut DeploymentStatus)) -> Urgency {
    let mut object = deployment("web").replicas(10).surge(1).unavailable(0).image("v2").json();
    object["spec"]["paused"] = paused.into();
    object["status"] = json!({"observedGeneration": object["metadata"]["generation"], "replicas": 11,
        "updatedReplicas": 5, "readyReplicas": 10, "availableReplicas": 10, "terminatingReplicas": 1});
    let situation = Situation::of(&object, &[replica_set("v1", 6).sized(10, 11).revision("1"), new]);
    let observed = situation.observed();
    let mut after = observed.deployment.status.clone();
    report(&mut after);
    status::urgency(&observed, &plan(&observed), &after, false)
}

#[test]
fn numbers_on_the_way_wait_for_the_next_step_and_a_fall_does_not() {
    let new = || replica_set("v2", 5).sized(10, 11).revision("2");
    let complete = |report| urgency_on_the_way(new(), false, report);
    let lacking = |report| urgency_on_the_way(new().available(4), false, report);
    let behind = |report| urgency_on_the_way(new().observing_generation(0), false, report);
    let risen: fn(&mut DeploymentStatus) = |status| status.ready += 1;
    assert_eq!(complete(risen), Urgency::Postponed, "this sync resizes them");
    assert_eq!(behind(risen), Urgency::Postponed, "the status of a ReplicaSet is about to follow");
    assert_eq!(lacking(risen), Urgency::Throttled, "no step is on its way");
    let fallen: fn(&mut DeploymentStatus) = |status| status.available -= 1;
    for fallen in [complete(fallen), lacking(fallen), behind(fallen)] {
        assert_eq!(fallen, Urgency::Immediate);
    }
    let paused = urgency_on_the_way(new(), true, risen);
    assert_eq!(paused, Urgency::Throttled, "no step follows");
}

/// The effect of a rollback to `revision`: the image that it leads to, or why it does nothing.
fn rolled_back(object: &Value, replica_sets: &[ReplicaSetBuilder], revision: &str) -> String {
    let mut object = object.clone();
    object["metadata"]["annotations"] = json!({"deprecated.deployment.rollback.to": revision});
    let plan = Situation::of(&object, replica_sets).plan();
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
    let at = |tag: &str, revision: &str| replica_set(tag, 1).revision(revision);
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
