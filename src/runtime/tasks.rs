//! Tasks with names: one that ends by itself, or panics, is reported with its name.

use std::borrow::Cow;

use futures::FutureExt;

/// How a named task ended; an error is the text of a panic.
pub type Ended = (Cow<'static, str>, Result<(), String>);

/// Gives a task a name that its end, and even its panic, is reported with.
pub async fn named(name: impl Into<Cow<'static, str>>, task: impl Future<Output = ()>) -> Ended {
    let name = name.into();
    // Whatever the task has left behind is not used any more: its end ends the daemon.
    let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
    (name, ended.map_err(|panic| panic_text(panic.as_ref()).to_owned()))
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
