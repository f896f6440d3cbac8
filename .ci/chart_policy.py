"""Evaluates the admission policies for requests with CEL's own engine: all that are rendered for a set of controllers,
as an API server does, which refuses what one of them refuses. The sandbox stores policies and does not evaluate them;
tests/real_server/daemon_policy.rs tests them on a real API server, where there is one."""

import copy

from cel_expr_python import cel

USER = "system:serviceaccount:kube-system:windlass"
# The libraries of an API server that the policy uses.
LIBRARIES = cel.NewEnvConfigFromYaml("{name: policy, extensions: [{name: optional}, {name: strings}]}")
NAMES = ("namespaceObject", "object", "oldObject", "request", "variables")


def owner(kind, api_version="apps/v1", controller=True):
    return {"apiVersion": api_version, "kind": kind, "name": "o", "uid": f"uid-of-{kind}", "controller": controller}


def pod(owners=(), **metadata):
    metadata = {"name": "one", "namespace": "default", **metadata}
    if owners:
        metadata["ownerReferences"] = list(owners)
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "app:1"}]}}


def scaled(owners=(), replicas=1, image="app:1", **metadata):
    """A ReplicaSet or Deployment."""
    template = {"spec": {"containers": [{"name": "c", "image": image}]}}
    return pod(owners, **metadata) | {"spec": {"replicas": replicas, "template": template}}


def revision(owners=(), data=None, number=1):
    """A ControllerRevision."""
    metadata = pod(owners)["metadata"]
    data = data or {"spec": {"template": {"$patch": "replace", "spec": {"containers": []}}}}
    return {"metadata": metadata, "data": data, "revision": number}


def claim(owners=(), name="data-db-0", storage="1Gi", **metadata):
    """A PersistentVolumeClaim."""
    return pod(owners, name=name, **metadata) | {"spec": {"resources": {"requests": {"storage": storage}}}}


REPLICA_SET, DEPLOYMENT, STATEFUL_SET = owner("ReplicaSet"), owner("Deployment"), owner("StatefulSet")
DAEMON_SET, POD = owner("DaemonSet"), owner("Pod", "v1")
# Somebody else's, unless Windlass runs Jobs.
JOB = owner("Job", "batch/v1")
CRON_JOB = owner("CronJob", "batch/v1")
LABELED = {"labels": {"app": "a"}, "annotations": {"note": "n"}, "finalizers": ["example.com/f"]}


def labeled(**changed):
    return copy.deepcopy(LABELED) | changed


MORE = {"labels": {"app": "a", "mesh": "on"}, "annotations": {"note": "n", "seen": "1"},
        "finalizers": ["example.com/g", "example.com/f"]}
ONLY_CONTROLLED, ONLY_OWNERS = "only objects controlled by", "only the owner references"
CLAIM_OWNER, ONLY_REFERENCES_OF_CLAIMS = "created without an owner", "of a PersistentVolumeClaim only owner references"
PROTECTED = {"finalizers": ["kubernetes.io/pvc-protection"]}
OF_STATEFUL_SETS = ["controller-revision-hash", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"]
ON_FAILURE = {"annotations": {"windlass.dev/on-failure": "rollback"}}
ROLLBACK = {"annotations": {"deprecated.deployment.rollback.to": "1"}}

# A title, the resource, the object before and after (of a connection, its options), and what the error contains; None: the request is allowed.
REQUESTS = [
    ("creates a pod of a ReplicaSet", "pods", None, pod([REPLICA_SET]), None),
    ("creates a pod of a ReplicationController", "pods", None, pod([owner("ReplicationController", "v1")]), None),
    ("creates a bare pod", "pods", None, pod(), ONLY_CONTROLLED),
    ("creates a pod that a ReplicaSet owns but does not control", "pods", None,
     pod([owner("ReplicaSet", controller=False)]), ONLY_CONTROLLED),
    ("creates a pod of a Job", "pods", None, pod([JOB]), ONLY_CONTROLLED),
    ("deletes a pod of a ReplicaSet", "pods", pod([REPLICA_SET]), None, None),
    ("deletes a bare pod", "pods", pod(), None, ONLY_CONTROLLED),
    ("adopts a pod", "pods", pod(), pod([REPLICA_SET]), None),
    ("adopts a pod with labels", "pods", pod(**LABELED), pod([REPLICA_SET], **LABELED), None),
    ("releases a pod", "pods", pod([REPLICA_SET], **LABELED), pod(**LABELED), None),
    ("releases a pod of a Job", "pods", pod([JOB]), pod(), ONLY_CONTROLLED),
    ("adopts a pod while a webhook adds metadata", "pods", pod(**LABELED), pod([REPLICA_SET], **MORE), None),
    ("releases a pod while a webhook adds metadata", "pods", pod([REPLICA_SET], **LABELED), pod(**MORE), None),
    ("adopts a pod without metadata while a webhook adds some", "pods", pod(), pod([REPLICA_SET], **MORE), None),
    ("changes a label", "pods", pod([REPLICA_SET], **LABELED), pod([REPLICA_SET], **labeled(labels={"app": "b"})), ONLY_OWNERS),
    ("removes a label", "pods", pod(**LABELED), pod([REPLICA_SET], **labeled(labels={})), ONLY_OWNERS),
    ("removes all labels", "pods", pod(labels={"app": "a"}), pod([REPLICA_SET]), ONLY_OWNERS),
    ("replaces a label with another", "pods", pod(**LABELED), pod([REPLICA_SET], **labeled(labels={"b": "a"})), ONLY_OWNERS),
    ("changes an annotation", "pods", pod(**LABELED), pod([REPLICA_SET], **labeled(annotations={"note": "m"})), ONLY_OWNERS),
    ("removes all annotations", "pods", pod(annotations={"note": "n"}), pod([REPLICA_SET]), ONLY_OWNERS),
    ("removes a finalizer", "pods", pod(**LABELED), pod([REPLICA_SET], **labeled(finalizers=["example.com/g"])), ONLY_OWNERS),
    ("removes all finalizers", "pods", pod([REPLICA_SET], finalizers=["example.com/f"]), pod([REPLICA_SET]), ONLY_OWNERS),
    ("changes the spec of a pod", "pods", pod([REPLICA_SET]), pod([REPLICA_SET]) | {"spec": {"containers": []}}, ONLY_OWNERS),
    ("creates a pod of a DaemonSet", "pods", None, pod([DAEMON_SET]), None),
    ("deletes a pod of a DaemonSet", "pods", pod([DAEMON_SET]), None, None),
    ("changes the revision label of a pod of a DaemonSet", "pods",
     pod([DAEMON_SET], labels={"controller-revision-hash": "a"}), pod([DAEMON_SET], labels={"controller-revision-hash": "b"}), None),
    ("changes the revision label of a pod of a ReplicaSet", "pods",
     pod([REPLICA_SET], labels={"controller-revision-hash": "a"}), pod([REPLICA_SET], labels={"controller-revision-hash": "b"}), ONLY_OWNERS),
    ("changes another label of a pod of a DaemonSet", "pods", pod([DAEMON_SET], labels={"app": "a"}),
     pod([DAEMON_SET], labels={"app": "b"}), ONLY_OWNERS),
    ("creates a pod of a StatefulSet", "pods", None, pod([STATEFUL_SET]), None),
    ("deletes a pod of a StatefulSet", "pods", pod([STATEFUL_SET]), None, None),
    ("releases a pod of a StatefulSet", "pods", pod([STATEFUL_SET], **LABELED), pod(**LABELED), None),
    *((f"corrects the label {label} of a pod of a StatefulSet", "pods", pod([STATEFUL_SET], labels={label: "a"}),
       pod([STATEFUL_SET], labels={label: "b"}), None) for label in OF_STATEFUL_SETS),
    *((f"changes the label {label} of a pod of a DaemonSet", "pods", pod([DAEMON_SET], labels={label: "a"}),
       pod([DAEMON_SET], labels={label: "b"}), ONLY_OWNERS) for label in OF_STATEFUL_SETS[1:]),
    ("changes another label of a pod of a StatefulSet", "pods", pod([STATEFUL_SET], labels={"app": "a"}),
     pod([STATEFUL_SET], labels={"app": "b"}), ONLY_OWNERS),
    ("creates a claim without an owner", "persistentvolumeclaims", None, claim(), None),
    ("creates a claim of a StatefulSet", "persistentvolumeclaims", None, claim([STATEFUL_SET]), None),
    ("creates a claim that a StatefulSet owns but does not control", "persistentvolumeclaims", None,
     claim([owner("StatefulSet", controller=False)]), CLAIM_OWNER),
    ("creates a claim of a StatefulSet and another owner", "persistentvolumeclaims", None,
     claim([STATEFUL_SET, owner("ConfigMap", "v1", controller=False)]), CLAIM_OWNER),
    ("creates a claim of a StatefulSet of another group", "persistentvolumeclaims", None,
     claim([owner("StatefulSet", "apps.example.com/v1")]), CLAIM_OWNER),
    ("creates a claim of a pod", "persistentvolumeclaims", None, claim([POD]), CLAIM_OWNER),
    ("lets a claim go with its StatefulSet", "persistentvolumeclaims", claim(**LABELED), claim([STATEFUL_SET], **LABELED), None),
    ("lets a claim go with its pod", "persistentvolumeclaims", claim([JOB, STATEFUL_SET]), claim([JOB, POD]), None),
    ("keeps a claim", "persistentvolumeclaims", claim([POD]), claim(), None),
    ("makes the StatefulSet the controller of a claim", "persistentvolumeclaims",
     claim([owner("StatefulSet", controller=False)]), claim([STATEFUL_SET]), None),
    ("gives a claim another owner", "persistentvolumeclaims", claim(), claim([JOB]), ONLY_REFERENCES_OF_CLAIMS),
    ("gives a claim an owner of another group", "persistentvolumeclaims", claim(), claim([owner("Pod", "example.com/v1")]),
     ONLY_REFERENCES_OF_CLAIMS),
    ("removes the owner of a claim", "persistentvolumeclaims", claim([JOB]), claim(), ONLY_REFERENCES_OF_CLAIMS),
    ("lets another owner of a claim control it", "persistentvolumeclaims",
     claim([owner("Job", "batch/v1", controller=False)]), claim([JOB]), ONLY_REFERENCES_OF_CLAIMS),
    ("gives a claim an owner whose name is none of a StatefulSet's claim", "persistentvolumeclaims",
     claim(name="backup-2026"), claim([POD], name="backup-2026"), ONLY_REFERENCES_OF_CLAIMS),
    ("resizes a claim", "persistentvolumeclaims", claim(), claim([STATEFUL_SET], storage="9Gi"), ONLY_REFERENCES_OF_CLAIMS),
    ("labels a claim", "persistentvolumeclaims", claim(), claim([STATEFUL_SET], labels={"app": "a"}), ONLY_REFERENCES_OF_CLAIMS),
    ("annotates a claim", "persistentvolumeclaims", claim(), claim([STATEFUL_SET], annotations={"note": "n"}),
     ONLY_REFERENCES_OF_CLAIMS),
    ("adds a finalizer to a claim", "persistentvolumeclaims", claim(), claim(finalizers=["example.com/f"]),
     ONLY_REFERENCES_OF_CLAIMS),
    ("creates a revision of a DaemonSet", "controllerrevisions", None, revision([DAEMON_SET]), None),
    ("creates a revision of a StatefulSet", "controllerrevisions", None, revision([STATEFUL_SET]), None),
    ("creates a revision of a Deployment", "controllerrevisions", None, revision([DEPLOYMENT]), ONLY_CONTROLLED),
    ("creates a bare revision", "controllerrevisions", None, revision(), ONLY_CONTROLLED),
    ("creates a revision without a template", "controllerrevisions", None, revision([DAEMON_SET], {"spec": {}}),
     "must contain the template"),
    ("raises the number of a revision", "controllerrevisions", revision([DAEMON_SET]),
     revision([DAEMON_SET], number=2), None),
    ("adopts a revision", "controllerrevisions", revision(), revision([DAEMON_SET]), None),
    ("releases a revision", "controllerrevisions", revision([DAEMON_SET]), revision(), None),
    ("takes over a revision of somebody else", "controllerrevisions", revision([JOB]), revision([STATEFUL_SET]),
     ONLY_CONTROLLED),
    ("deletes a revision", "controllerrevisions", revision([DAEMON_SET]), None, None),
    ("deletes a revision of somebody else", "controllerrevisions", revision([JOB]), None, ONLY_CONTROLLED),
    ("creates a ReplicaSet of a Deployment", "replicasets", None, scaled([DEPLOYMENT]), None),
    ("creates a bare ReplicaSet", "replicasets", None, scaled(), ONLY_CONTROLLED),
    ("creates a ReplicaSet of a ReplicaSet", "replicasets", None, scaled([REPLICA_SET]), ONLY_CONTROLLED),
    ("scales a ReplicaSet", "replicasets", scaled([DEPLOYMENT]), scaled([DEPLOYMENT], 2, labels={"a": "b"}), None),
    ("scales a bare ReplicaSet", "replicasets", scaled(), scaled(replicas=2), ONLY_CONTROLLED),
    ("changes the template of a ReplicaSet", "replicasets", scaled([DEPLOYMENT]), scaled([DEPLOYMENT], image="own:1"),
     "may not be changed"),
    ("rolls a Deployment back", "deployments", scaled(**ROLLBACK), scaled(image="app:0"), None),
    ("changes a Deployment without its annotation", "deployments", scaled(), scaled(image="own:1"), "only be rolled back"),
    ("rolls back after a failure", "deployments", scaled(**ON_FAILURE), scaled(image="app:0", **ON_FAILURE), None),
    ("adds the annotation itself", "deployments", scaled(), scaled(image="own:1", **ROLLBACK), "only be rolled back"),
    ("rolls back and scales", "deployments", scaled(**ROLLBACK), scaled(replicas=9), "replicas of a Deployment"),
]
# Without the garbage collector, which deletes what has an owner, and without the protection of claims.
ALONE = [
    ("deletes a claim of a StatefulSet", "persistentvolumeclaims", claim([STATEFUL_SET]), None, "may not be deleted"),
    ("protects a claim", "persistentvolumeclaims", claim(), claim(**PROTECTED), ONLY_REFERENCES_OF_CLAIMS),
    ("releases a claim", "persistentvolumeclaims", claim(**PROTECTED), claim(), ONLY_REFERENCES_OF_CLAIMS),
]
# Changes that the status subresource lets through: all of the metadata.
BY_STATUS = "may not be changed through the status"
GONE = owner("ConfigMap", "v1", controller=False)
OF_STATUS = [
    (f"{what} of {plural}", f"{plural}/status", scaled(owners, **before), scaled(after_owners, **after) | {"status": {}}, words)
    for plural in ("deployments", "replicasets", "daemonsets", "statefulsets", "replicationcontrollers")
    for what, owners, before, after_owners, after, words in [
        ("writes the status", [JOB], LABELED, [JOB], LABELED, None),
        ("writes the status without any metadata", [], {}, [], {}, None),
        ("adds an owner that does not exist by the status", [], LABELED, [GONE], LABELED, BY_STATUS),
        ("takes over by the status", [JOB], LABELED, [DEPLOYMENT], LABELED, BY_STATUS),
        ("removes the owner by the status", [JOB], LABELED, [], LABELED, BY_STATUS),
        ("adds a finalizer by the status", [], {}, [], {"finalizers": ["example.com/f"]}, BY_STATUS),
        ("removes a finalizer by the status", [], LABELED, [], labeled(finalizers=[]), BY_STATUS),
        ("annotates by the status", [], LABELED, [], labeled(annotations={"note": "m"}), BY_STATUS),
        ("labels by the status", [], {}, [], {"labels": {"app": "b"}}, BY_STATUS),
    ]]
REVISION = {"deployment.kubernetes.io/revision": "2"}
OF_STATUS += [(what, f"{plural}/status", scaled(annotations=before), scaled(annotations=after), words)
              for what, plural, before, after, words in [
    ("writes the revision of a Deployment with its status", "deployments", {"note": "n"}, {"note": "n"} | REVISION, None),
    ("writes the first annotation of a Deployment, its revision", "deployments", {}, REVISION, None),
    ("writes a revision and another annotation", "deployments", {}, REVISION | {"note": "n"}, BY_STATUS),
    ("writes a revision and removes an annotation", "deployments", {"note": "n"}, REVISION, BY_STATUS),
    ("writes a revision and empties an annotation", "deployments", {"note": "n"}, REVISION | {"note": ""}, BY_STATUS),
    ("adds an empty annotation", "deployments", {}, {"note": ""}, BY_STATUS),
    ("writes the revision of a ReplicaSet", "replicasets", {}, REVISION, BY_STATUS),
]]


LIVING, DYING = {"metadata": {}}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
ONLY_DYING = "only namespaces that are being deleted"

# The same, with the namespace, where the namespace controller runs.
IN_NAMESPACES = [
    ("deletes a Secret of a namespace that is being deleted", "secrets", pod(), None, DYING, None),
    ("deletes a Secret of a living namespace", "secrets", pod(), None, LIVING, ONLY_DYING),
    ("deletes a Node", "nodes", pod(), None, None, ONLY_DYING),
    ("finalizes a namespace that is being deleted", "namespaces/finalize", DYING, DYING, DYING, None),
    ("finalizes a living namespace", "namespaces/finalize", LIVING, LIVING, LIVING, ONLY_DYING),
    ("labels a namespace by its status", "namespaces/status", DYING, {"metadata": DYING["metadata"] | {"labels": {"a": "b"}}}, DYING,
     "their metadata stay"),
    ("writes the status of a namespace", "namespaces/status", DYING, DYING | {"status": {}}, DYING, None),
    ("deletes a bare pod of a living namespace", "pods", pod(), None, LIVING, ONLY_CONTROLLED),
    ("deletes a ReplicationController of a living namespace", "replicationcontrollers", scaled(), None, LIVING, ONLY_DYING),
]

# GET and DELETE on `*` are rights to these, too.
CONNECTIONS = [(f"connects to {resource}", resource, None, {"path": "/"}, "no connections may be opened")
               for resource in ("nodes/proxy", "pods/proxy", "services/proxy", "pods/exec", "pods/portforward")]

OWNED_BY_A_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "m"}
BLOCKING = OWNED_BY_A_MAP | {"blockOwnerDeletion": True}
COLLECTED, ONLY_REFERENCES = "only objects that have an owner", "only references to owners may be removed"


def of_uuid(number):
    return OWNED_BY_A_MAP | {"uid": f"c0000000-0000-4000-8000-{number:012}"}


def ending(finalizers):
    """A Secret that is being deleted."""
    return pod(finalizers=finalizers, deletionTimestamp="2026-01-01T00:00:00Z")


# Where the garbage collector runs.
OF_THE_COLLECTOR = [
    ("deletes a Secret that a ConfigMap owns", "secrets", pod([OWNED_BY_A_MAP]), None, None),
    ("deletes a Secret that nobody owns", "secrets", pod(), None, COLLECTED),
    ("deletes a pod that a ConfigMap owns", "pods", pod([OWNED_BY_A_MAP]), None, None),
    ("deletes a bare pod", "pods", pod(), None, ONLY_CONTROLLED),
    ("removes a reference to a ConfigMap from a pod", "pods", pod([OWNED_BY_A_MAP]), pod(), None),
    ("creates a pod of a ConfigMap", "pods", None, pod([OWNED_BY_A_MAP]), ONLY_CONTROLLED),
    ("ends the foreground deletion of a Deployment", "deployments",
     scaled() | {"metadata": DYING["metadata"] | {"finalizers": ["foregroundDeletion"]}}, scaled() | DYING, None),
    ("changes the template of a Deployment that is being deleted", "deployments",
     scaled() | DYING, scaled(image="own:1") | DYING, "only be rolled back"),
    ("changes the image of a pod of a ConfigMap", "pods", pod([OWNED_BY_A_MAP]), pod([OWNED_BY_A_MAP]) | {"spec": {}},
     ONLY_CONTROLLED),
    ("scales a ReplicaSet of a ConfigMap", "replicasets", scaled([OWNED_BY_A_MAP]), scaled([OWNED_BY_A_MAP], 2), ONLY_CONTROLLED),
    ("orphans a ReplicaSet of a ConfigMap", "replicasets", scaled([OWNED_BY_A_MAP]), scaled(), None),
    ("orphans a revision of a Job", "controllerrevisions", revision([JOB], {"other": 1}), revision(data={"other": 1}), None),
    ("changes the number of a revision of a Job", "controllerrevisions", revision([JOB]), revision([JOB], number=2),
     ONLY_CONTROLLED),
    ("changes the data of a revision of a Job", "controllerrevisions", revision([JOB]), revision(data={"other": 1}),
     ONLY_CONTROLLED),
    ("deletes a claim of a StatefulSet", "persistentvolumeclaims", claim([STATEFUL_SET]), None, None),
    ("removes the owner of a claim", "persistentvolumeclaims", claim([JOB]), claim(), None),
    ("ends the orphaning deletion of a claim", "persistentvolumeclaims",
     claim(finalizers=["orphan"], **DYING["metadata"]), claim(finalizers=[], **DYING["metadata"]), None),
    ("removes a reference from a Secret", "secrets", pod([OWNED_BY_A_MAP, STATEFUL_SET], **LABELED),
     pod([STATEFUL_SET], **LABELED), None),
    ("removes all references from a Secret", "secrets", pod([OWNED_BY_A_MAP], **LABELED), pod(**LABELED), None),
    ("removes one of two UUIDs that begin alike", "secrets", pod([of_uuid(1), of_uuid(2)]), pod([of_uuid(2)]), None),
    ("exchanges a UUID", "secrets", pod([of_uuid(1), of_uuid(2)]), pod([of_uuid(1), of_uuid(3)]), ONLY_REFERENCES),
    ("lets the owner with a UUID block no more", "secrets", pod([of_uuid(1) | {"blockOwnerDeletion": True}]),
     pod([of_uuid(1)]), None),
    ("lets the owner with a UUID block", "secrets", pod([of_uuid(1)]),
     pod([of_uuid(1) | {"blockOwnerDeletion": True}]), ONLY_REFERENCES),
    ("lets a Secret block no more", "secrets", pod([BLOCKING]), pod([BLOCKING | {"blockOwnerDeletion": False}]), None),
    ("lets a Secret block", "secrets", pod([OWNED_BY_A_MAP]), pod([BLOCKING]), ONLY_REFERENCES),
    ("gives a Secret an owner", "secrets", pod(), pod([OWNED_BY_A_MAP]), ONLY_REFERENCES),
    ("gives a Secret another owner", "secrets", pod([OWNED_BY_A_MAP]), pod([OWNED_BY_A_MAP | {"uid": "n"}]), ONLY_REFERENCES),
    ("makes an owner the controller", "secrets", pod([OWNED_BY_A_MAP]), pod([OWNED_BY_A_MAP | {"controller": True}]),
     ONLY_REFERENCES),
    ("removes a reference and changes a label", "secrets", pod([OWNED_BY_A_MAP], **LABELED),
     pod(**labeled(labels={"app": "b"})), ONLY_REFERENCES),
    ("labels a Namespace", "namespaces", LIVING, pod(labels={"pod-security.kubernetes.io/enforce": "privileged"}),
     ONLY_REFERENCES),
    ("annotates a Secret", "secrets", pod(), pod(annotations={"note": "n"}), ONLY_REFERENCES),
    ("changes a Secret", "secrets", pod() | {"data": {"a": "b"}}, pod() | {"data": {"a": "c"}}, ONLY_REFERENCES),
    ("adds a key to a Secret", "secrets", pod(), pod() | {"data": {"a": "c"}}, ONLY_REFERENCES),
    ("empties a Secret", "secrets", pod() | {"data": {"a": "c"}}, pod(), ONLY_REFERENCES),
    ("ends an orphaning deletion", "secrets", ending(["orphan"]), ending([]), None),
    ("ends one and leaves a finalizer", "secrets", ending(["orphan", "example.com/f"]), ending(["example.com/f"]), None),
    ("removes the finalizer of somebody else", "secrets", ending(["orphan", "example.com/f"]), ending([]), ONLY_REFERENCES),
    ("adds a finalizer", "secrets", ending([]), ending(["example.com/f"]), ONLY_REFERENCES),
    ("removes `orphan` from a living object", "secrets", pod(finalizers=["orphan"]), pod(), ONLY_REFERENCES),
    ("changes the status of a pod", "pods/status", pod([REPLICA_SET]), pod([REPLICA_SET]) | {"status": {"phase": "x"}},
     ONLY_REFERENCES),
    ("adds a container to a running pod", "pods/ephemeralcontainers", pod([REPLICA_SET]), pod([REPLICA_SET]), ONLY_REFERENCES),
    ("scales a Deployment", "deployments/scale", scaled(), scaled(replicas=2), ONLY_REFERENCES),
    ("writes the status of a Deployment", "deployments/status", scaled(), scaled() | {"status": {"replicas": 2}}, None),
    ("writes the status of a Job", "jobs/status", scaled(), scaled() | {"status": {}}, ONLY_REFERENCES),
    ("counts an event", "events", pod(), pod() | {"count": 2}, None),
    ("renews its Lease", "leases", pod(name="windlass", namespace="kube-system"),
     pod(name="windlass", namespace="kube-system") | {"spec": {"renewTime": "now"}}, None),
    ("renews the Lease of another", "leases", pod(name="other", namespace="kube-system"),
     pod(name="other", namespace="kube-system") | {"spec": {"renewTime": "now"}}, ONLY_REFERENCES),
]

TRACKED = {"finalizers": ["batch.kubernetes.io/job-tracking"]}


def job(owners=(), ttl=None, **metadata):
    """A Job."""
    return pod(owners, **metadata) | {"spec": {} if ttl is None else {"ttlSecondsAfterFinished": ttl}}


# Where CronJobs and expired Jobs are looked after, as by default.
OF_SCHEDULES = [
    ("creates a Job of a CronJob", "jobs", None, job([CRON_JOB]), None),
    ("creates a bare Job", "jobs", None, job(), ONLY_CONTROLLED),
    ("creates a Job of a Deployment", "jobs", None, job([DEPLOYMENT]), ONLY_CONTROLLED),
    ("deletes a Job of a CronJob", "jobs", job([CRON_JOB]), None, None),
    ("deletes a Job that may expire", "jobs", job(ttl=0), None, None),
    ("deletes a Job that never expires", "jobs", job(), None, ONLY_CONTROLLED),
    ("writes the status of a CronJob", "cronjobs/status", pod(**LABELED), pod(**LABELED) | {"status": {}}, None),
    ("labels a CronJob by its status", "cronjobs/status", pod(), pod(**LABELED), BY_STATUS),
]
# Where Jobs are run.
OF_JOBS = [
    ("creates a pod of a Job", "pods", None, pod([JOB], **TRACKED), None),
    ("deletes a pod of a Job", "pods", pod([JOB]), None, None),
    ("deletes a bare pod", "pods", pod(), None, ONLY_CONTROLLED),
    ("adopts a pod for a Job", "pods", pod(**LABELED), pod([JOB], **labeled(finalizers=["example.com/f", *TRACKED["finalizers"]])), None),
    ("counts a pod of a Job", "pods", pod([JOB], **TRACKED), pod([JOB]), None),
    ("releases a pod of a Job", "pods", pod([JOB], **TRACKED), pod(), None),
    ("takes the mark off an orphan", "pods", pod(**TRACKED), pod(), None),
    ("takes another finalizer off an orphan", "pods", pod(**LABELED), pod(**labeled(finalizers=[])), ONLY_CONTROLLED),
    ("takes the mark off an orphan and changes its spec", "pods", pod(**TRACKED), pod() | {"spec": {}}, ONLY_OWNERS),
    ("takes the mark and the owner off a pod of somebody else", "pods", pod([owner("Workflow", "example.com/v1")], **TRACKED),
     pod(), ONLY_CONTROLLED),
    ("writes the status of a Job", "jobs/status", job(), job() | {"status": {}}, None),
    ("gives a Job an owner by its status", "jobs/status", job(), job([CRON_JOB]), BY_STATUS),
]
# Where the pod garbage collector runs.
OF_THE_POD_COLLECTOR = [
    ("deletes a bare pod", "pods", pod(), None, None),
    ("marks a pod as failed", "pods/status", pod(), pod() | {"status": {"phase": "Failed"}}, None),
    ("labels a pod by its status", "pods/status", pod(), pod(**LABELED), BY_STATUS),
    ("creates a bare pod", "pods", None, pod(), ONLY_CONTROLLED),
]

# The same for nodes, beside the garbage collector.
OF_NODES = [
    ("taints a node", "nodes", pod(), pod() | {"spec": {"unschedulable": True}}, None),
    ("reports that a node is silent", "nodes/status", pod(), pod() | {"status": {"phase": "Unknown"}}, None),
]

# Objects that the controllers of a test bed write, beside the garbage collector.
OF_A_TEST_BED = [
    ("protects a claim", "persistentvolumeclaims", claim(name="data"), claim(name="data", **PROTECTED), None),
    ("releases a claim", "persistentvolumeclaims", claim(**labeled(finalizers=[*PROTECTED["finalizers"], "example.com/f"])),
     claim(**LABELED), None),
    ("removes another finalizer of a claim", "persistentvolumeclaims", claim(**LABELED), claim(**labeled(finalizers=[])),
     ONLY_REFERENCES_OF_CLAIMS),
    ("resizes a claim that it protects", "persistentvolumeclaims", claim(), claim(storage="9Gi", **PROTECTED),
     ONLY_REFERENCES_OF_CLAIMS),
    ("releases a volume", "persistentvolumes", pod(**PROTECTED), pod(), None),
    ("repairs the certificate of a namespace", "configmaps", pod(name="kube-root-ca.crt"),
     pod(name="kube-root-ca.crt") | {"data": {}}, None),
    ("changes another ConfigMap", "configmaps", pod(), pod() | {"data": {}}, ONLY_REFERENCES),
    ("aggregates a role", "clusterroles", pod(), pod() | {"rules": []}, None),
]


REQUESTED = {"annotations": {"windlass.dev/rolling-update-to": "next"}}
SOURCE = {"annotations": {"kubectl.kubernetes.io/update-source-id": "web:1"}}
ONLY_RESIZED, ONLY_FIELDS = "only be resized in a rolling update", "only replicas, selector, template"
ONLY_A_USER = "only a user requests"
NO_TEMPLATE = {"spec": {"replicas": 1, "template": {}, "minReadySeconds": 9}}

# The same for ReplicationControllers.
OF_ROLLING_UPDATES = [
    ("resizes the old one of an update", scaled(**REQUESTED), scaled(replicas=2, **REQUESTED), None),
    ("resizes the new one of an update", scaled(**SOURCE), scaled(replicas=2, **SOURCE), None),
    ("hands the template over", scaled(**REQUESTED), scaled(image="app:2", **REQUESTED), None),
    ("gives the new one another image", scaled(**SOURCE), scaled(image="app:2", **SOURCE), ONLY_A_USER),
    ("requests an update", scaled(), scaled(**REQUESTED), ONLY_A_USER),
    ("requests an update of another one", scaled(**REQUESTED),
     scaled(annotations={"windlass.dev/rolling-update-to": "other"}), ONLY_A_USER),
    ("requests a rollback", scaled(**REQUESTED),
     scaled(annotations=REQUESTED["annotations"] | {"windlass.dev/rolling-update-rollback": "true"}), ONLY_A_USER),
    ("removes the request", scaled(**REQUESTED), scaled(), None),
    ("writes the size to return to", scaled(**REQUESTED),
     scaled(annotations=REQUESTED["annotations"] | {"kubectl.kubernetes.io/original-replicas": "3"}), None),
    ("makes another one the target", scaled(), scaled(**SOURCE), ONLY_A_USER),
    ("writes it and resizes", scaled(), scaled(replicas=2, **SOURCE), ONLY_RESIZED),
    ("resizes another one", scaled(), scaled(replicas=2), ONLY_RESIZED),
    ("requests an update itself and resizes", scaled(), scaled(replicas=2, **REQUESTED), ONLY_RESIZED),
    ("changes a label", scaled(**REQUESTED), scaled(labels={"a": "b"}, **REQUESTED), ONLY_FIELDS),
    ("changes minReadySeconds", scaled(**REQUESTED), scaled(**REQUESTED) | NO_TEMPLATE, ONLY_FIELDS),
    ("deletes the old one at 0", scaled(replicas=0, **REQUESTED), None, None),
    ("deletes the new one at 0", scaled(replicas=0, **SOURCE), None, None),
    ("deletes one with replicas", scaled(**REQUESTED), None, ONLY_RESIZED),
    ("deletes another one at 0", scaled(replicas=0), None, ONLY_RESIZED),
]


# The API groups of the resources in these tests; the others are in the core group.
GROUPS = {"apps": ("replicasets", "controllerrevisions", "deployments", "daemonsets", "statefulsets"),
          "batch": ("jobs", "cronjobs"), "coordination.k8s.io": ("leases",), "rbac.authorization.k8s.io": ("clusterroles",)}


def requested(resource, before, after, user):
    """A request as policies see it: what is empty is absent. The name of a subresource follows a slash."""
    plural, _, subresource = resource.partition("/")
    group = next((group for group, plurals in GROUPS.items() if plural in plurals), "")
    connects = subresource in ("proxy", "exec", "attach", "portforward")
    operation = "CONNECT" if connects else "CREATE" if before is None else "DELETE" if after is None else "UPDATE"
    request = {"operation": operation, "resource": {"group": group, "version": "v1", "resource": plural},
               "userInfo": {"username": user}}
    metadata = (before or after).get("metadata", {})
    named = {"subResource": subresource, "name": metadata.get("name"), "namespace": metadata.get("namespace")}
    return request | {key: text for key, text in named.items() if text}


def applies(spec, request):
    """Whether a policy matches the resource and the operation of a request."""
    place, subresource = request["resource"], request.get("subResource")
    name = place["resource"] + (f"/{subresource}" if subresource else "")
    names = {name, "*/*"} | (set() if subresource else {"*"})
    return any(
        {place["group"], "*"} & set(rule["apiGroups"]) and {place["version"], "*"} & set(rule["apiVersions"])
        and {request["operation"], "*"} & set(rule["operations"]) and names & set(rule["resources"])
        for rule in spec["matchConstraints"]["resourceRules"])


def refusal(policies, resource, before, after, user=USER, namespace=LIVING):
    """The error message of the first policy that refuses, or None."""
    request = requested(resource, before, after, user)
    for policy in policies:
        if applies(policy["spec"], request):
            message = refusal_by(policy["spec"], request, before, after, namespace)
            if message is not None:
                return message
    return None


def refusal_by(spec, request, before, after, namespace):
    """The error message of one policy, or None. An evaluation error is a refusal, as with `failurePolicy: Fail`."""
    data = {"namespaceObject": namespace, "object": after, "oldObject": before, "request": request, "variables": {}}
    environment = cel.NewEnv(config=LIBRARIES, variables={name: cel.Type.DYN for name in NAMES})

    def evaluate(expression):
        return environment.compile(expression).eval(data=data).plain_value()

    if not all(evaluate(condition["expression"]) is True for condition in spec["matchConditions"]):
        return None
    for variable in spec.get("variables", []):
        data["variables"][variable["name"]] = evaluate(variable["expression"])
    for validation in spec["validations"]:
        if evaluate(validation["expression"]) is not True:
            return evaluate(validation["messageExpression"]) if "messageExpression" in validation else validation["message"]
    return None


def check(policies, title, requests, check_that):
    """Judges requests by all policies of a set of controllers, for the daemon and for another user."""
    for what, resource, before, after, *namespace, words in requests:
        namespace = namespace[0] if namespace else LIVING
        message = refusal(policies, resource, before, after, namespace=namespace)
        check_that((message is None) == (words is None) and (words or "") in (message or ""), f"{title}: {what}: {message}")
        message = refusal(policies, resource, before, after, user="system:admin", namespace=namespace)
        check_that(message is None, f"{title}: {what}, by another user: {message}")


def allowed(requests):
    return [request for request in requests if request[-1] is None]


def dying(requests):
    """The deletions among them, in a namespace that is being deleted: all are allowed."""
    return [(f"{what}, in a namespace that is being deleted", resource, before, None, DYING, None)
            for what, resource, before, after, _ in requests if after is None]


ROLLING_UPDATES = [(what, "replicationcontrollers", before, after, words) for what, before, after, words in OF_ROLLING_UPDATES]
TEST_BED = ["serviceaccount-controller", "root-ca-certificate-publisher-controller",
            "persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller",
            "clusterrole-aggregation-controller"]
NAMESPACE, GARBAGE, ROLLING = "namespace-controller", "garbage-collector-controller", "rollingupdate-controller"
JOBS, POD_GARBAGE = "job-controller", "pod-garbage-collector-controller"
NODES, EVICTIONS = "node-lifecycle-controller", "taint-eviction-controller"
# Controllers beside those of the workloads without Jobs, and what they must be able and unable to do.
SETS = [
    ([], OF_SCHEDULES + dying(OF_SCHEDULES)),
    ([JOBS], OF_SCHEDULES + OF_JOBS + dying(OF_JOBS)),
    ([JOBS, GARBAGE], allowed(OF_SCHEDULES) + allowed(OF_JOBS)),
    ([POD_GARBAGE], OF_THE_POD_COLLECTOR),
    ([POD_GARBAGE, GARBAGE], allowed(OF_THE_POD_COLLECTOR)),
    ([EVICTIONS], OF_THE_POD_COLLECTOR),
    ([NODES, EVICTIONS, GARBAGE], allowed(OF_THE_POD_COLLECTOR) + OF_NODES),
    ([], REQUESTS + ALONE + OF_STATUS + dying(REQUESTS + ALONE)),
    ([NAMESPACE], REQUESTS + OF_STATUS + dying(REQUESTS) + IN_NAMESPACES + CONNECTIONS),
    ([GARBAGE], allowed(REQUESTS) + OF_STATUS + dying(REQUESTS) + OF_THE_COLLECTOR + CONNECTIONS),
    ([ROLLING], REQUESTS + OF_STATUS + dying(REQUESTS) + ROLLING_UPDATES + dying(ROLLING_UPDATES)),
    ([NAMESPACE, ROLLING], REQUESTS + dying(REQUESTS) + ROLLING_UPDATES + dying(ROLLING_UPDATES) + allowed(IN_NAMESPACES)),
    ([GARBAGE, ROLLING], allowed(REQUESTS) + OF_THE_COLLECTOR + ROLLING_UPDATES + dying(ROLLING_UPDATES)),
    ([GARBAGE, NAMESPACE], allowed(REQUESTS) + allowed(IN_NAMESPACES) + OF_THE_COLLECTOR + CONNECTIONS),
    ([GARBAGE, NAMESPACE, ROLLING, *TEST_BED],
     allowed(REQUESTS) + OF_STATUS + allowed(IN_NAMESPACES) + allowed(OF_THE_COLLECTOR) + ROLLING_UPDATES + dying(ROLLING_UPDATES)
     + OF_A_TEST_BED),
]


def check_all(rendered, check_that):
    """`rendered` gives the objects of the chart for a list of controllers."""
    count = 0
    for controllers, requests in SETS:
        without = [] if JOBS in controllers else ["-" + JOBS]
        policies = [found for found in rendered(["*", *without, *controllers]) if found["kind"] == "ValidatingAdmissionPolicy"]
        check(policies, ", ".join(controllers) or "workloads", requests, check_that)
        count += len(requests)
    return count
