//! The bound on the certificate chain that a peer sends, on both sides of TLS.
//!
//! webpki tries each order of the intermediates, of which each call parses all. With 270 self-named ones, none of
//! which needs a valid signature, one chain costs 20 s of a processor; with 3 all orders together are 15 calls.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme};

/// The most certificates behind the peer's own. Chains of public authorities have one to three.
pub(crate) const MOST_INTERMEDIATES: usize = 3;

/// The largest chain with the peer's own certificate, in bytes. Four of RSA with 4096 bits take about 8 KB.
pub(crate) const LARGEST_CHAIN: usize = 16 << 10;

/// A chain that is not judged.
#[derive(Debug, thiserror::Error)]
#[error(
    "the certificate chain has {intermediates} intermediates and {bytes} bytes; at most {MOST_INTERMEDIATES} and \
     {LARGEST_CHAIN} are accepted"
)]
struct CertificateChainTooLarge {
    intermediates: usize,
    bytes: usize,
}

/// Checks the bound. It parses nothing.
///
/// # Errors
/// For a chain beyond it, one that ends the handshake.
pub(crate) fn check(own: &CertificateDer<'_>, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
    let (intermediates, bytes) = (chain.len(), own.len() + chain.iter().map(|it| it.len()).sum::<usize>());
    if intermediates <= MOST_INTERMEDIATES && bytes <= LARGEST_CHAIN {
        return Ok(());
    }
    let error = OtherError(Arc::new(CertificateChainTooLarge { intermediates, bytes }));
    Err(rustls::Error::InvalidCertificate(CertificateError::Other(error)))
}

/// Judges a server's chain by another verifier, within the bound.
#[derive(Debug)]
pub(crate) struct Bounded(pub(crate) Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for Bounded {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        check(own, chain)?;
        self.0.verify_server_cert(own, chain, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.0.requires_raw_public_keys()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.0.root_hint_subjects()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_three_intermediates_and_16_kb_is_judged_and_no_larger_one() {
        let certificate = |bytes: usize| CertificateDer::from(vec![0; bytes]);
        let is_judged = |own: usize, chain: &[usize]| {
            check(&certificate(own), &chain.iter().map(|bytes| certificate(*bytes)).collect::<Vec<_>>())
                .is_ok()
        };
        assert!(is_judged(4096, &[]));
        assert!(is_judged(4096, &[4096; 3]));
        assert!(!is_judged(4096, &[4096, 4096, 4097]));
        assert!(!is_judged(1, &[1; 4]));
        let error =
            check(&certificate(1), &[const { CertificateDer::from_slice(&[0]) }; 4]).unwrap_err().to_string();
        assert!(error.contains("CertificateChainTooLarge { intermediates: 4, bytes: 5 }"), "{error}");
    }
}
