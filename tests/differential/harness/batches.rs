//! Minutes, and Jobs that end, as their controller would write it. A script says when.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::json;
use windlass::clock::Clock;

use super::stage::Stage;

const MINUTE: i64 = 60;

/// How long the rest of a minute must be for what a script does in it.
const ROOM: i64 = 35;

/// From the begin of a minute until its run has certainly begun.
const PROMPT: Duration = Duration::from_millis(1500);

fn left() -> i64 {
    MINUTE - Clock::System.now().as_second().rem_euclid(MINUTE)
}

async fn until_next_minute() {
    let wait = Duration::from_secs(left().unsigned_abs());
    tokio::time::sleep(wait + PROMPT).await;
}

impl Stage {
    /// Waits until no minute begins for some time.
    pub async fn align(&self) {
        if left() < ROOM {
            until_next_minute().await;
        }
    }

    /// Waits until the next minute has begun.
    pub async fn next_minute(&self) {
        self.act("a minute begins");
        until_next_minute().await;
    }

    /// The name of the Job of a CronJob for the next minute.
    pub fn next_run(&self, cron_job: &str) -> String {
        format!("{cron_job}-{}", Clock::System.now().as_second().div_euclid(MINUTE) + 1)
    }

    /// Ends all Jobs that have not ended.
    pub async fn end_jobs(&self, succeed: bool) {
        self.act(if succeed { "all Jobs succeed" } else { "all Jobs fail" });
        for job in self.all("Job").iter().filter(|job| job["status"]["conditions"].is_null()) {
            let now = Timestamp::from_second(Clock::System.now().as_second()).unwrap().to_string();
            let kinds =
                if succeed { ["SuccessCriteriaMet", "Complete"] } else { ["FailureTarget", "Failed"] };
            let conditions =
                kinds.map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}));
            let mut status = json!({"startTime": now, "conditions": conditions});
            if succeed {
                status["completionTime"] = now.into();
            }
            let name = job["metadata"]["name"].as_str().unwrap();
            let path = format!("{}/{name}/status", self.path("Job"));
            self.call(Method::PATCH, &path, &json!({"status": status})).await;
        }
        self.rest().await;
    }
}
