//! A ReplicaSet or pod stands for the object that controls it.

use serde_json::Value;
use windlass::model::ObjectKey;

use crate::absent;
use crate::api::Api;
use crate::exit::CommandError;
use crate::kind::Kind;
use crate::target::Target;
use crate::text::harmless;

/// Replaces ReplicaSets and pods by what controls them in the end, each with a note that says so. A ReplicaSet without a
/// controller stands for itself.
///
/// # Errors
/// When an object does not exist or cannot be read, a pod has no controller, or the controller is of another kind.
pub async fn follow(api: &Api, targets: Vec<Target>) -> Result<(Vec<Target>, Vec<String>), CommandError> {
    let (mut followed, mut notes) = (Vec::new(), Vec::new());
    for target in targets {
        let owner = match target.kind {
            Kind::ReplicaSet | Kind::Pod => {
                let (owner, way) = owner(api, &target).await?;
                if !way.is_empty() {
                    let way = way.join(", which is controlled by ");
                    notes.push(format!("{}/{} is controlled by {way}", target.kind.short(), target.name));
                }
                owner
            }
            _ => target,
        };
        if !followed.contains(&owner) {
            followed.push(owner);
        }
    }
    Ok((followed, notes))
}

/// The object that controls another in the end, and the way to it: `rs/web-1`, `deploy/web`.
async fn owner(api: &Api, target: &Target) -> Result<(Target, Vec<String>), CommandError> {
    let (mut at, mut way, mut wanted) = (target.clone(), Vec::new(), None::<String>);
    loop {
        let path = at.kind.resource().path_of(&ObjectKey::new(api.namespace.as_str(), at.name.as_str()));
        let Some(found) = api.get(&format!("{} {}", at.kind.singular(), at.name), &path).await? else {
            // The garbage collector will delete what an owner has left.
            return Err(absent::error(api, &at.kind.resource(), &api.namespace, &at.name).await);
        };
        let here = format!("{}/{}", at.kind.singular(), at.name);
        if wanted.is_some_and(|uid| found["metadata"]["uid"] != uid) {
            return Err(CommandError::Argument(format!(
                "the controller {here} of {}/{} is gone, and another object has its name",
                target.kind.singular(),
                target.name
            )));
        }
        // Only a ReplicaSet has an owner of its own that a command is about.
        if !matches!(at.kind, Kind::ReplicaSet | Kind::Pod) {
            return Ok((at, way));
        }
        // A pod, its ReplicaSet and the Deployment: who writes references may close a circle.
        if way.len() > 2 {
            return Err(CommandError::Argument(format!("{here}: its ownerReferences form a circle")));
        }
        let Some((word, name, uid)) = controller(&found) else {
            return match at.kind {
                Kind::Pod => Err(CommandError::Argument(format!("pod/{} has no controller", at.name))),
                _ => Ok((at, way)),
            };
        };
        let Some(kind) = Kind::parse(&word).filter(|kind| *kind != Kind::Pod) else {
            return Err(CommandError::Argument(format!(
                "{here} is controlled by {word}/{name}, a kind that this command does not know"
            )));
        };
        way.push(format!("{}/{name}", kind.short()));
        (at, wanted) = (Target { kind, name }, Some(uid));
    }
}

/// Kind, name and UID of the controller of an object: `deployment.apps`, since other groups have kinds of the same names.
fn controller(object: &Value) -> Option<(String, String, String)> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let text = |field: &str| owner[field].as_str().map(harmless);
    let group = text("apiVersion")?.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
    Some((format!("{}{group}", text("kind")?.to_lowercase()), text("name")?, text("uid")?))
}

/// Whether an object stands for itself: a ReplicaSet that another object controls is part of that, and a Job of its CronJob.
pub fn is_workload(kind: Kind, object: &Value) -> bool {
    match kind {
        Kind::ReplicaSet => controller(object).is_none(),
        Kind::Job => controller(object).is_none_or(|(word, ..)| word != "cronjob.batch"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_controller_of_another_group_is_no_workload_of_ours() {
        let of = |version: &str| {
            let owner = json!({"apiVersion": version, "kind": "StatefulSet", "name": "db", "uid": "u", "controller": true});
            let (word, name, _) = controller(&json!({"metadata": {"ownerReferences": [owner]}})).unwrap();
            (Kind::parse(&word), name)
        };
        assert_eq!(of("apps/v1"), (Some(Kind::StatefulSet), "db".to_owned()));
        assert_eq!(of("apps.kruise.io/v1beta1").0, None);
        assert_eq!(controller(&json!({"metadata": {"ownerReferences": [{"name": "x"}]}})), None);
    }

    #[test]
    fn parts_of_other_workloads_are_no_workloads() {
        let owned_by = |kind: &str| {
            let owner = json!({"apiVersion": "batch/v1", "kind": kind, "name": "web", "uid": "u", "controller": true});
            json!({"metadata": {"name": "web-1", "ownerReferences": [owner]}})
        };
        assert!(!is_workload(Kind::ReplicaSet, &owned_by("Deployment")));
        assert!(is_workload(Kind::ReplicaSet, &json!({"metadata": {"name": "loose"}})));
        assert!(
            is_workload(Kind::Job, &owned_by("Workflow")) && !is_workload(Kind::Job, &owned_by("CronJob"))
        );
    }
}
