//! The user's settings. A mistake in the file disables what it is in and nothing else, and is told with file, line and
//! reason. The rules that deny are the exception: if they cannot be read, nothing with effects runs.

mod doubt;
mod edit;
pub mod keys;
mod load;
mod nesting;
mod project;
mod providers;
mod schema;
mod section;
mod stamp;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use agentd_protocol::Mode;

pub use doubt::{Concern, Doubt, doubt_about};
pub use edit::{Change, EditError, MAX_USER_BYTES, edit};
pub use load::{load, parse, read_text};
pub use project::{MAX_PROJECT_BYTES, Project, Widening, effective};
pub use providers::{Dialect, ProviderSettings, is_provider_name};
pub use schema::schema;
pub use section::Said;
pub use stamp::Stamp;

/// All settings, each at its default if the file does not name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `provider/model`; absent: chosen by the keys that are found.
    pub model: Option<String>,
    /// Where `model` stands: file and line.
    pub model_at: Option<String>,
    pub mode: Mode,
    pub providers: BTreeMap<String, ProviderSettings>,
    pub plan: PlanSettings,
    pub permissions: Permissions,
    pub auto: AutoSettings,
    pub shell: ShellSettings,
    pub retention: RetentionSettings,
    /// Why the file may mean another model or provider than is read here.
    pub model_doubts: Vec<Doubt>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: None,
            model_at: None,
            mode: Mode::Default,
            providers: BTreeMap::new(),
            plan: PlanSettings::default(),
            permissions: Permissions::Rules(PermissionRules::default()),
            auto: AutoSettings::default(),
            shell: ShellSettings::default(),
            retention: RetentionSettings::default(),
            model_doubts: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanSettings {
    pub shell: PlanShell,
    pub verify: PlanVerify,
}

/// Commands in plan mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanShell {
    #[default]
    Deny,
    /// In the kernel profile `plan`.
    Confined,
}

/// What happens after a plan was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanVerify {
    Off,
    #[default]
    Report,
    /// Deviations lead back into plan mode, at most twice.
    Loop,
}

impl PlanVerify {
    const CHOICES: [(&str, PlanVerify); 3] =
        [("off", PlanVerify::Off), ("report", PlanVerify::Report), ("loop", PlanVerify::Loop)];
}

/// The rules of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permissions {
    Rules(PermissionRules),
    /// There may be deny rules that could not be read: every call with effects is denied, with the reason
    /// `rule.unreadable`, until the file is mended.
    Unreadable(String),
}

impl Permissions {
    /// Whether `bypassPermissions` may be used. Never while the rules cannot be read.
    #[must_use]
    pub fn allow_bypass(&self) -> bool {
        matches!(self, Permissions::Rules(PermissionRules { allow_bypass: true, .. }))
    }
}

/// Whose settings something comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    User,
    Project,
}

/// One rule as it was written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleText {
    pub text: String,
    pub layer: Layer,
    /// `file:line`.
    pub place: String,
}

/// Rules as they were written; the gate knows what they mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermissionRules {
    pub deny: Vec<RuleText>,
    pub ask: Vec<RuleText>,
    pub allow: Vec<RuleText>,
    pub allow_bypass: bool,
}

/// Mode `auto` and its classifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoSettings {
    pub enabled: bool,
    /// `provider/model`; absent: the session's own, which is told everything already.
    pub model: Option<String>,
    /// How long it has for one answer.
    pub timeout: Duration,
}

impl Default for AutoSettings {
    fn default() -> Self {
        Self { enabled: true, model: None, timeout: Duration::from_secs(2) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellSettings {
    /// Names of further variables that a client's environment may bring into a session.
    pub env: Vec<String>,
}

/// How much of the past is kept. Absent, or not readable: all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionSettings {
    /// Days after which a session that nobody has touched is removed.
    pub max_age_days: Option<u64>,
    /// What all sessions may take on the disk; beyond it the oldest are removed.
    pub max_size_mib: Option<u64>,
}

/// Settings and what is wrong with their file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    pub settings: Settings,
    pub notices: Vec<Notice>,
    /// Every key that has a value.
    pub said: Vec<Said>,
}

/// One mistake, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub code: NoticeCode,
    /// File, line, what is wrong, what to do. Never a value: it may be a key.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeCode {
    UnknownKey,
    BadValue,
    /// A key of a project's file that counts only in the user's own.
    UserOnly,
    /// A key whose feature does not exist yet.
    NotBuilt,
    /// Rules and the like of a project that nobody has trusted.
    Untrusted,
    /// The whole file is passed over. It may have held deny rules, so nothing with effects runs.
    UnreadableFile,
    /// Rules that cannot be read, so that nothing with effects runs.
    UnreadableRules,
}

impl NoticeCode {
    /// As clients see it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            NoticeCode::UnknownKey => "config.unknownKey",
            NoticeCode::BadValue => "config.badValue",
            NoticeCode::UserOnly => "config.userOnly",
            NoticeCode::NotBuilt => "config.notBuilt",
            NoticeCode::Untrusted => "config.untrusted",
            NoticeCode::UnreadableFile => "config.unreadable",
            NoticeCode::UnreadableRules => "rule.unreadable",
        }
    }
}
