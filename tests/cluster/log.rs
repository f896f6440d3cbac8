//! The program's log at its default verbosity.

use std::io::Write;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};

/// While one subscriber lives, tracing asks only the thread that reaches a line first whether anyone listens, and remembers
/// its no for the others (`has_just_one` of `tracing-core/src/callsite.rs`): lines that another test reaches first would be
/// missing here. With a second one, which wants nothing, it asks both.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// The log of this thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Keeps what is logged until the guard is dropped.
    pub(crate) fn capture() -> (Self, DefaultGuard) {
        LazyLock::force(&SECOND);
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            windlass::logging::subscriber(&Default::default(), move || writer.clone(), false).unwrap();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }

    /// The lines of a level, such as `ERROR`.
    pub(crate) fn lines(&self, level: &str) -> Vec<String> {
        let text = self.text();
        let is = |line: &&str| line.split_whitespace().nth(1) == Some(level);
        text.lines().filter(is).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
