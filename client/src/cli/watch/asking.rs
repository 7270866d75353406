//! Putting approvals before a person, one at a time, and sending the answers.

use std::time::Duration;

use agentd_client::CallError;
use agentd_protocol::approval::{Approval, ApprovalGetParams, By, ChoiceId, RespondParams, Subject};
use agentd_protocol::plan::PlanAuthor;
use agentd_protocol::session::SetModeParams;
use agentd_protocol::{ApprovalId, ErrorCode, Mode, method};
use tempfile::NamedTempFile;
use tokio::time::Instant;

use super::{Answerer, End, Until, Watch};
use crate::cli::ask::{Action, Ask, Input};
use crate::cli::editor;
use crate::cli::exit::{Exit, Failure};
use crate::cli::follow::elsewhere;
use crate::cli::screen::Screen;
use crate::cli::terminal::Echo;
use crate::render::{Line, Style};

/// Whatever was typed this soon after an approval was drawn was not typed as an answer to it.
pub(crate) const TYPE_AHEAD: Duration = Duration::from_millis(400);

/// An approval on the screen.
pub(super) struct Shown {
    pub(super) ask: Ask,
    /// Until then, what is typed is thrown away; `None` once it counts.
    pub(super) deaf_until: Option<Instant>,
    /// Whether the cursor stands behind the prompt.
    pub(super) prompted: bool,
    /// The copy of the plan that the person edited, until it is sent.
    draft: Option<NamedTempFile>,
}

impl Watch {
    /// Puts the oldest approval before whoever answers, if none is.
    pub(super) async fn ask_next(&mut self) -> Result<Option<End>, Failure> {
        while self.shown.is_none() {
            let Some(approval) = self.queue.pop_front() else { return Ok(None) };
            if let Answerer::Auto(auto) = &mut self.answerer {
                let (line, answer) = auto.answer(&approval);
                let ask = Ask::new(approval, self.target.handle.clone(), self.follow.pre_mode());
                self.screen.lines(&ask.draw(self.screen.width().min(100), self.context.home()))?;
                self.screen.line(&line)?;
                match self.client.call::<method::ApprovalRespond>(answer).await {
                    Ok(_) => {}
                    // Somebody at another terminal was faster; the event says who.
                    Err(error) if error.code() == Some(ErrorCode::ApprovalSettled) => {}
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            if let Answerer::Nobody = self.answerer {
                return Ok(Some(End::Left(Exit::Waiting)));
            }
            let ask = Ask::new(approval, self.target.handle.clone(), self.follow.pre_mode());
            self.shown = Some(Shown { ask, deaf_until: None, prompted: false, draft: None });
            self.draw()?;
        }
        Ok(None)
    }

    /// Everything that waits, for somebody who cannot answer here.
    pub(super) fn draw_waiting(&mut self) -> Result<(), Failure> {
        for approval in self.follow.waiting() {
            let ask = Ask::new(approval.clone(), self.target.handle.clone(), self.follow.pre_mode());
            self.screen.lines(&ask.draw(self.screen.width().min(100), self.context.home()))?;
        }
        Ok(())
    }

    /// Draws the question and stays deaf for a moment.
    pub(super) fn draw(&mut self) -> Result<(), Failure> {
        let (Some(shown), Answerer::Person(terminal)) = (&mut self.shown, &mut self.answerer) else {
            return Ok(());
        };
        terminal.set_echo(Echo::Off);
        self.screen.text_end()?;
        self.screen.lines(&shown.ask.draw(self.screen.width(), self.context.home()))?;
        self.screen.prompt(&shown.ask.prompt())?;
        shown.prompted = true;
        terminal.discard_input();
        shown.deaf_until = Some(Instant::now() + TYPE_AHEAD);
        Ok(())
    }

    pub(super) fn listen(&mut self) -> Result<(), Failure> {
        if let (Some(shown), Answerer::Person(terminal)) = (&mut self.shown, &mut self.answerer) {
            terminal.discard_input();
            terminal.set_echo(Echo::On);
            shown.deaf_until = None;
        }
        Ok(())
    }

    /// Nothing is asked any more.
    pub(super) fn hide(&mut self) -> Option<Shown> {
        if let Answerer::Person(terminal) = &mut self.answerer {
            match self.target.until {
                Until::Left => terminal.take_keys(),
                Until::Turn(_) | Until::Idle => terminal.set_echo(Echo::Off),
            }
        }
        self.shown.take()
    }

    pub(super) fn is_shown(&self, id: &ApprovalId) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.ask.approval().approval_id == *id)
    }

    pub(super) fn settled(&mut self, id: &ApprovalId, line: Option<Line>) -> Result<(), Failure> {
        self.queue.retain(|approval| approval.approval_id != *id);
        let was_shown = self.is_shown(id);
        if was_shown {
            self.interrupt_prompt()?;
            keep_draft(self.hide(), &mut self.screen)?;
        }
        match line.filter(|_| !self.told.contains(id)) {
            Some(line) if was_shown => Ok(self.screen.line(&line)?),
            Some(line) => self.say(line),
            None => Ok(()),
        }
    }

    pub(super) fn changed(&mut self, approval: Approval) -> Result<(), Failure> {
        if self.is_shown(&approval.approval_id) {
            self.interrupt_prompt()?;
            // An answer that came too late was told about it, and drew it, before the event came.
            if self.shown.as_ref().is_some_and(|shown| *shown.ask.approval() == approval) {
                return self.prompt_again();
            }
            return self.replace(approval);
        }
        match self.queue.iter_mut().find(|queued| queued.approval_id == approval.approval_id) {
            Some(queued) => *queued = approval,
            None => self.queue.push_back(approval),
        }
        Ok(())
    }

    pub(super) fn replace(&mut self, approval: Approval) -> Result<(), Failure> {
        let what = changed_text(&approval, self.follow.take_author());
        self.screen.line(&Line::styled(Style::Warn, &what))?;
        if let Some(shown) = &mut self.shown {
            if shown.ask.replace(approval).is_some()
                && let Some(draft) = shown.draft.take()
            {
                keep(draft, &mut self.screen)?;
            }
            return self.draw();
        }
        Ok(())
    }

    pub(super) async fn input(&mut self, input: Input) -> Result<Option<End>, Failure> {
        let Some(shown) = &mut self.shown else { return Ok(None) };
        // Enter was echoed; Ctrl-D shows nothing.
        shown.prompted = false;
        if input == Input::End {
            self.screen.end_prompt()?;
        }
        let mut action = shown.ask.take(input);
        if let Action::Edit(text) = action {
            action = self.edit(&text).await?;
        }
        match action {
            Action::Say(lines) => {
                self.screen.lines(&lines)?;
                self.prompt_again()?;
            }
            Action::Redraw => self.draw()?,
            Action::Edit(_) => {}
            Action::Respond(params) => self.respond(*params).await?,
            Action::LeavePlan(mode) => self.leave_plan(mode).await?,
            Action::Detach => return Ok(Some(End::Left(self.follow.detached()))),
        }
        self.ask_next().await
    }

    pub(super) async fn edit(&mut self, text: &str) -> Result<Action, Failure> {
        if let Answerer::Person(terminal) = &mut self.answerer {
            terminal.lend();
        }
        let edited = editor::edit(text).await;
        if let Answerer::Person(terminal) = &mut self.answerer {
            terminal.reapply();
        }
        self.signals.forget_interrupts();
        let Some(shown) = &mut self.shown else { return Ok(Action::Redraw) };
        match edited {
            Ok((file, text)) => {
                shown.draft = Some(file);
                Ok(shown.ask.take(Input::Edited(text)))
            }
            Err(failure) => Ok(Action::Say(vec![Line::styled(Style::Bad, &failure.message)])),
        }
    }

    pub(super) async fn respond(&mut self, params: RespondParams) -> Result<(), Failure> {
        let id = params.approval_id.clone();
        let choice = params.choice;
        let told = sent(&params);
        match self.client.call::<method::ApprovalRespond>(params).await {
            Ok(result) => {
                let shown = self.hide();
                let label = shown.as_ref().and_then(|shown| {
                    let choices = &shown.ask.approval().choices;
                    choices.iter().find(|offered| offered.id == choice).map(|offered| offered.label.clone())
                });
                let said = told.as_deref().or(label.as_deref()).unwrap_or(choice.name());
                let text = format!("{said} · mode {}", result.mode_now);
                Ok(self.screen.line(&Line::styled(Style::Good, "→ ").plain(&text))?)
            }
            Err(error) => match error.code() {
                Some(ErrorCode::ApprovalSettled) => self.too_late(id, &error),
                Some(ErrorCode::Stale) => self.stale(id).await,
                _ => {
                    let failure = Failure::from(error);
                    self.screen.line(&Line::styled(Style::Bad, &format!("Not sent: {}", failure.message)))?;
                    self.draw()
                }
            },
        }
    }

    /// What was answered is not what is asked now.
    pub(super) async fn stale(&mut self, id: ApprovalId) -> Result<(), Failure> {
        match self.client.call::<method::ApprovalGet>(ApprovalGetParams { approval_id: id.clone() }).await {
            Ok(current) => self.replace(current.approval),
            Err(error) if matches!(error.code(), Some(ErrorCode::ApprovalSettled | ErrorCode::NotFound)) => {
                self.too_late(id, &error)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Somebody else answered first: who, and what.
    fn too_late(&mut self, id: ApprovalId, error: &CallError) -> Result<(), Failure> {
        let shown = self.hide();
        let text = settled_text(error, shown.as_ref().map(|shown| shown.ask.approval()));
        keep_draft(shown, &mut self.screen)?;
        self.told.insert(id);
        Ok(self.screen.line(&Line::styled(Style::Warn, &text))?)
    }

    pub(super) async fn leave_plan(&mut self, mode: Mode) -> Result<(), Failure> {
        let params = SetModeParams { session_id: self.target.session, mode };
        match self.client.call::<method::SessionSetMode>(params).await {
            Ok(result) => {
                if let Some(shown) = self.hide() {
                    self.told.insert(shown.ask.approval().approval_id.clone());
                }
                let text = format!("Plan mode is left, nothing was carried out · mode {}", result.mode);
                Ok(self.screen.line(&Line::styled(Style::Good, "→ ").plain(&text))?)
            }
            Err(error) => {
                let failure = Failure::from(error);
                self.screen.line(&Line::styled(Style::Bad, &failure.message))?;
                self.draw()
            }
        }
    }
}

/// What an answer says, where its label offers more than one thing.
pub(crate) fn sent(params: &RespondParams) -> Option<String> {
    match (params.choice, params.feedback.as_deref()) {
        (ChoiceId::Deny, Some(words)) => Some(format!("Denied: {words}")),
        (ChoiceId::Deny, None) => Some("Denied; the turn ends".to_owned()),
        (ChoiceId::Answer, _) => Some(format!("Answered: {}", params.answers.join(" · "))),
        (ChoiceId::Decline, _) => Some("Not answered".to_owned()),
        _ => None,
    }
}

/// Work is never thrown away: an edited plan that was not sent stays as a file, and its name is said.
pub(super) fn keep_draft(shown: Option<Shown>, screen: &mut Screen) -> Result<(), Failure> {
    match shown {
        Some(Shown { ask, draft: Some(draft), .. }) if ask.is_edited() => keep(draft, screen),
        _ => Ok(()),
    }
}

fn keep(draft: NamedTempFile, screen: &mut Screen) -> Result<(), Failure> {
    let (_, path) = draft
        .keep()
        .map_err(|error| Failure::failed(format!("cannot keep the edited plan: {}", error.error)))?;
    Ok(screen.line(&Line::from(format!("Your version was not sent; it is kept in {}", path.display())))?)
}

/// Says before an approval is drawn anew what happened to it.
pub(crate) fn changed_text(approval: &Approval, author: Option<PlanAuthor>) -> String {
    let what = match (&approval.subject, author) {
        (Subject::Plan { .. }, Some(PlanAuthor::Client)) => "Another client edited the plan.",
        (Subject::Plan { .. }, Some(PlanAuthor::Outside)) => {
            "The plan's file was changed from outside the session."
        }
        (Subject::Plan { .. }, _) => "The plan changed in the meantime.",
        (Subject::Trust { .. }, _) => "The project's settings changed in the meantime.",
        _ => "The request changed in the meantime.",
    };
    format!("{what} This is how it stands now:")
}

/// Who answered instead, from the error that says so.
pub(crate) fn settled_text(error: &CallError, approval: Option<&Approval>) -> String {
    let by = error.data("by").and_then(|by| serde_json::from_value::<By>(by.clone()).ok());
    let choice = error.data("choice").and_then(|choice| choice.as_str());
    let label = |name| {
        let mut offered = approval.iter().flat_map(|approval| &approval.choices);
        offered.find(|offered| offered.id.name() == name).map_or(name, |offered| offered.label.as_str())
    };
    match (by, choice) {
        (Some(by), Some(choice)) => format!("Already answered {}: {}", elsewhere(&by), label(choice)),
        (Some(by), None) => format!("Already settled {}", elsewhere(&by)),
        (None, _) => format!("Already settled: {error}"),
    }
}
