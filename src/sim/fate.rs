//! What becomes of a request on its way to the API server and back.

use std::fmt;
use std::time::Duration;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
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
    /// It comes to a member that has seen nothing for so long.
    Behind(Duration),
    /// From beyond the grave: its sender has been killed.
    Hang,
}

impl Fate {
    /// Whether it is carried out, now or later.
    pub fn is_carried_out(&self) -> bool {
        !matches!(self, Fate::LoseRequest | Fate::Refuse(..) | Fate::Hang)
    }
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
impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Proceed => Ok(()),
            Fate::LoseRequest => write!(f, "never arrives"),
            Fate::LoseReply => write!(f, "the reply is lost"),
            Fate::Delay(time) => write!(f, "arrives {time:?} late"),
            Fate::DelayReply(time) => write!(f, "is answered {time:?} late"),
            Fate::Refuse(code, _, message) => write!(f, "refused with {code}, {message}"),
            Fate::Behind(time) => write!(f, "answered by a member that is {time:?} behind"),
            Fate::Hang => write!(f, "its sender is dead"),
        }
    }
}
