//! Objects as they are printed, each as soon as it is there.

use serde::Serialize as _;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

use super::object::{escaped, reference};
use crate::cli::{DryRun, ObjectFormat};
use crate::exit::CommandError;
use crate::text::escape_invisible;

/// How objects are printed.
#[derive(Debug)]
pub struct Printer {
    format: Option<ObjectFormat>,
    dry_run: DryRun,
    shows_managed_fields: bool,
    is_first: bool,
}

impl Printer {
    /// For a command with these flags.
    pub fn new(format: Option<ObjectFormat>, dry_run: DryRun, shows_managed_fields: bool) -> Self {
        Printer { format, dry_run, shows_managed_fields, is_first: true }
    }

    /// The text for the next object.
    ///
    /// # Errors
    /// When the object cannot be written in this format.
    pub fn next(&mut self, mut body: Value) -> Result<String, CommandError> {
        let is_first = std::mem::take(&mut self.is_first);
        if !self.shows_managed_fields
            && let Some(metadata) = body["metadata"].as_object_mut()
        {
            metadata.remove("managedFields");
        }
        let name = reference(&body);
        let unprintable =
            |error: String| CommandError::Argument(format!("{name} cannot be printed: {error}"));
        Ok(match self.format {
            None => {
                let suffix = match self.dry_run {
                    DryRun::None => "",
                    DryRun::Client => " (dry run)",
                    DryRun::Server => " (server dry run)",
                };
                format!("{name} created{suffix}\n")
            }
            Some(ObjectFormat::Name) => format!("{name}\n"),
            Some(ObjectFormat::Json) => {
                let mut text = Vec::new();
                let mut writer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b"    "));
                body.serialize(&mut writer).map_err(|error| unprintable(error.to_string()))?;
                escape_invisible(&escaped(&String::from_utf8_lossy(&text))) + "\n"
            }
            Some(ObjectFormat::Yaml) => {
                let text = serde_saphyr::to_string(&body).map_err(|error| unprintable(error.to_string()))?;
                let mark = if is_first { "" } else { "---\n" };
                format!("{mark}{}\n", text.trim_end())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed(format: Option<ObjectFormat>, dry_run: DryRun, shows_managed_fields: bool) -> String {
        let mut printer = Printer::new(format, dry_run, shows_managed_fields);
        let body = |name: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "managedFields": []},
                   "data": {"x": "a<b"}})
        };
        ["a", "b"].into_iter().map(|name| printer.next(body(name)).unwrap()).collect()
    }

    #[test]
    fn a_line_says_what_was_done_and_a_name_does_not() {
        assert_eq!(printed(None, DryRun::None, false), "configmap/a created\nconfigmap/b created\n");
        assert!(printed(None, DryRun::Client, false).starts_with("configmap/a created (dry run)\n"));
        assert!(printed(None, DryRun::Server, false).starts_with("configmap/a created (server dry run)\n"));
        assert_eq!(printed(Some(ObjectFormat::Name), DryRun::Server, false), "configmap/a\nconfigmap/b\n");
    }

    #[test]
    fn objects_follow_each_other_as_kubectl_prints_them() {
        let json = printed(Some(ObjectFormat::Json), DryRun::None, false);
        let first = "{\n    \"apiVersion\": \"v1\",\n    \"data\": {\n        \"x\": \"a\\u003cb\"\n    },\n    \
                     \"kind\": \"ConfigMap\",\n    \"metadata\": {\n        \"name\": \"a\"\n    }\n}\n";
        assert_eq!(json, first.to_owned() + &first.replace("\"a\"", "\"b\""));
        let yaml = printed(Some(ObjectFormat::Yaml), DryRun::None, true);
        assert_eq!(yaml.matches("---\n").count(), 1, "{yaml}");
        assert!(yaml.starts_with("apiVersion: v1\n") && yaml.contains("managedFields"), "{yaml}");
    }
}
