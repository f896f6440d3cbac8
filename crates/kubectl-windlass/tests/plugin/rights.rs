//! The rights that each command uses are those of the table in docs/plugin.md: on a sandbox by the requests that a relay
//! sees, and on a real API server, which grants exactly these and no others, by its audit log.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use http::{Method, Request};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use windlass_testkit::apiserver::{ApiServer, TOKEN, User, on_a_real_server, run_the_rest_of_the_cluster};
use windlass_testkit::controllers::Side;
use windlass_testkit::rights::{Rights, right, used};

use crate::harness::{DEPLOYMENTS, Ended, PLUGIN, Sandbox};

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const BATCH: &str = "/apis/batch/v1/namespaces/default";
const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "patch", "update", "delete"];

/// The rights of a command by the table of the documentation.
fn documented(command: &str) -> Rights {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plugin.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split_once("## Permissions").unwrap().1;
    let row = section.lines().find_map(|line| line.strip_prefix(&format!("| `{command}` | ")));
    let row = row.unwrap_or_else(|| panic!("the table has no row for {command}"));
    let mut rights = Rights::new();
    for part in row.trim_end_matches([' ', '|']).split("; ") {
        let words = part.split([',', ' ']).filter(|word| !word.is_empty());
        let (verbs, resources): (Vec<&str>, Vec<&str>) = words.partition(|word| VERBS.contains(word));
        assert!(!verbs.is_empty() && !resources.is_empty(), "{command}: {part}");
        for resource in resources {
            let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
            rights.extend(verbs.iter().map(|verb| right(verb, group, plural, "")));
        }
    }
    rights
}

/// A cluster on which commands are run under users of their own.
trait Cluster {
    /// Does something as an administrator.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value;
    /// Runs the plugin with the rights of a row of the table.
    fn plugin(&self, row: &str, args: &[&str]) -> Ended;
    /// The rights that the commands of this row have used since it was last asked.
    fn used(&self, row: &str) -> Rights;
    /// A file of the test, with this content.
    fn file(&self, content: &Value) -> String;
    /// Whether `rollingupdate-controller` runs.
    fn has_server_side_updates(&self) -> bool;

    fn eventually(&self, path: &str, holds: &dyn Fn(&Value) -> bool) {
        for _ in 0..600 {
            if holds(&self.call("GET", path, &Value::Null)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{path}: {:#}", self.call("GET", path, &Value::Null));
    }
}

fn pods_of(app: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"terminationGracePeriodSeconds": 1,
           "containers": [{"name": "app", "image": image}]}})
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}}, "spec": {"replicas": 2,
           "selector": {"matchLabels": {"app": name}}, "template": pods_of(name, "app:1")}})
}

fn stateful_set(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "labels": {"app": name}}, "spec": {
           "replicas": 1, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": pods_of(name, "app:1")}})
}

fn controller(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name},
           "spec": {"replicas": 1, "selector": {"app": name}, "template": pods_of(name, "app:1")}})
}

/// Its pods never start.
fn daemon_set(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "labels": {"app": name}}, "spec": {
           "selector": {"matchLabels": {"app": name}}, "template": pods_of(name, "app:broken")}})
}

/// Its pod never starts.
fn job(name: &str) -> Value {
    let mut pods = pods_of(name, "app:broken");
    pods["spec"]["restartPolicy"] = json!("Never");
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": {"app": name}}, "spec": {"template": pods}})
}

fn cron_job(name: &str) -> Value {
    let job = job(name);
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
           "spec": {"schedule": "0 3 1 1 *", "jobTemplate": {"spec": job["spec"]}}})
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": image}]}}}})
}

/// Runs every command, and compares what it used with the table.
fn each_command_uses_the_documented_rights(cluster: &dyn Cluster) {
    let web = format!("{DEPLOYMENTS}/web");
    let db = format!("{SETS}/db");
    cluster.call("POST", DEPLOYMENTS, &deployment("web"));
    cluster.call("POST", SETS, &stateful_set("db"));
    for name in ["old", "second"] {
        cluster.call("POST", CONTROLLERS, &controller(name));
    }
    let run = |row: &str, code: i32, args: &[&str]| {
        let ended = cluster.plugin(row, args);
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert!(!ended.out.contains("orbidden") && !ended.err.contains("orbidden"), "{args:?}: {ended:?}");
    };
    let mut differences: Vec<String> = Vec::new();
    let mut check = |row: &str| {
        let (used, documented) = (cluster.used(row), documented(row));
        if used != documented {
            differences.push(format!("{row}\n  uses        {used:?}\n  may by docs {documented:?}"));
        }
    };

    run("status", 0, &["status", "web", "--timeout=60s"]);
    run("status", 0, &["status", "-l", "app=web", "--timeout=60s"]);
    run("status", 0, &["status", "sts/db", "--timeout=60s"]);
    run("status", 0, &["status", "sts", "-l", "app=db", "--timeout=60s"]);

    cluster.call("PATCH", &web, &image("app:broken"));
    cluster.call("PATCH", &db, &image("app:broken"));
    cluster.eventually("/api/v1/namespaces/default/pods", &|pods| {
        pods["items"].as_array().into_iter().flatten().any(|pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        })
    });
    // Only a rollout that is not complete has it read events.
    run("status", 4, &["status", "web", "--timeout=2s"]);
    check("status");

    cluster.call("POST", DAEMON_SETS, &daemon_set("agent"));
    cluster.call("POST", &format!("{BATCH}/jobs"), &job("backup"));
    cluster.call("POST", &format!("{BATCH}/cronjobs"), &cron_job("nightly"));
    cluster.eventually(&format!("{DAEMON_SETS}/agent"), &|it| {
        it["status"]["updatedNumberScheduled"].as_i64() > Some(0)
    });
    cluster.eventually(&format!("{BATCH}/jobs/backup"), &|it| it["status"]["active"] == 1);
    run("list", 0, &["list"]);
    run("list", 4, &["list", "--unfinished", "-l", "app in (web, db, agent, backup)"]);
    check("list");
    run("status ds", 4, &["status", "ds/agent", "--timeout=2s"]);
    check("status ds");
    run("status job", 4, &["status", "job/backup", "--timeout=2s"]);
    run("status job", 0, &["status", "cj/nightly", "--timeout=2s"]);
    check("status job");
    run("explain ds", 0, &["explain", "ds/agent"]);
    check("explain ds");
    run("explain job", 0, &["explain", "job/backup"]);
    run("explain job", 0, &["explain", "cj/nightly"]);
    check("explain job");
    cluster.eventually(&format!("{CONTROLLERS}/old"), &|old| old["status"]["availableReplicas"] == 1);
    run("explain", 0, &["explain", "web"]);
    run("explain", 0, &["explain", "-l", "app=web"]);
    run("explain", 0, &["explain", "sts/db"]);
    run("explain", 0, &["explain", "sts", "-l", "app=db"]);
    run("explain", 0, &["explain", "rc/old"]);
    check("explain");

    run("history", 0, &["history", "web"]);
    run("history", 0, &["history", "web", ".."]);
    run("history", 0, &["history", "sts/db"]);
    check("history");

    let plan = ["plan", "web", "--image", "app:1"];
    run("plan", 0, &plan);
    let new = cluster.file(&deployment("new"));
    run("plan", 0, &["plan", "-f", &new]);
    let new = cluster.file(&stateful_set("new"));
    run("plan", 0, &["plan", "-f", &new]);
    run("plan", 0, &["plan", "sts/db", "--image", "app:1", "--replicas", "0"]);
    run("plan", 0, &["plan", "rc/old", "--image", "app:2"]);
    check("plan");
    run("plan ds", 0, &["plan", "ds/agent", "--image", "app:1"]);
    let new = cluster.file(&daemon_set("new"));
    run("plan ds", 0, &["plan", "-f", &new]);
    check("plan ds");

    // A policy that only Windlass follows; kube-controller-manager accepts no approval.
    cluster.call("PATCH", &web, &json!({"metadata": {"annotations": {"windlass.dev/steps": "1"}}}));
    let accepted = if cluster.has_server_side_updates() { 0 } else { 1 };
    run("approve", accepted, &["approve", "web", "--step=1", "--yes"]);
    check("approve");
    let agent = format!("{DAEMON_SETS}/agent");
    cluster.call("PATCH", &agent, &json!({"metadata": {"annotations": {"windlass.dev/steps": "1"}}}));
    run("approve ds", 0, &["bypass", "ds/agent", "--for=10m", "--yes"]);
    check("approve ds");

    run("undo", 0, &["undo", "web", "--yes"]);
    run("undo", 0, &["undo", "sts/db", "--yes"]);
    check("undo");
    let template = json!({"spec": {"containers": [{"name": "app", "image": "app:9"}]}});
    cluster.call("PATCH", &agent, &json!({"spec": {"template": template}}));
    cluster.eventually(&agent, &|it| it["status"]["observedGeneration"] == it["metadata"]["generation"]);
    run("undo ds", 0, &["undo", "ds/agent", "--yes"]);
    check("undo ds");

    let quick = ["--update-period=100ms", "--poll-interval=100ms", "--timeout=60s"];
    let update = |args: &[&str]| run("rolling-update", 0, &[&["rolling-update"], args, &quick].concat());
    update(&["old", "--image", "app:2"]);
    update(&["old", "next", "--image", "app:3"]);
    check("rolling-update");

    if cluster.has_server_side_updates() {
        cluster.eventually(&format!("{CONTROLLERS}/second"), &|second| {
            second["status"]["availableReplicas"] == 1
        });
        let row = "rolling-update --server-side";
        run(row, 0, &["rolling-update", "second", "--image", "app:2", "--server-side", "--update-period=0"]);
        check(row);
    }

    run("version", 0, &["version"]);
    check("version");
    assert!(differences.is_empty(), "{}", differences.join("\n"));

    let map = cluster.file(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}));
    run("create", 0, &["create", "-f", &map]);
    assert_eq!(cluster.used("create"), Rights::from(["create configmaps".to_owned()]));
}

/// The requests that the relay has seen.
type Seen = Arc<Mutex<Rights>>;

/// A sandbox behind a relay that notes the request lines.
struct Relayed {
    sandbox: Sandbox,
    seen: Seen,
}

impl Relayed {
    fn start() -> Self {
        let sandbox = Sandbox::start(&[]);
        let seen = Seen::default();
        let config = std::fs::read_to_string(sandbox.file("kubeconfig")).unwrap();
        let server = config.split_once("http://").unwrap().1;
        let server: String = server.chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().to_string();
        std::fs::write(sandbox.file("relayed"), config.replace(&server, &own)).unwrap();
        let notes = seen.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server, notes) =
                    (client.unwrap(), TcpStream::connect(&server).unwrap(), notes.clone());
                let (mut from_server, mut to_client) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _closed = std::io::copy(&mut from_server, &mut to_client);
                    let _closed = to_client.shutdown(std::net::Shutdown::Both);
                });
                std::thread::spawn(move || note_requests(client, server, &notes));
            }
        });
        Relayed { sandbox, seen }
    }
}

/// Copies what a client sends, and notes the rights that its requests need.
fn note_requests(mut client: TcpStream, mut server: TcpStream, notes: &Seen) {
    let (mut rest, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        rest.extend_from_slice(&buffer[..read]);
        // JSON has no line breaks of its own in a request of the plugin, so that a request line is the only line like it.
        while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
            let line: Vec<u8> = rest.drain(..end + 2).collect();
            let line = String::from_utf8_lossy(&line).trim().to_owned();
            if let Some(line) = line.strip_suffix(" HTTP/1.1") {
                // A body without a line break stands in front of the next request line.
                let start = line.rfind('}').map_or(0, |end| end + 1);
                notes.lock().unwrap().extend(right_of(&line[start..]));
            }
        }
        if server.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _closed = server.shutdown(std::net::Shutdown::Write);
}

/// The right that a request needs, from `PATCH /apis/apps/v1/namespaces/default/deployments/web?dryRun=All`; none for
/// discovery and versions.
pub fn right_of(request: &str) -> Option<String> {
    let (method, uri) = request.split_once(' ')?;
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let (resource, name, subresource) = match rest {
        [resource] => (*resource, "", ""),
        [resource, name] => (*resource, *name, ""),
        [resource, name, subresource] => (*resource, *name, *subresource),
        _ => return None,
    };
    let verb = match method {
        "GET" if query.split('&').any(|pair| matches!(pair, "watch=1" | "watch=true")) => "watch",
        "GET" if name.is_empty() => "list",
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => return None,
    };
    Some(right(verb, group, resource, subresource))
}

impl Cluster for Relayed {
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.sandbox.call(method, path, body)
    }

    fn plugin(&self, _: &str, args: &[&str]) -> Ended {
        let mut command = self.sandbox.command(PLUGIN, args);
        Ended::of(&command.env("KUBECONFIG", self.sandbox.file("relayed")).output().unwrap())
    }

    fn used(&self, _: &str) -> Rights {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    fn file(&self, content: &Value) -> String {
        let file = self.sandbox.file("manifest.json");
        std::fs::write(&file, content.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn has_server_side_updates(&self) -> bool {
        true
    }
}

#[test]
fn each_command_uses_the_documented_rights_and_no_others() {
    each_command_uses_the_documented_rights(&Relayed::start());
}

/// The rows of the table, and what `create` is given for the manifests of the test.
const USERS: [User; 17] = [
    User { token: "token-of-list", name: "list", groups: "" },
    User { token: "token-of-explain-ds", name: "explain ds", groups: "" },
    User { token: "token-of-explain-job", name: "explain job", groups: "" },
    User { token: "token-of-status-ds", name: "status ds", groups: "" },
    User { token: "token-of-status-job", name: "status job", groups: "" },
    User { token: "token-of-plan-ds", name: "plan ds", groups: "" },
    User { token: "token-of-approve-ds", name: "approve ds", groups: "" },
    User { token: "token-of-undo-ds", name: "undo ds", groups: "" },
    User { token: "token-of-explain", name: "explain", groups: "" },
    User { token: "token-of-status", name: "status", groups: "" },
    User { token: "token-of-plan", name: "plan", groups: "" },
    User { token: "token-of-history", name: "history", groups: "" },
    User { token: "token-of-approve", name: "approve", groups: "" },
    User { token: "token-of-undo", name: "undo", groups: "" },
    User { token: "token-of-rolling-update", name: "rolling-update", groups: "" },
    User { token: "token-of-version", name: "version", groups: "" },
    User { token: "token-of-create", name: "create", groups: "" },
];

/// A real API server, on which each row of the table is a user with exactly its rights.
struct Real<'a> {
    server: &'a ApiServer,
    client: kube::Client,
}

impl Cluster for Real<'_> {
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let method: Method = method.parse().unwrap();
        let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Handle::current().block_on(self.client.request(request.body(bytes).unwrap())).unwrap()
    }

    fn plugin(&self, row: &str, args: &[&str]) -> Ended {
        let user = USERS.iter().find(|user| user.name == row).unwrap();
        let mut command = std::process::Command::new(PLUGIN);
        command.args(args).env("KUBECONFIG", self.server.kubeconfig(user.token)).env("LC_ALL", "C.UTF-8");
        Ended::of(&command.output().unwrap())
    }

    fn used(&self, row: &str) -> Rights {
        let audit = self.server.audit();
        let own: Vec<&Value> = audit
            .iter()
            .filter(|event| event["user"]["username"] == row && event["userAgent"] != "test")
            .collect();
        let refused =
            own.iter().filter(|event| matches!(event["responseStatus"]["code"].as_u64(), Some(401 | 403)));
        assert_eq!(used(refused.copied()), Rights::new(), "refused to {row}");
        let all: BTreeSet<String> = used(own.into_iter().filter(|event| !event["objectRef"].is_null()));
        all
    }

    fn file(&self, content: &Value) -> String {
        let file = self.server.file("manifest.json");
        std::fs::write(&file, content.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn has_server_side_updates(&self) -> bool {
        false
    }
}

/// A role and a binding for a user.
fn role(name: &str, rights: &Rights) -> [Value; 2] {
    let rules: Vec<Value> = rights
        .iter()
        .map(|right| {
            let (verb, resource) = right.split_once(' ').unwrap();
            let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
            json!({"apiGroups": [group], "resources": [plural], "verbs": [verb]})
        })
        .collect();
    let api = "rbac.authorization.k8s.io";
    let version = format!("{api}/v1");
    [
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
               "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
               "subjects": [{"apiGroup": api, "kind": "User", "name": name}]}),
    ]
}

#[test]
#[ignore = "needs KUBEBUILDER_ASSETS with kube-controller-manager"]
fn the_documented_rights_suffice_on_a_real_server_and_no_other_is_used() {
    on_a_real_server(async |assets| {
        let server = ApiServer::start_with(assets, &USERS).await;
        let end = CancellationToken::new();
        run_the_rest_of_the_cluster(&server, &end).await;
        let controllers = "deployment-controller,replicaset-controller,replicationcontroller-controller,\
                           statefulset-controller,daemonset-controller,job-controller,cronjob-controller";
        let (config, log) = (server.kubeconfig(TOKEN), server.file("upstream.log"));
        let _upstream = Side::Upstream.start(assets, &config, controllers, &["--leader-elect=false"], &log);
        let cluster = Real { server: &server, client: server.client().await };
        tokio::task::block_in_place(|| {
            for user in USERS {
                let rights = match user.name {
                    "create" => Rights::from(["create configmaps".to_owned()]),
                    row => documented(row),
                };
                for (object, path) in
                    role(user.name, &rights).iter().zip(["clusterroles", "clusterrolebindings"])
                {
                    cluster.call("POST", &format!("/apis/rbac.authorization.k8s.io/v1/{path}"), object);
                }
            }
            // The authorizer learns of roles by watches.
            std::thread::sleep(std::time::Duration::from_secs(2));
            each_command_uses_the_documented_rights(&cluster);
        });
        end.cancel();
    });
}
