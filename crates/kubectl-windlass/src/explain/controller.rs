//! `explain rc/NAME`: a ReplicationController, and the rolling update that it takes part in.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use windlass::model::{Interner, ObjectKey, Pod, Record as _, ReplicaSet, ReplicationController, condition};
use windlass::plan::rolling_update::bookkeeping::{DESIRED_REPLICAS, ORIGINAL_REPLICAS, SOURCE, size};
use windlass::plan::rolling_update::report::ROLLING_UPDATE;
use windlass::plan::rolling_update::request::REQUEST;

use super::{acts, logs, notes, pod_table};
use crate::absent;
use crate::api::Api;
use crate::exit::CommandError;
use crate::rolling_update::prepare;
use crate::rollout::last_writes::LastWrites;
use crate::rollout::live::events_of;
use crate::rollout::pods::{PodView, SHOWN};
use crate::target::Kind;
use crate::text::{counted, harmless};

/// Explains a ReplicationController: as text and as data.
///
/// # Errors
/// When it does not exist or cannot be read.
pub(super) async fn explain(
    api: &Api,
    name: &str,
    log_lines: Option<u32>,
) -> Result<(String, Value), CommandError> {
    let (namespace, resource) = (api.namespace.as_str(), ReplicationController::RESOURCE);
    let refused =
        |problem: String| CommandError::Argument(format!("replicationcontroller {name}: {problem}"));
    let path = resource.path_of(&ObjectKey::new(namespace, name));
    let Some(object) = api.get(&format!("replicationcontroller {namespace}/{name}"), &path).await? else {
        return Err(absent::error(api, &resource, namespace, name).await);
    };
    let controller = prepare::decode(&object).map_err(refused)?;
    let labels: Vec<String> = prepare::selector(&object)
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let labels = labels.join(",");
    let query = [("labelSelector", labels.as_str())];
    let (mut unreadable, mut is_partial) = (Vec::new(), false);
    let pods = match api.list("pods", &Pod::RESOURCE.path(Some(namespace)), &query).await {
        Ok(listed) => listed.items,
        Err(error) if error.is_forbidden() => {
            unreadable.push(error.to_string());
            is_partial = true;
            Vec::new()
        }
        Err(error) => return Err(error.into()),
    };
    let mut events: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let first = unready(&controller, &pods, &events, api);
    for pod in first.iter().take(SHOWN) {
        match events_of(api, namespace, &pod.uid).await {
            Ok(read) => drop(events.insert(pod.uid.clone(), read)),
            Err(error) => {
                unreadable.push(error.to_string());
                break;
            }
        }
    }
    let unready = unready(&controller, &pods, &events, api);
    let others = api.list("replicationcontrollers", &resource.path(Some(namespace)), &[]).await?.items;
    let why = reasons(&object, &controller, &others).map_err(CommandError::Argument)?;
    let (mut text, mut data) = told(&object, &controller, &why, &unready, (&unreadable, is_partial), api);
    if let Some(count) = log_lines {
        let logs = logs::read(api, namespace, &unready, &pods, count).await;
        text.push_str(&logs::text(&logs));
        data["logs"] = logs::data(&logs);
    }
    Ok((text, data))
}

/// The pods of the controller that are not ready, those that fail first.
fn unready(
    controller: &ReplicaSet,
    pods: &[Value],
    events: &BTreeMap<String, Vec<Value>>,
    api: &Api,
) -> Vec<PodView> {
    let (interner, now) = (&mut Interner::default(), api.now());
    let mut views: Vec<PodView> = pods
        .iter()
        .filter_map(|object| Some((Arc::new(Pod::decode(&object.to_string(), interner).ok()?), object)))
        .filter(|(pod, _)| controller.controls(&pod.meta))
        .map(|(pod, object)| PodView::new(&pod, object, &controller.meta.key.name, false, events, now))
        .filter(|pod| !pod.is_ready && !pod.is_deleting)
        .collect();
    views.sort_by_key(|pod| (!pod.is_failing, pod.created, pod.name.clone()));
    views
}

/// Why the controller is as it is: each reason with its kind.
fn reasons(
    object: &Value,
    controller: &ReplicaSet,
    others: &[Value],
) -> Result<Vec<(&'static str, String)>, String> {
    let mut why = Vec::new();
    let (wanted, status) = (controller.replicas, &controller.status);
    if controller.meta.is_deleting() {
        why.push(("beingDeleted", "The ReplicationController is being deleted".to_owned()));
    }
    if status.observed_generation < controller.meta.generation {
        let text = format!(
            "No controller has observed generation {} yet, only {}",
            controller.meta.generation, status.observed_generation
        );
        why.push(("statusBehind", text));
    }
    if status.replicas != wanted {
        let pods = counted(status.replicas.into(), "pod");
        why.push(("count", format!("It has {pods} and wants {wanted}")));
    }
    let missing = i64::from(wanted) - i64::from(status.available);
    if missing > 0 && status.replicas == wanted {
        let (ready, seconds) = (status.ready, controller.min_ready_seconds);
        why.push((
            "unavailable",
            format!(
                "{missing} of {} are not available: {ready} are ready, which they must be for {seconds} s",
                counted(wanted.into(), "pod")
            ),
        ));
    }
    if let Some(failure) = condition::find(&status.conditions, "ReplicaFailure").filter(|it| it.is_true()) {
        why.push(("replicaFailure", format!("It reports {}: {}", failure.reason, failure.message)));
    }
    if let Some(source) = controller.annotations.get(SOURCE) {
        let desired = size(controller, DESIRED_REPLICAS)?;
        let desired = desired.map_or("an unknown size".to_owned(), |desired| counted(desired.into(), "pod"));
        let old = source.split(':').next().unwrap_or_default();
        why.push(("rollingUpdate", format!("It is the target of a rolling update from {old}, to {desired}")));
    } else if let Some(new) = prepare::find_new(object, others) {
        why.push(("rollingUpdate", update(controller, &prepare::decode(new)?)?));
    } else if controller.annotations.get(ORIGINAL_REPLICAS).is_some() {
        why.push((
            "rollingUpdate",
            "A rolling update or its rollback is under way; the new one is gone".to_owned(),
        ));
    }
    if why.is_empty() {
        why.push(("complete", format!("Complete: it has {}, all available", counted(wanted.into(), "pod"))));
    }
    Ok(why)
}

/// How far the update to `new` is.
fn update(old: &ReplicaSet, new: &ReplicaSet) -> Result<String, String> {
    let desired = size(new, DESIRED_REPLICAS)?.unwrap_or(old.replicas);
    let name = &new.meta.key.name;
    let (from, to) = (old.replicas, new.replicas);
    let next = match (old.annotations.get(REQUEST), condition::find(&old.status.conditions, ROLLING_UPDATE)) {
        (None, _) => "Go on with the command that began it, or back with --rollback".to_owned(),
        (Some(_), None) => "A controller of the cluster is asked for it, and has not answered".to_owned(),
        (Some(_), Some(report)) => {
            format!("A controller of the cluster carries it out, {}: {}", report.reason, report.message)
        }
    };
    Ok(format!(
        "A rolling update to {name} is under way: {from} replicas here, {to} of {desired} there, {} available. {next}",
        new.status.available
    ))
}

fn told(
    object: &Value,
    controller: &ReplicaSet,
    why: &[(&'static str, String)],
    unready: &[PodView],
    (unreadable, is_partial): (&[String], bool),
    api: &Api,
) -> (String, Value) {
    let (status, key, now) = (&controller.status, &controller.meta.key, api.now());
    let verdict = match why.first() {
        Some(("complete", _)) => "complete",
        Some(("beingDeleted", _)) => "deleting",
        Some(("statusBehind", _)) => "unobserved",
        _ => "waiting",
    };
    let mut text = notes(unreadable, is_partial);
    text.push_str(&format!(
        "ReplicationController {key}: {verdict}; {} wanted, {} exist, {} ready, {} available\n",
        counted(controller.replicas.into(), "pod"),
        status.replicas,
        status.ready,
        status.available
    ));
    for (_, sentence) in why {
        text.push_str(&format!("  {}\n", harmless(sentence)));
    }
    text.push_str(&pod_table(unready, Kind::ReplicationController, now));
    let last = LastWrites::of(object);
    text.push_str(&format!("ACTS    {}\n", acts(last.status.as_ref(), status.observed_generation > 0, now)));
    let why: Vec<Value> = why.iter().map(|(kind, text)| json!({"kind": kind, "text": text})).collect();
    let counts: BTreeMap<&str, i32> = [
        ("desired", controller.replicas),
        ("replicas", status.replicas),
        ("ready", status.ready),
        ("available", status.available),
    ]
    .into();
    let mut data = json!({
        "kind": "ReplicationController", "namespace": key.namespace, "name": key.name,
        "uid": controller.meta.uid.to_string(), "verdict": verdict, "counts": counts, "why": why, "pods": unready,
        "acts": last.status, "unreadable": unreadable, "isPartial": is_partial, "time": now.to_string(),
    });
    if is_partial {
        // An empty list would say that there are none.
        data["pods"] = Value::Null;
    }
    (text, data)
}
