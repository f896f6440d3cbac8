//! `create`: creates the objects of manifests, as `kubectl create -f` does.
//!
//! The command reads one source after the other and sends its objects before it reads the next. It continues after a
//! refused object and reports all errors at the end. It never repeats a POST: a lost reply must not become a second object.

mod check_first;
mod fetch;
mod kinds;
mod object;
mod print;
mod read;
mod report;
mod sources;

use std::collections::BTreeSet;
use std::io::IsTerminal as _;

use serde_json::Value;
use windlass::config::parse_selector;
use windlass::model::Selector;
use windlass::runtime::request;
use windlass_manifest::{ManifestObject, Origin};

use crate::api::{Answer, Api, ApiError};
use crate::cli::{CreateArgs, DryRun, GlobalArgs, Validate};
use crate::connection::connect_with;
use crate::exit::{CommandError, Exit};
use crate::output::Output;
use crate::text::harmless;
use crate::write::{self, Creation};
use kinds::Kinds;
use object::{Namespace, Preparation};
use print::Printer;
use sources::Source;

/// Runs `create`.
///
/// # Errors
/// For a wrong command line, without a usable kubeconfig, and when the reader of the output is gone. Objects that cannot
/// be created are reported on stderr.
pub async fn run(global: &GlobalArgs, args: CreateArgs, output: &mut Output) -> Result<Exit, CommandError> {
    args.check().map_err(CommandError::Usage)?;
    let selector =
        args.selector.as_deref().filter(|text| !text.trim().is_empty()).map(parse_selector).transpose();
    let selector = selector.map_err(|reason| CommandError::Usage(format!("--selector: {reason}")))?;
    let sources = match sources::resolve(&args.filename, args.recursive) {
        Ok(sources) => sources,
        Err(errors) => {
            errors.iter().for_each(|error| output.error(error));
            return Ok(Exit::Error);
        }
    };
    let (dry_run, deprecated) = args.dry_run.meaning();
    if let Some(spelling) = deprecated {
        let new = if dry_run == DryRun::None { "none" } else { "client" };
        output.note(&format!("warning: {spelling} is deprecated: write --dry-run={new}"));
    }
    if args.record {
        output.note("warning: --record is deprecated: set the annotation kubernetes.io/change-cause instead");
    }
    let reads_stdin = sources.contains(&Source::Stdin);
    if reads_stdin && std::io::stdin().is_terminal() {
        output.note("note: reading manifests from the terminal; end them with Ctrl-D");
    }
    let connection = connect_with(global, &|name| std::env::var(name).ok(), reads_stdin).await?;
    let is_enforced = connection.namespace_is_enforced;
    let api = Api::new(connection, global.request_timeout);
    let mut run = Run {
        is_enforced,
        selector,
        dry_run,
        change_cause: args.record.then(|| args.command_line(global)),
        kinds: Kinds::default(),
        printer: Printer::new(args.output, dry_run, args.show_managed_fields),
        warned: BTreeSet::new(),
        defined: Vec::new(),
        failures: Vec::new(),
        passed: 0,
        api: &api,
        args: &args,
    };
    let ended = match run.check_server(output).await {
        Ok(()) if args.check_first => run.all_at_once(&sources, output).await,
        Ok(()) => run.one_by_one(&sources, output).await,
        Err(stop) => Err(stop),
    };
    run.failures.iter().for_each(|failure| output.error(failure));
    match ended {
        Ok(()) | Err(Stop::Checked) if !run.failures.is_empty() => Ok(Exit::Error),
        Ok(()) | Err(Stop::Checked) if run.passed == 0 => {
            let empty = "no object to create: the sources contain none, or --selector matches none";
            Err(CommandError::Argument(empty.to_owned()))
        }
        Ok(()) | Err(Stop::Checked) => Ok(Exit::Success),
        Err(Stop::Unreachable(text)) => Err(CommandError::Argument(text)),
        Err(Stop::Command(error)) => Err(error),
    }
}

/// Why no further object is tried.
enum Stop {
    /// The check of `--check-first` has failed.
    Checked,
    /// The server does not answer, or does not accept the credentials.
    Unreachable(String),
    Command(CommandError),
}

impl From<CommandError> for Stop {
    fn from(error: CommandError) -> Self {
        Stop::Command(error)
    }
}

/// An object that can be sent.
#[derive(Clone)]
struct Ready {
    origin: Origin,
    api_version: String,
    plural: String,
    body: Value,
}

impl Ready {
    /// The path of its collection.
    fn path(&self) -> String {
        let Ready { origin: _, api_version, plural, body } = self;
        let prefix = if api_version.contains('/') { "/apis" } else { "/api" };
        match body["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{prefix}/{api_version}/namespaces/{namespace}/{plural}"),
            None => format!("{prefix}/{api_version}/{plural}"),
        }
    }

    fn reference(&self) -> String {
        object::reference(&self.body)
    }
}

struct Run<'a> {
    api: &'a Api,
    args: &'a CreateArgs,
    is_enforced: bool,
    selector: Option<Selector>,
    dry_run: DryRun,
    change_cause: Option<String>,
    kinds: Kinds,
    printer: Printer,
    /// The specs of the CustomResourceDefinitions that were created.
    defined: Vec<Value>,
    /// The warnings of the server that were printed.
    warned: BTreeSet<String>,
    failures: Vec<String>,
    /// How many objects were created or would be.
    passed: usize,
}

impl Run<'_> {
    /// Servers before 1.25 ignore `fieldValidation`. kubectl then validates by their schemas; this command refuses.
    async fn check_server(&mut self, output: &mut Output) -> Result<(), Stop> {
        if self.args.validate == Validate::Ignore {
            return Ok(());
        }
        let version =
            match self.api.send("cannot read the server's version", request::get("/version", &[])).await {
                Ok(version) => version,
                Err(ApiError::Unanswered { message, .. }) => {
                    return Err(Stop::Unreachable(report::unreachable(&message)));
                }
                // Without the right to read the version, assume a supported one.
                Err(ApiError::Refused { .. }) => return Ok(()),
            };
        if !is_before_field_validation(&version) {
            return Ok(());
        }
        let old = "the API server is older than 1.25 and cannot validate fields";
        match self.args.validate {
            Validate::Strict => Err(Stop::Unreachable(format!("{old}: use --validate=ignore"))),
            Validate::Warn | Validate::Ignore => {
                output.note(&format!("warning: {old}: unknown fields are dropped without a warning"));
                Ok(())
            }
        }
    }

    /// Whether a document that is no object ends its source. kubectl validates documents before it decodes them, and a
    /// validation error ends the file; with `--validate=ignore` it continues.
    fn ends_at_defect(&self) -> bool {
        self.args.validate != Validate::Ignore
    }

    /// Creates the objects of a source before the next is read.
    async fn one_by_one(&mut self, sources: &[Source], output: &mut Output) -> Result<(), Stop> {
        for source in sources {
            for found in read::read(source, self.ends_at_defect(), output).await {
                match found {
                    Err(failure) => self.failures.push(failure),
                    Ok(found) => {
                        if let Some(ready) = self.ready(found).await? {
                            self.create(ready, output).await?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks up the kind of an object and makes it ready; `None` if it is not selected or a failure is noted.
    async fn ready(&mut self, found: ManifestObject) -> Result<Option<Ready>, Stop> {
        let ManifestObject { origin, mut body, api_version, kind } = found;
        let (shown, version) = (harmless(&kind), harmless(&api_version));
        let found = match self.is_defined(&api_version, &kind) {
            true => self.kinds.find_new(self.api, &api_version, &kind).await,
            false => self.kinds.find(self.api, &api_version, &kind).await,
        };
        let resource = match found {
            Ok(Some(resource)) => resource,
            Ok(None) => {
                let (hint, name) =
                    (self.kinds.hint(self.api, &api_version).await, object::name_and_namespace(&body));
                self.failures
                    .push(format!("{origin}: the server has no kind {shown} in {version}{name}; {hint}"));
                return Ok(None);
            }
            Err(ApiError::Unanswered { message, .. }) => {
                return Err(Stop::Unreachable(report::unreachable(&message)));
            }
            Err(error) => {
                let failure = report::failure(&origin, &format!("{shown} of {version}"), &error);
                if error.code() == Some(401) {
                    return Err(Stop::Unreachable(failure));
                }
                self.failures.push(failure);
                return Ok(None);
            }
        };
        let how = Preparation {
            namespace: Namespace { name: &self.api.namespace, is_enforced: self.is_enforced },
            keeps_config: self.args.save_config,
            change_cause: self.change_cause.as_deref(),
        };
        if self.selector.as_ref().is_some_and(|selector| !object::is_selected(selector, &body)) {
            return Ok(None);
        }
        if let Err(problem) = object::prepare(&mut body, resource.is_namespaced, how) {
            self.failures.push(format!("{origin}: {}", harmless(&problem)));
            return Ok(None);
        }
        Ok(Some(Ready { origin, api_version, plural: resource.plural, body }))
    }

    /// Whether this run has created the definition of a kind.
    fn is_defined(&self, api_version: &str, kind: &str) -> bool {
        let is_it = |spec: &Value| {
            let versions = spec["versions"].as_array().into_iter().flatten();
            let mut served = versions.filter(|version| version["served"] == true);
            let of =
                |version: &Value| Some(format!("{}/{}", spec["group"].as_str()?, version["name"].as_str()?));
            spec["names"]["kind"] == kind && served.any(|version| of(version).as_deref() == Some(api_version))
        };
        self.defined.iter().any(is_it)
    }

    async fn send(&self, ready: &Ready, dry_run: bool) -> Result<Answer, ApiError> {
        let creation = Creation {
            manager: &self.args.field_manager,
            field_validation: self.args.validate.directive(),
            dry_run,
        };
        write::create_as(self.api, &ready.reference(), &ready.path(), &ready.body, creation).await
    }

    async fn create(&mut self, ready: Ready, output: &mut Output) -> Result<(), Stop> {
        if self.dry_run == DryRun::Client {
            self.passed += 1;
            output.text(&self.printer.next(ready.body)?)?;
            return Ok(());
        }
        let sent = match self.send(&ready, self.dry_run == DryRun::Server).await {
            Err(ApiError::Unanswered { message, .. }) if self.dry_run == DryRun::None => {
                match self.find_lost(&ready, &message).await {
                    Ok(object) => {
                        let name = object::reference(&object);
                        output.note(&format!(
                            "note: {name}: the reply was lost ({message}); the object exists with the content that was sent"
                        ));
                        Ok(Answer { object, warnings: Vec::new() })
                    }
                    Err(text) => {
                        self.failures.push(text);
                        return Ok(());
                    }
                }
            }
            sent => sent,
        };
        match sent {
            Ok(answer) => {
                self.warn(&answer, output);
                self.passed += 1;
                if self.dry_run == DryRun::None && answer.object["kind"] == "CustomResourceDefinition" {
                    self.defined.push(answer.object["spec"].clone());
                }
                output.text(&self.printer.next(answer.object)?)?;
            }
            Err(error) => {
                self.failures.push(report::failure(&ready.origin, &ready.reference(), &error));
            }
        }
        Ok(())
    }

    /// Reads an object whose POST got no reply, and compares it with what was sent.
    async fn find_lost(&self, ready: &Ready, reason: &str) -> Result<Value, String> {
        let (body, reference) = (&ready.body, ready.reference());
        let unknown = format!("{}: {reference}: {}", ready.origin, report::unreachable(reason));
        let name = body["metadata"]["name"].as_str().filter(|name| !name.is_empty() && !name.contains('/'));
        let Some(name) = name else {
            return Err(format!(
                "{unknown}; check whether an object with this generateName was created before you run this again"
            ));
        };
        match self.api.get(&reference, &format!("{}/{name}", ready.path())).await {
            Ok(Some(there)) if object::contains(&there, body) => Ok(there),
            Ok(Some(_)) => Err(format!("{unknown}; an object of this name exists with different content")),
            Ok(None) => Err(format!("{unknown}; it was not created")),
            Err(_) => Err(format!("{unknown}; whether it was created is not known")),
        }
    }

    /// Prints the server's warnings, each once.
    fn warn(&mut self, answer: &Answer, output: &mut Output) {
        for warning in &answer.warnings {
            if self.warned.insert(warning.clone()) {
                output.note(&format!("Warning: {}", harmless(warning)));
            }
        }
    }
}

/// Judges the answer of `/version`. A server without a readable version counts as supported.
fn is_before_field_validation(version: &Value) -> bool {
    let number = |field: &str| {
        let digits = version[field].as_str()?.trim_end_matches(|c: char| !c.is_ascii_digit());
        digits.parse::<u32>().ok()
    };
    matches!((number("major"), number("minor")), (Some(1), Some(0..25)) | (Some(0), Some(_)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_server_that_says_so_is_too_old_to_validate() {
        let is_old =
            |major: &str, minor: &str| is_before_field_validation(&json!({"major": major, "minor": minor}));
        assert!(is_old("1", "24") && is_old("1", "24+") && is_old("1", "9"));
        assert!(!is_old("1", "25") && !is_old("1", "36+") && !is_old("2", "0"));
        assert!(!is_old("", "") && !is_before_field_validation(&json!({})));
    }
}
