//! A question before a write.

use std::io::{BufRead as _, Write as _};

use crate::interruption::on_a_thread;

/// Asks on the terminal. Everything but a yes is a no.
#[allow(clippy::print_stderr)] // A question is no result: stdout may be read by a program.
pub async fn agrees(question: &str) -> bool {
    eprint!("{question} [y/N] ");
    let _ = std::io::stderr().flush();
    let answer = on_a_thread(|| {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let answer = answer.await.and_then(Result::ok).unwrap_or_default();
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
