//! Reads the documents of discovery, and joins them. Nothing here asks anybody.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::model::discovered::{Discovered, DiscoveredResource, FailedGroup, Verbs, is_path_segment};

/// A version of a group, and its resources or why they are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedVersion {
    pub(super) group: String,
    /// Empty if all of the group is unreadable.
    pub(super) version: String,
    pub(super) resources: Result<Vec<DiscoveredResource>, String>,
    /// The resources of a stale version when the server last reached it, if the server says so.
    pub(super) stale: Vec<DiscoveredResource>,
}

/// `/api` or `/apis`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Document {
    /// Everything; the preferred version of each group first.
    Aggregated(Vec<ServedVersion>),
    /// Groups and versions only, in the same order.
    Names(Vec<(String, String)>),
}

/// The resources of each group version when it was last read.
pub(super) type History = BTreeMap<(String, String), Vec<DiscoveredResource>>;

/// Reads `/api` or `/apis`, in whichever form the server has chosen.
pub(super) fn read(body: &[u8]) -> Result<Document, serde_json::Error> {
    let DocumentWire { kind, items, groups, versions } = serde_json::from_slice(body)?;
    if kind == "APIGroupDiscoveryList" {
        return Ok(Document::Aggregated(items.into_iter().flat_map(read_group).collect()));
    }
    let core = versions.into_iter().map(|version| (String::new(), version));
    let named = groups.into_iter().flat_map(|GroupNamesWire { name, mut versions, preferred_version }| {
        // Stable, so that all others stay in the server's order.
        versions.sort_by_key(|entry| entry.version != preferred_version.version);
        versions.into_iter().map(move |entry| (name.clone(), entry.version))
    });
    Ok(Document::Names(
        core.chain(named).filter(|(group, version)| is_group_version(group, version)).collect(),
    ))
}

fn is_group_version(group: &str, version: &str) -> bool {
    (group.is_empty() || is_path_segment(group)) && is_path_segment(version)
}

fn read_group(group: &RawValue) -> Vec<ServedVersion> {
    let unreadable = |name: String, message: String| ServedVersion {
        group: name,
        version: String::new(),
        resources: Err(message),
        stale: Vec::new(),
    };
    match serde_json::from_str::<GroupWire<'_>>(group.get()) {
        Ok(GroupWire { metadata, versions }) => {
            versions.into_iter().map(|version| read_version(&metadata.name, version)).collect()
        }
        Err(error) => {
            // Perhaps at least its name can be read.
            let name = serde_json::from_str::<NamedWire>(group.get()).map(|named| named.metadata.name);
            vec![unreadable(name.unwrap_or_default(), error.to_string())]
        }
    }
}

fn read_version(group: &str, raw: &RawValue) -> ServedVersion {
    let failed = |version: String, message: String| ServedVersion {
        group: group.to_owned(),
        version,
        resources: Err(message),
        stale: Vec::new(),
    };
    let VersionWire { version, freshness, resources } = match serde_json::from_str(raw.get()) {
        Ok(read) => read,
        Err(error) => {
            let name = serde_json::from_str::<VersionNameWire>(raw.get()).map(|named| named.version);
            return failed(name.unwrap_or_default(), error.to_string());
        }
    };
    if !is_group_version(group, &version) {
        return failed(version, "the name of the group or of the version cannot be part of a path".into());
    }
    let api = (group, version.as_str());
    let resources: Result<Vec<_>, String> =
        resources.into_iter().filter_map(|resource| resource.read(api)).collect();
    if freshness != "Stale" {
        return ServedVersion { group: group.to_owned(), version, resources, stale: Vec::new() };
    }
    let name = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
    let mut stale = failed(version, format!("stale GroupVersion discovery: {name}"));
    stale.stale = resources.unwrap_or_default();
    stale
}

/// Reads `/api/v1` or `/apis/<group>/<version>`.
pub(super) fn read_resources(
    group: &str,
    version: &str,
    body: &[u8],
) -> Result<Vec<DiscoveredResource>, String> {
    let ResourcesWire { resources } = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let are_resources = resources.into_iter().filter(|entry| !entry.name.contains('/'));
    are_resources
        .map(|ResourceWire { name, namespaced, kind, verbs }| {
            resource((group, version), name, kind, namespaced, &verbs)
        })
        .collect()
}

fn resource(
    (group, version): (&str, &str),
    plural: String,
    kind: String,
    namespaced: bool,
    verbs: &[String],
) -> Result<DiscoveredResource, String> {
    if !is_path_segment(&plural) {
        return Err(format!("the resource name {plural:?} cannot be part of a path"));
    }
    if kind.is_empty() {
        return Err(format!("the resource {plural} has no kind"));
    }
    Ok(DiscoveredResource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind,
        plural,
        namespaced,
        verbs: Verbs::named(verbs.iter().map(String::as_str)),
        other_versions: Vec::new(),
    })
}

/// Joins what all group versions have, and remembers what each had when it was last read.
pub(super) fn merge(versions: &[ServedVersion], history: &History) -> (Discovered, History) {
    let mut found = Discovered::default();
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut next = History::new();
    for ServedVersion { group, version, resources, stale } in versions {
        let key = (group.clone(), version.clone());
        let message = match resources {
            Ok(resources) => {
                next.insert(key, resources.clone());
                for resource in resources {
                    add(&mut found.resources, &mut places, resource);
                }
                continue;
            }
            Err(message) => message.clone(),
        };
        let said = Some(stale).filter(|stale| !stale.is_empty());
        let last_good = history.get(&key).or(said).cloned();
        if let Some(resources) = &last_good {
            next.insert(key, resources.clone());
        }
        let (group, version) = (group.clone(), version.clone());
        found.failed.push(FailedGroup { group, version, message, last_good });
    }
    (found, next)
}

/// Adds a resource, or one more version of a resource that an earlier version has.
fn add<'a>(
    resources: &mut Vec<DiscoveredResource>,
    places: &mut BTreeMap<(&'a str, &'a str), usize>,
    new: &'a DiscoveredResource,
) {
    let place = *places.entry((&new.group, &new.plural)).or_insert(resources.len());
    match resources.get_mut(place) {
        None => resources.push(new.clone()),
        Some(known) if known.kind == new.kind && !known.is_served_in(&new.version) => {
            known.other_versions.push(new.version.clone());
        }
        Some(_) => {}
    }
}

// The documents on the wire. Each group and each version is decoded apart from the others, so that one of an unexpected
// shape does not hide them. Go writes `null` for empty lists.

#[derive(Deserialize)]
struct DocumentWire<'a> {
    #[serde(default)]
    kind: String,
    #[serde(borrow, default, deserialize_with = "null_as_default")]
    items: Vec<&'a RawValue>,
    #[serde(default, deserialize_with = "null_as_default")]
    groups: Vec<GroupNamesWire>,
    #[serde(default, deserialize_with = "null_as_default")]
    versions: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupNamesWire {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    versions: Vec<VersionNameWire>,
    #[serde(default)]
    preferred_version: VersionNameWire,
}

#[derive(Deserialize, Default)]
struct VersionNameWire {
    #[serde(default)]
    version: String,
}

#[derive(Deserialize)]
struct NamedWire {
    metadata: NameWire,
}

#[derive(Deserialize, Default)]
struct NameWire {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct GroupWire<'a> {
    #[serde(default, deserialize_with = "null_as_default")]
    metadata: NameWire,
    #[serde(borrow, default, deserialize_with = "null_as_default")]
    versions: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct VersionWire {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default, deserialize_with = "null_as_default")]
    resources: Vec<AggregatedWire>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedWire {
    resource: String,
    response_kind: Option<KindWire>,
    #[serde(default)]
    scope: String,
    #[serde(default, deserialize_with = "null_as_default")]
    verbs: Vec<String>,
}

impl AggregatedWire {
    /// The resource; `None` for the parent of subresources that is no resource itself, which has no kind.
    fn read(self, api: (&str, &str)) -> Option<Result<DiscoveredResource, String>> {
        let AggregatedWire { resource: plural, response_kind, scope, verbs } = self;
        let kind = response_kind.map(|kind| kind.kind).filter(|kind| !kind.is_empty())?;
        Some(resource(api, plural, kind, scope == "Namespaced", &verbs))
    }
}

#[derive(Deserialize)]
struct KindWire {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct ResourcesWire {
    #[serde(default, deserialize_with = "null_as_default")]
    resources: Vec<ResourceWire>,
}

#[derive(Deserialize)]
struct ResourceWire {
    name: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    kind: String,
    #[serde(default, deserialize_with = "null_as_default")]
    verbs: Vec<String>,
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
