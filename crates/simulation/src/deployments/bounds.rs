//! The bounds of a scenario that comes from a file, and its words.

use std::time::Duration;

use super::crash_points::CrashPoint;
use super::scenario::{Act, Fault, LONG_NAME, NAMES, Scenario, Skew};
use crate::engine::replay::{StaticName, word};

/// The longest time that a file may give: one hour. A history ends only after all of its times.
const LONGEST: Duration = Duration::from_secs(3600);

/// The longest time for which a settled cluster is watched: with an election, one week takes a minute.
const LONGEST_QUIET: Duration = Duration::from_secs(7 * 24 * 3600);

/// Larger numbers of daemons, acts or pods are taken for a mistake.
const MOST_DAEMONS: usize = 8;
const MOST_ACTS: usize = 1000;
const MOST_REPLICAS: u32 = 500;

/// Checks that a scenario can be run, and comes to an end.
///
/// # Errors
/// The field that is out of bounds.
pub fn check(scenario: &Scenario) -> Result<(), String> {
    let field = |path: String, fine: bool, bound: &str| {
        if fine { Ok(()) } else { Err(format!("{path}: {bound}")) }
    };
    let daemons = (1..=MOST_DAEMONS).contains(&scenario.daemons);
    field("daemons".into(), daemons, &format!("must be between 1 and {MOST_DAEMONS}"))?;
    field("acts".into(), scenario.acts.len() <= MOST_ACTS, &format!("must be at most {MOST_ACTS}"))?;
    field("points".into(), scenario.points.len() <= MOST_ACTS, &format!("must be at most {MOST_ACTS}"))?;
    field("quiet".into(), scenario.quiet <= LONGEST_QUIET, "must be at most a week")?;
    for (name, time) in [("readiness", scenario.readiness), ("shutdown", scenario.shutdown)] {
        field(name.into(), time <= LONGEST, "must be at most an hour")?;
    }
    for (n, fault) in scenario.faults.iter().enumerate() {
        let (Fault::LostRequests(part)
        | Fault::LostReplies(part)
        | Fault::LateRequests(part)
        | Fault::LateReplies(part)
        | Fault::Refusals(part)
        | Fault::Webhook(part)
        | Fault::Throttled(part)
        | Fault::Unavailable(part)
        | Fault::Conflicts(part)
        | Fault::Behind(part)) = fault;
        field(format!("faults[{n}]"), *part <= 100, "must be at most 100 percent")?;
    }
    for (n, Skew { ahead, speed }) in scenario.clocks.iter().enumerate() {
        let bound = "must be at most a day, positive or negative";
        field(format!("clocks[{n}].ahead"), ahead.unsigned_abs() <= 86_400_000, bound)?;
        // A leader that measures its 10 s with a slower clock than this outlives its Lease of 15 s.
        field(format!("clocks[{n}].speed"), (67..=100).contains(speed), "must be between 67 and 100")?;
    }
    let mut latest = Duration::ZERO;
    for (n, (at, act)) in scenario.acts.iter().enumerate() {
        field(format!("acts[{n}].at"), *at <= LONGEST, "must be at most an hour")?;
        field(format!("acts[{n}].at"), *at >= latest, "must not be before the previous act")?;
        latest = *at;
        let fine = |seconds: u32| u64::from(seconds) <= LONGEST.as_secs();
        let hour = "must be at most an hour";
        match *act {
            Act::Lag { seconds, .. } => field(format!("acts[{n}].act.lag.seconds"), fine(seconds), hour)?,
            Act::SlowLease { seconds, .. } => {
                field(format!("acts[{n}].act.slow_lease.seconds"), fine(seconds), hour)?;
            }
            Act::Webhook { seconds } => field(format!("acts[{n}].act.webhook.seconds"), fine(seconds), hour)?,
            Act::MinReady { seconds, .. } => {
                field(format!("acts[{n}].act.min_ready.seconds"), fine(seconds), hour)?;
            }
            Act::Create { replicas, .. } | Act::Scale { replicas, .. } => {
                let kind = if matches!(act, Act::Create { .. }) { "create" } else { "scale" };
                let path = format!("acts[{n}].act.{kind}.replicas");
                field(path, replicas <= MOST_REPLICAS, &format!("must be at most {MOST_REPLICAS}"))?;
            }
            Act::OwnerlessReplicaSet { replicas } => {
                let path = format!("acts[{n}].act.bare.replicas");
                field(path, replicas <= MOST_REPLICAS, &format!("must be at most {MOST_REPLICAS}"))?;
            }
            _ => {}
        }
    }
    for (n, point) in scenario.points.iter().enumerate() {
        if let CrashPoint::Lag { milliseconds, .. } = point {
            let fine = u128::from(*milliseconds) <= LONGEST.as_millis();
            field(format!("points[{n}].lag.milliseconds"), fine, "must be at most an hour")?;
        }
    }
    Ok(())
}

/// Reads the name of a Deployment.
///
/// # Errors
/// When no user creates a Deployment of that name.
pub fn name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<StaticName, D::Error> {
    word(from, &[NAMES[0], NAMES[1], LONG_NAME])
}

/// Reads a propagation policy.
///
/// # Errors
/// When there is no such policy.
pub fn policy<'de, D: serde::Deserializer<'de>>(from: D) -> Result<StaticName, D::Error> {
    word(from, &["Background", "Foreground", "Orphan"])
}

/// Reads the name of a resource.
///
/// # Errors
/// When no daemon watches it.
pub fn resource<'de, D: serde::Deserializer<'de>>(from: D) -> Result<StaticName, D::Error> {
    word(from, &["pods", "replicasets", "deployments"])
}
