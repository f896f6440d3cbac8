//! Intended differences. Each has its place, the values on both sides, and its row of the table. Those of all workloads
//! are here; those of one workload are beside the workload.

use super::rows::{
    AVAILABLE_BEFORE_THE_FIRST_REPLICA_SET, LOST_REPLIES, RECREATE_DEADLINE, ROLLBACK_DEADLINE,
    SEQUENCE_OF_NAMES, STATEFUL_CLAIM_OWNERS, STATEFUL_CLAIM_WARNING, STATEFUL_DELETIONS, THROTTLED_STATUS,
};

/// An intended difference, as users read it.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub upstream: &'static str,
    pub windlass: &'static str,
    pub why: &'static str,
}

/// The place of a difference in a play. Texts are patterns, in which `*` stands for anything.
#[derive(Debug)]
pub struct Declared {
    pub row: &'static Row,
    /// Which section of the facts, such as `rest`.
    pub section: &'static str,
    pub object: &'static str,
    pub path: &'static str,
    /// The values; `absent` where there is none.
    pub upstream: &'static str,
    pub windlass: &'static str,
    /// Whether it is an error when it does not occur. Some depend on what a cache shows when.
    pub always: bool,
}

/// A declared difference that depends on timing, so that a run may go without it.
pub const fn may_differ(
    row: &'static Row,
    [section, object, path]: [&'static str; 3],
    upstream: &'static str,
    windlass: &'static str,
) -> Declared {
    Declared { row, section, object, path, upstream, windlass, always: false }
}

/// A declared difference.
pub const fn differs(
    row: &'static Row,
    [section, object, path]: [&'static str; 3],
    upstream: &'static str,
    windlass: &'static str,
) -> Declared {
    Declared { row, section, object, path, upstream, windlass, always: true }
}

/// Whether a text fits a pattern with `*` in it.
pub fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((begin, rest)) => {
            let Some(left) = text.strip_prefix(begin) else { return false };
            if rest.is_empty() {
                return true;
            }
            (0..=left.len()).any(|at| left.is_char_boundary(at) && fits(rest, &left[at..]))
        }
    }
}

const PROGRESSING: &str = "status.conditions.Progressing";

/// The differences of all workloads.
pub static GENERAL: &[Declared] = &[
    // Intermediate conditions that are not written.
    differs(
        &THROTTLED_STATUS,
        ["conditions", "Deployment/*", "Available=False MinimumReplicasUnavailable: *"],
        "seen",
        "absent",
    ),
    differs(
        &THROTTLED_STATUS,
        ["conditions", "Deployment/*", "Progressing=True FoundNewReplicaSet: *"],
        "seen",
        "absent",
    ),
    differs(
        &THROTTLED_STATUS,
        ["conditions", "Deployment/*", "Progressing=Unknown DeploymentResumed: *"],
        "seen",
        "absent",
    ),
    // A deadline runs while a Recreate waits for its old pods.
    differs(
        &RECREATE_DEADLINE,
        [
            "conditions",
            "Deployment/*",
            "Progressing=True ReplicaSetUpdated: Deployment \"*\" is progressing.",
        ],
        "absent",
        "seen",
    ),
    differs(
        &RECREATE_DEADLINE,
        ["rest", "Deployment/*", PROGRESSING],
        "True NewReplicaSetAvailable: *",
        "True ReplicaSetUpdated: Deployment \"*\" is progressing.",
    ),
    // And after a rollback to a ReplicaSet that is there.
    differs(
        &ROLLBACK_DEADLINE,
        ["conditions", "Deployment/*", "Progressing=True FoundNewReplicaSet: *"],
        "absent",
        "seen",
    ),
    // The name of a pod that is refused was chosen by the controller.
    differs(&LOST_REPLIES, ["*", "*", "*pods \"*-\" is forbidden*"], "*", "absent"),
    differs(&LOST_REPLIES, ["*", "*", "*pods \"*-POD\" is forbidden: no PriorityClass*"], "absent", "*"),
    differs(
        &LOST_REPLIES,
        ["rest", "*", "status.conditions.ReplicaFailure"],
        "True FailedCreate: pods \"*-\" is forbidden*",
        "True FailedCreate: pods \"*-POD\" is forbidden*",
    ),
    // A refused creation is tried again under the same name.
    differs(
        &SEQUENCE_OF_NAMES,
        ["events", "*", "Warning FailedCreate *(combined from similar events): Error creating: pods *"],
        "some",
        "absent",
    ),
    differs(
        &AVAILABLE_BEFORE_THE_FIRST_REPLICA_SET,
        ["conditions", "Deployment/*", "Available=False MinimumReplicasUnavailable: *"],
        "absent",
        "seen",
    ),
    differs(
        &AVAILABLE_BEFORE_THE_FIRST_REPLICA_SET,
        ["rest", "Deployment/*", "status.conditions.Available"],
        "absent",
        "False MinimumReplicasUnavailable: *",
    ),
    differs(
        &STATEFUL_CLAIM_OWNERS,
        ["created", "PersistentVolumeClaim/*", "metadata.ownerReferences.*"],
        "absent",
        "*",
    ),
    differs(
        &STATEFUL_CLAIM_WARNING,
        ["events", "StatefulSet/*", "Normal ClaimGoesWithPod from statefulset-controller: *"],
        "absent",
        "*",
    ),
    may_differ(
        &STATEFUL_DELETIONS,
        ["events", "StatefulSet/*", "Normal SuccessfulDelete from statefulset-controller: *"],
        "2",
        "1",
    ),
];

/// The differences between one play of upstream and the next.
#[derive(Debug)]
pub struct Noise {
    /// In which workloads.
    pub workload: &'static str,
    pub section: &'static str,
    pub object: &'static str,
    pub path: &'static str,
    /// The values, in either order.
    pub values: [&'static str; 2],
    /// Which race it is.
    pub reason: &'static str,
}

const fn noise(
    reason: &'static str,
    [section, object, path]: [&'static str; 3],
    values: [&'static str; 2],
) -> Noise {
    Noise { workload: "*", section, object, path, values, reason }
}

const EARLY_STATUS: &str = "upstream's first status after a creation may or may not count the first pods";

const LOST_CONDITION: &str = "where upstream's first status after a creation conflicts, NewReplicaSetAvailable stays, and \
                              with it the name of the old ReplicaSet, for all of the rollout";

pub static NOISE: &[Noise] = &[
    noise(
        EARLY_STATUS,
        ["rest", "Deployment/*", PROGRESSING],
        ["True NewReplicaSetCreated: *", "True ReplicaSetUpdated: *"],
    ),
    noise(
        EARLY_STATUS,
        ["rest", "Deployment/*", PROGRESSING],
        ["True FoundNewReplicaSet: *", "True ReplicaSetUpdated: *"],
    ),
    noise(
        EARLY_STATUS,
        ["conditions", "Deployment/*", "Progressing=True ReplicaSetUpdated: ReplicaSet * is progressing."],
        ["seen", "absent"],
    ),
    noise(
        EARLY_STATUS,
        ["conditions", "Deployment/*", "Progressing=True NewReplicaSetCreated: *"],
        ["seen", "absent"],
    ),
    noise(
        "the API server finds a Service that a script has just created before its own record of the address",
        ["events", "Service/*", "Warning ClusterIPNotAllocated *"],
        ["some", "absent"],
    ),
    Noise {
        workload: "daemon_*",
        section: "created",
        object: "pods of DaemonSet/*",
        path: "*matchFields.0.values.0",
        values: ["*", "*"],
        reason: "upstream walks over nodes in the order of a Go map",
    },
    Noise {
        workload: "stateful_pods_have_two_claims_each",
        section: "created",
        object: "pods of StatefulSet/*",
        path: "*spec.volumes.*",
        values: ["*", "*"],
        reason: "upstream puts the volumes of claims in the order of a Go map",
    },
    Noise {
        workload: "a_replica_set_of_a_deployment_is_deleted",
        section: "counts",
        object: "pods of ReplicaSet/*",
        path: "*",
        values: ["*", "*"],
        reason: "the garbage collector deletes pods while others are created",
    },
    Noise {
        workload: "a_replica_set_is_scaled_by_a_user",
        section: "*",
        object: "*ReplicaSet/web#1",
        path: "*",
        values: ["*", "*"],
        reason: "the ReplicaSet controller acts before or after the Deployment controller takes the size back",
    },
    Noise {
        workload: "recreate_*",
        section: "rest",
        object: "Deployment/*",
        path: PROGRESSING,
        values: ["True NewReplicaSetAvailable: *", "True ReplicaSetUpdated: ReplicaSet *"],
        reason: LOST_CONDITION,
    },
    Noise {
        workload: "recreate_*",
        section: "rest",
        object: "Deployment/*",
        path: PROGRESSING,
        values: [
            "True NewReplicaSetAvailable: ReplicaSet \"web#1\" *",
            "True NewReplicaSetAvailable: ReplicaSet \"web#2\" *",
        ],
        reason: LOST_CONDITION,
    },
    Noise {
        workload: "recreate_*",
        section: "conditions",
        object: "Deployment/*",
        path: "Progressing=True NewReplicaSetAvailable: *",
        values: ["seen", "absent"],
        reason: LOST_CONDITION,
    },
    Noise {
        workload: "a_*_refuses_*",
        section: "events",
        object: "*",
        path: "Normal Successful*",
        values: ["*", "*"],
        reason: "an object may have 25 events and then one in five minutes; refusals use them up",
    },
];
