//! The person's editor, on a temporary copy.

use std::io::Write;

use tempfile::NamedTempFile;
use tokio::process::Command;

use super::exit::Failure;

/// Opens `text` in `$VISUAL`, `$EDITOR` or `vi` and waits. Answers the file, and its text, or `None` when the editor
/// failed. The copy is gone when the file is dropped.
///
/// # Errors
/// No temporary file could be made, or no editor be started.
pub(crate) async fn edit(text: &str) -> Result<(NamedTempFile, Option<String>), Failure> {
    let mut file = tempfile::Builder::new().prefix("agentd-plan-").suffix(".md").tempfile()?;
    file.write_all(text.as_bytes())?;
    file.flush()?;
    let editor = ["VISUAL", "EDITOR"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|editor| !editor.trim().is_empty())
        .unwrap_or_else(|| "vi".to_owned());
    // By the shell, as git does: the variable may hold options too.
    let status = Command::new("/bin/sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file.path())
        .status()
        .await
        .map_err(|error| Failure::failed(format!("cannot start the editor {editor:?}: {error}")))?;
    if !status.success() {
        return Ok((file, None));
    }
    // By its path: many editors save by putting a new file in place of the old one.
    let text = std::fs::read_to_string(file.path()).map_err(|error| {
        Failure::failed(format!("cannot read the edited plan {}: {error}", file.path().display()))
    })?;
    Ok((file, Some(text)))
}
