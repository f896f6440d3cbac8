mod memory;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::plan::garbage::decision::Policy;

/// A graph whose resources have had their first lists: maps, which are in namespaces, and nodes, which are not.
struct World {
    graph: Graph,
    maps: ResourceId,
    nodes: ResourceId,
}

fn resource(kind: &str, plural: &str, namespaced: bool) -> GraphResource {
    GraphResource { group: String::new(), kind: kind.into(), plural: plural.into(), namespaced }
}

fn filled() -> World {
    let mut graph = Graph::default();
    let (maps, _) = graph.add_resource(&resource("ConfigMap", "configmaps", true)).unwrap();
    let (nodes, _) = graph.add_resource(&resource("Node", "nodes", false)).unwrap();
    graph.end_list(maps);
    graph.end_list(nodes);
    World { graph, maps, nodes }
}

/// A reference to a map of this name, which is its UID too.
fn to(owner: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner})
}

fn blocking(owner: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner, "blockOwnerDeletion": true})
}

fn object(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "uid": name, "namespace": "shop", "resourceVersion": "7", "ownerReferences": owners}})
}

fn deleting(mut object: Value, finalizer: &str) -> Value {
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    object["metadata"]["finalizers"] = json!([finalizer]);
    object
}

fn uid(text: &str) -> Uid {
    Uid::new(text)
}

fn check(names: &[&str]) -> Vec<Wake> {
    names.iter().map(|name| Wake::Check(uid(name))).collect()
}

impl World {
    fn put(&mut self, object: &Value) -> Vec<Wake> {
        self.put_as(self.maps, object)
    }

    fn put_as(&mut self, resource: ResourceId, object: &Value) -> Vec<Wake> {
        let mut wakes = self.graph.put(resource, &Metadata::decode(&object.to_string()).unwrap());
        wakes.sort();
        wakes
    }

    fn must_read(&self, name: &str) -> bool {
        matches!(self.graph.next_step(&uid(name)), NextStep::Read(_))
    }

    fn is_left(&self, name: &str) -> bool {
        self.graph.next_step(&uid(name)) == NextStep::Nothing
    }
}

const UUID: &str = "00000000-0000-4000-8000-000000000001";

#[test]
fn the_dependents_of_an_object_that_was_deleted_are_deleted_as_they_were_seen() {
    let mut world = filled();
    world.put(&object("owner", &[]));
    let mut dependent = object("a", &[to("owner")]);
    dependent["metadata"]["uid"] = UUID.into();
    assert_eq!(world.put(&dependent), []);
    assert!(world.is_left(UUID));
    assert_eq!(world.graph.remove(&uid("owner")), check(&[UUID]));
    let address = Address { resource: world.maps, namespace: "shop".into(), name: "a".into() };
    let next_step = NextStep::Delete { address, version: 7, policy: Policy::Background };
    assert_eq!(world.graph.next_step(&uid(UUID)), next_step);
    world.graph.remove(&uid(UUID));
    assert_eq!(world.graph.slots.len(), 0, "nothing is kept of them");
}

#[test]
fn an_owner_that_was_never_seen_is_asked_for_after_a_while() {
    let mut world = filled();
    assert_eq!(world.put(&object("a", &[to("owner")])), [Wake::CheckLater(uid("a"))]);
    assert!(world.must_read("a"));
    assert_eq!(world.put(&object("owner", &[])), []);
    assert!(world.is_left("a"));
}

#[test]
fn an_owner_that_its_first_list_may_still_show_is_waited_for() {
    let mut world = filled();
    let (pods, _) = world.graph.add_resource(&resource("Pod", "pods", true)).unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"});
    assert_eq!(world.put(&object("a", std::slice::from_ref(&pod))), []);
    assert_eq!(world.graph.end_list(pods), check(&["a"]));
    assert_eq!(world.put(&object("b", &[pod])), [Wake::CheckLater(uid("b"))]);
}

#[test]
fn every_list_of_a_kind_wakes_the_dependents_of_its_owners_that_no_list_has_shown() {
    let mut world = filled();
    let (pods, _) = world.graph.add_resource(&resource("Pod", "pods", true)).unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"});
    world.put(&object("a", std::slice::from_ref(&pod)));
    assert_eq!(world.graph.stop_waiting_for(pods), check(&["a"]));
    // It was asked for and found. Its deletion falls into the time without a watch.
    for _ in 0..2 {
        world.graph.begin_list(pods);
        assert_eq!(world.graph.end_list(pods), check(&["a"]));
    }
    world.graph.begin_list(pods);
    world.put_as(pods, &object("p", &[]));
    assert_eq!(world.graph.end_list(pods), [], "it is seen");
}

#[test]
fn an_owner_whose_kind_is_served_after_its_dependents_were_seen_belongs_to_the_lists_of_that_kind() {
    let mut world = filled();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"});
    let mut wrong = pod.clone();
    wrong["kind"] = "ConfigMap".into();
    world.put(&object("a", std::slice::from_ref(&pod)));
    world.put(&object("b", &[wrong]));
    let (pods, wakes) = world.graph.add_resource(&resource("Pod", "pods", true)).unwrap();
    assert_eq!(wakes, check(&["b", "a"]));
    world.graph.stop_waiting_for(pods);
    // The other claim is asked for first, and proved wrong.
    world.graph.expect(&uid("p"), world.maps);
    world.graph.prove_absent(&uid("b"), &uid("p"), true);
    world.graph.expect(&uid("p"), pods);
    assert_eq!(world.graph.unseen(), 1);
    assert!(world.graph.end_list(pods).contains(&Wake::Check(uid("a"))));
    assert_eq!(world.graph.end_list(world.maps), []);
    world.graph.remove(&uid("p"));
    world.graph.expect(&uid("p"), pods);
    assert_eq!(world.graph.unseen(), 0, "its deletion was seen");
}

#[test]
fn a_kind_that_is_served_again_wakes_what_refers_to_it() {
    let mut world = filled();
    let thing = json!({"apiVersion": "x.io/v1", "kind": "Thing", "name": "t", "uid": "t"});
    assert_eq!(world.put(&object("a", &[thing])), [Wake::CheckLater(uid("a"))]);
    let things = GraphResource { group: "x.io".into(), ..resource("Thing", "things", true) };
    let (things, wakes) = world.graph.add_resource(&things).unwrap();
    assert_eq!(wakes, check(&["a"]));
    let mut thing = object("t", &[]);
    assert_eq!(world.put_as(things, &thing), []);
    assert!(world.is_left("a"));
    world.graph.remove_resource(things);
    assert!(world.must_read("a"), "that a kind has gone proves nothing");
    thing["metadata"]["name"] = "u".into();
    assert!(world.graph.add_resource(&resource("Thing", "things", true)).is_some());
}

#[test]
fn what_a_list_does_not_show_is_asked_for_and_not_taken_for_deleted() {
    let mut world = filled();
    world.put(&object("owner", &[]));
    world.put(&object("a", &[to("owner")]));
    world.put(&object("alone", &[]));
    world.graph.begin_list(world.maps);
    assert_eq!(world.put(&object("a", &[to("owner")])), []);
    assert_eq!(world.graph.end_list(world.maps), check(&["a"]));
    assert!(world.must_read("a"));
    assert_eq!(world.graph.len(), 1);
}

#[test]
fn an_object_of_another_kind_name_or_namespace_is_not_the_owner_that_a_reference_means() {
    let mut world = filled();
    world.put(&object("owner", &[]));
    for (at, (field, value)) in
        [("kind", "Secret"), ("name", "other"), ("apiVersion", "x.io/v1")].iter().enumerate()
    {
        let mut reference = to("owner");
        reference[field] = (*value).into();
        let name = format!("a{at}");
        assert_eq!(world.put(&object(&name, &[reference])), check(&[&name]), "{field}");
        assert!(world.must_read(&name));
    }
    let mut elsewhere = object("b", &[to("owner")]);
    elsewhere["metadata"]["namespace"] = "other".into();
    assert_eq!(world.put(&elsewhere), check(&["b"]));
    let wire = elsewhere.to_string();
    let elsewhere = Metadata::decode(&wire).unwrap();
    assert!(world.graph.is_in_another_namespace("other", &elsewhere.owners[0]));
    assert!(!world.graph.is_in_another_namespace("shop", &elsewhere.owners[0]));
    let mut version = to("owner");
    version["apiVersion"] = "v2".into();
    assert_eq!(world.put(&object("c", &[version])), [], "another version is the same object");
}

#[test]
fn a_cluster_scoped_owner_is_in_reach_of_every_namespace() {
    let mut world = filled();
    let node = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"});
    world.put(&object("a", std::slice::from_ref(&node)));
    let mut elsewhere = object("b", &[node]);
    elsewhere["metadata"]["namespace"] = "other".into();
    world.put(&elsewhere);
    let node = json!({"metadata": {"name": "n", "uid": "n", "resourceVersion": "1"}});
    assert_eq!(world.put_as(world.nodes, &node), []);
    assert!(world.is_left("a") && world.is_left("b"));
}

#[test]
fn an_owner_that_turns_out_to_be_another_has_its_dependents_looked_at() {
    let mut world = filled();
    let mut wrong = to("owner");
    wrong["kind"] = "Secret".into();
    world.put(&object("wrong", &[wrong]));
    world.put(&object("right", &[to("owner")]));
    assert_eq!(world.put(&object("owner", &[])), check(&["wrong"]));
    assert!(world.is_left("right") && world.must_read("wrong"));
}

#[test]
fn an_answer_of_the_api_server_proves_only_the_absence_of_what_was_asked_for() {
    let mut world = filled();
    let mut secret = to("owner");
    secret["kind"] = "Secret".into();
    world.put(&object("a", &[to("owner")]));
    world.put(&object("b", &[to("owner")]));
    world.put(&object("c", &[secret]));
    let mut elsewhere = object("d", &[to("owner")]);
    elsewhere["metadata"]["namespace"] = "other".into();
    world.put(&elsewhere);
    let woken = world.graph.prove_absent(&uid("a"), &uid("owner"), true);
    assert!(woken.contains(&Wake::Check(uid("c"))), "it may wait for a list of Secrets");
    let known = |world: &World, name: &str| {
        let slot = |name: &str| world.graph.find(&uid(name)).unwrap();
        world.graph.known(slot(name), slot("owner"))
    };
    assert_eq!([known(&world, "a"), known(&world, "b")], [Known::Absent; 2]);
    assert_eq!([known(&world, "c"), known(&world, "d")], [Known::Unknown; 2]);
    world.graph.prove_absent(&uid("c"), &uid("owner"), true);
    assert_eq!([known(&world, "a"), known(&world, "c")], [Known::Unknown, Known::Absent]);
    assert_eq!(
        world.put(&object("owner", &[])),
        check(&["c", "d"]),
        "it was there all the time, or is again"
    );
    assert!(world.is_left("a") && world.is_left("b"));
}

#[test]
fn an_object_in_foreground_deletion_waits_for_what_blocks_it() {
    let mut world = filled();
    world.put(&object("owner", &[]));
    world.put(&object("a", &[blocking("owner")]));
    world.put(&object("b", &[to("owner")]));
    let owner = deleting(object("owner", &[]), FOREGROUND);
    assert_eq!(world.put(&owner), check(&["a", "b", "owner"]));
    assert_eq!(world.put(&owner), [], "once");
    let is_blocked = |world: &World| match world.graph.next_step(&uid("owner")) {
        NextStep::Foreground { is_blocked, address, .. } => {
            assert_eq!(address.name, "owner");
            is_blocked
        }
        other => panic!("{other:?}"),
    };
    assert!(is_blocked(&world) && world.must_read("b"));
    assert_eq!(world.put(&object("a", &[to("owner")])), check(&["a", "owner"]), "it blocks no more");
    assert!(!is_blocked(&world));
    assert_eq!(world.graph.remove(&uid("b")), check(&["owner"]));
    assert_eq!(world.put(&object("late", &[blocking("owner")])), check(&["late"]));
    assert!(is_blocked(&world));
}

#[test]
fn a_policy_that_a_second_deletion_brings_back_counts_again() {
    let mut world = filled();
    let orphaning = deleting(object("owner", &[]), ORPHAN);
    assert_eq!(world.put(&orphaning), [Wake::Orphan(uid("owner"))]);
    assert_eq!(world.graph.orphaning(&uid("owner")).unwrap().name, "owner");
    assert_eq!(world.put(&deleting(object("owner", &[]), "example.com/keep")), []);
    assert_eq!(world.graph.orphaning(&uid("owner")), None);
    assert_eq!(world.put(&orphaning), [Wake::Orphan(uid("owner"))]);
}

#[test]
fn objects_that_wait_for_each_other_are_found_and_others_are_not() {
    let mut world = filled();
    let ring = [("a", "b"), ("b", "c"), ("c", "a")];
    for (name, owner) in ring {
        world.put(&deleting(object(name, &[blocking(owner), blocking("outside")]), FOREGROUND));
    }
    world.put(&deleting(object("outside", &[]), FOREGROUND));
    world.put(&deleting(object("tail", &[blocking("outside")]), FOREGROUND));
    world.put(&deleting(object("leaf", &[blocking("tail")]), "example.com/keep"));
    let circle = |name: &str| match world.graph.next_step(&uid(name)) {
        NextStep::Foreground { circle, .. } => circle,
        other => panic!("{other:?}"),
    };
    for (name, owner) in ring {
        assert_eq!(circle(name), [uid(owner)]);
    }
    assert_eq!(circle("tail"), []);
}

#[test]
fn a_reference_to_a_kind_that_was_not_served_is_looked_at_once_it_is_whoever_has_its_uid() {
    let mut world = filled();
    let thing = json!({"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "owner"});
    // An object that exists, and one that was asked for as another kind first.
    world.put(&object("owner", &[]));
    world.put(&object("a", std::slice::from_ref(&thing)));
    let other = json!({"apiVersion": "v1", "kind": "Thing", "name": "t", "uid": "nobody"});
    world.put(&object("b", &[to("nobody")]));
    world.put(&object("c", &[other]));
    world.graph.expect(&uid("nobody"), world.maps);
    let (_, mut wakes) = world.graph.add_resource(&resource("Thing", "things", true)).unwrap();
    wakes.sort();
    assert_eq!(wakes, check(&["a", "b", "c"]));
}

#[test]
fn an_owner_whose_watch_has_ended_since_its_deletion_is_asked_for_again() {
    let mut world = filled();
    world.put(&object("owner", &[]));
    world.put(&object("a", &[to("owner")]));
    world.graph.remove(&uid("owner"));
    let of = |world: &World| {
        world.graph.known(world.graph.find(&uid("a")).unwrap(), world.graph.find(&uid("owner")).unwrap())
    };
    assert_eq!(of(&world), Known::Absent);
    world.graph.doubt(world.nodes);
    assert_eq!(of(&world), Known::Absent, "another watch has ended");
    world.graph.doubt(world.maps);
    assert_eq!(of(&world), Known::Unknown);
    assert_eq!(world.graph.unseen(), 1);
    world.graph.prove_absent(&uid("a"), &uid("owner"), true);
    assert_eq!(of(&world), Known::Absent);
    world.graph.doubt(world.maps);
    assert_eq!(of(&world), Known::Unknown, "an answer is no older than a watch");
    world.put(&object("owner", &[]));
    assert_eq!((of(&world), world.graph.unseen()), (Known::Solid, 0));
    world.graph.doubt(world.maps);
    assert_eq!(of(&world), Known::Solid);
}

#[test]
fn a_deletion_that_was_seen_counts_again_once_its_kind_is_known_to_be_gone() {
    let mut world = filled();
    let (things, _) = world.graph.add_resource(&resource("Thing", "things", true)).unwrap();
    let to_thing = |name: &str| json!({"apiVersion": "v1", "kind": "Thing", "name": name, "uid": name});
    for (owner, dependent) in [("t", "a"), ("u", "b")] {
        world.put_as(things, &object(owner, &[]));
        world.put(&object(dependent, &[to_thing(owner)]));
    }
    let doubted = |world: &World, name: &str, namespace: &str| {
        let json = object("x", &[to_thing(name)]).to_string();
        let metadata = Metadata::decode(&json).unwrap();
        world.graph.doubted(namespace, &metadata.owners[0])
    };
    world.graph.remove(&uid("t"));
    assert_eq!(doubted(&world, "t", "shop"), None, "it is no matter of doubt");
    world.graph.doubt(things);
    assert_eq!(world.graph.remove_resource(things), []);
    assert_eq!((doubted(&world, "t", "shop"), doubted(&world, "t", "other")), (Some(things), None));
    assert_eq!(doubted(&world, "u", "shop"), None, "its deletion was not seen");
    assert_eq!(world.graph.kind_is_gone(things), check(&["a"]));
    let known = |world: &World, dependent: &str, owner: &str| {
        world.graph.known(world.graph.find(&uid(dependent)).unwrap(), world.graph.find(&uid(owner)).unwrap())
    };
    assert_eq!((known(&world, "a", "t"), known(&world, "b", "u")), (Known::Absent, Known::Unknown));
    world.graph.doubt(world.nodes);
    assert_eq!(known(&world, "a", "t"), Known::Unknown, "a restored etcd may have the kind again");
    assert_eq!(world.graph.kind_is_gone(things), check(&["a"]));
    world.put_as(things, &object("t", &[]));
    assert_eq!(doubted(&world, "t", "shop"), None, "it is there again");
}

#[test]
fn an_owner_that_waits_for_an_object_of_a_kind_that_has_gone_is_woken() {
    let mut world = filled();
    let (things, _) = world.graph.add_resource(&resource("Thing", "things", true)).unwrap();
    world.put(&deleting(object("owner", &[]), FOREGROUND));
    world.put_as(things, &object("t", &[blocking("owner")]));
    assert_eq!(world.graph.remove_resource(things), check(&["owner"]));
    assert!(matches!(world.graph.next_step(&uid("owner")), NextStep::Foreground { is_blocked: false, .. }));
}

#[test]
fn what_a_restore_has_undone_is_looked_at_again() {
    let mut world = filled();
    world.put(&object("owner", &[]));
    world.put(&deleting(object("a", &[to("owner")]), "foregroundDeletion"));
    assert_eq!(world.put(&object("a", &[to("owner")])), check(&["a"]), "its deletion has not happened");
    // The graph never saw the writes for these.
    world.put(&deleting(object("waiting", &[]), "foregroundDeletion"));
    world.put(&deleting(object("orphaning", &[]), "orphan"));
    for name in ["a", "waiting", "orphaning"] {
        world.graph.outdate(&uid(name));
    }
    world.graph.begin_list(world.maps);
    assert_eq!(world.put(&object("owner", &[])), []);
    assert_eq!(world.put(&object("a", &[to("owner")])), check(&["a"]));
    assert_eq!(world.put(&deleting(object("waiting", &[]), "foregroundDeletion")), check(&["waiting"]));
    let mut both = check(&["orphaning"]);
    both.push(Wake::Orphan(uid("orphaning")));
    assert_eq!(world.put(&deleting(object("orphaning", &[]), "orphan")), both);
    world.graph.end_list(world.maps);
    world.graph.begin_list(world.maps);
    assert_eq!(world.put(&object("a", &[to("owner")])), [], "once");
}

#[test]
fn what_was_done_and_seen_is_not_looked_at_again() {
    let mut world = filled();
    world.put(&object("a", &[to("one"), to("two")]));
    world.graph.outdate(&uid("a"));
    world.put(&object("a", &[to("two")]));
    world.put(&object("b", &[]));
    world.graph.outdate(&uid("b"));
    world.graph.remove(&uid("b"));
    world.graph.begin_list(world.maps);
    assert_eq!((world.put(&object("a", &[to("two")])), world.put(&object("b", &[]))), (vec![], vec![]));
}

/// The same in sets: what is observed, and what refers to what.
#[derive(Default)]
struct Plain {
    objects: BTreeMap<u8, BTreeMap<u8, bool>>,
    deleted: BTreeSet<u8>,
}

proptest! {
    #[test]
    fn any_history_leaves_the_references_that_the_objects_have(
        steps in prop::collection::vec((0u8..8, prop::collection::btree_map(0u8..8, any::<bool>(), 0..6), 0u8..5), 1..80),
    ) {
        let (mut world, mut plain) = (filled(), Plain::default());
        for (name, owners, action) in steps {
            let text = format!("o{name}");
            if action == 0 {
                world.graph.remove(&uid(&text));
                plain.objects.remove(&name);
                plain.deleted.insert(name);
            } else {
                let references: Vec<Value> = owners
                    .iter()
                    .map(|(owner, blocks)| if *blocks { blocking(&format!("o{owner}")) } else { to(&format!("o{owner}")) })
                    .collect();
                world.put(&object(&text, &references));
                plain.objects.insert(name, owners);
                plain.deleted.remove(&name);
            }
            let referred: BTreeSet<u8> = plain.objects.values().flat_map(BTreeMap::keys).copied().collect();
            for name in 0..8 {
                let dependents: BTreeSet<u8> =
                    plain.objects.iter().filter(|(_, owners)| owners.contains_key(&name)).map(|(at, _)| *at).collect();
                let slot = world.graph.find(&uid(&format!("o{name}")));
                prop_assert_eq!(slot.is_some(), plain.objects.contains_key(&name) || referred.contains(&name));
                let Some(slot) = slot else { continue };
                let found: BTreeSet<u8> = world.graph.dependents_of(slot)
                    .map(|at| world.graph.uid_of(at).to_string()[1..].parse().unwrap())
                    .collect();
                prop_assert_eq!(&found, &dependents);
                prop_assert_eq!(world.graph.dependents_of(slot).count(), dependents.len());
                let blocked = plain.objects.values().filter(|owners| owners.get(&name) == Some(&true)).count();
                let counted = world.graph.relation_mut(slot).map_or(0, |relation| relation.blocking);
                prop_assert_eq!(counted as usize, blocked);
                let is_proved = plain.deleted.contains(&name) && world.graph.records[slot].is(Flag::Deleted);
                let is_seen = plain.objects.contains_key(&name);
                prop_assert_eq!(world.graph.unseen.contains(&slot), !(is_seen || is_proved));
            }
            prop_assert_eq!(world.graph.len(), plain.objects.len());
        }
        for name in 0..8 {
            world.graph.remove(&uid(&format!("o{name}")));
        }
        prop_assert_eq!(world.graph.slots.len(), 0);
    }
}
