//! The small files beside a session's journal, and the list of sessions.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use super::folders::{io_error, make, replace_file};
use super::{Paths, PathsError};
use crate::ids::SessionId;

impl Paths {
    /// Every session on disk, in no order. Names that are no ids are passed over.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn session_ids(&self) -> Result<Vec<SessionId>, PathsError> {
        let dir = self.sessions_dir();
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error("list", &dir)(error)),
        };
        Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// Keeps the environment that a client sent, beside the journal and not in it.
    ///
    /// # Errors
    /// It could not be written.
    pub fn write_session_env(&self, id: SessionId, env: &BTreeMap<String, String>) -> Result<(), PathsError> {
        self.write_env_in(&self.session_dir(id), env)
    }

    /// As [`Paths::write_session_env`], into a session's folder that is being made.
    ///
    /// # Errors
    /// It could not be written.
    pub fn write_env_in(
        &self,
        dir: &std::path::Path,
        env: &BTreeMap<String, String>,
    ) -> Result<(), PathsError> {
        if env.is_empty() {
            return Ok(());
        }
        let path = dir.join("env");
        // Text to text cannot fail to be written as JSON.
        let content = serde_json::to_vec(env).unwrap_or_default();
        replace_file(&path, &content).map_err(io_error("write", &path))
    }

    /// Gives a session's folder that is being made the environment of another session.
    ///
    /// # Errors
    /// It could not be copied.
    pub fn copy_session_env(&self, from: SessionId, to: &std::path::Path) -> Result<(), PathsError> {
        let path = to.join("env");
        match fs::read(self.session_dir(from).join("env")) {
            Ok(content) => replace_file(&path, &content).map_err(io_error("write", &path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io_error("copy", &path)(error)),
        }
    }

    /// What was kept; empty when nothing was, or when it cannot be understood any more.
    ///
    /// # Errors
    /// It could not be read.
    pub fn read_session_env(&self, id: SessionId) -> Result<BTreeMap<String, String>, PathsError> {
        let path = self.session_dir(id).join("env");
        match fs::read(&path) {
            Ok(content) => Ok(serde_json::from_slice(&content).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(io_error("read", &path)(error)),
        }
    }

    /// # Errors
    /// The folder for temporary files cannot be made.
    pub fn make_scratch(&self, id: SessionId) -> Result<(), PathsError> {
        make(&self.scratch(id))
    }

    /// Removes a plan's file, if it is one in the plans' folder.
    ///
    /// # Errors
    /// It is still there.
    pub fn remove_plan(&self, path: &std::path::Path) -> Result<(), PathsError> {
        if path.parent() != Some(self.plans_dir().as_path()) {
            return Ok(());
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(error)),
            _ => Ok(()),
        }
    }

    /// Removes the folder for temporary files with all in it.
    ///
    /// # Errors
    /// Something of it is left.
    pub fn remove_scratch(&self, id: SessionId) -> Result<(), PathsError> {
        let dir = self.scratch(id);
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &dir)(error)),
            _ => Ok(()),
        }
    }

    /// The same places with every link resolved, so that they can be compared with what the kernel calls a file. Call
    /// after [`Paths::prepare`].
    ///
    /// # Errors
    /// A folder has gone.
    pub fn canonical(mut self) -> Result<Self, PathsError> {
        for dir in [&mut self.config, &mut self.state] {
            *dir = dir.canonicalize().map_err(io_error("resolve", dir))?;
        }
        self.check_text()?;
        Ok(self)
    }
}
