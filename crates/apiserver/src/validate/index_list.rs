//! Lists of completion indexes, such as `1,3-5,7`, as policies and statuses of Jobs have them.

/// How many indexes a list has, all of them below `completions` and in increasing order.
///
/// # Errors
/// The defect, in the words of upstream.
pub(super) fn count(list: &str, completions: i64) -> Result<i64, String> {
    let (mut last, mut count) = (None, 0_i64);
    for part in list.split(',').filter(|_| !list.is_empty()) {
        let (first, end) = interval(part, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(not_increasing(last, first));
        }
        count = count.saturating_add(end.saturating_sub(first).saturating_add(1));
        last = Some(end);
    }
    Ok(count)
}

/// The first index that both lists have; parts that cannot be read are skipped.
pub(super) fn overlap(left: &str, right: &str, completions: i64) -> Option<i64> {
    let intervals = |list: &str| -> Vec<(i64, i64)> {
        list.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (left, right) = (intervals(left), intervals(right));
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some((first, end)), Some((other, other_end))) = (left.peek(), right.peek()) {
        if first <= other_end && other <= end {
            return Some(*first.max(other));
        }
        if first <= other {
            left.next();
        } else {
            right.next();
        }
    }
    None
}

/// The first and the last index of `3-5` or `3`.
fn interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let limits: Vec<&str> = part.split('-').collect();
    let index = |text: &str| match integer(text) {
        None => Err(format!("cannot convert string to integer for index: {text:?}")),
        Some(index) if index >= completions => Err(format!("too large index: {text:?}")),
        Some(index) => Ok(index),
    };
    match limits.as_slice() {
        [one] => index(one).map(|index| (index, index)),
        [first, last] => match (index(first)?, index(last)?) {
            (first, last) if first >= last => Err(not_increasing(first, last)),
            both => Ok(both),
        },
        _ => Err(format!(
            "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated \
             by '-'"
        )),
    }
}

/// As Go's `strconv.Atoi` reads it; a minus sign cannot get here.
fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn not_increasing(last: i64, next: i64) -> String {
    format!("non-increasing order, previous: {last}, current: {next}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(list: &str, why: &str) {
        assert_eq!(count(list, 10), Err(why.to_owned()), "{list}");
    }

    #[test]
    fn the_indexes_of_a_list_are_counted() {
        for (list, expected) in
            [("", 0), ("0", 1), ("9", 1), ("1,3-5,7", 5), ("0-9", 10), ("+1", 1), ("01", 1)]
        {
            assert_eq!(count(list, 10), Ok(expected), "{list}");
        }
        assert_eq!(count("0-2147483646", i64::from(i32::MAX)), Ok(2_147_483_647));
    }

    #[test]
    fn a_list_that_cannot_be_read_is_refused() {
        refused("10", "too large index: \"10\"");
        refused("1-10", "too large index: \"10\"");
        refused("x", "cannot convert string to integer for index: \"x\"");
        refused("1,", "cannot convert string to integer for index: \"\"");
        refused("-1", "cannot convert string to integer for index: \"\"");
        refused("1 ,2", "cannot convert string to integer for index: \"1 \"");
        refused(
            "99999999999999999999",
            "cannot convert string to integer for index: \"99999999999999999999\"",
        );
        refused("3,2", "non-increasing order, previous: 3, current: 2");
        refused("3-3", "non-increasing order, previous: 3, current: 3");
        refused("1-4,4", "non-increasing order, previous: 4, current: 4");
        let why = "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts \
                   separated by '-'";
        refused("1-2-3", why);
    }

    #[test]
    fn the_first_index_that_two_lists_share_is_found() {
        for (left, right, expected) in [
            ("", "", None),
            ("0-3", "4-5", None),
            ("0,2,4", "1,3,5", None),
            ("0-3,5-8", "4,7-9", Some(7)),
            ("x,5", "1,5", Some(5)),
            ("2", "0-9", Some(2)),
            ("50", "50", None),
        ] {
            assert_eq!(overlap(left, right, 10), expected, "{left} and {right}");
        }
    }
}
