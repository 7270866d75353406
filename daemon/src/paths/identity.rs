//! The id of the state folder, made once.

use std::fs;
use std::io;

use uuid::Uuid;

use super::folders::{io_error, replace_file};
use super::{Paths, PathsError};
use crate::ids::DaemonId;

/// Reads the id of this state folder, or makes it: random, so it tells nothing. The lock must be held.
///
/// # Errors
/// The file holds something else, or cannot be read or made.
pub fn daemon_id(paths: &Paths) -> Result<DaemonId, PathsError> {
    let path = paths.state_dir().join("daemon_id");
    match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| PathsError::BadDaemonId(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = DaemonId::from_uuid(Uuid::new_v4());
            replace_file(&path, format!("{id}\n").as_bytes()).map_err(io_error("write", &path))?;
            Ok(id)
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(PathsError::BadDaemonId(path)),
        Err(error) => Err(io_error("read", &path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::Env;
    use super::*;

    #[test]
    fn is_made_once_and_kept() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::resolve(&Env::from_vars([("HOME", root.path())]), None).unwrap();
        paths.prepare().unwrap();
        let id = daemon_id(&paths).unwrap();
        assert_eq!(daemon_id(&paths).unwrap(), id);
        let path = paths.state_dir().join("daemon_id");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for bad in [&b"../../etc\n"[..], b"\xff\xfe", b""] {
            fs::write(&path, bad).unwrap();
            assert!(matches!(daemon_id(&paths), Err(PathsError::BadDaemonId(_))));
        }
    }
}
