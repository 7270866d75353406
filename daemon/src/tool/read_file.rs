//! `read_file`: a text file, line by line with numbers.

use std::fmt::Write as _;
use std::path::PathBuf;

use agentd_protocol::event::ToolKind;
use serde_json::json;
use serde_json::value::RawValue;

use super::arguments::{Arguments, schema};
use super::file_edit::{locate, shown, target};
use super::text::{cut_chars, decode};
use super::{Output, Prepared, Scene, Tool, ToolError, Work, blocking};
use crate::ids::Digest;
use crate::model::message::ToolSpec;
use crate::permission::effect::Effect;
use crate::workspace::{Kind, Located, MAX_FILE, PathError};

const DEFAULT_LINES: usize = 2_000;
const MAX_LINE_CHARS: usize = 2_000;
/// About 50,000 tokens: a quarter of a usual context.
const MAX_BYTES: usize = 200 << 10;

pub(super) struct ReadFile;

impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read_file".to_owned(),
            description: "Reads a text file. Answers lines as `number<TAB>text`; the numbers are not part of the file. \
                Without `offset` and `limit` it shows the first 2,000 lines; for longer files read on with `offset`. \
                Lines over 2,000 characters are cut. Read a file before you change it. For a folder use list_files, \
                to find text in many files grep_search."
                .to_owned(),
            input_schema: schema(
                json!({
                    "file_path": {"type": "string", "description": "Path of the file, absolute or relative to the working directory"},
                    "offset": {"type": "integer", "minimum": 1, "description": "Number of the first line to show"},
                    "limit": {"type": "integer", "minimum": 1, "description": "How many lines to show"}
                }),
                &["file_path"],
            ),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn prepare(&self, arguments: &RawValue, scene: &Scene) -> Result<Prepared, ToolError> {
        let arguments = Arguments::parse(arguments)?;
        let located = locate(scene, arguments.string("file_path")?)?;
        let first = arguments.optional_count("offset")?.unwrap_or(1);
        let limit = arguments.optional_count("limit")?.unwrap_or(DEFAULT_LINES);
        match located.must_exist()? {
            Kind::File => {}
            kind => return Err(PathError::NotRegular { path: located.real, kind }.into()),
        }
        let name = shown(scene, &located.real).into_owned();
        Ok(Prepared {
            title: format!("read {name}"),
            effects: vec![Effect::ReadPath(target(&located))],
            diff: None,
            work: Work::Run(Box::new(move |context| {
                Box::pin(blocking(context.cancel, move |_| read(&located, &name, first, limit)))
            })),
        })
    }
}

fn read(located: &Located, name: &str, first: usize, limit: usize) -> Output {
    let content = match located.read(MAX_FILE) {
        Ok(content) => content,
        Err(error) => return Output::error(ToolError::from(error).0),
    };
    let read: (PathBuf, Digest) = (located.real.clone(), content.digest);
    match decode(&content.bytes) {
        Ok((text, _)) => match number_lines(text, name, first, limit) {
            Ok(shown) => Output { content: shown, reads: vec![read], ..Output::default() },
            Err(error) => Output::error(error),
        },
        Err(why) => Output::error(why.explain(name)),
    }
}

/// The lines from `first`, numbered, with a note when that is not all. A final newline ends the last line and begins no
/// other.
fn number_lines(text: &str, name: &str, first: usize, limit: usize) -> Result<String, String> {
    if text.is_empty() {
        return Ok(format!("{name} is empty."));
    }
    let total = text.lines().count();
    if first > total {
        return Err(format!("{name} has only {total} lines; `offset` {first} is beyond its end."));
    }
    let mut shown = String::new();
    let mut last = first - 1;
    let mut any_cut = false;
    for (index, line) in text.lines().enumerate().skip(first - 1).take(limit) {
        let (line, cut) = cut_chars(line, MAX_LINE_CHARS);
        if shown.len() + line.len() > MAX_BYTES {
            break;
        }
        // Writing to a string cannot fail.
        let _ = write!(shown, "{:>6}\t{line}", index + 1);
        if cut > 0 {
            any_cut = true;
            let _ = write!(shown, "… [{cut} more characters]");
        }
        shown.push('\n');
        last = index + 1;
    }
    if any_cut {
        shown.push_str("[Long lines were cut. Use grep_search or run_shell to see more of them.]\n");
    }
    if first > 1 || last < total {
        let _ = write!(shown, "[Lines {first} to {last} of {total}.");
        if last < total {
            let _ = write!(shown, " To read on: offset {}.", last + 1);
        }
        shown.push_str("]\n");
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::ids::digest_of;
    use crate::tool::test_scene::TestScene;

    fn read(test: &TestScene, arguments: Value) -> Output {
        test.call(&ReadFile, arguments)
    }

    #[test]
    fn lines_are_numbered_and_the_whole_file_is_known() {
        let test = TestScene::new();
        let path = test.put("src/a.rs", "one\n\ttwo\n\nfour");
        let prepared = test.prepare(&ReadFile, json!({"file_path": "src/a.rs"})).unwrap();
        assert_eq!(prepared.title, "read src/a.rs");
        let output = test.run(prepared);
        assert_eq!(output.content, "     1\tone\n     2\t\ttwo\n     3\t\n     4\tfour\n");
        assert_eq!(output.reads, [(path, digest_of(b"one\n\ttwo\n\nfour"))]);
        let part = read(&test, json!({"file_path": "src/a.rs", "offset": 2, "limit": 2}));
        assert_eq!(part.content, "     2\t\ttwo\n     3\t\n[Lines 2 to 3 of 4. To read on: offset 4.]\n");
        assert_eq!(part.reads, output.reads, "a part is read of a known whole");
        let end = read(&test, json!({"file_path": "src/a.rs", "offset": 4}));
        assert_eq!(end.content, "     4\tfour\n[Lines 4 to 4 of 4.]\n");
        let beyond = read(&test, json!({"file_path": "src/a.rs", "offset": 5}));
        assert!(beyond.is_error && beyond.content.contains("has only 4 lines"), "{}", beyond.content);
    }

    #[test]
    fn long_files_long_lines_and_large_output_are_cut_and_it_is_said() {
        let test = TestScene::new();
        test.put("long", "x\n".repeat(2_500));
        let output = read(&test, json!({"file_path": "long"}));
        assert!(output.content.ends_with("  2000\tx\n[Lines 1 to 2000 of 2500. To read on: offset 2001.]\n"));
        test.put("wide", format!("{}\nend\n", "é".repeat(3_000)));
        let output = read(&test, json!({"file_path": "wide"}));
        assert!(output.content.contains("é… [1000 more characters]\n     2\tend\n"), "{}", output.content);
        test.put("large", "y".repeat(1_999).add_line().repeat(500));
        let output = read(&test, json!({"file_path": "large"}));
        assert!(output.content.len() < MAX_BYTES + 1_000);
        assert!(
            output.content.contains("To read on: offset 103."),
            "{}",
            &output.content[MAX_BYTES - 2_000..]
        );
    }

    trait AddLine {
        fn add_line(self) -> String;
    }

    impl AddLine for String {
        fn add_line(mut self) -> String {
            self.push('\n');
            self
        }
    }

    #[test]
    fn ed_05_ed_07_marks_and_encodings() {
        let test = TestScene::new();
        test.put("bom", b"\xef\xbb\xbfone\r\ntwo\r\n");
        assert_eq!(read(&test, json!({"file_path": "bom"})).content, "     1\tone\n     2\ttwo\n");
        test.put("utf16", b"\xff\xfeh\0i\0");
        let output = read(&test, json!({"file_path": "utf16"}));
        assert!(output.is_error && output.content.contains("UTF-16"), "{}", output.content);
        assert_eq!(output.reads, [], "what was not shown is not known");
        test.put("latin", b"caf\xe9\n");
        assert!(read(&test, json!({"file_path": "latin"})).content.contains("not UTF-8"));
        test.put("png", b"\x89PNG\r\n\x1a\n\0");
        assert!(read(&test, json!({"file_path": "png"})).content.contains("binary"));
        test.put("empty", "");
        let output = read(&test, json!({"file_path": "empty"}));
        assert!(!output.is_error && output.content == "empty is empty.", "{}", output.content);
        assert_eq!(output.reads.len(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_a_hint() {
        let test = TestScene::new();
        std::fs::create_dir(test.path("dir")).unwrap();
        test.put("file", "x");
        for (path, hint) in [
            ("dir", "list_files"),
            ("missing", "list_files"),
            ("/dev/zero", "refused"),
            ("/proc/self/environ", "refused"),
            ("file/", "not a folder"),
        ] {
            let error = test.prepare(&ReadFile, json!({"file_path": path})).unwrap_err().0;
            assert!(error.contains(hint), "{path}: {error}");
        }
        let error = test.prepare(&ReadFile, json!({"file_path": "file", "limit": "ten"})).unwrap_err().0;
        assert_eq!(error, "The argument `limit` must be a whole number, 1 or more, not a string.");
    }
}
