//! `/eviction` of a pod: a deletion that a PodDisruptionBudget may refuse (`pkg/registry/core/pod/storage/eviction.go`).
//!
//! A budget whose status a controller keeps is judged by its status, as upstream. Where no controller has ever looked at it,
//! the pods are counted as the disruption controller would count them, so that `kubectl drain` ends here too.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::delete::{self, Options};
use super::reply::Reply;
use super::strategy::seconds;
use super::subresources::{decode, done, set_condition};
use crate::kinds;
use crate::object::{is_deleting, map_mut, meta, text, to_bytes};
use crate::options::Admission;
use crate::request::Request;
use crate::selector::LabelSelector;
use crate::server::Server;
use crate::status::Failure;
use crate::store::Key;

const BUDGET: &str = "PodDisruptionBudget";
/// More evictions that no controller has confirmed than this are not allowed.
const MAX_DISRUPTED: usize = 2000;

/// Deletes a pod gracefully, if its budget allows it.
pub(super) fn evict(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let eviction = decode(request, "policy/v1", "Eviction")?;
    let said = meta(&eviction, "name");
    if !said.is_empty() && said != request.place.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = match eviction.get("deleteOptions") {
        Some(options) => Options::parse(&to_bytes(options))?,
        None => Options::default(),
    };
    options.dry_run |= request.params.dry_run;
    // The pods that one eviction counts are not evicted by another one meanwhile.
    let _alone = server.evictions.lock();
    if server.options.admission.contains(&Admission::DisruptionBudgets) {
        judge(server, request, options.dry_run)?;
        if !options.dry_run {
            announce(server, request, &options)?;
        }
    }
    delete::delete_one(server, request.kind(), &request.key(), &options)?;
    Ok(Reply::value(201, &done()))
}

fn judge(server: &Server, request: &Request, dry_run: bool) -> Result<(), Failure> {
    let pod = pod(server, request)?;
    if is_deleting(&pod) || !matches!(text(&pod, "/status/phase"), "Running" | "Unknown" | "") {
        return Ok(());
    }
    let namespace = meta(&pod, "namespace");
    let covers = |budget: &Value| selects(budget, &pod);
    let listed = server.store.list(BUDGET, namespace, None, None).map(|listed| listed.objects);
    let all = listed.unwrap_or_default().into_iter().map(|(key, object)| (key, object.peek()));
    let covering: Vec<_> = all.filter(|(_, budget)| covers(budget)).collect();
    let (key, budget) = match covering.as_slice() {
        [] => return Ok(()),
        [only] => only,
        _ => {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Failure::new(500, "", why));
        }
    };
    let observed = budget["status"]["observedGeneration"].as_i64().unwrap_or(0);
    let status = match observed {
        0 => count(server, budget).map_err(|why| {
            let name = &key.name;
            let why = format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
            );
            Failure::disrupts(&why, 0)
        })?,
        _ => budget["status"].clone(),
    };
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    if !is_ready(&pod) {
        let (current, desired) = (number("currentHealthy"), number("desiredHealthy"));
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        if always || (current >= desired && desired > 0) {
            return Ok(());
        }
    }
    if observed > 0 && observed < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        let why = format!("The disruption budget {} is still being processed by the server.", key.name);
        return Err(Failure::disrupts(&why, 10));
    }
    allows(&key.name, &status)?;
    if observed > 0 && !dry_run {
        charge(server, key, meta(&pod, "name"));
    }
    Ok(())
}

/// Refuses what the status of a budget does not allow.
fn allows(name: &str, status: &Value) -> Result<(), Failure> {
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let forbidden = |why: &str| Err(Failure::forbidden(kinds::named(BUDGET), name, why));
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return forbidden(why);
    }
    if allowed > 0 {
        return Ok(());
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let why = conditions
        .filter(|condition| condition["type"] == "DisruptionAllowed" && condition["status"] == "False")
        .map(|condition| (text(condition, "/reason"), text(condition, "/message")))
        .find(|(_, message)| !message.is_empty());
    let (current, desired) = (number("currentHealthy"), number("desiredHealthy"));
    let not_now = format!("The disruption budget {name} does not allow evicting pods currently");
    let why = match why {
        Some(("SyncFailed", message)) => format!("{not_now} because it failed sync: {message}"),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        Some((reason, message)) => format!("{not_now} ({reason}): {message}"),
        None => not_now,
    };
    Err(Failure::disrupts(&why, 0))
}

/// Tells the controller that keeps a budget of an eviction that it cannot have seen yet.
fn charge(server: &Server, key: &Key, pod: &str) {
    let now = seconds((server.options.now)());
    while let Some(current) = server.store.get(BUDGET, key) {
        let mut budget = Value::clone(&current.value());
        let generation = budget["metadata"]["generation"].clone();
        let left = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) - 1;
        let status = map_mut(&mut budget, "status");
        status.insert("disruptionsAllowed".to_owned(), json!(left));
        let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
        disrupted[pod] = json!(now);
        if left == 0 {
            let condition = json!({
                "type": "DisruptionAllowed",
                "status": "False",
                "reason": "InsufficientPods",
                "message": "",
                "observedGeneration": generation,
                "lastTransitionTime": now,
            });
            set_condition(&mut budget, condition);
        }
        if server.store.put(BUDGET, key, Some(&current), budget).is_ok() {
            return;
        }
    }
}

/// Says in the pod why it ends, so that a Job does not count it as failed.
fn announce(server: &Server, request: &Request, options: &Options) -> Result<(), Failure> {
    let (kind, key) = (request.kind(), request.key());
    let now = seconds((server.options.now)());
    loop {
        let current =
            server.store.get(kind.storage(), &key).ok_or_else(|| Failure::not_found(kind, &key.name))?;
        let mut pod = Value::clone(&current.value());
        delete::check_preconditions(kind, &pod, options)?;
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": now,
        });
        set_condition(&mut pod, condition);
        // The condition makes another version of the pod than the one that alone may be deleted.
        if options.names_a_revision() || server.store.put(kind.storage(), &key, Some(&current), pod).is_ok() {
            return Ok(());
        }
    }
}

fn pod(server: &Server, request: &Request) -> Result<Arc<Value>, Failure> {
    let (kind, key) = (request.kind(), request.key());
    let pod = server.store.get(kind.storage(), &key).ok_or_else(|| Failure::not_found(kind, &key.name))?;
    Ok(pod.value())
}

fn selects(budget: &Value, pod: &Value) -> bool {
    let selector = &budget["spec"]["selector"];
    // No selector at all selects nothing, an empty one everything.
    !selector.is_null()
        && LabelSelector::from_spec(selector)
            .is_ok_and(|selector| selector.matches(&pod["metadata"]["labels"]))
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The status that the disruption controller would give a budget now.
fn count(server: &Server, budget: &Value) -> Result<Value, String> {
    let namespace = meta(budget, "namespace");
    let listed = server.store.list("Pod", namespace, None, None).map(|listed| listed.objects);
    let pods = listed.unwrap_or_default().into_iter().map(|(_, pod)| pod.peek());
    let pods: Vec<Arc<Value>> = pods.filter(|pod| selects(budget, pod)).collect();
    let healthy = pods.iter().filter(|pod| !is_deleting(pod) && is_ready(pod)).count();
    let current = i64::try_from(healthy).unwrap_or(i64::MAX);
    let (least, most) = (&budget["spec"]["minAvailable"], &budget["spec"]["maxUnavailable"]);
    let (expected, desired) = match (most.is_null(), least.as_i64()) {
        (false, _) => {
            let expected = scale(server, namespace, &pods)?;
            (expected, (expected - share(most, expected)).max(0))
        }
        (true, Some(least)) => (i64::try_from(pods.len()).unwrap_or(i64::MAX), least),
        (true, None) => {
            let expected = scale(server, namespace, &pods)?;
            (expected, share(least, expected))
        }
    };
    let allowed = if expected > 0 { (current - desired).max(0) } else { 0 };
    Ok(json!({"currentHealthy": current, "desiredHealthy": desired, "disruptionsAllowed": allowed}))
}

/// A number, or a percentage of `whole`, rounded up.
fn share(amount: &Value, whole: i64) -> i64 {
    let percent = |text: &str| text.strip_suffix('%')?.parse::<i64>().ok();
    match amount.as_str().and_then(percent) {
        Some(percent) => percent.saturating_mul(whole).saturating_add(99) / 100,
        None => amount.as_i64().unwrap_or(0),
    }
}

/// How many pods the controllers of these pods want together.
fn scale(server: &Server, namespace: &str, pods: &[Arc<Value>]) -> Result<i64, String> {
    let mut scales: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = controller(pod) else { continue };
        let found = owner_of(server, namespace, owner);
        let Some(mut found) = found else {
            return Err(format!("found no controllers for pod {:?}", meta(pod, "name")));
        };
        // The ReplicaSets of a Deployment have its pods, and it has the number.
        if let Some(above) = controller(&found).and_then(|owner| owner_of(server, namespace, owner)) {
            found = above;
        }
        scales.insert(meta(&found, "uid").to_owned(), found["spec"]["replicas"].as_i64().unwrap_or(0));
    }
    Ok(scales.values().sum())
}

fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().find(|owner| owner["controller"] == true)
}

/// An owner that has a scale.
fn owner_of(server: &Server, namespace: &str, owner: &Value) -> Option<Arc<Value>> {
    let kind = text(owner, "/kind");
    if !matches!(kind, "Deployment" | "ReplicaSet" | "ReplicationController" | "StatefulSet") {
        return None;
    }
    let found = server.store.get(kind, &Key::new(namespace, text(owner, "/name")))?.value();
    (meta(&found, "uid") == text(owner, "/uid")).then_some(found)
}
