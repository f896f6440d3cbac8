//! Records of cluster objects for the controllers: trimmed, decoded directly from the response.
//!
//! The one guarantee: a record holds what the logic reads and nothing else. `managedFields` is never
//! allocated, strings that many objects share are stored once, and a pod template stays raw JSON, so
//! that a field newer than any type of ours survives the way from a Deployment to its pods.

pub mod condition;
pub mod container_text;
pub mod controllerrevision;
pub mod daemonset;
pub mod deployment;
pub mod discovered;
pub mod int_or_percent;
pub mod intern;
pub mod meta;
pub mod namespace;
pub mod node;
pub mod owner;
pub mod pod;
pub mod protobuf;
pub mod quantity;
pub mod record;
pub mod replicaset;
pub mod replicationcontroller;
pub mod selector;
pub mod template;
pub mod template_equality;
pub mod wire;

pub use condition::Condition;
pub use container_text::ContainerText;
pub use controllerrevision::{CONTROLLER_REVISION_HASH, ControllerRevision};
pub use daemonset::{AnnotatedDaemonSet, DaemonSet, DaemonSetStatus, UpdateStrategy};
pub use deployment::{Deployment, DeploymentStatus, Strategy};
pub use intern::Interner;
pub use meta::{ControllerRef, Meta, ObjectKey, StringMap, Uid};
pub use namespace::{Namespace, NamespaceStatus};
pub use node::{Effect, Node, Taint};
pub use owner::Owner;
pub use pod::{Phase, Pod, Restarts, Waiting};
pub use record::{Record, Resource};
pub use replicaset::{ReplicaSet, ReplicaSetStatus};
pub use replicationcontroller::ReplicationController;
pub use selector::Selector;
pub use template::{POD_TEMPLATE_HASH, Template};
