//! Requests that the API server does not have after all, or has not for a while.

use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::{Faults, inject_faults, is_request};

use super::{SHOP, cluster, create, create_map, delete_shop, is_gone, requests};

/// Refuses this verb of a kind with this code, for the daemon.
fn refusing(code: u16, verb: &'static str, kind: &'static str, times: usize) -> Faults {
    let left = std::sync::atomic::AtomicUsize::new(times);
    inject_faults(move |request| {
        use std::sync::atomic::Ordering::Relaxed;
        let hits = is_request(request, verb, kind) && request.path.starts_with("/api/v1/namespaces/shop/");
        match hits && left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            true => FaultDecision::Refuse {
                code,
                message: "the server could not find the requested resource".into(),
                reason: if code == 404 { "NotFound" } else { "MethodNotAllowed" }.into(),
            },
            false => FaultDecision::Proceed,
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_not_found_for_a_while_does_not_count_as_empty() {
    let (cluster, _daemon) = cluster(0, refusing(404, "list", "Secret", 5)).await;
    create(&cluster, &format!("{SHOP}/secrets"), "precious", &[]).await;
    delete_shop(&cluster).await;
    cluster.eventually(60, "the namespace is gone", is_gone).await;
    let log = requests(&cluster, |it| it.kind == "Secret" || it.subresource == "finalize");
    let told: Vec<&str> = log.iter().filter(|it| it.verb != "list").map(|it| it.verb).collect();
    assert_eq!(told, ["deletecollection", "update"], "the secret is deleted before the namespace goes");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_deleted_at_once_is_deleted_one_by_one() {
    for code in [404, 405] {
        let (cluster, _daemon) =
            cluster(0, refusing(code, "deletecollection", "ConfigMap", usize::MAX)).await;
        create_map(&cluster, "one", &[]).await;
        create_map(&cluster, "two", &[]).await;
        delete_shop(&cluster).await;
        cluster.eventually(2, "the namespace is gone", is_gone).await;
        let deletions = requests(&cluster, |it| it.verb == "delete" && it.kind == "ConfigMap");
        assert_eq!(deletions.len(), 2, "{code}");
        let body = String::from_utf8_lossy(&deletions[0].body).into_owned();
        assert!(body.contains("\"uid\"") && body.contains("Background"), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_listed_after_all_keeps_no_namespace() {
    let (cluster, _daemon) = cluster(0, refusing(405, "list", "ConfigMap", usize::MAX)).await;
    create_map(&cluster, "one", &[]).await;
    delete_shop(&cluster).await;
    cluster.eventually(2, "the namespace is gone", is_gone).await;
    let log = requests(&cluster, |it| it.verb == "deletecollection" && it.kind == "ConfigMap");
    assert!(!log.is_empty() && cluster.objects("ConfigMap").is_empty(), "what is there is deleted unseen");
}
