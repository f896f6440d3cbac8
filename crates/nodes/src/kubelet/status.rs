//! The kubelet's status reports for a pod, as bodies of strategic merge patches. Pure.
//!
//! A strategic merge patch touches only the conditions it names. Replacing the whole list would erase
//! those of others: readiness gates, `DisruptionTarget`.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    record::{Container, Pod},
    runs::{ContainerRuns, Ended, RunState},
};
use crate::api_client::rfc3339;

/// The stage of a pod on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The kubelet has taken it on; images are being fetched.
    Starting,
    /// Every container that can run does.
    Running,
    /// Every container has ended, by itself or because the pod is deleted.
    Ended,
}

/// Where a pod runs.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The node's address.
    pub host_ip: &'a str,
    /// The pod's address.
    pub pod_ip: &'a str,
    /// Whether the node is ready: no pod is ready on one that is not.
    pub node_ready: bool,
}

/// Why a container does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason that kubectl shows.
    pub reason: &'static str,
    /// The details; empty if there are none.
    pub message: String,
}

impl Fault {
    fn waiting(reason: &'static str) -> Self {
        Fault { reason, message: String::new() }
    }
}

/// The state of the containers of a pod.
#[derive(Clone, Copy)]
pub struct Behaviour<'a> {
    /// Why a container does not start.
    pub fault: &'a dyn Fn(&Container) -> Option<Fault>,
    /// The exit code of a container that is stopped.
    pub stopped: &'a dyn Fn(&Container) -> u8,
    /// The runs of the main containers, in their order, if one of them ends; without it all run for ever.
    pub runs: &'a [ContainerRuns],
}

/// The patch of the pod's status for `stage`. It names the pod's UID, so that a successor under the same name is not described
/// by mistake.
pub fn patch(pod: &Pod, stage: Stage, place: Place<'_>, behaviour: &Behaviour<'_>, now: Timestamp) -> Value {
    let report = Report::new(pod, stage, place.node_ready, behaviour, now);
    let at = rfc3339(now);
    let mut status = json!({
        "phase": report.phase(),
        "hostIP": place.host_ip,
        "hostIPs": [{"ip": place.host_ip}],
        "startTime": pod.status.start_time.as_ref().map_or(at.clone(), |time| rfc3339(time.0)),
    });
    // Put in by hand: the macro copies the values that it is given.
    status["conditions"] = Value::Array(report.conditions(&at));
    status["containerStatuses"] = report.main.iter().map(|c| c.status(pod, &at)).collect();
    if stage != Stage::Starting && !place.pod_ip.is_empty() {
        status["podIP"] = json!(place.pod_ip);
        status["podIPs"] = json!([{"ip": place.pod_ip}]);
    }
    if !report.init.is_empty() {
        status["initContainerStatuses"] = report.init.iter().map(|c| c.status(pod, &at)).collect();
    }
    let mut patch = json!({"metadata": {"uid": pod.uid()}});
    patch["status"] = status;
    patch
}

/// The patch with the reason why a pod has no node.
pub fn unschedulable(pod: &Pod, message: &str, now: Timestamp) -> Value {
    let condition = condition(pod, "PodScheduled", false, Some(("Unschedulable", message)), &rfc3339(now));
    json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}})
}

/// The patch for a pod that its node refuses to start.
pub fn rejected(pod: &Pod, reason: &str, message: &str) -> Value {
    let message = format!("Pod was rejected: {message}");
    json!({"metadata": {"uid": pod.uid()}, "status": {"phase": "Failed", "reason": reason, "message": message}})
}

/// The patch for a pod whose node is deleted, before the pod is deleted.
pub fn orphaned(pod: &Pod, now: Timestamp) -> Value {
    let why = Some(("DeletionByPodGC", "PodGC: node no longer exists"));
    let condition = condition(pod, "DisruptionTarget", true, why, &rfc3339(now));
    json!({"metadata": {"uid": pod.uid()}, "status": {"phase": "Failed", "conditions": [condition]}})
}

/// The patch for a pod that the taints of its node drive away, before it is deleted.
pub fn tainted(pod: &Pod, now: Timestamp) -> Value {
    let why = Some(("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"));
    let condition = condition(pod, "DisruptionTarget", true, why, &rfc3339(now));
    json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}})
}

/// Whether every readiness gate of the pod has its condition.
pub fn gates_are_open(pod: &Pod) -> bool {
    pod.spec.readiness_gates.iter().flatten().all(|gate| pod.is_true(&gate.condition_type))
}

/// The behaviour of one container.
#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Not started yet.
    Waiting(Fault),
    Running,
    /// Ended with exit code 0.
    Completed,
    /// Ended, and is started again after this time.
    BackOff(Duration),
    /// Ended for good.
    Ended(Ended),
}

struct Reported<'a> {
    container: &'a Container,
    state: State,
    runs: Option<&'a ContainerRuns>,
}

impl Reported<'_> {
    fn is_ready(&self) -> bool {
        let init = !self.container.is_sidecar() && self.state == State::Completed;
        self.state == State::Running || init
    }

    fn status(&self, pod: &Pod, at: &str) -> Value {
        let image = self.container.image();
        let state = match &self.state {
            State::Waiting(Fault { reason, message }) if message.is_empty() => {
                json!({"waiting": {"reason": reason}})
            }
            State::Waiting(Fault { reason, message }) => {
                json!({"waiting": {"reason": reason, "message": message}})
            }
            State::Running => json!({"running": {"startedAt": self.started_at(at)}}),
            State::BackOff(wait) => {
                let (container, wait) = (&self.container.name, go_duration(*wait));
                let message =
                    format!("back-off {wait} restarting failed container={container} pod={}", pod_text(pod));
                json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
            }
            State::Ended(ended) => self.terminated(pod, ended),
            State::Completed => json!({"terminated": {
                "exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at,
                "containerID": self.container_id(pod),
            }}),
        };
        let started = !matches!(self.state, State::Waiting(_));
        let mut status = json!({
            "name": self.container.name,
            "image": image,
            "imageID": if started { format!("sandbox://{image}") } else { String::new() },
            "ready": self.is_ready(),
            "started": self.state == State::Running,
            "restartCount": self.runs.map_or(0, |runs| runs.restarts),
        });
        let last = self.runs.and_then(|runs| runs.last);
        status["state"] = state;
        status["lastState"] = last.map_or_else(|| json!({}), |last| self.terminated(pod, &last));
        if started {
            status["containerID"] = json!(self.container_id(pod));
        }
        status
    }

    fn started_at(&self, at: &str) -> String {
        match self.runs.map(|runs| runs.state) {
            Some(RunState::Running { since, .. }) => rfc3339(since),
            _ => at.to_owned(),
        }
    }

    fn terminated(&self, pod: &Pod, ended: &Ended) -> Value {
        let reason = if ended.exit_code == 0 { "Completed" } else { "Error" };
        json!({"terminated": {
            "exitCode": ended.exit_code, "reason": reason, "startedAt": rfc3339(ended.started),
            "finishedAt": rfc3339(ended.finished), "containerID": self.container_id(pod),
        }})
    }

    /// An identity that is stable over repeated reports and unique in the cluster.
    fn container_id(&self, pod: &Pod) -> String {
        format!("sandbox://{}/{}", pod.uid(), self.container.name)
    }
}

struct Report<'a> {
    pod: &'a Pod,
    stage: Stage,
    node_ready: bool,
    init: Vec<Reported<'a>>,
    main: Vec<Reported<'a>>,
}

impl<'a> Report<'a> {
    fn new(pod: &'a Pod, stage: Stage, node_ready: bool, behaviour: &Behaviour<'a>, now: Timestamp) -> Self {
        let Behaviour { fault, stopped, runs } = *behaviour;
        let mut initialized = true;
        // Sidecars end with the last of the main containers.
        let is_over = !runs.is_empty() && runs.iter().all(|runs| matches!(runs.state, RunState::Ended(_)));
        let running = stage == Stage::Running && !is_over;
        let init = pod.init_containers().iter().map(|container| {
            let done = if running && container.is_sidecar() { State::Running } else { State::Completed };
            let state = match stage {
                _ if !initialized => State::Waiting(Fault::waiting("PodInitializing")),
                Stage::Starting => State::Waiting(Fault::waiting("PodInitializing")),
                Stage::Running => fault(container).map_or(done, State::Waiting),
                Stage::Ended => done,
            };
            initialized &= !matches!(state, State::Waiting(_));
            Reported { container, state, runs: None }
        });
        let init: Vec<Reported<'a>> = init.collect();
        let main = pod.spec.containers.iter().enumerate().map(|(index, container)| {
            let runs = runs.get(index);
            let state = match stage {
                Stage::Ended => State::Ended(stopped_run(pod, stopped(container), runs, now)),
                _ if !initialized => State::Waiting(Fault::waiting("PodInitializing")),
                Stage::Starting => State::Waiting(Fault::waiting("ContainerCreating")),
                Stage::Running => {
                    fault(container).map_or(runs.map_or(State::Running, of_runs), State::Waiting)
                }
            };
            Reported { container, state, runs }
        });
        Report { pod, stage, node_ready, main: main.collect(), init }
    }

    /// Succeeded or Failed once all containers have ended for good.
    fn end(&self) -> Option<&'static str> {
        let mut end = "Succeeded";
        for reported in &self.main {
            match reported.state {
                State::Ended(ended) if ended.exit_code == 0 => {}
                State::Ended(_) => end = "Failed",
                _ => return None,
            }
        }
        (!self.main.is_empty()).then_some(end)
    }

    /// As long as one container has never run, the pod is Pending, even beside running ones.
    fn phase(&self) -> &'static str {
        let mut all = self.init.iter().chain(&self.main);
        if let Some(end) = self.end() {
            end
        } else if all.any(|reported| matches!(reported.state, State::Waiting(_))) {
            "Pending"
        } else {
            "Running"
        }
    }

    fn conditions(&self, at: &str) -> Vec<Value> {
        let waiting: Vec<&str> = names(&self.init, |r| matches!(r.state, State::Waiting(_)));
        let unready: Vec<&str> = names(&self.main, |r| self.stage == Stage::Ended || !r.is_ready())
            .into_iter()
            .chain(names(&self.init, |r| {
                r.container.is_sidecar() && (self.stage == Stage::Ended || !r.is_ready())
            }))
            .collect();
        let incomplete = format!("containers with incomplete status: [{}]", waiting.join(" "));
        let unready_message = format!("containers with unready status: [{}]", unready.join(" "));
        let end = self.end();
        let reason = if end == Some("Failed") { "PodFailed" } else { "PodCompleted" };
        let ended = end.is_some();
        let initialized = match () {
            () if end == Some("Succeeded") => Some((reason, "")),
            () if waiting.is_empty() => None,
            () => Some(("ContainersNotInitialized", incomplete.as_str())),
        };
        let containers = match () {
            () if ended => Some((reason, "")),
            () if unready.is_empty() => None,
            () => Some(("ContainersNotReady", unready_message.as_str())),
        };
        let gates: Vec<String> = self.closed_gates();
        let gate_message = gates.join(", ");
        let ready = match containers {
            None if !gates.is_empty() => Some(("ReadinessGatesNotReady", gate_message.as_str())),
            containers => containers,
        };
        let running = self.stage == Stage::Running && !ended;
        vec![
            condition(self.pod, "PodReadyToStartContainers", running, None, at),
            condition(self.pod, "Initialized", ended || initialized.is_none(), initialized, at),
            condition(self.pod, "Ready", ready.is_none() && self.node_ready, ready, at),
            condition(self.pod, "ContainersReady", containers.is_none(), containers, at),
            condition(self.pod, "PodScheduled", true, None, at),
        ]
    }

    fn closed_gates(&self) -> Vec<String> {
        let gates = self.pod.spec.readiness_gates.iter().flatten().map(|gate| gate.condition_type.as_str());
        gates
            .filter(|gate| !self.pod.is_true(gate))
            .map(|gate| match self.pod.condition(gate) {
                Some(found) => format!(
                    "the status of pod readiness gate \"{gate}\" is not \"True\", but {}",
                    found.status
                ),
                None => format!("corresponding condition of pod readiness gate \"{gate}\" does not exist."),
            })
            .collect()
    }
}

fn of_runs(runs: &ContainerRuns) -> State {
    match runs.state {
        RunState::Running { .. } => State::Running,
        RunState::BackOff { wait, .. } => State::BackOff(wait),
        RunState::Ended(ended) => State::Ended(ended),
    }
}

/// The end of a container that has ended already, or is stopped.
fn stopped_run(pod: &Pod, exit_code: u8, runs: Option<&ContainerRuns>, now: Timestamp) -> Ended {
    let began = pod.status.start_time.as_ref().map_or(now, |time| time.0);
    match runs.map(|runs| (runs.state, runs.last)) {
        Some((RunState::Ended(ended), _) | (RunState::BackOff { .. }, Some(ended))) => ended,
        Some((RunState::Running { since, .. }, _)) => Ended { exit_code, started: since, finished: now },
        _ => Ended { exit_code, started: began, finished: now },
    }
}

/// A pod as a kubelet names it in its messages.
pub(super) fn pod_text(pod: &Pod) -> String {
    format!("{}_{}({})", pod.name(), pod.namespace(), pod.uid())
}

/// Whole seconds as Go writes them: `40s`, `2m40s`.
fn go_duration(time: Duration) -> String {
    match (time.as_secs() / 60, time.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

fn names<'a>(reported: &[Reported<'a>], wanted: impl Fn(&Reported<'a>) -> bool) -> Vec<&'a str> {
    reported.iter().filter(|r| wanted(r)).map(|r| r.container.name.as_str()).collect()
}

/// A condition whose `lastTransitionTime` moves only if its status does. Absent reasons are written as
/// `null`, which takes an old reason away.
fn condition(pod: &Pod, type_: &str, status: bool, why: Option<(&str, &str)>, at: &str) -> Value {
    let status = if status { "True" } else { "False" };
    let since = pod
        .condition(type_)
        .filter(|old| &*old.status == status)
        .and_then(|old| old.last_transition_time.as_ref())
        .map_or_else(|| at.to_owned(), |time| rfc3339(time.0));
    let (reason, message) = why.unwrap_or_default();
    let text = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    json!({
        "type": type_, "status": status, "lastProbeTime": null, "lastTransitionTime": since,
        "reason": text(reason), "message": text(message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place<'_> = Place { host_ip: "10.0.0.1", pod_ip: "10.244.0.1", node_ready: true };

    fn pod(spec: Value, status: Value) -> Pod {
        let metadata = json!({"name": "web-1", "namespace": "shop", "uid": "u1"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:30Z".parse().unwrap()
    }

    fn status(pod: &Pod, stage: Stage, broken: &str) -> Value {
        let fault = |container: &Container| {
            let fault = Fault { reason: "ImagePullBackOff", message: "not there".to_owned() };
            (container.image() == broken).then_some(fault)
        };
        let behaviour = Behaviour { fault: &fault, stopped: &|_| 0, runs: &[] };
        patch(pod, stage, HERE, &behaviour, now())["status"].take()
    }

    fn condition_of<'a>(status: &'a Value, type_: &str) -> &'a Value {
        status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == type_).unwrap()
    }

    #[test]
    fn a_starting_pod_is_pending_and_creates_its_containers() {
        let pod = pod(json!({"containers": [{"name": "nginx", "image": "nginx"}]}), json!({}));
        let status = status(&pod, Stage::Starting, "");
        assert_eq!(status["phase"], "Pending");
        assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
        assert_eq!(condition_of(&status, "Ready")["reason"], "ContainersNotReady");
        assert_eq!(condition_of(&status, "Ready")["message"], "containers with unready status: [nginx]");
        assert_eq!(condition_of(&status, "PodScheduled")["status"], "True");
        assert!(status.get("podIP").is_none());
    }

    #[test]
    fn a_running_pod_is_ready_with_an_address() {
        let pod = pod(json!({"containers": [{"name": "nginx", "image": "nginx"}]}), json!({}));
        let status = status(&pod, Stage::Running, "");
        assert_eq!(status["phase"], "Running");
        assert_eq!(status["podIP"], "10.244.0.1");
        assert_eq!(status["hostIP"], "10.0.0.1");
        let container = &status["containerStatuses"][0];
        assert_eq!((&container["ready"], &container["started"]), (&json!(true), &json!(true)));
        assert_eq!(container["state"]["running"]["startedAt"], "2026-01-01T00:00:30Z");
        for type_ in ["Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers"] {
            assert_eq!(condition_of(&status, type_)["status"], "True", "{type_}");
        }
    }

    #[test]
    fn one_image_that_cannot_be_pulled_keeps_the_pod_pending_beside_its_ready_container() {
        let spec = json!({"containers": [{"name": "a", "image": "good"}, {"name": "b", "image": "bad"}]});
        let status = status(&pod(spec, json!({})), Stage::Running, "bad");
        assert_eq!(status["phase"], "Pending");
        assert_eq!(status["containerStatuses"][0]["ready"], true);
        assert_eq!(status["containerStatuses"][1]["state"]["waiting"]["reason"], "ImagePullBackOff");
        assert_eq!(condition_of(&status, "Ready")["message"], "containers with unready status: [b]");
    }

    #[test]
    fn a_broken_init_container_blocks_all_that_follow() {
        let spec = json!({
            "initContainers": [{"name": "log", "image": "good", "restartPolicy": "Always"},
                               {"name": "migrate", "image": "bad"}, {"name": "warm", "image": "good"}],
            "containers": [{"name": "web", "image": "good"}],
        });
        let status = status(&pod(spec, json!({})), Stage::Running, "bad");
        let init = &status["initContainerStatuses"];
        assert!(init[0]["state"]["running"].is_object());
        assert_eq!(init[1]["state"]["waiting"]["reason"], "ImagePullBackOff");
        assert_eq!(init[2]["state"]["waiting"]["reason"], "PodInitializing");
        assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
        let initialized = condition_of(&status, "Initialized");
        assert_eq!(initialized["message"], "containers with incomplete status: [migrate warm]");
    }

    #[test]
    fn init_containers_complete_and_sidecars_keep_running() {
        let spec = json!({
            "initContainers": [{"name": "log", "image": "i", "restartPolicy": "Always"},
                               {"name": "migrate", "image": "i"}],
            "containers": [{"name": "web", "image": "i"}],
        });
        let status = status(&pod(spec, json!({})), Stage::Running, "");
        assert!(status["initContainerStatuses"][0]["state"]["running"].is_object());
        assert_eq!(status["initContainerStatuses"][1]["state"]["terminated"]["exitCode"], 0);
        assert_eq!(condition_of(&status, "Ready")["status"], "True");
    }

    #[test]
    fn a_condition_keeps_its_transition_time_until_its_status_changes() {
        let old = json!({"conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"},
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:01Z"}]});
        let pod = pod(json!({"containers": [{"name": "nginx", "image": "nginx"}]}), old);
        let status = status(&pod, Stage::Running, "");
        assert_eq!(condition_of(&status, "PodScheduled")["lastTransitionTime"], "2026-01-01T00:00:01Z");
        assert_eq!(condition_of(&status, "Ready")["lastTransitionTime"], "2026-01-01T00:00:30Z");
    }

    #[test]
    fn a_closed_readiness_gate_keeps_the_pod_unready_with_ready_containers() {
        let spec = json!({"containers": [{"name": "a", "image": "i"}],
                          "readinessGates": [{"conditionType": "example.com/lb"}]});
        let closed = pod(spec.clone(), json!({}));
        let report = status(&closed, Stage::Running, "");
        assert_eq!(condition_of(&report, "ContainersReady")["status"], "True");
        assert_eq!(condition_of(&report, "Ready")["reason"], "ReadinessGatesNotReady");
        let open = pod(spec, json!({"conditions": [{"type": "example.com/lb", "status": "True"}]}));
        assert!(gates_are_open(&open) && !gates_are_open(&closed));
        assert_eq!(condition_of(&status(&open, Stage::Running, ""), "Ready")["status"], "True");
    }

    #[test]
    fn the_patch_names_the_pod_by_its_uid() {
        let pod = pod(json!({}), json!({}));
        let behaviour = Behaviour { fault: &|_| None, stopped: &|_| 0, runs: &[] };
        assert_eq!(patch(&pod, Stage::Ended, HERE, &behaviour, now())["metadata"]["uid"], "u1");
        assert_eq!(unschedulable(&pod, "no room", now())["metadata"]["uid"], "u1");
    }
}
