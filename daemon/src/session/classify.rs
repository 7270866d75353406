//! Calls that the gate leaves to the classifier of mode `auto`: asked about, judged once more, and recorded before anything
//! of them runs. The gate has the last word; here is only what a model's yes and no are worth.
//!
//! A verdict is one call's, in one process and one mode: after a restart, a change of the mode or a wait for a person it is
//! asked for anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentd_protocol::permission::Confinement;
use agentd_protocol::session::ModelInfo;
use agentd_protocol::turn::Usage;
use agentd_protocol::{CallId, Mode};
use futures_util::{FutureExt as _, StreamExt as _};

use super::actor::Session;
use super::approval::{by_daemon, effect_lines};
use super::breaker;
use super::calls::Judged;
use super::error::SessionError;
use super::flight::Flight;
use super::heir::unstored;
use super::models::Models;
use super::record::{
    ApprovalResolved, Body, BreakerChange, CallClassified, CallInput, Heard, InboxAdded, Json, Parsed, Part,
    Record,
};
use super::spoken::Spoken;
use super::state::Call;
use crate::config::AutoSettings;
use crate::context::{self, MAX_ARGUMENTS, Opinion, Question, Said};
use crate::permission::{Reason, Ruling, Verdict};
use crate::tool::{Prepared, Work};

/// Calls of one group that are asked about side by side.
const AT_ONCE: usize = 4;

/// Bytes of a long text that are read: more than is told of it.
const MAX_READ: u64 = 16 * 1024;

/// Characters of a provider's error that a person is shown.
const MAX_NOTE: usize = 300;

/// A call that the gate leaves to the classifier.
pub(super) struct Doubtful {
    pub call: Call,
    pub prepared: Prepared,
    pub verdict: Verdict,
}

/// What came of asking about one call.
pub(super) struct Classified {
    call: CallId,
    prepared: Prepared,
    /// The mode in which it was asked.
    mode: Mode,
    /// What the person had said by then.
    spoken: Spoken,
    answer: Answer,
}

struct Answer {
    opinion: Result<Opinion, String>,
    model: Option<String>,
    usage: Usage,
}

impl Answer {
    fn none(why: impl Into<String>) -> Self {
        Self { opinion: Err(why.into()), model: None, usage: Usage::default() }
    }
}

/// What exactly the classifier has said yes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cleared {
    effects: Vec<String>,
    diff: Option<String>,
    confinement: Option<Confinement>,
}

impl Cleared {
    pub(super) fn of(prepared: &Prepared, verdict: &Verdict) -> Self {
        Self {
            effects: effect_lines(&prepared.effects),
            diff: prepared.diff.clone(),
            confinement: verdict.confinement,
        }
    }
}

/// The gate's verdict, with a classifier's yes.
pub(super) fn allowed(verdict: Verdict) -> Verdict {
    Verdict { ruling: Ruling::Allow, reason: Reason::AutoAllowed, ..verdict }
}

impl Session {
    /// Those of `calls` that are about to run and whose verdict, if there was one, is not from here and now.
    pub(super) fn unheard(&mut self, calls: &[CallId]) -> Vec<Doubtful> {
        let mut doubtful = Vec::new();
        for id in calls.iter().filter(|id| !self.cleared.contains_key(*id)).cloned().collect::<Vec<_>>() {
            let Some(call) = self.state.call(&id).filter(|call| !call.is_approved()).cloned() else {
                continue;
            };
            let Some(Ok(prepared)) = self.prepared.get(&id) else { continue };
            // It cannot be carried out anyway, and says so.
            if matches!(prepared.work, Work::Refuse(_)) {
                continue;
            }
            let Judged::Classify(verdict) = self.judge(&call, prepared, None) else { continue };
            let Some(Ok(prepared)) = self.prepared.remove(&id) else { continue };
            doubtful.push(Doubtful { call, prepared, verdict });
        }
        doubtful
    }

    /// Asks the classifier about these calls.
    pub(super) async fn classify(&mut self, calls: Vec<Doubtful>) -> Result<(), SessionError> {
        if calls.is_empty() {
            return Ok(());
        }
        let person = self.typed().await.inspect_err(|error| {
            tracing::warn!(session = %self.state.id(), %error, "what the person typed cannot be read back");
        });
        let spoken = self.state.spoken.clone();
        let (mode, cwd) = (self.state.mode, self.state.created.cwd.clone());
        let (models, settings) = (Arc::clone(&self.deps.models), self.policy.auto.clone());
        let own = self.state.created.model.clone();
        let mut asked = Vec::with_capacity(calls.len());
        for Doubtful { call, prepared, verdict } in calls {
            let arguments = match self.call_input(call.place).await? {
                CallInput::Json(Json::Inline(raw)) => Some(raw.get().to_owned()),
                CallInput::Json(Json::Blob(blob)) => Some(self.blob_text(blob).await?),
                CallInput::Malformed { .. } => None,
            };
            let arguments = arguments.filter(|arguments| arguments.len() <= MAX_ARGUMENTS);
            let request = arguments.zip(person.as_ref().ok()).map(|(arguments, person)| {
                context::question(
                    "",
                    Question {
                        person,
                        tool: &call.tool,
                        arguments: &arguments,
                        cwd: &cwd,
                        effects: &effect_lines(&prepared.effects),
                        gate: verdict.reason,
                    },
                )
            });
            asked.push((call.id, prepared, request));
        }
        let future = async move {
            let (models, settings, own) = (&models, &settings, &own);
            // Who did not answer in time once is not waited for again and again.
            let (silent, spoken) = (&AtomicBool::new(false), &spoken);
            futures_util::stream::iter(asked)
                .map(|(call, prepared, request)| async move {
                    let answer = match request {
                        Some(_) if silent.load(Ordering::Relaxed) => Answer::none(late(settings.timeout)),
                        Some(request) => ask(models, settings, own, request, silent).await,
                        None => Answer::none("what it has to see cannot be put before it whole"),
                    };
                    Classified { call, prepared, mode, spoken: spoken.clone(), answer }
                })
                .buffered(AT_ONCE)
                .collect::<Vec<_>>()
                .await
        };
        self.flight.board(Flight::Classify { future: future.boxed() });
        Ok(())
    }

    /// Carries out what the classifier said, as far as the gate still leaves it to it.
    pub(super) async fn classified(&mut self, calls: Vec<Classified>) -> Result<(), SessionError> {
        self.look_at_settings().await;
        let mut breaker = self.state.breaker;
        let mut records: Vec<Record> = Vec::new();
        for Classified { call, prepared, mode, spoken, answer } in calls {
            let Some(call) = self.state.call(&call).cloned() else { continue };
            let judged = self.judge(&call, &prepared, None);
            let (heard, verdict) = match (&answer.opinion, judged) {
                (opinion, Judged::Classify(verdict))
                    if mode == self.state.mode && spoken == self.state.spoken && !breaker.is_open() =>
                {
                    let heard = match opinion {
                        Ok(Opinion::Allow(_)) => Heard::Allowed,
                        Ok(Opinion::Block(_)) => Heard::Blocked,
                        Ok(Opinion::Unreadable(_)) => Heard::Unreadable,
                        Err(_) => Heard::Nothing,
                    };
                    (heard, verdict)
                }
                // It is judged anew, without what was said of it: see `next_step`.
                _ => {
                    records.push(classified(&call, Heard::Dropped, &answer));
                    continue;
                }
            };
            records.push(classified(&call, heard, &answer));
            let note = note(&answer.opinion);
            let refused = |reason| Verdict { ruling: Ruling::Deny, reason, confinement: None, rule: None };
            match heard {
                Heard::Allowed => {
                    breaker = breaker.allowed();
                    self.cleared.insert(call.id.clone(), Cleared::of(&prepared, &verdict));
                    records.push(self.judged(&call.id, &allowed(verdict), Some(&note)));
                    self.prepared.insert(call.id, Ok(prepared));
                }
                Heard::Blocked | Heard::Unreadable => {
                    breaker = breaker.refused();
                    let reason =
                        if heard == Heard::Blocked { Reason::AutoBlocked } else { Reason::AutoUnreadable };
                    records.extend(self.denied_by_gate(&call.id, &refused(reason), Some(&note)).await?);
                    if breaker.is_open() {
                        let by = by_daemon("the classifier refused too much");
                        records.push(breaker::changed(BreakerChange::Tripped, by, breaker));
                    }
                }
                Heard::Nothing => {
                    let asks = Verdict { ruling: Ruling::Ask, reason: Reason::AutoNoAnswer, ..verdict };
                    records.extend(self.ask(&call, &prepared, &asks, Some(&note)).await?);
                }
                Heard::Dropped => {}
            }
        }
        self.commit(records).await
    }

    /// The mode or the breaker is another one: what the classifier has said, or is about to say, counts no more.
    pub(super) fn drop_opinions(&mut self) {
        self.cleared.clear();
        if let Some(Flight::Classify { .. }) = self.flight.get() {
            self.flight.clear();
        }
    }

    /// What the person typed, oldest first: the text parts of prompts and the feedback of denials. No attachment, no label of
    /// a choice, nothing that a model wrote.
    async fn typed(&self) -> Result<Vec<Said>, SessionError> {
        let records = self.reader.records(self.state.spoken.places()).await.map_err(unstored)?;
        let mut texts = Vec::new();
        for raw in records {
            let Parsed::Known { record, .. } = Record::parse(&raw) else { continue };
            match *record {
                Record::InboxAdded(InboxAdded { content, .. }) => {
                    for part in content {
                        if let Part::Text { text } = part {
                            texts.push(self.typed_text(text).await?);
                        }
                    }
                }
                Record::ApprovalResolved(ApprovalResolved { feedback, .. }) => {
                    texts.extend(feedback.map(|text| Said { text, cut: false }));
                }
                _ => {}
            }
        }
        Ok(texts)
    }

    /// Of a text in a blob, as much as is told of any.
    async fn typed_text(&self, text: Body) -> Result<Said, SessionError> {
        let (blob, size) = match text {
            Body::Inline(text) => return Ok(Said { text, cut: false }),
            Body::Blob { blob, size, .. } => (blob, size),
        };
        let part = self.journal.blobs().get(blob, 0, MAX_READ).await.map_err(unstored)?;
        let cut = part.bytes.len() as u64 != size;
        // The last character may be cut, too.
        let text =
            String::from_utf8_lossy(&part.bytes).trim_end_matches(char::REPLACEMENT_CHARACTER).to_owned();
        Ok(Said { text, cut })
    }
}

fn classified(call: &Call, heard: Heard, answer: &Answer) -> Record {
    CallClassified { call_id: call.id.clone(), heard, model: answer.model.clone(), usage: answer.usage }
        .into()
}

/// What people are told of an answer.
fn note(opinion: &Result<Opinion, String>) -> String {
    match opinion {
        Ok(Opinion::Allow(reason) | Opinion::Block(reason)) => reason.clone(),
        Ok(Opinion::Unreadable(why)) => (*why).to_owned(),
        Err(why) => format!("The classifier of mode auto gave no answer: {why}"),
    }
}

/// One attempt, with all that it takes inside the time that it has.
async fn ask(
    models: &Models,
    settings: &AutoSettings,
    own: &ModelInfo,
    mut request: crate::model::message::Request,
    silent: &AtomicBool,
) -> Answer {
    let attempt = async {
        let model =
            models.classifier(settings.model.as_deref(), own).await.map_err(|error| error.to_string())?;
        request.model.clone_from(&model.model);
        let endpoint = models.endpoint(&model.provider).await.map_err(|error| error.to_string())?;
        let reply = models
            .client()
            .sample(&endpoint, &request, &mut |_| {})
            .await
            .map_err(|error| error.to_string())?;
        Ok::<_, String>((format!("{}/{}", model.provider, model.model), reply))
    };
    match tokio::time::timeout(settings.timeout, attempt).await {
        Ok(Ok((model, reply))) => {
            Answer { opinion: Ok(context::opinion(&reply)), model: Some(model), usage: reply.usage }
        }
        Ok(Err(error)) => Answer::none(error.chars().take(MAX_NOTE).collect::<String>()),
        Err(_) => {
            silent.store(true, Ordering::Relaxed);
            Answer::none(late(settings.timeout))
        }
    }
}

fn late(time: Duration) -> String {
    format!(
        "it did not answer within {} s. More time, or a faster model: [auto] in config.toml",
        time.as_secs()
    )
}
