//! `/eviction` of a pod: a deletion that a PodDisruptionBudget may refuse (`pkg/registry/core/pod/storage/eviction.go`).
//!
//! A budget is judged by its status alone, which the disruption controller keeps: without that controller every eviction of a ready
//! pod that a budget selects is refused.

use std::sync::Arc;

use serde_json::{Value, json};

use super::body;
use super::delete::{self, Options};
use super::reply::Reply;
use super::strategy::seconds;
use super::subresources::{done, set_condition};
use crate::object::{is_deleting, map_mut, meta, text, to_bytes};
use crate::options::Admission;
use crate::request::Request;
use crate::selector::LabelSelector;
use crate::server::Server;
use crate::status::Failure;
use crate::store::Key;
use crate::strict;

const BUDGET: &str = "PodDisruptionBudget";
/// More evictions that no controller has confirmed than this are not allowed.
const MAX_DISRUPTED: usize = 2000;
/// How often a write is tried that others overtake.
const TRIES: usize = 20;

/// Deletes a pod gracefully, if its budget allows it.
pub(super) fn evict(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let eviction = decode(request)?;
    if meta(&eviction, "name") != request.place.name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = match eviction.get("deleteOptions") {
        Some(options) => Options::parse(&to_bytes(options))?,
        None => Options::default(),
    };
    options.dry_run |= request.params.dry_run;
    if server.options.admission.contains(&Admission::DisruptionBudgets) {
        judge(server, request, &options)?;
    } else {
        delete::delete_one(server, request.kind(), &request.key(), &options)?;
    }
    Ok(Reply::value(201, &done()))
}

/// Reads an eviction, of the older version as well.
fn decode(request: &Request) -> Result<Value, Failure> {
    body::require_json(request)?;
    let refused =
        |error: String| Failure::bad_request(format!("the body cannot be handled as a Eviction: {error}"));
    let (mut eviction, _) = strict::read(&request.body).map_err(refused)?;
    if eviction["apiVersion"] == "policy/v1beta1" {
        eviction["apiVersion"] = "policy/v1".into();
    }
    Ok(strict::check_value("policy/v1", "Eviction", eviction).map_err(refused)?.object)
}

fn judge(server: &Server, request: &Request, options: &Options) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        tries += 1;
        let pod = pod(server, request)?;
        let is_pending = text(&pod, "/status/phase") == "Pending";
        if !is_deleting(&pod) && !is_pending && !matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed")
        {
            return ask_budget(server, request, &pod, options);
        }
        // A pending pod that becomes ready meanwhile has a budget to ask.
        let exactly = if is_pending { options.only_of(&pod) } else { options.clone() };
        match end(server, request, &exactly) {
            Err(failure) if failure.code == 409 && !options.names_a_revision() && tries < TRIES => {}
            result => return result,
        }
    }
}

/// Evicts a pod that runs.
fn ask_budget(server: &Server, request: &Request, pod: &Value, options: &Options) -> Result<(), Failure> {
    let listed = server.store.list(BUDGET, meta(pod, "namespace"), None, None).map(|listed| listed.objects);
    let all = listed.unwrap_or_default().into_iter().map(|(key, object)| (key, object.peek()));
    let covering: Vec<_> = all.filter(|(_, budget)| selects(budget, pod)).collect();
    let (key, budget) = match covering.as_slice() {
        [] => return end(server, request, options),
        [only] => only,
        _ => {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Failure::new(500, "", why));
        }
    };
    if is_ready(pod) || !may_go_unready(budget) {
        charge(server, key, meta(pod, "name"), options.dry_run)?;
        return end(server, request, options);
    }
    match end(server, request, &options.only_of(pod)) {
        // It may be ready by now.
        Err(failure) if failure.code == 409 && !options.names_a_revision() => Err(unprocessed(&key.name)),
        result => result,
    }
}

/// Whether a pod that is not ready may go without being counted.
fn may_go_unready(budget: &Value) -> bool {
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let (current, desired) = (number("currentHealthy"), number("desiredHealthy"));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (current >= desired && desired > 0)
}

fn unprocessed(budget: &str) -> Failure {
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    Failure::disrupts(&why, 10)
}

/// Refuses what the status of a budget does not allow.
fn allows(name: &str, budget: &Value) -> Result<(), Failure> {
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Err(unprocessed(name));
    }
    let forbidden = |why: &str| {
        let message = format!("poddisruptionbudget.policy \"{name}\" is forbidden: {why}");
        let about = [("name", name), ("group", "policy"), ("kind", "poddisruptionbudget")];
        let failure = Failure::new(403, "Forbidden", message);
        Err(about.into_iter().fold(failure, |failure, (field, value)| failure.detail(field, json!(value))))
    };
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
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

/// Takes one eviction from a budget that allows it, and tells its controller of the pod, whose end that cannot have seen yet.
fn charge(server: &Server, key: &Key, pod: &str, dry_run: bool) -> Result<(), Failure> {
    let now = seconds((server.options.now)());
    for _ in 0..TRIES {
        // One that is gone refuses nothing.
        let Some(current) = server.store.get(BUDGET, key) else { return Ok(()) };
        let mut budget = Value::clone(&current.value());
        allows(&key.name, &budget)?;
        if dry_run {
            return Ok(());
        }
        let observed = budget["status"]["observedGeneration"].clone();
        let left = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0).saturating_sub(1);
        let status = map_mut(&mut budget, "status");
        status.insert("disruptionsAllowed".to_owned(), json!(left));
        map_mut(&mut budget["status"], "disruptedPods").insert(pod.to_owned(), json!(now));
        if left == 0 {
            let condition = json!({
                "type": "DisruptionAllowed",
                "status": "False",
                "reason": "InsufficientPods",
                "message": "",
                "observedGeneration": observed,
                "lastTransitionTime": now,
            });
            set_condition(&mut budget, condition);
        }
        if server.store.put(BUDGET, key, Some(&current), budget).is_ok() {
            return Ok(());
        }
    }
    let why = format!("Timeout: couldn't update PodDisruptionBudget \"{}\" due to conflicts", key.name);
    Err(Failure::new(504, "Timeout", why).detail("retryAfterSeconds", json!(10)))
}

/// Says in the pod why it ends, so that a Job does not count it as failed, and deletes it.
fn end(server: &Server, request: &Request, options: &Options) -> Result<(), Failure> {
    let (kind, key) = (request.kind(), request.key());
    let mut options = options.clone();
    let now = seconds((server.options.now)());
    while !options.dry_run {
        let current =
            server.store.get(kind.storage(), &key).ok_or_else(|| Failure::not_found(kind, &key.name))?;
        let mut pod = Value::clone(&current.value());
        delete::check_preconditions(kind, &pod, &options)?;
        let mut condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": now,
        });
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let said = conditions.find(|said| said["type"] == condition["type"]);
        if let Some(said) = said.filter(|said| said["status"] == condition["status"]) {
            condition["lastTransitionTime"] = said["lastTransitionTime"].clone();
            if *said == condition {
                break;
            }
        }
        set_condition(&mut pod, condition);
        if let Ok(stored) = server.store.put(kind.storage(), &key, Some(&current), pod) {
            // The condition makes another version of the pod than the one that alone may be deleted.
            if options.names_a_revision() {
                options = options.only_version(meta(&stored.value(), "resourceVersion"));
            }
            break;
        }
    }
    delete::delete_one(server, kind, &key, &options)?;
    Ok(())
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
