//! Conditions that must hold once the faults have ended: NS5, NS6 and NS9.

use std::sync::Arc;
use std::time::Duration;

use super::actors::Actors;
use super::judge::{Cluster, Failures};
use super::scenario::Scenario;
use super::truth::{self, NAMES};
use crate::engine::breach::Breach;
use crate::engine::objects::text;

/// By when the conditions are true: the longest backoff of a failed round and of a broken watch.
const SETTLED: Duration = Duration::from_secs(120);

/// By when namespaces are gone after that, once nothing of others keeps them.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that a quiet controller may take beyond the delay: the pause between two rounds, and the grace of a status.
const PROMPT: Duration = Duration::from_secs(2);

/// For how long a controller without work is watched.
const QUIET: Duration = Duration::from_secs(300);

/// The content of the last namespace: a place in [`truth::KINDS`], and a finalizer of the garbage collector.
const LAST: [(usize, Option<&str>); 3] = [(0, Some("orphan")), (1, Some("foregroundDeletion")), (2, None)];

/// Checks what the conditions say of namespaces that something keeps, that they go once nothing does, that another goes
/// at once, and that nothing is written any more.
///
/// # Errors
/// The condition that does not hold.
pub async fn converges(cluster: &Arc<Cluster>, actors: &Actors, scenario: &Scenario) -> Result<(), Breach> {
    cluster.say("the faults end");
    cluster.calm();
    cluster.with_judge(|judge| judge.failures = Failures::default());
    tokio::time::sleep(SETTLED).await;
    for name in NAMES {
        conditions_are_true(cluster, name)?;
    }
    cluster.say("nothing keeps a namespace any more");
    let begun = cluster.elapsed();
    while let Some(name) = NAMES.into_iter().find(|name| is_terminating(cluster, name)) {
        if cluster.failure().is_some() {
            return Ok(());
        }
        if cluster.elapsed() - begun > GONE_TIMEOUT + scenario.delay {
            let left = truth::content(&cluster.sandbox, name);
            let kept =
                left.iter().any(|object| !truth::strings(&object["metadata"]["finalizers"]).is_empty());
            let invariant = if kept { "NS9" } else { "NS5" };
            return Err(Breach::new(invariant, format!("namespace {name} does not go: {left:?}")));
        }
        actors.end_pods().await;
        for name in NAMES {
            actors.release(name).await;
            actors.release_namespace(name).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    goes_at_once(cluster, actors, scenario).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let writes = cluster.with_judge(|judge| judge.writes);
    cluster.break_watches(true);
    tokio::time::sleep(QUIET).await;
    match cluster.with_judge(|judge| judge.writes) - writes {
        0 => Ok(()),
        more => Err(Breach::new("NS6", format!("{more} writes of a controller without work"))),
    }
}

fn is_terminating(cluster: &Cluster, name: &str) -> bool {
    truth::namespace(&cluster.sandbox, name).as_ref().is_some_and(truth::is_deleting)
}

/// NS6, by what the namespace holds: nothing changes it any more.
fn conditions_are_true(cluster: &Cluster, name: &str) -> Result<(), Breach> {
    let Some(namespace) = truth::namespace(&cluster.sandbox, name) else { return Ok(()) };
    // Without tokens no round follows any more: what keeps it then is not the controller's.
    if !truth::is_deleting(&namespace) || truth::strings(&namespace["spec"]["finalizers"]).is_empty() {
        return Ok(());
    }
    let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for (kind, texts) in truth::expected(&truth::content(&cluster.sandbox, name)) {
        let condition = conditions.iter().find(|condition| condition["type"] == kind);
        let said = condition.map(|condition| text(condition, "/status")).unwrap_or_default();
        let message = condition.map(|condition| text(condition, "/message")).unwrap_or_default();
        let wanted = if texts.is_empty() { "False" } else { "True" };
        if said != wanted || !texts.iter().all(|text| message.contains(text)) {
            let what = format!("{kind} of {name} says {said:?} {message:?}, and {texts:?} is true");
            return Err(Breach::new("NS6", what));
        }
    }
    Ok(())
}

/// NS5: a namespace without anything of others goes as soon as its pods have ended and the delay is over.
async fn goes_at_once(cluster: &Arc<Cluster>, actors: &Actors, scenario: &Scenario) -> Result<(), Breach> {
    let [.., name] = NAMES;
    actors.create_namespace(name, &[], &[]).await;
    for (kind, finalizer) in LAST {
        actors.create(kind, name, "x-last", finalizer).await;
    }
    let held = truth::content(&cluster.sandbox, name);
    if held.len() != LAST.len() {
        return Err(Breach::new("the simulation", format!("the last namespace holds {held:?}")));
    }
    actors.delete_namespace(name).await;
    // The controller deletes the pod, the kubelet ends it.
    tokio::time::sleep(PROMPT).await;
    actors.end_pods().await;
    let deadline = cluster.elapsed() + scenario.delay.max(PROMPT);
    while truth::namespace(&cluster.sandbox, name).is_some() {
        if cluster.elapsed() > deadline {
            let left = truth::content(&cluster.sandbox, name);
            return Err(Breach::new("NS5", format!("namespace {name} does not go at once: {left:?}")));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
