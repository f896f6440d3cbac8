//! What becomes of a request on its way to the API server and back.

use std::fmt;
use std::time::Duration;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestFault {
    /// It arrives, and so does the answer.
    Proceed,
    /// It never arrives.
    LoseRequest,
    /// It is carried out, and the answer never arrives.
    LoseReply,
    /// It is carried out so much later.
    Delay(Duration),
    /// It is carried out at once and answered so much later.
    DelayReply(Duration),
    /// It is refused with this code, reason and message.
    Refuse(u16, &'static str, String),
    /// Its author is asked with this code to send it again after so many seconds. It may be carried out all the same:
    /// a proxy in between had no patience.
    AskToWait {
        /// 429 or 503.
        code: u16,
        /// How long.
        seconds: u32,
        /// Whether it is carried out.
        carried_out: bool,
    },
    /// It comes to a member that has seen nothing for so long.
    Behind(Duration),
    /// Its connection relays nothing any more: it never arrives, and its author is told nothing.
    Freeze,
    /// From beyond the grave: its sender has been killed.
    Hang,
}

impl RequestFault {
    /// Whether it is carried out, now or later.
    pub fn is_carried_out(&self) -> bool {
        match self {
            RequestFault::LoseRequest
            | RequestFault::Refuse(..)
            | RequestFault::Freeze
            | RequestFault::Hang => false,
            RequestFault::AskToWait { carried_out, .. } => *carried_out,
            _ => true,
        }
    }
}

/// What an API server or a proxy says to whom it asks to wait, and to nobody else.
pub const WAITS: [&str; 2] = ["Too many requests, please try again later.", "the apiserver is shutting down"];

/// What a daemon got for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    None,
    /// It succeeded.
    Success,
    /// It was refused, as the simulation had decided.
    Refused,
    /// It was asked to send the request again after this time.
    Wait(Duration),
    /// Another answer, by which nothing here is judged: a conflict, or a refusal by the rules of the API.
    Other,
}

/// What is ordered for a creation of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It arrives when its author has given it up.
    ArriveLate,
    /// Its author dies of it, and it arrives all the same when there is another one.
    OutliveAuthor,
    /// It is carried out at once, and its author hears of it late, but before giving it up.
    AnswerLate,
}

/// As a remark behind the request; nothing for one that fares well.
impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestFault::Proceed => Ok(()),
            RequestFault::LoseRequest => write!(f, "never arrives"),
            RequestFault::LoseReply => write!(f, "the reply is lost"),
            RequestFault::Delay(time) => write!(f, "arrives {time:?} late"),
            RequestFault::DelayReply(time) => write!(f, "is answered {time:?} late"),
            RequestFault::Refuse(code, _, message) => write!(f, "refused with {code}, {message}"),
            RequestFault::AskToWait { code, seconds, carried_out } => {
                let done = if *carried_out { ", and carried out" } else { "" };
                write!(f, "asked with {code} to wait {seconds} s{done}")
            }
            RequestFault::Behind(time) => write!(f, "answered by a member that is {time:?} behind"),
            RequestFault::Freeze => write!(f, "its connection relays nothing"),
            RequestFault::Hang => write!(f, "its sender is dead"),
        }
    }
}
