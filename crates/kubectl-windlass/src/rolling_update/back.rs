//! Back: OLD to its original size, NEW to 0 and away. `--replace` begins with it.

use serde_json::{Value, json};
use windlass::plan::rolling_update::bookkeeping::{
    HANDING_OVER, NEXT_CONTROLLER, ORIGINAL_REPLICAS, SOURCE, size, size_to_return_to, source_of,
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
    let desired = match new {
        Some(new) => {
            reporter.set_new(name(new));
            size_before(old, new)?
        }
        None => size_to_return_to(&decoded, None).map_err(refused)?,
    };
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

/// The size to which an update that is under way goes back.
fn size_before(old: &Value, new: &Value) -> Result<i32, CommandError> {
    let (of_old, of_new) = (prepare::decode(old).map_err(refused)?, prepare::decode(new).map_err(refused)?);
    let original = size(&of_old, ORIGINAL_REPLICAS).map_err(refused)?;
    // The last writes of an update remove OLD's original size first: its size of 0 is no size to go back to.
    let is_complete = original.is_none() && of_old.replicas == 0 && of_new.replicas > 0;
    let is_of_old = of_new.annotations.get(SOURCE) == Some(&source_of(&of_old.meta));
    if is_of_old && (is_complete || of_new.annotations.get(HANDING_OVER).is_some()) {
        return Err(refused(format!(
            "the update of {} to {} is complete but for its last writes: finish it with the command that began it",
            name(old),
            name(new)
        )));
    }
    size_to_return_to(&of_old, Some(&of_new)).map_err(refused)
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
    prepare::check_controller(left_over).map_err(refused)?;
    let desired = if source == source_of(&decoded.meta) {
        size_before(old, left_over)?
    } else {
        // That of another object has no share in OLD's size.
        size(&decoded, ORIGINAL_REPLICAS).map_err(refused)?.unwrap_or(decoded.replicas)
    };
    let ended = back(cluster, old, Some(left_over), &source, desired, args, reporter).await?;
    if ended == Ended::Complete {
        tidy(cluster, name(old), &[ORIGINAL_REPLICAS, NEXT_CONTROLLER, STEP_AT], reporter).await?;
    }
    Ok(ended)
}
