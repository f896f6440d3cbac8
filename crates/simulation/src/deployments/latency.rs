//! Reactions that must follow at once, and that another workload's failures must not delay, where there are no
//! faults: L3, L6, L7 and L9.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::deadlines::{SLACK, time_of};
use super::objects::{controller, is_named_after, objects};
use super::scenario::{Act, NAMES, Scenario};
use super::server::Server;
use super::settling::{is_settled, until};
use crate::engine::breach::Breach;
use crate::engine::objects::{Picture, is_available, is_deleting, is_live, number, text};

/// The interval between two checks.
const STEP: Duration = Duration::from_millis(50);

/// How long a pod may be available before its ReplicaSet reports it.
const REPORTED: Duration = Duration::from_secs(1);

/// How long after its watch has caught up a daemon may take to act.
const UNBLOCKED: Duration = Duration::from_millis(100);

/// How long immediate work may take: a slow start, and a status.
const AT_ONCE: Duration = Duration::from_secs(2);

/// The longest backoff between two attempts.
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// The resources whose watches lag, one in each history.
const LAGGING: [&str; 3] = ["deployments", "replicasets", "pods"];

/// Checks one of these, chosen by the seed, since each takes time.
///
/// # Errors
/// When something does not follow in time.
pub async fn follows_promptly(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    let nth = scenario.seed / 4;
    match nth % 4 {
        // With wrong clocks the daemons disagree on when a pod is available.
        0 if scenario.clocks.is_empty() => availability_is_reported(nth, server, actors).await,
        1 => continues_when_a_watch_catches_up(nth, scenario, server, actors).await,
        2 => quota_room_is_used_at_once(server, actors).await,
        _ => failures_delay_no_other_deployment(scenario, server, actors).await,
    }
}

/// L6: a ReplicaSet reports a pod that has become available within a second.
async fn availability_is_reported(nth: u64, server: &Server, actors: &Actors) -> Result<(), Breach> {
    actors.min_ready(2 + nth % 3).await;
    actors.images("prompt").await;
    // Since when each ReplicaSet reports fewer pods than are available, and how many fewer.
    let mut unreported: BTreeMap<String, (Duration, i64)> = BTreeMap::new();
    let begin = server.start.elapsed();
    loop {
        let (picture, now) = (server.picture(), server.start.elapsed());
        for replica_set in objects(&picture, "replicasets").filter(|replica_set| !is_deleting(replica_set)) {
            let name = text(replica_set, "/metadata/name");
            let seconds = number(replica_set, "/spec/minReadySeconds");
            let available = |pod: &&Value| is_available(pod, seconds, server.clock.now());
            let there =
                i64::try_from(pods_of(&picture, replica_set).filter(available).count()).unwrap_or(i64::MAX);
            let told = number(replica_set, "/status/availableReplicas");
            if told >= there {
                unreported.remove(name);
                continue;
            }
            // The number of unreported pods may have fallen while others became available.
            let (since, least) = unreported.entry(name.to_owned()).or_insert((now, there));
            if told >= *least {
                (*since, *least) = (now, there);
            }
            *least = there.min(*least);
            if now - *since > REPORTED + 2 * STEP {
                let what =
                    format!("{name} reports {told} available pods and has had {least} since {since:?}");
                return Err(Breach::new("L6", what));
            }
        }
        let patience = 2 * LONGEST_BACKOFF;
        if server.is_over() || is_settled(&picture).is_ok() || now - begin > patience {
            return Ok(());
        }
        tokio::time::sleep(STEP).await;
    }
}

/// L7: a key that waits for a watch continues as soon as the watch has caught up.
async fn continues_when_a_watch_catches_up(
    nth: u64,
    scenario: &Scenario,
    server: &Server,
    actors: &Actors,
) -> Result<(), Breach> {
    let resource = LAGGING[usize::try_from(nth / 4 % 3).unwrap_or(0)];
    for daemon in 0..scenario.daemons {
        // Longer than pods take to start and to end.
        server.lag(daemon, resource, Duration::from_secs(8));
    }
    actors.images("prompt").await;
    tokio::time::sleep(server.lagging_for()).await;
    let then = server.picture();
    tokio::time::sleep(UNBLOCKED).await;
    let now = server.picture();
    if server.is_over() {
        return Ok(());
    }
    let wants_pods = |deployment: &&Value| number(deployment, "/spec/replicas") > 0;
    // A Deployment with Recreate waits for the old pods to end before it creates a ReplicaSet.
    let is_next = |all: &&Value| resource == "pods" || text(all, "/spec/strategy/type") != "Recreate";
    for deployment in objects(&then, "deployments").filter(wants_pods).filter(is_next) {
        let name = text(deployment, "/metadata/name");
        let late = |what: &str| {
            let what =
                format!("{name}: the watch of {resource} has shown everything for {UNBLOCKED:?}, and {what}");
            Err(Breach::new("L7", what))
        };
        let Some(replica_set) = prompt_replica_set(&now, deployment) else {
            return late("there is no new ReplicaSet");
        };
        if resource == "replicasets"
            && pods_of(&now, replica_set).next().is_none()
            && number(replica_set, "/spec/replicas") > 0
        {
            return late("the new ReplicaSet has no pods");
        }
        let ready = prompt_replica_set(&then, deployment).map_or(0, |replica_set| {
            pods_of(&then, replica_set).filter(|pod| is_available(pod, 0, server.clock.now())).count()
        });
        if resource == "pods"
            && number(replica_set, "/status/readyReplicas") < i64::try_from(ready).unwrap_or(0)
        {
            return late(&format!("the new ReplicaSet does not report {ready} ready pods"));
        }
    }
    Ok(())
}

/// The ReplicaSet of a Deployment's new template.
fn prompt_replica_set<'p>(picture: &'p Picture, deployment: &Value) -> Option<&'p Value> {
    let uid = text(deployment, "/metadata/uid");
    let mut replica_sets =
        objects(picture, "replicasets").filter(|replica_set| controller(replica_set) == uid);
    replica_sets
        .find(|replica_set| text(replica_set, "/spec/template/spec/containers/0/image") == "app:prompt")
}

fn pods_of<'p>(picture: &'p Picture, replica_set: &Value) -> impl Iterator<Item = &'p Value> {
    let uid = text(replica_set, "/metadata/uid").to_owned();
    objects(picture, "pods").filter(move |pod| controller(pod) == uid && is_live(pod))
}

/// L3: pods that a quota refused are created as soon as another pod of the namespace has ended, however long the
/// backoff has become.
async fn quota_room_is_used_at_once(server: &Server, actors: &Actors) -> Result<(), Breach> {
    actors.unowned_pod(true).await;
    actors.exceed_quota().await;
    tokio::time::sleep(Duration::from_secs(45)).await;
    server.set_quota(false);
    // No daemon watches the quota.
    tokio::time::sleep(Duration::from_millis(10)).await;
    actors.unowned_pod(false).await;
    tokio::time::sleep(AT_ONCE).await;
    let picture = server.picture();
    for replica_set in objects(&picture, "replicasets").filter(|replica_set| !is_deleting(replica_set)) {
        let (name, size) = (text(replica_set, "/metadata/name"), number(replica_set, "/spec/replicas"));
        let pods = pods_of(&picture, replica_set).count();
        if !server.is_over() && i64::try_from(pods).unwrap_or(i64::MAX) < size {
            let what =
                format!("the quota has had room for {AT_ONCE:?}, and {name} has {pods} of {size} pods");
            return Err(Breach::new("L3", what));
        }
    }
    Ok(())
}

/// L9 and L3: a daemon that cannot write for one Deployment serves the others without delay, and serves that one when
/// it can again.
async fn failures_delay_no_other_deployment(
    scenario: &Scenario,
    server: &Server,
    actors: &Actors,
) -> Result<(), Breach> {
    for name in NAMES {
        // There are at least two Deployments.
        let create = Act::Create { name, replicas: 3, surge: 1, unavailable: 1, recreate: false };
        actors.act(&create).await;
    }
    until(server, actors, is_settled, 2 * LONGEST_BACKOFF).await?;
    let bounds = |picture: &Picture| -> BTreeMap<String, Duration> {
        let named =
            |deployment| (text(deployment, "/metadata/name").to_owned(), time_of(deployment, scenario));
        objects(picture, "deployments").map(named).collect()
    };
    let bounds = bounds(&server.picture());
    let (troubled, fine) =
        if scenario.seed.is_multiple_of(2) { (NAMES[0], NAMES[1]) } else { (NAMES[1], NAMES[0]) };
    server.forbid(Some(troubled));
    actors.images("prompt").await;
    tokio::time::sleep(bounds.get(fine).copied().unwrap_or(SLACK)).await;
    if let Err(unrest) = is_settled(&of(&server.picture(), fine))
        && !server.is_over()
    {
        let what = format!("no write for {troubled} succeeds, and {fine} is not rolled out either: {unrest}");
        return Err(Breach::new("L9", what));
    }
    // By then the backoff has reached its cap.
    tokio::time::sleep(2 * LONGEST_BACKOFF).await;
    server.forbid(None);
    let bound = LONGEST_BACKOFF + bounds.get(troubled).copied().unwrap_or_default() + SLACK;
    until(server, actors, is_settled, bound)
        .await
        .map_err(|Breach { what, .. }| Breach::new("L3", format!("not within {bound:?}: {what}")))
}

/// The objects of a Deployment, by its name, including the pods of other names that its ReplicaSets own.
fn of(picture: &Picture, name: &str) -> Picture {
    let replica_sets = picture.get("replicasets").into_iter().flatten();
    let replica_sets: Vec<&Value> = replica_sets
        .filter(|(other, _)| is_named_after(other, name))
        .map(|(_, replica_set)| &**replica_set)
        .collect();
    let is_theirs = |object: &Value| {
        replica_sets.iter().any(|replica_set| text(replica_set, "/metadata/uid") == controller(object))
    };
    let part = |all: &BTreeMap<String, Arc<Value>>| {
        all.iter()
            .filter(|(other, object)| is_named_after(other, name) || is_theirs(object))
            .map(|(name, object)| (name.clone(), object.clone()))
            .collect()
    };
    picture.iter().map(|(resource, all)| (resource.clone(), part(all))).collect()
}
