//! `history`: the revisions of Deployments, and what differs between two of them.

mod external;

use serde_json::{Value, json};

use crate::api::Api;
use crate::cli::{GlobalArgs, HistoryArgs, HistoryFormat};
use crate::connection::connect;
use crate::exit::{CommandError, Exit};
use crate::explain::{deployments, missing};
use crate::output::Output;
use crate::revisions::{self, Revision};
use crate::rollout::live;
use crate::target;
use crate::text::{age, columns, harmless, pretty_json};

/// Runs `history`.
///
/// # Errors
/// When an object cannot be found or read, or a revision is not there.
pub async fn run(
    global: &GlobalArgs,
    mut args: HistoryArgs,
    output: &mut Output,
) -> Result<Exit, CommandError> {
    // The name of an object has no two dots in a row.
    let (ranges, names): (Vec<String>, Vec<String>) =
        args.objects.names.into_iter().partition(|name| name.contains(".."));
    args.objects.names = names;
    if ranges.len() > 1 || (!ranges.is_empty() && args.revision.is_some()) {
        return Err(CommandError::Usage("give one range of revisions, or --revision".to_owned()));
    }
    let is_text = matches!(args.output, HistoryFormat::Table | HistoryFormat::Wide);
    let variable = std::env::var(external::VARIABLE).unwrap_or_default();
    let external = match ranges.is_empty() || !is_text {
        true => None,
        false => external::words(&variable).map_err(CommandError::Argument)?,
    };
    let targets = target::targets(&args.objects)?;
    let api = Api::new(connect(global, &|name| std::env::var(name).ok()).await?, global.request_timeout);
    target::refuse_owned(&api, &targets).await?;
    let names = deployments(&api, &targets, &args.objects).await?;
    let are_several = names.len() > 1;
    for (namespace, name) in names {
        let Some((_, history)) = read(&api, &namespace, &name).await? else {
            return Err(missing(&api, &namespace, &name).await);
        };
        let object = format!("deployment {namespace}/{name}");
        let wrong = |text: String| CommandError::Argument(format!("{object}: {text}"));
        let text = match (ranges.first(), args.revision) {
            (Some(range), _) => {
                let (from, to) = revisions::range(&history, range).map_err(wrong)?;
                match &external {
                    Some(program) if is_text && from.template != to.template => {
                        if are_several {
                            output.line(&object)?;
                        }
                        let both = [(from.number, &from.template), (to.number, &to.template)];
                        external::run(program, &name, both).map_err(CommandError::Argument)?;
                        continue;
                    }
                    _ => between(from, to, args.output).map_err(wrong)?,
                }
            }
            (None, Some(number)) => {
                let revision = revisions::numbered(&history, number).map_err(wrong)?;
                match args.output {
                    HistoryFormat::Json => format!("{}\n", pretty_json(&revision.template)),
                    HistoryFormat::Name => format!("{}\n", resource_name(revision)),
                    _ => revisions::yaml(&revision.template).map_err(wrong)?,
                }
            }
            (None, None) => shown(&api, &history, args.output).map_err(wrong)?,
        };
        if are_several && is_text {
            output.line(&object)?;
        }
        output.text(&text)?;
    }
    Ok(Exit::Success)
}

/// A Deployment and its revisions; `None` if it does not exist.
///
/// # Errors
/// When one of them cannot be read.
pub async fn read(
    api: &Api,
    namespace: &str,
    name: &str,
) -> Result<Option<(Value, Vec<Revision>)>, CommandError> {
    let Some((deployment, replica_sets)) = live::read_history(api, namespace, name).await? else {
        return Ok(None);
    };
    let history = revisions::of(&deployment, &replica_sets);
    Ok(Some((deployment, history)))
}

/// The differences between two revisions.
fn between(from: &Revision, to: &Revision, format: HistoryFormat) -> Result<String, String> {
    let (old, new) = (format!("revision {}", from.number), format!("revision {}", to.number));
    let difference = revisions::difference((&old, &from.template), (&new, &to.template))?;
    let value =
        || json!({"kind": "RevisionDifference", "from": one(from), "to": one(to), "difference": difference});
    match format {
        HistoryFormat::Table | HistoryFormat::Wide => Ok(difference),
        HistoryFormat::Json => Ok(format!("{}\n", pretty_json(&value()))),
        HistoryFormat::Yaml => revisions::yaml(&value()),
        HistoryFormat::Name => Ok(format!("{}\n{}\n", resource_name(from), resource_name(to))),
    }
}

fn resource_name(revision: &Revision) -> String {
    format!("replicaset.apps/{}", revision.replica_set)
}

fn shown(api: &Api, history: &[Revision], format: HistoryFormat) -> Result<String, String> {
    match format {
        HistoryFormat::Table | HistoryFormat::Wide => Ok(table(api, history, format == HistoryFormat::Wide)),
        HistoryFormat::Name => {
            Ok(history.iter().map(|revision| format!("{}\n", resource_name(revision))).collect())
        }
        HistoryFormat::Json => Ok(format!("{}\n", pretty_json(&data(history)))),
        HistoryFormat::Yaml => revisions::yaml(&data(history)),
    }
}

fn table(api: &Api, history: &[Revision], is_wide: bool) -> String {
    let mut heads = vec!["REVISION", "AGE", "REPLICASET", "PODS", "IMAGES"];
    if is_wide {
        heads.extend(["CONTAINERS", "CREATED"]);
    }
    heads.push("CHANGE-CAUSE");
    let mut rows = vec![heads.into_iter().map(str::to_owned).collect()];
    rows.extend(history.iter().map(|revision| {
        let current = if revision.is_current { " (current)" } else { "" };
        let unknown = || "<unknown>".to_owned();
        let mut row = vec![
            format!("{}{current}", revision.number),
            revision.created.map_or_else(unknown, |created| age(created, api.now())),
            revision.replica_set.clone(),
            revision.pods.to_string(),
            revision.images.clone(),
        ];
        if is_wide {
            row.push(containers(&revision.template));
            row.push(revision.created.map_or_else(unknown, |created| created.to_string()));
        }
        row.push(revision.cause.clone().unwrap_or_else(|| "<none>".to_owned()));
        row
    }));
    columns(&rows)
}

/// The names of the containers, in their order.
fn containers(template: &Value) -> String {
    let all = template["spec"]["containers"].as_array();
    let names = all.into_iter().flatten().filter_map(|container| container["name"].as_str());
    names.map(harmless).collect::<Vec<_>>().join(", ")
}

fn data(history: &[Revision]) -> Value {
    json!({"kind": "RevisionList", "items": history.iter().map(one).collect::<Value>()})
}

fn one(revision: &Revision) -> Value {
    json!({
        "revision": revision.number,
        "current": revision.is_current,
        "replicaSet": revision.replica_set,
        "created": revision.created.map(|created| created.to_string()),
        "pods": revision.pods,
        "images": revision.images,
        "changeCause": revision.cause,
        "template": revision.template,
    })
}
