//! Reads the tolerations of a pod.

use std::sync::Arc;

use serde::Deserialize;

use crate::model::intern::Interner;
use crate::model::tolerations::Tolerations;
use crate::model::wire::Text;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TolerationWire<'a> {
    #[serde(borrow, default)]
    pub(super) key: Text<'a>,
    #[serde(borrow, default)]
    pub(super) operator: Text<'a>,
    #[serde(borrow, default)]
    pub(super) value: Text<'a>,
    #[serde(borrow, default)]
    pub(super) effect: Text<'a>,
    #[serde(default)]
    pub(super) toleration_seconds: Option<i64>,
}

/// Those of the effect NoExecute or of every effect. `None` without any, which costs no allocation.
pub(super) fn read(wire: Option<&[TolerationWire<'_>]>, interner: &mut Interner) -> Option<Arc<Tolerations>> {
    let all = wire.unwrap_or_default().iter();
    let mut concerned = all.filter(|wire| matches!(wire.effect.as_str(), "" | "NoExecute")).peekable();
    concerned.peek()?;
    let texts = concerned.map(|wire| {
        let TolerationWire { key, operator, value, effect, toleration_seconds } = wire;
        let seconds = toleration_seconds.map(|seconds| seconds.to_string()).unwrap_or_default();
        let [key, operator, value, effect] =
            [key, operator, value, effect].map(|text| text.as_str().to_owned());
        [key, operator, value, effect, seconds]
    });
    Some(interner.tolerations(Tolerations::new(texts)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Pod, Record as _};

    fn pod(name: &str, tolerations: &str, interner: &mut Interner) -> Pod {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"u-{name}","resourceVersion":"7"}},
                "spec":{{"tolerations":{tolerations}}}}}"#
        );
        Pod::decode(&json, interner).unwrap()
    }

    #[test]
    fn tolerations_of_no_execute_are_kept_in_their_order() {
        let all = r#"[{"operator":"Exists","effect":"NoSchedule"},{"key":"a","value":"b","effect":"NoExecute","tolerationSeconds":-3},
            {"operator":"Exists"},{"key":"c","operator":"Exists","tolerationSeconds":9223372036854775807}]"#;
        let pod = pod("a", all, &mut Interner::default());
        let kept: Vec<_> =
            pod.tolerations().map(|t| (t.key, t.operator, t.value, t.effect, t.seconds)).collect();
        let expected = [
            ("a", "", "b", "NoExecute", Some(-3)),
            ("", "Exists", "", "", None),
            ("c", "Exists", "", "", Some(i64::MAX)),
        ];
        assert_eq!(kept, expected);
    }

    #[test]
    fn pods_share_equal_tolerations_and_most_have_none_of_their_own() {
        let mut interner = Interner::default();
        let default = r#"[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]"#;
        let (a, b) = (pod("a", default, &mut interner), pod("b", default, &mut interner));
        assert!(Arc::ptr_eq(a.tolerations.as_ref().unwrap(), b.tolerations.as_ref().unwrap()));
        for none in ["null", "[]", r#"[{"operator":"Exists","effect":"NoSchedule"}]"#] {
            assert!(pod("c", none, &mut interner).tolerations.is_none());
        }
        assert_eq!(size_of::<Option<Arc<Tolerations>>>(), 8);
    }
}
