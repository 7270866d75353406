//! The line to a model: providers, dialects, one streaming request at a time.
//!
//! A dialect renders a [`message::Request`] to bytes and parses a stream of events to a [`message::Reply`], both
//! without I/O. [`ModelClient`] puts HTTP between the two, for one attempt; waiting and trying again is the engine's.

pub mod anthropic;
pub mod choose;
mod client;
mod conversation;
pub mod demo;
mod failure;
pub mod message;
pub mod openai_chat;
pub mod playback;
pub mod providers;
mod sse;
mod stream;

#[cfg(test)]
mod tests;

pub use choose::{ChooseError, FoundKey, Question as ModelQuestion, probe_ollama};
pub use client::{Base, DEFAULT_IDLE, Endpoint, ModelClient};
pub use failure::{Kind, MAX_WAIT, Retry, SampleError};
pub use stream::Delta;
