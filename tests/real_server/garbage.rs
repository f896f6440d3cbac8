//! The demands of upstream's integration tests on a garbage collector, from outside: played with Windlass and with
//! kube-controller-manager, each on a real API server of its own. `garbage/upstream.md` says which test of upstream's is
//! which situation here.

mod bed;
mod cascades;
mod conflicts;
mod custom;
mod end_to_end;
mod foreground;
mod namespaces;
mod references;

use std::path::Path;
use std::time::Duration;

use bed::Bed;
use futures::future::BoxFuture;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use windlass_testkit::apiserver::{ApiServer, DAEMON, User, on_a_real_server, said};
use windlass_testkit::controllers::Side;
use windlass_testkit::proxy::Proxy;
use windlass_testkit::{manifests, rights};

const CONTROLLER: &str = "garbage-collector-controller";

/// An account that may do everything.
const COLLECTOR: User =
    User { token: "token-of-the-collector", name: "the-collector", groups: "system:masters" };

/// A play in a namespace of its own. It says how many objects the collector deletes there, if others delete none.
type Situation = (&'static str, Play);
type Play = fn(Bed) -> BoxFuture<'static, Option<usize>>;

macro_rules! situations {
    ($($module:ident::$name:ident)*) => {{
        let all: Vec<(&'static str, $crate::garbage::Play)> = vec![$((stringify!($name), |bed| {
            Box::pin(async move { Option::<usize>::from($module::$name(&bed).await) })
        })),*];
        all
    }};
}
use situations;

fn integration() -> Vec<Situation> {
    situations![
        references::references_across_namespaces_harm_no_rightful_dependent
        references::only_a_missing_cluster_scoped_owner_is_absent
        references::an_object_with_a_thousand_owners_loses_those_that_are_gone
        conflicts::references_that_disagree_end_by_what_they_claim
        conflicts::a_dependent_that_changes_all_the_time_goes
        cascades::a_controller_takes_the_pods_that_only_it_owns
        cascades::a_pod_whose_owner_never_existed_goes
        cascades::five_ways_to_delete_fifty_controllers
        cascades::an_orphaning_deletion_leaves_the_pods
        cascades::a_dependent_that_cannot_change_keeps_the_orphaning_owner
        foreground::a_solid_owner_keeps_its_pod_and_no_waiting_owner
        foreground::references_that_do_not_block_are_not_waited_for
        foreground::a_reference_that_blocks_is_waited_for
        foreground::a_pod_can_be_deleted_twice_in_the_foreground
        foreground::three_pods_in_a_circle_go
        custom::custom_resources_own_and_are_owned
        custom::custom_resources_cascade_and_are_orphaned
        custom::a_deleted_definition_takes_what_its_objects_own
        custom::a_kind_that_cannot_be_converted_keeps_no_other_from_going
    ]
}

/// Those that depend on how events arrive.
fn of_watches() -> Vec<Situation> {
    situations![
        references::references_across_namespaces_harm_no_rightful_dependent
        references::only_a_missing_cluster_scoped_owner_is_absent
        conflicts::references_that_disagree_end_by_what_they_claim
        cascades::five_ways_to_delete_fifty_controllers
        foreground::a_solid_owner_keeps_its_pod_and_no_waiting_owner
    ]
}

/// How the collector sees the API server.
#[derive(Clone, Copy, PartialEq)]
enum Watches {
    /// As by default.
    Cached,
    /// From etcd, without bookmarks.
    Uncached,
    /// Owners late: PersistentVolumes by 30 s, and ConfigMaps by 3 s.
    Late,
}

pub(crate) fn the_situations_of_upstreams_tests_end_as_upstream_demands() {
    play(Side::Windlass, Watches::Cached, &integration());
}

pub(crate) fn kube_controller_manager_ends_the_same_situations_in_the_same_way() {
    play(Side::Upstream, Watches::Cached, &integration());
}

pub(crate) fn without_a_watch_cache_they_end_as_upstream_demands() {
    play(Side::Windlass, Watches::Uncached, &of_watches());
}

pub(crate) fn kube_controller_manager_ends_them_in_the_same_way_without_a_watch_cache() {
    play(Side::Upstream, Watches::Uncached, &of_watches());
}

pub(crate) fn with_owners_that_are_seen_late_they_end_as_upstream_demands() {
    play(Side::Windlass, Watches::Late, &of_watches());
}

pub(crate) fn kube_controller_manager_ends_them_in_the_same_way_with_owners_that_are_seen_late() {
    play(Side::Upstream, Watches::Late, &of_watches());
}

pub(crate) fn the_situations_of_upstreams_end_to_end_tests_end_as_upstream_demands() {
    end_to_end::play(Side::Windlass);
}

pub(crate) fn kube_controller_manager_ends_the_end_to_end_situations_in_the_same_way() {
    end_to_end::play(Side::Upstream);
}

fn play(side: Side, watches: Watches, situations: &[Situation]) {
    on_a_real_server(async |folder| {
        let flags: &[&str] = if watches == Watches::Uncached { &["--watch-cache=false"] } else { &[] };
        let server = ApiServer::start_flagged(folder, &[DAEMON, COLLECTOR], flags).await;
        let client = server.client().await;
        // Ours with the rights and under the policies that are shipped.
        let user = match side {
            Side::Upstream => COLLECTOR,
            Side::Windlass => {
                grant(&server, &client).await;
                DAEMON
            }
        };
        let beds = beds(side, watches, &client, situations).await;
        for (bed, (name, _)) in beds.iter().zip(situations) {
            match *name {
                "references_across_namespaces_harm_no_rightful_dependent" => {
                    references::refer_across_namespaces(bed).await;
                }
                "a_kind_that_cannot_be_converted_keeps_no_other_from_going" => {
                    custom::break_a_kind(bed).await;
                }
                _ => {}
            }
        }
        let (config, _proxy) = seen_through(watches, &server, user).await;
        let log = server.file("controllers.log");
        let _collector = side.start(folder, &config, CONTROLLER, &[], &log);
        // Through the proxy, the requests have the same user.
        judge(side, &server, user, beds, situations, &log).await;
        let refused: Vec<Value> =
            server.audit().into_iter().filter(|event| is_refused_to(event, user)).collect();
        assert!(refused.is_empty(), "{refused:#?}");
    });
}

/// The kubeconfig of the collector, and the proxy through which it leads, if any.
async fn seen_through(
    watches: Watches,
    server: &ApiServer,
    user: User,
) -> (std::path::PathBuf, Option<Proxy>) {
    let own = server.kubeconfig(user.token);
    if watches != Watches::Late {
        return (own, None);
    }
    let lag = |path: &str| match path.rsplit('/').next() {
        Some("persistentvolumes") => Duration::from_secs(30),
        Some("configmaps") => Duration::from_secs(3),
        _ => Duration::ZERO,
    };
    let proxy = Proxy::delaying(server.client_of(user.token).await, lag).await;
    let config = server.file("proxy.kubeconfig");
    std::fs::write(&config, proxy.kubeconfig()).unwrap();
    (config, Some(proxy))
}

/// A refused creation is one with which the rig waits for the policy.
fn is_refused_to(event: &Value, user: User) -> bool {
    event["responseStatus"]["code"] == 403
        && event["verb"] != "create"
        && event["user"]["username"] == user.name
}

/// A namespace for each situation.
async fn beds(side: Side, watches: Watches, client: &Client, situations: &[Situation]) -> Vec<Bed> {
    let mut beds = Vec::new();
    for (at, (name, _)) in situations.iter().enumerate() {
        let words = name.replace('_', "-");
        let namespace = format!("s{at}-{}", &words[..words.len().min(40)].trim_end_matches('-'));
        let bed = Bed { side, client: client.clone(), has_late_owners: watches == Watches::Late, namespace };
        bed.create_namespace(&bed.namespace).await;
        beds.push(bed);
    }
    beds
}

/// Plays all at the same time, and compares what the collector deleted with what each situation demands.
async fn judge(
    side: Side,
    server: &ApiServer,
    user: User,
    beds: Vec<Bed>,
    situations: &[Situation],
    log: &Path,
) {
    let mut running = JoinSet::new();
    for (bed, &(name, play)) in beds.into_iter().zip(situations) {
        running.spawn(async move {
            let namespace = bed.namespace.clone();
            (name, namespace, tokio::spawn(play(bed)).await)
        });
    }
    let (mut failures, mut demanded) = (Vec::new(), Vec::new());
    while let Some(ended) = running.join_next().await {
        match ended.unwrap() {
            (name, namespace, Ok(count)) => demanded.push((name, namespace, count)),
            (name, _, Err(error)) => failures.push(format!("{name}: {}", said(error))),
        }
    }
    let audit = server.audit();
    for (name, namespace, count) in demanded {
        let Some(count) = count else { continue };
        let deletions = Deletions::of(&audit, user, &namespace);
        #[allow(clippy::print_stdout)] // The figures are for whoever runs it.
        {
            println!(
                "    {:<24} {count:>3} to delete {:>3} DELETE {:>3} refused {:>4} requests  {name}",
                side.name(),
                deletions.done,
                deletions.refused,
                deletions.requests
            );
        }
        // An object that a finalizer keeps may be deleted again.
        if deletions.objects != count || side == Side::Windlass && deletions.done != count {
            failures.push(format!("{name}: {count} to delete, and the collector sent {deletions:?}"));
        }
    }
    let text = std::fs::read_to_string(log).unwrap_or_default();
    assert!(failures.is_empty(), "{side:?}: {} failed:\n{}\n{text}", failures.len(), failures.join("\n\n"));
}

/// The collector's requests about the objects of a situation, by the audit log.
#[derive(Debug, Default)]
struct Deletions {
    /// How many objects it deleted.
    objects: usize,
    /// With how many requests.
    done: usize,
    /// And how many had no effect: of another version, or of what was gone already.
    refused: usize,
    /// Requests of all kinds.
    requests: usize,
}

impl Deletions {
    fn of(audit: &[Value], user: User, namespace: &str) -> Self {
        let is_here = |event: &&Value| {
            let name = event["objectRef"]["namespace"].as_str().unwrap_or_default();
            let rest = name.strip_prefix(namespace);
            event["user"]["username"] == user.name
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let all: Vec<&Value> = audit.iter().filter(is_here).collect();
        let (done, refused): (Vec<&Value>, Vec<&Value>) = all
            .iter()
            .filter(|event| event["verb"] == "delete")
            .partition(|event| event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300));
        let objects: std::collections::BTreeSet<&str> =
            done.iter().filter_map(|event| event["requestURI"].as_str()).collect();
        Deletions { objects: objects.len(), done: done.len(), refused: refused.len(), requests: all.len() }
    }
}

pub(crate) async fn grant(server: &ApiServer, client: &Client) {
    rights::create(client, &rights::manifest()).await;
    for file in ["garbage-collector.yaml", "admissionpolicy.yaml"] {
        rights::create(client, &manifests::file(&format!("deploy/garbage/{file}"))).await;
    }
    rights::wait_for_the_admission_policy(server).await;
    let wanted = [json!({"verb": "delete", "group": "*", "resource": "*", "namespace": "a"})];
    rights::wait_until_allowed(client, DAEMON.name, &wanted).await;
}
