//! The effects of writes on the toy cluster. Each write is checked against the invariants at once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use windlass::model::int_or_percent::IntOrPercent;
use windlass::model::{
    CONTROLLER_REVISION_HASH, ControllerRevision, Meta, Phase, Pod, Record, StatefulSet, StatefulSetStatus,
    StatefulSetStrategy, Template,
};
use windlass::plan::replicaset::slow_start::slow_start_batches;
use windlass::plan::revisions::{Taken, next_collision};
use windlass::plan::statefulset::body::{claim_body, pod_body};
use windlass::plan::statefulset::revisions::{on_taken, revision_body, revision_of};
use windlass::plan::statefulset::{BURST, ClaimChange, Deletion, NewPod, Plan, Reason, Write, ordinals};

use super::world::{World, claims_of, owners_of, revision_tag, tag};

/// A write that the API server refuses, or the end of the process.
enum Stop {
    Refused,
    Crash,
}

impl World {
    /// Carries out a plan as the controller does. Returns whether anything has changed; `None` after a crash.
    pub(super) fn carry_out(&mut self, set: &StatefulSet, plan: &Plan) -> Option<bool> {
        let before = self.counted();
        let mut left = if self.crashes.is_empty() { usize::MAX } else { self.crashes.remove(0) };
        let (mut failed, mut is_refused) = (BTreeSet::new(), false);
        for write in &plan.writes {
            let is_held = self.outcome.without_revision || (is_refused && !set.is_parallel);
            let is_failed = write.ordinal().is_some_and(|ordinal| failed.contains(&ordinal));
            if !write.stands_alone() && (is_held || is_failed) {
                continue;
            }
            match self.apply(set, write, &mut left) {
                Ok(()) => {}
                Err(Stop::Crash) => return None,
                Err(Stop::Refused) => {
                    failed.extend(write.ordinal());
                    is_refused = true;
                }
            }
        }
        Some(self.counted() != before)
    }

    /// Changes with each effect.
    fn counted(&self) -> String {
        format!("{:?}{:?}{:?}", self.pods, self.claims, self.revisions)
    }

    fn apply(&mut self, set: &StatefulSet, write: &Write, left: &mut usize) -> Result<(), Stop> {
        let mut effect = || left.checked_sub(1).map(|rest| *left = rest).ok_or(Stop::Crash);
        match write {
            Write::CreatePods(pods) => {
                assert!(pods.len() <= BURST, "SS25: {} creations", pods.len());
                let mut rest = pods.iter();
                for size in slow_start_batches(pods.len()) {
                    let mut is_refused = false;
                    for new in rest.by_ref().take(size) {
                        effect()?;
                        is_refused |= self.create_pod(set, new).is_err();
                    }
                    if is_refused {
                        return Err(Stop::Refused);
                    }
                }
            }
            Write::DeletePods(deletions) => {
                for deletion in deletions {
                    effect()?;
                    self.delete(set, deletion);
                }
            }
            _ => {
                effect()?;
                return self.apply_one(set, write);
            }
        }
        Ok(())
    }

    fn apply_one(&mut self, set: &StatefulSet, write: &Write) -> Result<(), Stop> {
        match write {
            Write::CreateRevision(new) => {
                if let Some(existing) = self.revisions.get(&new.name) {
                    let existing = Self::decode::<ControllerRevision>(existing);
                    match on_taken(set, Some(&existing)) {
                        Taken::Use => return Ok(()),
                        Taken::PlanAgain => {}
                        Taken::Collision => {
                            let of = (&set.meta, set.status.collision_count);
                            self.outcome.collision = next_collision(of, of);
                            let count = self.outcome.collision.unwrap();
                            assert_eq!(count, set.status.collision_count.unwrap_or(0) + 1, "SS19");
                            self.say("controller", &format!("collision {count}"));
                        }
                    }
                    self.outcome.without_revision = true;
                    return Err(Stop::Refused);
                }
                let highest =
                    self.revisions.values().filter_map(|revision| revision["revision"].as_i64()).max();
                assert!(highest.is_none_or(|highest| highest < new.number), "SS16: a number repeats");
                let body = revision_body(set, new, &BTreeMap::new()).unwrap();
                let mut revision: Value = serde_json::from_slice(&body).unwrap();
                self.stamp(&mut revision, "uid-revision");
                let tag = revision_tag(&revision);
                self.say("controller", &format!("create revision {} ({tag})", new.number));
                self.revisions.insert(new.name.clone(), revision);
            }
            Write::ChangeRevision(revision, change) => {
                let stored = self.revisions.get_mut(&*revision.meta.key.name).unwrap();
                let (tag, number) = (revision_tag(stored), change.number.unwrap());
                assert!(number > stored["revision"].as_i64().unwrap(), "SS16: a number falls");
                stored["revision"] = number.into();
                self.say("controller", &format!("{tag} becomes revision {number}"));
            }
            Write::DeleteRevision(revision) => {
                let name = &*revision.meta.key.name;
                let is_used =
                    self.pods.values().any(|pod| pod["metadata"]["labels"][CONTROLLER_REVISION_HASH] == name);
                assert!(!is_used, "SS17: {name} has pods\n{}", self.transcript);
                assert!(
                    name != &*set.status.current_revision,
                    "SS17: {name} is current\n{}",
                    self.transcript
                );
                let revision = self.revisions.remove(name).unwrap();
                let (number, tag) = (&revision["revision"], revision_tag(&revision));
                self.say("controller", &format!("delete revision {number} ({tag})"));
            }
            Write::AdoptPod(pod) => {
                let name = &*pod.meta.key.name;
                self.pods.get_mut(name).unwrap()["metadata"]["ownerReferences"] = json!([owner(set)]);
                self.say("controller", &format!("adopt {name}"));
            }
            Write::ReleasePod(pod) => {
                let name = &*pod.meta.key.name;
                let metadata = self.pods.get_mut(name).unwrap()["metadata"].as_object_mut().unwrap();
                metadata.remove("ownerReferences");
                self.say("controller", &format!("release {name}"));
            }
            Write::AdoptRevision(revision) => {
                let stored = self.revisions.get_mut(&*revision.meta.key.name).unwrap();
                stored["metadata"]["ownerReferences"] = json!([owner(set)]);
                let tag = revision_tag(stored);
                self.say("controller", &format!("adopt the revision {tag}"));
            }
            Write::Label(pod, labels) => {
                let name = &*pod.meta.key.name;
                for (label, value) in labels {
                    self.pods.get_mut(name).unwrap()["metadata"]["labels"][*label] = value.as_str().into();
                }
                self.say(
                    "controller",
                    &format!("label {name}: {}", labels.keys().copied().collect::<Vec<_>>().join(", ")),
                );
            }
            Write::SetOwners(change) => self.set_owners(set, change),
            Write::CreateClaims(new) => return self.create_claims(set, new),
            Write::CreatePods(_) | Write::DeletePods(_) => unreachable!("these have several effects"),
        }
        Ok(())
    }

    /// SS10.
    fn set_owners(&mut self, set: &StatefulSet, change: &ClaimChange) {
        let name = &*change.claim.meta.key.name;
        let stored = self.claims.get_mut(name).unwrap();
        let is_ours = |owner: &Value| {
            owner["uid"] == set.meta.uid.to_string()
                || (owner["kind"] == "Pod" && owner["name"] == format!("db-{}", change.ordinal))
        };
        let foreign = |owners: &Value| {
            let owners = owners.as_array().into_iter().flatten();
            owners.filter(|owner| !is_ours(owner)).cloned().collect::<Vec<_>>()
        };
        let after = serde_json::to_value(&change.owners).unwrap();
        assert_eq!(foreign(&stored["metadata"]["ownerReferences"]), foreign(&after), "SS10: {name}");
        stored["metadata"]["ownerReferences"] = after;
        let owners = owners_of(stored);
        self.say("controller", &format!("claim {name} belongs to {owners}"));
    }

    /// SS15.
    fn create_claims(&mut self, set: &StatefulSet, new: &NewPod) -> Result<(), Stop> {
        let templates = set.claim_templates.all().unwrap();
        for at in &new.missing_claims {
            let (name, body) = claim_body(set, &templates[*at], new).unwrap();
            if self.refused.contains(&name) {
                self.say("controller", &format!("is refused the claim {name}"));
                return Err(Stop::Refused);
            }
            let mut claim: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(claim["metadata"]["name"], name, "SS15");
            assert_eq!(claim["metadata"]["labels"]["app"], "store", "SS15");
            self.stamp(&mut claim, "uid-claim");
            let owners = owners_of(&claim);
            self.say("controller", &format!("create claim {name} of {owners}"));
            assert!(self.claims.insert(name, claim).is_none(), "SS15");
        }
        Ok(())
    }

    fn create_pod(&mut self, set: &StatefulSet, new: &NewPod) -> Result<(), Stop> {
        self.create_claims(set, new)?;
        let name = &*new.name;
        if self.refused.contains(name) || self.quota.is_some_and(|most| self.pods.len() >= most) {
            self.say("controller", &format!("is refused {name}"));
            return Err(Stop::Refused);
        }
        let former = |revision: &Value| {
            let template = &revision["data"]["spec"]["template"];
            let json = json!({"metadata": {"name": "x", "namespace": "y", "uid": "z", "resourceVersion": "1"}, "spec": {"template": template}});
            Self::decode::<StatefulSet>(&json).template
        };
        let template: Template =
            if new.is_updated { set.template.clone() } else { former(&self.revisions[&*new.revision]) };
        let mut pod: Value = serde_json::from_slice(&pod_body(set, &template, new).unwrap()).unwrap();
        self.check_new(set, new, &pod);
        self.stamp(&mut pod, "uid-pod");
        pod["status"] = json!({"phase": "Pending"});
        self.say("controller", &format!("create {name} ({})", tag(&pod)));
        assert!(self.pods.insert(name.into(), pod).is_none());
        self.memory.created(&set.meta, &new.name, self.now);
        Ok(())
    }

    /// SS1, SS2, SS6 and SS14.
    fn check_new(&self, set: &StatefulSet, new: &NewPod, pod: &Value) {
        let (ordinal, name) = (new.ordinal, &*new.name);
        assert_eq!(name, format!("db-{ordinal}"), "SS1");
        let range = i64::from(set.start)..i64::from(set.start) + i64::from(set.replicas);
        assert!(range.contains(&i64::from(ordinal)), "SS1: {ordinal} is not in {range:?}");
        let labels = &pod["metadata"]["labels"];
        assert_eq!(labels["statefulset.kubernetes.io/pod-name"], name, "SS1");
        assert_eq!(labels["apps.kubernetes.io/pod-index"], ordinal.to_string(), "SS1");
        assert_eq!(labels[CONTROLLER_REVISION_HASH], *new.revision, "SS1");
        assert_eq!(
            (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]),
            (&name.into(), &"peers".into()),
            "SS1"
        );
        let claims: Vec<String> =
            set.claim_templates.names.iter().map(|template| format!("{template}-{name}")).collect();
        assert_eq!(claims_of(pod), claims, "SS1");
        assert!(self.revisions.contains_key(&*new.revision), "SS16: {name} has no revision");
        if !set.is_parallel {
            for below in set.start..ordinal {
                let pod = self.pods.get(&format!("db-{below}")).map(Self::decode::<Pod>);
                assert!(
                    pod.is_some_and(|pod| self.is_available(set, &pod)),
                    "SS2: db-{below}\n{}",
                    self.transcript
                );
            }
        }
        for claim in claims {
            let claim = &self.claims[&claim]["metadata"];
            assert!(claim["deletionTimestamp"].is_null(), "SS14");
            let uid = set.meta.uid.to_string();
            for owner in claim["ownerReferences"].as_array().into_iter().flatten() {
                let is_former =
                    owner["kind"] == "StatefulSet" && owner["name"] == "db" && owner["uid"] != uid;
                let is_former_pod = owner["kind"] == "Pod" && owner["name"] == name;
                assert!(!is_former && !is_former_pod, "SS14: {owner}\n{}", self.transcript);
            }
        }
        let current = &*set.status.current_revision;
        if self.index(set, ordinal) < partition(set) && self.revisions.contains_key(current) {
            assert_eq!(&*new.revision, current, "SS6: {name} is below the partition\n{}", self.transcript);
        }
    }

    fn index(&self, set: &StatefulSet, ordinal: i32) -> i64 {
        i64::from(ordinal) - i64::from(set.start)
    }

    fn is_available(&self, set: &StatefulSet, pod: &Pod) -> bool {
        !pod.meta.is_deleting()
            && set.controls(&pod.meta)
            && pod.is_available(set.min_ready_seconds, self.now)
    }

    fn ours(&self, set: &StatefulSet) -> Vec<(i32, Pod)> {
        let pods = self.pods.values().map(Self::decode::<Pod>).filter(|pod| set.controls(&pod.meta));
        let ordinal = |pod: &Pod| pod.meta.key.name.rsplit_once('-').unwrap().1.parse().unwrap();
        let mut pods: Vec<(i32, Pod)> = pods.map(|pod| (ordinal(&pod), pod)).collect();
        pods.sort_by_key(|(ordinal, _)| *ordinal);
        pods
    }

    fn delete(&mut self, set: &StatefulSet, deletion: &Deletion) {
        let Deletion { pod, ordinal, reason } = deletion;
        let name = &*pod.meta.key.name;
        let stored = &self.pods[name];
        assert_eq!(stored["metadata"]["uid"], pod.meta.uid.to_string(), "SS4");
        assert!(stored["metadata"]["deletionTimestamp"].is_null(), "{name} is deleted twice");
        match reason {
            Reason::Condemned => self.check_condemned(set, *ordinal, pod),
            Reason::Ended => {
                assert!(pod.is_terminal(), "SS4: {name}");
                self.memory.ended_pod_deleted(&set.meta, &pod.meta.key.name, self.now);
                let times = self.replaced.entry((set.meta.generation, name.into())).or_default();
                times.push(self.now);
            }
            Reason::NeverStarted => {
                assert!(!set.is_parallel && pod.phase == Phase::Pending && !pod.has_started, "SS4: {name}");
                self.check_outdated(set, *ordinal, pod);
            }
            Reason::Broken | Reason::Outdated => self.check_outdated(set, *ordinal, pod),
        }
        self.say("controller", &format!("delete {name} ({}): {reason:?}", tag(&self.pods[name])));
        if pod.is_terminal() {
            self.pods.remove(name);
        } else {
            self.end_pod(name);
        }
    }

    /// SS3 and SS12.
    fn check_condemned(&self, set: &StatefulSet, ordinal: i32, pod: &Pod) {
        let name = &*pod.meta.key.name;
        let range = ordinals::wanted(set);
        assert!(!range.contains(&i64::from(ordinal)), "SS3: {name} is in range");
        let (inside, outside): (Vec<_>, Vec<_>) =
            self.ours(set).into_iter().partition(|(ordinal, _)| range.contains(&i64::from(*ordinal)));
        if !set.is_parallel {
            let available = inside.iter().filter(|(_, pod)| self.is_available(set, pod)).count();
            assert_eq!(available as i64, range.end - range.start, "SS3: {name}\n{}", self.transcript);
            assert!(outside.iter().all(|(there, _)| *there <= ordinal), "SS3: {name} is not the highest");
            let lowest = outside.iter().find(|(_, pod)| !self.is_available(set, pod));
            assert!(
                self.is_available(set, pod) || lowest.is_some_and(|(lowest, _)| *lowest == ordinal),
                "SS3: {name}"
            );
        }
        if set.deletes_claims_when_scaled {
            for claim in set
                .claim_templates
                .names
                .iter()
                .filter_map(|template| self.claims.get(&format!("{template}-{name}")))
            {
                let metadata = &claim["metadata"];
                let owners = || metadata["ownerReferences"].as_array().into_iter().flatten();
                let is_left_alone = !metadata["deletionTimestamp"].is_null()
                    || owners().any(|owner| owner["kind"] == "Backup")
                    || owners().any(|owner| {
                        owner["kind"] == "StatefulSet" && owner["uid"] != set.meta.uid.to_string()
                    });
                let is_right = owners().any(|owner| owner["uid"] == pod.meta.uid.to_string());
                assert!(is_right || is_left_alone, "SS12: {name}\n{}", self.transcript);
            }
        }
    }

    /// SS5 to SS8.
    fn check_outdated(&self, set: &StatefulSet, ordinal: i32, pod: &Pod) {
        let name = &*pod.meta.key.name;
        let StatefulSetStrategy::RollingUpdate { max_unavailable, .. } = set.strategy else {
            panic!("SS8: {name}\n{}", self.transcript)
        };
        let update = self.plan().status.unwrap().update_revision;
        assert_ne!(revision_of(pod), &*update, "SS4: {name} is not outdated");
        assert!(self.index(set, ordinal) >= partition(set), "SS6: {name}\n{}", self.transcript);
        if !self.is_available(set, pod) {
            return;
        }
        let most = match max_unavailable {
            None => 1,
            Some(IntOrPercent::Int(most)) => most.max(1),
            Some(IntOrPercent::Percent(percent)) => (percent * i64::from(set.replicas) / 100).max(1),
        };
        let ours = self.ours(set);
        let inside =
            || ours.iter().filter(|(ordinal, _)| ordinals::wanted(set).contains(&i64::from(*ordinal)));
        let available = inside().filter(|(_, pod)| self.is_available(set, pod)).count() as i64;
        let unavailable = i64::from(set.replicas) - available;
        assert!(
            unavailable < most,
            "SS5: {name}, {unavailable} of {most} are unavailable\n{}",
            self.transcript
        );
        let mut above = inside().filter(|(there, _)| *there > ordinal);
        let older = above.find(|(_, pod)| revision_of(pod) != &*update && !pod.meta.is_deleting());
        assert!(
            older.is_none(),
            "SS7: {name} before {:?}\n{}",
            older.map(|(there, _)| there),
            self.transcript
        );
    }

    /// SS24.
    pub fn check_backoff(&self) {
        for (key, times) in &self.replaced {
            let mut wait = 1;
            for pair in times.windows(2) {
                let gap = pair[1].duration_since(pair[0]).as_secs();
                wait = if gap > 1800 { 1 } else { wait };
                assert!(gap >= wait, "SS24: {key:?} {times:?}\n{}", self.transcript);
                wait = (wait * 2).min(900);
            }
        }
    }
}

fn owner(set: &StatefulSet) -> Value {
    let Meta { key, uid, .. } = &set.meta;
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": &*key.name, "uid": uid.to_string(), "controller": true})
}

fn partition(set: &StatefulSet) -> i64 {
    match set.strategy {
        StatefulSetStrategy::RollingUpdate { partition, .. } => partition.unwrap_or(0).into(),
        StatefulSetStrategy::OnDelete => 0,
    }
}

/// No object is written twice, and no ordinal is created and deleted in one plan.
pub(super) fn check_plan(plan: &Plan) {
    assert!(!plan.reasons.is_empty(), "a plan without a reason: {plan:?}");
    let (mut created, mut deleted, mut written) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut once = |name: &str| assert!(written.insert(name.to_owned()), "{name} is written twice: {plan:?}");
    let mut count = 0;
    for write in &plan.writes {
        match write {
            Write::CreatePods(pods) => pods.iter().for_each(|new| {
                once(&new.name);
                created.insert(new.ordinal);
            }),
            Write::DeletePods(deletions) => deletions.iter().for_each(|deletion| {
                once(&deletion.pod.meta.key.name);
                deleted.insert(deletion.ordinal);
                count += 1;
            }),
            Write::Label(pod, _) | Write::AdoptPod(pod) | Write::ReleasePod(pod) => once(&pod.meta.key.name),
            Write::SetOwners(change) => once(&change.claim.meta.key.name),
            Write::AdoptRevision(revision)
            | Write::ChangeRevision(revision, _)
            | Write::DeleteRevision(revision) => {
                once(&revision.meta.key.name);
            }
            Write::CreateRevision(_) | Write::CreateClaims(_) => {}
        }
    }
    assert!(created.is_disjoint(&deleted), "an ordinal is created and deleted: {plan:?}");
    assert!(created.len() <= BURST && count <= BURST, "SS25: {plan:?}");
}

/// SS20 and SS21.
pub(super) fn check_status(set: &StatefulSet, plan: &Plan, status: &StatefulSetStatus) {
    let StatefulSetStatus { replicas, ready, available, current, updated, .. } = *status;
    assert!(0 <= available && available <= ready && ready <= replicas, "SS20: {status:?}");
    assert!((0..=replicas).contains(&current) && (0..=replicas).contains(&updated), "SS20: {status:?}");
    assert!(status.observed_generation >= set.status.observed_generation, "SS20: {status:?}");
    let is_promoted =
        status.current_revision != set.status.current_revision && !set.status.current_revision.is_empty();
    if is_promoted && updated != replicas {
        let had =
            plan.status.as_ref().is_some_and(|planned| planned.current_revision == status.update_revision);
        assert!(had, "SS21: {status:?}");
    }
}
