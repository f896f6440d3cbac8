//! The rows of the table "otherwise than upstream".

use std::sync::LazyLock;

pub use super::declared::Row;
pub use super::rows_of_services::*;

/// Declares rows, and the list of them in the order of the table.
macro_rules! rows {
    ($list:ident: $($name:ident { $upstream:literal, $windlass:literal, $why:literal })*) => {
        $(pub static $name: Row = Row { upstream: $upstream, windlass: $windlass, why: $why };)*
        pub static $list: &[&Row] = &[$(&$name),*];
    };
}

pub(super) use rows;

/// All rows, in the order of the table.
pub static ALL: LazyLock<Vec<&'static Row>> = LazyLock::new(|| [OF_WORKLOADS, OF_SERVICES].concat());

rows! {
    OF_WORKLOADS:
    LOST_REPLIES {
        "After a lost reply to the creation of a pod, another pod is created",
        "The controller chooses the pod's name before the request and keeps it until the outcome is known",
        "No surplus pods. Texts of refusals therefore name a pod where upstream has only a prefix"
    }
    LATE_NAMES {
        "A pod is replaced whatever became of earlier requests",
        "Where the reply to a creation was lost and a pod that is not the ReplicaSet's has the chosen name, the place stays empty for two minutes",
        "Once that pod is deleted, the lost request may still create one. The price is one missing pod for two minutes, and only where somebody creates a pod under that very name"
    }
    SEQUENCE_OF_NAMES {
        "The API server draws the random suffix of a pod's name",
        "The UID of a ReplicaSet determines a sequence of suffixes, and a new pod takes the first that none of its pods has had. `generateName` is set beside the name, as admission webhooks expect",
        "A restarted controller requests the same name again, so that the API server refuses a duplicate. A refused creation is retried under the same name, so that its event count increases where upstream combines several events"
    }
    FAILED_PODS_BACK_OFF {
        "Pods that fail at startup are replaced at once and for ever",
        "One by one, after 5, 10, 20, … seconds, at most every five minutes; other missing pods, as after a scale-up, are created at once. The event `FailedPodsBackOff` reports it. `--failed-pod-backoff=false` restores upstream's behaviour",
        "A node that refuses every pod must not fill the API server with failed pods"
    }
    QUOTA_RETRY {
        "A ReplicaSet whose pods a quota refuses is retried when its backoff has elapsed",
        "Also as soon as a pod of the namespace ends: first the ReplicaSet that has waited longest",
        "Free quota is used within seconds, not minutes"
    }
    THROTTLED_STATUS {
        "Each sync writes the status, so that intermediate conditions and numbers are visible for milliseconds",
        "One status write per sync, and rising numbers at most once a second, all numbers of a rolling update of a StatefulSet every five while no more pods are unavailable than it may take: intermediate conditions may not be visible",
        "Fewer writes. The final conditions and numbers are the same"
    }
    LIVE_READS {
        "Makes decisions from a cache that is older than its own writes (except for ReplicaSets since 1.36, by feature gate)",
        "Never does, for Deployments either: the key waits until the watch has caught up",
        "No decision is made twice"
    }
    SIZE_ANNOTATIONS {
        "A missing, wrong or stale `desired-replicas` or `max-replicas` annotation stays, and can block a rollout for ever (kubernetes#138840, #125568)",
        "Both annotations of every active ReplicaSet are corrected at each sync",
        "A rollout must not depend on an annotation that any user can edit"
    }
    SHRINKING_REPLICA_SETS {
        "Counts pods as available that a ReplicaSet is about to delete, and can exceed `maxUnavailable`",
        "Counts at most as many pods as the ReplicaSet's `spec.replicas` lets it keep",
        "`maxUnavailable` holds at every moment"
    }
    REPLICA_SETS_BY_PODS {
        "Scales an old ReplicaSet down by its status, which may lag behind its pods",
        "While a rollout is under way, no more pods of a ReplicaSet count as available than the pod cache shows",
        "`maxUnavailable` holds at every moment"
    }
    RECREATED_CHILDREN {
        "While a watch lags, recreates pods and ReplicaSets of a deleted owner as fast as they are collected",
        "Before children are created again for the same generation within a minute, the owner is read from the API server",
        "No endless load"
    }
    ONE_PLAN {
        "Scaling old ReplicaSets down and the new one up takes one sync each",
        "One plan for both, old ReplicaSets first",
        "Fewer syncs; the surge holds after every write"
    }
    RECREATE_DEADLINE {
        "While a Recreate waits for its old pods, `Progressing` stays at `NewReplicaSetAvailable` and no deadline runs",
        "`Progressing` becomes `ReplicaSetUpdated` as soon as old pods are scaled down, and the deadline runs",
        "`kubectl rollout status` and alerts detect a Recreate that is stuck"
    }
    ROLLBACK_DEADLINE {
        "Rolling back to an existing ReplicaSet keeps `NewReplicaSetAvailable`, under which no deadline runs",
        "`FoundNewReplicaSet`, and the deadline runs",
        "`kubectl rollout status` and alerts detect a rollback that is stuck"
    }
    CURRENT_MESSAGES {
        "The message of a condition is not updated when only the text has changed",
        "The message is updated, at most once in 30 seconds where it names the cause of a failure",
        "The text names the latest failure"
    }
    RETRIED_FOR_EVER {
        "A Deployment is dropped from the queue after 15 failed attempts",
        "Retried for ever, at least once a minute",
        "The cause of the failure may be removed at any time"
    }
    STEPS_IN_REPLICA_FAILURE {
        "A write of the Deployment controller that the API server refuses is only logged, as is the adoption or release of a pod",
        "The condition `ReplicaFailure` reports it, on the Deployment (`FailedScale`, `FailedUpdate`, `FailedDelete`, `FailedAdopt`) or on the ReplicaSet (`FailedAdopt`), until it succeeds",
        "The Deployment shows why its rollout does not continue"
    }
    INVALID_SELECTORS {
        "A selector that cannot work (it does not match the template, or has an unknown operator) creates pods or ReplicaSets for ever",
        "Nothing is written; the event `InvalidSelector` reports the reason",
        "No endless load"
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
        "A revision annotation of a ReplicaSet that is not a number, negative, or the largest 64-bit number stays and breaks the numbering: the Deployment repeats it or has none",
        "Such a revision counts as missing, and the next sync replaces it",
        "Rollbacks continue to work"
    }
    STATUS_DESPITE_REFUSAL {
        "A sync that ends with a refusal writes no status: the numbers stay as they were, or are absent",
        "The numbers are written; a Deployment's `observedGeneration` waits until the generation was acted on",
        "The numbers are true while a rollout is stuck"
    }
    ROLLBACK_WITHOUT_DETOUR {
        "A rollback by annotation first creates the ReplicaSet of the current template, with pods",
        "It creates none",
        "No pods of an image that is being replaced"
    }
    UNANSWERED_GENERATION {
        "`observedGeneration` of a ReplicaSet rises even if a request for that generation got no reply",
        "It rises only once the request is known to have succeeded, or was refused; `ReplicaFailure` reports the refusal in the same write",
        "`observedGeneration` means that the generation was acted on"
    }
    GENERATION_TOO_HIGH {
        "An `observedGeneration` above the generation is not corrected where the selector matches every object",
        "It is always corrected",
        "The same"
    }
    UNANSWERED_REQUESTS {
        "A request without a reply (a broken connection, a timeout, a 502, 503 or 504 of a proxy) causes an event `FailedCreate` and a condition",
        "The controller reads the outcome from the API server and reports nothing. A 4xx or 500 of the API server, a failing webhook included, is reported as upstream does",
        "A pod that was created is not reported as failed"
    }
    RETRY_AFTER {
        "The client waits as long as `Retry-After` requires, and treats a 429 without it as a failure",
        "It waits for at most 60 s, and for 1 s after a 429 without `Retry-After`; up to ten times, as upstream does",
        "No reply of a proxy blocks a workload for an hour"
    }
    LOST_REPLICA_SET {
        "If the reply to the creation of a ReplicaSet is lost, there is no event, and the reason is `FoundNewReplicaSet`",
        "The event `ScalingReplicaSet` and `NewReplicaSetCreated` follow when the ReplicaSet is in the cache",
        "What happened is reported"
    }
    TERMINATING_NAMESPACE {
        "In a namespace that is being deleted, each missing pod is requested once",
        "One request, then a retry with backoff",
        "No endless load"
    }
    OWNERS {
        "A ReplicaSet belongs to the Deployment of its namespace whose UID it names, whatever the kind in the reference; a pod to the owner whose kind, name and UID it names",
        "Both by namespace, API group, kind and UID. A pod whose owner reference has a wrong name counts, until the garbage collector deletes it",
        "One rule for all kinds, and no effect across namespaces"
    }
    CO_LOCATION {
        "The co-location rank counts each pod that matches the selector of a ReplicaSet with the same owner",
        "It counts each pod that one of these ReplicaSets owns",
        "Foreign pods have no influence"
    }
    SILENT_WATCH {
        "HTTP/2 pings detect a watch whose connection relays nothing after 45 s, unless a proxy in between answers them",
        "It is detected within 45 s in any case: a silent watch is resumed, and a connection that does not answer is replaced",
        "No leader keeps its Lease without receiving events"
    }
    AVAILABLE_BEFORE_THE_FIRST_REPLICA_SET {
        "A Deployment whose first ReplicaSet is refused has no status but the condition `Progressing`",
        "It has `Available=False` and its numbers, too",
        "It has no pods, and `kubectl wait` and dashboards show that"
    }
    LARGE_SELECTORS {
        "A new ReplicaSet has the requirements of the Deployment's selector, and the values of each, in the order in which they were written",
        "In that order up to 16 requirements, and up to 16 values of one; more are sorted, each once",
        "A selector of a megabyte takes its own bytes, and is judged by a search. Both select the same pods"
    }
    UNREADABLE_OBJECTS {
        "An object that the program cannot decode fails the whole list or watch of its kind, and nothing is decided until that works",
        "The others are decoded. The object counts as one that exists: no pod is created in its place, a DaemonSet creates and replaces none, and nothing is decided for a Deployment whose ReplicaSet, or a DaemonSet whose revision, it is. Where it was deleted, that is noticed within two minutes",
        "One unreadable object must not stop the cluster, and must not lead to a pod too many"
    }
    DAEMON_NAMES {
        "The API server draws the random suffix of the name of a DaemonSet's pod, and deletions go by name",
        "The UID of the DaemonSet and the name of the node determine a sequence of names; deletions go by name and UID",
        "A restarted controller, another leader or one whose reply was lost requests the same name again: never two pods on a node"
    }
    DAEMON_NODES {
        "The deletion of a node, and a taint that keeps new pods away, enqueue no DaemonSet; neither does a node with a pod that is not bound yet (kubernetes#130514)",
        "Each enqueues the DaemonSets that it concerns, and no other",
        "`desiredNumberScheduled` is right, and `kubectl rollout status` does not wait for a deleted node"
    }
    DAEMON_DUPLICATES {
        "Where two revisions have the current template, all pods of the DaemonSet are relabelled as current, also those of older templates (kubernetes#111280)",
        "Only the pods of the revision that is deleted",
        "Pods of older templates are updated"
    }
    DAEMON_GENERATION {
        "A pod whose label `pod-template-generation` is that of the DaemonSet counts as updated, even if an earlier DaemonSet created it",
        "It does so only where its hash names no revision of the DaemonSet",
        "Adopted pods of another template are updated"
    }
    DAEMON_FAILED {
        "A failed pod is deleted first. With `maxSurge`, one in backoff counts as absent, so that failed pods accumulate (kubernetes#124388)",
        "Its replacement is created first, after the same backoff with `maxSurge` and without. If that is refused, the failed pod is deleted after the second refusal, or after the first by a quota",
        "The failed pod can be inspected until its replacement exists, and failed pods do not accumulate on a node"
    }
    DAEMON_REVISION_REFUSED {
        "A revision that a quota or a policy refuses stops its DaemonSet: no pod is deleted, and the history is not trimmed",
        "Pods leave the nodes on which none should run, and the history makes room for the revision",
        "A quota of revisions that the history uses up would stop the DaemonSet until a user deletes a revision"
    }
    HISTORY_PROTECTED {
        "A ReplicaSet of the history whose deletion is refused keeps all newer ones, too",
        "The others beyond `revisionHistoryLimit` are deleted",
        "The history of a Deployment would grow with each rollout"
    }
    DAEMON_STATUS {
        "A pod that is being deleted counts as ready (kubernetes#51278), and with `maxSurge` a node counts as outdated until the old pod is deleted (kubernetes#122527)",
        "A pod that is being deleted is not ready, and a node with an available new pod counts as updated",
        "The numbers are true"
    }
    DAEMON_PODS_WITHOUT_NODE {
        "A pod of a DaemonSet whose node affinity names no single node is never counted and never deleted",
        "It is deleted while it is not bound",
        "It would never be deleted"
    }
    DAEMON_SURGE {
        "A pod on a deleted node blocks the whole update with `maxSurge`",
        "The update continues on the other nodes",
        "The pod garbage collector needs a minute to delete that pod"
    }
    DAEMON_REVISIONS {
        "Revisions are compared byte by byte, and their hash changes with the API's Go types",
        "They are compared by their decoded content and written byte by byte as upstream writes them; the hash is computed from the template's JSON",
        "An upgrade restarts no pod"
    }
    STATEFUL_CLAIM_OWNERS {
        "A claim of a StatefulSet is created without an owner, which a later sync adds where `persistentVolumeClaimRetentionPolicy` asks for one",
        "It has the owner from the beginning",
        "A StatefulSet that is deleted in between would leave the claim behind"
    }
    STATEFUL_CLAIM_WARNING {
        "Nothing says that a claim will be deleted with its pod",
        "The event `ClaimGoesWithPod` does, before the pod is deleted",
        "Data that is about to go can be saved by a higher `spec.replicas`, or a lower `spec.ordinals.start`"
    }
    STATEFUL_CLAIM_EVENTS {
        "A claim that is changed or deleted wakes no StatefulSet",
        "It wakes the StatefulSet that it belongs to by its name",
        "A missing claim is created at once, not with the next change of a pod"
    }
    STATEFUL_REVISION_EVENTS {
        "A revision of a StatefulSet that is changed or deleted, and a pod without its label `pod-index`, are repaired with the next change of anything else",
        "At once",
        "A rollback finds its revision"
    }
    STATEFUL_TAKEN_BACK {
        "With `OrderedReady` and `whenScaled: Delete`, a scale-down that is taken back while the pod ends deletes the claim, and the pod is not created again until something else changes",
        "The claim loses its pod as owner at once, and the pod is created again on it",
        "No data is lost, and no pod is missing"
    }
    STATEFUL_CONFLICTS {
        "One sync may change the owners of a claim twice from one cached version, and fails with a conflict",
        "One write for an object and sync",
        "No failed writes, and no events about them"
    }
    STATEFUL_NEVER_STARTED {
        "With `OrderedReady`, a pod that cannot start blocks the corrected template (kubernetes#67250)",
        "It is replaced if no container of it has ever started",
        "A wrong image is corrected by the right one. No process ran, so no data is at stake"
    }
    STATEFUL_FAILED_PODS {
        "A failed pod of a StatefulSet is deleted and created again at once and for ever (kubernetes#89067)",
        "The first at once, the next ones of its ordinal after 1, 2, 4, … seconds, at most 15 minutes. A change of the StatefulSet, or half an hour without a failure, starts afresh. `/debug/statefulsets` says until when",
        "A node that refuses every pod must not keep the API server busy"
    }
    STATEFUL_BROKEN_FIRST {
        "With `Parallel`, an update deletes the highest pod while a lower one is broken (kubernetes#96218)",
        "Outdated pods that are not available go first, and available ones only within `maxUnavailable`",
        "An update makes no second pod unavailable"
    }
    STATEFUL_PROMOTION {
        "`status.currentRevision` becomes the update revision as soon as all pods are ready, with `OnDelete` never (kubernetes#136831, #73492)",
        "As soon as all are updated and available, with any strategy",
        "The status says whether the update is complete"
    }
    STATEFUL_CONDITIONS {
        "A status write removes conditions that others have set on a StatefulSet",
        "Conditions of others stay",
        "Operators and tests write conditions"
    }
    STATEFUL_DELETIONS {
        "A pod is deleted by its name, from a cache that may not show the deletion yet: the event is recorded twice, and the replacement may be deleted",
        "A pod is deleted by its UID, and once",
        "No pod is deleted that nobody has looked at"
    }
    STATEFUL_DELETED {
        "While a StatefulSet is deleted, a revision that the garbage collector has deleted is created again",
        "A StatefulSet that is being deleted gets no revision",
        "The deletion takes no longer than the pods"
    }
    STATEFUL_TAKEN_NAME {
        "Nothing says that a pod cannot be created because another one has its name (kubernetes#46901)",
        "The event `FailedCreate` does, once for each such pod, and the creation is not repeated until that pod changes",
        "A user can see what the StatefulSet waits for"
    }
    STATEFUL_LONG_NAME {
        "A StatefulSet with more than 52 characters in its name tries for ever to create pods whose label is too long (kubernetes#64023)",
        "One event and the condition `ReplicaFailure` give the limit",
        "A user can see what is wrong"
    }
    STATEFUL_ORDINALS {
        "A pod `db-01` counts as the pod of ordinal 1",
        "Only `db-1` does. The other one is neither adopted nor counted",
        "A pod of the right name would never be created"
    }
    UNKNOWN_KIND {
        "A reference to an owner of a kind that is not served keeps the object's other references from being removed",
        "It counts as an owner that exists: references that lead nowhere are removed, and the object stays",
        "One unknown kind holds up nothing else"
    }
    UNSERVED_VERSION {
        "A dependent whose owner is named in a version that is not served stays for ever",
        "The owner is looked up in a version that is served, and its dependents go with it",
        "A version that is removed from the API leaves no orphans"
    }
    AGGREGATED_RULES {
        "Rules that a user writes into an aggregated ClusterRole stay as long as no role matches its selectors",
        "They are removed",
        "The rules of such a role are those that it aggregates, as its documentation says"
    }
    DEAD_API {
        "Beside an API that cannot be read, orphaning and foreground deletions end within seconds; what that API holds of the dependents of an orphaned owner is deleted once it is back",
        "An orphaning deletion waits for that API for two minutes, and a foreground deletion until it has been missed for 30 seconds. The dependents of an orphaned owner lose the reference once the API is back, also if Windlass was restarted since",
        "A dependent that nobody could see keeps its life, or goes before its owner"
    }
    LATE_DEPENDENTS {
        "A dependent that turns up after the orphaning deletion of its owner, and names it, is deleted",
        "It loses the reference and lives, if it turns up within ten minutes, or within ten minutes after the return of an API that could not be read",
        "It would live if it had been there a moment earlier"
    }
    PODS_OF_A_NAMESPACE {
        "While pods are left in a namespace that is being deleted, its conditions say that all content is removed (kubernetes#138208)",
        "The conditions count the pods, and the finalizers on them",
        "A user can see what the namespace waits for"
    }
    JOB_COUNTING {
        "Remembers in memory what it has written: after a restart with an old cache a pod may be counted twice, or created too many (kubernetes#105200, #130103)",
        "Each status carries the resourceVersion that it was computed from, and nothing is decided on a cache that is older than the own writes. A UID is listed in one sync and counted in the next",
        "Each pod counts exactly once, with two leaders too"
    }
    JOB_BACKOFF {
        "The failures since the last success are kept in memory: a restart replaces failed pods at once (kubernetes#114650)",
        "The failed pods that exist count as well, and the timer is set again",
        "A restart is no reason to hurry"
    }
    JOB_REFUSED_PODS {
        "Where nodes refuse the pods of a Job, as many as its parallelism are created after each backoff, thousands in the end (kubernetes#76370, #119378)",
        "Pods that failed before a container started are replaced one at a time after three, until a container of a new one starts or it has lived for a minute",
        "The cluster is not filled with failed pods. The price: after such failures the others follow as soon as a container has started"
    }
    JOB_COUNTED_AT_ONCE {
        "While a failed pod of a Job waits for its backoff and others are ready, the API server refuses each status (no active pods, and some that are ready): nothing is counted, and no finalizer goes",
        "The failure is counted at once",
        "A user sees why the Job waits"
    }
    JOB_LATE_POD {
        "A pod whose creation arrives after its Job has finished runs for nobody",
        "It is deleted",
        "No pod too many"
    }
    JOB_COUNTED_ELSEWHERE {
        "A pod that another process has counted counts again if the cache of Jobs shows that status before the cache of pods shows that the finalizer is off",
        "Before it counts on top of a status that another process has written, it reads the pods past its cache",
        "Each pod is counted once"
    }
    JOB_LOST_FINALIZER {
        "An active pod that lost the finalizer is never counted",
        "It gets the finalizer back, or is deleted if it is not wanted",
        "No success is lost"
    }
    JOB_FAILS_BY_DELETION {
        "A pod that is deleted for a suspension or as one too many fails the Job if a rule of the failure policy matches how it ends",
        "It counts neither way, by the policy either",
        "Who suspends a Job does not want it to fail"
    }
    JOB_FATE_FIRST {
        "Pods are deleted in the sync that decides the fate of a Job. If the write of that fate is lost, the pods count as failed, and a success becomes `BackoffLimitExceeded`",
        "The fate is written first, and its pods are deleted next",
        "A Job that has succeeded stays so"
    }
    JOB_FREED_BY_DELETION {
        "A pod whose label was changed keeps its finalizer while its Job is deleted in the foreground, and each waits for the other",
        "The finalizer goes from all pods of a Job that is being deleted",
        "A deletion ends"
    }
    JOB_SELECTS_ALL {
        "A Job with an empty selector takes every pod of its namespace that has no controller",
        "It does not act, and an event says why",
        "As a Deployment. Pods of others must not be counted and deleted"
    }
    JOB_DELETION_COST {
        "`pod-deletion-cost` has no say in which pods of a Job go when its parallelism falls",
        "The cheapest go first, as of a ReplicaSet",
        "The annotation means one thing for every controller"
    }
    JOB_ENDED_INDEX {
        "A second pod of an index that has ended runs on, and the Job waits for it",
        "It is deleted",
        "The Job ends, and its place is free for another index"
    }
    JOB_INDEX_FAILURES {
        "The failures of an index are forgotten when its next pod is deleted for a suspension, or because parallelism falls",
        "The failed pods that exist still tell of them",
        "`backoffLimitPerIndex` holds"
    }
    JOB_INDEX_BACKOFF {
        "An index that waits for its backoff keeps the next ones waiting where parallelism is used up",
        "Another index runs meanwhile",
        "Nothing waits for a pod that is not there"
    }
    JOB_LEFT_OVER {
        "When a Job is deleted or finished, its pods are scanned for finalizers once; a failed write is not retried (kubernetes#141346)",
        "Each such pod is a key with its own retry",
        "No pod stays for ever"
    }
    JOB_MEMORY {
        "A Job that is created again waits for what its namesake expected (kubernetes#131917, #142142)",
        "All memory is by UID",
        "The new Job starts at once"
    }
    JOB_REFUSED_STATUS {
        "A pod whose phase changes after it was listed comes into both lists, and an index may succeed and fail: the API server refuses the status for ever (kubernetes#125410, #111646)",
        "A UID stays in its list whatever the phase becomes; an index that has succeeded has not failed",
        "The Job goes on"
    }
    JOB_START_TIME {
        "A Job that ends while it is suspended has no start time, and its last status is refused",
        "The last status has the creation of its first pod as the start time",
        "The Job finishes"
    }
    CRON_OWNER {
        "Jobs are matched to a CronJob by the name of their controller, whatever its kind (kubernetes#120181)",
        "By namespace, API group, kind and UID",
        "A CronJob must not count and delete the Jobs of others"
    }
    CRON_CRASH {
        "After a crash between the creation of a Job and the write of the status, the Job is not in `status.active`, so that `Forbid` starts another and `Replace` deletes none; each sync records `UnexpectedJob`",
        "It is listed again, `lastScheduleTime` is repaired, and one event tells of it",
        "Runs never overlap where they must not"
    }
    CRON_PROOF {
        "The history limits and `ttlSecondsAfterFinished` delete a finished Job before `lastScheduleTime` shows its run, and the run is repeated",
        "Such a Job stays until the status shows the run",
        "One Job for a time"
    }
    CRON_EDIT {
        "After an edit of the schedule or the zone, any sync but the first runs a time of the new schedule that has passed",
        "None does that, until a restart of Windlass, which cannot know of the edit",
        "At noon, 5 o'clock was not missed because it was 3 o'clock before"
    }
    CRON_FOREIGN {
        "An entry of `status.active` whose Job belongs to another stays, and blocks `Forbid` for ever",
        "It leaves the status, without an event",
        "The CronJob goes on"
    }
    CRON_NAME {
        "A run whose name a foreign Job has ends the sync without a timer",
        "The event `FailedCreate`, once, and the next time runs",
        "The CronJob goes on"
    }
    CRON_MISSED {
        "Nothing tells of missed runs (kubernetes#111223), and `JobAlreadyActive` is recorded at each sync",
        "`MissSchedule` once for a stretch of missed times, and again after a restart, with their number and the cause; `JobAlreadyActive` once for the Job that blocks; other events about what lasts once, too",
        "A user can see what was missed, and why"
    }
    CRON_ENDED_ONCE {
        "A sync that reads its CronJob before its own last status is in the cache records `SawCompletedJob` for a Job again, and `MissingJob` for one that a history limit has deleted meanwhile",
        "`SawCompletedJob` once for each Job",
        "An event is about something that happened"
    }
    CRON_UNEVEN {
        "The latest missed time is estimated by the first interval: of uneven schedules such as `0-1 0 1 1 *` it may not be found, of others it is searched minute by minute",
        "It is found in some thirty steps",
        "No run is lost, and no sync takes seconds"
    }
    CRON_FUTURE {
        "A `lastScheduleTime` in the future keeps a CronJob from running until then",
        "An event, and runs go on, if it is an hour ahead, and further than the next time",
        "A clock that was wrong once holds nothing up"
    }
    CRON_EVERY_DEADLINE {
        "An `@every` schedule with an interval above `startingDeadlineSeconds` never runs",
        "It runs",
        "The deadline bounds how late a run begins, and not whether"
    }
    CRON_MINUTE {
        "`@every 30s` tries to create two Jobs of one name in a minute, and then waits for another event",
        "One run a minute, and one event about it",
        "The CronJob goes on"
    }
    CRON_ZONE {
        "A schedule without `timeZone` is in the zone of kube-controller-manager's machine",
        "In UTC, or in the zone that the environment variable `TZ` names",
        "Two replicas agree"
    }
    TTL_RAISED {
        "A `ttlSecondsAfterFinished` that is raised just before the deletion is lost",
        "The deletion carries the resourceVersion that was read",
        "What a user wants to keep is kept"
    }
    POD_GC {
        "The pod garbage collector deletes pods by name, and ended pods whose finalizer of Jobs is left, every 20 seconds",
        "By UID; pods that a Job has yet to count stay; at most 500 in a pass, which a change starts",
        "A new pod of a StatefulSet under the name of the old one lives"
    }
}
