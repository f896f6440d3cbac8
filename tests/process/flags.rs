//! Flags, environment variables and the configuration file, as the program takes them.

use serde_json::{Value, json};

/// Runs the daemon's program until it ends: exit code, standard output, standard error.
fn windlass(flags: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
    let output = command.args(flags).envs(env.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
    let mut config = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut config, b"kube-api-qps: 1\nkube-api-burst: 2\nv: 3\n").unwrap();
    let path = config.path().to_str().unwrap();
    let env = [("WINDLASS_KUBE_API_BURST", "20"), ("WINDLASS_V", "5"), ("WINDLASS_CONFIG", path)];
    let (code, printed, _) = windlass(&["--print-config", "-v=7"], &env);
    assert_eq!(code, Some(0));
    let config: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        [&config["kube-api-qps"], &config["kube-api-burst"], &config["v"], &config["secure-port"]],
        [&json!(1.0), &json!(20), &json!(7), &json!(10257)]
    );
}

#[test]
fn invalid_flags_end_the_program_with_code_2_before_anything_starts() {
    for (flags, words) in [
        (&["--controllers=jobs"][..], "--controllers must be a list of *, deployment-controller"),
        (&["--tls-cert-file=a"], "--tls-private-key-file"),
        (&["--cluster-cidr=10.0.0.0/8"], "keep it on its command line"),
        (&["--config=/does/not/exist"], "--config /does/not/exist"),
        (&["--kube-api-qps=many"], "--kube-api-qps"),
    ] {
        let (code, _, said) = windlass(flags, &[]);
        assert!(code == Some(2) && said.contains(words), "{flags:?}: {code:?} {said}");
        assert!(!said.contains("environment variable"), "{said}");
    }
    // As a Service called `windlass-secure` sets it in each pod of its namespace.
    let (code, _, said) = windlass(&[], &[("WINDLASS_SECURE_PORT", "tcp://10.0.0.1:443")]);
    assert_eq!(code, Some(2));
    assert!(said.contains("the value comes from the environment variable WINDLASS_SECURE_PORT"), "{said}");
}

#[test]
fn the_help_is_grouped_as_upstreams() {
    let (_, help, _) = windlass(&["--help"], &[]);
    for group in
        ["Generic", "Leader election", "Secure serving", "Authentication", "Authorization", "Logs", "Misc"]
    {
        assert!(help.contains(&format!("{group} flags:")), "{group} is missing in\n{help}");
    }
}
