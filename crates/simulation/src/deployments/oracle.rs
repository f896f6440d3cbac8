//! Sieve's two oracles (Sun et al., OSDI 2022): faults must change neither the final state of a workload nor how many
//! objects are created and deleted on the way.
//!
//! They apply to *calm* scenarios only, in which users wait until the cluster is settled before their next change,
//! and no other client changes the pods: then the same scenario without faults gives the expected result. Two leaders
//! that see different states may undo each other's work; the oracles do not apply to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::objects::controller;
use super::scenario::{Act, Fault, Scenario, beginning_of};
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::{Picture, is_deleting, owner, text, uid};

/// How many objects the daemons created and deleted, by resource and by the name of the ReplicaSet or Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    sums: BTreeMap<String, Sum>,
    /// The UIDs of pods and ReplicaSets that arrived late, and of the pods of such ReplicaSets. Where their owner has
    /// been deleted since, the garbage collector deletes them.
    late: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    created: u32,
    deleted: u32,
    /// How many of these writes arrived after their author had abandoned them. A creation: its author has created
    /// another object of the name in its place, which may have been deleted since, and the server cannot know that
    /// the late one is not wanted any more. A deletion: the next leader may have chosen another pod, and replaces
    /// this one. Each may cause one extra creation and one extra deletion. A ReplicaSet that comes back so, after it
    /// was deleted for the history limit, gets a pod before its Deployment sizes it to 0: its pods count as well.
    late: u32,
}

impl Tally {
    /// Counts a write: a daemon's, or the garbage collector's deletion of what arrived late.
    pub fn count(&mut self, call: &Call, before: Option<&Value>, after: Option<&Value>) {
        let created = call.of_daemon() && before.is_none() && after.is_some();
        let collected = |object: &Value| &*call.agent == "garbage" && self.late.contains(uid(object));
        let deleted = call.method == http::Method::DELETE
            && before.is_some_and(|before| !is_deleting(before) && (call.of_daemon() || collected(before)));
        let Some(object) = before.or(after).filter(|_| created || deleted) else { return };
        // The name of a pod begins with the name of its ReplicaSet, or a part of it.
        let name = match &*call.resource {
            "pods" => beginning_of(&call.name).trim_end_matches('-'),
            _ => text(object, "/metadata/name"),
        };
        let is_late = call.abandoned || created && self.late.contains(owner(object));
        if created && is_late {
            self.late.insert(uid(object).to_owned());
        }
        let sum = self.sums.entry(format!("{} of {name}", call.resource)).or_default();
        sum.created += u32::from(created);
        sum.deleted += u32::from(deleted);
        sum.late += u32::from((created || deleted) && is_late);
    }
}

/// The part of the result that faults must not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// The numbers of creations and deletions.
    pub tally: Tally,
    /// All objects at the end, without what depends on time.
    pub objects: Vec<String>,
    /// Whether users made a change before the last one was rolled out: then the creations and deletions depend on
    /// timing.
    pub is_hurried: bool,
}

/// The objects, without identities and times.
pub fn objects(picture: &Picture) -> Vec<String> {
    let mut pods: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in picture.get("pods").into_iter().flat_map(|all| all.values()) {
        *pods.entry(controller(pod)).or_default() += 1;
    }
    let others = ["deployments", "replicasets"].iter().filter_map(|resource| picture.get(*resource));
    let line = |object: &Arc<Value>| {
        let metadata = &object["metadata"];
        let mut status = object["status"].clone();
        let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let known = |c: &Value| format!("{}={} {}", text(c, "/type"), text(c, "/status"), text(c, "/reason"));
        let conditions: BTreeSet<String> = conditions.iter().map(known).collect();
        if let Some(status) = status.as_object_mut() {
            // The generation counts attempts and not results; a count of 0 may be omitted.
            status.retain(|field, value| field != "observedGeneration" && *value != 0);
            status.insert("conditions".into(), json!(conditions));
        }
        let has = pods.get(text(object, "/metadata/uid")).copied().unwrap_or(0);
        format!("{} {} {} {status} {has} pods", metadata["name"], metadata["annotations"], object["spec"])
    };
    others.flat_map(|all| all.values()).map(line).collect()
}

/// Whether the oracles apply.
pub fn applies(scenario: &Scenario) -> bool {
    scenario.calm && (scenario.election || scenario.daemons == 1) && !may_start_from_old_lists(scenario)
}

/// Whether a daemon may start from an old list. The API promises that a first list is not old, and real servers keep
/// that promise; a server that breaks it makes the daemon act on an earlier state.
pub(super) fn may_start_from_old_lists(scenario: &Scenario) -> bool {
    // A daemon that loses the Lease restarts as well.
    let restart = |act: &Act| {
        matches!(act, Act::Crash { .. } | Act::Stop { .. } | Act::SlowLease { .. } | Act::Depose { .. })
    };
    scenario.faults.iter().any(|fault| matches!(fault, Fault::Behind(_)))
        && scenario.acts.iter().any(|(_, act)| restart(act))
}

/// The same scenario without faults.
pub fn without_faults(scenario: &Scenario) -> Scenario {
    let mut calm = scenario.clone();
    calm.faults.clear();
    calm.clocks.clear();
    calm.points.clear();
    calm.acts.retain(|(_, act)| act.is_user_change());
    calm.bug = "";
    calm
}

/// Checks that a history ended as expected.
///
/// # Errors
/// The first difference.
pub fn compare(owed: &Ending, found: &Ending) -> Result<(), Breach> {
    if found.is_hurried {
        return Ok(());
    }
    let names = owed.tally.sums.keys().chain(found.tally.sums.keys());
    for name in names {
        let of = |ending: &Ending| ending.tally.sums.get(name).copied().unwrap_or_default();
        let (owed, found) = (of(owed), of(found));
        let (fewest, most) = (owed.created, owed.created + found.late);
        let surplus = found.created.wrapping_sub(owed.created);
        if !(fewest..=most).contains(&found.created) || found.deleted != owed.deleted + surplus {
            let (created, deleted) = (found.created, found.deleted);
            let what = format!(
                "{name}: {created} created and {deleted} deleted, without faults {} and {}",
                owed.created, owed.deleted
            );
            return Err(Breach::new("R3", what));
        }
    }
    let differs = owed.objects.iter().zip(&found.objects).find(|(owed, found)| owed != found);
    if let Some((owed, found)) = differs {
        return Err(Breach::new("R3", format!("it ends with {found}, without faults with {owed}")));
    }
    if owed.objects.len() != found.objects.len() {
        let what =
            format!("{} objects at the end, without faults {}", found.objects.len(), owed.objects.len());
        return Err(Breach::new("R3", what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::deployments::run::history;
    use crate::engine::runner::alone;

    #[test]
    fn the_expected_ending_comes_from_the_history_without_faults() {
        let calm = (1..200).map(Scenario::new).find(|scenario| applies(scenario) && scenario.acts.len() > 4);
        let scenario = calm.unwrap();
        let calm = without_faults(&scenario);
        let (outcome, ending) = alone(calm.seed, "", || history(&calm, false)).unwrap();
        assert_eq!(outcome.failure, None);
        assert!(ending.objects.len() > 1, "{:?}", ending);
        assert_eq!(compare(&ending, &ending), Ok(()));
        let mut other = ending.clone();
        other.tally = Tally::default();
        assert!(compare(&ending, &other).is_err());
    }

    /// A daemon's creation of an object, which its author has abandoned if `abandoned`.
    fn create(tally: &mut Tally, resource: &str, object: &Value, abandoned: bool) {
        let path = format!("/api/v1/namespaces/shop/{resource}");
        let (parts, ()) = http::Request::post(path).body(()).unwrap().into_parts();
        let call = Call { abandoned, ..Call::new("d0.1".into(), &parts, object.to_string().as_bytes()) };
        tally.count(&call, None, Some(object));
    }

    #[test]
    fn a_replica_set_that_arrives_after_it_was_deleted_excuses_its_pods_and_no_others() {
        let pod = |name: &str, owner: &str| {
            let owners = json!([{"controller": true, "uid": owner}]);
            json!({"metadata": {"name": name, "uid": name, "ownerReferences": owners}})
        };
        let set = |name: &str| json!({"metadata": {"name": name, "uid": format!("uid of {name}")}});
        let mut tally = Tally::default();
        create(&mut tally, "replicasets", &set("web-1"), true);
        create(&mut tally, "pods", &pod("web-1-abcde", "uid of web-1"), false);
        create(&mut tally, "replicasets", &set("web-2"), false);
        create(&mut tally, "pods", &pod("web-2-abcde", "uid of web-2"), false);
        let late: Vec<u32> =
            ["web-1", "web-2"].map(|name| tally.sums[&format!("pods of {name}")].late).into();
        assert_eq!(late, [1, 0]);
    }
}
