//! The one durable queue of a session: prompts come in, are taken back, are held by an interrupt.

use agentd_protocol::session::{At, Content, InterruptResult, PromptParams, PromptResult};
use agentd_protocol::{Mode, TurnId};

use super::actor::Session;
use super::command::Caller;
use super::commit::COMMIT_ROOM;
use super::error::SessionError;
use super::flight::Flight;
use super::record::{
    AtRest, CommandRun, InboxAdded, InboxWithdrawn, Part, Record, SessionArchived, TitleChanged, TurnStopping,
};
use super::state::Fate;
use crate::ids::{Digest, digest_of};

/// Entries that may wait; beyond it a prompt is refused and nothing is lost.
const MAX_WAITING: usize = 256;
/// Parts of one prompt.
const MAX_PARTS: usize = 100;
/// Bytes of a part's path or address; the kernel takes no longer path.
const MAX_NAME: usize = 4096;
/// Bytes of a file that a prompt may name.
const MAX_FILE: u64 = 1024 * 1024;

/// A prompt that is a control command.
enum Slash {
    /// `/plan` enters, or leaves if already there.
    Toggle,
    /// `/plan text` enters and prompts.
    PlanAnd(String),
}

impl Session {
    pub(super) async fn prompt(
        &mut self,
        mut params: PromptParams,
        caller: &Caller,
    ) -> Result<PromptResult, SessionError> {
        let weight = params.content.iter().map(content_weight).sum();
        let (params_back, digest) = super::offload(weight, move || {
            let digest = params_digest(&params);
            (params, digest)
        })
        .await;
        params = params_back;
        let prompt_id = params.prompt_id.unwrap_or_else(TurnId::generate);
        if let Some(known) = self.state.prompts.get(&prompt_id) {
            if known.params != digest {
                return Err(SessionError::Conflict("this promptId was used with other parameters".into()));
            }
            let joins = match &known.fate {
                Fate::Taken { turn } => Some(*turn),
                Fate::Waiting => self.state.steered_by(prompt_id),
                _ => None,
            };
            let queued = known.fate == Fate::Waiting && joins.is_none();
            return Ok(PromptResult { turn_id: joins.unwrap_or(prompt_id), queued, waiting_for: None });
        }
        check_content(&params.content)?;
        if let Some(approval) = params.answers.take() {
            // It counts as a person's words, and a file has none.
            if !params.content.iter().all(|part| matches!(part, Content::Text { .. })) {
                let text = "an answer is text; send files in a prompt of their own";
                return Err(SessionError::invalid("content", text));
            }
            let turn_id = self.state.turn.as_ref().map(|turn| turn.id);
            let by = caller.by.clone();
            let said = CommandRun { prompt_id, name: "answer".into(), params: digest, by, turn_id };
            self.answer_by_text(&approval, super::turn::prompt_text(&params.content), said, caller).await?;
            return Ok(PromptResult {
                turn_id: turn_id.unwrap_or(prompt_id),
                queued: false,
                waiting_for: None,
            });
        }
        let slash = slash(&params.content);
        if slash.is_some() || params.mode.is_some() {
            // Which modes there are, the settings of now say.
            self.look_at_settings().await;
        }
        match slash {
            Some(Slash::Toggle) => return self.toggle_plan(prompt_id, digest, caller).await,
            Some(Slash::PlanAnd(text)) => {
                params.content = vec![Content::Text { text }];
                params.mode = Some(Mode::Plan);
            }
            None => {}
        }
        if self.state.inbox.len() >= MAX_WAITING {
            return Err(SessionError::Overloaded);
        }
        let naming = params.mode.map(|_| super::turn::prompt_text(&params.content));
        let content = self.parts(params.content).await?;

        // A person's prompt lets a held inbox go, oldest entry first; anyone else's waits behind it.
        let held = self.state.inbox_held && caller.origin() != agentd_protocol::session::Origin::Client;
        let busy = self.state.turn.is_some() || !self.state.inbox.is_empty() || held;
        let steers =
            params.at == At::Step && self.state.may_steer(caller.origin()) && !self.state.is_stopping();
        let entry = InboxAdded {
            prompt_id,
            origin: caller.origin(),
            at_point: params.at,
            content,
            by: caller.by.clone(),
            params: digest,
            queued: busy && !steers,
            queued_at: self.deps.clock.now(),
        };
        self.mark().await?;
        // The entry comes first, so that a plan is named by its words; the mode is set before any turn can start.
        let mode = params.mode.filter(|mode| *mode != self.state.mode);
        let mut records = vec![Record::from(entry)];
        if self.state.archived {
            records.insert(0, SessionArchived { archived: false, by: caller.by.clone() }.into());
        }
        if let Some(mode) = mode {
            self.naming = naming;
            let changed = self.mode_records(mode, caller).await;
            self.naming = None;
            let mut changed = changed?;
            changed.append(&mut records);
            records = changed;
        }
        self.commit(records).await?;
        if mode.is_some() {
            self.after_mode_change().await;
        }
        let waiting = self.state.approvals.first().map(|pending| pending.approval.approval_id.clone());
        let only_waits = super::step::only_waits(&self.state);
        Ok(PromptResult {
            turn_id: match (&self.state.turn, steers) {
                (Some(turn), true) => turn.id,
                _ => prompt_id,
            },
            queued: busy && !steers,
            waiting_for: waiting.filter(|_| only_waits),
        })
    }

    async fn toggle_plan(
        &mut self,
        prompt_id: TurnId,
        params: Digest,
        caller: &Caller,
    ) -> Result<PromptResult, SessionError> {
        let mode = match (self.state.mode, &self.state.plan) {
            (Mode::Plan, Some(plan)) => self.still_available(plan.pre_mode),
            (Mode::Plan, None) => Mode::Default,
            _ => Mode::Plan,
        };
        let mut records = self.mode_records(mode, caller).await?;
        let by = caller.by.clone();
        records.push(CommandRun { prompt_id, name: "plan".into(), params, by, turn_id: None }.into());
        self.commit(records).await?;
        self.after_mode_change().await;
        Ok(PromptResult { turn_id: prompt_id, queued: false, waiting_for: None })
    }

    /// A prompt as it is journaled. Files named by it are read at this moment, so that a replay never reads other content.
    async fn parts(&self, content: Vec<Content>) -> Result<Vec<Part>, SessionError> {
        let mut room = COMMIT_ROOM;
        let mut parts = Vec::with_capacity(content.len());
        for part in content {
            parts.push(match part {
                Content::Text { text } => Part::Text { text: self.body_within(&mut room, text).await? },
                Content::Resource { uri, text } => {
                    Part::Resource { uri, text: self.body_within(&mut room, text).await? }
                }
                Content::Image { .. } => return Err(SessionError::Unsupported { field: "content.image" }),
                Content::File { path } => {
                    let cwd = self.state.created.cwd.clone();
                    let home = self.deps.home.clone();
                    let own = self.deps.own.clone();
                    let typed = path.clone();
                    let text = super::blocking(move || {
                        let found = crate::workspace::locate(
                            crate::workspace::Base { cwd: &cwd, home: Some(&home) },
                            &typed,
                        )
                        .map_err(|error| error.to_string())?;
                        if own.iter().any(|own| found.real.starts_with(own)) {
                            return Err("agentd's own folders are not read".to_owned());
                        }
                        let file = found.read(MAX_FILE).map_err(|error| error.to_string())?;
                        String::from_utf8(file.bytes).map_err(|_| "the file is not UTF-8 text".to_owned())
                    })
                    .await
                    .map_err(|why| SessionError::invalid("content", format!("{path}: {why}")))?;
                    Part::Resource { uri: path, text: self.body_within(&mut room, text).await? }
                }
            });
        }
        Ok(parts)
    }

    pub(super) async fn interrupt(
        &mut self,
        wanted: Option<TurnId>,
        caller: &Caller,
    ) -> Result<InterruptResult, SessionError> {
        let running = self.state.turn.as_ref().map(|turn| (turn.id, turn.stopping.is_some()));
        match (running, wanted) {
            (None, None) => return Ok(InterruptResult { turn_id: None }),
            (None, Some(_)) => return Err(SessionError::Conflict("no turn is running".into())),
            (Some((id, _)), Some(wanted)) if id != wanted => {
                return Err(SessionError::Conflict(format!("turn {id} is running, not {wanted}")));
            }
            (Some((id, true)), _) => return Ok(InterruptResult { turn_id: Some(id) }),
            (Some(_), _) => {}
        }
        let Some((turn_id, _)) = running else { return Ok(InterruptResult { turn_id: None }) };
        let stopping = TurnStopping { turn_id, by: caller.by.clone() };
        self.commit(vec![stopping.into()]).await?;
        self.wake_timer();
        self.record_or_drop_landed().await;
        match self.flight.get() {
            Some(Flight::Sample { .. }) => {
                self.flight.clear();
                self.cut_sample(super::turn::Cut::Interrupted).await?;
            }
            Some(Flight::Prepare { .. } | Flight::Classify { .. } | Flight::Keep { .. }) => {
                self.flight.clear()
            }
            Some(Flight::Run { .. }) => self.stop_running(),
            None => {}
        }
        Ok(InterruptResult { turn_id: Some(turn_id) })
    }

    pub(super) async fn withdraw(&mut self, prompt: TurnId) -> Result<(), SessionError> {
        if !self.state.inbox.iter().any(|entry| entry.prompt_id == prompt) {
            return Err(SessionError::NotFound("waiting prompt"));
        }
        let rest = AtRest {
            mode: self.state.mode,
            last_outcome: self.state.last_outcome,
            last_prompt: self.state.prompt_without(Some(prompt)),
            held_prompts: self.state.held_prompts().saturating_sub(1),
        };
        self.commit(vec![InboxWithdrawn { prompt_id: prompt, rest: Some(rest) }.into()]).await?;
        self.wake_waiters().await;
        Ok(())
    }

    pub(super) async fn set_title(&mut self, title: String) -> Result<(), SessionError> {
        let title = title.trim().to_owned();
        if title.is_empty() || title.chars().count() > 200 {
            return Err(SessionError::invalid("title", "a title has 1 to 200 characters"));
        }
        self.commit(vec![TitleChanged { title }.into()]).await
    }
}

fn content_weight(part: &Content) -> usize {
    match part {
        Content::Text { text } | Content::Resource { text, .. } => text.len(),
        Content::Image { data, .. } => data.len(),
        Content::File { path } => path.len(),
    }
}

fn check_content(content: &[Content]) -> Result<(), SessionError> {
    if content.is_empty() {
        return Err(SessionError::invalid("content", "a prompt needs at least one part"));
    }
    if content.len() > MAX_PARTS {
        let has = content.len();
        return Err(SessionError::invalid(
            "content",
            format!("at most {MAX_PARTS} parts are taken, not {has}"),
        ));
    }
    let names = content.iter().map(|part| match part {
        Content::Resource { uri, .. } => uri.len(),
        Content::File { path } => path.len(),
        Content::Text { .. } | Content::Image { .. } => 0,
    });
    if names.max().unwrap_or(0) > MAX_NAME {
        let text = format!("a path or address has at most {MAX_NAME} bytes");
        return Err(SessionError::invalid("content", text));
    }
    if content.iter().any(|part| matches!(part, Content::Image { .. })) {
        return Err(SessionError::Unsupported { field: "content.image" });
    }
    let blank = content.iter().all(|part| matches!(part, Content::Text { text } if text.trim().is_empty()));
    if blank {
        return Err(SessionError::invalid("content", "the prompt is empty"));
    }
    Ok(())
}

/// Only known names are commands; any other text with a slash in front is a prompt.
fn slash(content: &[Content]) -> Option<Slash> {
    let [Content::Text { text }] = content else { return None };
    let rest = text.trim().strip_prefix("/plan")?;
    if rest.is_empty() {
        return Some(Slash::Toggle);
    }
    rest.starts_with(char::is_whitespace).then(|| Slash::PlanAnd(rest.trim().to_owned()))
}

/// The parameters without the id: the same id with the same parameters is the same prompt.
fn params_digest(params: &PromptParams) -> Digest {
    let PromptParams { session_id: _, prompt_id: _, content, at, mode, answers } = params;
    digest_of(&serde_json::to_vec(&(content, at, mode, answers)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Vec<Content> {
        vec![Content::Text { text: text.into() }]
    }

    #[test]
    fn only_known_names_are_commands() {
        assert!(matches!(slash(&text("/plan")), Some(Slash::Toggle)));
        assert!(matches!(slash(&text("  /plan  ")), Some(Slash::Toggle)));
        assert!(
            matches!(slash(&text("/plan add paging")), Some(Slash::PlanAnd(rest)) if rest == "add paging")
        );
        for other in ["/planet", "/etc/hosts is broken", "/unknown x", "plan", "/Plan"] {
            assert!(slash(&text(other)).is_none(), "{other:?} was taken for a command");
        }
    }

    #[test]
    fn an_empty_prompt_is_refused() {
        assert!(check_content(&[]).is_err());
        assert!(check_content(&text(" \n")).is_err());
        assert!(check_content(&text("x")).is_ok());
    }
}
