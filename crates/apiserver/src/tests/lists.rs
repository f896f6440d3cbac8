//! Lists, pages, and the forms they come in.

use super::*;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn five_maps() -> Sandbox {
    let sandbox = sandbox();
    for name in ["a", "b", "c", "d", "e"] {
        sandbox.post(CONFIG_MAPS, labelled(config_map(name), json!({"name": name}))).await.ok();
    }
    sandbox
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

fn next_page(list: &Value) -> String {
    let token = list["metadata"]["continue"].as_str().unwrap();
    let escaped = token.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("{CONFIG_MAPS}?limit=2&continue={escaped}")
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_revision_whatever_is_written_meanwhile() {
    let sandbox = five_maps().await;
    let first = sandbox.get(&format!("{CONFIG_MAPS}?limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    sandbox.delete(&format!("{CONFIG_MAPS}/d")).await.ok();
    sandbox.post(CONFIG_MAPS, config_map("cc")).await.ok();
    let second = sandbox.get(&next_page(&first)).await.ok();
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let third = sandbox.get(&next_page(&second)).await.ok();
    assert_eq!(names(&third), ["e"]);
    assert_eq!(third["metadata"]["continue"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_compacted_page_is_refused_with_a_fresh_continue_token() {
    let sandbox = five_maps().await;
    let first = sandbox.get(&format!("{CONFIG_MAPS}?limit=2")).await.ok();
    sandbox.delete(&format!("{CONFIG_MAPS}/d")).await.ok();
    sandbox.compact();
    let expired = sandbox.get(&next_page(&first)).await;
    assert_eq!((expired.code, &expired.body["reason"]), (410, &json!("Expired")));
    let rest = sandbox.get(&next_page(&expired.body)).await.ok();
    assert_eq!(names(&rest), ["c", "e"]);
    sandbox.get(&format!("{CONFIG_MAPS}?continue=nonsense")).await.refused(400);
}

#[tokio::test(start_paused = true)]
async fn an_exact_revision_is_listed_as_it_was() {
    let sandbox = five_maps().await;
    let then = sandbox.revision();
    sandbox.delete(&format!("{CONFIG_MAPS}/a")).await.ok();
    let exact = format!("{CONFIG_MAPS}?resourceVersionMatch=Exact&resourceVersion");
    assert_eq!(names(&sandbox.get(&format!("{exact}={then}")).await.ok()).len(), 5);
    assert_eq!(names(&sandbox.get(&format!("{CONFIG_MAPS}?resourceVersion={then}")).await.ok()).len(), 4);
    sandbox.get(&format!("{CONFIG_MAPS}?resourceVersion=999999")).await.refused(504);
    sandbox.compact();
    sandbox.get(&format!("{exact}={then}")).await.refused(410);
    sandbox.get(&format!("{CONFIG_MAPS}?resourceVersionMatch=Exact")).await.refused(422);
}

#[tokio::test(start_paused = true)]
async fn lists_are_filtered_by_namespace_labels_and_fields() {
    let sandbox = five_maps().await;
    sandbox.post("/api/v1/namespaces/kube-system/configmaps", config_map("a")).await.ok();
    assert_eq!(names(&sandbox.get("/api/v1/configmaps").await.ok()).len(), 6);
    let by_label = format!("{CONFIG_MAPS}?labelSelector=name+in+(a,b)");
    assert_eq!(names(&sandbox.get(&by_label).await.ok()), ["a", "b"]);
    let by_field = "/api/v1/configmaps?fieldSelector=metadata.name%3Da,metadata.namespace!%3Ddefault";
    assert_eq!(names(&sandbox.get(by_field).await.ok()), ["a"]);
    sandbox.get(&format!("{CONFIG_MAPS}?labelSelector=a+b+c")).await.refused(400);
    let refused = sandbox.get(&format!("{PODS}?fieldSelector=spec.foo%3Da")).await.refused(400);
    assert!(refused.contains("field label not supported: spec.foo"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_is_no_number_or_of_the_future_is_refused() {
    let sandbox = five_maps().await;
    let why = "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
    let one = format!("{CONFIG_MAPS}/a");
    assert_eq!(sandbox.get(&format!("{one}?resourceVersion=abc")).await.refused(500), why);
    assert_eq!(sandbox.get(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=abc")).await.refused(500), why);
    let list = sandbox.get(&format!("{CONFIG_MAPS}?resourceVersion=abc")).await.refused(400);
    assert_eq!(list, format!("invalid resource version: {why}"));
    let below = sandbox.get(&format!("{CONFIG_MAPS}?resourceVersion=-1")).await.refused(400);
    assert!(below.ends_with("parsing \"-1\": invalid syntax"), "{below}");
    let late = sandbox.get(&format!("{one}?resourceVersion=999999")).await.refused(504);
    assert!(late.starts_with("Timeout: Too large resource version: 999999, current: "), "{late}");
    sandbox.get(&format!("{one}?resourceVersion=1")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_field_that_a_kind_is_not_selected_by_is_named() {
    let sandbox = sandbox();
    for (path, field, said) in [
        (
            "/apis/apps/v1/replicasets",
            "status.replicas",
            "\"status.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("/apis/batch/v1/jobs", "foo", "field label \"foo\" not supported for Job"),
        ("/api/v1/nodes", "metadata.namespace", "field label not supported: metadata.namespace"),
    ] {
        let refused = sandbox.get(&format!("{path}?fieldSelector={field}%3Dx")).await.refused(400);
        assert!(refused.contains(said), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scale_is_a_table_for_kubectl() {
    let sandbox = sandbox();
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let table = sandbox.get_as(&format!("{DEPLOYMENTS}/web/scale"), TABLE).await.ok();
    let columns = table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]);
    assert_eq!(columns.collect::<Vec<_>>(), ["Name", "Desired", "Available", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("web"), json!(3), json!(0)]);
}

#[tokio::test(start_paused = true)]
async fn a_table_has_rows_for_people_and_metadata_for_kubectl() {
    let sandbox = sandbox();
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let table = sandbox.get_as(DEPLOYMENTS, TABLE).await.ok();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    assert_eq!(table["rows"][0]["cells"][0], "web");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let whole = sandbox.get_as(&format!("{DEPLOYMENTS}/web?includeObject=Object"), TABLE).await.ok();
    assert_eq!(whole["rows"][0]["object"]["kind"], "Deployment");
    let none = sandbox.get_as(&format!("{DEPLOYMENTS}?includeObject=None"), TABLE).await.ok();
    assert_eq!(none["rows"][0]["object"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn metadata_can_be_requested_alone() {
    let sandbox = sandbox();
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = sandbox.get_as(DEPLOYMENTS, accept).await.ok();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["spec"], Value::Null);
    assert_eq!(list["items"][0]["metadata"]["name"], "web");
}

#[tokio::test(start_paused = true)]
async fn a_limit_below_zero_is_none() {
    let sandbox = sandbox();
    sandbox.post(CONFIG_MAPS, json!({"metadata": {"name": "a"}})).await.ok();
    let list = sandbox.get(&format!("{CONFIG_MAPS}?limit=-1")).await.ok();
    assert!(list["items"].as_array().is_some_and(|items| !items.is_empty()));
}
