use std::path::Path;

use super::*;

fn load_text(text: &str) -> Loaded {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    let mut loaded = load(&path);
    for notice in &mut loaded.notices {
        notice.text = notice.text.replace(path.to_str().unwrap(), "FILE");
    }
    match &mut loaded.settings.permissions {
        Permissions::Unreadable(why) => *why = why.replace(path.to_str().unwrap(), "FILE"),
        Permissions::Rules(PermissionRules { deny, ask, allow, .. }) => {
            for rule in deny.iter_mut().chain(ask).chain(allow) {
                rule.place = rule.place.replace(path.to_str().unwrap(), "FILE");
            }
        }
    }
    loaded
}

fn rule(text: &str, line: usize) -> RuleText {
    RuleText { text: text.into(), layer: Layer::User, place: format!("FILE:{line}") }
}

fn told(loaded: &Loaded) -> Vec<(&'static str, &str)> {
    loaded.notices.iter().map(|notice| (notice.code.as_str(), notice.text.as_str())).collect()
}

fn is_closed(loaded: &Loaded) -> bool {
    matches!(loaded.settings.permissions, Permissions::Unreadable(_))
        && loaded
            .notices
            .iter()
            .any(|notice| matches!(notice.code, NoticeCode::UnreadableRules | NoticeCode::UnreadableFile))
}

#[test]
fn a_missing_and_an_empty_file_are_the_defaults() {
    assert_eq!(load(Path::new("/nowhere/config.toml")), Loaded::default());
    assert_eq!(load_text(""), Loaded::default());
    let defaults = Settings::default();
    assert_eq!(defaults.mode, Mode::Default);
    assert_eq!(defaults.plan, PlanSettings { shell: PlanShell::Deny, verify: PlanVerify::Report });
    assert!(!defaults.permissions.allow_bypass());
}

#[test]
fn every_key_is_read() {
    let loaded = load_text(
        r#"
        model = "deepseek/deepseek-chat"
        mode = "accept_edits"
        [providers.deepseek]
        dialect = "openai-chat"
        base_url = "https://api.deepseek.com/v1/"
        api_key_env = "DEEPSEEK_API_KEY"
        api_key_file = "~/key"
        api_key_command = "pass deepseek"
        [providers.ollama]
        [plan]
        shell = "confined"
        verify = "loop"
        [permissions]
        deny = ["run_shell"]
        ask = ["write_file"]
        allow = ["read_file", "grep_search"]
        allow_bypass = true
        [shell]
        env = ["JAVA_HOME"]
        [retention]
        max_age_days = 90
        max_size_mib = 2048
        "#,
    );
    let deepseek = ProviderSettings {
        dialect: Some(Dialect::OpenaiChat),
        base_url: Some("https://api.deepseek.com/v1".into()),
        api_key_env: Some("DEEPSEEK_API_KEY".into()),
        api_key_file: Some("~/key".into()),
        api_key_command: Some("pass deepseek".into()),
        idle_timeout_s: None,
    };
    let expected = Settings {
        model: Some("deepseek/deepseek-chat".into()),
        model_at: loaded.settings.model_at.clone(),
        mode: Mode::AcceptEdits,
        providers: [("deepseek".into(), deepseek), ("ollama".into(), ProviderSettings::default())].into(),
        plan: PlanSettings { shell: PlanShell::Confined, verify: PlanVerify::Loop },
        permissions: Permissions::Rules(PermissionRules {
            deny: vec![rule("run_shell", 15)],
            ask: vec![rule("write_file", 16)],
            allow: vec![rule("read_file", 17), rule("grep_search", 17)],
            allow_bypass: true,
        }),
        auto: AutoSettings::default(),
        shell: ShellSettings { env: vec!["JAVA_HOME".into()] },
        retention: RetentionSettings { max_age_days: Some(90), max_size_mib: Some(2048) },
        model_doubts: vec![],
    };
    assert!(loaded.settings.model_at.as_deref().is_some_and(|at| at.ends_with("config.toml:2")));
    assert_eq!((loaded.settings, loaded.notices), (expected, vec![]));
}

#[test]
fn modes_have_their_wire_names_and_snake_case() {
    for mode in Mode::ALL {
        assert_eq!(load_text(&format!("mode = \"{mode}\"")).settings.mode, mode);
    }
    assert_eq!(load_text("mode = \"dont_ask\"").settings.mode, Mode::DontAsk);
    assert_eq!(load_text("mode = \"bypass_permissions\"").settings.mode, Mode::BypassPermissions);
}

#[test]
fn unknown_keys_are_told_with_their_line_and_the_nearest_one() {
    let loaded = load_text(
        "modell = \"a/b\"\nzebra = 1\n[plan]\nverfy = \"off\"\n[providers.x]\nbase-url = \"https://x\"\napi_key = \"sk-secret\"\n",
    );
    assert_eq!(
        told(&loaded),
        [
            ("config.unknownKey", "FILE:1: unknown key `modell`; did you mean `model`?"),
            ("config.unknownKey", "FILE:2: unknown key `zebra`"),
            ("config.unknownKey", "FILE:4: unknown key `plan.verfy`; did you mean `plan.verify`?"),
            (
                "config.unknownKey",
                "FILE:6: unknown key `providers.x.base-url`; did you mean `providers.x.base_url`?"
            ),
            (
                "config.unknownKey",
                "FILE:7: unknown key `providers.x.api_key`; keys do not belong here, store it with: agentctl key add"
            ),
        ]
    );
}

#[test]
fn the_nearest_key_is_the_one_with_the_fewest_slips() {
    for (typed, meant) in [
        ("modle", "model"),
        ("mdel", "model"),
        ("moed", "mode"),
        ("Model", "model"),
        ("provider", "providers"),
    ] {
        let loaded = load_text(&format!("{typed} = 1"));
        let (_, text) = told(&loaded)[0];
        assert!(text.ends_with(&format!("did you mean `{meant}`?")), "{text}");
    }
}

#[test]
fn mistakes_that_may_concern_the_model_leave_it_in_doubt() {
    let mine = || Concern::Provider("mine".into());
    for (text, doubts) in [
        ("model = ", vec![Concern::All]),
        ("model = 3", vec![Concern::Model]),
        ("modle = \"mine/x\"", vec![Concern::Model]),
        ("providers = 1", vec![Concern::All]),
        ("[provider.mine]", vec![Concern::All]),
        ("[providers.mine]\nbase-url = \"http://localhost\"", vec![mine()]),
        ("[providers.mine]\nbase_url = \"localhost\"", vec![mine()]),
        ("[providers.mine]\ndialect = \"openai\"\n[plan]\nverfy = \"off\"", vec![mine()]),
        ("[providers]\nmine = 3", vec![mine()]),
        ("[providers.\"My one\"]", vec![Concern::Provider("My one".into())]),
        ("zebra = 1\nmode = \"yolo\"\n[plan]\nshell = 1\nmodle = 1", vec![]),
    ] {
        let found: Vec<Concern> =
            load_text(text).settings.model_doubts.into_iter().map(|doubt| doubt.about).collect();
        assert_eq!(found, doubts, "{text:?}");
    }
}

#[test]
fn a_wrong_type_costs_that_key_only() {
    let loaded = load_text(
        "model = 3\nmode = \"yolo\"\nplan = 1\nshell.env = [1]\n[permissions]\nallow = \"all\"\nallow_bypass = \"yes\"\ndeny = [\"run_shell\"]\n[providers]\n\"../x\" = {}\nok = 3\nbad = { base_url = \"ftp://x\", dialect = \"morse\" }\n",
    );
    let lines: Vec<&str> = loaded.notices.iter().map(|notice| notice.text.as_str()).collect();
    assert!(loaded.notices.iter().all(|notice| notice.code == NoticeCode::BadValue), "{lines:#?}");
    for expected in [
        "FILE:1: `model` must be a text in quotes",
        "FILE:2: `mode` must be one of \"default\", \"acceptEdits\", \"plan\", \"auto\", \"dontAsk\", \"bypassPermissions\"; its default is used",
        "FILE:3: `plan` must be a table; its default is used",
        "FILE:4: `shell.env` must be a list of texts; its default is used",
        "FILE:6: `permissions.allow` must be a list of texts; its default is used",
        "FILE:7: `permissions.allow_bypass` must be true or false; its default is used",
        "FILE:10: a name under `providers` has 1 to 64 of a-z, 0-9, - and _; this one is passed over",
        "FILE:11: `providers.ok` must be a table",
        "FILE:12: `providers.bad.base_url` must be a URL that begins with https:// or http://",
        "FILE:12: `providers.bad.dialect` must be one of \"openai-chat\", \"anthropic\"",
    ] {
        assert!(lines.contains(&expected), "{expected:?} is not in {lines:#?}");
    }
    assert_eq!(lines.len(), 10);
    let expected = PermissionRules { deny: vec![rule("run_shell", 8)], ..PermissionRules::default() };
    assert_eq!(loaded.settings.permissions, Permissions::Rules(expected));
}

#[test]
fn rules_that_cannot_be_read_close() {
    for text in [
        "[permissions]\ndeny = \"run_shell\"",
        "[permissions]\ndeny = [\"run_shell\", 1]",
        "[permissions]\nask = 1",
        "permissions = 1",
        "[[permissions]]\ndeny = [\"run_shell\"]",
        "[permissions]\nDeny = [\"run_shell\"]",
        "[permissions]\ndenny = [\"run_shell\"]",
        "[permission]\ndeny = [\"run_shell\"]",
        "deny = [\"run_shell\"]",
        "[plan]\ndeny = [\"run_shell\"]",
        "[permissions]\ndeny = [\"run_shell\"]\ndeny = []",
        "[permissions]\ndeny = [\"run_shell\"",
        "model = ",
    ] {
        let loaded = load_text(text);
        assert!(is_closed(&loaded), "{text:?} left the rules open: {loaded:?}");
        assert!(!loaded.settings.permissions.allow_bypass());
    }
}

#[test]
fn other_mistakes_do_not_close() {
    for text in ["[permissions]\nallow = 1", "[permissions]\nfuture = 1", "mode = 1", "zebra = 1"] {
        let loaded = load_text(text);
        assert!(!is_closed(&loaded), "{text:?}");
        assert_eq!(loaded.notices.len(), 1);
    }
}

#[test]
fn a_file_that_does_not_parse_is_told_once_with_its_line_and_no_content() {
    let loaded = load_text("model = \"a/b\"\n[providers.x]\napi_key = sk-secret\n");
    assert_eq!(loaded.settings.model, None);
    assert!(is_closed(&loaded));
    let [(code, text)] = told(&loaded)[..] else { panic!("not told once: {:?}", told(&loaded)) };
    assert_eq!(code, "config.unreadable");
    assert!(text.starts_with("FILE:3: the file cannot be parsed: "), "{text}");
    assert!(!format!("{loaded:?}").contains("sk-secret"));
}

#[test]
fn a_file_that_cannot_be_read_closes() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    assert!(is_closed(&load(&folder)));
    let binary = root.path().join("binary");
    std::fs::write(&binary, [0xff, 0xfe]).unwrap();
    assert!(is_closed(&load(&binary)));
    let long = root.path().join("long");
    std::fs::write(&long, "#".repeat((1 << 20) + 1)).unwrap();
    assert!(is_closed(&load(&long)));
}

proptest::proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "[a-z\\[\\]=\"'.{}\n0-9 ]{0,80}") {
        load_text(&text);
    }
}

#[test]
fn a_wrong_limit_of_retention_removes_nothing() {
    for wrong in [
        "max_age_days = 0",
        "max_age_days = \"30\"",
        "max_age_days = 1.5",
        "max_size_mib = -1",
        "max_age = 3",
    ] {
        let loaded = load_text(&format!("[retention]\n{wrong}\n"));
        assert_eq!(loaded.settings.retention, RetentionSettings::default(), "{wrong}");
        assert_eq!(loaded.notices.len(), 1, "{wrong}");
    }
}

#[test]
fn mode_auto_is_on_unless_somebody_wanted_to_say_something_else() {
    for (text, enabled) in [
        ("", true),
        ("[auto]", true),
        ("[auto]\nenabled = true", true),
        ("[auto]\nenabled = false", false),
        ("[auto]\nenabled = \"no\"", false),
        ("auto = false", false),
    ] {
        assert_eq!(load_text(text).settings.auto.enabled, enabled, "{text}");
    }
    let auto = load_text("[auto]\nmodel = \"a/b\"\ntimeout_s = 30").settings.auto;
    assert_eq!((auto.model.as_deref(), auto.timeout.as_secs()), (Some("a/b"), 30));
}
