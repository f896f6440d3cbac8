//! The change of a Deployment, StatefulSet or DaemonSet, and what the server says to it.

use serde_json::{Value, json};
use windlass::model::{ObjectKey, Pod, Record as _};

use super::{change, file};
use crate::api::{Api, ApiError};
use crate::cli::PlanArgs;
use crate::exit::CommandError;
use crate::revisions;
use crate::rollout::Workload;
use crate::target::Kind;
use crate::write;

/// The change of an object, and what the server says to it.
pub(super) struct Change {
    pub(super) wanted: Value,
    /// The changes, in words.
    pub(super) said: Vec<String>,
    /// A pod of the new template, as the server would admit it.
    pub(super) pod: Value,
    pub(super) checked: Vec<&'static str>,
    pub(super) unjudged: Vec<String>,
    /// Why the server refuses each pod of the new template.
    pub(super) refusal: Option<String>,
}

impl Change {
    /// A change of which nothing is judged yet.
    pub(super) fn of(wanted: Value, said: Vec<String>, unjudged: Vec<String>) -> Self {
        Change { wanted, said, pod: Value::Null, checked: Vec::new(), unjudged, refusal: None }
    }
}

/// The meaning of an answer to a dry run.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The server refuses the object: whoever creates it is refused, too.
    Refused,
    /// The answer is not about the object: a right is missing, the server is busy, a webhook takes no part in dry runs.
    NotJudged,
    /// A quota is used up at the moment: what it leaves is judged step by step.
    QuotaUsedUp,
}

/// Reads an answer to the dry run of an object of this resource.
fn verdict(error: &ApiError, resource: &str) -> Verdict {
    let text = error.to_string();
    // `pods is forbidden: User …` for one that has no name yet, `deployments.apps "web" is forbidden: User …`.
    let lacks_right = || {
        let before = text.split(" is forbidden: User ").next().filter(|before| before.len() < text.len());
        let before = before.and_then(|before| before.rsplit(": ").next()).unwrap_or_default();
        before.split(' ').next() == Some(resource)
    };
    match error.code() {
        None | Some(401 | 404 | 408 | 409 | 429 | 502..=504) => Verdict::NotJudged,
        // The authorizer names the user; admission names the object.
        Some(403) if lacks_right() => Verdict::NotJudged,
        Some(403) if text.contains("exceeded quota: ") => Verdict::QuotaUsedUp,
        // In the words of upstream: `admission webhook "x" does not support dry run`.
        Some(400) if text.contains("does not support dry run") => Verdict::NotJudged,
        Some(_) => Verdict::Refused,
    }
}

/// Whether an answer says nothing about the object.
pub(super) fn is_not_judged(error: &ApiError, resource: &str) -> bool {
    verdict(error, resource) == Verdict::NotJudged
}

pub(super) async fn change_of(
    api: &Api,
    args: &PlanArgs,
    key: &ObjectKey,
    file: Option<Value>,
    workload: &Workload,
) -> Result<Change, CommandError> {
    let kind = workload.kind;
    let (object, title) = (format!("{} {key}", kind.singular()), the(kind));
    let resource = format!("{}.apps", kind.resource().plural);
    let (now, is_new) = (&workload.object, workload.object.is_null());
    let history = match kind {
        Kind::StatefulSet | Kind::DaemonSet => {
            revisions::of_controller_revisions(kind, now, &workload.revisions, None)
        }
        _ => revisions::of(now, &workload.replica_sets),
    };
    let (mut wanted, mut said) = (now.clone(), Vec::new());
    match &file {
        Some(file) if is_new => {
            said.push("it is created".to_owned());
            wanted = file.clone();
            wanted["metadata"]["namespace"] = json!(key.namespace);
        }
        Some(file) if args.server_dry_run => wanted["spec"] = file::spec_from(file, now),
        Some(file) => file::overlay(&mut wanted["spec"], &file["spec"]),
        None => {}
    }
    let flags = |wanted: &mut Value| {
        let applied = change::apply(kind, wanted, args, &history, api.now());
        applied.map_err(|error| CommandError::Argument(format!("{object}: {error}")))
    };
    let mut of_flags = flags(&mut wanted)?;
    let mut change = Change::of(wanted, said, workload.unreadable.clone());
    let mut is_judged = false;
    if change.wanted["spec"] != now["spec"] && args.server_dry_run {
        match try_object(api, kind, &object, now, &change.wanted).await {
            Ok(judged) => {
                (change.wanted, is_judged) = (judged, true);
                change.checked.push(title);
            }
            // The namespace of a new one may be made only with it.
            Err(error) if error.code() == Some(404) && !is_new => return Err(error.into()),
            Err(error) if is_not_judged(&error, &resource) => {
                change.unjudged.push(format!("{title} by the server ({error})"));
                if let Some(file) = file.as_ref().filter(|_| !is_new) {
                    // Without the server's defaults, what the file leaves out cannot be told from what it removes.
                    change.wanted = now.clone();
                    file::overlay(&mut change.wanted["spec"], &file["spec"]);
                    of_flags = flags(&mut change.wanted)?;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    let is_changed = change.wanted["spec"] != now["spec"];
    if is_changed && args.server_dry_run {
        try_pod(api, &key.namespace, &mut change).await;
    }
    if is_changed {
        if let (Some(_), false) = (&file, is_new) {
            change.said.push(format!("-f {}", args.filename.as_deref().unwrap_or_default()));
        }
        change.said.append(&mut of_flags);
    }
    let wanted = &mut change.wanted;
    if change.pod.is_null() {
        change.pod = json!({"spec": wanted["spec"]["template"]["spec"]});
    }
    if !is_judged && is_changed {
        let generation = now["metadata"]["generation"].as_i64().unwrap_or(0);
        wanted["metadata"]["generation"] = generation.saturating_add(1).into();
    }
    // Fields that a new object does not have before it is stored.
    for (field, value) in [("uid", "preview"), ("resourceVersion", "0")] {
        if !wanted["metadata"][field].is_string() {
            wanted["metadata"][field] = value.into();
        }
    }
    Ok(change)
}

/// A kind in the list of what was checked.
fn the(kind: Kind) -> &'static str {
    match kind {
        Kind::StatefulSet => "the StatefulSet",
        Kind::DaemonSet => "the DaemonSet",
        _ => "the Deployment",
    }
}

async fn try_object(
    api: &Api,
    kind: Kind,
    what: &str,
    now: &Value,
    wanted: &Value,
) -> Result<Value, ApiError> {
    let resource = kind.resource();
    if now.is_null() {
        let namespace = wanted["metadata"]["namespace"].as_str();
        return write::try_create(api, what, &resource.path(namespace), wanted).await;
    }
    let key = |field: &str| now["metadata"][field].as_str().unwrap_or_default();
    let path = resource.path_of(&ObjectKey::new(key("namespace"), key("name")));
    let operations = vec![json!({"op": "replace", "path": "/spec", "value": wanted["spec"]})];
    write::try_replace(api, what, &path, now, operations).await
}

/// Lets the server judge one pod of the new template.
pub(super) async fn try_pod(api: &Api, namespace: &str, change: &mut Change) {
    match create_pod(api, namespace, &change.wanted["spec"]).await {
        Ok(judged) => {
            change.pod = judged;
            change.checked.push("one pod");
        }
        Err(error) => match verdict(&error, "pods") {
            Verdict::Refused => {
                change.refusal = Some(reason(&error));
                change.checked.push("one pod");
            }
            Verdict::QuotaUsedUp => {
                change.unjudged.push(format!("a pod by the server: {}", reason(&error)));
            }
            Verdict::NotJudged => change.unjudged.push(format!("a pod by the server ({error})")),
        },
    }
}

/// The server's own words, without the name that it made up for the pod.
fn reason(error: &ApiError) -> String {
    let text = match error {
        ApiError::Refused { message, .. } | ApiError::Unanswered { message, .. } => message.as_str(),
    };
    let after = |start: &str, end: &str| Some(text.strip_prefix(start)?.split_once(end)?.1);
    let why = after("pods \"windlass-plan-", " is forbidden: ")
        .or_else(|| after("Pod \"windlass-plan-", " is invalid: "));
    why.unwrap_or(text).to_owned()
}

/// A dry run of one pod of the template of an object with this spec.
async fn create_pod(api: &Api, namespace: &str, spec: &Value) -> Result<Value, ApiError> {
    let template = &spec["template"];
    let mut body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "windlass-plan-"},
                          "spec": template["spec"]});
    add_claims(&mut body["spec"], &spec["volumeClaimTemplates"]);
    for field in ["labels", "annotations"] {
        if !template["metadata"][field].is_null() {
            body["metadata"][field] = template["metadata"][field].clone();
        }
    }
    write::try_create(api, "a pod of the new template", &Pod::RESOURCE.path(Some(namespace)), &body).await
}

/// Gives a pod the volumes that a StatefulSet gives it for its claims; its containers may mount them.
fn add_claims(pod: &mut Value, claim_templates: &Value) {
    let names = claim_templates.as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(|template| template["metadata"]["name"].as_str()).collect();
    if names.is_empty() {
        return;
    }
    let others = pod["volumes"].as_array().cloned().unwrap_or_default().into_iter();
    let others = others.filter(|volume| volume["name"].as_str().is_none_or(|name| !names.contains(&name)));
    let claim = |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-windlass-plan")}});
    pod["volumes"] = names.iter().map(claim).chain(others).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> ApiError {
        let (what, message) = ("cannot create a pod of the new template".to_owned(), message.to_owned());
        ApiError::Refused { what, code, reason: String::new(), message, causes: Vec::new() }
    }

    #[test]
    fn what_refuses_the_pod_is_told_from_what_refuses_the_user() {
        let webhook = "admission webhook \"policy.example.com\" denied the request: no latest tag";
        for (code, message, expected) in [
            (
                403,
                "pods \"windlass-plan-x\" is forbidden: violates PodSecurity \"restricted:latest\": …",
                Verdict::Refused,
            ),
            (
                403,
                "pods \"windlass-plan-x\" is forbidden: minimum cpu usage per Container is 50m, but request is 1m",
                Verdict::Refused,
            ),
            (
                403,
                "pods \"windlass-plan-x\" is forbidden: failed quota: q: must specify cpu for: c",
                Verdict::Refused,
            ),
            (403, webhook, Verdict::Refused),
            (400, webhook, Verdict::Refused),
            (422, "Pod \"windlass-plan-x\" is invalid: spec.priorityClassName", Verdict::Refused),
            (500, "Internal error occurred: failed calling webhook \"policy.example.com\"", Verdict::Refused),
            (
                403,
                "pods \"windlass-plan-x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3",
                Verdict::QuotaUsedUp,
            ),
            (
                403,
                "pods is forbidden: User \"jane\" cannot create resource \"pods\" in API group \"\" in the namespace \"shop\"",
                Verdict::NotJudged,
            ),
            (400, "admission webhook \"audit.example.com\" does not support dry run", Verdict::NotJudged),
            (404, "namespaces \"shop\" not found", Verdict::NotJudged),
            (429, "too many requests", Verdict::NotJudged),
        ] {
            assert_eq!(verdict(&refused(code, message), "pods"), expected, "{code} {message}");
        }
        let unnamed = "deployments.apps \"web\" is forbidden: User \"jane\" cannot patch resource \"deployments\" in API \
                       group \"apps\" in the namespace \"shop\"";
        assert_eq!(verdict(&refused(403, unnamed), "deployments.apps"), Verdict::NotJudged);
        let policy =
            "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no";
        assert_eq!(verdict(&refused(403, policy), "deployments.apps"), Verdict::Refused);
    }

    #[test]
    fn a_pod_of_a_statefulset_has_the_volumes_of_its_claims_instead_of_those_of_the_template() {
        let mut pod = json!({"volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]});
        add_claims(&mut pod, &json!([{"metadata": {"name": "data"}}]));
        let names: Vec<&Value> = pod["volumes"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["data", "tmp"]);
        assert_eq!(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-windlass-plan");
        let mut plain = json!({"containers": []});
        add_claims(&mut plain, &Value::Null);
        assert_eq!(plain, json!({"containers": []}));
    }

    #[test]
    fn a_reason_does_not_name_the_pod_that_was_never_there() {
        let quota = refused(
            403,
            "pods \"windlass-plan-x7k2q\" is forbidden: failed quota: q: must specify cpu for: c",
        );
        assert_eq!(reason(&quota), "failed quota: q: must specify cpu for: c");
        let invalid = refused(422, "Pod \"windlass-plan-x7k2q\" is invalid: spec.x: Invalid value: 1");
        assert_eq!(reason(&invalid), "spec.x: Invalid value: 1");
        assert_eq!(reason(&refused(400, "denied")), "denied");
    }
}
