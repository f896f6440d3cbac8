//! The names of a Job's pods: chosen before the pods are created, and the same in every process.
//!
//! Pods without an index take names as the pods of a ReplicaSet do. Those of an index are `<job>-<index>-<5 letters>`, where
//! the letters follow from the Job's UID, the index, and a number that rises with each pod of the index. So a request whose
//! reply was lost is repeated under the same name, and finds it taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Observed;
use crate::model::{Job, Uid};
use crate::plan::replicaset::names::Sequence;

/// How much of a name stands before the five letters.
const LONGEST_BASE: usize = 58;

/// The names that new pods may have.
#[derive(Clone, Debug, PartialEq)]
pub enum Names {
    /// Free names, in the order of their use, for pods without an index.
    Free(Vec<String>),
    /// For pods with an index: the numbers below which names of an index were used. 0 where it has none.
    Indexed(Arc<BTreeMap<i32, u32>>),
}

impl Names {
    /// The free names.
    pub fn free(&self) -> &[String] {
        match self {
            Names::Free(names) => names,
            Names::Indexed(_) => &[],
        }
    }
}

/// All names for the pods of an index, in their order.
pub fn of_index(job: &Job, index: i32) -> Sequence {
    Sequence::of(&base(&job.meta.key.name, index), &Uid::new(&format!("{}/{index}", job.meta.uid)))
}

/// `<job>-<index>`, the Job's name cut so that the letters behind are not.
pub fn base(job: &str, index: i32) -> String {
    let index = format!("-{index}");
    let room = LONGEST_BASE - 1 - index.len().min(LONGEST_BASE - 1);
    let cut = (0..=job.len().min(room)).rev().find(|&at| job.is_char_boundary(at)).unwrap_or(0);
    format!("{}{index}", job.get(..cut).unwrap_or_default())
}

/// The name for a new pod of an index: the first from the mark on that no known pod has.
pub(super) fn indexed(observed: &Observed<'_>, index: i32) -> String {
    let sequence = of_index(observed.job, index);
    let mark = match &observed.names {
        Names::Indexed(marks) => marks.get(&index).copied().unwrap_or(0),
        Names::Free(_) => 0,
    };
    let owned = &observed.pods.owned;
    let first = owned.partition_point(|owned| owned.index < Some(index));
    let of_index = || owned.iter().skip(first).take_while(|owned| owned.index == Some(index));
    // Of each pod one name is taken, so that one more than there are pods contains a free one.
    let names = (u64::from(mark)..).map(|position| sequence.name(position));
    let mut free = names.filter(|name| !of_index().any(|owned| *owned.pod.meta.key.name == **name));
    free.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{job, observed, pod};
    use super::*;

    const INDEXED: &str = r#""completionMode":"Indexed","completions":30"#;

    #[test]
    fn a_name_has_the_index_and_stays_the_same_until_it_is_used() {
        let job = job(INDEXED, "");
        let name = |pods: Vec<&str>| {
            let pods = pods.into_iter().map(|name| pod(name).index(12));
            indexed(&observed(&job, pods, 0), 12)
        };
        let first = name(vec![]);
        assert!(first.starts_with("j-12-") && first.len() == 10, "{first}");
        assert_eq!(name(vec!["j-12-other"]), first);
        let second = name(vec![&first]);
        assert_ne!(second, first);
        let mut marked = observed(&job, [], 0);
        marked.names = Names::Indexed(Arc::new([(12, 1)].into()));
        assert_eq!(indexed(&marked, 12), second, "a name of a deleted pod is not used again");
        assert_ne!(indexed(&marked, 13).replace("-13-", "-12-"), first);
    }

    #[test]
    fn the_jobs_name_is_cut_and_the_index_never_is() {
        let long = "a".repeat(100);
        assert_eq!(base(&long, 123_456).len(), 57);
        assert!(base(&long, 123_456).ends_with("a-123456"));
        assert_eq!(base("backup", 0), "backup-0");
    }
}
