//! A server in this process that keeps nothing: it answers each watch with a list, then with the events that are fed to it,
//! and with the pods that are created. Objects of a kind that is asked for in protobuf are in protobuf, others in JSON.
#![allow(dead_code)] // Every benchmark uses its own part of this.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cpu_time::ThreadTime;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::{StreamExt, stream};
use http::header::ACCEPT;
use http::{HeaderMap, Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use windlass::model::protobuf::{MAGIC, find, unwrap_object};
use windlass_apiserver::to_protobuf;

pub const PODS: &str = "/api/v1/pods";

/// All objects of the lists are older than this, and every change is newer.
pub const LISTED: u64 = 1_000_000;

/// A message with the places of numbers in it. Each is overwritten by as many digits, so that lengths stay as they are.
pub struct Form {
    message: Vec<u8>,
    /// Where each number stands, which one it is, and its width.
    places: Vec<(usize, usize, usize)>,
}

impl Form {
    /// A message in which each number stands where its mark is now.
    pub fn new(message: Vec<u8>, marks: &[&str]) -> Self {
        let mut places = Vec::new();
        for (which, mark) in marks.iter().enumerate() {
            let found = message.windows(mark.len()).enumerate().filter(|(_, at)| *at == mark.as_bytes());
            places.extend(found.map(|(at, _)| (at, which, mark.len())));
        }
        Form { message, places }
    }

    /// The message with these numbers.
    pub fn filled(&self, numbers: &[usize]) -> Bytes {
        let mut message = self.message.clone();
        for &(at, which, width) in &self.places {
            let digits = format!("{:0width$}", numbers[which]);
            message[at..at + width].copy_from_slice(digits.as_bytes());
        }
        message.into()
    }
}

/// An event of a watch in JSON.
pub fn line(kind: &str, object: &Value) -> Vec<u8> {
    (json!({"type": kind, "object": object}).to_string() + "\n").into_bytes()
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut message, mut length) = (vec![number << 3 | 2], bytes.len());
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(bytes);
    message
}

/// The same in protobuf, behind its length.
pub fn frame(kind: &str, object: &Value) -> Vec<u8> {
    let event = [field(1, kind.as_bytes()), field(2, &field(1, &to_protobuf(object)))].concat();
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
}

/// The metadata of an object in protobuf, with these managed fields, as an event behind its length.
pub fn metadata_frame(kind: &str, metadata: &Value, managed_fields: &Value) -> Vec<u8> {
    let object =
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
    let message = to_protobuf(&object);
    let message = find(unwrap_object(&message).unwrap(), 1).unwrap().unwrap().bytes().unwrap();
    // They are JSON within protobuf. No table of ours writes them.
    let entries = managed_fields.as_array().unwrap().iter().flat_map(|entry| {
        let text = |field: &str| entry[field].as_str().unwrap().as_bytes().to_vec();
        let fields = field(7, &field(1, entry["fieldsV1"].to_string().as_bytes()));
        // 17 is the number of the field, which takes two bytes.
        let entry = [field(1, &text("manager")), field(2, &text("operation")), fields].concat();
        let [_, rest @ ..] = &field(1, &entry)[..] else { unreachable!() };
        [&[0x8a, 0x01], rest].concat()
    });
    let metadata = field(1, &[message.to_vec(), entries.collect()].concat());
    let type_meta = [field(1, b"meta.k8s.io/v1"), field(2, b"PartialObjectMetadata")].concat();
    let object = [MAGIC, &field(1, &type_meta), &field(2, &metadata)].concat();
    let event = [field(1, kind.as_bytes()), field(2, &field(1, &object))].concat();
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
}

/// Whether a kind is asked for in protobuf: pods, and the metadata of all kinds. Its list must be in it.
fn accepts_protobuf(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).is_some_and(|accept| accept.to_str().is_ok_and(|accept| accept.contains("protobuf")))
}

/// The output of one watch: first the list, then the fed events.
type Feed = (Box<dyn Iterator<Item = Bytes> + Send>, UnboundedReceiver<Bytes>);

fn bookmark(as_protobuf: bool) -> Bytes {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"resourceVersion": LISTED.to_string(),
                        "annotations": {"k8s.io/initial-events-end": "true"}}});
    if as_protobuf { frame("BOOKMARK", &object) } else { line("BOOKMARK", &object) }.into()
}

/// A write.
pub struct Write {
    pub method: Method,
    pub path: String,
    pub body: Value,
    /// The CPU time of this thread at its arrival.
    pub at: Duration,
}

/// The API server, as far as it is needed here.
pub struct Server {
    feeds: Mutex<BTreeMap<&'static str, Feed>>,
    /// The open watch of each kind.
    feeders: Mutex<BTreeMap<&'static str, UnboundedSender<Bytes>>>,
    /// The object at a path, as JSON.
    object: Objects,
    /// How many pods were created.
    created: AtomicU64,
    writes: Mutex<Vec<Write>>,
}

/// The object at a path, as JSON.
type Objects = Box<dyn Fn(&str) -> Option<Bytes> + Send + Sync>;

/// The initial events of a kind, and the path of its list.
pub type List = (&'static str, Box<dyn Iterator<Item = Bytes> + Send>);

impl Server {
    /// A server of these lists, and of single objects.
    pub fn new(
        lists: impl IntoIterator<Item = List>,
        object: impl Fn(&str) -> Option<Bytes> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (mut feeds, mut feeders) = (BTreeMap::new(), BTreeMap::new());
        for (path, list) in lists {
            let (feeder, changes) = unbounded();
            feeders.insert(path, feeder);
            feeds.insert(path, (list, changes));
        }
        Arc::new(Server {
            feeds: Mutex::new(feeds),
            feeders: Mutex::new(feeders),
            object: Box::new(object),
            created: AtomicU64::new(0),
            writes: Mutex::default(),
        })
    }

    /// A client of this server.
    pub fn client(self: &Arc<Self>) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.serve(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Sends an event to the watch of a kind.
    pub fn send(&self, path: &str, event: Bytes) {
        self.feeders.lock()[path].unbounded_send(event).unwrap();
    }

    /// The writes since the last call.
    pub fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut *self.writes.lock())
    }

    /// A new pod, which the watch shows at once.
    fn create_pod(&self, sent: &Value) -> Value {
        let number = self.created.fetch_add(1, Ordering::Relaxed) + 1;
        let mut pod = sent.clone();
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["uid"] = format!("0000000a-0000-4000-8000-{number:012}").into();
        pod["metadata"]["resourceVersion"] = (LISTED + number).to_string().into();
        pod["metadata"]["creationTimestamp"] = "2026-01-01T01:00:00Z".into();
        self.send(PODS, frame("ADDED", &pod).into());
        pod
    }

    async fn serve(&self, request: Request<Body>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        if parts.method != Method::GET {
            let at = cpu_time();
            let body = body.collect().await.unwrap().to_bytes();
            let sent = serde_json::from_slice(&body).unwrap_or_default();
            let reply = match parts.method == Method::POST && path.ends_with("/pods") {
                true => self.create_pod(&sent),
                false => json!({"metadata": {"resourceVersion": "1"}}),
            };
            self.writes.lock().push(Write { method: parts.method, path, body: sent, at });
            return Response::new(Full::new(Bytes::from(reply.to_string())).boxed_unsync());
        }
        if let Some(object) = (self.object)(&path) {
            let response = Response::builder().header("content-type", "application/json");
            return response.body(Full::new(object).boxed_unsync()).unwrap();
        }
        let lists = parts.uri.query().is_some_and(|query| query.contains("sendInitialEvents"));
        let as_protobuf = accepts_protobuf(&parts.headers);
        let media_type =
            if as_protobuf { "application/vnd.kubernetes.protobuf;stream=watch" } else { "application/json" };
        let feed = self.feeds.lock().remove(path.as_str());
        let body = match (feed, self.feeders.lock().get_mut(path.as_str())) {
            (Some((list, changes)), _) => {
                let list = list.chain([bookmark(as_protobuf)]);
                let events = stream::iter(list).chain(changes).map(|event| Ok(Frame::data(event)));
                StreamBody::new(events).boxed_unsync()
            }
            // A watch that was silent is opened again.
            (None, Some(feeder)) if !lists => {
                let (again, changes) = unbounded();
                *feeder = again;
                StreamBody::new(changes.map(|event| Ok(Frame::data(event)))).boxed_unsync()
            }
            // Of every other kind there is nothing.
            _ => {
                let end = stream::iter(lists.then(|| Ok(Frame::data(bookmark(as_protobuf)))));
                StreamBody::new(end.chain(stream::pending())).boxed_unsync()
            }
        };
        Response::builder().header("content-type", media_type).body(body).unwrap()
    }
}

/// The CPU that this thread has used. The time on the wall would count other programs' as well.
pub fn cpu_time() -> Duration {
    ThreadTime::now().as_duration()
}
