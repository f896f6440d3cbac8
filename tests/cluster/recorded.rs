//! Requests and what a kube-apiserver 1.36 answered to them: for each kind an object or more, its mistakes, and the traps of
//! real manifests. `recorded.json` and `recorded_jobs.json` have one request a line. The answers are recorded and not written:
//! `UPDATE_EXPECT=1 cargo test --test real_server -- recorded` writes them anew.

use windlass_testkit::answers::{Recorded, embedded};

/// Sends the requests one after the other.
async fn play(recorded: &str, least: usize) {
    let client = embedded();
    let recorded: Vec<Recorded> = serde_json::from_str(recorded).unwrap();
    assert!(recorded.len() >= least);
    let mut lines = Vec::new();
    for request in recorded {
        lines.extend(request.replay(&client).await.1);
    }
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn every_request_is_answered_as_by_a_real_server() {
    play(include_str!("recorded.json"), 150).await;
}

/// Jobs and CronJobs: each rule about their specs, changes, statuses and deletions.
#[tokio::test(start_paused = true)]
async fn requests_about_jobs_are_answered_as_by_a_real_server() {
    play(include_str!("recorded_jobs.json"), 200).await;
}
