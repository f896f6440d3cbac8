//! The faults of the network, drawn for each request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::call::Call;
use crate::engine::request_fault::RequestFault;

/// The faults of requests of the daemons, each in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// These never arrive.
    pub lost_requests: u8,
    /// These are carried out, and the reply is lost.
    pub lost_replies: u8,
    /// These are carried out up to five seconds late, or half a minute late, after their author has abandoned them.
    pub late_requests: u8,
    /// These get a reply up to five seconds late.
    pub late_replies: u8,
    /// These are refused with a 500.
    pub refusals: u8,
}

impl Faults {
    /// The faults of a scenario: no kind, some, or most of them, each of less than so many percent; 8 of late messages.
    pub fn of_a_scenario(rng: &mut fastrand::Rng, most: u8) -> Self {
        let likely = rng.u8(..3);
        let mut part = |most: u8| if rng.u8(..3) < likely { rng.u8(1..most) } else { 0 };
        Faults {
            lost_requests: part(most),
            lost_replies: part(most),
            late_requests: part(8),
            late_replies: part(8),
            refusals: part(most),
        }
    }

    /// How much older the state of a decision may be than the state at which its write is committed. Where no request
    /// is late, a daemon sees each change at the instant at which it happens.
    pub fn staleness(self) -> Duration {
        let is_late = self.late_requests + self.late_replies + self.lost_replies + self.lost_requests > 0;
        if is_late { Duration::from_secs(60) } else { Duration::ZERO }
    }

    /// The fault of the next request.
    pub(super) fn draw(self, rng: &mut fastrand::Rng, call: &Call) -> RequestFault {
        let late = Duration::from_millis(rng.u64(10..5000));
        // Sometimes a request arrives after its author has abandoned it.
        let given_up = Duration::from_secs(if rng.u8(..3) == 0 { 33 } else { 0 });
        let chance = rng.u8(..100);
        let webhook = "an admission webhook cannot be called";
        let fates = [
            (self.lost_requests, RequestFault::LoseRequest),
            (self.lost_replies, RequestFault::LoseReply),
            (self.late_requests, RequestFault::Delay(late + given_up)),
            (self.late_replies, RequestFault::DelayReply(late)),
            (
                if call.is_workload_write() { self.refusals } else { 0 },
                RequestFault::Refuse(500, "InternalError", webhook.into()),
            ),
        ];
        let mut below = 0;
        for (part, fault) in fates {
            below += part;
            if chance < below {
                return fault;
            }
        }
        RequestFault::Proceed
    }
}
