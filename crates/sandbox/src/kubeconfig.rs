//! The kubeconfig for the sandbox.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    path::Path,
};

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
/// concurrent reader never sees half of it.
pub fn write(path: &Path, address: SocketAddr) -> io::Result<()> {
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

fn create_private(path: &Path) -> io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn writing_replaces_an_old_file_and_leaves_no_temporary_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(&path, "old").unwrap();
        write(&path, address()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text(address()));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            let mode =
                std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(write(&directory.path().join("no/such/config"), address()).is_err());
        assert!(write(Path::new("/"), address()).is_err());
    }
}
