//! `KUBECTL_EXTERNAL_DIFF`: a program of the user that shows what differs between two revisions.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::revisions::yaml;

/// The variable, as for `kubectl diff`.
pub const VARIABLE: &str = "KUBECTL_EXTERNAL_DIFF";

/// Reads the program and its words.
///
/// # Errors
/// With the word that may not stand there: what a shell would understand is not for a program that gets no shell.
pub fn words(text: &str) -> Result<Option<(String, Vec<String>)>, String> {
    let mut words = text.split_whitespace().map(str::to_owned);
    let Some(program) = words.next() else { return Ok(None) };
    let words: Vec<String> = words.collect();
    let is_plain = |word: &&String| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '=');
    match words.iter().find(|word| !is_plain(word)) {
        Some(wrong) => Err(format!(
            "{VARIABLE}: {wrong:?} is not made of letters, digits, - and = only; put the command into a script"
        )),
        None => Ok(Some((program, words))),
    }
}

/// Runs the program on files with the two templates. It writes to our own stdout.
///
/// # Errors
/// When a file cannot be written, the program does not start, or it ends with more than 1, which means that it failed.
pub fn run(
    (program, words): &(String, Vec<String>),
    name: &str,
    revisions: [(i64, &Value); 2],
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{VARIABLE}: {program}: {error}");
    // Only we may read it: a template may hold secrets.
    let directory = tempfile::Builder::new().prefix("kubectl-windlass-").tempdir().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(words);
    for (number, template) in revisions {
        let file = directory.path().join(format!("{name}-revision-{number}.yaml"));
        fs::write(&file, yaml(template)?).map_err(failed)?;
        command.arg(file);
    }
    let status = command.status().map_err(failed)?;
    match status.code() {
        Some(0 | 1) => Ok(()),
        _ => Err(format!("{VARIABLE}: {program} ended with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_plain_words_only() {
        let read = |text: &str| words(text).unwrap().map(|(program, words)| format!("{program} {words:?}"));
        assert_eq!(read("colordiff -N --width=80").unwrap(), r#"colordiff ["-N", "--width=80"]"#);
        assert_eq!((read(""), read("  ")), (None, None));
        for wrong in ["diff $(id)", "diff -u;id", "diff ../x", "diff a|b"] {
            assert!(words(wrong).unwrap_err().contains("script"), "{wrong}");
        }
    }
}
