//! `--server-side`: the daemon carries the update out, and the client asks for it and watches.
//!
//! The request is written last. Where no controller answers it, the client takes it back: nobody would act on it, or
//! somebody much later.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use windlass::model::{Record as _, ReplicationController};
use windlass::plan::rolling_update::bookkeeping::{size_to_reach, size_to_return_to};
use windlass::plan::rolling_update::request::{PAUSED, REQUEST, ROLLBACK, Request};

use super::changes::change;
use super::follow::{End, Follow, News, condition};
use super::prepare::{self, name};
use super::reporter::{REPORT_WAIT_AFTER, Reporter};
use super::{Cluster, refused};
use crate::cli::RollingUpdateArgs;
use crate::exit::{CommandError, Exit};
use crate::text::harmless;
use crate::watch::{self, Selection, Silence};

/// How long a controller may take to answer a request.
const ANSWER: Duration = Duration::from_secs(10);

/// The request on a ReplicationController.
pub(super) fn request_of(old: &Value) -> Option<&str> {
    old["metadata"]["annotations"][REQUEST].as_str()
}

/// Refuses to drive an update that the daemon carries out.
///
/// # Errors
/// With both ways to go on.
pub(super) fn refuse_request(old: &Value) -> Result<(), String> {
    let Some(target) = request_of(old) else { return Ok(()) };
    let name = name(old);
    Err(format!(
        "a controller of the cluster updates {name} to {target}: watch it with kubectl windlass rolling-update {name} \
         --server-side, or stop it with kubectl annotate rc {name} {REQUEST}-"
    ))
}

/// The annotations of a request; those without a value are removed.
pub(super) fn annotations(request: &Request) -> Value {
    Value::Object(
        request.annotations().map(|(key, value)| (key.to_owned(), json!(value))).into_iter().collect(),
    )
}

/// The annotations that take an update back, with the options that it has.
pub(super) fn rollback(target: &str) -> Value {
    json!({PAUSED: null, ROLLBACK: "true", REQUEST: target})
}

/// Writes a request, unless it is there already, and watches what becomes of it.
///
/// # Errors
/// When a request fails, or no controller answers.
pub(super) async fn submit(
    cluster: &Cluster<'_>,
    old: &Value,
    new: Option<&Value>,
    annotations: &Value,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Exit, CommandError> {
    let old_name = name(old);
    // The condition from before the request. A request that is there already has its answer.
    let before = RefCell::new(Value::Null);
    change(cluster, old_name, reporter, |old| {
        let current = &old["metadata"]["annotations"];
        let wanted = annotations.as_object().into_iter().flatten();
        let is_there = wanted.into_iter().all(|(key, value)| current[key] == *value);
        before.replace(if is_there { Value::Null } else { condition(old) });
        if !is_there {
            // The update that was read before may be over: OLD at 0 has nothing to go back to.
            check(old, new, annotations)?;
        }
        Ok((!is_there).then(|| json!({"metadata": {"annotations": annotations}})))
    })
    .await?;
    let target = annotations[REQUEST].as_str().unwrap_or_default();
    reporter.set_new(target);
    reporter.event("Requested", &format!("Requested the update of {old_name} to {target}"), json!({}))?;
    let mut follow = Follow::new((old_name, Some(old)), (target, new), before.into_inner());
    let mut changes = watch_controllers(cluster);
    let answered = async {
        while let Some(change) = changes.recv().await {
            follow.take(change);
            show(&mut follow, reporter)?;
            if follow.is_answered() {
                return Ok(());
            }
        }
        Err(refused("the watch of the ReplicationControllers has ended".to_owned()))
    };
    match tokio::time::timeout(ANSWER, answered).await {
        Ok(answered) => answered?,
        // The controller writes no second condition for the same refusal.
        Err(_) if follow.is_refused_as_before() => follow.take_earlier_answer(),
        Err(_) => return Err(take_back(cluster, old_name, target, annotations, reporter).await?),
    }
    follow_to_end(follow, changes, args, reporter).await
}

/// Refuses a request that the daemon would refuse, by its rules.
fn check(old: &Value, new: Option<&Value>, annotations: &Value) -> Result<(), String> {
    let (old, new) = (prepare::decode(old)?, new.map(prepare::decode).transpose()?);
    let size = match new {
        new if annotations[ROLLBACK].is_string() => size_to_return_to(&old, new.as_ref()),
        Some(new) => size_to_reach(&old, &new),
        None => return Ok(()),
    };
    size.map(drop)
}

/// The target of the update that a controller of the cluster carries out; an error with this hint where there is none.
fn requested<'a>(old: &'a Value, hint: &str) -> Result<&'a str, CommandError> {
    request_of(old)
        .ok_or_else(|| refused(format!("no controller of the cluster updates {}{hint}", name(old))))
}

/// Watches an update that is under way.
///
/// # Errors
/// When none is, or a request fails.
pub(super) async fn watch_only(
    cluster: &Cluster<'_>,
    old: &Value,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Exit, CommandError> {
    let old_name = name(old);
    let target = requested(old, ": begin with --image, -f or --rollback")?;
    let new = cluster.get(target).await?;
    reporter.set_new(target);
    reporter.event("Watching", &format!("Watching the update of {old_name} to {target}"), json!({}))?;
    let follow = Follow::new((old_name, Some(old)), (target, new.as_ref()), Value::Null);
    follow_to_end(follow, watch_controllers(cluster), args, reporter).await
}

/// Pauses or resumes an update that is under way.
///
/// # Errors
/// When none is, or a request fails.
pub(super) async fn set_paused(
    cluster: &Cluster<'_>,
    old: &Value,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Exit, CommandError> {
    let old_name = name(old);
    let verb = if args.pause { "pause" } else { "resume" };
    let by_client = "an update that a client drives is paused with Ctrl-C";
    requested(old, &format!(", so there is nothing to {verb}; {by_client}"))?;
    let wanted = if args.pause { json!("true") } else { Value::Null };
    change(cluster, old_name, reporter, |old| {
        let is_there = old["metadata"]["annotations"][PAUSED] == wanted;
        Ok((!is_there).then(|| json!({"metadata": {"annotations": {PAUSED: wanted}}})))
    })
    .await?;
    let (kind, what) = if args.pause { ("Paused", "paused") } else { ("Resumed", "resumed") };
    reporter.end(kind, old_name, what)?;
    Ok(Exit::Success)
}

fn watch_controllers(cluster: &Cluster<'_>) -> mpsc::Receiver<watch::Change> {
    let (sender, changes) = mpsc::channel(16);
    let selection = Selection {
        resource: ReplicationController::RESOURCE,
        namespace: Some(cluster.namespace.to_owned()),
        known: None,
        labels: String::new(),
        fields: String::new(),
        follows: true,
    };
    tokio::spawn(watch::watch(cluster.api.clone(), selection, sender, |change| change));
    changes
}

/// Nobody has answered: removes the request and its options. The error to end with.
async fn take_back(
    cluster: &Cluster<'_>,
    old_name: &str,
    target: &str,
    annotations: &Value,
    reporter: &mut Reporter<'_>,
) -> Result<CommandError, CommandError> {
    let keys = annotations.as_object().into_iter().flatten().map(|(key, _)| (key.clone(), Value::Null));
    let removed: Map<String, Value> = keys.collect();
    change(cluster, old_name, reporter, |old| {
        let is_ours = request_of(old) == Some(target);
        Ok(is_ours.then(|| json!({"metadata": {"annotations": removed}})))
    })
    .await?;
    Ok(refused(format!(
        "no controller of the cluster has answered within {ANSWER:?}, and the request is taken back; {old_name} and \
         {target} are left as they are. Run the same command without --server-side, or run Windlass with \
         --controllers=*,rollingupdate"
    )))
}

/// Reports what is new.
pub(super) fn show(follow: &mut Follow, reporter: &mut Reporter<'_>) -> Result<(), CommandError> {
    for News { kind, text, more } in follow.news() {
        reporter.event(kind, &text, more)?;
    }
    Ok(())
}

async fn follow_to_end(
    mut follow: Follow,
    mut changes: mpsc::Receiver<watch::Change>,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Exit, CommandError> {
    let mut silence = Silence::default();
    loop {
        if follow.is_seen() {
            show(&mut follow, reporter)?;
            if let Some(end) = follow.end() {
                return ended(end, &follow, args, reporter);
            }
            if !args.watch {
                reporter.object("TimedOut", "the update goes on in the cluster", json!({}))?;
                return Ok(Exit::NotFinished);
            }
            if follow.has_timed_out() && args.fail_fast {
                reporter
                    .failed("Failed", &format!("{}; the update goes on in the cluster", follow.message()))?;
                return Ok(Exit::RolloutFailed);
            }
            reporter.waits_for(&follow.waits_for(), follow.has_timed_out())?;
        }
        match tokio::time::timeout(REPORT_WAIT_AFTER, changes.recv()).await {
            Ok(Some(watch::Change::Forbidden(text))) => return Err(refused(text)),
            Ok(Some(watch::Change::Interrupted(text))) => silence.begin(&text),
            Ok(Some(change)) => {
                silence.end();
                follow.take(change);
            }
            Ok(None) => return Err(refused("the watch of the ReplicationControllers has ended".to_owned())),
            // Only time has passed.
            Err(_) => {}
        }
        if let Some(text) = silence.news() {
            reporter.note(&format!("note: {}; the watch tries again", harmless(&text)));
        }
    }
}

fn ended(
    end: End,
    follow: &Follow,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Exit, CommandError> {
    match end {
        End::Complete { survivor } => {
            reporter.end("Complete", &survivor, "rolling updated")?;
            Ok(Exit::Success)
        }
        End::RolledBack => {
            reporter.end("RolledBack", &follow.old_name, "rolled back")?;
            Ok(if args.rollback { Exit::Success } else { Exit::RolloutFailed })
        }
        End::Refused(message) => {
            reporter.failed("Failed", &format!("refused: {}", harmless(&message)))?;
            Ok(Exit::RolloutFailed)
        }
        End::Stopped(message) => {
            reporter.failed("Stopped", &harmless(&message))?;
            Ok(Exit::NotFinished)
        }
        End::Gone => {
            let (old, new) = (&follow.old_name, &follow.new_name);
            reporter
                .failed("Failed", &format!("replicationcontrollers {old} and {new} were both deleted"))?;
            Ok(Exit::RolloutFailed)
        }
    }
}
