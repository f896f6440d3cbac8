//! `plan ds/NAME`: the rollout of a DaemonSet before it begins, by its nodes.

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{DaemonSet, Interner, Record as _};
use windlass::plan::Reason;
use windlass::plan::daemonset::{JudgedNodes, PlanReason};
use windlass::plan::preview::daemon_set::{self, DaemonStart, preview_daemon_set};
use windlass::plan::preview::{Kubelet, Preview, Room};

use super::by_revision::{Rollout, decoded};
use crate::rollout::Workload;
use crate::text::{counted, span};

impl Rollout for DaemonStart {
    fn of(wanted: &Value, workload: &Workload, now: Timestamp) -> Result<Self, serde_json::Error> {
        let interner = &mut Interner::default();
        let daemon_set = DaemonSet::decode(&wanted.to_string(), interner)?;
        Ok(DaemonStart {
            nodes: JudgedNodes::of(&daemon_set, &decoded(&workload.nodes, interner)),
            daemon_set,
            revisions: decoded(&workload.revisions, interner),
            pods: decoded(&workload.pods, interner),
            now,
            kubelet: Kubelet::default(),
            rooms: Vec::new(),
        })
    }

    fn play(&self, kubelet: Kubelet, rooms: Vec<Room>) -> Preview {
        preview_daemon_set(DaemonStart { kubelet, rooms, ..self.clone() })
    }

    fn size(&self) -> i64 {
        self.desired().into()
    }

    fn bounds(&self) -> String {
        let nodes = counted(self.size(), "node");
        match daemon_set::bounds(&self.daemon_set, self.desired()) {
            None => format!("{nodes}; OnDelete: a pod is replaced only when a user deletes it"),
            Some((0, most)) => format!("{nodes}; at most {most} at a time without an available pod"),
            Some((most, _)) => format!("{nodes}; at most {most} at a time with a new pod beside the old one"),
        }
    }

    fn held(&self, preview: &Preview) -> Option<String> {
        let waits = || preview.waits_for.iter();
        let is_on_delete = |reason: &&Reason| matches!(reason, Reason::Nodes(PlanReason::OnDelete { .. }));
        let outdated = waits().find(is_on_delete).filter(|_| waits().all(Reason::is_at_rest));
        outdated
            .map(|outdated| format!("nothing more happens. {outdated}"))
            .or_else(|| left_alone(preview, self.size()))
    }

    fn claims(&self, _: &Preview) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// The nodes that are not ready, if they alone keep old pods or none, as the policy asks.
fn left_alone(preview: &Preview, desired: i64) -> Option<String> {
    let (reason, nodes) = preview.waits_for.iter().find_map(|reason| match reason {
        Reason::Nodes(PlanReason::LeftAlone { nodes }) => Some((reason, nodes.names.len() + nodes.more)),
        _ => None,
    })?;
    let last = preview.steps.last()?;
    let new: i32 =
        preview.parts.iter().filter(|part| part.is_new).filter_map(|part| last.sizes.get(&part.name)).sum();
    let is_rest = last.available >= new.into() && i64::from(new) + i64::try_from(nodes).ok()? >= desired;
    is_rest.then(|| format!("all other nodes follow within {}. {reason}", span(preview.took)))
}
