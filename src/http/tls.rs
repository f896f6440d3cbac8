//! TLS by upstream's names: versions, cipher suites, curves; and the certificates that clients show.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ResolvesServerCert;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CipherSuite as Suite, DigitallySignedStruct, DistinguishedName, NamedGroup, ProtocolVersion,
    ServerConfig, SignatureScheme, SupportedProtocolVersion,
};

use crate::runtime::certificate_chain;

/// ALPN's name of HTTP/2.
pub(super) const HTTP2: &[u8] = b"h2";

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not known; the allowed values are {allowed}")]
pub struct UnknownName {
    /// The name that was given.
    pub given: String,
    /// The names that are allowed, with commas.
    pub allowed: String,
}

fn find<T: Copy>(given: &str, known: &[(&'static str, T)]) -> Result<T, UnknownName> {
    known.iter().find(|(name, _)| *name == given).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        UnknownName { given: given.to_owned(), allowed: names.join(", ") }
    })
}

fn name_of<T: Copy + PartialEq>(value: T, known: &[(&'static str, T)]) -> &'static str {
    known.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}

/// The oldest accepted TLS version; `--tls-min-version`. rustls has nothing older than 1.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// `VersionTLS12`.
    #[default]
    Tls12,
    /// `VersionTLS13`.
    Tls13,
}

const VERSIONS: &[(&str, TlsVersion)] = &[
    ("VersionTLS12", TlsVersion::Tls12),
    ("VersionTLS13", TlsVersion::Tls13),
    // A minimum of 1.2 also meets a minimum of 1.1 or 1.0.
    ("VersionTLS11", TlsVersion::Tls12),
    ("VersionTLS10", TlsVersion::Tls12),
];

impl FromStr for TlsVersion {
    type Err = UnknownName;

    fn from_str(given: &str) -> Result<Self, UnknownName> {
        find(given, VERSIONS)
    }
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(*self, VERSIONS))
    }
}

/// A cipher suite by Go's name, for `--tls-cipher-suites`. As in Go the list chooses among those of TLS
/// 1.2 only: the three of TLS 1.3 are always on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherSuite(Suite);

const SUITES: &[(&str, Suite)] = &[
    ("TLS_AES_128_GCM_SHA256", Suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", Suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", Suite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// The suites that Go knows and rustls does not support: without forward secrecy, or with broken ciphers.
const PASSED_OVER: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

impl CipherSuite {
    /// Whether Go knows this name and nothing is offered for it.
    pub fn is_passed_over(name: &str) -> bool {
        PASSED_OVER.contains(&name)
    }
}

impl FromStr for CipherSuite {
    type Err = UnknownName;

    fn from_str(given: &str) -> Result<Self, UnknownName> {
        find(given, SUITES).map(CipherSuite)
    }
}

impl fmt::Display for CipherSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(self.0, SUITES))
    }
}

/// A group for the key exchange, for `--tls-curve-preferences`: by Go's name or by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curve(NamedGroup);

const CURVES: &[(&str, NamedGroup)] = &[
    ("X25519", NamedGroup::X25519),
    ("CurveP256", NamedGroup::secp256r1),
    ("CurveP384", NamedGroup::secp384r1),
    ("29", NamedGroup::X25519),
    ("23", NamedGroup::secp256r1),
    ("24", NamedGroup::secp384r1),
];

impl FromStr for Curve {
    type Err = UnknownName;

    fn from_str(given: &str) -> Result<Self, UnknownName> {
        find(given, CURVES).map(Curve)
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(self.0, CURVES))
    }
}

/// The options of the TLS server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `--tls-min-version`.
    pub min_version: TlsVersion,
    /// `--tls-cipher-suites`; empty means all that rustls has, which are good ones only.
    pub cipher_suites: Vec<CipherSuite>,
    /// Those of the list that are not offered, for the log.
    pub passed_over: Vec<String>,
    /// `--tls-curve-preferences`; empty means all, in rustls' order.
    pub curves: Vec<Curve>,
    /// `--disable-http2-serving`.
    pub disable_http2: bool,
}

/// The one crypto provider, with what the options leave of it.
fn provider(options: &TlsOptions) -> CryptoProvider {
    let mut provider = ring::default_provider();
    if !options.cipher_suites.is_empty() {
        provider.cipher_suites.retain(|suite| {
            suite.version().version == ProtocolVersion::TLSv1_3
                || options.cipher_suites.contains(&CipherSuite(suite.suite()))
        });
    }
    if !options.curves.is_empty() {
        provider.kx_groups.retain(|group| options.curves.contains(&Curve(group.name())));
        let rank = |group: NamedGroup| options.curves.iter().position(|curve| curve.0 == group);
        provider.kx_groups.sort_by_key(|group| rank(group.name()));
    }
    provider
}

/// The server side of TLS. `asks` returns at each handshake whether clients are asked for certificates.
///
/// # Errors
/// When nothing is left to negotiate.
pub(super) fn server_config(
    options: &TlsOptions,
    certificates: Arc<dyn ResolvesServerCert>,
    asks: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(provider(options));
    if !options.passed_over.is_empty() {
        let suites = options.passed_over.join(",");
        tracing::info!(suites, "--tls-cipher-suites: these suites are not supported and not offered");
    }
    let suites_of = |version| provider.cipher_suites.iter().any(|suite| suite.version().version == version);
    let mut versions: Vec<&'static SupportedProtocolVersion> = vec![&rustls::version::TLS13];
    if options.min_version == TlsVersion::Tls12 && suites_of(ProtocolVersion::TLSv1_2) {
        versions.push(&rustls::version::TLS12);
    }
    let clients = Arc::new(AnyCertificate {
        asks: Box::new(asks),
        algorithms: provider.signature_verification_algorithms,
    });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if !options.disable_http2 {
        config.alpn_protocols.insert(0, HTTP2.to_vec());
    }
    Ok(config)
}

/// Accepts any certificate of a client whose key the client proves to have, as Go's `RequestClientCert`
/// does, with a chain within the bound of [`certificate_chain`]. Requests are authenticated later: the authorities may
/// change while the connection is open, a certificate may expire, and a refusal should be an answer that can be read.
struct AnyCertificate {
    asks: Box<dyn Fn() -> bool + Send + Sync>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl fmt::Debug for AnyCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyCertificate").finish_non_exhaustive()
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn offer_client_auth(&self) -> bool {
        (self.asks)()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // No hint means that the client sends what it has; the authorities may change at any time.
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        certificate_chain::check(own, chain)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = "VersionSSL30".parse::<TlsVersion>().unwrap_err().to_string();
        assert!(
            error.starts_with("\"VersionSSL30\" is not known; the allowed values are VersionTLS12,"),
            "{error}"
        );
        let error = "TLS_RSA_WITH_RC4_128_SHA".parse::<CipherSuite>().unwrap_err().to_string();
        assert!(error.contains("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"), "{error}");
    }

    #[test]
    fn every_suite_and_curve_of_the_provider_can_be_named() {
        for suite in ring::default_provider().cipher_suites {
            assert_ne!(CipherSuite(suite.suite()).to_string(), "", "{suite:?}");
        }
        for group in ring::default_provider().kx_groups {
            assert_ne!(Curve(group.name()).to_string(), "", "{group:?}");
        }
    }

    #[test]
    fn the_list_of_suites_chooses_among_those_of_tls_1_2_only() {
        let chosen = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".parse().unwrap();
        let left = provider(&TlsOptions { cipher_suites: vec![chosen], ..TlsOptions::default() });
        let names: Vec<String> =
            left.cipher_suites.iter().map(|suite| CipherSuite(suite.suite()).to_string()).collect();
        assert_eq!(names.iter().filter(|name| name.contains("ECDHE")).count(), 1);
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn curves_are_preferred_in_the_order_given() {
        let curves = ["24", "X25519"].map(|name| name.parse().unwrap()).to_vec();
        let left = provider(&TlsOptions { curves, ..TlsOptions::default() });
        let names: Vec<NamedGroup> = left.kx_groups.iter().map(|group| group.name()).collect();
        assert_eq!(names, [NamedGroup::secp384r1, NamedGroup::X25519]);
    }
}
