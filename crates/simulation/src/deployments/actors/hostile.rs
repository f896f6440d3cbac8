//! Values that the API server stores and that must not break a controller: malformed, too large or negative numbers,
//! and very long texts (R1).

use serde_json::json;

use super::Actors;

/// The object that has the annotation.
#[derive(Clone, Copy)]
enum Whose {
    Deployment,
    ReplicaSet,
    Pod,
}

const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Numbers just beyond 32 and 64 bits, and texts that only look like numbers.
const VALUES: [(Whose, &str, &str); 22] = [
    (Whose::Deployment, REVISION, "9223372036854775808"),
    (Whose::Deployment, REVISION, "-5"),
    (Whose::Deployment, REVISION, "abc"),
    (Whose::Deployment, ROLLBACK_TO, "9223372036854775807"),
    (Whose::Deployment, ROLLBACK_TO, "-1"),
    (Whose::Deployment, DESIRED, "-1"),
    (Whose::Deployment, MOST, "4294967295"),
    (Whose::ReplicaSet, REVISION, "9223372036854775808"),
    (Whose::ReplicaSet, REVISION, "-5"),
    (Whose::ReplicaSet, REVISION, "abc"),
    (Whose::ReplicaSet, REVISION_HISTORY, ",,,-1,9223372036854775808,x"),
    (Whose::ReplicaSet, DESIRED, "4294967295"),
    (Whose::ReplicaSet, DESIRED, "-1"),
    (Whose::ReplicaSet, DESIRED, "0"),
    (Whose::ReplicaSet, MOST, "4294967295"),
    (Whose::ReplicaSet, MOST, "-1"),
    (Whose::ReplicaSet, MOST, "0"),
    (Whose::Pod, COST, "2147483648"),
    (Whose::Pod, COST, "-2147483649"),
    (Whose::Pod, COST, "+5"),
    (Whose::Pod, COST, "007"),
    (Whose::Deployment, "example.com/large", LARGE),
];

/// Stands for a text of 10 kB: it is copied to every ReplicaSet, and with a longer text a history takes a minute.
const LARGE: &str = "large";

/// How many values there are.
pub const COUNT: u32 = VALUES.len() as u32;

impl Actors {
    /// Puts one of the values on a Deployment, or on the n-th ReplicaSet or pod.
    pub(super) async fn annotate_badly(&self, name: &str, nth: u32, value: u32) {
        let Some((whose, key, value)) = VALUES.get(value as usize % VALUES.len()) else { return };
        let value = if *value == LARGE { "9".repeat(10_000) } else { (*value).to_owned() };
        let annotations = json!({"annotations": {*key: value}});
        match whose {
            Whose::Deployment => self.change(name, json!({"metadata": annotations})).await,
            Whose::ReplicaSet => {
                let Some(replica_set) = self.replica_set(nth) else { return };
                self.edit_replica_set(&replica_set, annotations).await;
            }
            Whose::Pod => {
                let Some(pod) = self.pod(nth) else { return };
                self.edit_pod(&pod, annotations).await;
            }
        }
    }
}
