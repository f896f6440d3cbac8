//! A ControllerRevision: one template of a DaemonSet's history, compared by meaning.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::intern::Interner;
use super::meta::Meta;
use super::record::{Record, Resource};
use super::template::{POD_TEMPLATE_HASH, Template};
use super::template_equality::Fingerprint;
use super::wire::MetaWire;

/// The label that names the revision of a pod, and of the revision itself.
pub const CONTROLLER_REVISION_HASH: &str = "controller-revision-hash";

/// The controller's own state of a rollout, an annotation of the ReplicaSet or ControllerRevision that it leads to.
pub const ROLLOUT_STATE: &str = "windlass.dev/rollout-state";

/// The longest state, in bytes.
const LONGEST_STATE: usize = 4096;

/// The fields of a ControllerRevision that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerRevision {
    /// Metadata.
    pub meta: Meta,
    /// `revision`: counts templates, and the highest is the current one.
    pub number: i64,
    /// The meaning of `data`; `None` if it is not the patch of a pod template.
    pub contents: Option<Contents>,
    /// Annotation `windlass.dev/rollout-state`, which our own controller writes; one that is longer than it writes is left out.
    pub rollout_state: Option<Box<str>>,
}

/// The meaning of a revision's `data`, which kubectl applies to the DaemonSet to roll back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    meaning: Fingerprint,
    /// The one label that the fingerprint leaves out. In the template of a DaemonSet it is a label like any other.
    hash_label: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct RevisionWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(default)]
    revision: Option<i64>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct DataWire<'a> {
    #[serde(borrow)]
    spec: DataSpecWire<'a>,
}

#[derive(Deserialize)]
struct DataSpecWire<'a> {
    #[serde(borrow)]
    template: BTreeMap<String, &'a RawValue>,
}

impl Contents {
    /// The meaning of a template.
    pub fn of(template: &Template) -> Self {
        let hash_label = template.labels.get(POD_TEMPLATE_HASH).map(Arc::from);
        Contents { meaning: template.meaning(), hash_label }
    }

    /// The meaning of `data`: `{"spec":{"template":{"$patch":"replace", …}}}`. `None` for data of another shape,
    /// which belongs to another kind of owner.
    pub fn of_data(data: &str, interner: &mut Interner) -> Option<Self> {
        let DataWire { spec: DataSpecWire { mut template } } = serde_json::from_str(data).ok()?;
        let patch = template.remove("$patch")?;
        if serde_json::from_str::<String>(patch.get()).ok()? != "replace" {
            return None;
        }
        Template::decode(&to_raw_value(&template).ok()?, interner)
            .ok()
            .map(|template| Contents::of(&template))
    }
}

/// A revision with its template, as it is read for a pod of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionTemplate {
    meta: Meta,
    /// The template in `data`; an empty one where there is none.
    pub template: Template,
}

impl Record for RevisionTemplate {
    const RESOURCE: Resource = ControllerRevision::RESOURCE;

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let RevisionWire { metadata, data, .. } = serde_json::from_str(json)?;
        let data: Option<DataWire<'_>> = data.map(|data| serde_json::from_str(data.get())).transpose()?;
        let mut fields = data.map(|data| data.spec.template).unwrap_or_default();
        fields.remove("$patch");
        let template = Template::decode(&to_raw_value(&fields)?, interner)?;
        Ok(RevisionTemplate { meta: metadata.into_meta(interner)?, template })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl Record for ControllerRevision {
    const RESOURCE: Resource =
        Resource { group: "apps", version: "v1", kind: "ControllerRevision", plural: "controllerrevisions" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let RevisionWire { metadata, revision, data } = serde_json::from_str(json)?;
        Ok(ControllerRevision {
            number: revision.unwrap_or(0),
            contents: data.and_then(|data| Contents::of_data(data.get(), interner)),
            rollout_state: metadata
                .annotations
                .get(ROLLOUT_STATE)
                .filter(|text| text.len() <= LONGEST_STATE)
                .map(Box::from),
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl ControllerRevision {
    /// The value of the hash label, unless it is empty.
    pub fn hash(&self) -> Option<&str> {
        self.meta.labels.get(CONTROLLER_REVISION_HASH).filter(|hash| !hash.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(data: &str) -> ControllerRevision {
        let json = format!(
            r#"{{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{{"name":"agent-abc","namespace":"ops",
                "uid":"u","resourceVersion":"7","labels":{{"controller-revision-hash":"abc"}}}},"revision":3,"data":{data}}}"#
        );
        ControllerRevision::decode(&json, &mut Interner::default()).unwrap()
    }

    fn template(json: &str) -> Template {
        Template::decode(&serde_json::from_str::<Box<RawValue>>(json).unwrap(), &mut Interner::default())
            .unwrap()
    }

    #[test]
    fn a_revision_holds_its_number_its_hash_and_what_its_template_means() {
        let revision = revision(
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"a":"b"}},
                "spec":{"containers":[{"image":"i","name":"n"}]}}}}"#,
        );
        assert_eq!((revision.number, revision.hash()), (3, Some("abc")));
        let same =
            template(r#"{"spec":{"containers":[{"name":"n","image":"i"}]},"metadata":{"labels":{"a":"b"}}}"#);
        assert_eq!(revision.contents, Some(Contents::of(&same)));
        let other =
            template(r#"{"spec":{"containers":[{"name":"n","image":"j"}]},"metadata":{"labels":{"a":"b"}}}"#);
        assert_ne!(revision.contents, Some(Contents::of(&other)));
    }

    #[test]
    fn the_hash_label_of_deployments_is_a_label_like_any_other_here() {
        let data =
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"pod-template-hash":"x"}}}}}"#;
        let with = |hash: &str| {
            template(&format!(r#"{{"metadata":{{"labels":{{"pod-template-hash":"{hash}"}}}}}}"#))
        };
        assert_eq!(revision(data).contents, Some(Contents::of(&with("x"))));
        assert_ne!(revision(data).contents, Some(Contents::of(&with("y"))));
    }

    #[test]
    fn data_of_another_shape_has_no_contents_and_is_no_error() {
        let deep = format!(
            r#"{{"spec":{{"template":{{"$patch":"replace","a":{}{}}}}}}}"#,
            "[".repeat(300),
            "]".repeat(300)
        );
        for data in [
            "null",
            "{}",
            "[]",
            r#"{"spec":null}"#,
            r#"{"spec":{"template":null}}"#,
            r#"{"spec":{"template":{"spec":{}}}}"#,
            r#"{"spec":{"template":{"$patch":"delete"}}}"#,
            r#"{"spec":{"template":{"$patch":7}}}"#,
            &deep,
        ] {
            assert_eq!(revision(data).contents, None, "{data}");
        }
        let json = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1","labels":{"controller-revision-hash":""}}}"#;
        let bare = ControllerRevision::decode(json, &mut Interner::default()).unwrap();
        assert_eq!((bare.number, bare.hash(), &bare.contents), (0, None, &None));
    }
}
