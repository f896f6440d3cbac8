//! Logs: structured, on the standard error stream, as text or as JSON. One record is one line.

mod one_line;

pub use one_line::is_unsafe;

use std::io::IsTerminal;
use std::sync::Arc;

use tracing::Subscriber;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;

/// The variable whose filter replaces `-v`: `windlass=debug,kube=info` for example.
pub const FILTER_VARIABLE: &str = "WINDLASS_LOG";

/// How log lines look; `--logging-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object per line.
    Json,
}

/// Verbosity, format and filter of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// `-v`, on the scale of other Kubernetes programs: up to 3 events, from 4 on reasons, from 6 on
    /// every step.
    pub verbosity: u8,
    /// How lines look.
    pub format: Format,
    /// The value of [`FILTER_VARIABLE`], if it is set.
    pub filter: Option<String>,
}

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be parsed.
    #[error("{FILTER_VARIABLE}={0:?}: {1}")]
    Filter(String, #[source] ParseError),
    /// The filter chooses by spans or fields.
    #[error("{FILTER_VARIABLE}={0:?}: a filter has targets and levels, not spans or fields in brackets")]
    Spans(String),
    /// Another logger is set up in this process already.
    #[error("could not set up logging: {0}")]
    Taken(#[from] tracing::subscriber::SetGlobalDefaultError),
}

/// Changes what is logged while the program runs. Clones change the same.
#[derive(Clone)]
pub struct Verbosity {
    reload: Arc<dyn Fn(Targets) -> Result<(), String> + Send + Sync>,
}

impl Verbosity {
    /// Logs from now on as `-v` with this number does; a filter that was set by
    /// [`FILTER_VARIABLE`] is replaced.
    ///
    /// # Errors
    /// When logging has ended. The text is for users.
    pub fn set(&self, verbosity: u8) -> Result<(), String> {
        (self.reload)(targets(directives(verbosity)).map_err(|error| error.to_string())?)
    }
}

/// Logs to the standard error stream from now on. To be called once, by `main`.
///
/// # Errors
/// When the filter cannot be read, or logging was set up before.
pub fn init(options: &LogOptions) -> Result<Verbosity, LogError> {
    let colours = std::io::stderr().is_terminal();
    let (subscriber, verbosity) = reloadable(options, std::io::stderr, colours)?;
    tracing::subscriber::set_global_default(subscriber)?;
    Ok(verbosity)
}

/// A subscriber that writes to `writer`; for tests and for programs that embed the library.
///
/// # Errors
/// When the filter cannot be read.
pub fn subscriber<W>(
    options: &LogOptions,
    writer: W,
    colours: bool,
) -> Result<Box<dyn Subscriber + Send + Sync>, LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    reloadable(options, writer, colours).map(|(subscriber, _)| subscriber)
}

/// The same, with the handle that changes its verbosity.
///
/// # Errors
/// When the filter cannot be read.
pub fn reloadable<W>(
    options: &LogOptions,
    writer: W,
    colours: bool,
) -> Result<(Box<dyn Subscriber + Send + Sync>, Verbosity), LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let directives = match options.filter.as_deref().filter(|filter| !filter.trim().is_empty()) {
        Some(filter) => filter.to_owned(),
        None => directives(options.verbosity).to_owned(),
    };
    let targets = match directives.contains(['[', '{']) {
        true => return Err(LogError::Spans(directives)),
        false => targets(&directives).map_err(|error| LogError::Filter(directives, error))?,
    };
    let (filter, handle) = reload::Layer::new(targets);
    let verbosity = Verbosity {
        reload: Arc::new(move |targets| handle.reload(targets).map_err(|error| error.to_string())),
    };
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours);
    // A line that cannot be written is lost: reporting that on the standard error stream would panic
    // where its reader has closed it, and a cluster does not wait for the restart of a log collector.
    let lines = lines.log_internal_errors(false);
    Ok(match options.format {
        Format::Text => (Box::new(registry.with(lines.fmt_fields(one_line::OneLine))), verbosity),
        Format::Json => {
            let lines = lines.json().flatten_event(true).with_current_span(false);
            (Box::new(registry.with(lines)), verbosity)
        }
    })
}

/// The libraries beneath stay quiet until their debugging is enabled. Errors that kube's client logs are
/// returned to us as well, and are logged with their context.
fn directives(verbosity: u8) -> &'static str {
    match verbosity {
        0..=3 => "warn,kube_client=off,windlass=info",
        4..=5 => "warn,kube_client=off,windlass=debug",
        6..=7 => "info,windlass=trace",
        8..=9 => "debug,windlass=trace",
        _ => "trace",
    }
}

/// An empty directive, as behind a last comma, would enable the errors of all targets.
fn targets(directives: &str) -> Result<Targets, ParseError> {
    let directives = directives.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    directives.collect::<Vec<_>>().join(",").parse()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;

    use parking_lot::Mutex;

    use super::*;

    /// The log of a test.
    #[derive(Clone, Default)]
    pub(crate) struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Memory {
        pub(crate) fn subscriber(&self, options: &LogOptions) -> Box<dyn Subscriber + Send + Sync> {
            let writer = self.clone();
            subscriber(options, move || writer.clone(), false).unwrap()
        }

        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().clone()).unwrap()
        }
    }

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(options: &LogOptions, log: impl FnOnce()) -> String {
        let memory = Memory::default();
        tracing::subscriber::with_default(memory.subscriber(options), log);
        memory.text()
    }

    #[test]
    fn a_json_line_is_one_object_for_any_values() {
        let options = LogOptions { format: Format::Json, ..LogOptions::default() };
        let text = logged(&options, || tracing::info!(key = "a\nb\"c", "hello"));
        assert_eq!(text.lines().count(), 1);
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((line["key"].as_str(), line["message"].as_str()), (Some("a\nb\"c"), Some("hello")));
    }

    /// Text that tries to look like a second record, in each place where text from outside comes in.
    const HOSTILE: &str =
        "web\n2026-01-01T00:00:00Z ERROR forged\r\u{1b}[2J\u{85}x\u{2028}y\u{2029}\u{202e}z";

    fn log_hostile_texts() {
        #[derive(Debug, thiserror::Error)]
        #[error("{HOSTILE}")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other(HOSTILE));
        let span = tracing::info_span!("sync", key = %HOSTILE, kind = HOSTILE);
        let _entered = span.enter();
        span.record("kind", HOSTILE);
        tracing::info!("a message of {HOSTILE}");
        tracing::info!("{}", HOSTILE);
        tracing::warn!(name = HOSTILE, key = %HOSTILE, list = ?[HOSTILE], "fields");
        tracing::error!(error = &error as &(dyn std::error::Error + 'static), "an error");
        tracing::error!(%error, "an error");
    }

    #[test]
    fn a_record_is_one_line_wherever_hostile_text_occurs() {
        for format in [Format::Text, Format::Json] {
            let text = logged(&LogOptions { format, ..LogOptions::default() }, log_hostile_texts);
            assert_eq!(text.matches('\n').count(), 5, "{text}");
            assert!(text.ends_with('\n') && !text.contains(['\r', '\u{1b}']), "{text:?}");
        }
        let text = logged(&LogOptions::default(), log_hostile_texts);
        let raw = ['\u{85}', '\u{2028}', '\u{2029}', '\u{202e}'];
        assert!(!text.contains(raw), "{text:?}");
        assert!(text.contains(r"web\n2026-01-01T00:00:00Z ERROR forged\r\u{1b}[2J"), "{text}");
        assert_eq!(text.matches("forged").count(), 5 * 3 + 8, "nothing is left out: {text}");
    }

    #[test]
    fn colours_are_ours_and_not_those_of_the_text() {
        let memory = Memory::default();
        let writer = memory.clone();
        let subscriber = subscriber(&LogOptions::default(), move || writer.clone(), true).unwrap();
        tracing::subscriber::with_default(subscriber, || tracing::info!(key = %"\u{1b}[31mred", "hello"));
        let text = String::from_utf8(memory.0.lock().clone()).unwrap();
        assert!(text.contains("\u{1b}[3mkey\u{1b}[0m\u{1b}[2m=\u{1b}[0m\\u{1b}[31mred"), "{text:?}");
    }

    #[test]
    fn a_line_of_text_looks_as_it_always_did() {
        let text = logged(&LogOptions::default(), || {
            tracing::info!(deployment = %"shop/web", list = ?["a"], name = "b c", count = 3, "rolled out");
        });
        let line = text.split_once(" INFO ").unwrap().1;
        let fields = r#"rolled out deployment=shop/web list=["a"] name="b c" count=3"#;
        assert_eq!(line, format!("windlass::logging::tests: {fields}\n"));
    }

    #[test]
    fn verbosity_and_filter_choose_what_is_logged() {
        let log = || {
            tracing::info!("ours");
            tracing::debug!("details");
            tracing::info!(target: "hyper", "theirs");
        };
        let with = |verbosity, filter: Option<&str>| {
            logged(&LogOptions { verbosity, filter: filter.map(Into::into), ..LogOptions::default() }, log)
        };
        let words = |text: &str| ["ours", "details", "theirs"].map(|word| text.contains(word));
        assert_eq!(words(&with(0, None)), [true, false, false]);
        assert_eq!(words(&with(4, None)), [true, true, false]);
        assert_eq!(words(&with(0, Some("hyper=info"))), [false, false, true]);
    }

    #[test]
    fn an_invalid_filter_is_named() {
        let options = LogOptions { filter: Some("a=b=c".into()), ..LogOptions::default() };
        let error = subscriber(&options, io::sink, false).err().unwrap().to_string();
        assert!(error.starts_with("WINDLASS_LOG=\"a=b=c\""), "{error}");
    }

    #[test]
    fn a_filter_that_names_spans_or_fields_is_refused() {
        for filter in ["[sync]=debug", "windlass[sync]", "windlass[{key}]=debug", "[{key=shop/web}]=trace"] {
            let options = LogOptions { filter: Some(filter.into()), ..LogOptions::default() };
            let error = subscriber(&options, io::sink, false).err().unwrap().to_string();
            assert!(error.contains(filter) && error.contains("not spans or fields"), "{error}");
        }
    }

    #[test]
    fn of_several_targets_the_longest_that_fits_decides() {
        let options = |filter: &str| LogOptions { filter: Some(filter.into()), ..LogOptions::default() };
        let log = || {
            tracing::debug!(target: "windlass::runtime", "runtime");
            tracing::debug!(target: "windlass::plan", "plan");
            tracing::warn!(target: "hyper", "warning");
            tracing::error!(target: "h2", "error");
            tracing::trace!(target: "kube", "bare");
        };
        let logged = |filter| {
            let text = logged(&options(filter), log);
            ["runtime", "plan", "warning", "error", "bare"].map(|word| text.contains(&format!(": {word}")))
        };
        assert_eq!(logged("windlass=info, windlass::runtime=debug ,"), [true, false, false, false, false]);
        assert_eq!(logged("warn,h2=off,kube,windlass=DEBUG"), [true, true, true, false, true]);
    }

    #[test]
    fn verbosity_changes_while_the_program_runs() {
        for format in [Format::Text, Format::Json] {
            let memory = Memory::default();
            let writer = memory.clone();
            let options = LogOptions { format, ..LogOptions::default() };
            let (subscriber, verbosity) = reloadable(&options, move || writer.clone(), false).unwrap();
            tracing::subscriber::with_default(subscriber, || {
                let log = |step: u8| tracing::debug!("step {step}");
                log(1);
                verbosity.set(4).unwrap();
                log(2);
                verbosity.set(0).unwrap();
                log(3);
            });
            let text = memory.text();
            assert_eq!(
                [1, 2, 3].map(|n| text.contains(&format!("step {n}"))),
                [false, true, false],
                "{text}"
            );
        }
    }
}
