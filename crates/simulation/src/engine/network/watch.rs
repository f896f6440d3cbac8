//! A watch as a daemon sees it: at times it shows nothing for a while, or for good, and then everything in order. It reports
//! up to which moment it has shown the history.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures::Stream;
use tokio::time::Sleep;

use super::{Cluster, Judge};
use crate::engine::call::Call;

type Chunk = Result<Bytes, axum::Error>;

/// No history lasts longer.
const FOR_GOOD: Duration = Duration::from_secs(1_000_000);

/// A watch of one resource by one daemon. It always shows a prefix of the history.
pub(super) struct Watch<J: Judge> {
    inner: BodyDataStream,
    cluster: Arc<Cluster<J>>,
    call: Call,
    connection: u32,
    /// When it began: once it has caught up, the objects of that moment have been shown.
    opened: Duration,
    held: Option<(Pin<Box<Sleep>>, Chunk)>,
}

impl<J: Judge> Watch<J> {
    pub(super) fn new(body: Body, cluster: Arc<Cluster<J>>, call: Call) -> Self {
        let opened = cluster.elapsed();
        let connection = cluster.with_judge(|judge| {
            judge.falls_behind(opened, &call);
            judge.connection(&call)
        });
        Watch { inner: body.into_data_stream(), cluster, call, connection, opened, held: None }
    }
}

impl<J: Judge> Stream for Watch<J> {
    type Item = Chunk;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Chunk>> {
        let this = self.get_mut();
        if this.connection != this.cluster.with_judge(|judge| judge.connection(&this.call)) {
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
            let shown = Pin::new(&mut this.inner).poll_next(context);
            let now = this.cluster.elapsed();
            match shown {
                Poll::Pending => {
                    this.cluster.with_judge(|judge| judge.catches_up(now, &this.call, this.opened));
                    return Poll::Pending;
                }
                Poll::Ready(Some(chunk)) => {
                    let lasts =
                        this.cluster.with_judge(|judge| judge.lags_for(now, &this.call)).min(FOR_GOOD);
                    if lasts.is_zero() {
                        return Poll::Ready(Some(chunk));
                    }
                    this.cluster.with_judge(|judge| judge.falls_behind(now, &this.call));
                    this.held = Some((Box::pin(tokio::time::sleep(lasts)), chunk));
                }
                Poll::Ready(None) => return Poll::Ready(None),
            }
        }
    }
}

impl<J: Judge> Drop for Watch<J> {
    fn drop(&mut self) {
        let now = self.cluster.elapsed();
        self.cluster.with_judge(|judge| judge.falls_behind(now, &self.call));
    }
}
