//! The gate: may a controller decide about an object, and may it write?
//!
//! Every reason to wait, or to read past the caches first, is an answer here, in the order in which it is asked:
//!
//! | Question | Reason | Answer |
//! |---|---|---|
//! | [`Gate::enter`] | a cache is not complete | wait; or read the object and its children past the caches, if it shows by itself that work is left |
//! | | there is an orphan to adopt | read the object: only one that still exists adopts (S15) |
//! | [`Gate::before_decision`] | the API server has lost the history that a cache shows | wait for the new list |
//! | | a cache is behind our own writes (S23) | wait for it |
//! | [`Gate::before_write`] | the plan cannot be executed on an incomplete cache | wait |
//! | | a cache may be older than this process' leadership | read the object and its children past the caches |
//! | | another process may have counted what the plan counts | read the object and its children past the caches |
//! | | children were created for the same generation a moment ago | read the object ([`super::recreate_guard`]) |
//!
//! Writes whose replies were lost are resolved before ([`Controller::resolve`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::controller::Controller;
use super::driver::Driver;
use super::error::SyncError;
use crate::model::{Meta, ObjectKey, Record, Resource};
use crate::runtime::lazy_read_barrier::CacheState;
use crate::runtime::worker::Next;

/// How often a key looks whether the caches are listed anew after the API server has lost its history.
const LISTED_ANEW: Duration = Duration::from_secs(1);

/// An answer of the gate.
pub(super) enum Pass {
    /// Go on.
    Open,
    /// Not now.
    Wait(Next),
    /// Something was read past the caches: decide again, on what the caches show now.
    Again,
}

/// The gate, for one sync of an object. It remembers what this sync has read past the caches.
pub(super) struct Gate<'a, C: Controller> {
    driver: &'a Driver<C>,
    is_incomplete: bool,
    may_adopt: bool,
    has_asked: bool,
}

impl<'a, C: Controller> Gate<'a, C> {
    pub(super) fn new(driver: &'a Driver<C>) -> Self {
        let context = &driver.context;
        let state = context.barrier.cache_state(driver.entry.watches, &context.caches);
        Gate { driver, is_incomplete: state == CacheState::Incomplete, may_adopt: false, has_asked: false }
    }

    /// Whether the object was read, and may adopt.
    pub(super) fn may_adopt(&self) -> bool {
        self.may_adopt
    }

    /// Reads what must be read before any decision.
    ///
    /// # Errors
    /// When the API server cannot be read.
    pub(super) async fn enter(&mut self, object: &C::Object) -> Result<Pass, SyncError> {
        let Driver { controller, context, entry, .. } = self.driver;
        if self.is_incomplete {
            let awaited = context.barrier.cache_state(awaited_kinds(self.driver), &context.caches);
            if awaited == CacheState::Incomplete || !controller.is_unsettled(object) {
                return Ok(Pass::Wait(self.driver.wait_for_caches(object.meta(), entry.watches)));
            }
            if !context.was_read(&object.meta().uid) && !self.driver.read_past_caches(object).await? {
                return Ok(Pass::Wait(Next::Settled));
            }
        }
        self.has_asked = controller.wants_to_adopt(object);
        self.may_adopt = self.has_asked && context.still_exists(object).await?;
        Ok(Pass::Open)
    }

    /// The object as the caches show it now, since the reads took time; or when to look again.
    pub(super) fn before_decision(&self, of: &Meta) -> Result<Arc<C::Object>, Next> {
        let Driver { context, entry, objects, parked_keys, .. } = self.driver;
        let now = objects.get(&of.key).filter(|now| now.meta().uid == of.uid);
        let object = now.ok_or(Next::Settled)?;
        if context.barrier.is_history_lost(entry.watches, &context.caches) {
            return Err(Next::After(LISTED_ANEW));
        }
        if let Some(wait) = context.behind(&*object, parked_keys) {
            let Resource { group, plural, .. } = C::Object::RESOURCE;
            if let Some(skips) = entry.stale_skips {
                skips(context.metrics()).with_label_values(&[group, plural]).inc();
            }
            return Err(wait);
        }
        Ok(object)
    }

    /// Whether a plan may be carried out.
    ///
    /// # Errors
    /// When the API server cannot be read.
    pub(super) async fn before_write(
        &mut self,
        object: &C::Object,
        plan: &C::Plan,
    ) -> Result<Pass, SyncError> {
        let Driver { controller, context, entry, .. } = self.driver;
        if controller.writes(plan) {
            if self.is_incomplete && !controller.may_run_on_incomplete_caches(plan) {
                return Ok(Pass::Wait(self.driver.wait_for_caches(object.meta(), entry.watches)));
            }
            let pass = self.driver.before_status_write(object).await?;
            if let Pass::Again = pass {
                // That may have taken long, and whether the owner is still there must be the latest news.
                self.may_adopt = self.may_adopt && context.still_exists(object).await?;
            }
            if !matches!(pass, Pass::Open) {
                return Ok(pass);
            }
        }
        if controller.may_count_again(object, plan) {
            let goes_on = self.driver.read_past_caches(object).await?;
            controller.was_read(object);
            return Ok(if goes_on { Pass::Again } else { Pass::Wait(Next::Settled) });
        }
        let repeats = || context.recreate_guard.was_just_created(object.meta(), Instant::now());
        if self.has_asked || !controller.creates(plan) || !repeats() {
            return Ok(Pass::Open);
        }
        context.still_exists(object).await?;
        self.has_asked = true;
        Ok(Pass::Again)
    }
}

impl<C: Controller> Driver<C> {
    /// Whether the caches can be relied on for a write: they show the state at the election, or the object and its
    /// children were read past them since.
    ///
    /// # Errors
    /// When the API server cannot be read.
    pub(super) async fn before_status_write(&self, object: &C::Object) -> Result<Pass, SyncError> {
        let Driver { context, entry, .. } = self;
        let is_current =
            |kinds: &[Resource]| context.barrier.cache_state(kinds, &context.caches) == CacheState::Current;
        let awaited = awaited_kinds(self);
        if is_current(entry.watches) {
            return Ok(Pass::Open);
        }
        if !is_current(awaited) {
            return Ok(Pass::Wait(self.wait_for_caches(object.meta(), awaited)));
        }
        if context.was_read(&object.meta().uid) {
            return Ok(Pass::Open);
        }
        let goes_on = self.read_past_caches(object).await?;
        Ok(if goes_on { Pass::Again } else { Pass::Wait(Next::Settled) })
    }

    /// Reads an object, and what it owns, past the caches. Whether to go on then: after a request to stop, a sync that
    /// has written nothing yet leaves it to the next leader.
    async fn read_past_caches(&self, object: &C::Object) -> Result<bool, SyncError> {
        let Driver { controller, context, .. } = self;
        context.read_past_caches(object, &controller.children(object)).await?;
        Ok(!context.draining().is_cancelled())
    }

    fn wait_for_caches(&self, object: &Meta, kinds: &[Resource]) -> Next {
        self.context.wait_for_caches(&object.key, kinds, &self.parked_keys)
    }
}

/// When to look again at what is left of an object that does not exist; `None` if the caches can be relied on.
pub(super) fn before_clean_up<C: Controller>(driver: &Driver<C>, key: &ObjectKey) -> Option<Next> {
    let Driver { context, entry, parked_keys, .. } = driver;
    if context.barrier.is_history_lost(entry.watches, &context.caches) {
        return Some(Next::After(LISTED_ANEW));
    }
    let is_current = context.barrier.cache_state(entry.watches, &context.caches) == CacheState::Current;
    (!is_current).then(|| context.wait_for_caches(key, entry.watches, parked_keys))
}

/// The kinds whose caches a controller waits for instead of reading past them.
pub(super) fn awaited_kinds<C: Controller>(driver: &Driver<C>) -> &'static [Resource] {
    C::AWAITED_KINDS.unwrap_or(driver.entry.watches)
}
