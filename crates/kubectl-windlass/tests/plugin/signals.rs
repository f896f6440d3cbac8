//! Ctrl-C and SIGTERM.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::front::{Fate, Front};
use crate::harness::{PLUGIN, Sandbox};
use crate::rolling_update::{path, with_web};

fn send(sandbox: &Sandbox, child: &Child, signal: &str) {
    let sent = sandbox.command("kill", &[signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// The exit code, in time.
fn code(child: &mut Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if started.elapsed() > Duration::from_secs(10) {
            child.kill().unwrap();
            panic!("the program does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_interrupted_update_ends_after_the_write_under_way_and_reports_it() {
    for signal in ["-INT", "-TERM"] {
        let sandbox = with_web();
        let front = Front::start(sandbox.address(), |method, target| {
            let is_resize = method == "PATCH" && target.contains("/replicationcontrollers/next");
            if is_resize { Fate::Late(Duration::from_secs(2)) } else { Fate::Forward }
        });
        let server = format!("--server=http://{}", front.address);
        let args = ["rolling-update", "web", "next", "--image=app:2", "--poll-interval=200ms", &server];
        let mut child =
            sandbox.command(PLUGIN, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        sandbox.eventually(&path("next"), |next| next["spec"]["replicas"] == 1);
        send(&sandbox, &child, signal);
        let (mut out, mut note) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut note).unwrap();
        assert_eq!(code(&mut child), Some(130), "{out}{note}");
        assert!(out.ends_with("Scaling next from 0 to 1\n"), "{out:?}");
        assert!(note.contains("go on with the same command"), "{note}");
    }
}

#[test]
fn a_command_that_reads_stdin_is_interrupted_at_once() {
    let sandbox = with_web();
    for args in [&["rolling-update", "web", "-f", "-"][..], &["plan", "-f", "-"]] {
        let mut command = sandbox.command(PLUGIN, args);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        send(&sandbox, &child, "-INT");
        assert_eq!(code(&mut child), Some(130), "{args:?}");
        drop(stdin);
    }
}

/// A terminal for a program: `script` makes one.
fn in_a_terminal(sandbox: &Sandbox, command: &str) -> Child {
    let line = format!("stty rows 24 cols 80; stty -a > before; {command}; echo code $?; stty -a > after");
    let mut script = sandbox.command("script", &["-qec", &line, "/dev/null"]);
    script.current_dir(sandbox.file("")).env("TERM", "xterm").env("SHELL", "/bin/sh");
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// The process of the plugin below another one.
fn plugin_below(sandbox: &Sandbox, child: &Child, word: &str) -> String {
    let started = Instant::now();
    loop {
        let all = sandbox.command("ps", &["-eo", "pid,ppid,args"]).output().unwrap();
        let all = String::from_utf8_lossy(&all.stdout).into_owned();
        let rows: Vec<Vec<&str>> = all.lines().map(|line| line.split_whitespace().collect()).collect();
        let is_below = |row: &[&str]| {
            let mut parent = row[1].to_owned();
            for _ in 0..5 {
                if parent == child.id().to_string() {
                    return true;
                }
                let Some(above) = rows.iter().find(|row| row[0] == parent) else { return false };
                parent = above[1].to_owned();
            }
            false
        };
        let found =
            rows.iter().find(|row| row.len() > 3 && row[2] == PLUGIN && row[3] == word && is_below(row));
        if let Some(row) = found {
            return row[0].to_owned();
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{all}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "needs `script` of util-linux"]
fn keys_and_signals_end_a_live_view_and_a_question_at_once_and_give_the_terminal_back() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:broken", &json!({}));
    // Events that take longer than anybody waits for a key.
    let front = Front::start(sandbox.address(), |_, target| {
        if target.contains("/events") { Fate::Late(Duration::from_secs(30)) } else { Fate::Forward }
    });
    let status = format!("{PLUGIN} status web --server=http://{}", front.address);
    for key in [None, Some(b"q")] {
        let mut child = in_a_terminal(&sandbox, &status);
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        wait_for(&mut reader, "leave");
        // The events are under way.
        std::thread::sleep(Duration::from_millis(500));
        match key {
            Some(key) => child.stdin.as_mut().unwrap().write_all(key).unwrap(),
            None => {
                let pid = plugin_below(&sandbox, &child, "status");
                assert!(sandbox.command("kill", &["-TERM", &pid]).status().unwrap().success());
            }
        }
        let pressed = Instant::now();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert!(pressed.elapsed() < Duration::from_secs(10), "{rest:?}");
        code(&mut child);
        let settings = |name: &str| std::fs::read_to_string(sandbox.file(name)).unwrap();
        assert!(rest.contains("code 130"), "{rest:?}");
        assert_eq!(settings("before"), settings("after"));
    }
    sandbox.set_image("app:2");
    sandbox.web_reports("NewReplicaSetAvailable");
    let mut child = in_a_terminal(&sandbox, &format!("{PLUGIN} undo web --to-revision 1"));
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    wait_for(&mut reader, "[y/N] ");
    let pid = plugin_below(&sandbox, &child, "undo");
    assert!(sandbox.command("kill", &["-INT", &pid]).status().unwrap().success());
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    code(&mut child);
    assert!(rest.contains("code 130"), "{rest:?}");
}

/// Reads until the program has printed a text.
fn wait_for(reader: &mut impl BufRead, wanted: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        let part = reader.fill_buf().unwrap();
        assert!(!part.is_empty(), "{}", String::from_utf8_lossy(&seen));
        let length = part.len();
        seen.extend_from_slice(part);
        reader.consume(length);
    }
}
