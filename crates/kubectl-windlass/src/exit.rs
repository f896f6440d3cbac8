//! How a command ends.

/// The exit codes. `docs/plugin.md` has the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The state that the user asked for is reached.
    Success,
    /// An error: a refused request, an object that does not exist, a file that cannot be read.
    Error,
    /// A wrong command line.
    Usage,
    /// The rollout failed.
    RolloutFailed,
    /// The rollout is not finished: `--timeout` passed, or `--watch=false` saw it under way.
    NotFinished,
    /// `plan`: it would get stuck, or cross a bound.
    Obstacle,
    /// Ctrl-C.
    Interrupted,
}

impl Exit {
    /// The code. clap ends with 2 by itself.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Error => 1,
            Exit::Usage => 2,
            Exit::RolloutFailed => 3,
            Exit::NotFinished => 4,
            Exit::Obstacle => 5,
            Exit::Interrupted => 130,
        }
    }

    /// The exit of a command about several objects: an error first, then a failure, then what is not finished.
    #[must_use]
    pub fn worse(self, other: Exit) -> Exit {
        let rank = |exit: Exit| match exit {
            Exit::Success => 0,
            Exit::NotFinished => 1,
            Exit::Obstacle => 2,
            Exit::RolloutFailed => 3,
            Exit::Error => 4,
            Exit::Usage => 5,
            Exit::Interrupted => 6,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

/// Why a command could not do its work. The text is the message for the user.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The kubeconfig, or the credentials in it.
    #[error(transparent)]
    Connection(#[from] crate::connection::ConnectionError),
    /// The API server did not answer, or refused.
    #[error(transparent)]
    Api(#[from] crate::api::ApiError),
    /// An argument names nothing that the command can work on.
    #[error("{0}")]
    Argument(String),
    /// Flags that do not go together.
    #[error("{0}")]
    Usage(String),
    /// An object that is not what its kind says.
    #[error("{object}: the API server's answer cannot be read: {error}")]
    Unreadable {
        /// Such as `deployment shop/web`.
        object: String,
        /// The defect in it.
        error: serde_json::Error,
    },
    /// The terminal could not be used.
    #[error("cannot use the terminal: {0}")]
    Terminal(std::io::Error),
    /// The reader of stdout is gone.
    #[error("stdout is closed")]
    OutputClosed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_objects_the_worst_end_counts() {
        let all = [Exit::Success, Exit::NotFinished, Exit::RolloutFailed, Exit::Error];
        assert_eq!(all.map(Exit::code), [0, 4, 3, 1]);
        assert!(
            all.windows(2).all(|pair| pair[0].worse(pair[1]) == pair[1] && pair[1].worse(pair[0]) == pair[1])
        );
    }
}
