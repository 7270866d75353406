//! The providers that need no settings, and how settings change or add to them.

use std::time::Duration;

use secrecy::SecretString;

use crate::config::{self, ProviderSettings};

use super::client::{Base, DEFAULT_IDLE, Endpoint};
use super::message::Dialect;

/// A provider that is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    pub dialect: Dialect,
    /// None: the bundled playback.
    pub base_url: Option<&'static str>,
    /// The variable that usually holds its key. None: it needs no key.
    pub key_env: Option<&'static str>,
    /// The model that is taken when none is named. None: whatever the user has there, so it must be named.
    pub default_model: Option<&'static str>,
}

pub const DEMO: &str = "demo";
pub const OLLAMA: &str = "ollama";

/// Where a local Ollama listens, unless settings say otherwise.
pub const OLLAMA_BASE_URL: &str = "http://127.0.0.1:11434/v1";

/// All presets. Those with a key stand in the order in which they are chosen if several keys are found. The default
/// models are those that the providers' own pages recommended for coding at the end of 2026.
pub const PRESETS: [Preset; 7] = [
    Preset {
        name: "anthropic",
        dialect: Dialect::Anthropic,
        base_url: Some("https://api.anthropic.com"),
        key_env: Some("ANTHROPIC_API_KEY"),
        default_model: Some("claude-opus-5-5"),
    },
    Preset {
        name: "openai",
        dialect: Dialect::OpenaiChat,
        base_url: Some("https://api.openai.com/v1"),
        key_env: Some("OPENAI_API_KEY"),
        // Chat completions let it call tools only without reasoning; see `openai_chat::request`.
        default_model: Some("gpt-5.6-terra"),
    },
    Preset {
        name: "deepseek",
        dialect: Dialect::OpenaiChat,
        base_url: Some("https://api.deepseek.com"),
        key_env: Some("DEEPSEEK_API_KEY"),
        // Replaced `deepseek-chat` and the `deepseek-v4` names in 2026.
        default_model: Some("deepseek-flash"),
    },
    Preset {
        name: "openrouter",
        dialect: Dialect::OpenaiChat,
        base_url: Some("https://openrouter.ai/api/v1"),
        key_env: Some("OPENROUTER_API_KEY"),
        // A router's own choice stays valid when models come and go.
        default_model: Some("openrouter/auto"),
    },
    Preset {
        name: OLLAMA,
        dialect: Dialect::OpenaiChat,
        base_url: Some(OLLAMA_BASE_URL),
        key_env: None,
        default_model: None,
    },
    Preset {
        name: "lmstudio",
        dialect: Dialect::OpenaiChat,
        base_url: Some("http://127.0.0.1:1234/v1"),
        key_env: None,
        default_model: None,
    },
    Preset {
        name: DEMO,
        dialect: Dialect::OpenaiChat,
        base_url: None,
        key_env: None,
        default_model: Some("tour"),
    },
];

#[must_use]
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// A provider after settings: what an [`super::Endpoint`] needs, but for the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    pub name: String,
    pub dialect: Dialect,
    pub base: Base,
    /// The variable that holds its key.
    pub key_env: Option<String>,
    /// Whether a request without a key is bound to fail. Whoever sets a base URL knows better than a preset.
    pub needs_key: bool,
    pub idle: Duration,
}

impl Provider {
    /// Where requests go, with the key and where that came from.
    #[must_use]
    pub fn endpoint(self, key: Option<SecretString>, key_source: Option<String>) -> Endpoint {
        let Provider { name, dialect, base, idle, .. } = self;
        Endpoint { provider: name, dialect, base, key, key_source, idle }
    }
}

/// Settings of a provider that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    #[error(
        "provider `{name}` is no preset, so it needs `{missing}`: add it to [providers.{name}] in config.toml \
         (presets: {})",
        names()
    )]
    Incomplete { name: String, missing: &'static str },
    #[error("provider `demo` is built in and takes no settings; remove [providers.demo] from config.toml")]
    Demo,
}

/// The preset, the settings, or both.
///
/// # Errors
/// A dialect that does not exist; a name that is no preset without `dialect` or `base_url`; settings of the demo.
pub fn resolve(name: &str, settings: Option<&ProviderSettings>) -> Result<Provider, ProviderError> {
    let preset = preset(name);
    if name == DEMO && settings.is_some_and(|settings| *settings != ProviderSettings::default()) {
        return Err(ProviderError::Demo);
    }
    let default = ProviderSettings::default();
    let settings = settings.unwrap_or(&default);
    let missing = |missing| ProviderError::Incomplete { name: name.to_owned(), missing };
    let dialect = match settings.dialect {
        Some(config::Dialect::OpenaiChat) => Dialect::OpenaiChat,
        Some(config::Dialect::Anthropic) => Dialect::Anthropic,
        None => preset.map(|preset| preset.dialect).ok_or_else(|| missing("dialect"))?,
    };
    let base = match (&settings.base_url, preset) {
        (Some(url), _) => Base::Url(url.clone()),
        (None, Some(preset)) => preset.base_url.map_or(Base::Demo, |url| Base::Url(url.to_owned())),
        (None, None) => return Err(missing("base_url")),
    };
    let preset_env = preset.and_then(|preset| preset.key_env);
    Ok(Provider {
        name: name.to_owned(),
        dialect,
        base,
        needs_key: preset_env.is_some() && settings.base_url.is_none(),
        key_env: settings.api_key_env.clone().or_else(|| preset_env.map(str::to_owned)),
        idle: settings.idle_timeout_s.map_or(DEFAULT_IDLE, Duration::from_secs),
    })
}

/// `anthropic, openai, …`.
fn names() -> String {
    PRESETS.map(|preset| preset.name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_need_no_settings() {
        for preset in PRESETS {
            let provider = resolve(preset.name, None).unwrap();
            assert_eq!(provider.needs_key, preset.key_env.is_some(), "{}", preset.name);
        }
    }

    #[test]
    fn settings_win_over_presets() {
        let settings = ProviderSettings {
            base_url: Some("http://127.0.0.1:9/v1".into()),
            api_key_env: Some("MINE".into()),
            idle_timeout_s: Some(5),
            ..ProviderSettings::default()
        };
        let provider = resolve("openai", Some(&settings)).unwrap();
        assert_eq!(
            provider,
            Provider {
                name: "openai".into(),
                dialect: Dialect::OpenaiChat,
                base: Base::Url("http://127.0.0.1:9/v1".into()),
                key_env: Some("MINE".into()),
                needs_key: false,
                idle: Duration::from_secs(5),
            }
        );
    }

    #[test]
    fn other_names_need_dialect_and_base_url() {
        let mut settings = ProviderSettings::default();
        let missing = |settings: &ProviderSettings| resolve("mine", Some(settings)).unwrap_err().to_string();
        assert!(missing(&settings).contains("`dialect`"));
        settings.dialect = Some(config::Dialect::Anthropic);
        assert!(missing(&settings).contains("`base_url`"));
        settings.base_url = Some("https://x.test".into());
        assert_eq!(resolve("mine", Some(&settings)).unwrap().dialect, Dialect::Anthropic);
    }

    #[test]
    fn the_demo_stays_the_demo() {
        let settings = ProviderSettings { base_url: Some("http://x".into()), ..ProviderSettings::default() };
        assert_eq!(resolve(DEMO, Some(&settings)), Err(ProviderError::Demo));
    }
}
