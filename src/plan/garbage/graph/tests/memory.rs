//! The memory that an object takes, and the memory that remains when it is gone.

use super::*;

fn uuid(n: u64) -> String {
    Uid::Uuid(u128::from(n).to_be_bytes()).to_string()
}

#[test]
fn an_object_takes_at_most_48_bytes_and_an_owned_one_120() {
    // Where the table has just grown it has the most room to spare.
    for count in [28_700, 57_400] {
        let mut plain = filled();
        let mut object = object("config-7f9c4d5b6-x2xlq", &[]);
        for n in 0..count {
            object["metadata"]["uid"] = uuid(n).into();
            plain.put(&object);
        }
        let bytes = plain.graph.bytes() as u64;
        assert!(bytes <= 48 * count, "{} bytes", bytes / count);

        let mut owned = filled();
        object["metadata"]["ownerReferences"] = json!([blocking("config-7f9c4d5b6-x2xlq")]);
        for n in 0..count {
            object["metadata"]["name"] = format!("pod-with-a-name-of-35-bytes-{n:07}").into();
            object["metadata"]["ownerReferences"][0]["uid"] = uuid(1_000_000 + n % 100).into();
            object["metadata"]["uid"] = uuid(n).into();
            owned.put(&object);
        }
        let bytes = owned.graph.bytes() as u64;
        assert!(bytes <= 120 * count, "{} bytes", bytes / count);
    }
}

#[test]
fn ten_thousand_references_on_one_object_are_kept_and_dropped() {
    let mut world = filled();
    let owners: Vec<Value> = (0..10_000).map(|n| blocking(&format!("owner-{n}"))).collect();
    assert_eq!(world.put(&object("a", &owners)), [Wake::CheckLater(uid("a"))]);
    assert_eq!(world.graph.unseen(), 10_000);
    world.put(&object("a", &owners[5000..5001]));
    assert_eq!(world.graph.unseen(), 1);
    world.graph.remove(&uid("a"));
    assert_eq!((world.graph.slots.len(), world.graph.claims.len(), world.graph.other_uids.len()), (0, 0, 0));
}

#[test]
fn a_further_reference_takes_at_most_400_bytes() {
    let mut world = filled();
    let to = |n: u64| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("owner-{n}"), "uid": uuid(n)});
    world.put(&object("a", &(0..10_000).map(to).collect::<Vec<_>>()));
    let bytes = world.graph.bytes();
    assert!(bytes <= 400 * 10_000, "{} bytes", bytes / 10_000);
}
