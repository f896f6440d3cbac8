//! How much one client may ask for, and how often one address may ask without saying who it is.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The bounds of one listener. The defaults suit a scraper, a kubelet, and a person with curl.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Connections open at once. When all are taken, the newcomer gets the place of an idle one.
    pub connections: usize,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long a client may take for the header of a request, from its first byte on; for the first
    /// request of a connection, from the connection on.
    pub header_timeout: Duration,
    /// The largest header of a request, in bytes; a larger one is answered with 431.
    pub header_bytes: usize,
    /// How long a connection may be kept open without a request, and how long a client may take to read
    /// the next part of an answer. Upstream's is 90 s as well.
    pub idle_timeout: Duration,
    /// How long an answer may take to be made, the request's body included.
    pub request_timeout: Duration,
    /// After this a connection is closed between two requests, so that none lasts for ever.
    pub connection_age: Duration,
    /// Requests at once on one HTTP/2 connection; `--http2-max-streams-per-connection`.
    pub streams: u32,
    /// Requests per second of one address that does not say who it is, in the long run.
    pub unauthenticated_qps: f64,
    /// The same at once, after a quiet time.
    pub unauthenticated_burst: u32,
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
            drain: Duration::from_secs(2),
        }
    }
}

/// So many addresses are told apart; all further ones share one bucket until an earlier one is quiet.
const ADDRESSES: usize = 4096;

/// A token bucket for each address. An IPv6 client is its /64, since it has all the addresses of that.
pub(super) struct AddressLimiter {
    interval: Duration,
    capacity: Duration,
    buckets: Mutex<Buckets>,
}

#[derive(Default)]
struct Buckets {
    /// When the bucket of an address will be full again; one that is full is forgotten.
    full_at: BTreeMap<IpAddr, Instant>,
    /// When the full ones may be looked for again: a flood of addresses must not buy a search each.
    next_search: Option<Instant>,
}

impl AddressLimiter {
    pub(super) fn new(limits: &Limits) -> Self {
        let seconds = 1.0 / limits.unauthenticated_qps;
        let interval = Duration::try_from_secs_f64(seconds).unwrap_or_default().min(Duration::from_secs(60));
        let capacity = interval.saturating_mul(limits.unauthenticated_burst.max(1));
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
}

fn client_of(address: IpAddr) -> IpAddr {
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
        AddressLimiter::new(&Limits {
            unauthenticated_qps: 1.0,
            unauthenticated_burst: 3,
            ..Limits::default()
        })
    }

    #[test]
    fn one_address_that_asks_too_often_takes_nothing_from_another() {
        let (limiter, now) = (limiter(), Instant::now());
        let (loud, quiet) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let passed = (0..10).filter(|_| limiter.take(loud, now)).count();
        assert_eq!(passed, 3);
        assert!(limiter.take(quiet, now));
        assert!(limiter.take(loud, now + Duration::from_secs(1)));
        assert!(!limiter.take(loud, now + Duration::from_secs(1)));
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
        // Once they are quiet, a newcomer has a bucket of its own again.
        assert!(limiter.take("192.0.2.1".parse().unwrap(), now + Duration::from_secs(60)));
    }
}
