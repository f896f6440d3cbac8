//! When a rollout will be complete, from the pace of its new pods so far.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use windlass::model::Pod;

/// Pods that became available within this time of each other came in one wave.
const WAVE: SignedDuration = SignedDuration::from_secs(2);

/// How many waves the pace is taken from.
const WAVES: usize = 5;

/// The time until `desired` pods are available, if that can be told: from the pace of the last waves of `pods`, which
/// are those of the new ReplicaSet, since `started`.
///
/// Before the first pod is available nothing can be told, and neither after twice the usual time without another one:
/// then something is in the way.
pub fn estimate(
    pods: &[Arc<Pod>],
    min_ready_seconds: i32,
    desired: i32,
    started: Timestamp,
    now: Timestamp,
) -> Option<Duration> {
    let mut times: Vec<Timestamp> = pods
        .iter()
        .filter(|pod| pod.is_active())
        .filter_map(|pod| pod.available_at(min_ready_seconds))
        .filter(|at| *at > started && *at <= now)
        .collect();
    times.sort_unstable();
    let available =
        pods.iter().filter(|pod| pod.is_active() && pod.is_available(min_ready_seconds, now)).count();
    let missing =
        usize::try_from(desired).unwrap_or(0).checked_sub(available).filter(|missing| *missing > 0)?;

    // Each wave as the time of its first pod, and its size.
    let mut waves: Vec<(Timestamp, usize)> = Vec::new();
    for at in times {
        match waves.last_mut() {
            Some((first, size)) if at.duration_since(*first) <= WAVE => *size += 1,
            _ => waves.push((at, 1)),
        }
    }
    let (latest, _) = *waves.last()?;
    let recent = waves.get(waves.len().saturating_sub(WAVES)..)?;
    let before =
        waves.len().checked_sub(WAVES + 1).and_then(|at| waves.get(at)).map_or(started, |(at, _)| *at);
    let count = i64::try_from(recent.len()).ok()?;
    let pause =
        SignedDuration::from_millis(i64::try_from(latest.duration_since(before).as_millis()).ok()? / count);
    let size = (recent.iter().map(|(_, size)| size).sum::<usize>() / recent.len()).max(1);
    let passed = now.duration_since(latest);
    if passed > pause.saturating_mul(2) {
        return None;
    }
    let left = i32::try_from(missing.div_ceil(size)).ok()?;
    let rest = pause.saturating_mul(left) - passed;
    // A wave that is late comes any moment.
    let rest = rest.max(SignedDuration::from_secs(1));
    Duration::try_from(rest).ok()
}

#[cfg(test)]
mod tests {
    use windlass::model::{Interner, Record as _};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Pods that became ready at these seconds; of ten, in seconds from 0.
    fn left(ready: &[i64], min_ready: i32, now: i64) -> Option<u64> {
        let pod = |(number, second): (usize, &i64)| {
            let json = format!(
                r#"{{"metadata":{{"name":"p{number}","namespace":"n","uid":"u{number}","resourceVersion":"1"}},
                    "status":{{"phase":"Running","conditions":[
                      {{"type":"Ready","status":"True","lastTransitionTime":"{}"}}]}}}}"#,
                at(*second)
            );
            Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
        };
        let pods: Vec<Arc<Pod>> = ready.iter().enumerate().map(pod).collect();
        estimate(&pods, min_ready, 10, at(0), at(now)).map(|left| left.as_secs())
    }

    #[test]
    fn waves_of_pods_set_the_pace() {
        assert_eq!(left(&[12, 13, 24, 24], 0, 24), Some(36), "six more in three waves of 12 s");
        assert_eq!(left(&[12, 13, 24, 24], 0, 30), Some(30));
        assert_eq!(left(&[3, 6, 9, 12, 15, 25, 35, 45], 0, 45), Some(14), "the last five waves took 36 s");
    }

    #[test]
    fn min_ready_seconds_count_as_part_of_the_pace() {
        assert_eq!(left(&[10], 5, 14), None, "not available yet");
        assert_eq!(left(&[10, 10], 5, 15), Some(60));
    }

    #[test]
    fn nothing_is_told_before_the_first_pod_or_when_it_takes_twice_as_long() {
        assert_eq!(left(&[], 0, 60), None);
        assert_eq!(left(&[10, 20], 0, 40), Some(60));
        assert_eq!(left(&[10, 20], 0, 41), None);
        assert_eq!(left(&[1; 10], 0, 5), None, "all are there");
    }
}
