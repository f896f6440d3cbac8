//! The warnings that a request gets although it is carried out (upstream `pkg/api/*/warnings.go` and the `Warnings…` of the
//! registry strategies): of what is deprecated, has no effect, or does something else than it seems.

pub(crate) mod definitions;
pub(crate) mod objects;
pub(crate) mod pod;
pub(crate) mod service;
mod tls;
mod virtual_paths;

use std::fmt::Display;
use std::net::Ipv6Addr;

use serde_json::Value;

use crate::quantity::Quantity;
use crate::validate::names;

/// Collects warnings.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Vec<String>);

/// Labels of nodes that are not to be used any more.
const NODE_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

impl Warnings {
    /// Each text once.
    pub(crate) fn into_vec(self) -> Vec<String> {
        self.0
    }

    fn add(&mut self, warning: String) {
        if !self.0.contains(&warning) {
            self.0.push(warning);
        }
    }

    fn of(&mut self, path: &str, why: impl Display) {
        self.add(format!("{path}: {why}"));
    }

    /// Of an address that is valid but could be written shorter.
    fn address(&mut self, path: &str, address: &Value) {
        let Some(written) = address.as_str() else { return };
        if let Ok(parsed) = written.parse::<Ipv6Addr>()
            && parsed.to_string() != written
        {
            let why = format!(
                "IPv6 address {written:?} should be in RFC 5952 canonical format ({:?})",
                parsed.to_string()
            );
            self.of(path, why);
        }
    }

    /// Of bytes that cannot be had.
    fn fraction(&mut self, path: &str, amount: &Value) {
        if let Some(amount) = Quantity::of(amount).filter(|amount| !amount.is_integer()) {
            let amount = amount.canonical();
            self.of(path, format!("fractional byte value {amount:?} is invalid, must be an integer"));
        }
    }

    /// Of a node's label, where the path does not name it.
    fn node_label(&mut self, path: &str, label: &str) {
        if let Some(why) = deprecated_label(label) {
            self.of(path, format!("{label} is {why}"));
        }
    }

    /// Of the name of what names pods.
    fn pod_name(&mut self, object: &Value, what: &str) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let errors = names::dns1123_label(name);
        if !errors.is_empty() {
            self.of(
                "metadata.name",
                format!(
                    "this is used in {what}, which can result in surprising behavior; a DNS label is recommended: [{}]",
                    errors.join(" ")
                ),
            );
        }
    }
}

fn deprecated_label(label: &str) -> Option<&'static str> {
    NODE_LABELS.iter().find(|(deprecated, _)| *deprecated == label).map(|(_, why)| *why)
}

/// The elements of a list with their paths.
fn each<'a>(object: &'a Value, field: &str, path: &str) -> impl Iterator<Item = (String, &'a Value)> {
    let path = join(path, field);
    let items = object[field].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().enumerate().map(move |(index, item)| (format!("{path}[{index}]"), item))
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}
