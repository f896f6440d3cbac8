//! Which objects the arguments name: `deploy/web`, `deploy web`, `web`.

use crate::cli::Objects;

/// The kind of an object that a command works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A Deployment.
    Deployment,
    /// A ReplicationController.
    ReplicationController,
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
            Kind::ReplicationController => "replicationcontroller",
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
            "ds" | "daemonset" | "daemonsets" | "sts" | "statefulset" | "statefulsets" => other(
                "only Deployments and ReplicationControllers are supported; use `kubectl rollout status`",
            ),
            "rs" | "replicaset" | "replicasets" | "po" | "pod" | "pods" => other(
                "name the Deployment that owns it; `kubectl get` shows the owner with `-o wide` or `-o yaml`",
            ),
            _ => None,
        }
    }
}

/// Reads the arguments.
///
/// # Errors
/// With the reason, for another kind, an empty name, or no object at all.
pub fn targets(objects: &Objects) -> Result<Vec<Target>, String> {
    let mut targets = Vec::new();
    let mut names = objects.names.iter().map(String::as_str).peekable();
    // `deploy web api`: a kind without a name before it counts for all that follow.
    let mut kind = None;
    if let Some(first) = names.peek()
        && !first.contains('/')
        && objects.names.len() > 1
        && let Some(parsed) = Kind::parse(first)
    {
        kind = Some(parsed?);
        names.next();
    }
    for name in names {
        let target = match name.split_once('/') {
            Some((word, name)) => {
                let kind = Kind::parse(word)
                    .unwrap_or_else(|| Err(format!("{word:?} is not a kind that this command knows")))?;
                Target { kind, name: name.to_owned() }
            }
            None => Target { kind: kind.unwrap_or(Kind::Deployment), name: name.to_owned() },
        };
        if target.name.is_empty() || target.name.contains('/') {
            return Err(format!("{name:?} is not an object: write KIND/NAME, such as deploy/web"));
        }
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    let all = objects.selector.is_some() || objects.all_namespaces;
    if targets.is_empty() && !all {
        return Err("no object: name one, such as deploy/web, or select some with -l".to_owned());
    }
    if !targets.is_empty() && objects.selector.is_some() {
        return Err("give either names or --selector, not both".to_owned());
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(names: &[&str]) -> Result<Vec<String>, String> {
        let objects =
            Objects { names: names.iter().map(|name| (*name).to_owned()).collect(), ..Objects::default() };
        let text = |target: Target| format!("{}/{}", target.kind.singular(), target.name);
        Ok(targets(&objects)?.into_iter().map(text).collect())
    }

    #[test]
    fn a_kind_may_stand_before_a_slash_or_before_all_names_or_be_left_out() {
        let web = Ok(vec!["deployment/web".to_owned()]);
        for names in [&["web"][..], &["deploy/web"], &["deployment", "web"], &["deploy/web", "web"]] {
            assert_eq!(read(names), web, "{names:?}");
        }
        assert_eq!(read(&["deploy", "a", "rc/b"]).unwrap(), ["deployment/a", "replicationcontroller/b"]);
        assert_eq!(read(&["deploy"]).unwrap(), ["deployment/deploy"], "a Deployment may have that name");
    }

    #[test]
    fn another_kind_is_refused_with_what_to_do_instead() {
        assert!(read(&["rs/web-1"]).unwrap_err().contains("Deployment that owns it"));
        assert!(read(&["ds/agent"]).unwrap_err().contains("kubectl rollout status"));
        assert!(read(&["svc/web"]).unwrap_err().contains("not a kind"));
        assert!(read(&["deploy/"]).unwrap_err().contains("KIND/NAME"));
        assert!(read(&[]).unwrap_err().contains("no object"));
    }
}
