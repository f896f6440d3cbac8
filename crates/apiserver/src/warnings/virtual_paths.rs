//! Files of a volume that hide each other: the later one wins, or none can be written.

use serde_json::{Map, Value};

use super::{Warnings, text};

/// A file, and where it is from if the volume has several sources.
#[derive(Clone, PartialEq)]
struct File {
    path: String,
    source: String,
}

impl File {
    fn shown(&self) -> String {
        match self.source.as_str() {
            "" => format!("{:?}", self.path),
            source => format!("{:?} ({source})", self.path),
        }
    }

    fn overlaps(&self, other: &File) -> bool {
        let (own, other) = (format!("{}/", self.path), format!("{}/", other.path));
        own.starts_with(&other) || other.starts_with(&own)
    }
}

pub(super) fn overlaps(spec: &Value, warnings: &mut Warnings) {
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let name = text(volume, "name");
        let sources = [
            ("configMap", format!("ConfigMap {:?}", text(&volume["configMap"], "name"))),
            ("secret", format!("Secret {:?}", text(&volume["secret"], "secretName"))),
            ("downwardAPI", "DownwardAPI".to_owned()),
        ];
        for (field, shown) in sources {
            judge(name, &shown, files(&volume[field], ""), warnings);
        }
        let projected = volume["projected"]["sources"].as_array().into_iter().flatten();
        for _ in projected.clone().filter(|source| source.as_object().is_none_or(Map::is_empty)) {
            warnings.add(format!("volume {name:?} (Projected) has no sources provided"));
        }
        judge(name, "Projected", projected.flat_map(projection).collect(), warnings);
    }
}

/// The files of one source of a projected volume.
fn projection(source: &Value) -> Vec<File> {
    let single = |field: &str, kind: &str| {
        let path = text(&source[field], "path").to_owned();
        vec![File { path, source: kind.to_owned() }]
    };
    for (field, kind) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        if source[field].is_object() {
            return files(&source[field], &format!("{kind} {:?}", text(&source[field], "name")));
        }
    }
    if source["downwardAPI"].is_object() {
        return files(&source["downwardAPI"], "DownwardAPI");
    }
    if source["serviceAccountToken"].is_object() {
        return single("serviceAccountToken", "ServiceAccountToken");
    }
    Vec::new()
}

fn files(source: &Value, shown: &str) -> Vec<File> {
    let items = source["items"].as_array().into_iter().flatten();
    let file = |item: &Value| File { path: text(item, "path").to_owned(), source: shown.to_owned() };
    items.map(file).collect()
}

fn judge(volume: &str, kind: &str, files: Vec<File>, warnings: &mut Warnings) {
    let mut seen: Vec<File> = Vec::new();
    for mut file in files {
        file.path.truncate(file.path.trim_end_matches('/').len());
        let clash = |other: &&File| !file.path.is_empty() && !other.path.is_empty() && file.overlaps(other);
        for other in seen.iter().filter(clash) {
            let (file, other) = (file.shown(), other.shown());
            warnings.add(format!("volume {volume:?} ({kind}): overlapping paths: {file} with {other}"));
        }
        seen.push(file);
    }
}
