//! Golden transcripts of Jobs: how pods are counted, replaced and deleted, step by step, for reviewers.
//!
//! Planner and a toy cluster; no tokio, no HTTP. `UPDATE_EXPECT=1 cargo test --test planner job` writes the files under
//! `tests/planner/job/` anew: read the difference before it is committed.

mod world;

use serde_json::{Value, json};
use world::{World, job};

/// Plays a scenario and compares its transcript with `tests/planner/job/<name>.txt`.
#[track_caller]
fn check(name: &str, title: &str, spec: Value, play: impl FnOnce(&mut World)) {
    let mut world = World::new(title, job(spec));
    world.settle();
    world.run();
    play(&mut world);
    world.finish();
    let path = format!("{}/../../tests/planner/job/{name}.txt", env!("CARGO_MANIFEST_DIR"));
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

fn indexed(completions: i64, more: Value) -> Value {
    let mut spec =
        json!({"completionMode": "Indexed", "completions": completions, "parallelism": completions});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    spec
}

#[test]
fn pods_are_counted_one_by_one() {
    check("completions", "3 completions, 2 at a time", json!({"completions": 3, "parallelism": 2}), |w| {
        w.exit(0, 0);
        w.run();
        w.exit(0, 0);
        w.exit(0, 0);
    });
    check("work-queue", "a work queue of 2 pods", json!({"parallelism": 2}), |w| {
        w.exit(0, 0);
        w.exit(0, 0);
    });
}

#[test]
fn failed_pods_are_replaced_after_a_backoff_until_the_limit() {
    check("backoff", "one completion; the pod fails twice", json!({"completions": 1}), |w| {
        w.exit(0, 1);
        w.pass(9);
        w.pass(1);
        w.run();
        w.exit(0, 1);
        w.pass(20);
        w.run();
        w.exit(0, 0);
    });
    let spec = json!({"completions": 3, "parallelism": 3, "backoffLimit": 0});
    check("backoff-limit", "3 pods, backoffLimit 0; one fails", spec, |w| {
        w.exit(1, 1);
        w.stop();
    });
}

#[test]
fn a_crash_after_any_write_counts_no_pod_twice() {
    for crash in 0..2 {
        let name = format!("crash-{crash}");
        let title = format!("two pods end; the controller crashes after {crash} writes to pods");
        check(&name, &title, json!({"completions": 4, "parallelism": 2}), |w| {
            w.exit(0, 0);
            w.run();
            w.pass(5);
            w.crash_after = Some(crash);
            w.exit(0, 1);
            w.pass(10);
            w.run();
            w.exit(0, 0);
            w.exit(0, 0);
        });
    }
}

#[test]
fn a_deadline_fails_a_job() {
    check(
        "deadline",
        "activeDeadlineSeconds 60",
        json!({"completions": 2, "activeDeadlineSeconds": 60}),
        |w| {
            w.exit(0, 0);
            w.run();
            w.pass(59);
            w.pass(1);
            w.stop();
        },
    );
}

#[test]
fn a_suspended_job_has_no_pods() {
    check("suspend", "suspended and resumed", json!({"completions": 4, "parallelism": 2}), |w| {
        w.exit(0, 0);
        w.run();
        w.edit(json!({"suspend": true}));
        w.settle();
        w.stop();
        w.pass(100);
        w.edit(json!({"suspend": false}));
        w.settle();
    });
}

#[test]
fn parallelism_changes_the_number_of_pods() {
    check("parallelism", "parallelism 3, 1, 2", json!({"completions": 9, "parallelism": 3}), |w| {
        for parallelism in [1, 2] {
            w.edit(json!({"parallelism": parallelism}));
            w.settle();
            w.stop();
            w.run();
        }
    });
}

#[test]
fn each_index_completes_once() {
    check("indexed", "3 indexes; 1 fails once", indexed(3, json!({})), |w| {
        w.exit(2, 0);
        w.exit(1, 1);
        w.exit(0, 0);
        w.pass(10);
        w.run();
        w.exit(1, 0);
    });
    check("elastic", "4 indexes, then 2, then 3", indexed(4, json!({})), |w| {
        w.exit(3, 0);
        for size in [2, 3] {
            w.edit(json!({"completions": size, "parallelism": size}));
            w.settle();
            w.stop();
            w.run();
        }
    });
}

#[test]
fn indexes_fail_by_their_own_limit() {
    let spec = indexed(2, json!({"backoffLimitPerIndex": 1, "backoffLimit": 2147483647}));
    check("per-index", "backoffLimitPerIndex 1; index 0 fails twice", spec, |w| {
        w.exit(0, 1);
        w.pass(10);
        w.run();
        w.exit(0, 1);
        w.exit(1, 0);
    });
    let spec =
        indexed(3, json!({"backoffLimitPerIndex": 0, "backoffLimit": 2147483647, "maxFailedIndexes": 0}));
    check("max-failed-indexes", "maxFailedIndexes 0; index 1 fails", spec, |w| {
        w.exit(1, 1);
        w.stop();
    });
}

#[test]
fn policies_decide() {
    let rule = |action: &str| json!({"action": action, "onExitCodes": {"operator": "In", "values": [42]}});
    let spec = |action: &str| {
        let policy = json!({"rules": [rule(action)]});
        json!({"completions": 2, "parallelism": 2, "backoffLimit": 0, "podFailurePolicy": policy})
    };
    check("ignore", "Ignore of exit code 42, backoffLimit 0", spec("Ignore"), |w| {
        w.exit(0, 42);
        w.pass(10);
        w.run();
        w.exit(0, 0);
        w.exit(0, 0);
    });
    check("fail-job", "FailJob by exit code 42", spec("FailJob"), |w| {
        w.exit(0, 42);
        w.stop();
    });
    let success = json!({"rules": [{"succeededCount": 1}]});
    check(
        "success-policy",
        "one of 3 indexes is enough",
        indexed(3, json!({"successPolicy": success})),
        |w| {
            w.exit(1, 0);
            w.stop();
        },
    );
}

#[test]
fn terminating_pods_are_replaced_at_once_or_when_they_have_failed() {
    for policy in ["TerminatingOrFailed", "Failed"] {
        let spec = json!({"completions": 2, "parallelism": 2, "podReplacementPolicy": policy});
        check(&format!("replace-{policy}"), &format!("podReplacementPolicy {policy}"), spec, |w| {
            w.delete(0);
            w.pass(10);
            w.stop();
            w.pass(10);
        });
    }
}
