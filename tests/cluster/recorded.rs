//! Requests and what a kube-apiserver 1.36 answered to them: for each kind an object or more, its mistakes, and the traps of
//! real manifests. Each file of `recorded` has one request a line. The answers are recorded and not written:
//! `UPDATE_EXPECT=1 cargo test --test real_server -- recorded` writes them anew.

use windlass_testkit::answers::RECORDINGS;

#[tokio::test(start_paused = true)]
async fn every_request_is_answered_as_by_a_real_server() {
    let (mut count, mut lines) = (0, Vec::new());
    for recording in RECORDINGS {
        let client = recording.embedded();
        for request in recording.read() {
            count += 1;
            let found = request.replay(&client).await.1;
            lines.extend(found.into_iter().map(|line| format!("{}: {line}", recording.file)));
        }
    }
    assert!(count >= 700, "{count}");
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}
