//! Settings of one model provider: `[providers.NAME]`.

use std::path::PathBuf;
use std::str::FromStr;

/// What is not set comes from the preset of that name, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderSettings {
    pub dialect: Option<Dialect>,
    /// Begins with `http://` or `https://`.
    pub base_url: Option<String>,
    /// The name of a variable in the daemon's environment.
    pub api_key_env: Option<String>,
    /// A file that holds the key and nothing else; `~/` is the home folder.
    pub api_key_file: Option<PathBuf>,
    /// A shell command that prints the key.
    pub api_key_command: Option<String>,
    /// Seconds that the provider may stay silent within an answer. Local models on slow machines need more than the
    /// default.
    pub idle_timeout_s: Option<u64>,
}

/// How requests to a provider are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    OpenaiChat,
    Anthropic,
}

impl Dialect {
    pub const ALL: [Dialect; 2] = [Dialect::OpenaiChat, Dialect::Anthropic];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::OpenaiChat => "openai-chat",
            Dialect::Anthropic => "anthropic",
        }
    }
}

impl FromStr for Dialect {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == text).ok_or_else(|| {
            format!("unknown dialect; the dialects are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// Whether this can name a provider. Names become names of files, so the set is small.
#[must_use]
pub fn is_provider_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}
