//! `list`: every kind of workload, the worst first.

use serde_json::{Value, json};

use crate::front::{Fate, Front};
use crate::harness::{Ended, Sandbox};
use crate::rights::right_of;

const APPS: &str = "/apis/apps/v1/namespaces/default";
const BATCH: &str = "/apis/batch/v1/namespaces/default";

fn template(app: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "app", "image": image}]}})
}

fn workload(kind: &str, version: &str, name: &str, image: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(name, image)},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

/// One workload of each kind that is complete, and a DaemonSet, a Job and a Deployment that are not.
fn workloads() -> Sandbox {
    let sandbox = Sandbox::start(&["--nodes", "2"]);
    sandbox.create_web("app:1", &Value::Null);
    let one = json!({"replicas": 1});
    let create = |path: &str, object: Value| sandbox.call("POST", path, &object);
    create(&format!("{APPS}/replicasets"), workload("ReplicaSet", "apps/v1", "loose", "app:1", one.clone()));
    create(
        &format!("{APPS}/statefulsets"),
        workload("StatefulSet", "apps/v1", "db", "app:1", json!({"replicas": 1, "serviceName": "db"})),
    );
    create(&format!("{APPS}/daemonsets"), workload("DaemonSet", "apps/v1", "agent", "app:1", json!({})));
    create(
        &format!("{APPS}/daemonsets"),
        workload("DaemonSet", "apps/v1", "probe", "probe:broken", json!({})),
    );
    create(&format!("{APPS}/deployments"), workload("Deployment", "apps/v1", "api", "api:broken", one));
    let mut controller = workload("ReplicationController", "v1", "old", "app:1", json!({"replicas": 1}));
    controller["spec"]["selector"] = json!({"app": "old"});
    create("/api/v1/namespaces/default/replicationcontrollers", controller);
    let mut pods = template("backup", "backup:broken");
    pods["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "backup"}, "spec": {"template": pods}});
    create(&format!("{BATCH}/jobs"), job);
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 1 1 *", "jobTemplate": {"spec": {"template": pods_of_cron()}}}});
    create(&format!("{BATCH}/cronjobs"), cron);
    sandbox.web_reports("NewReplicaSetAvailable");
    for path in ["replicasets/loose", "statefulsets/db"] {
        sandbox.eventually(&format!("{APPS}/{path}"), |it| it["status"]["availableReplicas"] == 1);
    }
    sandbox.eventually(&format!("{APPS}/daemonsets/agent"), |it| it["status"]["numberAvailable"] == 2);
    sandbox.eventually(&format!("{APPS}/daemonsets/probe"), |it| it["status"]["updatedNumberScheduled"] == 2);
    sandbox.eventually(&format!("{APPS}/deployments/api"), |it| it["status"]["updatedReplicas"] == 1);
    sandbox.eventually(&format!("{BATCH}/jobs/backup"), |it| it["status"]["active"] == 1);
    sandbox.eventually("/api/v1/namespaces/default/replicationcontrollers/old", |it| {
        it["status"]["availableReplicas"] == 1
    });
    sandbox.eventually("/api/v1/namespaces/default/pods", |pods| {
        let pods = pods["items"].as_array().into_iter().flatten();
        let broken = pods.filter(|pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        });
        broken.count() == 4
    });
    sandbox
}

#[test]
fn a_cron_job_of_every_minute_that_no_controller_runs_is_unobserved() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": pods_of_cron()}}}});
    sandbox.call("POST", &format!("{BATCH}/cronjobs"), &cron);
    let ran = json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}});
    sandbox.call("PATCH", &format!("{BATCH}/cronjobs/tick/status"), &ran);
    let explained = sandbox.plugin(&["explain", "cj/tick"]);
    assert!(explained.out.contains("CronJob default/tick: unobserved"), "{explained:?}");
}

fn pods_of_cron() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "app:1"}]}})
}

/// The names of the lines, in their order.
fn names(ended: &Ended) -> Vec<String> {
    let lines = ended.out.lines().skip(1).filter(|line| line.contains('/') && !line.contains("--all"));
    lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn every_kind_is_listed_the_worst_first_and_what_is_complete_is_counted() {
    let sandbox = workloads();
    let ended = sandbox.plugin(&["list"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut unfinished = names(&ended);
    unfinished.sort();
    assert_eq!(unfinished, ["deploy/api", "ds/probe", "job/backup"], "{ended:?}");
    assert!(ended.out.ends_with("5 complete, 1 scheduled: list --all names them\n"), "{ended:?}");
    for kind in ["ds/probe", "deploy/api", "job/backup"] {
        let line = ended.out.lines().find(|line| line.contains(kind)).unwrap();
        assert!(line.contains("waiting") && line.contains("ImagePullBackOff"), "{line}");
    }
    assert_eq!(names(&sandbox.plugin(&["list", "--all"])).len(), 9);
    assert_eq!(names(&sandbox.plugin(&["list", "ds,sts", "--all"])).len(), 3);
    assert_eq!(names(&sandbox.plugin(&["list", "--all", "-l", "app in (agent, loose, db)"])).len(), 3);
    for plain in [&["status"][..], &["explain"]] {
        assert_eq!(names(&sandbox.plugin(plain)), names(&ended), "{plain:?}");
    }
    let data = sandbox.plugin(&["list", "-o", "json"]);
    let value: Value = serde_json::from_str(&data.out).unwrap();
    assert_eq!(value["items"].as_array().unwrap().len(), 9, "{value:#}");
    assert_eq!(value["unreadable"], json!([]));
    let codes = |args: &[&str]| sandbox.plugin(args).code;
    assert_eq!(codes(&["list", "--unfinished"]), Some(4));
    assert_eq!(codes(&["list", "--unfinished", "sts"]), Some(0));
    assert_eq!(codes(&["list", "nothing"]), Some(2));
    let none = sandbox.plugin(&["list", "-l", "app=nobody"]);
    assert_eq!(none.err, "no workload of these kinds or labels in namespace default\n", "{none:?}");
}

#[test]
fn explain_and_status_know_daemon_sets_jobs_cron_jobs_and_replica_sets() {
    let sandbox = workloads();
    let explained = |name: &str| {
        let ended = sandbox.plugin(&["explain", name]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.out
    };
    let probe = explained("ds/probe");
    for part in
        ["DaemonSet default/probe, revision 1: waiting", "2 pods wanted", "ImagePullBackOff", " (new) on "]
    {
        assert!(probe.contains(part), "{part:?}: {probe}");
    }
    assert!(explained("ds/agent").contains("Complete: 2 of 2 nodes"));
    let job = explained("job/backup");
    assert!(
        job.contains("Job default/backup: waiting") && job.contains("0 of 1 completions succeeded"),
        "{job}"
    );
    let cron = explained("cj/nightly");
    assert!(
        cron.contains("CronJob default/nightly: scheduled") && cron.contains("The next run is due"),
        "{cron}"
    );
    assert!(cron.contains("ACTS    no controller has written a status"), "{cron}");
    assert!(explained("rs/loose").contains("ReplicaSet default/loose: complete"));
    let status = |name: &str| sandbox.plugin(&["status", name, "--watch=false"]);
    assert_eq!(status("ds/agent").code, Some(0));
    assert_eq!(status("rs/loose").code, Some(0));
    assert_eq!(status("rc/old").code, Some(0));
    assert_eq!(status("cj/nightly").code, Some(0));
    let probe = status("ds/probe");
    assert!(probe.code == Some(4) && probe.out.contains("0/2 available"), "{probe:?}");
    let job = status("job/backup");
    assert!(job.code == Some(4) && job.out.contains("ImagePullBackOff"), "{job:?}");
}

#[test]
fn without_a_right_the_list_says_so_and_states_nothing_that_follows_from_an_empty_list() {
    let sandbox = workloads();
    let refused = std::sync::Arc::<std::sync::Mutex<Vec<&str>>>::default();
    let known = refused.clone();
    let front = Front::start(sandbox.address(), move |method, target| {
        let right = right_of(&format!("{method} {target}"));
        match right.filter(|right| known.lock().unwrap().iter().any(|refused| refused == right)) {
            Some(right) => Fate::Refuse(403, format!("cannot {right} at all")),
            None => Fate::Forward,
        }
    });
    const RIGHTS: [&str; 10] = [
        "list deployments.apps",
        "list statefulsets.apps",
        "list daemonsets.apps",
        "list replicationcontrollers",
        "list replicasets.apps",
        "list jobs.batch",
        "list cronjobs.batch",
        "list pods",
        "list controllerrevisions.apps",
        "list nodes",
    ];
    let whole: Value = serde_json::from_str(&sandbox.plugin(&["list", "-o", "json"]).out).unwrap();
    let of = |list: &Value| -> Vec<Value> { list["items"].as_array().unwrap().clone() };
    // Each right alone, and all pairs: what is told is told in the whole list, too, or says that it is partial.
    for (at, first) in RIGHTS.iter().enumerate() {
        for second in &RIGHTS[at..] {
            let missing = vec![*first, *second];
            *refused.lock().unwrap() = missing.clone();
            let ended = sandbox.plugin_through(&front, &["list", "-o", "json"]);
            let list: Value = serde_json::from_str(&ended.out).unwrap();
            let is_noticed = list["unreadable"].as_array().unwrap().len();
            assert_eq!(ended.code, Some(i32::from(is_noticed > 0)), "{missing:?}: {ended:?}");
            // Lists that only a DaemonSet needs are not requested without one.
            let is_needless = |right: &str| {
                missing.contains(&"list daemonsets.apps")
                    && ["list controllerrevisions.apps", "list nodes"].contains(&right)
            };
            for right in missing.iter().filter(|right| !is_needless(right)) {
                let plural = right.strip_prefix("list ").unwrap().split('.').next().unwrap();
                assert!(ended.err.contains(&format!("cannot list {plural}: ")), "{missing:?}: {ended:?}");
            }
            for item in of(&list) {
                let same = |it: &&Value| it["name"] == item["name"] && it["kind"] == item["kind"];
                let known = of(&whole).into_iter().find(|it| same(&it)).unwrap();
                if item["isPartial"] == true {
                    assert!(
                        ["unfinished"].contains(&item["verdict"].as_str().unwrap()),
                        "{missing:?}: {item:#}"
                    );
                    let reason = item["reason"].as_str().unwrap();
                    let is_honest = reason.contains("cannot") || reason.contains("ImagePullBackOff");
                    assert!(is_honest, "{missing:?}: {item:#}");
                } else {
                    assert_eq!(
                        (&item["verdict"], &item["counts"]),
                        (&known["verdict"], &known["counts"]),
                        "{missing:?}"
                    );
                }
            }
        }
    }
}
