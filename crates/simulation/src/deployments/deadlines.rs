//! Events that must happen in time where there are no faults: L2, L5, L10 and H4.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::invariants::{surge, unavailable};
use super::objects::{condition, objects};
use super::scenario::Scenario;
use super::server::Server;
use super::settling::{is_settled, until};
use crate::engine::breach::Breach;
use crate::engine::call::daemon_of;
use crate::engine::objects::{number, text};
use windlass::runtime::leader_election::rules::ElectionOptions;

/// A pod that an earlier request may still create is accounted for during two minutes.
pub(super) const RESERVED: Duration = Duration::from_secs(130);

/// The time that a rollout may take beyond its waves.
pub(super) const SLACK: Duration = Duration::from_secs(5);

/// The progress deadline that users set, in seconds. The pods of a rollout with a working image are ready earlier.
const DEADLINE: u64 = 30;

/// L2: a rollout takes as many waves as it needs, and no longer.
///
/// # Errors
/// When it takes longer.
pub async fn rolls_out_in_time(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    tokio::time::sleep(RESERVED).await;
    let picture = server.picture();
    let bound = objects(&picture, "deployments").map(|deployment| time_of(deployment, scenario)).max();
    let Some(bound) = bound else { return Ok(()) };
    actors.images("timed").await;
    until(server, actors, is_settled, bound)
        .await
        .map_err(|Breach { what, .. }| Breach::new("L2", format!("not within {bound:?}: {what}")))
}

/// How long a rollout of a Deployment may take.
pub(super) fn time_of(deployment: &Value, scenario: &Scenario) -> Duration {
    let min_ready = u64::try_from(number(deployment, "/spec/minReadySeconds")).unwrap_or(0);
    // The time at which a pod became ready has no fractions of a second.
    let min_ready = Duration::from_secs(min_ready + u64::from(min_ready > 0));
    let wave = scenario.readiness + min_ready;
    if text(deployment, "/spec/strategy/type") == "Recreate" {
        return scenario.shutdown + 2 * wave + SLACK;
    }
    let (surge, unavailable) = (surge(deployment), unavailable(deployment));
    let old = (number(deployment, "/spec/replicas") - unavailable).max(0);
    let waves = u32::try_from((old + surge + unavailable - 1) / (surge + unavailable).max(1) + 1);
    wave * waves.unwrap_or(1) + SLACK
}

/// L5: an image that never starts is reported when the deadline has passed since the last progress, not before, and
/// not while the Deployment is paused; a repair clears the report.
///
/// # Errors
/// When one of these does not hold.
pub async fn deadline_is_reported(server: &Server, actors: &Actors, paused: bool) -> Result<(), Breach> {
    actors.deadline(DEADLINE).await;
    actors.images("broken").await;
    if paused {
        tokio::time::sleep(Duration::from_secs(5)).await;
        actors.pause(true).await;
        for _ in 0..DEADLINE + 5 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let picture = server.picture();
            let told = objects(&picture, "deployments").find(|deployment| reports_the_deadline(deployment));
            if let Some(deployment) = told {
                let name = text(deployment, "/metadata/name");
                return Err(Breach::new(
                    "L5",
                    format!("{name} is paused and reports ProgressDeadlineExceeded"),
                ));
            }
        }
        actors.pause(false).await;
    }
    is_reported_in_time(server).await?;
    actors.repair().await;
    actors.deadline(600).await;
    Ok(())
}

async fn is_reported_in_time(server: &Server) -> Result<(), Breach> {
    // When the last progress was, by name, and the time that the condition gives.
    let mut progress: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for second in 0..4 * DEADLINE {
        let picture = server.picture();
        let mut waiting = false;
        for deployment in objects(&picture, "deployments") {
            // A Deployment without replicas completes with any image.
            if number(deployment, "/spec/replicas") == 0 {
                continue;
            }
            let name = text(deployment, "/metadata/name");
            let (since, _) = progress.get(name).cloned().unwrap_or_default();
            let waited = second - since;
            if !reports_the_deadline(deployment) {
                let at = condition(deployment, "Progressing").map_or("", |c| text(c, "/lastUpdateTime"));
                if progress.get(name).is_none_or(|(_, last)| last != at) {
                    progress.insert(name.to_owned(), (second, at.to_owned()));
                }
                // Two seconds, and one between two checks.
                if second - progress[name].0 > DEADLINE + 3 {
                    return Err(Breach::new(
                        "L5",
                        format!("{name} does not report ProgressDeadlineExceeded in time"),
                    ));
                }
                waiting = true;
            } else if progress.contains_key(name) && waited + 2 < DEADLINE {
                let what =
                    format!("{name} reports ProgressDeadlineExceeded {waited} s after the last progress");
                return Err(Breach::new("L5", what));
            }
        }
        if !waiting || server.failure().is_some() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Err(Breach::new("L5", "progress never ends, with an image that never starts"))
}

fn reports_the_deadline(deployment: &Value) -> bool {
    condition(deployment, "Progressing")
        .is_some_and(|condition| condition["reason"] == "ProgressDeadlineExceeded")
}

/// H4: when the leader stops, a standby takes over within a retry period, and when it is killed, once the Lease has
/// expired. That the handover causes no writes is checked by the caller.
///
/// # Errors
/// When it takes longer.
pub async fn another_takes_over(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    if !scenario.election || scenario.daemons < 2 {
        return Ok(());
    }
    let options = ElectionOptions::default();
    let slowest = scenario.clocks.iter().copied().min_by_key(|skew| skew.speed).unwrap_or_default();
    let retry = slowest.takes_for(options.retry_period);
    let stop = |daemon: usize, _: &str| actors.stop(daemon);
    within(server, "was stopped", retry, stop).await?;
    // A daemon that has ended is a candidate again.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let kill = |_: usize, agent: &str| server.dies(agent);
    // The standby saw the last renewal up to a period after it was made, and checks again when the Lease has expired.
    within(server, "was killed", options.lease_duration + retry, kill).await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    Ok(())
}

async fn within(
    server: &Server,
    what: &str,
    bound: Duration,
    end: impl Fn(usize, &str),
) -> Result<(), Breach> {
    let leader = server.leader();
    let Some(daemon) = daemon_of(&leader) else {
        return Err(Breach::new("H4", format!("a settled cluster has no leader: {leader:?}")));
    };
    end(daemon, &leader);
    let step = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    loop {
        let follower = server.leader();
        if !follower.is_empty() && follower != leader {
            server.say(&format!("{leader} {what}, and {follower} leads after {waited:?}"));
            return Ok(());
        }
        if waited > bound + step {
            let what = format!("{leader} {what}, and no standby has taken over within {bound:?}");
            return Err(Breach::new("H4", what));
        }
        tokio::time::sleep(step).await;
        waited += step;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_takes_a_wave_for_each_time_the_budget_is_spent() {
        let scenario = Scenario {
            readiness: Duration::from_secs(2),
            shutdown: Duration::from_secs(1),
            ..Scenario::new(1)
        };
        let time = |replicas: i64, strategy: Value, min_ready: i64| {
            let spec = json!({"replicas": replicas, "strategy": strategy, "minReadySeconds": min_ready});
            time_of(&json!({"spec": spec}), &scenario).as_secs()
        };
        let rolling = |surge: Value, unavailable: Value| {
            json!({"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
        };
        assert_eq!(time(3, rolling(json!(1), json!(0)), 0), 4 * 2 + 5);
        assert_eq!(time(4, rolling(json!(1), json!(1)), 0), 3 * 2 + 5);
        assert_eq!(time(4, rolling(json!("25%"), json!("25%")), 1), 3 * 4 + 5);
        assert_eq!(time(0, rolling(json!("25%"), json!("25%")), 0), 2 + 5);
        assert_eq!(time(9, json!({"type": "Recreate"}), 0), 1 + 2 * 2 + 5);
    }
}
