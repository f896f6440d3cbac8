//! The pod that is sent to the API server (upstream: `getNewIndexedJobPod` and `addCompletionIndex…` of
//! `indexed_job_utils.go`).

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::{NewPod, names};
use crate::model::pod::job::{COMPLETION_INDEX, FAILURE_COUNT, IGNORED_FAILURE_COUNT, TRACKING};
use crate::model::{Job, Record};
use crate::plan::OwnerReference;
use crate::plan::pod_body::{Fields, PodFromTemplate};

/// The environment variable for the index.
const VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// The JSON of a new pod. Fields that the controller does not change are copied byte for byte.
///
/// # Errors
/// When the template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn pod_body(job: &Job, new: &NewPod) -> Result<Vec<u8>, serde_json::Error> {
    let key = &job.meta.key;
    let api_version = Job::RESOURCE.api_version();
    let index = new.index.map(|index| index.to_string());
    let labels: Vec<(&str, &str)> = index.iter().map(|index| (COMPLETION_INDEX, index.as_str())).collect();
    let mut annotations: Vec<(&str, String)> =
        index.iter().map(|index| (COMPLETION_INDEX, index.clone())).collect();
    if let Some((counted, ignored)) = new.failures_before {
        annotations.push((FAILURE_COUNT, counted.to_string()));
        annotations.extend((ignored > 0).then(|| (IGNORED_FAILURE_COUNT, ignored.to_string())));
    }
    let base = new.index.map_or_else(|| key.name.to_string(), |index| names::base(&key.name, index));
    let pod = PodFromTemplate {
        owner: OwnerReference::controller(&api_version, Job::RESOURCE.kind, &key.name, &job.meta.uid),
        namespace: &key.namespace,
        name: &new.name,
        generate_name: format!("{base}-"),
        template: &job.template,
        labels: &labels,
        annotations: &annotations,
        finalizers: &[TRACKING],
    };
    pod.json(|mut spec| {
        if let Some(index) = new.index {
            spec.insert("hostname".into(), to_raw_value(&format!("{}-{index}", key.name))?);
            for list in ["containers", "initContainers"] {
                add_variable(&mut spec, list)?;
            }
        }
        Ok(spec)
    })
}

/// Adds the variable to each container that does not set it.
fn add_variable(spec: &mut Fields, list: &str) -> Result<(), serde_json::Error> {
    let Some(raw) = spec.get(list) else { return Ok(()) };
    let Some(containers) = serde_json::from_str::<Option<Vec<Fields>>>(raw.get())? else { return Ok(()) };
    let changed: Result<Vec<Fields>, serde_json::Error> = containers.into_iter().map(with_variable).collect();
    spec.insert(list.into(), to_raw_value(&changed?)?);
    Ok(())
}

fn with_variable(mut container: Fields) -> Result<Fields, serde_json::Error> {
    let mut variables: Vec<Box<RawValue>> = match container.get("env") {
        Some(env) => serde_json::from_str::<Option<_>>(env.get())?.unwrap_or_default(),
        None => Vec::new(),
    };
    let is_it = |variable: &RawValue| {
        let fields: Result<BTreeMap<String, Value>, _> = serde_json::from_str(variable.get());
        fields.is_ok_and(|fields| fields.get("name").is_some_and(|name| name == VARIABLE))
    };
    if !variables.iter().any(|variable| is_it(variable)) {
        let path = format!("metadata.labels['{COMPLETION_INDEX}']");
        let source = json!({"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        variables.push(to_raw_value(&source)?);
        container.insert("env".into(), to_raw_value(&variables)?);
    }
    Ok(container)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::job;
    use super::*;

    fn body(spec: &str, new: &NewPod) -> Value {
        serde_json::from_slice(&pod_body(&job(spec, ""), new).unwrap()).unwrap()
    }

    const TEMPLATE: &str = r#""template":{"metadata":{"labels":{"a":"b"},"annotations":{"x":"y"},"finalizers":["f/g"]},
        "spec":{"hostname":"mine","newThing":1.50,"containers":[{"name":"c","env":[{"name":"E","value":"1"}]},
            {"name":"d","env":[{"name":"JOB_COMPLETION_INDEX","value":"own"}]}],"initContainers":[{"name":"i"}]}}"#;

    #[test]
    fn a_pod_without_an_index_is_its_template_with_a_finalizer_and_an_owner() {
        let pod = body(TEMPLATE, &NewPod { name: "j-bcdfg".into(), ..NewPod::default() });
        let metadata = json!({"name": "j-bcdfg", "generateName": "j-", "namespace": "shop", "labels": {"a": "b"},
            "annotations": {"x": "y"}, "finalizers": ["f/g", "batch.kubernetes.io/job-tracking"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-job",
                "controller": true, "blockOwnerDeletion": true}]});
        assert_eq!(pod["metadata"], metadata);
        assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["newThing"]), (&json!("mine"), &json!(1.50)));
        assert_eq!(pod["spec"]["initContainers"], json!([{"name": "i"}]));
    }

    #[test]
    fn a_pod_with_an_index_has_it_in_a_label_an_annotation_its_hostname_and_its_environment() {
        let new = NewPod { name: "j-3-bcdfg".into(), index: Some(3), failures_before: None };
        let pod = body(TEMPLATE, &new);
        let metadata = &pod["metadata"];
        assert_eq!(metadata["generateName"], "j-3-");
        assert_eq!(metadata["labels"], json!({"a": "b", "batch.kubernetes.io/job-completion-index": "3"}));
        assert_eq!(
            metadata["annotations"],
            json!({"x": "y", "batch.kubernetes.io/job-completion-index": "3"})
        );
        assert_eq!(pod["spec"]["hostname"], "j-3");
        let variable = json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef":
            {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}}});
        assert_eq!(pod["spec"]["containers"][0]["env"], json!([{"name": "E", "value": "1"}, variable]));
        assert_eq!(
            pod["spec"]["containers"][1]["env"],
            json!([{"name": "JOB_COMPLETION_INDEX", "value": "own"}])
        );
        assert_eq!(pod["spec"]["initContainers"][0]["env"], json!([variable]));
    }

    #[test]
    fn failures_of_the_index_are_annotations_with_a_limit_per_index_only() {
        let annotations = |failures_before| {
            let new = NewPod { name: "j-0-bcdfg".into(), index: Some(0), failures_before };
            body("", &new)["metadata"]["annotations"].clone()
        };
        let index = "batch.kubernetes.io/job-completion-index";
        let (counted, ignored) = (
            "batch.kubernetes.io/job-index-failure-count",
            "batch.kubernetes.io/job-index-ignored-failure-count",
        );
        assert_eq!(annotations(None), json!({index: "0"}));
        assert_eq!(annotations(Some((0, 0))), json!({index: "0", counted: "0"}));
        assert_eq!(annotations(Some((2, 1))), json!({index: "0", counted: "2", ignored: "1"}));
    }
}
