//! The certificates of a connection, and the verdict on them: computed once, outside of the workers, and kept until the
//! trust or the validity of a certificate changes.
//!
//! A client needs no right to send a chain, so that judging one is work that anybody can request: it costs the address
//! a token first, and few chains are judged at a time.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime};
use tokio::sync::{Mutex, Semaphore};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate;
use super::client_ca::Trust;
use super::user::User;

/// How many chains are judged at a time, each on a thread for blocking work.
const AT_ONCE: usize = 2;

/// The certificates that a client has shown on a connection, its own first. Their key is proven; nothing else is.
/// Clones share the verdict.
#[derive(Clone, Debug)]
pub struct ClientChain {
    certificates: Arc<[CertificateDer<'static>]>,
    verdict: Arc<Mutex<Option<Arc<Verdict>>>>,
}

impl ClientChain {
    /// Not judged yet.
    pub(in crate::http) fn new(certificates: &[CertificateDer<'_>]) -> Self {
        let certificates = certificates.iter().cloned().map(CertificateDer::into_owned).collect();
        ClientChain { certificates, verdict: Arc::default() }
    }

    /// Whether the client has shown no certificate.
    pub(super) fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }
}

/// The verdict on a chain, which holds for some time.
#[derive(Debug)]
pub(super) struct Verdict {
    /// The authorities that it was judged by.
    trust: Arc<Trust>,
    judged_at: u64,
    /// When the validity of one of the certificates begins or ends next.
    until: u64,
    /// Whether it is a front proxy's; `None` without an authority for these.
    pub(super) proxy: Option<Result<(), String>>,
    /// The user; `None` without an authority for clients, or without a common name.
    pub(super) user: Result<Option<User>, String>,
}

impl Verdict {
    fn holds(&self, trust: &Arc<Trust>, now: u64) -> bool {
        Arc::ptr_eq(&self.trust, trust) && self.judged_at <= now && now < self.until
    }

    fn of(certificates: &[CertificateDer<'static>], trust: Arc<Trust>, seconds: u64) -> Self {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let (proxy, user) = match certificates.split_first() {
            None => (None, Ok(None)),
            Some((own, chain)) => (
                trust.front_proxy.as_ref().map(|proxy| proxy.accepts(own, chain, now)),
                trust
                    .clients
                    .as_ref()
                    .map_or(Ok(None), |authority| certificate::authenticate(authority, own, chain, now)),
            ),
        };
        let until = certificates.iter().map(|it| changes_at(it, seconds)).min().unwrap_or(u64::MAX);
        Verdict { trust, judged_at: seconds, until, proxy, user }
    }
}

/// When the validity of a certificate begins or ends next, in seconds since the epoch. One that cannot be read changes
/// in the next second.
fn changes_at(certificate: &CertificateDer<'_>, now: u64) -> u64 {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return now + 1 };
    let validity = certificate.validity();
    // It is valid up to the last second, that one included.
    let changes = [validity.not_before.timestamp(), validity.not_after.timestamp().saturating_add(1)];
    changes
        .into_iter()
        .filter_map(|at| u64::try_from(at).ok())
        .filter(|at| *at > now)
        .min()
        .unwrap_or(u64::MAX)
}

/// The address has no token left to have a chain judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct Throttled;

/// Judges chains, a few at a time.
pub(super) struct Judge(Arc<Semaphore>);

impl Default for Judge {
    fn default() -> Self {
        Judge(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Judge {
    /// The verdict, which is kept with the connection. `pay` decides whether one is computed.
    ///
    /// # Errors
    /// When `pay` refuses.
    pub(super) async fn verdict(
        &self,
        chain: &ClientChain,
        trust: Arc<Trust>,
        now: u64,
        pay: impl FnOnce() -> bool,
    ) -> Result<Arc<Verdict>, Throttled> {
        // The requests of one connection wait for one verdict.
        let mut kept = chain.verdict.clone().lock_owned().await;
        if let Some(verdict) = kept.as_ref().filter(|verdict| verdict.holds(&trust, now)) {
            return Ok(verdict.clone());
        }
        if !pay() {
            return Err(Throttled);
        }
        let turn = self.0.clone().acquire_owned().await;
        let certificates = chain.certificates.clone();
        // It is kept even if the request that caused it is cancelled meanwhile.
        let judging = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let verdict = Arc::new(Verdict::of(&certificates, trust, now));
            *kept = Some(verdict.clone());
            verdict
        });
        match judging.await {
            Ok(verdict) => Ok(verdict),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The program ends.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

    use super::*;

    /// 2026-01-01, the day on which the certificate below begins to be valid.
    const BEGINS: u64 = 1_767_225_600;
    const DAY: u64 = 86_400;

    /// An authority as trust, and a certificate of it that is valid for ten days.
    fn signed() -> (Arc<Trust>, ClientChain) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let authority = certificate::Authority::from_pem(pem.as_bytes()).unwrap();
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "ada");
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 1, 11));
        let own = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        (
            Arc::new(Trust { clients: Some(authority), front_proxy: None }),
            ClientChain::new(&[own.der().clone()]),
        )
    }

    /// Whether the certificate is good, and whether it was judged for that.
    async fn judged(judge: &Judge, chain: &ClientChain, trust: &Arc<Trust>, now: u64) -> (bool, bool) {
        let mut paid = false;
        let pay = || {
            paid = true;
            true
        };
        let verdict = judge.verdict(chain, trust.clone(), now, pay).await.unwrap();
        (verdict.user.as_ref().is_ok_and(Option::is_some), paid)
    }

    #[tokio::test]
    async fn a_chain_is_judged_once_until_its_validity_changes() {
        let ((trust, chain), judge) = (signed(), Judge::default());
        let at = async |now: u64| judged(&judge, &chain, &trust, now).await;
        assert_eq!(at(BEGINS - DAY).await, (false, true));
        assert_eq!(at(BEGINS - 1).await, (false, false));
        assert_eq!(at(BEGINS).await, (true, true));
        assert_eq!(at(BEGINS + 10 * DAY).await, (true, false));
        assert_eq!(at(BEGINS + 10 * DAY + 1).await, (false, true));
        assert_eq!(at(BEGINS + 1000 * DAY).await, (false, false));
        // A clock that is set back.
        assert_eq!(at(BEGINS + DAY).await, (true, true));
    }

    #[tokio::test]
    async fn a_chain_is_judged_again_when_the_trust_changes() {
        let ((trust, chain), judge) = (signed(), Judge::default());
        assert_eq!(judged(&judge, &chain, &trust, BEGINS).await, (true, true));
        let other = signed().0;
        assert_eq!(judged(&judge, &chain, &other, BEGINS).await, (false, true));
        assert_eq!(judged(&judge, &chain, &other, BEGINS).await, (false, false));
    }

    #[tokio::test]
    async fn a_hundred_requests_of_one_connection_wait_for_one_verdict() {
        let ((trust, chain), judge) = (signed(), Judge::default());
        let asking = (0..100).map(|_| judged(&judge, &chain, &trust, BEGINS));
        let answers = futures::future::join_all(asking).await;
        assert_eq!(answers.iter().filter(|(_, judged)| *judged).count(), 1);
        assert!(answers.iter().all(|(good, _)| *good));
    }

    #[tokio::test]
    async fn a_throttled_client_has_nothing_judged() {
        let ((trust, chain), judge) = (signed(), Judge::default());
        let refused = judge.verdict(&chain, trust.clone(), BEGINS, || false).await;
        assert_eq!(refused.err(), Some(Throttled));
        assert!(chain.verdict.lock().await.is_none());
    }
}
