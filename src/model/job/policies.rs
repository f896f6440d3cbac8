//! `spec.podFailurePolicy` and `spec.successPolicy`.

use std::sync::Arc;

use serde::Deserialize;

use crate::model::indexes::Indexes;
use crate::model::intern::Interner;
use crate::model::wire::Text;

/// A rule of `podFailurePolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRule {
    /// The consequence; `None` for an action of a newer API server: such a rule matches nothing.
    pub action: Option<FailureAction>,
    /// Which failures it matches.
    pub matches: FailureMatch,
}

/// The consequence of a failed pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureAction {
    /// The Job fails.
    FailJob,
    /// The index fails.
    FailIndex,
    /// It does not count towards any limit.
    Ignore,
    /// It counts.
    Count,
}

impl FailureAction {
    /// As it is written in a policy.
    pub fn name(self) -> &'static str {
        match self {
            FailureAction::FailJob => "FailJob",
            FailureAction::FailIndex => "FailIndex",
            FailureAction::Ignore => "Ignore",
            FailureAction::Count => "Count",
        }
    }
}

/// Which failures a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureMatch {
    /// `onExitCodes`: of a container with this name, or any, whose exit code is among the values, or not among them.
    ExitCodes {
        /// `containerName`.
        container: Option<Arc<str>>,
        /// Whether `operator` is `In`; else it is `NotIn`.
        is_in: bool,
        /// `values`.
        values: Box<[i32]>,
    },
    /// `onPodConditions`: types and statuses.
    Conditions(Box<[(Arc<str>, Arc<str>)]>),
}

/// A rule of `successPolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuccessRule {
    /// `succeededIndexes`.
    pub indexes: Option<Indexes>,
    /// `succeededCount`.
    pub count: Option<i32>,
}

impl FailureRule {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.matches {
                FailureMatch::ExitCodes { values, .. } => size_of_val(&**values),
                FailureMatch::Conditions(patterns) => size_of_val(&**patterns),
            }
    }
}

impl SuccessRule {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.indexes.as_ref().map_or(0, Indexes::heap_bytes)
    }
}

#[derive(Deserialize)]
pub(super) struct FailurePolicyWire<'a> {
    #[serde(borrow, default)]
    rules: Option<Vec<FailureRuleWire<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FailureRuleWire<'a> {
    #[serde(borrow, default)]
    action: Text<'a>,
    #[serde(borrow, default)]
    on_exit_codes: Option<ExitCodesWire<'a>>,
    #[serde(borrow, default)]
    on_pod_conditions: Option<Vec<PatternWire<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExitCodesWire<'a> {
    #[serde(borrow, default)]
    container_name: Text<'a>,
    #[serde(borrow, default)]
    operator: Text<'a>,
    #[serde(default)]
    values: Option<Vec<i32>>,
}

#[derive(Deserialize)]
struct PatternWire<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
}

impl FailurePolicyWire<'_> {
    pub(super) fn into_rules(self, interner: &mut Interner) -> Box<[FailureRule]> {
        self.rules.unwrap_or_default().into_iter().map(|rule| rule.into_rule(interner)).collect()
    }
}

impl FailureRuleWire<'_> {
    fn into_rule(self, interner: &mut Interner) -> FailureRule {
        let action = match self.action.as_str() {
            "FailJob" => Some(FailureAction::FailJob),
            "FailIndex" => Some(FailureAction::FailIndex),
            "Ignore" => Some(FailureAction::Ignore),
            "Count" => Some(FailureAction::Count),
            _ => None,
        };
        let Some(codes) = self.on_exit_codes else {
            let mut pattern = |PatternWire { kind, status }: PatternWire<'_>| {
                let status = Some(status.as_str()).filter(|status| !status.is_empty()).unwrap_or("True");
                (interner.string(kind.as_str()), interner.string(status))
            };
            let patterns = self.on_pod_conditions.unwrap_or_default().into_iter();
            return FailureRule {
                action,
                matches: FailureMatch::Conditions(patterns.map(&mut pattern).collect()),
            };
        };
        let name = Some(codes.container_name.as_str()).filter(|name| !name.is_empty());
        // An operator of a newer API server matches nothing.
        let is_known = matches!(codes.operator.as_str(), "In" | "NotIn");
        let matches = FailureMatch::ExitCodes {
            container: name.map(|name| interner.string(name)),
            is_in: codes.operator.as_str() == "In",
            values: codes.values.unwrap_or_default().into(),
        };
        FailureRule { action: action.filter(|_| is_known), matches }
    }
}

#[derive(Deserialize)]
pub(super) struct SuccessPolicyWire<'a> {
    #[serde(borrow, default)]
    rules: Option<Vec<SuccessRuleWire<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SuccessRuleWire<'a> {
    #[serde(borrow, default)]
    succeeded_indexes: Option<Text<'a>>,
    #[serde(default)]
    succeeded_count: Option<i32>,
}

impl SuccessPolicyWire<'_> {
    pub(super) fn into_rules(self) -> Box<[SuccessRule]> {
        let rule = |rule: SuccessRuleWire<'_>| SuccessRule {
            indexes: rule.succeeded_indexes.map(|indexes| Indexes::parse(indexes.as_str())),
            count: rule.succeeded_count,
        };
        self.rules.unwrap_or_default().into_iter().map(rule).collect()
    }
}
