//! Properties of the API semantics that must hold for every input, however strange: no panic, defaults that
//! settle, patches whose directives vanish, text forms that mean what they were parsed from.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::quantity::Quantity;
use super::selector::{FieldSelector, LabelSelector};
use super::{defaults, kinds, strategic, strict, table, validate};

/// Names of fields that the code looks at, so that random objects get past the first gate.
const FIELDS: &str = "metadata spec status template selector matchLabels matchExpressions strategy type \
    updateStrategy taints effect revision rollingUpdate maxSurge maxUnavailable replicas containers initContainers name image ports containerPort \
    env valueFrom fieldRef volumes emptyDir configMap volumeMounts mountPath resources limits requests cpu \
    readinessProbe httpGet port labels annotations ownerReferences uid controller finalizers conditions \
    tolerations key operator values topologySpreadConstraints containerStatuses state terminated waiting \
    restartCount lastState finishedAt deletionTimestamp creationTimestamp data stringData involvedObject \
    series count sessionAffinity schedulingGates activeDeadlineSeconds divisor $patch $retainKeys \
    $setElementOrder/containers $deleteFromPrimitiveList/finalizers";

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        prop::sample::select(vec![
            "In",
            "Exists",
            "RollingUpdate",
            "Recreate",
            "25%",
            "101%",
            "delete",
            "replace",
            "merge",
            "app",
            "nginx:1",
            "1Gi",
            "500m",
            "ClientIP",
            "2026-01-01T00:00:00Z",
            "Always",
            "ä/-",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,12}",
    ]
}

fn values() -> impl Strategy<Value = Value> {
    let fields: Vec<&str> = FIELDS.split_whitespace().collect();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop::sample::select(vec![i64::MIN, -1, 0, 1, 80, 65536, i64::MAX]).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts().prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 64, 6, move |inner| {
        let key =
            prop_oneof![8 => prop::sample::select(fields.clone()).prop_map(str::to_owned), 1 => texts()];
        prop_oneof![
            3 => prop::collection::btree_map(key, inner.clone(), 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::from),
        ]
    })
}

fn kinds() -> impl Strategy<Value = &'static str> {
    // Not all that have a name are known.
    let known = kinds::all().map(|row| row.kind).chain(["Scale", "Unheard"]);
    prop::sample::select(known.collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn no_object_makes_the_semantics_panic(kind in kinds(), new in values(), old in values()) {
        validate::create(kind, &new);
        validate::update(kind, &new, &old);
        validate::update_status(kind, &new, &old);
        let row = table::cells(kind, &new, "2026-01-01T00:00:00Z".parse().unwrap());
        prop_assert_eq!(row.len(), table::columns(kind).as_array().unwrap().len());
        let _ = strict::check_value(&kinds::named(kind).api_version(), kind, new.clone());
        let _ = LabelSelector::from_spec(&new);
        let _ = FieldSelector::parse(kind, "metadata.name=a").unwrap().matches(&new);
    }

    #[test]
    fn defaulting_is_idempotent(kind in kinds(), object in values()) {
        let mut once = object;
        defaults::apply(kind, &mut once);
        let mut twice = once.clone();
        defaults::apply(kind, &mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn an_object_never_changes_by_being_updated_to_itself(kind in kinds(), object in values()) {
        let errors = validate::update(kind, &object, &object);
        prop_assert!(errors.iter().all(|error| !error.detail.contains("immutable")), "{errors:?}");
    }

    #[test]
    fn directives_are_never_stored(kind in kinds(), current in values(), patch in values()) {
        // The object that a patch makes of nothing is a fair object to patch.
        let mut patched = Value::Object(Map::new());
        let _ = strategic::merge(kind, &mut patched, &current);
        prop_assert!(!has_directive(&patched), "{patched}");
        if strategic::merge(kind, &mut patched, &patch).is_ok() {
            prop_assert!(!has_directive(&patched), "{patched}");
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(kind in kinds(), bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = strict::check(&kinds::named(kind).api_version(), kind, &bytes);
    }

    #[test]
    fn label_selectors_mean_what_they_print(text in "[ab=!,<>0-9 ()]{0,20}|\\PC{0,20}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            let printed = selector.to_string();
            prop_assert_eq!(LabelSelector::parse(&printed).unwrap().to_string(), printed);
        }
        let _ = FieldSelector::parse("Pod", &text);
    }

    #[test]
    fn quantities_keep_their_value(text in "[+-]?[0-9]{0,22}[.]?[0-9]{0,12}(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[+-]?[0-9]{1,3})?|\\PC{0,8}") {
        if let Some(quantity) = Quantity::parse(&text) {
            let canonical = quantity.canonical();
            let again = Quantity::parse(&canonical).unwrap();
            prop_assert_eq!(again.canonical(), canonical);
        }
    }
}

/// A random key may start with `$` without being a directive, so only the real ones count.
fn has_directive(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| {
            key == "$patch"
                || key == "$retainKeys"
                || key.starts_with("$setElementOrder/")
                || key.starts_with("$deleteFromPrimitiveList/")
                || has_directive(value)
        }),
        Value::Array(items) => items.iter().any(has_directive),
        _ => false,
    }
}
