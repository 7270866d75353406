//! Anthropic's Messages API.

mod request;
mod stream;

pub(super) use request::render;
pub(super) use stream::Stream;

/// The version of the API that requests name.
pub(super) const VERSION: &str = "2023-06-01";

/// The longest answer that is asked for, by the start of the model's name. Asking for more than a model can do is an
/// error, asking for less cuts long files; longer prefixes stand before shorter ones.
const MAX_TOKENS: &[(&str, u32)] = &[
    ("claude-3-7", 64_000),
    ("claude-3-5", 8_192),
    ("claude-3", 4_096),
    ("claude-opus-4-5", 64_000),
    ("claude-opus-4-1", 32_000),
    ("claude-opus-4-0", 32_000),
    ("claude-opus-4-2025", 32_000),
    ("claude-sonnet-4-6", 128_000),
    ("claude-sonnet-4", 64_000),
    ("claude-haiku", 64_000),
    ("claude-opus", 128_000),
    ("claude-sonnet", 128_000),
    ("claude-fable", 128_000),
];

/// For models that the table does not know, others' models behind this dialect among them.
const SAFE_MAX_TOKENS: u32 = 32_000;

fn max_tokens(model: &str) -> u32 {
    let found = MAX_TOKENS.iter().find(|(prefix, _)| model.starts_with(prefix));
    found.map_or(SAFE_MAX_TOKENS, |(_, tokens)| *tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_prefixes_win() {
        assert_eq!(max_tokens("claude-opus-4-20250514"), 32_000);
        assert_eq!(max_tokens("claude-opus-4-8"), 128_000);
        assert_eq!(max_tokens("claude-3-5-sonnet-20241022"), 8_192);
        assert_eq!(max_tokens("claude-sonnet-4-5-20250929"), 64_000);
        assert_eq!(max_tokens("kimi-k2"), SAFE_MAX_TOKENS);
        for (at, (prefix, _)) in MAX_TOKENS.iter().enumerate() {
            let hidden = MAX_TOKENS[..at].iter().any(|(earlier, _)| prefix.starts_with(earlier));
            assert!(!hidden, "{prefix} can never be reached");
        }
    }
}
