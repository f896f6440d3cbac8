//! The rows of the table "otherwise than upstream".

/// A difference that is meant, as users read it.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub upstream: &'static str,
    pub windlass: &'static str,
    pub why: &'static str,
}

/// Declares the rows, and the list of all of them in the order of the table.
macro_rules! rows {
    ($($name:ident { $upstream:literal, $windlass:literal, $why:literal })*) => {
        $(pub static $name: Row = Row { upstream: $upstream, windlass: $windlass, why: $why };)*
        pub static ALL: &[&Row] = &[$(&$name),*];
    };
}

rows! {
    LOST_REPLIES {
        "A lost reply to the creation of a pod leads to another pod",
        "The controller chooses the pod's name before the request and keeps it until the outcome is known",
        "No pod too many. Texts of refusals therefore name a pod where upstream has only a prefix"
    }
    SEQUENCE_OF_NAMES {
        "The API server draws the random suffix of a pod's name",
        "The ReplicaSet's UID determines a sequence of suffixes",
        "A restarted controller asks for the same names, so that the API server refuses a duplicate"
    }
    FAILED_PODS_BACK_OFF {
        "Pods that fail at startup are replaced at once, without end",
        "One by one, after 5, 10, 20, … seconds, at most every five minutes; the event `FailedPodsBackOff` says so. `--failed-pod-backoff=false` restores upstream's behaviour",
        "A node that refuses every pod must not fill the API server with failed pods"
    }
    QUOTA_RETRY {
        "A ReplicaSet whose pods a quota refuses retries when its backoff has elapsed",
        "Also as soon as a pod of the namespace ends: first the ReplicaSet that has waited longest",
        "Free room is used within seconds, not minutes"
    }
    GATHERED_STATUS {
        "Each sync writes the status, so that intermediate conditions and numbers show for milliseconds",
        "One status write per sync, and rising numbers at most once a second: intermediate conditions may not show",
        "Fewer writes. The conditions and numbers at rest are the same"
    }
    LIVE_READS {
        "Decides on a cache that is older than its own writes (ReplicaSets since 1.36 excepted, by feature gate)",
        "Never does, for Deployments either: the key waits until the watch has caught up",
        "No decision is made twice"
    }
    SIZE_ANNOTATIONS {
        "A missing, wrong or stale `desired-replicas` or `max-replicas` annotation stays, and can stop a rollout for ever (kubernetes#138840, #125568)",
        "Both annotations of every active ReplicaSet are brought up to date at each sync",
        "A rollout must not depend on an annotation that anybody can edit"
    }
    SHRINKING_REPLICA_SETS {
        "Counts pods as available that a shrinking ReplicaSet is about to delete, and can exceed `maxUnavailable`",
        "Counts what the size of the ReplicaSet lets it keep",
        "`maxUnavailable` holds at every moment"
    }
    REPLICA_SETS_BY_PODS {
        "Scales an old ReplicaSet down by its status, which may lag behind its pods",
        "While a rollout is under way, no more pods of a ReplicaSet count as available than the pod cache shows",
        "`maxUnavailable` holds at every moment"
    }
    NO_CONFLICTS {
        "The Deployment controller's scaling of a ReplicaSet and the ReplicaSet's own status update conflict now and then",
        "The second writer waits locally for the first",
        "No wasted requests"
    }
    RECREATED_CHILDREN {
        "While a watch lags, recreates pods and ReplicaSets of a deleted owner as fast as they are collected",
        "Before children are created again for the same generation within a minute, the owner is read from the API server",
        "No load without end"
    }
    ONE_PLAN {
        "Scaling old ReplicaSets down and the new one up takes one sync each",
        "One plan for both, old ReplicaSets first",
        "Fewer syncs; the surge holds after every write"
    }
    RECREATE_DEADLINE {
        "While a Recreate waits for its old pods, `Progressing` stays at `NewReplicaSetAvailable` and no deadline runs",
        "`Progressing` becomes `ReplicaSetUpdated` as soon as old pods are scaled down, and the deadline runs",
        "`kubectl rollout status` and alerts see a Recreate that hangs"
    }
    RECREATE_ENDED_PODS {
        "Recreate waits for Failed and Succeeded pods until somebody deletes them (kubernetes#128798)",
        "Pods that have ended do not block it",
        "They use no resources that the new pods need"
    }
    ROLLBACK_DEADLINE {
        "Rolling back to an existing ReplicaSet keeps `NewReplicaSetAvailable`, under which no deadline runs",
        "`FoundNewReplicaSet`, and the deadline runs",
        "`kubectl rollout status` and alerts see a rollback that hangs"
    }
    CURRENT_MESSAGES {
        "The message of a condition stays when only the text has changed",
        "The message is kept current, at most once in 30 seconds where it names the cause of a failure",
        "The text that one reads is that of the latest failure"
    }
    RETRIED_FOR_EVER {
        "A Deployment is dropped from the queue after 15 failed tries",
        "Retried for ever, at least once a minute",
        "What caused the failure ends some day"
    }
    STEPS_IN_REPLICA_FAILURE {
        "A scaling, update or deletion of a ReplicaSet that the API server refuses is only logged",
        "It shows in the Deployment's condition `ReplicaFailure`: `FailedScale`, `FailedUpdate`, `FailedDelete`, `FailedAdopt`",
        "A rollout that is refused says so"
    }
    INVALID_SELECTORS {
        "A selector that cannot work (not the template's, an unknown operator) creates pods or ReplicaSets without end",
        "Nothing is written; the event `InvalidSelector` says why",
        "No load without end"
    }
    DELETED_BY_UID {
        "Pods are deleted by name",
        "By name and UID",
        "A new pod of the same name is not deleted by mistake"
    }
    TOTAL_ORDER {
        "The order in which pods are deleted is not transitive",
        "A key with a total order; within one logarithmic bucket of ready time the next criterion decides",
        "The result does not depend on the order of a list"
    }
    TEMPLATE_HASH {
        "The hash in the name of a ReplicaSet changes with the API's Go types",
        "It is computed from the template's JSON; existing ReplicaSets are found by their templates, whatever their names",
        "An upgrade does not change the names"
    }
    HOSTILE_REVISIONS {
        "A revision annotation of a ReplicaSet that is no number, negative, or the greatest of 64 bits stays and breaks the numbering: the Deployment repeats it or has none",
        "Such a revision counts as none, and the next sync replaces it",
        "Rollbacks go on working"
    }
    AVAILABLE_BEFORE_THE_FIRST_REPLICA_SET {
        "A Deployment whose first ReplicaSet is refused has no condition `Available`",
        "`Available=False`",
        "It has no pods, and `kubectl wait` and dashboards need not guess"
    }
}

/// Rows that no workload can show, and the test that does, as `file::function`.
pub static UNSEEN: &[(&Row, &str)] = &[
    (
        &LOST_REPLIES,
        "tests/chaos.rs::with_a_third_of_the_replies_lost_and_watches_three_seconds_late_two_hundred_pods_are_made",
    ),
    (
        &SEQUENCE_OF_NAMES,
        "tests/set_races.rs::a_creation_still_on_its_way_keeps_its_name_when_an_earlier_name_falls_free",
    ),
    (&QUOTA_RETRY, "tests/sets.rs::pods_that_a_quota_refused_are_made_as_soon_as_there_is_room"),
    (
        &LIVE_READS,
        "tests/set_races.rs::nothing_is_decided_on_a_cache_that_lags_and_all_of_it_as_soon_as_it_has_caught_up",
    ),
    (&SHRINKING_REPLICA_SETS, "tests/planning.rs::a_status_of_an_earlier_generation_frees_no_budget"),
    (
        &REPLICA_SETS_BY_PODS,
        "tests/planning.rs::a_set_that_still_reports_pods_it_has_lost_does_not_free_the_budget",
    ),
    (&NO_CONFLICTS, "src/controllers/replicaset.rs::a_status_does_not_meet_a_resize_that_is_under_way"),
    (
        &RECREATED_CHILDREN,
        "src/controllers/vanished.rs::a_creation_is_a_repetition_for_the_same_generation_within_a_minute",
    ),
    (&ONE_PLAN, "tests/rollout.rs::one_above_none_below"),
    (
        &CURRENT_MESSAGES,
        "src/controllers/words.rs::a_failure_is_worded_anew_once_in_half_a_minute_and_a_new_reason_at_once",
    ),
    (
        &RETRIED_FOR_EVER,
        "src/runtime/worker.rs::a_failed_sync_is_retried_with_growing_delays_until_it_succeeds",
    ),
    (
        &INVALID_SELECTORS,
        "tests/planning.rs::an_invalid_selector_is_refused_with_an_event_and_nothing_is_let_go",
    ),
    (&DELETED_BY_UID, "tests/set_faults.rs::one_daemon_makes_no_pod_too_many_and_deletes_none_too_many"),
    (&TOTAL_ORDER, "tests/replicaset_tables.rs::pods_that_nothing_but_their_uid_tells_apart"),
    (&TEMPLATE_HASH, "src/model/template.rs::hashes_are_the_same_in_every_release"),
];
