//! The writes for one StatefulSet: its pods, their claims, and its revisions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ENTRY, StatefulSetController};
use crate::controllers::patch;
use crate::controllers::revisions::RevisionWrite;
use crate::engine::controller::Executed;
use crate::engine::error::SyncError;
use crate::engine::execute::{AT_ONCE, Written, first_open, path, raw};
use crate::model::statefulset::ClaimTemplate;
use crate::model::{
    ControllerRevision, Meta, PersistentVolumeClaim, Pod, Record, RevisionTemplate, StatefulSet, Template,
};
use crate::plan::EventNote;
use crate::plan::replicaset::slow_start::batch_of;
use crate::plan::revisions::{NewRevision, RevisionChange, next_collision};
use crate::plan::statefulset::body::{claim_body, pod_body};
use crate::plan::statefulset::claims::{ClaimPod, is_stale};
use crate::plan::statefulset::ordinals::{self, Ordinal};
use crate::plan::statefulset::revisions::{on_taken, revision_body, revision_of};
use crate::plan::statefulset::status::Outcome;
use crate::plan::statefulset::{ClaimChange, Deletion, NewPod, Plan, Reason, Write};
use crate::runtime::api::ApiError;
use crate::runtime::request::{self, PatchType};

impl StatefulSetController {
    /// Executes the plan for a StatefulSet, in order. After a request without an answer nothing further is sent. A refused
    /// one holds up what needs it: the revision all pods, another write those of its ordinal and step; where pods are
    /// created one by one, all that follows.
    pub(super) async fn carry_out(&self, set: &StatefulSet, plan: &Plan) -> Executed<Outcome> {
        for note in self.memory.news(&set.meta.uid, &plan.notes) {
            self.context.record_event(ENTRY.component, set, note.event);
        }
        let mut outcome = Outcome::default();
        let mut failed: BTreeSet<Ordinal> = BTreeSet::new();
        let mut first = None;
        for write in &plan.writes {
            let is_held = outcome.without_revision || (first.is_some() && !set.is_parallel);
            let is_failed = write.ordinal().is_some_and(|ordinal| failed.contains(&ordinal));
            if !write.stands_alone() && (is_held || is_failed) {
                continue;
            }
            let Err(error) = self.write(set, write, &mut outcome, &failed).await else { continue };
            if !error.is_refusal() {
                return Executed::new(outcome, Some(error));
            }
            failed.extend(write.ordinal());
            first.get_or_insert(error);
        }
        Executed::new(outcome, first)
    }

    async fn write(
        &self,
        set: &StatefulSet,
        write: &Write,
        outcome: &mut Outcome,
        failed: &BTreeSet<Ordinal>,
    ) -> Result<(), SyncError> {
        match write {
            // An earlier reply may have been late: what belongs to nobody any more is not adopted for one that is gone.
            Write::AdoptPod(_) | Write::AdoptRevision(_) if !self.may_continue(set) => {
                Err(SyncError::Overtaken { what: format!("adopting for StatefulSet {}", set.meta.key) })
            }
            Write::AdoptPod(pod) => self.context.adopt(set, &**pod).await,
            Write::ReleasePod(pod) => self.context.release(set, &**pod).await,
            Write::AdoptRevision(revision) => self.context.adopt(set, &**revision).await,
            Write::ChangeRevision(revision, change) => {
                let changed = self.change_revision(set, revision, change).await;
                outcome.without_revision = changed.is_err();
                changed
            }
            Write::DeleteRevision(revision) => {
                let exactly = json!({
                    "uid": revision.meta.uid,
                    "resourceVersion": revision.meta.resource_version.to_string(),
                });
                let what = || format!("deleting ControllerRevision {}", revision.meta.key);
                let deleted = self.context.delete_while(set, &**revision, exactly, || true).await;
                deleted.map_err(|error| SyncError::api(what(), error))
            }
            Write::CreateRevision(new) => self.create_revision(set, new, outcome).await,
            Write::SetOwners(change) => self.set_owners(set, change).await,
            Write::Label(pod, labels) => {
                let changed = self.change(set, &**pod, &patch::labels(&pod.meta, labels)).await;
                self.tell(set, "Update", &pod.meta.key.name, changed.as_ref().err());
                changed
            }
            Write::CreateClaims(new) => self.create_claims(set, new).await.map_err(|failed| failed.error),
            Write::CreatePods(pods) => {
                let pods = pods.iter().filter(|new| !failed.contains(&new.ordinal)).cloned().collect();
                self.create_pods(set, pods).await
            }
            Write::DeletePods(deletions) => {
                let deletions = deletions.iter().filter(|deletion| !failed.contains(&deletion.ordinal));
                self.delete_pods(set, deletions.cloned().collect()).await
            }
        }
    }

    /// Changes fields of an object of the StatefulSet.
    async fn change<T: Record>(&self, set: &StatefulSet, object: &T, body: &Value) -> Result<(), SyncError> {
        let what = || format!("changing {} {}", T::RESOURCE.kind, object.meta().key);
        let target = path(T::RESOURCE, object.meta());
        let version = self.context.patch(set, what, &target, PatchType::Merge, body).await?;
        self.context.expect_write(set, T::RESOURCE, version);
        Ok(())
    }

    /// Raises the number of a revision, if its template is still the current one: a process whose cache lags would
    /// otherwise raise that of another one for as long, and a second process with the newer cache this one.
    async fn change_revision(
        &self,
        set: &StatefulSet,
        revision: &ControllerRevision,
        change: &RevisionChange,
    ) -> Result<(), SyncError> {
        let (component, owners, name) = (ENTRY.component, &*self.sets, &revision.meta.key.name);
        RevisionWrite { owner: set, owners, component, name }.read_owner(&self.context).await?;
        self.change(set, revision, &patch::change_revision(&revision.meta, change)).await
    }

    async fn set_owners(&self, set: &StatefulSet, change: &ClaimChange) -> Result<(), SyncError> {
        let ClaimChange { claim, ordinal, owners, goes_with_pod, completes } = change;
        let changed = self.change(set, &**claim, &patch::owners(&claim.meta, owners)).await;
        match (&changed, completes) {
            (Ok(()), Some(pod)) => self.tell(set, "Update", pod, None),
            (Err(error @ SyncError::Refused { .. }), _) => {
                let pod = format!("{}-{ordinal}", set.meta.key.name);
                let claim = &claim.meta.key.name;
                let reason = error.reason();
                let reason = format!("could not update claim {claim} for delete policy ownerRefs: {reason}");
                self.tell_refusal(set, "Update", &pod, &reason);
            }
            _ => {}
        }
        changed?;
        self.context.recreate_guard.created(&set.meta, Instant::now());
        if *goes_with_pod {
            let (claim, set_name) = (&claim.meta.key.name, &set.meta.key.name);
            // More replicas never bring an ordinal below the first one back.
            let unless = match i64::from(*ordinal) < i64::from(set.start) {
                true => format!("spec.ordinals.start falls to {ordinal}"),
                false => "replicas rises".to_owned(),
            };
            let message = format!(
                "PersistentVolumeClaim {claim} will be deleted with Pod {set_name}-{ordinal}, unless {unless} before the \
                 pod is gone"
            );
            self.context.record_event(ENTRY.component, set, EventNote::normal("ClaimGoesWithPod", message));
        }
        Ok(())
    }

    /// Whether to continue: the cache still shows the StatefulSet as it was at the decision, and the daemon is not
    /// shutting down.
    fn may_continue(&self, set: &StatefulSet) -> bool {
        self.context.is_unchanged(&self.sets, &set.meta)
    }

    /// Creates the revision of the current template.
    async fn create_revision(
        &self,
        set: &StatefulSet,
        new: &NewRevision,
        outcome: &mut Outcome,
    ) -> Result<(), SyncError> {
        let (component, owners) = (ENTRY.component, &*self.sets);
        let creation = RevisionWrite { owner: set, owners, component, name: &new.name };
        let count = |of: &StatefulSet| of.status.collision_count;
        let collided =
            |fresh: &StatefulSet| next_collision((&set.meta, count(set)), (&fresh.meta, count(fresh)));
        let body = |annotations: &_| revision_body(set, new, annotations);
        let taken = |existing: Option<&_>| on_taken(set, existing);
        let created = creation.create(&self.context, body, taken, collided).await;
        created.map_err(|(error, collision)| {
            outcome.collision = collision;
            outcome.without_revision = true;
            error
        })
    }

    /// Records the event about a write to a pod, in upstream's words.
    fn tell(&self, set: &StatefulSet, verb: &str, pod: &str, error: Option<&SyncError>) {
        match error {
            None => {
                let succeeded = match verb {
                    "Create" => "SuccessfulCreate",
                    "Update" => "SuccessfulUpdate",
                    _ => "SuccessfulDelete",
                };
                let message = format!("{verb} Pod {pod} in StatefulSet {} successful", set.meta.key.name);
                self.context.record_event(ENTRY.component, set, EventNote::normal(succeeded, message));
            }
            Some(error @ SyncError::Refused { .. }) => self.tell_refusal(set, verb, pod, &error.reason()),
            Some(_) => {}
        }
    }

    fn tell_refusal(&self, set: &StatefulSet, verb: &str, pod: &str, reason: &str) {
        let failed = match verb {
            "Create" => "FailedCreate",
            "Update" => "FailedUpdate",
            _ => "FailedDelete",
        };
        let message = format!("{verb} Pod {pod} in StatefulSet {} failed error: {reason}", set.meta.key.name);
        self.context.record_event(ENTRY.component, set, EventNote::warning(failed, message));
    }

    /// Creates pods in slow-start batches. After a refusal the current batch is completed, and no other is sent.
    async fn create_pods(&self, set: &StatefulSet, pods: Vec<NewPod>) -> Result<(), SyncError> {
        let former = match pods.iter().find(|new| !new.is_updated) {
            Some(new) => Some(self.template_of(set, &new.revision).await?),
            None => None,
        };
        let stopped = AtomicBool::new(false);
        let batch_of = |new: &NewPod| batch_of(i64::from(new.ordinal).abs_diff(i64::from(set.start)));
        let mut left = pods.into_iter().peekable();
        while let Some(batch) = left.peek().map(batch_of) {
            let batch: Vec<NewPod> =
                std::iter::from_fn(|| left.next_if(|new| batch_of(new) == batch)).collect();
            let results: Vec<Result<(), SyncError>> = futures::stream::iter(batch)
                .take_while(|_| std::future::ready(!stopped.load(Relaxed)))
                .map(|new| {
                    let (former, stopped) = (&former, &stopped);
                    async move {
                        let template = former.as_ref().filter(|_| !new.is_updated).unwrap_or(&set.template);
                        let created = self.create_pod(set, template, &new).await;
                        if created.as_ref().is_err_and(|error| !error.is_refusal()) {
                            stopped.store(true, Relaxed);
                        }
                        created
                    }
                })
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            if let Some(error) = first_open(results.into_iter().filter_map(Result::err)) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The template of a revision.
    async fn template_of(&self, set: &StatefulSet, revision: &str) -> Result<Template, SyncError> {
        let collection = ControllerRevision::RESOURCE.path(Some(&set.meta.key.namespace));
        let revision: RevisionTemplate = self.context.read(set, &format!("{collection}/{revision}")).await?;
        Ok(revision.template)
    }

    /// Creates the missing claims of a pod, and reads those that a policy may delete.
    /// A claim that is refused does not keep the others from being created.
    async fn create_claims(&self, set: &StatefulSet, new: &NewPod) -> Result<(), ClaimFailure> {
        let namespace = &set.meta.key.namespace;
        let collection = PersistentVolumeClaim::RESOURCE.path(Some(namespace));
        let json =
            |error| SyncError::Json { what: format!("creating the claims of pod {}", new.name), error };
        let failed = |verb, claim: &str| {
            let doing = format!("failed to {verb} PVC {claim}");
            move |error: SyncError| ClaimFailure { text: format!("{doing}: {}", error.reason()), error }
        };
        let mut refusals = Vec::new();
        let templates = set.claim_templates.all().map_err(json).map_err(failed("create", ""))?;
        for template in new.missing_claims.iter().filter_map(|at| templates.get(*at)) {
            let claim = ordinals::claim_name(template.name(), set, new.ordinal);
            match self.create_claim(set, template, new, &collection).await.map_err(failed("create", &claim)) {
                Ok(()) => {}
                Err(refused) if refused.error.is_refusal() => refusals.push(refused),
                Err(failure) => return Err(failure),
            }
        }
        if let Some(refused) = ClaimFailure::of_all(refusals) {
            return Err(refused);
        }
        for claim in &new.claims_to_read {
            let what = || format!("creating pod {namespace}/{}", new.name);
            let read = self.context.read(set, &format!("{collection}/{claim}")).await;
            let fresh: PersistentVolumeClaim = read.map_err(failed("retrieve", claim))?;
            let of = ClaimPod { name: &new.name, pod: None, is_condemned: false };
            if fresh.meta.is_deleting() || is_stale(set, &fresh, of) {
                let version = fresh.meta.resource_version;
                self.context.expect_write(set, PersistentVolumeClaim::RESOURCE, version);
                return Err(failed("use", claim)(SyncError::Overtaken { what: what() }));
            }
        }
        Ok(())
    }

    async fn create_claim(
        &self,
        set: &StatefulSet,
        template: &ClaimTemplate,
        new: &NewPod,
        collection: &str,
    ) -> Result<(), SyncError> {
        let what = || format!("creating the claim {} of pod {}", template.name(), new.name);
        let json = |error| SyncError::Json { what: what(), error };
        let (claim, body) = claim_body(set, template, new).map_err(json)?;
        let body = raw(body).map_err(json)?;
        let request = request::post(collection, &[self.context.field_manager()], &body)
            .map(request::metadata_only)
            .map_err(json)?;
        let still_wanted = || self.may_continue(set);
        let (set_name, pod) = (&set.meta.key.name, &new.name);
        let error = match self.context.api_for(set).call_while::<Written>(request, still_wanted).await {
            Ok(written) => {
                let version = written.resource_version().unwrap_or(0);
                self.context.expect_write(set, PersistentVolumeClaim::RESOURCE, version);
                let message = format!("Create Claim {claim} Pod {pod} in StatefulSet {set_name} success");
                self.context.record_event(
                    ENTRY.component,
                    set,
                    EventNote::normal("SuccessfulCreate", message),
                );
                return Ok(());
            }
            Err(error) => error,
        };
        if error.is_already_exists() {
            // An earlier request whose reply was lost, or somebody's own. The plan judges it as the cache shows it.
            let path = format!("{collection}/{claim}");
            let there: PersistentVolumeClaim = self.context.read(set, &path).await?;
            let version = there.meta.resource_version;
            self.context.expect_write(set, PersistentVolumeClaim::RESOURCE, version);
            return Err(SyncError::Conflict { what: what(), error });
        }
        let error = SyncError::creation(what(), error);
        if let SyncError::Refused { .. } = &error {
            let message = format!(
                "Create Claim {claim} for Pod {pod} in StatefulSet {set_name} failed error: {}",
                error.reason()
            );
            self.context.record_event(ENTRY.component, set, EventNote::warning("FailedCreate", message));
        }
        Err(error)
    }

    async fn create_pod(
        &self,
        set: &StatefulSet,
        template: &Template,
        new: &NewPod,
    ) -> Result<(), SyncError> {
        let Meta { uid, key, .. } = &set.meta;
        let what = || format!("creating pod {}/{}", key.namespace, new.name);
        let json = |error| SyncError::Json { what: what(), error };
        let still_wanted = || self.may_continue(set);
        if let Err(ClaimFailure { text, error }) = self.create_claims(set, new).await {
            if error.is_refusal() {
                self.tell_refusal(set, "Create", &new.name, &text);
            }
            return Err(error);
        }
        if !still_wanted() {
            return Ok(());
        }
        let collection = Pod::RESOURCE.path(Some(&key.namespace));
        let body = pod_body(set, template, new).and_then(raw).map_err(json)?;
        let request = request::post(&collection, &[self.context.field_manager()], &body)
            .map(request::metadata_only)
            .map_err(json)?;
        let error = match self.context.api_for(set).call_while::<Written>(request, still_wanted).await {
            Ok(written) => {
                self.pod_created(set, &new.name, written.resource_version().unwrap_or(0));
                return Ok(());
            }
            // A change has put the key into the queue; a daemon that shuts down starts nothing new.
            Err(ApiError::NotSent(_)) if !still_wanted() => return Ok(()),
            Err(error) => error,
        };
        if !error.is_already_exists() {
            let error = SyncError::creation(what(), error);
            if error.may_have_happened() {
                self.context.in_doubt_writes.created(uid, new.name.to_string());
            }
            self.tell(set, "Create", &new.name, Some(&error));
            return Err(error);
        }
        match self.context.read::<Pod>(set, &format!("{collection}/{}", new.name)).await {
            Ok(there) => {
                let version = there.meta.resource_version;
                let is_wanted = set.controls(&there.meta) && revision_of(&there) == &*new.revision;
                if is_wanted && !there.meta.is_deleting() {
                    self.pod_created(set, &new.name, version);
                    return Ok(());
                }
                self.context.expect_write(set, Pod::RESOURCE, version);
                Err(SyncError::Conflict { what: what(), error })
            }
            Err(SyncError::Gone { .. }) => Err(SyncError::Conflict { what: what(), error }),
            Err(unread) => {
                self.context.in_doubt_writes.created(uid, new.name.to_string());
                Err(unread)
            }
        }
    }

    /// A pod is known to have been created.
    pub(super) fn pod_created(&self, set: &StatefulSet, name: &Arc<str>, version: u64) {
        let meta = &set.meta;
        self.memory.created(meta, name, self.context.now());
        self.context.expect_write(set, Pod::RESOURCE, version);
        self.context.recreate_guard.created(meta, Instant::now());
        self.context.metrics.workloads.pods_created.inc();
        tracing::debug!(stateful_set = %meta.key, pod = %name, "created a pod");
        self.tell(set, "Create", name, None);
    }

    /// Deletes pods in slow-start batches, each with the observed UID as precondition.
    async fn delete_pods(&self, set: &StatefulSet, deletions: Vec<Deletion>) -> Result<(), SyncError> {
        let deleted: Vec<Result<(), SyncError>> = futures::stream::iter(deletions)
            .map(|deletion| self.delete_pod(set, deletion))
            .buffered(AT_ONCE)
            .collect()
            .await;
        first_open(deleted.into_iter().filter_map(Result::err)).map_or(Ok(()), Err)
    }

    /// A pod was deleted, or may have been: one that has ended counts towards the backoff of its ordinal.
    fn deleted(&self, set: &StatefulSet, deletion: &Deletion) {
        if deletion.reason == Reason::Ended {
            self.memory.ended_pod_deleted(&set.meta, &deletion.pod.meta.key.name, self.context.now());
        }
    }

    async fn delete_pod(&self, set: &StatefulSet, deletion: Deletion) -> Result<(), SyncError> {
        let Deletion { pod, reason, .. } = &deletion;
        let (owner, name) = (&set.meta.uid, &pod.meta.key.name);
        let still_wanted = || self.may_continue(set);
        if !still_wanted() {
            return Ok(());
        }
        // That no container has started, or that it is not ready, must still hold.
        let exactly = match reason {
            Reason::NeverStarted | Reason::Broken => {
                json!({"uid": pod.meta.uid, "resourceVersion": pod.meta.resource_version.to_string()})
            }
            Reason::Condemned | Reason::Ended | Reason::Outdated => json!({"uid": pod.meta.uid}),
        };
        let Err(error) = self.context.delete_while(set, &**pod, exactly, still_wanted).await else {
            self.deleted(set, &deletion);
            self.context.metrics.workloads.pods_deleted.inc();
            tracing::debug!(stateful_set = %set.meta.key, pod = %name, ?reason, "deleted a pod");
            self.tell(set, "Delete", name, None);
            return Ok(());
        };
        if matches!(error, ApiError::NotSent(_)) && !still_wanted() {
            return Ok(());
        }
        let error = SyncError::api(format!("deleting pod {}", pod.meta.key), error);
        if error.may_have_happened() {
            self.context.in_doubt_writes.deleted(owner, pod.meta.key.clone(), pod.meta.uid.clone());
            self.deleted(set, &deletion);
        }
        self.tell(set, "Delete", name, Some(&error));
        Err(error)
    }
}

/// Why a pod has not got its claims.
struct ClaimFailure {
    /// The failure, in upstream's words.
    text: String,
    error: SyncError,
}

impl ClaimFailure {
    /// Several, as Go prints an aggregate.
    fn of_all(failures: Vec<ClaimFailure>) -> Option<ClaimFailure> {
        let texts: Vec<&str> = failures.iter().map(|failure| &*failure.text).collect();
        let text = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let error = failures.into_iter().next()?.error;
        Some(ClaimFailure { text, error })
    }
}
