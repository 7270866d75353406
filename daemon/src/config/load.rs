//! Reads the user's settings file. Never fails: what cannot be read is told and stays at its default.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeTable;

use super::keys;
use super::section::{Findings, Section, Source};
use super::{
    Concern, Dialect, Doubt, Layer, Loaded, Notice, NoticeCode, PermissionRules, Permissions, PlanShell,
    PlanVerify, ProviderSettings, Settings,
};

/// No settings file of a person is longer.
pub(super) const MAX_BYTES: u64 = 1 << 20;

/// Reads a settings file; a missing one gives the defaults.
#[must_use]
pub fn load(path: &Path) -> Loaded {
    match read(path) {
        Ok(Some(text)) => parse(path, &text),
        Ok(None) => Loaded::default(),
        Err(error) => unreadable(format!("{}: cannot be read: {error}", path.display())),
    }
}

/// A file that the user names on the command line, as text.
///
/// # Errors
/// It is missing, no regular file, over 1 MiB, or no text.
pub fn read_text(path: &Path) -> io::Result<String> {
    read(path)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display())))
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        // A link to nothing is a file that was there yesterday, with what it denied.
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_ok() => {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it is a link to nothing"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    // A pipe would never end, and a device never be a settings file.
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("it is over 1 MiB"));
    }
    Ok(Some(text))
}

/// The whole file is passed over. It may have held deny rules, so they close.
fn unreadable(why: String) -> Loaded {
    let text = format!(
        "{why}. Until this is mended, no model is asked, and every call that could change something is denied"
    );
    let settings = Settings {
        permissions: Permissions::Unreadable(why.clone()),
        model_doubts: vec![Doubt { about: Concern::All, why }],
        ..Settings::default()
    };
    Loaded { settings, notices: vec![Notice { code: NoticeCode::UnreadableFile, text }], said: Vec::new() }
}

fn unreadable_rules(why: &str) -> Notice {
    let text = format!("{why}. Until this is mended, every call that could change something is denied");
    Notice { code: NoticeCode::UnreadableRules, text }
}

/// What `text` says, as the user's settings at `path`.
#[must_use]
pub fn parse(path: &Path, text: &str) -> Loaded {
    if super::nesting::is_too_deep(text) {
        return unreadable(format!("{}: it is nested too deep", path.display()));
    }
    let mut source = Source::new(path, Layer::User, text);
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            // Its message and place only: the parser would also quote the line, which may hold a key.
            let span = error.span().unwrap_or(0..0);
            return unreadable(source.at(&span, &format!("the file cannot be parsed: {}", error.message())));
        }
    };
    let mut settings = read_settings(Section::root(&mut source, table));
    let Findings { mut notices, rules_doubt, model_doubts, said } = source.finish();
    settings.model_doubts = model_doubts;
    if let Some(why) = rules_doubt {
        notices.push(unreadable_rules(&why));
        settings.permissions = Permissions::Unreadable(why);
    }
    Loaded { settings, notices, said }
}

fn read_settings(mut root: Section<'_, '_, '_>) -> Settings {
    let mut settings = Settings::default();
    settings.model_at = root.place(keys::MODEL);
    settings.model = root.text(keys::MODEL);
    settings.mode =
        root.parsed(keys::MODE, |text| text.parse().map_err(|_| mode_wanted())).unwrap_or(settings.mode);
    root.table(keys::PROVIDERS).each_table(|name, section| {
        settings.providers.insert(name.to_owned(), read_provider(section));
    });

    let mut plan = root.table(keys::PLAN);
    let shells = [("deny", PlanShell::Deny), ("confined", PlanShell::Confined)];
    settings.plan.shell = plan.choice(keys::PLAN_SHELL, &shells).unwrap_or_default();
    settings.plan.verify = plan.choice(keys::PLAN_VERIFY, &PlanVerify::CHOICES).unwrap_or_default();
    plan.reserved();
    plan.finish();

    let mut permissions = root.table(keys::PERMISSIONS);
    settings.permissions = Permissions::Rules(PermissionRules {
        deny: permissions.closing_rules(keys::PERMISSIONS_DENY),
        ask: permissions.closing_rules(keys::PERMISSIONS_ASK),
        allow: permissions.rules(keys::PERMISSIONS_ALLOW),
        allow_bypass: permissions.flag(keys::PERMISSIONS_ALLOW_BYPASS).unwrap_or_default(),
    });
    permissions.finish();

    let named = root.place(keys::AUTO).is_some();
    let mut auto = root.table(keys::AUTO);
    // Somebody wanted to say something about it: what cannot be read closes.
    let said = auto.place(keys::AUTO_ENABLED).is_some() || (named && !auto.is_there());
    settings.auto.enabled = auto.flag(keys::AUTO_ENABLED).unwrap_or(!said);
    settings.auto.model = auto.text(keys::AUTO_MODEL);
    settings.auto.timeout =
        auto.seconds(keys::AUTO_TIMEOUT).map_or(settings.auto.timeout, Duration::from_secs);
    auto.finish();

    let mut shell = root.table(keys::SHELL);
    settings.shell.env = shell.texts(keys::SHELL_ENV).unwrap_or_default();
    shell.finish();

    let mut retention = root.table(keys::RETENTION);
    settings.retention.max_age_days =
        retention.whole(keys::RETENTION_AGE, "a whole number of days, at least 1");
    settings.retention.max_size_mib =
        retention.whole(keys::RETENTION_SIZE, "a whole number of MiB, at least 1");
    retention.finish();

    root.reserved();
    root.finish();
    settings
}

fn mode_wanted() -> String {
    let names = agentd_protocol::Mode::ALL.map(|mode| format!("\"{mode}\""));
    format!("one of {}", names.join(", "))
}

fn read_provider(mut section: Section<'_, '_, '_>) -> ProviderSettings {
    let settings = ProviderSettings {
        dialect: section.parsed(keys::PROVIDER_DIALECT, |text| {
            text.parse::<Dialect>().map_err(|_| {
                format!("one of {}", Dialect::ALL.map(|dialect| format!("\"{}\"", dialect.name())).join(", "))
            })
        }),
        base_url: section.parsed(keys::PROVIDER_BASE_URL, |text| {
            if text.starts_with("https://") || text.starts_with("http://") {
                Ok(text.trim_end_matches('/').to_owned())
            } else {
                Err("a URL that begins with https:// or http://".to_owned())
            }
        }),
        api_key_env: section.text(keys::PROVIDER_KEY_ENV),
        api_key_file: section.text(keys::PROVIDER_KEY_FILE).map(PathBuf::from),
        api_key_command: section.text(keys::PROVIDER_KEY_COMMAND),
        idle_timeout_s: section.seconds(keys::PROVIDER_IDLE),
    };
    section.finish();
    settings
}
