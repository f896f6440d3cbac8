//! A client certificate: the common name is the user, the organizations are the groups.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::user::User;
use crate::http::certificates::certificates;

/// Identifies a certificate in audit logs, as kube-apiserver does.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The trusted authorities for clients.
#[derive(Clone)]
pub(super) struct Authority {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// From a PEM bundle.
    ///
    /// # Errors
    /// When it holds no certificate, or one that cannot be used.
    pub(super) fn from_pem(text: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(text)? {
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Authority { verifier: verifier.map_err(|error| error.to_string())? })
    }

    /// Whether these authorities signed this certificate for a client, and it is valid at this time.
    pub(super) fn vouches(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), String> {
        let verified = self.verifier.verify_client_cert(own, chain, now);
        verified.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// The names in a certificate's subject.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
}

/// Reads the subject. A name that is no text is an error, and not a group that is silently missing.
pub(super) fn subject(own: &CertificateDer<'_>) -> Result<Subject, String> {
    let (_, certificate) = X509Certificate::from_der(own).map_err(|error| error.to_string())?;
    let subject = certificate.subject();
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        attribute.as_str().map(str::to_owned).map_err(|error| format!("a name in its subject: {error}"))
    };
    // As Go has it, the last common name counts.
    let common_name = subject.iter_common_name().last().map(text).transpose()?.unwrap_or_default();
    let organizations = subject.iter_organization().map(text).collect::<Result<_, _>>()?;
    Ok(Subject { common_name, organizations })
}

/// The user of this certificate; `None` without a common name.
pub(super) fn authenticate(
    authority: &Authority,
    own: &CertificateDer<'_>,
    chain: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<Option<User>, String> {
    authority.vouches(own, chain, now)?;
    let Subject { common_name, organizations } = subject(own)?;
    if common_name.is_empty() {
        return Ok(None);
    }
    let hash: String = digest(&SHA256, own).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={hash}")])]);
    Ok(Some(User { name: common_name, uid: String::new(), groups: organizations, extra }))
}
