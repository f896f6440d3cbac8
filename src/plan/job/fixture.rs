//! Jobs and pods in sentences, for the tests.

use std::sync::Arc;

use jiff::Timestamp;

use super::pods::JobPods;
use super::{Names, Observed};
use crate::model::{Interner, Job, Pod, Record};

const START: i64 = 1_800_000_000;

/// So many seconds after the beginning.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

/// A Job with these fields of its spec and its status.
pub fn job(spec: &str, status: &str) -> Job {
    job_with("", spec, status)
}

/// The same with more metadata.
pub fn job_with(metadata: &str, spec: &str, status: &str) -> Job {
    let comma = if spec.is_empty() { "" } else { "," };
    let template = match spec.contains(r#""template":"#) {
        true => "",
        false => r#","template":{"metadata":{"labels":{"a":"b"}}}"#,
    };
    let selector = match spec.contains(r#""selector":"#) {
        true => r#""suspend":false"#,
        false => r#""selector":{"matchLabels":{"a":"b"}}"#,
    };
    let json = format!(
        r#"{{"metadata":{{"name":"j","namespace":"shop","uid":"u-job","resourceVersion":"7","generation":1,
            "creationTimestamp":"{}"{metadata}}},"spec":{{{selector}{template}{comma}{spec}}},"status":{{{status}}}}}"#,
        at(0)
    );
    Job::decode(&json, &mut Interner::default()).unwrap()
}

/// A pod of the Job: running, ready and with the finalizer until something else is said.
pub fn pod(name: &str) -> PodOf {
    PodOf {
        name: name.into(),
        phase: "Running",
        is_tracked: true,
        is_deleting: false,
        is_owned: true,
        end: 0,
        created: 0,
        index: None,
        failures: (0, 0),
        status: String::new(),
    }
}

/// A pod to be.
#[derive(Clone, Debug)]
pub struct PodOf {
    pub name: String,
    pub phase: &'static str,
    pub is_tracked: bool,
    pub is_deleting: bool,
    pub is_owned: bool,
    pub end: i64,
    pub created: i64,
    pub index: Option<i32>,
    pub failures: (i32, i32),
    pub status: String,
}

impl PodOf {
    pub fn succeeded(self) -> Self {
        PodOf { phase: "Succeeded", ..self }
    }

    pub fn failed(self) -> Self {
        PodOf { phase: "Failed", ..self }
    }

    pub fn pending(self) -> Self {
        PodOf { phase: "Pending", ..self }
    }

    pub fn untracked(self) -> Self {
        PodOf { is_tracked: false, ..self }
    }

    pub fn deleting(self) -> Self {
        PodOf { is_deleting: true, ..self }
    }

    pub fn orphaned(self) -> Self {
        PodOf { is_owned: false, ..self }
    }

    pub fn index(self, index: i32) -> Self {
        PodOf { index: Some(index), ..self }
    }

    /// With this many failures of the index before it, counted and ignored.
    pub fn after_failures(self, counted: i32, ignored: i32) -> Self {
        PodOf { failures: (counted, ignored), ..self }
    }

    pub fn created_at(self, second: i64) -> Self {
        PodOf { created: second, ..self }
    }

    pub fn ended_at(self, second: i64) -> Self {
        PodOf { end: second, ..self }
    }

    /// Fields of its status in place of a Ready condition.
    pub fn status(self, status: &str) -> Self {
        PodOf { status: status.into(), ..self }
    }

    pub fn build(self) -> Pod {
        let PodOf { name, phase, is_tracked, is_deleting, is_owned, end, created, index, failures, status } =
            self;
        let finalizers =
            if is_tracked { r#","finalizers":["batch.kubernetes.io/job-tracking"]"# } else { "" };
        let deletion =
            if is_deleting { format!(r#","deletionTimestamp":"{}""#, at(end)) } else { String::new() };
        let owner = r#","ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"u-job","controller":true}]"#;
        let owner = if is_owned { owner } else { "" };
        let index = index.map(|index| format!(r#""batch.kubernetes.io/job-completion-index":"{index}","#));
        let ready = if phase == "Running" { "True" } else { "False" };
        let status = match status.as_str() {
            "" => format!(
                r#""conditions":[{{"type":"Ready","status":"{ready}","lastTransitionTime":"{}"}}]"#,
                at(end)
            ),
            _ => status,
        };
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"u-{name}","resourceVersion":"9","labels":{{"a":"b"}},
                "creationTimestamp":"{}","annotations":{{{}"batch.kubernetes.io/job-index-failure-count":"{}",
                "batch.kubernetes.io/job-index-ignored-failure-count":"{}"}}{owner}{finalizers}{deletion}}},
                "status":{{"phase":"{phase}",{status}}}}}"#,
            at(created),
            index.unwrap_or_default(),
            failures.0,
            failures.1,
        );
        Pod::decode(&json, &mut Interner::default()).unwrap()
    }
}

/// These pods as the Job's.
pub fn job_pods(job: &Job, pods: impl IntoIterator<Item = PodOf>) -> JobPods {
    let (mut owned, mut orphans) = (Vec::new(), Vec::new());
    for pod in pods {
        let list = if pod.is_owned { &mut owned } else { &mut orphans };
        list.push(Arc::new(pod.build()));
    }
    JobPods::of(job, owned, orphans)
}

/// The input of a sync.
pub fn observed(job: &Job, pods: impl IntoIterator<Item = PodOf>, second: i64) -> Observed<'_> {
    let names = match job.is_indexed() {
        true => Names::Indexed(Arc::default()),
        false => Names::Free((0..600).map(|n| format!("j-new{n}")).collect()),
    };
    Observed {
        job,
        pods: job_pods(job, pods),
        unreadable_pods: 0,
        may_adopt: true,
        names,
        reserved: 0,
        record: None,
        now: at(second),
    }
}
