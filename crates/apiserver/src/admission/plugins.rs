//! The admission plugins of a cluster that fill in what a new object lacks, or refuse it for what does not exist. Each is an
//! option, see [`Admission`].

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::kinds::{self, Kind};
use crate::names::Names;
use crate::object::{as_map, map_mut, meta, text};
use crate::options::Admission;
use crate::status::Failure;
use crate::store::{Key, Store};

/// The account of pods that name none. A controller makes it in each namespace.
const DEFAULT_ACCOUNT: &str = "default";
const MIRROR: &str = "kubernetes.io/config.mirror";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const DEFAULT_STORAGE_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const DEFAULT_INGRESS_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
/// Older than the fields for them.
const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

/// The plugins that are on, and what they look at.
pub(crate) struct Plugins<'a> {
    pub(crate) enabled: &'a [Admission],
    pub(crate) store: &'a Store,
    pub(crate) names: &'a Names,
}

impl Plugins<'_> {
    fn has(&self, plugin: Admission) -> bool {
        self.enabled.contains(&plugin)
    }

    /// A new object with defaults, which goes by this name in a refusal.
    pub(crate) fn create(&self, kind: &Kind, name: &str, object: &mut Value) -> Result<(), Failure> {
        if self.enabled.is_empty() {
            return Ok(());
        }
        match kind.storage() {
            "Pod" => self.new_pod(kind, name, object)?,
            "PriorityClass" => self.only_default(kind, name, object)?,
            "PersistentVolumeClaim" if self.has(Admission::DefaultStorageClass) => {
                self.storage_class(object);
            }
            "Ingress" if self.has(Admission::DefaultIngressClass) => self.ingress_class(object),
            _ => {}
        }
        Ok(())
    }

    /// An object with defaults that replaces another one.
    pub(crate) fn update(&self, kind: &Kind, new: &mut Value, old: &Value) -> Result<(), Failure> {
        if self.enabled.is_empty() {
            return Ok(());
        }
        match kind.storage() {
            "Pod" => {
                if self.has(Admission::Priority) {
                    let spec = map_mut(new, "spec");
                    for field in ["priority", "preemptionPolicy"] {
                        if spec.get(field).is_none() && !old["spec"][field].is_null() {
                            spec.insert(field.to_owned(), old["spec"][field].clone());
                        }
                    }
                }
                self.tolerations(new);
                Ok(())
            }
            "PriorityClass" => self.only_default(kind, meta(old, "name"), new),
            "PersistentVolumeClaim" if self.has(Admission::DefaultStorageClass) => {
                self.storage_class(new);
                Ok(())
            }
            "Ingress" if self.has(Admission::DefaultIngressClass) => {
                self.ingress_class(new);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn new_pod(&self, kind: &Kind, name: &str, pod: &mut Value) -> Result<(), Failure> {
        if self.has(Admission::ServiceAccount) && pod["metadata"]["annotations"][MIRROR].is_null() {
            self.account(kind, name, pod)?;
        }
        if self.has(Admission::Priority) {
            self.priority(kind, name, pod)?;
        }
        self.tolerations(pod);
        Ok(())
    }

    /// The pod's account exists, and its secrets for pulling images are the pod's (`plugin/pkg/admission/serviceaccount`).
    fn account(&self, kind: &Kind, name: &str, pod: &mut Value) -> Result<(), Failure> {
        let namespace = meta(pod, "namespace").to_owned();
        let spec = map_mut(pod, "spec");
        let given = spec.get("serviceAccountName").and_then(Value::as_str).unwrap_or_default();
        let wanted = if given.is_empty() { DEFAULT_ACCOUNT } else { given }.to_owned();
        for field in ["serviceAccountName", "serviceAccount"] {
            spec.insert(field.to_owned(), json!(wanted));
        }
        let Some(account) = self.store.get("ServiceAccount", &Key::new(&namespace, &wanted)) else {
            let why = format!(
                "error looking up service account {namespace}/{wanted}: serviceaccount \"{wanted}\" not found"
            );
            let refusal = Failure::forbidden(kind, name, &why);
            return Err(if wanted == DEFAULT_ACCOUNT { refusal.premature() } else { refusal });
        };
        let account = account.value();
        let secrets: Vec<Value> = account["imagePullSecrets"].as_array().cloned().unwrap_or_default();
        if !secrets.is_empty() && spec.get("imagePullSecrets").is_none_or(|own| *own == json!([])) {
            spec.insert("imagePullSecrets".to_owned(), Value::Array(secrets));
        }
        let automounts = |object: &Value| object["automountServiceAccountToken"].as_bool();
        let own = spec.get("automountServiceAccountToken").and_then(Value::as_bool);
        if self.has(Admission::TokenVolume) && own.or(automounts(&account)).unwrap_or(true) {
            self.mount_token(spec);
        }
        Ok(())
    }

    /// Mounts a token in each container that has nothing in its place.
    fn mount_token(&self, spec: &mut Map<String, Value>) {
        let volumes = spec.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
        let is_token = |volume: &&Value| text(volume, "/name").starts_with(TOKEN_VOLUME);
        let existing = volumes.iter().find(is_token).map(|volume| text(volume, "/name").to_owned());
        let is_new = existing.is_none();
        let name = existing.unwrap_or_else(|| self.names.generate(TOKEN_VOLUME));
        let mut is_mounted = false;
        for list in ["initContainers", "containers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let mounts = as_map(container).entry("volumeMounts").or_insert_with(|| json!([]));
                let Some(mounts) = mounts.as_array_mut() else { continue };
                if mounts.iter().all(|mount| mount["mountPath"] != TOKEN_PATH) {
                    mounts.push(json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH}));
                    is_mounted = true;
                }
            }
        }
        if is_new && is_mounted {
            let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
            let sources = json!([
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
            ]);
            let volume = json!({"name": name, "projected": {"sources": sources, "defaultMode": 420}});
            if let Some(volumes) = spec.entry("volumes").or_insert_with(|| json!([])).as_array_mut() {
                volumes.push(volume);
            }
        }
    }

    /// The number that the pod's class stands for (`plugin/pkg/admission/priority`).
    fn priority(&self, kind: &Kind, name: &str, pod: &mut Value) -> Result<(), Failure> {
        let spec = map_mut(pod, "spec");
        let class = match spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default() {
            "" => self.default_priority_class(),
            wanted => match self.store.get("PriorityClass", &Key::new("", wanted)) {
                Some(class) => Some(class.value()),
                None => {
                    let why = format!("no PriorityClass with name {wanted} was found");
                    return Err(Failure::forbidden(kind, name, &why));
                }
            },
        };
        let class = class.as_deref().unwrap_or(&Value::Null);
        let value = class["value"].as_i64().unwrap_or(0);
        let policy = class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority");
        let conflict = |what: &str, given: &str, computed: &str| {
            let why = format!(
                "the {what} ({given}) must not be provided in pod spec; priority admission controller computed \
                 {computed} from the given PriorityClass name"
            );
            Err(Failure::forbidden(kind, name, &why))
        };
        if let Some(given) = spec.get("priority").and_then(Value::as_i64).filter(|given| *given != value) {
            return conflict("integer value of priority", &given.to_string(), &value.to_string());
        }
        let given = spec.get("preemptionPolicy").and_then(Value::as_str);
        if let Some(given) = given.filter(|given| *given != policy) {
            return conflict("string value of PreemptionPolicy", given, policy);
        }
        if !class.is_null() {
            spec.insert("priorityClassName".to_owned(), class["metadata"]["name"].clone());
        }
        spec.insert("priority".to_owned(), json!(value));
        spec.insert("preemptionPolicy".to_owned(), json!(policy));
        Ok(())
    }

    /// Of several the one with the lowest value.
    fn default_priority_class(&self) -> Option<Arc<Value>> {
        let is_default = |class: &Arc<Value>| class["globalDefault"] == true;
        self.all("PriorityClass").filter(is_default).min_by_key(|class| class["value"].as_i64())
    }

    /// Pods of classes without a name get one class, not two.
    fn only_default(&self, kind: &Kind, name: &str, class: &Value) -> Result<(), Failure> {
        if !self.has(Admission::Priority) || class["globalDefault"] != true {
            return Ok(());
        }
        match self.default_priority_class() {
            Some(other) if meta(&other, "name") != meta(class, "name") => {
                let why = format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    meta(&other, "name")
                );
                Err(Failure::forbidden(kind, name, &why))
            }
            _ => Ok(()),
        }
    }

    /// A pod stays for five minutes on a node that is lost (`plugin/pkg/admission/defaulttolerationseconds`).
    fn tolerations(&self, pod: &mut Value) {
        if !self.has(Admission::DefaultTolerationSeconds) {
            return;
        }
        let tolerations = map_mut(pod, "spec").entry("tolerations").or_insert_with(|| json!([]));
        let Some(all) = tolerations.as_array_mut() else { return };
        let missing = TAINTS.map(|taint| {
            let is_for = |toleration: &Value| {
                let [key, effect] = ["/key", "/effect"].map(|field| text(toleration, field));
                (key.is_empty() || key == taint) && (effect.is_empty() || effect == "NoExecute")
            };
            (!all.iter().any(is_for)).then_some(taint)
        });
        for taint in missing.into_iter().flatten() {
            all.push(
                json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }

    fn storage_class(&self, claim: &mut Value) {
        let has_class = claim["spec"]["storageClassName"].is_string()
            || claim["metadata"]["annotations"][STORAGE_CLASS].is_string();
        if !has_class && let Some(name) = self.default_class("StorageClass", &DEFAULT_STORAGE_CLASS) {
            map_mut(claim, "spec").insert("storageClassName".to_owned(), name);
        }
    }

    fn ingress_class(&self, ingress: &mut Value) {
        let has_class = ingress["spec"]["ingressClassName"].is_string()
            || ingress["metadata"]["annotations"][INGRESS_CLASS].is_string();
        if !has_class && let Some(name) = self.default_class("IngressClass", &[DEFAULT_INGRESS_CLASS]) {
            map_mut(ingress, "spec").insert("ingressClassName".to_owned(), name);
        }
    }

    /// The newest class with one of these annotations; of several the first by name.
    fn default_class(&self, kind: &str, annotations: &[&str]) -> Option<Value> {
        let is_default = |class: &Arc<Value>| {
            annotations.iter().any(|annotation| class["metadata"]["annotations"][*annotation] == "true")
        };
        let age = |class: &Arc<Value>| {
            let [created, name] = ["creationTimestamp", "name"].map(|field| meta(class, field).to_owned());
            (Reverse(created), name)
        };
        let class = self.all(kind).filter(is_default).min_by_key(age)?;
        Some(class["metadata"]["name"].clone())
    }

    fn all(&self, kind: &str) -> impl Iterator<Item = Arc<Value>> + use<> {
        let listed = self.store.list(kind, "", None, None).map(|listed| listed.objects).unwrap_or_default();
        listed.into_iter().map(|(_, object)| object.peek())
    }
}

/// The classes that every cluster has, for pods that it cannot do without.
pub(crate) fn system_classes() -> [(&'static Kind, Value); 2] {
    let class = |name: &str, value: i64, description: &str| {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": description,
        });
        (kinds::named("PriorityClass"), class)
    };
    [
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ]
}
