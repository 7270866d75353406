//! Which model a session talks to, and with which key: settings, stored keys and local servers brought together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::key::{KeyInfo, KeyListResult, KeyProvider, KeyTestResult};
use agentd_protocol::session::ModelInfo;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use super::error::SessionError;
use super::{blocking, commit};
use crate::config::{Doubt, ProviderSettings, doubt_about};
use crate::model::choose::choose;
use crate::model::message::{Block, Message, Request, Role};
use crate::model::{Base, ChooseError, Endpoint, FoundKey, ModelClient, ModelQuestion, SampleError};
use crate::model::{probe_ollama, providers};
use crate::process::{CommandSpec, OutputLimits, Parts, Spawner, Status};
use crate::secret::{Found, KeyError, KeyStore, Wanted};

/// How long a key command may take.
const KEY_COMMAND: Duration = Duration::from_secs(10);

pub struct Models {
    client: ModelClient,
    settings_model: Option<String>,
    /// File and line of that.
    settings_model_at: Option<String>,
    providers: BTreeMap<String, ProviderSettings>,
    doubts: Vec<Doubt>,
    keys: Arc<KeyStore>,
    spawner: Arc<Spawner>,
    /// For key commands, which belong to the user and not to a session.
    env: Vec<(String, String)>,
}

impl Models {
    #[must_use]
    pub fn new(
        settings_model: Option<String>,
        providers: BTreeMap<String, ProviderSettings>,
        keys: Arc<KeyStore>,
        spawner: Arc<Spawner>,
        env: Vec<(String, String)>,
    ) -> Self {
        let doubts = Vec::new();
        let (client, settings_model_at) = (ModelClient::new(), None);
        Self { client, settings_model, settings_model_at, providers, doubts, keys, spawner, env }
    }

    /// The same, with mistakes of the settings that may concern the model.
    #[must_use]
    pub fn doubting(self, doubts: Vec<Doubt>) -> Self {
        Self { doubts, ..self }
    }

    /// The same, with the file and line of the settings' model.
    #[must_use]
    pub fn set_at(self, settings_model_at: Option<String>) -> Self {
        Self { settings_model_at, ..self }
    }

    #[must_use]
    pub fn client(&self) -> &ModelClient {
        &self.client
    }

    /// The model of a new session, with the reason for it.
    ///
    /// # Errors
    /// Nothing found, or what was asked for cannot be used: the field `model`, with what to type.
    pub async fn choose(&self, requested: Option<&str>) -> Result<ModelInfo, SessionError> {
        let keys = self.found_keys().await?;
        let mut question = ModelQuestion {
            requested,
            configured: self.settings_model.as_deref(),
            configured_at: self.settings_model_at.as_deref(),
            providers: &self.providers,
            doubts: &self.doubts,
            keys: &keys,
            ollama: None,
        };
        let ollama = match question.needs_ollama() {
            true => {
                let own = self.providers.get(providers::OLLAMA).and_then(|own| own.base_url.as_deref());
                probe_ollama(own.unwrap_or(providers::OLLAMA_BASE_URL)).await
            }
            false => None,
        };
        question.ollama = ollama.as_deref();
        let choice = choose(&question)
            .map_err(|error| SessionError::invalid(ChooseError::FIELD, error.to_string()))?;
        Ok(ModelInfo { provider: choice.provider, model: choice.model, reason: choice.reason })
    }

    /// The model that judges calls for mode `auto`: that of the settings, else the session's own.
    ///
    /// # Errors
    /// The settings name one that cannot be used.
    pub async fn classifier(
        &self,
        configured: Option<&str>,
        own: &ModelInfo,
    ) -> Result<ModelInfo, SessionError> {
        match configured {
            Some(name) => self.choose(Some(name)).await,
            None => Ok(own.clone()),
        }
    }

    /// Where the presets and the settings expect keys.
    fn wanted(&self) -> Vec<(String, Option<&'static str>)> {
        let presets = providers::PRESETS
            .iter()
            .filter(|preset| preset.key_env.is_some())
            .map(|preset| (preset.name.to_owned(), preset.key_env));
        let own = self
            .providers
            .keys()
            .filter(|name| providers::preset(name).is_none())
            .map(|name| (name.clone(), None));
        presets.chain(own).collect()
    }

    async fn found_keys(&self) -> Result<Vec<FoundKey>, SessionError> {
        let keys = Arc::clone(&self.keys);
        let wanted = self.wanted();
        let settings = self.providers.clone();
        Ok(blocking(move || {
            wanted
                .into_iter()
                .filter_map(|(provider, preset_env)| {
                    let wanted =
                        Wanted { provider: &provider, settings: settings.get(&provider), preset_env };
                    // A key that cannot be read is told when it is used; it must not hide the others.
                    let found = keys.find(wanted).ok().flatten()?;
                    let source = found.source().to_string();
                    Some(FoundKey { provider, source })
                })
                .collect()
        })
        .await)
    }

    /// Everything a request to `provider` needs.
    ///
    /// # Errors
    /// Settings that make no endpoint, or a key that cannot be read.
    pub async fn endpoint(&self, provider: &str) -> Result<Endpoint, SampleError> {
        // A session that was made while the settings were in order must not go elsewhere either.
        if provider != providers::DEMO
            && let Some(doubt) = doubt_about(&self.doubts, Some(provider))
        {
            return Err(SampleError::settings(format!(
                "{}\nSo it is not sure where {provider} is, and it is not asked. Mend it, then type: agentctl daemon stop",
                doubt.why
            )));
        }
        let settings = self.providers.get(provider);
        let resolved = providers::resolve(provider, settings)
            .map_err(|error| SampleError::settings(error.to_string()))?;
        let key = match resolved.base {
            Base::Demo => None,
            Base::Url(_) => self.key(provider, resolved.key_env.clone()).await?,
        };
        if resolved.needs_key && key.is_none() {
            return Err(SampleError::settings(format!(
                "There is no key for {provider}. Store one with `agentctl key add {provider}`."
            )));
        }
        let (key, key_source) = key.map_or((None, None), |(key, source)| (Some(key), Some(source)));
        Ok(Endpoint {
            provider: resolved.name,
            dialect: resolved.dialect,
            base: resolved.base,
            key,
            key_source,
            idle: resolved.idle,
        })
    }

    async fn key(
        &self,
        provider: &str,
        preset_env: Option<String>,
    ) -> Result<Option<(SecretString, String)>, SampleError> {
        let keys = Arc::clone(&self.keys);
        let settings = self.providers.get(provider).cloned();
        let name = provider.to_owned();
        let found = blocking(move || {
            keys.find(Wanted {
                provider: &name,
                settings: settings.as_ref(),
                preset_env: preset_env.as_deref(),
            })
        })
        .await
        .map_err(|error| SampleError::settings(format!("{:#}", anyhow::Error::new(error))))?;
        let Some(found) = found else { return Ok(None) };
        let source = found.source().to_string();
        match found {
            Found::Key { secret, .. } => Ok(Some((secret, source))),
            Found::Command(command) => Ok(Some((self.run_key_command(&command).await?, source))),
        }
    }

    /// A command that the user's own settings name: it runs with the user's rights, as a person would run it.
    async fn run_key_command(&self, command: &str) -> Result<SecretString, SampleError> {
        let spec = CommandSpec {
            program: "/bin/bash".into(),
            args: ["--noprofile", "--norc", "-c", command].map(Into::into).into(),
            cwd: "/".into(),
            env: self.env.clone(),
            timeout: KEY_COMMAND,
            grace: Duration::from_secs(1),
            output: OutputLimits::default(),
        };
        let failed = |why: String| SampleError::settings(format!("api_key_command `{command}`: {why}"));
        let finished = self
            .spawner
            .run(spec, CancellationToken::new(), |_| {})
            .await
            .map_err(|error| failed(error.to_string()))?;
        if finished.status != Status::Code(0) {
            return Err(failed(format!("it ended with {:?}", finished.status)));
        }
        let Parts::Whole(text) = finished.output.parts() else {
            return Err(failed("it printed far more than a key".into()));
        };
        crate::secret::parse_key(&text).map_err(|error| failed(error.to_string()))
    }

    // ---- keys, for clients ----

    /// # Errors
    /// An unknown provider, or something that is no key; or the disk does not take it, and the key before it holds.
    pub async fn key_set(&self, provider: String, key: String) -> Result<(), SessionError> {
        self.check_provider(&provider)?;
        let keys = Arc::clone(&self.keys);
        blocking(move || keys.set(&provider, &SecretString::from(key))).await.map(|_| ()).map_err(not_stored)
    }

    /// # Errors
    /// No key is stored for it, it cannot be a provider's name, or the disk does not let it go.
    pub async fn key_delete(&self, provider: String) -> Result<(), SessionError> {
        let keys = Arc::clone(&self.keys);
        let removed = blocking(move || keys.delete(&provider)).await.map_err(not_stored)?;
        if removed { Ok(()) } else { Err(SessionError::NotFound("stored key")) }
    }

    /// # Errors
    /// The key folder cannot be read.
    pub async fn key_list(&self) -> Result<KeyListResult, SessionError> {
        let keys = self.found_keys().await?;
        let keys =
            keys.into_iter().map(|key| KeyInfo { provider: key.provider, source: key.source }).collect();
        let providers = self
            .wanted()
            .into_iter()
            .map(|(provider, env)| KeyProvider { provider, env: env.map(str::to_owned) })
            .collect();
        Ok(KeyListResult { keys, providers })
    }

    /// Sends one small request.
    ///
    /// # Errors
    /// An unknown provider. What the provider itself says is in the result.
    pub async fn key_test(&self, provider: &str) -> Result<KeyTestResult, SessionError> {
        self.check_provider(provider)?;
        // The model that sessions would use, if it is this provider's.
        let own = self.settings_model.as_deref();
        let named = own.filter(|model| model.split('/').next() == Some(provider)).unwrap_or(provider);
        let info = match self.choose(Some(named)).await {
            Ok(info) => info,
            Err(error) => {
                let model = String::new();
                return Ok(KeyTestResult { ok: false, error: Some(error.to_string()), model });
            }
        };
        let request = Request {
            model: info.model.clone(),
            system: "Answer with one word.".into(),
            tools: Vec::new().into(),
            messages: vec![Arc::new(Message {
                role: Role::User,
                blocks: vec![Block::Text { text: "Say ok.".into() }],
                raw: None,
            })],
        };
        let result = match self.endpoint(provider).await {
            Ok(endpoint) => self.client.sample(&endpoint, &request, &mut |_| {}).await,
            Err(error) => Err(error),
        };
        let error = result.err().map(|error| error.to_string());
        Ok(KeyTestResult { ok: error.is_none(), error, model: info.model })
    }

    fn check_provider(&self, provider: &str) -> Result<(), SessionError> {
        let known = self.wanted();
        if known.iter().any(|(name, _)| name == provider) {
            return Ok(());
        }
        let names: Vec<_> = known.iter().map(|(name, _)| name.as_str()).collect();
        Err(SessionError::invalid(
            "provider",
            format!("no provider of this name takes a key; known are {}", names.join(", ")),
        ))
    }
}

/// What the key itself is to blame for is told apart from what the disk is.
fn not_stored(error: KeyError) -> SessionError {
    let field = match &error {
        KeyError::BadName(_) => Some("provider"),
        KeyError::BadKey { .. } => Some("key"),
        _ => None,
    };
    let message = format!("{:#}", anyhow::Error::new(error));
    match field {
        Some(field) => SessionError::invalid(field, message),
        None => commit::storage(message),
    }
}
