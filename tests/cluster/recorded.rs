//! Requests and what a kube-apiserver 1.36 answered to them: for each kind an object or more, its mistakes, and the traps of
//! real manifests. `recorded.json` has one request a line. The answers are recorded and not written:
//! `UPDATE_EXPECT=1 cargo test --test real_server -- recorded` writes them anew.

use windlass_testkit::answers::{Recorded, embedded};

#[tokio::test(start_paused = true)]
async fn every_request_is_answered_as_by_a_real_server() {
    let client = embedded();
    let recorded: Vec<Recorded> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    assert!(recorded.len() >= 150);
    let mut lines = Vec::new();
    for request in recorded {
        lines.extend(request.replay(&client).await.1);
    }
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}
