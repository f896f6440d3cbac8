//! Candidates from the cluster: the names of objects, containers, revisions and namespaces. Reads only.

use serde_json::Value;
use windlass::model::{Namespace, ObjectKey, Record as _};
use windlass::runtime::request;

use super::Candidate;
use super::words::Line;
use crate::api::Api;
use crate::history::{self, History};
use crate::target::{self, Kind, Target, WorkloadKey};

/// The most objects that are offered: more help nobody.
const MOST: &str = "500";

/// The names of the objects at `path`. Nothing if they cannot be read.
async fn names(api: &Api, path: &str) -> Vec<String> {
    let listed = api.send("cannot list", request::get(path, &[("limit", MOST)])).await.unwrap_or_default();
    let items = listed["items"].as_array();
    let name = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
    items.into_iter().flatten().filter_map(name).collect()
}

async fn names_of(api: &Api, kind: Kind) -> Vec<String> {
    names(api, &kind.resource().path(Some(&api.namespace))).await
}

/// The namespaces.
pub(super) async fn namespaces(api: &Api) -> Vec<Candidate> {
    names(api, &Namespace::RESOURCE.path(None)).await.into_iter().map(Candidate::bare).collect()
}

/// Names of ReplicationControllers.
pub(super) async fn controllers(api: &Api) -> Vec<Candidate> {
    names_of(api, Kind::ReplicationController).await.into_iter().map(Candidate::bare).collect()
}

/// Objects as the arguments of commands name them: `web`, `deploy/web`, or `web` behind `deploy`.
pub(super) async fn objects(api: &Api, line: &Line<'_>, with_controllers: bool) -> Vec<Candidate> {
    let are_known = |name: &String| !line.names.contains(name);
    if let Some((word, _)) = line.prefix.split_once('/') {
        let Some(kind) = Kind::parse(word) else { return Vec::new() };
        let found = names_of(api, kind).await.into_iter().map(|name| format!("{word}/{name}"));
        return found.filter(are_known).map(Candidate::bare).collect();
    }
    if let Some(Some(kind)) = line.names.first().map(|word| Kind::parse(word)) {
        return names_of(api, kind).await.into_iter().filter(are_known).map(Candidate::bare).collect();
    }
    let controllers = async {
        let listed = match with_controllers {
            true => names_of(api, Kind::ReplicationController).await,
            false => Vec::new(),
        };
        listed.into_iter().map(|name| format!("rc/{name}"))
    };
    let sets = async { names_of(api, Kind::StatefulSet).await.into_iter().map(|name| format!("sts/{name}")) };
    let (deployments, sets, controllers) = futures::join!(names_of(api, Kind::Deployment), sets, controllers);
    deployments.into_iter().chain(sets).chain(controllers).filter(are_known).map(Candidate::bare).collect()
}

/// The Deployment or StatefulSet that the line names.
fn named(api: &Api, line: &Line<'_>) -> Option<WorkloadKey> {
    let objects = crate::cli::Objects { names: line.names.clone(), ..crate::cli::Objects::default() };
    let targets = target::targets(&objects).ok()?.into_iter();
    let mut targets = targets.filter(|target| target.kind.has_revisions());
    let Target { kind, name } = targets.next()?;
    Some(WorkloadKey { kind, namespace: api.namespace.clone(), name })
}

/// The revisions of the object that the line names, the newest first, each with its images.
pub(super) async fn revisions(api: &Api, line: &Line<'_>) -> Vec<Candidate> {
    let Some(key) = named(api, line) else { return Vec::new() };
    let Ok(Some(History { revisions: history, .. })) = history::read(api, &key, false).await else {
        return Vec::new();
    };
    let shown = history.into_iter().rev().map(|revision| Candidate {
        word: revision.number.to_string(),
        help: if revision.is_current { format!("{} (current)", revision.images) } else { revision.images },
    });
    shown.collect()
}

/// The containers of the pod template of a Deployment or StatefulSet, each with its image.
pub(super) async fn containers(api: &Api, line: &Line<'_>) -> Vec<Candidate> {
    let Some(key) = named(api, line) else { return Vec::new() };
    containers_of(api, &key.path()).await
}

/// The same of a ReplicationController, which is named without its kind.
pub(super) async fn containers_of_controller(api: &Api, line: &Line<'_>) -> Vec<Candidate> {
    let Some(name) = line.names.first() else { return Vec::new() };
    let key = ObjectKey::new(api.namespace.as_str(), name.as_str());
    containers_of(api, &Kind::ReplicationController.resource().path_of(&key)).await
}

async fn containers_of(api: &Api, path: &str) -> Vec<Candidate> {
    let Ok(Some(object)) = api.get("it", path).await else { return Vec::new() };
    let containers = object["spec"]["template"]["spec"]["containers"].as_array();
    let shown = containers.into_iter().flatten().filter_map(|container| {
        let help = crate::text::harmless(container["image"].as_str().unwrap_or_default());
        Some(Candidate { word: container["name"].as_str()?.to_owned(), help })
    });
    shown.collect()
}
