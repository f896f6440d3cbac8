//! A kind of an aggregated API server that is not made of Kubernetes' libraries: its resourceVersions are no numbers, and an
//! object of it need not have a UID. The server may be down.

use std::collections::BTreeMap;
use std::sync::Mutex;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http_body_util::BodyExt;
use tokio::sync::broadcast;
use windlass::model::protobuf::unwrap_object;
use windlass_apiserver::to_protobuf;

use super::*;

const THINGS_OF_SHOP: &str = "/apis/odd.io/v1/namespaces/shop/things";

/// The API server of `things.odd.io`. It sees only requests for them, and for discovery what the other server answers.
#[derive(Clone)]
struct Odd(Arc<State>);

struct State {
    is_down: AtomicBool,
    /// Whether it is served no more: watches that have begun go on.
    is_removed: AtomicBool,
    protobuf: bool,
    revision: Mutex<u32>,
    things: Mutex<BTreeMap<String, Value>>,
    events: broadcast::Sender<(&'static str, Value)>,
    /// The bodies of the deletions.
    deletions: Mutex<Vec<Value>>,
    /// Where watches were resumed.
    resumed: Mutex<Vec<String>>,
}

impl Odd {
    fn new(protobuf: bool) -> Self {
        let (events, _) = broadcast::channel(100);
        let (revision, things) = (Mutex::new(11), Mutex::default());
        Odd(Arc::new(State {
            is_down: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            protobuf,
            revision,
            things,
            events,
            deletions: Mutex::default(),
            resumed: Mutex::default(),
        }))
    }

    fn version(&self) -> String {
        format!("{}/", self.0.revision.lock().unwrap())
    }

    fn next_version(&self) -> String {
        *self.0.revision.lock().unwrap() += 1;
        self.version()
    }

    fn put(&self, name: &str, uid: Option<&str>, owners: &[Value]) {
        let mut thing = json!({"apiVersion": "odd.io/v1", "kind": "Thing", "metadata": {"name": name, "namespace": "shop",
            "ownerReferences": owners, "resourceVersion": self.next_version()}});
        if let Some(uid) = uid {
            thing["metadata"]["uid"] = uid.into();
        }
        let before = self.0.things.lock().unwrap().insert(name.to_owned(), thing.clone());
        let _ = self.0.events.send((if before.is_some() { "MODIFIED" } else { "ADDED" }, thing));
    }

    fn delete(&self, name: &str) -> Option<Value> {
        let mut thing = self.0.things.lock().unwrap().remove(name)?;
        thing["metadata"]["resourceVersion"] = self.next_version().into();
        let _ = self.0.events.send(("DELETED", thing.clone()));
        Some(thing)
    }

    fn is_down(&self) -> bool {
        self.0.is_down.load(Ordering::SeqCst)
    }

    fn set_down(&self, is_down: bool) {
        self.0.is_down.store(is_down, Ordering::SeqCst);
    }

    fn is_removed(&self) -> bool {
        self.0.is_removed.load(Ordering::SeqCst)
    }

    fn bookmark(&self, ends_list: bool) -> Value {
        let annotations = if ends_list { json!({"k8s.io/initial-events-end": "true"}) } else { json!({}) };
        json!({"apiVersion": "odd.io/v1", "kind": "Thing",
               "metadata": {"resourceVersion": self.version(), "annotations": annotations}})
    }

    fn names(&self) -> Vec<String> {
        self.0.things.lock().unwrap().keys().cloned().collect()
    }

    fn owners_of(&self, name: &str) -> Vec<Value> {
        let things = self.0.things.lock().unwrap();
        things[name]["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default()
    }

    async fn answer(&self, request: Request) -> Response {
        if self.is_down() {
            return status(503, "ServiceUnavailable", "");
        }
        if self.is_removed() {
            return reply(404, "text/plain", "404 page not found");
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let accept = parts.headers.get("accept").map_or("", |it| it.to_str().unwrap());
        let protobuf = self.0.protobuf && accept.contains("protobuf");
        let name = parts.uri.path().strip_prefix(THINGS_OF_SHOP).and_then(|rest| rest.strip_prefix('/'));
        match (parts.method, name) {
            (Method::GET, None) if query.contains("watch=true") => self.watch(&query, protobuf),
            (Method::GET, None) => self.list(protobuf),
            (Method::GET, Some(name)) => {
                self.status_or(self.0.things.lock().unwrap().get(name).cloned(), name)
            }
            (Method::DELETE, Some(name)) => {
                self.0.deletions.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                self.status_or(self.delete(name), name)
            }
            (Method::PATCH, Some(name))
                if parts.headers["content-type"] == "application/merge-patch+json" =>
            {
                let patch: Value = serde_json::from_slice(&body).unwrap();
                let before = self.0.things.lock().unwrap()[name].clone();
                assert_eq!(patch["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
                let owners = patch["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                self.put(name, before["metadata"]["uid"].as_str(), &owners);
                self.status_or(Some(before), name)
            }
            (Method::PATCH, _) => status(415, "UnsupportedMediaType", ""),
            _ => status(405, "MethodNotAllowed", ""),
        }
    }

    fn status_or(&self, thing: Option<Value>, name: &str) -> Response {
        thing.map_or_else(
            || status(404, "NotFound", name),
            |thing| reply(200, "application/json", thing.to_string()),
        )
    }

    fn list(&self, protobuf: bool) -> Response {
        let things: Vec<Value> = self.0.things.lock().unwrap().values().cloned().collect();
        if !protobuf {
            let list = json!({"kind": "ThingList", "apiVersion": "odd.io/v1",
                              "metadata": {"resourceVersion": self.version()}, "items": things});
            return reply(200, "application/json", list.to_string());
        }
        let items = things.iter().map(|thing| field(2, &message(thing))).collect::<Vec<_>>().concat();
        let list = [field(1, &field(2, self.version().as_bytes())), items].concat();
        reply(200, PROTOBUF, enveloped(&list))
    }

    fn watch(&self, query: &str, protobuf: bool) -> Response {
        let events = self.0.events.subscribe();
        let mut first = Vec::new();
        if query.contains("sendInitialEvents=true") {
            first.extend(self.0.things.lock().unwrap().values().map(|thing| ("ADDED", thing.clone())));
            first.push(("BOOKMARK", self.bookmark(true)));
        } else {
            let at =
                query.split('&').find_map(|part| part.strip_prefix("resourceVersion=")).unwrap().to_owned();
            self.0.resumed.lock().unwrap().push(at);
            first.push(("BOOKMARK", self.bookmark(false)));
        }
        let encode = move |(kind, object): (&str, Value)| -> Result<Bytes, std::io::Error> {
            Ok(match protobuf {
                false => format!("{}\n", json!({"type": kind, "object": object})).into(),
                true => {
                    let object = enveloped(&message(&object));
                    let event = [field(1, kind.as_bytes()), field(2, &field(1, &object))].concat();
                    [&(event.len() as u32).to_be_bytes()[..], &event].concat().into()
                }
            })
        };
        let first = futures::stream::iter(first);
        let next =
            futures::stream::unfold(events, |mut events| async { Some((events.recv().await.ok()?, events)) });
        let stream = futures::StreamExt::map(futures::StreamExt::chain(first, next), encode);
        let media_type = if protobuf { PROTOBUF } else { "application/json" };
        Response::builder().header("content-type", media_type).body(Body::from_stream(stream)).unwrap()
    }
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A field that holds a string or a message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut field, mut length) = (vec![number << 3 | 2], bytes.len());
    while length >= 0x80 {
        field.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    [field, bytes.to_vec()].concat()
}

fn message(object: &Value) -> Vec<u8> {
    let mut partial = object.clone();
    (partial["apiVersion"], partial["kind"]) = ("meta.k8s.io/v1".into(), "PartialObjectMetadata".into());
    unwrap_object(&to_protobuf(&partial)).unwrap().to_vec()
}

fn enveloped(message: &[u8]) -> Vec<u8> {
    [b"k8s\0".to_vec(), field(2, message)].concat()
}

fn reply(code: u16, media_type: &str, body: impl Into<Body>) -> Response {
    Response::builder().status(code).header("content-type", media_type).body(body.into()).unwrap()
}

fn status(code: u16, reason: &str, name: &str) -> Response {
    let details = json!({"name": name, "group": "odd.io", "kind": "things"});
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
                        "message": reason, "details": details});
    reply(code, "application/json", status.to_string())
}

/// The two API servers behind one address.
fn beside(odd: Odd) -> impl FnOnce(axum::Router) -> axum::Router {
    move |router| {
        router.layer(from_fn(move |request: Request, next: Next| {
            let odd = odd.clone();
            async move {
                let path = request.uri().path().to_owned();
                if path.starts_with("/apis/odd.io/") {
                    return odd.answer(request).await;
                }
                let (mut parts, body) = next.run(request).await.into_parts();
                if path != "/apis" {
                    return Response::from_parts(parts, body);
                }
                let text = body.collect().await.unwrap().to_bytes();
                let mut groups: Value = serde_json::from_slice(&text).unwrap();
                let thing = json!({"resource": "things", "responseKind": {"group": "odd.io", "version": "v1", "kind": "Thing"},
                    "scope": "Namespaced", "verbs": ["delete", "get", "list", "patch", "watch"]});
                let version = match odd.is_down() {
                    true => json!({"version": "v1", "freshness": "Stale", "resources": []}),
                    false => json!({"version": "v1", "freshness": "Current", "resources": [thing]}),
                };
                let group = json!({"metadata": {"name": "odd.io"}, "versions": [version]});
                if !odd.is_removed() {
                    groups["items"].as_array_mut().unwrap().push(group);
                }
                parts.headers.remove("content-length");
                parts.headers.remove("etag");
                Response::from_parts(parts, Body::from(groups.to_string()))
            }
        }))
    }
}

async fn cluster_beside(odd: &Odd) -> (Cluster, Daemon) {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let daemon = cluster.start_with(1, config(), beside(odd.clone()));
    (cluster, daemon)
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_deletion_ends_beside_objects_whose_versions_are_no_numbers_and_one_without_a_uid() {
    for protobuf in [false, true] {
        let odd = Odd::new(protobuf);
        odd.put("odd", Some("u-1"), &[]);
        odd.put("odder", None, &[]);
        let (cluster, _daemon) = cluster_beside(&odd).await;
        let owner = create(&cluster, "owner", &[]).await;
        create(&cluster, "child", &[to(&owner)]).await;
        odd.put("thing", Some("u-2"), &[to(&owner)]);
        odd.put("nameless", None, &[to(&owner)]);
        delete_map(&cluster, "owner", "Orphan").await;
        cluster.eventually(20, "the owner is gone", |cluster| are_gone(cluster, &["owner"])).await;
        seconds(60).await;
        assert!(owners_of(&cluster, "child").is_empty(), "{protobuf}");
        assert_eq!((odd.owners_of("thing"), odd.owners_of("nameless")), (vec![], vec![]), "{protobuf}");
        assert_eq!(odd.names(), ["nameless", "odd", "odder", "thing"], "{protobuf}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_version_is_no_number_follows_its_owner() {
    for protobuf in [false, true] {
        let odd = Odd::new(protobuf);
        let cluster = Cluster::without_collectors(Faults::default()).await;
        let (gone, later) = (create(&cluster, "gone", &[]).await, create(&cluster, "later", &[]).await);
        delete_map(&cluster, "gone", "Background").await;
        // Listed, and watched.
        odd.put("a", Some("u-a"), &[to(&gone)]);
        odd.put("kept", Some("u-kept"), &[]);
        let _daemon = cluster.start_with(1, config(), beside(odd.clone()));
        seconds(5).await;
        assert_eq!(odd.names(), ["kept"], "{protobuf}");
        odd.put("b", Some("u-b"), &[to(&later)]);
        odd.put("c", Some("u-c"), &[to(&gone)]);
        // Watches end in the meantime and are resumed.
        seconds(120).await;
        assert_eq!(odd.names(), ["b", "kept"], "{protobuf}");
        delete_map(&cluster, "later", "Background").await;
        seconds(5).await;
        assert_eq!(odd.names(), ["kept"], "{protobuf}");
        let resumed = odd.0.resumed.lock().unwrap().clone();
        assert!(resumed.iter().all(|at| at.ends_with("%2F")) && resumed.len() > 2, "{resumed:?}");
        for deletion in odd.0.deletions.lock().unwrap().iter() {
            assert!(deletion["preconditions"]["uid"].as_str().unwrap().starts_with("u-"), "{deletion}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_version_is_no_number_keeps_its_dependents_until_it_is_gone() {
    for protobuf in [false, true] {
        let odd = Odd::new(protobuf);
        odd.put("owner", Some("u-1"), &[]);
        odd.put("nameless", None, &[]);
        let (cluster, _daemon) = cluster_beside(&odd).await;
        let to = |name: &str, uid: &str| json!({"apiVersion": "odd.io/v1", "kind": "Thing", "name": name, "uid": uid});
        create(&cluster, "a", &[to("owner", "u-1")]).await;
        create(&cluster, "b", &[to("nameless", "u-9")]).await;
        seconds(90).await;
        assert!(
            !are_gone(&cluster, &["a"]) && !are_gone(&cluster, &["b"]),
            "nothing proves that they have no owner"
        );
        odd.delete("owner");
        cluster.eventually(5, "it follows its owner", |cluster| are_gone(cluster, &["a"])).await;
        assert!(stored(&cluster, "b").is_some());
    }
}

/// Has the collector ask which kinds are served.
async fn define_another_kind(cluster: &Cluster) {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({"metadata": {"name": "others.y.io"},
        "spec": {"group": "y.io", "scope": "Namespaced", "names": {"plural": "others", "kind": "Other"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.call(Method::POST, definitions, &definition).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_a_watch_shows_after_its_kind_has_gone_is_a_proof() {
    let odd = Odd::new(true);
    odd.put("owner", Some("u-1"), &[]);
    odd.put("kept", Some("u-2"), &[]);
    let (cluster, daemon) = cluster_beside(&odd).await;
    let to =
        |name: &str, uid: &str| json!({"apiVersion": "odd.io/v1", "kind": "Thing", "name": name, "uid": uid});
    create(&cluster, "a", &[to("owner", "u-1")]).await;
    create(&cluster, "b", &[to("kept", "u-2")]).await;
    let synced = |count: usize| {
        let line = format!("windlass_garbage_resources{{state=\"synced\"}} {count}\n");
        daemon.metrics.render().contains(&line)
    };
    seconds(10).await;
    let known = (1..100).find(|count| synced(*count)).unwrap();
    odd.put("other", Some("u-3"), &[]);
    odd.0.is_removed.store(true, Ordering::SeqCst);
    define_another_kind(&cluster).await;
    seconds(2).await;
    assert!(synced(known), "one kind has come and one has gone");
    odd.delete("owner");
    cluster.eventually(5, "it follows its owner", |cluster| are_gone(cluster, &["a"])).await;
    seconds(120).await;
    assert!(stored(&cluster, "b").is_some(), "that a kind has gone proves nothing");
}

const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";

async fn create_stateful_set(cluster: &Cluster, name: &str) -> Value {
    let labels = json!({"app": name});
    let pods = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec =
        json!({"replicas": 0, "serviceName": name, "selector": {"matchLabels": labels}, "template": pods});
    cluster.call(Method::POST, STATEFUL_SETS, &json!({"metadata": {"name": name}, "spec": spec})).await
}

fn is_gone(cluster: &Cluster, stateful_set: &Value) -> bool {
    let uid = &stateful_set["metadata"]["uid"];
    !cluster.objects("StatefulSet").iter().any(|known| known["metadata"]["uid"] == *uid)
}

/// The procedure of an operator that has changed a field of a StatefulSet that cannot be changed.
#[tokio::test(start_paused = true)]
async fn an_orphaned_stateful_set_is_created_again_beside_a_dead_api_and_what_that_api_holds_lives() {
    for was_read in [false, true] {
        let odd = Odd::new(true);
        odd.set_down(!was_read);
        let (cluster, _daemon) = cluster_beside(&odd).await;
        let stateful_set = create_stateful_set(&cluster, "db").await;
        let mut reference = to(&stateful_set);
        (reference["apiVersion"], reference["kind"]) = ("apps/v1".into(), "StatefulSet".into());
        create(&cluster, "child", &[reference.clone()]).await;
        odd.put("seen", Some("u-1"), &[reference.clone()]);
        seconds(60).await;
        odd.set_down(true);
        odd.put("unseen", Some("u-2"), &[reference.clone()]);
        seconds(1).await;
        delete(&cluster, &format!("{STATEFUL_SETS}/db"), "Orphan").await;
        seconds(110).await;
        assert!(!is_gone(&cluster, &stateful_set), "a thing may refer to it");
        cluster.eventually(12, "it is let go", |cluster| is_gone(cluster, &stateful_set)).await;
        let is_said = |event: &Value| event["reason"] == "DependentsNotReleased";
        seconds(1).await;
        assert!(cluster.objects("Event").iter().any(is_said));
        create_stateful_set(&cluster, "db").await;
        // Much longer than a dependent may be late beside APIs that work.
        seconds(7200).await;
        odd.set_down(false);
        seconds(120).await;
        assert_eq!((odd.owners_of("seen"), odd.owners_of("unseen")), (vec![], vec![]), "{was_read}");
        assert!(odd.0.deletions.lock().unwrap().is_empty() && owners_of(&cluster, "child").is_empty());
        // After ten minutes more a dependent is again one of an owner that is gone.
        seconds(700).await;
        odd.put("late", Some("u-3"), &[reference]);
        seconds(5).await;
        assert_eq!(odd.names(), ["seen", "unseen"], "{was_read}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_was_let_go_beside_a_dead_api_is_remembered_over_a_restart() {
    let odd = Odd::new(true);
    odd.set_down(true);
    let record = windlass::model::ObjectKey::new("kube-system", "windlass");
    let config = || ControllerConfig { garbage_record: Some(record.clone()), ..config() };
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let daemon = cluster.start_with(1, config(), beside(odd.clone()));
    let owner = create(&cluster, "owner", &[]).await;
    seconds(10).await;
    odd.put("thing", Some("u-1"), &[to(&owner)]);
    delete_map(&cluster, "owner", "Orphan").await;
    cluster.eventually(130, "it is let go", |cluster| are_gone(cluster, &["owner"])).await;
    let lease = cluster.sandbox.object("Lease", "kube-system", "windlass").expect("it keeps a record");
    let uid = owner["metadata"]["uid"].as_str().unwrap();
    let annotations = lease["metadata"]["annotations"].to_string();
    assert!(annotations.contains(uid) && annotations.contains("odd.io"), "{annotations}");
    daemon.kill();
    odd.set_down(false);
    let _daemon = cluster.start_with(2, config(), beside(odd.clone()));
    seconds(60).await;
    assert_eq!((odd.names(), odd.owners_of("thing")), (vec!["thing".to_owned()], vec![]));
    seconds(700).await;
    let lease = cluster.sandbox.object("Lease", "kube-system", "windlass").unwrap();
    assert!(!lease["metadata"]["annotations"].to_string().contains(uid), "ten minutes later it is forgotten");
}
