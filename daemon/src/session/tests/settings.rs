//! What `config/get` says is what counts, and `config/set` writes that one key or nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentd_protocol::Digest;
use agentd_protocol::config::{ConfigEntry, ConfigLayer, ConfigSetParams, ConfigTarget};
use serde_json::{Value, json};

use crate::permission::Sandbox;
use crate::session::SessionError;
use crate::session::policies::{Host, NobodyIsTrusted, Policies, Standing, Trust};
use crate::session::settings::{Of, Own};

struct Everybody;

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
        Self { _folder: folder, root }
    }

    fn policies(&self, trust: Arc<dyn Trust>) -> Policies {
        let host = Host { sandbox: Sandbox::None, allow_bypass: false };
        Policies::open(self.root.join("config.toml"), self.root.clone(), host, trust)
    }

    fn user(&self, text: &str) {
        std::fs::write(self.root.join("config.toml"), text).unwrap();
    }

    fn project(&self, text: &str) {
        std::fs::write(self.root.join("work/.agentd/config.toml"), text).unwrap();
    }

    fn of(&self) -> Of {
        Of { cwd: Some(self.root.join("work")), session: None }
    }

    fn get(&self, policies: &Policies, key: &str) -> ConfigEntry {
        let mut entries = policies.config(self.of(), Some(key)).unwrap().entries;
        assert_eq!(entries.len(), 1, "{key}");
        entries.remove(0)
    }

    fn params(&self, key: &str, value: Option<Value>, target: ConfigTarget) -> ConfigSetParams {
        let cwd = Some(self.root.join("work").display().to_string());
        ConfigSetParams { key: key.into(), unset: value.is_none(), value, target, cwd }
    }
}

fn said(entry: &ConfigEntry) -> Vec<(ConfigLayer, Value, Option<&str>)> {
    entry.said.iter().map(|said| (said.layer, said.value.clone(), said.passed_over.as_deref())).collect()
}

#[test]
fn every_layer_is_told_with_why_it_does_not_count() {
    use ConfigLayer::{BuiltIn, Project, Session, User};
    let place = Place::new();
    place.user("mode = 'plan'\npermissions.allow = ['Read']\nplan.shell = 'confined'\n");
    place.project(
        "mode = 'acceptEdits'\npermissions.allow = ['Edit']\npermissions.deny = ['Bash']\nplan.verify = 'off'\nplan.shell = 'deny'\nhooks.x = 1\n",
    );
    let untrusted = place.policies(Arc::new(NobodyIsTrusted));
    let mode = place.get(&untrusted, "mode");
    assert_eq!((&mode.value, mode.layer), (&json!("plan"), User));
    assert!(mode.place.as_deref().unwrap().ends_with("config.toml:1"));
    let passed_over = (Project, json!("acceptEdits"), Some("nobody has trusted it"));
    assert_eq!(said(&mode), [passed_over, (User, json!("plan"), None)]);
    assert_eq!(place.get(&untrusted, "permissions.allow").value, json!(["Read"]));
    assert_eq!(place.get(&untrusted, "permissions.deny").value, json!(["Bash"]));
    let verify = place.get(&untrusted, "plan.verify");
    assert_eq!((&verify.value, verify.layer), (&json!("report"), BuiltIn));
    assert_eq!(said(&verify), [(Project, json!("off"), Some("it does not make it stricter"))]);
    let shell = place.get(&untrusted, "plan.shell");
    assert_eq!((&shell.value, shell.layer), (&json!("confined"), User));
    assert_eq!(said(&shell)[0].2, Some("it counts only in your own settings"));
    let hooks = place.get(&untrusted, "hooks");
    assert!(hooks.hidden && hooks.value.is_null() && hooks.said[0].value.is_null());

    let trusted = place.policies(Arc::new(Everybody));
    let mode = place.get(&trusted, "mode");
    assert_eq!((&mode.value, mode.layer), (&json!("acceptEdits"), Project));
    assert_eq!(said(&mode)[1].2, Some("what the project says counts"));
    let allow = place.get(&trusted, "permissions.allow");
    assert_eq!((&allow.value, allow.layer), (&json!(["Read", "Edit"]), Project));
    let own = Own { mode: agentd_protocol::Mode::DontAsk, model: "a/b".into() };
    let of = Of { session: Some(own), ..place.of() };
    let mode = trusted.config(of, Some("mode")).unwrap().entries.remove(0);
    assert_eq!((&mode.value, mode.layer), (&json!("dontAsk"), Session));
}

#[test]
fn what_waits_for_a_start_and_what_is_secret_is_said() {
    let place = Place::new();
    place.user("model = 'a/b'\n[providers.x]\nbase_url = 'https://me:pw@x'\napi_key_command = 'echo sk-1'\n");
    let policies = place.policies(Arc::new(NobodyIsTrusted));
    for key in ["providers.x.base_url", "providers.x.api_key_command"] {
        let entry = place.get(&policies, key);
        assert!(entry.hidden && entry.value.is_null(), "{key}");
    }
    let all = serde_json::to_string(&policies.config(place.of(), None).unwrap()).unwrap();
    assert!(!all.contains("sk-1") && !all.contains("pw@"), "{all}");
    policies.set_config(&place.params("model", Some(json!("c/d")), ConfigTarget::User)).unwrap();
    let model = place.get(&policies, "model");
    assert_eq!(model.value, json!("a/b"));
    assert_eq!(said(&model)[1].2, Some("it counts from the next start of agentd"));
    assert_eq!(place.get(&place.policies(Arc::new(NobodyIsTrusted)), "model").value, json!("c/d"));
    assert_eq!(policies.config(place.of(), Some("providers")).unwrap().entries.len(), 2);
    let SessionError::Invalid { field, message } = policies.config(place.of(), Some("modle")).unwrap_err()
    else {
        panic!()
    };
    assert_eq!((field, message.contains("did you mean `model`?")), ("key", true));
}

#[test]
fn nothing_is_written_that_would_not_count_or_not_be_understood() {
    let place = Place::new();
    let (user, project) = ("# mine\nmode = 'plan'\n", "# theirs\nmode = 'plan'\n");
    place.user(user);
    place.project(project);
    let policies = place.policies(Arc::new(NobodyIsTrusted));
    let set =
        |key: &str, value: Option<Value>, target| policies.set_config(&place.params(key, value, target));
    for (key, value, target, why) in [
        ("modle", Some(json!("plan")), ConfigTarget::User, "did you mean `model`?"),
        ("mode", Some(json!("yolo")), ConfigTarget::User, "must be one of"),
        ("plan", Some(json!({})), ConfigTarget::User, "name a key in it"),
        ("mode", Some(json!("auto")), ConfigTarget::Project, "only in your own settings"),
        ("shell.env", Some(json!(["X"])), ConfigTarget::Project, "only in your own settings"),
        ("permissions.deny", Some(json!(["Bsh(x)"])), ConfigTarget::User, "Bsh"),
        ("permissions.allow", Some(json!(["Bash(rm"])), ConfigTarget::User, "Bash(rm"),
    ] {
        let error = set(key, value, target).unwrap_err().to_string();
        assert!(error.contains(why), "{key}: {error}");
    }
    place.user("mode = 'plan'\nmode");
    let error = set("mode", Some(json!("default")), ConfigTarget::User).unwrap_err().to_string();
    assert!(error.contains("config.toml:2") && error.contains("nothing was written"), "{error}");
    let text = |name: &str| std::fs::read_to_string(place.root.join(name)).unwrap();
    assert_eq!(text("config.toml"), "mode = 'plan'\nmode");
    assert_eq!(text("work/.agentd/config.toml"), project);
}

#[test]
fn files_keep_their_mode_and_their_links_and_are_made_where_there_are_none() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let real = place.root.join("dotfiles.toml");
    std::fs::write(&real, "mode = 'plan' # why\n").unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&real, place.root.join("config.toml")).unwrap();
    let policies = place.policies(Arc::new(NobodyIsTrusted));
    let result =
        policies.set_config(&place.params("mode", Some(json!("default")), ConfigTarget::User)).unwrap();
    assert_eq!((result.path.as_str(), result.changed), (real.to_str().unwrap(), true));
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "mode = \"default\" # why\n");
    assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(std::fs::symlink_metadata(place.root.join("config.toml")).unwrap().is_symlink());

    // A repository that points elsewhere is not followed.
    std::os::unix::fs::symlink(&real, place.root.join("work/.agentd/config.toml")).unwrap();
    let params = place.params("permissions.deny", Some(json!(["Bash"])), ConfigTarget::Project);
    assert!(policies.set_config(&params).is_err());
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "mode = \"default\" # why\n");
    std::fs::remove_dir_all(place.root.join("work/.agentd")).unwrap();
    let result = policies.set_config(&params).unwrap();
    assert_eq!(result.entry.value, json!(["Bash"]), "it counts at once");
    let file = place.root.join("work/.agentd/config.toml");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "[permissions]\ndeny = [\"Bash\"]\n");
    // The home is no project.
    let home = ConfigSetParams { cwd: Some(place.root.display().to_string()), ..params };
    assert!(policies.set_config(&home).is_err());
}
