//! Appending, applying, publishing: the one way in which a session changes.

use agentd_protocol::Timestamp;

use super::actor::Session;
use super::error::{Changed, SessionError};
use super::feed::WireEvent;
use super::outline;
use super::project::{fact, project, row, state_changed};
use super::record::{Body, CallInput, INLINE_LIMIT, Json, Record};
use crate::ids::{Seq, TurnId};
use crate::journal::{self, AppendError, Durability, Reach};
use crate::store::Update;

/// Characters of a blob's text that its reference shows of either end.
const BLOB_ENDS: usize = 2_000;
/// The same where a commit has many.
const SHORT_ENDS: usize = 200;
/// Bytes of texts that one commit holds itself where it may have many.
pub(super) const COMMIT_ROOM: usize = 128 * 1024;

impl Session {
    /// Journals `records` as one commit, folds them in, publishes their events. Whole or not at all. What the records
    /// are says whether they are on the disk when this returns: see [`is_sync_point`].
    ///
    /// # Errors
    /// The journal did not take them; nothing has changed in memory.
    pub(super) async fn commit(&mut self, records: Vec<Record>) -> Result<(), SessionError> {
        let at = self.deps.clock.now();
        self.commit_at(at, records).await
    }

    /// As [`Session::commit`], with a time that was said before.
    ///
    /// # Errors
    /// As [`Session::commit`].
    pub(super) async fn commit_at(
        &mut self,
        at: Timestamp,
        records: Vec<Record>,
    ) -> Result<(), SessionError> {
        if records.is_empty() {
            return Ok(());
        }
        if let Some(reason) = &self.state.read_only {
            return Err(read_only(reason));
        }
        if !records.iter().all(|record| matches!(record, Record::BundleNamed(_))) {
            self.owned()?;
        }
        let turn = self.turn_of(&records);
        let raw = records.iter().map(|record| record.to_raw(turn)).collect();
        let expected = Seq(self.state.head.0 + 1);
        let durability =
            if records.iter().any(is_sync_point) { Durability::Synced } else { Durability::Written };
        let appended = match self.journal.append(expected, at, raw, durability).await {
            Ok(appended) => appended,
            Err(error) => {
                self.remove_new_plans(&records).await;
                return Err(self.append_failed(error));
            }
        };
        self.state.unsaved = false;
        let (mut events, mut texts, mut facts) = (Vec::new(), Vec::new(), Vec::new());
        let mut text_done = false;
        for (index, record) in (0u32..).zip(&records) {
            let seq = Seq(appended.first.0 + u64::from(index));
            self.state.apply(seq, at, appended.place.record(index), record);
            texts.extend(outline::text(seq, at, record));
            facts.extend(fact(self.state.id(), seq, at, record));
            text_done |= matches!(record, Record::Replied(_) | Record::SampleFailed(_));
            if let Some(event) = self.project_live(seq, at, turn, record).await {
                events.push(event);
            }
        }
        // Lists and counts first: who hears of a turn's end and then asks for them must not be told that it still runs.
        for fact in facts {
            self.watcher.told(fact);
        }
        self.row_changed();
        let place = appended.place;
        self.watcher.committed(Update {
            row: row(&self.state),
            from: place.offset,
            to: Reach { bytes: place.offset + u64::from(place.len), next: Seq(appended.last.0 + 1) },
            texts,
        });
        let status = state_changed(&self.state);
        self.feed.publish(appended.last, events, text_done, Some(&status));
        Ok(())
    }

    /// A plan's file is made before the plan is journaled; one that is not journaled belongs to nobody.
    async fn remove_new_plans(&self, records: &[Record]) {
        for record in records {
            let Record::PlanEntered(entered) = record else { continue };
            let (paths, path) = (std::sync::Arc::clone(&self.deps.paths), entered.path.clone());
            if let Err(error) = super::blocking(move || paths.remove_plan(&path)).await {
                tracing::warn!(session = %self.state.id(), %error, "an empty plan file was left behind");
            }
        }
    }

    /// The turn that a commit belongs to: the one it starts, else the one that runs.
    fn turn_of(&self, records: &[Record]) -> Option<TurnId> {
        records
            .iter()
            .find_map(|record| match record {
                Record::TurnStarted(started) => Some(started.turn_id),
                _ => None,
            })
            .or_else(|| self.state.turn.as_ref().map(|turn| turn.id))
    }

    async fn project_live(
        &self,
        seq: Seq,
        at: Timestamp,
        turn: Option<TurnId>,
        record: &Record,
    ) -> Option<WireEvent> {
        let inlined;
        let record = if super::history::has_blobs(record) {
            let mut copy = record.clone();
            super::history::inline_blobs(&mut copy, self.journal.blobs()).await;
            inlined = copy;
            &inlined
        } else {
            record
        };
        project(self.state.id(), seq, at, turn, record).map(|event| WireEvent::new(&event))
    }

    fn append_failed(&mut self, error: AppendError) -> SessionError {
        let changed = match error.changed {
            journal::Changed::False => Changed::No,
            journal::Changed::Unknown => Changed::Unknown,
        };
        let message = format!("{:#}", anyhow::Error::new(error));
        tracing::error!(session = %self.state.id(), %message, "a commit was not journaled");
        // Told once, not with every attempt.
        if !self.state.unsaved {
            self.feed.notice(
                "storage",
                &format!(
                    "not saved: {message}. Free some space: what was going on goes on by itself, what was refused has to be \
                     sent again."
                ),
                self.state.id(),
            );
        }
        self.not_saved();
        if changed == Changed::Unknown || self.journal.read_only().is_some() {
            self.state.read_only = Some(message.clone());
            self.row_changed();
            let status = state_changed(&self.state);
            self.feed.publish(self.state.head, Vec::new(), true, Some(&status));
        }
        SessionError::Storage { message, changed }
    }

    /// Shows that the disk does not take what is to be written.
    pub(super) fn not_saved(&mut self) {
        if !self.state.unsaved {
            self.state.unsaved = true;
            self.row_changed();
            let status = state_changed(&self.state);
            self.feed.publish(self.state.head, Vec::new(), false, Some(&status));
        }
    }

    /// Text for a record: a blob of its own when it is long.
    ///
    /// # Errors
    /// The blob could not be stored.
    pub(super) async fn body(&self, text: String) -> Result<Body, SessionError> {
        if text.len() <= INLINE_LIMIT {
            return Ok(Body::Inline(text));
        }
        self.blob_body(text, BLOB_ENDS).await
    }

    async fn blob_body(&self, text: String, ends: usize) -> Result<Body, SessionError> {
        let head = text.chars().take(ends).collect();
        let tail_start = text.char_indices().rev().nth(ends - 1).map_or(0, |(index, _)| index);
        let tail = text[tail_start..].to_owned();
        let size = text.len() as u64;
        let blob = self.put_blob(text.into_bytes()).await?;
        Ok(Body::Blob { blob, size, head, tail })
    }

    /// As [`Session::body`], for one of several texts of a commit: short only while `room` is left, so that many short
    /// texts do not make a long line.
    ///
    /// # Errors
    /// The blob could not be stored.
    pub(super) async fn body_within(&self, room: &mut usize, text: String) -> Result<Body, SessionError> {
        if text.len() <= INLINE_LIMIT.min(*room) {
            *room -= text.len();
            return Ok(Body::Inline(text));
        }
        self.blob_body(text, SHORT_ENDS).await
    }

    /// JSON for a record: a blob of its own when it is long.
    ///
    /// # Errors
    /// The blob could not be stored.
    pub(super) async fn json(&self, raw: Box<serde_json::value::RawValue>) -> Result<Json, SessionError> {
        let mut room = INLINE_LIMIT;
        self.json_within(&mut room, raw).await
    }

    /// As [`Session::body_within`], for JSON.
    ///
    /// # Errors
    /// The blob could not be stored.
    pub(super) async fn json_within(
        &self,
        room: &mut usize,
        raw: Box<serde_json::value::RawValue>,
    ) -> Result<Json, SessionError> {
        if raw.get().len() <= INLINE_LIMIT.min(*room) {
            *room -= raw.get().len();
            return Ok(Json::Inline(raw));
        }
        Ok(Json::Blob(self.put_blob(raw.get().as_bytes().to_vec()).await?))
    }

    /// # Errors
    /// The blob could not be stored.
    pub(super) async fn put_blob(&self, bytes: Vec<u8>) -> Result<crate::ids::Digest, SessionError> {
        self.journal.blobs().put(bytes.into()).await.map_err(|error| SessionError::Storage {
            message: format!("{:#}", anyhow::Error::new(error)),
            changed: Changed::No,
        })
    }

    /// Reads the arguments of a proposed call.
    ///
    /// # Errors
    /// The journal could not be read.
    pub(super) async fn call_input(&self, place: journal::RecordRef) -> Result<CallInput, SessionError> {
        Ok(self.call_inputs(vec![place]).await?.swap_remove(0))
    }

    /// Reads the arguments of several calls, each commit once.
    ///
    /// # Errors
    /// The journal could not be read.
    pub(super) async fn call_inputs(
        &self,
        places: Vec<journal::RecordRef>,
    ) -> Result<Vec<CallInput>, SessionError> {
        let raws = self.reader.records(places).await.map_err(super::heir::unstored)?;
        raws.iter()
            .map(|raw| match parsed(raw)? {
                Record::CallProposed(proposed) => Ok(proposed.input),
                other => Err(storage(format!("a {} stands where a call was journaled", other.name()))),
            })
            .collect()
    }

    /// # Errors
    /// The journal could not be read.
    pub(super) async fn record_at(&self, place: journal::RecordRef) -> Result<Record, SessionError> {
        let raw = self.reader.record(place).await.map_err(super::heir::unstored)?;
        parsed(&raw)
    }
}

fn parsed(raw: &serde_json::value::RawValue) -> Result<Record, SessionError> {
    match Record::parse(raw) {
        super::record::Parsed::Known { record, .. } => Ok(*record),
        super::record::Parsed::Unknown { .. } => {
            Err(storage("a journaled record cannot be read back".into()))
        }
    }
}

/// Whether a record has to survive a power cut before anyone acts on it: what people said or are asked, what may run from
/// now on, an effect that is about to happen, the end of a turn. The rest costs at most an answer of the model.
fn is_sync_point(record: &Record) -> bool {
    match record {
        Record::ModeChanged(_)
        | Record::RuleAdded(_)
        | Record::PlanEntered(_)
        | Record::PlanWritten(_)
        | Record::PlanApproved(_)
        | Record::PlanRejected(_)
        | Record::PlanRecovered(_)
        | Record::InboxAdded(_)
        | Record::InboxWithdrawn(_)
        | Record::CommandRun(_)
        | Record::TurnResumed(_)
        | Record::TurnStopping(_)
        | Record::TurnFinished(_)
        | Record::ContextReset(_)
        | Record::SessionForked(_)
        | Record::SessionArchived(_)
        | Record::HandedOver(_)
        | Record::BundleNamed(_)
        | Record::SessionImported(_)
        | Record::ApprovalRequested(_)
        | Record::TrustAsked(_)
        | Record::ApprovalChanged(_)
        | Record::ApprovalResolved(_)
        | Record::BreakerChanged(_) => true,
        // A started effect is on disk before it starts: it is never run twice.
        Record::CallStarted(started) => started.effects,
        Record::Created(_)
        | Record::TitleChanged(_)
        | Record::PlanSaved(_)
        | Record::InboxTaken(_)
        | Record::TurnStarted(_)
        | Record::TurnParked(_)
        | Record::ContextAdded(_)
        | Record::SampleStarted(_)
        | Record::SampleFailed(_)
        | Record::Replied(_)
        | Record::CallProposed(_)
        | Record::CallJudged(_)
        | Record::CallClassified(_)
        | Record::CallFinished(_)
        | Record::FileChanged(_)
        // The synced start of a call with effects comes after it.
        | Record::TreeKept(_) => false,
    }
}

pub(super) fn storage(message: String) -> SessionError {
    SessionError::Storage { message, changed: Changed::No }
}

fn read_only(reason: &str) -> SessionError {
    SessionError::Storage {
        message: format!("the session is read-only: {reason}. Restart the daemon once the cause is gone."),
        changed: Changed::No,
    }
}
