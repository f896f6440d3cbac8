//! `explain`: why a rollout is as it is. Reads only, and needs no daemon.

mod controller;
pub mod daemon;
pub mod logs;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass::plan::Reason;
use windlass::plan::deployment::PlanReason;

use crate::api::Api;
use crate::cli::{ExplainArgs, ExplainFormat, GlobalArgs, ListArgs, ListFormat};
use crate::connection::connect;
use crate::exit::{CommandError, Exit};
use crate::invocation::{Commands, Invocation};
use crate::list;
use crate::output::Output;
use crate::owners;
use crate::revisions;
use crate::rollout::claims::ClaimView;
use crate::rollout::headline::{headline, is_main};
use crate::rollout::last_writes::Actor;
use crate::rollout::pods::{PodView, SHOWN};
use crate::rollout::shared::{SharedLists, trimmed};
use crate::rollout::{self, Assessment, PartView, Verdict, Workload, live, policy, waiting};
use crate::target::{self, Kind, Target, WorkloadKey};
use crate::text::{age, columns, counted, span};
use daemon::Daemon;
use windlass_terminal::layout::{self, Tone};

/// Runs `explain`.
///
/// # Errors
/// When an object cannot be found or read.
pub async fn run(global: &GlobalArgs, args: ExplainArgs, output: &mut Output) -> Result<Exit, CommandError> {
    if args.objects.are_none() {
        let format = match args.output {
            ExplainFormat::Text => ListFormat::Text,
            ExplainFormat::Json => ListFormat::Json,
            ExplainFormat::Yaml => ListFormat::Yaml,
        };
        return list::run(global, ListArgs::of(&args.objects, Some(format), false), output).await;
    }
    let targets = target::targets(&args.objects)?;
    let daemon = Daemon::of(&args, global.request_timeout).await?;
    let connection = connect(global, &|name| std::env::var(name).ok()).await?;
    let api = Api::new(connection, global.request_timeout);
    let (targets, notes) = owners::follow(&api, targets).await?;
    notes.iter().for_each(|note| output.note(&format!("note: {note}")));
    let (controllers, targets): (Vec<Target>, Vec<Target>) =
        targets.into_iter().partition(|target| target.kind == Kind::ReplicationController);
    // Each as text and as data.
    let mut explained: Vec<(String, Value)> = Vec::new();
    let mut exit = Exit::Success;
    let mut missing = Vec::new();
    for controller in &controllers {
        let (text, data) = controller::explain(&api, &controller.name, args.logs).await?;
        exit = exit.worse(if data["isPartial"] == true { Exit::Error } else { Exit::Success });
        explained.push((text, data));
    }
    let chosen = match targets.is_empty() && controllers.is_empty() {
        true => chosen(&api, &args).await?,
        false => {
            let mut read = Vec::new();
            for target in targets {
                let key =
                    WorkloadKey { kind: target.kind, namespace: api.namespace.clone(), name: target.name };
                match assess(&api, &key).await? {
                    Some(assessed) => read.push((key, assessed)),
                    None => missing.push(key.missing(&api).await),
                }
            }
            read
        }
    };
    let commands = Invocation::of_process().commands();
    for (key, (assessment, pods)) in chosen {
        exit = exit.worse(if assessment.is_partial { Exit::Error } else { Exit::Success });
        let mut data = rollout::json::assessment(&assessment, &next(&assessment, &commands.kubectl));
        let mut text = text(&assessment, &commands, output.style.colour);
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
    if !explained.is_empty() {
        print(explained, args.output, output)?;
    }
    output.ended(exit, missing)
}

/// Prints explanations, each as text and as data, in one of the two.
fn print(
    explained: Vec<(String, Value)>,
    format: ExplainFormat,
    output: &mut Output,
) -> Result<(), CommandError> {
    let (texts, values): (Vec<String>, Vec<Value>) = explained.into_iter().unzip();
    if format == ExplainFormat::Text {
        output.text(&texts.join("\n"))?;
        return Ok(());
    }
    let value = match <[Value; 1]>::try_from(values) {
        Ok([value]) => value,
        Err(values) => json!({"kind": "List", "items": values}),
    };
    match format {
        ExplainFormat::Yaml => output.text(&revisions::yaml(&value).map_err(CommandError::Argument)?)?,
        _ => output.line(&crate::text::pretty_json(&value))?,
    }
    Ok(())
}

/// An assessment, and the pods that were listed.
type Assessed = (Assessment, Vec<Value>);

/// Reads and assesses all objects that a selector or `-A` chooses: one list of each resource.
async fn chosen(api: &Api, args: &ExplainArgs) -> Result<Vec<(WorkloadKey, Assessed)>, CommandError> {
    let (kind, listed) = target::listed(api, &args.objects, |_| None).await?;
    let scope = target::scope(api, &args.objects);
    let mut lists = SharedLists::default();
    for (resource, _) in live::parts(kind, "") {
        let namespace = live::scope_of(resource, scope);
        let keep = |object: Value| Some(trimmed(object));
        match api.list_kept(resource.plural, &resource.path(namespace), &[], &keep).await {
            Ok(listed) => lists.add(resource, listed.items),
            Err(error) if error.is_forbidden() => lists.lacks(resource, namespace, error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    let mut workloads: Vec<(WorkloadKey, Workload, Vec<String>)> = Vec::new();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for object in listed.items {
        let key = WorkloadKey::of(kind, &object);
        let unreadable = |error| CommandError::Unreadable { object: key.described(), error };
        let workload = lists.workload(kind, object).map_err(unreadable)?;
        let first = live::worth_events(&rollout::assess(&workload, api.now()).map_err(unreadable)?);
        wanted.extend(first.iter().cloned());
        workloads.push((key, workload, first));
    }
    let events = match wanted.len() {
        0 => Ok(BTreeMap::new()),
        _ => live::warnings(api, scope, &wanted).await,
    };
    let mut assessed = Vec::new();
    for (key, mut workload, wanted) in workloads {
        match &events {
            Ok(events) => {
                let known = |uid: String| events.get(&uid).map(|events| (uid, events.clone()));
                workload.events = wanted.into_iter().filter_map(known).collect();
            }
            Err(error) if !wanted.is_empty() => workload.unreadable.push(error.to_string()),
            Err(_) => {}
        }
        let unreadable = |error| CommandError::Unreadable { object: key.described(), error };
        let assessment = rollout::assess(&workload, api.now()).map_err(unreadable)?;
        assessed.push((key, (assessment, workload.pods)));
    }
    Ok(assessed)
}

/// Reads and assesses one object, with the events of what is in its way. Also returns the pods that were listed.
async fn assess(api: &Api, key: &WorkloadKey) -> Result<Option<Assessed>, CommandError> {
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

/// The explanation of one object as text; `None` if it does not exist.
///
/// # Errors
/// When it cannot be read.
pub async fn one(api: &Api, key: &WorkloadKey) -> Result<Option<String>, CommandError> {
    let commands = Invocation::of_process().commands();
    let assessed = assess(api, key).await?;
    Ok(assessed.map(|(assessment, _)| text(&assessment, &commands, false)))
}

/// The next steps of the rollout, and of the user.
pub fn next(assessment: &Assessment, kubectl: &str) -> Vec<String> {
    let Assessment { namespace, name, now, .. } = assessment;
    let mut next = Vec::new();
    match assessment.verdict {
        Verdict::Complete
        | Verdict::Deleting
        | Verdict::Refused
        | Verdict::Unfinished
        | Verdict::Failed
        | Verdict::Scheduled => {}
        Verdict::Suspended => next.push(format!(
            "nothing until spec.suspend is false: `{kubectl} patch -n {namespace} {} -p '{{\"spec\":{{\"suspend\":false}}}}'`",
            assessment.argument()
        )),
        Verdict::Stuck | Verdict::Blocked if assessment.is_partial => {}
        Verdict::Held | Verdict::Halted => next.extend(policy::next(assessment)),
        Verdict::Paused => next.push(format!("nothing until `{kubectl} rollout resume -n {namespace} deploy/{name}`")),
        Verdict::Blocked | Verdict::Waiting if assessment.kind == Kind::StatefulSet => {
            next.extend(next_of_stateful_set(assessment, kubectl));
        }
        Verdict::Unobserved => next.extend(
            headline(assessment).map(|why| format!("{why} See `{kubectl} get leases -n kube-system`")),
        ),
        _ if !assessment.writes.is_empty() => next.push(assessment.writes.join(", then ")),
        _ if assessment.kind == Kind::DaemonSet && !assessment.by_hand.is_empty() => next.extend(by_hand(assessment, kubectl)),
        _ if !assessment.kind.has_revisions() => {}
        Verdict::Waiting
        | Verdict::Stuck
        | Verdict::Blocked
        | Verdict::Rolling
        | Verdict::Scaling
        | Verdict::Running => {
            match assessment.pods.iter().find(|pod| pod.is_new) {
                Some(pod) => next.push(format!("the rollout continues when {} is ready", pod.name)),
                None => next.push("the rollout continues when its pods report progress".to_owned()),
            }
        }
    }
    let later = policy::later(assessment);
    let is_judged_before = |deadline: &Timestamp| later.as_ref().is_some_and(|(_, at)| at <= deadline);
    let deadline = assessment.deadline.filter(|at| !assessment.verdict.is_at_rest() && !is_judged_before(at));
    next.extend(later.as_ref().map(|(step, _)| step.clone()));
    if let Some(at) = deadline {
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
fn next_of_stateful_set(assessment: &Assessment, kubectl: &str) -> Option<String> {
    let Assessment { then, .. } = assessment;
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
    by_hand(assessment, kubectl)
}

/// The pods with an older template that a user is to delete.
fn by_hand(assessment: &Assessment, kubectl: &str) -> Option<String> {
    let Assessment { namespace, by_hand, .. } = assessment;
    let pods = by_hand.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(" ");
    let more = if by_hand.len() > SHOWN { " …" } else { "" };
    let text = "nothing until a user deletes the older pods, one after the other";
    (!by_hand.is_empty()).then(|| format!("{text}: `{kubectl} delete pod -n {namespace} {pods}`{more}"))
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
pub fn advice(assessment: &Assessment, commands: &Commands) -> Option<String> {
    if let Some(pod) = awaited(assessment).filter(|pod| own_way(assessment, pod)) {
        let (kubectl, namespace, name) = (&commands.kubectl, &assessment.namespace, &pod.name);
        return Some(format!(
            "{kubectl} delete pod -n {namespace} {name}    (it has an older template, and comes back with the current one)"
        ));
    }
    if let Some(command) = policy::advice(assessment, commands) {
        return Some(command);
    }
    let is_failing = assessment.pods.iter().any(|pod| pod.is_new && pod.is_failing);
    let is_in_trouble = matches!(assessment.verdict, Verdict::Stuck | Verdict::Waiting | Verdict::Blocked);
    let may_help = is_failing && is_in_trouble && !policy::goes_back(assessment);
    let (revision, images) = assessment.previous.as_ref().filter(|_| may_help)?;
    let (namespace, object) = (&assessment.namespace, assessment.argument());
    let command = match &commands.plugin {
        Some(plugin) => format!("{plugin} undo"),
        None => format!("{} rollout undo", commands.kubectl),
    };
    // Without a number `undo` takes the revision before this one.
    let to = match assessment.revision {
        Some(current) if current.checked_sub(1) != Some(*revision) => format!(" --to-revision={revision}"),
        _ => String::new(),
    };
    Some(format!("{command} -n {namespace} {object}{to}    (revision {revision}, image {images})"))
}

/// The explanation as text.
fn text(assessment: &Assessment, commands: &Commands, colour: bool) -> String {
    let Assessment { namespace, name, verdict, counts, now, .. } = assessment;
    let revision = assessment.revision.map_or(String::new(), |revision| format!(", revision {revision}"));
    let since = assessment.since.map_or(String::new(), |since| format!(" for {}", age(since, *now)));
    let mut text = notes(&assessment.unreadable, assessment.is_partial);
    let numbers = match (assessment.knows_pods, assessment.kind) {
        _ if assessment.work.is_some() => assessment.work.as_ref().map_or(String::new(), |it| it.words(*now)),
        (false, _) => format!(
            "its status counts {}, {} updated, {} ready, {} available, and {} are desired",
            counted(counts.replicas, "pod"),
            counts.updated,
            counts.ready,
            counts.available,
            counts.desired
        ),
        (true, Kind::StatefulSet | Kind::DaemonSet) => of_revisions(assessment),
        (true, kind) if !kind.has_revisions() => format!(
            "{} wanted, {} exist, {} ready, {} available",
            counted(counts.desired, "pod"),
            counts.replicas,
            counts.ready,
            counts.available
        ),
        (true, _) => {
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
        layout::painted(verdict.word(), verdict.tone(), colour)
    ));
    if let Some(policy) = &assessment.policy {
        let foreign = assessment.acts.as_ref().filter(|actor| actor.manager != "windlass");
        let foreign = foreign.map_or(String::new(), |actor| format!("    ({} ignores it)", actor.manager));
        text.push_str(&format!("POLICY  {policy}{foreign}\n"));
    }
    for condition in assessment.conditions.iter().filter(|_| assessment.is_partial) {
        text.push_str(&format!("  {condition}\n"));
    }
    // The cause comes before the bounds that follow from it.
    let (causes, bounds): (Vec<&Reason>, Vec<&Reason>) =
        assessment.reasons.iter().partition(|reason| is_main(reason));
    for reason in causes.into_iter().chain(bounds) {
        // The end of a deadline stands below, with the time left.
        let is_deadline = matches!(reason, Reason::Sizes(PlanReason::Deadline { .. }));
        if !is_deadline && policy::due(reason).is_none() {
            text.push_str(&format!("  {}\n", crate::text::harmless(&reason.to_string())));
        }
    }
    // The end of a Job says it already.
    let is_told = assessment.verdict != Verdict::Complete
        || matches!(assessment.kind, Kind::Deployment | Kind::DaemonSet);
    if let Some(summary) = assessment.summary.as_ref().filter(|_| is_told) {
        text.push_str(&format!("  {summary}\n"));
    }
    if let Some(refusal) = &assessment.refusal {
        text.push_str(&format!("  The API server refuses it: {refusal}\n"));
    }
    text.push_str(&pod_table(&assessment.pods, assessment.kind, *now));
    text.push_str(&claim_table(&assessment.claims, *now));
    let next = next(assessment, &commands.kubectl);
    for (at, line) in next.iter().enumerate() {
        text.push_str(&format!("{:<8}{line}\n", if at == 0 { "NEXT" } else { "" }));
    }
    text.push_str(&format!(
        "ACTS    {}\n",
        acts(assessment.acts.as_ref(), assessment.observed_generation > 0, *now)
    ));
    if let Some(advice) = advice(assessment, commands) {
        text.push_str(&format!("{}     {advice}\n", layout::painted("TRY", Tone::Good, colour)));
    }
    text
}

/// The numbers of a StatefulSet or DaemonSet in words.
fn of_revisions(assessment: &Assessment) -> String {
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
fn pod_table(pods: &[PodView], kind: Kind, now: Timestamp) -> String {
    let mut text = String::new();
    if !pods.is_empty() {
        let mut rows =
            vec![["POD", "AGE", "STATE", "RESTARTS", "SINCE", "REASON"].map(str::to_owned).to_vec()];
        let mut before: Option<&PodView> = None;
        rows.extend(pods.iter().take(SHOWN).map(|pod| {
            let is_repeated = before.replace(pod).is_some_and(|before| tells_the_same(before, pod));
            let reason = if is_repeated { "the same".to_owned() } else { pod.reason.clone() };
            let is_new = pod.is_new && kind.has_revisions();
            let mut name = if is_new { format!("{} (new)", pod.name) } else { pod.name.clone() };
            if let Some(node) = pod.node.as_ref().filter(|_| kind == Kind::DaemonSet) {
                name.push_str(&format!(" on {node}"));
            }
            let (created, since) = (age(pod.created, now), age(pod.since, now));
            vec![name, created, pod.state.clone(), pod.restarts.to_string(), since, reason]
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

/// Whether two pods have the same reason, but for their names and for how often and when it was reported.
fn tells_the_same(one: &PodView, other: &PodView) -> bool {
    let essence = |pod: &PodView| {
        let text = pod.reason.replace(&pod.name, "").replace(&pod.uid, "");
        let end = text.rfind(" (").filter(|_| text.ends_with(" ago)") || text.ends_with(" times)"));
        end.map_or(text.clone(), |end| text[..end].to_owned())
    };
    !one.reason.is_empty() && one.state == other.state && essence(one) == essence(other)
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
