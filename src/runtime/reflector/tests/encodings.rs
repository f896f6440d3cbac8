//! In which encoding objects are asked for, and what happens where a server refuses it.

use http::header::ACCEPT;

use super::*;
use crate::model::record::Encoded;
use crate::model::wire::Version;
use crate::runtime::watch_decoder::Identity;

/// Keeps what arrived.
#[derive(Clone, Default)]
struct Recorder {
    log: Arc<Mutex<Vec<String>>>,
    listing: bool,
    position: u64,
}

impl Destination for Recorder {
    fn accept(&self) -> Accept {
        Accept { list: "p,list", watch: "p,watch", list_in_json: "list", watch_in_json: "watch" }
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn len(&self) -> usize {
        self.log.lock().len()
    }

    fn is_listing(&self) -> bool {
        self.listing
    }

    fn begin_list(&mut self, _: bool) {
        self.listing = true;
    }

    fn end_list(&mut self, version: &Version) {
        (self.listing, self.position) = (false, version.number().unwrap());
        self.log.lock().push(format!("={version}"));
    }

    fn put(&mut self, object: Encoded<'_>) {
        self.log.lock().push(Identity::read(object).unwrap().key.name.to_string());
    }

    fn delete(&mut self, _: Encoded<'_>) {}

    fn bookmark(&mut self, _: &Version) {}
}

/// A server that answers `code` to whoever asks for more than JSON, with what it was asked for.
async fn played(code: u16, streams: bool) -> (Vec<String>, Vec<String>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let accept = request.headers()[ACCEPT].to_str().unwrap().to_owned();
        log.lock().push(accept.clone());
        let query = request.uri().query().unwrap_or_default();
        let answer = match (accept.contains(','), query.contains("sendInitialEvents")) {
            (true, _) => Answer::Status(code, status(code, "NotAcceptable")),
            (false, true) if streams => Answer::Stream(vec![added("a", 5), complete(10)]),
            (false, true) => refused(),
            (false, false) if query.contains("watch=") => Answer::Nothing,
            (false, false) => page(10, &[("a", 5)], ""),
        };
        async move {
            match answer {
                Answer::Nothing => std::future::pending().await,
                answer => Ok::<_, Infallible>(answer.respond()),
            }
        }
    });
    let api = Api::new(kube::Client::new(service, "default"), "h", RateLimiter::unlimited(), Metrics::new());
    let recorder = Recorder::default();
    let reflector = Reflector::new(
        THINGS,
        api,
        InformerOptions::default(),
        Box::new(recorder.clone()),
        watch::Sender::new(false),
        Arc::default(),
        Reachability::default(),
    );
    let run = tokio::spawn(reflector.run());
    tokio::time::sleep(S / 10).await;
    run.abort();
    (asked.lock().clone(), recorder.log.lock().clone())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_the_media_types_is_asked_for_json_at_once_and_from_then_on() {
    for code in [406, 415] {
        let (asked, arrived) = played(code, true).await;
        assert_eq!(
            (asked, arrived),
            (vec!["p,watch".into(), "watch".into()], vec!["a".into(), "=10".into()])
        );
        let (asked, arrived) = played(code, false).await;
        assert_eq!(asked, ["p,watch", "watch", "list", "watch"]);
        assert_eq!(arrived, ["a", "=10"]);
    }
}

#[tokio::test(start_paused = true)]
async fn another_error_is_no_reason_to_give_up_the_encoding() {
    let (asked, arrived) = played(503, true).await;
    assert!(asked.iter().all(|accept| accept.starts_with("p,")), "{asked:?}");
    assert!(arrived.is_empty());
}
