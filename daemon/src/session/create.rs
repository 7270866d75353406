//! Making a session: checking what was asked, writing its first commit.

use std::path::PathBuf;
use std::sync::Arc;

use agentd_protocol::session::NewParams;
use agentd_protocol::{MessageId, Mode};
use bytes::Bytes;

use super::blocking;
use super::command::Caller;
use super::commit::storage;
use super::deps::{Breakers, Deps};
use super::error::SessionError;
use super::heir::{narrower, widest_for};
use super::record::{Body, ContextAdded, Created, FORMAT, INLINE_LIMIT, Parent, PlanEntered, Record, Source};
use super::state::SessionState;
use crate::context;
use crate::ids::{Digest, Seq, SessionId, digest_of, words};
use crate::journal::{BlobError, Durability, Journal, JournalError};
use crate::{plan, process};

/// The parameters without the id: the same id with the same parameters is the same session.
#[must_use]
pub fn params_digest(params: &NewParams) -> Digest {
    let params = NewParams { session_id: None, ..params.clone() };
    digest_of(&serde_json::to_vec(&params).unwrap_or_default())
}

/// Refuses what this version does not carry out, naming the field.
fn check_supported(params: &NewParams) -> Result<(), SessionError> {
    let unsupported = [
        ("additionalDirs", &params.additional_dirs),
        ("profile", &params.profile),
        ("worktree", &params.worktree),
        ("limits", &params.limits),
        ("mcpServers", &params.mcp_servers),
    ];
    match unsupported.into_iter().find(|(_, value)| value.is_some()) {
        Some((field, _)) => Err(SessionError::Unsupported { field }),
        None => Ok(()),
    }
}

/// Why a session was not made.
#[derive(Debug)]
pub enum CreateError {
    /// There is a session of this id.
    Exists,
    Failed(SessionError),
}

impl From<SessionError> for CreateError {
    fn from(error: SessionError) -> Self {
        CreateError::Failed(error)
    }
}

/// Makes a session on disk and returns it ready to run. `parent`: the call of another session that it works for.
///
/// # Errors
/// The parameters, the disk, or an id that exists.
pub async fn create(
    deps: &Arc<Deps>,
    id: SessionId,
    params: &NewParams,
    parent: Option<Parent>,
    caller: &Caller,
) -> Result<(SessionState, Journal), CreateError> {
    check_supported(params)?;
    let env = process::filter_client_env(&params.env, &deps.shell_env)
        .map_err(|error| SessionError::invalid("env", error.to_string()))?;
    let cwd = {
        let typed = params.cwd.clone();
        blocking(move || crate::workspace::project_folder(&typed))
            .await
            .map_err(|error| SessionError::invalid("cwd", error.to_string()))?
    };
    if deps.own.iter().any(|own| cwd.starts_with(own)) {
        return Err(SessionError::invalid("cwd", "agentd's own folders are no project").into());
    }
    let policy = deps.policies.fresh(&cwd).await;
    let may = widest_for(caller.actor);
    let wanted = params.mode.unwrap_or_else(|| narrower(policy.mode, may));
    if narrower(wanted, may) != wanted {
        let message =
            format!("only a person may begin a session in {wanted}; a program may in {may} at most");
        return Err(SessionError::Refused(message).into());
    }
    let everywhere = blocking({
        let kept = Arc::clone(&deps.kept);
        move || super::breaker::is_open_everywhere(&kept)
    })
    .await;
    policy.mode_available(wanted, Breakers { own: false, everywhere }).map_err(|message| {
        match params.mode {
            Some(_) => SessionError::Refused(message),
            None => SessionError::Refused(format!("the settings' mode: {message}")),
        }
    })?;
    let title = params.title.as_ref().map(|title| title.trim().to_owned()).filter(|title| !title.is_empty());
    if title.as_ref().is_some_and(|title| title.chars().count() > 200) {
        return Err(SessionError::invalid("title", "a title has at most 200 characters").into());
    }
    let choice = deps.models.choose(params.model.as_deref().or(policy.model.as_deref())).await?;
    if choice.provider == "demo" {
        let folder = cwd.clone();
        blocking(move || crate::workspace::fill_if_empty(&folder, crate::model::demo::project()))
            .await
            .map_err(|error| SessionError::invalid("cwd", error.to_string()))?;
    }
    let folder_name = cwd.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let handle = words::handle_from(title.as_deref().unwrap_or(&folder_name), &mut words::random_noun);

    let asked = Asked { handle, title, cwd, mode: wanted, model: choice, env, params, parent, caller };
    let dir = deps.paths.session_dir(id);
    let specs = serde_json::to_vec(&deps.tools.specs())
        .map_err(|error| storage(format!("the tool list cannot be written down: {error}")))?;
    let blobs = [Bytes::from(context::SYSTEM_PROMPT), specs.into()];
    let (mut journal, prefix) = match deps.journals.create(&dir, blobs.clone()).await {
        Err(BlobError::Journal(JournalError::Exists { .. })) if never_begun(deps, id).await => {
            discard(deps, id).await;
            deps.journals.create(&dir, blobs).await
        }
        other => other,
    }
    .map_err(|error| match error {
        BlobError::Journal(JournalError::Exists { .. }) => CreateError::Exists,
        error => unstored(error).into(),
    })?;
    match begin(deps, id, asked, &mut journal, prefix).await {
        Ok(state) => Ok((state, journal)),
        Err(error) => {
            // Half a session would keep its id from being used again.
            drop(journal);
            discard(deps, id).await;
            Err(error.into())
        }
    }
}

/// A new session's parameters, checked.
struct Asked<'a> {
    handle: String,
    title: Option<String>,
    cwd: PathBuf,
    mode: Mode,
    model: agentd_protocol::session::ModelInfo,
    env: std::collections::BTreeMap<String, String>,
    params: &'a NewParams,
    parent: Option<Parent>,
    caller: &'a Caller,
}

/// Whether the daemon died between making the session's folder and the end of its first commit.
async fn never_begun(deps: &Deps, id: SessionId) -> bool {
    let ends = deps.journals.first_and_last_line(deps.paths.session_dir(id)).await;
    ends.is_ok_and(|ends| !ends.begun)
}

async fn discard(deps: &Deps, id: SessionId) {
    if let Err(error) = deps.journals.remove_session(deps.paths.session_dir(id)).await {
        tracing::warn!(session = %id, %error, "a session that did not begin was left behind");
    }
}

fn unstored(error: impl Into<anyhow::Error>) -> SessionError {
    storage(format!("{:#}", error.into()))
}

/// Writes what belongs beside the journal, then the first commit.
async fn begin(
    deps: &Arc<Deps>,
    id: SessionId,
    asked: Asked<'_>,
    journal: &mut Journal,
    [system_prompt, tools]: [Digest; 2],
) -> Result<SessionState, SessionError> {
    let Asked { handle, title, cwd, mode, model, env, params, parent, caller } = asked;
    let paths = Arc::clone(&deps.paths);
    blocking(move || paths.write_session_env(id, &env)).await.map_err(unstored)?;

    let environment = environment(deps, &cwd).await;
    let environment = if environment.len() <= INLINE_LIMIT {
        Body::Inline(environment)
    } else {
        let (size, head) = (environment.len() as u64, environment.chars().take(200).collect());
        let blob = journal.blobs().put(environment.into()).await.map_err(unstored)?;
        Body::Blob { blob, size, head, tail: String::new() }
    };

    let created = Created {
        format: FORMAT,
        daemon_id: deps.daemon_id,
        session_id: id,
        handle: handle.clone(),
        title,
        cwd,
        mode,
        model,
        parent,
        origin: caller.origin(),
        by: caller.by.clone(),
        system_prompt,
        tools,
        params: params_digest(params),
        forked_from: None,
    };
    let mut records = vec![Record::from(created.clone())];
    let plan = if mode == Mode::Plan { Some(first_plan(deps, id, handle).await?) } else { None };
    if let Some(plan::Created { slug, path }) = &plan {
        // The settings or the creator say plan: there is no mode from before, so leaving returns to default.
        let (slug, path) = (slug.clone(), path.clone());
        records
            .push(PlanEntered { pre_mode: Mode::Default, slug, path, cycle: 1, running: Vec::new() }.into());
    }
    records.push(said(id, Source::Environment, environment));
    if let Some(plan::Created { path, .. }) = &plan {
        let text =
            context::note(&super::planning::plan_guidance(deps.policies.user().commands_in_plan(), path));
        records.push(said(id, Source::Guidance, Body::Inline(text)));
    }
    let at = deps.clock.now();
    let raw = records.iter().map(|record| record.to_raw(None)).collect();
    let appended = match journal.append(Seq(1), at, raw, Durability::Written).await {
        Ok(appended) => appended,
        Err(error) => {
            if let Some(plan::Created { path, .. }) = plan {
                let paths = Arc::clone(&deps.paths);
                let _ = blocking(move || paths.remove_plan(&path)).await;
            }
            return Err(unstored(error));
        }
    };
    let mut state = SessionState::new(created, appended.first, at);
    for (index, record) in (0u32..).zip(&records) {
        let seq = Seq(appended.first.0 + u64::from(index));
        state.apply(seq, at, appended.place.record(index), record);
    }
    Ok(state)
}

/// The empty file of the plan that a session begins with.
async fn first_plan(deps: &Deps, id: SessionId, handle: String) -> Result<plan::Created, SessionError> {
    let folder = deps.paths.plans_dir();
    blocking(move || {
        let stem = plan::stem_from(None, &handle);
        plan::create(&folder, &stem, id, &mut words::random_noun)
    })
    .await
    .map_err(unstored)
}

fn said(id: SessionId, source: Source, text: Body) -> Record {
    ContextAdded { message_id: MessageId::generate(id), source, origin: None, text }.into()
}

/// What the model is told about where it is. Read once: the prefix of a session does not change.
async fn environment(deps: &Arc<Deps>, cwd: &std::path::Path) -> String {
    let folder: PathBuf = cwd.to_owned();
    let facts = blocking(move || crate::workspace::project_facts(&folder)).await;
    let date = deps.clock.now().to_string();
    let mut text = context::environment(&context::Environment {
        cwd,
        date: date.get(..10).unwrap_or_default(),
        platform: platform(),
        git_branch: facts.git_branch.as_deref(),
    });
    let files: Vec<_> =
        facts.instructions.iter().map(|(name, text)| context::Instructions { name, text }).collect();
    if let Some(instructions) = context::project_instructions(&files) {
        text.push_str("\n\n");
        text.push_str(&instructions);
    }
    text
}

fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "linux x86_64",
        "aarch64" => "linux aarch64",
        _ => "linux",
    }
}

/// The environment of a session's processes: what its client sent, on top of a base built from nothing.
///
/// # Errors
/// What was stored of it cannot be read.
pub async fn environment_for_processes(
    deps: &Arc<Deps>,
    id: SessionId,
) -> Result<Arc<Vec<(String, String)>>, SessionError> {
    let paths = Arc::clone(&deps.paths);
    let scratch = paths.scratch(id);
    let stored = blocking(move || {
        paths.make_scratch(id)?;
        paths.read_session_env(id)
    })
    .await
    .map_err(unstored)?;
    let owner = process::Owner { home: &deps.home, user: &deps.user };
    Ok(Arc::new(process::base_env(&stored, &deps.shell_env, owner, &scratch)))
}
