//! Commands that say themselves how they end. Nothing is run: a command counts only if it is one of these, word by word.

use std::time::Duration;

use super::{
    outcomes::{AFTER, PodOutcome},
    record::Pod,
};

/// A command that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// It ends in the same way in each pod, but for attempts.
    Ends(PodOutcome),
    /// It fails for odd completion indexes.
    FailsIfOdd,
    /// It fails by chance; the UID of the pod decides.
    FailsAtRandom,
}

impl Command {
    /// How it ends in a pod.
    pub(super) fn outcome(&self, pod: &Pod) -> PodOutcome {
        let fails = |fails: bool| PodOutcome::exits(u8::from(fails), AFTER);
        match self {
            Command::Ends(outcome) => outcome.clone(),
            Command::FailsIfOdd => fails(pod.metadata.completion_index.is_some_and(|index| index % 2 == 1)),
            Command::FailsAtRandom => fails(pod.uid().bytes().fold(0, u8::wrapping_add) % 2 == 1),
        }
    }

    /// The command of a container, from its `command` and `args`.
    pub(super) fn read(command: &[Box<str>], args: &[Box<str>]) -> Option<Command> {
        // Arguments alone are those of a program in the image, which nobody here knows.
        command.first()?;
        let words: Vec<&str> = command.iter().chain(args).map(|word| &**word).collect();
        match words.as_slice() {
            [shell, "-c", script] if matches!(base(shell), "sh" | "bash" | "ash") => of_script(script),
            [program, arguments @ ..] => simple(base(program), arguments),
            [] => None,
        }
    }
}

fn base(program: &str) -> &str {
    program.rsplit_once('/').map_or(program, |(_, name)| name)
}

fn simple(program: &str, arguments: &[&str]) -> Option<Command> {
    let ends = |exit_code, after| Some(Command::Ends(PodOutcome::exits(exit_code, after)));
    match (program, arguments) {
        ("true", []) => ends(0, AFTER),
        ("false", []) => ends(1, AFTER),
        ("exit", [code]) => ends(code.parse().ok()?, AFTER),
        ("sleep", ["infinity"]) => Some(Command::Ends(PodOutcome::never())),
        ("sleep", [seconds]) => ends(0, sleep(seconds)?),
        _ => None,
    }
}

/// A time up to a year, in seconds.
fn sleep(seconds: &str) -> Option<Duration> {
    let seconds = seconds.strip_suffix('s').unwrap_or(seconds).parse::<u64>().ok()?;
    (seconds <= 366 * 24 * 60 * 60).then(|| Duration::from_secs(seconds))
}

/// One simple command, `sleep N; exit N`, or a script of upstream's tests of Jobs (`test/e2e/framework/job/fixtures.go`,
/// `test/e2e/apps/job.go`), whatever white space is in it.
fn of_script(script: &str) -> Option<Command> {
    const MARKER: &str = "if [[ -r /data/foo ]] then exit 0 else touch /data/foo exit 1 fi";
    const MARKER_PER_INDEX: &str = "if [[ -r /data/foo-$JOB_COMPLETION_INDEX ]] then exit 0 else touch \
                                    /data/foo-$JOB_COMPLETION_INDEX exit 42 fi";
    const MARKER_AND_SLEEP: &str = "if [[ -r /data/foo-$JOB_COMPLETION_INDEX ]] then exit 0 else touch \
                                    /data/foo-$JOB_COMPLETION_INDEX sleep 1000000 fi";
    const ODD: &str = "if [ $(expr ${JOB_COMPLETION_INDEX} % 2) -ne 0 ]; then exit 1 else exit 0 fi";
    const RANDOM: &str = "exit $(( $RANDOM / 16384 ))";
    const UNTIL_STOPPED: &str = "_term(){ sleep 5 exit 143 } trap _term SIGTERM while true; do sleep 1 done";
    let words: Vec<&str> = script.split_whitespace().collect();
    match words.join(" ").as_str() {
        MARKER => Some(Command::Ends(PodOutcome::fails_once(1))),
        MARKER_PER_INDEX => Some(Command::Ends(PodOutcome::fails_once(42))),
        MARKER_AND_SLEEP => Some(Command::Ends(PodOutcome::ends_at_the_second_attempt())),
        ODD => Some(Command::FailsIfOdd),
        RANDOM => Some(Command::FailsAtRandom),
        UNTIL_STOPPED => Some(Command::Ends(PodOutcome::never())),
        other => {
            let parts: Vec<Vec<&str>> =
                other.split(';').map(|part| part.split_whitespace().collect()).collect();
            match parts.as_slice() {
                [one] => one.split_first().and_then(|(program, arguments)| simple(program, arguments)),
                [first, second] => match (first.as_slice(), second.as_slice()) {
                    (["sleep", seconds], ["exit", code]) => {
                        Some(Command::Ends(PodOutcome::exits(code.parse().ok()?, sleep(seconds)?)))
                    }
                    _ => None,
                },
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The exit code and the seconds of the first two attempts of completion index `index`.
    fn ends(words: &[&str], index: u32) -> Option<[(u8, Option<u64>); 2]> {
        let words: Vec<Box<str>> = words.iter().map(|word| (*word).into()).collect();
        let command = Command::read(&words[..1], &words[1..])?;
        let pod: Pod = serde_json::from_value(json!({"metadata": {
            "name": "p", "uid": "u", "annotations": {"batch.kubernetes.io/job-completion-index": index.to_string()}}}))
        .unwrap();
        let outcome = command.outcome(&pod);
        Some([0, 1].map(|attempt| {
            let run = outcome.run(Some(index), attempt);
            (run.exit_code, run.after.map(|after| after.as_secs()))
        }))
    }

    #[test]
    fn simple_commands_end_as_they_say() {
        for (words, end) in [
            (&["true"][..], (0, Some(1))),
            (&["/bin/false"], (1, Some(1))),
            (&["sleep", "300"], (0, Some(300))),
            (&["sleep", "infinity"], (0, None)),
            (&["/bin/sh", "-c", "exit 1"], (1, Some(1))),
            (&["sh", "-c", " sleep 5;  exit 3 "], (3, Some(5))),
            (&["bash", "-c", "sleep 7"], (0, Some(7))),
        ] {
            assert_eq!(ends(words, 0), Some([end; 2]), "{words:?}");
        }
        for unknown in [
            &["nginx"][..],
            &["sleep", "soon"],
            &["sh", "-c", "exit 300"],
            &["sh", "-c", "echo a; exit 1"],
            &["sh", "-c"],
        ] {
            assert_eq!(ends(unknown, 0), None, "{unknown:?}");
        }
        assert_eq!(Command::read(&[], &["true".into()]), None, "the image has a program of its own");
    }

    #[test]
    fn the_scripts_of_upstreams_tests_end_as_they_would() {
        let script = |text: &str, index: u32| ends(&["/bin/sh", "-c", text], index).unwrap();
        let once = "if [[ -r /data/foo ]]\n  then\n exit 0\n else\n touch /data/foo\n exit 1\n fi\n";
        assert_eq!(script(once, 0).map(|(code, _)| code), [1, 0]);
        let marker = "/data/foo-$JOB_COMPLETION_INDEX";
        let per_index = format!("if [[ -r {marker} ]]\nthen\nexit 0\nelse\ntouch {marker}\nexit 42\nfi");
        assert_eq!(script(&per_index, 3).map(|(code, _)| code), [42, 0]);
        let asleep = format!("if [[ -r {marker} ]]\nthen\nexit 0\nelse\ntouch {marker}\nsleep 1000000\nfi");
        assert_eq!(script(&asleep, 3), [(0, None), (0, Some(1))]);
        let odd = "if [ $(expr ${JOB_COMPLETION_INDEX} % 2) -ne 0 ]; then\nexit 1\nelse\nexit 0\nfi";
        assert_eq!([0, 1, 2, 3].map(|index| script(odd, index)[0].0), [0, 1, 0, 1]);
        assert!(script("exit $(( $RANDOM / 16384 ))", 0)[0].0 < 2);
        let until_stopped =
            "_term(){\n\tsleep 5\n\texit 143\n}\ntrap _term SIGTERM\nwhile true; do\n\tsleep 1\ndone";
        assert_eq!(script(until_stopped, 0)[0], (0, None));
    }
}
