//! The Job controller: pods that end, each of which is counted exactly once.

mod execute;
pub mod left_over;
mod measures;
pub mod memory;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::patch;
use super::replicas::pod_names::{NamedPods, PodNames};
use super::replicas::quota_queue::QuotaQueue;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled, Status};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::error::SyncError;
use crate::engine::event_handlers::may_be_adopted_anew;
use crate::engine::explanations::Explanation;
use crate::engine::owner_memory::Forget as _;
use crate::engine::past_caches::{Children, OwnedBy};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::metrics::bounded::BoundedLabel;
use crate::model::{Condition, Job, JobStatus, Meta, ObjectKey, Pod, Record, Resource};
use crate::plan::Urgency;
use crate::plan::job::{self as planner, BURST, JobPods, Names, Observed, Plan, status};
use crate::plan::replicaset::choose;
use crate::plan::replicaset::names::Sequence;
use crate::runtime::store::{Change, Store};
use left_over::LeftOver;
use memory::JobMemory;

/// How long changes of a Job's pods are gathered (upstream: `SyncJobBatchPeriod`). Pods of a Job end together, and each
/// sync that counts some of them writes the status.
const GATHERED: Duration = Duration::from_secs(1);

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "job-controller",
    aliases: &[],
    kind: Job::RESOURCE,
    objects: "Jobs",
    flag: "concurrent-job-syncs",
    workers: 5,
    queue: "job",
    component: "job-controller",
    watches: &[Job::RESOURCE, Pod::RESOURCE],
    stale_skips: Some(|metrics| &metrics.job_stale_skips),
    is_on_by_default: true,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let (quota_queue, _) = setup.shared();
    let controller = JobController {
        jobs: context.store(),
        pods: context.store(),
        pod_names: Arc::default(),
        memory: Arc::default(),
        left_over: Arc::new(LeftOver::new(&context)),
        quota_queue,
        managers: BoundedLabel::default(),
        context,
    };
    let left_over = controller.left_over.clone();
    let driver = Driver::new(Arc::new(controller), &ENTRY, setup);
    Box::new(left_over::JobWorker { driver: Box::new(driver), left_over })
}

/// The Job controller.
pub struct JobController {
    context: Arc<Context>,
    jobs: Arc<Store<Job>>,
    pods: Arc<Store<Pod>>,
    /// The names that pods without an index have had.
    pod_names: Arc<PodNames>,
    /// The state of each Job that is kept between syncs.
    memory: Arc<JobMemory>,
    /// Pods whose finalizer no Job takes off.
    left_over: Arc<LeftOver>,
    /// Owners whose pods a quota refused, of all kinds together: they share the quotas of a namespace.
    quota_queue: Arc<QuotaQueue>,
    /// Other controllers of Jobs, as they are named in metrics.
    managers: BoundedLabel,
}

impl Status for JobStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut [Condition] {
        &mut self.conditions
    }
}

impl Controller for JobController {
    type Object = Job;
    type Status = JobStatus;
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = status::Outcome;

    /// The pods are read past the cache.
    const AWAITED_KINDS: Option<&'static [Resource]> = Some(&[]);

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        self.context.memory().includes(self.pod_names.clone());
        if !setup.is_enabled(&ENTRY) {
            return;
        }
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.pod_changed(change));
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.job_changed(change));
    }

    fn in_scope(&self, job: &Job) -> bool {
        self.context.settings().scope.selects(&job.meta)
    }

    fn on_deleted(&self, key: &ObjectKey) {
        self.quota_queue.needs_no_room(&self.context, Job::RESOURCE, key);
    }

    fn resolve<'a>(&'a self, job: &'a Job) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async move {
            let found = |pod: &Pod| self.pod_created(job, &pod.meta.key.name, pod.meta.resource_version);
            self.context.resolve_named(job, found).await
        })
    }

    fn wants_to_adopt(&self, job: &Job) -> bool {
        let orphans = self.pods.orphans_selected_by(&job.meta.key.namespace, &job.selector);
        planner::wants_to_adopt(job, &JobPods::of(job, Vec::new(), orphans))
    }

    fn observe<'a>(&self, job: &'a Job, may_adopt: bool) -> Observed<'a> {
        let meta = &job.meta;
        let mut pods = JobPods::default();
        // Of a finished Job nothing is needed.
        if planner::is_unsettled(job) {
            let owned = self.pods.owned_by(&job.as_owner());
            let orphans = self.pods.orphans_selected_by(&meta.key.namespace, &job.selector);
            pods = JobPods::of(job, owned, orphans);
            self.memory.correct(&meta.uid, &mut pods, self.context.now());
        }
        let unreadable = self.pods.unreadable_of(&job.as_owner());
        let (record, marks) = self.memory.of(&meta.uid);
        let (names, reserved) = match job.is_indexed() {
            // The name of a pod is its place: a late creation finds it taken, or is the pod that is wanted.
            true => {
                drop(self.context.in_doubt_writes.late(&meta.uid, Instant::now()));
                (Names::Indexed(marks), 0)
            }
            false => self.free_names(job, &pods),
        };
        Observed {
            job,
            pods,
            unreadable_pods: unreadable.len(),
            may_adopt,
            names,
            reserved,
            record,
            now: self.context.now(),
        }
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        planner::plan(observed)
    }

    fn creates(&self, plan: &Plan) -> bool {
        plan.creates()
    }

    fn writes(&self, plan: &Plan) -> bool {
        !plan.writes.is_empty()
    }

    fn may_count_again(&self, job: &Job, plan: &Plan) -> bool {
        plan.counts() && self.memory.is_counted_elsewhere(&job.meta.uid, job.status.counted())
    }

    fn was_read(&self, job: &Job) {
        self.memory.pods_read(&job.meta.uid, job.status.counted());
    }

    fn children(&self, job: &Job) -> Vec<Children> {
        let selector = job.selector.clone();
        let is_asked = selector.defect().is_none() && !selector.selects_everything();
        let pods = Children { resource: &Pod::RESOURCE, selector, owned_by: OwnedBy::Owner };
        is_asked.then_some(pods).into_iter().collect()
    }

    fn is_unsettled(&self, job: &Job) -> bool {
        planner::is_unsettled(job)
    }

    fn execute<'a>(
        &'a self,
        job: &'a Job,
        observed: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<status::Outcome>> {
        Box::pin(async move {
            if let Some(record) = plan.record {
                self.memory.failures(&job.meta.uid, record);
            }
            let executed = self.carry_out(job, plan).await;
            self.measure_sync(observed, plan, &executed);
            let (key, error) = (&job.meta.key, executed.error());
            self.quota_queue.tried(&self.context, Job::RESOURCE, key, plan.creates(), error);
            executed
        })
    }

    fn settle(
        &self,
        observed: &Observed<'_>,
        plan: &Plan,
        executed: &Executed<status::Outcome>,
    ) -> Settled<JobStatus> {
        let status = status::settled(observed, plan, executed.outcome());
        Settled { status, annotations: Default::default(), requeue_after: plan.requeue_after }
    }

    fn status<'a>(&self, job: &'a Job) -> &'a JobStatus {
        &job.status
    }

    fn status_patch(&self, job: &Job, settled: &Settled<JobStatus>, _: bool) -> Option<Value> {
        patch::job_status(&job.meta, &job.status, &settled.status)
    }

    fn urgency(
        &self,
        observed: &Observed<'_>,
        _: &Plan,
        _: &Executed<status::Outcome>,
        settled: &Settled<JobStatus>,
    ) -> Urgency {
        status::urgency(observed.job, &settled.status)
    }

    fn reported(&self, observed: &Observed<'_>, _: &Plan, settled: &Settled<JobStatus>) {
        let job = observed.job;
        // That of a finished Job is forgotten.
        if !settled.status.is_finished() {
            self.memory.counted(&job.meta.uid, job.status.counted(), settled.status.counted());
        }
        self.measure_status(observed, &settled.status);
        for event in status::events(observed.job, &settled.status) {
            self.context.record_event(ENTRY.component, observed.job, event);
        }
    }

    fn requeue_after(&self, job: &Job, observed: &Observed<'_>, _: &Plan) -> Option<Duration> {
        (observed.reserved > 0).then(|| self.names().reserved_for(job))
    }

    fn explain(&self, observed: &Observed<'_>, plan: Plan, _: &Settled<JobStatus>) -> Option<Explanation> {
        Some(Explanation::new(observed.now, plan.reasons, &plan.writes))
    }
}

impl JobController {
    /// The names that pods without an index have had.
    fn names(&self) -> NamedPods<'_, Job> {
        let JobController { context, jobs, pods, pod_names, .. } = self;
        NamedPods { context, owners: jobs, pods, pod_names }
    }

    /// The names for the pods that a Job without indexes may lack, and how many places are kept for earlier requests.
    fn free_names(&self, job: &Job, pods: &JobPods) -> (Names, usize) {
        let active = pods.active().count();
        let lacking = usize::try_from(job.parallelism).unwrap_or(0).saturating_sub(active).min(BURST);
        if lacking == 0 || !planner::is_unsettled(job) {
            return (Names::Free(Vec::new()), 0);
        }
        let Meta { uid, key, .. } = &job.meta;
        let sequence = Sequence::of(&key.name, uid);
        let mut late = self.context.in_doubt_writes.late(uid, Instant::now());
        let names = self.names();
        let pod_named = |name: &str| self.pods.get(&ObjectKey::new(key.namespace.clone(), name));
        let all = pods.owned.iter().map(|owned| &owned.pod).chain(&pods.to_release).chain(&pods.orphans);
        let is_ours = |pod: &Pod| job.controls(&pod.meta);
        // A late request meets the pod that ended under the name, and creates none.
        late.retain(|name| !pod_named(name).is_some_and(|pod| is_ours(&pod) && !pod.meta.is_deleting()));
        let used = names.used_names(job);
        let chosen = choose(&sequence, active, lacking, all, is_ours, late, &used, pod_named);
        chosen.foreign.iter().for_each(|name| names.name_had(job, name));
        (Names::Free(chosen.free), chosen.reserved)
    }

    /// A pod has changed: wakes the Job that controls or controlled it, after some time. A pod without a controller wakes
    /// every Job that selects it. A finished Job is not woken.
    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        self.names().pod_name_seen(change);
        self.measure_pod(change);
        let before = match change {
            Change::Updated { old, new } if old.meta.controller != new.meta.controller => Some(old),
            _ => None,
        };
        for pod in before.into_iter().chain([pod]) {
            let Some(job) = self.jobs.controller_of(&pod.meta).filter(|job| !job.is_finished()) else {
                continue;
            };
            if let Change::Deleted(_) = change {
                self.memory.pod_gone(&job, pod);
            }
            self.context.queue_of::<Job>().add_after(job.meta.key.clone(), GATHERED);
        }
        if !matches!(change, Change::Deleted(_)) {
            self.left_over.pod_changed(pod);
        }
        if pod.meta.controller.is_none() && !pod.meta.is_deleting() && may_be_adopted_anew(change) {
            for job in self.jobs.in_namespace(&pod.meta.key.namespace) {
                if !job.is_finished() && job.selector.matches(&pod.meta.labels) {
                    self.context.queue_of::<Job>().add(job.meta.key.clone());
                }
            }
        }
    }

    /// A Job has changed: one that is gone or finished leaves its pods to [`LeftOver`].
    fn job_changed(&self, change: &Change<Job>) {
        let job = change.object();
        if let (Change::Added(_), Some(name)) = (change, &job.managed_by)
            && self.in_scope(job)
        {
            let label = self.managers.of(name);
            self.context.metrics.jobs.managed_elsewhere.with_label_values(&[&*label]).inc();
        }
        if let Change::Deleted(job) = change {
            self.left_over.job_deleted(job, self.in_scope(job));
        }
        if job.is_finished() {
            self.memory.forget(&job.meta.uid);
        }
        if matches!(change, Change::Deleted(_)) || job.is_finished() {
            for pod in self.pods.owned_by(&job.as_owner()) {
                self.left_over.pod_changed(&pod);
            }
        }
    }
}
