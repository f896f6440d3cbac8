//! Flags of kube-controller-manager that have no effect here, and why: an operator who copies a command
//! line learns what to do with each, instead of assuming that it still works.

/// The flags, and the reason for each group.
const REASONS: &[(&[&str], &str)] = &[
    (
        &[
            "allocate-node-cidrs",
            "attach-detach-reconcile-sync-period",
            "cidr-allocator-type",
            "cloud-config",
            "cloud-provider",
            "cluster-cidr",
            "cluster-name",
            "cluster-signing-cert-file",
            "cluster-signing-duration",
            "cluster-signing-key-file",
            "cluster-signing-kube-apiserver-client-cert-file",
            "cluster-signing-kube-apiserver-client-key-file",
            "cluster-signing-kubelet-client-cert-file",
            "cluster-signing-kubelet-client-key-file",
            "cluster-signing-kubelet-serving-cert-file",
            "cluster-signing-kubelet-serving-key-file",
            "cluster-signing-legacy-unknown-cert-file",
            "cluster-signing-legacy-unknown-key-file",
            "concurrent-device-taint-eviction-syncs",
            "concurrent-ephemeralvolume-syncs",
            "concurrent-horizontal-pod-autoscaler-syncs",
            "concurrent-resourceclaim-syncs",
            "concurrent-service-syncs",
            "concurrent-serviceaccount-token-syncs",
            "concurrent-storage-version-migrator-syncs",
            "concurrent-validating-admission-policy-status-syncs",
            "configure-cloud-routes",
            "disable-attach-detach-reconcile-sync",
            "disable-force-detach-on-timeout",
            "enable-dynamic-provisioning",
            "enable-garbage-collector",
            "enable-hostpath-provisioner",
            "flex-volume-plugin-dir",
            "horizontal-pod-autoscaler-cpu-initialization-period",
            "horizontal-pod-autoscaler-downscale-stabilization",
            "horizontal-pod-autoscaler-initial-readiness-delay",
            "horizontal-pod-autoscaler-sync-period",
            "horizontal-pod-autoscaler-tolerance",
            "legacy-service-account-token-clean-up-period",
            "node-cidr-mask-size",
            "node-cidr-mask-size-ipv4",
            "node-cidr-mask-size-ipv6",
            "node-sync-period",
            "pv-recycler-increment-timeout-nfs",
            "pv-recycler-minimum-timeout-hostpath",
            "pv-recycler-minimum-timeout-nfs",
            "pv-recycler-pod-template-filepath-hostpath",
            "pv-recycler-pod-template-filepath-nfs",
            "pv-recycler-timeout-increment-hostpath",
            "pvclaimbinder-sync-period",
            "route-reconciliation-period",
            "service-account-private-key-file",
            "service-cluster-ip-range",
        ],
        "it belongs to a controller that stays with kube-controller-manager: keep it on its command line",
    ),
    (
        &[
            "add-dir-header",
            "address",
            "alsologtostderr",
            "deployment-controller-sync-period",
            "enable-taint-manager",
            "experimental-cluster-signing-duration",
            "horizontal-pod-autoscaler-downscale-delay",
            "horizontal-pod-autoscaler-upscale-delay",
            "log-backtrace-at",
            "log-dir",
            "log-file",
            "log-file-max-size",
            "logtostderr",
            "one-output",
            "pod-eviction-timeout",
            "port",
            "register-retry-count",
            "skip-headers",
            "skip-log-headers",
            "stderrthreshold",
            "volume-host-allow-local-loopback",
            "volume-host-cidr-denylist",
        ],
        "kube-controller-manager itself no longer has it: leave the flag out",
    ),
    (
        &["use-service-account-credentials"],
        "Windlass acts as the one user of its kubeconfig or service account: leave the flag out, and give \
         that user the rules of all its controllers",
    ),
    (&["kube-api-content-type"], "Windlass chooses the encoding of each kind itself: leave the flag out"),
    (&["namespace-sync-period"], "namespaces are synced again with everything else: use --min-resync-period"),
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

/// Why the flag `given`, with or without its dashes and value, is not supported.
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
    fn every_flag_that_kubeadm_gives_is_offered_or_refused_with_a_reason() {
        let command = crate::args::Args::command();
        for flag in [
            "allocate-node-cidrs",
            "authentication-kubeconfig",
            "authorization-kubeconfig",
            "bind-address",
            "client-ca-file",
            "cluster-cidr",
            "cluster-name",
            "cluster-signing-cert-file",
            "cluster-signing-key-file",
            "controllers",
            "enable-hostpath-provisioner",
            "kubeconfig",
            "leader-elect",
            "requestheader-client-ca-file",
            "service-account-private-key-file",
            "service-cluster-ip-range",
            "use-service-account-credentials",
        ] {
            let offered = command.get_arguments().any(|argument| argument.get_long() == Some(flag));
            assert!(offered || reason(flag).is_some(), "--{flag}");
        }
    }

    /// The table of them in `docs/install.md`, as it must be.
    fn table() -> String {
        let mut text = "| Flags | What to do |\n|---|---|\n".to_owned();
        for (flags, why) in REASONS {
            let names: Vec<String> = flags.iter().map(|flag| format!("`--{flag}`")).collect();
            let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
            text.push_str(&format!("| {} | {} |\n", names.join(" "), why));
        }
        text
    }

    #[test]
    fn the_documentation_lists_the_flags_to_leave_out() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/install.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (before, rest) = page.split_once("<!-- foreign flags -->\n").expect("the marker");
        let (there, after) = rest.split_once("\n\n").unwrap();
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let text = format!("{before}<!-- foreign flags -->\n{}\n{after}", table());
            std::fs::write(path, text).unwrap();
            return;
        }
        assert_eq!(there, table().trim_end(), "UPDATE_EXPECT=1 writes it");
    }

    #[test]
    fn no_flag_is_both_offered_and_refused() {
        for argument in crate::args::Args::command().get_arguments() {
            let long = argument.get_long().unwrap_or_default();
            assert_eq!(reason(long), None, "--{long}");
        }
    }
}
