//! The flags of `rolling-update`: kubectl's up to 1.17, and ours.

use std::time::Duration;

use clap::ValueEnum;
use windlass::model::int_or_percent::IntOrPercent;
use windlass::plan::rolling_update::bookkeeping::LABEL_KEY;

use super::duration;

/// `rolling-update`.
#[derive(Clone, Debug, clap::Args)]
pub struct RollingUpdateArgs {
    /// The ReplicationController to replace, and with --image or --rollback the name of the new one.
    #[arg(value_name = "OLD [NEW]", required = true, num_args = 1..=2)]
    pub names: Vec<String>,
    /// The file with the new ReplicationController; - reads stdin.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["image", "rollback"])]
    pub filename: Option<String>,
    /// The new image. Without NEW, the survivor keeps the name OLD.
    #[arg(long, value_name = "IMAGE", conflicts_with = "rollback")]
    pub image: Option<String>,
    /// The container that gets the image, if there are several.
    #[arg(long, value_name = "NAME")]
    pub container: Option<String>,
    /// The pull policy of that container.
    #[arg(long, value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"], requires = "image")]
    pub image_pull_policy: Option<String>,
    /// Take an unfinished update back: OLD to its original size, NEW to 0 and away.
    #[arg(long)]
    pub rollback: bool,
    /// How many pods may exist above the size, as a number or a percentage.
    #[arg(long, value_name = "N|N%", default_value = "1", value_parser = surge)]
    pub max_surge: IntOrPercent,
    /// How many pods may be unavailable below the size, as a number or a percentage.
    #[arg(long, value_name = "N|N%", default_value = "0", value_parser = unavailable)]
    pub max_unavailable: IntOrPercent,
    /// How long a new pod must be ready to count; by default as NEW says.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i32).range(0..))]
    pub min_ready_seconds: Option<i32>,
    /// The pause between new pods and the end of old ones.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub update_period: Duration,
    /// How often to look.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration)]
    pub poll_interval: Duration,
    /// The longest time without progress: a resize, or another available pod.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,
    /// The label that tells the pods of OLD and NEW apart with --image.
    #[arg(long, value_name = "KEY", default_value = LABEL_KEY)]
    pub deployment_label_key: String,
    /// The survivor gets the name OLD also with NEW or -f.
    #[arg(long, conflicts_with = "preserve")]
    pub keep_name: bool,
    /// Keep OLD with 0 replicas.
    #[arg(long)]
    pub preserve: bool,
    /// Update although a HorizontalPodAutoscaler scales OLD.
    #[arg(long)]
    pub ignore_hpa: bool,
    /// Print what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// The format of the result.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: UpdateOutput,
}

/// The format of the result of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum UpdateOutput {
    /// A sentence.
    #[default]
    Text,
    /// Kind and name.
    Name,
    /// With --dry-run, both objects.
    Json,
}

impl Default for RollingUpdateArgs {
    fn default() -> Self {
        RollingUpdateArgs {
            names: Vec::new(),
            filename: None,
            image: None,
            container: None,
            image_pull_policy: None,
            rollback: false,
            max_surge: IntOrPercent::Int(1),
            max_unavailable: IntOrPercent::Int(0),
            min_ready_seconds: None,
            update_period: Duration::from_secs(60),
            poll_interval: Duration::from_secs(3),
            timeout: Duration::from_secs(300),
            deployment_label_key: LABEL_KEY.to_owned(),
            keep_name: false,
            preserve: false,
            ignore_hpa: false,
            dry_run: false,
            output: UpdateOutput::Text,
        }
    }
}

impl RollingUpdateArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// With the flag and what to do.
    pub fn check(&self) -> Result<(), String> {
        let [old, new @ ..] = &self.names[..] else {
            return Err("name the ReplicationController".to_owned());
        };
        if let Some(name) = self.names.iter().find(|name| name.is_empty() || name.contains('/')) {
            return Err(format!(
                "{name:?} is not the name of a ReplicationController; write it without a kind"
            ));
        }
        if self.filename.is_none() && self.image.is_none() && !self.rollback {
            return Err("one of --image, -f and --rollback is needed".to_owned());
        }
        if new.first() == Some(old) {
            return Err(format!("OLD and NEW are both {old}: leave NEW out to keep the name"));
        }
        if self.filename.is_some() && !new.is_empty() {
            return Err("with -f, the name of NEW is in the file: leave it out".to_owned());
        }
        if self.deployment_label_key.is_empty() {
            return Err("--deployment-label-key must not be empty".to_owned());
        }
        let is_zero = |number| matches!(number, IntOrPercent::Int(0) | IntOrPercent::Percent(0));
        if is_zero(self.max_surge) && is_zero(self.max_unavailable) {
            return Err(
                "--max-surge and --max-unavailable must not both be 0: no pod could be replaced".to_owned()
            );
        }
        Ok(())
    }
}

/// A number of pods, or a percentage.
pub(super) fn surge(text: &str) -> Result<IntOrPercent, String> {
    let wrong = || format!("{text:?} is not a number of pods such as 2, or a percentage such as 25%");
    let digits = text.strip_suffix('%').unwrap_or(text);
    let number: u32 = Some(digits)
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(wrong)?;
    Ok(if text.ends_with('%') {
        IntOrPercent::Percent(number.into())
    } else {
        IntOrPercent::Int(number.into())
    })
}

/// The same, a percentage of at most 100.
pub(super) fn unavailable(text: &str) -> Result<IntOrPercent, String> {
    match surge(text)? {
        IntOrPercent::Percent(percent) if percent > 100 => Err(format!("{text:?} is more than 100%")),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_numbers_or_percentages() {
        assert_eq!(surge("2"), Ok(IntOrPercent::Int(2)));
        assert_eq!((surge("300%"), unavailable("100%").is_ok()), (Ok(IntOrPercent::Percent(300)), true));
        for wrong in ["-1", "1.5", "", "%", "x", "+1", "99999999999"] {
            assert!(surge(wrong).is_err(), "{wrong}");
        }
        assert!(unavailable("101%").is_err());
    }
}
