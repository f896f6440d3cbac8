//! The flags of `create`: kubectl's, and ours.

use clap::ValueEnum;

use super::{DryRun, GlobalArgs};

/// `create`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CreateArgs {
    /// Files, directories, patterns, URLs, or - for stdin. May be repeated, and holds several between commas.
    #[arg(short, long, value_name = "FILE|DIR|URL|-", value_delimiter = ',', allow_hyphen_values = true)]
    pub filename: Vec<String>,
    /// Also read the directories in directories.
    #[arg(short = 'R', long, value_name = "BOOL", action = clap::ArgAction::Set)]
    #[arg(default_value_t = false, hide_default_value = true, hide_possible_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub recursive: bool,
    /// Only objects with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Treatment of unknown and duplicate fields by the server: strict refuses, warn warns, ignore drops them.
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "strict", default_missing_value = "strict")]
    pub validate: Validate,
    /// client: send nothing. server: let the server judge the objects without keeping them.
    #[arg(long, value_name = "WHERE", num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "none", default_missing_value = "unchanged")]
    pub dry_run: Trial,
    /// Read all sources and let the server judge all objects before the first is created.
    #[arg(long)]
    pub check_first: bool,
    /// Keep each object in its annotation kubectl.kubernetes.io/last-applied-configuration, for `kubectl apply`.
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set)]
    #[arg(default_value_t = false, hide_default_value = true, hide_possible_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub save_config: bool,
    /// Deprecated: keep the command line in the annotation kubernetes.io/change-cause.
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set)]
    #[arg(default_value_t = false, hide_default_value = true, hide_possible_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub record: bool,
    /// The name under which the server notes the fields as set.
    #[arg(long, value_name = "NAME", default_value = "kubectl-create")]
    pub field_manager: String,
    /// Print the objects, or their names.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<ObjectFormat>,
    /// Print managedFields, too.
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set)]
    #[arg(default_value_t = false, hide_default_value = true, hide_possible_values = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub show_managed_fields: bool,
    /// Refused, with a hint.
    #[arg(short, long, value_name = "DIR", hide = true)]
    pub kustomize: Option<String>,
    /// Refused, with a hint.
    #[arg(long, hide = true)]
    pub edit: bool,
    /// Refused, with a hint.
    #[arg(long, value_name = "URI", hide = true)]
    pub raw: Option<String>,
}

/// The treatment of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Validate {
    /// An error.
    #[default]
    #[value(aliases = ["true", "True", "TRUE", "t", "T", "1"])]
    Strict,
    /// A warning.
    Warn,
    /// Nothing.
    #[value(aliases = ["false", "False", "FALSE", "f", "F", "0"])]
    Ignore,
}

impl Validate {
    /// The word of the API.
    pub fn directive(self) -> &'static str {
        match self {
            Validate::Strict => "Strict",
            Validate::Warn => "Warn",
            Validate::Ignore => "Ignore",
        }
    }
}

/// `--dry-run`, with the spellings of earlier kubectls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Trial {
    /// Objects are created.
    #[default]
    None,
    /// Nothing is sent.
    Client,
    /// The server judges and does not keep.
    Server,
    /// The flag alone.
    #[value(hide = true)]
    Unchanged,
    /// As [`Trial::Client`].
    #[value(hide = true)]
    True,
    /// As [`Trial::None`].
    #[value(hide = true)]
    False,
}

impl Trial {
    /// The mode that is meant, and the deprecated spelling that was used, if any.
    pub fn meaning(self) -> (DryRun, Option<&'static str>) {
        match self {
            Trial::None => (DryRun::None, None),
            Trial::Client => (DryRun::Client, None),
            Trial::Server => (DryRun::Server, None),
            Trial::Unchanged => (DryRun::Client, Some("--dry-run")),
            Trial::True => (DryRun::Client, Some("--dry-run=true")),
            Trial::False => (DryRun::None, Some("--dry-run=false")),
        }
    }
}

/// How objects are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ObjectFormat {
    /// Kind and name.
    Name,
    /// One after the other.
    Json,
    /// As documents.
    Yaml,
}

impl CreateArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// With the flag and what to do.
    pub fn check(&self) -> Result<(), String> {
        if let Some(directory) = &self.kustomize {
            return Err(format!(
                "-k is kubectl's own: use `kubectl kustomize {directory} | kubectl windlass create -f -`"
            ));
        }
        if self.edit {
            return Err(
                "--edit is kubectl's own: use `kubectl create --edit`, or edit the file first".to_owned()
            );
        }
        if self.raw.is_some() {
            return Err("--raw is kubectl's own: use `kubectl create --raw`".to_owned());
        }
        if self.filename.is_empty() {
            return Err("name what to create with -f: a file, a directory, a URL, or - for stdin".to_owned());
        }
        if self.filename.iter().any(String::is_empty) {
            return Err("-f has an empty name: a comma separates names".to_owned());
        }
        if self.field_manager.is_empty() || self.field_manager.len() > 128 {
            return Err("--field-manager takes a name of 1 to 128 characters".to_owned());
        }
        if self.check_first && self.dry_run.meaning().0 != DryRun::None {
            return Err("--check-first tries all objects before it creates them: leave it or --dry-run out"
                .to_owned());
        }
        Ok(())
    }

    /// The command line, for an annotation that anybody may read: without flags of the connection, of which some are
    /// secret.
    pub fn command_line(&self, global: &GlobalArgs) -> String {
        let mut line = "kubectl windlass create".to_owned();
        let mut add = |flag: &str, value: &str| {
            line.push_str(" --");
            line.push_str(flag);
            line.push('=');
            line.push_str(value);
        };
        self.filename.iter().for_each(|name| add("filename", name));
        let switches =
            [("recursive", self.recursive), ("save-config", self.save_config), ("record", self.record)];
        switches.into_iter().filter(|(_, is_on)| *is_on).for_each(|(flag, _)| add(flag, "true"));
        let texts =
            [("selector", &self.selector), ("namespace", &global.namespace), ("context", &global.context)];
        texts.into_iter().for_each(|(flag, value)| value.iter().for_each(|value| add(flag, value)));
        line
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Args, Command};
    use super::*;

    fn parse(line: &[&str]) -> Result<(CreateArgs, GlobalArgs), String> {
        let args = Args::try_parse_from(["kubectl-windlass", "create"].iter().chain(line));
        let Args { global, command } = args.map_err(|error| error.to_string())?;
        let Command::Create(create) = command else { panic!("{command:?}") };
        create.check().map(|()| (create, global))
    }

    #[test]
    fn names_repeat_and_split_at_commas() {
        assert_eq!(parse(&["-f", "-,a", "-f", "b"]).unwrap().0.filename, ["-", "a", "b"]);
        assert_eq!(parse(&["-f", "a,b", "--filename=-"]).unwrap().0.filename, ["a", "b", "-"]);
        for wrong in [&["-f", ""][..], &["-f", "a,"], &[]] {
            assert!(parse(wrong).unwrap_err().contains("-f"), "{wrong:?}");
        }
        assert!(parse(&["-f", "a", "deployment"]).unwrap_err().contains("deployment"));
    }

    #[test]
    fn what_kubectl_alone_does_is_refused_with_the_way_there() {
        assert!(parse(&["-k", "dir"]).unwrap_err().contains("kubectl kustomize dir |"));
        assert!(parse(&["-f", "a", "--edit"]).unwrap_err().contains("kubectl create --edit"));
        assert!(parse(&["-f", "a", "--raw", "/api"]).unwrap_err().contains("kubectl create --raw"));
        assert!(
            parse(&["-f", "a", "--check-first", "--dry-run=server"]).unwrap_err().contains("--check-first")
        );
    }

    #[test]
    fn validate_takes_three_words_and_booleans() {
        let validate = |flag: &str| parse(&["-f", "a", flag]).map(|(args, _)| args.validate);
        for (flag, wanted) in [
            ("--validate", Validate::Strict),
            ("--validate=true", Validate::Strict),
            ("--validate=warn", Validate::Warn),
            ("--validate=false", Validate::Ignore),
            ("--validate=ignore", Validate::Ignore),
        ] {
            assert_eq!(validate(flag), Ok(wanted), "{flag}");
        }
        let error = validate("--validate=yes").unwrap_err();
        assert!(["strict", "warn", "ignore"].iter().all(|word| error.contains(word)), "{error}");
        assert_eq!(parse(&["-f", "a"]).unwrap().0.validate, Validate::Strict);
    }

    #[test]
    fn a_bare_dry_run_is_the_deprecated_spelling_of_client() {
        let trial = |flag: &str| parse(&["-f", "a", flag]).map(|(args, _)| args.dry_run.meaning());
        assert_eq!(trial("--dry-run"), Ok((DryRun::Client, Some("--dry-run"))));
        assert_eq!(trial("--dry-run=client"), Ok((DryRun::Client, None)));
        assert_eq!(trial("--dry-run=false"), Ok((DryRun::None, Some("--dry-run=false"))));
        let error = trial("--dry-run=x").unwrap_err();
        assert!(error.contains("[possible values: none, client, server]"), "{error}");
    }

    #[test]
    fn the_recorded_command_line_has_no_secret() {
        let (args, global) =
            parse(&["-f", "a,b", "--record=true", "--token=secret", "-n", "shop", "-s", "http://u:p@h"])
                .unwrap();
        let line = "kubectl windlass create --filename=a --filename=b --record=true --namespace=shop";
        assert_eq!(args.command_line(&global), line);
    }
}
