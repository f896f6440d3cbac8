//! The values that something had lately, or the events that occurred.

use std::time::Duration;

/// Values with the instants from which they held.
#[derive(Clone, Debug)]
pub(super) struct Window<T>(Vec<(Duration, T)>);

impl<T> Default for Window<T> {
    fn default() -> Self {
        Window(Vec::new())
    }
}

impl<T> Window<T> {
    /// An event occurs now.
    pub(super) fn happens(&mut self, at: Duration, value: T) {
        self.0.push((at, value));
    }

    /// The values since `since`, including the one just before: an instant lasts a millisecond.
    pub(super) fn since(&self, since: Duration) -> impl Iterator<Item = &T> {
        let after = self.0.partition_point(|(at, _)| *at < since);
        self.0.iter().skip(after.saturating_sub(1)).map(|(_, value)| value)
    }

    /// Whether there was a value before `since`.
    pub(super) fn began_before(&self, since: Duration) -> bool {
        self.0.first().is_some_and(|(at, _)| *at < since)
    }

    /// Whether an event occurred since `since`.
    pub(super) fn changed(&self, since: Duration) -> bool {
        self.0.last().is_some_and(|(at, _)| *at >= since)
    }

    /// The events since `since`.
    pub(super) fn happened(&self, since: Duration) -> impl Iterator<Item = &T> {
        self.0.iter().filter(move |(at, _)| *at >= since).map(|(_, value)| value)
    }

    /// The events from one instant to another, both included.
    pub(super) fn between(&self, first: Duration, last: Duration) -> impl Iterator<Item = &T> {
        let between = move |(at, _): &&(Duration, T)| (first..=last).contains(at);
        self.0.iter().filter(between).map(|(_, value)| value)
    }
}

impl<T: PartialEq> Window<T> {
    /// The value is `value` from now on.
    pub(super) fn set(&mut self, at: Duration, value: T) {
        if self.0.last().is_none_or(|(_, last)| *last != value) {
            self.0.push((at, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_with_the_value_that_held_at_its_beginning() {
        let mut window = Window::default();
        let at = Duration::from_secs;
        for (second, value) in [(1, 'a'), (5, 'b'), (6, 'b'), (9, 'c')] {
            window.set(at(second), value);
        }
        assert_eq!(window.since(at(7)).collect::<String>(), "bc");
        assert_eq!(window.since(at(5)).collect::<String>(), "abc");
        assert_eq!(window.since(at(6)).collect::<String>(), "bc");
        assert_eq!(window.since(at(10)).collect::<String>(), "c");
        assert_eq!(window.happened(at(5)).collect::<String>(), "bc");
        assert_eq!(window.between(at(2), at(9)).collect::<String>(), "bc");
        assert_eq!(window.between(at(1), at(5)).collect::<String>(), "ab");
        assert_eq!(window.between(at(2), at(4)).count(), 0);
    }
}
