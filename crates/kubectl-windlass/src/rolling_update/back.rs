//! Back: OLD to its original size, NEW to 0 and away. `--replace` begins with it.

use serde_json::{Value, json};
use windlass::plan::rolling_update::Cleanup;
use windlass::plan::rolling_update::bookkeeping::{
    HANDING_OVER, NEXT_CONTROLLER, ORIGINAL_REPLICAS, SOURCE, size, size_to_return_to,
};

use super::changes::change;
use super::drive::{Drive, Ended};
use super::prepare::{self, name};
use super::reporter::Reporter;
use super::{Cluster, concluded, refused, request, server_side};
use crate::cli::RollingUpdateArgs;
use crate::exit::{CommandError, Exit};

/// Takes an update back.
pub(super) async fn roll_back(
    cluster: &Cluster<'_>,
    old: &Value,
    new_name: Option<&str>,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
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
            "no update of {old_name}{named} is under way, so there is nothing to roll back to; to return from a finished \
             one, update again to the earlier image or file"
        )));
    }
    if let Some(new) = new {
        reporter.set_new(name(new));
    }
    let desired = size_before(old, new)?;
    if args.dry_run {
        reporter.dry_run(&format!("Would roll {old_name} back to {desired} pods"), old, new)?;
        return Ok(Exit::Success);
    }
    let pointer = decoded.annotations.get(NEXT_CONTROLLER);
    let gone = || server_side::request_of(old).or(pointer).or(new_name).unwrap_or_default();
    let target = new.map_or_else(gone, name);
    if args.server_side {
        let annotations = server_side::rollback(target);
        return server_side::submit(cluster, old, new, &annotations, args, reporter).await;
    }
    let ended = back(cluster, old, (target, new), desired, args, reporter).await?;
    concluded(ended, ("RolledBack", "rolled back"), reporter)
}

/// The size to which an update that is under way goes back.
fn size_before(old: &Value, new: Option<&Value>) -> Result<i32, CommandError> {
    let of_new = new.map(prepare::decode).transpose().map_err(refused)?;
    if let Some(new) = of_new.as_ref().filter(|new| new.annotations.get(HANDING_OVER).is_some()) {
        return Err(refused(format!(
            "the update of {} to {} is complete but for its last writes: finish it with the command that began it",
            name(old),
            new.meta.key.name
        )));
    }
    let of_old = prepare::decode(old).map_err(refused)?;
    size_to_return_to(&of_old, of_new.as_ref()).map_err(refused)
}

/// Moves back to OLD, and deletes NEW.
async fn back(
    cluster: &Cluster<'_>,
    old: &Value,
    (target, new): (&str, Option<&Value>),
    desired: i32,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Ended, CommandError> {
    let shrinking = new.map(|new| format!(", {} to 0", name(new))).unwrap_or_default();
    let started = (
        format!("Rolling {} back to {desired}{shrinking}", name(old)),
        json!({"isRollback": true, "desired": desired}),
    );
    let request = request(args, target, Cleanup::Delete, true);
    Drive::new(cluster, (name(old), Some(old)), new, request, Some(started), args)?.run(reporter).await
}

/// Takes the left-over NEW of another update away, so that one to something else may begin: `--replace`. OLD is as large
/// as before that update then. Returns whether it succeeded.
pub(super) async fn replace(
    cluster: &Cluster<'_>,
    old: &Value,
    left_over: &Value,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Ended, CommandError> {
    prepare::check_controller(left_over).map_err(refused)?;
    let (mut old, mut left_over) = (old.clone(), left_over.clone());
    let source = prepare::source(&old);
    if left_over["metadata"]["annotations"][SOURCE] != source.as_str() {
        // That of an object which is gone has no share in OLD's size: it becomes OLD's own, and goes.
        old = note(cluster, name(&old), ORIGINAL_REPLICAS, reporter, |old, known| {
            let replicas = old["spec"]["replicas"].as_i64().unwrap_or(1);
            known.is_none().then(|| replicas.to_string())
        })
        .await?;
        left_over = note(cluster, name(&left_over), SOURCE, reporter, |_, _| Some(source.clone())).await?;
    }
    let desired = size_before(&old, Some(&left_over))?;
    back(cluster, &old, (name(&left_over), Some(&left_over)), desired, args, reporter).await
}

/// Writes an annotation, if its value from now is to be another. Returns the controller as it is then.
async fn note(
    cluster: &Cluster<'_>,
    controller: &str,
    annotation: &str,
    reporter: &mut Reporter<'_>,
    value: impl Fn(&Value, Option<&str>) -> Option<String>,
) -> Result<Value, CommandError> {
    change(cluster, controller, reporter, |seen| {
        let value = value(seen, seen["metadata"]["annotations"][annotation].as_str());
        Ok(value.map(|value| json!({"metadata": {"annotations": {annotation: value}}})))
    })
    .await
}
