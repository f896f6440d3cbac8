//! Records of cluster objects for the controllers: trimmed, decoded directly from the response.
//!
//! The one guarantee: a record holds what the logic reads and nothing else. `managedFields` is never
//! allocated, strings that many objects share are stored once, and a pod template stays raw JSON, so
//! that a field newer than any type of ours survives the way from a Deployment to its pods.

pub mod annotated;
pub mod clusterrole;
pub mod condition;
pub mod configmap;
pub mod container_text;
pub mod controllerrevision;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod discovered;
pub mod endpoints;
pub mod endpointslice;
pub mod indexes;
pub mod int_or_percent;
pub mod intern;
pub mod job;
pub mod meta;
pub mod metadata;
pub mod namespace;
pub mod node;
pub mod owner;
pub mod persistentvolume;
pub mod persistentvolumeclaim;
pub mod pod;
pub mod poddisruptionbudget;
pub mod protobuf;
pub mod quantity;
pub mod record;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resourcequota;
pub mod scale;
pub mod selector;
pub mod service;
pub mod serviceaccount;
pub mod statefulset;
pub mod template;
pub mod template_equality;
pub mod texts;
pub mod wire;

pub use annotated::Annotated;
pub use clusterrole::ClusterRole;
pub use condition::Condition;
pub use configmap::ConfigMap;
pub use container_text::ContainerText;
pub use controllerrevision::{CONTROLLER_REVISION_HASH, ControllerRevision, RevisionTemplate};
pub use cronjob::{ActiveJob, Concurrency, CronJob, CronJobStatus};
pub use daemonset::{DaemonSet, DaemonSetStatus, UpdateStrategy};
pub use deployment::{Deployment, DeploymentStatus, Strategy};
pub use endpoints::Endpoints;
pub use endpointslice::{AddressType, EndpointSlice};
pub use indexes::Indexes;
pub use intern::Interner;
pub use job::{CompletionMode, Job, JobStatus};
pub use meta::{ControllerRef, Meta, ObjectKey, StringMap, Uid};
pub use namespace::{Namespace, NamespaceStatus};
pub use node::{Effect, Node, Taint};
pub use owner::Owner;
pub use persistentvolume::PersistentVolume;
pub use persistentvolumeclaim::{ClaimOwner, ClaimUse, PersistentVolumeClaim};
pub use pod::{Phase, Pod, Restarts, Waiting};
pub use poddisruptionbudget::{DisruptionStatus, PodDisruptionBudget, Threshold};
pub use record::{Record, Resource};
pub use replicaset::{ReplicaSet, ReplicaSetStatus};
pub use replicationcontroller::ReplicationController;
pub use resourcequota::ResourceQuota;
pub use scale::{Scale, ScaledResource};
pub use selector::Selector;
pub use service::Service;
pub use serviceaccount::ServiceAccount;
pub use statefulset::{StatefulSet, StatefulSetStatus, StatefulSetStrategy};
pub use template::{POD_TEMPLATE_HASH, Template};
