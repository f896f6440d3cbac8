//! The watch of a daemon that shows nothing for a while, and then everything in order.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures::Stream;
use tokio::time::{Instant, Sleep};

use super::{Cluster, Judge};
use crate::engine::call::Call;

type Chunk = Result<Bytes, axum::Error>;

/// No history lasts longer.
const FOR_GOOD: Duration = Duration::from_secs(1_000_000);

pub(super) struct Lag<J: Judge> {
    inner: BodyDataStream,
    cluster: Arc<Cluster<J>>,
    call: Call,
    held: Option<(Pin<Box<Sleep>>, Chunk)>,
}

impl<J: Judge> Lag<J> {
    pub(super) fn new(body: Body, cluster: Arc<Cluster<J>>, call: Call) -> Self {
        Lag { inner: body.into_data_stream(), cluster, call, held: None }
    }
}

impl<J: Judge> Stream for Lag<J> {
    type Item = Chunk;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Chunk>> {
        let this = self.get_mut();
        loop {
            if let Some((mut sleep, chunk)) = this.held.take() {
                if sleep.as_mut().poll(context).is_pending() {
                    this.held = Some((sleep, chunk));
                    return Poll::Pending;
                }
                return Poll::Ready(Some(chunk));
            }
            match Pin::new(&mut this.inner).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(chunk)) => {
                    let until = this.cluster.lags_until(&this.call);
                    let lasts = until.saturating_sub(this.cluster.elapsed()).min(FOR_GOOD);
                    if lasts.is_zero() {
                        return Poll::Ready(Some(chunk));
                    }
                    this.held = Some((Box::pin(tokio::time::sleep_until(Instant::now() + lasts)), chunk));
                }
            }
        }
    }
}
