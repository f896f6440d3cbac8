//! The interface of a kind to the runtime: list, watch, decode and index its objects.

use serde::de::Error as _;

use super::intern::Interner;
use super::meta::{Meta, ObjectKey};
use super::owner::{self, Owner};

/// A resource of the API: where its objects live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version within the group.
    pub version: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// The name in URLs.
    pub plural: &'static str,
}

impl Resource {
    /// The URL path of the collection: `/apis/apps/v1/namespaces/shop/deployments`, or over all
    /// namespaces with `None`.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let Resource { group, version, kind: _, plural } = self;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        }
    }

    /// The URL path of one object; of a cluster-scoped one if the key has no namespace.
    pub fn path_of(&self, key: &ObjectKey) -> String {
        let namespace = Some(&*key.namespace).filter(|namespace| !namespace.is_empty());
        format!("{}/{}", self.path(namespace), key.name)
    }

    /// The `apiVersion` of its objects: `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// An object as it came over the wire.
#[derive(Clone, Copy, Debug)]
pub enum Encoded<'a> {
    /// Its JSON.
    Json(&'a str),
    /// Its protobuf message, without an envelope.
    Protobuf(&'a [u8]),
}

impl<'a> From<&'a str> for Encoded<'a> {
    fn from(json: &'a str) -> Self {
        Encoded::Json(json)
    }
}

impl<'a> From<&'a String> for Encoded<'a> {
    fn from(json: &'a String) -> Self {
        Encoded::Json(json)
    }
}

impl Encoded<'_> {
    /// Decodes the object as a record of this kind.
    ///
    /// # Errors
    /// See [`Record::decode`] and [`Record::decode_protobuf`].
    pub fn decode<T: Record>(self, interner: &mut Interner) -> Result<T, serde_json::Error> {
        match self {
            Encoded::Json(json) => T::decode(json, interner),
            Encoded::Protobuf(message) => T::decode_protobuf(message, interner),
        }
    }
}

/// The bytes that an `Arc` keeps beside its value, twice: for the record and for its name.
const REFERENCE_COUNTS: usize = 4 * size_of::<usize>();

/// A trimmed object of one kind, as an informer stores it.
pub trait Record: Send + Sync + Sized + 'static {
    /// Where the objects of this kind live. An informer may list another resource whose objects are decoded alike.
    const RESOURCE: Resource;

    /// Decodes one object from its JSON.
    ///
    /// When the JSON does not have the shape of this kind. The caller reports it and continues with the
    /// other objects: one unreadable object must not stall the rest.
    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error>;

    /// Whether objects of this kind are requested in protobuf, and decoded by [`Record::decode_protobuf`].
    const HAS_PROTOBUF: bool = false;

    /// Decodes one object from its protobuf message, without the envelope.
    ///
    /// # Errors
    /// When the bytes are no message of this kind, or the kind is not decoded from protobuf.
    fn decode_protobuf(message: &[u8], interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let (_, _) = (message, interner);
        Err(serde_json::Error::custom("this kind is read from JSON only"))
    }

    /// The object's metadata.
    fn meta(&self) -> &Meta;

    /// Whether objects of this kind own others. A store of them finds who owns an object by UID.
    const IS_OWNER: bool = false;

    /// The resource that the object is of: [`Record::RESOURCE`], unless a record of this type may stand for
    /// an object of another kind.
    fn resource(&self) -> &'static Resource {
        const { &Self::RESOURCE }
    }

    /// The object as the owner of others.
    fn as_owner(&self) -> Owner {
        Owner::of(self.resource(), self.meta())
    }

    /// Whether this object controls the one with this metadata: the reference names this object's UID, kind
    /// and API group, from within its namespace.
    fn controls(&self, object: &Meta) -> bool {
        owner::controls(self.resource(), self.meta(), object)
    }

    /// About how many bytes of heap the record takes in a store: itself, its name, and what it shares
    /// with no other; of labels and owner references, which it shares, its part. What the allocator adds is not
    /// counted, so that the truth is a little more. Everything counts whose size a user chooses.
    fn heap_bytes(&self) -> usize {
        own_bytes(self)
    }
}

/// The bytes of a record itself and of its metadata.
pub(super) fn own_bytes<T: Record>(record: &T) -> usize {
    size_of::<T>() + REFERENCE_COUNTS + record.meta().heap_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        ClusterRole, ConfigMap, ControllerRevision, DaemonSet, Deployment, EndpointSlice, Endpoints, Lease,
        Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget, ReplicaSet,
        ReplicationController, ResourceQuota, Service, ServiceAccount,
    };

    /// Half a megabyte of entries of a list or map.
    fn half_a_megabyte(entry: impl Fn(usize) -> String) -> String {
        let mut entries = String::new();
        for n in 0.. {
            entries.push_str(&entry(n));
            if entries.len() > 500_000 {
                break;
            }
            entries.push(',');
        }
        entries
    }

    /// An object of half a megabyte, most of it one of its parts, and its record. What a record keeps of an object
    /// grows with it, so that one of 1.5 MB, the largest that there is, takes three times as much.
    #[track_caller]
    fn check_size<T: Record>(shape: &str, entry: impl Fn(usize) -> String) {
        let json = object(shape, &half_a_megabyte(entry));
        let (took, size) = check_json::<T>(shape, &json);
        // Everything that the record keeps is counted: only owner references are left out, as no controller needs them.
        assert!(took >= size / 4 || shape == "ownerReferences", "{} {shape}: {took} bytes", T::RESOURCE.kind);
    }

    /// With the entries at the `|` of a field that is spelled out, or in a field of the metadata.
    fn object(shape: &str, entries: &str) -> String {
        let metadata = r#""name":"a","namespace":"b","uid":"u","resourceVersion":"1""#;
        match shape.split_once('|') {
            Some((before, after)) => format!(r#"{{"metadata":{{{metadata}}},{before}{entries}{after}}}"#),
            None => {
                let (open, close) =
                    if entries.contains("\":") && entries.starts_with('"') { ('{', '}') } else { ('[', ']') };
                format!(r#"{{"metadata":{{{metadata},"{shape}":{open}{entries}{close}}},"spec":{{}}}}"#)
            }
        }
    }

    /// The memory that a record takes, and the size of its object.
    #[track_caller]
    fn check_json<T: Record>(what: &str, json: &str) -> (usize, usize) {
        let record = T::decode(json, &mut Interner::default()).unwrap();
        let (took, size) = (record.heap_bytes(), json.len());
        assert!(took <= 2 * size, "{} {what}: {took} bytes for {size}", T::RESOURCE.kind);
        (took, size)
    }

    fn check_sizes<T: Record>() {
        check_size::<T>("labels", |n| format!(r#""k{n}":"""#));
        check_size::<T>("labels", |n| format!(r#""k{n}":"{n}""#));
        check_size::<T>("ownerReferences", |n| {
            format!(r#"{{"apiVersion":"v1","kind":"Pod","name":"a{n}","uid":"{n}"}}"#)
        });
        let text = "x".repeat(250_000);
        check_size::<T>("ownerReferences", |_| {
            format!(r#"{{"apiVersion":"v1","kind":"P","name":"{text}","uid":"{text}","controller":true}}"#)
        });
    }

    #[test]
    fn an_object_of_any_shape_takes_at_most_twice_its_size() {
        check_sizes::<ReplicaSet>();
        check_sizes::<ReplicationController>();
        check_sizes::<Deployment>();
        check_sizes::<DaemonSet>();
        check_sizes::<Pod>();
        check_sizes::<Node>();
        check_size::<ReplicaSet>("annotations", |n| format!(r#""k{n}":"""#));
        check_size::<Deployment>("annotations", |n| format!(r#""k{n}":"""#));
        let labels = |n: usize| format!(r#""k{n}":"""#);
        check_size::<ReplicationController>(r#""spec":{"selector":{|}}"#, labels);
        check_size::<Node>(r#""spec":{"taints":[|]}"#, |n| {
            format!(r#"{{"key":"k{n}","effect":"NoSchedule"}}"#)
        });
        let volumes = r#""spec":{"volumes":[|]}"#;
        let claim =
            |name: String| format!(r#"{{"name":"v","persistentVolumeClaim":{{"claimName":"{name}"}}}}"#);
        check_size::<Pod>(volumes, |n| claim(format!("{n:040}")));
        // Of short names little is kept.
        check_json::<Pod>(volumes, &object(volumes, &half_a_megabyte(|n| claim(format!("a{n}")))));
        check_selector::<ReplicaSet>();
        check_selector::<Deployment>();
        check_selector::<DaemonSet>();
        // Conditions that no controller writes are not kept, however many there are; of the others one of a type.
        let others = |n: usize| format!(r#"{{"type":"c{n}","status":"","lastTransitionTime":null}}"#);
        let same = |_| r#"{"type":"ReplicaFailure","status":"","lastTransitionTime":null}"#.to_owned();
        let text = "x".repeat(200_000);
        let long = |n: usize| {
            let kind = ["ReplicaFailure", "Progressing", "Available"][n % 3];
            format!(r#"{{"type":"{kind}","status":"{text}","reason":"{text}","message":"{text}"}}"#)
        };
        for conditions in [half_a_megabyte(others), half_a_megabyte(same), half_a_megabyte(long)] {
            let json = object(r#""spec":{},"status":{"conditions":[|]}"#, &conditions);
            check_json::<Deployment>("conditions", &json);
            check_json::<ReplicaSet>("conditions", &json);
            check_json::<ReplicationController>("conditions", &json);
        }
    }

    #[test]
    fn an_object_that_only_an_optional_controller_reads_takes_at_most_twice_its_size() {
        check_sizes::<Namespace>();
        check_sizes::<ServiceAccount>();
        check_sizes::<ConfigMap>();
        check_sizes::<PersistentVolume>();
        check_sizes::<PersistentVolumeClaim>();
        check_sizes::<ControllerRevision>();
        check_sizes::<ClusterRole>();
        check_sizes::<Service>();
        check_sizes::<EndpointSlice>();
        check_sizes::<PodDisruptionBudget>();
        check_selector_alone::<PodDisruptionBudget>();
        check_sizes::<ResourceQuota>();
        for map in [r#""spec":{"hard":{|}}"#, r#""status":{"used":{|}}"#, r#""status":{"hard":{|}}"#] {
            check_size::<ResourceQuota>(map, |n| format!(r#""count/k{n}.a":"1""#));
        }
        let selector = r#""spec":{"scopeSelector":{"matchExpressions":[|]}}"#;
        let requirement = |n: usize| {
            format!(r#"{{"scopeName":"PriorityClass","operator":"NotIn","values":["class-{n}"]}}"#)
        };
        check_json::<ResourceQuota>("scopes", &object(selector, &half_a_megabyte(requirement)));
        let requests = |n: usize| format!(r#""example.com/r{n}":"1""#);
        let resources = r#""spec":{"containers":[{"resources":{"requests":{|}}}]}"#;
        check_json::<Pod>("requests", &object(resources, &half_a_megabyte(requests)));
        check_sizes::<Endpoints>();
        check_size::<Endpoints>("annotations", |n| format!(r#""k{n}":"""#));
        check_size::<Endpoints>(r#""subsets":[{"addresses":[|]}]"#, |_| r#"{"ip":"::1"}"#.to_owned());
        check_size::<Endpoints>(r#""subsets":[|]"#, |_| "{}".to_owned());
        check_sizes::<Lease>();
        check_size::<Service>(r#""spec":{"selector":{|}}"#, |n| format!(r#""k{n}":"""#));
        let port = |n: usize| format!(r#"{{"name":"p{n}","port":80,"protocol":"TCP","targetPort":"p{n}"}}"#);
        check_json::<Service>("ports", &object(r#""spec":{"ports":[|]}"#, &half_a_megabyte(port)));
        let endpoints = half_a_megabyte(|n| {
            format!(
                r#"{{"addresses":["{n}"],"conditions":{{"ready":true}},"hints":{{"forZones":[{{"name":"z{n}"}}]}}}}"#
            )
        });
        check_json::<EndpointSlice>("endpoints", &object(r#""endpoints":[|]"#, &endpoints));
        let ports = half_a_megabyte(|n| format!(r#"{{"name":"p{n}","containerPort":80,"protocol":"TCP"}}"#));
        check_json::<Pod>("ports", &object(r#""spec":{"containers":[{"ports":[|]}]}"#, &ports));
        let toleration = |n: usize| format!(r#"{{"key":"k{n}","effect":"NoExecute","operator":"Exists"}}"#);
        check_json::<Pod>(
            "tolerations",
            &object(r#""spec":{"tolerations":[|]}"#, &half_a_megabyte(toleration)),
        );
        let finalizer = |n: usize| format!(r#""a/{n}""#);
        check_size::<PersistentVolume>("finalizers", finalizer);
        check_size::<PersistentVolumeClaim>("finalizers", finalizer);
        check_size::<Namespace>("finalizers", finalizer);
        check_size::<Namespace>(r#""spec":{"finalizers":[|]}"#, finalizer);
        check_size::<ConfigMap>(r#""data":{|}"#, |n| format!(r#""k{n}":"""#));
        check_size::<ClusterRole>(r#""rules":[|]"#, |n| {
            format!(r#"{{"verbs":["a"],"nonResourceURLs":["{n}"]}}"#)
        });
        let text = "x".repeat(400_000);
        check_size::<ConfigMap>(r#""data":{|}"#, |_| format!(r#""ca.crt":"{text}""#));
        let conditions = half_a_megabyte(|n| {
            let kind = if n == 0 { "NamespaceContentRemaining" } else { "c" };
            format!(r#"{{"type":"{kind}","status":"","lastTransitionTime":null}}"#)
        });
        check_json::<Namespace>("conditions", &object(r#""status":{"conditions":[|]}"#, &conditions));
        // The claims of ephemeral volumes are named after their pod.
        let volumes = half_a_megabyte(|n| format!(r#"{{"name":"v{n}","ephemeral":{{}}}}"#));
        for name in ["a".to_owned(), "a".repeat(253)] {
            let metadata = format!(r#""name":"{name}","namespace":"b","uid":"u","resourceVersion":"1""#);
            let json = format!(r#"{{"metadata":{{{metadata}}},"spec":{{"volumes":[{volumes}]}}}}"#);
            let (took, size) = check_json::<Pod>("ephemeral volumes", &json);
            assert!(took >= size / 4, "{took} bytes for {size}");
        }
    }

    fn check_selector_alone<T: Record>() {
        let shape =
            r#""spec":{"selector":{"matchExpressions":[{"key":"k","operator":"NotIn","values":[|]}]}}"#;
        check_size::<T>(shape, |n| format!(r#""v{n}""#));
        let shape = r#""spec":{"selector":{"matchExpressions":[|]}}"#;
        check_size::<T>(shape, |n| format!(r#"{{"key":"k{n}","operator":"Exists"}}"#));
        check_size::<T>(shape, |n| format!(r#"{{"key":"k{n}","operator":"In","values":["a"]}}"#));
        check_size::<T>(r#""spec":{"selector":{"matchLabels":{|}}}"#, |n| format!(r#""k{n}":"""#));
    }

    fn check_selector<T: Record>() {
        check_selector_alone::<T>();
        // Of letters that LZ4 cannot pack.
        let mut rng = fastrand::Rng::with_seed(1);
        let mut text = || (0..40).map(|_| rng.alphanumeric()).collect::<String>();
        let texts: Vec<String> = (0..12_000).map(|_| text()).collect();
        let container = |n: usize| format!(r#"{{"name":"c{n}","image":"{}"}}"#, texts[n % texts.len()]);
        check_size::<T>(r#""spec":{"template":{"spec":{"containers":[|]}}}"#, container);
        check_size::<T>(r#""spec":{"template":{"metadata":{"labels":{|}}}}"#, |n| format!(r#""k{n}":"""#));
    }

    #[test]
    fn core_and_grouped_resources_live_under_different_roots() {
        let pods = Resource { group: "", version: "v1", kind: "Pod", plural: "pods" };
        let replica_sets =
            Resource { group: "apps", version: "v1", kind: "ReplicaSet", plural: "replicasets" };
        assert_eq!(pods.path(Some("shop")), "/api/v1/namespaces/shop/pods");
        assert_eq!(replica_sets.path(None), "/apis/apps/v1/replicasets");
        assert_eq!(pods.path_of(&ObjectKey::new("shop", "web")), "/api/v1/namespaces/shop/pods/web");
        assert_eq!(
            replica_sets.path_of(&ObjectKey::new("shop", "a")),
            "/apis/apps/v1/namespaces/shop/replicasets/a"
        );
        let nodes = Resource { group: "", version: "v1", kind: "Node", plural: "nodes" };
        assert_eq!(nodes.path_of(&ObjectKey::new("", "n1")), "/api/v1/nodes/n1");
        assert_eq!(replica_sets.api_version(), "apps/v1");
        assert_eq!(pods.api_version(), "v1");
    }
}
