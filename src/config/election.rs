//! Who leads.

use std::fs;
use std::time::Duration;

use super::{ConfigError, contradiction, duration, error, is_dns_name};
use crate::args::ElectionArgs;

/// The rules of leader election; what `runtime::election` needs besides an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// How long the others wait after they last saw the lease renewed.
    pub lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// Time between two tries.
    pub retry_period: Duration,
    /// The lease's name.
    pub name: String,
    /// The lease's namespace.
    pub namespace: String,
    /// Whether the lease is given up on a clean end, so that the next one need not wait for its expiry.
    pub release_on_cancel: bool,
}

/// Two tries may be as far apart as the retry period and its jitter; the deadline must be later
/// (client-go: `leaderelection.go`, `JitterFactor`).
const JITTER: f64 = 1.2;

/// Where kube-controller-manager keeps its own lease.
const KUBE_SYSTEM: &str = "kube-system";

/// Where a pod finds the name of its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The namespace of the pod that we run in, if it is one.
pub fn own_namespace() -> Option<String> {
    let namespace = fs::read_to_string(NAMESPACE_FILE).ok()?;
    let namespace = namespace.trim();
    is_dns_name(namespace, 63, false).then(|| namespace.to_owned())
}

/// `scope` is the one namespace that the daemon acts in: who has rights there only can keep a lease
/// nowhere else.
pub(super) fn election(
    args: ElectionArgs,
    scope: Option<&str>,
) -> Result<Option<ElectionConfig>, ConfigError> {
    let ElectionArgs {
        leader_elect,
        leader_elect_lease_duration,
        leader_elect_renew_deadline,
        leader_elect_retry_period,
        leader_elect_resource_lock: _, // Leases only.
        leader_elect_resource_name: name,
        leader_elect_resource_namespace: namespace,
    } = args;
    let lease_duration = duration("leader-elect-lease-duration", &leader_elect_lease_duration)?;
    let renew_deadline = duration("leader-elect-renew-deadline", &leader_elect_renew_deadline)?;
    let retry_period = duration("leader-elect-retry-period", &leader_elect_retry_period)?;
    if !leader_elect {
        return Ok(None);
    }
    if lease_duration.is_zero() || lease_duration.subsec_nanos() != 0 {
        let allowed = "a whole number of seconds above 0, which is all that a Lease can hold";
        return Err(error("leader-elect-lease-duration", allowed, leader_elect_lease_duration));
    }
    if retry_period.is_zero() {
        return Err(error("leader-elect-retry-period", "longer than 0s", leader_elect_retry_period));
    }
    if renew_deadline >= lease_duration {
        return Err(contradiction(format!(
            "--leader-elect-renew-deadline ({leader_elect_renew_deadline}) must be shorter than \
             --leader-elect-lease-duration ({leader_elect_lease_duration}): a leader has to give up before \
             another may take over"
        )));
    }
    if renew_deadline <= retry_period.mul_f64(JITTER) {
        return Err(contradiction(format!(
            "--leader-elect-retry-period ({leader_elect_retry_period}) times {JITTER} must be shorter than \
             --leader-elect-renew-deadline ({leader_elect_renew_deadline}): the leader needs a second try"
        )));
    }
    if !is_dns_name(&name, 253, true) {
        let allowed = "a name of lower-case letters, digits, '-' and '.'";
        return Err(error("leader-elect-resource-name", allowed, format!("{name:?}")));
    }
    let namespace = namespace
        .filter(|namespace| !namespace.is_empty())
        .or_else(own_namespace)
        .unwrap_or_else(|| scope.unwrap_or(KUBE_SYSTEM).to_owned());
    if !is_dns_name(&namespace, 63, false) {
        let allowed = "the name of a namespace";
        return Err(error("leader-elect-resource-namespace", allowed, format!("{namespace:?}")));
    }
    let release_on_cancel = true;
    Ok(Some(ElectionConfig {
        lease_duration,
        renew_deadline,
        retry_period,
        name,
        namespace,
        release_on_cancel,
    }))
}

#[cfg(test)]
mod tests {
    use crate::config::tests::config;

    #[test]
    fn the_lease_lives_where_the_daemon_may_write() {
        // The first choice is the pod's own namespace, and tests do not run in a pod.
        let namespace = |flags: &[&str]| config(flags).unwrap().election.unwrap().namespace;
        if super::own_namespace().is_none() {
            assert_eq!(namespace(&[]), "kube-system");
            assert_eq!(namespace(&["--namespace=shop"]), "shop");
        }
        assert_eq!(namespace(&["--namespace=shop", "--leader-elect-resource-namespace=ops"]), "ops");
    }
}
