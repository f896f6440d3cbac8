//! The daemon is killed at each write for a Job with failures, once before the write is carried out and once after. The
//! judge follows each pod that ends into the counts (JB3, JB4), and the Job must finish (JB18). `WINDLASS_SEEDS` is for
//! `--test games`.

use std::time::Duration;

use windlass_simulation::engine::game::{Game, Scenario as _};
use windlass_simulation::jobs::Jobs;
use windlass_simulation::jobs::scenario::{Act, Form, Scenario};

/// The histories with a crash at a write of this Job that break an invariant.
fn broken(form: &Form, writes: u32) -> Vec<String> {
    let mut broken = Vec::new();
    for (write, is_carried_out) in (1..=writes).flat_map(|write| [(write, false), (write, true)]) {
        let mut scenario = Scenario::draw(1);
        scenario.form = form.clone();
        scenario.faults = Default::default();
        (scenario.readiness, scenario.shutdown) = (Duration::from_millis(500), Duration::from_secs(1));
        scenario.garbage = Duration::ZERO;
        scenario.acts = vec![(Duration::ZERO, Act::CrashAt(write, is_carried_out))];
        if let Some(failure) = Jobs::run(&scenario, false).unwrap().failure {
            broken.push(format!("{} write {write}, carried out {is_carried_out}: {failure}", form.mode));
        }
    }
    broken
}

fn form(mode: &'static str, outcome: &'static str) -> Form {
    Form {
        mode: mode.into(),
        completions: 3,
        limit: 6,
        per_index: None,
        failure_policy: false,
        enough: None,
        replaces_failed_only: false,
        outcome: outcome.into(),
        is_foreign: false,
    }
}

fn check(forms: &[Form]) {
    let broken: Vec<String> = forms.iter().flat_map(|form| broken(form, 16)).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_crash_at_any_write_counts_each_pod_once() {
    check(&[
        form("NonIndexed", "exit:1/0/1/0,after:2s/3s"),
        form("Queue", "exit:1/0/0,after:2s/4s"),
        Form { failure_policy: true, ..form("NonIndexed", "exit:42/0,after:2s") },
        Form { limit: 1, ..form("NonIndexed", "exit:1,after:2s/5s") },
    ]);
}

#[test]
fn a_crash_at_any_write_counts_each_index_once() {
    check(&[
        form("Indexed", "exit:1/0,after:2s/3s"),
        Form { per_index: Some(1), ..form("Indexed", "fail-indexes:1,after:2s") },
        Form { enough: Some(1), ..form("Indexed", "after:2s/9s") },
    ]);
}
