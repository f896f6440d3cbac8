//! The policies of a Job: which failures of pods count, when it has succeeded, and when a pod is replaced.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::errors::{Errors, elements, text};
use super::{index_list, job, names};

const MOST_RULES: usize = 20;
const MOST_EXIT_CODES: usize = 255;
const MOST_PATTERNS: usize = 20;
/// The longest list of indexes in a rule, in bytes.
const LONGEST_INDEXES: usize = 64 * 1024;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// The policies of the spec at `path`.
pub(super) fn validate(spec: &Value, path: &str, errors: &mut Errors) {
    if !spec["podFailurePolicy"].is_null() {
        failure_policy(spec, &format!("{path}.podFailurePolicy"), errors);
    }
    let success = &spec["successPolicy"];
    if !success.is_null() {
        let path = format!("{path}.successPolicy");
        if job::is_indexed(spec) {
            success_policy(spec, &path, errors);
        } else {
            errors.invalid_shown(&path, &shown_success_policy(success), "requires indexed completion mode");
        }
    }
    let policies: &[&str] =
        if spec["podFailurePolicy"].is_null() { &["Failed", "TerminatingOrFailed"] } else { &["Failed"] };
    errors.one_of(&format!("{path}.podReplacementPolicy"), &spec["podReplacementPolicy"], policies);
}

fn failure_policy(spec: &Value, path: &str, errors: &mut Errors) {
    let policy = &spec["podFailurePolicy"];
    let rules = policy["rules"].as_array().map_or(0, Vec::len);
    if rules > MOST_RULES {
        errors.too_many(&format!("{path}.rules"), rules, MOST_RULES);
    }
    let pod = &spec["template"]["spec"];
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| elements(pod, list, ""));
    let containers: BTreeSet<&str> = containers.map(|(_, container)| text(container, "name")).collect();
    for (path, rule) in elements(policy, "rules", path) {
        match text(rule, "action") {
            "" => required_of(&format!("{path}.action"), &ACTIONS, errors),
            "FailIndex" if spec["backoffLimitPerIndex"].is_null() => {
                let why = "requires the backoffLimitPerIndex to be set";
                errors.invalid(&format!("{path}.action"), "FailIndex", why);
            }
            action if !ACTIONS.contains(&action) => {
                errors.not_supported(&format!("{path}.action"), action, &ACTIONS);
            }
            _ => {}
        }
        let (codes, conditions) = (&rule["onExitCodes"], &rule["onPodConditions"]);
        let has_conditions = conditions.as_array().is_some_and(|patterns| !patterns.is_empty());
        if !codes.is_null() {
            exit_codes(codes, &format!("{path}.onExitCodes"), &containers, errors);
        }
        pod_conditions(rule, &path, errors);
        match (!codes.is_null(), has_conditions) {
            (true, true) => errors
                .invalid_hidden(&path, "specifying both OnExitCodes and OnPodConditions is not supported"),
            (false, false) => {
                errors.invalid_hidden(&path, "specifying one of OnExitCodes and OnPodConditions is required")
            }
            _ => {}
        }
    }
}

fn required_of(path: &str, supported: &[&str], errors: &mut Errors) {
    let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    errors.required(path, &format!("valid values: [{}]", supported.join(" ")));
}

fn exit_codes(codes: &Value, path: &str, containers: &BTreeSet<&str>, errors: &mut Errors) {
    let operator = text(codes, "operator");
    let operator_path = format!("{path}.operator");
    if operator.is_empty() {
        required_of(&operator_path, &OPERATORS, errors);
    } else {
        errors.one_of(&operator_path, &codes["operator"], &OPERATORS);
    }
    if let Some(name) = codes["containerName"].as_str().filter(|name| !containers.contains(name)) {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&format!("{path}.containerName"), name, why);
    }
    let values_path = format!("{path}.values");
    let values: Vec<i64> =
        codes["values"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
    if values.is_empty() {
        errors.invalid(&values_path, codes["values"].clone(), "at least one value is required");
    } else if values.len() > MOST_EXIT_CODES {
        errors.too_many(&values_path, values.len(), MOST_EXIT_CODES);
    }
    let mut seen = BTreeSet::new();
    for (index, value) in values.iter().enumerate() {
        let path = format!("{values_path}[{index}]");
        if operator == "In" && *value == 0 {
            errors.invalid(&path, 0, "must not be 0 for the In operator");
        }
        if !seen.insert(*value) {
            errors.duplicate(&path, *value);
        }
    }
    if !values.is_sorted() {
        errors.invalid(&values_path, json!(values), "must be ordered");
    }
}

fn pod_conditions(rule: &Value, path: &str, errors: &mut Errors) {
    let patterns = rule["onPodConditions"].as_array().map_or(0, Vec::len);
    if patterns > MOST_PATTERNS {
        errors.too_many(&format!("{path}.onPodConditions"), patterns, MOST_PATTERNS);
    }
    for (path, pattern) in elements(rule, "onPodConditions", path) {
        let (kind, status_path) = (text(pattern, "type"), format!("{path}.status"));
        errors.each_invalid(&format!("{path}.type"), kind, names::label_key(kind));
        if text(pattern, "status").is_empty() {
            required_of(&status_path, &STATUSES, errors);
        } else {
            errors.one_of(&status_path, &pattern["status"], &STATUSES);
        }
    }
}

fn success_policy(spec: &Value, path: &str, errors: &mut Errors) {
    let policy = &spec["successPolicy"];
    // Without it the Job is refused for another reason.
    let completions = spec["completions"].as_i64().unwrap_or_default();
    match policy["rules"].as_array().map_or(0, Vec::len) {
        0 => {
            let why = "at least one rules must be specified when the successPolicy is specified";
            errors.required(&format!("{path}.rules"), why);
        }
        rules if rules > MOST_RULES => errors.too_many(&format!("{path}.rules"), rules, MOST_RULES),
        _ => {}
    }
    for (path, rule) in elements(policy, "rules", path) {
        let (indexes, succeeded) = (rule["succeededIndexes"].as_str(), rule["succeededCount"].as_i64());
        if indexes.is_none() && succeeded.is_none() {
            let why = "at least one of succeededCount or succeededIndexes must be specified";
            errors.required(&path, why);
        }
        let mut named = 0;
        if let Some(indexes) = indexes {
            let path = format!("{path}.succeededIndexes");
            if indexes.len() > LONGEST_INDEXES {
                errors.too_long(&path, LONGEST_INDEXES);
            }
            match index_list::count(indexes, completions) {
                Ok(count) => named = count,
                Err(why) => errors.invalid(&path, indexes, format!("error parsing succeededIndexes: {why}")),
            }
        }
        if let Some(succeeded) = succeeded {
            let path = format!("{path}.succeededCount");
            errors.non_negative(&path, &rule["succeededCount"]);
            let mut limit = |limit: i64, whose: &str| {
                if succeeded > limit {
                    let why = format!("must be less than or equal to {limit} ({whose})");
                    errors.invalid(&path, succeeded, why);
                }
            };
            limit(completions, "the number of specified completions");
            if indexes.is_some() {
                limit(named, "the number of indexes in the specified succeededIndexes field");
            }
        }
    }
}

/// Messages show upstream's internal types, whose fields have Go's names.
pub(super) fn shown_success_policy(policy: &Value) -> String {
    shown(policy, "rules", |rule| {
        let (indexes, count) = (&rule["succeededIndexes"], &rule["succeededCount"]);
        format!("{{\"SucceededIndexes\":{indexes},\"SucceededCount\":{count}}}")
    })
}

/// The same for the policy about failures.
pub(super) fn shown_failure_policy(policy: &Value) -> String {
    shown(policy, "rules", |rule| {
        let codes = &rule["onExitCodes"];
        let shown_codes = match codes {
            Value::Null => "null".to_owned(),
            codes => format!(
                "{{\"ContainerName\":{},\"Operator\":{},\"Values\":{}}}",
                codes["containerName"], codes["operator"], codes["values"]
            ),
        };
        let conditions = shown_list(&rule["onPodConditions"], |pattern| {
            format!("{{\"Type\":{},\"Status\":{}}}", pattern["type"], pattern["status"])
        });
        let action = &rule["action"];
        format!("{{\"Action\":{action},\"OnExitCodes\":{shown_codes},\"OnPodConditions\":{conditions}}}")
    })
}

fn shown(policy: &Value, list: &str, item: impl Fn(&Value) -> String) -> String {
    match policy {
        Value::Null => "null".to_owned(),
        policy => format!("{{\"Rules\":{}}}", shown_list(&policy[list], item)),
    }
}

fn shown_list(list: &Value, item: impl Fn(&Value) -> String) -> String {
    match list.as_array() {
        None => "null".to_owned(),
        Some(items) => format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(",")),
    }
}
