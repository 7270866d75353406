//! The places of keys, and the only code that opens them.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};

use super::{BadKey, Found, KeyError, MAX_KEY, Source, Wanted, parse_key};
use crate::config::is_provider_name;
use crate::paths::{Env, Paths, make_folder, replace_file};

/// Keys of one user. All calls touch the disk: not for a runtime's thread. Nothing is remembered, so a key that is set,
/// changed or removed by hand counts from the next call on.
#[derive(Clone, Debug)]
pub struct KeyStore {
    dir: PathBuf,
    env: Env,
}

impl KeyStore {
    #[must_use]
    pub fn new(paths: &Paths, env: &Env) -> Self {
        Self { dir: paths.keys_dir(), env: env.clone() }
    }

    /// Stores a key in a file of mode 0600, durable when this returns. Tells where.
    ///
    /// # Errors
    /// The name or the key cannot be one, or the file cannot be written; then the former key still holds.
    pub fn set(&self, provider: &str, key: &SecretString) -> Result<PathBuf, KeyError> {
        let path = self.file(provider)?;
        let key = parse_key(key.expose_secret())
            .map_err(|problem| KeyError::BadKey { from: "the input".to_owned(), problem })?;
        make_folder(&self.dir)?;
        let line = SecretString::from(format!("{}\n", key.expose_secret()));
        replace_file(&path, line.expose_secret().as_bytes())
            .map_err(|source| io_error("write", &path, source))?;
        Ok(path)
    }

    /// Removes a stored key. False if there is none; a key from elsewhere is left alone.
    ///
    /// # Errors
    /// The name cannot be one, or the file cannot be removed.
    pub fn delete(&self, provider: &str) -> Result<bool, KeyError> {
        let path = self.file(provider)?;
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(io_error("remove", &path, source)),
        }
    }

    /// The first key that there is: by the settings, stored, from the service manager, in the environment. A place that
    /// is named but cannot be used is an error, never passed over: the next place may hold somebody else's key.
    ///
    /// # Errors
    /// As said; the text tells what to type.
    pub fn find(&self, wanted: Wanted<'_>) -> Result<Option<Found>, KeyError> {
        let stored = self.file(wanted.provider)?;
        if let Some(settings) = wanted.settings {
            if let Some(path) = &settings.api_key_file {
                let path = self.expand(path);
                let secret = self
                    .read(&path, Access::Closed)?
                    .ok_or_else(|| io_error("open", &path, io::ErrorKind::NotFound.into()))?;
                return Ok(Some(Found::Key { secret, source: Source::SettingsFile(path) }));
            }
            if let Some(command) = &settings.api_key_command {
                return Ok(Some(Found::Command(command.clone())));
            }
        }
        if let Some(secret) = self.read(&stored, Access::Closed)? {
            return Ok(Some(Found::Key { secret, source: Source::Stored(stored) }));
        }
        if let Some(dir) = self.env.absolute("CREDENTIALS_DIRECTORY") {
            let path = dir.join(wanted.provider);
            // The service manager decides who may read these.
            if let Some(secret) = self.read(&path, Access::Any)? {
                return Ok(Some(Found::Key { secret, source: Source::Credential(path) }));
            }
        }
        let variable = wanted.settings.and_then(|settings| settings.api_key_env.as_deref());
        self.variable(variable.or(wanted.preset_env))
    }

    /// Every provider with a key, and where it comes from or why it cannot be used: those wanted, and those stored.
    ///
    /// # Errors
    /// The folder of the stored keys cannot be listed.
    pub fn list(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Listed>, KeyError> {
        let stored = self.stored()?;
        let others = stored
            .iter()
            .filter(|name| wanted.iter().all(|wanted| wanted.provider != name.as_str()))
            .map(|name| Wanted { provider: name, settings: None, preset_env: None });
        let mut listed = Vec::new();
        for wanted in wanted.iter().copied().chain(others) {
            let source = match self.find(wanted) {
                Ok(None) => continue,
                Ok(Some(found)) => Ok(found.source()),
                Err(error) => Err(error),
            };
            listed.push(Listed { provider: wanted.provider.to_owned(), source });
        }
        listed.sort_by(|a, b| a.provider.cmp(&b.provider));
        Ok(listed)
    }

    fn stored(&self) -> Result<Vec<String>, KeyError> {
        let failed = |source| io_error("list", &self.dir, source);
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            names.extend(name.to_str().filter(|name| is_provider_name(name)).map(str::to_owned));
        }
        Ok(names)
    }

    fn variable(&self, name: Option<&str>) -> Result<Option<Found>, KeyError> {
        let Some((name, value)) = name.and_then(|name| Some((name, self.env.get(name)?))) else {
            return Ok(None);
        };
        let source = Source::Variable(name.to_owned());
        let bad = |problem| KeyError::BadKey { from: source.to_string(), problem };
        let text = value.to_str().ok_or_else(|| bad(BadKey::Strange))?;
        let secret = parse_key(text).map_err(bad)?;
        Ok(Some(Found::Key { secret, source }))
    }

    fn file(&self, provider: &str) -> Result<PathBuf, KeyError> {
        if is_provider_name(provider) {
            Ok(self.dir.join(provider))
        } else {
            Err(KeyError::BadName(provider.chars().take(80).collect()))
        }
    }

    /// `~/` is the home folder.
    fn expand(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), self.env.absolute("HOME")) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path.to_owned(),
        }
    }

    /// `None` if there is no file.
    fn read(&self, path: &Path, access: Access) -> Result<Option<SecretString>, KeyError> {
        let failed = |source| io_error("read", path, source);
        // Without NONBLOCK a pipe of that name would stop the daemon.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed)?,
        };
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(failed(io::Error::other("it is not a regular file")));
        }
        if access == Access::Closed {
            let (owner, uid) = (meta.uid(), self.env.uid());
            if owner != uid && owner != 0 {
                return Err(KeyError::ForeignOwner { path: path.to_owned(), owner, uid });
            }
            if meta.mode() & 0o077 != 0 {
                return Err(KeyError::ReadableByOthers(path.to_owned()));
            }
        }
        let mut bytes = Vec::new();
        // Some room for blanks around the longest key; `parse_key` tells what is too long.
        file.take(MAX_KEY as u64 + 1024).read_to_end(&mut bytes).map_err(failed)?;
        let bad = |problem| KeyError::BadKey { from: path.display().to_string(), problem };
        let text = SecretString::from(String::from_utf8(bytes).map_err(|_| bad(BadKey::Strange))?);
        parse_key(text.expose_secret()).map(Some).map_err(bad)
    }
}

/// Who may be able to read a file with a key in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Its owner only.
    Closed,
    Any,
}

/// One provider in a list of keys.
#[derive(Debug)]
pub struct Listed {
    pub provider: String,
    /// Where the key comes from, or why it cannot be used.
    pub source: Result<Source, KeyError>,
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> KeyError {
    KeyError::Io { action, path: path.to_owned(), source }
}
