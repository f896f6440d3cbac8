//! Texts in the columns of a terminal: cut, wrapped, and in rows whose parts have a meaning.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The meaning of a part of a row, for its colour. The words say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A heading.
    Heading,
    /// A name or a number.
    Plain,
    /// It is done.
    Good,
    /// It is under way.
    Waiting,
    /// It fails.
    Bad,
}

/// A row: texts with their tones.
pub type Row = Vec<(String, Tone)>;

/// How many columns a text takes.
pub fn columns_of(text: &str) -> usize {
    text.width()
}

/// How many columns a row takes.
pub fn row_columns(row: &Row) -> usize {
    row.iter().map(|(text, _)| columns_of(text)).sum()
}

/// A text of exactly `width` columns: padded, or cut.
pub fn fit(text: &str, width: usize) -> String {
    let text = cut(text, width);
    let padding = width.saturating_sub(columns_of(&text));
    text + &" ".repeat(padding)
}

/// A text of at most `width` columns. One that is cut ends in `…`.
pub fn cut(text: &str, width: usize) -> String {
    if columns_of(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut room = width.saturating_sub(1);
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if columns > room {
            break;
        }
        room -= columns;
        kept.push(c);
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// A row of at most `width` columns. One that is cut ends in `…`.
pub fn cut_row(row: Row, width: usize) -> Row {
    let mut room = width;
    let total = row_columns(&row);
    if total <= width {
        return row;
    }
    let mut kept = Row::new();
    for (text, tone) in row {
        let columns = columns_of(&text);
        // The last column is for the sign that something is missing.
        if columns < room {
            room -= columns;
            kept.push((text, tone));
        } else {
            // One more column than there is room, so that the sign appears where the text just fits.
            kept.push((cut(&format!("{text}  "), room), tone));
            break;
        }
    }
    kept
}

/// The lines of a text of words, each of at most `width` columns. A word that is longer is broken.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest = word;
        while !rest.is_empty() {
            let line = lines.last_mut().map_or(0, |line| columns_of(line));
            let gap = usize::from(line > 0);
            let room = width.saturating_sub(line + gap);
            let fits = columns_of(rest) <= room;
            if !fits && line > 0 && (columns_of(rest) <= width || room == 0 || room < width / 2) {
                lines.push(String::new());
                continue;
            }
            let taken = if fits { rest.len() } else { prefix(rest, room) };
            let (now, later) = rest.split_at(taken);
            if let Some(last) = lines.last_mut() {
                last.push_str(if gap > 0 { " " } else { "" });
                last.push_str(now);
            }
            rest = later;
            if !rest.is_empty() {
                lines.push(String::new());
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// A line as a terminal of `width` columns breaks it: between any two characters.
pub fn folded(line: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = line;
    loop {
        let (now, later) = rest.split_at(prefix(rest, width));
        lines.push(cut(now, width));
        if later.is_empty() {
            return lines;
        }
        rest = later;
    }
}

/// The bytes of the longest beginning of at most `width` columns: one character at least.
fn prefix(text: &str, width: usize) -> usize {
    let mut columns = 0;
    for (at, c) in text.char_indices() {
        columns += c.width().unwrap_or(0);
        if columns > width && at > 0 {
            return at;
        }
    }
    text.len()
}

/// A row and a text behind it: on the same line if that has room, else on lines of their own, indented.
pub fn with_text(mut row: Row, text: &str, tone: Tone, indent: &str, width: Option<usize>) -> Vec<Row> {
    if text.is_empty() {
        return vec![row];
    }
    let Some(width) = width.filter(|width| row_columns(&row) + columns_of(text) > *width) else {
        row.push((text.to_owned(), tone));
        return vec![row];
    };
    let mut rows = vec![row];
    rows.extend(indented(text, tone, indent, width));
    rows
}

/// A text on lines of their own, indented.
pub fn indented(text: &str, tone: Tone, indent: &str, width: usize) -> Vec<Row> {
    let lines = wrap(text, width.saturating_sub(columns_of(indent)));
    lines.into_iter().map(|line| vec![(indent.to_owned(), Tone::Plain), (line, tone)]).collect()
}

/// A text in the colour of its tone, if colours are wanted.
pub fn painted(text: &str, tone: Tone, colour: bool) -> String {
    line(&vec![(text.to_owned(), tone)], colour)
}

/// A row as text, with the colours of its tones if they are wanted.
pub fn line(row: &Row, colour: bool) -> String {
    let mut line = String::new();
    for (text, tone) in row {
        let code = match tone {
            Tone::Plain | Tone::Heading => None,
            Tone::Good => Some(32),
            Tone::Waiting => Some(33),
            Tone::Bad => Some(31),
        };
        match code.filter(|_| colour && !text.trim().is_empty()) {
            Some(code) => line.push_str(&format!("\u{1b}[{code}m{text}\u{1b}[0m")),
            None => line.push_str(text),
        }
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_cut_says_so_and_wide_characters_count_twice() {
        assert_eq!((cut("abc", 3), cut("abcd", 3)), ("abc".into(), "ab…".into()));
        assert_eq!((cut("日本語", 6), cut("日本語", 5)), ("日本語".into(), "日本…".into()));
        assert_eq!((cut("abc", 0), cut("abc", 1)), (String::new(), "…".into()));
        let row =
            |texts: &[&str]| texts.iter().map(|text| ((*text).to_owned(), Tone::Plain)).collect::<Row>();
        let shown = |row: Row, width| line(&cut_row(row, width), false);
        assert_eq!(shown(row(&["ab", "cd"]), 4), "abcd");
        assert_eq!(shown(row(&["ab", "cd", "e"]), 4), "abc…");
        assert_eq!(shown(row(&["abcd", "e"]), 4), "abc…");
        assert_eq!(shown(row(&["ab", "cdef"]), 3), "ab…");
    }

    #[test]
    fn a_text_that_fits_a_column_is_padded_to_it() {
        assert_eq!((fit("ab", 4), fit("abcde", 4)), ("ab  ".to_owned(), "abc…".to_owned()));
        assert_eq!((fit("日本", 5), fit("日本語", 4)), ("日本 ".to_owned(), "日… ".to_owned()));
    }

    #[test]
    fn words_wrap_and_no_line_is_too_long() {
        assert_eq!(wrap("the quick brown fox", 9), ["the quick", "brown fox"]);
        assert_eq!(wrap("a sha256:0123456789 b", 8), ["a sha256", ":0123456", "789 b"]);
        assert_eq!(wrap("", 5), Vec::<String>::new());
        for width in 1..30 {
            let lines = wrap("Back-off pulling image \"registry.example/日本:1\" for the 9th time", width);
            assert!(lines.iter().all(|line| columns_of(line) <= width.max(2)), "{width}: {lines:?}");
            let text: String = lines.concat().split_whitespace().collect();
            assert_eq!(text, "Back-offpullingimage\"registry.example/日本:1\"forthe9thtime", "{width}");
        }
    }

    #[test]
    fn a_line_is_folded_between_any_characters() {
        assert_eq!(folded("a  bcd", 4), ["a  b", "cd"]);
        assert_eq!(folded("", 4), [""]);
        assert_eq!(folded("日本語", 5), ["日本", "語"]);
        assert!(folded("日本", 1).iter().all(|line| columns_of(line) <= 1));
    }

    #[test]
    fn colours_are_added_to_words_alone() {
        let row = vec![
            ("web ".to_owned(), Tone::Plain),
            ("stuck".to_owned(), Tone::Bad),
            ("  ".to_owned(), Tone::Good),
        ];
        assert_eq!(line(&row, false), "web stuck");
        assert_eq!(line(&row, true), "web \u{1b}[31mstuck\u{1b}[0m");
    }
}
