//! LimitRanges: the defaults that containers get, and the bounds that containers and pods are held to (upstream
//! `plugin/pkg/admission/limitranger`). Bounds of claims are not enforced.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::pod_resources::{self, Amounts, amounts};
use crate::kinds::Kind;
use crate::object::{as_map, map_mut, metadata_mut};
use crate::quantity::Quantity;
use crate::status::Failure;
use crate::store::Store;

/// Says in a pod what it got.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The LimitRanges that a new object of this kind has to do with, by name.
pub(crate) fn of(store: &Store, kind: &Kind, namespace: &str) -> Vec<Arc<Value>> {
    if kind.storage() != "Pod" {
        return Vec::new();
    }
    let ranges = store.list("LimitRange", namespace, None, None);
    ranges.map(|ranges| ranges.objects.iter().map(|(_, range)| range.value()).collect()).unwrap_or_default()
}

fn items<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let limits = range["spec"]["limits"].as_array().into_iter().flatten();
    limits.filter(move |item| item["type"] == kind)
}

/// Gives the containers of a pod the requests and limits that they lack. Of several LimitRanges the first decides.
pub(crate) fn set_defaults(pod: &mut Value, ranges: &[Arc<Value>]) {
    for range in ranges {
        let (mut requests, mut limits) = (json!({}), json!({}));
        for item in items(range, "Container") {
            for (from, into) in [("defaultRequest", &mut requests), ("default", &mut limits)] {
                as_map(into).extend(item[from].as_object().cloned().unwrap_or_default());
            }
        }
        let mut notes = Vec::new();
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            let Some(containers) = pod["spec"][list].as_array_mut() else { continue };
            for container in containers {
                let name = container["name"].as_str().unwrap_or_default().to_owned();
                for (field, defaults) in [("requests", &requests), ("limits", &limits)] {
                    let set = fill(map_mut(container, "resources"), field, defaults);
                    if !set.is_empty() {
                        let field = field.trim_end_matches('s');
                        notes.push(format!("{} {field} for {what} {name}", set.join(", ")));
                    }
                }
            }
        }
        if !notes.is_empty() {
            let text = format!("LimitRanger plugin set: {}", notes.join("; "));
            let annotations = metadata_mut(pod).entry("annotations").or_insert(Value::Null);
            as_map(annotations).insert(ANNOTATION.to_owned(), text.into());
        }
    }
}

/// Which of the defaults were missing.
fn fill(resources: &mut Map<String, Value>, field: &str, defaults: &Value) -> Vec<String> {
    let Some(defaults) = defaults.as_object().filter(|defaults| !defaults.is_empty()) else {
        return Vec::new();
    };
    let present = as_map(resources.entry(field).or_insert(Value::Null));
    let mut set = Vec::new();
    for (name, amount) in defaults {
        if !present.contains_key(name) {
            present.insert(name.clone(), amount.clone());
            set.push(name.clone());
        }
    }
    set.sort();
    set
}

/// Refuses a pod that is out of bounds.
pub(crate) fn check(kind: &Kind, name: &str, pod: &Value, ranges: &[Arc<Value>]) -> Result<(), Failure> {
    for range in ranges {
        let mut why: Vec<String> = Vec::new();
        let spec = &pod["spec"];
        for item in items(range, "Container") {
            for container in
                ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array()).flatten()
            {
                let of = |field| pod_resources::of_container(container, field);
                bounds(item, "Container", &of("requests"), &of("limits"), &mut why);
            }
        }
        for item in items(range, "Pod") {
            let of = |field| pod_resources::of_pod(spec, field);
            bounds(item, "Pod", &of("requests"), &of("limits"), &mut why);
        }
        let mut distinct: Vec<String> = Vec::new();
        why.into_iter().for_each(|line| {
            if !distinct.contains(&line) {
                distinct.push(line);
            }
        });
        match distinct.as_slice() {
            [] => {}
            [one] => return Err(Failure::forbidden(kind, name, one)),
            several => return Err(Failure::forbidden(kind, name, &format!("[{}]", several.join(", ")))),
        }
    }
    Ok(())
}

fn bounds(item: &Value, of: &str, requests: &Amounts, limits: &Amounts, why: &mut Vec<String>) {
    for (name, least) in amounts(&item["min"]) {
        let text = least.canonical();
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => {
                why.push(format!("minimum {name} usage per {of} is {text}.  No request is specified"));
            }
            (Some(request), _) if *request < least => {
                let request = request.canonical();
                why.push(format!("minimum {name} usage per {of} is {text}, but request is {request}"));
            }
            (_, Some(limit)) if *limit < least => {
                let limit = limit.canonical();
                why.push(format!("minimum {name} usage per {of} is {text}, but limit is {limit}"));
            }
            _ => {}
        }
    }
    for (name, most) in amounts(&item["max"]) {
        let text = most.canonical();
        match (requests.get(&name), limits.get(&name)) {
            (_, None) => why.push(format!("maximum {name} usage per {of} is {text}.  No limit is specified")),
            (_, Some(limit)) if *limit > most => {
                let limit = limit.canonical();
                why.push(format!("maximum {name} usage per {of} is {text}, but limit is {limit}"));
            }
            (Some(request), _) if *request > most => {
                let request = request.canonical();
                why.push(format!("maximum {name} usage per {of} is {text}, but request is {request}"));
            }
            _ => {}
        }
    }
    for (name, most) in amounts(&item["maxLimitRequestRatio"]) {
        let text = format!("{name} max limit to request ratio per {of} is {}", most.canonical());
        let positive = |amounts: &Amounts| amounts.get(&name).copied().filter(|amount| !amount.is_zero());
        match (positive(requests), positive(limits)) {
            (None, _) => why.push(format!("{text}, but no request is specified or request is 0")),
            (_, None) => why.push(format!("{text}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let ratio = limit.ratio(request);
                if ratio > most.ratio(Quantity::count(1)) {
                    why.push(format!("{text}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
}

/// Fills in the defaults of a stored LimitRange for containers: a maximum is the default limit, a default limit the
/// default request, and a minimum the default request of what is left.
pub(crate) fn fill_item(item: &mut Map<String, Value>) {
    if item.get("type").is_none_or(|kind| kind != "Container") {
        return;
    }
    for (into, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
        let source = item.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
        if source.is_empty() {
            continue;
        }
        let target = as_map(item.entry(into).or_insert(Value::Null));
        for (name, amount) in source {
            target.entry(name).or_insert(amount);
        }
    }
}
