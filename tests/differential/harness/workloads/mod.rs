//! The workloads. Each is a script that is played with both controllers.

mod adoption;
mod budgets_and_quotas;
mod cascades;
mod controllers;
mod cron_jobs;
mod daemon_sets;
mod deadlines;
mod ended_jobs_and_pods;
mod history;
mod job_indexes;
mod job_policies;
mod jobs;
mod namespaces;
mod order;
mod ownership;
mod pausing;
mod pods;
mod refusals;
mod rollback;
mod rollouts;
mod scaling;
mod services;
mod stateful_set_claims;
mod stateful_set_ownership;
mod stateful_set_updates;
mod stateful_sets;

use futures::future::BoxFuture;

use super::declared::Declared;
use super::stage::Stage;

/// A script, and its intended differences.
pub struct Workload {
    pub name: &'static str,
    pub play: fn(&Stage) -> BoxFuture<'_, ()>,
    pub declared: &'static [Declared],
}

/// Names the workloads of a module, each with the differences that are declared for it.
macro_rules! workloads {
    ($($name:ident $(: $declared:expr)?),* $(,)?) => {
        pub static WORKLOADS: &[super::Workload] = &[$(super::Workload {
            name: stringify!($name),
            play: |stage| Box::pin($name(stage)),
            declared: super::declared_or_none!($($declared)?),
        }),*];
    };
}

macro_rules! declared_or_none {
    () => {
        &[]
    };
    ($declared:expr) => {
        $declared
    };
}

use {declared_or_none, workloads};

/// Those of the garbage collector and of the namespace controller. They are played with these two controllers on
/// Windlass' side, and with upstream's own workload controllers on both.
pub fn of_the_cluster() -> Vec<&'static Workload> {
    [cascades::WORKLOADS, namespaces::WORKLOADS].into_iter().flatten().collect()
}

/// Those of CronJobs, of Jobs that have ended, and of pods that are left behind.
pub fn of_batches() -> Vec<&'static Workload> {
    [cron_jobs::WORKLOADS, ended_jobs_and_pods::WORKLOADS].into_iter().flatten().collect()
}

/// Those of Services, PodDisruptionBudgets and ResourceQuotas.
pub fn of_services() -> Vec<&'static Workload> {
    [services::WORKLOADS, budgets_and_quotas::WORKLOADS].into_iter().flatten().collect()
}

/// All of them.
pub fn all() -> Vec<&'static Workload> {
    [of_workloads(), of_the_cluster(), of_batches(), of_services()].concat()
}

/// Those of the workload controllers.
pub fn of_workloads() -> Vec<&'static Workload> {
    let modules = [
        rollouts::WORKLOADS,
        scaling::WORKLOADS,
        pausing::WORKLOADS,
        rollback::WORKLOADS,
        history::WORKLOADS,
        deadlines::WORKLOADS,
        order::WORKLOADS,
        pods::WORKLOADS,
        refusals::WORKLOADS,
        adoption::WORKLOADS,
        ownership::WORKLOADS,
        controllers::WORKLOADS,
        daemon_sets::WORKLOADS,
        stateful_sets::WORKLOADS,
        stateful_set_updates::WORKLOADS,
        stateful_set_claims::WORKLOADS,
        stateful_set_ownership::WORKLOADS,
        jobs::WORKLOADS,
        job_indexes::WORKLOADS,
        job_policies::WORKLOADS,
    ];
    modules.into_iter().flatten().collect()
}
