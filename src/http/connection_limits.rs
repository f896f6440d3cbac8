//! The limits of one listener, and the rate limit of unauthenticated clients per source address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The bounds of one listener. The defaults suit a scraper, a kubelet, and a person with curl.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Connections open at once. When all are taken, the address with the most of them loses one.
    pub connections: usize,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long a client may take for the header of a request, from its first byte on; for the first
    /// request of a connection, from the connection on.
    pub header_timeout: Duration,
    /// The largest header of a request, in bytes; a larger one is answered with 431.
    pub header_bytes: usize,
    /// How long a connection may be kept open without a request. Upstream's is 90 s as well.
    pub idle_timeout: Duration,
    /// How long an answer may take to be computed, the request's body included; and then, how long the client
    /// may take to read it. No answer goes on for longer, as a watch would.
    pub request_timeout: Duration,
    /// After this a connection is closed between two requests, so that none lasts for ever.
    pub connection_age: Duration,
    /// Requests at once on one HTTP/2 connection; `--http2-max-streams-per-connection`.
    pub streams: u32,
    /// Requests per second of one unauthenticated address, in the long run.
    pub unauthenticated_qps: f64,
    /// The same at once, after a quiet time.
    pub unauthenticated_burst: u32,
    /// Reviews per second on account of one address, in the long run: those of a
    /// token or of a path with a good answer are not counted. A tenth of the total.
    pub refused_reviews_qps: f64,
    /// The same at once, after a quiet time.
    pub refused_reviews_burst: u32,
    /// How long open connections may take to end at shutdown.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 256,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(10),
            header_bytes: 64 << 10,
            idle_timeout: Duration::from_secs(90),
            request_timeout: Duration::from_secs(30),
            connection_age: Duration::from_secs(600),
            streams: 100,
            unauthenticated_qps: 100.0,
            unauthenticated_burst: 400,
            refused_reviews_qps: 2.0,
            refused_reviews_burst: 10,
            drain: Duration::from_secs(2),
        }
    }
}

/// How many addresses have a bucket; further ones share one until an earlier one is full again.
const ADDRESSES: usize = 4096;

/// A token bucket for each address. An IPv6 client counts by its /64, since it controls all addresses of that.
pub(super) struct AddressLimiter {
    interval: Duration,
    capacity: Duration,
    buckets: Mutex<Buckets>,
}

#[derive(Default)]
struct Buckets {
    /// When the bucket of an address will be full again; one that is full is forgotten.
    full_at: BTreeMap<IpAddr, Instant>,
    /// When full buckets may be searched for again: a flood of addresses must not cause a search each.
    next_search: Option<Instant>,
}

impl AddressLimiter {
    /// The rate per second in the long run, and the burst.
    pub(super) fn new(qps: f64, burst: u32) -> Self {
        let seconds = 1.0 / qps;
        let interval = Duration::try_from_secs_f64(seconds).unwrap_or_default().min(Duration::from_secs(60));
        let capacity = interval.saturating_mul(burst.max(1));
        AddressLimiter { interval, capacity, buckets: Mutex::default() }
    }

    /// Takes a token of this address; `false` if it has none.
    pub(super) fn take(&self, address: IpAddr, now: Instant) -> bool {
        let Buckets { full_at, next_search } = &mut *self.buckets.lock();
        let mut client = client_of(address);
        if full_at.len() >= ADDRESSES && !full_at.contains_key(&client) {
            if next_search.is_none_or(|at| at <= now) {
                full_at.retain(|_, full_at| *full_at > now);
                *next_search = Some(now + Duration::from_secs(1));
            }
            if full_at.len() >= ADDRESSES {
                client = Ipv6Addr::UNSPECIFIED.into();
            }
        }
        let full_at = full_at.entry(client).or_insert(now);
        let missing = full_at.saturating_duration_since(now) + self.interval;
        if missing > self.capacity {
            return false;
        }
        *full_at = now + missing;
        true
    }

    /// Returns a token that this address has taken.
    fn return_token(&self, address: IpAddr) {
        let full_at = &mut self.buckets.lock().full_at;
        let client = client_of(address);
        let client = if full_at.contains_key(&client) { client } else { Ipv6Addr::UNSPECIFIED.into() };
        if let Some(full_at) = full_at.get_mut(&client)
            && let Some(sooner) = full_at.checked_sub(self.interval)
        {
            *full_at = sooner;
        }
    }

    /// A token of this address that may be taken, and returned.
    pub(super) fn reserve(&self, address: IpAddr) -> Reservation<'_> {
        Reservation { limiter: self, address, taken: false }
    }
}

/// A token that is spent unless it is returned.
pub(super) struct Reservation<'l> {
    limiter: &'l AddressLimiter,
    address: IpAddr,
    taken: bool,
}

impl Reservation<'_> {
    /// Takes the token; `false` if the address has none.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        self.taken = self.taken || self.limiter.take(self.address, now);
        self.taken
    }

    /// Whether it was taken.
    pub(super) fn is_taken(&self) -> bool {
        self.taken
    }

    /// Returns it if it was taken.
    pub(super) fn return_token(self) {
        if self.taken {
            self.limiter.return_token(self.address);
        }
    }
}

/// The client of an address.
pub(super) fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter() -> AddressLimiter {
        AddressLimiter::new(1.0, 3)
    }

    #[test]
    fn an_address_over_its_limit_takes_nothing_from_another() {
        let (limiter, now) = (limiter(), Instant::now());
        let (loud, quiet) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let passed = (0..10).filter(|_| limiter.take(loud, now)).count();
        assert_eq!(passed, 3);
        assert!(limiter.take(quiet, now));
        assert!(limiter.take(loud, now + Duration::from_secs(1)));
        assert!(!limiter.take(loud, now + Duration::from_secs(1)));
    }

    #[test]
    fn a_returned_token_can_be_taken_again_and_no_more_than_that() {
        let (limiter, now) = (limiter(), Instant::now());
        let address = "10.0.0.1".parse().unwrap();
        for _ in 0..10 {
            let mut reservation = limiter.reserve(address);
            assert!(reservation.take(now));
            reservation.return_token();
        }
        limiter.reserve(address).return_token();
        assert_eq!((0..10).filter(|_| limiter.reserve(address).take(now)).count(), 3);
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_client() {
        let (limiter, now) = (limiter(), Instant::now());
        let passed = (0..10).filter(|n| limiter.take(format!("2001:db8::{n}").parse().unwrap(), now)).count();
        assert_eq!(passed, 3);
        assert!(limiter.take("2001:db8:0:1::1".parse().unwrap(), now));
    }

    #[test]
    fn a_million_addresses_cost_no_more_memory_than_some_thousand() {
        let (limiter, now) = (limiter(), Instant::now());
        for n in 0..20_000_u32 {
            limiter.take(IpAddr::from(n.to_be_bytes()), now);
        }
        assert!(limiter.buckets.lock().full_at.len() <= ADDRESSES + 1);
        // Once they are full again, a new address has a bucket of its own.
        assert!(limiter.take("192.0.2.1".parse().unwrap(), now + Duration::from_secs(60)));
    }
}
