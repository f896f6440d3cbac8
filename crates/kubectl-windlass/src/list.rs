//! `list`: the workloads, one a line, the worst first.

pub mod census;
pub mod live;
#[cfg(test)]
mod screens;
pub mod table;
pub mod view;

use serde_json::{Value, json};

use crate::api::Api;
use crate::cli::{GlobalArgs, ListArgs, ListFormat};
use crate::connection::connect;
use crate::exit::{CommandError, Exit};
use crate::output::Output;
use crate::revisions;
use crate::rollout::verdict::Severity;
use crate::rollout::{Assessment, Verdict, headline::headline, json::counts};
use crate::target::Kind;
use crate::text::pretty_json;
use census::{Census, Chosen};
use table::Look;

/// Runs `list`.
///
/// # Errors
/// When the server does not answer, or a kind is unknown.
pub async fn run(global: &GlobalArgs, args: ListArgs, output: &mut Output) -> Result<Exit, CommandError> {
    let kinds = kinds(&args.kinds)?;
    let connection = connect(global, &|name| std::env::var(name).ok()).await?;
    let api = Api::new(connection, global.request_timeout);
    let namespace = (!args.all_namespaces).then_some(api.namespace.as_str());
    let is_narrow = args.selector.is_some() || !args.kinds.is_empty();
    let chosen = Chosen { namespace, labels: args.selector.as_deref(), kinds: &kinds };
    let look = Look {
        style: output.style,
        width: output.width.filter(|_| args.output != Some(ListFormat::Wide)),
        is_wide: args.output == Some(ListFormat::Wide),
        shows_namespace: args.all_namespaces,
        shows_all: args.all,
    };
    // A format or an exit code is for a script, which wants no view.
    if args.watch && args.output.is_none() && !args.unfinished && output.is_interactive {
        return live::run(&api, chosen, look, output).await;
    }
    let Census { mut workloads, unreadable } = census::take(&api, chosen).await?;
    table::worst_first(&mut workloads);
    unreadable.iter().for_each(|missing| output.note(&live::note(missing)));
    let exit = exit(&workloads, !unreadable.is_empty(), args.unfinished);
    if args.unfinished {
        workloads.retain(is_unfinished);
    }
    match args.output.unwrap_or_default() {
        ListFormat::Text | ListFormat::Wide => {
            if workloads.is_empty() && !args.unfinished && unreadable.is_empty() {
                let place = namespace.map_or("any namespace".to_owned(), |name| format!("namespace {name}"));
                let which = if is_narrow { " of these kinds or labels" } else { "" };
                output.note(&format!("no workload{which} in {place}"));
            }
            output.text(&table::text(&workloads, &look))?;
        }
        ListFormat::Json => output.line(&pretty_json(&data(&workloads, &unreadable, &api)))?,
        ListFormat::Yaml => {
            let data = data(&workloads, &unreadable, &api);
            output.text(&revisions::yaml(&data).map_err(CommandError::Argument)?)?;
        }
    }
    Ok(exit)
}

/// Whether something is still to happen to a workload, or has gone wrong.
pub fn is_unfinished(assessment: &Assessment) -> bool {
    assessment.verdict.severity() != Severity::AtRest
}

fn exit(workloads: &[Assessment], is_incomplete: bool, is_asked: bool) -> Exit {
    let of = |assessment: &Assessment| match assessment.verdict {
        _ if !is_asked || !is_unfinished(assessment) => Exit::Success,
        Verdict::Stuck | Verdict::Halted | Verdict::Failed => Exit::RolloutFailed,
        _ => Exit::NotFinished,
    };
    let first = if is_incomplete { Exit::Error } else { Exit::Success };
    workloads.iter().map(of).fold(first, Exit::worse)
}

fn kinds(words: &[String]) -> Result<Vec<Kind>, CommandError> {
    if words.is_empty() {
        return Ok(Kind::WORKLOADS.to_vec());
    }
    let words = words.iter().flat_map(|word| word.split(','));
    let kind = |word: &str| {
        let known = Kind::parse(word).filter(|kind| *kind != Kind::Pod);
        known.ok_or_else(|| {
            let all = Kind::WORKLOADS.map(Kind::short).join(", ");
            CommandError::Usage(format!("{word:?} is no kind of workload; there are {all}"))
        })
    };
    let chosen = words.map(kind).collect::<Result<Vec<Kind>, CommandError>>()?;
    // In the order in which they depend on each other.
    Ok(Kind::WORKLOADS.into_iter().filter(|kind| chosen.contains(kind)).collect())
}

/// The list as data.
fn data(workloads: &[Assessment], unreadable: &[String], api: &Api) -> Value {
    let item = |it: &Assessment| {
        json!({
            "kind": it.kind.title(), "namespace": it.namespace, "name": it.name, "revision": it.revision,
            "verdict": it.verdict, "since": it.since.map(|since| since.to_string()), "counts": counts(it),
            "deadline": it.deadline.map(|at| at.to_string()), "reason": headline(it), "isPartial": it.is_partial,
        })
    };
    let items: Vec<Value> = workloads.iter().map(item).collect();
    json!({"kind": "WorkloadList", "items": items, "unreadable": unreadable, "time": api.now().to_string()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_learns_from_the_code_whether_something_has_failed() {
        let all = screens::cluster();
        let of = |words: &[&str]| {
            let has_state = |it: &&Assessment| words.contains(&it.verdict.word());
            exit(&all.iter().filter(has_state).cloned().collect::<Vec<_>>(), false, true)
        };
        assert_eq!(of(&["complete", "scheduled"]), Exit::Success);
        assert_eq!(
            (of(&["waiting"]), of(&["waiting", "unfinished"])),
            (Exit::NotFinished, Exit::NotFinished)
        );
        assert_eq!((of(&["failed"]), of(&["waiting", "stuck"])), (Exit::RolloutFailed, Exit::RolloutFailed));
        let halted = Assessment { verdict: Verdict::Halted, ..all[0].clone() };
        assert_eq!(exit(std::slice::from_ref(&halted), false, true), Exit::RolloutFailed);
        // Without --unfinished a list is a list; what may not be read is worse than all that was.
        assert_eq!(exit(std::slice::from_ref(&halted), false, false), Exit::Success);
        assert_eq!(exit(&[halted], true, true), Exit::Error);
    }

    #[test]
    fn kinds_may_be_given_in_any_order_and_with_commas() {
        let read = |words: &[&str]| kinds(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&["jobs", "deploy,sts"]).unwrap(), [Kind::Deployment, Kind::StatefulSet, Kind::Job]);
        assert_eq!(read(&[]).unwrap().len(), 7);
        for wrong in ["pod", "svc", ""] {
            assert!(read(&[wrong]).unwrap_err().to_string().contains("cj"), "{wrong}");
        }
    }
}
