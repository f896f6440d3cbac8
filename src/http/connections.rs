//! The open connections of a listener: which have had their time, and which one makes room.
//!
//! A pure value, told the time. The rule that keeps a probe alive in a flood: when every place is taken,
//! the newcomer gets the place of the connection that has been without a request for longest, of the
//! address that has the most connections. So a client that opens thousands takes its own places only.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::limits::Limits;

/// A connection keeps its place for so long at least, or it would lose it before it could ask. The price:
/// a flood passes through at `connections` in each such time, some 2500 a second.
const GRACE: Duration = Duration::from_millis(100);

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In the TLS handshake.
    Handshake,
    /// A header has begun, or is due because the connection is new.
    Header,
    /// Between two requests.
    Idle,
    /// So many requests are being answered.
    Busy(u32),
}

#[derive(Debug)]
struct Open {
    address: IpAddr,
    phase: Phase,
    opened: Instant,
    /// Since when it has been in this phase; while it is busy, since the last byte went either way.
    since: Instant,
    /// Whether bytes between two requests are the beginning of a header. In HTTP/2 they may be a ping.
    header_follows: bool,
    finishing: bool,
}

/// Why a connection has had its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// Close it: the handshake took too long.
    Handshake,
    /// Close it: the header took too long.
    Header,
    /// Close it: a request is under way, and nothing has moved for too long.
    Stalled,
    /// Have it finish: there was no request for too long.
    Idle,
    /// Have it finish: after the requests under way.
    Age,
    /// Close it: it was to finish and has not.
    Overstayed,
}

impl Overdue {
    /// Whether the connection may say goodbye. HTTP/2's tells the client that a request that is on its
    /// way was not seen, so that it can be sent again.
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

    /// Who makes room for a newcomer: nobody has to, this connection, or nobody until then.
    pub(super) fn room(&self, now: Instant) -> Room {
        if self.open.len() < self.limits.connections.max(1) {
            return Room::Free;
        }
        let mut of_address: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for open in self.open.values() {
            *of_address.entry(open.address).or_default() += 1;
        }
        let movable_at = |open: &Open| match open.phase {
            Phase::Busy(_) => open.since + self.limits.request_timeout,
            Phase::Handshake | Phase::Header | Phase::Idle => open.since + GRACE,
        };
        let crowd = |open: &Open| of_address.get(&open.address).copied().unwrap_or_default();
        let movable = self.open.iter().filter(|(_, open)| movable_at(open) <= now);
        let longest = movable.min_by_key(|(id, open)| (usize::MAX - crowd(open), open.since, **id));
        match longest {
            Some((&id, _)) => Room::InPlaceOf(id),
            None => Room::Not(self.open.values().map(movable_at).min().unwrap_or(now + GRACE)),
        }
    }

    /// A connection is open; the number stands for it from now on.
    pub(super) fn open(&mut self, address: IpAddr, tls: bool, now: Instant) -> u64 {
        let phase = if tls { Phase::Handshake } else { Phase::Header };
        let id = self.next;
        self.next += 1;
        let open = Open { address, phase, opened: now, since: now, header_follows: true, finishing: false };
        self.open.insert(id, open);
        id
    }

    /// The handshake is done.
    pub(super) fn shaken(&mut self, id: u64, http2: bool, now: Instant) {
        self.change(id, |open| {
            (open.phase, open.since, open.header_follows) = (Phase::Header, now, !http2);
        });
    }

    /// Bytes came from the client.
    pub(super) fn read(&mut self, id: u64, now: Instant) {
        self.change(id, |open| match open.phase {
            Phase::Idle if open.header_follows => (open.phase, open.since) = (Phase::Header, now),
            Phase::Busy(_) => open.since = now,
            // Else a byte every nine seconds would buy another ten.
            Phase::Idle | Phase::Handshake | Phase::Header => {}
        });
    }

    /// Bytes went to the client.
    pub(super) fn written(&mut self, id: u64, now: Instant) {
        self.change(id, |open| match open.phase {
            Phase::Busy(_) => open.since = now,
            // The rest of an answer. In HTTP/2 it may be the answer to a ping.
            Phase::Idle if open.header_follows => open.since = now,
            Phase::Idle | Phase::Handshake | Phase::Header => {}
        });
    }

    /// A request's header is complete.
    pub(super) fn began(&mut self, id: u64, now: Instant) {
        self.change(id, |open| {
            let running = if let Phase::Busy(running) = open.phase { running } else { 0 };
            (open.phase, open.since) = (Phase::Busy(running.saturating_add(1)), now);
        });
    }

    /// A request has its answer, or nobody waits for one any more.
    pub(super) fn ended(&mut self, id: u64, now: Instant) {
        self.change(id, |open| {
            open.phase = match open.phase {
                Phase::Busy(running @ 2..) => Phase::Busy(running - 1),
                _ => Phase::Idle,
            };
            open.since = now;
        });
    }

    /// The connection is closed.
    pub(super) fn closed(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// The connections that have had their time.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<(u64, Overdue)> {
        let Limits { handshake_timeout, header_timeout, idle_timeout, connection_age, .. } = self.limits;
        let mut found = Vec::new();
        for (&id, open) in &mut self.open {
            let quiet = now.saturating_duration_since(open.since);
            let age = now.saturating_duration_since(open.opened);
            let overdue = match open.phase {
                Phase::Handshake if quiet >= handshake_timeout => Overdue::Handshake,
                Phase::Header if quiet >= header_timeout => Overdue::Header,
                Phase::Busy(_) if quiet >= idle_timeout => Overdue::Stalled,
                Phase::Idle if quiet >= idle_timeout && open.finishing => Overdue::Overstayed,
                Phase::Idle if quiet >= idle_timeout => Overdue::Idle,
                // Else a client that reads a byte a minute would stay for as long as it likes.
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
pub(super) enum Room {
    /// There is.
    Free,
    /// Once this one is closed.
    InPlaceOf(u64),
    /// Not before this instant, unless one ends by itself.
    Not(Instant),
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
        table.shaken(id, false, now);
        table.began(id, now);
        table.ended(id, now);
        assert_eq!(table.overdue(now + 89 * S), []);
        table.read(id, now + 89 * S);
        assert_eq!(table.overdue(now + 98 * S), []);
        assert_eq!(table.overdue(now + 99 * S), [(id, Overdue::Header)]);
    }

    #[test]
    fn pings_on_http2_neither_begin_a_header_nor_prolong_the_idle_time() {
        let (mut table, now) = table(10);
        let id = table.open(address(1), true, now);
        table.shaken(id, true, now);
        table.began(id, now);
        table.ended(id, now);
        for second in 1..90 {
            table.read(id, now + second * S);
            table.written(id, now + second * S);
            assert_eq!(table.overdue(now + second * S), []);
        }
        assert_eq!(table.overdue(now + 90 * S), [(id, Overdue::Idle)]);
        assert_eq!(table.overdue(now + 91 * S), [(id, Overdue::Overstayed)]);
    }

    #[test]
    fn a_client_that_does_not_read_its_answer_is_cut_off() {
        let (mut table, now) = table(10);
        let id = table.open(address(1), false, now);
        table.began(id, now);
        table.written(id, now + 60 * S);
        assert_eq!(table.overdue(now + 149 * S), []);
        assert_eq!(table.overdue(now + 150 * S), [(id, Overdue::Stalled)]);
    }

    #[test]
    fn an_old_connection_is_asked_once_to_finish() {
        let (mut table, now) = table(10);
        let id = table.open(address(1), false, now);
        table.began(id, now);
        for second in 1..=600 {
            table.written(id, now + second * S);
        }
        assert_eq!(table.overdue(now + 600 * S), [(id, Overdue::Age)]);
        assert_eq!(table.overdue(now + 601 * S), []);
        table.written(id, now + 690 * S);
        assert_eq!(table.overdue(now + 690 * S), [(id, Overdue::Overstayed)]);
    }

    #[test]
    fn the_newcomer_takes_the_place_of_the_longest_idle_of_the_greediest() {
        let (mut table, now) = table(4);
        let modest = table.open(address(1), false, now);
        let greedy: Vec<u64> = (1..4).map(|n| table.open(address(2), false, now + n * S)).collect();
        table.began(greedy[0], now + 4 * S);
        assert_eq!(table.room(now + 5 * S), Room::InPlaceOf(greedy[1]));
        table.closed(greedy[1]);
        assert_eq!(table.room(now + 5 * S), Room::Free);
        assert!(modest < greedy[0]);
    }

    #[test]
    fn nobody_is_moved_before_it_could_ask_nor_while_it_is_answered() {
        let (mut table, now) = table(2);
        let fresh = table.open(address(1), false, now);
        let busy = table.open(address(1), false, now);
        table.began(busy, now);
        assert_eq!(table.room(now), Room::Not(now + GRACE));
        assert_eq!(table.room(now + GRACE), Room::InPlaceOf(fresh));
        table.began(fresh, now);
        assert_eq!(table.room(now + S), Room::Not(now + 30 * S));
    }
}
