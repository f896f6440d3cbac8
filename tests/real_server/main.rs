//! Against a real kube-apiserver: `KUBEBUILDER_ASSETS` names the folder with `etcd` and `kube-apiserver`, as with
//! envtest. What is judged of the chart needs `WINDLASS_RENDERED` as well, a folder that `.ci/chart check` has filled.
//!
//! Whether a test can run is known only when this program starts, and the test harness of the standard library ignores
//! by attribute alone. So the program has a harness of its own, which reports as ignored what lacks its server.

mod apiserver;
mod bounded_collector;
mod collector_policy;
mod daemon_policy;
mod daemon_sets;
mod dead_api;
mod examples;
mod garbage;
mod installation;
mod manifests;
mod many_owners;
mod metadata_encodings;
mod namespaces;
mod quotas;
mod real_node;
mod restored_history;
mod rollout_policy;
mod test_bed;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use windlass_testkit::apiserver::assets;
use windlass_testkit::controllers;

/// The programs that a test cannot run without.
#[derive(Clone, Copy)]
enum Needs {
    Server,
    ServerAndUpstream,
    ServerAndChart,
    ServerAndGo,
    ServerAndFolder,
    ServerAndNode,
}

impl Needs {
    fn text(self) -> &'static str {
        match self {
            Needs::Server => "needs KUBEBUILDER_ASSETS",
            Needs::ServerAndUpstream => "needs KUBEBUILDER_ASSETS with kube-controller-manager",
            Needs::ServerAndChart => "needs KUBEBUILDER_ASSETS and WINDLASS_RENDERED",
            Needs::ServerAndGo => "needs KUBEBUILDER_ASSETS and WINDLASS_KUBERNETES_SOURCE",
            Needs::ServerAndFolder => "needs KUBEBUILDER_ASSETS and WINDLASS_MANIFESTS",
            Needs::ServerAndNode => {
                "needs root, containerd 2, ctr, runc and busybox, and KUBEBUILDER_ASSETS with kubelet and kube-scheduler"
            }
        }
    }

    fn are_met(self) -> bool {
        let chart = || {
            // In CI an ignored test is not noticed, and the chart would never be validated: there the test fails.
            std::env::var_os("WINDLASS_RENDERED").is_some() || std::env::var_os("CI").is_some()
        };
        match self {
            Needs::Server => assets().is_some(),
            Needs::ServerAndUpstream => controllers::assets().is_ok(),
            Needs::ServerAndChart => assets().is_some() && chart(),
            Needs::ServerAndGo => assets().is_some() && std::env::var_os(examples::GO_TREE).is_some(),
            Needs::ServerAndFolder => assets().is_some() && std::env::var_os(manifests::FOLDER).is_some(),
            Needs::ServerAndNode => assets().is_some() && real_node::machine::missing().is_empty(),
        }
    }
}

macro_rules! trials {
    ($($needs:ident: $module:ident::$name:ident,)*) => {
        vec![$({
            let name = concat!(stringify!($module), "::", stringify!($name));
            let trial = Trial::test(name, || {
                $module::$name();
                Ok(())
            });
            trial.with_kind(Needs::$needs.text()).with_ignored_flag(!Needs::$needs.are_met())
        }),*]
    };
}

fn main() -> ExitCode {
    let trials = trials![
        Server: apiserver::the_scenarios_hold_on_a_real_api_server,
        Server: apiserver::the_daemon_needs_exactly_the_shipped_permissions,
        Server: test_bed::a_clean_control_plane_with_the_test_bed_feels_like_a_cluster,
        Server: daemon_policy::the_daemons_token_can_write_only_objects_that_its_controllers_own,
        Server: collector_policy::the_collectors_token_changes_only_references_and_its_finalizers,
        Server: rollout_policy::values_are_judged_as_the_daemon_reads_them_and_approvals_are_a_right_of_their_own,
        Server: manifests::the_recorded_answers_are_those_of_a_real_server,
        ServerAndFolder: manifests::a_folder_is_answered_alike,
        Server: many_owners::the_policies_judge_changes_of_thousands_of_references,
        ServerAndNode: real_node::workloads_run_in_real_containers_with_windlass_as_the_only_controller_manager,
        Server: restored_history::daemons_go_on_after_a_restore_of_etcd_with_and_without_a_lease,
        Server: dead_api::an_operator_goes_on_beside_an_api_that_is_down,
        ServerAndUpstream: dead_api::kube_controller_manager_waits_for_no_api_and_deletes_what_turns_up_late,
        Server: installation::the_shipped_manifests_are_accepted,
        ServerAndUpstream: installation::kube_controller_manager_keeps_a_pod_of_the_bootstrap_and_evictions_go_on,
        Server: namespaces::namespaces_end_with_what_is_in_them,
        Server: examples::the_python_programs_of_the_documentation_pass,
        ServerAndGo: examples::the_go_program_of_the_documentation_passes,
        ServerAndChart: test_bed::the_chart_gives_the_controllers_of_the_cluster_exactly_the_rights_that_they_need,
        Server: metadata_encodings::metadata_are_the_same_in_protobuf_and_in_json_for_custom_resources_too,
        Server: garbage::the_situations_of_upstreams_tests_end_as_upstream_demands,
        ServerAndUpstream: garbage::kube_controller_manager_ends_the_same_situations_in_the_same_way,
        Server: garbage::without_a_watch_cache_they_end_as_upstream_demands,
        ServerAndUpstream: garbage::kube_controller_manager_ends_them_in_the_same_way_without_a_watch_cache,
        Server: garbage::with_owners_that_are_seen_late_they_end_as_upstream_demands,
        ServerAndUpstream: garbage::kube_controller_manager_ends_them_in_the_same_way_with_owners_that_are_seen_late,
        Server: garbage::the_situations_of_upstreams_end_to_end_tests_end_as_upstream_demands,
        ServerAndUpstream: garbage::kube_controller_manager_ends_the_end_to_end_situations_in_the_same_way,
        ServerAndUpstream: namespaces::the_conditions_are_those_of_kube_controller_manager,
        ServerAndUpstream: quotas::quotas_and_limit_ranges_admit_refuse_and_count_as_a_real_api_server_does,
        ServerAndChart: bounded_collector::the_chart_gives_a_collector_of_some_resources_of_a_namespace_exactly_what_it_needs,
        ServerAndChart: bounded_collector::the_chart_gives_a_collector_of_a_namespace_rights_in_it_alone,
        ServerAndChart: bounded_collector::the_chart_gives_a_collector_of_some_resources_exactly_what_it_needs,
        ServerAndChart: installation::the_rendered_chart_is_accepted,
        ServerAndChart: installation::the_chart_gives_a_daemon_of_one_namespace_the_permissions_that_it_needs,
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
