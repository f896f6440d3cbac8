//! Without rights a command says first what it could not read, and states no fact that follows from an empty list. In front of
//! the sandbox stands what authorizes requests on a real server, with its words.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::front::{Fate, Front};
use crate::harness::{DEPLOYMENTS, Ended, Sandbox};
use crate::rights::right_of;
use crate::rolling_update::{CONTROLLERS, all_available, controller};

/// Rights that are taken away.
type Missing = Arc<Mutex<BTreeSet<String>>>;

/// A sandbox behind a server that refuses what these rights allow.
struct Guarded {
    sandbox: Sandbox,
    front: Front,
    missing: Missing,
}

impl Guarded {
    /// The Deployment `web` with three available pods.
    fn start() -> Self {
        let sandbox = Sandbox::start(&[]);
        sandbox.create_web("app:1", &Value::Null);
        sandbox.web_reports("NewReplicaSetAvailable");
        let missing = Missing::default();
        let known = missing.clone();
        let front = Front::start(sandbox.address(), move |method, target| {
            let right = right_of(&format!("{method} {target}"));
            match right.filter(|right| known.lock().unwrap().contains(right)) {
                Some(right) => Fate::Refuse(403, refusal(&right, target)),
                None => Fate::Forward,
            }
        });
        Guarded { sandbox, front, missing }
    }

    /// Three pods of the old image run, and one of a new one never starts.
    fn break_web(&self) {
        self.sandbox.set_image("app:broken");
        self.sandbox.eventually("/api/v1/namespaces/default/pods", |pods| {
            pods["items"].as_array().into_iter().flatten().any(|pod| {
                pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
            })
        });
        self.sandbox.eventually(&format!("{DEPLOYMENTS}/web"), |web| web["status"]["updatedReplicas"] == 1);
    }

    /// Runs a command without these rights.
    fn without(&self, missing: &[&str], args: &[&str]) -> Ended {
        *self.missing.lock().unwrap() = missing.iter().map(|&right| right.to_owned()).collect();
        self.sandbox.plugin_through(&self.front, args)
    }
}

/// The answer of RBAC: an object that has no name yet is not named.
fn refusal(right: &str, target: &str) -> String {
    let (verb, resource) = right.split_once(' ').unwrap();
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let path = target.split('?').next().unwrap();
    let name = match verb {
        "get" | "patch" | "delete" => format!(" {:?}", path.rsplit('/').next().unwrap()),
        _ => String::new(),
    };
    format!(
        "{resource}{name} is forbidden: User \"viewer\" cannot {verb} resource {plural:?} in API group {group:?} in the \
         namespace \"default\""
    )
}

/// The words by which a refused right is named.
fn words(right: &str) -> String {
    let (verb, resource) = right.split_once(' ').unwrap();
    format!("cannot {verb} resource {:?}", resource.split('.').next().unwrap())
}

/// All subsets.
fn subsets<'a>(rights: &[&'a str]) -> Vec<Vec<&'a str>> {
    let chosen = |bits: usize| {
        let all = rights.iter().enumerate();
        all.filter(|(nth, _)| bits >> nth & 1 == 1).map(|(_, right)| *right).collect()
    };
    (0..1 << rights.len()).map(chosen).collect()
}

const GET: &str = "get deployments.apps";
const LIST: &str = "list deployments.apps";
const SETS: &str = "list replicasets.apps";
const PODS: &str = "list pods";
const EVENTS: &str = "list events";

/// Whether what the rollout consists of may not be read.
fn is_blind(missing: &[&str]) -> bool {
    missing.contains(&SETS) || missing.contains(&PODS)
}

/// Each missing right is named, and nothing that is said follows from an empty list.
#[track_caller]
fn check_facts(ended: &Ended, missing: &[&str]) {
    let said = format!("{}{}", ended.out, ended.err);
    for right in missing {
        assert!(said.contains(&words(right)), "{right}: {ended:?}");
    }
    if is_blind(missing) {
        for plan in [
            "creates",
            "No ReplicaSet",
            "budget",
            "must be available",
            "the rollout continues",
            "TRY",
            "lowest",
        ] {
            assert!(!said.contains(plan), "{plan:?} without {missing:?}: {ended:?}");
        }
    }
    // Three pods of web run all the time.
    for lie in ["0 exist", "0 are desired", "0 ready", "0 available", "0 pods", "0/3"] {
        assert!(!is_blind(missing) || !said.contains(lie), "{lie:?} without {missing:?}: {ended:?}");
    }
}

#[test]
fn explain_says_first_what_it_cannot_read_and_plans_nothing_without_it() {
    let web = Guarded::start();
    for is_broken in [false, true] {
        if is_broken {
            web.break_web();
        }
        let needed = if is_broken { &[SETS, PODS, EVENTS][..] } else { &[SETS, PODS] };
        for missing in subsets(needed) {
            // Events are those of pods: without these none is asked for.
            let noticed: Vec<&str> =
                missing.iter().copied().filter(|right| *right != EVENTS || !is_blind(&missing)).collect();
            let ended = web.without(&missing, &["explain", "web"]);
            check_facts(&ended, &noticed);
            assert_eq!(ended.code, Some(i32::from(is_blind(&missing))), "{missing:?}: {ended:?}");
            let notes = ended.out.lines().take_while(|line| line.starts_with("NOTE")).count();
            assert_eq!(
                (notes, ended.out.matches("NOTE").count()),
                (noticed.len(), noticed.len()),
                "{ended:?}"
            );
            if is_blind(&missing) {
                let verdict = if is_broken { ": unfinished" } else { ": complete" };
                for part in [verdict, "3 available, and 3 are desired", "Progressing=True"] {
                    assert!(ended.out.contains(part), "{part:?}: {ended:?}");
                }
            }
            let data = web.without(&missing, &["explain", "web", "-o", "json"]);
            let value: Value = serde_json::from_str(&data.out).unwrap();
            assert_eq!(
                (data.code, value["isPartial"] == true),
                (ended.code, is_blind(&missing)),
                "{value:#}"
            );
            assert_eq!(value["unreadable"].as_array().unwrap().len(), noticed.len(), "{value:#}");
            assert_eq!(value["counts"]["available"], 3, "{value:#}");
            for field in ["why", "writes", "pods", "replicaSets"] {
                assert_eq!(
                    value[field].is_null(),
                    is_blind(&missing),
                    "{field} without {missing:?}: {value:#}"
                );
            }
        }
    }
    let ended = web.without(&[GET], &["explain", "web"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    check_facts(&ended, &[GET]);
    let ended = web.without(&[LIST], &["explain", "-l", "app=web"]);
    check_facts(&ended, &[LIST]);
}

#[test]
fn status_says_first_what_it_cannot_read_and_judges_by_the_status_alone() {
    let web = Guarded::start();
    for is_broken in [false, true] {
        if is_broken {
            web.break_web();
        }
        let needed = if is_broken { &[SETS, PODS, EVENTS][..] } else { &[SETS, PODS] };
        for missing in subsets(needed) {
            let noticed: Vec<&str> =
                missing.iter().copied().filter(|right| *right != EVENTS || !is_blind(&missing)).collect();
            for args in
                [&["status", "web", "--watch=false"][..], &["status", "web", "--watch=false", "-o", "json"]]
            {
                let ended = web.without(&missing, args);
                check_facts(&ended, &noticed);
                assert_eq!(ended.code, Some(if is_broken { 4 } else { 0 }), "{missing:?}: {ended:?}");
                assert_eq!(ended.err.matches("note: cannot list").count(), noticed.len(), "{ended:?}");
                for event in ended.out.lines().filter(|_| args.contains(&"json")) {
                    let event: Value = serde_json::from_str(event).unwrap();
                    assert_eq!(event["newAvailable"].is_null(), is_blind(&missing), "{event:#}");
                    assert_eq!(event["unreadable"].is_array(), is_blind(&missing), "{event:#}");
                    assert_eq!(event["counts"]["available"], 3, "{event:#}");
                }
            }
        }
    }
    let ended = web.without(&[LIST], &["status", "web", "--watch=false"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    check_facts(&ended, &[LIST]);
}

#[test]
fn only_a_status_that_follows_needs_the_right_to_watch() {
    let web = Guarded::start();
    web.break_web();
    let watches = ["watch deployments.apps", "watch replicasets.apps", "watch pods"];
    let ended = web.without(&watches, &["status", "web", "--watch=false"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.out.contains("ImagePullBackOff") && !ended.err.contains("orbidden"), "{ended:?}");
    assert!(!web.front.requests().iter().any(|request| request.contains("watch=")), "nothing is watched");
    for missing in &watches[1..] {
        let ended = web.without(&[missing], &["status", "web", "--timeout=3s"]);
        assert_eq!(ended.code, Some(4), "{ended:?}");
        let last = ended.out.lines().last().unwrap();
        assert!(
            last.contains(&format!(
                "the reason cannot be told: cannot {}",
                missing.split('.').next().unwrap()
            )),
            "{ended:?}"
        );
    }
    let ended = web.without(&watches[..1], &["status", "web", "--timeout=3s"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    check_facts(&ended, &watches[..1]);
}

#[test]
fn plan_previews_nothing_that_it_cannot_read_and_goes_on_without_a_dry_run() {
    let web = Guarded::start();
    let limits = [
        "list resourcequotas",
        "list poddisruptionbudgets.policy",
        "list horizontalpodautoscalers.autoscaling",
    ];
    for also in [&[][..], &limits] {
        for mut missing in subsets(&[SETS, PODS, "patch deployments.apps", "create pods"]) {
            let is_blind = is_blind(&missing);
            let noticed: Vec<&str> = match is_blind {
                true => missing.iter().copied().filter(|right| [SETS, PODS].contains(right)).collect(),
                false => missing.iter().chain(also).copied().collect(),
            };
            missing.extend(also);
            let ended = web.without(&missing, &["plan", "web", "--image", "app:2"]);
            check_facts(&ended, &noticed);
            assert_eq!(ended.code, Some(i32::from(is_blind)), "{missing:?}: {ended:?}");
            if is_blind {
                assert_eq!(ended.out, "", "{missing:?}: {ended:?}");
                let data = web.without(&missing, &["plan", "web", "--image", "app:2", "-o", "json"]);
                assert_eq!((data.code, data.out.as_str()), (Some(1), ""), "{missing:?}: {data:?}");
            } else {
                assert!(ended.out.contains("lowest   3 available at step 0"), "{missing:?}: {ended:?}");
                let unjudged = ended.out.split_once("Not judged: ").unwrap().1;
                for right in noticed {
                    assert!(unjudged.contains(&words(right)), "{right}: {ended:?}");
                }
            }
        }
    }
    let ended = web.without(&[GET], &["plan", "web", "--image", "app:2"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    check_facts(&ended, &[GET]);
}

#[test]
fn history_and_undo_need_the_replica_sets_and_say_what_else_is_missing() {
    let web = Guarded::start();
    web.sandbox.set_image("app:2");
    // No status is written any more, which would be a change under the hands of `undo`.
    web.sandbox.web_reports("NewReplicaSetAvailable");
    web.sandbox.eventually(&format!("{DEPLOYMENTS}/web"), |web| {
        let count = |field: &str| web["status"][field].as_i64().unwrap_or(0);
        count("updatedReplicas") == 3 && count("replicas") == 3 && count("terminatingReplicas") == 0
    });
    for args in [&["history", "web"][..], &["undo", "web", "--yes"]] {
        for missing in [GET, SETS] {
            let ended = web.without(&[missing], args);
            assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{missing}: {ended:?}");
            check_facts(&ended, &[missing]);
        }
    }
    let autoscalers = "list horizontalpodautoscalers.autoscaling";
    let ended = web.without(&[PODS, autoscalers], &["undo", "web", "--yes", "--dry-run=server"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    check_facts(&ended, &[PODS, autoscalers]);
    assert!(ended.err.contains("note: no preview: "), "{ended:?}");
    let ended = web.without(&["get leases.coordination.k8s.io"], &["version", "-o", "json"]);
    assert_eq!(ended.json_unreadable(), 2, "{ended:?}");
}

impl Ended {
    fn json_unreadable(&self) -> usize {
        let value: Value = serde_json::from_str(&self.out).unwrap();
        value["unreadable"].as_array().map_or(0, Vec::len)
    }
}

#[test]
fn a_replication_controller_without_its_pods_is_told_by_its_status_and_not_previewed() {
    let web = Guarded::start();
    web.sandbox.call("POST", CONTROLLERS, &controller("old", "app:1", &json!({"app": "old"})));
    all_available(&web.sandbox, "old");
    let ended = web.without(&[PODS], &["explain", "rc/old"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    check_facts(&ended, &[PODS]);
    assert!(ended.out.starts_with("NOTE    cannot list pods"), "{ended:?}");
    assert!(ended.out.contains("3 pods wanted, 3 exist, 3 ready, 3 available"), "{ended:?}");
    let data = web.without(&[PODS], &["explain", "rc/old", "-o", "json"]);
    let value: Value = serde_json::from_str(&data.out).unwrap();
    assert_eq!((data.code, &value["pods"], &value["isPartial"]), (Some(1), &Value::Null, &json!(true)));
    let ended = web.without(&[PODS], &["plan", "rc/old", "--image", "app:2"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    check_facts(&ended, &[PODS]);
    // The client drives an update without the right to see autoscalers, and says so.
    let autoscalers = "list horizontalpodautoscalers.autoscaling";
    let update = ["rolling-update", "old", "next", "--image=app:2", "--dry-run"];
    let ended = web.without(&[autoscalers], &update);
    check_facts(&ended, &[autoscalers]);
}
