//! A watch as a daemon sees it: at times it shows nothing for a while, or for good. It reports up to which moment it
//! has shown the history.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures::Stream;
use tokio::time::Sleep;

use super::server::Server;

type Chunk = Result<Bytes, axum::Error>;

/// A watch of one resource by one daemon. It always shows a prefix of the history.
pub struct Watch {
    inner: BodyDataStream,
    server: Arc<Server>,
    agent: Arc<str>,
    resource: String,
    connection: u32,
    /// When it began: once it has caught up, the objects of that moment have been shown.
    opened: Duration,
    held: Option<(Pin<Box<Sleep>>, Chunk)>,
}

impl Watch {
    /// A watch of `resource` for `agent`.
    pub fn new(body: Body, server: Arc<Server>, agent: Arc<str>, resource: String) -> Self {
        server.falls_behind(&agent, &resource);
        let connection = server.connection(&agent, &resource);
        let opened = server.start.elapsed();
        Watch { inner: body.into_data_stream(), server, agent, resource, connection, opened, held: None }
    }
}

impl Stream for Watch {
    type Item = Chunk;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Chunk>> {
        let this = self.get_mut();
        if this.connection != this.server.connection(&this.agent, &this.resource) {
            // The watch is frozen, and never wakes its reader.
            return Poll::Pending;
        }
        loop {
            if let Some((mut sleep, chunk)) = this.held.take() {
                if sleep.as_mut().poll(context).is_pending() {
                    this.held = Some((sleep, chunk));
                    return Poll::Pending;
                }
                return Poll::Ready(Some(chunk));
            }
            match Pin::new(&mut this.inner).poll_next(context) {
                Poll::Pending => {
                    this.server.catches_up(&this.agent, &this.resource, this.opened);
                    return Poll::Pending;
                }
                Poll::Ready(Some(chunk)) => {
                    let Some(until) = this.server.held_until(&this.agent, &this.resource) else {
                        return Poll::Ready(Some(chunk));
                    };
                    this.server.falls_behind(&this.agent, &this.resource);
                    this.held = Some((Box::pin(tokio::time::sleep_until(until)), chunk));
                }
                Poll::Ready(None) => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.server.falls_behind(&self.agent, &self.resource);
    }
}
