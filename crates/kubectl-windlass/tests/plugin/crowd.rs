//! A cluster of 2,000 Deployments and 20,000 pods, served from memory: how many requests do the commands make of it?

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Ended, PLUGIN};

/// How many Deployments there are, and how many pods each has.
const DEPLOYMENTS: usize = 2_000;
const PODS: usize = 10;

/// How many have a pod that cannot start, in a cluster in trouble.
const BROKEN: usize = 200;

/// Into how many parts a slow server splits an answer, and the pause before each.
const PARTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(250);

/// Lists by their paths in all namespaces, and the requests so far.
struct Crowd {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

fn metadata(namespace: &str, name: &str, owner: Option<(&str, &str)>) -> Value {
    let owners = owner.map(|(kind, owner)| {
        vec![json!({"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": format!("uid-{owner}"), "controller": true})]
    });
    json!({"namespace": namespace, "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7", "generation": 1,
           "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": name.split("-r").next()},
           "annotations": {"deployment.kubernetes.io/revision": "1"}, "ownerReferences": owners})
}

/// A Deployment with its ReplicaSet and pods. The last pod of a broken one cannot pull its image.
fn deployment(number: usize, is_broken: bool, lists: &mut BTreeMap<&str, Vec<Value>>) {
    let (namespace, name) = (format!("team-{}", number % 50), format!("app{number}"));
    let ready = if is_broken { PODS - 1 } else { PODS };
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}});
    let selector = json!({"matchLabels": {"app": name}});
    let counts = json!({"observedGeneration": 1, "replicas": PODS, "readyReplicas": ready, "availableReplicas": ready});
    let mut status = counts.clone();
    status["updatedReplicas"] = json!(PODS);
    let spec = json!({"replicas": PODS, "selector": selector, "template": template});
    let mut add = |of: &'static str, object: Value| lists.entry(of).or_default().push(object);
    add(
        "deployments",
        json!({"metadata": metadata(&namespace, &name, None), "spec": spec, "status": status}),
    );
    let set = format!("{name}-r");
    let owner = Some(("Deployment", name.as_str()));
    add(
        "replicasets",
        json!({"metadata": metadata(&namespace, &set, owner), "spec": spec, "status": counts}),
    );
    for pod in 0..PODS {
        let is_ready = pod < ready;
        let waiting =
            json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image \"c:1\": not found"});
        let state = if is_ready { json!({"running": {}}) } else { json!({"waiting": waiting}) };
        let status = json!({
            "phase": if is_ready { "Running" } else { "Pending" },
            "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" },
                            "lastTransitionTime": "2026-01-01T00:00:10Z"}],
            "containerStatuses": [{"name": "c", "restartCount": 0, "state": state}],
        });
        let metadata = metadata(&namespace, &format!("{set}-{pod}"), Some(("ReplicaSet", &set)));
        add("pods", json!({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}));
    }
}

impl Crowd {
    /// Starts the server. `broken` of the Deployments have a pod that cannot start.
    fn start(broken: usize) -> Self {
        Crowd::with_pauses(broken, Duration::ZERO)
    }

    /// The same, with a pause before each part of an answer.
    fn with_pauses(broken: usize, pause: Duration) -> Self {
        let mut lists: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for number in 0..DEPLOYMENTS {
            deployment(number, number < broken, &mut lists);
        }
        let texts: BTreeMap<String, Vec<(String, String)>> = lists
            .into_iter()
            .map(|(of, items)| {
                let namespace = |item: &Value| item["metadata"]["namespace"].as_str().unwrap().to_owned();
                (of.to_owned(), items.iter().map(|item| (namespace(item), item.to_string())).collect())
            })
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, texts) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(texts));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (seen, texts) = (seen.clone(), texts.clone());
                std::thread::spawn(move || serve(client, &texts, &seen, pause));
            }
        });
        Crowd { address, requests }
    }

    /// Runs the plugin, and returns its end with the requests that it made.
    fn plugin(&self, args: &[&str]) -> (Ended, Vec<String>) {
        self.requests.lock().unwrap().clear();
        let server = format!("--server=http://{}", self.address);
        let mut command = Command::new(PLUGIN);
        command.args(args).arg(server).env("KUBECONFIG", "/dev/null").env("LC_ALL", "C.UTF-8");
        let ended = Ended::of(&command.output().unwrap());
        (ended, std::mem::take(&mut self.requests.lock().unwrap()))
    }
}

/// Answers lists in pages of the size that is asked for. A watch stays open and reports nothing.
fn serve(
    mut client: TcpStream,
    lists: &BTreeMap<String, Vec<(String, String)>>,
    seen: &Mutex<Vec<String>>,
    pause: Duration,
) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().unwrap().push(target.clone());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    if parameter("watch").is_some() {
        let _ = client
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n");
        std::thread::sleep(Duration::from_secs(30));
        return;
    }
    let mut words = path.rsplit('/');
    let plural = words.next().unwrap_or_default();
    let namespace = words.next().filter(|_| path.contains("/namespaces/"));
    let all = lists.get(plural).map_or(&[][..], Vec::as_slice);
    let chosen: Vec<&str> = all
        .iter()
        .filter(|(of, _)| namespace.is_none_or(|namespace| namespace == of))
        .map(|(_, text)| text.as_str())
        .collect();
    let from: usize = parameter("continue").and_then(|token| token.parse().ok()).unwrap_or(0);
    let limit: usize = parameter("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
    let page = &chosen[from.min(chosen.len())..chosen.len().min(from.saturating_add(limit))];
    let end = from + page.len();
    let token = if end < chosen.len() { end.to_string() } else { String::new() };
    let body = format!(
        r#"{{"kind":"List","metadata":{{"resourceVersion":"9","continue":"{token}"}},"items":[{}]}}"#,
        page.join(",")
    );
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let _ = client.write_all(head.as_bytes());
    for part in body.as_bytes().chunks(length.div_ceil(PARTS)) {
        std::thread::sleep(if length > 1_000_000 { pause } else { Duration::ZERO });
        let _ = client.write_all(part);
    }
}

#[test]
fn a_large_list_may_take_longer_than_a_request_if_it_goes_on() {
    // Two seconds for each of the large pages.
    let crowd = Crowd::with_pauses(2, PAUSE);
    let (ended, _) = crowd.plugin(&["list", "-A", "--request-timeout=1s"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(ended.out.lines().count(), 4, "{}", ended.out);
    let crowd = Crowd::with_pauses(2, Duration::from_secs(3));
    let (ended, _) = crowd.plugin(&["list", "-A", "--request-timeout=1s"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("no more of the answer within --request-timeout 1s"), "{ended:?}");
}

#[test]
fn a_list_of_a_large_cluster_takes_at_most_twelve_requests() {
    let crowd = Crowd::start(BROKEN);
    let (ended, requests) = crowd.plugin(&["list", "-A"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(requests.len() <= 12 && !requests.iter().any(|it| it.contains("watch=")), "{requests:#?}");
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(lines.len(), 1 + BROKEN + 1, "a head, the broken ones, and a count: {:?}", &lines[..5]);
    assert!(lines[1].contains("9/10") && lines[1].contains("ImagePullBackOff"), "{}", lines[1]);
    assert_eq!(*lines.last().unwrap(), "1800 complete: list --all names them");
}

#[test]
fn where_few_are_unfinished_their_namespaces_alone_are_read() {
    let crowd = Crowd::start(2);
    let (ended, requests) = crowd.plugin(&["list", "-A", "--unfinished"]);
    assert_eq!(ended.code, Some(4), "{}", ended.err);
    assert_eq!(ended.out.lines().count(), 3, "{}", ended.out);
    let pods: Vec<&String> = requests.iter().filter(|it| it.contains("/pods")).collect();
    assert!(pods.len() == 2 && pods.iter().all(|it| it.contains("/namespaces/team-")), "{requests:#?}");
    let (ended, requests) = Crowd::start(0).plugin(&["list", "-A", "--unfinished"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{}", ended.err);
    assert!(requests.len() == 7 && !requests.iter().any(|it| it.contains("/pods")), "{requests:#?}");
}

#[test]
fn status_and_explain_of_all_share_their_lists_and_watch_nothing_that_they_do_not_follow() {
    let crowd = Crowd::start(20);
    let (ended, requests) = crowd.plugin(&["status", "-A", "--watch=false"]);
    assert_eq!(ended.code, Some(4), "{}", ended.err);
    assert!(requests.len() <= 12 && !requests.iter().any(|it| it.contains("watch=")), "{requests:#?}");
    assert_eq!(ended.out.matches("ImagePullBackOff  ").count(), 20, "{}", ended.out);
    let (ended, requests) = crowd.plugin(&["explain", "-A"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(requests.len() <= 12, "{requests:#?}");
    assert_eq!(ended.out.matches("Deployment team-").count(), DEPLOYMENTS);
    // It follows until the broken ones count as hopeless.
    let (ended, requests) = crowd.plugin(&["status", "-A", "--plain", "--fail-fast=1s", "--timeout=5m"]);
    assert_eq!(ended.code, Some(3), "{}", ended.err);
    // A watch that the server has ended is opened anew, and events are read every ten seconds.
    let is_watch = |it: &&String| it.contains("watch=");
    let watched: BTreeSet<&str> =
        requests.iter().filter(is_watch).filter_map(|it| it.split('?').next()).collect();
    let lists = requests.iter().filter(|it| !is_watch(it) && !it.contains("/events")).count();
    assert!(watched.len() == 3 && lists <= 8, "{requests:#?}");
}
