//! Which objects a quota includes (upstream: `podMatchesScopeFunc`, `pvcMatchesScopeFunc`, `MatchesNoScopeFunc`).

use crate::model::pod::shape::PodShape;
use crate::model::resourcequota::{Operator, Scope, ScopeRequirement};
use crate::model::{ClaimUse, ResourceQuota};

/// Whether a quota includes a pod.
pub fn includes_pod(quota: &ResourceQuota, pod: &PodShape) -> bool {
    let class = Some(&*pod.priority_class).filter(|class| !class.is_empty());
    quota.scopes.iter().all(|scope| match scope.scope {
        Scope::Terminating => pod.has_deadline,
        Scope::NotTerminating => !pod.has_deadline,
        Scope::BestEffort => pod.is_best_effort,
        Scope::NotBestEffort => !pod.is_best_effort,
        Scope::PriorityClass => selects(scope, &class.into_iter().collect::<Vec<_>>()),
        Scope::CrossNamespacePodAffinity => pod.crosses_namespaces,
        Scope::VolumeAttributesClass | Scope::Unknown => false,
    })
}

/// Whether a quota includes a claim.
pub fn includes_claim(quota: &ResourceQuota, claim: &ClaimUse) -> bool {
    let classes: Vec<&str> = claim.attributes_classes.iter().collect();
    quota.scopes.iter().all(|scope| scope.scope == Scope::VolumeAttributesClass && selects(scope, &classes))
}

/// Whether a quota includes objects without scopes.
pub fn includes_others(quota: &ResourceQuota) -> bool {
    quota.scopes.is_empty()
}

/// Whether one of these values is as required; for an object without values, whether that is.
fn selects(scope: &ScopeRequirement, values: &[&str]) -> bool {
    let is_listed = |value: &&str| scope.values.iter().flatten().any(|listed| &**listed == *value);
    match scope.operator {
        Operator::In => values.iter().any(is_listed),
        Operator::NotIn => values.is_empty() || values.iter().any(|value| !is_listed(value)),
        Operator::Exists => !values.is_empty(),
        Operator::DoesNotExist => values.is_empty(),
        Operator::Unknown => false,
    }
}
