//! Watches: what they begin with, what they deliver, how they end.

use super::super::ExpiredWatch;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_revision_delivers_later_changes() {
    let sandbox = sandbox();
    let a = sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    sandbox.post(CONFIG_MAPS, config_map("b")).await.ok();
    let mut watch = sandbox.watch(&format!("{CONFIG_MAPS}?resourceVersion={}", revision(&a))).await;
    assert_eq!(watch.next_name().await, event("ADDED", "b"));
    watch.assert_idle();
    sandbox.patch(&format!("{CONFIG_MAPS}/a"), MERGE, json!({"data": {"a": "2"}})).await.ok();
    assert_eq!(watch.next_name().await, event("MODIFIED", "a"));
    sandbox.delete(&format!("{CONFIG_MAPS}/a")).await.ok();
    let deleted = watch.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["data"]["a"], "2", "the last state");
    assert_eq!(revision(&deleted["object"]), sandbox.revision(), "under the deletion's revision");
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_revision_begins_with_the_existing_objects() {
    let sandbox = sandbox();
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    for start in ["", "?resourceVersion=0", "?resourceVersion="] {
        let mut watch = sandbox.watch(&format!("{CONFIG_MAPS}{start}")).await;
        assert_eq!(watch.next_name().await, event("ADDED", "a"));
        watch.assert_idle();
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_sees_objects_enter_and_leave_its_selection() {
    let sandbox = sandbox();
    let mut watch = sandbox.watch(&format!("{CONFIG_MAPS}?labelSelector=x%3D1")).await;
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    watch.assert_idle();
    let label = |value: Value| json!({"metadata": {"labels": {"x": value}}});
    sandbox.patch(&format!("{CONFIG_MAPS}/a"), MERGE, label(json!("1"))).await.ok();
    assert_eq!(watch.next_name().await, event("ADDED", "a"));
    sandbox.patch(&format!("{CONFIG_MAPS}/a"), MERGE, label(json!("2"))).await.ok();
    let left = watch.next().await.unwrap();
    assert_eq!(left["type"], "DELETED");
    assert_eq!(left["object"]["metadata"]["labels"]["x"], "1", "the state that last matched");
    assert_eq!(revision(&left["object"]), sandbox.revision());
    sandbox.delete(&format!("{CONFIG_MAPS}/a")).await.ok();
    watch.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn one_object_is_watched_by_its_name() {
    let sandbox = sandbox();
    for path in [format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Db"), format!("{CONFIG_MAPS}/b")] {
        let mut watch = sandbox.watch(&path).await;
        sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
        sandbox.post(CONFIG_MAPS, config_map("b")).await.ok();
        assert_eq!(watch.next_name().await, event("ADDED", "b"));
        sandbox.delete(CONFIG_MAPS).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_revision_is_refused_in_either_form() {
    let sandbox = sandbox();
    let old = sandbox.revision();
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    sandbox.compact();
    let path = format!("{CONFIG_MAPS}?resourceVersion={old}");
    let mut watch = sandbox.watch(&path).await;
    let error = watch.next().await.unwrap();
    assert_eq!(error["type"], "ERROR");
    assert_eq!((&error["object"]["code"], &error["object"]["reason"]), (&json!(410), &json!("Expired")));
    assert_eq!(error["object"]["message"], format!("too old resource version: {old} ({})", old + 1));
    assert_eq!(watch.next().await, None);

    let plain = Sandbox::new(Options { expired_watch: ExpiredWatch::Http, ..options() });
    plain.post(CONFIG_MAPS, config_map("a")).await.ok();
    plain.compact();
    plain.get(&format!("{path}&watch=true")).await.refused(410);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_falls_behind_the_history_gets_an_error() {
    let sandbox = Sandbox::new(Options { history: 3, ..options() });
    let mut watch = sandbox.watch(CONFIG_MAPS).await;
    for number in 0..30 {
        sandbox.post(CONFIG_MAPS, config_map(&format!("a{number}"))).await.ok();
    }
    let error = watch.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
}

#[tokio::test(start_paused = true)]
async fn a_slow_watch_gets_what_a_new_watch_no_longer_can() {
    let sandbox = Sandbox::new(Options { history: 3, ..options() });
    let start = sandbox.revision();
    let mut watch = sandbox.watch(CONFIG_MAPS).await;
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        sandbox.post(CONFIG_MAPS, config_map(name)).await.ok();
    }
    for name in names {
        assert_eq!(watch.next_name().await, event("ADDED", name));
    }
    watch.assert_idle();
    sandbox.post(CONFIG_MAPS, config_map("g")).await.ok();
    let mut late = sandbox.watch(&format!("{CONFIG_MAPS}?resourceVersion={start}")).await;
    assert_eq!(late.next().await.unwrap()["object"]["code"], 410);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_carry_an_idle_watch_over_other_kinds_writes() {
    let sandbox = sandbox();
    let begun = Instant::now();
    let mut watch = sandbox.watch(&format!("{CONFIG_MAPS}?allowWatchBookmarks=true")).await;
    sandbox.post(PODS, pod("a")).await.ok();
    let bookmark = watch.next().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    let metadata = json!({"resourceVersion": sandbox.revision().to_string()});
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata});
    assert_eq!(bookmark, json!({"type": "BOOKMARK", "object": object}));
    sandbox.compact();
    let after =
        sandbox.watch(&format!("{CONFIG_MAPS}?resourceVersion={}", revision(&bookmark["object"]))).await;
    drop(after);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_its_timeout() {
    let sandbox = sandbox();
    let begun = Instant::now();
    let mut watch = sandbox.watch(&format!("{CONFIG_MAPS}?timeoutSeconds=7")).await;
    assert_eq!(watch.next().await, None);
    assert_eq!(begun.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_ends_with_an_annotated_bookmark() {
    let sandbox = sandbox();
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = sandbox.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(watch.next_name().await, event("ADDED", "a"));
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    sandbox.post(CONFIG_MAPS, config_map("b")).await.ok();
    assert_eq!(watch.next_name().await, event("ADDED", "b"));
    sandbox.get(&format!("{CONFIG_MAPS}?watch=true&sendInitialEvents=true")).await.refused(422);
    let older = Sandbox::new(Options { streaming_lists: false, ..options() });
    older.get(&format!("{CONFIG_MAPS}?watch=true&{query}")).await.refused(422);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_tables_names_its_columns_once() {
    let sandbox = sandbox();
    let mut watch = sandbox.watch_as(CONFIG_MAPS, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    sandbox.post(CONFIG_MAPS, config_map("b")).await.ok();
    let (first, second) = (watch.next().await.unwrap(), watch.next().await.unwrap());
    assert_eq!(first["object"]["kind"], "Table");
    assert_eq!(first["object"]["columnDefinitions"][0]["name"], "Name");
    assert_eq!(second["object"]["columnDefinitions"], Value::Null);
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_changes_arrive_once_and_in_order() {
    let sandbox = sandbox();
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    let mut watch = sandbox.watch(&format!("{CONFIG_MAPS}?resourceVersion={}", sandbox.revision())).await;
    for step in 0..1000 {
        let data = json!({"data": {"step": step.to_string()}});
        sandbox.patch(&format!("{CONFIG_MAPS}/a"), MERGE, data).await.ok();
    }
    for step in 0..1000 {
        assert_eq!(watch.next().await.unwrap()["object"]["data"]["step"], step.to_string());
    }
    watch.assert_idle();
}

#[tokio::test]
async fn a_server_that_stops_ends_its_watches() {
    let sandbox = sandbox();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn({
        let (sandbox, shutdown) = (sandbox.clone(), shutdown.clone());
        async move { sandbox.serve(listener, shutdown).await }
    });
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    let api: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::namespaced(client, "default");
    let mut watch = std::pin::pin!(api.watch(&Default::default(), "0").await.unwrap());
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    assert!(matches!(watch.next().await, Some(Ok(kube::api::WatchEvent::Added(_)))));
    shutdown.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(1), watch.next()).await.unwrap();
    assert!(ended.is_none(), "{ended:?}");
    serving.await.unwrap().unwrap();
}
