//! Whether a certificate and its key are PEM at all, as Go's `tls.X509KeyPair` finds. Whether they can be read, and belong
//! together, is not judged.

use serde_json::Value;

pub(super) fn problem(secret: &Value) -> Option<String> {
    let blocks = |field: &str| kinds_of_blocks(secret["data"][field].as_str().unwrap_or_default());
    let (certificate, key) = (blocks("tls.crt"), blocks("tls.key"));
    let is_key = |kind: &&String| *kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY");
    if !certificate.iter().any(|kind| kind == "CERTIFICATE") {
        return Some(match certificate.as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [only] if only.ends_with("PRIVATE KEY") => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may \
                 have been switched"
                    .to_owned()
            }
            skipped => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following \
                 types: [{}]",
                skipped.join(" ")
            ),
        });
    }
    if key.iter().any(|kind| is_key(&kind)) {
        return None;
    }
    Some(match key.as_slice() {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        [only] if only == "CERTIFICATE" => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        skipped => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the \
             following types: [{}]",
            skipped.join(" ")
        ),
    })
}

/// The kinds of the PEM blocks in a text that is encoded in base64.
fn kinds_of_blocks(encoded: &str) -> Vec<String> {
    let decoded = decode(encoded);
    let text = String::from_utf8_lossy(&decoded);
    let mut kinds = Vec::new();
    let mut rest = &*text;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let Some((kind, body)) = after.split_once("-----\n") else { break };
        let end = format!("-----END {kind}-----");
        match body.split_once(&end) {
            Some((_, following)) => {
                kinds.push(kind.to_owned());
                rest = following;
            }
            None => rest = after,
        }
    }
    kinds
}

fn decode(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut group, mut bits) = (Vec::with_capacity(text.len() / 4 * 3), 0_u32, 0);
    for six in text.bytes().filter_map(digit) {
        group = group << 6 | u32::from(six);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((group >> bits & 0xff) as u8);
        }
    }
    bytes
}
