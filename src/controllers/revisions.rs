//! Writes of ControllerRevisions, for the owners that have a history of them.

use std::collections::BTreeMap;

use crate::engine::context::Context;
use crate::engine::error::SyncError;
use crate::engine::execute::{Written, path, raw};
use crate::model::{Annotated, ControllerRevision, Meta, Record};
use crate::plan::EventNote;
use crate::plan::revisions::Taken;
use crate::runtime::request;
use crate::runtime::store::Store;

/// A ControllerRevision to write.
pub struct RevisionWrite<'a, T: Record> {
    /// The owner, as it was at the decision.
    pub owner: &'a T,
    /// The cache of the owners.
    pub owners: &'a Store<T>,
    /// The `source.component` of its events.
    pub component: &'static str,
    /// The name of the revision.
    pub name: &'a str,
}

impl<T: Record> RevisionWrite<'_, T> {
    fn what(&self) -> String {
        format!("writing ControllerRevision {}/{}", self.owner.meta().key.namespace, self.name)
    }

    /// The owner in the API server, with its annotations.
    ///
    /// # Errors
    /// A conflict where its identity or its generation has changed.
    pub async fn read_owner(&self, context: &Context) -> Result<Annotated<T>, SyncError> {
        let Meta { key, uid, generation, .. } = self.owner.meta();
        let gone = || context.expectations.expect_deletion(uid, T::RESOURCE, key, uid, None);
        let fresh = context.read(self.owner, &path(T::RESOURCE, self.owner.meta())).await;
        let fresh: Annotated<T> = fresh.inspect_err(|error| {
            if let SyncError::Gone { .. } = error {
                gone();
            }
        })?;
        let meta = fresh.meta();
        match meta.uid == *uid {
            true if !meta.is_deleting() && meta.generation == *generation => return Ok(fresh),
            true => context.expect_write(self.owner, T::RESOURCE, meta.resource_version),
            false => gone(),
        }
        Err(SyncError::Overtaken { what: self.what() })
    }

    /// Creates it, with a body made of the owner's annotations. A lost reply needs no read: the next request has the same
    /// name, and resolves it. Where the name is taken, `on_taken` decides; after a collision `collided` gives the count
    /// to report by a fresh read of the owner, or `None` where the cache was behind.
    ///
    /// # Errors
    /// When it was not created. With a count where its name is taken for good.
    pub async fn create(
        &self,
        context: &Context,
        body: impl FnOnce(&BTreeMap<String, String>) -> Result<Vec<u8>, serde_json::Error>,
        on_taken: impl FnOnce(Option<&ControllerRevision>) -> Taken,
        collided: impl FnOnce(&T) -> Option<i32>,
    ) -> Result<(), (SyncError, Option<i32>)> {
        let without_count = |error: SyncError| (error, None);
        let json = |error| (SyncError::Json { what: self.what(), error }, None);
        let fresh = self.read_owner(context).await.map_err(without_count)?;
        let body = body(&fresh.annotations).and_then(raw).map_err(json)?;
        let collection = ControllerRevision::RESOURCE.path(Some(&self.owner.meta().key.namespace));
        let request = request::post(&collection, &[context.field_manager()], &body)
            .map(request::metadata_only)
            .map_err(json)?;
        let still_wanted = || context.is_unchanged(self.owners, self.owner.meta());
        let error = match context.api_for(self.owner).call_while::<Written>(request, still_wanted).await {
            Ok(written) => {
                let version = written.resource_version().unwrap_or(0);
                context.expect_write(self.owner, ControllerRevision::RESOURCE, version);
                return Ok(());
            }
            Err(error) => error,
        };
        if !error.is_already_exists() {
            let error = SyncError::creation(self.what(), error);
            if let SyncError::Refused { .. } = &error {
                let note = EventNote::warning("FailedCreate", format!("Error creating: {}", error.reason()));
                context.record_event(self.component, self.owner, note);
            }
            return Err(without_count(error));
        }
        let existing = context.read(self.owner, &format!("{collection}/{}", self.name)).await;
        let existing: Option<ControllerRevision> = match existing {
            Ok(existing) => Some(existing),
            Err(SyncError::Gone { .. }) => None,
            Err(error) => return Err(without_count(error)),
        };
        if let Some(existing) = &existing {
            let version = existing.meta.resource_version;
            context.expect_write(self.owner, ControllerRevision::RESOURCE, version);
        }
        match on_taken(existing.as_ref()) {
            Taken::Use => Ok(()),
            Taken::PlanAgain => Err(without_count(SyncError::Conflict { what: self.what(), error })),
            Taken::Collision => {
                let fresh = self.read_owner(context).await.map_err(without_count)?;
                let count = collided(&fresh.object);
                if count.is_some() {
                    return Err((SyncError::NameTaken { name: self.name.to_owned() }, count));
                }
                context.expect_write(self.owner, T::RESOURCE, fresh.meta().resource_version);
                Err(without_count(SyncError::Conflict { what: self.what(), error }))
            }
        }
    }
}
