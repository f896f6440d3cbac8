//! Which objects the arguments name: `deploy/web`, `deploy web`, `web`.

use serde_json::Value;
use windlass::model::{
    Deployment, ObjectKey, Pod, Record as _, ReplicaSet, ReplicationController, Resource, StatefulSet,
};

use crate::absent;
use crate::api::Api;
use crate::cli::Objects;
use crate::exit::CommandError;
use crate::text::harmless;

/// The kind of an object that a command works on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A Deployment.
    #[default]
    Deployment,
    /// A StatefulSet.
    StatefulSet,
    /// A ReplicationController.
    ReplicationController,
    /// A ReplicaSet: [`refuse_owned`] names its owner.
    ReplicaSet,
    /// A pod, likewise.
    Pod,
}

/// An object by kind and name, in the namespace of the command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

impl Kind {
    /// The name for messages, as kubectl writes it in front of a slash.
    pub fn singular(self) -> &'static str {
        match self {
            Kind::Deployment => "deployment",
            Kind::StatefulSet => "statefulset",
            Kind::ReplicationController => "replicationcontroller",
            Kind::ReplicaSet => "replicaset",
            Kind::Pod => "pod",
        }
    }

    /// The short name for commands.
    pub fn short(self) -> &'static str {
        match self {
            Kind::Deployment => "deploy",
            Kind::StatefulSet => "sts",
            Kind::ReplicationController => "rc",
            Kind::ReplicaSet => "rs",
            Kind::Pod => "pod",
        }
    }

    /// The name in sentences.
    pub fn title(self) -> &'static str {
        self.resource().kind
    }

    /// Where its objects are.
    pub fn resource(self) -> Resource {
        match self {
            Kind::Deployment => Deployment::RESOURCE,
            Kind::StatefulSet => StatefulSet::RESOURCE,
            Kind::ReplicationController => ReplicationController::RESOURCE,
            Kind::ReplicaSet => ReplicaSet::RESOURCE,
            Kind::Pod => Pod::RESOURCE,
        }
    }

    /// Reads a resource name. `None` for a word that names no resource at all.
    ///
    /// # Errors
    /// Inside, for a kind that no command works on: with what to do.
    pub fn parse(word: &str) -> Option<Result<Kind, String>> {
        let word = word.to_ascii_lowercase();
        let other = |advice: &str| Some(Err(format!("{word}: {advice}")));
        match word.as_str() {
            "deploy" | "deployment" | "deployments" | "deployment.apps" | "deployments.apps" => {
                Some(Ok(Kind::Deployment))
            }
            "rc" | "replicationcontroller" | "replicationcontrollers" => {
                Some(Ok(Kind::ReplicationController))
            }
            "sts" | "statefulset" | "statefulsets" | "statefulset.apps" | "statefulsets.apps" => {
                Some(Ok(Kind::StatefulSet))
            }
            "ds" | "daemonset" | "daemonsets" | "daemonset.apps" | "daemonsets.apps" => other(
                "only Deployments, StatefulSets and ReplicationControllers are supported; use `kubectl rollout status`",
            ),
            "rs" | "replicaset" | "replicasets" | "replicaset.apps" | "replicasets.apps" => {
                Some(Ok(Kind::ReplicaSet))
            }
            "po" | "pod" | "pods" => Some(Ok(Kind::Pod)),
            _ => None,
        }
    }
}

/// Reads the arguments.
///
/// # Errors
/// With the reason, for another kind; a usage error for an empty name, no object at all, or names beside a selector.
pub fn targets(objects: &Objects) -> Result<Vec<Target>, CommandError> {
    let mut targets = Vec::new();
    let mut names = objects.names.iter().map(String::as_str).peekable();
    // `deploy web api`: a kind without a name before it counts for all that follow.
    let mut kind = None;
    if let Some(first) = names.peek()
        && !first.contains('/')
        && objects.names.len() > 1
        && let Some(parsed) = Kind::parse(first)
    {
        kind = Some(parsed.map_err(CommandError::Argument)?);
        names.next();
    }
    for name in names {
        let target = match name.split_once('/') {
            Some((word, name)) => {
                let kind = Kind::parse(word)
                    .unwrap_or_else(|| Err(format!("{word:?} is not a kind that this command knows")));
                Target { kind: kind.map_err(CommandError::Argument)?, name: name.to_owned() }
            }
            None => Target { kind: kind.unwrap_or(Kind::Deployment), name: name.to_owned() },
        };
        if target.name.is_empty() || target.name.contains('/') {
            return Err(CommandError::Usage(format!(
                "{name:?} is not an object: write KIND/NAME, such as deploy/web"
            )));
        }
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    let all = objects.selector.is_some() || objects.all_namespaces;
    if all && listed_kind(objects).is_some() {
        return Ok(Vec::new());
    }
    if targets.is_empty() && !all {
        return Err(CommandError::Usage(
            "no object: name one, such as deploy/web, or select some with -l".to_owned(),
        ));
    }
    if !targets.is_empty() && objects.selector.is_some() {
        return Err(CommandError::Usage("give either names or --selector, not both".to_owned()));
    }
    if !targets.is_empty() && objects.all_namespaces {
        let text = "give either names or --all-namespaces, not both; a kind may stand beside it, such as sts";
        return Err(CommandError::Usage(text.to_owned()));
    }
    Ok(targets)
}

/// The kind that stands alone beside `-l` or `-A`, as in `sts -l app=db`.
fn listed_kind(objects: &Objects) -> Option<Kind> {
    let [word] = objects.names.as_slice() else { return None };
    Kind::parse(word)?.ok().filter(|kind| matches!(kind, Kind::Deployment | Kind::StatefulSet))
}

/// An object whose rollout a command follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadKey {
    /// Its kind: Deployment or StatefulSet.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl WorkloadKey {
    /// For messages: `deployment shop/web`.
    pub fn described(&self) -> String {
        format!("{} {}/{}", self.kind.singular(), self.namespace, self.name)
    }

    /// Where it is.
    pub fn path(&self) -> String {
        let key = ObjectKey::new(self.namespace.as_str(), self.name.as_str());
        self.kind.resource().path_of(&key)
    }

    /// The error if it does not exist: with its namespace, and names that are alike.
    pub async fn missing(&self, api: &Api) -> CommandError {
        absent::error(api, &self.kind.resource(), &self.namespace, &self.name).await
    }
}

/// The Deployments and StatefulSets of a command: those that are named, or all of one kind that are selected.
///
/// # Errors
/// When they cannot be listed, there is none, or a ReplicationController is named.
pub async fn workloads(
    api: &Api,
    targets: &[Target],
    objects: &Objects,
) -> Result<Vec<WorkloadKey>, CommandError> {
    let is_followed = |target: &&Target| matches!(target.kind, Kind::Deployment | Kind::StatefulSet);
    if let Some(other) = targets.iter().find(|target| !is_followed(target)) {
        let text = format!(
            "{}/{}: this command follows Deployments and StatefulSets",
            other.kind.singular(),
            other.name
        );
        return Err(CommandError::Argument(text));
    }
    if !targets.is_empty() {
        let workload = |Target { kind, name }: &Target| WorkloadKey {
            kind: *kind,
            namespace: api.namespace.clone(),
            name: name.clone(),
        };
        return Ok(targets.iter().map(workload).collect());
    }
    let kind = listed_kind(objects).unwrap_or_default();
    let namespace = (!objects.all_namespaces).then_some(api.namespace.as_str());
    let query: Vec<(&str, &str)> =
        objects.selector.iter().map(|labels| ("labelSelector", labels.as_str())).collect();
    let resource = kind.resource();
    let listed = api.list(resource.plural, &resource.path(namespace), &query).await?;
    let text =
        |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let found: Vec<WorkloadKey> = listed
        .items
        .iter()
        .map(|object| WorkloadKey { kind, namespace: text(object, "namespace"), name: text(object, "name") })
        .collect();
    if found.is_empty() {
        let place =
            namespace.map_or("any namespace".to_owned(), |namespace| format!("namespace {namespace}"));
        return Err(CommandError::Argument(format!("no {} in {place} is selected", kind.title())));
    }
    Ok(found)
}

/// Refuses ReplicaSets and pods, with the name of what controls them.
///
/// # Errors
/// With the owner to name instead; when the object does not exist, or cannot be read.
pub async fn refuse_owned(api: &Api, targets: &[Target]) -> Result<(), CommandError> {
    let is_owned = |target: &&Target| matches!(target.kind, Kind::ReplicaSet | Kind::Pod);
    let Some(target) = targets.iter().find(is_owned) else { return Ok(()) };
    let object = format!("{}/{}", target.kind.singular(), target.name);
    let mut owners: Vec<String> = Vec::new();
    let (mut kind, mut name) = (target.kind, target.name.clone());
    loop {
        let path = kind.resource().path_of(&ObjectKey::new(api.namespace.as_str(), name.as_str()));
        let found = api.get(&format!("{} {name}", kind.singular()), &path).await?;
        let Some(found) = found else {
            // The garbage collector will delete what an owner has left.
            let is_asked_for = owners.is_empty();
            if is_asked_for {
                return Err(absent::error(api, &kind.resource(), &api.namespace, &name).await);
            }
            break;
        };
        let Some((owner_kind, owner)) = controller(&found) else { break };
        owners.push(format!("{}/{owner}", owner_kind.to_lowercase()));
        // Only a ReplicaSet has an owner of its own that a command is about.
        if owner_kind != "ReplicaSet" {
            break;
        }
        (kind, name) = (Kind::ReplicaSet, owner);
    }
    let text = match owners.last() {
        Some(last) => {
            let way = owners.join(", which is controlled by ");
            format!("{object} is controlled by {way}: name {last} instead")
        }
        None => {
            format!("{object} has no controller; name a Deployment, a StatefulSet or a ReplicationController")
        }
    };
    Err(CommandError::Argument(text))
}

/// Kind and name of the controller of an object.
fn controller(object: &Value) -> Option<(String, String)> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let text = |field: &str| owner[field].as_str().map(harmless);
    Some((text("kind")?, text("name")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(names: &[&str]) -> Result<Vec<String>, String> {
        let objects =
            Objects { names: names.iter().map(|name| (*name).to_owned()).collect(), ..Objects::default() };
        let text = |target: Target| format!("{}/{}", target.kind.singular(), target.name);
        let read = targets(&objects).map_err(|error| match error {
            CommandError::Usage(text) => format!("usage: {text}"),
            other => other.to_string(),
        });
        Ok(read?.into_iter().map(text).collect())
    }

    #[test]
    fn a_kind_may_stand_before_a_slash_or_before_all_names_or_be_left_out() {
        let web = Ok(vec!["deployment/web".to_owned()]);
        for names in [&["web"][..], &["deploy/web"], &["deployment", "web"], &["deploy/web", "web"]] {
            assert_eq!(read(names), web, "{names:?}");
        }
        assert_eq!(read(&["deploy", "a", "rc/b"]).unwrap(), ["deployment/a", "replicationcontroller/b"]);
        assert_eq!(read(&["sts", "db"]).unwrap(), ["statefulset/db"]);
        assert_eq!(read(&["deploy"]).unwrap(), ["deployment/deploy"], "a Deployment may have that name");
    }

    #[test]
    fn a_kind_alone_beside_a_selector_says_what_is_selected() {
        let objects = |names: &[&str]| Objects {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            selector: Some("app=db".to_owned()),
            ..Objects::default()
        };
        assert_eq!(targets(&objects(&["sts"])).unwrap(), []);
        assert_eq!(listed_kind(&objects(&["sts"])), Some(Kind::StatefulSet));
        assert!(targets(&objects(&["db"])).is_err() && targets(&objects(&["sts", "db"])).is_err());
    }

    #[test]
    fn another_kind_is_refused_with_what_to_do_instead() {
        assert_eq!(read(&["rs/web-1", "po/x"]).unwrap(), ["replicaset/web-1", "pod/x"]);
        assert!(read(&["ds/agent"]).unwrap_err().contains("kubectl rollout status"));
        assert!(read(&["svc/web"]).unwrap_err().contains("not a kind"));
        let error = read(&["deploy/"]).unwrap_err();
        assert!(error.starts_with("usage: ") && error.contains("KIND/NAME"), "{error}");
        assert!(read(&[]).unwrap_err().starts_with("usage: no object"));
    }
}
