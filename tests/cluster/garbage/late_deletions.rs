//! Changes to an object between the moment at which the collector decides about it and its write.

use serde_json::Value;

use super::*;

const CHILD: &str = "child";

/// An API server that carries out each deletion of the child two seconds later; with the child of an owner that was just
/// deleted, and another owner.
async fn with_late_deletions() -> (Cluster, Daemon, Value) {
    let faults =
        inject_faults(|request: &RequestInfo| match request.verb == "delete" && request.name == CHILD {
            true => FaultDecision::Delay(Duration::from_secs(2)),
            false => FaultDecision::Proceed,
        });
    let (cluster, daemon) = cluster_with(faults).await;
    let (owner, other) = (create(&cluster, "owner", &[]).await, create(&cluster, "other", &[]).await);
    create(&cluster, CHILD, &[to(&owner)]).await;
    seconds(5).await;
    delete_map(&cluster, "owner", "Background").await;
    seconds(1).await;
    (cluster, daemon, other)
}

async fn change(cluster: &Cluster, metadata: Value) {
    cluster.call(Method::PATCH, &format!("{MAPS}/{CHILD}"), &json!({ "metadata": metadata })).await;
}

/// The preconditions of all deletions of the child.
fn preconditions(cluster: &Cluster) -> Vec<Value> {
    let sent = requests(cluster).into_iter().filter(|request| request.verb == "delete");
    sent.map(|request| serde_json::from_slice::<Value>(&request.body).unwrap()["preconditions"].clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_object_that_moves_to_another_owner_before_its_deletion_lives() {
    let (cluster, _daemon, other) = with_late_deletions().await;
    // The first deletion meets an object that has changed, and the second one that has moved.
    change(&cluster, json!({"annotations": {"a": "b"}})).await;
    seconds(2).await;
    change(&cluster, json!({"ownerReferences": [to(&other)]})).await;
    seconds(20).await;
    assert_eq!(owners_of(&cluster, CHILD), ["other"]);
    assert_eq!(preconditions(&cluster).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_only_changes_is_deleted_by_its_uid_in_the_end() {
    let (cluster, _daemon, _other) = with_late_deletions().await;
    for number in ["one", "two", "three"] {
        change(&cluster, json!({"annotations": {"number": number}})).await;
        seconds(2).await;
    }
    cluster.eventually(2, "it is gone", |cluster| are_gone(cluster, &[CHILD])).await;
    let sent = preconditions(&cluster);
    let versions: Vec<bool> = sent.iter().map(|it| it["resourceVersion"].is_string()).collect();
    assert_eq!(versions, [true, true, false], "{sent:?}");
    assert!(sent.iter().all(|it| it["uid"].is_string()), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reference_that_is_corrected_after_its_owner_was_asked_for_stays() {
    let faults =
        inject_faults(|request: &RequestInfo| match request.verb == "patch" && request.name == CHILD {
            true if request.user_agent == USER_AGENT => FaultDecision::Delay(Duration::from_secs(2)),
            _ => FaultDecision::Proceed,
        });
    let (cluster, _daemon) = cluster_with(faults).await;
    let (owner, other) = (create(&cluster, "owner", &[]).await, create(&cluster, "other", &[]).await);
    let mut wrong = to(&owner);
    wrong["name"] = "nobody".into();
    create(&cluster, CHILD, &[wrong, to(&other)]).await;
    seconds(1).await;
    // The patch that removes the wrong reference is under way.
    change(&cluster, json!({"ownerReferences": [to(&owner), to(&other)]})).await;
    seconds(20).await;
    let mut owners = owners_of(&cluster, CHILD);
    owners.sort();
    assert_eq!(owners, ["other", "owner"]);
    assert!(requests(&cluster).iter().any(|request| request.verb == "patch" && request.name == CHILD));
}
