//! Warnings of writers that may undo an undo: a file that is applied again, a GitOps controller, an autoscaler. Pure.

use serde_json::Value;

use crate::revisions::LAST_APPLIED;
use crate::target::Kind;
use crate::text::harmless;

/// Field managers of GitOps controllers, as the beginning of their names, with the product.
const GITOPS: [(&str, &str); 4] =
    [("argocd", "Argo CD"), ("flux", "Flux"), ("kustomize-controller", "Flux"), ("helm-controller", "Flux")];

/// Warnings to the user before an object of this kind is rolled back.
pub fn of(kind: Kind, object: &Value, autoscalers: &[Value]) -> Vec<String> {
    let applied = object["metadata"]["annotations"][LAST_APPLIED].is_string().then(|| {
        "it was applied from a file: the next `kubectl apply` of that file brings this change back".to_owned()
    });
    let owned = gitops(object).map(|(manager, product)| {
        format!("{manager} ({product}) owns its template and may bring this change back: revert it at its source, too")
    });
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let scaled = autoscalers.iter().find(|autoscaler| aims_at(autoscaler, kind, name)).map(|autoscaler| {
        format!(
            "the HorizontalPodAutoscaler {} scales it, from {} to {} replicas: an undo brings no number of replicas back",
            harmless(autoscaler["metadata"]["name"].as_str().unwrap_or_default()),
            autoscaler["spec"]["minReplicas"].as_i64().unwrap_or(1),
            autoscaler["spec"]["maxReplicas"].as_i64().unwrap_or(0),
        )
    });
    applied.into_iter().chain(owned).chain(scaled).collect()
}

/// The GitOps controller that owns a field of the template.
fn gitops(object: &Value) -> Option<(String, &'static str)> {
    let entries = object["metadata"]["managedFields"].as_array();
    let owners = entries.into_iter().flatten().filter(|entry| {
        entry["fieldsV1"]["f:spec"]["f:template"].is_object() && !entry["subresource"].is_string()
    });
    let managers = owners.filter_map(|entry| entry["manager"].as_str());
    managers.into_iter().find_map(|manager| {
        let (_, product) = GITOPS.iter().find(|(start, _)| manager.starts_with(start))?;
        Some((harmless(manager), *product))
    })
}

fn aims_at(autoscaler: &Value, kind: Kind, name: &str) -> bool {
    let target = &autoscaler["spec"]["scaleTargetRef"];
    target["kind"] == kind.title() && target["name"] == name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owned(manager: &str, field: &str) -> Value {
        let fields = json!({"f:spec": {field: {"f:spec": {}}}});
        json!({"metadata": {"name": "web", "managedFields": [{"manager": manager, "fieldsV1": fields}]}})
    }

    #[test]
    fn a_gitops_controller_is_named_if_it_owns_the_template() {
        let said = |manager: &str, field: &str| of(Kind::Deployment, &owned(manager, field), &[]).join("\n");
        assert!(said("argocd-controller", "f:template").starts_with("argocd-controller (Argo CD) owns"));
        assert!(said("kustomize-controller", "f:template").contains("(Flux)"));
        assert_eq!(said("argocd-controller", "f:replicas"), "");
        assert_eq!(said("kubectl-client-side-apply", "f:template"), "");
        assert!(of(Kind::Deployment, &json!({"metadata": {"managedFields": 1}}), &[]).is_empty());
    }

    #[test]
    fn an_autoscaler_of_another_object_is_no_warning() {
        let autoscaler = |kind: &str, name: &str| {
            json!({"metadata": {"name": "hpa"},
                   "spec": {"scaleTargetRef": {"kind": kind, "name": name}, "minReplicas": 2, "maxReplicas": 9}})
        };
        let web = json!({"metadata": {"name": "web"}});
        let said =
            of(Kind::Deployment, &web, &[autoscaler("Deployment", "api"), autoscaler("Deployment", "web")]);
        assert!(said[0].contains("hpa scales it, from 2 to 9 replicas"), "{said:?}");
        assert!(of(Kind::Deployment, &web, &[autoscaler("StatefulSet", "web")]).is_empty());
        assert_eq!(of(Kind::StatefulSet, &web, &[autoscaler("StatefulSet", "web")]).len(), 1);
    }
}
