//! The pods and claims that are sent to the API server (upstream: `newStatefulSetPod`, `getPersistentVolumeClaims`).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::claims::{ClaimPod, wanted};
use super::in_range::{POD_INDEX, POD_NAME};
use super::{NewPod, ordinals};
use crate::model::statefulset::{ClaimTemplate, ClaimTemplateMeta};
use crate::model::{CONTROLLER_REVISION_HASH, ClaimOwner, Record, StatefulSet, Template};
use crate::plan::OwnerReference;
use crate::plan::pod_body::{Fields, PodFromTemplate};

/// The JSON of a new pod of this template, that of its revision. Fields that the controller does not change are copied
/// byte for byte, so that a field newer than any type of ours is kept.
///
/// # Errors
/// When the template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn pod_body(set: &StatefulSet, template: &Template, new: &NewPod) -> Result<Vec<u8>, serde_json::Error> {
    let key = &set.meta.key;
    let index = new.ordinal.to_string();
    let pod = PodFromTemplate {
        owner: OwnerReference::controller("apps/v1", StatefulSet::RESOURCE.kind, &key.name, &set.meta.uid),
        namespace: &key.namespace,
        name: &new.name,
        generate_name: format!("{}-", key.name),
        template,
        labels: &[(CONTROLLER_REVISION_HASH, &new.revision), (POD_NAME, &new.name), (POD_INDEX, &index)],
        annotations: &[],
        finalizers: &[],
    };
    pod.json(|mut spec| {
        spec.insert("hostname".into(), to_raw_value(&new.name)?);
        spec.insert("subdomain".into(), to_raw_value(&set.service_name)?);
        if !set.claim_templates.names.is_empty() {
            spec.insert("volumes".into(), to_raw_value(&volumes(set, &spec, new)?)?);
        }
        Ok(spec)
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimVolume<'a> {
    name: &'a str,
    persistent_volume_claim: ClaimSource,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSource {
    claim_name: String,
}

/// The volumes of the claims, in the order of their templates, and then those of the pod template that have other names.
/// Upstream's order changes from pod to pod.
fn volumes(set: &StatefulSet, spec: &Fields, new: &NewPod) -> Result<Vec<Box<RawValue>>, serde_json::Error> {
    let names = &set.claim_templates.names;
    let mut volumes = Vec::new();
    for name in names.iter() {
        let claim_name = ordinals::claim_name(name, set, new.ordinal);
        volumes
            .push(to_raw_value(&ClaimVolume { name, persistent_volume_claim: ClaimSource { claim_name } })?);
    }
    let of_template: Option<Vec<Box<RawValue>>> =
        spec.get("volumes").map(|raw| serde_json::from_str(raw.get())).transpose()?.flatten();
    for volume in of_template.unwrap_or_default() {
        #[derive(serde::Deserialize)]
        struct Named {
            #[serde(default)]
            name: Option<String>,
        }
        let named: Named = serde_json::from_str(volume.get())?;
        if !names.iter().any(|name| named.name.as_deref() == Some(name)) {
            volumes.push(volume);
        }
    }
    Ok(volumes)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: ClaimMeta<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClaimMeta<'a> {
    name: &'a str,
    namespace: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_references: Option<[ClaimOwner; 1]>,
}

/// The name and the JSON of a new claim of a pod, from the template at this place. It has the owner that the policy wants
/// from the beginning: a StatefulSet that is deleted in the next moment would leave it behind otherwise.
///
/// # Errors
/// When there is no such template; cannot happen.
pub fn claim_body(
    set: &StatefulSet,
    template: &ClaimTemplate,
    new: &NewPod,
) -> Result<(String, Vec<u8>), serde_json::Error> {
    let name = ordinals::claim_name(template.name(), set, new.ordinal);
    let no_meta = ClaimTemplateMeta::default();
    let meta = template.metadata.as_ref().unwrap_or(&no_meta);
    let of_template = meta.labels.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
    let of = ClaimPod { name: &new.name, pod: None, is_condemned: false };
    let body = serde_json::to_vec(&ClaimBody {
        api_version: "v1",
        kind: "PersistentVolumeClaim",
        metadata: ClaimMeta {
            name: &name,
            namespace: &set.meta.key.namespace,
            labels: of_template.chain(set.selector.match_labels()).collect(),
            annotations: meta.annotations.as_ref(),
            owner_references: wanted(set, of).map(|owner| [owner]),
        },
        spec: template.spec.as_deref(),
    })?;
    Ok((name, body))
}
