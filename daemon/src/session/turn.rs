//! A turn from its prompt to its end: taking entries, asking the model, recording what it says.

use std::path::Path;
use std::time::Duration;

use agentd_protocol::event::ToolStatus;
use agentd_protocol::session::Content;
use agentd_protocol::turn::Outcome;
use agentd_protocol::{CallId, MessageId, TurnId};
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::actor::Session;
use super::commit::COMMIT_ROOM;
use super::error::SessionError;
use super::flight::Flight;
use super::record::{
    AfterFailure, CallFinished, CallInput, CallProposed, ContextAdded, InboxTaken, Part, Record, Replied,
    ReplyEnd, SampleFailed, SampleStarted, Source, TurnFinished, TurnStarted,
};
use super::state::{CallState, Phase};
use super::step::Ending;
use crate::context::{self, Interruption, NotRun};
use crate::model::message::{Arguments, Block, Message, ProposedCall, Reply, Role, Stop};
use crate::model::{Delta, Retry, SampleError};

/// Tries for one answer before the turn fails.
const MAX_ATTEMPTS: u32 = 6;
/// The first pause before asking again; it doubles up to [`MAX_BACKOFF`] when the provider names none.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(32);

/// Calls in one answer.
const MAX_CALLS: usize = 200;
/// Bytes of a call's name or id as the provider gives it.
const MAX_CALL_NAME: usize = 1024;

/// What stands between the parts of a prompt.
const BETWEEN_PARTS: &str = "\n\n";

/// Why a text being written is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// By a person: the model sees later what it had said.
    Interrupted,
    /// By a shutdown: the model is asked again, so only people see it.
    Parked,
}

impl Session {
    pub(super) async fn start_turn(&mut self, prompt: TurnId) -> Result<(), SessionError> {
        let Some(entry) = self.state.inbox.iter().find(|entry| entry.prompt_id == prompt).cloned() else {
            return Ok(());
        };
        self.mark().await?;
        let said = self.said(&entry).await;
        self.turn_token = CancellationToken::new();
        let mut records = vec![
            TurnStarted { turn_id: prompt, origin: entry.origin }.into(),
            InboxTaken { prompt_id: prompt, turn_id: prompt }.into(),
        ];
        match said {
            Ok(said) => {
                records.push(said);
                self.commit(records).await
            }
            // Trying again would not help, and whatever waits behind it would wait for ever.
            Err(error) => {
                records.push(
                    TurnFinished {
                        turn_id: prompt,
                        outcome: Outcome::Failed,
                        usage: agentd_protocol::turn::Usage::default(),
                        denials: Vec::new(),
                        error: Some(format!("the prompt cannot be read back: {error}")),
                        mode: self.state.mode,
                        hold_inbox: false,
                        last_prompt: self.state.last_prompt.clone(),
                        held_prompts: None,
                    }
                    .into(),
                );
                self.commit(records).await?;
                self.wake_waiters().await;
                Ok(())
            }
        }
    }

    /// An inbox entry as a message of the context.
    async fn said(&self, entry: &super::state::InboxEntry) -> Result<Record, SessionError> {
        let Record::InboxAdded(added) = self.record_at(entry.place).await? else {
            return Err(super::commit::storage("a prompt cannot be read back".into()));
        };
        let mut texts = Vec::with_capacity(added.content.len());
        for part in added.content {
            texts.push(match part {
                Part::Text { text } => self.body_text(text).await?,
                Part::Resource { uri, text } => resource_text(&uri, &self.body_text(text).await?),
            });
        }
        let text = texts.join(BETWEEN_PARTS);
        Ok(ContextAdded {
            message_id: MessageId::generate(self.state.id()),
            source: Source::Prompt,
            origin: Some(entry.origin),
            text: self.body(text).await?,
        }
        .into())
    }

    /// Asks the model. `attempt` is absent when a pause has just ended: then the state knows it.
    pub(super) async fn start_sample(&mut self, attempt: Option<u32>) -> Result<(), SessionError> {
        let Some(turn) = &self.state.turn else { return Ok(()) };
        let turn_id = turn.id;
        let attempt = attempt.unwrap_or(match turn.phase {
            Phase::Backoff { attempt, .. } => attempt,
            _ => 1,
        });
        let message = MessageId::generate(self.state.id());
        let mut records = Vec::new();
        if !self.state.inbox_held {
            let steering: Vec<_> = self.state.steering().cloned().collect();
            for entry in steering {
                records.push(InboxTaken { prompt_id: entry.prompt_id, turn_id }.into());
                records.push(self.said(&entry).await?);
            }
        }
        records.push(SampleStarted { message_id: message.clone(), attempt }.into());
        self.wake_timer();
        self.commit(records).await?;

        let request = match self.request().await {
            Ok(request) => request,
            // A message of the context cannot be read back: asking again would not help.
            Err(error) => {
                let error = format!("the conversation so far cannot be read: {error}");
                let failed = SampleFailed { message_id: message, error, then: AfterFailure::GiveUp };
                return self.commit(vec![failed.into()]).await;
            }
        };
        self.feed.begin_text(message.clone());
        let feed = std::sync::Arc::clone(&self.feed);
        let models = std::sync::Arc::clone(&self.deps.models);
        let provider = self.state.created.model.provider.clone();
        let future = async move {
            let endpoint = models.endpoint(&provider).await?;
            let mut on_delta = |delta: Delta<'_>| match delta {
                Delta::Text(text) => feed.push_text(text),
                Delta::Thinking(text) => feed.push_thinking(text),
            };
            models.client().sample(&endpoint, &request, &mut on_delta).await
        };
        self.flight.board(Flight::Sample { message, future: future.boxed() });
        Ok(())
    }

    pub(super) async fn sampled(
        &mut self,
        message: &MessageId,
        result: &Result<Reply, SampleError>,
    ) -> Result<(), SessionError> {
        match result {
            Ok(reply) => match unusable(reply) {
                None => self.replied(message.clone(), reply.clone()).await,
                Some(why) => {
                    let error = format!("the model's answer cannot be carried out: {why}");
                    let then = AfterFailure::GiveUp;
                    let failed = SampleFailed { message_id: message.clone(), error, then };
                    self.commit(vec![failed.into()]).await
                }
            },
            Err(error) => self.sample_failed(message.clone(), error).await,
        }
    }

    async fn sample_failed(&mut self, message: MessageId, error: &SampleError) -> Result<(), SessionError> {
        let attempt = match self.state.turn.as_ref().map(|turn| &turn.phase) {
            Some(Phase::Sampling { attempt, .. }) => *attempt,
            _ => 1,
        };
        let wait = match error.retry {
            Retry::Never => None,
            Retry::Backoff => Some(backoff(attempt)),
            Retry::After { wait, .. } => Some(wait),
        };
        let then = match wait {
            Some(wait) if attempt < MAX_ATTEMPTS => {
                let now = self.deps.clock.now().unix_ms();
                let at = now.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
                AfterFailure::Retry { at: agentd_protocol::Timestamp::from_unix_ms(at) }
            }
            _ => AfterFailure::GiveUp,
        };
        let error = match then {
            AfterFailure::GiveUp if attempt >= MAX_ATTEMPTS => format!("{error} (after {attempt} attempts)"),
            _ => error.to_string(),
        };
        self.commit(vec![SampleFailed { message_id: message, error, then }.into()]).await
    }

    async fn replied(&mut self, message_id: MessageId, reply: Reply) -> Result<(), SessionError> {
        let plan = self.own_plan_file();
        let (reply, titles, message) = super::offload(reply.raw.body.get().len(), move || {
            let titles: Vec<_> = reply.calls.iter().map(|call| title_of(call, plan.as_deref())).collect();
            let message = serde_json::value::to_raw_value(&reply.message());
            (reply, titles, message)
        })
        .await;
        let message = message
            .map_err(|error| super::commit::storage(format!("an answer cannot be written down: {error}")))?;
        let thinking = match reply.thinking.is_empty() {
            true => None,
            false => Some(self.body(reply.thinking).await?),
        };
        let cut = reply.stop == Stop::Length;
        let mut room = COMMIT_ROOM;
        let mut records = vec![Record::from(Replied {
            message_id,
            text: self.body(reply.text).await?,
            thinking,
            message: Some(self.json(message).await?),
            usage: reply.usage,
            end: ReplyEnd::Model(reply.stop),
        })];
        let mut results = Vec::new();
        for (call, title) in reply.calls.into_iter().zip(titles) {
            let call_id = CallId::generate(self.state.id());
            if cut {
                // Arguments that were cut may parse and mean something else.
                results.push(self.error_result(&call_id, "call.cut", context::CALL_CUT).await?);
            }
            records.push(self.proposed(call_id, call, title, &mut room).await?);
        }
        records.extend(results);
        self.commit(records).await
    }

    async fn proposed(
        &self,
        call_id: CallId,
        call: ProposedCall,
        title: String,
        room: &mut usize,
    ) -> Result<Record, SessionError> {
        let tool = self.deps.tools.find(&call.name);
        let kind = tool.as_ref().map_or(agentd_protocol::event::ToolKind::Other, |tool| tool.kind());
        let read_only =
            matches!(kind, agentd_protocol::event::ToolKind::Read | agentd_protocol::event::ToolKind::Search);
        let input = match call.arguments {
            Arguments::Object(raw) => CallInput::Json(self.json_within(room, raw).await?),
            Arguments::Malformed { text, problem } => {
                CallInput::Malformed { problem, text: self.body_within(room, text).await? }
            }
        };
        Ok(CallProposed { call_id, provider_id: call.id, tool: call.name, kind, title, input, read_only }
            .into())
    }

    pub(super) async fn error_result(
        &self,
        call_id: &CallId,
        reason: &str,
        text: &str,
    ) -> Result<Record, SessionError> {
        self.result(call_id, ToolStatus::Error, Some(reason), text.to_owned()).await
    }

    pub(super) async fn result(
        &self,
        call_id: &CallId,
        status: ToolStatus,
        reason: Option<&str>,
        text: String,
    ) -> Result<Record, SessionError> {
        Ok(CallFinished {
            call_id: call_id.clone(),
            status,
            reason: reason.map(str::to_owned),
            content: self.body(text).await?,
            diff: None,
            reads: Vec::new(),
            ran: None,
        }
        .into())
    }

    /// Records the text that was being written when it was cut off.
    pub(super) async fn cut_sample(&mut self, cut: Cut) -> Result<(), SessionError> {
        let Some(Phase::Sampling { message, .. }) = self.state.turn.as_ref().map(|turn| turn.phase.clone())
        else {
            return Ok(());
        };
        let so_far = self.feed.text_so_far().filter(|live| live.message_id == message);
        let record = match so_far {
            Some(live) if !live.text.is_empty() => {
                let kept = Message {
                    role: Role::Assistant,
                    blocks: vec![Block::Text { text: live.text.clone() }],
                    raw: None,
                };
                let kept = serde_json::value::to_raw_value(&kept).map_err(|error| {
                    super::commit::storage(format!("a text cannot be written down: {error}"))
                })?;
                let thinking = match live.thinking.is_empty() {
                    true => None,
                    false => Some(self.body(live.thinking).await?),
                };
                Replied {
                    message_id: message,
                    text: self.body(live.text).await?,
                    thinking,
                    message: match cut {
                        Cut::Interrupted => Some(self.json(kept).await?),
                        Cut::Parked => None,
                    },
                    usage: agentd_protocol::turn::Usage::default(),
                    end: ReplyEnd::Cut,
                }
                .into()
            }
            _ => SampleFailed {
                message_id: message,
                error: match cut {
                    Cut::Interrupted => "interrupted".into(),
                    Cut::Parked => "the daemon is shutting down; asked again at the next start".into(),
                },
                then: AfterFailure::Again,
            }
            .into(),
        };
        self.commit(vec![record]).await
    }

    /// Ends the turn: every call has a result, no approval of it is left.
    pub(super) async fn finish_turn(&mut self, ending: Ending) -> Result<(), SessionError> {
        let Some(turn) = &self.state.turn else { return Ok(()) };
        let turn_id = turn.id;
        let usage = turn.usage;
        let denials = turn.denials.clone();
        let by_person = turn.stopping.is_some();
        let unfinished: Vec<_> = turn
            .calls()
            .iter()
            .filter(|call| call.state != CallState::Finished)
            .map(|call| call.id.clone())
            .collect();
        let why = match ending.outcome {
            Outcome::Refused => NotRun::Denied,
            _ => NotRun::Interrupted,
        };
        let mut records = Vec::new();
        for call in unfinished {
            records
                .push(self.result(&call, ToolStatus::NotRun, Some(why.code()), context::not_run(why)).await?);
        }
        records.extend(super::approval::cancel_all(&self.state, "the turn ended"));
        if by_person {
            records.push(self.guidance(context::turn_interrupted(Interruption::Person)).await?);
        }
        records.push(
            TurnFinished {
                turn_id,
                outcome: ending.outcome,
                usage,
                denials,
                error: ending.error,
                mode: self.state.mode,
                // An interrupt has held it already, and a prompt that came since has let it go.
                hold_inbox: false,
                last_prompt: self.state.last_prompt.clone(),
                held_prompts: Some(self.state.held_prompts()).filter(|held| *held > 0),
            }
            .into(),
        );
        self.commit(records).await?;
        self.prepared.clear();
        self.cleared.clear();
        self.keeping.ended_here = Some(turn_id);
        self.stopped_running();
        self.wake_waiters().await;
        // A daemon that is killed, not unloaded, is to start as fast.
        self.keep_checkpoint().await;
        Ok(())
    }
}

/// Why an answer is not even written down as calls, if so. A provider sends no such thing; something that poses as one might.
fn unusable(reply: &Reply) -> Option<String> {
    let calls = reply.calls.len();
    if calls > MAX_CALLS {
        return Some(format!("it makes {calls} calls at once, at most {MAX_CALLS} are taken"));
    }
    let longest = reply.calls.iter().flat_map(|call| [call.id.len(), call.name.len()]).max();
    (longest.unwrap_or(0) > MAX_CALL_NAME)
        .then(|| format!("the name or id of a call is longer than {MAX_CALL_NAME} bytes"))
}

fn backoff(attempt: u32) -> Duration {
    let base = FIRST_BACKOFF.saturating_mul(1 << attempt.saturating_sub(1).min(8)).min(MAX_BACKOFF);
    // Up to a quarter more, so that many sessions do not come back in the same instant.
    let jitter = u64::from(uuid::Uuid::new_v4().as_bytes()[0]);
    base + base.mul_f64(jitter as f64 / 1024.0)
}

/// A line for people before anything of the call is known to be right. `plan`: the session's own plan file, which has a
/// shorter name.
fn title_of(call: &ProposedCall, plan: Option<&Path>) -> String {
    let Arguments::Object(arguments) = &call.arguments else { return call.name.clone() };
    // Only what the line needs is read of arguments that may be large.
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Named {
        file_path: Option<String>,
        command: Option<String>,
        pattern: Option<String>,
        path: Option<String>,
    }
    let named: Named = serde_json::from_str(arguments.get()).unwrap_or_default();
    let detail = match &named.file_path {
        Some(path) if plan.is_some_and(|plan| plan == Path::new(path)) => "the plan".to_owned(),
        _ => {
            let detail = named.file_path.or(named.command).or(named.pattern).or(named.path);
            detail.unwrap_or_default().lines().next().unwrap_or_default().chars().take(160).collect()
        }
    };
    let verb = match call.name.as_str() {
        "read_file" => "read",
        "write_file" => "write",
        "edit_file" => "edit",
        "list_files" => "list",
        "grep_search" => "search",
        "run_shell" => "run",
        "ask_user_question" => "ask a question",
        "enter_plan_mode" => "enter plan mode",
        "exit_plan_mode" => "present the plan",
        other => other,
    };
    format!("{verb} {detail}").trim_end().to_owned()
}

pub(super) fn prompt_text(content: &[Content]) -> String {
    content
        .iter()
        .map(|part| match part {
            Content::Text { text } => text.clone(),
            Content::Image { .. } => "[image]".into(),
            Content::File { path } => format!("[file {path}]"),
            Content::Resource { uri, text } => resource_text(uri, text),
        })
        .collect::<Vec<_>>()
        .join(BETWEEN_PARTS)
}

fn resource_text(uri: &str, text: &str) -> String {
    format!("[{uri}]\n{text}")
}
