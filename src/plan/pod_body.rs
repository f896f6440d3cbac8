//! The body of a pod that its owner makes from a template and changes in places (upstream: `GetPodFromTemplate`).
//!
//! Fields that the owner does not change are copied byte for byte, so that a field newer than any type of ours is kept.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::OwnerReference;
use crate::model::Template;

/// The fields of an object, undecoded.
pub(super) type Fields = BTreeMap<String, Box<RawValue>>;

/// A pod that is made from a template.
pub(super) struct PodFromTemplate<'a> {
    /// Its owner.
    pub owner: OwnerReference<'a>,
    /// The namespace of both.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Without effect beside a name. Admission webhooks read it: a pod's name is not always set when they see it.
    pub generate_name: String,
    /// The template.
    pub template: &'a Template,
    /// Labels beside those of the template, and in their place.
    pub labels: &'a [(&'a str, &'a str)],
    /// Annotations beside those of the template, and in their place.
    pub annotations: &'a [(&'a str, String)],
    /// Finalizers behind those of the template.
    pub finalizers: &'a [&'a str],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: PodMeta<'a>,
    spec: Fields,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodMeta<'a> {
    name: &'a str,
    generate_name: String,
    namespace: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    #[serde(flatten)]
    from_template: Fields,
    owner_references: [OwnerReference<'a>; 1],
}

/// The metadata of a template that a pod gets besides the labels.
const INHERITED: [&str; 2] = ["annotations", "finalizers"];

impl PodFromTemplate<'_> {
    /// The JSON, with the spec of the template as `change` leaves it.
    ///
    /// # Errors
    /// When the template is not the object that it was decoded as; cannot happen to a decoded one.
    pub(super) fn json(
        self,
        change: impl FnOnce(Fields) -> Result<Fields, serde_json::Error>,
    ) -> Result<Vec<u8>, serde_json::Error> {
        let PodFromTemplate {
            owner,
            namespace,
            name,
            generate_name,
            template,
            labels,
            annotations,
            finalizers,
        } = self;
        let fields: Fields = serde_json::from_str(&template.json())?;
        let mut from_template = field(&fields, "metadata")?;
        from_template.retain(|field, _| INHERITED.contains(&field.as_str()));
        if !annotations.is_empty() {
            let mut all = field(&from_template, "annotations")?;
            for (key, value) in annotations {
                all.insert((*key).into(), to_raw_value(value)?);
            }
            from_template.insert("annotations".into(), to_raw_value(&all)?);
        }
        if !finalizers.is_empty() {
            let of_template = from_template.get("finalizers").map(|raw| serde_json::from_str(raw.get()));
            let mut all: Vec<String> = of_template.transpose()?.flatten().unwrap_or_default();
            all.retain(|finalizer| !finalizers.contains(&finalizer.as_str()));
            all.extend(finalizers.iter().map(|finalizer| (*finalizer).to_owned()));
            from_template.insert("finalizers".into(), to_raw_value(&all)?);
        }
        serde_json::to_vec(&PodBody {
            api_version: "v1",
            kind: "Pod",
            metadata: PodMeta {
                name,
                generate_name,
                namespace,
                labels: template.labels.iter().chain(labels.iter().copied()).collect(),
                from_template,
                owner_references: [owner],
            },
            spec: change(field(&fields, "spec")?)?,
        })
    }
}

/// The fields of an object within an object; none where it is absent or null.
pub(super) fn field(object: &Fields, name: &str) -> Result<Fields, serde_json::Error> {
    match object.get(name) {
        Some(field) => Ok(serde_json::from_str::<Option<Fields>>(field.get())?.unwrap_or_default()),
        None => Ok(Fields::new()),
    }
}
