//! Bounds the depth of lists and mappings in brackets before the parser sees them: the parser reads them to their end before it
//! judges their depth, and its time grows with the square of it.

/// The depth that is left to the parser, which has a lower limit of its own.
const DEEPEST: usize = 1000;

/// Where a character stands inside brackets.
#[derive(Clone, Copy)]
enum Mode {
    /// Where a value or key may begin.
    Start,
    Plain,
    Anchor,
    Tag,
    Single,
    Double,
    /// Behind a backslash.
    Escape,
    Comment,
}

const MODES: [Mode; 8] = {
    use Mode::*;
    [Start, Plain, Anchor, Tag, Single, Double, Escape, Comment]
};

/// Refuses brackets that may be nested too deeply.
///
/// Whether a bracket outside of brackets is text, depends on the indentation. So each is followed as if it were none, too,
/// and of all that a text may mean the deepest counts.
///
/// # Errors
/// When they are.
pub fn check_depth(text: &str) -> Result<(), String> {
    // By mode; 0 for one that is not possible here.
    let mut depths = [0; MODES.len()];
    let (mut before, mut line) = (' ', 1);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let ends_word = characters.peek().is_none_or(|next| next.is_whitespace());
        let mut next = [0; MODES.len()];
        if matches!(c, '[' | '{') && before.is_whitespace() {
            next[Mode::Start as usize] = 1;
        }
        for (mode, depth) in MODES.into_iter().zip(depths).filter(|(_, depth)| *depth > 0) {
            let (mode, depth) = step(mode, depth, c, before, ends_word);
            next[mode as usize] = depth.max(next[mode as usize]);
        }
        if next.into_iter().any(|depth| depth > DEEPEST) {
            return Err(format!("nested more than {DEEPEST} levels deep at line {line}"));
        }
        line += usize::from(c == '\n');
        (depths, before) = (next, c);
    }
    Ok(())
}

fn step(mode: Mode, depth: usize, c: char, before: char, ends_word: bool) -> (Mode, usize) {
    use Mode::*;
    match (mode, c) {
        (Start | Plain | Anchor, '[' | '{') => (Start, depth + 1),
        (Start | Plain | Anchor, ']' | '}') => (Start, depth - 1),
        (Tag, '[' | '{') => (Tag, depth + 1),
        (Start, '\'') => (Single, depth),
        (Start, '"') => (Double, depth),
        (Start, '!') => (Tag, depth),
        (Start, '&' | '*') => (Anchor, depth),
        (Start, '#') => (Comment, depth),
        (Plain, '#') if before.is_whitespace() => (Comment, depth),
        (Start | Anchor, ':' | '?') | (Plain | Anchor, ',') => (Start, depth),
        (Plain, ':') if ends_word => (Start, depth),
        (Start, _) if !c.is_whitespace() && c != ',' => (Plain, depth),
        (Anchor | Tag, _) if c.is_whitespace() => (Start, depth),
        (Single, '\'') | (Double, '"') => (Start, depth),
        (Double, '\\') => (Escape, depth),
        (Escape, _) => (Double, depth),
        (Comment, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}') => (Start, depth),
        _ => (mode, depth),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_that_are_closed_or_are_text_are_no_depth() {
        let lines = [
            "- {a: {b: 'x}'}}\n",
            "- [it's, \"a]\\\"]\", !t x] # [\n",
            "- {a: [ # ]\n  b], c: x#], ? d: e}\n",
            "- x[0]{ [a, &b {c: *b}]\n",
        ];
        // A bracket in a text is not closed; two lines have none.
        assert_eq!(check_depth(&lines[..3].concat().repeat(3000)), Ok(()));
        assert_eq!(check_depth(&"- \"[\"\n- echo \\e[31m {\n  x ] \n".repeat(3000)), Ok(()));
    }

    #[test]
    fn no_quote_tag_or_comment_hides_a_level() {
        for level in [
            "[",
            "{a: ",
            "[']', ",
            "[\"]\", ",
            "[\"\\\"]\", ",
            "[!<]]>x, ",
            "[ # ]]\n",
            "[it's, ",
            "{a: ']', ? '}' : ",
        ] {
            let deep = format!("a: {}", level.repeat(1001));
            assert!(check_depth(&deep).is_err(), "{level}");
            // Behind what looks like a quoted text in brackets and is none.
            for text in ["a: x [ \"\n", "a: x [ '\n", "a: |\n  [ #"] {
                assert!(check_depth(&format!("{text}\n{deep}")).is_err(), "{text}{level}");
            }
            assert_eq!(check_depth(&format!("a: {}", level.repeat(990))), Ok(()), "{level}");
        }
    }
}
