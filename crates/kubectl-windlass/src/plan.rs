//! `plan`: what a change of a Deployment, StatefulSet or DaemonSet, or a rolling update of a ReplicationController, would
//! do, before it is done.

mod by_revision;
mod change;
mod changes;
mod daemon_set;
mod dry_run;
mod file;
mod limits;
mod rolling_update;
mod scopes;
mod shown;
mod stateful_set;

use std::sync::Arc;

use clap::Parser as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use windlass::model::{
    Deployment, Interner, Node, ObjectKey, PersistentVolumeClaim, Pod, Record, ReplicaSet, Resource,
};
use windlass::plan::preview::daemon_set::DaemonStart;
use windlass::plan::preview::stateful_set::StatefulStart;
use windlass::plan::preview::{End, Kubelet, Preview, Room, Start, preview};

use crate::api::Api;
use crate::cli::{Args, Command, GlobalArgs, PlanArgs, PlanOutput};
use crate::connection::connect_with;
use crate::exit::{CommandError, Exit};
use crate::output::Output;
use crate::rollout::last_writes::LastWrites;
use crate::rollout::{Workload, live};
use crate::target::{self, Kind, Target, WorkloadKey};
use by_revision::Rollout as _;
use dry_run::Change;
use limits::{Headroom, Left, Needs};

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
    /// Its kind.
    kind: Kind,
    /// The desired number of pods.
    replicas: i64,
    /// The changes, in words.
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
    /// Why the server refuses each new pod.
    refusal: Option<String>,
    /// The parts that the server judged.
    checked: Vec<&'static str>,
    /// The parts that were not judged, and why.
    unjudged: Vec<String>,
    /// The bounds of the command line that the rollout crosses.
    crossed: Vec<String>,
    /// Why nothing more happens until a user acts.
    held: Option<String>,
    /// The size and the bounds of the rollout of a StatefulSet or DaemonSet, in words.
    bounds: Option<String>,
    /// The claims that are created, deleted and kept, each line with its key.
    claims: Vec<(&'static str, String)>,
}

impl Report {
    /// Whether something is in the way.
    fn is_blocked(&self) -> bool {
        let goes_on = matches!(self.preview.end, End::Complete | End::GoesOn);
        let is_refused = self.refusal.is_some() && self.preview.end != End::Complete;
        !self.crossed.is_empty() || is_refused || (!goes_on && self.held.is_none())
    }
}

/// Runs `plan`. Writes nothing: what it sends is a dry run.
///
/// # Errors
/// When the object cannot be found or read, a flag does not fit it, or the server would refuse the change.
pub async fn run(global: &GlobalArgs, args: PlanArgs, output: &mut Output) -> Result<Exit, CommandError> {
    args.check().map_err(CommandError::Usage)?;
    let wanted = match &args.filename {
        Some(file) => {
            let (deployments, others) = file::read(file, output).await?;
            for other in others {
                output.note(&format!("not previewed: {other}"));
            }
            deployments.into_iter().map(Wanted::of_file).collect()
        }
        None => {
            let Target { kind, name } = target_of(&args)?;
            vec![Wanted { kind, name, namespace: None, file: None }]
        }
    };
    let reads_stdin = args.filename.as_deref() == Some("-");
    let connection = connect_with(global, &|name| std::env::var(name).ok(), reads_stdin).await?;
    let api = Api::new(connection, global.request_timeout);
    let mut exit = Exit::Success;
    let is_one = wanted.len() == 1;
    for wanted in wanted {
        let report = match preview_of(&api, &args, wanted).await {
            Ok(report) => report,
            Err(error) if is_one => return Err(error),
            // One that is refused does not keep the others from being previewed.
            Err(error) => {
                output.error(&error.to_string());
                exit = exit.worse(Exit::Error);
                continue;
            }
        };
        match args.output {
            PlanOutput::Text => output.text(&shown::text(&report))?,
            PlanOutput::Markdown => output.text(&shown::markdown(&report))?,
            PlanOutput::Json => output.line(&crate::text::json(&shown::json(&report)))?,
        }
        exit = exit.worse(if report.is_blocked() { Exit::Obstacle } else { Exit::Success });
    }
    Ok(exit)
}

async fn preview_of(api: &Api, args: &PlanArgs, wanted: Wanted) -> Result<Report, CommandError> {
    let Wanted { kind, name, namespace, file } = wanted;
    if kind == Kind::ReplicationController {
        return rolling_update::judge(api, args, &name).await;
    }
    let namespace = namespace.unwrap_or_else(|| api.namespace.clone());
    let key = WorkloadKey { kind, namespace, name };
    let workload = match (live::read(api, &key).await?, &file) {
        (Some(workload), _) if workload.is_partial => {
            return Err(unknown(&key.described(), &workload.unreadable));
        }
        (Some(workload), _) => workload,
        (None, Some(_)) => surroundings(api, &key).await?,
        (None, None) => return Err(key.missing(api).await),
    };
    let key = ObjectKey::new(key.namespace, key.name);
    match kind {
        Kind::StatefulSet => by_revision::judge::<StatefulStart>(api, args, &key, file, workload).await,
        Kind::DaemonSet => by_revision::judge::<DaemonStart>(api, args, &key, file, workload).await,
        _ => judge(api, args, &key, file, workload).await,
    }
}

/// The objects that a workload which does not exist yet will meet: for a StatefulSet pods of its names, and claims that an
/// earlier one has left; for a DaemonSet pods and the nodes.
async fn surroundings(api: &Api, key: &WorkloadKey) -> Result<Workload, CommandError> {
    let mut workload = Workload { kind: key.kind, ..Workload::default() };
    let resources: &[Resource] = match key.kind {
        Kind::StatefulSet => &[Pod::RESOURCE, PersistentVolumeClaim::RESOURCE],
        Kind::DaemonSet => &[Pod::RESOURCE, Node::RESOURCE],
        _ => &[],
    };
    for resource in resources {
        let namespace = live::scope_of(*resource, Some(&key.namespace));
        match api.list(resource.plural, &resource.path(namespace), &[]).await {
            Ok(listed) => *workload.list_mut(*resource) = listed.items,
            Err(error) if error.is_forbidden() => {
                return Err(unknown(&key.described(), &[error.to_string()]));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(workload)
}

/// The error for an object of which not everything may be read: a preview without them would begin with none.
fn unknown(object: &str, unreadable: &[String]) -> CommandError {
    let missing = unreadable.join("; ");
    CommandError::Argument(format!(
        "{object}: {missing}: its rollout cannot be previewed without what is there now"
    ))
}

/// The object to preview.
struct Wanted {
    kind: Kind,
    name: String,
    namespace: Option<String>,
    /// As the file has it.
    file: Option<Value>,
}

impl Wanted {
    fn of_file(object: Value) -> Self {
        let metadata = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let kinds = [Kind::StatefulSet, Kind::DaemonSet];
        Wanted {
            kind: kinds.into_iter().find(|kind| object["kind"] == kind.title()).unwrap_or(Kind::Deployment),
            name: metadata("name").unwrap_or_default(),
            namespace: metadata("namespace"),
            file: Some(object),
        }
    }
}

fn target_of(args: &PlanArgs) -> Result<Target, CommandError> {
    let targets = target::targets(&args.objects)?;
    let [target] = targets.as_slice() else {
        return Err(CommandError::Usage(
            "plan takes one Deployment, StatefulSet, DaemonSet or ReplicationController, or -f FILE"
                .to_owned(),
        ));
    };
    let is_previewed = matches!(
        target.kind,
        Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet | Kind::ReplicationController
    );
    if !is_previewed {
        let text = "plan previews Deployments, StatefulSets, DaemonSets and ReplicationControllers";
        return Err(CommandError::Argument(format!("{}/{}: {text}", target.kind.singular(), target.name)));
    }
    if !args.changes_something() {
        let text = "nothing to preview: say what changes, such as --image or --replicas, or pass -f FILE";
        return Err(CommandError::Usage(text.to_owned()));
    }
    if target.kind == Kind::ReplicationController {
        rolling_update::check(args).map_err(CommandError::Usage)?;
    } else if args.update_period.is_some() {
        let text = "--update-period: only a rolling update of a ReplicationController pauses";
        return Err(CommandError::Usage(text.to_owned()));
    }
    Ok(target.clone())
}

async fn judge(
    api: &Api,
    args: &PlanArgs,
    key: &ObjectKey,
    file: Option<Value>,
    workload: Workload,
) -> Result<Report, CommandError> {
    let Change { wanted, said, pod, checked, mut unjudged, refusal } =
        dry_run::change_of(api, args, key, file, &workload).await?;
    let Workload { object: now, replica_sets, pods, .. } = workload;
    let (namespace, name) = (&*key.namespace, &*key.name);
    let [quotas, budgets, autoscalers] = limits_of(api, namespace, &mut unjudged).await?;
    let old_pod = pods.first().unwrap_or(&pod);
    let needs = [old_pod, &pod].map(|pod| limits::needs(&pod["spec"]));
    let Left { rooms: headrooms, replica_sets: sets_left, notes } = limits::left(&quotas, &pod, old_pod);
    unjudged.extend(notes);

    let (ready_after, ready_from) = ready_after(args, &pods);
    let stop_after = stop_after(args, &wanted["spec"]["template"]["spec"]);
    let kubelet = Kubelet { ready_after, stop_after, broken: args.assume.unwrap_or(0) };
    let start = start(&wanted, &replica_sets, &pods, api.now(), kubelet)
        .map_err(|error| CommandError::Unreadable { object: format!("deployment {key}"), error })?;
    let is_paused = start.deployment.paused;
    let replicas = i64::from(start.deployment.replicas);
    let start = Start { free_replica_sets: sets_left.as_ref().map(|(free, _)| *free), ..start };
    let Played { mut with, broken, mut quota } =
        play(args, refusal.as_ref(), &headrooms, kubelet, |kubelet, rooms| {
            preview(Start { kubelet, rooms, ..start.clone() })
        });
    if let (true, Some((_, name))) = (with.is_replica_set_refused, sets_left) {
        quota.push(format!("{name}: count/replicasets.apps is used up: the new ReplicaSet is refused"));
    }
    let mut broken = broken.filter(|_| !is_paused);
    if LastWrites::of(&now).status.is_some_and(|actor| actor.manager != "windlass") {
        let exists = |name: &str| replica_sets.iter().any(|set| set["metadata"]["name"] == name);
        [Some(&mut with), broken.as_mut()]
            .into_iter()
            .flatten()
            .for_each(|preview| unname(preview, name, exists));
    }
    let template_labels = &wanted["spec"]["template"]["metadata"]["labels"];
    Ok(Report {
        object: format!("Deployment {key}"),
        kind: Kind::Deployment,
        replicas,
        said,
        quota,
        budgets: limits::budget_lines(&budgets, template_labels, replicas, &with),
        autoscaler: limits::autoscaler_line(
            &autoscalers,
            "Deployment",
            name,
            wanted["spec"]["replicas"] != now["spec"]["replicas"],
        ),
        crossed: crossed(args, &with),
        preview: with,
        broken,
        ready_from,
        ready_after,
        needs,
        refusal,
        checked,
        unjudged,
        held: is_paused.then(|| {
            "paused: nothing happens until `kubectl rollout resume`; sizes alone are followed".to_owned()
        }),
        bounds: None,
        claims: Vec::new(),
    })
}

/// Previews a change of the annotations of a Deployment or DaemonSet, from objects that were read before: without a dry run
/// and without the limits of its namespace, since pods change as the policy says in any case.
///
/// # Errors
/// When the object is not what its kind says.
pub(crate) fn of_annotations(
    key: &WorkloadKey,
    workload: &Workload,
    wanted: &Value,
    said: String,
    now: Timestamp,
) -> Result<String, CommandError> {
    let Workload { object, replica_sets, pods, .. } = workload;
    let defaults = ["kubectl-windlass", "plan", &key.name];
    let Ok(Args { command: Command::Plan(args), .. }) = Args::try_parse_from(defaults) else {
        return Ok(String::new());
    };
    let (ready_after, ready_from) = ready_after(&args, pods);
    let stop_after = stop_after(&args, &wanted["spec"]["template"]["spec"]);
    let kubelet = Kubelet { ready_after, stop_after, broken: 0 };
    let unreadable = |error| CommandError::Unreadable { object: key.described(), error };
    let (replicas, bounds, preview) = match key.kind {
        Kind::DaemonSet => {
            let start = DaemonStart::of(wanted, workload, whole_seconds(now)).map_err(unreadable)?;
            (start.size(), Some(start.bounds()), start.play(kubelet, Vec::new()))
        }
        _ => {
            let start = start(wanted, replica_sets, pods, now, kubelet).map_err(unreadable)?;
            (start.deployment.replicas.into(), None, preview(start))
        }
    };
    let needs = limits::needs(&object["spec"]["template"]["spec"]);
    let report = Report {
        object: format!("{} {}/{}", key.kind.title(), key.namespace, key.name),
        kind: key.kind,
        replicas,
        said: vec![said],
        preview,
        broken: None,
        ready_from,
        ready_after,
        needs: [needs.clone(), needs],
        quota: Vec::new(),
        budgets: Vec::new(),
        autoscaler: None,
        refusal: None,
        checked: Vec::new(),
        unjudged: vec!["quotas".to_owned()],
        crossed: Vec::new(),
        held: None,
        bounds,
        claims: Vec::new(),
    };
    Ok(shown::text(&report))
}

/// Calls a ReplicaSet that another controller manager will create `NAME-HASH`.
fn unname(preview: &mut Preview, deployment: &str, exists: impl Fn(&str) -> bool) {
    let foretold = preview.parts.iter().map(|part| part.name.clone()).find(|name| !exists(name));
    if let Some(foretold) = foretold {
        preview.rename(&foretold, &format!("{deployment}-HASH").into());
    }
}

/// A rollout that was played, within the quotas of its namespace.
struct Played {
    with: Preview,
    /// The rollout whose new pods never become ready, if it ends otherwise. `None` where a flag says how many are broken, all
    /// are refused, or none is created.
    broken: Option<Preview>,
    /// The effect of the quotas, in words; none where each pod is refused in any case.
    quota: Vec<String>,
}

/// Plays a rollout by these rules of the kubelet, within what the quotas leave.
fn play(
    args: &PlanArgs,
    refusal: Option<&String>,
    headrooms: &[Headroom],
    kubelet: Kubelet,
    run: impl Fn(Kubelet, Vec<Room>) -> Preview,
) -> Played {
    // A refusal of each new pod, whatever the quotas leave, is as a quota without room.
    let refused = refusal.map(|_| Room { free: 0, new_pod: 1, old_pod: 0 });
    let rooms: Vec<Room> = headrooms.iter().map(|headroom| headroom.room.clone()).chain(refused).collect();
    let with = run(kubelet, rooms.clone());
    let is_short = refusal.is_none() && with.steps.iter().any(|step| step.refused > 0);
    let quota = match is_short {
        true => limits::quota_lines(headrooms, &with, &run(kubelet, Vec::new())),
        false => Vec::new(),
    };
    let is_asked = args.assume.is_none() && refusal.is_none() && with.steps.len() > 1;
    let broken = is_asked.then(|| run(Kubelet { broken: usize::MAX, ..kubelet }, rooms));
    let broken = broken.filter(|broken| !matches!(broken.end, End::Complete | End::GoesOn));
    Played { with, broken, quota }
}

/// From the deletion of a pod until it is gone.
fn stop_after(args: &PlanArgs, pod: &Value) -> SignedDuration {
    let grace = pod["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    args.stop_after.map_or(SignedDuration::from_secs(grace.clamp(0, 86_400)), signed)
}

/// The API has whole seconds.
fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// The bounds of the command line that the rollout crosses.
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
    let now = whole_seconds(now);
    let (rooms, free_replica_sets) = (Vec::new(), None);
    Ok(Start { deployment, replica_sets, pods, now, kubelet, rooms, free_replica_sets })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
}
