//! `/log` of a pod, and what needs a process: `/exec`, `/attach`, `/portforward` and their like. No container runs here: its log says when it started and ended, as the
//! status has it, and the annotation [`LINES`] adds lines. For the others there is no process.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::reply::Reply;
use crate::kinds::Subresource;
use crate::object::text;
use crate::params::LogOptions;
use crate::request::Request;
use crate::server::Server;
use crate::status::Failure;
use crate::validate::FieldError;

/// The annotation of a pod with the lines that its containers print once they have started.
const LINES: &str = "/metadata/annotations/windlass.dev~1pod-log";

/// The log of a container.
pub(super) fn log(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let object = server.store.get(request.kind().storage(), &request.key());
    let object = object.ok_or_else(|| Failure::not_found(request.kind(), &request.place.name))?;
    let pod = object.peek();
    let options = &request.params.log;
    check(options, &request.place.name)?;
    let container = container(&pod, &options.container, &request.place.name)?;
    if text(&pod, "/spec/nodeName").is_empty() {
        // There is no kubelet to ask.
        return Ok(Reply { code: 204, ..Reply::plain(String::new()) });
    }
    let statuses = ["containerStatuses", "initContainerStatuses"].map(|list| &pod["status"][list]);
    let mut statuses = statuses.into_iter().filter_map(Value::as_array).flatten();
    let status = statuses.find(|status| status["name"] == container);
    let state = |field| status.map_or(&Value::Null, |status| &status[field]);
    let is_of = |why: &str| {
        let pod = &request.place.name;
        Failure::bad_request(format!("container \"{container}\" in pod \"{pod}\" {why}"))
    };
    let run = match (options.previous, state("state"), state("lastState")) {
        (true, _, last) if last["terminated"].is_object() => &last["terminated"],
        (true, ..) => {
            let (pod, why) = (&request.place.name, "not found");
            let what = format!("previous terminated container \"{container}\" in pod \"{pod}\" {why}");
            return Err(Failure::bad_request(what));
        }
        (false, now, _) if now["running"].is_object() => &now["running"],
        (false, now, _) if now["terminated"].is_object() => &now["terminated"],
        (false, _, last) if last["terminated"].is_object() => &last["terminated"],
        (false, now, _) => {
            let reason = Some(text(now, "/waiting/reason")).filter(|reason| !reason.is_empty());
            let reason = reason.unwrap_or("ContainerCreating");
            return Err(is_of(&format!("is waiting to start: {reason}")));
        }
    };
    let (start, end) = (text(run, "/startedAt"), text(run, "/finishedAt"));
    let mut lines = vec![(start, "started (simulated: no process runs here)".to_owned())];
    lines.extend(text(&pod, LINES).lines().map(|line| (start, line.to_owned())));
    if !end.is_empty() {
        lines.push((end, format!("ended with exit code {}", run["exitCode"])));
    }
    let first = options.tail.map_or(0, |tail| lines.len().saturating_sub(tail));
    let since =
        options.since_seconds.map(|seconds| (server.options.now)() - SignedDuration::from_secs(seconds));
    let since = since.or(options.since_time);
    let is_new = |time: &str| since.is_none_or(|since| time.parse().is_ok_and(|at: Timestamp| at >= since));
    let shown = lines.into_iter().skip(first).filter(|(time, _)| is_new(time));
    let shown = shown.map(|(time, line)| match options.timestamps {
        true => format!("{time} {line}\n"),
        false => format!("{line}\n"),
    });
    let shown = shown.collect::<String>();
    let most = options.limit_bytes.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or_default());
    let end = shown.floor_char_boundary(most);
    Ok(Reply::plain(shown.get(..end).unwrap_or_default().to_owned()))
}

/// Options are amounts of something.
fn check(options: &LogOptions, pod: &str) -> Result<(), Failure> {
    for (field, amount) in [("sinceSeconds", options.since_seconds), ("limitBytes", options.limit_bytes)] {
        if let Some(amount) = amount.filter(|amount| *amount <= 0) {
            let error = FieldError {
                field: field.to_owned(),
                reason: "FieldValueInvalid",
                detail: format!("Invalid value: {amount}: must be greater than 0"),
            };
            return Err(Failure::invalid_as("PodLogOptions", "", pod, &[error]));
        }
    }
    Ok(())
}

/// The container that a request means.
fn container(pod: &Value, asked: &str, name: &str) -> Result<String, Failure> {
    let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array());
    let [first, main] =
        lists.map(|list| list.into_iter().flatten().map(|one| text(one, "/name")).collect::<Vec<_>>());
    match (asked, main.as_slice()) {
        ("", [only]) => Ok((*only).to_owned()),
        ("", _) => {
            let init = if first.is_empty() {
                String::new()
            } else {
                format!(" or one of the init containers: [{}]", first.join(" "))
            };
            let choices = main.join(" ");
            let what = format!(
                "a container name must be specified for pod {name}, choose one of: [{choices}]{init}"
            );
            Err(Failure::bad_request(what))
        }
        (asked, main) if main.contains(&asked) || first.contains(&asked) => Ok(asked.to_owned()),
        (asked, _) => Err(Failure::bad_request(format!("container {asked} is not valid for pod {name}"))),
    }
}

/// Says that there is no process for this.
pub(super) fn refuse(sub: Subresource) -> Failure {
    let what = match sub {
        Subresource::PortForward => "there is no process that listens on a port",
        Subresource::Attach => "there is no process to attach to",
        Subresource::EphemeralContainers => "no container can be added to a pod that runs",
        Subresource::Resize => "the resources of a pod that runs cannot be changed",
        Subresource::Token => {
            return Failure::not_implemented("this API server authenticates nobody, and issues no token");
        }
        _ => "there is no process in which a command could run",
    };
    Failure::simulated(what)
}
