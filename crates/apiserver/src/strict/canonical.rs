//! One spelling per value: quantities and times as a real API server stores them.
//!
//! The precision matters to clients: a `Time` loses its fraction of a second when it is stored, so
//! whoever compares what was written with what is read back must be met by the same loss here.

use jiff::Timestamp;
use serde_json::Value;

use super::decode::{Dotted, Segment};
use crate::quantity::{self, Quantity};

/// How Go reads the times of most fields.
const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
/// How it reads those of leases and events: with six decimals, no more and no less.
const MICROSECONDS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// The fields whose values are maps of strings: their keys are data, not field names.
pub(super) fn is_string_map(field: &str) -> bool {
    matches!(
        field,
        "labels"
            | "annotations"
            | "matchLabels"
            | "nodeSelector"
            | "data"
            | "stringData"
            | "binaryData"
            | "volumeAttributes"
    )
}

/// Rewrites `value`, which stands at `path`, and everything in it.
///
/// # Errors
/// A quantity that cannot be parsed. Times that cannot be parsed are left to the typed decode.
pub(super) fn rewrite(value: &mut Value, path: &mut Vec<Segment>) -> Result<(), String> {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                // Their keys are the user's, even if one reads like the name of a field.
                if is_string_map(key) {
                    continue;
                }
                path.push(Segment::Key(key.clone()));
                field(key, child, path)?;
                path.pop();
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                path.push(Segment::Index(index));
                rewrite(item, path)?;
                path.pop();
            }
        }
        _ => {}
    }
    Ok(())
}

fn field(name: &str, value: &mut Value, path: &mut Vec<Segment>) -> Result<(), String> {
    match (name, &mut *value) {
        // Counts of the volumes of a CSINode, a request for the capacity of a device, and the overhead of a RuntimeClass, which
        // is one level below.
        ("allocatable", _) if is_below(path, "drivers") => rewrite(value, path)?,
        ("capacity", _) if is_below(path, "exactly") || is_below(path, "firstAvailable") => {
            rewrite(value, path)?
        }
        ("overhead", _) if path.len() == 1 => rewrite(value, path)?,
        (
            "limits" | "requests" | "capacity" | "allocatable" | "overhead" | "podFixed"
            | "allocatedResources",
            Value::Object(resources),
        ) => quantities(resources, path)?,
        ("hard" | "used", Value::Object(resources)) => quantities(resources, path)?,
        ("default" | "defaultRequest" | "max" | "min" | "maxLimitRequestRatio", Value::Object(resources))
            if is_in_a_limit_range(path) =>
        {
            quantities(resources, path)?;
        }
        ("sizeLimit" | "divisor" | "averageValue" | "maximumVolumeSize", amount) => quantity(amount, path)?,
        // Of a CSIStorageCapacity it is one quantity, of other kinds a map of them.
        ("capacity", amount @ (Value::String(_) | Value::Number(_))) if path.len() == 1 => {
            quantity(amount, path)?
        }
        ("value", amount) if is_in_a_metric(path) => quantity(amount, path)?,
        ("eventTime" | "lastObservedTime" | "acquireTime" | "renewTime", Value::String(text)) => {
            if let Some(why) = no_time(text, MICROSECONDS, path) {
                return Err(why);
            }
            if let Ok(time) = text.parse::<Timestamp>() {
                let micros = time.subsec_nanosecond() / 1000;
                *text = format!("{}.{micros:06}Z", time.strftime("%Y-%m-%dT%H:%M:%S"));
            }
        }
        (
            "creationTimestamp"
            | "deletionTimestamp"
            | "lastTransitionTime"
            | "lastUpdateTime"
            | "lastProbeTime"
            | "lastHeartbeatTime"
            | "startTime"
            | "startedAt"
            | "finishedAt"
            | "firstTimestamp"
            | "lastTimestamp"
            | "deprecatedFirstTimestamp"
            | "deprecatedLastTimestamp"
            | "timeAdded"
            | "completionTime"
            | "lastScaleTime"
            | "lastScheduleTime"
            | "lastSuccessfulTime"
            | "time",
            Value::String(text),
        ) => {
            if let Some(why) = no_time(text, SECONDS, path) {
                return Err(why);
            }
            if let Ok(time) = text.parse::<Timestamp>() {
                *text = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            }
        }
        _ => rewrite(value, path)?,
    }
    Ok(())
}

/// Whether the path leads to a field of this object or of an item of this list.
fn is_below(path: &[Segment], parent: &str) -> bool {
    let mut parents = path.iter().rev().skip(1).filter(|segment| matches!(segment, Segment::Key(_)));
    matches!(parents.next(), Some(Segment::Key(key)) if key == parent)
}

/// Whether the path leads into the target or the current value of a metric of an autoscaler.
fn is_in_a_metric(path: &[Segment]) -> bool {
    matches!(path, [.., Segment::Key(part), _] if part == "target" || part == "current")
}

/// Whether the path leads to a field of an item of `spec.limits`; only a LimitRange has these.
fn is_in_a_limit_range(path: &[Segment]) -> bool {
    matches!(path, [Segment::Key(spec), Segment::Key(limits), Segment::Index(_), _] if spec == "spec" && limits == "limits")
}

fn quantities(resources: &mut serde_json::Map<String, Value>, path: &mut Vec<Segment>) -> Result<(), String> {
    for (name, amount) in resources {
        path.push(Segment::Key(name.clone()));
        // The capacity of a device has one more level.
        let of_a_device = path.iter().any(|segment| matches!(segment, Segment::Key(key) if key == "devices"));
        if let (Value::Object(resources), true) = (&mut *amount, of_a_device) {
            quantities(resources, path)?;
            path.pop();
            continue;
        }
        quantity(amount, path)?;
        // A list of resources is stored in thousandths, rounded up.
        if let Some(exact) = Quantity::of(amount) {
            *amount = Value::String(exact.in_thousandths().canonical());
        }
        path.pop();
    }
    Ok(())
}

/// Accepts `cpu: 1` as well as `cpu: "1"`.
fn quantity(amount: &mut Value, path: &[Segment]) -> Result<(), String> {
    let text = match &*amount {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        Value::Null => "0".to_owned(),
        _ => return Err(no_quantity(path)),
    };
    match Quantity::parse(&text) {
        Some(quantity) => {
            *amount = Value::String(quantity.canonical());
            Ok(())
        }
        None => Err(no_quantity(path)),
    }
}

/// The sentence of Go, which does not name the field, and then ours.
fn no_quantity(path: &[Segment]) -> String {
    format!("{} ({})", quantity::PATTERN, Dotted(path))
}

/// The same of a time, where `layout` shows how Go reads it. It names what it met and which part of the layout that is.
fn no_time(text: &str, layout: &str, path: &[Segment]) -> Option<String> {
    let mut parts = vec![("2006", 4), ("-", 0), ("01", 2), ("-", 0), ("02", 2), ("T", 0)];
    parts.extend([("15", 2), (":", 0), ("04", 2), (":", 0), ("05", 2)]);
    let mut rest = text;
    let failed = parts.iter().find(|(part, digits)| {
        let taken = match digits {
            0 => rest.strip_prefix(part),
            digits => rest
                .split_at_checked(*digits)
                .and_then(|(head, tail)| head.bytes().all(|byte| byte.is_ascii_digit()).then_some(tail)),
        };
        taken.map(|tail| rest = tail).is_none()
    });
    let failed = match failed {
        Some((part, _)) => *part,
        None if layout == MICROSECONDS => {
            let digits = rest.strip_prefix('.').and_then(|digits| digits.split_at_checked(6));
            match digits.filter(|(head, _)| head.bytes().all(|byte| byte.is_ascii_digit())) {
                None => ".000000",
                Some((_, tail)) if tail.starts_with(|c: char| c.is_ascii_digit()) => {
                    rest = tail;
                    "Z07:00"
                }
                Some(_) => return None,
            }
        }
        None if rest.is_empty() => "Z07:00",
        None => return None,
    };
    let why = format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {failed:?}");
    Some(format!("{why} ({})", Dotted(path)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::strict::check_value;

    #[test]
    fn quantities_may_be_numbers_and_are_stored_canonically() {
        let pod = |resources: Value| {
            let container = json!({"name": "a", "resources": resources});
            let metadata = json!({"annotations": {"limits": "1000m"}});
            check_value("v1", "Pod", json!({"metadata": metadata, "spec": {"containers": [container]}}))
        };
        let resources = json!({"limits": {"cpu": 1, "memory": "1024Mi"}, "requests": {"cpu": 0.5}});
        let checked = pod(resources).unwrap();
        assert_eq!(
            checked.object["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}})
        );
        assert_eq!(checked.object["metadata"]["annotations"]["limits"], "1000m");
        let error = pod(json!({"limits": {"cpu": "lots"}})).unwrap_err();
        assert!(
            error.starts_with("quantities must match")
                && error.ends_with(" (spec.containers[0].resources.limits.cpu)"),
            "{error}"
        );
    }

    #[test]
    fn what_only_has_the_name_of_quantities_is_left_as_it_is() {
        let drivers = json!([{"name": "a", "nodeID": "n", "allocatable": {"count": 3}}]);
        let node = json!({"spec": {"drivers": drivers}});
        let stored = check_value("storage.k8s.io/v1", "CSINode", node).unwrap().object;
        assert_eq!(stored["spec"]["drivers"][0]["allocatable"]["count"], 3);
        let class = json!({"handler": "r", "overhead": {"podFixed": {"cpu": 1}, "fooBar": "x"}});
        let checked = check_value("node.k8s.io/v1", "RuntimeClass", class).unwrap();
        assert_eq!(checked.object["overhead"], json!({"podFixed": {"cpu": "1"}}));
        assert_eq!(checked.unknown, ["unknown field \"overhead.fooBar\""]);
        let capacity = json!({"storageClassName": "a", "capacity": 5});
        let stored = check_value("storage.k8s.io/v1", "CSIStorageCapacity", capacity).unwrap().object;
        assert_eq!(stored["capacity"], "5");
    }

    #[test]
    fn times_are_stored_in_utc_with_the_precision_of_their_type() {
        let lease = json!({
            "metadata": {"creationTimestamp": "2026-01-01T01:00:00.75+01:00", "labels": {"time": "x"}},
            "spec": {"renewTime": "2026-01-01T00:00:00.100000Z"},
        });
        let object = check_value("coordination.k8s.io/v1", "Lease", lease).unwrap().object;
        assert_eq!(object["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(object["spec"]["renewTime"], "2026-01-01T00:00:00.100000Z");
        let junk = json!({"spec": {"renewTime": "yesterday"}});
        let error = check_value("coordination.k8s.io/v1", "Lease", junk).unwrap_err();
        let why = "parsing time \"yesterday\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"yesterday\" as \
                   \"2006\" (spec.renewTime)";
        assert_eq!(error, why);
        let whole = json!({"spec": {"renewTime": "2026-01-01T00:00:00Z"}});
        let error = check_value("coordination.k8s.io/v1", "Lease", whole).unwrap_err();
        assert!(error.ends_with("cannot parse \"Z\" as \".000000\" (spec.renewTime)"), "{error}");
    }
}
