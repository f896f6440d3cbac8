//! Which objects the arguments name: `deploy/web`, `deploy web`, `web`.

use serde_json::Value;
use windlass::model::ObjectKey;

use crate::absent;
use crate::api::{Api, Listed};
use crate::cli::Objects;
use crate::exit::CommandError;
pub use crate::kind::Kind;
use crate::owners::is_workload;

/// An object by kind and name, in the namespace of the command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
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
        kind = Some(parsed);
        names.next();
    }
    for name in names {
        let target = match name.split_once('/') {
            Some((word, name)) => {
                let unknown =
                    || CommandError::Argument(format!("{word:?} is not a kind that this command knows"));
                Target { kind: Kind::parse(word).ok_or_else(unknown)?, name: name.to_owned() }
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
pub fn listed_kind(objects: &Objects) -> Option<Kind> {
    let [word] = objects.names.as_slice() else { return None };
    Kind::parse(word).filter(|kind| *kind != Kind::Pod)
}

/// An object whose rollout a command follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadKey {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl WorkloadKey {
    /// The key of an object.
    pub fn of(kind: Kind, object: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        WorkloadKey { kind, namespace: text("namespace"), name: text("name") }
    }

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

/// The objects of a command: those that are named, or all of one kind that are selected.
///
/// # Errors
/// When they cannot be listed, there is none, or one is of a kind that the command does not take: `refuses` has the reason.
pub async fn workloads(
    api: &Api,
    targets: &[Target],
    objects: &Objects,
    refuses: impl Fn(Kind) -> Option<&'static str>,
) -> Result<Vec<WorkloadKey>, CommandError> {
    for Target { kind, name } in targets {
        if let Some(why) = refuses(*kind) {
            return Err(CommandError::Argument(format!("{}/{name}: {why}", kind.singular())));
        }
    }
    if !targets.is_empty() {
        let workload = |Target { kind, name }: &Target| WorkloadKey {
            kind: *kind,
            namespace: api.namespace.clone(),
            name: name.clone(),
        };
        return Ok(targets.iter().map(workload).collect());
    }
    let (kind, listed) = listed(api, objects, refuses).await?;
    Ok(listed.items.iter().map(|object| WorkloadKey::of(kind, object)).collect())
}

/// The objects of one kind that a selector or `-A` chooses, in one list.
///
/// # Errors
/// As [`workloads`].
pub async fn listed(
    api: &Api,
    objects: &Objects,
    refuses: impl Fn(Kind) -> Option<&'static str>,
) -> Result<(Kind, Listed), CommandError> {
    let kind = listed_kind(objects).unwrap_or_default();
    if let Some(why) = refuses(kind) {
        return Err(CommandError::Argument(format!("{}: {why}", kind.short())));
    }
    let query: Vec<(&str, &str)> =
        objects.selector.iter().map(|labels| ("labelSelector", labels.as_str())).collect();
    let resource = kind.resource();
    let keep = |object: Value| is_workload(kind, &object).then_some(object);
    let path = resource.path(scope(api, objects));
    let listed = api.list_kept(resource.plural, &path, &query, &keep).await?;
    if listed.items.is_empty() {
        let place = scope(api, objects)
            .map_or("any namespace".to_owned(), |namespace| format!("namespace {namespace}"));
        return Err(CommandError::Argument(format!("no {} in {place} is selected", kind.title())));
    }
    Ok((kind, listed))
}

/// The namespace of a command; `None` for all.
pub fn scope<'a>(api: &'a Api, objects: &Objects) -> Option<&'a str> {
    (!objects.all_namespaces).then_some(api.namespace.as_str())
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
    fn every_kind_of_workload_is_known_and_no_other() {
        assert_eq!(read(&["rs/web-1", "po/x"]).unwrap(), ["replicaset/web-1", "pod/x"]);
        assert_eq!(read(&["ds", "agent", "cj/x"]).unwrap(), ["daemonset/agent", "cronjob/x"]);
        assert!(read(&["svc/web"]).unwrap_err().contains("not a kind"));
        let error = read(&["deploy/"]).unwrap_err();
        assert!(error.starts_with("usage: ") && error.contains("KIND/NAME"), "{error}");
        assert!(read(&[]).unwrap_err().starts_with("usage: no object"));
    }
}
