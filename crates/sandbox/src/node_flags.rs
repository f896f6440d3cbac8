//! `--node-label`, `--node-taint` and `--pod-outcome`: the simulated nodes, and how containers end on them.

use std::collections::BTreeSet;

use anyhow::bail;
use regex_lite::Regex;
use windlass_apiserver::validate::names;
use windlass_nodes::kubelet::outcomes::ImageOutcome;
use windlass_nodes::kubelet::{NodeLabel, NodeTaint, nodes};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Parses `2=zone=a`, `sandbox-node-2=zone=a` and `all=zone=a`.
pub fn label(text: &str) -> Result<NodeLabel, String> {
    let hint = "write it like 2=zone=a, sandbox-node-2=zone=a or all=zone=a";
    let (node, label) =
        text.split_once('=').ok_or_else(|| format!("not of the form NODE=KEY=VALUE; {hint}"))?;
    let (key, value) = label.split_once('=').ok_or_else(|| format!("no =VALUE after {label:?}; {hint}"))?;
    Ok(NodeLabel { node: self::node(node)?, key: self::key(key)?, value: self::value(value)? })
}

/// Parses `2=gpu=yes:NoSchedule`, with node names as in [`label`], and without a value `2=gpu:NoSchedule`.
pub fn taint(text: &str) -> Result<NodeTaint, String> {
    let hint = "write it like 2=gpu=yes:NoSchedule, 2=gpu:NoExecute or all=gpu=yes:PreferNoSchedule";
    let (node, taint) =
        text.split_once('=').ok_or_else(|| format!("not of the form NODE=KEY=VALUE:EFFECT; {hint}"))?;
    let (taint, effect) =
        taint.rsplit_once(':').ok_or_else(|| format!("no :EFFECT after {taint:?}; {hint}"))?;
    if !EFFECTS.contains(&effect) {
        return Err(format!("{effect:?} is not a taint effect; use one of {}", EFFECTS.join(", ")));
    }
    let (key, value) = taint.split_once('=').unwrap_or((taint, ""));
    let (node, key, value) = (self::node(node)?, self::key(key)?, self::value(value)?);
    Ok(NodeTaint { node, key, value, effect: effect.to_owned() })
}

/// Parses `REGEX=exit:3,after:2s`.
pub fn pod_outcome(text: &str) -> Result<ImageOutcome, String> {
    let (image, outcome) = text
        .rsplit_once('=')
        .ok_or_else(|| "not of the form REGEX=OUTCOME; write it like ^job=exit:3,after:2s".to_owned())?;
    let image = Regex::new(image).map_err(|error| error.to_string())?;
    Ok(ImageOutcome { image, outcome: outcome.parse()? })
}

/// The name of the selected node; `None` is every node.
fn node(text: &str) -> Result<Option<String>, String> {
    if text == "all" {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|number| *number > 0).or_else(|| nodes::number(text));
    match number {
        Some(number) => Ok(Some(nodes::name(number))),
        None => Err(format!("{text:?} is not a simulated node; write it like 2, sandbox-node-2 or all")),
    }
}

fn key(text: &str) -> Result<String, String> {
    match names::label_key(text).first() {
        None => Ok(text.to_owned()),
        Some(why) => Err(format!("{text:?} is not a valid key: {why}")),
    }
}

fn value(text: &str) -> Result<String, String> {
    match names::label_value(text).first() {
        None => Ok(text.to_owned()),
        Some(why) => Err(format!("{text:?} is not a valid value: {why}")),
    }
}

/// Checks the flags together: the nodes exist, and no node gets a taint twice.
///
/// # Errors
/// A sentence that names the flag, the node, and what to change.
pub fn check(count: usize, labels: &[NodeLabel], taints: &[NodeTaint]) -> anyhow::Result<()> {
    let labels = labels.iter().map(|label| ("--node-label", &label.node));
    let named = labels.chain(taints.iter().map(|taint| ("--node-taint", &taint.node)));
    for (flag, name) in named.filter_map(|(flag, node)| Some((flag, node.as_deref()?))) {
        let number = nodes::number(name).unwrap_or_default();
        if number > count {
            bail!("{flag}: {name} does not exist with --nodes {count}; set --nodes to at least {number}");
        }
    }
    for number in 1..=count {
        let name = nodes::name(number);
        let mut seen = BTreeSet::new();
        for taint in taints.iter().filter(|taint| taint.node.as_ref().is_none_or(|node| *node == name)) {
            if !seen.insert((&taint.key, &taint.effect)) {
                let NodeTaint { key, effect, .. } = taint;
                bail!("--node-taint: {name} gets {key}:{effect} twice; keep one of them");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node_taint(node: Option<&str>, key: &str, value: &str, effect: &str) -> NodeTaint {
        let [key, value, effect] = [key, value, effect].map(str::to_owned);
        NodeTaint { node: node.map(str::to_owned), key, value, effect }
    }

    #[test]
    fn a_node_is_selected_by_number_by_name_or_with_all() {
        let second = Some("sandbox-node-2".to_owned());
        for (text, node, value) in [
            ("2=example.com/zone=a", second.clone(), "a"),
            ("sandbox-node-2=example.com/zone=a", second, "a"),
            ("all=example.com/zone=", None, ""),
        ] {
            let expected = NodeLabel { node, key: "example.com/zone".to_owned(), value: value.to_owned() };
            assert_eq!(label(text), Ok(expected), "{text}");
        }
        let expected = node_taint(Some("sandbox-node-1"), "gpu", "yes", "NoExecute");
        assert_eq!(taint("1=gpu=yes:NoExecute"), Ok(expected));
        assert_eq!(taint("all=gpu:NoSchedule"), Ok(node_taint(None, "gpu", "", "NoSchedule")));
    }

    #[test]
    fn an_error_shows_the_correct_form() {
        for (text, expected) in [
            ("zone", "not of the form NODE=KEY=VALUE; write it like 2=zone=a"),
            ("2=zone", "no =VALUE after \"zone\"; write it like"),
            ("0=zone=a", "\"0\" is not a simulated node; write it like 2, sandbox-node-2 or all"),
            ("mine=zone=a", "\"mine\" is not a simulated node"),
            ("2=-=a", "\"-\" is not a valid key: name part must consist of"),
            ("2=zone=a b", "\"a b\" is not a valid value: a valid label must be"),
        ] {
            let error = label(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        for (text, expected) in [
            ("2=gpu=yes", "no :EFFECT after \"gpu=yes\"; write it like 2=gpu=yes:NoSchedule"),
            (
                "2=gpu:Never",
                "\"Never\" is not a taint effect; use one of NoSchedule, PreferNoSchedule, NoExecute",
            ),
            ("2=:NoExecute", "\"\" is not a valid key: name part must be non-empty"),
        ] {
            let error = taint(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_outcome_is_given_for_images_that_match() {
        let given = pod_outcome("^a=b:=exit:3,after:2s").unwrap();
        assert_eq!((given.image.as_str(), given.outcome), ("^a=b:", "exit:3,after:2s".parse().unwrap()));
        for (text, expected) in [
            ("job", "not of the form REGEX=OUTCOME; write it like ^job=exit:3,after:2s"),
            ("job=soon", "\"soon\" is no KEY:VALUE; write it like"),
            ("(=exit:3", "open group"),
        ] {
            let error = pod_outcome(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn nodes_must_exist_and_taints_must_be_unique() {
        let labels = [label("3=zone=a").unwrap()];
        assert!(check(3, &labels, &[]).is_ok());
        assert_eq!(
            check(2, &labels, &[]).unwrap_err().to_string(),
            "--node-label: sandbox-node-3 does not exist with --nodes 2; set --nodes to at least 3"
        );
        let taints = [
            node_taint(None, "gpu", "", "NoSchedule"),
            node_taint(Some("sandbox-node-2"), "gpu", "a", "NoSchedule"),
        ];
        assert_eq!(
            check(2, &[], &taints).unwrap_err().to_string(),
            "--node-taint: sandbox-node-2 gets gpu:NoSchedule twice; keep one of them"
        );
        assert!(check(0, &[], &taints[..1]).is_ok());
    }
}
