//! Replaces random and time-dependent values by placeholders, so that two plays can be compared: names and
//! hashes of ReplicaSets, names of pods, UIDs, times.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::recording::{Change, What};

/// The characters of suffixes and hashes; names that people choose have others, too.
const SAFE: &str = "bcdfghjklmnpqrstvwxz2456789";

/// The placeholders of the concrete texts of one play.
#[derive(Default)]
pub struct Canonical {
    /// Longest first.
    texts: Vec<(String, String)>,
    /// Names of the owners of pods as they are called after `texts`.
    replica_sets: BTreeSet<String>,
    deployments: BTreeSet<String>,
    cron_jobs: BTreeSet<String>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Canonical {
    /// Learns from all changes of a namespace, in their order. The script has chosen some names itself.
    pub fn new(changes: &[Change], own_names: &BTreeSet<(String, String)>) -> Self {
        let mut canonical = Canonical::default();
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        let mut replica_sets_of: BTreeMap<String, usize> = BTreeMap::new();
        let mut hashes = 0;
        let mut seen = BTreeSet::new();
        let mut slices: BTreeMap<String, String> = BTreeMap::new();
        for change in changes.iter().filter(|change| change.kind != "Event") {
            let metadata = &change.object["metadata"];
            let (name, uid) = (text(&metadata["name"]).to_owned(), text(&metadata["uid"]).to_owned());
            if change.what == What::Deleted {
                slices.remove(&uid);
            }
            if change.what != What::Added || !seen.insert(uid.clone()) {
                continue;
            }
            let is_own = own_names.contains(&(change.kind.to_owned(), name.clone()));
            let owner = || {
                let owners = metadata["ownerReferences"].as_array()?;
                Some(text(&owners.iter().find(|owner| owner["controller"] == true)?["name"]).to_owned())
            };
            let called = match change.kind {
                _ if is_own => name.clone(),
                // Created again under its name.
                "ControllerRevision" if texts.contains_key(&name) => texts[&name].clone(),
                "ReplicaSet" | "ControllerRevision" => {
                    let owner = owner().unwrap_or_else(|| "no owner".into());
                    let number = replica_sets_of.entry(owner.clone()).or_default();
                    *number += 1;
                    format!("{owner}#{number}")
                }
                // Named by the minute.
                "Job" if is_of(metadata, "CronJob") => {
                    let owner = owner().unwrap_or_default();
                    let number = replica_sets_of.entry(owner.clone()).or_default();
                    *number += 1;
                    format!("{owner}@{number}")
                }
                "EndpointSlice" => {
                    let place = format!("{}#{}", owner().unwrap_or_default(), place_of(&change.object));
                    // The ports of one that is still there may be others by now. One that is gone may return under its
                    // name or under a new one: nobody can tell.
                    let numbered = (2_u32..).map(|number| format!("{place}~{number}"));
                    let is_free = |called: &String| slices.values().all(|other| other != called);
                    let called =
                        std::iter::once(place.clone()).chain(numbered).find(is_free).unwrap_or_default();
                    slices.insert(uid.clone(), called.clone());
                    called
                }
                // Its name is its place.
                "Pod" if is_of(metadata, "StatefulSet") => name.clone(),
                "Pod" => {
                    let owner = owner().unwrap_or_else(|| "no owner".into());
                    format!("{}-POD", texts.get(&owner).unwrap_or(&owner))
                }
                _ => name.clone(),
            };
            let labels = &metadata["labels"];
            let hash = match text(&labels["pod-template-hash"]) {
                "" => text(&labels["controller-revision-hash"]),
                hash => hash,
            };
            if !is_own && !hash.is_empty() && !texts.contains_key(hash) {
                hashes += 1;
                texts.insert(hash.to_owned(), format!("HASH{hashes}"));
            }
            match change.kind {
                "ReplicaSet" | "ReplicationController" | "DaemonSet" | "Job" => {
                    canonical.replica_sets.insert(called.clone());
                }
                "Deployment" => {
                    canonical.deployments.insert(called.clone());
                }
                "CronJob" => {
                    canonical.cron_jobs.insert(called.clone());
                }
                _ => {}
            }
            texts.insert(uid, format!("UID-of-{}/{called}", change.kind));
            if called != name {
                texts.insert(name, called);
            }
        }
        canonical.texts = texts.into_iter().collect();
        canonical.texts.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        canonical
    }

    /// The text with placeholders.
    pub fn text(&self, concrete: &str) -> String {
        if is_time(concrete) {
            return "TIME".into();
        }
        let mut text = concrete.to_owned();
        for (from, to) in &self.texts {
            if text.contains(from.as_str()) {
                text = text.replace(from.as_str(), to);
            }
        }
        // Pods and ReplicaSets that were never created: the request was refused.
        for name in &self.replica_sets {
            text = replace_suffixed(&text, name, 5..=5, &format!("{name}-POD"));
        }
        for name in &self.deployments {
            text = replace_suffixed(&text, name, 6..=10, &format!("{name}#?"));
        }
        for name in &self.cron_jobs {
            text = without_minutes(&text, name);
        }
        without_uids(&text)
    }

    /// The same for all texts of a value, keys included.
    pub fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(key, value)| (self.text(key), self.value(value)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }
}

/// The endpoints that a slice is for: the first ones of their family with its ports.
fn place_of(slice: &Value) -> String {
    let ports = slice["ports"].as_array().into_iter().flatten();
    let ports: Vec<String> = ports.map(|port| format!("{}={}", text(&port["name"]), port["port"])).collect();
    format!("{}({})", text(&slice["addressType"]), ports.join(","))
}

fn is_of(metadata: &Value, kind: &str) -> bool {
    let owners = metadata["ownerReferences"].as_array();
    owners.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == kind))
}

/// Replaces the minute in the names of runs that had no Job, or the Job of somebody else.
fn without_minutes(text: &str, name: &str) -> String {
    const DIGITS: usize = 8;
    let begin = format!("{name}-");
    let mut parts = text.split(&begin);
    let mut done = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match digits {
            DIGITS => done += &format!("{name}@?{}", &part[DIGITS..]),
            _ => done += &format!("{name}-{part}"),
        }
    }
    done
}

/// Replaces the UIDs that are left: those of objects in other namespaces.
fn without_uids(text: &str) -> String {
    const LENGTH: usize = 36;
    let is_uid = |found: &[u8]| {
        found.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.as_bytes().windows(LENGTH).position(is_uid) {
        done += &rest[..at];
        done += "UID";
        rest = &rest[at + LENGTH..];
    }
    done + rest
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20 && bytes[4] == b'-' && bytes[10] == b'T' && text.parse::<jiff::Timestamp>().is_ok()
}

/// Replaces each `name` with a dash and a random suffix of such a length behind it.
fn replace_suffixed(text: &str, name: &str, lengths: std::ops::RangeInclusive<usize>, by: &str) -> String {
    let begin = format!("{name}-");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '#';
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(&begin) {
        let (before, found) = rest.split_at(at);
        let after = &found[begin.len()..];
        let length = after.chars().take_while(|c| SAFE.contains(*c)).count();
        let ends = !after[length..].starts_with(is_name);
        let begins = !before.ends_with(is_name);
        done += before;
        if lengths.contains(&length) && ends && begins {
            done += by;
            rest = &after[length..];
        } else {
            done += &begin;
            rest = after;
        }
    }
    done + rest
}
