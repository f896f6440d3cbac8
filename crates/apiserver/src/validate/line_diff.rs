//! The differences between two texts as upstream shows them: a unified diff without the names of files. The blocks of equal
//! lines are those of Python's difflib (Ratcliff and Obershelp), since upstream's library follows it.

use std::collections::HashMap;

/// Equal lines around a difference.
const CONTEXT: usize = 3;
/// From this length on, lines that are more than a hundredth of the new text are no place to begin a block at.
const LONG: usize = 200;

/// `size` equal lines at these places of the old and the new text.
#[derive(Clone, Copy)]
struct Block {
    old: usize,
    new: usize,
    size: usize,
}

struct Matcher<'a> {
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    /// The places of each line of the new text.
    places: HashMap<&'a str, Vec<usize>>,
}

pub(super) fn unified(old: &str, new: &str) -> String {
    let matcher = Matcher::of(old, new);
    let mut blocks = Vec::new();
    matcher.add_blocks(0..matcher.old.len(), 0..matcher.new.len(), &mut blocks);
    blocks.push(Block { old: matcher.old.len(), new: matcher.new.len(), size: 0 });
    let mut text = String::new();
    let mut hunk = Hunk::default();
    let mut end = Block { old: 0, new: 0, size: 0 };
    for block in blocks {
        let changes = (end.old..block.old, end.new..block.new);
        if !changes.0.is_empty() || !changes.1.is_empty() {
            // Up to twice the context joins two differences.
            if !hunk.is_empty() && end.size > 2 * CONTEXT {
                hunk.follow(&matcher.old[end.old - end.size..][..CONTEXT]);
                hunk.write(&mut text);
                hunk = Hunk::default();
            }
            if hunk.is_empty() {
                let before = end.size.min(CONTEXT);
                hunk = Hunk::at(end.old - before, end.new - before);
                hunk.follow(&matcher.old[end.old - before..end.old]);
            } else {
                hunk.follow(&matcher.old[end.old - end.size..end.old]);
            }
            hunk.lines.extend(matcher.old[changes.0.clone()].iter().map(|line| format!("-{line}\n")));
            hunk.lines.extend(matcher.new[changes.1.clone()].iter().map(|line| format!("+{line}\n")));
            hunk.old_count += changes.0.len();
            hunk.new_count += changes.1.len();
            end.size = 0;
        }
        end = Block {
            old: block.old + block.size,
            new: block.new + block.size,
            // Blocks that touch are one.
            size: end.size + block.size,
        };
    }
    if !hunk.is_empty() {
        hunk.follow(&matcher.old[end.old - end.size..][..end.size.min(CONTEXT)]);
        hunk.write(&mut text);
    }
    text
}

impl<'a> Matcher<'a> {
    fn of(old: &'a str, new: &'a str) -> Self {
        let [old, new] = [old, new].map(|text| text.split('\n').collect::<Vec<_>>());
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, line) in new.iter().enumerate() {
            places.entry(line).or_default().push(index);
        }
        if new.len() >= LONG {
            let limit = new.len() / 100 + 1;
            places.retain(|_, indexes| indexes.len() <= limit);
        }
        Matcher { old, new, places }
    }

    /// The longest block first, then those before and after it.
    fn add_blocks(&self, old: std::ops::Range<usize>, new: std::ops::Range<usize>, blocks: &mut Vec<Block>) {
        if old.is_empty() || new.is_empty() {
            return;
        }
        let longest = self.longest(&old, &new);
        if longest.size > 0 {
            self.add_blocks(old.start..longest.old, new.start..longest.new, blocks);
            blocks.push(longest);
            self.add_blocks(longest.old + longest.size..old.end, longest.new + longest.size..new.end, blocks);
        }
    }

    fn longest(&self, old: &std::ops::Range<usize>, new: &std::ops::Range<usize>) -> Block {
        let mut best = Block { old: old.start, new: new.start, size: 0 };
        // The length of the block that ends with the line before and a place in the new text.
        let mut lengths: HashMap<usize, usize> = HashMap::new();
        for index in old.clone() {
            let mut next = HashMap::new();
            for place in self.places.get(self.old[index]).into_iter().flatten() {
                if !new.contains(place) {
                    continue;
                }
                let before = place.checked_sub(1).and_then(|before| lengths.get(&before)).copied();
                let size = before.unwrap_or(0) + 1;
                next.insert(*place, size);
                if size > best.size {
                    best = Block { old: index + 1 - size, new: place + 1 - size, size };
                }
            }
            lengths = next;
        }
        while best.old > old.start && best.new > new.start && self.old[best.old - 1] == self.new[best.new - 1]
        {
            best = Block { old: best.old - 1, new: best.new - 1, size: best.size + 1 };
        }
        while best.old + best.size < old.end
            && best.new + best.size < new.end
            && self.old[best.old + best.size] == self.new[best.new + best.size]
        {
            best.size += 1;
        }
        best
    }
}

/// Differences that stand close together, with the equal lines between and around them.
#[derive(Default)]
struct Hunk {
    old: usize,
    new: usize,
    old_count: usize,
    new_count: usize,
    lines: Vec<String>,
}

impl Hunk {
    fn at(old: usize, new: usize) -> Self {
        Hunk { old, new, ..Hunk::default() }
    }

    fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Adds equal lines.
    fn follow(&mut self, lines: &[&str]) {
        self.lines.extend(lines.iter().map(|line| format!(" {line}\n")));
        self.old_count += lines.len();
        self.new_count += lines.len();
    }

    fn write(&self, text: &mut String) {
        let range = |start: usize, count: usize| match count {
            // Nothing stands after the line before it.
            0 => format!("{start},0"),
            1 => (start + 1).to_string(),
            _ => format!("{},{count}", start + 1),
        };
        let (old, new) = (range(self.old, self.old_count), range(self.new, self.new_count));
        text.push_str(&format!("@@ -{old} +{new} @@\n"));
        text.extend(self.lines.iter().map(String::as_str));
    }
}

#[cfg(test)]
mod tests {
    use super::unified;

    #[track_caller]
    fn check(old: &str, new: &str, expected: &str) {
        let lines = |text: &str| text.replace(' ', "\n");
        assert_eq!(unified(&lines(old), &lines(new)), expected);
    }

    #[test]
    fn equal_texts_have_no_difference() {
        check("a b", "a b", "");
    }

    #[test]
    fn three_lines_stand_around_a_difference() {
        check("a b c d e f g h", "a b c d X f g h", "@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+X\n f\n g\n h\n");
        check("a", "a b", "@@ -1 +1,2 @@\n a\n+b\n");
        check("a b", "a", "@@ -1,2 +1 @@\n a\n-b\n");
    }

    #[test]
    fn differences_that_stand_far_apart_are_shown_apart() {
        check(
            "1 2 3 4 5 6 7 8",
            "X 2 3 4 5 6 7 Y",
            "@@ -1,8 +1,8 @@\n-1\n+X\n 2\n 3\n 4\n 5\n 6\n 7\n-8\n+Y\n",
        );
        check(
            "1 2 3 4 5 6 7 8 9",
            "X 2 3 4 5 6 7 8 Y",
            "@@ -1,4 +1,4 @@\n-1\n+X\n 2\n 3\n 4\n@@ -6,4 +6,4 @@\n 6\n 7\n 8\n-9\n+Y\n",
        );
    }

    #[test]
    fn the_longest_block_is_kept_even_if_a_shorter_diff_exists() {
        check("a b", "a c a b", "@@ -1,2 +1,4 @@\n+a\n+c\n a\n b\n");
    }
}
