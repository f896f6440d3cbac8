//! The manifest of NEW.

use serde_json::Value;
use windlass_manifest::Origin;

use super::refused;
use crate::exit::CommandError;
use crate::interruption::on_a_thread;
use crate::output::Output;
use crate::text::harmless;

/// Reads the one object of a file, or of stdin.
pub(super) async fn read_file(file: &str, output: &mut Output) -> Result<Value, CommandError> {
    let wrong = |problem: String| refused(format!("-f {file}: {problem}"));
    let path = file.to_owned();
    let text = on_a_thread(move || {
        if path == "-" {
            windlass_manifest::text(&mut std::io::stdin())
        } else {
            windlass_manifest::text(&mut std::fs::File::open(path)?)
        }
    });
    let text = text.await.ok_or_else(|| wrong("the thread that reads it has ended".to_owned()))?;
    let text = text.map_err(|error| wrong(error.to_string()))?;
    let mut objects = Vec::new();
    for (index, document) in windlass_manifest::documents(file, &text).into_iter().enumerate() {
        let document = document.map_err(|problem| wrong(harmless(&problem)))?;
        output.warn_of(&Origin::new(file, index), &document.notes);
        objects.push(document.value);
    }
    objects.retain(|object| !object.is_null());
    match (objects.pop(), objects.len()) {
        (Some(object), 0) if object.is_object() => Ok(object),
        (None, _) => Err(wrong("no object; a rolling update needs one ReplicationController".to_owned())),
        (Some(_), 0) => Err(wrong("not an object".to_owned())),
        (Some(_), more) => Err(wrong(format!("{} objects; a rolling update needs exactly one", more + 1))),
    }
}
