//! `plan rc/NAME --image IMAGE`: a rolling update of a ReplicationController before it begins.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass::model::{Interner, ObjectKey, Pod, Record, ReplicationController, Resource};
use windlass::plan::preview::Kubelet;
use windlass::plan::preview::rolling_update::{RollingStart, preview_rolling_update};
use windlass::plan::rolling_update::Bounds;
use windlass::plan::rolling_update::bookkeeping::NEXT_CONTROLLER;
use windlass::plan::rolling_update::request::REQUEST;

use super::dry_run::{self, Change};
use super::limits::{self, Left};
use super::{Played, Report, play, signed};
use crate::api::Api;
use crate::cli::{PlanArgs, RollingUpdateArgs};
use crate::exit::CommandError;
use crate::rolling_update::prepare;
use crate::target::Kind;
use crate::text::harmless;
use crate::write;

const RESOURCE: Resource = ReplicationController::RESOURCE;

/// Refuses flags that a rolling update of a ReplicationController does not have.
pub(super) fn check(args: &PlanArgs) -> Result<(), String> {
    for (flag, is_given) in [
        ("--replicas", args.replicas.is_some()),
        ("--strategy", args.strategy.is_some()),
        ("--to-revision", args.to_revision.is_some()),
        ("--restart", args.restart),
        ("--partition", args.partition.is_some()),
    ] {
        if is_given {
            return Err(format!("{flag}: a rolling update of a ReplicationController has no such flag"));
        }
    }
    match args.image.as_slice() {
        [_] => Ok(()),
        _ => {
            Err("--image: a rolling update of a ReplicationController changes one image: name one".to_owned())
        }
    }
}

/// The two controllers of the update, and what changes.
struct Update {
    old: Value,
    new: Value,
    desired: i32,
    said: String,
}

async fn update_of(api: &Api, args: &PlanArgs, key: &ObjectKey) -> Result<Update, CommandError> {
    let what = format!("replicationcontroller {key}");
    let refused = |problem: String| CommandError::Argument(format!("{what}: {problem}"));
    let Some(old) = api.get(&what, &RESOURCE.path_of(key)).await? else {
        return Err(CommandError::Argument(format!("{what} does not exist")));
    };
    prepare::check_controller(&old).map_err(refused)?;
    let annotations = &old["metadata"]["annotations"];
    if let Some(next) =
        [REQUEST, NEXT_CONTROLLER].iter().find_map(|annotation| annotations[*annotation].as_str())
    {
        let next = harmless(next);
        return Err(refused(format!("an update to {next} is under way: see `explain rc/{}`", key.name)));
    }
    let flag = args.image.first().map(String::as_str).unwrap_or_default();
    let (container, image) = match flag.split_once('=') {
        Some((container, image)) => (Some(container.to_owned()), image),
        None => (None, flag),
    };
    let container_index = prepare::container(&old, container.as_deref()).map_err(refused)?;
    let before = &old["spec"]["template"]["spec"]["containers"][container_index]["image"];
    let said = format!("image {} -> {}", harmless(before.as_str().unwrap_or_default()), harmless(image));
    let wanted =
        RollingUpdateArgs { image: Some(image.to_owned()), container, ..RollingUpdateArgs::default() };
    let new = prepare::new_by_image(&old, None, &wanted).map_err(refused)?;
    Ok(Update { old, new: new.body, desired: new.desired, said })
}

/// Lets the server judge the new controller and one pod of it.
async fn try_new(
    api: &Api,
    args: &PlanArgs,
    key: &ObjectKey,
    change: &mut Change,
) -> Result<(), CommandError> {
    if args.server_dry_run {
        let path = RESOURCE.path(Some(&key.namespace));
        match write::try_create(api, "the new ReplicationController", &path, &change.wanted).await {
            Ok(judged) => {
                change.wanted = judged;
                change.checked.push("the new ReplicationController");
            }
            Err(error) if dry_run::is_not_judged(&error, "replicationcontrollers") => {
                change.unjudged.push(format!("the new ReplicationController by the server ({error})"));
            }
            Err(error) => return Err(error.into()),
        }
        dry_run::try_pod(api, &key.namespace, change).await;
    }
    if change.pod.is_null() {
        change.pod = json!({"spec": change.wanted["spec"]["template"]["spec"]});
    }
    let new = &mut change.wanted;
    for (field, value) in [("uid", "preview"), ("resourceVersion", "0"), ("namespace", &*key.namespace)] {
        if !new["metadata"][field].is_string() {
            new["metadata"][field] = value.into();
        }
    }
    Ok(())
}

/// The pods that a controller selects.
async fn pods_of(api: &Api, old: &Value, key: &ObjectKey) -> Result<Vec<Value>, CommandError> {
    let labels: Vec<String> = prepare::selector(old)
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let labels = labels.join(",");
    match api.list("pods", &Pod::RESOURCE.path(Some(&key.namespace)), &[("labelSelector", &labels)]).await {
        Ok(listed) => Ok(listed.items),
        Err(error) if error.is_forbidden() => {
            Err(super::unknown(&format!("replicationcontroller {key}"), &[error.to_string()]))
        }
        Err(error) => Err(error.into()),
    }
}

/// Previews the update.
pub(super) async fn judge(api: &Api, args: &PlanArgs, name: &str) -> Result<Report, CommandError> {
    let key = ObjectKey::new(api.namespace.clone(), name.to_owned());
    let refused = |problem: String| CommandError::Argument(format!("replicationcontroller {key}: {problem}"));
    let Update { old, new, desired, said } = update_of(api, args, &key).await?;
    let mut change = Change::of(new, vec![said], Vec::new());
    try_new(api, args, &key, &mut change).await?;
    let Change { wanted: new, said, pod, checked, mut unjudged, refusal } = change;
    let pods = pods_of(api, &old, &key).await?;
    let [quotas, budgets, autoscalers] = super::limits_of(api, &key.namespace, &mut unjudged).await?;
    let old_pod = pods.first().unwrap_or(&pod);
    let needs = [old_pod, &pod].map(|pod| limits::needs(&pod["spec"]));
    let Left { rooms: headrooms, replica_sets: _, notes } = limits::left(&quotas, &pod, old_pod);
    unjudged.extend(notes);

    let (mut old_set, mut new_set) =
        (prepare::decode(&old).map_err(refused)?, prepare::decode(&new).map_err(refused)?);
    if let Some(seconds) = args.min_ready_seconds {
        new_set.min_ready_seconds = seconds;
    }
    // Its controller may be behind; the preview begins when it has caught up.
    old_set.status.observed_generation = old_set.meta.generation;
    let defaults = RollingUpdateArgs::default();
    let surge = args.max_surge.unwrap_or(defaults.max_surge);
    let unavailable = args.max_unavailable.unwrap_or(defaults.max_unavailable);
    let (ready_after, ready_from) = super::ready_after(args, &pods);
    let stop_after = super::stop_after(args, &new["spec"]["template"]["spec"]);
    let kubelet = Kubelet { ready_after, stop_after, broken: args.assume.unwrap_or(0) };
    let interner = &mut Interner::default();
    let decoded = pods.iter().filter_map(|pod| Pod::decode(&pod.to_string(), interner).ok()).map(Arc::new);
    let start = RollingStart {
        old: old_set,
        new: new_set,
        pods: decoded.collect(),
        bounds: Bounds::resolve(desired, surge, unavailable),
        period: args.update_period.map_or(signed(defaults.update_period), signed),
        timeout: signed(defaults.timeout),
        now: super::whole_seconds(api.now()),
        kubelet,
        rooms: Vec::new(),
    };
    let Played { with, broken, quota } =
        play(args, refusal.as_ref(), &headrooms, kubelet, |kubelet, rooms| {
            preview_rolling_update(RollingStart { kubelet, rooms, ..start.clone() })
        });
    let labels = &new["spec"]["template"]["metadata"]["labels"];
    let replicas = i64::from(desired);
    Ok(Report {
        object: format!("ReplicationController {key}"),
        kind: Kind::ReplicationController,
        replicas,
        said,
        quota,
        budgets: limits::budget_lines(&budgets, labels, replicas, &with),
        autoscaler: limits::autoscaler_line(&autoscalers, "ReplicationController", name, true),
        crossed: super::crossed(args, &with),
        preview: with,
        broken,
        ready_from,
        ready_after,
        needs,
        refusal,
        checked,
        unjudged,
        held: None,
        bounds: None,
        claims: Vec::new(),
    })
}
