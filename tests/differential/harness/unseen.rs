//! Rows that no workload can show.

use super::rows::*;

/// Rows that no workload can show, and the test that does, as `file::function`.
pub static UNSEEN: &[(&Row, &str)] = &[
    (&DEAD_API, "tests/real_server/dead_api.rs::an_operator_goes_on_beside_an_api_that_is_down"),
    (&LATE_DEPENDENTS, "tests/real_server/dead_api.rs::an_operator_goes_on_beside_an_api_that_is_down"),
    (
        &LOST_REPLIES,
        "tests/process/chaos.rs::with_a_third_of_the_replies_lost_and_watches_three_seconds_late_exactly_200_pods_are_created",
    ),
    (
        &SEQUENCE_OF_NAMES,
        "tests/cluster/pod_names.rs::pods_that_are_deleted_by_force_are_replaced_under_new_names",
    ),
    (
        &QUOTA_RETRY,
        "tests/cluster/replica_sets.rs::pods_that_a_quota_refused_are_created_as_soon_as_the_quota_allows",
    ),
    (
        &LIVE_READS,
        "tests/cluster/replica_set_races.rs::a_sync_waits_for_a_stale_cache_and_runs_as_soon_as_it_has_caught_up",
    ),
    (&SHRINKING_REPLICA_SETS, "tests/planner/planning.rs::a_status_of_an_earlier_generation_frees_no_budget"),
    (
        &REPLICA_SETS_BY_PODS,
        "tests/planner/planning.rs::a_replica_set_whose_status_counts_deleted_pods_does_not_free_the_budget",
    ),
    (
        &RECREATED_CHILDREN,
        "src/engine/recreate_guard.rs::a_creation_is_a_repetition_for_the_same_generation_within_a_minute",
    ),
    (&ONE_PLAN, "tests/planner/rollout.rs::surge_of_one_and_no_unavailability"),
    (
        &CURRENT_MESSAGES,
        "src/engine/status_throttle.rs::the_text_of_a_failure_is_updated_every_30_seconds_and_a_new_reason_at_once",
    ),
    (
        &RETRIED_FOR_EVER,
        "src/runtime/worker.rs::a_failed_sync_is_retried_with_growing_delays_until_it_succeeds",
    ),
    (
        &INVALID_SELECTORS,
        "tests/planner/planning.rs::an_invalid_selector_is_refused_with_an_event_and_nothing_is_released",
    ),
    (
        &DELETED_BY_UID,
        "tests/cluster/replica_set_races/preconditions.rs::a_late_deletion_does_not_delete_a_new_pod_with_the_same_name",
    ),
    (
        &TOTAL_ORDER,
        "tests/planner/replicaset_tables.rs::pods_that_differ_only_in_their_uid_have_a_total_order",
    ),
    (
        &UNANSWERED_GENERATION,
        "src/controllers/replicas.rs::nothing_more_of_a_batch_is_sent_where_there_is_no_answer",
    ),
    (
        &GENERATION_TOO_HIGH,
        "tests/cluster/statuses.rs::an_observed_generation_raised_by_another_writer_is_corrected",
    ),
    (
        &UNANSWERED_REQUESTS,
        "tests/cluster/pod_names.rs::a_creation_whose_reply_is_lost_is_sent_once_and_found",
    ),
    (&RETRY_AFTER, "src/runtime/retry_after.rs::a_request_waits_for_at_most_a_minute_and_at_most_ten_times"),
    (
        &LOST_REPLICA_SET,
        "tests/cluster/faults/refusals.rs::a_replica_set_whose_creation_got_no_response_is_reported_once_as_created",
    ),
    (
        &TERMINATING_NAMESPACE,
        "tests/cluster/faults.rs::a_terminating_namespace_gets_one_request_and_not_one_per_missing_pod",
    ),
    (
        &OWNERS,
        "tests/cluster/owners.rs::a_pod_whose_owner_reference_has_a_wrong_name_counts_and_its_deletion_is_handled_at_once",
    ),
    (&CO_LOCATION, "tests/planner/replicaset_tables.rs::pods_counted_on_the_same_node"),
    (
        &SILENT_WATCH,
        "tests/cluster/faults/frozen.rs::work_continues_over_new_connections_within_45_seconds_after_all_froze",
    ),
    (&TEMPLATE_HASH, "src/model/template.rs::hashes_are_the_same_in_every_release"),
    (
        &DAEMON_NAMES,
        "tests/cluster/daemon_sets/faults.rs::lost_replies_cause_no_surplus_pod_and_no_surplus_revision",
    ),
    (
        &DAEMON_NODES,
        "tests/cluster/daemon_sets/defects.rs::an_unbound_pod_is_deleted_when_its_node_becomes_unsuitable_or_is_deleted",
    ),
    (
        &DAEMON_DUPLICATES,
        "tests/cluster/daemon_sets/defects.rs::pods_of_older_templates_are_not_relabelled_and_are_updated",
    ),
    (
        &DAEMON_GENERATION,
        "tests/cluster/daemon_sets/defects.rs::an_adopted_pod_of_another_template_is_not_new_because_of_its_generation",
    ),
    (
        &DAEMON_FAILED,
        "tests/cluster/daemon_sets/refusals.rs::a_failed_pod_stays_until_its_replacement_was_refused_twice",
    ),
    (
        &DAEMON_REVISION_REFUSED,
        "tests/cluster/daemon_sets/refusals.rs::a_quota_of_revisions_lets_the_history_make_room_for_the_next_revision",
    ),
    (
        &HISTORY_PROTECTED,
        "tests/cluster/faults/one_of_several.rs::a_replica_set_that_cannot_be_deleted_does_not_let_the_history_grow",
    ),
    (
        &DAEMON_STATUS,
        "tests/planner/daemonset/defects.rs::a_deleting_pod_is_not_ready_and_a_node_with_an_available_new_pod_is_up_to_date",
    ),
    (
        &DAEMON_PODS_WITHOUT_NODE,
        "tests/planner/daemonset/defects.rs::a_pod_of_ours_without_a_node_is_deleted",
    ),
    (
        &DAEMON_SURGE,
        "tests/cluster/daemon_sets/defects.rs::the_deletion_of_a_node_does_not_block_a_surge_on_other_nodes",
    ),
    (
        &DAEMON_REVISIONS,
        "src/model/controllerrevision.rs::a_revision_holds_its_number_its_hash_and_what_its_template_means",
    ),
    (
        &LATE_NAMES,
        "src/plan/replicaset/mod.rs::a_place_is_kept_for_a_late_request_unless_its_pod_exists_or_its_name_is_requested_again",
    ),
    (&LARGE_SELECTORS, "src/model/selector.rs::a_selector_keeps_its_order_up_to_sixteen_and_is_sorted_above"),
    (&UNREADABLE_OBJECTS, "tests/cluster/unreadable.rs::pods_of_an_odd_shape_are_not_created_again"),
    (
        &JOB_COUNTING,
        "tests/cluster/jobs/leaders.rs::two_daemons_at_once_count_each_pod_once_and_the_later_status_is_refused",
    ),
    (&JOB_BACKOFF, "tests/cluster/jobs/failure.rs::the_backoff_outlives_the_daemon"),
    (
        &JOB_REFUSED_PODS,
        "src/plan/job/refused_pods.rs::one_of_three_refused_pods_is_replaced_and_the_explanation_says_why",
    ),
    (
        &JOB_LOST_FINALIZER,
        "tests/cluster/jobs/finalizers.rs::an_active_pod_that_lost_the_finalizer_gets_it_back",
    ),
    (
        &JOB_FAILS_BY_DELETION,
        "src/plan/job/fate.rs::a_failed_pod_that_a_rule_matches_fails_the_job_before_the_limit_does",
    ),
    (&JOB_FATE_FIRST, "src/plan/job/tests.rs::no_pod_is_deleted_for_a_fate_that_is_not_written"),
    (
        &JOB_FREED_BY_DELETION,
        "src/plan/job/tests.rs::a_job_that_is_deleted_lets_its_pods_go_whatever_its_selector_says_of_them",
    ),
    (&JOB_SELECTS_ALL, "src/plan/job/tests.rs::a_job_that_selects_every_pod_says_so_and_is_left_alone"),
    (&JOB_DELETION_COST, "src/plan/job/tests.rs::the_cheapest_pod_goes_first_when_parallelism_falls"),
    (&JOB_ENDED_INDEX, "src/plan/job/tests.rs::a_second_pod_of_an_index_that_has_succeeded_is_deleted"),
    (
        &JOB_INDEX_FAILURES,
        "src/plan/job/tests.rs::an_index_keeps_its_failures_when_its_replacement_is_deleted_and_has_not_failed",
    ),
    (&JOB_INDEX_BACKOFF, "src/plan/job/tests.rs::an_index_that_waits_lets_the_next_one_run"),
    (
        &JOB_MEMORY,
        "src/plan/job/untrack.rs::a_job_that_was_created_anew_under_the_name_does_not_count_the_pod",
    ),
    (&JOB_REFUSED_STATUS, "src/plan/job/counting.rs::a_uid_stays_in_its_list_whatever_the_phase_becomes"),
    (&JOB_START_TIME, "src/plan/job/status.rs::a_job_that_ends_while_it_is_suspended_gets_a_start_time"),
    (&CRON_OWNER, "src/plan/cronjob/tests.rs::a_users_job_is_told_of_once_and_neither_listed_nor_replaced"),
    (
        &CRON_CRASH,
        "tests/cluster/cron_jobs/crashes.rs::a_crash_before_the_status_is_written_repeats_no_run_and_breaks_no_policy",
    ),
    (
        &JOB_LATE_POD,
        "tests/cluster/jobs/finalizers.rs::a_pod_whose_creation_arrives_after_its_job_has_finished_is_deleted",
    ),
    (
        &JOB_COUNTED_ELSEWHERE,
        "tests/cluster/jobs/leaders.rs::a_daemon_that_sees_pods_late_counts_none_that_another_has_counted",
    ),
    (&CRON_PROOF, "tests/cluster/cron_jobs/crashes.rs::a_finished_job_stays_while_it_alone_proves_its_run"),
    (
        &CRON_NAME,
        "tests/cluster/cron_jobs/policies.rs::a_foreign_job_with_the_name_is_left_alone_and_the_next_time_runs",
    ),
    (
        &CRON_MISSED,
        "tests/cluster/cron_jobs/missed.rs::after_a_long_downtime_the_latest_missed_time_runs_once",
    ),
    (&CRON_UNEVEN, "src/plan/cronjob/due.rs::the_latest_of_uneven_times_is_found"),
    (&CRON_FUTURE, "src/plan/cronjob/tests.rs::a_last_run_in_the_future_holds_nothing_up"),
    (&CRON_EVERY_DEADLINE, "src/plan/cronjob/due.rs::an_interval_above_the_deadline_runs"),
    (&CRON_MINUTE, "src/plan/cronjob/tests.rs::two_runs_of_one_minute_are_one"),
    (&CRON_ZONE, "src/app.rs::schedules_without_a_zone_are_in_utc_or_in_that_of_tz"),
    (
        &TTL_RAISED,
        "tests/cluster/ttl_after_finished.rs::a_raised_or_removed_ttl_wins_and_one_that_is_set_later_counts",
    ),
    (&POD_GC, "src/plan/pod_gc.rs::pods_that_a_job_has_yet_to_count_stay_and_count"),
    (
        &SLICE_LEFT_OVER,
        "tests/cluster/endpoint_slices.rs::a_service_that_loses_its_selector_keeps_its_slices_unless_that_is_set",
    ),
    (&SLICE_NAMES, "src/plan/endpointslice/tests.rs::a_creation_is_repeated_under_the_same_name"),
    (
        &SLICE_LOST_NODE,
        "src/plan/endpointslice/tests.rs::a_pod_on_an_unknown_node_is_left_out_and_the_rest_is_written",
    ),
    (&SLICE_LABELS, "src/plan/endpointslice/tests.rs::labels_that_others_change_are_set_again"),
    (
        &SLICE_GATHERED,
        "tests/cluster/endpoint_slices.rs::a_large_scale_up_writes_a_slice_at_most_ten_times_a_second",
    ),
    (&SLICE_EVENTS, "src/plan/endpointslice/tests/hints.rs::hints_go_where_they_cannot_be_given"),
    (
        &SLICE_ZONES,
        "src/controllers/endpoint_slice.rs::a_node_that_becomes_known_wakes_the_services_of_its_pods",
    ),
    (
        &SLICE_OWNER,
        "src/plan/endpointslice/tests.rs::slices_of_an_earlier_service_of_the_name_go_and_those_of_others_stay",
    ),
    (&SLICE_RETRIES, "src/runtime/backoff.rs::the_delay_stays_at_the_cap_however_often_the_key_fails"),
    (
        &PDB_ALL_BUDGETS,
        "tests/cluster/disruptions.rs::two_budgets_of_a_pod_are_both_kept_up_to_date_and_evict_nothing",
    ),
    (
        &PDB_SCALED,
        "tests/cluster/disruptions.rs::a_budget_gets_its_status_which_is_not_written_again_without_a_change",
    ),
    (
        &PDB_VANISHED,
        "src/plan/disruption/tests.rs::pods_of_an_owner_that_has_just_gone_stop_no_eviction_for_ten_seconds",
    ),
    (
        &PDB_UNMANAGED,
        "src/plan/disruption/tests.rs::bare_pods_are_told_of_and_do_not_stand_in_for_managed_ones",
    ),
    (&PDB_SCALES, "tests/cluster/disruptions.rs::without_an_answer_about_a_scale_the_allowance_only_falls"),
    (&PDB_RETRIES, "tests/cluster/disruptions.rs::a_scale_that_may_be_read_again_ends_the_failure"),
    (
        &PDB_ENTRIES,
        "src/plan/disruption/tests.rs::an_entry_leaves_with_its_pod_once_the_cache_is_as_new_as_the_entry",
    ),
    (
        &QUOTA_MONITORS,
        "tests/cluster/resource_quotas.rs::a_custom_resource_that_cannot_be_listed_holds_up_no_other",
    ),
    (
        &QUOTA_CHARGES,
        "tests/cluster/resource_quotas.rs::a_charge_whose_object_never_comes_is_taken_back_and_none_before_its_object_is_seen",
    ),
    (
        &QUOTA_QUEUES,
        "tests/cluster/resource_quotas.rs::a_quota_gets_its_status_and_pods_services_claims_and_other_objects_are_counted_and_released",
    ),
    (
        &QUOTA_OVERDUE,
        "src/plan/resourcequota/tests.rs::a_pod_that_has_ended_or_outstays_its_deletion_uses_nothing_but_its_existence",
    ),
    (&QUOTA_DEVICES, "src/plan/resourcequota/tests.rs::each_name_stands_for_the_objects_that_use_it"),
    (&ENDPOINTS_LEFT_OVER, "src/plan/endpoints/tests.rs::only_what_was_written_for_a_service_is_left_over"),
    (&ENDPOINTS_WAKES, "tests/cluster/endpoints.rs::endpoints_that_users_change_are_repaired"),
    (
        &ENDPOINTS_GATHERED,
        "tests/cluster/endpoints.rs::a_large_scale_up_writes_endpoints_at_most_ten_times_a_second",
    ),
    (
        &MIRROR_OWNER,
        "src/plan/endpointslice_mirroring/tests.rs::metadata_that_differ_are_written_and_edits_undone",
    ),
    (&NODE_EVICTION, "tests/cluster/nodes.rs::an_eviction_that_is_refused_is_retried_for_ever"),
    (&NODE_SECONDS, "tests/cluster/nodes.rs::a_restart_does_not_begin_the_seconds_anew"),
    (
        &NODE_SHORTER,
        "src/plan/taint_eviction/tests.rs::the_smallest_seconds_of_the_tolerations_that_are_used_count",
    ),
    (&NODE_LIVE, "tests/cluster/nodes.rs::a_cache_that_lags_evicts_no_pod"),
    (&NODE_PODS, "src/plan/node_lifecycle/tests.rs::the_pods_of_a_node_that_is_not_ready_are_not_ready"),
    (&NODE_EVENTS, "src/plan/node_lifecycle/tests.rs::events_are_told_once"),
    (&CRON_EDIT, "tests/cluster/cron_jobs/missed.rs::an_edited_schedule_or_zone_counts_from_the_last_run"),
    (
        &CRON_FOREIGN,
        "src/plan/cronjob/tests.rs::a_listed_job_of_another_leaves_the_status_and_is_not_called_missing",
    ),
    (
        &STATEFUL_REVISION_EVENTS,
        "tests/cluster/stateful_sets/names.rs::revisions_that_a_user_deletes_come_back_at_once",
    ),
    (
        &UNSERVED_VERSION,
        "tests/cluster/garbage.rs::an_owner_in_a_version_that_is_not_served_is_looked_up_in_the_one_that_is",
    ),
    (&AGGREGATED_RULES, "tests/cluster/test_bed.rs::a_role_follows_the_roles_that_it_aggregates"),
];
