//! jsonrpsee's client over one Unix socket, a JSON text a line.

use std::io;

use agentd_protocol::codec::{Codec, Framing, Item, MAX_MESSAGE};
use bytes::BytesMut;
use futures_util::StreamExt as _;
use jsonrpsee::core::client::{ReceivedMessage, TransportReceiverT, TransportSenderT};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{Encoder as _, FramedRead};

/// The writing half.
pub(crate) struct Sender {
    write: OwnedWriteHalf,
    codec: Codec,
    buffer: BytesMut,
}

/// The reading half.
pub(crate) struct Receiver(FramedRead<OwnedReadHalf, Codec>);

pub(crate) fn split(stream: UnixStream) -> (Sender, Receiver) {
    let (read, write) = stream.into_split();
    let codec = || Codec::new(Framing::Lines, MAX_MESSAGE);
    (Sender { write, codec: codec(), buffer: BytesMut::new() }, Receiver(FramedRead::new(read, codec())))
}

impl Sender {
    pub(crate) async fn line(&mut self, json: &str) -> io::Result<()> {
        self.codec.encode(json, &mut self.buffer)?;
        self.write.write_all_buf(&mut self.buffer).await
    }
}

impl Receiver {
    /// The next line. Cancel-safe.
    pub(crate) async fn line(&mut self) -> io::Result<String> {
        match self.0.next().await.transpose()? {
            Some(Item::Message(text)) => Ok(text),
            Some(Item::TooLarge) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "the daemon sent a message over 16 MiB"))
            }
            Some(Item::Invalid(problem) | Item::Broken(problem)) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, problem))
            }
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the daemon closed the connection")),
        }
    }
}

impl TransportSenderT for Sender {
    type Error = io::Error;

    async fn send(&mut self, message: String) -> io::Result<()> {
        self.line(&message).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.write.shutdown().await
    }
}

impl TransportReceiverT for Receiver {
    type Error = io::Error;

    async fn receive(&mut self) -> io::Result<ReceivedMessage> {
        self.line().await.map(ReceivedMessage::Text)
    }
}
