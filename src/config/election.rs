//! The settings of the leader election.

use super::value::{ConfigError, duration, error, is_dns_name};
use crate::args::ElectionArgs;
use crate::runtime::leader_election::rules::{ElectionError, ElectionOptions};

impl From<ElectionError> for ConfigError {
    fn from(ElectionError { flag, allowed, given }: ElectionError) -> Self {
        ConfigError::Value { flag, allowed, given }
    }
}

/// `scope` is the one namespace that the daemon acts in: with permissions in that namespace only, the Lease cannot be
/// anywhere else.
pub(super) fn election(
    args: ElectionArgs,
    scope: Option<&str>,
) -> Result<Option<ElectionOptions>, ConfigError> {
    let ElectionArgs {
        leader_elect,
        leader_elect_lease_duration,
        leader_elect_renew_deadline,
        leader_elect_retry_period,
        leader_elect_resource_lock: _, // Leases only.
        leader_elect_resource_name: name,
        leader_elect_resource_namespace: namespace,
    } = args;
    let options = ElectionOptions {
        lease_duration: duration("leader-elect-lease-duration", &leader_elect_lease_duration)?,
        renew_deadline: duration("leader-elect-renew-deadline", &leader_elect_renew_deadline)?,
        retry_period: duration("leader-elect-retry-period", &leader_elect_retry_period)?,
        name,
        namespace: namespace.filter(|given| !given.is_empty()).or_else(|| scope.map(str::to_owned)),
        ..ElectionOptions::default()
    };
    if !leader_elect {
        return Ok(None);
    }
    options.validate()?;
    if let Some(namespace) = options.namespace.as_deref().filter(|name| !is_dns_name(name, 63, false)) {
        let allowed = "the name of a namespace";
        return Err(error("leader-elect-resource-namespace", allowed, format!("{namespace:?}")));
    }
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    use crate::config::tests::config;

    #[test]
    fn the_lease_lives_where_the_daemon_may_write() {
        let namespace = |flags: &[&str]| config(flags).unwrap().election.unwrap().namespace;
        assert_eq!(namespace(&[]), None, "the pod's own, or kube-system");
        assert_eq!(namespace(&["--namespace=shop"]).as_deref(), Some("shop"));
        let both = ["--namespace=shop", "--leader-elect-resource-namespace=ops"];
        assert_eq!(namespace(&both).as_deref(), Some("ops"));
    }

    #[test]
    fn election_can_be_turned_off() {
        assert_eq!(config(&["--leader-elect=false"]).unwrap().election, None);
        assert!(config(&["--leader-elect"]).unwrap().election.is_some());
    }
}
