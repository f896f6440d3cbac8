//! The resources and ports of its node that a pod asks for.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::{quantity::Amount, record::Pod};

/// A map that takes no more room than what is in it.
#[derive(Clone, Debug)]
pub struct Pairs<V>(pub(super) Box<[(Box<str>, V)]>);

impl<V> Default for Pairs<V> {
    fn default() -> Self {
        Pairs(Box::default())
    }
}

impl<V> FromIterator<(Box<str>, V)> for Pairs<V> {
    fn from_iter<I: IntoIterator<Item = (Box<str>, V)>>(pairs: I) -> Self {
        Pairs(pairs.into_iter().collect())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Pairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = Option::<BTreeMap<Box<str>, V>>::deserialize(deserializer)?;
        Ok(pairs.into_iter().flatten().collect())
    }
}

/// The resources of a container, or of a pod. The API server writes the requests that follow from limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    requests: Pairs<Amount>,
}

/// A port of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Port {
    container_port: i64,
    host_port: Option<i64>,
    #[serde(rename = "hostIP")]
    host_ip: Option<Box<str>>,
    protocol: Option<Box<str>>,
}

/// A port of a node that a pod takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    port: i64,
    protocol: Box<str>,
    ip: Box<str>,
}

impl HostPort {
    /// Whether no node can have both.
    pub fn conflicts(&self, other: &Self) -> bool {
        const ANY: &str = "0.0.0.0";
        let same_ip = self.ip == other.ip || &*self.ip == ANY || &*other.ip == ANY;
        self.port == other.port && self.protocol == other.protocol && same_ip
    }
}

impl Pod {
    /// The ports of its node that it takes. In the network of the node every port is one of the node.
    pub fn host_ports(&self) -> impl Iterator<Item = HostPort> {
        let in_host_network = self.spec.host_network == Some(true);
        let sidecars = self.init_containers().iter().filter(|container| container.is_sidecar());
        let ports = self
            .spec
            .containers
            .iter()
            .chain(sidecars)
            .flat_map(|container| container.ports.iter().flatten());
        ports.filter_map(move |port| {
            let own = in_host_network.then_some(port.container_port);
            Some(HostPort {
                port: port.host_port.or(own).filter(|port| *port > 0)?,
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
                ip: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".into()),
            })
        })
    }

    /// The resources that the pod asks for, in billionths: what its containers and sidecars need together, or one of its init
    /// containers beside the sidecars before it, if that is more (KEP-753); or what the pod says of itself; and the
    /// overhead.
    pub fn requests(&self) -> BTreeMap<Box<str>, i128> {
        type Sum = BTreeMap<Box<str>, i128>;
        fn add(sum: &mut Sum, amounts: &Pairs<Amount>) {
            for (resource, amount) in &amounts.0 {
                let sum = sum.entry(resource.clone()).or_default();
                *sum = sum.saturating_add(amount.0.max(0));
            }
        }
        let mut sum = Sum::new();
        for resources in self.spec.containers.iter().filter_map(|container| container.resources.as_ref()) {
            add(&mut sum, &resources.requests);
        }
        let (mut sidecars, mut most) = (Sum::new(), Sum::new());
        for container in self.init_containers() {
            let Some(resources) = &container.resources else { continue };
            let mut beside = sidecars.clone();
            add(&mut beside, &resources.requests);
            if container.is_sidecar() {
                add(&mut sum, &resources.requests);
                sidecars.clone_from(&beside);
            }
            for (resource, amount) in beside {
                let most = most.entry(resource).or_default();
                *most = amount.max(*most);
            }
        }
        for (resource, amount) in most {
            let sum = sum.entry(resource).or_default();
            *sum = amount.max(*sum);
        }
        for (resource, amount) in self.spec.resources.iter().flat_map(|resources| &resources.requests.0) {
            if matches!(&**resource, "cpu" | "memory") || resource.starts_with("hugepages-") {
                sum.insert(resource.clone(), amount.0.max(0));
            }
        }
        add(&mut sum, &self.spec.overhead);
        sum
    }
}
