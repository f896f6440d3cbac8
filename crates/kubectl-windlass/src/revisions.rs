//! The revisions of a Deployment, StatefulSet or DaemonSet: its ReplicaSets or ControllerRevisions, the templates in them, and the
//! way back to one. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use similar::TextDiff;
use windlass::model::CONTROLLER_REVISION_HASH;
use windlass::model::template::POD_TEMPLATE_HASH;
use windlass::plan::deployment::revision::{NOT_COPIED, REVISION};

use crate::target::Kind;
use crate::text::harmless;

/// Why a revision was made, as its author says.
const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// The annotation in which `kubectl apply` keeps the configuration that it applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A revision that is in the history.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Its number.
    pub number: i64,
    /// Whether it has the current template.
    pub is_current: bool,
    /// The name of the ReplicaSet or ControllerRevision.
    pub source: String,
    /// When that was created.
    pub created: Option<Timestamp>,
    /// How many pods it has; `None` if they could not be listed.
    pub pods: Option<i64>,
    /// The images of its containers, in their order.
    pub images: String,
    /// Why it was made, if its author says so.
    pub cause: Option<String>,
    /// The pod template, without the label of its hash.
    pub template: Value,
    /// The annotations of the ReplicaSet; none of a ControllerRevision, which keeps those of the whole StatefulSet.
    annotations: BTreeMap<String, Value>,
}

/// The revisions of a Deployment, the lowest number first. ReplicaSets of others are left out, and those without a number.
pub fn of(deployment: &Value, replica_sets: &[Value]) -> Vec<Revision> {
    let current = number(deployment);
    let is_own = |replica_set: &&Value| controls(deployment, replica_set);
    let mut revisions: Vec<Revision> = replica_sets
        .iter()
        .filter(is_own)
        .filter_map(|replica_set| {
            let number = number(replica_set)?;
            let annotations = annotations(replica_set);
            let cause = annotations.get(CHANGE_CAUSE).and_then(Value::as_str).map(harmless);
            let text =
                |pointer: &str| replica_set.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            Some(Revision {
                number,
                is_current: current == Some(number),
                source: text("/metadata/name").to_owned(),
                created: text("/metadata/creationTimestamp").parse().ok(),
                pods: Some(replica_set["status"]["replicas"].as_i64().unwrap_or_default()),
                images: images(&replica_set["spec"]["template"]),
                cause: cause.filter(|cause| !cause.is_empty()),
                template: template(replica_set),
                annotations,
            })
        })
        .collect();
    revisions.sort_by(|a, b| (a.number, &a.source).cmp(&(b.number, &b.source)));
    revisions
}

fn controls(owner: &Value, object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    owners.any(|reference| reference["controller"] == true && reference["uid"] == owner["metadata"]["uid"])
}

/// The revisions of a StatefulSet or DaemonSet, the lowest number first, and how many of `pods` each has.
/// ControllerRevisions of others are left out, and those without a template.
pub fn of_controller_revisions(
    kind: Kind,
    set: &Value,
    controller_revisions: &[Value],
    pods: Option<&[Value]>,
) -> Vec<Revision> {
    let now = template(set);
    let is_observed = set["status"]["observedGeneration"].as_i64() >= set["metadata"]["generation"].as_i64();
    // A DaemonSet does not say which revision is current.
    let names_current = is_observed && kind == Kind::StatefulSet;
    let mut revisions: Vec<Revision> = controller_revisions
        .iter()
        .filter(|revision| controls(set, revision))
        .filter_map(|revision| {
            let mut template = revision["data"]["spec"]["template"].clone();
            template.as_object_mut()?.remove("$patch");
            let name = revision["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            // The pods of a StatefulSet are labelled with the name of their revision, those of a DaemonSet with its hash.
            let label = match kind {
                Kind::StatefulSet => name.as_str(),
                _ => revision["metadata"]["labels"][CONTROLLER_REVISION_HASH].as_str().unwrap_or_default(),
            };
            let is_of = |pod: &&Value| {
                pod["metadata"]["labels"][CONTROLLER_REVISION_HASH] == label && controls(set, pod)
            };
            let count = |pods: &[Value]| i64::try_from(pods.iter().filter(is_of).count()).unwrap_or(i64::MAX);
            let cause = revision["metadata"]["annotations"][CHANGE_CAUSE].as_str().map(harmless);
            Some(Revision {
                number: revision["revision"].as_i64()?,
                // A template that no controller has seen yet may be that of an earlier revision.
                is_current: match names_current {
                    true => set["status"]["updateRevision"] == name.as_str(),
                    false => template == now,
                },
                created: revision["metadata"]["creationTimestamp"].as_str().and_then(|at| at.parse().ok()),
                pods: pods.map(count),
                images: images(&template),
                cause: cause.filter(|cause| !cause.is_empty()),
                template,
                annotations: BTreeMap::new(),
                source: name,
            })
        })
        .collect();
    revisions.sort_by(|a, b| (a.number, &a.source).cmp(&(b.number, &b.source)));
    revisions
}

fn number(object: &Value) -> Option<i64> {
    object["metadata"]["annotations"][REVISION].as_str()?.parse().ok()
}

fn annotations(object: &Value) -> BTreeMap<String, Value> {
    let all = object["metadata"]["annotations"].as_object();
    all.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn images(template: &Value) -> String {
    let containers = template["spec"]["containers"].as_array();
    let images: Vec<String> = containers
        .into_iter()
        .flatten()
        .filter_map(|container| Some(harmless(container["image"].as_str()?)))
        .collect();
    images.join(", ")
}

/// The pod template of a Deployment, ReplicaSet or StatefulSet, without the label of its hash.
fn template(object: &Value) -> Value {
    let mut template = object["spec"]["template"].clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(POD_TEMPLATE_HASH);
    }
    template
}

/// The revision of this number.
///
/// # Errors
/// With the numbers that there are, if it has none.
pub fn numbered(revisions: &[Revision], number: i64) -> Result<&Revision, String> {
    revisions.iter().rev().find(|revision| revision.number == number).ok_or_else(|| {
        let known: Vec<String> = revisions.iter().map(|revision| revision.number.to_string()).collect();
        format!("revision {number} is not in the history; it has {}", known.join(", "))
    })
}

/// The newest revision below this number; without a number, below the current one.
///
/// # Errors
/// If there is none.
pub fn before(revisions: &[Revision], number: Option<i64>) -> Result<&Revision, String> {
    let current = revisions.iter().rev().find(|revision| revision.is_current).or(revisions.last());
    let number = number.or(current.map(|revision| revision.number));
    let earlier = revisions.iter().rev().find(|revision| Some(revision.number) < number);
    earlier.ok_or_else(|| "there is no earlier revision in the history".to_owned())
}

/// Reads `A..B`, where both ends may be missing: by default the last two revisions.
///
/// # Errors
/// With what is wrong.
pub fn range<'a>(revisions: &'a [Revision], text: &str) -> Result<(&'a Revision, &'a Revision), String> {
    let (from, to) = text.split_once("..").unwrap_or((text, ""));
    let parse = |end: &str| match end {
        "" => Ok(None),
        _ => end.parse().map(Some).map_err(|_| format!("{text:?} is not a range of revisions such as 3..5")),
    };
    let (from, to): (Option<i64>, Option<i64>) = (parse(from)?, parse(to)?);
    let to = match to {
        Some(number) => numbered(revisions, number)?,
        None => {
            let current = revisions.iter().rev().find(|revision| revision.is_current);
            current.or(revisions.last()).ok_or("there is no revision in the history")?
        }
    };
    let from = match from {
        Some(number) => numbered(revisions, number)?,
        None => before(revisions, Some(to.number))?,
    };
    Ok((from, to))
}

/// A template as YAML.
///
/// # Errors
/// When it cannot be written, which cannot happen to JSON from a server.
pub fn yaml(template: &Value) -> Result<String, String> {
    serde_saphyr::to_string(template).map_err(|error| error.to_string())
}

/// The difference between two templates, as a unified diff of their YAML; empty if there is none.
///
/// # Errors
/// As [`yaml`].
pub fn difference(from: (&str, &Value), to: (&str, &Value)) -> Result<String, String> {
    let (old, new) = (yaml(from.1)?, yaml(to.1)?);
    if old == new {
        return Ok(String::new());
    }
    Ok(TextDiff::from_lines(&old, &new).unified_diff().header(from.0, to.0).to_string())
}

/// The way back to a revision.
#[derive(Clone, Debug, PartialEq)]
pub struct WayBack {
    /// The operations of a JSON patch of the object; empty if it has that template already.
    pub operations: Vec<Value>,
    /// The changes, as a unified diff.
    pub difference: String,
}

/// The way of a StatefulSet or DaemonSet back to a revision: its template, and nothing else (kubectl `rollback.go`).
///
/// # Errors
/// As [`yaml`].
pub fn way_back_of_template(set: &Value, to: &Revision) -> Result<WayBack, String> {
    let header = format!("revision {}", to.number);
    let difference = difference(("now", &set["spec"]["template"]), (&header, &to.template))?;
    let operation = json!({"op": "replace", "path": "/spec/template", "value": to.template});
    let operations = if difference.is_empty() { Vec::new() } else { vec![operation] };
    Ok(WayBack { operations, difference })
}

/// The way of a Deployment back to a revision: its template, and the annotations that belong to the revision.
///
/// # Errors
/// If the Deployment is paused, which would hide that nothing is rolled out; or as [`yaml`].
pub fn way_back(deployment: &Value, to: &Revision, kubectl: &str) -> Result<WayBack, String> {
    if deployment["spec"]["paused"] == true {
        let text = |field: &str| deployment["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        return Err(format!(
            "deployment {name} is paused: resume it first, by `{kubectl} rollout resume -n {namespace} deploy/{name}`"
        ));
    }
    let now = template(deployment);
    let header = format!("revision {}", to.number);
    let difference = difference(("now", &now), (&header, &to.template))?;
    if difference.is_empty() {
        return Ok(WayBack { operations: Vec::new(), difference });
    }
    // These say something about the Deployment as it is now, and not about a revision (kubectl `rollback.go`).
    let of_the_deployment = |key: &str| NOT_COPIED.contains(&key);
    let own = annotations(deployment).into_iter().filter(|(key, _)| of_the_deployment(key));
    let theirs = to.annotations.clone().into_iter().filter(|(key, _)| !of_the_deployment(key));
    let annotations: serde_json::Map<String, Value> = own.chain(theirs).collect();
    let operations = vec![
        json!({"op": "replace", "path": "/spec/template", "value": to.template}),
        json!({"op": "add", "path": "/metadata/annotations", "value": annotations}),
    ];
    Ok(WayBack { operations, difference })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(revision: i64, image: &str) -> Value {
        json!({
            "metadata": {"name": "web", "uid": "u",
                "annotations": {REVISION: revision.to_string(), LAST_APPLIED: "{}", "team": "shop"}},
            "spec": {"template": {"metadata": {"labels": {"app": "web"}},
                                  "spec": {"containers": [{"name": "app", "image": image}]}}},
        })
    }

    fn replica_set(revision: &str, image: &str, owner: &str) -> Value {
        json!({
            "metadata": {"name": format!("web-{image}"), "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {REVISION: revision, CHANGE_CAUSE: format!("to {image}\u{1b}[2J"), "team": "old"},
                "ownerReferences": [{"uid": owner, "controller": true}]},
            "spec": {"template": {"metadata": {"labels": {"app": "web", POD_TEMPLATE_HASH: "x"}},
                                  "spec": {"containers": [{"name": "app", "image": image}]}}},
            "status": {"replicas": 2},
        })
    }

    fn history() -> (Value, Vec<Revision>) {
        let deployment = deployment(10, "c");
        let sets = [
            replica_set("10", "c", "u"),
            replica_set("9", "b", "u"),
            replica_set("2", "a", "u"),
            replica_set("11", "z", "another"),
            replica_set("many", "y", "u"),
        ];
        let revisions = of(&deployment, &sets);
        (deployment, revisions)
    }

    #[test]
    fn revisions_are_those_of_its_own_replica_sets_in_the_order_of_their_numbers() {
        let (_, revisions) = history();
        let shown: Vec<(i64, &str, bool)> =
            revisions.iter().map(|known| (known.number, known.images.as_str(), known.is_current)).collect();
        assert_eq!(shown, [(2, "a", false), (9, "b", false), (10, "c", true)]);
        assert_eq!(revisions[0].cause.as_deref(), Some("to a[2J"));
        assert!(revisions[0].template["metadata"]["labels"].get(POD_TEMPLATE_HASH).is_none());
    }

    fn controller_revision(number: i64, image: &str, owner: &str) -> Value {
        json!({
            "metadata": {"name": format!("db-{image}"), "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {CHANGE_CAUSE: format!("to {image}")},
                "ownerReferences": [{"uid": owner, "controller": true}]},
            "revision": number,
            "data": {"spec": {"template": {"$patch": "replace", "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "app", "image": image}]}}}},
        })
    }

    /// A StatefulSet whose template is that of revision 2.
    fn stateful_set() -> (Value, Vec<Revision>) {
        let set = json!({
            "metadata": {"name": "db", "uid": "u", "generation": 5, "annotations": {"team": "shop"}},
            "spec": {"template": {"metadata": {"labels": {"app": "db"}},
                                  "spec": {"containers": [{"name": "app", "image": "b"}]}}},
            "status": {"observedGeneration": 5, "updateRevision": "db-b", "currentRevision": "db-a"},
        });
        let pod = |owner: &str, revision: &str| {
            json!({"metadata": {"labels": {CONTROLLER_REVISION_HASH: revision},
                                "ownerReferences": [{"uid": owner, "controller": true}]}})
        };
        let pods = [pod("u", "db-a"), pod("u", "db-a"), pod("u", "db-b"), pod("another", "db-b")];
        let revisions = [
            controller_revision(12, "b", "u"),
            controller_revision(9, "a", "u"),
            controller_revision(11, "z", "another"),
            json!({"metadata": {"ownerReferences": [{"uid": "u", "controller": true}]}, "revision": 1, "data": {}}),
        ];
        let history = of_controller_revisions(Kind::StatefulSet, &set, &revisions, Some(&pods));
        (set, history)
    }

    #[test]
    fn revisions_of_a_statefulset_are_its_controller_revisions_and_the_way_back_is_the_template_alone() {
        let (set, history) = stateful_set();
        let shown: Vec<_> = history.iter().map(|it| (it.number, it.pods, it.is_current)).collect();
        assert_eq!(shown, [(9, Some(2), false), (12, Some(1), true)]);
        assert_eq!(history[0].cause.as_deref(), Some("to a"));
        let back = way_back_of_template(&set, before(&history, None).unwrap()).unwrap();
        let [operation] = &back.operations[..] else { panic!("{back:?}") };
        assert_eq!(operation["path"], "/spec/template");
        assert_eq!(operation["value"]["spec"]["containers"][0]["image"], "a");
        assert!(operation["value"].get("$patch").is_none());
        let same = way_back_of_template(&set, numbered(&history, 12).unwrap()).unwrap();
        assert_eq!(same, WayBack { operations: Vec::new(), difference: String::new() });
        assert!(numbered(&history, 3).unwrap_err().contains("it has 9, 12"));
    }

    #[test]
    fn a_range_without_an_end_means_the_last_two() {
        let (_, revisions) = history();
        let read = |text: &str| range(&revisions, text).map(|(from, to)| (from.number, to.number));
        assert_eq!(read(".."), Ok((9, 10)));
        assert_eq!(read("2.."), Ok((2, 10)));
        assert_eq!(read("..9"), Ok((2, 9)));
        assert_eq!(read("10..2"), Ok((10, 2)));
        assert_eq!(read("3..9"), Err("revision 3 is not in the history; it has 2, 9, 10".to_owned()));
        assert_eq!(read("..2"), Err("there is no earlier revision in the history".to_owned()));
        assert!(read("a..b").unwrap_err().contains("3..5"));
    }

    #[test]
    fn the_way_back_keeps_what_says_something_about_the_deployment() {
        let (deployment, revisions) = history();
        let back = way_back(&deployment, before(&revisions, None).unwrap(), "kubectl").unwrap();
        assert_eq!(back.operations[0]["value"]["spec"]["containers"][0]["image"], "b");
        assert_eq!(
            back.operations[1]["value"],
            json!({REVISION: "10", LAST_APPLIED: "{}", "team": "old", CHANGE_CAUSE: "to b\u{1b}[2J"})
        );
        assert!(back.difference.starts_with("--- now\n+++ revision 9\n"), "{}", back.difference);
        assert!(back.difference.contains("image: c\n") && back.difference.contains("image: b\n"));
    }

    #[test]
    fn there_is_no_way_to_where_it_is_and_none_of_a_paused_one() {
        let (mut deployment, revisions) = history();
        let same = way_back(&deployment, numbered(&revisions, 10).unwrap(), "kubectl").unwrap();
        assert_eq!(same, WayBack { operations: Vec::new(), difference: String::new() });
        deployment["spec"]["paused"] = true.into();
        assert!(way_back(&deployment, &revisions[0], "kubectl").unwrap_err().contains("is paused"));
    }
}
