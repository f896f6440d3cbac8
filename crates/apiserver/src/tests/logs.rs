//! `kubectl logs`, `exec`, `attach` and `port-forward`.

use super::*;

async fn log(sandbox: &Sandbox, query: &str) -> (u16, String) {
    let request = Request::get(format!("{PODS}/web/log{query}")).body(Body::empty()).unwrap();
    let response = sandbox.router().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    match serde_json::from_str::<Value>(&text) {
        Ok(status) => (code, status["message"].as_str().unwrap().to_owned()),
        Err(_) => (code, text),
    }
}

/// A pod with two containers, of which the first has this state and last state.
async fn with_a_pod(state: Value, last: Value) -> Sandbox {
    let sandbox = sandbox();
    let metadata = json!({"name": "web", "annotations": {"windlass.dev/pod-log": "listening\non port 80"}});
    let containers = json!([{"name": "main", "image": "a"}, {"name": "side", "image": "b"}]);
    sandbox
        .post(PODS, json!({"metadata": metadata, "spec": {"nodeName": "n1", "containers": containers}}))
        .await
        .ok();
    let status = json!({"name": "main", "image": "a", "imageID": "", "ready": false, "restartCount": 1,
                        "state": state, "lastState": last});
    let status = json!({"status": {"containerStatuses": [status]}});
    sandbox.patch(&format!("{PODS}/web/status"), MERGE, status).await.ok();
    sandbox
}

#[tokio::test(start_paused = true)]
async fn a_log_has_the_start_the_end_and_the_lines_of_the_annotation() {
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:07Z"}});
    let ended = json!({"terminated": {"startedAt": "2026-01-01T00:00:01Z", "finishedAt": "2026-01-01T00:00:03Z",
                                      "exitCode": 3}});
    let sandbox = with_a_pod(running, ended).await;
    let start = "started (simulated: no process runs here)\n";
    let lines = format!("{start}listening\non port 80\n");
    assert_eq!(log(&sandbox, "?container=main").await, (200, lines.clone()));
    let before = format!("{lines}ended with exit code 3\n");
    assert_eq!(log(&sandbox, "?container=main&previous=true").await, (200, before));
    let last = "2026-01-01T00:00:07Z on port 80\n";
    assert_eq!(log(&sandbox, "?container=main&tailLines=1&timestamps=true").await, (200, last.into()));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_not_there_is_refused_as_by_a_real_server() {
    let sandbox = with_a_pod(json!({"waiting": {"reason": "ImagePullBackOff"}}), json!({})).await;
    for (query, said) in [
        ("", "a container name must be specified for pod web, choose one of: [main side]"),
        ("?container=x", "container x is not valid for pod web"),
        ("?container=main", "container \"main\" in pod \"web\" is waiting to start: ImagePullBackOff"),
        ("?container=side", "container \"side\" in pod \"web\" is waiting to start: ContainerCreating"),
        ("?container=main&previous=true", "previous terminated container \"main\" in pod \"web\" not found"),
    ] {
        assert_eq!(log(&sandbox, query).await, (400, said.to_owned()), "{query}");
    }
    assert_eq!(sandbox.get(&format!("{PODS}/gone/log")).await.refused(404), "pods \"gone\" not found");
}

#[tokio::test(start_paused = true)]
async fn a_log_has_the_newest_lines_and_as_many_bytes_as_are_asked_for() {
    let sandbox = with_a_pod(json!({"running": {"startedAt": "2020-01-01T00:00:07Z"}}), json!({})).await;
    assert_eq!(log(&sandbox, "?container=main&sinceSeconds=5").await, (200, String::new()));
    assert_eq!(log(&sandbox, "?container=main&sinceTime=2020-01-01T00:00:08Z").await, (200, String::new()));
    assert_eq!(
        log(&sandbox, "?container=main&sinceTime=2020-01-01T00:00:07Z&limitBytes=4").await,
        (200, "star".into())
    );
    for (query, said) in [
        ("sinceSeconds=-1", "sinceSeconds: Invalid value: -1: must be greater than 0"),
        ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
    ] {
        let said = format!("PodLogOptions \"web\" is invalid: {said}");
        assert_eq!(log(&sandbox, &format!("?container=main&{query}")).await, (422, said));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_has_an_empty_log() {
    let sandbox = sandbox();
    let spec = json!({"containers": [{"name": "main", "image": "a"}]});
    sandbox.post(PODS, json!({"metadata": {"name": "web"}, "spec": spec})).await.ok();
    assert_eq!(log(&sandbox, "").await, (204, String::new()));
    assert_eq!(log(&sandbox, "?container=x").await, (400, "container x is not valid for pod web".into()));
}

#[tokio::test(start_paused = true)]
async fn there_is_no_process_to_reach() {
    let sandbox = with_a_pod(json!({}), json!({})).await;
    for (sub, what) in [
        ("exec", "there is no process in which a command could run"),
        ("attach", "there is no process to attach to"),
        ("portforward", "there is no process that listens on a port"),
    ] {
        let said = format!("the containers of this API server are simulated: {what}");
        let path = format!("{PODS}/web/{sub}?command=ls");
        assert_eq!(sandbox.get(&path).await.refused(501), said);
        assert_eq!(sandbox.post(&path, json!({})).await.refused(501), said);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_without_a_process_cannot_have_is_named() {
    let sandbox = with_a_pod(json!({}), json!({})).await;
    for (sub, what) in [
        ("ephemeralcontainers", "no container can be added to a pod that runs"),
        ("resize", "the resources of a pod that runs cannot be changed"),
    ] {
        let said = format!("the containers of this API server are simulated: {what}");
        assert_eq!(sandbox.patch(&format!("{PODS}/web/{sub}"), MERGE, json!({})).await.refused(501), said);
    }
    let token = "/api/v1/namespaces/shop/serviceaccounts/default/token";
    let said = "this API server authenticates nobody, and issues no token";
    assert_eq!(sandbox.post(token, json!({})).await.refused(501), said);
}

#[tokio::test(start_paused = true)]
async fn everybody_may_do_everything_and_is_nobody() {
    let sandbox = sandbox();
    let access = "/apis/authorization.k8s.io/v1";
    let attributes = json!({"verb": "create", "resource": "pods", "namespace": "shop"});
    let by_self = json!({"spec": {"resourceAttributes": attributes}});
    let by_other = json!({"spec": {"resourceAttributes": attributes, "user": "a"}});
    let local = "namespaces/shop/localsubjectaccessreviews";
    for (path, asked) in
        [("selfsubjectaccessreviews", by_self), ("subjectaccessreviews", by_other.clone()), (local, by_other)]
    {
        let answer = sandbox.post(&format!("{access}/{path}"), asked.clone()).await.ok();
        assert_eq!((&answer["status"]["allowed"], &answer["spec"]), (&json!(true), &asked["spec"]), "{path}");
        assert_eq!(sandbox.get(&format!("{access}/{path}")).await.code, 405, "nothing is stored");
    }
    let rules = sandbox.post(&format!("{access}/selfsubjectrulesreviews"), json!({"spec": {}})).await.ok();
    assert_eq!(rules["status"]["resourceRules"][0]["verbs"], json!(["*"]));
    let identity = "/apis/authentication.k8s.io/v1";
    let me = sandbox.post(&format!("{identity}/selfsubjectreviews"), json!({})).await.ok();
    assert_eq!(me["status"]["userInfo"]["username"], "system:anonymous");
    let review = sandbox.post(&format!("{identity}/tokenreviews"), json!({"spec": {"token": "x"}})).await;
    assert_eq!(review.refused(501), "this API server authenticates nobody, and judges no token");
}

#[tokio::test(start_paused = true)]
async fn a_question_about_rights_is_about_something_and_somebody() {
    let sandbox = sandbox();
    let group = "/apis/authorization.k8s.io/v1";
    let nothing = "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes \
                   must be specified";
    let nobody = "spec.user: Invalid value: \"\": at least one of user or group must be specified";
    for (path, spec, expected) in [
        ("selfsubjectaccessreviews", json!({}), nothing.to_owned()),
        ("subjectaccessreviews", json!({}), format!("[{nothing}, {nobody}]")),
        (
            "namespaces/shop/localsubjectaccessreviews",
            json!({"user": "a", "resourceAttributes": {"namespace": "x"}}),
            "spec.resourceAttributes.namespace: Invalid value: \"x\": must match metadata.namespace".to_owned(),
        ),
        (
            "selfsubjectaccessreviews",
            json!({"resourceAttributes": {}, "nonResourceAttributes": {"path": "/x", "verb": "get"}}),
            "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: cannot be specified in \
             combination with resourceAttributes"
                .to_owned(),
        ),
    ] {
        let refused = sandbox.post(&format!("{group}/{path}"), json!({"spec": spec})).await.refused(422);
        assert_eq!(refused, format!(".authorization.k8s.io \"\" is invalid: {expected}"));
    }
}
