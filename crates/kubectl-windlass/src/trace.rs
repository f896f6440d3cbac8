//! `-v`: the requests of the command on stderr, from level 6 on, as kubectl has it. A process runs one command, so the
//! level belongs to the process.

use std::io::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use http::{Method, Uri};

/// From this level on requests are logged.
const REQUESTS: u8 = 6;

static LEVEL: AtomicU8 = AtomicU8::new(0);

/// Sets the level of this process.
pub fn set_level(level: u8) {
    LEVEL.store(level, Ordering::Relaxed);
}

/// Logs a request with its outcome, such as a code. Neither headers nor bodies: they may hold secrets.
pub fn request(method: &Method, uri: &Uri, outcome: &str, took: Duration) {
    if LEVEL.load(Ordering::Relaxed) >= REQUESTS {
        let line = format!("{method} {uri} {outcome} in {} ms\n", took.as_millis());
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
