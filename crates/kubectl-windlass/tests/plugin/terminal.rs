//! The plugin at a terminal, which `script` of util-linux provides.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Ended, PLUGIN, Sandbox, kubectl};
use crate::kubectl::{plugin_directory, run};

/// A program at a terminal of 120 columns.
struct Terminal {
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that has failed leaves no program behind.
        let _ = self.child.kill();
    }
}

impl Terminal {
    fn start(sandbox: &Sandbox, line: &str) -> Self {
        let line = format!("stty cols 120 rows 40; exec {line}");
        let mut command = sandbox.command("script", &["-q", "-e", "-c", &line, "/dev/null"]);
        command.env("TERM", "xterm").env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let shown: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut out, seen) = (child.stdout.take().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = out.read(&mut buffer)
                && count > 0
            {
                seen.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Terminal { child, shown }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until the terminal has been sent this text.
    fn shows(&self, part: &str) {
        for _ in 0..600 {
            if self.text().contains(part) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{part:?} is not in {:?}", self.text());
    }

    fn press(&mut self, keys: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(keys).unwrap();
    }

    /// The exit code.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        std::thread::sleep(Duration::from_millis(200));
        (code, self.text())
    }
}

/// `web` with a rollout to an image that never starts.
fn with_a_broken_rollout() -> Sandbox {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    sandbox.web_reports("NewReplicaSetAvailable");
    sandbox.set_image("app:broken");
    sandbox
}

#[test]
#[ignore = "needs `script` of util-linux"]
fn a_terminal_gets_a_live_tree_that_ctrl_c_and_q_leave() {
    let sandbox = with_a_broken_rollout();
    for keys in [b"\x03", b"q"] {
        let mut terminal = Terminal::start(&sandbox, &format!("{PLUGIN} status web"));
        terminal.shows("ImagePullBackOff");
        // Spaces are not sent: the screen is empty there.
        terminal.shows("leave");
        terminal.press(keys);
        let (code, text) = terminal.end();
        assert_eq!(code, Some(130), "{text:?}");
        // On the alternate screen, given back; the last frame stays printed behind it.
        let (screen, after) = text.rsplit_once("\u{1b}[?1049l").unwrap();
        assert!(screen.contains("\u{1b}[?1049h") && screen.contains("├─"), "{text:?}");
        assert!(after.contains("default/web  revision 2  ") && after.contains("└─ web-"), "{after:?}");
        assert!(!after.contains("q: leave"), "{after:?}");
    }
}

#[test]
#[ignore = "needs `script` of util-linux"]
fn the_tree_ends_with_the_rollout() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    let terminal = Terminal::start(&sandbox, &format!("{PLUGIN} status web --ascii"));
    let (code, text) = terminal.end();
    assert_eq!(code, Some(0), "{text:?}");
    let (screen, after) = text.rsplit_once("\u{1b}[?1049l").unwrap();
    assert!(
        !screen.contains('█') && after.contains("default/web  revision 1  ############ 3/3 available"),
        "{text:?}"
    );
    assert!(after.contains("revision 1 complete: 3 of 3 new pods available"), "{after:?}");
}

#[test]
#[ignore = "needs `script` of util-linux"]
fn a_terminal_gets_a_list_that_follows_filters_and_explains() {
    let sandbox = with_a_broken_rollout();
    // Only what differs from the frame before is sent: the first one is to have the whole word.
    sandbox
        .eventually("/api/v1/namespaces/default/pods", |pods| pods.to_string().contains("ImagePullBackOff"));
    let mut terminal = Terminal::start(&sandbox, &format!("{PLUGIN} list"));
    terminal.shows("ImagePullBackOff");
    terminal.shows("filter");
    terminal.press(b"/zzz");
    terminal.shows("nothing");
    terminal.press(b"\x1b");
    std::thread::sleep(Duration::from_millis(300));
    terminal.press(b"\r");
    terminal.shows("NEXT");
    terminal.press(b"q");
    // It follows: the rollout that was broken goes back and completes.
    sandbox.set_image("app:1");
    terminal.shows("--all");
    terminal.press(b"q");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(0), "{text:?}");
    let (_, after) = text.rsplit_once("\u{1b}[?1049l").unwrap();
    assert!(after.contains("1 complete: list --all names them"), "{after:?}");
    assert!(!after.contains("q: leave"), "{after:?}");
}

#[test]
#[ignore = "needs `script` of util-linux"]
fn a_list_in_a_format_for_a_code_or_without_watch_is_printed_once() {
    let sandbox = with_a_broken_rollout();
    for flags in ["--watch=false", "-o wide", "-o text", "--unfinished", "-o json"] {
        let (code, text) = Terminal::start(&sandbox, &format!("{PLUGIN} list {flags}")).end();
        assert_eq!(code, Some(if flags == "--unfinished" { 4 } else { 0 }), "{flags}: {text:?}");
        assert!(text.contains("web") && !text.contains("\u{1b}[?1049h"), "{flags}: {text:?}");
    }
    let (code, text) = Terminal::start(&sandbox, &format!("{PLUGIN} explain")).end();
    assert!(code == Some(0) && !text.contains("\u{1b}[?1049h"), "{text:?}");
}

#[test]
#[ignore = "needs `script` of util-linux"]
fn an_undo_asks_at_a_terminal_and_ctrl_c_is_no_answer() {
    let sandbox = with_a_broken_rollout();
    sandbox.eventually("/apis/apps/v1/namespaces/default/deployments/web", |web| {
        web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    });
    let mut terminal = Terminal::start(&sandbox, &format!("{PLUGIN} undo web"));
    terminal.shows("back to revision 1? [y/N] ");
    terminal.press(b"\x03");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(130), "{text:?}");
    let web = sandbox.get("/apis/apps/v1/namespaces/default/deployments/web");
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["image"], "app:broken");
    let mut terminal = Terminal::start(&sandbox, &format!("{PLUGIN} undo web"));
    terminal.shows("[y/N] ");
    terminal.press(b"y\n");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(0), "{text:?}");
    assert!(text.contains("rolled back to revision 1"), "{text:?}");
}

#[test]
#[ignore = "needs kubectl"]
fn kubectl_refuses_a_flag_before_the_name_of_the_plugin() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    let before = run(&sandbox, &["-n", "default", "windlass", "status", "web"]);
    assert_eq!(before.code, Some(1), "{before:?}");
    assert!(before.err.contains("flags cannot be placed before plugin name"), "{before:?}");
    let behind = run(&sandbox, &["windlass", "-n", "default", "status", "web", "--timeout=60s"]);
    assert_eq!(behind.code, Some(0), "{behind:?}");
}

#[test]
#[ignore = "needs kubectl and `script` of util-linux"]
fn a_reader_that_goes_away_and_ctrl_c_end_the_plugin_under_kubectl() {
    let sandbox = with_a_broken_rollout();
    let kubectl = kubectl();
    let path = plugin_directory(&sandbox);
    // Nobody reads: the first line that the plugin writes finds a closed pipe.
    let mut command = sandbox.command(&kubectl, &["windlass", "status", "web"]);
    let mut child = command.env("PATH", &path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = Ended::of(&child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");

    let line = format!("env PATH={} {} windlass status web --plain", path.display(), kubectl.display());
    let mut terminal = Terminal::start(&sandbox, &line);
    terminal.shows("ImagePullBackOff");
    terminal.press(b"\x03");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(130), "{text:?}");
}
