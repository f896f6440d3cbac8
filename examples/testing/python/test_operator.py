#!/usr/bin/env python3
"""The test of an operator: a Database becomes a Service, a StatefulSet, a PodDisruptionBudget and a Job.

    KUBEBUILDER_ASSETS=/path/to/assets test_operator.py FOLDER    with the control plane of bed.py
    test_operator.py --kubeconfig FILE                            with a sandbox that runs already
"""

import urllib.error

from bed import control_plane

CORE, APPS = "/api/v1/namespaces/shop", "/apis/apps/v1/namespaces/shop"
JOBS = "/apis/batch/v1/namespaces/shop/jobs"
BUDGETS = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
DATABASES = "/apis/example.com/v1/namespaces/shop/databases"

DEFINITION = {
    "metadata": {"name": "databases.example.com"},
    "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"kind": "Database", "plural": "databases", "singular": "database"},
        "versions": [{
            "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }],
    },
}


class Operator:
    """Brings the objects of each Database up to date, one step at a time. A real one would watch."""

    def __init__(self, server):
        self.server = server

    def reconcile(self):
        for database in self.server.get(DATABASES)["items"]:
            if "deletionTimestamp" not in database["metadata"]:
                self.bring_up_to_date(database)

    def bring_up_to_date(self, database):
        name, spec = database["metadata"]["name"], database["spec"]
        labels = {"database": name}
        self.create(database, f"{CORE}/services", name, {
            "spec": {"clusterIP": "None", "selector": labels, "ports": [{"port": 5432}]},
        })
        self.create(database, BUDGETS, name, {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}}})
        image = f"database:{spec['version']}"
        stateful_set = self.create(database, f"{APPS}/statefulsets", name, {
            "spec": {
                "serviceName": name, "replicas": spec["replicas"], "selector": {"matchLabels": labels},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "database", "image": image}]},
                },
                "volumeClaimTemplates": [{
                    "metadata": {"name": "data"},
                    "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                             "resources": {"requests": {"storage": "1Gi"}}},
                }],
            },
        })
        container = stateful_set["spec"]["template"]["spec"]["containers"][0]
        if container["image"] != image:
            container["image"] = image
            self.server.request("PUT", f"{APPS}/statefulsets/{name}", stateful_set)
            return
        if not self.is_rolled_out(stateful_set):
            return
        # The schema of a version is migrated once all its pods run.
        migration = self.create(database, JOBS, f"{name}-migrate-{spec['version']}", {
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "migrate", "image": image}],
            }}},
        })
        conditions = migration.get("status", {}).get("conditions", [])
        if any(one["type"] == "Complete" and one["status"] == "True" for one in conditions):
            database["status"] = {"version": spec["version"]}
            self.server.request("PUT", f"{DATABASES}/{name}/status", database)

    @staticmethod
    def is_rolled_out(stateful_set):
        spec, status = stateful_set["spec"], stateful_set.get("status", {})
        return (
            status.get("observedGeneration") == stateful_set["metadata"]["generation"]
            and status.get("updatedReplicas") == status.get("availableReplicas") == spec["replicas"]
        )

    def create(self, database, collection, name, content):
        """Returns the object, which goes with its Database; creates it if it is missing."""
        found = self.server.get(f"{collection}/{name}")
        if found is not None:
            return found
        owner = {"apiVersion": "example.com/v1", "kind": "Database", "controller": True, "blockOwnerDeletion": True,
                 "name": database["metadata"]["name"], "uid": database["metadata"]["uid"]}
        return self.server.request("POST", collection, {"metadata": {"name": name, "ownerReferences": [owner]}} | content)


def test(server):
    server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    # The nodes bind claims of any class to volumes that they make up.
    server.request("POST", "/apis/storage.k8s.io/v1/storageclasses",
                   {"metadata": {"name": "fast"}, "provisioner": "example.com/disks"})
    server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    server.eventually("Databases are served", lambda: is_served(server))
    server.request("POST", DATABASES, {
        "apiVersion": "example.com/v1", "kind": "Database", "metadata": {"name": "orders"},
        "spec": {"replicas": 3, "version": "v1"},
    })
    operator, orders = Operator(server), f"{DATABASES}/orders"

    def runs(version):
        operator.reconcile()
        return server.get(orders).get("status") == {"version": version}

    def addresses():
        slices = server.get(SLICES)["items"]
        ready = (one for each in slices for one in each["endpoints"] or [] if one["conditions"]["ready"])
        return sorted(one["targetRef"]["name"] for one in ready)

    pods = [f"orders-{index}" for index in range(3)]
    server.eventually("Database orders runs v1, and its schema is migrated", lambda: runs("v1"))
    server.eventually("Service orders has all three pods", lambda: addresses() == pods)

    def allowed():
        return server.get(f"{BUDGETS}/orders")["status"].get("disruptionsAllowed")

    server.eventually("one pod may be evicted", lambda: allowed() == 1)
    assert evict(server, "orders-0") == 201
    assert evict(server, "orders-1") == 429, "while the first is away, no other may go"
    server.eventually("the evicted pod is back", lambda: allowed() == 1 and addresses() == pods)

    database = server.get(orders)
    database["spec"]["version"] = "v2"
    server.request("PUT", orders, database)
    server.eventually("Database orders runs v2, and its schema is migrated", lambda: runs("v2"))
    jobs = server.get(JOBS)["items"]
    assert [job["status"]["succeeded"] for job in jobs] == [1, 1], "each migration has run once"

    server.request("DELETE", orders)
    collections = [f"{CORE}/pods", f"{CORE}/services", f"{CORE}/persistentvolumeclaims",
                   f"{APPS}/statefulsets", JOBS, BUDGETS, SLICES]
    server.eventually("Database orders is gone, with all that it owned",
                      lambda: not any(server.get(collection)["items"] for collection in collections))


def is_served(server):
    try:
        return server.get(DATABASES) is not None
    except urllib.error.HTTPError as error:
        # Its storage is about to be ready.
        if error.code == 429:
            return False
        raise


def evict(server, pod):
    """The code of the answer."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "shop"}}
    try:
        server.request("POST", f"{CORE}/pods/{pod}/eviction", eviction)
        return 201
    except urllib.error.HTTPError as error:
        return error.code


if __name__ == "__main__":
    with control_plane(__doc__) as server:
        test(server)
