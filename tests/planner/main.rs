//! The planners, which are pure: no tokio, no HTTP, no API server. Changing `src/plan` and running these takes seconds.

mod cronjob;
mod daemonset;
mod deployment_status_tables;
mod deployment_tables;
mod failed_pods;
mod job;
mod kept_failed_pods;
mod namespaces;
mod observed_generation;
mod planning;
mod properties;
mod reasons;
mod replicaset_tables;
mod rolling_update;
mod rolling_update_job;
mod rollout;
mod statefulset;
