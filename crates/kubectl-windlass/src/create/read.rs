//! Reads a source and returns the objects in it.

use std::fs::File;

use windlass_manifest::{ManifestObject, Origin, SourceError, documents, expand};

use super::fetch::fetch;
use super::sources::Source;
use crate::interruption::on_a_thread;
use crate::output::Output;
use crate::text::harmless;

/// Returns the objects of a source in order, and a message for each document or item that is no object. A syntax error
/// ends the source. With `ends_at_defect`, so does a document that contains something else than objects; none of its
/// objects is returned then. Warnings are written at once.
pub async fn read(
    source: &Source,
    ends_at_defect: bool,
    output: &mut Output,
) -> Vec<Result<ManifestObject, String>> {
    let name = source.name();
    match text(source).await {
        Ok(text) => objects(&name, &text, ends_at_defect, &mut |origin, notes| output.warn_of(origin, notes)),
        Err(error) => vec![Err(format!("{name}: {error}"))],
    }
}

fn objects(
    name: &str,
    text: &str,
    ends_at_defect: bool,
    warn_of: &mut dyn FnMut(&Origin, &[String]),
) -> Vec<Result<ManifestObject, String>> {
    let mut all = Vec::new();
    for (index, document) in documents(name, text).into_iter().enumerate() {
        let origin = Origin::new(name, index);
        let objects = match document {
            Ok(document) => {
                warn_of(&origin, &document.notes);
                expand(&origin, document.value)
            }
            Err(problem) => {
                all.push(Err(format!("{origin}: {}", harmless(&problem))));
                break;
            }
        };
        let ends_here = ends_at_defect && objects.iter().any(Result::is_err);
        let taken = objects.into_iter().filter(|object| object.is_err() || !ends_here);
        all.extend(taken.map(|object| object.map_err(|defect| harmless(&defect.to_string()))));
        if ends_here {
            break;
        }
    }
    all
}

async fn text(source: &Source) -> Result<String, String> {
    match source {
        Source::Stdin => read_on_a_thread(|| windlass_manifest::text(&mut std::io::stdin())).await,
        Source::File(file) => {
            let file = file.clone();
            read_on_a_thread(move || windlass_manifest::text(&mut File::open(file)?)).await
        }
        Source::Url(url) => {
            let bytes = fetch(url).await?;
            windlass_manifest::text(&mut bytes.as_slice()).map_err(|error| error.to_string())
        }
    }
}

/// Reads so that Ctrl-C ends the program while a pipe blocks.
async fn read_on_a_thread(
    read: impl FnOnce() -> Result<String, SourceError> + Send + 'static,
) -> Result<String, String> {
    match on_a_thread(read).await {
        Some(text) => text.map_err(|error| error.to_string()),
        None => Err("the thread that reads it has ended".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, ends_at_defect: bool) -> Vec<String> {
        let shown =
            |object: Result<ManifestObject, String>| object.map_or_else(|error| error, |found| found.kind);
        objects("a.yaml", text, ends_at_defect, &mut |_, _| {}).into_iter().map(shown).collect()
    }

    #[test]
    fn a_defect_ends_its_source_where_objects_are_validated() {
        let text = "apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: \
                    Secret}\n- {kind: X}\n---\napiVersion: v1\nkind: ConfigMap\n";
        let defect = "a.yaml: document 2, item 2: apiVersion is missing";
        assert_eq!(read(text, true), ["Pod", defect]);
        assert_eq!(read(text, false), ["Pod", "Secret", defect, "ConfigMap"]);
    }

    #[test]
    fn a_syntax_error_ends_its_source_always() {
        let text = "apiVersion: v1\nkind: Pod\n---\na: [\n---\napiVersion: v1\nkind: ConfigMap\n";
        for ends_at_defect in [true, false] {
            let read = read(text, ends_at_defect);
            assert!(read.len() == 2 && read[1].starts_with("a.yaml: document 2: "), "{read:?}");
        }
    }
}
