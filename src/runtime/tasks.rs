//! Tasks with names: one that ends unexpectedly, or panics, is reported with its name.

use std::borrow::Cow;

use futures::FutureExt;

/// How a named task ended; an error is the text of a panic.
pub type Ended = (Cow<'static, str>, Result<(), String>);

/// Gives a task a name, with which its end or its panic is reported.
pub async fn named(name: impl Into<Cow<'static, str>>, task: impl Future<Output = ()>) -> Ended {
    let name = name.into();
    // The state that the task leaves behind is not used any more: its end ends the daemon.
    let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
    (name, ended.map_err(|panic| panic_text(panic.as_ref()).to_owned()))
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
