//! The rows of networks, storage, rights and other kinds of the cluster.

use serde_json::Value;

use super::row::{Row, duration, items};

/// How many of a list are shown.
const SHOWN: usize = 3;

/// The first three of a list, and how many more there are.
fn first(list: &[String]) -> String {
    match list.len() {
        0 => "<unset>".to_owned(),
        number if number <= SHOWN => list.join(","),
        number => format!("{} + {} more...", list[..SHOWN].join(","), number - SHOWN),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn ingress(row: &Row<'_>) -> Vec<Value> {
    let rules = row.size("/spec/rules");
    let named = items(row.at("/spec/rules")).map(|rule| text(&rule["host"])).filter(|host| !host.is_empty());
    let hosts: Vec<&str> = named.collect();
    let hosts = match hosts.len() {
        0 => "*".to_owned(),
        number if number <= SHOWN => hosts.join(","),
        _ => format!("{} + {} more...", hosts[..SHOWN].join(","), rules - SHOWN),
    };
    let mut addresses: Vec<&str> = items(row.at("/status/loadBalancer/ingress"))
        .map(|entry| match text(&entry["ip"]) {
            "" => text(&entry["hostname"]),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let ports = if row.size("/spec/tls") > 0 { "80, 443" } else { "80" };
    vec![
        row.name(),
        row.text_or("/spec/ingressClassName", "<none>"),
        hosts.into(),
        addresses.join(",").into(),
        ports.into(),
        row.age(),
    ]
}

/// The name of a class, and whether it is the default.
fn class_name(row: &Row<'_>, annotation: &str) -> Value {
    let name = text(row.at("/metadata/name"));
    let annotations = row.at("/metadata/annotations");
    let beta = annotation.replace("storageclass.", "storageclass.beta.");
    match annotations[annotation] == "true" || (beta != annotation && annotations[beta] == "true") {
        true => format!("{name} (default)").into(),
        false => name.into(),
    }
}

pub(crate) fn ingress_class(row: &Row<'_>) -> Vec<Value> {
    let parameters = row.at("/spec/parameters");
    let shown = match parameters.as_object() {
        None => "<none>".to_owned(),
        Some(_) => {
            let group = parameters["apiGroup"].as_str().map_or(String::new(), |group| format!(".{group}"));
            format!("{}{group}/{}", text(&parameters["kind"]), text(&parameters["name"]))
        }
    };
    let name = class_name(row, "ingressclass.kubernetes.io/is-default-class");
    vec![name, row.text("/spec/controller"), shown.into(), row.age()]
}

pub(crate) fn endpoints(row: &Row<'_>) -> Vec<Value> {
    let mut list = Vec::new();
    for subset in items(row.at("/subsets")) {
        let addresses: Vec<&str> = items(&subset["addresses"]).map(|address| text(&address["ip"])).collect();
        let ports: Vec<i64> = items(&subset["ports"]).filter_map(|port| port["port"].as_i64()).collect();
        if ports.is_empty() {
            list.extend(addresses.iter().map(|address| (*address).to_owned()));
        }
        for port in ports {
            list.extend(addresses.iter().map(|address| match address.contains(':') {
                true => format!("[{address}]:{port}"),
                false => format!("{address}:{port}"),
            }));
        }
    }
    let shown = match row.size("/subsets") {
        0 => "<none>".to_owned(),
        _ if list.is_empty() => String::new(),
        _ => first(&list),
    };
    vec![row.name(), shown.into(), row.age()]
}

pub(crate) fn endpoint_slice(row: &Row<'_>) -> Vec<Value> {
    let ports: Vec<String> = items(row.at("/ports"))
        .map(|port| match (port["port"].as_i64(), port["name"].as_str()) {
            (Some(number), _) => number.to_string(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "*".to_owned(),
        })
        .collect();
    let addresses: Vec<String> = items(row.at("/endpoints"))
        .flat_map(|endpoint| items(&endpoint["addresses"]))
        .map(|address| text(address).to_owned())
        .collect();
    vec![row.name(), row.text("/addressType"), first(&ports).into(), first(&addresses).into(), row.age()]
}

/// `RWO,ROX`, each once and in this order.
fn access_modes(row: &Row<'_>, pointer: &str) -> Value {
    let modes: Vec<&str> = items(row.at(pointer)).map(text).collect();
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown = short.into_iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| short);
    shown.collect::<Vec<_>>().join(",").into()
}

/// The phase of a volume or a claim, or that it is being deleted.
fn storage_phase(row: &Row<'_>) -> Value {
    match row.at("/metadata/deletionTimestamp").is_null() {
        true => row.text("/status/phase"),
        false => "Terminating".into(),
    }
}

/// The annotation is older than the field, and wins.
fn class_of(row: &Row<'_>) -> Value {
    match row.text("/metadata/annotations/volume.beta.kubernetes.io~1storage-class") {
        class if class != "" => class,
        _ => row.text("/spec/storageClassName"),
    }
}

pub(crate) const VOLUME: &[&str] = &[
    "Name",
    "Capacity",
    "Access Modes",
    "Reclaim Policy",
    "Status",
    "Claim",
    "StorageClass",
    "VolumeAttributesClass",
    "Reason",
    "Age",
    "*VolumeMode",
];

pub(crate) fn volume(row: &Row<'_>) -> Vec<Value> {
    let claim = row.at("/spec/claimRef");
    let claim = match claim.as_object() {
        Some(_) => format!("{}/{}", text(&claim["namespace"]), text(&claim["name"])),
        None => String::new(),
    };
    vec![
        row.name(),
        row.text_or("/spec/capacity/storage", "0"),
        access_modes(row, "/spec/accessModes"),
        row.text("/spec/persistentVolumeReclaimPolicy"),
        storage_phase(row),
        claim.into(),
        class_of(row),
        row.text_or("/spec/volumeAttributesClassName", "<unset>"),
        row.text("/status/reason"),
        row.age(),
        row.text_or("/spec/volumeMode", "<unset>"),
    ]
}

pub(crate) const CLAIM: &[&str] = &[
    "Name",
    "Status",
    "Volume",
    "Capacity",
    "Access Modes",
    "StorageClass",
    "VolumeAttributesClass",
    "Age",
    "*VolumeMode",
];

pub(crate) fn claim(row: &Row<'_>) -> Vec<Value> {
    let is_bound = !text(row.at("/spec/volumeName")).is_empty();
    let (capacity, modes) = match is_bound {
        true => (row.text_or("/status/capacity/storage", "0"), access_modes(row, "/status/accessModes")),
        false => ("".into(), "".into()),
    };
    vec![
        row.name(),
        storage_phase(row),
        row.text("/spec/volumeName"),
        capacity,
        modes,
        class_of(row),
        row.text_or("/spec/volumeAttributesClassName", "<unset>"),
        row.age(),
        row.text_or("/spec/volumeMode", "<unset>"),
    ]
}

pub(crate) fn storage_class(row: &Row<'_>) -> Vec<Value> {
    vec![
        class_name(row, "storageclass.kubernetes.io/is-default-class"),
        row.text("/provisioner"),
        row.text_or("/reclaimPolicy", "Delete"),
        row.text_or("/volumeBindingMode", "Immediate"),
        row.flag("/allowVolumeExpansion"),
        row.age(),
    ]
}

pub(crate) const CSI_DRIVER: &[&str] = &[
    "Name",
    "?AttachRequired",
    "?PodInfoOnMount",
    "?StorageCapacity",
    "TokenRequests",
    "?RequiresRepublish",
    "Modes",
    "Age",
];

pub(crate) fn csi_driver(row: &Row<'_>) -> Vec<Value> {
    let audiences: Vec<&str> =
        items(row.at("/spec/tokenRequests")).map(|request| text(&request["audience"])).collect();
    let tokens =
        if row.at("/spec/tokenRequests").is_null() { "<unset>".to_owned() } else { audiences.join(",") };
    let modes: Vec<&str> = items(row.at("/spec/volumeLifecycleModes")).map(text).collect();
    vec![
        row.name(),
        row.at("/spec/attachRequired").as_bool().unwrap_or(true).into(),
        row.flag("/spec/podInfoOnMount"),
        row.flag("/spec/storageCapacity"),
        tokens.into(),
        row.flag("/spec/requiresRepublish"),
        if modes.is_empty() { "<none>".into() } else { modes.join(",").into() },
        row.age(),
    ]
}

pub(crate) const BINDING: &[&str] = &["Name", "Role", "Age", "*Users", "*Groups", "*ServiceAccounts"];

pub(crate) fn binding(row: &Row<'_>) -> Vec<Value> {
    let role = row.at("/roleRef");
    let subjects = |kind: &str| -> Value {
        let found = items(row.at("/subjects")).filter(|subject| subject["kind"] == kind);
        let names = found.map(|subject| match (kind, text(&subject["namespace"])) {
            ("ServiceAccount", namespace) => {
                format!("{namespace}/{}", text(&subject["name"]))
            }
            _ => text(&subject["name"]).to_owned(),
        });
        names.collect::<Vec<_>>().join(", ").into()
    };
    vec![
        row.name(),
        format!("{}/{}", text(&role["kind"]), text(&role["name"])).into(),
        row.age(),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

pub(crate) fn certificate_request(row: &Row<'_>) -> Vec<Value> {
    let has = |kind: &str| items(row.at("/status/conditions")).any(|condition| condition["type"] == kind);
    let mut status = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !text(row.at("/status/certificate")).is_empty() {
        status.push_str(",Issued");
    }
    let asked = row.at("/spec/expirationSeconds").as_i64();
    let asked =
        asked.map_or("<none>".to_owned(), |seconds| duration(jiff::SignedDuration::from_secs(seconds)));
    vec![
        row.name(),
        row.age(),
        row.text_or("/spec/signerName", "<none>"),
        row.text("/spec/username"),
        asked.into(),
        status.into(),
    ]
}

pub(crate) fn flow_schema(row: &Row<'_>) -> Vec<Value> {
    let dangling = items(row.at("/status/conditions")).find(|condition| condition["type"] == "Dangling");
    vec![
        row.name(),
        row.text("/spec/priorityLevelConfiguration/name"),
        row.number("/spec/matchingPrecedence"),
        row.text_or("/spec/distinguisherMethod/type", "<none>"),
        row.age(),
        dangling.map_or("?", |condition| text(&condition["status"])).into(),
    ]
}

pub(crate) const PRIORITY_LEVEL: &[&str] =
    &["Name", "Type", "NominalConcurrencyShares", "Queues", "HandSize", "QueueLengthLimit", "Age"];

pub(crate) fn priority_level(row: &Row<'_>) -> Vec<Value> {
    let number = |pointer: &str| -> Value { row.at(pointer).as_i64().map_or("<none>".into(), Value::from) };
    let queuing = "/spec/limited/limitResponse/queuing";
    vec![
        row.name(),
        row.text("/spec/type"),
        number("/spec/limited/nominalConcurrencyShares"),
        number(&format!("{queuing}/queues")),
        number(&format!("{queuing}/handSize")),
        number(&format!("{queuing}/queueLengthLimit")),
        row.age(),
    ]
}

/// The kind of the parameters of an admission policy.
pub(crate) fn parameters(row: &Row<'_>) -> Value {
    let kind = row.at("/spec/paramKind");
    match kind.as_object() {
        Some(_) => format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"])).into(),
        None => "<unset>".into(),
    }
}

pub(crate) const ADMISSION_BINDING: &[&str] = &["Name", "PolicyName", "ParamRef", "Age"];

pub(crate) fn admission_binding(row: &Row<'_>) -> Vec<Value> {
    let reference = row.at("/spec/paramRef");
    let shown = match (text(&reference["namespace"]), text(&reference["name"])) {
        (_, "") => "<unset>".to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![row.name(), row.text("/spec/policyName"), shown.into(), row.age()]
}

pub(crate) fn ip_address(row: &Row<'_>) -> Vec<Value> {
    let parent = row.at("/spec/parentRef");
    let mut shown = text(&parent["resource"]).to_lowercase();
    if !text(&parent["group"]).is_empty() {
        shown.push_str(&format!(".{}", text(&parent["group"]).to_lowercase()));
    }
    for part in ["namespace", "name"].into_iter().filter(|part| !text(&parent[*part]).is_empty()) {
        shown.push_str(&format!("/{}", text(&parent[part])));
    }
    vec![row.name(), if parent.is_null() { "<none>".into() } else { shown.into() }, row.age()]
}

pub(crate) fn api_service(row: &Row<'_>) -> Vec<Value> {
    let service = row.at("/spec/service");
    let service = match service.as_object() {
        Some(_) => format!("{}/{}", text(&service["namespace"]), text(&service["name"])),
        None => "Local".to_owned(),
    };
    let found = items(row.at("/status/conditions")).find(|condition| condition["type"] == "Available");
    let available = match found.map(|condition| (text(&condition["status"]), text(&condition["reason"]))) {
        None => "Unknown".to_owned(),
        Some(("True", _)) => "True".to_owned(),
        Some((status, reason)) => format!("{status} ({reason})"),
    };
    vec![row.name(), service.into(), available.into(), row.age()]
}
