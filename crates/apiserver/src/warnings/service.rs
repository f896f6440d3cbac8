//! Warnings of Services.

use serde_json::Value;

use super::{Warnings, each, text};

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";

pub(crate) fn service(new: &Value, _old: Option<&Value>, warnings: &mut Warnings) {
    let spec = &new["spec"];
    if new["metadata"]["annotations"][HINTS].is_string() {
        let other = "service.kubernetes.io/topology-mode";
        warnings.add(format!("annotation {HINTS} is deprecated, please use {other} instead"));
    }
    let kind = text(spec, "type");
    let is_headless = kind == "ClusterIP" && spec["clusterIP"] == "None";
    let has_external = each(spec, "externalIPs", "spec").next().is_some();
    for (path, address) in each(spec, "clusterIPs", "spec") {
        warnings.address(&path, address);
    }
    if is_headless {
        let ignored = [
            ("loadBalancerIP", !text(spec, "loadBalancerIP").is_empty()),
            ("externalIPs", has_external),
            ("SessionAffinity", spec["sessionAffinity"] != "None"),
        ];
        for (field, _) in ignored.iter().filter(|(_, is_set)| *is_set) {
            warnings.add(format!("spec.{field} is ignored for headless services"));
        }
    }
    for (path, address) in each(spec, "externalIPs", "spec") {
        warnings.address(&path, address);
    }
    if has_external && !is_headless && kind != "ExternalName" {
        let why = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        warnings.add(why.to_owned());
    }
    warnings.address("spec.loadBalancerIP", &spec["loadBalancerIP"]);
    if kind == "ExternalName" && has_external {
        warnings.add("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !text(spec, "externalName").is_empty() {
        warnings.add("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        warnings.of("spec.trafficDistribution", "\"PreferClose\" is deprecated; use \"PreferSameZone\"");
    }
}
