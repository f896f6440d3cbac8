//! Golden transcripts of CronJobs: policies, histories, clock changes and what was missed, step by step, for reviewers.
//!
//! Planner and a toy cluster; no tokio, no HTTP. `UPDATE_EXPECT=1 cargo test --test planner cronjob` writes the files under
//! `tests/planner/cronjob/` anew: read the difference before it is committed. Times are those of the zone of the schedule.

mod world;

use serde_json::{Value, json};
use world::{World, cron_job};

/// Plays a scenario and compares its transcript with `tests/planner/cronjob/<name>.txt`.
#[track_caller]
fn check(name: &str, title: &str, begins: &str, start: Value, play: impl FnOnce(&mut World)) {
    let mut world = World::new(title, begins, start);
    play(&mut world);
    let path = format!("{}/../../tests/planner/cronjob/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &world.transcript).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        world.transcript == expected,
        "{path} expects another course (UPDATE_EXPECT=1 rewrites it). Now:\n{}",
        world.transcript
    );
}

const NEW_YEAR: &str = "2026-01-01T10:02:00Z";

fn berlin(spec: Value) -> Value {
    let mut spec = spec;
    spec["timeZone"] = "Europe/Berlin".into();
    spec
}

#[test]
fn runs_follow_the_schedule_and_the_history_stays_short() {
    check(
        "history",
        "every 5 minutes; one Job of each kind is kept",
        NEW_YEAR,
        cron_job("*/5 * * * *", json!({})),
        |w| {
            for succeeds in [true, true, false, true, false] {
                w.pass(5);
                w.end_jobs(succeeds);
            }
        },
    );
}

#[test]
fn policies_say_whether_runs_overlap() {
    for policy in ["Allow", "Forbid", "Replace"] {
        let title = format!("every 5 minutes, {policy}; the first run takes 12 minutes");
        let start = cron_job("*/5 * * * *", json!({"concurrencyPolicy": policy}));
        check(&policy.to_lowercase(), &title, NEW_YEAR, start, |w| {
            w.pass(15);
            w.end_jobs(true);
            w.pass(5);
        });
    }
}

#[test]
fn clocks_that_change_skip_a_run_or_repeat_it() {
    let start = || cron_job("30 2 * * *", berlin(json!({})));
    check("spring", "02:30 in Berlin; the clocks skip it", "2026-03-27T20:00:00Z", start(), |w| {
        for _ in 0..4 {
            w.pass(24 * 60);
            w.end_jobs(true);
        }
    });
    check("autumn", "02:30 in Berlin; the clocks repeat it", "2026-10-23T20:00:00Z", start(), |w| {
        for _ in 0..8 {
            w.pass(6 * 60);
            w.end_jobs(true);
        }
    });
    let mut once = start();
    once["metadata"]["annotations"] = json!({"windlass.dev/clock-change": "once"});
    check("autumn-once", "the same, with the annotation for one run", "2026-10-24T20:00:00Z", once, |w| {
        w.pass(24 * 60);
    });
    check(
        "autumn-quarters",
        "each quarter of an hour from 02:00 to 03:00 in Berlin",
        "2026-10-24T23:50:00Z",
        cron_job("*/15 2 * * *", berlin(json!({}))),
        |w| {
            for _ in 0..9 {
                w.pass(15);
                w.end_jobs(true);
            }
        },
    );
}

#[test]
fn what_was_missed_runs_once_if_it_is_not_too_late() {
    check(
        "downtime",
        "each minute; nobody runs it for a day",
        NEW_YEAR,
        cron_job("* * * * *", json!({})),
        |w| {
            w.pass(1);
            w.end_jobs(true);
            w.down(24 * 60);
            w.end_jobs(true);
            w.pass(1);
        },
    );
    let start = cron_job("0 * * * *", json!({"startingDeadlineSeconds": 600}));
    check(
        "deadline",
        "each hour, within 10 minutes; down for 90 minutes, then for 65",
        NEW_YEAR,
        start,
        |w| {
            w.down(90);
            w.down(35);
            w.end_jobs(true);
        },
    );
    let suspended = cron_job("*/5 * * * *", json!({"suspend": true}));
    check("suspended", "suspended for 21 minutes", NEW_YEAR, suspended, |w| {
        w.pass(21);
        w.edit(json!({"suspend": false}));
        w.pass(2);
    });
}

#[test]
fn an_edited_schedule_counts_from_the_last_run() {
    check(
        "edited",
        "each hour, then at half past, then in Kathmandu",
        NEW_YEAR,
        cron_job("0 * * * *", json!({})),
        |w| {
            w.pass(60);
            w.end_jobs(true);
            w.edit(json!({"schedule": "30 * * * *"}));
            w.pass(60);
            w.end_jobs(true);
            w.edit(json!({"timeZone": "Asia/Kathmandu"}));
            w.pass(60);
        },
    );
}

#[test]
fn a_lost_status_repeats_no_run() {
    check(
        "lost-status",
        "Forbid; the daemon ends before it writes the status",
        NEW_YEAR,
        cron_job("*/5 * * * *", json!({"concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 0})),
        |w| {
            w.loses_status = true;
            w.pass(4);
            w.loses_status = false;
            w.restart();
            w.pass(5);
            w.end_jobs(true);
        },
    );
}

#[test]
fn jobs_of_others_are_told_of_and_left_alone() {
    check(
        "others",
        "a user's Job, then one with the name of a run",
        NEW_YEAR,
        cron_job("*/5 * * * *", json!({})),
        |w| {
            w.create_job("by-hand", true);
            // The minute of 10:10.
            w.create_job("backup-29454370", false);
            w.pass(5);
            w.end_jobs(true);
            w.pass(9);
        },
    );
    check("deleted", "a user deletes the Job of a run", NEW_YEAR, cron_job("*/5 * * * *", json!({})), |w| {
        w.pass(4);
        w.delete_jobs();
        w.pass(5);
    });
}

#[test]
fn what_cannot_run_says_so_once() {
    let start = cron_job("0 0 31 2 *", json!({}));
    check("never", "31 February, then each minute", NEW_YEAR, start, |w| {
        w.pass(60);
        w.edit(json!({"schedule": "* * * * *"}));
        w.pass(1);
    });
    check("every", "each 25 seconds: one Job a minute", NEW_YEAR, cron_job("@every 25s", json!({})), |w| {
        w.pass(3);
    });
}
