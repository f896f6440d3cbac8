//! The resources that a process has used so far, read from `/proc` on Linux.

use std::fs;
use std::time::Duration;

/// The unit of the times in `/proc/PID/stat`: Linux reports hundredths of a second on every architecture that
/// Kubernetes runs on.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of a process, its threads included.
///
/// # Panics
/// When there is no such process.
pub fn cpu(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("the process runs");
    cpu_of(&stat).unwrap_or_else(|| panic!("unknown form of /proc/{process}/stat: {stat}"))
}

/// Resident memory of a process in bytes.
///
/// # Panics
/// When there is no such process.
pub fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    bytes_of(&status, "VmRSS:").unwrap_or_else(|| panic!("no VmRSS in /proc/{process}/status"))
}

/// The most resident memory that a process has had, in bytes.
///
/// # Panics
/// When there is no such process.
pub fn peak(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    bytes_of(&status, "VmHWM:").unwrap_or_else(|| panic!("no VmHWM in /proc/{process}/status"))
}

/// User and system time, the fields 14 and 15. The name of the program, in parentheses, may hold anything.
fn cpu_of(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let (user, system): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(TICK * (user + system))
}

fn bytes_of(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added_whatever_the_program_is_called() {
        let stat = "4211 (a ) b) S 1 4211 4211 0 -1 4194560 2303 0 0 0 250 31 0 0 20 0 9 0 1177 73 2 18446744073709551615";
        assert_eq!(cpu_of(stat), Some(Duration::from_millis(2810)));
        assert_eq!(cpu_of("4211 (cut off"), None);
    }

    #[test]
    fn resident_memory_is_read_in_kilobytes() {
        let status = "Name:\tx\nVmHWM:\t  900 kB\nVmRSS:\t   12 kB\n";
        assert_eq!(bytes_of(status, "VmRSS:"), Some(12 << 10));
        assert_eq!(bytes_of(status, "VmHWM:"), Some(900 << 10));
        assert_eq!(bytes_of("Name:\tx\n", "VmRSS:"), None);
    }

    #[test]
    fn memory_that_was_given_back_stays_in_the_peak() {
        let (process, size) = (std::process::id(), 64 << 20);
        drop(std::hint::black_box(vec![1_u8; size]));
        assert!(resident(process) > 1 << 20 && peak(process) > size as u64);
    }

    #[test]
    fn the_time_of_this_process_is_readable() {
        let _readable = cpu(std::process::id());
    }
}
