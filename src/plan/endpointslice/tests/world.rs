//! A toy cluster with one Service, whose plans are carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::model::endpointslice::{ENDPOINT_SLICE_CONTROLLER, MANAGED_BY, SERVICE_NAME};
use crate::model::{EndpointSlice, Interner, Node, Pod, Record, Service};
use crate::plan::endpointslice::{CpuShares, Limits, Memory, Observed, Plan, plan};

/// The cluster. All objects are as the API has them.
pub(super) struct World {
    pub service: Value,
    pub pods: BTreeMap<String, Value>,
    pub slices: BTreeMap<String, Value>,
    pub limits: Limits,
    nodes: BTreeMap<String, Value>,
    memory: Memory,
    events: Vec<String>,
    version: u64,
}

/// The status of a pod that is ready.
pub(in crate::plan) fn ready() -> Value {
    json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True",
           "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

/// The endpoint of a pod.
pub(super) fn endpoint<'a>(slice: &'a Value, pod: &str) -> &'a Value {
    slice["endpoints"].as_array().unwrap().iter().find(|it| it["targetRef"]["name"] == pod).unwrap()
}

/// Applies a merge patch.
pub(in crate::plan) fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    let object = object.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Decodes an object as the API has it.
pub(in crate::plan) fn decode<T: Record>(object: &Value) -> Arc<T> {
    Arc::new(T::decode(&object.to_string(), &mut Interner::default()).unwrap())
}

impl World {
    /// A Service `web` of IPv4 without pods, and a node `n1` in the zone `z1`.
    pub(super) fn new() -> Self {
        let service = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-web", "resourceVersion": "1",
                         "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"selector": {"app": "web"}, "clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"],
                     "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}]},
        });
        let limits = Limits { endpoints_per_slice: 100, deletes_left_over: false };
        let mut world = World {
            service,
            pods: BTreeMap::new(),
            slices: BTreeMap::new(),
            limits,
            nodes: BTreeMap::new(),
            memory: Memory::default(),
            events: Vec::new(),
            version: 10,
        };
        world.node("n1", "z1", 4);
        world
    }

    pub(super) fn node(&mut self, name: &str, zone: &str, cpus: u32) {
        let node = json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1",
                         "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": cpus.to_string()},
                       "conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.nodes.insert(name.into(), node);
    }

    pub(super) fn merge_node(&mut self, name: &str, patch: Value) {
        merge(self.nodes.get_mut(name).unwrap(), &patch);
    }

    /// Adds a pod of the Service on the node `n1`; its address ends with the number in its name.
    pub(super) fn pod(&mut self, name: &str, more: Value) {
        let number: u32 = name.rsplit('-').next().unwrap().parse().unwrap();
        let address = format!("10.0.{}.{}", number / 256, number % 256);
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}"), "resourceVersion": "1",
                         "labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
            "status": {"podIP": address, "podIPs": [{"ip": address}]},
        });
        merge(&mut pod, &more);
        self.pods.insert(name.into(), pod);
    }

    pub(super) fn merge_pod(&mut self, name: &str, patch: Value) {
        merge(self.pods.get_mut(name).unwrap(), &patch);
    }

    pub(super) fn merge_slice(&mut self, name: &str, patch: Value) {
        merge(self.slices.get_mut(name).unwrap(), &patch);
    }

    /// Adds a slice that a user has written.
    pub(super) fn by_hand(&mut self, name: &str, labels: Value) {
        let slice = json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}"),
                           "resourceVersion": "1", "labels": labels}, "addressType": "IPv4", "endpoints": []});
        self.slices.insert(name.into(), slice);
    }

    /// The slice of the controller, where there is one only.
    #[track_caller]
    pub(super) fn only_slice(&self) -> Value {
        let ours: Vec<&Value> = self
            .slices
            .values()
            .filter(|slice| slice["metadata"]["labels"].get(MANAGED_BY).is_some())
            .collect();
        assert_eq!(ours.len(), 1, "{ours:?}");
        ours[0].clone()
    }

    /// The events since the last call.
    pub(super) fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn shares(&self) -> Option<Arc<CpuShares>> {
        let nodes: Vec<Arc<Node>> = self.nodes.values().map(decode).collect();
        CpuShares::of(&nodes).map(Arc::new)
    }

    pub(super) fn decoded_slices(&self) -> Vec<Arc<EndpointSlice>> {
        let all = self.slices.values().map(decode::<EndpointSlice>);
        let name = self.service["metadata"]["name"].as_str();
        all.filter(|slice| {
            slice.is_managed_by(ENDPOINT_SLICE_CONTROLLER) && slice.meta.labels.get(SERVICE_NAME) == name
        })
        .collect()
    }

    pub(super) fn plan(&self) -> Plan {
        let service = decode::<Service>(&self.service);
        let pods = self.pods.values().map(decode::<Pod>);
        let selects = |pod: &Arc<Pod>| service.pods().is_some_and(|it| it.matches(&pod.meta.labels));
        let nodes = self.nodes.iter().map(|(name, node)| (name.as_str().into(), decode(node)));
        let taken: BTreeSet<Arc<str>> = self.slices.keys().map(|name| name.as_str().into()).collect();
        plan(&Observed {
            service: &service,
            pods: pods.filter(selects).collect(),
            nodes: nodes.collect(),
            slices: self.decoded_slices(),
            taken,
            shares: self.shares().filter(|_| service.is_topology_auto),
            memory: self.memory.clone(),
            limits: self.limits,
        })
    }

    /// Plans, and carries out the plan. The writes in words: `create IPv4 3`, `update 3`, `update labels`, `delete IPv4`.
    pub(super) fn sync(&mut self) -> Vec<String> {
        let plan = self.plan();
        let mut words = Vec::new();
        for writes in &plan.by_type {
            for create in &writes.creates {
                let mut slice = create.body.clone();
                self.version += 1;
                slice["metadata"]["resourceVersion"] = json!(self.version.to_string());
                slice["metadata"]["uid"] = json!(format!("u-{}-{}", create.name, self.version));
                let count = slice["endpoints"].as_array().unwrap().len();
                words.push(format!("create {} {count}", slice["addressType"].as_str().unwrap()));
                assert!(self.slices.insert(create.name.clone(), slice).is_none(), "{}", create.name);
            }
            for update in &writes.updates {
                let slice = self.slices.get_mut(&*update.slice.meta.key.name).unwrap();
                for field in ["uid", "resourceVersion"] {
                    assert_eq!(update.body["metadata"][field], slice["metadata"][field]);
                }
                merge(slice, &update.body);
                self.version += 1;
                slice["metadata"]["resourceVersion"] = json!(self.version.to_string());
                let count = update.body["endpoints"].as_array().map(|all| all.len().to_string());
                words.push(format!("update {}", count.unwrap_or_else(|| "labels".into())));
            }
        }
        let deletes = plan.by_type.iter().flat_map(|writes| &writes.deletes).chain(&plan.left_over);
        for slice in deletes {
            words.push(format!("delete {}", slice.address_type.as_str()));
            self.slices.remove(&*slice.meta.key.name).unwrap();
        }
        assert_eq!(words.len(), plan.len());
        self.events.extend(plan.events.iter().map(|event| format!("{} {}", event.reason, event.message)));
        self.memory = plan.memory;
        words
    }
}
