//! What upstream's integration tests ask of a garbage collector, from outside: played with Windlass and with
//! kube-controller-manager, each on a real API server of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::apiserver::{ApiServer, DAEMON, TOKEN, on_a_real_server};
use windlass_testkit::controllers::Side;
use windlass_testkit::user::send;
use windlass_testkit::{manifests, rights};

const CONTROLLER: &str = "garbage-collector-controller";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// How long anything may take: kube-controller-manager looks for new kinds each 30 s.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long what is to stay is watched.
const A_WHILE: Duration = Duration::from_secs(3);

pub(crate) fn the_situations_of_upstreams_tests_end_as_upstream_demands() {
    play(&[Side::Windlass]);
}

pub(crate) fn kube_controller_manager_ends_the_same_situations_in_the_same_way() {
    play(&[Side::Upstream]);
}

fn play(sides: &[Side]) {
    on_a_real_server(async |folder| {
        for &side in sides {
            let server = ApiServer::start_with(folder, &[DAEMON]).await;
            let bed = Bed { side, client: server.client().await };
            bed.before_the_start().await;
            // Ours with the rights and under the policies that are shipped.
            let token = match side {
                Side::Upstream => TOKEN,
                Side::Windlass => {
                    grant(&server, &bed.client).await;
                    DAEMON.token
                }
            };
            let (config, log) = (server.kubeconfig(token), server.file("controllers.log"));
            let _controllers = side.start(folder, &config, CONTROLLER, &[], &log);
            let played = tokio::spawn(async move { bed.play().await }).await;
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            played.unwrap_or_else(|error| {
                panic!("{side:?}: {}\n{text}", windlass_testkit::apiserver::said(error))
            });
            if side == Side::Windlass {
                let audit = server.audit();
                let is_refused = |event: &&Value| {
                    // The creations are those with which the rig waits for the policy.
                    event["responseStatus"]["code"] == 403
                        && event["verb"] != "create"
                        && event["user"]["username"].as_str().is_some_and(|user| user == DAEMON.name)
                };
                let refused: Vec<&Value> = audit.iter().filter(is_refused).collect();
                assert!(refused.is_empty(), "{refused:#?}");
            }
        }
    });
}

pub(crate) async fn grant(server: &ApiServer, client: &Client) {
    rights::create(client, &rights::manifest()).await;
    for file in ["garbage-collector.yaml", "admissionpolicy.yaml"] {
        rights::create(client, &manifests::file(&format!("deploy/garbage/{file}"))).await;
    }
    rights::wait_for_the_admission_policy(server).await;
    let wanted = [json!({"verb": "delete", "group": "*", "resource": "*", "namespace": "a"})];
    rights::wait_until_allowed(client, DAEMON.name, &wanted).await;
}

struct Bed {
    side: Side,
    client: Client,
}

fn core(namespace: &str, plural: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{plural}")
}

/// A reference to an object that an answer has shown.
fn to(owner: &Value) -> Value {
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
           "uid": owner["metadata"]["uid"]})
}

fn blocking(owner: &Value) -> Value {
    let mut reference = to(owner);
    reference["blockOwnerDeletion"] = true.into();
    reference
}

fn pod(name: &str, owners: &[Value], finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers},
           "spec": {"containers": [{"name": "c", "image": "app"}]}})
}

fn map(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

fn controller(name: &str, finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "finalizers": finalizers},
           "spec": {"replicas": 0, "selector": {"a": name}, "template": {"metadata": {"labels": {"a": name}},
                    "spec": {"containers": [{"name": "c", "image": "app"}]}}}})
}

/// A kind of the test's own; with a conversion that nobody serves if `is_broken`.
fn definition(group: &str, is_broken: bool) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |name: &str, storage| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let mut spec = json!({
        "group": group, "scope": "Namespaced", "versions": [version("v1", !is_broken)],
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
    });
    if is_broken {
        spec["versions"] = json!([version("v1", false), version("v1beta1", true)]);
        spec["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "nobody", "namespace": "default"}}}});
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
           "metadata": {"name": format!("things.{group}")}, "spec": spec})
}

fn thing(group: &str, name: &str, owners: &[Value]) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name, "ownerReferences": owners}})
}

impl Bed {
    async fn create(&self, path: &str, object: Value) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            match send(&self.client, Method::POST, path, &object).await {
                Ok(created) => return created,
                // A kind is served a moment after its definition.
                Err(kube::Error::Api(status)) if status.code == 404 && Instant::now() < end => {}
                Err(error) => panic!("{path}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn delete(&self, path: &str, options: Value) {
        send(&self.client, Method::DELETE, path, &options)
            .await
            .unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    async fn get(&self, path: &str) -> Option<Value> {
        match send(&self.client, Method::GET, path, &Value::Null).await {
            Ok(found) => Some(found),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    async fn namespace(&self, name: &str) {
        self.create("/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
    }

    async fn gone(&self, path: &str) {
        let end = Instant::now() + PATIENCE;
        while let Some(object) = self.get(path).await {
            assert!(Instant::now() < end, "still there: {:#}", object["metadata"]);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn stays(&self, paths: &[String]) {
        tokio::time::sleep(A_WHILE).await;
        for path in paths {
            assert!(self.get(path).await.is_some(), "{path} is gone");
        }
    }

    /// The names of the objects, each with those of its owners.
    async fn owners(&self, collection: &str) -> BTreeMap<String, Vec<String>> {
        let list = send(&self.client, Method::GET, collection, &Value::Null).await.unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            (text(&object["metadata"]["name"]), owners.iter().map(|owner| text(&owner["name"])).collect())
        };
        list["items"].as_array().unwrap().iter().map(of).collect()
    }

    /// What is there before the collector: references across namespaces, and a kind that cannot be listed.
    async fn before_the_start(&self) {
        self.namespace("parents").await;
        self.namespace("strangers").await;
        let parent = self.create(&core("parents", "configmaps"), map("parent", &[])).await;
        for number in 0..3 {
            self.create(&core("parents", "secrets"), map(&format!("good-{number}"), &[to(&parent)])).await;
        }
        let invalid = |number: usize| {
            json!({"apiVersion": "v1", "kind": format!("Unknown{number}"), "name": "none",
                                    "uid": format!("11111111-1111-4111-8111-11111111111{number}")})
        };
        for number in 0..5 {
            let mut wrong = to(&parent);
            wrong["kind"] = "Secret".into();
            let name = format!("unknown-{number}");
            self.create(&core("strangers", "secrets"), map(&name, &[invalid(number), wrong])).await;
        }
        let mut wrong = to(&parent);
        wrong["kind"] = "Secret".into();
        self.create(&core("strangers", "secrets"), map("bad", &[wrong])).await;
        let broken = definition("broken.example.com", true);
        self.create(CRDS, broken).await;
        let things = "/apis/broken.example.com/v1beta1/namespaces/default/things";
        let mut object = thing("broken.example.com", "t", &[]);
        object["apiVersion"] = "broken.example.com/v1beta1".into();
        self.create(things, object).await;
    }

    async fn play(&self) {
        self.gone(&core("strangers", "secrets/bad")).await;
        let good: Vec<String> =
            (0..3).map(|number| core("parents", &format!("secrets/good-{number}"))).collect();
        let unknown = (0..5).map(|number| core("strangers", &format!("secrets/unknown-{number}")));
        self.stays(&good.into_iter().chain(unknown).collect::<Vec<_>>()).await;
        self.background().await;
        self.policies_of_controllers().await;
        self.foreground().await;
        self.circle().await;
        self.cluster_scoped_owners().await;
        self.custom_resources().await;
    }

    async fn background(&self) {
        self.namespace("background").await;
        let (controllers, pods) = (core("background", "replicationcontrollers"), core("background", "pods"));
        let leaving = self.create(&controllers, controller("leaving", &[])).await;
        let staying = self.create(&controllers, controller("staying", &[])).await;
        self.create(&pods, pod("of-one", &[to(&leaving)], &[])).await;
        self.create(&pods, pod("of-both", &[to(&leaving), to(&staying)], &[])).await;
        self.create(&pods, pod("of-none", &[], &[])).await;
        let mut invented = to(&leaving);
        invented["uid"] = "22222222-2222-4222-8222-222222222222".into();
        self.create(&pods, pod("of-nobody", &[invented], &[])).await;
        self.gone(&format!("{pods}/of-nobody")).await;
        self.delete(&format!("{controllers}/leaving"), json!({"propagationPolicy": "Background"})).await;
        self.gone(&format!("{pods}/of-one")).await;
        tokio::time::sleep(A_WHILE).await;
        let left = BTreeMap::from([("of-both".into(), vec!["staying".into()]), ("of-none".into(), vec![])]);
        assert_eq!(self.owners(&pods).await, left);
    }

    /// The five ways in which upstream's stress test deletes its controllers.
    async fn policies_of_controllers(&self) {
        self.namespace("policies").await;
        let (controllers, pods) = (core("policies", "replicationcontrollers"), core("policies", "pods"));
        let ways = [
            ("nil", vec![], Value::Null),
            ("finalizer", vec!["orphan"], json!({})),
            ("overruled", vec!["orphan"], json!({"orphanDependents": false})),
            ("orphans", vec![], json!({"orphanDependents": true})),
            ("policy", vec![], json!({"propagationPolicy": "Orphan"})),
        ];
        for (name, finalizers, _) in &ways {
            for number in 0..4 {
                let name = format!("{name}-{number}");
                let owner = self.create(&controllers, controller(&name, finalizers)).await;
                for pod_number in 0..3 {
                    self.create(&pods, pod(&format!("{name}-{pod_number}"), &[to(&owner)], &[])).await;
                }
            }
        }
        // Upstream's own tests wait until their collector knows the pods; without that it deletes some of them. Ours asks
        // every resource before it lets an owner go.
        if self.side == Side::Upstream {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        for (name, _, options) in &ways {
            for number in 0..4 {
                self.delete(&format!("{controllers}/{name}-{number}"), options.clone()).await;
            }
        }
        for (name, ..) in &ways {
            for number in 0..4 {
                self.gone(&format!("{controllers}/{name}-{number}")).await;
            }
        }
        for number in 0..4 {
            for pod_number in 0..3 {
                self.gone(&format!("{pods}/overruled-{number}-{pod_number}")).await;
            }
        }
        let left = self.owners(&pods).await;
        assert_eq!(left.len(), 48);
        assert!(left.values().all(Vec::is_empty), "{left:?}");
    }

    async fn foreground(&self) {
        self.namespace("foreground").await;
        let (controllers, pods) = (core("foreground", "replicationcontrollers"), core("foreground", "pods"));
        let foreground = json!({"propagationPolicy": "Foreground"});
        let solid = self.create(&controllers, controller("solid", &[])).await;
        let waiting = self.create(&controllers, controller("waiting", &[])).await;
        self.create(&pods, pod("shared", &[blocking(&waiting), to(&solid)], &[])).await;
        self.delete(&format!("{controllers}/waiting"), foreground.clone()).await;
        self.gone(&format!("{controllers}/waiting")).await;
        assert_eq!(self.owners(&pods).await, BTreeMap::from([("shared".into(), vec!["solid".into()])]));

        let owner = self.create(&controllers, controller("lenient", &[])).await;
        let keep = ["example.com/keep"];
        self.create(&pods, pod("unset", &[to(&owner)], &keep)).await;
        let mut free = blocking(&owner);
        free["blockOwnerDeletion"] = false.into();
        self.create(&pods, pod("false", &[free], &keep)).await;
        self.delete(&format!("{controllers}/lenient"), foreground.clone()).await;
        self.gone(&format!("{controllers}/lenient")).await;
        for name in ["unset", "false"] {
            let pod = self.get(&format!("{pods}/{name}")).await.unwrap();
            assert!(pod["metadata"]["deletionTimestamp"].is_string());
        }

        let owner = self.create(&controllers, controller("strict", &[])).await;
        self.create(&pods, pod("held", &[blocking(&owner)], &keep)).await;
        self.delete(&format!("{controllers}/strict"), foreground.clone()).await;
        self.stays(&[format!("{controllers}/strict"), format!("{pods}/held")]).await;
        let free = json!({"metadata": {"finalizers": null}});
        send(&self.client, Method::PATCH, &format!("{pods}/held"), &free).await.unwrap();
        self.gone(&format!("{controllers}/strict")).await;

        self.create(&pods, pod("twice", &[], &keep)).await;
        for _ in 0..2 {
            self.delete(&format!("{pods}/twice"), foreground.clone()).await;
            let end = Instant::now() + PATIENCE;
            loop {
                let pod = self.get(&format!("{pods}/twice")).await.unwrap();
                if pod["metadata"]["finalizers"] == json!(keep) {
                    break;
                }
                assert!(Instant::now() < end, "{:#}", pod["metadata"]);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        send(&self.client, Method::PATCH, &format!("{pods}/twice"), &free).await.unwrap();
        self.gone(&format!("{pods}/twice")).await;
    }

    async fn circle(&self) {
        self.namespace("circle").await;
        let pods = core("circle", "pods");
        let mut ring = Vec::new();
        for name in ["a", "b", "c"] {
            ring.push(self.create(&pods, pod(name, &[], &[])).await);
        }
        for (at, name) in ["a", "b", "c"].iter().enumerate() {
            let mut owner = ring[(at + 2) % 3].clone();
            (owner["apiVersion"], owner["kind"]) = ("v1".into(), "Pod".into());
            let owner = json!({"metadata": {"ownerReferences": [blocking(&owner)]}});
            send(&self.client, Method::PATCH, &format!("{pods}/{name}"), &owner).await.unwrap();
        }
        self.delete(&format!("{pods}/a"), json!({"propagationPolicy": "Foreground"})).await;
        for name in ["a", "b", "c"] {
            self.gone(&format!("{pods}/{name}")).await;
        }
    }

    async fn cluster_scoped_owners(&self) {
        self.namespace("volumes").await;
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
        let volume = json!({"metadata": {"name": "volume"}, "spec": spec});
        let volume = self.create("/api/v1/persistentvolumes", volume).await;
        let maps = core("volumes", "configmaps");
        let mut missing = to(&volume);
        (missing["name"], missing["uid"]) = ("missing".into(), "33333333-3333-4333-8333-333333333333".into());
        let mut unknown = missing.clone();
        unknown["kind"] = "UnknownKind".into();
        for (name, owner) in [("known", to(&volume)), ("missing", missing), ("unknown", unknown)] {
            self.create(&maps, map(name, &[owner])).await;
        }
        self.gone(&format!("{maps}/missing")).await;
        self.stays(&[format!("{maps}/known"), format!("{maps}/unknown")]).await;
    }

    async fn custom_resources(&self) {
        let (group, foreground) = ("garbage.example.com", json!({"propagationPolicy": "Foreground"}));
        self.namespace("custom").await;
        let (things, maps) =
            (format!("/apis/{group}/v1/namespaces/custom/things"), core("custom", "configmaps"));
        // Twice under one name: the second kind is another.
        for _ in 0..2 {
            self.create(CRDS, definition(group, false)).await;
            let owner = self.create(&things, thing(group, "owner", &[])).await;
            self.create(&things, thing(group, "dependent", &[blocking(&owner)])).await;
            self.create(&maps, map("dependent", &[blocking(&owner)])).await;
            // Known to both collectors, and with its watch.
            tokio::time::sleep(Duration::from_secs(35)).await;
            self.delete(&format!("{things}/owner"), foreground.clone()).await;
            self.gone(&format!("{things}/owner")).await;
            for path in [format!("{things}/dependent"), format!("{maps}/dependent")] {
                assert!(self.get(&path).await.is_none(), "{path}");
            }
            let owner = self.create(&maps, map("owner", &[])).await;
            let mut of_map = to(&owner);
            (of_map["apiVersion"], of_map["kind"]) = ("v1".into(), "ConfigMap".into());
            of_map["blockOwnerDeletion"] = true.into();
            self.create(&things, thing(group, "of-map", &[of_map])).await;
            self.delete(&format!("{maps}/owner"), foreground.clone()).await;
            self.gone(&format!("{maps}/owner")).await;
            self.gone(&format!("{things}/of-map")).await;

            let owner = self.create(&things, thing(group, "owner", &[])).await;
            self.create(&maps, map("of-thing", &[to(&owner)])).await;
            self.delete(&format!("{CRDS}/things.{group}"), json!({})).await;
            self.gone(&format!("{CRDS}/things.{group}")).await;
            self.gone(&format!("{maps}/of-thing")).await;
        }
    }
}
