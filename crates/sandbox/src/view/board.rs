//! The rows of the live view, as text with tones. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use windlass_terminal::layout::{Row, Tone, cut_row, fit, with_text, wrap};

use crate::{
    cluster::{Cluster, Key, Pod, desired_replicas, key, number},
    event_lines::{event, plain},
    progress::{Rollout, completions, counts, daemon_rollout, job_state, rollout, stateful_rollout},
};

/// The width of a bar in characters.
const BAR: usize = 12;

/// Narrower screens have numbers without bars.
const WITH_BARS: usize = 120;

/// A screen of some width, in characters.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    /// No line is longer. A status that does not fit has lines of its own.
    pub width: usize,
}

/// The lines of one workload, and whether nothing is left to do: these come last.
type Lines = (bool, Vec<Row>);

impl Board {
    /// The lines of all workloads: first those that are not complete, in each part Deployments with their ReplicaSets that
    /// have or need pods, then StatefulSets, DaemonSets, Jobs and ReplicationControllers; at most `height` lines. If there
    /// are more, the last line counts them.
    pub fn workloads(&self, cluster: &Cluster, height: usize) -> Vec<Row> {
        let shown = |replica_set: &&Value| {
            desired_replicas(replica_set) > 0 || number(replica_set, "/status/replicas") > 0
        };
        let all: usize = cluster
            .deployments
            .values()
            .map(|deployment| 1 + cluster.replica_sets_of(deployment).filter(shown).count())
            .sum();
        let all = all
            + 2 * cluster.stateful_sets.len()
            + cluster.daemon_sets.len()
            + cluster.jobs.len()
            + cluster.replication_controllers.len();
        let mut workloads: Vec<Lines> = Vec::new();
        for deployment in cluster.deployments.values() {
            let (is_complete, mut rows) = self.deployment(deployment);
            // Without enough lines, the ReplicaSets of complete Deployments are omitted.
            if all < height || !is_complete {
                let owned = cluster.replica_sets_of(deployment).filter(shown);
                rows.extend(owned.flat_map(|replica_set| {
                    let (_, name) = key(replica_set);
                    self.pods_of(replica_set, &format!("  {name}"), cluster).1
                }));
            }
            workloads.push((is_complete, rows));
        }
        workloads.extend(cluster.stateful_sets.values().map(|it| self.stateful_set(it, cluster)));
        workloads.extend(cluster.daemon_sets.values().map(|it| self.daemon_set(it)));
        workloads.extend(cluster.jobs.values().map(|it| self.job(it)));
        workloads.extend(cluster.replication_controllers.values().map(|controller| {
            let (namespace, name) = key(controller);
            self.pods_of(controller, &format!("{namespace}/{name}"), cluster)
        }));
        workloads.sort_by_key(|(is_complete, _)| *is_complete);

        let numbers = self.numbers();
        let heading = format!(
            "{:1$}  {2:numbers$}  {3:numbers$}  STATUS",
            "WORKLOAD",
            self.names(),
            "READY",
            "UPDATED"
        );
        let mut rows = vec![vec![(heading, Tone::Heading)]];
        rows.extend(workloads.into_iter().flat_map(|(_, rows)| rows));
        if rows.len() == 1 {
            rows.push(vec![("No workloads yet. Create one: kubectl create -f FILE".to_owned(), Tone::Plain)]);
        }
        if rows.len() > height && height > 0 {
            let hidden = rows.len() - height + 1;
            rows.truncate(height - 1);
            rows.push(vec![(format!("… and {hidden} more lines"), Tone::Plain)]);
        }
        rows.into_iter().map(|row| cut_row(row, self.width)).collect()
    }

    /// The width of the column of names.
    fn names(&self) -> usize {
        (self.width / 3).clamp(16, 44)
    }

    /// The width of a column of numbers.
    fn numbers(&self) -> usize {
        if self.width >= WITH_BARS { 21 } else { 7 }
    }

    /// The numbers, with a bar if there is room.
    fn meter(&self, done: i64, desired: i64) -> String {
        match self.width >= WITH_BARS {
            true => meter(done, desired),
            false => fit(&format!("{done}/{desired}"), self.numbers()),
        }
    }

    /// A name, the numbers, and a status: behind them if there is room, else on lines of their own.
    fn lines(&self, name: &str, numbers: [String; 2], status: &str, tone: Tone) -> Vec<Row> {
        let [ready, updated] = numbers;
        let width = self.numbers();
        let row = vec![
            (fit(&plain(name), self.names()) + "  ", Tone::Plain),
            (format!("{ready:width$}  "), tone),
            (format!("{updated:width$}  "), tone),
        ];
        with_text(row, &plain(status), tone, "    ", Some(self.width))
    }

    /// The lines of a DaemonSet: it counts nodes.
    fn daemon_set(&self, daemon_set: &Value) -> Lines {
        let (namespace, name) = key(daemon_set);
        let desired = number(daemon_set, "/status/desiredNumberScheduled");
        let rollout = daemon_rollout(daemon_set);
        let (tone, text) = status(&rollout);
        let misscheduled = match number(daemon_set, "/status/numberMisscheduled") {
            0 => String::new(),
            count => format!("; {count} misscheduled"),
        };
        let numbers = ["/status/numberReady", "/status/updatedNumberScheduled"];
        let numbers = numbers.map(|field| self.meter(number(daemon_set, field), desired));
        let status = format!("DaemonSet; {text}{misscheduled}");
        (is_complete(&rollout), self.lines(&format!("{namespace}/{name}"), numbers, &status, tone))
    }

    /// The lines of a Job: the pods that are ready of those that are active, and the completions.
    fn job(&self, job: &Value) -> Lines {
        let (namespace, name) = key(job);
        let state = job_state(job);
        let tone = match state {
            "Complete" => Tone::Good,
            "Failed" | "FailureTarget" => Tone::Bad,
            _ => Tone::Waiting,
        };
        let (ready, active) = (number(job, "/status/ready"), number(job, "/status/active"));
        let numbers =
            [self.meter(ready, active), self.meter(number(job, "/status/succeeded"), completions(job))];
        let status = format!("Job; {state}; {}", counts(job));
        (state == "Complete", self.lines(&format!("{namespace}/{name}"), numbers, &status, tone))
    }

    /// The lines of a StatefulSet: its counts and revisions, and its pods by ordinal.
    fn stateful_set(&self, stateful_set: &Value, cluster: &Cluster) -> Lines {
        let (namespace, name) = key(stateful_set);
        let desired = desired_replicas(stateful_set);
        let rollout = stateful_rollout(stateful_set);
        let (tone, text) = status(&rollout);
        let revision = |field: &str| plain(stateful_set["status"][field].as_str().unwrap_or_default());
        let (current, update) = (revision("currentRevision"), revision("updateRevision"));
        let revisions = match () {
            () if update.is_empty() => String::new(),
            () if current == update => format!("{update}; "),
            () => format!("{current} to {update}; "),
        };
        let numbers = ["/status/readyReplicas", "/status/updatedReplicas"];
        let numbers = numbers.map(|field| self.meter(number(stateful_set, field), desired));
        let status = format!("StatefulSet; {revisions}{text}");
        let mut rows = self.lines(&format!("{namespace}/{name}"), numbers, &status, tone);
        let pods = by_ordinal(cluster.own_pods_of(stateful_set), &update);
        rows.extend(self.lines("  pods by ordinal", [String::new(), String::new()], &pods, tone));
        (is_complete(&rollout), rows)
    }

    fn deployment(&self, deployment: &Value) -> Lines {
        let (namespace, name) = key(deployment);
        let desired = desired_replicas(deployment);
        let rollout = rollout(deployment);
        let (tone, text) = status(&rollout);
        let paused = if deployment["spec"]["paused"] == true { "paused; " } else { "" };
        let revision = &deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
        let revision = revision.as_str().map(|r| format!("revision {}; ", plain(r))).unwrap_or_default();
        let numbers = ["/status/readyReplicas", "/status/updatedReplicas"];
        let numbers = numbers.map(|field| self.meter(number(deployment, field), desired));
        let status = format!("{revision}{paused}{text}");
        (is_complete(&rollout), self.lines(&format!("{namespace}/{name}"), numbers, &status, tone))
    }

    /// The lines of a ReplicaSet or ReplicationController: the number of its pods in each state.
    fn pods_of(&self, controller: &Value, label: &str, cluster: &Cluster) -> Lines {
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
        let numbers = [self.meter(ready, desired), String::new()];
        (ready == desired && !bad, self.lines(label, numbers, &states.join(", "), tone))
    }

    /// The newest events, the newest last, at most `height` lines with the heading. One that is too long is wrapped.
    pub fn events(&self, cluster: &Cluster, height: usize) -> Vec<Row> {
        let room = height.saturating_sub(1);
        let mut rows: Vec<Row> = Vec::new();
        for item in cluster.events.iter().rev().take(room) {
            let tone = if item["type"] == "Warning" { Tone::Bad } else { Tone::Plain };
            let line = event(item);
            let line = line.strip_prefix("event ").unwrap_or(&line);
            let mut lines: Vec<Row> = Vec::new();
            for (at, text) in wrap(&plain(line), self.width.saturating_sub(4)).into_iter().enumerate() {
                let indent = if at == 0 { "" } else { "    " };
                lines.push(vec![(indent.to_owned(), Tone::Plain), (text, tone)]);
            }
            if rows.len() + lines.len() > room && !rows.is_empty() {
                break;
            }
            rows.splice(0..0, lines);
        }
        rows.truncate(room);
        rows.insert(0, vec![("EVENTS".to_owned(), Tone::Heading)]);
        rows.truncate(height);
        rows.into_iter().map(|row| cut_row(row, self.width)).collect()
    }
}

fn is_complete(rollout: &Rollout) -> bool {
    matches!(rollout, Rollout::Complete(_))
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
        ..=0 => 0,
        _ => usize::try_from(i128::from(done.clamp(0, desired)) * BAR as i128 / i128::from(desired))
            .unwrap_or(0),
    };
    let bar = "█".repeat(filled) + &"░".repeat(BAR - filled);
    fit(&format!("{bar} {done}/{desired}"), 21)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_terminal::layout::columns_of;

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
    fn the_status_is_whole_at_every_width_and_what_is_not_complete_comes_first() {
        let mut cluster = cluster();
        let complete = json!({"metadata": {"namespace": "shop", "name": "api", "generation": 1}, "spec": {"replicas": 1},
            "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}});
        cluster.observe(ObjectChange { kind: Followed::Deployment, object: complete, deleted: false });
        for width in [40, 80, 120, 200] {
            let text = text(&Board { width }.workloads(&cluster, 20));
            assert!(text.iter().all(|line| line.chars().count() <= width), "{width}: {text:#?}");
            let words = text.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("2 of 3 updated replicas are available..."), "{width}: {text:#?}");
            let at = |name: &str| text.iter().position(|line| line.starts_with(name)).unwrap();
            assert!(at("shop/web") < at("shop/api"), "{width}: {text:#?}");
        }
    }

    /// A Deployment whose new pods cannot pull their image, a DaemonSet that lacks a pod, and a complete Deployment.
    fn in_trouble() -> Cluster {
        let mut cluster = Cluster::default();
        let mut put = |kind, object| cluster.observe(ObjectChange { kind, object, deleted: false });
        let deployment = |name: &str, updated: i64| {
            json!({"metadata": {"namespace": "shop", "name": name, "uid": name, "generation": 1,
                                "annotations": {"deployment.kubernetes.io/revision": "2"}},
                   "spec": {"replicas": 3}, "status": {"observedGeneration": 1, "replicas": 3, "updatedReplicas": updated,
                   "readyReplicas": 3, "availableReplicas": 3}})
        };
        put(Followed::Deployment, deployment("api", 3));
        put(Followed::Deployment, deployment("storefront", 1));
        for (name, size, ready) in [("storefront-6d4f", 3, 3), ("storefront-9c1b", 1, 0)] {
            put(
                Followed::ReplicaSet,
                json!({"metadata": {"namespace": "shop", "name": name, "uid": name,
                       "ownerReferences": [{"uid": "storefront", "controller": true}]},
                       "spec": {"replicas": size}, "status": {"replicas": size, "readyReplicas": ready}}),
            );
        }
        let waiting = json!({"name": "app", "state": {"waiting": {"reason": "ImagePullBackOff"}}});
        put(
            Followed::Pod,
            json!({"metadata": {"namespace": "shop", "name": "storefront-9c1b-x2x4l", "uid": "p",
                   "ownerReferences": [{"uid": "storefront-9c1b", "controller": true}]},
                   "status": {"phase": "Pending", "containerStatuses": [waiting]}}),
        );
        let status = json!({"observedGeneration": 1, "desiredNumberScheduled": 3, "numberReady": 2,
                            "updatedNumberScheduled": 3, "numberAvailable": 2});
        let agent = json!({"metadata": {"namespace": "ops", "name": "node-agent", "generation": 1}, "status": status});
        put(Followed::DaemonSet, agent);
        let about = json!({"kind": "Pod", "namespace": "shop", "name": "storefront-9c1b-x2x4l"});
        let message = "Failed to pull image \"shop/storefront:broken\": the image matches --never-ready";
        put(
            Followed::Event,
            json!({"involvedObject": about, "type": "Warning", "reason": "Failed", "message": message}),
        );
        cluster
    }

    /// `UPDATE_EXPECT=1 cargo test --lib documented_screens` writes the page anew.
    #[test]
    fn the_documented_screens_are_those_of_the_view() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screens.md");
        let before = std::fs::read_to_string(&path).unwrap();
        let mut after = before.clone();
        for width in [80, 200] {
            let (board, cluster) = (Board { width }, in_trouble());
            let lines = [board.workloads(&cluster, 20), board.events(&cluster, 5)].concat();
            let shown = text(&lines).join("\n");
            let (start, end) = (format!("<!-- sandbox, {width} columns -->\n"), "<!-- end -->");
            let (head, rest) = after.split_once(&start).unwrap();
            let (_, tail) = rest.split_once(end).unwrap();
            after = format!("{head}{start}```text\n{shown}\n```\n{end}{tail}");
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &after).unwrap();
        } else {
            assert!(
                before == after,
                "docs/screens.md is out of date; UPDATE_EXPECT=1 writes it anew:\n{after}"
            );
        }
    }

    #[test]
    fn surplus_lines_are_counted_and_long_lines_are_truncated() {
        let rows = Board { width: 30 }.workloads(&cluster(), 2);
        let text = text(&rows);
        assert_eq!(text.len(), 2);
        assert!(text[0].ends_with('…'), "{}", text[0]);
        assert_eq!(text[1], "… and 4 more lines");
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
    fn an_event_in_wide_characters_and_with_a_long_word_is_wrapped_whole() {
        let mut cluster = Cluster::default();
        let message = format!("イメージを取得できません sha256:{}", "0123456789abcdef".repeat(4));
        let about = json!({"kind": "Pod", "namespace": "shop", "name": "web-1"});
        let object =
            json!({"involvedObject": about, "type": "Warning", "reason": "Failed", "message": message});
        cluster.observe(ObjectChange { kind: Followed::Event, object, deleted: false });
        let text = text(&Board { width: 40 }.events(&cluster, 10));
        assert!(text.iter().all(|line| columns_of(line) <= 40), "{text:#?}");
        let shown: String = text.concat().split_whitespace().collect();
        assert!(shown.ends_with(&message.replace(' ', "")), "{text:#?}");
    }

    #[test]
    fn a_bar_accepts_any_numbers() {
        assert_eq!(meter(0, 0), "░░░░░░░░░░░░ 0/0     ");
        assert_eq!(meter(-1, 3), "░░░░░░░░░░░░ -1/3    ");
        assert!(meter(i64::MAX, i64::MAX).starts_with("████████████"));
    }
}
