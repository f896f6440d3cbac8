//! Windlass beside kube-controller-manager: the same work on the same API server, one after the other.
//!
//! `KUBEBUILDER_ASSETS` names a folder with `etcd`, `kube-apiserver` and `kube-controller-manager`. Without them it
//! says what is missing.
//!
//! ```console
//! $ KUBEBUILDER_ASSETS=/path/to/assets cargo bench --bench compare
//! $ ... cargo bench --bench compare -- --pods 2000 --deployments 20 --rounds 1   # smaller
//! $ ... cargo bench --bench compare -- --rows calls,restart                      # only these
//! $ ... cargo bench --bench compare -- --keep DIR                                # logs stay in this folder
//! $ DIFFERENTIAL_WINDLASS=/path/to/windlass ... cargo bench --bench compare -- --alone   # another build of it
//! ```

mod bed;
mod cluster;
mod garbage;
mod jobs;
mod kubelet;
mod rows;
mod stateful_sets;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use windlass_testkit::controllers::{self, Side};
use windlass_testkit::figures::Figures;

use cluster::Cluster;

/// Compares Windlass with kube-controller-manager.
#[derive(Debug, Parser)]
pub struct Options {
    /// How often each side plays each row.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Quiet pods in the rows about restarts and takeovers.
    #[arg(long, default_value_t = 20_000)]
    pub pods: usize,
    /// Deployments of ten pods in the rows about CPU time.
    #[arg(long, default_value_t = 100)]
    pub deployments: usize,
    /// Pods of the first rollout whose calls are counted; the second has half as many.
    #[arg(long, default_value_t = 100)]
    pub rollout: usize,
    /// ConfigMaps without owners, beside those pods, in the rows about the garbage collector.
    #[arg(long, default_value_t = 100_000)]
    pub config_maps: usize,
    /// StatefulSets of ten pods in the rows about them.
    #[arg(long, default_value_t = 100)]
    pub stateful_sets: usize,
    /// Completions of the large Job in the rows about Jobs.
    #[arg(long, default_value_t = 5000)]
    pub completions: usize,
    /// Jobs of ten pods in them.
    #[arg(long, default_value_t = 500)]
    pub jobs: usize,
    /// CronJobs in them, of which a tenth is due.
    #[arg(long, default_value_t = 2000)]
    pub cron_jobs: usize,
    /// Services of ten pods in the rows about all controllers.
    #[arg(long, default_value_t = 500)]
    pub services: usize,
    /// The rows: cpu, calls, statefulset, job, bed, restart, takeover, garbage.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "cpu,calls,statefulset,job,bed,restart,takeover,garbage"
    )]
    pub rows: Vec<String>,
    /// Only Windlass: for profiles, and to compare two builds of it.
    #[arg(long)]
    pub alone: bool,
    /// The folder for the logs of both sides.
    #[arg(long)]
    pub keep: Option<PathBuf>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    pub bench: bool,
}

impl Options {
    /// Whether a row is to be played.
    pub fn wants(&self, row: &str) -> bool {
        self.rows.iter().any(|it| it == row)
    }
}

/// The sides in the order of this round: each begins every other round.
fn sides(options: &Options, round: u32) -> Vec<Side> {
    let mut sides = Side::BOTH;
    sides.rotate_left((round % 2) as usize);
    sides.into_iter().filter(|side| !options.alone || *side == Side::Windlass).collect()
}

/// Prints the progress.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "compare: {text}");
}

fn main() -> ExitCode {
    // `cargo test --benches` runs this, too, and must not take an hour.
    if !std::env::args().any(|arg| arg == "--bench") {
        say("nothing measured: run it by `cargo bench --bench compare`");
        return ExitCode::SUCCESS;
    }
    let options = Options::parse();
    let assets = match controllers::assets() {
        Ok(assets) => assets,
        Err(missing) => {
            say(&format!("skipped, {missing}"));
            return ExitCode::SUCCESS;
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let figures = runtime.expect("threads can be had").block_on(measure(&options, assets));
    let _ = writeln!(std::io::stdout(), "{}", figures.table());
    ExitCode::SUCCESS
}

async fn measure(options: &Options, assets: PathBuf) -> Figures {
    let mut figures = Figures::default();
    if options.wants("cpu") || options.wants("calls") {
        alone(options, &assets, &mut figures, rows::small).await;
    }
    if options.wants("statefulset") {
        alone(options, &assets, &mut figures, stateful_sets::measure).await;
    }
    if options.wants("job") {
        alone(options, &assets, &mut figures, jobs::measure).await;
    }
    if options.wants("bed") {
        alone(options, &assets, &mut figures, bed::measure).await;
    }
    if options.wants("restart") || options.wants("takeover") || options.wants("garbage") {
        let cluster = Cluster::start(&assets, options.keep.clone()).await;
        rows::fill(options, &cluster).await;
        if options.wants("restart") || options.wants("takeover") {
            for round in 0..options.rounds {
                for side in sides(options, round) {
                    rows::large(options, &cluster, side, &mut figures).await;
                }
                say(&format!("round {} of {}\n{}", round + 1, options.rounds, figures.table()));
            }
        }
        if options.wants("garbage") {
            garbage::fill(options, &cluster).await;
            for round in 0..options.rounds {
                for side in sides(options, round) {
                    garbage::measure(&cluster, side, round, &mut figures).await;
                }
                say(&format!("round {} of {}\n{}", round + 1, options.rounds, figures.table()));
            }
        }
    }
    figures
}

/// Measures with a server of its own for each round and side, so that leftovers of one do not cost the other.
async fn alone(
    options: &Options,
    assets: &Path,
    figures: &mut Figures,
    measure: impl AsyncFn(&Options, &Cluster, Side, &mut Figures),
) {
    for round in 0..options.rounds {
        for side in sides(options, round) {
            let cluster = Cluster::start(assets, options.keep.clone()).await;
            measure(options, &cluster, side, figures).await;
        }
        say(&format!("round {} of {}\n{}", round + 1, options.rounds, figures.table()));
    }
}
