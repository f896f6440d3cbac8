//! `approve`, `abort`, `retry` and `bypass`: the decisions about a rollout that its policy leaves to a person. Each writes one
//! annotation that names the revision which was shown, so that a template which is applied meanwhile is not meant.

mod request;
mod standing;

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Api;
use crate::cli::{ApproveArgs, BypassArgs, Consent, DryRun, GlobalArgs, Objects, RevisionArgs};
use crate::connection::connect;
use crate::exit::{CommandError, Exit};
use crate::output::Output;
use crate::owners;
use crate::plan;
use crate::question::agrees;
use crate::rollout::{Workload, live};
use crate::shown;
use crate::target::{self, Kind, WorkloadKey};
use request::{Action, Answer, Effect, Request};
use standing::Standing;

/// How long a controller may take to accept a command.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(300);

/// Runs `approve`.
///
/// # Errors
/// When the object cannot be found, nothing of it can be approved, or no controller accepts it.
pub async fn approve(
    global: &GlobalArgs,
    args: ApproveArgs,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    let ApproveArgs { objects, step, all, revision, consent } = args;
    let step = step.and_then(|step| usize::try_from(step).ok());
    run(global, "approve", &objects, Action::Approve { step, all }, revision, consent, output).await
}

/// Runs `abort`.
///
/// # Errors
/// As [`approve`].
pub async fn abort(
    global: &GlobalArgs,
    args: RevisionArgs,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    let RevisionArgs { objects, revision, consent } = args;
    run(global, "abort", &objects, Action::Abort, revision, consent, output).await
}

/// Runs `retry`.
///
/// # Errors
/// As [`approve`].
pub async fn retry(
    global: &GlobalArgs,
    args: RevisionArgs,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    let RevisionArgs { objects, revision, consent } = args;
    run(global, "retry", &objects, Action::Retry, revision, consent, output).await
}

/// Runs `bypass`.
///
/// # Errors
/// As [`approve`].
pub async fn bypass(
    global: &GlobalArgs,
    args: BypassArgs,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    let BypassArgs { objects, time, end: _, consent } = args;
    let action = time.map_or(Action::EndBypass, Action::Bypass);
    run(global, "bypass", &objects, action, None, consent, output).await
}

async fn run(
    global: &GlobalArgs,
    command: &str,
    objects: &Objects,
    action: Action,
    revision: Option<i64>,
    consent: Consent,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    let targets = target::targets(objects)?;
    let one = || {
        let text = format!("{command} takes one Deployment or DaemonSet: name it, such as deploy/web");
        Err(CommandError::Usage(text))
    };
    if targets.len() != 1 {
        return one();
    }
    let Consent { yes, dry_run } = consent;
    if !yes && dry_run == DryRun::None && !output.is_interactive {
        let text = "there is no terminal to ask on: add --yes, or --dry-run=server to see what would change";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let api = Api::new(connect(global, &|name| std::env::var(name).ok()).await?, global.request_timeout);
    let (targets, notes) = owners::follow(&api, targets).await?;
    notes.iter().for_each(|note| output.note(&format!("note: {note}")));
    let [target] = targets.as_slice() else { return one() };
    let key = WorkloadKey { kind: target.kind, namespace: api.namespace.clone(), name: target.name.clone() };
    let object = key.described();
    let wrong = |text: String| CommandError::Argument(format!("{object}: {text}"));
    match (key.kind, action) {
        (Kind::Deployment, _) => {}
        (Kind::DaemonSet, Action::Approve { .. } | Action::Bypass(_) | Action::EndBypass) => {}
        (Kind::DaemonSet, Action::Abort | Action::Retry) => {
            let text = "only a Deployment has a former revision whose pods stay: undo a DaemonSet instead";
            return Err(wrong(text.to_owned()));
        }
        _ => return Err(wrong("only Deployments and DaemonSets have rollout policies".to_owned())),
    }
    let (workload, standing) = look(&api, &key).await?;
    let now = api.now();
    let request = match action.request(&standing, revision, now).map_err(wrong)? {
        Answer::Skipped(why) => {
            output.note(&format!("skipped: {why}"));
            return Ok(Exit::Success);
        }
        Answer::Write(request) => request,
    };
    let wanted = annotated(&workload.object, &request);
    let said = format!("{}: {}", request.key, request.value.as_deref().unwrap_or("removed"));
    output.text(&plan::of_annotations(&key, &workload, &wanted, said, now)?)?;
    if let Some(foreign) = &standing.foreign {
        output.note(&format!("warning: {foreign} acts on it, and ignores rollout policies"));
    }
    let suffix = match dry_run {
        DryRun::Client => {
            output.line(&format!("{} (dry run)", request.done))?;
            return Ok(Exit::Success);
        }
        DryRun::Server => " (server dry run)",
        DryRun::None => "",
    };
    if dry_run == DryRun::None && !yes && !agrees(&request.question).await {
        output.note("nothing was changed");
        return Ok(Exit::Error);
    }
    shown::replace(&api, &key, workload.object, dry_run, |seen| Ok(operations(seen, &request))).await?;
    if let (DryRun::None, Some(effect)) = (dry_run, request.effect) {
        accepted(&api, &key, effect).await?;
    }
    output.line(&format!("{}{suffix}", request.done))?;
    Ok(Exit::Success)
}

async fn look(api: &Api, key: &WorkloadKey) -> Result<(Workload, Standing), CommandError> {
    let Some(workload) = live::read(api, key).await? else { return Err(key.missing(api).await) };
    let object = key.described();
    if workload.is_partial {
        let missing = workload.unreadable.join("; ");
        return Err(CommandError::Argument(format!("{object}: {missing}: its rollout is unknown")));
    }
    let standing = match key.kind {
        Kind::DaemonSet => Standing::of_nodes(object.clone(), &workload, api.now()),
        _ => Standing::of(object.clone(), &workload, api.now()),
    };
    let standing = standing.map_err(|error| CommandError::Unreadable { object, error })?;
    Ok((workload, standing))
}

/// The object with the annotation.
fn annotated(object: &Value, request: &Request) -> Value {
    let mut wanted = object.clone();
    let annotations = &mut wanted["metadata"]["annotations"];
    match (&request.value, annotations.as_object_mut()) {
        (Some(value), Some(annotations)) => {
            annotations.insert(request.key.to_owned(), json!(value));
        }
        (Some(value), None) => *annotations = json!({ request.key: value }),
        (None, Some(annotations)) => {
            annotations.remove(request.key);
        }
        (None, None) => {}
    }
    wanted
}

/// The operations of a JSON patch that write the annotation.
fn operations(object: &Value, request: &Request) -> Vec<Value> {
    let path = format!("/metadata/annotations/{}", request.key.replace('/', "~1"));
    let annotations = &object["metadata"]["annotations"];
    match &request.value {
        None if annotations[request.key].is_null() => Vec::new(),
        None => vec![json!({"op": "remove", "path": path})],
        Some(value) if annotations.is_object() => vec![json!({"op": "add", "path": path, "value": value})],
        Some(value) => {
            vec![json!({"op": "add", "path": "/metadata/annotations", "value": {request.key: value}})]
        }
    }
}

/// Waits until the state of the rollout shows that a controller has accepted the command.
async fn accepted(api: &Api, key: &WorkloadKey, effect: Effect) -> Result<(), CommandError> {
    let object = key.described();
    let wrong = |text: &str| CommandError::Argument(format!("{object}: {text}"));
    let looks = async {
        loop {
            let (_, standing) = look(api, key).await?;
            if effect.is_seen(&standing).map_err(|why| wrong(&why))? {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(PATIENCE, looks).await {
        Ok(seen) => seen,
        Err(_) => Err(wrong(
            "no controller has accepted it: is one running with rollout policies? The annotation stays",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(value: Option<&str>) -> Request {
        Request {
            key: "windlass.dev/rollout",
            value: value.map(str::to_owned),
            question: String::new(),
            done: String::new(),
            effect: None,
        }
    }

    #[test]
    fn the_annotation_is_added_replaced_or_removed_and_nothing_else() {
        let bare = json!({"metadata": {"name": "web"}});
        let set = json!({"metadata": {"annotations": {"a": "b", "windlass.dev/rollout": "approve 1"}}});
        let approve = request(Some("approve 7/2"));
        for (before, request, after) in [
            (&bare, &approve, json!({"windlass.dev/rollout": "approve 7/2"})),
            (&set, &approve, json!({"a": "b", "windlass.dev/rollout": "approve 7/2"})),
            (&set, &request(None), json!({"a": "b"})),
        ] {
            let operations: json_patch::Patch =
                serde_json::from_value(operations(before, request).into()).unwrap();
            let mut patched = before.clone();
            json_patch::patch(&mut patched, &operations).unwrap();
            assert_eq!(patched["metadata"]["annotations"], after);
            assert_eq!(annotated(before, request), patched);
        }
    }
}
