//! The rows of the younger workloads and of what watches over them.

use jiff::Timestamp;
use serde_json::Value;

use super::row::{Row, duration, items, label_map, label_selector, number, since};

pub(crate) const DEPLOYMENT: &[&str] =
    &["Name", "Ready", "Up-to-date", "Available", "Age", "*Containers", "*Images", "*Selector"];

pub(crate) fn deployment(row: &Row<'_>) -> Vec<Value> {
    let ready = format!("{}/{}", row.number("/status/readyReplicas"), row.number("/spec/replicas"));
    let [containers, images] = row.containers();
    vec![
        row.name(),
        ready.into(),
        row.number("/status/updatedReplicas"),
        row.number("/status/availableReplicas"),
        row.age(),
        containers,
        images,
        label_selector(row.at("/spec/selector")),
    ]
}

pub(crate) const DAEMON_SET: &[&str] = &[
    "Name",
    "#Desired",
    "#Current",
    "#Ready",
    "#Up-to-date",
    "#Available",
    "Node Selector",
    "Age",
    "*Containers",
    "*Images",
    "*Selector",
];

pub(crate) fn daemon_set(row: &Row<'_>) -> Vec<Value> {
    let [containers, images] = row.containers();
    vec![
        row.name(),
        row.number("/status/desiredNumberScheduled"),
        row.number("/status/currentNumberScheduled"),
        row.number("/status/numberReady"),
        row.number("/status/updatedNumberScheduled"),
        row.number("/status/numberAvailable"),
        label_map(row.at("/spec/template/spec/nodeSelector")),
        row.age(),
        containers,
        images,
        label_selector(row.at("/spec/selector")),
    ]
}

pub(crate) const REPLICA_SET: &[&str] =
    &["Name", "#Desired", "#Current", "#Ready", "Age", "*Containers", "*Images", "*Selector"];

pub(crate) fn replica_set(row: &Row<'_>, selector: Value) -> Vec<Value> {
    let [containers, images] = row.containers();
    vec![
        row.name(),
        row.number("/spec/replicas"),
        row.number("/status/replicas"),
        row.number("/status/readyReplicas"),
        row.age(),
        containers,
        images,
        selector,
    ]
}

pub(crate) const STATEFUL_SET: &[&str] = &["Name", "Ready", "Age", "*Containers", "*Images"];

pub(crate) fn stateful_set(row: &Row<'_>) -> Vec<Value> {
    let ready = format!("{}/{}", row.number("/status/readyReplicas"), row.number("/spec/replicas"));
    let [containers, images] = row.containers();
    vec![row.name(), ready.into(), row.age(), containers, images]
}

pub(crate) const JOB: &[&str] =
    &["Name", "Status", "Completions", "Duration", "Age", "*Containers", "*Images", "*Selector"];

pub(crate) fn job(row: &Row<'_>) -> Vec<Value> {
    let has = |kind: &str| {
        let found = items(row.at("/status/conditions")).find(|condition| condition["type"] == kind);
        found.is_some_and(|condition| condition["status"] == "True")
    };
    let is_deleting = !row.at("/metadata/deletionTimestamp").is_null();
    let status = match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if is_deleting => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let succeeded = row.number("/status/succeeded");
    let parallelism = number(row.at("/spec/parallelism"));
    let completions = match row.at("/spec/completions").as_i64() {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    };
    let time = |pointer: &str| row.at(pointer).as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let lasted = match (time("/status/startTime"), time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => duration(end.unwrap_or(row.now).duration_since(start)),
    };
    let [containers, images] = row.containers();
    vec![
        row.name(),
        status.into(),
        completions.into(),
        lasted.into(),
        row.age(),
        containers,
        images,
        label_selector(row.at("/spec/selector")),
    ]
}

pub(crate) const CRON_JOB: &[&str] = &[
    "Name",
    "Schedule",
    "Timezone",
    "?Suspend",
    "#Active",
    "Last Schedule",
    "Age",
    "*Containers",
    "*Images",
    "*Selector",
];

pub(crate) fn cron_job(row: &Row<'_>) -> Vec<Value> {
    let last = row.at("/status/lastScheduleTime");
    let last = if last.is_null() { "<none>".to_owned() } else { since(last, row.now) };
    let suspended = match row.at("/spec/suspend").as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let [containers, images] = row.containers_at("/spec/jobTemplate/spec/template/spec/containers");
    vec![
        row.name(),
        row.text("/spec/schedule"),
        row.text_or("/spec/timeZone", "<none>"),
        suspended.into(),
        row.size("/status/active").into(),
        last.into(),
        row.age(),
        containers,
        images,
        label_selector(row.at("/spec/jobTemplate/spec/selector")),
    ]
}

pub(crate) fn disruption_budget(row: &Row<'_>) -> Vec<Value> {
    let amount = |pointer: &str| match row.at(pointer) {
        Value::Null => "N/A".into(),
        Value::Number(number) => number.to_string().into(),
        other => other.clone(),
    };
    vec![
        row.name(),
        amount("/spec/minAvailable"),
        amount("/spec/maxUnavailable"),
        row.number("/status/disruptionsAllowed"),
        row.age(),
    ]
}

pub(crate) fn autoscaler(row: &Row<'_>) -> Vec<Value> {
    let target = row.at("/spec/scaleTargetRef");
    let part = |field: &str| target[field].as_str().unwrap_or_default();
    let least = row.at("/spec/minReplicas").as_i64().map_or("<unset>".to_owned(), |least| least.to_string());
    vec![
        row.name(),
        format!("{}/{}", part("kind"), part("name")).into(),
        metrics(row).into(),
        least.into(),
        row.number("/spec/maxReplicas"),
        row.number("/status/currentReplicas"),
        row.age(),
    ]
}

/// The first two metrics: `cpu: 20%/80%, <unknown>/5 + 1 more...`.
fn metrics(row: &Row<'_>) -> String {
    let current = row.at("/status/currentMetrics");
    let texts: Vec<String> = items(row.at("/spec/metrics"))
        .enumerate()
        .map(|(index, spec)| metric(spec, &current[index]))
        .collect();
    match texts.len() {
        0 => "<none>".to_owned(),
        1 | 2 => texts.join(", "),
        all => format!("{} + {} more...", texts[..2].join(", "), all - 2),
    }
}

fn metric(spec: &Value, status: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => "<unknown>".to_owned(),
    };
    let (field, is_resource) = match spec["type"].as_str().unwrap_or_default() {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let (target, current) = (&spec[field]["target"], &status[field]["current"]);
    let name = spec[field]["name"].as_str().unwrap_or_default();
    let average = &target["averageValue"];
    match (is_resource, average.is_null()) {
        (true, false) => format!("{name}: {}/{}", text(&current["averageValue"]), text(average)),
        (true, true) => {
            let percent = |value: &Value, absent: &str| {
                value.as_i64().map_or(absent.to_owned(), |percent| format!("{percent}%"))
            };
            let now = percent(&current["averageUtilization"], "<unknown>");
            format!("{name}: {now}/{}", percent(&target["averageUtilization"], "<auto>"))
        }
        (false, false) if field == "pods" => format!("{}/{}", text(&current["averageValue"]), text(average)),
        (false, false) => format!("{}/{} (avg)", text(&current["averageValue"]), text(average)),
        (false, true) => format!("{}/{}", text(&current["value"]), text(&target["value"])),
    }
}

pub(crate) fn quota(row: &Row<'_>) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in row.at("/status/hard").as_object().into_iter().flatten() {
        let used = row.at("/status/used")[name].as_str().unwrap_or("0").to_owned();
        let entry = format!("{name}: {used}/{}", hard.as_str().unwrap_or_default());
        if name.starts_with("limits.") { limits.push(entry) } else { requests.push(entry) }
    }
    vec![row.name(), requests.join(", ").into(), limits.join(", ").into(), row.age()]
}
