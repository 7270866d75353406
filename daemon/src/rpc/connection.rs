//! One connection: a loop that reads and starts calls in the order in which they were written, and a loop that writes
//! answers before events. A call that was started is never cancelled by the connection's end; only its answer is lost.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};

use agentd_protocol::Method as _;
use agentd_protocol::initialize::{Actor, ClientInfo};
use agentd_protocol::method::TurnWait;
use futures_util::FutureExt as _;
use jsonrpsee::core::middleware::Notification;
use jsonrpsee::core::server::{BoundedSubscriptions, ConnectionId, MethodResponse, MethodSink};
use serde_json::value::RawValue;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::detect::{Framing, detect};
use super::dispatch::{self, Dispatch, carry_id, restore_id};
use super::error::{answer, error_with};
use super::layers::{self, Service};
use super::message::{Call, Incoming, classify};
use super::peer::Peer;
use super::serve::Server;
use super::wire::{self, Reader, Received, Writer};

/// Messages taken from a queue for one write.
const BATCH: usize = 32;

/// Who calls. Handlers get it with every call of a connection.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// Rises with every connection; never used again while the daemon lives.
    pub id: usize,
    pub peer: Peer,
    pub framing: Framing,
    client: OnceLock<ClientInfo>,
}

impl ConnectionInfo {
    #[must_use]
    pub fn new(id: usize, peer: Peer, framing: Framing) -> Self {
        Self { id, peer, framing, client: OnceLock::new() }
    }

    /// What `initialize` said of the client; `None` for one that never called it.
    #[must_use]
    pub fn client(&self) -> Option<&ClientInfo> {
        self.client.get()
    }

    /// Keeps what `initialize` said.
    ///
    /// # Errors
    /// It was called before: who a connection is does not change. Gives back the first.
    pub fn set_client(&self, client: ClientInfo) -> Result<(), &ClientInfo> {
        let mut given = Some(client);
        let kept = self.client.get_or_init(|| given.take().unwrap_or_else(anonymous));
        if given.is_none() { Ok(()) } else { Err(kept) }
    }

    /// Whether a person or a program decides what this connection sends. A person until it says otherwise.
    #[must_use]
    pub fn actor(&self) -> Actor {
        self.client().map(|client| client.actor).unwrap_or_default()
    }
}

fn anonymous() -> ClientInfo {
    ClientInfo { name: String::new(), version: String::new(), actor: Actor::default() }
}

/// Serves one client until it is gone or the daemon leaves.
///
/// # Errors
/// The socket's own; the client's mistakes are answered, not returned.
pub(super) async fn run(stream: UnixStream, peer: Peer, id: usize, server: &Server) -> io::Result<()> {
    let leaving = async {
        server.leave.cancelled().await;
        tokio::time::sleep(server.limits.leave).await;
    };
    tokio::select! {
        ended = converse(stream, peer, id, server) => ended,
        () = leaving => Ok(()),
    }
}

async fn converse(stream: UnixStream, peer: Peer, id: usize, server: &Server) -> io::Result<()> {
    let limits = &server.limits;
    // A second handle on the socket, to watch it after the client closed its half.
    let spare = rustix::io::fcntl_dupfd_cloexec(stream.as_fd(), 0)?;
    let (mut read, write) = stream.into_split();
    let (framing, prefix) = tokio::select! {
        () = server.leave.cancelled() => return Ok(()),
        detected = detect(&mut read) => detected?,
    };
    if prefix.is_empty() {
        return Ok(());
    }
    let (reader, writer) =
        wire::open(framing, prefix, (read, write), limits.message_bytes, limits.write_stall).await?;
    let info = Arc::new(ConnectionInfo::new(id, peer, framing));
    tracing::debug!(framing = framing.name(), "speaking");

    let (answers, answers_out) = mpsc::channel(limits.answers);
    let (events, events_out) = mpsc::channel(limits.events);
    let response_limit = u32::try_from(limits.message_bytes).unwrap_or(u32::MAX);
    let service = layers::around(Dispatch {
        methods: server.methods.clone(),
        connection: ConnectionId(id),
        sink: MethodSink::new_with_limit(events, response_limit),
        subscriptions: BoundedSubscriptions::new(limits.subscriptions),
        max_response: limits.message_bytes,
    });
    let calls = Calls {
        service,
        info,
        answers,
        waits: Arc::new(Semaphore::new(limits.waits)),
        leave: server.leave.clone(),
        tracker: server.tracker.clone(),
    };
    let reading = read_all(reader, calls, Arc::new(Semaphore::new(limits.calls)));
    let over = CancellationToken::new();
    let writing = write_all(writer, answers_out, events_out, &server.leave, &over);
    tokio::pin!(writing);
    tokio::select! {
        // Nobody is there to read answers any more, so nobody will send calls.
        ended = &mut writing => return ended,
        () = reading => {}
    }
    // The client has said its last word. It may still listen: to the answers, and to its subscriptions. Only WebSocket
    // has a word for leaving altogether, and wants it repeated.
    if framing == Framing::WebSocket {
        over.cancel();
    }
    tokio::select! {
        ended = writing => ended,
        ended = gone(spare) => ended,
    }
}

/// Reads messages and starts what they ask for, until the input ends. Owns every sender of the connection but those
/// that calls and subscriptions hold, so when it and they have ended, the writer does.
async fn read_all<S: Service>(mut reader: Reader, calls: Calls<S>, slots: Arc<Semaphore>) {
    let leave = calls.leave.clone();
    loop {
        let next = async {
            // No slot, no read: a client that floods is slowed down by its own socket. The semaphore is never closed.
            let slot = slots.clone().acquire_owned().await.ok()?;
            Some((slot, reader.next().await?))
        };
        let next = tokio::select! {
            biased;
            () = leave.cancelled() => return,
            next = next => next,
        };
        let Some((slot, received)) = next else { return };
        match received {
            Received::Message(text) => match classify(&text) {
                Incoming::Call(call) => calls.start(call, slot).await,
                Incoming::Notification { method, params } => calls.notify(method, params, slot).await,
                Incoming::Answer => {}
                Incoming::Wrong(answer) => calls.answer(answer).await,
            },
            Received::Wrong(answer) => calls.answer(answer).await,
            Received::Broken(answer) => return calls.answer(answer).await,
        }
    }
}

/// Starts calls and sees to it that they are answered.
struct Calls<S> {
    service: S,
    info: Arc<ConnectionInfo>,
    answers: mpsc::Sender<Box<RawValue>>,
    waits: Arc<Semaphore>,
    leave: CancellationToken,
    tracker: TaskTracker,
}

impl<S: Service> Calls<S> {
    /// Polls the call once right here, so that calls begin in the order of the wire and quick ones cost no task. What is
    /// not done by then gets a task that belongs to nobody's connection.
    async fn start(&self, call: Call, slot: OwnedSemaphorePermit) {
        let waits = call.method == TurnWait::NAME;
        let slot = if waits {
            drop(slot);
            match self.waits.clone().try_acquire_owned() {
                Ok(slot) => slot,
                Err(_) => return self.answer(too_many_waits(&call.id)).await,
            }
        } else {
            slot
        };
        let request =
            dispatch::with_info(dispatch::request(carry_id(&call.id), call.method, call.params), &self.info);
        let service = self.service.clone();
        let mut running = Box::pin(async move { service.call(request).await });
        if let Some(response) = begin(&mut running) {
            return deliver(&self.answers, response).await;
        }
        let answers = self.answers.clone();
        let leave = self.leave.clone();
        let task = async move {
            let _slot = slot;
            let response = if waits {
                // Only looks on, so it may be dropped, and must be: its turn may take days.
                tokio::select! {
                    response = running => response,
                    () = answers.closed() => return,
                    () = leave.cancelled() => return,
                }
            } else {
                running.await
            };
            deliver(&answers, response).await;
        };
        self.tracker.spawn(task.in_current_span());
    }

    async fn notify(&self, method: String, params: Option<Box<RawValue>>, slot: OwnedSemaphorePermit) {
        let mut notification = Notification::new(method.into(), params.map(std::borrow::Cow::Owned));
        notification.extensions_mut().insert(self.info.clone());
        let service = self.service.clone();
        let mut running = Box::pin(async move { service.notification(notification).await });
        if begin(&mut running).is_none() {
            let task = async move {
                let _slot = slot;
                running.await;
            };
            self.tracker.spawn(task.in_current_span());
        }
    }

    async fn answer(&self, answer: Box<RawValue>) {
        // Fails only once the writer has ended, and then so does this loop.
        let _ = self.answers.send(answer).await;
    }
}

/// Polls a call for the first time. Without the runtime's budget: once that is used up, whatever waits is told to come
/// back later even if it could go on, and a later call would overtake this one.
fn begin<F: Future + Unpin>(running: &mut F) -> Option<F::Output> {
    tokio::task::unconstrained(running).now_or_never()
}

async fn deliver(answers: &mpsc::Sender<Box<RawValue>>, response: MethodResponse) {
    // A subscription's sink has answered by itself, in front of its first event.
    if !response.is_subscription() {
        // Lost with its connection, as promised.
        let _ = answers.send(restore_id(response.into_json())).await;
    }
}

fn too_many_waits(id: &RawValue) -> Box<RawValue> {
    let error = error_with(
        agentd_protocol::ErrorCode::Overloaded,
        "too many turn/wait calls on one connection; follow events/subscribe instead",
        "retryAfterMs",
        1000,
    );
    answer(Some(id), &error)
}

/// Writes until all senders are gone, the client is, or the conversation is over. Answers to subscribe calls come through
/// the queue of events, in front of their first one, and get their ids here.
async fn write_all(
    mut writer: Writer,
    mut answers: mpsc::Receiver<Box<RawValue>>,
    mut events: mpsc::Receiver<Box<RawValue>>,
    leave: &CancellationToken,
    over: &CancellationToken,
) -> io::Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    let (mut answers_open, mut events_open, mut left) = (true, true, false);
    while answers_open || events_open {
        tokio::select! {
            // Answers go before events: a client that follows a flood must still be able to interrupt it.
            biased;
            () = over.cancelled() => {
                while let Ok(answer) = answers.try_recv() {
                    batch.push(answer);
                }
                // Impossible once the client has said goodbye, and wanted when it was cut off.
                let _ = writer.write(batch.drain(..)).await;
                break;
            }
            () = leave.cancelled(), if !left => {
                left = true;
                // Ends the subscriptions; what they had sent is still written.
                events.close();
                continue;
            }
            answer = answers.recv(), if answers_open => match answer {
                Some(answer) => batch.push(answer),
                None => answers_open = false,
            },
            event = events.recv(), if events_open => match event {
                Some(event) => batch.push(restore_id(event)),
                None => events_open = false,
            },
        }
        while !batch.is_empty() && batch.len() < BATCH {
            let next = answers.try_recv().or_else(|_| events.try_recv().map(restore_id));
            let Ok(message) = next else { break };
            batch.push(message);
        }
        writer.write(batch.drain(..)).await?;
    }
    writer.close().await;
    Ok(())
}

/// Waits until the client has closed its reading half too. `socket` is registered by itself, so that marking it as not
/// writable does not make the writer wait.
async fn gone(socket: OwnedFd) -> io::Result<()> {
    let socket = UnixStream::from_std(std::os::unix::net::UnixStream::from(socket))?;
    loop {
        if socket.ready(Interest::WRITABLE).await?.is_write_closed() {
            return Ok(());
        }
        // Only a change of the socket's state wakes the next round.
        let _ = socket.try_io(Interest::WRITABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}
