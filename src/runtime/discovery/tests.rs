use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use http::Request;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::metrics::Metrics;
use crate::runtime::RateLimiter;

/// The answers of a server by path: the code, the ETag and the body.
type Answers = Arc<Mutex<BTreeMap<String, (u16, &'static str, Value)>>>;

/// Which paths were asked for, with the ETag that the client knew.
type Asked = Arc<Mutex<Vec<String>>>;

struct Server {
    answers: Answers,
    asked: Asked,
    discovery: Discovery,
}

impl Server {
    fn new() -> Self {
        let (answers, asked) = (Answers::default(), Asked::default());
        let (known, log) = (answers.clone(), asked.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let etag = request.headers().get(IF_NONE_MATCH).map(|etag| etag.to_str().unwrap().to_owned());
            let etag = etag.unwrap_or_default();
            log.lock().push(format!("{path} {etag}").trim_end().to_owned());
            let (code, new_etag, body) = known.lock().get(&path).cloned().unwrap_or((404, "", json!({})));
            let unchanged = code == 200 && !etag.is_empty() && etag == new_etag;
            let response = Response::builder().status(if unchanged { 304 } else { code });
            let response = if new_etag.is_empty() { response } else { response.header(ETAG, new_etag) };
            let body = if unchanged { String::new() } else { body.to_string() };
            async move { Ok::<_, Infallible>(response.body(Body::from(body.into_bytes())).unwrap()) }
        });
        let client = kube::Client::new(service, "default");
        let api = Api::new(client, "test:443", RateLimiter::unlimited(), Metrics::new());
        Server { answers, asked, discovery: Discovery::new(api) }
    }

    fn says(&self, path: &str, code: u16, etag: &'static str, body: Value) {
        self.answers.lock().insert(path.to_owned(), (code, etag, body));
    }

    /// The core group with pods, and these groups.
    fn serves(&self, groups: Value) {
        self.says("/api", 200, "\"c\"", groups_of(json!([group("", "v1", "Current", json!([pods()]))])));
        self.says("/apis", 200, "\"g\"", groups_of(groups));
    }

    async fn refresh(&mut self) -> Result<Arc<Discovered>, DiscoveryError> {
        self.asked.lock().clear();
        self.discovery.refresh().await
    }

    fn asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().clone();
        asked.sort();
        asked
    }
}

fn groups_of(items: Value) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items})
}

fn group(name: &str, version: &str, freshness: &str, resources: Value) -> Value {
    let version = json!({"version": version, "freshness": freshness, "resources": resources});
    json!({"metadata": {"name": name, "creationTimestamp": null}, "versions": [version]})
}

fn resource(plural: &str, kind: &str) -> Value {
    json!({
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": "Namespaced",
        "verbs": ["delete", "list", "watch"],
        "subresources": [{"subresource": "status", "verbs": ["get"]}],
    })
}

fn pods() -> Value {
    resource("pods", "Pod")
}

/// `group/version/plural` of each resource.
fn names(found: &Discovered) -> Vec<String> {
    let name = |it: &DiscoveredResource| format!("{}/{}", it.api_version(), it.plural);
    found.resources.iter().map(name).collect()
}

fn failed(found: &Discovered) -> Vec<(String, &str)> {
    found.failed.iter().map(|it| (it.group_version(), it.message.as_str())).collect()
}

#[tokio::test]
async fn all_groups_are_read_from_two_documents_without_their_subresources() {
    let mut server = Server::new();
    server.serves(json!([group("apps", "v1", "Current", json!([resource("deployments", "Deployment")]))]));
    let found = server.refresh().await.unwrap();
    assert_eq!(names(&found), ["v1/pods", "apps/v1/deployments"]);
    assert_eq!(server.asked(), ["/api", "/apis"]);
    let pods = found.of_kind("", "Pod").unwrap();
    assert_eq!(found.of_kind("", "pod"), Some(pods), "as upstream's mapper");
    assert_eq!(found.of_kind("", "pOD"), None);
    assert!(pods.namespaced && pods.verbs.has_all(&[Verb::Delete, Verb::List, Verb::Watch]));
    assert!(!pods.verbs.has(Verb::DeleteCollection));
}

#[tokio::test]
async fn an_unchanged_server_answers_with_nothing_and_keeps_the_same_value() {
    let mut server = Server::new();
    server.serves(json!([]));
    let first = server.refresh().await.unwrap();
    let second = server.refresh().await.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(server.asked(), ["/api \"c\"", "/apis \"g\""]);
    let apps = group("apps", "v1", "Current", json!([resource("deployments", "Deployment")]));
    server.says("/apis", 200, "\"h\"", groups_of(json!([apps])));
    let third = server.refresh().await.unwrap();
    assert_eq!(names(&third), ["v1/pods", "apps/v1/deployments"], "one half changed, the other did not");
    assert!(Arc::ptr_eq(&third, &server.refresh().await.unwrap()));
    assert_eq!(server.asked(), ["/api \"c\"", "/apis \"h\""]);
}

#[tokio::test]
async fn a_new_etag_over_the_same_resources_is_no_change() {
    let mut server = Server::new();
    server.serves(json!([]));
    let first = server.refresh().await.unwrap();
    server.says("/apis", 200, "\"other\"", groups_of(json!([])));
    assert!(Arc::ptr_eq(&first, &server.refresh().await.unwrap()));
}

#[tokio::test]
async fn the_first_listed_version_is_preferred_and_the_others_are_known() {
    let mut server = Server::new();
    let version = |version: &str, resources: Value| json!({"version": version, "freshness": "Current", "resources": resources});
    server.serves(json!([{"metadata": {"name": "example.com"}, "versions": [
        version("v2", json!([resource("shops", "Shop")])),
        version("v1", json!([resource("shops", "Shop"), resource("tills", "Till")])),
    ]}]));
    let found = server.refresh().await.unwrap();
    assert_eq!(names(&found), ["v1/pods", "example.com/v2/shops", "example.com/v1/tills"]);
    let shops = found.of_kind("example.com", "Shop").unwrap();
    assert_eq!(shops.other_versions, ["v1"]);
    assert!(shops.is_served_in("v1") && shops.is_served_in("v2") && !shops.is_served_in("v3"));
}

#[tokio::test]
async fn a_stale_group_is_failed_and_hides_no_other() {
    let mut server = Server::new();
    server.serves(json!([
        group("metrics.k8s.io", "v1beta1", "Stale", Value::Null),
        group("apps", "v1", "Current", json!([resource("deployments", "Deployment")])),
    ]));
    let found = server.refresh().await.unwrap();
    assert_eq!(names(&found), ["v1/pods", "apps/v1/deployments"]);
    let message = "stale GroupVersion discovery: metrics.k8s.io/v1beta1";
    assert_eq!(failed(&found), [("metrics.k8s.io/v1beta1".to_owned(), message)]);
    assert_eq!(found.failed[0].last_good, None, "never read");
}

#[tokio::test]
async fn a_failed_group_is_known_by_what_it_had_when_it_was_last_read() {
    let mut server = Server::new();
    let shops = json!([resource("shops", "Shop")]);
    server.serves(json!([group("example.com", "v1", "Current", shops)]));
    assert_eq!(server.refresh().await.unwrap().failed, []);
    for etag in ["\"2\"", "\"3\""] {
        let broken = group("example.com", "v1", "Stale", json!([]));
        server.says("/apis", 200, etag, groups_of(json!([broken])));
        let found = server.refresh().await.unwrap();
        assert_eq!(names(&found), ["v1/pods"]);
        let last = found.failed[0].last_good.as_ref().unwrap();
        assert_eq!(last.iter().map(|it| it.plural.as_str()).collect::<Vec<_>>(), ["shops"]);
    }
    // A stale answer that still has its resources says itself what it had.
    let told = group("other.com", "v1", "Stale", json!([resource("tills", "Till")]));
    server.says("/apis", 200, "\"4\"", groups_of(json!([told])));
    let found = server.refresh().await.unwrap();
    assert_eq!(found.failed[0].last_good.as_ref().unwrap()[0].plural, "tills");
}

#[tokio::test]
async fn what_cannot_be_decoded_is_failed_and_hides_no_other() {
    let mut server = Server::new();
    server.serves(json!([
        {"metadata": {"name": "one.com"}, "versions": 7},
        {"metadata": {"name": "two.com"}, "versions": [
            {"version": "v2", "resources": [{"resource": {}}]},
            {"version": "v1", "resources": [resource("tills", "Till")]},
        ]},
        group("three.com", "v1", "Current", json!([resource("../secrets", "Secret")])),
        group("four.com", "..", "Current", json!([])),
        {"metadata": {"name": "five.com"}, "versions": null},
    ]));
    let found = server.refresh().await.unwrap();
    assert_eq!(names(&found), ["v1/pods", "two.com/v1/tills"]);
    let groups: Vec<_> = failed(&found).into_iter().map(|(group, _)| group).collect();
    assert_eq!(groups, ["one.com", "two.com/v2", "three.com/v1", "four.com/.."]);
}

#[tokio::test]
async fn a_parent_that_only_has_subresources_is_no_resource() {
    let mut server = Server::new();
    let parent = json!({"resource": "scalables", "responseKind": null, "scope": "Namespaced", "verbs": null});
    server.serves(json!([group("example.com", "v1", "Current", json!([parent]))]));
    let found = server.refresh().await.unwrap();
    assert_eq!((names(&found).len(), found.failed.len()), (1, 0));
}

#[tokio::test]
async fn nothing_at_all_is_an_error_and_changes_nothing() {
    let mut server = Server::new();
    server.serves(json!([]));
    let good = server.refresh().await.unwrap();
    server.says("/api", 200, "\"n\"", groups_of(json!([])));
    let broken = group("example.com", "v1", "Stale", json!([]));
    server.says("/apis", 200, "\"n\"", groups_of(json!([broken])));
    let error = server.refresh().await.unwrap_err().to_string();
    let expected = "discovery failed: the API server serves no resource; example.com/v1 failed: stale \
                    GroupVersion discovery: example.com/v1";
    assert_eq!(error, expected);
    for (code, body) in [(503, json!({})), (200, json!("?"))] {
        server.says("/apis", code, "", body);
        assert!(matches!(server.refresh().await.unwrap_err(), DiscoveryError::Api(_)));
    }
    assert!(Arc::ptr_eq(&good, server.discovery.current().unwrap()));
    server.serves(json!([]));
    assert!(Arc::ptr_eq(&good, &server.refresh().await.unwrap()), "the old ETags still hold");
    assert_eq!(server.asked(), ["/api \"c\"", "/apis \"g\""]);
}

#[tokio::test]
async fn a_server_without_aggregated_discovery_is_asked_group_by_group() {
    let mut server = Server::new();
    server.says("/api", 200, "\"c\"", json!({"kind": "APIVersions", "versions": ["v1"]}));
    let entry = |version: &str| json!({"groupVersion": format!("example.com/{version}"), "version": version});
    server.says(
        "/apis",
        200,
        "\"g\"",
        json!({"kind": "APIGroupList", "groups": [
            {"name": "example.com", "versions": [entry("v2"), entry("v1")], "preferredVersion": entry("v1")},
            {"name": "broken.com", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}},
        ]}),
    );
    let list = |names: &[(&str, &str)]| {
        let verbs = ["list", "delete"];
        let entry = |(name, kind): &(&str, &str)| json!({"name": name, "kind": kind, "namespaced": true, "verbs": verbs});
        json!({"kind": "APIResourceList", "resources": names.iter().map(entry).collect::<Vec<_>>()})
    };
    server.says("/api/v1", 200, "", list(&[("pods", "Pod"), ("pods/status", "Pod")]));
    server.says("/apis/example.com/v1", 200, "", list(&[("shops", "Shop")]));
    server.says("/apis/example.com/v2", 200, "", list(&[("shops", "Shop"), ("tills", "Till")]));
    let down =
        json!({"kind": "Status", "status": "Failure", "message": "down", "reason": "ServiceUnavailable"});
    server.says("/apis/broken.com/v1", 503, "", down);
    let found = server.refresh().await.unwrap();
    assert_eq!(names(&found), ["v1/pods", "example.com/v1/shops", "example.com/v2/tills"]);
    assert_eq!(found.of_kind("example.com", "Shop").unwrap().other_versions, ["v2"]);
    assert_eq!(failed(&found), [("broken.com/v1".to_owned(), "down")]);
    // Its documents of names have ETags too, which say nothing about the resources.
    assert!(Arc::ptr_eq(&found, &server.refresh().await.unwrap()));
    let all =
        ["/api", "/api/v1", "/apis", "/apis/broken.com/v1", "/apis/example.com/v1", "/apis/example.com/v2"];
    assert_eq!(server.asked(), all);
}
