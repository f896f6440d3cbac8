//! The cost of a rollout on the sandbox: CPU time and memory of all its parts, the API server, the simulated nodes,
//! the collectors and the controllers. `cargo bench --bench sandbox`, or with `-- 100 20` for 100 Deployments of 20 pods.
//!
//! The default is 500 Deployments of 20 pods. It fails above 10 s of CPU time or 150 MB of resident memory, and if a
//! watch of the sandbox's own had to start again.
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // It reports to a terminal, and measures real time.

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(target_os = "linux")]
mod measure {
    use std::fmt::Write as _;
    use std::process::ExitCode;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use clap::Parser as _;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};
    use windlass::clock::Clock;
    use windlass_sandbox::cli::Args;
    use windlass_sandbox::controllers;
    use windlass_sandbox::session::{self, Environment};
    use windlass_testkit::usage;

    const MOST_CPU: Duration = Duration::from_secs(10);
    const MOST_MEMORY: u64 = 150_000_000;

    /// Counts warnings: a watch that expires is one.
    #[derive(Default)]
    struct Warnings(AtomicUsize);

    impl Subscriber for &'static Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::WARN
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            struct Line(String);
            impl Visit for Line {
                fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                    let _ = write!(self.0, " {}={value:?}", field.name());
                }
            }
            let mut line = Line(String::new());
            event.record(&mut line);
            println!("{}{}", event.metadata().level(), line.0);
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    fn manifest(deployments: usize, pods: usize) -> String {
        let deployment = |number| {
            format!(
                "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web-{number}, namespace: default}}, spec: {{\
                 replicas: {pods}, selector: {{matchLabels: {{app: web-{number}}}}}, template: {{\
                 metadata: {{labels: {{app: web-{number}}}}}, spec: {{containers: [{{name: main, image: 'nginx:1.27'}}]}}}}}}}}\n"
            )
        };
        (0..deployments).map(deployment).collect::<Vec<_>>().join("---\n")
    }

    pub fn run() -> ExitCode {
        static WARNINGS: Warnings = Warnings(AtomicUsize::new(0));
        let numbers: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
        let [deployments, pods] = numbers[..] else { return measure(&WARNINGS, 500, 20) };
        measure(&WARNINGS, deployments, pods)
    }

    fn measure(warnings: &'static Warnings, deployments: usize, pods: usize) -> ExitCode {
        tracing::subscriber::set_global_default(warnings).expect("the first subscriber");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let kubeconfig = directory.path().join("kubeconfig").display().to_string();
        // A node has room for 1,000 pods.
        let nodes = (deployments * pods).div_ceil(1000).max(3).to_string();
        let flags =
            ["windlass-sandbox", "-f", "-", "--exit-when-complete", "--timeout", "30m", "--nodes", &nodes];
        let args = Args::parse_from(flags.into_iter().chain(["--write-kubeconfig", kubeconfig.as_str()]));
        let environment = Environment {
            now: Arc::new(|| Clock::System.now()),
            input: Box::new(std::io::Cursor::new(manifest(deployments, pods))),
            output: Box::new(std::io::sink()),
            terminal: false,
            colour: false,
            interrupted: Box::pin(std::future::pending()),
        };
        let start = Box::new(|client, running, shutdown| {
            controllers::start(client, running, Clock::System, 0, shutdown)
        });
        let begun = Instant::now();
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(session::run(args, environment, start)).expect("everything is rolled out");
        let (cpu, memory) = (usage::cpu(std::process::id()), usage::peak(std::process::id()));
        let warnings = warnings.0.load(Ordering::Relaxed);
        println!(
            "{deployments} Deployments of {pods} pods: {:.1} s of CPU time, {} MB at most, {warnings} warnings, in {:.0} s",
            cpu.as_secs_f64(),
            memory / 1_000_000,
            begun.elapsed().as_secs_f64(),
        );
        if deployments * pods > 10_000 || (cpu <= MOST_CPU && memory <= MOST_MEMORY && warnings == 0) {
            return ExitCode::SUCCESS;
        }
        println!("the limits are {} s, {} MB and no warnings", MOST_CPU.as_secs(), MOST_MEMORY / 1_000_000);
        ExitCode::FAILURE
    }
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    measure::run()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("skipped: it reads /proc");
}
