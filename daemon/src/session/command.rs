//! What others may ask of a session's task. Every command carries its own way to answer.

use std::path::PathBuf;
use std::sync::Arc;

use agentd_protocol::approval::{Approval, By, RespondParams, RespondResult};
use agentd_protocol::changes::{RevertParams, RevertResult};
use agentd_protocol::initialize::Actor;
use agentd_protocol::permission::{Breaker, BreakerAction};
use agentd_protocol::plan::PlanGetResult;
use agentd_protocol::session::{
    InboxResult, InterruptResult, Origin, PromptParams, PromptResult, RewindParams, RewindResult, Row,
    SetModeResult, State,
};
use agentd_protocol::turn::TurnWaitResult;
use agentd_protocol::{ApprovalId, Mode, Seq, Timestamp, TurnId};
use tokio::sync::oneshot;

use super::changes::View;
use super::error::SessionError;
use super::explain::Inquiry;
use super::export::Handing;
use super::feed::{Feed, Position};
use super::state::HandedOver;
use crate::ids::Digest;
use crate::journal::{Blobs, JournalReader};

pub type Reply<T> = oneshot::Sender<Result<T, SessionError>>;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    pub by: By,
    pub actor: Actor,
}

impl Caller {
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self.actor {
            Actor::Person => Origin::Client,
            Actor::Program => Origin::Program,
        }
    }
}

/// What a program may not do.
///
/// # Errors
/// `Refused`, with why.
pub fn person_only(actor: Actor) -> Result<(), SessionError> {
    match actor {
        Actor::Person => Ok(()),
        Actor::Program => Err(SessionError::Refused(
            "only a person may do this; the client said in initialize that it is a program".into(),
        )),
    }
}

/// A program deletes and archives what a program made, and nothing of a person's.
///
/// # Errors
/// `Refused`, with why.
pub fn may_put_away(actor: Actor, made_by: Origin) -> Result<(), SessionError> {
    match (actor, made_by) {
        (Actor::Person, _) | (Actor::Program, Origin::Program) => Ok(()),
        (Actor::Program, _) => Err(SessionError::Refused(
            "a person made this session, so only a person may put it away; the client said in initialize that it is a program"
                .into(),
        )),
    }
}

pub enum Command {
    /// They have changed: what waits is judged again.
    LookAtSettings,
    Prompt {
        params: Box<PromptParams>,
        caller: Caller,
        reply: Reply<PromptResult>,
    },
    Interrupt {
        turn: Option<TurnId>,
        caller: Caller,
        reply: Reply<InterruptResult>,
    },
    SetMode {
        mode: Mode,
        caller: Caller,
        reply: Reply<SetModeResult>,
    },
    /// Looks at the session's breaker of mode `auto`, opens or closes it.
    Breaker {
        action: Option<BreakerAction>,
        caller: Caller,
        reply: Reply<Breaker>,
    },
    SetTitle {
        title: String,
        reply: Reply<()>,
    },
    Withdraw {
        prompt: TurnId,
        reply: Reply<()>,
    },
    Respond {
        params: Box<RespondParams>,
        caller: Caller,
        reply: Reply<RespondResult>,
    },
    Approval {
        id: ApprovalId,
        reply: Reply<Box<(Approval, Row)>>,
    },
    PlanGet {
        reply: Reply<PlanGetResult>,
    },
    /// Answers what the gate's answers depend on now.
    Inquiry {
        reply: Reply<Box<Inquiry>>,
    },
    Inbox {
        reply: Reply<InboxResult>,
    },
    Snapshot {
        reply: Reply<Box<Snapshot>>,
    },
    Row {
        reply: Reply<Box<(Row, Vec<Approval>)>>,
    },
    /// Answers its state if it was made with the parameters that have this digest.
    SameAs {
        params: Digest,
        reply: Reply<Box<State>>,
    },
    Rewind {
        params: RewindParams,
        caller: Caller,
        reply: Reply<RewindResult>,
    },
    Archive {
        archived: bool,
        caller: Caller,
        reply: Reply<()>,
    },
    /// Whether it could be given away now. If so, it asks no more whether its project is trusted.
    MayHandOver {
        reply: Reply<()>,
    },
    /// The bundle is whole: the session is given away, if it still is as it was packed.
    HandOver {
        handing: Box<Handing>,
        reply: Reply<()>,
    },
    /// The session that was given away comes back: what is staged takes its place.
    GiveWay {
        epoch: u64,
        staged: PathBuf,
        reply: Reply<()>,
    },
    WaitTurn {
        turn: TurnId,
        reply: Reply<TurnWaitResult>,
    },
    /// No further step; what runs is cut or given time. Answers when nothing runs.
    Park {
        reply: oneshot::Sender<()>,
    },
    Changes {
        reply: Reply<Box<View>>,
    },
    Revert {
        params: Box<RevertParams>,
        reply: Reply<RevertResult>,
    },
    /// Removes the session, unless it was changed since, or is of use to anybody. Answers whether it is gone.
    Expire {
        unchanged_since: Timestamp,
        reply: Reply<bool>,
    },
    /// Stops everything and removes the session's folder.
    Delete {
        reply: Reply<()>,
    },
}

/// Who owns a session, for those that move it.
#[derive(Clone, Debug)]
pub struct Ownership {
    pub epoch: u64,
    pub handed_over: Option<HandedOver>,
    pub plan_files: Vec<PathBuf>,
}

/// A consistent cut through a session: its state, and where to read on.
pub struct Snapshot {
    pub state: State,
    /// Who made the session.
    pub made_by: Origin,
    pub ownership: Ownership,
    /// Of mode `auto`.
    pub breaker: crate::permission::Breaker,
    pub feed: Arc<Feed>,
    /// The place of who has read all that `state` tells.
    pub here: Position,
    pub head: Seq,
    pub reader: JournalReader,
    pub blobs: Blobs,
}

impl Command {
    /// Whether it is for the session's owner only. What is merely looked at, and a deletion, is not.
    #[must_use]
    pub fn needs_owner(&self) -> bool {
        match self {
            Command::Prompt { .. }
            | Command::SetMode { .. }
            | Command::LookAtSettings
            | Command::Breaker { action: Some(_), .. }
            | Command::SetTitle { .. }
            | Command::Withdraw { .. }
            | Command::Respond { .. }
            | Command::Rewind { .. }
            | Command::Archive { .. }
            | Command::Revert { .. } => true,
            Command::Interrupt { .. }
            | Command::Breaker { action: None, .. }
            | Command::Approval { .. }
            | Command::PlanGet { .. }
            | Command::Inquiry { .. }
            | Command::Inbox { .. }
            | Command::Snapshot { .. }
            | Command::Row { .. }
            | Command::SameAs { .. }
            | Command::MayHandOver { .. }
            | Command::HandOver { .. }
            | Command::GiveWay { .. }
            | Command::WaitTurn { .. }
            | Command::Park { .. }
            | Command::Changes { .. }
            | Command::Expire { .. }
            | Command::Delete { .. } => false,
        }
    }

    /// Answers with an error, whatever was asked.
    pub fn refuse(self, error: SessionError) {
        match self {
            Command::LookAtSettings => {}
            Command::Prompt { reply, .. } => drop(reply.send(Err(error))),
            Command::Interrupt { reply, .. } => drop(reply.send(Err(error))),
            Command::Breaker { reply, .. } => drop(reply.send(Err(error))),
            Command::SetMode { reply, .. } => drop(reply.send(Err(error))),
            Command::SetTitle { reply, .. } | Command::Withdraw { reply, .. } | Command::Delete { reply } => {
                drop(reply.send(Err(error)))
            }
            Command::Respond { reply, .. } => drop(reply.send(Err(error))),
            Command::Approval { reply, .. } => drop(reply.send(Err(error))),
            Command::Expire { reply, .. } => drop(reply.send(Err(error))),
            Command::Changes { reply } => drop(reply.send(Err(error))),
            Command::Revert { reply, .. } => drop(reply.send(Err(error))),
            Command::PlanGet { reply } => drop(reply.send(Err(error))),
            Command::Inquiry { reply } => drop(reply.send(Err(error))),
            Command::Inbox { reply } => drop(reply.send(Err(error))),
            Command::Snapshot { reply } => drop(reply.send(Err(error))),
            Command::Row { reply } => drop(reply.send(Err(error))),
            Command::SameAs { reply, .. } => drop(reply.send(Err(error))),
            Command::Rewind { reply, .. } => drop(reply.send(Err(error))),
            Command::Archive { reply, .. }
            | Command::MayHandOver { reply }
            | Command::HandOver { reply, .. }
            | Command::GiveWay { reply, .. } => drop(reply.send(Err(error))),
            Command::WaitTurn { reply, .. } => drop(reply.send(Err(error))),
            Command::Park { reply } => drop(reply.send(())),
        }
    }
}
