//! `agentctl approve` on a terminal: one approval is shown, and answered there.

use std::path::PathBuf;

use agentd_client::{Client, EventStream, StreamItem};
use agentd_protocol::approval::{ApprovalGetParams, RespondParams, WaitingApproval};
use agentd_protocol::event::{EventBody, Resolution, SubscribeParams};
use agentd_protocol::plan::PlanAuthor;
use agentd_protocol::session::{SessionParams, SetModeParams};
use agentd_protocol::{ErrorCode, Mode, method};
use tokio::time::{Instant, sleep_until};

use super::say_accepted;
use crate::cli::ask::{Action, Ask, Input};
use crate::cli::context::Context;
use crate::cli::editor;
use crate::cli::exit::{Exit, Failure};
use crate::cli::follow::{answered_elsewhere, settled};
use crate::cli::screen::{self, Screen};
use crate::cli::signals::{Caught, Signals};
use crate::cli::terminal::{Echo, Terminal, Typed};
use crate::cli::watch::{TYPE_AHEAD, changed_text, sent, settled_text};
use crate::render::approval::{next_command, short_id};
use crate::render::{Line, Style, line};

/// Shows everything and takes the answer from the terminal.
pub(super) async fn ask(
    context: &Context,
    client: &Client,
    waiting: WaitingApproval,
    edit: bool,
) -> Result<Exit, Failure> {
    let mut screen = Screen::open(false);
    let terminal = if screen.is_terminal() { Terminal::open() } else { None };
    let state =
        client.call::<method::SessionGet>(SessionParams { session_id: waiting.session_id }).await?.state;
    let ask = Ask::new(waiting.approval.clone(), waiting.handle.clone(), state.pre_mode);
    let Some(terminal) = terminal else {
        // It can still be read; it cannot be answered.
        screen::print(&ask.draw(screen::print_width().min(100), context.home()))?;
        return Err(Failure::usage("answering needs a terminal, or a choice").next(format!(
            "{} {}",
            context.program,
            next_command(&waiting.approval)
        )));
    };
    screen.line(&line::header(&state, context.home()))?;
    let news = client
        .subscribe(SubscribeParams {
            session_id: Some(waiting.session_id),
            types: Some(["approvalChanged", "approvalResolved", "planChanged"].map(str::to_owned).to_vec()),
            ..SubscribeParams::default()
        })
        .await?;
    let signals = Signals::catch()?;
    let mut session =
        Asking { context, client, waiting, ask, screen, terminal, signals, news, author: None, draft: None };
    session.run(edit).await
}

/// One approval at one terminal, without following its session.
struct Asking<'a> {
    context: &'a Context,
    client: &'a Client,
    waiting: WaitingApproval,
    ask: Ask,
    screen: Screen,
    terminal: Terminal,
    signals: Signals,
    /// What becomes of the approval elsewhere.
    news: EventStream,
    /// Who changed the plan last, while it was shown.
    author: Option<PlanAuthor>,
    /// The file with the person's own version of the plan, until that is accepted.
    draft: Option<PathBuf>,
}

impl Asking<'_> {
    async fn run(&mut self, edit: bool) -> Result<Exit, Failure> {
        let mut action = Action::Redraw;
        if edit {
            match self.ask.plan_text() {
                Some(text) => action = Action::Edit(text.to_owned()),
                None => return Err(Failure::usage("--edit goes with plans only")),
            }
        }
        loop {
            action = match action {
                Action::Say(lines) => {
                    self.screen.lines(&lines)?;
                    self.screen.prompt(&self.ask.prompt())?;
                    self.terminal.set_echo(Echo::On);
                    self.next().await?
                }
                Action::Redraw => {
                    self.draw().await?;
                    self.next().await?
                }
                Action::Edit(text) => self.edit(&text).await?,
                Action::Respond(params) => match self.send(*params).await? {
                    Some(exit) => return Ok(exit),
                    None => Action::Redraw,
                },
                Action::LeavePlan(mode) => return self.leave_plan(mode).await,
                Action::Detach => {
                    let next = format!("{} approve {}", self.context.program, short_id(self.ask.approval()));
                    self.screen.line(
                        &Line::styled(Style::Dim, "It still waits. Next: ").with(Style::Command, &next),
                    )?;
                    return Ok(Exit::Waiting);
                }
            };
        }
    }

    /// Draws the question; whatever is typed in the first moment is thrown away.
    async fn draw(&mut self) -> Result<(), Failure> {
        self.terminal.set_echo(Echo::Off);
        self.screen.lines(&self.ask.draw(self.screen.width(), self.context.home()))?;
        self.screen.prompt(&self.ask.prompt())?;
        sleep_until(Instant::now() + TYPE_AHEAD).await;
        self.terminal.discard_input();
        self.terminal.set_echo(Echo::On);
        Ok(())
    }

    async fn next(&mut self) -> Result<Action, Failure> {
        let mut listening = true;
        loop {
            let input = tokio::select! {
                news = self.news.next(), if listening => {
                    match news {
                        Ok(Some(StreamItem::Event(received))) => {
                            if let Some(action) = self.news(received.event.body)? {
                                return Ok(action);
                            }
                        }
                        Ok(Some(StreamItem::Reconnecting | StreamItem::Reconnected)) => {}
                        // The answer will tell what is wrong.
                        Ok(None) | Err(_) => listening = false,
                    }
                    continue;
                }
                typed = self.terminal.read() => match typed? {
                    Typed::Line(line) => Input::Line(line),
                    Typed::End => {
                        self.screen.end_prompt()?;
                        Input::End
                    }
                },
                signal = self.signals.next() => match signal {
                    Caught::Interrupt | Caught::Leave => {
                        self.screen.end_prompt()?;
                        return Ok(Action::Detach);
                    }
                    Caught::Continued => {
                        self.terminal.reapply();
                        return Ok(Action::Redraw);
                    }
                    Caught::Resized => {
                        self.screen.resized();
                        continue;
                    }
                },
            };
            return Ok(self.ask.take(input));
        }
    }

    /// What another client, or the plan's file, did to this approval.
    fn news(&mut self, body: EventBody) -> Result<Option<Action>, Failure> {
        let id = &self.ask.approval().approval_id;
        match body {
            EventBody::PlanChanged { by, .. } => self.author = Some(by),
            EventBody::ApprovalChanged(approval)
                if approval.approval_id == *id && approval != *self.ask.approval() =>
            {
                self.screen.end_prompt()?;
                self.screen.line(&Line::styled(Style::Warn, &changed_text(&approval, self.author.take())))?;
                self.ask.replace(approval);
                return Ok(Some(Action::Redraw));
            }
            EventBody::ApprovalResolved { approval_id, resolution, choice, by, feedback }
                if approval_id == *id =>
            {
                self.screen.end_prompt()?;
                let label = self.ask.approval().choices.iter().find(|offered| Some(offered.id) == choice);
                let label = label.map(|offered| offered.label.as_str());
                let line = match resolution {
                    Resolution::Answered => answered_elsewhere(choice, label, &by, feedback.as_deref()),
                    _ => settled(resolution, choice, label, &by, feedback.as_deref()),
                };
                return Err(Failure::failed(line.text()));
            }
            _ => {}
        }
        Ok(None)
    }

    async fn edit(&mut self, text: &str) -> Result<Action, Failure> {
        self.terminal.lend();
        let edited = editor::edit(text).await;
        self.terminal.reapply();
        self.signals.forget_interrupts();
        let (file, text) = edited?;
        let action = self.ask.take(Input::Edited(text));
        if self.ask.is_edited() {
            // Kept until it is accepted: a crash between must not cost the person's work.
            let path = file.into_temp_path().keep();
            let path = path
                .map_err(|error| Failure::failed(format!("cannot keep the edited plan: {}", error.error)))?;
            self.screen
                .line(&Line::styled(Style::Dim, &format!("Your version lies in {} too.", path.display())))?;
            self.forget_draft();
            self.draft = Some(path);
        }
        Ok(action)
    }

    /// Removes the file of an edited plan that is not needed any more.
    fn forget_draft(&mut self) {
        if let Some(path) = self.draft.take() {
            // It may have been moved away by the person whose it is.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Sends the answer; `None` if something else is asked by now.
    async fn send(&mut self, params: RespondParams) -> Result<Option<Exit>, Failure> {
        let (approval_id, choice) = (params.approval_id.clone(), params.choice);
        let told = sent(&params);
        match self.client.call::<method::ApprovalRespond>(params).await {
            Ok(result) => {
                self.forget_draft();
                say_accepted(self.context, &self.waiting, choice, told, &result).map(Some)
            }
            Err(error) if error.code() == Some(ErrorCode::ApprovalSettled) => {
                Err(Failure::failed(settled_text(&error, Some(self.ask.approval()))))
            }
            Err(error) if error.code() == Some(ErrorCode::Stale) => {
                self.screen.line(&Line::styled(
                    Style::Warn,
                    "It changed in the meantime. This is how it stands now:",
                ))?;
                let current =
                    self.client.call::<method::ApprovalGet>(ApprovalGetParams { approval_id }).await?;
                self.ask.replace(current.approval);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn leave_plan(&mut self, mode: Mode) -> Result<Exit, Failure> {
        let params = SetModeParams { session_id: self.waiting.session_id, mode };
        let result = self.client.call::<method::SessionSetMode>(params).await?;
        let text = format!("Plan mode is left, nothing was carried out · mode {}", result.mode);
        self.screen.line(&Line::styled(Style::Good, "→ ").plain(&text))?;
        Ok(Exit::Finished)
    }
}
