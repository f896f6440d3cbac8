//! Reads from a daemon over HTTPS, as a scraper that does not verify the certificate.

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::{Client, Config};

/// Asks once: the status and the body.
pub async fn get(port: u16, path: &str, token: Option<&str>) -> (u16, String) {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    let mut request = Request::get(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let client = Client::try_from(config).unwrap();
    let response = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8_lossy(&body).into_owned())
}
