//! Objects of manifests for which nothing runs in the sandbox, so that nobody waits for them. Pure.

use std::collections::BTreeMap;

use super::Object;

/// Built-in kinds that are stored, and that a cluster acts on.
const KINDS: [&str; 13] = [
    "APIService",
    "CertificateSigningRequest",
    "FlowSchema",
    "HorizontalPodAutoscaler",
    "Ingress",
    "MutatingAdmissionPolicy",
    "MutatingWebhookConfiguration",
    "NetworkPolicy",
    "PriorityLevelConfiguration",
    "ResourceClaim",
    "RuntimeClass",
    "ValidatingAdmissionPolicy",
    "ValidatingWebhookConfiguration",
];

/// One line for each kind: `Ingress shop/front and 2 more: stored; nothing in the sandbox acts on them`.
pub fn notes(objects: &[Object]) -> Vec<String> {
    let mut kinds: BTreeMap<&str, Vec<&Object>> = BTreeMap::new();
    for object in objects.iter().filter(|object| is_inert(object)) {
        kinds.entry(object.kind()).or_default().push(object);
    }
    let line = |objects: &Vec<&Object>| {
        let (first, more) = objects.split_first()?;
        let (more, it) = match more.len() {
            0 => (String::new(), "it"),
            count => (format!(" and {count} more"), "them"),
        };
        let (why, what) = match first.kind() {
            "Service" => ("no load balancer gives an address to", it),
            _ => ("nothing in the sandbox acts on", it),
        };
        Some(format!("{first}{more}: stored; {why} {what}"))
    };
    kinds.values().filter_map(line).collect()
}

fn is_inert(object: &Object) -> bool {
    let kind = object.kind();
    object.is_of_new_kind
        || KINDS.contains(&kind)
        || (kind == "Service" && object.body["spec"]["type"] == "LoadBalancer")
}

#[cfg(test)]
mod tests {
    use super::super::{parse, served_kinds};
    use super::*;

    const WIDGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
";

    fn objects(text: &str) -> Vec<Object> {
        parse("app.yaml", text, served_kinds()).unwrap().objects
    }

    #[test]
    fn each_kind_that_nothing_acts_on_gets_one_line() {
        let object = |kind: &str, version: &str, name: &str, rest: &str| {
            format!(
                "---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\n{rest}\n"
            )
        };
        let text = [
            object("Ingress", "networking.k8s.io/v1", "front", "spec: {}"),
            object("Ingress", "networking.k8s.io/v1", "back", "spec: {}"),
            object("Service", "v1", "inner", "spec: {type: ClusterIP}"),
            object("Service", "v1", "outer", "spec: {type: LoadBalancer}"),
            object("Deployment", "apps/v1", "web", "spec: {}"),
            object("ConfigMap", "v1", "settings", ""),
            object("Widget", "example.com/v1", "w", ""),
            format!("---{WIDGETS}"),
        ];
        let objects = objects(&text.concat());
        assert_eq!(
            notes(&objects),
            [
                "Ingress shop/front and 1 more: stored; nothing in the sandbox acts on them",
                "Service shop/outer: stored; no load balancer gives an address to it",
                "Widget shop/w: stored; nothing in the sandbox acts on it",
            ]
        );
    }

    #[test]
    fn manifests_of_workloads_that_run_get_no_line() {
        let kinds = [
            "apps/v1 DaemonSet",
            "apps/v1 Deployment",
            "apps/v1 StatefulSet",
            "batch/v1 CronJob",
            "batch/v1 Job",
        ];
        for kind in kinds {
            let (version, kind) = kind.split_once(' ').unwrap();
            let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n");
            assert_eq!(notes(&objects(&text)), Vec::<String>::new());
        }
    }

    #[test]
    fn every_kind_of_the_lists_is_served() {
        let served: Vec<String> = served_kinds().into_iter().map(|served| served.kind.to_owned()).collect();
        let unknown: Vec<_> = KINDS.iter().filter(|kind| !served.iter().any(|one| one == *kind)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
