//! The node that a DaemonSet pod is for, as its required node affinity names it.

use serde::Deserialize;

use super::affinity::PodAffinityWire;
use crate::model::wire::Text;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AffinityWire<'a> {
    #[serde(borrow, default)]
    pub(super) node_affinity: Option<NodeAffinityWire<'a>>,
    #[serde(default)]
    pub(super) pod_affinity: Option<PodAffinityWire>,
    #[serde(default)]
    pub(super) pod_anti_affinity: Option<PodAffinityWire>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeAffinityWire<'a> {
    #[serde(borrow, default)]
    pub(super) required_during_scheduling_ignored_during_execution: Option<NodeSelectorWire<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeSelectorWire<'a> {
    #[serde(borrow, default)]
    pub(super) node_selector_terms: Option<Vec<TermWire<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TermWire<'a> {
    #[serde(borrow, default)]
    pub(super) match_fields: Option<Vec<FieldWire<'a>>>,
}

#[derive(Default, Deserialize)]
pub(super) struct FieldWire<'a> {
    #[serde(borrow, default)]
    pub(super) key: Text<'a>,
    #[serde(borrow, default)]
    pub(super) operator: Text<'a>,
    #[serde(borrow, default)]
    pub(super) values: Option<Vec<Text<'a>>>,
}

impl AffinityWire<'_> {
    /// The only node that the pod may be bound to: the first `metadata.name In [x]` of any required term, if it names
    /// one node exactly (upstream: `GetTargetNodeName`).
    pub(super) fn target(&self) -> Option<&str> {
        let affinity = self.node_affinity.as_ref()?;
        let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        let terms = required.node_selector_terms.iter().flatten();
        let mut fields = terms.flat_map(|term| term.match_fields.iter().flatten());
        let field = fields.find(|f| f.key.as_str() == "metadata.name" && f.operator.as_str() == "In")?;
        match field.values.as_deref() {
            Some([node]) if !node.as_str().is_empty() => Some(node.as_str()),
            _ => None,
        }
    }
}
