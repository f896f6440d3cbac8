//! How the containers of a pod end, if they do: after how long and with which exit code.
//!
//! The pod's annotation says it, or an option for the image, or the tag of the image. Pods that are meant to end do so
//! without being told.

use std::{str::FromStr, time::Duration};

use regex_lite::Regex;

use super::record::{Container, Pod, RestartPolicy};

/// The annotation of a pod: `exit:3,after:2s`.
pub const ANNOTATION: &str = "windlass.dev/pod-outcome";

/// How long a container runs if only its exit code is given, or nothing but a restart policy that lets it end.
const AFTER: Duration = Duration::from_secs(1);

/// The longest time, so that no sum of times overflows.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How a container ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodOutcome {
    /// 0 is success.
    pub exit_code: u8,
    /// From its start.
    pub after: Duration,
}

/// How the containers end that run an image.
#[derive(Clone, Debug)]
pub struct ImageOutcome {
    /// Which images.
    pub image: Regex,
    /// How they end.
    pub outcome: PodOutcome,
}

impl FromStr for PodOutcome {
    type Err = String;

    /// Parses `exit:3,after:2s`; one of the two may be absent.
    fn from_str(text: &str) -> Result<Self, String> {
        let hint = "write it like exit:3,after:2s, exit:0 or after:1m";
        let mut outcome = PodOutcome { exit_code: 0, after: AFTER };
        for part in text.split(',') {
            match part.trim().split_once(':') {
                Some(("exit", code)) => {
                    let parsed = code.trim().parse();
                    outcome.exit_code =
                        parsed.map_err(|_| format!("{code:?} is no exit code from 0 to 255; {hint}"))?;
                }
                Some(("after", time)) => {
                    outcome.after =
                        duration(time).ok_or_else(|| format!("{time:?} is no duration; {hint}"))?
                }
                _ => return Err(format!("{part:?} is neither exit:CODE nor after:DURATION; {hint}")),
            }
        }
        Ok(outcome)
    }
}

/// A duration up to a year.
fn duration(text: &str) -> Option<Duration> {
    let parsed: jiff::SignedDuration = text.trim().parse().ok()?;
    Duration::try_from(parsed).ok().filter(|parsed| *parsed <= LONGEST)
}

/// How the container ends; `None` if it runs for ever.
pub(super) fn of(pod: &Pod, container: &Container, by_image: &[ImageOutcome]) -> Option<PodOutcome> {
    let image = container.image();
    let annotated = pod.metadata.outcome.as_deref().and_then(|text| text.parse().ok());
    let given = || by_image.iter().find(|given| given.image.is_match(image)).map(|given| given.outcome);
    let by_default = || {
        let ends = restart_policy(pod, container) != RestartPolicy::Always;
        ends.then_some(PodOutcome { exit_code: 0, after: AFTER })
    };
    annotated.or_else(given).or_else(|| of_tag(image)).or_else(by_default)
}

/// The outcome in a tag such as `exit-3` or `exit-3-after-2s`.
fn of_tag(image: &str) -> Option<PodOutcome> {
    let (_, tag) = image.rsplit_once(':')?;
    let code_and_time = tag.strip_prefix("exit-")?;
    let (code, time) = code_and_time.split_once("-after-").unzip();
    let exit_code = code.unwrap_or(code_and_time).parse().ok()?;
    let after = time.map_or(Some(AFTER), duration)?;
    Some(PodOutcome { exit_code, after })
}

/// Whether a container is started again once it has ended.
pub(super) fn restart_policy(pod: &Pod, container: &Container) -> RestartPolicy {
    let own = container.restart_policy.clone();
    own.map_or(pod.spec.restart_policy, |own| RestartPolicy::from(Some(own)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn outcome(exit_code: u8, seconds: u64) -> PodOutcome {
        PodOutcome { exit_code, after: Duration::from_secs(seconds) }
    }

    #[test]
    fn an_outcome_is_an_exit_code_a_time_or_both() {
        for (text, expected) in [
            ("exit:3,after:2s", outcome(3, 2)),
            ("after:1m30s, exit:255", outcome(255, 90)),
            ("exit:1", outcome(1, 1)),
            ("after:0s", outcome(0, 0)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in
            ["", "exit", "exit:256", "exit:-1", "after:soon", "after:-1s", "after:1000y", "exit:1,ends:2s"]
        {
            let error = text.parse::<PodOutcome>().unwrap_err();
            assert!(
                error.ends_with("; write it like exit:3,after:2s, exit:0 or after:1m"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn the_annotation_precedes_the_option_and_that_the_tag_and_that_the_restart_policy() {
        let by_image = [ImageOutcome { image: Regex::new("^job:").unwrap(), outcome: outcome(4, 5) }];
        let find = |image: &str, policy: Value, annotation: Option<&str>| {
            let metadata =
                json!({"name": "p", "annotations": annotation.map(|text| json!({ANNOTATION: text}))});
            let spec = json!({"restartPolicy": policy, "containers": [{"name": "main", "image": image}]});
            let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
            of(&pod, &pod.spec.containers[0], &by_image)
        };
        assert_eq!(find("web:1", Value::Null, None), None);
        assert_eq!(find("web:1", json!("Always"), None), None);
        assert_eq!(find("web:1", json!("Never"), None), Some(outcome(0, 1)));
        assert_eq!(find("web:1", json!("OnFailure"), None), Some(outcome(0, 1)));
        assert_eq!(find("r.example.com:5000/web:exit-3", json!("Never"), None), Some(outcome(3, 1)));
        assert_eq!(find("web:exit-3-after-2m", json!("Always"), None), Some(outcome(3, 120)));
        assert_eq!(find("web:exit-strategy", json!("Always"), None), None);
        assert_eq!(find("job:exit-3", json!("Never"), None), Some(outcome(4, 5)));
        assert_eq!(find("job:exit-3", json!("Never"), Some("exit:7")), Some(outcome(7, 1)));
        assert_eq!(find("job:exit-3", json!("Never"), Some("nonsense")), Some(outcome(4, 5)));
    }
}
