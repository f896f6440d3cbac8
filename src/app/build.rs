//! Builds every part once and wires the parts to each other.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Candidacy, Controllers, Parts};
use crate::config::{ControllerConfig, Enabled};
use crate::controllers::coexistence::Coexistence;
use crate::controllers::explanations::Explanations;
use crate::controllers::lost_creations::LostCreations;
use crate::controllers::pace::Pace;
use crate::controllers::refused::Refused;
use crate::controllers::rollouts::{Rollouts, show_stuck};
use crate::controllers::turns::Turns;
use crate::controllers::unresolved::Unresolved;
use crate::controllers::words::Words;
use crate::controllers::{Apis, Cluster};
use crate::metrics::set_gauge;
use crate::model::{Deployment, Phase, Pod, Record, ReplicaSet, ReplicationController};
use crate::runtime::api::Api;
use crate::runtime::events::EventRecorder;
use crate::runtime::expectations::{Caches, Expectations};
use crate::runtime::fence::fence;
use crate::runtime::informer::{Informer, InformerOptions};
use crate::runtime::lease::{Election, Tools, Watchdog};
use crate::runtime::limit::Limiter;
use crate::runtime::store::Change;
use crate::runtime::waiters::Waiters;
use crate::runtime::worker::WorkQueue;

/// Requests to the Lease, per second and at once: client-go's defaults. A leader needs one in two seconds.
const ELECTION_RATE: (f64, u32) = (5.0, 10);

impl Controllers {
    /// Builds both controllers and wires the informers to their queues.
    pub fn new(config: ControllerConfig, parts: Parts) -> Self {
        let Parts { client, host, clock, seed, metrics, election } = parts;
        let limiter = || Limiter::new(config.qps, config.burst);
        let (keeper, fence) = fence();
        let fence = election.is_some().then_some(fence);
        let behind_the_fence = |api: Api| match &fence {
            Some(fence) => api.fenced(fence.clone()),
            None => api,
        };
        let draining = CancellationToken::new();
        // Each controller has a limit of its own: a large scale-up delays no write of another controller.
        let apis = Apis::new(|| {
            let api = Api::new(client.clone(), &host, limiter(), metrics.clone());
            behind_the_fence(api.patient(draining.clone()))
        });
        // Events and watches have a limit of their own each: a storm of events holds up no write that
        // matters, and a watch that reopens does not queue behind a burst of writes.
        let events_api = behind_the_fence(Api::new(client.clone(), &host, limiter(), metrics.clone()));
        let watch_api = Api::new(client, &host, limiter(), metrics.clone());
        let (recorder, events) = EventRecorder::new(events_api, clock.clone(), seed);
        let election = election.zip(fence.clone()).map(|(Candidacy { client, options }, fence)| {
            let (qps, burst) = ELECTION_RATE;
            let api = Api::new(client, &host, Limiter::new(qps, burst), metrics.clone());
            let tools = Tools { api, clock: clock.clone(), recorder: recorder.clone(), keeper, seed };
            let election = Election::new(&options, tools);
            let watchdog = Watchdog::new(fence, &election, &options);
            (election, watchdog)
        });

        let namespace = config.scope.namespace.clone();
        let options = |salt: u64| InformerOptions {
            namespace: namespace.clone(),
            seed: seed ^ salt,
            // Whoever is elected has its caches catch up first; without an election the first list is acted on.
            may_lag: election.is_some(),
            ..InformerOptions::default()
        };
        let mut deployments = Informer::<Deployment>::new(watch_api.clone(), options(1));
        let mut sets = Informer::<ReplicaSet>::new(watch_api.clone(), options(2));
        let mut pods = Informer::<Pod>::new(watch_api.clone(), options(3));
        let mut replication_controllers =
            Informer::<ReplicationController>::new(watch_api.clone(), options(4));

        let deployment_queue = WorkQueue::new("deployment", &metrics);
        let set_queue = WorkQueue::new("replicaset", &metrics);
        let replication_controller_queue = WorkQueue::new("replicationmanager", &metrics);
        let expectations = Expectations::new(metrics.clone());
        let cluster = Arc::new(Cluster {
            apis,
            clock,
            caches: Caches::default()
                .with(deployments.store())
                .with(sets.store())
                .with(replication_controllers.store())
                .with(pods.store()),
            deployments: deployments.store(),
            sets: sets.store(),
            replication_controllers: replication_controllers.store(),
            pods: pods.store(),
            deployment_waiters: Waiters::new(deployment_queue.clone()),
            set_waiters: Waiters::new(set_queue.clone()),
            replication_controller_waiters: Waiters::new(replication_controller_queue.clone()),
            deployment_queue,
            set_queue,
            replication_controller_queue,
            expectations,
            unresolved: Unresolved::default(),
            lost_creations: LostCreations::default(),
            pod_names: Default::default(),
            creations: Default::default(),
            pace: Pace::default(),
            terminating_field: Default::default(),
            turns: Turns::default(),
            refused: Refused::default(),
            words: Words::default(),
            explanations: Explanations::default(),
            scope: config.scope.clone(),
            rollouts: Rollouts::default(),
            coexistence: Coexistence::default(),
            field_manager: config.field_manager.clone(),
            recorder,
            metrics,
            failed_pod_backoff: config.failed_pod_backoff,
            draining,
        });

        wire(&cluster, &mut deployments, Cluster::deployment_changed);
        wire(&cluster, &mut sets, Cluster::set_changed);
        wire(&cluster, &mut replication_controllers, Cluster::replication_controller_changed);
        wire(&cluster, &mut pods, Cluster::pod_changed);
        observe(&cluster, config.enabled, &mut deployments, &mut sets, &mut pods);
        watch_rivals_of(&cluster, config.enabled, &mut replication_controllers);
        let caches = vec![
            (Deployment::RESOURCE.plural, deployments.ready()),
            (ReplicaSet::RESOURCE.plural, sets.ready()),
            (ReplicationController::RESOURCE.plural, replication_controllers.ready()),
            (Pod::RESOURCE.plural, pods.ready()),
        ];
        let mut catch_ups = Vec::new();
        if election.is_some() && !planted!("a new leader believes its caches") {
            catch_ups = vec![
                deployments.catch_up(),
                sets.catch_up(),
                replication_controllers.catch_up(),
                pods.catch_up(),
            ];
        }
        Controllers {
            cluster,
            deployments,
            sets,
            replication_controllers,
            pods,
            events,
            config,
            election,
            fence,
            caches,
            catch_ups,
            seed,
        }
    }
}

/// What the metrics, the scope and the guard against rivals learn from changes.
fn observe(
    cluster: &Arc<Cluster>,
    enabled: Enabled,
    deployments: &mut Informer<Deployment>,
    sets: &mut Informer<ReplicaSet>,
    pods: &mut Informer<Pod>,
) {
    let told = cluster.clone();
    deployments.on_change(move |change| {
        // What is not ours is rightly somebody else's.
        if enabled.deployment && told.has_deployment_in_scope(&change.object().meta.key) {
            told.coexistence.saw(change, |old, new| old.status != new.status);
        }
        told.scope_may_have_changed(change);
    });
    let told = cluster.clone();
    sets.on_change(move |change| {
        if enabled.replicaset && told.has_set_in_scope(&change.object().meta.key) {
            told.coexistence.saw(change, |old, new| old.status != new.status);
        }
    });
    let failed = cluster.metrics.workloads.pods_failed.clone();
    pods.on_change(move |change| {
        if let Change::Updated { old, new } = change
            && new.phase == Phase::Failed
            && old.phase != Phase::Failed
        {
            failed.inc();
        }
    });
    let weak = Arc::downgrade(cluster);
    cluster.metrics.before_render(move || {
        let Some(cluster) = weak.upgrade() else { return false };
        show_stuck(&cluster.deployments, &cluster.metrics.workloads);
        set_gauge(&cluster.metrics.workloads.explanations_bytes, cluster.explanations.bytes());
        true
    });
}

/// The same for ReplicationControllers, which the guard against rivals alone looks at.
fn watch_rivals_of(
    cluster: &Arc<Cluster>,
    enabled: Enabled,
    controllers: &mut Informer<ReplicationController>,
) {
    let told = cluster.clone();
    controllers.on_change(move |change| {
        let key = &change.object().0.meta.key;
        if enabled.replicationcontroller && told.has_replication_controller_in_scope(key) {
            told.coexistence.saw(change, |old, new| old.0.status != new.0.status);
        }
    });
}

/// Has a change told to the cluster, and the keys woken that wait for this cache.
fn wire<T: Record>(
    cluster: &Arc<Cluster>,
    informer: &mut Informer<T>,
    changed: impl Fn(&Cluster, &Change<T>) + Send + Sync + 'static,
) {
    let told = cluster.clone();
    informer.on_change(move |change| changed(&told, change));
    let woken = cluster.clone();
    informer.on_position(move |position| {
        woken.deployment_waiters.reached(T::RESOURCE, position);
        woken.set_waiters.reached(T::RESOURCE, position);
        woken.replication_controller_waiters.reached(T::RESOURCE, position);
    });
    let relist = informer.relist();
    cluster.expectations.relist_with(T::RESOURCE, move || relist.demand());
}
