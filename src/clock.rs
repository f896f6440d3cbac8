//! The only reader of the wall clock. Everything else gets a [`Clock`], or better, a `now`.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where `now` comes from: the machine, or tokio's (pausable) clock counted from a fixed start.
///
/// ```
/// use windlass::clock::Clock;
///
/// let runtime = tokio::runtime::Builder::new_current_thread()
///     .enable_time()
///     .start_paused(true)
///     .build()
///     .unwrap();
/// runtime.block_on(async {
///     let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
///     tokio::time::sleep(std::time::Duration::from_secs(600)).await;
///     assert_eq!(clock.now().to_string(), "2026-01-01T00:10:00Z");
/// });
/// ```
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's wall clock.
    System,
    /// `start` plus what has passed on tokio's clock since `since`. Under a paused runtime this is
    /// virtual time, so that ten minutes of a rollout cost a millisecond.
    Virtual {
        /// The time of the wall clock at `since`.
        start: Timestamp,
        /// The instant of tokio's clock that `start` belongs to.
        since: Instant,
    },
}

impl Clock {
    /// A virtual clock that reads `start` at this instant of tokio's clock.
    pub fn virtual_from(start: Timestamp) -> Self {
        Clock::Virtual { start, since: Instant::now() }
    }

    /// A clock that is this much ahead of this one, or behind it if negative: two machines never
    /// quite agree. The machine's own clock stays as it is.
    #[must_use]
    pub fn ahead_by(&self, time: SignedDuration) -> Self {
        match self {
            Clock::System => Clock::System,
            Clock::Virtual { start, since } => {
                let start = start.saturating_add(time).unwrap_or(Timestamp::MAX);
                Clock::Virtual { start, since: *since }
            }
        }
    }

    /// The time now.
    #[allow(clippy::disallowed_methods)] // This is the one place that may read the wall clock.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => Timestamp::now(),
            Clock::Virtual { start, since } => {
                start.saturating_add(since.elapsed()).unwrap_or(Timestamp::MAX)
            }
        }
    }
}
