//! Tolerations: the template's, and those that every DaemonSet pod gets so that it survives the problems of its node.

use serde::{Deserialize, Serialize};

use crate::model::tolerations as on_pod;
use crate::model::{Effect, Taint};
use crate::plan::tolerations;

/// An entry of `tolerations`, as far as placement and replacement depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Toleration {
    /// Empty for any key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Empty for `Equal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// Empty for any effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effect: Option<String>,
}

/// The automatic tolerations in upstream's order (`AddOrUpdateDaemonPodTolerations`). `not-ready` and `unreachable`
/// with effect NoSchedule, which a dead node has as well, are not among them.
const AUTOMATIC: [(&str, Effect); 6] = [
    ("node.kubernetes.io/not-ready", Effect::NoExecute),
    ("node.kubernetes.io/unreachable", Effect::NoExecute),
    ("node.kubernetes.io/disk-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/memory-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/pid-pressure", Effect::NoSchedule),
    ("node.kubernetes.io/unschedulable", Effect::NoSchedule),
];

/// For pods that use the network of their node.
const HOST_NETWORK: (&str, Effect) = ("node.kubernetes.io/network-unavailable", Effect::NoSchedule);

/// The tolerations that every DaemonSet pod gets, without a value or an end.
pub fn automatic(host_network: bool) -> impl Iterator<Item = Toleration> {
    let host_network = host_network.then_some(HOST_NETWORK);
    AUTOMATIC.into_iter().chain(host_network).map(|(key, effect)| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        value: None,
        effect: Some(effect.as_str().to_owned()),
    })
}

fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}

impl Toleration {
    /// Whether a pod with this toleration may be where the taint is.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let Toleration { key, operator, value, effect } = self;
        let [key, operator, value, effect] = [key, operator, value, effect].map(text);
        let toleration = on_pod::Toleration { key, operator, value, effect, seconds: None };
        tolerations::tolerates(toleration, taint)
    }

    /// Whether the two tolerate the same, so that one replaces the other (upstream: `MatchToleration`).
    pub fn is_like(&self, other: &Toleration) -> bool {
        let identity =
            |t: &Toleration| [&t.key, &t.effect, &t.operator, &t.value].map(|field| text(field).to_owned());
        identity(self) == identity(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(toleration: &str, key: &str, value: &str, effect: Effect, tolerated: bool) {
        let taint = Taint { key: key.into(), value: value.into(), effect, time_added: None };
        let toleration: Toleration = serde_json::from_str(toleration).unwrap();
        assert_eq!(toleration.tolerates(&taint), tolerated, "{toleration:?} of {taint:?}");
    }

    #[test]
    fn an_empty_effect_an_empty_key_and_an_empty_operator_mean_any_any_and_equal() {
        check(r#"{"operator":"Exists"}"#, "a", "b", Effect::NoExecute, true);
        check(r#"{"key":"a","value":"b"}"#, "a", "b", Effect::NoSchedule, true);
        check(r#"{"key":"a","value":"c"}"#, "a", "b", Effect::NoSchedule, false);
        check(r#"{"key":"a","operator":"Exists","effect":"NoExecute"}"#, "a", "b", Effect::NoSchedule, false);
        check(r#"{"key":"b","operator":"Exists"}"#, "a", "b", Effect::NoSchedule, false);
        check(r#"{"key":"a","operator":"Equal","effect":null}"#, "a", "", Effect::NoSchedule, true);
    }

    #[test]
    fn comparisons_of_numbers_tolerate_nothing() {
        check(r#"{"key":"a","operator":"Gt","value":"1"}"#, "a", "2", Effect::NoSchedule, false);
        check(r#"{"key":"a","operator":"Lt","value":"3"}"#, "a", "2", Effect::NoSchedule, false);
    }

    #[test]
    fn a_limit_in_time_makes_no_other_toleration_and_another_value_does() {
        let limited = r#"{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}"#;
        let limited: Toleration = serde_json::from_str(limited).unwrap();
        assert_eq!(automatic(false).position(|t| t.is_like(&limited)), Some(0));
        let other = Toleration { operator: Some("Equal".into()), ..limited };
        assert!(!automatic(true).any(|t| t.is_like(&other)));
    }
}
