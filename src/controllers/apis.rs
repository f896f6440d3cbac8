//! The API server as each controller calls it: with a rate limit of its own, and one turn for each owner.
//!
//! As upstream, where each controller of kube-controller-manager has a client of its own: a large scale-up of
//! one kind does not delay the writes of another controller. Within a controller, upstream serves requests in
//! the order of arrival; here no owner waits behind the batch of another.

use super::cluster::Cluster;
use crate::model::{Deployment, Record, ReplicationController, Resource};
use crate::runtime::api::Api;

/// One [`Api`] for each controller.
#[derive(Clone, Debug)]
pub struct Apis {
    deployment: Api,
    replica_set: Api,
    replication_controller: Api,
}

impl Apis {
    /// Makes one [`Api`] for each controller. They must not share a limiter.
    pub fn new(make: impl Fn() -> Api) -> Self {
        Apis { deployment: make(), replica_set: make(), replication_controller: make() }
    }

    /// That of the controller of this kind. Pods are created and deleted by the controller of their owner.
    pub fn of(&self, kind: Resource) -> &Api {
        if kind == Deployment::RESOURCE {
            &self.deployment
        } else if kind == ReplicationController::RESOURCE {
            &self.replication_controller
        } else {
            &self.replica_set
        }
    }
}

impl Cluster {
    /// The API server, for calls in a sync of this owner.
    pub(super) fn api_for<O: Record>(&self, owner: &O) -> Api {
        if planted!("one limiter serves all controllers") {
            return self.apis.deployment.clone();
        }
        self.apis.of(O::RESOURCE).on_behalf_of(&owner.meta().uid)
    }
}
