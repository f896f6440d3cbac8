//! `spec.podFailurePolicy`: what follows from a failed pod (upstream: `pod_failure_policy.go`).

use crate::model::job::{FailureAction, FailureMatch, FailureRule, Job};
use crate::model::pod::Pod;
use crate::model::pod::job::JobPod;

/// A rule that a failed pod matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The consequence.
    pub action: FailureAction,
    /// Which part of the pod matched which rule, in upstream's words.
    pub message: String,
}

/// The first rule that a failed pod matches. None decides like `Count`.
pub fn matched(job: &Job, pod: &Pod) -> Option<Matched> {
    let rules = job.failure_policy.as_ref()?;
    let of_job = pod.job.as_ref()?;
    let key = &pod.meta.key;
    rules.iter().enumerate().find_map(|(at, FailureRule { action, matches })| {
        let action = (*action)?;
        let subject = match matches {
            FailureMatch::ExitCodes { container, is_in, values } => {
                let (name, code) = exit(of_job, container.as_deref(), *is_in, values)?;
                format!("Container {name} for pod {key} failed with exit code {code}")
            }
            FailureMatch::Conditions(patterns) => {
                let (kind, _) = of_job.conditions.iter().find(|condition| patterns.contains(condition))?;
                format!("Pod {key} has condition {kind}")
            }
        };
        Some(Matched { action, message: format!("{subject} matching {action:?} rule at index {at}") })
    })
}

/// The consequence of a failed pod.
pub fn action(job: &Job, pod: &Pod) -> FailureAction {
    matched(job, pod).map_or(FailureAction::Count, |matched| matched.action)
}

/// The first terminated container whose exit code is not 0 and matches.
fn exit<'p>(pod: &'p JobPod, container: Option<&str>, is_in: bool, values: &[i32]) -> Option<(&'p str, i32)> {
    let is_meant = |name: &str| container.is_none_or(|wanted| wanted == name);
    let exits = pod.exits.iter().map(|(name, code)| (&**name, *code));
    let mut failed = exits.filter(|(name, code)| *code != 0 && is_meant(name));
    failed.find(|(_, code)| values.contains(code) == is_in)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{job, pod};
    use super::*;

    /// The consequence of a pod whose container `c` ended with 42, `d` with 0, and init container `i` with 7.
    #[track_caller]
    fn check(rules: &str, expected: &str) {
        let job = job(&format!(r#""podFailurePolicy":{{"rules":[{rules}]}}"#), "");
        let ended = |name: &str, code: i32| {
            format!(r#"{{"name":"{name}","state":{{"terminated":{{"exitCode":{code}}}}}}}"#)
        };
        let failed = pod("p-0").failed().status(&format!(
            r#""containerStatuses":[{},{},{{"name":"e","state":{{"running":{{}}}}}}],"initContainerStatuses":[{}],
               "conditions":[{{"type":"DisruptionTarget","status":"True"}},{{"type":"Ready","status":"False"}}]"#,
            ended("d", 0),
            ended("c", 42),
            ended("i", 7)
        ));
        let matched = matched(&job, &failed.build());
        assert_eq!(matched.map(|matched| matched.message).unwrap_or_default(), expected, "{rules}");
    }

    fn codes(action: &str, container: &str, operator: &str, values: &str) -> String {
        format!(
            r#"{{"action":"{action}","onExitCodes":{{"containerName":{container},"operator":"{operator}","values":{values}}}}}"#
        )
    }

    #[test]
    fn the_first_terminated_container_of_the_name_with_a_code_among_the_values_matches() {
        let of_c = "Container c for pod shop/p-0 failed with exit code 42 matching FailJob rule at index 0";
        check(&codes("FailJob", "null", "In", "[5,42]"), of_c);
        check(&codes("FailJob", r#""c""#, "In", "[42]"), of_c);
        check(&codes("FailJob", r#""d""#, "In", "[42]"), "");
        check(&codes("FailJob", r#""e""#, "NotIn", "[1]"), "");
        check(&codes("FailJob", "null", "NotIn", "[5]"), of_c);
        check(&codes("FailJob", "null", "NotIn", "[42,7]"), "");
    }

    #[test]
    fn regular_containers_come_before_init_containers_and_the_code_0_never_matches() {
        let of_i = "Container i for pod shop/p-0 failed with exit code 7 matching Ignore rule at index 0";
        check(&codes("Ignore", "null", "NotIn", "[42]"), of_i);
        check(&codes("Ignore", "null", "In", "[7]"), of_i);
        check(&codes("Ignore", r#""d""#, "NotIn", "[42]"), "");
        check(&codes("Ignore", "null", "In", "[0]"), "");
    }

    #[test]
    fn a_condition_matches_by_type_and_status() {
        let on = |kind: &str, status: &str| {
            format!(
                r#"{{"action":"Count","onPodConditions":[{{"type":"X"}},{{"type":"{kind}","status":"{status}"}}]}}"#
            )
        };
        let disrupted = "Pod shop/p-0 has condition DisruptionTarget matching Count rule at index 0";
        check(&on("DisruptionTarget", "True"), disrupted);
        check(&on("DisruptionTarget", ""), disrupted);
        check(&on("DisruptionTarget", "False"), "");
        check(&on("Ready", "False"), "Pod shop/p-0 has condition Ready matching Count rule at index 0");
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_unknown_ones_are_skipped() {
        let rules = [
            codes("Later", "null", "In", "[42]"),
            codes("FailJob", "null", "Between", "[42]"),
            codes("FailIndex", "null", "In", "[1]"),
            codes("FailIndex", "null", "In", "[42]"),
            codes("FailJob", "null", "In", "[42]"),
        ];
        check(
            &rules.join(","),
            "Container c for pod shop/p-0 failed with exit code 42 matching FailIndex rule at index 3",
        );
    }
}
