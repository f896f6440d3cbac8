//! `plan`: what a change of a Deployment would do, before it is done.

mod change;
mod limits;
mod shown;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass::model::{Deployment, Interner, ObjectKey, Pod, Record, ReplicaSet, Resource};
use windlass::plan::preview::{End, Kubelet, Preview, Start, preview};

use crate::api::{Api, ApiError};
use crate::cli::{GlobalArgs, PlanArgs, PlanOutput};
use crate::connection::connect_with;
use crate::exit::{CommandError, Exit};
use crate::explain::missing;
use crate::output::Output;
use crate::revisions;
use crate::rollout::{Workload, live};
use crate::target::{self, Kind};
use crate::text::harmless;
use crate::write;
use limits::{Headroom, Needs};
use windlass_manifest::Found;

/// How long a pod takes to get ready where nothing tells.
const READY_AFTER: SignedDuration = SignedDuration::from_secs(10);

const QUOTAS: Resource =
    Resource { group: "", version: "v1", kind: "ResourceQuota", plural: "resourcequotas" };
const BUDGETS: Resource =
    Resource { group: "policy", version: "v1", kind: "PodDisruptionBudget", plural: "poddisruptionbudgets" };
const AUTOSCALERS: Resource = Resource {
    group: "autoscaling",
    version: "v2",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
};

/// All that a preview says.
struct Report {
    /// Such as `Deployment shop/web`.
    object: String,
    /// The desired number of pods.
    replicas: i64,
    /// What changes.
    said: Vec<String>,
    preview: Preview,
    /// The same if no new pod becomes ready.
    broken: Option<Preview>,
    /// Where the time from creation to readiness comes from.
    ready_from: String,
    ready_after: SignedDuration,
    needs: [Needs; 2],
    quota: Vec<String>,
    budgets: Vec<String>,
    autoscaler: Option<String>,
    /// What the server judged.
    checked: Vec<&'static str>,
    /// What nobody judged, and why.
    unjudged: Vec<String>,
    /// What crosses a bound of the command line.
    crossed: Vec<String>,
    is_paused: bool,
}

impl Report {
    /// Whether something is in the way.
    fn is_blocked(&self) -> bool {
        !self.crossed.is_empty() || (self.preview.end != End::Complete && !self.is_paused)
    }
}

/// Runs `plan`. Writes nothing: what it sends is a dry run.
///
/// # Errors
/// When the Deployment cannot be found or read, a flag does not fit it, or the server would refuse the change.
pub async fn run(global: &GlobalArgs, args: PlanArgs, output: &mut Output) -> Result<Exit, CommandError> {
    args.check().map_err(CommandError::Usage)?;
    let wanted = match &args.filename {
        Some(file) => {
            let (deployments, others) = read_file(file)?;
            for other in others {
                output.note(&format!("not previewed: {other}"));
            }
            deployments.into_iter().map(Wanted::of_file).collect()
        }
        None => vec![Wanted { name: target_of(&args)?, namespace: None, file: None }],
    };
    let reads_stdin = args.filename.as_deref() == Some("-");
    let connection = connect_with(global, &|name| std::env::var(name).ok(), reads_stdin).await?;
    let api = Api::new(connection, global.request_timeout);
    let mut exit = Exit::Success;
    for Wanted { name, namespace, file } in wanted {
        let namespace = namespace.unwrap_or_else(|| api.namespace.clone());
        let workload = match (live::read(&api, &namespace, &name).await?, &file) {
            (Some(workload), _) => workload,
            (None, Some(_)) => Workload::default(),
            (None, None) => return Err(missing(&api, &namespace, &name).await),
        };
        let report = judge(&api, &args, &ObjectKey::new(namespace, name), file, workload).await?;
        match args.output {
            PlanOutput::Text => output.text(&shown::text(&report))?,
            PlanOutput::Markdown => output.text(&shown::markdown(&report))?,
            PlanOutput::Json => output.line(&shown::json(&report).to_string())?,
        }
        exit = exit.worse(if report.is_blocked() { Exit::Obstacle } else { Exit::Success });
    }
    Ok(exit)
}

/// A Deployment to preview.
struct Wanted {
    name: String,
    namespace: Option<String>,
    /// As the file has it.
    file: Option<Value>,
}

impl Wanted {
    fn of_file(object: Value) -> Self {
        let metadata = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        Wanted {
            name: metadata("name").unwrap_or_default(),
            namespace: metadata("namespace"),
            file: Some(object),
        }
    }
}

fn target_of(args: &PlanArgs) -> Result<String, CommandError> {
    let targets = target::targets(&args.objects)?;
    let [target] = targets.as_slice() else {
        return Err(CommandError::Usage("plan takes one Deployment, or -f FILE".to_owned()));
    };
    if target.kind != Kind::Deployment {
        let text = "plan knows Deployments; for a ReplicationController see `rolling-update --dry-run`";
        return Err(CommandError::Argument(format!("{}/{}: {text}", target.kind.singular(), target.name)));
    }
    if !args.changes_something() {
        let text = "nothing to preview: say what changes, such as --image or --replicas, or pass -f FILE";
        return Err(CommandError::Usage(text.to_owned()));
    }
    Ok(target.name.clone())
}

/// The Deployments of a file, or of stdin, and what else is in it.
fn read_file(file: &str) -> Result<(Vec<Value>, Vec<String>), CommandError> {
    let wrong = |problem: String| CommandError::Argument(format!("-f {file}: {}", harmless(&problem)));
    let text = if file == "-" {
        windlass_manifest::text(&mut std::io::stdin())
    } else {
        windlass_manifest::text(&mut std::fs::File::open(file).map_err(|error| wrong(error.to_string()))?)
    };
    let text = text.map_err(|error| wrong(error.to_string()))?;
    let (mut deployments, mut others) = (Vec::new(), Vec::new());
    for (index, document) in windlass_manifest::documents(file, &text).into_iter().enumerate() {
        let Some(document) = document.map_err(wrong)? else { continue };
        for found in windlass_manifest::expand(&windlass_manifest::Origin::new(file, index), document) {
            let Found { body, kind, origin, .. } = found.map_err(|defect| wrong(defect.to_string()))?;
            let name = body["metadata"]["name"].as_str().map(harmless);
            match name {
                Some(name) if kind != "Deployment" => others.push(format!("{} {name}", harmless(&kind))),
                Some(_) => deployments.push(body),
                None => others.push(format!("{} without a name ({origin})", harmless(&kind))),
            }
        }
    }
    if deployments.is_empty() {
        return Err(wrong("it has no Deployment, and nothing else is previewed".to_owned()));
    }
    Ok((deployments, others))
}

/// The change of a Deployment, and what the server says to it.
struct Change {
    wanted: Value,
    said: Vec<String>,
    /// A pod of the new template, as the server would admit it.
    pod: Value,
    checked: Vec<&'static str>,
    unjudged: Vec<String>,
}

async fn change_of(
    api: &Api,
    args: &PlanArgs,
    key: &ObjectKey,
    file: Option<Value>,
    workload: &Workload,
) -> Result<Change, CommandError> {
    let object = format!("deployment {key}");
    let (now, is_new) = (&workload.deployment, workload.deployment.is_null());
    let history = revisions::of(now, &workload.replica_sets);
    let (mut wanted, mut said) = (now.clone(), Vec::new());
    if let Some(file) = file {
        if is_new {
            said.push("it is created".to_owned());
            wanted = file;
            wanted["metadata"]["namespace"] = json!(key.namespace);
        } else {
            merge(&mut wanted["spec"], &file["spec"]);
            if wanted["spec"] != now["spec"] {
                said.push(format!("-f {}", args.filename.as_deref().unwrap_or_default()));
            }
        }
    }
    let applied = change::apply(&mut wanted, args, &history, api.now());
    said.extend(applied.map_err(|error| CommandError::Argument(format!("{object}: {error}")))?);
    let mut change =
        Change { wanted, said, pod: Value::Null, checked: Vec::new(), unjudged: workload.unreadable.clone() };
    let Change { wanted, checked, unjudged, pod, .. } = &mut change;
    let mut is_judged = false;
    if wanted["spec"] != now["spec"] && args.server_dry_run {
        let tried = if is_new {
            let path = Deployment::RESOURCE.path(Some(&key.namespace));
            write::try_create(api, &object, &path, &*wanted).await
        } else {
            try_deployment(api, &object, now, wanted).await
        };
        match tried {
            Ok(judged) => {
                (*wanted, is_judged) = (judged, true);
                checked.push("the Deployment");
            }
            // The namespace of a new one may be made only with it.
            Err(error) if may_not_try(&error) || (is_new && error.code() == Some(404)) => {
                unjudged.push(format!("the Deployment by the server ({error})"));
            }
            Err(error) => return Err(error.into()),
        }
        match try_pod(api, &key.namespace, wanted).await {
            Ok(judged) => {
                *pod = judged;
                checked.push("one pod");
            }
            // A quota that is used up refuses this one pod; the rollout waits for old ones to go.
            Err(error) => unjudged.push(format!("a pod by the server ({error})")),
        }
    }
    if pod.is_null() {
        *pod = json!({"spec": wanted["spec"]["template"]["spec"]});
    }
    if !is_judged && wanted["spec"] != now["spec"] {
        let generation = now["metadata"]["generation"].as_i64().unwrap_or(0);
        wanted["metadata"]["generation"] = generation.saturating_add(1).into();
    }
    // What a new one does not have before it is stored.
    for (field, value) in [("uid", "preview"), ("resourceVersion", "0")] {
        if !wanted["metadata"][field].is_string() {
            wanted["metadata"][field] = value.into();
        }
    }
    Ok(change)
}

async fn judge(
    api: &Api,
    args: &PlanArgs,
    key: &ObjectKey,
    file: Option<Value>,
    workload: Workload,
) -> Result<Report, CommandError> {
    let Change { wanted, said, pod, checked, mut unjudged } =
        change_of(api, args, key, file, &workload).await?;
    let Workload { deployment: now, replica_sets, pods, .. } = workload;
    let (namespace, name) = (&*key.namespace, &*key.name);
    let [quotas, budgets, autoscalers] = limits_of(api, namespace, &mut unjudged).await?;
    let old = pods.iter().map(|pod| limits::needs(&pod["spec"])).next();
    let new_needs = limits::needs(&pod["spec"]);
    let needs = [old.unwrap_or_else(|| new_needs.clone()), new_needs];
    let (headrooms, notes) = limits::headrooms(&quotas, &needs[1], &needs[0]);
    unjudged.extend(notes);

    let (ready_after, ready_from) = ready_after(args, &pods);
    let grace = wanted["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let stop_after = args.stop_after.map_or(SignedDuration::from_secs(grace.clamp(0, 86_400)), signed);
    let kubelet = Kubelet { ready_after, stop_after, broken: args.assume.unwrap_or(0) };
    let start = start(&wanted, &replica_sets, &pods, api.now(), kubelet)
        .map_err(|error| CommandError::Unreadable { object: format!("deployment {key}"), error })?;
    let is_paused = start.deployment.paused;
    let replicas = i64::from(start.deployment.replicas);
    let without = preview(start.clone());
    let rooms = headrooms.iter().map(|headroom: &Headroom| headroom.room.clone()).collect();
    let with = preview(Start { rooms, ..start.clone() });
    let broken = (args.assume.is_none() && with.steps.len() > 1 && !is_paused)
        .then(|| preview(Start { kubelet: Kubelet { broken: usize::MAX, ..kubelet }, ..start }))
        .filter(|broken| broken.end != End::Complete);
    let template_labels = &wanted["spec"]["template"]["metadata"]["labels"];
    Ok(Report {
        object: format!("Deployment {key}"),
        replicas,
        said,
        quota: limits::quota_lines(&headrooms, &with, &without),
        budgets: limits::budget_lines(&budgets, template_labels, replicas, &with),
        autoscaler: limits::autoscaler_line(
            &autoscalers,
            name,
            wanted["spec"]["replicas"] != now["spec"]["replicas"],
        ),
        crossed: crossed(args, &with),
        preview: with,
        broken,
        ready_from,
        ready_after,
        needs,
        checked,
        unjudged,
        is_paused,
    })
}

/// What crosses the bounds of the command line.
fn crossed(args: &PlanArgs, preview: &Preview) -> Vec<String> {
    let mut crossed = Vec::new();
    if let (Some(least), Some((nth, step))) = (args.min_available, preview.lowest())
        && step.available < least
    {
        crossed.push(format!("step {nth} has {} available; --min-available {least}", step.available));
    }
    if let Some(most) = args.max_pods.filter(|most| preview.most() > *most) {
        crossed.push(format!("{} pods exist at the same time; --max-pods {most}", preview.most()));
    }
    crossed
}

/// Lays a file over what is there: fields that it does not name stay, lists are replaced.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

async fn try_deployment(api: &Api, what: &str, now: &Value, wanted: &Value) -> Result<Value, ApiError> {
    let key = |field: &str| now["metadata"][field].as_str().unwrap_or_default();
    let path = Deployment::RESOURCE.path_of(&ObjectKey::new(key("namespace"), key("name")));
    let operations = vec![json!({"op": "replace", "path": "/spec", "value": wanted["spec"]})];
    write::try_replace(api, what, &path, now, operations).await
}

async fn try_pod(api: &Api, namespace: &str, deployment: &Value) -> Result<Value, ApiError> {
    let template = &deployment["spec"]["template"];
    let mut body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "windlass-plan-"},
                          "spec": template["spec"]});
    for field in ["labels", "annotations"] {
        if !template["metadata"][field].is_null() {
            body["metadata"][field] = template["metadata"][field].clone();
        }
    }
    write::try_create(api, "a pod of the new template", &Pod::RESOURCE.path(Some(namespace)), &body).await
}

/// Whether the server does not offer this user a dry run: no right to patch, or a webhook with side effects.
fn may_not_try(error: &ApiError) -> bool {
    error.is_forbidden()
        || (error.code() == Some(400) && error.to_string().to_lowercase().contains("dry run"))
}

/// The quotas, disruption budgets and autoscalers of a namespace. A right that is missing, or an API that is not
/// served, skips one with its reason.
async fn limits_of(
    api: &Api,
    namespace: &str,
    unjudged: &mut Vec<String>,
) -> Result<[Vec<Value>; 3], CommandError> {
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for (listed, resource) in all.iter_mut().zip([QUOTAS, BUDGETS, AUTOSCALERS]) {
        match api.list(resource.plural, &resource.path(Some(namespace)), &[]).await {
            Ok(found) => *listed = found.items,
            Err(error) if error.is_forbidden() => unjudged.push(format!("{} ({error})", resource.plural)),
            Err(error) if error.code() == Some(404) => {
                unjudged.push(format!("{} (this server does not serve them)", resource.plural));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

fn signed(duration: std::time::Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// How long a pod takes to get ready: as the user says, else as the pods that run took.
fn ready_after(args: &PlanArgs, pods: &[Value]) -> (SignedDuration, String) {
    if let Some(given) = args.ready_after {
        return (signed(given), "--ready-after".to_owned());
    }
    let mut took: Vec<SignedDuration> = pods.iter().filter_map(startup).collect();
    took.sort();
    match took.get(took.len() / 2) {
        Some(median) => {
            // The API has whole seconds: 0 is a fraction of one.
            (
                (*median).max(SignedDuration::from_secs(1)),
                format!("median of {} that run", crate::text::counted(took.len() as i64, "pod")),
            )
        }
        None => (READY_AFTER, "assumed: no pod runs that tells".to_owned()),
    }
}

/// How long a pod took from its start to its readiness, if it was never restarted since.
fn startup(pod: &Value) -> Option<SignedDuration> {
    let status = &pod["status"];
    let containers = status["containerStatuses"].as_array()?;
    if containers.iter().any(|container| container["restartCount"] != 0) {
        return None;
    }
    let time = |value: &Value| -> Option<Timestamp> { value.as_str()?.parse().ok() };
    let ready = status["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == "Ready" && condition["status"] == "True")?;
    let took = time(&ready["lastTransitionTime"])?.duration_since(time(&status["startTime"])?);
    (!took.is_negative()).then_some(took)
}

/// The records for the planners.
fn start(
    deployment: &Value,
    replica_sets: &[Value],
    pods: &[Value],
    now: Timestamp,
    kubelet: Kubelet,
) -> Result<Start, serde_json::Error> {
    let interner = &mut Interner::default();
    let replica_sets =
        replica_sets.iter().filter_map(|set| ReplicaSet::decode(&set.to_string(), interner).ok()).collect();
    let pods =
        pods.iter().filter_map(|pod| Pod::decode(&pod.to_string(), interner).ok()).map(Arc::new).collect();
    let deployment = Deployment::decode(&deployment.to_string(), interner)?;
    // The API has whole seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    Ok(Start { deployment, replica_sets, pods, now, kubelet, rooms: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_was_restarted_does_not_tell_how_long_a_start_takes() {
        let pod = |restarts: i64, ready: &str| {
            json!({"status": {"startTime": "2026-01-01T00:00:00Z",
                "containerStatuses": [{"restartCount": restarts}],
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": ready}]}})
        };
        let seconds = |pod: &Value| startup(pod).map(|took| took.as_secs());
        assert_eq!(seconds(&pod(0, "2026-01-01T00:00:07Z")), Some(7));
        assert_eq!(seconds(&pod(1, "2026-01-01T00:00:07Z")), None);
        assert_eq!(seconds(&pod(0, "2025-12-31T00:00:00Z")), None, "a clock that is off");
        assert_eq!(seconds(&json!({})), None);
    }

    #[test]
    fn a_file_keeps_what_it_does_not_name() {
        let mut spec = json!({"replicas": 3, "strategy": {"type": "RollingUpdate"}, "template": {"a": [1]}});
        merge(&mut spec, &json!({"template": {"a": [2], "b": 1}}));
        assert_eq!(
            spec,
            json!({"replicas": 3, "strategy": {"type": "RollingUpdate"}, "template": {"a": [2], "b": 1}})
        );
    }
}
