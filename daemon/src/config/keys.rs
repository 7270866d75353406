//! Every key of a settings file, in one table: its path, what it holds, which files it counts in. Settings are read by
//! these constants only, so a key without a scope cannot be read at all.

/// In which files a key counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only in the user's own file. A project's file is passed over here, trusted or not.
    User,
    /// In a project's file too, once a person has trusted it.
    Trusted,
    /// In a project's file always: it can only narrow.
    Project,
}

/// What a key holds, in words for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Text,
    Choice(&'static [&'static str]),
    Flag,
    /// At least one.
    Whole,
    Texts,
    Table,
    /// Not built yet: kept as it stands, and part of what is trusted.
    Reserved,
}

/// One key. `*` in its path is any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub path: &'static str,
    pub shape: Shape,
    pub scope: Scope,
    pub about: &'static str,
}

impl Scope {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scope::User => "user",
            Scope::Trusted => "trusted",
            Scope::Project => "project",
        }
    }
}

impl Shape {
    /// In words.
    #[must_use]
    pub fn holds(self) -> String {
        match self {
            Shape::Text => "a text".to_owned(),
            Shape::Choice(words) => {
                words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
            }
            Shape::Flag => "`true` or `false`".to_owned(),
            Shape::Whole => "a whole number, at least 1".to_owned(),
            Shape::Texts => "a list of texts".to_owned(),
            Shape::Table => "a table".to_owned(),
            Shape::Reserved => "reserved".to_owned(),
        }
    }
}

impl Key {
    /// The last word of its path.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// Whether `path` is a name of it: `providers.mine.base_url`.
    #[must_use]
    pub fn is_named(self, path: &str) -> bool {
        let (mut own, mut named) = (self.path.split('.'), path.split('.'));
        loop {
            match (own.next(), named.next()) {
                (None, None) => return true,
                (Some("*"), Some(name)) if super::is_provider_name(name) => {}
                (Some(own), Some(name)) if own == name && own != "*" => {}
                _ => return false,
            }
        }
    }

    /// Whether it counts from the next start of the daemon only, and not for the next call.
    #[must_use]
    pub fn needs_a_start(self) -> bool {
        let top = self.path.split('.').next().unwrap_or_default();
        matches!(top, "model" | "providers" | "shell" | "retention") || self == PERMISSIONS_ALLOW_BYPASS
    }

    /// Whether what it holds may be a secret, and so is told to nobody: a command may have one in it, and so may whatever
    /// the reserved tables will hold.
    #[must_use]
    pub fn may_be_secret(self) -> bool {
        self == PROVIDER_KEY_COMMAND || self.shape == Shape::Reserved
    }
}

/// The key that has this name.
#[must_use]
pub fn find(path: &str) -> Option<Key> {
    ALL.iter().copied().find(|key| key.is_named(path))
}

/// The key that `path` may have been meant to name.
#[must_use]
pub fn nearest(path: &str) -> Option<String> {
    let last = path.rsplit('.').next().unwrap_or(path);
    if let Some(key) = ALL.iter().find(|key| key.name() == last && key.shape != Shape::Table) {
        return Some(named_like(key.path, path));
    }
    let known: Vec<String> = ALL.iter().map(|key| named_like(key.path, path)).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    super::section::near(path, &known).first().map(|near| (*near).to_owned())
}

/// With the name that was typed in the place of the star.
fn named_like(key: &str, typed: &str) -> String {
    let name = typed.split('.').nth(1).filter(|name| super::is_provider_name(name)).unwrap_or("NAME");
    key.replace('*', name)
}

macro_rules! keys {
    ($($name:ident = $path:literal, $shape:expr, $scope:ident, $about:literal;)*) => {
        $(pub const $name: Key = Key { path: $path, shape: $shape, scope: Scope::$scope, about: $about };)*
        /// All keys, tables before what is in them.
        pub const ALL: &[Key] = &[$($name),*];
    };
}

const MODES: &[&str] = &["default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions"];

keys! {
    MODEL = "model", Shape::Text, Trusted, "`provider/model` of new sessions that name none.";
    MODE = "mode", Shape::Choice(MODES), Trusted,
        "Mode of new sessions that name none. `auto` and `bypassPermissions` never count from a project.";
    PROVIDERS = "providers", Shape::Table, User, "Model providers.";
    PROVIDER_DIALECT = "providers.*.dialect", Shape::Choice(&["openai-chat", "anthropic"]), User,
        "How requests are written.";
    PROVIDER_BASE_URL = "providers.*.base_url", Shape::Text, User, "Where requests go.";
    PROVIDER_KEY_ENV = "providers.*.api_key_env", Shape::Text, User, "Variable that holds the key.";
    PROVIDER_KEY_FILE = "providers.*.api_key_file", Shape::Text, User, "File that holds the key.";
    PROVIDER_KEY_COMMAND = "providers.*.api_key_command", Shape::Text, User, "Command that prints the key.";
    PROVIDER_IDLE = "providers.*.idle_timeout_s", Shape::Whole, User,
        "Seconds that a provider may be silent within an answer.";
    PLAN = "plan", Shape::Table, Project, "Plan mode.";
    PLAN_SHELL = "plan.shell", Shape::Choice(&["deny", "confined"]), User, "Commands in plan mode.";
    PLAN_VERIFY = "plan.verify", Shape::Choice(&["off", "report", "loop"]), Project,
        "What happens after a plan was carried out. A project only makes it stricter. Not built yet.";
    PLAN_ON_ENTER = "plan.on_enter", Shape::Reserved, Trusted,
        "What becomes of running work on entering plan mode. Not built yet.";
    PERMISSIONS = "permissions", Shape::Table, Project, "Rules.";
    PERMISSIONS_DENY = "permissions.deny", Shape::Texts, Project, "Calls that are denied.";
    PERMISSIONS_ASK = "permissions.ask", Shape::Texts, Project, "Calls that a person is asked about.";
    PERMISSIONS_ALLOW = "permissions.allow", Shape::Texts, Trusted, "Calls that need no question.";
    PERMISSIONS_ALLOW_BYPASS = "permissions.allow_bypass", Shape::Flag, User,
        "Whether `bypassPermissions` may be used.";
    AUTO = "auto", Shape::Table, User, "Mode `auto`.";
    AUTO_ENABLED = "auto.enabled", Shape::Flag, User, "Whether `auto` may be used. Without it: yes.";
    AUTO_MODEL = "auto.model", Shape::Text, User,
        "`provider/model` of its classifier. Without it: the session's own model.";
    AUTO_TIMEOUT = "auto.timeout_s", Shape::Whole, User,
        "Seconds that the classifier has before a person is asked. Without it: 2.";
    SHELL = "shell", Shape::Table, User, "Commands.";
    SHELL_ENV = "shell.env", Shape::Texts, User,
        "Further variables that a client's environment brings into a session.";
    RETENTION = "retention", Shape::Table, User, "How much of the past is kept.";
    RETENTION_AGE = "retention.max_age_days", Shape::Whole, User, "Days after which an untouched session is removed.";
    RETENTION_SIZE = "retention.max_size_mib", Shape::Whole, User, "What all sessions may take on the disk, in MiB.";
    SANDBOX = "sandbox", Shape::Reserved, User, "Confinement of commands. Not built yet.";
    HOOKS = "hooks", Shape::Reserved, Trusted, "Hooks. Not built yet.";
    MCP = "mcp", Shape::Reserved, Trusted, "MCP servers. Not built yet.";
    SKILLS = "skills", Shape::Reserved, Trusted, "Skills. Not built yet.";
    AGENTS = "agents", Shape::Reserved, Trusted, "Agent profiles. Not built yet.";
    SCHEDULES = "schedules", Shape::Reserved, Trusted, "Schedules. Not built yet.";
    WORKTREE = "worktree", Shape::Reserved, Trusted, "`worktree.setup`: commands in a new worktree. Not built yet.";
    PLANS_DIR = "plans_dir", Shape::Reserved, Trusted, "Where plan files stand. Not built yet.";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &Key) -> String {
        format!("| `{}` | {} | {} | {} |", key.path, key.shape.holds(), key.scope.name(), key.about)
    }

    #[test]
    fn the_documentation_has_every_key_as_it_is_and_no_other() {
        let doc = include_str!("../../../docs/settings.md");
        let rows: Vec<&str> = doc.lines().filter(|line| line.starts_with("| `")).collect();
        let keys: Vec<String> = ALL.iter().map(row).collect();
        assert_eq!(rows, keys, "the table of docs/settings.md is:\n{}", keys.join("\n"));
    }

    #[test]
    fn no_key_stands_twice_and_every_table_above_one_is_a_key() {
        for (at, key) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|before| before.path != key.path), "{}", key.path);
            if let Some((above, _)) =
                key.path.trim_end_matches(key.name()).trim_end_matches(".*.").rsplit_once('.')
            {
                assert!(ALL[..at].iter().any(|before| before.path == above), "{}", key.path);
            }
        }
    }

    #[test]
    fn a_key_is_found_by_its_name_and_a_slip_leads_to_it() {
        for (name, path) in [
            ("model", Some("model")),
            ("providers.mine.base_url", Some("providers.*.base_url")),
            ("providers.*.base_url", None),
            ("providers..base_url", None),
            ("providers.mine", None),
            ("permissions.allow.more", None),
            ("", None),
        ] {
            assert_eq!(find(name).map(|key| key.path), path, "{name}");
        }
        for (typed, meant) in [
            ("permission.alow", Some("permissions.allow")),
            ("allow", Some("permissions.allow")),
            ("providers.mine.baseurl", Some("providers.mine.base_url")),
            ("modle", Some("model")),
            ("zebra", None),
        ] {
            assert_eq!(nearest(typed).as_deref(), meant, "{typed}");
        }
    }
}
