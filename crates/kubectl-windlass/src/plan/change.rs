//! The change that is previewed: the object as it would be. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass::model::int_or_percent::IntOrPercent;

use crate::cli::{PlanArgs, StrategyName};
use crate::revisions::{self, Revision};
use crate::target::Kind;
use crate::text::harmless;

/// The annotation that `kubectl rollout restart` writes into the template.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// Applies the flags to an object of this kind. Returns what changes, in words; nothing if nothing does.
///
/// # Errors
/// With the flag that cannot be applied, and why.
pub fn apply(
    kind: Kind,
    deployment: &mut Value,
    args: &PlanArgs,
    history: &[Revision],
    now: Timestamp,
) -> Result<Vec<String>, String> {
    check(kind, args)?;
    let mut said = Vec::new();
    if let Some(number) = args.to_revision {
        let revision =
            revisions::numbered(history, number).map_err(|error| format!("--to-revision: {error}"))?;
        if deployment["spec"]["template"] != revision.template {
            deployment["spec"]["template"] = revision.template.clone();
            said.push(format!("template of revision {number}"));
        }
    }
    for image in &args.image {
        said.extend(set_image(&mut deployment["spec"]["template"]["spec"], image)?);
    }
    if args.restart {
        let metadata = &mut deployment["spec"]["template"]["metadata"];
        metadata["annotations"][RESTARTED_AT] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        said.push("restart".to_owned());
    }
    let spec = &mut deployment["spec"];
    let number = |spec: &Value, field: &str, otherwise: i64| spec[field].as_i64().unwrap_or(otherwise);
    for (field, otherwise, wanted, name) in [
        ("replicas", 1, args.replicas, "replicas"),
        ("minReadySeconds", 0, args.min_ready_seconds, "minReadySeconds"),
    ] {
        let before = number(spec, field, otherwise);
        if let Some(wanted) = wanted.map(i64::from).filter(|wanted| *wanted != before) {
            spec[field] = wanted.into();
            said.push(format!("{name} {before} -> {wanted}"));
        }
    }
    match kind {
        Kind::StatefulSet => partition(spec, args, &mut said)?,
        _ => strategy(kind, spec, args, &mut said)?,
    }
    Ok(said)
}

/// Refuses flags that an object of this kind does not have.
fn check(kind: Kind, args: &PlanArgs) -> Result<(), String> {
    let of_file = "to preview another spec.updateStrategy of a StatefulSet, pass it with -f FILE";
    let of_daemon_set = "to preview another spec.updateStrategy.type of a DaemonSet, pass it with -f FILE";
    let wrong: &[(&str, bool, &str)] = match kind {
        Kind::StatefulSet => &[
            ("--max-surge", args.max_surge.is_some(), "a StatefulSet never has more pods than replicas"),
            ("--max-unavailable", args.max_unavailable.is_some(), of_file),
            ("--strategy", args.strategy.is_some(), of_file),
        ],
        Kind::DaemonSet => &[
            ("--replicas", args.replicas.is_some(), "a DaemonSet has a pod on each node that it selects"),
            ("--strategy", args.strategy.is_some(), of_daemon_set),
            ("--partition", args.partition.is_some(), "only a StatefulSet has a partition"),
        ],
        _ => &[("--partition", args.partition.is_some(), "only a StatefulSet has a partition")],
    };
    let wrong = wrong.iter().find(|(_, is_given, _)| *is_given);
    wrong.map_or(Ok(()), |(flag, _, why)| Err(format!("{flag}: {why}")))
}

fn partition(spec: &mut Value, args: &PlanArgs, said: &mut Vec<String>) -> Result<(), String> {
    let Some(wanted) = args.partition else { return Ok(()) };
    let strategy = &mut spec["updateStrategy"];
    if strategy["type"] == "OnDelete" {
        return Err("--partition: a StatefulSet with the strategy OnDelete has none".to_owned());
    }
    let before = strategy["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
    if before != i64::from(wanted) {
        strategy["rollingUpdate"]["partition"] = wanted.into();
        said.push(format!("partition {before} -> {wanted}"));
    }
    Ok(())
}

fn strategy(kind: Kind, spec: &mut Value, args: &PlanArgs, said: &mut Vec<String>) -> Result<(), String> {
    // The strategy, the one that has no bounds, and the bounds of the other.
    let (strategy, boundless, defaults) = match kind {
        Kind::DaemonSet => ("updateStrategy", "OnDelete", [json!(0), json!(1)]),
        _ => ("strategy", "Recreate", [json!("25%"), json!("25%")]),
    };
    if let Some(wanted) = args.strategy {
        let name = match wanted {
            StrategyName::RollingUpdate => "RollingUpdate",
            StrategyName::Recreate => "Recreate",
        };
        let before = spec["strategy"]["type"].as_str().unwrap_or("RollingUpdate").to_owned();
        if before != name {
            spec["strategy"] = json!({"type": name});
            said.push(format!("strategy {before} -> {name}"));
        }
    }
    for ((flag, field, wanted), default) in [
        ("--max-surge", "maxSurge", args.max_surge),
        ("--max-unavailable", "maxUnavailable", args.max_unavailable),
    ]
    .into_iter()
    .zip(defaults)
    {
        let Some(wanted) = wanted else { continue };
        if spec[strategy]["type"] == boundless {
            return Err(format!("{flag}: a {} with the strategy {boundless} has none", kind.title()));
        }
        let value = match wanted {
            IntOrPercent::Int(pods) => json!(pods),
            IntOrPercent::Percent(percent) => json!(format!("{percent}%")),
        };
        let bounds = &mut spec[strategy]["rollingUpdate"];
        let before = bounds[field].take();
        if before != value {
            let before = if before.is_null() { default } else { before };
            said.push(format!("{field} {} -> {}", plain(&before), plain(&value)));
        }
        bounds[field] = value;
    }
    let bounds = &spec[strategy]["rollingUpdate"];
    let is_zero = |field: &str| matches!(plain(&bounds[field]).as_str(), "0" | "0%");
    if is_zero("maxSurge") && is_zero("maxUnavailable") {
        return Err("maxSurge and maxUnavailable would both be 0, and nothing could ever move: see --max-surge and --max-unavailable".to_owned());
    }
    Ok(())
}

/// A number or a text without its quotation marks.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn set_image(pod: &mut Value, flag: &str) -> Result<Option<String>, String> {
    // An image has no `=`; a container's name neither.
    let (container, image) = match flag.split_once('=') {
        Some((container, image)) => (Some(container), image),
        None => (None, flag),
    };
    if image.is_empty() {
        return Err(format!("--image {flag:?} names no image: write CONTAINER=IMAGE or IMAGE"));
    }
    let names: Vec<String> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| pod[*list].as_array().into_iter().flatten())
        .filter_map(|container| Some(container["name"].as_str()?.to_owned()))
        .collect();
    let of_containers = pod["containers"].as_array().map_or(0, Vec::len);
    if container.is_none() && of_containers != 1 {
        return Err(format!(
            "--image {flag}: say of which container, as CONTAINER={image}; there are {}",
            names.join(", ")
        ));
    }
    for list in ["containers", "initContainers"] {
        for candidate in pod[list].as_array_mut().into_iter().flatten() {
            let is_it = container
                .map_or(list == "containers", |container| candidate["name"].as_str() == Some(container));
            if !is_it {
                continue;
            }
            let before = harmless(candidate["image"].as_str().unwrap_or_default());
            candidate["image"] = image.into();
            return Ok((before != image).then(|| format!("image {before} -> {}", harmless(image))));
        }
    }
    Err(format!(
        "--image {flag}: there is no container {:?}; there are {}",
        container.unwrap_or_default(),
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Args, Command};

    fn applied(containers: &[&str], line: &str) -> Result<(Value, Vec<String>), String> {
        let all = ["kubectl-windlass", "plan", "web"].into_iter().chain(line.split_whitespace());
        let Command::Plan(args) = Args::try_parse_from(all).map_err(|error| error.to_string())?.command
        else {
            panic!("another command");
        };
        let containers: Vec<Value> =
            containers.iter().map(|name| json!({"name": name, "image": "nginx:1"})).collect();
        let mut deployment = json!({"spec": {"replicas": 3, "template": {"spec": {"containers": containers}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}}});
        let said =
            apply(Kind::Deployment, &mut deployment, &args, &[], "2026-01-01T00:00:00Z".parse().unwrap())?;
        Ok((deployment["spec"].take(), said))
    }

    #[test]
    fn an_image_needs_a_container_where_there_are_several() {
        let (spec, said) = applied(&["app"], "--image nginx:2").unwrap();
        assert_eq!(spec["template"]["spec"]["containers"][0]["image"], "nginx:2");
        assert_eq!(said, ["image nginx:1 -> nginx:2"]);
        assert_eq!(applied(&["app", "proxy"], "--image proxy=nginx:1").unwrap().1, [""; 0], "no change");
        assert!(applied(&["app", "proxy"], "--image nginx:2").unwrap_err().contains("app, proxy"));
        assert!(applied(&["app"], "--image web=nginx:2").unwrap_err().contains("no container \"web\""));
        assert!(applied(&["app"], "--image app=").unwrap_err().contains("--image"));
    }

    #[test]
    fn a_statefulset_has_a_partition_and_no_bounds_of_a_deployment() {
        let applied = |strategy: Value, line: &str| {
            let all = ["kubectl-windlass", "plan", "sts/db"].into_iter().chain(line.split_whitespace());
            let Command::Plan(args) = Args::try_parse_from(all).unwrap().command else { panic!() };
            let mut set = json!({"spec": {"updateStrategy": strategy, "template": {"spec": {}}}});
            apply(Kind::StatefulSet, &mut set, &args, &[], "2026-01-01T00:00:00Z".parse().unwrap())
        };
        let rolling = || json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 3}});
        assert_eq!(applied(rolling(), "--partition 1").unwrap(), ["partition 3 -> 1"]);
        assert_eq!(applied(rolling(), "--partition 3").unwrap(), [""; 0]);
        for flag in ["--max-surge=1", "--max-unavailable=1", "--strategy=Recreate"] {
            let name = flag.split('=').next().unwrap();
            assert!(applied(rolling(), flag).unwrap_err().starts_with(&format!("{name}: ")), "{flag}");
        }
        assert!(applied(json!({"type": "OnDelete"}), "--partition 1").unwrap_err().contains("OnDelete"));
        assert!(self::applied(&["app"], "--partition 1").unwrap_err().contains("only a StatefulSet"));
    }

    #[test]
    fn a_daemonset_has_bounds_and_neither_replicas_nor_a_partition() {
        let applied = |strategy: Value, line: &str| {
            let all = ["kubectl-windlass", "plan", "ds/agent"].into_iter().chain(line.split_whitespace());
            let Command::Plan(args) = Args::try_parse_from(all).unwrap().command else { panic!() };
            let mut set = json!({"spec": {"updateStrategy": strategy, "template": {"spec": {}}}});
            apply(Kind::DaemonSet, &mut set, &args, &[], "2026-01-01T00:00:00Z".parse().unwrap())
        };
        let rolling = || json!({"type": "RollingUpdate"});
        let said = applied(rolling(), "--max-unavailable 0 --max-surge 50%").unwrap();
        assert_eq!(said, ["maxSurge 0 -> 50%", "maxUnavailable 1 -> 0"]);
        for flag in ["--replicas=1", "--partition=1", "--strategy=Recreate"] {
            let name = flag.split('=').next().unwrap();
            assert!(applied(rolling(), flag).unwrap_err().starts_with(&format!("{name}: ")), "{flag}");
        }
        assert!(
            applied(json!({"type": "OnDelete"}), "--max-unavailable 2").unwrap_err().contains("OnDelete")
        );
    }

    #[test]
    fn bounds_sizes_and_strategies_are_changed_and_said() {
        let (spec, said) = applied(&["app"], "--replicas 5 --max-surge 2 --min-ready-seconds 9").unwrap();
        assert_eq!((&spec["replicas"], &spec["minReadySeconds"]), (&json!(5), &json!(9)));
        assert_eq!(said, ["replicas 3 -> 5", "minReadySeconds 0 -> 9", "maxSurge 25% -> 2"]);
        let (spec, said) = applied(&["app"], "--strategy Recreate").unwrap();
        assert_eq!((spec["strategy"].to_string(), said.len()), ("{\"type\":\"Recreate\"}".to_owned(), 1));
        assert!(applied(&["app"], "--max-surge 0").unwrap_err().contains("--max-unavailable"));
        assert!(applied(&["app"], "--strategy Recreate --max-surge 1").unwrap_err().contains("--max-surge"));
        for wrong in ["--max-unavailable 101%", "--max-surge -1", "--replicas -1", "--max-surge 1.5"] {
            assert!(applied(&["app"], wrong).is_err(), "{wrong}");
        }
    }
}
