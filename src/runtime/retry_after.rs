//! Retries after 429 and `Retry-After`, as in client-go: the request is repeated after the time that the
//! server names, at most ten times, transparently to the caller.
//!
//! The one guarantee: a retry is a request like any other. It passes the rate limiter and the fence
//! again, it is not sent during the shutdown or when the caller no longer needs it, and an earlier attempt
//! that may have been carried out marks the answer ([`ApiError::Repeated`]).

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use tokio_util::sync::CancellationToken;

use super::api::{Api, ApiError, LARGEST_BODY, collect};

/// How often a request is retried at most: `maxRetries` of client-go.
const REPETITIONS: u32 = 10;

/// How long to wait after a 429 without `Retry-After`. client-go takes such an answer for a failure.
const UNSAID: Duration = Duration::from_secs(1);

/// Why a request is not retried.
const ENDING: &str = "the daemon is shutting down";
const UNWANTED: &str = "the request is no longer needed";

impl ApiError {
    /// How long the server asks the client to wait before it sends the request again: a 429, or a 5xx with
    /// `Retry-After`.
    pub fn asks_to_wait(&self) -> Option<Duration> {
        let status = self.status()?;
        match status.code {
            429 => Some(self.retry_after().unwrap_or(UNSAID)),
            500.. => self.retry_after(),
            _ => None,
        }
    }

    /// Whether the server may refuse a retry only because an earlier attempt was carried out: the object to remove
    /// no longer exists, for example.
    pub fn may_follow_from_own_attempt(&self) -> bool {
        matches!(self, ApiError::Repeated(status) if status.code == 422)
    }

    /// The same error behind an attempt that may have been carried out.
    fn after_doubt(self) -> Self {
        match self {
            ApiError::Status(status) => ApiError::Repeated(status),
            ApiError::NotSent(reason) => ApiError::CutOff(reason),
            ApiError::Transport { error, .. } => ApiError::Transport { error, sent: true },
            other => other,
        }
    }
}

impl Api {
    /// The same API server, with retries: a request that the server asks to repeat later is repeated,
    /// unless `ending` is cancelled first.
    pub fn retrying(&self, ending: CancellationToken) -> Self {
        let mut api = self.clone();
        api.retry_until = Some(ending);
        api
    }

    /// Sends a request, and retries it after each answer that asks for it.
    pub(super) async fn send(
        &self,
        request: Request<Vec<u8>>,
        still_wanted: impl Fn() -> bool,
    ) -> Result<Bytes, ApiError> {
        let read = async |response| collect(response, LARGEST_BODY).await;
        let Some(ending) = &self.retry_until else { return self.measured(request, false, read).await };
        let is_write = request.method() != Method::GET;
        let (mut repetitions, mut in_doubt) = (0, false);
        loop {
            let error = match self.measured(request.clone(), repetitions > 0, read).await {
                Ok(body) => return Ok(body),
                Err(error) if in_doubt => error.after_doubt(),
                Err(error) => error,
            };
            let may_retry = repetitions < REPETITIONS;
            let Some(wait) = error.asks_to_wait().filter(|_| may_retry) else { return Err(error) };
            in_doubt |= is_write && error.outcome_unknown();
            let gave_up = |reason| match in_doubt {
                true => Err(ApiError::CutOff(reason)),
                false => Err(ApiError::NotSent(reason)),
            };
            tracing::debug!(method = %request.method(), path = request.uri().path(), %error, ?wait,
                "the API server throttles the request; retrying after the wait");
            tokio::select! {
                biased;
                reason = self.wait_closed(request.method()) => return gave_up(reason),
                () = ending.cancelled() => return gave_up(ENDING),
                () = tokio::time::sleep(wait) => {}
            }
            if !still_wanted() {
                return gave_up(UNWANTED);
            }
            repetitions += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::Response;
    use http::header::RETRY_AFTER;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;
    use crate::metrics::Metrics;
    use crate::runtime::leader_election::fence::fence;
    use crate::runtime::rate_limiter::RateLimiter;
    use crate::runtime::request;

    const S: Duration = Duration::from_secs(1);

    /// When which requests came in.
    type Log = Arc<Mutex<Vec<Instant>>>;

    /// An API that retries, whose server answers the n-th request with the n-th code and `Retry-After`, and any further
    /// one with the last.
    fn server(answers: &[(u16, &'static str)], rate_limiter: RateLimiter) -> (Api, Log, CancellationToken) {
        let (log, ending) = (Log::default(), CancellationToken::new());
        let (seen, answers) = (log.clone(), answers.to_vec());
        let service = tower::service_fn(move |_: Request<Body>| {
            let mut log = seen.lock();
            let (code, seconds) = answers[log.len().min(answers.len() - 1)];
            log.push(Instant::now());
            let reason = if code == 409 { "AlreadyExists" } else { "" };
            let body = json!({"kind": "Status", "status": "Failure", "reason": reason, "message": "m"});
            let mut response = Response::builder().status(code);
            if !seconds.is_empty() {
                response = response.header(RETRY_AFTER, seconds);
            }
            let response = response.body(Body::from(body.to_string().into_bytes())).unwrap();
            async move { Ok::<_, Infallible>(response) }
        });
        let client = kube::Client::new(service, "default");
        let api = Api::new(client, "h", rate_limiter, Metrics::new()).retrying(ending.clone());
        (api, log, ending)
    }

    fn retrying(answers: &[(u16, &'static str)]) -> (Api, Log, CancellationToken) {
        server(answers, RateLimiter::unlimited())
    }

    fn post() -> Request<Vec<u8>> {
        request::post("/x", &[], &json!({})).unwrap()
    }

    fn seconds_between(log: &Log) -> Vec<u64> {
        log.lock().windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_retried_when_and_after_as_long_as_the_server_asks() {
        let (api, log, _ending) = retrying(&[(429, "3"), (503, "7"), (500, "2"), (429, ""), (200, "")]);
        assert!(api.call::<Value>(post()).await.is_ok());
        assert_eq!(seconds_between(&log), [3, 7, 2, 1]);
        let text = api.metrics().render();
        let retried = |code: u16, times: u64| {
            format!(r#"rest_client_request_retries_total{{code="{code}",host="h",verb="POST"}} {times}"#)
        };
        assert!(text.contains(&retried(200, 1)) && text.contains(&retried(429, 1)), "{text}");
        assert!(
            text.contains(r#"rest_client_requests_total{code="429",host="h",method="POST"} 2"#),
            "{text}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_at_most_a_minute_and_at_most_ten_times() {
        let (api, log, _ending) = retrying(&[(429, "1000000000")]);
        let error = api.call::<Value>(post()).await.unwrap_err();
        assert_eq!(seconds_between(&log), [60; 10]);
        assert!(error.is_refusal() && !error.outcome_unknown(), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_ask_to_wait_ends_the_call() {
        for code in [500, 502, 503, 504, 404, 422] {
            let (api, log, _ending) = retrying(&[(code, "")]);
            assert!(api.call::<Value>(post()).await.is_err());
            assert_eq!(log.lock().len(), 1, "{code}");
        }
        let (api, log, _ending) = retrying(&[(422, "5")]);
        assert!(api.call::<Value>(post()).await.is_err());
        assert_eq!(log.lock().len(), 1, "a 4xx is no reason to wait");
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_behind_an_attempt_that_may_have_been_carried_out_is_marked() {
        let (api, ..) = retrying(&[(503, "1"), (409, "")]);
        let error = api.call::<Value>(post()).await.unwrap_err();
        assert!(error.is_already_exists() && error.outcome_unknown(), "{error:?}");
        let (api, ..) = retrying(&[(429, "1"), (409, "")]);
        let error = api.call::<Value>(post()).await.unwrap_err();
        assert!(
            error.is_already_exists() && !error.outcome_unknown(),
            "a 429 is answered before anything is done"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_not_repeated_during_shutdown_or_when_no_longer_needed() {
        for (code, may_have_happened) in [(429, false), (503, true)] {
            let (api, log, ending) = retrying(if code == 429 { &[(429, "50")] } else { &[(503, "50")] });
            let start = Instant::now();
            let ends = async {
                tokio::time::sleep(2 * S).await;
                ending.cancel();
            };
            let (error, ()) = tokio::join!(api.call::<Value>(post()), ends);
            let error = error.unwrap_err();
            assert_eq!((start.elapsed(), log.lock().len()), (2 * S, 1));
            assert_eq!(
                (error.is_refusal(), error.outcome_unknown()),
                (false, may_have_happened),
                "{error:?}"
            );
        }
        let (api, log, _ending) = retrying(&[(429, "1")]);
        assert!(matches!(api.call_while::<Value>(post(), || false).await, Err(ApiError::NotSent(_))));
        assert_eq!(log.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_passes_the_fence_and_the_rate_limiter_again() {
        let (api, log, _ending) = retrying(&[(429, "50")]);
        let (control, fence) = fence();
        let start = Instant::now();
        control.extend(start + 10 * S);
        let error = api.fenced(fence).call::<Value>(post()).await.unwrap_err();
        assert!(matches!(error, ApiError::NotSent(_)), "{error:?}");
        assert_eq!((start.elapsed(), log.lock().len()), (10 * S, 1));

        let (api, log, _ending) = server(&[(429, "1"), (200, "")], RateLimiter::new(0.1, 1));
        assert!(api.call::<Value>(post()).await.is_ok());
        assert_eq!(seconds_between(&log), [10]);
    }
}
