//! Sends requests to the API server without the queue that a [`kube::Client`] has.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use kube::client::Body;
use tower::{BoxError, Service};

use super::transport::Transport;

/// A client of the API server. Clones share its connections.
///
/// The daemon's own sends each request in the task that makes it. A [`kube::Client`] has a queue and a task in between,
/// which costs each call two wake-ups; any server can stand behind one, such as that of a test.
#[derive(Clone)]
pub struct Client(Way);

#[derive(Clone)]
enum Way {
    Direct(Transport),
    Queued(kube::Client),
}

impl From<kube::Client> for Client {
    fn from(client: kube::Client) -> Self {
        Client(Way::Queued(client))
    }
}

impl From<Transport> for Client {
    fn from(transport: Transport) -> Self {
        Client(Way::Direct(transport))
    }
}

impl Client {
    /// Sends a request, and returns the beginning of its answer.
    ///
    /// # Errors
    /// When there are no credentials, or no answer.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<Answer>, kube::Error> {
        match &self.0 {
            Way::Direct(transport) => {
                let answer = transport.clone().call(request).await.map_err(kube_error)?;
                Ok(answer.map(|body| Answer(AnswerBody::Direct(body))))
            }
            Way::Queued(client) => {
                Ok(client.send(request).await?.map(|body| Answer(AnswerBody::Queued(body))))
            }
        }
    }
}

/// As what stands behind a [`kube::Client`], for a program that needs one.
impl Service<Request<Body>> for Client {
    type Response = Response<Answer>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answer>, kube::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.clone();
        Box::pin(async move { client.send(request).await })
    }
}

/// As a [`kube::Client`] reports what its service returns.
fn kube_error(error: BoxError) -> kube::Error {
    let error = match error.downcast::<kube::Error>() {
        Ok(error) => return *error,
        Err(error) => error,
    };
    error
        .downcast::<hyper::Error>()
        .map_or_else(kube::Error::Service, |error| kube::Error::HyperError(*error))
}

/// The body of an answer.
#[derive(Debug)]
pub struct Answer(AnswerBody);

#[derive(Debug)]
enum AnswerBody {
    Direct(Incoming),
    Queued(Body),
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = kube::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, kube::Error>>> {
        match &mut self.get_mut().0 {
            AnswerBody::Direct(body) => Pin::new(body).poll_frame(context).map_err(kube::Error::HyperError),
            AnswerBody::Queued(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            AnswerBody::Direct(body) => body.is_end_stream(),
            AnswerBody::Queued(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            AnswerBody::Direct(body) => body.size_hint(),
            AnswerBody::Queued(body) => body.size_hint(),
        }
    }
}
