//! Plays the same workloads with kube-controller-manager and with Windlass, on real API servers, and compares what
//! users can see.
//!
//! `KUBEBUILDER_ASSETS` names a folder with `etcd`, `kube-apiserver` and `kube-controller-manager`. Without it one
//! line says that nothing was compared.
//!
//! ```console
//! $ KUBEBUILDER_ASSETS=/path/to/assets cargo test --test differential
//! $ ... cargo test --test differential -- rollback       # only the workloads with this in their name
//! $ ... cargo test --test differential -- --noise        # upstream with itself: what timing makes different
//! $ ... cargo test --test differential -- --ignore TEXT  # say nothing of paths with this in them
//! $ ... cargo test --test differential -- --keep DIR     # logs and histories stay in this folder
//! ```

mod harness;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use harness::play::{Compared, Played, play};
use harness::report::{Scope, report};
use harness::workloads::{self, Workload};
use windlass_testkit::controllers::{self, Side};

/// The options of the command line. Flags of cargo's own test programs are accepted and ignored.
#[derive(Default)]
struct Options {
    names: Vec<String>,
    noise: bool,
    list: bool,
    keep: Option<PathBuf>,
    ignored: Option<String>,
}

fn parse_options() -> Options {
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--noise" => options.noise = true,
            "--list" => options.list = true,
            "--keep" => options.keep = args.next().map(PathBuf::from),
            "--ignore" => options.ignored = args.next(),
            flag if flag.starts_with('-') => {}
            name => options.names.push(name.to_owned()),
        }
    }
    options
}

fn main() -> ExitCode {
    let options = parse_options();
    let all = workloads::all();
    let is_selected = |it: &&&'static Workload| {
        options.names.is_empty() || options.names.iter().any(|name| it.name.contains(name.as_str()))
    };
    let chosen: Vec<&'static Workload> = all.iter().filter(is_selected).copied().collect();
    let mut out = std::io::stderr();
    if options.list {
        let mut stdout = std::io::stdout();
        for workload in chosen {
            writeln!(stdout, "{}: test", workload.name).unwrap();
        }
        return ExitCode::SUCCESS;
    }
    let assets = match controllers::assets() {
        Ok(assets) => assets,
        Err(missing) => {
            writeln!(out, "test differential ... ignored, needs kube-controller-manager: {missing}").unwrap();
            return ExitCode::SUCCESS;
        }
    };
    if chosen.is_empty() {
        writeln!(out, "differential: no workload is named so").unwrap();
        return ExitCode::SUCCESS;
    }
    if let Some(keep) = &options.keep {
        std::fs::create_dir_all(keep).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let other = if options.noise { Side::Upstream } else { Side::Windlass };
    // One API server after the other: two would slow each other down.
    let (upstream, windlass) = runtime.block_on(async {
        let mut played: [BTreeMap<&'static str, Played>; 2] = Default::default();
        for (compared, group) in [
            (Compared::Workloads, workloads::of_workloads()),
            (Compared::Cluster, workloads::of_the_cluster()),
            (Compared::Batches, workloads::of_batches()),
            (Compared::Services, workloads::of_services()),
        ] {
            let is_in = |it: &&&'static Workload| group.iter().any(|other| other.name == it.name);
            let chosen: Vec<&'static Workload> = chosen.iter().filter(is_in).copied().collect();
            if chosen.is_empty() {
                continue;
            }
            let keep = options.keep.as_deref();
            played[0].extend(play(&assets, Side::Upstream, compared, &chosen, keep).await);
            let keep = keep.filter(|_| !options.noise);
            played[1].extend(play(&assets, other, compared, &chosen, keep).await);
        }
        played.into()
    });
    let scope = Scope {
        all_were_played: chosen.len() == all.len(),
        noise: options.noise,
        ignored: options.ignored.as_deref(),
    };
    let report = report(&chosen, &upstream, &windlass, scope);
    writeln!(out, "{}", report.text).unwrap();
    writeln!(
        out,
        "differential: {} workloads, {} undeclared differences, {} declared, {} declarations without one, {} broken scripts",
        chosen.len(),
        report.undeclared,
        report.declared,
        report.unused,
        report.broken,
    )
    .unwrap();
    if report.undeclared + report.unused + report.broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
