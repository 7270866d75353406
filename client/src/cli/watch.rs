//! Following a session: events in, lines out, until it ends or is left. The rules are in [`Follow`]; here they meet the
//! connection, the terminal and the signals. `asking` puts approvals before a person, `recall` shows what was before, `changed` asks what a
//! turn changed.

mod asking;
mod changed;
mod recall;
mod silence;

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use agentd_client::{CallError, Client, EventStream, StreamItem};
use agentd_protocol::approval::Approval;
use agentd_protocol::event::{EventBody, SubscribeParams, Text};
use agentd_protocol::session::{Activity, InterruptParams, SessionParams};
use agentd_protocol::turn::Outcome;
use agentd_protocol::{ApprovalId, ErrorCode, Seq, SessionId, TurnId, method};
use tokio::time::{Instant, sleep_until};

use super::ask::Input;
use super::auto::Auto;
use super::blob;
use super::closing::{self, Leaving, Names};
use super::context::Context;
use super::exit::{Exit, Failure};
use super::follow::{Finished, Follow, Goal, OnInterrupt, Output};
use super::screen::Screen;
use super::signals::{Caught, Signals};
use super::terminal::{Terminal, Typed};
use crate::render::{Line, Style, approval};

use asking::{Shown, keep_draft};
pub(crate) use asking::{TYPE_AHEAD, changed_text, sent, settled_text};
use silence::Busy;

/// How long a turn that `--timeout` stops may take to end.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Who answers approvals.
pub(crate) enum Answerer {
    Person(Terminal),
    /// The demo answers itself, aloud.
    Auto(Auto),
    /// They stay waiting.
    Nobody,
}

/// When following ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// This turn has ended.
    Turn(TurnId),
    /// Nothing runs.
    Idle,
    /// The person leaves.
    Left,
}

/// What is followed, and how.
pub(crate) struct Target {
    pub(crate) session: SessionId,
    pub(crate) handle: String,
    pub(crate) cwd: String,
    pub(crate) goal: Goal,
    pub(crate) until: Until,
    pub(crate) after: Seq,
    pub(crate) timeout: Option<Duration>,
    /// Whether the session is still there when its turn has ended.
    pub(crate) stays: bool,
    /// Whether a playback speaks for the model.
    pub(crate) is_demo: bool,
}

/// How following ended.
pub(crate) enum End {
    Turn(Box<Finished>),
    Left(Exit),
    /// Everything about its end was said.
    Told(Exit),
    Gone,
    /// Nobody reads the output any more.
    ReaderGone,
}

enum Wake {
    Item(Result<Option<StreamItem>, CallError>),
    Typed(std::io::Result<Typed>),
    /// The key that leaves, or the end of the terminal.
    LeaveKey,
    Signal(Caught),
    Listening,
    Deadline,
    /// Time to say how long the calls have run.
    Tick,
}

pub(crate) struct Watch {
    client: Client,
    context: Context,
    target: Target,
    stream: EventStream,
    follow: Follow,
    screen: Screen,
    answerer: Answerer,
    signals: Signals,
    queue: VecDeque<Approval>,
    shown: Option<Shown>,
    /// Approvals whose end was already told.
    told: HashSet<ApprovalId>,
    last: Option<Box<Finished>>,
    past: recall::Past,
    deadline: Option<Instant>,
    timed_out: bool,
    busy: Option<Busy>,
    /// Outputs so far.
    heard: u64,
    /// Whether it was said once that nothing runs.
    said_idle: bool,
}

impl Watch {
    /// Subscribes. Nothing is missed if the prompt is sent after this.
    pub(crate) async fn begin(
        client: &Client,
        context: &Context,
        target: Target,
        screen: Screen,
        answerer: Answerer,
    ) -> Result<Self, Failure> {
        let params = SubscribeParams {
            session_id: Some(target.session),
            after_seq: Some(target.after),
            deltas: screen.is_terminal() || screen.is_json(),
            ..SubscribeParams::default()
        };
        let stream = context.again(|| client.subscribe(params.clone())).await?;
        let mut answerer = answerer;
        if let (Until::Left, Answerer::Person(terminal)) = (target.until, &mut answerer) {
            terminal.take_keys();
        }
        Ok(Self {
            client: client.clone(),
            context: context.clone(),
            follow: Follow::new(target.goal, std::process::id(), target.cwd.clone(), context.home.clone()),
            deadline: target.timeout.map(|timeout| Instant::now() + timeout),
            target,
            stream,
            screen,
            answerer,
            signals: Signals::catch()?,
            queue: VecDeque::new(),
            shown: None,
            told: HashSet::new(),
            last: None,
            past: recall::Past::default(),
            timed_out: false,
            busy: None,
            heard: 0,
            said_idle: false,
        })
    }

    /// Follows to the end and says how it ended.
    pub(crate) async fn run(mut self) -> Result<Exit, Failure> {
        let end = loop {
            let wake = self.next().await;
            match self.handle(wake).await {
                Ok(Some(end)) => break end,
                Ok(None) => self.notice_silence(),
                Err(failure) if failure.reader_gone => break End::ReaderGone,
                Err(failure) => return Err(failure),
            }
        };
        match end {
            End::ReaderGone => self.reader_gone().await,
            end => {
                let held = match &end {
                    End::Turn(finished) => self.held(finished).await,
                    _ => None,
                };
                self.close(end, held)
            }
        }
    }

    /// Whoever read the output has what they wanted; the turn may go on without them.
    async fn reader_gone(mut self) -> Result<Exit, Failure> {
        let params = SessionParams { session_id: self.target.session };
        let state = self.client.call::<method::SessionGet>(params).await?.state;
        let goes_on = match self.target.until {
            Until::Turn(own) => {
                state.turn_id == Some(own) || state.inbox.iter().any(|item| item.prompt_id == own)
            }
            Until::Idle | Until::Left => state.activity != Activity::Idle,
        };
        if !goes_on {
            return Ok(state.last_outcome.map_or(Exit::Finished, Exit::of_outcome));
        }
        let exit = match self.target.goal {
            Goal::Turn(_) if state.activity == Activity::Waiting => Exit::Waiting,
            Goal::Turn(_) => Exit::LeftRunning,
            Goal::Session | Goal::WholeSession => Exit::Finished,
        };
        let lines = closing::reader_gone(&state.approvals, self.names());
        // On stderr, which may be the same closed pipe.
        let _ = self.screen.lines(&lines);
        Ok(exit)
    }

    async fn next(&mut self) -> Wake {
        let deaf_until = self.shown.as_ref().and_then(|shown| shown.deaf_until);
        let listening = self.shown.is_some() && deaf_until.is_none();
        let takes_keys = self.shown.is_none() && self.target.until == Until::Left;
        let typed = async {
            match &mut self.answerer {
                Answerer::Person(terminal) if listening => Wake::Typed(terminal.read().await),
                Answerer::Person(terminal) if takes_keys => {
                    // A terminal that is gone is left as well.
                    let _ = terminal.leave_key().await;
                    Wake::LeaveKey
                }
                _ => std::future::pending().await,
            }
        };
        // In this order: Ctrl-C and an answer go before the flood of a fast stream.
        tokio::select! {
            biased;
            signal = self.signals.next() => Wake::Signal(signal),
            () = at(deaf_until) => Wake::Listening,
            typed = typed => typed,
            () = at(self.deadline) => Wake::Deadline,
            () = at(self.busy.map(Busy::next_tick)) => Wake::Tick,
            item = self.stream.next() => Wake::Item(item),
        }
    }

    async fn handle(&mut self, wake: Wake) -> Result<Option<End>, Failure> {
        match wake {
            Wake::Item(Ok(item)) => self.item(item).await,
            Wake::Item(Err(error)) => {
                let next = format!("{} attach {}", self.context.program, self.target.handle);
                Err(Failure::from(error).next(next))
            }
            Wake::Signal(signal) => self.signal(signal).await,
            Wake::Listening => {
                self.listen()?;
                Ok(None)
            }
            Wake::Typed(Ok(Typed::Line(line))) => self.input(Input::Line(line)).await,
            Wake::Typed(Ok(Typed::End)) => self.input(Input::End).await,
            // The terminal is gone; the session is not.
            Wake::Typed(Err(_)) => Ok(Some(End::Left(self.follow.detached()))),
            Wake::LeaveKey => Ok(Some(End::Left(self.follow.detached()))),
            Wake::Deadline => self.deadline_passed().await,
            Wake::Tick => {
                self.tick()?;
                Ok(None)
            }
        }
    }

    async fn item(&mut self, item: Option<StreamItem>) -> Result<Option<End>, Failure> {
        match item {
            None => return Ok(Some(End::Gone)),
            Some(StreamItem::Reconnecting) => {
                if self.follow.is_shutting_down() {
                    self.say(Line::styled(Style::Dim, "agentd has left; waiting for it …"))?;
                } else {
                    self.say(Line::styled(
                        Style::Warn,
                        "The connection to agentd is lost; bringing it back …",
                    ))?;
                }
                self.context.bring_back(self.follow.is_shutting_down());
            }
            Some(StreamItem::Reconnected) => {
                self.follow.reconnected();
                self.say(Line::styled(Style::Dim, "Connected again."))?;
            }
            Some(StreamItem::Event(received)) => {
                if self.screen.is_json() {
                    self.screen.json(received.raw.get())?;
                }
                let synced = matches!(received.event.body, EventBody::Synced { .. });
                if matches!(received.event.body, EventBody::ToolCallStarted { .. }) {
                    self.screen.not_last()?;
                }
                for output in self.follow.on_event(received.event) {
                    if let Some(end) = self.output(output).await? {
                        return Ok(Some(end));
                    }
                }
                if synced && self.follow.is_idle() {
                    match self.target.until {
                        Until::Idle => return Ok(Some(self.idle_at_once())),
                        Until::Left if !std::mem::replace(&mut self.said_idle, true) => self.say_idle()?,
                        Until::Left | Until::Turn(_) => {}
                    }
                }
                return self.ask_next().await;
            }
        }
        Ok(None)
    }

    async fn output(&mut self, output: Output) -> Result<Option<End>, Failure> {
        self.heard += 1;
        match output {
            Output::Line(line) => {
                self.say_past()?;
                self.say(line)?;
            }
            Output::Text(text) => {
                self.interrupt_prompt()?;
                self.screen.text(&text)?;
            }
            Output::TextEnd => {
                self.interrupt_prompt()?;
                self.screen.text_end()?;
                self.prompt_again()?;
            }
            Output::Message(text) => {
                self.say_past()?;
                self.message(text).await?;
            }
            Output::Ran(ran) => {
                self.say_past()?;
                let show = |id: &str| format!("{} show {} {id}", self.context.program, self.target.handle);
                for line in ran.lines(self.screen.width(), show) {
                    self.say(line)?;
                }
            }
            Output::Earlier(turns) => {
                let count = if turns == 1 {
                    "1 earlier turn is".to_owned()
                } else {
                    format!("{turns} earlier turns are")
                };
                let all = format!("{} log {} --all", self.context.program, self.target.handle);
                self.say(
                    Line::styled(Style::Dim, &format!("{count} not shown: ")).with(Style::Command, &all),
                )?;
            }
            Output::Ask(approval) => self.queue.push_back(*approval),
            Output::Told(approval) => self.tell_trust(&approval)?,
            Output::Changed(approval) => self.changed(*approval)?,
            Output::Settled { id, line } => self.settled(&id, line)?,
            Output::Past(finished) => self.past_turn(finished).await?,
            Output::Finished(finished) => {
                self.say_past()?;
                return self.turn_finished(finished).await;
            }
            Output::Gone => return Ok(Some(End::Gone)),
        }
        Ok(None)
    }

    /// What a project would switch on, whole, and the commands that answer it from anywhere.
    fn tell_trust(&mut self, approval: &Approval) -> Result<(), Failure> {
        self.say_past()?;
        let frame = approval::Frame {
            handle: &self.target.handle,
            pre_mode: None,
            edited: None,
            home: self.context.home.as_deref(),
            width: self.screen.width(),
        };
        for line in approval::draw_told(approval, frame, &self.context.program) {
            self.say(line)?;
        }
        Ok(())
    }

    async fn message(&mut self, text: Text) -> Result<(), Failure> {
        if self.screen.is_terminal() || self.screen.is_json() {
            return Ok(());
        }
        let whole = blob::whole(&self.client, self.target.session, text).await?;
        Ok(self.screen.message(&whole)?)
    }

    async fn turn_finished(&mut self, mut finished: Box<Finished>) -> Result<Option<End>, Failure> {
        self.look_at_changes(&mut finished).await;
        match self.target.until {
            Until::Turn(own) if finished.turn == Some(own) => return Ok(Some(End::Turn(finished))),
            Until::Turn(_) => {}
            Until::Idle => {
                // Another prompt may wait in the inbox.
                let params = SessionParams { session_id: self.target.session };
                let state = self.client.call::<method::SessionGet>(params).await?.state;
                if self.follow.is_idle() && state.activity == Activity::Idle {
                    return Ok(Some(End::Turn(finished)));
                }
                self.last = Some(finished);
            }
            Until::Left => {
                let held = self.held(&finished).await;
                let lines = closing::finished(&finished, held, self.names());
                self.screen.lines(&lines)?;
                self.say_idle()?;
            }
        }
        Ok(None)
    }

    /// What an interrupted turn leaves waiting for its person. `None`, too, if nobody answers: it is a remark.
    async fn held(&self, finished: &Finished) -> Option<Line> {
        if finished.outcome != Outcome::Interrupted {
            return None;
        }
        let params = SessionParams { session_id: self.target.session };
        let inbox = self.client.call::<method::SessionInbox>(params).await.ok()?;
        let is_held = inbox.held && !inbox.inbox.is_empty();
        is_held.then(|| closing::held(inbox.inbox.len(), &self.context.program, &self.target.handle))
    }

    fn names(&self) -> Names<'_> {
        Names {
            program: &self.context.program,
            handle: &self.target.handle,
            cwd: &self.target.cwd,
            stays: self.target.stays,
            is_demo: self.target.is_demo,
        }
    }

    /// A line that comes while something is asked goes above the question.
    fn say(&mut self, line: Line) -> Result<(), Failure> {
        self.interrupt_prompt()?;
        self.screen.line(&line)?;
        self.prompt_again()
    }

    fn interrupt_prompt(&mut self) -> Result<(), Failure> {
        if let Some(shown) = self.shown.as_mut().filter(|shown| shown.prompted) {
            shown.prompted = false;
            self.screen.end_prompt()?;
        }
        Ok(())
    }

    fn prompt_again(&mut self) -> Result<(), Failure> {
        if let Some(shown) = self.shown.as_mut().filter(|shown| !shown.prompted) {
            shown.prompted = true;
            self.screen.prompt(&shown.ask.prompt())?;
        }
        Ok(())
    }

    async fn signal(&mut self, signal: Caught) -> Result<Option<End>, Failure> {
        match signal {
            Caught::Leave => return Ok(Some(End::Left(self.follow.detached()))),
            Caught::Resized => self.screen.resized(),
            Caught::Continued => {
                if let Answerer::Person(terminal) = &mut self.answerer {
                    terminal.reapply();
                }
                if self.shown.is_some() {
                    self.draw()?;
                }
            }
            Caught::Interrupt => match self.follow.on_interrupt() {
                OnInterrupt::Detach(exit) => return Ok(Some(End::Left(exit))),
                OnInterrupt::StopTurn => {
                    self.stop().await?;
                    self.say(Line::styled(Style::Warn, "Stopping … Ctrl-C again leaves it to itself."))?;
                }
            },
        }
        Ok(None)
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        let turn_id = match self.target.goal {
            Goal::Turn(turn) => Some(turn),
            Goal::Session | Goal::WholeSession => None,
        };
        let params = InterruptParams { session_id: self.target.session, turn_id };
        match self.client.call::<method::SessionInterrupt>(params).await {
            Ok(_) => Ok(()),
            // It has just ended, or has not begun.
            Err(error) if error.code() == Some(ErrorCode::Conflict) => Ok(()),
            Err(error) => self.say(Line::styled(Style::Bad, &Failure::from(error).message)),
        }
    }

    async fn deadline_passed(&mut self) -> Result<Option<End>, Failure> {
        if self.timed_out {
            return Ok(Some(End::Left(Exit::Timeout)));
        }
        self.timed_out = true;
        self.deadline = Some(Instant::now() + STOP_GRACE);
        self.say(Line::styled(Style::Warn, "The time given with --timeout has passed; stopping the turn."))?;
        self.stop().await?;
        Ok(None)
    }

    fn close(mut self, end: End, held: Option<Line>) -> Result<Exit, Failure> {
        self.interrupt_prompt()?;
        keep_draft(self.hide(), &mut self.screen)?;
        self.screen.text_end()?;
        match end {
            End::Turn(_) => match self.screen.final_text() {
                // The turn ended the way it ended, whether anybody reads its text or not.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                written => written?,
            },
            End::Left(_) | End::Told(_) | End::Gone | End::ReaderGone => self.screen.not_last()?,
        }
        match end {
            End::Turn(finished) => {
                let lines = closing::finished(&finished, held, self.names());
                self.screen.lines(&lines)?;
                Ok(if self.timed_out { Exit::Timeout } else { Exit::of_outcome(finished.outcome) })
            }
            End::Left(exit) => {
                // Where nobody answers here, whoever reads this is to see what they are asked before they are told how.
                // With --json the event has it.
                let shown = matches!(self.answerer, Answerer::Nobody) && !self.screen.is_json();
                if shown {
                    self.draw_waiting()?;
                }
                let leaving = Leaving { exit, stopping: self.follow.is_stopping(), shown };
                let lines = closing::left(leaving, self.follow.waiting(), self.names());
                self.screen.lines(&lines)?;
                Ok(if self.timed_out { Exit::Timeout } else { exit })
            }
            End::Told(exit) => Ok(exit),
            End::ReaderGone => Ok(self.follow.detached()),
            End::Gone => {
                self.screen.line(&Line::styled(Style::Warn, "The session was deleted."))?;
                Ok(if self.target.until == Until::Left { Exit::Finished } else { Exit::Failed })
            }
        }
    }
}

/// Waits until then, or for ever.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
