//! Proxies of the environment and of the kubeconfig.

use crate::front::{Fate, Front};
use crate::harness::{Ended, PLUGIN, Sandbox};

fn run(sandbox: &Sandbox, args: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = sandbox.command(PLUGIN, args);
    command.envs(variables.iter().copied());
    Ended::of(&command.output().unwrap())
}

#[test]
fn a_proxy_is_used_and_no_proxy_is_honoured() {
    let sandbox = Sandbox::start(&[]);
    let proxy = Front::start(sandbox.address(), |_, _| Fate::Forward);
    let url = format!("http://{}", proxy.address);
    // A name that only the proxy can reach.
    let far = ["version", "-o", "json", "--server=http://api.invalid:6443"];
    let ended = run(&sandbox, &far, &[("HTTP_PROXY", &url)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let first = "GET http://api.invalid:6443/version";
    assert!(proxy.requests().iter().any(|request| request == first), "{:?}", proxy.requests());

    let before = proxy.requests().len();
    for exception in ["api.invalid", ".invalid", "*"] {
        let ended = run(&sandbox, &far, &[("HTTP_PROXY", &url), ("NO_PROXY", exception)]);
        assert!(!ended.out.contains("gitVersion") || ended.err.contains("api.invalid"), "{ended:?}");
    }
    // Loopback is never proxied by the environment.
    let near = run(&sandbox, &["version"], &[("HTTP_PROXY", &url), ("HTTPS_PROXY", &url)]);
    assert_eq!(near.code, Some(0), "{near:?}");
    assert_eq!(proxy.requests().len(), before);

    let text = std::fs::read_to_string(sandbox.file("kubeconfig")).unwrap();
    let server = format!("http://{}", sandbox.address());
    let with_proxy = text.replace(&server, &format!("http://api.invalid:6443\n    proxy-url: {url}"));
    std::fs::write(sandbox.file("kubeconfig"), with_proxy).unwrap();
    let ended = run(&sandbox, &["explain", "web"], &[("NO_PROXY", "*")]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("deployment default/web does not exist"), "{ended:?}");
    assert!(proxy.requests().len() > before);
}
