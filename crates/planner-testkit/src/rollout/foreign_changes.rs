//! Foreign changes of the pods and ReplicaSets of a rollout: by users, nodes, other programs.

use std::sync::Arc;

use windlass::model::{Phase, Pod};
use windlass::plan::outcome_of;

use super::{Rollout, is_ready};
use crate::world::{PodChange, pods, tag};

impl Rollout {
    /// A user deletes pods.
    pub fn delete_pods(&mut self, image: &str, count: usize) {
        self.change_pods(image, count, is_ready, PodChange::Delete);
        self.say("user", &format!("web-{image}: delete {} by hand", pods(count)));
    }

    /// Pods fail finally, as after an eviction by the kubelet; their objects stay.
    pub fn fail_pods(&mut self, image: &str, count: usize) {
        self.change_pods(image, count, is_ready, PodChange::Fail);
        self.say("kubelet", &format!("web-{image}: {} failed", pods(count)));
    }

    /// The readiness probes of running pods fail from now on.
    pub fn unready_pods(&mut self, image: &str, count: usize) {
        self.change_pods(image, count, is_ready, PodChange::Unready);
        self.say("kubelet", &format!("web-{image}: {} unready", pods(count)));
    }

    /// The readiness probes of running pods succeed again.
    pub fn ready_pods_again(&mut self, image: &str, count: usize) {
        let is_unready = |pod: &Pod| pod.phase == Phase::Running && pod.ready_since.is_none();
        self.change_pods(image, count, is_unready, PodChange::Ready);
        self.say("kubelet", &format!("web-{image}: {} ready again", pods(count)));
    }

    /// Pods that did not terminate do so now.
    pub fn terminate_pods(&mut self, image: &str) {
        self.say("kubelet", &format!("web-{image} can stop now"));
        self.stuck.retain(|stuck| stuck != image);
    }

    /// Another program writes an annotation on the ReplicaSet of an image.
    pub fn annotate_replica_set(&mut self, image: &str, key: &str, value: &str) {
        self.say("user", &format!("web-{image}: annotation {key} = {value}"));
        let replica_set = self
            .world
            .objects
            .replica_sets
            .values_mut()
            .find(|replica_set| tag(&replica_set.template) == image);
        let replica_set = replica_set.expect("a ReplicaSet of this image");
        outcome_of::annotate(&mut Arc::make_mut(replica_set).annotations, key, value);
    }

    fn change_pods(
        &mut self,
        image: &str,
        count: usize,
        selected: impl Fn(&Pod) -> bool,
        pod_change: PodChange,
    ) {
        let is_hit = |(name, pod): &(&Arc<str>, &Arc<Pod>)| self.world.tags[*name] == image && selected(pod);
        let hit: Vec<Arc<str>> =
            self.world.objects.pods.iter().filter(is_hit).map(|(name, _)| name.clone()).take(count).collect();
        assert_eq!(hit.len(), count, "web-{image} has no such pods\n{}", self.transcript());
        for name in &hit {
            self.world.change_pod(name, pod_change);
        }
        // The planner did not delete these pods: the next check starts from here.
        self.reached = self.ready_pods();
    }
}
