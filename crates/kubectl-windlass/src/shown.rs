//! Writes to the version of an object that the user was shown, or to one that differs in its status alone: while a rollout
//! is under way, its controller writes the status every second.

use serde_json::Value;
use windlass::plan::deployment::revision::REVISION;

use crate::api::Api;
use crate::cli::DryRun;
use crate::exit::CommandError;
use crate::target::WorkloadKey;
use crate::write;

/// How often a write is tried where only the status has changed since it was read.
const TRIES: usize = 5;

/// Whether something that a user decides on is another than before. The status is not, and neither is the revision: each
/// command names the one that it means.
fn is_another(before: &Value, after: &Value) -> bool {
    let annotations = |object: &Value| {
        let mut annotations = object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        annotations.remove(REVISION);
        annotations
    };
    before["metadata"]["uid"] != after["metadata"]["uid"]
        || before["spec"] != after["spec"]
        || annotations(before) != annotations(after)
}

/// Applies the operations of a JSON patch, which depend on the object as it is stored.
///
/// # Errors
/// When the object has changed, is gone, or the server refuses the patch.
pub async fn replace(
    api: &Api,
    key: &WorkloadKey,
    mut seen: Value,
    dry_run: DryRun,
    operations: impl Fn(&Value) -> Result<Vec<Value>, CommandError>,
) -> Result<(), CommandError> {
    let (object, path) = (key.described(), key.path());
    for _ in 0..TRIES {
        let operations = operations(&seen)?;
        let written = match dry_run {
            DryRun::Server => write::try_replace(api, &object, &path, &seen, operations).await,
            _ => write::replace(api, &object, &path, &seen, operations).await,
        };
        match written {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == Some(409) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(now) = api.get(&object, &path).await? else { return Err(key.missing(api).await) };
        if is_another(&seen, &now) {
            break;
        }
        seen = now;
    }
    let changed = "it has changed since it was read: look at it again with the same command";
    Err(CommandError::Argument(format!("{object}: {changed}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_new_status_is_no_change_and_a_new_template_or_annotation_is() {
        let object = |image: &str, steps: &str, revision: &str, ready: i64| {
            json!({"metadata": {"uid": "u", "annotations": {"windlass.dev/steps": steps,
                                "deployment.kubernetes.io/revision": revision}},
                   "spec": {"image": image}, "status": {"readyReplicas": ready}})
        };
        let before = object("a", "1", "6", 1);
        assert!(!is_another(&before, &object("a", "1", "7", 2)));
        assert!(is_another(&before, &object("b", "1", "6", 1)));
        assert!(is_another(&before, &object("a", "2", "6", 1)));
    }
}
