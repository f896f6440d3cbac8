//! `history`: the revisions of Deployments, and what differs between two of them.

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
use crate::text::{age, columns};

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
                let (old, new) = (format!("revision {}", from.number), format!("revision {}", to.number));
                revisions::difference((&old, &from.template), (&new, &to.template)).map_err(wrong)?
            }
            (None, Some(number)) => {
                let revision = revisions::numbered(&history, number).map_err(wrong)?;
                match args.output {
                    HistoryFormat::Json => format!("{:#}\n", revision.template),
                    _ => revisions::yaml(&revision.template).map_err(wrong)?,
                }
            }
            (None, None) => shown(&api, &history, args.output).map_err(wrong)?,
        };
        if are_several && args.output == HistoryFormat::Table {
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

fn shown(api: &Api, history: &[Revision], format: HistoryFormat) -> Result<String, String> {
    match format {
        HistoryFormat::Table => Ok(table(api, history)),
        HistoryFormat::Name => {
            Ok(history.iter().map(|revision| format!("replicaset.apps/{}\n", revision.replica_set)).collect())
        }
        HistoryFormat::Json => Ok(format!("{:#}\n", data(history))),
        HistoryFormat::Yaml => revisions::yaml(&data(history)),
    }
}

fn table(api: &Api, history: &[Revision]) -> String {
    let heads = ["REVISION", "AGE", "REPLICASET", "PODS", "IMAGES", "CHANGE-CAUSE"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(history.iter().map(|revision| {
        let current = if revision.is_current { " (current)" } else { "" };
        vec![
            format!("{}{current}", revision.number),
            revision.created.map_or("<unknown>".to_owned(), |created| age(created, api.now())),
            revision.replica_set.clone(),
            revision.pods.to_string(),
            revision.images.clone(),
            revision.cause.clone().unwrap_or_else(|| "<none>".to_owned()),
        ]
    }));
    columns(&rows)
}

fn data(history: &[Revision]) -> Value {
    let items: Vec<Value> = history
        .iter()
        .map(|revision| {
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
        })
        .collect();
    json!({"kind": "RevisionList", "items": items})
}
