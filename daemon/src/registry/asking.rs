//! What the gate would say, to a session or to one that is not there yet.

use std::sync::Arc;

use agentd_protocol::config::{ConfigGetParams, ConfigGetResult, ConfigSetParams, ConfigSetResult};
use agentd_protocol::event::EventBody;
use agentd_protocol::permission::{
    BreakerAction, BreakerOpened, BreakerParams, BreakerResult, ForgetParams, ForgetResult,
};
use agentd_protocol::trust::{TrustAction, TrustParams, TrustResult};
use agentd_protocol::{Event, SessionId};

use super::Registry;
use crate::config::Project;
use crate::session::command::Caller;
use crate::session::command::{Command, person_only};
use crate::session::deps::Deps;
use crate::session::trusting::{difference, items, text};
use crate::session::{Inquiry, SessionError, blocking, settings, unkept};
use crate::store::kept::{Thrown, Trusted};
use crate::workspace;

impl Registry {
    /// What the gate's answers depend on: of a session, or of a new one in a folder.
    ///
    /// # Errors
    /// There is no such session or folder.
    pub async fn inquiry(
        self: &Arc<Self>,
        session: Option<SessionId>,
        cwd: Option<&str>,
    ) -> Result<Inquiry, SessionError> {
        if let Some(id) = session {
            return self.ask(id, |reply| Command::Inquiry { reply }).await.map(|inquiry| *inquiry);
        }
        let (deps, cwd) = (Arc::clone(&self.deps), cwd.map(str::to_owned));
        blocking(move || Inquiry::of_folder(deps, cwd.as_deref())).await
    }

    /// What a project's settings would switch on, and whether they do. Trusts it, or trusts it no more.
    ///
    /// # Errors
    /// There is no such project, it is not what was shown any more, or what was said is not kept.
    pub async fn trust(&self, params: TrustParams, caller: &Caller) -> Result<TrustResult, SessionError> {
        let (deps, by) = (Arc::clone(&self.deps), caller.by.clone());
        let at = deps.clock.now();
        blocking(move || {
            let (root, project) = project(&deps, &params.cwd)?;
            match params.action {
                TrustAction::Show => {}
                TrustAction::Untrust => {
                    deps.kept.untrust(&root).map_err(unkept)?;
                    deps.kept.decline(&root, project.digest).map_err(unkept)?;
                }
                TrustAction::Trust => {
                    let seen = params.digest.ok_or_else(|| {
                        SessionError::invalid("digest", "say what you have seen: the digest that `show` answers")
                    })?;
                    if seen != project.digest {
                        return Err(SessionError::Conflict(format!(
                            "{} would switch on something else now; nothing was trusted. To see it: agentctl trust",
                            root.display()
                        )));
                    }
                    let by = format!("{} {}", by.principal, by.client);
                    let trusted = Trusted { digest: seen, content: text(&items(&project)), by, at };
                    deps.kept.trust(&root, &trusted).map_err(unkept)?;
                }
            }
            let before = deps.kept.about(&root).map_err(unkept)?.trusted.clone();
            let trusted = before.as_ref().is_some_and(|before| before.digest == project.digest);
            let diff = before
                .as_ref()
                .filter(|_| !trusted)
                .map(|before| difference(&before.content, &text(&items(&project))));
            Ok(TrustResult {
                root: root.display().to_string(),
                trusted: trusted || project.widening.is_empty(),
                digest: project.digest,
                diff,
                by: before.as_ref().map(|before| before.by.clone()),
                at: before.as_ref().map(|before| before.at),
                items: items(&project),
            })
        })
        .await
    }

    /// What each setting holds, and who said so.
    ///
    /// # Errors
    /// There is no such session, folder or key.
    pub async fn config(self: &Arc<Self>, params: ConfigGetParams) -> Result<ConfigGetResult, SessionError> {
        let of = match params.session_id {
            Some(id) => {
                let state = self.snapshot(id).await?.state;
                let own = settings::Own {
                    mode: state.mode,
                    model: format!("{}/{}", state.model.provider, state.model.model),
                };
                settings::Of { cwd: Some(state.cwd.into()), session: Some(own) }
            }
            None => {
                let cwd = params.cwd.as_deref().map(workspace::project_folder).transpose();
                let cwd = cwd.map_err(|error| SessionError::invalid("cwd", error.to_string()))?;
                settings::Of { cwd, session: None }
            }
        };
        let policies = Arc::clone(&self.deps.policies);
        blocking(move || policies.config(of, params.key.as_deref())).await
    }

    /// Writes one setting into a file.
    ///
    /// # Errors
    /// Nothing was written.
    pub async fn set_config(&self, params: ConfigSetParams) -> Result<ConfigSetResult, SessionError> {
        let policies = Arc::clone(&self.deps.policies);
        blocking(move || policies.set_config(&params)).await
    }

    /// The breaker of mode `auto`, of a session or of all: looked at, opened or closed.
    ///
    /// # Errors
    /// There is no such session, a program would close it, or the disk.
    pub async fn breaker(
        self: &Arc<Self>,
        params: BreakerParams,
        caller: &Caller,
    ) -> Result<BreakerResult, SessionError> {
        let session = match params.session_id {
            None => {
                self.set_breaker(params.action, caller).await?;
                None
            }
            Some(id) => {
                let (action, caller) = (params.action, caller.clone());
                Some(self.ask(id, |reply| Command::Breaker { action, caller, reply }).await?)
            }
        };
        let deps = Arc::clone(&self.deps);
        blocking(move || {
            let everywhere = deps.kept.breaker().map_err(unkept)?;
            Ok(BreakerResult {
                enabled: deps.policies.of(&deps.home).auto.enabled,
                everywhere: everywhere.map(|Thrown { by, at }| BreakerOpened { by, at }),
                session,
            })
        })
        .await
    }

    async fn set_breaker(&self, action: Option<BreakerAction>, caller: &Caller) -> Result<(), SessionError> {
        let Some(action) = action else { return Ok(()) };
        let (deps, by, at) = (Arc::clone(&self.deps), caller.by.clone(), self.deps.clock.now());
        let thrown = match action {
            BreakerAction::Open => Some(Thrown { by: format!("{} {}", by.principal, by.client), at }),
            BreakerAction::Close => {
                person_only(caller.actor)?;
                None
            }
        };
        let open = thrown.is_some();
        if blocking(move || deps.kept.set_breaker(thrown.as_ref())).await.map_err(unkept)? {
            let body = EventBody::BreakerChanged { open, by, in_row: None, total: None };
            self.feed.fact(Event { at: Some(at), ..Event::new(body) });
        }
        Ok(())
    }

    /// Forgets a rule that a person's answer made for a project.
    ///
    /// # Errors
    /// There is no such folder, or the disk.
    pub async fn forget_rule(&self, params: ForgetParams) -> Result<ForgetResult, SessionError> {
        let deps = Arc::clone(&self.deps);
        blocking(move || {
            let cwd = workspace::project_folder(&params.cwd)
                .map_err(|error| SessionError::invalid("cwd", error.to_string()))?;
            let root = deps.policies.root(&cwd);
            let forgotten = deps.kept.forget(&root, &params.rule).map_err(unkept)?;
            Ok(ForgetResult { forgotten })
        })
        .await
    }
}

fn project(deps: &Deps, cwd: &str) -> Result<(std::path::PathBuf, Project), SessionError> {
    let cwd =
        workspace::project_folder(cwd).map_err(|error| SessionError::invalid("cwd", error.to_string()))?;
    deps.policies.project(&cwd).ok_or_else(|| {
        SessionError::invalid(
            "cwd",
            format!(
                "{} is no project: a home, or the root of the disk, is never trusted as a whole",
                cwd.display()
            ),
        )
    })
}
