//! The last lines of crashed containers: what a program said before it ended is often the reason.

use serde_json::{Value, json};
use windlass::model::{ObjectKey, Pod, Record as _};

use crate::api::{Api, ApiError};
use crate::rollout::pods::{PodView, SHOWN};
use crate::text::harmless;

/// The most bytes that are read of a log: a line has no limit of its own.
const MOST_BYTES: &str = "1048576";

/// The container of a pod that crashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crashed {
    /// Its name.
    pub container: String,
    /// Whether it was started again: then the run before is the one that crashed.
    pub previous: bool,
}

/// The last lines of a crashed container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The pod.
    pub pod: String,
    /// The container.
    pub crashed: Crashed,
    /// The lines as the container wrote them, or why they cannot be read.
    pub lines: Result<Vec<String>, String>,
}

/// The container that keeps a pod from being ready by its crashes: one that has ended or waits for its next start, else
/// one that runs again. `None` if none has crashed.
pub fn crashed(pod: &Value) -> Option<Crashed> {
    let statuses =
        ["initContainerStatuses", "containerStatuses"].map(|field| pod["status"][field].as_array());
    let failed = |run: &Value| run["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0);
    let crashes = statuses.into_iter().flatten().flatten().filter_map(|status| {
        let (state, last) = (&status["state"], &status["lastState"]);
        let container = status["name"].as_str()?.to_owned();
        let is_down = !state["running"].is_object();
        if failed(state) {
            // It has not been started again since.
            return Some((false, Crashed { container, previous: false }));
        }
        let waits = state["waiting"]["reason"] == "CrashLoopBackOff";
        (waits || failed(last) && status["ready"] != true)
            .then_some((!is_down, Crashed { container, previous: true }))
    });
    crashes.min_by_key(|(is_up, _)| *is_up).map(|(_, crashed)| crashed)
}

/// Reads the last lines of the crashed containers of the pods that are shown one by one.
pub async fn read(api: &Api, namespace: &str, shown: &[PodView], pods: &[Value], count: u32) -> Vec<Log> {
    let mut logs = Vec::new();
    for view in shown.iter().take(SHOWN) {
        let object = pods.iter().find(|pod| pod["metadata"]["uid"] == view.uid.as_str());
        let Some(crashed) = object.and_then(crashed) else { continue };
        let lines = lines(api, namespace, &view.name, &crashed, count).await;
        let lines = lines.map_err(|error| error.to_string());
        logs.push(Log { pod: view.name.clone(), crashed, lines });
    }
    logs
}

async fn lines(
    api: &Api,
    namespace: &str,
    pod: &str,
    crashed: &Crashed,
    count: u32,
) -> Result<Vec<String>, ApiError> {
    let path = format!("{}/log", Pod::RESOURCE.path_of(&ObjectKey::new(namespace, pod)));
    let Crashed { container, previous } = crashed;
    let (tail, previous) = (count.to_string(), previous.to_string());
    let query = [
        ("container", container.as_str()),
        ("tailLines", &tail),
        ("previous", &previous),
        ("limitBytes", MOST_BYTES),
    ];
    let text = api.text(&format!("cannot read the log of {pod}"), &path, &query).await?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // A server that ignores the parameter sends everything.
    let first = lines.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
    Ok(lines.into_iter().skip(first).collect())
}

/// The logs for people. A line of a container never starts a line of ours.
pub fn text(logs: &[Log]) -> String {
    let mut text = String::new();
    for Log { pod, crashed: Crashed { container, previous }, lines } in logs {
        let run = if *previous { ", before its last restart" } else { "" };
        text.push_str(&format!("LOGS    {pod}, container {container}{run}\n"));
        match lines {
            Ok(lines) if lines.is_empty() => text.push_str("        it wrote nothing\n"),
            Ok(lines) => {
                for line in lines {
                    text.push_str(format!("        | {}", harmless(line)).trim_end());
                    text.push('\n');
                }
            }
            Err(why) => text.push_str(&format!("        {}\n", harmless(why))),
        }
    }
    text
}

/// The logs as data: the lines are the container's, unchanged.
pub fn data(logs: &[Log]) -> Value {
    let log = |Log { pod, crashed: Crashed { container, previous }, lines }: &Log| match lines {
        Ok(lines) => json!({"pod": pod, "container": container, "previous": previous, "lines": lines}),
        Err(why) => json!({"pod": pod, "container": container, "previous": previous, "error": why}),
    };
    logs.iter().map(log).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(statuses: &[(&str, Value, Value)]) -> Value {
        let status = |(name, state, last): &(&str, Value, Value)| json!({"name": name, "state": state, "lastState": last, "ready": false});
        json!({"status": {"containerStatuses": statuses.iter().map(status).collect::<Value>()}})
    }

    fn ended(code: i64) -> Value {
        json!({"terminated": {"exitCode": code}})
    }

    #[test]
    fn a_container_that_was_started_again_crashed_in_the_run_before() {
        let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let runs = json!({"running": {}});
        let found = |statuses: &[(&str, Value, Value)]| {
            crashed(&pod(statuses)).map(|crashed| (crashed.container, crashed.previous))
        };
        assert_eq!(found(&[("a", waits.clone(), ended(1))]), Some(("a".to_owned(), true)));
        assert_eq!(found(&[("a", ended(3), json!({}))]), Some(("a".to_owned(), false)));
        // The one that is down now comes before one that runs again.
        assert_eq!(
            found(&[("a", runs.clone(), ended(1)), ("b", waits, ended(2))]),
            Some(("b".to_owned(), true))
        );
        assert_eq!(found(&[("a", runs.clone(), ended(1))]), Some(("a".to_owned(), true)));
        assert_eq!(found(&[("a", runs, json!({})), ("b", ended(0), json!({}))]), None);
        // A server that ends without an error is no server, either.
        let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(found(&[("a", waits, ended(0))]), Some(("a".to_owned(), true)));
        assert_eq!(
            (crashed(&json!({})), crashed(&json!({"status": {"containerStatuses": 1}}))),
            (None, None)
        );
    }

    #[test]
    fn lines_of_a_container_are_harmless_for_a_terminal_and_whole_in_data() {
        let crashed = Crashed { container: "app".to_owned(), previous: true };
        let lines = vec!["\u{1b}[31m::error::x\r".to_owned(), String::new()];
        let logs = [Log { pod: "web-1".to_owned(), crashed, lines: Ok(lines) }];
        assert_eq!(
            text(&logs),
            "LOGS    web-1, container app, before its last restart\n        | [31m::error::x\n        |\n"
        );
        assert_eq!(data(&logs)[0]["lines"][0], "\u{1b}[31m::error::x\r");
    }
}
