//! How the program was called: by kubectl as a plugin, by kubectl for a completion, or directly.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::text::harmless;

/// The start of a plugin's file name, before the name of the plugin.
const PLUGIN: &str = "kubectl-";

/// The start of the name of the program that kubectl calls to complete a plugin, before the name of the plugin.
pub const COMPLETE: &str = "kubectl_complete-";

/// The hidden command that completes, for shells and tests that call the program by its own name.
const COMPLETE_COMMAND: &str = "__complete";

/// The hidden command that writes the manual pages into a directory, for archives. Like the other it is no command of
/// clap: the scripts of the shells would offer it.
const MAN_COMMAND: &str = "__man";

/// The variable in which kubectl 1.37 and later tell a plugin where kubectl is: it may have another name, such as
/// `kubectl-1.37` or `oc`, or be in no directory of `PATH`.
const KUBECTL_PATH: &str = "KUBECTL_PATH";

/// The first argument of the process: the name that the program was called by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The path or name, as the caller wrote it.
    pub program: PathBuf,
    /// How a user calls kubectl: `kubectl`, or as the kubectl that has called the program says.
    pub kubectl: String,
}

/// The programs that an offered command may name, as a user calls them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands {
    /// kubectl.
    pub kubectl: String,
    /// The plugin through kubectl; `None` if kubectl would not find it.
    pub plugin: Option<String>,
}

impl Invocation {
    /// The call of this process.
    pub fn of_process() -> Self {
        let kubectl = std::env::var_os(KUBECTL_PATH).filter(|path| !path.is_empty()).map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        Invocation {
            program: std::env::args_os().next().unwrap_or_default().into(),
            kubectl: kubectl.map_or("kubectl".to_owned(), |it| {
                as_word(&it, &std::env::split_paths(&path).collect::<Vec<_>>())
            }),
        }
    }

    /// The commands that a text may offer.
    pub fn commands(&self) -> Commands {
        Commands { kubectl: self.kubectl.clone(), plugin: self.as_plugin() }
    }

    /// The name of the file, without directory and without the ending of Windows.
    pub fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.strip_suffix(".exe").map(str::to_owned).unwrap_or(name)
    }

    /// How kubectl calls it: `kubectl windlass` for the file `kubectl-windlass`, and dashes for underscores. `None` if
    /// kubectl would not find it by this name.
    pub fn as_plugin(&self) -> Option<String> {
        let name = self.name();
        let words = name.strip_prefix(PLUGIN).filter(|words| !words.is_empty())?;
        Some(format!("{} {}", self.kubectl, words.replace('-', " ").replace('_', "-")))
    }

    /// How a user calls it: through kubectl, or by its own name.
    pub fn command(&self) -> String {
        self.as_plugin().unwrap_or_else(|| self.name())
    }

    /// The words to complete, if that is what the process was called for. The last one may be empty.
    pub fn completes(&self, arguments: &[OsString]) -> Option<Vec<String>> {
        let words = match arguments.split_first() {
            _ if self.name().starts_with(COMPLETE) => arguments,
            Some((first, rest)) if first == COMPLETE_COMMAND => rest,
            _ => return None,
        };
        Some(words.iter().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    /// The directory for the manual pages, if that is what the process was called for.
    pub fn writes_manual(arguments: &[OsString]) -> Option<PathBuf> {
        match arguments {
            [command, directory] if command == MAN_COMMAND => Some(directory.into()),
            _ => None,
        }
    }

    /// Where the file is that was called: as the caller wrote it, or as the first of its name in these directories.
    pub fn file(&self, path: &[PathBuf]) -> Option<PathBuf> {
        let is_name = self.program.parent().is_none_or(|parent| parent == Path::new(""));
        if !is_name {
            return std::path::absolute(&self.program).ok();
        }
        let mut name = self.program.clone().into_os_string();
        if cfg!(windows) && self.program.extension().is_none() {
            name.push(".exe");
        }
        path.iter().map(|directory| directory.join(&name)).find(|file| file.is_file())
    }
}

/// A program as a word of a shell: its name where the shell finds it by that, else its path.
fn as_word(program: &Path, path: &[PathBuf]) -> String {
    // kubectl names its file behind all links; the shell may find it by a link.
    let file = program.canonicalize().ok();
    let leads_to_it = |name: &OsString| {
        let found = path.iter().map(|directory| directory.join(name)).find(|file| file.is_file());
        file.is_some() && found.and_then(|found| found.canonicalize().ok()) == file
    };
    let names = [program.file_name().unwrap_or_default().into(), format!("kubectl{EXE_SUFFIX}").into()];
    let word = match names.into_iter().find(leads_to_it) {
        // The ending of Windows is typed by nobody.
        Some(name) => {
            let name = name.to_string_lossy();
            name.strip_suffix(EXE_SUFFIX).unwrap_or(&name).into()
        }
        None => program.to_owned(),
    };
    let word = harmless(&word.to_string_lossy());
    let is_plain = |c: char| c.is_alphanumeric() || "/\\:._+-".contains(c);
    if word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(program: &str) -> Invocation {
        Invocation { program: program.into(), kubectl: "kubectl".to_owned() }
    }

    #[test]
    fn kubectl_is_named_as_it_was_called() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        std::fs::write(file("kubectl-1.37"), "").unwrap();
        let path = [directory.path().to_owned()];
        assert_eq!(as_word(&file("kubectl-1.37"), &path), "kubectl-1.37");
        assert_eq!(as_word(Path::new("/opt/a/kubectl"), &path), "/opt/a/kubectl");
        assert_eq!(as_word(Path::new("/opt/a's b/kubectl"), &path), r"'/opt/a'\''s b/kubectl'");
        #[cfg(unix)]
        {
            let elsewhere = tempfile::tempdir().unwrap();
            let linked = elsewhere.path().join("kubectl");
            std::os::unix::fs::symlink(file("kubectl-1.37"), &linked).unwrap();
            assert_eq!(as_word(&file("kubectl-1.37"), &[elsewhere.path().to_owned()]), "kubectl", "a link");
        }
        let invocation = Invocation { kubectl: "kubectl-1.37".to_owned(), ..called("kubectl-windlass") };
        assert_eq!(invocation.commands().plugin.unwrap(), "kubectl-1.37 windlass");
    }

    #[test]
    fn kubectl_calls_a_plugin_by_the_name_of_its_file() {
        assert_eq!(called("/krew/bin/kubectl-windlass").as_plugin().unwrap(), "kubectl windlass");
        assert_eq!(called("kubectl-windlass.exe").as_plugin().unwrap(), "kubectl windlass");
        assert_eq!(called("kubectl-my_roll-out").as_plugin().unwrap(), "kubectl my-roll out");
        assert_eq!((called("/bin/windlass-cli").as_plugin(), called("kubectl-").as_plugin()), (None, None));
        assert_eq!(called("/bin/windlass-cli").command(), "windlass-cli");
    }

    #[test]
    fn a_completion_is_asked_for_by_the_name_or_by_the_first_word() {
        let words = |program: &str, words: &[&str]| {
            called(program).completes(&words.iter().map(OsString::from).collect::<Vec<_>>())
        };
        assert_eq!(words("/bin/kubectl_complete-windlass", &["explain", ""]).unwrap(), ["explain", ""]);
        assert_eq!(words("kubectl-windlass", &["__complete", "sta"]).unwrap(), ["sta"]);
        assert_eq!(words("kubectl-windlass", &["explain", "__complete"]), None);
        assert_eq!(words("kubectl-windlass", &[]), None);
    }

    #[test]
    fn a_bare_name_is_looked_up_as_the_shell_does() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(format!("kubectl-windlass{}", std::env::consts::EXE_SUFFIX));
        std::fs::write(&file, "").unwrap();
        let path = [directory.path().join("missing"), directory.path().to_owned()];
        assert_eq!(called("kubectl-windlass").file(&path), Some(file.clone()));
        assert_eq!(called("kubectl-other").file(&path), None);
        assert_eq!(called(file.to_str().unwrap()).file(&[]), Some(file));
    }
}
