//! Which sessions are not idle: an empty file for each, so that a start opens exactly those. A marker too many is
//! harmless; one too few would lose a waiting approval from sight, so they are durable before anything relies on them.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use super::folders::{io_error, sync_dir};
use super::{Paths, PathsError};
use crate::ids::SessionId;

/// The markers of one state folder. All calls touch the disk: not for a runtime's thread.
#[derive(Clone, Debug)]
pub struct Markers {
    dir: PathBuf,
}

impl Markers {
    #[must_use]
    pub fn new(paths: &Paths) -> Self {
        Self { dir: paths.active_dir() }
    }

    /// Marks a session as not idle. Durable when it returns; twice is the same as once.
    ///
    /// # Errors
    /// The marker cannot be made or synced.
    pub fn set(&self, id: SessionId) -> Result<(), PathsError> {
        let path = self.dir.join(id.to_string());
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .and_then(|_| sync_dir(&self.dir))
            .map_err(io_error("mark", &path))
    }

    /// Marks a session as idle. Its journal must have been synced before.
    ///
    /// # Errors
    /// The marker cannot be removed or the removal not synced.
    pub fn clear(&self, id: SessionId) -> Result<(), PathsError> {
        let path = self.dir.join(id.to_string());
        match fs::remove_file(&path) {
            Ok(()) => sync_dir(&self.dir).map_err(io_error("sync", &self.dir)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io_error("remove the marker", &path)(error)),
        }
    }

    /// The sessions that were not idle, oldest id first. Files that name no session are passed over.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn list(&self) -> Result<Vec<SessionId>, PathsError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(io_error("list", &self.dir))?,
        };
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry.map_err(io_error("list", &self.dir))?;
            ids.extend(entry.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok()));
        }
        ids.sort();
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Env;
    use super::*;

    #[test]
    fn markers_are_set_listed_and_cleared() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::resolve(&Env::from_vars([("HOME", root.path())]), None).unwrap();
        let markers = Markers::new(&paths);
        assert_eq!(markers.list().unwrap(), []);
        let id = SessionId::generate();
        assert!(markers.set(id).is_err(), "without its folder it cannot be durable");
        paths.prepare().unwrap();

        let other = SessionId::generate();
        markers.set(other).unwrap();
        markers.set(id).unwrap();
        markers.set(id).unwrap();
        fs::write(paths.active_dir().join("not-a-session"), "").unwrap();
        assert_eq!(markers.list().unwrap(), [id, other], "ids made later sort later");
        markers.clear(id).unwrap();
        markers.clear(id).unwrap();
        assert_eq!(markers.list().unwrap(), [other]);
    }
}
