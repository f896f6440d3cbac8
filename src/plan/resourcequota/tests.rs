mod recount;

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::charges::{Charges, LONGEST, WHILE};
use super::usage::{self, PodSum};
use super::wakes;
use super::*;
use crate::model::{Interner, PersistentVolumeClaim, Pod, Record, Service};

const NOW: &str = "2026-01-01T00:00:00Z";

/// The position of a cache that lags behind nothing.
const NEW: fn(&str) -> u64 = |_| u64::MAX;

fn start() -> Timestamp {
    NOW.parse().unwrap()
}

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn decode<T: Record>(object: &Value) -> T {
    let mut object = object.clone();
    for (key, value) in [("name", "a"), ("namespace", "shop"), ("uid", "u"), ("resourceVersion", "7")] {
        if object["metadata"][key].is_null() {
            object["metadata"][key] = value.into();
        }
    }
    T::decode(&object.to_string(), &mut Interner::default()).unwrap()
}

fn quota(spec: &Value, used: &Value) -> ResourceQuota {
    decode(&json!({"spec": spec, "status": {"hard": spec["hard"], "used": used}}))
}

/// A quota of these names without scopes, and without a status.
fn of(names: &[&str]) -> ResourceQuota {
    let hard: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), "9".into())).collect();
    decode(&json!({"spec": {"hard": hard}}))
}

fn pod(more: &Value) -> Pod {
    let mut pod = json!({"spec": {"containers": [{"name": "c", "resources": {
        "requests": {"cpu": "100m", "memory": "1Gi", "example.com/gpu": "1", "hugepages-2Mi": "2Mi"},
        "limits": {"cpu": "1"}}}]}});
    for (key, value) in more.as_object().unwrap() {
        if pod[key].is_object() {
            for (key_within, value) in value.as_object().unwrap() {
                pod[key][key_within] = value.clone();
            }
        } else {
            pod[key] = value.clone();
        }
    }
    decode(&pod)
}

fn used_by(quota: &ResourceQuota, pods: &[Pod]) -> BTreeMap<String, String> {
    let mut sum = PodSum::new(start());
    pods.iter().for_each(|pod| sum.add(pod));
    numbers(quota, &[(Source::Pods, Count::Used(sum.of(quota)))])
}

fn numbers(quota: &ResourceQuota, counts: &[(Source, Count)]) -> BTreeMap<String, String> {
    plan_of(quota, counts, Amounts::new()).status.expect("a status").used
}

fn plan_of(quota: &ResourceQuota, counts: &[(Source, Count)], charged: Amounts) -> Plan {
    plan(&Observed { quota, counts: counts.iter().cloned().collect(), charged, has_just_changed: false })
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn amounts(entries: &[(&str, &str)]) -> Amounts {
    let parse = |text: &str| Quantity::parse(text).unwrap();
    entries.iter().map(|(key, value)| ((*key).to_owned(), parse(value))).collect()
}

fn failed(reason: &str) -> Count {
    Count::Unknown { reason: reason.to_owned(), has_failed: true }
}

#[test]
fn each_name_stands_for_the_objects_that_use_it() {
    let objects = |resource: &str| Some(Source::Objects(resource.to_owned()));
    for key in ["pods", "count/pods", "cpu", "requests.memory", "limits.ephemeral-storage", "hugepages-2Mi"] {
        assert_eq!(names::source(key), Some(Source::Pods), "{key}");
    }
    for key in [
        "requests.hugepages-1Gi",
        "requests.example.com/gpu",
        "requests.deviceclass.resource.kubernetes.io/x",
    ] {
        assert_eq!(names::source(key), Some(Source::Pods), "{key}");
    }
    for key in ["services", "count/services", "services.nodeports", "services.loadbalancers"] {
        assert_eq!(names::source(key), Some(Source::Services), "{key}");
    }
    for key in [
        "persistentvolumeclaims",
        "count/persistentvolumeclaims",
        "requests.storage",
        "fast.storageclass.storage.k8s.io/requests.storage",
        "a.b.storageclass.storage.k8s.io/persistentvolumeclaims",
    ] {
        assert_eq!(names::source(key), Some(Source::Claims), "{key}");
    }
    assert_eq!(names::source("count/deployments.apps"), objects("deployments.apps"));
    assert_eq!(
        (names::source("secrets"), names::source("count/secrets")),
        (objects("secrets"), objects("secrets"))
    );
    for key in [
        "",
        "count/",
        "count/events",
        "count/events.events.k8s.io",
        "limits.example.com/gpu",
        "requests.kubernetes.io/x",
        "example.com/gpu",
        "gold.deviceclass.resource.k8s.io/devices",
        "fast.storageclass.storage.k8s.io/other",
    ] {
        assert_eq!(names::source(key), None, "{key}");
    }
}

#[test]
fn pods_use_what_they_ask_for_and_only_the_names_of_the_quota_are_written() {
    let names = [
        "pods",
        "count/pods",
        "cpu",
        "requests.cpu",
        "limits.cpu",
        "memory",
        "limits.memory",
        "hugepages-2Mi",
        "requests.hugepages-2Mi",
        "requests.example.com/gpu",
    ];
    let two = [pod(&json!({})), pod(&json!({}))];
    let expected = map(&[
        ("pods", "2"),
        ("count/pods", "2"),
        ("cpu", "200m"),
        ("requests.cpu", "200m"),
        ("limits.cpu", "2"),
        ("memory", "2Gi"),
        ("limits.memory", "0"),
        ("hugepages-2Mi", "4Mi"),
        ("requests.hugepages-2Mi", "4Mi"),
        ("requests.example.com/gpu", "2"),
    ]);
    assert_eq!(used_by(&of(&names), &two), expected);
    assert_eq!(used_by(&of(&["pods"]), &two), map(&[("pods", "2")]));
    assert_eq!(used_by(&of(&["pods"]), &[]), map(&[("pods", "0")]));
}

#[test]
fn a_pod_that_has_ended_or_outstays_its_deletion_uses_nothing_but_its_existence() {
    let quota = of(&["pods", "count/pods", "cpu"]);
    let phase = |phase: &str| pod(&json!({"status": {"phase": phase}}));
    let gone = map(&[("pods", "0"), ("count/pods", "1"), ("cpu", "0")]);
    let there = map(&[("pods", "1"), ("count/pods", "1"), ("cpu", "100m")]);
    for ended in ["Succeeded", "Failed"] {
        assert_eq!(used_by(&quota, &[phase(ended)]), gone, "{ended}");
    }
    assert_eq!(used_by(&quota, &[phase("Running")]), there);
    let deleting = |deleted: &str, grace: Value| {
        pod(&json!({"metadata": {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace}}))
    };
    // The grace period follows the deletion timestamp once more.
    assert_eq!(used_by(&quota, &[deleting("2025-12-31T23:59:30Z", 30.into())]), there);
    assert_eq!(used_by(&quota, &[deleting("2025-12-31T23:59:29Z", 30.into())]), gone);
    assert_eq!(used_by(&quota, &[deleting("2025-12-31T23:00:00Z", Value::Null)]), there);
    let mut sum = PodSum::new(start());
    sum.add(&deleting("2025-12-31T23:59:50Z", 30.into()));
    sum.add(&deleting("2025-12-31T23:59:00Z", 30.into()));
    let due: Timestamp = "2026-01-01T00:00:20Z".parse().unwrap();
    assert_eq!(sum.overdue_after(), Some(due), "it is counted again then");
    let plan = Plan::default();
    let soon = plan.look_again(None, sum.overdue_after(), start()).unwrap();
    assert_eq!(soon, Duration::from_millis(20_001));
    assert_eq!(
        plan.look_again(None, Some(due), due.saturating_add(seconds(9)).unwrap()),
        Some(Duration::from_millis(1))
    );
}

#[test]
fn scopes_include_pods_by_deadline_quality_class_and_affinity() {
    let scoped = |spec: Value| {
        let mut spec = spec;
        spec["hard"] = json!({"pods": "9"});
        quota(&spec, &json!({}))
    };
    let scopes = |scope: &str| scoped(json!({"scopes": [scope]}));
    let selector = |operator: &str, values: Value| {
        let requirement = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        scoped(json!({"scopeSelector": {"matchExpressions": [requirement]}}))
    };
    let plain = pod(&json!({}));
    let ends = pod(&json!({"spec": {"activeDeadlineSeconds": 5}}));
    let best = pod(&json!({"spec": {"containers": [{"name": "c"}]}}));
    let high = pod(&json!({"spec": {"priorityClassName": "high"}}));
    let term = json!([{"namespaces": ["other"], "topologyKey": "zone"}]);
    let affine = pod(
        &json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}}}),
    );
    let all = [&plain, &ends, &best, &high, &affine];
    let included = |quota: &ResourceQuota| {
        let is_in =
            |pod: &&Pod| used_by(quota, std::slice::from_ref(*pod)).get("pods").is_some_and(|n| n == "1");
        all.iter().map(|pod| if is_in(pod) { '1' } else { '0' }).collect::<String>()
    };
    assert_eq!(included(&of(&["pods"])), "11111");
    assert_eq!(included(&scopes("Terminating")), "01000");
    assert_eq!(included(&scopes("NotTerminating")), "10111");
    assert_eq!(included(&scopes("BestEffort")), "00100");
    assert_eq!(included(&scopes("NotBestEffort")), "11011");
    assert_eq!(included(&scopes("CrossNamespacePodAffinity")), "00001");
    assert_eq!(included(&scopes("PriorityClass")), "00010");
    assert_eq!(included(&selector("In", json!(["high", "low"]))), "00010");
    assert_eq!(included(&selector("In", json!(["low"]))), "00000");
    assert_eq!(included(&selector("NotIn", json!(["high"]))), "11101");
    assert_eq!(included(&selector("Exists", Value::Null)), "00010");
    assert_eq!(included(&selector("DoesNotExist", Value::Null)), "11101");
    assert_eq!(included(&scopes("VolumeAttributesClass")), "00000");
    for unknown in [scopes("Odd"), selector("Odd", Value::Null)] {
        assert_eq!(included(&unknown), "00000", "what is not understood includes nothing");
    }
    assert_eq!(included(&scoped(json!({"scopes": ["NotTerminating", "NotBestEffort"]}))), "10011");
}

fn service(spec: &Value) -> Service {
    decode(&json!({"spec": spec}))
}

#[test]
fn services_use_ports_of_nodes_and_load_balancers_by_their_type() {
    let quota = of(&["services", "count/services", "services.nodeports", "services.loadbalancers"]);
    let used = |services: &[Value]| {
        let mut sum = Amounts::new();
        services.iter().for_each(|spec| usage::add(&mut sum, &usage::of_service(&quota, &service(spec))));
        let used = numbers(&quota, &[(Source::Services, Count::Used(sum))]);
        ["services", "services.nodeports", "services.loadbalancers"].map(|name| used[name].clone())
    };
    let two = json!([{"port": 80, "nodePort": 30080}, {"port": 81}]);
    let node = json!({"type": "NodePort", "ports": two});
    let balancer = json!({"type": "LoadBalancer", "ports": two});
    let bare = json!({"type": "LoadBalancer", "ports": two, "allocateLoadBalancerNodePorts": false});
    assert_eq!(used(&[]), ["0", "0", "0"]);
    assert_eq!(used(&[json!({"ports": two})]), ["1", "0", "0"]);
    assert_eq!(used(std::slice::from_ref(&node)), ["1", "2", "0"]);
    assert_eq!(used(&[node, balancer]), ["2", "4", "1"]);
    assert_eq!(used(&[bare]), ["1", "1", "1"]);
    let scoped = decode(&json!({"spec": {"hard": {"services": "1"}, "scopes": ["BestEffort"]}}));
    assert!(usage::of_service(&scoped, &service(&json!({}))).is_empty(), "scopes are those of pods");
}

fn claim(spec: &Value, status: &Value) -> PersistentVolumeClaim {
    decode(&json!({"spec": spec, "status": status}))
}

#[test]
fn claims_use_storage_in_all_and_of_their_class() {
    const FAST: &str = "fast.storageclass.storage.k8s.io/requests.storage";
    const FAST_CLAIMS: &str = "fast.storageclass.storage.k8s.io/persistentvolumeclaims";
    let quota = of(&["persistentvolumeclaims", "requests.storage", FAST, FAST_CLAIMS]);
    let of_size = |size: &str| json!({"requests": {"storage": size}});
    let fast = claim(&json!({"storageClassName": "fast", "resources": of_size("1Gi")}), &json!({}));
    let grown = json!({"allocatedResources": {"storage": "3Gi"}});
    let slow = claim(&json!({"storageClassName": "slow", "resources": of_size("2Gi")}), &grown);
    let bare = claim(&json!({}), &json!({}));
    let mut sum = Amounts::new();
    for claim in [&fast, &slow, &bare] {
        usage::add(&mut sum, &usage::of_claim(&quota, claim));
    }
    let used = numbers(&quota, &[(Source::Claims, Count::Used(sum))]);
    let expected = map(&[
        ("persistentvolumeclaims", "3"),
        ("requests.storage", "4Gi"),
        (FAST, "1Gi"),
        (FAST_CLAIMS, "1"),
    ]);
    assert_eq!(used, expected);
    let by_class = |operator: &str, values: Value| {
        let requirement =
            json!({"scopeName": "VolumeAttributesClass", "operator": operator, "values": values});
        decode::<ResourceQuota>(&json!({"spec": {"hard": {"persistentvolumeclaims": "1"},
                                        "scopeSelector": {"matchExpressions": [requirement]}}}))
    };
    let changing = json!({"currentVolumeAttributesClassName": "silver"});
    let gold = claim(&json!({"volumeAttributesClassName": "gold"}), &changing);
    let counts =
        |quota: &ResourceQuota| [&gold, &bare].map(|claim| !usage::of_claim(quota, claim).is_empty());
    assert_eq!(counts(&by_class("In", json!(["silver"]))), [true, false]);
    assert_eq!(counts(&by_class("In", json!(["bronze"]))), [false, false]);
    assert_eq!(counts(&by_class("NotIn", json!(["gold", "silver"]))), [false, true]);
    assert_eq!(counts(&by_class("NotIn", json!(["gold"]))), [true, true]);
    assert_eq!(counts(&by_class("Exists", Value::Null)), [true, false]);
    assert_eq!(counts(&by_class("DoesNotExist", Value::Null)), [false, true]);
}

#[test]
fn other_objects_count_under_both_of_their_names() {
    let quota = of(&["configmaps", "count/configmaps", "count/deployments.apps"]);
    let of = |resource: &str, count| {
        let used = Count::Used(usage::of_objects(&quota, resource, count));
        (Source::Objects(resource.to_owned()), used)
    };
    let used = numbers(&quota, &[of("configmaps", 3), of("deployments.apps", 2)]);
    assert_eq!(used, map(&[("configmaps", "3"), ("count/configmaps", "3"), ("count/deployments.apps", "2")]));
}

#[test]
fn a_status_is_written_only_if_a_value_differs_and_its_spelling_stays() {
    let spec = json!({"hard": {"cpu": "1", "requests.storage": "1Gi"}});
    let counts = |cpu: &str, storage: &str| {
        [
            (Source::Pods, Count::Used(amounts(&[("cpu", cpu)]))),
            (Source::Claims, Count::Used(amounts(&[("requests.storage", storage)]))),
        ]
    };
    let odd = json!({"cpu": "500m", "requests.storage": "1073741824"});
    let same = quota(&spec, &odd);
    assert_eq!(plan_of(&same, &counts("0.5", "1Gi"), Amounts::new()).status, None);
    let changed = plan_of(&same, &counts("600m", "1Gi"), Amounts::new()).status.unwrap();
    assert_eq!(changed.used, map(&[("cpu", "600m"), ("requests.storage", "1073741824")]));
    // Another spelling of `hard` is the same.
    let respelled = decode::<ResourceQuota>(&json!({"spec": {"hard": {"cpu": "1000m"}},
        "status": {"hard": {"cpu": "1"}, "used": {"cpu": "500m"}}}));
    assert_eq!(plan_of(&respelled, &counts("0.5", "0")[..1], Amounts::new()).status, None);
    let nothing = decode::<ResourceQuota>(&json!({"spec": {"hard": {}}}));
    assert_eq!(plan_of(&nothing, &[], Amounts::new()).status, None, "upstream writes that at each sync");
}

#[test]
fn a_change_of_hard_is_taken_over_and_what_it_no_longer_names_is_removed() {
    let quota = decode::<ResourceQuota>(&json!({"spec": {"hard": {"pods": "5"}},
        "status": {"hard": {"cpu": "1", "pods": "4"}, "used": {"cpu": "1", "pods": "2"}}}));
    let plan = plan_of(
        &quota,
        &[(Source::Pods, Count::Used(amounts(&[("pods", "2"), ("cpu", "1")])))],
        Amounts::new(),
    );
    let status = plan.status.unwrap();
    assert_eq!((&status.hard, &status.used), (&map(&[("pods", "5")]), &map(&[("pods", "2")])));
    let patch = patch(&quota, &status);
    assert_eq!(
        patch["status"],
        json!({"hard": {"cpu": null, "pods": "5"}, "used": {"cpu": null, "pods": "2"}})
    );
    assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
}

#[test]
fn a_resource_that_cannot_be_counted_keeps_its_numbers_and_the_others_are_counted() {
    let spec =
        json!({"hard": {"pods": "9", "count/widgets.example.com": "9", "count/gadgets.example.com": "9"}});
    let quota = quota(&spec, &json!({"pods": "1", "count/widgets.example.com": "4"}));
    let widgets = Source::Objects("widgets.example.com".to_owned());
    let gadgets = Source::Objects("gadgets.example.com".to_owned());
    let counts = [
        (Source::Pods, Count::Used(amounts(&[("pods", "2")]))),
        (widgets.clone(), failed("no webhook")),
        (gadgets, Count::NotServed),
    ];
    let plan = plan_of(&quota, &counts, Amounts::new());
    let expected = map(&[("pods", "2"), ("count/widgets.example.com", "4")]);
    assert_eq!(plan.status.as_ref().unwrap().used, expected);
    assert_eq!(
        (&plan.kept[0].source, &plan.kept[0].keys[..]),
        (&widgets, &["count/widgets.example.com".to_owned()][..])
    );
    assert_eq!(plan.uncounted, ["count/gadgets.example.com"]);
    let reasons: Vec<String> = plan.reasons().iter().map(ToString::to_string).collect();
    assert!(reasons[0].contains("widgets.example.com cannot be counted: no webhook"), "{reasons:?}");
    let event = plan.kept[0].event();
    assert!(event.warning && event.message.contains("no webhook"), "{event:?}");
    assert!(!plan.kept[0].is_worth_an_event(start(), start().saturating_add(seconds(4)).unwrap()));
    assert!(plan.kept[0].is_worth_an_event(start(), start().saturating_add(seconds(5)).unwrap()));
    assert_eq!(plan.look_again(Some(Duration::from_secs(300)), None, start()), Some(LATER));
    // A name without a number keeps none.
    let first = self::quota(&spec, &json!({}));
    let plan = plan_of(&first, &counts, Amounts::new());
    assert_eq!(plan.status.unwrap().used, map(&[("pods", "2")]));
}

#[test]
fn a_charge_whose_object_is_not_seen_yet_is_not_taken_back() {
    let spec = json!({"hard": {"pods": "9"}});
    let quota = quota(&spec, &json!({"pods": "5"}));
    let four = [(Source::Pods, Count::Used(amounts(&[("pods", "4")])))];
    let of = |charged: Amounts| plan_of(&quota, &four, charged);
    let waiting = of(amounts(&[("pods", "1")]));
    assert_eq!((&waiting.status, &waiting.waiting[..]), (&None, &["pods".to_owned()][..]));
    assert_eq!(waiting.look_again(None, None, start()), Some(SOON));
    assert_eq!(of(amounts(&[("pods", "7")])).status, None, "no more than there was");
    assert_eq!(of(Amounts::new()).status.unwrap().used, map(&[("pods", "4")]));
    // A number rises whatever is charged, but not at the moment at which the server has lowered it.
    let seen = |has_just_changed| {
        let counts = [(Source::Pods, Count::Used(amounts(&[("pods", "6")])))].into();
        plan(&Observed { quota: &quota, counts, charged: Amounts::new(), has_just_changed })
    };
    assert_eq!((seen(true).status, seen(true).waiting), (None, vec!["pods".to_owned()]));
    assert_eq!(seen(false).status.unwrap().used, map(&[("pods", "6")]));
    let six = [(Source::Pods, Count::Used(amounts(&[("pods", "6")])))];
    assert_eq!(plan_of(&quota, &six, amounts(&[("pods", "1")])).status.unwrap().used, map(&[("pods", "6")]));
}

#[test]
fn charges_are_open_until_their_objects_appear_in_whichever_order_the_watches_bring_them() {
    let spec = json!({"hard": {"pods": "9"}});
    let at = |used: &str| quota(&spec, &json!({"pods": used}));
    let one = amounts(&[("pods", "1")]);
    let later = |count| start().saturating_add(seconds(count)).unwrap();
    let mut charges = Charges::default();
    charges.changed(&at("1"), &at("3"), start());
    assert_eq!(charges.open(NEW, start()), amounts(&[("pods", "2")]));
    charges.appeared(&one, later(1));
    assert_eq!(charges.open(NEW, later(1)), one);
    charges.appeared(&one, later(2));
    charges.appeared(&one, later(2));
    assert!(charges.open(NEW, later(2)).is_empty());
    charges.changed(&at("3"), &at("4"), later(3));
    assert!(charges.open(NEW, later(3)).is_empty(), "its object has come before");
    // Numbers that fall, and a first number, are no charges.
    charges.changed(&at("4"), &at("1"), later(3));
    charges.changed(&quota(&spec, &json!({})), &at("7"), later(3));
    assert!(charges.open(NEW, later(3)).is_empty());
    // A pair that is complete leaves nothing that would take off the next charge.
    let mut charges = Charges::default();
    charges.changed(&at("1"), &at("2"), start());
    charges.appeared(&one, later(4));
    charges.changed(&at("2"), &at("3"), later(6));
    assert_eq!(charges.open(NEW, later(6)), one);
    // A creation that failed after it was charged.
    let mut charges = Charges::default();
    charges.changed(&at("1"), &at("2"), start());
    assert_eq!(charges.open(NEW, start()), one);
    assert_eq!(charges.open(NEW, start().saturating_add(WHILE - seconds(1)).unwrap()), one);
    assert!(charges.open(NEW, start().saturating_add(WHILE).unwrap()).is_empty() && charges.is_empty());
    // A clock that is set back does not keep it.
    charges.changed(&at("1"), &at("2"), start());
    assert!(charges.open(NEW, start().saturating_sub(seconds(60)).unwrap()).is_empty());
}

#[test]
fn a_charge_counts_until_the_cache_has_been_as_new_for_a_while() {
    let spec = json!({"hard": {"pods": "9", "services": "9"}});
    let at = |pods: &str, services: &str, version: &str| -> ResourceQuota {
        let used = json!({"pods": pods, "services": services});
        decode(
            &json!({"metadata": {"resourceVersion": version}, "spec": spec, "status": {"hard": spec["hard"], "used": used}}),
        )
    };
    let later = |count| start().saturating_add(seconds(count)).unwrap();
    let (one, both) = (amounts(&[("pods", "1")]), amounts(&[("pods", "1"), ("services", "1")]));
    let mut charges = Charges::default();
    charges.changed(&at("1", "1", "7"), &at("2", "2", "20"), start());
    let lags = |key: &str| if key == "pods" { 19 } else { 20 };
    assert_eq!(charges.open(lags, later(1)), both);
    assert_eq!(charges.open(lags, later(6)), one, "the watch of Services lives");
    assert_eq!(charges.open(lags, later(60)), one);
    assert_eq!(charges.open(NEW, later(61)), one, "the pod may come now");
    assert!(charges.open(NEW, later(66)).is_empty());
    // Versions that are never reached end it all the same.
    charges.changed(&at("1", "1", "7"), &at("2", "1", "20"), start());
    assert_eq!(charges.open(lags, start().saturating_add(LONGEST - seconds(1)).unwrap()), one);
    assert!(charges.open(lags, start().saturating_add(LONGEST).unwrap()).is_empty());
}

#[test]
fn a_number_that_this_program_has_raised_is_no_charge() {
    let spec = json!({"hard": {"pods": "9"}});
    let at = |used: &str, version: &str| -> ResourceQuota {
        decode(
            &json!({"metadata": {"resourceVersion": version}, "spec": spec, "status": {"used": {"pods": used}}}),
        )
    };
    let mut charges = Charges::default();
    charges.changed(&at("1", "7"), &at("3", "8"), start());
    charges.changed(&at("3", "8"), &at("4", "9"), start());
    charges.wrote(8);
    assert_eq!(charges.open(NEW, start()), amounts(&[("pods", "1")]));
}

#[test]
fn a_change_of_an_object_wakes_the_quotas_that_name_what_it_uses() {
    let quota = of(&["pods", "requests.cpu"]);
    let (plain, ended) = (pod(&json!({})), pod(&json!({"status": {"phase": "Failed"}})));
    let running = pod(&json!({"status": {"phase": "Running"}}));
    let meaning = |old: Option<&Pod>, new: Option<&Pod>| wakes::of_pod(&quota, old, new, start());
    let more = amounts(&[("pods", "1"), ("requests.cpu", "100m")]);
    assert_eq!(meaning(None, Some(&plain)), wakes::Meaning { more, is_less: false });
    assert!(meaning(Some(&plain), None).is_less && meaning(Some(&plain), Some(&ended)).is_less);
    assert!(
        meaning(Some(&plain), Some(&running)).is_none() && !wakes::may_concern(Some(&plain), Some(&running))
    );
    assert!(wakes::may_concern(Some(&plain), Some(&ended)));
    let deleting = pod(&json!({"metadata": {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 30}}));
    assert!(meaning(Some(&plain), Some(&deleting)).is_less, "its time is to be known");
    let services = of(&["services.nodeports"]);
    let of_type = |kind: &str| service(&json!({"type": kind, "ports": [{"port": 80}]}));
    let change =
        |old: &str, new: &str| wakes::of_service(&services, Some(&of_type(old)), Some(&of_type(new)));
    assert!(change("NodePort", "ClusterIP").is_less && change("ClusterIP", "ExternalName").is_none());
    assert!(wakes::of_service(&quota, None, Some(&of_type("NodePort"))).is_none(), "it names no Services");
    let (small, large) = ("1Gi", "2Gi");
    let size = |size: &str| claim(&json!({"resources": {"requests": {"storage": size}}}), &json!({}));
    let storage = of(&["requests.storage"]);
    let grown = wakes::of_claim(&storage, Some(&size(small)), Some(&size(large)));
    assert_eq!(grown.more, amounts(&[("requests.storage", "1Gi")]));
    let maps = of(&["count/configmaps"]);
    assert!(wakes::of_object(&maps, "configmaps", false).is_less);
    assert!(wakes::of_object(&maps, "secrets", false).is_none());
}

#[test]
fn a_charge_is_told_from_a_change_of_what_is_limited() {
    let at = |hard: &str, status_hard: &str, used: &str, scopes: Value| -> ResourceQuota {
        decode(&json!({"spec": {"hard": {"pods": hard}, "scopes": scopes},
                       "status": {"hard": {"pods": status_hard}, "used": {"pods": used}}}))
    };
    let before = at("9", "9", "1", json!([]));
    assert!(wakes::is_of_numbers(&before, &at("9", "9", "2", json!([]))));
    assert!(!wakes::is_of_numbers(&before, &at("8", "9", "1", json!([]))));
    assert!(!wakes::is_of_numbers(&before, &at("9", "8", "1", json!([]))));
    assert!(!wakes::is_of_numbers(&before, &at("9", "9", "1", json!(["Terminating"]))));
}

#[test]
fn numbers_that_no_arithmetic_holds_stop_nothing() {
    let huge = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {
        "memory": "9223372036854775807", "cpu": "nonsense"}}}]}});
    let quota = of(&["requests.memory", "requests.cpu", "pods"]);
    let used = used_by(&quota, &[pod(&huge), pod(&huge)]);
    assert_eq!(used["requests.memory"], "18446744073709551614");
    assert_eq!((used["requests.cpu"].as_str(), used["pods"].as_str()), ("0", "2"));
    let odd = decode::<ResourceQuota>(&json!({"spec": {"hard": {"pods": "nonsense"}},
        "status": {"hard": {"pods": "nonsense"}, "used": {"pods": "odd"}}}));
    let count = [(Source::Pods, Count::Used(amounts(&[("pods", "1")])))];
    let status = plan_of(&odd, &count, amounts(&[("pods", "1")])).status.unwrap();
    assert_eq!((status.hard, status.used), (map(&[("pods", "nonsense")]), map(&[("pods", "1")])));
}

#[test]
fn pods_of_a_template_are_summed_at_once() {
    let pod = pod(&json!({}));
    let mut sum = PodSum::new(start());
    let shared: Arc<Pod> = Arc::new(pod);
    (0..1000).for_each(|_| sum.add(&shared));
    let used = sum.of(&of(&["pods", "cpu"]));
    assert_eq!((used["pods"].to_string(), used["cpu"].to_string()), ("1k".to_owned(), "100".to_owned()));
}
