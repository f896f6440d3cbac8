//! `rolling-update`: replaces the pods of one ReplicationController by those of another, step by step.
//!
//! The client drives it, as kubectl did up to 1.17: it runs the daemon's job `windlass::plan::rolling_update::job` on a
//! request made from its flags. Each write is computed from what is there and names the version of what it changes: the
//! client may be killed at any write, and the same command goes on from there. Two at once do no harm.

mod adopters;
mod back;
mod changes;
mod drive;
mod fail_fast;
mod file;
mod follow;
mod outage;
pub mod prepare;
mod relabel;
mod reporter;
mod server_side;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass::model::{ObjectKey, Record as _, ReplicationController};
use windlass::plan::rolling_update::bookkeeping::SOURCE;
use windlass::plan::rolling_update::request::{Request, STEP_AT};
use windlass::plan::rolling_update::{Bounds, Cleanup};

use crate::absent;
use crate::api::Api;
use crate::cli::{GlobalArgs, RollingUpdateArgs};
use crate::connection::connect_with;
use crate::exit::{CommandError, Exit};
use crate::output::Output;
use crate::write;
use changes::change;
use drive::{Drive, Ended};
use file::read_file;
use prepare::name;
use reporter::Reporter;

/// The means of a command to reach one namespace.
struct Cluster<'a> {
    api: &'a Arc<Api>,
    namespace: &'a str,
    /// For how long requests that fail, but may succeed later, are tried again.
    patience: Duration,
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

fn deleted(controller: &str) -> CommandError {
    refused(format!("replicationcontroller {controller} was deleted in the meantime"))
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
    let cluster = Cluster { api: &api, namespace: &api.namespace, patience: args.timeout };
    let (old_name, new_name) = (&args.names[0], args.names.get(1).map(String::as_str));
    let from_file = match &args.filename {
        Some(file) => Some(read_file(file, output).await?),
        None => None,
    };
    let reporter = &mut Reporter::new(output, args.output, &api, old_name);
    let Some(old) = cluster.get(old_name).await? else {
        return finish_deleted(&cluster, from_file.as_ref(), &args, reporter).await;
    };
    if args.pause || args.resume {
        return server_side::set_paused(&cluster, &old, &args, reporter).await;
    }
    if args.only_watches() {
        return server_side::watch_only(&cluster, &old, &args, reporter).await;
    }
    if !args.server_side {
        server_side::refuse_request(&old).map_err(refused)?;
    }
    prepare::check_controller(&old).map_err(refused)?;
    if !args.ignore_hpa {
        refuse_autoscaler(&cluster, old_name, reporter).await?;
    }
    if args.rollback {
        return back::roll_back(&cluster, &old, new_name, &args, reporter).await;
    }
    roll(&cluster, old, from_file, &args, reporter).await
}

/// Moves from OLD to NEW.
async fn roll(
    cluster: &Cluster<'_>,
    mut old: Value,
    from_file: Option<Value>,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Exit, CommandError> {
    let old_name = name(&old).to_owned();
    // A file that names OLD describes its next template: NEW gets a made name.
    let named_by_file = from_file.as_ref().map(name).filter(|name| !args.keep_name || **name != old_name);
    let wanted = named_by_file.or(args.names.get(1).map(String::as_str)).map(str::to_owned);
    if wanted.as_deref() == Some(old_name.as_str()) {
        return Err(refused(prepare::same_name(&old_name)));
    }
    let mut all = cluster.all().await?;
    if !args.dry_run {
        if prepare::lacks_last_write(&old, &all) {
            let done = json!({"metadata": {"annotations": {STEP_AT: null}}});
            old = change(cluster, &old_name, reporter, |_| Ok(Some(done.clone()))).await?;
        }
        while let Some(left_over) =
            prepare::left_over(&old, &all, wanted.as_deref(), from_file.as_ref(), args)
        {
            if !args.replace {
                prepare::refuse_left_over(&old, left_over, args).map_err(refused)?;
                break;
            }
            if back::replace(cluster, &old, left_over, args, reporter).await? == Ended::Failed {
                return Ok(Exit::RolloutFailed);
            }
            old = cluster.get(&old_name).await?.ok_or_else(|| deleted(&old_name))?;
            all = cluster.all().await?;
        }
    }
    let existing = match &wanted {
        Some(wanted) => all.iter().find(|candidate| name(candidate) == wanted),
        None => prepare::find_new(&old, &all),
    };
    let keeps_name = args.keep_name || (args.image.is_some() && args.names.len() == 1);
    let cleanup = match (args.preserve, keeps_name) {
        (true, _) => Cleanup::Preserve,
        (false, true) => Cleanup::KeepName,
        (false, false) => Cleanup::Delete,
    };
    let (new, desired) = match existing {
        Some(existing) if !args.dry_run => {
            prepare::check_controller(existing).map_err(refused)?;
            let desired = prepare::resumed(&old, existing, from_file.as_ref(), args).map_err(refused)?;
            reporter.set_new(name(existing));
            let text = format!("Found update in progress to {}. Resuming", name(existing));
            reporter.event("Resumed", &text, json!({}))?;
            (existing.clone(), desired)
        }
        _ => {
            let new = match from_file {
                Some(file) => prepare::new_by_file(&old, file, args),
                None => prepare::new_by_image(&old, wanted.as_deref(), args),
            }
            .map_err(refused)?;
            reporter.set_new(&new.name);
            if args.dry_run {
                let text = format!("Would roll {old_name} to {} with {} pods", new.name, new.desired);
                reporter.dry_run(&text, &old, Some(&new.body))?;
                return Ok(Exit::Success);
            }
            if new.needs_label {
                old = relabel::relabel(cluster, old, &new.name, args, reporter).await?;
                // The label makes the selectors differ now.
                prepare::check_selectors(&old, &new.body).map_err(refused)?;
            }
            let created =
                write::create(cluster.api, &described(&new.name), &cluster.collection(), &new.body).await?;
            reporter.event("Created", &format!("Created {}", new.name), json!({"controller": new.name}))?;
            (created, new.desired)
        }
    };
    let request = request(args, name(&new), cleanup, false);
    if args.server_side {
        if cleanup == Cleanup::KeepName {
            let drive =
                Drive::new(cluster, (&old_name, Some(&old)), Some(&new), request.clone(), None, args)?;
            drive.check(reporter).await?;
        }
        let annotations = server_side::annotations(&request);
        return server_side::submit(cluster, &old, Some(&new), &annotations, args, reporter).await;
    }
    drive(cluster, &old, &new, desired, request, args, reporter).await
}

/// Carries an update out to its end.
async fn drive(
    cluster: &Cluster<'_>,
    old: &Value,
    new: &Value,
    desired: i32,
    request: Request,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Exit, CommandError> {
    let old_name = name(old);
    let bounds = Bounds::resolve(desired, request.max_surge, request.max_unavailable);
    let from = old["spec"]["replicas"].as_i64().unwrap_or(1);
    let text = format!(
        "Rolling {} up to {desired}, {old_name} from {from} to 0 (at least {} pods available, at most {} pods)",
        name(new),
        bounds.min_available,
        bounds.max_total
    );
    let numbers = json!({
        "desired": desired, "minAvailable": bounds.min_available, "maxTotal": bounds.max_total,
    });
    let drive = Drive::new(cluster, (old_name, Some(old)), Some(new), request, Some((text, numbers)), args)?;
    concluded(drive.run(reporter).await?, ("Complete", "rolling updated"), reporter)
}

/// The request that the flags make.
fn request(args: &RollingUpdateArgs, target: &str, cleanup: Cleanup, is_rollback: bool) -> Request {
    Request {
        target: target.to_owned(),
        max_surge: args.max_surge,
        max_unavailable: args.max_unavailable,
        period: args.update_period,
        timeout: args.timeout,
        cleanup,
        is_paused: false,
        is_rollback,
    }
}

/// Reports the end: its type, and what has become of the survivor.
fn concluded(
    ended: Ended,
    (kind, what): (&str, &str),
    reporter: &mut Reporter<'_>,
) -> Result<Exit, CommandError> {
    let Ended::Complete(survivor) = ended else { return Ok(Exit::RolloutFailed) };
    reporter.end(kind, &survivor, what)?;
    Ok(Exit::Success)
}

/// OLD does not exist: either its name is wrong, or an earlier run deleted it and ended before the last write.
async fn finish_deleted(
    cluster: &Cluster<'_>,
    from_file: Option<&Value>,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Exit, CommandError> {
    let old_name = &args.names[0];
    let resource = ReplicationController::RESOURCE;
    let missing = || absent::error(cluster.api, &resource, cluster.namespace, old_name);
    let named = from_file.map(name).or(args.names.get(1).map(String::as_str));
    let Some(named) = named.filter(|_| !args.rollback && !args.dry_run) else { return Err(missing().await) };
    let Some(new) = cluster.get(named).await? else { return Err(missing().await) };
    let decoded = prepare::decode(&new).map_err(refused)?;
    let is_of_old = decoded
        .annotations
        .get(SOURCE)
        .is_some_and(|source| source.rsplit_once(':').is_some_and(|(source, _)| source == old_name));
    if !is_of_old {
        return Err(missing().await);
    }
    reporter.set_new(named);
    let text = format!("Found finished update to {named}: {old_name} is deleted");
    reporter.event("Resumed", &text, json!({}))?;
    let request = request(args, named, Cleanup::Delete, false);
    let drive = Drive::new(cluster, (old_name, None), Some(&new), request, None, args)?;
    concluded(drive.run(reporter).await?, ("Complete", "rolling updated"), reporter)
}

/// An autoscaler would keep naming OLD and fight each step.
async fn refuse_autoscaler(
    cluster: &Cluster<'_>,
    old_name: &str,
    reporter: &mut Reporter<'_>,
) -> Result<(), CommandError> {
    let path = format!("/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers", cluster.namespace);
    let listed = match cluster.api.list("horizontalpodautoscalers", &path, &[]).await {
        Ok(listed) => listed.items,
        // The server has no autoscalers.
        Err(error) if error.code() == Some(404) => return Ok(()),
        Err(error) if error.is_forbidden() => {
            reporter
                .note(&format!("note: {error}: none of them may scale {old_name}, or it undoes each step"));
            return Ok(());
        }
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
