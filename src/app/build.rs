//! Builds every component once and connects them.

use std::sync::Arc;

use jiff::tz::TimeZoneDatabase;
use tokio_util::sync::CancellationToken;

use super::kinds::WatchedKinds;
use super::{Candidacy, Controllers, Parts};
use crate::clock::Clock;
use crate::config::ControllerConfig;
use crate::controllers::registry;
use crate::engine::context::Settings;
use crate::engine::entry::{Registry, Requests};
use crate::engine::setup::{self, Plumbing, Shell};
use crate::runtime::api::Api;
use crate::runtime::events::EventRecorder;
use crate::runtime::informer::InformerOptions;
use crate::runtime::leader_election::fence::{Fence, FenceControl, fence};
use crate::runtime::leader_election::history::OnSetBack;
use crate::runtime::leader_election::lease::{self, Election, Tools, Watchdog};
use crate::runtime::lost_history::LostHistory;
use crate::runtime::outage::Outage;
use crate::runtime::rate_limiter::RateLimiter;

/// Requests to the Lease, per second and at once: client-go's defaults. A leader needs one in two seconds.
const ELECTION_RATE: (f64, u32) = (5.0, 10);

impl Controllers {
    /// Builds the daemon's controllers and wires them to the informers.
    pub fn new(config: ControllerConfig, parts: Parts) -> Self {
        Self::with(&registry::standard(), config, parts)
    }

    /// The same for the kinds and controllers of this registry.
    pub fn with(registry: &Registry, config: ControllerConfig, parts: Parts) -> Self {
        let (control, fence) = fence();
        let fence = parts.election.is_some().then_some(fence);
        let outage = Outage::default();
        let apis = Apis { config: &config, parts: &parts, fence: fence.as_ref(), outage: outage.clone() };
        let draining = CancellationToken::new();
        // Events and watches have a rate limiter of their own each: many events delay no other write,
        // and a watch that reopens does not queue behind a burst of writes.
        let (recorder, events) = EventRecorder::new(apis.fenced(), parts.clock.clone(), parts.seed);
        let lost_history = LostHistory::default();
        let plumbing = Plumbing {
            clock: parts.clock.clone(),
            metrics: parts.metrics.clone(),
            recorder: recorder.clone(),
            draining: draining.clone(),
            // Each controller has a rate limiter of its own: a large scale-up delays no write of another controller.
            api: &|entry| apis.fenced_and_retrying(entry.requests, &draining),
            watch_api: apis.plain(),
            informers: InformerOptions {
                namespace: config.scope.namespace.clone(),
                seed: parts.seed,
                // An elected process brings its caches up to date first; without an election the first list is acted
                // on.
                may_lag: parts.election.is_some(),
                relists_after_breaks: config.relists_after_breaks,
                lost_history: lost_history.clone(),
                ..InformerOptions::default()
            },
            switched_off: config.enabled.switched_off(),
        };
        let settings = Settings {
            scope: config.scope.clone(),
            field_manager: config.field_manager.clone(),
            failed_pod_backoff: config.failed_pod_backoff,
            rollout_policy: config.rollout_policy,
            namespace_deletion_delay: config.namespace_deletion_delay,
            max_endpoints_per_slice: config.max_endpoints_per_slice,
            endpoint_slice_updates_batch_period: config.endpoint_slice_updates_batch_period,
            endpoint_updates_batch_period: config.endpoint_updates_batch_period,
            mirroring_max_endpoints_per_subset: config.mirroring_max_endpoints_per_subset,
            mirroring_updates_batch_period: config.mirroring_updates_batch_period,
            deletes_leftover_endpoint_slices: config.deletes_leftover_endpoint_slices,
            resource_quota_sync_period: config.resource_quota_sync_period,
            terminated_pod_threshold: config.terminated_pod_threshold,
            node_limits: config.node_limits,
            time_zones: match parts.clock {
                Clock::System => jiff::tz::db().clone(),
                // The same on every machine.
                Clock::Virtual { .. } => TimeZoneDatabase::bundled(),
            },
            local_time_zone: config.local_time_zone.clone(),
            resources: config.garbage_resources.clone(),
            garbage_record: config
                .garbage_record
                .clone()
                .or_else(|| parts.election.as_ref().map(|candidacy| lease::key(&candidacy.options))),
            seed: parts.seed,
            relists_after_breaks: config.relists_after_breaks,
            root_ca: config.root_ca.clone(),
        };
        let Shell { context, informers, workers } = setup::build(registry, settings, plumbing);
        let (relisted, lost) = (informers.clone(), context.clone());
        let call = Box::new(move || {
            lost.history_lost();
            relisted.relist_all();
        });
        let on_set_back = OnSetBack { call, lost_history: lost_history.clone() };
        let election = parts.election.clone().zip(fence.clone());
        let election = election.map(|(candidacy, fence)| {
            stand(candidacy, &parts, outage, &recorder, control, fence, on_set_back)
        });
        let lease_thread = parts.election.as_ref().and_then(|candidacy| candidacy.thread.clone());
        let believes = election.is_none() || planted!("a new leader does not wait for its read barrier");
        let read_barriers = if believes { Vec::new() } else { informers.read_barriers() };
        let running =
            registry.controllers().iter().filter(|entry| config.enabled.runs(entry)).copied().collect();
        let barrier = context.shared_barrier();
        let kinds = WatchedKinds::new(&informers, registry, running, &read_barriers, barrier);
        Controllers {
            context,
            informers,
            workers: workers.into(),
            events,
            seed: parts.seed,
            config,
            election,
            lease_thread,
            fence,
            read_barriers,
            kinds: Arc::new(kinds),
        }
    }
}

/// Creates clients of the API server, each with a rate limiter of its own.
struct Apis<'a> {
    config: &'a ControllerConfig,
    parts: &'a Parts,
    fence: Option<&'a Fence>,
    outage: Outage,
}

impl Apis<'_> {
    fn plain(&self) -> Api {
        self.limited(Requests::AS_CONFIGURED)
    }

    fn limited(&self, requests: Requests) -> Api {
        let Parts { client, host, metrics, .. } = self.parts;
        let (qps, burst) = (self.config.qps * requests.qps, self.config.burst.saturating_mul(requests.burst));
        let rate_limiter = RateLimiter::new(qps, burst);
        Api::new(client.clone(), host, rate_limiter, metrics.clone()).sharing(self.outage.clone())
    }

    /// Writes only while this process leads.
    fn fenced(&self) -> Api {
        self.behind_the_fence(self.plain())
    }

    /// Retries after `Retry-After`, until the shutdown.
    fn fenced_and_retrying(&self, requests: Requests, draining: &CancellationToken) -> Api {
        self.behind_the_fence(self.limited(requests).retrying(draining.clone()))
    }

    fn behind_the_fence(&self, api: Api) -> Api {
        match self.fence {
            Some(fence) => api.fenced(fence.clone()),
            None => api,
        }
    }
}

fn stand(
    candidacy: Candidacy,
    parts: &Parts,
    outage: Outage,
    recorder: &EventRecorder,
    control: FenceControl,
    fence: Fence,
    on_set_back: OnSetBack,
) -> (Election, Watchdog) {
    let Candidacy { client, options, thread: _ } = candidacy;
    let (qps, burst) = ELECTION_RATE;
    let Parts { host, metrics, clock, seed, .. } = parts;
    let api = Api::new(client, host, RateLimiter::new(qps, burst), metrics.clone()).sharing(outage);
    let (clock, recorder, seed) = (clock.clone(), recorder.clone(), *seed);
    let tools = Tools { api, clock, recorder, control, seed, on_set_back };
    let election = Election::new(&options, tools);
    let watchdog = Watchdog::new(fence, &election, &options);
    (election, watchdog)
}
