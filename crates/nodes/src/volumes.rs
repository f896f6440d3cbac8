//! The volume binder: binds claims to the volumes that exist, and to volumes that it makes up where a StorageClass has a
//! provisioner. The decisions are in [`binding`], and pure; this file carries them out.

pub(crate) mod binding;

use std::collections::BTreeSet;

use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, FuturesUnordered},
};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    core::{
        Request,
        params::{GetParams, Preconditions},
    },
};
use serde_json::{Value, json};

use self::binding::{ClaimKey, Due, Storage, Told, Write, claimed_by, claimed_key, key_of};
use crate::{
    api_client::{CallError, Now, backoff, post, send, send_only},
    events,
    reflector::{Change, follow, for_a_day},
};

const VOLUMES: &str = "/api/v1/persistentvolumes";

/// An object that something may be due about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Claim(ClaimKey),
    Volume(String),
}

enum Seen {
    Claim(Box<Change<PersistentVolumeClaim>>),
    Volume(Box<Change<PersistentVolume>>),
    Class(Box<Change<StorageClass>>),
}

/// Binds claims, for ever.
pub(crate) async fn run(client: &Client, now: &Now, events: bool) {
    let claims = follow(Api::<PersistentVolumeClaim>::all(client.clone()), for_a_day())
        .map(|change| Seen::Claim(Box::new(change)));
    let volumes = follow(Api::<PersistentVolume>::all(client.clone()), for_a_day())
        .map(|change| Seen::Volume(Box::new(change)));
    let classes = follow(Api::<StorageClass>::all(client.clone()), for_a_day())
        .map(|change| Seen::Class(Box::new(change)));
    let mut changes = stream::select_all([claims.boxed(), volumes.boxed(), classes.boxed()]);
    let mut binder = Binder::new(client, now, events);
    let mut writing: FuturesUnordered<BoxFuture<'static, Target>> = FuturesUnordered::new();
    loop {
        let targets = tokio::select! {
            biased;
            Some(target) = writing.next(), if !writing.is_empty() => {
                binder.busy.remove(&target);
                // Otherwise the answer to the write is still to come, as a change.
                if binder.changed.remove(&target) { vec![target] } else { Vec::new() }
            }
            Some(seen) = changes.next() => binder.observe(seen),
        };
        for target in targets {
            writing.extend(binder.consider(target));
        }
    }
}

struct Binder<'a> {
    client: &'a Client,
    now: &'a Now,
    events: bool,
    storage: Storage,
    /// How many of the three kinds have been listed.
    synced: usize,
    /// Written at the moment.
    busy: BTreeSet<Target>,
    /// Those of them that have changed since.
    changed: BTreeSet<Target>,
    /// The UIDs of claims, and the reasons and messages of the events about them.
    told: BTreeSet<(String, &'static str, String)>,
}

impl<'a> Binder<'a> {
    fn new(client: &'a Client, now: &'a Now, events: bool) -> Self {
        Binder {
            client,
            now,
            events,
            storage: Storage::default(),
            synced: 0,
            busy: BTreeSet::new(),
            changed: BTreeSet::new(),
            told: BTreeSet::new(),
        }
    }

    /// Takes in a change, and returns what it may matter to.
    fn observe(&mut self, seen: Seen) -> Vec<Target> {
        match seen {
            Seen::Claim(change) => self.observe_claim(*change),
            Seen::Volume(change) => self.observe_volume(*change),
            Seen::Class(change) => match *change {
                Change::Put(class) => {
                    self.storage.classes.insert(class.metadata.name.clone().unwrap_or_default(), class);
                    self.unbound()
                }
                Change::Deleted(gone) => {
                    self.storage.classes.remove(&gone.name);
                    Vec::new()
                }
                Change::Synced => self.observe_end(),
            },
        }
    }

    fn observe_claim(&mut self, change: Change<PersistentVolumeClaim>) -> Vec<Target> {
        let storage = &mut self.storage;
        match change {
            Change::Put(claim) => {
                let key = key_of(&claim.metadata);
                let volume =
                    claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).map(Target::Volume);
                storage.claims.insert(key.clone(), claim);
                [Target::Claim(key)].into_iter().chain(volume).collect()
            }
            Change::Deleted(gone) => {
                storage.claims.remove(&(gone.namespace, gone.name));
                self.told.retain(|(uid, ..)| *uid != gone.uid);
                let theirs = storage.volumes.values().filter(|volume| claimed_by(volume) == Some(&gone.uid));
                theirs.filter_map(|volume| volume.metadata.name.clone()).map(Target::Volume).collect()
            }
            Change::Synced => self.observe_end(),
        }
    }

    fn observe_volume(&mut self, change: Change<PersistentVolume>) -> Vec<Target> {
        match change {
            Change::Put(volume) => {
                let name = volume.metadata.name.clone().unwrap_or_default();
                let claimed = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
                self.storage.volumes.insert(name.clone(), volume);
                let claims = match claimed {
                    Some(claimed) => vec![Target::Claim(claimed_key(&claimed))],
                    None => self.unbound(),
                };
                [Target::Volume(name)].into_iter().chain(claims).collect()
            }
            Change::Deleted(gone) => {
                self.storage.volumes.remove(&gone.name);
                Vec::new()
            }
            Change::Synced => self.observe_end(),
        }
    }

    /// One more kind is known.
    fn observe_end(&mut self) -> Vec<Target> {
        self.synced += 1;
        let volumes = self.storage.volumes.keys().cloned().map(Target::Volume);
        self.storage.claims.keys().cloned().map(Target::Claim).chain(volumes).collect()
    }

    /// The claims that have no volume.
    fn unbound(&self) -> Vec<Target> {
        let claims = self.storage.claims.iter().filter(|(_, claim)| {
            claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).is_none_or(str::is_empty)
        });
        claims.map(|(key, _)| Target::Claim(key.clone())).collect()
    }

    /// The write that is due about an object.
    fn consider(&mut self, target: Target) -> Option<BoxFuture<'static, Target>> {
        if self.synced < 3 {
            return None;
        }
        if self.busy.contains(&target) {
            self.changed.insert(target);
            return None;
        }
        let write = match &target {
            Target::Volume(name) => self.storage.volume(name)?,
            Target::Claim(key) => match self.storage.claim(key) {
                Due::Nothing => return None,
                Due::Write(write) => write,
                Due::Waits(told) => {
                    let event = self.tell(key, &told)?;
                    let client = self.client.clone();
                    self.busy.insert(target.clone());
                    let sending = async move {
                        if let Err(error) = send_only(&client, event).await {
                            tracing::debug!(%error, "an event was dropped");
                        }
                        target
                    };
                    return Some(sending.boxed());
                }
            },
        };
        self.busy.insert(target.clone());
        let provisioned = match (&target, &write) {
            (Target::Claim(key), Write::Create(volume)) => {
                let (name, class) = (&volume["metadata"]["name"], &volume["spec"]["storageClassName"]);
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let message = format!("Successfully provisioned volume {} using {}", text(name), text(class));
                self.tell(key, &Told { kind: "Normal", reason: "ProvisioningSucceeded", message })
            }
            _ => None,
        };
        Some(carry_out(self.client.clone(), target, write, provisioned).boxed())
    }

    /// The event about a claim, unless the claim has it.
    fn tell(&mut self, key: &ClaimKey, Told { kind, reason, message }: &Told) -> Option<Sending> {
        let claim = self.storage.claims.get(key)?;
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let begin = (uid.clone(), *reason, String::new());
        let earlier = self.told.range(begin..).take_while(|(of, why, _)| *of == uid && why == reason).count();
        if !self.events || !self.told.insert((uid.clone(), reason, message.clone())) {
            return None;
        }
        let short: String = uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
        let name = format!("{}.{short}.{}{earlier}", key.1, reason.to_lowercase());
        let about = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": key.0, "name": key.1,
                           "uid": uid, "resourceVersion": claim.metadata.resource_version});
        let text = events::Text { from: "persistentvolume-controller", kind, reason, message };
        let event = events::event(name, &about, None, &text, (self.now)());
        Some(post(events::path(&key.0), &event))
    }
}

type Sending = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// Sends a write until it succeeds, or another state of the object is the one to look at.
async fn carry_out(client: Client, target: Target, write: Write, event: Option<Sending>) -> Target {
    let mut failures = 0;
    loop {
        match attempt(&client, &target, &write).await {
            Ok(()) => break,
            Err(error) if error.is_conflict() || error.is_final() => {
                tracing::debug!(%error, ?target, "the volume binder did not write");
                return target;
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(%error, ?target, "a request of the volume binder failed; retrying");
                tokio::time::sleep(backoff(failures)).await;
            }
        }
    }
    if let Some(event) = event
        && let Err(error) = send_only(&client, event).await
    {
        tracing::debug!(%error, "an event was dropped");
    }
    target
}

async fn attempt(client: &Client, target: &Target, write: &Write) -> Result<(), CallError> {
    let patched = |path: &str, name: &str, status: bool, patch: &Value| {
        let (request, parameters, patch) = (Request::new(path), PatchParams::default(), Patch::Merge(patch));
        match status {
            true => request.patch_subresource("status", name, &parameters, &patch),
            false => request.patch(name, &parameters, &patch),
        }
    };
    match (write, target) {
        (Write::Claim { status, patch }, Target::Claim((namespace, name))) => {
            send_only(client, patched(&claims_path(namespace), name, *status, patch)).await
        }
        (Write::Claim { .. }, Target::Volume(_)) => Ok(()),
        (Write::Volume { name, status, patch }, _) => {
            send_only(client, patched(VOLUMES, name, *status, patch)).await
        }
        (Write::Create(volume), _) => send_only(client, post(VOLUMES.to_owned(), volume)).await,
        (Write::Delete { name, uid, claim: (namespace, claim), claim_uid }, _) => {
            // The claims that are known may be older than the volume.
            match send(client, Request::new(claims_path(namespace)).get(claim, &GetParams::default())).await {
                Ok(found) if found["metadata"]["uid"] == claim_uid.as_str() => return Ok(()),
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
            let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            send_only(client, Request::new(VOLUMES).delete(name, &parameters)).await
        }
    }
}

/// The path of the claims of a namespace.
pub(crate) fn claims_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims")
}
