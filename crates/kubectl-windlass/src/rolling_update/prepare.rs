//! The start of a rolling update: checks, and the body of NEW. Pure.

use serde_json::{Map, Value, json};
use windlass::model::{Interner, Record as _, ReplicaSet, ReplicationController};
use windlass::plan::rolling_update::bookkeeping::{
    DESIRED_REPLICAS, NEXT_CONTROLLER, ORIGINAL_REPLICAS, SOURCE, size, source_of,
};
use windlass::plan::rolling_update::request::{REQUEST, STEP_AT};

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
    /// Whether the label that [`RollingUpdateArgs::deployment_label_key`] names tells its pods from OLD's, so that those
    /// need one, too.
    pub needs_label: bool,
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
    let (made, hash) = made_name(old, &spec)?;
    label(&mut spec, selector(old), &args.deployment_label_key, &hash);
    let decoded = decode(old)?;
    let desired = size(&decoded, ORIGINAL_REPLICAS)?.unwrap_or(decoded.replicas);
    let new_name = new_name.map_or(made, str::to_owned);
    let from = json!({"metadata": {"labels": old["metadata"]["labels"]}, "spec": spec});
    Ok(New { needs_label: true, ..finish(old, &new_name, from, desired)? })
}

/// A selector and template whose pods have this label.
fn label(spec: &mut Value, selector: Map<String, Value>, key: &str, hash: &str) {
    spec["selector"] = Value::Object(selector);
    spec["selector"][key] = json!(hash);
    spec["template"]["metadata"]["labels"][key] = json!(hash);
}

/// A name for the successor of OLD, and the label value of its pods. The UID and the generation of OLD make it another one
/// in each update.
fn made_name(old: &Value, spec: &Value) -> Result<(String, String), String> {
    let old_name = name(old);
    let mut template = spec["template"].clone();
    let uid = old["metadata"]["uid"].as_str().unwrap_or_default();
    template["metadata"]["annotations"] = json!({SOURCE: format!("{old_name}:{uid}")});
    let decoded = decode(&json!({"metadata": old["metadata"], "spec": {"template": template}}))?;
    let hash = decoded.template.hash(i32::try_from(decoded.meta.generation).ok());
    let longest = LONGEST_NAME - 1 - hash.len();
    let kept = old_name.get(..longest).unwrap_or(old_name).trim_end_matches(['-', '.']);
    Ok((format!("{kept}-{hash}"), hash))
}

/// The error for a file that names OLD, or nothing.
pub fn same_name(old_name: &str) -> String {
    format!(
        "the new ReplicationController must have a name, and another one than {old_name}; with --keep-name, the file may \
         name {old_name} itself"
    )
}

/// NEW from a file.
///
/// # Errors
/// When it is no ReplicationController, has OLD's name without --keep-name or another namespace, or its selector does not
/// tell its pods apart from OLD's.
pub fn new_by_file(old: &Value, mut new: Value, args: &RollingUpdateArgs) -> Result<New, String> {
    if new["kind"] != "ReplicationController" || new["apiVersion"] != "v1" {
        let (kind, version) = (&new["kind"], &new["apiVersion"]);
        return Err(format!(
            "the file holds {kind} of {version}; a rolling update needs a ReplicationController of v1"
        ));
    }
    let new_name = name(&new).to_owned();
    let names_old = new_name == name(old);
    if new_name.is_empty() || (names_old && !args.keep_name) {
        return Err(same_name(name(old)));
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
    let key = &args.deployment_label_key;
    let mut needs_label = false;
    let mut made = None;
    if names_old {
        let (name, hash) = made_name(old, &new["spec"])?;
        // The file says what OLD is to be, so that its selector is mostly OLD's.
        if !are_told_apart(old, &new) {
            let mut own = selector(&new);
            own.extend(selector(old));
            let labels = &mut new["spec"]["template"]["metadata"]["labels"];
            for (key, value) in selector(old) {
                labels[key] = value;
            }
            label(&mut new["spec"], own, key, &hash);
            needs_label = true;
        }
        made = Some(name);
    } else {
        check_selectors(old, &new)?;
    }
    let old_decoded = decode(old)?;
    let own_size = new["spec"]["replicas"].as_i64().and_then(|size| i32::try_from(size).ok());
    let before = size(&old_decoded, ORIGINAL_REPLICAS)?.unwrap_or(old_decoded.replicas);
    new["spec"]["selector"] = Value::Object(selector(&new));
    let new_name = made.unwrap_or(new_name);
    Ok(New { needs_label, ..finish(old, &new_name, new, own_size.unwrap_or(before))? })
}

/// Refuses selectors that do not tell the pods of the two apart: they need a key in common with different values.
///
/// # Errors
/// With the selectors.
pub fn check_selectors(old: &Value, new: &Value) -> Result<(), String> {
    are_told_apart(old, new).then_some(()).ok_or_else(|| {
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

/// Whether the selectors of the two have a key in common with different values.
fn are_told_apart(old: &Value, new: &Value) -> bool {
    let (of_old, of_new) = (selector(old), selector(new));
    of_new.iter().any(|(key, value)| of_old.get(key).is_some_and(|of_old| of_old != value))
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
    Ok(New { name: new_name.to_owned(), body, desired, needs_label: false })
}

/// The size that an update which is under way has to reach.
///
/// # Errors
/// When NEW is the target of no update from OLD, or of one to something else.
pub fn resumed(
    old: &Value,
    new: &Value,
    from_file: Option<&Value>,
    args: &RollingUpdateArgs,
) -> Result<i32, String> {
    let (of_old, of_new) = (decode(old)?, decode(new)?);
    let source = source_of(&of_old.meta);
    let (old_name, new_name) = (name(old), name(new));
    if of_new.annotations.get(SOURCE) != Some(&source) {
        return Err(format!(
            "replicationcontroller {new_name} exists, and is not the target of an update from {old_name}: delete it or \
             choose another name; if it is left over from an update whose source is gone, pass --replace"
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
                 take it back with --rollback, before another one to {wanted}; --replace does both"
            ));
        }
    }
    // The name of a file's object tells updates apart, unless it is OLD's.
    if let Some(file) = from_file.filter(|file| name(file) == old_name)
        && images(file) != images(new)
    {
        return Err(format!(
            "an update of {old_name} to the images {} is under way: finish it with its file, or take it back with \
             --rollback, before another one to {}; --replace does both",
            images(new).join(", "),
            images(file).join(", ")
        ));
    }
    Ok(desired)
}

/// The images of the containers.
fn images(controller: &Value) -> Vec<&str> {
    let containers = controller["spec"]["template"]["spec"]["containers"].as_array();
    containers.into_iter().flatten().map(|one| one["image"].as_str().unwrap_or_default()).collect()
}

/// The source that NEW must name.
pub fn source(old: &Value) -> String {
    format!("{}:{}", name(old), old["metadata"]["uid"].as_str().unwrap_or_default())
}

/// The target of another update than the wanted one: from OLD to something else, or one with the wanted name whose
/// source is gone.
pub fn left_over<'a>(
    old: &Value,
    all: &'a [Value],
    wanted: Option<&str>,
    from_file: Option<&Value>,
    args: &RollingUpdateArgs,
) -> Option<&'a Value> {
    let of_old = find_new(old, all).filter(|new| {
        wanted.is_some_and(|wanted| wanted != name(new)) || resumed(old, new, from_file, args).is_err()
    });
    let is_of_another = |one: &&Value| {
        let named = one["metadata"]["annotations"][SOURCE].as_str();
        named.is_some_and(|named| all.iter().all(|other| source(other) != named))
    };
    of_old.or_else(|| all.iter().filter(|one| Some(name(one)) == wanted).find(is_of_another))
}

/// Refuses to begin beside an update that is under way, unless the errors of [`resumed`] say more.
///
/// # Errors
/// With the ways to go on.
pub fn refuse_left_over(old: &Value, left_over: &Value, args: &RollingUpdateArgs) -> Result<(), String> {
    let (old_name, new_name) = (name(old), name(left_over));
    if left_over["metadata"]["annotations"][SOURCE] != source(old).as_str() {
        return Ok(());
    }
    resumed(old, left_over, None, args)?;
    Err(format!(
        "an update of {old_name} to {new_name} is under way: finish it with the command that began it, or take it back \
         with --rollback, before another one; --replace does both"
    ))
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

/// Whether a client has kept the name, deleted NEW, and ended before its last write.
pub fn lacks_last_write(old: &Value, all: &[Value]) -> bool {
    let has = |annotation: &str| old["metadata"]["annotations"][annotation].is_string();
    let is_of_another = [ORIGINAL_REPLICAS, SOURCE, REQUEST].into_iter().any(has);
    has(STEP_AT) && !is_of_another && find_new(old, all).is_none()
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
        let New { name, body, desired, .. } = new_by_image(&old(), None, &args("app:2")).unwrap();
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
        let flags = args("");
        let mut old = old();
        assert!(new_by_file(&old, file("next", "2"), &flags).unwrap_err().contains("key in common"));
        old["spec"]["selector"]["version"] = json!("1");
        let new = new_by_file(&old, file("next", "2"), &flags).unwrap();
        assert_eq!((new.desired, new.body["spec"]["replicas"].clone()), (3, json!(0)));
        assert_eq!(new.body["spec"]["selector"], json!({"app": "web", "version": "2"}));
        let mut sized = file("next", "2");
        sized["spec"]["replicas"] = json!(5);
        assert_eq!(new_by_file(&old, sized, &flags).unwrap().desired, 5);
        assert!(new_by_file(&old, file("web", "2"), &flags).unwrap_err().contains("--keep-name"));
        let mut elsewhere = file("next", "2");
        elsewhere["metadata"]["namespace"] = json!("other");
        assert!(new_by_file(&old, elsewhere, &flags).unwrap_err().contains("other"));
        let pod = json!({"kind": "Pod", "apiVersion": "v1"});
        assert!(new_by_file(&old, pod, &flags).unwrap_err().contains("Pod"));
    }

    #[test]
    fn with_keep_name_a_file_may_describe_what_old_is_to_be() {
        let flags = RollingUpdateArgs { keep_name: true, ..args("") };
        let mut next = old();
        next["metadata"] = json!({"name": "web", "annotations": {"team": "a"}});
        next["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
        let New { name, body, desired, needs_label } = new_by_file(&old(), next.clone(), &flags).unwrap();
        let hash = body["spec"]["selector"]["deployment"].as_str().unwrap().to_owned();
        assert_eq!((name, desired, needs_label), (format!("web-{hash}"), 3, true));
        assert_eq!(body["spec"]["selector"], json!({"app": "web", "deployment": hash}));
        assert_eq!(body["spec"]["template"]["metadata"]["labels"], body["spec"]["selector"]);
        assert_eq!(body["metadata"]["annotations"]["team"], "a");
        assert_eq!(body["spec"]["template"]["metadata"]["annotations"], Value::Null);
        // A key that tells the pods apart already is enough.
        let mut labelled = old();
        labelled["spec"]["selector"]["version"] = json!("1");
        next["spec"]["selector"]["version"] = json!("2");
        next["spec"]["template"]["metadata"]["labels"]["version"] = json!("2");
        let new = new_by_file(&labelled, next, &flags).unwrap();
        assert!(!new.needs_label);
        assert_eq!(new.body["spec"]["selector"], json!({"app": "web", "version": "2"}));
    }

    #[test]
    fn a_made_name_differs_by_template_uid_and_generation_of_old() {
        let made = |change: fn(&mut Value), image: &str| {
            let mut old = old();
            change(&mut old);
            new_by_image(&old, None, &args(image)).unwrap().name
        };
        let all = [
            made(|_| {}, "app:2"),
            made(|_| {}, "app:3"),
            made(|old| old["metadata"]["uid"] = json!("2"), "app:2"),
            made(|old| old["metadata"]["generation"] = json!(4), "app:2"),
        ];
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), 4, "{all:?}");
        assert_eq!(all[0], made(|_| {}, "app:2"));
    }

    #[test]
    fn an_update_to_something_else_that_is_under_way_is_refused_with_both_ways_out() {
        let mut new = new_by_image(&old(), None, &args("app:2")).unwrap().body;
        new["metadata"]["uid"] = json!("2");
        new["metadata"]["resourceVersion"] = json!("8");
        assert_eq!(resumed(&old(), &new, None, &args("app:2")), Ok(3));
        let error = resumed(&old(), &new, None, &args("app:3")).unwrap_err();
        assert!(error.contains("--image=app:2") && error.contains("--rollback"), "{error}");
        let mut other = old();
        other["metadata"]["uid"] = json!("9");
        assert!(resumed(&other, &new, None, &args("app:2")).unwrap_err().contains("not the target"));
        assert_eq!(find_new(&old(), &[old(), new.clone()]).map(name), Some(name(&new)));
        assert_eq!(find_new(&other, &[old(), new]), None);
    }

    #[test]
    fn a_long_name_is_cut_to_what_an_object_may_have() {
        let mut old = old();
        old["metadata"]["name"] = json!("a".repeat(253));
        let (made, hash) = made_name(&old, &old["spec"]).unwrap();
        assert_eq!((made.len(), made.ends_with(&format!("a-{hash}"))), (253, true));
    }
}
