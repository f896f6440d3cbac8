//! Where each of upstream's own integration tests (`test/integration` of Kubernetes 1.36) has its counterpart: a
//! workload of the differential run, or a test as `file::function`.

/// Upstream's test, and what covers its behaviour here.
pub type Covered = (&'static str, &'static [&'static str]);

pub static DEPLOYMENT: &[Covered] = &[
    (
        "TestNewDeployment",
        &[
            "a_deployment_comes_up_pod_by_pod",
            "annotations_are_copied_and_removed",
            "last_applied_configuration_is_not_copied",
        ],
    ),
    (
        "TestDeploymentRollingUpdate",
        &[
            "rolling_update_with_defaults",
            "rolling_update_surge_1_unavailable_0",
            "rolling_update_surge_0_unavailable_1",
            "rolling_update_surge_100_percent",
            "rolling_update_unavailable_100_percent",
            "rolling_update_in_percent_of_seven",
            "an_old_template_is_applied_again",
        ],
    ),
    ("TestDeploymentSelectorImmutability", &["a_selector_cannot_be_changed"]),
    ("TestPausedDeployment", &["paused_from_the_beginning", "a_new_image_while_paused"]),
    ("TestScalePausedDeployment", &["scaled_while_paused"]),
    ("TestDeploymentHashCollision", &["a_hash_collision", "the_name_of_the_replica_set_is_taken"]),
    (
        "TestFailedDeployment",
        &["a_first_rollout_exceeds_its_deadline", "a_deadline_is_exceeded_and_the_rollout_recovers"],
    ),
    ("TestOverlappingDeployments", &["two_deployments_with_one_selector"]),
    (
        "TestScaledRolloutDeployment",
        &["scale_up_during_a_rollout", "scale_down_during_a_rollout", "scale_with_three_replica_sets"],
    ),
    ("TestSpecReplicasChange", &["scale_up_and_down", "scale_to_zero_and_back"]),
    ("TestDeploymentAvailableCondition", &["min_ready_seconds_are_changed", "available_after_some_seconds"]),
    (
        "TestGeneralReplicaSetAdoption",
        &[
            "a_replica_set_is_adopted_by_a_deployment",
            "a_deployment_adopts_an_old_replica_set",
            "a_deployment_is_deleted_and_its_replica_set_stays",
        ],
    ),
    ("TestDeploymentScaleSubresource", &["scale_up_and_down"]),
    (
        "TestReplicaSetOrphaningAndAdoptionWhenLabelsChange",
        &["a_deployment_releases_a_replica_set_by_its_labels"],
    ),
    // Its feature gate is on by default.
    (
        "TestTerminatingReplicasDeploymentStatus",
        &["terminating_pods_of_a_replica_set", "recreate_waits_for_terminating_pods", "scale_up_and_down"],
    ),
    ("TestRecreateDeploymentForPodReplacement", &["recreate_with_slow_pods_while_sizes_change"]),
    ("TestRollingUpdateAndProportionalScalingForDeploymentPodReplacement", &["slow_pods_while_sizes_change"]),
];

pub static REPLICA_SET: &[Covered] = &[
    (
        "TestAdoption",
        &[
            "pods_are_adopted_by_a_replica_set",
            "pods_that_belong_to_others_are_left_alone",
            "an_owner_that_does_not_control",
            "an_owner_of_the_wrong_kind",
        ],
    ),
    ("TestRSSelectorImmutability", &["a_selector_cannot_be_changed"]),
    (
        "TestSpecReplicasChange",
        &["a_replica_set_is_scaled_by_its_subresource", "terminating_pods_of_a_replica_set"],
    ),
    (
        "TestDeletingAndFailedPods",
        &["a_pod_is_rejected_by_its_node", "a_pod_is_deleted_and_ends_slowly", "a_pod_with_a_finalizer"],
    ),
    ("TestPodDeletionCost", &["deletion_cost"]),
    ("TestOverlappingRSs", &["two_replica_sets_with_one_selector"]),
    ("TestPodOrphaningAndAdoptionWhenLabelsChange", &["pods_are_released_by_a_label_and_come_back"]),
    (
        "TestGeneralPodAdoption",
        &["pods_are_adopted_by_a_replica_set", "a_replica_set_is_deleted_and_its_pods_stay"],
    ),
    ("TestReadyAndAvailableReplicas", &["min_ready_seconds_of_a_replica_set_and_a_replication_controller"]),
    ("TestRSScaleSubresource", &["a_replica_set_is_scaled_by_its_subresource"]),
    ("TestExtraPodsAdoptionAndDeletion", &["extra_pods_are_adopted_and_deleted"]),
    ("TestFullyLabeledReplicas", &["fully_labeled_replicas"]),
    ("TestReplicaSetsAppsV1DefaultGCPolicy", &["a_replica_set_is_deleted_and_its_pods_stay"]),
    ("TestTerminatingReplicas", &["terminating_pods_of_a_replica_set", "a_pod_is_deleted_and_ends_slowly"]),
];

pub static REPLICATION_CONTROLLER: &[Covered] = &[
    (
        "TestAdoption",
        &[
            "pods_are_adopted_and_released_by_a_replication_controller",
            "pods_that_belong_to_others_are_left_alone",
        ],
    ),
    ("TestSpecReplicasChange", &["a_replication_controller_comes_up_and_is_scaled"]),
    (
        "TestLogarithmicScaleDown",
        &[
            "a_replication_controller_with_many_pods_shrinks",
            "the_younger_pod_is_deleted_first_by_orders_of_magnitude",
        ],
    ),
    ("TestDeletingAndFailedPods", &["deleting_and_failed_pods_of_a_replication_controller"]),
    ("TestOverlappingRCs", &["two_replication_controllers_with_one_selector"]),
    (
        "TestPodOrphaningAndAdoptionWhenLabelsChange",
        &["pods_are_adopted_and_released_by_a_replication_controller"],
    ),
    (
        "TestGeneralPodAdoption",
        &[
            "pods_are_adopted_and_released_by_a_replication_controller",
            "a_replication_controller_is_deleted_and_its_pods_stay",
        ],
    ),
    ("TestReadyAndAvailableReplicas", &["min_ready_seconds_of_a_replica_set_and_a_replication_controller"]),
    ("TestRCScaleSubresource", &["a_replication_controller_is_scaled_by_its_subresource"]),
    ("TestExtraPodsAdoptionAndDeletion", &["extra_pods_are_adopted_and_deleted"]),
    ("TestFullyLabeledReplicas", &["fully_labeled_replicas"]),
];

pub static STATEFUL_SET: &[Covered] = &[
    ("TestVolumeTemplateNoopUpdate", &["stateful_pods_and_claims_have_what_their_templates_say"]),
    (
        "TestSpecReplicasChange",
        &[
            "stateful_scale_at_once",
            "stateful_scale_to_zero_and_back",
            "stateful_labels_and_annotations_of_the_template_change",
        ],
    ),
    (
        "TestDeletingAndTerminatingPods",
        &["stateful_pods_that_fail_at_once_are_replaced", "stateful_pod_with_a_finalizer_fails"],
    ),
    (
        "TestStatefulSetAvailable",
        &["stateful_pods_available_after_some_seconds", "stateful_min_ready_seconds_are_changed"],
    ),
    ("TestStatefulSetStatusWithPodFail", &["stateful_pods_refused_by_a_quota"]),
    (
        "TestAutodeleteOwnerRefs",
        &[
            "stateful_retention_is_changed",
            "stateful_claims_go_with_both",
            "stateful_claims_go_with_the_statefulset",
        ],
    ),
    (
        "TestDeletingPodForRollingUpdatePartition",
        &[
            "stateful_deleted_pods_keep_their_side_of_the_partition",
            "stateful_pod_fails_and_its_condition_still_says_ready",
        ],
    ),
    (
        "TestStatefulSetStartOrdinal",
        &["stateful_start_ordinal_moves", "stateful_start_ordinal_moves_at_once"],
    ),
    ("TestStatefulSetPodSubdomain", &["stateful_pods_and_claims_have_what_their_templates_say"]),
];

pub static JOB: &[Covered] = &[
    (
        "TestJobPodFailurePolicy",
        &[
            "job_failure_policy_fails_the_job",
            "job_failure_policy_ignores_a_disruption",
            "job_failure_policy_counts_a_failure",
        ],
    ),
    ("TestSuccessPolicy", &["job_success_policy_by_count", "job_success_policy_by_indexes"]),
    ("TestDelayTerminalPhaseCondition", &["job_exceeds_its_backoff_limit", "job_success_policy_by_count"]),
    (
        "TestBackoffLimitPerIndex",
        &[
            "job_indexes_fail_by_their_limit",
            "job_too_many_indexes_fail",
            "job_indexes_all_end_and_some_have_failed",
            "job_failure_policy_fails_the_index",
        ],
    ),
    ("TestBackoffLimitPerIndex_DelayedPodDeletion", &["job_pod_of_an_index_is_deleted_by_a_user"]),
    ("TestManagedBy", &["job_is_managed_by_another_controller"]),
    ("TestImmediateJobRecreation", &["job_is_created_again_under_its_name"]),
    ("TestNonParallelJob", &["job_of_one_pod_completes", "job_pod_fails_and_is_replaced"]),
    ("TestParallelJob", &["job_is_a_work_queue"]),
    ("TestParallelJobChangingParallelism", &["job_parallelism_changes"]),
    ("TestParallelJobWithCompletions", &["job_runs_pods_in_parallel"]),
    ("TestIndexedJob", &["job_indexes_complete", "job_pod_of_an_index_fails_and_is_replaced"]),
    ("TestElasticIndexedJob", &["job_indexes_grow_and_shrink"]),
    (
        "TestJobPodReplacementPolicy",
        &["job_replaces_pods_that_have_failed_only", "job_replaces_terminating_pods"],
    ),
    (
        "TestOrphanPodsFinalizersClearedWithGC",
        &["job_is_deleted_in_the_background", "job_is_deleted_and_its_pods_stay"],
    ),
    ("TestFinalizersClearedWhenBackoffLimitExceeded", &["job_exceeds_its_backoff_limit"]),
    (
        "TestOrphanPodsFinalizersClearedOnRestart",
        &["tests/cluster/jobs/finalizers.rs::a_job_that_is_deleted_while_no_daemon_runs_leaves_no_finalizer"],
    ),
    ("TestSuspendJob", &["job_is_suspended_and_resumed", "job_is_created_suspended"]),
    ("TestSuspendJobWithZeroCompletions", &["job_is_suspended_without_completions_to_reach"]),
    (
        "TestJobPodsCreatedWithExponentialBackoff",
        &[
            "tests/cluster/jobs/failure.rs::failed_pods_are_replaced_after_10_20_40_seconds_until_the_limit_is_exceeded",
        ],
    ),
];

pub static CRON_JOB: &[Covered] =
    &[("TestCronJobLaunchesPodAndCleansUp", &["cron_jobs_run_each_minute", "cron_histories_have_limits"])];

pub static POD_GC: &[Covered] = &[
    ("TestPodGcOrphanedPodsWithFinalizer", &["podgc_pods_of_a_node_that_is_gone"]),
    ("TestTerminatingOnOutOfServiceNode", &["podgc_node_out_of_service"]),
    ("TestPodGcForPodsWithDuplicatedFieldKeys", &["podgc_pod_with_a_variable_twice"]),
];
