//! A ClusterRole: its rules, and the roles that it aggregates.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::intern::Interner;
use super::meta::Meta;
use super::record::{self, Record, Resource};
use super::selector::{Selector, SelectorWire};
use super::wire::MetaWire;

/// The fields of a ClusterRole that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRole {
    /// Metadata.
    pub meta: Meta,
    /// The rules, each as JSON in one form: rules that mean the same are equal, and fields that are newer than any type of
    /// ours are kept.
    pub rules: Box<[Arc<str>]>,
    /// `aggregationRule.clusterRoleSelectors`; `None` for a role that aggregates no others.
    pub selectors: Option<Box<[Selector]>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RoleWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(default)]
    rules: Option<Vec<Value>>,
    #[serde(borrow, default)]
    aggregation_rule: Option<AggregationWire<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregationWire<'a> {
    #[serde(borrow, default)]
    cluster_role_selectors: Option<Vec<SelectorWire<'a>>>,
}

/// The one form of a rule: the keys in order, and no field that is null or an empty list, which mean the same as an
/// absent one.
fn in_one_form(mut rule: Value) -> String {
    if let Value::Object(fields) = &mut rule {
        fields.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
        fields.sort_keys();
    }
    rule.to_string()
}

impl Record for ClusterRole {
    const RESOURCE: Resource = Resource {
        group: "rbac.authorization.k8s.io",
        version: "v1",
        kind: "ClusterRole",
        plural: "clusterroles",
    };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let RoleWire { metadata, rules, aggregation_rule } = serde_json::from_str(json)?;
        let rules = rules.unwrap_or_default().into_iter().map(|rule| interner.string(&in_one_form(rule)));
        let selectors = |rule: AggregationWire<'_>| {
            let selectors = rule.cluster_role_selectors.unwrap_or_default();
            selectors.into_iter().map(|selector| Selector::compile(Some(selector))).collect()
        };
        Ok(ClusterRole {
            rules: rules.collect(),
            selectors: aggregation_rule.map(selectors),
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        let selectors = self.selectors.as_deref().map_or(0, |selectors| {
            size_of_val(selectors) + selectors.iter().map(|selector| selector.heap_bytes()).sum::<usize>()
        });
        let rules: usize = self.rules.iter().map(|rule| rule.len() + 2 * size_of::<usize>()).sum();
        record::own_bytes(self) + size_of_val(&*self.rules) + rules + selectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(fields: &str) -> ClusterRole {
        let json = format!(r#"{{"metadata":{{"name":"view","uid":"u","resourceVersion":"1"}},{fields}}}"#);
        ClusterRole::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn rules_that_mean_the_same_are_equal_and_new_fields_are_kept() {
        let rules = role(
            r#""rules":[
            {"verbs":["get"],"apiGroups":[""],"resources":["pods"],"later":{"b":1,"a":2}},
            {"apiGroups":[""],"later":{"b":1,"a":2},"resources":["pods"],"verbs":["get"],"resourceNames":[],
             "nonResourceURLs":null},
            {"apiGroups":[""],"resources":["pods"],"verbs":["list"]}]"#,
        )
        .rules;
        assert_eq!(rules[0], rules[1]);
        assert_ne!(rules[0], rules[2]);
        assert!(rules[0].contains(r#""later":{"#), "{}", rules[0]);
    }

    #[test]
    fn a_role_without_an_aggregation_rule_aggregates_nothing() {
        assert_eq!(role(r#""rules":null"#).selectors, None);
        assert_eq!(role(r#""aggregationRule":null"#).selectors, None);
        let selectors = role(r#""aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}},{}]}"#);
        assert_eq!(selectors.selectors.unwrap().len(), 2);
    }
}
