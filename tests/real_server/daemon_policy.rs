//! The admission policy of the daemon on a real kube-apiserver: with its token, a client writes only what the controllers
//! own, and through the status no metadata.

use http::Method;
use serde_json::{Value, json};
use windlass_testkit::apiserver::{ApiServer, DAEMON, WITHOUT_OWNER_PERMISSIONS, on_a_real_server};
use windlass_testkit::manifests;
use windlass_testkit::rights::{self, PODS, REPLICA_SETS, pod};

fn replica_set(name: &str, owner: Value) -> Value {
    let Value::Object(mut metadata) = pod(name, owner)["metadata"].take() else { unreachable!() };
    metadata.remove("labels");
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata,
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                         "spec": {"containers": [{"name": "c", "image": "app:v1"}]}},
        },
    })
}

fn deployment(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": replica_set(name, Value::Null)["spec"],
    })
}

fn claim(name: &str, owner: Value) -> Value {
    let owners: Vec<Value> = Some(owner).filter(|owner| !owner.is_null()).into_iter().collect();
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn owner(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": format!("uid-of-{kind}"), "controller": true})
}

pub(crate) fn the_daemons_token_can_write_only_objects_that_its_controllers_own() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start_flagged(folder, &[DAEMON], &[WITHOUT_OWNER_PERMISSIONS]).await;
        let client = server.client().await;
        rights::create(&client, &rights::manifest()).await;
        rights::create(&client, &manifests::file("deploy/admissionpolicy.yaml")).await;
        rights::wait_until_allowed(&client, DAEMON.name, &rights::one_of_each_binding()).await;
        let default = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
        let request = http::Request::post("/api/v1/namespaces").header("content-type", "application/json");
        let _ = client.request::<Value>(request.body(default.to_string().into_bytes()).unwrap()).await;
        rights::wait_for_the_admission_policy(&server).await;

        let (of_replica_set, of_rc) = (owner("apps/v1", "ReplicaSet"), owner("v1", "ReplicationController"));
        let of_deployment = owner("apps/v1", "Deployment");
        let (of_stateful_set, of_pod) = (owner("apps/v1", "StatefulSet"), owner("v1", "Pod"));
        let of_job = owner("batch/v1", "Job");
        let mut daemon_set = deployment("plain", Value::Null);
        daemon_set["kind"] = json!("DaemonSet");
        daemon_set["spec"].as_object_mut().unwrap().remove("replicas");
        let mut stateful_set = deployment("plain", Value::Null);
        stateful_set["kind"] = json!("StatefulSet");
        let mut replication_controller = deployment("plain", Value::Null);
        replication_controller["apiVersion"] = json!("v1");
        replication_controller["kind"] = json!("ReplicationController");
        replication_controller["spec"]["selector"] = json!({"app": "plain"});
        // Created by the administrator.
        let there = [
            pod("bare", Value::Null),
            pod("of-a-replica-set", of_replica_set.clone()),
            pod("to-relabel", of_replica_set.clone()),
            pod("of-another", of_job.clone()),
            pod("of-a-stateful-set", of_stateful_set.clone()),
            claim("data-db-0", Value::Null),
            claim("data-db-1", of_stateful_set.clone()),
            claim("data-db-2", of_job.clone()),
            claim("backup", Value::Null),
            replica_set("bare", Value::Null),
            replica_set("of-a-deployment", of_deployment.clone()),
            replica_set("of-another", owner("argoproj.io/v1alpha1", "Rollout")),
            daemon_set,
            stateful_set,
            replication_controller,
            deployment("plain", Value::Null),
            deployment("to-roll-back-on-failure", json!({"windlass.dev/on-failure": "rollback"})),
            deployment("to-halt", json!({"windlass.dev/on-failure": "halt"})),
            deployment("to-roll-back", json!({"deprecated.deployment.rollback.to": "1"})),
        ];
        rights::create(&client, &there).await;
        let pod_at = |name: &str| format!("{PODS}/{name}");
        let replica_set_at = |name: &str| format!("{REPLICA_SETS}/{name}");
        let owners = |owner: &Value| json!({"metadata": {"ownerReferences": [owner]}});
        let release =
            json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": of_replica_set["uid"]}]}});
        let mut both = owners(&of_replica_set);
        both["metadata"]["labels"] = json!({"app": "b"});
        let mut and_a_webhooks_label = owners(&of_replica_set);
        and_a_webhooks_label["metadata"]["labels"] = json!({"mesh": "on"});
        let mut not_controlling = of_replica_set.clone();
        not_controlling["controller"] = json!(false);
        let resize = json!({"spec": {"replicas": 1}});
        let deployment_at = |name: &str| format!("/apis/apps/v1/namespaces/default/deployments/{name}");
        let status_of =
            |plural: &str, name: &str| format!("/apis/apps/v1/namespaces/default/{plural}/{name}/status");
        let gone = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"});
        const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
        let claim_at = |name: &str| format!("{CLAIMS}/{name}");
        let no_owners = json!({"metadata": {"ownerReferences": []}});
        let relabel = |label: &str| json!({"metadata": {"labels": {label: "another"}}});
        let claim_owner = Some("created without an owner");
        let claim_fields = Some("only owner references to StatefulSets and pods");
        let by_status = Some("may not be changed through the status");
        let image =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "own:v1"}]}}}});
        let mut rollback = image.clone();
        rollback["metadata"]["annotations"] = json!({"deprecated.deployment.rollback.to": null});
        let mut rollback_and_more = rollback.clone();
        rollback_and_more["spec"]["replicas"] = json!(9);
        let nothing = Value::Null;
        let (post, patch, delete) = (Method::POST, Method::PATCH, Method::DELETE);
        let uncontrolled = Some("only objects controlled by");
        let other_fields = Some("only the owner references");
        let no_right = Some("cannot delete resource");
        let no_rollback = Some("only be rolled back");
        for (what, method, path, body, refusal) in [
            ("creates a pod of a ReplicaSet", &post, PODS.to_owned(), pod("a", of_replica_set.clone()), None),
            (
                "creates a pod of a ReplicationController",
                &post,
                PODS.to_owned(),
                pod("b", of_rc.clone()),
                None,
            ),
            (
                "creates a ReplicaSet of a Deployment",
                &post,
                REPLICA_SETS.to_owned(),
                replica_set("c", of_deployment.clone()),
                None,
            ),
            ("creates a bare pod", &post, PODS.to_owned(), pod("d", nothing.clone()), uncontrolled),
            (
                "creates a pod that is owned but not controlled",
                &post,
                PODS.to_owned(),
                pod("d", not_controlling),
                uncontrolled,
            ),
            (
                "creates a pod of a StatefulSet",
                &post,
                PODS.to_owned(),
                pod("e", of_stateful_set.clone()),
                None,
            ),
            ("creates a pod of a Job", &post, PODS.to_owned(), pod("d", of_job.clone()), uncontrolled),
            (
                "creates a claim without an owner",
                &post,
                CLAIMS.to_owned(),
                claim("data-db-3", Value::Null),
                None,
            ),
            (
                "creates a claim of a StatefulSet",
                &post,
                CLAIMS.to_owned(),
                claim("data-db-4", of_stateful_set.clone()),
                None,
            ),
            (
                "creates a claim of a pod",
                &post,
                CLAIMS.to_owned(),
                claim("data-db-5", of_pod.clone()),
                claim_owner,
            ),
            (
                "lets a claim go with its StatefulSet",
                &patch,
                claim_at("data-db-0"),
                owners(&of_stateful_set),
                None,
            ),
            ("lets a claim go with its pod", &patch, claim_at("data-db-1"), owners(&of_pod), None),
            ("keeps a claim", &patch, claim_at("data-db-1"), no_owners.clone(), None),
            ("gives a claim another owner", &patch, claim_at("data-db-1"), owners(&of_job), claim_fields),
            ("removes the owner of a claim", &patch, claim_at("data-db-2"), no_owners, claim_fields),
            (
                "gives a claim an owner whose name is none of a StatefulSet's claim",
                &patch,
                claim_at("backup"),
                owners(&of_stateful_set),
                claim_fields,
            ),
            ("labels a claim", &patch, claim_at("data-db-0"), relabel("app"), claim_fields),
            (
                "adds a finalizer to a claim",
                &patch,
                claim_at("data-db-0"),
                json!({"metadata": {"finalizers": ["example.com/held"]}}),
                claim_fields,
            ),
            ("deletes a claim", &delete, claim_at("data-db-0"), nothing.clone(), no_right),
            (
                "corrects the revision of a pod of a StatefulSet",
                &patch,
                pod_at("of-a-stateful-set"),
                relabel("controller-revision-hash"),
                None,
            ),
            (
                "corrects it again",
                &patch,
                pod_at("of-a-stateful-set"),
                json!({"metadata": {"labels": {"controller-revision-hash": "a"}}}),
                None,
            ),
            (
                "changes another label of a pod of a StatefulSet",
                &patch,
                pod_at("of-a-stateful-set"),
                relabel("app"),
                other_fields,
            ),
            ("deletes a pod of a StatefulSet", &delete, pod_at("of-a-stateful-set"), nothing.clone(), None),
            (
                "creates a pod with an owner of the wrong group",
                &post,
                PODS.to_owned(),
                pod("d", owner("apps/v2", "ReplicaSet")),
                uncontrolled,
            ),
            (
                "creates a bare ReplicaSet",
                &post,
                REPLICA_SETS.to_owned(),
                replica_set("d", nothing.clone()),
                uncontrolled,
            ),
            (
                "creates a ReplicaSet of a ReplicaSet",
                &post,
                REPLICA_SETS.to_owned(),
                replica_set("d", of_replica_set.clone()),
                uncontrolled,
            ),
            ("changes a label", &patch, pod_at("to-relabel"), both.clone(), other_fields),
            ("releases a pod of a Job", &patch, pod_at("of-another"), release.clone(), uncontrolled),
            ("adopts a pod and changes a label", &patch, pod_at("bare"), both, other_fields),
            (
                "changes a bare pod without adopting it",
                &patch,
                pod_at("bare"),
                json!({"metadata": {"labels": {"a": "b"}}}),
                uncontrolled,
            ),
            ("deletes a bare pod", &delete, pod_at("bare"), nothing.clone(), uncontrolled),
            ("deletes a pod of a Job", &delete, pod_at("of-another"), nothing.clone(), uncontrolled),
            ("scales a bare ReplicaSet", &patch, replica_set_at("bare"), resize.clone(), uncontrolled),
            ("deletes a bare ReplicaSet", &delete, replica_set_at("bare"), nothing.clone(), uncontrolled),
            (
                "changes the template of a Deployment",
                &patch,
                deployment_at("plain"),
                image.clone(),
                no_rollback,
            ),
            ("scales a Deployment", &patch, deployment_at("plain"), resize.clone(), no_rollback),
            (
                "requests a rollback itself",
                &patch,
                deployment_at("plain"),
                json!({"metadata": {"annotations": {"deprecated.deployment.rollback.to": "1"}}}),
                no_rollback,
            ),
            (
                "writes the status",
                &patch,
                status_of("deployments", "plain"),
                json!({"status": {"replicas": 1}}),
                None,
            ),
            (
                "gives a Deployment an owner that does not exist, through the status",
                &patch,
                status_of("deployments", "plain"),
                owners(&gone),
                by_status,
            ),
            (
                "takes a ReplicaSet over through the status",
                &patch,
                status_of("replicasets", "of-another"),
                owners(&of_deployment),
                by_status,
            ),
            (
                "adds a finalizer to a Deployment through the status",
                &patch,
                status_of("deployments", "plain"),
                json!({"metadata": {"finalizers": ["example.com/held"]}}),
                by_status,
            ),
            (
                "labels a ReplicaSet through the status",
                &patch,
                status_of("replicasets", "of-another"),
                json!({"metadata": {"labels": {"a": "b"}}}),
                by_status,
            ),
            (
                "annotates a DaemonSet through the status",
                &patch,
                status_of("daemonsets", "plain"),
                json!({"metadata": {"annotations": {"a": "b"}}}),
                by_status,
            ),
            (
                "gives a StatefulSet an owner through the status",
                &patch,
                status_of("statefulsets", "plain"),
                owners(&gone),
                by_status,
            ),
            (
                "gives a ReplicationController an owner through the status",
                &patch,
                "/api/v1/namespaces/default/replicationcontrollers/plain/status".to_owned(),
                owners(&gone),
                by_status,
            ),
            (
                "requests a rollback through the status",
                &patch,
                format!("{}/status", deployment_at("plain")),
                json!({"metadata": {"annotations": {"deprecated.deployment.rollback.to": "1"}}}),
                None,
            ),
            ("has requested nothing that way", &patch, deployment_at("plain"), image.clone(), no_rollback),
            (
                "rolls back and scales",
                &patch,
                deployment_at("to-roll-back"),
                rollback_and_more,
                Some("replicas of a Deployment may not be changed"),
            ),
            (
                "rolls back after a failure",
                &patch,
                deployment_at("to-roll-back-on-failure"),
                image.clone(),
                None,
            ),
            (
                "rolls back where a rollout halts",
                &patch,
                deployment_at("to-halt"),
                image.clone(),
                no_rollback,
            ),
            ("rolls back", &patch, deployment_at("to-roll-back"), rollback, None),
            ("rolls back twice", &patch, deployment_at("to-roll-back"), resize.clone(), no_rollback),
            (
                "changes the template of a ReplicaSet",
                &patch,
                replica_set_at("of-a-deployment"),
                image,
                Some("template of a ReplicaSet may not be changed"),
            ),
            ("scales a ReplicaSet", &patch, replica_set_at("of-a-deployment"), resize, None),
            ("adopts a pod with a label of a webhook", &patch, pod_at("bare"), and_a_webhooks_label, None),
            ("adopts a pod", &patch, pod_at("bare"), owners(&of_replica_set), None),
            ("releases a pod", &patch, pod_at("bare"), release, None),
            ("adopts a ReplicaSet", &patch, replica_set_at("bare"), owners(&of_deployment), None),
            ("deletes its own pod", &delete, pod_at("of-a-replica-set"), nothing.clone(), None),
            ("deletes its own ReplicaSet", &delete, replica_set_at("of-a-deployment"), nothing, None),
        ] {
            let (code, message) = rights::try_as_the_daemon(&server, method.clone(), &path, &body).await;
            match refusal {
                None => assert_eq!((code, &*message), (200, ""), "{what}"),
                Some(words) => assert!(code == 403 && message.contains(words), "{what}: {code} {message}"),
            }
        }
    });
}
