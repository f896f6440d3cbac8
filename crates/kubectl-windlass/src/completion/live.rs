//! Candidates from the cluster: the names of objects, containers, revisions and namespaces. Reads only.

use serde_json::Value;
use windlass::model::{Namespace, ObjectKey, Record as _};
use windlass::runtime::request;

use super::Candidate;
use super::words::Line;
use crate::api::Api;
use crate::history;
use crate::target::{self, Kind};

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
        let Some(Ok(kind)) = Kind::parse(word) else { return Vec::new() };
        let found = names_of(api, kind).await.into_iter().map(|name| format!("{word}/{name}"));
        return found.filter(are_known).map(Candidate::bare).collect();
    }
    if let Some(Some(Ok(kind))) = line.names.first().map(|word| Kind::parse(word)) {
        return names_of(api, kind).await.into_iter().filter(are_known).map(Candidate::bare).collect();
    }
    let controllers = async {
        let listed = match with_controllers {
            true => names_of(api, Kind::ReplicationController).await,
            false => Vec::new(),
        };
        listed.into_iter().map(|name| format!("rc/{name}"))
    };
    let (deployments, controllers) = futures::join!(names_of(api, Kind::Deployment), controllers);
    deployments.into_iter().chain(controllers).filter(are_known).map(Candidate::bare).collect()
}

/// The object that the line names, if it is one of this kind.
fn named(line: &Line<'_>, kind: Kind) -> Option<String> {
    let objects = crate::cli::Objects { names: line.names.clone(), ..crate::cli::Objects::default() };
    let targets = target::targets(&objects).ok()?;
    targets.into_iter().find(|target| target.kind == kind).map(|target| target.name)
}

/// The revisions of the Deployment that the line names, the newest first, each with its images.
pub(super) async fn revisions(api: &Api, line: &Line<'_>) -> Vec<Candidate> {
    let Some(name) = named(line, Kind::Deployment) else { return Vec::new() };
    let Ok(Some((_, history))) = history::read(api, &api.namespace, &name).await else { return Vec::new() };
    let shown = history.into_iter().rev().map(|revision| Candidate {
        word: revision.number.to_string(),
        help: if revision.is_current { format!("{} (current)", revision.images) } else { revision.images },
    });
    shown.collect()
}

/// The containers of a pod template, each with its image.
pub(super) async fn containers(api: &Api, line: &Line<'_>, kind: Kind) -> Vec<Candidate> {
    // The names of ReplicationControllers are written without their kind.
    let name = match kind {
        Kind::ReplicationController => line.names.first().cloned(),
        Kind::Deployment | Kind::ReplicaSet | Kind::Pod => named(line, kind),
    };
    let Some(name) = name else { return Vec::new() };
    let path = kind.resource().path_of(&ObjectKey::new(api.namespace.as_str(), name.as_str()));
    let Ok(Some(object)) = api.get("it", &path).await else { return Vec::new() };
    let containers = object["spec"]["template"]["spec"]["containers"].as_array();
    let shown = containers.into_iter().flatten().filter_map(|container| {
        let help = crate::text::harmless(container["image"].as_str().unwrap_or_default());
        Some(Candidate { word: container["name"].as_str()?.to_owned(), help })
    });
    shown.collect()
}
