//! What the gate would say to a call, and why: the same preparation and the same gate, without the call.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentd_protocol::Mode;
use agentd_protocol::permission::{CheckResult, PartInfo, RuleInfo, RulesResult};
use agentd_protocol::session::Origin;

use super::actor::Session;
use super::approval::effect_lines;
use super::calls::{kept_grant, offered};
use super::commit::storage;
use super::deps::{Breakers, Deps, Policy};
use super::error::SessionError;
use super::flight::contained_prepare;
use crate::ids::SessionId;
use crate::permission::effect::Effect;
use crate::permission::{self, Places, Query, Rules, Ruling};
use crate::process;
use crate::store::kept::KeptError;
use crate::tool::{Closed, Scene};

/// All that the gate's answer depends on but the call. A snapshot: asking it holds up no session.
pub struct Inquiry {
    pub(super) deps: Arc<Deps>,
    pub(super) scene: Scene,
    pub(super) places: Places,
    pub(super) rules: Rules,
    pub(super) policy: Arc<Policy>,
    pub(super) breakers: Breakers,
    pub(super) mode: Mode,
}

impl Session {
    pub(super) fn inquiry(&self) -> Inquiry {
        Inquiry {
            deps: Arc::clone(&self.deps),
            scene: self.scene(),
            places: self.places(),
            rules: self.rules().into_owned(),
            policy: Arc::clone(&self.policy),
            breakers: self.breakers(),
            mode: self.state.mode,
        }
    }
}

impl Inquiry {
    /// As a new session in this folder would ask; without one, as one in the user's home.
    ///
    /// # Errors
    /// The folder is none.
    pub fn of_folder(deps: Arc<Deps>, cwd: Option<&str>) -> Result<Self, SessionError> {
        let cwd = match cwd {
            Some(cwd) => crate::workspace::project_folder(cwd)
                .map_err(|error| SessionError::invalid("cwd", error.to_string()))?,
            None => deps.home.clone(),
        };
        let policy = deps.policies.of(&cwd);
        let root = deps.policies.root(&cwd);
        let saved = deps.kept.about(&root).unwrap_or_default();
        let saved: Vec<_> = saved.rules.iter().map(kept_grant).collect();
        let id = SessionId::generate();
        let scratch = deps.paths.scratch(id);
        let owner = process::Owner { home: &deps.home, user: &deps.user };
        let env = process::base_env(&BTreeMap::new(), &deps.shell_env, owner, &scratch);
        let scene = Scene {
            session: id,
            cwd: cwd.clone(),
            plan_file: None,
            reads: Arc::default(),
            env: Arc::new(env),
            scratch,
            closed: Closed { own: deps.own.clone().into(), ..Closed::default() },
        };
        let places = Places {
            workspace: vec![cwd.clone()],
            root,
            own: deps.own.clone(),
            plan_file: None,
            own_readable: Vec::new(),
            home: deps.home.clone(),
        };
        let breakers = Breakers { own: false, everywhere: super::breaker::is_open_everywhere(&deps.kept) };
        let rules = policy.rules.with_grants(&saved);
        Ok(Self { scene, places, rules, mode: policy.mode, breakers, policy, deps })
    }

    /// # Errors
    /// There is no such tool, or it does not take such arguments.
    pub async fn check(
        self,
        tool: &str,
        input: serde_json::Value,
        mode: Option<Mode>,
    ) -> Result<CheckResult, SessionError> {
        let found = self.deps.tools.find(tool).ok_or_else(|| {
            let known: Vec<_> = self.deps.tools.specs().into_iter().map(|spec| spec.name).collect();
            SessionError::invalid(
                "tool",
                format!("there is no tool {tool:?}; the tools are {}", known.join(", ")),
            )
        })?;
        let input = serde_json::value::to_raw_value(&input)
            .map_err(|error| SessionError::invalid("input", error.to_string()))?;
        let (name, scene) = (tool.to_owned(), self.scene.clone());
        let prepared = super::blocking(move || contained_prepare(&name, || found.prepare(&input, &scene)))
            .await
            .map_err(|error| SessionError::invalid("input", error.0))?;
        let mode = self.policy.still_available(mode.unwrap_or(self.mode), self.breakers);
        let query = Query {
            tool,
            effects: &prepared.effects,
            mode,
            rules: &self.rules,
            places: &self.places,
            origin: Origin::Client,
            stated: None,
            sandbox: self.policy.sandbox,
            plan_shell: self.policy.plan_shell,
        };
        let verdict = permission::judge(&query);
        let line = prepared.effects.iter().find_map(|effect| match effect {
            Effect::RunCommand(command) => Some(&command.line),
            _ => None,
        });
        let parts = line.iter().flat_map(|line| &line.parts).map(|part| PartInfo {
            command: part.text.clone(),
            reads_only: part.proof.is_some(),
            rule: self.rules.about_part(part).map(info),
        });
        Ok(CheckResult {
            decision: verdict.ruling.decision(),
            classified: verdict.ruling == Ruling::Classify,
            reason: verdict.reason.code().to_owned(),
            explanation: verdict.reason.explain().to_owned(),
            rule: verdict
                .rule
                .as_ref()
                .and_then(|text| self.rules.iter().find(|rule| rule.text() == text))
                .map(info),
            confinement: verdict.confinement,
            mode,
            effects: effect_lines(&prepared.effects),
            parts: parts.collect(),
            doubt: line.and_then(|line| line.doubt).map(|doubt| doubt.explain().to_owned()),
            rules: offered(&permission::offer(&query, &verdict)),
        })
    }

    pub async fn rules(self) -> RulesResult {
        let (deps, cwd) = (Arc::clone(&self.deps), self.scene.cwd.clone());
        let notices = super::blocking(move || deps.policies.project_notices(&cwd)).await;
        RulesResult {
            notices,
            rules: self.rules.iter().map(info).collect(),
            unreadable: self.rules.is_unreadable(),
        }
    }
}

fn info(rule: &crate::permission::rules::Rule) -> RuleInfo {
    let source = &rule.source;
    RuleInfo {
        list: source.list,
        rule: source.text.clone(),
        layer: source.layer,
        place: source.place.clone(),
    }
}

/// Why what a person said about a project was not kept.
pub fn unkept(error: KeptError) -> SessionError {
    match error {
        KeptError::Full | KeptError::Path => SessionError::Conflict(error.to_string()),
        error => storage(error.to_string()),
    }
}
