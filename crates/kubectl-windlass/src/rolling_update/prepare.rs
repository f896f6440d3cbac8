//! What a rolling update starts from: checks, and the body of NEW. Pure.

use serde_json::{Map, Value, json};
use windlass::model::{Interner, Record as _, ReplicaSet, ReplicationController};
use windlass::plan::rolling_update::bookkeeping::{
    DESIRED_REPLICAS, NEXT_CONTROLLER, ORIGINAL_REPLICAS, SOURCE, size, source_of,
};

use crate::cli::RollingUpdateArgs;

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// NEW, as it is to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct New {
    /// Its name.
    pub name: String,
    /// The whole object, with 0 replicas and its bookkeeping.
    pub body: Value,
    /// The size to reach.
    pub desired: i32,
}

/// Decodes a ReplicationController as the planner takes it.
///
/// # Errors
/// With what is wrong, when it is none.
pub fn decode(object: &Value) -> Result<ReplicaSet, String> {
    let decoded = ReplicationController::decode(&object.to_string(), &mut Interner::default());
    decoded.map(|controller| controller.0).map_err(|error| format!("not a ReplicationController: {error}"))
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// A label selector of a ReplicationController: its own, or by default the labels of its template.
pub fn selector(controller: &Value) -> Map<String, Value> {
    let own = controller["spec"]["selector"].as_object().filter(|selector| !selector.is_empty());
    let labels = || controller["spec"]["template"]["metadata"]["labels"].as_object();
    own.or_else(labels).cloned().unwrap_or_default()
}

/// Refuses a controller that cannot take part in an update.
///
/// # Errors
/// With the reason.
pub fn check_controller(controller: &Value) -> Result<(), String> {
    let name = name(controller);
    if controller["metadata"]["deletionTimestamp"].is_string() {
        return Err(format!("replicationcontroller {name} is being deleted"));
    }
    let owners = controller["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    if let Some(owner) = owners.into_iter().find(|owner| owner["controller"] == true) {
        let kind = owner["kind"].as_str().unwrap_or_default();
        let owner = owner["name"].as_str().unwrap_or_default();
        return Err(format!(
            "replicationcontroller {name} is controlled by {kind} {owner}: update that instead"
        ));
    }
    Ok(())
}

/// The index of the container whose image changes.
///
/// # Errors
/// When none or several may be meant.
pub fn container(controller: &Value, wanted: Option<&str>) -> Result<usize, String> {
    let name = name(controller);
    let containers = controller["spec"]["template"]["spec"]["containers"].as_array();
    let names: Vec<&str> = containers
        .into_iter()
        .flatten()
        .map(|container| container["name"].as_str().unwrap_or_default())
        .collect();
    match (wanted, names.len()) {
        (_, 0) => Err(format!("replicationcontroller {name} has no container")),
        (Some(wanted), _) => names.iter().position(|known| *known == wanted).ok_or_else(|| {
            format!("--container {wanted}: replicationcontroller {name} has only {}", names.join(", "))
        }),
        (None, 1) => Ok(0),
        (None, _) => Err(format!("--container must name one of {}: there are several", names.join(", "))),
    }
}

fn image(controller: &Value, container: usize) -> &str {
    controller["spec"]["template"]["spec"]["containers"][container]["image"].as_str().unwrap_or_default()
}

/// NEW as OLD with another image. `key` tells the pods of the two apart.
///
/// # Errors
/// When the image does not change, or no or several containers may be meant.
pub fn new_by_image(old: &Value, new_name: Option<&str>, args: &RollingUpdateArgs) -> Result<New, String> {
    let image_now = args.image.as_deref().unwrap_or_default();
    let container = container(old, args.container.as_deref())?;
    if image(old, container) == image_now && args.image_pull_policy.is_none() {
        return Err(format!(
            "replicationcontroller {} has the image {image_now} already, and its nodes would not pull it again: set \
             --image-pull-policy=Always to roll it out anew",
            name(old)
        ));
    }
    let mut spec = old["spec"].clone();
    let changed = &mut spec["template"]["spec"]["containers"][container];
    changed["image"] = json!(image_now);
    if let Some(policy) = &args.image_pull_policy {
        changed["imagePullPolicy"] = json!(policy);
    }
    let decoded = decode(&json!({"metadata": old["metadata"], "spec": spec}))?;
    // The generation makes the value another one in each update.
    let hash = decoded.template.hash(i32::try_from(decoded.meta.generation).ok());
    let new_name = new_name.map_or_else(|| made_name(name(old), &hash), str::to_owned);
    let key = &args.deployment_label_key;
    spec["selector"] = Value::Object(selector(old));
    spec["selector"][key] = json!(hash);
    spec["template"]["metadata"]["labels"][key] = json!(hash);
    let decoded = decode(old)?;
    let desired = size(&decoded, ORIGINAL_REPLICAS)?.unwrap_or(decoded.replicas);
    finish(old, &new_name, json!({"metadata": {"labels": old["metadata"]["labels"]}, "spec": spec}), desired)
}

fn made_name(old: &str, hash: &str) -> String {
    let longest = LONGEST_NAME - 1 - hash.len();
    let old = old.get(..longest).unwrap_or(old).trim_end_matches(['-', '.']);
    format!("{old}-{hash}")
}

/// NEW from a file.
///
/// # Errors
/// When it is no ReplicationController, has OLD's name or another namespace, or its selector does not tell its pods
/// apart from OLD's.
pub fn new_by_file(old: &Value, mut new: Value) -> Result<New, String> {
    if new["kind"] != "ReplicationController" || new["apiVersion"] != "v1" {
        let (kind, version) = (&new["kind"], &new["apiVersion"]);
        return Err(format!(
            "the file holds {kind} of {version}; a rolling update needs a ReplicationController of v1"
        ));
    }
    let new_name = name(&new).to_owned();
    if new_name.is_empty() || new_name == name(old) {
        return Err(format!(
            "the new ReplicationController must have a name, and another one than {}",
            name(old)
        ));
    }
    let namespaces = [&new["metadata"]["namespace"], &old["metadata"]["namespace"]];
    if namespaces[0].is_string() && namespaces[0] != namespaces[1] {
        return Err(format!(
            "{new_name} is in namespace {}, and {} in {}",
            namespaces[0],
            name(old),
            namespaces[1]
        ));
    }
    check_selectors(old, &new)?;
    let old_decoded = decode(old)?;
    let own_size = new["spec"]["replicas"].as_i64().and_then(|size| i32::try_from(size).ok());
    let before = size(&old_decoded, ORIGINAL_REPLICAS)?.unwrap_or(old_decoded.replicas);
    new["spec"]["selector"] = Value::Object(selector(&new));
    finish(old, &new_name, new, own_size.unwrap_or(before))
}

/// Refuses selectors that do not tell the pods of the two apart: they need a key in common with different values.
///
/// # Errors
/// With the selectors.
pub fn check_selectors(old: &Value, new: &Value) -> Result<(), String> {
    differing_key(old, new, "").map(drop).ok_or_else(|| {
        format!(
            "the selectors of {} ({}) and {} ({}) must have a key in common with different values, or each would take \
             the other's pods",
            name(old),
            Value::Object(selector(old)),
            name(new),
            Value::Object(selector(new))
        )
    })
}

/// The label key in which the selectors of the two differ: the preferred one if it does.
pub fn differing_key(old: &Value, new: &Value, preferred: &str) -> Option<String> {
    let (of_old, of_new) = (selector(old), selector(new));
    let differs = |key: &&String| of_old.get(*key).is_some_and(|value| of_new.get(*key) != Some(value));
    let mut keys = of_new.keys().filter(differs);
    let first = keys.next()?;
    let found = keys.chain([first]).find(|key| *key == preferred);
    Some(found.unwrap_or(first).clone())
}

fn finish(old: &Value, new_name: &str, from: Value, desired: i32) -> Result<New, String> {
    let decoded = decode(old)?;
    let mut body = json!({
        "apiVersion": "v1", "kind": "ReplicationController",
        "metadata": {"name": new_name, "namespace": old["metadata"]["namespace"]},
        "spec": from["spec"],
    });
    let labels = &from["metadata"]["labels"];
    if labels.is_object() {
        body["metadata"]["labels"] = labels.clone();
    }
    let mut annotations = from["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(DESIRED_REPLICAS.to_owned(), json!(desired.to_string()));
    annotations.insert(SOURCE.to_owned(), json!(source_of(&decoded.meta)));
    body["metadata"]["annotations"] = Value::Object(annotations);
    body["spec"]["replicas"] = json!(0);
    decode(&json!({"metadata": {"name": new_name, "namespace": "n", "uid": "u", "resourceVersion": "1"},
                   "spec": body["spec"]}))?;
    Ok(New { name: new_name.to_owned(), body, desired })
}

/// The size that an update which is under way has to reach.
///
/// # Errors
/// When NEW is the target of no update from OLD, or of one to something else.
pub fn resumed(old: &Value, new: &Value, args: &RollingUpdateArgs) -> Result<i32, String> {
    let (of_old, of_new) = (decode(old)?, decode(new)?);
    let source = source_of(&of_old.meta);
    let (old_name, new_name) = (name(old), name(new));
    if of_new.annotations.get(SOURCE) != Some(&source) {
        return Err(format!(
            "replicationcontroller {new_name} exists, and is not the target of an update from {old_name}: delete it or \
             choose another name"
        ));
    }
    let desired = size(&of_new, DESIRED_REPLICAS)?.ok_or_else(|| {
        format!("replicationcontroller {new_name} lacks the annotation {DESIRED_REPLICAS}: annotate it with its size")
    })?;
    if let Some(wanted) = &args.image {
        let container = container(new, args.container.as_deref())?;
        let current = image(new, container);
        if current != wanted {
            return Err(format!(
                "an update of {old_name} to the image {current} is under way: finish it with --image={current}, or \
                 take it back with --rollback, before another one to {wanted}"
            ));
        }
    }
    Ok(desired)
}

/// The target of an update that is under way: by OLD's pointer, else by the source that NEW names.
pub fn find_new<'a>(old: &Value, all: &'a [Value]) -> Option<&'a Value> {
    let of_old = decode(old).ok()?;
    let source = source_of(&of_old.meta);
    let is_source = |candidate: &&Value| candidate["metadata"]["annotations"][SOURCE] == source.as_str();
    let pointer = of_old.annotations.get(NEXT_CONTROLLER);
    let pointed = all.iter().filter(is_source).find(|candidate| pointer == Some(name(candidate)));
    pointed.or_else(|| all.iter().find(is_source))
}

/// The label value that OLD gets where its selector lacks the key.
pub fn value_for_old(old: &Value) -> Result<String, String> {
    let decoded = decode(old)?;
    Ok(format!("{}-orig", decoded.template.hash(None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old() -> Value {
        json!({
            "apiVersion": "v1", "kind": "ReplicationController",
            "metadata": {"name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "7", "generation": 3},
            "spec": {"replicas": 3, "selector": {"app": "web"},
                     "template": {"metadata": {"labels": {"app": "web"}},
                                  "spec": {"containers": [{"name": "main", "image": "app:1", "newField": 7}]}}}
        })
    }

    fn args(image: &str) -> RollingUpdateArgs {
        RollingUpdateArgs {
            image: Some(image.to_owned()),
            deployment_label_key: "deployment".to_owned(),
            ..RollingUpdateArgs::default()
        }
    }

    #[test]
    fn by_image_new_is_old_with_the_image_a_label_and_its_bookkeeping() {
        let New { name, body, desired } = new_by_image(&old(), None, &args("app:2")).unwrap();
        let hash = body["spec"]["selector"]["deployment"].as_str().unwrap().to_owned();
        assert_eq!((name, desired), (format!("web-{hash}"), 3));
        assert_eq!(body["spec"]["template"]["metadata"]["labels"], json!({"app": "web", "deployment": hash}));
        let container = &body["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(*container, json!({"name": "main", "image": "app:2", "newField": 7}));
        assert_eq!(body["spec"]["replicas"], 0);
        assert_eq!(body["metadata"]["annotations"], json!({DESIRED_REPLICAS: "3", SOURCE: "web:1"}));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        let refused = |change: fn(&mut Value), image: &str| {
            let mut old = old();
            change(&mut old);
            new_by_image(&old, None, &args(image)).unwrap_err()
        };
        assert!(refused(|_| {}, "app:1").contains("--image-pull-policy"));
        let two = |old: &mut Value| {
            let containers = &mut old["spec"]["template"]["spec"]["containers"];
            containers.as_array_mut().unwrap().push(json!({"name": "side"}));
        };
        assert!(refused(two, "app:2").contains("--container must name one of main, side"));
        let none = |old: &mut Value| old["spec"]["template"]["spec"]["containers"] = json!([]);
        assert!(refused(none, "app:2").contains("has no container"));
        for size in ["abc", "-1", "4294967295"] {
            let mut old = old();
            old["metadata"]["annotations"] = json!({ORIGINAL_REPLICAS: size});
            let error = new_by_image(&old, None, &args("app:2")).unwrap_err();
            assert!(error.contains(ORIGINAL_REPLICAS) && error.contains(size), "{error}");
        }
        let controlled = json!({"metadata": {"name": "web", "ownerReferences": [
            {"kind": "DeploymentConfig", "name": "web", "controller": true}]}});
        assert!(check_controller(&controlled).unwrap_err().contains("DeploymentConfig web"));
    }

    #[test]
    fn a_file_needs_another_name_and_a_selector_that_tells_pods_apart() {
        let file = |name: &str, version: &str| {
            json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name},
                   "spec": {"template": {"metadata": {"labels": {"app": "web", "version": version}},
                                         "spec": {"containers": []}}}})
        };
        let mut old = old();
        assert!(new_by_file(&old, file("next", "2")).unwrap_err().contains("key in common"));
        old["spec"]["selector"]["version"] = json!("1");
        let new = new_by_file(&old, file("next", "2")).unwrap();
        assert_eq!((new.desired, new.body["spec"]["replicas"].clone()), (3, json!(0)));
        assert_eq!(new.body["spec"]["selector"], json!({"app": "web", "version": "2"}));
        let mut sized = file("next", "2");
        sized["spec"]["replicas"] = json!(5);
        assert_eq!(new_by_file(&old, sized).unwrap().desired, 5);
        assert!(new_by_file(&old, file("web", "2")).unwrap_err().contains("another one than web"));
        let mut elsewhere = file("next", "2");
        elsewhere["metadata"]["namespace"] = json!("other");
        assert!(new_by_file(&old, elsewhere).unwrap_err().contains("other"));
        assert!(new_by_file(&old, json!({"kind": "Pod", "apiVersion": "v1"})).unwrap_err().contains("Pod"));
    }

    #[test]
    fn an_update_to_something_else_that_is_under_way_is_refused_with_both_ways_out() {
        let mut new = new_by_image(&old(), None, &args("app:2")).unwrap().body;
        new["metadata"]["uid"] = json!("2");
        new["metadata"]["resourceVersion"] = json!("8");
        assert_eq!(resumed(&old(), &new, &args("app:2")), Ok(3));
        let error = resumed(&old(), &new, &args("app:3")).unwrap_err();
        assert!(error.contains("--image=app:2") && error.contains("--rollback"), "{error}");
        let mut other = old();
        other["metadata"]["uid"] = json!("9");
        assert!(resumed(&other, &new, &args("app:2")).unwrap_err().contains("not the target"));
        assert_eq!(find_new(&old(), &[old(), new.clone()]).map(name), Some(name(&new)));
        assert_eq!(find_new(&other, &[old(), new]), None);
    }

    #[test]
    fn a_long_name_is_cut_to_what_an_object_may_have() {
        let made = made_name(&"a".repeat(253), "12345");
        assert_eq!((made.len(), made.ends_with("-12345")), (253, true));
    }
}
