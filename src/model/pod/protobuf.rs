//! A pod from protobuf (upstream: `k8s.io/api/core/v1/generated.proto`). Only what the record holds is read; all else,
//! most of the bytes, is stepped over.

use serde::de::IgnoredAny;

use super::affinity::{PodAffinityWire, PodTermWire, WeightedTermWire};
use super::claims::{SourceWire, VolumeWire};
use super::shape::ResourcesWire;
use super::target::{AffinityWire, FieldWire, NodeAffinityWire, NodeSelectorWire, TermWire};
use super::tolerations::TolerationWire;
use super::{
    AddressWire, ContainerStatusWire, ContainerWire, Moment, PodConditionWire, PodWire, PortWire, ReasonWire,
    SpecWire, StateWire, StatusWire, TerminatedWire,
};
use crate::model::protobuf::{Fields, Malformed, Value};
use crate::model::wire::{MetaWire, Pairs, Text, Time};

impl<'a> PodWire<'a> {
    pub(super) fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut pod = PodWire { metadata: MetaWire::default(), spec: None, status: None };
        for field in Fields(message) {
            match field? {
                (1, value) => pod.metadata = MetaWire::from_protobuf(value.bytes()?)?,
                (2, value) => pod.spec = Some(SpecWire::from_protobuf(value.bytes()?)?),
                (3, value) => pod.status = Some(StatusWire::from_protobuf(value.bytes()?)?),
                _ => {}
            }
        }
        Ok(pod)
    }
}

impl<'a> SpecWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut spec = SpecWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => spec.volumes.push(VolumeWire::from_protobuf(value.bytes()?)?),
                (2, value) => {
                    let container = ContainerWire::from_protobuf(value.bytes()?)?;
                    spec.containers.get_or_insert_default().push(container);
                }
                (5, value) => spec.active_deadline_seconds = Some(value.int64()?),
                (10, value) => spec.node_name = value.text()?,
                (16, value) => spec.hostname = value.text()?,
                (17, value) => spec.subdomain = value.text()?,
                (18, value) => {
                    spec.affinity = Some(AffinityWire::from_protobuf(value.bytes()?)?);
                }
                (22, value) => {
                    let toleration = TolerationWire::from_protobuf(value.bytes()?)?;
                    spec.tolerations.get_or_insert_default().push(toleration);
                }
                (20, value) => {
                    let container = ContainerWire::from_protobuf(value.bytes()?)?;
                    spec.init_containers.get_or_insert_default().push(container);
                }
                (24, value) => spec.priority_class_name = value.text()?,
                (32, value) => add_quantity(&mut spec.overhead, value)?,
                (40, value) => spec.resources = Some(ResourcesWire::from_protobuf(value.bytes()?)?),
                _ => {}
            }
        }
        Ok(spec)
    }
}

impl<'a> TolerationWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut toleration = TolerationWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => toleration.key = value.text()?,
                (2, value) => toleration.operator = value.text()?,
                (3, value) => toleration.value = value.text()?,
                (4, value) => toleration.effect = value.text()?,
                (5, value) => toleration.toleration_seconds = Some(value.int64()?),
                _ => {}
            }
        }
        Ok(toleration)
    }
}

impl<'a> VolumeWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut volume = VolumeWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => volume.name = value.text()?,
                (2, value) => volume.read_source(value.bytes()?)?,
                _ => {}
            }
        }
        Ok(volume)
    }

    fn read_source(&mut self, message: &'a [u8]) -> Result<(), Malformed> {
        for field in Fields(message) {
            match field? {
                (10, value) => {
                    self.persistent_volume_claim = Some(SourceWire::from_protobuf(value.bytes()?)?);
                }
                (29, _) => self.ephemeral = Some(IgnoredAny),
                _ => {}
            }
        }
        Ok(())
    }
}

impl<'a> SourceWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut source = SourceWire::default();
        for field in Fields(message) {
            if let (1, value) = field? {
                source.claim_name = value.text()?;
            }
        }
        Ok(source)
    }
}

impl<'a> AffinityWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut affinity = AffinityWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => affinity.node_affinity = Some(NodeAffinityWire::from_protobuf(value.bytes()?)?),
                (2, value) => affinity.pod_affinity = Some(PodAffinityWire::from_protobuf(value.bytes()?)?),
                (3, value) => {
                    affinity.pod_anti_affinity = Some(PodAffinityWire::from_protobuf(value.bytes()?)?);
                }
                _ => {}
            }
        }
        Ok(affinity)
    }
}

/// Adds an entry of a map of quantities.
fn add_quantity<'a>(pairs: &mut Pairs<'a>, entry: Value<'a>) -> Result<(), Malformed> {
    let (mut name, mut amount) = (Text::default(), Text::default());
    for field in Fields(entry.bytes()?) {
        match field? {
            (1, value) => name = value.text()?,
            (2, value) => {
                for field in Fields(value.bytes()?) {
                    if let (1, text) = field? {
                        amount = text.text()?;
                    }
                }
            }
            _ => {}
        }
    }
    pairs.0.push((name, amount));
    Ok(())
}

impl<'a> ResourcesWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut resources = ResourcesWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => add_quantity(&mut resources.limits, value)?,
                (2, value) => add_quantity(&mut resources.requests, value)?,
                _ => {}
            }
        }
        Ok(resources)
    }
}

impl PodAffinityWire {
    fn from_protobuf(message: &[u8]) -> Result<Self, Malformed> {
        let mut affinity = PodAffinityWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => {
                    let term = PodTermWire::from_protobuf(value.bytes()?)?;
                    affinity
                        .required_during_scheduling_ignored_during_execution
                        .get_or_insert_default()
                        .push(term);
                }
                (2, value) => {
                    let mut weighted = WeightedTermWire::default();
                    for field in Fields(value.bytes()?) {
                        if let (2, term) = field? {
                            weighted.pod_affinity_term = Some(PodTermWire::from_protobuf(term.bytes()?)?);
                        }
                    }
                    let preferred = &mut affinity.preferred_during_scheduling_ignored_during_execution;
                    preferred.get_or_insert_default().push(weighted);
                }
                _ => {}
            }
        }
        Ok(affinity)
    }
}

impl PodTermWire {
    fn from_protobuf(message: &[u8]) -> Result<Self, Malformed> {
        let mut term = PodTermWire::default();
        for field in Fields(message) {
            match field? {
                (2, _) => term.namespaces.get_or_insert_default().push(IgnoredAny),
                (4, _) => term.namespace_selector = Some(IgnoredAny),
                _ => {}
            }
        }
        Ok(term)
    }
}

impl<'a> NodeAffinityWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut affinity = NodeAffinityWire::default();
        for field in Fields(message) {
            if let (1, value) = field? {
                let required = NodeSelectorWire::from_protobuf(value.bytes()?)?;
                affinity.required_during_scheduling_ignored_during_execution = Some(required);
            }
        }
        Ok(affinity)
    }
}

impl<'a> NodeSelectorWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut selector = NodeSelectorWire::default();
        for field in Fields(message) {
            if let (1, value) = field? {
                let term = TermWire::from_protobuf(value.bytes()?)?;
                selector.node_selector_terms.get_or_insert_default().push(term);
            }
        }
        Ok(selector)
    }
}

impl<'a> TermWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut term = TermWire::default();
        for field in Fields(message) {
            if let (2, value) = field? {
                term.match_fields.get_or_insert_default().push(FieldWire::from_protobuf(value.bytes()?)?);
            }
        }
        Ok(term)
    }
}

impl<'a> FieldWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut requirement = FieldWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => requirement.key = value.text()?,
                (2, value) => requirement.operator = value.text()?,
                (3, value) => requirement.values.get_or_insert_default().push(value.text()?),
                _ => {}
            }
        }
        Ok(requirement)
    }
}

impl<'a> ContainerWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut container = ContainerWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => container.name = value.text()?,
                (6, value) => {
                    let port = PortWire::from_protobuf(value.bytes()?)?;
                    container.ports.get_or_insert_default().push(port);
                }
                (8, value) => container.resources = Some(ResourcesWire::from_protobuf(value.bytes()?)?),
                (24, value) => container.restart_policy = value.text()?,
                _ => {}
            }
        }
        Ok(container)
    }
}

impl<'a> PortWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut port = PortWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => port.name = value.text()?,
                (3, value) => port.container_port = Some(value.int32()?),
                (4, value) => port.protocol = value.text()?,
                _ => {}
            }
        }
        Ok(port)
    }
}

impl<'a> AddressWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut address = AddressWire::default();
        for field in Fields(message) {
            if let (1, value) = field? {
                address.ip = value.text()?;
            }
        }
        Ok(address)
    }
}

impl<'a> StatusWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut status = StatusWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => status.phase = value.text()?,
                (2, value) => {
                    let condition = PodConditionWire::from_protobuf(value.bytes()?)?;
                    status.conditions.get_or_insert_default().push(condition);
                }
                (3, value) => status.message = value.text()?,
                (4, value) => status.reason = value.text()?,
                (6, value) => status.pod_ip = value.text()?,
                (7, value) => status.start_time = Moment::Known(value.time()?),
                (8, value) => {
                    let container = ContainerStatusWire::from_protobuf(value.bytes()?)?;
                    status.container_statuses.get_or_insert_default().push(container);
                }
                (9, value) => status.qos_class = value.text()?,
                (10, value) => {
                    let container = ContainerStatusWire::from_protobuf(value.bytes()?)?;
                    status.init_container_statuses.get_or_insert_default().push(container);
                }
                (12, value) => {
                    let address = AddressWire::from_protobuf(value.bytes()?)?;
                    status.pod_ips.get_or_insert_default().push(address);
                }
                _ => {}
            }
        }
        Ok(status)
    }
}

impl<'a> PodConditionWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut condition = PodConditionWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => condition.kind = value.text()?,
                (2, value) => condition.status = value.text()?,
                (4, value) => condition.last_transition_time = value.time()?.map(Time),
                (5, value) => condition.reason = value.text()?,
                (6, value) => condition.message = value.text()?,
                _ => {}
            }
        }
        Ok(condition)
    }
}

impl<'a> ContainerStatusWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut status = ContainerStatusWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => status.name = value.text()?,
                (2, value) => status.state = Some(StateWire::from_protobuf(value.bytes()?)?),
                (3, value) => status.last_state = Some(StateWire::from_protobuf(value.bytes()?)?),
                (5, value) => status.restart_count = Some(value.int32()?),
                (10, value) => add_quantity(&mut status.allocated_resources, value)?,
                (11, value) => status.resources = Some(ResourcesWire::from_protobuf(value.bytes()?)?),
                _ => {}
            }
        }
        Ok(status)
    }
}

impl<'a> StateWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut state = StateWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => state.waiting = Some(ReasonWire::from_protobuf(value.bytes()?)?),
                (2, _) => state.running = Some(IgnoredAny),
                (3, value) => state.terminated = Some(TerminatedWire::from_protobuf(value.bytes()?)?),
                _ => {}
            }
        }
        Ok(state)
    }
}

impl<'a> ReasonWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut reported = ReasonWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => reported.reason = value.text()?,
                (2, value) => reported.message = value.text()?,
                _ => {}
            }
        }
        Ok(reported)
    }
}

impl<'a> TerminatedWire<'a> {
    fn from_protobuf(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut terminated = TerminatedWire::default();
        for field in Fields(message) {
            match field? {
                (1, value) => terminated.exit_code = Some(value.int32()?),
                (3, value) => terminated.reason = value.text()?,
                (4, value) => terminated.message = value.text()?,
                (6, value) => terminated.finished_at = Moment::Known(value.time()?),
                _ => {}
            }
        }
        Ok(terminated)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{Interner, Pod, Record};

    /// A field that holds a string or a message.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let tag = u16::from(number) << 3 | 2;
        let tag = if tag < 128 { vec![tag as u8] } else { vec![tag as u8 & 127 | 128, (tag >> 7) as u8] };
        [tag, vec![u8::try_from(bytes.len()).unwrap()], bytes.to_vec()].concat()
    }

    fn message(fields: &[Vec<u8>]) -> Vec<u8> {
        fields.concat()
    }

    fn pod(node: &str, values: &[&str]) -> Pod {
        let values = message(&values.iter().map(|value| field(3, value.as_bytes())).collect::<Vec<_>>());
        let requirement = message(&[field(1, b"metadata.name"), field(2, b"In"), values]);
        let affinity = field(1, &field(1, &field(1, &field(2, &requirement))));
        let spec = message(&[field(10, node.as_bytes()), field(18, &affinity)]);
        let metadata = message(&[field(1, b"p"), field(3, b"ops"), field(5, b"u"), field(6, b"7")]);
        let pod = message(&[field(1, &metadata), field(2, &spec)]);
        Pod::decode_protobuf(&pod, &mut Interner::default()).unwrap()
    }

    #[test]
    fn claims_are_those_of_the_volumes_that_have_one() {
        let volume = |name: &[u8], source: &[u8]| field(1, &[field(1, name), field(2, source)].concat());
        let source = |number: u8, content: &[u8]| field(number, content);
        let spec = message(&[
            volume(b"token", &source(26, b"")),
            volume(b"data", &source(10, &field(1, b"data-db-0"))),
            volume(b"scratch", &source(29, b"")),
        ]);
        let decode = |more: &[u8]| {
            let metadata = message(&[
                field(1, b"db-0"),
                field(3, b"ops"),
                field(5, b"u"),
                field(6, b"7"),
                more.to_vec(),
            ]);
            let pod = message(&[field(1, &metadata), field(2, &spec)]);
            let pod = Pod::decode_protobuf(&pod, &mut Interner::default()).unwrap();
            pod.claims.iter().map(|claim| (claim.name(), claim.is_ephemeral())).collect::<Vec<_>>()
        };
        let expected = [("data-db-0".to_owned(), false), ("db-0-scratch".to_owned(), true)];
        assert_eq!(decode(&[]), expected);
        // A deletion timestamp, and no grace period left.
        let shut_down = [field(9, &[0x08, 60]), vec![10 << 3, 0]].concat();
        assert_eq!(decode(&shut_down), expected[..1]);
    }

    #[test]
    fn the_target_of_an_unbound_pod_is_the_one_node_that_a_match_field_names() {
        let target = |pod: &Pod| pod.target().map(|node| node.to_string());
        let unbound = pod("", &["n1"]);
        assert_eq!((target(&unbound).as_deref(), unbound.node()), (Some("n1"), None));
        assert_eq!(target(&pod("", &["n1", "n2"])), None);
        assert_eq!(target(&pod("", &[])), None);
        let bound = pod("n3", &["n1"]);
        assert_eq!((target(&bound).as_deref(), bound.node().is_some()), (Some("n3"), true));
    }

    #[test]
    fn addresses_named_ports_and_the_hostname_are_read() {
        let number = |field: u8, value: u8| vec![field << 3, value];
        let port = message(&[field(1, b"http"), number(3, 80), field(4, b"TCP")]);
        let sidecar_port = message(&[field(1, b"http"), number(3, 81), field(4, b"TCP")]);
        let container = message(&[field(1, b"c"), field(6, &port)]);
        let sidecar = message(&[field(1, b"s"), field(6, &sidecar_port), field(24, b"Always")]);
        let spec = message(&[field(20, &sidecar), field(2, &container), field(16, b"h"), field(17, b"web")]);
        let status = message(&[
            field(6, b"10.0.0.1"),
            field(12, &field(1, b"10.0.0.1")),
            field(12, &field(1, b"fd00::1")),
        ]);
        let metadata = message(&[field(1, b"p"), field(5, b"u"), field(6, b"7")]);
        let pod = message(&[field(1, &metadata), field(2, &spec), field(3, &status)]);
        let pod = Pod::decode_protobuf(&pod, &mut Interner::default()).unwrap();
        let addresses: Vec<String> = pod.network.addresses().map(|address| address.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.1", "fd00::1"]);
        assert_eq!((pod.network.port("http", "TCP"), pod.network.port("http", "UDP")), (Some(80), None));
        assert_eq!((pod.network.hostname(), pod.network.subdomain()), (Some("h"), Some("web")));
    }

    #[test]
    fn the_part_that_quotas_read_is_that_of_the_same_pod_in_json() {
        let quantity = |name: &[u8], amount: &[u8]| [field(1, name), field(2, &field(1, amount))].concat();
        let cpu = |amount: &[u8]| quantity(b"cpu", amount);
        let resources = message(&[field(1, &cpu(b"2")), field(2, &cpu(b"1"))]);
        let term = field(2, &field(2, b"ops"));
        let weighted = field(2, &[vec![1 << 3, 5], term].concat());
        let spec = message(&[
            field(2, &[field(1, b"c"), field(8, &resources)].concat()),
            vec![5 << 3, 60],
            field(10, b"n1"),
            field(18, &field(3, &weighted)),
            field(24, b"high"),
            field(32, &cpu(b"250m")),
            field(40, &field(1, &quantity(b"memory", b"1Gi"))),
        ]);
        let running = message(&[field(1, b"c"), field(10, &cpu(b"3")), field(11, &field(2, &cpu(b"1")))]);
        let status = message(&[field(9, b"Burstable"), field(8, &running)]);
        let metadata = message(&[field(1, b"p"), field(5, b"u"), field(6, b"7")]);
        let pod = message(&[field(1, &metadata), field(2, &spec), field(3, &status)]);
        let json = r#"{"metadata":{"name":"p","uid":"u","resourceVersion":"7"},"spec":{"containers":[{"name":"c",
            "resources":{"limits":{"cpu":"2"},"requests":{"cpu":"1"}}}],"activeDeadlineSeconds":60,"nodeName":"n1",
            "affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":5,
            "podAffinityTerm":{"namespaces":["ops"]}}]}},"priorityClassName":"high","overhead":{"cpu":"250m"},
            "resources":{"limits":{"memory":"1Gi"}}},"status":{"qosClass":"Burstable","containerStatuses":[{"name":"c",
            "allocatedResources":{"cpu":"3"},"resources":{"requests":{"cpu":"1"}}}]}}"#;
        let decoded = Pod::decode_protobuf(&pod, &mut Interner::default()).unwrap();
        let expected = Pod::decode(json, &mut Interner::default()).unwrap();
        assert_eq!(decoded.shape, expected.shape);
        assert!(decoded.shape.crosses_namespaces && decoded.shape.has_deadline);
        assert_eq!(decoded.shape.requests.get("cpu"), Some("3250m"));
    }

    #[test]
    fn tolerations_are_read_with_their_seconds() {
        let toleration =
            message(&[field(1, b"a"), field(2, b"Exists"), field(4, b"NoExecute"), vec![5 << 3, 30]]);
        let spec = message(&[field(22, &toleration), field(22, &field(4, b"NoSchedule"))]);
        let metadata = message(&[field(1, b"p"), field(5, b"u"), field(6, b"7")]);
        let pod = message(&[field(1, &metadata), field(2, &spec)]);
        let pod = Pod::decode_protobuf(&pod, &mut Interner::default()).unwrap();
        let all: Vec<_> = pod.tolerations().map(|t| (t.key, t.operator, t.effect, t.seconds)).collect();
        assert_eq!(all, [("a", "Exists", "NoExecute", Some(30))]);
    }

    #[test]
    fn a_pod_with_text_that_is_not_utf8_is_decoded() {
        let annotation = field(12, &[field(1, b"a"), field(2, &[0xff])].concat());
        let metadata = message(&[field(1, b"p"), field(5, b"u"), field(6, b"7"), annotation]);
        let status = message(&[field(1, b"Failed"), field(3, b"no\xffdisk"), field(4, b"Evicted")]);
        let bytes = message(&[field(1, &metadata), field(3, &status)]);
        let pod = Pod::decode_protobuf(&bytes, &mut Interner::default()).unwrap();
        assert_eq!(&*pod.meta.key.name, "p");
        assert_eq!(pod.waiting.unwrap().message.as_deref(), Some("no\u{fffd}disk"));
    }
}
