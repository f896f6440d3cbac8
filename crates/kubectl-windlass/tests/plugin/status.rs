use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::front::{Fate, Front};
use crate::harness::{DEPLOYMENTS, Ended, PLUGIN, Sandbox};

#[test]
fn a_rollout_is_followed_to_its_end_and_the_code_is_0() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    let ended = sandbox.plugin(&["status", "deploy/web", "--timeout", "60s"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let last = ended.out.lines().last().unwrap();
    assert!(last.ends_with("default/web revision 1 complete: 3 of 3 new pods available"), "{ended:?}");
}

#[test]
fn the_stream_of_json_ends_with_complete() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    sandbox.web_reports("NewReplicaSetAvailable");
    sandbox.set_image("app:2");
    let ended = sandbox.plugin(&["watch", "web", "-o", "json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let events = ended.json_lines();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((types.first(), types.last()), (Some(&"Started"), Some(&"Complete")), "{types:?}");
    assert!(types.contains(&"Scaled") && types.contains(&"Progress"), "{types:?}");
    let last = events.last().unwrap();
    assert_eq!((&last["revision"], &last["counts"]["available"]), (&json!(2), &json!(3)));
}

#[test]
fn a_passed_deadline_is_a_failure_with_its_reason_and_the_code_is_3() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:broken", &json!({"progressDeadlineSeconds": 2}));
    let ended = sandbox.plugin(&["status", "web"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let last = ended.out.lines().last().unwrap();
    assert!(last.contains("failed: the rollout exceeded its progress deadline"), "{ended:?}");
    assert!(last.contains("ImagePullBackOff") && last.contains("app:broken"), "{ended:?}");
    // It is waited through on request, and then --timeout ends it.
    let ended = sandbox.plugin(&["status", "web", "--past-deadline", "--timeout=1s", "-o", "json"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let last = ended.json_lines().pop().unwrap();
    assert_eq!((&last["type"], &last["verdict"]), (&json!("TimedOut"), &json!("stuck")));
}

#[test]
fn an_undo_of_a_stuck_rollout_is_no_failure() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &json!({"progressDeadlineSeconds": 2}));
    sandbox.web_reports("NewReplicaSetAvailable");
    sandbox.set_image("app:broken");
    sandbox.web_reports("ProgressDeadlineExceeded");
    // The times of the condition and of managedFields have whole seconds.
    std::thread::sleep(Duration::from_millis(1100));
    sandbox.set_image("app:1");
    let ended = sandbox.plugin(&["status", "web", "--timeout=60s"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.out.contains("deadline"), "{ended:?}");
}

#[test]
fn a_failure_comes_with_the_command_that_helps() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &json!({"progressDeadlineSeconds": 2}));
    sandbox.web_reports("NewReplicaSetAvailable");
    sandbox.set_image("app:broken");
    let ended = sandbox.plugin(&["status", "web"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.err.contains("try: kubectl windlass undo -n default deploy/web"), "{ended:?}");
    let data = sandbox.plugin(&["status", "web", "-o", "json"]);
    assert_eq!((data.code, data.err.as_str()), (Some(3), ""), "{data:?}");
}

#[test]
fn a_kubeconfig_that_does_not_exist_is_named_once() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    let ended = sandbox.plugin(&["status", "web", "--kubeconfig", "/nonexistent"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.err, "error: --kubeconfig /nonexistent: No such file or directory (os error 2)\n");
}

#[test]
fn a_wait_that_times_out_says_what_for_and_the_code_is_4() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:broken", &Value::Null);
    let ended = sandbox.plugin(&["status", "web", "--timeout=3s"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.out.contains("not finished when --timeout passed: waits for web-"), "{ended:?}");
    let once = sandbox.plugin(&["status", "web", "--watch=false", "--ascii"]);
    assert_eq!(once.code, Some(4), "{once:?}");
    assert!(
        once.out.contains("`- web-") && once.out.contains("0/3 available - 3/3 updated   waiting"),
        "{once:?}"
    );
    let once = sandbox.plugin(&["status", "web", "--watch=false", "-o=json"]);
    let last = once.json_lines().pop().unwrap();
    assert_eq!((once.code, &last["type"]), (Some(4), &json!("Unfinished")), "no timeout has passed: {last}");
}

#[test]
fn a_paused_rollout_waits_and_fails_fast_on_request() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &json!({"paused": true}));
    let ended = sandbox.plugin(&["status", "web", "--fail-fast"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.out.contains("the Deployment is paused"), "{ended:?}");
    let ended = sandbox.plugin(&["status", "web", "--timeout=1s"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.out.contains("paused: nothing is rolled out"), "{ended:?}");
}

#[test]
fn another_revision_than_the_wanted_one_is_a_failure() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    assert_eq!(sandbox.plugin(&["status", "web", "--revision=1"]).code, Some(0));
    let ended = sandbox.plugin(&["status", "web", "--revision=7"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.out.contains("revision 1 runs, and not revision 7"), "{ended:?}");
}

#[test]
fn wrong_flags_are_usage_errors_and_the_code_is_2() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    for (args, part) in [
        (&["status", "web", "--timeout=soon"][..], "\"soon\" is not a duration"),
        (&["status", "web", "-o", "xml"], "possible values: text, json"),
        (&["status", "web", "--revision=0"], "--revision"),
        (&["dance"], "unrecognized subcommand"),
    ] {
        let ended = sandbox.plugin(args);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains(part), "{ended:?}");
    }
}

#[test]
fn a_deployment_that_is_deleted_or_made_again_while_it_is_followed_is_a_failure() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:broken", &Value::Null);
    let mut child = sandbox.command(PLUGIN, &["status", "web"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    sandbox.call("DELETE", &format!("{DEPLOYMENTS}/web"), &Value::Null);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3), "{first}{rest}");
    assert!(rest.contains("failed: the Deployment"), "{first}{rest}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_with_130() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:broken", &Value::Null);
    let mut child = sandbox.command(PLUGIN, &["status", "web"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut String::new()).unwrap();
    let pid = child.id().to_string();
    assert!(sandbox.command("kill", &["-INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    let mut child = sandbox
        .command(PLUGIN, &["status", "web", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut String::new()).unwrap();
    drop(lines);
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
}

#[test]
fn a_template_that_changes_midway_is_followed_and_reported_as_superseded() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:broken", &Value::Null);
    let mut command = sandbox.command(PLUGIN, &["status", "web", "--timeout=60s"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("ImagePullBackOff")));
    sandbox.set_image("app:2");
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest:?}");
    let told = rest.iter().filter(|line| line.contains("default/web Superseded:")).count();
    assert_eq!(told, 1, "{rest:?}");
}

#[test]
fn events_that_cannot_be_read_are_not_asked_for_again_at_once() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:broken", &Value::Null);
    let pods = "/api/v1/namespaces/default/pods";
    sandbox.eventually(pods, |pods| pods["items"].as_array().is_some_and(|all| all.len() == 3));
    let front = Front::start(sandbox.address(), |_, target| {
        if target.contains("/events") { Fate::Answer(500) } else { Fate::Forward }
    });
    let ended = sandbox.plugin_through(&front, &["status", "web", "--timeout=6s"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let asked = front.requests().iter().filter(|request| request.contains("/events")).count();
    assert!((1..=3).contains(&asked), "{asked} in 6 s");
}

#[test]
fn a_watch_that_breaks_for_a_moment_is_no_news() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:broken", &Value::Null);
    let failures = AtomicUsize::new(0);
    let front = Front::start(sandbox.address(), move |_, target| {
        let fails = target.contains("/pods") && failures.fetch_add(1, Ordering::SeqCst) < 2;
        if fails { Fate::Reset } else { Fate::Forward }
    });
    let ended = sandbox.plugin_through(&front, &["status", "web", "--timeout=5s"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(4), ""), "{ended:?}");
    assert!(ended.out.contains("ImagePullBackOff"), "{ended:?}");
}

#[test]
fn without_a_watch_all_are_shown_and_each_failure_has_its_reason() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:broken", &json!({"progressDeadlineSeconds": 1}));
    let mut other = sandbox.get(&format!("{DEPLOYMENTS}/web"));
    other["metadata"] = json!({"name": "other"});
    sandbox.call("POST", DEPLOYMENTS, &other);
    for name in ["web", "other"] {
        sandbox.eventually(&format!("{DEPLOYMENTS}/{name}"), |it| {
            it["status"]["conditions"].to_string().contains("ProgressDeadlineExceeded")
        });
    }
    let ended = sandbox.plugin(&["status", "web", "other", "--watch=false"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    for name in ["web", "other"] {
        assert_eq!(ended.out.matches(&format!("default/{name}  ")).count(), 1, "{ended:?}");
        assert_eq!(ended.err.matches(&format!("default/{name} failed: ")).count(), 1, "{ended:?}");
    }
}

#[test]
fn several_deployments_are_followed_at_once() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    let ended = sandbox.plugin(&["status", "-A"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("default/web revision 1 complete"), "{ended:?}");
}

#[test]
fn github_actions_gets_an_annotation_and_a_table_of_a_failure() {
    let sandbox = Sandbox::start(&[]);
    // No image has such a name.
    sandbox.create_web("app|x:broken", &json!({"progressDeadlineSeconds": 2}));
    let summary = sandbox.file("summary.md");
    std::fs::write(&summary, "before\n").unwrap();
    let status = |args: &[&str]| {
        let mut command = sandbox.command(PLUGIN, &[&["status", "web"], args].concat());
        command.env("GITHUB_ACTIONS", "true").env("GITHUB_STEP_SUMMARY", &summary);
        Ended::of(&command.output().unwrap())
    };
    let ended = status(&["--ci=none"]);
    assert_eq!((ended.code, ended.out.contains("::error")), (Some(3), false), "{ended:?}");
    assert_eq!(std::fs::read_to_string(&summary).unwrap(), "before\n");

    let ended = status(&[]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let commands: Vec<&str> = ended.out.lines().filter(|line| line.starts_with("::")).collect();
    let [command] = commands[..] else { panic!("{ended:?}") };
    let start = "::error title=Rollout of default/web::the rollout exceeded its progress deadline";
    assert!(command.starts_with(start) && command.contains("InvalidImageName"), "{command}");
    let table = std::fs::read_to_string(&summary).unwrap();
    assert!(table.starts_with("before\n### Rollouts that did not complete\n"), "{table}");
    assert!(table.contains("| `default/web` | 1 | 0 of 3 | `the rollout exceeded"), "{table}");
    assert!(table.contains("| `InvalidImageName` | 0 |") && table.contains("app\\|x:broken"), "{table}");
    // The rows have the columns of their heads, whatever the texts contain.
    let bars = |line: &str| line.replace("\\|", "").matches('|').count();
    assert!(
        table.lines().filter(|line| line.starts_with('|')).all(|line| [5, 6].contains(&bars(line))),
        "{table}"
    );
}
