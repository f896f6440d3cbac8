//! The kinds of one server: the built-in table, and the custom kinds of the definitions it holds.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::kinds::{self, Kind};
use super::status::Failure;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// In the order of discovery.
    custom: Vec<&'static Kind>,
    /// The definitions that are being deleted.
    terminating: BTreeSet<String>,
}

impl Registry {
    pub(crate) fn new(mut custom: Vec<&'static Kind>, terminating: BTreeSet<String>) -> Self {
        custom.sort_by_key(|row| (row.group, priority(row.version), row.plural));
        Registry { custom, terminating }
    }

    /// All kinds, the built-in ones first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &'static Kind> + '_ {
        kinds::all().chain(self.custom.iter().copied())
    }

    /// The kind served at `/apis/<group>/<version>/.../<plural>` (core: group "").
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        self.rows().find(|row| row.group == group && row.version == version && row.plural == plural)
    }

    /// The kinds of a group and version.
    pub(crate) fn of_group<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'static Kind> + 'a {
        self.rows().filter(move |row| row.group == group && row.version == version)
    }

    /// The served groups in discovery order, each with its versions, the preferred one first.
    pub(crate) fn groups(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
        for row in self.rows() {
            match found.iter_mut().find(|(group, _)| *group == row.group) {
                Some((_, versions)) if versions.contains(&row.version) => {}
                Some((_, versions)) => versions.push(row.version),
                None => found.push((row.group, vec![row.version])),
            }
        }
        found
    }

    /// The names of the definitions whose kinds are served.
    pub(crate) fn definitions(&self) -> BTreeSet<&'static str> {
        self.custom.iter().filter_map(|row| Some(row.custom?.definition.as_str())).collect()
    }

    /// Whether a definition is being deleted.
    pub(crate) fn is_terminating(&self) -> bool {
        !self.terminating.is_empty()
    }

    /// Whether objects of the kind can be created.
    ///
    /// # Errors
    /// The definition of the kind is being deleted, or has been since the request came.
    pub(crate) fn admit(&self, kind: &Kind) -> Result<(), Failure> {
        let Some(custom) = kind.custom else { return Ok(()) };
        if self.terminating.contains(&custom.definition) {
            let message = format!(
                "the CustomResourceDefinition {:?} is being deleted; create the object after it was created again",
                custom.definition
            );
            return Err(Failure::new(405, "MethodNotAllowed", message));
        }
        match self.definitions().contains(custom.definition.as_str()) {
            true => Ok(()),
            false => Err(Failure::unknown_path()),
        }
    }
}

/// The order of versions: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then any other name.
fn priority(version: &'static str) -> (u8, Reverse<u64>, Reverse<u64>, &'static str) {
    let other = (3, Reverse(0), Reverse(0), version);
    let Some(rest) = version.strip_prefix('v') else { return other };
    let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let Ok(major) = rest.strip_suffix(digits).unwrap_or_default().parse() else { return other };
    let minor = |stage: &str| digits.strip_prefix(stage)?.parse::<u64>().ok();
    match (digits, minor("beta"), minor("alpha")) {
        ("", _, _) => (0, Reverse(major), Reverse(0), ""),
        (_, Some(minor), _) => (1, Reverse(major), Reverse(minor), ""),
        (_, _, Some(minor)) => (2, Reverse(major), Reverse(minor), ""),
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first_and_higher_ones_before_lower_ones() {
        let mut versions = ["foo1", "v1alpha1", "v1", "v1beta1", "v10", "v1beta2", "v2"];
        versions.sort_by_key(|version| priority(version));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo1"]);
    }
}
