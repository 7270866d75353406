//! Which rules a person's answer could make of a call that is asked about: as narrow as the call, and only where they
//! would settle it.

use std::path::Path;

use agentd_protocol::permission::Confinement;

use super::effect::{CommandTarget, Effect, PathTarget, Via};
use super::places::Place;
use super::rules::{Grant, Layer, exact_path};
use super::shell::escape;
use super::{Query, Ruling, Verdict, judge};

/// A command of more parts makes no rules.
const MAX_PARTS: usize = 5;

/// What a person may choose besides this once and no. Empty: the choice is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    pub session: Vec<Grant>,
    pub always: Vec<Grant>,
}

/// The rules for a call that `verdict` asks about. Each list, added to the rules of `query`, makes the same call run without
/// a question; where it would not, because a protected path, a critical command or an ask rule is asked about each time, it
/// is empty.
#[must_use]
pub fn offer(query: &Query<'_>, verdict: &Verdict) -> Offer {
    if !matches!(verdict.ruling, Ruling::Ask | Ruling::Classify) {
        return Offer::default();
    }
    let settles = |grants: Option<Vec<Grant>>| {
        let grants = grants?;
        let rules = query.rules.with_grants(&grants);
        let then = judge(&Query { rules: &rules, ..*query });
        (then.ruling == Ruling::Allow && then.confinement == verdict.confinement).then_some(grants)
    };
    let grants = |layer: Layer| {
        let maker = Maker { query, layer, unconfined: verdict.confinement == Some(Confinement::Off) };
        settles(maker.grants()).unwrap_or_default()
    };
    Offer { session: grants(Layer::Session), always: grants(Layer::Saved) }
}

struct Maker<'a> {
    query: &'a Query<'a>,
    layer: Layer,
    unconfined: bool,
}

impl Maker<'_> {
    /// A rule for each effect that needs one; absent if one of them makes none.
    fn grants(&self) -> Option<Vec<Grant>> {
        let mut grants = Vec::new();
        for effect in self.query.effects {
            let alone = judge(&Query { effects: std::slice::from_ref(effect), ..*self.query });
            if alone.ruling == Ruling::Allow {
                continue;
            }
            for grant in self.of(effect)? {
                if !grants.contains(&grant) {
                    grants.push(grant);
                }
            }
        }
        (!grants.is_empty()).then_some(grants)
    }

    fn of(&self, effect: &Effect) -> Option<Vec<Grant>> {
        let rule = match effect {
            Effect::RunCommand(command) => return self.command(command),
            Effect::ReadPath(path) => format!("Read({})", self.read(path)?),
            // An edit is never the same one again, so none is allowed for good.
            Effect::WritePath(path) if self.layer == Layer::Session => {
                format!("Edit({})", exact_path(&path.real)?)
            }
            Effect::FetchHost(target) => format!("WebFetch(domain:{})", target.host),
            Effect::CallMcp(target) => {
                let rule = format!("mcp__{}__{}", target.server, target.tool);
                return Some(vec![Grant { identity: Some(target.identity), ..self.grant(rule) }]);
            }
            Effect::WritePath(_)
            | Effect::SpawnAgent(_)
            | Effect::UseSkill(_)
            | Effect::Automate(_)
            | Effect::Sleep
            | Effect::AskPerson
            | Effect::EnterPlan
            | Effect::LeavePlan => return None,
        };
        Some(vec![self.grant(rule)])
    }

    fn grant(&self, rule: String) -> Grant {
        Grant { rule, layer: self.layer, unconfined: false, identity: None }
    }

    /// A rule for each part as it stands. A part that changes what later ones mean cannot be taken out of its line.
    fn command(&self, command: &CommandTarget) -> Option<Vec<Grant>> {
        let line = &command.line;
        if line.parts.len() > MAX_PARTS {
            return None;
        }
        line.parts
            .iter()
            .map(|part| {
                let grant = self.grant(format!("Bash({})", escape(&part.text)));
                (part.plain && !part.changes_shell).then_some(Grant { unconfined: self.unconfined, ..grant })
            })
            .collect()
    }

    /// For a session everything under the folder, so that looking around elsewhere is one question; for good this file.
    fn read(&self, path: &PathTarget) -> Option<String> {
        if self.layer == Layer::Session
            && path.via == Via::Tool
            && let Some(folder) = self.folder(&path.real)
        {
            return Some(format!("{}/**", exact_path(folder)?));
        }
        exact_path(&path.real)
    }

    /// The folder of a file, unless it is one that holds half the machine.
    fn folder<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        let folder = path.parent()?;
        let places = self.query.places;
        let wide = folder.components().count() < 3
            || places.home.starts_with(folder)
            || matches!(places.of(folder), Place::AroundOwn | Place::Own | Place::Unresolved);
        (!wide).then_some(folder)
    }
}
