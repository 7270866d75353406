//! A project's settings: what of them only narrows and so always counts, what needs a person's trust, and what is never
//! a project's to say.

use std::path::Path;

use agentd_protocol::{Digest, Mode};
use toml::de::DeTable;

use super::keys;
use super::section::{Findings, Said, Section, Source};
use super::{Layer, Notice, NoticeCode, PermissionRules, Permissions, PlanVerify, RuleText, Settings};

/// No project's settings are longer.
pub const MAX_PROJECT_BYTES: u64 = 256 * 1024;
/// A hostile file has a thousand mistakes; people read the first ones.
const MAX_NOTICES: usize = 100;

/// Something that a project would switch on, if it were trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widening {
    pub key: String,
    /// In one spelling, whatever the file's.
    pub content: String,
    /// `file:line`.
    pub place: String,
}

/// The settings of one project.
#[derive(Clone, Debug, PartialEq)]
pub struct Project {
    deny: Vec<RuleText>,
    ask: Vec<RuleText>,
    verify: Option<PlanVerify>,
    /// Why its rules that narrow may not be as they were meant.
    unreadable: Option<String>,
    allow: Vec<RuleText>,
    mode: Option<Mode>,
    /// `provider/model`, counting once it is trusted.
    pub model: Option<String>,
    /// What needs trust, in a fixed order.
    pub widening: Vec<Widening>,
    /// Of [`Project::widening`]: trust holds for exactly this.
    pub digest: Digest,
    pub notices: Vec<Notice>,
    /// Every key that has a value.
    pub said: Vec<Said>,
}

impl Default for Project {
    fn default() -> Self {
        Self {
            deny: Vec::new(),
            ask: Vec::new(),
            verify: None,
            unreadable: None,
            allow: Vec::new(),
            mode: None,
            model: None,
            widening: Vec::new(),
            digest: digest(&[]),
            notices: Vec::new(),
            said: Vec::new(),
        }
    }
}

impl Project {
    /// A project whose file cannot be read, for the reason `why`: it may have held deny rules.
    #[must_use]
    pub fn unreadable(why: String) -> Self {
        let text =
            format!("{why}. Until this is mended, every call that could change something is denied here");
        let notices = vec![Notice { code: NoticeCode::UnreadableFile, text }];
        Self { unreadable: Some(why), notices, ..Self::default() }
    }

    /// Reads the bytes of the file at `path`. Never fails: what cannot be read is told, and closes.
    #[must_use]
    pub fn parse(path: &Path, bytes: &[u8]) -> Self {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                return Self::unreadable(format!("{}:{line}: the file is not UTF-8", path.display()));
            }
        };
        if super::nesting::is_too_deep(text) {
            return Self::unreadable(format!("{}: it is nested too deep", path.display()));
        }
        let mut source = Source::new(path, Layer::Project, text);
        let table = match DeTable::parse(text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                let what = format!("the file cannot be parsed: {}", error.message());
                return Self::unreadable(source.at(&span, &what));
            }
        };
        let mut project = read(Section::root(&mut source, table));
        let Findings { notices, rules_doubt, said, .. } = source.finish();
        if let Some(why) = rules_doubt {
            project = Self::unreadable(why);
        }
        for item in &mut project.widening {
            if item.place.is_empty() {
                item.place = said
                    .iter()
                    .find(|said| said.path == item.key)
                    .map(|said| said.place.clone())
                    .unwrap_or_default();
            }
        }
        project.said = said;
        let more = notices.len().saturating_sub(MAX_NOTICES);
        project.notices.extend(notices.into_iter().take(MAX_NOTICES));
        if more > 0 {
            let text = format!("{}: and {more} further mistakes", path.display());
            project.notices.push(Notice { code: NoticeCode::BadValue, text });
        }
        project.digest = digest(&project.widening);
        project
    }
}

fn read(mut root: Section<'_, '_, '_>) -> Project {
    root.pass_over_user_keys();
    let mut project = Project::default();
    let mut widening = Vec::new();
    project.model = root.text(keys::MODEL);
    widening.extend(project.model.iter().map(|model| widens(keys::MODEL.path, format!("{model:?}"), None)));
    project.mode = root.parsed(keys::MODE, |text| match text.parse() {
        Ok(Mode::Auto | Mode::BypassPermissions) => {
            Err("another one in a project: auto and bypassPermissions count only in your own settings".into())
        }
        Ok(mode) => Ok(mode),
        Err(_) => Err("the name of a mode".into()),
    });
    widening.extend(project.mode.iter().map(|mode| widens(keys::MODE.path, format!("\"{mode}\""), None)));

    let mut plan = root.table(keys::PLAN);
    plan.pass_over_user_keys();
    project.verify = plan.choice(keys::PLAN_VERIFY, &PlanVerify::CHOICES);
    widening.extend(plan.reserved());
    plan.finish();

    let mut permissions = root.table(keys::PERMISSIONS);
    permissions.pass_over_user_keys();
    project.deny = permissions.closing_rules(keys::PERMISSIONS_DENY);
    project.ask = permissions.closing_rules(keys::PERMISSIONS_ASK);
    project.allow = permissions.rules(keys::PERMISSIONS_ALLOW);
    permissions.finish();
    let allow = |rule: &RuleText| widens(keys::PERMISSIONS_ALLOW.path, rule.text.clone(), Some(&rule.place));
    widening.extend(project.allow.iter().map(allow));

    widening.extend(root.reserved());
    root.finish();
    project.widening = widening;
    project
}

/// Where `place` is absent it is the key's own.
fn widens(key: &str, content: String, place: Option<&String>) -> Widening {
    Widening { key: key.to_owned(), content, place: place.cloned().unwrap_or_default() }
}

/// Lengths stand before the texts, so that no two lists read the same. Where in the file they stand is no part of it.
fn digest(widening: &[Widening]) -> Digest {
    let mut bytes = Vec::new();
    for Widening { key, content, place: _ } in widening {
        for text in [key, content] {
            bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    crate::ids::digest_of(&bytes)
}

/// The settings that hold in a project: the user's, what of the project's narrows, and the rest of it if it is trusted.
#[must_use]
pub fn effective(user: &Settings, project: &Project, trusted: bool) -> Settings {
    let mut settings = user.clone();
    settings.plan.verify = settings.plan.verify.max(project.verify.unwrap_or(PlanVerify::Off));
    if let Some(why) = &project.unreadable {
        if matches!(settings.permissions, Permissions::Rules(_)) {
            settings.permissions = Permissions::Unreadable(why.clone());
        }
        return settings;
    }
    if let Permissions::Rules(PermissionRules { deny, ask, allow, .. }) = &mut settings.permissions {
        deny.extend(project.deny.iter().cloned());
        ask.extend(project.ask.iter().cloned());
        if trusted {
            allow.extend(project.allow.iter().cloned());
        }
    }
    if trusted {
        settings.mode = project.mode.unwrap_or(settings.mode);
        if let Some(model) = &project.model {
            settings.model = Some(model.clone());
            settings.model_at = None;
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::super::keys::{Scope, Shape};
    use super::*;

    fn parse(text: &str) -> Project {
        Project::parse(Path::new("P"), text.as_bytes())
    }

    fn texts(rules: &[RuleText]) -> Vec<(&str, &str, Layer)> {
        rules.iter().map(|rule| (rule.text.as_str(), rule.place.as_str(), rule.layer)).collect()
    }

    fn rules(settings: &Settings) -> &PermissionRules {
        match &settings.permissions {
            Permissions::Rules(rules) => rules,
            Permissions::Unreadable(why) => panic!("{why}"),
        }
    }

    /// A value that the user's file would take.
    fn sample(shape: Shape) -> &'static str {
        match shape {
            Shape::Text => "\"https://evil.example/x\"",
            Shape::Choice(words) => match words.last() {
                Some(&"confined") => "\"confined\"",
                _ => "\"anthropic\"",
            },
            Shape::Flag => "true",
            Shape::Whole => "1",
            Shape::Texts => "[\"LD_PRELOAD\"]",
            Shape::Table | Shape::Reserved => "{ x = 1 }",
        }
    }

    #[test]
    fn what_is_the_users_alone_changes_nothing_from_a_project_trusted_or_not() {
        let user_keys: Vec<_> =
            keys::ALL.iter().filter(|key| key.scope == Scope::User && key.shape != Shape::Table).collect();
        assert!(user_keys.len() >= 11);
        let mut text = String::new();
        for key in &user_keys {
            text.push_str(&format!("{} = {}\n", key.path.replace('*', "evil"), sample(key.shape)));
        }
        let project = parse(&text);
        assert_eq!(project.notices.len(), user_keys.len(), "{:#?}", project.notices);
        for key in user_keys {
            let path = key.path.replace('*', "evil");
            let named = |notice: &&Notice| {
                notice.code == NoticeCode::UserOnly && notice.text.contains(&format!("`{path}"))
            };
            assert_eq!(project.notices.iter().filter(named).count(), 1, "{path}");
        }
        assert_eq!(project.widening, []);
        for trusted in [false, true] {
            assert_eq!(effective(&Settings::default(), &project, trusted), Settings::default());
        }
    }

    #[test]
    fn modes_that_ask_nobody_are_never_a_projects() {
        for mode in ["auto", "bypassPermissions"] {
            let project = parse(&format!("mode = \"{mode}\""));
            assert_eq!(effective(&Settings::default(), &project, true), Settings::default());
            assert!(project.notices[0].text.contains("only in your own settings"), "{:?}", project.notices);
        }
    }

    #[test]
    fn deny_and_ask_count_untrusted_and_the_rest_once_trusted() {
        let mut user = Settings::default();
        let own = RuleText { text: "grep_search".into(), layer: Layer::User, place: "U:1".into() };
        user.permissions =
            Permissions::Rules(PermissionRules { deny: vec![own], ..PermissionRules::default() });
        let project = parse(
            "model = \"a/b\"\nmode = \"acceptEdits\"\n[plan]\nverify = \"off\"\n[permissions]\ndeny = [\n\"run_shell\"]\n\
             ask = [\"Edit\"]\nallow = [\"Write\"]\n",
        );
        assert_eq!(project.notices, []);
        let settings = effective(&user, &project, false);
        let own = ("grep_search", "U:1", Layer::User);
        assert_eq!(texts(&rules(&settings).deny), [own, ("run_shell", "P:7", Layer::Project)]);
        assert_eq!(texts(&rules(&settings).ask), [("Edit", "P:8", Layer::Project)]);
        assert_eq!(texts(&rules(&settings).allow), []);
        assert_eq!((settings.mode, settings.model.as_deref()), (Mode::Default, None));
        assert_eq!(settings.plan.verify, PlanVerify::Report, "a project does not loosen it");
        let settings = effective(&user, &project, true);
        assert_eq!(texts(&rules(&settings).allow), [("Write", "P:9", Layer::Project)]);
        assert_eq!((settings.mode, settings.model.as_deref()), (Mode::AcceptEdits, Some("a/b")));
        assert_eq!(settings.plan.verify, PlanVerify::Report);
        let stricter = effective(&user, &parse("plan.verify = \"loop\""), false);
        assert_eq!(stricter.plan.verify, PlanVerify::Loop);
    }

    #[test]
    fn trust_is_for_exactly_what_would_be_switched_on() {
        let base = parse("[permissions]\nallow = [\"Edit\"]\n[hooks]\na = { run = \"x\", on = 1 }\n");
        let same = parse(
            "hooks.a.on = 1\nhooks.a.run = 'x'\npermissions.allow = ['Edit']\npermissions.deny = ['Bash']",
        );
        assert_eq!(base.digest, same.digest);
        for changed in [
            "",
            "permissions.allow = ['Edit']",
            "permissions.allow = ['Edit']\nhooks.a = { run = 'y', on = 1 }",
            "permissions.allow = ['Edit', 'Bash']\nhooks.a = { run = 'x', on = 1 }",
            "permissions.allow = ['Edit']\nhooks.a = { run = 'x', on = 1 }\nmcp.s.command = 'z'",
            "permissions.allow = ['Edit']\nhooks.a = { run = 'x', on = 1 }\nworktree.setup = ['z']",
        ] {
            assert_ne!(base.digest, parse(changed).digest, "{changed}");
        }
        let not_built = base.notices.iter().filter(|notice| notice.code == NoticeCode::NotBuilt);
        assert_eq!(not_built.count(), 1);
    }

    #[test]
    fn a_broken_file_closes_and_says_where() {
        let rows: [(&[u8], &str); 6] = [
            (b"model = \"a/b\"\n[permissions]\ndeny = [\"Ba", "P:3: the file cannot be parsed"),
            (b"\n\xff", "P:2: the file is not UTF-8"),
            (b"[permissions]\ndeny = \"Bash\"", "P:2: `permissions.deny` must be a list of texts"),
            (b"permissions = 3", "P:1: `permissions` must be a table"),
            (b"[permissions]\ndenny = []", "P:2: unknown key `permissions.denny`"),
            (b"[permissions]\ndeny = []\ndeny = []", "P:3: the file cannot be parsed"),
        ];
        for (bytes, why) in rows {
            let project = Project::parse(Path::new("P"), bytes);
            assert!(project.notices[0].text.starts_with(why), "{:?}", project.notices);
            let settings = effective(&Settings::default(), &project, true);
            assert!(matches!(settings.permissions, Permissions::Unreadable(_)), "{why}");
        }
    }
}
