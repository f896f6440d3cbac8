//! Conditions that must hold once the faults have ended: DS10, DS12, DS13, DS16, DS17, DS20 and DS21. A quota stays in
//! force until the cluster has settled: an error that holds up the deletions that make room would never end.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::cluster::daemon_set;
use super::judge::Cluster;
use super::placement::{Requirement, requirement, target};
use crate::engine::breach::Breach;
use crate::engine::objects::{is_available, is_deleting, is_live, number, text};

/// By when everything is settled: the longest time for which a name stays in doubt, the longest backoff, the backoff
/// of a pod that has failed several times, and a rollout over all nodes.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(900);

const HASH: &str = "/metadata/labels/controller-revision-hash";

/// Waits until everything has converged, then checks that nodes are served at once, and that nothing is written any
/// more.
///
/// # Errors
/// The objects that have not converged.
pub async fn converges(cluster: &Arc<Cluster>, actors: &mut Actors, has_policy: bool) -> Result<(), Breach> {
    cluster.say("the faults end");
    cluster.calm();
    if has_policy {
        actors.release().await;
    }
    actors.repair().await;
    // Everything may look settled before nodes that report again have lost their taints.
    tokio::time::sleep(Duration::from_secs(3)).await;
    until_settled(cluster, actors).await?;
    // A quota may stand in the way of none of it, though nothing is left of it; from here on there is one more node.
    actors.set_quota(None).await;
    nodes_are_served(cluster, actors).await?;
    until_settled(cluster, actors).await?;
    if has_policy {
        rests_at_the_step(cluster, actors).await?;
    }
    check_quiescence(cluster, actors).await
}

/// RP5 and RP14: at rest in the step one node has a new pod, and nothing is written until it is approved.
async fn rests_at_the_step(cluster: &Arc<Cluster>, actors: &Actors) -> Result<(), Breach> {
    let new_pods = || {
        let pods = cluster.sandbox.objects("Pod");
        let is_new = |pod: &&Value| is_live(pod) && text(pod, "/spec/containers/0/image") == "agent:8";
        pods.iter().filter(is_new).count()
    };
    let nodes = cluster.sandbox.objects("Node");
    let Some(daemon_set) = daemon_set(&cluster.sandbox) else { return Ok(()) };
    let runs = nodes.iter().filter(|node| requirement(&daemon_set, node) == Requirement::Run).count();
    actors.hold().await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    if new_pods() != runs.min(1) {
        return Err(Breach::new("RP5", format!("{} of {runs} nodes have a new pod", new_pods())));
    }
    let writes = cluster.writes();
    tokio::time::sleep(Duration::from_secs(600)).await;
    match cluster.writes() - writes {
        0 => {}
        writes => return Err(Breach::new("RP14", format!("{writes} writes while a step holds"))),
    }
    actors.approve_latest().await;
    until_settled(cluster, actors).await?;
    actors.release().await;
    until_settled(cluster, actors).await
}

async fn until_settled(cluster: &Arc<Cluster>, actors: &Actors) -> Result<(), Breach> {
    let begun = cluster.elapsed();
    while let Err(unrest) = is_settled(cluster) {
        if cluster.failure().is_some() {
            return Ok(());
        }
        if cluster.elapsed() - begun > SETTLE_TIMEOUT {
            return Err(Breach::new("DS20", unrest));
        }
        actors.heal().await;
        actors.replace().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    cluster.say("settled");
    Ok(())
}

/// A node that is added gets its pod within a second and slow start; one that is removed no longer counts.
async fn nodes_are_served(cluster: &Arc<Cluster>, actors: &Actors) -> Result<(), Breach> {
    let desired = || {
        daemon_set(&cluster.sandbox)
            .map_or(0, |daemon_set| number(&daemon_set, "/status/desiredNumberScheduled"))
    };
    let Some(daemon_set) = daemon_set(&cluster.sandbox) else { return Ok(()) };
    let zone = text(&daemon_set, "/spec/template/spec/nodeSelector/zone");
    if !zone.is_empty() {
        return Ok(());
    }
    let before = desired();
    actors.add_node("late").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let has_pod = cluster.sandbox.objects("Pod").iter().any(|pod| target(pod) == "late");
    if !has_pod {
        return Err(Breach::new("DS17", "a new node has no pod after two seconds"));
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    actors.remove_node("late").await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    match desired() {
        desired if desired == before => Ok(()),
        desired => Err(Breach::new(
            "DS17",
            format!("desiredNumberScheduled is {desired} after a node was removed; expected {before}"),
        )),
    }
}

async fn check_quiescence(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    // For the last status, and the garbage collector.
    tokio::time::sleep(Duration::from_secs(180)).await;
    let writes = cluster.writes();
    for node in cluster.sandbox.objects("Node") {
        actors.heartbeat(text(&node, "/metadata/name")).await;
    }
    cluster.sandbox.compact();
    cluster.sandbox.break_watches();
    tokio::time::sleep(Duration::from_secs(300)).await;
    actors.daemons.crash().await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    is_settled(cluster)
        .map_err(|unrest| Breach::new("DS20", format!("converged, and then no longer: {unrest}")))?;
    match cluster.writes() - writes {
        0 => Ok(()),
        writes => Err(Breach::new("DS21", format!("{writes} writes in a settled cluster"))),
    }
}

/// Checks that everything has converged.
fn is_settled(cluster: &Cluster) -> Result<(), String> {
    let daemon_set = daemon_set(&cluster.sandbox)
        .filter(|daemon_set| !is_deleting(daemon_set))
        .ok_or("there is no DaemonSet")?;
    let nodes = cluster.sandbox.objects("Node");
    let uid = text(&daemon_set, "/metadata/uid");
    let owner = |object: &Value| text(object, "/metadata/ownerReferences/0/uid").to_owned();
    let mut pods = cluster.sandbox.objects("Pod");
    pods.retain(|pod| owner(pod) == uid);
    let mut revisions = cluster.sandbox.objects("ControllerRevision");
    revisions.retain(|revision| owner(revision) == uid);
    let hash = current(&daemon_set, &revisions)?;
    let seconds = number(&daemon_set, "/spec/minReadySeconds");
    let [mut run, mut misscheduled] = [0, 0];
    for node in &nodes {
        let name = text(node, "/metadata/name");
        let on: Vec<&Value> = pods.iter().filter(|pod| target(pod) == name).collect();
        match requirement(&daemon_set, node) {
            Requirement::Run => {
                run += 1;
                let [pod] = on.as_slice() else { return Err(format!("{name} has {} pods", on.len())) };
                if !is_live(pod) || !is_available(pod, seconds, cluster.clock.now()) {
                    return Err(format!("the pod of {name} is not available"));
                }
                if text(pod, HASH) != hash {
                    return Err(format!("the pod of {name} has an older template"));
                }
            }
            Requirement::Stay => misscheduled += i64::from(!on.is_empty()),
            Requirement::None if !on.is_empty() => return Err(format!("{name} has {} pods", on.len())),
            Requirement::None => {}
        }
    }
    let is_known = |pod: &&Value| nodes.iter().any(|node| text(node, "/metadata/name") == target(pod));
    if let Some(pod) = pods.iter().find(|pod| !is_known(pod)) {
        return Err(format!("{} is for no existing node", text(pod, "/metadata/name")));
    }
    for (field, wanted) in [
        ("desiredNumberScheduled", run),
        ("currentNumberScheduled", run),
        ("updatedNumberScheduled", run),
        ("numberReady", run),
        ("numberAvailable", run),
        ("numberUnavailable", 0),
        ("numberMisscheduled", misscheduled),
        ("observedGeneration", number(&daemon_set, "/metadata/generation")),
    ] {
        let said = number(&daemon_set["status"], &format!("/{field}"));
        if said != wanted {
            return Err(format!("{field} is {said}; expected {wanted}"));
        }
    }
    has_its_history(&daemon_set, &revisions, &pods, hash)
}

/// The hash of the only revision that has the template, which must have the highest number.
fn current<'a>(daemon_set: &Value, revisions: &'a [Value]) -> Result<&'a str, String> {
    let has = |revision: &&Value| {
        let mut template = revision["data"]["spec"]["template"].clone();
        template.as_object_mut().map(|fields| fields.remove("$patch"));
        template == daemon_set["spec"]["template"]
    };
    let all: Vec<&Value> = revisions.iter().filter(has).collect();
    let [current] = all.as_slice() else { return Err(format!("{} revisions have the template", all.len())) };
    let number = |revision: &Value| number(revision, "/revision");
    match revisions.iter().any(|other| number(other) > number(current)) {
        true => Err("the current revision does not have the highest number".into()),
        false => Ok(text(current, HASH)),
    }
}

fn has_its_history(
    daemon_set: &Value,
    revisions: &[Value],
    pods: &[Value],
    hash: &str,
) -> Result<(), String> {
    let limit = daemon_set["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10) as usize;
    let old = revisions.iter().filter(|revision| text(revision, HASH) != hash);
    let is_used = |revision: &&Value| pods.iter().any(|pod| text(pod, HASH) == text(revision, HASH));
    let (used, unused): (Vec<&Value>, Vec<&Value>) = old.partition(|revision| is_used(revision));
    match used.len() + unused.len() > limit
        && !unused.is_empty()
        && unused.len() + used.len() > limit.max(used.len())
    {
        true => Err(format!("{} old revisions, {limit} are allowed", used.len() + unused.len())),
        false => Ok(()),
    }
}
