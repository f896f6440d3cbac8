//! Pods with the finalizer whose Job will not count them: it is gone, or finished, or the pod has no controller.

use crate::model::{Job, Pod, Record};

/// Whether the finalizer of a pod may be left over: its Job, as the cache shows it, does not count it. The pod of another
/// kind of controller is left alone.
pub fn may_be_left_over(pod: &Pod, job: Option<&Job>) -> bool {
    let is_tracked = pod.job.as_ref().is_some_and(|part| part.has_finalizer);
    let controller = pod.meta.controller.as_ref();
    is_tracked
        && controller.is_none_or(|controller| controller.is_of(&Job::RESOURCE))
        && job.is_none_or(|job| job.managed_by.is_none() && job.is_finished())
}

/// Whether the finalizer goes. `fresh` is the Job of the pod's reference as the API server has it, if it has one of the
/// name.
pub fn is_left_over(pod: &Pod, fresh: Option<&Job>) -> bool {
    may_be_left_over(pod, fresh.filter(|job| job.controls(&pod.meta)))
}

/// Whether a pod came too late: its creation was under way when its Job finished, so that it runs for nobody. Upstream
/// takes its finalizer off and lets it run.
pub fn came_too_late(pod: &Pod, job: Option<&Job>) -> bool {
    pod.is_active() && job.is_some_and(|job| job.controls(&pod.meta)) && may_be_left_over(pod, job)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{job, pod};
    use super::*;

    const COMPLETE: &str = r#""conditions":[{"type":"Complete","status":"True"}]"#;

    #[test]
    fn a_finalizer_is_left_over_without_a_live_job_that_counts_the_pod() {
        let pod_of_job = pod("p").succeeded().build();
        assert!(may_be_left_over(&pod_of_job, None));
        assert!(may_be_left_over(&pod_of_job, Some(&job("", COMPLETE))));
        assert!(!may_be_left_over(&pod_of_job, Some(&job("", ""))));
        assert!(!may_be_left_over(&pod("p").untracked().build(), None));
        assert!(may_be_left_over(&pod("p").orphaned().build(), None));
    }

    #[test]
    fn only_an_active_pod_with_the_finalizer_came_too_late_for_its_finished_job() {
        let finished = job("", COMPLETE);
        assert!(came_too_late(&pod("p").build(), Some(&finished)));
        assert!(!came_too_late(&pod("p").succeeded().build(), Some(&finished)));
        assert!(!came_too_late(&pod("p").untracked().build(), Some(&finished)));
        assert!(!came_too_late(&pod("p").build(), Some(&job("", ""))));
        assert!(!came_too_late(&pod("p").build(), None));
        let managed = job(r#""managedBy":"example.com/queue""#, COMPLETE);
        assert!(!came_too_late(&pod("p").build(), Some(&managed)));
    }

    #[test]
    fn pods_of_other_controllers_and_of_jobs_that_others_manage_are_left_alone() {
        let mut other = pod("p").build();
        std::sync::Arc::make_mut(other.meta.controller.as_mut().unwrap()).kind = "Workflow".into();
        assert!(!may_be_left_over(&other, None));
        let managed = job(r#""managedBy":"example.com/queue""#, COMPLETE);
        assert!(!may_be_left_over(&pod("p").build(), Some(&managed)));
    }

    #[test]
    fn a_job_that_was_created_anew_under_the_name_does_not_count_the_pod() {
        let mut anew = job("", "");
        assert!(!is_left_over(&pod("p").build(), Some(&anew)));
        anew.meta.uid = crate::model::Uid::new("u-other");
        assert!(is_left_over(&pod("p").build(), Some(&anew)));
        assert!(is_left_over(&pod("p").build(), None));
    }
}
