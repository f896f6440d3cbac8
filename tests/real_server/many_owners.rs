//! The admission policies of the garbage collector on objects with more owners than anybody gives them. The API server
//! bounds the cost of an expression, so that a comparison of each reference with each other ends early.

use http::Method;
use serde_json::{Value, json};
use windlass_testkit::apiserver::{ApiServer, DAEMON, on_a_real_server};
use windlass_testkit::rights;
use windlass_testkit::user::send;

use super::garbage::grant;

fn owner(number: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("owner-{number}"), "blockOwnerDeletion": true,
           "uid": uuid(number)})
}

/// The same digits at each run, spread as those of a random UID are.
fn uuid(number: usize) -> String {
    let spread = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{:08x}-{:04x}-4000-8000-{number:012x}", spread >> 32, (spread >> 16) & 0xffff)
}

fn references(owners: &[Value]) -> Value {
    json!({"metadata": {"ownerReferences": owners}})
}

pub(crate) fn the_policies_judge_changes_of_thousands_of_references() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start_with(folder, &[DAEMON]).await;
        let client = server.client().await;
        grant(&server, &client).await;
        for count in [1_000, 5_000] {
            let owners: Vec<Value> = (0..count).map(owner).collect();
            for collection in [
                "/api/v1/namespaces/default/configmaps",
                // This one has rules of its own, in the other policy.
                "/apis/apps/v1/namespaces/default/controllerrevisions",
            ] {
                let mut body = references(&owners);
                body["metadata"]["name"] = format!("of-{count}").into();
                (body["revision"], body["data"]) = (1.into(), json!({"a": "b"}));
                send(&client, Method::POST, collection, &body).await.unwrap();
                let path = format!("{collection}/of-{count}");
                let mut added = owners.clone();
                // The plugin that judges who may block an owner would refuse it otherwise.
                let mut another = owner(count);
                another["blockOwnerDeletion"] = false.into();
                added.push(another.clone());
                let mut exchanged = owners.clone();
                exchanged[count / 2] = another.clone();
                let mut renamed = owners.clone();
                renamed[count - 1]["name"] = "another".into();
                let mut free = owners.clone();
                free[count / 2]["blockOwnerDeletion"] = false.into();
                let without_one = [&free[..2], &free[3..]].concat();
                let half: Vec<Value> = free.iter().skip(1).step_by(2).cloned().collect();
                let half_and_another = [&half[..], &[another]].concat();
                for (what, owners, is_allowed) in [
                    ("adds an owner", &added[..], false),
                    ("exchanges an owner", &exchanged[..], false),
                    ("renames an owner", &renamed[..], false),
                    ("blocks one owner no more", &free[..], true),
                    ("removes one reference", &without_one[..], true),
                    ("removes half of them", &half[..], true),
                    ("adds an owner to the others", &half_and_another[..], false),
                    ("leaves one", &half[..1], true),
                    ("removes the last one", &[], true),
                ] {
                    let (code, message) =
                        rights::try_as_the_daemon(&server, Method::PATCH, &path, &references(owners)).await;
                    let what = format!("{what}: {path}: {code} {message}");
                    match is_allowed {
                        true => assert_eq!(code, 200, "{what}"),
                        false => assert!(code == 403 && message.contains("only "), "{what}"),
                    }
                    assert!(!message.contains("cost") && !message.contains("budget"), "{what}");
                }
            }
        }
    });
}
