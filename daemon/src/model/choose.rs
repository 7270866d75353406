//! Which model a new session gets, and why. Decided once, at `session/new`, and journaled with its reason.

use std::collections::BTreeMap;
use std::time::Duration;

use agentd_protocol::show::show_line;
use serde::Deserialize;

use crate::config::{Concern, Doubt, ProviderSettings, doubt_about};

use super::client::plain_loopback_client;
use super::providers::{self, DEMO, OLLAMA, PRESETS, ProviderError, preset};

/// How long a local Ollama has to answer. It is asked only when nothing else is found.
const PROBE: Duration = Duration::from_millis(200);

/// Everything that the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What the client asked for: `provider/model` or `provider`.
    pub requested: Option<&'a str>,
    /// `model` of the user's settings, in the same form.
    pub configured: Option<&'a str>,
    /// File and line of that.
    pub configured_at: Option<&'a str>,
    pub providers: &'a BTreeMap<String, ProviderSettings>,
    /// Mistakes of the settings that may concern the answer.
    pub doubts: &'a [Doubt],
    pub keys: &'a [FoundKey],
    /// The first model of the Ollama that answered, if one was asked and did. See [`Question::needs_ollama`].
    pub ollama: Option<&'a str>,
}

/// A key that the daemon can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundKey {
    pub provider: String,
    /// Where it is, for people: `the file …`, `the variable OPENAI_API_KEY`.
    pub source: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub provider: String,
    pub model: String,
    /// For people, one line without a full stop.
    pub reason: String,
}

/// Why there is no model. Always about the field `model`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    #[error("there is no provider `{name}`; known are {known}. A model is written provider/model")]
    UnknownProvider { name: String, known: String },
    #[error("{source_text} names the provider `{provider}` without a model: write `{provider}/NAME`")]
    NoModel { provider: String, source_text: &'static str },
    #[error(
        "Ollama does not answer or has no model. Start it with `ollama serve`, get a model with `ollama pull NAME`"
    )]
    NoOllama,
    #[error("there is no key for {provider}. Store one with `agentctl key add {provider}`{}", import_hint(.env.as_deref()))]
    NoKey { provider: String, env: Option<String> },
    #[error(
        "no model is set up. Type one of:\n  agentctl key add anthropic      (or openai, deepseek, openrouter)\n  \
         export ANTHROPIC_API_KEY=… && agentctl key import\n  ollama serve                    (a local model)\n  \
         agentctl demo                   (a playback, needs nothing)\nconfig.toml is read when \
         the daemon starts; after a change of it type: agentctl daemon stop"
    )]
    Nothing,
    /// What the settings name cannot be used.
    #[error(
        "{at}: {why}\nMend it, then type: agentctl daemon stop (or name a model: agentctl run --model PROVIDER/MODEL …)"
    )]
    Configured { at: String, why: Box<ChooseError> },
    #[error("{why}\nSo it is not sure which model is meant, and none is taken. Mend it, then type: agentctl daemon stop{}", or_name(.about))]
    Doubtful { about: Concern, why: String },
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

impl ChooseError {
    /// The field of `session/new` that is wrong.
    pub const FIELD: &'static str = "model";
}

/// A mistake about one provider, or about which one, leaves the others to be named.
fn or_name(about: &Concern) -> &'static str {
    match about {
        Concern::All => "",
        Concern::Model | Concern::Provider(_) => " (or name a model: agentctl run --model PROVIDER/MODEL …)",
    }
}

fn import_hint(env: Option<&str>) -> String {
    env.map(|env| format!(", or `export {env}=…` and `agentctl key import`")).unwrap_or_default()
}

impl Question<'_> {
    /// Whether the answer depends on a local Ollama, so that it is worth asking it.
    #[must_use]
    pub fn needs_ollama(&self) -> bool {
        match self.requested.or(self.configured) {
            Some(named) => named == OLLAMA,
            None => self.keyed().next().is_none(),
        }
    }

    /// The keys that decide, in the presets' order.
    fn keyed(&self) -> impl Iterator<Item = (&'static providers::Preset, &FoundKey)> {
        let with_key = PRESETS.iter().filter(|preset| preset.key_env.is_some());
        with_key
            .filter_map(|preset| Some((preset, self.keys.iter().find(|key| key.provider == preset.name)?)))
    }
}

/// Asked for, set, the key found, a local Ollama: in this order.
///
/// # Errors
/// Nothing found, or what was named cannot be used; the text says what to type.
pub fn choose(question: &Question<'_>) -> Result<Choice, ChooseError> {
    let named = question.requested.or(question.configured);
    let provider = named.map(|named| named.trim().split('/').next().unwrap_or_default());
    // The demo reaches nobody.
    if provider != Some(DEMO)
        && let Some(doubt) = doubt_about(question.doubts, provider)
    {
        return Err(ChooseError::Doubtful { about: doubt.about.clone(), why: doubt.why.clone() });
    }
    if let Some(named) = question.requested {
        return name(question, named, "the request", "asked for");
    }
    if let Some(named) = question.configured {
        let chosen = name(question, named, "`model` in config.toml", "set in config.toml");
        return chosen.map_err(|error| match (error, question.configured_at) {
            // The file is in order; what it names is not there.
            (error @ (ChooseError::NoKey { .. } | ChooseError::NoOllama), _) | (error, None) => error,
            (error, Some(at)) => ChooseError::Configured { at: at.to_owned(), why: Box::new(error) },
        });
    }
    let keyed: Vec<_> = question.keyed().collect();
    if let Some((preset, key)) = keyed.first() {
        let others: Vec<&str> = keyed[1..].iter().map(|(preset, _)| preset.name).collect();
        let reason = if others.is_empty() {
            format!("its key is the only one found, in {}", key.source)
        } else {
            format!(
                "its key was found in {}; it comes before {}, whose keys are there too; --model chooses another",
                key.source,
                others.join(", ")
            )
        };
        let model = preset.default_model.unwrap_or_default().to_owned();
        return Ok(Choice { provider: preset.name.to_owned(), model, reason });
    }
    match question.ollama {
        Some(model) => Ok(Choice {
            provider: OLLAMA.to_owned(),
            model: model.to_owned(),
            reason: "no key was found, and a local Ollama answers".to_owned(),
        }),
        None => Err(ChooseError::Nothing),
    }
}

fn name(
    question: &Question<'_>,
    named: &str,
    source_text: &'static str,
    reason: &str,
) -> Result<Choice, ChooseError> {
    let named = named.trim();
    let (provider, model) =
        named.split_once('/').map_or((named, None), |(provider, model)| (provider, Some(model)));
    let settings = question.providers.get(provider);
    if preset(provider).is_none() && settings.is_none() {
        return Err(ChooseError::UnknownProvider { name: show_line(provider), known: known(question) });
    }
    let resolved = providers::resolve(provider, settings)?;
    let no_model = || ChooseError::NoModel { provider: provider.to_owned(), source_text };
    let model = match (model.map(str::trim), preset(provider).and_then(|preset| preset.default_model)) {
        (Some(""), _) => return Err(no_model()),
        (Some(model), _) => model.to_owned(),
        (None, Some(default)) => default.to_owned(),
        (None, None) if provider == OLLAMA => question.ollama.ok_or(ChooseError::NoOllama)?.to_owned(),
        (None, None) => return Err(no_model()),
    };
    let has_key = question.keys.iter().any(|key| key.provider == provider);
    if resolved.needs_key && !has_key {
        return Err(ChooseError::NoKey { provider: provider.to_owned(), env: resolved.key_env });
    }
    Ok(Choice { provider: provider.to_owned(), model, reason: reason.to_owned() })
}

/// `anthropic, openai, … and mine`.
fn known(question: &Question<'_>) -> String {
    let own = question.providers.keys().map(String::as_str).filter(|name| preset(name).is_none());
    PRESETS.iter().map(|preset| preset.name).chain(own).collect::<Vec<_>>().join(", ")
}

/// The first model of the Ollama at `base_url` (with or without its `/v1`), if one answers quickly.
pub async fn probe_ollama(base_url: &str) -> Option<String> {
    tokio::time::timeout(PROBE, first_model(base_url)).await.ok().flatten()
}

pub(super) async fn first_model(base_url: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Tags {
        models: Vec<Tag>,
    }
    #[derive(Deserialize)]
    struct Tag {
        name: String,
    }
    let root = base_url.trim_end_matches('/');
    let url = format!("{}/api/tags", root.strip_suffix("/v1").unwrap_or(root));
    let response = plain_loopback_client().ok()?.get(url).send().await.ok()?.error_for_status().ok()?;
    let tags: Tags = serde_json::from_slice(&response.bytes().await.ok()?).ok()?;
    tags.models.into_iter().next().map(|tag| tag.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(providers: &[&str]) -> Vec<FoundKey> {
        let key =
            |name: &&str| FoundKey { provider: (*name).to_owned(), source: format!("the file keys/{name}") };
        providers.iter().map(key).collect()
    }

    fn custom() -> BTreeMap<String, ProviderSettings> {
        let settings = ProviderSettings {
            dialect: Some(crate::config::Dialect::OpenaiChat),
            base_url: Some("http://127.0.0.1:9/v1".into()),
            ..ProviderSettings::default()
        };
        BTreeMap::from([("mine".to_owned(), settings.clone()), ("openai".to_owned(), settings)])
    }

    fn ask(requested: Option<&str>, configured: Option<&str>, with: &[&str], ollama: Option<&str>) -> String {
        let (keys, providers) = (keys(with), custom());
        let question = Question {
            requested,
            configured,
            configured_at: None,
            providers: &providers,
            doubts: &[],
            keys: &keys,
            ollama,
        };
        match choose(&question) {
            Ok(choice) => format!("{}/{} ({})", choice.provider, choice.model, choice.reason),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn precedence() {
        let rows = [
            ask(Some("deepseek/x"), Some("anthropic/y"), &["deepseek", "anthropic"], Some("q")),
            ask(None, Some("anthropic/y"), &["deepseek", "anthropic"], Some("q")),
            ask(None, None, &["deepseek"], Some("q")),
            ask(None, None, &["openrouter", "openai", "anthropic"], Some("q")),
            ask(None, None, &["mine"], Some("q")),
            ask(None, None, &[], None),
            ask(Some("openai"), None, &[], None),
            ask(Some("anthropic"), None, &["anthropic"], None),
            ask(Some("anthropic/claude/odd"), None, &["anthropic"], None),
            ask(Some("deepseek"), None, &["anthropic"], Some("q")),
            ask(Some("ollama"), None, &[], Some("qwen3:8b")),
            ask(Some("ollama"), None, &[], None),
            ask(Some("ollama/llama"), None, &[], None),
            ask(Some("lmstudio"), None, &[], None),
            ask(None, Some("mine"), &[], None),
            ask(Some("mine/x"), None, &[], None),
            ask(Some("anthropic/"), None, &["anthropic"], None),
            ask(Some("claude-opus-5-5"), None, &["anthropic"], None),
            ask(Some("a\u{1b}b/x"), None, &[], None),
            ask(Some(""), None, &["anthropic"], None),
            ask(Some("demo"), None, &[], None),
        ];
        insta::assert_snapshot!(rows.join("\n"));
    }

    #[test]
    fn what_the_settings_name_and_is_not_there_is_told_with_file_and_line() {
        let (keys, providers) = (keys(&["anthropic"]), custom());
        let told = |configured, requested| {
            let question = Question {
                requested,
                configured: Some(configured),
                configured_at: Some("/c/config.toml:7"),
                providers: &providers,
                doubts: &[],
                keys: &keys,
                ollama: None,
            };
            choose(&question).unwrap_err().to_string()
        };
        for (configured, why) in [("nope/y", "there is no provider `nope`"), ("mine", "without a model")] {
            let text = told(configured, None);
            assert!(text.starts_with("/c/config.toml:7: ") && text.contains(why), "{text}");
            assert!(text.contains("agentctl daemon stop"), "{text}");
        }
        // That a key is missing is no mistake of the file, and what was asked for does not stand in it.
        assert!(told("openrouter/x", None).starts_with("there is no key for openrouter"));
        assert!(told("anthropic", Some("nope/y")).starts_with("there is no provider `nope`"));
    }

    #[test]
    fn a_mistake_in_the_settings_is_not_guessed_around() {
        let (keys, providers) = (keys(&["openai", "anthropic"]), custom());
        let ask = |about: Concern, requested, configured| {
            let doubts = [Doubt { about, why: "config.toml:1: oops".into() }];
            let question = Question {
                requested,
                configured,
                configured_at: None,
                providers: &providers,
                doubts: &doubts,
                keys: &keys,
                ollama: None,
            };
            match choose(&question) {
                Ok(choice) => choice.provider,
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("config.toml:1: oops") && text.contains("agentctl daemon stop"));
                    "refused".to_owned()
                }
            }
        };
        let mine = || Concern::Provider("mine".into());
        for (about, requested, configured, expected) in [
            (Concern::All, None, None, "refused"),
            (Concern::All, Some("anthropic"), None, "refused"),
            (Concern::All, Some("demo/tour"), None, "demo"),
            (Concern::Model, None, None, "refused"),
            (Concern::Model, Some("anthropic"), None, "anthropic"),
            (Concern::Model, None, Some("mine/x"), "mine"),
            (mine(), None, None, "refused"),
            (mine(), None, Some("mine/x"), "refused"),
            (mine(), Some("mine/x"), None, "refused"),
            (mine(), None, Some("anthropic"), "anthropic"),
        ] {
            assert_eq!(
                ask(about.clone(), requested, configured),
                expected,
                "{about:?} {requested:?} {configured:?}"
            );
        }
    }

    #[test]
    fn ollama_is_asked_only_when_it_matters() {
        let providers = BTreeMap::new();
        let (none, one) = (keys(&[]), keys(&["openai"]));
        let question = |requested, keys| Question {
            requested,
            configured: None,
            configured_at: None,
            providers: &providers,
            doubts: &[],
            keys,
            ollama: None,
        };
        assert!(question(None, &none).needs_ollama());
        assert!(!question(None, &one).needs_ollama());
        assert!(question(Some("ollama"), &one).needs_ollama());
        assert!(!question(Some("ollama/x"), &none).needs_ollama());
    }
}
