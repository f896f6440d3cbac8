//! Whether statuses are true where there are no faults but the refusals made here: S20 and S27. The expected values
//! are computed from the pods and generations that the API server has stored.

use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::objects::{controller, objects};
use super::scenario::Scenario;
use super::server::Server;
use crate::engine::breach::Breach;
use crate::engine::objects::{Picture, is_available, is_deleting, is_live, number, text};

/// How long a status may report an earlier state: watches show everything at once.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The time between two losses: two of them occur within a second.
const BETWEEN: Duration = Duration::from_millis(300);

/// How long writes are refused.
const REFUSED: Duration = Duration::from_secs(5);

/// Checks one of these, chosen by the seed, since each takes time.
///
/// # Errors
/// When a status is not true.
pub async fn statuses_are_true(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    match scenario.seed / 3 % 3 {
        0 => generations_are_corrected(server, actors).await,
        1 => refused_writes_are_not_observed(server, actors).await,
        _ => losses_are_reported(server, actors).await,
    }
}

/// S20: an `observedGeneration` above the generation is corrected.
async fn generations_are_corrected(server: &Server, actors: &Actors) -> Result<(), Breach> {
    actors.raise_generations().await;
    tokio::time::sleep(AT_ONCE).await;
    let picture = server.picture();
    for object in ["deployments", "replicasets"].iter().flat_map(|resource| objects(&picture, resource)) {
        let (observed, generation) = generations(object);
        if observed > generation && !server.is_over() {
            let name = text(object, "/metadata/name");
            let what = format!("{name} has generation {generation} and observedGeneration {observed}");
            return Err(Breach::new("S20", what));
        }
    }
    Ok(())
}

/// S20: while the sizes of ReplicaSets cannot be changed, no resized Deployment publishes its new generation as
/// observed.
async fn refused_writes_are_not_observed(server: &Server, actors: &Actors) -> Result<(), Breach> {
    server.fix_sizes(true);
    actors.resize_all().await;
    tokio::time::sleep(REFUSED).await;
    let picture = server.picture();
    server.fix_sizes(false);
    for deployment in objects(&picture, "deployments").filter(|deployment| !is_deleting(deployment)) {
        let (observed, generation) = generations(deployment);
        if observed >= generation && !server.is_over() {
            let name = text(deployment, "/metadata/name");
            let what = format!("{name} could not be resized and has observedGeneration {generation}");
            return Err(Breach::new("S20", what));
        }
    }
    Ok(())
}

fn generations(object: &Value) -> (i64, i64) {
    (number(object, "/status/observedGeneration"), number(object, "/metadata/generation"))
}

/// S27: a settled workload reports each pod that it loses at once, however fast losses follow each other.
async fn losses_are_reported(server: &Server, actors: &Actors) -> Result<(), Breach> {
    // Long after the last status, so that status writes are throttled from the first loss on.
    tokio::time::sleep(2 * REFUSED).await;
    for _ in 0..3 {
        for pod in one_ready_pod_of_each(server) {
            actors.make_unready(&pod).await;
        }
        tokio::time::sleep(AT_ONCE).await;
        if server.is_over() {
            return Ok(());
        }
        overstated(&server.picture(), server.clock.now())?;
        tokio::time::sleep(BETWEEN - AT_ONCE).await;
    }
    Ok(())
}

fn one_ready_pod_of_each(server: &Server) -> Vec<Value> {
    let (picture, now) = (server.picture(), server.clock.now());
    let replica_sets: Vec<&str> =
        objects(&picture, "replicasets").map(|replica_set| text(replica_set, "/metadata/uid")).collect();
    let first = |uid: &&str| {
        let mut pods = objects(&picture, "pods").filter(|pod| controller(pod) == *uid && is_live(pod));
        pods.find(|pod| is_available(pod, 0, now)).cloned()
    };
    replica_sets.iter().filter_map(first).collect()
}

/// The first ReplicaSet or Deployment that reports more pods than there are.
fn overstated(picture: &Picture, now: jiff::Timestamp) -> Result<(), Breach> {
    let pods_of = |replica_set: &Value, least: i64| {
        let uid = text(replica_set, "/metadata/uid");
        let pods = objects(picture, "pods").filter(|pod| controller(pod) == uid && is_live(pod));
        i64::try_from(pods.filter(|pod| is_available(pod, least, now)).count()).unwrap_or(i64::MAX)
    };
    // Readiness is availability after 0 seconds.
    let counts = |replica_set: &Value| {
        [pods_of(replica_set, 0), pods_of(replica_set, number(replica_set, "/spec/minReadySeconds"))]
    };
    let told = |object: &Value| {
        ["readyReplicas", "availableReplicas"].map(|field| number(&object["status"], &format!("/{field}")))
    };
    let judge = |object: &Value, there: [i64; 2]| {
        let told = told(object);
        if told.iter().zip(&there).all(|(told, there)| told <= there) {
            return Ok(());
        }
        let name = text(object, "/metadata/name");
        let what = format!(
            "{name} reports {told:?} ready and available pods, but has had {there:?} for {AT_ONCE:?}"
        );
        Err(Breach::new("S27", what))
    };
    for replica_set in objects(picture, "replicasets") {
        judge(replica_set, counts(replica_set))?;
    }
    for deployment in objects(picture, "deployments") {
        let uid = text(deployment, "/metadata/uid");
        let replica_sets =
            objects(picture, "replicasets").filter(|replica_set| controller(replica_set) == uid).map(counts);
        judge(
            deployment,
            replica_sets.fold([0, 0], |sum, [ready, available]| [sum[0] + ready, sum[1] + available]),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn an_overstated_status_is_found_in_replica_sets_and_deployments() {
        let owner = |kind: &str, uid: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": uid, "controller": true}]);
        let status = |number: i64| json!({"readyReplicas": number, "availableReplicas": number});
        let pod = json!({"metadata": {"name": "p", "ownerReferences": owner("ReplicaSet", "s")}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}});
        let picture = |of_replica_set: i64, of_deployment: i64| -> Picture {
            let replica_set = json!({"metadata": {"name": "web-1", "uid": "s", "ownerReferences": owner("Deployment", "d")},
                             "status": status(of_replica_set)});
            let deployment =
                json!({"metadata": {"name": "web", "uid": "d"}, "status": status(of_deployment)});
            [("deployments", deployment), ("replicasets", replica_set), ("pods", pod.clone())]
                .map(|(resource, object)| {
                    (resource.to_owned(), BTreeMap::from([("x".to_owned(), Arc::new(object))]))
                })
                .into()
        };
        let judged = |of_replica_set, of_deployment| {
            overstated(&picture(of_replica_set, of_deployment), jiff::Timestamp::UNIX_EPOCH)
        };
        assert_eq!(judged(1, 1), Ok(()));
        assert_eq!(judged(0, 0), Ok(()), "a rise may wait");
        assert!(judged(2, 1).unwrap_err().what.starts_with("web-1 reports"));
        assert!(judged(1, 2).unwrap_err().what.starts_with("web reports"));
    }
}
