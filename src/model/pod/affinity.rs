//! The affinity of a pod to other pods, as far as it looks at other namespaces.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// `podAffinity` or `podAntiAffinity`, as far as it looks at other namespaces.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodAffinityWire {
    #[serde(default)]
    pub(super) required_during_scheduling_ignored_during_execution: Option<Vec<PodTermWire>>,
    #[serde(default)]
    pub(super) preferred_during_scheduling_ignored_during_execution: Option<Vec<WeightedTermWire>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodTermWire {
    #[serde(default)]
    pub(super) namespaces: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    pub(super) namespace_selector: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WeightedTermWire {
    #[serde(default)]
    pub(super) pod_affinity_term: Option<PodTermWire>,
}

impl PodTermWire {
    fn crosses_namespaces(&self) -> bool {
        self.namespaces.as_ref().is_some_and(|named| !named.is_empty()) || self.namespace_selector.is_some()
    }
}

impl PodAffinityWire {
    /// Whether one of its terms does.
    pub(super) fn crosses_namespaces(&self) -> bool {
        let required = self.required_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = self.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = preferred.filter_map(|weighted| weighted.pod_affinity_term.as_ref());
        required.chain(preferred).any(PodTermWire::crosses_namespaces)
    }
}
