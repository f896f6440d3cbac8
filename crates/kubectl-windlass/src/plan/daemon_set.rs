//! `plan ds/NAME`: the rollout of a DaemonSet before it begins, by its nodes.

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{DaemonSet, Interner, Record as _};
use windlass::plan::Reason;
use windlass::plan::daemonset::PlanReason;
use windlass::plan::preview::daemon_set::{self, DaemonStart, preview_daemon_set};
use windlass::plan::preview::{Kubelet, Preview, Room};

use super::by_revision::{Rollout, decoded};
use crate::rollout::Workload;
use crate::text::counted;

impl Rollout for DaemonStart {
    fn of(wanted: &Value, workload: &Workload, now: Timestamp) -> Result<Self, serde_json::Error> {
        let interner = &mut Interner::default();
        Ok(DaemonStart {
            set: DaemonSet::decode(&wanted.to_string(), interner)?,
            revisions: decoded(&workload.revisions, interner),
            pods: decoded(&workload.pods, interner),
            nodes: decoded(&workload.nodes, interner),
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
        match daemon_set::bounds(&self.set, self.desired()) {
            None => format!("{nodes}; OnDelete: a pod is replaced only when a user deletes it"),
            Some((0, most)) => format!("{nodes}; at most {most} at a time without an available pod"),
            Some((most, _)) => format!("{nodes}; at most {most} at a time with a new pod beside the old one"),
        }
    }

    fn held(&self, preview: &Preview) -> Option<String> {
        let is_on_delete = |reason: &&Reason| matches!(reason, Reason::Nodes(PlanReason::OnDelete { .. }));
        let outdated = preview.waits_for.iter().find(is_on_delete)?;
        let is_waiting = |reason: &Reason| matches!(reason, Reason::Nodes(PlanReason::Waiting { .. }));
        (!preview.waits_for.iter().any(is_waiting)).then(|| format!("nothing more happens. {outdated}"))
    }

    fn claims(&self, _: &Preview) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
