//! How a namespace that is being deleted is emptied, what it says meanwhile, and when it may go.

use std::time::Duration;

use jiff::Timestamp;
use windlass::model::discovered::{Discovered, DiscoveredResource, FailedGroup, Verbs};
use windlass::model::{Interner, Namespace, Record};
use windlass::plan::namespace::content::Failure;
use windlass::plan::namespace::{
    self as planner, Cause, Content, DiscoveryState, Findings, Item, Last, Left, Listed, Observed, Outcome,
    Plan, Verdict,
};

const ALL: &str = "create delete deletecollection get list patch update watch";
const S: Duration = Duration::from_secs(1);

/// The namespace `shop`, which is being deleted.
fn shop(spec_finalizers: &[&str]) -> Namespace {
    namespace(spec_finalizers, &[], "Terminating", true)
}

fn namespace(spec: &[&str], metadata: &[&str], phase: &str, is_deleting: bool) -> Namespace {
    let mut object = serde_json::json!({
        "metadata": {"name": "shop", "uid": "u-shop", "resourceVersion": "7", "finalizers": metadata},
        "spec": {"finalizers": spec}, "status": {"phase": phase},
    });
    if is_deleting {
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    Namespace::decode(&object.to_string(), &mut Interner::default()).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn observed<'a>(namespace: &'a Namespace, last: &Last) -> Observed<'a> {
    Observed { namespace, waited: 10 * S, delay: 5 * S, last: last.clone(), now: at(100) }
}

/// A resource that is in namespaces: `pods`, `widgets.example.com`.
fn resource(name: &str, verbs: &str) -> DiscoveredResource {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    DiscoveredResource {
        group: group.into(),
        version: "v1".into(),
        kind: "Kind".into(),
        plural: plural.into(),
        namespaced: true,
        verbs: Verbs::named(verbs.split(' ')),
        other_versions: Vec::new(),
    }
}

fn failed(group: &str, last_good: Option<Vec<DiscoveredResource>>) -> FailedGroup {
    FailedGroup { group: group.into(), version: "v1".into(), message: "down".into(), last_good }
}

fn item(name: &str, is_deleting: bool, finalizers: &[&str]) -> Item {
    let finalizers = finalizers.iter().map(ToString::to_string).collect();
    Item { name: name.into(), uid: format!("u-{name}"), is_deleting, due: None, finalizers }
}

fn left(name: &str, items: &[Item]) -> Left {
    Left::of(&resource(name, ALL), items, true).unwrap()
}

fn holds(left: Vec<Left>) -> Findings {
    Findings::fresh(DiscoveryState::default(), Content { left, errors: Vec::new() })
}

fn fails(resource: &str, message: &str) -> Findings {
    let (plural, group) = resource.split_once('.').unwrap();
    let error = Failure { resource: (group.into(), plural.into()), message: message.into() };
    Findings::fresh(DiscoveryState::default(), Content { left: Vec::new(), errors: vec![error] })
}

/// The plurals of each wave; a wave that lists everything at once is marked.
fn waves(found: &Discovered, last: &Last) -> Vec<String> {
    let names = |wave: &planner::Wave<'_>| {
        let names: Vec<&str> = wave.resources.iter().map(|resource| resource.plural.as_str()).collect();
        names.join(" ") + if wave.is_full { " (all)" } else { "" }
    };
    planner::waves(found, last).iter().map(names).collect()
}

fn served() -> Discovered {
    let mut nodes = resource("nodes", ALL);
    nodes.namespaced = false;
    Discovered {
        resources: vec![
            resource("configmaps", ALL),
            resource("pods", ALL),
            nodes,
            resource("bindings", "create"),
            resource("secrets", ALL),
            resource("blind.example.com", "delete deletecollection"),
            resource("unreachable.example.com", "delete get"),
        ],
        failed: Vec::new(),
    }
}

/// The conditions as type, status, reason and message.
fn said(namespace: &Namespace, findings: &Findings) -> Vec<[String; 4]> {
    let outcome = Outcome::Looked(findings.clone(), Verdict::Done);
    let (status, _) = planner::settle(&observed(namespace, &Last::default()), &outcome);
    let text = |text: &str| text.to_owned();
    let each = status.conditions.iter();
    each.map(|c| [text(&c.kind), text(&c.status), text(&c.reason), text(&c.message)]).collect()
}

#[test]
fn only_a_namespace_that_is_being_deleted_is_emptied() {
    let planned = |namespace: &Namespace| planner::plan(&observed(namespace, &Last::default()));
    assert_eq!(planned(&namespace(&["kubernetes"], &[], "Active", false)), Plan::Nothing);
    assert_eq!(planned(&namespace(&["kubernetes"], &[], "Terminating", false)), Plan::Nothing);
    assert_eq!(planned(&namespace(&[], &["foregroundDeletion"], "Terminating", true)), Plan::Nothing);
    assert_eq!(planned(&shop(&["kubernetes"])), Plan::Round);
    assert_eq!(planned(&shop(&["example.com/theirs"])), Plan::Round, "what is in it goes all the same");
}

#[test]
fn a_namespace_in_which_objects_can_still_be_created_is_marked_before_it_is_emptied() {
    let active = namespace(&["kubernetes"], &[], "Active", true);
    assert_eq!(planner::plan(&observed(&active, &Last::default())), Plan::MarkTerminating);
}

#[test]
fn a_namespace_that_is_another_one_by_now_is_not_emptied() {
    let cached = shop(&["kubernetes"]);
    assert!(planner::may_be_emptied(&cached, &shop(&["kubernetes"])));
    let mut successor = shop(&["kubernetes"]);
    successor.meta.uid = windlass::model::Uid::new("u-successor");
    assert!(!planner::may_be_emptied(&cached, &successor));
    assert!(!planner::may_be_emptied(&cached, &namespace(&["kubernetes"], &[], "Active", true)));
    assert!(!planner::may_be_emptied(&cached, &namespace(&["kubernetes"], &[], "Terminating", false)));
    assert!(!planner::may_be_emptied(&cached, &shop(&[])), "its name may have a successor at any time");
}

#[test]
fn pods_go_first_and_alone_and_then_whatever_can_be_found_and_deleted() {
    assert_eq!(waves(&served(), &Last::default()), ["pods", "configmaps secrets blind"]);
}

#[test]
fn a_namespace_that_waits_is_looked_at_where_something_was_left() {
    let last = Last::default().next(&holds(vec![left("secrets", &[item("a", true, &["x"])])]), 10 * S);
    assert_eq!(waves(&served(), &last), ["pods", "secrets (all)", "configmaps blind"]);
    let last = last.next(&holds(vec![left("pods", &[item("a", true, &[])])]), 10 * S);
    assert_eq!(waves(&served(), &last), ["pods (all)", "configmaps secrets blind"]);
    let last = last.next(&fails("blind.example.com", "no"), 10 * S);
    assert_eq!(waves(&served(), &last), ["pods", "blind", "configmaps secrets"], "not all with each retry");
}

#[test]
fn only_what_is_not_on_its_way_is_deleted() {
    let whole = |items: &[Item]| Listed { items: items.to_vec(), is_whole: true }.needs_deletion();
    assert!(!whole(&[]));
    assert!(whole(&[item("a", true, &[]), item("b", false, &[])]));
    assert!(!whole(&[item("a", true, &[]), item("b", true, &["example.com/keep"])]));
    assert!(whole(&[item("a", true, &["foregroundDeletion"])]), "a collector's finalizer comes off");
    assert!(whole(&[item("a", true, &["orphan"])]));
    assert!(Listed { items: vec![item("a", true, &[])], is_whole: false }.needs_deletion(), "the others");
}

#[test]
fn an_empty_namespace_goes_after_the_delay() {
    let shop = shop(&["kubernetes"]);
    let verdict = |waited: Duration, delay: Duration| {
        let observed = Observed { waited, delay, ..observed(&shop, &Last::default()) };
        planner::verdict(&observed, &holds(Vec::new()), &shop)
    };
    assert_eq!(verdict(S, 5 * S), Verdict::Wait(4 * S, Cause::Delay));
    assert_eq!(verdict(5 * S, 5 * S), Verdict::Finalize);
    assert_eq!(verdict(Duration::ZERO, Duration::ZERO), Verdict::Finalize);
}

#[test]
fn what_is_left_or_unknown_keeps_the_namespace() {
    let shop = shop(&["kubernetes"]);
    let verdict = |findings: &Findings| planner::verdict(&observed(&shop, &Last::default()), findings, &shop);
    let wait = |milliseconds| Duration::from_millis(milliseconds);
    let pods = holds(vec![left("pods", &[item("a", true, &[])])]);
    assert_eq!(verdict(&pods), Verdict::Wait(wait(250), Cause::Content));
    let refused = fails("secrets.", "listing secrets.: forbidden");
    assert_eq!(verdict(&refused), Verdict::Wait(5 * S, Cause::Errors));
    let blocked = DiscoveryState { failure: Some("down".into()), is_blocked: true };
    let unknown = Findings { discovery: blocked.clone(), ..holds(Vec::new()) };
    assert!(matches!(verdict(&unknown), Verdict::Wait(_, Cause::Discovery)));
    let unseen = Findings::without_a_look(blocked, &Last::default());
    assert!(matches!(verdict(&unseen), Verdict::Wait(_, Cause::Discovery)));
    assert!(matches!(verdict(&Findings::default()), Verdict::Wait(..)), "nothing was looked at");
}

#[test]
fn the_pause_grows_to_a_second_and_with_the_objects_and_is_short_again_after_progress() {
    let shop = shop(&["kubernetes"]);
    let pods = |count: usize| holds(vec![left("pods", &vec![item("a", true, &[]); count])]);
    let mut last = Last::default();
    let mut pause = |findings: &Findings| {
        let verdict = planner::verdict(&observed(&shop, &last), findings, &shop);
        last = last.next(findings, 10 * S);
        let Verdict::Wait(pause, Cause::Content) = verdict else { panic!("{verdict:?}") };
        pause.as_millis()
    };
    let pauses = [pause(&pods(2)), pause(&pods(2)), pause(&pods(2)), pause(&pods(2)), pause(&pods(1))];
    assert_eq!(pauses, [250, 500, 1000, 1000, 250]);
    assert_eq!([pause(&pods(3000)), pause(&pods(100_000))], [3250, 15_000]);
}

#[test]
fn the_pause_grows_to_15_seconds_with_the_time_since_something_moved() {
    let shop = shop(&["kubernetes"]);
    let due = |second: i64| Item { due: Some(at(second)), ..item("a", true, &[]) };
    // Since the deletion was seen, and what is left: the pause after it is found for the ninth time.
    let pause = |waited: u64, left: Vec<Left>, changed_at: u64, now: i64| {
        let found = holds(left);
        let mut last = Last::default().next(&found, changed_at as u32 * S);
        for _ in 0..8 {
            last = last.next(&found, changed_at as u32 * S + S);
        }
        let observed = Observed { waited: waited as u32 * S, now: at(now), ..observed(&shop, &last) };
        match planner::verdict(&observed, &found, &shop) {
            Verdict::Wait(pause, Cause::Content) => pause.as_millis(),
            verdict => panic!("{verdict:?}"),
        }
    };
    let maps = || vec![left("configmaps", &[item("a", true, &["example.com/keep"])])];
    assert_eq!(pause(40, maps(), 10, 1000), 1000, "30 seconds ago");
    assert_eq!(pause(100, maps(), 10, 1000), 3000);
    assert_eq!(pause(1000, maps(), 10, 1000), 15_000);
    assert_eq!(pause(1000, maps(), 990, 1000), 1000, "it has just changed");
    // A pod has until the time of its deletion, and is then expected to go.
    assert_eq!(pause(1000, vec![left("pods", &[due(1500)])], 10, 1000), 1000);
    assert_eq!(pause(1000, vec![left("pods", &[due(400), due(990)])], 10, 1000), 1000);
    assert_eq!(
        pause(1000, vec![left("pods", &[due(400), due(910)])], 10, 1000),
        3000,
        "its node does not answer"
    );
}

#[test]
fn a_group_that_fails_keeps_the_namespace_unless_it_holds_nothing() {
    let blocks = |group: &FailedGroup| planner::is_in_the_way(group);
    assert!(blocks(&failed("example.com", None)), "nobody knows what it holds");
    assert!(blocks(&failed("example.com", Some(vec![resource("widgets.example.com", ALL)]))));
    assert!(!blocks(&failed("example.com", Some(vec![resource("views.example.com", "get list")]))));
    let mut cluster_wide = resource("widgets.example.com", ALL);
    cluster_wide.namespaced = false;
    assert!(!blocks(&failed("example.com", Some(vec![cluster_wide]))));
    for group in ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"] {
        assert!(!blocks(&failed(group, None)), "{group} holds nothing by its nature");
    }
}

#[test]
fn a_failing_group_is_shown_even_if_it_holds_nothing() {
    let mut found = served();
    found.failed = vec![failed("metrics.k8s.io", None), failed("a.example.com", Some(Vec::new()))];
    let discovery = planner::discovery_state(Ok(&found));
    assert!(!discovery.is_blocked);
    let findings = Findings { discovery, ..holds(Vec::new()) };
    let text = "Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server APIs: \
                a.example.com/v1: down, metrics.k8s.io/v1: down";
    let condition = ["NamespaceDeletionDiscoveryFailure", "True", "DiscoveryFailed", text].map(str::to_owned);
    assert_eq!(said(&shop(&["kubernetes"]), &findings)[0], condition);
}

#[test]
fn an_empty_namespace_behind_a_failing_group_costs_no_lists_until_the_group_is_back() {
    let blocked = DiscoveryState { failure: Some("down".into()), is_blocked: true };
    let empty = Findings { discovery: blocked.clone(), ..holds(Vec::new()) };
    let shop = shop(&["kubernetes"]);
    let may_skip = |last: &Last, discovery: &DiscoveryState| {
        planner::may_skip_content(&observed(&shop, last), discovery)
    };
    let last = Last::default().next(&empty, 10 * S);
    assert!(may_skip(&last, &blocked));
    assert!(!may_skip(&last, &DiscoveryState::default()), "it is back: all is looked at again");
    assert!(!may_skip(&Last::default(), &blocked), "never looked at");
    let skipped = Findings::without_a_look(blocked.clone(), &last);
    assert!(may_skip(&last.next(&skipped, 10 * S), &blocked));
    assert_eq!(said(&shop, &skipped)[3][3], "All content successfully removed", "as it was at the last look");
}

#[test]
fn an_empty_namespace_is_looked_at_again_when_the_delay_is_over() {
    let shop = shop(&["kubernetes"]);
    let last = Last::default().next(&holds(Vec::new()), 10 * S);
    let early = Observed { waited: S, ..observed(&shop, &last) };
    assert!(planner::may_skip_content(&early, &DiscoveryState::default()));
    let skipped = Findings::without_a_look(DiscoveryState::default(), &last);
    assert_eq!(planner::verdict(&early, &skipped, &shop), Verdict::Wait(4 * S, Cause::Delay));
    let late = planner::verdict(&observed(&shop, &last), &skipped, &shop);
    assert!(matches!(late, Verdict::Wait(..)), "nothing goes without a look in the same round");
    assert!(!planner::may_skip_content(&observed(&shop, &last), &DiscoveryState::default()));
    let full = last.next(&holds(vec![left("pods", &[item("a", true, &[])])]), 10 * S);
    assert!(!planner::may_skip_content(&Observed { last: full, ..early }, &DiscoveryState::default()));
}

#[test]
fn the_conditions_of_an_empty_namespace_are_upstreams() {
    let expected = [
        ["NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"],
        [
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ],
        [
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ],
        ["NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"],
        [
            "NamespaceFinalizersRemaining",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ],
    ];
    let expected =
        expected.map(|[kind, reason, message]| [kind, "False", reason, message].map(str::to_owned));
    assert_eq!(said(&shop(&["kubernetes"]), &holds(Vec::new())), expected);
}

#[test]
fn what_remains_is_counted_by_kind_and_by_finalizer_in_order() {
    let findings = holds(vec![
        left("widgets.example.com", &[item("a", true, &["z/last", "a/first"]), item("b", true, &["z/last"])]),
        left("configmaps", &[item("c", true, &["z/last"])]),
    ]);
    let said = said(&shop(&["kubernetes"]), &findings);
    let remaining = "Some resources are remaining: configmaps. has 1 resource instances, widgets.example.com has 2 \
                     resource instances";
    assert_eq!(said[3][1..], ["True", "SomeResourcesRemain", remaining].map(str::to_owned));
    let finalizers = "Some content in the namespace has finalizers remaining: a/first in 1 resource instances, \
                      z/last in 3 resource instances";
    assert_eq!(said[4][1..], ["True", "SomeFinalizersRemain", finalizers].map(str::to_owned));
    assert_eq!(said[2][1], "False", "they are on their way");
}

#[test]
fn while_pods_remain_the_conditions_say_so() {
    let said = said(&shop(&["kubernetes"]), &holds(vec![left("pods", &[item("a", true, &[])])]));
    assert_eq!(said[3][3], "Some resources are remaining: pods. has 1 resource instances");
}

#[test]
fn a_failed_deletion_is_said_and_what_is_unknown_stays_as_it_was() {
    let failure = fails("widgets.example.com", "deleting widgets.example.com: no");
    let text = "Failed to delete all resource types, 1 remaining: deleting widgets.example.com: no";
    let said_of = said(&shop(&["kubernetes"]), &failure);
    assert_eq!(said_of[2][1..], ["True", "ContentDeletionFailed", text].map(str::to_owned));
    assert_eq!(said_of.len(), 3, "nobody knows what remains");
    let unexpected = holds(vec![left("widgets.example.com", &[item("a", false, &[])])]);
    let text = "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: shop for \
                gvr: example.com/v1, Resource=widgets";
    assert_eq!(said(&shop(&["kubernetes"]), &unexpected)[2][3], text);
}

#[test]
fn objects_whose_deletion_is_put_off_are_no_failure() {
    let items = [item("a", false, &[])];
    let put_off = Left::of(&resource("widgets.example.com", ALL), &items, false).unwrap();
    let said = said(&shop(&["kubernetes"]), &holds(vec![put_off]));
    assert_eq!((said[2][1].as_str(), said[3][1].as_str()), ("False", "True"));
}

#[test]
fn the_time_of_a_condition_moves_with_its_status_only() {
    let mut shop = shop(&["kubernetes"]);
    let mut status = |findings: &Findings, second: i64| {
        let outcome = Outcome::Looked(findings.clone(), Verdict::Done);
        let now = Observed { now: at(second), ..observed(&shop, &Last::default()) };
        let (status, _) = planner::settle(&now, &outcome);
        shop.status = status;
        shop.status.conditions[3].last_transition.unwrap().as_second()
    };
    let pods = |count: usize| holds(vec![left("pods", &vec![item("a", true, &[]); count])]);
    assert_eq!(status(&pods(2), 10), 10);
    assert_eq!(status(&pods(1), 20), 10);
    assert_eq!(status(&holds(Vec::new()), 30), 30);
}

#[test]
fn a_namespace_that_others_keep_has_true_conditions_before_it_loses_our_token() {
    for mut shop in [
        shop(&["kubernetes", "example.com/theirs"]),
        namespace(&["kubernetes"], &["foregroundDeletion"], "Terminating", true),
    ] {
        let verdict =
            |shop: &Namespace| planner::verdict(&observed(shop, &Last::default()), &holds(Vec::new()), shop);
        assert_eq!(verdict(&shop), Verdict::Report);
        let outcome = Outcome::Looked(holds(Vec::new()), Verdict::Report);
        let (status, again) = planner::settle(&observed(&shop, &Last::default()), &outcome);
        assert_eq!(again, Some(Duration::ZERO));
        shop.status = status;
        assert_eq!(verdict(&shop), Verdict::Finalize);
    }
    let theirs = shop(&["example.com/theirs"]);
    let verdict = planner::verdict(&observed(&theirs, &Last::default()), &holds(Vec::new()), &theirs);
    assert_eq!(verdict, Verdict::Done, "our token is gone already");
}

#[test]
fn a_namespace_that_is_gone_gets_no_status() {
    let shop = shop(&["kubernetes"]);
    for outcome in [Outcome::Finalized, Outcome::Nothing] {
        let settled = planner::settle(&observed(&shop, &Last::default()), &outcome);
        assert_eq!(settled, (shop.status.clone(), None));
    }
}
