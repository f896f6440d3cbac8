//! How the containers of a pod end, if they do: after how long, with which exit code, and what they do on SIGTERM.
//!
//! The pod's annotation says it, or an option for the image, or the tag of the image, or the command. Pods that are meant
//! to end do so without being told.

use std::{str::FromStr, time::Duration};

use regex_lite::Regex;

use super::{
    commands::Command,
    record::{Container, Pod, RestartPolicy},
};

/// The annotation of a pod: `exit:3,after:2s`.
pub const ANNOTATION: &str = "windlass.dev/pod-outcome";

/// How long a container runs if only its exit code is given, or nothing but a restart policy that lets it end.
pub(super) const AFTER: Duration = Duration::from_secs(1);

/// The longest time, so that no sum of times overflows.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The exit code of a process that SIGTERM has ended: 128 + 15.
const TERMINATED: u8 = 143;

/// The exit code of a process that SIGKILL has ended: 128 + 9.
const KILLED: u8 = 137;

/// The reaction of a container to SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSigterm {
    /// It exits with this code.
    Exits(u8),
    /// Nothing, so that it is killed after the grace period.
    Ignores,
}

/// How a container ends. An attempt is a start of the container; attempts of one completion index of a Job are counted
/// together, as a marker file in a `hostPath` would count them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodOutcome {
    /// The exit code of each attempt; the last one repeats. Empty is 0, or 1 for attempts that are chosen to fail.
    exit_codes: Vec<u8>,
    /// From the start to the end of each attempt; the last one repeats. `None` never ends; empty is one second.
    after: Vec<Option<Duration>>,
    /// The completion indexes that fail, first and last; the others succeed.
    fail_indexes: Option<Vec<(u32, u32)>>,
    /// How many attempts fail; the others succeed.
    fail_first: Option<u32>,
    on_sigterm: Option<OnSigterm>,
}

/// The end of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// 0 is success.
    pub exit_code: u8,
    /// From its start; `None` if it runs until it is stopped.
    pub after: Option<Duration>,
}

/// How the containers end that run an image.
#[derive(Clone, Debug)]
pub struct ImageOutcome {
    /// Which images.
    pub image: Regex,
    /// How they end.
    pub outcome: PodOutcome,
}

impl PodOutcome {
    /// Exits with a code after some time, in each attempt.
    pub fn exits(exit_code: u8, after: Duration) -> Self {
        PodOutcome { exit_codes: vec![exit_code], after: vec![Some(after)], ..PodOutcome::default() }
    }

    /// Runs until it is stopped.
    pub fn never() -> Self {
        PodOutcome { after: vec![None], ..PodOutcome::default() }
    }

    /// Fails with a code in the first attempt, and succeeds in the next.
    pub(super) fn fails_once(exit_code: u8) -> Self {
        PodOutcome { exit_codes: vec![exit_code, 0], ..PodOutcome::default() }
    }

    /// Runs until it is stopped in the first attempt, and succeeds in the next.
    pub(super) fn ends_at_the_second_attempt() -> Self {
        PodOutcome { after: vec![None, Some(AFTER)], ..PodOutcome::default() }
    }

    /// The end of an attempt, counted from 0, of a completion index.
    pub fn run(&self, index: Option<u32>, attempt: u32) -> Run {
        let of_attempt = usize::try_from(attempt).unwrap_or(usize::MAX);
        let is_listed = |list: &Vec<(u32, u32)>| {
            index.is_some_and(|index| list.iter().any(|(first, last)| (*first..=*last).contains(&index)))
        };
        let is_chosen = self.fail_indexes.as_ref().is_none_or(is_listed)
            && self.fail_first.is_none_or(|first| attempt < first);
        let may_choose = self.fail_indexes.is_some() || self.fail_first.is_some();
        let code = repeated(&self.exit_codes, of_attempt);
        let exit_code = match (may_choose, is_chosen) {
            (true, true) => code.unwrap_or(1),
            (true, false) => 0,
            (false, _) => code.unwrap_or(0),
        };
        Run { exit_code, after: repeated(&self.after, of_attempt).unwrap_or(Some(AFTER)) }
    }

    /// Whether an attempt can end otherwise than the first.
    pub fn counts_attempts(&self) -> bool {
        self.exit_codes.len() > 1 || self.after.len() > 1 || self.fail_first.is_some()
    }

    /// Whether a container can end by itself.
    fn can_end(&self) -> bool {
        self.after.is_empty() || self.after.iter().any(Option::is_some)
    }
}

/// The element, or the last one if there are fewer.
fn repeated<T: Copy>(list: &[T], index: usize) -> Option<T> {
    list.get(index).or(list.last()).copied()
}

impl FromStr for PodOutcome {
    type Err = String;

    /// Parses `exit:3,after:2s`; each part may be absent.
    fn from_str(text: &str) -> Result<Self, String> {
        let hint = "write it like exit:3,after:2s, exit:1/0, after:never, fail-indexes:1/3-5, fail-first:2 or \
                    sigterm:ignore";
        let mut outcome = PodOutcome::default();
        for part in text.split(',') {
            let Some((key, value)) = part.trim().split_once(':') else {
                return Err(format!("{part:?} is no KEY:VALUE; {hint}"));
            };
            let value = value.trim();
            let code = |text: &str| {
                let parsed = text.trim().parse();
                parsed.map_err(|_| format!("{text:?} is no exit code from 0 to 255; {hint}"))
            };
            match key {
                "exit" => outcome.exit_codes = value.split('/').map(code).collect::<Result<_, _>>()?,
                "after" => {
                    let time = |text: &str| match text.trim() {
                        "never" => Ok(None),
                        text => duration(text)
                            .map(Some)
                            .ok_or_else(|| format!("{text:?} is neither a duration nor never; {hint}")),
                    };
                    outcome.after = value.split('/').map(time).collect::<Result<_, _>>()?;
                }
                "fail-indexes" => {
                    let range = |text: &str| {
                        range(text).ok_or_else(|| format!("{text:?} is no completion index or range; {hint}"))
                    };
                    outcome.fail_indexes = Some(value.split('/').map(range).collect::<Result<_, _>>()?);
                }
                "fail-first" => {
                    let parsed = value.parse();
                    let number = parsed.map_err(|_| format!("{value:?} is no number of attempts; {hint}"))?;
                    outcome.fail_first = Some(number);
                }
                "sigterm" if value == "ignore" => outcome.on_sigterm = Some(OnSigterm::Ignores),
                "sigterm" => outcome.on_sigterm = Some(OnSigterm::Exits(code(value)?)),
                _ => return Err(format!("{part:?} has no key that is known; {hint}")),
            }
        }
        Ok(outcome)
    }
}

/// `3-5` or `3`.
fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.trim().split_once('-').unwrap_or((text.trim(), text.trim()));
    Some((first.parse().ok()?, last.parse().ok()?)).filter(|(first, last)| first <= last)
}

/// A duration up to a year.
fn duration(text: &str) -> Option<Duration> {
    let parsed: jiff::SignedDuration = text.trim().parse().ok()?;
    Duration::try_from(parsed).ok().filter(|parsed| *parsed <= LONGEST)
}

/// How the container ends; `None` if nothing says so and it runs for ever.
pub(super) fn of(pod: &Pod, container: &Container, by_image: &[ImageOutcome]) -> Option<PodOutcome> {
    let image = container.image();
    let by_default = || {
        let ends = restart_policy(pod, container) != RestartPolicy::Always;
        ends.then(|| if is_pause(image) { PodOutcome::never() } else { PodOutcome::default() })
    };
    given(pod, container, by_image)
        .or_else(|| of_tag(image))
        .or_else(|| container.script.as_deref().map(|command: &Command| command.outcome(pod)))
        .or_else(by_default)
}

/// The outcome that the annotation or the option gives.
fn given(pod: &Pod, container: &Container, by_image: &[ImageOutcome]) -> Option<PodOutcome> {
    let annotated = pod.metadata.outcome.as_deref().and_then(|text| text.parse().ok());
    let by_image = || by_image.iter().find(|given| given.image.is_match(container.image()));
    annotated.or_else(|| by_image().map(|given| given.outcome.clone()))
}

/// Whether a container of the pod may end by itself.
pub(super) fn may_end(pod: &Pod) -> bool {
    let mut containers = pod.spec.containers.iter();
    containers.any(|container| of(pod, container, &[]).is_some_and(|outcome| outcome.can_end()))
}

/// The reaction of the container to SIGTERM. Where nothing says it, a container that would be restarted is a server that shuts
/// down, and any other ends by the signal.
fn on_sigterm(pod: &Pod, container: &Container, by_image: &[ImageOutcome]) -> OnSigterm {
    let told = given(pod, container, by_image).and_then(|outcome| outcome.on_sigterm);
    told.unwrap_or_else(|| match restart_policy(pod, container) {
        RestartPolicy::Always => OnSigterm::Exits(0),
        RestartPolicy::OnFailure | RestartPolicy::Never => OnSigterm::Exits(TERMINATED),
    })
}

/// The exit code of a container that is stopped.
pub(super) fn stopped_code(pod: &Pod, container: &Container, by_image: &[ImageOutcome]) -> u8 {
    match on_sigterm(pod, container, by_image) {
        OnSigterm::Exits(code) => code,
        OnSigterm::Ignores => KILLED,
    }
}

/// Whether the annotation says that the pod runs until its grace period is over.
pub(super) fn ignores_sigterm(pod: &Pod) -> bool {
    let annotated = pod.metadata.outcome.as_deref().and_then(|text| text.parse::<PodOutcome>().ok());
    annotated.is_some_and(|outcome| outcome.on_sigterm == Some(OnSigterm::Ignores))
}

/// The image that does nothing until it is stopped.
fn is_pause(image: &str) -> bool {
    let name = image.rsplit_once('/').map_or(image, |(_, name)| name);
    name.split([':', '@']).next() == Some("pause")
}

/// The outcome in a tag such as `exit-3` or `exit-3-after-2s`.
fn of_tag(image: &str) -> Option<PodOutcome> {
    let (_, tag) = image.rsplit_once(':')?;
    let code_and_time = tag.strip_prefix("exit-")?;
    let (code, time) = code_and_time.split_once("-after-").unzip();
    let exit_code = code.unwrap_or(code_and_time).parse().ok()?;
    let after = time.map_or(Some(AFTER), duration)?;
    Some(PodOutcome::exits(exit_code, after))
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

    fn parse(text: &str) -> PodOutcome {
        text.parse().unwrap()
    }

    /// The exit codes and the seconds of the first attempts of an index.
    fn attempts(outcome: &PodOutcome, index: Option<u32>) -> [(u8, Option<u64>); 3] {
        [0, 1, 2].map(|attempt| {
            let Run { exit_code, after } = outcome.run(index, attempt);
            (exit_code, after.map(|after| after.as_secs()))
        })
    }

    #[test]
    fn an_outcome_is_an_exit_code_a_time_or_both() {
        for (text, exit_code, seconds) in [
            ("exit:3,after:2s", 3, Some(2)),
            ("after:1m30s, exit:255", 255, Some(90)),
            ("exit:1", 1, Some(1)),
            ("after:0s", 0, Some(0)),
            ("after:never", 0, None),
        ] {
            assert_eq!(attempts(&parse(text), None), [(exit_code, seconds); 3], "{text}");
        }
        for text in [
            "",
            "exit",
            "exit:256",
            "exit:-1",
            "exit:1/",
            "after:soon",
            "after:-1s",
            "after:1000y",
            "exit:1,ends:2s",
            "fail-first:x",
            "fail-indexes:3-1",
            "fail-indexes:",
            "sigterm:later",
        ] {
            let error = text.parse::<PodOutcome>().unwrap_err();
            assert!(error.contains("; write it like exit:3,after:2s, "), "{text}: {error}");
        }
    }

    #[test]
    fn each_attempt_may_end_otherwise_and_the_last_one_repeats() {
        let outcome = parse("exit:1/0,after:never/5s");
        assert_eq!(attempts(&outcome, None), [(1, None), (0, Some(5)), (0, Some(5))]);
        assert!(outcome.counts_attempts() && !parse("exit:1").counts_attempts());
        assert_eq!(attempts(&parse("fail-first:2"), None).map(|(code, _)| code), [1, 1, 0]);
        assert_eq!(attempts(&parse("fail-first:1,exit:42"), None).map(|(code, _)| code), [42, 0, 0]);
    }

    #[test]
    fn some_completion_indexes_fail() {
        let outcome = parse("fail-indexes:1/3-4,exit:7");
        for (index, code) in [(0, 0), (1, 7), (2, 0), (3, 7), (4, 7), (5, 0)] {
            assert_eq!(attempts(&outcome, Some(index)).map(|(code, _)| code), [code; 3], "{index}");
        }
        assert_eq!(attempts(&outcome, None).map(|(code, _)| code), [0; 3], "it has no index");
        let once = parse("fail-indexes:1,fail-first:1");
        assert_eq!(attempts(&once, Some(1)).map(|(code, _)| code), [1, 0, 0]);
        assert_eq!(attempts(&once, Some(2)).map(|(code, _)| code), [0; 3]);
    }

    fn pod(image: &str, policy: Value, annotation: Option<&str>) -> Pod {
        let metadata = json!({"name": "p", "annotations": annotation.map(|text| json!({ANNOTATION: text}))});
        let spec = json!({"restartPolicy": policy, "containers": [{"name": "main", "image": image}]});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn the_annotation_precedes_the_option_and_that_the_tag_and_that_the_restart_policy() {
        let outcome = |exit_code, seconds| PodOutcome::exits(exit_code, Duration::from_secs(seconds));
        let by_image = [ImageOutcome { image: Regex::new("^job:").unwrap(), outcome: outcome(4, 5) }];
        let find = |image: &str, policy: Value, annotation: Option<&str>| {
            let pod = pod(image, policy, annotation);
            of(&pod, &pod.spec.containers[0], &by_image).map(|outcome| {
                let Run { exit_code, after } = outcome.run(None, 0);
                (exit_code, after.map(|after| after.as_secs()))
            })
        };
        assert_eq!(find("web:1", Value::Null, None), None);
        assert_eq!(find("web:1", json!("Always"), None), None);
        assert_eq!(find("web:1", json!("Never"), None), Some((0, Some(1))));
        assert_eq!(find("web:1", json!("OnFailure"), None), Some((0, Some(1))));
        assert_eq!(find("r.example.com:5000/web:exit-3", json!("Never"), None), Some((3, Some(1))));
        assert_eq!(find("web:exit-3-after-2m", json!("Always"), None), Some((3, Some(120))));
        assert_eq!(find("web:exit-strategy", json!("Always"), None), None);
        assert_eq!(find("job:exit-3", json!("Never"), None), Some((4, Some(5))));
        assert_eq!(find("job:exit-3", json!("Never"), Some("exit:7")), Some((7, Some(1))));
        assert_eq!(find("job:exit-3", json!("Never"), Some("nonsense")), Some((4, Some(5))));
        for pause in ["pause", "registry.k8s.io/pause:3.10", "pause@sha256:00"] {
            assert_eq!(find(pause, json!("Never"), None), Some((0, None)), "{pause}");
        }
    }

    #[test]
    fn a_stopped_container_ends_by_the_signal_unless_it_is_a_server_or_told_otherwise() {
        for (policy, annotation, code) in [
            ("Never", None, 143),
            ("OnFailure", None, 143),
            ("Always", None, 0),
            ("Never", Some("exit:0,after:1h"), 143),
            ("Never", Some("sigterm:3"), 3),
            ("Never", Some("sigterm:ignore"), 137),
        ] {
            let pod = pod("job", json!(policy), annotation);
            assert_eq!(stopped_code(&pod, &pod.spec.containers[0], &[]), code, "{policy} {annotation:?}");
        }
    }
}
