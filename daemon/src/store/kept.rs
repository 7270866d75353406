//! `state.db`: what persons have said about whole projects. Unlike the index it cannot be made anew from anything, so every
//! write is on the disk before it is acknowledged, and a damaged file is set aside, not overwritten.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentd_protocol::{Digest, Timestamp};
use rusqlite::{Connection, OpenFlags, params};

use super::file;

/// The version of the tables.
const VERSION: i32 = 2;

/// Rules that are kept for one project. Whoever answers "always" more often is asked to write a rule.
pub const MAX_GRANTS: usize = 500;

/// Projects that are held in memory. Beyond it all are read anew.
const KNOWN: usize = 256;

/// A rule that a person's answer made for every session of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedRule {
    pub rule: String,
    pub unconfined: bool,
    pub identity: Option<Digest>,
}

/// Trust in exactly what a project would switch on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted {
    pub digest: Digest,
    /// What it was, for whoever asks what has changed since.
    pub content: String,
    /// `user:1000 agentctl`.
    pub by: String,
    pub at: Timestamp,
}

/// The breaker of mode `auto` for all sessions is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thrown {
    /// `user:1000 agentctl`.
    pub by: String,
    pub at: Timestamp,
}

/// What is kept about one project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    pub trusted: Option<Trusted>,
    /// What a person did not want to trust.
    pub declined: Option<Digest>,
    pub rules: Vec<SavedRule>,
}

#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    #[error("cannot {action} {}: {source}", .path.display())]
    Sql { action: &'static str, path: PathBuf, source: rusqlite::Error },
    #[error("cannot {action} {}: {source}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} was written by a newer agentd; upgrade agentd", .0.display())]
    Newer(PathBuf),
    #[error(
        "{MAX_GRANTS} rules are kept for this project already; write one into the settings that covers more"
    )]
    Full,
    #[error("the project's path is no text that can be kept")]
    Path,
}

/// The file, opened when it is first asked. Blocks.
#[derive(Debug)]
pub struct KeptState {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    db: Option<Connection>,
    known: HashMap<PathBuf, Arc<About>>,
    /// Absent: not read yet.
    breaker: Option<Option<Thrown>>,
    /// Where a damaged file was set aside.
    set_aside: Option<PathBuf>,
}

impl KeptState {
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, inner: Mutex::default() }
    }

    /// What is kept about a project. Read from the disk once.
    ///
    /// # Errors
    /// The file cannot be read, or is a newer agentd's: then nothing counts as said.
    pub fn about(&self, root: &Path) -> Result<Arc<About>, KeptError> {
        let mut inner = self.lock();
        if let Some(about) = inner.known.get(root) {
            return Ok(Arc::clone(about));
        }
        if inner.db.is_none() && !self.path.exists() {
            // Most people never say anything of the kind: no file for them.
            return Ok(Arc::default());
        }
        let about = Arc::new(self.read(self.open(&mut inner)?, root)?);
        if inner.known.len() >= KNOWN {
            inner.known.clear();
        }
        inner.known.insert(root.to_owned(), Arc::clone(&about));
        Ok(about)
    }

    /// Trusts exactly this. On the disk when it returns.
    ///
    /// # Errors
    /// It was not written.
    pub fn trust(&self, root: &Path, trusted: &Trusted) -> Result<(), KeptError> {
        let text = text(root)?;
        self.write(root, |db| {
            db.execute(
                "INSERT INTO trust (root, digest, content, by, at) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (root) DO UPDATE SET digest = ?2, content = ?3, by = ?4, at = ?5",
                params![text, trusted.digest.to_string(), trusted.content, trusted.by, trusted.at.unix_ms()],
            )
        })
        .map(|_| ())
    }

    /// Trusts the project no more. Whether it was.
    ///
    /// # Errors
    /// It was not written.
    pub fn untrust(&self, root: &Path) -> Result<bool, KeptError> {
        let text = text(root)?;
        let gone = self.write(root, |db| db.execute("DELETE FROM trust WHERE root = ?1", params![text]))?;
        Ok(gone > 0)
    }

    /// Does not trust exactly this, and asks no more about it. What was trusted before stays known, for the next diff.
    ///
    /// # Errors
    /// It was not written.
    pub fn decline(&self, root: &Path, digest: Digest) -> Result<(), KeptError> {
        let text = text(root)?;
        self.write(root, |db| {
            db.execute(
                "INSERT INTO declined (root, digest) VALUES (?1, ?2) ON CONFLICT (root) DO UPDATE SET digest = ?2",
                params![text, digest.to_string()],
            )
        })
        .map(|_| ())
    }

    /// Keeps a rule; one that is kept already is the same one.
    ///
    /// # Errors
    /// It was not written, or there are too many.
    pub fn save(&self, root: &Path, rule: &SavedRule) -> Result<(), KeptError> {
        let text = text(root)?;
        if self.about(root)?.rules.len() >= MAX_GRANTS {
            return Err(KeptError::Full);
        }
        let identity = rule.identity.map(|identity| identity.to_string()).unwrap_or_default();
        self.write(root, |db| {
            db.execute(
                "INSERT INTO rules (root, rule, unconfined, identity) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
                params![text, rule.rule, rule.unconfined, identity],
            )
        })
        .map(|_| ())
    }

    /// Forgets a rule. Whether there was one.
    ///
    /// # Errors
    /// It was not written.
    pub fn forget(&self, root: &Path, rule: &str) -> Result<bool, KeptError> {
        let text = text(root)?;
        let gone = self.write(root, |db| {
            db.execute("DELETE FROM rules WHERE root = ?1 AND rule = ?2", params![text, rule])
        })?;
        Ok(gone > 0)
    }

    /// Whether the breaker for all sessions is open. Read from the disk once.
    ///
    /// # Errors
    /// The file cannot be read, or is a newer agentd's: it may be open.
    pub fn breaker(&self) -> Result<Option<Thrown>, KeptError> {
        let mut inner = self.lock();
        if let Some(known) = &inner.breaker {
            return Ok(known.clone());
        }
        if inner.db.is_none() && !self.path.exists() {
            return Ok(None);
        }
        let db = self.open(&mut inner)?;
        let found = db.query_row("SELECT by, at FROM breaker", [], |row| {
            Ok(Thrown { by: row.get(0)?, at: Timestamp::from_unix_ms(row.get(1)?) })
        });
        let found = match found {
            Ok(thrown) => Some(thrown),
            Err(rusqlite::Error::QueryReturnedNoRows) => None,
            Err(source) => return Err(self.sql("read", source)),
        };
        inner.breaker = Some(found.clone());
        Ok(found)
    }

    /// Opens or closes it. On the disk when it returns. Whether that changed anything.
    ///
    /// # Errors
    /// It was not written.
    pub fn set_breaker(&self, thrown: Option<&Thrown>) -> Result<bool, KeptError> {
        if self.breaker()?.is_some() == thrown.is_some() {
            return Ok(false);
        }
        let mut inner = self.lock();
        inner.breaker = None;
        let db = self.open(&mut inner)?;
        let written = match thrown {
            Some(Thrown { by, at }) => {
                db.execute("INSERT INTO breaker (by, at) VALUES (?1, ?2)", params![by, at.unix_ms()])
            }
            None => db.execute("DELETE FROM breaker", []),
        };
        written.map(|rows| rows > 0).map_err(|source| self.sql("write", source))
    }

    /// Where a damaged file was set aside since the start, if one was.
    #[must_use]
    pub fn set_aside(&self) -> Option<PathBuf> {
        self.lock().set_aside.clone()
    }

    fn write(
        &self,
        root: &Path,
        change: impl FnOnce(&Connection) -> rusqlite::Result<usize>,
    ) -> Result<usize, KeptError> {
        let mut inner = self.lock();
        // Whatever becomes of it: what is known is read again.
        inner.known.remove(root);
        let db = self.open(&mut inner)?;
        change(db).map_err(|source| self.sql("write", source))
    }

    fn read(&self, db: &Connection, root: &Path) -> Result<About, KeptError> {
        let text = text(root)?;
        let failed = |source| self.sql("read", source);
        let trusted =
            db.query_row("SELECT digest, content, by, at FROM trust WHERE root = ?1", params![text], |row| {
                Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(3)?))
            });
        let trusted = match trusted {
            Ok((digest, content, by, at)) => digest.parse().ok().map(|digest| Trusted {
                digest,
                content,
                by,
                at: Timestamp::from_unix_ms(at),
            }),
            Err(rusqlite::Error::QueryReturnedNoRows) => None,
            Err(source) => return Err(failed(source)),
        };
        let declined = db.query_row("SELECT digest FROM declined WHERE root = ?1", params![text], |row| {
            row.get::<_, String>(0)
        });
        let declined = match declined {
            Ok(digest) => digest.parse().ok(),
            Err(rusqlite::Error::QueryReturnedNoRows) => None,
            Err(source) => return Err(failed(source)),
        };
        let mut rules = db
            .prepare("SELECT rule, unconfined, identity FROM rules WHERE root = ?1 ORDER BY rowid")
            .map_err(failed)?;
        let rules = rules
            .query_map(params![text], |row| {
                Ok(SavedRule {
                    rule: row.get(0)?,
                    unconfined: row.get(1)?,
                    identity: row.get::<_, String>(2)?.parse().ok(),
                })
            })
            .and_then(Iterator::collect)
            .map_err(failed)?;
        Ok(About { trusted, declined, rules })
    }

    fn open<'a>(&self, inner: &'a mut Inner) -> Result<&'a Connection, KeptError> {
        if inner.db.is_none() {
            let db = match self.connect() {
                Err(KeptError::Sql { source, .. }) if is_damage(&source) => {
                    inner.set_aside = Some(self.move_aside()?);
                    inner.known.clear();
                    let db = self.connect()?;
                    // It may have been open: what closes is not lost with a file.
                    db.execute(
                        "INSERT INTO breaker (by, at) VALUES (?1, 0)",
                        params!["agentd, because state.db was damaged"],
                    )
                    .map_err(|source| self.sql("write", source))?;
                    inner.breaker = None;
                    db
                }
                other => other?,
            };
            inner.db = Some(db);
        }
        // Just put there.
        inner.db.as_ref().ok_or_else(|| KeptError::Newer(self.path.clone()))
    }

    fn connect(&self) -> Result<Connection, KeptError> {
        file::make(&self.path).map_err(|source| KeptError::Io {
            action: "make",
            path: self.path.clone(),
            source,
        })?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = |source| self.sql("open", source);
        let db = Connection::open_with_flags(&self.path, flags).map_err(opened)?;
        db.pragma_update(None, "synchronous", "FULL").map_err(opened)?;
        let version: i32 = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(opened)?;
        if version > VERSION {
            return Err(KeptError::Newer(self.path.clone()));
        }
        if version < 1 {
            db.execute_batch(
                "BEGIN;
                 CREATE TABLE trust (root TEXT PRIMARY KEY, digest TEXT NOT NULL, content TEXT NOT NULL, by TEXT NOT NULL,
                     at INTEGER NOT NULL);
                 CREATE TABLE rules (root TEXT NOT NULL, rule TEXT NOT NULL, unconfined INTEGER NOT NULL,
                     identity TEXT NOT NULL, PRIMARY KEY (root, rule, unconfined, identity));
                 PRAGMA user_version = 1;
                 COMMIT;",
            )
            .map_err(opened)?;
        }
        if version < VERSION {
            db.execute_batch(
                "BEGIN;
                 CREATE TABLE declined (root TEXT PRIMARY KEY, digest TEXT NOT NULL);
                 CREATE TABLE breaker (by TEXT NOT NULL, at INTEGER NOT NULL);
                 PRAGMA user_version = 2;
                 COMMIT;",
            )
            .map_err(opened)?;
        }
        // Reads a page of each table: damage shows here, and not in the middle of a call.
        for table in ["trust", "declined", "rules", "breaker"] {
            db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0))
                .map_err(opened)?;
        }
        Ok(db)
    }

    fn move_aside(&self) -> Result<PathBuf, KeptError> {
        let io = |source| KeptError::Io { action: "set aside", path: self.path.clone(), source };
        for number in 1..1000 {
            let aside = self.path.with_extension(format!("db.damaged-{number}"));
            if !aside.exists() {
                std::fs::rename(&self.path, &aside).map_err(io)?;
                return Ok(aside);
            }
        }
        Err(io(std::io::Error::other("too many damaged files stand beside it")))
    }

    fn sql(&self, action: &'static str, source: rusqlite::Error) -> KeptError {
        KeptError::Sql { action, path: self.path.clone(), source }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text(root: &Path) -> Result<&str, KeptError> {
    root.to_str().ok_or(KeptError::Path)
}

fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt))
        // A table that should be there is not: not one of ours, or a torn one.
        || matches!(error, rusqlite::Error::SqlInputError { .. })
        || matches!(code, Some(rusqlite::ErrorCode::Unknown))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn trusted(content: &str) -> Trusted {
        Trusted {
            digest: crate::ids::digest_of(content.as_bytes()),
            content: content.to_owned(),
            by: "user:1000 agentctl".to_owned(),
            at: Timestamp::from_unix_ms(1_700_000_000_000),
        }
    }

    fn rule(text: &str) -> SavedRule {
        SavedRule {
            rule: text.to_owned(),
            unconfined: true,
            identity: Some(crate::ids::digest_of(b"server")),
        }
    }

    #[test]
    fn what_is_kept_is_there_for_the_next_daemon_and_for_that_project_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let (api, web) = (Path::new("/home/u/api"), Path::new("/home/u/web"));
        let state = KeptState::new(path.clone());
        assert_eq!(*state.about(api).unwrap(), About::default());
        assert!(!path.exists(), "nobody has said anything");
        state.trust(api, &trusted("one")).unwrap();
        state.save(api, &rule("Bash(make)")).unwrap();
        state.save(api, &rule("Bash(make)")).unwrap();
        let expected =
            About { trusted: Some(trusted("one")), declined: None, rules: vec![rule("Bash(make)")] };
        assert_eq!(*state.about(api).unwrap(), expected);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let state = KeptState::new(path);
        assert_eq!(*state.about(api).unwrap(), expected);
        assert_eq!(*state.about(web).unwrap(), About::default());
        assert_eq!(
            *state.about(Path::new("/home/u/api/sub")).unwrap(),
            About::default(),
            "nothing is inherited"
        );
        state.trust(api, &trusted("two")).unwrap();
        assert_eq!(state.about(api).unwrap().trusted, Some(trusted("two")));
        assert!(state.untrust(api).unwrap() && !state.untrust(api).unwrap());
        assert!(state.forget(api, "Bash(make)").unwrap() && !state.forget(api, "Bash(make)").unwrap());
        assert_eq!(*state.about(api).unwrap(), About::default());
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_nothing_in_it_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let api = Path::new("/home/u/api");
        for damage in [&b"no database at all, and long enough to be looked at"[..], &[0x53; 5000]] {
            std::fs::write(&path, damage).unwrap();
            let state = KeptState::new(path.clone());
            assert_eq!(*state.about(api).unwrap(), About::default());
            let aside = state.set_aside().unwrap();
            assert_eq!(std::fs::read(aside).unwrap(), damage);
            state.trust(api, &trusted("one")).unwrap();
            assert!(KeptState::new(path.clone()).about(api).unwrap().trusted.is_some());
        }
    }

    #[test]
    fn the_breaker_is_kept_and_a_damaged_file_opens_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let thrown = Thrown { by: "user:1000 agentctl".into(), at: Timestamp::from_unix_ms(7) };
        let state = KeptState::new(path.clone());
        assert_eq!(state.breaker().unwrap(), None);
        assert!(!state.set_breaker(None).unwrap() && !path.exists(), "it is closed");
        assert!(state.set_breaker(Some(&thrown)).unwrap() && !state.set_breaker(Some(&thrown)).unwrap());
        assert_eq!(KeptState::new(path.clone()).breaker().unwrap(), Some(thrown));
        assert!(state.set_breaker(None).unwrap());
        assert_eq!(KeptState::new(path.clone()).breaker().unwrap(), None);
        std::fs::write(&path, [0x53; 5000]).unwrap();
        assert!(KeptState::new(path.clone()).breaker().unwrap().is_some());
        assert!(KeptState::new(path).set_breaker(None).unwrap());
    }

    #[test]
    fn a_file_of_the_version_before_gets_the_breaker() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let api = Path::new("/home/u/api");
        KeptState::new(path.clone()).trust(api, &trusted("one")).unwrap();
        let old = Connection::open(&path).unwrap();
        old.execute_batch("DROP TABLE breaker; DROP TABLE declined; PRAGMA user_version = 1;").unwrap();
        drop(old);
        let state = KeptState::new(path);
        assert_eq!(state.breaker().unwrap(), None);
        assert_eq!(state.about(api).unwrap().trusted, Some(trusted("one")));
        assert!(state.set_aside().is_none());
    }

    #[test]
    fn a_newer_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        KeptState::new(path.clone()).trust(Path::new("/p"), &trusted("one")).unwrap();
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 9).unwrap();
        let state = KeptState::new(path.clone());
        assert!(matches!(state.about(Path::new("/p")), Err(KeptError::Newer(_))));
        assert!(matches!(state.save(Path::new("/p"), &rule("x")), Err(KeptError::Newer(_))));
        assert!(path.exists() && state.set_aside().is_none());
    }

    #[test]
    fn rules_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let state = KeptState::new(dir.path().join("state.db"));
        for number in 0..MAX_GRANTS {
            state.save(Path::new("/p"), &rule(&format!("Bash(make {number})"))).unwrap();
        }
        assert!(matches!(state.save(Path::new("/p"), &rule("Bash(more)")), Err(KeptError::Full)));
    }

    #[test]
    fn what_was_declined_is_kept_beside_what_was_trusted_and_an_older_file_grows_into_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let api = Path::new("/home/u/api");
        let db = Connection::open(&path).unwrap();
        db.execute_batch(
            "CREATE TABLE trust (root TEXT PRIMARY KEY, digest TEXT NOT NULL, content TEXT NOT NULL, by TEXT NOT NULL,
                 at INTEGER NOT NULL);
             CREATE TABLE rules (root TEXT NOT NULL, rule TEXT NOT NULL, unconfined INTEGER NOT NULL,
                 identity TEXT NOT NULL, PRIMARY KEY (root, rule, unconfined, identity));
             PRAGMA user_version = 1;",
        )
        .unwrap();
        let one = trusted("one");
        let values = params!["/home/u/api", one.digest.to_string(), one.content, one.by, one.at.unix_ms()];
        db.execute("INSERT INTO trust VALUES (?1, ?2, ?3, ?4, ?5)", values).unwrap();
        drop(db);
        let state = KeptState::new(path.clone());
        let two = trusted("two").digest;
        state.decline(api, two).unwrap();
        let about = KeptState::new(path).about(api).unwrap();
        assert_eq!((about.trusted.clone(), about.declined), (Some(trusted("one")), Some(two)));
        assert!(state.set_aside().is_none());
    }
}
