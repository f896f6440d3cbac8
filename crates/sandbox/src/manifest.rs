//! Manifests: reading `-f FILE|DIR|-`, validating all of it, and only then creating objects.
//!
//! [`read`] finds errors without a server: files, syntax, kinds, names. [`check`](apply::check) sends each object to
//! the API server as a dry run. [`apply`](apply::apply) creates them, namespaces first, then the definitions of custom
//! kinds. Objects of such kinds may stand anywhere in the same manifests.

pub mod apply;
pub mod inert;

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use windlass_apiserver::{ServedKind, served_kinds};
pub use windlass_manifest::Origin;
use windlass_manifest::{Defect, ManifestObject, SourceError};

/// An object of a manifest, with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The file and the document in it.
    pub origin: Origin,
    /// The object itself, with its namespace filled in.
    pub body: Value,
    plural: String,
    namespaced: bool,
    /// Whether its kind is defined by the same manifests, so that the server may not serve it yet.
    is_of_new_kind: bool,
}

/// Manifests that were read.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// Their objects.
    pub objects: Vec<Object>,
    /// One line for each thing that kubectl takes without a word and nobody means, such as a key that occurs twice.
    pub warnings: Vec<String>,
}

/// The namespaces of every new cluster.
const FIRST_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl Manifests {
    /// Adds the namespaces that objects name, that no manifest creates, and that a new cluster does not have.
    pub fn add_namespaces(&mut self) {
        let created = self.objects.iter().filter(|object| object.kind() == "Namespace").map(Object::name);
        let there: BTreeSet<&str> = created.chain(FIRST_NAMESPACES).collect();
        let missing = self.objects.iter().filter_map(|object| Some((object.namespace()?, object)));
        let missing: std::collections::BTreeMap<_, _> =
            missing.filter(|(name, _)| !there.contains(name)).collect();
        let namespace = |(name, object): (&str, &Object)| Object {
            origin: object.origin.clone(),
            body: json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            plural: "namespaces".to_owned(),
            namespaced: false,
            is_of_new_kind: false,
        };
        let missing: Vec<Object> = missing.into_iter().map(namespace).collect();
        self.objects.extend(missing);
    }
}

/// A kind of which objects can be created.
#[derive(Clone, Debug)]
struct Creatable {
    api_version: String,
    kind: String,
    plural: String,
    namespaced: bool,
    is_new: bool,
}

impl From<ServedKind> for Creatable {
    fn from(served: ServedKind) -> Self {
        let ServedKind { api_version, kind, plural, namespaced } = served;
        Creatable { api_version, kind: kind.to_owned(), plural: plural.to_owned(), namespaced, is_new: false }
    }
}

impl Object {
    /// The kind, such as `Deployment`.
    pub fn kind(&self) -> &str {
        self.body["kind"].as_str().unwrap_or_default()
    }

    /// The name; empty before the API server has made one of `generateName`.
    pub fn name(&self) -> &str {
        self.body["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The namespace, if the kind is namespaced.
    pub fn namespace(&self) -> Option<&str> {
        self.body["metadata"]["namespace"].as_str()
    }

    fn identity(&self) -> (&str, &str, Option<&str>, &str) {
        (self.body["apiVersion"].as_str().unwrap_or_default(), self.kind(), self.namespace(), self.name())
    }
}

impl fmt::Display for Object {
    /// Such as `Deployment shop/web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.body["metadata"]["generateName"].as_str().unwrap_or_default();
        let name = if self.name().is_empty() { format!("{prefix}*") } else { self.name().to_owned() };
        match self.namespace() {
            Some(namespace) => write!(f, "{} {namespace}/{name}", self.kind()),
            None => write!(f, "{} {name}", self.kind()),
        }
    }
}

/// Why manifests were not applied: one message for their author.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A file that cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// As it was given on the command line.
        file: String,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// A file that is too large, or not text.
    #[error("{file}: {problem}")]
    File {
        /// As it was given on the command line.
        file: String,
        /// In words.
        problem: String,
    },
    /// An invalid document.
    #[error("{origin}: {problem}")]
    Document {
        /// Its origin.
        origin: Origin,
        /// In words, with line and column for syntax errors.
        problem: String,
    },
    /// An object that the API server refuses.
    #[error("{origin}: {object}: {problem}")]
    Refused {
        /// Its origin.
        origin: Origin,
        /// Such as `Deployment shop/web`.
        object: String,
        /// The server's message.
        problem: String,
    },
    /// Several of them, one below the other.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<ManifestError>),
    /// The sources have no object.
    #[error("no objects in {sources}")]
    Empty {
        /// As they were given on the command line.
        sources: String,
    },
    /// A failure after some objects were applied.
    #[error("{origin}: {object}: {problem}\n{progress}")]
    Interrupted {
        /// The origin of the failed object.
        origin: Origin,
        /// The failed object.
        object: String,
        /// The server's message.
        problem: String,
        /// The objects that were applied and those that were not.
        progress: String,
    },
}

impl ManifestError {
    /// All of these as one; `Ok` if there is none. Whoever has fifty documents is not to try them fifty times.
    fn all(mut errors: Vec<ManifestError>) -> Result<(), ManifestError> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(ManifestError::Several(errors)),
        }
    }
}

/// Reads `sources`: files, directories (`*.yaml`, `*.yml`, `*.json` in the order of their names), and `-` for `stdin`.
/// One malformed document fails all of them.
pub fn read(sources: &[PathBuf], stdin: &mut dyn std::io::Read) -> Result<Manifests, ManifestError> {
    let mut found = Found::default();
    for source in sources {
        if source == Path::new("-") {
            let text = bounded(stdin, "standard input")?;
            find("standard input", &text, &mut found);
            continue;
        }
        for file in files(source)? {
            let name = file.display().to_string();
            let error = |error| ManifestError::Read { file: name.clone(), error };
            let mut open = std::fs::File::open(&file).map_err(error)?;
            let text = bounded(&mut open, &name)?;
            find(&name, &text, &mut found);
        }
    }
    let Found { objects: found, warnings, errors } = found;
    if !sources.is_empty() && found.is_empty() && errors.is_empty() {
        let sources =
            sources.iter().map(|source| source.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(ManifestError::Empty { sources });
    }
    Ok(Manifests { objects: without_duplicates(objects(found, served_kinds(), errors)?)?, warnings })
}

/// The files of a source.
fn files(source: &Path) -> Result<Vec<PathBuf>, ManifestError> {
    let name = source.display().to_string();
    let error = |error| ManifestError::Read { file: name.clone(), error };
    if name.starts_with("https://") || name.starts_with("http://") {
        let problem = format!("no URL is fetched; use `curl -fsSL {name} | windlass-sandbox -f -`");
        return Err(ManifestError::File { file: name, problem });
    }
    if !std::fs::metadata(source).map_err(error)?.is_dir() {
        return Ok(vec![source.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(source).map_err(error)? {
        let path = entry.map_err(error)?.path();
        let known = path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
        if known && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        let problem = "the directory has no *.yaml, *.yml or *.json file".to_owned();
        return Err(ManifestError::File { file: name, problem });
    }
    Ok(files)
}

fn bounded(from: &mut dyn std::io::Read, name: &str) -> Result<String, ManifestError> {
    let file = name.to_owned();
    windlass_manifest::text(from).map_err(|error| match error {
        SourceError::Unreadable(error) => ManifestError::Read { file, error },
        SourceError::TooLarge | SourceError::NotText(_) => {
            ManifestError::File { file, problem: error.to_string() }
        }
    })
}

/// Parses the documents of one text. `file` is its name in errors, `served` the kinds that the server has.
pub fn parse(file: &str, text: &str, served: Vec<ServedKind>) -> Result<Manifests, ManifestError> {
    let mut found = Found::default();
    find(file, text, &mut found);
    let Found { objects: found, warnings, errors } = found;
    Ok(Manifests { objects: objects(found, served, errors)?, warnings })
}

/// Looks the kinds of objects up: those that are served, and those that the objects themselves define. `errors` are those
/// before.
fn objects(
    found: Vec<ManifestObject>,
    all: Vec<ServedKind>,
    mut errors: Vec<ManifestError>,
) -> Result<Vec<Object>, ManifestError> {
    let mut kinds: Vec<Creatable> = all.into_iter().map(Creatable::from).collect();
    for found in found.iter().filter(|found| found.kind == "CustomResourceDefinition") {
        kinds.extend(defined(&found.body["spec"]));
    }
    // All of them at once: a manifest of fifty objects is not to be tried fifty times.
    let is_known = |found: &&ManifestObject| served(&kinds, &found.api_version, &found.kind).is_some();
    let mut unknown: Vec<&ManifestObject> = found.iter().filter(|found| !is_known(found)).collect();
    if let Some(first) = unknown.first() {
        let origin = first.origin.clone();
        let name = |found: &ManifestObject| format!("{:?} ({})", found.kind, found.api_version);
        let mut seen = BTreeSet::new();
        unknown.retain(|found| seen.insert(name(found)));
        let names: Vec<String> = unknown.into_iter().map(name).collect();
        let mut problem = format!(
            "unknown kind {}; the sandbox serves the built-in kinds of Kubernetes, and those that the manifests define",
            names.join(", ")
        );
        if names.iter().any(|name| name.starts_with("\"Kustomization\" (kustomize.config.k8s.io")) {
            problem.push_str("; use `kubectl kustomize DIR | windlass-sandbox -f -`");
        }
        errors.push(ManifestError::Document { origin, problem });
    }
    let known = found.into_iter().filter(|found| served(&kinds, &found.api_version, &found.kind).is_some());
    let mut objects = Vec::new();
    for ManifestObject { origin, body, api_version, kind } in known {
        match object(&origin, body, &api_version, &kind, &kinds) {
            Ok(object) => objects.push(object),
            Err(problem) => errors.push(ManifestError::Document { origin, problem }),
        }
    }
    ManifestError::all(errors).map(|()| objects)
}

/// The kinds that a CustomResourceDefinition defines: one for each served version. What is wrong with it, the server
/// says.
fn defined(spec: &Value) -> Vec<Creatable> {
    let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let versions = spec["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|version| version["served"] == true);
    let new = served.map(|version| Creatable {
        api_version: format!("{}/{}", text("/group"), version["name"].as_str().unwrap_or_default()),
        kind: text("/names/kind"),
        plural: text("/names/plural"),
        namespaced: text("/scope") != "Cluster",
        is_new: true,
    });
    new.collect()
}

/// As [`Manifests`], before the kinds are looked up.
#[derive(Default)]
struct Found {
    objects: Vec<ManifestObject>,
    warnings: Vec<String>,
    errors: Vec<ManifestError>,
}

fn find(file: &str, text: &str, all: &mut Found) {
    for (index, document) in windlass_manifest::documents(file, text).into_iter().enumerate() {
        let origin = Origin::new(file, index);
        let document = match document {
            Ok(document) => document,
            Err(problem) => {
                all.errors.push(ManifestError::Document { origin, problem });
                continue;
            }
        };
        all.warnings.extend(document.notes.iter().map(|note| format!("{origin}: {note}")));
        for object in windlass_manifest::expand(&origin, document.value) {
            match object {
                Ok(object) => all.objects.push(object),
                Err(Defect { origin, problem }) => {
                    all.errors.push(ManifestError::Document { origin, problem });
                }
            }
        }
    }
}

/// The kind that is meant, perhaps in another version. A Service of serving.knative.dev is no Service, and a Deployment of
/// extensions/v1beta1 is a Deployment.
fn served<'a>(all: &'a [Creatable], api_version: &str, kind: &str) -> Option<&'a Creatable> {
    let mut of_kind = all.iter().filter(|known| known.kind == kind);
    let group = |api_version: &str| api_version.split_once('/').map(|(group, _)| group.to_owned());
    let is_loose = matches!(group(api_version).as_deref(), None | Some("extensions" | "events.k8s.io"));
    let is_near = |known: &&Creatable| is_loose || group(&known.api_version) == group(api_version);
    let exact = of_kind.clone().find(|known| known.api_version == api_version);
    exact.or_else(|| of_kind.find(is_near))
}

/// Validates the type and metadata of an object and fills in the namespace.
fn object(
    origin: &Origin,
    mut body: Value,
    api_version: &str,
    kind: &str,
    all: &[Creatable],
) -> Result<Object, String> {
    let found = served(all, api_version, kind);
    let Some(Creatable { api_version: right, plural, namespaced, is_new, .. }) = found else {
        return Err(format!("unknown kind {kind:?} ({api_version})"));
    };
    if api_version != right {
        return Err(format!("the sandbox does not serve {kind} as apiVersion {api_version:?}; use {right}"));
    }
    let (plural, namespaced, is_of_new_kind) = (plural.clone(), *namespaced, *is_new);
    let metadata = match body.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata,
        Some(Value::Null) | None => return Err(format!("{kind}: metadata is missing")),
        Some(_) => return Err(format!("{kind}: metadata must be a mapping")),
    };
    let is_generated =
        metadata.get("generateName").and_then(Value::as_str).is_some_and(|prefix| !prefix.is_empty());
    match metadata.get("name") {
        Some(Value::String(name)) if !name.is_empty() => {}
        Some(Value::Null) | None if is_generated => {}
        Some(Value::String(_)) | Some(Value::Null) | None => {
            return Err(format!("{kind}: metadata.name is missing"));
        }
        Some(_) => return Err(format!("{kind}: metadata.name must be a string; quote it")),
    }
    match metadata.get("namespace") {
        Some(Value::String(namespace)) if !namespace.is_empty() && namespaced => {}
        Some(Value::String(_)) | Some(Value::Null) | None if namespaced => {
            metadata.insert("namespace".to_owned(), "default".into());
        }
        Some(Value::String(_)) | Some(Value::Null) | None => {
            metadata.remove("namespace");
        }
        Some(_) => return Err(format!("{kind}: metadata.namespace must be a string; quote it")),
    }
    Ok(Object { origin: origin.clone(), body, plural, namespaced, is_of_new_kind })
}

/// Merges identical objects, as with `-f dir -f dir/file`. Two definitions of an object that differ are an error: the
/// last one would silently win.
fn without_duplicates(objects: Vec<Object>) -> Result<Vec<Object>, ManifestError> {
    let mut unique: Vec<Object> = Vec::with_capacity(objects.len());
    let mut places = std::collections::BTreeMap::new();
    for object in objects {
        if object.name().is_empty() {
            // Each becomes an object of its own.
            unique.push(object);
            continue;
        }
        let (api_version, kind, namespace, name) = object.identity();
        let identity =
            (api_version.to_owned(), kind.to_owned(), namespace.map(str::to_owned), name.to_owned());
        let place = *places.entry(identity).or_insert(unique.len());
        match unique.get(place) {
            None => unique.push(object),
            Some(first) if first.body == object.body => {}
            Some(first) => {
                return Err(ManifestError::Refused {
                    object: object.to_string(),
                    problem: format!("conflicts with another definition of this object in {}", first.origin),
                    origin: object.origin,
                });
            }
        }
    }
    Ok(unique)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse("web.yaml", text, served_kinds()).expect_err("must be refused").to_string()
    }

    #[test]
    fn documents_and_lists_become_objects_with_a_namespace() {
        let text = "
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- {apiVersion: v1, kind: Namespace, metadata: {name: shop, namespace: ignored}}
---
---
apiVersion: apps/v1
kind: DeploymentList
items:
- metadata: {name: web, namespace: shop}
";
        let objects = parse("x.yaml", text, served_kinds()).unwrap().objects;
        let origins: Vec<String> = objects.iter().map(|o| format!("{} | {o}", o.origin)).collect();
        assert_eq!(
            origins,
            [
                "x.yaml: document 1, item 1 | ConfigMap default/a",
                "x.yaml: document 1, item 2 | Namespace shop",
                "x.yaml: document 3, item 1 | Deployment shop/web",
            ]
        );
        assert_eq!(objects[2].body["apiVersion"], "apps/v1");
    }

    #[test]
    fn all_faulty_documents_are_named_at_once() {
        // After a syntax error nobody can say where the next document begins.
        let text = "kind: Pod\n---\napiVersion: v1\nkind: Pot\nmetadata: {name: a}\n---\n\
                    apiVersion: v1\nkind: Pod\nmetadata: {name: 1}\n---\na: [\n";
        let said = refused(text);
        let parts = ["1: apiVersion is missing", "2: unknown kind", "3: Pod: metadata.name must be", "4: "];
        for part in parts.map(|part| format!("document {part}")) {
            assert!(said.contains(&part), "{part}: {said}");
        }
        assert_eq!(said.lines().count(), 4, "{said}");
    }

    #[test]
    fn a_name_may_be_left_to_the_server_and_is_another_each_time() {
        let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: load-}\n";
        let read = read(&["-".into()], &mut format!("{job}---\n{job}").as_bytes()).unwrap();
        assert_eq!(
            read.objects.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["Job default/load-*"; 2]
        );
    }

    #[test]
    fn what_kubectl_fetches_or_builds_is_answered_with_a_pipe() {
        let said = |source: &str| read(&[source.into()], &mut "".as_bytes()).unwrap_err().to_string();
        let url = "https://example.com/a.yaml";
        assert!(
            said(url).ends_with(&format!("use `curl -fsSL {url} | windlass-sandbox -f -`")),
            "{}",
            said(url)
        );
        let said = refused(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
        );
        assert!(said.ends_with("use `kubectl kustomize DIR | windlass-sandbox -f -`"), "{said}");
    }

    #[test]
    fn sources_without_an_object_are_an_error() {
        let error = read(&["-".into()], &mut "# nothing\n---\n".as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "no objects in -");
        assert!(read(&[], &mut "".as_bytes()).unwrap().objects.is_empty());
    }

    #[test]
    fn a_missing_field_is_named_with_file_and_document() {
        let second = |text: &str| {
            refused(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n---\n{text}"))
        };
        assert_eq!(second("kind: Pod\n"), "web.yaml: document 2: apiVersion is missing");
        assert_eq!(second("apiVersion: v1\n"), "web.yaml: document 2: kind is missing");
        assert_eq!(second("apiVersion: v1\nkind: Pod\n"), "web.yaml: document 2: Pod: metadata is missing");
        assert_eq!(
            second("apiVersion: v1\nkind: Pod\nmetadata: {labels: {}}\n"),
            "web.yaml: document 2: Pod: metadata.name is missing"
        );
        assert_eq!(
            second("apiVersion: v1\nkind: Pod\nmetadata: {name: 1}\n"),
            "web.yaml: document 2: Pod: metadata.name must be a string; quote it"
        );
        assert!(refused("- a\n- b\n").starts_with("web.yaml: document 1: not an object"));
        assert!(refused("just words\n").starts_with("web.yaml: document 1: not an object"));
    }

    #[test]
    fn the_error_for_an_old_api_version_names_the_new_one() {
        let error = refused("apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: web}\n");
        assert_eq!(
            error,
            "web.yaml: document 1: the sandbox does not serve Deployment as apiVersion \
                           \"apps/v1beta1\"; use apps/v1"
        );
    }

    #[test]
    fn a_kind_of_another_group_is_not_the_built_in_kind_of_its_name() {
        for (api_version, kind) in
            [("serving.knative.dev/v1", "Service"), ("crd.projectcalico.org/v1", "NetworkPolicy")]
        {
            let error = refused(&format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\n"));
            assert!(error.contains(&format!("unknown kind {kind:?} ({api_version})")), "{error}");
        }
        let error = refused("apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: a}\n");
        assert!(error.ends_with("use networking.k8s.io/v1"), "{error}");
    }

    #[test]
    fn all_unknown_kinds_are_named_at_once() {
        let document =
            |kind: &str| format!("apiVersion: example.com/v1\nkind: {kind}\nmetadata: {{name: web}}\n---\n");
        let error = refused(&["Shelf", "Shelf", "Rack"].map(document).concat());
        let names = "unknown kind \"Shelf\" (example.com/v1), \"Rack\" (example.com/v1);";
        assert!(error.contains(names), "{error}");
        assert_eq!(
            parse("x.yaml", "{apiVersion: batch/v1, kind: Job, metadata: {name: a}}", served_kinds())
                .unwrap()
                .objects
                .len(),
            1
        );
    }

    #[test]
    fn json_is_recognized_by_content_and_by_file_name() {
        let text = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}"#;
        assert_eq!(parse("a.json", text, served_kinds()).unwrap().objects.len(), 1);
        assert_eq!(
            parse("standard input", &format!("\u{feff}{text}\n{text}"), served_kinds())
                .unwrap()
                .objects
                .len(),
            2
        );
        assert_eq!(
            parse("a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", served_kinds())
                .unwrap()
                .objects
                .len(),
            1
        );
        let error = parse("a.json", "{\"apiVersion\": \"v1\",\n}", served_kinds()).unwrap_err().to_string();
        assert!(error.starts_with("a.json: document 1: ") && error.contains("line 2"), "{error}");
    }

    #[test]
    fn what_kubectl_takes_and_nobody_means_has_a_warning() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: a, x: b}\n";
        let Manifests { objects, warnings } = parse("a.yaml", text, served_kinds()).unwrap();
        assert_eq!(objects[0].body["data"]["x"], "b");
        let warning =
            "a.yaml: document 1: data: the key \"x\" occurs twice in one mapping; the last one counts";
        assert_eq!(warnings, [warning]);
    }

    #[test]
    fn a_directory_is_read_in_the_order_of_its_file_names() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, object: &str| {
            let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {object}}}\n");
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        write("b.yml", "second");
        write("a.yaml", "first");
        write("notes.txt", "none");
        let Manifests { objects, .. } = read(&[directory.path().to_owned()], &mut std::io::empty()).unwrap();
        let names: Vec<&str> = objects.iter().map(Object::name).collect();
        assert_eq!(names, ["first", "second"]);
    }

    #[test]
    fn errors_name_a_missing_file_and_an_empty_directory() {
        let missing = read(&[PathBuf::from("no/such.yaml")], &mut std::io::empty()).unwrap_err();
        assert!(missing.to_string().starts_with("no/such.yaml: "), "{missing}");
        let directory = tempfile::tempdir().unwrap();
        let empty = read(&[directory.path().to_owned()], &mut std::io::empty()).unwrap_err();
        assert!(empty.to_string().contains("has no *.yaml"), "{empty}");
        let binary = read(&[PathBuf::from("-")], &mut &b"a: \xff\xfe"[..]).unwrap_err();
        assert!(binary.to_string().starts_with("standard input: not a text file"), "{binary}");
    }

    #[test]
    fn identical_objects_are_merged_and_different_definitions_are_an_error() {
        let web = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let both = |second: &str| {
            let text = format!("{web}---\n{second}");
            read(&[PathBuf::from("-")], &mut text.as_bytes())
        };
        assert_eq!(both(web).unwrap().objects.len(), 1);
        let error = both("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: z}\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "standard input: document 2: ConfigMap default/a: \
             conflicts with another definition of this object in standard input: document 1"
        );
    }
}
