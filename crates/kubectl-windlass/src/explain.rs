//! `explain`: why a rollout is as it is. Reads only, and needs no daemon.

mod controller;
pub mod daemon;
pub mod logs;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass::plan::Reason;
use windlass::plan::deployment::PlanReason;

use crate::api::Api;
use crate::cli::{ExplainArgs, ExplainFormat, GlobalArgs};
use crate::connection::connect;
use crate::exit::{CommandError, Exit};
use crate::invocation::Invocation;
use crate::output::Output;
use crate::revisions;
use crate::rollout::claims::ClaimView;
use crate::rollout::last_writes::Actor;
use crate::rollout::pods::{PodView, SHOWN};
use crate::rollout::{self, Assessment, PartView, Verdict, live, waiting};
use crate::target::{self, Kind, Target, WorkloadKey};
use crate::text::{age, columns, counted, span};
use daemon::Daemon;

/// Runs `explain`.
///
/// # Errors
/// When an object cannot be found or read.
pub async fn run(global: &GlobalArgs, args: ExplainArgs, output: &mut Output) -> Result<Exit, CommandError> {
    let targets = target::targets(&args.objects)?;
    let daemon = Daemon::of(&args, global.request_timeout).await?;
    let connection = connect(global, &|name| std::env::var(name).ok()).await?;
    let api = Api::new(connection, global.request_timeout);
    target::refuse_owned(&api, &targets).await?;
    let (controllers, targets): (Vec<Target>, Vec<Target>) =
        targets.into_iter().partition(|target| target.kind == Kind::ReplicationController);
    // Each as text and as data.
    let mut explained: Vec<(String, Value)> = Vec::new();
    let mut exit = Exit::Success;
    for controller in &controllers {
        let (text, data) = controller::explain(&api, &controller.name, args.logs).await?;
        exit = exit.worse(if data["isPartial"] == true { Exit::Error } else { Exit::Success });
        explained.push((text, data));
    }
    let keys = match controllers.is_empty() || !targets.is_empty() {
        true => target::workloads(&api, &targets, &args.objects).await?,
        false => Vec::new(),
    };
    let plugin = Invocation::of_process().as_plugin();
    for key in keys {
        let Some((assessment, pods)) = assess(&api, &key).await? else {
            return Err(key.missing(&api).await);
        };
        exit = exit.worse(if assessment.is_partial { Exit::Error } else { Exit::Success });
        let mut data = rollout::json::assessment(&assessment, &next(&assessment));
        let mut text = text(&assessment, plugin.as_deref());
        if let Some(count) = args.logs {
            let logs = logs::read(&api, &key.namespace, &assessment.pods, &pods, count).await;
            text.push_str(&logs::text(&logs));
            data["logs"] = logs::data(&logs);
        }
        if let Some(daemon) = &daemon {
            let known = daemon.explanation(&key).await;
            text.push_str(&daemon::text(&known, api.now()));
            data["daemon"] = daemon::data(known);
        }
        explained.push((text, data));
    }
    let (texts, values): (Vec<String>, Vec<Value>) = explained.into_iter().unzip();
    if args.output == ExplainFormat::Text {
        output.text(&texts.join("\n"))?;
        return Ok(exit);
    }
    let value = match <[Value; 1]>::try_from(values) {
        Ok([value]) => value,
        Err(values) => json!({"kind": "List", "items": values}),
    };
    match args.output {
        ExplainFormat::Yaml => output.text(&revisions::yaml(&value).map_err(CommandError::Argument)?)?,
        _ => output.line(&crate::text::pretty_json(&value))?,
    }
    Ok(exit)
}

/// Reads and assesses one object, with the events of what is in its way. Also returns the pods that were listed.
async fn assess(api: &Api, key: &WorkloadKey) -> Result<Option<(Assessment, Vec<Value>)>, CommandError> {
    let Some(mut workload) = live::read(api, key).await? else { return Ok(None) };
    let unreadable = |error| CommandError::Unreadable { object: key.described(), error };
    let first = rollout::assess(&workload, api.now()).map_err(unreadable)?;
    for uid in live::worth_events(&first) {
        match live::events_of(api, &key.namespace, &uid).await {
            Ok(events) => {
                workload.events.insert(uid, events);
            }
            Err(error) => {
                workload.unreadable.push(error.to_string());
                break;
            }
        }
    }
    let assessment = rollout::assess(&workload, api.now()).map_err(unreadable)?;
    Ok(Some((assessment, workload.pods)))
}

/// The next steps of the rollout, and of the user.
pub fn next(assessment: &Assessment) -> Vec<String> {
    let Assessment { name, now, .. } = assessment;
    let mut next = Vec::new();
    match assessment.verdict {
        Verdict::Complete | Verdict::Deleting | Verdict::Refused | Verdict::Unfinished => {}
        Verdict::Stuck | Verdict::Blocked if assessment.is_partial => {}
        Verdict::Paused => next.push(format!("nothing until `kubectl rollout resume deploy/{name}`")),
        Verdict::Blocked | Verdict::Waiting if assessment.kind == Kind::StatefulSet => {
            next.extend(next_of_stateful_set(assessment));
        }
        Verdict::Unobserved => {
            let waits = assessment.since.map_or(String::new(), |since| format!(" for {}", age(since, *now)));
            next.push(format!(
                "no controller has observed generation {}{waits}: is a controller manager running? See `kubectl get \
                 leases -n kube-system`",
                assessment.generation
            ));
        }
        _ if !assessment.writes.is_empty() => next.push(assessment.writes.join(", then ")),
        Verdict::Waiting | Verdict::Stuck | Verdict::Blocked | Verdict::Rolling | Verdict::Scaling => {
            match assessment.pods.iter().find(|pod| pod.is_new) {
                Some(pod) => next.push(format!("the rollout continues when {} is ready", pod.name)),
                None => next.push("the rollout continues when its pods report progress".to_owned()),
            }
        }
    }
    if let Some(at) = assessment.deadline.filter(|_| !assessment.verdict.is_at_rest()) {
        let left = at.duration_since(*now);
        if left.is_positive() {
            next.push(format!("without progress, it counts as stuck at {at} (in {})", span(left)));
        } else {
            next.push(format!(
                "its deadline passed {} ago, and no controller has reported it",
                age(at, *now)
            ));
        }
    }
    if let Some(left) = assessment.estimate {
        let left = jiff::SignedDuration::try_from(left).unwrap_or_default();
        next.push(format!("complete in about {}, at the pace of its pods so far", span(left)));
    }
    next
}

/// The pod, claim or user that a StatefulSet waits for, and its next step.
fn next_of_stateful_set(assessment: &Assessment) -> Option<String> {
    let Assessment { namespace, then, by_hand, .. } = assessment;
    let then = then.as_ref().map_or(String::new(), |then| format!("; then it {then}"));
    if assessment.refusal.is_some() {
        return Some(
            "the controller tries again; nothing else happens until the API server accepts it".to_owned(),
        );
    }
    if let Some(pod) = awaited(assessment) {
        if own_way(assessment, pod) {
            return Some(format!(
                "nothing until {} is ready or deleted: with OrderedReady nothing else is created or replaced before",
                pod.name
            ));
        }
        let until = if pod.is_deleting { "is gone" } else { "is ready" };
        return Some(format!("the rollout continues when {} {until}{then}", pod.name));
    }
    if let Some(claim) = assessment.claims.iter().find(|claim| claim.state == "terminating") {
        return Some(format!("the rollout continues when the claim {} is gone{then}", claim.name));
    }
    if !by_hand.is_empty() {
        let pods = by_hand.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(" ");
        let more = if by_hand.len() > SHOWN { " …" } else { "" };
        return Some(format!(
            "nothing until a user deletes the older pods, one after the other: `kubectl delete pod -n {namespace} \
             {pods}`{more}"
        ));
    }
    None
}

/// The pod that a StatefulSet waits for first.
fn awaited(assessment: &Assessment) -> Option<&PodView> {
    waiting(assessment).find_map(|it| assessment.pods.iter().find(|pod| *pod.name == *it.pod))
}

/// Whether a pod of a StatefulSet has an older template, fails, and is waited for before it is replaced.
fn own_way(assessment: &Assessment, pod: &PodView) -> bool {
    waiting(assessment).any(|it| *it.pod == *pod.name && it.remedy.is_some()) && !pod.is_new && pod.is_failing
}

/// A command that may help: our own where the user calls the plugin through kubectl, as he calls it, else kubectl's.
fn advice(assessment: &Assessment, plugin: Option<&str>) -> Option<String> {
    if let Some(pod) = awaited(assessment).filter(|pod| own_way(assessment, pod)) {
        let (namespace, name) = (&assessment.namespace, &pod.name);
        return Some(format!(
            "kubectl delete pod -n {namespace} {name}    (it has an older template, and comes back with the current one)"
        ));
    }
    let is_failing = assessment.pods.iter().any(|pod| pod.is_new && pod.is_failing);
    let is_in_trouble = matches!(assessment.verdict, Verdict::Stuck | Verdict::Waiting | Verdict::Blocked);
    let (revision, images) = assessment.previous.as_ref().filter(|_| is_failing && is_in_trouble)?;
    let (namespace, object) = (&assessment.namespace, assessment.argument());
    let command = plugin.map_or("kubectl rollout undo".to_owned(), |plugin| format!("{plugin} undo"));
    Some(format!("{command} -n {namespace} {object}    (revision {revision}, image {images})"))
}

/// The explanation as text.
fn text(assessment: &Assessment, plugin: Option<&str>) -> String {
    let Assessment { namespace, name, verdict, counts, now, .. } = assessment;
    let revision = assessment.revision.map_or(String::new(), |revision| format!(", revision {revision}"));
    let since = assessment.since.map_or(String::new(), |since| format!(" for {}", age(since, *now)));
    let mut text = notes(&assessment.unreadable, assessment.is_partial);
    let numbers = match (assessment.is_partial, assessment.kind) {
        (true, _) => format!(
            "its status counts {}, {} updated, {} ready, {} available, and {} are desired",
            counted(counts.replicas, "pod"),
            counts.updated,
            counts.ready,
            counts.available,
            counts.desired
        ),
        (false, Kind::StatefulSet) => of_stateful_set(assessment),
        (false, _) => {
            let (updated, ready) = assessment.new_part().map_or((0, 0), |new| (new.desired, new.ready));
            format!(
                "{updated} of {} wanted in the new ReplicaSet by now, {ready} ready",
                counted(counts.desired, "pod")
            )
        }
    };
    text.push_str(&format!(
        "{} {namespace}/{name}{revision}: {}{since}; {numbers}\n",
        assessment.kind.title(),
        verdict.word()
    ));
    for condition in assessment.conditions.iter().filter(|_| assessment.is_partial) {
        text.push_str(&format!("  {condition}\n"));
    }
    for reason in &assessment.reasons {
        // The end of the deadline stands below, with the time left.
        if !matches!(reason, Reason::Sizes(PlanReason::Deadline { .. })) {
            text.push_str(&format!("  {}\n", crate::text::harmless(&reason.to_string())));
        }
    }
    if let Some(refusal) = &assessment.refusal {
        text.push_str(&format!("  The API server refuses it: {refusal}\n"));
    }
    text.push_str(&pod_table(&assessment.pods, *now));
    text.push_str(&claim_table(&assessment.claims, *now));
    let next = next(assessment);
    for (at, line) in next.iter().enumerate() {
        text.push_str(&format!("{:<8}{line}\n", if at == 0 { "NEXT" } else { "" }));
    }
    text.push_str(&format!(
        "ACTS    {}\n",
        acts(assessment.acts.as_ref(), assessment.observed_generation > 0, *now)
    ));
    if let Some(advice) = advice(assessment, plugin) {
        text.push_str(&format!("TRY     {advice}\n"));
    }
    text
}

/// The numbers of a StatefulSet in words.
fn of_stateful_set(assessment: &Assessment) -> String {
    let sum = |count: fn(&PartView) -> i64| assessment.parts.iter().map(count).sum::<i64>();
    let (wanted, existing) = (assessment.counts.desired, sum(|part| part.replicas));
    let exist = if existing == wanted { String::new() } else { format!(" and {existing} exist") };
    format!(
        "{} wanted{exist}, {} with the current template, {} ready, {} available",
        counted(wanted, "pod"),
        assessment.new_part().map_or(0, |new| new.desired),
        sum(|part| part.ready),
        sum(|part| part.available)
    )
}

/// The claims that are in the way.
fn claim_table(claims: &[ClaimView], now: Timestamp) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let mut rows = vec![["CLAIM", "POD", "AGE", "STATE", "REASON"].map(str::to_owned).to_vec()];
    rows.extend(claims.iter().take(SHOWN).map(|claim| {
        let age = claim.created.map_or("-".to_owned(), |created| age(created, now));
        vec![claim.name.clone(), claim.pod.clone(), age, claim.state.clone(), claim.reason.clone()]
    }));
    let mut text = columns(&rows);
    if claims.len() > SHOWN {
        text.push_str(&format!("and {} more claims\n", claims.len() - SHOWN));
    }
    text
}

/// The objects that could not be read, and what that means for the rest. It comes first.
fn notes(unreadable: &[String], is_partial: bool) -> String {
    let consequence = match is_partial {
        true => "no reasons can be told, only what the status says",
        false => "the reasons are incomplete",
    };
    unreadable.iter().map(|missing| format!("NOTE    {missing}: {consequence}\n")).collect()
}

/// The pods that are not ready: the first five, and the states of the others.
fn pod_table(pods: &[PodView], now: Timestamp) -> String {
    let mut text = String::new();
    if !pods.is_empty() {
        let mut rows =
            vec![["POD", "AGE", "STATE", "RESTARTS", "SINCE", "REASON"].map(str::to_owned).to_vec()];
        rows.extend(pods.iter().take(SHOWN).map(|pod| {
            let name = if pod.is_new { format!("{} (new)", pod.name) } else { pod.name.clone() };
            let (created, since) = (age(pod.created, now), age(pod.since, now));
            vec![name, created, pod.state.clone(), pod.restarts.to_string(), since, pod.reason.clone()]
        }));
        text.push_str(&columns(&rows));
        if let Some(more) = pods.get(SHOWN..).filter(|more| !more.is_empty()) {
            let mut states: BTreeMap<&str, usize> = BTreeMap::new();
            for pod in more {
                *states.entry(&pod.state).or_default() += 1;
            }
            let states: Vec<String> =
                states.iter().map(|(state, count)| format!("{state} {count}")).collect();
            text.push_str(&format!("and {} more: {}\n", more.len(), states.join(", ")));
        }
    }
    text
}

/// The controller that acts on an object, as text.
fn acts(actor: Option<&Actor>, is_observed: bool, now: Timestamp) -> String {
    match actor {
        Some(Actor { manager, at }) => {
            let foreign = match manager.as_str() {
                "windlass" => "",
                _ => "; the reasons are Windlass's reading of the same rules",
            };
            format!("{manager} (last status write {} ago{foreign})", age(*at, now))
        }
        None if is_observed => {
            "a controller that the server does not name: it keeps no managedFields".to_owned()
        }
        None => "no controller has written a status".to_owned(),
    }
}
