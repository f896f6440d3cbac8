//! `process_*`, the metrics that every Prometheus client library has, read from `/proc` at each rendering.
//!
//! The collector of the `prometheus` crate needs three crates more, which take longer to compile than the rest of it.

use std::fs;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, IntGauge};

/// Linux counts the time of processes in hundredths of a second, whatever its own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads a figure of this process; `None` where it cannot be read.
type Read = fn() -> Option<i64>;

/// This process.
pub(super) struct Process {
    cpu_seconds: Counter,
    /// Each gauge with its reader; a figure that cannot be read keeps its last value.
    gauges: Vec<(IntGauge, Read)>,
}

impl Process {
    /// Nothing has been read yet.
    ///
    /// # Errors
    /// When Prometheus does not accept a name.
    pub fn new() -> prometheus::Result<Self> {
        let all: [(&str, &str, Read); 7] = [
            ("process_open_fds", "Number of open file descriptors.", open_files),
            ("process_max_fds", "Maximum number of open file descriptors.", most_open_files),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes.", || status("VmSize:", 1024)),
            ("process_resident_memory_bytes", "Resident memory size in bytes.", || status("VmRSS:", 1024)),
            (
                "process_memory_limit_bytes",
                "Memory limit of the container in bytes; 0 without one.",
                memory_limit,
            ),
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                start_time,
            ),
            ("process_threads", "Number of OS threads in the process.", || status("Threads:", 1)),
        ];
        let gauges = all.into_iter().map(|(name, help, read)| Ok((IntGauge::new(name, help)?, read)));
        Ok(Process {
            cpu_seconds: Counter::new(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
            )?,
            gauges: gauges.collect::<prometheus::Result<_>>()?,
        })
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        let gauges = self.gauges.iter().flat_map(|(gauge, _)| gauge.desc());
        self.cpu_seconds.desc().into_iter().chain(gauges).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if let Some(seconds) = cpu_seconds() {
            // Two renderings at once may come in the other order, and a counter never falls.
            self.cpu_seconds.inc_by((seconds - self.cpu_seconds.get()).max(0.0));
        }
        for (gauge, read) in &self.gauges {
            if let Some(value) = read() {
                gauge.set(value);
            }
        }
        let gauges = self.gauges.iter().flat_map(|(gauge, _)| gauge.collect());
        self.cpu_seconds.collect().into_iter().chain(gauges).collect()
    }
}

fn open_files() -> Option<i64> {
    // The directory itself is open meanwhile.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as i64)
}

fn most_open_files() -> Option<i64> {
    number_after("/proc/self/limits", "Max open files")
}

/// A figure of `/proc/self/status`, such as `VmRSS:     4096 kB`.
fn status(name: &str, unit: i64) -> Option<i64> {
    Some(number_after("/proc/self/status", name)? * unit)
}

fn start_time() -> Option<i64> {
    let after_boot = ticks()?.nth(21 - AFTER_NAME)? / TICKS_PER_SECOND;
    Some(number_after("/proc/stat", "btime")? + after_boot as i64)
}

fn cpu_seconds() -> Option<f64> {
    let mut times = ticks()?.skip(13 - AFTER_NAME);
    Some((times.next()? + times.next()?) / TICKS_PER_SECOND)
}

/// How many fields of `/proc/self/stat` are left out by [`ticks`]: the identifier and the name.
const AFTER_NAME: usize = 2;

/// The figures of `/proc/self/stat` behind the program's name, which may have blanks and parentheses in it. What is no
/// number is not a number.
fn ticks() -> Option<impl Iterator<Item = f64>> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let numbers: Vec<f64> = fields.split_whitespace().map(|it| it.parse().unwrap_or(f64::NAN)).collect();
    Some(numbers.into_iter())
}

/// The limit of the control group, version 2 or 1, that a container sees as the root. Without a limit version 2 has the
/// word `max` there, and version 1 a number of nearly 2^63.
fn memory_limit() -> Option<i64> {
    const UNLIMITED: i64 = 1 << 60;
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let text = files.iter().find_map(|file| fs::read_to_string(file).ok())?;
    Some(text.trim().parse().ok().filter(|&limit| limit < UNLIMITED).unwrap_or(0))
}

/// The number that follows this text at the beginning of a line.
fn number_after(file: &str, text: &str) -> Option<i64> {
    let lines = fs::read_to_string(file).ok()?;
    lines.lines().find_map(|line| line.strip_prefix(text)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Vec<(String, f64)> {
        let value = |family: &MetricFamily| {
            let metric = &family.get_metric()[0];
            let is_counter = family.name().ends_with("_total");
            if is_counter { metric.get_counter().get_value() } else { metric.get_gauge().get_value() }
        };
        let families = Process::new().unwrap().collect();
        families.iter().map(|family| (family.name().to_owned(), value(family))).collect()
    }

    #[test]
    fn every_figure_is_that_of_this_process() {
        let process = values();
        let value = |name: &str| process.iter().find(|(it, _)| it == name).unwrap().1;
        assert_eq!(process.len(), 8);
        let limit = value("process_memory_limit_bytes");
        assert!(limit == 0.0 || (1e6..1e18).contains(&limit), "{limit}");
        assert!((0.0..86_400.0).contains(&value("process_cpu_seconds_total")));
        assert!((3.0..=value("process_max_fds")).contains(&value("process_open_fds")));
        assert!(
            (1e6..value("process_virtual_memory_bytes")).contains(&value("process_resident_memory_bytes"))
        );
        assert!((1.0..10_000.0).contains(&value("process_threads")));
        let now = crate::clock::Clock::System.now().as_second() as f64;
        assert!((now - 86_400.0..=now + 1.0).contains(&value("process_start_time_seconds")));
    }

    #[test]
    fn an_open_file_and_a_second_of_work_are_seen() {
        let process = Process::new().unwrap();
        process.collect();
        let (files, spent) = (process.gauges[0].0.get(), process.cpu_seconds.get());
        let open: Vec<_> = (0..50).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        while process.cpu_seconds.get() < spent + 0.05 {
            process.collect();
        }
        process.collect();
        assert!(process.gauges[0].0.get() >= files + 30, "{} after {files}", process.gauges[0].0.get());
        drop(open);
    }
}
