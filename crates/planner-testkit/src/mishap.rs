//! What befalls the pods and sets of the toy world from outside: people, nodes, other programs.

use serde_json::{Value, json};

use super::world::{World, is_ready, pods, tag};

impl World {
    /// Somebody deletes pods by hand.
    pub fn delete_pods(&mut self, image: &str, count: usize) {
        self.say("user", &format!("web-{image}: delete {} by hand", pods(count)));
        let now = self.now.to_string();
        self.befall(image, count, is_ready, |pod| pod["metadata"]["deletionTimestamp"] = now.clone().into());
    }

    /// Pods fail for good, as those do that a node evicts; their objects stay.
    pub fn fail_pods(&mut self, image: &str, count: usize) {
        self.say("kubelet", &format!("web-{image}: {} failed", pods(count)));
        self.befall(image, count, is_ready, |pod| pod["status"] = json!({"phase": "Failed"}));
    }

    /// The readiness probes of running pods fail from now on.
    pub fn unready_pods(&mut self, image: &str, count: usize) {
        self.say("kubelet", &format!("web-{image}: {} unready", pods(count)));
        let now = self.now.to_string();
        self.befall(image, count, is_ready, |pod| {
            pod["status"]["conditions"][0]["status"] = "False".into();
            pod["status"]["conditions"][0]["lastTransitionTime"] = now.clone().into();
        });
    }

    /// The readiness probes of running pods succeed again.
    pub fn ready_pods_again(&mut self, image: &str, count: usize) {
        self.say("kubelet", &format!("web-{image}: {} ready again", pods(count)));
        let now = self.now.to_string();
        let is_unready = |pod: &Value| pod["status"]["conditions"][0]["status"] == "False";
        self.befall(image, count, is_unready, |pod| {
            pod["status"]["conditions"][0]["status"] = "True".into();
            pod["status"]["conditions"][0]["lastTransitionTime"] = now.clone().into();
        });
    }

    /// Pods that would not stop do so after all.
    pub fn let_go(&mut self, image: &str) {
        self.say("kubelet", &format!("web-{image} can stop now"));
        self.stuck.retain(|stuck| stuck != image);
    }

    /// Another program writes an annotation on the set of an image.
    pub fn annotate_set(&mut self, image: &str, key: &str, value: &str) {
        self.say("user", &format!("web-{image}: annotation {key} = {value}"));
        let set = self.sets.values_mut().find(|set| tag(&set["spec"]["template"]["spec"]) == image);
        set.expect("a set of this image")["metadata"]["annotations"][key] = value.into();
    }

    fn befall(
        &mut self,
        image: &str,
        count: usize,
        whom: impl Fn(&Value) -> bool,
        what: impl Fn(&mut Value),
    ) {
        let mut hit = 0;
        for pod in self.pods.values_mut().filter(|pod| tag(&pod["spec"]) == image && whom(pod)).take(count) {
            what(pod);
            hit += 1;
        }
        assert_eq!(hit, count, "web-{image} has no such pods\n{}", self.transcript);
        // What the world took away is not the planner's doing: the next check starts from here.
        let ready = self.pods.values().filter(|pod| is_ready(pod)).count();
        self.deployment["reached"] = ready.into();
    }
}
