//! `spec.successPolicy`: when a Job with indexes has succeeded although indexes are left (upstream: `success_policy.go`).

use crate::model::{Indexes, Job};

/// The message of the first rule that is met. None without a single success.
pub fn met(job: &Job, succeeded: &Indexes) -> Option<String> {
    let completions = job.completions.filter(|_| job.is_indexed() && !succeeded.is_empty())?;
    let rules = job.success_policy.as_ref()?;
    let met = rules.iter().position(|rule| match (&rule.indexes, rule.count) {
        (Some(indexes), count) => {
            let wanted = indexes.below(completions);
            // An empty list, or one that does not parse, is met by nothing.
            !wanted.is_empty() && succeeded.shared_with(&wanted) >= count.unwrap_or(wanted.len())
        }
        (None, Some(count)) => succeeded.len() >= count,
        (None, None) => false,
    })?;
    Some(format!("Matched rules at index {met}"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::job;
    use super::*;

    #[track_caller]
    fn check(rules: &str, succeeded: &str, expected: Option<usize>) {
        let job = job(
            &format!(r#""completionMode":"Indexed","completions":10,"successPolicy":{{"rules":[{rules}]}}"#),
            "",
        );
        let expected = expected.map(|at| format!("Matched rules at index {at}"));
        assert_eq!(met(&job, &Indexes::parse(succeeded)), expected, "{rules}: {succeeded}");
    }

    #[test]
    fn a_list_of_indexes_needs_all_of_them_or_as_many_as_the_count() {
        let all = r#"{"succeededIndexes":"0-2,7"}"#;
        check(all, "0-2", None);
        check(all, "0-2,7", Some(0));
        check(all, "0-9", Some(0));
        let some = r#"{"succeededIndexes":"0-2,7","succeededCount":2}"#;
        check(some, "0,3-6,8,9", None);
        check(some, "0,7", Some(0));
    }

    #[test]
    fn a_count_alone_needs_as_many_of_any_index() {
        check(r#"{"succeededCount":3}"#, "1,5", None);
        check(r#"{"succeededCount":3}"#, "1,5,9", Some(0));
    }

    #[test]
    fn the_first_rule_that_is_met_is_named_and_empty_ones_are_skipped() {
        let empty = r#"{"succeededIndexes":""},{"succeededIndexes":"x"},{"succeededIndexes":"10-20"},{}"#;
        check(&format!(r#"{empty},{{"succeededIndexes":"4"}},{{"succeededCount":1}}"#), "4", Some(4));
        check(&format!(r#"{empty},{{"succeededIndexes":"4"}},{{"succeededCount":1}}"#), "5", Some(5));
        check(r#"{"succeededCount":0}"#, "", None);
    }
}
