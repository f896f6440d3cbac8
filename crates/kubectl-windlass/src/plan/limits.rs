//! What a namespace sets limits to: quotas, disruption budgets, autoscalers. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass::model::quantity;
use windlass::plan::preview::{Preview, Room, Step};

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

/// What a pod takes (KEP-753): all containers and sidecars together, or while an init container runs, that one and
/// the sidecars before it, whichever is more; and the overhead of its runtime.
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
        let known: Needs = overhead.into_iter().filter(|(resource, _)| sum.contains_key(resource)).collect();
        add(&mut sum, &known);
        all.extend(sum.into_iter().map(|(resource, amount)| (format!("{prefix}{resource}"), amount)));
    }
    all
}

/// What a quota says about one resource of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// The name of the ResourceQuota.
    pub quota: String,
    /// Its key, such as `requests.memory`.
    pub resource: String,
    /// What it leaves to the rollout.
    pub room: Room,
    /// Whether it demands a request or limit that the pods do not have: then it refuses each of them.
    pub is_missing: bool,
}

/// The quotas that judge pods, and a note for each that cannot be judged.
pub fn headrooms(quotas: &[Value], new_pod: &Needs, old_pod: &Needs) -> (Vec<Headroom>, Vec<String>) {
    let (mut rooms, mut notes) = (Vec::new(), Vec::new());
    for quota in quotas {
        let name = harmless(quota["metadata"]["name"].as_str().unwrap_or_default());
        let has_scopes = quota["spec"]["scopes"].as_array().is_some_and(|scopes| !scopes.is_empty());
        if has_scopes || quota["spec"]["scopeSelector"].is_object() {
            notes.push(format!("quota {name}: it has scopes"));
            continue;
        }
        let hard = &quota["status"]["hard"];
        if !hard.is_object() {
            notes.push(format!("quota {name}: no controller has counted what is used"));
            continue;
        }
        for (key, limit) in hard.as_object().into_iter().flatten() {
            // `cpu` is another name of `requests.cpu`.
            let resource = if matches!(key.as_str(), "cpu" | "memory" | "ephemeral-storage") {
                format!("requests.{key}")
            } else {
                key.clone()
            };
            let is_count = matches!(key.as_str(), "pods" | "count/pods");
            let is_of_pods = is_count || resource.starts_with("requests.") || resource.starts_with("limits.");
            // Storage is asked for by claims, not by pods.
            if !is_of_pods || resource.contains("storageclass") || resource == "requests.storage" {
                continue;
            }
            let Some(limit) = millis(limit) else {
                notes.push(format!("quota {name}: {key} is no quantity"));
                continue;
            };
            let used = millis(&quota["status"]["used"][key]).unwrap_or(0);
            let takes =
                |needs: &Needs| if is_count { 1000 } else { needs.get(&resource).copied().unwrap_or(0) };
            let is_basic = ["requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
            let is_missing = is_basic.contains(&resource.as_str()) && !new_pod.contains_key(&resource);
            let room = Room {
                free: if is_missing { 0 } else { limit.saturating_sub(used) },
                new_pod: if is_missing { 1 } else { takes(new_pod) },
                old_pod: takes(old_pod),
            };
            if room.new_pod > 0 {
                rooms.push(Headroom { quota: name.clone(), resource, room, is_missing });
            }
        }
    }
    (rooms, notes)
}

/// What the quotas do to a rollout, a line for each that is too small.
pub fn quota_lines(headrooms: &[Headroom], with: &Preview, without: &Preview) -> Vec<String> {
    let refused = with.steps.iter().enumerate().find(|(_, step)| step.refused > 0);
    let Some((nth, step)) = refused else { return Vec::new() };
    // What the first refused step asks for: the pods of the new template that the first step does not have.
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

/// What the disruption budgets that select the pods say while the rollout runs.
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

/// The autoscaler that scales this Deployment, in words.
pub fn autoscaler_line(autoscalers: &[Value], name: &str, sets_replicas: bool) -> Option<String> {
    let aims = |autoscaler: &&Value| {
        let target = &autoscaler["spec"]["scaleTargetRef"];
        target["kind"] == "Deployment" && target["name"] == name
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

    #[test]
    fn a_quota_leaves_what_is_not_used_and_scopes_are_not_judged() {
        let quota = json!({"metadata": {"name": "compute"},
            "spec": {"hard": {"memory": "4Gi", "pods": "10", "services": "5"}},
            "status": {"hard": {"memory": "4Gi", "pods": "10"}, "used": {"memory": "3584Mi", "pods": "4"}}});
        let uncounted = json!({"metadata": {"name": "new"}, "spec": {"hard": {"pods": "1"}}});
        let scoped =
            json!({"metadata": {"name": "best"}, "spec": {"scopes": ["BestEffort"], "hard": {"pods": "1"}}});
        let pod = needs(&json!({"containers": [container("1", "512Mi")]}));
        let (rooms, notes) = headrooms(&[quota, scoped, uncounted], &pod, &pod);
        let seen: Vec<(&str, i128)> =
            rooms.iter().map(|room| (room.resource.as_str(), room.room.free / room.room.new_pod)).collect();
        assert_eq!(seen, [("requests.memory", 1), ("pods", 6)]);
        assert_eq!(notes, ["quota best: it has scopes", "quota new: no controller has counted what is used"]);
    }

    #[test]
    fn a_quota_that_demands_a_request_refuses_pods_without_it() {
        let quota = json!({"metadata": {"name": "compute"}, "status": {"hard": {"limits.cpu": "10"}}});
        let pod = needs(&json!({"containers": [container("1", "512Mi")]}));
        let (rooms, _) = headrooms(&[quota], &pod, &pod);
        assert!(rooms[0].is_missing && rooms[0].room.free < rooms[0].room.new_pod);
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
        let line = |sets| autoscaler_line(std::slice::from_ref(&autoscaler), "web", sets);
        assert_eq!(line(false).unwrap(), "web: 2 to 9 replicas");
        assert!(line(true).unwrap().contains("not this change"));
        assert_eq!(autoscaler_line(std::slice::from_ref(&autoscaler), "api", false), None);
    }
}
