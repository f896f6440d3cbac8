//! The tolerations of a pod that decide how long it stays on a node with taints of effect NoExecute.

use std::sync::Arc;

use super::meta::shared;
use super::texts::Texts;

/// The strings of one toleration: key, operator, value, effect and seconds.
pub(super) const FIELDS: usize = 5;

/// Tolerations of the effect NoExecute or of every effect, in their order. Pods of one template share them.
#[derive(Clone, Default, Debug, PartialEq, Eq, Hash)]
pub struct Tolerations(Texts);

/// One toleration, as the API has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Toleration<'a> {
    /// Empty for any key.
    pub key: &'a str,
    /// Empty for `Equal`.
    pub operator: &'a str,
    /// The value.
    pub value: &'a str,
    /// Empty for any effect.
    pub effect: &'a str,
    /// For how long it tolerates a taint of effect NoExecute; `None`: for ever.
    pub seconds: Option<i64>,
}

impl Tolerations {
    /// Those with these strings.
    pub(super) fn new(all: impl Iterator<Item = [String; FIELDS]>) -> Self {
        Tolerations(all.flatten().collect())
    }

    /// The tolerations, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Toleration<'_>> {
        (0..self.0.len() / FIELDS).map(|at| {
            let text = |field: usize| self.0.get(at * FIELDS + field);
            Toleration {
                key: text(0),
                operator: text(1),
                value: text(2),
                effect: text(3),
                seconds: text(4).parse().ok(),
            }
        })
    }

    /// The bytes of heap that they take.
    pub fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    /// The part of shared tolerations that falls to one pod.
    pub(super) fn shared_bytes(self: &Arc<Self>) -> usize {
        shared(self, self.heap_bytes())
    }
}
