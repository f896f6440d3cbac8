//! The flags of `plan`.

use std::time::Duration;

use clap::ValueEnum;
use windlass::model::int_or_percent::IntOrPercent;
use windlass::plan::rolling_update::request::{surge, unavailable};

use super::{Objects, duration};

/// `plan`.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanArgs {
    /// The Deployment, StatefulSet or DaemonSet to change, or the ReplicationController to update.
    #[command(flatten)]
    pub objects: Objects,
    /// A file with the Deployment, StatefulSet or DaemonSet as it is to be, or - for stdin.
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with_all = ["names", "selector", "all_namespaces"])]
    pub filename: Option<String>,
    /// The image of a container. CONTAINER may be left out if there is only one. May be repeated.
    #[arg(long, value_name = "[CONTAINER=]IMAGE")]
    pub image: Vec<String>,
    /// The number of pods.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub replicas: Option<i32>,
    /// How many pods, or how many percent of them, may exist beyond the desired number.
    #[arg(long, value_name = "N|N%", value_parser = surge)]
    pub max_surge: Option<IntOrPercent>,
    /// How many pods, or how many percent of them, may be unavailable.
    #[arg(long, value_name = "N|N%", value_parser = unavailable)]
    pub max_unavailable: Option<IntOrPercent>,
    /// The strategy.
    #[arg(long, value_name = "STRATEGY", ignore_case = true)]
    pub strategy: Option<StrategyName>,
    /// For a StatefulSet: the index below which pods keep the older template.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub partition: Option<i32>,
    /// How many seconds a pod must be ready before it counts as available.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i32).range(0..))]
    pub min_ready_seconds: Option<i32>,
    /// The revision whose template it gets.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub to_revision: Option<i64>,
    /// Replace all pods by pods of the same template, as `kubectl rollout restart` does.
    #[arg(long)]
    pub restart: bool,
    /// For a ReplicationController: the pause between new pods and the end of old ones, 1m by default.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub update_period: Option<Duration>,
    /// From the creation of a pod to its readiness. Default: the median of the pods that run.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub ready_after: Option<Duration>,
    /// From the deletion of a pod until it is gone. Default: the grace period of the template.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub stop_after: Option<Duration>,
    /// Assumed failure: broken means that no new pod becomes ready, broken=N that the first N do not.
    #[arg(long, value_name = "broken[=N]", value_parser = assumption)]
    pub assume: Option<usize>,
    /// Exit with 5 if fewer pods are available at any step.
    #[arg(long, value_name = "N")]
    pub min_available: Option<i64>,
    /// Exit with 5 if more pods exist at any step.
    #[arg(long, value_name = "N")]
    pub max_pods: Option<i64>,
    /// Whether the server judges the object and a pod of it, without keeping them.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub server_dry_run: bool,
    /// The output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: PlanOutput,
}

impl PlanArgs {
    /// Refuses flags that cannot go together.
    ///
    /// # Errors
    /// With their names.
    pub fn check(&self) -> Result<(), String> {
        let is_zero = |number| matches!(number, Some(IntOrPercent::Int(0) | IntOrPercent::Percent(0)));
        if is_zero(self.max_surge) && is_zero(self.max_unavailable) {
            return Err(
                "--max-surge and --max-unavailable cannot both be 0: nothing could ever move".to_owned()
            );
        }
        Ok(())
    }

    /// Whether a flag changes the object.
    pub fn changes_something(&self) -> bool {
        !self.image.is_empty()
            || self.replicas.is_some()
            || self.max_surge.is_some()
            || self.max_unavailable.is_some()
            || self.strategy.is_some()
            || self.partition.is_some()
            || self.min_ready_seconds.is_some()
            || self.to_revision.is_some()
            || self.restart
    }
}

/// A strategy of Deployments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum StrategyName {
    /// Step by step.
    RollingUpdate,
    /// All old pods are deleted first.
    Recreate,
}

/// How `plan` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PlanOutput {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// For a comment on a pull request.
    Markdown,
}

fn assumption(text: &str) -> Result<usize, String> {
    let number = match text.split_once('=') {
        None if text == "broken" => Some(usize::MAX),
        Some(("broken", number)) => number.parse().ok().filter(|number| *number > 0),
        _ => None,
    };
    number.ok_or_else(|| format!("{text:?} is not broken or broken=N"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_wrong_is_all_pods_or_the_first_ones() {
        assert_eq!((assumption("broken"), assumption("broken=2")), (Ok(usize::MAX), Ok(2)));
        for wrong in ["", "broken=", "broken=0", "broken=x", "fine"] {
            assert!(assumption(wrong).unwrap_err().contains("broken=N"), "{wrong}");
        }
    }
}
