//! The aggregation of ClusterRoles: a role gets the rules of the roles that it selects.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::one_write::{OneWrite, install};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{ClusterRole, Record};
use crate::plan::clusterrole_aggregation as planner;
use crate::runtime::request::PatchType;
use crate::runtime::store::{Change, Store};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "clusterrole-aggregation-controller",
    aliases: &[],
    kind: ClusterRole::RESOURCE,
    objects: "ClusterRoles",
    flag: "concurrent-clusterrole-aggregation-syncs",
    workers: 5,
    queue: "ClusterRoleAggregator",
    component: "clusterrole-aggregation-controller",
    watches: &[ClusterRole::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install: |setup: &mut Setup| -> Box<dyn Worker> {
        let context = setup.context().clone();
        let controller = RoleAggregation { roles: context.store(), context };
        install(controller, &ENTRY, setup)
    },
};

/// The aggregation of roles.
pub struct RoleAggregation {
    context: Arc<Context>,
    roles: Arc<Store<ClusterRole>>,
}

impl OneWrite for RoleAggregation {
    type Object = ClusterRole;
    type Write = Vec<Arc<str>>;

    /// There are few roles: a change of any of them concerns all that aggregate others.
    fn watch(&self, setup: &mut Setup) {
        let (context, roles) = (self.context.clone(), self.roles.clone());
        setup.on_change(HandlerOrder::Owner, move |_: &Change<ClusterRole>| {
            let queue = context.queue_of_controller(&ENTRY);
            roles.for_each(|role| {
                if role.selectors.is_some() {
                    queue.add(role.meta.key.clone());
                }
            });
        });
    }

    fn in_scope(&self, role: &ClusterRole) -> bool {
        role.selectors.is_some() && self.context.settings().scope.includes_the_cluster()
    }

    fn decide(&self, role: &ClusterRole) -> Option<Self::Write> {
        planner::plan(role, &self.roles.all())
    }

    fn write<'a>(
        &'a self,
        role: &'a ClusterRole,
        rules: &'a Self::Write,
    ) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(self.apply_rules(role, rules))
    }
}

/// A ClusterRole as it is applied: its rules, and nothing else.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Applied<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Value,
    rules: Vec<Box<RawValue>>,
}

impl RoleAggregation {
    /// Gives a role these rules, whoever else has written them. Where the API server has no server-side apply, they are
    /// merged (upstream: `syncClusterRole`).
    ///
    /// # Errors
    /// When the write fails, or its outcome is unknown.
    async fn apply_rules(&self, role: &ClusterRole, rules: &[Arc<str>]) -> Result<(), SyncError> {
        let (meta, resource) = (&role.meta, ClusterRole::RESOURCE);
        let what = || format!("aggregating the rules of {} {}", resource.kind, meta.key);
        let raw = rules.iter().map(|rule| RawValue::from_string(rule.to_string()));
        let rules: Vec<Box<RawValue>> =
            raw.collect::<Result<_, _>>().map_err(|error| SyncError::Json { what: what(), error })?;
        let body = Applied {
            api_version: &resource.api_version(),
            kind: resource.kind,
            // With the UID, an object that was deleted meanwhile is not created again.
            metadata: json!({"name": meta.key.name, "uid": meta.uid}),
            rules,
        };
        let manager = [("fieldManager", ENTRY.component), ("force", "true")];
        let applied = (PatchType::Apply, &manager[..]);
        let version =
            match self.context.patch_as::<ClusterRole>(&ENTRY, role, what, &meta.key, applied, &body).await {
                Err(SyncError::Refused { error, .. }) if error.is_unsupported_media_type() => {
                    let metadata =
                        json!({"uid": meta.uid, "resourceVersion": meta.resource_version.to_string()});
                    let body = json!({"metadata": metadata, "rules": body.rules});
                    let merged = (PatchType::Merge, &manager[..1]);
                    self.context.patch_as::<ClusterRole>(&ENTRY, role, what, &meta.key, merged, &body).await?
                }
                other => other?,
            };
        self.context.expect_write(role, resource, version);
        Ok(())
    }
}
