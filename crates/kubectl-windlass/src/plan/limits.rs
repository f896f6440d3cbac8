//! The limits that a namespace sets: quotas, disruption budgets, autoscalers. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass::model::quantity;
use windlass::plan::preview::{Preview, Room, Step};

use super::scopes::{self, Matches};
use crate::text::harmless;

/// The requests and limits of a pod, by the key that a quota has for them, in thousandths.
pub type Needs = BTreeMap<String, i128>;

/// Millis of a quantity, rounded up.
fn millis(value: &Value) -> Option<i128> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let nanos = quantity::nanos(&text)?;
    Some(nanos.div_euclid(1_000_000) + i128::from(nanos.rem_euclid(1_000_000) > 0))
}

/// A quantity of millis as people write it.
pub fn shown(resource: &str, millis: i128) -> String {
    if resource.ends_with("cpu") {
        return format!("{millis}m");
    }
    let whole = millis / 1000;
    [(1_i128 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")]
        .into_iter()
        .find(|(unit, _)| whole >= *unit && whole % unit == 0)
        .map_or_else(|| whole.to_string(), |(unit, suffix)| format!("{}{suffix}", whole / unit))
}

/// The resources that a pod takes (KEP-753): all containers and sidecars together, or while an init container runs,
/// that one and the sidecars before it, whichever is more; and the overhead of its runtime.
pub fn needs(pod: &Value) -> Needs {
    let mut all = Needs::new();
    for (field, prefix) in [("requests", "requests."), ("limits", "limits.")] {
        let of = |container: &Value| -> Needs {
            let amounts = container["resources"][field].as_object();
            let each = amounts.into_iter().flatten();
            each.filter_map(|(resource, amount)| Some((resource.clone(), millis(amount)?))).collect()
        };
        let add = |sum: &mut Needs, more: &Needs| {
            for (resource, amount) in more {
                let entry = sum.entry(resource.clone()).or_default();
                *entry = entry.saturating_add(*amount);
            }
        };
        let (mut sidecars, mut most) = (Needs::new(), Needs::new());
        for container in pod["initContainers"].as_array().into_iter().flatten() {
            let own = of(container);
            if container["restartPolicy"] == "Always" {
                add(&mut sidecars, &own);
                continue;
            }
            let mut during = sidecars.clone();
            add(&mut during, &own);
            for (resource, amount) in during {
                let entry = most.entry(resource).or_default();
                *entry = amount.max(*entry);
            }
        }
        let mut sum = sidecars;
        pod["containers"]
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|container| add(&mut sum, &of(container)));
        for (resource, amount) in most {
            let entry = sum.entry(resource).or_default();
            *entry = amount.max(*entry);
        }
        let overhead = pod["overhead"].as_object().into_iter().flatten();
        let overhead: Needs =
            overhead.filter_map(|(resource, amount)| Some((resource.clone(), millis(amount)?))).collect();
        // An overhead is requested in any case; it raises only those limits that there are.
        let known =
            overhead.into_iter().filter(|(resource, _)| field == "requests" || sum.contains_key(resource));
        let known: Needs = known.collect();
        add(&mut sum, &known);
        all.extend(sum.into_iter().map(|(resource, amount)| (format!("{prefix}{resource}"), amount)));
    }
    all
}

/// The room that a quota leaves for one resource of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// The name of the ResourceQuota.
    pub quota: String,
    /// Its key, such as `requests.memory`.
    pub resource: String,
    /// The room that it leaves to the rollout.
    pub room: Room,
    /// Whether it demands a request or limit that the pods do not have: then it refuses each of them.
    pub is_missing: bool,
}

/// The room that the quotas of a namespace leave.
#[derive(Debug, Default)]
pub struct Left {
    /// Of what pods take.
    pub rooms: Vec<Headroom>,
    /// How many ReplicaSets may still be created, and by which quota.
    pub replica_sets: Option<(i64, String)>,
    /// The parts that cannot be judged.
    pub notes: Vec<String>,
}

/// The room that the quotas leave for pods like these two.
pub fn left(quotas: &[Value], new_pod: &Value, old_pod: &Value) -> Left {
    let mut left = Left::default();
    let needs = [needs(&new_pod["spec"]), needs(&old_pod["spec"])];
    for quota in quotas {
        let name = harmless(quota["metadata"]["name"].as_str().unwrap_or_default());
        let counts = [new_pod, old_pod].map(|pod| scopes::matches(quota, pod));
        if let Some(Matches::Unknown(scope)) =
            counts.iter().find(|counts| matches!(counts, Matches::Unknown(_)))
        {
            left.notes.push(format!("quota {name}: its scope {} is not known", harmless(scope)));
            continue;
        }
        if !quota["status"]["hard"].is_object() && quota["spec"]["hard"].is_object() {
            left.notes.push(format!("quota {name}: no controller has counted what is used"));
            continue;
        }
        judge(quota, &name, &needs, &counts.map(|counts| counts == Matches::Yes), &mut left);
    }
    left
}

/// A quota whose scopes are known.
fn judge(quota: &Value, name: &str, needs: &[Needs; 2], counts: &[bool; 2], left: &mut Left) {
    let [new_needs, old_needs] = needs;
    for (key, limit) in quota["status"]["hard"].as_object().into_iter().flatten() {
        // Short names of what pods request.
        let is_short = matches!(key.as_str(), "cpu" | "memory" | "ephemeral-storage");
        let resource = match key.as_str() {
            _ if is_short || key.starts_with("hugepages-") => format!("requests.{key}"),
            _ => key.clone(),
        };
        let is_of_pods = matches!(key.as_str(), "pods" | "count/pods");
        let is_of_sets = key == "count/replicasets.apps";
        let is_amount = resource.starts_with("requests.") || resource.starts_with("limits.");
        // Storage is asked for by claims, not by pods; other objects are not created by a rollout.
        let is_of_claims = resource.contains("storageclass") || resource == "requests.storage";
        if is_of_claims || !(is_of_pods || is_of_sets || is_amount) {
            continue;
        }
        let Some(limit) = millis(limit) else {
            left.notes.push(format!("quota {name}: {key} is no quantity"));
            continue;
        };
        let free = limit.saturating_sub(millis(&quota["status"]["used"][key]).unwrap_or(0));
        if is_of_sets {
            let free = i64::try_from(free.div_euclid(1000)).unwrap_or(i64::MAX);
            if left.replica_sets.as_ref().is_none_or(|(least, _)| free < *least) {
                left.replica_sets = Some((free, name.to_owned()));
            }
            continue;
        }
        let takes = |needs: &Needs, counts: bool| match counts {
            false => 0,
            true if is_of_pods => 1000,
            true => needs.get(&resource).copied().unwrap_or(0),
        };
        let demanded = ["requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
        let is_missing =
            counts[0] && demanded.contains(&resource.as_str()) && !new_needs.contains_key(&resource);
        let room = Room {
            free: if is_missing { 0 } else { free },
            new_pod: if is_missing { 1 } else { takes(new_needs, counts[0]) },
            old_pod: takes(old_needs, counts[1]),
        };
        if room.new_pod > 0 {
            left.rooms.push(Headroom { quota: name.to_owned(), resource, room, is_missing });
        }
    }
}

/// The effect of the quotas on a rollout, a line for each that is too small.
pub fn quota_lines(headrooms: &[Headroom], with: &Preview, without: &Preview) -> Vec<String> {
    let refused = with.steps.iter().enumerate().find(|(_, step)| step.refused > 0);
    let Some((nth, step)) = refused.filter(|_| !headrooms.is_empty()) else { return Vec::new() };
    // The demand of the first refused step: the pods of the new template that the first step does not have.
    let new_pods = |step: &Step| -> i64 {
        let new = with.parts.iter().filter(|part| part.is_new);
        new.map(|part| i64::from(step.sizes.get(&part.name).copied().unwrap_or(0))).sum()
    };
    let more = i128::from((new_pods(step) - with.steps.first().map_or(0, new_pods)).max(1));
    let tight =
        headrooms.iter().filter(|headroom| headroom.room.free < headroom.room.new_pod.saturating_mul(more));
    let mut lines: Vec<String> = tight
        .map(|Headroom { quota, resource, room, is_missing }| {
            if *is_missing {
                return format!(
                    "{quota}: demands {resource}, which the pods do not have: each new pod is refused"
                );
            }
            let (free, one) = (room.free.max(0), room.new_pod);
            format!(
                "{quota}: {} of {resource} left, a new pod takes {}",
                shown(resource, free),
                shown(resource, one)
            )
        })
        .collect();
    let steps = |preview: &Preview| preview.steps.len().saturating_sub(1);
    lines.push(format!(
        "step {nth}: {} of the new pods refused; with the quota it takes {} steps, without {}",
        step.refused,
        steps(with),
        steps(without)
    ));
    lines
}

/// Lines about the disruption budgets that select the pods while the rollout runs.
pub fn budget_lines(budgets: &[Value], labels: &Value, replicas: i64, preview: &Preview) -> Vec<String> {
    let mut lines = Vec::new();
    for budget in budgets.iter().filter(|budget| selects(&budget["spec"]["selector"], labels)) {
        let name = harmless(budget["metadata"]["name"].as_str().unwrap_or_default());
        let part = |value: &Value| -> Option<i64> {
            if let Some(number) = value.as_i64() {
                return Some(number);
            }
            let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
            Some((percent.clamp(0, 100) * replicas + 99) / 100)
        };
        let spec = &budget["spec"];
        let (desired, bound) = match (part(&spec["minAvailable"]), part(&spec["maxUnavailable"])) {
            (Some(least), _) => (least, format!("minAvailable {}", harmless(&plain(&spec["minAvailable"])))),
            (None, Some(most)) => {
                (replicas - most, format!("maxUnavailable {}", harmless(&plain(&spec["maxUnavailable"]))))
            }
            (None, None) => continue,
        };
        let closed: Vec<usize> = preview
            .steps
            .iter()
            .enumerate()
            .filter(|(_, step)| step.available <= desired)
            .map(|(nth, _)| nth)
            .collect();
        if let (Some(first), Some(last)) = (closed.first(), closed.last()) {
            let steps =
                if first == last { format!("step {first}") } else { format!("steps {first} to {last}") };
            lines.push(format!(
                "{name} ({bound}): allows no eviction at {steps}. It holds drains up, not this rollout"
            ));
        }
    }
    lines
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether a label selector selects these labels; one without a requirement selects all.
fn selects(selector: &Value, labels: &Value) -> bool {
    let exact = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    selector.is_object()
        && exact.clone().all(|(key, value)| labels[key] == *value)
        && expressions.all(|expression| {
            let label = &labels[expression["key"].as_str().unwrap_or_default()];
            let is_listed = expression["values"].as_array().is_some_and(|values| values.contains(label));
            match expression["operator"].as_str() {
                Some("In") => is_listed,
                Some("NotIn") => !is_listed,
                Some("Exists") => !label.is_null(),
                Some("DoesNotExist") => label.is_null(),
                _ => false,
            }
        })
}

/// The autoscaler that scales the object of this kind and name, in words.
pub fn autoscaler_line(autoscalers: &[Value], kind: &str, name: &str, sets_replicas: bool) -> Option<String> {
    let aims = |autoscaler: &&Value| {
        let target = &autoscaler["spec"]["scaleTargetRef"];
        target["kind"] == kind && target["name"] == name
    };
    let found = autoscalers.iter().find(aims)?;
    let spec = &found["spec"];
    let warning = if sets_replicas { ": it decides the number of replicas, not this change" } else { "" };
    Some(format!(
        "{}: {} to {} replicas{warning}",
        harmless(found["metadata"]["name"].as_str().unwrap_or_default()),
        spec["minReplicas"].as_i64().unwrap_or(1),
        spec["maxReplicas"].as_i64().unwrap_or(0)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    #[test]
    fn a_pod_takes_the_sum_of_its_containers_or_its_largest_init_container() {
        let mut sidecar = container("50m", "64Mi");
        sidecar["restartPolicy"] = "Always".into();
        let pod = json!({
            "initContainers": [sidecar, container("2", "32Mi")],
            "containers": [container("250m", "512Mi"), container("100m", "1Gi")],
            "overhead": {"cpu": "10m", "memory": "1Mi"},
        });
        let needs = needs(&pod);
        assert_eq!(shown("requests.cpu", needs["requests.cpu"]), "2060m");
        assert_eq!(shown("requests.memory", needs["requests.memory"]), "1601Mi");
        assert!(!needs.contains_key("limits.cpu"));
    }

    fn pod(requests: Value) -> Value {
        json!({"spec": {"containers": [{"resources": {"requests": requests}}]}})
    }

    fn seen(left: &Left) -> Vec<(&str, i128)> {
        let each = left.rooms.iter();
        each.map(|room| (room.resource.as_str(), room.room.free / room.room.new_pod)).collect()
    }

    fn counted(name: &str, hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
    }

    #[test]
    fn a_quota_leaves_what_is_not_used() {
        let hard = json!({"memory": "4Gi", "pods": "10", "services": "5", "requests.storage": "1Gi"});
        let quota = counted("compute", hard, json!({"memory": "3584Mi", "pods": "4"}));
        let uncounted = json!({"metadata": {"name": "new"}, "spec": {"hard": {"pods": "1"}}});
        let pod = pod(json!({"cpu": "1", "memory": "512Mi"}));
        let left = left(&[quota, uncounted], &pod, &pod);
        assert_eq!(seen(&left), [("requests.memory", 1), ("pods", 6)]);
        assert_eq!(left.notes, ["quota new: no controller has counted what is used"]);
    }

    #[test]
    fn scopes_decide_which_pods_a_quota_counts_and_an_unknown_one_is_not_judged() {
        let scoped = |scope: &str| {
            let mut quota = counted(scope, json!({"pods": "3"}), json!({"pods": "1"}));
            quota["spec"]["scopes"] = json!([scope]);
            quota
        };
        let (bare, sized) = (pod(json!({})), pod(json!({"cpu": "1m"})));
        let left = left(&[scoped("BestEffort"), scoped("NotBestEffort"), scoped("Tomorrow")], &sized, &bare);
        assert_eq!(seen(&left), [("pods", 2)]);
        assert_eq!((&*left.rooms[0].quota, left.rooms[0].room.old_pod), ("NotBestEffort", 0));
        assert_eq!(left.notes, ["quota Tomorrow: its scope Tomorrow Exists is not known"]);
    }

    #[test]
    fn huge_pages_extended_resources_and_replica_sets_are_judged() {
        let hard =
            json!({"hugepages-2Mi": "4Mi", "requests.example.com/gpu": "3", "count/replicasets.apps": "5"});
        let used =
            json!({"hugepages-2Mi": "0", "requests.example.com/gpu": "1", "count/replicasets.apps": "5"});
        let pod = pod(json!({"hugepages-2Mi": "2Mi", "example.com/gpu": "1"}));
        let left = left(&[counted("q", hard, used)], &pod, &pod);
        assert_eq!(seen(&left), [("requests.hugepages-2Mi", 2), ("requests.example.com/gpu", 2)]);
        assert_eq!(left.replica_sets, Some((0, "q".to_owned())));
    }

    #[test]
    fn a_quota_that_demands_a_request_refuses_pods_without_it() {
        let quota = counted("compute", json!({"limits.cpu": "10"}), json!({"limits.cpu": "0"}));
        let pod = pod(json!({"cpu": "1"}));
        let left = left(&[quota], &pod, &pod);
        assert!(left.rooms[0].is_missing && left.rooms[0].room.free < left.rooms[0].room.new_pod);
    }

    #[test]
    fn selectors_of_budgets_have_labels_and_expressions() {
        let labels = json!({"app": "web", "tier": "front"});
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
        assert!(selects(&json!({"matchLabels": {"app": "web"}}), &labels) && selects(&json!({}), &labels));
        assert!(
            !selects(&json!({"matchLabels": {"app": "api"}}), &labels) && !selects(&Value::Null, &labels)
        );
        assert!(selects(&expression("In", json!(["front"])), &labels));
        assert!(!selects(&expression("NotIn", json!(["front"])), &labels));
        assert!(!selects(&expression("DoesNotExist", json!(null)), &labels));
    }

    #[test]
    fn an_autoscaler_is_named_with_its_bounds() {
        let autoscaler = json!({"metadata": {"name": "web"}, "spec": {"minReplicas": 2, "maxReplicas": 9,
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}}});
        let line = |sets| autoscaler_line(std::slice::from_ref(&autoscaler), "Deployment", "web", sets);
        assert_eq!(line(false).unwrap(), "web: 2 to 9 replicas");
        assert!(line(true).unwrap().contains("not this change"));
        assert_eq!(autoscaler_line(std::slice::from_ref(&autoscaler), "Deployment", "api", false), None);
    }
}
