//! kube-controller-manager and Windlass as processes that do the same work on the same API server, for
//! comparisons.

use std::path::{Path, PathBuf};

use crate::apiserver;
use crate::process::{Process, windlass};

/// Upstream's program.
pub const UPSTREAM: &str = "kube-controller-manager";

/// An implementation of the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// kube-controller-manager.
    Upstream,
    /// Windlass.
    Windlass,
}

impl Side {
    /// Both, in the order of the tables.
    pub const BOTH: [Side; 2] = [Side::Upstream, Side::Windlass];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Side::Upstream => UPSTREAM,
            Side::Windlass => "windlass",
        }
    }

    /// Where its program is: upstream's in the folder of the user's, ours where cargo builds it. The environment
    /// variable `DIFFERENTIAL_WINDLASS` names another of ours.
    pub fn program(self, assets: &Path) -> PathBuf {
        match self {
            Side::Upstream => assets.join(UPSTREAM),
            Side::Windlass => std::env::var_os("DIFFERENTIAL_WINDLASS").map_or_else(windlass, PathBuf::from),
        }
    }

    /// Starts it for these controllers. Waiting for a rate limiter would be the difference, so that there is none.
    pub fn start(
        self,
        assets: &Path,
        kubeconfig: &Path,
        controllers: &str,
        more: &[&str],
        log: &Path,
    ) -> Process {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let controllers = format!("--controllers={controllers}");
        let common =
            [&kubeconfig, &controllers, "--kube-api-qps=1000", "--kube-api-burst=2000", "--secure-port=0"];
        let flags: Vec<&str> = common.into_iter().chain(more.iter().copied()).collect();
        Process::start(&self.program(assets), &flags, log)
    }
}

/// The folder with etcd, kube-apiserver and kube-controller-manager.
///
/// # Errors
/// When the user named none, or a program is missing, with what is missing.
pub fn assets() -> Result<PathBuf, String> {
    let programs = ["etcd", "kube-apiserver", UPSTREAM];
    let Some(folder) = apiserver::assets() else {
        return Err(format!("{} names no folder with {}", apiserver::ASSETS, programs.join(", ")));
    };
    let missing: Vec<&str> = programs.into_iter().filter(|program| !folder.join(program).is_file()).collect();
    match missing.is_empty() {
        true => Ok(folder),
        false => Err(format!("{}={} has no {}", apiserver::ASSETS, folder.display(), missing.join(", "))),
    }
}
