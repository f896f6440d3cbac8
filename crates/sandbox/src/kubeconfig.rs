//! The kubeconfig for the sandbox.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use kube::config::Kubeconfig;
use kube::{Client, Config};

/// The name of the cluster, the context and the user.
const NAME: &str = "windlass-sandbox";

/// How long a sandbox on this machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest file that is read to see whose it is: ours has some hundred bytes.
const LONGEST: u64 = 64 * 1024;

/// The text of a kubeconfig for a server without TLS or credentials.
pub fn text(address: SocketAddr) -> String {
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: windlass-sandbox\n\
         clusters:\n\
         - name: windlass-sandbox\n  \
           cluster:\n    \
             server: http://{address}\n\
         contexts:\n\
         - name: windlass-sandbox\n  \
           context:\n    \
             cluster: windlass-sandbox\n    \
             user: windlass-sandbox\n    \
             namespace: default\n\
         users:\n\
         - name: windlass-sandbox\n  \
           user: {{}}\n"
    )
}

/// Writes the kubeconfig to `path`, readable by its owner only. The write is atomic: a temporary file is renamed, so a
/// concurrent reader never sees half of it. A file that another sandbox has not written is left as it is:
/// `~/.kube/config` is a natural path to name, and holds the only copy of many credentials.
///
/// # Errors
/// When there is such a file, or the kubeconfig cannot be written.
pub fn write(path: &Path, address: SocketAddr) -> io::Result<()> {
    let path = &target(path)?;
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the path of a file"));
    };
    let mut beside = name.to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside);
    let written = create_private(&beside).and_then(|mut file| {
        file.write_all(text(address).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    });
    if written.is_err() {
        // Only the first error is reported; this one would repeat it.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// The sandbox that has written this file, if it still answers: a second one would take its users away from it, and leave
/// them without a kubeconfig at its end.
pub async fn running(path: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(target(path).ok()?).ok().filter(|text| is_own(text))?;
    let (_, server) = text.split_once("server: http://")?;
    let is_local = |address: &SocketAddr| address.ip().is_loopback();
    let address: SocketAddr = server.lines().next()?.trim().parse().ok().filter(is_local)?;
    let client = Client::try_from(Config::new(format!("http://{address}").parse().ok()?)).ok()?;
    let version = tokio::time::timeout(PATIENCE, client.apiserver_version()).await.ok()?.ok()?;
    version.git_version.contains(NAME).then_some(address)
}

/// Deletes the kubeconfig of a sandbox that has ended, so that nobody waits for a port at which nothing listens. One that
/// leads elsewhere by now, such as to a later sandbox, stays.
pub fn remove(path: &Path, address: SocketAddr) {
    let Ok(path) = target(path) else { return };
    let leads_to = |text: &str| text.contains(&format!("server: http://{address}\n")) && is_own(text);
    if std::fs::read_to_string(&path).is_ok_and(|text| leads_to(&text)) {
        // It is of no use to anybody; that it stays is no failure of the session.
        let _ = std::fs::remove_file(&path);
    }
}

/// The file to replace: where `path` is a link to the kubeconfig of a sandbox, what it leads to.
fn target(path: &Path) -> io::Result<PathBuf> {
    if let Err(error) = std::fs::symlink_metadata(path) {
        return match error.kind() {
            io::ErrorKind::NotFound => Ok(path.to_owned()),
            _ => Err(error),
        };
    }
    let refused = |problem: &str| {
        let text = format!("{problem}: name a file that does not exist, or delete this one");
        Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
    };
    let Ok(target) = std::fs::canonicalize(path) else { return refused("it is a link that leads nowhere") };
    let found = std::fs::metadata(&target)?;
    if !found.is_file() {
        return refused("it is no regular file");
    }
    let is_ours = || Ok::<_, io::Error>(found.len() <= LONGEST && is_own(&std::fs::read_to_string(&target)?));
    // An empty one, as of mktemp, has nothing to lose.
    match found.len() == 0 || is_ours().unwrap_or(false) {
        true => Ok(target),
        false => refused("it exists, and is not the kubeconfig of a sandbox alone"),
    }
}

/// Whether a text is a kubeconfig of a sandbox and has nothing else, such as a context that a user has added.
fn is_own(text: &str) -> bool {
    let Ok(Kubeconfig { clusters, contexts, auth_infos, .. }) = Kubeconfig::from_yaml(text) else {
        return false;
    };
    let clusters = clusters.iter().map(|cluster| &cluster.name);
    let contexts = contexts.iter().map(|context| &context.name);
    let users = auth_infos.iter().map(|user| &user.name);
    let names: Vec<&str> = clusters.chain(contexts).chain(users).map(String::as_str).collect();
    names == [NAME; 3]
}

fn create_private(path: &Path) -> io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn address() -> SocketAddr {
        "127.0.0.1:4242".parse().unwrap()
    }

    #[test]
    fn kube_parses_the_kubeconfig_and_finds_the_server() {
        let config = kube::config::Kubeconfig::from_yaml(&text(address())).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("windlass-sandbox"));
        let server = config.clusters[0].cluster.as_ref().unwrap().server.as_deref();
        assert_eq!(server, Some("http://127.0.0.1:4242"));
    }

    #[tokio::test]
    async fn a_sandbox_that_runs_is_found_by_its_file_and_one_that_has_ended_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        assert_eq!(running(&path).await, None, "there is no file");
        for (version, is_ours) in [("v1.36.0-windlass-sandbox", true), ("v1.36.0", false)] {
            let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = server.local_addr().unwrap();
            write(&path, address).unwrap();
            let fields = [
                "major",
                "minor",
                "gitCommit",
                "gitTreeState",
                "buildDate",
                "goVersion",
                "compiler",
                "platform",
            ];
            let mut body: serde_json::Map<String, serde_json::Value> =
                fields.map(|field| (field.to_owned(), "x".into())).into_iter().collect();
            body.insert("gitVersion".to_owned(), version.into());
            let body = serde_json::to_string(&body).unwrap();
            let answers = async {
                let (mut stream, _) = server.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await.unwrap();
                let head =
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).await.unwrap();
            };
            let (found, ()) = tokio::join!(running(&path), answers);
            assert_eq!(found, is_ours.then_some(address));
            drop(server);
            assert_eq!(running(&path).await, None, "nothing listens there any more");
        }
    }

    #[test]
    fn a_new_file_is_private_and_replaces_that_of_an_earlier_sandbox() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        write(&path, "127.0.0.1:1".parse().unwrap()).unwrap();
        // kubectl rewrites the file when a user chooses a namespace.
        let chosen = std::fs::read_to_string(&path).unwrap().replace("namespace: default", "namespace: shop");
        for before in [chosen.as_str(), ""] {
            std::fs::write(&path, before).unwrap();
            write(&path, address()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text(address()));
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            let mode =
                std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn the_kubeconfig_goes_with_its_sandbox_and_that_of_another_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        write(&path, address()).unwrap();
        remove(&path, "127.0.0.1:424".parse().unwrap());
        assert!(path.exists(), "another sandbox has written it");
        remove(&path, address());
        assert!(!path.exists());
        std::fs::write(&path, text(address()) + "# mine\npreferences: {}\n").unwrap();
        remove(&path, address());
        assert!(!path.exists(), "it has no other cluster");
        for precious in precious() {
            std::fs::write(&path, &precious).unwrap();
            remove(&path, address());
            assert_eq!(std::fs::read(&path).unwrap(), precious);
        }
    }

    /// Files that are not the kubeconfig of a sandbox alone.
    fn precious() -> Vec<Vec<u8>> {
        let other = "- name: production\n  cluster: {server: https://10.0.0.1}\n";
        let context = "- name: production\n  context: {cluster: windlass-sandbox, user: windlass-sandbox}\n";
        let user = "- name: admin\n  user: {token: secret}\n";
        let with = |list: &str, item: &str| {
            text(address()).replace(&format!("{list}:\n"), &format!("{list}:\n{item}"))
        };
        vec![
            b"precious: true\n".to_vec(),
            b"old".to_vec(),
            b"\xff\xfe".to_vec(),
            with("clusters", other).into_bytes(),
            with("contexts", context).into_bytes(),
            with("users", user).into_bytes(),
            text(address()).replace("windlass-sandbox", "production").into_bytes(),
            format!("{}{}", text(address()), "# a note\n".repeat(10_000)).into_bytes(),
        ]
    }

    #[test]
    fn a_file_that_no_sandbox_has_written_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        for content in precious() {
            std::fs::write(&path, &content).unwrap();
            let error = write(&path, address()).unwrap_err().to_string();
            assert!(
                error.contains("is not the kubeconfig of a sandbox alone: name a file that does not exist"),
                "{error}"
            );
            assert_eq!(std::fs::read(&path).unwrap(), content);
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        }
        let error = write(directory.path(), address()).unwrap_err().to_string();
        assert!(error.contains("it is no regular file"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_protects_what_it_leads_to() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().unwrap();
        let [link, file] = ["link", "file"].map(|name| directory.path().join(name));
        symlink("file", &link).unwrap();
        let error = write(&link, address()).unwrap_err().to_string();
        assert!(error.contains("a link that leads nowhere"), "{error}");
        for content in precious() {
            std::fs::write(&file, &content).unwrap();
            assert!(write(&link, address()).is_err());
            assert_eq!(std::fs::read(&file).unwrap(), content);
        }
        std::fs::write(&file, text("127.0.0.1:1".parse().unwrap())).unwrap();
        write(&link, address()).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text(address()));
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(write(&directory.path().join("no/such/config"), address()).is_err());
        assert!(write(Path::new("/"), address()).is_err());
    }
}
