//! From references to a request: reads the context's messages and puts every result behind the call it answers.

use std::collections::HashMap;
use std::sync::Arc;

use super::actor::Session;
use super::error::SessionError;
use super::record::{Body, Json, Record};
use super::state::{ContextItem, ContextKind};
use crate::context;
use crate::ids::{Digest, Seq, digest_of};
use crate::model::message::{Block, Message, Request, Role, ToolSpec};

/// Parsed messages of the context, so that a long session is not read anew for every request.
#[derive(Default)]
pub(super) struct MessageCache {
    messages: HashMap<Seq, Arc<Message>>,
    bytes: usize,
    prefix: Option<Prefix>,
}

/// What every request of a session begins with, and the blobs that it was read from.
#[derive(Clone)]
struct Prefix {
    blobs: (Digest, Digest),
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
}

/// What the cache may hold per session; beyond it the journal is read.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

impl Session {
    pub(super) async fn request(&mut self) -> Result<Request, SessionError> {
        let (system, tools) = self.prefix().await?;
        let order = in_order(&self.state.context);
        let mut messages = Vec::with_capacity(order.len());
        self.messages.evict(&self.state.context);
        let missing: Vec<_> = order
            .iter()
            .filter(|item| !self.messages.messages.contains_key(&item.seq))
            .map(|item| item.place)
            .collect();
        let records = self.reader.records(missing).await.map_err(super::heir::unstored)?;
        let mut records = records.into_iter();
        for item in order {
            let message = match self.messages.messages.get(&item.seq) {
                Some(message) => Arc::clone(message),
                None => {
                    let raw = records
                        .next()
                        .ok_or_else(|| super::commit::storage("a message is missing".into()))?;
                    let super::record::Parsed::Known { record, .. } = Record::parse(&raw) else {
                        return Err(super::commit::storage("a message cannot be read back".into()));
                    };
                    let message = Arc::new(self.message_of(&item.kind, *record).await?);
                    self.messages.insert(item.seq, raw.get().len(), &message);
                    message
                }
            };
            messages.push(message);
        }
        Ok(Request { model: self.state.created.model.model.clone(), system, tools, messages })
    }

    async fn prefix(&mut self) -> Result<(Arc<str>, Arc<[ToolSpec]>), SessionError> {
        let created = Arc::clone(&self.state.created);
        let blobs = (created.system_prompt, created.tools);
        if let Some(known) = self.messages.prefix.as_ref().filter(|known| known.blobs == blobs) {
            return Ok((Arc::clone(&known.system), Arc::clone(&known.tools)));
        }
        let ours = || context::SYSTEM_PROMPT.as_bytes().to_vec();
        let prompt: Arc<str> = self.prefix_text(created.system_prompt, ours).await?.into();
        let deps = Arc::clone(&self.deps);
        let ours = move || serde_json::to_vec(&deps.tools.specs()).unwrap_or_default();
        let specs: Vec<ToolSpec> = serde_json::from_str(&self.prefix_text(created.tools, ours).await?)
            .map_err(|error| super::commit::storage(format!("the tool list cannot be read: {error}")))?;
        let specs: Arc<[ToolSpec]> = specs.into();
        let prefix = Prefix { blobs, system: Arc::clone(&prompt), tools: Arc::clone(&specs) };
        self.messages.prefix = Some(prefix);
        Ok((prompt, specs))
    }

    /// What the session begins with. Sessions share these files, so damage to one stops many; but where this version begins
    /// them the same way, it can write the file again.
    async fn prefix_text(&self, blob: Digest, ours: impl Fn() -> Vec<u8>) -> Result<String, SessionError> {
        let read = self.blob_text(blob).await;
        if read.is_ok() || digest_of(&ours()) != blob {
            return read;
        }
        tracing::warn!(session = %self.state.id(), %blob, "what the session begins with was damaged and is written anew");
        self.put_blob(ours()).await?;
        self.blob_text(blob).await
    }

    pub(super) async fn blob_text(&self, blob: Digest) -> Result<String, SessionError> {
        let bytes = self
            .journal
            .blobs()
            .whole(blob)
            .await
            .map_err(|error| super::commit::storage(format!("{:#}", anyhow::Error::new(error))))?;
        String::from_utf8(bytes).map_err(|_| super::commit::storage(format!("blob {blob} is not text")))
    }

    pub(super) async fn body_text(&self, body: Body) -> Result<String, SessionError> {
        match body {
            Body::Inline(text) => Ok(text),
            Body::Blob { blob, .. } => self.blob_text(blob).await,
        }
    }

    async fn message_of(&self, kind: &ContextKind, record: Record) -> Result<Message, SessionError> {
        match (kind, record) {
            (ContextKind::Said(source), Record::ContextAdded(added)) => {
                let text = self.body_text(added.text).await?;
                let text = match source {
                    // Only agentd itself writes notes; a prompt that imitates one is marked.
                    super::record::Source::Prompt => context::mark_untrusted(&text).into_owned(),
                    super::record::Source::Environment
                    | super::record::Source::Guidance
                    | super::record::Source::Plan => text,
                };
                Ok(Message { role: Role::User, blocks: vec![Block::Text { text }], raw: None })
            }
            (ContextKind::Answer, Record::Replied(replied)) => {
                let text = match replied.message {
                    Some(Json::Inline(raw)) => raw.get().to_owned(),
                    Some(Json::Blob(blob)) => self.blob_text(blob).await?,
                    None => return Err(super::commit::storage("an answer has no message".into())),
                };
                super::offload(text.len(), move || serde_json::from_str(&text)).await.map_err(|error| {
                    super::commit::storage(format!("an answer cannot be read back: {error}"))
                })
            }
            (ContextKind::Result { provider_id, is_error }, Record::CallFinished(finished)) => {
                let content = self.body_text(finished.content).await?;
                let result = Block::ToolResult { id: provider_id.clone(), content, is_error: *is_error };
                Ok(Message { role: Role::User, blocks: vec![result], raw: None })
            }
            (_, other) => {
                Err(super::commit::storage(format!("a {} is no message of a context", other.name())))
            }
        }
    }
}

impl MessageCache {
    fn insert(&mut self, seq: Seq, bytes: usize, message: &Arc<Message>) {
        if self.bytes + bytes <= CACHE_BYTES {
            self.bytes += bytes;
            self.messages.insert(seq, Arc::clone(message));
        }
    }

    /// Forgets what a reset has taken out of the context.
    fn evict(&mut self, context: &[ContextItem]) {
        let first = context.first().map(|item| item.seq);
        if self.messages.len() > context.len() || self.messages.keys().min().copied() < first {
            self.messages.clear();
            self.bytes = 0;
        }
    }
}

/// The context with every result directly behind the answer whose call it belongs to: guidance that came while calls
/// were running goes after their results, as providers demand. Requests are only made when every call has a result, so
/// the order never changes afterwards.
fn in_order(context: &[ContextItem]) -> Vec<&ContextItem> {
    let mut order = Vec::with_capacity(context.len());
    let mut later = Vec::new();
    let mut after_answer = false;
    for (index, item) in context.iter().enumerate() {
        match &item.kind {
            ContextKind::Answer => {
                order.append(&mut later);
                order.push(item);
                after_answer = true;
            }
            ContextKind::Result { .. } => order.push(item),
            ContextKind::Said(_) => {
                let results_follow = after_answer
                    && context[index..]
                        .iter()
                        .take_while(|next| next.kind != ContextKind::Answer)
                        .any(|next| matches!(next.kind, ContextKind::Result { .. }));
                if results_follow {
                    later.push(item);
                } else {
                    order.append(&mut later);
                    order.push(item);
                }
            }
        }
    }
    order.append(&mut later);
    order
}

#[cfg(test)]
mod tests {
    use super::super::record::Source;
    use super::*;
    use crate::journal::RecordRef;

    fn item(seq: u64, kind: ContextKind) -> ContextItem {
        ContextItem { seq: Seq(seq), place: RecordRef { offset: 0, len: 0, index: 0 }, kind }
    }

    fn result() -> ContextKind {
        ContextKind::Result { provider_id: "x".into(), is_error: false }
    }

    #[test]
    fn results_stand_directly_behind_their_answer() {
        let context = [
            item(1, ContextKind::Said(Source::Prompt)),
            item(2, ContextKind::Answer),
            item(3, ContextKind::Said(Source::Guidance)),
            item(4, result()),
            item(5, result()),
            item(6, ContextKind::Said(Source::Prompt)),
            item(7, ContextKind::Answer),
        ];
        let order: Vec<_> = in_order(&context).iter().map(|item| item.seq.0).collect();
        assert_eq!(order, [1, 2, 4, 5, 3, 6, 7]);
    }

    #[test]
    fn a_growing_context_only_grows_at_its_end() {
        let full = [
            item(1, ContextKind::Said(Source::Environment)),
            item(2, ContextKind::Said(Source::Prompt)),
            item(3, ContextKind::Answer),
            item(4, result()),
            item(5, ContextKind::Said(Source::Guidance)),
            item(6, ContextKind::Answer),
        ];
        // Requests are made when every call has its result: after 2, and after 5.
        let whole = in_order(&full);
        for cut in [2, 4, 5] {
            let part = in_order(&full[..cut]);
            assert_eq!(part[..], whole[..cut]);
        }
    }
}
