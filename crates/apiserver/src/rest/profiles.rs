//! The AppArmor profiles that the annotations of a new pod name (`applyAppArmorVersionSkew` upstream).

use serde_json::Value;

use crate::object::{as_map, map_mut};
use crate::validate::app_armor::{ANNOTATION, profile};

/// Sets the field of each container that an annotation names, unless it is set or the pod's is the same.
pub(super) fn from_annotations(pod: &mut Value) {
    let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    let named = annotations.filter_map(|(key, value)| {
        Some((key.strip_prefix(ANNOTATION)?.to_owned(), profile(value.as_str()?)?))
    });
    let named: Vec<(String, Value)> = named.collect();
    if named.is_empty() || pod.pointer("/spec/os/name").is_some_and(|os| os == "windows") {
        return;
    }
    let of_pod = pod.pointer("/spec/securityContext/appArmorProfile").cloned();
    let spec = map_mut(pod, "spec");
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let profile = named.iter().find(|(name, _)| container.get("name").is_some_and(|own| own == name));
            let Some((_, profile)) = profile.filter(|(_, profile)| Some(profile) != of_pod.as_ref()) else {
                continue;
            };
            let context = as_map(container.entry("securityContext").or_insert(Value::Null));
            context.entry("appArmorProfile").or_insert_with(|| profile.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_gets_the_profile_that_its_annotation_names() {
        let of = |container: &str| format!("{ANNOTATION}{container}");
        let annotations = json!({
            of("a"): "localhost/foo", of("b"): "runtime/default", of("c"): "unconfined", of("d"): "bogus",
        });
        let own = json!({"appArmorProfile": {"type": "Unconfined"}});
        let mut pod = json!({"metadata": {"annotations": annotations}, "spec": {
            "securityContext": {"appArmorProfile": {"type": "Unconfined"}},
            "containers": [{"name": "a"}, {"name": "b", "securityContext": own}, {"name": "c"}, {"name": "d"}],
        }});
        from_annotations(&mut pod);
        let local = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "foo"}});
        let expected = json!([
            {"name": "a", "securityContext": local}, {"name": "b", "securityContext": own},
            {"name": "c"}, {"name": "d"},
        ]);
        assert_eq!(pod["spec"]["containers"], expected);
    }
}
