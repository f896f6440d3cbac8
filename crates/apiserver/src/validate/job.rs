//! Jobs and their templates (upstream `pkg/apis/batch/validation/validation.go`, with the options of
//! `pkg/registry/batch/job/strategy.go`).

use serde_json::{Value, json};

use super::errors::{Errors, essence, text};
use super::{internal_types, job_policies, names, selectors, workload};
use crate::selector::LabelSelector;

/// The label of the pods of a Job, and its older name.
pub(crate) const CONTROLLER_UID: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
/// The same with the name of the Job.
pub(crate) const JOB_NAME: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

/// Above this many completions, failures per index have limits of their own.
const MANY_COMPLETIONS: i64 = 100_000;
/// The largest parallelism and number of failed indexes of an Indexed Job.
const INDEXED_LIMIT: i64 = 100_000;
/// The same with [`MANY_COMPLETIONS`] and `backoffLimitPerIndex`.
const INDEXED_LIMIT_WITH_MANY_COMPLETIONS: i64 = 10_000;
/// The longest name of another controller, in bytes.
const MANAGED_BY_LIMIT: usize = 63;

pub(crate) fn job(object: &Value, errors: &mut Errors) {
    judge(object, true, errors);
}

/// `needs_prefixed_labels` is false for a Job of a server that did not know the labels with a prefix.
fn judge(object: &Value, needs_prefixed_labels: bool, errors: &mut Errors) {
    let spec = &object["spec"];
    if spec["manualSelector"] != true && !spec["selector"].is_null() {
        generated_selector(object, needs_prefixed_labels, errors);
    }
    self::spec(spec, "spec", errors);
    if spec["selector"].is_null() {
        errors.required("spec.selector", "");
    } else {
        selectors::label_selector(&spec["selector"], "spec.selector", errors);
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let matches = match LabelSelector::from_spec(&spec["selector"]) {
        Ok(selector) => selector.matches(labels),
        Err(_) => !spec["selector"].is_null(),
    };
    if !matches {
        workload::mismatch(labels, errors);
    }
    let completions = spec["completions"].as_i64().unwrap_or(0);
    if is_indexed(spec) && completions > 0 {
        let name = text(&object["metadata"], "name");
        let hostname = format!("{name}-{}", completions - 1);
        if !names::dns1123_label(&hostname).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {hostname}");
            errors.invalid("metadata.name", name, why);
        }
    }
}

pub(super) fn is_indexed(spec: &Value) -> bool {
    spec["completionMode"] == "Indexed"
}

/// The server has given the pods these labels, unless the client had set others.
fn generated_selector(object: &Value, needs_prefixed_labels: bool, errors: &mut Errors) {
    let (uid, name) = (text(&object["metadata"], "uid"), text(&object["metadata"], "name"));
    let template = &object["spec"]["template"]["metadata"]["labels"];
    let mut wanted = vec![(CONTROLLER_UID[1], uid), (JOB_NAME[1], name)];
    if needs_prefixed_labels {
        wanted.extend([(CONTROLLER_UID[0], uid), (JOB_NAME[0], name)]);
    }
    for (key, value) in &wanted {
        let path = format!("spec.template.metadata.labels[{key}]");
        match template[key].as_str() {
            None => errors.required(&path, &format!("must be '{value}'")),
            Some(found) if found != *value => {
                errors.invalid(&path, template.clone(), format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    let labels: serde_json::Map<String, Value> =
        wanted.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    let selector = &object["spec"]["selector"];
    if LabelSelector::from_spec(selector).is_ok_and(|selector| !selector.matches(&Value::Object(labels))) {
        errors.invalid("spec.selector", selector.clone(), "`selector` not auto-generated");
    }
}

/// The spec of a Job, or of the template of a CronJob.
pub(super) fn spec(spec: &Value, path: &str, errors: &mut Errors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.non_negative(&format!("{path}.{field}"), &spec[field]);
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        errors.required(&format!("{path}.backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if let Some(controller) = spec["managedBy"].as_str() {
        managed_by(controller, &format!("{path}.managedBy"), errors);
    }
    errors.one_of(&format!("{path}.completionMode"), &spec["completionMode"], &["NonIndexed", "Indexed"]);
    if is_indexed(spec) {
        indexed(spec, path, errors);
    } else if matches!(text(spec, "completionMode"), "" | "NonIndexed") {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if !spec[field].is_null() {
                let value = spec[field].clone();
                errors.invalid(&format!("{path}.{field}"), value, "requires indexed completion mode");
            }
        }
    }
    job_policies::validate(spec, path, errors);
    let template = &spec["template"];
    workload::template(template, &format!("{path}.template"), errors);
    let policy = text(&template["spec"], "restartPolicy");
    let field = format!("{path}.template.spec.restartPolicy");
    match policy {
        "" | "Always" => errors.required(&field, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if !spec["podFailurePolicy"].is_null() => {
            errors.invalid(&field, policy, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(&field, other, &["OnFailure", "Never"]),
    }
}

/// Limits that keep `status.completedIndexes` and `status.failedIndexes` short.
fn indexed(spec: &Value, path: &str, errors: &mut Errors) {
    let number = |field: &str| spec[field].as_i64();
    let (completions, parallelism) = (number("completions"), number("parallelism"));
    let failed = number("maxFailedIndexes");
    let (parallelism_path, failed_path) = (format!("{path}.parallelism"), format!("{path}.maxFailedIndexes"));
    if completions.is_none() {
        errors.required(&format!("{path}.completions"), "when completion mode is Indexed");
    }
    let most = |limit: i64| format!("must be less than or equal to {limit}");
    if let Some(parallelism) = parallelism.filter(|number| *number > INDEXED_LIMIT) {
        let why = format!("{} when completion mode is Indexed", most(INDEXED_LIMIT));
        errors.invalid(&parallelism_path, parallelism, why);
    }
    if let (Some(completions), Some(failed)) = (completions, failed)
        && failed > completions
    {
        errors.invalid(&failed_path, failed, "must be less than or equal to completions");
    }
    if let Some(failed) = failed.filter(|number| *number > INDEXED_LIMIT) {
        errors.invalid(&failed_path, failed, most(INDEXED_LIMIT));
    }
    let has_many = completions.is_some_and(|number| number > MANY_COMPLETIONS);
    if !has_many || spec["backoffLimitPerIndex"].is_null() {
        return;
    }
    let limit = INDEXED_LIMIT_WITH_MANY_COMPLETIONS;
    let why = format!(
        "{} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index",
        most(limit)
    );
    if failed.is_none() {
        let why = format!("must be specified when completions is above {MANY_COMPLETIONS}");
        errors.required(&failed_path, &why);
    }
    if let Some(parallelism) = parallelism.filter(|number| *number > limit) {
        errors.invalid(&parallelism_path, parallelism, &why);
    }
    if let Some(failed) = failed.filter(|number| *number > limit) {
        errors.invalid(&failed_path, failed, &why);
    }
}

/// The name of another controller that runs the Job.
fn managed_by(controller: &str, path: &str, errors: &mut Errors) {
    match controller.split_once('/') {
        _ if controller.is_empty() => errors.required(path, ""),
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            errors.each_invalid(path, host, names::dns1123_subdomain(host));
            errors.each_invalid(path, rest, names::http_path(rest));
        }
        _ => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.invalid(path, controller, why);
        }
    }
    if controller.len() > MANAGED_BY_LIMIT {
        errors.too_long(path, MANAGED_BY_LIMIT);
    }
}

pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let labels = &old["spec"]["template"]["metadata"]["labels"];
    let had_prefixed_labels = [CONTROLLER_UID[0], JOB_NAME[0]].iter().all(|key| !labels[key].is_null());
    judge(new, had_prefixed_labels, errors);
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    if !is_indexed(new_spec) {
        errors.immutable("spec.completions", &new_spec["completions"], &old_spec["completions"]);
    } else if let Some(completions) = new_spec["completions"].as_i64()
        && new_spec["completions"] != old_spec["completions"]
        && new_spec["parallelism"] != new_spec["completions"]
    {
        let why = "can only be modified in tandem with spec.parallelism";
        errors.invalid("spec.completions", completions, why);
    }
    errors.immutable("spec.selector", &new_spec["selector"], &old_spec["selector"]);
    template_update(new_spec, old, errors);
    errors.immutable("spec.completionMode", &new_spec["completionMode"], &old_spec["completionMode"]);
    for (field, shown) in [
        ("podFailurePolicy", job_policies::shown_failure_policy as fn(&Value) -> String),
        ("backoffLimitPerIndex", |value| value.to_string()),
        ("managedBy", |value| value.to_string()),
        ("successPolicy", job_policies::shown_success_policy),
    ] {
        if essence(&new_spec[field]) != essence(&old_spec[field]) {
            errors.invalid_shown(&format!("spec.{field}"), &shown(&new_spec[field]), "field is immutable");
        }
    }
}

/// The parts of a template that may change as long as the Job has not begun, or has ended its pods: where pods run, how they
/// are labelled, and what their containers need (KEP-2926, KEP-5440).
fn template_update(new: &Value, old: &Value, errors: &mut Errors) {
    let is_suspended = old["spec"]["suspend"] == true;
    let status = &old["status"];
    let was_stopped = super::job_status::is_true(status, "Suspended");
    let has_begun = !status["startTime"].is_null() && !was_stopped;
    let may_change = is_suspended && !has_begun && status["active"].as_i64().unwrap_or(0) == 0;
    let template = &new["template"];
    if !may_change || !template["spec"].is_object() {
        immutable("spec.template", "PodTemplateSpec", template, &old["spec"]["template"], errors);
        return;
    }
    let mut allowed = old["spec"]["template"]["spec"].clone();
    let new = &template["spec"];
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        allowed[field] = new[field].clone();
    }
    if new["affinity"].is_null() {
        // Nothing but the affinity to nodes may be cleared.
        if let Some(affinity) = allowed["affinity"].as_object_mut() {
            affinity.remove("nodeAffinity");
        }
    } else {
        if allowed["affinity"].is_null() {
            allowed["affinity"] = json!({});
        }
        allowed["affinity"]["nodeAffinity"] = new["affinity"]["nodeAffinity"].clone();
    }
    for list in ["containers", "initContainers"] {
        let (before, after) = (allowed[list].as_array_mut(), new[list].as_array());
        if let (Some(before), Some(after)) = (before, after)
            && before.len() == after.len()
        {
            for (before, after) in before.iter_mut().zip(after).filter(|(a, b)| a["name"] == b["name"]) {
                before["resources"] = after["resources"].clone();
            }
        }
    }
    immutable("spec.template.spec", "PodSpec", new, &allowed, errors);
}

/// A part of the template, whose type upstream calls `of`.
fn immutable(field: &str, of: &str, new: &Value, old: &Value, errors: &mut Errors) {
    if essence(new) != essence(old) {
        errors.invalid_shown(field, &internal_types::shown(of, new), "field is immutable");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::{check_create, check_update, said, with};
    use crate::validate::update;

    fn job(status: Value) -> Value {
        let labels = json!({"app": "j"});
        let container = json!({"name": "main", "image": "busybox:1"});
        let mut job = json!({
            "metadata": {"name": "j", "namespace": "shop", "uid": "u"},
            "spec": {
                "suspend": true, "manualSelector": true, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [container]}},
            },
            "status": status,
        });
        crate::defaults::apply("Job", &mut job);
        job
    }

    /// The fields in which the change of one value is refused.
    fn refused(old: &Value, pointer: &str, value: Value) -> Vec<String> {
        let errors = update("Job", &with(old.clone(), pointer, value), old);
        said(errors).into_iter().map(|error| error.split(": ").next().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_template_of_a_job_may_change_only_while_it_is_suspended_and_has_no_pods() {
        let condition = |kind: &str| json!([{"type": kind, "status": "True"}]);
        let started = "2026-01-01T00:00:00Z";
        let selector = "/spec/template/spec/nodeSelector";
        for (status, allowed) in [
            (json!({}), true),
            (json!({"active": 1}), false),
            (json!({"startTime": started}), false),
            (json!({"startTime": started, "conditions": condition("Suspended")}), true),
            (json!({"startTime": started, "conditions": condition("Suspended"), "active": 1}), false),
        ] {
            let old = job(status.clone());
            let fields = refused(&old, selector, json!({"zone": "a"}));
            let expected: &[&str] = if allowed { &[] } else { &["spec.template"] };
            assert_eq!(fields, expected, "{status}");
        }
        let running = with(job(json!({})), "/spec/suspend", json!(false));
        assert_eq!(refused(&running, selector, json!({"zone": "a"})), ["spec.template"]);
    }

    #[test]
    fn a_changed_template_is_shown_as_upstream_holds_it() {
        let old = job(json!({}));
        let old = with(old, "/spec/suspend", json!(false));
        let new = with(old.clone(), "/spec/template/spec/containers/0", json!({"name": "c", "image": "a:2"}));
        let mut new = new;
        crate::defaults::apply("Job", &mut new);
        let spec = concat!(
            "{\"labels\":{\"app\":\"j\"},",
            "\"Spec\":{\"Volumes\":null,\"InitContainers\":null,\"Containers\":[{\"Name\":\"c\",\"Image\":\"a:2\",",
            "\"Command\":null,\"Args\":null,\"WorkingDir\":\"\",\"Ports\":null,\"EnvFrom\":null,\"Env\":null,",
            "\"Resources\":{\"Limits\":null,\"Requests\":null,\"Claims\":null},\"ResizePolicy\":null,",
            "\"RestartPolicy\":null,\"RestartPolicyRules\":null,\"VolumeMounts\":null,\"VolumeDevices\":null,",
            "\"LivenessProbe\":null,\"ReadinessProbe\":null,\"StartupProbe\":null,\"Lifecycle\":null,",
            "\"TerminationMessagePath\":\"/dev/termination-log\",\"TerminationMessagePolicy\":\"File\",",
            "\"ImagePullPolicy\":\"IfNotPresent\",\"SecurityContext\":null,\"Stdin\":false,\"StdinOnce\":false,",
            "\"TTY\":false}],\"EphemeralContainers\":null,\"RestartPolicy\":\"Never\",",
            "\"TerminationGracePeriodSeconds\":30,\"ActiveDeadlineSeconds\":null,",
            "\"DNSPolicy\":\"ClusterFirst\",\"NodeSelector\":null,\"ServiceAccountName\":\"\",",
            "\"AutomountServiceAccountToken\":null,\"NodeName\":\"\",\"SecurityContext\":{\"HostNetwork\":false,",
            "\"HostPID\":false,\"HostIPC\":false,\"ShareProcessNamespace\":null,\"HostUsers\":null,",
            "\"SELinuxOptions\":null,\"WindowsOptions\":null,\"RunAsUser\":null,\"RunAsGroup\":null,",
            "\"RunAsNonRoot\":null,\"SupplementalGroups\":null,\"SupplementalGroupsPolicy\":null,",
            "\"FSGroup\":null,\"FSGroupChangePolicy\":null,\"Sysctls\":null,\"SeccompProfile\":null,",
            "\"AppArmorProfile\":null,\"SELinuxChangePolicy\":null},\"ImagePullSecrets\":null,\"Hostname\":\"\",",
            "\"Subdomain\":\"\",\"SetHostnameAsFQDN\":null,\"Affinity\":null,",
            "\"SchedulerName\":\"default-scheduler\",\"Tolerations\":null,\"HostAliases\":null,",
            "\"PriorityClassName\":\"\",\"Priority\":null,\"PreemptionPolicy\":null,\"DNSConfig\":null,",
            "\"ReadinessGates\":null,\"RuntimeClassName\":null,\"Overhead\":null,\"EnableServiceLinks\":null,",
            "\"TopologySpreadConstraints\":null,\"OS\":null,\"SchedulingGates\":null,\"ResourceClaims\":null,",
            "\"Resources\":null,\"HostnameOverride\":null,\"SchedulingGroup\":null}}",
        );
        assert_eq!(
            said(update("Job", &new, &old)),
            [format!("spec.template: Invalid value: {spec}: field is immutable")]
        );
    }

    #[test]
    fn a_suspended_job_changes_where_its_pods_run_and_what_they_need_and_nothing_else() {
        let old = job(json!({}));
        let nodes = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}});
        let pods = json!([{"topologyKey": "zone", "labelSelector": {}}]);
        let both = json!({"nodeAffinity": nodes, "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": pods}});
        for (pointer, value) in [
            ("/spec/template/spec/tolerations", json!([{"operator": "Exists"}])),
            ("/spec/template/spec/schedulingGates", json!([{"name": "example.com/wait"}])),
            ("/spec/template/spec/affinity", json!({"nodeAffinity": nodes})),
            ("/spec/template/spec/containers/0/resources", json!({"requests": {"cpu": "1"}})),
            ("/spec/template/metadata/labels/tier", json!("x")),
            ("/spec/template/metadata/annotations", json!({"a": "b"})),
        ] {
            assert!(refused(&old, pointer, value).is_empty(), "{pointer}");
        }
        for (pointer, value) in [
            ("/spec/template/spec/containers/0/image", json!("busybox:2")),
            ("/spec/template/spec/affinity", both.clone()),
            ("/spec/template/spec/hostname", json!("x")),
        ] {
            assert_eq!(refused(&old, pointer, value), ["spec.template.spec"], "{pointer}");
        }
        let near = with(old.clone(), "/spec/template/spec/affinity", both);
        let fields = refused(&near, "/spec/template/spec/affinity", Value::Null);
        assert_eq!(fields, ["spec.template.spec"], "the affinity to pods stays");
        let near = with(old, "/spec/template/spec/affinity", json!({"nodeAffinity": nodes}));
        assert!(refused(&near, "/spec/template/spec/affinity", Value::Null).is_empty());
    }

    #[test]
    fn a_job_of_an_older_server_needs_no_prefixed_labels() {
        let labels = json!({"controller-uid": "u", "job-name": "j"});
        let old = with(job(json!({})), "/spec/manualSelector", json!(false));
        let old = with(old, "/spec/selector", json!({"matchLabels": {"controller-uid": "u"}}));
        let old = with(old, "/spec/template/metadata/labels", labels);
        check_update("Job", with(old.clone(), "/spec/parallelism", json!(2)), old.clone(), &[]);
        let required = |label: &str, value: &str| {
            format!("spec.template.metadata.labels[{label}]: Required value: must be '{value}'")
        };
        let [uid, name] = [
            required("batch.kubernetes.io/controller-uid", "u"),
            required("batch.kubernetes.io/job-name", "j"),
        ];
        check_create("Job", old, &[&uid, &name]);
    }

    #[test]
    fn a_list_of_indexes_in_a_rule_is_bounded() {
        let indexes = (0..20_000).map(|index| index.to_string()).collect::<Vec<_>>().join(",");
        let policy = json!({"rules": [{"succeededIndexes": indexes}]});
        let indexed = with(job(json!({})), "/spec/completionMode", json!("Indexed"));
        let indexed = with(indexed, "/spec/completions", json!(20_000));
        let path = "spec.successPolicy.rules[0].succeededIndexes";
        check_create(
            "Job",
            with(indexed, "/spec/successPolicy", policy),
            &[&format!("{path}: Too long: may not be more than 65536 bytes")],
        );
    }
}
