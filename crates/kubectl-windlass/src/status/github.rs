//! The report of GitHub Actions on a rollout that does not complete: an annotation, and a table in the summary of the
//! job. Messages come from strangers, so that each part is escaped for the place where it stands.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

use super::verdicts::End;
use crate::cli::{Ci, Format, StatusArgs};
use crate::exit::CommandError;
use crate::output::Output;
use crate::rollout::Assessment;
use crate::rollout::pods::SHOWN;
use crate::text::age;

/// GitHub Actions, if the command runs there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHub {
    /// The file of the summary.
    summary: Option<PathBuf>,
}

impl GitHub {
    /// Whether there is somebody to report to: `None` elsewhere, for programs, and with `--ci none`.
    pub fn find(args: &StatusArgs, env: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let is_there = env("GITHUB_ACTIONS").as_deref() == Some("true");
        (is_there && args.ci == Ci::Auto && args.output == Format::Text).then(|| GitHub {
            summary: env("GITHUB_STEP_SUMMARY").filter(|file| !file.is_empty()).map(Into::into),
        })
    }

    /// Reports the rollouts that did not complete. A summary that cannot be written is a note.
    ///
    /// # Errors
    /// When the reader of the output is gone.
    pub fn report(&self, ends: &[(&End, &Assessment)], output: &mut Output) -> Result<(), CommandError> {
        let missed: Vec<_> = ends.iter().filter(|(end, _)| **end != End::Complete).copied().collect();
        if missed.is_empty() {
            return Ok(());
        }
        output.line(&annotation(&missed))?;
        if let Some(file) = &self.summary {
            let opened = OpenOptions::new().append(true).create(true).open(file);
            let written = opened.and_then(|mut file| file.write_all(summary(&missed).as_bytes()));
            if let Err(error) = written {
                output.note(&format!("note: cannot write GITHUB_STEP_SUMMARY {}: {error}", file.display()));
            }
        }
        Ok(())
    }
}

fn label(assessment: &Assessment) -> String {
    format!("{}/{}", assessment.namespace, assessment.name)
}

fn why(end: &End) -> &str {
    match end {
        End::Complete => "complete",
        End::Failed(why) | End::TimedOut(why) | End::Unfinished(why) => why,
    }
}

/// The command that makes one annotation.
fn annotation(missed: &[(&End, &Assessment)]) -> String {
    let names: Vec<String> = missed.iter().map(|(_, assessment)| label(assessment)).collect();
    let title = format!("Rollout of {}", names.join(" and "));
    let data: Vec<String> = match missed {
        [(end, _)] => vec![why(end).to_owned()],
        several => several.iter().map(|(end, known)| format!("{}: {}", label(known), why(end))).collect(),
    };
    format!("::error title={}::{}", property(&title), escaped(&data.join("\n")))
}

/// A text as the data of a workflow command.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A text as the value of a property of a workflow command.
fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

/// The rollouts and the pods in their way, as Markdown.
fn summary(missed: &[(&End, &Assessment)]) -> String {
    let mut text = String::from(
        "### Rollouts that did not complete\n\n| Object | Revision | Available | Result |\n|---|---|---|---|\n",
    );
    for (end, assessment) in missed {
        let revision = assessment.revision.map_or("?".to_owned(), |revision| revision.to_string());
        let (available, desired) = (assessment.new_available(), assessment.desired_new);
        let available = available.map_or("?".to_owned(), |available| available.to_string());
        let (label, why) = (cell(&label(assessment)), cell(why(end)));
        text.push_str(&format!("| {label} | {revision} | {available} of {desired} | {why} |\n"));
    }
    let pods = missed.iter().flat_map(|(_, known)| known.pods.iter().take(SHOWN).map(|pod| (pod, known.now)));
    let rows: Vec<String> = pods
        .map(|(pod, now)| {
            let (name, state, reason) = (cell(&pod.name), cell(&pod.state), cell(&pod.reason));
            format!("| {name} | {state} | {} | {} | {reason} |\n", pod.restarts, age(pod.since, now))
        })
        .collect();
    if !rows.is_empty() {
        text.push_str("\n| Pod | State | Restarts | Since | Reason |\n|---|---|---|---|---|\n");
        text.extend(rows);
    }
    text.push('\n');
    text
}

/// A foreign text in a cell: as code, in which Markdown has no meaning but for two characters.
fn cell(text: &str) -> String {
    let text = crate::text::harmless(text).replace('`', "'").replace('|', "\\|");
    if text.is_empty() { text } else { format!("`{text}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_stranger_stays_data() {
        assert_eq!(escaped("100%\r\n::add-mask::x"), "100%25%0D%0A::add-mask::x");
        assert_eq!(property("a,file=b:100%\n"), "a%2Cfile=b%3A100%25%0A");
        assert_eq!(cell("a | `b`\n<img src=x>"), "`a \\| 'b' <img src=x>`");
        assert_eq!(cell(""), "");
    }

    #[test]
    fn only_people_at_github_actions_get_a_report() {
        let args = |line: &[&str]| {
            use clap::Parser as _;
            let line = ["kubectl-windlass", "status", "web"].iter().chain(line);
            match crate::cli::Args::try_parse_from(line).unwrap().command {
                crate::cli::Command::Status(args) => args,
                other => panic!("{other:?}"),
            }
        };
        let at_github = |name: &str| match name {
            "GITHUB_ACTIONS" => Some("true".to_owned()),
            "GITHUB_STEP_SUMMARY" => Some("/tmp/summary".to_owned()),
            _ => None,
        };
        let found = GitHub::find(&args(&[]), &at_github);
        assert_eq!(found, Some(GitHub { summary: Some("/tmp/summary".into()) }));
        assert_eq!(GitHub::find(&args(&["--ci=none"]), &at_github), None);
        assert_eq!(GitHub::find(&args(&["-o=json"]), &at_github), None);
        assert_eq!(GitHub::find(&args(&[]), &|_| None), None);
        assert_eq!(GitHub::find(&args(&[]), &|_| Some("false".to_owned())), None);
    }
}
