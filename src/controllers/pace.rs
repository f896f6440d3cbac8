//! How often the status of one object is written: about once a second, however fast its pods change. What
//! nobody may wait for is written at once, a fall of the ready or available pods among it: see `is_urgent` in
//! `plan/replicaset/status.rs` and `plan/deployment/status.rs`.
//!
//! Each write is a revision of the object that everybody who watches it gets. A rollout whose pods
//! become ready within a minute needs some sixty of them and not one per pod.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::Uid;

/// The shortest time between two writes of one status that nobody waits for.
pub const SPACING: Duration = Duration::from_secs(1);

/// When each object's status was last written, and since when one that is due has been put off.
#[derive(Debug, Default)]
pub struct Pace(Mutex<Times>);

#[derive(Debug, Default)]
struct Times {
    written: BTreeMap<Uid, Instant>,
    put_off: BTreeMap<Uid, Instant>,
}

impl Pace {
    /// How long the next write has to wait; `None` when it may go at once.
    pub fn wait(&self, object: &Uid, now: Instant) -> Option<Duration> {
        let last = *self.0.lock().written.get(object)?;
        Some((last + SPACING).saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// How long a status may wait that will say more soon; `None` when it has waited for a second.
    pub fn put_off(&self, object: &Uid, now: Instant) -> Option<Duration> {
        let since = *self.0.lock().put_off.entry(object.clone()).or_insert(now);
        Some((since + SPACING).saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Notes a write.
    pub fn wrote(&self, object: &Uid, now: Instant) {
        let mut times = self.0.lock();
        times.put_off.remove(object);
        times.written.insert(object.clone(), now);
    }

    /// The object is gone.
    pub fn forget(&self, object: &Uid) {
        let mut times = self.0.lock();
        times.put_off.remove(object);
        times.written.remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_write_waits_until_a_second_after_the_first() {
        let (pace, object, start) = (Pace::default(), Uid::new("u"), Instant::now());
        assert_eq!(pace.wait(&object, start), None);
        pace.wrote(&object, start);
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(pace.wait(&object, at(400)), Some(Duration::from_millis(600)));
        assert_eq!(pace.wait(&object, at(1000)), None);
        assert_eq!(pace.wait(&Uid::new("other"), at(1)), None);
        pace.forget(&object);
        assert_eq!(pace.wait(&object, at(400)), None);
    }

    #[test]
    fn a_status_is_put_off_for_a_second_however_often_there_is_more_to_come() {
        let (pace, object, start) = (Pace::default(), Uid::new("u"), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(pace.put_off(&object, start), Some(SPACING));
        assert_eq!(pace.put_off(&object, at(900)), Some(Duration::from_millis(100)));
        assert_eq!(pace.put_off(&object, at(1000)), None);
        pace.wrote(&object, at(1000));
        assert_eq!(pace.put_off(&object, at(1000)), Some(SPACING));
    }
}
