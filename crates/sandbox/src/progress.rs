//! How far rollouts have come, in the words of `kubectl rollout status`, and whether those that were
//! applied have all come to their end. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::cluster::{Cluster, Key, key, number, pod_trouble, wanted};

/// How far one Deployment has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rollout {
    /// Not there yet.
    Waiting(String),
    /// Every replica is of the newest template and available, and none is left of older ones.
    Complete(String),
    /// No progress within `progressDeadlineSeconds`.
    Failed(String),
}

impl Rollout {
    /// The sentence about it.
    pub fn text(&self) -> &str {
        let (Rollout::Waiting(text) | Rollout::Complete(text) | Rollout::Failed(text)) = self;
        text
    }
}

/// Judges a Deployment as `kubectl rollout status` does.
pub fn rollout(deployment: &Value) -> Rollout {
    let (_, name) = key(deployment);
    if number(deployment, "/status/observedGeneration") < number(deployment, "/metadata/generation") {
        return Rollout::Waiting("Waiting for deployment spec update to be observed...".to_owned());
    }
    if condition(deployment, "Progressing").is_some_and(|c| c["reason"] == "ProgressDeadlineExceeded") {
        return Rollout::Failed(format!("deployment \"{name}\" exceeded its progress deadline"));
    }
    let wanted = wanted(deployment);
    let updated = number(deployment, "/status/updatedReplicas");
    let all = number(deployment, "/status/replicas");
    let available = number(deployment, "/status/availableReplicas");
    let waiting = format!("Waiting for deployment \"{name}\" rollout to finish:");
    match () {
        () if updated < wanted => {
            Rollout::Waiting(format!("{waiting} {updated} out of {wanted} new replicas have been updated..."))
        }
        () if all > updated => {
            Rollout::Waiting(format!("{waiting} {} old replicas are pending termination...", all - updated))
        }
        () if available < updated => {
            Rollout::Waiting(format!("{waiting} {available} of {updated} updated replicas are available..."))
        }
        () => Rollout::Complete(format!("deployment \"{name}\" successfully rolled out")),
    }
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

/// What has become of all the Deployments that were applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Some are still under way.
    Pending,
    /// All are complete.
    Complete,
    /// One cannot become complete. Says which, and why.
    Failed(String),
}

/// The Deployments that were applied.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    targets: BTreeSet<Key>,
    /// Those that have been seen, so that one that is missing can be told from one that is not there yet.
    seen: BTreeSet<Key>,
}

impl Progress {
    /// Follows the Deployments with these namespaces and names.
    pub fn new(targets: impl IntoIterator<Item = Key>) -> Self {
        Progress { targets: targets.into_iter().collect(), seen: BTreeSet::new() }
    }

    /// Whether there is nothing to wait for.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// How many Deployments there are.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Judges the cluster as it is now.
    pub fn judge(&mut self, cluster: &Cluster) -> Verdict {
        let mut complete = 0;
        for target in &self.targets {
            let Some(deployment) = cluster.deployments.get(target) else {
                if self.seen.contains(target) {
                    return Verdict::Failed(format!("Deployment {} was deleted", show(target)));
                }
                continue;
            };
            self.seen.insert(target.clone());
            match rollout(deployment) {
                Rollout::Complete(_) => complete += 1,
                Rollout::Waiting(_) => {}
                Rollout::Failed(why) => {
                    return Verdict::Failed(explain(target, deployment, &why, cluster));
                }
            }
        }
        if complete == self.targets.len() { Verdict::Complete } else { Verdict::Pending }
    }

    /// Why each Deployment that is not complete is not; a paragraph each.
    pub fn unfinished(&self, cluster: &Cluster) -> String {
        let mut paragraphs = Vec::new();
        for target in &self.targets {
            match cluster.deployments.get(target) {
                None => paragraphs.push(format!("Deployment {} does not exist", show(target))),
                Some(deployment) => match rollout(deployment) {
                    Rollout::Complete(_) => {}
                    Rollout::Waiting(why) | Rollout::Failed(why) => {
                        paragraphs.push(explain(target, deployment, &why, cluster));
                    }
                },
            }
        }
        paragraphs.join("\n")
    }
}

fn show((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}

/// Why a Deployment is where it is: the sentence, its own conditions, and what its pods wait for.
fn explain(target: &Key, deployment: &Value, why: &str, cluster: &Cluster) -> String {
    let mut lines = vec![format!("Deployment {}: {why}", show(target))];
    if deployment["spec"]["paused"] == true {
        lines.push("  it is paused: nothing rolls out until `kubectl rollout resume`".to_owned());
    }
    for type_ in ["Progressing", "ReplicaFailure"] {
        if let Some(condition) = condition(deployment, type_) {
            let text = |field: &str| condition[field].as_str().unwrap_or_default();
            lines.push(format!("  {type_}={}, {}: {}", text("status"), text("reason"), text("message")));
        }
    }
    // Ten pods with one trouble are one line: what matters is which troubles there are.
    let mut troubles: Vec<(String, String, usize)> = Vec::new();
    for pod in cluster.pods_of(deployment) {
        let Some(trouble) = pod_trouble(pod) else { continue };
        match troubles.iter_mut().find(|(known, _, _)| *known == trouble) {
            Some((_, _, count)) => *count += 1,
            None => troubles.push((trouble, key(pod).1, 1)),
        }
    }
    for (trouble, pod, count) in troubles {
        let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        lines.push(format!("  pod {pod}{others}: {trouble}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::{Followed, News};

    fn deployment(status: Value) -> Value {
        json!({"metadata": {"namespace": "shop", "name": "web", "uid": "d", "generation": 2},
               "spec": {"replicas": 3}, "status": status})
    }

    fn waits(status: Value) -> String {
        match rollout(&deployment(status)) {
            Rollout::Waiting(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_rollout_is_judged_in_the_order_and_words_of_kubectl() {
        assert_eq!(
            waits(json!({"observedGeneration": 1})),
            "Waiting for deployment spec update to be observed..."
        );
        assert_eq!(
            waits(json!({"observedGeneration": 2, "updatedReplicas": 1, "replicas": 3})),
            "Waiting for deployment \"web\" rollout to finish: 1 out of 3 new replicas have been updated..."
        );
        assert_eq!(
            waits(json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 4})),
            "Waiting for deployment \"web\" rollout to finish: 1 old replicas are pending termination..."
        );
        assert_eq!(
            waits(
                json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 2})
            ),
            "Waiting for deployment \"web\" rollout to finish: 2 of 3 updated replicas are available..."
        );
        let done =
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3});
        assert_eq!(
            rollout(&deployment(done)),
            Rollout::Complete("deployment \"web\" successfully rolled out".to_owned())
        );
    }

    fn cluster(status: Value) -> Cluster {
        let mut cluster = Cluster::default();
        let owned = |uid: &str, owner: &str, status: Value| {
            json!({"metadata": {"namespace": "shop", "name": uid, "uid": uid,
                                "ownerReferences": [{"uid": owner, "controller": true}]}, "status": status})
        };
        let stuck = json!({"phase": "Pending", "containerStatuses": [
            {"name": "nginx", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        for (kind, object) in [
            (Followed::Deployment, deployment(status)),
            (Followed::ReplicaSet, owned("web-1", "d", json!({}))),
            (Followed::Pod, owned("web-1-a", "web-1", stuck.clone())),
            (Followed::Pod, owned("web-1-b", "web-1", stuck)),
        ] {
            cluster.observe(News { kind, object, gone: false });
        }
        cluster
    }

    fn progress() -> Progress {
        Progress::new([("shop".to_owned(), "web".to_owned())])
    }

    #[test]
    fn a_passed_deadline_fails_and_says_which_pods_wait_and_why() {
        let status = json!({"observedGeneration": 2, "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
             "message": "ReplicaSet \"web-1\" has timed out progressing."}]});
        let Verdict::Failed(why) = progress().judge(&cluster(status)) else { panic!("must have failed") };
        assert_eq!(
            why,
            "Deployment shop/web: deployment \"web\" exceeded its progress deadline\n  \
             Progressing=False, ProgressDeadlineExceeded: ReplicaSet \"web-1\" has timed out progressing.\n  \
             pod web-1-a and 1 more: container nginx: ImagePullBackOff"
        );
    }

    #[test]
    fn all_must_be_complete_and_one_that_was_deleted_never_will_be() {
        let done =
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3});
        let mut progress = progress();
        assert_eq!(progress.judge(&Cluster::default()), Verdict::Pending, "not seen yet");
        assert_eq!(progress.judge(&cluster(done)), Verdict::Complete);
        assert_eq!(
            progress.judge(&Cluster::default()),
            Verdict::Failed("Deployment shop/web was deleted".to_owned())
        );
    }

    #[test]
    fn a_paused_deployment_is_said_to_be_paused() {
        let mut cluster = cluster(json!({"observedGeneration": 2}));
        let paused = cluster.deployments.values_mut().next().unwrap();
        paused["spec"]["paused"] = json!(true);
        assert!(progress().unfinished(&cluster).contains("it is paused"));
    }
}
