//! `write_file`: a whole file, new or in place of one that the model has read.

use agentd_protocol::event::ToolKind;
use serde_json::json;
use serde_json::value::RawValue;

use super::arguments::{Arguments, schema};
use super::file_edit::{
    Change, is_plan_file, known_content, locate, no_change, prepare_change, prepare_plan_edit,
};
use super::text::{BOM, Ending, decode};
use super::{PlanEdit, Prepared, Scene, Tool, ToolError};
use crate::model::message::ToolSpec;
use crate::workspace::{Located, MAX_FILE};

pub(super) struct WriteFile;

impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write_file".to_owned(),
            description: "Creates a file, or replaces all of its content. A file that exists must have been read with \
                read_file before; to change a part of one use edit_file. Missing folders are made. In plan mode only \
                the plan file can be written."
                .to_owned(),
            input_schema: schema(
                json!({
                    "file_path": {"type": "string", "description": "Path of the file, absolute or relative to the working directory"},
                    "content": {"type": "string", "description": "The whole new content"}
                }),
                &["file_path", "content"],
            ),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Edit
    }

    fn prepare(&self, arguments: &RawValue, scene: &Scene) -> Result<Prepared, ToolError> {
        let arguments = Arguments::parse(arguments)?;
        let content = arguments.string("content")?;
        let located = locate(scene, arguments.string("file_path")?)?;
        if content.len() as u64 > MAX_FILE {
            return Err(ToolError(format!("`content` is too long: a file may have {MAX_FILE} bytes.")));
        }
        if is_plan_file(scene, &located) {
            return prepare_plan_edit(&located, PlanEdit::Replace { content: content.to_owned() });
        }
        Ok(prepare_change("write", scene, located, |located, name| work_out(scene, located, name, content)))
    }
}

/// # Errors
/// Why nothing is written: the file is not known as it is now, or holds no text.
fn work_out(scene: &Scene, located: Located, name: String, content: &str) -> Result<Prepared, ToolError> {
    if located.found().is_none() {
        let new = content.as_bytes().to_vec();
        return Ok(Change { located, name, old: None, new, remark: String::new() }.prepare("write"));
    }
    let current = located.read(MAX_FILE)?;
    let (old_text, has_bom) = decode(&current.bytes).map_err(|why| {
        // It can never be known by read_file, so asking for that would lead in circles.
        ToolError(format!("{} To put a text file in its place, remove it first.", why.explain(&name)))
    })?;
    let (new, remark) = in_the_manner_of(old_text, has_bom, content);
    // Whoever writes what is there already knows it, read or not.
    if new == current.bytes {
        return Ok(no_change("write", &name, located, &new));
    }
    // Nothing is lost with an empty file.
    let old = if current.bytes.is_empty() { current } else { known_content(scene, &located)? };
    Ok(Change { located, name, old: Some(old), new, remark: remark.to_owned() }.prepare("write"))
}

/// `content` with what the model could not see of the old file: its byte order mark, and line endings that were CRLF
/// throughout. Everything else, the final newline too, is as given.
fn in_the_manner_of(old_text: &str, has_bom: bool, content: &str) -> (Vec<u8>, &'static str) {
    let bom = has_bom && !content.starts_with('\u{feff}');
    let crlf = !content.contains('\r') && content.contains('\n') && Ending::is_only_crlf(old_text);
    let mut new = if bom { BOM.to_vec() } else { Vec::new() };
    if crlf {
        new.extend_from_slice(content.replace('\n', "\r\n").as_bytes());
    } else {
        new.extend_from_slice(content.as_bytes());
    }
    let remark = match (bom, crlf) {
        (false, false) => "",
        (true, false) => "Its byte order mark was kept.",
        (false, true) => "Its CRLF line endings were kept.",
        (true, true) => "Its byte order mark and CRLF line endings were kept.",
    };
    (new, remark)
}
