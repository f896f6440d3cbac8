//! ReplicaSets that are stored with another template than they were created with.
//!
//! A mutating webhook that changes every new ReplicaSet makes upstream create ReplicaSets for ever: the one just
//! created does not match the Deployment, its name is taken, the next name gets the next ReplicaSet
//! (kubernetes#57167, #58032). Here the ReplicaSets created for the current template are counted by their
//! names. After three the Deployment stops, reports why, and retries with a growing delay.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::ReplicaSets;
use super::new_replica_set::replica_set_name;
use crate::model::Deployment;
use crate::plan::replicaset::status::until;

/// How many ReplicaSets may be created for one template in a row.
pub const MAX_CREATES: usize = 3;

/// The wait after the third; it doubles with each further one, up to [`MAX_WAIT`].
const MIN_WAIT: SignedDuration = SignedDuration::from_mins(10);

/// The longest wait.
const MAX_WAIT: SignedDuration = SignedDuration::from_hours(4);

/// Why no further ReplicaSet is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateLimit {
    /// The text for the condition and the event.
    pub message: String,
    /// How long the next creation waits.
    pub wait: Duration,
}

/// Whether the creation of a ReplicaSet for the current template has to wait.
pub fn check(deployment: &Deployment, replica_sets: &ReplicaSets, now: Timestamp) -> Option<CreateLimit> {
    if replica_sets.new.is_some() {
        return None;
    }
    // Each collision count gives one name; no more names than ReplicaSets are compared.
    let latest = deployment.status.collision_count.unwrap_or(0);
    let earliest = latest.saturating_sub(i32::try_from(replica_sets.old.len()).unwrap_or(i32::MAX));
    let counts = (earliest.max(1)..=latest).map(Some).chain([None]);
    let names: Vec<String> = counts
        .map(|count| replica_set_name(&deployment.meta.key.name, &deployment.template.hash(count)))
        .collect();
    let created: Vec<Timestamp> = replica_sets
        .old
        .iter()
        .filter(|replica_set| names.iter().any(|name| *name == *replica_set.meta.key.name))
        .map(|replica_set| replica_set.meta.created)
        .collect();
    let beyond = u32::try_from(created.len().checked_sub(MAX_CREATES)?).unwrap_or(u32::MAX);
    let wait = MIN_WAIT.saturating_mul(1 << beyond.min(16)).min(MAX_WAIT);
    let again = created.into_iter().max()?.saturating_add(wait).ok()?;
    (again > now).then(|| CreateLimit {
        message: format!(
            "The API server stored the last {} new ReplicaSets with a changed template, probably because of a \
             mutating webhook for ReplicaSets. Windlass creates the next one at {again}.",
            MAX_CREATES + beyond as usize
        ),
        wait: until(again, now),
    })
}
