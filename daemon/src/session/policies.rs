//! What the settings allow in each project, as they stand now: the files are looked at again whenever a call is judged,
//! so a rule that was added holds for the next one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentd_protocol::Digest;
use agentd_protocol::daemon::Notice;

use super::blocking;
use super::deps::Policy;
use crate::config::{self, AutoSettings, Loaded, NoticeCode, Permissions, Project, Settings, Stamp};
use crate::permission::{Layer, List, PlanShell, RuleText, Rules, Sandbox};
use crate::store::kept::KeptState;
use crate::workspace;

/// Projects whose settings are kept. Beyond it all are read anew.
const KEPT: usize = 256;
/// Notices that wait to be told. What does not fit is told by `daemon/status` only.
const UNTOLD: usize = 200;

/// What a person has said to exactly what a project would switch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing yet.
    Open,
    Trusted,
    /// That it is not trusted; or nobody can say what they said. It is not asked about.
    Declined,
}

pub trait Trust: Send + Sync {
    /// May block. `widening`: the digest of everything that the project would switch on.
    fn standing(&self, root: &Path, widening: Digest) -> Standing;
}

impl Trust for KeptState {
    fn standing(&self, root: &Path, widening: Digest) -> Standing {
        match self.about(root) {
            Ok(about) if about.trusted.as_ref().is_some_and(|it| it.digest == widening) => Standing::Trusted,
            Ok(about) if about.declined != Some(widening) => Standing::Open,
            Ok(_) | Err(_) => Standing::Declined,
        }
    }
}

/// Trusts no project.
pub struct NobodyIsTrusted;

impl Trust for NobodyIsTrusted {
    fn standing(&self, _: &Path, _: Digest) -> Standing {
        Standing::Open
    }
}

/// What this host and the start of the daemon add to the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    pub sandbox: Sandbox,
    /// The daemon was started with it: it needs no setting.
    pub allow_bypass: bool,
}

/// The settings of all projects.
pub struct Policies {
    user_file: PathBuf,
    home: PathBuf,
    host: Host,
    /// As they were at the start: what only a start can change is taken from here.
    started: Arc<Loaded>,
    trust: Arc<dyn Trust>,
    cache: Mutex<Cache>,
}

struct Cache {
    stamp: Stamp,
    user: Arc<Loaded>,
    /// Where no project adds anything.
    plain: Arc<Policy>,
    projects: HashMap<PathBuf, Known>,
    untold: Vec<Notice>,
}

/// A project as it was last looked at.
#[derive(Clone)]
struct Known {
    source: Source,
    /// Absent: it would switch nothing on.
    standing: Option<Standing>,
    policy: Arc<Policy>,
    notices: Vec<Notice>,
}

/// A project's settings as they stand.
#[derive(Clone, Debug)]
pub struct ProjectNow {
    pub root: PathBuf,
    pub file: PathBuf,
    pub exists: bool,
    pub settings: Project,
    /// All of it counts if it is trusted, or has nothing that would need it.
    pub standing: Standing,
}

/// A project's file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Absent,
    Bytes(Vec<u8>),
    Unreadable(String),
}

impl Policies {
    /// Reads the user's settings. Blocks.
    #[must_use]
    pub fn open(user_file: PathBuf, home: PathBuf, host: Host, trust: Arc<dyn Trust>) -> Self {
        let stamp = Stamp::of(&user_file);
        let loaded = Arc::new(config::load(&user_file));
        let started = Arc::clone(&loaded);
        let (policy, _) = policy_of(&loaded.settings, host, &started.settings);
        let cache = Cache {
            stamp,
            user: loaded,
            plain: Arc::new(policy),
            projects: HashMap::new(),
            untold: Vec::new(),
        };
        Self { user_file, home, host, started, trust, cache: Mutex::new(cache) }
    }

    /// The settings of the daemon's start.
    #[must_use]
    pub fn started(&self) -> &Settings {
        &self.started.settings
    }

    /// The user's own settings, as they were last read.
    #[must_use]
    pub fn user(&self) -> Arc<Policy> {
        Arc::clone(&self.lock().plain)
    }

    /// What holds for a session in `cwd` now: the same [`Arc`] as before if nothing has changed.
    pub async fn fresh(self: &Arc<Self>, cwd: &Path) -> Arc<Policy> {
        let (policies, cwd) = (Arc::clone(self), cwd.to_owned());
        blocking(move || policies.of(&cwd)).await
    }

    /// As [`Policies::fresh`]. Blocks.
    #[must_use]
    pub fn of(&self, cwd: &Path) -> Arc<Policy> {
        self.look_at_user_file();
        let Some(root) = workspace::project_root(cwd, &self.home) else { return self.user() };
        let path = root.join(workspace::PROJECT_SETTINGS);
        let mut found = project_in(&root);
        let is_known =
            |cache: &Cache, source: &Source| cache.projects.get(&root).is_some_and(|it| it.source == *source);
        if found.0 != Source::Absent && !is_known(&self.lock(), &found.0) {
            still(&path);
            found = project_in(&root);
        }
        let (source, project) = found;
        if source == Source::Absent {
            let mut cache = self.lock();
            cache.projects.remove(&root);
            return Arc::clone(&cache.plain);
        }
        let standing = self.standing(&root, &project);
        let trusted = standing.is_none_or(|standing| standing == Standing::Trusted);
        let mut cache = self.lock();
        if let Some(known) = cache.projects.get(&root)
            && known.source == source
            && known.standing == standing
        {
            return Arc::clone(&known.policy);
        }
        let settings = config::effective(&cache.user.settings, &project, trusted);
        let (mut policy, _) = policy_of(&settings, self.host, self.started());
        policy.model = project.model.clone().filter(|_| trusted);
        policy.trust = standing.map(|standing| (project.digest, standing));
        let notices = project_notices(&path, &project, trusted);
        let before = cache.projects.get(&root).map(|known| known.notices.clone()).unwrap_or_default();
        cache.tell(&before, &notices);
        let policy = Arc::new(policy);
        if cache.projects.len() >= KEPT {
            cache.projects.clear();
        }
        cache.projects.insert(root, Known { source, standing, policy: Arc::clone(&policy), notices });
        policy
    }

    /// The root of the project that a folder is in; without one the folder itself. Blocks.
    #[must_use]
    pub fn root(&self, cwd: &Path) -> PathBuf {
        workspace::project_root(cwd, &self.home).unwrap_or_else(|| cwd.to_owned())
    }

    /// The project that a folder is in, and what its settings say. Absent for the home and for `/`. Blocks.
    #[must_use]
    pub fn project(&self, cwd: &Path) -> Option<(PathBuf, Project)> {
        let root = workspace::project_root(cwd, &self.home)?;
        let (_, project) = project_in(&root);
        Some((root, project))
    }

    /// The same with where it stands, and whether it is trusted. Blocks.
    #[must_use]
    pub fn project_now(&self, cwd: &Path) -> Option<ProjectNow> {
        let root = workspace::project_root(cwd, &self.home)?;
        let (source, settings) = project_in(&root);
        let standing = self.standing(&root, &settings).unwrap_or(Standing::Trusted);
        let file = root.join(workspace::PROJECT_SETTINGS);
        Some(ProjectNow { file, exists: source != Source::Absent, settings, standing, root })
    }

    #[must_use]
    pub fn user_file(&self) -> &Path {
        &self.user_file
    }

    #[must_use]
    pub fn host(&self) -> Host {
        self.host
    }

    /// The user's file as it stands. Blocks.
    #[must_use]
    pub fn user_now(&self) -> Arc<Loaded> {
        self.look_at_user_file();
        Arc::clone(&self.lock().user)
    }

    /// The user's file as it stood at the daemon's start.
    #[must_use]
    pub fn loaded_at_start(&self) -> Arc<Loaded> {
        Arc::clone(&self.started)
    }

    /// What is to be said of the settings of the project that a folder is in. Blocks.
    #[must_use]
    pub fn project_notices(&self, cwd: &Path) -> Vec<Notice> {
        let Some((root, project)) = self.project(cwd) else { return Vec::new() };
        let trusted = self.standing(&root, &project).is_none_or(|standing| standing == Standing::Trusted);
        project_notices(&root.join(workspace::PROJECT_SETTINGS), &project, trusted)
    }

    /// What is wrong with the user's settings as they stand. Blocks.
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        self.look_at_user_file();
        let user = Arc::clone(&self.lock().user);
        self.user_notices(&user)
    }

    /// What has come to be wrong since this was last asked, for all who listen.
    #[must_use]
    pub fn untold(&self) -> Vec<Notice> {
        std::mem::take(&mut self.lock().untold)
    }

    /// Absent: the project would switch nothing on.
    fn standing(&self, root: &Path, project: &Project) -> Option<Standing> {
        (!project.widening.is_empty()).then(|| self.trust.standing(root, project.digest))
    }

    fn user_notices(&self, user: &Loaded) -> Vec<Notice> {
        let changed = needs_a_start(self.started(), &user.settings).then(|| Notice {
            code: "config.changed".into(),
            text: format!(
                "{} was changed after agentd had read it, at its start: rules hold at once, models, providers, shell.env, \
                 retention and allow_bypass do not. To have it read: agentctl daemon stop",
                self.user_file.display()
            ),
        });
        let (_, found) = policy_of(&user.settings, self.host, self.started());
        changed.into_iter().chain(user.notices.iter().map(wire)).chain(found).collect()
    }

    fn look_at_user_file(&self) {
        let Some(stamp) = self.changed_user_file() else { return };
        let loaded = Arc::new(config::load(&self.user_file));
        let (policy, _) = policy_of(&loaded.settings, self.host, self.started());
        let notices = self.user_notices(&loaded);
        let before = Arc::clone(&self.lock().user);
        let before = self.user_notices(&before);
        let mut cache = self.lock();
        cache.tell(&before, &notices);
        cache.stamp = stamp;
        cache.user = loaded;
        cache.plain = Arc::new(policy);
        cache.projects.clear();
    }

    /// The stamp of the user's file, if it is another one than was read and has been still for a moment. Taken before the
    /// file is read: a change in between then counts as one.
    fn changed_user_file(&self) -> Option<Stamp> {
        let stamp = still(&self.user_file);
        (self.lock().stamp != stamp).then_some(stamp)
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn tell(&mut self, before: &[Notice], now: &[Notice]) {
        for notice in now {
            if !before.contains(notice) && !self.untold.contains(notice) && self.untold.len() < UNTOLD {
                self.untold.push(notice.clone());
            }
        }
    }
}

/// The file's stamp once it has been still for a moment, or after a few looks at one that is written all the time.
fn still(path: &Path) -> Stamp {
    let mut stamp = Stamp::of(path);
    for _ in 0..3 {
        let Some(wait) = stamp.unsettled(std::time::SystemTime::now()) else { break };
        std::thread::sleep(wait);
        stamp = Stamp::of(path);
    }
    stamp
}

fn project_in(root: &Path) -> (Source, Project) {
    let path = root.join(workspace::PROJECT_SETTINGS);
    match workspace::project_settings(root, config::MAX_PROJECT_BYTES) {
        Ok(None) => (Source::Absent, Project::default()),
        Ok(Some(bytes)) => {
            let project = Project::parse(&path, &bytes);
            (Source::Bytes(bytes), project)
        }
        Err(error) => {
            let why = format!("{}: cannot be read: {error}", path.display());
            (Source::Unreadable(why.clone()), Project::unreadable(why))
        }
    }
}

fn wire(notice: &config::Notice) -> Notice {
    Notice { code: notice.code.as_str().into(), text: notice.text.clone() }
}

fn project_notices(path: &Path, project: &Project, trusted: bool) -> Vec<Notice> {
    let mut notices: Vec<Notice> = project.notices.iter().map(wire).collect();
    if !trusted {
        let text = format!(
            "{}: its deny and ask rules hold; what else it would switch on is passed over, since nobody has trusted it. To see \
             it: agentctl trust",
            path.display()
        );
        notices.push(Notice { code: NoticeCode::Untrusted.as_str().into(), text });
    }
    notices
}

/// What a running daemon does not take from a changed file.
fn needs_a_start(started: &Settings, now: &Settings) -> bool {
    let bypass = now.permissions.allow_bypass() && !started.permissions.allow_bypass();
    started.model != now.model
        || started.providers != now.providers
        || started.shell != now.shell
        || started.retention != now.retention
        || started.model_doubts != now.model_doubts
        || bypass
}

/// What is wrong with the rules of `new`, the settings at `file`, that was not with those of `old`.
#[must_use]
pub fn new_rule_mistakes(file: &Path, layer: config::Layer, old: &str, new: &str) -> Vec<String> {
    let mistakes = |text: &str| {
        let settings = match layer {
            config::Layer::User => config::parse(file, text).settings,
            config::Layer::Project => {
                config::effective(&Settings::default(), &Project::parse(file, text.as_bytes()), true)
            }
        };
        match settings.permissions {
            Permissions::Rules(rules) => rules_of(&rules).1,
            Permissions::Unreadable(why) => vec![Notice { code: String::new(), text: why }],
        }
    };
    let old: Vec<String> = mistakes(old).into_iter().map(|notice| notice.text).collect();
    mistakes(new).into_iter().map(|notice| notice.text).filter(|text| !old.contains(text)).collect()
}

/// The settings' rules as the gate's.
fn rules_of(rules: &config::PermissionRules) -> (Rules, Vec<Notice>) {
    let lists = [(List::Deny, &rules.deny), (List::Ask, &rules.ask), (List::Allow, &rules.allow)];
    let texts = lists.into_iter().flat_map(|(list, texts)| {
        texts.iter().map(move |rule| RuleText {
            list,
            text: rule.text.clone(),
            layer: match rule.layer {
                config::Layer::User => Layer::User,
                config::Layer::Project => Layer::Project,
            },
            place: Some(rule.place.clone()),
        })
    });
    Rules::parse(texts.collect())
}

fn policy_of(settings: &Settings, host: Host, started: &Settings) -> (Policy, Vec<Notice>) {
    let (rules, mut notices) = match &settings.permissions {
        Permissions::Rules(rules) => rules_of(rules),
        Permissions::Unreadable(_) => (Rules::unreadable(), Vec::new()),
    };
    let plan_shell = match settings.plan.shell {
        config::PlanShell::Deny => PlanShell::Deny,
        config::PlanShell::Confined => {
            notices.push(Notice {
                code: "plan.noSandbox".into(),
                text: "plan.shell = \"confined\": the sandbox is not built yet, so commands stay denied in plan mode"
                    .into(),
            });
            PlanShell::Confined
        }
    };
    if settings.plan.verify == config::PlanVerify::Loop {
        notices.push(Notice {
            code: "plan.verify".into(),
            text: "plan.verify = \"loop\": verification is not built yet; plans are carried out without it"
                .into(),
        });
    }
    // Taking the permission away holds at once; giving it needs a start.
    let by_settings = started.permissions.allow_bypass() && settings.permissions.allow_bypass();
    let policy = Policy {
        rules,
        plan_shell,
        sandbox: host.sandbox,
        bypass_enabled: host.allow_bypass || by_settings,
        // As long as nobody knows what the settings deny, no model decides anything.
        auto: match settings.permissions {
            Permissions::Rules(_) => settings.auto.clone(),
            Permissions::Unreadable(_) => AutoSettings { enabled: false, ..settings.auto.clone() },
        },
        mode: settings.mode,
        model: None,
        trust: None,
    };
    (policy, notices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::Sandbox;

    struct Everybody;

    /// Makes what stands in the place of a project's settings.
    type Make = fn(&Path);

    impl Trust for Everybody {
        fn standing(&self, _: &Path, _: Digest) -> Standing {
            Standing::Trusted
        }
    }

    struct Place {
        _folder: tempfile::TempDir,
        root: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = crate::paths::canonical(folder.path());
            std::fs::create_dir_all(root.join("work/.git")).unwrap();
            std::fs::create_dir_all(root.join("work/.agentd")).unwrap();
            std::fs::create_dir_all(root.join("work/deep/below")).unwrap();
            Self { _folder: folder, root }
        }

        fn policies(&self, trust: Arc<dyn Trust>) -> Policies {
            let host = Host { sandbox: Sandbox::None, allow_bypass: false };
            Policies::open(self.root.join("config.toml"), self.root.clone(), host, trust)
        }

        fn cwd(&self) -> PathBuf {
            self.root.join("work/deep/below")
        }

        fn project(&self, text: &str) {
            std::fs::write(self.root.join("work/.agentd/config.toml"), text).unwrap();
        }

        fn user(&self, text: &str) {
            std::fs::write(self.root.join("config.toml"), text).unwrap();
        }
    }

    fn rules(deny: &[&str], allow: &[&str]) -> Vec<(List, String)> {
        let list = |list: List, texts: &[&str]| {
            texts.iter().map(|text| (list, (*text).to_owned())).collect::<Vec<_>>()
        };
        [list(List::Deny, deny), list(List::Allow, allow)].concat()
    }

    fn said(policy: &Policy) -> Vec<(List, String)> {
        policy.rules.iter().map(|rule| (rule.source.list, rule.source.text.clone())).collect()
    }

    #[test]
    fn a_changed_file_holds_at_once_and_an_unchanged_one_is_the_same() {
        let place = Place::new();
        let policies = place.policies(Arc::new(NobodyIsTrusted));
        let plain = policies.of(&place.cwd());
        assert_eq!(said(&plain), rules(&[], &[]));
        assert!(Arc::ptr_eq(&plain, &policies.of(&place.cwd())));
        place.project("permissions.deny = ['Bash']");
        let denied = policies.of(&place.cwd());
        assert_eq!(said(&denied), rules(&["Bash"], &[]));
        assert!(Arc::ptr_eq(&denied, &policies.of(&place.cwd())));
        place.user("permissions.deny = ['Grep']");
        assert_eq!(said(&policies.of(&place.cwd())), rules(&["Grep", "Bash"], &[]));
        place.project("");
        assert_eq!(said(&policies.of(&place.cwd())), rules(&["Grep"], &[]));
        place.user("permissions.deny = ['Gr");
        assert!(policies.of(&place.cwd()).rules.is_unreadable());
        assert_eq!(policies.untold().iter().filter(|notice| notice.code == "config.unreadable").count(), 1);
        place.user("");
        assert_eq!(said(&policies.of(&place.cwd())), rules(&[], &[]));
        assert_eq!(policies.untold(), []);
    }

    #[test]
    fn what_widens_waits_for_trust() {
        let place = Place::new();
        place.project("mode = 'acceptEdits'\nmodel = 'a/b'\npermissions.allow = ['Bash']");
        let policies = place.policies(Arc::new(NobodyIsTrusted));
        let policy = policies.of(&place.cwd());
        assert_eq!(
            (said(&policy), policy.mode, &policy.model),
            (rules(&[], &[]), agentd_protocol::Mode::Default, &None)
        );
        assert_eq!(policies.untold()[0].code, "config.untrusted");
        let policy = place.policies(Arc::new(Everybody)).of(&place.cwd());
        assert_eq!(said(&policy), rules(&[], &["Bash"]));
        assert_eq!((policy.mode, policy.model.as_deref()), (agentd_protocol::Mode::AcceptEdits, Some("a/b")));
    }

    #[test]
    fn a_file_that_is_no_plain_small_file_of_the_project_closes() {
        let file = |place: &Place| place.root.join("work/.agentd/config.toml");
        let breaks: [(&str, Make); 5] = [
            ("a link", |path| std::os::unix::fs::symlink("/nonexistent/x", path).unwrap()),
            ("a link to text", |path| {
                std::fs::write(path.with_file_name("other"), "").unwrap();
                std::os::unix::fs::symlink("other", path).unwrap();
            }),
            ("a folder", |path| std::fs::create_dir(path).unwrap()),
            ("a pipe", |path| {
                rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap();
            }),
            ("huge", |path| std::fs::write(path, "#".repeat(300 * 1024)).unwrap()),
        ];
        for (what, make) in breaks {
            let place = Place::new();
            make(&file(&place));
            let policies = place.policies(Arc::new(Everybody));
            assert!(policies.of(&place.cwd()).rules.is_unreadable(), "{what}");
            assert_eq!(policies.untold()[0].code, "config.unreadable", "{what}");
        }
        let place = Place::new();
        std::fs::remove_dir(place.root.join("work/.agentd")).unwrap();
        std::fs::create_dir(place.root.join("elsewhere")).unwrap();
        std::fs::write(place.root.join("elsewhere/config.toml"), "").unwrap();
        std::os::unix::fs::symlink("../elsewhere", place.root.join("work/.agentd")).unwrap();
        assert!(place.policies(Arc::new(Everybody)).of(&place.cwd()).rules.is_unreadable());
    }

    #[test]
    fn the_home_folder_is_no_project() {
        let place = Place::new();
        std::fs::create_dir_all(place.root.join(".agentd")).unwrap();
        std::fs::write(place.root.join(".agentd/config.toml"), "permissions.deny = ['Bash']").unwrap();
        let policies = place.policies(Arc::new(Everybody));
        assert_eq!(said(&policies.of(&place.root)), rules(&[], &[]));
    }

    #[test]
    fn what_only_a_start_changes_is_told() {
        let place = Place::new();
        let policies = place.policies(Arc::new(NobodyIsTrusted));
        place.user("permissions.deny = ['Bash']");
        assert_eq!(policies.notices(), []);
        place.user("permissions.allow_bypass = true");
        assert!(!policies.of(&place.cwd()).bypass_enabled);
        let notices = policies.notices();
        assert_eq!(notices[0].code, "config.changed");
        assert!(notices[0].text.ends_with("agentctl daemon stop"));
    }
}
