//! `rolling-update`: replaces the pods of one ReplicationController by those of another, step by step.
//!
//! The client drives it, as kubectl did up to 1.17, on the planner `windlass::plan::rolling_update`. Each step is computed
//! from what is there and names the version of what it changes: the client may be killed at any write, and the same
//! command goes on from there. Two at once do no harm.

mod drive;
mod file;
mod follow;
mod hand_over;
pub mod prepare;
mod relabel;
mod server_side;

use std::sync::Arc;

use serde_json::{Value, json};
use windlass::model::{ObjectKey, Record as _, ReplicationController};
use windlass::plan::rolling_update::bookkeeping::{
    DESIRED_REPLICAS, HANDING_OVER, NEXT_CONTROLLER, ORIGINAL_REPLICAS, SOURCE, size, source_of,
};
use windlass::plan::rolling_update::request::STEP_AT;
use windlass::plan::rolling_update::{Bounds, Cleanup};

use crate::api::Api;
use crate::cli::{GlobalArgs, RollingUpdateArgs, UpdateOutput};
use crate::connection::connect_with;
use crate::exit::{CommandError, Exit};
use crate::output::Output;
use crate::write;
use drive::{Drive, Ended};
use file::read_file;
use prepare::name;

/// What a command needs to reach one namespace.
struct Cluster<'a> {
    api: &'a Api,
    namespace: &'a str,
}

impl Cluster<'_> {
    fn path(&self, name: &str) -> String {
        ReplicationController::RESOURCE.path_of(&ObjectKey::new(self.namespace, name))
    }

    fn collection(&self) -> String {
        ReplicationController::RESOURCE.path(Some(self.namespace))
    }

    async fn get(&self, name: &str) -> Result<Option<Value>, CommandError> {
        Ok(self.api.get(&described(name), &self.path(name)).await?)
    }

    async fn all(&self) -> Result<Vec<Value>, CommandError> {
        Ok(self.api.list("replicationcontrollers", &self.collection(), &[]).await?.items)
    }
}

/// The words for a ReplicationController in messages.
fn described(name: &str) -> String {
    format!("replicationcontroller {name}")
}

fn refused(text: String) -> CommandError {
    CommandError::Argument(text)
}

/// Runs `rolling-update`.
///
/// # Errors
/// When the update is refused before it starts, or a request fails.
pub async fn run(
    global: &GlobalArgs,
    args: RollingUpdateArgs,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    args.check().map_err(CommandError::Usage)?;
    let reads_stdin = args.filename.as_deref() == Some("-");
    let connection = connect_with(global, &|name| std::env::var(name).ok(), reads_stdin).await?;
    let api = Arc::new(Api::new(connection, global.request_timeout));
    let cluster = Cluster { api: &api, namespace: &api.namespace };
    let (old_name, new_name) = (&args.names[0], args.names.get(1).map(String::as_str));
    let Some(old) = cluster.get(old_name).await? else {
        return finish_deleted(&cluster, old_name, new_name, &args, output).await;
    };
    if args.pause || args.resume {
        return server_side::set_paused(&cluster, &old, &args, output).await;
    }
    if args.only_watches() {
        return server_side::watch_only(&api, &cluster, &old, &args, output).await;
    }
    if !args.server_side {
        server_side::refuse_request(&old).map_err(refused)?;
    }
    prepare::check_controller(&old).map_err(refused)?;
    if !args.ignore_hpa {
        refuse_autoscaler(&cluster, old_name).await?;
    }
    if args.rollback {
        return roll_back(&api, &cluster, &old, new_name, &args, output).await;
    }
    roll(&api, &cluster, old, new_name, &args, output).await
}

/// Moves from OLD to NEW.
async fn roll(
    api: &Arc<Api>,
    cluster: &Cluster<'_>,
    mut old: Value,
    new_name: Option<&str>,
    args: &RollingUpdateArgs,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    let old_name = name(&old).to_owned();
    let all = cluster.all().await?;
    let from_file = args.filename.as_deref().map(read_file).transpose()?;
    let wanted = match &from_file {
        Some(file) => Some(name(file).to_owned()),
        None => new_name.map(str::to_owned),
    };
    let existing = match &wanted {
        Some(wanted) => all.iter().find(|candidate| name(candidate) == wanted),
        None => prepare::find_new(&old, &all),
    };
    let keeps_name = args.keep_name || (args.image.is_some() && new_name.is_none());
    let cleanup = match (args.preserve, keeps_name) {
        (true, _) => Cleanup::Preserve,
        (false, true) => Cleanup::KeepName,
        (false, false) => Cleanup::Delete,
    };
    let (new, desired) = match existing {
        Some(existing) if !args.dry_run => {
            prepare::check_controller(existing).map_err(refused)?;
            let desired = prepare::resumed(&old, existing, args).map_err(refused)?;
            output.line(&format!("Found update in progress to {}. Resuming", name(existing)))?;
            (existing.clone(), desired)
        }
        _ => {
            let new = match from_file {
                Some(file) => prepare::new_by_file(&old, file),
                None => prepare::new_by_image(&old, new_name, args),
            }
            .map_err(refused)?;
            if args.dry_run {
                output.line(&format!(
                    "Would roll {old_name} to {} with {} pods (dry run)",
                    new.name, new.desired
                ))?;
                if args.output == UpdateOutput::Json {
                    output.line(&format!("{:#}", json!({"old": old, "new": new.body})))?;
                }
                return Ok(Exit::Success);
            }
            if args.image.is_some() {
                old = relabel::relabel(cluster, old, &new.name, args, output).await?;
                // The label makes the selectors differ now.
                prepare::check_selectors(&old, &new.body).map_err(refused)?;
            }
            let created =
                write::create(cluster.api, &described(&new.name), &cluster.collection(), &new.body).await?;
            output.line(&format!("Created {}", new.name))?;
            (created, new.desired)
        }
    };
    if cleanup == Cleanup::KeepName {
        hand_over::refuse_rivals(&all, &old, &new).map_err(refused)?;
    }
    if args.server_side {
        let annotations = server_side::annotations(args, name(&new), cleanup);
        return server_side::submit(api, cluster, &old, Some(&new), &annotations, args, output).await;
    }
    let key = prepare::differing_key(&old, &new, &args.deployment_label_key);
    let key = key.unwrap_or_else(|| args.deployment_label_key.clone());
    // Once OLD has taken the pods over, there is nothing to roll back to.
    if !new["metadata"]["annotations"][HANDING_OVER].is_string() {
        remember_size(cluster, &old_name).await?;
    }
    let bounds = Bounds::resolve(desired, args.max_surge, args.max_unavailable);
    let drive = Drive {
        cluster,
        shrinking: &old_name,
        growing: name(&new),
        is_rollback: false,
        label_key: &key,
        bounds,
        cleanup,
        args,
    };
    let from = old["spec"]["replicas"].as_i64().unwrap_or(1);
    output.line(&format!(
        "Rolling {} up to {desired}, {old_name} from {from} to 0 (at least {} pods available, at most {} pods)",
        name(&new),
        bounds.min_available,
        bounds.max_total
    ))?;
    match drive.run(output).await? {
        Ended::Failed => return Ok(Exit::RolloutFailed),
        Ended::Complete => {}
    }
    let survivor = if cleanup == Cleanup::KeepName { old_name.as_str() } else { name(&new) };
    tidy(cluster, survivor, &[DESIRED_REPLICAS, SOURCE, ORIGINAL_REPLICAS, NEXT_CONTROLLER, STEP_AT]).await?;
    if cleanup == Cleanup::Preserve {
        tidy(cluster, &old_name, &[ORIGINAL_REPLICAS, NEXT_CONTROLLER, STEP_AT]).await?;
    }
    finished(args, survivor, "rolling updated", output)
}

fn finished(
    args: &RollingUpdateArgs,
    survivor: &str,
    what: &str,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    match args.output {
        UpdateOutput::Name => output.line(&format!("replicationcontroller/{survivor}"))?,
        UpdateOutput::Text | UpdateOutput::Json => {
            output.line(&format!("replicationcontroller/{survivor} {what}"))?;
        }
    }
    Ok(Exit::Success)
}

/// Goes back: OLD to its original size, NEW to 0 and away.
async fn roll_back(
    api: &Arc<Api>,
    cluster: &Cluster<'_>,
    old: &Value,
    new_name: Option<&str>,
    args: &RollingUpdateArgs,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    let old_name = name(old);
    let decoded = prepare::decode(old).map_err(refused)?;
    let all = cluster.all().await?;
    let new = match new_name {
        Some(wanted) => all.iter().find(|candidate| name(candidate) == wanted),
        None => prepare::find_new(old, &all),
    };
    let original = size(&decoded, ORIGINAL_REPLICAS).map_err(refused)?;
    if original.is_none() && new.is_none() {
        let named = new_name.map_or(String::new(), |new| format!(" to {new}"));
        return Err(refused(format!(
            "no update of {old_name}{named} is under way, so there is nothing to roll back; to return from a finished \
             one, update again to the earlier image or file"
        )));
    }
    if let Some(new) = new {
        let of_new = prepare::decode(new).map_err(refused)?;
        if of_new.annotations.get(SOURCE) != Some(&source_of(&decoded.meta)) {
            return Err(refused(format!("{} is not the target of an update from {old_name}", name(new))));
        }
        if of_new.annotations.get(HANDING_OVER).is_some() {
            return Err(refused(format!(
                "the update of {old_name} is complete but for the change of names: finish it with the command that \
                 began it"
            )));
        }
    }
    let desired = original.unwrap_or(decoded.replicas);
    let bounds = Bounds::resolve(desired, args.max_surge, args.max_unavailable);
    if args.dry_run {
        output.line(&format!("Would roll {old_name} back to {desired} pods (dry run)"))?;
        return Ok(Exit::Success);
    }
    let gone = new.map_or("", |new| name(new));
    if args.server_side {
        let pointer = decoded.annotations.get(NEXT_CONTROLLER);
        let target =
            server_side::request_of(old).or(pointer).or(new_name).filter(|_| new.is_none()).unwrap_or(gone);
        let annotations = server_side::rollback(target);
        return server_side::submit(api, cluster, old, new, &annotations, args, output).await;
    }
    output.line(&format!("Rolling {old_name} back to {desired}, {gone} to 0"))?;
    let drive = Drive {
        cluster,
        shrinking: gone,
        growing: old_name,
        is_rollback: true,
        bounds,
        cleanup: Cleanup::Delete,
        label_key: &args.deployment_label_key,
        args,
    };
    match drive.run(output).await? {
        Ended::Failed => return Ok(Exit::RolloutFailed),
        Ended::Complete => {}
    }
    tidy(cluster, old_name, &[ORIGINAL_REPLICAS, NEXT_CONTROLLER, STEP_AT]).await?;
    finished(args, old_name, "rolled back", output)
}

/// OLD does not exist: either its name is wrong, or an earlier run deleted it and ended before the last write.
async fn finish_deleted(
    cluster: &Cluster<'_>,
    old_name: &str,
    new_name: Option<&str>,
    args: &RollingUpdateArgs,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    let missing =
        || refused(format!("replicationcontroller {}/{old_name} does not exist", cluster.namespace));
    let named = match (&args.filename, new_name) {
        (Some(file), _) => Some(name(&read_file(file)?).to_owned()),
        (None, named) => named.map(str::to_owned),
    };
    let Some(named) = named.filter(|_| !args.rollback && !args.dry_run) else { return Err(missing()) };
    let Some(new) = cluster.get(&named).await? else { return Err(missing()) };
    let decoded = prepare::decode(&new).map_err(refused)?;
    let is_of_old = decoded
        .annotations
        .get(SOURCE)
        .is_some_and(|source| source.rsplit_once(':').is_some_and(|(source, _)| source == old_name));
    let desired = size(&decoded, DESIRED_REPLICAS).map_err(refused)?;
    if !is_of_old || desired != Some(decoded.replicas) {
        return Err(missing());
    }
    output.line(&format!("Found finished update to {named}: {old_name} is deleted"))?;
    tidy(cluster, &named, &[DESIRED_REPLICAS, SOURCE, STEP_AT]).await?;
    finished(args, &named, "rolling updated", output)
}

/// Notes OLD's size for a rollback, once: an update that is resumed keeps the first.
async fn remember_size(cluster: &Cluster<'_>, old_name: &str) -> Result<(), CommandError> {
    change(cluster, old_name, |old| {
        let annotations = &old["metadata"]["annotations"];
        let size = old["spec"]["replicas"].as_i64().unwrap_or(1).to_string();
        let is_known = annotations[ORIGINAL_REPLICAS].is_string();
        (!is_known).then(|| json!({"metadata": {"annotations": {ORIGINAL_REPLICAS: size}}}))
    })
    .await
}

/// Removes annotations that only an update under way needs: a later rollback would go to a stale size.
async fn tidy(cluster: &Cluster<'_>, controller: &str, annotations: &[&str]) -> Result<(), CommandError> {
    change(cluster, controller, |object| {
        let present = |key: &&&str| object["metadata"]["annotations"][**key].is_string();
        let removed: serde_json::Map<String, Value> =
            annotations.iter().filter(present).map(|key| ((*key).to_owned(), Value::Null)).collect();
        (!removed.is_empty()).then(|| json!({"metadata": {"annotations": removed}}))
    })
    .await
}

/// Merges a change into a controller, computed anew as often as someone else writes in between.
async fn change(
    cluster: &Cluster<'_>,
    controller: &str,
    compute: impl Fn(&Value) -> Option<Value>,
) -> Result<(), CommandError> {
    loop {
        let Some(seen) = cluster.get(controller).await? else {
            return Err(refused(format!("replicationcontroller {controller} was deleted in the meantime")));
        };
        let Some(body) = compute(&seen) else { return Ok(()) };
        let path = cluster.path(controller);
        match write::merge(cluster.api, &described(controller), &path, &seen, body).await {
            Err(error) if error.code() == Some(409) => {}
            other => return other.map(drop).map_err(Into::into),
        }
    }
}

/// An autoscaler would keep naming OLD and fight each step.
async fn refuse_autoscaler(cluster: &Cluster<'_>, old_name: &str) -> Result<(), CommandError> {
    let path = format!("/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers", cluster.namespace);
    let listed = match cluster.api.list("horizontalpodautoscalers", &path, &[]).await {
        Ok(listed) => listed.items,
        // The server has no autoscalers, or the user may not see them.
        Err(error) if error.is_forbidden() || error.code() == Some(404) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let aims = |autoscaler: &&Value| {
        let target = &autoscaler["spec"]["scaleTargetRef"];
        target["kind"] == "ReplicationController" && target["name"] == old_name
    };
    listed.iter().find(aims).map_or(Ok(()), |autoscaler| {
        Err(refused(format!(
            "horizontalpodautoscaler {} scales {old_name} and would undo each step: delete it first, or pass --ignore-hpa",
            name(autoscaler)
        )))
    })
}
