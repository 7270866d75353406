use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use super::*;
use crate::paths::{Env, Paths};

struct Bench {
    root: TempDir,
    store: KeyStore,
    paths: Paths,
}

impl Bench {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(vars: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let credentials = root.path().join("credentials");
        let mut all = vec![
            ("HOME".to_owned(), root.path().to_str().unwrap().to_owned()),
            ("CREDENTIALS_DIRECTORY".to_owned(), credentials.to_str().unwrap().to_owned()),
        ];
        all.extend(vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let env = Env::from_vars(all);
        let paths = Paths::resolve(&env, None).unwrap();
        let store = KeyStore::new(&paths, &env);
        Self { root, store, paths }
    }

    fn write(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn found(&self, wanted: Wanted<'_>) -> Option<(String, Source)> {
        self.store.find(wanted).unwrap().map(|found| match found {
            Found::Key { secret, source } => (secret.expose_secret().to_owned(), source),
            Found::Command(command) => (command, Source::Command),
        })
    }
}

const ACME: Wanted<'_> = Wanted { provider: "acme", settings: None, preset_env: Some("ACME_API_KEY") };

fn secret(text: &str) -> SecretString {
    SecretString::from(text)
}

#[test]
fn a_key_is_stored_closed_and_found_again() {
    let bench = Bench::new();
    assert!(bench.found(ACME).is_none());
    let path = bench.store.set("acme", &secret("  sk-one\n")).unwrap();
    assert_eq!(path, bench.paths.keys_dir().join("acme"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "sk-one\n");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&bench.paths.keys_dir()), 0o700);

    bench.store.set("acme", &secret("sk-two")).unwrap();
    assert_eq!(bench.found(ACME).unwrap(), ("sk-two".into(), Source::Stored(path)));
    let files = std::fs::read_dir(bench.paths.keys_dir()).unwrap().count();
    assert_eq!(files, 1, "no temporary file is left");
    assert!(bench.store.delete("acme").unwrap());
    assert!(!bench.store.delete("acme").unwrap());
    assert!(bench.found(ACME).is_none());
}

#[test]
fn the_order_of_places_is_fixed() {
    let bench = Bench::with(&[("ACME_API_KEY", "from-preset"), ("MINE", "from-variable")]);
    let file = bench.write("key-file", "from-settings\n", 0o600);
    let mut settings = ProviderSettings {
        api_key_file: Some("~/key-file".into()),
        api_key_command: Some("pass acme".into()),
        api_key_env: Some("MINE".into()),
        ..ProviderSettings::default()
    };
    bench.store.set("acme", &secret("from-store")).unwrap();
    let credential = bench.write("credentials/acme", "from-credential", 0o444);

    let found =
        |settings: &ProviderSettings| bench.found(Wanted { settings: Some(settings), ..ACME }).unwrap();
    assert_eq!(found(&settings), ("from-settings".into(), Source::SettingsFile(file)));
    settings.api_key_file = None;
    assert_eq!(found(&settings), ("pass acme".into(), Source::Command));
    settings.api_key_command = None;
    assert_eq!(found(&settings).0, "from-store");
    bench.store.delete("acme").unwrap();
    assert_eq!(found(&settings), ("from-credential".into(), Source::Credential(credential.clone())));
    std::fs::remove_file(credential).unwrap();
    assert_eq!(found(&settings), ("from-variable".into(), Source::Variable("MINE".into())));
    settings.api_key_env = None;
    assert_eq!(found(&settings).0, "from-preset");
    assert!(bench.found(Wanted { preset_env: None, ..ACME }).is_none());
}

#[test]
fn a_named_place_that_fails_is_not_passed_over() {
    let bench = Bench::with(&[("ACME_API_KEY", "other")]);
    let settings = ProviderSettings { api_key_file: Some("~/nowhere".into()), ..ProviderSettings::default() };
    assert!(bench.store.find(Wanted { settings: Some(&settings), ..ACME }).is_err());
    let path = bench.store.set("acme", &secret("sk-one")).unwrap();
    std::fs::write(&path, "").unwrap();
    let error = bench.store.find(ACME).unwrap_err();
    assert!(matches!(error, KeyError::BadKey { problem: BadKey::Empty, .. }));
}

#[test]
fn a_key_that_others_can_read_is_refused_with_the_cure() {
    let bench = Bench::new();
    let path = bench.store.set("acme", &secret("sk-one")).unwrap();
    for mode in [0o640, 0o604, 0o660, 0o644] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = bench.store.find(ACME).unwrap_err().to_string();
        assert!(error.ends_with(&format!("chmod 600 {}", path.display())), "{error}");
    }
}

#[test]
fn hostile_names_are_refused_before_any_file_is_touched() {
    let bench = Bench::new();
    let long = "a".repeat(65);
    for name in ["", ".", "..", "../x", "/etc/passwd", "a/b", "A", "a b", "a\0", "é", &long] {
        assert!(matches!(bench.store.set(name, &secret("k")), Err(KeyError::BadName(_))), "{name:?}");
        assert!(matches!(bench.store.delete(name), Err(KeyError::BadName(_))), "{name:?}");
        let wanted = Wanted { provider: name, ..ACME };
        assert!(matches!(bench.store.find(wanted), Err(KeyError::BadName(_))), "{name:?}");
    }
    assert!(!bench.paths.keys_dir().exists());
}

#[test]
fn what_cannot_be_a_key_is_refused_and_the_former_one_holds() {
    let bench = Bench::new();
    bench.store.set("acme", &secret("sk-one")).unwrap();
    let long = "x".repeat(MAX_KEY + 1);
    for (text, problem) in [
        ("", BadKey::Empty),
        (" \n ", BadKey::Empty),
        ("a\nb", BadKey::SeveralLines),
        ("a\r\nb", BadKey::SeveralLines),
        ("a\u{7}b", BadKey::Control),
        ("a b", BadKey::Strange),
        ("\u{201c}sk\u{201d}", BadKey::Strange),
        (long.as_str(), BadKey::TooLong),
    ] {
        assert_eq!(parse_key(text).unwrap_err(), problem);
        assert!(bench.store.set("acme", &secret(text)).is_err());
    }
    assert_eq!(bench.found(ACME).unwrap().0, "sk-one");
}

#[test]
fn a_list_names_every_key_and_every_trouble_once() {
    let bench = Bench::with(&[("ACME_API_KEY", "sk-env")]);
    bench.store.set("stored", &secret("sk-stored")).unwrap();
    let open = bench.store.set("open", &secret("sk-open")).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::write(bench.paths.keys_dir().join("Not A Name"), "x").unwrap();
    let none = Wanted { provider: "none", settings: None, preset_env: None };
    let open_wanted = Wanted { provider: "open", ..none };
    let listed: Vec<(String, bool)> = bench
        .store
        .list(&[ACME, none, open_wanted])
        .unwrap()
        .into_iter()
        .map(|listed| (listed.provider, listed.source.is_ok()))
        .collect();
    assert_eq!(listed, [("acme".to_owned(), true), ("open".to_owned(), false), ("stored".to_owned(), true)]);
}

#[test]
fn nothing_that_is_printed_holds_a_key() {
    let bench = Bench::with(&[("ACME_API_KEY", "sk-in-env"), ("BAD", "sk-bad key")]);
    bench.store.set("stored", &secret("sk-stored")).unwrap();
    let stored = bench.store.find(Wanted { provider: "stored", settings: None, preset_env: None });
    let bad = bench.store.find(Wanted { preset_env: Some("BAD"), ..ACME }).unwrap_err();
    let printed = format!(
        "{:?} {:?} {:?} {:?} {bad} {:?}",
        bench.store,
        stored,
        bench.store.find(ACME),
        bad,
        bench.store.list(&[ACME]),
    );
    assert!(!printed.contains("sk-"), "{printed}");
}

#[test]
fn a_pipe_in_place_of_a_key_does_not_stop_the_daemon() {
    let bench = Bench::new();
    let path = bench.store.set("acme", &secret("sk-one")).unwrap();
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    assert!(matches!(bench.store.find(ACME), Err(KeyError::Io { .. })));
}
