//! Requests for certificates (upstream `pkg/apis/certificates/validation`).

use std::collections::BTreeSet;

use k8s_openapi::ByteString;
use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::names;

/// The usages of certificates.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(crate) fn request(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    // The request is PEM in base64; a beginning of three letters is four of base64.
    if !text(spec, "request").starts_with("LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNU") {
        let why = "PEM block type must be CERTIFICATE REQUEST";
        errors.invalid("spec.request", spec["request"].clone(), why);
    }
    if spec["usages"].as_array().is_none_or(Vec::is_empty) {
        errors.required("spec.usages", "");
    }
    let mut seen = BTreeSet::new();
    for (path, usage) in elements(spec, "usages", "spec") {
        errors.one_of(&path, usage, &USAGES);
        if !seen.insert(usage.as_str()) {
            errors.duplicate(&path, usage.clone());
        }
    }
    let signer = text(spec, "signerName");
    match signer.split_once('/') {
        _ if signer.is_empty() => errors.required("spec.signerName", ""),
        _ if signer == "kubernetes.io/legacy-unknown" => {
            let why = "the legacy signerName is not allowed via this API version";
            errors.invalid("spec.signerName", signer, why);
        }
        Some((domain, path)) if domain.contains('.') && !path.is_empty() => {
            errors.each_invalid("spec.signerName", domain, names::dns1123_subdomain(domain));
        }
        _ => {
            let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            errors.invalid("spec.signerName", signer, why);
        }
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid("spec.expirationSeconds", seconds, why);
    }
}

pub(crate) fn request_status(new: &Value, old: &Value, errors: &mut Errors) {
    let conditions = new["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
    if has("Approved") && has("Denied") {
        let last = conditions.iter().rfind(|one| one["type"] == "Approved" || one["type"] == "Denied");
        let why = "Approved and Denied conditions are mutually exclusive";
        errors.invalid("status.conditions", last.map_or(Value::Null, |one| one["type"].clone()), why);
    }
    let mut seen = BTreeSet::new();
    for (path, condition) in elements(&new["status"], "conditions", "status") {
        let kind = text(condition, "type");
        if kind.is_empty() {
            errors.required(&format!("{path}.type"), "");
        }
        let field = format!("{path}.status");
        match (kind, text(condition, "status")) {
            (_, "") => errors.required(&field, ""),
            ("Approved" | "Denied" | "Failed", status) if status != "True" => {
                errors.not_supported(&field, status, &["True"]);
            }
            (_, status) if !["False", "True", "Unknown"].contains(&status) => {
                errors.not_supported(&field, status, &["False", "True", "Unknown"]);
            }
            _ => {}
        }
        if !seen.insert(kind) {
            errors.duplicate(&format!("{path}.type"), kind);
        }
    }
    let found = problem(&new["status"]["certificate"]);
    // One that was there before may be wrong.
    if let Some(why) = found.filter(|_| problem(&old["status"]["certificate"]).is_none()) {
        errors.invalid("status.certificate", "<certificate data>", why);
    }
}

/// Why a text is no chain of certificates. Of these only the outermost form is judged.
fn problem(certificate: &Value) -> Option<String> {
    let ByteString(pem) = serde_json::from_value(certificate.clone()).ok()?;
    let pem = String::from_utf8_lossy(&pem).into_owned();
    if pem.is_empty() {
        return None;
    }
    let (mut count, mut rest) = (0, pem.as_str());
    while let Some((kind, body, after)) = next_block(rest) {
        if kind != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {kind:?}"));
        }
        if body.contains(':') {
            return Some("no PEM block headers are permitted".to_owned());
        }
        let text: String = body.split_whitespace().collect();
        let ByteString(bytes) = serde_json::from_value(text.into()).unwrap_or_default();
        if bytes.is_empty() {
            return Some("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        if !is_sequence(&bytes) {
            return Some("x509: malformed certificate".to_owned());
        }
        (count, rest) = (count + 1, after);
    }
    (count == 0).then(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}

/// The type and the body of the next block of PEM, and what follows it.
fn next_block(text: &str) -> Option<(&str, &str, &str)> {
    let (_, begin) = text.split_once("-----BEGIN ")?;
    let (kind, begin) = begin.split_once("-----")?;
    let (body, after) = begin.split_once(&format!("-----END {kind}-----"))?;
    Some((kind, body, after))
}

/// Whether DER begins with a sequence as long as all of it.
fn is_sequence(bytes: &[u8]) -> bool {
    let [0x30, length, rest @ ..] = bytes else { return false };
    let wide = usize::from(length & 0x7f);
    match rest.split_at_checked(wide) {
        _ if *length < 0x80 => rest.len() == wide,
        Some((digits, body)) if wide <= 4 => {
            digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)) == body.len()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::check_status;

    #[test]
    fn a_signed_request_has_certificates_in_pem() {
        let signed = |certificate: &str| {
            let bytes = k8s_openapi::ByteString(certificate.as_bytes().to_vec());
            let status = json!({"certificate": bytes});
            json!({"metadata": {"name": "r"}, "status": status})
        };
        let block =
            |kind: &str, body: &str| format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n");
        let none: Value = json!({"metadata": {"name": "r"}});
        for (certificate, expected) in [
            ("hi".to_owned(), "must contain at least one CERTIFICATE PEM block"),
            (block("FOO", "aGk="), "only CERTIFICATE PEM blocks are allowed, found \"FOO\""),
            (block("CERTIFICATE", "aGk="), "x509: malformed certificate"),
            (block("CERTIFICATE", "A: b\n\naGk="), "no PEM block headers are permitted"),
        ] {
            let expected = format!("status.certificate: Invalid value: \"<certificate data>\": {expected}");
            check_status("CertificateSigningRequest", signed(&certificate), none.clone(), &[&expected]);
        }
        let certificate = block("CERTIFICATE", "MAMCAQE=");
        check_status("CertificateSigningRequest", signed(&format!("x\n{certificate}")), none.clone(), &[]);
        check_status("CertificateSigningRequest", signed(""), none, &[]);
    }
}
