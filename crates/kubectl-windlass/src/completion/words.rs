//! The possible values of the last word on an unfinished command line. Pure, from the definitions of clap.

use clap::{Arg, ArgAction, Command};

/// An unfinished command line.
pub struct Line<'a> {
    /// The command that it calls so far.
    pub command: &'a Command,
    /// The words that are no flags, behind the command.
    pub names: Vec<String>,
    /// The flags with their values, in their order; of a flag without a value it is empty.
    pub flags: Vec<(&'a Arg, Option<String>)>,
    /// The expected kind of the last word.
    pub wanted: Wanted<'a>,
    /// The part of it that is typed already; of `--flag=value` it is the value, as kubectl's own completion expects.
    pub prefix: String,
}

/// The expected kind of a word.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// A command.
    Command,
    /// A flag.
    Flag,
    /// The value of this flag.
    Value(&'a Arg),
    /// A word that is no flag.
    Name,
}

impl Line<'_> {
    /// The last value of a flag, by the identifier of clap.
    pub fn value(&self, flag: &str) -> Option<&str> {
        let mut of_the_flag = self.flags.iter().rev().filter(|(arg, _)| arg.get_id() == flag);
        of_the_flag.next().and_then(|(_, value)| value.as_deref())
    }
}

/// Reads the words behind the name of the program. The last one is the one to complete. `root` must have been built.
pub fn read<'a>(root: &'a Command, words: &[String]) -> Line<'a> {
    let (last, earlier) =
        words.split_last().map_or(("", [].as_slice()), |(last, rest)| (last.as_str(), rest));
    let mut line = Line {
        command: root,
        names: Vec::new(),
        flags: Vec::new(),
        wanted: Wanted::Name,
        prefix: String::new(),
    };
    let mut awaits_value: Option<&Arg> = None;
    let mut only_names = false;
    for word in earlier {
        if let Some(arg) = awaits_value.take() {
            line.flags.push((arg, Some(word.clone())));
        } else if only_names || !is_flag(word) {
            match line.command.find_subcommand(word) {
                Some(command) if !only_names && line.names.is_empty() => line.command = command,
                _ => line.names.push(word.clone()),
            }
        } else if word == "--" {
            only_names = true;
        } else {
            awaits_value = line.read_flag(word);
        }
    }
    let split = last.split_once('=').and_then(|(flag, value)| Some((find(line.command, flag)?, value)));
    (line.wanted, line.prefix) = match (awaits_value, split) {
        (Some(arg), _) => (Wanted::Value(arg), last.to_owned()),
        (None, Some((arg, value))) if !only_names => (Wanted::Value(arg), value.to_owned()),
        (None, _) if !only_names && last.starts_with('-') => (Wanted::Flag, last.to_owned()),
        _ if line.command.has_subcommands() => (Wanted::Command, last.to_owned()),
        _ => (Wanted::Name, last.to_owned()),
    };
    line
}

/// A single dash is a name: that of stdin.
fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// The flag that a word such as `--namespace` or `-n` names.
fn find<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|letter| word == format!("-{letter}")),
    })
}

/// Whether the value of a flag may be the next word.
fn takes_next_word(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

impl<'a> Line<'a> {
    /// Notes a word of flags. Returns the flag whose value is the next word.
    fn read_flag(&mut self, word: &str) -> Option<&'a Arg> {
        if word.starts_with("--") {
            let (flag, value) =
                word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
            let arg = find(self.command, flag)?;
            if value.is_none() && takes_next_word(arg) {
                return Some(arg);
            }
            self.flags.push((arg, value.map(str::to_owned)));
            return None;
        }
        // Letters: `-A`, `-Al app=web`, `-nshop`, `-n=shop`.
        for (at, letter) in word.char_indices().skip(1) {
            let arg = find(self.command, &format!("-{letter}"))?;
            let rest = word.get(at + letter.len_utf8()..).unwrap_or_default();
            if !arg.get_action().takes_values() {
                self.flags.push((arg, None));
                continue;
            }
            if rest.is_empty() && takes_next_word(arg) {
                return Some(arg);
            }
            let value = rest.strip_prefix('=').unwrap_or(rest);
            self.flags.push((arg, (!rest.is_empty()).then(|| value.to_owned())));
            return None;
        }
        None
    }
}

/// Whether a flag may stand a second time.
pub fn may_repeat(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append | ArgAction::Count)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Args;

    fn shown(words: &[&str]) -> String {
        let mut root = Args::command();
        root.build();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let line = read(&root, &words);
        let wanted = match line.wanted {
            Wanted::Value(arg) => format!("value of {}", arg.get_id()),
            other => format!("{other:?}"),
        };
        format!("{} {:?}: {wanted} {:?}", line.command.get_name(), line.names, line.prefix)
    }

    #[test]
    fn the_place_of_a_word_says_what_it_may_be() {
        assert_eq!(shown(&[]), r#"kubectl-windlass []: Command """#);
        assert_eq!(shown(&["expl"]), r#"kubectl-windlass []: Command "expl""#);
        assert_eq!(shown(&["-n", "shop", "watch", "we"]), r#"status []: Name "we""#);
        assert_eq!(shown(&["status", "web", "--ti"]), r#"status ["web"]: Flag "--ti""#);
        assert_eq!(shown(&["status", "--", "--ti"]), r#"status []: Name "--ti""#);
        assert_eq!(shown(&["status", "status", ""]), r#"status ["status"]: Name """#);
    }

    #[test]
    fn a_value_stands_behind_its_flag_or_behind_an_equals_sign() {
        assert_eq!(shown(&["status", "-n", "sh"]), r#"status []: value of namespace "sh""#);
        assert_eq!(shown(&["status", "--namespace=sh"]), r#"status []: value of namespace "sh""#);
        assert_eq!(shown(&["status", "-An", ""]), r#"status []: value of namespace """#);
        // It takes a value only behind an equals sign.
        assert_eq!(shown(&["status", "--watch", "w"]), r#"status []: Name "w""#);
        assert_eq!(shown(&["create", "-f", "-", "-f", ""]), r#"create []: value of filename """#);
    }

    #[test]
    fn the_values_of_flags_are_kept() {
        let mut root = Args::command();
        root.build();
        let words = ["--context=a", "status", "-nshop", "--context", "b", "-A", "x"].map(str::to_owned);
        let line = read(&root, &words);
        assert_eq!((line.value("context"), line.value("namespace")), (Some("b"), Some("shop")));
        assert_eq!(line.value("all_namespaces"), None);
        assert!(line.flags.iter().any(|(arg, _)| arg.get_id() == "all_namespaces"));
    }
}
