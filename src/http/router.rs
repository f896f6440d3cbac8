//! The routes: metrics, health, explanations, the running configuration, and switches for debugging.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde::Serialize;

use super::health::{Checks, Endpoint, Slis, health, single};
use crate::metrics::Metrics;

/// The media type of Prometheus' text format.
const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The longest body that a route reads. The only one that is read is a number.
const LARGEST_BODY: usize = 1024;

/// The router over these metrics and checks. An unknown path gets the answer of Go's server.
pub fn router(metrics: Arc<Metrics>, checks: Checks) -> Router {
    let state = Arc::new((checks, Slis::new()));
    let slis = state.clone();
    let mut router = Router::new()
        .route("/metrics", get(move || async move { metrics_text(metrics.render()) }))
        .route("/metrics/slis", get(move || async move { metrics_text(slis.1.render()) }));
    for endpoint in [Endpoint::Healthz, Endpoint::Livez, Endpoint::Readyz] {
        let all = move |State(state): State<Arc<(Checks, Slis)>>, RawQuery(query): RawQuery| async move {
            health(&state.0, &state.1, endpoint, &query.unwrap_or_default())
        };
        let one = move |State(state): State<Arc<(Checks, Slis)>>, Path(name): Path<String>| async move {
            single(&state.0, endpoint, &name)
        };
        let name = endpoint.name();
        router = router.merge(
            Router::new()
                .route(&format!("/{name}"), get(all))
                .route(&format!("/{name}/{{check}}"), get(one))
                .with_state(state.clone()),
        );
    }
    router.fallback(not_found).layer(DefaultBodyLimit::max(LARGEST_BODY))
}

/// A route that explains an object of a namespace as indented JSON; `path` has `{namespace}` and `{name}`.
/// An error of `explain` is a 404 with its message. It must not block.
pub fn explanations<T: Serialize>(
    path: &str,
    explain: impl Fn(&str, &str) -> Result<T, String> + Clone + Send + Sync + 'static,
) -> Router {
    let answer = move |Path((namespace, name)): Path<(String, String)>| async move {
        match explain(&namespace, &name) {
            Ok(explained) => json(&explained),
            Err(message) => plain(StatusCode::NOT_FOUND, format!("{message}\n")),
        }
    };
    Router::new().route(path, get(answer))
}

/// `/configz`: the running configuration under `name`, as upstream has it. `config` is called each time
/// and its result must contain no secrets.
pub fn configz<T: Serialize>(
    name: &'static str,
    config: impl Fn() -> T + Clone + Send + Sync + 'static,
) -> Router {
    overview("/configz", move || std::collections::BTreeMap::from([(name, config())]))
}

/// A route with an overview as indented JSON. `overview` is called each time; it must not block.
pub fn overview<T: Serialize>(
    path: &str,
    overview: impl Fn() -> T + Clone + Send + Sync + 'static,
) -> Router {
    Router::new().route(path, get(move || async move { json(&overview()) }))
}

/// `/debug/flags/v`: a PUT with a number changes what is logged. `set` does it, and answers with a
/// sentence for the client either way.
pub fn verbosity(set: impl Fn(u8) -> Result<String, String> + Clone + Send + Sync + 'static) -> Router {
    let answer = move |method: Method, body: Bytes| async move {
        if method != Method::PUT {
            // Not a 405, because scripts for other components do not expect one.
            return plain(StatusCode::NOT_ACCEPTABLE, "unsupported http method; use PUT\n".to_owned());
        }
        let text = String::from_utf8_lossy(&body);
        let changed = match text.trim().parse() {
            Ok(level @ 0..=10) => set(level),
            _ => Err(format!("the verbosity must be a number from 0 to 10; it is {:?}", text.trim())),
        };
        match changed {
            Ok(sentence) => plain(StatusCode::OK, format!("{sentence}\n")),
            Err(sentence) => plain(StatusCode::BAD_REQUEST, format!("{sentence}\n")),
        }
    };
    Router::new().route("/debug/flags/v", any(answer))
}

/// `/debug/pprof`: answers that there is none, and names the alternative.
pub fn profiling() -> Router {
    let answer = || async {
        let text = "404: these profiles are of Go's runtime, which this program does not have. /metrics \
                    has the process's memory, threads and time; perf and heaptrack work on the process.\n";
        plain(StatusCode::NOT_FOUND, text.to_owned())
    };
    Router::new()
        .route("/debug/pprof", get(answer))
        .route("/debug/pprof/", get(answer))
        .route("/debug/pprof/{*profile}", get(answer))
}

async fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
}

fn metrics_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, METRICS_TEXT)], text).into_response()
}

/// A value as indented JSON that is not cached.
fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string_pretty(value) {
        Ok(json) => {
            let headers = [
                (header::CONTENT_TYPE, "application/json"),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::CACHE_CONTROL, "no-store"),
            ];
            (headers, json + "\n").into_response()
        }
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// A line of text.
pub(super) fn plain(code: StatusCode, text: String) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (code, headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(router: &Router, path: &str) -> (u16, String) {
        let request = axum::http::Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    fn app() -> (Router, Arc<AtomicBool>, Arc<AtomicBool>) {
        let (lease, synced) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let probe = |flag: &Arc<AtomicBool>, reason: &'static str| {
            let flag = flag.clone();
            move || if flag.load(Ordering::Relaxed) { Ok(()) } else { Err(reason.to_owned()) }
        };
        let checks = Checks::default()
            .live("leaderElection", probe(&lease, "the lease was not renewed"))
            .ready("informer-sync", probe(&synced, "pods are not synced"));
        (router(Metrics::new(), checks), lease, synced)
    }

    #[tokio::test]
    async fn a_process_is_healthy_before_it_is_ready() {
        let (app, _, synced) = app();
        assert_eq!(ask(&app, "/healthz").await, (200, "ok".into()));
        assert_eq!(ask(&app, "/livez").await.0, 200);
        let (code, text) = ask(&app, "/readyz").await;
        assert_eq!(code, 500);
        assert!(text.contains("[-]informer-sync failed: pods are not synced\n"), "{text}");
        assert!(text.ends_with("readyz check failed\n"), "{text}");
        synced.store(true, Ordering::Relaxed);
        assert_eq!(ask(&app, "/readyz").await, (200, "ok".into()));
    }

    #[tokio::test]
    async fn verbose_names_the_checks_and_each_can_be_run_alone_or_excluded() {
        let (app, lease, _) = app();
        let (_, text) = ask(&app, "/healthz?verbose").await;
        assert_eq!(text, "[+]ping ok\n[+]leaderElection ok\nhealthz check passed\n");
        lease.store(false, Ordering::Relaxed);
        assert_eq!(ask(&app, "/healthz").await.0, 500);
        assert_eq!(ask(&app, "/healthz?verbose&exclude=leaderElection").await.0, 200);
        assert_eq!(ask(&app, "/healthz/leaderElection").await.0, 500);
        assert_eq!(ask(&app, "/healthz/ping").await.0, 200);
        assert_eq!(ask(&app, "/healthz/informer-sync").await.0, 404);
    }

    #[tokio::test]
    async fn each_run_of_a_check_is_counted_by_its_result() {
        let (app, lease, _) = app();
        ask(&app, "/healthz").await;
        ask(&app, "/healthz").await;
        lease.store(false, Ordering::Relaxed);
        ask(&app, "/healthz").await;
        ask(&app, "/healthz?exclude=leaderElection").await;
        let (_, text) = ask(&app, "/metrics/slis").await;
        for line in [
            "kubernetes_healthcheck{name=\"leaderElection\",type=\"healthz\"} 0\n",
            "kubernetes_healthchecks_total{name=\"leaderElection\",status=\"success\",type=\"healthz\"} 2\n",
            "kubernetes_healthchecks_total{name=\"leaderElection\",status=\"error\",type=\"healthz\"} 1\n",
            "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[tokio::test]
    async fn a_sync_that_never_ends_fails_health_by_name() {
        let limit = std::time::Duration::from_secs(600);
        let checks = |running| {
            Checks::default()
                .workers("deployment-workers", limit, move || limit + std::time::Duration::from_secs(running))
        };
        assert_eq!(ask(&router(Metrics::new(), checks(0)), "/healthz").await.0, 200);
        let (code, text) = ask(&router(Metrics::new(), checks(1)), "/healthz").await;
        assert_eq!(code, 500);
        assert!(text.contains("[-]deployment-workers failed: a sync has been running for 601 s"), "{text}");
    }

    #[tokio::test]
    async fn an_unknown_path_is_a_404_with_the_text_of_other_components() {
        let app = app().0.merge(profiling());
        assert_eq!(ask(&app, "/nothing").await, (404, "404 page not found\n".into()));
        let (code, text) = ask(&app, "/debug/pprof/heap").await;
        assert_eq!(code, 404);
        assert!(text.contains("/metrics"), "{text}");
    }

    #[tokio::test]
    async fn the_running_configuration_is_served_under_its_name() {
        let app = configz("windlass", || serde_json::json!({"securePort": 10257}));
        let (code, text) = ask(&app, "/configz").await;
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, &value["windlass"]["securePort"]), (200, &10257.into()));
    }

    #[tokio::test]
    async fn verbosity_is_changed_by_a_put_of_a_number_and_by_nothing_else() {
        let app = verbosity(|level| Ok(format!("verbosity {level}"))).merge(app().0);
        let put = |method: &str, body: &str| {
            let request = axum::http::Request::builder().method(method).uri("/debug/flags/v");
            let request = request.body(Body::from(body.to_owned())).unwrap();
            let app = app.clone();
            async move { app.oneshot(request).await.unwrap().status().as_u16() }
        };
        assert_eq!(put("PUT", "4\n").await, 200);
        assert_eq!(put("PUT", "eleven").await, 400);
        assert_eq!(put("PUT", "11").await, 400);
        assert_eq!(put("GET", "4").await, 406);
    }
}
