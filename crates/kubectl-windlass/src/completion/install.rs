//! `completion install`: the name by which kubectl finds the completion of a plugin, as a link beside the plugin.

use std::path::{Path, PathBuf};

use crate::invocation::{COMPLETE, Invocation};

/// The result of creating the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The link.
    pub link: PathBuf,
    /// Whether it was there already.
    pub was_there: bool,
}

/// Puts the link beside the file that was called, which kubectl found in these directories.
///
/// # Errors
/// With the file and what to do.
pub fn install(invocation: &Invocation, path: &[PathBuf]) -> Result<Installed, String> {
    let name = invocation.name();
    let Some(plugin) = name.strip_prefix("kubectl-") else {
        return Err(format!(
            "{name} is no name of a kubectl plugin: call it kubectl-windlass, in a directory of PATH"
        ));
    };
    let file = invocation.file(path).ok_or_else(|| format!("{name} is not in a directory of PATH"))?;
    let (Some(directory), Some(target)) = (file.parent(), file.file_name()) else {
        return Err(format!("{} is no file", file.display()));
    };
    let link = directory.join(format!("{COMPLETE}{plugin}{}", std::env::consts::EXE_SUFFIX));
    let failed = |problem: &dyn std::fmt::Display| format!("cannot write {}: {problem}", link.display());
    match std::fs::symlink_metadata(&link) {
        Ok(found)
            if found.is_symlink() && std::fs::read_link(&link).is_ok_and(|it| it == Path::new(target)) =>
        {
            return Ok(Installed { link, was_there: true });
        }
        // On Windows there are only copies.
        Ok(found) if found.is_symlink() || (cfg!(windows) && found.is_file()) => {
            std::fs::remove_file(&link).map_err(|error| failed(&error))?;
        }
        Ok(_) => return Err(failed(&"it exists and is no link; move it away")),
        Err(_) => {}
    }
    make(Path::new(target), &file, &link).map_err(|error| failed(&error))?;
    Ok(Installed { link, was_there: false })
}

/// By name only: what replaces the plugin later is found, too.
#[cfg(unix)]
fn make(target: &Path, _file: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// Users may not make symbolic links there.
#[cfg(not(unix))]
fn make(_target: &Path, file: &Path, link: &Path) -> std::io::Result<()> {
    std::fs::hard_link(file, link).or_else(|_| std::fs::copy(file, link).map(drop))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn plugin(directory: &Path) -> Invocation {
        let program = directory.join("kubectl-windlass");
        std::fs::write(&program, "").unwrap();
        Invocation { program, kubectl: "kubectl".to_owned() }
    }

    #[test]
    fn the_link_stands_beside_the_plugin_and_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let invocation = plugin(directory.path());
        let link = directory.path().join("kubectl_complete-windlass");
        let first = install(&invocation, &[]).unwrap();
        assert_eq!(first, Installed { link: link.clone(), was_there: false });
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("kubectl-windlass"));
        assert!(install(&invocation, &[]).unwrap().was_there);
    }

    #[test]
    fn a_link_to_another_file_is_replaced_and_a_file_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let invocation = plugin(directory.path());
        let link = directory.path().join("kubectl_complete-windlass");
        std::os::unix::fs::symlink("elsewhere", &link).unwrap();
        assert!(!install(&invocation, &[]).unwrap().was_there);
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("kubectl-windlass"));
        std::fs::remove_file(&link).unwrap();
        std::fs::write(&link, "mine").unwrap();
        assert!(install(&invocation, &[]).unwrap_err().contains("is no link"));
        assert_eq!(std::fs::read_to_string(&link).unwrap(), "mine");
    }

    #[test]
    fn a_program_that_kubectl_would_not_find_is_refused() {
        let called = |program: &str| Invocation { program: program.into(), kubectl: "kubectl".to_owned() };
        assert!(install(&called("/bin/windlass-cli"), &[]).unwrap_err().contains("kubectl-windlass"));
        assert!(install(&called("kubectl-windlass"), &[]).unwrap_err().contains("PATH"));
    }
}
