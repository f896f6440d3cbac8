//! The rules of a ClusterRole that aggregates others.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::ClusterRole;

/// The rules that a role should have; `None` where it has them, or aggregates nothing.
///
/// The rules are those of the roles that each selector matches, in the order of the selectors and then of the names,
/// each once. The role's own rules do not count, even where a selector matches it (upstream: `syncClusterRole`).
pub fn plan(role: &ClusterRole, roles: &[Arc<ClusterRole>]) -> Option<Vec<Arc<str>>> {
    let selectors = role.selectors.as_deref()?;
    // The API server accepts no such selector. An older one may have stored it: its rules are left as they are.
    if selectors.iter().any(|selector| selector.defect().is_some()) {
        return None;
    }
    let mut by_name: Vec<&ClusterRole> =
        roles.iter().map(|role| &**role).filter(|other| other.meta.key != role.meta.key).collect();
    by_name.sort_by(|one, other| one.meta.key.cmp(&other.meta.key));
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut rules: Vec<Arc<str>> = Vec::new();
    for selector in selectors {
        for other in by_name.iter().filter(|other| selector.matches(&other.meta.labels)) {
            rules.extend(other.rules.iter().filter(|rule| seen.insert(rule)).cloned());
        }
    }
    (*rules != *role.rules).then_some(rules)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Interner, Record};

    fn rule(verb: &str) -> Value {
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": [verb]})
    }

    fn role(name: &str, label: &str, verbs: &[&str], selected: &[&str]) -> Arc<ClusterRole> {
        let rules: Vec<Value> = verbs.iter().map(|verb| rule(verb)).collect();
        let mut role = json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {"to": label}},
                              "rules": rules});
        if !selected.is_empty() {
            let selectors: Vec<Value> =
                selected.iter().map(|label| json!({"matchLabels": {"to": label}})).collect();
            role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        }
        Arc::new(ClusterRole::decode(&role.to_string(), &mut Interner::default()).unwrap())
    }

    /// The verbs of the planned rules.
    fn planned(role: &ClusterRole, roles: &[Arc<ClusterRole>]) -> Option<Vec<String>> {
        let verb = |rule: &Arc<str>| {
            let rule: Value = serde_json::from_str(rule).unwrap();
            rule["verbs"][0].as_str().unwrap().to_owned()
        };
        plan(role, roles).map(|rules| rules.iter().map(verb).collect())
    }

    #[test]
    fn the_rules_are_those_of_the_selected_roles_by_selector_and_by_name() {
        let view = role("view", "edit", &[], &["view", "more"]);
        let roles = [
            view.clone(),
            role("z", "view", &["z"], &[]),
            role("b", "more", &["b"], &[]),
            role("a", "view", &["a1", "a2"], &[]),
            role("other", "nothing", &["other"], &[]),
        ];
        assert_eq!(planned(&view, &roles).unwrap(), ["a1", "a2", "z", "b"]);
    }

    #[test]
    fn a_rule_counts_once_and_those_of_the_role_itself_do_not() {
        let own = role("edit", "edit", &["mine"], &["edit", "edit"]);
        let roles =
            [own.clone(), role("a", "edit", &["get", "list"], &[]), role("b", "edit", &["list"], &[])];
        assert_eq!(planned(&own, &roles).unwrap(), ["get", "list"]);
    }

    #[test]
    fn a_role_that_is_right_and_one_that_aggregates_nothing_need_no_write() {
        let part = role("part", "view", &["get"], &[]);
        assert_eq!(planned(&role("view", "", &["get"], &["view"]), std::slice::from_ref(&part)), None);
        assert_eq!(planned(&part, &[]), None);
        // The last selected role is gone.
        assert_eq!(planned(&role("view", "", &["get"], &["view"]), &[]), Some(Vec::new()));
    }

    #[test]
    fn an_empty_selector_selects_all_others_and_a_defective_one_changes_nothing() {
        let with = |selector: Value| {
            let role = json!({"metadata": {"name": "all", "uid": "u", "resourceVersion": "1"},
                              "rules": [rule("kept")], "aggregationRule": {"clusterRoleSelectors": [selector]}});
            ClusterRole::decode(&role.to_string(), &mut Interner::default()).unwrap()
        };
        let others = [role("a", "x", &["a"], &[]), role("b", "", &["b"], &[])];
        assert_eq!(planned(&with(json!({})), &others).unwrap(), ["a", "b"]);
        let defective = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
        assert_eq!(planned(&with(defective), &others), None);
    }
}
