//! Settings as people ask for them: what each key holds, who said so, and one of them changed. What is told here is read by
//! the same code as what counts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentd_protocol::Mode;
use agentd_protocol::config::{
    ConfigEntry, ConfigFile, ConfigGetResult, ConfigLayer, ConfigSaid, ConfigScope, ConfigSetParams,
    ConfigSetResult, ConfigTarget,
};
use serde_json::Value;

use super::error::SessionError;
use super::policies::{Host, Policies, ProjectNow, Standing, new_rule_mistakes};
use crate::config::keys::{self, Key, Scope, Shape};
use crate::config::{self, Change, EditError, Layer, Loaded, Project, Said};
use crate::workspace::{self, Base, Expected, Located, PathError};

/// Whose settings are asked for.
#[derive(Clone, Debug, Default)]
pub struct Of {
    /// A folder by its true name. Absent: only the user's.
    pub cwd: Option<PathBuf>,
    /// What a session has for its own.
    pub session: Option<Own>,
}

#[derive(Clone, Debug)]
pub struct Own {
    pub mode: Mode,
    pub model: String,
}

/// What all layers say.
struct Told {
    user_file: PathBuf,
    user: Arc<Loaded>,
    started: Arc<Loaded>,
    project: Option<ProjectNow>,
    host: Host,
    session: Option<Own>,
}

impl Policies {
    /// Every key, or those that `key` names. Blocks.
    ///
    /// # Errors
    /// There is no such key.
    pub fn config(&self, of: Of, key: Option<&str>) -> Result<ConfigGetResult, SessionError> {
        let cwd = of.cwd.clone();
        let told = self.told(of);
        let mut entries: Vec<ConfigEntry> = keys::ALL
            .iter()
            .filter(|key| key.shape != Shape::Table)
            .flat_map(|key| told.names(*key).into_iter().map(|path| (*key, path)))
            .filter(|(of, path)| key.is_none_or(|wanted| is_below(wanted, *of, path)))
            .map(|(key, path)| told.entry(key, path))
            .collect();
        if let Some(wanted) = key
            && entries.is_empty()
        {
            // A key of a provider that nobody has named yet.
            let key = keys::find(wanted).ok_or_else(|| unknown(wanted))?;
            if key.shape != Shape::Table {
                entries.push(told.entry(key, wanted.to_owned()));
            }
        }
        let mut notices = self.notices();
        if let Some(cwd) = &cwd {
            notices.extend(self.project_notices(cwd));
        }
        Ok(ConfigGetResult { entries, files: told.files(), notices })
    }

    /// Changes one key of a file. Blocks.
    ///
    /// # Errors
    /// Nothing was written: see `config/set`.
    pub fn set_config(&self, params: &ConfigSetParams) -> Result<ConfigSetResult, SessionError> {
        let invalid = |field, message: String| Err(SessionError::invalid(field, message));
        let Some(key) = keys::find(&params.key) else { return Err(unknown(&params.key)) };
        if key.shape == Shape::Table {
            let message = format!("`{}` is a table; name a key in it, such as {}", params.key, example(key));
            return invalid("key", message);
        }
        let change = match (&params.value, params.unset) {
            (Some(value), false) => Change::Set(value),
            (None, true) => Change::Unset,
            _ => return invalid("value", "say either a value or unset".to_owned()),
        };
        let cwd = match &params.cwd {
            Some(cwd) => Some(
                workspace::project_folder(cwd)
                    .map_err(|error| SessionError::invalid("cwd", error.to_string()))?,
            ),
            None => None,
        };
        let (layer, target) = match params.target {
            ConfigTarget::User => (Layer::User, Target::User(self.user_file().to_owned())),
            ConfigTarget::Project => {
                // What an untidy project's file has of such keys may still be taken out.
                if key.scope == Scope::User && !params.unset {
                    return Err(SessionError::Refused(format!(
                        "`{}` counts only in your own settings, so it is not written into a project's",
                        params.key
                    )));
                }
                let cwd = cwd.as_deref().ok_or_else(|| {
                    SessionError::invalid("cwd", "a project's settings need a folder of the project")
                })?;
                let root = self.project(cwd).map(|(root, _)| root).ok_or_else(|| {
                    SessionError::invalid("cwd", format!("{} is no project", cwd.display()))
                })?;
                (Layer::Project, Target::Project(root))
            }
        };
        let (path, changed) = match write_once(&target, layer, (key, &params.key), change) {
            // Somebody saved in between: what they made of it is looked at once more, and changed.
            Err(Failed::Meanwhile(_)) => write_once(&target, layer, (key, &params.key), change),
            other => other,
        }
        .map_err(SessionError::from)?;
        let of = Of { cwd, session: None };
        let entry = self.told(of).entry(key, params.key.clone());
        Ok(ConfigSetResult { path: path.display().to_string(), changed, entry })
    }

    fn told(&self, of: Of) -> Told {
        Told {
            user_file: self.user_file().to_owned(),
            user: self.user_now(),
            started: self.loaded_at_start(),
            project: of.cwd.as_deref().and_then(|cwd| self.project_now(cwd)),
            host: self.host(),
            session: of.session,
        }
    }
}

fn unknown(path: &str) -> SessionError {
    let near = keys::nearest(path).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    SessionError::invalid("key", format!("there is no key `{path}`{near}"))
}

fn example(table: Key) -> String {
    let prefix = format!("{}.", table.path);
    let below = keys::ALL.iter().find(|key| key.path.starts_with(&prefix));
    below.map_or_else(String::new, |key| format!("`{}`", key.path.replace('*', "NAME")))
}

/// Whether the key `of`, named `path`, is what `wanted` names or lies below it.
fn is_below(wanted: &str, of: Key, path: &str) -> bool {
    let below =
        |path: &str| path == wanted || path.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'));
    below(path) || below(of.path)
}

impl Told {
    /// The names that a key has here: one, or one for each name in the place of its star.
    fn names(&self, key: Key) -> Vec<String> {
        if !key.path.contains('*') {
            return vec![key.path.to_owned()];
        }
        let named = |said: &Said| key.is_named(&said.path).then(|| said.path.clone());
        let project = self.project.iter().flat_map(|project| &project.settings.said);
        let mut names: Vec<_> =
            self.user.said.iter().chain(&self.started.said).chain(project).filter_map(named).collect();
        names.sort();
        names.dedup();
        names
    }

    fn entry(&self, key: Key, path: String) -> ConfigEntry {
        let mut said = self.all_said(key, &path);
        if key.shape != Shape::Texts || key == keys::SHELL_ENV {
            let mut winner: Option<ConfigLayer> = None;
            for one in said.iter_mut().filter(|one| one.passed_over.is_none()) {
                match winner {
                    None => winner = Some(one.layer),
                    Some(layer) => one.passed_over = Some(format!("what {} says counts", whose(layer))),
                }
            }
        }
        let strongest = said.iter().find(|one| one.passed_over.is_none());
        let layer = strongest.map_or(ConfigLayer::BuiltIn, |one| one.layer);
        let place = strongest.and_then(|one| one.place.clone());
        let value = match strongest {
            None => built_in(key),
            Some(one) if key.shape != Shape::Texts => one.value.clone(),
            // Lists add up, the user's first.
            Some(_) => said
                .iter()
                .rev()
                .filter(|one| one.passed_over.is_none())
                .flat_map(|one| one.value.as_array().cloned().unwrap_or_default())
                .collect(),
        };
        let hidden = said.iter().any(|one| may_not_be_told(key, &one.value));
        for one in said.iter_mut().filter(|one| may_not_be_told(key, &one.value)) {
            one.value = Value::Null;
        }
        ConfigEntry {
            key: path,
            about: key.about.to_owned(),
            holds: key.shape.holds(),
            scope: match key.scope {
                Scope::User => ConfigScope::User,
                Scope::Trusted => ConfigScope::Trusted,
                Scope::Project => ConfigScope::Project,
            },
            value: if may_not_be_told(key, &value) { Value::Null } else { value },
            hidden,
            layer,
            place,
            said,
        }
    }

    /// What each layer says of a key, the strongest first.
    fn all_said(&self, key: Key, path: &str) -> Vec<ConfigSaid> {
        let mut all = Vec::new();
        let simple = |layer, value: Value| ConfigSaid { layer, value, place: None, passed_over: None };
        if let Some(own) = &self.session {
            match key {
                keys::MODE => all.push(simple(ConfigLayer::Session, own.mode.name().into())),
                keys::MODEL => all.push(simple(ConfigLayer::Session, own.model.as_str().into())),
                _ => {}
            }
        }
        if key == keys::PERMISSIONS_ALLOW_BYPASS && self.host.allow_bypass {
            all.push(simple(ConfigLayer::Flags, true.into()));
        }
        let find = |said: &[Said]| said.iter().find(|said| said.path == path).cloned();
        let project = self.project.as_ref();
        if let Some(said) = project.and_then(|project| find(&project.settings.said)) {
            let passed_over = self.project_passed_over(key, &said);
            all.push(from(ConfigLayer::Project, said, passed_over));
        }
        let (now, at_start) = (find(&self.user.said), find(&self.started.said));
        let waits =
            key.needs_a_start() && now.as_ref().map(|it| &it.value) != at_start.as_ref().map(|it| &it.value);
        if !waits {
            all.extend(now.map(|said| from(ConfigLayer::User, said, None)));
            return all;
        }
        let later = || Some("it counts from the next start of agentd".to_owned());
        // Taking the permission away holds at once.
        let gone = key == keys::PERMISSIONS_ALLOW_BYPASS;
        all.extend(at_start.filter(|_| !gone).map(|said| from(ConfigLayer::User, said, None)));
        all.extend(now.map(|said| from(ConfigLayer::User, said, later())));
        all
    }

    fn project_passed_over(&self, key: Key, said: &Said) -> Option<String> {
        let project = self.project.as_ref()?;
        if project.settings.is_unreadable() {
            return Some("the file cannot be read as a whole".to_owned());
        }
        if key.scope == Scope::Trusted && project.standing != Standing::Trusted {
            return Some("nobody has trusted it".to_owned());
        }
        if key == keys::PLAN_VERIFY {
            let user = self.user.settings.plan.verify;
            if config::effective(&self.user.settings, &project.settings, false).plan.verify == user {
                return Some("it does not make it stricter".to_owned());
            }
        }
        said.problem.clone()
    }

    fn files(&self) -> Vec<ConfigFile> {
        let user = ConfigFile {
            layer: ConfigLayer::User,
            path: self.user_file.display().to_string(),
            exists: workspace::is_there(&self.user_file),
            problem: problem(&self.user.notices),
        };
        let project = self.project.as_ref().map(|project| ConfigFile {
            layer: ConfigLayer::Project,
            path: project.file.display().to_string(),
            exists: project.exists,
            problem: problem(&project.settings.notices),
        });
        [user].into_iter().chain(project).collect()
    }
}

fn problem(notices: &[config::Notice]) -> Option<String> {
    let whole = notices.iter().find(|notice| {
        matches!(notice.code, config::NoticeCode::UnreadableFile | config::NoticeCode::UnreadableRules)
    });
    whole.map(|notice| notice.text.clone())
}

fn from(layer: ConfigLayer, said: Said, passed_over: Option<String>) -> ConfigSaid {
    ConfigSaid {
        layer,
        value: said.value,
        place: Some(said.place),
        passed_over: said.problem.or(passed_over),
    }
}

fn whose(layer: ConfigLayer) -> &'static str {
    match layer {
        ConfigLayer::BuiltIn => "agentd itself",
        ConfigLayer::User => "your own file",
        ConfigLayer::Project => "the project",
        ConfigLayer::Flags => "the daemon's command line",
        ConfigLayer::Session => "the session",
    }
}

/// A URL may have a password in it.
fn may_not_be_told(key: Key, value: &Value) -> bool {
    let in_url = || key == keys::PROVIDER_BASE_URL && value.as_str().is_some_and(|url| url.contains('@'));
    !value.is_null() && (key.may_be_secret() || in_url())
}

fn built_in(key: Key) -> Value {
    match key {
        keys::MODE => Mode::Default.name().into(),
        keys::PLAN_SHELL => "deny".into(),
        keys::PLAN_VERIFY => "report".into(),
        keys::PERMISSIONS_ALLOW_BYPASS => false.into(),
        _ if key.shape == Shape::Texts => Value::Array(Vec::new()),
        _ => Value::Null,
    }
}

enum Target {
    User(PathBuf),
    /// The project's root.
    Project(PathBuf),
}

/// Why nothing was written.
enum Failed {
    Edit(EditError),
    Path(PathError),
    /// The file is another one than was read a moment before.
    Meanwhile(PathBuf),
    NotUtf8(PathBuf),
    Rules(String),
}

impl From<Failed> for SessionError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Edit(EditError::Broken(why)) => {
                SessionError::Conflict(format!("{why}; mend it first, nothing was written"))
            }
            Failed::Edit(EditError::Value(why)) => {
                SessionError::invalid("value", format!("{why}; nothing was written"))
            }
            Failed::Path(error) => SessionError::Conflict(format!("{error}; nothing was written")),
            Failed::Meanwhile(path) => SessionError::Conflict(format!(
                "{} is being changed by somebody else; nothing was written. Save it there, then try again",
                path.display()
            )),
            Failed::NotUtf8(path) => SessionError::Conflict(format!(
                "{}: the file is not UTF-8; nothing was written",
                path.display()
            )),
            Failed::Rules(why) => SessionError::invalid("value", format!("{why}; nothing was written")),
        }
    }
}

impl Target {
    /// The user's own file is found through links, and what they lead to is replaced: many keep their settings elsewhere. A
    /// project's is not: a repository could point anywhere.
    fn locate(&self) -> Result<Located, PathError> {
        match self {
            Target::User(file) => {
                let typed = file.to_str().ok_or_else(|| PathError::NotUtf8 { path: file.clone() })?;
                workspace::locate(Base { cwd: Path::new("/"), home: None }, typed)
            }
            Target::Project(root) => workspace::locate_project_settings(root),
        }
    }
}

fn write_once(
    target: &Target,
    layer: Layer,
    key: (Key, &str),
    change: Change<'_>,
) -> Result<(PathBuf, bool), Failed> {
    let located = target.locate().map_err(Failed::Path)?;
    let limit = match layer {
        Layer::User => config::MAX_USER_BYTES,
        Layer::Project => config::MAX_PROJECT_BYTES,
    };
    let file = located.real.clone();
    let (text, expected) = match located.kind().map_err(Failed::Path)? {
        None => (String::new(), Expected::Absent),
        Some(_) => {
            let content = located.read(limit).map_err(Failed::Path)?;
            let text = String::from_utf8(content.bytes).map_err(|_| Failed::NotUtf8(file.clone()))?;
            (text, Expected::Content(content.digest))
        }
    };
    let Some(new) = config::edit(&file, layer, &text, key, change).map_err(Failed::Edit)? else {
        return Ok((file, false));
    };
    if new.len() as u64 > limit {
        return Err(Failed::Rules(format!("{} would become too long", file.display())));
    }
    if let Some(mistake) = new_rule_mistakes(&file, layer, &text, &new).into_iter().next() {
        return Err(Failed::Rules(mistake));
    }
    match located.replace(new.as_bytes(), expected) {
        Ok(_) => Ok((file, true)),
        Err(PathError::Changed { .. } | PathError::Exists { .. }) => Err(Failed::Meanwhile(file)),
        Err(error) => Err(Failed::Path(error)),
    }
}

impl Project {
    fn is_unreadable(&self) -> bool {
        problem(&self.notices).is_some()
    }
}
