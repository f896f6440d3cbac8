//! Back: OLD to its original size, NEW to 0 and away. `--replace` begins with it.

use serde_json::{Value, json};
use windlass::plan::rolling_update::bookkeeping::{
    HANDING_OVER, NEXT_CONTROLLER, ORIGINAL_REPLICAS, SOURCE, size, source_of,
};
use windlass::plan::rolling_update::request::STEP_AT;
use windlass::plan::rolling_update::{Bounds, Cleanup};

use super::changes::tidy;
use super::drive::{Drive, Ended, Side};
use super::prepare::{self, name};
use super::reporter::Reporter;
use super::{Cluster, refused, server_side};
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
        check_target(old, new, original)?;
        reporter.set_new(name(new));
    }
    let desired = original.unwrap_or(decoded.replicas);
    if args.dry_run {
        reporter.dry_run(&format!("Would roll {old_name} back to {desired} pods"), old, new)?;
        return Ok(Exit::Success);
    }
    if args.server_side {
        let pointer = decoded.annotations.get(NEXT_CONTROLLER);
        let gone = new.map_or("", |new| name(new));
        let target =
            server_side::request_of(old).or(pointer).or(new_name).filter(|_| new.is_none()).unwrap_or(gone);
        let annotations = server_side::rollback(target);
        return server_side::submit(cluster, old, new, &annotations, args, reporter).await;
    }
    let source = source_of(&decoded.meta);
    match back(cluster, old, new, &source, desired, args, reporter).await? {
        Ended::Failed => return Ok(Exit::RolloutFailed),
        Ended::Complete => {}
    }
    tidy(cluster, old_name, &[ORIGINAL_REPLICAS, NEXT_CONTROLLER, STEP_AT], reporter).await?;
    reporter.end("RolledBack", old_name, "rolled back")?;
    Ok(Exit::Success)
}

/// Refuses to go back from what is not the target of an update that is under way.
fn check_target(old: &Value, new: &Value, original: Option<i32>) -> Result<(), CommandError> {
    let (of_old, of_new) = (prepare::decode(old).map_err(refused)?, prepare::decode(new).map_err(refused)?);
    let (old_name, new_name) = (name(old), name(new));
    if of_new.annotations.get(SOURCE) != Some(&source_of(&of_old.meta)) {
        return Err(refused(format!("{new_name} is not the target of an update from {old_name}")));
    }
    // The last writes of an update remove OLD's original size first: its size of 0 is no size to go back to.
    let is_complete = original.is_none() && of_old.replicas == 0 && of_new.replicas > 0;
    if is_complete || of_new.annotations.get(HANDING_OVER).is_some() {
        return Err(refused(format!(
            "the update of {old_name} to {new_name} is complete but for its last writes: finish it with the command \
             that began it"
        )));
    }
    Ok(())
}

/// Moves back to OLD, and deletes NEW.
async fn back(
    cluster: &Cluster<'_>,
    old: &Value,
    new: Option<&Value>,
    source: &str,
    desired: i32,
    args: &RollingUpdateArgs,
    reporter: &mut Reporter<'_>,
) -> Result<Ended, CommandError> {
    let old_name = name(old);
    let shrinking = new.map(|new| format!(", {} to 0", name(new))).unwrap_or_default();
    let started = format!("Rolling {old_name} back to {desired}{shrinking}");
    reporter.event("Started", &started, json!({"isRollback": true, "desired": desired}))?;
    let drive = Drive {
        cluster,
        shrinking: new.map(Side::of),
        growing: Side::of(old),
        source,
        is_rollback: true,
        bounds: Bounds::resolve(desired, args.max_surge, args.max_unavailable),
        cleanup: Cleanup::Delete,
        label_key: &args.deployment_label_key,
        args,
    };
    drive.run(reporter).await
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
    let decoded = prepare::decode(old).map_err(refused)?;
    let source = prepare::decode(left_over).map_err(refused)?.annotations.get(SOURCE).map(str::to_owned);
    let source = source.unwrap_or_default();
    let original = size(&decoded, ORIGINAL_REPLICAS).map_err(refused)?;
    prepare::check_controller(left_over).map_err(refused)?;
    // That of another object has no share in OLD's size.
    if source == source_of(&decoded.meta) {
        check_target(old, left_over, original)?;
    }
    let desired = original.unwrap_or(decoded.replicas);
    let ended = back(cluster, old, Some(left_over), &source, desired, args, reporter).await?;
    if ended == Ended::Complete {
        tidy(cluster, name(old), &[ORIGINAL_REPLICAS, NEXT_CONTROLLER, STEP_AT], reporter).await?;
    }
    Ok(ended)
}
