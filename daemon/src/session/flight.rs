//! What a session is waiting for that takes time. It lives inside the session's task; dropping it ends it.

use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};

use agentd_protocol::{CallId, MessageId, TurnId};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use futures_util::{FutureExt as _, StreamExt as _};

use super::classify::Classified;
use super::record::When;
use crate::model::SampleError;
use crate::model::message::Reply;
use crate::tool::{Output, Prepared, ToolError};
use crate::workspace::snapshot::{SnapshotError, Taken};

/// What the model reads of a panic.
const FAULT: &str = "The tool failed inside agentd. This is a fault of agentd, not of the call.";

pub(super) enum Flight {
    Sample {
        message: MessageId,
        future: BoxFuture<'static, Result<Reply, SampleError>>,
    },
    Prepare {
        purpose: Purpose,
        future: BoxFuture<'static, PreparedCalls>,
    },
    /// The classifier of mode `auto` is asked about calls.
    Classify {
        future: BoxFuture<'static, Vec<Classified>>,
    },
    /// Results come in call order, whatever order the calls end in.
    Run {
        calls: FuturesOrdered<BoxFuture<'static, (CallId, Output)>>,
        effects: bool,
    },
    /// A snapshot of the work tree.
    Keep {
        turn: TurnId,
        when: When,
        future: BoxFuture<'static, KeptTree>,
    },
}

/// `None`: the session's folder is in no repository.
pub(super) type KeptTree = Result<Option<Taken>, SnapshotError>;

pub(super) type PreparedCalls = Vec<(CallId, Result<Prepared, ToolError>)>;

/// What calls are made ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Judge,
    Run,
    /// The mode changed while a person was asked.
    Rejudge,
}

/// Something that was waited for has come.
pub(super) enum Landed {
    Sampled { message: MessageId, result: Box<Result<Reply, SampleError>> },
    Prepared { purpose: Purpose, calls: PreparedCalls },
    Classified { calls: Vec<Classified> },
    Ran { call: CallId, output: Output },
    AllRan,
    Kept { turn: TurnId, when: When, result: Box<KeptTree> },
}

impl Flight {
    /// May be dropped and called again: the flight keeps its place.
    pub(super) async fn next(&mut self) -> Landed {
        match self {
            Flight::Sample { message, future } => {
                let result = Box::new(future.await);
                Landed::Sampled { message: message.clone(), result }
            }
            Flight::Prepare { purpose, future } => {
                Landed::Prepared { purpose: *purpose, calls: future.await }
            }
            Flight::Classify { future } => Landed::Classified { calls: future.await },
            Flight::Run { calls, .. } => match calls.next().await {
                Some((call, output)) => Landed::Ran { call, output },
                None => Landed::AllRan,
            },
            Flight::Keep { turn, when, future } => {
                Landed::Kept { turn: *turn, when: *when, result: Box::new(future.await) }
            }
        }
    }
}

/// The place of the one flight a session may have. The mutex is never locked: it lets the session be borrowed across
/// an await although futures cannot be shared.
#[derive(Default)]
pub(super) struct Berth(Mutex<Option<Flight>>);

impl Berth {
    pub(super) fn get(&mut self) -> &mut Option<Flight> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_free(&mut self) -> bool {
        self.get().is_none()
    }

    pub(super) fn board(&mut self, flight: Flight) {
        *self.get() = Some(flight);
    }

    /// Drops what is in flight; that ends it.
    pub(super) fn clear(&mut self) {
        *self.get() = None;
    }
}

/// A tool that panics while it makes a call ready fails that call only.
pub(super) fn contained_prepare(
    tool: &str,
    prepare: impl FnOnce() -> Result<Prepared, ToolError>,
) -> Result<Prepared, ToolError> {
    std::panic::catch_unwind(AssertUnwindSafe(prepare)).unwrap_or_else(|_| {
        tracing::error!(tool, "a tool panicked");
        Err(ToolError(FAULT.into()))
    })
}

/// A tool that panics fails its call only.
pub(super) fn contained(
    call: CallId,
    work: BoxFuture<'static, Output>,
) -> BoxFuture<'static, (CallId, Output)> {
    async move {
        let output = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(%call, "a tool panicked");
            Output::error(FAULT)
        });
        (call, output)
    }
    .boxed()
}
