//! The record of owners that were let go beside an API that could not be read: an annotation of the Lease of the election, since
//! a process that forgot them would delete what refers to them once that API can be read again.
//!
//! It is written before the owner is let go, and read before anything is deleted. The Lease is the one object that every elected
//! process may write. Without an election, and where the Lease may not be written, a restart forgets these owners.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Collector;
use crate::engine::error::SyncError;
use crate::model::Uid;
use crate::runtime::api::ApiError;

/// The annotation: a JSON object of UIDs, each with the API groups that could not be read.
const ANNOTATION: &str = "windlass.dev/released-owners";

/// How long it may be, in bytes: all annotations of an object together may have 256 KiB. That is enough for 3,000 owners.
const LONGEST: usize = 200 << 10;

/// The pause before the record is read again after a failure.
const PAUSE: Duration = Duration::from_secs(2);

/// How often it is computed again after a conflict: the election writes the Lease, too.
const ATTEMPTS: usize = 8;

/// The owners that the record names, if it is known; whoever holds it may write.
#[derive(Debug, Default)]
pub(super) struct Record(Mutex<Option<Owners>>);

type Owners = BTreeMap<Uid, BTreeSet<String>>;

/// The owners that the record on this Lease names. What is malformed names none.
fn decode(lease: &Value) -> Owners {
    let text = lease["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or("{}");
    let all: BTreeMap<String, BTreeSet<String>> = serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::warn!(%error, "the annotation {ANNOTATION} of the Lease is malformed and counts as empty");
        BTreeMap::new()
    });
    all.into_iter().map(|(uid, groups)| (Uid::new(&uid), groups)).collect()
}

/// Puts the record on a Lease; `None` if it would be too long.
fn encode(mut lease: Value, owners: &Owners) -> Option<Value> {
    let text: BTreeMap<String, _> = owners.iter().map(|(uid, groups)| (uid.to_string(), groups)).collect();
    let text = serde_json::to_string(&text).ok().filter(|text| text.len() <= LONGEST)?;
    if !lease["metadata"]["annotations"].is_object() {
        lease["metadata"]["annotations"] = json!({});
    }
    lease["metadata"]["annotations"][ANNOTATION] = if owners.is_empty() { Value::Null } else { text.into() };
    Some(lease)
}

/// Whether a request will not succeed later either: what is forbidden, or too large.
fn is_final(error: &ApiError) -> bool {
    error.status().is_some_and(|status| matches!(status.code, 400..=499) && !matches!(status.code, 409 | 429))
}

impl Collector {
    /// Takes over the record of the process before.
    pub(super) async fn recall(&self) {
        let Some(lease) = &self.context.settings().garbage_record else { return };
        loop {
            match self.read_lease(lease).await {
                Ok(found) => {
                    let owners = found.as_ref().map(decode).unwrap_or_default();
                    self.released.lock().adopt(owners.clone(), Instant::now());
                    *self.record.0.lock().await = Some(owners);
                    return;
                }
                Err(error) if is_final(&error) => {
                    tracing::warn!(
                        %lease, %error,
                        "the record of owners that were let go cannot be read; what refers to them is deleted"
                    );
                    return;
                }
                Err(error) => {
                    tracing::info!(%lease, %error, "nothing is deleted before the record on the Lease was read; retrying");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Writes the record, if it is not up to date.
    ///
    /// # Errors
    /// When that may succeed later.
    pub(super) async fn keep_record(&self) -> Result<(), SyncError> {
        let Some(lease) = &self.context.settings().garbage_record else { return Ok(()) };
        let mut known = self.record.0.lock().await;
        if known.as_ref() == Some(&self.released.lock().beside()) {
            return Ok(());
        }
        let what = || format!("keeping the record of owners that were let go on the Lease {lease}");
        let mut result = Ok(());
        for _ in 0..ATTEMPTS {
            result = match self.read_lease(lease).await {
                Ok(found) => {
                    let owners = {
                        let mut released = self.released.lock();
                        // Another process may have let go of others meanwhile.
                        released.adopt(found.as_ref().map(decode).unwrap_or_default(), Instant::now());
                        released.beside()
                    };
                    match encode(found.unwrap_or_default(), &owners) {
                        None => {
                            tracing::warn!(%lease, "too many owners were let go; a restart forgets the last of them");
                            return Ok(());
                        }
                        Some(object) => self.write_lease(lease, object).await.map(|()| {
                            self.released.lock().is_recorded();
                            *known = Some(owners);
                        }),
                    }
                }
                Err(error) => Err(error),
            };
            if !matches!(&result, Err(error) if error.is_conflict()) {
                break;
            }
        }
        match result {
            Err(error) if is_final(&error) => {
                tracing::warn!(%lease, %error, "the record of owners that were let go cannot be kept; a restart forgets them");
                Ok(())
            }
            // A conflict that is left is no change that a cache will show: the key is retried with backoff.
            result => result.map_err(|error| SyncError::creation(what(), error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_carries_the_record_beside_what_others_have_written() {
        let owners = Owners::from([
            (Uid::new("u"), BTreeSet::from(["x.io".to_owned()])),
            (Uid::new("v"), BTreeSet::new()),
        ]);
        let lease = json!({"metadata": {"name": "windlass", "annotations": {"a": "b"}}, "spec": {"holderIdentity": "me"}});
        let with = encode(lease.clone(), &owners).unwrap();
        assert_eq!(decode(&with), owners);
        assert_eq!((&with["spec"], &with["metadata"]["annotations"]["a"]), (&lease["spec"], &json!("b")));
        assert!(decode(&encode(with, &Owners::new()).unwrap()).is_empty());
        assert!(decode(&lease).is_empty() && decode(&Value::Null).is_empty());
        let malformed = json!({"metadata": {"annotations": {ANNOTATION: "[7"}}});
        assert!(decode(&malformed).is_empty());
        let many = (0..9000)
            .map(|n| (Uid::new(&format!("00000000-0000-4000-8000-{n:012}")), BTreeSet::new()))
            .collect();
        assert_eq!(encode(lease, &many), None);
    }
}
