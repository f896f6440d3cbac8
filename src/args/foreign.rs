//! Flags of kube-controller-manager that mean nothing here, and why: an operator who moves a command
//! line over should learn what to do with each, instead of believing that it still works.

/// Which flags, and what to say of them.
const REASONS: &[(&[&str], &str)] = &[
    (
        &[
            "allocate-node-cidrs",
            "attach-detach-reconcile-sync-period",
            "cidr-allocator-type",
            "cloud-config",
            "cloud-provider",
            "cluster-cidr",
            "cluster-signing-cert-file",
            "cluster-signing-duration",
            "cluster-signing-key-file",
            "concurrent-daemonset-syncs",
            "concurrent-cron-job-syncs",
            "concurrent-endpoint-syncs",
            "concurrent-gc-syncs",
            "concurrent-horizontal-pod-autoscaler-syncs",
            "concurrent-job-syncs",
            "concurrent-namespace-syncs",
            "concurrent-resource-quota-syncs",
            "concurrent-service-endpoint-syncs",
            "concurrent-service-syncs",
            "concurrent-serviceaccount-token-syncs",
            "concurrent-statefulset-syncs",
            "configure-cloud-routes",
            "enable-dynamic-provisioning",
            "enable-garbage-collector",
            "flex-volume-plugin-dir",
            "horizontal-pod-autoscaler-sync-period",
            "large-cluster-size-threshold",
            "namespace-sync-period",
            "node-cidr-mask-size",
            "node-eviction-rate",
            "node-monitor-grace-period",
            "node-monitor-period",
            "node-sync-period",
            "pvclaimbinder-sync-period",
            "resource-quota-sync-period",
            "root-ca-file",
            "route-reconciliation-period",
            "service-account-private-key-file",
            "service-cluster-ip-range",
            "terminated-pod-gc-threshold",
            "unhealthy-zone-threshold",
            "cluster-name",
        ],
        "it belongs to a controller that stays with kube-controller-manager: keep it on its command line",
    ),
    (
        &["use-service-account-credentials"],
        "Windlass acts as the one user of its kubeconfig or service account: leave the flag out, and give \
         that user the rules of both controllers",
    ),
    (
        &["kube-api-content-type"],
        "Windlass reads JSON only, straight into its own records: leave the flag out",
    ),
    (
        &["feature-gates", "emulated-version", "min-compatibility-version"],
        "Windlass has no feature gates: leave the flag out",
    ),
    (
        &["enable-leader-migration", "leader-migration-config"],
        "Windlass moves no controllers between lock names: leave the flag out",
    ),
    (
        &["external-cloud-volume-plugin", "contention-profiling"],
        "it is about a part that Windlass does not have: leave the flag out",
    ),
    (
        &[
            "log-flush-frequency",
            "vmodule",
            "log-text-split-stream",
            "log-text-info-buffer-size",
            "log-json-split-stream",
            "log-json-info-buffer-size",
        ],
        "Windlass writes each line to stderr at once; for a part of it alone set WINDLASS_LOG, such as \
         WINDLASS_LOG=windlass::runtime=debug",
    ),
    (
        &[
            "show-hidden-metrics-for-version",
            "disabled-metrics",
            "allow-metric-labels",
            "allow-metric-labels-manifest",
        ],
        "Windlass has no hidden metrics and no label that a user can fill: drop what you do not need in \
         Prometheus, with metric_relabel_configs",
    ),
    (
        &["permit-port-sharing", "permit-address-sharing", "tls-sni-cert-key", "tls-curve-preferences"],
        "Windlass listens on one port with one certificate and the curves of its TLS library: leave the \
         flag out",
    ),
];

/// Why the flag `given`, with or without its dashes and value, is not there.
pub fn reason(given: &str) -> Option<String> {
    let name = given.trim_start_matches('-').split('=').next().unwrap_or_default();
    let (_, why) = REASONS.iter().find(|(flags, _)| flags.contains(&name))?;
    Some(format!("--{name} is a flag of kube-controller-manager; {why}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn no_flag_is_both_offered_and_refused() {
        for argument in crate::args::Args::command().get_arguments() {
            let long = argument.get_long().unwrap_or_default();
            assert_eq!(reason(long), None, "--{long}");
        }
    }
}
