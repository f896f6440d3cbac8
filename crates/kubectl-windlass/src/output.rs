//! The streams: results on stdout; notes, warnings and errors on stderr.

use std::io::{IsTerminal as _, Write};

use windlass_manifest::Origin;

use crate::cli::{Color, GlobalArgs};
use crate::exit::{CommandError, Exit};
use crate::text::harmless;

/// Where a command writes, and how.
pub struct Output {
    results: Box<dyn Write + Send>,
    notes: Box<dyn Write + Send>,
    /// The look of texts.
    pub style: Style,
    /// Whether stdin and stdout are a terminal, which a live view may use.
    pub is_interactive: bool,
    /// The columns of the terminal; `None` where lines may have any length, as in a file or a pipe.
    pub width: Option<usize>,
}

/// The look of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether to use colours.
    pub colour: bool,
    /// Whether to use Unicode in bars and branches.
    pub unicode: bool,
}

impl Output {
    /// The streams of this process.
    pub fn of_process(args: &GlobalArgs) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        Output {
            style: Style::choose(args, is_terminal, &variable),
            is_interactive: is_terminal && std::io::stdin().is_terminal() && variable("TERM") != "dumb",
            width: is_terminal
                .then(|| ratatui::crossterm::terminal::size().ok())
                .flatten()
                .map(|(columns, _)| columns.into()),
            results: Box::new(std::io::stdout()),
            notes: Box::new(std::io::stderr()),
        }
    }

    /// Writes a line of the result.
    ///
    /// # Errors
    /// When the reader is gone.
    pub fn line(&mut self, line: &str) -> Result<(), CommandError> {
        let written = writeln!(self.results, "{line}").and_then(|()| self.results.flush());
        written.map_err(|_| CommandError::OutputClosed)
    }

    /// Writes a text of several lines that ends with a line break.
    ///
    /// # Errors
    /// When the reader is gone.
    pub fn text(&mut self, text: &str) -> Result<(), CommandError> {
        let written = self.results.write_all(text.as_bytes()).and_then(|()| self.results.flush());
        written.map_err(|_| CommandError::OutputClosed)
    }

    /// Writes a note on stderr. Whether somebody reads it makes no difference.
    pub fn note(&mut self, note: &str) {
        let _ = writeln!(self.notes, "{note}");
    }

    /// Warns of what a document has that kubectl takes without a word, such as a key that occurs twice.
    pub fn warn_of(&mut self, origin: &Origin, notes: &[String]) {
        for note in notes {
            self.note(&format!("warning: {origin}: {}", harmless(note)));
        }
    }

    /// Writes an error on stderr.
    pub fn error(&mut self, error: &str) {
        let _ = writeln!(self.notes, "error: {error}");
    }

    /// The end of a command that has shown all of several objects but these, as kubectl does.
    ///
    /// # Errors
    /// The last of them; the others are told.
    pub fn ended(&mut self, exit: Exit, mut missing: Vec<CommandError>) -> Result<Exit, CommandError> {
        let last = missing.pop();
        missing.iter().for_each(|error| self.error(&error.to_string()));
        last.map_or(Ok(exit), Err)
    }
}

impl Style {
    /// Colours where they are wanted, and Unicode where the locale has it: with LC_ALL, else LC_CTYPE, else LANG.
    fn choose(args: &GlobalArgs, is_terminal: bool, variable: &dyn Fn(&str) -> String) -> Self {
        let colour = match args.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && variable("NO_COLOR").is_empty() && variable("TERM") != "dumb",
        };
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable).into_iter().find(|value| !value.is_empty());
        let locale = locale.unwrap_or_default().to_ascii_lowercase().replace('-', "");
        let unicode = locale.contains("utf8") || cfg!(any(windows, target_os = "macos"));
        Style { colour, unicode: unicode && !args.ascii }
    }

    /// The stem below a branch that others follow.
    pub fn stem(self) -> &'static str {
        if self.unicode { "│  " } else { "|  " }
    }

    /// A bar of `width` characters: the parts of `whole` that are new, and that are old, and the rest. A bar of nothing is
    /// empty.
    pub fn bar(self, new: i64, old: i64, whole: i64, width: usize) -> [String; 3] {
        let signs = if self.unicode { ["█", "▒", "░"] } else { ["#", "+", "."] };
        let width = i64::try_from(width).unwrap_or(0);
        let share =
            |part: i64| part.clamp(0, whole.max(0)).saturating_mul(width).checked_div(whole).unwrap_or(0);
        let new_width = share(new);
        let old_width = share(new.saturating_add(old)).saturating_sub(new_width).max(0);
        let widths = [new_width, old_width, width - new_width - old_width];
        let mut parts =
            widths.iter().zip(signs).map(|(&count, sign)| sign.repeat(usize::try_from(count).unwrap_or(0)));
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_unicode_follow_flags_and_environment() {
        let style = |args: &GlobalArgs, terminal: bool, set: &[(&str, &str)]| {
            let variable = |name: &str| {
                set.iter()
                    .find(|(key, _)| *key == name)
                    .map_or(String::new(), |(_, value)| (*value).to_owned())
            };
            let Style { colour, unicode } = Style::choose(args, terminal, &variable);
            (colour, unicode)
        };
        let auto = GlobalArgs::default();
        assert_eq!(style(&auto, true, &[("LANG", "en_US.UTF-8")]), (true, true));
        assert!(!style(&auto, false, &[("LANG", "C.utf8"), ("LC_ALL", "POSIX")]).0);
        assert!(!style(&auto, true, &[("NO_COLOR", "1")]).0);
        assert!(!style(&auto, true, &[("TERM", "dumb")]).0);
        let always = GlobalArgs { color: Color::Always, ascii: true, ..GlobalArgs::default() };
        assert_eq!(style(&always, false, &[("LANG", "de_DE.UTF-8")]), (true, false));
    }

    #[test]
    fn a_bar_never_overflows_and_one_of_nothing_is_empty() {
        let style = Style { colour: false, unicode: false };
        let bar = |new, old, whole, width| style.bar(new, old, whole, width).concat();
        assert_eq!(bar(4, 3, 10, 10), "####+++...");
        assert_eq!(bar(0, 0, 0, 4), "....");
        assert_eq!((bar(-3, 0, 10, 4), bar(99, 99, 10, 4)), ("....".into(), "####".into()));
        assert_eq!(bar(0, 99, 10, 4), "++++");
        assert_eq!(bar(i64::MAX, i64::MAX, i64::MAX, 4).len(), 4);
    }
}
