//! The tables, their version, and how a connection is opened.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::file::{self, Identity};

/// Raised with every change of [`TABLES`]: a file of another version is thrown away and made anew.
const VERSION: i64 = 2;

const TABLES: &str = "
    CREATE TABLE sessions (
        key INTEGER PRIMARY KEY,
        id BLOB NOT NULL UNIQUE,
        parent BLOB,
        handle TEXT NOT NULL,
        title TEXT,
        cwd TEXT NOT NULL,
        mode TEXT,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        reason TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        outcome TEXT,
        archived INTEGER NOT NULL DEFAULT 0,
        last_prompt TEXT,
        held INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL,
        next_seq INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX sessions_by_update ON sessions (updated_at, id);
    CREATE TABLE texts (
        key INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        role INTEGER NOT NULL,
        text TEXT NOT NULL
    ) STRICT;
    CREATE INDEX texts_by_session ON texts (session, role);
    CREATE VIRTUAL TABLE words USING fts5 (text, content = 'texts', content_rowid = 'key',
        tokenize = 'unicode61 remove_diacritics 2');
    CREATE TRIGGER text_added AFTER INSERT ON texts BEGIN
        INSERT INTO words (rowid, text) VALUES (new.key, new.text);
    END;
    CREATE TRIGGER text_removed AFTER DELETE ON texts BEGIN
        INSERT INTO words (words, rowid, text) VALUES ('delete', old.key, old.text);
    END;
";

/// How long one connection waits for another. The writer never waits for readers.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// An open index.
pub(super) struct Database {
    pub(super) connection: Connection,
    /// Of the file that is open, whatever lies at its path by now.
    identity: Option<Identity>,
}

/// Why the index cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Sql(#[from] rusqlite::Error),
}

impl Database {
    /// Opens the index for writing. What is no index of this version is thrown away.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        file::make(path)?;
        match Self::try_open(path) {
            Ok(Some(database)) => return Ok(database),
            Ok(None) => tracing::info!("the index is of another version and is made anew"),
            Err(error) if is_ruin(&error) => tracing::warn!(%error, "the index is damaged and is made anew"),
            Err(error) => return Err(error.into()),
        }
        file::remove(path)?;
        file::make(path)?;
        match Self::try_open(path)? {
            Some(database) => Ok(database),
            None => Err(rusqlite::Error::InvalidQuery.into()),
        }
    }

    /// `None`: it is of another version.
    fn try_open(path: &Path) -> Result<Option<Self>, rusqlite::Error> {
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // After a power cut the newest changes may be missing, which the journals' sizes show.
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "cache_size", -2_000)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        match version {
            VERSION => {}
            0 if is_empty(&connection)? => {
                connection
                    .execute_batch(&format!("BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;"))?;
            }
            _ => return Ok(None),
        }
        Ok(Some(Self { connection, identity: file::identity(path) }))
    }

    /// Opens the index for reading.
    pub(super) fn open_to_read(path: &Path) -> Result<Self, rusqlite::Error> {
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.pragma_update(None, "cache_size", -500)?;
        // Nothing is opened before it is used.
        let _: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok(Self { connection, identity: file::identity(path) })
    }

    /// Brings the log into the file, so that the file alone is the index. What fails here is done by the next one.
    pub(super) fn settle(&self) {
        if let Err(error) = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            tracing::debug!(%error, "the index keeps its log");
        }
    }

    /// Whether the file at the path is the one that is open.
    pub(super) fn is_in_place(&self, path: &Path) -> bool {
        self.identity.is_some() && file::identity(path) == self.identity
    }
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, rusqlite::Error> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    // A connection to a file that was removed would take the log of the new one with it when it is closed.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    Ok(connection)
}

fn is_empty(connection: &Connection) -> Result<bool, rusqlite::Error> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

/// Whether the file is no database, or one that is damaged.
pub(super) fn is_broken(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}

/// Whether the file is broken, or not what this version made.
pub(super) fn is_ruin(error: &rusqlite::Error) -> bool {
    match error {
        error if is_broken(error) => true,
        // A table or column is missing: somebody has changed it.
        rusqlite::Error::SqliteFailure(_, Some(text)) => text.contains("no such"),
        rusqlite::Error::SqlInputError { .. }
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..) => true,
        _ => false,
    }
}
