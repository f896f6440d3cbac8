//! The open connections of a listener: which have timed out, and which one is closed for a new one.
//!
//! A pure value; the caller passes the time. The rule that keeps a probe alive in a flood: when all connections are
//! taken, a new one replaces one of the address that has the most, whatever its state. So a client that
//! opens thousands only displaces its own, and nothing that it sends or leaves unread protects them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::connection_limits::{Limits, client_of};

/// How long a connection is protected from new ones of its own address, or it would be closed before
/// its first request. The price: a flood passes through at `connections` in each such time, some 2500 a second;
/// more are refused.
const GRACE: Duration = Duration::from_millis(100);

/// The same for a connection on which a request is under way.
const BUSY_GRACE: Duration = Duration::from_secs(1);

/// The phase of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// In the TLS handshake.
    Handshake,
    /// A header has begun, or is due because the connection is new.
    Header,
    /// Between two requests.
    Idle,
    /// The requests that are being answered, by the start of their phase; as many as there may be streams at most.
    Busy(Vec<Instant>),
}

#[derive(Debug)]
struct Open {
    client: IpAddr,
    phase: Phase,
    opened: Instant,
    /// Since when it has been in this phase. What is sent meanwhile changes nothing: it may be pings.
    since: Instant,
    /// Whether bytes between two requests are the beginning of a header. In HTTP/2 they may be a ping.
    header_follows: bool,
    /// Whether an authenticated client has sent an allowed request on it.
    authorized: bool,
    finishing: bool,
}

impl Open {
    fn is_busy(&self) -> bool {
        matches!(self.phase, Phase::Busy(_))
    }

    /// Whether a new connection of its own address may replace it. It counts from the opening, which
    /// is the one time that a client cannot reset.
    fn is_replaceable(&self, now: Instant) -> bool {
        let grace = if self.is_busy() { BUSY_GRACE } else { GRACE };
        !self.authorized && now.saturating_duration_since(self.opened) >= grace
    }
}

/// Why a connection has timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// Close it: the handshake took too long.
    Handshake,
    /// Close it: the header took too long.
    Header,
    /// Close it: an answer was not computed or not read for too long.
    Stalled,
    /// Have it finish: there was no request for too long.
    Idle,
    /// Have it finish: after the requests under way.
    Age,
    /// Close it: it was to finish and has not.
    Overstayed,
}

impl Overdue {
    /// Whether the connection may end gracefully. HTTP/2's GOAWAY tells the client that a request in flight
    /// was not seen, so that it can be sent again.
    pub(super) fn is_graceful(self) -> bool {
        matches!(self, Overdue::Idle | Overdue::Age)
    }

    /// One word for metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Overdue::Handshake => "handshake_timeout",
            Overdue::Header => "header_timeout",
            Overdue::Stalled => "stalled",
            Overdue::Idle => "idle_timeout",
            Overdue::Age => "age",
            Overdue::Overstayed => "overstayed",
        }
    }
}

/// The open connections.
#[derive(Debug)]
pub(super) struct Connections {
    open: BTreeMap<u64, Open>,
    next: u64,
    limits: Limits,
}

impl Connections {
    pub(super) fn new(limits: Limits) -> Self {
        Connections { open: BTreeMap::new(), next: 0, limits }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Which connection is closed for a new one of this address, if any has to be.
    ///
    /// One of the address with the most connections, if it has more than the new one's would have then: at
    /// once, since none of its connections is worth more than the other address' first. Else the new one can
    /// only replace one of its own address. Those without an authorized request are closed first, then those without a
    /// request, then the longest in their state. A proxy that hides its clients is one client here: it has
    /// all connections if no other needs them, and in a flood its scraper keeps the one that it scrapes on.
    pub(super) fn find_slot(&self, address: IpAddr, now: Instant) -> Slot {
        if self.open.len() < self.limits.connections.max(1) {
            return Slot::Free;
        }
        let mut of_client: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for open in self.open.values() {
            *of_client.entry(open.client).or_default() += 1;
        }
        let connections_of = |client: &IpAddr| of_client.get(client).copied().unwrap_or_default();
        let newcomer = client_of(address);
        let own = connections_of(&newcomer);
        let is_candidate = |open: &Open| {
            let others = connections_of(&open.client);
            others > own + 1 || (open.is_replaceable(now) && (others > own || open.client == newcomer))
        };
        let candidates = self.open.iter().filter(|(_, open)| is_candidate(open));
        let first = candidates.min_by_key(|(id, open)| {
            (Reverse(connections_of(&open.client)), open.authorized, open.is_busy(), open.since, **id)
        });
        first.map_or(Slot::Full, |(&id, _)| Slot::Replacing(id))
    }

    /// A connection is open; the number identifies it from now on.
    pub(super) fn open(&mut self, address: IpAddr, tls: bool, now: Instant) -> u64 {
        let phase = if tls { Phase::Handshake } else { Phase::Header };
        let id = self.next;
        self.next += 1;
        let open = Open {
            client: client_of(address),
            phase,
            opened: now,
            since: now,
            header_follows: true,
            authorized: false,
            finishing: false,
        };
        self.open.insert(id, open);
        id
    }

    /// The handshake is done.
    pub(super) fn handshake_done(&mut self, id: u64, http2: bool, now: Instant) {
        self.change(id, |open| {
            (open.phase, open.since, open.header_follows) = (Phase::Header, now, !http2);
        });
    }

    /// Bytes came from the client.
    pub(super) fn read(&mut self, id: u64, now: Instant) {
        self.change(id, |open| {
            // Only the first byte of a header, else one every nine seconds would buy another ten.
            if open.phase == Phase::Idle && open.header_follows {
                (open.phase, open.since) = (Phase::Header, now);
            }
        });
    }

    /// A request's header is complete, or its answer is computed and to be read. Returns the argument
    /// for [`Connections::ended`].
    pub(super) fn began(&mut self, id: u64, now: Instant) -> Instant {
        self.change(id, |open| match &mut open.phase {
            Phase::Busy(under_way) => under_way.push(now),
            Phase::Handshake | Phase::Header | Phase::Idle => {
                (open.phase, open.since) = (Phase::Busy(vec![now]), now);
            }
        });
        now
    }

    /// The phase is over: the answer is computed, or read, or the request was cancelled.
    pub(super) fn ended(&mut self, id: u64, began: Instant, now: Instant) {
        self.change(id, |open| {
            let Phase::Busy(under_way) = &mut open.phase else { return };
            if let Some(place) = under_way.iter().position(|other| *other == began) {
                under_way.swap_remove(place);
            }
            if under_way.is_empty() {
                (open.phase, open.since) = (Phase::Idle, now);
            }
        });
    }

    /// An authenticated client has sent an allowed request.
    pub(super) fn authorized(&mut self, id: u64) {
        self.change(id, |open| open.authorized = true);
    }

    /// The connection is closed.
    pub(super) fn closed(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// The connections that have timed out.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<(u64, Overdue)> {
        let Limits { handshake_timeout, header_timeout, idle_timeout, connection_age, .. } = self.limits;
        // So that the answer about a timeout is still sent.
        let request_timeout = self.limits.request_timeout + GRACE;
        let mut found = Vec::new();
        for (&id, open) in &mut self.open {
            let quiet = now.saturating_duration_since(open.since);
            let age = now.saturating_duration_since(open.opened);
            let stalled = |began: &Instant| now.saturating_duration_since(*began) >= request_timeout;
            let overdue = match &open.phase {
                Phase::Handshake if quiet >= handshake_timeout => Overdue::Handshake,
                Phase::Header if quiet >= header_timeout => Overdue::Header,
                Phase::Busy(under_way) if under_way.iter().any(stalled) => Overdue::Stalled,
                Phase::Idle if quiet >= idle_timeout && open.finishing => Overdue::Overstayed,
                Phase::Idle if quiet >= idle_timeout => Overdue::Idle,
                // Else a client that always has a request in flight would stay without end.
                _ if age >= connection_age + idle_timeout => Overdue::Overstayed,
                _ if age >= connection_age && !open.finishing => Overdue::Age,
                _ => continue,
            };
            open.finishing |= overdue.is_graceful();
            found.push((id, overdue));
        }
        found
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Open)) {
        if let Some(open) = self.open.get_mut(&id) {
            change(open);
        }
    }
}

/// Whether there is room for one more connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// There is.
    Free,
    /// Once this one is closed.
    Replacing(u64),
    /// There is none: the other address has no more than this one.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn table(connections: usize) -> (Connections, Instant) {
        (Connections::new(Limits { connections, ..Limits::default() }), Instant::now())
    }

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn a_header_has_ten_seconds_however_many_bytes_dribble_in() {
        let (mut table, now) = table(10);
        let id = table.open(address(1), false, now);
        for second in 1..10 {
            table.read(id, now + second * S);
            assert_eq!(table.overdue(now + second * S), []);
        }
        assert_eq!(table.overdue(now + 10 * S), [(id, Overdue::Header)]);
    }

    #[test]
    fn a_connection_may_idle_between_requests_but_not_within_a_header() {
        let (mut table, now) = table(10);
        let id = table.open(address(1), true, now);
        assert_eq!(table.overdue(now + 10 * S), [(id, Overdue::Handshake)]);
        table.handshake_done(id, false, now);
        let began = table.began(id, now);
        table.ended(id, began, now);
        assert_eq!(table.overdue(now + 89 * S), []);
        table.read(id, now + 89 * S);
        assert_eq!(table.overdue(now + 98 * S), []);
        assert_eq!(table.overdue(now + 99 * S), [(id, Overdue::Header)]);
    }

    #[test]
    fn pings_on_http2_neither_begin_a_header_nor_prolong_the_idle_time() {
        let (mut table, now) = table(10);
        let id = table.open(address(1), true, now);
        table.handshake_done(id, true, now);
        let began = table.began(id, now);
        table.ended(id, began, now);
        for second in 1..90 {
            table.read(id, now + second * S);
            assert_eq!(table.overdue(now + second * S), []);
        }
        assert_eq!(table.overdue(now + 90 * S), [(id, Overdue::Idle)]);
        assert_eq!(table.overdue(now + 91 * S), [(id, Overdue::Overstayed)]);
    }

    #[test]
    fn a_client_that_does_not_read_its_answer_is_disconnected() {
        let (mut table, now) = table(10);
        let id = table.open(address(1), true, now);
        table.handshake_done(id, true, now);
        let began = table.began(id, now);
        // The answer is computed.
        table.began(id, now + 10 * S);
        table.ended(id, began, now + 10 * S);
        for second in 1..=40 {
            table.read(id, now + second * S);
            // Other requests come and go.
            let other = table.began(id, now + second * S);
            table.ended(id, other, now + second * S);
            assert_eq!(table.overdue(now + second * S), []);
        }
        assert_eq!(table.overdue(now + 41 * S), [(id, Overdue::Stalled)]);
    }

    #[test]
    fn an_old_connection_is_finished_gracefully_once_however_busy_it_is() {
        let (mut table, now) = table(10);
        let id = table.open(address(1), false, now);
        let mut began = table.began(id, now);
        let mut found = Vec::new();
        for second in 1..=690 {
            let next = table.began(id, now + second * S);
            table.ended(id, began, next);
            began = next;
            found.extend(table.overdue(next).into_iter().map(|(_, why)| (second, why)));
        }
        assert_eq!(found, [(600, Overdue::Age), (690, Overdue::Overstayed)]);
    }

    #[test]
    fn the_address_with_most_connections_loses_the_one_longest_without_a_request() {
        let (mut table, now) = table(4);
        table.open(address(1), false, now);
        let greedy: Vec<u64> = (1..4).map(|n| table.open(address(2), false, now + n * S)).collect();
        table.began(greedy[0], now + 4 * S);
        assert_eq!(table.find_slot(address(3), now + 3 * S), Slot::Replacing(greedy[1]));
        table.closed(greedy[1]);
        assert_eq!(table.find_slot(address(3), now + 3 * S), Slot::Free);
    }

    #[test]
    fn no_state_protects_the_connections_of_an_address_with_most() {
        let (mut table, now) = table(4);
        let greedy: Vec<u64> = (0..4).map(|_| table.open(address(1), true, now)).collect();
        assert_eq!(table.find_slot(address(2), now), Slot::Replacing(greedy[0]));
        for id in &greedy {
            table.began(*id, now);
            table.authorized(*id);
        }
        assert_eq!(table.find_slot(address(2), now), Slot::Replacing(greedy[0]));
        // No more than an even share is possible.
        table.closed(greedy[0]);
        table.open(address(2), true, now);
        assert_eq!(table.find_slot(address(2), now), Slot::Replacing(greedy[1]));
        table.closed(greedy[1]);
        table.open(address(2), true, now);
        assert_eq!(table.find_slot(address(2), now), Slot::Full);
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_share_their_places() {
        let (mut table, now) = table(2);
        let first = table.open("2001:db8::1".parse().unwrap(), true, now);
        table.open("2001:db8::2".parse().unwrap(), true, now);
        assert_eq!(table.find_slot("2001:db8::3".parse().unwrap(), now), Slot::Full);
        assert_eq!(table.find_slot("2001:db8:0:1::1".parse().unwrap(), now), Slot::Replacing(first));
    }

    #[test]
    fn no_connection_is_replaced_before_its_first_request_is_answered() {
        let (mut table, now) = table(2);
        let idle = table.open(address(1), false, now);
        let busy = table.open(address(1), false, now);
        table.began(busy, now);
        assert_eq!(table.find_slot(address(1), now), Slot::Full);
        assert_eq!(table.find_slot(address(1), now + GRACE), Slot::Replacing(idle));
        table.began(idle, now + GRACE);
        assert_eq!(table.find_slot(address(1), now + GRACE), Slot::Full);
        assert_eq!(table.find_slot(address(1), now + S), Slot::Replacing(busy));
    }

    #[test]
    fn a_scraper_behind_a_busy_proxy_keeps_its_connection() {
        let (mut table, now) = table(3);
        let scraper = table.open(address(1), true, now);
        table.authorized(scraper);
        let unknown = [S, 2 * S].map(|after| table.open(address(1), true, now + after));
        assert_eq!(table.find_slot(address(1), now + 60 * S), Slot::Replacing(unknown[0]));
        table.closed(unknown[0]);
        table.open(address(1), true, now + 60 * S);
        assert_eq!(table.find_slot(address(1), now + 60 * S), Slot::Replacing(unknown[1]));
        table.closed(unknown[1]);
        table.open(address(1), true, now + 60 * S);
        assert_eq!(table.find_slot(address(1), now + 60 * S), Slot::Full);
    }
}
