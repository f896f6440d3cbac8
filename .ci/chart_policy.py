"""Evaluates the admission policy for requests with CEL's own engine. The sandbox stores policies and does not evaluate
them; tests/real_server/installation.rs tests the policy on a real API server, where there is one."""

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


REPLICA_SET, DEPLOYMENT, STATEFUL_SET = owner("ReplicaSet"), owner("Deployment"), owner("StatefulSet")
DAEMON_SET = owner("DaemonSet")
LABELED = {"labels": {"app": "a"}, "annotations": {"note": "n"}, "finalizers": ["example.com/f"]}


def labeled(**changed):
    return copy.deepcopy(LABELED) | changed


MORE = {"labels": {"app": "a", "mesh": "on"}, "annotations": {"note": "n", "seen": "1"},
        "finalizers": ["example.com/g", "example.com/f"]}
ONLY_CONTROLLED, ONLY_OWNERS = "only objects controlled by", "only the owner references"
ROLLBACK = {"annotations": {"deprecated.deployment.rollback.to": "1"}}

# A title, the resource, the object before and after, and what the error contains; None: the request is allowed.
REQUESTS = [
    ("creates a pod of a ReplicaSet", "pods", None, pod([REPLICA_SET]), None),
    ("creates a pod of a ReplicationController", "pods", None, pod([owner("ReplicationController", "v1")]), None),
    ("creates a bare pod", "pods", None, pod(), ONLY_CONTROLLED),
    ("creates a pod that a ReplicaSet owns but does not control", "pods", None,
     pod([owner("ReplicaSet", controller=False)]), ONLY_CONTROLLED),
    ("creates a pod of a StatefulSet", "pods", None, pod([STATEFUL_SET]), ONLY_CONTROLLED),
    ("deletes a pod of a ReplicaSet", "pods", pod([REPLICA_SET]), None, None),
    ("deletes a bare pod", "pods", pod(), None, ONLY_CONTROLLED),
    ("adopts a pod", "pods", pod(), pod([REPLICA_SET]), None),
    ("adopts a pod with labels", "pods", pod(**LABELED), pod([REPLICA_SET], **LABELED), None),
    ("releases a pod", "pods", pod([REPLICA_SET], **LABELED), pod(**LABELED), None),
    ("releases a pod of a StatefulSet", "pods", pod([STATEFUL_SET]), pod(), ONLY_CONTROLLED),
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
    ("creates a revision of a DaemonSet", "controllerrevisions", None, revision([DAEMON_SET]), None),
    ("creates a revision of a StatefulSet", "controllerrevisions", None, revision([STATEFUL_SET]), ONLY_CONTROLLED),
    ("creates a bare revision", "controllerrevisions", None, revision(), ONLY_CONTROLLED),
    ("creates a revision without a template", "controllerrevisions", None, revision([DAEMON_SET], {"spec": {}}),
     "must contain the template"),
    ("raises the number of a revision", "controllerrevisions", revision([DAEMON_SET]),
     revision([DAEMON_SET], number=2), None),
    ("adopts a revision", "controllerrevisions", revision(), revision([DAEMON_SET]), None),
    ("releases a revision", "controllerrevisions", revision([DAEMON_SET]), revision(), None),
    ("takes over a revision of a StatefulSet", "controllerrevisions", revision([STATEFUL_SET]), revision([DAEMON_SET]),
     ONLY_CONTROLLED),
    ("deletes a revision", "controllerrevisions", revision([DAEMON_SET]), None, None),
    ("deletes a revision of a StatefulSet", "controllerrevisions", revision([STATEFUL_SET]), None, ONLY_CONTROLLED),
    ("creates a ReplicaSet of a Deployment", "replicasets", None, scaled([DEPLOYMENT]), None),
    ("creates a bare ReplicaSet", "replicasets", None, scaled(), ONLY_CONTROLLED),
    ("creates a ReplicaSet of a ReplicaSet", "replicasets", None, scaled([REPLICA_SET]), ONLY_CONTROLLED),
    ("scales a ReplicaSet", "replicasets", scaled([DEPLOYMENT]), scaled([DEPLOYMENT], 2, labels={"a": "b"}), None),
    ("scales a bare ReplicaSet", "replicasets", scaled(), scaled(replicas=2), ONLY_CONTROLLED),
    ("changes the template of a ReplicaSet", "replicasets", scaled([DEPLOYMENT]), scaled([DEPLOYMENT], image="own:1"),
     "may not be changed"),
    ("rolls a Deployment back", "deployments", scaled(**ROLLBACK), scaled(image="app:0"), None),
    ("changes a Deployment without its annotation", "deployments", scaled(), scaled(image="own:1"), "only be rolled back"),
    ("adds the annotation itself", "deployments", scaled(), scaled(image="own:1", **ROLLBACK), "only be rolled back"),
    ("rolls back and scales", "deployments", scaled(**ROLLBACK), scaled(replicas=9), "replicas of a Deployment"),
]


LIVING, DYING = {"metadata": {}}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}

# The same, with the namespace, for the policy of the namespace controller.
IN_NAMESPACES = [
    ("deletes a Secret of a namespace that is being deleted", "secrets", pod(), None, DYING, None),
    ("deletes a Secret of a living namespace", "secrets", pod(), None, LIVING, "only namespaces that are being deleted"),
    ("deletes a Node", "nodes", pod(), None, None, "only namespaces that are being deleted"),
    ("finalizes a namespace that is being deleted", "namespaces", DYING, DYING, DYING, None),
    ("finalizes a living namespace", "namespaces", LIVING, LIVING, LIVING, "only namespaces that are being deleted"),
    ("deletes a pod, which the other policy judges", "pods", pod(), None, LIVING, None),
]


OWNED_BY_A_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "m"}
COLLECTED = "only objects that have an owner"

# For the two policies that hold where the garbage collector runs: of both, the words of the one that refuses.
OF_THE_COLLECTOR = [
    ("deletes a Secret that a ConfigMap owns", "secrets", pod([OWNED_BY_A_MAP]), None, None),
    ("deletes a Secret that nobody owns", "secrets", pod(), None, COLLECTED),
    ("deletes a pod that a ConfigMap owns", "pods", pod([OWNED_BY_A_MAP]), None, None),
    ("deletes a bare pod", "pods", pod(), None, ONLY_CONTROLLED),
    ("removes a reference to a ConfigMap from a pod", "pods", pod([OWNED_BY_A_MAP]), pod(), None),
    ("creates a pod of a ConfigMap", "pods", None, pod([OWNED_BY_A_MAP]), ONLY_CONTROLLED),
    ("ends the foreground deletion of a Deployment", "deployments",
     scaled() | {"metadata": DYING["metadata"] | {"finalizers": ["foregroundDeletion"]}}, scaled(), None),
    ("changes the template of a Deployment that is being deleted", "deployments",
     scaled() | DYING, scaled(image="own:1"), "only be rolled back"),
    ("changes the image of a pod of a ConfigMap", "pods", pod([OWNED_BY_A_MAP]), pod([OWNED_BY_A_MAP]) | {"spec": {}},
     ONLY_OWNERS),
]


def check_garbage(workloads, everything, check_that):
    for what, resource, before, after, words in OF_THE_COLLECTOR:
        policies = [everything] if after is None else []
        if resource in ("pods", "replicasets", "controllerrevisions", "deployments"):
            policies.insert(0, workloads)
        messages = [refusal(policy["spec"], resource, before, after) for policy in policies]
        message = next((found for found in messages if found), None)
        check_that((message is None) == (words is None) and (words or "") in (message or ""), f"{what}: {message}")
    return len(OF_THE_COLLECTOR)


REQUESTED = {"annotations": {"windlass.dev/rolling-update-to": "next"}}
SOURCE = {"annotations": {"kubectl.kubernetes.io/update-source-id": "web:1"}}
ONLY_RESIZED, ONLY_FIELDS = "only be resized in a rolling update", "only replicas, selector, template"
NO_TEMPLATE = {"spec": {"replicas": 1, "template": {}, "minReadySeconds": 9}}

# The same for ReplicationControllers.
OF_ROLLING_UPDATES = [
    ("resizes the old one of an update", scaled(**REQUESTED), scaled(replicas=2, **REQUESTED), None),
    ("resizes the new one of an update", scaled(**SOURCE), scaled(replicas=2, **SOURCE), None),
    ("hands the template over", scaled(**REQUESTED), scaled(image="app:2", **REQUESTED), None),
    ("removes the request", scaled(**REQUESTED), scaled(), None),
    ("writes the bookkeeping of the new one", scaled(), scaled(**SOURCE), None),
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


def check_rolling_updates(policy, check_that):
    for what, before, after, words in OF_ROLLING_UPDATES:
        message = refusal(policy["spec"], "replicationcontrollers", before, after)
        check_that((message is None) == (words is None) and (words or "") in (message or ""), f"{what}: {message}")
        message = refusal(policy["spec"], "replicationcontrollers", before, after, user="system:admin")
        check_that(message is None, f"{what}, by another user: {message}")
        if after is None:
            message = refusal(policy["spec"], "replicationcontrollers", before, after, namespace=DYING)
            check_that(message is None, f"{what}, in a namespace that is being deleted: {message}")
    # All others are judged as without the controller.
    check(policy, check_that)
    return len(OF_ROLLING_UPDATES)


def refusal(spec, resource, before, after, user=USER, namespace=LIVING):
    """The error message, or None. An evaluation error is a refusal, as with `failurePolicy: Fail`."""
    operation = "CREATE" if before is None else "DELETE" if after is None else "UPDATE"
    place = {"group": "apps" if resource in ("replicasets", "controllerrevisions", "deployments") else "", "resource": resource}
    request = {"operation": operation, "resource": place, "userInfo": {"username": user}}
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


def check(policy, check_that):
    for what, resource, before, after, words in REQUESTS:
        message = refusal(policy["spec"], resource, before, after)
        check_that((message is None) == (words is None) and (words or "") in (message or ""), f"{what}: {message}")
        message = refusal(policy["spec"], resource, before, after, user="system:admin")
        check_that(message is None, f"{what}, by another user: {message}")
        if after is None:
            message = refusal(policy["spec"], resource, before, after, namespace=DYING)
            check_that(message is None, f"{what}, in a namespace that is being deleted: {message}")
    return len(REQUESTS)


def check_namespaces(policy, check_that):
    for what, resource, before, after, namespace, words in IN_NAMESPACES:
        message = refusal(policy["spec"], resource, before, after, namespace=namespace)
        check_that((message is None) == (words is None) and (words or "") in (message or ""), f"{what}: {message}")
        message = refusal(policy["spec"], resource, before, after, user="system:admin", namespace=namespace)
        check_that(message is None, f"{what}, by another user: {message}")
    return len(IN_NAMESPACES)
