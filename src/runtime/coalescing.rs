//! A thread that is busy looks for what has arrived once in a while, and not for each piece of it.
//!
//! Under load a byte arrives every few dozen microseconds: an event of a watch comes in three pieces, and the answer to a
//! write in two. A thread that has nothing to do between them falls asleep and is woken for each, some thirty times for
//! each pod of a large Job, and reads, decodes and decides as often. Network cards have the same problem and the same
//! answer (interrupt coalescing).

use std::cell::Cell;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::Instant;

/// How long a busy thread rests. An answer of an API server takes some milliseconds: one more is not seen.
const REST: Duration = Duration::from_millis(1);

/// How soon after it has fallen asleep a busy thread is woken. One that is woken less often than a hundred times a second
/// has nothing to save.
const SOON: Duration = Duration::from_millis(10);

thread_local! {
    /// Since when the thread has been asleep.
    static ASLEEP: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Whether it was woken within [`SOON`] last time.
    static IS_BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Lets a runtime of one thread rest for a millisecond before it falls asleep while it is busy. The first event after a
/// silence is handled at once.
pub fn coalesce_wake_ups(builder: &mut Builder) -> &mut Builder {
    let fall_asleep = || {
        if IS_BUSY.get() {
            std::thread::sleep(REST);
        }
        ASLEEP.set(Some(Instant::now()));
    };
    let wake = || IS_BUSY.set(ASLEEP.get().is_some_and(|since| since.elapsed() < SOON));
    builder.on_thread_park(fall_asleep).on_thread_unpark(wake)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn what_arrives_in_a_burst_is_handled_together() {
        let runtime = coalesce_wake_ups(Builder::new_current_thread().enable_time()).build().unwrap();
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let sending = std::thread::spawn(move || {
            for number in 0..500 {
                sender.send(number).unwrap();
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        let (start, mut wake_ups, mut received) = (Instant::now(), 0, Vec::new());
        runtime.block_on(async {
            while receiver.recv_many(&mut received, 1000).await > 0 {
                wake_ups += 1;
            }
        });
        sending.join().unwrap();
        assert_eq!(received, Vec::from_iter(0..500), "nothing is lost");
        // A wake-up is a millisecond after the one before, or the first of a burst. However slow the machine is.
        let most = 2 * start.elapsed().as_millis() + 2;
        assert!(wake_ups <= most, "{wake_ups} wake-ups, at most {most}");
    }
}
