//! The encodings in which the collector reads metadata: protobuf from a server that offers it, JSON from all others.

use std::collections::BTreeSet;
use std::sync::Mutex;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;

use super::*;

/// How an API server treats a request for metadata in protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Serves,
    /// It knows no media type but plain JSON, and sends whole objects.
    SendsJson,
    Refuses(u16),
}

/// The media types of the answers to lists and watches of ConfigMaps.
type Answered = Arc<Mutex<BTreeSet<String>>>;

fn around(server: Server, answered: Answered) -> impl FnOnce(axum::Router) -> axum::Router {
    move |router| {
        router.layer(from_fn(move |mut request: Request, next: Next| {
            let answered = answered.clone();
            let is_meant = request.uri().path().ends_with("/configmaps") && request.method() == Method::GET;
            let accept = request.headers().get("accept").map(|it| it.to_str().unwrap().to_owned());
            let is_protobuf = accept.unwrap_or_default().contains("protobuf");
            if server != Server::Serves && is_protobuf {
                request.headers_mut().insert("accept", "application/json".parse().unwrap());
            }
            async move {
                if let Server::Refuses(code) = server
                    && is_protobuf
                {
                    let text = json!({"kind": "Status", "status": "Failure", "reason": "NotAcceptable", "code": code});
                    let answer = Response::builder().status(code).header("content-type", "application/json");
                    return answer.body(Body::from(text.to_string())).unwrap();
                }
                let response = next.run(request).await;
                if is_meant && response.status().is_success() {
                    let media_type = response.headers()["content-type"].to_str().unwrap().to_owned();
                    answered.lock().unwrap().insert(media_type);
                }
                response
            }
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owners_whatever_the_encoding_of_the_server_is() {
    let (protobuf, json) = ("application/vnd.kubernetes.protobuf;stream=watch", "application/json");
    let servers = [
        (Server::Serves, vec![protobuf]),
        (Server::SendsJson, vec![json]),
        (Server::Refuses(406), vec![json]),
        (Server::Refuses(415), vec![json]),
    ];
    for (server, expected) in servers {
        let cluster = Cluster::without_collectors(Faults::default()).await;
        // Some are in the first list, and some come by the watch.
        let owner = create(&cluster, "owner", &[]).await;
        create(&cluster, "a", &[to(&owner)]).await;
        let answered = Answered::default();
        let daemon = cluster.start_with(1, config(), around(server, answered.clone()));
        seconds(3).await;
        // The barrier of an orphaning deletion asks in JSON, so that is looked at before.
        assert_eq!(
            *answered.lock().unwrap(),
            expected.iter().map(ToString::to_string).collect(),
            "{server:?}"
        );
        create(&cluster, "b", &[blocking(&owner)]).await;
        let keeper = create(&cluster, "keeper", &[]).await;
        create(&cluster, "kept", &[to(&keeper)]).await;
        seconds(1).await;
        delete_map(&cluster, "owner", "Foreground").await;
        cluster.eventually(2, "they are gone", |cluster| are_gone(cluster, &["a", "b", "owner"])).await;
        delete_map(&cluster, "keeper", "Orphan").await;
        cluster.eventually(2, "the keeper is gone", |cluster| are_gone(cluster, &["keeper"])).await;
        seconds(2).await;
        assert!(owners_of(&cluster, "kept").is_empty());
        let text = daemon.metrics.render();
        let undecodable =
            text.lines().filter(|line| line.starts_with("windlass_informer_undecodable_objects_total{"));
        let undecodable: Vec<&str> = undecodable.filter(|line| !line.ends_with(" 0")).collect();
        assert!(undecodable.is_empty(), "{server:?}: {undecodable:?}");
        drop(daemon);
    }
}
