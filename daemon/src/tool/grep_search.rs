//! `grep_search`: lines that match a regular expression, by ripgrep's libraries.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;

use agentd_protocol::event::ToolKind;
use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use serde_json::json;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::arguments::{Arguments, schema};
use super::file_edit::{locate, shown, target};
use super::listing::{PathGlob, Stop, one_line};
use super::text::cut_chars;
use super::{Closed, Output, Prepared, Scene, Tool, ToolError, Work, blocking};
use crate::model::message::ToolSpec;
use crate::permission::effect::Effect;
use crate::workspace::{Depth, Kind, Located, PathError, Walk, walk};

const MAX_PATTERN: usize = 4 << 10;
/// Compiled size of a pattern, and of its lazily built automaton.
const MAX_COMPILED: usize = 10 << 20;
const MAX_MATCHES: usize = 200;
/// So that one file does not take the place of all others.
const MAX_MATCHES_PER_FILE: usize = 50;
const MAX_BYTES: usize = 64 << 10;
const MAX_LINE_CHARS: usize = 400;
/// What is shown before the match in a line that is cut.
const BEFORE_MATCH_BYTES: usize = 120;
const MAX_SEARCHED_FILE: u64 = 256 << 20;
/// The longest line that can be searched; a longer one ends the search of its file.
const MAX_LINE_BUFFER: usize = 32 << 20;

pub(super) struct GrepSearch;

impl Tool for GrepSearch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "grep_search".to_owned(),
            description: "Searches files for a regular expression (Rust syntax, line by line; `(?i)` ignores case; escape \
                `.`, `(`, `{` and the like to mean themselves). Answers `path:line: text`, sorted by path, at most 200 \
                matches. Searches everything below `path`, hidden files too, but not `.git` nor what git ignores unless \
                `path` names it. Narrow with `include`, a glob such as `*.rs` or `src/**/*.ts`."
                .to_owned(),
            input_schema: schema(
                json!({
                    "pattern": {"type": "string", "description": "The regular expression"},
                    "path": {"type": "string", "description": "A folder or a file. Default: the working directory"},
                    "include": {"type": "string", "description": "Only files whose path below `path` matches this glob"}
                }),
                &["pattern"],
            ),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Search
    }

    fn prepare(&self, arguments: &RawValue, scene: &Scene) -> Result<Prepared, ToolError> {
        let arguments = Arguments::parse(arguments)?;
        let pattern = arguments.string("pattern")?;
        let matcher = compile(pattern)?;
        let include = arguments.optional_string("include")?.filter(|include| !include.is_empty());
        let include = include.map(|include| PathGlob::parse("include", include)).transpose()?;
        let located = locate(scene, arguments.optional_string("path")?.unwrap_or("."))?;
        let kind = located.must_exist()?;
        if !matches!(kind, Kind::File | Kind::Folder) {
            return Err(PathError::NotRegular { path: located.real, kind }.into());
        }
        let name = shown(scene, &located.real).into_owned();
        let (pattern, _) = cut_chars(pattern, 200);
        let title = format!("search {pattern} in {name}");
        let closed = scene.closed.clone();
        Ok(Prepared {
            title,
            effects: vec![Effect::ReadPath(target(&located))],
            diff: None,
            work: Work::Run(Box::new(move |context| {
                Box::pin(blocking(context.cancel, move |cancel| {
                    let scope = Scope {
                        located: &located,
                        kind,
                        name: &name,
                        include: include.as_ref(),
                        closed: &closed,
                    };
                    search(&scope, &matcher, cancel)
                }))
            })),
        })
    }
}

fn compile(pattern: &str) -> Result<RegexMatcher, ToolError> {
    if pattern.is_empty() {
        return Err(ToolError("The argument `pattern` is empty: it would match every line.".to_owned()));
    }
    if pattern.len() > MAX_PATTERN {
        return Err(ToolError(format!(
            "The argument `pattern` is too long: it has {} bytes, at most {MAX_PATTERN} are searched for.",
            pattern.len()
        )));
    }
    RegexMatcherBuilder::new()
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .line_terminator(Some(b'\n'))
        .build(pattern)
        .map_err(|error| {
            let error = error.to_string();
            let hint = if error.contains("size limit") {
                " Use smaller counts in `{…}`."
            } else if error.contains("\\n") {
                " The search goes line by line; search for one of the lines."
            } else {
                " Look-around and back-references do not exist here; escape special characters to mean themselves."
            };
            ToolError(format!("The argument `pattern` is no usable regular expression: {error}.{hint}"))
        })
}

struct Scope<'a> {
    located: &'a Located,
    kind: Kind,
    name: &'a str,
    include: Option<&'a PathGlob>,
    closed: &'a Closed,
}

fn search(scope: &Scope<'_>, matcher: &RegexMatcher, cancel: &CancellationToken) -> Output {
    let stop = Stop::new(cancel);
    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .heap_limit(Some(MAX_LINE_BUFFER))
        // A file with NUL bytes is searched to the end of the first match and then only named.
        .binary_detection(BinaryDetection::convert(0))
        .build();
    let mut report = Report::default();
    let searched = if scope.kind == Kind::File {
        let path = Path::new(scope.name);
        scope.located.open(MAX_SEARCHED_FILE).map(|file| {
            report.search(&mut searcher, matcher, file, path, &stop);
        })
    } else {
        search_folder(scope, matcher, &mut searcher, &mut report, &stop)
    };
    if let Err(error) = searched {
        return Output::error(ToolError::from(error).0);
    }
    if stop.is_cancelled() {
        return Output::error("Interrupted.");
    }
    Output::ok(report.finish(scope.name))
}

fn search_folder(
    scope: &Scope<'_>,
    matcher: &RegexMatcher,
    searcher: &mut Searcher,
    report: &mut Report,
    stop: &Stop<'_>,
) -> Result<(), PathError> {
    let folder = scope.located.open_folder()?;
    let prefix = if scope.name == "." { Path::new("") } else { Path::new(scope.name) };
    let how = Walk { depth: Depth::All, skip: &|path| scope.closed.holds(path), stop: &|| stop.now() };
    let end = walk(&folder, &how, &mut |found| {
        if found.kind != Kind::File || scope.include.is_some_and(|include| !include.matches(&found.below)) {
            return ControlFlow::Continue(());
        }
        let path = prefix.join(&found.below);
        match folder.open_file(&found.below, MAX_SEARCHED_FILE) {
            Ok(file) => report.search(searcher, matcher, file, &path, stop),
            Err(PathError::TooLarge { .. }) => report.skip(&path, "too large"),
            Err(_) => report.skip(&path, "not readable"),
        }
        if report.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    report.ignored = end.ignored;
    report.incomplete |= end.incomplete > 0 || end.too_many || end.stopped;
    Ok(())
}

/// What has been found so far, as it will be shown.
#[derive(Default)]
struct Report {
    text: String,
    matches: usize,
    files: usize,
    skipped: Vec<String>,
    n_skipped: usize,
    ignored: u64,
    incomplete: bool,
}

impl Report {
    fn is_full(&self) -> bool {
        self.matches >= MAX_MATCHES || self.text.len() >= MAX_BYTES
    }

    fn skip(&mut self, path: &Path, why: &str) {
        const NAMED: usize = 5;
        self.n_skipped += 1;
        if self.skipped.len() < NAMED {
            self.skipped.push(format!("{} ({why})", one_line(path)));
        }
    }

    fn search(
        &mut self,
        searcher: &mut Searcher,
        matcher: &RegexMatcher,
        file: impl Read,
        path: &Path,
        stop: &Stop<'_>,
    ) {
        self.files += 1;
        let mut lines = FileMatches {
            matcher,
            path: one_line(path),
            room: MAX_MATCHES.saturating_sub(self.matches).min(MAX_MATCHES_PER_FILE),
            bytes: MAX_BYTES.saturating_sub(self.text.len()),
            text: String::new(),
            shown: 0,
            more: 0,
            is_binary: false,
        };
        let result = searcher.search_reader(matcher, Stoppable { file, stop }, &mut lines);
        if lines.is_binary && lines.shown + lines.more > 0 {
            let _ = writeln!(self.text, "{}: binary file matches", lines.path);
            self.matches += 1;
        } else if !lines.is_binary {
            self.text.push_str(&lines.text);
            self.matches += lines.shown;
            if lines.more > 0 {
                let _ = writeln!(self.text, "{}: [{} more matching lines]", lines.path, lines.more);
            }
        }
        match result {
            Ok(()) => {}
            Err(_) if stop.now() => self.incomplete = true,
            Err(error) if error.kind() == io::ErrorKind::Other => {
                self.skip(path, "a line is too long to search")
            }
            Err(_) => self.skip(path, "not readable"),
        }
    }

    fn finish(mut self, name: &str) -> String {
        if self.matches == 0 {
            let files = if self.files == 1 { "1 file".to_owned() } else { format!("{} files", self.files) };
            let _ = writeln!(self.text, "No matches in {name} ({files} searched).");
        }
        if self.is_full() {
            let _ = writeln!(
                self.text,
                "[Stopped after {} matches; there may be more. Narrow `pattern`, `path` or `include`.]",
                self.matches
            );
        } else if self.incomplete {
            self.text
                .push_str("[Not everything could be searched. Name a smaller folder, or use `include`.]\n");
        }
        if self.n_skipped > 0 {
            let more = if self.n_skipped > self.skipped.len() { ", …" } else { "" };
            let _ = writeln!(self.text, "[Not searched to the end: {}{more}]", self.skipped.join(", "));
        }
        if self.matches == 0 && self.ignored > 0 {
            self.text.push_str("[What git ignores was not searched; to search there, name it in `path`.]\n");
        }
        self.text
    }
}

/// The matches of one file.
struct FileMatches<'a> {
    matcher: &'a RegexMatcher,
    path: String,
    /// How many may still be shown.
    room: usize,
    bytes: usize,
    text: String,
    shown: usize,
    more: usize,
    is_binary: bool,
}

impl Sink for FileMatches<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.shown == self.room || self.text.len() >= self.bytes {
            self.more += 1;
            return Ok(true);
        }
        self.shown += 1;
        let line = cut_around_match(found.bytes(), self.matcher);
        let number = found.line_number().unwrap_or(0);
        let _ = writeln!(self.text, "{}:{number}: {line}", self.path);
        // Of a binary file one match is all that is told.
        Ok(!self.is_binary)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.is_binary = true;
        // After a match there is nothing more to find out.
        Ok(self.shown == 0)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> Result<(), io::Error> {
        self.is_binary |= end.binary_byte_offset().is_some();
        Ok(())
    }
}

/// A line without its end, or the part of it around the match, with what is missing marked.
fn cut_around_match(line: &[u8], matcher: &RegexMatcher) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= MAX_LINE_CHARS {
        return String::from_utf8_lossy(line).into_owned();
    }
    let at = matcher.find(line).ok().flatten().map_or(0, |found| found.start());
    let mut start = if at < MAX_LINE_CHARS { 0 } else { at - BEFORE_MATCH_BYTES };
    // Not in the middle of a character.
    while start < line.len() && line[start] & 0xc0 == 0x80 {
        start += 1;
    }
    // A character has at most four bytes, so this holds enough, and its ragged end is cut off.
    let end = line.len().min(start + 4 * (MAX_LINE_CHARS + 1));
    let part = String::from_utf8_lossy(&line[start..end]);
    let (part, cut) = cut_chars(&part, MAX_LINE_CHARS);
    if start == 0 && cut == 0 && end == line.len() {
        return part.to_owned();
    }
    let (before, after) =
        (if start > 0 { "…" } else { "" }, if cut > 0 || end < line.len() { "…" } else { "" });
    format!("{before}{part}{after} [cut: the line has {} bytes]", line.len())
}

/// A file that ends with an error when the search is to stop, however long its lines are.
struct Stoppable<'a, R> {
    file: R,
    stop: &'a Stop<'a>,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.now() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the search was stopped"));
        }
        self.file.read(buffer)
    }
}
