//! The flags of `rolling-update`: kubectl's up to 1.17, and ours.

use std::time::Duration;

use clap::ValueEnum;
use windlass::model::int_or_percent::IntOrPercent;
use windlass::plan::rolling_update::bookkeeping::LABEL_KEY;
use windlass::plan::rolling_update::request::{surge, unavailable};

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
    /// How often to look, at least 100ms.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = poll_interval)]
    pub poll_interval: Duration,
    /// The longest time without progress: a resize, or another available pod.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,
    /// The label that tells the pods of OLD and NEW apart with --image.
    #[arg(long, value_name = "KEY", default_value = LABEL_KEY)]
    pub deployment_label_key: String,
    /// The survivor gets the name OLD also with NEW or -f. The file may name OLD itself then.
    #[arg(long, conflicts_with = "preserve")]
    pub keep_name: bool,
    /// Keep OLD with 0 replicas.
    #[arg(long)]
    pub preserve: bool,
    /// Take a left-over NEW of another update back first: OLD to its original size, that NEW to 0 and away.
    #[arg(long, conflicts_with_all = ["rollback", "server_side", "dry_run"])]
    pub replace: bool,
    /// Update although a HorizontalPodAutoscaler scales OLD.
    #[arg(long)]
    pub ignore_hpa: bool,
    /// Let a controller of the cluster carry the update out, and watch it. Without --image, -f and --rollback, watch the
    /// one that is under way.
    #[arg(long, conflicts_with = "min_ready_seconds")]
    pub server_side: bool,
    /// With --server-side, whether to wait for the end. With false, exit with 4 once the request is answered.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub watch: bool,
    /// Fail as soon as the update cannot complete: every new pod that is not ready has been failing for 30 seconds, or
    /// the API server refuses them. With --server-side, fail when there is no progress within --timeout; the update goes
    /// on in the cluster.
    #[arg(long)]
    pub fail_fast: bool,
    /// Pause an update that a controller of the cluster carries out.
    #[arg(long, conflicts_with_all = ["image", "filename", "rollback", "server_side", "resume", "dry_run"])]
    pub pause: bool,
    /// Resume it.
    #[arg(long, conflicts_with_all = ["image", "filename", "rollback", "server_side", "dry_run"])]
    pub resume: bool,
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
    /// One JSON object a line for each step; with --dry-run, both objects.
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
            replace: false,
            ignore_hpa: false,
            server_side: false,
            watch: true,
            fail_fast: false,
            pause: false,
            resume: false,
            dry_run: false,
            output: UpdateOutput::Text,
        }
    }
}

/// Parses `--poll-interval`.
fn poll_interval(text: &str) -> Result<Duration, String> {
    let shortest = Duration::from_millis(100);
    match duration(text)? {
        interval if interval < shortest => {
            Err(format!("{text} would burden the API server: at least {shortest:?}"))
        }
        interval => Ok(interval),
    }
}

impl RollingUpdateArgs {
    /// Whether this only watches an update of the cluster.
    pub fn only_watches(&self) -> bool {
        self.server_side && self.filename.is_none() && self.image.is_none() && !self.rollback
    }

    /// How to go on after Ctrl-C.
    pub fn after_interruption(&self) -> String {
        let old = self.names.first().map_or("OLD", String::as_str);
        match self.server_side {
            true => format!(
                "interrupted: the update goes on in the cluster. Watch it with kubectl windlass rolling-update {old} \
                 --server-side, pause it with --pause instead, take it back with --rollback --server-side"
            ),
            false => "interrupted: go on with the same command, or back with --rollback".to_owned(),
        }
    }

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
        let begins = self.filename.is_some() || self.image.is_some() || self.rollback;
        if !(begins || self.server_side || self.pause || self.resume) {
            return Err("one of --image, -f and --rollback is needed".to_owned());
        }
        if !begins && !new.is_empty() {
            return Err(format!("only OLD is needed here: leave {} out", new[0]));
        }
        if !self.watch && !self.server_side {
            return Err(
                "--watch=false needs --server-side: otherwise the client drives the update".to_owned()
            );
        }
        let starts_one = self.filename.is_some() || self.image.is_some();
        if (self.replace || (self.fail_fast && !self.server_side)) && !starts_one {
            let flag = if self.replace { "--replace" } else { "--fail-fast" };
            return Err(format!("{flag} needs --image or -f"));
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
