//! `history`: the revisions of Deployments, StatefulSets and DaemonSets, and what differs between two of them.

mod external;

use serde_json::{Value, json};
use windlass::model::{ControllerRevision, Pod, Record as _, ReplicaSet, Resource};

use crate::api::{Api, Listed};
use crate::cli::{GlobalArgs, HistoryArgs, HistoryFormat};
use crate::connection::connect;
use crate::exit::{CommandError, Exit};
use crate::output::Output;
use crate::owners;
use crate::revisions::{self, Revision};
use crate::rollout::live;
use crate::target::{self, Kind, WorkloadKey};
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
    let (targets, notes) = owners::follow(&api, targets).await?;
    notes.iter().for_each(|note| output.note(&format!("note: {note}")));
    let keys = target::workloads(&api, &targets, &args.objects, Kind::lacks_revisions).await?;
    let are_several = keys.len() > 1;
    let mut missing = Vec::new();
    for key in keys {
        let Some(History { revisions: history, unreadable, .. }) = read(&api, &key, true).await? else {
            missing.push(key.missing(&api).await);
            continue;
        };
        if let Some(unreadable) = unreadable {
            output.note(&format!("note: {unreadable}: the number of pods of each revision is unknown"));
        }
        let object = key.described();
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
                        external::run(program, &key.name, both).map_err(CommandError::Argument)?;
                        continue;
                    }
                    _ => between(key.kind, from, to, args.output).map_err(wrong)?,
                }
            }
            (None, Some(number)) => {
                let revision = revisions::numbered(&history, number).map_err(wrong)?;
                match args.output {
                    HistoryFormat::Json => format!("{}\n", pretty_json(&revision.template)),
                    HistoryFormat::Name => format!("{}\n", resource_name(key.kind, revision)),
                    _ => revisions::yaml(&revision.template).map_err(wrong)?,
                }
            }
            (None, None) => shown(&api, key.kind, &history, args.output).map_err(wrong)?,
        };
        if are_several && is_text {
            output.line(&object)?;
        }
        output.text(&text)?;
    }
    output.ended(Exit::Success, missing)
}

/// An object and its revisions.
pub struct History {
    /// The Deployment, StatefulSet or DaemonSet.
    pub object: Value,
    /// The revisions, the lowest number first.
    pub revisions: Vec<Revision>,
    /// The ReplicaSets or ControllerRevisions of these.
    pub sources: Vec<Value>,
    /// Why the pods of ControllerRevisions could not be counted.
    pub unreadable: Option<String>,
}

/// Reads an object and its revisions; `None` if it does not exist. `counts_pods`: a ControllerRevision, unlike a
/// ReplicaSet, does not say how many pods it has.
///
/// # Errors
/// When one of them cannot be read.
pub async fn read(api: &Api, key: &WorkloadKey, counts_pods: bool) -> Result<Option<History>, CommandError> {
    let what = key.described();
    let Some(object) = api.get(&what, &key.path()).await? else { return Ok(None) };
    let selector = live::label_selector(key.kind, &object)
        .map_err(|error| CommandError::Unreadable { object: what, error })?;
    let mut history = History { object, revisions: Vec::new(), sources: Vec::new(), unreadable: None };
    let Some(labels) = selector else { return Ok(Some(history)) };
    let query = [("labelSelector", labels.as_str())];
    let resource = source(key.kind);
    let path = |resource: Resource| resource.path(Some(&key.namespace));
    history.sources = api.list(resource.plural, &path(resource), &query).await?.items;
    history.revisions = match key.kind {
        Kind::StatefulSet | Kind::DaemonSet => {
            let pods = match counts_pods {
                true => api.list("pods", &path(Pod::RESOURCE), &query).await,
                false => Ok(Listed::default()),
            };
            let pods = match pods {
                Ok(listed) => Some(listed.items),
                Err(error) if error.is_forbidden() => {
                    history.unreadable = Some(error.to_string());
                    None
                }
                Err(error) => return Err(error.into()),
            };
            revisions::of_controller_revisions(key.kind, &history.object, &history.sources, pods.as_deref())
        }
        _ => revisions::of(&history.object, &history.sources),
    };
    Ok(Some(history))
}

/// The kind of the objects that keep the revisions.
fn source(kind: Kind) -> Resource {
    match kind {
        Kind::StatefulSet | Kind::DaemonSet => ControllerRevision::RESOURCE,
        _ => ReplicaSet::RESOURCE,
    }
}

/// The differences between two revisions.
fn between(kind: Kind, from: &Revision, to: &Revision, format: HistoryFormat) -> Result<String, String> {
    let (old, new) = (format!("revision {}", from.number), format!("revision {}", to.number));
    let difference = revisions::difference((&old, &from.template), (&new, &to.template))?;
    let value = || json!({"kind": "RevisionDifference", "from": one(kind, from), "to": one(kind, to), "difference": difference});
    match format {
        HistoryFormat::Table | HistoryFormat::Wide => Ok(difference),
        HistoryFormat::Json => Ok(format!("{}\n", pretty_json(&value()))),
        HistoryFormat::Yaml => revisions::yaml(&value()),
        HistoryFormat::Name => Ok(format!("{}\n{}\n", resource_name(kind, from), resource_name(kind, to))),
    }
}

fn resource_name(kind: Kind, revision: &Revision) -> String {
    let resource = source(kind);
    format!("{}.{}/{}", resource.kind.to_lowercase(), resource.group, revision.source)
}

fn shown(api: &Api, kind: Kind, history: &[Revision], format: HistoryFormat) -> Result<String, String> {
    match format {
        HistoryFormat::Table | HistoryFormat::Wide => {
            Ok(table(api, kind, history, format == HistoryFormat::Wide))
        }
        HistoryFormat::Name => {
            Ok(history.iter().map(|revision| format!("{}\n", resource_name(kind, revision))).collect())
        }
        HistoryFormat::Json => Ok(format!("{}\n", pretty_json(&data(kind, history)))),
        HistoryFormat::Yaml => revisions::yaml(&data(kind, history)),
    }
}

fn table(api: &Api, kind: Kind, history: &[Revision], is_wide: bool) -> String {
    let of = source(kind).kind.to_uppercase();
    let mut heads = vec!["REVISION", "AGE", of.as_str(), "PODS", "IMAGES"];
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
            revision.source.clone(),
            revision.pods.map_or_else(unknown, |pods| pods.to_string()),
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

fn data(kind: Kind, history: &[Revision]) -> Value {
    let items: Value = history.iter().map(|revision| one(kind, revision)).collect();
    json!({"kind": "RevisionList", "items": items})
}

fn one(kind: Kind, revision: &Revision) -> Value {
    let source = if kind.has_controller_revisions() { "controllerRevision" } else { "replicaSet" };
    json!({
        "revision": revision.number,
        "current": revision.is_current,
        source: revision.source,
        "created": revision.created.map(|created| created.to_string()),
        "pods": revision.pods,
        "images": revision.images,
        "changeCause": revision.cause,
        "template": revision.template,
    })
}
