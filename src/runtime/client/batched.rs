//! Reads from a connection in batches.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The most that is read from the kernel at a time, in bytes.
const BATCH: usize = 32 << 10;

thread_local! {
    /// Shared by all connections: idle ones, of which there may be hundreds, have no buffer.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; BATCH].into());
}

/// A connection that is read in batches. rustls takes 4 KB at a time, and an event of a watch, of which many come
/// together, has 10 KB or more: each would cost three calls of the kernel. The price: what one call does not take is
/// copied once more.
pub(super) struct Batched {
    pub(super) tcp: TcpStream,
    /// Read and not taken yet.
    kept: Vec<u8>,
    /// How much of that has been taken.
    taken: usize,
}

impl Batched {
    pub(super) fn new(tcp: TcpStream) -> Self {
        Batched { tcp, kept: Vec::new(), taken: 0 }
    }
}

impl AsyncRead for Batched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.kept.is_empty() {
            return SCRATCH.with_borrow_mut(|scratch| {
                let mut batch = ReadBuf::new(scratch);
                ready!(Pin::new(&mut self.tcp).poll_read(context, &mut batch))?;
                let (now, later) = batch.filled().split_at(batch.filled().len().min(buffer.remaining()));
                buffer.put_slice(now);
                (self.kept, self.taken) = (later.to_vec(), 0);
                Poll::Ready(Ok(()))
            });
        }
        let end = self.kept.len().min(self.taken + buffer.remaining());
        buffer.put_slice(&self.kept[self.taken..end]);
        self.taken = end;
        if end == self.kept.len() {
            self.kept = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Batched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A batched connection, and its other end.
    async fn connected() -> (Batched, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Batched::new(near), listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn every_byte_arrives_once_and_in_order_whatever_is_taken_at_a_time() {
        let (mut near, mut far) = connected().await;
        let sent: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
        let expected = sent.clone();
        let writing = tokio::spawn(async move {
            for part in sent.chunks(7001) {
                far.write_all(part).await.unwrap();
            }
        });
        let (mut received, mut part) = (Vec::new(), vec![0; 70_000]);
        for size in [1, 22, 4096, 40_000, 5, 70_000, 3].into_iter().cycle() {
            let read = near.read(&mut part[..size]).await.unwrap();
            received.extend_from_slice(&part[..read]);
            if read == 0 {
                break;
            }
        }
        writing.await.unwrap();
        assert!(received == expected);
    }

    #[tokio::test]
    async fn a_connection_that_was_read_to_its_end_has_no_buffer() {
        let (mut near, mut far) = connected().await;
        far.write_all(&[7; 1000]).await.unwrap();
        near.read_exact(&mut [0; 400]).await.unwrap();
        near.read_exact(&mut [0; 600]).await.unwrap();
        assert_eq!(near.kept.capacity(), 0);
    }

    #[tokio::test]
    async fn two_connections_share_no_byte() {
        let ((mut a, mut far_a), (mut b, mut far_b)) = (connected().await, connected().await);
        far_a.write_all(&[1; 5000]).await.unwrap();
        far_b.write_all(&[2; 5000]).await.unwrap();
        let (mut of_a, mut of_b) = ([0; 5000], [0; 5000]);
        for at in (0..5000).step_by(500) {
            a.read_exact(&mut of_a[at..at + 500]).await.unwrap();
            b.read_exact(&mut of_b[at..at + 500]).await.unwrap();
        }
        assert!(of_a == [1; 5000] && of_b == [2; 5000]);
    }
}
