//! OpenAI's chat completions, as OpenAI, DeepSeek, OpenRouter, Ollama, LM Studio and many others speak it.

mod calls;
mod request;
mod stream;

pub(super) use request::render;
pub(super) use stream::Stream;
