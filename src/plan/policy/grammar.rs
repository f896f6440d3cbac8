//! The grammar of the values.
//!
//! ```text
//! steps   = step *( "," step )                      ; at most 20
//! step    = ( integer / integer "%" ) [ "for" duration ]
//! kept    = integer [ "for" duration ]              ; integer >= 1
//! command = "approve" revision [ "/" step ] / "abort" revision / "retry" revision "/" attempt
//! ```
//! Spaces are free.

use std::time::Duration;

use jiff::SignedDuration;

/// The most steps.
const MOST_STEPS: usize = 20;

/// A size at which a rollout waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// How many pods.
    size: Size,
    /// How long it waits there; `None`: until approved.
    pub wait: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Pods(i32),
    Percent(i32),
}

impl Step {
    /// The pods of the step, of so many replicas: a percentage is rounded up.
    pub fn bound(&self, replicas: i32) -> i32 {
        match self.size {
            Size::Pods(pods) => pods,
            Size::Percent(percent) => {
                let pods = ((i64::from(replicas) * i64::from(percent) + 99) / 100).max(1);
                crate::model::int_or_percent::clamp(pods)
            }
        }
    }
}

/// A user's command about one revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Through this step, or all of them.
    Approve {
        /// The revision.
        revision: i64,
        /// The last step that is approved.
        step: Option<usize>,
    },
    /// A verdict by hand.
    Abort {
        /// The revision.
        revision: i64,
    },
    /// Forgives a failure.
    Retry {
        /// The revision.
        revision: i64,
        /// The failure: the first is 1.
        attempt: u32,
    },
}

/// How many failed pods are kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The newest so many.
    pub pods: usize,
    /// Each for so long; `None` for ever.
    pub time: Option<Duration>,
}

/// A time with a unit, above zero.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let read: Option<SignedDuration> = text.trim().parse().ok();
    read.and_then(|read| Duration::try_from(read).ok())
        .filter(|read| !read.is_zero() && *read <= Duration::from_secs(366 * 24 * 3600))
        .ok_or_else(|| "a duration such as 30s, 2m or 1h30m, of a year at most".to_owned())
}

/// The one word that a key has.
pub(super) fn word(text: &str, accepted: &str) -> Result<bool, String> {
    if text == accepted { Ok(true) } else { Err(accepted.to_owned()) }
}

/// A list of steps.
pub(super) fn steps(text: &str) -> Result<Vec<Step>, String> {
    const FORM: &str = "steps such as \"1, 25% for 10m, 50%\"";
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > MOST_STEPS {
        return Err(format!("{FORM}, {MOST_STEPS} at most"));
    }
    parts.into_iter().map(|part| step(part).map_err(|why| format!("{FORM}; {why}"))).collect()
}

fn step(text: &str) -> Result<Step, String> {
    let none = || {
        let shown: String = text.chars().take(40).collect();
        format!("{shown:?} is none")
    };
    let (size, wait) = with_time(text)?;
    let digits = size.strip_suffix('%').map_or(size, str::trim_end);
    let number = integer(digits).ok_or_else(none)?;
    if number == 0 {
        return Err("a step has at least one pod".to_owned());
    }
    let size = if !size.ends_with('%') {
        Size::Pods(number)
    } else if number > 100 {
        return Err("a percentage is at most 100%".to_owned());
    } else {
        Size::Percent(number)
    };
    Ok(Step { size, wait })
}

/// How many failed pods are kept.
pub(super) fn kept(text: &str) -> Result<Kept, String> {
    let form = || "a number of pods such as 3, or \"3 for 1h\"".to_owned();
    let (pods, time) = with_time(text.trim()).map_err(|_| form())?;
    let pods = integer(pods).filter(|pods| *pods > 0).ok_or_else(form)?;
    Ok(Kept { pods: usize::try_from(pods).map_err(|_| form())?, time })
}

/// A command.
pub(super) fn command(text: &str) -> Result<Command, String> {
    let form =
        || "approve REVISION, approve REVISION/STEP, abort REVISION or retry REVISION/ATTEMPT".to_owned();
    let (verb, rest) = text.trim().split_once(char::is_whitespace).ok_or_else(form)?;
    let (revision, part) = match rest.split_once('/') {
        Some((revision, part)) => (revision.trim(), Some(part.trim())),
        None => (rest.trim(), None),
    };
    let revision = Some(revision).filter(|text| is_digits(text)).and_then(|text| text.parse().ok());
    let revision: i64 = revision.ok_or_else(form)?;
    let number = |text: &str| integer(text).filter(|number| *number > 0).ok_or_else(form);
    match (verb, part) {
        ("approve", None) => Ok(Command::Approve { revision, step: None }),
        ("approve", Some(step)) => {
            let step = usize::try_from(number(step)?).map_err(|_| form())?;
            Ok(Command::Approve { revision, step: Some(step) })
        }
        ("abort", None) => Ok(Command::Abort { revision }),
        ("retry", Some(attempt)) => Ok(Command::Retry { revision, attempt: number(attempt)?.unsigned_abs() }),
        _ => Err(form()),
    }
}

/// A value and the duration after the word `for`.
fn with_time(text: &str) -> Result<(&str, Option<Duration>), String> {
    let Some(at) = text.find("for") else { return Ok((text.trim(), None)) };
    Ok((text[..at].trim(), Some(duration(&text[at + "for".len()..])?)))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn integer(text: &str) -> Option<i32> {
    Some(text).filter(|text| is_digits(text)).and_then(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(text: &str, replicas: i32) -> Vec<i32> {
        steps(text).unwrap().iter().map(|step| step.bound(replicas)).collect()
    }

    #[test]
    fn a_percentage_is_rounded_up_and_is_at_least_one_pod() {
        assert_eq!(bounds("1, 25% for 10m,50%", 10), [1, 3, 5]);
        assert_eq!(bounds("1%,100%", 7), [1, 7]);
        assert_eq!(bounds("3", 2), [3]);
        assert_eq!(bounds("100%", i32::MAX), [i32::MAX]);
    }

    #[test]
    fn a_step_waits_for_a_time_or_until_approved() {
        let read = steps(" 1 ,25 %  for 10m , 2 for 1h30m ").unwrap();
        let waits: Vec<_> = read.iter().map(|step| step.wait.map(|wait| wait.as_secs())).collect();
        assert_eq!(waits, [None, Some(600), Some(5400)]);
    }

    #[test]
    fn steps_of_other_forms_are_refused() {
        for text in [
            "",
            ",",
            "1,",
            "one",
            "-1",
            "+1",
            "0",
            "0%",
            "101%",
            "1.5",
            "25%%",
            "1 for",
            "1 for 10",
            "1 for -5m",
            "1 2",
            "99999999999",
            "1 for 0s",
            "for 5m",
            "true",
            "10% of 5",
        ] {
            assert!(steps(text).is_err(), "{text:?}");
        }
        assert!(steps(&vec!["1"; 20].join(",")).is_ok() && steps(&vec!["1"; 21].join(",")).is_err());
    }

    #[test]
    fn commands_name_a_revision() {
        assert_eq!(command("approve 7"), Ok(Command::Approve { revision: 7, step: None }));
        assert_eq!(command(" approve  7 / 2 "), Ok(Command::Approve { revision: 7, step: Some(2) }));
        assert_eq!(command("abort 7"), Ok(Command::Abort { revision: 7 }));
        assert_eq!(command("retry 7/1"), Ok(Command::Retry { revision: 7, attempt: 1 }));
        for text in [
            "",
            "approve",
            "approve x",
            "approve 7/0",
            "abort 7/1",
            "retry 7",
            "retry 7/x",
            "go 7",
            "approve -7",
        ] {
            assert!(command(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn failed_pods_are_kept_by_number_and_time() {
        assert_eq!(kept("3"), Ok(Kept { pods: 3, time: None }));
        assert_eq!(kept("3 for 1h"), Ok(Kept { pods: 3, time: Some(Duration::from_secs(3600)) }));
        for text in ["0", "", "-1", "3 for", "for 1h", "three"] {
            assert!(kept(text).is_err_and(|why| why.starts_with("a number of pods")), "{text:?}");
        }
    }
}
