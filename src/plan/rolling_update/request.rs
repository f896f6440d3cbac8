//! The request for a rolling update that the daemon carries out: annotations on OLD, and what they say.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Cleanup;
use super::bookkeeping::{NEXT_CONTROLLER, ORIGINAL_REPLICAS};
use crate::model::ReplicaSet;
use crate::model::int_or_percent::IntOrPercent;

/// The request: the name of NEW. It is written last, and removing it stops the update where it stands.
pub const REQUEST: &str = "windlass.dev/rolling-update-to";
/// How many pods may exist above the size, as a number or a percentage; 1 by default.
pub const MAX_SURGE: &str = "windlass.dev/rolling-update-max-surge";
/// How many pods may be unavailable below the size, as a number or a percentage; 0 by default.
pub const MAX_UNAVAILABLE: &str = "windlass.dev/rolling-update-max-unavailable";
/// The pause between new pods and the end of old ones; none by default.
pub const PERIOD: &str = "windlass.dev/rolling-update-period";
/// The longest time without progress before a warning; 5 minutes by default.
pub const TIMEOUT: &str = "windlass.dev/rolling-update-timeout";
/// The treatment of OLD at the end: `Delete`, `KeepName` or `Preserve`.
pub const CLEANUP: &str = "windlass.dev/rolling-update-cleanup";
/// `true` stops the update until it is removed.
pub const PAUSED: &str = "windlass.dev/rolling-update-paused";
/// `true` takes the update back.
pub const ROLLBACK: &str = "windlass.dev/rolling-update-rollback";
/// The time of the last resize, on the controller that was resized and in the same patch: the period and the timeout
/// survive a restart.
pub const STEP_AT: &str = "windlass.dev/rolling-update-step-at";

/// Everything that an update leaves on OLD, to be removed at its end.
pub const ALL_OF_OLD: [&str; 11] = [
    REQUEST,
    MAX_SURGE,
    MAX_UNAVAILABLE,
    PERIOD,
    TIMEOUT,
    CLEANUP,
    PAUSED,
    ROLLBACK,
    STEP_AT,
    ORIGINAL_REPLICAS,
    NEXT_CONTROLLER,
];

/// The longest time without progress, unless the request has another.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// A request, as annotations or a client's flags have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The name of NEW.
    pub target: String,
    /// How many pods may exist above the size.
    pub max_surge: IntOrPercent,
    /// How many pods may be unavailable below the size.
    pub max_unavailable: IntOrPercent,
    /// The pause between new pods and the end of old ones.
    pub period: Duration,
    /// The longest time without progress before a warning.
    pub timeout: Duration,
    /// The treatment of OLD at the end.
    pub cleanup: Cleanup,
    /// Whether the update is paused.
    pub is_paused: bool,
    /// Whether the update is taken back.
    pub is_rollback: bool,
}

impl Request {
    /// Reads the request on a controller; `None` without one.
    ///
    /// # Errors
    /// With the annotation, its value and what is accepted: one annotation that cannot be read refuses the whole.
    pub fn read(old: &ReplicaSet) -> Result<Option<Self>, String> {
        let get = |annotation: &str| old.annotations.get(annotation);
        let Some(target) = get(REQUEST) else { return Ok(None) };
        let wrong = |annotation: &str, problem: String| format!("the annotation {annotation}: {problem}");
        if target.is_empty() || target == &*old.meta.key.name {
            return Err(wrong(
                REQUEST,
                format!("{target:?} is not the name of another ReplicationController"),
            ));
        }
        let number = |annotation, read: fn(&str) -> Result<IntOrPercent, String>, default| {
            let read = get(annotation).map_or(Ok(IntOrPercent::Int(default)), read);
            read.map_err(|problem| wrong(annotation, problem))
        };
        let time = |annotation, default| {
            get(annotation).map_or(Ok(default), duration).map_err(|problem| wrong(annotation, problem))
        };
        let flag = |annotation| match get(annotation) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(wrong(annotation, format!("{other:?} is neither true nor false"))),
        };
        let cleanup = match get(CLEANUP) {
            None | Some("Delete") => Cleanup::Delete,
            Some("KeepName") => Cleanup::KeepName,
            Some("Preserve") => Cleanup::Preserve,
            Some(other) => {
                let accepted = "write Delete, KeepName or Preserve";
                return Err(wrong(CLEANUP, format!("{other:?} is unknown; {accepted}")));
            }
        };
        let request = Request {
            target: target.to_owned(),
            max_surge: number(MAX_SURGE, surge, 1)?,
            max_unavailable: number(MAX_UNAVAILABLE, unavailable, 0)?,
            period: time(PERIOD, Duration::ZERO)?,
            timeout: time(TIMEOUT, DEFAULT_TIMEOUT)?,
            cleanup,
            is_paused: flag(PAUSED)?,
            is_rollback: flag(ROLLBACK)?,
        };
        let is_zero = |number| matches!(number, IntOrPercent::Int(0) | IntOrPercent::Percent(0));
        if is_zero(request.max_surge) && is_zero(request.max_unavailable) {
            return Err(format!(
                "the annotations {MAX_SURGE} and {MAX_UNAVAILABLE} must not both be 0: no pod could be replaced"
            ));
        }
        Ok(Some(request))
    }

    /// The annotations of this request; those without a value are removed.
    pub fn annotations(&self) -> [(&'static str, Option<String>); 8] {
        let Request { target, max_surge, max_unavailable, period, timeout, cleanup, is_paused, is_rollback } =
            self;
        let time = |time: &Duration| match time.subsec_millis() {
            0 => format!("{}s", time.as_secs()),
            _ => format!("{}ms", time.as_millis()),
        };
        let flag = |is_set: &bool| is_set.then(|| "true".to_owned());
        let cleanup = match cleanup {
            Cleanup::Delete => "Delete",
            Cleanup::KeepName => "KeepName",
            Cleanup::Preserve => "Preserve",
        };
        [
            (MAX_SURGE, Some(max_surge.to_string())),
            (MAX_UNAVAILABLE, Some(max_unavailable.to_string())),
            (PERIOD, Some(time(period))),
            (TIMEOUT, Some(time(timeout))),
            (CLEANUP, Some(cleanup.to_owned())),
            (PAUSED, flag(is_paused)),
            (ROLLBACK, flag(is_rollback)),
            (REQUEST, Some(target.clone())),
        ]
    }
}

/// When a controller was last resized.
///
/// # Errors
/// With the annotation and its value, when that is no time.
pub fn step_at(controller: &ReplicaSet) -> Result<Option<Timestamp>, String> {
    let Some(text) = controller.annotations.get(STEP_AT) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        format!(
            "replicationcontroller {}: the annotation {STEP_AT} is {text:?}, and not a time such as \
             2026-01-02T03:04:05Z; remove it",
            controller.meta.key.name
        )
    })
}

/// A number of pods, or a percentage.
///
/// # Errors
/// With what is accepted, when the text is something else.
pub fn surge(text: &str) -> Result<IntOrPercent, String> {
    let wrong = || format!("{text:?} is not a number of pods such as 2, or a percentage such as 25%");
    let digits = text.strip_suffix('%').unwrap_or(text);
    let number: u32 = Some(digits)
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(wrong)?;
    Ok(if text.ends_with('%') {
        IntOrPercent::Percent(number.into())
    } else {
        IntOrPercent::Int(number.into())
    })
}

/// The same, a percentage of at most 100.
///
/// # Errors
/// As [`surge`].
pub fn unavailable(text: &str) -> Result<IntOrPercent, String> {
    match surge(text)? {
        IntOrPercent::Percent(percent) if percent > 100 => Err(format!("{text:?} is more than 100%")),
        number => Ok(number),
    }
}

/// A time with a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let read: Option<SignedDuration> = text.parse().ok();
    read.and_then(|read| Duration::try_from(read).ok())
        .ok_or_else(|| format!("{text:?} is not a duration such as 500ms, 90s or 5m"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record as _, ReplicationController};

    fn old(annotations: &str) -> ReplicaSet {
        let json = format!(
            r#"{{"metadata":{{"namespace":"n","name":"web","uid":"u","resourceVersion":"1",
                 "annotations":{annotations}}},"spec":{{"selector":{{"app":"web"}}}}}}"#
        );
        ReplicationController::decode(&json, &mut Interner::default()).unwrap().0
    }

    fn with(annotation: &str, value: &str) -> Result<Option<Request>, String> {
        Request::read(&old(&format!(r#"{{"{REQUEST}":"next","{annotation}":"{value}"}}"#)))
    }

    #[test]
    fn a_request_needs_the_name_of_another_controller_and_nothing_else() {
        assert_eq!(Request::read(&old("{}")), Ok(None));
        let expected = Request {
            target: "next".to_owned(),
            max_surge: IntOrPercent::Int(1),
            max_unavailable: IntOrPercent::Int(0),
            period: Duration::ZERO,
            timeout: Duration::from_secs(300),
            cleanup: Cleanup::Delete,
            is_paused: false,
            is_rollback: false,
        };
        assert_eq!(with("example.com/other", "x"), Ok(Some(expected)));
        for name in ["", "web"] {
            let error = Request::read(&old(&format!(r#"{{"{REQUEST}":"{name}"}}"#))).unwrap_err();
            assert!(error.contains(REQUEST) && error.contains(&format!("{name:?}")), "{error}");
        }
    }

    #[test]
    fn every_option_is_read() {
        let all = format!(
            r#"{{"{REQUEST}":"next","{MAX_SURGE}":"150%","{MAX_UNAVAILABLE}":"2","{PERIOD}":"1m30s",
                 "{TIMEOUT}":"10m","{CLEANUP}":"KeepName","{PAUSED}":"true","{ROLLBACK}":"true"}}"#
        );
        let read = Request::read(&old(&all)).unwrap().unwrap();
        assert_eq!(
            (read.max_surge, read.max_unavailable),
            (IntOrPercent::Percent(150), IntOrPercent::Int(2))
        );
        assert_eq!((read.period.as_secs(), read.timeout.as_secs()), (90, 600));
        assert_eq!((read.cleanup, read.is_paused, read.is_rollback), (Cleanup::KeepName, true, true));
        assert_eq!(with(CLEANUP, "Preserve").unwrap().unwrap().cleanup, Cleanup::Preserve);
        assert!(!with(PAUSED, "false").unwrap().unwrap().is_paused);
    }

    #[test]
    fn a_request_that_is_written_is_read_as_it_was() {
        let all = format!(
            r#"{{"{REQUEST}":"next","{MAX_SURGE}":"150%","{MAX_UNAVAILABLE}":"2","{PERIOD}":"1s500ms",
                 "{TIMEOUT}":"10m","{CLEANUP}":"KeepName","{PAUSED}":"true","{ROLLBACK}":"true"}}"#
        );
        for annotations in [all, format!(r#"{{"{REQUEST}":"next","{CLEANUP}":"Preserve"}}"#)] {
            let request = Request::read(&old(&annotations)).unwrap().unwrap();
            let written = request.annotations().into_iter().filter_map(|(key, value)| Some((key, value?)));
            let written: std::collections::BTreeMap<&str, String> = written.collect();
            let written = serde_json::to_string(&written).unwrap();
            assert_eq!(Request::read(&old(&written)), Ok(Some(request)));
        }
    }

    #[test]
    fn one_option_that_cannot_be_read_refuses_the_whole_by_name_and_value() {
        for (annotation, values) in [
            (MAX_SURGE, &["-1", "1.5", "", "%", "x", "+1", "99999999999"][..]),
            (MAX_UNAVAILABLE, &["101%", "-1", "1.5"]),
            (PERIOD, &["", "abc", "-5s", "5"]),
            (TIMEOUT, &["-1m", "soon"]),
            (CLEANUP, &["delete", ""]),
            (PAUSED, &["yes", ""]),
            (ROLLBACK, &["1"]),
        ] {
            for value in values {
                let error = with(annotation, value).unwrap_err();
                assert!(error.contains(annotation) && error.contains(&format!("{value:?}")), "{error}");
            }
        }
        let error = with(MAX_SURGE, "0").unwrap_err();
        assert!(error.contains(MAX_SURGE) && error.contains(MAX_UNAVAILABLE), "{error}");
        let error = step_at(&old(&format!(r#"{{"{STEP_AT}":"noon"}}"#))).unwrap_err();
        assert!(error.contains(STEP_AT) && error.contains("noon"), "{error}");
    }
}
