//! `version`: of the plugin and of the API server, and which controller manager leads.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass::model::{ObjectKey, Resource};
use windlass::runtime::request;

use crate::api::Api;
use crate::cli::{Format, GlobalArgs, VersionArgs};
use crate::connection::connect;
use crate::exit::{CommandError, Exit};
use crate::output::Output;
use crate::text::harmless;

const LEASES: Resource =
    Resource { group: "coordination.k8s.io", version: "v1", kind: "Lease", plural: "leases" };

/// The Leases of controller managers, in the namespace that they have by default.
const LEADERS: [&str; 2] = ["windlass", "kube-controller-manager"];

/// A Lease that was not renewed for so long belongs to nobody.
const STALE: SignedDuration = SignedDuration::from_secs(60);

/// Runs `version`. A server that cannot be reached is a note.
///
/// # Errors
/// When the reader of the output is gone.
pub async fn run(global: &GlobalArgs, args: VersionArgs, output: &mut Output) -> Result<Exit, CommandError> {
    let client = windlass::version::version();
    let (mut server, mut leaders, mut unreadable) = (None, Vec::new(), Vec::new());
    if !args.client {
        match connect(global, &|name| std::env::var(name).ok()).await {
            Ok(connection) => {
                let api = Api::new(connection, global.request_timeout);
                match api.send("cannot read the server's version", request::get("/version", &[])).await {
                    Ok(answer) => {
                        server = answer["gitVersion"].as_str().map(harmless);
                        (leaders, unreadable) = find_leaders(&api).await;
                    }
                    Err(error) => output.note(&format!("note: {error}")),
                }
            }
            Err(error) => output.note(&format!("note: {error}")),
        }
    }
    for missing in &unreadable {
        output.note(&format!("note: {missing}: whether a controller manager leads by it is unknown"));
    }
    match args.output {
        Format::Json => {
            let value = json!({"clientVersion": client, "serverVersion": server, "leaders": leaders,
                               "unreadable": unreadable});
            output.line(&crate::text::pretty_json(&value))?;
        }
        Format::Text => {
            output.line(&format!("kubectl windlass {client}"))?;
            if let Some(server) = server {
                output.line(&format!("server {server}"))?;
            }
            for leader in leaders {
                let text = |field: &str| leader[field].as_str().unwrap_or_default().to_owned();
                output.line(&format!("{} is led by {}", text("lease"), text("holder")))?;
            }
        }
    }
    Ok(Exit::Success)
}

/// The controller managers that lead, and which Leases could not be read.
async fn find_leaders(api: &Api) -> (Vec<Value>, Vec<String>) {
    let (mut leaders, mut unreadable) = (Vec::new(), Vec::new());
    for name in LEADERS {
        let path = LEASES.path_of(&ObjectKey::new("kube-system", name));
        match api.get(&format!("the Lease {name}"), &path).await {
            Ok(lease) => {
                let holder = lease.and_then(|lease| holder(&lease, api.now()));
                leaders.extend(holder.map(|holder| json!({"lease": name, "holder": holder})));
            }
            Err(error) => unreadable.push(error.to_string()),
        }
    }
    (leaders, unreadable)
}

/// The holder of a Lease; `None` if nobody has renewed it for a minute.
fn holder(lease: &Value, now: Timestamp) -> Option<String> {
    let renewed: Timestamp = lease["spec"]["renewTime"].as_str()?.parse().ok()?;
    let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
    (now.duration_since(renewed) < STALE).then(|| harmless(holder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_nobody_renews_has_no_holder() {
        let lease =
            |holder: &str| json!({"spec": {"holderIdentity": holder, "renewTime": "2026-01-01T00:00:00.5Z"}});
        let at = |second: i64| Timestamp::from_second(1_767_225_600 + second).unwrap();
        assert_eq!(holder(&lease("a"), at(5)), Some("a".to_owned()));
        assert_eq!(holder(&lease("a"), at(300)), None);
        assert_eq!((holder(&lease(""), at(5)), holder(&json!({}), at(5))), (None, None));
    }
}
