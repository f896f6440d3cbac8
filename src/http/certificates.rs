//! The serving certificates: from files, from `--cert-dir`, or self-signed; always current.
//!
//! The one guarantee: once there was a usable certificate there is always one. Files that change are
//! read again; a new pair that cannot be used is logged and counted, and the old one stays in use.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::{Timestamp, ToSpan, tz::TimeZone};
use parking_lot::{Mutex, RwLock};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::clock::Clock;

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: {reason}", .file.display())]
pub struct CertificateError {
    /// The flag that named the file.
    pub flag: &'static str,
    /// The file.
    pub file: PathBuf,
    /// The defect.
    pub reason: String,
}

/// A pair of files, and the server names that it is for; `--tls-sni-cert-key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SniPair {
    /// The certificate and its chain, in PEM.
    pub cert_file: PathBuf,
    /// Its private key, in PEM.
    pub key_file: PathBuf,
    /// Server names, `*.example.com` included; empty means those in the certificate.
    pub names: Vec<String>,
}

/// Where the certificates come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateOptions {
    /// `--tls-cert-file` and `--tls-private-key-file`. Without them one is made.
    pub files: Option<(PathBuf, PathBuf)>,
    /// `--cert-dir`: where the one that is made is kept, as `windlass.crt` and `windlass.key`; `None`
    /// keeps it in memory.
    pub dir: Option<PathBuf>,
    /// `--tls-sni-cert-key`, in the order of preference.
    pub sni: Vec<SniPair>,
    /// The address that we listen on; a self-signed certificate names it.
    pub address: Option<IpAddr>,
}

/// Names of the files in `--cert-dir`.
const DIR_FILES: (&str, &str) = ("windlass.crt", "windlass.key");

/// How long before it expires a self-signed certificate in memory is replaced.
const RENEW_DAYS: i64 = 30;

/// A pair of files with the flags that named them.
#[derive(Clone, Debug)]
struct Pair {
    cert: (&'static str, PathBuf),
    key: (&'static str, PathBuf),
    names: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Bytes {
    cert: Vec<u8>,
    key: Vec<u8>,
}

#[derive(Debug)]
struct Shown {
    default: Arc<CertifiedKey>,
    sni: Vec<Named>,
}

/// A certificate with the server names that it is for.
type Named = (Vec<String>, Arc<CertifiedKey>);

/// The certificates of one server. rustls asks it at each handshake.
pub struct Certificates {
    clock: Clock,
    address: Option<IpAddr>,
    /// The default pair, unless it is created in memory.
    default: Option<Pair>,
    sni: Vec<Pair>,
    shown: RwLock<Shown>,
    /// The content of the last read, whether or not it could be used.
    read: Mutex<Vec<Bytes>>,
    /// When the one in memory has to be replaced.
    renew_at: Mutex<Option<Timestamp>>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("default", &self.default).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads or creates the certificates.
    ///
    /// # Errors
    /// When a file cannot be read, written or used; the message names the flag and the file.
    pub async fn load(options: &CertificateOptions, clock: Clock) -> Result<Self, CertificateError> {
        // Without `..`, so that a new option cannot be forgotten here.
        let CertificateOptions { files, dir, sni, address } = options;
        let default = match (files, dir) {
            (Some((cert, key)), _) => Some(Pair {
                cert: ("--tls-cert-file", cert.clone()),
                key: ("--tls-private-key-file", key.clone()),
                names: None,
            }),
            (None, Some(dir)) => Some(in_dir(dir, *address, &clock).await?),
            (None, None) => None,
        };
        let sni: Vec<Pair> = sni.iter().map(sni_pair).collect();
        let read = read_all(default.iter().chain(&sni)).await?;
        let mut keys = parse_all(default.iter().chain(&sni), &read)?.into_iter();
        let (made, renew_at) = match &default {
            Some(_) => (keys.next(), None),
            None => {
                let (key, until) = in_memory(*address, &clock)?;
                (Some(key), Some(until))
            }
        };
        let default_key = made.ok_or_else(|| unusable("no certificate"))?;
        let shown = RwLock::new(Shown { default: default_key, sni: named(&sni, keys)? });
        let (read, renew_at) = (Mutex::new(read), Mutex::new(renew_at));
        Ok(Certificates { clock, address: *address, default, sni, shown, read, renew_at })
    }

    /// Reads the files again, and replaces a certificate of our own that is about to expire. Returns
    /// whether anything changed.
    ///
    /// # Errors
    /// When files changed and cannot be used. The same broken files are an error once.
    pub async fn reload(&self) -> Result<bool, CertificateError> {
        let mut changed = false;
        if self.renew_at.lock().is_some_and(|at| at <= self.clock.now()) {
            let (key, until) = in_memory(self.address, &self.clock)?;
            self.shown.write().default = key;
            *self.renew_at.lock() = Some(until);
            changed = true;
        }
        let pairs = || self.default.iter().chain(&self.sni);
        let read = match read_all(pairs()).await {
            Ok(read) => read,
            // A file that is being replaced may be missing for a moment; report it only once.
            Err(error) => {
                let before = std::mem::take(&mut *self.read.lock());
                return if before.is_empty() { Ok(changed) } else { Err(error) };
            }
        };
        if *self.read.lock() == read {
            return Ok(changed);
        }
        self.read.lock().clone_from(&read);
        let mut keys = parse_all(pairs(), &read)?.into_iter();
        let default = match &self.default {
            Some(_) => keys.next().ok_or_else(|| unusable("no certificate"))?,
            None => self.shown.read().default.clone(),
        };
        let sni = named(&self.sni, keys)?;
        *self.shown.write() = Shown { default, sni };
        Ok(true)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let shown = self.shown.read();
        let requested = hello.server_name().unwrap_or_default();
        let fits = shown.sni.iter().find(|(names, _)| names.iter().any(|name| covers(name, requested)));
        Some(fits.map_or(&shown.default, |(_, key)| key).clone())
    }
}

/// Whether a name, which may begin with `*.`, covers the name that a client requested.
fn covers(name: &str, requested: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(parent) => requested.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent)),
        None => name.eq_ignore_ascii_case(requested),
    }
}

fn sni_pair(pair: &SniPair) -> Pair {
    const FLAG: &str = "--tls-sni-cert-key";
    let SniPair { cert_file, key_file, names } = pair;
    Pair { cert: (FLAG, cert_file.clone()), key: (FLAG, key_file.clone()), names: Some(names.clone()) }
}

fn wrong((flag, file): &(&'static str, PathBuf), reason: impl ToString) -> CertificateError {
    CertificateError { flag, file: file.clone(), reason: reason.to_string() }
}

fn unusable(reason: impl ToString) -> CertificateError {
    wrong(&("the self-signed certificate", PathBuf::new()), reason)
}

async fn read_all<'a>(pairs: impl Iterator<Item = &'a Pair>) -> Result<Vec<Bytes>, CertificateError> {
    let mut all = Vec::new();
    for Pair { cert, key, .. } in pairs {
        let of = async |file: &(&'static str, PathBuf)| {
            tokio::fs::read(&file.1).await.map_err(|error| wrong(file, error))
        };
        all.push(Bytes { cert: of(cert).await?, key: of(key).await? });
    }
    Ok(all)
}

fn parse_all<'a>(
    pairs: impl Iterator<Item = &'a Pair>,
    read: &[Bytes],
) -> Result<Vec<Arc<CertifiedKey>>, CertificateError> {
    pairs.zip(read).map(|(pair, bytes)| parse(pair, bytes)).collect()
}

fn parse(pair: &Pair, bytes: &Bytes) -> Result<Arc<CertifiedKey>, CertificateError> {
    let chain = certificates(&bytes.cert).map_err(|reason| wrong(&pair.cert, reason))?;
    let key = PrivateKeyDer::from_pem_slice(&bytes.key).map_err(|error| {
        let reason = match error {
            pem::Error::NoItemsFound => "it holds no private key in PEM".to_owned(),
            other => format!("it is not valid PEM: {other}"),
        };
        wrong(&pair.key, reason)
    })?;
    let key = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            wrong(&pair.key, format!("it is not the key of the certificate in {}", pair.cert.1.display()))
        }
        other => wrong(&pair.key, other),
    })?;
    Ok(Arc::new(key))
}

/// The certificates in a PEM file; at least one, and each can be read.
pub(super) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|error| format!("it is not valid PEM: {error}"))?;
    if found.is_empty() {
        return Err("it holds no certificate in PEM".to_owned());
    }
    for certificate in &found {
        X509Certificate::from_der(certificate)
            .map_err(|error| format!("it holds a certificate that cannot be read: {error}"))?;
    }
    Ok(found)
}

fn named(
    pairs: &[Pair],
    keys: impl Iterator<Item = Arc<CertifiedKey>>,
) -> Result<Vec<Named>, CertificateError> {
    let mut all = Vec::new();
    for (pair, key) in pairs.iter().zip(keys) {
        let names = match pair.names.as_deref() {
            Some(names) if !names.is_empty() => names.to_vec(),
            _ => names_in(&key).map_err(|reason| wrong(&pair.cert, reason))?,
        };
        all.push((names, key));
    }
    Ok(all)
}

/// The server names that a certificate itself says it is for.
fn names_in(key: &CertifiedKey) -> Result<Vec<String>, String> {
    let first = key.cert.first().ok_or("it holds no certificate")?;
    let (_, certificate) = X509Certificate::from_der(first).map_err(|error| error.to_string())?;
    let names = certificate.subject_alternative_name().map_err(|error| error.to_string())?;
    let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    };
    Ok(names.iter().filter_map(dns).collect())
}

/// A certificate and its key in PEM.
struct Made {
    cert: String,
    key: String,
    until: Timestamp,
}

/// Creates a self-signed certificate, valid from yesterday, since clocks differ, for a year.
fn self_signed(address: Option<IpAddr>, clock: &Clock) -> Result<Made, CertificateError> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.extend(
        address.filter(|address| !address.is_unspecified() && !address.is_loopback()).map(|a| a.to_string()),
    );
    let make = || -> Result<(String, String), rcgen::Error> {
        let mut params = CertificateParams::new(names)?;
        let today = clock.now().to_zoned(TimeZone::UTC).date();
        let day = |days: i64| {
            let date = today.saturating_add(days.days());
            rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
        };
        (params.not_before, params.not_after) = (day(-1), day(365));
        params.distinguished_name.push(DnType::CommonName, "windlass");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
    };
    let (cert, key) = make().map_err(unusable)?;
    let until = clock.now().saturating_add(((365 - RENEW_DAYS) * 24).hours()).unwrap_or(Timestamp::MAX);
    Ok(Made { cert, key, until })
}

fn in_memory(
    address: Option<IpAddr>,
    clock: &Clock,
) -> Result<(Arc<CertifiedKey>, Timestamp), CertificateError> {
    let Made { cert, key, until } = self_signed(address, clock)?;
    let nowhere = || ("the self-signed certificate", PathBuf::new());
    let pair = Pair { cert: nowhere(), key: nowhere(), names: None };
    let key = parse(&pair, &Bytes { cert: cert.into_bytes(), key: key.into_bytes() })?;
    Ok((key, until))
}

/// The pair in `--cert-dir`, created if absent. One file of two is an error that a new key
/// must not hide.
async fn in_dir(dir: &Path, address: Option<IpAddr>, clock: &Clock) -> Result<Pair, CertificateError> {
    const FLAG: &str = "--cert-dir";
    let pair = Pair { cert: (FLAG, dir.join(DIR_FILES.0)), key: (FLAG, dir.join(DIR_FILES.1)), names: None };
    let there = async |file: &(&'static str, PathBuf)| {
        tokio::fs::try_exists(&file.1).await.map_err(|error| wrong(file, error))
    };
    match (there(&pair.cert).await?, there(&pair.key).await?) {
        (true, true) => return Ok(pair),
        (true, false) => return Err(wrong(&pair.key, "it is missing beside its certificate")),
        (false, true) => return Err(wrong(&pair.cert, "it is missing beside its key")),
        (false, false) => {}
    }
    let made = self_signed(address, clock)?;
    let dir = (FLAG, dir.to_owned());
    tokio::fs::create_dir_all(&dir.1).await.map_err(|error| wrong(&dir, error))?;
    write(&pair.key.1, made.key.as_bytes(), 0o600).await.map_err(|error| wrong(&pair.key, error))?;
    write(&pair.cert.1, made.cert.as_bytes(), 0o644).await.map_err(|error| wrong(&pair.cert, error))?;
    tracing::info!(file = %pair.cert.1.display(), "created a self-signed certificate");
    Ok(pair)
}

/// Writes a new file with this mode from the start: a key must not be readable even for a moment.
async fn write(file: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(mode);
    #[cfg(not(unix))]
    let _ = mode;
    let mut file = options.open(file).await?;
    tokio::io::AsyncWriteExt::write_all(&mut file, bytes).await?;
    file.sync_all().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Clock {
        Clock::virtual_from("2026-01-31T12:00:00Z".parse().unwrap())
    }

    fn shown(certificates: &Certificates) -> CertificateDer<'static> {
        certificates.shown.read().default.cert[0].clone()
    }

    fn pair(dir: &Path) -> CertificateOptions {
        let made = self_signed(None, &clock()).unwrap();
        std::fs::write(dir.join("c"), made.cert).unwrap();
        std::fs::write(dir.join("k"), made.key).unwrap();
        CertificateOptions { files: Some((dir.join("c"), dir.join("k"))), ..CertificateOptions::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_in_memory_is_replaced_before_it_expires() {
        let options = CertificateOptions { address: Some([10, 1, 2, 3].into()), ..Default::default() };
        let certificates = Certificates::load(&options, clock()).await.unwrap();
        let first = shown(&certificates);
        let (_, parsed) = X509Certificate::from_der(&first).unwrap();
        assert!(format!("{:?}", parsed.subject_alternative_name()).contains("[10, 1, 2, 3]"));
        assert!(!certificates.reload().await.unwrap());
        tokio::time::advance(std::time::Duration::from_secs(336 * 24 * 3600)).await;
        assert!(certificates.reload().await.unwrap());
        assert_ne!(shown(&certificates), first);
    }

    #[tokio::test]
    async fn a_directory_keeps_the_certificate_across_restarts_and_its_key_from_others() {
        let dir = tempfile::tempdir().unwrap();
        let options = CertificateOptions { dir: Some(dir.path().join("new")), ..Default::default() };
        let first = shown(&Certificates::load(&options, clock()).await.unwrap());
        assert_eq!(shown(&Certificates::load(&options, clock()).await.unwrap()), first);
        let key = dir.path().join("new/windlass.key");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::remove_file(&key).unwrap();
        let error = Certificates::load(&options, clock()).await.unwrap_err().to_string();
        assert!(error.starts_with("--cert-dir ") && error.contains("windlass.key: it is missing"), "{error}");
    }

    #[tokio::test]
    async fn a_broken_pair_is_reported_once_and_the_old_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let certificates = Certificates::load(&pair(dir.path()), clock()).await.unwrap();
        let first = shown(&certificates);
        std::fs::write(dir.path().join("c"), "rubbish").unwrap();
        let error = certificates.reload().await.unwrap_err().to_string();
        assert!(error.starts_with("--tls-cert-file ") && error.ends_with("it holds no certificate in PEM"));
        assert!(!certificates.reload().await.unwrap());
        std::fs::remove_file(dir.path().join("k")).unwrap();
        assert!(certificates.reload().await.is_err());
        assert!(!certificates.reload().await.unwrap());
        assert_eq!(shown(&certificates), first);
        pair(dir.path());
        assert!(certificates.reload().await.unwrap());
        assert_ne!(shown(&certificates), first);
    }

    #[tokio::test]
    async fn an_unusable_file_is_named_with_its_flag() {
        let dir = tempfile::tempdir().unwrap();
        let options = pair(dir.path());
        let error = async |options: &CertificateOptions| {
            Certificates::load(options, clock()).await.unwrap_err().to_string()
        };
        let key = std::fs::read(dir.path().join("k")).unwrap();
        std::fs::write(dir.path().join("k"), self_signed(None, &clock()).unwrap().key).unwrap();
        let text = error(&options).await;
        assert!(text.starts_with("--tls-private-key-file ") && text.contains("not the key of"), "{text}");
        std::fs::write(dir.path().join("k"), "").unwrap();
        assert!(error(&options).await.ends_with("k: it holds no private key in PEM"));
        std::fs::write(dir.path().join("k"), key).unwrap();
        let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(dir.path().join("c"), bad).unwrap();
        let text = error(&options).await;
        assert!(text.starts_with("--tls-cert-file ") && text.contains("cannot be read"), "{text}");
        std::fs::remove_file(dir.path().join("c")).unwrap();
        assert!(error(&options).await.starts_with("--tls-cert-file "));
    }

    #[test]
    fn a_star_stands_for_one_label() {
        assert!(covers("*.example.com", "a.Example.com"));
        assert!(!covers("*.example.com", "a.b.example.com"));
        assert!(!covers("*.example.com", "example.com"));
        assert!(covers("one", "ONE"));
    }
}
