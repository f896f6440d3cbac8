//! The rows of the live view, as text with tones. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    cluster::{Cluster, Key, Pod, desired_replicas, key, number},
    event_lines::{event, plain},
    progress::{Rollout, completions, counts, daemon_rollout, job_state, rollout, stateful_rollout},
};

/// The meaning of a piece of text; [`view`](super) maps it to a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A heading.
    Heading,
    /// Neutral.
    Plain,
    /// Complete or ready.
    Good,
    /// In progress.
    Waiting,
    /// An error.
    Bad,
}

/// One line of the screen.
pub type Row = Vec<(String, Tone)>;

/// The width of a bar in characters.
const BAR: usize = 12;

/// A screen of some width, in characters.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    /// Longer lines are truncated.
    pub width: usize,
}

impl Board {
    /// A line per Deployment and per ReplicaSet of it that has or needs pods, two per StatefulSet, then one per DaemonSet, Job
    /// and ReplicationController; at most `height` lines. If there are more, the last line counts them.
    pub fn workloads(&self, cluster: &Cluster, height: usize) -> Vec<Row> {
        let name_width = (self.width / 3).clamp(16, 44);
        let heading = format!("{:name_width$}  {:21}  {:21}  STATUS", "DEPLOYMENT", "READY", "UPDATED");
        let mut rows = vec![vec![(heading, Tone::Heading)]];
        let shown = |replica_set: &&Value| {
            desired_replicas(replica_set) > 0 || number(replica_set, "/status/replicas") > 0
        };
        let replica_sets = |deployment| cluster.replica_sets_of(deployment).filter(shown);
        let controllers = &cluster.replication_controllers;
        let all: usize =
            cluster.deployments.values().map(|deployment| 1 + replica_sets(deployment).count()).sum();
        let all = all
            + 2 * cluster.stateful_sets.len()
            + cluster.daemon_sets.len()
            + cluster.jobs.len()
            + controllers.len();
        for deployment in cluster.deployments.values() {
            rows.push(self.deployment(deployment, name_width));
            // Without enough lines, the ReplicaSets of complete Deployments are omitted.
            if all < height || !matches!(rollout(deployment), Rollout::Complete(_)) {
                rows.extend(replica_sets(deployment).map(|replica_set| {
                    let (_, name) = key(replica_set);
                    self.pods_of(replica_set, &format!("  {name}"), cluster, name_width)
                }));
            }
        }
        for stateful_set in cluster.stateful_sets.values() {
            rows.extend(self.stateful_set(stateful_set, cluster, name_width));
        }
        for daemon_set in cluster.daemon_sets.values() {
            rows.push(self.daemon_set(daemon_set, name_width));
        }
        rows.extend(cluster.jobs.values().map(|job| self.job(job, name_width)));
        for controller in controllers.values() {
            let (namespace, name) = key(controller);
            rows.push(self.pods_of(controller, &format!("{namespace}/{name}"), cluster, name_width));
        }
        if rows.len() == 1 {
            rows.push(vec![(
                "No Deployments yet. Create one: kubectl create -f FILE".to_owned(),
                Tone::Plain,
            )]);
        }
        if rows.len() > height && height > 0 {
            let hidden = rows.len() - height + 1;
            rows.truncate(height - 1);
            rows.push(vec![(format!("… and {hidden} more lines"), Tone::Plain)]);
        }
        rows.into_iter().map(|row| self.cut(row)).collect()
    }

    /// The line of a DaemonSet: it counts nodes.
    fn daemon_set(&self, daemon_set: &Value, name_width: usize) -> Row {
        let (namespace, name) = key(daemon_set);
        let desired = number(daemon_set, "/status/desiredNumberScheduled");
        let (tone, text) = status(&daemon_rollout(daemon_set));
        let misscheduled = match number(daemon_set, "/status/numberMisscheduled") {
            0 => String::new(),
            count => format!("; {count} misscheduled"),
        };
        vec![
            (fit(&format!("{namespace}/{name}"), name_width) + "  ", Tone::Plain),
            (meter(number(daemon_set, "/status/numberReady"), desired) + "  ", tone),
            (meter(number(daemon_set, "/status/updatedNumberScheduled"), desired) + "  ", tone),
            (format!("DaemonSet; {text}{misscheduled}"), tone),
        ]
    }

    /// The line of a Job: the pods that are ready of those that are active, and the completions.
    fn job(&self, job: &Value, name_width: usize) -> Row {
        let (namespace, name) = key(job);
        let state = job_state(job);
        let tone = match state {
            "Complete" => Tone::Good,
            "Failed" | "FailureTarget" => Tone::Bad,
            _ => Tone::Waiting,
        };
        let (ready, active) = (number(job, "/status/ready"), number(job, "/status/active"));
        vec![
            (fit(&format!("{namespace}/{name}"), name_width) + "  ", Tone::Plain),
            (meter(ready, active) + "  ", tone),
            (meter(number(job, "/status/succeeded"), completions(job)) + "  ", tone),
            (format!("Job; {state}; {}", counts(job)), tone),
        ]
    }

    /// The lines of a StatefulSet: its counts and revisions, and its pods by ordinal.
    fn stateful_set(&self, stateful_set: &Value, cluster: &Cluster, name_width: usize) -> [Row; 2] {
        let (namespace, name) = key(stateful_set);
        let desired = desired_replicas(stateful_set);
        let (tone, text) = status(&stateful_rollout(stateful_set));
        let revision = |field: &str| plain(stateful_set["status"][field].as_str().unwrap_or_default());
        let (current, update) = (revision("currentRevision"), revision("updateRevision"));
        let revisions = match () {
            () if update.is_empty() => String::new(),
            () if current == update => format!("{update}; "),
            () => format!("{current} to {update}; "),
        };
        let pods = by_ordinal(cluster.own_pods_of(stateful_set), &update);
        [
            vec![
                (fit(&format!("{namespace}/{name}"), name_width) + "  ", Tone::Plain),
                (meter(number(stateful_set, "/status/readyReplicas"), desired) + "  ", tone),
                (meter(number(stateful_set, "/status/updatedReplicas"), desired) + "  ", tone),
                (format!("StatefulSet; {revisions}{text}"), tone),
            ],
            vec![(fit("  pods by ordinal", name_width) + "  ", Tone::Plain), (pods, tone)],
        ]
    }

    fn deployment(&self, deployment: &Value, name_width: usize) -> Row {
        let (namespace, name) = key(deployment);
        let desired = desired_replicas(deployment);
        let (tone, text) = status(&rollout(deployment));
        let paused = if deployment["spec"]["paused"] == true { "paused; " } else { "" };
        let revision = &deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
        let revision = revision.as_str().map(|r| format!("revision {}; ", plain(r))).unwrap_or_default();
        vec![
            (fit(&format!("{namespace}/{name}"), name_width) + "  ", Tone::Plain),
            (meter(number(deployment, "/status/readyReplicas"), desired) + "  ", tone),
            (meter(number(deployment, "/status/updatedReplicas"), desired) + "  ", tone),
            (format!("{revision}{paused}{text}"), tone),
        ]
    }

    /// The line of a ReplicaSet or ReplicationController: the number of its pods in each state.
    fn pods_of(&self, controller: &Value, label: &str, cluster: &Cluster, name_width: usize) -> Row {
        let desired = desired_replicas(controller);
        let ready = number(controller, "/status/readyReplicas");
        let mut states: BTreeMap<String, usize> = BTreeMap::new();
        for (_, pod) in cluster.own_pods_of(controller) {
            *states.entry(pod.state.to_string()).or_default() += 1;
        }
        let bad = states.keys().any(|state| state.contains("BackOff") || state.contains("Err"));
        let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let tone = match () {
            () if bad => Tone::Bad,
            () if ready == desired => Tone::Good,
            () => Tone::Waiting,
        };
        vec![
            (fit(label, name_width) + "  ", Tone::Plain),
            (meter(ready, desired) + "  ", tone),
            (format!("{:21}  ", ""), Tone::Plain),
            (plain(&states.join(", ")), tone),
        ]
    }

    /// The newest events, the newest last, at most `height` lines with the heading.
    pub fn events(&self, cluster: &Cluster, height: usize) -> Vec<Row> {
        let mut rows = vec![vec![("EVENTS".to_owned(), Tone::Heading)]];
        let count = height.saturating_sub(1).min(cluster.events.len());
        for item in cluster.events.range(cluster.events.len() - count..) {
            let tone = if item["type"] == "Warning" { Tone::Bad } else { Tone::Plain };
            let line = event(item);
            rows.push(vec![(line.strip_prefix("event ").unwrap_or(&line).to_owned(), tone)]);
        }
        rows.truncate(height);
        rows.into_iter().map(|row| self.cut(row)).collect()
    }

    fn cut(&self, row: Row) -> Row {
        let mut left = self.width;
        row.into_iter()
            .map(|(text, tone)| {
                let text: String = text.chars().take(left).collect();
                left -= text.chars().count();
                (text, tone)
            })
            .collect()
    }
}

/// The states of the pods of a StatefulSet: `0-2 Ready, 3 old Ready, 4 Pending`. An old one is not of the update revision.
fn by_ordinal<'a>(pods: impl Iterator<Item = (&'a Key, &'a Pod)>, update: &str) -> String {
    let ordinal = |(_, name): &Key| name.rsplit_once('-').and_then(|(_, digits)| digits.parse::<u32>().ok());
    let state = |pod: &Pod| match pod.revision.as_deref() {
        Some(revision) if revision != update => format!("old {}", pod.state),
        _ => pod.state.to_string(),
    };
    let states = pods.filter_map(|(key, pod)| Some((ordinal(key)?, state(pod))));
    let states: BTreeMap<u32, String> = states.collect();
    let states: Vec<(u32, String)> = states.into_iter().collect();
    let runs = states.chunk_by(|(one, state), (next, other)| one + 1 == *next && state == other);
    let run = |run: &[(u32, String)]| match run {
        [(first, state), .., (last, _)] => format!("{first}-{last} {state}"),
        [(one, state)] => format!("{one} {state}"),
        [] => String::new(),
    };
    plain(&runs.map(run).collect::<Vec<_>>().join(", "))
}

/// The status of a rollout in a few words.
fn status(rollout: &Rollout) -> (Tone, String) {
    match rollout {
        Rollout::Complete(_) => (Tone::Good, "rolled out".to_owned()),
        Rollout::Failed(_) => (Tone::Bad, "exceeded its progress deadline".to_owned()),
        Rollout::Waiting(text) => {
            let rest = text.split_once(" to finish: ").map_or(text.as_str(), |(_, rest)| rest);
            (Tone::Waiting, rest.to_owned())
        }
    }
}

/// A bar and the numbers, 21 characters wide unless the numbers are very large: `████░░  2/3`.
fn meter(done: i64, desired: i64) -> String {
    let filled = match desired {
        ..=0 => BAR,
        _ => usize::try_from(i128::from(done.clamp(0, desired)) * BAR as i128 / i128::from(desired))
            .unwrap_or(0),
    };
    let bar = "█".repeat(filled) + &"░".repeat(BAR - filled);
    fit(&format!("{bar} {done}/{desired}"), 21)
}

/// Pads a text to `width`, or truncates it with an ellipsis.
fn fit(text: &str, width: usize) -> String {
    let text = plain(text);
    if text.chars().count() <= width {
        return format!("{text:width$}");
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::{Followed, ObjectChange};

    fn cluster() -> Cluster {
        let mut cluster = Cluster::default();
        let status = json!({"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 2,
                            "availableReplicas": 2});
        let deployment = json!({"metadata": {"namespace": "shop", "name": "web", "uid": "d", "generation": 1},
                                "spec": {"replicas": 3}, "status": status});
        let replica_set = |name: &str, replicas: i64| {
            json!({"metadata": {"namespace": "shop", "name": name, "uid": name,
                                "ownerReferences": [{"uid": "d", "controller": true}]},
                   "spec": {"replicas": replicas}, "status": {"replicas": replicas, "readyReplicas": 2}})
        };
        let about = json!({"kind": "Deployment", "namespace": "shop", "name": "web"});
        let event = |n: usize| json!({"involvedObject": about, "type": "Normal", "reason": "Counted", "message": n.to_string()});
        let put = |kind, object| ObjectChange { kind, object, deleted: false };
        cluster.observe(put(Followed::Deployment, deployment));
        cluster.observe(put(Followed::ReplicaSet, replica_set("web-new", 3)));
        cluster.observe(put(Followed::ReplicaSet, replica_set("web-old", 0)));
        for n in 0..5 {
            cluster.observe(put(Followed::Event, event(n)));
        }
        cluster
    }

    fn text(rows: &[Row]) -> Vec<String> {
        let line = |row: &Row| row.iter().map(|(text, _)| text.as_str()).collect::<String>();
        rows.iter().map(|row| line(row).trim_end().to_owned()).collect()
    }

    #[test]
    fn a_deployment_has_a_line_with_bars_followed_by_its_replica_sets_with_pods() {
        let rows = Board { width: 140 }.workloads(&cluster(), 20);
        let text = text(&rows);
        assert_eq!(text.len(), 3, "the ReplicaSet without pods is omitted: {text:#?}");
        assert!(text[1].starts_with("shop/web "), "{}", text[1]);
        assert!(text[1].contains("████████░░░░ 2/3"), "{}", text[1]);
        assert!(text[1].contains("████████████ 3/3"), "{}", text[1]);
        assert!(text[1].ends_with("2 of 3 updated replicas are available..."), "{}", text[1]);
        assert!(text[2].starts_with("  web-new "), "{}", text[2]);
    }

    #[test]
    fn a_replication_controller_has_a_line_with_its_pods() {
        let mut cluster = Cluster::default();
        let put = |kind, object| ObjectChange { kind, object, deleted: false };
        let controller = json!({"metadata": {"namespace": "shop", "name": "old", "uid": "c"},
                                "spec": {"replicas": 2}, "status": {"replicas": 1, "readyReplicas": 0}});
        let pod = json!({"metadata": {"namespace": "shop", "name": "old-1", "uid": "p",
                                      "ownerReferences": [{"uid": "c", "controller": true}]}});
        cluster.observe(put(Followed::ReplicationController, controller));
        cluster.observe(put(Followed::Pod, pod));
        let text = text(&Board { width: 140 }.workloads(&cluster, 20));
        assert_eq!(text.len(), 2, "{text:#?}");
        assert!(text[1].starts_with("shop/old "), "{}", text[1]);
        assert!(text[1].contains("░░░░░░░░░░░░ 0/2") && text[1].ends_with("1 Pending"), "{}", text[1]);
    }

    #[test]
    fn a_stateful_set_has_its_counts_its_revisions_and_its_pods_by_ordinal() {
        let mut cluster = Cluster::default();
        let mut put = |kind, object| cluster.observe(ObjectChange { kind, object, deleted: false });
        let status = json!({"observedGeneration": 1, "readyReplicas": 11, "availableReplicas": 11, "updatedReplicas": 1,
                            "currentRevision": "db-a", "updateRevision": "db-b"});
        let spec = json!({"replicas": 12, "updateStrategy": {"rollingUpdate": {"partition": 0}}});
        put(
            Followed::StatefulSet,
            json!({"metadata": {"namespace": "shop", "name": "db", "uid": "s", "generation": 1},
                                          "spec": spec, "status": status}),
        );
        for (ordinal, revision) in
            (0..12).map(|ordinal| (ordinal, if ordinal < 10 { "db-a" } else { "db-b" }))
        {
            let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            let status = if ordinal == 10 { json!({"phase": "Pending"}) } else { ready };
            put(
                Followed::Pod,
                json!({"metadata": {
                "namespace": "shop", "name": format!("db-{ordinal}"), "uid": format!("p{ordinal}"),
                "labels": {"controller-revision-hash": revision},
                "ownerReferences": [{"uid": "s", "controller": true}]}, "status": status}),
            );
        }
        let text = text(&Board { width: 180 }.workloads(&cluster, 20));
        assert_eq!(text.len(), 3, "{text:#?}");
        assert!(
            text[1].starts_with("shop/db ") && text[1].contains(" 11/12") && text[1].contains(" 1/12"),
            "{}",
            text[1]
        );
        assert!(
            text[1].ends_with("StatefulSet; db-a to db-b; Waiting for 1 pods to be ready..."),
            "{}",
            text[1]
        );
        assert!(text[2].ends_with("  0-9 old Ready, 10 Pending, 11 Ready"), "{}", text[2]);
    }

    #[test]
    fn a_daemon_set_has_a_line_with_its_counts_of_nodes() {
        let mut cluster = Cluster::default();
        let status = json!({"observedGeneration": 1, "desiredNumberScheduled": 3, "numberReady": 2,
                            "updatedNumberScheduled": 3, "numberAvailable": 2, "numberMisscheduled": 1});
        let object =
            json!({"metadata": {"namespace": "shop", "name": "agent", "generation": 1}, "status": status});
        cluster.observe(ObjectChange { kind: Followed::DaemonSet, object, deleted: false });
        let text = text(&Board { width: 180 }.workloads(&cluster, 20));
        assert_eq!(text.len(), 2, "{text:#?}");
        assert!(text[1].starts_with("shop/agent "), "{}", text[1]);
        assert!(text[1].contains("████████░░░░ 2/3") && text[1].contains("████████████ 3/3"), "{}", text[1]);
        let end = "DaemonSet; 2 of 3 updated pods are available...; 1 misscheduled";
        assert!(text[1].ends_with(end), "{}", text[1]);
    }

    #[test]
    fn a_job_has_a_line_with_its_pods_and_completions() {
        let mut cluster = Cluster::default();
        let object = json!({"metadata": {"namespace": "shop", "name": "import"}, "spec": {"completions": 4},
                            "status": {"active": 2, "ready": 1, "succeeded": 1, "failed": 3}});
        cluster.observe(ObjectChange { kind: Followed::Job, object, deleted: false });
        let text = text(&Board { width: 180 }.workloads(&cluster, 20));
        assert_eq!(text.len(), 2, "{text:#?}");
        assert!(text[1].starts_with("shop/import "), "{}", text[1]);
        assert!(text[1].contains("██████░░░░░░ 1/2") && text[1].contains("███░░░░░░░░░ 1/4"), "{}", text[1]);
        let end = "Job; Running; 1 of 4 completions, 2 active, 3 failed";
        assert!(text[1].ends_with(end), "{}", text[1]);
    }

    #[test]
    fn surplus_lines_are_counted_and_long_lines_are_truncated() {
        let rows = Board { width: 30 }.workloads(&cluster(), 2);
        let text = text(&rows);
        assert_eq!(text.len(), 2);
        assert_eq!(text[1], "… and 2 more lines");
        assert!(text.iter().all(|line| line.chars().count() <= 30));
    }

    #[test]
    fn the_newest_events_come_last() {
        let rows = Board { width: 80 }.events(&cluster(), 3);
        assert_eq!(
            text(&rows),
            ["EVENTS", "deployment shop/web Normal Counted 3", "deployment shop/web Normal Counted 4"]
        );
        assert!(Board { width: 80 }.events(&cluster(), 0).is_empty());
    }

    #[test]
    fn a_bar_accepts_any_numbers() {
        assert_eq!(meter(0, 0), "████████████ 0/0     ");
        assert_eq!(meter(-1, 3), "░░░░░░░░░░░░ -1/3    ");
        assert!(meter(i64::MAX, i64::MAX).starts_with("████████████"));
    }
}
