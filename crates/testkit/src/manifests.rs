//! The manifests that ship, as objects.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_manifest::{Document, document};

/// The objects in a text of YAML documents. What kubectl takes and nobody means, such as a key that occurs twice, is a fault.
pub fn objects(text: &str) -> Vec<Value> {
    let value = |Document { value, notes }| {
        assert!(notes.is_empty(), "{notes:?}");
        value
    };
    document::yaml(text).into_iter().map(Result::unwrap).map(value).filter(|value| !value.is_null()).collect()
}

/// The one object of a YAML text, whatever it is.
pub fn object(text: &str) -> Value {
    let mut objects = objects(text);
    assert_eq!(objects.len(), 1, "{objects:?}");
    objects.remove(0)
}

/// Those of a file of this repository.
pub fn file(path: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    objects(&text)
}

/// The path that takes new objects of this kind.
pub fn collection(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]).to_lowercase());
    let plural = kind.strip_suffix('y').map_or(format!("{kind}s"), |stem| format!("{stem}ies"));
    let root = if version.contains('/') { "apis" } else { "api" };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/{root}/{version}/{plural}"),
    }
}

/// The manifests in a folder.
pub fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_manifest = |path: &PathBuf| {
        path.extension().is_some_and(|it| it == "yaml") && !path.ends_with("kustomization.yaml")
    };
    let mut files: Vec<PathBuf> = paths.filter(is_manifest).collect();
    files.sort();
    files
}

/// The manifests that the chart renders for each of its files of values, by their names, if `WINDLASS_RENDERED` names
/// the folder that `.ci/chart check` has filled.
pub fn rendered() -> Vec<(String, Vec<Value>)> {
    let Some(folder) = std::env::var_os("WINDLASS_RENDERED") else { return Vec::new() };
    let files = yaml_files(Path::new(&folder));
    assert!(files.len() > 20, "{} has only {} files", folder.display(), files.len());
    let named = |file: &PathBuf| file.file_stem().unwrap().to_string_lossy().into_owned();
    files.iter().map(|file| (named(file), objects(&fs::read_to_string(file).unwrap()))).collect()
}
