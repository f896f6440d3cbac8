//! The query parameters of list, watch and write requests, parsed once.

use axum::extract::Query;
use http::{Method, Uri};
use jiff::Timestamp;

use super::status::Failure;
use super::validate::FieldError;

/// `fieldValidation`: what happens to fields that the kind does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Strict,
    /// The default of a request that does not say.
    #[default]
    Warn,
    Ignore,
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    Exact,
    NotOlderThan,
}

/// The form of a table's rows by `includeObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

/// All parameters of one request; absent ones have their default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    pub(crate) watch: bool,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    /// "", "0" or a revision, as sent.
    pub(crate) resource_version: Option<u64>,
    /// Why the revision cannot be read. The verb decides about the failure.
    pub(crate) bad_version: Option<String>,
    pub(crate) resource_version_match: Option<Match>,
    /// 0 is no limit.
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) allow_watch_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) field_validation: FieldValidation,
    pub(crate) dry_run: bool,
    pub(crate) propagation_policy: Option<String>,
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) include: Include,
    /// The name of the writer in `managedFields`.
    pub(crate) field_manager: String,
    /// Whether an apply takes what others own.
    pub(crate) force: Option<bool>,
    /// Whether JSON is indented. Without it the program of the client decides.
    pub(crate) pretty: Option<bool>,
    /// Whether a health check names its parts.
    pub(crate) verbose: bool,
    pub(crate) log: LogOptions,
}

/// The parameters of the log of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogOptions {
    pub(crate) container: String,
    pub(crate) previous: bool,
    pub(crate) timestamps: bool,
    pub(crate) tail: Option<usize>,
    /// Lines of this many last seconds.
    pub(crate) since_seconds: Option<i64>,
    /// Lines since then.
    pub(crate) since_time: Option<Timestamp>,
    /// No more bytes than this.
    pub(crate) limit_bytes: Option<i64>,
}

impl Params {
    /// Unknown parameters are ignored.
    pub(crate) fn parse(method: &Method, uri: &Uri) -> Result<Self, Failure> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Failure::bad_request(format!("invalid query: {error}")))?;
        let mut params = Params::default();
        for (name, value) in pairs {
            params.set(method, &name, value)?;
        }
        Ok(params)
    }

    fn set(&mut self, method: &Method, name: &str, value: String) -> Result<(), Failure> {
        match name {
            "watch" => self.watch = boolean(&value),
            "labelSelector" => self.label_selector = value,
            "fieldSelector" => self.field_selector = value,
            "resourceVersion" if value.is_empty() => self.resource_version = None,
            "resourceVersion" => match value.parse() {
                Ok(version) => self.resource_version = Some(version),
                Err(_) => {
                    let why = no_number("ParseUint", &value);
                    self.bad_version = Some(format!("resourceVersion: Invalid value: {value:?}: {why}"));
                }
            },
            "resourceVersionMatch" => {
                self.resource_version_match = match value.as_str() {
                    "" => None,
                    "Exact" => Some(Match::Exact),
                    "NotOlderThan" => Some(Match::NotOlderThan),
                    other => {
                        return Err(unsupported("ListOptions", name, other, &["Exact", "NotOlderThan", ""]));
                    }
                }
            }
            "container" => self.log.container = value,
            "previous" => self.log.previous = boolean(&value),
            "timestamps" => self.log.timestamps = boolean(&value),
            "tailLines" => self.log.tail = Some(number(&value)?),
            "sinceSeconds" => self.log.since_seconds = Some(number(&value)?),
            "limitBytes" => self.log.limit_bytes = Some(number(&value)?),
            "sinceTime" => self.log.since_time = value.parse().ok(),
            // Upstream takes less than nothing as no limit.
            "limit" => self.limit = number::<i64>(&value)?.try_into().unwrap_or_default(),
            "continue" => self.continue_token = value,
            "allowWatchBookmarks" => self.allow_watch_bookmarks = boolean(&value),
            "sendInitialEvents" => self.send_initial_events = Some(boolean(&value)),
            "timeoutSeconds" => self.timeout_seconds = Some(number(&value)?),
            "fieldValidation" => {
                self.field_validation = match value.as_str() {
                    "" | "Warn" => FieldValidation::Warn,
                    "Strict" => FieldValidation::Strict,
                    "Ignore" => FieldValidation::Ignore,
                    other => {
                        let known = &["Ignore", "Strict", "Warn"];
                        return Err(unsupported(options_of(method), name, other, known));
                    }
                }
            }
            "dryRun" if value != "All" && !method.is_safe() => {
                // Upstream shows the whole list.
                let shown = format!("[{value:?}]");
                return Err(unsupported_shown(options_of(method), name, &shown, &["All"]));
            }
            "dryRun" => self.dry_run = true,
            "propagationPolicy" => self.propagation_policy = Some(value),
            "gracePeriodSeconds" => self.grace_period_seconds = Some(number(&value)?),
            "orphanDependents" => self.orphan_dependents = Some(boolean(&value)),
            "includeObject" => {
                self.include = match value.as_str() {
                    "" | "Metadata" => Include::Metadata,
                    "None" => Include::None,
                    "Object" => Include::Object,
                    other => {
                        return Err(unsupported(
                            "TableOptions",
                            name,
                            other,
                            &["Metadata", "None", "Object"],
                        ));
                    }
                }
            }
            "fieldManager" => self.field_manager = value,
            "force" => self.force = Some(boolean(&value)),
            "pretty" => self.pretty = Some(boolean(&value)),
            "verbose" => self.verbose = true,
            _ => {}
        }
        Ok(())
    }
}

/// The kind that has the parameters of a write.
fn options_of(method: &Method) -> &'static str {
    match *method {
        Method::POST => "CreateOptions",
        Method::PATCH => "PatchOptions",
        Method::DELETE => "DeleteOptions",
        _ => "UpdateOptions",
    }
}

fn unsupported(what: &str, field: &str, value: &str, supported: &[&str]) -> Failure {
    unsupported_shown(what, field, &format!("\"{value}\""), supported)
}

fn unsupported_shown(what: &str, field: &str, shown: &str, supported: &[&str]) -> Failure {
    let supported: Vec<String> = supported.iter().map(|value| format!("\"{value}\"")).collect();
    let error = FieldError {
        field: field.to_owned(),
        reason: "FieldValueNotSupported",
        detail: format!("Unsupported value: {shown}: supported values: {}", supported.join(", ")),
    };
    Failure::invalid_as(what, "meta.k8s.io", "", &[error])
}

/// As the API converts query strings to bool: everything but "false" and "0" is true, even "".
fn boolean(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
}

fn number<N: std::str::FromStr>(value: &str) -> Result<N, Failure> {
    value.parse().map_err(|_| Failure::bad_request(no_number("ParseInt", value)))
}

/// Go's words about a text that is no number, or a number that is too large.
fn no_number(function: &str, value: &str) -> String {
    let signs: &[char] = if function == "ParseUint" { &[] } else { &['-', '+'] };
    let digits = value.strip_prefix(signs).unwrap_or(value);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing {value:?}: {why}")
}
