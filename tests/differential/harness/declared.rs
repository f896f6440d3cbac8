//! Differences that are meant. Each says where it shows, what is there on both sides, and why.

/// A row of the table "otherwise than upstream".
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub upstream: &'static str,
    pub windlass: &'static str,
}

/// Where a row shows in a play. Texts are patterns, in which `*` stands for anything.
#[derive(Debug)]
pub struct Declared {
    pub row: &'static Row,
    /// Why it is better so, for whoever reads this code.
    pub reason: &'static str,
    /// Which section of the facts, such as `rest`.
    pub section: &'static str,
    pub object: &'static str,
    pub path: &'static str,
    /// The values; `absent` where there is none.
    pub upstream: &'static str,
    pub windlass: &'static str,
}

/// Whether a text fits a pattern with `*` in it.
pub fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((begin, rest)) => {
            let Some(left) = text.strip_prefix(begin) else { return false };
            if rest.is_empty() {
                return true;
            }
            (0..=left.len()).any(|at| left.is_char_boundary(at) && fits(rest, &left[at..]))
        }
    }
}

/// What holds for all workloads.
pub const GENERAL: &[Declared] = &[];

/// What differs from one play of upstream to the next.
#[derive(Debug)]
pub struct Noise {
    pub section: &'static str,
    pub object: &'static str,
    pub path: &'static str,
    /// The values, in either order.
    pub values: [&'static str; 2],
    /// Which race it is.
    pub reason: &'static str,
}

const EARLY_STATUS: &str = "upstream's first status after a creation may or may not count the first pods";

pub const NOISE: &[Noise] = &[
    Noise {
        section: "rest",
        object: "Deployment/*",
        path: "status.conditions.Progressing.message",
        values: ["Created new replica set *", "* is progressing."],
        reason: EARLY_STATUS,
    },
    Noise {
        section: "rest",
        object: "Deployment/*",
        path: "status.conditions.Progressing.reason",
        values: ["NewReplicaSetCreated", "ReplicaSetUpdated"],
        reason: EARLY_STATUS,
    },
    Noise {
        section: "conditions",
        object: "Deployment/*",
        path: "Progressing=True ReplicaSetUpdated: ReplicaSet * is progressing.",
        values: ["seen", "absent"],
        reason: EARLY_STATUS,
    },
];
