//! Rolling updates of ReplicationControllers before they begin: the planner of [`rolling_update`] decides, one resize a
//! look, as the client and the daemon do.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::nodes::{Kubelet, Room};
use super::{End, MOST_ROUNDS, Preview, Step, Visits, parts, step};
use crate::model::{Pod, ReplicaSet};
use crate::plan::outcome_of::rolling_update::{Names, apply};
use crate::plan::rolling_update::job::{Side, Write};
use crate::plan::rolling_update::{self, Bounds, Cleanup, Observed};

/// The objects at the beginning.
#[derive(Clone, Debug)]
pub struct RollingStart {
    /// The ReplicationController that shrinks.
    pub old: ReplicaSet,
    /// The one that grows.
    pub new: ReplicaSet,
    /// The pods of both.
    pub pods: Vec<Arc<Pod>>,
    /// The bounds.
    pub bounds: Bounds,
    /// The pause between new pods and the end of old ones.
    pub period: SignedDuration,
    /// The longest time without progress.
    pub timeout: SignedDuration,
    /// The time of the beginning.
    pub now: Timestamp,
    /// The rules of the kubelet.
    pub kubelet: Kubelet,
    /// The quotas of the namespace.
    pub rooms: Vec<Room>,
}

/// Plays a rolling update until the sizes are reached and the new pods are available. What becomes of the old controller
/// changes no pod.
pub fn preview_rolling_update(start: RollingStart) -> Preview {
    let RollingStart { old, new, pods, bounds, period, timeout, now: began, kubelet, rooms } = start;
    let (old_name, new_name) = (old.meta.key.name.clone(), new.meta.key.name.clone());
    let template = new.template.clone();
    let mut cluster = Cluster::of_sets(vec![old, new], template, pods, began, kubelet, rooms);
    let mut steps = vec![step(&cluster, began)];
    let end = play(&mut cluster, &mut steps, &Play { old_name, new_name, bounds, period, timeout, began });
    Preview {
        parts: parts(&cluster, cluster.sizes(), &steps),
        end,
        took: cluster.since(began),
        most_allowed: bounds.max_total,
        least_allowed: bounds.min_available,
        is_replica_set_refused: false,
        waits_for: Vec::new(),
        stopped_by: None,
        steps,
    }
}

struct Play {
    old_name: Arc<str>,
    new_name: Arc<str>,
    bounds: Bounds,
    period: SignedDuration,
    timeout: SignedDuration,
    began: Timestamp,
}

fn play(cluster: &mut Cluster, steps: &mut Vec<Step>, play: &Play) -> End {
    let Play { old_name, new_name, bounds, period, timeout, began } = play;
    // Nothing shrinks before this; progress is a resize, or another pod available.
    let (mut not_before, mut progress) = (*began, *began);
    let mut visits = Visits::of(play.bounds.desired);
    for _ in 0..MOST_ROUNDS {
        if !visits.allow(cluster.objects.pods.len()) {
            break;
        }
        cluster.nodes.refused = 0;
        let rounds = [cluster.sync_replica_sets(), cluster.run_kubelet()];
        if rounds.iter().any(|round| round.is_busy) {
            continue;
        }
        let seen = step(cluster, *began);
        if steps.last().is_none_or(|last| Step { after: last.after, ..seen.clone() } != *last) {
            let is_more = steps.last().is_none_or(|last| seen.available > last.available);
            if is_more {
                progress = cluster.objects.now;
            }
            steps.push(seen);
        }
        let replica_sets = &cluster.objects.replica_sets;
        let (Some(old), Some(new)) = (replica_sets.get(old_name), replica_sets.get(new_name)) else {
            return End::Waits;
        };
        let next = rolling_update::plan(&Observed {
            shrinking: Some(&**old),
            growing: new,
            pods: &cluster.objects.pods.values().cloned().collect::<Vec<_>>(),
            bounds: *bounds,
            cleanup: Cleanup::Preserve,
            label_key: "",
            now: cluster.objects.now,
        });
        let resize = match next {
            rolling_update::Step::Grow { to } => Some((Side::Target, to)),
            // The pause stands between new pods and the end of old ones.
            rolling_update::Step::Shrink { to } if cluster.objects.now >= not_before => Some((Side::Own, to)),
            rolling_update::Step::Shrink { .. } => None,
            rolling_update::Step::Wait(_) => None,
            _ => return End::Complete,
        };
        if let Some((side, to)) = resize {
            if side == Side::Target {
                not_before = cluster.objects.now.saturating_add(*period).unwrap_or(Timestamp::MAX);
            }
            let (names, resize) = (Names { own: old_name, target: new_name }, Write::Resize(side, to));
            if apply(&resize, None, names, &mut cluster.objects).is_err() {
                return End::Waits;
            }
            progress = cluster.objects.now;
            continue;
        }
        let deadline = progress.max(not_before).saturating_add(*timeout).unwrap_or(Timestamp::MAX);
        if cluster.objects.now >= deadline {
            return End::Stuck;
        }
        let looks = rounds.into_iter().flat_map(|round| round.looks).chain([not_before, deadline]);
        let Some(next) = looks.filter(|at| *at > cluster.objects.now).min() else { return End::Waits };
        cluster.objects.now = next;
    }
    End::Waits
}
