//! `edit_file`: one exact piece of a file replaced by another.

use agentd_protocol::event::ToolKind;
use serde_json::json;
use serde_json::value::RawValue;

use super::arguments::{Arguments, schema};
use super::edit_text::replace;
use super::file_edit::{
    Change, editable, is_plan_file, known_content, locate, prepare_change, prepare_plan_edit,
};
use super::text::BOM;
use super::{PlanEdit, Prepared, Scene, Tool, ToolError};
use crate::model::message::ToolSpec;
use crate::workspace::Located;

pub(super) struct EditFile;

impl Tool for EditFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "edit_file".to_owned(),
            description: "Replaces `old_string` by `new_string` in a file that you have read with read_file. \
                `old_string` must match the file exactly, blanks and line breaks included, without the line numbers, \
                and stand there only once: give enough lines around the place, or set `replace_all`. In plan mode only \
                the plan file can be edited."
                .to_owned(),
            input_schema: schema(
                json!({
                    "file_path": {"type": "string", "description": "Path of the file, absolute or relative to the working directory"},
                    "old_string": {"type": "string", "description": "The exact text to replace"},
                    "new_string": {"type": "string", "description": "The text to put there; empty to delete"},
                    "replace_all": {"type": "boolean", "description": "Replace every place where old_string stands. Default false"}
                }),
                &["file_path", "old_string", "new_string"],
            ),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Edit
    }

    fn prepare(&self, arguments: &RawValue, scene: &Scene) -> Result<Prepared, ToolError> {
        let arguments = Arguments::parse(arguments)?;
        let old = arguments.string("old_string")?;
        let new = arguments.string("new_string")?;
        let all = arguments.optional_bool("replace_all")?.unwrap_or(false);
        let located = locate(scene, arguments.string("file_path")?)?;
        if is_plan_file(scene, &located) {
            return prepare_plan_edit(
                &located,
                PlanEdit::Edit { old: old.to_owned(), new: new.to_owned(), all },
            );
        }
        let replacement = Replacement { old, new, all };
        Ok(prepare_change("edit", scene, located, |located, name| {
            work_out(scene, located, name, &replacement)
        }))
    }
}

struct Replacement<'a> {
    old: &'a str,
    new: &'a str,
    all: bool,
}

/// # Errors
/// Why nothing is changed: the file is not known as it is now, or the text does not stand in it once.
fn work_out(
    scene: &Scene,
    located: Located,
    name: String,
    replacement: &Replacement<'_>,
) -> Result<Prepared, ToolError> {
    let Replacement { old, new, all } = replacement;
    if located.found().is_none() {
        return Err(ToolError(format!("{name} does not exist. To create it, use write_file.")));
    }
    let current = known_content(scene, &located)?;
    let (text, has_bom) = editable(&name, &current.bytes)?;
    let edited = replace(text, old, new, *all).map_err(ToolError)?;
    let remark = if edited.replaced > 1 { format!("{} places.", edited.replaced) } else { String::new() };
    let mut bytes = if has_bom { BOM.to_vec() } else { Vec::new() };
    bytes.extend_from_slice(edited.text.as_bytes());
    Ok(Change { located, name, old: Some(current), new: bytes, remark }.prepare("edit"))
}
