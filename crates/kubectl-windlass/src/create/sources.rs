//! Resolves the arguments of `-f` to files, URLs and stdin, in the order in which they are read.

use std::fs;
use std::path::{Path, PathBuf};

use http::Uri;

/// The endings of manifests in directories; their case matters.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

/// One thing to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Standard input.
    Stdin,
    /// A page.
    Url(Uri),
    /// A file.
    File(PathBuf),
}

impl Source {
    /// Its name in messages.
    pub fn name(&self) -> String {
        match self {
            Source::Stdin => "standard input".to_owned(),
            Source::Url(url) => url.to_string(),
            Source::File(file) => file.display().to_string(),
        }
    }
}

/// Finds all sources of the arguments of `-f`.
///
/// # Errors
/// With a message for each argument without a source. As with kubectl, nothing is created then.
pub fn resolve(arguments: &[String], recursive: bool) -> Result<Vec<Source>, Vec<String>> {
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    for argument in arguments {
        match one(argument, recursive) {
            Ok(sources) => all.extend(sources),
            Err(error) => errors.push(format!("-f {argument}: {error}")),
        }
    }
    if all.iter().filter(|source| **source == Source::Stdin).count() > 1 {
        errors.push("-f - stands twice: stdin can be read once".to_owned());
    }
    if errors.is_empty() { Ok(all) } else { Err(errors) }
}

fn one(argument: &str, recursive: bool) -> Result<Vec<Source>, String> {
    if argument == "-" {
        return Ok(vec![Source::Stdin]);
    }
    if argument.starts_with("http://") || argument.starts_with("https://") {
        return url(argument).map(|url| vec![Source::Url(url)]);
    }
    let path = Path::new(argument);
    match fs::metadata(path) {
        Ok(metadata) => expand(path, metadata.is_dir(), recursive),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut all = Vec::new();
            for path in matches(argument)? {
                all.extend(expand(&path, path.is_dir(), recursive)?);
            }
            Ok(all)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a URL. Refuses user names: they would end up in messages.
fn url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|error| format!("not a URL: {error}"))?;
    let authority = url.authority().map_or("", |authority| authority.as_str());
    if url.host().is_none_or(str::is_empty) {
        return Err("the URL has no host".to_owned());
    }
    if authority.contains('@') {
        return Err("the URL has a user name: fetch it with another program and use -f -".to_owned());
    }
    Ok(url)
}

/// The paths that match a pattern, in the order of their names.
fn matches(pattern: &str) -> Result<Vec<PathBuf>, String> {
    let paths = glob::glob(&translated(pattern)).map_err(|error| format!("not a valid pattern: {error}"))?;
    let mut found: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    found.sort();
    if found.is_empty() { Err("no such file, directory or match of a pattern".to_owned()) } else { Ok(found) }
}

/// Translates a pattern of Go's `filepath.Glob` for the crate `glob`: `[^a]` becomes `[!a]`, `**` becomes `*`, and a
/// backslash escapes a character (not on Windows).
fn translated(pattern: &str) -> String {
    let mut text = String::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '*' if rest.peek() == Some(&'*') => {}
            '[' if rest.next_if_eq(&'^').is_some() => text.push_str("[!"),
            '\\' if !cfg!(windows) => {
                if let Some(c) = rest.next() {
                    text.push_str(&glob::Pattern::escape(&c.to_string()));
                }
            }
            c => text.push(c),
        }
    }
    text
}

fn expand(path: &Path, is_directory: bool, recursive: bool) -> Result<Vec<Source>, String> {
    if !is_directory {
        return Ok(vec![Source::File(path.to_owned())]);
    }
    let mut found = Vec::new();
    walk(path, recursive, &mut found)?;
    if found.is_empty() {
        let endings = ENDINGS.map(|ending| format!(".{ending}")).join(", ");
        let hint = if recursive { "" } else { "; -R reads the directories in it, too" };
        return Err(format!("the directory has no file that ends in {endings}{hint}"));
    }
    Ok(found)
}

/// Collects the manifests of a directory in the byte order of their names. Does not follow links to directories, so that
/// there is no loop.
fn walk(directory: &Path, recursive: bool, found: &mut Vec<Source>) -> Result<(), String> {
    let error = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut entries =
        fs::read_dir(directory).map_err(error)?.collect::<Result<Vec<_>, _>>().map_err(error)?;
    entries.sort_by_cached_key(|entry| entry.file_name().into_encoded_bytes());
    for entry in entries {
        let path = entry.path();
        if entry.file_type().map_err(error)?.is_dir() {
            if recursive {
                walk(&path, recursive, found)?;
            }
        } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
            found.push(Source::File(path));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in ["b.yaml", "a/2.yml", "a/1.json", "c.YAML", "notes.txt", "B.json", "d/x.txt"] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    /// The sources of an argument below the directory, without it.
    fn sources(root: &Path, argument: &str, recursive: bool) -> Result<Vec<String>, String> {
        let argument = root.join(argument).display().to_string();
        let found = resolve(&[argument], recursive).map_err(|errors| errors.join("\n"))?;
        let prefix = format!("{}/", root.display());
        Ok(found.iter().map(|source| source.name().replace(&prefix, "")).collect())
    }

    #[test]
    fn a_directory_is_read_by_names_and_deeper_only_when_asked() {
        let root = tree();
        assert_eq!(sources(root.path(), "", false).unwrap(), ["B.json", "b.yaml"]);
        let all = ["B.json", "a/1.json", "a/2.yml", "b.yaml"];
        assert_eq!(sources(root.path(), "", true).unwrap(), all);
        let error = sources(root.path(), "d", false).unwrap_err();
        assert!(error.contains(".json, .yaml, .yml; -R"), "{error}");
        assert_eq!(sources(root.path(), "notes.txt", false).unwrap(), ["notes.txt"], "any file may be named");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_directory_is_followed_as_an_argument_and_not_inside_of_one() {
        let root = tree();
        std::os::unix::fs::symlink(root.path(), root.path().join("a/loop")).unwrap();
        std::os::unix::fs::symlink(root.path().join("b.yaml"), root.path().join("a/3.yaml")).unwrap();
        assert_eq!(sources(root.path(), "a", true).unwrap(), ["a/1.json", "a/2.yml", "a/3.yaml"]);
        assert_eq!(sources(root.path(), "a/loop/a", false).unwrap().len(), 3);
    }

    #[test]
    fn a_pattern_is_tried_where_there_is_no_such_path() {
        let root = tree();
        assert_eq!(sources(root.path(), "*.y*ml", false).unwrap(), ["b.yaml"]);
        assert_eq!(sources(root.path(), "**/[^1].y?l", false).unwrap(), ["a/2.yml"]);
        fs::write(root.path().join("[x].yaml"), "").unwrap();
        assert_eq!(sources(root.path(), "[x].yaml", false).unwrap(), ["[x].yaml"], "the path itself");
        assert_eq!(sources(root.path(), r"\[x\].*", false).unwrap(), ["[x].yaml"]);
        let error = sources(root.path(), "none*", false).unwrap_err();
        assert!(error.contains("none*: no such file"), "{error}");
        assert!(sources(root.path(), "[", false).unwrap_err().contains("pattern"));
    }

    #[test]
    fn each_argument_that_leads_nowhere_is_reported() {
        let arguments = ["-", "/no/such", "https://", "https://u:p@host/x", "-"].map(str::to_owned);
        let errors = resolve(&arguments, false).unwrap_err();
        assert_eq!(errors.len(), 4, "{errors:?}");
        assert!(errors[3].contains("twice") && !errors[2].contains("no host"), "{errors:?}");
        let fine = ["http://127.0.0.1:1/a.yaml?b=c", "-"].map(str::to_owned);
        let names: Vec<String> = resolve(&fine, false).unwrap().iter().map(Source::name).collect();
        assert_eq!(names, ["http://127.0.0.1:1/a.yaml?b=c", "standard input"]);
    }
}
