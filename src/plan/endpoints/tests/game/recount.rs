//! The endpoints of a Service, counted anew from the objects as the API has them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The objects at the end of a game.
pub(super) struct Cluster<'a> {
    pub service: Option<&'a Value>,
    pub pods: &'a BTreeMap<String, Value>,
    pub nodes: &'a BTreeMap<String, Value>,
    pub slices: &'a BTreeMap<String, Value>,
    pub endpoints: Option<&'a Value>,
}

/// An endpoint in words: its ports, its address, its pod, and whether it is ready.
type Found = (String, String, String, bool);

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object[field].as_array().map_or(&[], Vec::as_slice)
}

/// Whether a pod is ready and stays so.
pub(super) fn is_ready(pod: &Value) -> bool {
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    list(&pod["status"], "conditions").iter().any(ready) && pod["metadata"]["deletionTimestamp"].is_null()
}

/// The names of the pods that a slice, or Endpoints, list as ready.
pub(super) fn ready_pods(body: &Value) -> Vec<String> {
    let of_slice = list(body, "endpoints").iter().filter(|it| it["conditions"]["ready"] == true);
    let of_endpoints = list(body, "subsets").iter().flat_map(|subset| list(subset, "addresses"));
    of_slice.chain(of_endpoints).filter_map(|it| Some(it["targetRef"]["name"].as_str()?.to_owned())).collect()
}

/// The sizes of a write: the endpoints of a slice, or all addresses.
pub(super) fn sizes(body: &Value) -> [usize; 2] {
    let addresses =
        |subset: &Value| list(subset, "addresses").len() + list(subset, "notReadyAddresses").len();
    [list(body, "endpoints").len(), list(body, "subsets").iter().map(addresses).sum()]
}

/// Whether two states differ in more than the version and the time of the change.
pub(super) fn differ(one: &Value, other: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = Value::Null;
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove("endpoints.kubernetes.io/last-change-trigger-time");
        }
        if object["metadata"]["annotations"].as_object().is_none_or(serde_json::Map::is_empty) {
            object["metadata"]["annotations"] = Value::Null;
        }
        object
    };
    without(one) != without(other)
}

/// A list of ports in words, in whatever order they stand.
fn ports(ports: &[Value]) -> String {
    let word = |port: &Value| format!("{}:{}", port["name"].as_str().unwrap_or_default(), port["port"]);
    let words: BTreeSet<String> = ports.iter().map(word).collect();
    words.into_iter().collect::<Vec<_>>().join(",")
}

/// The ports of a pod behind those of its Service.
fn ports_of(service: &Value, pod: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for port in list(&service["spec"], "ports") {
        let named =
            list(&pod["spec"]["containers"][0], "ports").iter().find(|it| it["name"] == port["targetPort"]);
        let number = match &port["targetPort"] {
            Value::Number(number) => Some(number.to_string()),
            _ => named.map(|named| named["containerPort"].to_string()),
        };
        found.extend(number.map(|number| format!("{}:{number}", port["name"].as_str().unwrap())));
    }
    found.sort();
    found
}

impl Cluster<'_> {
    pub(super) fn is_as_it_should_be(&self, most: usize) -> Result<(), String> {
        let selects = self.service.is_some_and(|service| service["spec"]["selector"].is_object());
        let mut expected: BTreeMap<&str, Vec<Found>> = BTreeMap::new();
        for writer in ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"] {
            expected.insert(writer, Vec::new());
        }
        if selects {
            expected.insert("endpointslice-controller.k8s.io", self.of_pods());
            self.check_endpoints()?;
        } else if self.service.is_some() {
            expected.insert("endpointslicemirroring-controller.k8s.io", self.of_endpoints());
        } else if self.endpoints.is_some_and(|it| {
            it["metadata"]["labels"]["endpoints.kubernetes.io/managed-by"] == "endpoint-controller"
        }) {
            return Err("Endpoints are left over".into());
        }
        for (writer, mut expected) in expected {
            let of_writer: Vec<&Value> = self
                .slices
                .values()
                .filter(|slice| {
                    slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == writer
                })
                .collect();
            let mut found = Vec::new();
            let mut empty = BTreeMap::<&str, usize>::new();
            for slice in &of_writer {
                let family = slice["addressType"].as_str().unwrap();
                let endpoints = list(slice, "endpoints");
                if endpoints.is_empty() {
                    *empty.entry(family).or_default() += 1;
                } else if writer.starts_with("endpointslice-") && endpoints.len() > most {
                    return Err(format!("a slice of {} endpoints", endpoints.len()));
                }
                for endpoint in endpoints {
                    for address in list(endpoint, "addresses") {
                        let address = address.as_str().unwrap();
                        if address.contains(':') != (family == "IPv6") {
                            return Err(format!("{address} in a slice of {family}"));
                        }
                        found.push((
                            ports(list(slice, "ports")),
                            address.to_owned(),
                            endpoint["targetRef"]["name"].as_str().unwrap_or_default().to_owned(),
                            endpoint["conditions"]["ready"] == true,
                        ));
                    }
                }
            }
            found.sort();
            expected.sort();
            if found != expected {
                return Err(format!("{writer}: {found:?}\ninstead of {expected:?}"));
            }
            // One placeholder of a family, and only where it has no endpoint.
            let is_wrong = |(family, count): (&&str, &usize)| {
                let has_some =
                    found.iter().any(|(_, address, ..)| address.contains(':') == (*family == "IPv6"));
                *count > 1 || has_some || writer.starts_with("endpointslicemirroring")
            };
            if empty.iter().any(is_wrong) {
                return Err(format!("{writer}: empty slices {empty:?}"));
            }
        }
        Ok(())
    }

    /// The pods that count, whether they are ready, and their addresses.
    fn counted(&self) -> impl Iterator<Item = (&str, &Value, bool)> {
        let publishes = self.service.unwrap()["spec"]["publishNotReadyAddresses"] == true;
        let counts =
            |pod: &Value| pod["metadata"]["labels"]["app"] == "web" && pod["status"]["phase"] == "Running";
        let pods = self.pods.iter().filter(move |(_, pod)| counts(pod));
        pods.map(move |(name, pod)| (name.as_str(), pod, publishes || is_ready(pod)))
    }

    fn of_pods(&self) -> Vec<Found> {
        let service = self.service.unwrap();
        let publishes = service["spec"]["publishNotReadyAddresses"] == true;
        let mut found = Vec::new();
        for (name, pod, ready) in self.counted() {
            let node = pod["spec"]["nodeName"].as_str().unwrap();
            if !self.nodes.contains_key(node) && !publishes {
                continue;
            }
            for ip in list(&pod["status"], "podIPs") {
                let ip = ip["ip"].as_str().unwrap();
                let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
                if list(&service["spec"], "ipFamilies").iter().any(|it| it == family) {
                    found.push((ports_of(service, pod).join(","), ip.to_owned(), name.to_owned(), ready));
                }
            }
        }
        found
    }

    /// Endpoints have one entry for each pod that stays and each of its ports, by its IPv4 address.
    fn check_endpoints(&self) -> Result<(), String> {
        let service = self.service.unwrap();
        let publishes = service["spec"]["publishNotReadyAddresses"] == true;
        let mut expected: Vec<Found> = Vec::new();
        for (name, pod, ready) in self.counted() {
            if !publishes && !pod["metadata"]["deletionTimestamp"].is_null() {
                continue;
            }
            let ip = pod["status"]["podIP"].as_str().unwrap();
            let entry = |port: String| (port, ip.to_owned(), name.to_owned(), ready);
            expected.extend(ports_of(service, pod).into_iter().map(entry));
        }
        let Some(endpoints) = self.endpoints else { return Err("there are no Endpoints".into()) };
        let mut found = flat(endpoints);
        found.sort();
        expected.sort();
        if found == expected { Ok(()) } else { Err(format!("Endpoints: {found:?}\ninstead of {expected:?}")) }
    }

    /// The endpoints of slices that mirror: ports with the same addresses share a slice.
    fn of_endpoints(&self) -> Vec<Found> {
        let mut by_address: BTreeMap<(String, String, bool), BTreeSet<String>> = BTreeMap::new();
        // By hand each address has one list of ports, and by the controller each pod has one.
        for (port, address, pod, ready) in self.endpoints.map(flat).unwrap_or_default() {
            by_address.entry((address, pod, ready)).or_default().insert(port);
        }
        // Ports that other addresses have as well are in slices of their own.
        let mut by_port: BTreeMap<&String, BTreeSet<&(String, String, bool)>> = BTreeMap::new();
        for (address, ports) in &by_address {
            for port in ports {
                by_port.entry(port).or_default().insert(address);
            }
        }
        let mut ports_of: BTreeMap<&BTreeSet<&(String, String, bool)>, Vec<&str>> = BTreeMap::new();
        for (port, addresses) in &by_port {
            ports_of.entry(addresses).or_default().push(port);
        }
        let mut found = Vec::new();
        for (addresses, ports) in ports_of {
            for (address, pod, ready) in addresses {
                found.push((ports.join(","), address.clone(), pod.clone(), *ready));
            }
        }
        found
    }
}

/// The entries of Endpoints, one for each address and port.
fn flat(endpoints: &Value) -> Vec<Found> {
    let mut found = Vec::new();
    for subset in list(endpoints, "subsets") {
        for (field, ready) in [("addresses", true), ("notReadyAddresses", false)] {
            for address in list(subset, field) {
                for port in list(subset, "ports") {
                    found.push((
                        ports(std::slice::from_ref(port)),
                        address["ip"].as_str().unwrap().to_owned(),
                        address["targetRef"]["name"].as_str().unwrap_or_default().to_owned(),
                        ready,
                    ));
                }
            }
        }
    }
    found
}
