//! What `write_file` and `edit_file` share: the check that the model knows the file it changes, the session's own plan
//! file, and the write itself.

use std::path::{Path, PathBuf};

use super::text::{self, BOM};
use super::{Contents, FileChange, Output, PlanEdit, Prepared, Request, Scene, ToolError, Work};
use crate::ids::digest_of;
use crate::permission::effect::{Effect, PathTarget, Via};
use crate::workspace::{self, Base, DiffLimit, Expected, FileContent, Kind, Located, MAX_FILE, PathError};

/// Bytes of a file that are kept when it is changed.
const MAX_KEPT: usize = 16 << 20;

impl From<PathError> for ToolError {
    fn from(error: PathError) -> Self {
        let hint = match &error {
            PathError::NotRegular { kind: Kind::Folder, .. } => " Use list_files to see what is in it.",
            PathError::NotRegular { .. } => " Only regular files can be read or written.",
            PathError::TooLarge { .. } => {
                " Use grep_search, or run_shell with head, tail or sed, for parts of it."
            }
            PathError::Missing { .. } => " Use list_files to see what there is.",
            _ => "",
        };
        let text = error.explain();
        let mut chars = text.chars();
        let upper: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
        let stop = if text.ends_with('.') { "" } else { "." };
        ToolError(format!("{upper}{}{stop}{hint}", chars.as_str()))
    }
}

/// Resolves a path argument as the session sees it.
pub(super) fn locate(scene: &Scene, typed: &str) -> Result<Located, ToolError> {
    let home = scene.env.iter().find(|(name, _)| name == "HOME").map(|(_, value)| Path::new(value));
    Ok(workspace::locate(Base { cwd: &scene.cwd, home }, typed)?)
}

/// A path as people read it: relative where it lies in the session's folder.
pub(super) fn shown<'a>(scene: &Scene, real: &'a Path) -> std::borrow::Cow<'a, str> {
    match real.strip_prefix(&scene.cwd) {
        Ok(inside) if inside.as_os_str().is_empty() => ".".into(),
        Ok(inside) => inside.to_string_lossy(),
        Err(_) => real.to_string_lossy(),
    }
}

pub(super) fn target(located: &Located) -> PathTarget {
    PathTarget { via: Via::Tool, typed: located.typed.clone(), real: located.real.clone() }
}

/// Whether this is the session's own plan file. A link put in its place is not: what it leads to is judged as what it is.
pub(super) fn is_plan_file(scene: &Scene, located: &Located) -> bool {
    let Some(plan_file) = &scene.plan_file else { return false };
    located.real == *plan_file
        || workspace::locate_entry(plan_file)
            .is_ok_and(|plan| plan.found() != Some(Kind::Link) && plan.real == located.real)
}

/// The change that `work_out` makes of a located file; where that cannot be made, a call that the gate still judges by
/// the file it names.
pub(super) fn prepare_change(
    verb: &str,
    scene: &Scene,
    located: Located,
    work_out: impl FnOnce(Located, String) -> Result<Prepared, ToolError>,
) -> Prepared {
    let name = shown(scene, &located.real).into_owned();
    let title = format!("{verb} {name}");
    let effects = vec![Effect::WritePath(target(&located))];
    work_out(located, name).unwrap_or_else(|error| Prepared {
        title,
        effects,
        diff: None,
        work: Work::Refuse(error),
    })
}

/// A change of the plan: asked of the session, which journals a snapshot before it writes. The model owns this file and
/// sees it in its context, so it need not have read it.
pub(super) fn prepare_plan_edit(located: &Located, edit: PlanEdit) -> Result<Prepared, ToolError> {
    let current = match located.found() {
        Some(Kind::File) => located.read(MAX_FILE)?.bytes,
        // The session puts it right when it writes.
        _ => Vec::new(),
    };
    let current = String::from_utf8_lossy(&current);
    let new = edit.apply(&current).map_err(ToolError)?;
    let diff = workspace::unified("plan", Some(&current), Some(&new));
    let verb = match edit {
        PlanEdit::Replace { .. } => "write",
        PlanEdit::Edit { .. } => "edit",
    };
    Ok(Prepared {
        title: format!("{verb} the plan"),
        effects: vec![Effect::WritePath(target(located))],
        diff: (!diff.is_empty()).then(|| diff.text(DiffLimit::Person)),
        work: Work::Ask(Request::WritePlan(edit)),
    })
}

/// The file as it is now, if the model knows it as it is now.
pub(super) fn known_content(scene: &Scene, located: &Located) -> Result<FileContent, ToolError> {
    let content = located.read(MAX_FILE)?;
    let name = shown(scene, &located.real);
    match scene.reads.get(&located.real) {
        None => Err(ToolError(format!(
            "Read {name} with read_file first, so that nothing is overwritten unseen."
        ))),
        Some(digest) if *digest != content.digest => Err(ToolError(format!(
            "{name} has changed since you last read it. Read it again with read_file, then repeat the change."
        ))),
        Some(_) => Ok(content),
    }
}

/// A change that is worked out and waits to be permitted.
pub(super) struct Change {
    pub(super) located: Located,
    /// As the path is shown.
    pub(super) name: String,
    /// Absent: the file is new.
    pub(super) old: Option<FileContent>,
    pub(super) new: Vec<u8>,
    /// What is said of it beside the number of lines, as a sentence. May be empty.
    pub(super) remark: String,
}

impl Change {
    pub(super) fn prepare(self, verb: &str) -> Prepared {
        let new_text = text_of(&self.new);
        let old_text = self.old.as_ref().map(|old| text_of(&old.bytes));
        let diff = workspace::unified(&self.name, old_text.as_deref(), Some(&new_text));
        Prepared {
            title: format!("{verb} {}", self.name),
            effects: vec![Effect::WritePath(target(&self.located))],
            diff: Some(diff.text(DiffLimit::Person)),
            work: Work::Run(Box::new(move |context| {
                Box::pin(super::blocking(context.cancel, move |_| self.write(&diff)))
            })),
        }
    }

    fn write(self, diff: &workspace::Diff) -> Output {
        let expected = self.old.as_ref().map_or(Expected::Absent, |old| Expected::Content(old.digest));
        let written = match self.located.replace(&self.new, expected) {
            Ok(written) => written,
            Err(error) => return Output::error(ToolError::from(error).0),
        };
        let mut content = match written.before {
            None => format!("Created {} ({} lines).", self.name, diff.added),
            Some(_) => format!("Changed {} (+{} −{} lines).", self.name, diff.added, diff.removed),
        };
        for remark in [
            self.remark.as_str(),
            if written.left_other_links {
                "It had other hard links; those keep the old content."
            } else {
                ""
            },
            if written.owner_changed { "It belonged to another user and is now yours." } else { "" },
        ] {
            if !remark.is_empty() {
                content.push(' ');
                content.push_str(remark);
            }
        }
        // A new file is what the model just wrote; showing it again tells nothing.
        if written.before.is_some() {
            content.push('\n');
            content.push_str(&diff.text(DiffLimit::Model));
        }
        let path: PathBuf = self.located.real.clone();
        let small = |bytes: Vec<u8>| (bytes.len() <= MAX_KEPT).then(|| bytes.into());
        let contents = Contents { before: self.old.and_then(|old| small(old.bytes)), after: small(self.new) };
        Output {
            is_error: false,
            content,
            diff: Some(diff.text(DiffLimit::Person)),
            changes: vec![FileChange {
                path: path.clone(),
                before: written.before,
                after: Some(written.after),
                added: diff.added,
                removed: diff.removed,
                contents,
            }],
            reads: vec![(path, written.after)],
        }
    }
}

/// An answer for a change that would change nothing. The file's content is known all the same.
pub(super) fn no_change(verb: &str, name: &str, located: Located, bytes: &[u8]) -> Prepared {
    let digest = digest_of(bytes);
    let content = format!("{name} has exactly this content already; nothing was written.");
    Prepared {
        title: format!("{verb} {name}"),
        effects: vec![Effect::WritePath(target(&located))],
        diff: None,
        work: Work::Run(Box::new(move |_| {
            Box::pin(
                async move { Output { content, reads: vec![(located.real, digest)], ..Output::default() } },
            )
        })),
    }
}

/// For a diff only; what is written is never converted.
fn text_of(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes.strip_prefix(BOM).unwrap_or(bytes))
}

/// The text of a file that is to be changed.
pub(super) fn editable<'a>(name: &str, bytes: &'a [u8]) -> Result<(&'a str, bool), ToolError> {
    text::decode(bytes).map_err(|why| ToolError(why.explain(name)))
}
