"""Asks the admission policy about requests, with CEL's own engine. The sandbox keeps policies and does not evaluate them;
tests/real_server/installation.rs has a real API server do it, where there is one."""

import copy

from cel_expr_python import cel

USER = "system:serviceaccount:kube-system:windlass"
# As in an API server, as far as the policy uses it.
LIBRARIES = cel.NewEnvConfigFromYaml("{name: policy, extensions: [{name: optional}, {name: strings}]}")
NAMES = ("object", "oldObject", "request", "variables")


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


SET, DEPLOYMENT, STATEFUL_SET = owner("ReplicaSet"), owner("Deployment"), owner("StatefulSet")
DAEMON_SET = owner("DaemonSet")
LABELED = {"labels": {"app": "a"}, "annotations": {"note": "n"}, "finalizers": ["example.com/f"]}


def labeled(**changed):
    return copy.deepcopy(LABELED) | changed


MORE = {"labels": {"app": "a", "mesh": "on"}, "annotations": {"note": "n", "seen": "1"},
        "finalizers": ["example.com/g", "example.com/f"]}
ONLY_CONTROLLED, ONLY_OWNERS = "only what is controlled by", "only the owner references"
ROLLBACK = {"annotations": {"deprecated.deployment.rollback.to": "1"}}

# What happens, the resource, the object before and after, and what the refusal says; None: it is allowed.
REQUESTS = [
    ("a pod of a set", "pods", None, pod([SET]), None),
    ("a pod of an old controller", "pods", None, pod([owner("ReplicationController", "v1")]), None),
    ("a bare pod", "pods", None, pod(), ONLY_CONTROLLED),
    ("a pod that a set owns and does not control", "pods", None, pod([owner("ReplicaSet", controller=False)]), ONLY_CONTROLLED),
    ("a pod of another controller", "pods", None, pod([STATEFUL_SET]), ONLY_CONTROLLED),
    ("deletes a pod of a set", "pods", pod([SET]), None, None),
    ("deletes a bare pod", "pods", pod(), None, ONLY_CONTROLLED),
    ("adopts a pod", "pods", pod(), pod([SET]), None),
    ("adopts a pod with labels", "pods", pod(**LABELED), pod([SET], **LABELED), None),
    ("releases a pod", "pods", pod([SET], **LABELED), pod(**LABELED), None),
    ("steals a pod", "pods", pod([STATEFUL_SET]), pod(), ONLY_CONTROLLED),
    ("adopts a pod, and a webhook adds to what is there", "pods", pod(**LABELED), pod([SET], **MORE), None),
    ("releases a pod, and a webhook adds to what is there", "pods", pod([SET], **LABELED), pod(**MORE), None),
    ("adopts a pod, and a webhook adds to nothing", "pods", pod(), pod([SET], **MORE), None),
    ("changes a label", "pods", pod([SET], **LABELED), pod([SET], **labeled(labels={"app": "b"})), ONLY_OWNERS),
    ("takes a label away", "pods", pod(**LABELED), pod([SET], **labeled(labels={})), ONLY_OWNERS),
    ("takes all labels away", "pods", pod(labels={"app": "a"}), pod([SET]), ONLY_OWNERS),
    ("puts another label in its place", "pods", pod(**LABELED), pod([SET], **labeled(labels={"b": "a"})), ONLY_OWNERS),
    ("changes an annotation", "pods", pod(**LABELED), pod([SET], **labeled(annotations={"note": "m"})), ONLY_OWNERS),
    ("takes all annotations away", "pods", pod(annotations={"note": "n"}), pod([SET]), ONLY_OWNERS),
    ("takes a finalizer away", "pods", pod(**LABELED), pod([SET], **labeled(finalizers=["example.com/g"])), ONLY_OWNERS),
    ("takes all finalizers away", "pods", pod([SET], finalizers=["example.com/f"]), pod([SET]), ONLY_OWNERS),
    ("changes what a pod runs", "pods", pod([SET]), pod([SET]) | {"spec": {"containers": []}}, ONLY_OWNERS),
    ("a pod of a DaemonSet", "pods", None, pod([DAEMON_SET]), None),
    ("deletes a pod of a DaemonSet", "pods", pod([DAEMON_SET]), None, None),
    ("relabels a pod whose revision was there twice", "pods", pod([DAEMON_SET], labels={"controller-revision-hash": "a"}),
     pod([DAEMON_SET], labels={"controller-revision-hash": "b"}), None),
    ("relabels a pod of a set so", "pods", pod([SET], labels={"controller-revision-hash": "a"}),
     pod([SET], labels={"controller-revision-hash": "b"}), ONLY_OWNERS),
    ("another label of a pod of a DaemonSet", "pods", pod([DAEMON_SET], labels={"app": "a"}),
     pod([DAEMON_SET], labels={"app": "b"}), ONLY_OWNERS),
    ("a revision of a DaemonSet", "controllerrevisions", None, revision([DAEMON_SET]), None),
    ("a revision of a StatefulSet", "controllerrevisions", None, revision([STATEFUL_SET]), ONLY_CONTROLLED),
    ("a bare revision", "controllerrevisions", None, revision(), ONLY_CONTROLLED),
    ("a revision of something else", "controllerrevisions", None, revision([DAEMON_SET], {"spec": {}}), "holds the template"),
    ("raises the number of a revision", "controllerrevisions", revision([DAEMON_SET]), revision([DAEMON_SET], number=2), None),
    ("adopts a revision", "controllerrevisions", revision(), revision([DAEMON_SET]), None),
    ("releases a revision", "controllerrevisions", revision([DAEMON_SET]), revision(), None),
    ("steals a revision", "controllerrevisions", revision([STATEFUL_SET]), revision([DAEMON_SET]), ONLY_CONTROLLED),
    ("deletes a revision", "controllerrevisions", revision([DAEMON_SET]), None, None),
    ("deletes a revision of a StatefulSet", "controllerrevisions", revision([STATEFUL_SET]), None, ONLY_CONTROLLED),
    ("a set of a Deployment", "replicasets", None, scaled([DEPLOYMENT]), None),
    ("a bare set", "replicasets", None, scaled(), ONLY_CONTROLLED),
    ("a set of a set", "replicasets", None, scaled([SET]), ONLY_CONTROLLED),
    ("resizes a set", "replicasets", scaled([DEPLOYMENT]), scaled([DEPLOYMENT], 2, labels={"a": "b"}), None),
    ("resizes a bare set", "replicasets", scaled(), scaled(replicas=2), ONLY_CONTROLLED),
    ("another template", "replicasets", scaled([DEPLOYMENT]), scaled([DEPLOYMENT], image="own:1"), "keeps its template"),
    ("rolls a Deployment back", "deployments", scaled(**ROLLBACK), scaled(image="app:0"), None),
    ("rolls a Deployment unasked", "deployments", scaled(), scaled(image="own:1"), "only rolled back"),
    ("asks itself", "deployments", scaled(), scaled(image="own:1", **ROLLBACK), "only rolled back"),
    ("rolls back and resizes", "deployments", scaled(**ROLLBACK), scaled(replicas=9), "keeps its size"),
]


def judge(spec, resource, before, after, user=USER):
    """What the refusal says, or None. What cannot be evaluated is refused, as by `failurePolicy: Fail`."""
    operation = "CREATE" if before is None else "DELETE" if after is None else "UPDATE"
    request = {"operation": operation, "resource": {"resource": resource}, "userInfo": {"username": user}}
    data = {"object": after, "oldObject": before, "request": request, "variables": {}}
    environment = cel.NewEnv(config=LIBRARIES, variables={name: cel.Type.DYN for name in NAMES})

    def evaluate(expression):
        return environment.compile(expression).eval(data=data).plain_value()

    if not all(evaluate(condition["expression"]) is True for condition in spec["matchConditions"]):
        return None
    for variable in spec["variables"]:
        data["variables"][variable["name"]] = evaluate(variable["expression"])
    for validation in spec["validations"]:
        if evaluate(validation["expression"]) is not True:
            return evaluate(validation["messageExpression"]) if "messageExpression" in validation else validation["message"]
    return None


def check(policy, check_that):
    for what, resource, before, after, words in REQUESTS:
        said = judge(policy["spec"], resource, before, after)
        check_that((said is None) == (words is None) and (words or "") in (said or ""), f"{what}: {said}")
        said = judge(policy["spec"], resource, before, after, user="system:admin")
        check_that(said is None, f"{what}, by somebody else: {said}")
    return len(REQUESTS)
