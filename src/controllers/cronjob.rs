//! The CronJob controller: Jobs at the times of a schedule.

mod execute;
mod memory;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::patch;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled, Status};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::error::SyncError;
use crate::engine::explanations::Explanation;
use crate::engine::setup::{HandlerOrder, Setup};
use crate::metrics::set_gauge;
use crate::model::{Condition, CronJob, CronJobStatus, Job, ObjectKey, Record};
use crate::plan::Urgency;
use crate::plan::cronjob::{self as planner, Observed, Outcome, Plan, explain};
use crate::runtime::store::{Change, Store};
use memory::CronJobMemory;

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "cronjob-controller",
    aliases: &[],
    kind: CronJob::RESOURCE,
    objects: "CronJobs",
    flag: "concurrent-cron-job-syncs",
    workers: 5,
    queue: "cronjob",
    component: "cronjob-controller",
    watches: &[CronJob::RESOURCE, Job::RESOURCE],
    stale_skips: Some(|metrics| &metrics.cronjob_stale_skips),
    is_on_by_default: true,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let controller = CronJobController {
        cron_jobs: context.store(),
        jobs: context.store(),
        memory: Arc::default(),
        context,
    };
    Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
}

/// The CronJob controller.
pub struct CronJobController {
    context: Arc<Context>,
    cron_jobs: Arc<Store<CronJob>>,
    jobs: Arc<Store<Job>>,
    /// The memory of each CronJob between syncs.
    memory: Arc<CronJobMemory>,
}

impl Status for CronJobStatus {
    fn conditions(&self) -> &[Condition] {
        &[]
    }

    fn conditions_mut(&mut self) -> &mut [Condition] {
        &mut []
    }
}

impl Controller for CronJobController {
    type Object = CronJob;
    type Status = CronJobStatus;
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = Outcome;

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        if !setup.is_enabled(&ENTRY) {
            return;
        }
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.job_changed(change));
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.cron_job_changed(change));
        let metrics = self.context.metrics();
        let gauge = metrics.workloads.cronjob_oldest_run.clone();
        let (jobs, clock) = (Arc::downgrade(&self.jobs), self.context.clock.clone());
        metrics.before_render(move || {
            let Some(jobs) = jobs.upgrade() else { return false };
            let mut oldest = None;
            jobs.for_each(|job| {
                if job.scheduled.is_some() && !job.is_finished() {
                    oldest = oldest.into_iter().chain([explain::started(job)]).min();
                }
            });
            let age = oldest.map_or(0, |since| clock.now().as_second() - since.as_second());
            set_gauge(&gauge, usize::try_from(age).unwrap_or(0));
            true
        });
    }

    fn in_scope(&self, cron_job: &CronJob) -> bool {
        self.context.settings().scope.selects(&cron_job.meta)
    }

    fn resolve<'a>(&'a self, cron_job: &'a CronJob) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(self.context.resolve_children(cron_job, &self.jobs))
    }

    fn observe<'a>(&'a self, cron_job: &'a CronJob, _: bool) -> Observed<'a> {
        let (owner, key) = (cron_job.as_owner(), &cron_job.meta.key);
        let named = self.jobs.named(&key.namespace, &format!("{}-", key.name));
        let listed =
            cron_job.status.active.iter().filter_map(|active| {
                self.jobs.get(&ObjectKey::new(key.namespace.clone(), active.name.clone()))
            });
        let others = named.into_iter().chain(listed).filter(|job| !cron_job.controls(&job.meta));
        let settings = self.context.settings();
        Observed {
            cron_job,
            jobs: self.jobs.owned_by(&owner),
            taken: others.map(|job| job.meta.key.name.clone()).collect(),
            unreadable_jobs: self.jobs.unreadable_of(&owner).len(),
            last_run: self.memory.last_run(&cron_job.meta.uid),
            rescheduled: self.memory.rescheduled(cron_job, self.context.now()),
            zones: &settings.time_zones,
            local_zone: &settings.local_time_zone,
            now: self.context.now(),
        }
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        planner::plan(observed)
    }

    fn writes(&self, plan: &Plan) -> bool {
        plan.writes()
    }

    fn execute<'a>(
        &'a self,
        cron_job: &'a CronJob,
        _: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<Outcome>> {
        self.memory.is_due(&cron_job.meta.uid, plan.due);
        Box::pin(self.carry_out(cron_job, plan))
    }

    fn settle(&self, _: &Observed<'_>, plan: &Plan, executed: &Executed<Outcome>) -> Settled<CronJobStatus> {
        let status = planner::settled(plan, executed.outcome());
        Settled { status, annotations: Default::default(), requeue_after: plan.requeue_after }
    }

    fn status<'a>(&self, cron_job: &'a CronJob) -> &'a CronJobStatus {
        &cron_job.status
    }

    fn status_patch(&self, cron_job: &CronJob, settled: &Settled<CronJobStatus>, _: bool) -> Option<Value> {
        patch::cron_job_status(&cron_job.meta, &cron_job.status, &settled.status)
    }

    fn urgency(
        &self,
        _: &Observed<'_>,
        _: &Plan,
        _: &Executed<Outcome>,
        _: &Settled<CronJobStatus>,
    ) -> Urgency {
        Urgency::Immediate
    }

    fn reported(&self, observed: &Observed<'_>, plan: &Plan, _: &Settled<CronJobStatus>) {
        for event in &plan.changes {
            self.context.record_event(ENTRY.component, observed.cron_job, event.clone());
        }
    }

    fn explain(
        &self,
        observed: &Observed<'_>,
        plan: Plan,
        _: &Settled<CronJobStatus>,
    ) -> Option<Explanation> {
        let writes = plan.listed();
        Some(Explanation::new(observed.now, plan.reasons, &writes))
    }
}

impl CronJobController {
    /// A CronJob has changed. A process that does not lead yet learns of a new schedule, too: it may lead next.
    fn cron_job_changed(&self, change: &Change<CronJob>) {
        if let Change::Added(cron_job) | Change::Updated { new: cron_job, .. } = change {
            self.memory.rescheduled(cron_job, self.context.now());
        }
    }

    /// A Job has changed: wakes the CronJob that controls or controlled it.
    fn job_changed(&self, change: &Change<Job>) {
        if let Change::Updated { old, new } = change {
            if !planner::concerns(old, new) {
                return;
            }
            self.context.wake_owner_of(&self.cron_jobs, &**old);
        }
        self.context.wake_owner_of(&self.cron_jobs, &**change.object());
    }
}
