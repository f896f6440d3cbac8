//! The effects of writes on the toy cluster. Each write is checked against the invariants at once.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass::model::{
    CONTROLLER_REVISION_HASH, ControllerRevision, DaemonSet, DaemonSetStatus, Pod, Record, UpdateStrategy,
};
use windlass::plan::daemonset::names::Names;
use windlass::plan::daemonset::revisions::{self, Taken};
use windlass::plan::daemonset::{BURST, Deletion, NewPod, Reason, Verdict, Write, body};

use super::world::{World, revision_tag, tag};

impl World {
    /// Carries out one write. Returns whether the next may follow.
    pub(super) fn apply(&mut self, daemon_set: &DaemonSet, write: &Write) -> bool {
        match write {
            Write::CreateRevision(new) => {
                if let Some(existing) = self.revisions.get(&new.name) {
                    let existing = Self::decode::<ControllerRevision>(existing);
                    match revisions::on_taken(daemon_set, new, Some(&existing)) {
                        Taken::Use => return true,
                        Taken::PlanAgain => return false,
                        Taken::Collision => {
                            let of = (&daemon_set.meta, daemon_set.status.collision_count);
                            let count = windlass::plan::revisions::next_collision(of, of).unwrap();
                            self.daemon_set["status"]["collisionCount"] = count.into();
                            self.say("controller", &format!("collision {count}"));
                            return false;
                        }
                    }
                }
                let annotations = BTreeMap::new();
                let body = revisions::revision_body(daemon_set, new, &annotations).unwrap();
                let mut revision: Value = serde_json::from_slice(&body).unwrap();
                self.stamp(&mut revision, "uid-revision");
                self.say(
                    "controller",
                    &format!("create revision {} ({})", new.number, revision_tag(&revision)),
                );
                self.revisions.insert(new.name.clone(), revision);
            }
            Write::ChangeRevision(revision, change) => {
                let stored = self.revisions.get_mut(&*revision.meta.key.name).unwrap();
                let tag = revision_tag(stored);
                if let Some(hash) = &change.hash {
                    stored["metadata"]["labels"][CONTROLLER_REVISION_HASH] = hash.as_str().into();
                }
                if let Some(number) = change.number {
                    assert!(number > stored["revision"].as_i64().unwrap(), "DS12: a number falls");
                    stored["revision"] = number.into();
                    self.say("controller", &format!("{tag} becomes revision {number}"));
                }
                if let Some(state) = &change.state {
                    let stored = self.revisions.get_mut(&*revision.meta.key.name).unwrap();
                    stored["metadata"]["annotations"] = json!({"windlass.dev/rollout-state": state});
                    let mut shown: Value = serde_json::from_str(state).unwrap();
                    assert_eq!(shown["hash"], &*revision.meta.key.name);
                    shown.as_object_mut().unwrap().remove("hash");
                    self.say("controller", &format!("{tag} has the state {shown}"));
                }
                for note in &change.notes {
                    let kind = if note.warning { "Warning" } else { "Normal" };
                    self.say("event", &format!("{kind} {}: {}", note.reason, note.message));
                }
            }
            Write::DeleteRevision(revision) => {
                let name = &*revision.meta.key.name;
                let hash = revision.hash();
                let used =
                    |pod: &&Value| pod["metadata"]["labels"][CONTROLLER_REVISION_HASH].as_str() == hash;
                assert_eq!(self.pods.values().filter(used).count(), 0, "DS13: {name} has pods");
                let revision = self.revisions.remove(name).unwrap();
                let (number, tag) = (&revision["revision"], revision_tag(&revision));
                self.say("controller", &format!("delete revision {number} ({tag})"));
            }
            Write::Relabel { pod, hash } => {
                let stored = self.pods.get_mut(&*pod.meta.key.name).unwrap();
                stored["metadata"]["labels"][CONTROLLER_REVISION_HASH] = hash.as_str().into();
                let target = pod.target().unwrap();
                self.say("controller", &format!("relabel the pod on {target}"));
            }
            Write::CreatePods { pods, hash } => {
                assert!(pods.len() <= BURST, "DS10: {} creations", pods.len());
                let nodes: Vec<&str> = pods.iter().map(|new| &*new.node).collect();
                self.say("controller", &format!("create on {}", nodes.join(", ")));
                pods.iter().for_each(|new| self.create_pod(daemon_set, new, hash));
            }
            Write::DeletePods(deletions) => {
                assert!(deletions.len() <= BURST, "DS10: {} deletions", deletions.len());
                deletions.iter().for_each(|deletion| self.delete_pod(daemon_set, deletion));
            }
            Write::AdoptPod(pod) => {
                let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": daemon_set.meta.uid,
                    "controller": true}]);
                self.pods.get_mut(&*pod.meta.key.name).unwrap()["metadata"]["ownerReferences"] = owner;
                self.say("controller", "adopt a pod");
            }
            Write::ReleasePod(pod) => {
                let metadata = &mut self.pods.get_mut(&*pod.meta.key.name).unwrap()["metadata"];
                metadata.as_object_mut().unwrap().remove("ownerReferences");
                self.say("controller", "release a pod");
            }
            Write::AdoptRevision(revision) => {
                let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": daemon_set.meta.uid,
                    "controller": true}]);
                let stored = self.revisions.get_mut(&*revision.meta.key.name).unwrap();
                stored["metadata"]["ownerReferences"] = owner;
                let tag = revision_tag(stored);
                self.say("controller", &format!("adopt the revision {tag}"));
            }
            Write::ReleaseRevision(_) => unreachable!("this test edits no labels of revisions"),
        }
        true
    }

    fn ours(&self, daemon_set: &DaemonSet, node: &str) -> Vec<Pod> {
        let pods = self.pods.values().map(Self::decode::<Pod>);
        pods.filter(|pod| daemon_set.controls(&pod.meta) && pod.target().is_some_and(|t| **t == *node))
            .collect()
    }

    fn is_available(&self, daemon_set: &DaemonSet, pod: &Pod) -> bool {
        !pod.meta.is_deleting() && pod.is_available(daemon_set.min_ready_seconds, self.now)
    }

    fn is_old(&self, pod: &Pod, hash: &str) -> bool {
        pod.meta.labels.get(CONTROLLER_REVISION_HASH) != Some(hash)
    }

    fn create_pod(&mut self, daemon_set: &DaemonSet, new: &NewPod, hash: &str) {
        let node = &*new.node;
        let there = self.ours(daemon_set, node);
        assert_eq!(self.verdicts().get(node), Some(Verdict::Run), "DS7: {node} runs no pod");
        let live: Vec<&Pod> = there.iter().filter(|pod| pod.is_active()).collect();
        if daemon_set.allows_surge() {
            assert!(
                live.len() < 2 && live.iter().all(|pod| self.is_old(pod, hash)),
                "DS2: {node} has {live:?}"
            );
        } else {
            let other = there.iter().find(|pod| !pod.is_terminal());
            assert!(other.is_none(), "DS1: {node} has {other:?}\n{}", self.transcript);
        }
        let is_surge = live.iter().any(|pod| self.is_available(daemon_set, pod));
        if !live.is_empty() {
            self.check_step(daemon_set, node);
        }
        assert!(self.used.insert(new.name.clone()), "the name {} comes back", new.name);

        let body = body::pod_body(daemon_set, new, hash).unwrap();
        let mut pod: Value = serde_json::from_slice(&body).unwrap();
        self.stamp(&mut pod, "uid-pod");
        pod["status"] = json!({"phase": "Pending"});
        assert!(self.pods.insert(new.name.clone(), pod).is_none());
        let names = Names::of(&daemon_set.meta.key.name, &daemon_set.meta.uid);
        self.marks.created(&names, &new.node, &new.name);
        self.refused.forget(node);
        if is_surge {
            let (max, _) = daemon_set.budget(self.desired());
            let surging = self.nodes.keys().filter(|node| self.is_surging(daemon_set, node, hash)).count();
            assert!(surging as i64 <= i64::from(max), "DS4: {surging} of {max} surge\n{}", self.transcript);
        }
    }

    /// The hash of the revision with the highest number.
    fn last_hash(&self) -> String {
        let last = self.revisions.values().max_by_key(|revision| revision["revision"].as_i64()).unwrap();
        last["metadata"]["labels"][CONTROLLER_REVISION_HASH].as_str().unwrap().into()
    }

    fn has_new(&self, daemon_set: &DaemonSet, node: &str, hash: &str) -> bool {
        self.ours(daemon_set, node).iter().any(|pod| !self.is_old(pod, hash))
    }

    fn is_left_alone(&self, daemon_set: &DaemonSet, node: &str, hash: &str) -> bool {
        daemon_set.policies.get("windlass.dev/not-ready-nodes") == Some("ignore")
            && self.not_ready().contains(node)
            && !self.has_new(daemon_set, node, hash)
    }

    /// RP2, RP3: a node gets its turn only while fewer nodes than the bound of the first step that nobody has approved have a
    /// new pod or get one. Judged where every step is to be approved.
    fn check_step(&self, daemon_set: &DaemonSet, node: &str) {
        let Some(steps) = daemon_set.policies.get("windlass.dev/steps") else { return };
        if steps.contains("for") || daemon_set.policies.get("windlass.dev/bypass-until").is_some() {
            return;
        }
        let hash = self.last_hash();
        let verdicts = self.verdicts();
        let (mut all, mut taken) = (0i64, 0i64);
        for (name, verdict) in verdicts.iter() {
            let live: Vec<Pod> = self.ours(daemon_set, name).into_iter().filter(Pod::is_active).collect();
            let (old, new): (Vec<&Pod>, Vec<&Pod>) = live.iter().partition(|pod| self.is_old(pod, &hash));
            let counts = match verdict {
                Verdict::Run => true,
                Verdict::Continue => !old.is_empty(),
                Verdict::Leave => false,
            };
            all += i64::from(counts);
            taken += i64::from(counts && (old.is_empty() || !new.is_empty()));
        }
        let number =
            self.revisions.values().filter_map(|revision| revision["revision"].as_i64()).max().unwrap();
        let approved = self.approved.get(&number).copied().unwrap_or(0);
        if approved >= steps.split(',').count() {
            return;
        }
        let bounds: Vec<i64> = steps
            .split(',')
            .map(|step| match step.trim().strip_suffix('%') {
                Some(percent) => ((all * percent.parse::<i64>().unwrap() + 99) / 100).max(1),
                None => step.trim().parse().unwrap(),
            })
            .collect();
        let bound = bounds.iter().take(approved + 1).copied().max().unwrap_or(0);
        assert!(
            taken < bound.min(all),
            "RP2: {node} follows, and {taken} of {all} have a new pod; step {} allows {bound}\n{}",
            approved + 1,
            self.transcript
        );
    }

    fn is_surging(&self, daemon_set: &DaemonSet, node: &str, hash: &str) -> bool {
        let live: Vec<Pod> = self.ours(daemon_set, node).into_iter().filter(Pod::is_active).collect();
        let (old, new): (Vec<&Pod>, Vec<&Pod>) = live.iter().partition(|pod| self.is_old(pod, hash));
        old.iter().any(|pod| self.is_available(daemon_set, pod)) && !new.is_empty()
    }

    fn desired(&self) -> i32 {
        self.verdicts().iter().filter(|(_, verdict)| *verdict == Verdict::Run).count() as i32
    }

    fn has_available(&self, daemon_set: &DaemonSet, node: &str) -> bool {
        self.ours(daemon_set, node).iter().any(|pod| self.is_available(daemon_set, pod))
    }

    fn delete_pod(&mut self, daemon_set: &DaemonSet, deletion: &Deletion) {
        let Deletion { pod, reason, is_rollout: _ } = deletion;
        let name = &*pod.meta.key.name;
        let node = pod.target().map_or("", |node| &**node).to_owned();
        let verdicts = self.verdicts();
        let runs = verdicts.get(&node) == Some(Verdict::Run);
        let is_available = self.is_available(daemon_set, pod);
        let rolls = matches!(reason, Reason::Outdated | Reason::Replaced);
        assert!(!pod.meta.is_deleting(), "{name} is deleted twice");
        if rolls {
            assert_ne!(daemon_set.strategy, UpdateStrategy::OnDelete, "DS6");
        }
        if rolls && is_available && !daemon_set.allows_surge() && runs {
            let hash = self.last_hash();
            let lacking = verdicts.iter().filter(|(node, verdict)| {
                let runs = match self.is_left_alone(daemon_set, node, &hash) {
                    true => false,
                    // RP15: the new pod may have made its node not ready.
                    false if *verdict == Verdict::Continue => self.has_new(daemon_set, node, &hash),
                    false => *verdict == Verdict::Run,
                };
                runs && !self.has_available(daemon_set, node)
            });
            let (lacking, (_, max)) = (lacking.count() as i64, daemon_set.budget(self.desired()));
            assert!(lacking < i64::from(max), "DS3: {lacking} of {max} lack one\n{}", self.transcript);
        }
        if *reason == Reason::Outdated && runs && !daemon_set.allows_surge() {
            self.check_step(daemon_set, &node);
        }
        if rolls && is_available && daemon_set.allows_surge() {
            let beside = self.ours(daemon_set, &node).into_iter();
            let mut others = beside.filter(|other| other.meta.uid != pod.meta.uid);
            let available =
                self.nodes.keys().filter(|node| self.has_available(daemon_set, node)).count() as i32;
            let is_replaced = others.any(|other| self.is_available(daemon_set, &other));
            let may = is_replaced || (!runs && available > self.desired());
            assert!(may, "DS5: {node} loses its pod\n{}", self.transcript);
        }
        if *reason == Reason::Failed {
            let generation = daemon_set.meta.generation;
            self.backoff.deleted(generation, &node.as_str().into(), self.now);
            self.replaced.entry((generation, node.clone())).or_default().push(self.now);
        }
        let stored = &self.pods[name];
        let tag = tag(stored);
        let is_over = pod.is_terminal() || pod.node().is_none();
        if is_over {
            self.pods.remove(name);
        } else {
            self.pods.get_mut(name).unwrap()["metadata"]["deletionTimestamp"] = self.now.to_string().into();
        }
        let node = if node.is_empty() { "no node" } else { &node };
        self.say("controller", &format!("delete {tag} on {node}: {reason:?}"));
        if let Some(note) = deletion.note() {
            let kind = if note.warning { "Warning" } else { "Normal" };
            let message = note.message.replace(name, &tag);
            self.say("event", &format!("{kind} {}: {message}", note.reason));
        }
    }

    /// DS11: failed pods of one node and generation were replaced ever more slowly.
    pub fn check_backoff(&self) {
        for (key, times) in &self.replaced {
            let mut wait = 1;
            for pair in times.windows(2) {
                let gap = pair[1].duration_since(pair[0]).as_secs();
                if gap == 0 {
                    // Several failed pods of one node went at once.
                    continue;
                }
                if gap > 1800 {
                    wait = 1;
                }
                assert!(gap >= wait, "DS11: {key:?} {times:?}");
                wait = (wait * 2).min(900);
            }
        }
    }
}

/// DS15.
pub(super) fn check_status(status: &DaemonSetStatus, daemon_set: &DaemonSet) {
    let DaemonSetStatus {
        observed_generation,
        desired,
        current,
        misscheduled,
        updated,
        ready,
        available,
        ..
    } = *status;
    assert!(
        0 <= available && available <= ready && ready <= current && current <= desired,
        "DS15: {status:?}"
    );
    assert!(0 <= updated && updated <= current && misscheduled >= 0, "DS15: {status:?}");
    assert_eq!(status.unavailable, desired - available, "DS15: {status:?}");
    assert_eq!(observed_generation, daemon_set.meta.generation);
}
