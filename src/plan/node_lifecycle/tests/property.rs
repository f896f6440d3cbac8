//! A cluster whose nodes fall silent, come back, are cordoned and tainted at random. Its objects are judged after each second.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{at, decode};
use crate::model::Node;
use crate::plan::node_lifecycle::health::Health;
use crate::plan::node_lifecycle::turns::{Turn, Turns};
use crate::plan::node_lifecycle::zones::{Zones, zone_of};
use crate::plan::node_lifecycle::{Limits, Observed, Plan, lost_status, node_patch, plan, taints};

/// The nodes as an API server stores them, and a controller with its memory.
struct World {
    nodes: Vec<Value>,
    /// Whether the kubelet of each reports.
    alive: Vec<bool>,
    health: Health,
    turns: Turns,
    was_cut_off: bool,
    limits: Limits,
    /// When nodes of each zone began to lose their pods.
    begun: BTreeMap<String, Vec<u64>>,
}

fn condition<'a>(node: &'a mut Value, kind: &str) -> &'a mut Value {
    let all = node["status"]["conditions"].as_array_mut().unwrap();
    let index = all.iter().position(|condition| condition["type"] == kind).unwrap_or_else(|| {
        all.push(json!({"type": kind}));
        all.len() - 1
    });
    &mut all[index]
}

impl World {
    fn new(rng: &mut fastrand::Rng) -> Self {
        let zones = rng.usize(1..4);
        let node = |n: usize| {
            json!({"metadata": {"name": format!("n{n}"), "uid": format!("u{n}"), "resourceVersion": "1",
                                "creationTimestamp": at(0).to_string(),
                                "labels": {"topology.kubernetes.io/zone": format!("z{}", n % zones)}},
                   "spec": {"taints": [{"key": "mine", "value": format!("{n}"), "effect": "NoExecute"}]},
                   "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": at(0).to_string()}]}})
        };
        let nodes: Vec<Value> = (0..rng.usize(1..9)).map(node).collect();
        World {
            alive: vec![true; nodes.len()],
            nodes,
            health: Health::default(),
            turns: Turns::default(),
            was_cut_off: false,
            limits: Limits { eviction_rate: 0.2, ..Limits::default() },
            begun: BTreeMap::new(),
        }
    }

    /// Lets kubelets and users act in this second.
    fn act(&mut self, rng: &mut fastrand::Rng, second: i64) {
        for (node, alive) in self.nodes.iter_mut().zip(&mut self.alive) {
            if rng.u8(0..80) == 0 {
                *alive = !*alive;
            }
            if rng.u8(0..200) == 0 {
                node["spec"]["unschedulable"] = json!(rng.bool());
            }
            if *alive && second % 10 == 0 {
                let status = if rng.u8(0..8) == 0 { "False" } else { "True" };
                let ready = condition(node, "Ready");
                ready["status"] = status.into();
                ready["lastHeartbeatTime"] = at(second).to_string().into();
            }
        }
    }

    /// Syncs all nodes until nothing is left to write.
    fn settle(&mut self, second: u64) {
        let mut records: Vec<_> = self.nodes.iter().map(decode).collect();
        for _ in 0..4 {
            let mut wrote = false;
            for n in 0..self.nodes.len() {
                if self.sync(n, &records, second) {
                    records[n] = decode(&self.nodes[n]);
                    wrote = true;
                }
            }
            if !wrote {
                return;
            }
        }
        panic!("a node is written again and again at second {second}");
    }

    /// Syncs one of the nodes, which `records` has as they are stored. Says whether it wrote.
    fn sync(&mut self, n: usize, records: &[Node], second: u64) -> bool {
        let now = Duration::from_secs(second);
        records.iter().for_each(|node| self.health.node(node, now));
        let zones = Zones::of(records);
        let is_cut_off = zones.are_all_disrupted();
        if self.was_cut_off && !is_cut_off {
            self.health.all_alive(now);
            self.turns.reset();
        }
        self.was_cut_off = is_cut_off;
        let node = &records[n];
        let zone = zone_of(node);
        let turn = match taints::needs_turn(node, is_cut_off) {
            true => self.turns.ask(&node.meta.uid, &zone, zones.rate(&zone, &self.limits), now),
            false => {
                self.turns.end(&node.meta.uid);
                Turn::Now
            }
        };
        let time = at(i64::try_from(second).unwrap());
        let plan = plan(&Observed {
            node,
            pods: Vec::new(),
            fall: Default::default(),
            silence: self.health.silence(node, now),
            are_all_disrupted: is_cut_off,
            turn,
            known: None,
            started: at(1),
            now: time,
            limits: self.limits,
        });
        let Plan { is_lost, taints, labels, .. } = &plan;
        if *is_lost {
            let patch = lost_status(node, time);
            for change in patch["status"]["conditions"].as_array().unwrap() {
                let stored = condition(&mut self.nodes[n], change["type"].as_str().unwrap());
                change.as_object().unwrap().iter().for_each(|(key, value)| stored[key] = value.clone());
            }
        }
        if let Some(change) = taints {
            self.nodes[n]["spec"]["taints"] =
                node_patch(&node.meta, taints.as_ref(), labels)["spec"]["taints"].clone();
            if change.begins_eviction {
                self.begun.entry(zone).or_default().push(second);
            }
        }
        *is_lost || taints.is_some()
    }

    /// Judges the objects.
    fn judge(&self, what: &str) {
        let ready = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array().unwrap();
            conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        let none_is_ready = !self.nodes.iter().any(ready);
        for (n, node) in self.nodes.iter().enumerate() {
            let taints = node["spec"]["taints"].as_array().unwrap();
            let has = |key: &str, effect: &str| {
                let key = format!("node.kubernetes.io/{key}");
                taints.iter().any(|taint| taint["key"] == *key && taint["effect"] == effect)
            };
            let mine = json!({"key": "mine", "value": format!("{n}"), "effect": "NoExecute"});
            assert_eq!(taints.iter().filter(|taint| **taint == mine).count(), 1, "{what}: {node}");
            assert_eq!(
                has("unschedulable", "NoSchedule"),
                node["spec"]["unschedulable"] == true,
                "{what}: {node}"
            );
            let is_kept_off = has("not-ready", "NoSchedule") || has("unreachable", "NoSchedule");
            assert_eq!(is_kept_off, !ready(node), "{what}: {node}");
            let (not_ready, unreachable) = (has("not-ready", "NoExecute"), has("unreachable", "NoExecute"));
            assert!(!(not_ready && unreachable), "{what}: {node}");
            if ready(node) || none_is_ready {
                assert!(!not_ready && !unreachable, "{what}: {node}");
            }
        }
        for times in self.begun.values() {
            let too_soon = times.windows(2).find(|pair| pair[1] - pair[0] < 5 && !self.was_cut_off);
            assert!(too_soon.is_none() || self.resets(times), "{what}: {times:?}");
        }
    }

    /// A cluster that was cut off begins its turns anew; then two may follow each other.
    fn resets(&self, times: &[u64]) -> bool {
        times.windows(3).all(|three| three[2] - three[0] >= 5)
    }
}

#[test]
fn no_history_evicts_from_a_ready_node_or_when_all_are_lost() {
    let (mut evictions, mut cut_off) = (0, 0);
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut world = World::new(&mut rng);
        for second in 1..600_u64 {
            world.act(&mut rng, i64::try_from(second).unwrap());
            world.settle(second);
            world.judge(&format!("seed {seed}, second {second}"));
            cut_off += usize::from(world.was_cut_off);
        }
        evictions += world.begun.values().map(Vec::len).sum::<usize>();
    }
    assert!(evictions > 100 && cut_off > 100, "{evictions} {cut_off}");
}
