//! The fault of a request on its way to the API server and back.

use std::fmt;
use std::time::Duration;

/// The fault of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestFault {
    /// The request and its reply arrive.
    Proceed,
    /// The request never arrives.
    LoseRequest,
    /// It is carried out, and the reply never arrives.
    LoseReply,
    /// It is carried out after this time.
    Delay(Duration),
    /// It is carried out at once, and the reply arrives after this time.
    DelayReply(Duration),
    /// It is refused with this code, reason and message.
    Refuse(u16, &'static str, String),
    /// The reply is this code with a `Retry-After` of this many seconds. The request may be carried out all the same,
    /// since a proxy in between gave up.
    RetryAfter {
        /// 429 or 503.
        code: u16,
        /// The value of `Retry-After`.
        seconds: u32,
        /// Whether it is carried out.
        carried_out: bool,
    },
    /// It reaches a member of the API server that has seen nothing for this time.
    Behind(Duration),
    /// Its connection relays nothing any more: the request never arrives, and its author gets no reply.
    Freeze,
    /// It gets no reply: its sender has been killed, or the API server hangs.
    Hang,
    /// Its author is killed at it.
    Kill {
        /// Whether it is carried out before.
        carried_out: bool,
    },
}

impl RequestFault {
    /// Whether it is carried out, now or later.
    pub fn is_carried_out(&self) -> bool {
        match self {
            RequestFault::LoseRequest
            | RequestFault::Refuse(..)
            | RequestFault::Freeze
            | RequestFault::Hang => false,
            RequestFault::RetryAfter { carried_out, .. } | RequestFault::Kill { carried_out } => *carried_out,
            _ => true,
        }
    }
}

/// Messages of an API server or a proxy that occur only in replies with `Retry-After`.
pub const WAITS: [&str; 2] = ["Too many requests, please try again later.", "the apiserver is shutting down"];

/// The reply that a daemon got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// None.
    None,
    /// It succeeded.
    Success,
    /// It was refused by a fault of the simulation.
    Refused,
    /// A `Retry-After` with this time.
    Wait(Duration),
    /// Another reply, which no invariant judges: a conflict, or a refusal by the rules of the API.
    Other,
}

/// A fault that is ordered for the creation of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderedFault {
    /// It arrives after its author has abandoned it.
    AfterAbandoned,
    /// Its author is killed at it, and it arrives after the successor has started.
    AfterAuthorKilled,
    /// It is carried out at once, and the reply arrives late, but before its author abandons it.
    LateReply,
}

/// As a remark after the request; empty without a fault.
impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestFault::Proceed => Ok(()),
            RequestFault::LoseRequest => write!(f, "never arrives"),
            RequestFault::LoseReply => write!(f, "the reply is lost"),
            RequestFault::Delay(time) => write!(f, "arrives {time:?} late"),
            RequestFault::DelayReply(time) => write!(f, "the reply is {time:?} late"),
            RequestFault::Refuse(code, _, message) => write!(f, "refused with {code}, {message}"),
            RequestFault::RetryAfter { code, seconds, carried_out } => {
                let done = if *carried_out { ", and carried out" } else { "" };
                write!(f, "{code} with Retry-After {seconds} s{done}")
            }
            RequestFault::Behind(time) => write!(f, "reply of a member that lags by {time:?}"),
            RequestFault::Freeze => write!(f, "its connection is frozen"),
            RequestFault::Kill { .. } => write!(f, "its sender is killed"),
            RequestFault::Hang => write!(f, "it gets no reply"),
        }
    }
}
