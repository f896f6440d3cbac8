//! The reports of an update, as sentences or as a stream of JSON objects, one a line.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::Api;
use crate::cli::UpdateOutput;
use crate::exit::CommandError;
use crate::output::Output;

/// How long the update may wait for one reason before the client says so.
pub(super) const REPORT_WAIT_AFTER: Duration = Duration::from_secs(5);

/// Reports on one update.
pub(super) struct Reporter<'a> {
    output: &'a mut Output,
    format: UpdateOutput,
    api: &'a Api,
    old: String,
    new: Option<String>,
    /// The reason that the update waits for, since when, and whether that was said.
    waits_for: (String, Instant, bool),
}

impl<'a> Reporter<'a> {
    /// For the update of this controller.
    pub(super) fn new(output: &'a mut Output, format: UpdateOutput, api: &'a Api, old: &str) -> Self {
        Reporter {
            output,
            format,
            api,
            old: old.to_owned(),
            new: None,
            waits_for: (String::new(), Instant::now(), true),
        }
    }

    /// The name of NEW, once it is known.
    pub(super) fn set_new(&mut self, new: &str) {
        self.new = Some(new.to_owned());
    }

    /// Reports what has happened: `text` for people; for programs its type, and more fields.
    ///
    /// # Errors
    /// When the reader is gone.
    pub(super) fn event(&mut self, kind: &str, text: &str, more: Value) -> Result<(), CommandError> {
        if self.format != UpdateOutput::Json {
            return self.output.line(text);
        }
        self.object(kind, text, more)
    }

    /// The same for programs only.
    ///
    /// # Errors
    /// When the reader is gone.
    pub(super) fn object(&mut self, kind: &str, text: &str, more: Value) -> Result<(), CommandError> {
        if self.format != UpdateOutput::Json {
            return Ok(());
        }
        let mut event = json!({
            "time": self.api.now().to_string(), "type": kind, "namespace": self.api.namespace, "name": self.old,
            "new": self.new, "message": text,
        });
        if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
            event.extend(more);
        }
        self.output.line(&crate::text::json(&event))
    }

    /// Notes what the update waits for, once for each reason that lasts, or at once. Empty while it goes on.
    ///
    /// # Errors
    /// When the reader is gone.
    pub(super) fn waits_for(&mut self, reason: &str, at_once: bool) -> Result<(), CommandError> {
        if self.waits_for.0 != reason {
            self.waits_for = (reason.to_owned(), Instant::now(), reason.is_empty());
        }
        let (_, since, is_said) = self.waits_for;
        if !is_said && (at_once || since.elapsed() >= REPORT_WAIT_AFTER) {
            self.waits_for.2 = true;
            self.note(&format!("note: {reason}"));
            self.object("Waiting", reason, json!({}))?;
        }
        Ok(())
    }

    /// Reports the end: `what` has become of the controller that survives.
    ///
    /// # Errors
    /// When the reader is gone.
    pub(super) fn end(&mut self, kind: &str, survivor: &str, what: &str) -> Result<(), CommandError> {
        let name = format!("replicationcontroller/{survivor}");
        match self.format {
            UpdateOutput::Name => self.output.line(&name),
            UpdateOutput::Text | UpdateOutput::Json => {
                self.event(kind, &format!("{name} {what}"), json!({"survivor": survivor}))
            }
        }
    }

    /// Reports an end that was not wanted, as an error and for programs.
    ///
    /// # Errors
    /// When the reader is gone.
    pub(super) fn failed(&mut self, kind: &str, text: &str) -> Result<(), CommandError> {
        self.output.error(text);
        self.object(kind, text, json!({}))
    }

    /// Writes what a dry run would do.
    ///
    /// # Errors
    /// When the reader is gone.
    pub(super) fn dry_run(
        &mut self,
        text: &str,
        old: &Value,
        new: Option<&Value>,
    ) -> Result<(), CommandError> {
        match self.format {
            UpdateOutput::Json => {
                self.output.line(&crate::text::pretty_json(&json!({"old": old, "new": new})))
            }
            UpdateOutput::Text | UpdateOutput::Name => self.output.line(&format!("{text} (dry run)")),
        }
    }

    /// Notes something on stderr.
    pub(super) fn note(&mut self, note: &str) {
        self.output.note(note);
    }
}
