//! `undo`: takes a Deployment, StatefulSet or DaemonSet back to an earlier revision, once the user has seen what that changes.

mod warnings;

use clap::Parser as _;
use serde_json::Value;
use windlass::model::Resource;

use crate::api::Api;
use crate::cli::{Args, Command, DryRun, GlobalArgs, UndoArgs};
use crate::connection::connect;
use crate::exit::{CommandError, Exit};
use crate::history::{self, History};
use crate::invocation::Invocation;
use crate::output::Output;
use crate::owners;
use crate::plan;
use crate::question::agrees;
use crate::revisions::{self, WayBack};
use crate::shown;
use crate::target::{self, Kind, Target, WorkloadKey};

const AUTOSCALERS: Resource = Resource {
    group: "autoscaling",
    version: "v2",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
};

/// Runs `undo`.
///
/// # Errors
/// When the object or its revision cannot be found, it is paused, or the write is refused.
pub async fn run(global: &GlobalArgs, args: UndoArgs, output: &mut Output) -> Result<Exit, CommandError> {
    let targets = target::targets(&args.objects)?;
    let [target] = targets.as_slice() else {
        let text = "undo takes one Deployment, StatefulSet or DaemonSet: name it, such as deploy/web";
        return Err(CommandError::Usage(text.to_owned()));
    };
    if target.kind == Kind::ReplicationController {
        let text = "a ReplicationController has no revisions; for a rolling update see `rolling-update OLD --rollback`";
        return Err(CommandError::Argument(format!("{}/{}: {text}", target.kind.singular(), target.name)));
    }
    if !args.yes && args.dry_run == DryRun::None && !output.is_interactive {
        let text = "there is no terminal to ask on: add --yes, or --dry-run=server to see what would change";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let api = Api::new(connect(global, &|name| std::env::var(name).ok()).await?, global.request_timeout);
    let (targets, notes) = owners::follow(&api, targets).await?;
    notes.iter().for_each(|note| output.note(&format!("note: {note}")));
    let Some(target) = targets.first() else { return Ok(Exit::Success) };
    if let Some(why) = target.kind.lacks_revisions() {
        return Err(CommandError::Argument(format!("{}/{}: {why}", target.kind.singular(), target.name)));
    }
    let (namespace, kind) = (api.namespace.clone(), target.kind);
    let key = WorkloadKey { kind, namespace: namespace.clone(), name: target.name.clone() };
    let Some(History { object: now, revisions: history, .. }) = history::read(&api, &key, false).await?
    else {
        return Err(key.missing(&api).await);
    };
    let object = key.described();
    let wrong = |text: String| CommandError::Argument(format!("{object}: {text}"));
    let revision = match args.to_revision {
        0 => revisions::before(&history, None),
        number => revisions::numbered(&history, number),
    };
    let revision = revision.map_err(wrong)?;
    let way_back = |now: &Value| match kind {
        Kind::StatefulSet | Kind::DaemonSet => revisions::way_back_of_template(now, revision),
        _ => revisions::way_back(now, revision, &Invocation::of_process().kubectl),
    };
    let WayBack { operations, difference } = way_back(&now).map_err(wrong)?;
    if operations.is_empty() {
        output.note(&format!(
            "skipped: {object} has the template of revision {} already; choose another of its history by --to-revision",
            revision.number
        ));
        return Ok(Exit::Success);
    }
    output.text(&difference)?;
    preview(global, target, revision.number, output).await?;
    for warning in warnings::of(kind, &now, &autoscalers(&api, &namespace, output).await) {
        output.note(&format!("warning: {warning}"));
    }
    let done = format!("{object} rolled back to revision {}", revision.number);
    let suffix = match args.dry_run {
        DryRun::Client => {
            output.line(&format!("{done} (dry run)"))?;
            return Ok(Exit::Success);
        }
        DryRun::Server => " (server dry run)",
        DryRun::None => "",
    };
    let question = || format!("Roll {object} back to revision {}?", revision.number);
    if args.dry_run == DryRun::None && !args.yes && !agrees(&question()).await {
        output.note("nothing was changed");
        return Ok(Exit::Error);
    }
    let operations = |now: &Value| Ok(way_back(now).map_err(wrong)?.operations);
    shown::replace(&api, &key, now, args.dry_run, operations).await?;
    output.line(&format!("{done}{suffix}"))?;
    Ok(Exit::Success)
}

/// Shows what the rollout would do, as `plan --to-revision` does. Without a dry run by the server: that takes rights which
/// an undo does not need. A preview that cannot be made is a note.
async fn preview(
    global: &GlobalArgs,
    target: &Target,
    revision: i64,
    output: &mut Output,
) -> Result<(), CommandError> {
    let (name, revision) =
        (format!("{}/{}", target.kind.short(), target.name), format!("--to-revision={revision}"));
    let line = ["kubectl-windlass", "plan", &name, &revision, "--server-dry-run=false"];
    let parsed = Args::try_parse_from(line).map_err(|error| CommandError::Argument(error.to_string()))?;
    let Command::Plan(args) = parsed.command else { return Ok(()) };
    match plan::run(global, args, output).await {
        Ok(_) => Ok(()),
        Err(CommandError::OutputClosed) => Err(CommandError::OutputClosed),
        Err(error) => {
            output.note(&format!("note: no preview: {error}"));
            Ok(())
        }
    }
}

/// The autoscalers of a namespace; none, with a note, if they cannot be read.
async fn autoscalers(api: &Api, namespace: &str, output: &mut Output) -> Vec<Value> {
    match api.list(AUTOSCALERS.plural, &AUTOSCALERS.path(Some(namespace)), &[]).await {
        Ok(listed) => listed.items,
        // The server does not serve them.
        Err(error) if error.code() == Some(404) => Vec::new(),
        Err(error) => {
            output.note(&format!("note: {error}: one of them may scale it"));
            Vec::new()
        }
    }
}
